"""Greedy answers: bottom-up dynamic programming over sets, which sees sharing below a node but not beside it.

The method is extraction-gym's faster-greedy-dag: a class keeps the cheapest node set found so far that derives it, and a
class that improves wakes the nodes above it. Sets are dictionaries from class to cost, so a class counts once.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

NO_NODE = -1


def greedy_dag(
    members: Sequence[Sequence[int]],
    node_class: Sequence[int],
    cost: Sequence[float],
    children: Sequence[Sequence[int]],
    deadline: float,
) -> list[int]:
    """One node per class (NO_NODE where none was derived), acyclic together.

    After ``deadline`` (`time.monotonic`) classes that have a node keep it, so that the rest costs one visit each.
    """
    n_classes = len(members)
    parents: list[list[int]] = [[] for _ in range(n_classes)]
    for i, kids in enumerate(children):
        for d in kids:
            parents[d].append(i)
    queue = deque(i for nodes in members for i in nodes if not children[i])
    queued = bytearray(len(node_class))
    for i in queue:
        queued[i] = 1
    sets: list[dict[int, float] | None] = [None] * n_classes
    total: list[float] = [float("inf")] * n_classes
    choice = [NO_NODE] * n_classes
    while queue:
        i = queue.popleft()
        queued[i] = 0
        c, kids = node_class[i], children[i]
        if c in kids or any(sets[d] is None for d in kids):
            continue
        if choice[c] != NO_NODE and time.monotonic() > deadline:
            continue
        if kids and cost[i] + max(total[d] for d in kids) >= total[c]:
            continue
        merged: dict[int, float] = {}
        for d in sorted(kids, key=lambda d: -len(sets[d] or ())):
            part = sets[d] or {}
            if merged:
                for k, v in part.items():
                    merged.setdefault(k, v)
            else:
                merged = part.copy()
        if c in merged:
            continue
        merged[c] = cost[i]
        price = sum(merged.values())
        if price < total[c]:
            total[c], sets[c], choice[c] = price, merged, i
            for p in parents[c]:
                if not queued[p]:
                    queued[p] = 1
                    queue.append(p)
    return choice
