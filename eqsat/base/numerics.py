"""Element types and the NumPy meaning of every operator.

Functions here take and return arrays and know nothing of terms or nodes, so that the program level
(`eqsat.program.ops`) and the core (`eqsat.program.core`) share one meaning of each operator.

Rounding: float16 and bfloat16 are computed in float32 and rounded once per operator; products and sums of
them accumulate in float32. With precision "float64" every float is a float64 and nothing else rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import pi, prod
from typing import Any, Literal, NamedTuple

import ml_dtypes
import numpy as np

from eqsat.base.arguments import shown
from eqsat.errors import DtypeError, InputError

Array = np.ndarray[Any, Any]
Precision = Literal["native", "float64"]

_NUMPY: dict[str, np.dtype[Any]] = {
    "float64": np.dtype(np.float64),
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
    "bool": np.dtype(np.bool_),
}
DTYPES = tuple(_NUMPY)
"""Element types that programs compute with."""

_NUMPY |= {name: np.dtype(name) for name in ("int8", "int16", "uint8", "uint16", "uint32", "uint64")}
STORED_INTS = tuple(name for name in _NUMPY if name not in DTYPES)
_NUMPY |= {
    name: np.dtype(getattr(ml_dtypes, name))
    for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
                 "float4_e2m1fn", "int4", "uint4", "int2", "uint2")
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in _NUMPY.items()}

STORED = tuple(name for name in _NUMPY if name not in DTYPES)
"""Element types that programs only store. They are moved (views, concat, gather, where, pad), passed through opaque
operators and, for integers of whole bytes (`STORED_INTS`), cast to and from the other types. In memory every element
takes whole bytes; narrower types take one byte per element."""
FLOATS = ("float64", "float32", "float16", "bfloat16")
INTS = ("int32", "int64")
HALVES = ("float16", "bfloat16")
_SHORT_FLOATS = frozenset(_NUMPY[name] for name in HALVES)
SHORT = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int32": "i32",
    "int64": "i64",
    "bool": "bool",
    **{name: name.replace("uint", "u").replace("int", "i").replace("float", "f") for name in STORED},
}
"""Names as programs print them: `f32[348,768]`."""

LONG = {short: name for name, short in SHORT.items()}
"""Element types by these names. 'i8' is int8 where a printed type is read, and int64 where NumPy's meaning holds."""


# Element types


def np_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of an element type. Raises DtypeError for an unknown name."""
    try:
        return _NUMPY[name]
    except KeyError:
        raise DtypeError(f"unknown element type {name!r}: the valid ones are {', '.join(_NUMPY)}") from None


def dtype_name(dtype: Any) -> str:
    """The element type for a NumPy dtype, anything that `np.dtype` accepts, or a short name such as 'f32'.

    Where NumPy knows a short name, its meaning holds, which counts bytes: 'i8' is int64, as in NumPy. The order of
    bytes is not part of an element type.

    Raises:
        DtypeError: the dtype is in neither `DTYPES` nor `STORED`.
    """
    if isinstance(dtype, str):
        if dtype in _NUMPY:
            return dtype
        if dtype in LONG and not _known_to_numpy(dtype):
            return LONG[dtype]
    try:
        return _NAMES[np.dtype(dtype).newbyteorder("=")]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, SyntaxError):
        given = dtype if isinstance(dtype, str | np.dtype) else shown(dtype)
        raise DtypeError(f"unsupported element type {given}: the supported ones are {', '.join(_NUMPY)}") from None


def _known_to_numpy(text: str) -> bool:
    try:
        np.dtype(text)
    except TypeError:
        return False
    return True


def is_float(dtype: str) -> bool:
    return dtype in FLOATS


def itemsize(dtype: str) -> int:
    """Bytes per element."""
    return np_dtype(dtype).itemsize


def at_precision(dtype: str, precision: Precision) -> str:
    """The element type that a value of type `dtype` has when a program runs at this precision."""
    return "float64" if precision == "float64" and dtype in FLOATS else dtype


def converted(array: Array, dtype: np.dtype[Any]) -> Array:
    """The array in another element type; the array itself if it has that type. Short floats go to float64 by way of
    float32, which is exact and three times faster."""
    if dtype == np.float64 and array.dtype in _SHORT_FLOATS:
        array = array.astype(np.float32)
    return array.astype(dtype, copy=False)


def kind_of(dtype: str) -> str:
    """'float', 'int', 'bool' or 'stored'."""
    if dtype in STORED:
        return "stored"
    return "float" if dtype in FLOATS else "int" if dtype in INTS else "bool"


def is_integer(dtype: str) -> bool:
    """Whether the elements are integers of whole bytes, including types that are only stored."""
    return dtype in INTS or dtype in STORED_INTS


def scalar(value: Any, dtype: str) -> float | int | bool:
    """`value` as the Python scalar that an element of type `dtype` holds, rounded as NumPy rounds it.

    Raises:
        InputError: the type cannot hold the value: a fraction or large number in an integer type, a complex number.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, int | float) and np.iscomplexobj(value):
        raise InputError(f"{dtype} cannot hold {value}")
    if is_integer(dtype):
        info = np.iinfo(np_dtype(dtype))
        if (isinstance(value, float) and not value.is_integer()) or not info.min <= value <= info.max:
            raise InputError(f"{dtype} cannot hold {value}")
        return int(value)
    with np.errstate(all="ignore"):
        return np.asarray(value).astype(np_dtype(dtype)).item()


