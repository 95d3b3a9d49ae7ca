"""ATen operators that read elements by index, and that put one tensor in place of a part of another."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from eqsat.frontends.terms.declined import Declined
from eqsat.frontends.terms.lookups import flat, gather_elements, wrapped
from eqsat.frontends.torch.operators.row import Row
from eqsat.program import ops
from eqsat.program.composites import common_shape
from eqsat.program.term import Term


def _embedding(weight: Term, indices: Term, padding_idx: int, scale_grad_by_freq: bool, sparse: bool) -> Term:
    """Padding and sparsity matter to gradients alone."""
    return ops.gather(weight, indices, 0)


def _index(self: Term, indices: Sequence[Term | None]) -> Term:
    """self[:, i, j]: the axes that have indices are one, read by flat places; it goes first where they are not side by
    side."""
    given = {axis: index for axis, index in enumerate(indices) if index is not None}
    if any(index.dtype == "bool" for index in given.values()):
        raise Declined("masks")
    if len(given) == 1:
        [(axis, index)] = given.items()
        return ops.gather(self, index, axis)
    axes = list(given)
    at = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    others = [axis for axis in range(self.ndim) if axis not in given]
    moved = ops.transpose(self, others[:at] + axes + others[at:])
    sizes, shape = [self.shape[axis] for axis in axes], common_shape(*given.values())
    merged = ops.reshape(moved, (*moved.shape[:at], prod(sizes), *moved.shape[at + len(axes) :]))
    read = [ops.cast(ops.broadcast(index, shape), "int64") for index in given.values()]
    return ops.gather(merged, flat(list(map(wrapped, read, sizes)), sizes), at)


def _gather(self: Term, dim: int, index: Term, sparse_grad: bool) -> Term:
    if not self.ndim or not index.ndim:
        raise Declined("tensors of no dims")
    return gather_elements(self, index, ops.axis_of(dim, self.ndim))


def _unfold(self: Term, dimension: int, size: int, step: int) -> Term:
    """Windows along an axis; their elements become the last one."""
    axis = ops.axis_of(dimension, self.ndim)
    starts = np.arange(0, self.shape[axis] - size + 1, step)
    read = ops.gather(self, ops.constant(starts[:, None] + np.arange(size)), axis)
    return ops.transpose(read, [i for i in range(read.ndim) if i != axis + 1] + [axis + 1])


def _diagonal(self: Term, offset: int, dim1: int, dim2: int) -> Term:
    """Every (n + 1)th element of rows of n, from the first one on the diagonal."""
    first, second = (ops.axis_of(dim, self.ndim) for dim in (dim1, dim2))
    order = [i for i in range(self.ndim) if i not in (first, second)]
    moved = ops.transpose(self, [*order, first, second])
    rows, columns = moved.shape[-2:]
    count = min(rows + min(offset, 0), columns - max(offset, 0))
    if count <= 0:
        raise Declined("a diagonal of no elements")
    start = offset if offset >= 0 else -offset * columns
    line = ops.reshape(moved, (*moved.shape[:-2], rows * columns))
    return ops.slice_(line, [start], [start + (count - 1) * (columns + 1) + 1], [-1], [columns + 1])


def _slice_scatter(self: Term, src: Term, dim: int, start: int | None, end: int | None, step: int) -> Term:
    """`src` between what is left of `self`."""
    axis = ops.axis_of(dim, self.ndim)
    begin, stop, _ = slice(start, end).indices(self.shape[axis])
    if step != 1:
        raise Declined("steps between the elements")
    if stop <= begin:
        return self
    before = ops.slice_(self, [0], [begin], [axis])
    behind = ops.slice_(self, [stop], [self.shape[axis]], [axis])
    return ops.concat([x for x in (before, ops.cast(src, self.dtype), behind) if x.shape[axis]], axis)


def _select_scatter(self: Term, src: Term, dim: int, index: int) -> Term:
    axis = ops.axis_of(dim, self.ndim)
    start = index % self.shape[axis]
    return _slice_scatter(self, ops.unsqueeze(src, axis), axis, start, start + 1, 1)


LOOKUPS: dict[str, Row] = {
    "index_select.default": Row(lambda self, dim, index: ops.gather(self, ops.reshape(index, (index.size,)), dim)),
    "embedding.default": Row(_embedding),
    "index.Tensor": Row(_index),
    "_unsafe_index.Tensor": Row(_index),
    "gather.default": Row(_gather, whole=True),
    "unfold.default": Row(_unfold, whole=True),
    "diagonal.default": Row(_diagonal, whole=True),
    "slice_scatter.default": Row(_slice_scatter),
    "select_scatter.default": Row(_select_scatter),
}
