"""Recognises convolutions and pools in layouts that read windows.

`eqsat.layout.arithmetic.windows` writes the windows of x[n, c, *spatial] as one masked layout. This module inverts it:
each digit of a layout moves the batch, the channels, the position of a window, or a tap inside a window. The guess is
then turned into a layout again, and accepted only if that equals the original.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd, prod
from typing import NamedTuple

from eqsat.layout.arithmetic import (
    Axis,
    Digits,
    Layout,
    compose,
    masked,
    of_slice,
    row_major,
    split,
    strided,
    window_counts,
)
from eqsat.layout.map import CACHE_SIZE
from eqsat.program.term import Shape

BATCH, CHANNEL, SPATIAL = 0, 1, 2
"""Dims of x, and of the results of conv and pool; spatial dims are SPATIAL, SPATIAL + 1, ..."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows over x[n, c, *spatial].

    Attributes:
        x: the shape of x, cropped to the images, channels and positions read.
        start: first image, channel and position read.
        kernel, strides, dilations, lo, hi, out: per spatial dim.
        groups: blocks of channels that are read separately.
        rows: (dim, size) in the layout's order of images and window positions.
        taps: (dim, size) in the layout's order inside a window.
    """

    x: Shape
    start: Shape
    kernel: Shape
    strides: Shape
    dilations: Shape
    lo: Shape
    hi: Shape
    out: Shape
    groups: int
    rows: tuple[tuple[int, int], ...]
    taps: tuple[tuple[int, int], ...]

    @property
    def pointwise(self) -> bool:
        """Whether each window is one position; any contraction over a middle dim looks like that."""
        return all(k == 1 for k in self.kernel)

    @property
    def slides(self) -> bool:
        """Whether some dim has several windows of several positions each."""
        return any(k > 1 and o > 1 for k, o in zip(self.kernel, self.out, strict=True))

    @property
    def overlap(self) -> bool:
        """Whether windows share positions or reach into the padding."""
        dims = zip(self.kernel, self.strides, self.dilations, self.out, strict=True)
        return any((*self.lo, *self.hi)) or any(_shared(*dim) for dim in dims)

    @property
    def over_channels(self) -> bool:
        """Whether the rows run over channels, as those of pools do; a convolution sums over them."""
        return any(dim == CHANNEL for dim, _ in self.rows)

    @property
    def channels_per_group(self) -> int:
        return self.x[CHANNEL] // self.groups

    def order(self, channels: int, side: int) -> Layout:
        """The product of these windows, its operand ``side``, with weights for ``channels`` results of each group, as
        a view of the convolution's result [n, groups * channels, *out]."""
        places = prod(self.out)
        steps = {BATCH: self.groups * channels * places}
        steps |= {SPATIAL + i: stride for i, stride in enumerate(row_major(self.out))}
        rows = [(size, steps[dim]) for dim, size in self.rows]
        weights = [(channels, places)]
        return strided(0, [(self.groups, channels * places), *(rows + weights if side == 0 else weights + rows)])

    def layout(self, shape: Shape, fill: float | int | None) -> Layout | None:
        """The layout that reads these windows from x of the uncropped ``shape``, row-major in groups, rows, taps."""
        strides = row_major(self.x)
        digits = [(CHANNEL, self.groups, self.channels_per_group)]
        digits += [(dim, size, 1 if dim < SPATIAL else self.strides[dim - SPATIAL]) for dim, size in self.rows]
        digits += [(dim, size, 1 if dim < SPATIAL else self.dilations[dim - SPATIAL]) for dim, size in self.taps]
        dims = [(size, strides[dim] * step if dim < SPATIAL else 0) for dim, size, step in digits]
        axes = [
            Axis(self.x[i], strides[i], -self.lo[i - SPATIAL], tuple(s if dim == i else 0 for dim, _, s in digits))
            for i in range(SPATIAL, len(self.x))
        ]
        inside = masked(0, dims, axes, 0.0 if fill is None else fill)
        return inside if shape == self.x else compose(self.crop(shape), inside)

    def crop(self, shape: Shape) -> Layout:
        """The crop of x[shape] to what is read."""
        stops = [start + n for start, n in zip(self.start, self.x, strict=True)]
        return of_slice(shape, self.start, stops, (1,) * len(shape))


