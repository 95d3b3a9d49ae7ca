"""Traced values: they take the place of arrays while a function runs once to record its operators.

A `Tracer` has the attributes, methods and operators of `numpy.ndarray`. They call the functions of
`eqsat.tracing.functions`, which turn NumPy's broadcasting and type promotion into explicit operators. NumPy's own
functions work too: `np.exp(tracer)` records the same operator as `eqsat.exp(tracer)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from eqsat.base.arguments import shown
from eqsat.base.numerics import INTS, dtype_name, np_dtype
from eqsat.errors import DtypeError, InputError, ShapeError
from eqsat.program import ops
from eqsat.program.term import Shape, Term

Axis = int | Sequence[int] | None
Value = Any
"""A Tracer, a NumPy array, or a Python number or (nested) list of them."""

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""NumPy's functions for traced values, by name. They take and return tracers; `eqsat.tracing.functions` fills it."""


class Tracer:
    """A traced array with the attributes and methods of `numpy.ndarray`; `term` is the recorded expression.

    It has no values: using it as a condition raises InputError (write `eqsat.where`).
    """

    __slots__ = ("term",)

    def __init__(self, term: Term) -> None:
        self.term = term

    @property
    def shape(self) -> Shape:
        return self.term.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return np_dtype(self.term.dtype)

    @property
    def ndim(self) -> int:
        return self.term.ndim

    @property
    def size(self) -> int:
        return self.term.size

    @property
    def T(self) -> Tracer:
        return _call("transpose", self)

    @property
    def mT(self) -> Tracer:
        return _call("swapaxes", self, -1, -2)

    def __repr__(self) -> str:
        return f"Tracer({self.term.spec} {self.term.op})"

    def __len__(self) -> int:
        if not self.ndim:
            raise ShapeError("a value of no dims has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tracer]:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        raise InputError("a traced value is neither true nor false while it is traced: use eqsat.where")

    def __setitem__(self, key: Any, value: Any) -> None:
        raise InputError("a traced value cannot be written to: use eqsat.where or eqsat.concat for a new one")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise InputError("a traced value has no elements while it is traced: use eqsat's functions on it")

    __hash__ = object.__hash__

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, **kwargs: Any) -> Any:
        if method != "__call__":
            raise InputError(f"numpy.{ufunc.__name__} ({method}) cannot be traced")
        return _call(_UFUNC_NAMES.get(ufunc.__name__, ufunc.__name__), *args, **kwargs)

    def __array_function__(self, func: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        return _call(func.__name__, *args, **kwargs)

    def __add__(self, other: Value) -> Tracer:
        return _call("add", self, other)

    def __radd__(self, other: Value) -> Tracer:
        return _call("add", other, self)

    def __sub__(self, other: Value) -> Tracer:
        return _call("subtract", self, other)

    def __rsub__(self, other: Value) -> Tracer:
        return _call("subtract", other, self)

    def __mul__(self, other: Value) -> Tracer:
        return _call("multiply", self, other)

    def __rmul__(self, other: Value) -> Tracer:
        return _call("multiply", other, self)

    def __truediv__(self, other: Value) -> Tracer:
        return _call("divide", self, other)

    def __rtruediv__(self, other: Value) -> Tracer:
        return _call("divide", other, self)

    def __floordiv__(self, other: Value) -> Tracer:
        return _call("floor_divide", self, other)

    def __rfloordiv__(self, other: Value) -> Tracer:
        return _call("floor_divide", other, self)

    def __mod__(self, other: Value) -> Tracer:
        return _call("remainder", self, other)

    def __rmod__(self, other: Value) -> Tracer:
        return _call("remainder", other, self)

    def __pow__(self, other: Value) -> Tracer:
        return _call("power", self, other)

    def __rpow__(self, other: Value) -> Tracer:
        return _call("power", other, self)

    def __matmul__(self, other: Value) -> Tracer:
        return _call("matmul", self, other)

    def __rmatmul__(self, other: Value) -> Tracer:
        return _call("matmul", other, self)

    def __neg__(self) -> Tracer:
        return _call("negative", self)

    def __abs__(self) -> Tracer:
        return _call("abs", self)

    def __invert__(self) -> Tracer:
        return _call("logical_not", self)

    def __and__(self, other: Value) -> Tracer:
        return _call("logical_and", self, other)

    def __or__(self, other: Value) -> Tracer:
        return _call("logical_or", self, other)

    def __eq__(self, other: object) -> Tracer:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _call("equal", self, other)

    def __ne__(self, other: object) -> Tracer:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _call("not_equal", self, other)

    def __lt__(self, other: Value) -> Tracer:
        return _call("less", self, other)

    def __le__(self, other: Value) -> Tracer:
        return _call("less_equal", self, other)

    def __gt__(self, other: Value) -> Tracer:
        return _call("greater", self, other)

    def __ge__(self, other: Value) -> Tracer:
        return _call("greater_equal", self, other)

    def __getitem__(self, key: Any) -> Tracer:
        return _index(self.term, key if isinstance(key, tuple) else (key,))

    def astype(self, dtype: Any) -> Tracer:
        return Tracer(ops.cast(self.term, dtype_name(dtype)))

    def reshape(self, *shape: Any) -> Tracer:
        return _call("reshape", self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> Tracer:
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return _call("transpose", self, None if isinstance(order, tuple) and not order else order)

    def swapaxes(self, axis1: int, axis2: int) -> Tracer:
        return _call("swapaxes", self, axis1, axis2)

    def flatten(self) -> Tracer:
        return _call("reshape", self, -1)

    def ravel(self) -> Tracer:
        return _call("reshape", self, -1)

    def squeeze(self, axis: Axis = None) -> Tracer:
        return _call("squeeze", self, axis)

    def sum(self, axis: Axis = None, keepdims: bool = False) -> Tracer:
        return _call("sum", self, axis, keepdims=keepdims)

    def prod(self, axis: Axis = None, keepdims: bool = False) -> Tracer:
        return _call("prod", self, axis, keepdims=keepdims)

    def mean(self, axis: Axis = None, keepdims: bool = False) -> Tracer:
        return _call("mean", self, axis, keepdims=keepdims)

    def var(self, axis: Axis = None, keepdims: bool = False) -> Tracer:
        return _call("var", self, axis, keepdims=keepdims)

    def std(self, axis: Axis = None, keepdims: bool = False) -> Tracer:
        return _call("std", self, axis, keepdims=keepdims)

    def dot(self, other: Value) -> Tracer:
        return _call("dot", self, other)

    def max(self, axis: Axis = None, keepdims: bool = False) -> Tracer:
        return _call("max", self, axis, keepdims=keepdims)

    def min(self, axis: Axis = None, keepdims: bool = False) -> Tracer:
        return _call("min", self, axis, keepdims=keepdims)

    def argmax(self, axis: int | None = None, keepdims: bool = False) -> Tracer:
        return _call("argmax", self, axis, keepdims=keepdims)

    def argmin(self, axis: int | None = None, keepdims: bool = False) -> Tracer:
        return _call("argmin", self, axis, keepdims=keepdims)

    def clip(self, min: Value = None, max: Value = None) -> Tracer:
        return _call("clip", self, min, max)

    def take(self, indices: Value, axis: int | None = None) -> Tracer:
        return _call("take", self, indices, axis)


def _call(name: str, *args: Any, **kwargs: Any) -> Any:
    """Call the function of `eqsat.tracing.functions` that has this NumPy name."""
    if name not in FUNCTIONS:
        raise InputError(f"numpy.{name} cannot be traced")
    return FUNCTIONS[name](*args, **kwargs)


_UFUNC_NAMES = {"absolute": "abs", "true_divide": "divide", "rint": "round"}
"""NumPy's ufuncs with a different name here."""


def term_of(value: Value) -> Term:
    """The term of a traced value; anything else becomes a constant."""
    if isinstance(value, Tracer):
        return value.term
    try:
        array = np.asarray(value)
    except ValueError:
        raise InputError(f"lists of different lengths make no array: {shown(value)}") from None
    return ops.full(array.item(), (), dtype_name(array.dtype)) if not array.ndim else ops.constant(array)


def _index(x: Term, key: tuple[Any, ...]) -> Tracer:
    """x[key] for integers, slices, None, one ellipsis and at most one integer array."""
    used = sum(1 for k in key if k is not None and k is not Ellipsis)
    if used > x.ndim or sum(k is Ellipsis for k in key) > 1:
        raise ShapeError(f"a value of {x.ndim} dims takes at most as many indices and one ellipsis, got {len(key)}")
    if not any(k is Ellipsis for k in key):
        key = (*key, Ellipsis)
    where_dots = next(i for i, k in enumerate(key) if k is Ellipsis)
    full = (slice(None),) * (x.ndim - used)
    key = (*key[:where_dots], *full, *key[where_dots + 1 :])
    arrays = [k for k in key if not isinstance(k, int | np.integer | slice | None)]
    if len(arrays) > 1 or (arrays and any(isinstance(k, int | np.integer) for k in key)):
        raise InputError("an index array stands alone among slices: NumPy would move its dims to the front")
    out: list[int] = []  # dims of the result
    axis = 0  # of x, as it is reshaped
    for k in key:
        if k is None:
            out.append(1)
            continue
        if isinstance(k, slice):
            x = ops.slice_(x, [k.start], [k.stop], [axis], [k.step])
            out.append(x.shape[axis])
            axis += 1
        elif isinstance(k, int | np.integer) and not isinstance(k, bool):
            n, i = x.shape[axis], int(k)
            if not -n <= i < n:
                raise ShapeError(f"an index lies in [{-n}, {n}), got {i} on an axis of {x.shape}")
            x = ops.squeeze(ops.slice_(x, [i % n], [i % n + 1], [axis]), axis)
        else:
            indices = term_of(k)
            if indices.dtype not in INTS:
                raise DtypeError(f"an index array holds integers, got {indices.dtype}: use eqsat.where for masks")
            x = ops.gather(x, indices, axis)
            out.extend(indices.shape)
            axis += indices.ndim
    return Tracer(ops.reshape(x, out))
