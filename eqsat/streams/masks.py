"""Masks of a walk: which elements of the axis count for a row, where a layout says so.

A mask of a layout keeps 0 <= start + row * m + column * k < bound. Where every accumulator takes its identity outside
(of a sum, exp(-inf - max) = 0), a block leaves out the tiles that lie outside for all its rows. What they hold is not
read: an infinity or NaN there does not reach the result, where 0 times it would.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import TypeVar

import numpy as np

from eqsat.base.graphs import operands_first
from eqsat.base.numerics import ELEMENTWISE, Array, elementwise, np_dtype
from eqsat.layout.arithmetic import Axis, Layout
from eqsat.program.core import Node
from eqsat.program.core_table import CAST

IDENTITIES = {"sum": 0.0, "prod": 1.0, "max": -np.inf, "min": np.inf}
"""What changes no total of each kind."""


Rows = TypeVar("Rows", int, Array)
"""The number of a row, or an array with those of a row in each of many blocks."""


@dataclass(frozen=True, slots=True)
class Band:
    """The elements (m, k) with least <= row * m + column * k <= most; `column` is not 0."""

    row: int
    column: int
    least: int
    most: int

    def reach(self, first: Rows, last: Rows) -> tuple[Rows, Rows]:
        """[from, to): all k that some row from `first` to `last` reads lie in it; k may be out of the axis."""
        least, most = (first, last) if self.row >= 0 else (last, first)
        below, above = self.least - self.row * most, self.most - self.row * least
        if self.column < 0:
            below, above = -above, -below
        by = abs(self.column)
        return -(-below // by), above // by + 1


@lru_cache(maxsize=1 << 12)
def steps_taken(bands: tuple[Band, ...], rows: int, length: int, block: int, step: int) -> tuple[int, int]:
    """How many steps along an axis all blocks of rows take together, and the most that one of them takes, where each
    leaves out what lies outside of bands."""
    blocks, whole = -(-rows // block), -(-length // step)
    if not bands:
        return blocks * whole, whole
    first = np.arange(0, rows, block)
    last = np.minimum(first + block, rows) - 1
    start, stop = np.zeros_like(first), np.full_like(first, length)
    for band in bands:
        after, before = band.reach(first, last)
        start, stop = np.maximum(start, after), np.minimum(stop, before)
    taken = np.maximum(0, -(-stop // step) - start // step)
    return int(taken.sum()), int(taken.max())


@dataclass(frozen=True, slots=True)
class _Region:
    """What lies inside of a mask of a layout, or outside of it; `rest` is the band of all other elements."""

    layout: Layout
    inside: bool
    rest: Band


def bands(
    elements: Sequence[tuple[Node, float]], dims: tuple[int, int, int], inputs: Sequence[Node]
) -> tuple[Band, ...]:
    """The bands outside of which all elements are known.

    Args:
        elements: nodes at (b, m, k), of `dims` (batch, rows, length), and the value of each outside of a band.
    """
    nodes = operands_first([node for node, _ in elements], inputs)
    layouts = dict.fromkeys(n.attrs[0] for n in nodes if n.op == "V" and n.size == dims[0] * dims[1] * dims[2])
    regions = chain.from_iterable(_regions(layout, dims) for layout in layouts if layout.masked)
    found = [x.rest for x in regions if _all_known(nodes, elements, x)]
    return tuple(dict.fromkeys(found))


def _regions(layout: Layout, dims: tuple[int, int, int]) -> Iterator[_Region]:
    """Outside of each mask of a layout; and inside of one that is alone, where the others are a band."""
    for axis in layout.axes:
        coefficients = _coefficients(layout, axis, dims)
        if coefficients is None or not coefficients[1]:
            continue
        row, column = coefficients
        yield _Region(layout, False, Band(row, column, -axis.start, axis.bound - 1 - axis.start))
        reached = [a + b for a in (0, row * (dims[1] - 1)) for b in (0, column * (dims[2] - 1))]
        least, most = min(reached), max(reached)
        if len(layout.axes) == 1 and axis.start + most < axis.bound:
            yield _Region(layout, True, Band(row, column, least, -axis.start - 1))
        elif len(layout.axes) == 1 and axis.start + least >= 0:
            yield _Region(layout, True, Band(row, column, axis.bound - axis.start, most))


def _coefficients(layout: Layout, axis: Axis, dims: tuple[int, int, int]) -> tuple[int, int] | None:
    """(row, column) with start + row * m + column * k a mask at (b, m, k); None if it has no such form."""
    _, rows, length = dims
    digits: list[tuple[int, int, int]] = []  # (elements of the digits further in, size, coefficient)
    inner = 1
    for (size, _), coefficient in zip(layout.dims[::-1], axis.coeffs[::-1], strict=True):
        digits.append((inner, size, coefficient))
        inner *= size
    row, column = (sum(c * (at // inner % size) for inner, size, c in digits) for at in (length, 1))
    for inner, size, c in digits:
        outer = inner * size
        along_columns = inner >= length or c == column * inner
        along_rows = inner >= length * rows or outer <= length or c * length == row * inner
        if not (along_columns and along_rows and (outer <= length * rows or c == 0)):
            return None
    return row, column


def _all_known(nodes: Sequence[Node], elements: Sequence[tuple[Node, float]], region: _Region) -> bool:
    """Whether the elements have their values in a region."""
    known: dict[Node, float | bool | None] = {}
    for node in nodes:
        known[node] = _value(node, [known.get(a) for a in node.args], region)
    return all(known.get(node) == value for node, value in elements)


def _value(node: Node, args: Sequence[float | bool | None], region: _Region) -> float | bool | None:
    """The value of a node in a region, given those of its operands; None where it is not the same everywhere.

    Sums of an infinite and an unknown value are infinite, products of 0 and an unknown value are 0.
    """
    match node.op:
        case "Full":
            return node.attrs[0]
        case "V":
            number = args[0] if node.args[0].op == "Full" else None
            if not node.attrs[0].masked:
                return number
            if node.attrs[0] != region.layout:
                return None
            return number if region.inside else region.layout.fill
        case "Where":
            test, yes, no = args
            if test is not None:
                return yes if test else no
            return yes if yes == no else None
        case "Un" | "Bin":
            return _computed(node, args)
    return None


def _computed(node: Node, args: Sequence[float | bool | None]) -> float | bool | None:
    (f,) = node.attrs
    given = [x for x in args if x is not None]
    if len(given) < len(args):
        infinite = [i for i, x in enumerate(args) if x is not None and np.isinf(x)]
        if f in ("add", "sub") and infinite:
            return -given[0] if f == "sub" and infinite == [1] else given[0]
        if f == "mul" and 0 in given:
            return 0.0
        return False if f == "and" and False in given else True if f == "or" and True in given else None
    if f.startswith(CAST):
        return np.asarray(given[0]).astype(np_dtype(node.dtype)).item()
    if f not in ELEMENTWISE:
        return None
    with np.errstate(all="ignore"):
        values = [np.asarray(x, np_dtype(a.dtype)) for x, a in zip(given, node.args, strict=True)]
        return elementwise(f, *values).item()
