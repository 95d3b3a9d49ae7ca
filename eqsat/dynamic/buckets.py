"""Several models for parts of the ranges of named dims, where one form is not best at all sizes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import isqrt
from typing import TYPE_CHECKING, Any

from eqsat.base.time_budget import TimeBudget
from eqsat.dynamic.family import Family
from eqsat.dynamic.optimize import optimize_dynamic
from eqsat.dynamic.ranges import Range
from eqsat.dynamic.result import Dynamic

if TYPE_CHECKING:
    from eqsat.dynamic.family import Source

_WIDE = 8
"""A range whose ends differ by this factor, at least, is cut in two."""


def optimize_buckets(
    source: Source,
    shapes: Mapping[str, int | Range] | None = None,
    *,
    time_limit: float | TimeBudget = 10.0,
    **options: Any,
) -> list[Dynamic]:
    """One result for each half of each range, small sizes first; narrow ranges stay whole.

    Args:
        source, shapes, time_limit: as for `optimize_dynamic`; the time limit is on all results, and Ctrl-C ends all.
        options: as for `optimize_dynamic`.

    Raises:
        As `optimize_dynamic`.
    """
    budget = TimeBudget.of(time_limit)
    ranges = Family.of(source, shapes).ranges
    others = {name: size for name, size in (shapes or {}).items() if name not in ranges}
    parts = halves(ranges)
    found: list[Dynamic] = []
    for i, part in enumerate(parts):
        own = TimeBudget(budget.left("write") / (len(parts) - i))
        end = own.end
        found.append(optimize_dynamic(source, {**others, **part}, time_limit=own, **options))
        if own.end < end:  # Ctrl-C ended it, and leaves no time for the others
            budget.finish()
    return found


def halves(ranges: Mapping[str, Range]) -> list[dict[str, Range]]:
    """The products of the halves of these ranges, cut at the geometric mean of their ends."""
    cut: list[list[Range]] = []
    for low, high in ranges.values():
        middle = isqrt(low * high)
        cut.append([(low, middle), (middle + 1, high)] if high >= _WIDE * low else [(low, high)])
    return [dict(zip(ranges, part, strict=True)) for part in product(*cut)]
