"""The layout that an index array describes: files say views as gathers, and fills as choices by masks.

The array is cut into digits from the innermost on: neighbours differ by one number wherever both are read. What is not
read must then be explained by masks, each on one digit or on two. A triangle of an array that is read in order is not
recognised: it is one digit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, combinations, count, islice, product
from math import gcd, prod

import numpy as np
from numpy.typing import NDArray

from eqsat.layout.arithmetic import masked, strided
from eqsat.layout.form import Axis
from eqsat.layout.map import Fill, Layout

Places = NDArray[np.int64]
Mask = NDArray[np.bool_]

Part = tuple[int, int]
"""The size and stride of a digit, or of a part of it."""

_MOST_TRIED = 100
"""Digits that are tried, and ways of cutting them."""

_FEW_ROWS = 256
"""Rows that are looked at before all are."""

_MOST_PLACES = 1 << 25
"""Places that are looked at to cut digits again, over all ways: about a second."""


def of_index(places: Places, fill: Fill) -> Layout | None:
    """A layout with this :meth:`Layout.index`, if one is found.

    Args:
        places: int64[n], the index that each output reads; negative where it reads `fill`.
        fill: None if all outputs read.
    """
    read = places >= 0
    if not read.any():
        return None
    wanted = np.where(read, places, -1)
    cuts: list[tuple[int, list[Part]]] = []
    for offset, dims in _digits(places, read):
        if read.all():
            found = strided(offset, dims)
        else:
            cut = _cut(dims, read)
            found = _masked(offset, cut, read, fill)
            cuts.append((offset, cut))
        if (found.index() == wanted).all():
            return found
    others = ((offset, parts) for offset, cut in cuts for parts in _cut_again(cut))
    for offset, parts in islice(others, min(_MOST_TRIED, _MOST_PLACES // places.size)):
        found = _masked(offset, parts, read, fill)
        if (found.index() == wanted).all():
            return found
    return None


def _masked(offset: int, parts: Sequence[Part], read: Mask, fill: Fill) -> Layout:
    return masked(offset, parts, _axes(read.reshape([size for size, _ in parts]), parts), fill)


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
        ways = [(prime, *found) for prime, found in steps.items() if found is not None]
        for size, step, first, seen in sorted(ways, key=lambda way: (way[1] == wanted, -way[0])):
            joined = [(size * dims[0][0], dims[0][1])] if step == wanted else [(size, step), *dims[:1]]
            stack.append((first, seen, [*joined, *dims[1:]]))


def _cut_again(cut: Sequence[Part]) -> Iterator[list[Part]]:
    """Other ways of cutting the digits of stride 0. Along axes of size 1 all strides are 0, so that several digits look
    like one, whose parts masks tie to each other. Even parts come first: windows and kernels have similar sizes."""
    runs: list[Part] = []
    for size, stride in cut:
        if runs and stride == runs[-1][1] == 0:
            runs[-1] = size * runs[-1][0], 0
        else:
            runs.append((size, stride))
    loose = [size for size, stride in runs if not stride]
    ways = islice(product(*map(_factorings, loose)), _MOST_TRIED**2)
    for way in sorted(ways, key=lambda way: _unevenness([n for sizes in way for n in sizes])):
        sizes = iter(way)
        yield [
            part for size, stride in runs for part in ([(size, stride)] if stride else [(n, 0) for n in next(sizes)])
        ]


def _unevenness(sizes: Sequence[int]) -> tuple[float, int]:
    return max(sizes, default=1) / min(sizes, default=1), len(sizes)


def _factorings(number: int) -> list[tuple[int, ...]]:
    """The ways to write a number as an ordered product of up to six numbers above 1, the evenest first: windows of
    three axes have six digits."""
    every = chain.from_iterable(_factors(number, n) for n in range(1, 7))
    return sorted(islice(every, _MOST_TRIED**2), key=_unevenness)[:_MOST_TRIED]


def _factors(number: int, parts: int) -> Iterator[tuple[int, ...]]:
    """The ways to write a number as an ordered product of so many numbers above 1."""
    if parts == 1:
        yield from [(number,)] if number > 1 else []
        return
    for n in range(2, number // 2 ** (parts - 1) + 1):
        if number % n == 0:
            yield from ((n, *rest) for rest in _factors(number // n, parts - 1))


def _cut(dims: Sequence[Part], read: Mask) -> list[Part]:
    """The digits in parts, where masks hide the same of one part whatever the other is."""
    found: list[Part] = []
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


def _step(places: Places, read: Mask, size: int) -> tuple[int, Places, Mask] | None:
    """The difference of neighbours within rows of so many places, where both are read, and 0 if no row has two that are
    read; what each row would read first, and whether it reads anything. None if the difference is not one number.

    A few rows are looked at before all are: most sizes fit none.
    """
    rows, seen = places.reshape(-1, size), read.reshape(-1, size)
    few = slice(None, None, max(1, len(rows) // _FEW_ROWS))
    if _even(rows[few], seen[few]) is None:
        return None
    return _even(rows, seen)


def _even(rows: Places, seen: Mask) -> tuple[int, Places, Mask] | None:
    """`_step`, of rows."""
    fullest = int(np.count_nonzero(seen, axis=1).argmax())
    read = np.flatnonzero(seen[fullest])
    step, rest = 0, 0
    if len(read) > 1:
        step, rest = divmod(int(rows[fullest, read[-1]] - rows[fullest, read[0]]), int(read[-1] - read[0]))
    at = seen.argmax(1)
    lines = np.arange(len(rows))
    starts = rows[lines, at] - step * at
    even = rows == starts[:, None] + step * np.arange(rows.shape[1])
    return (step, starts, seen[lines, at]) if not rest and (even | ~seen).all() else None


def _axes(read: Mask, dims: Sequence[Part]) -> list[Axis]:
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
        shown = np.logical_and.outer(_between(_any(seen, 1)), _between(_any(seen, 0)))
        for coeffs in _weights(seen, dims[i][1], dims[j][1]):
            if (shown == seen).all():
                break
            further = _bounds(seen, coeffs, (i, j), rank)
            for axis in further:
                values = _values(seen.shape, coeffs) + axis.start
                shown &= (values >= 0) & (values < axis.bound)
            axes += further
    return axes


def _between(seen: Mask) -> Mask:
    """What bounds of a digit leave: all from the first that is seen to the last."""
    return np.logical_or.accumulate(seen) & np.logical_or.accumulate(seen[::-1])[::-1]


def _projected(read: Mask, *kept: int) -> Mask:
    return _any(read, *(i for i in range(read.ndim) if i not in kept))


def _any(read: Mask, *axes: int) -> Mask:
    return np.logical_or.reduce(read, axis=axes)


def _weights(seen: Mask, one: int, other: int) -> Iterator[tuple[int, int]]:
    """Coefficients of two digits whose sum may be bounded: by their strides, or by the line that what is seen is on."""
    if one and other:
        shared = gcd(one, other)
        yield one // shared, other // shared
    yield 1, -1
    yield 1, 1
    points = np.argwhere(seen)
    across, along = (int(x) for x in points[-1] - points[0])
    if across and along:
        shared = gcd(across, along)
        yield along // shared, -across // shared


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
