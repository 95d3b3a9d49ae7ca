"""Check a certificate: do its equalities alone make two programs equal?

Nothing here comes from search, e-graphs or extraction. The checker lowers both programs to the core itself and numbers
their terms, operands first. A certificate adds terms and states equalities, one in a line of JSON:

    {"certificate": 3, "first": DIGEST, "second": DIGEST}   the two programs that it is about
    {"term": [OP, ATTRIBUTES, OPERANDS]}                    a further term, which gets the next number
    {"rule": NAME, "at": N}                                 term N is the left side of a rule, and equals the right side
    {"cut": N, "into": SIZES}                               term N equals its runs of these sizes, joined
    {"inside": N}                                           term N views joined arrays, and equals a view of some
    {"split": N, "into": SIZES}                             term N equals the sum of products over these runs of k,
                                                            or the reductions of these runs of rows, combined
    {"picked": N}                                           term N picks rows by joined indices, or of joined tables
    {"values": [M, N]}                                      both are equal, or one is stored and gets the other's value
    {"moves": [M, N]}                                       both only move elements, and move the same
    {"use": K, "on": [M, N, ...]}                           both sides of lemma K over these terms are equal

A lemma is proved once, over any values of its leaves, with terms and numbers of its own:

    {"lemma": K}                                            the next lemma begins
    {"leaf": [SIZE, DTYPE]}                                 its next leaf, which gets the next number
    {"term": ...}, {"rule": ...}, {"cut": ...}, {"inside": ...}, {"split": ...}, {"picked": ...}
    {"values": [M, N]}, {"moves": [M, N]}                   what each use of the lemma has to compute
    {"proves": [M, N]}                                      the lemma ends: M and N are equal

When two constants are equal, and why nothing follows from their rounding, is said in `eqsat.verify.definitions`. A rule
is matched and its guard evaluated on the very term, and the right side is built here. The two sides of a lemma,
and at last the outputs, must then be equal by congruence.

What is changed in a proof may still be a proof: a rule has a twin, a term is equal to others, a folded constant may be
rounded otherwise. So the last line states what the lines before it come to, their spelling and all that was built here:

    {"seal": DIGEST}                                        the text so far, and the terms and equalities it led to
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any

from eqsat.base.arguments import shown
from eqsat.base.memory_limit import memory_limit
from eqsat.base.numerics import SHORT, scalar
from eqsat.errors import CheckFailed, EqsatError, InputError
from eqsat.language.rule import Rule
from eqsat.layout.arithmetic import Layout
from eqsat.program.core import CoreProgram, Node, topological
from eqsat.program.core_table import core_op
from eqsat.program.ir import Program
from eqsat.program.term import attrs_key
from eqsat.verify.congruence import Congruence
from eqsat.verify.definitions import Definitions
from eqsat.verify.domains import Equality, needed_by, see_defined
from eqsat.verify.joins import cut, inside, picked, split
from eqsat.verify.meaning import as_fractions, leaves
from eqsat.verify.moves import move_alike
from eqsat.verify.pairing import lowered
from eqsat.verify.rounding import rounding
from eqsat.verify.terms import Terms
from eqsat.verify.whole import see_whole

VERSION = 3

Attributes = tuple[Any, ...]
"""Of a term."""

MOST_READ = 1 << 21
"""Elements of a masked view whose places are looked at one by one."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What a certificate that verifies consists of; statements of lemmas are counted once."""

    terms: int
    lemmas: int
    uses: int
    rules: int
    values: int
    """Pairs of constants that were computed and compared, for each use of a lemma again."""
    largest_rounding: float
    """The largest difference of a folded constant from its computation, in units in the last place of its largest
    magnitude."""


class Numbered:
    """Two programs in the core (`eqsat.verify.pairing.lowered`), their terms numbered.

    Attributes:
        outputs: the numbers of each output in both.
    """

    def __init__(self, first: CoreProgram, second: CoreProgram) -> None:
        self.terms = Terms()
        self.programs = first, second
        self.constants = {**second.constants, **first.constants}
        numbers = [self.terms.add_nodes(program.roots) for program in self.programs]
        self.outputs = list(zip(*numbers, strict=True))

    def head(self) -> dict[str, Any]:
        """The first line of a certificate."""
        first, second = map(_digest, self.programs)
        return {"certificate": VERSION, "first": first, "second": second}


