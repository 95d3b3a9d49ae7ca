"""Evaluate some elements of a program's outputs, and only the values that these need.

A demand says for each axis of a term which elements are wanted: all, some, or weighted sums of them. Demands are
propagated from the outputs down to the inputs (a row of a product needs one row of its left operand), and then every
operator is evaluated on its demanded elements only. Sums pass through operators that are linear along their axis, so
that a product is probed without computing it (R. Freivalds, Probabilistic machines can use less running time, IFIP
1977); any other operator is evaluated in full and summed afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from eqsat.base.mapped import release
from eqsat.base.numerics import (
    HALVES,
    Array,
    Precision,
    at_precision,
    converted,
    correlate,
    distinct,
    dtype_name,
    elementwise,
    is_float,
    lowest,
    np_dtype,
    reduce,
    take,
)
from eqsat.program.ir import opaque_result
from eqsat.program.term import Term, topological

_PER_ELEMENT = 16
"""Cost of reading, moving or computing one element outside of products, in operations of a product."""

_STEPS = 1_000_003
"""Number of random directions that are drawn; larger constants repeat them."""

_WIDE = np.dtype(np.float64)

_BLOCK_BYTES = 1 << 25
"""Block size in bytes for widening weights, so that no second, wider copy of a short-float model is held."""


@dataclass(frozen=True, eq=False, slots=True)
class Sums:
    """Sums along an axis: weights[k, n] of k sums over its n elements."""

    weights: Array


@dataclass(frozen=True, slots=True)
class Moved:
    """Constants and scalars to perturb: every float moves one last place up or down, at random; zeros stay.

    With `computed`, all values computed in float64 also move by a few last places, to show the effect of rounding.
    """

    terms: frozenset[Term]
    seed: int
    computed: bool = False

    def of(self, values: Array, rng: np.random.Generator) -> Array:
        """Floats moved by one last place: the bits of magnitudes are ascending integers. Repeats move as one."""
        shape, dtype = values.shape, values.dtype
        values = values[tuple(slice(1) if stride == 0 else slice(None) for stride in values.strides)]
        bits = np.ascontiguousarray(values).reshape(values.shape).view(f"i{dtype.itemsize}")  # a scalar stays one
        largest = np.asarray(np.finfo(dtype).max if dtype.kind == "f" else ml_dtypes.finfo(dtype).max, dtype)
        steps = rng.integers(0, 2, min(values.size, _STEPS), np.int8) * 2 - 1
        magnitude = bits & np.iinfo(bits.dtype).max
        movable = (magnitude != 0) & (magnitude < largest.view(bits.dtype))
        moved = bits + np.resize(steps, bits.shape) * movable
        return np.broadcast_to(moved.astype(bits.dtype, copy=False).view(dtype), shape)


Wanted = Array | Sums | None
"""The demand for one axis: ascending indices, sums, or None for all elements."""

Demand = tuple[Wanted, ...]


def everything(term: Term) -> Demand:
    """The demand for a whole term."""
    return (None,) * term.ndim


class Demanded:
    """The demands of all terms that the wanted outputs need.

    Args:
        wanted: outputs, and the demand for each.
        exact: when values are computed in float64, also compute terms of constants alone in float64. Otherwise these
            are computed in the program's own element types, as a runtime does ahead of time.
        native: terms of constants that are computed in their own types even with `exact`.

    Attributes:
        demand: the demand for each needed term.
        flops: the approximate cost of the evaluation, in arithmetic operations of products.
    """

    def __init__(self, wanted: Mapping[Term, Demand], exact: bool = False, native: Collection[Term] = ()) -> None:
        self.wanted, self.exact, self.native = wanted, exact, native
        self.order = topological(wanted)
        self.constant: dict[Term, bool] = {}
        for term in self.order:
            varies = term.op in ("input", "opaque")
            self.constant[term] = not varies and all(self.constant[a] for a in term.args)
        self.demand: dict[Term, Demand] = {}
        self.needs: dict[Term, list[Demand]] = {}
        self.flops = 0
        for term, demand in wanted.items():
            self._add(term, tuple(_reduced(w, n) for w, n in zip(demand, term.shape, strict=True)))
        for term in reversed(self.order):
            demand = self.demand[term] = self._passing(term, self.demand[term])
            self.needs[term] = _row(term).needs(term, demand)
            for arg, need in zip(term.args, self.needs[term], strict=True):
                self._add(arg, need)
                self.flops += 2 * arg.size * sum(len(w.weights) for w in need if isinstance(w, Sums))
            count = _count(term, demand)
            self.flops += _work(term, count)

    def peak_bytes(self) -> int:
        """The largest number of bytes held at once by values in float64, without views and weights."""
        from eqsat.program.ops import row

        readers = _readers(self)
        live = most = 0
        size = {t: 0 if t.op == "constant" or row(t.op).view else 8 * _count(t, self.demand[t]) for t in self.order}
        for term in self.order:
            live += size[term]
            most = max(most, live)
            for arg in term.args:
                readers[arg] -= 1
                live -= 0 if readers[arg] else size[arg]
        return most

    def _add(self, term: Term, demand: Demand) -> None:
        known = self.demand.get(term)
        if known is not None:
            demand = tuple(_joined(a, b, n) for a, b, n in zip(known, demand, term.shape, strict=True))
        self.demand[term] = demand

    def _passing(self, term: Term, demand: Demand) -> Demand:
        """The demand, with sums that the operator cannot be evaluated on replaced by all elements."""
        if term.op == "opaque":
            return everything(term)
        if not any(isinstance(w, Sums) for w in demand):
            return demand
        linear = is_float(term.dtype) and (not self.constant[term] or (self.exact and term not in self.native))
        passes = _row(term).linear(term) if linear else ()
        return tuple(None if isinstance(w, Sums) and i not in passes else w for i, w in enumerate(demand))

    def run(
        self, inputs: Mapping[str, Array], precision: Precision = "float64", moved: Moved | None = None
    ) -> list[Array]:
        """The wanted elements of each output, evaluated by NumPy.

        At either precision, terms of constants alone are evaluated in the program's own element types, and only terms
        that depend on inputs in float64; not so with `exact`, or with constants `moved` to see the effect of rounding.
        """
        run = _Run(self, inputs, precision, moved)
        return run.values()


def _work(term: Term, count: int) -> int:
    from eqsat.program.ops import row

    op_row = row(term.op)
    own = op_row.flops(term) * count // term.size if op_row.contraction and term.size else 0
    return own + (0 if op_row.view else count * _PER_ELEMENT)


def _count(term: Term, demand: Demand) -> int:
    return prod(_length(w, n) for w, n in zip(demand, term.shape, strict=True))


def _length(wanted: Wanted, n: int) -> int:
    if wanted is None:
        return n
    return len(wanted.weights if isinstance(wanted, Sums) else wanted)


def _joined(a: Wanted, b: Wanted, n: int) -> Wanted:
    """The smallest demand that serves both."""
    if a is b:
        return a
    if a is None or b is None or isinstance(a, Sums) or isinstance(b, Sums):
        return None
    return _some(np.union1d(a, b), n)


def _reduced(wanted: Wanted, n: int) -> Wanted:
    return _some(wanted, n) if isinstance(wanted, np.ndarray) else wanted


def _some(index: Array, n: int) -> Wanted:
    """The ascending indices, or None if they are all indices."""
    return None if len(index) == n else index


def _all_of(wanted: Wanted, n: int) -> Array:
    assert not isinstance(wanted, Sums)
    return np.arange(n) if wanted is None else wanted


def _selected(array: Array, have: Demand, want: Demand, shape: Sequence[int]) -> Array:
    """The elements that `want` selects, from an array that holds the elements of `have`."""
    for axis, (h, w) in enumerate(zip(have, want, strict=True)):
        if w is h or w is None:
            continue
        if isinstance(w, Sums):
            array = _summed(array, axis, w.weights)
            continue
        assert not isinstance(h, Sums)
        if h is None or len(h) != len(w):
            array = _taken(array, w if h is None else np.searchsorted(h, w), axis)
    return array


def _taken(array: Array, index: Array, axis: int) -> Array:
    """Elements along an axis at ascending indices; a view if the indices are consecutive."""
    if len(index) and index[-1] - index[0] + 1 == len(index):
        return array[(slice(None),) * axis + (slice(int(index[0]), int(index[-1]) + 1),)]
    return array.take(index, axis)


def _summed(array: Array, axis: int, weights: Array) -> Array:
    """Weighted sums along an axis, in float64, block by block."""
    moved = np.moveaxis(array, axis, 0)
    n, rest = moved.shape[0], moved.shape[1:]
    total = np.zeros((len(weights), prod(rest)))
    step = max(1, _BLOCK_BYTES // max(1, 8 * prod(rest)))
    for i in range(0, n, step):
        total += weights[:, i : i + step] @ converted(moved[i : i + step].reshape(-1, prod(rest)), _WIDE)
    return np.moveaxis(total.reshape(len(weights), *rest), 0, axis)


def nudged(values: Array, rng: np.random.Generator) -> Array:
    """Floats moved by a few last places of float64."""
    if not is_float(dtype_name(values.dtype)):
        return values
    wide = converted(values, _WIDE)
    return wide * (1 + 4 * np.finfo(np.float64).eps * rng.choice([-1.0, 1.0], wide.shape))


def _readers(demanded: Demanded) -> dict[Term, int]:
    """How many times each term is read; being an output counts."""
    readers = dict.fromkeys(demanded.order, 0)
    for term in [*demanded.wanted, *(a for t in demanded.order for a in t.args)]:
        readers[term] += 1
    return readers


def _let_go(term: Term) -> None:
    """Release the pages of weights after a view of them has been read."""
    from eqsat.program.ops import row

    while row(term.op).view:
        (term,) = term.args
    if term.op == "constant":
        release(term.attr("value").array)


class _Run:
    """One evaluation; each value is freed after its last reader."""

    def __init__(
        self, demanded: Demanded, inputs: Mapping[str, Array], precision: Precision, moved: Moved | None
    ) -> None:
        self.d, self.inputs, self.moved = demanded, inputs, moved
        self.rng = np.random.default_rng(moved.seed if moved else 0)
        self.precision: Precision = precision
        self.calls: dict[Any, Sequence[Array]] = {}

    def values(self) -> list[Array]:
        """The wanted elements of each output."""
        d = self.d
        readers = _readers(d)
        values: dict[Term, Array] = {}
        with np.errstate(all="ignore"):
            for term in d.order:
                args = [
                    _selected(values[a], d.demand[a], need, a.shape)
                    for a, need in zip(term.args, d.needs[term], strict=True)
                ]
                values[term] = self._rounded(term, self._value(term, args))
                for arg in term.args:
                    readers[arg] -= 1
                    if not readers[arg]:
                        del values[arg]
                        _let_go(arg)
            return [
                _selected(self._typed(values[t], t.dtype), d.demand[t], wanted, t.shape)
                for t, wanted in d.wanted.items()
            ]

    def _rounded(self, term: Term, value: Array) -> Array:
        """A computed value, with perturbed rounding if requested."""
        from eqsat.program.ops import row

        if self.moved is None or not self.moved.computed or term.op == "constant" or row(term.op).view:
            return value
        return nudged(value, self.rng)

    def _typed(self, array: Array, dtype: str) -> Array:
        return converted(array, np_dtype(at_precision(dtype, self.precision)))

    def _value(self, term: Term, args: list[Array]) -> Array:
        demand = self.d.demand[term]
        if term.op == "input":
            value = np.asarray(self.inputs[term.attr("name")]).reshape(term.shape)
            return _selected(self._typed(value, term.dtype), everything(term), demand, term.shape)
        if self.moved is not None and term in self.moved.terms and is_float(term.dtype):
            own = _row(term).run(term, args, [], demand, np_dtype(term.dtype))
            return self.moved.of(own, self.rng)  # widened by its readers, block by block, like other constants
        known = self.d.constant[term] and self.moved is None and (not self.d.exact or term in self.d.native)
        precision: Precision = "native" if known else self.precision
        dtype = np_dtype(at_precision(term.dtype, precision))
        if term.op == "opaque":
            return self._opaque(term, args).astype(dtype, copy=False)
        own = [np_dtype(at_precision(a.dtype, precision)) for a in term.args]
        return _row(term).run(term, args, own, demand, dtype)

    def _opaque(self, term: Term, args: list[Array]) -> Array:
        key = (term.attr("name"), term.attr("spec"), term.args)
        if key not in self.calls:
            declared = [x.astype(np_dtype(a.dtype), copy=False) for x, a in zip(args, term.args, strict=True)]
            self.calls[key] = term.attr("run")(*declared)
        return opaque_result(term, self.calls[key])


# Operators


@dataclass(frozen=True, slots=True)
class _Row:
    """How to evaluate one operator on a demand.

    Attributes:
        needs: maps a term and its demand to the demands for its operands.
        run: maps the term, its operands, their computation types, the demand and the result type to the result.
        linear: the axes along which the operator commutes with weighted sums.
    """

    needs: Callable[[Term, Demand], list[Demand]]
    run: Callable[[Term, list[Array], list[Any], Demand, Any], Array]
    linear: Callable[[Term], Iterable[int]] = lambda term: ()


def _row(term: Term) -> _Row:
    return _ROWS.get(term.op, _ELEMENTWISE)


def _same_needs(term: Term, demand: Demand) -> list[Demand]:
    return [demand] * len(term.args)


def _typed_args(args: list[Array], own: list[Any]) -> list[Array]:
    return [converted(a, d) for a, d in zip(args, own, strict=True)]


def _run_elementwise(term: Term, args: list[Array], own: list[Any], demand: Demand, dtype: Any) -> Array:
    return elementwise(term.op, *_typed_args(args, own))


def _run_where(term: Term, args: list[Array], own: list[Any], demand: Demand, dtype: Any) -> Array:
    return np.where(*_typed_args(args, own))


def _run_cast(term: Term, args: list[Array], own: list[Any], demand: Demand, dtype: Any) -> Array:
    return converted(_typed_args(args, own)[0], dtype)


def _linear_everywhere(term: Term) -> Iterable[int]:
    linear = term.op in ("add", "sub", "neg") or (term.op == "cast" and is_float(term.args[0].dtype))
    return range(term.ndim) if linear else ()


_ELEMENTWISE = _Row(_same_needs, _run_elementwise, _linear_everywhere)


def _constant_run(term: Term, args: list[Array], own: list[Any], demand: Demand, dtype: Any) -> Array:
    return _selected(term.attr("value").array, everything(term), demand, term.shape)


def _full_run(term: Term, args: list[Array], own: list[Any], demand: Demand, dtype: Any) -> Array:
    shape = [_length(w, n) for w, n in zip(demand, term.shape, strict=True)]
    return np.broadcast_to(np.asarray(term.attr("value")).astype(dtype), shape)


def _iota_run(term: Term, args: list[Array], own: list[Any], demand: Demand, dtype: Any) -> Array:
    axis = term.attr("axis")
    line = _all_of(demand[axis], term.shape[axis]).astype(dtype)
    shape = [_length(w, n) for w, n in zip(demand, term.shape, strict=True)]
    return np.broadcast_to(line.reshape([-1 if i == axis else 1 for i in range(term.ndim)]), shape)


def _matmul_needs(term: Term, demand: Demand) -> list[Demand]:
    *batch, m, n = demand
    return [(*batch, m, None), (*batch, None, n)]


def _matmul_run(term: Term, args: list[Array], own: list[Any], demand: Demand, dtype: Any) -> Array:
    a, b = args
    wide = np.dtype(np.float32) if dtype in _HALVES else dtype
    if max(a.size * (a.dtype != wide), b.size * (b.dtype != wide)) * wide.itemsize <= _BLOCK_BYTES:
        return np.matmul(converted(a, wide), converted(b, wide)).astype(dtype, copy=False)
    if a.size > b.size:
        out = np.empty((*a.shape[:-1], b.shape[-1]), dtype)
        held = converted(b, wide)
        step = max(1, a.shape[-2] * _BLOCK_BYTES // (a.size * wide.itemsize))
        for i in range(0, a.shape[-2], step):
            out[..., i : i + step, :] = np.matmul(converted(a[..., i : i + step, :], wide), held)
        return out
    out = np.zeros((*a.shape[:-1], b.shape[-1]), wide)
    held = converted(a, wide)
    step = max(1, b.shape[-2] * _BLOCK_BYTES // (b.size * wide.itemsize))
    for i in range(0, b.shape[-2], step):
        out += np.matmul(held[..., i : i + step], converted(b[..., i : i + step, :], wide))
    return out.astype(dtype, copy=False)


_HALVES = frozenset(np_dtype(name) for name in HALVES)


def _transpose_needs(term: Term, demand: Demand) -> list[Demand]:
    need: list[Wanted] = [None] * term.ndim
    for out, axis in enumerate(term.attr("perm")):
        need[axis] = demand[out]
    return [tuple(need)]


def reshape_groups(term: Term) -> list[tuple[range, range]]:
    """Matching runs of axes of operand and result: each pair holds the same elements."""
    before, after = term.args[0].shape, term.shape
    groups = []
    i = j = 0
    while i < len(before) or j < len(after):
        first_i, first_j = i, j
        m = before[i] if i < len(before) else 1
        n = after[j] if j < len(after) else 1
        i, j = min(i + 1, len(before)), min(j + 1, len(after))
        while m != n:
            if m < n:
                m *= before[i]
                i += 1
            else:
                n *= after[j]
                j += 1
        groups.append((range(first_i, i), range(first_j, j)))
    return groups


def _one_to_one(source: Sequence[int], result: Sequence[int], before: Sequence[int], after: Sequence[int]) -> bool:
    return len(source) == len(result) == 1 and before[source[0]] == after[result[0]]


def _flat(index: Sequence[Array], shape: Sequence[int]) -> Array:
    """Row-major positions of the product of index sets, in the order of the product."""
    flat = np.zeros((), np.int64)
    for each, n in zip(index, shape, strict=True):
        flat = flat[..., None] * n + each
    return flat.reshape(-1)


def _reshape_needs(term: Term, demand: Demand) -> list[Demand]:
    (x,) = term.args
    if term.size == 0:
        return [everything(x)]
    if _count(term, demand) == 0:
        return [((np.arange(0),) * x.ndim)]
    need: list[Wanted] = [None] * x.ndim
    for source, result in reshape_groups(term):
        if _one_to_one(source, result, x.shape, term.shape):
            need[source[0]] = demand[result[0]]
        elif any(demand[j] is not None for j in result):
            flat = _flat([_all_of(demand[j], term.shape[j]) for j in result], [term.shape[j] for j in result])
            dims = [x.shape[i] for i in source]
            for i, digits in zip(source, np.unravel_index(flat, dims) if dims else (), strict=True):
                need[i] = _some(distinct(digits), x.shape[i])
    return [tuple(need)]


def _reshape_run(term: Term, args: list[Array], own: list[Any], demand: Demand, dtype: Any) -> Array:
    (array,) = args
    (x,) = term.args
    shape = [_length(w, n) for w, n in zip(demand, term.shape, strict=True)]
    if all(w is None for w in demand):
        return array.reshape(term.shape)
    if prod(shape) == 0:
        return np.empty(shape, array.dtype)
    (need,) = _reshape_needs(term, demand)
    # Each group before this one is a single axis by now.
    for at, (source, result) in enumerate(reshape_groups(term)):
        held = [_all_of(need[i], x.shape[i]) for i in source] if _indexed(source, need) else None
        after = at + len(source)
        merged = array.reshape(*array.shape[:at], prod(array.shape[at:after]), *array.shape[after:])
        if held is not None and any(demand[j] is not None for j in result):
            flat = _flat([_all_of(demand[j], term.shape[j]) for j in result], [term.shape[j] for j in result])
            digits = np.unravel_index(flat, [x.shape[i] for i in source])
            places = [np.searchsorted(h, d) for h, d in zip(held, digits, strict=True)]
            order = np.ravel_multi_index(places, [len(h) for h in held])
            if len(order) != merged.shape[at] or not np.array_equal(order, np.arange(len(order))):
                merged = merged.take(order, at)
        array = merged
    return array.reshape(shape)


def _indexed(axes: Sequence[int], need: Demand) -> bool:
    """Whether the demand selects by index on one of these axes; sums are passed on unchanged."""
    return bool(axes) and not any(isinstance(need[i], Sums) for i in axes)


def _reshape_linear(term: Term) -> Iterable[int]:
    if term.size == 0:
        return ()
    (x,) = term.args
    return [r[0] for s, r in reshape_groups(term) if _one_to_one(s, r, x.shape, term.shape)]


def _broadcast_needs(term: Term, demand: Demand) -> list[Demand]:
    (x,) = term.args
    lead = term.ndim - x.ndim
    return [tuple(None if n == 1 != term.shape[lead + i] else demand[lead + i] for i, n in enumerate(x.shape))]


def _broadcast_run(term: Term, args: list[Array], own: list[Any], demand: Demand, dtype: Any) -> Array:
    (x,) = term.args
    lead = term.ndim - x.ndim
    (value,) = _typed_args(args, own) if any(isinstance(w, Sums) for w in demand) else args
    value = value.reshape((1,) * lead + value.shape)
    for i, wanted in enumerate(demand):
        repeated = i < lead or x.shape[i - lead] == 1 != term.shape[i]
        if isinstance(wanted, Sums) and repeated:
            value = value * wanted.weights.sum(1).reshape([-1 if j == i else 1 for j in range(term.ndim)])
    return np.broadcast_to(value, [_length(w, n) for w, n in zip(demand, term.shape, strict=True)])


def _every_axis(term: Term) -> Iterable[int]:
    return range(term.ndim)


def _slice_bounds(term: Term) -> list[range]:
    return [range(*b) for b in zip(term.attr("starts"), term.attr("stops"), term.attr("steps"), strict=True)]


def _slice_linear(term: Term) -> Iterable[int]:
    """The axes that the slice keeps whole."""
    (x,) = term.args
    return [i for i, r in enumerate(_slice_bounds(term)) if r == range(x.shape[i])]


def _slice_needs(term: Term, demand: Demand) -> list[Demand]:
    (x,) = term.args
    need: list[Wanted] = []
    for r, wanted, n in zip(_slice_bounds(term), demand, x.shape, strict=True):
        if r == range(n):
            need.append(wanted)
        else:
            index = r.start + r.step * _all_of(wanted, len(r))
            need.append(_some(np.sort(index), n))
    return [tuple(need)]


def _slice_run(term: Term, args: list[Array], own: list[Any], demand: Demand, dtype: Any) -> Array:
    flipped = [slice(None, None, -1) if r.step < 0 else slice(None) for r in _slice_bounds(term)]
    return args[0][tuple(flipped)]


def _concat_shares(term: Term, demand: Demand) -> list[Wanted]:
    """The demand for each operand along the concatenated axis."""
    axis = term.attr("axis")
    wanted = demand[axis]
    if wanted is None:
        return [None] * len(term.args)
    assert not isinstance(wanted, Sums)
    shares: list[Wanted] = []
    start = 0
    for arg in term.args:
        stop = start + arg.shape[axis]
        low, high = np.searchsorted(wanted, [start, stop])
        shares.append(_some(wanted[low:high] - start, arg.shape[axis]))
        start = stop
    return shares


def _concat_needs(term: Term, demand: Demand) -> list[Demand]:
    axis = term.attr("axis")
    return [(*demand[:axis], share, *demand[axis + 1 :]) for share in _concat_shares(term, demand)]


def _concat_run(term: Term, args: list[Array], own: list[Any], demand: Demand, dtype: Any) -> Array:
    return np.concatenate(_typed_args(args, own), term.attr("axis"))


def _concat_linear(term: Term) -> Iterable[int]:
    return [i for i in range(term.ndim) if i != term.attr("axis")]


def _pad_needs(term: Term, demand: Demand) -> list[Demand]:
    need: list[Wanted] = []
    for wanted, low, n, total in zip(demand, term.attr("lo"), term.args[0].shape, term.shape, strict=True):
        if wanted is None or n == total:
            need.append(wanted)
        else:
            index = _all_of(wanted, total) - low
            need.append(_some(index[(index >= 0) & (index < n)], n))
    return [tuple(need)]


def _pad_run(term: Term, args: list[Array], own: list[Any], demand: Demand, dtype: Any) -> Array:
    (x,) = _typed_args(args, own)
    (operand,) = term.args
    out = np.full([_length(w, n) for w, n in zip(demand, term.shape, strict=True)], term.attr("value"), dtype)
    inside = []
    for wanted, low, n, total in zip(demand, term.attr("lo"), operand.shape, term.shape, strict=True):
        if n == total:
            inside.append(slice(None))
        else:
            index = _all_of(wanted, total) - low
            first, last = np.searchsorted(index, [0, n])
            inside.append(slice(int(first), int(last)))
    out[tuple(inside)] = x
    return out


def _pad_linear(term: Term) -> Iterable[int]:
    kept = zip(term.args[0].shape, term.shape, strict=True)
    return [i for i, (n, total) in enumerate(kept) if n == total] if term.attr("value") == 0 else []


def _reduce_needs(term: Term, demand: Demand) -> list[Demand]:
    axes, keep = term.attr("axes"), term.attr("keepdims")
    left = iter(demand)
    need: list[Wanted] = []
    for i in range(term.args[0].ndim):
        if i not in axes:
            need.append(next(left))
        else:
            need.append(None)
            if keep:
                next(left)
    return [tuple(need)]


def _reduce_run(term: Term, args: list[Array], own: list[Any], demand: Demand, dtype: Any) -> Array:
    (x,) = _typed_args(args, own)
    return reduce(term.attr("kind"), x, term.attr("axes"), term.attr("keepdims")).astype(dtype, copy=False)


def _reduce_linear(term: Term) -> Iterable[int]:
    if term.attr("kind") != "sum":
        return ()
    axes = term.attr("axes") if term.attr("keepdims") else ()
    return [i for i in range(term.ndim) if i not in axes]


def _gather_needs(term: Term, demand: Demand) -> list[Demand]:
    axis = term.attr("axis")
    index = term.args[1]
    after = axis + index.ndim
    return [(*demand[:axis], None, *demand[after:]), tuple(demand[axis:after])]


def _gather_run(term: Term, args: list[Array], own: list[Any], demand: Demand, dtype: Any) -> Array:
    data, index = args
    return take(data, index, term.attr("axis")).astype(dtype, copy=False)


def _window_places(term: Term, demand: Demand, kernel: Sequence[int]) -> list[Array]:
    """For each trailing axis, the operand's position for each wanted output and kernel element: [out, kernel]."""
    places = []
    settings = zip(term.attr("strides"), term.attr("pads_lo"), term.attr("dilations"), strict=True)
    for i, (stride, low, dilation) in enumerate(settings):
        out = _all_of(demand[2 + i], term.shape[2 + i])
        places.append(out[:, None] * stride + np.arange(kernel[i]) * dilation - low)
    return places


