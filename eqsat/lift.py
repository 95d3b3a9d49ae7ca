"""From core nodes back to terms that read well: `lift`.

Nodes are flat; terms have shapes. Where the source has a term for a node, that very term comes back. Any other node
may be written in many ways (a product as (M, N), (B, M, N), transposed, or as a convolution), elementwise operators
in any shape, and every view between them is a chain of reshapes, transposes, slices and broadcasts
(`eqsat.view_chain`). Lifting chooses the ways so that the chains are short:

1. Candidates flow from operands to readers and back, so that each node sees the shapes of its neighbourhood.
2. Nodes choose, operands first, then again while a choice gets better given the others.

Elementwise operators that read one another are one *unit* with one form: no reshape ever stands between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import inf

import numpy as np

from eqsat import ops
from eqsat.core import CAST, CoreProgram, Node
from eqsat.errors import InputError
from eqsat.ir import Program, Shape, Term, make
from eqsat.layout import Axis, Layout, compose, identity, inverse
from eqsat.lift_forms import Form, Need, Way, plain, pulled, pushed, undone, whole
from eqsat.lift_ops import Hints, ways
from eqsat.numerics import Array
from eqsat.view_chain import Steps, apply, chain, cost, through

_ELEMENTWISE = frozenset({"Un", "Bin", "Where"})
_FORWARD_FORMS, _MAX_FORMS = 8, 14
"""Candidate forms kept per unit, from its operands and in all; neighbours rarely suggest more than four."""
_MAX_SWEEPS = 8
_CONSTANT_MOVES = 0.5
"""Moving a constant costs less than moving what is computed: it can be done ahead of time."""


def lift(after: CoreProgram, source: CoreProgram) -> Program:
    """The program over shaped terms that computes ``after``, which was rewritten from ``source``.

    Its inputs are the source's; outputs have the names and shapes of ``after``. Nodes that the source has a term for
    come back as that term.

    Raises:
        InputError: a result of an opaque operator that the source does not have.
    """
    return _Lifting(after, source).program()


@dataclass(eq=False)
class _Unit:
    """Nodes that share one form: one node, or elementwise operators that read one another.

    Attributes:
        nodes: operands first.
        known: the term that the source has for the one node.
        forms: what the neighbourhood suggests.
        ways: what to choose from; the needs of an elementwise unit are those of all its nodes.
        chosen: index of a way; None until the first choice.
        readers: units that read this one, directly or through a view.
        results: what the program's outputs need.
    """

    nodes: list[Node]
    known: Term | None = None
    forms: dict[Form, None] = field(default_factory=dict)
    ways: list[Way] = field(default_factory=list)
    chosen: int | None = None
    readers: dict[_Unit, None] = field(default_factory=dict)
    results: list[Need] = field(default_factory=list)

    @property
    def elementwise(self) -> bool:
        return self.known is None and self.nodes[0].op in _ELEMENTWISE

    @property
    def form(self) -> Form | None:
        return None if self.chosen is None else self.ways[self.chosen].form

    def suggest(self, forms: Iterable[Form], limit: int) -> None:
        for form in forms:
            if len(self.forms) < limit:
                self.forms.setdefault(form)


class _Lifting:
    def __init__(self, after: CoreProgram, source: CoreProgram) -> None:
        self.after, self.source = after, source
        self.order = self._needed()
        self.unit_of = self._grouped()
        self.units = list(dict.fromkeys(self.unit_of[node] for node in self.order if node in self.unit_of))
        self.terms: dict[Node, Term] = {}

    def program(self) -> Program:
        self._link()
        self._suggest_from_operands()
        self._suggest_from_readers()
        self._choose()
        for node in self.order:
            if node in self.unit_of:
                self.terms[node] = self._written(node, self.unit_of[node])
        outputs = {
            name: self._routed(whole(root, shape))
            for name, root, shape in zip(self.after.root_names, self.after.roots, self.after.root_shapes, strict=True)
        }
        return Program(tuple(self._input(node) for node in self.after.inputs), outputs)

    # Units

    def _input(self, node: Node) -> Term:
        name, size, dtype = node.attrs
        return self.source.source_term.get(node) or ops.input(name, (size,), dtype)

    def _known(self, node: Node) -> Term | None:
        """The source's term for a node. Full is free: it has whatever shape its reader wants."""
        if node.op == "In":
            return self._input(node)
        return None if node.op == "Full" else self.source.source_term.get(node)

    def _needed(self) -> list[Node]:
        """The nodes to be written, operands first. Below a known node nothing is needed, but a known view may be
        read in another shape, and then what it views is the better start."""
        order: dict[Node, None] = {}
        entered: set[Node] = set()
        stack = [(root, False) for root in reversed(self.after.roots)]
        while stack:
            node, ready = stack.pop()
            if ready:
                order[node] = None
            elif node not in entered:
                entered.add(node)
                stack.append((node, True))
                if node.op == "V" or self._known(node) is None:
                    stack.extend((arg, False) for arg in reversed(node.args))
        return list(order)

    def _grouped(self) -> dict[Node, _Unit]:
        """The unit of each node. A view has none unless it is known or does not compose: readers reach through it."""
        unit_of: dict[Node, _Unit] = {}
        for node in self.order:
            known = self._known(node)
            if node.op == "Full" or (node.op == "V" and known is None and node.args[0].op != "V"):
                continue
            unit = _Unit([node], known)
            if unit.elementwise:
                read = (unit_of[arg] for arg in node.args if arg in unit_of)
                for other in dict.fromkeys(each for each in read if each.elementwise):
                    other.nodes += unit.nodes
                    for moved in unit.nodes:
                        unit_of[moved] = other
                    unit = other
            unit_of[node] = unit
        return unit_of

    def _reach(self, node: Node) -> Iterator[tuple[Node, Layout]]:
        """(base, layout): ways to say the node as V(base, layout), where base has a unit or is Full."""
        if node in self.unit_of or node.op == "Full":
            yield node, identity(node.size)
        if node.op == "V" and (node.args[0].op != "V" or node not in self.unit_of):
            yield node.args[0], node.attrs[0]

    def _link(self) -> None:
        for unit in self.units:
            if unit.known is not None:
                continue
            for node in unit.nodes:
                for arg in node.args:
                    for base, _ in self._reach(arg):
                        if base in self.unit_of:
                            self.unit_of[base].readers.setdefault(unit)
        for root, shape in zip(self.after.roots, self.after.root_shapes, strict=True):
            for base, _ in self._reach(root):
                if base in self.unit_of:
                    self.unit_of[base].results.append(whole(root, shape))

    # Candidates

    def _suggest_from_operands(self) -> None:
        for unit in self.units:
            if unit.known is not None:
                form = plain(unit.known.shape)
                unit.suggest([form], 1)
                unit.ways = [Way(form, (), 0.0, _nothing)]
            elif unit.elementwise:
                for node in unit.nodes:
                    for arg in node.args:
                        unit.suggest(self._forms_through(arg), _FORWARD_FORMS)
            elif unit.nodes[0].args:
                unit.suggest((way.form for way in self._ways(unit)), _FORWARD_FORMS)

    def _forms_through(self, arg: Node) -> Iterator[Form]:
        for base, layout in self._reach(arg):
            for form in self.unit_of[base].forms if base in self.unit_of else ():
                yield from pushed(form, layout)

    def _suggest_from_readers(self) -> None:
        for unit in reversed(self.units):
            for need in unit.results:
                self._suggest_for(need, unit)
            if unit.known is None:
                unit.ways = self._ways(unit)
                for way in unit.ways:
                    for need in way.needs:
                        for base, _ in self._reach(need.node):
                            if base in self.unit_of:
                                self._suggest_for(need, self.unit_of[base])

    def _suggest_for(self, need: Need, unit: _Unit) -> None:
        """Suggest to a unit the forms in which it would serve the need at once."""
        if unit.known is not None:
            return
        for base, layout in self._reach(need.node):
            if self.unit_of.get(base) is not unit:
                continue
            total = compose(layout, need.layout)
            if total is None:
                continue
            forms = pulled(total, base.size, need.shape)
            if base.op == "Const":
                # Constants have no leading dims of size 1: a broadcast adds them.
                forms = (*(plain(_without_leading_units(f.shape)) for f in forms if len(need.shape) > 1), *forms)
            unit.suggest(forms, _MAX_FORMS)
            if unit.elementwise:
                turned = undone(total, base.size, need.shape)
                unit.suggest([turned] if turned is not None else [], _MAX_FORMS)

    def _ways(self, unit: _Unit) -> list[Way]:
        node = unit.nodes[0]
        if unit.elementwise:
            return self._elementwise_ways(unit)
        if node.op == "Const":
            forms = [form for form in unit.forms if form.direct] or [plain((node.size,))]
            return [Way(form, (), 0.0, _nothing) for form in forms]
        if node.op == "Opaque":
            return [self._opaque_way(node)]
        return ways(node, self._hints(unit))

    def _elementwise_ways(self, unit: _Unit) -> list[Way]:
        forms = list(unit.forms) or [plain((unit.nodes[0].size,))]
        if not any(form.direct for form in forms):
            forms.append(plain((unit.nodes[0].size,)))
        outside = list(dict.fromkeys(a for node in unit.nodes for a in node.args if self.unit_of.get(a) is not unit))
        found = []
        for form in forms:
            order = inverse(form.order, form.order.size)
            if order is not None:
                needs = tuple(Need(arg, order, form.shape) for arg in outside)
                found.append(Way(form, needs, 0.0 if form.direct else 0.01, _nothing))
        return found

    def _hints(self, unit: _Unit) -> Hints:
        (node,) = unit.nodes
        operands: list[list[Shape]] = []
        bases: list[list[tuple[Node, Layout, Form]]] = []
        for arg in node.args:
            operands.append(list(dict.fromkeys(form.shape for form in self._forms_through(arg))))
            found = []
            for base, layout in self._reach(arg):
                forms = self.unit_of[base].forms if base in self.unit_of else ()
                found += [(base, layout, form) for form in forms or [plain((base.size,))]]
            bases.append(found)
        views = [n.attrs[0] for n in self.order if n.op == "V" and n.args[0] is node] if node.op == "Cat" else []
        return Hints(operands, bases, [form.shape for form in unit.forms], views)

    def _opaque_way(self, node: Node) -> Way:
        term = next((t for n, t in self.source.source_term.items() if n.op == "Opaque" and n.attrs == node.attrs), None)
        if term is None:
            call = self.source.opaque[node.attrs[0]].term
            raise InputError(f"result {node.attrs[1]} of the opaque operator {call.attr('name')!r} has no source term")
        needs = tuple(whole(arg, of.shape) for arg, of in zip(node.args, term.args, strict=True))
        return Way(plain(term.shape), needs, 0.0, lambda args: make("opaque", *args, **dict(term.attrs)))

    # Choice

    def _choose(self) -> None:
        for unit in self.units:
            unit.chosen = self._best(unit)
        for sweep in range(_MAX_SWEEPS):
            changed = False
            for unit in self.units if sweep % 2 else reversed(self.units):
                best = self._best(unit)
                changed |= best != unit.chosen
                unit.chosen = best
            if not changed:
                return

    def _best(self, unit: _Unit) -> int:
        if len(unit.ways) == 1:
            return 0
        costs = [self._cost(unit, way) for way in unit.ways]
        return costs.index(min(costs))

    def _cost(self, unit: _Unit, way: Way) -> float:
        """What a way costs in moves, of its operands and of what its chosen readers need of it."""
        total = way.cost + sum(self._need_cost(need, unit, way.form) for need in way.needs)
        total += sum(self._need_cost(need, unit, way.form) for need in unit.results)
        for reader in unit.readers:
            if reader is not unit:
                open_ways = reader.ways if reader.chosen is None else [reader.ways[reader.chosen]]
                total += min(self._reading_cost(each, unit, way.form) for each in open_ways)
        return total

    def _reading_cost(self, reading: Way, unit: _Unit, form: Form) -> float:
        """What a reader's way costs in moves of this unit, if the unit had this form."""
        needs = (
            need for need in reading.needs if any(self.unit_of.get(base) is unit for base, _ in self._reach(need.node))
        )
        return sum(self._need_cost(need, unit, form) for need in needs)

    def _need_cost(self, need: Need, unit: _Unit, form: Form) -> float:
        """The cheapest moves that serve the need if ``unit`` had this form and undecided units their best one."""
        best = inf
        for base, layout in self._reach(need.node):
            if base.op == "Full":
                return 0.0
            owner = self.unit_of[base]
            if owner is unit:
                held = [form]
            else:
                held = [way.form for way in owner.ways] if owner.form is None else [owner.form]
            for each in held:
                steps = _route(layout, need, each)
                if steps is not None:
                    moves = cost(steps)
                    best = min(best, moves * _CONSTANT_MOVES if base.op == "Const" else moves)
        return best

    # Terms

    def _written(self, node: Node, unit: _Unit) -> Term:
        if unit.known is not None:
            return unit.known
        assert unit.chosen is not None
        way = unit.ways[unit.chosen]
        if node.op == "Const":
            values: Array = np.asarray(self.after.constants[node.attrs[0]])
            return ops.constant(values.reshape(way.form.shape))
        if not unit.elementwise:
            return way.build([self._routed(need) for need in way.needs])
        order = inverse(way.form.order, node.size)
        assert order is not None
        return _applied(node, [self._operand(arg, unit, order, way.form.shape) for arg in node.args])

    def _operand(self, arg: Node, unit: _Unit, order: Layout, shape: Shape) -> Term:
        if self.unit_of.get(arg) is unit:
            return self.terms[arg]
        return self._routed(Need(arg, order, shape))

    def _routed(self, need: Need) -> Term:
        """The term that serves a need, by the cheapest moves."""
        best: tuple[float, Term, Steps] | None = None
        for base, layout in self._reach(need.node):
            if base.op == "Full":
                return _full(base, layout, need)
            form = self.unit_of[base].form
            steps = None if form is None else _route(layout, need, form)
            if steps is not None and (best is None or cost(steps) < best[0]):
                best = cost(steps), self.terms[base], steps
        assert best is not None, f"no route to {need}"
        return apply(best[1], best[2])


