"""Explanations: the steps from a program to its result as its author would write them.

A derivation (`eqsat.explain.derivation`) is over flat core nodes of one form of segments. Here each step is written in
NumPy's notation, with the names of the first instance of the form. Long operands are abbreviated, and written out
beside the step. Applying all steps in order leads from the source to the result.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from eqsat.base.graphs import operands_first
from eqsat.explain.derivation import Derivation, Step, derive_cover
from eqsat.explain.effort import STEP, Effort
from eqsat.explain.explanation import FOLD, Explanation, ShownStep
from eqsat.explain.merges import launched, merges
from eqsat.explain.replay import Replayer, largest_shared
from eqsat.extract.plan.plan import Plan
from eqsat.extract.plan.stitch import Solved
from eqsat.language.rule import AnyRule
from eqsat.language.text import sides
from eqsat.lift.places import Places
from eqsat.lift.shaped import Shaper
from eqsat.parts.segments import Segment
from eqsat.program.core import CoreProgram, Node, topological
from eqsat.program.fold import Folded
from eqsat.program.ir import Program
from eqsat.program.node import is_folded, is_leaf, is_view, substitute
from eqsat.program.printer import LISTED, SHOWN, Pieces, expression, joined, pieces, sketch
from eqsat.program.term import Term, spec_of
from eqsat.program.term import topological as terms_below

Form = tuple[Node, ...]

_INLINE = 2
"""Most operators of an operand that is written out in place."""

_DEEPEST = 3
"""Depth to which operators are written out if the step does not say where to stop."""


def explain(
    program: Program,
    core: CoreProgram,
    parts: Sequence[Segment],
    solved: Mapping[Form, Solved],
    rules: Sequence[AnyRule],
    effort: Effort,
    replayer: Replayer | None = None,
    folded: Folded | None = None,
) -> Explanation:
    """The explanation of a solved program, each form of its segments once.

    Args:
        solved: each form with its chosen cover.
        effort: for finding and writing the steps; once it is over, steps show only their rule in general.
        replayer: evaluates the steps.
        folded: how `program` was made by folding constants, if it was.

    Raises:
        CheckFailed: a step does not hold: a rule is unsound.
    """
    explainer = Explainer(program, core.source_term, rules, effort)
    replayer = replayer or Replayer()
    steps = explainer.folds(folded) if folded is not None else []
    derived = True
    for part, times in instances(parts).values():
        chosen = solved[part.form]
        derivation = derive_cover(chosen.snapshot, rules, part.form, chosen.cover, effort, replayer)
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
    """Kernels as written and their replacements, by name, with counts; unchanged kernels are left out."""
    first: dict[Form, tuple[int, int]] = {}
    place = [0, 0]
    for part in parts:
        first.setdefault(part.form, (place[0], place[1]))
        place = [place[0] + len(launched(written[part.form])), place[1] + len(launched(solved[part.form]))]
    found = []
    for form, (_, times) in instances(parts).items():
        if solved[form].cover.chosen is written[form].cover.chosen:
            continue
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
    """The first instance of each form of segments, and the number of instances."""
    found: dict[Form, tuple[Segment, int]] = {}
    for part in parts:
        first, times = found.get(part.form, (part, 0))
        found[part.form] = first, times + 1
    return found


class Explainer:
    """Writes the steps of derivations over one program, numbered consecutively."""

    def __init__(
        self,
        program: Program,
        known: Mapping[Node, Term],
        rules: Sequence[AnyRule] = (),
        effort: Effort | None = None,
    ) -> None:
        self.effort = effort or Effort()
        self._places = Places(program)
        self._known = known
        self._rules = {row.name: row for row in rules}
        self._count = 0
        self._first: dict[Hashable, int] = {}
        self._values = 0

    def steps(self, derivation: Derivation, segment: Segment, times: int) -> list[ShownStep]:
        """The steps of a form of segments, written for the first of its `times` instances."""
        shown = self.writer(segment)
        found = [shown.step(step, times) for step in _over(derivation.steps, segment.leaves)]
        folds = [shown.fold(node, times) for node in substitute(derivation.folded, segment.leaves)]
        return [step for step in [*found, *folds] if step is not None]

    def folds(self, folded: Folded) -> list[ShownStep]:
        """The steps that compute constants of the source; equal ones are one step."""
        if not folded.computed:
            return []
        places = Places(folded.before)
        found: dict[tuple[str, str], ShownStep] = {}
        for term in folded.computed:
            named = {t: name for t in terms_below([term]) if (name := places.constant(t)) is not None}
            text = sketch(term, named)
            key = joined(text, named), term.spec
            if key in found:
                found[key] = replace(found[key], times=found[key].times + 1)
                continue
            names = {named[t]: f"constant {t.spec}" for t in _terms_in(text) if t in named}
            _, alike = self.numbered(FOLD, [term])
            after, where = (f"constant {term.spec}",), f"at {places.of(term)}"
            found[key] = ShownStep(FOLD, text, after, term.spec, where, alike, named, names)
        return list(found.values())

    def writer(self, segment: Segment) -> InstanceWriter:
        """The writer for the values of an instance of a segment."""
        return InstanceWriter(self, segment)

    def plain(self, steps: Sequence[Step]) -> list[ShownStep]:
        """Steps over nodes of the program itself."""
        shown = InstanceWriter(self, None)
        return [s for s in (shown.step(step, 1) for step in steps) if s is not None]

    def begins(self) -> bool:
        """Whether there is effort left to write another step, which then counts."""
        if self.effort.over():
            return False
        self.effort.spend(STEP)
        return True

    def in_general(self, rule: str) -> tuple[str, str]:
        """Both sides of a rule in general, without its operands here."""
        return sides(self._rules[rule])

    def numbered(self, rule: str, terms: Sequence[Term]) -> tuple[int, int]:
        """The number of the next step, and of the first similar one: by this rule, between similar expressions."""
        self._count += 1
        return self._count, self._first.setdefault((rule, _structure(terms)), self._count)

    def fresh(self) -> str:
        """A new name for a value without one."""
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
        self._outside = frozenset(n for n in self._leaves.values() if not is_leaf(n.op))
        roots = segment.roots if segment is not None else ()
        self._readers = {a: n for n in topological(roots) for a in n.args}
        self._names: dict[Node, str] = {}
        self._long: dict[Node, bool] = {}
        self._made: dict[Node, int] = {}

    def step(self, step: Step, times: int) -> ShownStep | None:
        """A step; None if both sides print the same: they differ only in the layout of flat arrays."""
        before, after = step.before, step.after
        where = self._where(before, step.source)
        if not self._explainer.begins():  # no time to write it out
            type_ = spec_of(self._shaper.shape(before), before.dtype)
            one, other = ((text,) for text in self._explainer.in_general(step.rule))
            called, names = {}, {}
            _, alike = self._explainer.numbered(step.rule, [])
        else:
            self._shaper.share_shape(before, after)
            cut = self._cut(before, after, step.operands)
            left, right = self._shaper.terms([before, after], cut)
            if left is right:
                return None
            type_ = left.spec
            number, alike = self._explainer.numbered(step.rule, [left, right])
            (one, other), called, names = self._written([left, right], cut)
            for node in self._inside(after):
                if node not in self._known:
                    self._made.setdefault(node, number)
        return ShownStep(
            rule=step.rule,
            before=one,
            after=other,
            type=type_,
            where=where,
            alike=alike,
            called=called,
            names=names,
            backwards=step.backwards,
            times=times,
            assumed=step.assumed,
            replayed=step.replay.done,
            error=step.replay.error,
        )

    def fold(self, node: Node, times: int) -> ShownStep:
        """The step that computes a constant expression ahead of time."""
        if not self._explainer.begins():
            _, alike = self._explainer.numbered(FOLD, [])
            spec = spec_of(self._shaper.shape(node), node.dtype)
            said = ("an expression of constants",)
            return ShownStep(FOLD, said, (f"constant {spec}",), spec, "among the constants", alike)
        cut = self._deep([node])
        (term,) = self._shaper.terms([node], cut)
        where = self._where(node, None)
        _, alike = self._explainer.numbered(FOLD, [term])
        (text,), called, names = self._written([term], cut)
        after = (f"constant {term.spec}",)
        return ShownStep(FOLD, text, after, term.spec, where, alike, called, names, times=times)

    def value(self, node: Node) -> str:
        """A value of the instance's form in a line, and its type."""
        (node,) = substitute([node], self._leaves)
        cut = self._deep([node])
        (term,) = self._shaper.terms([node], cut)
        deep = dict.fromkeys(self._shaper.stand_ins(cut).values(), "…")
        return f"{expression(term, self._constants([term]) | deep)}: {term.spec}"

    def place(self, node: Node) -> str:
        """Where a value of the instance's form stands in the source."""
        (node,) = substitute([node], self._leaves)
        return self._where(node, None, otherwise="in a form that rules made")

    # --- which values are written out, and which are named

    def _cut(self, before: Node, after: Node, operands: Iterable[Node]) -> list[Node]:
        """The nodes to abbreviate: long operands of the rule, else values that both sides share, else deep values."""
        left, right = set(self._inside(before)), set(self._inside(after))
        shared = [_base(n) for n in operands if n in left and n in right]
        if any(n not in left or n not in right for n in operands):
            shared += [_base(n) for n in largest_shared(after, left - {before})]
        cut = {n for n in shared if self._is_long(n) and n is not before and n is not after}
        return self._deep([before, after], cut)

    def _inside(self, root: Node) -> list[Node]:
        """The nodes below a root, operands first, down to the results of other segments."""
        return operands_first([root], operands=lambda node: () if node in self._outside else node.args)

    def _deep(self, roots: Sequence[Node], cut: Collection[Node] = ()) -> list[Node]:
        """`cut` and further nodes that are not written out: those too deep under the roots, left out of a list, or
        results of other segments."""
        found: dict[Node, None] = {}
        stack = [(r, 0) for r in reversed(roots)]
        seen: set[tuple[Node, int]] = set()
        while stack:
            node, depth = stack.pop()
            if (node, depth) in seen or is_leaf(node.op):
                continue
            seen.add((node, depth))
            stops = node in cut or node.op == "Opaque"
            too_deep = depth >= _DEEPEST and self._is_long(node) and node.op != "V"
            if node not in roots and (stops or node in self._outside or too_deep):
                found[node] = None
            else:
                args = node.args if len(node.args) <= LISTED else node.args[:SHOWN]
                found |= dict.fromkeys(a for a in node.args[len(args) :] if not is_leaf(a.op))
                stack.extend((a, depth + (node.op != "V")) for a in reversed(args))
        return list(found)

    def _is_long(self, node: Node) -> bool:
        """Whether a value takes more than a few operators, or results of other segments."""
        if node not in self._long:
            operators, stack = 0, [node]
            while stack and operators <= _INLINE:
                at = stack.pop()
                operators += _INLINE + 1 if at in self._outside else not (is_view(at.op) or is_leaf(at.op))
                stack.extend(at.args)
            self._long[node] = operators > _INLINE
        return self._long[node]

    def _written(
        self, terms: Sequence[Term], cut: Sequence[Node]
    ) -> tuple[list[Pieces], dict[Term, str], dict[str, str]]:
        """Terms written out, the names of terms in them, and the type and meaning of each name."""
        called = self._constants(terms)
        texts = [pieces(term, called) for term in terms]
        nodes = {term: node for node, term in self._shaper.stand_ins(cut).items()}
        legend: dict[str, str] = {}
        for term in _terms_in(*texts):
            if term in called:
                name = called[term]
                full = self._places.names.get(term, name)
                legend[name] = f"constant {term.spec}{f' = {full}' if full != name else ''}"
            elif term in nodes:
                node = nodes[term]
                called[term] = self._names.get(node) or self._names.setdefault(node, self._explainer.fresh())
                legend[called[term]] = f"{term.spec} = {self._said(node)}"
            else:
                legend[term.attr("name")] = term.spec
        return texts, called, legend

    def _constants(self, terms: Sequence[Term]) -> dict[Term, str]:
        """Names of the constants in terms."""
        return {t: name for t in terms_below(terms) if (name := self._places.constant(t)) is not None}

    def _said(self, node: Node) -> str:
        """A short description of a value: its operator, and its name in the model or the step that made it."""
        term = self._known.get(node)
        if term is None:
            return f"part of the result of step {self._made[node]}" if node in self._made else "computed below"
        constants = self._constants([term])
        text = joined(sketch(term, constants), constants)
        return f"{text}, {self._places.names[term]} in the model" if term in self._places.names else text

    # --- where

    def _where(self, before: Node, source: Node | None, otherwise: str = "in the result of earlier steps") -> str:
        """The value's place in the source; where the source does not have it, the last step that it comes from."""
        term = self._known.get(before) or (self._known.get(source) if source is not None else None)
        if term is not None:
            return f"at {self._places.of(term)}"
        if step := max((self._made[n] for n in self._inside(before) if n in self._made), default=0):
            return f"in the result of step {step}"
        reader = before
        while reader not in self._known and reader in self._readers:
            reader = self._readers[reader]
        if reader in self._known:
            return f"under {self._places.of(self._known[reader])}"
        constant = all(is_folded(node.op) for node in self._inside(before))
        return "among the constants" if constant else otherwise


