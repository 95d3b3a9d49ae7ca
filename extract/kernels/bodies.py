"""The core nodes of cuts, as one kernel computes them, and the indices at which it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from eqsat.base.numerics import HALVES, is_float
from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.extract.kernels.cuts import Cut, Index, Kind
from eqsat.layout.arithmetic import Layout, compose, strided
from eqsat.program.core import CAST, Node, make
from eqsat.program.node import STEPS, terms_of
from eqsat.streams.row_sums import row_sum


class Body:
    """A kernel's expressions. `read` gives the node of a class that the kernel does not compute.

    With `written_out`, sums that each element computes by itself are written term by term, and products that are sums
    of rows as reductions: what is left of products and reductions is what the kernel is built around. Without such
    `sums`, the expressions are the same.
    """

    def __init__(self, snapshot: Snapshot, read: Callable[[int], Node], written_out: bool = False) -> None:
        self._snapshot = snapshot
        self._read = read
        self._written_out = written_out
        self._nodes: dict[int, Node] = {}
        self.sums = False

    def nodes(self, cuts: Sequence[Cut]) -> tuple[Node, ...]:
        """The nodes of cuts.

        Within a kernel each class is computed in one way only. If cuts differ, the cut with the product or reduction
        that the kernel is built and priced around decides. Hence such operands come first.
        """
        first = sorted(range(len(cuts)), key=lambda i: -cuts[i].kind)
        made = {i: self._node(cuts[i]) for i in first}
        return tuple(made[i] for i in range(len(cuts)))

    def _node(self, cut: Cut) -> Node:
        found = self._nodes.get(cut.cls)
        if found is None:
            if cut.node < 0:
                found = self._read(cut.cls)
            else:
                top = self._snapshot.nodes[cut.node]
                subs = self.nodes(cut.subs)
                found = self._made(cut.kind, top, subs)
            self._nodes[cut.cls] = found
        return found

    def _made(self, kind: Kind, top: ENode, operands: Sequence[Node]) -> Node:
        """The operator at the top of a cut of this kind."""
        alone = kind == Kind.POINT and terms_of(top.op, top.attrs) > 0
        of_rows = kind == Kind.ROW and top.op == "MM"
        self.sums |= alone or of_rows
        if alone and self._written_out:
            return _term_by_term(top.op, top.attrs, operands)
        if of_rows and self._written_out:
            return row_sum(top.attrs, operands)
        return make(top.op, top.attrs, operands)


def _term_by_term(op: str, attrs: Sequence[Any], operands: Sequence[Node]) -> Node:
    """The product of a row, or the reduction, as an expression of views of its operands: one for each term. Those of
    halves are added up in float32, as everywhere. Sums begin at zero, which is seen where all terms are -0.
    """
    step = "add" if op == "MM" else STEPS[attrs[0]]
    dtype = operands[0].dtype
    if dtype in HALVES:
        operands = [_cast(a, "float32") for a in operands]
    terms = [_term(op, attrs, operands, k) for k in range(terms_of(op, attrs))]
    if step == "add" and is_float(terms[0].dtype):
        terms.insert(0, make("Full", (0.0, terms[0].size, terms[0].dtype)))
    total = reduce(lambda total, term: make("Bin", (step,), (total, term)), terms)
    return _cast(total, dtype) if dtype in HALVES else total


def _cast(node: Node, dtype: str) -> Node:
    return make("Un", (f"{CAST}{dtype}",), (node,))


def _term(op: str, attrs: Sequence[Any], operands: Sequence[Node], k: int) -> Node:
    """Term `k` of every element."""
    if op == "Red":
        (a,), columns = operands, attrs[1]
        return make("V", (strided(k, ((a.size // columns, columns),)),), (a,))
    (a, b), (batch, m, depth, n) = operands, attrs
    left = make("V", (strided(k, ((batch, m * depth), (m, depth), (n, 0))),), (a,))
    right = make("V", (strided(k * n, ((batch, depth * n), (m, 0), (n, 1))),), (b,))
    return make("Bin", ("mul",), (left, right))


_HERE: frozenset[Index] = frozenset({None})


class Indices:
    """The indices at which the cuts of a snapshot compute their inner operators: how often a kernel repeats their text.

    Many cuts of a class have the same; each view of them is asked for once.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], tuple[frozenset[Index], frozenset[Index]]] = {}

    def of(self, node: ENode, subs: Sequence[Cut], kind: Kind) -> frozenset[Index]:
        """For an operator over these cuts, each relative to its own index."""
        if node.op == "V":
            (x,), (layout,) = subs, node.attrs
            return self._through(layout, x.at)
        if node.op == "Cat":  # each member is a branch with its own text
            return frozenset((k, at) for k, x in enumerate(subs) for at in x.at)
        if node.op == "Gather":
            data, index = subs
            chosen = ((*node.attrs, node.args[1], at) for at in data.at)
            return _HERE.union(chosen, ((*node.attrs, at) for at in index.at))
        if kind == Kind.POINT and (terms := terms_of(node.op, node.attrs)):
            return frozenset((k, at) for k in range(terms) for x in subs for at in x.at or _HERE)
        found = _HERE
        for x in subs:
            if x.at and x.at is not found:
                found = x.at if found <= x.at else found | x.at
        return found

    def _through(self, layout: Layout, indices: frozenset[Index]) -> frozenset[Index]:
        """The snapshot keeps the layout, and this the indices: their identities stay theirs."""
        known = self._seen.get((id(layout), id(indices)))
        if known is None:
            known = indices, frozenset(_seen_through(layout, at) for at in indices)
            self._seen[id(layout), id(indices)] = known
        return known[1]


def _seen_through(layout: Layout, at: Index) -> Index:
    composed = compose(at, layout) if isinstance(at, Layout) and not layout.masked else None
    return layout if at is None else composed or (layout, at)
