"""The linear relaxation of an extraction problem, tightened by cuts, with bounds that do not rely on the solver.

Columns are x (one per node, 1 = chosen) and y (one per class, 1 = used), all in [0, 1] and y = 1 at roots. Rows are

    sum of x over the nodes of c                     = y_c      for each class c
    sum of x over the nodes of c that need d        <= y_d      for each class c and each non-root child d of it

and cuts (see `eqsat.extract.solver.blocking`), including the problem's at_least_one rows.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eqsat.extract.solver.blocking import Cut
from eqsat.extract.solver.highs import Arrays, Rows, quiet_solver
from eqsat.extract.solver.problem import Problem

if TYPE_CHECKING:
    import highspy

SCALED_COST = 1e4
"""Costs are scaled so that the known answer costs this: the solver's tolerances are absolute (1e-7)."""

SIMPLE_ROWS = 5_000
"""In programs of at most so many rows, presolve takes longer than it saves."""

PRESOLVE_ROWS = 60_000
"""Larger programs are solved without presolve, so that a solve that runs out of time still leaves duals for a bound."""

NO_LIMIT = 2**31 - 1

IDLE = 1e-9
"""A row that is not tight and has a smaller dual than this does not matter to the relaxation."""

WHOLE = 1e-6
"""A value this near to 0 or 1 counts as whole."""

NEAR = 0.6
"""Values from here on are fixed at 1 in a dive; if there are none, the largest."""


@dataclass(frozen=True, slots=True)
class Point:
    """An optimum of the relaxation, or the point that the solver reached in its time.

    Attributes:
        x, y: node and class values.
        bound: a valid lower bound on every answer, in units of cost, not rounded.
        reduced: reduced cost of every node, in units of cost: an answer that uses it costs at least bound + reduced.
        reduced_use: the same for the classes.
        solved: whether this is an optimum.
        pivots: the number of simplex iterations.
        duals, activity: per row, for `Relaxation.purge`.
    """

    x: np.ndarray
    y: np.ndarray
    bound: float
    reduced: np.ndarray
    reduced_use: np.ndarray
    solved: bool
    pivots: int
    duals: np.ndarray
    activity: np.ndarray

    @property
    def whole(self) -> bool:
        """Whether each node is chosen or not."""
        return bool(np.all((self.x < WHOLE) | (self.x > 1 - WHOLE)))


