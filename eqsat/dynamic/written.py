"""A choice written at several sizes, and as one model with named dims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from eqsat.dynamic.family import Family
from eqsat.dynamic.instantiate import Written, instantiated
from eqsat.dynamic.ranges import samples
from eqsat.dynamic.replay import Choice, Replay, Unlike
from eqsat.frontends.onnx.dims.forms import Point, shown
from eqsat.frontends.onnx.dims.join import Apart, Draft, Model, join
from eqsat.frontends.onnx.write.model import draft, least_opset
from eqsat.program.fold import fold_source
from eqsat.program.ir import Program
from eqsat.search.runner import Runner


class Sizes:
    """A family at the sizes where its result is written, and at the largest ones.

    Attributes:
        points: those of the search first.
        whole, largest: the largest sizes of the ranges, and the program there.
    """

    def __init__(self, family: Family, largest: Program, where: float) -> None:
        """Sizes around a place between the least (0) and the largest (1)."""
        self._family, self.largest = family, largest
        self.whole = family.largest
        self.points = samples(family.ranges, {n for term in largest.terms() for n in term.shape}, where)

    @cached_property
    def programs(self) -> list[Program]:
        """As written, at these sizes. Raises InputError if there is none at one of them."""
        return [self._family.at(point) for point in self.points]


class Instances:
    """A choice at some sizes of its family, each dim varied once and all together once.

    Attributes:
        points: the sizes, those of the search first.
        reasons: why forms, by number, must stay as written.
    """

    def __init__(self, choice: Choice, sizes: Sizes, run: Runner) -> None:
        """Raises Apart if the programs as written differ in more than sizes."""
        self._choice, self._sizes = choice, sizes
        self._replays: list[Replay] = []
        self.points = [sizes.points[0]]
        self.reasons: dict[int, str] = {}
        others = zip(sizes.points[1:], sizes.programs[1:], strict=True)
        for point, program in others:
            try:
                replay = Replay(choice, program, run)
            except Unlike as unlike:
                raise Apart(f"at {shown(point)} {unlike}") from None
            self.reasons |= {i: f"at {shown(point)} {why}" for i, why in replay.refused.items()}
            self._replays.append(replay)
            self.points.append(point)

    def model(self, kept: dict[int, str]) -> Model:
        """The model in which these forms, by number, are as written.

        Raises:
            Apart: there is none.
            InputError: a program has no ONNX form.
        """
        choice = self._choice.keep(list(kept))
        found = [choice.written(), *(replay.written(choice) for replay in self._replays)]
        drafts = [_draft(point, each.program) for point, each in zip(self.points, found, strict=True)]
        try:
            whole = [_draft(self._sizes.whole, self._at_largest(found))]
        except Apart:
            whole = []
        return join([*drafts, *whole], bool(whole), found[0].program.header.dims)

    def _at_largest(self, found: Sequence[Written]) -> Program:
        source = fold_source(self._sizes.largest, self._choice.problem.asked.exact).program
        by_name = {name: term for term, name in source.names.items() if term.op == "constant"}
        made = instantiated(found, self.points, self._sizes.whole, by_name.get)
        return replace(made, names=source.names, written=source.written, header=source.header)

    def largest_model(self) -> tuple[Model, dict[int, str]]:
        """The model with as many changed forms as possible, and why the other ones are as written.

        Raises:
            Apart: not even the program as written has a model.
        """
        kept = dict(self.reasons)
        changed = [i for i in self._choice.changed() if i not in kept]
        try:
            return self.model(kept), kept
        except Apart as apart:
            if not changed:
                raise
            reason = str(apart)
        alone: dict[int, str] = {}
        for i in changed if len(changed) > 1 else ():
            try:
                self.model(kept | {j: "" for j in changed if j != i})
            except Apart as apart:
                alone[i] = str(apart)
        alone = alone or dict.fromkeys(changed, reason)
        try:
            return self.model(kept | alone), kept | alone
        except Apart as apart:
            kept |= {i: alone.get(i, str(apart)) for i in changed}
            return self.model(kept), kept


def _draft(point: Point, program: Program) -> Draft:
    model, constants = draft(program, least_opset(program))
    return Draft(point, model, dict(constants))
