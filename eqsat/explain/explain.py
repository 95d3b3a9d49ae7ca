"""Explanations: the steps from a program to its result as its author would write them.

A derivation (`eqsat.explain.derivation`) is over flat core nodes of one form of segments. Here each step is put into
NumPy's words, with the names of the first instance of the form: what the rule's variables stand for is abbreviated
where it is long, and said beside the step. A reader who applies all steps in order gets from the source to the result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from eqsat.explain.derivation import Derivation, Step, derive_cover
from eqsat.explain.merges import launched, merges
from eqsat.explain.replay import Replayer, largest_shared
from eqsat.extract.plan.plan import Plan
from eqsat.extract.plan.stitch import Solved
from eqsat.language.rule import AnyRule, Rule
from eqsat.language.text import side
from eqsat.lift.places import Places
from eqsat.lift.shaped import CUT, Shaper
from eqsat.program.core import CoreProgram, Node, topological
from eqsat.program.fold import Folded
from eqsat.program.ir import Program
from eqsat.program.node import substitute
from eqsat.program.printer import LISTED, SHOWN, expression, sketch
from eqsat.program.segments import Segment
from eqsat.program.term import Term, spec_of

FOLD = "fold-constants"
"""The name of the step that is no rule: an expression of constants computed ahead of time."""

Form = tuple[Node, ...]

_LEAVES = frozenset({"In", "Const", "Full"})
_INLINE = 2
"""Operators of an operand that is still written out where it stands."""

_DEEPEST = 3
"""Operators that are written inside one another where a step does not say where to stop."""

_CUT = re.compile(rf"{CUT}\d+>")
_NOWHERE = 1 << 60


@dataclass(frozen=True, slots=True)
class ShownStep:
    """One step as people read it.

    Attributes:
        rule: its name; used from right to left where `backwards`.
        before, after: two ways to write one value, in the same names.
        type: of that value, as in `f32[348,768]`.
        where: the place of that value in the source, or the step whose result it is part of.
        names: what each name in them is: its type, and what it stands for.
        times: how often the step is taken: once for every equal part of the program.
        replayed, error: whether both sides were evaluated, and their largest difference.
    """

    rule: str
    before: str
    after: str
    type: str
    where: str
    names: dict[str, str] = field(default_factory=dict)
    backwards: bool = False
    times: int = 1
    replayed: bool = True
    error: float | None = None

    def as_json(self) -> dict[str, Any]:
        """As in the report."""
        return {
            "rule": self.rule,
            "before": self.before,
            "after": self.after,
            "type": self.type,
            "where": self.where,
            "names": self.names,
            "backwards": self.backwards,
            "times": self.times,
            "replayed": self.replayed,
            "error": self.error,
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a result follows from its source: the steps, and whether they lead all the way."""

    steps: list[ShownStep]
    derived: bool


def explain(
    program: Program,
    core: CoreProgram,
    parts: Sequence[Segment],
    solved: Mapping[Form, Solved],
    rules: Sequence[AnyRule],
    seconds: Callable[[], float],
    replayer: Replayer | None = None,
    folded: Folded | None = None,
) -> Explanation:
    """The explanation of a solved program, each form of its segments once.

    Args:
        solved: each form as it was chosen.
        seconds: how long the rest may take; once that is nothing, steps show what their rule says in general.
        replayer: evaluates the steps.
        folded: how `program` came from one with more to compute, where it did.

    Raises:
        CheckFailed: a step does not hold: a rule is unsound.
    """
    explainer = Explainer(program, core.source_term, rules, lambda: seconds() <= 0.0)
    replayer = replayer or Replayer()
    steps = explainer.folds(folded) if folded is not None else []
    derived = True
    for part, times in instances(parts).values():
        chosen = solved[part.form]
        derivation = derive_cover(chosen.snapshot, rules, part.form, chosen.cover, seconds(), replayer)
        derived = derived and derivation.whole
        steps += explainer.steps(derivation, part, times)
    return Explanation(steps, derived)


