"""Splitting: a layout's input index, written as digits of a mixed-radix index space.

Composition, boxes and lifting all ask the same question: which input digit does each output digit move, and does
a digit ever carry into the next?
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from math import prod
from typing import NamedTuple

from eqsat.layout.form import Axis, Dims, Form, in_two
from eqsat.layout.map import CACHE_SIZE, Layout


@dataclass(frozen=True, slots=True)
class Digits:
    """The reads of a layout, in a mixed radix of its input.

    ``sizes`` refines the layout's own digits. Digit j of the input index is
    ``starts[j] + sum_i coeffs[j][i] d[i]`` and, where the read is valid, lies in [low[j], high[j]).
    ``axes`` are the layout's masks over the refined digits, without strides.
    """

    sizes: tuple[int, ...]
    starts: tuple[int, ...]
    coeffs: tuple[tuple[int, ...], ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    axes: tuple[Axis, ...]

    def cut(self, i: int, block: int) -> Digits:
        """The same reads with digit i of the result in two, the inner one of size ``block``."""
        return replace(
            self,
            sizes=in_two(self.sizes, i, (self.sizes[i] // block, block)),
            coeffs=tuple(in_two(c, i, (c[i] * block, c[i])) for c in self.coeffs),
            axes=tuple(axis.cut(i, block) for axis in self.axes),
        )


class _Part(NamedTuple):
    """A piece of one digit of the map: it moves input digit ``place`` (-1: none) in ``size`` steps of ``step``."""

    place: int
    size: int
    step: int


@lru_cache(maxsize=CACHE_SIZE)
def split(layout: Layout, radices: tuple[int, ...]) -> Digits | None:
    """The reads of ``layout`` as digits of an index space with these sizes, outer to inner.

    None when a digit might carry into the next, or when a masked coordinate would spread over two digits: then the map
    has no such form, or has one that is not found here.
    """
    if layout.all_filled or layout.size == 0:
        return None
    for form in _spellings((layout.offset, layout.dims, layout.axes)):
        digits = _split_form(form, radices)
        if digits is not None:
            return digits
    return None


def _spellings(form: Form) -> Iterator[Form]:
    """The map as it is, then with the strides of coordinates over several digits moved to the digits. The first suits
    windows, whose digits alone would read outside the input; the second suits triangles."""
    yield form
    offset, dims, axes = form
    strides = [stride for _, stride in dims]
    plain = []
    for axis in axes:
        if axis.stride and sum(map(bool, axis.coeffs)) > 1:
            offset += axis.stride * axis.start
            strides = [stride + axis.stride * c for stride, c in zip(strides, axis.coeffs, strict=True)]
            axis = axis._replace(stride=0)
        plain.append(axis)
    if tuple(plain) != axes:
        yield offset, tuple((size, stride) for (size, _), stride in zip(dims, strides, strict=True)), tuple(plain)


def _split_form(form: Form, radices: tuple[int, ...]) -> Digits | None:
    offset, dims, axes = form
    while True:
        runs = [*dims, *((axis.bound, axis.stride) for axis in axes)]
        found = _split_runs(offset, runs, radices)
        if found is None:
            return None
        starts, pieces, low, high = found
        wide = next((i for i, parts in enumerate(pieces[len(dims) :]) if len(parts) > 1), None)
        if wide is None:
            break
        finer = _unmask_block(dims, axes, wide, prod(part.size for part in pieces[len(dims) + wide][1:]))
        if finer is None:
            return None
        dims, axes = finer

    n_dims = len(dims)
    sizes = [part.size for parts in pieces[:n_dims] for part in parts]
    spread = _Spread(pieces[:n_dims])
    coeffs = [[0] * len(sizes) for _ in radices]
    for position, part in enumerate(part for parts in pieces[:n_dims] for part in parts):
        if part.place >= 0:
            coeffs[part.place][position] += part.step
    masks = []
    for axis, (part,) in zip(axes, pieces[n_dims:], strict=True):
        refined = spread.coeffs(axis.coeffs)
        masks.append(Axis(axis.bound, 0, axis.start, refined))
        if part.place >= 0:
            starts[part.place] += part.step * axis.start
            coeffs[part.place] = [x + part.step * y for x, y in zip(coeffs[part.place], refined, strict=True)]
    return Digits(
        sizes=tuple(sizes),
        starts=tuple(starts),
        coeffs=tuple(map(tuple, coeffs)),
        low=tuple(low),
        high=tuple(h + 1 for h in high),
        axes=tuple(masks),
    )


def _unmask_block(dims: Dims, axes: tuple[Axis, ...], k: int, block: int) -> tuple[Dims, tuple[Axis, ...]] | None:
    """Split the digit that coordinate ``k`` masks in two; the inner one has size ``block`` and is not masked by ``k``.

    The canonical form merges the padding of an outer dim with the dims inside it; this undoes that merge.
    None when the coordinate depends on more than one digit or its bounds cut a block.
    """
    axis = axes[k]
    i = next((i for i, c in enumerate(axis.coeffs) if c), 0)
    if sum(map(abs, axis.coeffs)) != 1 or axis.coeffs[i] != 1:
        return None
    size, stride = dims[i]
    if size % block or axis.start % block or axis.bound % block:
        return None
    finer = in_two(dims, i, ((size // block, stride * block), (block, stride + axis.stride)))
    masks = [each.cut(i, block) for each in axes]
    masks[k] = Axis(axis.bound // block, axis.stride * block, axis.start // block, in_two(axis.coeffs, i, (1, 0)))
    return finer, tuple(masks)


class _Spread:
    """Rewrites coefficients over a layout's digits as coefficients over their pieces."""

    def __init__(self, pieces: Sequence[Sequence[_Part]]) -> None:
        self._weights = []
        for parts in pieces:
            below = accumulate((part.size for part in parts[:0:-1]), lambda x, y: x * y, initial=1)
            self._weights.append(list(below)[::-1])

    def coeffs(self, coeffs: Sequence[int]) -> tuple[int, ...]:
        return tuple(c * weight for c, weights in zip(coeffs, self._weights, strict=True) for weight in weights)


