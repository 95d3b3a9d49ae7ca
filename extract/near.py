"""Among covers whose prices differ by less than the model knows, the one that does the least work, or the one nearest
to the program as written.

A roofline model is off by more than a few percent on any kernel. Where it calls two covers equal, FLOPs and bytes
decide, which are exact: chains of small products otherwise keep several times the FLOPs of the best order for nothing.
Where work does not decide either, what the author wrote does: a rewrite that gains nothing may take apart a norm or an
activation that another runtime executes as one operator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil

from eqsat.egraph.snapshot import SOURCE
from eqsat.extract.cover import CoverResult
from eqsat.extract.cover_problem import CoverProblem
from eqsat.extract.kernels.candidates import Candidate
from eqsat.extract.kernels.cuts import bits, parts
from eqsat.extract.solver.greedy import longest_path_bound
from eqsat.extract.solver.problem import Problem, check
from eqsat.extract.solver.solve import GLANCE, SETTLING, solve
from eqsat.program.core_table import CORE

NEAR = 0.02
"""Largest difference in price that work may outweigh, as a share."""

WEIGHTS = (2, 1)
"""Prices of all the work, in `NEAR` of the price of the cheapest, tried until the cover is near. With the last it
always is."""

LESS = 0.9
"""Work, as a share of another cover's, that is clearly less."""

_UNITS = 10**9
"""Work of the cheapest cover in whole numbers, for a bound."""

MOST_CANDIDATES = 2000
"""Most candidates of a problem that is solved in full a second time; more take seconds."""

CLOSE = 0.01
"""Largest difference in price that being nearer to the program as written may outweigh, as a share."""

REWRITTEN = (1.0, 0.3, 0.1, 0.03)
"""What a kernel of rewritten operators must gain, as shares of its price, tried until the cover is close, and last the
difference in price allowed: with that it always is."""

LIKELY = 2
"""Of many candidates, the first of `REWRITTEN` that is tried: dearer ones take as long and were never close."""


@dataclass(frozen=True, slots=True)
class Work:
    """What kernels do: arithmetic operations, and bytes of the arrays that they read and write."""

    flops: int = 0
    bytes: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.bytes + other.bytes)

    def share(self, whole: Work) -> float:
        """The mean of the shares of operations and of bytes."""
        return (self.flops / max(1, whole.flops) + self.bytes / max(1, whole.bytes)) / 2


class Works:
    """What the kernels of one problem do."""

    def __init__(self, covers: CoverProblem) -> None:
        snapshot = covers.snapshot
        self._bytes = covers.found.facts.bytes
        self._flops = [CORE[n.op].flops(n.attrs, [snapshot.size[a] for a in n.args]) for n in snapshot.nodes]

    def of(self, outputs: Sequence[Candidate]) -> Work:
        """The work of one kernel, given as a candidate for each of its outputs; none for an alias."""
        if outputs[0].family == "alias":
            return Work()
        read = 0
        for x in outputs:
            read |= x.cut.leaves
        flops = sum([self._flops[part.node] for part in parts([x.cut for x in outputs]) if part.node >= 0])
        return Work(flops, sum(self._bytes[c] for c in (*bits(read), *(x.cls for x in outputs))))

    def of_nodes(self, covers: CoverProblem) -> list[Work]:
        """The work of each node of the problem; that of a kernel with several outputs is its own node's."""
        calls = {x.call for x in covers.calls}
        apart = [Work() if x.call in calls else self.of([x]) for x in covers.candidates]
        members = {call: [x for x in covers.candidates if x.call == call] for call in calls}
        return apart + [self.of(members[x.call]) for x in covers.calls]


def work(cover: CoverResult) -> Work:
    """What the kernels of a cover do, whose problem is known."""
    assert cover.problem is not None
    works = Works(cover.problem)
    kernels: dict[object, list[Candidate]] = {}
    for x in cover.chosen:
        kernels.setdefault(x.call or x.cls, []).append(x)
    return sum(map(works.of, kernels.values()), Work())


