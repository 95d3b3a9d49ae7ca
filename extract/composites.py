"""Operators that a runtime executes as one though they are several in the core: norms, activations, softmax, pools.

The program as written has them; they are candidates beside the cuts that grow operator by operator. Where a runtime
executes one, it reads the operands once and writes the result once, and all between stays in the cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.extract.candidates import Candidate
from eqsat.extract.cost import Prices, Run, work_of
from eqsat.extract.cuts import Cut, Facts, Kind, Limits, bits, joined
from eqsat.gpu.table.limits import THREADS

Operator = tuple[int, tuple[int, ...]]
"""The class that an operator computes, and the classes that it reads, in a program as written: a node a class."""


def composites(
    snapshot: Snapshot, facts: Facts, prices: Prices, operators: Iterable[Operator], limits: Limits
) -> Iterator[Candidate]:
    """The candidates of operators that compute several classes, products aside, which cuts hold."""
    for root, operands in operators:
        inside = None if facts.free[root] else _inside(snapshot, facts, root, operands, limits.operators)
        if inside is not None:
            cut = _cut(snapshot, facts, inside)
            price = _price(snapshot, facts, prices, cut, inside)
            children = bits(cut.leaves & facts.computed)
            family = "pointwise" if cut.kind == Kind.POINT else "row"
            cut.run = Run(price)
            yield Candidate(root, family, bits(cut.leaves), children, price, cut)


def several(snapshot: Snapshot, facts: Facts, operators: Iterable[Operator], limits: Limits) -> list[int]:
    """The results of the operators that compute several classes, products aside: norms, activations, softmax, pools."""
    return [
        root
        for root, operands in operators
        if not facts.free[root] and _inside(snapshot, facts, root, operands, limits.operators)
    ]


def _inside(snapshot: Snapshot, facts: Facts, root: int, operands: Sequence[int], most: int) -> list[int] | None:
    """The classes that an operator computes, operands first; None if it holds a product, computes fewer than two, or
    reads anything but its operands and constants."""
    found: dict[int, None] = {}
    stack = [root]
    while stack:
        c = stack.pop()
        if c in found or c in operands or (facts.free[c] and not snapshot.is_input(c)):
            continue
        (node,) = snapshot.of_class(c)
        if node.op in ("In", "MM", "Opaque") or len(found) == most:
            return None
        found[c] = None
        stack.extend(node.args)
    computing = [c for c in found if snapshot.of_class(c)[0].op != "V"]
    return sorted(found, key=snapshot.depth.__getitem__) if len(computing) > 1 else None


def _cut(snapshot: Snapshot, facts: Facts, inside: Sequence[int]) -> Cut:
    made: dict[int, Cut] = {}
    for c in inside:
        (i,) = snapshot.members[c]
        node = snapshot.nodes[i]
        subs = tuple(made.get(a) or facts.leaf[a] for a in node.args)
        leaves, inner = 0, 1 << c
        for x in subs:
            leaves, inner = leaves | x.leaves, inner | x.inner
        rows = node.op == "Red" or any(x.kind == Kind.ROW for x in subs)
        made[c] = Cut(
            c, i, subs, Kind.ROW if rows else Kind.POINT, None, leaves, inner, joined(*(x.reads for x in subs))
        )
        made[c].on_chip = rows
    return made[inside[-1]]


def _price(snapshot: Snapshot, facts: Facts, prices: Prices, cut: Cut, inside: Sequence[int]) -> int:
    """Operands are read once, the result is written once, and every element of every class is computed."""
    moved = facts.bytes[cut.cls] + sum(facts.bytes[c] for c in bits(cut.leaves))
    work = sum(_work(snapshot, node) for c in inside for node in snapshot.of_class(c))
    groups = max(1.0, max(snapshot.size[c] for c in (*inside, *bits(cut.leaves))) / THREADS)
    return prices.kernel(moved, prices.vector(work, groups, snapshot.dtype[cut.cls]), groups)


def _work(snapshot: Snapshot, node: ENode) -> int:
    if node.op == "V":
        return 0
    size = snapshot.size[node.cls]
    if node.op == "Red":
        return work_of(node.attrs[0], size * node.attrs[1])
    return work_of(node.attrs[0] if node.op in ("Un", "Bin") else "where", size)
