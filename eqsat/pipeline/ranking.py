"""Several plans for one program: the next best in price, and those that trade time for memory.

All instances of one form of segments get the same kernels, as in the best plan.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.base.numerics import itemsize
from eqsat.egraph.snapshot import Snapshot
from eqsat.extract.alternatives import kernel_counts
from eqsat.extract.cover import CoverResult
from eqsat.extract.plan.memory import Buffer, Launches, Step, lean_order
from eqsat.extract.plan.plan import launches
from eqsat.extract.plan.stitch import Solved
from eqsat.parts.segments import Segment
from eqsat.program.core import CoreProgram, Node, make
from eqsat.search.objective import Objective

Form = tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Combination:
    """A cover for every form.

    Attributes:
        cost: picoseconds, of all instances.
        peak: bytes of temporaries, in an order of launches that keeps it low; 0 if it was not asked for.
        proven: only plans before it in its list cost less.
    """

    solved: dict[Form, Solved]
    cost: int
    peak: int = 0
    proven: bool = False


def next_plans(parts: Sequence[Segment], choices: Mapping[Form, Sequence[Solved]], count: int) -> list[Combination]:
    """Up to `count` combinations after the first of every form, in order of cost, no two with the same kernels.

    Args:
        choices: covers of each form in order of cost, `optimal` if proven to be next.
    """
    times = Counter(part.form for part in parts)
    forms = list(choices)
    costs = [[times[form] * s.cover.cost for s in choices[form]] for form in forms]
    known: list[Counter[tuple[str, int]]] = []
    found: list[Combination] = []
    exact = True
    for picks in _cheapest_sums(costs):
        solved = {form: choices[form][k] for form, k in zip(forms, picks, strict=True)}
        kernels: Counter[tuple[str, int]] = Counter()
        for form, s in solved.items():
            kernels.update({kernel: n * times[form] for kernel, n in kernel_counts(s.cover).items()})
        exact = exact and all(s.cover.optimal for s in solved.values())
        if any(earlier <= kernels for earlier in known):
            exact = exact and not known  # a form's own list may end before what would take this one's place
            continue
        known.append(kernels)
        found.append(Combination(solved, sum(c[k] for c, k in zip(costs, picks, strict=True)), proven=exact))
        if len(found) > count:
            break
    return found[1:]


def _cheapest_sums(costs: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """One index into each sorted list, in order of the sum of the elements chosen."""
    first = tuple(0 for _ in costs)
    heap = [(sum(c[0] for c in costs), first)]
    seen = {first}
    while heap:
        total, picks = heapq.heappop(heap)
        yield picks
        for j, k in enumerate(picks):
            following = (*picks[:j], k + 1, *picks[j + 1 :])
            if k + 1 < len(costs[j]) and following not in seen:
                seen.add(following)
                heapq.heappush(heap, (total - costs[j][k] + costs[j][k + 1], following))


def trade_off_plans(
    parts: Sequence[Segment], choices: Mapping[Form, Sequence[tuple[Solved, int]]], core: CoreProgram
) -> list[Combination]:
    """Combinations that none of those found beats in both time and memory, the fastest first.

    For each bound on the peak of a single form, every form takes its fastest cover within it.

    Args:
        choices: covers of each form, each with the peak of one instance, bytes.
    """
    times = Counter(part.form for part in parts)
    found: dict[tuple[int, ...], Combination] = {}
    for bound in sorted({peak for options in choices.values() for _, peak in options}, reverse=True):
        picks = {form: _fastest(options, bound) for form, options in choices.items()}
        solved = {form: choices[form][k][0] for form, k in picks.items()}
        cost = sum(times[form] * s.cover.cost for form, s in solved.items())
        if tuple(picks.values()) not in found:
            program = program_launches(parts, solved, core)
            found[tuple(picks.values())] = Combination(solved, cost, program.peak(lean_order(program)))
    front: list[Combination] = []
    for one in sorted(found.values(), key=lambda one: (one.cost, one.peak)):
        if not front or one.peak < front[-1].peak:
            front.append(one)
    return front


def _fastest(options: Sequence[tuple[Solved, int]], bound: int) -> int:
    """The option with the lowest cost among those within a bound on the peak, or else with the lowest peak."""
    return min(
        range(len(options)),
        key=lambda k: (max(bound, options[k][1]), options[k][0].cover.cost, options[k][1], k),
    )


def by_objective(
    found: Sequence[Combination], objective: Objective, written_cost: int, written_peak: int
) -> list[Combination]:
    """The combinations in order of an objective; ties in order of time."""
    return sorted(found, key=lambda one: (objective.value(one.cost, one.peak, written_cost, written_peak), one.cost))


def program_launches(parts: Sequence[Segment], solved: Mapping[Form, Solved], core: CoreProgram) -> Launches:
    """The launches of a whole program, as in its plan, without building the plan (which folds constants)."""
    outputs = set(core.roots)
    lies: dict[Node, Buffer] = {}  # where the root of a segment lies
    steps: list[Step] = []
    sizes: dict[Buffer, int] = {}
    kept: set[Buffer] = set()
    for k, part in enumerate(parts):
        snapshot, cover = solved[part.form].snapshot, solved[part.form].cover
        place = _Places(k, part, snapshot, cover, lies)
        for group in launches(cover):
            if group[0].family == "alias":
                continue
            reads = dict.fromkeys(place.of(c) for x in group for c in x.leaves)
            steps.append(Step(tuple(reads), tuple((k, x.cls) for x in group)))
            sizes |= {(k, x.cls): snapshot.size[x.cls] * itemsize(snapshot.dtype[x.cls]) for x in group}
        for node, c in zip(part.roots, snapshot.roots, strict=True):
            lies[node] = place.of(c)
            if node in outputs and lies[node] in sizes:
                if lies[node] == (k, c):
                    del sizes[lies[node]]
                else:
                    kept.add(lies[node])
    return Launches(steps, sizes, frozenset(kept & sizes.keys()))


class _Places:
    """Where the classes of one instance of a segment lie."""

    def __init__(
        self, instance: int, part: Segment, snapshot: Snapshot, cover: CoverResult, lies: Mapping[Node, Buffer]
    ) -> None:
        self._instance, self._part, self._snapshot, self._lies = instance, part, snapshot, lies
        self._whole = {x.cls: x.leaves[0] for x in cover.chosen if x.family == "alias"}

    def of(self, c: int) -> Buffer:
        while c in self._whole:
            c = self._whole[c]
        for node in self._snapshot.of_class(c):
            if node.op == "In":
                outside = self._part.leaves.get(make("In", node.attrs))
                return self._lies.get(outside, outside) if outside is not None else (self._instance, c)
        return (self._instance, c)


def alternative_rows(reports: Sequence[Mapping[str, Any]], proven: Sequence[bool]) -> list[dict[str, Any]]:
    """How plans differ from the first, by their reports: rank, figures, and kernels removed and added."""
    names = [Counter(kernel["name"] for kernel in report["kernels"]) for report in reports]
    first = reports[0]["result"]
    return [
        {
            "rank": rank,
            "predicted_us": report["result"]["predicted_us"],
            "more_us": round(report["result"]["predicted_us"] - first["predicted_us"], 6),
            "kernels": report["result"]["kernels"],
            "peak_bytes": report["result"]["peak_bytes"],
            "proven": is_proven,
            "without": sorted((names[0] - own).elements()),
            "instead": sorted((own - names[0]).elements()),
            "check": report["check"],
        }
        for rank, (report, own, is_proven) in enumerate(zip(reports[1:], names[1:], proven, strict=False), 2)
    ]
