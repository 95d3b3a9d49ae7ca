"""Why a rule is not among the steps to a result: the policy bars it, it matches nowhere, its guard refused it, or its
form was found but costs more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from eqsat.base.arguments import instance
from eqsat.base.time_budget import TimeBudget
from eqsat.egraph.match import Matcher, Refusal, Shape
from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.errors import InputError
from eqsat.explain.explain import Explainer, InstanceWriter, instances
from eqsat.explain.narration import why_not_text
from eqsat.extract.cover import cover
from eqsat.extract.device.table import Device, DeviceLike
from eqsat.extract.device.table import device as find_device
from eqsat.html.fragments import fragment
from eqsat.language import text as rule_text
from eqsat.language.equation import arrays_of
from eqsat.language.rule import ALLOWED, AnyRule, HostRule, Pat, Policy, Rule, Var
from eqsat.pipeline.describe import explanation_of
from eqsat.pipeline.selection import Selection, choose
from eqsat.program.core import Node, make
from eqsat.program.core_table import CORE
from eqsat.program.ir import Program
from eqsat.rules import EXPLORING, allowed
from eqsat.search.asked import Asked
from eqsat.search.limits import EXPLAINING
from eqsat.search.runner import Runner
from eqsat.search.search import Problem, partition, search

_MOST_PRICED = 3
"""Most places, per form of segments, at which the program is priced with the rule's form in it."""

_COVER_SECONDS = 1.0
_MOST_NEAREST = 3


@dataclass(frozen=True, slots=True)
class Place:
    """A place where a rule could have fired, or did.

    Attributes:
        where, term: the place in the source, and the value there.
        reasons: the missing conditions, or the cost of its form.
        bindings: sizes, functions and layouts bound to the rule's variables.
    """

    where: str
    term: str
    reasons: tuple[str, ...]
    bindings: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """A place that was missed; `guard` is the first part of the guard that failed."""
        reasons = list(self.reasons)
        return {
            "where": self.where,
            "term": self.term,
            "guard": reasons[0],
            "reasons": reasons,
            "with": self.bindings,
        }


@dataclass(slots=True)
class Answer:
    """The effect of a rule on one program.

    Attributes:
        rule: its name.
        barred: why the policy does not allow it; empty if it does. If barred, the rest shows what the rule would do.
        fired: places of the e-graph where it holds.
        steps: the steps of the explanation that use it.
        dearer: forms that it found, with the cost of a program that uses them.
        missed: places where its left side matches but its guard does not hold.
        nearest: the nearest match of its left side, if it matches nowhere.
    """

    rule: str
    barred: str = ""
    fired: int = 0
    steps: list[int] = field(default_factory=list)
    dearer: list[Place] = field(default_factory=list)
    missed: list[Place] = field(default_factory=list)
    nearest: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return why_not_text(self.as_json())

    def _repr_html_(self) -> str:
        return fragment("text", lines=str(self).splitlines())

    def as_json(self) -> dict[str, Any]:
        """As `eqsat explain --why-not --json` writes it (schema 1)."""
        return {
            "schema": 1,
            "rule": self.rule,
            "barred": self.barred,
            "held": self.fired,
            "steps": self.steps,
            "dearer": [{"where": p.where, "term": p.term, "reason": p.reasons[0]} for p in self.dearer],
            "missed": [p.as_json() for p in self.missed],
            "nearest": self.nearest,
        }


def why_not(
    program: Program,
    row: AnyRule,
    device: DeviceLike = "mi300x",
    time_limit: float = 10.0,
    numerics: Policy = "reassociate",
    rules: Sequence[AnyRule] | None = None,
) -> Answer:
    """The effect of a rule when a program is optimised, by these rules (all by default) and itself.

    Raises:
        InputError: the device or the policy is unknown, or an argument is not as above.
    """
    instance("why_not", program, Program, "a Program first")
    instance("why_not", row, (Rule, HostRule), "a rule second")
    from eqsat.rules import ALL

    target = find_device(device)
    usable = allowed(list(ALL if rules is None else rules), numerics)
    answer = Answer(row.name, _barred(row, numerics))
    if row not in usable:
        usable.append(row)
    run = Runner(TimeBudget.of(time_limit))
    problem = partition(program, Asked(target, tuple(usable)), run)
    found = search(problem, run)
    (best,) = choose(problem, found, run)
    steps = explanation_of(problem, best.solved, EXPLAINING.seconds, run).steps
    answer.steps = [i for i, step in enumerate(steps, 1) if step.rule == row.name]
    look_for(answer, row, problem, best)
    return answer


