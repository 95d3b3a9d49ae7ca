"""Tables of numbers and element types: what a function gives for a value, what a value or a dtype is."""

from __future__ import annotations

import math
import operator
from fractions import Fraction
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from eqsat.base.numerics import (
    BINARY,
    FLOATS,
    INTS,
    STORED_INTS,
    UNARY,
    elementwise,
    is_float,
    kind_of,
    np_dtype,
    scalar,
    wrapped,
)
from eqsat.errors import InputError
from eqsat.program.core_table import CAST

Row = tuple[Any, ...]


def is_value(value: Any, expected: int) -> Row | None:
    """The value equals a small integer; -0.0 is not 0."""
    return () if value == expected and not (expected == 0 and str(value).startswith("-")) else None


def reciprocal_of(value: Any) -> Row | None:
    """1 / value, where value is a float that is neither zero, subnormal nor without a finite reciprocal."""
    if not isinstance(value, float) or value == 0 or not 1e-30 < abs(value) < 1e30:
        return None
    return (1.0 / value,)


def exact_reciprocal(value: Any) -> Row | None:
    """1 / value, where value is a power of two small enough that multiplying by it is exact."""
    if not isinstance(value, float) or not math.isfinite(value) or value == 0:
        return None
    mantissa, exponent = math.frexp(abs(value))
    return (1.0 / value,) if mantissa == 0.5 and -10 < exponent < 10 else None


def floating(dtype: str) -> Row | None:
    """The dtype is a floating one."""
    return () if is_float(dtype) else None


def count_as(count: int, dtype: str) -> Row | None:
    """The number `count` as an element of a dtype that holds it exactly."""
    if dtype == "bool":
        return None
    value = float(count) if is_float(dtype) else count
    try:
        return (value,) if scalar(value, dtype) == value else None
    except InputError:
        return None


def value_of(fn: str, value: Any, dtype: str) -> Row | None:
    """A function that keeps the dtype, of one value: one that never rounds, where no integer overflows, or the
    reciprocal where it is the fraction that the value stands for, turned over.

    NaN is no number that laws hold of: were -NaN NaN, and the larger of 1 and NaN, then NaN would be 0, and 1.
    """
    row = UNARY.get(fn)
    if row is None or row.result or kind_of(dtype) not in row.kinds or value != value:
        return None
    if fn == "relu":
        return value_of_two("max", value, type(value)(0), dtype)
    if "exact" in row.traits:
        found = _computed(fn, dtype, value)
        return None if _wraps(fn, dtype, found, value) else (found,)
    return value_of_two("div", 1.0, value, dtype) if fn == "reciprocal" else None


def value_of_two(fn: str, left: Any, right: Any, dtype: str) -> Row | None:
    """A function that keeps the dtype, of two values, where it gives what the fractions give that they stand for, and
    no integer overflows.

    Otherwise the result would be another number under other brackets: (1 + 1e8) - 1e8 is 0 or 1 in float32, and where
    both are one class, so is everything.
    """
    if fn not in (*_OF_FRACTIONS, "min", "max") or kind_of(dtype) not in BINARY[fn].kinds:
        return None
    if left != left or right != right:  # as in `value_of`
        return None
    if fn in ("min", "max") and left == right:
        return (left,)  # of zeros, too: the first of two equal operands, as everywhere
    found = _computed(fn, dtype, left, right)
    if not is_float(dtype) or fn in ("min", "max"):
        return None if _wraps(fn, dtype, found, left, right) else (found,)
    known = [fraction_of(v, dtype) for v in (left, right, found)]
    if any(f is None for f in known) or (fn == "div" and right == 0):
        return None
    one, other, result = known
    return (found,) if _OF_FRACTIONS[fn](one, other) == result else None


def rounded_value_of_two(fn: str, left: Any, right: Any, dtype: str) -> Row | None:
    """A product or a quotient of two floats, rounded, where it neither overflows nor loses digits.

    Sums are left out: what a large addend takes from a small one is all that is left when another takes it away again.
    """
    if fn not in ("mul", "div") or not is_float(dtype):
        return None
    found = _computed(fn, dtype, left, right)
    least = float(ml_dtypes.finfo(np_dtype(dtype)).smallest_normal)
    return (found,) if math.isfinite(found) and abs(found) >= least else None


