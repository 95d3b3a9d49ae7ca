"""What core operators mean, one element at a time in a fixed order: the reference that rules are held to.

Products and sums run over k from first to last, and maxima keep the first of two equal operands. So a rule that keeps
the order is exact to the bit here; a library's gemm adds up by blocks of its own. Halves are computed in float32 and
rounded once per operator, as everywhere. `exact` evaluates in the field of integers modulo a prime instead, where the
operators are polynomial: two different polynomials then agree on a random point with a probability of at most
degree / PRIME.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from eqsat.base.numerics import ELEMENTWISE, HALVES, Array, cast, dtype_name, elementwise, kind_of, np_dtype
from eqsat.base.numerics import reduce as reduce_array
from eqsat.egraph.host_terms import Term
from eqsat.egraph.snapshot import Snapshot
from eqsat.program.core_table import CAST
from eqsat.program.evaluation import Operand, PlainArrays

Apply = Callable[[str, tuple[Any, ...], Sequence[Array]], Array]
"""A meaning: operator, attributes and operands (flat arrays) to a flat array."""

PRIME = 2**31 - 1
"""Products of two residues fit in int64."""

_SIMPLEST = 1 << 10
"""Fill values are read as the nearest fraction with a denominator up to this: 0.1 is a tenth, 1/3 a third."""


class Undefined(Exception):
    """The operator has no value here: it is no polynomial, or divides by zero."""


def residue(value: float | int) -> int:
    """A number as the residue of the simple fraction that it stands for.

    Raises:
        Undefined: the number is infinite or no number.
    """
    if not np.isfinite(value):
        raise Undefined(f"{value} is in no field")
    fraction = Fraction(value).limit_denominator(_SIMPLEST)
    return fraction.numerator * pow(fraction.denominator, -1, PRIME) % PRIME


def _inverse(x: Array) -> Array:
    if not x.all():
        raise Undefined("division by zero")
    return np.array([pow(int(v), -1, PRIME) for v in x.flat], dtype=np.int64).reshape(x.shape)


class _Ordered(PlainArrays):
    """Flat arrays of the operands' own types, every sum and maximum from first to last."""

    def number(self, value: Any, dtype: str) -> Array:
        return np.asarray(value, np_dtype(dtype))

    def fill(self, value: Any, dtype: str) -> Array:
        """A fill as an element of an array.

        Raises:
            ValueError: it is none: a float among integers, a number among booleans, or out of range.
        """
        if {"float": float, "int": int, "bool": bool}[kind_of(dtype)] is not type(value):
            raise ValueError(f"a fill of {value} in an array of {dtype}")
        try:
            return np.asarray(np_dtype(dtype).type(value))
        except OverflowError:
            raise ValueError(f"a fill of {value} in an array of {dtype}") from None

    def elementwise(self, fn: str, *args: Array) -> Array:
        if fn.startswith(CAST):
            return cast(args[0], fn.removeprefix(CAST))
        if fn == "relu":
            return _larger(args[0], np.zeros_like(args[0]))
        if fn in _ENDS and args[0].dtype != np.bool_:
            return _ENDS[fn](*args)
        return np.asarray(elementwise(fn, *args))

    def reduce(self, fn: str, values: Array) -> Array:
        if fn in _FOLDED and values.dtype != np.bool_:
            wide = _wide(values)
            start = np.full((*wide.shape[:-1], 1), fn == "prod", dtype=wide.dtype)
            return _fold(np.concatenate([start, wide], axis=-1), _FOLDED[fn]).astype(values.dtype)
        if fn in _ENDS and values.dtype != np.bool_ and values.shape[-1]:
            return _fold(values, _ENDS[fn])
        return np.asarray(reduce_array(fn, values, (values.ndim - 1,), False))

    def matmul(self, left: Array, right: Array) -> Array:
        return _product(_wide(left), _wide(right), lambda x: x).astype(left.dtype)

    def take(self, values: Array, index: Array, axis: int) -> Array:
        return values.take(index % values.shape[axis], axis)

    def input(self, name: str, size: int, dtype: str) -> Array:
        raise Undefined("an input has no value of its own")

    def constant(self, digest: str, size: int, dtype: str) -> Array:
        raise Undefined("a constant has no value of its own")

    def call(self, key: str, index: int, args: Sequence[Operand[Array]], size: int, dtype: str) -> Array:
        raise Undefined("what is carried has no reference")


class _Elsewhere(_Ordered):
    """As another library may round: some results of a function that libraries round differently are one bit up.

    Which ones depends on the result and on the function's name, so that each is still a function of its operands.
    """

    def elementwise(self, fn: str, *args: Array) -> Array:
        value = super().elementwise(fn, *args)
        if fn not in ELEMENTWISE or "library" not in ELEMENTWISE[fn].traits or value.dtype.kind in "biu":
            return value
        bits = np.ascontiguousarray(value).view(f"u{value.dtype.itemsize}").astype(np.uint64)
        chosen = (bits * np.uint64(zlib.crc32(fn.encode()) | 1) >> np.uint64(5)) & np.uint64(1)
        return np.where(chosen == 1, np.nextafter(value, np.asarray(np.inf, value.dtype)), value)


