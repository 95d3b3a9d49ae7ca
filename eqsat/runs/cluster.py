"""Tasks on a Dask cluster, each in a guarded process beside the Dask worker that has it (`eqsat.runs.guarded`).

So limits of time and memory hold as they do on this machine, and a task that dies does not take a Dask worker with it.
If a Dask worker is lost, its scheduler gives the task to another one.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterable
from contextlib import suppress
from itertools import islice
from typing import Any

from eqsat.errors import InputError, one_line
from eqsat.runs.guarded import Processes
from eqsat.runs.task import Outcome, Task, build

_CONNECT_SECONDS = 10.0
_PROCESSES: dict[str, Processes] = {}
"""In a Dask worker: the processes of each run."""

_MOST = 1 << 10
"""Processes of one Dask worker: as many as its threads ask for."""


def on_cluster(tasks: Iterable[Task], address: str) -> Generator[tuple[Task, Outcome], None, None]:
    """Tasks with their outcomes as these arrive. Tasks that have not ended are given up when the iterator ends.

    Args:
        address: of the scheduler, such as `tcp://host:8786`.

    Raises:
        InputError: `distributed` is missing, nobody answers there, there are no workers, or they run another eqsat.
    """
    try:
        from distributed import Client, as_completed  # pyright: ignore[reportMissingImports]
        from distributed.comm.addressing import resolve_address  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise InputError("--on: a cluster needs distributed; install eqsat[cluster]") from None
    try:
        resolve_address(address)  # a client that was never made whole waits 20 s when it is freed
        client: Any = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(f"--on {address}: no Dask scheduler answers there ({error}); check the address") from None
    run = uuid.uuid4().hex
    pending: dict[Any, Task] = {}
    try:
        _must_agree(client, address)
        waiting = iter(tasks)
        futures = as_completed(loop=client.loop)

        def submit() -> None:
            """As many as run at once now: the scheduler knows no durations, and others might wait behind long ones."""
            for task in islice(waiting, max(1, sum(client.nthreads().values()) - len(pending))):
                future = client.submit(_done, run, task, key=f"{task.name} {run}", pure=False)
                pending[future] = task
                futures.add(future)

        submit()
        for future in futures:
            task = pending.pop(future)
            failed = future.exception() if future.status != "finished" else None
            yield task, future.result() if failed is None else Outcome(None, one_line(f"its worker was lost: {failed}"))
            submit()
    finally:
        with suppress(OSError):  # a scheduler that is gone has nothing to give up
            client.cancel(list(pending))
            client.run(_end, run, on_error="ignore")
        client.close(timeout=1)


def _must_agree(client: Any, address: str) -> None:
    """There are workers, and all run this eqsat."""
    if not client.nthreads():
        raise InputError(f"--on {address}: the cluster has no workers; start some with `dask worker {address}`")
    others = [worker for worker, digest in client.run(build).items() if digest != build()]
    if others:
        raise InputError(
            f"--on {address}: the worker {others[0]} has another eqsat or other libraries than this machine"
        )


def _done(run: str, task: Task) -> Outcome:
    """On a Dask worker: the outcome of a task."""
    return _PROCESSES.setdefault(run, Processes(_MOST)).done(task)


def _end(run: str) -> None:
    """On a Dask worker: end the processes of a run."""
    if run in _PROCESSES:
        _PROCESSES.pop(run).end()
