"""Values that only move elements: views, joined arrays, rows by constant indices, choices by constant conditions.

Two of them are equal if they read the same element of the same value at each place, or the same number. This is seen by
evaluating both on values whose elements all differ, and once more with their signs turned: numbers keep theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

import numpy as np

from eqsat.base.numerics import Array, is_float
from eqsat.program.core import Node, evaluate, make, topological
from eqsat.program.node import is_folded, substitute

_STEERING = {"V": (), "Cat": (), "Gather": (1,), "Where": (0,)}
"""Operators that move elements, and which of their operands must be constant: these say where to."""

_INTEGERS, _MOST_NUMBERED = frozenset({"int32", "int64"}), 1 << 31
"""Types of integers that number so many elements, as float64 does."""


def moves(node: Node) -> bool:
    """Whether the operator of a value only moves elements."""
    return node.op in _STEERING and all(_is_constant(node.args[i]) for i in _STEERING[node.op])


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
    for sign in (1, -1):
        given = {f"#{i}": sign * np.arange(*run) for i, run in enumerate(pairwise(ends))}
        one, other = evaluate(both, given, constants, precision="float64")
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


def _is_constant(node: Node) -> bool:
    return all(is_folded(below.op) for below in topological([node]))
