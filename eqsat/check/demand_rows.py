"""How each operator is evaluated on a demand, and what it then needs of its operands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from eqsat.base.numerics import (
    HALVES,
    Array,
    converted,
    correlate,
    distinct,
    elementwise,
    groups_at_once,
    is_float,
    lowest,
    np_dtype,
    reduce,
    take,
)
from eqsat.check.large import mapped, reduced, reshaped, typed
from eqsat.check.wanted import (
    BLOCK_BYTES,
    Demand,
    Sums,
    Wanted,
    everything,
    indices,
    length_of,
    reshape_groups,
    selected,
    some,
    taken,
)
from eqsat.program.term import Term, row


@dataclass(frozen=True, slots=True)
class Row:
    """How to evaluate one operator on a demand.

    Attributes:
        needs: maps a term and its demand to the demands for its operands.
        run: maps the term, its operands, their computation types, the demand and the result type to the result.
        linear: the axes along which the operator commutes with weighted sums.
    """

    needs: Callable[[Term, Demand], list[Demand]]
    run: Callable[[Term, list[Array], list[Any], Demand, Any], Array]
    linear: Callable[[Term], Iterable[int]] = lambda term: ()


def row_of(term: Term) -> Row:
    return _ROWS.get(term.op, _ELEMENTWISE)


def _same_needs(term: Term, demand: Demand) -> list[Demand]:
    return [demand] * len(term.args)


def _typed_args(args: list[Array], own: list[Any]) -> list[Array]:
    return [typed(a, d) for a, d in zip(args, own, strict=True)]


def _each(run: Callable[..., Array], args: list[Array], own: list[Any]) -> Array:
    """A function of single elements, in the types that it computes in."""
    return mapped(lambda *parts: run(*(converted(a, d) for a, d in zip(parts, own, strict=True))), *args)


def _run_elementwise(term: Term, args: list[Array], own: list[Any], demand: Demand, dtype: Any) -> Array:
    return _each(lambda *parts: elementwise(term.op, *parts), args, own)


def _run_where(term: Term, args: list[Array], own: list[Any], demand: Demand, dtype: Any) -> Array:
    return _each(np.where, args, own)


def _run_cast(term: Term, args: list[Array], own: list[Any], demand: Demand, dtype: Any) -> Array:
    return _each(lambda x: converted(x, dtype), args, own)


def _linear_everywhere(term: Term) -> Iterable[int]:
    linear = term.op in ("add", "sub", "neg") or (term.op == "cast" and is_float(term.args[0].dtype))
    return range(term.ndim) if linear else ()


_ELEMENTWISE = Row(_same_needs, _run_elementwise, _linear_everywhere)


def _constant_run(term: Term, args: list[Array], own: list[Any], demand: Demand, dtype: Any) -> Array:
    return selected(term.attr("value").view, everything(term), demand)


def _full_run(term: Term, args: list[Array], own: list[Any], demand: Demand, dtype: Any) -> Array:
    shape = [length_of(w, n) for w, n in zip(demand, term.shape, strict=True)]
    return np.broadcast_to(np.asarray(term.attr("value")).astype(dtype), shape)


def _iota_run(term: Term, args: list[Array], own: list[Any], demand: Demand, dtype: Any) -> Array:
    axis = term.attr("axis")
    line = indices(demand[axis], term.shape[axis]).astype(dtype)
    shape = [length_of(w, n) for w, n in zip(demand, term.shape, strict=True)]
    return np.broadcast_to(line.reshape([-1 if i == axis else 1 for i in range(term.ndim)]), shape)


def _matmul_needs(term: Term, demand: Demand) -> list[Demand]:
    *batch, m, n = demand
    return [(*batch, m, None), (*batch, None, n)]


def _matmul_run(term: Term, args: list[Array], own: list[Any], demand: Demand, dtype: Any) -> Array:
    a, b = args
    wide = np.dtype(np.float32) if dtype in _HALVES else dtype
    if max(a.size * (a.dtype != wide), b.size * (b.dtype != wide)) * wide.itemsize <= BLOCK_BYTES:
        return np.matmul(converted(a, wide), converted(b, wide)).astype(dtype, copy=False)
    if a.size > b.size:
        out = np.empty((*a.shape[:-1], b.shape[-1]), dtype)
        held = converted(b, wide)
        step = max(1, a.shape[-2] * BLOCK_BYTES // (a.size * wide.itemsize))
        for i in range(0, a.shape[-2], step):
            out[..., i : i + step, :] = np.matmul(converted(a[..., i : i + step, :], wide), held)
        return out
    out = np.zeros((*a.shape[:-1], b.shape[-1]), wide)
    held = converted(a, wide)
    step = max(1, b.shape[-2] * BLOCK_BYTES // (b.size * wide.itemsize))
    for i in range(0, b.shape[-2], step):
        out += np.matmul(held[..., i : i + step], converted(b[..., i : i + step, :], wide))
    return out.astype(dtype, copy=False)


_HALVES = frozenset(np_dtype(name) for name in HALVES)


def _transpose_needs(term: Term, demand: Demand) -> list[Demand]:
    need: list[Wanted] = [None] * term.ndim
    for out, axis in enumerate(term.attr("perm")):
        need[axis] = demand[out]
    return [tuple(need)]


def _one_to_one(source: Sequence[int], result: Sequence[int], before: Sequence[int], after: Sequence[int]) -> bool:
    return len(source) == len(result) == 1 and before[source[0]] == after[result[0]]


def _flat(index: Sequence[Array], shape: Sequence[int]) -> Array:
    """Row-major positions of the product of index sets, in the order of the product."""
    flat = np.zeros((), np.int64)
    for each, n in zip(index, shape, strict=True):
        flat = flat[..., None] * n + each
    return flat.reshape(-1)


def _places(term: Term, axes: Sequence[int], demand: Demand) -> Array:
    """Row-major positions of the wanted elements along some axes."""
    return _flat([indices(demand[j], term.shape[j]) for j in axes], [term.shape[j] for j in axes])


def _reshape_needs(term: Term, demand: Demand) -> list[Demand]:
    (x,) = term.args
    need: list[Wanted] = [None] * x.ndim
    for source, result in reshape_groups(term):
        if _one_to_one(source, result, x.shape, term.shape):
            need[source[0]] = demand[result[0]]
        elif any(demand[j] is not None for j in result):
            for i, wanted in zip(source, _digits(term, source, result, demand), strict=True):
                need[i] = wanted
    return [tuple(need)]


def _digits(term: Term, source: Sequence[int], result: Sequence[int], demand: Demand) -> list[Wanted]:
    """The demand for each of the operand's axes in a group. Trailing axes that are wanted whole are runs of elements:
    for each, only the places along the axis that it passes are looked at."""
    (x,) = term.args
    lead = len(result) - next(i for i, j in enumerate(reversed(result)) if demand[j] is not None)
    run = prod(term.shape[j] for j in result[lead:])
    starts = run * _places(term, result[:lead], demand)
    if len(source) == 1:
        return [some((starts[:, None] + np.arange(run)).reshape(-1), x.shape[source[0]])]
    found: list[Wanted] = []
    stride = prod(x.shape[i] for i in source)
    for n in (x.shape[i] for i in source):
        stride //= n
        first = starts // stride
        more = (starts + run - 1) // stride - first
        if more.max() >= n - 1:
            found.append(None)
            continue
        hit = np.zeros(n, bool)
        hit[(first[:, None] + np.minimum(np.arange(more.max() + 1), more[:, None])) % n] = True
        found.append(some(np.flatnonzero(hit), n))
    return found


def _reshape_run(term: Term, args: list[Array], own: list[Any], demand: Demand, dtype: Any) -> Array:
    (array,) = args
    (x,) = term.args
    shape = [length_of(w, n) for w, n in zip(demand, term.shape, strict=True)]
    if all(w is None for w in demand):
        return reshaped(array, term.shape)
    (need,) = _reshape_needs(term, demand)
    # Each group before this one is a single axis by now.
    for at, (source, result) in enumerate(reshape_groups(term)):
        after = at + len(source)
        merged = array.reshape(*array.shape[:at], prod(array.shape[at:after]), *array.shape[after:])
        if len(source) > 1 and _indexed(source, need) and any(demand[j] is not None for j in result):
            flat = _places(term, result, demand)
            digits = np.unravel_index(flat, [x.shape[i] for i in source])
            places = [_place(need[i], d, x.shape[i]) for i, d in zip(source, digits, strict=True)]
            order = np.ravel_multi_index(places, [length_of(need[i], x.shape[i]) for i in source])
            if len(order) != merged.shape[at] or not np.array_equal(order, np.arange(len(order))):
                merged = taken(merged, order, at)
        array = merged
    return array.reshape(shape)


def _place(held: Wanted, index: Array, n: int) -> Array:
    """Where elements of an axis of n are among those held."""
    if not isinstance(held, np.ndarray):
        return index
    place = np.zeros(n, np.int64)
    place[held] = np.arange(len(held))
    return place[index]


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
    return np.broadcast_to(value, [length_of(w, n) for w, n in zip(demand, term.shape, strict=True)])


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
            index = r.start + r.step * indices(wanted, len(r))
            need.append(some(np.sort(index), n))
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
        shares.append(None if high - low == arg.shape[axis] else wanted[low:high] - start)
        start = stop
    return shares


def _concat_needs(term: Term, demand: Demand) -> list[Demand]:
    axis = term.attr("axis")
    return [(*demand[:axis], share, *demand[axis + 1 :]) for share in _concat_shares(term, demand)]


def _concat_run(term: Term, args: list[Array], own: list[Any], demand: Demand, dtype: Any) -> Array:
    axis = term.attr("axis")
    typed = _typed_args(args, own)
    read = [x for x in typed if x.shape[axis]] or typed[:1]
    return np.concatenate(read, axis) if len(read) > 1 else read[0]


def _concat_linear(term: Term) -> Iterable[int]:
    return [i for i in range(term.ndim) if i != term.attr("axis")]


def _pad_needs(term: Term, demand: Demand) -> list[Demand]:
    need: list[Wanted] = []
    for wanted, low, n, total in zip(demand, term.attr("lo"), term.args[0].shape, term.shape, strict=True):
        if wanted is None or n == total:
            need.append(wanted)
        else:
            index = indices(wanted, total) - low
            need.append(some(index[(index >= 0) & (index < n)], n))
    return [tuple(need)]


def _pad_run(term: Term, args: list[Array], own: list[Any], demand: Demand, dtype: Any) -> Array:
    (x,) = _typed_args(args, own)
    (operand,) = term.args
    out = np.full([length_of(w, n) for w, n in zip(demand, term.shape, strict=True)], term.attr("value"), dtype)
    inside = []
    for wanted, low, n, total in zip(demand, term.attr("lo"), operand.shape, term.shape, strict=True):
        if n == total:
            inside.append(slice(None))
        else:
            index = indices(wanted, total) - low
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
    found = reduced(term.attr("kind"), args[0], own[0], term.attr("axes"), term.attr("keepdims"))
    return found.astype(dtype, copy=False)


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
    """Indices that are computed from random values may lie outside, where no program is defined: they take the nearest
    element, and what both programs make of it is compared.
    """
    data, index = args
    axis = term.attr("axis")
    n = data.shape[axis]
    near = index
    if index.size and not 0 <= index.min() <= index.max() < n:  # reading them takes less than making others
        near = np.clip(np.where(index < 0, index + n, index), 0, n - 1)
    return take(data, near, axis).astype(dtype, copy=False)


def _window_places(term: Term, demand: Demand, kernel: Sequence[int]) -> list[Array]:
    """For each trailing axis, the operand's position for each wanted output and kernel element: [out, kernel]."""
    places = []
    settings = zip(term.attr("strides"), term.attr("pads_lo"), term.attr("dilations"), strict=True)
    for i, (stride, low, dilation) in enumerate(settings):
        out = indices(demand[2 + i], term.shape[2 + i])
        places.append(out[:, None] * stride + np.arange(kernel[i]) * dilation - low)
    return places