_OF_FRACTIONS = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv}


def _computed(fn: str, dtype: str, *values: Any) -> Any:
    with np.errstate(all="ignore"):
        found = elementwise(fn, *(np.asarray([v], dtype=np_dtype(dtype)) for v in values))
        return np.asarray(found)[0].item()


def _wraps(fn: str, dtype: str, found: Any, *values: Any) -> bool:
    """Whether a function of integers gives another value than in the whole numbers."""
    if dtype not in INTS:
        return False
    with np.errstate(all="ignore"):
        near = elementwise(fn, *(np.asarray([v], dtype=np.float64) for v in values))
    return wrapped(np.asarray([found], dtype=np_dtype(dtype)), near)


_SIMPLE = 1 << 20
"""Numerators and denominators up to which a fraction counts as what a number was rounded from."""


@lru_cache(1 << 12)
def fraction_of(value: Any, dtype: str) -> Fraction | None:
    """The simplest fraction that rounds to a number (1/3 for 0.33333334), or else what it is exactly; None for NaN and
    the infinities.

    Sums and products of fractions do not depend on their order, so that three times a third is one.
    """
    if not math.isfinite(value):
        return None
    exact = Fraction(value)
    if not exact or not is_float(dtype):
        return exact
    size = abs(exact)
    reach = Fraction(2) ** (math.frexp(value)[1] - 2) * Fraction(float(ml_dtypes.finfo(np_dtype(dtype)).eps))
    simple = _simplest(size - reach, size + reach)
    small = max(simple.numerator, simple.denominator) <= _SIMPLE
    if not small or scalar(float(simple), dtype) != abs(value):  # a tie, or at a power of two, which ends a binade
        return exact
    return simple if value > 0 else -simple


def _simplest(low: Fraction, high: Fraction) -> Fraction:
    """The fraction with the least denominator from `low` to `high`, both positive: a walk down continued fractions."""
    whole = math.ceil(low)
    if whole <= high:
        return Fraction(whole)
    return whole - 1 + 1 / _simplest(1 / (high - whole + 1), 1 / (low - whole + 1))


def integral(dtype: str) -> Row | None:
    """The dtype is an integer one."""
    return () if dtype in INTS else None


def finite(value: Any) -> Row | None:
    """The value is neither NaN nor infinite."""
    return () if math.isfinite(value) else None


def reciprocal_count(value: Any, count: int, dtype: str) -> Row | None:
    """The value is 1 / count, as the dtype rounds it: what makes a mean of a sum."""
    return () if is_float(dtype) and count and value == scalar(1 / count, dtype) else None


_WIDER: dict[str, frozenset[str]] = {
    "bool": frozenset({*INTS, *STORED_INTS, *FLOATS}),
    "int8": frozenset({"int16", *INTS, *FLOATS}),
    "uint8": frozenset({"int16", "uint16", "uint32", "uint64", *INTS, *FLOATS}),
    "int16": frozenset({*INTS, "float32", "float64"}),
    "uint16": frozenset({"uint32", "uint64", *INTS, "float32", "float64"}),
    "uint32": frozenset({"int64", "uint64", "float64"}),
    "float16": frozenset({"float32", "float64"}),
    "bfloat16": frozenset({"float32", "float64"}),
    "float32": frozenset({"float64"}),
    "int32": frozenset({"int64", "float64"}),
}
"""Element types that hold every value of another one."""


def cast_back(last: str, first: str, dtype: str) -> Row | None:
    """`first` widens a dtype exactly and `last` converts back to it."""
    middle = first.removeprefix(CAST)
    casts = first.startswith(CAST) and last == CAST + dtype
    return () if casts and middle in _WIDER.get(dtype, ()) else None


def cast_through(last: str, first: str, dtype: str) -> Row | None:
    """`first` widens a dtype exactly, so that the conversion `last` alone gives what both give."""
    middle = first.removeprefix(CAST)
    casts = first.startswith(CAST) and last.startswith(CAST) and last != CAST + dtype
    return (last,) if casts and middle in _WIDER.get(dtype, ()) else None
