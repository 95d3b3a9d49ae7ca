"""Demands: which elements of an array are wanted, as one demand for each axis."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from eqsat.base.numerics import Array, converted, distinct
from eqsat.program.sizes import FOLDED
from eqsat.program.term import Term

WIDE = np.dtype(np.float64)
"""The type in which values are compared."""

BLOCK_BYTES = 1 << 25
"""Block size in bytes for widening weights, so that no second, wider copy of a short-float model is held."""


@dataclass(frozen=True, eq=False, slots=True)
class Sums:
    """Sums along an axis: weights[k, n] of k sums over its n elements."""

    weights: Array


Wanted = Array | Sums | None
"""The demand for one axis: ascending indices, sums, or None for all elements."""

Demand = tuple[Wanted, ...]


def everything(term: Term) -> Demand:
    """The demand for a whole term."""
    return (None,) * term.ndim


def count_of(term: Term, demand: Demand) -> int:
    """How many elements of a term are wanted."""
    count = 1
    for w, n in zip(demand, term.shape, strict=True):
        count *= n if w is None else length_of(w, n)
    return count


def length_of(wanted: Wanted, n: int) -> int:
    """How many elements, or sums, are wanted along an axis of n elements."""
    if wanted is None:
        return n
    return len(wanted.weights if isinstance(wanted, Sums) else wanted)


def nothing(term: Term) -> Demand:
    """The demand for no element of a term; a scalar has one all the same."""
    return (np.empty(0, np.int64), *(None,) * (term.ndim - 1)) if term.ndim else ()


def is_nothing(term: Term, demand: Demand) -> bool:
    """Whether no element of a term is wanted."""
    for w in demand:
        if isinstance(w, np.ndarray) and not len(w):
            return True
    return not term.size


def joined(a: Wanted, b: Wanted, n: int) -> Wanted:
    """The smallest demand that serves both."""
    if a is b:
        return a
    if a is None or b is None or isinstance(a, Sums) or isinstance(b, Sums):
        return None
    if np.array_equal(a, b):
        return a
    return some(distinct(np.concatenate([a, b])), n)


def some(index: Array, n: int) -> Wanted:
    """The ascending indices, or None if they are all indices."""
    return None if len(index) == n else index


def indices(wanted: Wanted, n: int) -> Array:
    """The wanted indices along an axis of n elements, ascending. Sums have none."""
    assert not isinstance(wanted, Sums)
    return np.arange(n) if wanted is None else wanted


def empty(term: Term, demand: Demand, dtype: np.dtype) -> Array:
    """What is wanted of a term where this reads none of its elements: an array of none, or sums of none."""
    return np.zeros([length_of(w, n) for w, n in zip(demand, term.shape, strict=True)], dtype)


def selected(array: Array, have: Demand, want: Demand) -> Array:
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


@dataclass(frozen=True, eq=False, slots=True)
class Repeated:
    """An array of a few values that repeat in the order of its elements. Only elements that are wanted are made."""

    drawn: Array
    shape: tuple[int, ...]

    def selected(self, want: Demand) -> Array:
        """The elements that `want` selects."""
        if all(w is None for w in want):
            return np.resize(self.drawn, self.shape)
        for axis, w in enumerate(want):
            if isinstance(w, Sums):
                return self._in_blocks(want, axis, w.weights)
        at = np.zeros((), np.int64)
        for w, n in zip(want, self.shape, strict=True):
            at = at[..., None] * n + indices(w, n)
        return self.drawn[at % len(self.drawn)]

    def _in_blocks(self, want: Demand, axis: int, weights: Array) -> Array:
        """What `want` selects where it has sums along an axis, whose elements are made block by block."""
        total = np.zeros(())
        step = max(1, BLOCK_BYTES // (8 * max(1, prod(map(length_of, want, self.shape)) // max(1, len(weights)))))
        for i in range(0, max(1, self.shape[axis]), step):
            part = weights[:, i : i + step]
            block = np.arange(i, i + part.shape[1])
            total = total + _summed(self.selected((*want[:axis], block, *want[axis + 1 :])), axis, part)
        return total


def _taken(array: Array, index: Array, axis: int) -> Array:
    """Elements along an axis at ascending indices; a view if the indices are consecutive."""
    if len(index) and index[-1] - index[0] + 1 == len(index):
        return array[(slice(None),) * axis + (slice(int(index[0]), int(index[-1]) + 1),)]
    return taken(array, index, axis)


def taken(array: Array, index: Array, axis: int) -> Array:
    """Elements along an axis. NumPy's `take` copies all of a view first, which a large one is not to be."""
    if array.size > FOLDED and not array.flags.c_contiguous:
        return array[(slice(None),) * axis + (index,)]
    return array.take(index, axis)


def _summed(array: Array, axis: int, weights: Array) -> Array:
    """Weighted sums along an axis, in float64, block by block."""
    moved = np.moveaxis(array, axis, 0)
    n, rest = moved.shape[0], moved.shape[1:]
    size = prod(rest)
    total = np.zeros((len(weights), size))
    step = max(1, BLOCK_BYTES // max(1, 8 * size))
    for i in range(0, n if size else 0, step):
        total += weights[:, i : i + step] @ converted(moved[i : i + step].reshape(-1, size), WIDE)
    return np.moveaxis(total.reshape(len(weights), *rest), 0, axis)


def reshape_groups(term: Term) -> list[tuple[range, range]]:
    """Matching runs of axes of operand and result: each pair holds the same elements."""
    before, after = term.args[0].shape, term.shape
    if not term.size:
        return [(range(len(before)), range(len(after)))]  # no run of axes ends where another one does
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
