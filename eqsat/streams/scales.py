"""Factors of whole rows and columns leave the inner products of a stream.

Where q and k are scaled by functions of their own rows, q_m = r_m a_m and k_n = c_n b_n, then

    q k^T = (a b^T)[m, n] r_m c_n

a and b are in memory, so the inner product can be made on the way, and r and c are statistics: RMSNorm of queries and
keys. The factors are multiplied in the type that they were computed in. The result has the type of the product again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce

from eqsat.base.graphs import operands_first
from eqsat.base.numerics import itemsize
from eqsat.layout.arithmetic import Layout, compose, strided
from eqsat.program.core import CAST, Node, make
from eqsat.program.node import substitute
from eqsat.streams.corrections import Rows, factored
from eqsat.streams.turned import moved_down, swapped


@dataclass(frozen=True, slots=True)
class _Scaled:
    """An operand as a product: `element`, and the values of `factor` that `at` names for each (b, m, n)."""

    element: Node
    factor: Node
    at: Layout


def scaled_last(outputs: Sequence[Node], inputs: Sequence[Node]) -> tuple[Node, ...]:
    """The outputs with factors of rows and columns taken out of inner products, where they depend on a reduction.

    An inner product is one that another product or a reduction needs.
    """
    nodes = operands_first(outputs, inputs)
    above = _above(nodes)
    heavy = [n for n in nodes if n.op in ("MM", "Red")]
    inner = operands_first([a for n in heavy for a in n.args], inputs)
    moved = {n: _moved(n, above) for n in inner if n.op == "MM" and above.intersection(n.args)}
    return tuple(substitute(outputs, moved)) if moved else tuple(outputs)


def _above(nodes: Sequence[Node]) -> frozenset[Node]:
    """The nodes that depend on a reduction, and the reductions; `nodes` come operands first."""
    reached: set[Node] = set()
    for node in nodes:
        if node.op == "Red" or any(a in reached for a in node.args):
            reached.add(node)
    return frozenset(reached)


def _moved(product: Node, above: Collection[Node]) -> Node:
    """The product with the factors of its operands behind it; as it is, where an operand is no such product."""
    left, right = product.args
    found = [
        None if left not in above else _rows_scaled(product, above),
        None if right not in above else _columns_scaled(product, above),
    ]
    if any(x is None and a in above for x, a in zip(found, product.args, strict=True)):
        return product
    elements = [a if x is None else x.element for x, a in zip(found, product.args, strict=True)]
    factors = [make("V", (x.at,), (_unrounded(x.factor),)) for x in found if x is not None]
    return _cast(reduce(_times, factors, make("MM", product.attrs, elements)), product.dtype)


def _times(a: Node, b: Node) -> Node:
    """The product of elements, in the wider type of the two."""
    wider = max((a.dtype, b.dtype), key=itemsize)
    return make("Bin", ("mul",), (_cast(a, wider), _cast(b, wider)))


def _cast(node: Node, dtype: str) -> Node:
    return node if node.dtype == dtype else make("Un", (f"{CAST}{dtype}",), (node,))


def _unrounded(factor: Node) -> Node:
    """A factor before it was cast to a narrower type."""
    narrowed = factor.op == "Un" and factor.attrs[0].startswith(CAST)
    return factor.args[0] if narrowed and itemsize(factor.args[0].dtype) > itemsize(factor.dtype) else factor


def _rows_scaled(product: Node, above: Collection[Node]) -> _Scaled | None:
    """The left operand, [b, m, d], with a factor of each row."""
    batch, m, depth, n = product.attrs
    element, factor = factored(product.args[0], Rows(batch * m, depth, above))
    if factor is None or element in above:
        return None
    return _Scaled(element, factor, strided(0, ((batch * m, 1), (n, 0))))


def _columns_scaled(product: Node, above: Collection[Node]) -> _Scaled | None:
    """The right operand, [b, d, n], with a factor of each column: a view of rows of d that have factors."""
    batch, m, depth, n = product.attrs
    (_, right) = product.args
    if right.op == "V":
        (layout,), (rows,) = right.attrs, right.args
    else:
        layout, rows = swapped(batch, n, depth), moved_down(right, swapped(batch, depth, n), above)
        above = {*above, *_above(operands_first([rows]))}
    if layout.masked or rows.size % depth:
        return None
    domain = Rows(rows.size // depth, depth, above)
    element, factor = factored(rows, domain)
    taken = compose(domain.spread, layout)
    if factor is None or element in above or taken is None:
        return None
    of_column = compose(taken, strided(0, ((batch, depth * n), (n, 1))))
    if of_column is None or compose(of_column, strided(0, ((batch, n), (depth, 0), (n, 1)))) != taken:
        return None
    at = compose(of_column, strided(0, ((batch, n), (m, 0), (n, 1))))
    return None if at is None else _Scaled(make("V", (layout,), (element,)), factor, at)
