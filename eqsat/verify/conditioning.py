"""Constants are computed with rounding errors made larger, at random, which shows where rounding hides a value.

(1.1 + 2**53) - 2**53 is 2 in float64, and exp(-1000) is 0. A constant that is stored as 2 or 0 agrees with these to the
last bit, and is neither 1.1 nor above zero. If each result on the way is moved by a little more than it may be rounded,
the first is any small number. So a constant is taken for a computation only if it is close to that then, too (J.
Vignes, "A stochastic arithmetic for reliable scientific computation", 1993). The movements are drawn anew for each
check, so that no certificate can know of them.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

import numpy as np

from eqsat.base.numerics import ELEMENTWISE, Array, is_float
from eqsat.errors import CheckFailed
from eqsat.program.core import Node, evaluate
from eqsat.program.core_table import CAST

_LARGEST = 2.0**53
"""Whole numbers below are added and multiplied exactly."""

_LEAST = 2.0**-500
"""Products of two numbers from here on do not underflow."""

_SHRINK = frozenset({"exp", "sigmoid", "pow", "mul", "div", "reciprocal"})
"""Functions that may give zero, or digits that are lost, where no operand is zero."""


def shaken(
    roots: Sequence[Node], meanings: Mapping[Node, Array], constants: Mapping[str, Array], by: float
) -> list[Array]:
    """The flat values of some constants in float64, with each result on the way moved at random.

    Args:
        meanings: values of float64 that are not computed (`eqsat.verify.meaning`).
        constants: digest to stored values.
        by: how far a result of 1 is moved at most.

    Raises:
        CheckFailed: a result on the way overflows, or is so small that digits are lost.
    """
    rng = np.random.default_rng(secrets.randbits(64))

    def moved(node: Node, value: Array, args: list[Array]) -> Array:
        if not _rounds(node):
            return value
        _see_range(node, value, args)
        return value + rng.uniform(-by, by, value.shape) * _addends(node, value, args)

    return evaluate(roots, {}, constants, precision="float64", change=moved, known=meanings)


def _rounds(node: Node) -> bool:
    if not node.args or not is_float(node.dtype) or not is_float(node.args[0].dtype):
        return False
    if node.op == "Un" and node.attrs[0].startswith(CAST):
        return False
    if node.op in ("Un", "Bin"):
        return "exact" not in ELEMENTWISE[node.attrs[0]].traits
    return node.op == "MM" or (node.op == "Red" and node.attrs[0] in ("sum", "prod"))


def _addends(node: Node, value: Array, args: Sequence[Array]) -> Array:
    """The size that a rounding error is relative to: the sum of the addends' magnitudes, or else the result. Zero where
    whole numbers give a whole number, which is exact."""
    total, count, exact = np.abs(value), 1, np.zeros(value.shape, np.bool_)
    whole = [array == np.rint(array) for array in args]
    if node.op == "MM" or node.attrs[0] == "sum":
        sizes = {arg: np.abs(array) for arg, array in zip(node.args, args, strict=True)}
        [total] = evaluate([node], {}, {}, precision="float64", known=sizes)
        count = node.attrs[2] if node.op == "MM" else node.attrs[1]
        exact[:] = all(each.all() for each in whole)
    elif node.op == "Bin" and node.attrs[0] in ("add", "sub", "mul"):
        exact = whole[0] & whole[1]
    inexact = np.isfinite(total) & ~(exact & (total < _LARGEST))
    return np.where(inexact, total, 0.0) * count**0.5


def _see_range(node: Node, value: Array, args: Sequence[Array]) -> None:
    """Raises CheckFailed where a result overflows, or loses digits as it is so small."""
    elementwise = node.op in ("Un", "Bin")
    finite = [np.isfinite(a) for a in args]
    sound = np.logical_and.reduce(finite) if elementwise else np.asarray(all(f.all() for f in finite))
    if (sound & ~np.isfinite(value)).any():
        raise CheckFailed("a result on the way to a constant is not finite")
    if elementwise and node.attrs[0] in _SHRINK:
        lost = sound & np.logical_and.reduce([a != 0 for a in args]) & (np.abs(value) < _LEAST)
    elif node.op == "MM" or (node.op == "Red" and node.attrs[0] == "prod"):
        lost = np.concatenate([(a != 0) & (np.abs(a) < _LEAST) for a in args])
        if node.op == "Red":
            rows = (args[0] != 0).reshape(value.size, -1).all(1)
            lost = np.concatenate([lost, rows & (np.abs(value) < _LEAST)])
    else:
        return
    if lost.any():
        raise CheckFailed("a result on the way to a constant is too small for float64")
