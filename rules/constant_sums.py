"""Sums of constants in a normal form: equal sums become one constant.

Rules gather constants that are added one after another, and distribute scales, reductions and products over them, each
in any order. Along a residual stream that makes every partial sum in every order: 14 000 constants with 395 values.
So each is written as a polynomial whose variables are no sums, and those with equal polynomials are merged. Known
numbers are its coefficients, so that a scale may go into a product and come out of it again: twice a half cancels.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from eqsat.egraph.host_terms import Term, Terms
from eqsat.egraph.snapshot import ENode
from eqsat.language.rule import HostRule
from eqsat.language.table_sums import repeated
from eqsat.language.table_values import fraction_of
from eqsat.layout import arithmetic as lt
from eqsat.layout.arithmetic import Layout

_MOST_TERMS = 64
"""Terms of a polynomial at most; a longer sum counts as a factor."""

Factors = tuple[int, ...]
"""Numbers of factors, sorted."""

Monomial = tuple[bool, Factors]
"""Whether it is taken away, and what is multiplied."""

Polynomial = dict[Monomial, Fraction]
"""How often each monomial is added. Opposite ones stay side by side: were they infinite, they would not cancel."""


def _equal_sums(graph: Terms, emit: Callable[[int, Term], None]) -> None:
    first: dict[Any, int] = {}
    polynomials = _Polynomials(graph)
    for cls, polynomial in polynomials.known.items():
        key = graph.size(cls), graph.snapshot.dtype[cls], frozenset(polynomial.items())
        same = first.setdefault(key, cls)
        if same != cls:
            emit(cls, same)
        if graph.says_again:
            for node in polynomials.other_nodes(cls):
                emit(cls, graph.make(node.op, node.attrs, node.args))


class _Polynomials:
    """Constant classes as polynomials over factors: what is no sum, no product and no view of those, numbered."""

    def __init__(self, graph: Terms) -> None:
        self._graph = graph
        self._factors: dict[Any, int] = {}
        self._what: list[tuple[Any, ...]] = []
        self.known: dict[int, Polynomial] = {}
        snapshot = graph.snapshot
        constants = [c for c in range(snapshot.n_classes) if snapshot.const[c] and snapshot.dtype[c] != "bool"]
        for cls in sorted(constants, key=lambda c: (snapshot.depth[c], c)):  # operands first
            found = self._of_node(cls, snapshot.nodes[snapshot.best[cls]])
            short = found is not None and len(found) <= _MOST_TERMS
            self.known[cls] = found if found is not None and short else self._factor(cls)

    def other_nodes(self, cls: int) -> Iterator[ENode]:
        """The e-nodes of a class, without the shallowest, that say its polynomial."""
        snapshot = self._graph.snapshot
        for i in snapshot.members[cls]:
            node = snapshot.nodes[i]
            if i != snapshot.best[cls] and self._of_node(cls, node) == self.known[cls]:
                yield node

    def _of_node(self, cls: int, node: ENode) -> Polynomial | None:
        """The polynomial that an e-node says; None where it says none."""
        if any(a not in self.known for a in node.args):
            return None
        operands = [self.known[a] for a in node.args]
        match node.op, node.attrs:
            case "Full", (value, _, dtype):  # of any size: views of it are the same number
                number = fraction_of(value, dtype)
                return {(number < 0, ()): abs(number)} if number else self._factor("Full", repr(value))
            case "Bin", ("add",):
                return _added(operands[0], operands[1])
            case "Bin", ("sub",):
                return _added(operands[0], _negated(operands[1]))
            case "Un", ("neg",):
                return _negated(operands[0])
            case "Bin", ("mul",):
                return _product(operands[0], operands[1], lambda x, y: tuple(sorted(x + y)))
            case "MM", sizes:
                return _product(operands[0], operands[1], lambda x, y: self._contracted(sizes, x, y))
            case "Red", ("sum", length):
                size = self._graph.size(cls)
                return _each(operands[0], lambda x: self._added_up(x, size, length))
            case "V", (layout,) if not layout.masked:
                size = self._graph.size(node.args[0])
                return _each(operands[0], lambda x: (1, tuple(sorted(self._view(f, size, layout) for f in x))))
        return None

    def _factor(self, *what: Any) -> Polynomial:
        return {(False, (self._number(*what),)): Fraction(1)}

    def _number(self, *what: Any) -> int:
        number = self._factors.setdefault(what, len(self._factors))
        if number == len(self._what):
            self._what.append(what)
        return number

    def _view(self, factor: int, size: int, layout: Layout) -> int:
        """The factor, of `size` elements, as a view shows it."""
        match self._what[factor]:
            case "Full", _:
                return factor
            case "V", inner, inner_size, first:
                composed = lt.compose(first, layout)
                if composed is not None:
                    factor, size, layout = inner, inner_size, composed
        return factor if layout.is_identity(size) else self._number("V", factor, size, layout)

    def _numbers(self, factors: Factors) -> Factors:
        return tuple(f for f in factors if self._what[f][0] == "Full")

    def _contracted(self, sizes: tuple[int, ...], left: Factors, right: Factors) -> Factors:
        """The factors of a matrix product: numbers stand beside it."""
        numbers = self._numbers(left), self._numbers(right)
        arrays = [tuple(f for f in side if f not in own) for side, own in zip((left, right), numbers, strict=True)]
        return tuple(sorted((*numbers[0], *numbers[1], self._number("MM", sizes, *arrays))))

    def _added_up(self, factors: Factors, rows: int, length: int) -> tuple[int, Factors]:
        """A product added up along the last axis of [rows, length]: how often, and the factors of the sum."""
        numbers = self._numbers(factors)
        arrays = tuple(f for f in factors if f not in numbers)
        if not arrays:
            return length, numbers
        times = 1
        if len(arrays) == 1:
            match self._what[arrays[0]]:
                case "Red", inner_length, _, inner:  # sums of sums
                    length, arrays = length * inner_length, inner
                case "V", inner, size, layout if (found := repeated(layout, rows, length)) is not None:
                    once, length, times = found
                    arrays = (inner if once.is_identity(size) else self._number("V", inner, size, once),)
        added = arrays if length == 1 else (self._number("Red", length, rows, arrays),)
        return times, tuple(sorted((*numbers, *added)))


def _added(p: Polynomial, q: Polynomial) -> Polynomial:
    found = defaultdict(Fraction, p)
    for monomial, n in q.items():
        found[monomial] += n
    return dict(found)


def _negated(p: Polynomial) -> Polynomial:
    return {(not taken, factors): n for (taken, factors), n in p.items()}


def _each(p: Polynomial, change: Callable[[Factors], tuple[int, Factors]]) -> Polynomial:
    """The sum of a linear function of every term; `change` gives factors, and how often they are added."""
    found: dict[Monomial, Fraction] = defaultdict(Fraction)
    for (taken, factors), n in p.items():
        times, changed = change(factors)
        found[taken, changed] += n * times
    return dict(found)


def _product(p: Polynomial, q: Polynomial, join: Callable[[Factors, Factors], Factors]) -> Polynomial | None:
    """Each term of one with each of the other; None where that is too many."""
    if len(p) * len(q) > _MOST_TERMS:
        return None
    found: dict[Monomial, Fraction] = defaultdict(Fraction)
    for (taken, left), n in p.items():
        for (other, right), m in q.items():
            found[taken != other, join(left, right)] += n * m
    return dict(found)


RULES: tuple[HostRule, ...] = (
    HostRule(
        "equal-sums-of-constants",
        "a => b",
        _equal_sums,
        "reassociating",
        "constants are folded ahead of time, so only their values matter",
        "what constants add up to, in whatever order, is one constant",
        guard_text="both are the same sum of products of constants, multiplied out",
    ),
)
