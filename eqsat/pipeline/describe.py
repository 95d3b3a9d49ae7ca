"""Checks a result and describes it: the steps to it, the kernels that merged, and the report."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from math import inf
from typing import Any

from eqsat.explain.explain import Explanation, explain, merged_kernels
from eqsat.explain.replay import WORK, Replayer
from eqsat.extract.plan.plan import Plan
from eqsat.extract.plan.stitch import Solved
from eqsat.pipeline.assemble import Assembled, verify
from eqsat.pipeline.report import Outcome, build_report, objective_report
from eqsat.pipeline.result import Result
from eqsat.pipeline.selection import Selection, least_peak_of
from eqsat.search import limits
from eqsat.search.runner import Prefetch, Runner, Stage
from eqsat.search.search import Form, Problem


def described(problem: Problem, made: Assembled, written: Plan, explain_time: float, run: Runner) -> Result:
    """The result, checked, with `explain_time` seconds for its steps; `written` is the plan of the program as written.

    It is explained while it is checked: NumPy computes most of the check, which leaves Python to the explanation. The
    seconds of that count from the end of the check. Where the time is over and nothing was found, the result is the
    source itself, and its report leaves out what takes work for each operator and says next to nothing then.

    Raises:
        CheckFailed: the result differs from the source, or a step to it does not hold.
    """
    asked, selection = problem.asked, made.selection
    forms = dict.fromkeys(part.form for part in problem.parts)
    brief = not selection.changed() and run.left("explain") <= 0
    explaining = None if brief else _Explaining(problem, made, written, explain_time, run)
    try:
        verdict = verify(problem, made, run)
        with run.budget.stage("explain"):
            explanation, merges = (Explanation([], derived=False), []) if explaining is None else explaining.result()
    finally:
        if explaining is not None:
            explaining.stop()
    outcome = Outcome(
        source=[selection.found[p.form].written.cover for p in problem.parts],
        chosen=[selection.cover(p.form) for p in problem.parts],
        egraphs=[_figures(selection, form) for form in forms],
        source_plan=written,
        explanation=explanation,
        merges=merges,
    )
    with run.budget.stage("report"):
        program, plan = problem.source if brief else made.program, made.plan
        report = build_report(problem.source, program, plan, outcome, asked.device, asked.numerics, verdict, brief)
    if overflown := _parts(problem, selection, "overflow"):
        report["overflow"] = overflown
    if large := _parts(problem, selection, "memory"):
        report["memory"] = {"limit": asked.memory, **large}
    if asked.goal.memory:
        report["objective"] = objective_report(asked.goal, report, least_peak_of(selection.found))
    return Result(problem.source, program, plan, report)


def _figures(selection: Selection, form: Form) -> Mapping[str, Any]:
    """Figures of a form's e-graph; a form that was not built in time counts as unfinished."""
    figures, reason = selection.found[form].figures, selection.kept.get(form)
    return {**figures, "stop": reason} if reason in ("time", "interrupted") else figures


def _parts(problem: Problem, selection: Selection, reason: str) -> dict[str, int]:
    """How many parts were left as written for a reason; empty if none."""
    left = sum(selection.kept.get(part.form) == reason for part in problem.parts)
    return {"parts": left, "of": len(problem.parts)} if left else {}


class _Explaining:
    """The explanation of a result and its merged kernels, made in a thread of its own.

    Until the result is asked for, its time does not count.
    """

    def __init__(self, problem: Problem, made: Assembled, written: Plan, seconds: float, run: Runner) -> None:
        self._problem, self._made, self._written, self._run = problem, made, written, run
        self._seconds = seconds
        self._ends = inf
        self._begun = Prefetch(lambda: self._found(self._left), seconds)

    def result(self) -> tuple[Explanation, list[dict[str, Any]]]:
        """The explanation as far as it comes in its time.

        Raises:
            CheckFailed: a step does not hold.
        """
        self._ends = time.monotonic() + _seconds(self._seconds, self._run)
        return self._run.run(_AWAITED, self._run.unlimited, self)

    def stop(self) -> None:
        """Nobody waits for the result any more."""
        self._ends = -inf

    def awaited(self) -> tuple[Explanation, list[dict[str, Any]]]:
        found = self._begun.result(threading.TIMEOUT_MAX)
        assert found is not None
        return found

    def sketched(self) -> tuple[Explanation, list[dict[str, Any]]]:
        return self._found(lambda: 0.0)

    def _left(self) -> float:
        if self._run.interrupted:
            return 0.0
        return max(0.0, min(self._seconds, self._ends - time.monotonic()))

    def _found(self, left: Callable[[], float]) -> tuple[Explanation, list[dict[str, Any]]]:
        problem, selection = self._problem, self._made.selection
        explanation = _explained(problem, selection.solved, left)
        sources = {form: x.written for form, x in selection.found.items()}
        given = problem.parts, sources, selection.solved, problem.asked.rules, self._written, self._made.plan
        return explanation, merged_kernels(*given)


_AWAITED = Stage(lambda deadline, explaining: explaining.awaited(), lambda explaining: explaining.sketched())


def explanation_of(problem: Problem, solved: Mapping[Form, Solved], seconds: float, run: Runner) -> Explanation:
    """The derivation from the program as written to the chosen covers; if time is short, what each rule made."""
    return run.run(EXPLAIN, run.unlimited, problem, solved, run.deadline(_seconds(seconds, run)).left)


def _seconds(given: float, run: Runner) -> float:
    """Seconds for an explanation that begins now: those that were given, if they are few at most those left."""
    if given > limits.EXPLAINING.seconds:
        return given
    return min(given, run.left("explain") + limits.EXPLAINING.late * given)


def _explained(problem: Problem, solved: Mapping[Form, Solved], left: Callable[[], float]) -> Explanation:
    work = int(min(WORK * left() / limits.EXPLAINING.seconds, sys.maxsize))
    rules, folded = problem.asked.rules, problem.folded
    replayer = Replayer(work, lambda: left() <= 0)
    return explain(folded.program, problem.core, problem.parts, solved, rules, left, replayer, folded)


EXPLAIN = Stage(
    lambda deadline, problem, solved, left: _explained(problem, solved, left),
    lambda problem, solved, left: _explained(problem, solved, lambda: 0.0),
)
