"""Covers that trade time for memory, and a lower bound on the memory of any cover.

The peak of a cover depends on which values are alive together, so it is not a sum over kernels. Therefore covers are
searched with a sum that correlates with it, a weighted sum of prices and bytes written to temporaries, for several
weights, and are judged by their actual peak.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from math import inf

from eqsat.base.numerics import itemsize
from eqsat.egraph.snapshot import Snapshot
from eqsat.extract.alternatives import next_covers
from eqsat.extract.cover import CoverResult
from eqsat.extract.cover_problem import CoverProblem
from eqsat.extract.kernels.candidates import Candidate, same_kernel
from eqsat.extract.plan.memory import Buffer, Launches, Step
from eqsat.extract.plan.plan import launches
from eqsat.extract.solver.solve import solve

PROPORTIONS = (0.25, 0.5, 0.75, 0.99)
"""Weights of memory in the sums; prices have the rest. The weight of prices is never 0, so that they break ties."""

ALSO_NEXT = 4
"""Number of covers next in price that are also judged."""

SCALE = 1_000_000_000


def trade_offs(
    best: CoverResult, seconds: float, deadline: float, should_stop: Callable[[], bool] | None = None
) -> list[CoverResult]:
    """`best`, and different covers of the same snapshot that write fewer bytes of temporaries, without bounds of their
    own. The search for each takes at most half of the time left, or `seconds` where that is more.

    Raises:
        ValueError: `best` is not a result of `cover`.
    """
    covers, solution = best.problem, best.solution
    if covers is None or solution is None:
        raise ValueError("trade_offs takes a result of cover")
    problem = covers.problem
    written = _written_bytes(covers)
    price, weight = max(1, best.cost), max(1, sum(written[i] for i in solution.choice.values()))
    found = [best, *next_covers(best, ALSO_NEXT, deadline, should_stop)]
    for share in PROPORTIONS:
        costs = [
            round(SCALE * ((1 - share) * p / price + share * b / weight))
            for p, b in zip(problem.node_cost, written, strict=True)
        ]
        each = max(seconds, 0.5 * (deadline - time.monotonic()))
        choice = solve(replace(problem, node_cost=costs), each, [solution.choice], should_stop).choice
        cost = sum(problem.node_cost[i] for i in choice.values())
        found.append(CoverResult(covers.launch_order(choice), cost, best.lower_bound, cost == best.lower_bound))
    kernels = [frozenset(map(same_kernel, cover.chosen)) for cover in found]
    return [cover for i, cover in enumerate(found) if kernels[i] not in kernels[:i]]


def _written_bytes(covers: CoverProblem) -> list[int]:
    """Bytes that each node of the problem writes to temporaries."""
    snapshot, roots = covers.snapshot, set(covers.snapshot.roots)
    own = [0 if x.family == "alias" or x.cls in roots else _bytes(snapshot, x.cls) for x in covers.candidates]
    return own + [0] * (len(covers.problem.node_cost) - len(own))


def _bytes(snapshot: Snapshot, c: int) -> int:
    return snapshot.size[c] * itemsize(snapshot.dtype[c])


def cover_launches(snapshot: Snapshot, cover: CoverResult) -> Launches:
    """The launches of a cover. Roots are results, not temporaries."""
    base: dict[int, int] = {}  # the class whose array an alias is part of
    for x in cover.chosen:
        if x.family == "alias":
            (read,) = x.leaves
            base[x.cls] = base.get(read, read)
    steps, sizes = [], {}
    for group in launches(cover):
        if group[0].family != "alias":
            writes: tuple[Buffer, ...] = tuple(x.cls for x in group)
            reads: tuple[Buffer, ...] = tuple(dict.fromkeys(base.get(c, c) for x in group for c in x.leaves))
            steps.append(Step(reads, writes))
            sizes |= {x.cls: _bytes(snapshot, x.cls) for x in group if x.cls not in snapshot.roots}
    kept = frozenset(base[r] for r in snapshot.roots if r in base and base[r] in sizes)
    return Launches(steps, sizes, kept)


def least_peak(covers: CoverProblem) -> int:
    """A lower bound on the peak in bytes of any cover: some launch on the best derivations needs this much at once.

    The value of a class is the minimum, over its candidates, of the maximum of the candidate's own need and the values
    of its children (a bottleneck path, as by Dijkstra).
    """
    problem, snapshot = covers.problem, covers.snapshot
    sliced = {x.cls for x in covers.candidates if x.family == "alias"}
    needs = [_held(x, snapshot, sliced) for x in covers.candidates]
    needs += [0] * (len(problem.node_cost) - len(needs))
    value = [inf] * problem.n_classes
    stale = [i for i, kids in enumerate(problem.children) if not kids]
    while stale:
        i = stale.pop()
        peak = max([needs[i], *(value[d] for d in problem.children[i])])
        c = problem.node_class[i]
        if peak < value[c]:
            value[c] = peak
            stale += problem.parents()[c]
    return int(max((value[r] for r in problem.roots), default=0))


def _held(x: Candidate, snapshot: Snapshot, sliced: set[int]) -> int:
    """Bytes of temporaries that a candidate certainly reads and writes at once.

    Classes that may be slices of another may share bytes, so only the largest of them counts. A concatenation may be
    written in place by the kernels of its members.
    """
    if x.family == "alias":
        return 0
    own = 0 if x.cls in snapshot.roots else _bytes(snapshot, x.cls)
    if snapshot.nodes[x.cut.node].op == "Cat":
        return own
    read = [c for c in x.children if c not in snapshot.roots]
    apart = sum(_bytes(snapshot, c) for c in read if c not in sliced)
    return own + apart + max((_bytes(snapshot, c) for c in read if c in sliced), default=0)
