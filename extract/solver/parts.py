"""Independent parts: classes that share nothing are solved separately, and their costs and bounds are added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

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
    if not problem.roots:
        return []
    group = _groups(problem) if len(problem.roots) > 1 else []
    rooted = dict.fromkeys(group[r] for r in sorted(problem.roots)) if group else ()
    if len(rooted) < 2:
        return [Part(problem, list(range(problem.n_classes)), list(range(len(problem.node_class))))]
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
    """The least class of each class's group. Classes that a node or a row connects form a group."""
    of_node = np.array(problem.node_class, np.int64)
    rows = [row for row in problem.at_least_one if row]
    kids = _flat(problem.children)
    own = np.repeat(of_node, [len(k) for k in problem.children])
    first = np.repeat(of_node[_flat([row[:1] for row in rows])], [len(row) for row in rows])
    one, other = np.concatenate([own, first]), np.concatenate([kids, of_node[_flat(rows)]])
    least = np.arange(problem.n_classes)
    while True:  # each class knows a class of its group that stands for itself; links join two such classes
        a, b = least[one], least[other]
        apart = a != b
        if not apart.any():
            return least.tolist()
        one, other, a, b = one[apart], other[apart], a[apart], b[apart]
        np.minimum.at(least, np.maximum(a, b), np.minimum(a, b))
        while not np.array_equal(least, nearer := least[least]):
            least = nearer


def _flat(lists: Sequence[Sequence[int]]) -> np.ndarray:
    return np.fromiter(chain.from_iterable(lists), np.int64)


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
