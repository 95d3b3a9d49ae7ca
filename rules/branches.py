"""Parallel convolutions of one image as one: a smaller window lies within a larger one.

A product reads its left operand by columns. Where the columns of one product are among those of another product of the
same array, it is that product with its weights spread over the rows of the other's, zero elsewhere. A scaled copy of
the array is such a product too, by a diagonal matrix. So 3x3 + 1x1 + identity (RepVGG) is one 3x3 convolution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from eqsat.egraph.host_terms import Term, Terms
from eqsat.egraph.snapshot import ENode
from eqsat.language.rule import HostRule
from eqsat.layout import arithmetic as lt
from eqsat.layout.arithmetic import Axis, Layout

Emit = Callable[[int, Term], None]


class _Branch(NamedTuple):
    """x[columns] @ weights, of [b, m, k] and [b, k, n], read through the view `order`: an addend."""

    x: int
    columns: Layout
    product: ENode
    order: Layout

    @property
    def weights(self) -> int:
        return self.product.args[1]

    @property
    def dims(self) -> tuple[int, int, int, int]:
        b, m, k, n = self.product.attrs
        return b, m, k, n


def _branches_into_one(graph: Terms, emit: Emit) -> None:
    """x[L] @ b + x[P] @ c + x * s + rest = x[P] @ (b[S] + c + diagonal(s)) + rest, at the top of each tree of
    additions."""
    for top in graph.sums():
        addends = list(dict.fromkeys(graph.addends(top)))
        for whole in addends:
            for branch in _products(graph, whole):
                _absorb(graph, emit, top, branch, [a for a in addends if a != whole])


def _absorb(graph: Terms, emit: Emit, top: int, wide: _Branch, others: list[int]) -> None:
    """State the sum with the addends that one product can take in."""
    weights: Term = wide.weights
    rest: list[int] = []
    for addend in others:
        spread = next(_spread(graph, wide, addend), None)
        if spread is None:
            rest.append(addend)
        else:
            weights = graph.make("Bin", ("add",), (weights, spread))
    if len(rest) < len(others):
        joined = graph.view(graph.product(wide.product.args[0], weights, *wide.dims), wide.order)
        for addend in rest:
            joined = graph.make("Bin", ("add",), (joined, addend))
        emit(top, joined)


def _products(graph: Terms, cls: int) -> Iterator[_Branch]:
    """The ways in which a class is a permuted product of an array, or a view of one, and constant weights."""
    identity = lt.identity(graph.size(cls))
    views = [(n.args[0], n.attrs[0]) for n in graph.of(cls, "V") if lt.is_bijective(n.attrs[0], graph.size(n.args[0]))]
    for inner, order in [(cls, identity), *views]:
        for product in graph.of(inner, "MM"):
            if graph.const(product.args[1]) and not graph.const(product.args[0]):
                left = product.args[0]
                yield _Branch(left, lt.identity(graph.size(left)), product, order)
                for view in graph.of(left, "V"):
                    yield _Branch(view.args[0], view.attrs[0], product, order)


def _spread(graph: Terms, wide: _Branch, addend: int) -> Iterator[Term]:
    """Weights [b, k, n] by which the wide product's left operand gives the addend."""
    b, m, k, n = wide.dims
    for narrow in _products(graph, addend):
        same = (narrow.x, narrow.order, narrow.dims[:2], narrow.dims[3]) == (wide.x, wide.order, (b, m), n)
        step = _step(wide, narrow.dims[2], narrow.columns) if same and narrow.dims[2] < k else None
        if step is not None:
            rows, every, first = narrow.dims[2], *step
            digits = ((b, rows * n), (rows, n), (every, 0), (n, 1))
            yield graph.view(narrow.weights, lt.masked(0, digits, [_only(first, 2, 4)], 0.0))
    back = lt.inverse(wide.order, b * m * n)
    assert back is not None, "orders are bijective"
    for scale in _scales(graph, wide.x, addend):
        step = _step(wide, n, back)
        column = None if step is None else _column(graph, scale, back, wide.dims)
        if step is not None and column is not None:
            every, first = step
            digits = ((b, n), (n, 0), (every, 0), (n, 1))
            diagonal = Axis(1, 0, 0, (0, 1, 0, -1))
            yield graph.view(column, lt.masked(0, digits, [_only(first, 2, 4), diagonal], 0.0))


def _step(wide: _Branch, count: int, columns: Layout) -> tuple[int, int] | None:
    """(step, first) if column i of `columns`, of [b, m, count], is column i * step + first of the wide operand."""
    b, m, k, _ = wide.dims
    if k % count or columns.size != b * m * count:
        return None
    step = k // count
    for first in range(step):
        chosen = lt.compose(wide.columns, lt.strided(first, ((b, m * k), (m, k), (count, step))))
        if chosen == columns:
            return step, first
    return None


def _only(value: int, digit: int, count: int) -> Axis:
    """The mask that a digit has this value."""
    return Axis(1, 0, -value, tuple(int(i == digit) for i in range(count)))


def _scales(graph: Terms, x: int, addend: int) -> Iterator[int]:
    """Constant s for which the addend is x * s."""
    for node in graph.of(addend, "Bin"):
        if node.attrs[0] == "mul":
            yield from (s for a, s in (node.args, node.args[::-1]) if a == x and graph.const(s))


def _column(graph: Terms, scale: int, back: Layout, dims: tuple[int, int, int, int]) -> Term | None:
    """A scale in the order of a product [b, m, n] as an array [b, n], if it is the same for all rows."""
    b, m, _, n = dims
    row, repeated = lt.strided(0, ((b, m * n), (n, 1))), lt.strided(0, ((b, m * n), (m, 0), (n, 1)))
    for node in graph.of(scale, "V"):
        ordered = lt.compose(node.attrs[0], back)
        if ordered is not None and lt.compose(ordered, repeated) == ordered:
            return graph.view(graph.view(node.args[0], ordered), row)
    return None


RULES: tuple[HostRule, ...] = (
    HostRule(
        "branches-into-one",
        "x[L] @ b + x[P] @ c + x * s => x[P] @ (b[S] + c + diagonal(s))",
        _branches_into_one,
        "reassociating",
        "Ding et al., RepVGG: Making VGG-style ConvNets Great Again (CVPR 2021)",
        "what parallel convolutions of one image add up to is one convolution with the largest window",
        guard_text="constant weights; the columns of L are columns of P at equal distances",
        phase="before-groups",
    ),
)
