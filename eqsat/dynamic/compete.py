"""Which of several models with named dims is best over the whole range: the one with the least worst ratio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.dynamic.candidate import Candidate, at, price
from eqsat.dynamic.family import Family
from eqsat.frontends.onnx.dims.forms import Point
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

    def as_json(self, chosen: int | None) -> dict[str, Any]:
        """As in the report; `chosen` is the number of the candidate that was taken, None for the source."""
        result = self.source if chosen is None else self.candidates[chosen]
        return {"sizes": self.point, "source_us": self.source, "result_us": result, "best_us": self.best}


def priced(
    family: Family, candidates: Sequence[Candidate], points: Sequence[Point], asked: Asked, run: Runner
) -> list[Prices]:
    """Prices of the source and of the candidates at these sizes, as far as there is time for all of them at a size."""
    found: list[Prices] = []
    for point in points:
        programs = [family.at(point), *(each.model and at(each.model, point) for each in candidates)]
        prices: list[float] = []
        for program in programs:
            own = prices[0] if program is None else price(program, asked, run) if run.left("solve") else None
            if own is None:
                return found
            prices.append(own)
        found.append(Prices(point, prices[0], prices[1:]))
    return found


def least_worst(prices: Sequence[Prices], count: int) -> int | None:
    """The candidate with the least worst ratio: the largest one, over all sizes, of its price to the best price.

    The first among equals; None if it is the source.
    """
    worst: Mapping[int | None, float] = {
        None: max((each.source / each.best for each in prices), default=float("inf")),
        **{k: max((each.candidates[k] / each.best for each in prices), default=1.0) for k in range(count)},
    }
    return min(worst, key=lambda k: (worst[k], k is None, k or 0))
