"""Which cover each form gets: the cheapest, the next best plans, or plans that trade time for memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from eqsat.extract.alternatives import kernel_counts, next_covers
from eqsat.extract.cover import CoverResult
from eqsat.extract.kernels.composites import several
from eqsat.extract.kernels.cuts import Limits as Cuts
from eqsat.extract.known import same_classes
from eqsat.extract.near import CLOSE, LESS, least_work, nearest, work
from eqsat.extract.plan.memory import lean_order
from eqsat.extract.plan.plan import folding_flops
from eqsat.extract.plan.stitch import Solved
from eqsat.extract.plan.tradeoffs import cover_launches, least_peak, trade_offs
from eqsat.pipeline.ranking import Combination, by_objective, next_plans, program_launches, trade_off_plans
from eqsat.search import limits
from eqsat.search.objective import Objective
from eqsat.search.runner import Deadline, Runner, Stage
from eqsat.search.search import Form, Found, Problem, operators_of

Reason = Literal["overflow", "memory", "refused", "time", "interrupted", "measured", "sizes"]
"""Why a form stays as written although a cheaper one was found: a short float would overflow, its constants would take
too much memory, the check refused it, there was no time to build or to check it, times decide (it gains too little to
be sure, or it was measured and is not faster), or it is for some sizes only."""


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
    asked, first = problem.asked, _preferred(problem, found, run)
    if run.interrupted or (asked.top == 1 and asked.goal == Objective()):
        return [first]
    with run.budget.stage("further"):
        if asked.goal.memory:
            return run.run(TRADE, run.unlimited, problem, first, run)[: asked.top]
        return [first, *run.run(NEXT, run.unlimited, problem, first, run)]


def _preferred(problem: Problem, found: Mapping[Form, Found], run: Runner) -> Selection:
    """The cheapest cover of each form, or one with clearly less work that costs hardly more. Of the others, those that
    take operators apart and gain least are left as written, or nearer to it, while all together cost hardly more.

    After Ctrl-C no constants take much work.
    """
    times = Counter(part.form for part in problem.parts)
    deadline = run.deadline(run.left("near"))
    slack = CLOSE * sum(times[form] * x.cheapest.cover.cost for form, x in found.items())
    solved: dict[Form, Solved] = {}
    for form in sorted(found, key=lambda form: times[form] * _gain(found[form])):
        with run.budget.stage("near"):
            each = deadline.left() / (len(found) - len(solved))
            best = _near(problem, form, found[form], slack / times[form], each, run)
        hurried = run.interrupted and _folding(best) > limits.FOLDING.hurried_flops
        solved[form] = _left_written(found[form]) if hurried else best
        slack -= times[form] * best.cover.stats.get("nearer", 0)
    return Selection(found, {form: solved[form] for form in found})


def _near(problem: Problem, form: Form, found: Found, slack: float, seconds: float, run: Runner) -> Solved:
    """The cheapest cover of a form, or one near to it; one that is nearer to the form as written costs at most `slack`
    picoseconds more."""
    cheapest, written = found.cheapest, found.written.cover
    lighter = run.run(LIGHTEST, seconds, cheapest.cover)
    if lighter is not cheapest.cover:
        return _left_written(found) if _gains_nothing(lighter, written) else replace(cheapest, cover=lighter)
    if cheapest.cover.cost >= written.cost:
        return _left_written(found)
    apart = _taken_apart(problem, form, found, cheapest.cover)
    if problem.asked.device.fuses and not apart:
        return cheapest
    if _gain(found) <= slack:
        kept = _left_written(found)
        return replace(kept, cover=replace(kept.cover, stats={**cheapest.cover.stats, "nearer": _gain(found)}))
    nearer = run.run(NEAREST, seconds, cheapest.cover, slack / cheapest.cover.cost)
    if problem.asked.device.fuses and _taken_apart(problem, form, found, nearer) >= apart:
        return cheapest
    return replace(cheapest, cover=nearer)


def _gains_nothing(lighter: CoverResult, written: CoverResult) -> bool:
    """Whether a cover is at least as dear as the form as written, and does not clearly less work either."""
    if lighter.cost < written.cost or written.problem is None:
        return False
    return work(lighter).share(work(written)) > LESS


def _taken_apart(problem: Problem, form: Form, found: Found, cover: CoverResult) -> int:
    """How many norms, activations and other operators that are several in the core no longer compute their result."""
    written = found.written.cover.problem
    if written is None:
        return 0
    whole = several(written.snapshot, written.found.facts, operators_of(problem, form), Cuts())
    classes = same_classes(written.snapshot, cover.snapshot)
    computed = {cover.snapshot.nodes[i].cls for i in cover.derivation}
    return sum(classes.get(c) not in computed for c in whole)


def _gain(found: Found) -> int:
    """Picoseconds that the cheapest cover of a form saves."""
    return max(0, found.written.cover.cost - found.cheapest.cover.cost)


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
        choices[form] = [best, *(replace(cheapest, cover=c) for c in others)]
    return [_selection(first, one) for one in next_plans(problem.parts, choices, count)]


def _traded(deadline: Deadline, problem: Problem, first: Selection, run: Runner) -> list[Selection]:
    """Plans that no other plan found beats in both time and memory, the best first."""
    late = _further(run)
    choices: dict[Form, list[tuple[Solved, int]]] = {}
    for form, x in first.found.items():
        covers = trade_offs(x.cheapest.cover, limits.FURTHER.seconds, late.ends, late.stopped)
        options = [x.written, *(replace(x.cheapest, cover=c) for c in covers)]
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


def _nearest(deadline: Deadline, cheapest: CoverResult, slack: float) -> CoverResult:
    return nearest(cheapest, slack, deadline.left(), deadline.stopped)


LIGHTEST = Stage(_least_work, lambda cheapest: cheapest)
NEAREST = Stage(_nearest, lambda cheapest, slack: cheapest)
NEXT = Stage(_next, lambda problem, first, run: [])
TRADE = Stage(_traded, lambda problem, first, run: [first])


def least_peak_of(found: Mapping[Form, Found]) -> int:
    """Bytes of temporaries that every plan needs at once."""
    covers = [x.cheapest.cover for x in found.values()]
    return max((least_peak(c.problem) for c in covers if c.problem is not None), default=0)
