"""Operators that a runtime executes as one though they are several in the core: norms, activations, softmax, pools, and
transposed convolutions.

The program as written has them; they are candidates beside the cuts that grow operator by operator. Where a runtime
executes one, it reads the operands once and writes the result once, and all between stays in the cache. An operator
with a product writes that one as well: it is a call of its own, whose result the operator puts in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.extract.kernels.candidates import Candidate
from eqsat.extract.kernels.cost import Prices, Run, work_of
from eqsat.extract.kernels.cuts import Cut, Facts, Kind, Limits, bits, joined
from eqsat.gpu.table.limits import THREADS

Operator = tuple[int, tuple[int, ...]]
"""The class that an operator computes, and the classes that it reads, in a program as written: a node a class."""


def composites(
    snapshot: Snapshot, facts: Facts, prices: Prices, operators: Iterable[Operator], limits: Limits
) -> Iterator[Candidate]:
    """The candidates of operators that compute several classes, one product at most."""
    for root, operands in operators:
        inside = None if facts.free[root] else _inside(snapshot, facts, root, operands, limits.operators, products=1)
        if inside is not None:
            cut = _cut(snapshot, facts, inside)
            products = [c for c in inside if snapshot.of_class(c)[0].op == "MM"]
            price = _price(snapshot, facts, prices, cut, inside, products)
            children = bits(cut.leaves & facts.computed)
            family = "contraction" if products else "pointwise" if cut.kind == Kind.POINT else "row"
            cut.run = Run(price)
            yield Candidate(root, family, bits(cut.leaves), children, price, cut)


def several(snapshot: Snapshot, facts: Facts, operators: Iterable[Operator], limits: Limits) -> list[int]:
    """The results of the operators that compute several classes, products aside: norms, activations, softmax, pools."""
    return [
        root
        for root, operands in operators
        if not facts.free[root] and _inside(snapshot, facts, root, operands, limits.operators)
    ]


def _inside(
    snapshot: Snapshot, facts: Facts, root: int, operands: Sequence[int], most: int, products: int = 0
) -> list[int] | None:
    """The classes that an operator computes, operands first; None if it holds more products, computes fewer than two
    classes and no product, or reads anything but its operands and constants."""
    found: dict[int, None] = {}
    held = 0
    stack = [root]
    while stack:
        c = stack.pop()
        if c in found or c in operands or (facts.free[c] and not snapshot.is_input(c)):
            continue
        (node,) = snapshot.of_class(c)
        held += node.op == "MM"
        if node.op in ("In", "Opaque") or held > products or len(found) == most:
            return None
        found[c] = None
        stack.extend(node.args)
    computing = [c for c in found if snapshot.of_class(c)[0].op != "V"]
    return sorted(found, key=snapshot.depth.__getitem__) if len(computing) > 1 or held else None


def _cut(snapshot: Snapshot, facts: Facts, inside: Sequence[int]) -> Cut:
    made: dict[int, Cut] = {}
    for c in inside:
        (i,) = snapshot.members[c]
        node = snapshot.nodes[i]
        subs = tuple(made.get(a) or facts.leaf[a] for a in node.args)
        leaves, inner = 0, 1 << c
        for x in subs:
            leaves, inner = leaves | x.leaves, inner | x.inner
        own = {"Red": Kind.ROW, "MM": Kind.GEMM}.get(node.op, Kind.POINT)
        kind = own if node.op == "MM" else max(own, *(x.kind for x in subs))  # a product of sums of rows stays one
        made[c] = Cut(c, i, subs, kind, None, leaves, inner, joined(*(x.reads for x in subs)))
        made[c].on_chip = kind == Kind.ROW
    return made[inside[-1]]


def _price(
    snapshot: Snapshot, facts: Facts, prices: Prices, cut: Cut, inside: Sequence[int], products: Sequence[int]
) -> int:
    """Operands are read once, the result is written once, and every element of every class is computed; a product is
    written and read besides."""
    moved = facts.bytes[cut.cls] + sum(facts.bytes[c] for c in bits(cut.leaves))
    work = sum(_work(snapshot, node) for c in inside for node in snapshot.of_class(c))
    groups = max(1.0, max(snapshot.size[c] for c in (*inside, *bits(cut.leaves))) / THREADS)
    arithmetic = prices.vector(work, groups, snapshot.dtype[cut.cls])
    for c in products:
        b, m, k, n = snapshot.of_class(c)[0].attrs
        moved += 2 * facts.bytes[c]
        arithmetic += min(way.time + way.extra for way in prices.ways(b, m, k, n, snapshot.dtype[c]))
    return prices.kernel(moved, arithmetic, groups)


def _work(snapshot: Snapshot, node: ENode) -> int:
    if node.op in ("V", "MM"):
        return 0
    size = snapshot.size[node.cls]
    if node.op == "Red":
        return work_of(node.attrs[0], size * node.attrs[1])
    return work_of(node.attrs[0] if node.op in ("Un", "Bin") else "where", size)