def verify(first: Program, second: Program, certificate: str, rules: Sequence[Rule]) -> Verified:
    """Check that a certificate proves two programs equal. Every line must hold.

    Args:
        certificate: its text; see the top of this module.
        rules: the rules that it may use.

    Raises:
        CheckFailed: it does not.
        InputError: the text is no certificate, or inputs or outputs of the programs cannot be matched.
    """
    return check(*lowered(first, second), certificate, rules)


def check(first: CoreProgram, second: CoreProgram, certificate: str, rules: Sequence[Rule]) -> Verified:
    """As `verify`, of programs that are in the core already (`eqsat.verify.pairing.lowered`)."""
    text = certificate[: certificate.rstrip("\n").rfind("\n") + 1]
    reading = _read(first, second, text, rules)
    if certificate != text + reading.seal(text):
        raise NotSealed("every line holds, but the seal does not match: it was changed after it was sealed")
    return reading.verified()


def sealed(first: CoreProgram, second: CoreProgram, text: str, rules: Sequence[Rule]) -> str:
    """The certificate of all lines but the last, which must hold. Errors: as `verify`."""
    return text + _read(first, second, text, rules).seal(text)


class NotSealed(CheckFailed):
    """Every line of a certificate holds, and the last one seals others."""


def _read(first: CoreProgram, second: CoreProgram, text: str, rules: Sequence[Rule]) -> _Models:
    """What the lines of a certificate say, the seal aside, each of which holds, as does what they must prove."""
    lines = text.split("\n")
    try:
        head = json.loads(lines[0])
        version = head["certificate"]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise InputError("this is no certificate: its first line does not say so") from None
    if version != VERSION:
        raise InputError(f"a certificate of version {shown(version)} cannot be read; this is version {VERSION}")
    pair = Numbered(first, second)
    for which, digest in pair.head().items():
        if head.get(which) != digest:
            raise CheckFailed(f"the certificate is not about the {which} program")
    reading = _Models(pair, {rule.name: rule for rule in rules})
    for place, line in enumerate(lines[1:-1], 2):
        try:
            reading.take(json.loads(line))
        except (
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            RecursionError,
            ArithmeticError,
            EqsatError,
        ) as error:
            raise CheckFailed(f"line {place} does not hold: {error}") from None
    reading.close()
    return reading


