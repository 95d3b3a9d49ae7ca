"""Replays the choice of a search on the same program at other sizes.

Two sizes of one program saturate alike: the same rules fire at the same places, and only dims differ. Then e-nodes and
classes have equal numbers in both e-graphs, so a cover of one is a cover of the other. Nothing is searched again, and
ties cannot fall differently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from eqsat.check.folded import origins
from eqsat.dynamic.instantiate import Written
from eqsat.egraph.saturate import Limits, saturate, stated
from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.extract.plan.stitch import Solved
from eqsat.language.rule import AnyRule, HostRule
from eqsat.pipeline.assemble import lifted, planned
from eqsat.pipeline.selection import Selection
from eqsat.program.ir import Program
from eqsat.search.runner import Runner
from eqsat.search.search import Form, Problem, partition


class Unlike(Exception):
    """The program at another size is not the same program; the message says in what it differs."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A search that ended: the program at one size, and the cover of each of its forms."""

    problem: Problem
    selection: Selection

    def keep(self, forms: Sequence[int]) -> Choice:
        """The same choice with these forms, by number, left as written."""
        known = self.forms
        return replace(self, selection=self.selection.keep([known[i] for i in forms], "sizes"))

    def written(self) -> Written:
        """The program that it gives, at the size of its search."""
        return _written(self.problem, self.selection.solved)

    @property
    def forms(self) -> list[Form]:
        """The forms of the program, each once, in order."""
        return _forms(self.problem)

    def changed(self) -> list[int]:
        """The numbers of the forms that are not left as written."""
        changed = self.selection.changed()
        return [i for i, form in enumerate(self.forms) if form in changed]


class Replay:
    """The program of a choice at another size.

    Attributes:
        refused: forms by number whose e-graph at this size is another one, and why.
    """

    def __init__(self, choice: Choice, program: Program, run: Runner) -> None:
        """Raises Unlike if the program is cut into other parts at this size."""
        self._choice, self._run = choice, run
        self._problem = partition(program, choice.problem.asked, run)
        self.refused: dict[int, str] = {}
        before, after = choice.forms, _forms(self._problem)
        if _pattern(choice.problem, before) != _pattern(self._problem, after):
            raise Unlike("it is cut into other parts")
        self._snapshots: dict[int, Snapshot] = {}
        for i, (form, here) in enumerate(zip(before, after, strict=True)):
            written = Snapshot.from_core(here)
            if _structure(written) != _structure(choice.selection.found[form].written.snapshot):
                raise Unlike("its operators differ")
            self._snapshots[i] = written
        for i in choice.changed():
            try:
                with run.budget.stage("replay"):
                    self._snapshots[i] = self._e_graph(choice.selection.solved[before[i]], self._snapshots[i])
            except Unlike as unlike:
                self.refused[i] = str(unlike)

    def written(self, choice: Choice) -> Written:
        """The program that the choice, or the same choice with forms left as written, gives at this size."""
        changed = choice.changed()
        solved: dict[Form, Solved] = {}
        for i, (form, here) in enumerate(zip(choice.forms, _forms(self._problem), strict=True)):
            cover = choice.selection.solved[form].cover
            snapshot = self._snapshots[i] if i in changed else Snapshot.from_core(here)
            solved[here] = Solved(snapshot, cover)
        return _written(self._problem, solved)

    def _e_graph(self, solved: Solved, written: Snapshot) -> Snapshot:
        """The e-graph of a form at this size. Raises Unlike if it is not the one that was covered."""
        wanted, rules = solved.snapshot, self._choice.problem.asked.rules
        before = written if solved.before is None else self._e_graph(solved.before, written)
        further = [] if solved.before is None else stated(_groups(rules), before, [solved.before.cover.derivation])
        most = Limits(self._run.left("replay"), iterations=_iterations(wanted) - _iterations(before))
        found = saturate(before, rules, most, further=further)
        stop = found.stats["stop"]
        if stop == "interrupted":
            self._run.interrupt()
        if stop in ("time", "interrupted", "memory") and stop != wanted.stats["stop"]:
            raise Unlike(f"no {'memory' if stop == 'memory' else 'time'} is left for its e-graph")
        if _structure(found) != _structure(wanted):
            raise Unlike("other rules apply there")
        return found


def _written(problem: Problem, solved: Mapping[Form, Solved]) -> Written:
    program, _, meanings = lifted(problem, planned(problem, solved))
    computed = origins([(term, meanings[term]) for term in program.outputs.values() if term in meanings])
    # The source comes last: the search may compute the same constant from one of its own.
    folded = zip(problem.folded.values, problem.folded.computed, strict=True)
    return Written(program, dict([*computed, *folded]))


def _iterations(snapshot: Snapshot) -> int:
    return snapshot.stats.get("iterations", 0)


def _groups(rules: Sequence[AnyRule]) -> list[HostRule]:
    return [rule for rule in rules if isinstance(rule, HostRule) and rule.phase == "groups"]


def _forms(problem: Problem) -> list[Form]:
    return list(dict.fromkeys(part.form for part in problem.parts))


def _pattern(problem: Problem, forms: Sequence[Form]) -> list[int]:
    """The form of each part, by number."""
    number: Mapping[Form, int] = {form: i for i, form in enumerate(forms)}
    return [number[part.form] for part in problem.parts]


def _structure(snapshot: Snapshot) -> object:
    """Equal for e-graphs that differ in dims and values alone."""
    return snapshot.roots, snapshot.const, [(n.op, n.args, n.cls, _named(n)) for n in snapshot.nodes]


def _named(node: ENode) -> tuple[object, ...]:
    """What the attributes of an e-node say apart from sizes and values: functions and element types."""
    opaque = node.op == "Opaque"
    return tuple(attr if isinstance(attr, str) and not opaque else type(attr) for attr in node.attrs)
