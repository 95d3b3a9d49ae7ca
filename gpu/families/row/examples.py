"""Examples of row kernels: reductions of x[batch * m, k], and pointwise operators over them."""

from __future__ import annotations

from eqsat.gpu.families.base import Sizes
from eqsat.gpu.families.expressions import (
    along_columns,
    along_rows,
    array,
    bin_,
    full,
    layernorm,
    looked_up,
    reduced,
    softmax,
    transposed,
    un,
    view,
)
from eqsat.layout import arithmetic as lay
from eqsat.program.core import Node, make


def examples(sizes: Sizes, dtype: str) -> dict[str, tuple[Node, ...]]:
    """Outputs by name; n of `sizes` does not matter."""
    batch, m, columns, _ = sizes
    rows = batch * m
    by_rows = _plain(rows, columns, dtype) | _several_passes(rows, columns, dtype)
    return by_rows | _by_columns(batch, m, columns, dtype)


def _plain(rows: int, columns: int, dtype: str) -> dict[str, tuple[Node, ...]]:
    x, y = array("x", rows * columns, dtype), array("y", rows * columns, dtype)
    turned = transposed(x, (columns, rows), (1, 0))
    total = reduced("sum", bin_("mul", x, y), columns)
    i, b = array("i", rows * columns, "int32"), array("b", rows * columns, "bool")
    found = {f"the {f} of each row": (reduced(f, un("neg", x), columns),) for f in ("sum", "max", "argmax", "argmin")}
    found |= {f"the {f} over the leading axis": (reduced(f, un("neg", turned), columns),) for f in ("sum", "min")}
    return found | {
        "products of few numbers": (reduced("prod", un("cos", array("angles", 3 * rows, dtype)), 3),),
        "integers": (reduced("sum", i, columns), reduced("max", i, columns)),
        "any": (reduced("max", b, columns),),
        "a mean": (bin_("mul", total, full(1 / columns, total)),),
        "sums of rows beside what is summed": (total, bin_("mul", x, y)),
        "sums over the leading axis beside a function": (reduced("sum", turned, columns), un("relu", x)),
        "a product with a vector": (make("MM", (1, rows, columns, 1), (x, array("v", columns, dtype))),),
        "a vector times a matrix": (make("MM", (1, 1, rows, columns), (array("v", rows, dtype), x)),),
    }


def _several_passes(rows: int, columns: int, dtype: str) -> dict[str, tuple[Node, ...]]:
    x, y = array("x", rows * columns, dtype), array("y", rows * columns, dtype)
    soft = softmax(rows, columns, dtype)
    residual = bin_("add", x, y)
    square = reduced("sum", bin_("mul", residual, residual), columns)
    scale = un("rsqrt", bin_("add", square, full(1.0, square)))
    norm = bin_("mul", residual, along_columns(scale, columns))
    gained = bin_("mul", norm, along_rows(array("gain", columns, dtype), rows))
    embedded = bin_("add", looked_up(array("table", 7 * columns, dtype), 7, array("places", rows, "int64")), x)
    share = bin_("mul", embedded, along_columns(reduced("max", embedded, columns), columns))
    return {
        "softmax": (soft,),
        "layernorm": (layernorm(rows, columns, dtype),),
        "softmax, written transposed": (transposed(soft, (rows, columns), (1, 0)),),
        "softmax and the maximum": (soft, reduced("max", x, columns)),
        "a norm beside its residual sum": (gained, residual),
        "a norm, its scale and its residual sum transposed": (
            norm,
            scale,
            transposed(residual, (rows, columns), (1, 0)),
        ),
        "a norm beside arrays of its sizes": (norm, un("exp", array("z", rows, dtype)), un("neg", y)),
        "looked-up rows, scaled by their maxima": (share,),
        "looked-up rows beside what is scaled": (share, embedded),
    }


def _by_columns(batch: int, m: int, columns: int, dtype: str) -> dict[str, tuple[Node, ...]]:
    """Norms of x[batch, columns, m] over its middle axis, of which neighbouring elements lie m apart."""
    x = array("x", batch * columns * m, dtype)

    def over(f: str, a: Node) -> Node:
        return reduced(f, transposed(a, (batch, columns, m), (0, 2, 1)), columns)

    def back(row: Node) -> Node:
        return view(lay.strided(0, ((batch, m), (columns, 0), (m, 1))), row)

    e = un("exp", bin_("sub", x, back(over("max", x))))
    soft = bin_("div", e, back(over("sum", e)))
    total = over("sum", x)
    centred = bin_("sub", x, back(bin_("mul", total, full(1 / columns, total))))
    square = over("sum", bin_("mul", centred, centred))
    scale = un("rsqrt", bin_("add", square, full(1.0, square)))
    norm = bin_("mul", centred, back(scale))
    gain = view(lay.strided(0, ((batch, 0), (columns, 1), (m, 0))), array("gain", columns, dtype))
    return {
        "softmax over a middle axis": (soft,),
        "softmax over a middle axis, which is written last": (transposed(soft, (batch, columns, m), (0, 2, 1)),),
        "a norm over a middle axis, its scale and its maximum": (bin_("mul", norm, gain), scale, over("max", norm)),
        "a norm over a middle axis beside its argument": (norm, un("neg", x)),
        "the place of a maximum over a middle axis": (over("argmax", e),),
    }
