"""A choice written at several sizes, and as one model with named dims."""

from __future__ import annotations

from eqsat.dynamic.family import Family
from eqsat.dynamic.ranges import samples
from eqsat.dynamic.replay import Choice, Replay, Unlike
from eqsat.frontends.onnx.dims.forms import Point, shown
from eqsat.frontends.onnx.dims.join import Apart, Draft, Model, join
from eqsat.frontends.onnx.write.model import draft, least_opset
from eqsat.pipeline.runner import Runner
from eqsat.program.ir import Program


class Sizes:
    """A family at the sizes where its result is written.

    Attributes:
        points: the representative sizes first, the largest last.
        programs: as written, at these sizes.
    """

    def __init__(self, family: Family) -> None:
        """Raises InputError if there is no program at one of the sizes."""
        whole = {name: high for name, (_, high) in family.ranges.items()}
        largest = family.at(whole)
        taken = {n for term in largest.terms() for n in term.shape}
        found = [point for point in samples(family.ranges, taken) if point != whole]
        self.points: list[Point] = [*found, whole]
        self.programs: list[Program] = [*(family.at(point) for point in found), largest]


class Instances:
    """A choice at the sizes of its family, each dim varied once, and the largest sizes if these are like the others.

    Attributes:
        reasons: why forms, by number, must stay as written.
    """

    def __init__(self, choice: Choice, sizes: Sizes, run: Runner) -> None:
        """Raises Apart if the programs as written differ in more than sizes."""
        self._choice, self._point = choice, sizes.points[0]
        self.reasons: dict[int, str] = {}
        others = list(zip(sizes.points, sizes.programs, strict=True))[1:]
        whole = self._largest(*others.pop(), run) if others else None
        if whole is not None:
            others = others[: len(self._point)]
        self._whole = whole is not None
        self._replays: list[tuple[Point, Replay]] = []
        for point, program in others:
            try:
                replay = Replay(choice, program, run)
            except Unlike as unlike:
                raise Apart(f"at {shown(point)} {unlike}") from None
            self.reasons |= {i: f"at {shown(point)} {why}" for i, why in replay.refused.items()}
            self._replays.append((point, replay))
        if whole is not None:
            self._replays.append((sizes.points[-1], whole))

    def _largest(self, point: Point, program: Program, run: Runner) -> Replay | None:
        try:
            replay = Replay(self._choice, program, run)
        except Unlike:
            return None
        return None if replay.refused else replay

    @property
    def points(self) -> list[Point]:
        """The sizes, those of the search first."""
        return [self._point, *(point for point, _ in self._replays)]

    def model(self, kept: dict[int, str]) -> Model:
        """The model in which these forms, by number, are as written.

        Raises:
            Apart: there is none.
            InputError: a program has no ONNX form.
        """
        choice = self._choice.keep(list(kept))
        drafts = [_draft(self._point, choice.program())]
        drafts += [_draft(point, replay.program(choice)) for point, replay in self._replays]
        return join(drafts, self._whole)

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
