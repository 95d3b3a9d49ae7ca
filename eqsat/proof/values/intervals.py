"""Lower and upper bounds of the exact values of a program at one input.

Every bound is computed in float64 and moved outward by what the operation may have rounded, subnormal numbers included
(R. E. Moore, Interval Analysis, 1966; N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.1
for sums). So the value over the real numbers lies between the bounds, and two programs whose bounds do not overlap
differ. Bounds are wider than they need be where values depend on each other, but never wrong.

A value that does not exist (a division by zero, the logarithm of a negative number) has NaN as both bounds. Where a
value may exist or not, or where an integer may overflow, the bounds are infinite: nothing is known.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from eqsat.base.numerics import INTS, Array, erf, is_float, np_dtype, take
from eqsat.layout.arithmetic import Layout
from eqsat.program.core import CAST, CoreProgram, Node, topological
from eqsat.program.evaluation import Arrays, Operand, read
from eqsat.proof.normal_form.scalars import rational

_EPS = 2.0**-52
_TINY = 2.0**-1074
_LARGEST = np.finfo(np.float64).max
_FUNCTION_ULPS = 8.0
"""Units in the last place by which NumPy's functions may be off: it promises 4 and is better on most machines."""

_POWER_ULPS = 64.0
_LOOSE_ULPS = 4.0
"""Of its own type, by which a constant may be off that was rounded, or computed from others ahead of time."""

_MOST_MISSING = 12
"""Binary exponents that no element of a constant has between two that some have, and that still are of one scale."""

_MOST_READ = 64
"""Different values of a constant that are read as simplest rationals: divisors are, weights are taken as they are."""

_OPAQUE_ERROR = 1e-5
"""Of the largest element: what operators that are carried, and run in their own types, may round."""

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


class OutOfTime(Exception):
    """The bounds were not finished in time."""


Exact = Collection[tuple[object, ...]]
_One = Callable[[Interval], Interval]
_Two = Callable[[Interval, Interval], Interval]


def constants_of(program: CoreProgram) -> set[tuple[object, ...]]:
    """The constants of a program, each by what makes it equal to one of another program."""
    return {node.attrs for node in topological(program.roots) if node.op in ("Const", "Full")}


def rounded(program: CoreProgram, exact: Exact) -> set[str]:
    """Types of the constants that may have been rounded (see `enclose`)."""
    found: set[str] = set()
    for node in topological(program.roots):
        if node.dtype not in found and node.op in ("Const", "Full"):
            values = np.asarray(program.constants.get(node.attrs[0], node.attrs[0]))
            found |= {node.dtype} if _inexact(node, values, exact) is not None else set()
    return found


def looseness(node: Node, values: Array, exact: Exact) -> Array | float:
    """By how much rounding, or computing it from others ahead of time, may have changed each element of a constant."""
    finite = _inexact(node, values, exact)
    if finite is None:
        return 0.0
    info = ml_dtypes.finfo(np_dtype(node.dtype))
    return _LOOSE_ULPS * (float(info.eps) * _scales(finite) + float(info.smallest_subnormal))


def _inexact(node: Node, values: Array, exact: Exact) -> Array | None:
    """The finite elements of a constant, zero for others, if rounding may have changed some; else None."""
    if node.op not in ("Const", "Full") or not is_float(node.dtype) or node.attrs in exact:
        return None
    finite = np.where(np.isfinite(values), values, 0.0).astype(np.float64)
    return None if (finite == np.rint(finite)).all() else finite


def _scales(values: Array) -> Array | float:
    """For each element the largest magnitude of those like it: between them no binary exponents are missing, but few.

    Numbers that stand for minus infinity in a mask are far from the scores that they were added to.
    """
    sizes = np.abs(values)
    exponents = np.frexp(sizes)[1]
    lowest = exponents[sizes > 0].min()
    places = np.maximum(exponents - lowest, 0)
    present = np.flatnonzero(np.bincount(places.reshape(-1)))
    ends = [*present[:-1][np.diff(present) > _MOST_MISSING], present[-1]]
    if len(ends) == 1:
        return float(sizes.max())
    largest = [float(sizes[places <= end].max()) for end in ends]
    return np.asarray(largest)[np.searchsorted(ends, places)]


