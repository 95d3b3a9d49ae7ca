"""Products of a matrix and a vector as the sums of rows that they are.

    (a @ v)[b, m] = sum_k a[b, m, k] v[b, k]        (u @ c)[b, n] = sum_k c[b, k, n] u[b, k]

As a reduction they join what else is reduced along k: tiles of a product would be empty.
"""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.layout.arithmetic import Layout, strided
from eqsat.program.core import Node, make


def is_row_sum(dims: Sequence[int]) -> bool:
    """Whether a product of these dims (batch, m, k, n) has one row or one column in each matrix of the batch."""
    return 1 in (dims[1], dims[3])


def factors(dims: Sequence[int]) -> tuple[Layout, Layout]:
    """How such a product reads its operands for the elements [batch * m * n][k] that it sums."""
    batch, m, k, n = dims
    left = strided(0, ((batch, m * k), (m, k), (n, 0), (k, 1)))
    right = strided(0, ((batch, k * n), (m, 0), (n, 1), (k, n)))
    return left, right


def row_sum(dims: Sequence[int], operands: Sequence[Node]) -> Node:
    """Such a product of `operands`, as a reduction."""
    seen = [
        a if layout.is_identity(a.size) else make("V", (layout,), (a,))
        for a, layout in zip(operands, factors(dims), strict=True)
    ]
    return make("Red", ("sum", dims[2]), (make("Bin", ("mul",), seen),))
