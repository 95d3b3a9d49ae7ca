"""Intervals: lower and upper bounds of exact values, and of the results of operators on them.

Every bound is computed in float64 and moved outward by what the operation may have rounded, subnormal numbers included
(R. E. Moore, Interval Analysis, 1966; N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.1
for sums). So the value over the real numbers lies between the bounds, and two programs whose bounds do not overlap
differ. Bounds are wider than they need be where values depend on each other, but never wrong.

A value that does not exist (a division by zero, the logarithm of a negative number) has NaN as both bounds. Where a
value may exist or not, or where an integer may overflow, the bounds are infinite: nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from eqsat.base.numerics import INTS, Array, erf, np_dtype

_EPS = 2.0**-52
_TINY = 2.0**-1074
_FUNCTION_ULPS = 8.0
"""Units in the last place by which NumPy's functions may be off: it promises 4 and is better on most machines."""

_POWER_ULPS = 64.0
_GRID, _EXACT_SUM = 2.0**10, 2.0**40
"""Sums and products of multiples of 1/_GRID are exact while their magnitudes stay below _EXACT_SUM."""


class Interval(NamedTuple):
    """Bounds of a flat array, as float64 arrays of its size."""

    lo: Array
    hi: Array

    @property
    def undefined(self) -> Array:
        """Where no value exists."""
        return np.asarray(np.isnan(self.lo))

    @property
    def bounded(self) -> Array:
        return np.asarray(np.isfinite(self.lo) & np.isfinite(self.hi))

    def shaped(self, shape: tuple[int, ...]) -> Interval:
        return Interval(self.lo.reshape(shape), self.hi.reshape(shape))

    def apart(self, other: Interval) -> Array:
        """Where both exist and cannot be equal."""
        with np.errstate(invalid="ignore"):
            return self.bounded & other.bounded & ((self.hi < other.lo) | (other.hi < self.lo))


_One = Callable[[Interval], Interval]
_Two = Callable[[Interval, Interval], Interval]


def point(values: Array) -> Interval:
    """Arrays as bounds of themselves; of large integers, which float64 rounds, a little wider."""
    wide = values.astype(np.float64)
    if values.dtype.kind == "i" and (np.abs(wide) >= 2**53).any():
        return Interval(np.nextafter(wide, -np.inf), np.nextafter(wide, np.inf))
    return Interval(wide, wide)


def middle_of(a: Interval) -> Array:
    """Values in the middle between the bounds, which do not overflow."""
    return np.where(a.lo == a.hi, a.lo, a.lo / 2 + a.hi / 2)


def where_undefined(where: Array | np.bool_, a: Interval) -> Interval:
    """The bounds, but no value exists at these places."""
    return Interval(np.where(where, np.nan, a.lo), np.where(where, np.nan, a.hi))


def unknown_where(where: Array | np.bool_, a: Interval) -> Interval:
    """The bounds, but nothing is known at these places."""
    return Interval(np.where(where, -np.inf, a.lo), np.where(where, np.inf, a.hi))


def outward(lo: Array, hi: Array, ulps: float = 0.0) -> Interval:
    """Bounds that were computed, moved outward by half a unit in the last place and `ulps` more.

    A bound that overflowed lies beyond the largest number; NaN, as from `inf - inf`, says nothing.
    """
    down = np.where(np.isinf(lo), lo, lo - ulps * (_EPS * np.abs(lo) + _TINY))
    up = np.where(np.isinf(hi), hi, hi + ulps * (_EPS * np.abs(hi) + _TINY))
    bounds = Interval(np.nextafter(down, -np.inf), np.nextafter(up, np.inf))
    return unknown_where(np.isnan(down) | np.isnan(up), bounds)


def integral(a: Interval, dtype: str) -> Interval:
    """Bounds of what an integer type holds; nothing is known of one that may overflow."""
    if dtype not in INTS:
        return a
    info = np.iinfo(np_dtype(dtype))
    beyond = (a.lo < float(info.min)) | (a.hi > float(info.max))
    return unknown_where(beyond, Interval(np.ceil(a.lo), np.floor(a.hi)))


# Sums and products of two


def _exact_or_outward(value: Array, error: Array, bounds: Interval) -> Interval:
    """The value itself where nothing was rounded: the error of the rounded result is 0."""
    exact = (error == 0) & np.isfinite(value)
    return Interval(np.where(exact, value, bounds.lo), np.where(exact, value, bounds.hi))


