"""Look-ups: a part of an array at a fixed place, and elements at places that are computed along several axes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod

from eqsat.program import composites, ops
from eqsat.program.term import Term


def part(x: Term, axis: int, i: int) -> Term:
    """x[..., i, ...] without that axis, for i counted from the start."""
    return ops.squeeze(ops.slice_(x, [i], [i + 1], [axis]), axis)


def wrapped(indices: Term, size: int) -> Term:
    """Indices counted from the start: negative ones count from the end of an axis of that size."""
    zero, length = ops.full_like(0, indices), ops.full_like(size, indices)
    return ops.where(ops.less(indices, zero), ops.add(indices, length), indices)


def flat(positions: Sequence[Term], sizes: Sequence[int]) -> Term:
    """Row-major flat positions, from positions along axes of these sizes."""
    weights = [prod(sizes[i + 1 :]) for i in range(len(sizes))]
    return reduce(ops.add, (composites.scaled(p, w) for p, w in zip(positions, weights, strict=True)))


def gather_elements(data: Term, indices: Term, axis: int) -> Term:
    """out[i, j, ...] = data[i, indices[i, j, ...], ...] for axis 1, with indices of int64."""
    positions = [
        wrapped(indices, data.shape[axis]) if i == axis else ops.iota(indices.shape, i) for i in range(data.ndim)
    ]
    return ops.gather(ops.reshape(data, (data.size,)), flat(positions, data.shape), 0)
