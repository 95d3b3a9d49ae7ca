"""Growing cuts for runtimes that execute operator by operator, like NumPy and onnxruntime on a CPU.

A kernel is one operator with the views of its operands. Some views are free, because the operator handles them itself:
broadcast operands of pointwise operators, matrices by rows or by columns, any axis of a reduction, the windows of a
convolution and the order of its result. Every other view is a copy. A product of two matrices includes its bias
(onnxruntime joins them into one Gemm), a convolution its bias, a sum with another array, and a clamp after these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache

from eqsat.egraph.snapshot import ENode
from eqsat.extract.kernels.cost import work_of
from eqsat.extract.kernels.cuts import Cut, Factors, Kind, Product, bits
from eqsat.extract.kernels.grow import Grower
from eqsat.layout.arithmetic import Layout, compose, identity, inverse, is_bijective, of_transpose, strided
from eqsat.layout.map import CACHE_SIZE
from eqsat.lift.view_chain import chain
from eqsat.lift.windows import Windows, guessed_shapes, windows_of
from eqsat.program.node import is_elementwise

_CLAMPS = ("max", "min")

_RENAMES = frozenset({"reshape"})
"""Steps of a view that write nothing."""

INDEX_BYTES = 8
TAKEN_WORK = 500
"""Bytes and operations of each element that is looked up by an index of its own: 7 ns on one core (onnxruntime's Gather
of 205 000 single elements takes 1.5 ms)."""


class UnfusedGrower(Grower):
    """Makes cuts of one operator each."""

    @cached_property
    def _products(self) -> list[list[Cut]]:
        """The bare products of each class."""
        return [[] for _ in self.facts.leaf]

    @cached_property
    def _convolutions(self) -> list[list[Cut]]:
        """Convolutions in the order of their results, with what is joined to them."""
        return [[] for _ in self.facts.leaf]

    def keep(self, c: int, cuts: Sequence[Cut]) -> None:
        """Keep plain views of arrays, products and convolutions for further growth."""
        self.points[c] = [self.facts.leaf[c], *(x for x in cuts if self._only_views(x))]
        self._products[c] = [x for x in cuts if isinstance(x.key, Product) and x.key.core.products[0].node == x.node]
        self._convolutions[c] = [x for x in cuts if x.kind == Kind.GEMM and self._is_convolution(x)]

    def elementwise(self, i: int, node: ENode) -> Iterator[Cut | None]:
        """One pointwise operator, a product and its bias, or a convolution and what runtimes join to it."""
        yield from super().elementwise(i, node)
        if node.op == "Bin" and node.attrs[0] == "add":
            for k, (a, other) in enumerate([node.args, node.args[::-1]]):
                if self.snapshot.const[other] and self.facts.free[other]:
                    bias = self.facts.leaf[other]
                    for x in self._products[a]:
                        if isinstance(x.key, Product) and x.key.core.dims[0] == 1:
                            subs = (x, bias) if k == 0 else (bias, x)
                            work = float(work_of("add", self.snapshot.size[node.cls]))
                            yield self.make(i, subs, Kind.GEMM, x.key, bias.reads, work)

    def options(self, node: ENode, a: int) -> list[Cut]:
        """Arrays, and convolutions under what onnxruntime joins to them: a bias, then a sum, then clamps."""
        stage = self._stage(node)
        joined = [x for x in self._convolutions[a] if stage > self._stage(self.snapshot.nodes[x.node])] if stage else []
        return [*self.points[a], *joined]

    def view(self, i: int, node: ENode) -> Iterator[Cut | None]:
        """Any view of an array, and the result of a convolution from its product."""
        yield from super().view(i, node)
        (layout,), (a,) = node.attrs, node.args
        for x in self._products[a]:
            order = self._convolved(x)
            if order is not None and layout == inverse(order, order.size):
                yield self.make(i, (x,), Kind.GEMM, x.key, (), 0.0)

    def walks(self, i: int, node: ENode) -> Iterator[Cut | None]:
        """None: every operand is an array in memory."""
        yield from ()

    def in_place(self, i: int, node: ENode) -> Iterator[Cut | None]:
        """None: each sum is an operator."""
        yield from ()

    def row_sums(self, i: int, node: ENode) -> Iterator[Cut | None]:
        """None: each product is an operator."""
        yield from ()

    def with_totals(self, i: int, x: Cut) -> Iterator[Cut | None]:
        """None: nothing walks."""
        yield from ()

    def price(self, cut: Cut) -> bool:
        """As for a fused kernel, plus the copies for each operand whose view the operator does not handle itself; the
        copies alone for a view."""
        if not super().price(cut):
            return False
        views = self.snapshot.nodes[cut.node].op == "V" and cut.kind == Kind.POINT
        price = self._copied(cut) if views else cut.run.price + self._copies(cut)
        cut.run = cut.run._replace(price=max(price, self.prices.launch))
        return True

    def operand_bytes(self, factors: Factors) -> float:
        """The arrays as they are: runtimes bring them into an order of their own, constants ahead of time."""
        return sum(self.facts.bytes[leaf] for leaf in bits(factors.left.leaves | factors.right.leaves))

    def _copies(self, cut: Cut, ordered: bool = False) -> int:
        """The copies of operands; `ordered` is a product whose result is read in the order of a convolution's."""
        node = self.snapshot.nodes[cut.node]
        copies = 0
        for k, operand in enumerate(cut.subs):
            if operand.kind == Kind.GEMM:
                copies += self._copies(operand, ordered=node.op == "V")
                continue
            views = operand.node >= 0 and not self.facts.free[operand.cls]
            if views and node.op != "V" and not self._takes(node, k, operand, ordered):
                copies += self._copied(operand)
        return copies

    def _copied(self, view: Cut) -> int:
        """The price of a view of an array as operators, each of which writes its result."""
        size, written = self.snapshot.size[view.cls], float(self.facts.bytes[view.cls])
        if not view.reads:  # of a number, too large to be computed ahead of time
            return self.prices.pointwise(size, written, 0.0)
        leaf, layout, moved, _ = view.reads[0]
        if layout is None:
            return self.prices.pointwise(size, moved + written, 0.0)
        steps = [step.op for step in chain(layout, (self.snapshot.size[leaf],), (size,))]
        copies = sum(step not in _RENAMES for step in steps) * self.prices.pointwise(size, 2.0 * written, 0.0)
        taken = steps.count("take") * self.prices.pointwise(size, size * INDEX_BYTES, size * TAKEN_WORK)
        return copies + taken

    def _takes(self, node: ENode, k: int, operand: Cut, ordered: bool) -> bool:
        """Whether the operator handles operand `k`, a view of an array, without a copy."""
        layout = operand.reads[0][1] if operand.reads else None
        if layout is None:
            return False
        if node.op == "Red":
            rows, columns = self.snapshot.size[node.cls], node.attrs[1]
            n_in = self.snapshot.size[operand.reads[0][0]]
            return is_bijective(layout, n_in) or _windows(layout, n_in, layout, (1, rows, columns)) is not None
        if node.op == "MM":
            b, m, width, n = node.attrs
            rows, columns = (m, width) if k == 0 else (width, n)
            matrix = strided(0, ((b, rows * columns), (rows, 1), (columns, rows)))
            order = None if layout == matrix else self._order(node, k, operand)
            return layout == matrix or (order is not None and (ordered or order.is_identity(order.size)))
        moving = [(n, step) for n, step in layout.dims if step]
        return is_elementwise(node.op) and not layout.masked and strided(0, moving).contiguous

    def _stage(self, node: ENode) -> int:
        """When an operator may follow a convolution: a bias first, a sum, then a clamp from each side; 0: never."""
        constants = any(self.snapshot.const[a] for a in node.args)
        if node.attrs == ("add",):
            return 1 if constants else 2
        if node.attrs == ("relu",):
            return 3
        return _CLAMPS.index(node.attrs[0]) + 3 if node.op == "Bin" and node.attrs[0] in _CLAMPS and constants else 0

    def _is_convolution(self, x: Cut) -> bool:
        """Whether a product, and what is joined to it, has the order of a convolution's result."""
        while (node := self.snapshot.nodes[x.node]).op not in ("V", "MM"):
            product = next((y for y in x.subs if y.kind == Kind.GEMM), None)
            if product is None:
                return False
            x = product
        if node.op == "V":
            return True
        order = self._convolved(x)
        return order is not None and order.is_identity(order.size)

    def _convolved(self, x: Cut) -> Layout | None:
        """A bare product as a view of the result of a convolution; None if it is none."""
        node = self.snapshot.nodes[x.node]
        orders = (self._order(node, k, operand) for k, operand in enumerate(x.subs))
        return next((order for order in orders if order is not None), None)

    def _order(self, node: ENode, k: int, operand: Cut) -> Layout | None:
        """The product as a view of a convolution's result if operand `k` reads windows of an array."""
        layout = operand.reads[0][1] if operand.node >= 0 and len(operand.reads) == 1 else None
        if layout is None or not self.snapshot.const[node.args[1 - k]]:
            return None
        return _convolution(layout, self.snapshot.size[operand.reads[0][0]], k, node.attrs)

    def _only_views(self, x: Cut) -> bool:
        while x.node >= 0:
            node = self.snapshot.nodes[x.node]
            if node.op != "V":
                return False
            (x,) = x.subs
        return True


@lru_cache(maxsize=CACHE_SIZE)
def _convolution(layout: Layout, n_in: int, side: int, dims: tuple[int, int, int, int]) -> Layout | None:
    """The product [b, m, k] @ [b, k, n] of these `dims` as a view of a convolution's result, where its operand `side`
    reads an array of `n_in` elements through `layout`; None if these are no windows."""
    b, m, k, n = dims
    rows, channels = (m, n) if side == 0 else (n, m)
    rows_first = identity(b * m * k) if side == 0 else of_transpose((b, k, n), (0, 2, 1))
    total = compose(layout, rows_first)
    windows = None if total is None else _windows(layout, n_in, total, (b, rows, k))
    return None if windows is None or (layout.masked and layout.fill != 0) else windows.order(channels, side)


def _windows(layout: Layout, n_in: int, total: Layout, parts: tuple[int, int, int]) -> Windows | None:
    """The windows that `total`, the layout with its rows first, reads as [groups, rows, taps] of sizes `parts`; None
    for parts that lie side by side, as in any matrix."""
    for shape in guessed_shapes(layout, n_in):
        windows = windows_of(total, shape, parts)
        if windows is not None and not windows.over_channels and (windows.overlap or windows.pointwise):
            return windows
    return None