def _add(a: Interval, b: Interval) -> Interval:
    lo, hi = a.lo + b.lo, a.hi + b.hi
    bounds = outward(lo, hi)
    # Knuth's two-sum: what the rounded sum of two numbers leaves out, exactly.
    part = lo - a.lo
    error = (a.lo - (lo - part)) + (b.lo - part)
    return _exact_or_outward(lo, np.where((a.lo == a.hi) & (b.lo == b.hi), error, np.nan), bounds)


def _neg(a: Interval) -> Interval:
    return Interval(-a.hi, -a.lo)


def _sub(a: Interval, b: Interval) -> Interval:
    return _add(a, _neg(b))


def _product_error(a: Array, b: Array, product: Array) -> Array:
    """What the rounded product leaves out (Dekker 1971); NaN where numbers are too small or large to say so."""
    error = _low_product(a, b, product)
    sayable = (np.abs(product) > 1e-250) & (np.abs(product) < 1e250) & (np.abs(a) < 1e250) & (np.abs(b) < 1e250)
    return np.where((a == 0) | (b == 0), 0.0, np.where(sayable, error, np.nan))


def _low_product(a: Array, b: Array, product: Array) -> Array:
    def split(x: Array) -> tuple[Array, Array]:
        wide = x * 134217729.0  # 2^27 + 1
        high = wide - (wide - x)
        return high, x - high

    (a_high, a_low), (b_high, b_low) = split(a), split(b)
    return a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)


def _mul(a: Interval, b: Interval) -> Interval:
    corners = [x * y for x in a for y in b]
    # 0 times what has no bound is 0.
    zeros = [(x == 0) | (y == 0) for x in a for y in b]
    corners = [np.where(zero, 0.0, corner) for zero, corner in zip(zeros, corners, strict=True)]
    bounds = outward(np.minimum.reduce(corners), np.maximum.reduce(corners))
    error = np.where((a.lo == a.hi) & (b.lo == b.hi), _product_error(a.lo, b.lo, corners[0]), np.nan)
    zero = ((a.lo == 0) & (a.hi == 0)) | ((b.lo == 0) & (b.hi == 0))
    return _exact_or_outward(corners[0], np.where(zero, 0.0, error), bounds)


def _div(a: Interval, b: Interval) -> Interval:
    corners = [x / y for x in a for y in b]
    bounds = outward(np.minimum.reduce(corners), np.maximum.reduce(corners))
    quotient = corners[0]
    points = (a.lo == a.hi) & (b.lo == b.hi)
    exact = points & (quotient * b.lo == a.lo) & (_product_error(quotient, b.lo, a.lo) == 0)
    bounds = _exact_or_outward(quotient, np.where(exact, 0.0, np.nan), bounds)
    bounds = unknown_where((b.lo <= 0) & (b.hi >= 0), bounds)
    return where_undefined((b.lo == 0) & (b.hi == 0), bounds)


def _truncated(a: Interval) -> Interval:
    return Interval(np.trunc(a.lo), np.trunc(a.hi))


def _mod(a: Interval, b: Interval) -> Interval:
    """a - floor(a / b) * b; between 0 and b where the quotient is not known."""
    quotient = _div(a, b)
    floor = Interval(np.floor(quotient.lo), np.floor(quotient.hi))
    known = _sub(a, _mul(floor, b))
    sure = floor.lo == floor.hi
    wide = unknown_where(~np.isfinite(quotient.lo), Interval(np.minimum(b.lo, 0.0), np.maximum(b.hi, 0.0)))
    bounds = Interval(np.where(sure, known.lo, wide.lo), np.where(sure, known.hi, wide.hi))
    return where_undefined(quotient.undefined, bounds)


