"""The abstract extraction problem, its answers, and the checker that judges every answer.

A problem is an AND-OR graph: classes (alternatives) hold nodes, a node needs every class in its children. An answer
chooses one node for each class that it uses: the roots, and the children of each chosen node. It must be acyclic, and
its cost counts each chosen node once, however often its class is used (DAG cost). Serialized e-graphs and kernel covers
are both problems of this form, so nothing here knows tensors or devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from eqsat.errors import CheckFailed, InputError


@dataclass(slots=True)
class Problem:
    """An extraction problem in flat arrays.

    Attributes:
        node_class: the class of node ``i``.
        node_cost: its cost, an integer >= 0 (picoseconds for kernels).
        children: the classes that node ``i`` needs; repetitions count once.
        n_classes: classes are ``0 .. n_classes - 1``.
        roots: classes that every answer uses.
        at_least_one: sets of nodes; every valid answer picks a node of each. They must follow from the problem: they
            tighten its relaxation and never change which answers are valid.
    """

    node_class: list[int]
    node_cost: list[int]
    children: list[tuple[int, ...]]
    n_classes: int
    roots: tuple[int, ...]
    at_least_one: list[tuple[int, ...]] = field(default_factory=list)
    _members: list[list[int]] | None = field(default=None, init=False, repr=False, compare=False)
    _parents: list[list[int]] | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise InputError unless the arrays are equally long, every index is in range and every cost is >= 0."""
        n = len(self.node_class)
        if len(self.node_cost) != n or len(self.children) != n:
            raise InputError(
                f"extraction problem: {n} classes, {len(self.node_cost)} costs and {len(self.children)} "
                "children lists given for its nodes; give one of each for every node"
            )
        classes = range(self.n_classes)
        named = {*self.node_class, *chain.from_iterable(self.children)}
        if any(c not in classes for c in named):
            own = ((c, *kids) for c, kids in zip(self.node_class, self.children, strict=True))
            bad = next(i for i, near in enumerate(own) if any(c not in classes for c in near))
            raise InputError(f"extraction problem: node {bad} names a class outside 0..{self.n_classes - 1}")
        if min(self.node_cost, default=0) < 0:
            i, cost = next((i, cost) for i, cost in enumerate(self.node_cost) if cost < 0)
            raise InputError(f"extraction problem: node {i} costs {cost}; costs are at least 0")
        for r in self.roots:
            if r not in classes:
                raise InputError(f"extraction problem: root {r} is outside 0..{self.n_classes - 1}")

    def parents(self) -> list[list[int]]:
        """The nodes that need each class, each once, in order. Cached: do not modify."""
        if self._parents is None:
            self._parents = [[] for _ in range(self.n_classes)]
            for i, kids in enumerate(self.children):
                for d in kids if len(kids) < 2 else dict.fromkeys(kids):
                    self._parents[d].append(i)
        return self._parents

    def members(self) -> list[list[int]]:
        """The nodes of every class, in order. Cached: do not modify."""
        if self._members is None:
            self._members = [[] for _ in range(self.n_classes)]
            for i, c in enumerate(self.node_class):
                self._members[c].append(i)
        return self._members


@dataclass(slots=True)
class Solution:
    """A checked answer.

    Attributes:
        choice: maps each used class to its node.
        lower_bound: no answer costs less.
        hurried: whether a stage ended early since its time was over, and nothing is proven.
        stats: ``answers``, each improvement as (stage that found it, cost, seconds since the start); ``seconds`` by
            stage; ``left``, nodes after the first reductions; ``rounds`` of the relaxation, its largest number of
            ``rows``, and the ``cuts`` added; ``branched``, how often branch and bound was tried.
    """

    choice: dict[int, int]
    cost: int
    lower_bound: int
    optimal: bool
    seconds: float
    hurried: bool = False
    stats: dict[str, Any] = field(default_factory=dict)

    @property
    def gap(self) -> float:
        """(cost - lower_bound) / cost, 0 when proven optimal."""
        return 0.0 if self.optimal or self.cost == 0 else (self.cost - self.lower_bound) / abs(self.cost)


def underivable(problem: Problem) -> int | None:
    """A root without an acyclic derivation; None if all have one."""
    parents = problem.parents()
    waiting = [len(kids) if len(kids) < 2 else len(set(kids)) for kids in problem.children]
    ready = [i for i, k in enumerate(waiting) if k == 0]
    derived = bytearray(problem.n_classes)
    while ready:
        c = problem.node_class[ready.pop()]
        if derived[c]:
            continue
        derived[c] = 1
        for p in parents[c]:
            waiting[p] -= 1
            if waiting[p] == 0:
                ready.append(p)
    return next((r for r in problem.roots if not derived[r]), None)


def used_choice(problem: Problem, choice: Mapping[int, int]) -> dict[int, int]:
    """Restrict ``choice`` to the classes that the roots use through it; raise CheckFailed if it is not an answer.

    It shares no code with the solvers and works on the original problem, so that it can judge them: every used class
    must have one of its own nodes, and the chosen nodes must form no cycle.
    """
    open_, done = 1, 2
    state: dict[int, int] = {}
    used: dict[int, int] = {}
    for root in problem.roots:
        stack = [root]
        while stack:
            c = stack[-1]
            if state.get(c) == done:
                stack.pop()
                continue
            if state.get(c) == open_:
                state[c] = done
                stack.pop()
                continue
            node = choice.get(c)
            if node is None:
                raise CheckFailed(f"extraction: class {c} is used but has no choice")
            if not 0 <= node < len(problem.node_class) or problem.node_class[node] != c:
                raise CheckFailed(f"extraction: class {c} is given node {node}, which is not one of its nodes")
            state[c] = open_
            used[c] = node
            for d in problem.children[node]:
                if state.get(d) == open_:
                    raise CheckFailed(f"extraction: the choice for class {c} needs class {d}, which needs {c}")
                if state.get(d) != done:
                    stack.append(d)
    return used


def check(problem: Problem, choice: Mapping[int, int]) -> int:
    """The cost of ``choice``, each used class counted once; raise CheckFailed if it is not a valid answer."""
    return checked(problem, choice)[1]


def checked(problem: Problem, choice: Mapping[int, int]) -> tuple[dict[int, int], int]:
    """``choice`` for the classes that it uses, as `used_choice`, and its cost; raise CheckFailed if it is not valid.

    The ``at_least_one`` rows are checked too: an answer that violates one shows that the row was never valid, and
    that bounds based on it cannot be trusted.
    """
    used = used_choice(problem, choice)
    picked = set(used.values())
    for k, row in enumerate(problem.at_least_one):
        if picked.isdisjoint(row):
            raise CheckFailed(f"extraction: a valid answer picks no node of at_least_one[{k}], so the row is not valid")
    return used, sum(problem.node_cost[i] for i in used.values())
