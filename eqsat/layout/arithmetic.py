"""Layouts: the one view operator of the core, as arithmetic on flat index maps.

``V(a, L)`` reads the flat array ``a`` at ``L.index()``. Transpose, slice, flip, broadcast, pad, window and
diagonal mask are all layouts. Reshape needs no layout, since arrays are flat. A layout is CuTe's (size, stride)
list with an offset, plus masked coordinates and the fill value for reads outside them (see
:mod:`eqsat.layout.form` for the formula and the canonical form).

    >>> of_transpose((2, 3), (1, 0)).index()
    array([0, 3, 1, 4, 2, 5])
    >>> of_pad((3,), (1,), (1,), 0.0).index()
    array([-1,  0,  1,  2, -1])
    >>> compose(of_transpose((2, 3), (1, 0)), of_transpose((3, 2), (1, 0))) == identity(6)
    True

Every function is pure, and the expensive ones are cached. Sizes and strides count elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import gcd, prod

from eqsat.layout.form import Axis, Dims
from eqsat.layout.map import CACHE_SIZE, Fill, Layout, fill_key
from eqsat.layout.split import Digits, split

__all__ = [
    "Axis",
    "Digits",
    "Fill",
    "Layout",
    "Line",
    "box",
    "compose",
    "conv_result",
    "conv_weights",
    "footprint",
    "identity",
    "inverse",
    "is_bijective",
    "masked",
    "of_broadcast",
    "of_pad",
    "of_slice",
    "of_transpose",
    "row_major",
    "split",
    "strided",
    "window_counts",
    "windows",
]

# Longer maps are not enumerated to count their reads; an upper bound is used instead.
_COUNTED_LENGTH = 1 << 18

# Reads that are farther apart are sorted to count them; others are marked, which takes less time.
_MARKED_LENGTH = 1 << 22


# --- constructors ---------------------------------------------------------------------------------------------


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous array: (2, 3, 4) -> (12, 4, 1)."""
    return tuple(accumulate(reversed(shape[1:]), lambda stride, size: stride * size, initial=1))[::-1][: len(shape)]


def identity(n: int) -> Layout:
    """The map of an array of n elements to itself."""
    return strided(0, ((n, 1),))


def strided(offset: int, dims: Iterable[tuple[int, int]]) -> Layout:
    """A plain map with (size, stride) digits, outer to inner."""
    return _plain(offset, tuple(dims))


def masked(offset: int, dims: Iterable[tuple[int, int]], axes: Iterable[Axis], fill: Fill) -> Layout:
    """A map with masked coordinates; each axis has one coefficient per digit of ``dims``."""
    return Layout(offset, tuple(dims), tuple(axes), fill)


@lru_cache(maxsize=CACHE_SIZE)
def _plain(offset: int, dims: Dims) -> Layout:
    return Layout(offset, dims)


def of_transpose(shape: Sequence[int], perm: Sequence[int]) -> Layout:
    """numpy.transpose(x[shape], perm)."""
    strides = row_major(shape)
    return strided(0, [(shape[i], strides[i]) for i in perm])


def of_slice(shape: Sequence[int], starts: Sequence[int], stops: Sequence[int], steps: Sequence[int]) -> Layout:
    """x[shape][starts[i]:stops[i]:steps[i], ...] with Python's rules; a step may be negative.

    Negative starts and stops are taken literally as range() takes them: stop -1 with step -1 ends after index 0.
    """
    strides = row_major(shape)
    offset, dims = 0, []
    for start, stop, step, stride in zip(starts, stops, steps, strides, strict=True):
        offset += start * stride
        dims.append((len(range(start, stop, step)), step * stride))
    return strided(offset, dims)


def of_broadcast(shape: Sequence[int], out_shape: Sequence[int]) -> Layout:
    """numpy.broadcast_to(x[shape], out_shape)."""
    aligned = (1,) * (len(out_shape) - len(shape)) + tuple(shape)
    strides = row_major(aligned)
    return strided(0, [(n, s if m == n else 0) for n, m, s in zip(out_shape, aligned, strides, strict=True)])