def _pow(a: Interval, b: Interval) -> Interval:
    whole = (b.lo == b.hi) & (b.lo == np.rint(b.lo)) & (np.abs(b.lo) < 2**53)
    exponent = np.where(whole, b.lo, 0.0)
    # Of a positive base, monotone in both; of any base, whole powers are those of the magnitude, with a sign.
    positive = _corners_of_power(a, b)
    size = _abs(a)
    powers = _corners_of_power(size, Interval(exponent, exponent))
    odd = exponent % 2 != 0
    negative = Interval(np.where(odd, -powers.hi, powers.lo), np.where(odd, -powers.lo, powers.hi))
    # An odd power of a base on both sides of 0.
    low = _corners_of_power(Interval(np.maximum(-a.lo, 0), np.maximum(-a.lo, 0)), Interval(exponent, exponent))
    high = _corners_of_power(Interval(np.maximum(a.hi, 0), np.maximum(a.hi, 0)), Interval(exponent, exponent))
    around = Interval(np.where(odd, -low.hi, powers.lo), np.where(odd, high.hi, powers.hi))
    lo = np.where(a.lo > 0, positive.lo, np.where(a.hi < 0, negative.lo, around.lo))
    hi = np.where(a.lo > 0, positive.hi, np.where(a.hi < 0, negative.hi, around.hi))
    known = (a.lo > 0) | (whole & ((exponent >= 0) | (a.hi < 0)))
    zero = (a.lo == 0) & (a.hi == 0) & (b.lo > 0)
    bounds = unknown_where(~known & ~zero, Interval(np.where(zero, 0.0, lo), np.where(zero, 0.0, hi)))
    one = whole & (exponent == 0)
    bounds = Interval(np.where(one, 1.0, bounds.lo), np.where(one, 1.0, bounds.hi))
    itself = whole & (exponent == 1)
    bounds = Interval(np.where(itself, a.lo, bounds.lo), np.where(itself, a.hi, bounds.hi))
    point = (b.lo == b.hi) & ~whole & (a.hi < 0)
    return where_undefined(point, bounds)


def _corners_of_power(a: Interval, b: Interval) -> Interval:
    corners = [np.power(x, y) for x in a for y in b]
    bounds = outward(np.minimum.reduce(corners), np.maximum.reduce(corners), _POWER_ULPS)
    whole = np.logical_and.reduce([(c == np.rint(c)) & (np.abs(c) < 2**46) for c in (*a, *b, *corners)])
    exact = whole & (a.lo == a.hi) & (b.lo == b.hi)  # a whole number this small, computed this well, is the right one
    return Interval(np.where(exact, corners[0], np.maximum(bounds.lo, 0.0)), np.where(exact, corners[0], bounds.hi))


def _compared(surely: Callable[[Interval, Interval], Array], never: Callable[[Interval, Interval], Array]) -> _Two:
    """A comparison: 1, 0, or between the two where the bounds do not decide."""

    def bounds(a: Interval, b: Interval) -> Interval:
        yes, no = surely(a, b), never(a, b)
        return Interval(np.where(yes, 1.0, 0.0), np.where(no, 0.0, 1.0))

    return bounds


# Functions of one


def _monotone(f: Callable[[Array], Array], least: float = -np.inf, most: float = np.inf) -> _One:
    """A non-decreasing function with values between two numbers."""

    def bounds(a: Interval) -> Interval:
        found = outward(f(a.lo), f(a.hi), _FUNCTION_ULPS)
        return where_undefined(a.undefined, Interval(np.maximum(found.lo, least), np.minimum(found.hi, most)))

    return bounds


def _exactly(f: Callable[[Array], Array]) -> _One:
    """A non-decreasing function that never rounds."""
    return lambda a: Interval(f(a.lo), f(a.hi))


def _on(least: float, bounds: _One, *, closed: bool = False) -> _One:
    """A function that has values only above `least` (and at it where `closed`)."""

    def inside(a: Interval) -> Interval:
        found = bounds(Interval(np.maximum(a.lo, least), np.maximum(a.hi, least)))
        maybe = (a.lo < least) | ((a.lo == least) & (not closed))
        return where_undefined(a.undefined | (a.hi < least), unknown_where(maybe, found))

    return inside


def _abs(a: Interval) -> Interval:
    lo = np.where(a.lo > 0, a.lo, np.where(a.hi < 0, -a.hi, 0.0))
    return where_undefined(a.undefined, Interval(lo, np.maximum(-a.lo, a.hi)))


