"""NumPy's functions for traced values, under NumPy's names: `eqsat.exp(x)`, `eqsat.concatenate([x, y], axis=1)`.

Argument order, broadcasting and type promotion follow NumPy; each broadcast and conversion is a separate operator.
Common layers (softmax, gelu, layernorm, ...) are here too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from operator import index
from typing import Any, Literal

import numpy as np

from eqsat.base.arguments import guarded, shown, whole
from eqsat.base.arguments import shape as _shape
from eqsat.base.numerics import FLOATS, STORED, dtype_name, kind_of, np_dtype
from eqsat.errors import DtypeError, InputError, ShapeError
from eqsat.program import composites, ops
from eqsat.program.term import Term
from eqsat.tracing.tracer import FUNCTIONS, Axis, Tracer, Value, array, gathered, known, parts, term_of, view

# Operands


def _promoted(*values: Value) -> list[Term]:
    """The values as terms of NumPy's common type; Python numbers adapt to the arrays."""
    dtype = _common_dtype(values)
    return [_converted(value, dtype) for value in values]


def _common_dtype(values: Sequence[Value]) -> str:
    numbers = [isinstance(v, bool | int | float) and not isinstance(v, np.generic) for v in values]
    weak = [v for v, number in zip(values, numbers, strict=True) if number]
    typed = [np_dtype(term_of(v).dtype) for v, number in zip(values, numbers, strict=True) if not number]
    try:
        common = dtype_name(np.result_type(*(typed or weak)))
    except np.exceptions.DTypePromotionError:
        raise DtypeError(f"no common type of {' and '.join(dtype_name(t) for t in typed)}: use astype") from None
    if common in STORED:
        raise DtypeError(f"programs compute nothing in {common}, they only store it: use astype")
    # A number decides only the kind (float, int): np.result_type would give float64 for bfloat16 and 1.0.
    kinds = [kind_of(common), *(kind_of(dtype_name(type(v))) for v in weak)]
    wanted = "float" if "float" in kinds else "int" if "int" in kinds else "bool"
    return common if wanted == kinds[0] else {"float": "float64", "int": "int64"}[wanted]


def _converted(value: Value, dtype: str) -> Term:
    if isinstance(value, bool | int | float):
        return ops.full(value, (), dtype)
    return ops.cast(term_of(value), dtype)


def _floating(value: Value) -> Term:
    """The value as a float; integers become float64, as in NumPy's means and divisions."""
    term = term_of(value)
    return term if term.dtype in FLOATS else ops.cast(term, "float64")


def _of_arrays(values: Sequence[Value]) -> list[Term]:
    """The values as terms of NumPy's common type for functions that take numbers as arrays, of float64 and int64."""
    return _promoted(*(np.asarray(v) if isinstance(v, bool | int | float) else v for v in values))


def _integral(term: Term) -> bool:
    return kind_of(term.dtype) == "int"


def _axis(axis: Any) -> int:
    """An axis as NumPy takes it. Raises TypeError for all but integers, and for True, which is an integer in Python."""
    if isinstance(axis, bool):
        raise TypeError(f"an axis is an integer, got {axis}")
    return index(axis)


def _axes(axis: Any) -> int | tuple[int, ...] | None:
    """One axis, a tuple of them, or None for all. Raises TypeError for others, such as a list, as NumPy does."""
    if axis is None:
        return None
    return tuple(map(_axis, axis)) if isinstance(axis, tuple) else _axis(axis)


# Elementwise functions


def _float_function(name: str) -> Callable[[Value], Tracer]:
    def function(x: Value) -> Tracer:
        term = term_of(x)
        if term.dtype not in FLOATS:
            term = ops.cast(term, dtype_name(np.result_type(np_dtype(term.dtype), np.float16)))
        return Tracer(ops.elementwise(name, term))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Elementwise {name} of a float value. Others become floats: bool float16, integers float64."
    return function


