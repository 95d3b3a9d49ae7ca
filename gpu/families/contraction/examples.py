"""Examples of contractions: x[batch, m, k] @ w[batch, k, n] with operands, outputs and reductions of every kind."""

from __future__ import annotations

from eqsat.gpu.families.base import Sizes
from eqsat.gpu.families.expressions import (
    along_columns,
    array,
    bin_,
    looked_up,
    product,
    reduced,
    times,
    transposed,
    un,
    view,
    with_bias_and_relu,
)
from eqsat.layout import arithmetic as lay
from eqsat.program.core import Node


def examples(sizes: Sizes, dtype: str) -> dict[str, tuple[Node, ...]]:
    """Outputs by name."""
    plain = {"a product": (product(*sizes, dtype),)}
    return plain | _operands(sizes, dtype) | _outputs(sizes, dtype) | _through_indices(sizes, dtype)


def reductions(sizes: Sizes, dtype: str) -> dict[str, tuple[Node, ...]]:
    """Outputs by name that hold reductions of the product."""
    batch, m, _, n = sizes
    p = with_bias_and_relu(product(*sizes, dtype))
    turned = transposed(p, (batch, m, n), (0, 2, 1))
    found = {f"the {f} of each row": (reduced(f, p, n),) for f in ("sum", "max", "min")}
    found |= {f"the {f} of each column": (reduced(f, turned, m),) for f in ("sum", "max", "min")}
    return found | {
        "a sum beside the product": (p, reduced("sum", p, n)),
        "a maximum of columns beside the transposed product": (turned, reduced("max", turned, m)),
        "two reductions": (reduced("sum", un("tanh", p), n), reduced("min", p, n)),
    }


def _operands(sizes: Sizes, dtype: str) -> dict[str, tuple[Node, ...]]:
    """Operands that are read through layouts and expressions."""
    batch, m, k, n = sizes
    x, w = array("x", batch * m * k, dtype), array("w", batch * k * n, dtype)
    left, right = array("left", m * k, dtype), array("right", k * n, dtype)
    pitched = array("pitched", 3 + m * (k + 11), dtype)
    overlapping = array("overlapping", 2 * (m - 1) + 3 * k, dtype)
    padded = view(lay.of_pad((m, k), (1, 0), (2, 0), 0.0), left)
    behind = view(lay.of_pad((m, k), (0, 2), (0, 3), 0.0), un("exp", left))
    return {
        "left transposed": (times(sizes, transposed(x, (batch, k, m), (0, 2, 1)), w),),
        "right transposed": (times(sizes, x, transposed(w, (batch, n, k), (0, 2, 1))),),
        "left rows of a wider array": (
            times((1, m, k, n), view(lay.strided(3, ((m, k + 11), (k, 1))), pitched), right),
        ),
        "left overlapping windows": (times((1, m, k, n), view(lay.strided(0, ((m, 2), (k, 3))), overlapping), right),),
        "left flipped": (times((1, m, k, n), view(lay.strided(m * k - 1, ((m, -k), (k, -1))), left), right),),
        "left shared by the batch": (times(sizes, view(lay.strided(0, ((batch, 0), (m * k, 1))), left), w),),
        "right shared by the batch": (times(sizes, x, view(lay.strided(0, ((batch, 0), (k * n, 1))), right)),),
        "operands computed first": (times(sizes, un("relu", x), bin_("mul", w, array("v", batch * k * n, dtype))),),
        "left padded by rows": (times((1, m + 3, k, n), padded, right),),
        "left padded along k": (times((1, m, k + 5, n), behind, array("longer", (k + 5) * n, dtype)),),
        "a convolution": (_convolution(sizes, 1, dtype),),
        "a convolution with strides and dilation": (_convolution(sizes, 2, dtype),),
    }


def _convolution(sizes: Sizes, step: int, dtype: str) -> Node:
    """relu(conv(image[batch, 3, m, 9], kernels[n, 3, 3, 2])), with strides and dilation `step`."""
    batch, m, _, n = sizes
    image, kernels = array("image", batch * 3 * m * 9, dtype), array("kernels", n * 18, dtype)
    steps, pads = (step, step), (step, step)
    patches = view(lay.windows((batch, 3, m, 9), (3, 2), steps, steps, pads, pads, 0.0, groups=1), image)
    weights = view(lay.conv_weights((n, 3, 3, 2), 1), kernels)
    rows = patches.size // 18
    result = un("relu", times((1, rows, 18, n), patches, weights))
    return view(lay.conv_result(batch, 1, rows // batch, n), result)


def _outputs(sizes: Sizes, dtype: str) -> dict[str, tuple[Node, ...]]:
    """Epilogues, and outputs that are written in other orders."""
    batch, m, _, n = sizes
    p = with_bias_and_relu(product(*sizes, dtype))
    other = array("other", p.size, dtype)
    turned = transposed(p, (batch, m, n), (0, 2, 1))
    scales = along_columns(array("scales", batch * m, dtype), n)
    return {
        "bias and relu": (p,),
        "scaled rows": (bin_("mul", p, scales),),
        "written transposed": (turned,),
        "heads": (transposed(p, (batch, m, n), (1, 0, 2)),),
        "all axes permuted": (transposed(p, (batch, m, n), (2, 0, 1)),),
        "written backwards": (view(lay.strided(p.size - 1, ((p.size, -1),)), p),),
        "a residual after a transpose": (bin_("add", turned, other),),
        "two outputs in two orders": (p, bin_("mul", turned, other)),
        "both branches of a diamond": (bin_("mul", p, un("sigmoid", p)),),
        "before and after the epilogue": (p, product(*sizes, dtype)),
        "a condition": (bin_("less", p, other),),
    }


def _through_indices(sizes: Sizes, dtype: str) -> dict[str, tuple[Node, ...]]:
    """Operands and addends that are rows of tables."""
    batch, m, k, n = sizes
    table, places = array("table", 9 * k, dtype), array("places", m, "int64")
    rows, columns = looked_up(table, 9, places), looked_up(table, 9, array("others", n, "int32"))
    addends = looked_up(array("addends", 9 * n, dtype), 9, array("lines", batch * m, "int64"))
    return {
        "left looked-up rows": (times((1, m, k, n), rows, array("right", k * n, dtype)),),
        "right looked-up columns": (
            times((1, m, k, n), array("left", m * k, dtype), transposed(columns, (n, k), (1, 0))),
        ),
        "a sum with looked-up rows": (bin_("add", product(*sizes, dtype), addends),),
    }
