"""One kernel that streams: for a block of rows it walks along an axis k and keeps accumulators.

    totals     reductions, over k, of elements at (b, m, k)
    products   sums over k of P[b, m, k] V[b, k, n]

Elements are pointwise functions of arrays that are read, of inner products S[b, m, k], which are made on the way, of
statistics, and of earlier totals of the row. A statistic is a reduction along an axis of its own, with one value for
each row (b, m) or each element (b, k) of the walk's axis: the norms of queries and keys. What is done with finished
accumulators, at (b, m, n), is left to the kernel's epilogue.

A walk along k is a pass. What needs an earlier total waits for the next pass, unless a correction lets it run along
(`eqsat.streams.corrections`). So softmax(q k^T) v is one pass with corrections, and three without: the maximum, the
sum, the product.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from eqsat.base.graphs import operands_first
from eqsat.errors import EqsatError
from eqsat.layout.arithmetic import Layout, compose, identity, is_bijective, strided
from eqsat.program.core import Node
from eqsat.streams.corrections import Rows, correction, factored, guarded
from eqsat.streams.masks import IDENTITIES, Band, bands

HEAVY = ("MM", "Red")
"""The operators that a kernel is built around."""


class NotAStream(EqsatError):
    """An expression is no stream; the message is one line that says why."""


@dataclass(frozen=True, slots=True)
class Accumulator:
    """A total or a product.

    Attributes:
        node: the Red or MM node.
        element: what is summed (or reduced) at (b, m, k), of batch * rows * length elements: the argument of the
            reduction or the left operand of the product, without `scale`.
        turn: the pass in which it is summed, from 0.
        corrections: (total, alpha): when this maximum or minimum goes from old to new in the same pass, what was
            summed is multiplied by exp(alpha * (old - new)).
        scale: what the finished sum is multiplied by, of batch * rows elements, over totals; None for nothing.
        guarded: whether the result is 0 where the scale is 0, even if the sum is infinite or NaN.
    """

    node: Node
    element: Node
    turn: int
    corrections: tuple[tuple[Node, float], ...] = ()
    scale: Node | None = None
    guarded: bool = False

    @property
    def is_product(self) -> bool:
        return self.node.op == "MM"


@dataclass(frozen=True, slots=True)
class Statistic:
    """A reduction of arrays in memory, along an axis of its own.

    Attributes:
        node: the Red node.
        at: which of its values each row (b, m), or each element (b, k) of the walk's axis takes.
        of_rows: whether it has one value a row. Those are made before the walk, all others tile by tile.
    """

    node: Node
    at: Layout
    of_rows: bool


@dataclass(frozen=True, slots=True)
class Stream:
    """A kernel as accumulators over one axis.

    Attributes:
        batch, rows, length: b, m and k; `width` is n, that of all products.
        inner: the products that are made on the way, MM nodes of (batch, rows, depth, length).
        accumulators: each after those that it needs.
        passes: how often it goes along k. All products are summed in the last, in which what stands beside is written.
        beside: outputs at (b, m, k): elements that are written on the way, at any bijective place.
        bands: the elements that count; what lies outside of one changes no accumulator.
        statistics: along other axes, of rows and of elements of this one.
    """

    batch: int
    rows: int
    length: int
    width: int
    inner: tuple[Node, ...]
    accumulators: tuple[Accumulator, ...]
    passes: int
    beside: tuple[Node, ...] = ()
    bands: tuple[Band, ...] = ()
    statistics: tuple[Statistic, ...] = ()

    @property
    def totals(self) -> tuple[Accumulator, ...]:
        """The accumulators of one value a row."""
        return tuple(x for x in self.accumulators if not x.is_product)

    @property
    def products(self) -> tuple[Accumulator, ...]:
        """The accumulators of `width` values a row."""
        return tuple(x for x in self.accumulators if x.is_product)

    @property
    def divisible(self) -> bool:
        """Whether slices of the axis can be walked apart and joined by another kernel.

        Passes before the last are walked whole, so these must only read. A total of the last pass must have no scale.
        """
        last = [x for x in self.totals if x.turn == self.passes - 1]
        return not self.beside and all(x.scale is None for x in last) and (self.passes == 1 or not self.inner)

    @property
    def why(self) -> list[str]:
        """Why one kernel may compute this: a line for the walk, then one for each accumulator."""
        walks = "once" if self.passes == 1 else f"{self.passes} times"
        made = f", making {len(self.inner)} inner product{'s' * (len(self.inner) > 1)} on the way" if self.inner else ""
        lines = [f"walks {walks} along {self.length} elements for blocks of {self.batch} x {self.rows} rows{made}"]
        for x in self.statistics:
            kind, length = x.node.attrs
            whose = "row, before the walk" if x.of_rows else "element of the axis, tile by tile"
            lines.append(f"{kind} over {length} elements for each {whose}")
        if self.bands:
            lines.append("leaves out tiles in which a mask hides all elements")
        return lines + [self._described(x) for x in self.accumulators]

    def _described(self, x: Accumulator) -> str:
        what = f"product of width {self.width}" if x.is_product else f"{x.node.attrs[0]} of each row"
        when = f"pass {x.turn + 1}"
        if x.corrections:
            kinds = " and ".join(total.attrs[0] for total, _ in x.corrections)
            when += f", corrected by exp(old - new) whenever the {kinds} so far changes"
        if x.scale is not None:
            when += ", with the factor of each row applied at the end"
        return f"{what}: {when}"


def walks(outputs: Sequence[Node], inputs: Sequence[Node], corrected: bool = True) -> tuple[Stream, ...]:
    """The streams that together compute these outputs over these inputs: one for each axis along which products of the
    same rows and width are summed. There are two in x w + (x a) b.

    Args:
        outputs: functions of products and totals at (b, m, n), or of elements at (b, m, k).
        inputs: the nodes that are arrays in memory.
        corrected: whether sums may run along under a growing maximum, and row factors leave sums. Without, every total
            waits for those that it needs, and everything is computed as it is written.

    Raises:
        NotAStream: no such walks compute them.
    """
    nodes = operands_first(outputs, inputs)
    heavy = _heavy(nodes)
    needed = {x for node in nodes if node.op in HEAVY for x in heavy[node] if x is not node}
    products = [node for node in nodes if node.op == "MM" and node not in needed]
    if not products:
        raise NotAStream("no product is left at the end")
    batch, rows, _, width = products[0].attrs
    groups: dict[int, list[Node]] = {}
    for node in products:
        if (node.attrs[0], node.attrs[1], node.attrs[3]) != (batch, rows, width):
            raise NotAStream(f"products of {products[0].attrs} and of {node.attrs} have other rows or another width")
        if node.args[1] in heavy:
            raise NotAStream("the right operand of a product needs a product or a reduction")
        groups.setdefault(node.attrs[2], []).append(node)
    beside: dict[int, list[Node]] = {length: [] for length in groups}
    others: list[Node] = []
    for output in outputs:
        if output not in heavy or not heavy[output].isdisjoint(products) or output.size == batch * rows:
            others.append(output)
            continue
        length = output.size // (batch * rows)
        if length not in groups or output.size != batch * rows * length:
            raise NotAStream("an output has neither the rows nor the elements of a walk")
        beside[length].append(output)
    ending = [n for n in operands_first(others, [*inputs, *products]) if n.op == "Red"]
    for node in ending:
        if node.attrs[1] not in groups:
            raise NotAStream(f"a reduction over {node.attrs[1]} elements is not over the axis of a product")
    made = []
    for length, group in groups.items():
        totals = [node for node in ending if node.attrs[1] == length]
        made.append(_Walk(outputs, inputs, heavy, group, totals, beside[length]).stream(corrected))
    return tuple(made)


def element_beside(output: Node) -> Node:
    """The element that an output beside the products is. A bijective view says where it is written."""
    if output.op == "V" and is_bijective(output.attrs[0], output.args[0].size):
        return output.args[0]
    return output


def _heavy(nodes: Sequence[Node]) -> dict[Node, frozenset[Node]]:
    """The products and reductions that each node depends on, itself included; missing for none."""
    heavy: dict[Node, frozenset[Node]] = {}
    for node in nodes:
        below = frozenset().union(*(heavy[a] for a in node.args if a in heavy))
        below |= {node} if node.op in HEAVY else frozenset()
        if below:
            heavy[node] = below
    return heavy


class _Walk:
    """One walk: the `products` along its axis, totals that outputs need besides (`ending`), and outputs that are
    written on the way (`beside`)."""

    def __init__(
        self,
        outputs: Sequence[Node],
        inputs: Sequence[Node],
        heavy: Mapping[Node, frozenset[Node]],
        products: Sequence[Node],
        ending: Sequence[Node],
        beside: Sequence[Node],
    ) -> None:
        self.inputs, self.heavy, self.products = frozenset(inputs), heavy, products
        self.batch, self.rows, self.length, self.width = products[0].attrs
        if self.length < 2:
            raise NotAStream("the axis has one element")
        self.count = self.batch * self.rows
        self.whole = identity(self.count * self.length)
        self.spread = strided(0, ((self.count, 1), (self.length, 0)))
        self.order = {node: i for i, node in enumerate(operands_first(outputs, inputs))}
        self.inner: dict[Node, None] = {}
        self.statistics: dict[Node, Statistic] = {}
        self.totals: dict[Node, None] = {}
        self.beside = beside
        self._place(ending)

    def _place(self, ending: Iterable[Node]) -> None:
        """Find what is computed at every element, and that all of it is needed at that element alone."""
        elements = [*(p.args[0] for p in self.products), *map(element_beside, self.beside)]
        work = [(node, self.whole) for node in elements]
        for total in ending:
            work += self._of_total(total)
        seen: set[tuple[Node, Layout]] = set()
        while work:
            node, at = work.pop()
            if node not in self.heavy or node in self.inputs or (node, at) in seen:
                continue
            seen.add((node, at))
            work += self._below(node, at)

    def _below(self, node: Node, at: Layout) -> list[tuple[Node, Layout]]:
        """The operands of a node with the places at which they are needed, given where the node is."""
        match node.op:
            case "Un" | "Bin" | "Where":
                return [(a, at) for a in node.args]
            case "V":
                moved = compose(node.attrs[0], at)
                if moved is None:
                    raise NotAStream("a view inside the walk has no simple index map")
                return [(node.args[0], moved)]
            case "Red":
                if at == self.spread and node.attrs[1] == self.length:
                    return self._of_total(node)
                self._add_statistic(node, at)
                return []
            case "MM":
                batch, rows, _, columns = node.attrs
                if (batch, rows, columns) != (self.batch, self.rows, self.length):
                    raise NotAStream(f"an inner product of {node.attrs} has other rows or another axis than the walk")
                if unmasked(at) != self.whole:
                    raise NotAStream("an inner product is needed at other elements than its own")
                if any(a in self.heavy for a in node.args):
                    raise NotAStream("an operand of an inner product needs a product or a reduction")
                self.inner[node] = None
                return []
            case _:
                raise NotAStream(f"{node.op} of what is computed inside the walk")

    def _of_total(self, node: Node) -> list[tuple[Node, Layout]]:
        kind, length = node.attrs
        if kind not in IDENTITIES:
            raise NotAStream(f"{kind} is no total that runs along an axis")
        if (node.size, length) != (self.count, self.length):
            raise NotAStream(f"a reduction of {node.size} rows of {length} is not over the axis of the products")
        self.totals[node] = None
        return [(node.args[0], self.whole)]

    def _add_statistic(self, node: Node, at: Layout) -> None:
        kind, _ = node.attrs
        if kind not in IDENTITIES or any(a in self.heavy for a in node.args):
            raise NotAStream("a total of other rows or another axis is not one of arrays in memory")
        at = unmasked(at)
        found = self._of_rows(node, at) or self._of_elements(node, at)
        if found is None:
            raise NotAStream("a total is needed by other rows than its own")
        if self.statistics.setdefault(node, found) != found:
            raise NotAStream("a total along another axis is needed in two ways")

    def _of_rows(self, node: Node, at: Layout) -> Statistic | None:
        """The statistic, if all elements of a row take the same of its values."""
        row = compose(at, strided(0, ((self.count, self.length),)))
        return Statistic(node, row, True) if row is not None and compose(row, self.spread) == at else None

    def _of_elements(self, node: Node, at: Layout) -> Statistic | None:
        """The statistic, if all rows take the same of its values."""
        first_row = strided(0, ((self.batch, self.rows * self.length), (self.length, 1)))
        repeated = strided(0, ((self.batch, self.length), (self.rows, 0), (self.length, 1)))
        element = compose(at, first_row)
        same = element is not None and compose(element, repeated) == at
        return Statistic(node, element, False) if element is not None and same else None

    # --- passes -------------------------------------------------------------------------------------------------

    def stream(self, corrected: bool) -> Stream:
        """The accumulators with their passes."""
        turns: dict[Node, int] = {}
        made: list[Accumulator] = []
        for node in sorted(self.totals, key=self.order.__getitem__):
            found = self._accumulator(node, turns, corrected, 0)
            turns[node] = found.turn
            made.append(found)
        products = [self._accumulator(node, turns, corrected, 0) for node in self.products]
        last = max(x.turn for x in [*made, *products])
        last = max([last, *(turns[d] + 1 for output in self.beside for d in self._needed(output))])
        made += [self._accumulator(node, turns, corrected, last) for node in self.products]
        inner = sorted(self.inner, key=self.order.__getitem__)
        sizes = self.batch, self.rows, self.length, self.width
        counted = self._bands(made) if corrected and not self.beside else ()
        statistics = sorted(self.statistics.values(), key=lambda x: self.order[x.node])
        return Stream(*sizes, tuple(inner), tuple(made), last + 1, tuple(self.beside), counted, tuple(statistics))

    def _bands(self, accumulators: Sequence[Accumulator]) -> tuple[Band, ...]:
        """The elements that count for all accumulators."""
        kept = [(x.element, 0.0 if x.is_product else IDENTITIES[x.node.attrs[0]]) for x in accumulators]
        return bands(kept, (self.batch, self.rows, self.length), list(self.inputs))

    def _accumulator(self, node: Node, turns: Mapping[Node, int], corrected: bool, least: int) -> Accumulator:
        """An accumulator in the earliest pass from `least` on, as it is written or with a factor and corrections."""
        plain = Accumulator(node, node.args[0], max([least, *(turns[d] + 1 for d in self._needed(node.args[0]))]))
        summed = node.op == "MM" or node.attrs[0] == "sum"
        if not corrected or not summed or plain.turn == least:
            return plain
        written = node.args[0]
        rows = self._rows_domain(self._above(self.totals))
        moved = [self._running(Accumulator(node, written, 0), turns, least)]
        element, scale = factored(written, rows)
        if scale is not None:
            moved.append(self._running(Accumulator(node, element, 0, scale=scale), turns, least))
        without_nan = guarded(written, rows)
        if without_nan is not None:
            element, scale = without_nan
            moved.append(self._running(Accumulator(node, element, 0, scale=scale, guarded=True), turns, least))
        return min([plain, *moved], key=lambda x: x.turn)

    def _running(self, x: Accumulator, turns: Mapping[Node, int], least: int) -> Accumulator:
        """The accumulator in its earliest pass, corrected for totals of the same pass where it can be."""
        ready = [turns[d] for d in self._needed(x.scale)] if x.scale is not None else []
        rows = self._rows_domain(self._above(self.totals, x.element))
        found: dict[Node, float] = {}
        turn = max([least, *ready])
        for d in self._needed(x.element):
            alpha = correction(x.element, d, rows, self._above([d], x.element))
            turn = max(turn, turns[d] + (alpha is None))
            if alpha is not None:
                found[d] = alpha
        corrections = tuple((d, alpha) for d, alpha in found.items() if turns[d] == turn)
        return replace(x, turn=turn, corrections=corrections)

    def _rows_domain(self, above: Collection[Node]) -> Rows:
        return Rows(self.count, self.length, above)

    def _needed(self, root: Node) -> list[Node]:
        """The totals that a node needs at once, not those below other totals, operands first."""
        found: set[Node] = set()
        seen: set[Node] = set()
        work = [root]
        while work:
            node = work.pop()
            if node in seen or node in self.inputs:
                continue
            seen.add(node)
            if node in self.totals:
                found.add(node)
            elif node not in self.inner:
                work += node.args
        return sorted(found, key=self.order.__getitem__)

    def _above(self, totals: Collection[Node], *roots: Node) -> frozenset[Node]:
        """The nodes of the walk that depend on these totals, and the totals."""
        reached = set(totals)
        for node in operands_first([*(p.args[0] for p in self.products), *self.totals, *roots], self.inputs):
            if any(a in reached for a in node.args):
                reached.add(node)
        return frozenset(reached)


def unmasked(layout: Layout) -> Layout:
    """Where a layout reads what its masks let through."""
    offset = layout.offset + sum(axis.start * axis.stride for axis in layout.axes)
    moved = [sum(axis.stride * axis.coeffs[i] for axis in layout.axes) for i in range(len(layout.dims))]
    return strided(offset, [(size, stride + more) for (size, stride), more in zip(layout.dims, moved, strict=True)])
