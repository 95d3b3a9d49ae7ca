"""Covers that trade time for memory, and what no cover goes below.

The peak of a cover depends on what lives at once, which is no sum over kernels. So covers are sought by a sum that goes
with it, prices and bytes written to temporaries in several proportions, and judged by the peak itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf

from eqsat.base.numerics import itemsize
from eqsat.egraph.snapshot import Snapshot
from eqsat.extract.alternatives import next_covers
from eqsat.extract.candidates import Candidate
from eqsat.extract.cover import CoverProblem, CoverResult
from eqsat.extract.plan.memory import Buffer, Launches, Step
from eqsat.extract.plan.plan import launches
from eqsat.extract.solver.solve import solve

PROPORTIONS = (0.25, 0.5, 0.75, 0.99)
"""Weights of memory in the sums to solve for; prices have the rest. Prices never count for nothing: they break ties."""

ALSO_NEXT = 4
"""Covers next in price that are judged too."""

SCALE = 1_000_000_000


def trade_offs(
    best: CoverResult, seconds: float, deadline: float, should_stop: Callable[[], bool] | None = None
) -> list[CoverResult]:
    """`best`, and covers of the same snapshot that write fewer temporaries; no two the same, none with a bound of its
    own. Each is sought for at most `seconds`.

    Raises:
        ValueError: `best` is no result of `cover` itself.
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
        choice = solve(replace(problem, node_cost=costs), seconds, [solution.choice], should_stop).choice
        cost = sum(problem.node_cost[i] for i in choice.values())
        found.append(CoverResult(covers.launch_order(choice), cost, best.lower_bound, cost == best.lower_bound))
    kernels = [frozenset((x.cls, x.cut) for x in cover.chosen) for cover in found]
    return [cover for i, cover in enumerate(found) if kernels[i] not in kernels[:i]]


def _written_bytes(covers: CoverProblem) -> list[int]:
    """Bytes that each node of the problem writes to temporaries."""
    snapshot, roots = covers.snapshot, set(covers.snapshot.roots)
    own = [0 if x.family == "alias" or x.cls in roots else _bytes(snapshot, x.cls) for x in covers.candidates]
    return own + [0] * (len(covers.problem.node_cost) - len(own))


def _bytes(snapshot: Snapshot, c: int) -> int:
    return snapshot.size[c] * itemsize(snapshot.dtype[c])


def cover_launches(snapshot: Snapshot, cover: CoverResult) -> Launches:
    """The launches of a cover. Its roots are results: what is written to a root is no temporary."""
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
    """Bytes of temporaries that every cover has at once: those of one launch at least, by the best derivations.

    The value of a class is the least over its candidates of the larger of what the candidate itself needs and the
    largest value below (a bottleneck path, as by Dijkstra).
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
    """Bytes of temporaries that a candidate surely reads and writes at once.

    What may be a slice of something may share its bytes with other slices, so only the largest of those counts; and a
    concatenation may be written in place by those that make its members.
    """
    if x.family == "alias":
        return 0
    own = 0 if x.cls in snapshot.roots else _bytes(snapshot, x.cls)
    if snapshot.nodes[x.cut.node].op == "Cat":
        return own
    read = [c for c in x.children if c not in snapshot.roots]
    apart = sum(_bytes(snapshot, c) for c in read if c not in sliced)
    return own + apart + max((_bytes(snapshot, c) for c in read if c in sliced), default=0)
