"""Products taken apart, where each part is a convolution and the whole would be a gather.

Batching joins the windows of several arrays, or of every other block of one, into one operand. So does a sum of
convolutions that became one product of more terms. A kernel reads windows where they are. Written as an operator, such
an operand is a gather by an index for each tap of each window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import accumulate

from eqsat.layout.arithmetic import Layout, compose, of_transpose, strided
from eqsat.lift.view_chain import MOST_BLOCKS, unfolds
from eqsat.lift.windows import reads_windows
from eqsat.program.node import Node, make

BATCH, TERMS = 0, 2
"""The dims along which a product a[B, M, K] @ b[B, K, N] is taken apart, by their places in (B, M, K, N)."""


def product_apart(product: Node, view: Callable[[Node, Layout], Node], exact: bool) -> Node | None:
    """A product as a concatenation of products of parts of the batch, or as a sum of products of some terms each, where
    that alone spares a gather; None for any other. `view` makes a view of a node. `exact` sums stay whole, as they are
    rounded otherwise in parts."""
    for side in (0, 1):
        if gathers(product, side):
            for along in (BATCH,) if exact else (BATCH, TERMS):
                parts = list(_parts(product, side, along, view))
                if len(parts) > 1 and not any(gathers(part, side) for part in parts):
                    return make("Cat", (), parts) if along == BATCH else reduce(_sum, parts)
    return None


def _sum(a: Node, b: Node) -> Node:
    return make("Bin", ("add",), (a, b))


def gathers(product: Node, side: int) -> bool:
    """Whether an operand of a product would be written as a gather, or holds one."""
    operand = product.args[side]
    if any(map(unfolded, _joined(operand))):
        return True
    if not unfolded(operand):
        return False
    batch, m, k, n = product.attrs
    (layout,), (source,) = operand.attrs, operand.args
    rows_first = layout if side == 0 else compose(layout, of_transpose((batch, k, n), (0, 2, 1)))
    return rows_first is None or not reads_windows(rows_first, source.size, (batch, n if side else m, k))


def unfolded(node: Node) -> bool:
    """Whether a node is a view that no chain of plain views reads, as windows are."""
    return node.op == "V" and unfolds(node.attrs[0], node.args[0].size)


def _joined(operand: Node) -> Sequence[Node]:
    """What a concatenation joins that is an operand, or that it is a view of."""
    whole = operand.args[0] if operand.op == "V" else operand
    return whole.args if whole.op == "Cat" and whole.size == operand.size else ()


def _parts(product: Node, side: int, along: int, view: Callable[[Node, Layout], Node]) -> Iterator[Node]:
    """The products of the parts of an operand: the arrays that it joins, or the outermost blocks of a view."""
    operand, dims = product.args[side], product.attrs
    sizes = [x.size for x in _joined(operand)]
    if not sizes and operand.op == "V" and operand.attrs[0].dims[0][0] <= MOST_BLOCKS:
        sizes = [operand.size // operand.attrs[0].dims[0][0]] * operand.attrs[0].dims[0][0]
    unit = operand.size // dims[along]
    if (along == TERMS and dims[BATCH] > 1) or any(size % unit for size in sizes):
        return
    counts = [size // unit for size in sizes]
    for end, count in zip(accumulate(counts), counts, strict=True):
        part = tuple(count if i == along else n for i, n in enumerate(dims))
        layouts = (_of_part(dims, i, along, end - count, count) for i in (0, 1))
        yield make("MM", part, [view(x, layout) for x, layout in zip(product.args, layouts, strict=True)])


def _of_part(dims: Sequence[int], side: int, along: int, start: int, count: int) -> Layout:
    """The part of an operand that a part of a product reads."""
    _, m, k, n = dims
    if along == TERMS and side == 0:
        return strided(start, ((m, k), (count, 1)))
    unit = n if along == TERMS else (m * k, k * n)[side]
    return strided(start * unit, ((count * unit, 1),))
