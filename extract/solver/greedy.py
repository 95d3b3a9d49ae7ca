"""Greedy answers: bottom-up dynamic programming over sets, which sees sharing below a node but not between siblings.

`greedy_dag` is extraction-gym's faster-greedy-dag: a class keeps the cheapest set of classes found so far that derives
it, and when a class improves, the nodes above it are visited again. The sets are bits of integers. Those of a node's
children have most in common, so that few classes are added up when they are joined. `greedy_tree` is Knuth's
generalization of Dijkstra's algorithm (1977), which counts a class once for every use. It takes a fraction of the time,
so it finishes the classes that `greedy_dag` has no time for. The same algorithm with the maximum in place of the sum
gives a quick lower bound.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Sequence
from math import inf

import numpy as np

from eqsat.extract.solver.problem import Problem

NO_NODE = -1

FEW_BITS = 24
"""Bits of an integer that are sooner found one by one than all at once."""


def greedy_dag(problem: Problem, deadline: float, cost: Sequence[float] | None = None) -> list[int]:
    """One node per class, acyclic together; NO_NODE if there is no derivation of finite cost.

    ``cost`` replaces the nodes' costs. After ``deadline`` (`time.monotonic`) `greedy_tree` finishes the
    classes that have no node yet.
    """
    node_class, children, parents = problem.node_class, problem.children, problem.parents()
    cost = problem.node_cost if cost is None else cost
    queue = deque(i for nodes in problem.members() for i in nodes if not children[i])
    queued = bytearray(len(node_class))
    for i in queue:
        queued[i] = 1
    n = problem.n_classes
    sets, paid, total, choice = [0] * n, [0.0] * n, [inf] * n, [NO_NODE] * n
    while queue:
        i = queue.popleft()
        queued[i] = 0
        c, kids, merged, dearest = node_class[i], children[i], 0, 0.0
        for d in kids:
            if total[d] > dearest:
                dearest, merged = total[d], sets[d]
        price = cost[i] + dearest
        if price >= total[c]:
            continue
        for d in kids:
            fresh = sets[d] & ~merged
            if fresh:
                merged |= fresh
                price += _price(fresh, paid)
        if price >= total[c] or merged >> c & 1:
            continue
        total[c], sets[c], paid[c], choice[c] = price, merged | 1 << c, cost[i], i
        for p in parents[c]:
            if not queued[p]:
                queued[p] = 1
                queue.append(p)
        if time.monotonic() > deadline:
            return _finish(problem, cost, choice, total)
    return choice


def _price(classes: int, paid: Sequence[float]) -> float:
    """What the classes whose bits are set have paid."""
    if classes.bit_count() > FEW_BITS:
        octets = np.frombuffer(classes.to_bytes((classes.bit_length() + 7) // 8, "little"), np.uint8)
        return sum(map(paid.__getitem__, np.flatnonzero(np.unpackbits(octets, bitorder="little")).tolist()))
    price = 0.0
    while classes:
        c = classes.bit_length() - 1
        price += paid[c]
        classes ^= 1 << c
    return price


def greedy_tree(problem: Problem) -> list[int]:
    """The node of each class with the cheapest derivation if every use is paid; NO_NODE if there is none."""
    n = problem.n_classes
    return _finish(problem, problem.node_cost, [NO_NODE] * n, [inf] * n)


def longest_path_bound(problem: Problem) -> int:
    """A quick lower bound: the costliest chain in every derivation of some root (h_max in planning)."""
    cost, parents = problem.node_cost, problem.parents()
    value: list[int | None] = [None] * problem.n_classes
    waiting = _distinct(problem)
    heap = [(cost[i], i) for nodes in problem.members() for i in nodes if not waiting[i]]
    heapq.heapify(heap)
    while heap:
        chain, i = heapq.heappop(heap)
        c = problem.node_class[i]
        if value[c] is None:
            value[c] = chain
            for p in parents[c]:
                waiting[p] -= 1
                if waiting[p] == 0 and value[problem.node_class[p]] is None:
                    heapq.heappush(heap, (cost[p] + chain, p))
    return max((value[r] or 0 for r in problem.roots), default=0)


def forced_bound(problem: Problem) -> int:
    """A quick lower bound: the sum of the cheapest nodes of each root, of each class that all its nodes need, and so
    on down."""
    cost, children, members = problem.node_cost, problem.children, problem.members()
    forced = dict.fromkeys(problem.roots)
    work = list(forced)
    for c in work:
        nodes = members[c]
        for d in sorted(set(children[nodes[0]]).intersection(*(children[i] for i in nodes[1:]))):
            if d not in forced:
                forced[d] = None
                work.append(d)
    return sum(min(cost[i] for i in members[c]) for c in forced)


def _finish(problem: Problem, cost: Sequence[float], choice: Sequence[int], total: Sequence[float]) -> list[int]:
    """Give a node to each class without one, cheapest tree first. Classes with a node do not need them, so no cycle
    arises."""
    node_class, children, parents = problem.node_class, problem.children, problem.parents()
    choice, total = list(choice), list(total)
    waiting = _distinct(problem)
    heap: list[tuple[float, int]] = []

    def ready(i: int) -> None:
        if choice[node_class[i]] == NO_NODE and cost[i] < inf:
            heapq.heappush(heap, (cost[i] + sum(map(total.__getitem__, children[i])), i))

    def settle(c: int) -> None:
        for p in parents[c]:
            waiting[p] -= 1
            if waiting[p] == 0:
                ready(p)

    given = [c for c, i in enumerate(choice) if i != NO_NODE]
    for nodes in problem.members():
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


def _distinct(problem: Problem) -> list[int]:
    """How many classes each node needs."""
    return [len(kids) if len(kids) < 2 else len(set(kids)) for kids in problem.children]
