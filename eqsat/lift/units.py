"""The units of lifting: groups of nodes that share one form, and the views between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from eqsat.base.graphs import operands_first
from eqsat.layout.arithmetic import Layout, identity
from eqsat.lift.forms import Form, Need, Way, whole
from eqsat.program import ops
from eqsat.program.core import CoreProgram
from eqsat.program.node import Node, is_elementwise
from eqsat.program.term import Shape, Term


@dataclass(eq=False)
class Unit:
    """Nodes that share one form: one node, or connected elementwise operators.

    Attributes:
        nodes: operands first.
        known: the source's term for the node, if the unit is a single node that the source has.
        forms: forms that neighbours suggest.
        ways: the ways to choose from; the needs of an elementwise unit are those of its operands, in order.
        chosen: the way taken; None until the first choice.
        operands: the nodes that are read from outside, with their positions in that order.
        readers: units that read this one, directly or through a view, and the operands by which they do.
        results: the needs of the program's outputs.
    """

    nodes: list[Node]
    known: Term | None = None
    forms: dict[Form, None] = field(default_factory=dict)
    ways: list[Way] = field(default_factory=list)
    chosen: Way | None = None
    operands: dict[Node, int] = field(default_factory=dict)
    readers: dict[Unit, list[Node]] = field(default_factory=dict)
    results: list[Need] = field(default_factory=list)

    @property
    def elementwise(self) -> bool:
        return self.known is None and is_elementwise(self.nodes[0].op)

    @property
    def size(self) -> int:
        return self.nodes[0].size

    def suggest(self, forms: Iterable[Form], limit: int) -> None:
        """Add forms, up to ``limit`` in all."""
        for form in forms:
            if len(self.forms) < limit:
                self.forms.setdefault(form)


class Units:
    """The nodes of a program to be lifted, operands first, and the unit of each.

    A Full has no unit: it takes whatever shape its reader wants. A view has none either, because readers look through
    it, unless the source has a term for it or it does not compose with the view that it reads.
    """

    def __init__(self, roots: Sequence[Node], shapes: Sequence[Shape], source: CoreProgram) -> None:
        self._source = source
        self.order = self._needed(roots)
        self.unit_of = self._grouped()
        self.units = list(dict.fromkeys(self.unit_of[node] for node in self.order if node in self.unit_of))
        self._reach: dict[Node, tuple[tuple[Node, Layout], ...]] = {}
        self._link(roots, shapes)

    def input(self, node: Node) -> Term:
        """The source's term for an input; a flat term if it has none."""
        name, size, dtype = node.attrs
        return self._source.source_term.get(node) or ops.input(name, (size,), dtype)

    def reach(self, node: Node) -> tuple[tuple[Node, Layout], ...]:
        """Each (base, layout) for which the node is V(base, layout) and base has a unit or is a Full."""
        found = self._reach.get(node)
        if found is None:
            found = self._reach[node] = tuple(self._ways_to(node))
        return found

    def _ways_to(self, node: Node) -> Iterator[tuple[Node, Layout]]:
        if node in self.unit_of or node.op == "Full":
            yield node, identity(node.size)
        if node.op == "V" and (node.args[0].op != "V" or node not in self.unit_of):
            yield node.args[0], node.attrs[0]

    def bases(self, node: Node) -> list[Unit]:
        """The units that a node is a view of."""
        return [self.unit_of[base] for base, _ in self.reach(node) if base in self.unit_of]

    def _known(self, node: Node) -> Term | None:
        if node.op == "In":
            return self.input(node)
        return None if node.op == "Full" else self._source.source_term.get(node)

    def _needed(self, roots: Iterable[Node]) -> list[Node]:
        """The nodes to lift. Nothing below a known node is needed, except below a known view: it may be read in another
        shape, and then its operand is the better start."""
        return operands_first(
            roots, operands=lambda node: node.args if node.op == "V" or self._known(node) is None else ()
        )

    def _grouped(self) -> dict[Node, Unit]:
        unit_of: dict[Node, Unit] = {}
        for node in self.order:
            known = self._known(node)
            if node.op == "Full" or (node.op == "V" and known is None and node.args[0].op != "V"):
                continue
            unit = Unit([node], known)
            if unit.elementwise:
                read = (unit_of[arg] for arg in node.args if arg in unit_of)
                for other in dict.fromkeys(each for each in read if each.elementwise):
                    other.nodes += unit.nodes
                    for moved in unit.nodes:
                        unit_of[moved] = other
                    unit = other
            unit_of[node] = unit
        return unit_of

    def _link(self, roots: Sequence[Node], shapes: Sequence[Shape]) -> None:
        for unit in self.units:
            if unit.known is None:
                args = (arg for node in unit.nodes for arg in node.args if self.unit_of.get(arg) is not unit)
                unit.operands = {arg: i for i, arg in enumerate(dict.fromkeys(args))}
                for arg in unit.operands:
                    for base in dict.fromkeys(self.bases(arg)):
                        base.readers.setdefault(unit, []).append(arg)
        for root, shape in zip(roots, shapes, strict=True):
            for base in self.bases(root):
                base.results.append(whole(root, shape))
