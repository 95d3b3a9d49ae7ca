"""Streams written in columns: features first, w @ x, with softmaxes down the columns."""

from __future__ import annotations

from eqsat.gpu.families.base import Sizes
from eqsat.gpu.families.expressions import array, bin_, full, reduced, times, transposed, un, view
from eqsat.layout import arithmetic as lay
from eqsat.program.core import Node


def attention(sizes: Sizes, dtype: str = "float32", masked: bool = False, normed: bool = False) -> Node:
    """values[batch, n, k] @ softmax(keys[batch, n, k]^T @ q[batch, n, m], axis=1).

    Masked, no key is after its query; normed, queries and keys are divided by the roots of their mean squares.
    """
    batch, m, k, n = sizes
    q, keys = array("q", batch * n * m, dtype), array("keys", batch * n * k, dtype)
    if normed:
        q, keys = _normed(q, batch, n, m), _normed(keys, batch, n, k)
    scores = times((batch, k, n, m), transposed(keys, (batch, n, k), (0, 2, 1)), q)
    if masked:
        reach = lay.Axis(bound=k, stride=0, start=k - m, coeffs=(0, -1, 1))
        scores = view(lay.masked(0, ((batch, m * k), (k, m), (m, 1)), (reach,), float("-inf")), scores)
    return times((batch, n, k, m), array("values", batch * n * k, dtype), softmax(scores, batch, k, m))


def softmax(x: Node, batch: int, k: int, m: int) -> Node:
    """Down the columns of x[batch, k, m]."""
    e = un("exp", bin_("sub", x, _repeated(_down("max", x, batch, k, m), batch, k)))
    return bin_("div", e, _repeated(_down("sum", e, batch, k, m), batch, k))


def chain(sizes: Sizes, dtype: str = "float32") -> Node:
    """down[batch, n, k] @ tanh(up[batch, k, n] @ x[batch, n, m]) + x."""
    batch, m, k, n = sizes
    x, up = array("x", batch * n * m, dtype), array("up", batch * k * n, dtype)
    inner = un("tanh", times((batch, k, n, m), up, x))
    return bin_("add", times((batch, n, k, m), array("down", batch * n * k, dtype), inner), x)


def _normed(x: Node, batch: int, n: int, m: int) -> Node:
    total = _down("sum", bin_("mul", x, x), batch, n, m)
    factor = un("rsqrt", bin_("add", bin_("mul", total, full(1 / n, total)), full(1e-5, total)))
    return bin_("mul", x, _repeated(factor, batch, n))


def _down(f: str, x: Node, batch: int, k: int, m: int) -> Node:
    """Every column of x[batch, k, m] reduced."""
    return reduced(f, transposed(x, (batch, k, m), (0, 2, 1)), k)


def _repeated(column: Node, batch: int, k: int) -> Node:
    """One value for each column, k times down the column."""
    m = column.size // batch
    return view(lay.strided(0, ((batch, m), (k, 0), (m, 1))), column)
