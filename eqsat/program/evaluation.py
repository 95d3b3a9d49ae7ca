"""What core nodes are worth: algebras over arrays, and evaluation by NumPy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from math import prod
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.lib.stride_tricks import as_strided

from eqsat.base.graphs import last_reads, operands_first
from eqsat.base.numerics import (
    Array,
    Precision,
    at_precision,
    converted,
    dtype_name,
    elementwise,
    identity_of,
    matmul,
    np_dtype,
    reduce,
    take,
)
from eqsat.errors import InputError
from eqsat.layout.arithmetic import Layout, row_major
from eqsat.program.core_table import CAST, core_op
from eqsat.program.node import Node
from eqsat.program.term import Term

T = TypeVar("T")
V = TypeVar("V")


@dataclass(frozen=True)
class OpaqueCall:
    """How to run an opaque operator.

    Attributes:
        term: one of its results; `Term.args` say what shapes `run` takes.
        results: a term for each result, by its index: they say what shapes `run` gives.
    """

    term: Term
    results: dict[int, Term] = field(default_factory=dict, compare=False)

    def run(self, arrays: Sequence[Array]) -> Sequence[Array]:
        """Flat operands to the results, in their declared shapes and types."""
        declared = [
            array.reshape(arg.shape).astype(np_dtype(arg.dtype), copy=False)
            for array, arg in zip(arrays, self.term.args, strict=True)
        ]
        return self.term.attr("run")(*declared)


def evaluate(
    roots: Sequence[Node],
    env: Mapping[str, Array],
    constants: Mapping[str, Array],
    opaque: Mapping[str, OpaqueCall] | None = None,
    precision: Precision = "native",
    change: Callable[[Node, Array, list[Array]], Array] | None = None,
    known: Mapping[Node, Array] = {},
) -> list[Array]:
    """The flat values of the roots by NumPy; each value is freed after its last reader.

    Args:
        env: input name to flat array.
        constants: digest to flat array.
        opaque: needed where a root depends on an Opaque node.
        precision: "native" rounds every operator to its type, "float64" computes every float in float64.
        change: what becomes of the value of a node, given its operands' as well.
        known: values that are not computed again, at this precision.

    Raises:
        InputError: an input or constant is missing, or a gather index is out of range.
    """
    run = _Evaluation(env, constants, opaque or {}, precision)
    order = operands_first(roots, known)
    values = {node: known[node] for node in (*roots, *(a for n in order for a in n.args)) if node in known}
    with np.errstate(all="ignore"):
        for node, done in last_reads(order, roots):
            args = [values[a] for a in node.args]
            value = run.value(node, args)
            values[node] = value if change is None else change(node, value, args)
            for arg in done:
                del values[arg]
    return [values[root] for root in roots]


class Axis:
    """The digit of all elements along one dim of a result, or along what is summed: dim `place` of their arrays."""

    __slots__ = ("place", "size")

    def __init__(self, place: int, size: int) -> None:
        self.place, self.size = place, size

    def __add__(self, more: int) -> Array:
        return np.arange(more, self.size + more).reshape([1] * self.place + [self.size])


class Operand(Generic[V]):
    """A flat operand that is read at digits, one for each of its sizes."""

    __slots__ = ("_arrays", "_sizes", "value")

    def __init__(self, arrays: Arrays[V], value: V, sizes: Sequence[int]) -> None:
        self._arrays, self.value, self._sizes = arrays, value, sizes

    def __getitem__(self, at: Sequence[Axis]) -> V:
        if len(at) == 1 and not at[0].place:
            return self.value
        order, dims = _spread(tuple([axis.place for axis in at]))
        return self._arrays.moved(lambda x: x.reshape(self._sizes).transpose(order)[dims], self.value)


@cache
def _spread(places: tuple[int, ...]) -> tuple[list[int], tuple[slice | None, ...]]:
    """How dims come to stand at some places: their order, and new dims between them."""
    order = sorted(range(len(places)), key=places.__getitem__)
    return order, tuple([slice(None) if i in places else None for i in range(max(places) + 1)])


class Arrays(ABC, Generic[V]):
    """An algebra over arrays: every element of a result at once, each digit an axis.

    A value holds arrays of one shape, with a dim for each axis: 1 where it is the same all along, and none behind the
    last axis that it depends on. Subclasses say what a value is, and what is computed of it.
    """

    _depth = 0

    def of(self, op: str, attrs: Sequence[Any], args: Sequence[V]) -> V:
        """An operator of flat operands, flat.

        Raises:
            ShapeError: the operator takes no operands with these sizes.
        """
        row = core_op(op)
        own = [self.parts(a)[0].size for a in args]
        if row.elementwise and min(own) == max(own):  # most operators are: their operands are read at one place alone
            self._depth = 1
            at = (Axis(0, own[0]),)
            return row.meaning(self, at, attrs, [{at: arg} for arg in args])
        sizes = row.sizes(attrs, own)
        axes = tuple([Axis(i, sizes[name]) for i, name in enumerate(row.signature.result.sizes)])
        dims = [[sizes[name] for name in shape.sizes] for shape in row.signature.operands]
        if row.signature.variadic:
            dims = [[n] for n in own]
        self._depth = len(axes)
        value = row.meaning(self, axes, attrs, [Operand(self, *each) for each in zip(args, dims, strict=True)])
        whole = tuple([axis.size for axis in axes])
        if self.parts(value)[0].shape != whole:
            value = self.moved(lambda x: np.broadcast_to(x, whole), value)
        return value if len(whole) == 1 else self._shaped(value, (-1,))

    # --- what a value is

    @abstractmethod
    def parts(self, value: V) -> tuple[Array, ...]:
        """The arrays of a value."""

    @abstractmethod
    def like(self, value: V, parts: Sequence[Array]) -> V:
        """A value of the kind of another, with these arrays."""

    @abstractmethod
    def dtype_of(self, value: V) -> str:
        """The element type of a value."""

    def moved(self, move: Callable[..., Array], *values: V) -> V:
        """Values whose elements are moved, array by array."""
        return self.like(values[0], [move(*arrays) for arrays in zip(*map(self.parts, values), strict=True)])

    # --- what is computed

    @abstractmethod
    def number(self, value: Any, dtype: str) -> V: ...

    @abstractmethod
    def elementwise(self, fn: str, *args: V) -> V:
        """An elementwise function of values of one rank."""

    @abstractmethod
    def where(self, condition: V, this: V, other: V) -> V:
        """A choice between values of one rank."""

    @abstractmethod
    def reduce(self, fn: str, values: V) -> V:
        """A reduction along the last dim."""

    @abstractmethod
    def matmul(self, left: V, right: V) -> V:
        """left[B, M, K] @ right[B, K, N]."""

    @abstractmethod
    def take(self, values: V, index: V, axis: int) -> V:
        """values[..., index, ...] for a flat index, negative ones counted from the end."""

    @abstractmethod
    def input(self, name: str, size: int, dtype: str) -> V: ...

    @abstractmethod
    def constant(self, digest: str, size: int, dtype: str) -> V: ...

    @abstractmethod
    def call(self, key: str, index: int, args: Sequence[Operand[V]], size: int, dtype: str) -> V: ...

    def fill(self, value: Any, dtype: str) -> V:
        """What a masked view reads outside."""
        return self.number(value, dtype)

    def view(self, array: V, layout: Layout) -> V:
        """A flat array read through a layout."""
        index = layout.index()
        inside = np.maximum(index, 0)
        found = self.moved(lambda x: x[inside] if x.size else np.zeros(index.shape, x.dtype), array)
        if not layout.masked:
            return found
        return self.moved(lambda x, y: np.where(index >= 0, x, y), found, self.fill(layout.fill, self.dtype_of(array)))

    # --- the algebra

    def apply(self, fn: str, *args: V) -> V:
        return self.elementwise(fn, *self._aligned(args))

    def choose(self, condition: V, this: V, other: V) -> V:
        return self.where(*self._aligned((condition, this, other)))

    def fold(self, fn: str, count: int | Array, body: Callable[[Axis], V]) -> V:
        limit = count if isinstance(count, np.ndarray) else None
        most = count if not isinstance(count, np.ndarray) else int(count.max(initial=0))
        values = self._along(self._over(most, body), most)
        if limit is not None:
            inside = np.arange(most) < limit.reshape([*limit.shape, *[1] * (self._depth + 1 - limit.ndim)])
            dtype = self.dtype_of(values)
            nothing = self.number(identity_of(fn, dtype), dtype)
            values = self.moved(lambda x, y: np.where(inside, x, y), values, nothing)
        return self.reduce(fn, values)

    def dot(self, count: int, body: Callable[[Axis], tuple[V, V]]) -> V:
        left, right = (self._along(side, count) for side in self._over(count, body))
        return self.matmul(
            self.moved(lambda x: x[..., 0, :], left), self.moved(lambda x: x[..., 0, :, :].swapaxes(-1, -2), right)
        )

    def read(self, array: Operand[V], layout: Layout, at: Axis) -> V:
        return self._at(self.view(array.value, layout), at)

    def pick(self, count: int, index: V, body: Callable[[Axis], V]) -> V:
        axis = self.parts(index)[0].ndim - 1
        table = self._along(self._over(count, body), count)
        rows = self.moved(lambda x: np.moveaxis(x[(*[slice(None)] * axis, 0)], -1, axis), table)
        return self.take(rows, self._shaped(index, (-1,)), axis)

    def join(self, arrays: Sequence[Operand[V]], at: Axis) -> V:
        return self._at(self.moved(lambda *xs: np.concatenate(xs), *(a.value for a in arrays)), at)

    def _shaped(self, value: V, shape: Sequence[int]) -> V:
        return self.moved(lambda x: x.reshape(shape), value)

    def _over(self, count: int, body: Callable[[Axis], T]) -> T:
        """A body along a new axis, the last."""
        self._depth += 1
        try:
            return body(Axis(self._depth - 1, count))
        finally:
            self._depth -= 1

    def _along(self, value: V, count: int) -> V:
        """A value with a last dim for the axis behind those of the result, whether or not it depends on it."""
        shape = self.parts(value)[0].shape
        if len(shape) == self._depth + 1 and shape[-1] == count:
            return value
        (value,) = self._padded([value], self._depth + 1)
        return self.moved(lambda x: np.broadcast_to(x, (*x.shape[:-1], count)), value)

    def _aligned(self, values: Sequence[V]) -> Sequence[V]:
        """Values with as many dims as the one with most; NumPy itself sees to those of one dim at most."""
        if self._depth < 2:
            return values
        ranks = {self.parts(v)[0].ndim for v in values}
        return values if len(ranks) == 1 else self._padded(values, max(ranks))

    def _padded(self, values: Sequence[V], rank: int) -> list[V]:
        return [self.moved(lambda x: x.reshape([*x.shape, *[1] * (rank - x.ndim)]), value) for value in values]

    def _at(self, value: V, at: Axis) -> V:
        """A flat array along an axis."""
        return value if not at.place else self._shaped(value, [1] * at.place + [at.size])


class PlainArrays(Arrays[Array]):
    """An algebra whose values are single arrays."""

    def parts(self, value: Array) -> tuple[Array, ...]:
        return (value,)

    def like(self, value: Array, parts: Sequence[Array]) -> Array:
        return parts[0]

    def moved(self, move: Callable[..., Array], *values: Array) -> Array:
        return move(*values)

    def dtype_of(self, value: Array) -> str:
        return dtype_name(value.dtype)

    def where(self, condition: Array, this: Array, other: Array) -> Array:
        return np.where(condition, this, other)


class _Evaluation(PlainArrays):
    """By NumPy's own functions, as a runtime would."""

    def __init__(
        self,
        env: Mapping[str, Array],
        constants: Mapping[str, Array],
        opaque: Mapping[str, OpaqueCall],
        precision: Precision,
    ) -> None:
        self._env, self._constants, self._opaque = env, constants, opaque
        self._precision: Precision = precision
        self._calls: dict[Any, Sequence[Array]] = {}
        self._operands: tuple[Node, ...] = ()

    def value(self, node: Node, args: list[Array]) -> Array:
        self._operands = node.args
        return self.of(node.op, node.attrs, args)

    def _typed(self, array: Array, dtype: str) -> Array:
        return converted(array, np_dtype(at_precision(dtype, self._precision)))

    def input(self, name: str, size: int, dtype: str) -> Array:
        if name not in self._env:
            raise InputError(f"input {name!r} is missing")
        if self._env[name].size != size:
            raise InputError(f"input {name!r} takes {size} elements, got {self._env[name].size}")
        return self._typed(self._env[name], dtype)

    def constant(self, digest: str, size: int, dtype: str) -> Array:
        if digest not in self._constants:
            raise InputError(f"constant {digest} is missing")
        return self._typed(self._constants[digest].reshape(-1), dtype)

    def number(self, value: Any, dtype: str) -> Array:
        return self._typed(np.asarray(value), dtype)

    def elementwise(self, fn: str, *args: Array) -> Array:
        return self._typed(args[0], fn.removeprefix(CAST)) if fn.startswith(CAST) else elementwise(fn, *args)

    def reduce(self, fn: str, values: Array) -> Array:
        return reduce(fn, values, (values.ndim - 1,), False)

    def matmul(self, left: Array, right: Array) -> Array:
        return matmul(left[0], right[0])[None] if len(left) == 1 else matmul(left, right)

    def take(self, values: Array, index: Array, axis: int) -> Array:
        return take(values, index, axis)

    def view(self, array: Array, layout: Layout) -> Array:
        return read(array, layout)

    def call(self, key: str, index: int, args: Sequence[Operand[Array]], size: int, dtype: str) -> Array:
        call = (key, self._operands)
        if call not in self._calls:
            self._calls[call] = self._opaque[key].run([a.value for a in args])
        found = np.asarray(self._calls[call][index]).reshape(-1)
        if found.size != size:
            raise InputError(f"an opaque operator gives {found.size} elements for output {index}, not {size}")
        return self._typed(found, dtype)


