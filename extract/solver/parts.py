"""Independent parts: classes that share nothing are solved separately, and their costs and bounds are added."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eqsat.extract.solver.problem import Problem


@dataclass(frozen=True, slots=True)
class Part:
    """A part as a separate problem; ``classes`` and ``nodes`` map its numbers to those of the whole."""

    problem: Problem
    classes: list[int]
    nodes: list[int]

    def restrict(self, choice: Mapping[int, int]) -> dict[int, int]:
        """The part of a choice for the whole that concerns this part."""
        place = {i: k for k, i in enumerate(self.nodes)}
        return {k: place[choice[c]] for k, c in enumerate(self.classes) if c in choice}

    def extend(self, choice: Mapping[int, int]) -> dict[int, int]:
        """A choice for this part in the numbering of the whole."""
        return {self.classes[k]: self.nodes[i] for k, i in choice.items()}


def split(problem: Problem) -> list[Part]:
    """The parts with a root, in order of their first class; at most one part if there is nothing to split."""
    group = _groups(problem)
    rooted = dict.fromkeys(group[r] for r in sorted(problem.roots))
    if len(rooted) < 2:
        return [Part(problem, list(range(problem.n_classes)), list(range(len(problem.node_class))))] if rooted else []
    classes: dict[int, list[int]] = {g: [] for g in sorted(rooted)}
    nodes: dict[int, list[int]] = {g: [] for g in classes}
    for c in range(problem.n_classes):
        if group[c] in classes:
            classes[group[c]].append(c)
    for i, c in enumerate(problem.node_class):
        if group[c] in classes:
            nodes[group[c]].append(i)
    rows: dict[int, list[tuple[int, ...]]] = {g: [] for g in classes}
    for row in problem.at_least_one:
        if row and group[problem.node_class[row[0]]] in classes:
            rows[group[problem.node_class[row[0]]]].append(row)
    return [_part(problem, classes[g], nodes[g], rows[g]) for g in classes]


def _groups(problem: Problem) -> list[int]:
    """The least class of each class's group. Classes that a node or a row connects form a group (union-find)."""
    first = list(range(problem.n_classes))

    def find(c: int) -> int:
        while first[c] != c:
            first[c] = first[first[c]]
            c = first[c]
        return c

    links = [(c, d) for c, kids in zip(problem.node_class, problem.children, strict=True) for d in kids]
    for row in problem.at_least_one:
        links += [(problem.node_class[row[0]], problem.node_class[i]) for i in row[1:]]
    for c, d in links:
        a, b = find(c), find(d)
        first[max(a, b)] = min(a, b)
    return [find(c) for c in range(problem.n_classes)]


def _part(problem: Problem, classes: list[int], nodes: list[int], rows: list[tuple[int, ...]]) -> Part:
    place = {c: k for k, c in enumerate(classes)}
    index = {i: k for k, i in enumerate(nodes)}
    small = Problem(
        node_class=[place[problem.node_class[i]] for i in nodes],
        node_cost=[problem.node_cost[i] for i in nodes],
        children=[tuple(place[d] for d in problem.children[i]) for i in nodes],
        n_classes=len(classes),
        roots=tuple(place[r] for r in problem.roots if r in place),
        at_least_one=[tuple(index[i] for i in row) for row in rows],
    )
    return Part(small, classes, nodes)
