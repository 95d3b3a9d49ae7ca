"""Which of several models with named dims is best over the whole range: the one with the least worst ratio."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from eqsat.dynamic.candidate import Candidate, at, price
from eqsat.dynamic.family import Family
from eqsat.errors import CheckFailed
from eqsat.frontends.onnx.dims.forms import Point
from eqsat.program.ir import Program
from eqsat.search.asked import Asked
from eqsat.search.runner import Runner


@dataclass(frozen=True, slots=True)
class Prices:
    """Predicted microseconds at some sizes: of the source, and of each candidate."""

    point: Point
    source: float
    candidates: Sequence[float]

    @property
    def best(self) -> float:
        return min(self.source, *self.candidates)

    def without(self, k: int) -> Prices:
        """The same with the price of the source for this candidate."""
        return replace(self, candidates=[*self.candidates[:k], self.source, *self.candidates[k + 1 :]])

    def as_json(self, chosen: int | None) -> dict[str, Any]:
        """As in the report; `chosen` is the number of the candidate that was taken, None for the source."""
        result = self.source if chosen is None else self.candidates[chosen]
        return {"sizes": self.point, "source_us": self.source, "result_us": result, "best_us": self.best}


@dataclass(slots=True)
class Competition:
    """Candidates, and what decides among them.

    Attributes:
        candidates: at least one.
        prices: at some sizes.
        refused: why candidates, by number, are none: they are not right at all sizes.
    """

    candidates: Sequence[Candidate]
    prices: list[Prices] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)

    @property
    def chosen(self) -> int | None:
        """The number of the best candidate with a model; None if the source is better."""
        models = [k for k, each in enumerate(self.candidates) if each.model is not None and k not in self.refused]
        return least_worst(self.prices, models)

    def refuse(self, k: int, reason: str) -> None:
        """Take this candidate out."""
        self.refused[k] = reason
        self.prices = [each.without(k) for each in self.prices]

    def end(self, reason: str) -> None:
        """Take all candidates out: for this reason, where none is known."""
        for k in range(len(self.candidates)):
            if k not in self.refused:
                self.refuse(k, reason)

    def as_source(self, run: Runner) -> Candidate:
        """The first candidate, with nothing of its choice taken."""
        if self.candidates[0].model is None:
            return self.candidates[0]
        reason = self.refused.get(0, "it costs more at some sizes than it saves at others")
        return self.candidates[0].as_source(reason, run)


def compete(
    family: Family, candidates: Sequence[Candidate], points: Sequence[Point], asked: Asked, run: Runner
) -> Competition:
    """Prices of the source and of the candidates at these sizes, as far as there is time for all of them at a size.

    A candidate that cannot be read at one of these sizes was fitted at others, and is none.
    """
    found = Competition(candidates)
    for point in points:
        programs = [family.at(point), *_read(found, point)]
        prices: list[float] = []
        for program in programs:
            own = prices[0] if program is None else price(program, asked, run) if run.left("solve") else None
            if own is None:
                return found
            prices.append(own)
        found.prices.append(Prices(point, prices[0], prices[1:]))
    return found


def _read(found: Competition, point: Point) -> list[Program | None]:
    """The programs of the candidates at these sizes; None if one is the source, or has none, and so is refused."""
    programs: list[Program | None] = []
    for k, each in enumerate(found.candidates):
        program: Program | None = None
        if each.model is not None and k not in found.refused:
            try:
                program = at(each.model, point)
            except CheckFailed as error:
                found.refuse(k, str(error))
        programs.append(program)
    return programs


def least_worst(prices: Sequence[Prices], candidates: Collection[int]) -> int | None:
    """The candidate, of these, with the least worst ratio: the largest one, over all sizes, of its price to the best.

    The first among equals; None if it is the source.
    """
    worst: Mapping[int | None, float] = {
        None: max((_ratio(each.source, each.best) for each in prices), default=float("inf")),
        **{k: max((_ratio(each.candidates[k], each.best) for each in prices), default=1.0) for k in candidates},
    }
    return min(worst, key=lambda k: (worst[k], k is None, k or 0))


def _ratio(price: float, best: float) -> float:
    """Of a price to the best one, which is 0 where nothing is computed: results are empty, or only views."""
    if price == best:
        return 1.0
    return price / best if best else float("inf")