def read(a: Array, layout: Layout) -> Array:
    """The flat array `a` read through a layout."""
    if not layout.masked:
        return strided_view(a, layout.offset, layout.dims).reshape(-1)
    box = _fill_box(layout, a.size)
    if box is None:
        index = layout.index()
        out = a.take(index, mode="clip")
        out[index < 0] = layout.fill
        return out
    filled = np.full(box.shape, layout.fill, a.dtype)
    filled[box.inside] = strided_view(a, box.offset, box.dims)
    return strided_view(filled.reshape(-1), box.start, box.steps).reshape(-1)


def strided_view(a: Array, offset: int, dims: Sequence[tuple[int, int]]) -> Array:
    """The view a[offset + sum_i stride_i d_i]; the caller knows that it stays inside."""
    step = a.strides[0]
    return as_strided(a[offset:], [n for n, _ in dims], [s * step for _, s in dims], writeable=False)


class _FillBox(NamedTuple):
    """A masked view as a plain one of a larger array: a window view as the windows of a padded image.

    The array has one dim per digit that moves by a plain stride and one per masked coordinate, the latter over all
    values that the coordinate takes. Inside its bounds it holds what the layout reads there, elsewhere the fill.
    """

    shape: tuple[int, ...]
    inside: tuple[slice, ...]
    offset: int  # what is inside, as a view of the source: offset and (size, stride)
    dims: tuple[tuple[int, int], ...]
    start: int  # the result, as a view of the array
    steps: tuple[tuple[int, int], ...]


