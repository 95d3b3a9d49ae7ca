"""The layout that an index array describes: files say views as gathers, and fills as choices by masks.

The array is cut into digits from the innermost on: neighbours differ by one number wherever both are read. What is not
read must then be explained by masks, each on one digit or on two. A triangle of an array that is read in order is not
recognised: it is one digit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, count
from math import gcd, prod

import numpy as np
from numpy.typing import NDArray

from eqsat.layout.arithmetic import masked, strided
from eqsat.layout.form import Axis
from eqsat.layout.map import Fill, Layout

Places = NDArray[np.int64]
Mask = NDArray[np.bool_]

_MOST_TRIED = 100
"""Digits that are tried."""


def of_index(places: Places, fill: Fill) -> Layout | None:
    """A layout with this :meth:`Layout.index`, if one is found.

    Args:
        places: int64[n], the index that each output reads; negative where it reads `fill`.
        fill: None if all outputs read.
    """
    read = places >= 0
    if not read.any():
        return None
    for offset, dims in _digits(places, read):
        if read.all():
            found = strided(offset, dims)
        else:
            parts = _cut(dims, read)
            found = masked(offset, parts, _axes(read.reshape([size for size, _ in parts]), parts), fill)
        if (found.index() == np.where(read, places, -1)).all():
            return found
    return None


def _digits(places: Places, read: Mask) -> Iterator[tuple[int, tuple[tuple[int, int], ...]]]:
    """Offsets and digits, outermost first: (size, stride). They agree with what is read; masks may allow several."""
    found: set[tuple[int, tuple[tuple[int, int], ...]]] = set()
    stack = [(places, read, list[tuple[int, int]]())]
    for _ in range(_MOST_TRIED):
        if not stack:
            return
        places, read, dims = stack.pop()
        if places.size == 1:
            described = int(places[0]), tuple(dims or [(1, 0)])
            if described not in found:
                found.add(described)
                yield described
            continue
        wanted = prod(dims[0]) if dims else None
        steps = {prime: _step(places, read, prime) for prime in _primes(places.size)}
        ways = [(prime, step) for prime, step in steps.items() if step is not None]
        for size, step in sorted(ways, key=lambda way: (way[1] == wanted, -way[0])):
            rows, seen = places.reshape(-1, size) - step * np.arange(size), read.reshape(-1, size)
            first = np.take_along_axis(rows, seen.argmax(1)[:, None], 1)[:, 0]
            joined = [(size * dims[0][0], dims[0][1])] if step == wanted else [(size, step), *dims[:1]]
            stack.append((first, _any(seen, 1), [*joined, *dims[1:]]))


def _cut(dims: Sequence[tuple[int, int]], read: Mask) -> list[tuple[int, int]]:
    """The digits in parts, where masks hide the same of one part whatever the other is."""
    found: list[tuple[int, int]] = []
    for size, stride in reversed(dims):
        while size > 1:
            inside = prod(n for n, _ in found)
            part = next(n for n in range(2, size + 1) if size % n == 0 and _apart(read, size // n, n, inside))
            found.insert(0, (part, stride))
            size, stride = size // part, stride * part
    return found


def _apart(read: Mask, outer: int, inner: int, inside: int) -> bool:
    seen = read.reshape(-1, outer, inner, inside)
    return bool((seen == (seen.any(1, keepdims=True) & seen.any(2, keepdims=True))).all())


def _step(places: Places, read: Mask, size: int) -> int | None:
    """The difference of neighbours within rows of so many places, where both are read; None if it is not one number,
    and 0 if no row has two that are read."""
    rows, seen = places.reshape(-1, size), read.reshape(-1, size)
    fullest = int(seen.sum(1).argmax())
    first, *others = np.flatnonzero(seen[fullest])
    step, rest = 0, 0
    if others:
        step, rest = divmod(int(rows[fullest, others[-1]] - rows[fullest, first]), int(others[-1] - first))
    starts = rows - step * np.arange(size)
    least = np.where(seen, starts, np.iinfo(np.int64).max).min(1)
    greatest = np.where(seen, starts, np.iinfo(np.int64).min).max(1)
    return step if not rest and (greatest <= least)[seen.any(1)].all() else None


def _axes(read: Mask, dims: Sequence[tuple[int, int]]) -> list[Axis]:
    """Masks that hide what is not read: bounds of each digit, and of sums of two that lie along one axis of the
    operand, or else on a band."""
    axes: list[Axis] = []
    rank = read.ndim
    hidden = [i for i in range(rank) if not (read == read.any(i, keepdims=True)).all()]
    read = _any(read, *(i for i in range(rank) if i not in hidden))
    for at, i in enumerate(hidden):
        axes += _bounds(_projected(read, at), (1,), (i,), rank)
    for (a, i), (b, j) in combinations(enumerate(hidden), 2):
        seen = _projected(read, a, b)
        shown = np.logical_and.outer(seen.any(1), seen.any(0))
        for coeffs in _weights(dims[i][1], dims[j][1]):
            if (shown == seen).all():
                break
            further = _bounds(seen, coeffs, (i, j), rank)
            for axis in further:
                values = _values(seen.shape, coeffs) + axis.start
                shown &= (values >= 0) & (values < axis.bound)
            axes += further
    return axes


def _projected(read: Mask, *kept: int) -> Mask:
    return _any(read, *(i for i in range(read.ndim) if i not in kept))


def _any(read: Mask, *axes: int) -> Mask:
    return np.logical_or.reduce(read, axis=axes)


def _weights(one: int, other: int) -> Iterator[tuple[int, int]]:
    if one and other:
        shared = gcd(one, other)
        yield one // shared, other // shared
    yield 1, -1
    yield 1, 1


def _bounds(seen: Mask, coeffs: Sequence[int], digits: Sequence[int], rank: int) -> list[Axis]:
    """The mask that bounds a sum of digits to what is seen; empty if it hides nothing."""
    values = _values(seen.shape, coeffs)
    least, greatest = int(values[seen].min()), int(values[seen].max())
    if least <= values.min() and greatest >= values.max():
        return []
    of = dict(zip(digits, coeffs, strict=True))
    return [Axis(greatest - least + 1, 0, -least, tuple(of.get(i, 0) for i in range(rank)))]


def _values(shape: Sequence[int], coeffs: Sequence[int]) -> Places:
    """The sum of the digits times their coefficients, at each place."""
    parts = np.ogrid[tuple(slice(0, size) for size in shape)]
    return sum((c * part for c, part in zip(coeffs, parts, strict=True)), np.zeros(shape, dtype=np.int64))


def _primes(number: int) -> list[int]:
    """The primes that divide a number, least first."""
    found: list[int] = []
    for prime in count(2):
        if prime * prime > number:
            return [*found, number] if number > 1 else found
        if number % prime == 0:
            found.append(prime)
            while number % prime == 0:
                number //= prime
    return found
