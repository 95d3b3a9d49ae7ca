"""Describes a checked result: the steps to it, the kernels that merged, and the report."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from eqsat.check.part import Check
from eqsat.explain.explanation import Explanation
from eqsat.extract.plan.plan import Plan
from eqsat.extract.plan.stitch import Solved
from eqsat.pipeline.assemble import Assembled, stays_source
from eqsat.pipeline.report import Outcome, build_report, objective_report
from eqsat.pipeline.result import Result
from eqsat.pipeline.selection import Selection, least_peak_of
from eqsat.search import limits
from eqsat.search.runner import Deadline, Runner, Stage
from eqsat.search.search import Form, Problem


def describe(
    problem: Problem, made: Assembled, written: Plan, verdict: Check, explain_time: float, run: Runner
) -> Result:
    """The result, with `explain_time` seconds for its steps; `written` is the plan of the program as written.

    Where the time is over and nothing was found, the result is the source itself, and its report leaves out what takes
    work for each operator and says next to nothing then.
    """
    asked, selection = problem.asked, made.selection
    forms = dict.fromkeys(part.form for part in problem.parts)
    brief = stays_source(made, run)
    with run.budget.stage("explain"):
        explanation, merges = Explanation([], derived=False), []
        if not brief:
            from eqsat.explain.explain import merged_kernels

            explanation = explanation_of(problem, selection.solved, explain_time, run)
            sources = {form: x.written for form, x in selection.found.items()}
            merges = merged_kernels(problem.parts, sources, selection.solved, asked.rules, written, made.plan)
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
    if made.unchecked:
        report["unchecked"] = "there was not the time or memory to compare the kernels with the source"
    if asked.goal.memory:
        report["objective"] = objective_report(asked.goal, report, least_peak_of(selection.found))
    return Result(problem.source, program, plan, written, report)


def _figures(selection: Selection, form: Form) -> Mapping[str, Any]:
    """Figures of a form's e-graph; a form that was not built in time counts as unfinished."""
    figures, reason = selection.found[form].figures, selection.kept.get(form)
    return {**figures, "stop": reason} if reason in ("time", "interrupted") else figures


def _parts(problem: Problem, selection: Selection, reason: str) -> dict[str, int]:
    """How many parts were left as written for a reason; empty if none."""
    left = sum(selection.kept.get(part.form) == reason for part in problem.parts)
    return {"parts": left, "of": len(problem.parts)} if left else {}


def explanation_of(problem: Problem, solved: Mapping[Form, Solved], seconds: float, run: Runner) -> Explanation:
    """The derivation from the program as written to the chosen covers; if time is short, what each rule made."""
    ends = limits.EXPLAINING.slow * seconds
    if seconds <= limits.EXPLAINING.seconds:
        ends = min(ends, run.left("explain") + limits.EXPLAINING.late * seconds)
    return run.run(EXPLAIN, run.unlimited, problem, solved, run, min(seconds, ends), ends)


def _explained(
    deadline: Deadline, problem: Problem, solved: Mapping[Form, Solved], run: Runner, seconds: float, most: float
) -> Explanation:
    """The derivation, by the work of so many seconds, in `most` seconds by the clock."""
    from eqsat.explain.effort import A_SECOND, Effort
    from eqsat.explain.explain import explain
    from eqsat.explain.replay import WORK, Replayer

    ends = run.deadline(most)

    def late() -> bool:
        return ends.left() <= 0

    work = int(min(WORK * seconds / limits.EXPLAINING.seconds, sys.maxsize)) if ends.left() else 0
    rules, folded = problem.asked.rules, problem.folded
    effort, replayer = Effort(A_SECOND * seconds, late), Replayer(work, late)
    return explain(folded.program, problem.core, problem.parts, solved, rules, effort, replayer, folded)


def _sketched(problem: Problem, solved: Mapping[Form, Solved], run: Runner, seconds: float, most: float) -> Explanation:
    return _explained(run.deadline(0.0), problem, solved, run, 0.0, 0.0)


EXPLAIN = Stage(_explained, _sketched)