def least_work(best: CoverResult, seconds: float, should_stop: Callable[[], bool] | None = None) -> CoverResult:
    """A cover that does clearly less work than the proven cheapest: the cheapest once work has a price too.

    It costs at most `NEAR` more than `best`, which stays if the other does not do clearly less. The result has the
    bound of `best`, and its stats say what it costs more, if it does, and saves (`saved`).
    """
    covers, solution = best.problem, best.solution
    if not best.optimal or covers is None or solution is None or len(covers.candidates) > MOST_CANDIDATES:
        return best
    works = Works(covers).of_nodes(covers)
    whole = sum((works[i] for i in solution.choice.values()), Work())
    shares = [work.share(whole) for work in works]
    if not _may_do_less(covers.problem, shares):
        return best
    extra = [NEAR * best.cost * share for share in shares]
    ends = time.monotonic() + seconds
    choice, cost = solution.choice, best.cost
    for weight in WEIGHTS:
        costs = [price + round(weight * more) for price, more in zip(covers.problem.node_cost, extra, strict=True)]
        weighed = replace(covers.problem, node_cost=costs)
        choice = solve(weighed, max(0.0, ends - time.monotonic()), [solution.choice], should_stop, SETTLING).choice
        cost = check(covers.problem, choice)
        if cost <= (1 + NEAR) * best.cost:
            break
    own = sum((works[i] for i in choice.values()), Work())
    if own.share(whole) > LESS:
        return best
    chosen = covers.launch_order(choice)
    if cost == best.cost:
        return replace(best, chosen=chosen)
    saved = {"cost": cost - best.cost, "flops": whole.flops - own.flops, "bytes": whole.bytes - own.bytes}
    return replace(best, chosen=chosen, cost=cost, optimal=False, stats={**best.stats, "saved": saved})


def _may_do_less(problem: Problem, shares: Sequence[float]) -> bool:
    """Whether an answer may do clearly less work than the cheapest. A chain of kernels that every answer has mostly
    rules it out, in a fraction of the time of a solution.

    Args:
        shares: the work of each node, as a share of that of the cheapest answer.
    """
    scaled = [int(_UNITS * share) for share in shares]
    return longest_path_bound(replace(problem, node_cost=scaled)) <= LESS * _UNITS


def nearest(
    best: CoverResult, slack: float, seconds: float, should_stop: Callable[[], bool] | None = None
) -> CoverResult:
    """A cover with fewer kernels of rewritten operators that costs at most the share `slack` more than `best`; else
    `best`.

    Of many candidates, only those of `best` and of the program as written take part. The result has the bound of
    `best`, and its stats say what it costs more, if it does (`nearer`).
    """
    covers, solution = best.problem, best.solution
    if covers is None or solution is None:
        return best
    made, chosen = _rewritten(covers), set(solution.choice.values())
    if not any(made[i] for i in chosen):
        return best
    few = len(made) <= MOST_CANDIDATES
    kept = [i for i, own in enumerate(made) if few or not own or i in chosen]
    place = {i: k for k, i in enumerate(kept)}
    start = {c: place[i] for c, i in solution.choice.items()}
    ends = time.monotonic() + seconds
    choice, cost = solution.choice, best.cost
    for share in (*REWRITTEN[0 if few else LIKELY :], slack):
        near = _restricted(covers.problem, kept, [share if made[i] else 0.0 for i in kept])
        left = max(0.0, ends - time.monotonic())
        effort = SETTLING if few else GLANCE
        choice = {c: kept[k] for c, k in solve(near, left, [start], should_stop, effort).choice.items()}
        cost = check(covers.problem, choice)
        if cost <= (1 + slack) * best.cost:
            break
    if cost > (1 + slack) * best.cost or choice == solution.choice:
        return best
    found = replace(best, chosen=covers.launch_order(choice), cost=cost)
    if cost <= best.cost:
        return found
    return replace(found, optimal=False, stats={**best.stats, "nearer": cost - best.cost})


def _rewritten(covers: CoverProblem) -> list[bool]:
    """For each node of the problem, whether its kernel computes what the program as written does not have."""
    nodes = covers.snapshot.nodes
    own = [any(y.node >= 0 and nodes[y.node].rule != SOURCE for y in parts((x.cut,))) for x in covers.candidates]
    calls = {x.call for x, made in zip(covers.candidates, own, strict=True) if made and x.call is not None}
    return [made or x.call in calls for x, made in zip(covers.candidates, own, strict=True)] + [
        x.call in calls for x in covers.calls
    ]


def _restricted(problem: Problem, kept: Sequence[int], dearer: Sequence[float]) -> Problem:
    """The problem with these nodes only, each dearer by a share of its cost."""
    return Problem(
        node_class=[problem.node_class[i] for i in kept],
        node_cost=[
            problem.node_cost[i] + ceil(share * problem.node_cost[i]) for i, share in zip(kept, dearer, strict=True)
        ],
        children=[problem.children[i] for i in kept],
        n_classes=problem.n_classes,
        roots=problem.roots,
    )
