"""Greedy answers: bottom-up dynamic programming over sets, which sees sharing below a node but not beside it.

`greedy_dag` is extraction-gym's faster-greedy-dag: a class keeps the cheapest set of classes found so far that derives
it, and a class that improves wakes the nodes above it. `greedy_tree` is Knuth's generalization of Dijkstra's algorithm
(1977), which counts a class once for every use; it takes a fraction of the time, so it finishes what `greedy_dag`
cannot. The same algorithm with the maximum in place of the sum gives a quick lower bound.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Sequence
from math import inf

NO_NODE = -1


def greedy_dag(
    members: Sequence[Sequence[int]],
    node_class: Sequence[int],
    cost: Sequence[float],
    children: Sequence[Sequence[int]],
    deadline: float,
) -> list[int]:
    """One node per class, acyclic together; NO_NODE where there is no derivation, or none of finite cost.

    After ``deadline`` (`time.monotonic`) `greedy_tree` finishes the classes that have no node yet.
    """
    n_classes = len(members)
    parents = _parents(n_classes, children)
    queue = deque(i for nodes in members for i in nodes if not children[i])
    queued = bytearray(len(node_class))
    for i in queue:
        queued[i] = 1
    sets: list[dict[int, float]] = [{}] * n_classes
    total = [inf] * n_classes
    choice = [NO_NODE] * n_classes
    while queue:
        i = queue.popleft()
        queued[i] = 0
        c, kids = node_class[i], children[i]
        if any(choice[d] == NO_NODE for d in kids) or (len(kids) == 1 and cost[i] + total[kids[0]] > total[c]):
            continue
        merged = _union(sets, kids)
        if c in merged:
            continue
        merged[c] = cost[i]
        price = sum(merged.values())
        if price >= total[c]:
            continue
        total[c], sets[c], choice[c] = price, merged, i
        for p in parents[c]:
            if not queued[p]:
                queued[p] = 1
                queue.append(p)
        if time.monotonic() > deadline:
            return _finish(members, node_class, cost, children, choice, total)
    return choice


def _union(sets: Sequence[dict[int, float]], kids: Sequence[int]) -> dict[int, float]:
    """The union of the children's sets, copied from the largest."""
    if not kids:
        return {}
    largest = max(kids, key=lambda d: len(sets[d]))
    merged = sets[largest].copy()
    for d in kids:
        if d != largest:
            merged.update(sets[d])
    return merged


def greedy_tree(
    members: Sequence[Sequence[int]],
    node_class: Sequence[int],
    cost: Sequence[float],
    children: Sequence[Sequence[int]],
) -> list[int]:
    """The node of each class whose derivation is cheapest when every use is paid; NO_NODE where there is none."""
    n = len(members)
    return _finish(members, node_class, cost, children, [NO_NODE] * n, [inf] * n)


def longest_path_bound(
    members: Sequence[Sequence[int]],
    node_class: Sequence[int],
    cost: Sequence[int],
    children: Sequence[Sequence[int]],
    roots: Sequence[int],
) -> int:
    """A quick lower bound: the costliest chain that every derivation of some root contains (h_max in planning)."""
    parents = _parents(len(members), children)
    value: list[int | None] = [None] * len(members)
    waiting = [len(set(kids)) for kids in children]
    heap = [(cost[i], i) for nodes in members for i in nodes if not children[i]]
    heapq.heapify(heap)
    while heap:
        chain, i = heapq.heappop(heap)
        c = node_class[i]
        if value[c] is None:
            value[c] = chain
            for p in parents[c]:
                waiting[p] -= 1
                if waiting[p] == 0:
                    heapq.heappush(heap, (cost[p] + chain, p))
    return max((value[r] or 0 for r in roots), default=0)


def _finish(
    members: Sequence[Sequence[int]],
    node_class: Sequence[int],
    cost: Sequence[float],
    children: Sequence[Sequence[int]],
    choice: Sequence[int],
    total: Sequence[float],
) -> list[int]:
    """Give the classes without a node one, cheapest tree first; no class with a node needs them, so no cycle arises."""
    parents = _parents(len(members), children)
    choice, total = list(choice), list(total)
    waiting = [len(set(kids)) for kids in children]
    heap: list[tuple[float, int]] = []

    def ready(i: int) -> None:
        price = cost[i] + sum(total[d] for d in children[i])
        if choice[node_class[i]] == NO_NODE and cost[i] < inf:
            heapq.heappush(heap, (price, i))

    def settle(c: int) -> None:
        for p in parents[c]:
            waiting[p] -= 1
            if waiting[p] == 0:
                ready(p)

    given = [c for c, i in enumerate(choice) if i != NO_NODE]
    for nodes in members:
        for i in nodes:
            if not children[i]:
                ready(i)
    for c in given:
        settle(c)
    while heap:
        price, i = heapq.heappop(heap)
        c = node_class[i]
        if choice[c] == NO_NODE:
            choice[c], total[c] = i, price
            settle(c)
    return choice


def _parents(n_classes: int, children: Sequence[Sequence[int]]) -> list[list[int]]:
    """The nodes that need each class, each once."""
    parents: list[list[int]] = [[] for _ in range(n_classes)]
    for i, kids in enumerate(children):
        for d in dict.fromkeys(kids):
            parents[d].append(i)
    return parents
