"""The search: partition a program into forms, and search each.

A form is a segment without names: equal segments are one form, searched once. All forms are first covered as written,
so that each has a fallback. Then they are searched, in several processes at once where that is worth their start.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from eqsat.base.time_budget import TimeBudget
from eqsat.egraph.saturate import warm_up
from eqsat.egraph.snapshot import Snapshot
from eqsat.errors import EqsatError, InputError
from eqsat.extract.kernels.composites import Operator
from eqsat.extract.plan.stitch import Solved
from eqsat.parts.segments import Segment, segments, uncut
from eqsat.program.core import CoreProgram, Node, lower_terms, topological
from eqsat.program.fold import Folded, fold_source
from eqsat.program.ir import Program
from eqsat.search import limits
from eqsat.search.asked import Asked
from eqsat.search.crew import Crew
from eqsat.search.form import (
    Found,
    Sought,
    cover_at_once,
    cover_written,
    explore_form,
    left_written,
    prefetched,
    search_form,
    search_whole,
)
from eqsat.search.runner import Prefetch, Runner

Form = tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """A program, folded, lowered and cut into parts.

    Attributes:
        asked: the request.
        source: the program as given; `folded` is the same with its constant expressions computed.
        core: over flat arrays.
        parts: its segments in order.
        operators: gives what a runtime executes as one operator, results and operands; found when first asked for.
        budget: the clock of the search.
    """

    asked: Asked
    source: Program
    folded: Folded
    core: CoreProgram
    parts: tuple[Segment, ...]
    operators: Callable[[], Sequence[tuple[Node, tuple[Node, ...]]]]
    budget: TimeBudget

    def uncut(self) -> Problem | None:
        """The same program in one part, if it was cut and is small enough to be searched so."""
        whole = uncut(self.core.roots) if len(self.parts) > 1 else None
        if whole is None:
            return None
        seconds = limits.SEARCH.whole(len(topological(whole.form)))
        return replace(self, parts=(whole,)) if seconds <= limits.SEARCH.uncut * self.budget.limit else None

    def sizes(self) -> dict[Form, int]:
        """Nodes of each form."""
        return {form: len(topological(form)) for form in dict.fromkeys(part.form for part in self.parts)}

    def weights(self) -> dict[Form, int]:
        """Elements of all constants in the parts of each form. One that several of them read counts once."""
        constants: dict[Form, set[Node]] = {}
        for part in self.parts:
            constants.setdefault(part.form, set()).update(leaf for leaf in part.leaves.values() if leaf.op == "Const")
        return {form: sum(leaf.size for leaf in found) for form, found in constants.items()}

    def sought(self, form: Form) -> Sought:
        """One form, to be searched."""
        executed = () if self.asked.device.fuses else operators_of(self, form)
        return Sought(self.asked, Snapshot.from_core(form), executed, self.budget)


def partition(source: Program, asked: Asked, run: Runner) -> Problem:
    """The program with its constants folded, over flat arrays, in parts."""
    budget = run.budget
    with budget.stage("fold"):
        folded = fold_source(source, asked.exact)
    with budget.stage("lower"):
        core, node = lower_terms(folded.program)

        @cache
        def found() -> Sequence[tuple[Node, tuple[Node, ...]]]:
            from eqsat.frontends.onnx.write.plan import operators

            written = operators(folded.program)
            return [(node[x], tuple(node[a] for a in args if a in node)) for x, args in written if x in node]

        alone = threading.Lock()

        def executed() -> Sequence[tuple[Node, tuple[Node, ...]]]:
            with alone:  # who asks while another thread finds them waits for that
                return found()

        if not asked.device.fuses:
            executed()  # their prices begin with it; other devices need it only where a result is to be near the source
    with budget.stage("partition"):
        parts = tuple(segments(core.roots, asked.device.fuses))
    return Problem(asked, source, folded, core, parts, executed, budget)


def operators_of(problem: Problem, form: Form) -> list[Operator]:
    """What a runtime executes as one operator in a form, by the classes of its snapshot as written."""
    inside = next(part for part in problem.parts if part.form == form).nodes()
    ids = {node: i for i, node in enumerate(topological(form))}
    return [
        (ids[inside[root]], tuple(ids[inside[a]] for a in args if a in inside))
        for root, args in problem.operators()
        if root in inside
    ]


def search(
    problem: Problem,
    run: Runner,
    as_written: Callable[[Mapping[Form, Solved]], None] = lambda written: None,
    meanwhile: Callable[[Mapping[Form, Solved]], None] = lambda written: None,
) -> dict[Form, Found]:
    """The best covers of all forms that are found in the time left.

    Args:
        as_written: given their covers as written, once these are found: it may reserve time by them.
        meanwhile: given them as soon as this process waits for others, or for e-graphs: it begins work beside that.
    """
    sizes, weights = problem.sizes(), problem.weights()
    copies = Counter(part.form for part in problem.parts)
    forms = sorted(sizes, key=lambda form: sizes[form] / copies[form])  # most copies first: no prices yet

    def by_form(covers: Sequence[Solved]) -> dict[Form, Solved]:
        return dict(zip(forms, covers, strict=True))

    work = _Work(
        [problem.sought(form) for form in forms],
        [sizes[form] for form in forms],
        [weights[form] for form in forms],
        [copies[form] for form in forms],
        run,
        lambda covers: as_written(by_form(covers)),
        lambda covers: meanwhile(by_form(covers)),
        problem.operators,
    )
    work.reserve(0, 0)
    with Crew(problem.asked, work.sizes, run) as crew:
        found = _alone(work) if crew.alone else _together(work, crew)
    return dict(zip(forms, found, strict=True))


@dataclass(frozen=True, slots=True)
class _Work:
    """The forms to search, and the time for it.

    Attributes:
        sought: the forms, in the order in which they are covered as written; `order` is that of their search.
        sizes: the nodes of each.
        weights: the elements of all constants in the parts of each.
        copies: the parts of each.
        run: the clock.
        as_written, meanwhile: as in `search`, given the covers in the order of the forms.
        recognise: finds the operators of the program, which its result is to be near to.
    """

    sought: Sequence[Sought]
    sizes: Sequence[int]
    weights: Sequence[int]
    copies: Sequence[int]
    run: Runner
    as_written: Callable[[Sequence[Solved]], None]
    meanwhile: Callable[[Sequence[Solved]], None]
    recognise: Callable[[], object]

    def reserve(self, changed: int, weights: int) -> None:
        """Reserve time for the stages after the search if it changes forms of so many nodes, whose parts have so many
        weights. The others stay as written, and take next to none."""
        for stage, seconds in self._after(changed, weights).items():
            self.run.budget.expect(stage, seconds)

    def _after(self, changed: int, weights: int) -> dict[str, float]:
        budget = self.run.budget
        folding = budget.spent.get("fold", 0.0)
        stages = limits.AFTER.expected(budget.limit, sum(self.sizes), changed, weights, folding)
        return stages | {"explain": min(stages["explain"], self.sought[0].asked.explain_time)}

    def order(self, written: Sequence[Solved]) -> list[int]:
        """The places of the forms, first what may gain most for its time: what is cheap as written cannot gain much."""
        prices = [count * own.cover.cost for count, own in zip(self.copies, written, strict=True)]
        return sorted(range(len(written)), key=lambda i: self.sizes[i] / max(1, prices[i]))

    def worthwhile(self, busy: Sequence[float], waiting: Sequence[int], least: int) -> Sequence[int]:
        """The places of the forms to search next, of all that wait, by processes that are busy for so many seconds
        each: the ones for which the time left is expected to suffice, and at least so many if there is any time. A few
        finished searches give more than many that hardly began, and what is not begun needs no time afterwards."""
        changed, weights = (sum(each) - sum(each[i] for i in waiting) for each in (self.sizes, self.weights))
        taken: list[int] = []
        needed = 0.0
        for i in waiting:
            with_it = changed + self.sizes[i], weights + self.weights[i]
            left = self.run.left("solve", self._after(*with_it))
            seconds = limits.SEARCH.first_look(self.sizes[i], self.sought[i].asked.device.fuses)
            suffices = seconds <= left and needed + seconds <= sum(max(0.0, left - each) for each in busy)
            if left and (suffices or len(taken) < least):
                taken.append(i)
                (changed, weights), needed = with_it, needed + seconds
        self.reserve(changed, weights)
        return taken


def _start_worker(asked: Asked, run: Runner) -> None:
    """Wait for the worker to load, so that no form pays for it."""
    seconds = limits.SEARCH.starting * run.left("solve")
    if asked.rules and seconds > 0:
        with run.budget.stage("saturate"):
            try:
                warm_up(asked.rules, seconds)
            except KeyboardInterrupt:
                run.interrupt()


def _alone(work: _Work) -> list[Found]:
    """Each form in turn. The first is saturated while all are covered as written, then each while the one before it is
    covered."""
    sought, run = work.sought, work.run

    def share(i: int, among: Sequence[int], spoken_for: float = 0.0) -> float:
        left = max(0.0, run.left("solve") - spoken_for)
        return limits.SEARCH.of_form(left, work.sizes[i], [work.sizes[j] for j in among])

    waiting = list(range(len(sought)))
    ahead = {i: prefetched(sought[i], share(i, waiting), run) for i in waiting[:1]}
    written = [cover_written(one, share(i, waiting[i:]), run) for i, one in enumerate(sought)]
    work.as_written(written)
    work.meanwhile(written)
    if not any(ahead.values()) and sought:
        _start_worker(sought[0].asked, run)
    found = {i: left_written(own, run.why_stopped) for i, own in enumerate(written)}
    waiting = sorted(work.order(written), key=lambda i: ahead.get(i) is None)
    while batch := work.worthwhile([0.0], waiting, 1):
        for k, i in enumerate(batch):
            done, rest = len(sought) - len(waiting), batch[k:]
            run.tell(f"part {done + 1} of {len(sought)}", 0.8 * done / len(sought))
            waiting.remove(i)
            seconds = share(i, rest)
            deadline = run.deadline(seconds)
            try:
                explored = explore_form(sought[i], deadline, run, ahead.pop(i, None)) if seconds > 0 else None
                following = None
                for later in rest[1:2]:
                    following = prefetched(sought[later], share(later, rest[1:], deadline.left()), run)
                    ahead[later] = following
                found[i] = search_form(sought[i], written[i], explored, deadline, run, following)
            except InputError:
                raise
            except EqsatError as error:
                found[i] = left_written(written[i], "failed", error)
    return [found[i] for i in range(len(sought))]


def _together(work: _Work, crew: Crew) -> list[Found]:
    """Several forms at a time."""
    sought, run = work.sought, work.run
    seconds = partial(limits.SEARCH.cover_seconds, fuses=sought[0].asked.device.fuses)
    covers = crew.each(cover_written, [(one,) for one in sought], expected=seconds)
    written = [x if isinstance(x, Solved) else cover_at_once(one) for x, one in zip(covers, sought, strict=True)]
    work.as_written(written)
    _start_worker(sought[0].asked, run)
    found: list[Found] = []
    given = list(zip(sought, written, strict=True))

    def meanwhile() -> None:
        """Most programs as large as this are changed: what that takes is done while others still search."""
        work.meanwhile(written)
        Prefetch(work.recognise, math.inf)

    searched = crew.each(search_whole, given, work.worthwhile, order=work.order(written), meanwhile=meanwhile)
    for x, own in zip(searched, written, strict=True):
        if isinstance(x, EqsatError):
            found.append(left_written(own, "failed", x))
        else:
            found.append(_over(x, own) if x else left_written(own, run.why_stopped))
        found[-1].cheapest.cover.forget()
    return found


def _over(found: Found, written: Solved) -> Found:
    """A result over the cover as written of this process, of which another process has a copy."""
    cheapest = written if found.cheapest is found.written else found.cheapest
    return replace(found, written=written, cheapest=cheapest)
