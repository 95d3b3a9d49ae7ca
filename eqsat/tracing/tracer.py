"""Traced values: they take the place of arrays while a function runs once to record its operators.

A `Tracer` has the attributes, methods and operators of `numpy.ndarray`. They call the functions of
`eqsat.tracing.functions`, which turn NumPy's broadcasting and type promotion into explicit operators. NumPy's own
functions work too: `np.exp(tracer)` records the same operator as `eqsat.exp(tracer)`.

`x += y` gives the tracer another term, so that all variables bound to it see the change, as they do with arrays. Views
are tracers of their own, which would not see it. So each tracer knows those with which an array would share elements,
and while any of them is in use, it is not changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import EllipsisType
from typing import Any
from weakref import ref

import numpy as np

from eqsat.base.arguments import no_subclass, shown
from eqsat.base.numerics import INTS, dtype_name, np_dtype
from eqsat.errors import DtypeError, InputError, NoAttributeError, ShapeError
from eqsat.program import ops
from eqsat.program.term import Shape, Term

Axis = int | Sequence[int] | None
Value = Any
"""A Tracer, a NumPy array, or a Python number or (nested) list of them."""

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""NumPy's functions for traced values, by name. They take and return tracers; `eqsat.tracing.functions` fills it."""


def _call(name: str, *args: Any, **kwargs: Any) -> Any:
    """Call the function of `eqsat.tracing.functions` that has this NumPy name."""
    if name not in FUNCTIONS:
        raise InputError(f"numpy.{name} cannot be traced")
    return FUNCTIONS[name](*args, **kwargs)


def _unary(name: str) -> Callable[[Any], Tracer]:
    return lambda self: _call(name, self)


def _binary(name: str) -> Callable[[Any, Value], Tracer]:
    return lambda self, other: _call(name, self, other)


def _both(name: str) -> tuple[Callable[[Any, Value], Tracer], Callable[[Any, Value], Tracer]]:
    """The method of a binary operator, and the one for operands the other way round."""
    return _binary(name), lambda self, other: _call(name, other, self)


def _in_place(name: str) -> Callable[[Any, Value], Any]:
    """The method of an augmented assignment, by NumPy's rules: the array keeps its shape and type."""

    def method(self: Tracer, other: Value) -> Any:
        if not self._writable:
            raise InputError(f"{name} in place: NumPy's broadcast_to gives arrays to read: use a copy, x.copy()")
        if self._sharing is None:
            return NotImplemented  # so Python binds the variable to another scalar
        if any(self._overlaps(tracer()) for tracer in self._sharing):
            raise InputError(
                f"{name} in place: NumPy would also change the views that share elements with this value, which "
                "tracing cannot follow: use a copy, x.copy(), or write x = x + y"
            )
        term = _call(name, self, other).term
        if not np.can_cast(np_dtype(term.dtype), self.dtype, "same_kind"):
            raise DtypeError(f"{name} in place: {self.dtype} cannot hold a result in {term.dtype}: write x = x + y")
        if term.shape != self.shape:
            raise ShapeError(f"{name} in place: {self.shape} cannot hold a result of {term.shape}: write x = x + y")
        self.term = ops.cast(term, self.term.dtype)
        return self

    return method


