"""Resized arrays: along each axis a sum of a few elements with constant weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from eqsat.base.numerics import HALVES, Array, is_float, np_dtype
from eqsat.frontends.terms.declined import Declined
from eqsat.program import composites, ops
from eqsat.program.term import Term

_UNROLLED_TAPS = 1 << 20  # positions and weights of one axis, at most


@dataclass(frozen=True)
class Axis:
    """One resized axis: its sizes before and after, and the scale that the coordinates are computed with."""

    before: int
    after: int
    scale: float


def select(x: Term, index: Array, axis: int) -> Term:
    """x[..., index, ...] for constant positions; a view if they repeat or are evenly spaced."""
    n, count = x.shape[axis], index.size
    if count and count % n == 0 and np.array_equal(index, np.arange(count) // (count // n)):
        times = count // n
        apart = (*x.shape[: axis + 1], times, *x.shape[axis + 1 :])
        repeated = ops.broadcast(ops.unsqueeze(x, axis + 1), apart)
        return ops.reshape(repeated, (*x.shape[:axis], count, *x.shape[axis + 1 :]))
    step = int(index[1] - index[0]) if count > 1 else 1
    if count and step > 0 and np.array_equal(index, index[0] + step * np.arange(count)):
        return ops.slice_(x, [int(index[0])], [int(index[-1]) + 1], [axis], [step])
    return ops.gather(x, ops.constant(index), axis)


# Coordinates: a position of the result in the input, in the type of the positions


def _half_pixel(at: Array, axis: Axis) -> Array:
    return (at + 0.5) / at.dtype.type(axis.scale) - 0.5


def _symmetric(at: Array, axis: Axis) -> Array:
    real = at.dtype.type
    adjustment = real(axis.after) / (axis.before * real(axis.scale))
    return axis.before / 2 * (1 - adjustment) + _half_pixel(at, axis)


def _align_corners(at: Array, axis: Axis) -> Array:
    """Of the whole size, as in onnxruntime; the standard's reference takes size times scale."""
    return at * 0.0 if axis.after == 1 else at * (axis.before - 1) / (axis.after - 1)


COORDINATES: dict[str, Callable[[Array, Axis], Array]] = {
    "align_corners": _align_corners,
    "asymmetric": lambda at, axis: at / at.dtype.type(axis.scale),
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _symmetric,
    "pytorch_half_pixel": lambda at, axis: _half_pixel(at, axis) if axis.after > 1 else at * 0.0,
}

ROUNDINGS: dict[str, Callable[[Array, Axis], Array]] = {
    "ceil": lambda at, axis: np.ceil(at),
    "ceil_if_smaller": lambda at, axis: np.ceil(at) if axis.scale < 1 else np.floor(at),
    "floor": lambda at, axis: np.floor(at),
    "round_prefer_ceil": lambda at, axis: np.floor(at + 0.5),
    "round_prefer_floor": lambda at, axis: np.ceil(at - 0.5),
}


# Taps: (position, weight) pairs of every position of the result


def _linear(distance: Array) -> Array:
    return np.maximum(0.0, 1 - np.abs(distance))


def _cubic(a: float) -> Callable[[Array], Array]:
    """Keys' kernel (Cubic convolution interpolation, IEEE ASSP 1981, equation 4)."""

    def weight(distance: Array) -> Array:
        d = np.abs(distance)
        near = (a + 2) * d**3 - (a + 3) * d**2 + 1
        far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, 0.0))

    return weight


def _taps(at: Array, reach: int, kernel: Callable[[Array], Array]) -> list[tuple[Array, Array]]:
    first = np.floor(at).astype(np.int64) - reach + 1
    return [(first + i, kernel(at - (first + i))) for i in range(2 * reach)]


def _weighted(x: Term, axis: int, taps: Sequence[tuple[Array, Array]], exclude_outside: bool) -> Term:
    """The weighted sum of the taps along one axis; positions outside are clamped, or left out."""
    n = x.shape[axis]
    if exclude_outside:
        weights = [np.where((where >= 0) & (where < n), weight, 0.0) for where, weight in taps]
        total = sum(weights)
        taps = [(where, weight / total) for (where, _), weight in zip(taps, weights, strict=True)]
    parts = []
    for where, weight in taps:
        if not np.any(weight):
            continue
        part = select(x, np.clip(where, 0, n - 1), axis)
        shape = [weight.size if i == axis else 1 for i in range(x.ndim)]
        scale = ops.constant(weight.astype(np_dtype(x.dtype)).reshape(shape))
        parts.append(part if np.all(weight == 1) else composites.mul(part, scale))
    return reduce(ops.add, parts)


def resample(x: Term, axes: dict[int, Axis], mode: str, coordinates: str, rounding: str, cubic: float = -0.75,
             exclude_outside: bool = False, precision: str = "float32") -> Term:  # fmt: skip
    """`x` with the given axes resized. Raises Declined for a mode that is not covered.

    Args:
        precision: the type of coordinates. onnxruntime computes them in float32, so that ties are decided alike.
    """
    if coordinates not in COORDINATES:
        raise Declined(f"coordinates '{coordinates}'")
    if mode != "nearest" and not is_float(x.dtype):
        raise Declined("weighted sums of integers")
    narrow = x.dtype
    if mode != "nearest" and x.dtype in HALVES:
        x = ops.cast(x, "float32")
    for i, axis in axes.items():
        if axis.after * 4 > _UNROLLED_TAPS:
            raise Declined("an axis too long to write out")
        if axis.before == axis.after and axis.scale == 1:
            continue
        if not axis.after:
            return ops.full(0, [axes[j].after if j in axes else n for j, n in enumerate(x.shape)], narrow)
        at = COORDINATES[coordinates](np.arange(axis.after, dtype=np_dtype(precision)), axis)
        if mode == "nearest":
            if rounding not in ROUNDINGS:
                raise Declined(f"rounding '{rounding}'")
            where = ROUNDINGS[rounding](at, axis).astype(np.int64)
            x = select(x, np.clip(where, 0, axis.before - 1), i)
        elif mode == "linear":
            x = _weighted(x, i, _taps(at, 1, _linear), exclude_outside)
        elif mode == "cubic":
            x = _weighted(x, i, _taps(at, 2, _cubic(cubic)), exclude_outside)
        else:
            raise Declined(f"mode '{mode}'")
    return ops.cast(x, narrow)
