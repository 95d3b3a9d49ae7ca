"""Lifting: from core nodes back to readable NumPy-shaped terms.

Nodes are flat; terms have shapes. A node that the source has a term for becomes that same term. Any other node can be
written in many ways: a product as (M, N), (B, M, N), transposed, or as a convolution; an elementwise operator in any
shape. Every view between nodes becomes a chain of reshapes, transposes, slices and broadcasts
(`eqsat.lift.view_chain`). `eqsat.lift.choice` chooses the ways so that these chains are short; this module builds the
terms.

Connected elementwise operators share one form (`eqsat.lift.units`), so that no reshape ever stands between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from eqsat.base.numerics import Array
from eqsat.layout.arithmetic import Axis, Layout, compose, identity, inverse
from eqsat.lift.choice import Choice, route
from eqsat.lift.forms import Need, whole
from eqsat.lift.tidy import Tidied, tidied
from eqsat.lift.units import Unit, Units
from eqsat.lift.view_chain import Steps, apply, chain
from eqsat.program import ops
from eqsat.program.core import CoreProgram
from eqsat.program.core_table import CAST
from eqsat.program.ir import Program
from eqsat.program.node import Node
from eqsat.program.term import Shape, Term


def lift(after: CoreProgram, source: CoreProgram, exact: bool = False) -> Program:
    """The program over shaped terms that computes ``after``, which was rewritten from ``source``.

    Its inputs are those of the source; its outputs have the names and shapes of ``after``. Nodes that the source has a
    term for become that term. With `exact`, sums are in the order of ``after``.

    Raises:
        InputError: a result of an opaque operator that the source does not have.
    """
    short = tidied(after.roots, after.constants, source.source_term, exact)
    writing, outputs = _lifted(short.roots, after.root_shapes, short.constants, source)
    named = zip(after.root_names, outputs, strict=True)
    return Program(tuple(writing.units.input(node) for node in after.inputs), dict(named))


def lift_tidied(
    short: Tidied, shapes: Sequence[Shape], source: CoreProgram, inside: Sequence[Need] = ()
) -> tuple[list[Term], list[Term | None]]:
    """The terms of tidied roots in these shapes, and terms for needs of nodes below them, which change nothing about
    the roots' terms; None where a node is not held by any of them."""
    writing, outputs = _lifted(short.roots, shapes, short.constants, source)
    return outputs, [writing.routed(need) if writing.holds(need.node) else None for need in inside]


def lift_nodes(nodes: Sequence[Node], shapes: Sequence[Shape], source: CoreProgram) -> list[Term]:
    """The terms of nodes in these shapes, without tidying; constants must be those of ``source``."""
    return _lifted(nodes, shapes, source.constants, source)[1]


def _lifted(
    roots: Sequence[Node], shapes: Sequence[Shape], constants: Mapping[str, Array], source: CoreProgram
) -> tuple[_Writing, list[Term]]:
    units = Units(roots, shapes, source)
    Choice(units, source).make()
    writing = _Writing(constants, units)
    return writing, [writing.routed(whole(root, shape)) for root, shape in zip(roots, shapes, strict=True)]


class _Writing:
    """Builds the term of every node that has a unit, operands first."""

    def __init__(self, constants: Mapping[str, Array], units: Units) -> None:
        self.constants, self.units = constants, units
        self.terms: dict[Node, Term] = {}
        for node in units.order:
            if node in units.unit_of:
                self.terms[node] = self._written(node, units.unit_of[node])

    def _written(self, node: Node, unit: Unit) -> Term:
        if unit.known is not None:
            return unit.known
        way = unit.chosen
        assert way is not None
        if node.op == "Const":
            return ops.constant(self.constants[node.attrs[0]].reshape(way.form.shape))
        if not unit.elementwise:
            return way.build([self.routed(need) for need in way.needs])
        order = inverse(way.form.order, node.size)
        assert order is not None
        inside = self.units.unit_of
        return _applied(
            node,
            [
                self.terms[a] if inside.get(a) is unit else self.routed(Need(a, order, way.form.shape))
                for a in node.args
            ],
        )

    def holds(self, node: Node) -> bool:
        """Whether the terms hold a node, or what it is a view of."""
        return all(base in self.terms for base, _ in self.units.reach(node)) and bool(self.units.reach(node))

    def routed(self, need: Need) -> Term:
        """The term that serves a need, by the cheapest moves."""
        cheapest: float = inf
        found: tuple[Term, Steps] | None = None
        for base, layout in self.units.reach(need.node):
            if base.op == "Full":
                return _full(base, layout, need)
            way = self.units.unit_of[base].chosen
            assert way is not None
            steps, moves = route(layout, need, way.form)
            if moves < cheapest:
                cheapest, found = moves, (self.terms[base], steps)
        assert found is not None, f"nothing serves {need}"
        return apply(*found)


def _applied(node: Node, args: list[Term]) -> Term:
    if node.op == "Where":
        return ops.where(*args)
    (name,) = node.attrs
    if name.startswith(CAST):
        return ops.cast(args[0], name.removeprefix(CAST))
    return ops.elementwise(name, *args)


def _full(node: Node, layout: Layout, need: Need) -> Term:
    """A view of one repeated value: the value is broadcast, and padded where a mask fills."""
    value, _, dtype = node.attrs
    total = compose(layout, need.layout)
    if total is None:
        flat = (layout.size,)
        return apply(_full(node, layout, Need(node, identity(layout.size), flat)), chain(need.layout, flat, need.shape))
    scalar = ops.full(value, (), dtype)
    if not total.masked:
        return ops.broadcast(scalar, need.shape)
    dims = [(size, 0) for size, _ in total.dims]
    axes = [Axis(axis.bound, 0, axis.start, axis.coeffs) for axis in total.axes]
    return apply(scalar, chain(Layout(0, tuple(dims), tuple(axes), total.fill), (), need.shape))
