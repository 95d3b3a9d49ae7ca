"""ONNX operators that read and write elements by index: gathers along computed or constant positions."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

import numpy as np

from eqsat.base.numerics import Array, is_float
from eqsat.errors import InputError, ShapeError
from eqsat.frontends.onnx.operators.movement import check_places
from eqsat.frontends.onnx.operators.node import Node, Row, row
from eqsat.frontends.terms.declined import Declined
from eqsat.frontends.terms.lookups import flat, gather_elements, wrapped
from eqsat.frontends.terms.scatter import scattered_elements, scattered_rows
from eqsat.frontends.terms.windows import running
from eqsat.program import composites, ops
from eqsat.program.term import Term

_PLACED = 1 << 22  # elements of a tensor into which constant positions are written, at most
_RANKED = 128  # elements along an axis that are compared with each other, at most: the experts of a router, say


def _gather_elements(node: Node) -> Term:
    """One flat gather with computed positions."""
    data = node.input(0)
    axis = ops.axis_of(node.attr("axis", 0), data.ndim)
    check_places(node, node.input(1), data, axis)
    return gather_elements(data, ops.cast(node.input(1), "int64"), axis)


def _gather_nd(node: Node) -> Term:
    """out[b, i] = data[b, index[b, i, 0], index[b, i, 1], ...]: the indexed axes are merged and gathered by flat
    position."""
    data, indices = node.input(0), ops.cast(node.input(1), "int64")
    batch = node.attr("batch_dims", 0)
    depth = indices.shape[-1] if indices.ndim else 0
    if not 0 <= batch < min(data.ndim, indices.ndim) or not 1 <= depth <= data.ndim - batch:
        raise ShapeError(
            f"gather takes places of at most {data.ndim - batch} indices, got {data.shape}, {indices.shape}"
        )
    if data.shape[:batch] != indices.shape[:batch]:
        raise ShapeError(f"gather takes equal batch dims, got {data.shape} and {indices.shape}, {batch} of them")
    chosen, rest = data.shape[: batch + depth], data.shape[batch + depth :]
    places = indices.shape[:-1]
    parts = [ops.reshape(part, places) for part in ops.split(indices, [1] * depth, -1)]
    for axis, part in enumerate(parts, batch):
        check_places(node, part, data, axis)
    positions = [ops.iota(places, i) for i in range(batch)]
    positions += [wrapped(part, n) for part, n in zip(parts, chosen[batch:], strict=True)]
    return ops.gather(ops.reshape(data, (prod(chosen), *rest)), flat(positions, chosen), 0)


# Elements written at constant places


def _placed(data: Term, places: Array, updates: Term) -> Term:
    """`data` with the flat `updates` at these flat positions; the last update of a position counts."""
    if data.size + updates.size > _PLACED:
        raise Declined("a large tensor")
    both = ops.concat([ops.reshape(data, (data.size,)), ops.reshape(updates, (updates.size,))], 0)
    source = np.arange(data.size)
    source[places.reshape(-1)] = data.size + np.arange(updates.size)
    return ops.gather(both, ops.constant(source.reshape(data.shape)), 0)


def _constant_places(node: Node, sizes: Sequence[int]) -> Array:
    """The constant indices, counted from the start, each below the size of its axis."""
    if node.attr("reduction", "none") != "none":
        raise Declined("updates that are combined")
    indices = node.value(1)
    if indices is None:
        raise InputError("input 1 is missing; the ONNX operator requires it")
    limits = np.asarray(sizes)
    if np.any(indices < -limits) or np.any(indices >= limits):
        raise ShapeError(f"indices lie in [-n, n) for axes of {list(sizes)}, got {indices.min()} to {indices.max()}")
    return np.where(indices < 0, indices + limits, indices).astype(np.int64)


def _scatter_elements(node: Node) -> Term:
    """out[index[i, j], j] = updates[i, j] for axis 0, and data elsewhere."""
    data, updates = node.input(0), node.input(2)
    axis = ops.axis_of(node.attr("axis", 0), data.ndim)
    if data.size > _PLACED:
        raise Declined("a large tensor")
    if not node.constants.is_constant(node.input(1)):
        return scattered_elements(data, node.input(1), updates, axis, node.attr("reduction", "none"))
    indices = _constant_places(node, [data.shape[axis]])
    if indices.shape != updates.shape:
        raise ShapeError(f"scatter takes as many indices as updates, got {indices.shape} and {updates.shape}")
    grid = list(np.indices(indices.shape))
    grid[axis] = indices
    return _placed(data, np.asarray(np.ravel_multi_index(tuple(grid), data.shape)), updates)


def _scatter_nd(node: Node) -> Term:
    """out[index[i]] = updates[i] for rows of data, and data elsewhere."""
    data, updates = node.input(0), node.input(2)
    if data.size > _PLACED or updates.size > _PLACED:
        raise Declined("a large tensor")
    index = node.optional(1)
    depth = index.shape[-1] if index is not None and index.ndim else 0
    if not 1 <= depth <= data.ndim:
        raise ShapeError(f"scatter takes places of 1 to {data.ndim} indices, got {depth}")
    if not node.constants.is_constant(node.input(1)):
        return scattered_rows(data, node.input(1), updates, node.attr("reduction", "none"))
    indices = _constant_places(node, data.shape[:depth])
    rest = data.shape[depth:]
    if updates.shape != (*indices.shape[:-1], *rest):
        raise ShapeError(f"scatter takes updates {(*indices.shape[:-1], *rest)}, got {updates.shape}")
    rows = np.ravel_multi_index(tuple(np.moveaxis(indices, -1, 0)), data.shape[:depth])
    return _placed(data, np.add.outer(rows * prod(rest), np.arange(prod(rest))), updates)


# Constant selections


def _compress(node: Node) -> Term:
    """The elements along an axis (of the flat tensor if there is none) where the constant condition holds."""
    x, condition, axis = node.input(0), node.value(1), node.attr("axis")
    assert condition is not None
    if axis is None:
        x, axis = ops.reshape(x, (x.size,)), 0
    axis = ops.axis_of(axis, x.ndim)
    return ops.gather(x, ops.constant(np.flatnonzero(condition[: x.shape[axis]])), axis)


def _reverse_sequence(node: Node) -> Term:
    """Reverses the first lengths[b] steps of every sequence b."""
    x, lengths = node.input(0), node.required_ints(1)
    time, batch = (
        ops.axis_of(node.attr(name, default), x.ndim) for name, default in (("time_axis", 0), ("batch_axis", 1))
    )
    if {time, batch} != {0, 1} or len(lengths) != x.shape[batch] or x.size > _PLACED:
        raise Declined("lengths that do not fit")
    steps = np.arange(x.shape[time])
    if not all(0 <= n <= steps.size for n in lengths):
        raise ShapeError(f"lengths lie in [0, {steps.size}], got {list(lengths)}")
    order = np.array([np.where(steps < n, n - 1 - steps, steps) for n in lengths]).reshape(len(lengths), steps.size)
    which = np.broadcast_to(np.arange(len(lengths))[:, None], order.shape)
    places = which * steps.size + order if batch == 0 else (order * len(lengths) + which).T
    flat = ops.reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))
    return ops.gather(flat, ops.constant(places), 0)


def _top_k(node: Node) -> list[Term]:
    """The k largest (or smallest) elements in order, and their places: of equal elements, the first comes first. A NaN
    is larger than any number, as in onnxruntime and the standard's reference."""
    x = node.input(0)
    k = node.attr("k") if node.version < 10 else node.whole(1)
    axis = ops.axis_of(node.attr("axis", -1), x.ndim)
    count, largest = x.shape[axis], node.attr("largest", 1)
    if not 0 < k <= count or (k > 1 and count > _RANKED):
        raise Declined("several elements of many")
    if k == 1 and (largest or not is_float(x.dtype)):
        value = ops.reduce("max" if largest else "min", x, axis, True)
        return [value, ops.reduce("argmax" if largest else "argmin", x, axis, True)]
    places = _least(x, axis) if k == 1 else _ranked(x, axis, k, bool(largest))
    return [gather_elements(x, places, axis), places]