def merged_kernels(
    parts: Sequence[Segment],
    written: Mapping[Form, Solved],
    solved: Mapping[Form, Solved],
    rules: Sequence[AnyRule],
    before: Plan,
    after: Plan,
) -> list[dict[str, Any]]:
    """Kernels as written and those in their place, by name, with how many times; what stays as it is left out."""
    first: dict[Form, tuple[int, int]] = {}
    place = [0, 0]
    for part in parts:
        first.setdefault(part.form, (place[0], place[1]))
        place = [place[0] + len(launched(written[part.form])), place[1] + len(launched(solved[part.form]))]
    found = []
    for form, (_, times) in instances(parts).items():
        at_before, at_after = first[form]
        for merge in merges(form, written[form], solved[form], rules):
            names = [before.kernels[at_before + i].name for i in merge.before]
            new = [after.kernels[at_after + i].name for i in merge.after]
            if names != new:
                places = [at_before + i for i in merge.before], [at_after + i for i in merge.after]
                found.append(
                    {"before": names, "after": new, "times": times, "before_at": places[0], "after_at": places[1]}
                )
    return found


def instances(parts: Sequence[Segment]) -> dict[Form, tuple[Segment, int]]:
    """The first instance of each form of segments, and how many there are."""
    found: dict[Form, tuple[Segment, int]] = {}
    for part in parts:
        first, times = found.get(part.form, (part, 0))
        found[part.form] = first, times + 1
    return found


class Explainer:
    """Writes the steps of derivations over one program, numbered through."""

    def __init__(
        self,
        program: Program,
        known: Mapping[Node, Term],
        rules: Sequence[AnyRule] = (),
        late: Callable[[], bool] = lambda: False,
    ) -> None:
        self.late = late
        self._places = Places(program)
        self._known = known
        self._rules = {row.name: row for row in rules}
        self._count = 0
        self._values = 0

    def steps(self, derivation: Derivation, segment: Segment, times: int) -> list[ShownStep]:
        """The steps of a form of segments as they read in its first instance, of `times`."""
        own = {node: actual for node, actual in segment.leaves.items() if node is not actual}
        shown = self.writer(segment)
        found = [shown.step(_over(step, own), times) for step in derivation.steps]
        folds = [shown.fold(node, times) for node in substitute(derivation.folded, own)]
        return [step for step in [*found, *folds] if step is not None]

    def folds(self, folded: Folded) -> list[ShownStep]:
        """The steps that compute constants of the source; equal ones are one step."""
        places = Places(folded.before)
        found: dict[tuple[str, str], ShownStep] = {}
        for term in folded.computed:
            named = {t: name for t in _below([term]) if (name := places.constant(t)) is not None}
            text = sketch(term, named)
            names = {name: f"constant {t.spec}" for t, name in named.items() if _first([text], name) < len(text)}
            step = ShownStep(FOLD, text, f"constant {term.spec}", term.spec, f"at {places.of(term)}", names)
            known = found.setdefault((text, term.spec), step)
            found[text, term.spec] = step if known is step else replace(known, times=known.times + 1)
        self._count += len(found)
        return list(found.values())

    def writer(self, segment: Segment) -> InstanceWriter:
        """What writes the values of an instance of a segment."""
        return InstanceWriter(self, segment)

    def plain(self, steps: Sequence[Step]) -> list[ShownStep]:
        """Steps over nodes of the program itself."""
        shown = InstanceWriter(self, None)
        return [s for s in (shown.step(step, 1) for step in steps) if s is not None]

    def in_general(self, rule: str) -> tuple[str, str]:
        """Both sides of a rule, whatever they were used on."""
        row = self._rules.get(rule)
        if isinstance(row, Rule):
            return side(row.left), side(row.right)
        before, _, after = (row.text if row is not None else rule).partition(" => ")
        return before, after or before

    def numbered(self) -> int:
        """The number of the next step."""
        self._count += 1
        return self._count

    def fresh(self) -> str:
        """A name for a value that has none."""
        while True:
            self._values += 1
            name = f"t{self._values}"
            if name not in self._places.taken:
                return name


