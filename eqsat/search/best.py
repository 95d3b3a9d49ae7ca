"""The best that is found for a program: in parts, in parts of which some are joined, or whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from eqsat.extract.plan.stitch import Solved
from eqsat.search import limits
from eqsat.search.form import Found
from eqsat.search.neighbours import across_cuts, reserve
from eqsat.search.runner import Runner
from eqsat.search.search import Form, Problem, search


def best_search(
    problem: Problem, run: Runner, meanwhile: Callable[[Mapping[Form, Solved]], None] = lambda written: None
) -> tuple[Problem, dict[Form, Found]]:
    """The best covers of all forms that are found in the time left, and the program in the parts that they cover.

    Equal parts are searched once, but one kernel or launch may serve two: so neighbours are joined where that gains,
    and a small program is searched whole as well. The cheaper result counts; where there was no time to know which one
    it is, the parts say so. `meanwhile` is as in `search`.
    """
    found = search(problem, run, partial(reserve, problem, run), meanwhile)
    problem, found = across_cuts(problem, found, run)
    failed = any(x.failed is not None for x in found.values())
    whole = problem.uncut() if not failed else None
    if whole is None:
        return problem, found
    late = run.left("solve") <= 0
    if not late:
        reserved = dict(run.budget.expected)
        again = search(whole, run)
        gains = _cost(whole, again) < (1 - limits.SEARCH.gain) * _cost(problem, found)
        if gains and all(x.failed is None for x in again.values()):
            return whole, again
        run.budget.expected.update(reserved)
        late = any(x.figures["stop"] in ("time", "interrupted") for x in again.values())
    return problem, {form: x.stopped(run.why_stopped) if late else x for form, x in found.items()}


def _cost(problem: Problem, found: Mapping[Form, Found]) -> int:
    """Picoseconds of all parts."""
    return sum(found[part.form].cheapest.cover.cost for part in problem.parts)
