"""Which cover each form gets: the cheapest, the next best plans, or plans that trade time for memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from eqsat.extract.alternatives import kernel_counts, next_covers
from eqsat.extract.cover import CoverResult
from eqsat.extract.near import least_work
from eqsat.extract.plan.memory import lean_order
from eqsat.extract.plan.plan import folding_flops
from eqsat.extract.plan.stitch import Solved
from eqsat.extract.plan.tradeoffs import cover_launches, least_peak, trade_offs
from eqsat.pipeline import limits
from eqsat.pipeline.objective import Objective
from eqsat.pipeline.ranking import Combination, by_objective, next_plans, program_launches, trade_off_plans
from eqsat.pipeline.runner import Deadline, Runner, Stage
from eqsat.pipeline.search import Form, Found, Problem

Reason = Literal["overflow", "memory", "refused", "time", "interrupted", "measured"]
"""Why a form stays as written although a cheaper one was found: a short float would overflow, its constants would take
too much memory, the check refused it, there was no time to build it, or times decide: it gains too little to be sure,
or it was measured and is not faster."""


@dataclass(frozen=True, slots=True)
class Selection:
    """A cover for every form.

    Attributes:
        found: the search results that they are chosen from.
        solved: the covers.
        kept: forms left as written, and why.
        proven: only plans before it in its list cost less.
    """

    found: Mapping[Form, Found]
    solved: Mapping[Form, Solved]
    kept: Mapping[Form, Reason] = field(default_factory=dict)
    proven: bool = False

    def changed(self) -> list[Form]:
        """The forms that are not left as written."""
        written = {form: x.written.cover.chosen for form, x in self.found.items()}
        return [form for form, s in self.solved.items() if s.cover.chosen is not written[form]]

    def keep(self, forms: Iterable[Form], reason: Reason) -> Selection:
        """The same selection with some forms left as written."""
        kept = dict.fromkeys(forms, reason)
        solved = {**self.solved, **{form: _left_written(self.found[form]) for form in kept}}
        return replace(self, solved=solved, kept={**self.kept, **kept})

    def cover(self, form: Form) -> CoverResult:
        """The cover of a form, cheapest or not, with a bound on all covers of its e-graph."""
        chosen = self.solved[form].cover
        bound = min(chosen.cost, self.found[form].cheapest.cover.lower_bound)
        return replace(chosen, lower_bound=bound, optimal=bound == chosen.cost)


def _left_written(found: Found) -> Solved:
    """A form as written, with the bound that the search has proved."""
    written, cheapest = found.written.cover, found.cheapest.cover
    bound = min(cheapest.lower_bound, written.cost)
    kept = CoverResult(written.chosen, written.cost, bound, bound == written.cost, cheapest.stats)
    return Solved(found.written.snapshot, kept)


def choose(problem: Problem, found: Mapping[Form, Found], run: Runner) -> list[Selection]:
    """The covers to build plans from, the best first; after Ctrl-C only the cheapest."""
    run.tell("comparing plans", 0.8)
    asked, first = problem.asked, _cheapest(found, run)
    if run.interrupted or (asked.top == 1 and asked.goal == Objective()):
        return [first]
    with run.budget.stage("further"):
        if asked.goal.memory:
            return run.run(TRADE, run.unlimited, problem, first, run)[: asked.top]
        return [first, *run.run(NEXT, run.unlimited, problem, first, run)]


def _cheapest(found: Mapping[Form, Found], run: Runner) -> Selection:
    """The cheapest cover of each form, or one with clearly less work that costs hardly more; after Ctrl-C none whose
    constants take much work."""
    solved: dict[Form, Solved] = {}
    for form, x in found.items():
        best = _lightest(x, run)
        hurried = run.interrupted and _folding(best) > limits.FOLDING.hurried_flops
        gains = x.cheapest.cover.cost < x.written.cover.cost or best is not x.cheapest
        solved[form] = best if gains and not hurried else _left_written(x)
    return Selection(found, solved)


def _lightest(found: Found, run: Runner) -> Solved:
    cheapest = found.cheapest.cover
    with run.budget.stage("solve"):
        cover = run.run(LIGHTEST, run.left("solve"), cheapest)
    return found.cheapest if cover is cheapest else replace(found.cheapest, cover=cover)


def cautious(first: Selection) -> list[Selection]:
    """A further plan to measure: what gains little by price is as written. None if that is all of it, or nothing."""
    changed, sure = first.changed(), 1 - limits.MEASURING.sure
    unsure = [x for x in changed if first.solved[x].cover.cost > sure * first.found[x].written.cover.cost]
    return [first.keep(unsure, "measured")] if 0 < len(unsure) < len(changed) else []


def _folding(solved: Solved) -> int:
    return folding_flops(solved.snapshot, solved.cover)


def _further(run: Runner) -> Deadline:
    return run.deadline(max(run.budget.left("further"), limits.FURTHER.seconds))


def _next(deadline: Deadline, problem: Problem, first: Selection, run: Runner) -> list[Selection]:
    """The next best plans."""
    late = _further(run)
    choices: dict[Form, Sequence[Solved]] = {}
    count = problem.asked.top - 1
    for form, best in first.solved.items():
        cheapest = first.found[form].cheapest
        further = [cheapest.cover, *next_covers(cheapest.cover, count, late.ends, late.stopped)]
        others = [c for c in further if not kernel_counts(best.cover) <= kernel_counts(c)]
        choices[form] = [best, *(Solved(cheapest.snapshot, c) for c in others)]
    return [_selection(first, one) for one in next_plans(problem.parts, choices, count)]


def _traded(deadline: Deadline, problem: Problem, first: Selection, run: Runner) -> list[Selection]:
    """Plans that no other plan found beats in both time and memory, the best first."""
    late = _further(run)
    choices: dict[Form, list[tuple[Solved, int]]] = {}
    for form, x in first.found.items():
        covers = trade_offs(x.cheapest.cover, limits.FURTHER.seconds, late.ends, late.stopped)
        options = [x.written, *(Solved(x.cheapest.snapshot, c) for c in covers)]
        launched = [cover_launches(s.snapshot, s.cover) for s in options]
        choices[form] = [(s, y.peak(lean_order(y))) for s, y in zip(options, launched, strict=True)]
    written = {form: x.written for form, x in first.found.items()}
    peak = program_launches(problem.parts, written, problem.core).peak()
    cost = sum(written[part.form].cover.cost for part in problem.parts)
    plans = trade_off_plans(problem.parts, choices, problem.core)
    return [_selection(first, one) for one in by_objective(plans, problem.asked.goal, cost, peak)]


def _selection(first: Selection, one: Combination) -> Selection:
    return replace(first, solved=one.solved, proven=one.proven)


def _least_work(deadline: Deadline, cheapest: CoverResult) -> CoverResult:
    return least_work(cheapest, deadline.left(), deadline.stopped)


LIGHTEST = Stage(_least_work, lambda cheapest: cheapest)
NEXT = Stage(_next, lambda problem, first, run: [])
TRADE = Stage(_traded, lambda problem, first, run: [first])


def least_peak_of(found: Mapping[Form, Found]) -> int:
    """Bytes of temporaries that every plan needs at once."""
    covers = [x.cheapest.cover for x in found.values()]
    return max((least_peak(c.problem) for c in covers if c.problem is not None), default=0)