def _window_needs(term: Term, demand: Demand, kernel: Sequence[int]) -> list[Wanted]:
    if all(w is None for w in demand[2:]):
        return [None] * len(kernel)
    sizes = term.args[0].shape[2:]
    places = _window_places(term, demand, kernel)
    return [_some(distinct(p[(p >= 0) & (p < n)]), n) for p, n in zip(places, sizes, strict=True)]


def _windowed(term: Term, x: Array, demand: Demand, kernel: Sequence[int], fill: Any) -> Array:
    """The wanted windows: x[n, c, *s] to [n, c, *out, *kernel]."""
    index: list[Array] = []
    needs = _window_needs(term, demand, kernel)
    rank = len(kernel)
    pads = []
    for i, (p, need) in enumerate(zip(_window_places(term, demand, kernel), needs, strict=True)):
        n = term.args[0].shape[2 + i]
        held = _all_of(need, n)
        outside = (p < 0) | (p >= n)
        place = np.where(outside, len(held), np.searchsorted(held, p))
        shape = [1] * (2 * rank)
        shape[i], shape[rank + i] = p.shape
        index.append(place.reshape(shape))
        pads.append((0, 1))
    padded = np.pad(x, [(0, 0), (0, 0), *pads], constant_values=fill)
    return padded[(slice(None), slice(None), *index)]