def identity_of(kind: str, dtype: str) -> float | int:
    """The identity of a reduction ('sum', 'prod', 'max', 'min'): its result over no elements, and its neutral padding.

    For max and min it is an infinity, the least or largest integer of the type, or False or True.
    """
    if kind in ("sum", "prod"):
        one = int(kind == "prod")
        return float(one) if dtype in FLOATS else one
    if dtype == "bool":
        return kind == "min"
    if dtype in FLOATS:
        return np.inf if kind == "min" else -np.inf
    limits = np.iinfo(np_dtype(dtype))
    return int(limits.max if kind == "min" else limits.min)


def lowest(dtype: str) -> float | int:
    """The identity of max."""
    return identity_of("max", dtype)


def distinct(values: Array) -> Array:
    """The different values of an array of integers, ascending.

    `np.unique` hashes them (NumPy 2.3 on). On regular indices, such as multiples of a power of two, most of the hashes
    collide: 2 million multiples of 4096 take it 2.9 s, and this 0.03 s.
    """
    ordered = np.sort(values, axis=None)
    first = np.ones(ordered.size, bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]


def random_array(shape: Sequence[int], dtype: str, rng: np.random.Generator) -> Array:
    """Values for a test: normally distributed floats, small integers, fair booleans."""
    if dtype == "bool":
        return rng.random(tuple(shape)) < 0.5
    if "int" in dtype:
        low, high = (0, 9) if dtype.startswith("uint") else (-4, 5)
        return rng.integers(low, high, tuple(shape)).astype(np_dtype(dtype))
    return rng.standard_normal(tuple(shape)).astype(np_dtype(dtype))


# Elementwise functions


# W. J. Cody, Rational Chebyshev approximations for the error function, Math. Comp. 23 (1969): leading
# coefficient first; numerator and denominator for |x| <= 0.46875 (in x^2), and of erfc(x) exp(x^2) above.
_ERF_P = (1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2, 3.77485237685302021e2,
          3.20937758913846947e3)  # fmt: skip
_ERF_Q = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3)
_ERFC_P = (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0, 6.61191906371416295e1,
           2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3,
           1.23033935479799725e3)  # fmt: skip
_ERFC_Q = (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
           3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3)  # fmt: skip
_ERF_SPLIT = 0.46875
_ERF_IS_ONE = 6.0  # erfc(6) = 2e-17: below half a unit in the last place of 1.
_ERF_BLOCK = 1 << 13  # elements: the temporaries stay in the first-level cache


def _polynomial(coefficients: Sequence[float], x: Array) -> Array:
    total = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        total *= x
        total += c
    return total


def _erf_block(x: Array) -> Array:
    """erf of a flat float64 array."""
    size = np.abs(x)
    out = np.sign(x)  # NaN stays NaN, and erf is 1 to the last bit where no branch below writes
    near = size <= _ERF_SPLIT
    z = x[near]
    out[near] = z * _polynomial(_ERF_P, z * z) / _polynomial(_ERF_Q, z * z)
    middle = ~near & (size < _ERF_IS_ONE)
    z = size[middle]
    erfc = np.exp(-z * z) * _polynomial(_ERFC_P, z) / _polynomial(_ERFC_Q, z)
    out[middle] *= 1 - erfc
    return out


