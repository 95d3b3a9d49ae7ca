"""Values that are joined of parts, as of the branches that one batched product computes.

Where one program joins what the other computes apart, no value of the other is the joined one. But each of its parts
may be, and the joined value is then these, joined. So it is seen along which axis a value is joined, and in which runs:
from what `Cat` joins, up through the operators that keep the parts apart; and from what is read of a value alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod

from eqsat.base.numerics import Array
from eqsat.layout.arithmetic import Layout, of_slice, of_transpose
from eqsat.program.core import Node, make
from eqsat.program.node import is_elementwise, substitute
from eqsat.proof.steered import as_view
from eqsat.proof.values.ahead import Ahead
from eqsat.verify.moves import moves

_MOST_PARTS = 64
"""Parts of a value that are looked at."""


@dataclass(frozen=True, slots=True)
class Join:
    """An array [outer, sum(sizes), inner] that is joined along its middle axis of parts of these sizes."""

    outer: int
    sizes: tuple[int, ...]
    inner: int

    def parts(self, value: Node) -> list[Node]:
        """The views of the parts, each [outer, size, inner]."""
        shape = self.outer, sum(self.sizes), self.inner
        return [
            make("V", (of_slice(shape, (0, start, 0), (self.outer, end, self.inner), (1, 1, 1)),), (value,))
            for start, end in pairwise(accumulate(self.sizes, initial=0))
        ]

    def arrays(self, value: Array) -> list[Array]:
        """The elements of the parts."""
        rows = value.reshape(self.outer, -1, self.inner)
        return [rows[:, start:end].reshape(-1) for start, end in pairwise(accumulate(self.sizes, initial=0))]

    def joined(self, parts: Sequence[Node]) -> Node:
        """The value of parts that are [outer, size, inner] each."""
        turned = [_turned(part, self.outer, size, self.inner) for part, size in zip(parts, self.sizes, strict=True)]
        return _turned(make("Cat", (), turned), sum(self.sizes), self.outer, self.inner)


def _turned(value: Node, rows: int, columns: int, inner: int) -> Node:
    """An array [rows, columns, inner] as [columns, rows, inner]."""
    return make("V", (of_transpose((rows, columns, inner), (1, 0, 2)),), (value,))


def joins(order: Sequence[Node], constants: Ahead) -> dict[Node, Join]:
    """How values are joined, except what depends on constants alone.

    Args:
        order: the values of a program, operands first.
    """
    found: dict[Node, Join] = {}
    read = _read_alone(order)
    for node in order:
        if constants.is_fixed(node):
            continue
        seen = _of_operands(_as_view(node, found, constants), found) or _of_runs(node.size, read.get(node, ()))
        if seen is not None and 1 < len(seen.sizes) <= _MOST_PARTS:
            found[node] = seen
    return found


def _of_operands(node: Node, found: Mapping[Node, Join]) -> Join | None:
    """How a value is joined, as its operands are."""
    if node.op == "Cat":
        return _of_cat(node, found)
    kept = (_kept(node, i, found[arg]) for i, arg in enumerate(node.args) if arg in found)
    return next((join for join in kept if join is not None), None)


def _as_view(node: Node, found: Mapping[Node, Join], constants: Ahead) -> Node:
    """What constants steer in a joined value as a view of it, if it is one."""
    table = node
    while table.op in ("Gather", "Where") and moves(table):
        table = next((a for a in table.args if not constants.is_fixed(a)), node)
    if table not in found or table is node:
        return node
    [steered] = substitute([node], {table: make("In", ("#", table.size, table.dtype))})
    view = as_view(steered, {}, constants)
    return make("V", view.attrs, (table,)) if view is not None and view.op == "V" else node


def _of_cat(node: Node, found: Mapping[Node, Join]) -> Join:
    """What is joined of joined arrays is joined of all their parts, where these follow each other."""
    sizes: list[int] = []
    for arg in node.args:
        inner = found.get(arg)
        sizes += [size * inner.inner for size in inner.sizes] if inner and inner.outer == 1 else [arg.size]
    return Join(1, tuple(sizes), 1)


def _kept(node: Node, place: int, join: Join) -> Join | None:
    """How a value is joined if its operand at this place is; None where it computes across the parts."""
    if is_elementwise(node.op):
        return join
    if node.op == "V":
        return _viewed(node.attrs[0], join)
    if node.op == "Red":
        columns = node.attrs[1]
        return _scaled(join, columns, 1)
    if node.op == "MM":
        batch, m, k, n = node.attrs
        if place == 0:
            return _scaled(join, k, n)
        if (join.outer, sum(join.sizes) * join.inner) == (batch * k, n):
            return Join(batch * m, tuple(size * join.inner for size in join.sizes), 1)
        return _scaled(join, k * n, m * n)
    return None


def _scaled(join: Join, block: int, becomes: int) -> Join | None:
    """How a value is joined where blocks of so many elements become blocks of others; None where parts share one."""
    if join.inner % block == 0:
        return Join(join.outer, join.sizes, join.inner // block * becomes)
    if join.outer == 1 and all(size * join.inner % block == 0 for size in join.sizes):
        return Join(1, tuple(size * join.inner // block for size in join.sizes), becomes)
    return None


def _viewed(layout: Layout, join: Join) -> Join | None:
    """How a view is joined: along the digit that walks from one part of the joined axis to others, be it all of them.

    Its steps either begin where parts begin, or are as long as parts and more.
    """
    ends = [size * join.inner for size in accumulate(join.sizes)]
    counts = [count for count, _ in layout.dims]
    for i, (count, stride) in enumerate(layout.dims):
        step = stride or next((a.stride for a in layout.axes if a.coeffs[i] == 1 and a.start == 0), 0)
        first = layout.offset % ends[-1]
        last = first + (count - 1) * step
        if step <= 0 or last >= ends[-1]:
            continue
        inside = [end - first for end in ends if first < end <= last]
        if inside and (step >= max(join.sizes) * join.inner or all(end % step == 0 for end in inside)):
            steps = [0, *dict.fromkeys(-(-end // step) for end in inside), count]
            return Join(prod(counts[:i]), tuple(b - a for a, b in pairwise(steps)), prod(counts[i + 1 :]))
    return None


Run = tuple[int, int, int]
"""Columns from one to another, the latter left out, of all rows of so many columns."""


def _read_alone(order: Sequence[Node]) -> dict[Node, list[Run]]:
    """The runs of values that views read and nothing else of the values."""
    read: dict[Node, list[Run]] = {}
    for node in order:
        if node.op == "V" and node.size:
            read.setdefault(node.args[0], []).extend(_runs(node.attrs[0], node.args[0].size))
    return read


def _runs(layout: Layout, size: int) -> Iterator[Run]:
    if layout.all_filled:
        return
    least, most = layout.reach
    if not layout.masked and len(layout.dims) == 2:
        (rows, width), (columns, step) = layout.dims
        if step == 1 and rows * width == size and layout.offset + columns <= width:
            yield layout.offset, layout.offset + columns, width
            return
    if least >= 0 and most < size and most - least + 1 < size:
        yield least, most + 1, size


def _of_runs(size: int, runs: Sequence[Run]) -> Join | None:
    """How a value is joined whose runs are read alone: between the places where they begin or end."""
    for width in dict.fromkeys(width for _, _, width in runs):
        ends = sorted({0, width} | {end for start, stop, of in runs if of == width for end in (start, stop)})
        if len(ends) > 2:
            return Join(size // width, tuple(stop - start for start, stop in pairwise(ends)), 1)
    return None
