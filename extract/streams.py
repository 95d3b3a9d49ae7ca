"""Growing streams: a product takes its left operand, which another kernel would write to memory, on the way.

The left operand is a cut of rows, or a product with its epilogue; what rows read may be such products again. Whether
one walk computes all of it is decided on core nodes (`eqsat.streams.stream`), which also gives the passes and
corrections that are priced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from eqsat.base.graphs import operands_first
from eqsat.egraph.snapshot import Snapshot
from eqsat.extract.bodies import Body
from eqsat.extract.cost import Prices, Walk, work_of
from eqsat.extract.cuts import Core, Cut, Factors, Facts, Kind, Product, Read, Rows, bits, joined
from eqsat.gpu.table.streams import STREAM_DTYPES, StreamForm
from eqsat.layout.arithmetic import identity
from eqsat.program.core import Node, make
from eqsat.program.node import is_elementwise
from eqsat.streams.stream import NotAStream, Stream, analyse


class Made(NamedTuple):
    """A left operand that is made on the way, and the price in picoseconds of the kernels that would write it."""

    cut: Cut
    apart: int


class Streams:
    """The streams of an e-graph."""

    def __init__(self, snapshot: Snapshot, prices: Prices, facts: Facts) -> None:
        self.snapshot = snapshot
        self.prices = prices
        self.facts = facts
        self._cores: dict[tuple[tuple[int, ...], ...], Core | None] = {}

    def lefts(
        self, a: int, dims: tuple[int, int, int, int], gemms: Sequence[Sequence[Cut]], rows: Sequence[Sequence[Cut]]
    ) -> Iterator[Made]:
        """How class `a`, the left operand of a product with these dims, may be made on the way, given the cuts of every
        class."""
        b, m, k, _ = dims
        for x in gemms[a]:
            if _is_whole(x, dims):
                yield Made(x, x.price)
        for x in rows[a]:
            if x.key == Rows(b * m, k, "full"):
                yield Made(x, x.price)
                scores = {c: _inner(gemms[c], dims) for c in bits(x.leaves & self.facts.computed)}
                found = {c: y for c, y in scores.items() if y is not None}
                if found:
                    yield Made(_replaced(x, found), x.price + sum(y.price for y in found.values()))

    def together(self, a: Core, b: Core) -> Core | None:
        """The products of both in one stream, if they have the same left operand, computed in the same way."""
        x, y = a.products[0].left, b.products[0].left
        if a.dims != b.dims or (x.cls, x.leaves, x.inner) != (y.cls, y.leaves, y.inner):
            return None
        products = {p.key: p for p in (*a.products, *b.products)}
        return self.core(list(products.values())) if len({p.node for p in products.values()}) == len(products) else None

    def core(self, products: Sequence[Factors]) -> Core | None:
        """The products in one stream; None if no single walk computes them."""
        order = sorted(products, key=lambda x: x.key)
        key = tuple(x.key for x in order)
        if key not in self._cores:
            self._cores[key] = self._made(tuple(order))
        return self._cores[key]

    def _made(self, products: tuple[Factors, ...]) -> Core | None:
        top = self.snapshot.nodes[products[0].node]
        dtype = self.snapshot.dtype[top.cls]
        if dtype not in STREAM_DTYPES:
            return None
        body = Body(self.snapshot, self._read)
        roots = [make("MM", self.snapshot.nodes[x.node].attrs, body.nodes((x.left, x.right))) for x in products]
        inputs = [n for n in operands_first(roots) if n.op == "In"]
        try:
            stream = analyse(roots, inputs, corrected=not self.prices.exact)
        except NotAStream:
            return None
        walk = self._walk(stream, dtype)
        way = self.prices.streamed(walk)
        if way is None:
            return None
        reads = self._reads(operands_first(roots), roots)
        return Core(products, top.attrs, self.facts.moved(reads, any_order=True), (way,))

    def _read(self, c: int) -> Node:
        numbers = (n for n in self.snapshot.of_class(c) if n.op == "Full")
        literal = next(numbers, None)
        if literal is not None:
            return make("Full", literal.attrs)
        return make("In", (c, self.snapshot.size[c], self.snapshot.dtype[c]))

    def _walk(self, stream: Stream, dtype: str) -> Walk:
        totals = [x.node for x in stream.totals]
        depths: list[int] = []
        left = work = 0.0
        for turn in range(stream.passes):
            roots = [x.element for x in stream.accumulators if x.turn == turn]
            nodes = operands_first(roots, totals)
            depths += [n.attrs[2] for n in nodes if n.op == "MM"]
            left += self._bytes(operands_first(roots, [*totals, *stream.inner]), roots)
            work += _work(nodes) + sum(x.element.size for x in stream.totals if x.turn == turn)
        rights = [x.node.args[1] for x in stream.products]
        below = operands_first(rights)
        form = StreamForm(
            dims=(stream.batch, stream.rows, stream.length, stream.width),
            depths=tuple(x.attrs[2] for x in stream.inner),
            products=len(stream.products),
            elements=len({x.element for x in stream.products}),
            totals=len(stream.totals),
        )
        return Walk(
            form=form,
            dtype=dtype,
            depths=tuple(depths),
            left=left,
            right=self._bytes(below, rights),
            left_work=work,
            right_work=_work(below),
            rescaled=sum(bool(x.corrections) for x in stream.products),
        )

    def _bytes(self, nodes: Sequence[Node], roots: Sequence[Node]) -> float:
        """Bytes of what these nodes read, each array through each view once."""
        return sum(self.facts.moved((read,), any_order=True) for read in self._reads(nodes, roots))

    def _reads(self, nodes: Sequence[Node], roots: Sequence[Node]) -> tuple[Read, ...]:
        """How these nodes read arrays in memory; those among the roots are read whole."""
        whole = [*roots, *(a for n in nodes if n.op not in ("V", "Gather") for a in n.args)]
        reads = [_read_of(a) for a in whole]
        for n in nodes:
            if n.op == "Gather":
                outer, _, inner = n.attrs
                table, index = n.args
                reads += [self.facts.gathered(_read_of(table), outer * index.size, inner), _read_of(index)]
        return joined(*reads)


def _read_of(node: Node) -> tuple[Read, ...]:
    """How an array in memory is read, itself or through a view; empty for what is computed."""
    if node.op == "In":
        return ((node.attrs[0], identity(node.size), 0.0),)
    if node.op == "V" and node.args[0].op == "In":
        return ((node.args[0].attrs[0], node.attrs[0], 0.0),)
    return ()


def _work(nodes: Sequence[Node]) -> float:
    return sum(work_of(n.attrs[0] if n.attrs else "where", n.size) for n in nodes if is_elementwise(n.op))


def _is_whole(x: Cut, dims: tuple[int, int, int, int]) -> bool:
    """Whether a cut is an inner product of a stream, at its own elements."""
    if x.kind != Kind.GEMM or not isinstance(x.key, Product):
        return False
    b, m, k, _ = dims
    batch, rows, _, columns = x.key.core.dims
    return (batch, rows, columns) == (b, m, k) and x.key.layout == identity(b * m * k)


def _inner(gemms: Sequence[Cut], dims: tuple[int, int, int, int]) -> Cut | None:
    return next((x for x in gemms if _is_whole(x, dims)), None)


def _replaced(top: Cut, leaves: Mapping[int, Cut]) -> Cut:
    """A cut that computes some of its leaves."""
    made: dict[int, Cut] = {}

    def moved(x: Cut) -> Cut:
        found = made.get(id(x))
        if found is None:
            found = leaves.get(x.cls) if x.node < 0 else None
            if found is None:
                found = _over(x, tuple(moved(y) for y in x.subs)) if x.subs else x
            made[id(x)] = found
        return found

    return moved(top)


def _over(x: Cut, subs: tuple[Cut, ...]) -> Cut:
    leaves, inner = 0, 1 << x.cls
    for y in subs:
        leaves |= y.leaves
        inner |= y.inner
    return Cut(x.cls, x.node, subs, x.kind, x.key, leaves, inner, x.reads, x.work, x.on_chip, x.at)
