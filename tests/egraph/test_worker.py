"""Worker processes: isolated from the folder they start in, one for each thread, gone with their parent."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.base.search_path import search_path
from eqsat.base.worker import Pool, Worker
from eqsat.egraph.saturate import Limits, saturate, warm_up
from eqsat.egraph.snapshot import Snapshot
from eqsat.errors import EqsatError, InputError
from eqsat.language.rule import HostRule
from eqsat.program.core import lower
from eqsat.rules import ALL

saturate_module = sys.modules["eqsat.egraph.saturate"]

MEMORY = 1 << 30
SECONDS = 60.0

HOSTILE = (
    *("egglog", "random", "numpy", "onnx", "pickle", "struct", "queue", "select", "resource", "subprocess", "typer"),
    *("rich", "hashlib", "highspy", "ml_dtypes", "threading", "tempfile", "jinja2", "sitecustomize", "ast", "weakref"),
)
"""Modules that eqsat, its libraries or Python import once the command line runs."""


@pytest.fixture
def pool() -> Iterator[Pool]:
    made = Pool("support.worker_services:Echo", most=2)
    yield made
    made.close()


def ask(pool: Pool, *requests: str) -> list[tuple[str, object]]:
    """The messages that answer requests, one after the other to one worker."""
    messages = []
    with pool.lent(MEMORY, None, SECONDS) as worker:
        assert worker is not None
        for request in requests:
            worker.send(request)
            while not messages or messages[-1][0] not in ("done", "error"):
                messages.append(worker.receive(SECONDS))
    return messages


def snapshot(width: int = 4) -> Snapshot:
    program = eqsat.trace(lambda x, w: eqsat.relu(x @ w + 1.0) * 2.0, eqsat.spec((3, width)), eqsat.spec((width, 5)))
    return Snapshot.from_core(lower(program).roots)


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder with a model, and with modules that leave a mark when they are imported."""
    mark = f"import sys; open({str(tmp_path / 'imported')!r}, 'a').write(__name__)\n"
    for name in HOSTILE:
        (tmp_path / f"{name}.py").write_text(mark)
    x = eqsat.spec((3, 4))
    eqsat.to_onnx(eqsat.trace(lambda x: eqsat.relu(x @ np.ones((4, 5), np.float32) + 1.0), x), str(tmp_path / "m.onnx"))
    return tmp_path


