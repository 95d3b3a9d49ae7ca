"""`optimize_dynamic`: a model with named dims in, an equal and cheaper one with the same dims out.

search    the program at one size, as `optimize` does                      eqsat/pipeline/
replay    the same choice at other sizes, without a search                 eqsat/dynamic/replay.py
join      the models written at these sizes, as one with named dims        eqsat/frontends/onnx/dims/join.py
compete   with what searches at smaller sizes choose, if time is left      eqsat/dynamic/compete.py
compare   that model with its source, at further sizes                     eqsat/dynamic/checked.py
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eqsat.base.time_budget import TimeBudget
from eqsat.check.part import Check
from eqsat.dynamic.candidate import Candidate, candidate
from eqsat.dynamic.checked import Compared, compare
from eqsat.dynamic.compete import Competition, compete
from eqsat.dynamic.family import Family, inputs_at
from eqsat.dynamic.ranges import Range
from eqsat.dynamic.result import Dynamic
from eqsat.dynamic.written import Sizes
from eqsat.egraph.saturate import warm_up
from eqsat.errors import CheckFailed, CheckTooLarge, CheckUndecided, InputError
from eqsat.extract.device.table import DeviceLike
from eqsat.language.rule import AnyRule, Policy
from eqsat.pipeline.assemble import verify
from eqsat.pipeline.describe import describe
from eqsat.search import limits
from eqsat.search.asked import Asked, judged
from eqsat.search.runner import Progress, Runner

if TYPE_CHECKING:
    from eqsat.dynamic.family import Source

_REPLAYING, _CHECKING = 0.3, 0.2
"""Shares of the time left that are kept for replays, and for the check."""

_WHERE = (1.0, 0.0, 0.5)
"""Where the searches are, from the least (0) to the largest sizes (1), by ratio; the later ones if time is left."""


@np.errstate(all="ignore")  # whatever the caller asks of its own arithmetic
def optimize_dynamic(
    source: Source,
    shapes: Mapping[str, int | Range] | None = None,
    device: DeviceLike = "mi300x",
    time_limit: float | TimeBudget = 10.0,
    numerics: Policy = "reassociate",
    rules: Sequence[AnyRule] | None = None,
    progress: Progress | None = None,
    explain_time: float = limits.EXPLAINING.seconds,
    memory_limit: int | None = None,
) -> Dynamic:
    """Find an equal program that is cheaper at all sizes of its named dims.

    The search runs at one size, near the largest. What it chose is written at two or more other sizes, and the numbers
    in which these models differ become forms of the dims. If time is left, the same is done at small and at medium
    sizes, and of these models and the source the one is taken whose price is nearest to the best at all of these sizes.
    It is compared with the source at the ends of the ranges and at sizes that were not used before.

    Args:
        source: an ONNX file, a model in memory, or a function from sizes by name to a program. Of a model whose
            program ends before operators that no program holds, that is optimised, as by `from_onnx(..., head=True)`.
        shapes: sizes of dims that are to be fixed, and ranges (least, largest) of others; by default 1 to 64.
        device, time_limit, numerics, rules, progress, explain_time, memory_limit: as for `optimize`. The time limit
            is on everything, up to the check.

    Raises:
        InputError: as `optimize` and `from_onnx`; a range is none, or the model has no program at its ends.
        CheckFailed: as `optimize`.
    """
    begun = time.monotonic()
    run = Runner(TimeBudget.of(time_limit), progress)
    with run.budget.stage("read"):
        family = Family.of(source, shapes)
        if not family.ranges:
            raise InputError("no dimension is open: use optimize for a model of fixed sizes")
        largest = family.at(family.largest)
        sizes = [Sizes(family, largest, where) for where in _WHERE]
        first = sizes[0].programs[0]
    given = numerics, rules, progress, explain_time, 1, "latency", None, memory_limit, False, 1
    asked = judged(first, device, *given)
    if asked.rules:
        warm_up(asked.rules)
    candidates = _candidates(family, sizes, asked, run)
    points = {tuple(each.points[0].items()): each.points[0] for each in sizes}
    competition = compete(family, candidates, list(points.values()), asked, run)
    found, compared = _taken(family, competition, run)
    found, verdict = _verified(found, run)
    best = describe(found.choice.problem, found.made, found.written.plan, verdict, asked.explain_time, run)
    best.report |= {"measured": None, "dynamic": _as_json(family, found, competition, compared)}
    if asked.device.runtime:
        best.report["unmeasured"] = "it has named dimensions"
    best.report["seconds"] = round(time.monotonic() - begun, 3)
    best.report["stages"] = run.budget.report()
    if run.interrupted:
        run.budget.finish()  # for what the caller would do with the rest
    run.tell("done", 1.0)
    return Dynamic(best, family, found.model)


def _candidates(family: Family, sizes: Sequence[Sizes], asked: Asked, run: Runner) -> list[Candidate]:
    """What searches at these sizes choose: the first always, the others if they can end in the time left."""
    found: list[Candidate] = []
    took = 0.0
    for each in sizes:
        left = run.left("solve")
        if found and (left < took or any(each.points[0] == other.sizes.points[0] for other in found)):
            continue
        run.budget.expect("replay", _REPLAYING * left)
        began = time.monotonic()
        found.append(candidate(family, each, asked, run))
        took = max(took, 2 * (time.monotonic() - began))
        run.budget.expect("replay", 0.0)
        run.budget.expect("check", _CHECKING * run.budget.limit)
    return found


def _taken(family: Family, competition: Competition, run: Runner) -> tuple[Candidate, list[Compared]]:
    """The best candidate that agrees with the source where they are compared, else the source; and the comparisons."""
    while (chosen := competition.chosen) is not None:
        found = competition.candidates[chosen]
        try:
            return _named(found, compared := _compared(family, found, run)), compared
        except CheckFailed as error:
            competition.refuse(chosen, str(error))
        if not run.left("check"):
            competition.end("no time is left to compare it")
    found = competition.as_source(run)
    with suppress(CheckFailed):
        return _named(found, compared := _compared(family, found, run)), compared
    return replace(found, model=None, points=()), []


def _verified(found: Candidate, run: Runner) -> tuple[Candidate, Check]:
    """The candidate and its check at the largest sizes; the source itself where there is not the time or memory for it.

    Raises:
        CheckFailed: it differs from the source.
    """
    try:
        return found, verify(found.choice.problem, found.made, run)
    except (CheckTooLarge, CheckUndecided) as error:
        source = found.as_source(str(error), run)
        source = replace(source, made=replace(source.made, unchecked=True))
        return source, verify(source.choice.problem, source.made, run)


def _named(found: Candidate, compared: Sequence[Compared]) -> Candidate:
    """The candidate with names of dims of outputs that say their sizes wherever it was compared."""
    model = found.model
    for each in compared:
        model = model and model.named_by(each.point, each.shapes)
    return replace(found, model=model)


def _as_json(
    family: Family, found: Candidate, competition: Competition, compared: Sequence[Compared]
) -> dict[str, Any]:
    """The part of the report on named dims."""
    return {
        "dims": {name: list(both) for name, both in family.ranges.items()},
        "figures_at": found.sizes.points[0],
        "written_at": list(found.points),
        "as_source": found.model is None,
        "as_written": [{"parts": parts, "why": why} for parts, why in found.kept()],
        "predicted": [each.as_json(competition.chosen) for each in competition.prices],
        "checked": [each.as_json() for each in compared],
    }


def _compared(family: Family, found: Candidate, run: Runner) -> list[Compared]:
    """Comparisons with the source, none if that stays as it is. Raises CheckFailed if they differ."""
    if found.model is None:
        return []
    sizes = found.sizes
    inputs = inputs_at(sizes.programs, sizes.points)
    if inputs is None:
        raise CheckFailed("the dims of its inputs are no forms of the named ones")
    run.tell("checking", 0.95)
    ends = time.monotonic() + run.left("check")
    with tempfile.TemporaryDirectory(prefix="eqsat-") as folder, run.budget.stage("check"):
        file = Path(folder, "model.onnx")
        found.model.save(file)
        return compare(family, file, found.points, sizes.programs[0], inputs, ends)