def look_for(answer: Answer, row: AnyRule, problem: Problem, best: Selection) -> None:
    """Fill in where a rule fired in a finished search, and where not."""
    explainer = Explainer(problem.source, problem.core.source_term)
    asked = problem.asked
    for form, (part, _) in instances(problem.parts).items():
        look = _Look(best.found[form].explored, row, explainer.writer(part), asked.rules)
        answer.fired += look.fired()
        if not answer.steps and not answer.barred:
            answer.dearer += look.dearer(asked.device, best.solved[form].cover.cost)
        answer.missed += look.missed()
        if not answer.fired and not answer.missed:
            answer.nearest += look.nearest()
    answer.missed = list({(p.reasons, p.term): p for p in answer.missed}.values())
    answer.nearest = list(dict.fromkeys(answer.nearest))[:_MOST_NEAREST] if not answer.fired else []


def _barred(row: AnyRule, numerics: Policy) -> str:
    if row in EXPLORING:
        return "only `eqsat prove` and `eqsat explore --exploring` use it: it does not come to rest on large programs"
    if row.numerics not in ALLOWED[numerics]:
        policy = next(p for p, classes in ALLOWED.items() if row.numerics in classes)
        return f"not in policy {numerics}: it is {row.numerics}, which needs --numerics {policy}"
    return ""