def meant(node: Node, values: Array, exact: Exact) -> Interval:
    """Bounds of a constant: of the simplest rationals that round to its elements, as proofs read them."""
    held = _point(values)
    if is_float(node.dtype) and np.unique(held.lo[: 2 * _MOST_READ]).size <= _MOST_READ:
        distinct, places = np.unique(held.lo, return_inverse=True)
        if distinct.size <= _MOST_READ:
            bounds = np.array([_simplest(float(value), node.dtype) for value in distinct]).reshape(-1, 2)
            held = Interval(*bounds[places].T)
    pad = looseness(node, values, exact)
    return _outward(held.lo - pad, held.hi + pad) if np.any(pad) else held


def enclose(program: CoreProgram, inputs: Mapping[str, Array], exact: Exact, deadline: float) -> dict[str, Interval]:
    """Bounds of the outputs by name, flat, for one input.

    Args:
        inputs: arrays by name; their elements are taken as they are.
        exact: constants that both programs have (see `constants_of`); any other float that is not a whole number may
            have been rounded.
        deadline: by `time.monotonic`.

    Raises:
        InputError: an index is out of range.
        OutOfTime: the deadline has passed.
    """
    run = _Enclosing(program, inputs, exact)
    order = topological(program.roots)
    readers = dict.fromkeys(order, 0)
    for node in [*program.roots, *(a for n in order for a in n.args)]:
        readers[node] += 1
    values: dict[Node, Interval] = {}
    with np.errstate(all="ignore"):
        for node in order:
            if time.monotonic() > deadline:
                raise OutOfTime
            values[node] = _integral(run.value(node, [values[a] for a in node.args]), node.dtype)
            for arg in node.args:
                readers[arg] -= 1
                if not readers[arg]:
                    del values[arg]
    return {name: values[root] for name, root in zip(program.root_names, program.roots, strict=True)}


class _Enclosing(Arrays[Interval]):
    """Bounds of a core operator from those of its operands."""

    def __init__(self, program: CoreProgram, inputs: Mapping[str, Array], exact: Exact) -> None:
        self._program, self._inputs, self._exact = program, inputs, exact

    def value(self, node: Node, args: list[Interval]) -> Interval:
        self._node = node
        return self.of(node.op, node.attrs, args)

    def parts(self, value: Interval) -> tuple[Array, ...]:
        return value

    def like(self, value: Interval, parts: Sequence[Array]) -> Interval:
        return Interval(*parts)

    def dtype_of(self, value: Interval) -> str:
        return "float64"

    def input(self, name: str, size: int, dtype: str) -> Interval:
        return _point(self._inputs[name].reshape(-1))

    def constant(self, digest: str, size: int, dtype: str) -> Interval:
        return meant(self._node, self._program.constants[digest], self._exact)

    def number(self, value: Any, dtype: str) -> Interval:
        return meant(self._node, np.full(1, value, np_dtype(dtype)), self._exact)

    def elementwise(self, fn: str, *args: Interval) -> Interval:
        if fn.startswith(CAST):
            return _cast(args[0], fn.removeprefix(CAST))
        if len(args) == 1:
            return _UNARY[fn](args[0])
        a, b = args
        whole = self._node.args[0].dtype in INTS
        bounds = _INTEGER[fn] if whole and fn in _INTEGER else _BINARY[fn]
        return _where_undefined(a.undefined | b.undefined, bounds(a, b))

    def where(self, condition: Interval, this: Interval, other: Interval) -> Interval:
        yes, no = condition.lo == 1, condition.hi == 0
        lo = np.where(yes, this.lo, np.where(no, other.lo, np.minimum(this.lo, other.lo)))
        hi = np.where(yes, this.hi, np.where(no, other.hi, np.maximum(this.hi, other.hi)))
        unknown = ~yes & ~no & (this.undefined | other.undefined)
        return _where_undefined(condition.undefined, _unknown_where(unknown, Interval(lo, hi)))

    def matmul(self, left: Interval, right: Interval) -> Interval:
        return _product(left, right)

    def reduce(self, fn: str, values: Interval) -> Interval:
        *rows, length = values.lo.shape
        return _REDUCTIONS[fn](values.shaped((prod(rows), length))).shaped((*rows,))

    def view(self, array: Interval, layout: Layout) -> Interval:
        return Interval(*(read(np.ascontiguousarray(bound), layout) for bound in array))

    def take(self, values: Interval, index: Interval, axis: int) -> Interval:
        known = index.lo == index.hi
        at = np.where(known, index.lo, 0).astype(np.int64)
        found = self.moved(lambda x: take(x, at, axis), values)
        along = known.reshape([-1 if i == axis else 1 for i in range(found.lo.ndim)])
        return _unknown_where(np.broadcast_to(~along, found.lo.shape), found)

    def call(self, key: str, index: int, args: Sequence[Operand[Interval]], size: int, dtype: str) -> Interval:
        operands = [a.value for a in args]
        middles = [_middle(a) for a in operands]
        value = np.asarray(self._program.opaque[key].run(middles)[index]).reshape(-1).astype(np.float64)
        widths = [float(np.max(a.hi - a.lo, initial=0.0)) for a in operands]
        scales = [float(np.max(np.abs(x), initial=0.0)) for x in middles]
        pad = _OPAQUE_ERROR * float(np.max(np.abs(value), initial=0.0)) if is_float(dtype) else 0.0
        sure = all(w <= 1e-9 * s for w, s in zip(widths, scales, strict=True))
        return _unknown_where(np.full(value.shape, not sure), Interval(value - pad, value + pad))


