"""Examples of pointwise kernels: index maps of every kind, over x[m, n]."""

from __future__ import annotations

from eqsat.gpu.families.base import Sizes
from eqsat.gpu.families.expressions import (
    along_columns,
    along_rows,
    array,
    bin_,
    full,
    looked_up,
    transposed,
    un,
    view,
)
from eqsat.layout import arithmetic as lay
from eqsat.program.core import Node, make


def examples(sizes: Sizes, dtype: str) -> dict[str, tuple[Node, ...]]:
    """Outputs by name; only m and n of `sizes` matter."""
    _, m, _, n = sizes
    x, y = array("x", m * n, dtype), array("y", m * n, dtype)
    row, column = array("row", n, dtype), array("column", m, dtype)
    total = bin_("add", x, along_rows(row, m))
    flipped = view(lay.of_slice((m, n), (m - 1, 0), (-1, n), (-1, 1)), x)
    lower = lay.masked(0, ((m, n), (n, 1)), (lay.Axis(m, 0, 0, (1, -1)),), 0.0)
    windows = lay.windows((1, 1, m, n), (2, 2), (1, 1), (1, 1), (1, 1), (1, 1), 0.0)
    places, others = array("places", m, "int64"), array("others", 5, "int32")
    rows = looked_up(x, m, places)
    tables = [looked_up(array(f"table{i}", 3 * n, dtype), 3, array(f"at{i}", 5, "int64")) for i in range(26)]
    heads = array("heads", 3 * m * n, dtype)
    return {
        "a transpose of a sum": (transposed(total, (m, n), (1, 0)),),
        "a chain": (un("tanh", bin_("mul", total, along_columns(column, n))),),
        "a transpose": (transposed(un("neg", x), (m, n), (1, 0)),),
        "a sum with a transpose": (bin_("add", y, transposed(x, (n, m), (1, 0))),),
        "the last axis to the front": (transposed(un("abs", heads), (3, m, n), (2, 0, 1)),),
        "the last two axes of three": (bin_("mul", heads, transposed(heads, (3, n, m), (0, 2, 1))),),
        "a flip": (bin_("sub", flipped, y),),
        "a slice": (view(lay.of_slice((m, n), (0, 0), (m, n), (1, 2)), bin_("mul", x, y)),),
        "a pad": (view(lay.of_pad((m, n), (1, 2), (3, 0), -1.5), x),),
        "a pad of a computed value": (view(lay.of_pad((m, n), (0, 1), (2, 4), 0.0), total),),
        "a triangle": (view(lower, un("abs", x)),),
        "windows": (view(windows, x),),
        "a concatenation": (make("Cat", (), (un("exp", x), row, bin_("mul", y, y))),),
        "several outputs": (un("abs", x), bin_("max", x, y), un("floor", row)),
        "a choice": (make("Where", (), (bin_("less", x, y), x, un("neg", y))),),
        "conditions": (bin_("greater_equal", x, y), un("not", bin_("equal", x, y))),
        "casts": (un("cast:int32", bin_("mul", x, full(3.0, x))), un("cast:float16", x), un("cast:bfloat16", y)),
        "powers": (bin_("pow", un("abs", x), full(2.5, x)), bin_("pow", x, full(2.0, x))),
        "looked-up rows": (rows,),
        "looked-up columns": (transposed(looked_up(transposed(x, (m, n), (1, 0)), n, others), (5, m), (1, 0)),),
        "a sum with looked-up rows, transposed": (transposed(bin_("add", rows, y), (m, n), (1, 0)),),
        "rows of a function of looked-up rows": (looked_up(un("exp", rows), m, others),),
        "a pad of looked-up rows": (view(lay.of_pad((m, n), (1, 0), (0, 2), 0.5), rows),),
        "rows of many tables": (make("Cat", (), tables),),
        "looked-up rows beside an array": (make("Cat", (), (row, rows, x)),),
        "integers": (bin_("mod", places, full(3, places)), bin_("less", places, full(m, places))),
    }
