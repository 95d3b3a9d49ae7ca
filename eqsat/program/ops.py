"""Operators: one row each in `OPS`, and the functions that apply them to terms.

A row joins what every layer needs to know: attributes, shape rule (`eqsat.program.shapes`), NumPy meaning
(`eqsat.base.numerics`), FLOPs, lowering to the core (`eqsat.program.lowering`). Printing, evaluation, the core,
generated tests and documentation loop over the rows. Operators built from these (softmax, layernorm, ...) are functions
in `eqsat.program.composites`.

The functions here are strict, as terms are: equal shapes, equal dtypes. `eqsat.trace` broadcasts as NumPy does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate
from math import prod
from operator import index
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from eqsat.base import numerics
from eqsat.base.numerics import BINARY, COMPARE, ELEMENTWISE, REDUCTIONS, UNARY, Array, Windows, np_dtype
from eqsat.errors import InputError, ShapeError, unknown
from eqsat.program import lowering, shapes
from eqsat.program.sizes import check_folded, check_size
from eqsat.program.term import OPS, ConstArray, Op, Shape, Term, make, row

__all__ = ["BINARY", "COMPARE", "OPS", "REDUCTIONS", "UNARY", "Op", "row"]  # and every builder below


def _no_flops(_: Term) -> int:
    return 0


def _one_each(term: Term) -> int:
    return term.size


def _one_per_operand_element(term: Term) -> int:
    return term.args[0].size


def _matmul_flops(term: Term) -> int:
    return 2 * term.size * term.args[0].shape[-1]


def _conv_flops(term: Term) -> int:
    return 2 * term.size * prod(term.args[1].shape[1:])


def _pool_flops(term: Term) -> int:
    return term.size * prod(term.attr("kernel"))


def _elementwise_op(name: str, arity: int) -> Op:
    infer = partial(shapes.elementwise, name)
    return Op(name, arity, (), infer, _run_elementwise(name), _one_each, lowering.elementwise)


def _run_elementwise(name: str) -> Callable[..., Array]:
    return lambda *arrays, dtype: numerics.elementwise(name, *arrays)


def _pool_run(x: Array, dtype: str, kind: str, kernel: Shape, **how: Shape) -> Array:
    return numerics.pool(kind, x, kernel, Windows(**how))


def _conv_run(x: Array, w: Array, dtype: str, groups: int, **how: Shape) -> Array:
    return numerics.conv(x, w, Windows(**how), groups)


def _slice_run(x: Array, dtype: str, starts: Shape, stops: Shape, steps: Shape) -> Array:
    ranges = zip(starts, stops, steps, strict=True)
    return x[tuple(slice(a, None if b < 0 else b, s) for a, b, s in ranges)]


def _iota_run(dtype: str, shape: Shape, axis: int) -> Array:
    ramp = np.arange(shape[axis]).astype(np_dtype(dtype))
    return np.broadcast_to(ramp.reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape)


def _pad_run(x: Array, dtype: str, lo: Shape, hi: Shape, value: float) -> Array:
    return np.pad(x, list(zip(lo, hi, strict=True)), constant_values=np.asarray(value).astype(x.dtype))


def _unrunnable(*_: Array, **__: Any) -> Array:
    raise InputError("inputs and opaque operators get their values from the program that runs them")


_STRUCTURAL = [
    Op("input", 0, ("name", "shape", "dtype"), lambda name, shape, dtype: shapes.leaf(shape, dtype), _unrunnable,
       _no_flops, None, varies=True),
    Op("constant", 0, ("value",), shapes.constant,
       lambda value, dtype: value.view.astype(np_dtype(dtype), copy=False), _no_flops, None),
    Op("full", 0, ("value", "shape", "dtype"), shapes.leaf,
       lambda value, shape, dtype: np.broadcast_to(np.asarray(value).astype(np_dtype(dtype)), shape), _no_flops,
       lowering.full),
    Op("iota", 0, ("shape", "axis", "dtype"), shapes.iota, _iota_run, _no_flops, None),
    Op("where", 3, (), shapes.where, lambda c, a, b, dtype: np.where(c, a, b), _one_each, lowering.where),
    Op("cast", 1, ("dtype",), shapes.cast, lambda x, dtype: numerics.cast(x, dtype), _one_each, lowering.cast),
    Op("matmul", 2, (), shapes.matmul, lambda a, b, dtype: numerics.matmul(a, b), _matmul_flops, lowering.matmul,
       contraction=True),
    Op("transpose", 1, ("perm",), shapes.transpose, lambda x, dtype, perm: x.transpose(perm), _no_flops,
       lowering.transpose, view=True),
    Op("reshape", 1, ("shape",), shapes.reshape, lambda x, dtype, shape: x.reshape(shape), _no_flops,
       lowering.reshape, view=True),
    Op("broadcast", 1, ("shape",), shapes.broadcast, lambda x, dtype, shape: np.broadcast_to(x, shape), _no_flops,
       lowering.broadcast, view=True),
    Op("slice", 1, ("starts", "stops", "steps"), shapes.slice_, _slice_run, _no_flops, lowering.slice_, view=True),
    Op("concat", None, ("axis",), shapes.concat, lambda *xs, dtype, axis: np.concatenate(xs, axis), _no_flops,
       lowering.concat, least=1),
    Op("pad", 1, ("lo", "hi", "value"), shapes.pad, _pad_run, _no_flops, lowering.pad),
    Op("reduce", 1, ("kind", "axes", "keepdims"), shapes.reduce,
       lambda x, dtype, kind, axes, keepdims: numerics.reduce(kind, x, axes, keepdims), _one_per_operand_element,
       lowering.reduce),
    Op("gather", 2, ("axis",), shapes.gather, lambda x, i, dtype, axis: numerics.take(x, i, axis), _no_flops,
       lowering.gather),
    Op("conv", 2, ("strides", "pads_lo", "pads_hi", "dilations", "groups"), shapes.conv, _conv_run, _conv_flops,
       lowering.conv, contraction=True),
    Op("pool", 1, ("kind", "kernel", "strides", "pads_lo", "pads_hi", "dilations"), shapes.pool, _pool_run,
       _pool_flops, lowering.pool),
    Op("opaque", None, ("name", "spec", "index", "out_shape", "out_dtype", "run"), shapes.opaque, _unrunnable,
       _no_flops, None, varies=True),
]  # fmt: skip

OPS |= {
    op.name: op
    for op in [
        *_STRUCTURAL,
        *(_elementwise_op(name, 1) for name in UNARY),
        *(_elementwise_op(name, 2) for name in [*BINARY, *COMPARE]),
    ]
}


# Leaves


def input(name: str, shape: Sequence[int], dtype: str = "float32") -> Term:
    """An input of the program, known by its name.

    Raises InputError for a name that begins as those of stand-ins do (`eqsat.check.stand_ins`), with NUL.
    """
    if name.startswith("\0"):
        raise InputError(f"input {name!r}: a name cannot begin with a NUL character")
    return make("input", name=name, shape=tuple(shape), dtype=numerics.dtype_name(dtype))


def constant(value: Any, dtype: str | None = None) -> Term:
    """The values of an array or a `ConstArray` (or of nested lists: then floats are float32 and integers int64).
    Large arrays that repeat their elements without holding them (`np.broadcast_to`) are broadcasts.

    Raises DtypeError for an element type that programs don't have, and InputError for more elements than they hold.
    """
    if isinstance(value, ConstArray):
        if dtype is None:
            return make("constant", value=value)
        value = value.view
    array = np.asarray(value)
    check_size(array, "a constant")  # a view may repeat few elements, of which a constant would have each in memory
    if array.nbytes > _LARGE_BYTES and any(
        n > 1 and not step for n, step in zip(array.shape, array.strides, strict=True)
    ):
        once = array[tuple([slice(None) if step else slice(1) for step in array.strides])]
        return broadcast(constant(once, dtype), array.shape)
    low, high = byte_bounds(array)
    if high - low < array.nbytes:
        check_folded(array.size, "a constant that is a view of fewer elements")
    if dtype is not None:
        array = array.astype(np_dtype(dtype))
    elif not isinstance(value, np.ndarray | np.generic) and array.dtype == np.float64:
        array = array.astype(np.float32)
    return make("constant", value=ConstArray(array))


_LARGE_BYTES = 1 << 16
"""Bytes from which on a constant that repeats itself is written as a broadcast."""


def full(value: Any, shape: Sequence[int] = (), dtype: str = "float32") -> Term:
    """One value everywhere, rounded to `dtype`."""
    return make("full", value=numerics.scalar(value, dtype), shape=tuple(shape), dtype=dtype)


def full_like(value: Any, x: Term) -> Term:
    """One value everywhere, in the shape and dtype of `x`."""
    return full(value, x.shape, x.dtype)


def iota(shape: Sequence[int], axis: int = 0, dtype: str = "int64") -> Term:
    """0, 1, 2, ... along `axis`, constant along the others."""
    return make("iota", shape=tuple(shape), axis=axis_of(axis, len(shape)), dtype=dtype)


def opaque(
    name: str,
    args: Sequence[Term],
    outputs: Sequence[tuple[Shape, str]],
    spec: Any,
    run: Callable[..., Sequence[Array]],
) -> tuple[Term, ...]:
    """An operator that nobody here understands: carried along, run by its own reference, never rewritten.

    Args:
        name: what reports call it.
        outputs: (shape, dtype) of each result.
        spec: hashable; it, and its repr, tell this operator from every other one of that name.
        run: operand arrays to the result arrays.
    """
    return tuple(
        make("opaque", *args, name=name, spec=spec, index=i, out_shape=tuple(shape), out_dtype=dtype, run=run)
        for i, (shape, dtype) in enumerate(outputs)
    )


# Elementwise


def _applies(name: str) -> Callable[..., Term]:
    return partial(make, name)


neg, abs_, sqrt, rsqrt = _applies("neg"), _applies("abs"), _applies("sqrt"), _applies("rsqrt")
reciprocal, exp, log, log1p = _applies("reciprocal"), _applies("exp"), _applies("log"), _applies("log1p")
erf, tanh, sigmoid, relu = _applies("erf"), _applies("tanh"), _applies("sigmoid"), _applies("relu")
sin, cos, sign, not_ = _applies("sin"), _applies("cos"), _applies("sign"), _applies("not")
floor, ceil, round_ = _applies("floor"), _applies("ceil"), _applies("round")
add, sub, mul, div = _applies("add"), _applies("sub"), _applies("mul"), _applies("div")
pow_, mod, min_, max_ = _applies("pow"), _applies("mod"), _applies("min"), _applies("max")
and_, or_, equal = _applies("and"), _applies("or"), _applies("equal")
less, less_equal = _applies("less"), _applies("less_equal")
greater, greater_equal = _applies("greater"), _applies("greater_equal")
matmul, where = _applies("matmul"), _applies("where")


def elementwise(name: str, *args: Term) -> Term:
    """The unary, binary or comparing function called `name`. Raises InputError for a name that is none."""
    if name not in ELEMENTWISE:
        raise unknown("elementwise function", name, ELEMENTWISE)
    return make(name, *args)


def cast(x: Term, dtype: str) -> Term:
    """`x` in another element type; itself where it has that type already."""
    return x if x.dtype == dtype else make("cast", x, dtype=dtype)


# Views


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from 0. Raises ShapeError outside [-rank, rank)."""
    if not -rank <= index(axis) < rank:
        raise ShapeError(f"an axis of {rank} dims lies in [{-rank}, {rank}), got {axis}")
    return index(axis) % rank


