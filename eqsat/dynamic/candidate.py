"""A search at one size, and what it chose as a model with named dims."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from eqsat.dynamic.family import Family, result_at
from eqsat.dynamic.replay import Choice
from eqsat.dynamic.written import Instances, Sizes
from eqsat.extract.plan.stitch import Stitched
from eqsat.frontends.onnx.dims.forms import Point
from eqsat.frontends.onnx.dims.join import Apart, Model
from eqsat.pipeline.assemble import Assembled, WrittenPlan, assemble
from eqsat.pipeline.selection import choose
from eqsat.program.ir import Program
from eqsat.search.asked import Asked
from eqsat.search.runner import Runner
from eqsat.search.search import partition, search


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a search chose, and what became of it at other sizes.

    Attributes:
        sizes: of its family; the search was at the first of them.
        written: the plan of the program as written, there.
        choice: the covers, with forms as written that are for some sizes only.
        made: the result there.
        model: with named dims; None if the source stays as it is.
        points: sizes at which it was written.
        reasons: why forms, by number, are as written.
        instances: writes the program as written, where there is no file to copy.
    """

    sizes: Sizes
    written: Stitched
    choice: Choice
    made: Assembled
    model: Model | None
    points: Sequence[Point] = ()
    reasons: Mapping[int, str] = field(default_factory=dict)
    instances: Instances | None = field(default=None, repr=False)

    def as_source(self, reason: str, run: Runner) -> Candidate:
        """The same search, if nothing of its choice is taken: for this reason, where none is known.

        Without a file to copy, it has the model of the program as written, if there is one.
        """
        changed = self.choice.changed()
        reasons = {**dict.fromkeys(changed, reason), **self.reasons}
        choice = self.choice.keep(changed)
        made = assemble(choice.problem, choice.selection, self.written, run)
        found = replace(self, choice=choice, made=made, model=None, points=(), reasons=reasons)
        if self.instances is None:
            return found
        with suppress(Apart):
            return replace(found, model=self.instances.model(reasons), points=self.points)
        return found

    def kept(self) -> list[tuple[int, str]]:
        """How many parts are as written, and why."""
        forms, known = [part.form for part in self.choice.problem.parts], self.choice.forms
        return [(forms.count(known[i]), why) for i, why in self.reasons.items()]


def candidate(family: Family, sizes: Sizes, asked: Asked, run: Runner) -> Candidate:
    """The candidate of a search at the first of these sizes."""
    problem = partition(sizes.programs[0], asked, run)
    plan_written = WrittenPlan()
    found = search(problem, run, partial(plan_written.begin, problem))
    written = plan_written.result(problem, found)
    [selection] = choose(problem, found, run)
    made = assemble(problem, selection, written, run)
    choice = Choice(problem, made.selection)
    first = Candidate(sizes, written, choice, made, None)
    changed = choice.changed()
    if not changed and family.path is not None:
        return first
    run.tell("other sizes", 0.9)
    try:
        instances = Instances(choice, sizes, run)
        model, reasons = instances.largest_model()
    except Apart as apart:
        return first.as_source(str(apart), run)
    if len(reasons) == len(changed) and family.path is not None:
        return replace(first, reasons=reasons).as_source("no part has a form for all sizes", run)
    if reasons:
        choice = choice.keep(list(reasons))
        made = assemble(problem, choice.selection, written, run)
    kept = instances if family.path is None else None
    return Candidate(sizes, written, choice, made, model, instances.points, reasons, kept)


def price(program: Program, asked: Asked, run: Runner) -> float | None:
    """Microseconds that a program takes as it is, fused but not rewritten; None if the time did not suffice to find
    out, as prices of hurried covers cannot be compared."""
    problem = partition(program, replace(asked, rules=()), run)
    found = search(problem, run)
    covers = [found[part.form].written.cover for part in problem.parts]
    return None if any(cover.late for cover in covers) else sum(cover.cost for cover in covers) * 1e-6


def at(model: Model, point: Point) -> Program:
    """A model with named dims as a program at these sizes. Raises CheckFailed if it has none there."""
    with tempfile.TemporaryDirectory(prefix="eqsat-") as folder:
        file = Path(folder, "model.onnx")
        model.save(file)
        return result_at(file, point)
