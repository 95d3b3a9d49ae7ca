"""The canonical form in which layouts are stored: equal index maps should be equal tuples.

An index map sends a flat output index, written in mixed radix as the digits d_i in [0, n_i), to

    offset + sum_i s_i d_i + sum_j S_j c_j(d)        with  c_j(d) = start_j + sum_i coeffs_ji d_i

and is defined where every c_j lies in [0, bound_j). The first sum is CuTe's layout; the c_j are masks: they pad,
cut triangles, and bound windows. Equal maps have many such spellings, and every duplicate multiplies the e-graph.
So :func:`canonical` drops and merges digits and coordinates until nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import gcd, prod
from typing import NamedTuple, TypeVar

T = TypeVar("T")

Dims = tuple[tuple[int, int], ...]
"""(size, stride) per digit, outermost first."""


class Axis(NamedTuple):
    """A masked coordinate c(d) = start + sum_i coeffs[i] d[i]: reads outside [0, bound) are filled,
    reads inside add ``stride * c`` to the input index."""

    bound: int
    stride: int
    start: int
    coeffs: tuple[int, ...]

    def cut(self, i: int, block: int) -> Axis:
        """The same coordinate with digit i in two, the inner one with ``block`` values."""
        return self._replace(coeffs=in_two(self.coeffs, i, (self.coeffs[i] * block, self.coeffs[i])))


def in_two(values: tuple[T, ...], i: int, pair: tuple[T, T]) -> tuple[T, ...]:
    """The values with two in place of the one at i."""
    return (*values[:i], *pair, *values[i + 1 :])


Form = tuple[int, Dims, tuple[Axis, ...]]
EMPTY: Form = (0, ((0, 0),), ())
# Each pass applies every step once; random layouts reach a fixed point within four passes.
_MAX_PASSES = 16


def merged(dims: Iterable[tuple[int, int]]) -> Dims:
    """``dims`` without digits of size 1, and with (n1, n2*s)(n2, s) as the single digit (n1*n2, s)."""
    out: list[tuple[int, int]] = []
    for size, stride in dims:
        if size == 1:
            continue
        if out and out[-1][1] == size * stride:
            out[-1] = (out[-1][0] * size, stride)
        else:
            out.append((size, stride))
    return tuple(out)


def all_filled(size: int) -> Form:
    """The map that reads nothing: one coordinate with no valid value."""
    if size == 1:
        return 0, (), (Axis(0, 0, 0, ()),)
    return 0, ((size, 0),), (Axis(0, 0, 0, (0,)),)


@lru_cache(maxsize=1 << 16)
def canonical(offset: int, dims: Dims, axes: tuple[Axis, ...]) -> Form:
    """The canonical spelling of a map, with the same index for each output."""
    if any(size == 0 for size, _ in dims):
        return EMPTY
    if not axes:
        return offset, merged(dims), ()
    length = prod(size for size, _ in dims)
    draft = _Draft(offset, dims, axes)
    for _ in range(_MAX_PASSES):
        before = draft.freeze()
        if not draft.normalise_axes():
            return all_filled(length)
        draft.drop_unit_dims()
        draft.merge_dims()
        if draft.freeze() == before:
            break
    offset, dims, axes = draft.freeze()
    return (offset, dims, axes) if axes else (offset, merged(dims), ())


class _Coordinate:
    """A mutable :class:`Axis`."""

    __slots__ = ("bound", "coeffs", "start", "stride")

    def __init__(self, axis: Axis) -> None:
        self.bound, self.stride, self.start, self.coeffs = axis.bound, axis.stride, axis.start, list(axis.coeffs)

    def involved(self) -> list[int]:
        return [i for i, coeff in enumerate(self.coeffs) if coeff]

    def freeze(self) -> Axis:
        return Axis(self.bound, self.stride, self.start, tuple(self.coeffs))


def _extent(axis: _Coordinate, digits: Iterable[int], ranges: list[tuple[int, int]]) -> tuple[int, int]:
    """The least and greatest value of the coordinate while the given digits vary within ``ranges``."""
    least = greatest = axis.start
    for i in digits:
        ends = [axis.coeffs[i] * end for end in ranges[i]]
        least += min(ends)
        greatest += max(ends)
    return least, greatest


class _Draft:
    """A mutable map. Every method changes only its spelling, not the map."""

    __slots__ = ("axes", "offset", "sizes", "strides")

    def __init__(self, offset: int, dims: Dims, axes: tuple[Axis, ...]) -> None:
        self.offset = offset
        self.sizes = [size for size, _ in dims]
        self.strides = [stride for _, stride in dims]
        self.axes = [_Coordinate(axis) for axis in axes]

    def freeze(self) -> Form:
        axes = tuple(sorted(axis.freeze() for axis in self.axes))
        return self.offset, tuple(zip(self.sizes, self.strides, strict=True)), axes

    def normalise_axes(self) -> bool:
        """Simplify each coordinate, drop masks that always hold, intersect equal ones. False: nothing is read."""
        # The first coordinate takes a shared stride, so the order must not depend on the spelling.
        waiting = sorted(self.axes, key=lambda axis: (axis.coeffs, axis.start, axis.bound, axis.stride), reverse=True)
        kept: dict[tuple[int, ...], _Coordinate] = {}
        while waiting:
            axis = waiting.pop()
            axis.coeffs = [0 if size == 1 else c for c, size in zip(axis.coeffs, self.sizes, strict=True)]
            if axis.involved():
                self._divide_out_gcd(axis)
                self._make_leading_coeff_positive(axis)
                self._take_plain_stride(axis)
            ranges = self._valid_ranges([*kept.values(), *waiting])
            if self._drop_inner_digits(axis, ranges):  # the leading one may have gone
                self._make_leading_coeff_positive(axis)
            least, greatest = _extent(axis, range(len(self.sizes)), ranges)
            if max(least, 0) > min(greatest, axis.bound - 1):
                return False
            if not self._trim(axis, least, greatest):
                continue
            twin = kept.get(tuple(axis.coeffs))
            if twin is not None and not self._intersect(axis, twin):
                return False
            kept[tuple(axis.coeffs)] = axis
        self.axes = list(kept.values())
        return True

    def _valid_ranges(self, axes: Iterable[_Coordinate]) -> list[tuple[int, int]]:
        """(least, greatest) of each digit, as limited by the masks that depend on that digit alone."""
        ranges = [(0, size - 1) for size in self.sizes]
        for axis in axes:
            involved = axis.involved()
            if len(involved) == 1 and axis.coeffs[involved[0]] == 1:
                (i,) = involved
                least, greatest = ranges[i]
                ranges[i] = max(least, -axis.start), min(greatest, axis.bound - 1 - axis.start)
        return ranges

    def _divide_out_gcd(self, axis: _Coordinate) -> None:
        factor = gcd(*axis.coeffs)
        if factor > 1:
            axis.start, rest = divmod(axis.start, factor)
            axis.bound = -(-(axis.bound - rest) // factor)
            axis.coeffs = [c // factor for c in axis.coeffs]
            self.offset += axis.stride * rest
            axis.stride *= factor

    def _make_leading_coeff_positive(self, axis: _Coordinate) -> None:
        if axis.coeffs[axis.involved()[0]] < 0:
            axis.coeffs = [-c for c in axis.coeffs]
            axis.start = axis.bound - 1 - axis.start
            self.offset += axis.stride * (axis.bound - 1)
            axis.stride = -axis.stride

    def _take_plain_stride(self, axis: _Coordinate) -> None:
        """Move the stride of the coordinate's innermost digit to the coordinate, so that the digit has stride 0."""
        involved = axis.involved()
        share, rest = divmod(self.strides[involved[-1]], axis.coeffs[involved[-1]])
        if rest == 0:
            axis.stride += share
            self.offset -= share * axis.start
            for i in involved:
                self.strides[i] -= share * axis.coeffs[i]

    def _drop_inner_digits(self, axis: _Coordinate, ranges: list[tuple[int, int]]) -> bool:
        """c = g*outer + inner with inner always in [0, g), bound a multiple of g: only ``outer`` is masked. False: it
        is not so."""
        for g in sorted({abs(c) for c in axis.coeffs if abs(c) > 1}):
            inner = [i for i, c in enumerate(axis.coeffs) if c and abs(c) < g]
            outer = [c for c in axis.coeffs if abs(c) >= g]
            if not inner or axis.bound % g or any(c % g for c in outer):
                continue
            quotient, rest = divmod(axis.start, g)
            least, greatest = (end - axis.start + rest for end in _extent(axis, inner, ranges))
            if least < 0 or greatest >= g:
                continue
            self.offset += axis.stride * rest
            for i in inner:
                self.strides[i] += axis.stride * axis.coeffs[i]
                axis.coeffs[i] = 0
            axis.start, axis.bound, axis.stride = quotient, axis.bound // g, axis.stride * g
            axis.coeffs = [c // g for c in axis.coeffs]
            return True
        return False

    def _trim(self, axis: _Coordinate, least: int, greatest: int) -> bool:
        """Shrink the bound to the values the coordinate takes. False: it is always valid, and became plain strides."""
        low, high = max(least, 0), min(greatest, axis.bound - 1)
        if (low, high) == (least, greatest):
            self.offset += axis.stride * axis.start
            self.strides = [s + axis.stride * c for s, c in zip(self.strides, axis.coeffs, strict=True)]
            return False
        self.offset += axis.stride * low
        axis.start -= low
        axis.bound = high - low + 1
        if axis.bound == 1:
            axis.stride = 0
        return True

    def _intersect(self, axis: _Coordinate, twin: _Coordinate) -> bool:
        """Merge ``twin`` (equal coefficients) into ``axis``. False: they are never valid together."""
        low = max(-axis.start, -twin.start)
        high = min(axis.bound - axis.start, twin.bound - twin.start)
        if low >= high:
            return False
        self.offset += axis.stride * (axis.start + low) + twin.stride * (twin.start + low)
        axis.stride += twin.stride
        axis.start = -low
        axis.bound = high - low
        return True

    def drop_unit_dims(self) -> None:
        keep = [i for i, size in enumerate(self.sizes) if size != 1]
        self.sizes = [self.sizes[i] for i in keep]
        self.strides = [self.strides[i] for i in keep]
        for axis in self.axes:
            axis.coeffs = [axis.coeffs[i] for i in keep]

    def merge_dims(self) -> None:
        i = 0
        while i + 1 < len(self.sizes):
            if not (self._merge_proportional(i) or self._merge_masked_block(i)):
                i += 1

    def _merge_proportional(self, i: int) -> bool:
        """Merge digits i and i+1 if they form one digit wherever they occur."""
        inner = self.sizes[i + 1]
        if self.strides[i] != inner * self.strides[i + 1]:
            return False
        if any(axis.coeffs[i] != inner * axis.coeffs[i + 1] for axis in self.axes):
            return False
        self.sizes[i : i + 2] = [self.sizes[i] * inner]
        del self.strides[i]
        for axis in self.axes:
            del axis.coeffs[i]
        return True

    def _merge_masked_block(self, i: int) -> bool:
        """Merge digits i and i+1, and mask the result, if i is only masked and i+1 runs contiguously inside it."""
        if self.strides[i] or any(axis.coeffs[i + 1] for axis in self.axes):
            return False
        masking = [axis for axis in self.axes if axis.coeffs[i]]
        if len(masking) != 1:
            return False
        (axis,), inner, stride = masking, self.sizes[i + 1], self.strides[i + 1]
        if sum(map(abs, axis.coeffs)) != 1 or (axis.bound > 1 and axis.stride != inner * stride):
            return False
        axis.bound, axis.stride, axis.start = axis.bound * inner, stride, axis.start * inner
        self.sizes[i : i + 2] = [self.sizes[i] * inner]
        self.strides[i : i + 2] = [0]
        for each in self.axes:
            del each.coeffs[i + 1]
        return True