def _nothing(args: object) -> Term:
    raise AssertionError("this way is written by its unit")


def _route(layout: Layout, need: Need, form: Form) -> Steps | None:
    """The moves from a term that holds a base in ``form`` to V(V(base, layout), need.layout); None if that declines."""
    total = compose(layout, need.layout)
    return None if total is None else through(form.order, total, form.shape, need.shape)


def _without_leading_units(shape: Shape) -> Shape:
    lead = next((i for i, n in enumerate(shape) if n != 1), len(shape))
    return shape[lead:]


def _applied(node: Node, args: list[Term]) -> Term:
    if node.op == "Where":
        return ops.where(*args)
    (name,) = node.attrs
    if name.startswith(CAST):
        return ops.cast(args[0], name.removeprefix(CAST))
    return ops.elementwise(name, *args)


def _full(node: Node, layout: Layout, need: Need) -> Term:
    """A view of one repeated value: the value, broadcast; where a mask fills, padded."""
    value, _, dtype = node.attrs
    total = compose(layout, need.layout)
    if total is None:
        return apply(
            _full(node, layout, Need(node, identity(layout.size), (layout.size,))),
            chain(need.layout, (layout.size,), need.shape),
        )
    scalar = ops.full(value, (), dtype)
    if not total.masked:
        return ops.broadcast(scalar, need.shape)
    dims = [(size, 0) for size, _ in total.dims]
    axes = [Axis(axis.bound, 0, axis.start, axis.coeffs) for axis in total.axes]
    return apply(scalar, chain(Layout(0, tuple(dims), tuple(axes), total.fill), (), need.shape))
