"""Whether a sweep gives the same bytes wherever it runs, and how much faster two workers are than one.

    python benchmarks/sweeps.py MODELS... -o DIR [--devices LIST] [--numerics LIST] [--seconds S] [--places LIST]
        [--shape NAME=N]...

Each place is a sweep of its own, one after the other, with nothing known: `one` and `two` are worker processes on
this machine, `pinned` is one on one processor, `dask` is a cluster of two workers here, without Dask's profiler and
with slow ticks, and `killed` is the same, one of whose workers is killed when a quarter of the results is there. (A
worker and its egglog run at the same time, so that `one` uses more than one processor.) Printed are the seconds of
each, how many times as many results it gives in that time as the first place does, and whether its document is that
of the first. The exit code is 1 where one differs.

The sweeps of workers depend on the clock only where a search reaches `--seconds`. These are counted, since they may
differ by no fault of the sweep.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from eqsat.base.memory_limit import memory_limit
from eqsat.cli.shared.options import parse_shapes
from eqsat.cli.tasks.sweep import named
from eqsat.runs.run import run
from eqsat.runs.store import Store
from eqsat.runs.task import Outcome, Task
from eqsat.sweeping.model import largest_first, tasks
from eqsat.sweeping.table import FILE, Row, document, row

Place = tuple[int, str | None, Callable[[], None]]
"""Workers here, or the address of a cluster, and what is to happen when a quarter of the results is there."""


def _nothing() -> None:
    """Nothing goes wrong."""


@contextmanager
def place(name: str) -> Iterator[Place]:
    """Where a sweep runs."""
    if name == "pinned":
        processors = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(processors)})  # for the processes that it starts
        try:
            yield 1, None, _nothing
        finally:
            os.sched_setaffinity(0, processors)
        return
    if name in ("one", "two"):
        yield {"one": 1, "two": 2}[name], None, _nothing
        return
    distributed: Any = import_module("distributed")
    config: Any = import_module("dask.config")
    quiet = {"distributed.worker.profile.enabled": False, "distributed.admin.tick.interval": "1s"}
    workers = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with config.set(quiet), distributed.LocalCluster(**workers) as cluster:
        victim = next(iter(cluster.workers.values())).pid

        def kill() -> None:
            os.kill(victim, signal.SIGKILL)

        yield 2, cluster.scheduler_address, kill if name == "killed" else _nothing


def swept(asked: list[Task], where: Place, folder: Path) -> tuple[list[Row], float]:
    """The rows of a sweep, in the order of its tasks, and its seconds."""
    workers, on, harm = where
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, Outcome] = {}
    with Store(":memory:") as store:
        begun = time.monotonic()
        for task, outcome, _ in run(largest_first(asked), store, workers, on):
            found[task.name] = outcome
            print(f"{task.name}: {outcome.seconds:.1f} s {outcome.failure}", file=sys.stderr, flush=True)
            if len(found) == max(1, len(asked) // 4):
                threading.Thread(target=harm).start()
        seconds = time.monotonic() - begun
    rows = [row(task, found[task.name]) for task in asked]
    (folder / FILE).write_text(json.dumps(document(rows), indent=2) + "\n")
    return rows, seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path, metavar="MODELS")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--devices", default="mi300x,h100,cpu")
    parser.add_argument("--numerics", default="reassociate")
    parser.add_argument("--seconds", type=float, default=120.0, help="for each search")
    parser.add_argument("--places", default="one,two,dask,killed")
    parser.add_argument("--shape", action="append", metavar="NAME=N", help="the size of a dynamic dimension")
    args = parser.parse_args()
    devices, policies = args.devices.split(","), args.numerics.split(",")
    sizes = parse_shapes(args.shape)
    asked = list(tasks(named(args.models), devices, policies, sizes, args.seconds, memory_limit(None) // 2))
    first: tuple[str, float, bytes] | None = None
    wrong = 0
    for name in args.places.split(","):
        with place(name) as where:
            rows, seconds = swept(asked, where, args.output / name)
        data = (args.output / name / FILE).read_bytes()
        first = first or (name, seconds, data)
        wrong += data != first[2]
        said = (
            f"{len(rows)} results in {seconds:.0f} s",
            f"{first[1] / seconds:.2f} times as many in a second as {first[0]}",
            "the same bytes" if data == first[2] else f"OTHER BYTES than {first[0]}",
            f"{sum(each.found.get('stop') == 'time' for each in rows)} out of time",
            f"{sum(bool(each.fault) for each in rows)} without a result",
        )
        print(f"{name}: {', '.join(said)}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
