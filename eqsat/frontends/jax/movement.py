"""JAX primitives that move elements, make them, or look them up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eqsat.base.numerics import dtype_name
from eqsat.frontends.jax.row import Builder
from eqsat.frontends.terms.declined import Declined
from eqsat.frontends.terms.windows import spread
from eqsat.program import composites, ops
from eqsat.program.lowering import constant_value
from eqsat.program.term import Shape, Term


def _broadcast_in_dim(x: Term, *, shape: Shape, broadcast_dimensions: Sequence[int]) -> Term:
    """Axis i of x becomes axis `broadcast_dimensions[i]`."""
    kept = [1] * len(shape)
    for axis, n in zip(broadcast_dimensions, x.shape, strict=True):
        kept[axis] = n
    return ops.broadcast(ops.reshape(x, kept), shape)


def _reshape(x: Term, *, new_sizes: Shape, dimensions: Sequence[int] | None) -> Term:
    return ops.reshape(x if dimensions is None else ops.transpose(x, dimensions), new_sizes)


def _slice(x: Term, *, start_indices: Shape, limit_indices: Shape, strides: Shape | None) -> Term:
    return ops.slice_(x, start_indices, limit_indices, None, strides)


def _pad(x: Term, value: Term, *, padding_config: Sequence[tuple[int, int, int]]) -> Term:
    """Each axis: elements before, after, and between."""
    number = constant_value(value)
    if number is None:
        raise Declined("a padding that the inputs decide")
    lo, hi, between = zip(*padding_config, strict=True) if padding_config else ((), (), ())
    return ops.pad(spread(x, between, number.item()), lo, hi, number.item())


def _dynamic_slice(x: Term, *starts: Term, slice_sizes: Shape) -> Term:
    """The place is moved, where needed, so that the slice lies within the array. Where the inputs decide on it, the
    elements are looked up."""
    for axis, (start, size) in enumerate(zip(starts, slice_sizes, strict=True)):
        last = x.shape[axis] - size
        place = constant_value(start)
        if place is not None:
            first = min(max(int(place), 0), last)
            x = ops.slice_(x, [first], [first + size], [axis])
        else:
            first = composites.clip(start, 0, last)
            x = ops.gather(x, composites.add(ops.iota((size,), 0, first.dtype), first), axis)
    return x


def _gather(x: Term, indices: Term, *, dimension_numbers: Any, slice_sizes: Shape, mode: Any, fill_value: Any) -> Term:
    """Whole slices along one axis: what `jnp.take` and `x[:, i]` become. Indices are taken to lie within the axis; what
    the modes do with others is left out."""
    del mode, fill_value
    at = dimension_numbers
    rows = tuple(at.start_index_map)
    whole = all(size == n or axis in rows for axis, (size, n) in enumerate(zip(slice_sizes, x.shape, strict=True)))
    batched = tuple(at.operand_batching_dims) + tuple(at.start_indices_batching_dims)
    if len(rows) != 1 or tuple(at.collapsed_slice_dims) != rows or not whole or batched:
        raise Declined("indices of several axes, or of parts of rows")
    (axis,) = rows
    looked_up = ops.reshape(indices, indices.shape[:-1])
    found = ops.gather(x, looked_up, axis)
    # Axes of `found`: those of x before, those of the indices, those of x behind. JAX puts those of x at `offset_dims`.
    own = [i for i in range(found.ndim) if not axis <= i < axis + looked_up.ndim]
    order = [0] * found.ndim
    others = iter(range(axis, axis + looked_up.ndim))
    placed = dict(zip(at.offset_dims, own, strict=True))
    for i in range(found.ndim):
        order[i] = placed[i] if i in placed else next(others)
    return ops.transpose(found, order)


MOVEMENT: dict[str, Builder] = {
    "broadcast_in_dim": _broadcast_in_dim,
    "concatenate": lambda *xs, dimension: ops.concat(xs, dimension),
    "dynamic_slice": _dynamic_slice,
    "gather": _gather,
    "iota": lambda *, dtype, shape, dimension: ops.iota(shape, dimension, dtype_name(dtype)),
    "pad": _pad,
    "reshape": _reshape,
    "rev": lambda x, *, dimensions: ops.flip(x, dimensions) if dimensions else x,
    "slice": _slice,
    "split": lambda x, *, sizes, axis: ops.split(x, sizes, axis),
    "squeeze": lambda x, *, dimensions: ops.squeeze(x, dimensions),
    "stack": lambda *xs, axis: ops.stack(xs, axis),
    "tile": lambda x, *, reps: composites.tile(x, reps),
    "transpose": lambda x, *, permutation: ops.transpose(x, permutation),
}