class _Statements(ABC):
    """Terms, and equalities that hold of them."""

    def __init__(self, terms: Terms, rules: Mapping[str, Rule], stored: Set[Attributes]) -> None:
        """`stored`: the attributes of all constants that the models store."""
        self.terms, self._rules, self._stored = terms, rules, stored
        self.called = list(range(len(terms.rows)))
        self.rules = 0
        self.equalities: list[Equality] = []
        self.fixed: set[Node] = set()
        """The numbers on whose values rules rest (`Terms.numbers_read`)."""

    def take(self, line: Mapping[str, Any]) -> None:
        """One line. Raises an error if it does not hold."""
        match line:
            case {"term": [str(op), list(attrs), list(args)], **rest} if not rest:
                self.called.append(self._term(op, attrs, [self.number(a) for a in args]))
            case {"rule": str(name), "at": at, **rest} if not rest:
                at = self.number(at)
                if name not in self._rules:
                    raise CheckFailed(f"there is no rule {shown(name)}")
                right = self.terms.instance(self._rules[name], at)
                if right is None:
                    raise CheckFailed(f"{name} does not apply to this term")
                self.rules += 1
                self.fixed |= self.terms.numbers_read(self._rules[name], at, right)
                self.state(at, right, needed_by(self._rules[name], self.terms, at, right))
            case {"cut": at, "into": [*sizes], **rest} if not rest and all(type(n) is int for n in sizes):
                at = self.number(at)
                self.state(at, cut(self.terms, at, sizes))
            case {"inside": at, **rest} if not rest:
                at = self.number(at)
                right = inside(self.terms, at)
                if right is None:
                    raise CheckFailed("the term does not view some of several joined arrays")
                self.state(at, right)
            case {"split": at, "into": [*sizes], **rest} if not rest and all(type(n) is int for n in sizes):
                at = self.number(at)
                self.state(at, split(self.terms, at, sizes))
            case {"picked": at, **rest} if not rest:
                at = self.number(at)
                right = picked(self.terms, at)
                if right is None:
                    raise CheckFailed("the term does not pick rows by joined indices, or of one of joined tables")
                self.state(at, right)
            case {"values": [a, b], **rest} if not rest:
                a, b = self.number(a), self.number(b)
                self.state(a, b, (a, b))
                self.compare(a, b)
            case {"moves": [a, b], **rest} if not rest:
                a, b = self.number(a), self.number(b)
                self.state(a, b)
                self.follow(a, b)
            case _:
                raise CheckFailed("no such statement")

    def closed(self) -> Congruence:
        """What follows from the lines by putting equals for equals. Raises CheckFailed where two numbers are one."""
        closed = Congruence(self.terms, [each.sides for each in self.equalities])
        numbers: dict[int, Any] = {}
        for i, (op, attrs, _) in enumerate(self.terms.rows):
            if op == "Full" and numbers.setdefault(closed.of(i), attrs[0]) != attrs[0] == attrs[0]:
                raise CheckFailed(f"the lines make {numbers[closed.of(i)]!r} and {attrs[0]!r} one number")
        return closed

    def said(self) -> Any:
        """All that the lines led to, spelled out."""
        return [(op, attrs_key(attrs), args) for op, attrs, args in self.terms.rows], [
            each.sides for each in self.equalities
        ]

    @abstractmethod
    def compare(self, a: int, b: int) -> None:
        """See that two terms, of one size and type, have the same values."""

    @abstractmethod
    def follow(self, a: int, b: int) -> None:
        """See that two terms, of one size and type, only move elements, and move the same."""

    def number(self, value: Any) -> int:
        """The term that a certificate calls so."""
        if type(value) is not int or value < 0:
            raise CheckFailed(f"{shown(value)} is not the number of a term")
        if value >= len(self.called):
            raise CheckFailed(f"there is no term {value} before it")
        return self.called[value]

    def state(self, a: int, b: int, needs: Sequence[int] = ()) -> None:
        """Two terms are equal, where some terms are defined."""
        terms = self.terms
        if (terms.size[a], terms.dtype[a]) != (terms.size[b], terms.dtype[b]):
            raise CheckFailed("both sides differ in size or type")
        self.equalities.append(Equality((a, b), tuple(needs)))

    def _term(self, op: str, attrs: Sequence[Any], operands: Sequence[int]) -> int:
        kinds = core_op(op).attrs
        read = [_attribute(kind.kind, value) for kind, value in zip(kinds, attrs, strict=True)]
        if op == "Const" and tuple(read) not in self._stored:
            raise CheckFailed(f"no program stores {shown(read[0])} as {shown(read[1])} elements of {read[2]}")
        if op == "V":
            [of] = operands
            _see_filled(read[0], self.terms.dtype[of])
            if not _stays_inside(read[0], self.terms.size[of]):
                raise CheckFailed("a view reads beyond its operand")
        return self.terms.add(op, read, operands)


class _Lemma(_Statements):
    """An equality that holds for any values of its leaves for which `promised` pairs have the same values, and `moving`
    pairs move elements alike."""

    def __init__(self, rules: Mapping[str, Rule], stored: Set[Attributes]) -> None:
        super().__init__(Terms(), rules, stored)
        self.leaves: list[int] = []
        self.promised: list[tuple[int, int]] = []
        self.moving: list[tuple[int, int]] = []
        self.sides: tuple[int, int] | None = None

    def take(self, line: Mapping[str, Any]) -> None:
        match line:
            case {"leaf": [int(size), str(dtype)], **rest} if not rest:
                self.leaves.append(self._term("In", (f"#{len(self.leaves)}", size, dtype), ()))
                self.called.append(self.leaves[-1])
            case {"proves": [a, b], **rest} if not rest:
                self.sides = a, b = self.number(a), self.number(b)
                see_defined(self.terms, self.equalities, (a, b), {})
                if not self.closed().equal(a, b):
                    raise CheckFailed("the statements of the lemma do not make its sides equal")
            case _:
                super().take(line)

    def compare(self, a: int, b: int) -> None:
        self.promised.append((a, b))

    def follow(self, a: int, b: int) -> None:
        self.moving.append((a, b))


