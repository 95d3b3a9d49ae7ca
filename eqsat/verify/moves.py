"""Values that only move elements: views, joined arrays, rows by constant indices, choices by constant conditions.

Two of them are equal if they read the same element of the same value at each place, or the same number. This is seen by
evaluating both on values whose elements all differ, and once more with their signs turned: numbers keep theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

import numpy as np

from eqsat.base.numerics import Array, converted, is_float
from eqsat.program.core import Node, evaluate, make, topological
from eqsat.program.node import is_folded, substitute
from eqsat.verify.meaning import numbers_in, stands_for

_STEERING = {"V": (), "Cat": (), "Gather": (1,), "Where": (0,)}
"""Operators that move elements, and which of their operands must be constant: these say where to."""

_INTEGERS, _MOST_NUMBERED = frozenset({"int32", "int64"}), 1 << 31
"""Types of integers that number so many elements, as float64 does."""

_ASIDE = 1 + 2.0**-40
"""What moves an element of a narrow type between its neighbours."""


def moves(node: Node) -> bool:
    """Whether the operator of a value only moves elements."""
    return node.op in _STEERING and all(_steers(node.args[i]) for i in _STEERING[node.op])


def move_alike(left: Node, right: Node, constants: Mapping[str, Array]) -> bool:
    """Whether two values of one size and type hold the same elements of the same values, by moving them alone.

    Args:
        constants: digest to stored values.
    """
    read = sources([left, right])
    if not all(is_float(node.dtype) or node.dtype in _INTEGERS for node in read):
        return False
    ends = list(accumulate((node.size for node in read), initial=1))
    if ends[-1] > _MOST_NUMBERED:
        return False
    stand_ins = {node: make("In", (f"#{i}", node.size, node.dtype)) for i, node in enumerate(read)}
    both = substitute([left, right], stand_ins)
    marked = _marked(both, constants)
    for sign in (1, -1):
        given = {f"#{i}": sign * np.arange(*run) for i, run in enumerate(pairwise(ends))}
        one, other = evaluate(both, given, constants, precision="float64", known=marked)
        if not ((one == other) | ((one != one) & (other != other))).all():
            return False
    return True


def sources(roots: Sequence[Node]) -> list[Node]:
    """The values whose elements some values move."""
    found: dict[Node, None] = {}
    seen: set[Node] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if moves(node):
            stack += (arg for i, arg in enumerate(node.args) if i not in _STEERING[node.op])
        elif node.op not in ("Full", "Const"):
            found[node] = None
    return list(found)


def _marked(roots: Sequence[Node], constants: Mapping[str, Array]) -> dict[Node, Array]:
    """Constants with elements whose bits are those of a number that stands for another one (`eqsat.verify.meaning`), as
    0.1 of float32 does: such an element is not that number. Each gets one value that no number has."""
    order = topological(roots)
    numbers = {value for node in order for value in numbers_in(node) if stands_for(value, node.dtype) != value}
    found: dict[Node, Array] = {}
    for node in order if numbers else ():
        if node.op == "Const" and is_float(node.dtype):
            array = converted(constants[node.attrs[0]].reshape(-1), np.dtype(np.float64))
            found[node] = np.where(np.isin(array, list(numbers)), array * _ASIDE, array)
    return found


def _steers(node: Node) -> bool:
    """Whether a value is constant, and no float decides it: what is equal to the float may decide otherwise."""
    return all(
        is_folded(below.op) and (is_float(below.dtype) or not any(is_float(a.dtype) for a in below.args))
        for below in topological([node])
    )