@lru_cache(maxsize=1 << 12)
def _fill_box(layout: Layout, n_in: int) -> _FillBox | None:
    """None where the array would be larger than the result, or would hold elements outside the source."""
    sizes = [n for n, _ in layout.dims]
    ends = [[c * (n - 1) for c, n in zip(axis.coeffs, sizes, strict=True)] for axis in layout.axes]
    low = [axis.start + sum(min(e, 0) for e in es) for axis, es in zip(layout.axes, ends, strict=True)]
    high = [axis.start + sum(max(e, 0) for e in es) for axis, es in zip(layout.axes, ends, strict=True)]
    first = [max(x, 0) for x in low]
    last = [min(x, axis.bound - 1) for x, axis in zip(high, layout.axes, strict=True)]
    plain = [i for i, (_, stride) in enumerate(layout.dims) if stride]
    shape = (*(sizes[i] for i in plain), *(h - x + 1 for x, h in zip(low, high, strict=True)))
    kept = [b - a + 1 for a, b in zip(first, last, strict=True)]
    dims = (*(layout.dims[i] for i in plain), *((n, axis.stride) for n, axis in zip(kept, layout.axes, strict=True)))
    offset = layout.offset + sum(a * axis.stride for a, axis in zip(first, layout.axes, strict=True))
    reach = [(n - 1) * s for n, s in dims]
    outside = offset + sum(min(r, 0) for r in reach) < 0 or offset + sum(max(r, 0) for r in reach) >= n_in
    if min(kept) < 1 or outside or prod(shape) > max(layout.size, n_in):
        return None
    weights = row_major(shape)
    lines, coordinates = weights[: len(plain)], weights[len(plain) :]
    steps = [
        sum(w * axis.coeffs[i] for w, axis in zip(coordinates, layout.axes, strict=True)) for i in range(len(sizes))
    ]
    for i, weight in zip(plain, lines, strict=True):
        steps[i] += weight
    start = sum(w * (axis.start - x) for w, axis, x in zip(coordinates, layout.axes, low, strict=True))
    bands = [slice(a - x, b - x + 1) for x, a, b in zip(low, first, last, strict=True)]
    inside = (*(slice(None) for _ in plain), *bands)
    return _FillBox(shape, inside, offset, dims, start, tuple(zip(sizes, steps, strict=True)))