sqrt, rsqrt = _float_function("sqrt"), _float_function("rsqrt")
exp, log, log1p = _float_function("exp"), _float_function("log"), _float_function("log1p")
erf, tanh, sigmoid = _float_function("erf"), _float_function("tanh"), _float_function("sigmoid")
sin, cos = _float_function("sin"), _float_function("cos")
rint = _float_function("round")


def _rounding(name: str, kept: str) -> Callable[[Value], Tracer]:
    """An elementwise rounding; NumPy dtypes of the `kept` kinds stay as they are."""
    of_floats = _float_function(name)

    def function(x: Value) -> Tracer:
        term = term_of(x)
        return Tracer(term) if np_dtype(term.dtype).kind in kept else of_floats(x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Elementwise {name}; integers stay as they are."
    return function


floor, ceil, _round = _rounding("floor", "biu"), _rounding("ceil", "biu"), _rounding("round", "iu")


def round(x: Value, decimals: Literal[0] = 0) -> Tracer:
    """Rounds to the nearest integer, half to even. Raises InputError for `decimals` other than 0."""
    if decimals:
        raise InputError(f"round takes decimals 0, got {decimals}")
    return _round(x)


def reciprocal(x: Value) -> Tracer:
    """1 / x of floats. Raises DtypeError for others, where NumPy's result is 0 for all but 1 and -1."""
    term = term_of(x)
    if term.dtype not in FLOATS:
        raise DtypeError(f"reciprocal takes float operands, got {term.dtype}: use 1 / x")
    return Tracer(ops.reciprocal(term))


def positive(x: Value) -> Tracer:
    """+x: the value itself. Raises DtypeError for bools, as NumPy does."""
    term = term_of(x)
    if term.dtype == "bool":
        raise DtypeError("positive takes numbers, got bool")
    return Tracer(term)


def negative(x: Value) -> Tracer:
    return Tracer(ops.neg(term_of(x)))


def abs(x: Value) -> Tracer:
    return Tracer(ops.abs_(term_of(x)))


def sign(x: Value) -> Tracer:
    return Tracer(ops.sign(term_of(x)))


def relu(x: Value) -> Tracer:
    """max(x, 0)"""
    return Tracer(ops.relu(term_of(x)))


def _binary_function(name: str, doc: str) -> Callable[[Value, Value], Tracer]:
    def function(a: Value, b: Value) -> Tracer:
        return Tracer(composites.broadcasting(name, *_promoted(a, b)))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


add = _binary_function("add", "a + b, broadcast.")
subtract = _binary_function("sub", "a - b, broadcast.")
multiply = _binary_function("mul", "a * b, broadcast.")
maximum = _binary_function("max", "The greater, broadcast; NaN where either is.")
minimum = _binary_function("min", "The lesser, broadcast; NaN where either is.")
equal = _binary_function("equal", "a == b, broadcast.")
less = _binary_function("less", "a < b, broadcast.")
less_equal = _binary_function("less_equal", "a <= b, broadcast.")
greater = _binary_function("greater", "a > b, broadcast.")
greater_equal = _binary_function("greater_equal", "a >= b, broadcast.")


def divide(a: Value, b: Value) -> Tracer:
    """a / b, broadcast; integers are divided in float64."""
    return Tracer(composites.div(*map(_floating, map(Tracer, _promoted(a, b)))))


def _divisible(x: Term, y: Term) -> tuple[Term, Term]:
    """The operands of a division of integers; 0 and 1 where the divisor is 0, so that 0 is the result, as in NumPy."""
    given = known(y)
    if given is not None and given.all():
        return x, y
    zero = composites.broadcasting("equal", y, ops.full(0, (), y.dtype))
    x, y = (composites.broadcasting("where", zero, ops.full(n, (), v.dtype), v) for n, v in ((0, x), (1, y)))
    return x, y


def remainder(a: Value, b: Value) -> Tracer:
    """a modulo b with the sign of b, broadcast; integers modulo 0 are 0."""
    x, y = _promoted(a, b)
    x, y = _divisible(x, y) if _integral(x) else (x, y)
    return Tracer(composites.broadcasting("mod", x, y))


def floor_divide(a: Value, b: Value) -> Tracer:
    """The greatest integer up to a / b, broadcast; integers divided by 0 are 0.

    Of floats it is found from the remainder, as in NumPy, since a rounded quotient may reach the next integer:
    1 // 0.1 is 9.
    """
    x, y = _promoted(a, b)
    if _integral(x):
        return Tracer(composites.floor_div(*_divisible(x, y)))
    rest, quotient = composites.broadcasting("mod", x, y), Tracer(composites.div(x, y))
    found, given = Tracer(ops.round_(composites.div(composites.sub(x, rest), y))), known(y)
    found = where(equal(found, 0), quotient * 0, found)  # zero has the sign of the quotient
    if given is not None and given.all() and np.isfinite(given).all():
        return found
    beyond = equal(abs(Tracer(rest)), np.inf)  # an infinite divisor, of the other sign than the dividend
    return where(equal(Tracer(y), 0), quotient, where(beyond, -1, found))


_POWERS: dict[float, Callable[[Term], Term]] = {
    1: lambda x: x,
    2: composites.square,
    0.5: ops.sqrt,
    -1: ops.reciprocal,
    -0.5: ops.rsqrt,
}


def power(a: Value, b: Value) -> Tracer:
    """a ** b, broadcast; of floats, constant exponents of 2, 0.5, -1, -0.5 become square, sqrt, reciprocal, rsqrt.

    Of -0 and -infinity, sqrt and rsqrt are not what a power is: see docs/numerics.md.
    """
    x, y = _promoted(a, b)
    exponents = known(y)
    if _integral(x) and exponents is not None and (exponents < 0).any():
        raise InputError(f"an integer has no power of {exponents.min()} that is one: use astype")
    if isinstance(b, int | float) and x.dtype in FLOATS and b in _POWERS:
        return Tracer(_POWERS[b](x))
    return Tracer(composites.broadcasting("pow", x, y))


def _bools(name: str, *values: Value) -> None:
    for value in values:
        dtype = term_of(value).dtype
        if dtype != "bool":
            raise DtypeError(f"{name} takes bools, got {dtype}: for truth use logical_and, logical_or or logical_not")


def bitwise_and(a: Value, b: Value) -> Tracer:
    """a & b of bools, broadcast. Raises DtypeError for others: programs compute nothing on bits."""
    _bools("bitwise_and", a, b)
    return logical_and(a, b)


def bitwise_or(a: Value, b: Value) -> Tracer:
    """a | b of bools, broadcast. Raises DtypeError for others: programs compute nothing on bits."""
    _bools("bitwise_or", a, b)
    return logical_or(a, b)


def bitwise_xor(a: Value, b: Value) -> Tracer:
    """a ^ b of bools, broadcast. Raises DtypeError for others: programs compute nothing on bits."""
    _bools("bitwise_xor", a, b)
    return not_equal(a, b)


def invert(x: Value) -> Tracer:
    """~x of bools. Raises DtypeError for others: programs compute nothing on bits."""
    _bools("invert", x)
    return logical_not(x)


def not_equal(a: Value, b: Value) -> Tracer:
    return logical_not(equal(a, b))


def _truth(value: Value) -> Term:
    return ops.cast(term_of(value), "bool")


def logical_not(x: Value) -> Tracer:
    return Tracer(ops.not_(_truth(x)))


def logical_and(a: Value, b: Value) -> Tracer:
    return Tracer(composites.broadcasting("and", _truth(a), _truth(b)))


def logical_or(a: Value, b: Value) -> Tracer:
    return Tracer(composites.broadcasting("or", _truth(a), _truth(b)))


def where(condition: Value, x: Value, y: Value) -> Tracer:
    """x where the condition holds, else y, broadcast."""
    return array(composites.broadcasting("where", _truth(condition), *_promoted(x, y)))


def clip(x: Value, min: Value = None, max: Value = None) -> Tracer:
    """min(max(x, lo), hi), in the common type of all three"""
    dtype = _common_dtype([value for value in (x, min, max) if value is not None])
    lo, hi = (bound if bound is None else _converted(bound, dtype) for bound in (min, max))
    return Tracer(composites.clip(_converted(x, dtype), lo, hi))


def _layer(compute: Callable[..., Term]) -> Callable[..., Tracer]:
    """Let a composite take traced values and arrays; its other arguments are passed on as they are."""

    def function(x: Value, *args: Any, **kwargs: Any) -> Tracer:
        terms = [term_of(a) if isinstance(a, Tracer | np.ndarray) else a for a in args]
        named = {k: term_of(a) if isinstance(a, Tracer | np.ndarray) else a for k, a in kwargs.items()}
        return Tracer(compute(_floating(x), *terms, **named))

    function.__name__ = function.__qualname__ = compute.__name__
    function.__doc__ = compute.__doc__
    return function


silu, gelu, softplus = _layer(composites.silu), _layer(composites.gelu), _layer(composites.softplus)
elu, leaky_relu = _layer(composites.elu), _layer(composites.leaky_relu)
softmax, log_softmax = _layer(composites.softmax), _layer(composites.log_softmax)
layernorm, rmsnorm = _layer(composites.layernorm), _layer(composites.rmsnorm)
conv, max_pool, avg_pool = _layer(ops.conv), _layer(composites.max_pool), _layer(composites.avg_pool)


# Products


def matmul(a: Value, b: Value) -> Tracer:
    """a @ b by NumPy's rules for vectors and leading dims."""
    return Tracer(composites.matmul(*_promoted(a, b)))


def dot(a: Value, b: Value) -> Tracer:
    """NumPy's dot for scalars, vectors and matrices; use `einsum` for more dims."""
    x, y = _of_arrays([a, b])
    if x.ndim > 2 or y.ndim > 2:
        raise ShapeError(f"dot takes at most two dims, got {x.shape} and {y.shape}: use matmul or einsum")
    return (multiply if 0 in (x.ndim, y.ndim) else matmul)(Tracer(x), Tracer(y))


def outer(a: Value, b: Value) -> Tracer:
    """a[i] * b[j], with both operands flattened."""
    return multiply(reshape(a, (-1, 1)), reshape(b, (1, -1)))


def einsum(equation: str, *operands: Value) -> Tracer:
    """NumPy's einsum, with each label at most once per operand."""
    terms = _of_arrays(operands)
    result = composites.einsum(equation, *terms)
    moved = len(terms) == 1 and result.size == terms[0].size  # a view, unless sums are of one element
    return view(operands[0], result) if moved else Tracer(result)


# Reductions


def _reduced(compute: Callable[..., Term], x: Term, axis: Axis, keepdims: bool) -> Tracer:
    """Raises TypeError if `keepdims` is no integer, as NumPy does: None, a text or NumPy's own True."""
    return Tracer(compute(x, _axes(axis), bool(index(keepdims))))


def _counted(x: Value, dtype: Any) -> Term:
    """The value in the type that NumPy sums and multiplies in: `dtype` if one is given, int64 for bool and int32.

    Raises:
        DtypeError: for unsigned integers this is uint64, in which programs compute nothing.
    """
    term = term_of(x)
    if dtype is not None:
        return ops.cast(term, dtype_name(dtype))
    if term.dtype.startswith("uint"):
        raise DtypeError(f"NumPy adds and multiplies {term.dtype} in uint64, which programs only store: use astype")
    return term if term.dtype in FLOATS else ops.cast(term, "int64")


def _averaged(x: Value, dtype: Any) -> Term:
    """The value in the type that NumPy averages in: `dtype` if one is given. Raises DtypeError if it is no float."""
    if dtype is None:
        return _floating(x)
    if dtype_name(dtype) not in FLOATS:
        raise DtypeError(f"means and variances are of floats, got dtype {dtype_name(dtype)}: use astype on the result")
    return ops.cast(term_of(x), dtype_name(dtype))


def sum(x: Value, axis: Axis = None, dtype: Any = None, *, keepdims: bool = False) -> Tracer:
    return _reduced(ops.sum_, _counted(x, dtype), axis, keepdims)


def prod(x: Value, axis: Axis = None, dtype: Any = None, *, keepdims: bool = False) -> Tracer:
    return _reduced(ops.prod_, _counted(x, dtype), axis, keepdims)


def max(x: Value, axis: Axis = None, *, keepdims: bool = False) -> Tracer:
    return _reduced(ops.amax, term_of(x), axis, keepdims)


def min(x: Value, axis: Axis = None, *, keepdims: bool = False) -> Tracer:
    return _reduced(ops.amin, term_of(x), axis, keepdims)


def _place(find: Callable[..., Term], x: Value, axis: int | None, keepdims: bool) -> Tracer:
    term = term_of(x)
    if axis is not None:
        return Tracer(find(term, _axis(axis), keepdims))
    found = find(ops.reshape(term, [-1]), 0)
    return Tracer(ops.reshape(found, [1] * term.ndim) if keepdims else found)


def argmax(x: Value, axis: int | None = None, *, keepdims: bool = False) -> Tracer:
    """The index of the first maximum along `axis` (None: of the flattened value)."""
    return _place(ops.argmax, x, axis, keepdims)


def argmin(x: Value, axis: int | None = None, *, keepdims: bool = False) -> Tracer:
    """The index of the first minimum along `axis` (None: of the flattened value)."""
    return _place(ops.argmin, x, axis, keepdims)


def mean(x: Value, axis: Axis = None, dtype: Any = None, *, keepdims: bool = False) -> Tracer:
    return _reduced(composites.mean, _averaged(x, dtype), axis, keepdims)


def var(x: Value, axis: Axis = None, dtype: Any = None, *, keepdims: bool = False) -> Tracer:
    return _reduced(composites.var, _averaged(x, dtype), axis, keepdims)


def std(x: Value, axis: Axis = None, dtype: Any = None, *, keepdims: bool = False) -> Tracer:
    return sqrt(var(x, axis, dtype, keepdims=keepdims))


def logsumexp(x: Value, axis: Axis = None, *, keepdims: bool = False) -> Tracer:
    return _reduced(composites.logsumexp, _floating(x), axis, keepdims)


# Views and data movement


def reshape(x: Value, shape: int | Sequence[int]) -> Tracer:
    # Writable, as NumPy copies what is repeated.
    return view(x, ops.reshape(term_of(x), _shape("reshape: shape", shape, -1)), writable=True)


def transpose(x: Value, axes: Sequence[int] | None = None) -> Tracer:
    return view(x, ops.transpose(term_of(x), axes if axes is None else [_axis(axis) for axis in axes]))


def swapaxes(x: Value, axis1: int, axis2: int) -> Tracer:
    term = term_of(x)
    order = list(range(term.ndim))
    i, j = ops.axis_of(axis1, term.ndim), ops.axis_of(axis2, term.ndim)
    order[i], order[j] = j, i
    return view(x, ops.transpose(term, order))


def moveaxis(x: Value, source: int, destination: int) -> Tracer:
    term = term_of(x)
    order = [i for i in range(term.ndim) if i != ops.axis_of(source, term.ndim)]
    order.insert(ops.axis_of(destination, term.ndim), ops.axis_of(source, term.ndim))
    return view(x, ops.transpose(term, order))


def broadcast_to(x: Value, shape: Sequence[int]) -> Tracer:
    return view(x, ops.broadcast(term_of(x), _shape("broadcast_to: shape", shape)), writable=False)


def squeeze(x: Value, axis: Axis = None) -> Tracer:
    return view(x, ops.squeeze(term_of(x), _axes(axis)))


def expand_dims(x: Value, axis: int | Sequence[int]) -> Tracer:
    return view(x, ops.unsqueeze(term_of(x), axis))


def flip(x: Value, axis: Axis = None) -> Tracer:
    return view(x, ops.flip(term_of(x), axis))


def tile(x: Value, reps: int | Sequence[int]) -> Tracer:
    return Tracer(composites.tile(term_of(x), (reps,) if isinstance(reps, int) else reps))


def _several(name: str, arrays: Sequence[Value]) -> list[Value]:
    """The arrays as a list. Raises InputError if this is not a sequence, or an empty one."""
    if isinstance(arrays, str | bytes | dict | set) or not list(arrays):
        raise InputError(f"{name} takes a sequence of at least one array, got {shown(arrays)}")
    return list(arrays)


def concatenate(arrays: Sequence[Value], axis: int = 0) -> Tracer:
    return Tracer(ops.concat(_of_arrays(_several("concatenate", arrays)), _axis(axis)))


concat = concatenate


def stack(arrays: Sequence[Value], axis: int = 0) -> Tracer:
    return Tracer(ops.stack(_of_arrays(_several("stack", arrays)), axis))


def vstack(arrays: Sequence[Value]) -> Tracer:
    return concatenate([reshape(a, (1, -1)) if term_of(a).ndim < 2 else a for a in _several("vstack", arrays)], axis=0)


def hstack(arrays: Sequence[Value]) -> Tracer:
    arrays = _several("hstack", arrays)
    flat = all(term_of(a).ndim < 2 for a in arrays)
    return concatenate([reshape(a, -1) if flat else a for a in arrays], axis=0 if flat else 1)


def split(x: Value, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Tracer]:
    """This many equal parts, or the parts between these indices."""
    term = term_of(x)
    n = term.shape[ops.axis_of(axis, term.ndim)]
    if isinstance(indices_or_sections, int):
        count = whole("split: sections", indices_or_sections, 1)
        if n % count:
            raise ShapeError(f"split takes sections that divide the axis, got {count} for {n} in {term.shape}")
        sizes = [n // count] * count
    else:
        ends = [0, *indices_or_sections, n]
        sizes = [b - a for a, b in pairwise(ends)]
    cut = ops.split(term, sizes, axis)
    if any(size < 0 for size in sizes):  # indices that go back, so that parts overlap
        return [view(x, part) for part in cut]
    return parts(x, cut)


def pad(x: Value, pad_width: Any, mode: Literal["constant"] = "constant", constant_values: float = 0) -> Tracer:
    """Pads with `constant_values` before and after each axis. Raises InputError for any other mode."""
    if not isinstance(mode, str) or mode != "constant":
        raise InputError(f"pad takes mode constant, got {mode!r}")
    term = term_of(x)
    given = np.asarray(pad_width)
    if given.dtype.kind not in "iu":
        raise InputError(f"pad takes whole numbers as widths, got {shown(pad_width)}")
    widths = np.broadcast_to(given, (term.ndim, 2)).tolist()
    if any(n < 0 for pair in widths for n in pair):
        raise InputError(f"pad takes widths of at least 0, got {shown(pad_width)}: use a slice to take away")
    return Tracer(ops.pad(term, [lo for lo, _ in widths], [hi for _, hi in widths], constant_values))


def take(x: Value, indices: Value, axis: int | None = None) -> Tracer:
    """The elements at these indices along `axis` (None: of the flattened value)."""
    source = reshape(x, -1).term if axis is None else term_of(x)
    return Tracer(gathered(source, term_of(indices), 0 if axis is None else _axis(axis)))


def full(shape: int | Sequence[int], fill_value: float, dtype: Any = "float32") -> Tracer:
    return array(ops.full(fill_value, _shape("full: shape", shape), dtype_name(dtype)))


def full_like(x: Value, fill_value: float) -> Tracer:
    return array(ops.full_like(fill_value, term_of(x)))


def zeros(shape: int | Sequence[int], dtype: Any = "float32") -> Tracer:
    return full(shape, 0, dtype)


def ones(shape: int | Sequence[int], dtype: Any = "float32") -> Tracer:
    return full(shape, 1, dtype)


FUNCTIONS |= {
    name: guarded(name, value)
    for name, value in list(globals().items())
    if callable(value) and not name.startswith("_") and not isinstance(value, type)
    and getattr(value, "__module__", None) == __name__
}  # fmt: skip
# Each function above is guarded: wrong arguments raise an error that states what was expected.

globals().update(FUNCTIONS)
