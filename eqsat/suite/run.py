"""A run of the suite: the parts in order, each with its share of the time, and a report after each."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eqsat.base.files import make_folder, write_text
from eqsat.errors import InputError
from eqsat.extract.device import files as device_files
from eqsat.extract.plan.calibrate import Calibration, fit
from eqsat.runs.run import run
from eqsat.runs.store import Store
from eqsat.runs.task import Outcome, Task
from eqsat.suite.parts import PARTS, Asked, Part, script

RESULTS, DEVICE, FAILURES = "results.sqlite", "device.json", "failures"
"""In the folder of a report: outcomes of tasks, the fitted row, and programs that reproduce failures."""

LEAST_SECONDS = 5.0
"""A task may take as long, however little time is left to its part."""

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Done:
    """A task that was done, and the table that its result stands in."""

    task: Task
    table: str
    outcome: Outcome


@dataclass(frozen=True)
class PartDone:
    """What came of a part.

    Attributes:
        planned: its tasks; `known` how many of those done were found in the folder.
        late: names of tasks that the time did not suffice for.
    """

    name: str
    planned: int
    known: int
    done: tuple[Done, ...]
    late: tuple[str, ...]


@dataclass(frozen=True)
class State:
    """What is known so far; `fitted` are figures of the device as its measured kernels have them."""

    asked: Asked
    facts: Mapping[str, Any]
    parts: tuple[PartDone, ...] = ()
    calibration: Calibration | None = None


def run_suite(asked: Asked, folder: Path, minutes: float, progress: Progress) -> Iterator[State]:
    """Do the parts; what is known after each.

    What is in the folder from an earlier run, on the same machine and with the same code, is not done again.

    Raises:
        InputError: there is nothing to do, or the folder cannot be written.
    """
    if all(part.empty(asked) for part in PARTS):
        raise InputError(f"--match {' --match '.join(asked.match)}: nothing of the suite has such a name")
    make_folder(folder)
    state, ends = State(asked, asked.place.facts()), time.monotonic() + 60 * minutes
    with Store(folder / RESULTS) as store:
        shares = [0.0 if part.empty(asked) else part.share for part in PARTS]
        for i, part in enumerate(PARTS):
            share = shares[i] / (sum(shares[i:]) or 1.0)
            until = time.monotonic() + share * max(0.0, ends - time.monotonic())
            done = _done(part, state, folder, store, lambda until=until: until - time.monotonic(), progress)
            state = replace(state, parts=(*state.parts, done))
            if part.name == "calibration":
                state = _calibrated(state, done, folder)
            _write_failures(done, folder)
            yield state


def _done(
    part: Part, state: State, folder: Path, store: Store, left: Callable[[], float], progress: Progress
) -> PartDone:
    """Do the tasks of a part: one for each processor of this machine, since most of their time is search and
    compilation; they use the GPU in turns."""
    asked = state.asked
    fitted = {} if state.calibration is None else state.calibration.figures
    figures = {name: (figure.value, "fitted in this run") for name, figure in fitted.items()}
    chosen = part.chosen(asked, figures)
    tables = {task.name: table for task, table in chosen}
    asked_for = {task.name: task for task, _ in chosen}
    turns = {"turns": str(folder.resolve())} if asked.place.measures else {}
    found: dict[str, Done] = {}
    limits: dict[str, float] = {}
    known = 0

    def tasks() -> Iterator[Task]:
        for task, _ in chosen:
            if store.get(task) is not None or left() > 0:
                limits[task.name] = max(LEAST_SECONDS, min(task.seconds, left()))
                yield replace(task, seconds=limits[task.name], places={**task.places, **turns})

    with closing(run(tasks(), store, os.cpu_count() or 1)) as answers:
        for task, outcome, was_known in answers:
            found[task.name] = Done(asked_for[task.name], tables[task.name], outcome)
            known += was_known
            progress(f"{part.name}, {len(found)} of {len(chosen)}: {task.name}", len(found) / len(chosen))
    cut = {
        t.name for t, _ in chosen if t.name in found and _cut_short(found[t.name].outcome, limits[t.name], t.seconds)
    }
    late = tuple(task.name for task, _ in chosen if task.name not in found or task.name in cut)
    ordered = tuple(found[task.name] for task, _ in chosen if task.name in found and task.name not in cut)
    return PartDone(part.name, len(chosen), known, ordered, late)


def _cut_short(outcome: Outcome, limit: float, own: float) -> bool:
    """Whether a task failed because its part's time was over, not its own."""
    return outcome.failure.startswith("no answer after") and limit < own


def _calibrated(state: State, done: PartDone, folder: Path) -> State:
    """The device's row fitted to the times of a part, and written to the folder."""
    times = {d.task.given["name"]: d.outcome.result["measured"]["us"] for d in done.done if d.outcome.value}
    if not times:
        return state
    row, source = state.asked.place.row, f"fitted by `eqsat bench --suite` to {len(times)} kernels on "
    found = fit(row, times, source + f"{state.facts['card']}, {time.strftime('%Y-%m-%d')}")
    device_files.write(folder / DEVICE, device_files.RowFile(row.name, found.figures))
    return replace(state, calibration=found)


def failure_file(task: Task) -> str:
    """The name of the program that reproduces what a task failed with, in the folder of the report."""
    return f"{FAILURES}/{re.sub(r'[^a-z0-9]+', '-', task.name.lower()).strip('-')}.py"


def _write_failures(part: PartDone, folder: Path) -> None:
    for each in part.done:
        if each.outcome.value is None:
            head = "".join(f"# {line}\n" for line in [each.outcome.failure, *each.outcome.trace.splitlines()])
            write_text(folder / failure_file(each.task), head + script(each.task), parents=True)