def _wave(f: Callable[[Array], Array]) -> _One:
    """Sine or cosine: it changes by no more than its argument does."""

    def bounds(a: Interval) -> Interval:
        middle = middle_of(a)
        reach = np.nextafter(np.maximum(a.hi - middle, middle - a.lo), np.inf) * (a.lo != a.hi)
        value = f(middle)
        found = outward(value - reach, value + reach, 2 * _FUNCTION_ULPS)
        wide = np.isnan(found.lo) | ~np.isfinite(reach) | ~a.bounded
        lo, hi = (np.where(wide, end, np.clip(x, -1.0, 1.0)) for x, end in zip(found, (-1.0, 1.0), strict=True))
        return where_undefined(a.undefined, Interval(lo, hi))

    return bounds


def _sqrt(a: Interval) -> Interval:
    root = np.sqrt(a.lo)
    exact = (a.lo == a.hi) & (root * root == a.lo) & (_product_error(root, root, a.lo) == 0)
    bounds = outward(root, np.sqrt(a.hi))
    lo = np.maximum(bounds.lo, 0.0)
    return _exact_or_outward(root, np.where(exact, 0.0, np.nan), Interval(lo, bounds.hi))


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))  # never overflows, and is not lost beside 1 where it is the result
    return np.where(x < 0, small / (1 + small), 1 / (1 + small))


def cast(a: Interval, dtype: str) -> Interval:
    """Bounds of a value as another type; floats are not rounded."""
    if dtype == "bool":
        zero, never = (a.lo == 0) & (a.hi == 0), (a.lo > 0) | (a.hi < 0)
        return where_undefined(a.undefined, Interval(np.where(never, 1.0, 0.0), np.where(zero, 0.0, 1.0)))
    return _truncated(a) if dtype in INTS else a


# Many


def _sum_error(total: Array, magnitudes: Array, count: int) -> Array:
    """By how much a float64 sum of `count` rounded products may be off, in any order."""
    return (count + 4) * (_EPS * magnitudes + _TINY) * (1 + (count + 4) * _EPS) + _EPS * np.abs(total)


def _on_grid(*arrays: Array) -> bool:
    return all(bool((x * _GRID == np.rint(x * _GRID)).all()) for x in arrays)


def _summed(a: Interval) -> Interval:
    count = a.lo.shape[1]
    lo, hi = a.lo.sum(1), a.hi.sum(1)
    low, high = np.abs(a.lo).sum(1), np.abs(a.hi).sum(1)
    if _on_grid(*a) and max(low.max(initial=0.0), high.max(initial=0.0)) < _EXACT_SUM:
        return Interval(lo, hi)
    bounds = outward(lo - _sum_error(lo, low, count), hi + _sum_error(hi, high, count))
    return where_undefined(a.undefined.any(1), bounds)


def _multiplied(a: Interval) -> Interval:
    result = Interval(a.lo[:, 0], a.hi[:, 0])
    for i in range(1, a.lo.shape[1]):
        factor = Interval(a.lo[:, i], a.hi[:, i])
        result = where_undefined(result.undefined | factor.undefined, _mul(result, factor))
    return result


def _largest(a: Interval) -> Interval:
    return Interval(a.lo.max(1), a.hi.max(1))


def _place_of_largest(a: Interval) -> Interval:
    """Between the first and the last element that may be the largest; the first of equal ones counts."""
    may = np.greater_equal(a.hi, a.lo.max(1, keepdims=True))
    first = may.argmax(1)
    last = a.lo.shape[1] - 1 - may[:, ::-1].argmax(1)
    # An element that certainly reaches what all later ones can reach is before them.
    beats = np.greater_equal(a.lo, a.hi.max(1, keepdims=True))
    last = np.where(beats.any(1), np.minimum(last, beats.argmax(1)), last)
    bounds = Interval(first.astype(np.float64), last.astype(np.float64))
    return where_undefined(a.undefined.any(1), bounds)


def _negated(bounds: _One) -> _One:
    return lambda a: bounds(_neg(a))