def _least(x: Term, axis: int) -> Term:
    """Where the smallest number along an axis first stands; 0 where there is none. The minimum of NaN is NaN."""
    number = ops.where(ops.equal(x, x), x, ops.full_like(inf, x))
    hit = ops.equal(x, ops.broadcast(ops.reduce("min", number, axis, True), x.shape))
    return ops.reduce("argmax", ops.cast(hit, "int32"), axis, True)


def _ranked(x: Term, axis: int, k: int, largest: bool) -> Term:
    """Where the first k elements along an axis stand. The rank of an element is the number of elements before it:
    larger or smaller ones, as asked for, and equal ones at earlier places."""
    count = x.shape[axis]
    pairs = (*x.shape[:axis], count, count, *x.shape[axis + 1 :])  # each element, then the other one

    def each(values: Term) -> tuple[Term, Term]:
        this, other = (ops.broadcast(ops.unsqueeze(values, at), pairs) for at in (axis + 1, axis))
        return this, other

    this, other = each(x)
    earlier = ops.less(ops.iota(pairs, axis + 1), ops.iota(pairs, axis))
    ahead = ops.greater(other, this) if largest else ops.less(other, this)
    before = ops.or_(ahead, ops.and_(ops.equal(other, this), earlier))
    if is_float(x.dtype):
        no_number = each(composites.not_equal(x, x))
        first, second = no_number[::-1] if largest else no_number
        before = ops.or_(before, ops.and_(first, ops.or_(ops.not_(second), earlier)))
    rank = ops.sum_(ops.cast(before, "int64"), axis + 1)
    places = (*x.shape[:axis], k, *x.shape[axis:])  # each of the first k, then each element
    found = ops.equal(ops.broadcast(ops.unsqueeze(rank, axis), places), ops.iota(places, axis))
    at = ops.where(found, ops.iota(places, axis + 1), ops.full(count - 1, places, "int64"))
    return ops.reduce("min", at, axis + 1)


