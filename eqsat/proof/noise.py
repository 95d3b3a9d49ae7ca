"""How much rounding can change the results of a program: it runs again with every value moved a little.

This is Monte Carlo arithmetic (D. S. Parker, 1997). It estimates where bounds (`eqsat.proof.intervals`) grow too wide
to decide, as they do in deep programs. Values move by more than float64 rounds them, subnormal ones included.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from eqsat.base.numerics import Array, is_float
from eqsat.program.core import CoreProgram, Node, evaluate
from eqsat.proof.intervals import Exact, OutOfTime, meant

_SHIFT, _TINY = 2.0**-52, 2.0**-1073
SAMPLES = 3
_STILL = frozenset({"V", "Cat", "Gather", "Where"})
"""Operators that move values and compute none."""


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

    Args: as `eqsat.proof.intervals.enclose`, and
        clean: the outputs where nothing is moved.
        samples: how often the program runs.

    Raises:
        InputError: an index is out of range.
        OutOfTime: the deadline has passed.
        Overflow: an integer or a truth value comes of one that is beyond float64, or not defined.
    """
    flat = {name: array.reshape(-1) for name, array in inputs.items()}
    runs = []
    shifts: dict[Node, Array] = {}

    def shift(node: Node, value: Array) -> Array:
        """By how much a constant may be off."""
        if node not in shifts:
            bounds = meant(node, value, exact)
            whole = value == np.rint(value)  # carries no rounding: the third power of a negative number is one
            off = _SHIFT * np.abs(value) + _TINY + np.maximum(value - bounds.lo, bounds.hi - value)
            shifts[node] = np.where(whole, 0.0, off)
        return shifts[node]

    for seed in range(samples):
        rng = np.random.default_rng(seed)

        def moved(node: Node, value: Array, args: list[Array], rng=rng) -> Array:
            if time.monotonic() > deadline:
                raise OutOfTime
            if not is_float(node.dtype):
                if any(np.isnan(a).any() for a in args):
                    raise Overflow
                return value
            if node.op in _STILL:
                return value
            masks = not args or any(np.isneginf(a).any() for a in args)
            if not masks:
                value = np.where(np.isfinite(value), value, np.nan)
            elif (value == np.inf).any():
                value = np.where(value == np.inf, np.nan, value)
            sign = rng.integers(0, 2, value.shape, dtype=np.int8) * 2.0 - 1.0
            by = shift(node, value) if node.op in ("Const", "Full") else _SHIFT * np.abs(value) + _TINY
            return np.where(np.isfinite(value), value + sign * by, value)

        runs.append(evaluate(program.roots, flat, program.constants, program.opaque, "float64", moved))
    found = []
    for still, *others in zip(clean, *runs, strict=True):
        with np.errstate(invalid="ignore"):
            gaps = np.abs(np.stack(others).astype(np.float64) - still.reshape(-1).astype(np.float64))
        moved_most = float(gaps[np.isfinite(gaps)].max(initial=0.0))
        found.append(np.where(np.isfinite(gaps).all(0), moved_most, np.inf).reshape(still.shape))
    return found
