"""Extraction with negative costs: using a class may lower the cost, if something that is used needs it.

Dominance and every bound in `eqsat.extract.solver.solve` assume that needing fewer classes never costs more, which is
false here. So the original problem goes to branch and bound, starting from an answer that was improved by single
changes. Columns are x for each node and y for each class. Rows are

    sum of x over the nodes of c = y of c <= 1,  y of a root = 1
    sum of x over the nodes of c that need d <= y of d
    y of c <= sum of x over the nodes that need c, for all but roots: no class is used without need
    levels that rule out cycles inside each strongly connected component

Since no used class is in a cycle, going from a class to its users always ends at a root, so the solutions are exactly
the answers.

The program is solved in floats, whose error is a share of the largest cost. Where there are few answers, all are tried.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product

import numpy as np

from eqsat.base.graphs import components
from eqsat.base.interrupt import Interruptible
from eqsat.errors import CheckFailed
from eqsat.extract.solver.greedy import NO_NODE, greedy_tree
from eqsat.extract.solver.highs import Rows, quiet_solver
from eqsat.extract.solver.problem import Problem, Solution, used_choice
from eqsat.extract.solver.reduce import Reduction
from eqsat.extract.solver.solve import solve
from eqsat.extract.solver.state import PROVEN

FIRST_SHARE, CLIMB_SHARE = 0.1, 0.2
"""Shares of the time for the starting answer: to find the cheapest with negative costs taken as 0, and to improve it
by single changes."""

LATE_SHARE = 0.05
"""The share of the time after which the branch and bound is given up, also while its rows are still made."""

FEW = 1 << 16
"""Choices of a node for each class, times classes, of which all are tried."""


def solve_signed(problem: Problem, costs: Sequence[int], time_limit: float) -> Solution:
    """The cheapest answer found within `time_limit` seconds, or until Ctrl-C, with a proven lower bound.

    Args:
        problem: the problem, in which negative costs are replaced by 0; it has no `at_least_one` rows.
        costs: the cost of each node, an integer of any sign.

    Raises:
        Underivable: a root has no acyclic derivation.
    """
    begun = time.monotonic()
    reduction = Reduction(problem)
    reduction.drop_underivable()
    reduction.drop_unreachable()
    members = reduction.members
    if len(members) * math.prod(map(len, members.values())) <= FEW:
        best = min(_answers(problem, members), key=lambda choice: _total(choice, costs))
        least = _total(best, costs)
        return Solution(best, least, least, True, time.monotonic() - begun)
    choice = solve(problem, FIRST_SHARE * time_limit).choice
    choice = _climbed(problem, costs, choice, begun + (FIRST_SHARE + CLIMB_SHARE) * time_limit)
    cost = _total(choice, costs)
    bound = _trivial_bound(problem, costs)
    deadline = begun + time_limit
    unit = max((abs(costs[i]) for nodes in members.values() for i in nodes), default=0) or 1

    def by_branch_and_bound() -> tuple[list[int] | None, float]:
        model = _Model(reduction, [cost / unit for cost in costs])
        nodes, proven = model.solve(choice, deadline - time.monotonic())
        return nodes, proven * unit

    left = deadline - time.monotonic()
    found = Interruptible().run(by_branch_and_bound, None, seconds=left + LATE_SHARE * time_limit if left > 0 else 0.0)
    if found is not None:
        nodes, proven = found
        if nodes is not None:
            better = used_choice(problem, {problem.node_class[i]: i for i in nodes})
            if _total(better, costs) < cost:
                choice, cost = better, _total(better, costs)
        if math.isfinite(proven):
            step = math.gcd(*costs) or 1
            lost = PROVEN * max(abs(cost), unit)
            bound = max(bound, min(cost, step * math.ceil((proven - lost) / step)))
    return Solution(choice, cost, bound, bound == cost, time.monotonic() - begun)


def _answers(problem: Problem, members: Mapping[int, Iterable[int]]) -> Iterator[dict[int, int]]:
    """All answers, some more than once."""
    for nodes in product(*members.values()):
        with suppress(CheckFailed):  # a cycle
            yield used_choice(problem, dict(zip(members, nodes, strict=True)))


def _total(choice: dict[int, int], costs: Sequence[int]) -> int:
    return sum(costs[i] for i in choice.values())


def _climbed(problem: Problem, costs: Sequence[int], known: dict[int, int], deadline: float) -> dict[int, int]:
    """The answer after changing nodes of single classes for as long as that makes it cheaper."""
    members = problem.members()
    standing = {c: i for c, i in enumerate(greedy_tree(problem)) if i != NO_NODE} | known
    best, cost = known, _total(known, costs)
    better = True
    while better:
        better = False
        for c in list(best):
            for i in members[c]:
                if i == best.get(c) or c not in best or any(d not in standing for d in problem.children[i]):
                    continue
                if time.monotonic() > deadline:
                    return best
                with suppress(CheckFailed):  # the change creates a cycle
                    tried = used_choice(problem, standing | {c: i})
                    if _total(tried, costs) < cost:
                        best, cost, better = tried, _total(tried, costs), True
                        standing[c] = i
    return best


def _trivial_bound(problem: Problem, costs: Sequence[int]) -> int:
    lowest: dict[int, int] = {}
    for c, cost in zip(problem.node_class, costs, strict=True):
        lowest[c] = min(cost, lowest.get(c, 0))
    return sum(lowest.values())


class _Model:
    """The program for HiGHS: a column for each remaining node and class, and levels.

    Attributes:
        members: the remaining nodes of each remaining class.
    """

    def __init__(self, reduction: Reduction, costs: Sequence[float]) -> None:
        """`costs` are of the nodes, at most 1 in size."""
        self.members = {c: list(m) for c, m in reduction.members.items()}
        self._kids = {i: sorted(reduction.kids[i]) for m in self.members.values() for i in m}
        self._node = {i: k for k, i in enumerate(self._kids)}
        self._class = {c: len(self._node) + k for k, c in enumerate(self.members)}
        self._costs = [costs[i] for i in self._node]
        self._roots = set(reduction.roots)
        self._rows = Rows()
        self._level: dict[int, int] = {}
        """Column of the level of each class in a component of several classes."""
        self._levels: list[float] = []
        """The largest value of each level."""
        self._choose()
        self._need()
        self._rule_out_cycles()

    def _choose(self) -> None:
        for c, nodes in self.members.items():
            y = self._class[c]
            self._rows.add([y, *(self._node[i] for i in nodes)], [-1.0] + [1.0] * len(nodes), 0.0, 0.0)

    def _need(self) -> None:
        users: dict[int, list[int]] = {c: [] for c in self.members}
        for c, nodes in self.members.items():
            needing: dict[int, list[int]] = {}
            for i in nodes:
                for d in self._kids[i]:
                    needing.setdefault(d, []).append(self._node[i])
                    users[d].append(self._node[i])
            for d, columns in needing.items():
                if d != c:
                    self._rows.add([self._class[d], *columns], [1.0] + [-1.0] * len(columns), 0.0, np.inf)
        for c, columns in users.items():
            if c not in self._roots:
                self._rows.add([self._class[c], *columns], [-1.0] + [1.0] * len(columns), 0.0, np.inf)

    def _rule_out_cycles(self) -> None:
        """Level(c) - level(d) - k s >= 1 - k in a component of k classes; s sums x over the nodes of c that need d."""
        needs = {c: dict.fromkeys(d for i in m for d in self._kids[i]) for c, m in self.members.items()}
        first = len(self._node) + len(self._class)
        for group in components(needs):
            k = len(group)
            if k == 1:
                continue
            level = {c: first + len(self._levels) + j for j, c in enumerate(group)}
            self._level |= level
            self._levels += [k - 1.0] * k
            for c in group:
                for d in (d for d in needs[c] if d in level):
                    users = [self._node[i] for i in self.members[c] if d in self._kids[i]]
                    self._rows.add(
                        [level[c], level[d], *users], [1.0, -1.0] + [-float(k)] * len(users), 1.0 - k, np.inf
                    )

    def solve(self, known: dict[int, int], seconds: float) -> tuple[list[int] | None, float]:
        """(nodes of the best answer or None, a lower bound of the costs or minus infinity)."""
        import highspy

        n, m, k = len(self._node), len(self._class), len(self._levels)
        lp = highspy.HighsLp()
        lp.num_col_ = n + m + k
        lp.col_cost_ = np.array([*self._costs, *[0.0] * (m + k)])
        lp.col_lower_ = np.array([0.0] * n + [float(c in self._roots) for c in self._class] + [0.0] * k)
        lp.col_upper_ = np.array([1.0] * (n + m) + self._levels)
        kinds = highspy.HighsVarType
        lp.integrality_ = [kinds.kInteger] * (n + m) + [kinds.kContinuous] * k
        self._rows.arrays().fill(lp)
        solver = quiet_solver()
        solver.passModel(lp)
        for option, value in {"time_limit": max(0.0, seconds), "mip_rel_gap": 0.0, "mip_abs_gap": PROVEN}.items():
            solver.setOptionValue(option, value)
        start = highspy.HighsSolution()
        start.col_value = self._columns(known)
        solver.setSolution(start)
        solver.run()
        info = solver.getInfo()
        nodes = None
        if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
            values = solver.getSolution().col_value
            nodes = [i for i, column in self._node.items() if values[column] > 0.5]
        return nodes, float(info.mip_dual_bound)

    def _columns(self, choice: dict[int, int]) -> list[float]:
        """An answer as column values; levels are positions in an operands-first order within each component."""
        values = [0.0] * (len(self._node) + len(self._class) + len(self._levels))
        waiting = {c: len(self._kids[i]) for c, i in choice.items()}
        users: dict[int, list[int]] = {c: [] for c in choice}
        for c, i in choice.items():
            values[self._node[i]] = values[self._class[c]] = 1.0
            for d in self._kids[i]:
                users[d].append(c)
        ready = [c for c, n in waiting.items() if n == 0]
        for c in ready:  # the list grows during the loop
            inside = (self._level[d] for d in self._kids[choice[c]] if d in self._level)
            if c in self._level:
                values[self._level[c]] = 1.0 + max((values[column] for column in inside), default=-1.0)
            for user in users[c]:
                waiting[user] -= 1
                if not waiting[user]:
                    ready.append(user)
        return values