class _Models(_Statements):
    """The lines of a certificate of two programs, each checked as it comes."""

    def __init__(self, pair: Numbered, rules: Mapping[str, Rule]) -> None:
        super().__init__(pair.terms, rules, {attrs for op, attrs, _ in pair.terms.rows if op == "Const"})
        self._pair = pair
        self._lemmas: list[_Lemma] = []
        self._uses = self._values = 0
        self._rounding = 0.0
        self._rounded: set[int] = set()
        self._definitions = Definitions(
            [program.roots for program in pair.programs], pair.constants, partial(rounding, constants=pair.constants)
        )

    def take(self, line: Mapping[str, Any]) -> None:
        if self._lemmas and self._lemmas[-1].sides is None:
            return self._lemmas[-1].take(line)
        match line:
            case {"lemma": number, **rest} if not rest:
                if number != len(self._lemmas):
                    raise CheckFailed(f"this is lemma {len(self._lemmas)}")
                self._lemmas.append(_Lemma(self._rules, self._stored))
            case {"use": int(which), "on": [*values], **rest} if not rest and which >= 0:
                if which >= len(self._lemmas):
                    raise CheckFailed(f"there is no lemma {which} before it")
                self._use(self._lemmas[which], [self.number(value) for value in values])
            case _:
                super().take(line)
        return None

    def compare(self, a: int, b: int) -> None:
        self._values += 1
        units = self._definitions.equal(*self._constants(a, b))
        self._rounding = max(self._rounding, units)
        self._rounded |= {a, b} if units else set()

    def follow(self, a: int, b: int) -> None:
        nodes = self.terms.node(a), self.terms.node(b)
        _see_fit(nodes)
        see_whole(nodes, self._pair.constants)
        if not move_alike(*nodes, self._pair.constants):
            raise CheckFailed("the terms do not move the same elements")
        self.fixed.update(leaves(nodes))

    def _constants(self, a: int, b: int) -> tuple[Node, Node]:
        if not self.terms.computed(a) or not self.terms.computed(b):
            raise CheckFailed(f"term {a} or {b} is not computed from constants")
        nodes = self.terms.node(a), self.terms.node(b)
        _see_fit(nodes)
        return nodes

    def close(self) -> None:
        """Raises CheckFailed where the lines do not make every output equal."""
        self._definitions.check(self.fixed.union(*(lemma.fixed for lemma in self._lemmas)))
        sides = [side for pair in self._pair.outputs for side in pair]
        see_defined(self.terms, self.equalities, sides, self._pair.constants)
        closed = self.closed()
        self._see_apart(closed)
        for (a, b), name in zip(self._pair.outputs, self._pair.programs[0].root_names, strict=True):
            if not closed.equal(a, b):
                raise CheckFailed(f"the certificate does not make output {name!r} equal")

    def _see_apart(self, closed: Congruence) -> None:
        """See that the constants that rounding made one are no further apart than two may be: many small steps are a
        large one. Raises CheckFailed where they are."""
        terms = self.terms
        computed = [i for i in range(len(terms.rows)) if terms.computed(i)]
        rounded, known = {closed.of(i) for i in self._rounded}, -1
        while len(rounded) > known:  # what is computed from them
            known = len(rounded)
            rounded |= {closed.of(i) for i in computed if any(closed.of(a) in rounded for a in terms.rows[i][2])}
        members: dict[int, list[int]] = {}
        for i in computed if rounded else ():
            if closed.of(i) in rounded:
                members.setdefault(closed.of(i), []).append(i)
        for first, *others in members.values():
            for other in others:
                pair = self._constants(first, other)
                rounding(*pair, as_fractions(pair), self._pair.constants)

    def seal(self, text: str) -> str:
        """The last line of a certificate whose other lines are this text."""
        said = text, [lemma.said() for lemma in self._lemmas], self.said()
        return json.dumps({"seal": _hash(said)}) + "\n"

    def verified(self) -> Verified:
        """What was read."""
        terms = len(self.called) + sum(len(lemma.called) for lemma in self._lemmas)
        rules = self.rules + sum(lemma.rules for lemma in self._lemmas)
        return Verified(terms, len(self._lemmas), self._uses, rules, self._values, self._rounding)

    def _use(self, lemma: _Lemma, values: Sequence[int]) -> None:
        types = [[(t.size[i], t.dtype[i]) for i in of] for t, of in ((lemma.terms, lemma.leaves), (self.terms, values))]
        if lemma.sides is None or types[0] != types[1]:
            raise CheckFailed("the lemma has other leaves")
        stands_for = dict(zip(lemma.leaves, values, strict=True))
        said = lemma.sides, *lemma.promised, *lemma.moving
        self.terms.copy(lemma.terms, [side for pair in said for side in pair], stands_for)
        for a, b in lemma.promised:
            self.state(stands_for[a], stands_for[b], (stands_for[a], stands_for[b]))
            self.compare(stands_for[a], stands_for[b])
        for a, b in lemma.moving:
            self.follow(stands_for[a], stands_for[b])
        self._uses += 1
        sides = stands_for[lemma.sides[0]], stands_for[lemma.sides[1]]
        holds_anyway = not any(each.needs for each in lemma.equalities)
        self.state(*sides, () if holds_anyway else (*values, *sides))


