"""From sums to outputs: the pointwise operators after products, their writes, and reductions along an edge of one.

Sums go through LDS in strips, so that adjacent threads hold adjacent outputs in every accumulator layout. Each line of
a strip has a group of threads. Vectors and reductions run along the line, which is the minor edge; the lines follow
each other along the major edge. The major edge is that of the rows of the product, or of the columns if outputs are
written transposed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from eqsat.base.numerics import itemsize
from eqsat.gpu.code.c_writer import Region, Value
from eqsat.gpu.code.errors import NotLowerable
from eqsat.gpu.code.index import Index, Var
from eqsat.gpu.code.output_places import places
from eqsat.gpu.code.scalar import (
    ACCESS_BYTES,
    COMPUTE,
    STORAGE,
    Lanes,
    Lowering,
    Special,
    Traffic,
    at_place,
    runs_along,
    stored,
)
from eqsat.gpu.families.base import Job
from eqsat.gpu.table.tiles import Tile
from eqsat.program.core import Node

LANES = 16
"""Threads that take one line of a strip together: what four DPP rotations reduce."""

_WIDTHS = (8, 4, 2, 1)

_STRIP_PADDING = 4


@dataclass(frozen=True)
class Sums:
    """What a block has summed when it finishes.

    Attributes:
        products: MM nodes of equal dims (batch, m, k, n); their sums are in registers.
        totals: nodes of batch * m elements; those of the block's rows are in LDS, `totals[i][row of the tile]`.
        scales: what a product's sums are still to be multiplied by: nodes of batch * m elements over totals.
        guarded: products that are 0 where their scale is 0, even if the sum is infinite or NaN.
    """

    products: tuple[Node, ...]
    totals: tuple[Node, ...] = ()
    scales: Mapping[Node, Node] = field(default_factory=dict)
    guarded: frozenset[Node] = frozenset()


@dataclass(frozen=True)
class Reduction:
    """A reduction of the product along the minor edge: sum, max or min.

    Attributes:
        output: position among the kernel's outputs; `node` is the reduction.
        operator: its C++ struct, `ctype` of partial values; `storage` of the output in memory.
        line: C name of the reduced element that a line belongs to; `line_text` are the statements that set it, over
            `line` of the product.
        final: whether one block holds whole lines, so that nothing is left to combine.
    """

    output: int
    node: Node
    operator: str
    ctype: str
    storage: str
    line: str
    line_text: str
    final: bool


@dataclass(frozen=True)
class Epilogue:
    """How a block finishes.

    Attributes:
        major: 'm' or 'n'.
        major_size, minor_size: of the product along the two edges.
        strips: a block writes its sums in so many parts of [strip_major][strip_minor].
        width: neighbouring elements that a thread takes along the minor edge.
        lanes: threads of a line; `body` handles the elements `width * q + u` of line `line`.
        products: how many products' sums are written, each in a strip of its own.
        reductions: what is reduced; empty for none.
    """

    major: str
    major_size: int
    minor_size: int
    strip_major: int
    strip_minor: int
    strips: int
    width: int
    lanes: int
    products: int
    body: str
    reductions: Sequence[Reduction]

    @property
    def strip_ld(self) -> int:
        """Sums from one line of a strip to the next."""
        return self.strip_minor + _STRIP_PADDING

    @property
    def strip_size(self) -> int:
        """Sums of one strip."""
        return self.strip_major * self.strip_ld


def scaled(total: str, by: str, guarded: bool) -> str:
    """C expression of a sum times its scale; `guarded` as in `Sums`."""
    return f"{by} == 0 ? 0 : {total} * {by}" if guarded else f"{total} * {by}"


def epilogue(job: Job, sums: Sums, tile: Tile, outputs: Sequence[Node]) -> Epilogue:
    """The cheapest of both orientations and all vector widths that the outputs allow.

    `outputs` are those outputs of the job that depend on the products.

    Raises:
        NotLowerable: no orientation can express the outputs.
    """
    drafts: list[_Draft] = []
    failures = []
    for major in ("m", "n"):
        try:
            drafts += _drafts(job, sums, tile, outputs, major)
        except NotLowerable as failure:
            failures.append(failure)
    if not drafts:
        raise failures[0]
    best = min(drafts, key=lambda draft: (draft.accesses / draft.width, draft.major != "m", -draft.width))
    return best.epilogue()


def _drafts(job: Job, sums: Sums, tile: Tile, outputs: Sequence[Node], major: str) -> list[_Draft]:
    """One for each legal vector width."""
    _, m, _, n = sums.products[0].attrs
    minor_size, minor_edge = (n, tile.columns) if major == "m" else (m, tile.rows)
    narrowest = min(itemsize(job.dtype(node)) for node in outputs)
    legal = [w for w in _WIDTHS if minor_size % w == 0 and w * narrowest <= ACCESS_BYTES and w <= minor_edge]
    return [_Draft(job, sums, tile, outputs, major, w) for w in legal]


class _Draft:
    """An epilogue in one orientation with one vector width, written out.

    Attributes:
        accesses: memory accesses of a run of `width` elements.
    """

    def __init__(self, job: Job, sums: Sums, tile: Tile, outputs: Sequence[Node], major: str, width: int) -> None:
        self.job, self.sums, self.tile, self.major, self.width = job, sums, tile, major, width
        self.outputs = [(i, node) for i, node in enumerate(job.outputs) if node in outputs]
        batch, m, _, n = sums.products[0].attrs
        self.major_size, self.minor_size = (m, n) if major == "m" else (n, m)
        self.minor_edge = tile.columns if major == "m" else tile.rows
        self.b, self.line = Var("b", batch), Var("line", self.major_size)
        self.q, self.u = Var("q", self.minor_size // width), Var("u", width)
        minor = Index.along(self.q) * width + Index.of(self.u)
        line = Index.along(self.line)
        row, column = (line, minor) if major == "m" else (minor, line)
        self.row, self.at = row, Index.along(self.b) * (m * n) + row * n + column
        self.place = places(job.nodes, sums.products, self.at)
        if any(node not in self.place for node in outputs):
            raise NotLowerable("an output does not depend on the product")
        self.reductions = [self._reduction(i, node) for i, node in self.outputs if node.op == "Red"]
        self.accesses = 0.0
        self.body = self._body()

    def epilogue(self) -> Epilogue:
        """The draft, made final."""
        tile = self.tile
        if self.major == "m":
            strip, strips = (tile.grid_m * tile.run_m, tile.columns), tile.rows // (tile.grid_m * tile.run_m)
        else:
            strip, strips = (tile.grid_n * tile.run_n, tile.rows), tile.columns // (tile.grid_n * tile.run_n)
        return Epilogue(
            major=self.major,
            major_size=self.major_size,
            minor_size=self.minor_size,
            strip_major=strip[0],
            strip_minor=strip[1],
            strips=strips,
            width=self.width,
            lanes=min(LANES, strip[1] // self.width),
            products=len(self.sums.products),
            body=self.body,
            reductions=self.reductions,
        )

    def _reduction(self, i: int, node: Node) -> Reduction:
        kind, length = node.attrs
        if self.place[node].variables & {self.q, self.u} or length != self.minor_size:
            raise NotLowerable(f"{node!r} does not reduce along one edge of the product")
        ctype = COMPUTE[node.dtype]
        return Reduction(
            output=i,
            node=node,
            operator=f"eq_{kind}_of<{ctype}>",
            ctype=ctype,
            storage=STORAGE[self.job.dtype(node)],
            line=f"place{i}",
            line_text=self._line_text(i, node),
            final=self.minor_size <= self.minor_edge,
        )

    def _body(self) -> str:
        """The statements of a run: outputs written, reductions fed."""
        job, place, u = self.job, self.place, self.u
        region = Region([self.b, self.line, self.q], job.index_type)
        plain = [(i, node) for i, node in self.outputs if node.op != "Red"]
        as_runs = [(i, node) for i, node in plain if runs_along(place[node], Lanes(u))]
        for i, node in as_runs:
            region.statement(f"eq_run<{STORAGE[job.dtype(node)]}, {self.width}> run{i};")
            self.accesses += max(1, self.width * itemsize(job.dtype(node)) / ACCESS_BYTES)
        traffic = Traffic()
        with region.unrolled(u):
            special: dict[Node, Special] = {}
            lowering = Lowering(region, job.leaves, Lanes(u), special, place, traffic)
            special |= {node: self._total(i, region) for i, node in enumerate(self.sums.totals)}
            special |= {node: self._sum(i, node, lowering) for i, node in enumerate(self.sums.products)}
            for i, node in plain:
                value = stored(lowering.value(node, place[node]).text, job.dtype(node))
                if (i, node) in as_runs:
                    region.statement(f"run{i}.v[u] = {value};")
                else:
                    region.statement(f"out{i}[{region.index(place[node]).text}] = {value};")
                    self.accesses += self.width
            for r in self.reductions:
                (arg,) = r.node.args
                value = lowering.value(arg, place[arg]).text
                region.statement(f"total{r.output} = {r.operator}::apply(total{r.output}, {value});")
        for i, node in as_runs:
            region.statement(f"eq_write_run(out{i} + {region.index(place[node].without(u)).text}, run{i});")
        self.accesses += traffic.loads
        return region.text

    def _line_text(self, i: int, node: Node) -> str:
        region = Region([self.b, self.line], self.job.index_type, prefix="w")
        region.statement(f"place{i} = {region.index(self.place[node]).text};")
        return region.text

    @property
    def _row(self) -> Index:
        """The row of the product, counted through the batch."""
        return Index.along(self.b) * self.sums.products[0].attrs[1] + self.row

    def _sum(self, i: int, product: Node, lowering: Lowering) -> Special:
        """A finished sum."""
        text, scale = f"sums{i}.v[u]", self.sums.scales.get(product)

        def value() -> Value:
            if scale is None:
                return Value(text, 1)
            by = lowering.value(scale, self._row)
            whole = scaled(text, by.text, product in self.sums.guarded)
            return lowering.region.define(COMPUTE[product.dtype], whole, [Value("", 1), by])

        return at_place(self.at, value)

    def _total(self, i: int, region: Region) -> Special:
        """A total of a row."""

        def value() -> Value:
            place = region.index(self.row % self.tile.rows + i * self.tile.rows)
            return Value(f"totals[{place.text}]", place.depth)

        return at_place(self._row, value)