def _shared(kernel: int, stride: int, dilation: int, out: int) -> bool:
    """Whether two of `out` windows read one position: as many strides as dilations apart, in the lowest terms."""
    common = gcd(stride, dilation)
    return stride // common < kernel and dilation // common < out


@lru_cache(maxsize=CACHE_SIZE)
def windows_of(layout: Layout, shape: Shape, parts: tuple[int, int, int]) -> Windows | None:
    """The windows of x[shape] that ``layout`` reads as [groups, rows, taps] of sizes ``parts``; None if it reads none.

    Pools read [1, rows, taps], where the rows run over the channels too.
    """
    if len(shape) < 3:
        return None
    digits = split(layout, shape)
    if digits is None:
        return None
    cut = _cut(digits, parts)
    if cut is None:
        return None
    roles, digits = cut
    guess = _guess(digits, roles, shape, parts)
    return guess if guess is not None and guess.layout(shape, layout.fill) == layout else None


def _cut(digits: Digits, parts: Sequence[int]) -> tuple[list[int], Digits] | None:
    """The digits, split where one spans two parts, and the part of each."""
    roles: list[int] = []
    role, room = len(parts) - 1, parts[-1]
    i = len(digits.sizes) - 1
    while i >= 0:
        while room == 1 and role > 0:
            role -= 1
            room = parts[role]
        size = digits.sizes[i]
        if size > room:
            if size % room:
                return None
            digits = digits.cut(i, room)
            i += 1
            size = room
        elif room % size:
            return None
        roles.append(role)
        room //= size
        i -= 1
    return roles[::-1], digits


def _guess(digits: Digits, roles: Sequence[int], shape: Shape, parts: tuple[int, int, int]) -> Windows | None:
    rank = len(shape)
    order: list[list[tuple[int, int]]] = [[], [], []]
    step = {}
    for i, (size, role) in enumerate(zip(digits.sizes, roles, strict=True)):
        moved = [(dim, digits.coeffs[dim][i]) for dim in range(rank) if digits.coeffs[dim][i]]
        if len(moved) != 1 or moved[0][1] < 0 or (moved[0][0], role) in step:
            return None
        dim, step[dim, role] = moved[0]
        order[role].append((dim, size))
    groups, rows, taps = order
    if any(dim != CHANNEL for dim, _ in groups) or any(dim == BATCH for dim, _ in taps):
        return None
    row_sizes, tap_sizes = dict(rows), dict(taps)
    channels = parts[0] * row_sizes.get(CHANNEL, 1) * tap_sizes.get(CHANNEL, 1)
    spatial = range(SPATIAL, rank)
    kernel = tuple(tap_sizes.get(dim, 1) for dim in spatial)
    strides = tuple(step.get((dim, 1), 1) for dim in spatial)
    dilations = tuple(step.get((dim, 2), 1) for dim in spatial)
    out = tuple(row_sizes.get(dim, 1) for dim in spatial)
    starts = digits.starts[SPATIAL:]
    lo, skipped = (tuple(max(0, sign * start) for start in starts) for sign in (-1, 1))
    read = [
        (o - 1) * s + (k - 1) * d + 1 - low for k, s, d, low, o in zip(kernel, strides, dilations, lo, out, strict=True)
    ]
    left = [n - skip for n, skip in zip(shape[SPATIAL:], skipped, strict=True)]
    hi = tuple(max(r - n, 0) for n, r in zip(left, read, strict=True))
    # What follows the positions that are read is cropped where there would be a further window of them.
    sizes = tuple(r if n - r >= s else n for n, r, s in zip(left, read, strides, strict=True))
    if min(sizes) < 1 or window_counts(sizes, kernel, strides, dilations, lo, hi) != out:
        return None
    return Windows(
        x=(row_sizes.get(BATCH, 1), channels, *sizes),
        start=(digits.starts[BATCH], digits.starts[CHANNEL], *skipped),
        kernel=kernel,
        strides=strides,
        dilations=dilations,
        lo=lo,
        hi=hi,
        out=out,
        groups=parts[0],
        rows=tuple(rows),
        taps=tuple(taps),
    )