def _simplest(value: float, dtype: str) -> tuple[float, float]:
    """Bounds of what a constant means: the simplest rational that rounds to it, as proofs read it."""
    if not math.isfinite(value):
        return value, value
    exact = rational(float(value), single=dtype != "float64")
    near = float(exact)
    if exact == near:
        return near, near
    return math.nextafter(near, -math.inf), math.nextafter(near, math.inf)


def _point(values: Array) -> Interval:
    wide = values.astype(np.float64)
    if values.dtype.kind == "i" and (np.abs(wide) >= 2**53).any():
        return Interval(np.nextafter(wide, -np.inf), np.nextafter(wide, np.inf))
    return Interval(wide, wide)


def _middle(a: Interval) -> Array:
    return np.where(a.lo == a.hi, a.lo, a.lo / 2 + a.hi / 2)


def _where_undefined(where: Array | np.bool_, a: Interval) -> Interval:
    return Interval(np.where(where, np.nan, a.lo), np.where(where, np.nan, a.hi))


def _unknown_where(where: Array | np.bool_, a: Interval) -> Interval:
    return Interval(np.where(where, -np.inf, a.lo), np.where(where, np.inf, a.hi))


def _outward(lo: Array, hi: Array, ulps: float = 0.0) -> Interval:
    """Bounds that were computed, moved outward by half a unit in the last place and `ulps` more.

    A bound that overflowed lies beyond the largest number; NaN, as from `inf - inf`, says nothing.
    """
    down = np.where(np.isinf(lo), lo, lo - ulps * (_EPS * np.abs(lo) + _TINY))
    up = np.where(np.isinf(hi), hi, hi + ulps * (_EPS * np.abs(hi) + _TINY))
    bounds = Interval(np.nextafter(down, -np.inf), np.nextafter(up, np.inf))
    return _unknown_where(np.isnan(down) | np.isnan(up), bounds)


def _integral(a: Interval, dtype: str) -> Interval:
    """Bounds of what an integer type holds; nothing is known of one that may overflow."""
    if dtype not in INTS:
        return a
    info = np.iinfo(np_dtype(dtype))
    beyond = (a.lo < float(info.min)) | (a.hi > float(info.max))
    return _unknown_where(beyond, Interval(np.ceil(a.lo), np.floor(a.hi)))


# Sums and products of two


def _exact_or_outward(value: Array, error: Array, bounds: Interval) -> Interval:
    """The value itself where nothing was rounded: the error of the rounded result is 0."""
    exact = (error == 0) & np.isfinite(value)
    return Interval(np.where(exact, value, bounds.lo), np.where(exact, value, bounds.hi))