def erf(x: Array) -> Array:
    """The error function, to 4 units in the last place of float64."""
    flat = np.asarray(x, dtype=np.float64).reshape(-1)
    out = np.empty_like(flat)
    for i in range(0, flat.size, _ERF_BLOCK):
        out[i : i + _ERF_BLOCK] = _erf_block(flat[i : i + _ERF_BLOCK])
    return out.reshape(x.shape).astype(x.dtype, copy=False)


def _truncated_division(a: Array, b: Array) -> Array:
    """Division; for integers it truncates toward zero, as in C and ONNX, and by zero it gives zero."""
    if a.dtype.kind == "f":
        return np.divide(a, b)
    quotient = np.floor_divide(a, b)
    inexact = (quotient * b != a) & (b != 0)
    return quotient + (inexact & ((a < 0) != (b < 0)))


def _power(a: Array, b: Array) -> Array:
    """a ** b; for integers a negative exponent gives the truncated reciprocal (0 unless a is 1 or -1)."""
    if a.dtype.kind == "f":
        return np.power(a, b)
    sign = np.where(b % 2 == 0, 1, np.sign(a)).astype(a.dtype)
    return np.where(b >= 0, np.power(a, np.maximum(b, 0)), np.where(np.abs(a) == 1, sign, 0)).astype(a.dtype)


@dataclass(frozen=True, slots=True)
class Elementwise:
    """One elementwise function: its NumPy meaning, the element kinds it takes, and what algebra may use.

    Attributes:
        run: arrays of one shape and type to an array of that shape.
        kinds: which of 'float', 'int', 'bool' it is defined on.
        traits: 'commutative', 'associative' (over the reals), 'idempotent' (f(x, x) = x, or f(f(x)) = f(x)),
            'monotone' (non-decreasing), 'odd', 'even', 'exact' (never rounds), 'library' (the last bit is up to the
            library and the processor: IEEE 754-2019, 9.2, asks no more).
        result: the element type of the result if it differs from that of the operands.
    """

    run: Callable[..., Array]
    kinds: tuple[str, ...]
    traits: frozenset[str] = frozenset()
    result: str | None = None


def _row(run: Callable[..., Array], kinds: str, traits: str = "", result: str | None = None) -> Elementwise:
    return Elementwise(run, tuple(kinds.split()), frozenset(traits.split()), result)


UNARY: dict[str, Elementwise] = {
    "neg": _row(np.negative, "float int", "odd exact"),
    "abs": _row(np.abs, "float int", "even idempotent exact"),
    "sqrt": _row(np.sqrt, "float", "monotone"),
    "rsqrt": _row(lambda x: np.reciprocal(np.sqrt(x)), "float"),
    "reciprocal": _row(lambda x: np.divide(x.dtype.type(1), x), "float", "odd"),
    "exp": _row(np.exp, "float", "monotone library"),
    "log": _row(np.log, "float", "monotone library"),
    "log1p": _row(np.log1p, "float", "monotone library"),
    "erf": _row(erf, "float", "monotone odd library"),
    "tanh": _row(np.tanh, "float", "monotone odd library"),
    "sigmoid": _row(lambda x: np.reciprocal(1 + np.exp(-x)), "float", "monotone library"),
    "relu": _row(lambda x: np.maximum(x, x.dtype.type(0)), "float int", "monotone idempotent exact"),
    "sin": _row(np.sin, "float", "odd library"),
    "cos": _row(np.cos, "float", "even library"),
    "floor": _row(np.floor, "float", "monotone idempotent exact"),
    "ceil": _row(np.ceil, "float", "monotone idempotent exact"),
    "round": _row(np.rint, "float", "monotone idempotent odd exact"),
    "sign": _row(np.sign, "float int", "monotone idempotent odd exact"),
    "not": _row(np.logical_not, "bool", "exact"),
}
"""Functions of one operand. `round` goes half to even; `relu` and `sign` keep NaN."""

BINARY: dict[str, Elementwise] = {
    "add": _row(np.add, "float int", "commutative associative"),
    "sub": _row(np.subtract, "float int"),
    "mul": _row(np.multiply, "float int", "commutative associative"),
    "div": _row(_truncated_division, "float int"),
    "pow": _row(_power, "float int", "library"),
    "min": _row(np.minimum, "float int", "commutative associative idempotent exact"),
    "max": _row(np.maximum, "float int", "commutative associative idempotent exact"),
    "mod": _row(np.mod, "float int"),
    "and": _row(np.logical_and, "bool", "commutative associative idempotent exact"),
    "or": _row(np.logical_or, "bool", "commutative associative idempotent exact"),
}
"""Functions of two operands of equal shape and type. `div` of integers truncates, `mod` has the divisor's sign,
`min` and `max` give NaN where either operand is."""

