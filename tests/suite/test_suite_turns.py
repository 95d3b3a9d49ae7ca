"""Turns on a GPU: who measures has it alone, whatever others do."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

from eqsat.suite.turns import Turns

HOLDER = """
import sys, time
from pathlib import Path
from eqsat.suite.turns import Turns

with getattr(Turns(Path(sys.argv[1])), sys.argv[2])():
    print("mine", flush=True)
    time.sleep(60)
"""


def holder(folder: Path, kind: str) -> subprocess.Popen[str]:
    """A process that has a turn and keeps it."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder), kind], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "mine\n"
    return process


def test_turns_are_shared_until_one_wants_the_gpu_alone(tmp_path: Path) -> None:
    turns, order = Turns(tmp_path), list[str]()
    other = holder(tmp_path, "shared")
    with turns.shared():
        order.append("shared beside another")

    def measure() -> None:
        with turns.alone():
            order.append("alone")

    def share() -> None:
        with turns.shared():
            order.append("shared afterwards")

    threads = [threading.Thread(target=each) for each in (measure, share)]
    for thread in threads:
        thread.start()
        time.sleep(0.2)
    assert order == ["shared beside another"]
    other.kill()
    for thread in threads:
        thread.join(10)
    assert order == ["shared beside another", "alone", "shared afterwards"]


def test_a_process_that_dies_gives_its_turn_back(tmp_path: Path) -> None:
    holder(tmp_path, "alone").kill()
    with Turns(tmp_path).alone():
        pass


def test_without_a_folder_nothing_waits() -> None:
    with Turns().alone(), Turns().alone():
        pass
