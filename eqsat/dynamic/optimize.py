"""`optimize_dynamic`: a model with named dims in, an equal and cheaper one with the same dims out.

search    the program at one size, as `optimize` does                      eqsat/pipeline/
replay    the same choice at other sizes, without a search                 eqsat/dynamic/replay.py
join      the models written at these sizes, as one with named dims        eqsat/frontends/onnx/dims/join.py
compare   that model with its source, at further sizes                     eqsat/dynamic/checked.py
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat.base.time_budget import TimeBudget
from eqsat.dynamic.checked import Compared, compare
from eqsat.dynamic.family import Family, inputs_at
from eqsat.dynamic.ranges import Range
from eqsat.dynamic.replay import Choice
from eqsat.dynamic.result import Dynamic
from eqsat.dynamic.written import Instances, Sizes
from eqsat.egraph.saturate import warm_up
from eqsat.errors import CheckFailed, InputError
from eqsat.extract.device.table import Device
from eqsat.frontends.onnx.dims.forms import Point
from eqsat.frontends.onnx.dims.join import Apart, Model
from eqsat.language.rule import AnyRule, Policy
from eqsat.pipeline import limits
from eqsat.pipeline.asked import judged
from eqsat.pipeline.assemble import assemble, plan_written, verify
from eqsat.pipeline.describe import describe
from eqsat.pipeline.runner import Progress, Runner
from eqsat.pipeline.search import partition, search
from eqsat.pipeline.selection import choose

if TYPE_CHECKING:
    from eqsat.dynamic.family import Source

_REPLAYING, _CHECKING = 0.3, 0.2
"""Shares of the time limit that are kept for replays, and for the check."""


def optimize_dynamic(
    source: Source,
    shapes: Mapping[str, int | Range] | None = None,
    device: str | Device = "mi300x",
    time_limit: float | TimeBudget = 10.0,
    numerics: Policy = "reassociate",
    rules: Sequence[AnyRule] | None = None,
    progress: Progress | None = None,
    explain_time: float = limits.EXPLAINING.seconds,
    memory_limit: int | None = None,
) -> Dynamic:
    """Find an equal program that is cheaper at all sizes of its named dims.

    The search runs at one representative size, near the largest. What it chose is written at two or more other sizes,
    and the numbers in which these models differ become forms of the dims. The result is compared with its source at the
    ends of the ranges and at sizes that were not used before.

    Args:
        source: an ONNX file, a model in memory, or a function from sizes by name to a program.
        shapes: sizes of dims that are to be fixed, and ranges (least, largest) of others; by default 1 to 64.
        device, time_limit, numerics, rules, progress, explain_time, memory_limit: as for `optimize`. The time limit
            is on everything, up to the check.

    Raises:
        InputError: as `optimize` and `from_onnx`; a range is none, or the model has no program at its ends.
        CheckFailed: even the program as written differs from its source when its dims are named.
    """
    begun = time.monotonic()
    run = Runner(TimeBudget.of(time_limit), progress)
    run.budget.expect("replay", _REPLAYING * run.budget.limit)
    with run.budget.stage("read"):
        family = Family.of(source, shapes)
        if not family.ranges:
            raise InputError("no dimension is open: use optimize for a model of fixed sizes")
        sizes = Sizes(family)
    given = numerics, rules, progress, explain_time, 1, "latency", None, memory_limit, False, 1
    asked = judged(sizes.programs[0], device, *given)
    if asked.rules:
        warm_up(asked.rules)
    problem = partition(sizes.programs[0], asked, run)
    found = search(problem, run)
    written = plan_written(problem, found)
    [selection] = choose(problem, found, run)
    made = assemble(problem, selection, written, run)
    run.budget.expect("check", _CHECKING * run.budget.limit)
    outcome = _at_all_sizes(Choice(problem, made.selection), family, sizes, run)
    if outcome.choice.selection is not made.selection:
        made = assemble(problem, outcome.choice.selection, written, run)
    verdict = verify(problem, made, run)
    best = describe(problem, made, written.plan, verdict, explain_time, run)
    best.report |= {"measured": None, "dynamic": outcome.as_json(family, sizes.points[0])}
    if asked.device.runtime:
        best.report["unmeasured"] = "it has named dimensions"
    best.report["seconds"] = round(time.monotonic() - begun, 3)
    best.report["stages"] = run.budget.report()
    run.tell("done", 1.0)
    return Dynamic(best, family, outcome.model)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What became of a choice at all sizes.

    Attributes:
        choice: the same choice, with forms as written that are for some sizes only.
        model: with named dims; None if the source stays as it is.
        points: sizes at which it was written.
        reasons: why forms, by number, are as written.
        compared: its comparisons with the source.
    """

    choice: Choice
    model: Model | None
    points: Sequence[Point] = ()
    reasons: Mapping[int, str] = field(default_factory=dict)
    compared: Sequence[Compared] = ()

    def as_json(self, family: Family, first: Point) -> dict[str, Any]:
        """As in the report."""
        forms = [part.form for part in self.choice.problem.parts]
        known = self.choice.forms
        return {
            "dims": {name: list(both) for name, both in family.ranges.items()},
            "figures_at": first,
            "written_at": list(self.points),
            "as_source": self.model is None,
            "as_written": [{"parts": forms.count(known[i]), "why": why} for i, why in self.reasons.items()],
            "checked": [one.as_json() for one in self.compared],
        }


def _at_all_sizes(choice: Choice, family: Family, sizes: Sizes, run: Runner) -> _Outcome:
    """The model of a choice with named dims, checked; the source itself if nothing of the choice is for all sizes.

    Raises:
        CheckFailed: not even the program as written has a model that passes, and it was read from no file.
    """
    run.tell("other sizes", 0.9)
    changed = choice.changed()
    reasons: dict[int, str] = {}
    if changed or family.path is None:
        try:
            instances = Instances(choice, sizes, run)
            model, reasons = instances.largest_model()
            if len(reasons) < len(changed) or family.path is None:
                compared = _compared(model, family, sizes, instances.points, run)
                return _Outcome(choice.keep(list(reasons)), model, instances.points, reasons, compared)
        except (Apart, CheckFailed) as error:
            if family.path is None:
                raise CheckFailed(f"the program has no model with named dimensions: {error}") from None
            reasons |= {i: str(error) for i in changed if i not in reasons}
    return _Outcome(choice.keep(changed), None, (), reasons)


def _compared(model: Model, family: Family, sizes: Sizes, points: Sequence[Point], run: Runner) -> list[Compared]:
    inputs = inputs_at(sizes.programs, sizes.points)
    if inputs is None:
        raise Apart("the dims of its inputs are no forms of the named ones")
    run.tell("checking", 0.95)
    ends = time.monotonic() + run.left("check")
    with tempfile.TemporaryDirectory(prefix="eqsat-") as folder, run.budget.stage("check"):
        file = Path(folder, "model.onnx")
        model.save(file)
        return compare(family, file, points, sizes.programs[0], inputs, ends)