def _add(a: Interval, b: Interval) -> Interval:
    lo, hi = a.lo + b.lo, a.hi + b.hi
    bounds = _outward(lo, hi)
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
    bounds = _outward(np.minimum.reduce(corners), np.maximum.reduce(corners))
    error = np.where((a.lo == a.hi) & (b.lo == b.hi), _product_error(a.lo, b.lo, corners[0]), np.nan)
    zero = ((a.lo == 0) & (a.hi == 0)) | ((b.lo == 0) & (b.hi == 0))
    return _exact_or_outward(corners[0], np.where(zero, 0.0, error), bounds)


def _div(a: Interval, b: Interval) -> Interval:
    corners = [x / y for x in a for y in b]
    bounds = _outward(np.minimum.reduce(corners), np.maximum.reduce(corners))
    quotient = corners[0]
    points = (a.lo == a.hi) & (b.lo == b.hi)
    exact = points & (quotient * b.lo == a.lo) & (_product_error(quotient, b.lo, a.lo) == 0)
    bounds = _exact_or_outward(quotient, np.where(exact, 0.0, np.nan), bounds)
    bounds = _unknown_where((b.lo <= 0) & (b.hi >= 0), bounds)
    return _where_undefined((b.lo == 0) & (b.hi == 0), bounds)


def _truncated(a: Interval) -> Interval:
    return Interval(np.trunc(a.lo), np.trunc(a.hi))


def _mod(a: Interval, b: Interval) -> Interval:
    """a - floor(a / b) * b; between 0 and b where the quotient is not known."""
    quotient = _div(a, b)
    floor = Interval(np.floor(quotient.lo), np.floor(quotient.hi))
    known = _sub(a, _mul(floor, b))
    sure = floor.lo == floor.hi
    wide = _unknown_where(~np.isfinite(quotient.lo), Interval(np.minimum(b.lo, 0.0), np.maximum(b.hi, 0.0)))
    bounds = Interval(np.where(sure, known.lo, wide.lo), np.where(sure, known.hi, wide.hi))
    return _where_undefined(quotient.undefined, bounds)


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
    bounds = _unknown_where(~known & ~zero, Interval(np.where(zero, 0.0, lo), np.where(zero, 0.0, hi)))
    one = whole & (exponent == 0)
    bounds = Interval(np.where(one, 1.0, bounds.lo), np.where(one, 1.0, bounds.hi))
    itself = whole & (exponent == 1)
    bounds = Interval(np.where(itself, a.lo, bounds.lo), np.where(itself, a.hi, bounds.hi))
    point = (b.lo == b.hi) & ~whole & (a.hi < 0)
    return _where_undefined(point, bounds)


def _corners_of_power(a: Interval, b: Interval) -> Interval:
    corners = [np.power(x, y) for x in a for y in b]
    bounds = _outward(np.minimum.reduce(corners), np.maximum.reduce(corners), _POWER_ULPS)
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
        found = _outward(f(a.lo), f(a.hi), _FUNCTION_ULPS)
        return _where_undefined(a.undefined, Interval(np.maximum(found.lo, least), np.minimum(found.hi, most)))

    return bounds


def _exactly(f: Callable[[Array], Array]) -> _One:
    """A non-decreasing function that never rounds."""
    return lambda a: Interval(f(a.lo), f(a.hi))


def _on(least: float, bounds: _One, *, closed: bool = False) -> _One:
    """A function that has values only above `least` (and at it where `closed`)."""

    def inside(a: Interval) -> Interval:
        found = bounds(Interval(np.maximum(a.lo, least), np.maximum(a.hi, least)))
        maybe = (a.lo < least) | ((a.lo == least) & (not closed))
        return _where_undefined(a.undefined | (a.hi < least), _unknown_where(maybe, found))

    return inside


def _abs(a: Interval) -> Interval:
    lo = np.where(a.lo > 0, a.lo, np.where(a.hi < 0, -a.hi, 0.0))
    return _where_undefined(a.undefined, Interval(lo, np.maximum(-a.lo, a.hi)))