def _see_fit(nodes: Sequence[Node]) -> None:
    """Raises CheckFailed where what is computed of some nodes fits in no memory that there is."""
    largest = max(node.size for node in topological(nodes))
    if largest > MOST_READ and 8 * largest > memory_limit(None):
        raise CheckFailed(f"it computes {shown(largest)} elements, which takes more memory than there is")


def _see_filled(layout: Layout, dtype: str) -> None:
    """Raises CheckFailed where a layout fills in a number that the type cannot hold: it would stand for two numbers."""
    if layout.masked and scalar(layout.fill, dtype) != layout.fill == layout.fill:
        raise CheckFailed(f"a view fills in {layout.fill!r}, which {dtype} does not hold")


def _stays_inside(layout: Layout, size: int) -> bool:
    """Whether a layout reads elements of an array of this size alone."""
    if layout.size == 0:
        return True
    least, most = layout.reach
    if least >= 0 and most < size:
        return True
    if not layout.masked or layout.size > MOST_READ:
        return False
    # Masks may keep digits together that never reach their ends at once. What is read is told from the fill, -1.
    index = layout.moved(least - 1).index()
    read = index[index >= 0] + (least - 1)
    return bool(((read >= 0) & (read < size)).all())


def _attribute(kind: str, value: Any) -> Any:
    """An attribute as the core has it. Raises ValueError if it is none of this kind."""
    match kind, value:
        case "layout", {"layout": str(key), **rest} if not rest:
            layout = Layout.parse(key)
            if all(size >= 0 for size, _ in layout.dims):
                return layout
        case "int", int() if type(value) is int and value >= 0:
            return value
        case "value", bool() | int() | float():
            return value
        case "dtype", str() if value in SHORT:
            return value
        case (("function" | "reduction" | "name"), str()):
            return value
    raise ValueError(f"{shown(value)} is no {kind}")


def _digest(core: CoreProgram) -> str:
    """A digest of what a program computes, the values of its constants included."""
    order = topological(core.roots)
    place = {node: i for i, node in enumerate(order)}
    said = [(n.op, attrs_key(n.attrs), [place[a] for a in n.args]) for n in order]
    outputs = list(zip(core.root_names, core.root_shapes, [place[root] for root in core.roots], strict=True))
    return _hash((said, outputs))


def _hash(said: Any) -> str:
    return hashlib.blake2b(repr(said).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