def _conv_needs(term: Term, demand: Demand) -> list[Demand]:
    _, w = term.args
    channels = demand[1] if term.attr("groups") == 1 else None
    spatial = _window_needs(term, demand, w.shape[2:])
    return [(demand[0], None, *spatial), (channels, *(None,) * (w.ndim - 1))]


def _conv_run(term: Term, args: list[Array], own: list[Any], demand: Demand, dtype: Any) -> Array:
    x, w = _typed_args(args, own)
    groups = term.attr("groups")
    if all(wanted is None for wanted in demand[2:]):
        from eqsat.program.ops import row

        whole = row("conv").run(x, w, dtype=None, **dict(term.attrs))
    else:
        wide = np.dtype(np.float32) if dtype in _HALVES else dtype
        view = _windowed(term, x.astype(wide, copy=False), demand, w.shape[2:], 0)
        whole = correlate(view, converted(w, wide), groups).astype(dtype, copy=False)
    channels = demand[1]
    return whole if groups == 1 or channels is None else whole.take(_all_of(channels, term.shape[1]), 1)


def _conv_linear(term: Term) -> Iterable[int]:
    return (1,) if term.attr("groups") == 1 else ()


def _pool_needs(term: Term, demand: Demand) -> list[Demand]:
    return [(*demand[:2], *_window_needs(term, demand, term.attr("kernel")))]


