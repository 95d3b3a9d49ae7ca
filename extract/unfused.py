"""Growing cuts for runtimes that execute operator by operator, like NumPy and onnxruntime on a CPU.

A kernel is one operator with the views of its operands. Some views are free, because the operator handles them itself:
broadcast operands of pointwise operators, matrices by rows or by columns, any axis of a reduction. Every other view is
a copy. A product of two matrices includes its bias (onnxruntime joins them into one Gemm).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.extract.chains import Chain
from eqsat.extract.cost import Prices
from eqsat.extract.cuts import Cut, Facts, Kind, Limits, Product
from eqsat.extract.grow import Grower
from eqsat.layout.arithmetic import Layout, is_bijective, strided
from eqsat.program.node import is_elementwise


class UnfusedGrower(Grower):
    """Makes cuts of one operator each."""

    def __init__(
        self,
        snapshot: Snapshot,
        prices: Prices,
        limits: Limits,
        facts: Facts,
        chains: Mapping[int, Chain] | None = None,
    ) -> None:
        super().__init__(snapshot, prices, limits, facts, chains)
        self._products: list[list[Cut]] = [[] for _ in facts.leaf]

    def keep(self, c: int, cuts: Sequence[Cut]) -> None:
        """Keep only plain views of arrays for further growth."""
        self.points[c] = [self.facts.leaf[c], *(x for x in cuts if self._only_views(x))]
        self._products[c] = [x for x in cuts if self._is_product(x)]

    def elementwise(self, i: int, node: ENode) -> Iterator[Cut | None]:
        """One pointwise operator, or a product and its bias."""
        yield from super().elementwise(i, node)
        if node.op == "Bin" and node.attrs[0] == "add":
            for k, (a, other) in enumerate([node.args, node.args[::-1]]):
                if self.snapshot.const[other] and self.facts.free[other]:
                    bias = self.facts.leaf[other]
                    for x in self._products[a]:
                        subs = (x, bias) if k == 0 else (bias, x)
                        yield self.make(i, subs, Kind.GEMM, x.key, bias.reads, float(self.snapshot.size[node.cls]))

    def walks(self, i: int, node: ENode) -> Iterator[Cut | None]:
        """None: every operand is an array in memory."""
        yield from ()

    def price(self, cut: Cut) -> bool:
        """As for a fused kernel, plus a copy for each operand whose view the operator does not handle itself."""
        if not super().price(cut):
            return False
        copies = 0
        node = self.snapshot.nodes[cut.node]
        for k, operand in enumerate(cut.subs):
            views = operand.node >= 0 and operand.kind == Kind.POINT and not self.facts.free[operand.cls]
            if views and node.op != "V" and not self._takes(node, k, operand.reads[0][1], operand.cls):
                size = self.snapshot.size[operand.cls]
                copies += self.prices.pointwise(size, 2.0 * self.facts.bytes[operand.cls], 0.0)
        cut.run = cut.run._replace(price=cut.run.price + copies)
        return True

    def _takes(self, node: ENode, k: int, layout: Layout | None, c: int) -> bool:
        """Whether the operator handles operand `k`, a view of an array, without a copy."""
        if layout is None:
            return False
        if node.op == "Red":
            return is_bijective(layout, self.snapshot.size[c])
        if node.op == "MM":
            b, m, width, n = node.attrs
            rows, columns = (m, width) if k == 0 else (width, n)
            return layout == strided(0, ((b, rows * columns), (rows, 1), (columns, rows)))
        moving = [(n, step) for n, step in layout.dims if step]
        return is_elementwise(node.op) and strided(0, moving).contiguous

    def _is_product(self, x: Cut) -> bool:
        return isinstance(x.key, Product) and x.key.core.products[0].node == x.node and x.key.core.dims[0] == 1

    def _only_views(self, x: Cut) -> bool:
        while x.node >= 0:
            node = self.snapshot.nodes[x.node]
            if node.op != "V" or node.attrs[0].masked:
                return False
            (x,) = x.subs
        return True
