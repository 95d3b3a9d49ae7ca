"""What core operators mean, one element at a time in a fixed order: the reference that rules are held to.

Products and sums run over k from first to last, maxima keep the first of two equal operands: a rule that keeps the
order is bitwise exact here, whatever a library's gemm does with its blocks. Halves are computed in float32 and rounded
once per operator, as everywhere. `exact` evaluates in the field of integers modulo a prime instead, where the operators
are polynomial: two different polynomials then agree on a random point with a probability of at most degree / PRIME.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from eqsat.base.numerics import HALVES, cast, dtype_name, elementwise, kind_of, np_dtype
from eqsat.base.numerics import reduce as reduce_array
from eqsat.egraph.host_terms import Term
from eqsat.egraph.snapshot import Snapshot
from eqsat.program.core_table import CAST

Array = np.ndarray
Apply = Callable[[str, tuple[Any, ...], Sequence[Array]], Array]
"""A meaning: operator, attributes and operands (flat arrays) to a flat array."""

PRIME = 2**31 - 1
"""Products of two residues fit in int64."""

_SIMPLEST = 1 << 10
"""Fill values are read as the nearest fraction with a denominator up to this: 0.1 is a tenth, 1/3 a third."""


class Undefined(Exception):
    """The operator has no value here: it is no polynomial, or divides by zero."""


def apply(op: str, attrs: tuple[Any, ...], args: Sequence[Array]) -> Array:
    """A core operator on flat arrays of its dtypes."""
    match op:
        case "Full":
            return np.full(attrs[1], attrs[0], dtype=np_dtype(attrs[2]))
        case "Un":
            return _unary(attrs[0], args[0])
        case "Bin":
            return _binary(attrs[0], *args)
        case "MM":
            a, b = (_wide(x) for x in args)
            return _product(attrs, a, b, lambda x: x).astype(args[0].dtype)
        case "Red":
            return _reduction(attrs[0], args[0].reshape(-1, attrs[1]))
    return _moved(op, attrs, args, lambda fill: _typed(fill, args[0].dtype))


def exact(op: str, attrs: tuple[Any, ...], args: Sequence[Array]) -> Array:
    """A core operator over residues modulo `PRIME` (int64); booleans stay booleans.

    Raises:
        Undefined: the operator is no polynomial, or divides by zero.
    """
    match op:
        case "Full":
            return np.full(attrs[1], bool(attrs[0]) if attrs[2] == "bool" else residue(attrs[0]))
        case "Un" if attrs[0] == "neg":
            return -args[0] % PRIME
        case "Un" if attrs[0] == "reciprocal":
            return _inverse(args[0])
        case "Bin" if attrs[0] in _POLYNOMIAL:
            return _POLYNOMIAL[attrs[0]](*args) % PRIME
        case "Bin" if attrs[0] == "div":
            return args[0] * _inverse(args[1]) % PRIME
        case "MM":
            return _product(attrs, args[0], args[1], lambda x: x % PRIME)
        case "Red" if attrs[0] in _FOLDED:
            return _fold(args[0].reshape(-1, attrs[1]), lambda x, y: _FOLDED[attrs[0]](x, y) % PRIME)
        case "Un" | "Bin" | "Red":
            raise Undefined(f"{attrs[0]} is no polynomial")
    return _moved(op, attrs, args, lambda fill: bool(fill) if args[0].dtype == np.bool_ else residue(fill))


_POLYNOMIAL: dict[str, Callable[..., Array]] = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
_FOLDED: dict[str, Callable[..., Array]] = {"sum": np.add, "prod": np.multiply}


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
    return np.array([pow(int(v), -1, PRIME) for v in x], dtype=np.int64)


def _wide(x: Array) -> Array:
    return x.astype(np.float32) if dtype_name(x.dtype) in HALVES else x


def _unary(f: str, x: Array) -> Array:
    if f.startswith(CAST):
        return cast(x, f.removeprefix(CAST))
    if f == "relu":
        return _larger(x, np.zeros_like(x))
    return np.asarray(elementwise(f, x))


def _binary(f: str, x: Array, y: Array) -> Array:
    if f == "max" and x.dtype != np.bool_:
        return _larger(x, y)
    if f == "min" and x.dtype != np.bool_:
        return _smaller(x, y)
    return np.asarray(elementwise(f, x, y))


def _larger(x: Array, y: Array) -> Array:
    """The larger, or a NaN; the first where they are equal (NumPy's choice among zeros depends on the position)."""
    return np.where((x >= y) | (x != x), x, y)


def _smaller(x: Array, y: Array) -> Array:
    return np.where((x <= y) | (x != x), x, y)


def _product(dims: Sequence[int], a: Array, b: Array, reduced: Callable[[Array], Array]) -> Array:
    batch, m, k, n = dims
    a, b = a.reshape(batch, m, k), b.reshape(batch, k, n)
    total = np.zeros((batch, m, n), dtype=a.dtype)
    for i in range(k):
        total = reduced(total + reduced(a[:, :, i, None] * b[:, i, None, :]))
    return total.reshape(-1)


def _reduction(f: str, rows: Array) -> Array:
    if f in ("sum", "prod") and rows.dtype != np.bool_:
        wide = _wide(rows)
        start = np.full((len(rows), 1), 0 if f == "sum" else 1, dtype=wide.dtype)
        return _fold(np.concatenate([start, wide], axis=1), _FOLDED[f]).astype(rows.dtype)
    if f in ("max", "min") and rows.dtype != np.bool_ and rows.shape[1]:
        return _fold(rows, _larger if f == "max" else _smaller)
    return np.asarray(reduce_array(f, rows, (1,), False)).reshape(-1)


def _fold(rows: Array, combine: Callable[[Array, Array], Array]) -> Array:
    total = rows[:, 0]
    for i in range(1, rows.shape[1]):
        total = combine(total, rows[:, i])
    return total


def _typed(fill: Any, dtype: np.dtype) -> Any:
    """A fill as an element of an array.

    Raises:
        ValueError: it is none: a float among integers, a number among booleans, or out of range.
    """
    if {"float": float, "int": int, "bool": bool}[kind_of(dtype_name(dtype))] is not type(fill):
        raise ValueError(f"a fill of {fill} in an array of {dtype}")
    try:
        return dtype.type(fill)
    except OverflowError:
        raise ValueError(f"a fill of {fill} in an array of {dtype}") from None


def _moved(op: str, attrs: tuple[Any, ...], args: Sequence[Array], fill: Callable[[Any], Any]) -> Array:
    """Operators that only move elements."""
    match op:
        case "Where":
            return np.where(args[0], args[1], args[2])
        case "V":
            layout, x = attrs[0], args[0]
            index = layout.index()
            read = x[np.maximum(index, 0)] if x.size else np.zeros(index.shape, x.dtype)
            if not layout.masked:
                return read
            return np.where(index >= 0, read, np.asarray(fill(layout.fill), x.dtype))
        case "Cat":
            return np.concatenate(list(args))
        case "Gather":
            outer, n, inner = attrs
            return args[0].reshape(outer, n, inner)[:, args[1] % n].reshape(-1)
    raise Undefined(f"{op} has no reference")


def class_values(snapshot: Snapshot, leaves: Mapping[str, Array], meaning: Apply = apply) -> list[Array]:
    """The value of every class by its shallowest derivation; `leaves` gives inputs and constants by name."""
    values: list[Array | None] = [None] * snapshot.n_classes
    for cls in sorted(range(snapshot.n_classes), key=lambda c: snapshot.depth[c]):
        node = snapshot.nodes[snapshot.best[cls]]
        values[cls] = _node_value(node.op, node.attrs, node.args, values, leaves, meaning)
    return [v for v in values if v is not None]


def _node_value(
    op: str,
    attrs: tuple[Any, ...],
    args: Sequence[int],
    values: Sequence[Array | None],
    leaves: Mapping[str, Array],
    meaning: Apply,
) -> Array:
    if op in ("In", "Const"):
        return leaves[attrs[0]]
    with np.errstate(all="ignore"):
        return meaning(op, attrs, [v for a in args if (v := values[a]) is not None])


def term_value(term: Term, values: Sequence[Array], leaves: Mapping[str, Array], meaning: Apply = apply) -> Array:
    """The value of a term over classes with these values."""
    if isinstance(term, int):
        return values[term]
    op, attrs, operands = term
    if op in ("In", "Const"):
        return leaves[attrs[0]]
    with np.errstate(all="ignore"):
        return meaning(op, attrs, [term_value(t, values, leaves, meaning) for t in operands])


def disagreements(snapshot: Snapshot, leaves: Mapping[str, Array]) -> Iterator[tuple[int, Array, Array]]:
    """(e-node index, its value, its class's value) for every e-node that does not evaluate to its class.

    Up to the rounding of numbers to the class's own dtype, whatever that of the leaves.
    """
    values = class_values(snapshot, leaves)
    for i, node in enumerate(snapshot.nodes):
        own = _node_value(node.op, node.attrs, node.args, values, leaves, apply)
        if not close(own, values[node.cls], snapshot.dtype[node.cls]):
            yield i, own, values[node.cls]


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
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if left.dtype.kind in "biu":
        return bool(np.array_equal(left, right))
    a, b = left.astype(np.float64), right.astype(np.float64)  # exact for every shorter float
    return bool(np.all((np.isnan(a) & np.isnan(b)) | ((a == b) & (np.signbit(a) == np.signbit(b)))))
