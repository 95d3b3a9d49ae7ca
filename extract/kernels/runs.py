"""What kernels cost: the price of one that holds given cuts."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from eqsat.egraph.snapshot import Snapshot
from eqsat.extract.kernels.cost import SECTOR, Gemm, Prices, Run, write_order
from eqsat.extract.kernels.cuts import (
    Core,
    Cut,
    Factors,
    Facts,
    Kind,
    Product,
    Rows,
    is_matrix,
    joined,
    parts,
    reduced_stride,
    shared_work,
    sums_in_two_ways,
)
from eqsat.extract.kernels.streams import Streams
from eqsat.gpu.table.limits import KEPT_REGISTERS, MOST_THREADS
from eqsat.program.node import STEPS
from eqsat.streams.turned import swapped

PROLOGUE_STEP = 2000
"""Picoseconds charged for each operator of a prologue, so that an equally good epilogue is preferred."""


class Runs:
    """The cost of the kernels of an e-graph."""

    def __init__(self, snapshot: Snapshot, prices: Prices, facts: Facts, streams: Streams) -> None:
        self.snapshot, self.prices, self.facts, self.streams = snapshot, prices, facts, streams

    def of(self, cuts: Sequence[Cut]) -> Run | None:
        """One kernel that writes the classes of all these cuts, which share any product or rows. None if no kernel of
        this kind can hold them."""
        facts = self.facts
        top = cuts[0]
        reads, work, written = top.reads, top.work, facts.bytes[top.cls]
        if len(cuts) > 1:
            if sums_in_two_ways(cuts):
                return None
            top = max(cuts, key=lambda x: (x.kind, x.work))
            reads, work = joined(*(x.reads for x in cuts)), shared_work(cuts)
            written = sum(facts.bytes[x.cls] for x in cuts)
        dtype = self.snapshot.dtype[top.cls]
        moved = facts.moved(reads) + written
        if isinstance(top.key, Rows):
            return self._rows(top, cuts, moved, work, dtype)
        if isinstance(top.key, Product):
            beside = [x for x in cuts if x.kind != top.kind] if top.kind == Kind.STREAM else []
            if not beside:
                return self.product(top.key.core, cuts, moved, work, dtype)
            core = self.streams.core(top.key.core.products, beside, top.key.core.totals)
            if core is None:
                return None
            _, m, k, _ = core.dims
            moved += sum(facts.bytes[x.cls] for x in beside) * (write_order(swapped(1, m, k), k) - 1) * core.turned
            return self.product(core, [x for x in cuts if x not in beside], moved, work, dtype)
        return Run(self.prices.pointwise(self.snapshot.size[top.cls], moved, work, dtype))

    def product(self, core: Core, cuts: Sequence[Cut], moved: float, work: float, dtype: str) -> Run:
        """The product alone, or beside what `cuts` compute behind it, in whichever way is cheapest."""
        b, m, _, n = core.dims
        ways, extra, launches = core.ways, 0, 1
        for x in cuts:
            assert isinstance(x.key, Product)
            if x.kind != Kind.GEMM_RED:
                moved += self.facts.bytes[x.cls] * (write_order(x.key.layout, n) - 1)
                continue
            assert core.reduced is not None
            ways = (core.reduced,)
            lines = ceil(n / core.reduced.tile_n) if reduced_stride(x) == 1 else ceil(m / core.reduced.tile_m)
            if lines > 1:
                price, more, _ = self.prices.combine(self.snapshot.dtype[x.cls])
                extra += price
                launches += more
        best: Run | None = None
        for way in ways:
            time = way.time + self.prices.epilogue(work, b * m * n, way.groups, dtype)
            price = self.prices.kernel(moved, time, way.groups, core.bytes) + round(way.extra) + extra
            run = Run(price, launches + way.launches - 1, way.slices)
            if best is None or run < best:
                best = run
        assert best is not None
        return best

    def with_prologues(self, gemm: Gemm, factors: Factors) -> Gemm:
        """The time including the operands' computation, which each tile repeats."""
        node = self.snapshot.nodes[factors.node]
        _, m, _, n = node.attrs
        left, right = factors.left, factors.right
        work = left.work * ceil(n / gemm.tile_n) + right.work * ceil(m / gemm.tile_m)
        steps = left.inner.bit_count() + right.inner.bit_count()
        if not work and not steps:
            return gemm
        time = self.prices.vector(work, gemm.groups, self.snapshot.dtype[node.cls]) + PROLOGUE_STEP * steps
        return gemm._replace(time=gemm.time + time)

    def library(self, cut: Cut) -> int | None:
        """The price of a bare product of plain matrices by the vendor's library; None for any other cut, and where a
        runtime executes products: their prices are its own."""
        if cut.kind != Kind.GEMM or self.prices.by_runtime:
            return None
        node = self.snapshot.nodes[cut.node]
        if node.op != "MM":
            return None
        b, m, k, n = node.attrs
        shapes = (b, m, k), (b, k, n)
        if not all(is_matrix(x, shape) for x, shape in zip(cut.subs, shapes, strict=True)):
            return None
        assert isinstance(cut.key, Product)
        moved = cut.key.core.bytes + self.facts.bytes[cut.cls]
        return self.prices.library(b, m, k, n, self.snapshot.dtype[cut.cls], moved)

    def _rows(self, top: Cut, cuts: Sequence[Cut], moved: float, work: float, dtype: str) -> Run | None:
        assert isinstance(top.key, Rows)
        rows, columns, _, _ = top.key
        on_chip = any(x.on_chip for x in cuts)
        if on_chip and not self.prices.row_fits(columns, self.facts.itemsize[top.cls]):
            return None
        moved += self._read_again(top, cuts) if on_chip else 0.0
        whole = on_chip or not self._reduced_in_slices(cuts)
        beside = any(x.kind == Kind.POINT for x in cuts)
        return self.prices.rows(rows, columns, moved, work, whole, dtype, divided=beside)

    def _read_again(self, top: Cut, cuts: Sequence[Cut]) -> float:
        """Bytes that a kernel reads again in later passes over long columns. Rows that lie side by side are read by
        sectors, and a workgroup holds so many of them at once."""
        assert isinstance(top.key, Rows)
        held = MOST_THREADS * KEPT_REGISTERS * self.facts.itemsize[top.cls] // SECTOR
        if top.key.layout is None or top.key.columns <= held:
            return 0.0
        beside = [read for read in top.reads if read[1] is not None and read[1].dims[-1:] and read[1].dims[-1][1] == 1]
        return self.facts.moved(tuple(beside)) * sum(self.snapshot.nodes[x.node].op == "Red" for x in parts(cuts))

    def _reduced_in_slices(self, cuts: Sequence[Cut]) -> bool:
        """Whether all reductions can be computed slice by slice."""
        tops = (self.snapshot.nodes[x.node] for x in parts(cuts) if x.kind == Kind.ROW and x.node >= 0)
        return all(node.attrs[0] in STEPS for node in tops if node.op == "Red")