class _Look:
    """One rule over the e-graph of one form of segments."""

    def __init__(self, snapshot: Snapshot, row: AnyRule, writer: InstanceWriter, rules: Sequence[AnyRule]) -> None:
        self._snapshot, self._row, self._writer = snapshot, row, writer
        self._matcher = Matcher(snapshot, rules)

    def fired(self) -> int:
        """Places where the rule holds and its right side is in the e-graph."""
        return len(self._results())

    def _results(self) -> dict[int, None]:
        """The e-nodes that the rule makes: the tops of its right side."""
        if isinstance(self._row, HostRule):
            return {i: None for i, node in enumerate(self._snapshot.nodes) if node.rule == self._row.name}
        found: dict[int, None] = {}
        for at in range(len(self._snapshot.nodes)):
            for match in self._matcher.matches(self._row, at):
                if isinstance(match.right, tuple):
                    found[match.right[0]] = None
                elif match.right is not None:
                    found[at] = None
        return found

    def dearer(self, device: Device, chosen: int) -> list[Place]:
        """The cost of the cheapest program found that computes a value by the rule's form."""
        places = []
        for at in list(self._results())[:_MOST_PRICED]:
            node = self._snapshot.nodes[at]
            try:
                cost = cover(_only(self._snapshot, at), device, _COVER_SECONDS).cost
            except InputError:
                continue  # the form reads itself once its class has no other
            more = (cost - chosen) * 1e-6
            said = f"dearer by {more:.3g} us" if cost > chosen else "no cheaper than the program without it"
            reason = f"fired but not chosen: {said} ({cost * 1e-6:.3f} us against {chosen * 1e-6:.3f} us)"
            value = make(node.op, node.attrs, [self._snapshot.term(a) for a in node.args])
            places.append(Place(self._where(node.cls), self._writer.value(value), (reason,)))
        return places

    def missed(self) -> list[Place]:
        """Places where only the guard kept the rule from firing."""
        if isinstance(self._row, HostRule):
            return []
        found = []
        for at in range(len(self._snapshot.nodes)):
            for refusal in self._matcher.refusals(self._row, at):
                value = self._node(refusal.left, refusal)
                reasons = tuple(self._reason(part, refusal) for part in refusal.failed)
                found.append(Place(self._where(refusal.cls), self._writer.value(value), reasons, _shown(refusal)))
        return found

    def _reason(self, part: Any, refusal: Refusal) -> str:
        def said(name: str) -> str:
            return self._writer.value(self._snapshot.term(refusal.bindings[name]))

        text = rule_text.refusal(
            part, refusal.bindings, said, lambda attr: self._matcher.number(attr, refusal.bindings)
        )
        return f"would not pay: {text}" if part in refusal.rule.worth else text

    def nearest(self) -> list[str]:
        """The nearest match of the left side, if it matches nowhere."""
        present = _counted(Counter(n.op for n in self._snapshot.nodes if n.args and n.rule == "")) or "no operators"
        if isinstance(self._row, HostRule):
            return [f"needs: {self._row.guard_text or self._row.text}; the program has {present}"]
        same = [n for n in self._snapshot.nodes if n.op == self._row.left.op]
        if not same:
            return [f"needs {rule_text.kind(self._row.left)}: the program has none (it has {present})"]
        scored = sorted((miss for node in same for miss in self._misses(self._row.left, node)), key=lambda m: -m[0])
        best = [m for m in scored if m[0] == scored[0][0]] if scored else []
        return [text for _, text in best]

    def _misses(self, pattern: Pat, node: ENode, depth: int = 1) -> Iterator[tuple[int, str]]:
        """(how far it matched, what stands there instead) for an e-node of the pattern's operator."""
        for attr, value in zip(pattern.attrs, node.attrs, strict=True):
            if not isinstance(attr, Var) and getattr(attr, "value", value) != value:
                yield depth, f"nearest: {self._class(node.cls)} is {value}, where {rule_text.kind(pattern)} is needed"
                return
        parts = dict(zip(pattern.args, node.args, strict=True))
        twice = any(parts[a] != cls for a, cls in zip(pattern.args, node.args, strict=True))
        if twice or (depth == 1 and not any(isinstance(a, Pat) for a in pattern.args)):
            yield (
                depth,
                f"nearest: {self._class(node.cls)}, but the rule names one part twice that is not the same here",
            )
        for wanted, cls in zip(pattern.args, node.args, strict=True):
            if isinstance(wanted, Pat):
                same = [n for n in self._snapshot.of_class(cls) if n.op == wanted.op]
                if not same:
                    met = f"{self._class(cls)} stands where {rule_text.kind(wanted)} is needed"
                    yield depth, f"nearest: in {self._class(node.cls)}, {met}"
                for inner in same:
                    yield from self._misses(wanted, inner, depth + 1)

    def _class(self, cls: int) -> str:
        return self._writer.value(self._source(cls))

    def _source(self, cls: int) -> Node:
        """The value of a class as the program writes it, if it has it."""
        own = next((n for n in self._snapshot.of_class(cls) if n.rule == ""), None)
        if own is None:
            return self._snapshot.term(cls)
        return make(own.op, own.attrs, [self._snapshot.term(a) for a in own.args])

    def _where(self, cls: int) -> str:
        return self._writer.place(self._source(cls))

    def _node(self, shape: Shape, refusal: Refusal) -> Node:
        if isinstance(shape, str):
            return self._snapshot.term(refusal.bindings[shape])
        row = self._snapshot.nodes[shape[0]]
        return make(row.op, row.attrs, [self._node(s, refusal) for s in shape[1]])


def _counted(ops: Counter[str]) -> str:
    """The number of e-nodes of each operator."""
    return ", ".join(f"{ops[op]} {row.plural}" for op, row in CORE.items() if ops[op])


def _only(snapshot: Snapshot, at: int) -> Snapshot:
    """The e-graph in which a class has only one given e-node."""
    cls = snapshot.nodes[at].cls
    nodes = [n for i, n in enumerate(snapshot.nodes) if n.cls != cls or i == at]
    return Snapshot(nodes, snapshot.n_classes, snapshot.const, snapshot.roots)


def _shown(refusal: Refusal) -> dict[str, str]:
    """The values of variables that are not arrays."""
    arrays = {"self", *arrays_of(refusal.rule.left)}
    return {
        name: value.key() if hasattr(value, "key") else str(value)
        for name, value in refusal.bindings.items()
        if name not in arrays
    }