def run(folder: Path, *command: str, **env: str) -> str:
    """What a command prints in a folder, whose modules it must not have imported."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | env
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
    assert not (folder / "imported").exists(), (folder / "imported").read_text()
    return ran.stdout


OPTIMIZE = ("optimize", "m.onnx", "-o", "out.onnx", "--time-limit", "60")  # workers start late on a busy machine


@pytest.mark.parametrize("command", [("-m", "eqsat"), ("-P", "-m", "eqsat")], ids=" ".join)
def test_nothing_is_imported_from_beside_the_model(hostile: Path, command: tuple[str, ...]):
    assert "saturated" in run(hostile, sys.executable, *command, *OPTIMIZE, "--json", "-")
    assert (hostile / "out.onnx").exists()


def test_a_compiler_in_a_package_imports_nothing_from_beside_the_model(hostile: Path):
    script = "from eqsat.gpu.build.compilers import _tool, _zig; print(_tool((*_zig(), 'c++')).version)"
    assert "clang" in run(hostile, sys.executable, "-P", "-c", script)


def test_the_worker_imports_nothing_from_beside_the_model_when_its_parent_looks_there(hostile: Path):
    script = (
        "import eqsat.pipeline.optimize, onnx, sys; sys.path.insert(0, ''); import eqsat;"
        "p = eqsat.from_onnx('m.onnx'); print(eqsat.optimize(p, time_limit=60).report['egraph']['stop'])"
    )
    assert run(hostile, sys.executable, "-P", "-c", script).strip() == "saturated"


def test_the_current_folder_comes_last_unless_eqsat_lies_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    home = Path(eqsat.__file__).resolve().parent.parent
    monkeypatch.setattr(sys, "path", ["", "relative", str(home), "/elsewhere"])
    monkeypatch.chdir(tmp_path)
    assert search_path() == ([str(tmp_path / "relative"), str(home), "/elsewhere"], [str(tmp_path)])
    monkeypatch.chdir(home)
    assert search_path() == ([str(home), str(home / "relative"), "/elsewhere"], [])


def test_eqsat_is_found_from_wherever_its_parent_has_it(monkeypatch: pytest.MonkeyPatch):
    home = os.path.realpath(Path(eqsat.__file__).parent.parent)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if os.path.realpath(entry or ".") != home])
    assert home in search_path()[0]


def test_a_worker_looks_where_its_parent_looks(pool: Pool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    ((_, found), _) = ask(pool, "path")
    assert isinstance(found, list)
    assert found[0] == str(tmp_path)
    assert "/nowhere" not in found


def test_messages_come_in_order_and_failures_by_name(pool: Pool):
    assert ask(pool, "messages") == [("first", None), ("done", "messages")]
    assert ask(pool, "fail") == [("error", "ValueError: as asked")]
    assert ask(pool, "panic") == [("error", "BaseException: as compiled code does")]


def test_the_collector_is_paused_while_a_worker_answers(pool: Pool):
    assert ask(pool, "collects") == [("done", False)]


def test_messages_for_an_earlier_request_are_dropped(pool: Pool):
    with pool.lent(MEMORY, None, SECONDS) as worker:
        assert worker is not None
        for request in ("fail", "messages", "last"):
            worker.send(request)
        assert worker.receive(SECONDS) == ("done", "last")


def test_a_service_that_cannot_be_loaded_is_an_error():
    pool = Pool("no_such_module:Service", most=1)
    assert ask(pool, "anything") == [("error", "ModuleNotFoundError: No module named 'no_such_module'")]
    pool.close()


def test_what_cannot_be_sent_is_bad_input_and_leaves_the_worker_whole(pool: Pool):
    with pool.lent(MEMORY, None, SECONDS) as worker:
        assert worker is not None
        with pytest.raises(InputError, match="at the top of a module"):
            worker.send(lambda: None)
        worker.send("hello")
        assert worker.receive(SECONDS) == ("done", "hello")


def test_each_thread_has_a_worker_to_itself_and_the_last_waits(pool: Pool):
    with pool.lent(MEMORY, None, SECONDS) as first, pool.lent(MEMORY, None, SECONDS) as second:
        assert first is not second
        with pool.lent(MEMORY, None, timeout=0.0) as third:
            assert third is None
    with pool.lent(MEMORY, None, timeout=0.0) as again:
        assert again in (first, second)


def test_a_thread_whose_worker_ends_with_all_others_sees_its_pipe_end(pool: Pool):
    with pool.lent(MEMORY, None, SECONDS) as worker:
        assert worker is not None
        pool.close()
        assert not worker.alive
        with pytest.raises(BrokenPipeError):
            worker.send(1)
    with pool.lent(MEMORY, None, SECONDS) as worker:
        assert worker is not None
        pool.close()
        with pytest.raises(EOFError):
            worker.receive(SECONDS)


def test_a_worker_with_another_limit_makes_room(pool: Pool):
    with pool.lent(MEMORY, None, SECONDS) as first, pool.lent(MEMORY, None, SECONDS) as second:
        assert first is not None
        assert second is not None
    with pool.lent(2 * MEMORY, None, timeout=0.0) as worker:
        assert worker is not None
        assert worker.memory == 2 * MEMORY
    assert [first.alive, second.alive] == [True, False]


def test_the_worker_that_holds_what_is_needed_is_preferred(pool: Pool):
    with pool.lent(MEMORY, None, SECONDS), pool.lent(MEMORY, None, SECONDS) as second:
        assert second is not None
        second.holding = "rules"
    assert pool.is_holding(MEMORY, "rules")
    with pool.lent(MEMORY, "rules", SECONDS) as worker:
        assert worker is second


def test_a_worker_loads_before_it_is_asked(tmp_path: Path):
    loaded = tmp_path / "loaded"
    worker = Worker("support.worker_services:Early", MEMORY, {"LOADED": str(loaded)})
    deadline = time.monotonic() + SECONDS
    while not loaded.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert loaded.exists()
    worker.send(1)
    assert worker.receive(SECONDS) == ("done", 1)
    worker.kill()


def test_a_worker_is_started_before_anything_large_is_imported_and_is_the_one_that_saturates():
    script = """