def of_pad(shape: Sequence[int], lo: Sequence[int], hi: Sequence[int], fill: Fill) -> Layout:
    """x[shape] with lo[i] fills before and hi[i] after axis i; negative amounts crop."""
    dims = [(low + n + high, 0) for n, low, high in zip(shape, lo, hi, strict=True)]
    rank = len(shape)
    axes = [
        Axis(n, stride, -low, tuple(int(i == j) for j in range(rank)))
        for i, (n, stride, low) in enumerate(zip(shape, row_major(shape), lo, strict=True))
    ]
    return masked(0, dims, axes, fill)


def windows(
    shape: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    lo: Sequence[int],
    hi: Sequence[int],
    fill: Fill,
    groups: int | None = None,
) -> Layout:
    """Every window of x[n, c, *spatial] padded by lo and hi with ``fill``, in any number of spatial dims.

    Without ``groups`` the output is [n, c, *out, *kernel]: pooling reduces its last axes. With ``groups`` it is
    [groups, n, *out, c / groups, *kernel]: the left operand of convolution as a batched product.
    """
    n, c, *spatial = shape
    steps = row_major(shape)
    out = window_counts(spatial, kernel, strides, dilations, lo, hi)
    if groups is None:
        lead, middle = [(n, steps[0]), (c, steps[1])], []
    else:
        per_group = c // groups
        lead, middle = [(groups, per_group * steps[1]), (n, steps[0])], [(per_group, steps[1])]
    dims = lead + [(size, 0) for size in out] + middle + [(size, 0) for size in kernel]
    first_tap = len(lead) + len(out) + len(middle)
    axes = []
    for i, size in enumerate(spatial):
        coeffs = [0] * len(dims)
        coeffs[len(lead) + i], coeffs[first_tap + i] = strides[i], dilations[i]
        axes.append(Axis(size, steps[2 + i], -lo[i], tuple(coeffs)))
    return masked(0, dims, axes, fill)