def _split_runs(
    offset: int, runs: Sequence[tuple[int, int]], radices: tuple[int, ...]
) -> tuple[list[int], list[list[_Part]], list[int], list[int]] | None:
    """Write ``offset`` plus independent runs (count, stride) in a mixed radix, so that no digit carries.

    Returns the digits of the offset, the parts of each run (outer to inner), and the least and greatest value of
    each digit. A run with a negative stride is reversed, split, and its steps negated.
    """
    least = offset + sum(stride * (count - 1) for count, stride in runs if stride < 0)
    if least < 0:
        return None
    low = [0] * len(radices)
    for j in reversed(range(len(radices))):
        least, low[j] = divmod(least, radices[j])
    if least:
        return None
    high = list(low)
    starts = list(low)
    pieces = []
    for count, stride in runs:
        parts = _split_run(count, abs(stride), radices, high)
        if parts is None:
            return None
        if stride < 0:
            for part in parts:
                starts[part.place] += part.step * (part.size - 1)
            parts = [_Part(part.place, part.size, -part.step) for part in parts]
        pieces.append(parts)
    if any(h >= radix for h, radix in zip(high, radices, strict=True)):
        return None
    return starts, pieces, low, high


def _split_run(count: int, stride: int, radices: tuple[int, ...], high: list[int]) -> list[_Part] | None:
    """The parts of one run; adds the run's maximum in each digit to ``high``. None when a digit would carry."""
    if stride == 0 or count == 1:
        return [_Part(-1, count, 0)]
    parts: list[_Part] = []
    for j in reversed(range(len(radices))):
        radix = radices[j]
        if stride % radix == 0:
            stride //= radix
            continue
        if stride > radix:
            return None
        if high[j] + stride * (count - 1) < radix:
            high[j] += stride * (count - 1)
            parts.append(_Part(j, count, stride))
            return parts[::-1]
        room, rest = divmod(radix, stride)
        if rest or count % room:
            return None
        high[j] += stride * (room - 1)
        parts.append(_Part(j, room, stride))
        count //= room
        stride = 1
        if count == 1:
            return parts[::-1]
    return None
