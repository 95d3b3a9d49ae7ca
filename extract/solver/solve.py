"""The extraction pipeline: greedy answers, reductions, a relaxation with blocking-set cuts, and search.

Each stage hands the next one a smaller problem and a smaller gap between the best known answer and the bound:

1. greedy answers on the whole graph;
2. reductions to a fixpoint (`eqsat.extract.solver.reduce`), after which independent parts are solved separately
   (`eqsat.extract.solver.parts`);
3. dual ascent (`eqsat.extract.solver.ascent`), then rounds of relaxation, rounding, fixing by reduced cost, and cuts
   (`eqsat.extract.solver.relax`, `eqsat.extract.solver.blocking`); once enough nodes are fixed, back to 2;
4. if a gap remains: a dive below the relaxation, as long as it finds better answers;
5. large neighbourhoods and branch and bound (`eqsat.extract.solver.search`), then 3 again, with twice the effort each
   time. A search that may settle ends there, or at neighbourhoods that gain nothing if the gap is wide.

Every answer passes the checker. Results do not depend on time, unless a limit ends a stage early.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf

import numpy as np

from eqsat.errors import CheckFailed, InputError
from eqsat.extract.solver.ascent import Ascent, ascend
from eqsat.extract.solver.blocking import BlockingSets, Cut
from eqsat.extract.solver.greedy import NO_NODE, forced_bound, greedy_dag, greedy_tree, longest_path_bound
from eqsat.extract.solver.parts import Part, split
from eqsat.extract.solver.problem import Problem, Solution, underivable, used_choice
from eqsat.extract.solver.reduce import Reduction
from eqsat.extract.solver.relax import Point, Relaxation
from eqsat.extract.solver.search import Neighbourhoods, branch
from eqsat.extract.solver.state import Search

GREEDY_SHARE = 0.15
REDUCE_SHARE = 0.3
ASCENT_SHARE = 0.6
"""Shares of the remaining time for a greedy answer, for the first reductions, and for a dual ascent. The best answers
come from the relaxation after it."""

SETTING_UP = 3
"""Time to prepare and use a dual ascent, and a relaxation, as multiples of the time to copy the problem."""

ASCENT_STEPS = 5_000_000

MIXED = 0.3
"""Share of the cost that is added to the reduced cost for greedy answers near a dual ascent."""

LARGE = 30_000
"""Neighbourhoods come before the relaxation if more nodes remain than this."""

CUT_ENTRIES = 500_000
"""Most entries in the cuts of a dual ascent that go to the relaxation; the first cuts raised go first."""

FIRST_SOLVE = 3
"""A single solve may take this multiple of the simplex iterations of all rounds before neighbourhoods are tried."""

FEW_COLUMNS = 200
"""Branch and bound is so quick in programs up to this size that a search that settles tries it even at a wide gap."""

CUTS_A_ROUND = 60

INSIDE = 0.5
"""Share of the smoothed point in the point to separate (in-out separation, Ben-Ameur and Neto 2007)."""

CREEP_SCALE = 5e-5
"""Reduced cost, as a share of the known cost, at which the charge for exits with x = 0 is halved."""

PURGE_EVERY = 5
ROUND_EVERY = 8

REBUILD_SHARE = 0.2
"""Share of fixed nodes from which reducing again is worthwhile."""

BRIEF = 5
"""Rounds in which a search that settles must narrow a wide gap."""

DIVES = 4
"""Dives without a better answer after which a search with a wide gap and without neighbourhoods ends."""

STALL_ROUNDS = 30
STALL_SHARE = 0.01
"""Rounds have stalled when this many of them close less than this share of the gap."""


@dataclass(frozen=True, slots=True)
class Effort:
    """Limits of each stage as counts, so that the result does not depend on the machine's speed.

    Attributes:
        rounds, pivots: cut rounds, and simplex iterations in them, before the search for answers starts; as many
            iterations in a dive.
        exact: sets to search exactly when growth finds none.
        tries: failed neighbourhoods before branch and bound starts.
        branches: nodes of branch and bound.
        columns: largest program for which branch and bound is tried.
        gap: where the gap is a larger share than this, neighbourhoods come before the relaxation; in a search that
            settles, after a few rounds of it, and it ends there.
        around: nodes of all neighbourhoods since the last better answer, as a multiple of the problem's.
        again: with twice the effort, until time is up; a search that settles ends without.
        enough: the search ends where at most this share of the cost lies between the best answer and the bound.
    """

    rounds: int
    pivots: int
    exact: int
    tries: int
    branches: int
    columns: int
    gap: float = 0.25
    around: float = inf
    again: bool = False
    enough: float = 0.0

    def doubled(self) -> Effort:
        """Twice the effort."""
        return replace(
            self,
            rounds=2 * self.rounds,
            pivots=2 * self.pivots,
            tries=2 * self.tries,
            branches=2 * self.branches,
            columns=2 * self.columns,
        )


FIRST = Effort(rounds=100, pivots=10_000, exact=8, tries=20, branches=100, columns=2_000, again=True)
SETTLING = Effort(rounds=25, pivots=3_000, exact=8, tries=8, branches=100, columns=2_000, gap=0.06, around=1.0)
CLOSE = replace(SETTLING, enough=0.005)
GLANCE = Effort(rounds=0, pivots=3_000, exact=0, tries=0, branches=0, columns=0, gap=0.06)
ONCE = replace(GLANCE, gap=inf)
IN_NEIGHBOURHOOD = Effort(rounds=25, pivots=2_000, exact=0, tries=0, branches=0, columns=0, gap=inf)
"""The effort that a search begins with: one that goes on until its time is up, one that settles, one that settles close
to the best, one that solves the relaxation once, or dives below it after a few rounds where the gap is wide, one that
always solves it once, and one of few classes of an answer."""


class Underivable(InputError):
    """``root``, a class, has no acyclic derivation."""

    def __init__(self, root: int) -> None:
        super().__init__(f"extraction: root class {root} has no acyclic derivation; give it a node that can be built")
        self.root = root


def solve(
    problem: Problem,
    time_limit: float,
    incumbents: Sequence[Mapping[int, int]] = (),
    should_stop: Callable[[], bool] | None = None,
    effort: Effort = FIRST,
    at_least: int | None = None,
) -> Solution:
    """The cheapest answer found within ``time_limit`` seconds, with a proven lower bound.

    Args:
        incumbents: known answers (class to node). Each is checked, and the result never costs more.
        should_stop: polled between steps; True ends the search with the best answer so far.
        effort: to begin with. `SETTLING` ends before the time is up, though nothing is proven: further rounds of
            neighbourhoods and relaxation hardly ever bring a better answer.
        at_least: a lower bound that is known already. It proves a known answer that costs as much.

    Raises:
        Underivable: a root has no acyclic derivation.
        CheckFailed: an incumbent is not a valid answer, or violates an ``at_least_one`` row.
    """
    bad = underivable(problem)
    if bad is not None:
        raise Underivable(bad)
    search = Search(problem, time.monotonic() + time_limit, should_stop, effort.enough)
    for known in incumbents:
        search.offer(known, "given")
    if search.choice is None or at_least is None:
        _solve_whole(search, effort)
    else:
        search.raise_bound(at_least, exact=True)
        if not search.done:
            _solve_whole(search, effort)
    assert search.choice is not None
    return Solution(
        choice=search.choice,
        cost=search.cost,
        lower_bound=search.bound,
        optimal=search.proven,
        seconds=time.monotonic() - search.start,
        hurried=search.hurried and not search.done,
        stats=search.stats,
    )


def _solve_whole(search: Search, effort: Effort) -> None:
    parts = split(search.problem)
    if len(parts) > 1:
        found, bound = _solve_parts(search, parts, search.choice, effort)
        search.offer(found, "parts")
        search.raise_bound(bound, exact=True)
    else:
        with search.stage("greedy"):
            _greedy(search)
        _run(search, effort)


def _solve_parts(
    search: Search, parts: Sequence[Part], known: Mapping[int, int] | None, effort: Effort
) -> tuple[dict[int, int], int]:
    """The best choices of all parts combined, and the sum of their bounds.

    Each part gets a share of the remaining time by its size. Unused time goes to the parts that are still open, with
    more effort.
    """
    searches = [Search(part.problem, search.deadline, search.should_stop, effort.enough) for part in parts]
    for part, small in zip(parts, searches, strict=True):
        small.seconds, small.counts = search.seconds, search.counts
        if known is not None:
            small.offer(part.restrict(known), "given")
    waiting = searches
    while waiting:
        left = sum(len(small.problem.node_class) for small in waiting)
        for small in waiting:
            size = len(small.problem.node_class)
            small.deadline = search.share(size / max(1, left))
            left -= size
            if small.choice is None or small.bound == 0:
                with search.stage("greedy"):
                    _greedy(small)
            _run(small, effort)
        again = [small for small in waiting if not small.proven]
        waiting = again if effort.again and len(again) < len(waiting) and not search.late() else []
        effort = effort.doubled()
    choice: dict[int, int] = {}
    for part, small in zip(parts, searches, strict=True):
        assert small.choice is not None
        choice |= part.extend(small.choice)
    search.hurried = search.hurried or any(small.hurried and not small.done for small in searches)
    return choice, sum(small.bound for small in searches)


def _greedy(search: Search) -> None:
    problem = search.problem
    quick = max(longest_path_bound(problem), forced_bound(problem))
    search.offer(_choice(greedy_tree(problem)), "tree")
    search.raise_bound(quick, exact=True)
    if search.done or search.late():
        return
    with search.within(GREEDY_SHARE) as end:
        search.offer(_choice(greedy_dag(problem, end)), "greedy")
    search.raise_bound(quick, exact=True)


def _choice(picks: Sequence[int]) -> dict[int, int]:
    return {c: i for c, i in enumerate(picks) if i != NO_NODE}


def _run(search: Search, effort: Effort) -> None:
    """Reduce, bound and search, with more effort each time that it is repeated, until the answer is proven or time is
    up."""
    if search.done or search.late():
        return
    started = time.monotonic()
    with search.stage("reduction"):
        reduction = Reduction(search.problem)
        search.a_pass = time.monotonic() - started
        with search.within(REDUCE_SHARE) as end:
            reduction.run(end)
    search.counts["left"] += sum(map(len, reduction.members.values()))
    going: Effort | None = effort
    while going and not _decided(search, reduction) and not search.done and not search.late(SETTING_UP):
        going = _Rest(search, reduction).exhaust(going)


def _decided(search: Search, reduction: Reduction) -> bool:
    """Whether the reductions alone decide the problem."""
    if not reduction.infeasible and reduction.members:
        return False
    if not reduction.infeasible:
        search.offer(reduction.expand([]), "reduced")
    search.raise_bound(search.cost, exact=True)
    return True


def _solve_small(search: Search, problem: Problem, known: dict[int, int]) -> tuple[dict[int, int], bool]:
    """The best answer found for a neighbourhood of ``search``, starting from a known one, and whether it is proven."""
    small = Search(problem, search.deadline, search.should_stop)
    small.offer(known, "given")
    _run(small, IN_NEIGHBOURHOOD)
    assert small.choice is not None
    return small.choice, small.proven


def _affordable(cuts: list[Cut]) -> list[Cut]:
    """The first cuts, with CUT_ENTRIES entries in total."""
    entries = np.cumsum([len(cut.nodes) for cut in cuts])
    return cuts[: int(np.searchsorted(entries, CUT_ENTRIES, side="right"))]


class _Rest:
    """The problem that remains after the reductions: bounded by dual ascent, then by the relaxation."""

    def __init__(self, search: Search, reduction: Reduction) -> None:
        self.search = search
        self.reduction = reduction
        self.problem, self.nodes, self._known_cuts = reduction.remainder()
        self._smooth: tuple[np.ndarray, np.ndarray] | None = None
        self._around: Neighbourhoods | None = None
        self._last: Point | None = None
        self._dived = -inf
        self._round = 0
        self._dry = False

    def exhaust(self, effort: Effort) -> Effort | None:
        """Bound and search until the reductions can continue (returns the effort for that) or all is done (None)."""
        search = self.search
        parts = split(self.problem)
        if len(parts) > 1:
            found, bound = _solve_parts(search, parts, self._answer(), effort)
            self._offer(found, "parts")
            search.raise_bound(self.reduction.constant + bound, exact=True)
            return None
        with search.stage("ascent"):
            with search.within(ASCENT_SHARE, SETTING_UP * search.a_pass) as end:
                ascent = ascend(self.problem, ASCENT_STEPS, end)
            self._use(ascent)
        if self._rule_out(ascent):
            return effort
        hard = len(self.nodes) > LARGE or (effort.again and self._is_wide(effort))
        if hard and effort.tries and self._neighbourhoods(effort) and self._rule_out(ascent):
            return effort
        if search.done or search.late(SETTING_UP):
            return None
        self.relaxation = Relaxation(self.problem, self._known_cuts + _affordable(ascent.cuts), search.cost)
        self.sets = BlockingSets(self.problem)
        lost = 0
        while not search.late():
            with search.stage("relaxation"):
                brief = not effort.again and self._is_wide(effort)  # a few rounds show whether they close it
                fixed = self._rounds(replace(effort, rounds=BRIEF) if brief else effort)
            search.counts["rows"] = max(search.counts["rows"], self.relaxation.n_rows)
            if fixed:
                gone = np.flatnonzero(self.relaxation.upper[: self.relaxation.n] == 0)
                self._drop(gone, self.relaxation.cuts)
                return effort
            if search.done:
                break
            if (effort.tries or self._is_wide(effort)) and self._dive(effort.pivots):
                continue
            lost += 1
            if self._last and not effort.tries and self._is_wide(effort) and lost < DIVES and not self._dry:
                continue  # where one dive is lost, the next may not be
            if effort.tries and brief and not self._is_wide(effort):
                continue
            if effort.tries and self._neighbourhoods(effort):
                continue
            if search.late() or (not effort.again and self._is_wide(effort) and self.relaxation.columns > FEW_COLUMNS):
                break
            if self.relaxation.columns <= effort.columns:
                self._branch(effort.branches)
            if search.done or not effort.again:
                break
            effort = effort.doubled()
        return None

    def _is_wide(self, effort: Effort) -> bool:
        """Whether much lies between the best answer and the bound."""
        return self.search.cost - self.search.bound > effort.gap * self.search.cost

    def _use(self, ascent: Ascent) -> None:
        """Use the bound of a dual ascent, and answers near it."""
        constant = self.reduction.constant
        self.search.raise_bound(constant + ascent.bound, exact=True)
        if self.search.done or self.search.late(SETTING_UP):
            return
        reduced = np.array(ascent.reduced, float)
        cost = np.array(self.problem.node_cost, float)
        for charge in (cost + (reduced > 0) * 2.0 * float(self.search.cost), reduced + MIXED * cost):
            self._offer(self._greedy(charge.tolist()), "ascent")
        self.search.raise_bound(constant + ascent.bound, exact=True)

    def _rule_out(self, ascent: Ascent) -> bool:
        """If a dual ascent excludes many nodes from better answers, drop these and reduce again."""
        least = self.reduction.constant + ascent.paid + np.array(ascent.reduced, float)
        gone = np.flatnonzero(least > self.search.cutoff)
        if self.search.done or self.search.late() or len(gone) <= REBUILD_SHARE * len(self.nodes):
            return False
        self._drop(gone, self._known_cuts)
        return True

    def _drop(self, gone: np.ndarray, cuts: list[Cut]) -> None:
        with self.search.stage("reduction"):
            self.reduction.forbid(gone.tolist(), cuts, self.nodes)
            self.reduction.run(self.search.deadline)

    def _rounds(self, effort: Effort) -> bool:
        """Rounds of relaxation and cuts. True once enough nodes are fixed for the reductions to continue."""
        search, relaxation = self.search, self.relaxation
        bounds: list[float] = []
        pivots = 0
        while not search.late():
            point = relaxation.solve(search.deadline, FIRST_SOLVE * effort.pivots)
            if point is None:
                search.raise_bound(search.cost, exact=True)
                return False
            search.raise_bound(self.reduction.constant + point.bound)
            if search.done or not point.solved:
                return False
            self._last = point
            self._offer_rounded(point)
            if search.done:
                return False
            if self._fix(point):
                relaxation.purge(point)
                return True
            bounds.append(point.bound)
            spent = pivots > effort.pivots or len(bounds) > effort.rounds
            pivots += point.pivots if self._round else 0  # the first solve has no basis to start from
            if self._dry or spent or self._stalled(bounds):
                return False
            cuts = self._separate(point, effort.exact)
            if self._round % PURGE_EVERY == PURGE_EVERY - 1:
                relaxation.purge(point)
            self._round += 1
            self._dry = not cuts
            search.counts["rounds"] += 1
            search.counts["cuts"] += len(cuts)
            if cuts:
                relaxation.add(cuts)
        return False

    def _stalled(self, bounds: list[float]) -> bool:
        if len(bounds) <= STALL_ROUNDS:
            return False
        gap = self.search.cost - self.reduction.constant - bounds[-1]
        return bounds[-1] - bounds[-1 - STALL_ROUNDS] < STALL_SHARE * gap

    def _separate(self, point: Point, exact: int) -> list[Cut]:
        x, y = point.x, point.y
        old_x, old_y = self._smooth or (x, y)
        self._smooth = (x + old_x) / 2, (y + old_y) / 2
        scale = CREEP_SCALE * self.search.cost
        near_x, near_y = (1 - INSIDE) * x + INSIDE * old_x, (1 - INSIDE) * y + INSIDE * old_y
        late = self.search.deadline
        return (
            self.sets.find(near_x, near_y, point.reduced, scale, CUTS_A_ROUND, late)
            or (old_x is not x and self.sets.find(x, y, point.reduced, scale, CUTS_A_ROUND, late))
            or self.sets.unfounded(x, y)
            or self.sets.find_exactly(x, y, point.reduced, scale, exact, late)
        )

    def _fix(self, point: Point) -> bool:
        """Forbid nodes that no better answer uses. True if they are enough for reducing again to be worthwhile."""
        search, relaxation = self.search, self.relaxation
        least = self.reduction.constant + point.bound + point.reduced
        open_ = relaxation.upper[: relaxation.n] > 0
        relaxation.forbid(np.flatnonzero(open_ & (least > search.cutoff)))
        gone = np.flatnonzero(relaxation.upper[: relaxation.n] == 0)
        return len(gone) > REBUILD_SHARE * relaxation.n

    def _offer_rounded(self, point: Point) -> None:
        """Offer the answer that the relaxation gives or suggests."""
        if not point.whole and self._round % ROUND_EVERY:
            return
        self._offer_near(point, "rounded")
        self.search.raise_bound(self.reduction.constant + point.bound)

    def _offer_near(self, point: Point, source: str) -> bool:
        """Offer the answer by the nodes that a point uses most."""
        weight = np.array(self.problem.node_cost, float) * (1.0 - point.x + 1e-3)
        if point.whole:
            weight += (point.x < 0.5) * float(self.search.cost)
        return self._offer(self._greedy(weight.tolist()), source)

    def _dive(self, pivots: int) -> bool:
        """Offer an answer near the last point of the relaxation, once. True if it is better."""
        if self._last is None or self._last.bound <= self._dived:
            return False
        self._dived = self._last.bound
        search, cutoff = self.search, self.search.cutoff - self.reduction.constant
        with search.stage("dives"):
            whole = self.relaxation.dive(self._last, cutoff, search.deadline, pivots)
            return whole is not None and self._offer_near(whole, "dive")

    def _greedy(self, weight: Sequence[float]) -> dict[int, int]:
        with self.search.within(GREEDY_SHARE) as end:
            return used_choice(self.problem, _choice(greedy_dag(self.problem, end, weight)))

    def _offer(self, chosen: Mapping[int, int], source: str) -> bool:
        return self.search.offer(self.reduction.expand(self.nodes[k] for k in chosen.values()), source)

    def _neighbourhoods(self, effort: Effort) -> bool:
        """Search around the best answer. True if a better one was found."""
        answer = self._answer()
        if self._around is None:
            self._around = Neighbourhoods(self.problem, answer, partial(_solve_small, self.search))
        elif self._cost(answer) < self._cost(self._around.answer):
            self._around.answer = answer
        with self.search.stage("neighbourhoods"):
            self._around.improve(effort.tries, effort.around * len(self.nodes), self.search.late)
        return self._offer(self._around.answer, "neighbourhood")

    def _cost(self, chosen: Mapping[int, int]) -> int:
        return sum(self.problem.node_cost[k] for k in chosen.values())

    def _answer(self) -> dict[int, int]:
        """The best answer among the remaining nodes, or one near it."""
        assert self.search.choice is not None
        chosen = set(self.search.choice.values())
        picks = self.reduction.picks
        same = {self.problem.node_class[k]: k for k, i in enumerate(self.nodes) if chosen.issuperset(picks[i])}
        try:
            return used_choice(self.problem, same)
        except CheckFailed:
            return self._greedy([float(c) for c in self.problem.node_cost])

    def _branch(self, max_nodes: int) -> None:
        search = self.search
        search.counts["branched"] += 1
        with search.stage("branching"):
            result = branch(self.relaxation, search.cutoff - self.reduction.constant, max_nodes, search.deadline)
        if result.nodes is not None:
            self._offer({self.problem.node_class[k]: k for k in result.nodes}, "branched")
        search.raise_bound(self.reduction.constant + result.bound)
        if result.finished:
            search.raise_bound(search.cost, exact=True)