def window_counts(
    spatial: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    lo: Sequence[int],
    hi: Sequence[int],
) -> tuple[int, ...]:
    """The number of windows along each spatial dim."""
    rows = zip(spatial, kernel, strides, dilations, lo, hi, strict=True)
    return tuple((n + low + high - (k - 1) * d - 1) // s + 1 for n, k, s, d, low, high in rows)


def conv_weights(shape: Sequence[int], groups: int) -> Layout:
    """w[oc, c/g, *kernel] as the right operand of convolution, [groups, c/g * kernel, oc/groups]."""
    k = prod(shape[1:])
    n = shape[0] // groups
    return strided(0, ((groups, n * k), (k, 1), (n, k)))


def conv_result(n: int, groups: int, out: int, per_group: int) -> Layout:
    """The product [groups, n, out, oc/groups] as the result of convolution, [n, groups, oc/groups, out]."""
    return of_transpose((groups, n, out, per_group), (1, 0, 3, 2))


def _linear(digits: Digits, offset: int, strides: Sequence[int], fill: Fill, extra: Sequence[Axis] = ()) -> Layout:
    """The map offset + sum_j strides[j] * (digit j), under the masks of ``digits`` and ``extra``."""
    offset += sum(stride * start for stride, start in zip(strides, digits.starts, strict=True))
    totals = _combine(digits, strides)
    return masked(offset, zip(digits.sizes, totals, strict=True), (*extra, *digits.axes), fill)


def _combine(digits: Digits, weights: Sequence[int]) -> list[int]:
    """sum_j weights[j] * coeffs[j], per refined digit."""
    totals = [0] * len(digits.sizes)
    for weight, coeffs in zip(weights, digits.coeffs, strict=True):
        if weight:
            totals = [total + weight * c for total, c in zip(totals, coeffs, strict=True)]
    return totals


# --- algebra --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=CACHE_SIZE)
def compose(first: Layout, then: Layout) -> Layout | None:
    """The layout L with V(V(a, first), then) = V(a, L). None when none exists or none was found.

    Two masks compose only when they fill with the same value (type and bits included).
    """
    if then.all_filled or then.size == 0:
        return then
    if first.masked and then.masked and fill_key(first.fill) != fill_key(then.fill):
        return None
    if first.all_filled:
        return masked(0, ((then.size, 0),), (Axis(0, 0, 0, (0,)),), first.fill)
    if first.contiguous:
        return then.moved(-first.offset) if first.offset else then
    if then.is_identity(first.size):
        return first
    digits = split(then, tuple(size for size, _ in first.dims))
    if digits is None:
        return None
    axes = []
    for axis in first.axes:
        start = axis.start + sum(c * s for c, s in zip(axis.coeffs, digits.starts, strict=True))
        axes.append(Axis(axis.bound, axis.stride, start, tuple(_combine(digits, axis.coeffs))))
    fill = first.fill if first.masked else then.fill
    return _linear(digits, first.offset, [stride for _, stride in first.dims], fill, axes)


@dataclass(frozen=True, slots=True)
class Line:
    """Places along an axis: ``start`` and (size, stride) digits, outer to inner."""

    start: int
    dims: Dims

    @property
    def size(self) -> int:
        """How many places there are."""
        return prod(size for size, _ in self.dims)

    def scaled(self, by: int) -> list[tuple[int, int]]:
        """The digits of an axis whose elements are ``by`` apart."""
        return [(size, stride * by) for size, stride in self.dims]


@lru_cache(maxsize=CACHE_SIZE)
def box(layout: Layout, radices: tuple[int, ...]) -> tuple[tuple[Line, ...], Layout] | None:
    """(lines, residual): the reads lie where these lines meet, one along each axis of an index space with these sizes.

    ``residual`` is the same map into the box alone, row-major: V(a, layout) = V(a[lines], residual). The box is the
    smallest one if each mask bounds a single digit and no place is reached in two ways. None when :func:`split`
    returns None.

    >>> box(of_slice((3, 7), (0, 1), (3, 6), (2, 2)), (3, 7))
    ((Line(start=0, dims=((2, 2),)), Line(start=1, dims=((3, 2),))), Layout('0|6,1'))
    """
    digits = split(layout, radices)
    if digits is None:
        return None
    lines: list[Line] = []
    offset, totals, below = 0, [0] * len(digits.sizes), 1
    for place in reversed(range(len(radices))):
        line, start, coeffs = _line(digits, place)
        lines.insert(0, line)
        offset += below * start
        totals = [total + below * c for total, c in zip(totals, coeffs, strict=True)]
        below *= line.size
    return tuple(lines), masked(offset, zip(digits.sizes, totals, strict=True), digits.axes, layout.fill)


def _line(digits: Digits, place: int) -> tuple[Line, int, list[int]]:
    """The line that the reads walk along an axis, and their place on it: its start, and the step of each digit."""
    coeffs, low, high = digits.coeffs[place], digits.low[place], digits.high[place]
    runs = [(size, abs(c)) for size, c in zip(digits.sizes, coeffs, strict=True) if c]
    first = digits.starts[place] + sum(c * (size - 1) for size, c in zip(digits.sizes, coeffs, strict=True) if c < 0)
    step = gcd(*(stride for _, stride in runs)) or 1
    low += (first - low) % step
    blocks = [((high - 1 - low) // step + 1, step)]
    # A mask that cuts digits off may cut within a block.
    if first == low and first + sum(stride * (size - 1) for size, stride in runs) == high - 1:
        blocks = min(blocks, _blocks(runs), key=lambda found: prod(size for size, _ in found))
    weights = list(accumulate((size for size, _ in blocks), lambda x, y: x * y, initial=1))

    def walked(stride: int) -> int:
        # In ascending order, a run is part of the last block that was begun by then.
        return next(
            w * (stride // step) for (_, step), w in zip(blocks[::-1], weights[-2::-1], strict=True) if step <= stride
        )

    steps = [walked(abs(c)) * (1 if c > 0 else -1) if c else 0 for c in coeffs]
    start = (first - low) // step - sum(s * (size - 1) for size, s in zip(digits.sizes, steps, strict=True) if s < 0)
    return Line(low, tuple(reversed(blocks))), start, steps


def _blocks(runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """(size, stride) of digits that reach all sums of some (size, stride) runs, by their strides: runs that follow or
    overlap each other are one."""
    blocks: list[tuple[int, int]] = []
    for count, stride in sorted(runs, key=lambda run: run[1]):
        last_count, last_stride = blocks[-1] if blocks else (1, 1)
        if blocks and stride % last_stride == 0 and stride // last_stride <= last_count:
            blocks[-1] = (stride // last_stride * (count - 1) + last_count, last_stride)
        else:
            blocks.append((count, stride))
    return blocks


@lru_cache(maxsize=CACHE_SIZE)
def is_bijective(layout: Layout, n_in: int) -> bool:
    """Whether each of ``n_in`` input elements is read exactly once; False for every masked layout."""
    if layout.masked or layout.size != n_in:
        return False
    expected, least = 1, layout.offset
    for size, stride in sorted(layout.dims, key=lambda dim: abs(dim[1])):
        if size == 0:
            return True
        if abs(stride) != expected:
            return False
        least += min(stride * (size - 1), 0)
        expected *= size
    return least == 0


@lru_cache(maxsize=CACHE_SIZE)
def inverse(layout: Layout, n_in: int) -> Layout | None:
    """The layout that undoes a bijective one; None for any other."""
    if not is_bijective(layout, n_in):
        return None
    offset, dims = 0, []
    for (size, stride), weight in zip(layout.dims, row_major([size for size, _ in layout.dims]), strict=True):
        if stride < 0:
            offset += weight * (size - 1)
            weight = -weight
        dims.append((abs(stride), size, weight))
    return strided(offset, [(size, weight) for _, size, weight in sorted(dims, reverse=True)])


@lru_cache(maxsize=CACHE_SIZE)
def spread(layout: Layout, rows: int, columns: int) -> Layout | None:
    """Where in [rows, columns] each element of a view lies that repeats a value of each row for all its columns, which
    are in order; None for other views.

    >>> spread(of_broadcast((1, 2), (3, 2)), 2, 3) == of_transpose((2, 3), (1, 0))
    True
    """
    if layout.masked or layout.size != rows * columns:
        return None
    step, dims = 1, []
    for size, stride in reversed(layout.dims):
        dims.append((size, stride * columns if stride else step))
        step *= 1 if stride else size
    found = strided(layout.offset * columns, reversed(dims))
    return found if step == columns and is_bijective(found, layout.size) else None


def shown_whole(layout: Layout) -> int | None:
    """The length of the array if the layout reads each of its elements at least once; None if it reads only part of an
    array, or outside of it.

    >>> shown_whole(of_broadcast((4, 1), (4, 3)))
    4
    """
    shown = strided(layout.offset, [(size, stride) for size, stride in layout.dims if stride])
    return shown.size if not layout.masked and is_bijective(shown, shown.size) else None


@lru_cache(maxsize=CACHE_SIZE)
def footprint(layout: Layout) -> int:
    """How many distinct input elements are read.

    Exact up to 2**18 outputs and for independent digits of any size; else an upper bound.
    """
    if layout.all_filled or layout.size == 0:
        return 0
    count, exact = _count_runs(layout)
    if exact or layout.size > _COUNTED_LENGTH:
        return count
    import numpy as np

    index = layout.index()
    read = index[index >= 0]
    if not read.size:
        return 0
    read -= read.min()
    if read.max() > _MARKED_LENGTH:
        return int(np.unique(read).size)
    marks = np.zeros(int(read.max()) + 1, bool)
    marks[read] = True
    return int(np.count_nonzero(marks))


def _count_runs(layout: Layout) -> tuple[int, bool]:
    """An upper bound on the number of distinct sums of the layout's runs, and whether it is known to be exact."""
    runs = [(size, abs(stride)) for size, stride in layout.dims if stride]
    runs += [(axis.bound, abs(axis.stride)) for axis in layout.axes if axis.stride]
    blocks = _blocks(runs)
    spans = accumulate((stride * (count - 1) for count, stride in blocks), initial=0)
    apart = all(stride > span for (_, stride), span in zip(blocks, spans, strict=False))
    return prod(count for count, _ in blocks), apart and _independent(layout)


def _independent(layout: Layout) -> bool:
    """Whether masks and strides use different digits, and each coordinate takes every value below its bound."""
    touched = {i for i, (_, stride) in enumerate(layout.dims) if stride}
    for axis in layout.axes:
        involved = [i for i, c in enumerate(axis.coeffs) if c]
        if touched.intersection(involved):
            return False
        touched.update(involved)
        reach = 1
        for c, i in sorted((abs(axis.coeffs[i]), i) for i in involved):
            if c > reach:
                return False
            reach += c * (layout.dims[i][0] - 1)
    return True
