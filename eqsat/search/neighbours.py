"""Kernels across cuts: two neighbouring parts, each searched by itself, are covered once more as one.

A program is cut where little is lost, and its parts are searched apart. But one kernel may do the end of a part and the
beginning of the next: rows are put in order, added to what passes by, and normed for the next product. So the e-graphs
of two neighbours are glued together, and the one program that their covers compute is covered by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from eqsat.egraph.glued import glued
from eqsat.egraph.snapshot import Snapshot
from eqsat.extract.cover import cover_of_parts
from eqsat.extract.plan.stitch import Solved
from eqsat.parts.pieces import HUGE
from eqsat.parts.segments import Segment, joined
from eqsat.program.core import Node, topological
from eqsat.search import limits
from eqsat.search.asked import Asked
from eqsat.search.form import LOOK_ALONE, Found, Sought
from eqsat.search.runner import Runner
from eqsat.search.search import Form, Problem

Pair = tuple[Segment, Segment]

_WITHOUT_PRODUCT = ("copy", "pointwise", "reduction", "row")


def reserve(problem: Problem, run: Runner, written: Mapping[Form, Solved]) -> None:
    """Reserve time for joining neighbours, by the covers of the parts as written."""
    sizes, pairs = problem.sizes(), set[tuple[Form, Form]]()
    for first, second in pairwise(problem.parts):
        if problem.asked.device.fuses and _reached_across(first, second, written[first.form]):
            pairs.add((first.form, second.form))
    expected = sum(limits.JOINING.expected(sizes[a] + sizes[b]) for a, b in pairs)
    run.budget.expect("join", min(expected, limits.JOINING.share * run.budget.limit))


def across_cuts(problem: Problem, found: dict[Form, Found], run: Runner) -> tuple[Problem, dict[Form, Found]]:
    """The program with neighbours joined where kernels across the cut gain, as far as there is time; and what was found
    for its parts. Parts that there was no time to join say so."""
    if not problem.asked.device.fuses:
        return problem, found
    known: dict[Form, _Joined] = {}
    while True:
        pairs = _joinable(problem, found)
        _look(problem, found, pairs, known, run)
        gains = [0] * (len(problem.parts) - 1)
        for at, whole in pairs.items():
            if better := known[whole.form].found:
                own = [found[part.form].cheapest.cover.cost for part in problem.parts[at : at + 2]]
                gains[at] = sum(own) - better.cheapest.cover.cost
        chosen = _most_gaining(gains)
        if not chosen:
            break
        behind = {at + 1 for at in chosen}
        parts = tuple(pairs[at] if at in chosen else part for at, part in enumerate(problem.parts) if at not in behind)
        every = found | {form: x.found for form, x in known.items() if x.found is not None}
        problem, found = replace(problem, parts=parts), {part.form: every[part.form] for part in parts}
    late = {part.form for at, whole in pairs.items() if known[whole.form].late for part in problem.parts[at : at + 2]}
    run.budget.expect("join", 0.0)
    return problem, {form: x.stopped(run.why_stopped) if form in late else x for form, x in found.items()}


class _Joined(NamedTuple):
    """What is found for two parts as one, None if it gains nothing; `late` if there was not the time to know that."""

    found: Found | None
    late: bool = False


def _joinable(problem: Problem, found: Mapping[Form, Found]) -> dict[int, Segment]:
    """The places of parts across the end of which kernels may reach, and both parts as one."""
    readers: Counter[Node] = Counter(problem.core.roots)
    for part in problem.parts:
        readers.update(part.leaves.values())
    joinable = {}
    for at, (first, second) in enumerate(pairwise(problem.parts)):
        if _reached_across(first, second, found[first.form].cheapest):
            inside = set(second.leaves.values())
            whole = joined(first, second, {root for root in first.roots if readers[root] > (root in inside)})
            if len(topological(whole.form)) <= HUGE:
                joinable[at] = whole
    return joinable


def _reached_across(first: Segment, second: Segment, solved: Solved) -> bool:
    """Whether the second of two parts reads what a kernel without a product writes: kernels that read it may make it on
    the way. A product writes its result in any case."""
    written = dict(zip(first.roots, solved.snapshot.roots, strict=True))
    read = {written[node] for node in second.leaves.values() if node in written}
    return any(x.cls in read and x.family in _WITHOUT_PRODUCT for x in solved.cover.chosen)


def _look(
    problem: Problem,
    found: Mapping[Form, Found],
    pairs: Mapping[int, Segment],
    known: dict[Form, _Joined],
    run: Runner,
) -> None:
    """Fill in what is found for the joined forms that are not known: those of most parts first."""
    times = Counter(whole.form for whole in pairs.values())
    first = {pairs[at].form: at for at in sorted(pairs, reverse=True)}
    for form in sorted(first, key=lambda form: (-times[form], first[form])):
        if form in known:
            continue
        at = first[form]
        if run.left("join") <= limits.JOINING.expected(len(topological(form))):
            known[form] = _Joined(None, late=True)
            continue
        pair = problem.parts[at], problem.parts[at + 1]
        run.tell("kernels across cuts", 0.8)
        own = found[pair[0].form], found[pair[1].form]
        known[form] = _better(problem, pairs[at], pair, own, run)


def _better(problem: Problem, whole: Segment, pair: Pair, found: tuple[Found, Found], run: Runner) -> _Joined:
    """What is found for two parts as one."""
    if any(x.failed is not None for x in found):
        return _Joined(None)
    sought = problem.sought(whole.form)
    written = _alone(sought, whole, pair, (found[0].written, found[1].written), run)
    best = _alone(sought, whole, pair, (found[0].cheapest, found[1].cheapest), run)
    late = written.cover.late or best.cover.late
    figures = _figures(found)
    best.snapshot.stats = figures
    cheapest = min(written, best, key=lambda x: x.cover.cost)
    if cheapest.cover.cost > (1 - limits.JOINING.gain) * sum(x.cheapest.cover.cost for x in found):
        return _Joined(None, late)
    for x in (written, cheapest):
        x.cover.forget()
    own = {"nodes": len(cheapest.snapshot.nodes), "classes": cheapest.snapshot.n_classes}
    joined = Found(written, best.snapshot, cheapest, {**figures, **own})
    return _Joined(joined.stopped(run.why_stopped) if late else joined)


def _alone(sought: Sought, whole: Segment, pair: Pair, solved: tuple[Solved, Solved], run: Runner) -> Solved:
    """The cover of two parts as one, of the program that their covers compute."""
    with run.budget.stage("join"):
        begun = _together(sought.asked, whole, pair, solved)
    return run.run(LOOK_ALONE, run.left("join"), sought, begun)


def _together(asked: Asked, whole: Segment, pair: Pair, solved: tuple[Solved, Solved]) -> Solved:
    """Two parts as one, with their covers."""
    first, second = (_renamed(x.snapshot, part, whole) for x, part in zip(solved, pair, strict=True))
    ends = dict(zip(pair[0].roots, first.roots, strict=True))
    inputs = {node: solved[1].snapshot.find(made.op, made.attrs, ()) for made, node in pair[1].leaves.items()}
    alike = [(cls, at) for node, cls in ends.items() if (at := inputs.get(node)) is not None]
    both = glued(first, second, alike)
    of_root = dict(zip(pair[1].roots, (both.classes[1][cls] for cls in second.roots), strict=True))
    of_root |= {node: both.classes[0][cls] for node, cls in ends.items()}
    both.snapshot.roots = [of_root[root] for root in whole.roots]
    covers = [(x.cover, classes) for x, classes in zip(solved, both.classes, strict=True)]
    return Solved(both.snapshot, cover_of_parts(both.snapshot, covers, asked.device, asked.exact))


def _renamed(snapshot: Snapshot, part: Segment, whole: Segment) -> Snapshot:
    """The e-graph of a part, with the names that its leaves have in the whole."""
    names = {node: made for made, node in whole.leaves.items()}
    own = ((made, names[node]) for made, node in part.leaves.items() if node in names)
    return snapshot.with_leaves({(made.op, made.attrs): (name.op, name.attrs) for made, name in own})


def _figures(found: tuple[Found, Found]) -> dict[str, Any]:
    """The figures of two e-graphs together."""
    first, second = (x.figures for x in found)
    stop = second["stop"] if first["stop"] == "saturated" else first["stop"]
    sums = {name: first.get(name, 0) + second.get(name, 0) for name in ("iterations", "seconds")}
    matches = Counter(first.get("matches", {})) + Counter(second.get("matches", {}))
    return {**sums, "matches": dict(matches), "stop": stop}


def _most_gaining(gains: Sequence[int]) -> set[int]:
    """The places of pairs of neighbours, no two of which overlap, that gain most together."""
    best = [0] * (len(gains) + 2)
    for at in reversed(range(len(gains))):
        best[at] = max(best[at + 1], gains[at] + best[at + 2])
    chosen, at = set(), 0
    while at < len(gains):
        if best[at] > best[at + 1]:
            chosen.add(at)
            at += 1
        at += 1
    return chosen
