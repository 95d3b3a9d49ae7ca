"""What stored elements and numbers stand for: each for one value over the real numbers, wherever it is read.

A number stands for the simplest fraction that rounds to it, in a narrow type as in a wide one: 0.1 of float16 is a
tenth, which its bits, 0.0999755859375, are not. An element of a constant stands for itself. Either stands for a value
that was given to it instead. A conversion between floats changes nothing.

So 0.1 of float16 in float64 is 0.1 of float64. Were it also the bits of its type, 0.1 and 0.0999755859375 were one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from eqsat.base.numerics import Array, is_float, scalar
from eqsat.errors import CheckFailed
from eqsat.language.table_values import fraction_of
from eqsat.program.core import Node, evaluate, topological
from eqsat.verify.spelling import number_of


class Given(NamedTuple):
    """What was given to elements of a stored constant, or to a number.

    Attributes:
        part: the elements, as they are read.
        places: where they are stored.
        whole: the computation.
        leaves: of the computation.
    """

    part: Node
    places: Array
    whole: Node
    leaves: list[Node]


def leaves(roots: Iterable[Node]) -> list[Node]:
    """The stored floats and the numbers that values are computed from; numbers of any size are one (`number_of`)."""
    found = [node for node in topological(roots) if is_float(node.dtype)]
    return [node if node.op == "Const" else number_of(node) for node in found if node.op in ("Const", "Full")]


def as_fractions(roots: Sequence[Node]) -> dict[Node, Array]:
    """The numbers below some values that their bits are not, as arrays of float64: for `evaluate`.

    Raises:
        CheckFailed: a view fills in such a number.
    """
    found: dict[Node, Array] = {}
    for node in topological(roots):
        for number in numbers_in(node):
            value, read = stands_for(number, node.dtype), number if node.op == "Full" else node.attrs[0].fill
            if value == read or math.isnan(number):
                continue
            if node.op != "Full":
                raise CheckFailed(f"a view fills in {read!r} of {node.dtype}, which stands for {value!r}")
            found[node] = np.full(node.size, value)
    return found


def numbers_in(node: Node) -> tuple[float, ...]:
    """The float that a value repeats or fills in, as its type stores it; none for any other value."""
    if not is_float(node.dtype) or not (node.op == "Full" or (node.op == "V" and node.attrs[0].masked)):
        return ()
    return (float(scalar(node.attrs[0] if node.op == "Full" else node.attrs[0].fill, node.dtype)),)


def stands_for(number: float, dtype: str) -> float:
    """The fraction that a number stands for, in float64; NaN and the infinities are what they are."""
    found = fraction_of(number, dtype)
    return number if found is None else float(found)


class Meanings:
    """What stored constants and numbers stand for."""

    def __init__(self, values: Mapping[str, Array]) -> None:
        """`values`: digest to stored values."""
        self._values = values
        self._given: dict[Node, list[Given]] = {}
        self._readers: dict[Node, set[Node]] = {}
        """What was given a value that is computed from this."""
        self._known: dict[Node, Array] = {}

    def give(self, stored: Node, part: Node, places: Array, whole: Node) -> None:
        """Some elements of a stored constant, or a number (`number_of`), stand for a computation from now on."""
        given = Given(part, places, whole, leaves([whole]))
        self._given.setdefault(stored, []).append(given)
        for leaf in given.leaves:
            self._readers.setdefault(leaf, set()).add(stored)
        self._forget(stored)

    def take_back(self, stored: Node) -> None:
        """Take back what was given to it last."""
        self._given[stored].pop()
        self._forget(stored)

    def given(self, stored: Node) -> Sequence[Given]:
        """What was given to it, or to elements of it."""
        return self._given.get(stored, ())

    def below(self, whole: Node) -> set[Node]:
        """All that a constant is computed from, through what was given."""
        found: set[Node] = set()
        stack = leaves([whole])
        while stack:
            leaf = stack.pop()
            if leaf not in found:
                found.add(leaf)
                stack += (below for given in self.given(leaf) for below in given.leaves)
        return found

    def above(self, stored: Node) -> set[Node]:
        """This, and what was given a value that is computed from it, directly or through others."""
        found: set[Node] = set()
        stack = [stored]
        while stack:
            leaf = stack.pop()
            if leaf not in found:
                found.add(leaf)
                stack += self._readers.get(leaf, ())
        return found

    def of(self, roots: Sequence[Node]) -> dict[Node, Array]:
        """What the leaves of some values stand for where their bits do not say it, as arrays of float64.

        Raises:
            CheckFailed: a view fills in a number that stands for another one.
        """
        found = as_fractions(roots)
        for node in topological(roots):
            if is_float(node.dtype) and node.op == "Const" and self.given(node):
                found[node] = self._array(node)
            elif is_float(node.dtype) and node.op == "Full" and self.given(number_of(node)):
                found[node] = np.full(node.size, self._array(number_of(node))[0])
        return found

    def _array(self, stored: Node) -> Array:
        """The elements of a stored constant or number, with the values given to them."""
        if stored not in self._known:
            known = as_fractions([stored])
            [array] = evaluate([stored], {}, self._values, precision="float64", known=known)
            array = array.copy()
            for _, places, whole, _ in self._given[stored]:
                [array[places]] = evaluate([whole], {}, self._values, precision="float64", known=self.of([whole]))
            self._known[stored] = array
        return self._known[stored]

    def _forget(self, stored: Node) -> None:
        for leaf in self.above(stored):
            self._known.pop(leaf, None)