import sys
from eqsat.egraph.pool import MEMORY, WORKERS, start
start()
assert not {"numpy", "eqsat.language.rule"} & set(sys.modules)
(early,) = WORKERS._idle
from eqsat.egraph.saturate import Limits, warm_up
assert Limits().memory == MEMORY
warm_up((), 60)
start()
assert WORKERS._idle == [early] and early.answered
print("fine")
"""
    folder = str(Path(eqsat.__file__).parent.parent)
    ran = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("fine\n", "")


def test_rules_are_sent_once(monkeypatch: pytest.MonkeyPatch):
    """Declaring them takes longer than most searches; after a failure nobody knows what is declared."""
    sent: list[Any] = []
    send = Worker.send
    monkeypatch.setattr(Worker, "send", lambda self, request: (sent.append(request), send(self, request)))
    monkeypatch.setattr(saturate_module, "_WORKERS", pool := Pool("eqsat.egraph.saturate:Saturations", most=1))
    few, fewer = ALL[:9], ALL[:5]
    for rules in (few, few, fewer, few):
        warm_up(rules, SECONDS)
        assert saturate(snapshot(), rules, Limits(seconds=SECONDS)).stats["stop"] == "saturated"
    declared, none = bytes, type(None)
    assert [type(request.rules) for request in sent] == [declared, none, none, declared, none, declared, none]
    with pool.lent(Limits().memory, tuple(few), SECONDS) as worker:
        assert worker is not None
        worker.send("no request")
        assert worker.receive(SECONDS)[0] == "error"  # type: ignore[index]
        assert worker.holding is None
    pool.close()


def gone(pid: int) -> bool:
    """Whether a process ends within a few seconds."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


HANG = """
import os, sys, time
sys.path[:0] = {path!r}
from eqsat.base.worker import Pool, Worker
pool = Pool("support.worker_services:Echo", most=2)
with pool.lent({memory}, None, 60) as worker:
    worker.send("hang")
    print(worker.receive(60)[1], flush=True)
    {then}
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
@pytest.mark.parametrize("forks", [False, True], ids=["alone", "with a forked child"])
def test_a_busy_worker_ends_with_its_parent_even_when_that_is_killed(forks: bool):
    child = "os.fork() or (print(os.getpid(), flush=True), time.sleep(600))"
    path = [str(Path(eqsat.__file__).parent.parent), str(Path(__file__).parents[1])]
    script = HANG.format(path=path, memory=MEMORY, then=f"{child if forks else '0'}; time.sleep(600)")
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        forked = int(parent.stdout.readline()) if forks else None
        parent.kill()
        try:
            assert gone(worker)
        finally:
            if forked is not None:
                os.kill(forked, signal.SIGKILL)


FORK = """
import os, sys
sys.path[:0] = {path!r}
from eqsat.base.worker import Pool, Worker
pool = Pool("support.worker_services:Echo", most=1)

def ask():
    with pool.lent({memory}, None, 60) as worker:
        worker.send(os.getpid())
        assert worker.receive(60) == ("done", os.getpid())
        return worker._process.pid

mine = ask()
child = os.fork()
if not child:
    assert ask() != mine  # its own
    sys.exit(0)  # which runs what atexit knows
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert ask() == mine
print("fine")
"""


def test_a_forked_child_has_workers_of_its_own():
    path = [str(Path(eqsat.__file__).parent.parent), str(Path(__file__).parents[1])]
    ran = subprocess.run(
        [sys.executable, "-c", FORK.format(path=path, memory=MEMORY)], capture_output=True, text=True, check=False
    )
    assert (ran.stdout, ran.stderr) == ("fine\n", "")


def test_threads_saturate_at_once():
    sources = [snapshot(width) for width in range(3, 9)]
    alone = [saturate(source, ALL).nodes for source in sources]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda source: saturate(source, ALL, Limits(seconds=SECONDS)), sources * 2))
    assert [found.nodes for found in together] == alone * 2
    assert {found.stats["stop"] for found in together} == {"saturated"}


def test_a_process_without_stderr_has_workers():
    code = (
        "import sys, eqsat; p = eqsat.trace(lambda x: x * 1 + 0, eqsat.spec(3)); "
        "print(sys.stderr, eqsat.optimize(p).report['egraph']['stop'])"
    )
    command = f"exec {shlex.quote(sys.executable)} -c {shlex.quote(code)} 2>&-"
    ran = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, text=True, check=True)
    assert ran.stdout == "None saturated\n"


def test_a_worker_that_ends_by_itself_is_a_failed_search(monkeypatch: pytest.MonkeyPatch):
    pool = Pool("support.worker_services:Ends", most=1)
    monkeypatch.setattr(saturate_module, "_WORKERS", pool)
    with pytest.raises(EqsatError, match="its process ended with exit code 7"):
        saturate(snapshot(), ALL, Limits(seconds=SECONDS))
    pool.close()


def test_a_rule_that_cannot_be_sent_is_bad_input():
    row = HostRule("local", "a => a", lambda terms, emit: None, "exact", "test", "test")
    with pytest.raises(InputError, match="at the top of a module"):
        saturate(snapshot(), [row])


def test_ctrl_c_in_the_main_thread_leaves_other_threads_at_work():
    found: list[Snapshot] = []
    thread = threading.Thread(target=lambda: found.append(saturate(snapshot(), ALL, Limits(seconds=SECONDS))))
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    thread.join()
    assert found[0].stats["stop"] == "saturated"