def matrix_product(a: Interval, b: Interval) -> Interval:
    """a[B, M, K] @ b[B, K, N] by midpoints and radii (S. M. Rump, Fast and parallel interval arithmetic, 1999)."""
    count = a.lo.shape[2]
    undefined, unbounded = (
        np.logical_or.reduce(x, 2)[:, :, None] | np.logical_or.reduce(y, 1)[:, None, :]
        for x, y in ((a.undefined, b.undefined), (~a.bounded, ~b.bounded))
    )
    (x, dx), (y, dy) = (_ball(side) for side in (a, b))
    value = x @ y
    magnitude = np.abs(x) @ np.abs(y)
    radius = np.zeros_like(value)
    if not (_on_grid(x, y) and magnitude.max(initial=0.0) * _GRID < _EXACT_SUM):
        radius = _sum_error(value, magnitude, count)
    if dx.any() or dy.any():
        spread = np.abs(x) @ dy + dx @ (np.abs(y) + dy)
        radius = radius + spread * (1 + (2 * count + 8) * _EPS) + (count + 4) * _TINY
    exact = radius == 0
    bounds = outward(value - radius, value + radius)
    found = Interval(np.where(exact, value, bounds.lo), np.where(exact, value, bounds.hi))
    found = where_undefined(undefined, unknown_where(unbounded, found))
    return found


def _ball(a: Interval) -> tuple[Array, Array]:
    """Middles and radii; both 0 where there are no finite bounds."""
    middle = np.where(a.bounded, middle_of(a), 0.0)
    radius = np.nextafter(np.maximum(a.hi - middle, middle - a.lo), np.inf)
    return middle, np.where(a.bounded & (a.lo != a.hi), radius, 0.0)


_log = _on(0.0, _monotone(np.log))
_root = _on(0.0, _sqrt, closed=True)


def _inverse(a: Interval) -> Interval:
    return _div(Interval(np.ones_like(a.lo), np.ones_like(a.hi)), a)


def _rsqrt(a: Interval) -> Interval:
    return where_undefined(a.undefined | (a.hi < 0), _inverse(_root(a)))


UNARY: dict[str, _One] = {
    "neg": _neg,
    "abs": _abs,
    "sqrt": _root,
    "rsqrt": _rsqrt,
    "reciprocal": _inverse,
    "exp": _monotone(np.exp, least=0.0),
    "log": _log,
    "log1p": _on(-1.0, _monotone(np.log1p)),
    "erf": _monotone(erf, -1.0, 1.0),
    "tanh": _monotone(np.tanh, -1.0, 1.0),
    "sigmoid": _monotone(_sigmoid, 0.0, 1.0),
    "relu": _exactly(lambda x: np.maximum(x, 0.0)),
    "sin": _wave(np.sin),
    "cos": _wave(np.cos),
    "floor": _exactly(np.floor),
    "ceil": _exactly(np.ceil),
    "round": _exactly(np.rint),
    "sign": _exactly(np.sign),
    "not": lambda a: Interval(1.0 - a.hi, 1.0 - a.lo),
}
BINARY: dict[str, _Two] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "pow": _pow,
    "min": lambda a, b: Interval(np.minimum(a.lo, b.lo), np.minimum(a.hi, b.hi)),
    "max": lambda a, b: Interval(np.maximum(a.lo, b.lo), np.maximum(a.hi, b.hi)),
    "mod": _mod,
    "and": lambda a, b: Interval(np.minimum(a.lo, b.lo), np.minimum(a.hi, b.hi)),
    "or": lambda a, b: Interval(np.maximum(a.lo, b.lo), np.maximum(a.hi, b.hi)),
    "equal": _compared(
        lambda a, b: (a.lo == a.hi) & (b.lo == b.hi) & (a.lo == b.lo), lambda a, b: (a.hi < b.lo) | (b.hi < a.lo)
    ),
    "less": _compared(lambda a, b: a.hi < b.lo, lambda a, b: a.lo >= b.hi),
    "less_equal": _compared(lambda a, b: a.hi <= b.lo, lambda a, b: a.lo > b.hi),
    "greater": _compared(lambda a, b: a.lo > b.hi, lambda a, b: a.hi <= b.lo),
    "greater_equal": _compared(lambda a, b: a.lo >= b.hi, lambda a, b: a.hi < b.lo),
}
INTEGER: dict[str, _Two] = {
    "div": lambda a, b: _truncated(_div(a, b)),
    "pow": lambda a, b: unknown_where(b.lo < 0, _pow(a, b)),
}
"""Functions that mean something else on integers."""

REDUCTIONS: dict[str, _One] = {
    "sum": _summed,
    "prod": _multiplied,
    "max": _largest,
    "min": lambda a: Interval(a.lo.min(1), a.hi.min(1)),
    "argmax": _place_of_largest,
    "argmin": _negated(_place_of_largest),
}
"""Over the second axis."""
