"""What derivations need: the classes that no program in the e-graph can do without, and those of a single program."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from eqsat.egraph.snapshot import SOURCE, ENode, Snapshot

Derivation = Sequence[int]
"""Indices of the e-nodes that one program in the e-graph computes."""

_OTHER = 1000
"""How much deeper an e-node that a rule made counts than one of the source."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What some programs in the e-graph have in common.

    Attributes:
        classes: bit set of the dynamic classes that all of them compute.
        of: for each class the bit set of those that all of them compute for it, itself included.
        order: these classes and more from the roots down, in the order in which one of the programs reads them.
    """

    classes: int
    of: Sequence[int]
    order: Sequence[int]


def needs_of_all(snapshot: Snapshot) -> Needs:
    """What every derivation of the roots needs."""
    req = required(snapshot)
    return Needs(required_of_roots(snapshot, req), req, _from_the_roots(snapshot, dict(enumerate(snapshot.best))))


def needs_of(snapshot: Snapshot, derivation: Derivation) -> Needs:
    """What one derivation computes: the least fixpoint of of(c) = {c} + join over its e-nodes of c of of(operands)."""
    of = [0] * snapshot.n_classes
    varying = [not (snapshot.const[c] or snapshot.is_input(c)) for c in range(snapshot.n_classes)]
    nodes = sorted(set(derivation), key=lambda i: (snapshot.depth[snapshot.nodes[i].cls], i))
    readers: dict[int, list[int]] = {}
    for i in nodes:
        for a in dict.fromkeys(snapshot.nodes[i].args):
            readers.setdefault(a, []).append(i)
    pending = deque(nodes)
    while pending:
        node = snapshot.nodes[pending.popleft()]
        if not varying[node.cls]:
            continue
        total = of[node.cls] | 1 << node.cls
        for a in node.args:
            total |= of[a]
        if total != of[node.cls]:
            of[node.cls] = total
            pending.extend(readers.get(node.cls, ()))
    chosen = {snapshot.nodes[i].cls: i for i in nodes}
    return Needs(required_of_roots(snapshot, of), of, _from_the_roots(snapshot, chosen))


def needs_of_good(snapshot: Snapshot, best: Derivation) -> Needs:
    """What every derivation needs, and the classes that the program as it was written computes, or the best one."""
    every = needs_of_all(snapshot)
    classes = every.classes
    for derivation in (as_written(snapshot), best):
        classes |= needs_of(snapshot, derivation).classes
    return Needs(classes, every.of, every.order)


def _from_the_roots(snapshot: Snapshot, chosen: Mapping[int, int]) -> list[int]:
    """Dynamic classes from the roots down, where `chosen` is the e-node of each class that is computed."""
    seen: dict[int, None] = {}
    stack = list(reversed(snapshot.roots))
    while stack:
        cls = stack.pop()
        if cls in chosen and cls not in seen and not snapshot.const[cls]:
            seen[cls] = None
            stack += reversed(snapshot.nodes[chosen[cls]].args)
    return list(seen)


def as_written(snapshot: Snapshot) -> Derivation:
    """The program as it was written, as far as its e-nodes are still there; the shallowest way from there on."""
    return _shallowest(snapshot, lambda node: False)


def of_fewest_products(snapshot: Snapshot) -> Derivation:
    """A program in which the longest chain of products that depend on inputs is as short as it can be, else as it was
    written: products of constants are folded."""
    return _shallowest(snapshot, lambda node: node.op == "MM" and not snapshot.const[node.cls])


def _shallowest(snapshot: Snapshot, counts: Callable[[ENode], bool]) -> Derivation:
    """The program in which each class has the fewest levels of e-nodes that count, and of these the one that is nearest
    to what was written.

    Dijkstra's algorithm, as Knuth generalised it to grammars ("A generalization of Dijkstra's algorithm", 1977).
    """
    missing = [len(set(n.args)) for n in snapshot.nodes]
    depth: dict[int, tuple[int, int]] = {}
    best: dict[int, int] = {}

    def entry(i: int) -> tuple[int, int, int]:
        node = snapshot.nodes[i]
        levels, below = (max((depth[a][k] for a in node.args), default=0) for k in (0, 1))
        return levels + counts(node), below + (1 if node.rule == SOURCE else _OTHER), i

    ready = [entry(i) for i, m in enumerate(missing) if m == 0]
    heapq.heapify(ready)
    while ready:
        levels, below, i = heapq.heappop(ready)
        cls = snapshot.nodes[i].cls
        if cls in best:
            continue
        best[cls], depth[cls] = i, (levels, below)
        for p in snapshot.parents[cls]:
            missing[p] -= 1
            if missing[p] == 0:
                heapq.heappush(ready, entry(p))
    used: dict[int, None] = {}
    stack = list(reversed(snapshot.roots))
    while stack:
        i = best[stack.pop()]
        if i not in used:
            used[i] = None
            stack += reversed(snapshot.nodes[i].args)
    return tuple(used)


def required(snapshot: Snapshot) -> list[int]:
    """For each class the set (bits by class id) of dynamic classes in all of its acyclic derivations, itself included.

    The greatest fixpoint of req(c) = {c} + meet over the e-nodes of c of (join over operands of req). Inputs and
    constants need nothing.
    """
    everything = (1 << snapshot.n_classes) - 1
    req = [everything] * snapshot.n_classes
    for cls in range(snapshot.n_classes):
        if snapshot.const[cls] or snapshot.is_input(cls):
            req[cls] = 0
    pending = deque(sorted(range(snapshot.n_classes), key=lambda c: (snapshot.depth[c], c)))
    waiting = set(pending)
    while pending:
        cls = pending.popleft()
        waiting.discard(cls)
        if not req[cls]:
            continue
        meet = everything
        for i in snapshot.members[cls]:
            join = 1 << cls
            for a in snapshot.nodes[i].args:
                join |= req[a]
            meet &= join
        if meet != req[cls]:
            req[cls] = meet
            for i in snapshot.parents[cls]:
                parent = snapshot.nodes[i].cls
                if parent not in waiting:
                    waiting.add(parent)
                    pending.append(parent)
    return req


def required_of_roots(snapshot: Snapshot, req: Sequence[int]) -> int:
    """The union of what the roots need."""
    total = 0
    for root in snapshot.roots:
        total |= req[root]
    return total