def _window_needs(term: Term, demand: Demand, kernel: Sequence[int]) -> list[Wanted]:
    if all(w is None for w in demand[2:]):
        return [None] * len(kernel)
    sizes = term.args[0].shape[2:]
    places = _window_places(term, demand, kernel)
    return [some(distinct(p[(p >= 0) & (p < n)]), n) for p, n in zip(places, sizes, strict=True)]


def _window_index(term: Term, demand: Demand, kernel: Sequence[int]) -> list[tuple[Array, bool]]:
    """For each trailing axis, where the operand that is held has the elements of wanted windows, [kernel, out]; and
    whether any is padding, which is found behind all that is held."""
    found = []
    needs = _window_needs(term, demand, kernel)
    for p, need, n in zip(_window_places(term, demand, kernel), needs, term.args[0].shape[2:], strict=True):
        held = indices(need, n)
        outside = (p < 0) | (p >= n)
        found.append((np.where(outside, len(held), np.searchsorted(held, p)).T, bool(outside.any())))
    return found


def _windowed(x: Array, index: Sequence[tuple[Array, bool]], fill: Any) -> Array:
    """The wanted windows: x[n, c, *s] to [n, c, *out, *kernel]."""
    for axis in range(x.ndim - 1, 1, -1):  # the last first: then each place of another is a run of elements
        place, padded = index[axis - 2]
        if padded:
            x = np.concatenate([x, np.full((*x.shape[:axis], 1, *x.shape[axis + 1 :]), fill, x.dtype)], axis)
        x = taken(x, place, axis)
    # from [n, c, *(kernel, out)], so that products with weights read along rows
    return x.transpose(0, 1, *range(3, x.ndim, 2), *range(2, x.ndim, 2))


