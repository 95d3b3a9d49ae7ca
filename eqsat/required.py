"""What every derivation needs: the classes that no program in the e-graph can do without."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from eqsat.snapshot import Snapshot


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
