"""`optimize`: a program in, an equal and cheaper one out, with its steps, a lower bound and a check.

The stages in order, each a function from value to value:

    partition   Program    -> Problem     constants folded, core lowered, cut into parts   eqsat/search/search.py
    search      Problem    -> Found       each form saturated and covered                   eqsat/search/search.py
    choose      Found      -> Selection   which cover each form gets                        eqsat/pipeline/selection.py
    assemble    Selection  -> Assembled   plan, lift, fold                                  eqsat/pipeline/assemble.py
    verify      Assembled  -> Check       against the source, on random inputs              eqsat/pipeline/assemble.py
    spelled     Assembled  -> Assembled   norms as runtimes know them, and checked          eqsat/pipeline/assemble.py
    describe    Assembled  -> Result      explanation and report                            eqsat/pipeline/describe.py
    measured    Results    -> Results     the fastest first, where they can run here        eqsat/pipeline/measured.py

`eqsat/search/runner.py` abandons a stage whose time is over; `eqsat/search/limits.py` holds the limits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from eqsat.base.memory_limit import collector_paused
from eqsat.base.time_budget import TimeBudget
from eqsat.egraph.saturate import warm_up
from eqsat.errors import CheckFailed, EqsatError
from eqsat.extract.device.table import DeviceLike
from eqsat.language.rule import AnyRule, Policy
from eqsat.pipeline.assemble import WrittenPlan, assemble, spelled, verify
from eqsat.pipeline.describe import describe
from eqsat.pipeline.failures import fallback, what_passes
from eqsat.pipeline.ranking import alternative_rows
from eqsat.pipeline.result import Result
from eqsat.pipeline.selection import Selection, cautious, choose
from eqsat.program.ir import Program
from eqsat.search import limits
from eqsat.search.asked import judged, usable
from eqsat.search.best import best_search
from eqsat.search.objective import Objective
from eqsat.search.runner import Deadline, Progress, Runner, Stage
from eqsat.search.search import partition


def prepare(numerics: Policy = "reassociate", rules: Sequence[AnyRule] | None = None) -> None:
    """Declare the rules for a later `optimize` in the background, for instance while its program is read."""
    if declared := usable(numerics, rules):
        warm_up(declared)


@np.errstate(all="ignore")  # whatever the caller asks of its own arithmetic
@collector_paused()
def optimize(
    program: Program,
    device: DeviceLike = "mi300x",
    time_limit: float | TimeBudget = 10.0,
    numerics: Policy = "reassociate",
    rules: Sequence[AnyRule] | None = None,
    progress: Progress | None = None,
    explain_time: float = limits.EXPLAINING.seconds,
    top: int = 1,
    objective: str | Mapping[str, float] = "latency",
    inputs: Mapping[str, Any] | None = None,
    memory_limit: int | None = None,
    measure: bool = True,
    measure_threads: int = 1,
) -> Result:
    """Find an equal program with the least predicted time on a device.

    Args:
        device: one of `eqsat devices`, a file of `eqsat calibrate`, `auto` for this machine's GPU, or a row.
        time_limit: seconds for everything up to the checked result, or a budget that began earlier. When the time is
            over, or after Ctrl-C, the best program so far is returned.
        numerics: `exact` (bitwise the same), `reassociate` (rounding may differ) or `fast` (ranges may differ too).
        rules: the rules to use; `eqsat.rules.ALL` by default, none for `[]`.
        progress: called as the search goes on.
        explain_time: seconds for finding, evaluating and writing the steps to the result. Work is counted for it, which
            takes up to three times as long on a busy machine. Seconds beyond the default are added to the time limit.
        top: how many different plans to return: the result, and the next best as its `alternatives`. Each is checked,
            if necessary after the time limit. All instances of a repeated part get the same kernels.
        objective: `latency`, `memory` (the most bytes that temporaries take at any launch; inputs, constants and
            outputs are not counted), `mix:W` with the weight W of memory, or the weights themselves, both relative to
            the program as written. If memory has a weight, the alternatives are the other plans that no plan found
            beats in both, and the bound combines separate bounds on time and memory.
        inputs: arrays by name, to test float16 and bfloat16 for overflow; random ones by default. A part that would
            overflow on them after rewriting only stays as written, and the report says so (`overflow`).
        memory_limit: bytes that this process may take, mapped weights aside; by default three quarters of the
            machine's. Parts whose constants or check would take more stay as written, and the report says so
            (`memory`, `fallback`). The search runs in a worker with a limit of its own.
        measure: where the device's row names a runtime (`cpu`: onnxruntime) that is installed, run the program as
            written and the plans found in turns, on `measure_threads` threads. The fastest is the result; if none is
            faster beyond noise, `program` is the source itself. The report has the figures (`measured`). Time is
            measured, so two calls may choose differently.

    Raises:
        InputError: the device, the policy or the objective is unknown, `top` is less than 1, the time limit is not a
            number of seconds, or `program` is not a program.
        CheckFailed: even the program as written, cut into kernels, differs from the source on random inputs. If a
            rewritten part differs, or its search fails, that part stays as written, and the report says so
            (`fallback`). Where there is not the time or memory to tell, `program` is the source itself.
    """
    begun = time.monotonic()
    run = Runner(TimeBudget.of(time_limit), progress)
    if rules is None and run.left("saturate") <= 0:
        rules = []  # none fires any more
    given = numerics, rules, progress, explain_time, top, objective, inputs, memory_limit, measure, measure_threads
    asked = judged(program, device, *given)
    if asked.rules and run.left("saturate") > 0:
        warm_up(asked.rules)
    if asked.top > 1 or asked.goal != Objective():
        run.budget.expect("further", limits.AFTER.further * run.budget.limit)
    if asked.measure_threads is not None:
        run.budget.expect("measure", limits.MEASURING.share * run.budget.limit)

    plan_written = WrittenPlan()
    problem = partition(program, asked, run)
    problem, found = best_search(problem, run, partial(plan_written.begin, problem))
    selections = choose(problem, found, run)
    asked_for = len(selections)
    if asked.measure_threads is not None:
        selections += cautious(selections[0])
    written = plan_written.result(problem, found)

    def made(selection: Selection, explaining: float = asked.explain_time, unchecked: bool = False) -> Result:
        whole = replace(assemble(problem, selection, written, run), unchecked=unchecked)
        checked = verify(problem, whole, run)
        whole, same = spelled(problem, whole, run, refused)
        return describe(problem, whole, written.plan, checked + same, explaining, run)

    def as_written() -> tuple[Result, Selection]:
        kept = selections[0].keep(selections[0].changed(), "measured")
        return replace(made(kept), program=program), kept

    def about(selection: Selection) -> dict[str, Any]:
        given = {"numerics": numerics, "objective": str(objective), "top": top}
        return fallback(problem, selection, refused, given)

    refused: list[EqsatError] = [x.failed for x in found.values() if x.failed is not None]
    passed = _passed(selections, asked_for, made, asked.explain_time, refused, run)
    if not passed:
        passed = [what_passes(selections[0], made, refused, lambda: run.left("check") > 0, about)]
    figures: dict[str, Any] = {"measured": None}
    if asked.measure_threads is not None:
        from eqsat.pipeline.measured import fastest_first

        passed, figures = fastest_first(passed, as_written, asked.device.runtime, asked.measure_threads, run)
    (best, selection), *others = passed[:top]
    best.report |= figures
    best.alternatives = [result for result, _ in others]
    if refused:
        best.report["fallback"] = about(selection)
    if top > 1:
        best.report["alternatives"] = alternative_rows([p.report for p in best.plans], [s.proven for _, s in others])
    best.report["seconds"] = round(time.monotonic() - begun, 3)
    best.report["stages"] = run.budget.report()
    if run.interrupted:
        run.budget.finish()  # for what the caller would do with the rest
    run.tell("done", 1.0)
    return best


def _passed(
    selections: Sequence[Selection],
    asked_for: int,
    made: Callable[[Selection, float], Result],
    explain_time: float,
    refused: list[EqsatError],
    run: Runner,
) -> list[tuple[Result, Selection]]:
    """The results that pass the check, no two with the same kernels; the refusals of others are added to `refused`.

    Args:
        asked_for: how many of the selections are asked for, at the front. The others are only measured: they are made
            as long as there is time for twice what the first one took.
        made: builds and checks a result, with so many seconds for its steps.
    """
    passed: list[tuple[Result, Selection]] = []
    took = 0.0
    for rank, selection in enumerate(selections, 1):
        run.tell(f"plan {rank} of {len(selections)}", 0.95)
        only_measured = rank > asked_for
        seconds = run.left("check") if only_measured else run.unlimited
        if only_measured and seconds < 2 * took:
            break
        start = time.monotonic()
        explaining = 0.0 if passed and not only_measured else explain_time
        try:
            if rank == 1:
                result = made(selection, explaining)
                took = time.monotonic() - start
            elif (result := run.run(ANOTHER, seconds, made, selection, explaining)) is None:
                break
        except CheckFailed as error:
            refused.append(error)
            if run.left("check") <= 0:
                break
            continue
        # Where parts stay as written, plans that differed in these are one.
        if all(_kernels(result) != _kernels(known) for known, _ in passed):
            passed.append((result, selection))
    return passed


def _kernels(result: Result) -> frozenset[object]:
    """What the kernels of a result compute from what, in whichever order they are launched."""
    return frozenset((k.family, k.outputs, k.inputs, k.predicted_us) for k in result.plan.kernels)


def _another(deadline: Deadline, made: Callable[..., Result], selection: Selection, explaining: float) -> Result | None:
    return made(selection, explaining)


ANOTHER = Stage(_another, lambda made, selection, explaining: None, grace=0.0)
