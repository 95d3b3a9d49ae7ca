"""Tables of layout arithmetic for reductions: what repeats under a sum, and which sums of products are products."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from eqsat.layout import arithmetic as lt
from eqsat.layout.arithmetic import Layout

Row = tuple[Any, ...]


def repeated(layout: Layout, rows: int, count: int) -> Row | None:
    """V(z, layout) of [rows, count] holds each of some elements of a row several times, always as often.

    Gives (L, count', times): the sum over V(z, layout) is `times` the sum over V(z, L) of [rows, count'], and the
    greatest of one is the greatest of the other.
    """
    parts = _outer_and_inner(layout, count)
    if parts is None or layout.size != rows * count:
        return None
    outer, inner = parts
    kept = [(size, stride) for size, stride in inner if stride]
    times = prod(size for size, stride in inner if not stride)
    return (lt.strided(layout.offset, [*outer, *kept]), count // times, times) if times > 1 else None


def contraction(left: Layout, right: Layout, rows: int, count: int) -> Row | None:
    """The sum over the last axis of V(x, left) * V(y, right), both [rows, count], as a product of x and y.

    Each digit of the rows walks x (m), y (n), both (the batch) or none; some digit of the sum walks both, and some of
    the rows one alone: else nothing is gained. Gives (Lx, Ly, b, m, k, n, L): (x[Lx] @ y[Ly])[L].
    """
    digits = _common_digits(left, right, count)
    if digits is None or left.size != rows * count or right.size != rows * count:
        return None
    outer, inner = digits
    batch = [d for d in outer if d.left and d.right]
    m = [d for d in outer if d.left and not d.right]
    n = [d for d in outer if d.right and not d.left]
    if not (m or n) or not any(d.left and d.right for d in inner) or any(not (d.left or d.right) for d in inner):
        return None
    x = lt.strided(left.offset, [(d.size, d.left) for d in (*batch, *m, *inner)])
    y = lt.strided(right.offset, [(d.size, d.right) for d in (*batch, *inner, *n)])
    steps: dict[_Digit, int] = {}
    step = 1
    for d in reversed((*batch, *m, *n)):
        steps[d] = step
        step *= d.size
    out = lt.strided(0, [(d.size, steps.get(d, 0)) for d in outer])
    return x, y, *(prod(d.size for d in part) for part in (batch, m, inner, n)), out


@dataclass(frozen=True, slots=True)
class _Digit:
    """A digit that two layouts share: its place, its size, and the stride of each."""

    place: int
    size: int
    left: int
    right: int


def _common_digits(left: Layout, right: Layout, count: int) -> tuple[list[_Digit], list[_Digit]] | None:
    """The digits of two plain layouts of one size, refined until they agree, above and below `count` elements."""
    if left.masked or right.masked or left.size != right.size or left.size == 0:
        return None
    dims = [list(left.dims), list(right.dims)]
    outer: list[_Digit] = []
    inner: list[_Digit] = []
    below = 1
    while dims[0] and dims[1]:
        (size, a), (other, b) = dims[0].pop(), dims[1].pop()
        least = min(size, other, count // below if below < count else size)
        across = below * least < count and count % (below * least) != 0
        if size % least or other % least or across:
            return None
        for part, whole, stride in ((dims[0], size, a), (dims[1], other, b)):
            if whole > least:
                part.append((whole // least, stride * least))
        (inner if below < count else outer).append(_Digit(len(outer) + len(inner), least, a, b))
        below *= least
    return outer[::-1], inner[::-1]


def _outer_and_inner(layout: Layout, count: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]] | None:
    """The digits of a plain layout above and below `count` elements; None where a digit lies across."""
    digits = _common_digits(layout, layout, count)
    if digits is None:
        return None
    outer, inner = ([(d.size, d.left) for d in part] for part in digits)
    return outer, inner


def in_order(layout: Layout, count: int) -> Row | None:
    """The layout with the digits under a reduction of `count` in the order in which they lie in memory.

    None where they already are.
    """
    parts = _outer_and_inner(layout, count)
    if parts is None:
        return None
    outer, inner = parts
    ordered = lt.strided(layout.offset, [*outer, *sorted(inner, key=lambda dim: -abs(dim[1]))])
    return None if ordered == layout else (ordered,)


def repeated_inner(layout: Layout, b: int, m: int, k: int, n: int) -> Row | None:
    """x[b, m, k] = V(z, layout) repeats itself along k: elements of y[b, k, n] that meet the same one are added first.

    Gives (Lx, Ly, k', times): x @ y = z[Lx] @ sum(y[Ly]), of [b, m, k'] and [b, k', n, times].
    """
    parts = None if layout.size != b * m * k else _outer_and_inner(layout, k)
    if parts is None:
        return None
    outer, inner = parts
    steps = lt.row_major([size for size, _ in inner])
    kept = [(size, stride, step * n) for (size, stride), step in zip(inner, steps, strict=True) if stride]
    gone = [(size, step * n) for (size, stride), step in zip(inner, steps, strict=True) if not stride]
    times = prod(size for size, _ in gone)
    if times == 1:
        return None
    x = lt.strided(layout.offset, [*outer, *((size, stride) for size, stride, _ in kept)])
    y = lt.strided(0, [(b, k * n), *((size, step) for size, _, step in kept), (n, 1), *gone])
    return x, y, k // times, times


def repeated_inner_right(layout: Layout, b: int, n: int, k: int, m: int) -> Row | None:
    """`repeated_inner` of the right operand: y[b, k, n] = V(z, layout) repeats itself along k.

    Gives (Ly, Lx, k', times): x @ y = sum(x[Lx]) @ z[Ly], of [b, m, k', times] and [b, k', n].
    """
    columns_first = lt.compose(layout, lt.of_transpose((b, k, n), (0, 2, 1))) if layout.size == b * k * n else None
    found = None if columns_first is None else repeated_inner(columns_first, b, n, k, 1)
    if found is None:
        return None
    by_column, within, rest, times = found
    y = lt.compose(by_column, lt.of_transpose((b, n, rest), (0, 2, 1)))
    if y is None:
        return None
    x = lt.strided(0, [(b, m * k), (m, k), *_below(within, rest * times)])
    return y, x, rest, times


_MOST_LOOKED_AT = 1 << 24
"""Elements of a masked right operand whose rows are looked at one by one."""


def kept_rows(layout: Layout, b: int, m: int, k: int, n: int) -> Row | None:
    """y[b, k, n] = V(z, layout) fills some of its k rows with zeros, and the others lie at equal distances.

    Gives (Lx, Ly, k'): x @ y = x[Lx] @ z[Ly], of [b, m, k'] and [b, k', n].
    """
    read = _read_among_zeros(layout, b, k, n)
    kept = np.flatnonzero([] if read is None else read.any(axis=(0, 2)))
    if not 0 < len(kept) < k or len(set(np.diff(kept).tolist())) > 1:
        return None
    first, step, rest = int(kept[0]), int(kept[1] - kept[0]) if len(kept) > 1 else 1, len(kept)
    right = lt.compose(layout, lt.strided(first * n, [(b, k * n), (rest, step * n), (n, 1)]))
    if right is None:
        return None
    return lt.strided(first, [(b * m, k), (rest, step)]), right, rest


def diagonal(layout: Layout, b: int, m: int, n: int) -> Row | None:
    """y[b, n, n] = V(z, layout) is zero but on the diagonal. Gives L: x @ y = x * z[L], both [b, m, n]."""
    read = _read_among_zeros(layout, b, n, n)
    if read is None or not np.array_equal(read, np.broadcast_to(np.eye(n, dtype=bool), read.shape)):
        return None
    places = layout.index().reshape(b, n, n).diagonal(axis1=1, axis2=2)
    first = int(places[0, 0])
    steps = [int(line[1]) - first if len(line) > 1 else 0 for line in (places[:, 0], places[0])]
    affine = first + steps[0] * np.arange(b)[:, None] + steps[1] * np.arange(n)
    return (lt.strided(first, [(b, steps[0]), (m, 0), (n, steps[1])]),) if np.array_equal(places, affine) else None


def _read_among_zeros(layout: Layout, b: int, k: int, n: int) -> np.ndarray | None:
    """Where a layout of [b, k, n] that fills zeros reads something; None for another layout, and a large one."""
    if not layout.masked or keeps_sums(layout) is None or not 0 < layout.size == b * k * n <= _MOST_LOOKED_AT:
        return None
    return np.greater_equal(layout.index().reshape(b, k, n), 0)


def _below(layout: Layout, count: int) -> list[tuple[int, int]]:
    """The digits of a layout below `count` elements."""
    parts = _outer_and_inner(layout, count)
    return [] if parts is None else parts[1]


def shifts_rows(layout: Layout, back: Layout, count: int) -> Row | None:
    """V(z, layout) is the same along each row of `count`, and `back` puts a reduction of each row back along it."""
    parts = _outer_and_inner(layout, count)
    if parts is None or any(stride for _, stride in parts[1]):
        return None
    return () if back == lt.strided(0, [(back.size // max(count, 1), 1), (count, 0)]) else None


def keeps_sums(layout: Layout) -> Row | None:
    """V(x + y, layout) = V(x, layout) + V(y, layout): the layout fills nothing, or zeros."""
    return () if not layout.masked or (layout.fill == 0 and not str(layout.fill).startswith("-")) else None
