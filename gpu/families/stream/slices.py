"""Streams of few rows and a long axis: each block walks along a slice of it, and a second launch joins the parts.

Parts of totals and products are those of a shorter stream. With maxima m_s of the slices and m = max m_s, what was
summed under m_s counts exp(alpha (m_s - m)) times: the correction of a walk, across blocks (Flash-Decoding).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from eqsat.base.graphs import operands_first
from eqsat.gpu.families.base import Job, Kernel
from eqsat.layout.arithmetic import compose, identity, is_bijective, strided
from eqsat.program.core import Node, make
from eqsat.program.node import is_elementwise, substitute
from eqsat.streams.stream import Accumulator, Stream


@dataclass(frozen=True)
class Sliced:
    """The first of two launches.

    Attributes:
        parts: the nodes whose parts it writes, for each slice one after the other, in float.
    """

    kernel: Kernel
    parts: tuple[Node, ...]
    slices: int
    stream: Stream


def parts_of(stream: Stream) -> tuple[Node, ...]:
    """What each slice gives: products, and totals of the rows."""
    return tuple(x.node for x in (*stream.products, *stream.totals))


def may_be_sliced(job: Job, stream: Stream) -> bool:
    """Whether parts of the axis can be walked apart, and all outputs are functions of products."""
    size = stream.batch * stream.rows * stream.width
    return stream.divisible and all(node.size == size for node in job.outputs)


def unscaled(stream: Stream) -> Stream:
    """The stream with products as they are summed: scales wait until all slices are joined."""
    plain = [replace(x, scale=None, guarded=False) if x.is_product else x for x in stream.accumulators]
    return replace(stream, accumulators=tuple(plain))


def joined(job: Job, sliced: Sliced, held: Mapping[Node, Node]) -> tuple[Node, ...]:
    """The outputs of the job over arrays of parts, `held[node]` of slices * node.size elements."""
    return _Joining(sliced, held).outputs(job)


class _Joining:
    """Everything at (b, m, n): totals are repeated along n, so that all reductions have the same rows."""

    def __init__(self, sliced: Sliced, held: Mapping[Node, Node]) -> None:
        self.stream, self.slices, self.held = sliced.stream, sliced.slices, held
        self.rows, self.width = self.stream.batch * self.stream.rows, self.stream.width
        self.spread = strided(0, ((self.rows, 1), (self.width, 0)))
        self.whole: dict[Node, Node] = {}
        """Of each total the joined one, and of what depends on totals the same, at (b, m, n)."""
        for x in self.stream.totals:
            self.whole[x.node] = self._total(x)

    def outputs(self, job: Job) -> tuple[Node, ...]:
        nodes = operands_first(job.outputs, job.inputs)
        names = {x.node: self._product(x) for x in self.stream.products}
        size = self.rows * self.width
        places = [identity(size), *(n.attrs[0] for n in nodes if n.op == "V" and is_bijective(n.attrs[0], size))]
        of_rows = {compose(self.spread, place): place for place in places}
        above = set(self.whole)
        for n in nodes:
            if any(a in above for a in n.args):
                above.add(n)
            if n.op == "V" and n.attrs[0] in of_rows and n.args[0] in above and n.args[0].size == self.rows:
                names[n] = make("V", (of_rows[n.attrs[0]],), (self._along(n.args[0]),))
        return tuple(substitute(job.outputs, names))

    def _parts(self, node: Node) -> Node:
        """Every slice's part, [rows * width][slices]."""
        a_slice, step = node.size, 0 if node.size == self.rows else 1
        columns = 1 if node.size == self.rows else self.width
        dims = ((self.rows, columns), (self.width, step), (self.slices, a_slice))
        return make("V", (strided(0, dims),), (self.held[node],))

    def _joined(self, kind: str, x: Accumulator) -> Node:
        parts = self._parts(x.node)
        for total, alpha in x.corrections:
            most = make("V", (strided(0, ((self.whole[total].size, 1), (self.slices, 0))),), (self.whole[total],))
            fall = make("Bin", ("sub",), (self._parts(total), most))
            scaled = make("Bin", ("mul",), (fall, make("Full", (alpha, fall.size, fall.dtype))))
            factor = make("Un", ("exp",), (scaled,))
            parts = make("Bin", ("mul",), (parts, factor))
        return make("Red", (kind, self.slices), (parts,))

    def _total(self, x: Accumulator) -> Node:
        if x.turn < self.stream.passes - 1:  # every slice has the whole
            return make("V", (self.spread,), (self.held[x.node],))
        return self._joined(x.node.attrs[0], x)

    def _product(self, x: Accumulator) -> Node:
        total = self._joined("sum", x)
        if x.scale is None:
            return total
        scale = self._along(x.scale)
        product = make("Bin", ("mul",), (total, scale))
        zero = make("Full", (0.0, total.size, total.dtype))
        return make("Where", (), (make("Bin", ("equal",), (scale, zero)), zero, product)) if x.guarded else product

    def _along(self, node: Node) -> Node:
        """A value of each row, at (b, m, n)."""
        if node not in self.whole:
            if node.op == "Full":
                self.whole[node] = make("Full", (node.attrs[0], self.rows * self.width, node.dtype))
            elif is_elementwise(node.op):
                self.whole[node] = make(node.op, node.attrs, [self._along(a) for a in node.args])
            else:
                self.whole[node] = make("V", (self.spread,), (node,))
        return self.whole[node]
