"""Examples of streams: attention, norms before products, gated and chained products, in batches of every size."""

from __future__ import annotations

from math import sqrt

from eqsat.gpu.families.base import Sizes
from eqsat.gpu.families.expressions import (
    along_columns,
    along_rows,
    array,
    bin_,
    full,
    reduced,
    times,
    transposed,
    un,
    view,
)
from eqsat.layout import arithmetic as lay
from eqsat.program.core import Node


def examples(sizes: Sizes, dtype: str) -> dict[str, tuple[Node, ...]]:
    """Outputs by name, of products [batch, m, k] @ [batch, k, n]."""
    batch, m, k, n = sizes
    x = array("x", batch * m * k, dtype)
    normed = rms_normed(x, k)
    return {
        "attention": (attention(sizes, dtype),),
        "a product and one of low rank": (low_rank(sizes, x),),
        "a product of normed rows": (times(sizes, normed, array("w", batch * k * n, dtype)),),
        "a gated product": (gated(sizes, x),),
        "a product of rows less their mean": (times(sizes, layer_normed(x, k), array("w", batch * k * n, dtype)),),
        "a chain of two products": (_chain(sizes, dtype),),
        "masked attention": (_attention_of(sizes, _masked(sizes, dtype)),),
        "attention of normed queries and keys": (_attention_of(sizes, normed_scores(sizes, dtype)),),
    }


def rms_normed(x: Node, columns: int) -> Node:
    """Every row of x[.., columns] over the root of its mean square."""
    return bin_("mul", x, along_columns(_rms(x, columns), columns))


def _rms(x: Node, columns: int) -> Node:
    """The reciprocal root of the mean square of every row of x[.., columns]."""
    total = reduced("sum", bin_("mul", x, x), columns)
    return un("rsqrt", bin_("add", bin_("mul", total, full(1 / columns, total)), full(1e-5, total)))


def layer_normed(x: Node, columns: int) -> Node:
    """Every row of x[.., columns] less its mean, over its deviation, times gain[columns] plus bias[columns]."""
    total = reduced("sum", x, columns)
    centred = bin_("sub", x, along_columns(bin_("mul", total, full(1 / columns, total)), columns))
    variance = bin_("mul", reduced("sum", bin_("mul", centred, centred), columns), full(1 / columns, total))
    unit = bin_("mul", centred, along_columns(un("rsqrt", bin_("add", variance, full(1e-5, total))), columns))
    gain, bias = (along_rows(array(name, columns, x.dtype), total.size) for name in ("gain", "bias"))
    return bin_("add", bin_("mul", unit, gain), bias)


def gated(sizes: Sizes, x: Node) -> Node:
    """sigmoid(x @ w) * (x @ v)."""
    batch, _, k, n = sizes
    w, v = (array(name, batch * k * n, x.dtype) for name in ("w", "v"))
    return bin_("mul", un("sigmoid", times(sizes, x, w)), times(sizes, x, v))


def attention(sizes: Sizes, dtype: str) -> Node:
    """softmax(q[batch, m, n] @ keys[batch, k, n]^T / sqrt(n)) @ values[batch, k, n]."""
    return _attention_of(sizes, scores(sizes, dtype))


def scores(sizes: Sizes, dtype: str) -> Node:
    """q[batch, m, n] @ keys[batch, k, n]^T / sqrt(n)."""
    batch, m, k, n = sizes
    q, keys = array("q", batch * m * n, dtype), array("keys", batch * k * n, dtype)
    product = times((batch, m, n, k), q, transposed(keys, (batch, k, n), (0, 2, 1)))
    return bin_("mul", product, full(1 / sqrt(n), product))


def normed_scores(sizes: Sizes, dtype: str) -> Node:
    """The scores of queries and keys over the roots of their mean squares, which leave the inner product."""
    batch, m, k, n = sizes
    s = scores(sizes, dtype)
    q, keys = array("q", batch * m * n, dtype), array("keys", batch * k * n, dtype)
    of_keys = lay.strided(0, ((batch, k), (m, 0), (k, 1)))
    s = bin_("mul", s, along_columns(_rms(q, n), k))
    return bin_("mul", s, view(of_keys, _rms(keys, n)))


def _attention_of(sizes: Sizes, logits: Node) -> Node:
    batch, _, k, n = sizes
    return times(sizes, softmax_of(logits, k), array("values", batch * k * n, logits.dtype))


def softmax_of(logits: Node, columns: int) -> Node:
    """The softmax of every row of logits[.., columns]."""
    e = un("exp", bin_("sub", logits, along_columns(reduced("max", logits, columns), columns)))
    return bin_("div", e, along_columns(reduced("sum", e, columns), columns))


def _masked(sizes: Sizes, dtype: str) -> Node:
    """Scores, and -inf where a key is after its query: a mask that is the layout's."""
    batch, m, k, _ = sizes
    s = scores(sizes, dtype)
    reach = lay.Axis(bound=k, stride=0, start=k - m, coeffs=(0, 1, -1))
    return view(lay.masked(0, ((batch, m * k), (m, k), (k, 1)), (reach,), float("-inf")), s)


def low_rank(sizes: Sizes, x: Node, rank: int = 16) -> Node:
    """x @ w[batch, k, n] + tanh(x @ a[batch, k, rank]) @ b[batch, rank, n]."""
    batch, m, k, n = sizes
    w, a, b = (array(name, batch * size, x.dtype) for name, size in (("w", k * n), ("a", k * rank), ("b", rank * n)))
    low = un("tanh", times((batch, m, k, rank), x, a))
    return bin_("add", times(sizes, x, w), times((batch, m, rank, n), low, b))


def _chain(sizes: Sizes, dtype: str) -> Node:
    """tanh(a[batch, m, n] @ up[batch, n, k]) @ down[batch, k, n] + a, written with m and n swapped."""
    batch, m, k, n = sizes
    a, up, down = (
        array("a", batch * m * n, dtype),
        array("up", batch * n * k, dtype),
        array("down", batch * k * n, dtype),
    )
    inner = un("tanh", times((batch, m, n, k), a, up))
    return transposed(bin_("add", times(sizes, inner, down), a), (batch, m, n), (0, 2, 1))