def reads_windows(layout: Layout, n_in: int, parts: tuple[int, int, int]) -> bool:
    """Whether a layout reads windows of an array of some shape, or of its channels in another order."""
    if any(windows_of(layout, shape, parts) for shape in guessed_shapes(layout, n_in)):
        return True
    ordered = channels_ordered(layout, n_in, parts[0])
    return ordered is not None and windows_of(ordered.windows, ordered.shape, parts) is not None


class Ordered(NamedTuple):
    """Windows of a view: its layout, what the windows are over it, and its shape [1, channels, *spatial]."""

    view: Layout
    windows: Layout
    shape: Shape


@lru_cache(maxsize=CACHE_SIZE)
def channels_ordered(layout: Layout, n_in: int, groups: int) -> Ordered | None:
    """A layout of windows of ``n_in`` elements, as one over a view with the channels and dims in the order in which
    these read them; None if it is none. Shuffled channels are such a view, every other block of channels, and channels
    that come last."""
    lead, room = 0, groups
    while room > 1 and lead < len(layout.dims) and room % layout.dims[lead][0] == 0:
        room //= layout.dims[lead][0]
        lead += 1
    channels = [i for i, (_, stride) in enumerate(layout.dims) if i < lead or stride]
    spatial = sorted(layout.axes, key=lambda axis: -abs(axis.stride))
    if room > 1 or not spatial or any(axis.stride == 0 or any(axis.coeffs[:lead]) for axis in spatial):
        return None
    moved = [*(layout.dims[i] for i in channels), *((axis.bound, axis.stride) for axis in spatial)]
    reach = [[(size - 1) * stride for size, stride in moved if sign * stride > 0] for sign in (-1, 1)]
    if layout.offset + sum(reach[0]) < 0 or layout.offset + sum(reach[1]) >= n_in:
        return None
    sizes = [size for size, _ in moved]
    steps = row_major(sizes)
    own = dict(zip(channels, steps, strict=False))
    dims = [(size, own.get(i, 0)) for i, (size, _) in enumerate(layout.dims)]
    axes = [axis._replace(stride=step) for axis, step in zip(spatial, steps[len(channels) :], strict=True)]
    count = prod(sizes[: len(channels)])
    shape = (1, count, *sizes[len(channels) :])
    return Ordered(strided(layout.offset, moved), masked(0, dims, axes, layout.fill), shape)


MOST_STRIDE = 4
"""Strides of windows, as multiples of the step to the next element, that a guess at shapes understands."""


def guessed_shapes(layout: Layout, n_in: int) -> Iterator[Shape]:
    """Shapes [n, c, *spatial] of the operand, guessed from the strides of a layout of windows."""
    plain = [abs(stride) for size, stride in layout.dims if stride and size > 1]
    coordinates = [abs(axis.stride) for axis in layout.axes if axis.stride]
    beyond = [s for s in plain if s > max(coordinates, default=0)]
    steps = [s for s in plain if not any(t < s <= MOST_STRIDE * t and s % t == 0 for t in (1, *plain))]
    seen = set()
    for bounds in (coordinates + plain, plain, coordinates + beyond, steps):
        dims = _dims_between(bounds, n_in)
        for lead in range(len(dims) + 1):
            for shape in (dims, (*dims[:lead], 1, *dims[lead:]), (1, 1, *dims)):
                if len(shape) > 2 and shape not in seen:
                    seen.add(shape)
                    yield shape


def _dims_between(strides: Sequence[int], n: int) -> Shape:
    """The shape whose dims are the ratios of successive strides, as far as they divide each other."""
    dims = []
    above = n
    for stride in sorted({1, *strides}, reverse=True):
        if above % stride == 0 and above > stride:
            dims.append(above // stride)
            above = stride
    return tuple(dims) if prod(dims) == n else ()