def _reduction(name: str) -> Callable[..., Tracer]:
    """The method of a reduction, which takes what the function takes, in NumPy's order."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Tracer:
        return _call(name, self, *args, **kwargs)

    method.__name__ = name
    return method


class Tracer:
    """A traced array with the attributes and methods of `numpy.ndarray`; `term` is the recorded expression.

    It has no values: using it as a condition raises InputError (write `eqsat.where`).
    """

    __slots__ = ("__weakref__", "_parts", "_sharing", "_writable", "term")

    def __init__(self, term: Term) -> None:
        self.term = term
        self._sharing: list[ref[Tracer]] | None = [ref(self)] if term.ndim else None
        """The tracers that share elements: this one, its views, and the arrays of which it is a view. A scalar has
        None, as it cannot be changed. NumPy also has arrays without dims: `array` makes them."""
        self._parts: dict[object, int] = {}
        """The cuts that made this array, each with the number of its part. `parts` of one cut share no elements."""
        self._writable = True

    def _overlaps(self, other: Tracer | None) -> bool:
        """Whether another tracer is still in use and may share elements with this one."""
        if other is None or other is self:
            return False
        return all(other._parts.get(cut, part) == part for cut, part in self._parts.items())

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

    def __getattr__(self, name: str) -> Any:
        raise NoAttributeError(f"a traced value has no attribute {name!r}: use eqsat's functions on it")

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
        if "out" in kwargs:
            raise InputError(f"numpy.{ufunc.__name__} into an array cannot be traced: write x = x + y, not x += y")
        return _call(_UFUNC_NAMES.get(ufunc.__name__, ufunc.__name__), *args, **kwargs)

    def __array_function__(self, func: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        if getattr(np, func.__name__, None) is not func:  # one of the same name, such as numpy.linalg.outer
            raise InputError(f"{func.__module__}.{func.__name__} cannot be traced")
        return _call(func.__name__, *args, **kwargs)

    __add__, __radd__ = _both("add")
    __sub__, __rsub__ = _both("subtract")
    __mul__, __rmul__ = _both("multiply")
    __truediv__, __rtruediv__ = _both("divide")
    __floordiv__, __rfloordiv__ = _both("floor_divide")
    __mod__, __rmod__ = _both("remainder")
    __rpow__ = _both("power")[1]
    __matmul__, __rmatmul__ = _both("matmul")
    __and__, __rand__ = _both("bitwise_and")
    __or__, __ror__ = _both("bitwise_or")
    __xor__, __rxor__ = _both("bitwise_xor")
    __eq__ = _binary("equal")  # pyright: ignore[reportAssignmentType]
    __ne__ = _binary("not_equal")  # pyright: ignore[reportAssignmentType]
    __lt__ = _binary("less")
    __le__ = _binary("less_equal")
    __gt__ = _binary("greater")
    __ge__ = _binary("greater_equal")

    __iadd__, __isub__, __imul__ = map(_in_place, ("add", "subtract", "multiply"))
    __itruediv__, __ifloordiv__, __imod__ = map(_in_place, ("divide", "floor_divide", "remainder"))
    __ipow__, __imatmul__ = map(_in_place, ("power", "matmul"))
    __iand__, __ior__, __ixor__ = map(_in_place, ("bitwise_and", "bitwise_or", "bitwise_xor"))

    __pos__, __neg__, __abs__, __invert__ = map(_unary, ("positive", "negative", "abs", "invert"))

    def __pow__(self, other: Value) -> Tracer:
        if self.term.dtype == "bool" and isinstance(other, int) and other == 2:
            return self.astype("int8")  # as NumPy squares bools
        return _call("power", self, other)

    def __getitem__(self, key: Any) -> Tracer:
        keys = key if isinstance(key, tuple) else (key,)
        term = _index(self.term, keys)
        element = not term.ndim and EllipsisType not in map(type, keys)
        basic = all(isinstance(k, int | np.integer | slice | EllipsisType | None) for k in keys)
        if element or not basic:
            return Tracer(term)
        return array(term) if self._sharing is None else view(self, term)

    def astype(self, dtype: Any) -> Tracer:
        return self._new(ops.cast(self.term, dtype_name(dtype)))

    def copy(self) -> Tracer:
        return self._new(self.term)

    def _new(self, term: Term) -> Tracer:
        return Tracer(term) if self._sharing is None else array(term)

    def reshape(self, *shape: Any) -> Tracer:
        return _call("reshape", self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> Tracer:
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return _call("transpose", self, order if axes else None)

    def swapaxes(self, axis1: int, axis2: int) -> Tracer:
        return _call("swapaxes", self, axis1, axis2)

    def flatten(self) -> Tracer:
        return _call("reshape", self, -1).copy()

    def ravel(self) -> Tracer:
        return _call("reshape", self, -1)

    def squeeze(self, axis: Axis = None) -> Tracer:
        return _call("squeeze", self, axis)

    sum, prod, max, min = map(_reduction, ("sum", "prod", "max", "min"))
    mean, var, std = map(_reduction, ("mean", "var", "std"))
    argmax, argmin = map(_reduction, ("argmax", "argmin"))
    dot = _binary("dot")

    def clip(self, min: Value = None, max: Value = None) -> Tracer:
        return _call("clip", self, min, max)

    def take(self, indices: Value, axis: int | None = None) -> Tracer:
        return _call("take", self, indices, axis)


_UFUNC_NAMES = {"absolute": "abs", "true_divide": "divide"}
"""NumPy's ufuncs with a different name here."""


def array(term: Term) -> Tracer:
    """A tracer of an array, which can be changed in place, even if it has no dims."""
    made = Tracer(term)
    made._sharing = [ref(made)]
    return made


def view(x: Value, term: Term, writable: bool | None = None) -> Tracer:
    """A tracer of a term that NumPy would compute as a view of x, which is writable if x is, unless this is given."""
    made = Tracer(term)
    if isinstance(x, Tracer):
        made._writable, made._parts = x._writable, x._parts
        if x._sharing is not None:
            made._sharing = x._sharing
            made._sharing.append(ref(made))
    if writable is not None:
        made._writable = writable
    return made


def parts(x: Value, terms: Sequence[Term]) -> list[Tracer]:
    """Views of x that share no elements with one another, so that each can be changed in place by itself."""
    made, cut = [view(x, term) for term in terms], object()
    for i, part in enumerate(made):
        part._parts = {**part._parts, cut: i}
    return made


def term_of(value: Value) -> Term:
    """The term of a traced value; anything else becomes a constant."""
    if isinstance(value, Tracer):
        return value.term
    no_subclass("a constant", value)
    try:
        array = np.asarray(value)
    except ValueError:
        raise InputError(f"lists of different lengths make no array: {shown(value)}") from None
    return ops.full(array.item(), (), dtype_name(array.dtype)) if not array.ndim else ops.constant(array)


def known(term: Term) -> np.ndarray | None:
    """The elements of a constant, of which repeated ones may count once; None for what is computed."""
    if term.op == "constant":
        return term.attr("value").array
    if term.op == "broadcast":
        return known(term.args[0])
    return np.asarray(term.attr("value")) if term.op == "full" else None


def gathered(x: Term, indices: Term, axis: int) -> Term:
    """The elements of x at these indices along an axis.

    Raises:
        ShapeError: a constant index lies outside of the axis.
    """
    result, given = ops.gather(x, indices, axis), known(indices)
    if given is not None:
        n = x.shape[axis]
        outside = given[(given < -n) | (given >= n)]
        if outside.size:
            raise ShapeError(f"an index lies in [{-n}, {n}), got {outside[0]} on an axis of {x.shape}")
    return result


def _index(x: Term, key: tuple[Any, ...]) -> Term:
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
            indices = term_of(np.zeros(0, np.int64) if isinstance(k, list) and not k else k)
            if indices.dtype not in INTS:
                raise DtypeError(f"an index array holds integers, got {indices.dtype}: use eqsat.where for masks")
            x = gathered(x, indices, axis)
            out.extend(indices.shape)
            axis += indices.ndim
    return ops.reshape(x, out)