def _conv_needs(term: Term, demand: Demand) -> list[Demand]:
    x, w = term.args
    spatial = _window_needs(term, demand, w.shape[2:])
    inside = (None,) * (w.ndim - 1)
    if term.attr("groups") == 1 or demand[1] is None:
        return [(demand[0], None, *spatial), (demand[1], *inside)]
    groups = _groups(term, demand)
    each = w.shape[0] // term.attr("groups")
    read = _members(groups, np.arange(w.shape[1]), w.shape[1], x.shape[1])
    made = _members(groups, distinct(indices(demand[1], w.shape[0]) % each), each, w.shape[0])
    return [(demand[0], read, *spatial), (made, *inside)]


def _groups(term: Term, demand: Demand) -> Array:
    """The groups of a convolution that hold any of the wanted channels."""
    return distinct(indices(demand[1], term.shape[1]) // (term.shape[1] // term.attr("groups")))


def _members(groups: Array, within: Array, each: int, n: int) -> Wanted:
    """The same channels of some groups, which have so many each."""
    return some((groups[:, None] * each + within).reshape(-1), n)


def _conv_run(term: Term, args: list[Array], own: list[Any], demand: Demand, dtype: Any) -> Array:
    x, w = _typed_args(args, own)
    groups = 1 if term.attr("groups") == 1 else len(_groups(term, demand))
    if all(wanted is None for wanted in demand[2:]):
        whole = row("conv").run(x, w, **dict(term.attrs) | {"dtype": None, "groups": groups})
    else:
        wide = np.dtype(np.float32) if dtype in _HALVES else dtype
        whole = _windows_times(term, converted(x, wide), converted(w, wide), demand, groups).astype(dtype, copy=False)
    _, (made, *_) = _conv_needs(term, demand)
    return whole if term.attr("groups") == 1 else selected(whole, (None, made), (None, demand[1]))


def _windows_times(term: Term, x: Array, w: Array, demand: Demand, groups: int) -> Array:
    """The wanted windows times the weights of these groups, a few groups at a time."""
    made, read = w.shape[0] // groups, w.shape[1]
    index = _window_index(term, demand, w.shape[2:])
    step = groups_at_once(x.shape[0] * read * prod(place.size for place, _ in index) * x.itemsize)
    parts = []
    for g in range(0, groups, step):
        view = _windowed(x[:, read * g : read * (g + step)], index, 0)
        parts.append(correlate(view, w[made * g : made * (g + step)], min(step, groups - g)))
    return np.concatenate(parts, 1)


def _conv_linear(term: Term) -> Iterable[int]:
    return (1,) if term.attr("groups") == 1 else ()


def _pool_needs(term: Term, demand: Demand) -> list[Demand]:
    return [(*demand[:2], *_window_needs(term, demand, term.attr("kernel")))]


def _pool_run(term: Term, args: list[Array], own: list[Any], demand: Demand, dtype: Any) -> Array:
    (x,) = _typed_args(args, own)
    if all(wanted is None for wanted in demand[2:]):
        return row("pool").run(x, dtype=None, **dict(term.attrs))
    kind = term.attr("kind")
    view = _windowed(x, _window_index(term, demand, term.attr("kernel")), 0 if kind == "sum" else lowest(term.dtype))
    return reduce(kind, view, tuple(range(x.ndim, view.ndim)), False)


def _leaf(term: Term, demand: Demand) -> list[Demand]:
    return []


def _whole(term: Term, demand: Demand) -> list[Demand]:
    return [everything(a) for a in term.args]


def _moved(run: Callable[[Term, Array, Demand], Array]) -> Callable[[Term, list[Array], list[Any], Demand, Any], Array]:
    return lambda term, args, own, demand, dtype: run(term, args[0], demand)


_ROWS: dict[str, Row] = {
    "input": Row(_leaf, _constant_run, _every_axis),
    "constant": Row(_leaf, _constant_run),
    "full": Row(_leaf, _full_run),
    "iota": Row(_leaf, _iota_run),
    "where": Row(_same_needs, _run_where),
    "cast": Row(_same_needs, _run_cast, _linear_everywhere),
    "matmul": Row(_matmul_needs, _matmul_run, lambda term: (term.ndim - 2, term.ndim - 1)),
    "transpose": Row(_transpose_needs, _moved(lambda term, x, _: x.transpose(term.attr("perm"))), _every_axis),
    "reshape": Row(_reshape_needs, _reshape_run, _reshape_linear),
    "broadcast": Row(_broadcast_needs, _broadcast_run, _every_axis),
    "slice": Row(_slice_needs, _slice_run, _slice_linear),
    "concat": Row(_concat_needs, _concat_run, _concat_linear),
    "pad": Row(_pad_needs, _pad_run, _pad_linear),
    "reduce": Row(_reduce_needs, _reduce_run, _reduce_linear),
    "gather": Row(_gather_needs, _gather_run),
    "conv": Row(_conv_needs, _conv_run, _conv_linear),
    "pool": Row(_pool_needs, _pool_run),
    "opaque": Row(_whole, _constant_run),
}
"""The operators that are not elementwise."""
