"""What is written in columns, w @ x, as a stream of rows.

A stream makes the left operand of its products on the way. Where it is the right one that needs a product or a
reduction, the products are turned:

    a @ b = (b.T @ a.T).T

So are products whose epilogue reads totals of their columns, which are rows of the turned ones: (a @ b) / sum_k b.
The transpose of that operand moves through pointwise operators to arrays in memory and to inner products, which are
turned as well. It is no work anywhere: arrays are read, and results written, with other strides.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from eqsat.base.graphs import operands_first
from eqsat.base.trampoline import Call, run
from eqsat.layout.arithmetic import Layout, compose, identity, inverse, of_transpose, strided
from eqsat.program.core import Node, make
from eqsat.program.node import is_elementwise, substitute
from eqsat.streams.stream import HEAVY, unmasked


def swapped(batch: int, rows: int, columns: int) -> Layout:
    """The transpose of each matrix [rows, columns] of a batch."""
    return of_transpose((batch, rows, columns), (0, 2, 1))


def by_rows(outputs: Sequence[Node], inputs: Sequence[Node]) -> tuple[Node, ...]:
    """The outputs with products turned so that their left operands are made on the way, and with views of these moved
    to arrays and to inner products, which are turned where the view is a transpose. Outputs inside these operands are
    read from where the products have them."""
    nodes = operands_first(outputs, inputs)
    heavy: set[Node] = set()
    for node in nodes:
        if node.op in HEAVY or not heavy.isdisjoint(node.args):
            heavy.add(node)
    ending = [n for n in nodes if n.op in HEAVY]
    below = set(operands_first([a for n in ending for a in n.args], inputs))
    ending = [n for n in ending if n not in below]
    products = [n.args for n in ending if n.op == "MM"]
    wrong = any(right in heavy for _, right in products)
    on_the_left = any(left in heavy for left, _ in products)
    if wrong and on_the_left:
        return tuple(outputs)
    if not wrong and not on_the_left:
        wrong = _reads_columns(outputs, ending)
    turning = _Turning(heavy, {n.attrs[3 if wrong else 1] for n in ending if n.op == "MM"})
    made = substitute(outputs, {n: run(turning.of_last(n, wrong)) for n in ending})
    return tuple(turning.beside(n) if n in below else new for n, new in zip(outputs, made, strict=True))


def row_of(dims: Sequence[int]) -> Layout:
    """How the elements of products of these dims read one value a row."""
    batch, rows, _, columns = dims
    return strided(0, ((batch * rows, 1), (columns, 0)))


def _column_of(dims: Sequence[int]) -> Layout:
    batch, rows, _, columns = dims
    return strided(0, ((batch, columns), (rows, 0), (columns, 1)))


def _reads_columns(outputs: Sequence[Node], ending: Sequence[Node]) -> bool:
    """Whether functions of the `ending` products read reductions at their columns, and none at their rows."""
    if len({n.op for n in ending}) < 2:
        return False
    read: set[bool] = set()
    for output in outputs:
        at = _places(output, ending)
        products = [(node.attrs, place) for node, place in at if node.op == "MM"]
        for place in [place for node, place in at if node.op == "Red"]:
            read |= {False for dims, where in products if place == compose(row_of(dims), where)}
            read |= {True for dims, where in products if place == compose(_column_of(dims), where)}
    return read == {True}


def _places(output: Node, leaves: Collection[Node]) -> list[tuple[Node, Layout]]:
    """Where the elements of an output read each of these nodes; what has no simple index map is left out."""
    work = [(output, identity(output.size))]
    seen: dict[tuple[Node, Layout], None] = {}
    while work:
        node, at = work.pop()
        if (node, at) in seen:
            continue
        seen[node, at] = None
        moved = compose(node.attrs[0], at) if node.op == "V" else at
        if node not in leaves and moved is not None and (node.op == "V" or is_elementwise(node.op)):
            work += [(a, moved) for a in node.args]
    return [(node, at) for node, at in seen if node in leaves]


def moved_down(node: Node, layout: Layout, heavy: Collection[Node]) -> Node:
    """A node through a bijective layout, which is moved down to what is not `heavy`, and to products."""
    return run(_Turning(heavy).seen(node, layout))


class _Turning:
    """Moves views down to arrays and to products; `heavy` are the nodes that depend on a product or a reduction, `rows`
    the rows of a walk: one row lies in memory like one column."""

    def __init__(self, heavy: Collection[Node], rows: Collection[int] = ()) -> None:
        self.heavy, self.rows = heavy, rows
        self._made: dict[tuple[Node, Layout], Node] = {}

    def of_last(self, node: Node, wrong: bool) -> Call[Node]:
        """A product or a reduction that no other one needs; products are turned if they are the `wrong` way round."""
        left, *others = node.args
        if node.op == "MM" and wrong:
            batch, m, _, n = node.attrs
            turned = yield self._turned(node)
            return make("V", (swapped(batch, n, m),), (turned,))
        moved = yield self.seen(left, identity(left.size))
        return make(node.op, node.attrs, (moved, *others))

    def _turned(self, node: Node) -> Call[Node]:
        """The transpose of a product, as a product."""
        (batch, m, k, n), (left, right) = node.attrs, node.args
        rows = yield self.seen(right, swapped(batch, k, n))
        return make("MM", (batch, n, k, m), (rows, make("V", (swapped(batch, m, k),), (left,))))

    def _rebuilt(self, node: Node) -> Call[Node]:
        """A view or a reduction."""
        (arg,) = node.args
        moved = yield self.seen(arg, identity(arg.size))
        return make(node.op, node.attrs, (moved,))

    def beside(self, node: Node) -> Node:
        """A node that the products need, as they have it; as it is, if they need it through several views."""
        ways = [(layout, made) for (inner, layout), made in self._made.items() if inner is node]
        if len(ways) != 1:
            return node
        ((layout, made),) = ways
        back = inverse(layout, node.size)
        return node if back is None else make("V", (back,), (made,))

    def seen(self, node: Node, layout: Layout) -> Call[Node]:
        """A node through a bijective layout."""
        key = node, layout
        if key not in self._made:
            self._made[key] = yield self._moved(node, layout)
        return self._made[key]

    def _moved(self, node: Node, layout: Layout) -> Call[Node]:
        match node.op:
            case _ if node not in self.heavy:
                pass
            case op if is_elementwise(op):
                args = []
                for a in node.args:
                    args.append((yield self.seen(a, layout)))
                return make(op, node.attrs, args)
            case "V":
                (arg,), composed = node.args, compose(node.attrs[0], layout)
                apart = None if composed is None else _apart(composed, arg.size)
                if apart is not None:
                    through, masks = apart
                    return make("V", (masks,), ((yield self.seen(arg, through)),))
                node = yield self._rebuilt(node)
            case "Red":
                node = yield self._rebuilt(node)
            case "MM":
                batch, m, _, n = node.attrs
                moved = not layout.is_identity(node.size) or (n in self.rows and m not in self.rows)
                if moved and layout == swapped(batch, m, n):
                    return (yield self._turned(node))
        return make("V", (layout,), (node,))


def _apart(layout: Layout, size: int) -> tuple[Layout, Layout] | None:
    """A layout that reads each of `size` elements, or some of them, once: the bijective one, and the masks on it."""
    through = unmasked(layout)
    back = inverse(through, size)
    masks = None if back is None else compose(back, layout)
    return None if masks is None else (through, masks)
