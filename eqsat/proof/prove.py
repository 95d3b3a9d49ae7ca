"""`prove`: are two programs equal? Proved with steps, refuted with an input, or unknown.

First both run on a few inputs: a clear difference refutes. Models are then swept (`eqsat.proof.sweep`): their values
are proved equal one after the other, from the inputs on. Small programs, and what sweeping leaves, are written out
element by element in a normal form (`eqsat.proof.normal_form`), by cases where comparisons, signs and choices meet.
Meanwhile rules work on both in one e-graph, in another process. Their steps have names and read better.

Equal means: over the real numbers and the integers, wherever both sides are defined. A division by zero and the
logarithm of a negative number are not defined. Rounding, infinities and integers that overflow are left out. Sampling
alone never proves anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from eqsat.base.arguments import flag, function_of, instance, seconds, whole
from eqsat.base.memory_limit import collector_paused, in_use, memory_limit
from eqsat.base.numerics import Array, is_float
from eqsat.check.part import TOLERANCE
from eqsat.egraph.saturate import Limits, saturate, warm_up
from eqsat.egraph.snapshot import Snapshot
from eqsat.errors import CheckFailed, InputError
from eqsat.language.rule import AnyRule
from eqsat.program.core import CoreProgram, Node, make, topological
from eqsat.program.ir import Program
from eqsat.program.node import is_leaf, substitute
from eqsat.program.sizes import check_program
from eqsat.proof.answer import Proof, by_elements, refuted
from eqsat.proof.attempt import Local, contradicts
from eqsat.proof.exchange import exchanged
from eqsat.proof.normal_form.assumptions import Bounds, read
from eqsat.proof.normal_form.elements import compare
from eqsat.proof.sweep import Cut, Sample, Swept, sample, sweep
from eqsat.proof.values.ahead import Ahead
from eqsat.proof.values.enclosure import OutOfTime
from eqsat.proof.values.points import JUMPS, elements_tried, typical
from eqsat.proof.values.refute import Refutation, Search
from eqsat.proof.values.signatures import Index
from eqsat.verify.checker import Numbered
from eqsat.verify.domains import all_defined
from eqsat.verify.pairing import lowered, matched, ordered

_REFUTING_SHARE = 0.25
_QUICK_SHARE, _QUICK_NODES = 0.1, 500
"""What a first e-graph gets: most proofs by rules are short."""

_STARTING_SHARE = 0.5
"""Of the time that is left, for the worker to load before the first e-graph, whose share may be shorter than that."""

_NORMAL_FORM_SHARE = 0.7
_STEPS_SECONDS, _STEPS_SHARE = 0.8, 0.2
"""Once the normal form has proved two programs equal, rules get this long to find steps that read better, and only
within this share of the time: on a busy machine the answer comes first."""

_SWEPT = 40
"""Operators of both programs from which on they are swept: e-graphs of fewer hold them whole."""

_SWEEP_SHARE, _CERTIFIED_SHARE = 0.9, 0.7
"""Of the time that is left, for sweeping: by itself, and before a certificate is written."""

_EXCHANGE_SHARE = 0.5
"""Of the time that is left to a sweep, for the one value that differs, where outputs did by little."""

_TRIED = 5e7
"""Elements of inputs and outputs that are drawn and computed per second on one core, at most."""

_SHOWN = 3
"""Values that stay open that the reason of an unknown answer names."""

_NODES = 20_000
_MOST_FOLDED = 1 << 21
"""Elements of a constant that is computed so as to be recognised."""

_FOLDED_SHARE = 0.1
"""Of the widest tolerance: how far the signatures of constants that are compared may be apart."""

_LEAST_SECONDS, _MOST_STEPS_SECONDS = 0.5, 1.5
"""What writing down the steps gets, whatever is left."""


@np.errstate(all="ignore")  # whatever the caller asks of its own arithmetic
@collector_paused()
def prove(
    left: Program,
    right: Program,
    time_limit: float = 10.0,
    assume: str | Sequence[str] | None = None,
    sizes: Mapping[str, int] | None = None,
    progress: Callable[[str, float], None] = lambda stage, share: None,
    certify: bool = False,
) -> Proof:
    """Decide whether two programs compute the same.

    Inputs and outputs are matched by name, else by position.

    Args:
        time_limit: seconds.
        assume: bounds on inputs of the first program, such as `0 <= i < 16` or `x > 0`
            (`eqsat.proof.normal_form.assumptions`); inputs outside are not looked at.
        sizes: names of numbers for `assume`.
        progress: told what is being done, and the share of it that is done.
        certify: also look for a certificate; to verify it takes further time.

    Raises:
        InputError: they cannot be matched, shapes or dtypes differ, or an assumption cannot be read.
    """
    for program in (left, right):
        instance("prove", program, Program, "two Programs (eqsat.trace, from_onnx, from_torch)")
        check_program(program)
    time_limit = seconds("time_limit", time_limit)
    certify = flag("prove: certify", certify)
    function_of("prove: progress", progress, ("a stage", "a share"))
    if assume is not None:
        texts = [assume] if isinstance(assume, str) else assume
        instance("prove: assume", texts, Sequence, "a text such as '0 <= i < n', or several")
        for text in texts:
            instance("prove: assume", text, str, "a text such as '0 <= i < n', or several")
    if sizes is not None:
        instance("prove: sizes", sizes, Mapping, "a mapping from dimension to size")
        sizes = {name: whole(f"prove: size {name}", size, 0) for name, size in sizes.items()}
    begun = time.monotonic()
    deadline = begun + time_limit
    names = matched(left, right)
    right = Program(right.inputs, ordered(left, right))
    terms = {names[t.attr("name")]: t for t in right.inputs} | {t.attr("name"): t for t in left.inputs}
    bounds = read(assume, terms, sizes or {})
    prepare()
    progress("trying inputs", 0.0)
    pair = _Pair(left, right, names, bounds)
    cores = pair.left, pair.right
    untried = "" if pair.same else _too_large(left, right, deadline)
    refutation = None if pair.same or untried else Refutation(left, right, names, bounds=bounds, cores=cores)
    looking = _REFUTING_SHARE * time_limit
    search = Search(None, 0, True)
    sampled = pair.sample(deadline) if refutation and refutation.large and pair.is_swept(certify) else None
    if refutation:
        search = (
            refutation.first_look_at(sampled.point, sampled.outputs, looking)
            if sampled
            else refutation.first_look(looking)
        )
    if search.found is not None:
        proof = refuted(search.found, search.points)
    else:
        until = deadline - looking if search.more or search.unsure else deadline
        if refutation and search.unsure:
            pair.doubt = _Doubt(search.at, partial(refutation.told_apart, seconds=looking))
        proof = pair.proof(until, begun + _STEPS_SHARE * time_limit, progress, certify, not untried)
    if proof.verdict == "unknown" and refutation and (search.more or search.unsure):
        nearer = refutation.told_apart(pair.nearer, looking)
        search = nearer if nearer.found or nearer.unsure else search
        if nearer.found is not None:
            proof = refuted(nearer.found, nearer.points)
    if proof.verdict == "proved" and not search.defined:
        proof = Proof("unknown", "", 0.0, "both programs have finite values on none of the inputs that were tried")
    if proof.verdict == "unknown" and untried:
        proof.reason += f"; no inputs were tried: {untried}"
    if proof.verdict == "unknown" and search.unsure:
        proof.reason += f"; outputs differ by up to {search.unsure:.2g}, {_why_unsure(search, left, right)}"
        if not search.infinite:
            proof.within_rounding = search.unsure, search.rounding or 0.0
    proof.seconds = time.monotonic() - begun
    proof.assumed = [assume] if isinstance(assume, str) else list(assume or ())
    return proof


def prepare() -> None:
    """Start what `prove` works with, which takes a second or two beside the caller: call it before reading files."""
    warm_up(_rules())


@dataclass(frozen=True, slots=True)
class _Doubt:
    """Two programs differed on an input by what rounding may have made: that input, and what looks for one on which the
    first clearly differs from a program that was proved equal to the second."""

    at: Mapping[str, Array]
    told_apart: Callable[[CoreProgram], Search]


class _Unguarded(CheckFailed):
    """A proof goes through values that are perhaps not defined where both programs are."""


class _Pair:
    """Two programs over one set of inputs, in the core."""

    def __init__(self, left: Program, right: Program, names: Mapping[str, str], bounds: Mapping[str, Bounds]) -> None:
        """`names` maps inputs of `right` to those of `left`."""
        self._program, self._other, self._names, self._bounds = left, right, names, bounds
        self.left, self.right = lowered(left, right)
        self.goal = list(self.right.roots)
        self.nearer = self.right
        """The second program, with values of the first for all that a sweep proved equal: what is left to refute."""
        self.constants = {**self.right.constants, **self.left.constants}
        self.doubt: _Doubt | None = None
        self._sampled: Sample | None = None
        self._ahead = Ahead(self.constants, [self.left.roots, self.right.roots])
        self._opaque = {**self.right.opaque, **self.left.opaque}
        self._unfolded: list[tuple[Node, Node]] = []

    @cached_property
    def points(self) -> list[dict[str, Array]]:
        """Typical inputs of both."""
        return typical(self._program, self._other, self._names, self._bounds)

    @cached_property
    def guarded(self) -> bool:
        """Whether one of the programs has a value that is perhaps not defined where both programs are, as in
        `where(x > 0, log(x), 0)`. Rules know nothing of where values are, so that a proof by them must be verified."""
        pair = Numbered(self.left, self.right)
        return not all_defined(pair.terms, [side for sides in pair.outputs for side in sides], self.constants)

    @property
    def same(self) -> bool:
        """Whether both are one program over flat arrays."""
        return list(self.left.roots) == list(self.goal)

    def proof(
        self,
        deadline: float,
        better_steps_until: float,
        progress: Callable[[str, float], None],
        certify: bool,
        sweeps: bool,
    ) -> Proof:
        """The answer; `seconds` is filled in by the caller. A sweep runs both programs on inputs first."""
        if self.same:
            reason = "both are the same over flat arrays: only shapes and views were moved"
            proof = Proof("proved", "rules", 0.0, reason)
            return self._certified(proof, Swept(0, equal=True), deadline, certify)
        swept = None
        sampled = self.sample(deadline) if sweeps and self.is_swept(certify) else None
        if sampled:
            swept = self._swept(sampled, deadline, lambda share: progress("sweeping", share), certify)
            if swept.verdict != "unknown" or swept.stats["late"]:
                return swept
        elif time.monotonic() > deadline:
            return Proof("unknown", "", 0.0, "the time was up before a proof was begun")
        progress("comparing elements", 0.0)
        proof = self._whole(deadline, better_steps_until, certify)
        if swept is not None and proof.verdict == "unknown":
            proof.reason = f"{swept.reason}; {proof.reason}"
        if proof.certificate is None and not proof.uncertified:
            proof.uncertified = "no certificate: no e-graph holds both programs as one"
        return proof

    def _whole(self, deadline: float, better_steps_until: float, certify: bool) -> Proof:
        """Both programs as one problem: a small e-graph, then the elements, then a large e-graph."""
        warm_up(_rules(), max(0.0, _STARTING_SHARE * (deadline - time.monotonic())))
        quick = self._saturated(_QUICK_SHARE * (deadline - time.monotonic()), _QUICK_NODES)
        if not self._met(quick) and self._fold(quick):
            quick = self._saturated(_QUICK_SHARE * (deadline - time.monotonic()), _QUICK_NODES)
        if self._met(quick):
            with suppress(CheckFailed):
                return self._stepped(quick, deadline, certify)
        left = (1 - _NORMAL_FORM_SHARE if certify else _NORMAL_FORM_SHARE) * (deadline - time.monotonic())
        elements = compare(*self._with_known_inputs(), self.constants, left, self._bounds)
        seconds = deadline - time.monotonic()
        if certify:
            seconds *= _CERTIFIED_SHARE
        elif elements.equal:
            seconds = min(seconds, _STEPS_SECONDS, better_steps_until - time.monotonic())
            if seconds <= 0:
                return by_elements(elements)
        found = self._saturated(max(0.0, seconds))
        if not self._met(found) and not elements.equal and self._fold(found):
            found = self._saturated(max(0.0, deadline - time.monotonic()))
        failure = f"rules found no way ({found.stats['stop']})"
        if self._met(found):
            try:
                return self._stepped(found, deadline, certify)
            except CheckFailed as error:  # a step that does not hold when replayed proves nothing
                failure = str(error)
        if elements.equal:
            return by_elements(elements)
        return Proof("unknown", "", 0.0, f"{failure}; {elements.reason}", stats=found.stats)

    def _with_known_inputs(self) -> tuple[Sequence[Node], Sequence[Node]]:
        """The outputs of both, with numbers for inputs to which bounds leave one value."""
        known = {
            node: make("Full", (value, *node.attrs[1:]))
            for node in topological([*self.left.roots, *self.goal])
            if node.op == "In" and (value := self._bounds.get(node.attrs[0], Bounds()).only(node.dtype)) is not None
        }
        return substitute(self.left.roots, known), substitute(self.goal, known)

    def is_swept(self, certify: bool) -> bool:
        """Whether the programs are swept: large ones, and all of which a certificate is asked for."""
        operators = sum(not is_leaf(n.op) for n in topological([*self.left.roots, *self.goal]))
        return certify or operators >= _SWEPT

    def sample(self, deadline: float) -> Sample | None:
        """Both programs on the points, for a sweep; None where one has no values there, or time is up."""
        if self._sampled is None:
            with suppress(InputError, OutOfTime):
                self._sampled = sample(self.left.roots, self.goal, self._ahead, self._opaque, self.points, deadline)
        return self._sampled

    def _swept(self, sampled: Sample, deadline: float, progress: Callable[[float], None], certify: bool) -> Proof:
        """By sweeping; refuted only where what was proved on the way tells the programs apart."""
        now = time.monotonic()
        until = now + (_CERTIFIED_SHARE if certify else _SWEEP_SHARE) * (deadline - now)
        found: list[Proof] = []

        def settled(nearer: Sequence[Node]) -> bool:
            if self.doubt is not None and (other := self._exchanged(nearer, self.doubt.at, until)) is not None:
                search = self.doubt.told_apart(other)
                found.extend([refuted(search.found, search.points)] if search.found else [])
            return bool(found)

        swept = sweep(self.left.roots, self.goal, self._ahead, sampled, _rules(), until, progress, (), settled)
        if found:
            return found[0]
        self.nearer = self._with_roots(swept.nearer)
        stats = {
            "values": swept.values,
            "cuts": len(swept.cuts),
            "proofs": swept.proofs,
            "open": len(swept.unproved),
            "late": swept.late,
        }
        if not swept.equal:
            return Proof("unknown", "", 0.0, self._open(swept), stats=stats)
        steps = [{"rule": "sweep", "before": self._name(c.left), "after": self._name(c.right)} for c in swept.cuts]
        by = f"{len(swept.cuts)} values of both are equal, by {swept.proofs} e-graphs of their own"
        reason = by + self._rounding(self._ahead.rounded)
        proof = Proof("proved", "sweep", 0.0, reason, steps, stats=stats)
        try:
            return self._certified(proof, swept, deadline, certify)
        except _Unguarded as error:
            return Proof("unknown", "", 0.0, f"{reason}; {error}", stats=stats)

    def _rounding(self, pairs: Iterable[tuple[Node, Node]]) -> str:
        """What to say of pairs of constants that were taken as equal."""
        units = [self._ahead.rounded[pair] for pair in pairs if pair in self._ahead.rounded]
        if not units:
            return ""
        return (
            f", up to the rounding of {len(units)} constant{'s' * (len(units) > 1)} by at most {max(units):.2g} units "
            "in the last place at their scale"
        )

    def _exchanged(self, nearer: Sequence[Node], at: Mapping[str, Array], deadline: float) -> CoreProgram | None:
        """The first program with one value of the second, which was proved equal to the second."""
        point = {name: array.reshape(-1) for name, array in at.items()}
        ends = time.monotonic() + _EXCHANGE_SHARE * (deadline - time.monotonic())
        try:
            roots = exchanged(self.left.roots, nearer, self._ahead, self._opaque, point, _rules(), ends)
        except (InputError, OutOfTime):
            return None
        return self._with_roots(roots) if roots else None

    def _with_roots(self, roots: Sequence[Node]) -> CoreProgram:
        """The second program with other values for its outputs, which may come of the first."""
        return replace(self.right, roots=tuple(roots), constants=self.constants, opaque=self._opaque)

    def _certified(self, proof: Proof, swept: Swept, deadline: float, certify: bool) -> Proof:
        """The proof. If a certificate is asked for, it has one, or says why there is none.

        Raises:
            _Unguarded: there is none, and the proof holds only where one verifies.
        """
        guarded = not self.same and self.guarded
        if not certify and not guarded:
            return proof
        from eqsat.proof.certify import certificate

        try:
            verified = certificate(self.left, self.right, swept, deadline)
            proof.certificate = verified if certify else None
        except CheckFailed as error:
            if guarded:
                raise _Unguarded(f"perhaps not wherever both programs are defined: {error}") from None
            proof.uncertified = str(error)
        return proof

    def _as_swept(self, found: Snapshot) -> Swept:
        """Each output as one cut, at the inputs and constants, which was proved in this e-graph."""
        swept = Swept(0, equal=True, constants=self._unfolded)
        for left, right in zip(self.left.roots, self.goal, strict=True):
            if left is not right:
                leaves = {node: node for node in topological([left, right]) if is_leaf(node.op) and node.op != "Full"}
                swept.cuts.append(Cut(left, right, proof=Local((left, right), found), leaves=leaves))
        return swept

    def _open(self, swept: Swept) -> str:
        """What a sweep left open, nearest to the inputs."""
        if not swept.unproved:
            found = f"{len(swept.cuts)} values of both were proved equal"
            return f"{found}, then the time was up" if swept.late else f"{found}, none of them near the outputs"
        texts = [
            f"{self._name(cut.left)} of the first and {self._name(cut.right)} of the second agree, and are not proved "
            f"equal ({', '.join(sorted(set(cut.operators))) or 'constants'} between; {cut.stop}{_types(cut)})"
            for cut in swept.unproved[:_SHOWN]
        ]
        more = len(swept.unproved) - _SHOWN
        late = "; then the time was up" if swept.late else ""
        return "; ".join(texts) + (f"; and {more} more" if more > 0 else "") + late

    def _name(self, node: Node) -> str:
        """The name that a program gives a value, or else its operator."""
        for core, program in ((self.left, self._program), (self.right, self._other)):
            term = core.source_term.get(node)
            if term is not None and term in program.names:
                return program.names[term]
        return f"a value of {node.op}"

    def _fold(self, found: Snapshot) -> bool:
        """Write constants of the second program as what the first stores or computes of constants, if they agree."""
        theirs = set(topological(self.left.roots))
        own = [n for n in topological(self.goal) if n.op == "Const" and n not in theirs]
        wanted = {(n.size, n.dtype) for n in own if n.size <= _MOST_FOLDED}
        classes = [c for c in range(found.n_classes) if found.const[c] and (found.size[c], found.dtype[c]) in wanted]
        signatures = {found.term(c): self._ahead.signature(found.term(c)) for c in classes}
        index = Index(signatures, _FOLDED_SHARE * max(TOLERANCE.values()))
        replaced: dict[Node, Node] = {}
        for node in own:
            near = index.close_to(self._ahead.signature(node))
            term = next((t for t in near if t is not node and self._ahead.agree(node, t)), None)
            if term is not None:
                replaced[node] = term
        self.goal = substitute(self.goal, replaced)
        self._unfolded = [(term, node) for node, term in replaced.items()]
        return bool(replaced)

    def _met(self, found: Snapshot) -> bool:
        """Whether an e-graph has made the outputs of both one."""
        count = len(self.goal)
        return found.roots[:count] == found.roots[count:] and not contradicts(found)

    def _stepped(self, found: Snapshot, deadline: float, certify: bool) -> Proof:
        """What an e-graph proves, in steps. Raises CheckFailed if one does not hold when replayed, or where it is not
        defined."""
        proof = self._by_rules(found, min(deadline - time.monotonic(), _MOST_STEPS_SECONDS))
        proof.reason += self._rounding((node, term) for term, node in self._unfolded)
        return self._certified(proof, self._as_swept(found), deadline, certify)

    def _saturated(self, seconds: float, nodes: int = _NODES) -> Snapshot:
        count = len(self.goal)
        source = Snapshot.from_core([*self.left.roots, *self.goal])
        limits = Limits(seconds=seconds, nodes=nodes)
        return saturate(source, _rules(), limits, goals=[(i, count + i) for i in range(count)])

    def _by_rules(self, found: Snapshot, seconds: float) -> Proof:
        from eqsat.explain.derivation import derive
        from eqsat.explain.explain import Explainer

        steps = derive(
            found, _rules(), list(zip(self.left.roots, self.goal, strict=True)), max(seconds, _LEAST_SECONDS)
        )
        explainer = Explainer(self._program, {**self.right.source_term, **self.left.source_term})
        shown = [step.as_json() for step in explainer.plain(steps or ())]
        iterations = found.stats["iterations"]
        reason = f"one e-graph holds both as one class after {iterations} iteration{'s' if iterations > 1 else ''}"
        return Proof("proved", "rules", 0.0, reason, shown, stats=found.stats)


def _rules() -> Sequence[AnyRule]:
    from eqsat.rules import PROVING

    return PROVING


def _types(cut: Cut) -> str:
    """Where both sides of a cut compute in other types of floats: which. No rule moves a cast that rounds."""
    one, other = (", ".join(sorted(own - rest)) for own, rest in (cut.computed, cut.computed[::-1]))
    return f"; the first computes {one}, the second {other}" if one and other else ""


def _too_large(left: Program, right: Program, deadline: float) -> str:
    """Why no inputs are tried: they take more memory or time than there is; empty if they do not."""
    held = elements_tried(left, right)
    room, seconds = memory_limit(None) - in_use(), deadline - time.monotonic()
    if 8 * held > room:
        return f"they and the outputs take {8 * held / 1e9:.2g} GB, and {max(0, room) / 1e9:.2g} GB are free"
    if held > _TRIED * seconds > 0:
        return f"to draw and compute them may take {held / _TRIED:.2g} s, and {seconds:.2g} s were left"
    return ""


def _why_unsure(search: Search, left: Program, right: Program) -> str:
    """Why a difference that was seen does not refute."""
    if search.infinite:
        return "where an infinity or a NaN decides"
    if search.rounding is None:
        return "and how much of that rounding may make was not looked at"
    if search.rounding >= search.unsure:
        return f"which is within rounding: it may make {search.rounding:.2g}"
    terms = [*left.terms(), *right.terms()]
    integers = any(not is_float(t.dtype) and t.dtype != "bool" for t in terms)
    others = ["integers may wrap around"] * integers + ["values may jump"] * any(t.op in JUMPS for t in terms)
    return f"of which rounding was seen to make {search.rounding:.2g}" + (f": {', or '.join(others)}" if others else "")
