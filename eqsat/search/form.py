"""The search of one form: saturate it, then cover its e-graph with kernels, twice."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from eqsat.base.time_budget import TimeBudget
from eqsat.egraph.required import Derivation, Needs, needs_of_all, needs_of_good, of_fewest_products
from eqsat.egraph.saturate import Limits, saturate, stated
from eqsat.egraph.snapshot import Snapshot
from eqsat.errors import EqsatError, InputError
from eqsat.extract.cover import ENUMERATION_SHARE, CoverResult, cover, cover_alone, settled
from eqsat.extract.kernels.composites import Operator
from eqsat.extract.kernels.cuts import QUICK
from eqsat.extract.kernels.cuts import Limits as Cuts
from eqsat.extract.least_work import of_least_work
from eqsat.extract.plan.stitch import Solved
from eqsat.language.rule import HostRule
from eqsat.search import limits
from eqsat.search.asked import Asked
from eqsat.search.runner import Begun, Deadline, Prefetch, Runner, Stage

T = TypeVar("T")

AT_ONCE = replace(QUICK, per_kind=2, joins=2, pairs=2, lefts=1, rights=1)
"""Limits where no time is left: less than half of the processor seconds that `QUICK` ones take then. As written, NASNet
and MaxViT cost 8 and 12 % more by them."""


@dataclass(frozen=True, slots=True)
class Sought:
    """A form to search.

    Attributes:
        asked: the request.
        source: the form as its author wrote it.
        operators: what a runtime executes as one operator, result and operands, by the classes of `source`; empty where
            the device fuses.
        budget: the clock of the search.
    """

    asked: Asked
    source: Snapshot
    operators: Sequence[Operator]
    budget: TimeBudget


@dataclass(frozen=True, slots=True)
class Found:
    """The result of the search for one form.

    Attributes:
        written: the form as its author wrote it, and its cover.
        explored: its e-graph.
        cheapest: the cheapest cover found, over that e-graph or a later one.
        figures: of the e-graph, for the report: nodes, classes, iterations, why it stopped.
        failed: the error that ended the search, if one did.
    """

    written: Solved
    explored: Snapshot
    cheapest: Solved
    figures: Mapping[str, Any]
    failed: EqsatError | None = None

    def stopped(self, why: str) -> Found:
        """The same, for want of time for something that might have been cheaper."""
        if self.figures["stop"] != "saturated":
            return self
        return replace(self, figures={**self.figures, "stop": why})


def cover_written(sought: Sought, seconds: float, run: Runner) -> Solved:
    """The best cover of a form as written, found in a part of its `seconds`."""
    found = run.run(COVER_WRITTEN, limits.SEARCH.written * seconds, sought, sought.source, sought.operators)
    found.forget()
    return Solved(sought.source, found)


def cover_at_once(sought: Sought) -> Solved:
    """A cover of a form as written, by the kernels that are found first."""
    found = COVER_WRITTEN.otherwise(sought, sought.source, sought.operators)
    found.forget()
    return Solved(sought.source, found)


def search_whole(sought: Sought, written: Solved, seconds: float, run: Runner) -> Found | Begun[Found]:
    """The cheapest cover of a form that is found in so many seconds. If they hardly suffice for a second look, it is
    left for later: the first look at other forms gains more.

    Raises:
        InputError: a rule cannot be used.
    """
    deadline = run.deadline(seconds)

    def whole() -> Found | Begun[Found]:
        explored = explore_form(sought, deadline, run) if seconds > 0 else None
        look = _first_look(sought, written, explored, deadline, run)
        if isinstance(look, Found):
            return look
        expected = look.expected()
        if not expected or seconds >= limits.SEARCH.expected(len(sought.source.nodes)):
            return _second_look(look, deadline, run)
        return Begun(look.found(look.first, run), expected, partial(_rest, look))

    return _unless_failed(written, whole)


def _rest(look: _FirstLook, seconds: float, run: Runner) -> Found:
    look = replace(look, sought=replace(look.sought, budget=run.budget))
    return _unless_failed(look.written, lambda: _second_look(look, run.deadline(seconds), run))


def _unless_failed(written: Solved, work: Callable[[], T]) -> T | Found:
    """What a search finds; the form as written if it fails.

    Raises:
        InputError: the search does.
    """
    try:
        return work()
    except InputError:
        raise
    except EqsatError as error:
        return left_written(written, "failed", error)


def left_written(written: Solved, stop: str, error: EqsatError | None = None) -> Found:
    """A form that stays as written, and why."""
    return _found(written, written, written.snapshot, {"stop": stop}, error)


def prefetched(sought: Sought, seconds: float, run: Runner) -> Prefetch[Snapshot] | None:
    """The saturation of a form that may expect so many seconds, while something else is covered."""
    if not sought.asked.rules or seconds < limits.SEARCH.prefetch:
        return None
    return Prefetch(lambda: _saturated(sought, run.deadline(seconds)), seconds)


def explore_form(
    sought: Sought, deadline: Deadline, run: Runner, prefetch: Prefetch[Snapshot] | None = None
) -> Snapshot:
    """The e-graph of a form, as large as the time allows; `prefetch` where its saturation has begun already."""
    with sought.budget.stage("saturate"):
        if prefetch is not None:
            left = deadline.left()
            found = _awaited(prefetch, left, run)
            if found is not None and (found.stats["stop"] != "time" or left <= limits.SEARCH.more * prefetch.seconds):
                return found
        return _saturated(sought, deadline)


def _awaited(prefetch: Prefetch[Snapshot], seconds: float, run: Runner) -> Snapshot | None:
    try:
        return prefetch.result(seconds)
    except KeyboardInterrupt:
        run.interrupt()
        return prefetch.result(limits.LATE.grace)  # the last checkpoint


def search_form(
    sought: Sought,
    written: Solved,
    explored: Snapshot | None,
    deadline: Deadline,
    run: Runner,
    prefetch: Prefetch[Snapshot] | None = None,
) -> Found:
    """The cheapest cover of one form over its e-graph; None stands for an e-graph that there was no time for.

    Raises:
        EqsatError: a rule is unsound.
    """
    look = _first_look(sought, written, explored, deadline, run)
    return look if isinstance(look, Found) else _second_look(look, deadline, run, prefetch)


@dataclass(frozen=True, slots=True)
class _FirstLook:
    """A form after the first look: its e-graph is covered once, by few kernels."""

    sought: Sought
    written: Solved
    explored: Snapshot
    first: Solved

    def expected(self) -> float:
        """Seconds of a second look; 0 where there is none."""
        cover = self.first.cover
        return limits.SEARCH.again * sum(cover.stats["seconds"].values()) * bool(cover.stats["candidates"]["crowded"])

    def found(self, best: Solved, run: Runner) -> Found:
        """The result of the search, if this is the cheapest cover."""
        return _found(self.written, best, self.explored, best.snapshot.stats | _stop(best, run))


def _first_look(
    sought: Sought, written: Solved, explored: Snapshot | None, deadline: Deadline, run: Runner
) -> _FirstLook | Found:
    """The first look at a form; its result where there is nothing more to look at."""
    if explored is None:
        return left_written(written, run.why_stopped)
    if explored.stats["stop"] == "interrupted":
        run.interrupt()
    if _same(explored, written.snapshot) and (written.cover.optimal or not deadline.left()):
        return _found(written, written, explored, explored.stats | _stop(written, run))
    began = sought.budget.clock()
    first = run.run(COVER, deadline.left(), sought, written, explored)
    if first is None:  # what was found can no longer be priced: it counts as not found
        sought.budget.add("candidates", sought.budget.clock() - began)
        return _found(written, written, explored, explored.stats | {"stop": run.why_stopped})
    return _FirstLook(sought, written, explored, first)


def _second_look(
    look: _FirstLook, deadline: Deadline, run: Runner, prefetch: Prefetch[Snapshot] | None = None
) -> Found:
    """The cheapest cover of a form with further groups, and with all kernels."""
    grouped = run.run(REGROUP, deadline.left(), look.sought, look.written, look.first, prefetch)
    second = run.run(SECOND_LOOK, deadline.left(), look.sought, look.written, grouped)
    alone = run.run(LOOK_ALONE, deadline.left(), look.sought, second)
    others = run.run(OTHERS_ALONE, deadline.left(), look.sought, alone)
    best = run.run(LOOK_JOINED, deadline.left(), look.sought, look.written, others)
    for solved in (look.first, grouped, second, alone, others, best):
        solved.cover.forget()
    return look.found(best, run)


def _stop(best: Solved, run: Runner) -> dict[str, str]:
    """Why the search for a cover ended, unless it was done."""
    early = run.interrupted or best.cover.late or best.cover.stats["hurried"]
    return {"stop": run.why_stopped} if early else {}


def _found(
    written: Solved,
    cheapest: Solved,
    explored: Snapshot,
    figures: Mapping[str, Any],
    failed: EqsatError | None = None,
) -> Found:
    own = {"nodes": len(cheapest.snapshot.nodes), "classes": cheapest.snapshot.n_classes}
    return Found(written, explored, cheapest, {**figures, **own}, failed)


def _same(explored: Snapshot, source: Snapshot) -> bool:
    """Whether no rule has made or merged anything."""
    merged = explored.n_classes < source.n_classes
    return not merged and not any(node.rule for node in explored.nodes)


def _saturated(sought: Sought, deadline: Deadline) -> Snapshot:
    """The e-graph of a form, small enough to be covered in the rest of the time."""
    if not sought.asked.rules:
        return replace(sought.source, stats={"stop": "saturated"})
    left = deadline.left()
    share = limits.SEARCH.saturation * left
    affordable = _affordable(sought, left - share)
    most = Limits().nodes
    within = Limits(seconds=share, nodes=min(most, affordable), strict=affordable < most)
    found = saturate(sought.source, sought.asked.rules, within, should_stop=deadline.stopped)
    if found.stats["stop"] == "nodes" and affordable < most:
        found.stats["stop"] = "time"
    return found


def _affordable(sought: Sought, seconds: float) -> int:
    """Most e-nodes that are expected to be covered in so many seconds."""
    nodes = limits.SEARCH.coverable(seconds, len(sought.source.nodes), sought.asked.device.fuses)
    return int(min(nodes, sys.maxsize))


def _at_first(deadline: Deadline, sought: Sought, snapshot: Snapshot) -> Cuts | None:
    """The limits for the first cover of an e-graph: quick ones, as it tells the second what the leaves cost.

    Where no second look is taken, the defaults if the kernels can be found in the time left.
    """
    if sought.asked.device.fuses:
        return QUICK
    expected = limits.SEARCH.cover_seconds(len(snapshot.nodes), fuses=False)
    return None if expected <= ENUMERATION_SHARE * deadline.left() else QUICK


def _in_time_again(left: float, first: CoverResult) -> tuple[Cuts | None, float, float]:
    """The limits for another cover of an e-graph in the seconds left, the share of them that its kernels may take, and
    the seconds that these take within quick limits, by the time that the first one took."""
    seconds = first.stats["seconds"]
    kernels = limits.SEARCH.slower * seconds["candidates"]
    others = limits.SEARCH.again * (sum(seconds.values()) - seconds["candidates"])
    share = max(ENUMERATION_SHARE, 1 - others / left)
    return (QUICK, ENUMERATION_SHARE, kernels) if kernels > share * left else (None, share, kernels)


def _covered(
    deadline: Deadline,
    sought: Sought,
    snapshot: Snapshot,
    executed: Sequence[Operator] = (),
    known: Sequence[CoverResult] = (),
    before: CoverResult | None = None,
    cuts: Cuts | None = None,
    enumeration_share: float = ENUMERATION_SHARE,
    brief: bool = False,
    quick_seconds: float | None = None,
    close: bool = False,
    joined: Needs | None = None,
) -> CoverResult:
    asked = sought.asked
    looks = enumeration_share, brief, quick_seconds, close, joined
    given = deadline.left(), cuts, deadline.stopped, asked.exact, known, before, executed, *looks
    found = cover(snapshot, asked.device, *given)
    kernels = found.stats["candidates"]
    quick = cuts is QUICK or kernels["hurried"]
    found.stats["hurried"] = kernels["stopped"] or (quick and kernels["crowded"])
    _spend(sought, found)
    return found


def _spend(sought: Sought, found: CoverResult) -> None:
    """Add the seconds of a cover to those of the stages."""
    for stage, spent in found.stats["seconds"].items():
        sought.budget.add("solve" if stage == "incumbents" else stage, spent)


def _covered_as_written(
    deadline: Deadline, sought: Sought, snapshot: Snapshot, executed: Sequence[Operator]
) -> CoverResult:
    """The cover of a form as written, looked at twice as its e-graph is: else a gain would only be one of the looks.
    Where the time hardly suffices for its search, a first look that comes close is enough."""
    suffices = deadline.left() >= limits.SEARCH.written * limits.SEARCH.whole(len(snapshot.nodes))
    first = _covered(deadline, sought, snapshot, executed, close=not suffices)
    crowded = first.stats["candidates"]["crowded"] and not first.stats["candidates"]["stopped"]
    if not crowded or not sought.asked.device.fuses or not suffices:
        return first
    return _covered(deadline, sought, snapshot, executed, known=[first], before=first)


def _covered_at_once(sought: Sought, snapshot: Snapshot, executed: Sequence[Operator]) -> CoverResult:
    """A cover with the kernels that are found first, of few."""
    return _covered(Deadline(0.0, lambda: False), sought, snapshot, executed, cuts=AT_ONCE)


def _covered_e_graph(deadline: Deadline, sought: Sought, written: Solved, snapshot: Snapshot) -> Solved | None:
    cuts = _at_first(deadline, sought, snapshot)
    return Solved(snapshot, _covered(deadline, sought, snapshot, known=[written.cover], cuts=cuts, brief=True))


def _regrouped(
    deadline: Deadline, sought: Sought, written: Solved, first: Solved, prefetch: Prefetch[Snapshot] | None
) -> Solved:
    """The cheapest cover after joining values of the best cover into groups, repeated until nothing is gained.

    Only a good cover tells which further values to join: its products may have been made by rules and have other
    derivations, so that no group of required values contains them. Groups of the program of fewest products are tried
    with them: which of two equally cheap products a cover has is an accident. The second look gains more often, so
    that time for it is kept.
    """
    groups = [r for r in sought.asked.rules if isinstance(r, HostRule) and r.phase == "groups"]
    best = first
    while best.snapshot.stats["stop"] == "saturated":
        further = stated(groups, best.snapshot, [best.cover.derivation, of_fewest_products(best.snapshot)])
        if not further:
            break
        if deadline.left() <= _regrouping(sought, best):
            best.snapshot.stats["stop"] = "time"
            break
        with sought.budget.stage("saturate"):
            if prefetch:
                prefetch.wait(deadline.left())  # a second worker would load for longer
            seconds = Limits(seconds=limits.SEARCH.saturation * deadline.left())
            more = saturate(best.snapshot, sought.asked.rules, seconds, further=further)
        known, cuts = [written.cover, best.cover], _at_first(deadline, sought, more)
        better = Solved(more, _covered(deadline, sought, more, known=known, cuts=cuts, brief=True), before=best)
        if better.cover.cost >= best.cover.cost:
            break
        best = better
    return best


def _regrouping(sought: Sought, best: Solved) -> float:
    """Seconds that are needed to saturate and cover an e-graph again, and for a second look at it."""
    looks = 1 + limits.SEARCH.again * sought.asked.device.fuses
    return best.snapshot.stats["seconds"] + looks * sum(best.cover.stats["seconds"].values())


def _looked_at_again(deadline: Deadline, sought: Sought, written: Solved, best: Solved) -> Solved:
    """The cheapest cover by the kernels that the other guess at their leaves keeps, where that is cheaper.

    Its bound is on covers by these and on those by the kernels that were kept before. The search among these is carried
    on only where their bound leaves room for a cheaper one.
    """
    first = best.cover
    found = first.stats["candidates"]
    left = deadline.left()
    if not found["crowded"] or not left or not sought.asked.device.fuses:
        return best
    again = first
    if not found["stopped"]:
        cuts, share, quick = _in_time_again(left, first)
        known = [written.cover, first]
        again = _covered(deadline, sought, best.snapshot, (), known, first, cuts, share, quick_seconds=quick)
    room = first.brief and first.lower_bound < again.cost
    first.late = first.late or (room and not deadline.left())
    if room and deadline.left():
        with sought.budget.stage("solve"):
            first = settled(first, again, deadline.left(), deadline.stopped)
    if again.cost >= first.cost:
        first.stats["hurried"], first.late = again.stats["hurried"], first.late or again.late
        return replace(best, cover=first)
    bound = min(again.lower_bound, first.lower_bound)
    return replace(best, cover=replace(again, lower_bound=bound, optimal=bound >= again.cost))


def _covered_alone(
    deadline: Deadline, sought: Sought, best: Solved, programs: Sequence[Derivation] | None = None
) -> Solved:
    """The cheapest cover, where the program that it computes has been covered by itself, or other `programs`.

    The kernels that this finds are then searched together with the others. As long as that gains, the program found is
    covered by itself again: it may be another one, and its cover is a better guess at what values cost as leaves.
    Mamba gains 5 % by that.
    """
    asked, found = sought.asked, best.cover
    if not asked.device.fuses:
        return best
    waiting = deque([found.derivation] if programs is None else programs)
    while waiting:
        program = waiting.popleft()
        alone = cover_alone(found, program, asked.device, deadline.left(), deadline.stopped, asked.exact)
        _spend(sought, alone)
        bound = min(found.lower_bound, alone.lower_bound)
        if alone.cost < found.cost:
            with sought.budget.stage("solve"):
                found = settled(found, alone, deadline.left(), deadline.stopped)
            bound = min(bound, found.lower_bound)
            waiting.appendleft(found.derivation)
        found = replace(found, lower_bound=bound, optimal=bound >= found.cost, late=found.late or alone.late)
    return replace(best, cover=found)


def _others_alone(deadline: Deadline, sought: Sought, best: Solved) -> Solved:
    """The cheapest cover, where two other programs have been covered by themselves: those of the least work, and of
    the shortest chains of products. Both are good whatever kernels there are.

    The kernels of many programs crowd each other out, so that the cheapest one may seem dearer than another.
    """
    if not sought.asked.device.fuses:
        return best
    if deadline.left() < limits.SEARCH.others * sum(best.cover.stats["seconds"].values()):
        return _not_covered_alone(sought, best)
    programs = [of_least_work(best.snapshot, deadline.left(), deadline.stopped), of_fewest_products(best.snapshot)]
    own = set(best.cover.derivation)
    return _covered_alone(deadline, sought, best, [x for x in programs if set(x) != own])


def _not_covered_alone(sought: Sought, best: Solved) -> Solved:
    """This cover, for want of time."""
    return replace(best, cover=replace(best.cover, late=best.cover.late or sought.asked.device.fuses))


def _looked_at_joined(deadline: Deadline, sought: Sought, written: Solved, best: Solved) -> Solved:
    """The cheapest cover where one kernel may write values that the program as it was written computes, or the best
    one, though rules spell them in other ways, and other programs do without."""
    snapshot, found = best.snapshot, best.cover
    joined = needs_of_good(snapshot, found.derivation)
    if not sought.asked.device.fuses or joined.classes == needs_of_all(snapshot).classes:
        return best
    if deadline.left() < limits.SEARCH.joined * sum(found.stats["seconds"].values()):
        return _not_covered_alone(sought, best)
    cuts, share, quick = _in_time_again(deadline.left(), found)
    known = [written.cover, found]
    more = _covered(deadline, sought, snapshot, (), known, found, cuts, share, quick_seconds=quick, joined=joined)
    bound, late = min(found.lower_bound, more.lower_bound), found.late or more.late
    if more.cost >= found.cost:
        return replace(best, cover=replace(found, lower_bound=bound, optimal=bound >= found.cost, late=late))
    return _covered_alone(
        deadline, sought, replace(best, cover=replace(more, lower_bound=bound, optimal=bound >= more.cost))
    )


COVER_WRITTEN = Stage(_covered_as_written, _covered_at_once)
COVER = Stage(_covered_e_graph, lambda sought, written, snapshot: None, always=True, borrows=0.5)
REGROUP = Stage(_regrouped, lambda sought, written, first, prefetch: first)
SECOND_LOOK = Stage(_looked_at_again, lambda sought, written, best: best)
LOOK_ALONE = Stage(_covered_alone, _not_covered_alone)
OTHERS_ALONE = Stage(_others_alone, _not_covered_alone)
LOOK_JOINED = Stage(_looked_at_joined, lambda sought, written, best: _not_covered_alone(sought, best))