# Running sums


def _cum_sum(node: Node) -> Term:
    """A running sum; an exclusive one is that of the elements before."""
    x, axis = node.input(0), node.whole(1)
    axis = ops.axis_of(int(axis), x.ndim)
    n = x.shape[axis]
    if n <= 1:
        return ops.full_like(0, x) if node.attr("exclusive", 0) else x
    reverse = bool(node.attr("reverse", 0))
    if node.attr("exclusive", 0):
        before, after = (0, 1) if reverse else (1, 0)
        kept = ops.slice_(x, [after], [n - before], [axis])
        lo, hi = ([m if i == axis else 0 for i in range(x.ndim)] for m in (before, after))
        x = ops.pad(kept, lo, hi, 0)
    return running("sum", x, axis, reverse)


_LARGE = "more than 4 194 304 elements, or pairs of an element and an update where the places vary"

INDEXING: dict[str, Row] = {
    "Compress": row(_compress, 9, 11, 28, unless="the condition varies, which decides the size"),
    "CumSum": row(_cum_sum, 11, 14, 28, unless="more than 4 194 304 additions"),
    "GatherElements": row(_gather_elements, 11, 13),
    "GatherND": row(_gather_nd, 11, 12, 13),
    "ReverseSequence": row(_reverse_sequence, 10, 28, unless="the lengths vary"),
    "Scatter": row(_scatter_elements, 9, 11, unless=_LARGE),
    "ScatterElements": row(
        _scatter_elements,
        11,
        13,
        16,
        18,
        unless=f"{_LARGE}; updates at constant places are combined",
    ),
    "ScatterND": row(_scatter_nd, 11, 13, 16, 18, unless=f"{_LARGE}; updates at constant places are combined"),
    "TopK": row(_top_k, 1, 10, 11, 24, unless="several elements of more than 128"),
}
"""One row per operator, with the since-versions whose meaning the converter covers."""
