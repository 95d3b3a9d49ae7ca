"""Tasks in worker processes: whatever happens there, this process goes on and gets an outcome.

A process that dies, takes too much memory or gives no answer in time is replaced. The task is tried once more if more
of its time is left than it took until then. What a task raises is its outcome: the same would be raised again.
"""

from __future__ import annotations

import importlib
import json
import math
import signal
import time
import traceback
from dataclasses import replace
from typing import Any, Literal

from eqsat.base.worker import ONE_THREAD, Pool, Send, Worker, ending
from eqsat.errors import one_line
from eqsat.runs.task import Outcome, Task, Work

TRIES = 2
"""Processes that a task may cost: the first may have died of something else, such as a machine short of memory."""


class Service:
    """Does tasks, in a worker process (`eqsat.base.worker`)."""

    def __call__(self, request: tuple[str, dict[str, Any]], send: Send) -> None:
        name, given = request
        module, _, function = name.partition(":")
        try:
            work: Work = getattr(importlib.import_module(module), function)
            value = work(given, lambda stage: send("stage", stage))
            send("value", json.dumps(value, sort_keys=True, allow_nan=False))
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  whatever a task raises is its outcome
            send("raised", (f"{type(error).__name__}: {error}", traceback.format_exc()))


class Processes:
    """Worker processes for the tasks of several threads. A thread has a process to itself while its task runs."""

    def __init__(self, most: int) -> None:
        self._pool = Pool("eqsat.runs.guarded:Service", most=most, environment=ONE_THREAD)
        self._busy: set[Worker] = set()
        self._ended = False

    def done(self, task: Task) -> Outcome:
        """The outcome of a task in one process, or in another if the first is lost."""
        outcome, left = Outcome(None), task.seconds
        for tries in range(1, TRIES + 1):
            with self._pool.lent(task.memory, None, math.inf) as worker:
                assert worker is not None
                if self._ended:
                    break
                self._busy.add(worker)
                begun = time.monotonic()
                tried, end = _tried(task, worker, left)
                took = time.monotonic() - begun
                self._busy.discard(worker)
            # A try that only had too little time left does not hide why the one before it failed.
            outcome = replace(outcome if end == "late" and tries > 1 else tried, tries=tries, seconds=took)
            left -= took
            if end == "answered" or left <= took:
                break
        return outcome

    def end(self) -> None:
        """End all processes. Threads that wait for one see that it died."""
        self._ended = True
        for worker in list(self._busy):
            worker.signal(signal.SIGKILL)

    def close(self) -> None:
        """End all processes and free what they hold. No thread may use them any more."""
        self._pool.close()


def _tried(task: Task, worker: Worker, seconds: float) -> tuple[Outcome, Literal["answered", "died", "late"]]:
    """What comes of a task in so many `seconds`, and how: by an answer, or by a process that is lost."""
    stage, ends = "", time.monotonic() + seconds
    try:
        worker.send((task.work, {**task.given, **task.places}))
        while (message := worker.receive(max(0.0, ends - time.monotonic()))) is not None:
            kind, content = message
            if kind == "value":
                return Outcome(content, stage=stage), "answered"
            if kind == "raised":
                return Outcome(None, one_line(content[0]), stage, content[1]), "answered"
            if kind == "error":
                return Outcome(None, one_line(content), stage), "answered"
            stage = content
    except (EOFError, OSError):
        return Outcome(None, f"its process died ({ending(worker.ended())})", stage), "died"
    worker.kill()
    return Outcome(None, f"no answer after {task.seconds:g} s", stage), "late"