class _Residues(_Ordered):
    """Residues modulo `PRIME` (int64); booleans stay booleans."""

    def number(self, value: Any, dtype: str) -> Array:
        return np.asarray(bool(value) if dtype == "bool" else residue(value))

    def fill(self, value: Any, dtype: str) -> Array:
        return self.number(value, dtype)

    def elementwise(self, fn: str, *args: Array) -> Array:
        if fn == "neg":
            return -args[0] % PRIME
        if fn == "reciprocal":
            return _inverse(args[0])
        if fn == "div":
            return args[0] * _inverse(args[1]) % PRIME
        if fn not in _POLYNOMIAL:
            raise Undefined(f"{fn} is no polynomial")
        return _POLYNOMIAL[fn](*args) % PRIME

    def reduce(self, fn: str, values: Array) -> Array:
        if fn not in _FOLDED:
            raise Undefined(f"{fn} is no polynomial")
        return _fold(values, lambda x, y: _FOLDED[fn](x, y) % PRIME)

    def matmul(self, left: Array, right: Array) -> Array:
        return _product(left, right, lambda x: x % PRIME)


def apply(op: str, attrs: tuple[Any, ...], args: Sequence[Array]) -> Array:
    """A core operator on flat arrays of its dtypes.

    Raises:
        ShapeError: the operator takes no operands with these sizes.
    """
    # Not a view that repeats an element: NumPy rounds some functions of those otherwise.
    return np.ascontiguousarray(_Ordered().of(op, attrs, args))


def elsewhere(op: str, attrs: tuple[Any, ...], args: Sequence[Array]) -> Array:
    """A core operator as `apply` has it, with the last bits of a library that rounds its functions in another way.

    Raises:
        ShapeError: the operator takes no operands with these sizes.
    """
    return np.ascontiguousarray(_Elsewhere().of(op, attrs, args))


def exact(op: str, attrs: tuple[Any, ...], args: Sequence[Array]) -> Array:
    """A core operator over residues modulo `PRIME` (int64); booleans stay booleans.

    Raises:
        Undefined: the operator is no polynomial, or divides by zero.
        ShapeError: the operator takes no operands with these sizes.
    """
    return _Residues().of(op, attrs, args)


def _wide(x: Array) -> Array:
    return x.astype(np.float32) if dtype_name(x.dtype) in HALVES else x


def _larger(x: Array, y: Array) -> Array:
    """The larger, or a NaN; the first where they are equal (NumPy's choice among zeros depends on the position)."""
    return np.where((x >= y) | (x != x), x, y)


def _smaller(x: Array, y: Array) -> Array:
    return np.where((x <= y) | (x != x), x, y)


_ENDS: dict[str, Callable[..., Array]] = {"max": _larger, "min": _smaller}
_POLYNOMIAL: dict[str, Callable[..., Array]] = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
_FOLDED: dict[str, Callable[..., Array]] = {"sum": np.add, "prod": np.multiply}


def _product(left: Array, right: Array, reduced: Callable[[Array], Array]) -> Array:
    """left[B, M, K] @ right[B, K, N], over k from first to last."""
    total = np.zeros((*left.shape[:-1], right.shape[-1]), dtype=left.dtype)
    for k in range(left.shape[-1]):
        total = reduced(total + reduced(left[..., k, None] * right[..., k, None, :]))
    return total


def _fold(values: Array, combine: Callable[[Array, Array], Array]) -> Array:
    total = values[..., 0]
    for i in range(1, values.shape[-1]):
        total = combine(total, values[..., i])
    return total


def class_values(snapshot: Snapshot, leaves: Mapping[str, Array], meaning: Apply = apply) -> list[Array]:
    """The value of every class by its shallowest derivation; `leaves` gives inputs and constants by name."""
    values: dict[int, Array] = {}
    for cls in sorted(range(snapshot.n_classes), key=lambda c: snapshot.depth[c]):
        node = snapshot.nodes[snapshot.best[cls]]
        values[cls] = term_value((node.op, node.attrs, node.args), values, leaves, meaning)
    return [values[cls] for cls in range(snapshot.n_classes)]


def term_value(
    term: Term, values: Mapping[int, Array] | Sequence[Array], leaves: Mapping[str, Array], meaning: Apply = apply
) -> Array:
    """The value of a term over classes with these values."""
    if isinstance(term, int):
        return values[term]
    op, attrs, operands = term
    if op in ("In", "Const"):
        return leaves[attrs[0]]
    with np.errstate(all="ignore"):
        return meaning(op, attrs, [term_value(t, values, leaves, meaning) for t in operands])


_CLOSE = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-1}
"""Largest difference of two roundings of one value, as a share of the largest magnitude (at least 1)."""


def close(left: Array, right: Array, dtype: str | None = None) -> bool:
    """Whether two values are one up to rounding to a dtype (their own); integers and booleans to the last bit."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    tolerance = _CLOSE.get(dtype or dtype_name(left.dtype))
    if tolerance is None or left.dtype.kind in "biu":
        return same_bits(left, right)
    scale = max(1.0, float(np.max(np.abs(left), initial=0.0, where=np.isfinite(left))))
    return bool(np.allclose(left, right, rtol=tolerance, atol=tolerance * scale, equal_nan=True))


def same_bits(left: Array, right: Array) -> bool:
    """Whether two values are equal bit by bit, the payloads of NaNs aside."""
    return left.shape == right.shape and left.dtype == right.dtype and bool(bits_agree(left, right).all())


def bits_agree(left: Array, right: Array) -> Array:
    """Where two values of one shape and type are equal bit by bit, the payloads of NaNs aside."""
    if left.dtype.kind in "biu":
        return left == right
    a, b = left.astype(np.float64), right.astype(np.float64)  # exact for every shorter float
    return (np.isnan(a) & np.isnan(b)) | ((a == b) & (np.signbit(a) == np.signbit(b)))