def _terms_in(*texts: Pieces) -> list[Term]:
    """The terms that texts refer to by name, in order of first use."""
    return list(dict.fromkeys(piece for text in texts for piece in text if not isinstance(piece, str)))


def _structure(terms: Sequence[Term]) -> Hashable:
    """The structure of terms: their operators, without names, numbers and sizes."""
    place = {term: i for i, term in enumerate(terms_below(terms))}
    return tuple(
        (t.op, tuple(x for _, x in t.attrs if isinstance(x, str)), tuple(place[a] for a in t.args)) if t.args else ()
        for t in place
    )


def _over(steps: Sequence[Step], leaves: Mapping[Node, Node]) -> list[Step]:
    """The steps over an instance's own leaves."""
    nodes = [n for s in steps for n in (s.before, s.after, *s.operands, *((s.source,) if s.source is not None else ()))]
    own = dict(zip(nodes, substitute(nodes, leaves), strict=True))
    return [
        replace(
            step,
            before=own[step.before],
            after=own[step.after],
            operands=tuple(own[n] for n in step.operands),
            source=None if step.source is None else own[step.source],
        )
        for step in steps
    ]


def _base(node: Node) -> Node:
    """The value that a chain of views reads."""
    while node.op == "V":
        (node,) = node.args
    return node
