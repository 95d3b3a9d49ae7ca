"""Single values of a program as NumPy-shaped terms, to show rewrite steps, near misses and forms.

A core node is flat and may be deep inside a program. Here it is lifted alone: chosen nodes below it become named
inputs, and shapes are those of the source wherever the source has a term for the value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import prod

from eqsat.base.graphs import operands_first
from eqsat.lift.lift import lift_nodes
from eqsat.program import ops
from eqsat.program.core import CoreProgram, Node, make, topological
from eqsat.program.core_table import CORE, without_batch
from eqsat.program.evaluation import OpaqueCall
from eqsat.program.node import substitute
from eqsat.program.term import Shape, Term


class Shaper:
    """Writes core nodes of one program as terms.

    Attributes:
        known: node to the source's term for it.
    """

    def __init__(self, known: Mapping[Node, Term]) -> None:
        self.known = known
        self._shapes: dict[Node, Shape] = {}

    @cached_property
    def _opaque(self) -> dict[str, OpaqueCall]:
        """The program's opaque operators: a step may show one with an operand that the program does not have."""
        found: dict[str, OpaqueCall] = {}
        for node, term in self.known.items():
            if node.op == "Opaque":
                key, index = node.attrs[:2]
                found.setdefault(key, OpaqueCall(term)).results.setdefault(index, term)
        return found

    def shape(self, node: Node) -> Shape:
        """The shape in which to show a value: the source's shape, or else one that its operator suggests."""
        for below in operands_first([node], self._shapes):
            if below not in self._shapes:
                term = self.known.get(below)
                self._shapes[below] = term.shape if term is not None else self._natural(below)
        return self._shapes[node]

    def share_shape(self, before: Node, after: Node) -> Shape:
        """Give two nodes of equal value the same shape, the source's if it has one, and return it."""
        source = next((n for n in (before, after) if n in self.known), None)
        found = self.shape(source if source is not None else before)
        self._shapes[before] = self._shapes[after] = found
        return found

    def terms(self, nodes: Sequence[Node], cut: Sequence[Node] = ()) -> list[Term]:
        """The terms of nodes of one shape; nodes in `cut` become inputs, their `stand_ins`."""
        shape = self.shape(nodes[0])
        inputs = self.stand_ins(cut)
        leaves = {n: make("In", (term.attr("name"), n.size, n.dtype)) for n, term in inputs.items()}
        stand_ins = {leaf: inputs[n] for n, leaf in leaves.items()}
        roots = tuple(substitute(nodes, leaves))
        unknown = [n for n in topological(roots) if n.op == "Const" and n not in self.known]
        stand_ins |= {n: ops.input(f"constant {n.attrs[0][:6]}", self.shape(n), n.dtype) for n in unknown}
        source = CoreProgram((), (), (), (), {}, self._opaque, {**self.known, **stand_ins})
        return lift_nodes(roots, (shape,) * len(roots), source)

    def stand_ins(self, cut: Sequence[Node]) -> dict[Node, Term]:
        """The inputs that replace the nodes that are cut off."""
        return {n: ops.input(f"<cut {i}>", self.shape(n), n.dtype) for i, n in enumerate(cut)}

    def _natural(self, node: Node) -> Shape:
        """The shape that the operator suggests, given those of its operands."""
        operands = [self._shapes[a] for a in node.args]
        row = CORE[node.op]
        if row.elementwise:
            return max(operands, key=len)
        sizes = row.signature.result.sizes
        if len(sizes) > 1 and row.free.isdisjoint(sizes):
            return without_batch(tuple(node.attrs[row.place[name]] for name in sizes))
        match node.op:
            case "Red":
                return _reduced(operands[0], node.attrs[1]) or (node.size,)
            case "V":
                layout = node.attrs[0]
                whole = operands[0]
                if layout.contiguous and whole and layout.size == prod(whole[1:]):
                    return whole[1:]
                return tuple(n for n, _ in layout.dims) or (node.size,)
            case "Cat":
                return _joined(operands) or (node.size,)
            case "Opaque":
                return self._opaque[node.attrs[0]].results[node.attrs[1]].shape
        return (node.size,)


def _reduced(shape: Shape, count: int) -> Shape | None:
    """The shape without the trailing dims that hold `count` elements."""
    for i in range(len(shape), -1, -1):
        if prod(shape[i:]) == count:
            return shape[:i]
    return None


def _joined(shapes: Sequence[Shape]) -> Shape | None:
    """The joint shape: equal shapes are stacked, shapes that differ in their first dim are concatenated."""
    if len(set(shapes)) == 1:
        return (len(shapes), *shapes[0])
    if all(shapes) and len({s[1:] for s in shapes}) == 1:
        return (sum(s[0] for s in shapes), *shapes[0][1:])
    return None
