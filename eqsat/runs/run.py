"""A run: tasks that are done already are looked up, the others done somewhere, and kept."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing

from eqsat.runs.cluster import on_cluster
from eqsat.runs.local import locally
from eqsat.runs.store import Store
from eqsat.runs.task import Outcome, Task


def run(
    tasks: Iterable[Task], store: Store, workers: int = 1, on: str | None = None
) -> Generator[tuple[Task, Outcome, bool], None, None]:
    """Tasks with their outcomes, and whether these were known, as they are found or arrive.

    Args:
        tasks: taken as there is room for them, so that there may be any number of them.
        workers: processes on this machine.
        on: the address of a Dask scheduler, which then has the tasks instead.

    Raises:
        InputError: as `on_cluster` and `Store`.
    """
    known: list[tuple[Task, Outcome, bool]] = []

    def unknown() -> Iterator[Task]:
        for task in tasks:
            outcome = store.get(task)
            if outcome is None:
                yield task
            else:
                known.append((task, outcome, True))

    with closing(locally(unknown(), workers) if on is None else on_cluster(unknown(), on)) as answers:
        for task, outcome in answers:
            store.put(task, outcome)
            yield from known
            known.clear()
            yield task, outcome, False
    yield from known
