"""Small random extraction problems with their answers by brute force, and larger problems without answers."""

from __future__ import annotations

import itertools
import random

from eqsat.errors import CheckFailed
from eqsat.extract.solver.problem import Problem, used_choice

COSTS = ([0, 1, 2, 3], [1], [0, 0, 1], [1, 2, 4, 7], [0], [3, 3000, 3_000_000])


def small_problem(seed: int) -> Problem:
    """Up to nine classes: acyclic, lightly or wholly cyclic, one to three roots, with zero, equal or mixed costs.

    About two thirds of them have an answer.
    """
    rng = random.Random(seed)
    n = rng.randint(1, 9)
    pool = rng.choice(COSTS)
    backwards = rng.choice([0.0, 0.25, 1.0])
    node_class, node_cost, children = [], [], []
    for c in range(n):
        for _ in range(rng.choice([1, 1, 2, 2, 3])):
            kids = []
            for _ in range(rng.choice([0, 1, 1, 2, 2, 3])):
                if rng.random() < backwards:
                    kids.append(rng.randrange(n))
                elif c:
                    kids.append(rng.randrange(c))
            node_class.append(c)
            node_cost.append(rng.choice(pool))
            children.append(tuple(kids))
    roots = tuple(rng.randrange(max(0, n - 3), n) for _ in range(rng.randint(1, 3)))
    return Problem(node_class, node_cost, children, n, roots)


def answers(problem: Problem) -> dict[frozenset[int], int]:
    """Every valid answer as its set of nodes, with its cost."""
    found = {}
    for picks in itertools.product(*problem.members()):
        try:
            nodes = frozenset(used_choice(problem, dict(enumerate(picks))).values())
        except CheckFailed:
            continue
        found[nodes] = sum(problem.node_cost[i] for i in nodes)
    return found


def valid_rows(problem: Problem, seed: int) -> list[tuple[int, ...]]:
    """Up to two random sets of nodes that every answer meets."""
    rng = random.Random(seed)
    sets = [sorted(nodes) for nodes in answers(problem)]
    rows = []
    for _ in range(rng.randint(0, 2) if sets else 0):
        row: set[int] = set()
        for nodes in sorted(sets):
            if row.isdisjoint(nodes):
                row.add(rng.choice(nodes))
        rows.append(tuple(sorted(row)))
    return rows


def layered_problem(seed: int, classes: int, roots: int = 1, cyclic: float = 0.0, window: int = 50) -> Problem:
    """A larger problem: a class needs some of the last ``window`` ones; a share ``cyclic`` of its needs looks ahead."""
    rng = random.Random(seed)
    node_class, node_cost, children = [], [], []
    for c in range(classes):
        for _ in range(1 if c < 20 else rng.randint(1, 5)):
            kids = []
            for _ in range(0 if c < 20 else rng.randint(1, 3)):
                top = min(classes, c + window) if rng.random() < cyclic else c
                kids.append(rng.randrange(max(0, c - window), top))
            node_class.append(c)
            node_cost.append(rng.randint(0, 10))
            children.append(tuple(dict.fromkeys(kids)))
    return Problem(node_class, node_cost, children, classes, tuple(range(classes - roots, classes)))


def set_cover_problem(seed: int, elements: int, sets: int, covers: int) -> Problem:
    """Set cover as extraction: each element is a root, whose nodes are the sets that contain it."""
    rng = random.Random(seed)
    node_class = list(range(sets))
    node_cost = [rng.randint(1, 10) for _ in range(sets)]
    children: list[tuple[int, ...]] = [()] * sets
    for e in range(elements):
        for s in rng.sample(range(sets), covers):
            node_class.append(sets + e)
            node_cost.append(0)
            children.append((s,))
    return Problem(node_class, node_cost, children, sets + elements, tuple(range(sets, sets + elements)))
