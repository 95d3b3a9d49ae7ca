"""Elements written or combined at places that are computed: every element looks through the updates for its own."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from eqsat.errors import ShapeError
from eqsat.frontends.terms.declined import Declined
from eqsat.frontends.terms.lookups import flat, gather_elements, wrapped
from eqsat.program import ops
from eqsat.program.term import Term

PAIRS = 1 << 22
"""Most pairs of an element and an update: experts and the choices of a token, nodes and edges of a small graph."""

_COMBINED: dict[str, tuple[str, Callable[[Term, Term], Term]]] = {
    "add": ("sum", ops.add),
    "mul": ("prod", ops.mul),
    "max": ("max", ops.max_),
    "min": ("min", ops.min_),
}
"""By the name of a reduction: how updates of one element are combined, and that with the element."""

_ARITHMETIC = ("float16", "bfloat16", "float32", "float64", "int32", "int64")


def scattered_elements(data: Term, indices: Term, updates: Term, axis: int, how: str) -> Term:
    """out[i, index[i, j]] = updates[i, j] for axis 1, combined with what is there as `how` says.

    The other axes of `indices` may be shorter than those of `data`. Without a reduction (`how` is "none"), the last
    update of an element counts.

    Raises:
        Declined: there are too many pairs, or the dtype has no arithmetic.
        ShapeError: the operands do not fit.
    """
    within = [n <= m or i == axis for i, (n, m) in enumerate(zip(indices.shape, data.shape, strict=False))]
    if indices.ndim != data.ndim or indices.shape != updates.shape or not all(within):
        raise ShapeError(f"scatter takes as many indices as updates, got {indices.shape} and {updates.shape} "
                         f"for {data.shape}")  # fmt: skip
    n, shape = data.shape[axis], indices.shape
    pairs = (*shape[:axis], n, *shape[axis:])
    if prod(pairs) > PAIRS:
        raise Declined("many pairs")
    if not indices.size:
        return data
    corner = tuple(n if i == axis else size for i, size in enumerate(shape))
    inner = data if corner == data.shape else ops.slice_(data, [0] * data.ndim, list(corner), list(range(data.ndim)))
    where = ops.unsqueeze(wrapped(ops.cast(indices, "int64"), n), axis)
    found = ops.equal(ops.broadcast(where, pairs), ops.iota(pairs, axis))
    if how == "none":
        last = _last(found, axis + 1)
        given = gather_elements(updates, _first_at_least(last), axis)
        done = ops.where(ops.greater_equal(last, ops.full_like(0, last)), given, inner)
    else:
        done = _combined(inner, found, ops.broadcast(ops.unsqueeze(updates, axis), pairs), axis + 1, how)
    return done if corner == data.shape else _in_corner(done, data)


def scattered_rows(data: Term, indices: Term, updates: Term, how: str) -> Term:
    """out[index[i]] = updates[i] for rows of `data`, whose leading axes the last axis of `indices` counts along.

    Raises:
        Declined: there are too many pairs, or the dtype has no arithmetic.
        ShapeError: the operands do not fit.
    """
    depth, places = indices.shape[-1], indices.shape[:-1]
    rest = data.shape[depth:]
    if updates.shape != (*places, *rest):
        raise ShapeError(f"scatter takes updates {(*places, *rest)}, got {updates.shape}")
    rows, count, width = prod(data.shape[:depth]), prod(places), prod(rest)
    if rows * count * (1 if how == "none" else width) > PAIRS:
        raise Declined("many pairs")
    if not updates.size:
        return data
    parts = [ops.reshape(part, (count,)) for part in ops.split(ops.cast(indices, "int64"), [1] * depth, -1)]
    own = [wrapped(part, size) for part, size in zip(parts, data.shape[:depth], strict=True)]
    where = flat(own, data.shape[:depth])
    old, new = ops.reshape(data, (rows, width)), ops.reshape(updates, (count, width))
    found = ops.equal(ops.broadcast(ops.unsqueeze(where, 0), (rows, count)), ops.iota((rows, count), 0))
    if how == "none":
        last = _last(found, 1)
        named = ops.greater_equal(last, ops.full_like(0, last))
        done = ops.where(ops.broadcast(ops.unsqueeze(named, 1), old.shape), ops.gather(new, _first_at_least(last)), old)
    else:
        pairs = (rows, count, width)
        spread = ops.broadcast(ops.unsqueeze(found, 2), pairs)
        done = _combined(old, spread, ops.broadcast(ops.unsqueeze(new, 0), pairs), 1, how)
    return ops.reshape(done, data.shape)


def _last(found: Term, axis: int) -> Term:
    """The last place along an axis where the condition holds; -1 where it never does."""
    return ops.reduce("max", ops.where(found, ops.iota(found.shape, axis), ops.full(-1, found.shape, "int64")), axis)


def _first_at_least(place: Term) -> Term:
    """A place that there is, also for -1."""
    return ops.max_(place, ops.full_like(0, place))


def _combined(old: Term, found: Term, new: Term, axis: int, how: str) -> Term:
    """Each old element combined with its updates. `found` says which these are; others have no effect, NaN or not."""
    if how not in _COMBINED or old.dtype not in _ARITHMETIC:
        raise Declined(f"updates combined by {how}")
    kind, combine = _COMBINED[how]
    neutral = {"sum": 0, "prod": 1}.get(kind)
    if neutral is None:
        neutral = _least(old.dtype) if kind == "max" else _largest(old.dtype)
    return combine(old, ops.reduce(kind, ops.where(found, new, ops.full_like(neutral, new)), axis))


def _least(dtype: str) -> float | int:
    return -np.inf if "float" in dtype else int(np.iinfo(dtype).min)


def _largest(dtype: str) -> float | int:
    return np.inf if "float" in dtype else int(np.iinfo(dtype).max)


def _in_corner(part: Term, whole: Term) -> Term:
    """`whole` with `part` where all indices are lowest."""
    behind = [n - m for n, m in zip(whole.shape, part.shape, strict=True)]
    inside = np.zeros(whole.shape, np.bool_)
    inside[tuple(slice(n) for n in part.shape)] = True
    return ops.where(ops.constant(inside), ops.pad(part, [0] * part.ndim, behind, 0), whole)
