"""Search when the relaxation leaves a gap: branch and bound for proofs, large neighbourhoods for better answers.

Both work on a compact problem, the remainder of a reduction. They count effort in nodes and tries, not in seconds, so
that a run that ends before its deadline gives the same result every time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eqsat.base.graphs import components
from eqsat.extract.solver.highs import Rows, quiet_solver
from eqsat.extract.solver.problem import Problem
from eqsat.extract.solver.relax import Relaxation

if TYPE_CHECKING:
    import highspy

MIP_GAP = 1e-9

FIRST_FREE = 12
"""Classes that the first neighbourhood frees."""

WIDEN, NARROW = 1.3, 0.7
"""How neighbourhoods grow after a complete search without success, and shrink after one that was too large."""

REACH = 10
"""Unused classes that a neighbourhood may use, per class that it frees."""


@dataclass(frozen=True, slots=True)
class Branched:
    """The result of branch and bound.

    Attributes:
        nodes: the nodes of an answer, or None.
        bound: a lower bound on answers that cost at most the cutoff, in units of cost.
        finished: whether the search was completed.
    """

    nodes: list[int] | None
    bound: float
    finished: bool


def branch(relaxation: Relaxation, cutoff: float, max_nodes: int, deadline: float) -> Branched:
    """Solve the relaxation with integral x by HiGHS, for answers that cost at most ``cutoff``."""
    import highspy

    solver = quiet_solver()
    solver.passModel(relaxation.model(integral=True))
    _add_levels(solver, relaxation)
    for option, value in {
        "time_limit": max(0.01, deadline - time.monotonic()),
        "mip_max_nodes": max_nodes,
        "mip_rel_gap": MIP_GAP,
        "mip_abs_gap": MIP_GAP,
        "objective_bound": cutoff / relaxation.scale,
    }.items():
        solver.setOptionValue(option, value)
    solver.run()
    status, info = solver.getModelStatus(), solver.getInfo()
    if status == highspy.HighsModelStatus.kInfeasible:
        return Branched(None, cutoff, True)
    nodes = None
    if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
        values = np.array(solver.getSolution().col_value)[: relaxation.n]
        nodes = np.flatnonzero(values > 0.5).tolist()
    bound = min(cutoff, float(info.mip_dual_bound) * relaxation.scale)
    return Branched(nodes, bound, status == highspy.HighsModelStatus.kOptimal)


def _add_levels(solver: highspy.Highs, relaxation: Relaxation) -> None:
    """Rule out cycles: in a component of k classes each class has a level above those of the children it uses there.

    With s the sum of x over the nodes of class c that need child d: level(c) - level(d) - k s >= 1 - k.
    """
    problem = relaxation.problem
    members = problem.members()
    children = {c: dict.fromkeys(d for i in m for d in problem.children[i]) for c, m in enumerate(members)}
    rows = Rows()
    levels = 0
    for group in components(children):
        k = len(group)
        if k == 1:
            continue
        level = {c: relaxation.columns + levels + j for j, c in enumerate(group)}
        levels += k
        solver.addVars(k, np.zeros(k), np.full(k, k - 1.0))
        for c in group:
            for d in children[c]:
                if d in level:
                    users = [i for i in members[c] if d in problem.children[i]]
                    rows.add([level[c], level[d], *users], [1.0, -1.0] + [-float(k)] * len(users), 1.0 - k, np.inf)
    if levels:
        rows.arrays().append_to(solver)


class Neighbourhoods:
    """Finds better answers of a problem by freeing a few classes of the best answer and solving for them.

    A neighbourhood fixes the node of every used class except the freed classes, which are near a random class, and lets
    these use unused classes near them. The remaining problem is small after reduction, and ``solve`` solves it.

    Args:
        answer: class -> node for the classes that a valid answer uses.
        solve: (problem, known answer) -> (best answer found, whether it is proven best).
    """

    def __init__(
        self,
        problem: Problem,
        answer: Mapping[int, int],
        solve: Callable[[Problem, dict[int, int]], tuple[dict[int, int], bool]],
    ) -> None:
        self.problem = problem
        self.answer = dict(answer)
        self._solve = solve
        self._random = random.Random(0)
        self._members = problem.members()
        self._parents = problem.parents()
        self._size = float(FIRST_FREE)
        self._wide = False

    def improve(self, tries: int, most: float, late: Callable[[], bool]) -> bool:
        """Search around the best answer until ``tries`` in a row fail, or these had ``most`` nodes in all. True if any
        succeeded."""
        improved, left = False, most
        vain = 0
        while vain < tries and left > 0 and (choices := self._choices()) and not late():
            vain += 1
            free = self._free(choices)
            small, index = self._restrict(free)
            left -= len(index)
            position = {i: k for k, i in enumerate(index)}
            known = {small.node_class[position[i]]: position[i] for i in self.answer.values()}
            found, proven = self._solve(small, known)
            before = sum(self.problem.node_cost[i] for i in self.answer.values())
            after = sum(small.node_cost[k] for k in found.values())
            if after < before:
                self.answer = {self.problem.node_class[index[k]]: index[k] for k in found.values()}
                improved, vain, left = True, 0, most
            elif proven and len(free) == len(choices):
                break  # there is no wider one
            elif proven:
                self._size = min(self._size * WIDEN, float(len(self.answer)))
            else:
                self._size = max(self._size * NARROW, 2.0)
        return improved

    def _choices(self) -> list[int]:
        return [c for c in self.answer if len(self._members[c]) > 1]

    def _free(self, choices: Sequence[int]) -> set[int]:
        """Some of the used classes that have a choice, near a random one; every other time, unused edges count too."""
        self._wide = not self._wide
        seen = [self._random.choice(choices)]
        known = set(seen)
        free: set[int] = set()
        for c in seen:
            if c in self.answer and len(self._members[c]) > 1:
                free.add(c)
            if len(free) >= self._size:
                break
            further = [d for d in self._near(c) if d not in known]
            self._random.shuffle(further)
            known.update(further)
            seen += further
        return free

    def _near(self, c: int) -> list[int]:
        """Classes one edge away, over the edges of all nodes or of the answer's nodes only."""
        kids, cls = self.problem.children, self.problem.node_class
        if self._wide:
            found = [d for i in self._members[c] for d in kids[i]] + [cls[i] for i in self._parents[c]]
        else:
            found = [cls[i] for i in self._parents[c] if self.answer.get(cls[i]) == i]
            if c in self.answer:
                found += kids[self.answer[c]]
        return list(dict.fromkeys(found))

    def _restrict(self, free: set[int]) -> tuple[Problem, list[int]]:
        """The neighbourhood as a problem, and the original number of each of its nodes."""
        limit = REACH * len(free)
        reach = dict.fromkeys(c for c in self.answer if c in free)
        order = list(reach)
        for c in order:
            for i in self._members[c]:
                for d in self.problem.children[i]:
                    if d not in self.answer and d not in reach and len(reach) < limit:
                        reach[d] = None
                        order.append(d)
        classes = {c: k for k, c in enumerate([*(c for c in self.answer if c not in free), *reach])}
        index = [self.answer[c] for c in self.answer if c not in free]
        for c in reach:
            index += [i for i in self._members[c] if all(d in classes for d in self.problem.children[i])]
        small = Problem(
            node_class=[classes[self.problem.node_class[i]] for i in index],
            node_cost=[self.problem.node_cost[i] for i in index],
            children=[tuple(classes[d] for d in self.problem.children[i]) for i in index],
            n_classes=len(classes),
            roots=tuple(classes[r] for r in self.problem.roots),
        )
        return small, index
