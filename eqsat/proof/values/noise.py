"""How much rounding can change the results of a program: it runs again with every value moved a little.

This is Monte Carlo arithmetic (D. S. Parker, 1997). It estimates where bounds (`eqsat.proof.values.enclosure`) grow
too wide to decide, as they do in deep programs. Values move by more than float64 rounds them, subnormal ones included.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from eqsat.base.numerics import Array, is_float
from eqsat.program.core import CoreProgram, Node, evaluate
from eqsat.proof.values.enclosure import Exact, OutOfTime, meant

_SHIFT, _TINY = 2.0**-52, 2.0**-1073
SAMPLES = 3
_STILL = frozenset({"V", "Cat", "Gather", "Where"})
"""Operators that move values and compute none."""

_LARGE = 1e100
"""Sums of products of values up to this size are in the range of float64."""


class Overflow(Exception):
    """A value that float64 cannot hold decides an integer or a truth value: what comes of it shows no error."""


def noise(
    program: CoreProgram,
    inputs: Mapping[str, Array],
    clean: Sequence[Array],
    exact: Exact,
    deadline: float,
    samples: int = SAMPLES,
) -> list[Array]:
    """By how much any element of each output moves, at most; infinite for elements that come of a value beyond float64,
    or not defined: what comes of it shows no error, as 1 / exp(1000) is 0.

    Args: as `eqsat.proof.values.enclosure.enclose`, and
        clean: the outputs where nothing is moved.
        samples: how often the program runs.

    Raises:
        InputError: an index is out of range.
        OutOfTime: the deadline has passed.
        Overflow: an integer or a truth value comes of one that is beyond float64, or not defined.
    """
    found = []
    runs = _runs(program, inputs, exact, deadline, samples, _as_errors)
    for still, *others in zip(clean, *runs, strict=True):
        with np.errstate(invalid="ignore"):
            gaps = np.abs(np.stack(others).astype(np.float64) - still.reshape(-1).astype(np.float64))
        moved_most = float(gaps[np.isfinite(gaps)].max(initial=0.0))
        found.append(np.where(np.isfinite(gaps).all(0), moved_most, np.inf).reshape(still.shape))
    return found


def valued(program: CoreProgram, inputs: Mapping[str, Array], exact: Exact, deadline: float) -> list[bool | None]:
    """Whether all elements of each output are finite (True) or none is (False), wherever rounding falls; None for
    others, and where values come near the end of the range of float64: infinities must be those of masks.

    Args and raises: as `noise`, but Overflow.
    """

    def in_range(node: Node, value: Array, args: list[Array]) -> Array:
        if is_float(node.dtype) and node.op not in _STILL and _overflows(node, value, args):
            raise Overflow
        return value

    try:
        runs = _runs(program, inputs, exact, deadline, SAMPLES, in_range)
    except Overflow:
        return [None] * len(program.roots)
    finite = [np.isfinite(np.stack(values).astype(np.float64)) for values in zip(*runs, strict=True)]
    return [True if x.all() else None if x.any() else False for x in finite]


def _runs(
    program: CoreProgram,
    inputs: Mapping[str, Array],
    exact: Exact,
    deadline: float,
    samples: int,
    checked: Callable[[Node, Array, list[Array]], Array],
) -> list[list[Array]]:
    """The flat outputs of samples, where each value that is computed is moved once it is `checked`."""
    flat = {name: array.reshape(-1) for name, array in inputs.items()}
    shifts: dict[Node, Array] = {}

    def shift(node: Node, value: Array) -> Array:
        """By how much a constant may be off."""
        if node not in shifts:
            bounds = meant(node, value, exact)
            whole = value == np.rint(value)  # carries no rounding: the third power of a negative number is one
            off = _SHIFT * np.abs(value) + _TINY + np.maximum(value - bounds.lo, bounds.hi - value)
            shifts[node] = np.where(whole, 0.0, off)
        return shifts[node]

    def moved(rng: np.random.Generator, node: Node, value: Array, args: list[Array]) -> Array:
        if time.monotonic() > deadline:
            raise OutOfTime
        value = checked(node, value, args)
        if not is_float(node.dtype) or node.op in _STILL:
            return value
        sign = rng.integers(0, 2, value.shape, dtype=np.int8) * 2.0 - 1.0
        by = shift(node, value) if node.op in ("Const", "Full") else _SHIFT * np.abs(value) + _TINY
        return np.where(np.isfinite(value), value + sign * by, value)

    changes = [partial(moved, np.random.default_rng(seed)) for seed in range(samples)]
    roots, constants, opaque = program.roots, program.constants, program.opaque
    return [evaluate(roots, flat, constants, opaque, "float64", change) for change in changes]


def _as_errors(node: Node, value: Array, args: list[Array]) -> Array:
    """A value with NaN where float64 cannot hold it, so that this is seen in all that comes of it.

    Raises Overflow where an integer or a truth value would hide it.
    """
    if not is_float(node.dtype):
        if any(np.isnan(a).any() for a in args):
            raise Overflow
        return value
    if node.op in _STILL:
        return value
    masks = not args or any(np.isneginf(a).any() for a in args)
    if not masks:
        return np.where(np.isfinite(value), value, np.nan)
    return np.where(value == np.inf, np.nan, value) if (value == np.inf).any() else value


def _overflows(node: Node, value: Array, args: Sequence[Array]) -> bool:
    """Whether some value is not finite although all that it comes from is, or so large that what comes of it may not
    be."""
    finite = np.isfinite(value)
    if np.abs(value[finite]).max(initial=0.0) > _LARGE:
        return True
    if finite.all():
        return False
    if not args:  # minus infinity is a mask, others may have been too large for their types
        return not np.isneginf(value[~finite]).all()
    if node.op in ("Un", "Bin"):
        return bool((~finite & np.logical_and.reduce([np.isfinite(a) for a in args])).any())
    return node.op == "Opaque" or "prod" in node.attrs or all(np.isfinite(a).all() for a in args)
