"""What two programs store, and how it was computed: when two constants may count as equal.

A constant that was computed ahead of time is a little off. Taken as equal to its computation as it is, everything would
be equal: from c = c' follows x * (c - c') / (c - c') = x * 0. So nothing that is rounded is taken as equal. Instead, a
stored element may be *given* the value of a computation that it is close to. Two constants are equal only if

- both are the same polynomials of stored elements, of numbers and of functions of these, whatever is stored
  (`eqsat.verify.spelling`), where a given value stands for the element that has it; or they are equal integers or truth
  values, which no float decides; or numbers that are the same fraction;
- or one of them is made of elements that one of the programs stores, or is a number, to which nothing was given before.
  Now the other one is, element by element. It must be close, and not be computed from what it is given to. Where the
  stored elements are an addend of one side, they are given what is left of the other.

Why that is sound: what was given depends on itself nowhere. So there are real values for all that is stored such that
each element has just the value that was given to it, if any, and is as it is stored otherwise. With these values every
equality holds, those from before included: they hold whatever is stored, or rest on elements and numbers to which
nothing may be given. Hence all that follows from equalities and exact laws is true with these values,
and both programs with their stored elements moved by no more than rounding are one function. There is nothing that laws
could amplify.

Beyond that, no program may hold one element with two values. What is only moved is not rounded: constants that one
program stores apart stay apart, also where both are given one constant of the other program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from fractions import Fraction
from math import isqrt

import numpy as np

from eqsat.base.numerics import Array, is_float
from eqsat.errors import CheckFailed
from eqsat.language.table_values import fraction_of
from eqsat.program.core import Node, evaluate, make, topological
from eqsat.program.core_table import CAST
from eqsat.verify.meaning import Meanings, leaves, number_of
from eqsat.verify.rounding import only_moves
from eqsat.verify.spelling import Spelling, Spellings, simple
from eqsat.verify.whole import see_whole

_MOST_BITS = 1 << 12
"""Of the numerators and denominators of fractions that are computed."""

Apart = Callable[[Node, Node, Mapping[Node, Array]], float]
"""How far apart two constants are, in units in the last place, given what numbers and stored constants stand for where
that is not what their bits are (`eqsat.verify.meaning`). Raises CheckFailed where they are too far apart
(`eqsat.verify.rounding`)."""


class Definitions:
    """What was given to the stored constants and numbers of two programs."""

    def __init__(self, programs: Sequence[Sequence[Node]], values: Mapping[str, Array], apart: Apart) -> None:
        """`programs`: the outputs of each. `values`: digest to stored values."""
        self._fixed: set[Node] = set()
        self._values, self._apart = values, apart
        self._stored = [frozenset(leaves(roots)) for roots in programs]
        self._spellings = Spellings(values)
        self._meanings = Meanings(values)
        self._given: dict[Node, Array] = {}
        """Of which elements something is known."""
        self._held: dict[tuple[int, Node], Array] = {}
        """The values with which a program holds the elements of a constant; NaN where it does not."""

    def equal(self, left: Node, right: Node) -> float:
        """See that two constants of one size and type are equal, giving one to the other where that is needed. The
        result is how far they are apart where they were, in units in the last place.

        Raises:
            CheckFailed: they are not equal by what is known.
        """
        see_whole([left, right], self._values)
        if (self._spellings.spelled(left).array == self._spellings.spelled(right).array).all():
            return 0.0
        if not is_float(left.dtype):
            raise CheckFailed("they are different integers or truth values")
        if self._same_fraction(left, right):
            return 0.0
        units = self._apart(left, right, self._meanings.of([left, right]))
        refused: list[str] = []
        pairs = (*_solved(right, left), *_solved(left, right))
        for stored, whole in sorted(pairs, key=lambda pair: pair[1] not in (left, right)):  # addends last
            try:
                return max(units, self._give(stored, whole))
            except CheckFailed as error:
                refused.append(str(error))
        raise CheckFailed("; ".join(dict.fromkeys(refused)) or "neither is stored in a program")

    def check(self, fixed: Set[Node]) -> None:
        """See that nothing was given to what other equalities rest on. Raises CheckFailed where it was."""
        if self._given.keys() & (fixed | self._fixed | self._spellings.filled):
            raise CheckFailed("a line rests on the value of a constant that another line takes as rounded")

    def _give(self, part: Node, whole: Node) -> float:
        """Give a computation to stored elements, and say how far they are apart. Raises CheckFailed where that is not
        possible."""
        stored, places = _elements(part)
        if stored.op == "Const" and sum(stored in each for each in self._stored) != 1:
            raise CheckFailed("neither is stored in one of the programs alone")
        if stored.op == "Full" and simple(stored.attrs[0], stored.dtype) is not None:
            raise CheckFailed("a whole number or simple fraction is not a rounded one")
        if stored in self._meanings.below(whole):
            raise CheckFailed("one is computed from the other, and rounded to it")
        given = self._given.get(stored, np.zeros(stored.size, np.bool_))
        if given[places].any():
            raise CheckFailed("it is computed in another way already")
        before, spelling = self._spellings.spelled(stored), self._spellings.spelled(whole)
        own = before.array.copy()
        own[places] = spelling.array
        if (own[places] != spelling.array).any():
            raise CheckFailed("places of one stored element differ")
        units = self._moved(stored, part, places, whole, spelling.array)
        given[places] = True
        self._given[stored] = given
        degree, bits = max(before.degree, spelling.degree), max(before.bits, spelling.bits)
        self._spellings.given[stored] = Spelling(own, degree, bits)
        return units

    def _moved(self, stored: Node, part: Node, places: Array, whole: Node, spelling: Array) -> float:
        """Let elements stand for what they are given, and say how far that moves them, and all that was computed from
        them before. Raises CheckFailed, with nothing given, where it is too far or one program holds one element with
        two values."""
        self._meanings.give(stored, part, places, whole)
        try:
            units = [
                self._apart(given.part, given.whole, self._meanings.of([given.whole]))
                for each in self._meanings.above(stored)
                for given in self._meanings.given(each)
            ]
            self._hold(stored, places, whole, spelling)
        except CheckFailed:
            self._meanings.take_back(stored)
            raise
        return max(units)

    def _hold(self, stored: Node, places: Array, whole: Node, spelling: Array) -> None:
        """Note the elements that a program holds with another value than the given one. Raises CheckFailed where one
        program holds an element with two values."""
        if stored.op != "Const" or not only_moves(whole):
            return
        held: list[tuple[tuple[int, Node], Array]] = []
        values = _exact(self._values, stored)[places]
        for leaf in self._meanings.below(whole):
            if leaf.op != "Const":
                continue
            at, found = _places(spelling, self._spellings.spelled(leaf).array)
            for program in [i for i, each in enumerate(self._stored) if stored in each and found.any()]:
                known = self._held.get((program, leaf))
                if known is None:
                    mine = leaf in self._stored[program]
                    known = _exact(self._values, leaf) if mine else np.full(leaf.size, np.nan)
                of = known[at[found]]
                if (~np.isnan(of) & (of != values[found])).any():
                    raise CheckFailed("one program stores both, with other values")
                known = known.copy()
                known[at[found]] = values[found]
                held.append(((program, leaf), known))
        self._held.update(held)

    def _same_fraction(self, left: Node, right: Node) -> bool:
        """Whether both repeat numbers that are one fraction. Then these are fixed."""
        one, other = self._fraction(left), self._fraction(right)
        if one is None or one != other:
            return False
        self._fixed.update(leaves([left, right]))
        return True

    def _fraction(self, root: Node) -> Fraction | None:
        """The fraction that all elements of a constant are, if it is computed from numbers and has one."""
        known: dict[Node, Fraction | None] = {}
        for node in topological([root]):
            if not is_float(node.dtype):
                known[node] = None
            elif any(not is_float(a.dtype) for a in node.args):
                known[node] = self._converted(node)
            else:
                args = [known[a] for a in node.args]
                found = _computed(node, [a for a in args if a is not None]) if None not in args else None
                large = found is not None and max(map(int.bit_length, found.as_integer_ratio())) > _MOST_BITS
                known[node] = None if large else found
        return known[root]

    def _converted(self, node: Node) -> Fraction | None:
        """The whole number that a conversion of integers gives."""
        if node.op != "Un":
            return None
        [values] = evaluate(node.args, {}, self._values)
        return Fraction(int(values[0])) if values.size and (values == values[0]).all() else None


def _solved(left: Node, right: Node) -> Iterator[tuple[Node, Node]]:
    """Stored constants and numbers, and what each is if both sides are equal: that they are addends of the left."""
    stack = [(left, right)]
    while stack:
        part, whole = stack.pop()
        match part.op, part.attrs, part.args:
            case (("Const" | "Full"), _, _):
                yield part, whole
            case "V", (layout,), [inner] if not layout.masked and inner.op in ("Const", "Full"):
                yield part, whole
            case "Bin", ("add",), [one, other]:
                stack += [(one, make("Bin", ("sub",), (whole, other))), (other, make("Bin", ("sub",), (whole, one)))]
            case "Bin", ("sub",), [one, other]:
                stack += [(one, make("Bin", ("add",), (whole, other))), (other, make("Bin", ("sub",), (one, whole)))]
            case _:
                pass


def _elements(part: Node) -> tuple[Node, Array]:
    """The stored constant or the number that is read, alone or through a view, and which elements of it."""
    places = np.arange(part.size)
    if part.op == "V":
        places, part = part.attrs[0].index(), part.args[0]
    return (part, places) if part.op == "Const" else (number_of(part), np.zeros_like(places))


def _exact(values: Mapping[str, Array], stored: Node) -> Array:
    return values[stored.attrs[0]].reshape(-1).astype(np.float64)


def _places(wanted: Array, among: Array) -> tuple[Array, Array]:
    """Where each of some spellings is found among others, and whether it is."""
    order = np.argsort(among)
    at = order[np.minimum(np.searchsorted(among, wanted, sorter=order), len(among) - 1)]
    return at, among[at] == wanted


def _computed(node: Node, args: Sequence[Fraction]) -> Fraction | None:
    match node.op, node.attrs, args:
        case "Full", (value, _, str(dtype)), _:
            return fraction_of(value, dtype)
        case "V", (layout,), [a] if not layout.masked:
            return a
        case "Bin", ("add",), [a, b]:
            return a + b
        case "Bin", ("sub",), [a, b]:
            return a - b
        case "Bin", ("mul",), [a, b]:
            return a * b
        case "Bin", ("div",), [a, b] if b:
            return a / b
        case "Un", ("neg",), [a]:
            return -a
        case "Un", ("reciprocal",), [a] if a:
            return 1 / a
        case "Un", ("sqrt",), [a] if a >= 0:
            return _root(a)
        case "Un", ("rsqrt",), [a] if a > 0 and (root := _root(a)):
            return 1 / root
        case "Un", ("exp",), [a] if not a:
            return Fraction(1)
        case "Un", ("log",), [a] if a == 1:
            return Fraction(0)
        case "Un", (str(fn),), [a] if fn.startswith(CAST):
            return a
    return None


def _root(a: Fraction) -> Fraction | None:
    """The square root, if it is a fraction."""
    root = Fraction(isqrt(a.numerator), isqrt(a.denominator))
    return root if root * root == a else None