class Relaxation:
    """The relaxation of ``problem`` as a growing linear program.

    Args:
        cuts: inequalities known to hold.
        known: cost of a known answer, for scaling.
    """

    def __init__(self, problem: Problem, cuts: list[Cut], known: float) -> None:
        self.problem = problem
        self.n = len(problem.node_class)
        self.columns = self.n + problem.n_classes
        self.scale = max(known, 1.0) / SCALED_COST
        self.lower = np.zeros(self.columns)
        self.lower[[self.n + r for r in problem.roots]] = 1.0
        self.upper = np.ones(self.columns)
        self.cost = np.zeros(self.columns)
        self.cost[: self.n] = np.array(problem.node_cost, float) / self.scale
        self.cuts: list[Cut] = []
        structure = self._structure().arrays()
        self.fixed_rows = len(structure)
        self._rows = structure.then(self._of_cuts(cuts))
        self._solver = self._load()

    @property
    def n_rows(self) -> int:
        """The number of rows, including cuts."""
        return len(self._rows)

    def _structure(self) -> Rows:
        rows = Rows()
        n, roots = self.n, set(self.problem.roots)
        for c, members in enumerate(self.problem.members()):
            rows.add([*members, n + c], [1.0] * len(members) + [-1.0], 0.0, 0.0)
            users: dict[int, list[int]] = {}
            for i in members:
                for d in self.problem.children[i]:
                    users.setdefault(d, []).append(i)
            for d, nodes in users.items():
                if d in roots:
                    continue
                if len(nodes) == len(members):
                    rows.add([n + c, n + d], [1.0, -1.0], -math.inf, 0.0)
                else:
                    rows.add([*nodes, n + d], [1.0] * len(nodes) + [-1.0], -math.inf, 0.0)
        return rows

    def _of_cuts(self, cuts: list[Cut]) -> Arrays:
        """The rows of these cuts, which are now among its cuts."""
        rows = Rows()
        for cut in cuts:
            rows.add([*cut.nodes, self.n + cut.target], [1.0] * len(cut.nodes) + [-1.0], 0.0, math.inf)
        self.cuts += cuts
        return rows.arrays()

    def model(self, integral: bool = False) -> highspy.HighsLp:
        """The program with all its rows; ``integral`` makes x integral."""
        import highspy

        lp = highspy.HighsLp()
        lp.num_col_ = self.columns
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = self.cost, self.lower, self.upper
        self._rows.fill(lp)
        if integral:
            kinds = [highspy.HighsVarType.kInteger] * self.n
            lp.integrality_ = kinds + [highspy.HighsVarType.kContinuous] * (self.columns - self.n)
        return lp

    def _load(self) -> highspy.Highs:
        solver = quiet_solver()
        if not SIMPLE_ROWS < len(self._rows) <= PRESOLVE_ROWS:
            solver.setOptionValue("presolve", "off")
        solver.addVars(self.columns, self.lower, self.upper)
        solver.changeColsCost(self.columns, np.arange(self.columns, dtype=np.int32), self.cost)
        self._rows.append_to(solver)
        return solver

    def add(self, cuts: list[Cut]) -> None:
        """Append cuts; the next `solve` starts from the last basis."""
        new = self._of_cuts(cuts)
        new.append_to(self._solver)
        self._rows = self._rows.then(new)

    def forbid(self, nodes: np.ndarray) -> None:
        """Fix the x of these nodes at 0."""
        self.upper[nodes] = 0.0
        self._set_bounds(nodes)

    def dive(self, point: Point, cutoff: float, deadline: float, pivots: int) -> Point | None:
        """A point of whole values near another: what is nearest to 1 is fixed there, and the rest is solved again.

        None if it would cost more than ``cutoff`` or take more than so many simplex iterations, or time is up. The next
        `solve` starts as if there had been no dive.
        """
        basis, lower = self._solver.getBasis(), self.lower.copy()
        at: Point | None = point
        while at is not None and not at.whole:
            open_ = np.flatnonzero((at.x > WHOLE) & (at.x < 1 - WHOLE))
            near = open_[at.x[open_] >= NEAR]
            self.lower[near if near.size else open_[np.argmax(at.x[open_])]] = 1.0
            self._set_bounds(open_)
            at = self.solve(deadline, pivots)
            pivots -= at.pivots if at is not None else 0
            if at is None or not at.solved or at.bound > cutoff or pivots <= 0:
                at = None
        raised = np.flatnonzero(self.lower != lower)
        self.lower = lower
        self._set_bounds(raised)
        self._solver.setBasis(basis)
        return at

    def _set_bounds(self, columns: np.ndarray) -> None:
        """Tell the solver the present bounds of these columns."""
        self._solver.changeColsBounds(len(columns), columns.astype(np.int32), self.lower[columns], self.upper[columns])

    def purge(self, point: Point) -> None:
        """Remove the cuts that are neither tight nor have a dual at ``point``."""
        rows = self._rows
        idle = (np.abs(point.duals) < IDLE) & (point.activity - rows.low > 1e-6)
        idle[: self.fixed_rows] = False
        gone = np.flatnonzero(idle)
        if not gone.size:
            return
        self._solver.deleteRows(len(gone), gone.astype(np.int32))
        keep = ~idle
        self._rows = rows.select(keep)
        self.cuts = [cut for cut, kept in zip(self.cuts, keep[self.fixed_rows :].tolist(), strict=True) if kept]

    def solve(self, deadline: float, pivots: int = NO_LIMIT) -> Point | None:
        """Solve in at most ``pivots`` simplex iterations; None if the rows and forbidden nodes are infeasible."""
        import highspy

        solver = self._solver
        solver.setOptionValue("time_limit", solver.getRunTime() + max(0.01, deadline - time.monotonic()))
        solver.setOptionValue("simplex_iteration_limit", pivots)
        solver.run()
        status = solver.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            return None
        solution = solver.getSolution()
        values = np.clip(np.array(solution.col_value), 0.0, 1.0)
        duals = np.array(solution.row_dual)
        if len(values) != self.columns or len(duals) != len(self._rows):
            values, duals = np.zeros(self.columns), np.zeros(len(self._rows))
        bound, reduced = self.safe_bound(duals)
        n = self.n
        return Point(
            x=values[:n],
            y=values[n:],
            bound=bound * self.scale,
            reduced=reduced[:n] * self.scale,
            reduced_use=reduced[n:] * self.scale,
            solved=status == highspy.HighsModelStatus.kOptimal,
            pivots=max(0, solver.getInfo().simplex_iteration_count),
            duals=duals,
            activity=np.array(solution.row_value),
        )

    def safe_bound(self, duals: np.ndarray) -> tuple[float, np.ndarray]:
        """The Lagrangian bound for any duals, and the reduced costs (Neumaier and Shcherbina 2004).

        It is valid for any solver tolerances, and also for duals of a solve that ran out of time.
        """
        rows = self._rows
        duals = np.where((duals > 0.0) & np.isinf(rows.low), 0.0, duals)
        duals = np.where((duals < 0.0) & np.isinf(rows.high), 0.0, duals)
        sides = np.where(duals > 0.0, rows.low, rows.high)
        sides[duals == 0.0] = 0.0
        reduced = self.cost - np.bincount(rows.index, weights=duals[rows.row] * rows.value, minlength=self.columns)
        at = np.where(reduced > 0.0, self.lower, self.upper)
        return float(duals @ sides + reduced @ at), reduced
