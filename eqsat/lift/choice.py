"""Lifting chooses a form for every unit, so that the chains of views between units are short.

Candidate forms are passed from operands to readers and back. Then the units choose, operands first, and choose again
as long as the program gets shorter. A unit gains nothing by leaving a shape that its neighbours share, so at the end
neighbours that could all take another form try it together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import inf

from eqsat.layout.arithmetic import Layout, compose, inverse, is_bijective
from eqsat.layout.map import CACHE_SIZE
from eqsat.lift.forms import Form, Need, Way, plain, pulled, pushed, undone, whole
from eqsat.lift.ops import Hints, ways
from eqsat.lift.units import Unit, Units
from eqsat.lift.view_chain import Steps, chain, cost, shared_cost, through
from eqsat.program.core import CoreProgram
from eqsat.program.node import Node
from eqsat.program.term import Shape, Term, make

_FORWARD_FORMS, _MAX_FORMS = 8, 14
"""Candidate forms kept per unit: from its operands, and in total. Neighbours rarely suggest more than four."""
_MAX_SWEEPS = 8
_MAX_CLUSTER = 64
_CONSTANT_MOVES = 0.5
"""Moving a constant costs less than moving a computed value, because it can be done ahead of time."""
_PENDING_ORDER = 0.01
"""Tie-break in favour of terms whose elements are in the order of the node."""


def route(layout: Layout, need: Need, form: Form) -> tuple[Steps, float]:
    """The steps from a term that holds a base in ``form`` to V(V(base, layout), need.layout), and their cost."""
    return _route(layout, need.layout, need.shape, form)


@lru_cache(maxsize=CACHE_SIZE)
def _route(layout: Layout, then: Layout, shape: Shape, form: Form) -> tuple[Steps, float]:
    total = compose(layout, then)
    if total is not None:
        steps = through(form.order, total, form.shape, shape)
    else:
        flat = (layout.size,)
        steps = through(form.order, layout, form.shape, flat) + chain(then, flat, shape)
    return steps, cost(steps)


Needs = tuple[Need, ...]


class Choice:
    """Fills in ``ways`` and ``chosen`` of every unit."""

    def __init__(self, units: Units, source: CoreProgram) -> None:
        self.graph, self.source = units, source
        spoken = [term.op for term in source.source_term.values() if term.args]
        self._convs = not spoken or "conv" in spoken

    def make(self) -> None:
        self._suggest_from_operands()
        self._suggest_from_readers()
        for unit in self.graph.units:
            unit.chosen = self._best(unit)
        self._improve(reversed_first=True)
        if self._improve_together():
            self._improve(reversed_first=True)

    # Candidates

    def _suggest_from_operands(self) -> None:
        for unit in self.graph.units:
            if unit.known is not None:
                form = plain(unit.known.shape)
                unit.suggest([form], 1)
                unit.ways = [_leaf(form)]
            elif unit.elementwise:
                for arg in unit.operands:
                    unit.suggest(self._forms_through(arg), _FORWARD_FORMS)
                    unit.suggest(self._forms_before(arg), _FORWARD_FORMS)
            elif unit.nodes[0].args:
                unit.suggest((way.form for way in self._ways(unit)), _FORWARD_FORMS)

    def _forms_through(self, arg: Node) -> Iterator[Form]:
        for base, layout in self.graph.reach(arg):
            if base in self.graph.unit_of:
                for form in list(self.graph.unit_of[base].forms):  # a copy: a unit may read itself through a view
                    yield from pushed(form, layout)

    def _forms_before(self, arg: Node) -> Iterator[Form]:
        """The forms of a view's operand, with the view left pending: a view after the unit may undo it."""
        for base, layout in self.graph.reach(arg):
            if base in self.graph.unit_of and is_bijective(layout, base.size):
                for form in list(self.graph.unit_of[base].forms):
                    order = compose(form.order, layout)
                    if order is not None:
                        yield Form(order, form.shape)

    def _suggest_from_readers(self) -> None:
        """Pass forms from readers to operands, readers first; a unit of many nodes is placed by its last node."""
        last = {self.graph.unit_of[node]: i for i, node in enumerate(self.graph.order) if node in self.graph.unit_of}
        for unit in sorted(self.graph.units, key=lambda unit: -last[unit]):
            for need in unit.results:
                self._suggest_for(need, unit)
            if unit.known is None:
                unit.ways = self._ways(unit)
                for way in unit.ways:
                    for need in way.needs:
                        for base in self.graph.bases(need.node):
                            self._suggest_for(need, base)

    def _suggest_for(self, need: Need, unit: Unit) -> None:
        """Suggest to a unit the forms in which it would serve the need at once."""
        if unit.known is not None:
            return
        for base, layout in self.graph.reach(need.node):
            total = compose(layout, need.layout) if self.graph.unit_of.get(base) is unit else None
            if total is None:
                continue
            forms = pulled(total, base.size, need.shape)
            if base.op == "Const":
                # Constants have no leading dims of size 1: a broadcast adds them.
                unit.suggest((plain(_without_leading_units(f.shape)) for f in forms), _MAX_FORMS)
            unit.suggest(forms, _MAX_FORMS)
            turned = undone(total, base.size, need.shape) if unit.elementwise else None
            if turned is not None:
                unit.suggest([turned], _MAX_FORMS)

    def _ways(self, unit: Unit) -> list[Way]:
        node = unit.nodes[0]
        if unit.elementwise:
            return self._elementwise_ways(unit)
        if node.op == "Const":
            return [_leaf(form) for form in unit.forms if form.direct] or [_leaf(plain((node.size,)))]
        if node.op == "Opaque":
            return [self._opaque_way(node)]
        return ways(node, self._hints(unit))

    def _elementwise_ways(self, unit: Unit) -> list[Way]:
        forms = list(unit.forms)
        if not any(form.direct for form in forms):
            forms.append(plain((unit.size,)))
        found = []
        for form in forms:
            order = inverse(form.order, unit.size)
            if order is not None:
                needs = tuple(Need(arg, order, form.shape) for arg in unit.operands)
                found.append(Way(form, needs, 0.0 if form.direct else _PENDING_ORDER, _not_built))
        return found

    def _hints(self, unit: Unit) -> Hints:
        (node,) = unit.nodes
        operands: list[list[Shape]] = []
        bases: list[list[tuple[Node, Layout, Form]]] = []
        for arg in node.args:
            operands.append(list(dict.fromkeys(form.shape for form in self._forms_through(arg))))
            found = []
            for base, layout in self.graph.reach(arg):
                forms = self.graph.unit_of[base].forms if base in self.graph.unit_of else ()
                found += [(base, layout, form) for form in forms or [plain((base.size,))]]
            bases.append(found)
        views = [n.attrs[0] for n in self.graph.order if n.op == "V" and n.args[0] is node] if node.op == "Cat" else []
        return Hints(operands, bases, [form.shape for form in unit.forms], views, self._convs)

    def _opaque_way(self, node: Node) -> Way:
        """As the source has it: only the source knows the operator's operand and result shapes."""
        term = self.source.opaque[node.attrs[0]].results[node.attrs[1]]
        needs = tuple(whole(arg, of.shape) for arg, of in zip(node.args, term.args, strict=True))
        return Way(plain(term.shape), needs, 0.0, lambda args: make("opaque", *args, **dict(term.attrs)))

    # Choices

    def _best(self, unit: Unit) -> Way:
        """The cheapest way given the choices of other units; ties go to the present way, then to the first."""
        if len(unit.ways) == 1:
            return unit.ways[0]
        decided, undecided = self._served([unit])
        moves = [self._moves([*way.needs, *unit.results, *decided], {unit: way}) for way in unit.ways]
        least = inf, True, -1
        # By what each costs at least: what readers take that have not chosen adds to it, and takes longest to find.
        for bound, i in sorted((moves[i] + way.cost, i) for i, way in enumerate(unit.ways)):
            if bound > least[0]:
                break
            way = unit.ways[i]
            price = self._with_undecided(moves[i], undecided, {unit: way}) + way.cost
            least = min(least, (price, way is not unit.chosen, i))
        return unit.ways[least[2]]

    def _improve(self, reversed_first: bool) -> None:
        for sweep in range(_MAX_SWEEPS):
            backward = (sweep % 2 == 0) == reversed_first
            changed = False
            for unit in reversed(self.graph.units) if backward else self.graph.units:
                best = self._best(unit)
                changed |= best is not unit.chosen
                unit.chosen = best
            if not changed:
                return

    def _improve_together(self) -> bool:
        """Let neighbours change to a form together where that is cheaper. True if any did."""
        changed = False
        tried: set[tuple[Unit, Form]] = set()
        for unit in self.graph.units:
            if len(unit.ways) == 1 or unit.chosen is None or self._price({unit: unit.chosen}) < 1.0:
                continue
            for way in unit.ways:
                after = self._cluster(unit, way, tried)
                before = {each: each.chosen for each in after if each.chosen is not None}
                if len(after) > 1 and self._price(after) < self._price(before) - 1e-9:
                    changed = True
                    for each, taken in after.items():
                        each.chosen = taken
        return changed

    def _cluster(self, unit: Unit, way: Way, tried: set[tuple[Unit, Form]]) -> dict[Unit, Way]:
        """The unit with this way, and all units connected to it that have its size and can take the same form; empty if
        one of them has tried that form already."""
        form = way.form
        cluster: dict[Unit, Way] = {}
        waiting = [(unit, way)]
        while waiting and len(cluster) < _MAX_CLUSTER:
            each, taken = waiting.pop(0)
            if each in cluster:
                continue
            if (each, form) in tried:
                return {}
            cluster[each] = taken
            tried.add((each, form))
            operands = (base for need in taken.needs for base in self.graph.bases(need.node))
            for other in dict.fromkeys([*operands, *each.readers]):
                if other.size == unit.size and other not in cluster:
                    same = [w for w in other.ways if w.form == form]
                    waiting += [(other, min(same, key=lambda w: w.cost))] if same else []
        return cluster

    # Prices

    def _price(self, trial: Mapping[Unit, Way]) -> float:
        """The cost of the trial's units with these ways: moving their operands, and moving their results to readers."""
        decided, undecided = self._served(trial)
        needs = [need for unit, way in trial.items() for need in (*way.needs, *unit.results)]
        moves = self._with_undecided(self._moves(needs + decided, trial), undecided, trial)
        return moves + sum(way.cost for way in trial.values())

    def _with_undecided(self, moves: float, undecided: Sequence[Collection[Needs]], trial: Mapping[Unit, Way]) -> float:
        """These moves, and those to each reader that has not chosen, in its best way."""
        for by_way in undecided:
            least = inf if by_way else 0.0
            for needs in by_way:
                least = min(least, self._moves(needs, trial))
                if not least:
                    break
            moves += least
        return moves

    def _served(self, units: Collection[Unit]) -> tuple[list[Need], list[Collection[Needs]]]:
        """What these units serve, in whichever way they are written: the needs of readers that have chosen, and for
        each other reader its needs by its ways."""
        decided: list[Need] = []
        undecided: list[Collection[Needs]] = []
        for reader in dict.fromkeys(reader for unit in units for reader in unit.readers if reader not in units):
            if reader.chosen is None:
                undecided.append(dict.fromkeys(tuple(self._reading(reader, way, units)) for way in reader.ways))
            else:
                decided += self._reading(reader, reader.chosen, units)
        return decided, undecided

    def _reading(self, reader: Unit, way: Way, units: Collection[Unit]) -> list[Need]:
        """The needs of a reader that these units serve."""
        if reader.elementwise:
            return [way.needs[reader.operands[arg]] for unit in units for arg in unit.readers.get(reader, ())]
        return [need for need in way.needs if any(base in units for base in self.graph.bases(need.node))]

    def _moves(self, needs: Iterable[Need], trial: Mapping[Unit, Way]) -> float:
        """The cost of the cheapest moves that serve the needs; shared moves count once."""
        total = 0.0
        chains: dict[tuple[Node, Form], list[Steps]] = {}
        for need in dict.fromkeys(needs):
            best = inf
            found: tuple[Node, Form, Steps] | None = None
            for base, layout in self.graph.reach(need.node):
                if base.op == "Full":
                    found = None
                    break
                unit = self.graph.unit_of[base]
                way = trial.get(unit, unit.chosen)
                # For units that have not chosen yet, assume the most suitable form.
                for each in unit.ways if way is None else (way,):
                    steps, moves = route(layout, need, each.form)
                    if moves < best:
                        best, found = moves, (base, each.form, steps)
                        if not best:
                            break
            if found is not None:
                chains.setdefault(found[:2], []).append(found[2])
        for (base, _), steps in chains.items():
            total += shared_cost(steps) * (_CONSTANT_MOVES if base.op == "Const" else 1.0)
        return total


def _leaf(form: Form) -> Way:
    return Way(form, (), 0.0, _not_built)


def _not_built(args: Sequence[Term]) -> Term:
    raise AssertionError("leaves and elementwise operators are written node by node")


def _without_leading_units(shape: Shape) -> Shape:
    lead = next((i for i, n in enumerate(shape) if n != 1), len(shape))
    return shape[lead:]
