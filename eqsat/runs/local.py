"""Tasks on this machine: a thread for each worker process, which hands it one task after the other."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable
from itertools import islice

from eqsat.runs.guarded import Processes
from eqsat.runs.task import Outcome, Task

_POLL_SECONDS = 0.1
"""Waits are this short: Ctrl-C is acted on between two of them."""

_END_SECONDS = 0.3
"""For threads to see that their processes have ended."""


def locally(tasks: Iterable[Task], workers: int) -> Generator[tuple[Task, Outcome], None, None]:
    """Tasks with their outcomes as these arrive. All processes end with the iterator, whatever they are at."""
    asked: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
    answers: queue.SimpleQueue[tuple[Task, Outcome] | BaseException] = queue.SimpleQueue()
    processes = Processes(workers)

    def serve() -> None:
        try:
            while (task := asked.get()) is not None:
                answers.put((task, processes.done(task)))
        except BaseException as error:  # noqa: BLE001  passed on to the thread that reads the answers
            answers.put(error)

    threads: list[threading.Thread] = []
    waiting, running = iter(tasks), 0
    try:
        while True:
            for task in islice(waiting, workers - running):
                asked.put(task)
                running += 1
                if len(threads) < running:
                    threads.append(threading.Thread(target=serve, daemon=True))
                    threads[-1].start()
            if not running:
                return
            try:
                answer = answers.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
            if isinstance(answer, BaseException):
                raise answer
            running -= 1
            yield answer
    finally:
        processes.end()
        for _ in threads:
            asked.put(None)
        for thread in threads:
            thread.join(_END_SECONDS)
        processes.close()