COMPARE: dict[str, Elementwise] = {
    "equal": _row(np.equal, "float int bool", "commutative exact", result="bool"),
    "less": _row(np.less, "float int", "exact", result="bool"),
    "less_equal": _row(np.less_equal, "float int", "exact", result="bool"),
    "greater": _row(np.greater, "float int", "exact", result="bool"),
    "greater_equal": _row(np.greater_equal, "float int", "exact", result="bool"),
}
"""Comparisons: two operands of equal shape and type, result bool."""

ELEMENTWISE: dict[str, Elementwise] = UNARY | BINARY | COMPARE


def _wide(x: Array) -> Array:
    """float16 and bfloat16 as float32, anything else as it is."""
    return x.astype(np.float32) if x.dtype in _SHORT_FLOATS else x


def elementwise(name: str, *args: Array) -> Array:
    """The elementwise function `name` of arrays of one shape and type. Halves are computed in float32."""
    row = ELEMENTWISE[name]
    operands = [_wide(x) for x in args]
    if "library" in row.traits:
        operands = [_dense(x) for x in operands]
    out = row.run(*operands).reshape(args[0].shape)
    return out.astype(np.bool_ if row.result else args[0].dtype, copy=False)


def _dense(x: Array) -> Array:
    """The same with its elements one after the other: for strides that are zero or negative NumPy has other code for
    functions of its libraries, with another last bit. (It squares for an exponent of 2 that repeats.)
    """
    return x if x.ndim and x.flags.c_contiguous and 0 not in x.strides else np.array(x, order="C", ndmin=1)


def cast(x: Array, dtype: str) -> Array:
    """Conversion as C does it: toward zero to an integer, to nearest even to a shorter float, `!= 0` to bool."""
    return x.astype(np_dtype(dtype), copy=False)


# Contractions and reductions


def matmul(a: Array, b: Array) -> Array:
    """a[..., m, k] @ b[..., k, n]; halves accumulate in float32."""
    return np.matmul(_spread(_wide(a)), _spread(_wide(b))).astype(a.dtype, copy=False)


def _spread(matrices: Array) -> Array:
    """The same, with every element in memory where rows or columns repeat: NumPy adds up those in another order."""
    return matrices.copy() if 0 in matrices.strides[-2:] else matrices


REDUCTIONS: dict[str, Elementwise] = {
    "sum": _row(np.sum, "float int"),
    "prod": _row(np.prod, "float int"),
    "max": _row(np.max, "float int bool"),
    "min": _row(np.min, "float int bool"),
    "argmax": _row(np.argmax, "float int", result="int64"),
    "argmin": _row(np.argmin, "float int", result="int64"),
}
"""Reductions. `argmax` and `argmin` give the first index, along one axis."""


