"""From a layout back to NumPy: the shortest chain of reshape, slice, transpose, broadcast and pad that computes it.

A layout says where each element comes from; a person wants to see `transpose(reshape(x))`. `chain` splits the
layout's index over the dims of the operand (`eqsat.layout.split`). If every digit of the result then moves one dim
of the operand, the view is at most a reshape, a slice, a transpose, a broadcast, a pad and a reshape; steps that do
nothing are left out. Diagonal masks become a `where` over a constant mask, and a few blocks that lie apart are read one
by one. All other layouts (unfolded windows, rows that wrap) become a gather by a constant index, which is correct but
long, and rare.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from weakref import WeakValueDictionary

import numpy as np

from eqsat.base.numerics import Array
from eqsat.layout.arithmetic import Axis, Digits, Fill, Layout, compose, of_broadcast, row_major, split, strided
from eqsat.layout.form import in_two
from eqsat.layout.map import CACHE_SIZE
from eqsat.program import ops
from eqsat.program.term import Shape, Term, distinguish


@dataclass(frozen=True, slots=True)
class Step:
    """One operator of a chain: its name, its attributes, and its cost to a reader."""

    op: str
    attrs: tuple
    cost: float

    def apply(self, term: Term) -> Term:
        return _APPLY[self.op](term, *self.attrs)


Steps = tuple[Step, ...]

MOST_BLOCKS = 8
"""Blocks of one array that are read one by one, at most: its windows are many more."""

# Cheap: files whose format broadcasts operands by NumPy's rules leave these steps out.
_BROADCAST, _LEADING_UNITS = 0.1, 0.6


def cost(steps: Steps) -> float:
    """The cost of the chain to a reader: about one per operator that moves or renames dims."""
    return sum(step.cost for step in steps)


def shared_cost(chains: Sequence[Steps]) -> float:
    """The cost of several chains from one term; a common beginning counts once."""
    if len(chains) == 1:
        return cost(chains[0])
    beginnings = {steps[: i + 1]: step.cost for steps in chains for i, step in enumerate(steps)}
    return sum(beginnings.values())


def apply(term: Term, steps: Steps) -> Term:
    """The term at the end of the chain."""
    for step in steps:
        term = step.apply(term)
    return term


@lru_cache(maxsize=CACHE_SIZE)
def chain(layout: Layout, source: Shape, target: Shape) -> Steps:
    """The steps from x[source] to the array of shape `target` whose flat elements are V(flat x, layout)."""
    if layout.is_identity(prod(source)):
        return tuple(_renamed(source, target))
    if layout.all_filled or layout.size == 0:
        return (_filled(layout.fill if layout.all_filled else 0, target),)
    if _broadcasts(source, target) and of_broadcast(source, target) == layout:
        return (_broadcast(target),)
    found = [steps for reading in _readings(layout, source, target) if (steps := _steps(reading, source, target))]
    if not found and (trimmed := _trimmed(layout, source)) is not None:
        shape, rest = trimmed
        found.append((_leading(shape), *chain(rest, shape, target)))
    return min(found, key=cost) if found else _in_blocks(layout, source, target) or (_taken(layout, target),)


def _in_blocks(layout: Layout, source: Shape, target: Shape) -> Steps:
    """A few blocks that lie apart, read one by one and put together; empty if one of them would be a gather."""
    if layout.masked or not layout.dims:
        return ()
    (count, step), *inside = layout.dims
    reach = sum((n - 1) * abs(stride) for n, stride in inside)
    if not 1 < count <= MOST_BLOCKS or abs(step) <= reach:
        return ()
    size = layout.size // count
    own = (1, *target[1:]) if target[:1] == (count,) else (size,)
    blocks: list[Steps] = []
    for start in range(0, layout.size, size):
        block = compose(layout, strided(start, ((size, 1),)))
        steps = () if block is None else chain(block, source, own)
        if block is None or any(step.op in ("take", "blocks") for step in steps):
            return ()
        blocks.append(steps)
    joined = Step("blocks", (tuple(blocks),), 1.0 + shared_cost(blocks))
    return (joined, *_reshaped((count * own[0], *own[1:]), target))


def unfolds(layout: Layout, n_in: int) -> bool:
    """Whether no chain of plain views reads the layout."""
    return any(step.op in ("take", "mask") for step in chain(layout, (n_in,), (layout.size,)))


@lru_cache(maxsize=CACHE_SIZE)
def through(first: Layout, then: Layout, source: Shape, target: Shape) -> Steps:
    """As `chain`, for the view `then` of the view `first`, whether or not the two compose."""
    layout = compose(first, then)
    if layout is not None:
        return chain(layout, source, target)
    flat = (first.size,)
    return chain(first, source, flat) + chain(then, flat, target)


# Steps


def _reshape(shape: Shape) -> Step:
    return Step("reshape", (shape,), 1.0)


def _reshaped(source: Shape, target: Shape) -> Iterator[Step]:
    if source != target:
        yield _reshape(target)


def _renamed(source: Shape, target: Shape) -> Iterator[Step]:
    """The same elements in another shape; leading dims of size 1 are added by a broadcast."""
    lead = len(target) - len(source)
    if source and lead > 0 and target == (1,) * lead + source:
        yield Step("broadcast", (target,), _LEADING_UNITS)
    else:
        yield from _reshaped(source, target)


def _broadcast(shape: Shape) -> Step:
    return Step("broadcast", (shape,), _BROADCAST)


def _filled(fill: Fill, shape: Shape) -> Step:
    return Step("fill", (fill, shape), 0.3)


def _leading(counts: Shape) -> Step:
    """A slice of the first `counts` elements along each dim."""
    return Step("slice", ((0,) * len(counts), counts, (1,) * len(counts)), 1.0)


def _taken(layout: Layout, shape: Shape) -> Step:
    return Step("take", (layout, shape), 12.0)


def _apply_slice(term: Term, starts: Shape, counts: Shape, steps: Shape) -> Term:
    stops = [start + count * step for start, count, step in zip(starts, counts, steps, strict=True)]
    open_stops = [None if stop < 0 else stop for stop in stops]
    return ops.slice_(term, starts, open_stops, steps=steps)


def _apply_fill(term: Term, fill: Fill, shape: Shape) -> Term:
    return ops.full(fill, shape, term.dtype)


def _apply_mask(term: Term, axes: tuple[Axis, ...], fill: Fill) -> Term:
    """The term, with `fill` where a coordinate over its dims is out of bounds."""
    involved = [any(axis.coeffs[i] for axis in axes) for i in range(term.ndim)]
    places = np.ogrid[tuple(slice(n if uses else 1) for n, uses in zip(term.shape, involved, strict=True))]
    valid = np.ones((1,) * term.ndim, dtype=bool)
    for axis in axes:
        coordinate = axis.start + sum(c * place for c, place in zip(axis.coeffs, places, strict=True))
        valid = valid & (coordinate >= 0) & (coordinate < axis.bound)
    return _where(ops.broadcast(ops.constant(valid), term.shape), term, fill)


def _apply_blocks(term: Term, blocks: Sequence[Steps]) -> Term:
    return ops.concat([apply(term, steps) for steps in blocks], 0)


def _apply_take(term: Term, layout: Layout, shape: Shape) -> Term:
    index, valid = _index(layout, shape)
    taken = ops.gather(ops.reshape(term, (term.size,)), index, 0)
    return taken if valid is None else _where(valid, taken, layout.fill)


_INDICES: WeakValueDictionary[tuple[Layout, Shape], Term] = WeakValueDictionary()
"""Indices by their layouts, while a program holds them: they are as large as results, and steps read as results do."""

_VALID: WeakValueDictionary[tuple[Layout, Shape], Term] = WeakValueDictionary()
"""Where they are indices, by their layouts."""


def _index(layout: Layout, shape: Shape) -> tuple[Term, Term | None]:
    """Indices of the elements that a layout reads, and where it reads elements and not its fill; None: everywhere."""
    key = (Layout(layout.offset, layout.dims, layout.axes, 0) if layout.masked else layout), shape  # for every fill
    index, valid = _INDICES.get(key), _VALID.get(key)
    if index is None or (valid is None and layout.masked):
        places = layout.index()
        if layout.masked:
            valid = _VALID[key] = _constant(places >= 0, shape, f"valid {key[0]}")
            np.maximum(places, 0, out=places)
        index = _INDICES[key] = _constant(places, shape, f"index {key[0]}")
    return index, valid


def _constant(own: Array, shape: Shape, name: str) -> Term:
    """A constant of values that nobody else holds, with a name that tells how they were made. A constant of values that
    can be written to would copy them."""
    own.flags.writeable = False
    distinguish(own, lambda: name)
    return ops.constant(own.reshape(shape))


def _where(valid: Term, term: Term, fill: Fill) -> Term:
    return ops.where(valid, term, ops.broadcast(ops.full(fill, (), term.dtype), term.shape))


_APPLY = {
    "reshape": ops.reshape,
    "transpose": ops.transpose,
    "broadcast": ops.broadcast,
    "pad": ops.pad,
    "slice": _apply_slice,
    "fill": _apply_fill,
    "mask": _apply_mask,
    "blocks": _apply_blocks,
    "take": _apply_take,
}


# Readings: a layout over the dims of its operand


@dataclass(frozen=True, slots=True)
class Reading:
    """A layout over the dims of its operand; each dim is moved by at most one digit of the result.

    Attributes:
        radices: the dims of the operand without those of size 1; dims may be split further.
        starts: the first index along each of these dims.
        sizes: the digits of the result, outer to inner.
        places: the dim that each digit moves; -1 if it repeats.
        steps: the step of each digit.
        valid: the range of each digit that reads elements; the rest is padding.
        masks: coordinates over several digits.
        fill: the value read in padding and masks.
    """

    radices: Shape
    starts: Shape
    sizes: Shape
    places: Shape
    steps: Shape
    valid: tuple[tuple[int, int], ...]
    masks: tuple[Axis, ...]
    fill: Fill

    def counts(self) -> Shape:
        """The number of values of each digit that read elements."""
        return tuple(hi - lo for lo, hi in self.valid)


def dims_of(shape: Iterable[int]) -> Shape:
    """A shape without its dims of size 1."""
    return tuple(n for n in shape if n != 1)


@lru_cache(maxsize=CACHE_SIZE)
def reading(layout: Layout, radices: Shape) -> Reading | None:
    """The layout over these dims, split further where two digits share a dim. None if it has no such form."""
    while True:
        digits = split(layout, radices)
        if digits is None:
            return None
        shared = _shared_place(digits, radices)
        if shared is None:
            return _reading(digits, radices, layout.fill)
        place, block = shared
        if not 1 < block < radices[place] or radices[place] % block:
            return None
        radices = _cut(radices, place, block)


def _shared_place(digits: Digits, radices: Shape) -> tuple[int, int] | None:
    """A dim that two digits move, and the larger of their steps."""
    for place in range(len(radices)):
        steps = [abs(c) for c in digits.coeffs[place] if c]
        if len(steps) > 1:
            return place, max(steps)
    return None


def _trimmed(layout: Layout, source: Shape) -> tuple[Shape, Layout] | None:
    """The operand's shape with one dim shortened to the part that blocks of two digits read, and the layout over it.
    None if there is no such dim."""
    digits = split(layout, source) if not layout.masked else None
    shared = _shared_place(digits, source) if digits else None
    if digits is None or shared is None:
        return None
    place, block = shared
    whole = source[place] // block * block
    if not 0 < whole < source[place] or digits.high[place] > whole:
        return None
    shape = (*source[:place], whole, *source[place + 1 :])
    inner = row_major(shape)
    strides = [sum(c[i] * step for c, step in zip(digits.coeffs, inner, strict=True)) for i in range(len(digits.sizes))]
    offset = sum(start * step for start, step in zip(digits.starts, inner, strict=True))
    return shape, strided(offset, zip(digits.sizes, strides, strict=True))


def _cut(radices: Shape, place: int, block: int) -> Shape:
    return (*radices[:place], radices[place] // block, block, *radices[place + 1 :])


def _reading(digits: Digits, radices: Shape, fill: Fill) -> Reading | None:
    places, steps = [], []
    for i in range(len(digits.sizes)):
        moved = [place for place in range(len(radices)) if digits.coeffs[place][i]]
        if len(moved) > 1:
            return None
        places.append(moved[0] if moved else -1)
        steps.append(digits.coeffs[moved[0]][i] if moved else 0)
    valid = [(0, n) for n in digits.sizes]
    masks = []
    for axis in digits.axes:
        involved = [i for i, c in enumerate(axis.coeffs) if c]
        if len(involved) != 1 or axis.coeffs[involved[0]] < 0:
            masks.append(axis)
            continue
        (i,) = involved
        lo, hi = valid[i]
        c = axis.coeffs[i]
        valid[i] = max(lo, -(axis.start // c)), min(hi, -((axis.start - axis.bound) // c))
    found = Reading(radices, digits.starts, digits.sizes, tuple(places), tuple(steps), tuple(valid), tuple(masks), fill)
    return found if _stays_inside(found) else None


def _stays_inside(found: Reading) -> bool:
    """Whether all reads are in range, even where a mask over several digits hides them, and some digit reads."""
    ends = [[start, start] for start in found.starts]
    for place, step, (lo, hi) in zip(found.places, found.steps, found.valid, strict=True):
        if lo >= hi:
            return False
        if place >= 0:
            reach = (step * lo, step * (hi - 1))
            ends[place][0] += min(reach)
            ends[place][1] += max(reach)
    return all(low >= 0 and high < n for (low, high), n in zip(ends, found.radices, strict=True))


def _readings(layout: Layout, source: Shape, target: Shape) -> Iterator[Reading]:
    """Readings over the operand's own dims, then over one flat dim; each first with dims cut as in the result. Of
    equally short chains, the one that reshapes first then wins: reshape(x, (n, heads, d)) shows what the dims are."""
    for radices in dict.fromkeys((dims_of(source), (prod(source),))):
        found = reading(layout, radices)
        if found is None:
            continue
        finer = cut_for(found, target)
        cut = reading(layout, finer) if finer != found.radices else None
        if cut is not None:
            yield repeats_cut(cut, target)
        yield repeats_cut(found, target)


def _straddles(sizes: Shape, target: Shape) -> Iterator[tuple[int, int]]:
    """(digit, inner size) for each boundary between dims of ``target`` that falls inside a digit, innermost first."""
    bounds = sorted(set(row_major(target)))
    for i, inside in reversed(list(enumerate(row_major(sizes)))):
        for bound in bounds:
            if inside < bound < inside * sizes[i] and bound % inside == 0 and sizes[i] % (bound // inside) == 0:
                yield i, bound // inside


def cut_for(found: Reading, target: Shape) -> Shape:
    """The dims of the operand, split where one of them becomes several dims of the result."""
    inner = row_major(found.radices)
    n = prod(found.radices)
    bounds = set(inner)
    for i, block in _straddles(found.sizes, target):
        if found.places[i] >= 0:
            bounds.add(inner[found.places[i]] * abs(found.steps[i]) * block)
    above = n
    radices = []
    for bound in sorted(bounds, reverse=True):
        if above % bound:
            return found.radices
        radices.append(above // bound)
        above = bound
    return dims_of(radices)


def repeats_cut(found: Reading, target: Shape) -> Reading:
    """The reading with repeating digits split where they span several dims of the result."""
    for i, block in _straddles(found.sizes, target):
        if found.places[i] < 0 and found.valid[i] == (0, found.sizes[i]):
            outer = found.sizes[i] // block
            cut = replace(
                found,
                sizes=in_two(found.sizes, i, (outer, block)),
                places=in_two(found.places, i, (-1, -1)),
                steps=in_two(found.steps, i, (0, 0)),
                valid=in_two(found.valid, i, ((0, outer), (0, block))),
                masks=tuple(axis.cut(i, block) for axis in found.masks),
            )
            return repeats_cut(cut, target)
    return found


# Chains


def _broadcasts(source: Shape, target: Shape) -> bool:
    if len(source) > len(target):
        return False
    return all(m in (1, n) for m, n in zip(reversed(source), reversed(target), strict=False))


def _steps(found: Reading, source: Shape, target: Shape) -> Steps:
    return tuple(_Chain(found, source, target).steps())


class _Chain:
    """Writes a reading as steps. Each current dim is a digit of the result, or None for a dim of size 1."""

    def __init__(self, found: Reading, source: Shape, target: Shape) -> None:
        self.found, self.source, self.target = found, source, target
        self.frame = _frame(found, target)
        # Digits that repeat have size 1 until the broadcast.
        self.counts = found.counts()
        self.wanted = [i if i is not None and found.places[i] >= 0 else None for i in self.frame]

    def steps(self) -> list[Step]:
        steps, shape, dims = self._laid_out()
        steps += self._sliced(shape, dims)
        held = [self._digit_of(place) for place in dims]
        steps += self._ordered(held)
        steps += self._widened()
        frame_shape = tuple(self._size(i) for i in self.frame)
        steps += _reshaped(frame_shape, self.target)
        return _merged(self.source, steps)

    def _digit_of(self, place: int | None) -> int | None:
        return None if place is None or place not in self.found.places else self.found.places.index(place)

    def _size(self, digit: int | None) -> int:
        return 1 if digit is None else self.found.sizes[digit]

    def _count(self, digit: int | None) -> int:
        return 1 if digit is None else self.counts[digit]

    def _laid_out(self) -> tuple[list[Step], Shape, list[int | None]]:
        """The operand with one dim per radix: unchanged if its shape has exactly these, else reshaped, together with
        the size-1 dims of the result. Returns the steps, the shape, and the radix of each dim."""
        radices = self.found.radices
        dims: list[int | None] = list(range(len(radices)))
        moved = [i for i in self.wanted if i is not None]
        in_order = [self.found.places[i] for i in moved] == dims
        spare = self.source.count(1) - len(self.wanted) + len(moved)
        # Dims of size 1 are dropped before a transpose, unless a reshape follows it.
        last = dims_of(self.target) == self.found.sizes
        dropped = last and spare > 0 and len(moved) == len(radices) and not in_order
        if dims_of(self.source) == radices and not dropped:
            places = iter(range(len(radices)))
            return [], self.source, [None if n == 1 else next(places) for n in self.source]
        if len(moved) == len(radices):
            units: list[int | None] = [None] * (len(self.wanted) - len(moved))
            slots = [None if i is None else self.found.places[i] for i in self.wanted]
            dims = slots if in_order else units + dims
        shape = tuple(1 if place is None else radices[place] for place in dims)
        return [_reshape(shape)], shape, dims

    def _sliced(self, shape: Shape, dims: list[int | None]) -> Iterator[Step]:
        starts, counts, steps = [], [], []
        for place in dims:
            digit = self._digit_of(place)
            if place is None:
                start, count, step = 0, 1, 1
            elif digit is None:
                start, count, step = self.found.starts[place], 1, 1
            else:
                step = self.found.steps[digit]
                start, count = self.found.starts[place] + step * self.found.valid[digit][0], self.counts[digit]
            starts.append(start)
            counts.append(count)
            steps.append(step if count > 1 else 1)
        if tuple(counts) != shape or any(step != 1 for step in steps):
            yield Step("slice", (tuple(starts), tuple(counts), tuple(steps)), 1.0)

    def _ordered(self, held: list[int | None]) -> Iterator[Step]:
        """Digits in the order of the result, with size-1 dims where a broadcast, a pad or the result needs them."""
        wanted = list(self.wanted)
        units = held.count(None)
        while self._widens() and wanted and wanted[0] is None and units < wanted.count(None):
            wanted.pop(0)  # a broadcast adds leading dims by itself
        digits = [i for i in held if i is not None]
        in_order = digits == sorted(digits)
        if units == wanted.count(None) and not in_order:
            spare = iter([k for k, i in enumerate(held) if i is None])
            yield _transpose([next(spare) if i is None else held.index(i) for i in wanted])
            return
        if not in_order:
            spare_first = [k for k, i in enumerate(held) if i is None]
            yield _transpose([*spare_first, *(held.index(i) for i in sorted(digits))])
        if held != wanted or not in_order:
            yield _reshape(tuple(self._count(i) for i in wanted))

    def _widens(self) -> bool:
        return any(self._count(i) != 1 for i, held in zip(self.frame, self.wanted, strict=True) if held is None)

    def _widened(self) -> Iterator[Step]:
        counts = tuple(self._count(i) for i in self.frame)
        if self._widens():
            yield _broadcast(counts)
        lo = tuple(0 if i is None else self.found.valid[i][0] for i in self.frame)
        hi = tuple(0 if i is None else self.found.sizes[i] - self.found.valid[i][1] for i in self.frame)
        if any(lo) or any(hi):
            yield Step("pad", (lo, hi, self.found.fill), 1.0)
        if self.found.masks:
            axes = tuple(
                Axis(axis.bound, 0, axis.start, tuple(0 if i is None else axis.coeffs[i] for i in self.frame))
                for axis in self.found.masks
            )
            yield Step("mask", (axes, self.found.fill), 2.0)


def _transpose(perm: list[int]) -> Step:
    return Step("transpose", (tuple(perm),), 1.0)


def _frame(found: Reading, target: Shape) -> list[int | None]:
    """The digits as dims of the result, with None for its dims of size 1; the digits alone if other dims differ."""
    digits = iter(range(len(found.sizes)))
    if dims_of(target) == found.sizes:
        return [None if n == 1 else next(digits) for n in target]
    return list(digits)


def _merged(source: Shape, steps: Sequence[Step]) -> list[Step]:
    """The steps without reshapes that are followed by another one or change nothing."""
    out: list[Step] = []
    for step in steps:
        if step.op == "reshape" and out and out[-1].op == "reshape":
            out.pop()
        out.append(step)
    if out and out[0].op == "reshape" and out[0].attrs[0] == source:
        out.pop(0)
    return out