class InstanceWriter:
    """Writes steps and values of one instance of a segment."""

    def __init__(self, explainer: Explainer, segment: Segment | None) -> None:
        self._explainer = explainer
        self._places, self._known = explainer._places, explainer._known
        self._shaper = Shaper(self._known)
        self._leaves = segment.leaves if segment is not None else {}
        self._outside = frozenset(n for n in self._leaves.values() if n.op not in _LEAVES)
        roots = segment.roots if segment is not None else ()
        self._readers = {a: n for n in topological(roots) for a in n.args}
        self._names: dict[Node, str] = {}
        self._long: dict[Node, bool] = {}
        self._made: dict[Node, int] = {}

    def step(self, step: Step, times: int) -> ShownStep | None:
        """A step; None where both sides read alike: they differ in how flat arrays are laid out alone."""
        before, after = step.before, step.after
        if self._explainer.late():
            return self._hurried(step, times)
        self._shaper.share_shape(before, after)
        cut = self._cut(before, after, step.operands)
        left, right = self._shaper.terms([before, after], cut)
        where = self._where(before, step.source)
        if left is right:
            return None
        number = self._explainer.numbered()
        (one, other), names = self._written([left, right], cut)
        for node in topological([after]):
            if node not in self._known:
                self._made.setdefault(node, number)
        return ShownStep(
            rule=step.rule,
            before=one,
            after=other,
            type=left.spec,
            where=where,
            names=names,
            backwards=step.backwards,
            times=times,
            replayed=step.replay.done,
            error=step.replay.error,
        )

    def _hurried(self, step: Step, times: int) -> ShownStep:
        """A step that there is no time to write out."""
        self._explainer.numbered()
        before, after = self._explainer.in_general(step.rule)
        type_ = spec_of(self._shaper.shape(step.before), step.before.dtype)
        where = self._where(step.before, step.source)
        done, error = step.replay.done, step.replay.error
        return ShownStep(step.rule, before, after, type_, where, {}, step.backwards, times, done, error)

    def fold(self, node: Node, times: int) -> ShownStep:
        """The step that computes a constant expression ahead of time."""
        if self._explainer.late():
            self._explainer.numbered()
            spec = spec_of(self._shaper.shape(node), node.dtype)
            return ShownStep(FOLD, "an expression of constants", f"constant {spec}", spec, "among the constants")
        cut = self._deep([node])
        (term,) = self._shaper.terms([node], cut)
        where = self._where(node, None)
        self._explainer.numbered()
        (text,), names = self._written([term], cut)
        return ShownStep(FOLD, text, f"constant {term.spec}", term.spec, where, names, times=times)

    def value(self, node: Node) -> str:
        """A value of the instance's form in a line, and its type."""
        own = {leaf: actual for leaf, actual in self._leaves.items() if leaf is not actual}
        (node,) = substitute([node], own)
        (term,) = self._shaper.terms([node], self._deep([node]))
        return f"{_CUT.sub('…', expression(term, self._constants([term])))}: {term.spec}"

    def place(self, node: Node) -> str:
        """Where a value of the instance's form stands in the source."""
        own = {leaf: actual for leaf, actual in self._leaves.items() if leaf is not actual}
        return self._where(substitute([node], own)[0], None, otherwise="in a form that rules made")

    # --- what is written out, and what has a name

    def _cut(self, before: Node, after: Node, operands: Iterable[Node]) -> list[Node]:
        """The nodes that are abbreviated: long operands of the rule, else what both sides share, else what is deep."""
        left, right = set(topological([before])), set(topological([after]))
        shared = [_base(n) for n in operands if n in left and n in right]
        if any(n not in left or n not in right for n in operands):
            shared += [_base(n) for n in largest_shared(after, left - {before})]
        cut = {n for n in shared if self._is_long(n) and n is not before and n is not after}
        return self._deep([before, after], cut)

    def _deep(self, roots: Sequence[Node], cut: Collection[Node] = ()) -> list[Node]:
        """`cut` and what is not written out: what lies too deep under the roots, what a list leaves out, results of
        other segments."""
        found: dict[Node, None] = {}
        stack = [(r, 0) for r in reversed(roots)]
        seen: set[tuple[Node, int]] = set()
        while stack:
            node, depth = stack.pop()
            if (node, depth) in seen or node.op in _LEAVES:
                continue
            seen.add((node, depth))
            stops = node in cut or node.op == "Opaque"
            too_deep = depth >= _DEEPEST and self._is_long(node) and node.op != "V"
            if node not in roots and (stops or node in self._outside or too_deep):
                found[node] = None
            else:
                args = node.args if len(node.args) <= LISTED else node.args[:SHOWN]
                found |= dict.fromkeys(a for a in node.args[len(args) :] if a.op not in _LEAVES)
                stack.extend((a, depth + (node.op != "V")) for a in reversed(args))
        return list(found)

    def _is_long(self, node: Node) -> bool:
        """Whether a value takes more than a few operators, or results of other segments."""
        if node not in self._long:
            operators, stack = 0, [node]
            while stack and operators <= _INLINE:
                at = stack.pop()
                operators += _INLINE + 1 if at in self._outside else at.op not in ("V", *_LEAVES)
                stack.extend(at.args)
            self._long[node] = operators > _INLINE
        return self._long[node]

    def _written(self, terms: Sequence[Term], cut: Sequence[Node]) -> tuple[list[str], dict[str, str]]:
        """Terms as text, and what each name in them is: its type, and what it stands for."""
        constants = self._constants(terms)
        texts = [expression(term, constants) for term in terms]
        shown = [t for t in _below(terms) if t.op == "input" or t in constants]
        legend: dict[str, str] = {}
        for term in sorted(shown, key=lambda t: _first(texts, _called(t, constants))):
            name = _called(term, constants)
            if _first(texts, name) == _NOWHERE:
                continue  # one of many that a list leaves out
            if term in constants:
                full = self._places.names.get(term, name)
                legend[name] = f"constant {term.spec}{f' = {full}' if full != name else ''}"
            elif name.startswith(CUT):
                node = cut[int(name[len(CUT) : -1])]
                own = self._names.setdefault(node, self._names.get(node) or self._explainer.fresh())
                texts = [text.replace(name, own) for text in texts]
                legend[own] = f"{term.spec} = {self._said(node)}"
            else:
                legend[name] = term.spec
        return texts, legend

    def _constants(self, terms: Sequence[Term]) -> dict[Term, str]:
        """Names of the constants in terms."""
        return {t: name for t in _below(terms) if (name := self._places.constant(t)) is not None}

    def _said(self, node: Node) -> str:
        """A value in few words: how it is computed, and its name in the model, or else the step that made it."""
        term = self._known.get(node)
        if term is None:
            return f"part of the result of step {self._made[node]}" if node in self._made else "computed below"
        text = sketch(term, self._constants([term]))
        return f"{text}, {self._places.names[term]} in the model" if term in self._places.names else text

    # --- where

    def _where(self, before: Node, source: Node | None, otherwise: str = "in the result of earlier steps") -> str:
        """The value's place in the source; where the source does not have it, the last step that it comes from."""
        term = self._known.get(before) or (self._known.get(source) if source is not None else None)
        if term is not None:
            return f"at {self._places.of(term)}"
        step = max((self._made[n] for n in topological([before]) if n in self._made), default=0)
        if step:
            return f"in the result of step {step}"
        reader = before
        while reader not in self._known and reader in self._readers:
            reader = self._readers[reader]
        if reader in self._known:
            return f"under {self._places.of(self._known[reader])}"
        return "among the constants" if _constant(before) else otherwise


def _called(term: Term, constants: Mapping[Term, str]) -> str:
    return constants[term] if term in constants else term.attr("name")


def _first(texts: Sequence[str], name: str) -> int:
    """Where a name first stands in texts; past their end where it does not."""
    start = 0
    for text in texts:
        found = re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", text)
        if found:
            return start + found.start()
        start += len(text)
    return _NOWHERE


def _over(step: Step, leaves: Mapping[Node, Node]) -> Step:
    """The step over an instance's own leaves."""
    nodes = [step.before, step.after, *step.operands, *([step.source] if step.source is not None else [])]
    before, after, *rest = substitute(nodes, leaves)
    operands = tuple(rest[: len(step.operands)])
    source = rest[-1] if step.source is not None else None
    return replace(step, before=before, after=after, operands=operands, source=source)


def _base(node: Node) -> Node:
    """What a view reads, in the end."""
    while node.op == "V":
        (node,) = node.args
    return node


def _constant(node: Node) -> bool:
    return not any(n.op in ("In", "Opaque") for n in topological([node]))


def _below(terms: Iterable[Term]) -> list[Term]:
    from eqsat.program.term import topological as terms_below

    return terms_below(terms)