def _wave(f: Callable[[Array], Array]) -> _One:
    """Sine or cosine: it changes by no more than its argument does."""

    def bounds(a: Interval) -> Interval:
        middle = _middle(a)
        reach = np.nextafter(np.maximum(a.hi - middle, middle - a.lo), np.inf) * (a.lo != a.hi)
        value = f(middle)
        found = _outward(value - reach, value + reach, 2 * _FUNCTION_ULPS)
        wide = np.isnan(found.lo) | ~np.isfinite(reach) | ~a.bounded
        lo, hi = (np.where(wide, end, np.clip(x, -1.0, 1.0)) for x, end in zip(found, (-1.0, 1.0), strict=True))
        return _where_undefined(a.undefined, Interval(lo, hi))

    return bounds


def _sqrt(a: Interval) -> Interval:
    root = np.sqrt(a.lo)
    exact = (a.lo == a.hi) & (root * root == a.lo) & (_product_error(root, root, a.lo) == 0)
    bounds = _outward(root, np.sqrt(a.hi))
    lo = np.maximum(bounds.lo, 0.0)
    return _exact_or_outward(root, np.where(exact, 0.0, np.nan), Interval(lo, bounds.hi))


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))  # never overflows, and is not lost beside 1 where it is the result
    return np.where(x < 0, small / (1 + small), 1 / (1 + small))


def _cast(a: Interval, dtype: str) -> Interval:
    if dtype == "bool":
        zero, never = (a.lo == 0) & (a.hi == 0), (a.lo > 0) | (a.hi < 0)
        return _where_undefined(a.undefined, Interval(np.where(never, 1.0, 0.0), np.where(zero, 0.0, 1.0)))
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
    bounds = _outward(lo - _sum_error(lo, low, count), hi + _sum_error(hi, high, count))
    return _where_undefined(a.undefined.any(1), bounds)


def _multiplied(a: Interval) -> Interval:
    result = Interval(a.lo[:, 0], a.hi[:, 0])
    for i in range(1, a.lo.shape[1]):
        factor = Interval(a.lo[:, i], a.hi[:, i])
        result = _where_undefined(result.undefined | factor.undefined, _mul(result, factor))
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
    return _where_undefined(a.undefined.any(1), bounds)


def _negated(bounds: _One) -> _One:
    return lambda a: bounds(_neg(a))


def _product(a: Interval, b: Interval) -> Interval:
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
    bounds = _outward(value - radius, value + radius)
    found = Interval(np.where(exact, value, bounds.lo), np.where(exact, value, bounds.hi))
    found = _where_undefined(undefined, _unknown_where(unbounded, found))
    return found


def _ball(a: Interval) -> tuple[Array, Array]:
    """Middles and radii; both 0 where there are no finite bounds."""
    middle = np.where(a.bounded, _middle(a), 0.0)
    radius = np.nextafter(np.maximum(a.hi - middle, middle - a.lo), np.inf)
    return middle, np.where(a.bounded & (a.lo != a.hi), radius, 0.0)


_log = _on(0.0, _monotone(np.log))
_root = _on(0.0, _sqrt, closed=True)


def _inverse(a: Interval) -> Interval:
    return _div(Interval(np.ones_like(a.lo), np.ones_like(a.hi)), a)


def _rsqrt(a: Interval) -> Interval:
    return _where_undefined(a.undefined | (a.hi < 0), _inverse(_root(a)))


_UNARY: dict[str, _One] = {
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
_BINARY: dict[str, _Two] = {
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
_INTEGER: dict[str, _Two] = {
    "div": lambda a, b: _truncated(_div(a, b)),
    "pow": lambda a, b: _unknown_where(b.lo < 0, _pow(a, b)),
}
"""Functions that mean something else on integers."""

_REDUCTIONS: dict[str, _One] = {
    "sum": _summed,
    "prod": _multiplied,
    "max": _largest,
    "min": lambda a: Interval(a.lo.min(1), a.hi.min(1)),
    "argmax": _place_of_largest,
    "argmin": _negated(_place_of_largest),
}
"""Over the second axis."""
