"""Products whose epilogue reads totals of their rows or columns, which are made on the same walk."""

from __future__ import annotations

from eqsat.gpu.families.base import Sizes
from eqsat.gpu.families.expressions import along_columns, array, bin_, full, reduced, times, transposed, un, view
from eqsat.gpu.families.stream.examples import scores
from eqsat.layout import arithmetic as lay
from eqsat.program.core import Node


def examples(sizes: Sizes, dtype: str, long: bool = False) -> dict[str, Node]:
    """By name; `long` ones have arrays in place of inner products."""
    batch, m, k, n = sizes
    x, w, y = (array(name, batch * k * edge, dtype) for name, edge in (("x", m), ("values", n), ("y", n)))
    e = un("exp", x if long else scores(sizes, dtype))
    logits = x if long else scores(sizes, dtype)
    below = un("exp", bin_("sub", logits, along_columns(reduced("max", logits, k), k)))
    square = reduced("sum", bin_("mul", x, x), k)
    length = un("sqrt", bin_("add", square, full(1, square)))
    column = reduced("sum", bin_("mul", y, y), k)
    repeated = view(lay.strided(0, ((batch, n), (m, 0), (n, 1))), un("rsqrt", column))
    return {
        "divided by sums": bin_("div", times(sizes, e, w), along_columns(reduced("sum", e, k), n)),
        "below the maximum": bin_("div", times(sizes, below, w), along_columns(reduced("sum", below, k), n)),
        "a norm": bin_("div", times(sizes, x, w), along_columns(length, n)),
        "norms of columns": bin_("mul", times(sizes, x, transposed(y, (batch, n, k), (0, 2, 1))), repeated),
    }
