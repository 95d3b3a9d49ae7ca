"""SIGINT and SIGTERM at random moments of `eqsat optimize`, once or twice. Right: a checked result, or exit code 130.

Wrong: a traceback, a partial file, or a worker that goes on. The moments range from the start of the interpreter to
after the end of the run. Before eqsat has run a line, it is right that the signal itself ends the process.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eqsat.fuzzing.kinds import Fault, one_piece
from eqsat.runs.task import Tell

SECONDS = 120.0
BYTES = 1 << 40

steps = one_piece

LATEST = 2.0
"""Seconds from the start of the command to the latest signal."""

ANSWER = 30.0
"""Seconds for an answer after the first signal: many, because processors are shared. Another test holds eqsat to one
second of processor time."""

MARK = "EQSAT_FUZZ_SIGNALS"
"""Set in the environment of a command, and so of its workers, to find them."""


_DEPTHS = (1, 4, 24)
"""Layers of the models that are optimised: from a single kernel to a search of seconds."""

Case = tuple[int, list[tuple[float, signal.Signals]], bool]
"""A depth, signals and the seconds before each, and whether the output replaces an existing file."""


def _layers(depth: int) -> Callable[..., Any]:
    import eqsat

    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((16, 16)).astype(np.float32) for _ in range(depth)]

    def layers(x: Any) -> Any:
        for w in weights:
            x = eqsat.softmax(eqsat.relu(x @ w) + x) * 0.5
        return x

    return layers


def case(seed: int, kept: Sequence[int] | None, models: Sequence[str] = ()) -> Case:
    """The case of a seed."""
    rng = random.Random(seed)
    moments = [(rng.uniform(0.0, LATEST), rng.choice((signal.SIGINT, signal.SIGTERM)))]
    if rng.random() < 0.3:
        moments.append((rng.uniform(0.0, 0.3), moments[0][1]))
    return rng.choice(_DEPTHS), moments, rng.random() < 0.5


def files(made: Case) -> dict[str, bytes]:
    """The case as text."""
    return {".txt": f"{made}\n".encode()}


def judge(made: Case, tell: Tell) -> str:
    """Run the command, send the signals, and check the outcome."""
    import eqsat

    depth, moments, replaces = made
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as source:
        home, out, model = Path(folder), Path(folder, "out.onnx"), Path(source, "model.onnx")
        eqsat.to_onnx(eqsat.trace(_layers(depth), eqsat.spec((8, 16))), model)
        if replaces:
            out.write_bytes(b"as it was")
        command = [sys.executable, "-m", "eqsat", "optimize", str(model), "-o", str(out), "--json", str(home / "json")]
        begun = subprocess.Popen(
            [*command, "--time-limit", "10"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {MARK: mark},
            start_new_session=True,  # with the usual handlers, whatever this process ignores
            preexec_fn=_usual,
        )
        try:
            started = True
            for delay, number in moments:
                time.sleep(delay)
                started = started and _started(begun.pid)
                with contextlib.suppress(ProcessLookupError):
                    begun.send_signal(number)
            said, errors = begun.communicate(timeout=ANSWER)
        except subprocess.TimeoutExpired:
            begun.kill()
            begun.communicate()
            raise Fault("no answer in time") from None
        word = _ended(begun.returncode, said, errors, started)
        _whole(home, out, replaces, word)
        _nothing_left(mark)
        return word


def _usual() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _started(pid: int) -> bool:
    """Whether a process handles both signals itself by now."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                caught = int(line.split()[1], 16)
                return all(caught >> (number - 1) & 1 for number in (signal.SIGINT, signal.SIGTERM))
    return True


def _ended(code: int, said: str, errors: str, started: bool) -> str:
    if not started and code in (-signal.SIGINT, -signal.SIGTERM, 1, 130):
        return "refused before the start"
    if "Traceback" in errors or "Exception ignored" in errors:
        raise Fault(f"a traceback: {errors[-1500:]}")
    if code == 0:
        return "result"
    if code == 130 and len(errors.splitlines()) <= 1:
        return "refused"
    raise Fault(f"exit code {code}: {errors[-600:]}")


def _whole(home: Path, out: Path, replaces: bool, word: str) -> None:
    """Check the files that a command leaves: only those it was asked for, each complete or as before."""
    import onnx

    extra = sorted(path.name for path in home.iterdir() if path.name not in ("out.onnx", "json"))
    if extra:
        raise Fault(f"files are left: {extra}")
    if out.exists() and not (replaces and out.read_bytes() == b"as it was"):
        onnx.checker.check_model(onnx.load(out))
    elif word == "result":
        raise Fault("a result without its file")
    report = home / "json"
    if report.exists() and not json.loads(report.read_text())["check"]["passed"]:
        raise Fault("a result that was not checked")


def _nothing_left(mark: str) -> None:
    """Check that all processes of the command are gone soon after its end."""
    ends = time.monotonic() + 5.0
    while left := _marked(mark):
        if time.monotonic() > ends:
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            raise Fault(f"{len(left)} processes are left")
        time.sleep(0.02)


def _marked(mark: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            state = (path.parent / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z" and f"{MARK}={mark}".encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found
