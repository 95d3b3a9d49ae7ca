"""Elementwise rules on every value of a short float: no dims and no layouts, so that one element stands for all.

A rule of one operand is evaluated on all 65 536 values of float16, and of bfloat16. One of several is evaluated on all
combinations of values of every sign and exponent, with the zeros, infinities, extremes and NaN among them. An `exact`
rule must give the same bits there. Of a `reassociating` rule both sides are computed in float64, so that only the last
places may differ. A `range-changing` one must agree where both sides are finite, on numbers whose powers do not vanish.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from eqsat.base.numerics import HALVES, INTS, Array, np_dtype
from eqsat.evidence.instances import IllFormed, Instance, Unfit
from eqsat.evidence.reference import Undefined, apply, bits_agree
from eqsat.language.rule import Rule, Var

_PATTERNS = 1 << 16
"""Values of a short float."""

_INSTANCES = 4
"""Choices of the numbers and functions that a rule names, for each element type."""

_DRAWN = 400

_GENERIC = 256
"""Random points at which both sides of a rule must have values, or neither."""

_TOLERANCE = 2.0**-30
_MODERATE = 256.0
"""Magnitude up to which powers of e, and quotients of two of them, are normal numbers of float64."""


def check_values(rule: Rule) -> tuple[int, str]:
    """The number of points on which both sides of an elementwise rule were compared, and where they differ first.

    The second is empty where they agree on all.
    """
    points = 0
    for dtype, held_in in _types(rule):
        for instance in _instances(rule, dtype):
            try:
                with np.errstate(all="ignore"):
                    size, wrong = _compared(instance, held_in)
            except Undefined:
                continue
            except IllFormed:
                return points, f"{rule.name} in {dtype} has no value on the right alone"
            points += size
            if wrong:
                return points, f"{rule.name} in {dtype} {wrong}"
    return points, ""


def defined_apart(rule: Rule) -> str:
    """Where one side of an elementwise rule has a value and the other has none, at points that are not special.

    Empty if nowhere, or if what has the value is an operand itself.
    A proof may go through a side that has no value: sqrt(a * a) is abs(a), and would be a by way of sqrt(a) * sqrt(a).
    An operand can stand for what equals it where that has a value, and contradicts nothing.
    """
    for instance in _instances(rule, "float64"):
        draw = np.random.default_rng(len(rule.name))
        leaves = {name: draw.uniform(-4, 4, _GENERIC) for name, t in instance.types.items() if t == "float64"}
        if len(leaves) < len(instance.types):
            continue
        instance.resize(_GENERIC)
        try:
            with np.errstate(all="ignore"):
                left, right = instance.sides(leaves)
        except Undefined:
            continue
        if left.dtype.kind != "f":
            continue
        lost = np.isnan(right) & np.isfinite(left)
        if not isinstance(rule.right, Var):
            lost |= np.isnan(left) & np.isfinite(right)
        if lost.any():
            i = int(np.flatnonzero(lost)[0])
            place = ", ".join(f"{name}={array[i]:.3g}" for name, array in leaves.items())
            return f"{rule.name} has a value on one side alone, at {place}: {left[i]:.3g} and {right[i]:.3g}"
    return ""


def _compared(instance: Instance, held_in: str) -> tuple[int, str]:
    """The points on which an instance was compared, and where its sides differ first."""
    types = [held_in if t == "float64" else t for t in instance.types.values()]
    shares = [values(t, len(types)) for t in types]
    leaves = _all_combinations(instance, shares)
    exact = instance.rule.numerics == "exact"
    if instance.rule.numerics == "range-changing":
        leaves = {name: _moderate(array) for name, array in leaves.items()}
    instance.resize(prod(map(len, shares)))
    left, right = instance.sides(leaves)
    agree = bits_agree(left, right) if exact else _close(instance, left, right, leaves)
    if agree.all():
        return left.size, ""
    i = int(np.flatnonzero(~agree)[0])
    place = ", ".join(f"{name}={array[i]}" for name, array in leaves.items())
    return left.size, f"at {place}: {left[i]} and {right[i]}"


@cache
def values(dtype: str, operands: int) -> Array:
    """The values of a type that a rule of so many operands is tried on, in all combinations."""
    if dtype == "bool":
        return np.array([False, True])
    whole = np_dtype(dtype)
    if whole.kind in "iu":
        ends = np.iinfo(whole)
        return np.array([0, 1, 2, 3, 7, ends.min, ends.min + 1, ends.max // 2, ends.max - 1, ends.max], dtype=whole)
    if dtype not in HALVES:
        return values("bfloat16", operands).astype(whole)
    every = np.arange(_PATTERNS, dtype=np.uint16)
    if operands > 1:
        info = ml_dtypes.finfo(whole)
        ends = np.array([0, 1, info.max, info.tiny, info.smallest_subnormal, np.inf, np.nan], dtype=whole)
        most = {2: 512, 3: 64}.get(operands, 16)
        spread = np.linspace(0, _PATTERNS - 1, most, dtype=np.uint16)  # of every sign and exponent
        every = np.unique(np.concatenate([np.concatenate([ends, -ends]).view(np.uint16), spread]))
    # A signalling NaN is made quiet, as arithmetic makes it: of its power of zero libraries give one or NaN.
    with np.errstate(invalid="ignore"):
        every[np.isnan(every.view(whole))] |= np.array(np.nan, dtype=whole).view(np.uint16)
    return every.view(whole)


def _types(rule: Rule) -> list[tuple[str, str]]:
    """The element types in which both sides are computed, and those whose values their operands have."""
    if rule.numerics == "exact":
        return [(dtype, dtype) for dtype in (*HALVES, *INTS, "bool")]
    return [("float64", dtype) for dtype in HALVES]


def _instances(rule: Rule, dtype: str) -> Iterator[Instance]:
    """Instances of a rule whose guard holds, one for each choice of its numbers and functions."""
    draw = random.Random(f"{rule.name}/{dtype}/values")
    seen: set[str] = set()
    for _ in range(_DRAWN):
        try:
            instance = Instance(rule, draw, dtype)
        except Unfit:
            continue
        if all(map(instance.holds, rule.when)):
            chosen = repr((sorted(instance.types.items()), instance.chosen))
            if chosen not in seen:
                seen.add(chosen)
                yield instance
        if len(seen) == _INSTANCES:
            return


def _all_combinations(instance: Instance, shares: Sequence[Array]) -> dict[str, Array]:
    """Arrays, one for each operand, that hold all combinations of its values with those of the others."""
    grids = np.meshgrid(*shares, indexing="ij")
    types = instance.types.items()
    return {name: grid.reshape(-1).astype(np_dtype(t)) for (name, t), grid in zip(types, grids, strict=True)}


def _moderate(array: Array) -> Array:
    return np.where(np.abs(array) > _MODERATE, array.dtype.type(1), array) if array.dtype.kind == "f" else array


def _close(instance: Instance, left: Array, right: Array, leaves: Mapping[str, Array]) -> Array:
    """Where both sides differ no more than the class of the rule allows, on the scale of the terms that they add."""
    one, other = instance.sides({name: np.abs(array) for name, array in leaves.items()}, _magnitude)
    least = 1.0 if instance.rule.numerics == "range-changing" else 0.0  # a power is rounded at the scale of one
    near = np.abs(left - right) <= _TOLERANCE * np.fmax(least, np.fmax(one, other))
    finite = np.isfinite(left) & np.isfinite(right)
    if instance.rule.numerics == "range-changing":
        return near | ~finite
    return np.where(finite, near, np.isfinite(left) == np.isfinite(right))


def _magnitude(op: str, attrs: tuple[Any, ...], args: Sequence[Array]) -> Array:
    """What an operator makes of magnitudes where nothing cancels."""
    nothing_cancels = {("Bin", "sub"): "add", ("Un", "neg"): "abs"}
    found = apply(op, (nothing_cancels.get((op, attrs[0]), attrs[0]), *attrs[1:]) if attrs else attrs, args)
    return np.abs(found)
