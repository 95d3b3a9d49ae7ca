"""From covers to a whole result: its plan, its program over shaped terms, and its constants."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from eqsat.base.memory_limit import in_use
from eqsat.check.check import check
from eqsat.check.means import Means
from eqsat.check.part import Check, Special
from eqsat.check.rounding import Pair
from eqsat.errors import CheckFailed, CheckUndecided, EqsatError
from eqsat.extract.plan.memory import lean_plan
from eqsat.extract.plan.plan import Plan, folding_bytes
from eqsat.extract.plan.stitch import Solved, Stitched, stitch
from eqsat.language.rule import Policy
from eqsat.pipeline.selection import Selection
from eqsat.program.fold import fold_constants
from eqsat.program.ir import Program
from eqsat.program.term import Term
from eqsat.search.runner import Deadline, Prefetch, Runner, Stage
from eqsat.search.search import Form, Found, Problem


@dataclass(frozen=True, slots=True)
class Assembled:
    """A whole result.

    Attributes:
        selection: the covers that it was built from.
        program, plan: the result.
        cuts: pairs of equal values of the source and the result, operands first.
        meanings: values of the result, and the same values with folded constants replaced by their expressions.
        unchecked: the result is the source itself, since not even the plan of the source could be checked.
    """

    selection: Selection
    program: Program
    plan: Plan
    cuts: Sequence[Pair] = ()
    meanings: Mapping[Term, Term] = field(default_factory=dict)
    unchecked: bool = False


class WrittenPlan:
    """The plan of a program as written. It is made while the search waits for e-graphs, or for other processes."""

    def __init__(self) -> None:
        self._begun: tuple[Problem, Mapping[Form, Solved], Prefetch[Stitched]] | None = None

    def begin(self, problem: Problem, written: Mapping[Form, Solved]) -> None:
        """Begin with these covers."""
        self._begun = problem, written, Prefetch(lambda: planned(problem, written), math.inf)

    def result(self, problem: Problem, found: Mapping[Form, Found]) -> Stitched:
        """The plan that was begun, or another one if the covers as written are no longer the same."""
        written = {form: x.written for form, x in found.items()}
        if self._begun is not None:
            before, covers, plan = self._begun
            same = before is problem and all(covers[form].cover is x.cover for form, x in written.items())
            if same and (made := plan.result()) is not None:
                return made
        return planned(problem, written)


def assemble(problem: Problem, selection: Selection, written: Stitched, run: Runner) -> Assembled:
    """The result with these covers; the program as written if time runs out or Ctrl-C is pressed meanwhile.

    Forms whose constants take too much memory, or overflow a short float, are left as written.
    """
    run.tell("folding constants", 0.85)
    changed = selection.changed()
    # The check can do with less than what is kept for it; a result cannot.
    left = max(run.budget.left("fold"), run.budget.left("check"))
    made = run.run(ASSEMBLE, left, problem, selection, written) if changed or left > 0 else None
    if made is None:
        return Assembled(selection.keep(changed, run.why_stopped), problem.folded.program, written.plan)
    return made


def _assembled(deadline: Deadline, problem: Problem, selection: Selection, written: Stitched) -> Assembled:
    from eqsat.check.overflow import overflows

    selection = _keep_large(problem, selection)
    made = _made(problem, selection, written)
    if overflows(problem.source, made.program, problem.asked.inputs, memory_left(problem)):
        made = _made(problem, selection.keep(selection.changed(), "overflow"), written)
    return made


def _made(problem: Problem, selection: Selection, written: Stitched) -> Assembled:
    from eqsat.check.overflow import folds_to_infinity

    core = problem.core
    stitched = planned(problem, selection.solved, written) if selection.changed() else written
    narrow = [p.segment.form for p in stitched.parts if folds_to_infinity(p.constants, core.constants)]
    narrow = [form for form in selection.changed() if form in narrow]
    if narrow:
        selection = selection.keep(narrow, "overflow")
        stitched = planned(problem, selection.solved, stitched)
    folded, cuts, meanings = lifted(problem, stitched)
    plan = lean_plan(stitched.plan) if problem.asked.goal.memory else stitched.plan
    return Assembled(selection, folded, plan, cuts, meanings)


ASSEMBLE = Stage(_assembled, lambda problem, selection, written: None, always=True, grace=0.0)


def planned(problem: Problem, solved: Mapping[Form, Solved], known: Stitched | None = None) -> Stitched:
    """The plan of the program with these covers, and with the plans of parts that it shares with a `known` one."""
    with problem.budget.stage("plan"):
        parts = [(part, solved[part.form]) for part in problem.parts]
        return stitch(parts, problem.core, problem.asked.exact, known)


def lifted(problem: Problem, stitched: Stitched) -> tuple[Program, list[Pair], dict[Term, Term]]:
    """The program of a plan over shaped terms with its constants folded, and the `cuts` and `meanings` of its values as
    in `Assembled`."""
    from eqsat.lift.segments import lift_parts

    budget, core = problem.budget, problem.core
    with budget.stage("lift"):
        found = lift_parts(stitched.parts, core, problem.asked.exact)
    with budget.stage("fold"):
        inside = [*(term for _, term in found.cuts), *found.meanings]
        folded, became = fold_constants(found.program, inside, problem.folded.program)
    source = problem.folded.program
    folded = replace(folded, names=source.names, written=source.written, header=source.header)
    known = dict(zip(inside, became, strict=True))
    cuts = [(source, known[term]) for source, term in found.cuts]
    return folded, cuts, {known[term]: meaning for term, meaning in found.meanings.items()}


def memory_left(problem: Problem) -> int:
    """Bytes left within the memory limit."""
    return max(0, problem.asked.memory - in_use())


def _keep_large(problem: Problem, selection: Selection) -> Selection:
    """Leave forms as written, the largest first, until the constants of all parts fit into memory."""
    count = Counter(part.form for part in problem.parts)
    needed = {form: n * _folding(selection.solved[form]) for form, n in count.items()}
    left = memory_left(problem)
    large: list[Form] = []
    for form in sorted(needed, key=lambda form: -needed[form]):
        if sum(needed.values()) <= left:
            break
        own = count[form] * _folding(selection.found[form].written)
        if needed[form] > own:
            large.append(form)
            needed[form] = own
    return selection.keep(large, "memory")


def _folding(solved: Solved) -> int:
    return folding_bytes(solved.snapshot, solved.cover)


def stays_source(made: Assembled, run: Runner) -> bool:
    """Whether the result is the source itself: nothing was found, and the time is over or it cannot be checked."""
    return made.unchecked or (not made.selection.changed() and run.left("explain") <= 0)


_SPECIAL: Mapping[Policy, Special] = {"exact": "same", "reassociate": "placed", "fast": "hidden"}
"""What the classes of rules promise of NaN and infinities, by the policy that lets them fire (docs/numerics.md)."""


def verify(problem: Problem, made: Assembled, run: Runner) -> Check:
    """Compare the result with the folded program, and that with the program as given. The source itself needs no
    comparison.

    Raises:
        CheckFailed: one differs.
    """
    run.tell("checking", 0.95)
    if stays_source(made, run):
        return check(problem.source, problem.source)
    folded, special = problem.folded, _SPECIAL[problem.asked.numerics]
    given = {"cuts": made.cuts, "special": special, "meanings": made.meanings}
    found = _compared(problem, run, folded.program, made.program, **given)
    if not folded.computed:
        return found
    before, after = (
        Program((), {str(i): term for i, term in enumerate(terms)}) for terms in (folded.computed, folded.values)
    )
    return found + _compared(problem, run, before, after)


def _compared(problem: Problem, run: Runner, source: Program, result: Program, **given: Any) -> Check:
    """Compare two programs in the time and memory left.

    Raises:
        CheckUndecided: it took longer, or Ctrl-C was pressed.
        CheckFailed: they differ.
    """
    ends = time.monotonic() + run.checking()
    means = Means(memory_left(problem), lambda: ends - time.monotonic(), lambda: run.interrupted)

    @np.errstate(all="ignore")  # which a thread has of its own
    def compared() -> Check:
        return check(source, result, seconds=run.left("check"), means=means, **given)

    with run.budget.stage("check"):
        found = run.check(compared)
    if found is None:
        raise CheckUndecided("the comparison with the source was not finished in time")
    return found


def spelled(problem: Problem, made: Assembled, run: Runner, refused: list[EqsatError]) -> tuple[Assembled, Check]:
    """A result whose norms are written as runtimes know them, and its comparison with the result itself. Its kernels
    are the same. Exact results, and programs that no file was read for, stay as they are; so does a result that
    differs so, and the refusal is added to `refused`.
    """
    nothing = Check(0.0, 0)
    if problem.asked.exact or stays_source(made, run):
        return made, nothing
    from eqsat.frontends.onnx.write.norms import norms_scaled

    program, equal = norms_scaled(made.program)
    if program is made.program:
        return made, nothing
    try:
        found = _compared(problem, run, made.program, program, cuts=equal, special="placed")
    except CheckFailed as error:
        refused.append(error)
        return made, nothing
    return replace(made, program=program), found