def _pool_run(term: Term, args: list[Array], own: list[Any], demand: Demand, dtype: Any) -> Array:
    (x,) = _typed_args(args, own)
    if all(wanted is None for wanted in demand[2:]):
        from eqsat.program.ops import row

        return row("pool").run(x, dtype=None, **dict(term.attrs))
    kind = term.attr("kind")
    view = _windowed(term, x, demand, term.attr("kernel"), 0 if kind == "sum" else lowest(term.dtype))
    return reduce(kind, view, tuple(range(x.ndim, view.ndim)), False)


def _leaf(term: Term, demand: Demand) -> list[Demand]:
    return []


def _whole(term: Term, demand: Demand) -> list[Demand]:
    return [everything(a) for a in term.args]


def _moved(run: Callable[[Term, Array, Demand], Array]) -> Callable[[Term, list[Array], list[Any], Demand, Any], Array]:
    return lambda term, args, own, demand, dtype: run(term, args[0], demand)


_ROWS: dict[str, _Row] = {
    "input": _Row(_leaf, _constant_run, _every_axis),
    "constant": _Row(_leaf, _constant_run),
    "full": _Row(_leaf, _full_run),
    "iota": _Row(_leaf, _iota_run),
    "where": _Row(_same_needs, _run_where),
    "cast": _Row(_same_needs, _run_cast, _linear_everywhere),
    "matmul": _Row(_matmul_needs, _matmul_run, lambda term: (term.ndim - 2, term.ndim - 1)),
    "transpose": _Row(_transpose_needs, _moved(lambda term, x, _: x.transpose(term.attr("perm"))), _every_axis),
    "reshape": _Row(_reshape_needs, _reshape_run, _reshape_linear),
    "broadcast": _Row(_broadcast_needs, _broadcast_run, _every_axis),
    "slice": _Row(_slice_needs, _slice_run, _slice_linear),
    "concat": _Row(_concat_needs, _concat_run, _concat_linear),
    "pad": _Row(_pad_needs, _pad_run, _pad_linear),
    "reduce": _Row(_reduce_needs, _reduce_run, _reduce_linear),
    "gather": _Row(_gather_needs, _gather_run),
    "conv": _Row(_conv_needs, _conv_run, _conv_linear),
    "pool": _Row(_pool_needs, _pool_run),
    "opaque": _Row(_whole, _constant_run),
}
"""The operators that are not elementwise."""
