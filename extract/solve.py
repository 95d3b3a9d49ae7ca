"""The extraction pipeline: greedy answers, reductions, a relaxation with blocking-set cuts, and search for what is left.

Each stage hands the next one a smaller problem and a smaller gap between the best known answer and the bound:

1. greedy answers on the whole graph;
2. reductions to a fixpoint (`eqsat.extract.reduce`);
3. rounds of relaxation, rounding, fixing by reduced cost, and cuts (`eqsat.extract.relax`, `eqsat.extract.blocking`);
   once enough nodes are fixed, back to 2;
4. a mixed-integer program over what is left (`eqsat.extract.search`).

Every answer passes the checker. Nothing depends on time except where a limit cuts a stage short.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from eqsat.errors import InputError
from eqsat.extract.blocking import BlockingSets
from eqsat.extract.greedy import NO_NODE, greedy_dag
from eqsat.extract.problem import Problem, Solution, check, underivable, used_choice
from eqsat.extract.reduce import Reduction
from eqsat.extract.relax import Point, Relaxation

PROVEN = 1e-8
"""A bound within this share of the cost proves it: what floating point leaves of an exact proof."""

CUTS_A_ROUND = 60
INSIDE = 0.5
"""Share of the smoothed point in the point to separate (in-out separation, Ben-Ameur and Neto 2007)."""

CREEP_SCALE = 5e-5
"""Reduced cost, as a share of the known cost, at which the charge for idle exits is halved."""

PURGE_EVERY = 5
ROUND_EVERY = 8
REBUILD_SHARE = 0.2
"""Share of the nodes fixed at which reducing again pays."""

STALL_ROUNDS = 40
STALL_SHARE = 1e-3
"""The cut rounds end when so many of them close less than this share of the gap."""

GREEDY_SHARE = 0.2


class Search:
    """The state that the stages share: the best answer, the best bound and the deadline."""

    def __init__(self, problem: Problem, time_limit: float, should_stop: Callable[[], bool] | None) -> None:
        self.problem = problem
        self.start = time.monotonic()
        self.deadline = self.start + time_limit
        self._should_stop = should_stop
        self.choice: dict[int, int] | None = None
        self.cost = 0
        self.bound = 0
        self.step = math.gcd(*problem.node_cost) or 1
        self.stats: dict[str, Any] = {}

    def late(self) -> bool:
        """Whether to return with what there is."""
        return time.monotonic() > self.deadline or (self._should_stop is not None and self._should_stop())

    def offer(self, choice: Mapping[int, int], source: str) -> bool:
        """Check an answer and keep it where it is the cheapest so far."""
        cost = check(self.problem, choice)
        if self.choice is not None and cost >= self.cost:
            return False
        self.choice, self.cost = used_choice(self.problem, choice), cost
        self.stats.setdefault("answers", []).append((source, cost, round(time.monotonic() - self.start, 3)))
        return True

    @property
    def slack(self) -> float:
        """What floating point may have lost in a bound."""
        return PROVEN * self.cost

    @property
    def cutoff(self) -> float:
        """Answers that cost more than this are not better than the known one."""
        return self.cost - self.step + self.slack

    def raise_bound(self, bound: float) -> None:
        """Take a valid lower bound, rounded up to the next cost that an answer can have."""
        exact = self.step * math.ceil((bound - self.slack) / self.step)
        self.bound = max(self.bound, min(exact, self.cost))
        if self.cost - self.bound <= 2 * self.slack:
            self.bound = self.cost

    @property
    def proven(self) -> bool:
        return self.bound == self.cost


def solve(
    problem: Problem,
    time_limit: float,
    incumbents: Sequence[Mapping[int, int]] = (),
    should_stop: Callable[[], bool] | None = None,
) -> Solution:
    """The cheapest answer found within ``time_limit`` seconds, with a proven lower bound.

    Args:
        incumbents: answers known beforehand (class to node); each is checked, the result is never costlier.
        should_stop: polled between steps; True ends the search with what there is.

    Raises:
        InputError: a root has no acyclic derivation.
        CheckFailed: an incumbent is no valid answer, or misses an ``at_least_one`` row.
    """
    bad = underivable(problem)
    if bad is not None:
        raise InputError(f"extraction: root class {bad} has no acyclic derivation; give it a node that can be built")
    search = Search(problem, time_limit, should_stop)
    for known in incumbents:
        search.offer(known, "given")
    _greedy(search)
    reduction = Reduction(problem)
    reduction.run(search.deadline)
    while not _settled(search, reduction) and not search.late():
        if not _tighten(search, reduction):
            break
    assert search.choice is not None
    search.stats["reduced"] = dict(reduction.removed)
    return Solution(
        choice=search.choice,
        cost=search.cost,
        lower_bound=search.bound,
        optimal=search.proven,
        seconds=time.monotonic() - search.start,
        stats=search.stats,
    )


def _greedy(search: Search) -> None:
    problem = search.problem
    stop = search.start + GREEDY_SHARE * (search.deadline - search.start)
    picks = greedy_dag(problem.members(), problem.node_class, problem.node_cost, problem.children, stop)
    search.offer({c: i for c, i in enumerate(picks) if i != NO_NODE}, "greedy")


def _settled(search: Search, reduction: Reduction) -> bool:
    """Whether the reductions alone decide the problem."""
    if reduction.infeasible:
        search.raise_bound(search.cost)
        return True
    if not reduction.members:
        search.offer(reduction.expand([]), "reduced")
        search.raise_bound(search.cost)
        return True
    return False


def _tighten(search: Search, reduction: Reduction) -> bool:
    """Rounds of relaxation and cuts on what is left; True where enough was fixed for the reductions to go on."""
    problem, nodes, cuts = reduction.remainder()
    n = len(nodes)
    relaxation = Relaxation(problem, cuts, search.cost)
    sets = BlockingSets(problem)
    smooth: tuple[np.ndarray, np.ndarray] | None = None
    alive = n
    history: list[int] = []
    rounds = 0
    while not search.late():
        point = relaxation.solve(search.deadline)
        if point is None:
            search.raise_bound(search.cost)
            return False
        search.raise_bound(reduction.constant + point.bound)
        if search.proven or not point.solved:
            return False
        _round(search, reduction, problem, nodes, point, rounds)
        search.raise_bound(reduction.constant + point.bound)
        if search.proven:
            return False
        hopeless = np.flatnonzero(
            (reduction.constant + point.bound + point.reduced > search.cutoff) & (relaxation.upper[:n] > 0)
        )
        relaxation.forbid(hopeless)
        alive -= len(hopeless)
        if n - alive > REBUILD_SHARE * n:
            relaxation.purge(point)
            gone = np.flatnonzero(relaxation.upper[:n] == 0).tolist()
            reduction.forbid(gone, relaxation.cuts, nodes)
            reduction.run(search.deadline)
            search.stats["rounds"] = search.stats.get("rounds", 0) + rounds
            return True
        x, y = point.x, point.y
        if smooth is None:
            smooth = x, y
        near = (1 - INSIDE) * x + INSIDE * smooth[0], (1 - INSIDE) * y + INSIDE * smooth[1]
        smooth = (x + smooth[0]) / 2, (y + smooth[1]) / 2
        scale = CREEP_SCALE * search.cost
        new = sets.find(*near, point.reduced, scale, CUTS_A_ROUND)
        if not new:
            new = sets.find(x, y, point.reduced, scale, CUTS_A_ROUND) or sets.unfounded(x, y)
        if rounds % PURGE_EVERY == PURGE_EVERY - 1:
            relaxation.purge(point)
        history.append(search.bound)
        rounds += 1
        if not new:
            break
        relaxation.add(new)
    search.stats["rounds"] = search.stats.get("rounds", 0) + rounds
    return False


def _round(search: Search, reduction: Reduction, problem: Problem, nodes: list[int], point: Point, rounds: int) -> None:
    """Offer the answer that the relaxation is, or suggests."""
    whole = np.all((point.x < 1e-6) | (point.x > 1 - 1e-6))
    if whole or rounds % ROUND_EVERY == 0:
        if whole:
            weight = np.where(point.x > 0.5, 0.0, 1.0)
        else:
            weight = np.array(problem.node_cost, float) * (1.0 - point.x + 1e-3)
        picks = greedy_dag(problem.members(), problem.node_class, weight.tolist(), problem.children, search.deadline)
        chosen = used_choice(problem, {c: i for c, i in enumerate(picks) if i != NO_NODE})
        search.offer(reduction.expand(nodes[i] for i in chosen.values()), "rounded")
