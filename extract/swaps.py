"""Covers that differ from a good one in the kernel of one class, judged once small products share launches."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from eqsat.errors import CheckFailed
from eqsat.extract.cover_problem import CoverProblem
from eqsat.extract.kernels.candidates import Candidate
from eqsat.extract.solver.greedy import NO_NODE, greedy_dag, greedy_tree
from eqsat.extract.solver.problem import used_choice

MOST_SWAPPED = 500
"""Most candidates of a problem whose covers are changed kernel by kernel: each change takes a tenth of a millisecond or
so."""

ROUNDS = 3
"""Most kernels that are changed, one after the other."""


def swapped(covers: CoverProblem, kernels: Sequence[Candidate], ends: float) -> list[Candidate]:
    """The cheapest cover that one change of a kernel leads to, and one more, as long as that gains; its kernels in
    launch order, with shared launches. It is sought until `ends` (`time.monotonic`).

    Whether a product shares a launch depends on all the others. So a cover of two products that share two launches with
    their neighbours may lie beside one with a single kernel for both, which shares none, and no price says so.
    """
    sharing = covers.sharing
    assert sharing is not None
    best = sharing.packed(kernels)
    start = covers.choice_of(map(sharing.alone, kernels)) if len(covers.candidates) <= MOST_SWAPPED else None
    if start is None:
        return best
    picks = greedy_tree(covers.problem), greedy_dag(covers.problem, ends, covers.unpaid())
    fills = [{c: i for c, i in enumerate(own) if i != NO_NODE} for own in picks]
    for _ in range(ROUNDS):
        gained = None
        for choice in _neighbours(covers, start, fills):
            if time.monotonic() > ends:
                break
            packed = sharing.packed(covers.launch_order(choice))
            if _price(packed) < _price(best):
                best, gained = packed, choice
        if gained is None:
            break
        start = gained
    return best


def _price(kernels: Sequence[Candidate]) -> int:
    """Picoseconds of a cover."""
    return sum({x.call or x.cls: x.price for x in kernels}.values())


def _neighbours(
    covers: CoverProblem, start: Mapping[int, int], fills: Sequence[Mapping[int, int]]
) -> Iterator[dict[int, int]]:
    """The covers with another kernel for one class; what only that one needs is computed as in one of `fills`."""
    members = covers.problem.members()
    for c, own in start.items():
        for i in members[c]:
            if i == own:
                continue
            for fill in fills:
                try:
                    yield used_choice(covers.problem, {**fill, **start, c: i})
                except CheckFailed:  # this kernel needs one that needs its result
                    continue