def axes_of(axes: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Ascending axes counted from 0; None means all. Raises ShapeError for one that is out of range or repeated."""
    if axes is None:
        return tuple(range(rank))
    given = tuple(axes) if isinstance(axes, Iterable) else (axes,)
    found = sorted(axis_of(index(a), rank) for a in given)
    if len(set(found)) != len(found):
        raise ShapeError(f"axes are distinct, got {given}")
    return tuple(found)


def transpose(x: Term, perm: Sequence[int] | None = None) -> Term:
    """Axes in the order `perm`; None reverses them. A transpose of a transpose is one."""
    order = tuple(reversed(range(x.ndim))) if perm is None else tuple(axis_of(index(i), x.ndim) for i in perm)
    if x.op == "transpose" and sorted(order) == list(range(x.ndim)):
        x, order = x.args[0], tuple(x.attr("perm")[i] for i in order)
    return x if order == tuple(range(x.ndim)) else make("transpose", x, perm=order)


def swap_last(x: Term) -> Term:
    """x[..., m, n] to x[..., n, m]."""
    return transpose(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def reshape(x: Term, shape: Sequence[int]) -> Term:
    """The same elements, row-major, in another shape; one dim may be -1. A reshape of a reshape is one."""
    dims = [index(n) for n in shape]
    if dims.count(-1) == 1:
        known = -prod(dims)
        if known == 0 or x.size % known:
            raise ShapeError(f"reshape takes a shape of as many elements, got {x.shape} to {tuple(dims)}")
        dims[dims.index(-1)] = x.size // known
    source = x.args[0] if x.op == "reshape" else x
    return source if tuple(dims) == source.shape else make("reshape", source, shape=tuple(dims))


def broadcast(x: Term, shape: Sequence[int]) -> Term:
    """NumPy's broadcast_to."""
    if x.op == "full":
        shape, dtype = shapes.broadcast(x, tuple(shape))
        return full(x.attr("value"), shape, dtype)
    return x if tuple(shape) == x.shape else make("broadcast", x, shape=tuple(shape))


def squeeze(x: Term, axes: Sequence[int] | int | None = None) -> Term:
    """Without the size-1 `axes`; None means every one. Raises ShapeError where a named axis has another size."""
    drop = axes_of(axes, x.ndim) if axes is not None else tuple(i for i, n in enumerate(x.shape) if n == 1)
    if any(x.shape[i] != 1 for i in drop):
        raise ShapeError(f"squeeze takes axes of size 1, got {drop} for {x.shape}")
    return reshape(x, [n for i, n in enumerate(x.shape) if i not in drop])


def unsqueeze(x: Term, axes: Sequence[int] | int) -> Term:
    """With dims of size 1 at `axes` of the result."""
    count = 1 if isinstance(axes, int) else len(axes)
    new = axes_of(axes, x.ndim + count)
    old = iter(x.shape)
    return reshape(x, [1 if i in new else next(old) for i in range(x.ndim + count)])


def slice_(
    x: Term,
    starts: Sequence[int | None],
    stops: Sequence[int | None],
    axes: Sequence[int] | None = None,
    steps: Sequence[int | None] | None = None,
) -> Term:
    """x[start:stop:step] along `axes` (None: the first ones) by Python's rules: negative counts from the end,
    beyond the end is clipped, None is the default."""
    chosen = range(len(starts)) if axes is None else axes
    bounds = [(0, n, 1) for n in x.shape]
    for axis, start, stop, step in zip(chosen, starts, stops, steps or [None] * len(starts), strict=True):
        if step == 0:
            raise ShapeError(f"slice takes non-zero steps, got {steps} for {x.shape}")
        i = axis_of(index(axis), x.ndim)
        indices = range(*slice(start, stop, step).indices(x.shape[i]))
        # One form for equal slices: the stop is just past the last index, and few indices have step 1.
        by = indices.step if len(indices) > 1 else 1
        bounds[i] = (indices[0], indices[-1] + (1 if by > 0 else -1), by) if indices else (0, 0, 1)
    if bounds == [(0, n, 1) for n in x.shape]:
        return x
    lo, hi, by = zip(*bounds, strict=True)
    return make("slice", x, starts=lo, stops=hi, steps=by)


def flip(x: Term, axes: Sequence[int] | int | None = None) -> Term:
    """In reverse order along `axes`."""
    chosen = axes_of(axes, x.ndim)
    return slice_(x, [None] * len(chosen), [None] * len(chosen), chosen, [-1] * len(chosen))


def split(x: Term, sizes: Sequence[int], axis: int = 0) -> list[Term]:
    """Consecutive slices of these sizes along `axis`. Raises ShapeError where they don't add up."""
    i = axis_of(axis, x.ndim)
    if sum(sizes) != x.shape[i]:
        raise ShapeError(f"split takes sizes that add up to {x.shape[i]}, got {tuple(sizes)} for {x.shape}")
    return [slice_(x, [end - n], [end], [i]) for n, end in zip(sizes, accumulate(sizes), strict=True)]


# Data movement


def concat(xs: Sequence[Term], axis: int = 0) -> Term:
    """Joined along `axis`."""
    if not xs:
        raise ShapeError("concat takes at least one tensor, got none")
    axis = axis_of(axis, xs[0].ndim)
    return xs[0] if len(xs) == 1 else make("concat", *xs, axis=axis)


def stack(xs: Sequence[Term], axis: int = 0) -> Term:
    """Joined along a new axis."""
    return concat([unsqueeze(x, axis) for x in xs], axis)


def pad(x: Term, lo: Sequence[int], hi: Sequence[int], value: Any = 0) -> Term:
    """`value` before and after each axis; negative amounts crop, at most all that is there."""
    if not len(lo) == len(hi) == x.ndim:
        raise ShapeError(f"pad takes a lo and hi per axis, got {tuple(lo)} and {tuple(hi)} for {x.shape}")
    if any(max(-a, 0) + max(-b, 0) > n for a, b, n in zip(lo, hi, x.shape, strict=True)):
        raise ShapeError(f"pad by {tuple(lo)} and {tuple(hi)} takes away more than {x.shape} has")
    kept = slice_(x, [max(-n, 0) for n in lo], [n - max(-h, 0) for n, h in zip(x.shape, hi, strict=True)])
    low, high = tuple(max(n, 0) for n in lo), tuple(max(n, 0) for n in hi)
    if not any((*low, *high)):
        return kept
    return make("pad", kept, lo=low, hi=high, value=numerics.scalar(value, x.dtype))


def gather(data: Term, indices: Term, axis: int = 0) -> Term:
    """data[..., indices, ...] along `axis`; negative indices count from the end."""
    return make("gather", data, indices, axis=axis_of(axis, data.ndim))


# Reductions


def reduce(kind: str, x: Term, axes: Sequence[int] | int | None = None, keepdims: bool = False) -> Term:
    """`kind` among sum, prod, max, min, argmax, argmin over `axes` (None: all)."""
    chosen = axes_of(axes, x.ndim)
    if not chosen and kind in ("sum", "prod", "max", "min"):
        return x
    return make("reduce", x, kind=kind, axes=chosen, keepdims=bool(keepdims))


sum_, prod_ = partial(reduce, "sum"), partial(reduce, "prod")
amax, amin = partial(reduce, "max"), partial(reduce, "min")
argmax, argmin = partial(reduce, "argmax"), partial(reduce, "argmin")


# Windows


def conv(
    x: Term,
    w: Term,
    strides: Sequence[int] | None = None,
    pads_lo: Sequence[int] | None = None,
    pads_hi: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    groups: int = 1,
) -> Term:
    """Cross-correlation x[n, c, *s], w[oc, c/groups, *k] to [n, oc, *out], in any number of spatial dims."""
    return make("conv", x, w, **laid(w.ndim - 2, strides, pads_lo, pads_hi, dilations), groups=groups)


def pool(
    kind: str,
    x: Term,
    kernel: Sequence[int],
    strides: Sequence[int] | None = None,
    pads_lo: Sequence[int] | None = None,
    pads_hi: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
) -> Term:
    """`kind` 'max' or 'sum' over windows: x[n, c, *s] to [n, c, *out]. Padding never wins a max nor adds to a sum."""
    how = laid(len(kernel), strides, pads_lo, pads_hi, dilations)
    return make("pool", x, kind=kind, kernel=tuple(kernel), **how)


def laid(rank: int, *given: Sequence[int] | None) -> dict[str, Shape]:
    """Strides, pads and dilations as attributes of windows; what is not given is 1, or no padding."""
    found = zip(Windows._fields, given, (1, 0, 0, 1), strict=True)
    return {name: tuple(dims or (default,) * rank) for name, dims, default in found}
