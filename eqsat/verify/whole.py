"""Integers that constants compute: none may overflow, nor be divided by zero.

Laws hold of whole numbers, and a type holds only some. In int32 the maximum of 2**31 - 1 and 0, each with 1 added, is
1. By law it is that of both with 1 added, -2**31: then any two numbers are one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from eqsat.base.numerics import Array, is_integer, wrapped
from eqsat.errors import CheckFailed
from eqsat.program.core import Node, evaluate, topological
from eqsat.program.core_table import CAST
from eqsat.program.node import is_folded

_ROUNDED = 4
"""How often an addend is rounded in float64 before it is added: both factors, and their product; and once to spare."""

_COMPUTE = frozenset({"Un", "Bin", "MM", "Red"})


def see_whole(roots: Sequence[Node], constants: Mapping[str, Array]) -> None:
    """See that the integers that are computed from integers alone, on the way to some values, are what they are in the
    whole numbers.

    Args:
        constants: digest to stored values.

    Raises:
        CheckFailed: one overflows, or is divided by zero.
    """
    whole: dict[Node, bool] = {}
    order = topological(roots)
    for node in order:
        own = is_folded(node.op) and (is_integer(node.dtype) or node.dtype == "bool")
        whole[node] = own and all(whole[a] for a in node.args)
    computed = [node for node in order if whole[node] and is_integer(node.dtype) and node.op in _COMPUTE]
    if computed:
        evaluate(computed, {}, constants, change=_seen)


def _seen(node: Node, value: Array, args: list[Array]) -> Array:
    """The value of a node. Raises CheckFailed where it is not what whole numbers give."""
    if node.op not in _COMPUTE or not is_integer(node.dtype):
        return value
    if node.op == "Un" and node.attrs[0].startswith(CAST):
        near = args[0].astype(np.float64)
    else:
        wide = {arg: array.astype(np.float64) for arg, array in zip(node.args, args, strict=True)}
        [near] = evaluate([node], {}, {}, precision="float64", known=wide)
        if _cancels(node, value, wide):
            raise CheckFailed("an integer that is computed is a sum too large to see that it does not overflow")
    if wrapped(value, near):
        raise CheckFailed("an integer that is computed overflows, or is divided by zero")
    return value


def _cancels(node: Node, value: Array, wide: Mapping[Node, Array]) -> bool:
    """Whether a sum of large addends may be off by half the range of its type in float64, where they cancel: then
    float64 does not tell whether it overflows."""
    if node.op == "MM":
        count = node.attrs[2]
    elif node.op == "Red" and node.attrs[0] == "sum":
        count = node.attrs[1]
    else:
        return False
    sizes = {arg: np.abs(array) for arg, array in wide.items()}
    [total] = evaluate([node], {}, {}, precision="float64", known=sizes)
    half = 2.0 ** (8 * value.itemsize - 1)
    return not (total * (count + _ROUNDED) * 2.0**-53 < half).all()
