"""Measured, then chosen: the program as written and the plans found run in turns where the device executes models.

Prices are estimates. Where the device's runtime is installed here, the fastest of these is the result, and the program
as written where no plan is faster beyond noise. Plans, and the program as written, are also tried with other operators
for the same values.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from eqsat.base.numerics import Array, is_float
from eqsat.base.turns import CONFIDENCE, Ratio, Times, in_turns, ratio
from eqsat.check.inputs import SEED, random_values
from eqsat.errors import EqsatError
from eqsat.frontends.execution import Runtime, RuntimeRefuses, Session, runtime
from eqsat.frontends.onnx.write.model import to_onnx
from eqsat.frontends.onnx.write.spelling import spelled_otherwise
from eqsat.pipeline.result import Result
from eqsat.pipeline.selection import Selection
from eqsat.program.ir import Program
from eqsat.program.term import Term
from eqsat.search.limits import MEASURING
from eqsat.search.runner import Deadline, Runner, Stage

SOURCE = "source"
"""The choice of the program as written."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan that was measured: its rank among the plans found, its times, and how many times it is as fast as the
    source; and what it writes with other operators, if it does."""

    rank: int
    times: Times
    gain: Ratio
    respelled: str | None = None

    def as_json(self) -> dict[str, Any]:
        """As in the report."""
        return {
            "plan": self.rank,
            **_figures(self.times),
            "ratio": round(self.gain.median, 4),
            "low": round(self.gain.low, 4),
            "high": round(self.gain.high, 4),
            "respelled": self.respelled,
        }


@dataclass(frozen=True, slots=True)
class Measured:
    """Times of the source and of plans.

    Attributes:
        runtime: what executed them; `threads` is how many threads each had.
        confirmed: the same for the source and the fastest plan after both were loaded again.
    """

    runtime: Runtime
    threads: int
    source: Times
    plans: Sequence[Plan]
    confirmed: Measured | None = None

    @property
    def fastest(self) -> Plan:
        return max(self.plans, key=lambda plan: (plan.gain.median, -plan.rank))

    @property
    def chosen(self) -> int | None:
        """The rank of the fastest plan if it is faster than the source beyond noise, else None."""
        gain = self.fastest.gain
        sure = gain.low > 1 and gain.median >= MEASURING.least_gain
        return self.fastest.rank if sure and (self.confirmed is None or self.confirmed.chosen is not None) else None

    def as_json(self) -> dict[str, Any]:
        """As in the report."""
        rank = self.chosen
        return {
            "runtime": self.runtime.name,
            "version": self.runtime.version,
            "threads": self.threads,
            "rounds": len(self.source.seconds),
            "confidence": CONFIDENCE,
            "source_ms": round(self.source.ms, 6),
            "result_ms": round(self.fastest.times.ms, 6),
            "spread": round(self.fastest.times.spread, 4),
            "chosen": SOURCE if rank is None else _called(rank),
            "source_spread": round(self.source.spread, 4),
            "candidates": [plan.as_json() for plan in self.plans],
            "confirmed": None if self.confirmed is None else self.confirmed.fastest.as_json(),
        }


def _figures(times: Times) -> dict[str, float]:
    return {"ms": round(times.ms, 6), "spread": round(times.spread, 4)}


def _called(rank: int) -> str:
    return "result" if rank == 1 else f"plan {rank}"


Passed = tuple[Result, Selection]


class Contender(NamedTuple):
    """A program to measure: plan number `plan` of those found, from 0, or the source (None), as it is or respelled.

    Its rank is 1 for the first plan, and then counts plans and what is respelled.
    """

    rank: int
    program: Program
    plan: int | None
    respelled: bool = False

    @property
    def respells(self) -> str | None:
        """What it writes with other operators, as in the report; None for a plan as it is."""
        return (SOURCE if self.plan is None else _called(self.plan + 1)) if self.respelled else None

    def result(self, passed: Sequence[Passed], as_written: Callable[[], Passed]) -> Passed:
        """The result that it is the program of."""
        found, selection = as_written() if self.plan is None else passed[self.plan]
        return replace(found, program=self.program), selection


def _contenders(passed: Sequence[Passed]) -> dict[int, Contender]:
    """The plans, the first one respelled, and so the source unless that plan rewrites nothing, by rank.

    What is most likely the fastest comes first: large models leave no time for all.
    """
    plans = [Contender(k + 1, result.program, k) for k, (result, _) in enumerate(passed)]
    first, selection = passed[0]
    bases = [(first.program, 0), *([(first.source, None)] if selection.changed() else [])]
    spelled = [(other, plan) for program, plan in bases if (other := spelled_otherwise(program)) is not None]
    others = [Contender(len(plans) + k, *each, respelled=True) for k, each in enumerate(spelled, 1)]
    return {x.rank: x for x in sorted([*plans, *others], key=lambda x: (x.plan != 0, not x.respelled))}


def fastest_first(
    passed: Sequence[Passed], as_written: Callable[[], Passed], name: str, threads: int, run: Runner
) -> tuple[list[Passed], dict[str, Any]]:
    """The results in the order in which to return them, and the report's entries on their times.

    The fastest comes first where it is faster than the source; else, or where time was short, the source as it was
    written. Where nothing can be measured, they stay in the predicted order.

    Args:
        passed: the results in predicted order.
        as_written: makes the result that leaves the program as it was written.
        name: the runtime.
    """
    run.tell("measuring", 0.97)
    source, limit = passed[0][0].source, run.budget.limit
    seconds = 0.0 if run.interrupted else max(run.left("measure"), MEASURING.late * limit)
    with run.budget.stage("measure"):
        contenders = _contenders(passed)
        found = run.run(MEASURE, seconds, source, contenders, name, threads, limit)
    if run.interrupted and isinstance(found, str):
        found = INTERRUPTED
    if isinstance(found, str) and found != TOO_SHORT:
        return list(passed), {"measured": None, "unmeasured": found}
    rank = None if isinstance(found, str) else found.chosen
    contender = Contender(0, source, None) if rank is None else contenders[rank]
    best = contender.result(passed, as_written)
    ordered = [best, *(one for k, one in enumerate(passed) if k != contender.plan)]
    if isinstance(found, str):
        return ordered, {"measured": None, "unmeasured": found}
    return ordered, {"measured": found.as_json()}


def _measured(
    deadline: Deadline, source: Program, contenders: Mapping[int, Contender], name: str, threads: int, limit: float
) -> Measured | str:
    found = runtime(name)
    if found is None:
        return f"{name} is not installed"
    with tempfile.TemporaryDirectory(prefix="eqsat-") as folder:
        try:
            file = _file_of(source, Path(folder))
            first = found.load(file, threads)
            inputs = inputs_for(source, first)
        except (EqsatError, OSError) as error:
            return f"{name} cannot run the program as written: {error}"
        files, sessions = {0: file}, {0: first}
        for rank, contender in contenders.items():
            begun = time.monotonic()
            files[rank] = Path(folder) / f"{rank}.onnx"
            sessions |= _loaded(found, rank, contender.program, files[rank], threads, inputs)
            if time.monotonic() - begun > MEASURING.loading * deadline.left():
                break
        if len(sessions) == 1:
            return f"{name} runs no plan"
        once = _race(found, sessions, inputs, threads, limit, deadline)
        if once is None or once.chosen is None:
            return TOO_SHORT if once is None else _named(once, contenders)
        # Once more, loaded in the other order: where weights lie in memory decides over small gains.
        del sessions
        again = {rank: found.load(files[rank], threads) for rank in (once.chosen, 0)}
        for session in again.values():
            session(inputs)
        confirmed = _race(found, dict(sorted(again.items())), inputs, threads, limit, deadline)
    return _named(replace(once, confirmed=confirmed), contenders) if confirmed is not None else TOO_SHORT


TOO_SHORT = "the time limit is too short, so it stays as written"
INTERRUPTED = "interrupted, so prices decide"

MEASURE = Stage(_measured, lambda source, contenders, name, threads, limit: TOO_SHORT)


def _named(found: Measured, contenders: Mapping[int, Contender]) -> Measured:
    """The same by rank, with what each plan writes with other operators."""
    plans = sorted(found.plans, key=lambda plan: plan.rank)
    return replace(found, plans=[replace(plan, respelled=contenders[plan.rank].respells) for plan in plans])


def _race(
    found: Runtime,
    sessions: Mapping[int, Session],
    inputs: Mapping[str, Array],
    threads: int,
    limit: float,
    deadline: Deadline,
) -> Measured | None:
    """The times of the source and of plans, loaded sessions by rank; None if there is no time for one plan."""
    runs = [_bound(session, inputs) for session in sessions.values()]
    times = in_turns(runs, threads, MEASURING.rounds, MEASURING.share * limit, deadline.left)
    if not times:
        return None
    before, *after = times
    ranks = [rank for rank in sessions if rank]
    return Measured(
        found, threads, before, [Plan(rank, t, ratio(before, t)) for rank, t in zip(ranks, after, strict=False)]
    )


def _file_of(source: Program, folder: Path) -> Path:
    """The file that a program was read from; else one written for it."""
    if source.origin is not None and source.origin.exists():
        return source.origin
    to_onnx(source, folder / "0.onnx")
    return folder / "0.onnx"


def _loaded(
    found: Runtime, rank: int, program: Program, file: Path, threads: int, inputs: Mapping[str, Array]
) -> dict[int, Session]:
    """A plan ready to run, by its rank; none if the runtime cannot run it."""
    try:
        to_onnx(program, file)
        session = found.load(file, threads)
        session(inputs)
    except (EqsatError, OSError):
        return {}
    return {rank: session}


def _bound(session: Session, inputs: Mapping[str, Array]) -> Callable[[], object]:
    return lambda: session(inputs)


def inputs_for(program: Program, session: Session) -> dict[str, Array]:
    """Random inputs that the session accepts: indices over the whole of the tables that they look up, if it does."""
    small = random_values(program.inputs, 0, SEED)
    wide = {**small, **_indices(program)}
    try:
        session(wide)
    except RuntimeRefuses:
        session(small)
        return small
    return wide


def _indices(program: Program) -> dict[str, Array]:
    """Random values by name for the integer inputs from which indices of tables are computed."""
    rng = np.random.default_rng(SEED)
    return {
        term.attr("name"): rng.integers(0, rows, term.shape).astype(term.dtype)
        for term, rows in _tables(program).items()
    }


def _tables(program: Program) -> dict[Term, int]:
    """The rows of the smallest table that each integer input looks up, through operators on integers alone."""
    reached = {term: {term} for term in program.inputs if not is_float(term.dtype) and term.dtype != "bool"}
    rows: dict[Term, int] = {}
    for term in program.terms():
        if term.op == "gather":
            table, index = term.args
            for source in reached.get(index, ()):
                size: int = table.shape[term.attr("axis")]
                rows[source] = min(size, rows.get(source, size))
        elif term.op != "input" and not is_float(term.dtype):
            reached[term] = set().union(*(reached.get(a, ()) for a in term.args))
    return {term: n for term, n in rows.items() if n}