def reduce(kind: str, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    """`kind` over `axes`; halves accumulate in float32, integers stay in their type.

    Shapes: x[d0, ..., dn] to the dims not in `axes` (size 1 there with `keepdims`).
    """
    row = REDUCTIONS[kind]
    if row.result:
        return np.asarray(row.run(x, axis=axes[0], keepdims=keepdims)).astype(np_dtype(row.result), copy=False)
    wide = _wide(x)
    extra = {"dtype": wide.dtype} if kind in ("sum", "prod") else {}
    return np.asarray(row.run(wide, axis=axes, keepdims=keepdims, **extra)).astype(x.dtype, copy=False)


def wrapped(found: Array, near: Array) -> bool:
    """Whether one of some integers is off by multiples of the range of its type, or stands where there is no value.

    Args:
        found: an array of integers, as their type computes them.
        near: the same of float64, to within half the range of that type; NaN and infinities are no values.
    """
    half = 2.0 ** (8 * found.itemsize - 1)
    with np.errstate(invalid="ignore"):
        return not (np.abs(found.astype(np.float64) - near) < half).all()


def take(data: Array, indices: Array, axis: int) -> Array:
    """data[..., indices, ...]; a negative index counts from the end.

    Raises:
        InputError: an index is outside [-n, n).
    """
    try:
        return np.take(data, indices, axis=axis)
    except IndexError:
        n = data.shape[axis]
        raise InputError(f"gather takes indices in [{-n}, {n}) on axis {axis} of {data.shape}, "
                         f"got {indices.min()} to {indices.max()}") from None  # fmt: skip


# Windows


class Windows(NamedTuple):
    """How windows lie over the trailing axes: for each a stride, the padding before and behind, and a dilation."""

    strides: Sequence[int]
    pads_lo: Sequence[int]
    pads_hi: Sequence[int]
    dilations: Sequence[int]


def windows(x: Array, kernel: Sequence[int], how: Windows, fill: float) -> Array:
    """Every window of the padded trailing axes: x[n, c, *s] to a view [n, c, *out, *kernel]."""
    r, (strides, lo, hi, dilations) = len(kernel), how
    padded = np.pad(x, [(0, 0), (0, 0), *zip(lo, hi, strict=True)], constant_values=fill) if any((*lo, *hi)) else x
    extent = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(padded, extent, axis=tuple(range(2, 2 + r)))
    steps = [slice(None, None, s) for s in (*strides, *dilations)]
    return view[(slice(None), slice(None), *steps)]


def conv(x: Array, w: Array, how: Windows, groups: int) -> Array:
    """Cross-correlation: x[n, c, *s], w[oc, c/groups, *k] to [n, oc, *out]; halves accumulate in float32."""
    view = windows(_wide(x), w.shape[2:], how, 0.0)
    return correlate(view, _wide(w), groups).astype(x.dtype, copy=False)


def correlate(view: Array, w: Array, groups: int) -> Array:
    """Windows times weights: view[n, c, *out, *k], w[oc, c/groups, *k] to [n, oc, *out]."""
    r, oc, inner = w.ndim - 2, w.shape[0], prod(w.shape[1:])
    n, out = view.shape[0], view.shape[2 : 2 + r]
    split = view.reshape(n, groups, w.shape[1], *view.shape[2:])
    left = _spread(w.reshape(groups, oc // groups, inner))
    product = np.empty((groups, oc // groups, n * prod(out)), np.result_type(view, w))
    # [n, g, c/g, *out, *k] -> [g, c/g * k, n * out]: copies run along rows, and a kernel of one element is not
    order = (1, 2, *range(3 + r, 3 + 2 * r), 0, *range(3, 3 + r))
    step = groups_at_once(inner * n * prod(out) * view.itemsize)
    for g in range(0, groups, step):
        part = split[:, g : g + step].transpose(order)
        right = part.reshape(part.shape[0], inner, n * prod(out))
        np.matmul(left[g : g + step], _spread(right), out=product[g : g + step])
    return np.moveaxis(product.reshape(oc, n, *out), 0, 1)


def groups_at_once(nbytes: int) -> int:
    """How many groups of a convolution, with windows of so many bytes each, fit a processor's cache; at least one."""
    return max(1, _WINDOW_BYTES // max(1, nbytes))


_WINDOW_BYTES = 1 << 20
"""Copied windows of all groups at once would be written to memory and read again: a convolution of 216 channels of 28 x
28 with kernels of 7 x 7, each channel a group, takes 13.2 ms, and 4 ms in blocks of 64 KiB to 1 MiB, 7.3 in 4 MiB."""


def pool(kind: str, x: Array, kernel: Sequence[int], how: Windows) -> Array:
    """`kind` ('max' or 'sum') over windows: x[n, c, *s] to [n, c, *out]. Padding is the identity of `kind`."""
    fill = 0 if kind == "sum" else lowest(dtype_name(x.dtype))
    view = windows(x, kernel, how, fill)
    if kind == "max" and prod(kernel) < prod(view.shape[2 : x.ndim]):
        return _largest(view, len(kernel))
    return reduce(kind, view, tuple(range(x.ndim, view.ndim)), False)


def _largest(view: Array, rank: int) -> Array:
    """The largest element of each small window, in an order that reads along rows: windows of 3 x 3 take a tenth of the
    time. Sums would round in another way."""
    first, *others = np.ndindex(view.shape[-rank:])
    found = view[(..., *first)].copy()
    for place in others:
        np.maximum(found, view[(..., *place)], out=found)
    return found


SQRT_2 = 2**0.5
SQRT_2_OVER_PI = (2 / pi) ** 0.5
