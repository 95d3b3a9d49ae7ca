"""Check a certificate: do its equalities alone make two programs equal?

Nothing here comes from search, e-graphs or extraction. The checker lowers both programs to the core itself and numbers
their terms, operands first. A certificate adds terms and states equalities, one in a line of JSON:

    {"certificate": 1, "first": DIGEST, "second": DIGEST}   the two programs that it is about
    {"term": [OP, ATTRIBUTES, OPERANDS]}                    a further term, which gets the next number
    {"rule": NAME, "at": N}                                 term N is the left side of a rule, and equals the right side
    {"values": [M, N]}                                      both are computed from constants, and have the same values
    {"elements": [M, N]}                                    both compute each element by the same operators

A rule is matched and its guard evaluated on the very term, and the right side is built here. The outputs must then be
equal by congruence (Downey, Sethi, Tarjan, 1980).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from eqsat.base.compare import relative_error
from eqsat.base.numerics import Array, scalar
from eqsat.errors import CheckFailed, EqsatError, InputError
from eqsat.language.rule import COMPARISONS, Ask, Attr, Compare, Guard, Lit, Pattern, Rule, Var, number
from eqsat.language.tables import find
from eqsat.layout.arithmetic import Layout
from eqsat.program.core import CoreProgram, Node, evaluate, lower, make, measure, topological
from eqsat.program.core_table import core_op
from eqsat.program.ir import Program
from eqsat.program.term import attr_key, attrs_key

VERSION = 1

MOST_ELEMENTS = 1 << 21
"""Elements of a term that are computed one by one."""

ROUNDING: Mapping[str, float] = {"float64": 1e-12, "float32": 1e-6, "float16": 2e-3, "bfloat16": 2e-2}
"""How far a folded constant may be from its computation in float64, as a share of its largest magnitude."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What a certificate that verifies consists of."""

    terms: int
    rules: int
    values: int
    elements: int
    largest_rounding: float
    """The largest difference of a folded constant from its computation, as a share of its largest magnitude."""


class Terms:
    """Terms of the core by number, each once. Unlike nodes, they are never simplified when they are made."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, tuple[Any, ...], tuple[int, ...]]] = []
        self.size: list[int] = []
        self.dtype: list[str] = []
        self._number: dict[Hashable, int] = {}
        self._nodes: dict[int, Node] = {}

    def add(self, op: str, attrs: Sequence[Any], args: Sequence[int]) -> int:
        """The number of a term.

        Raises:
            InputError: operands that the operator does not take.
        """
        attrs, args = tuple(attrs), tuple(args)
        if op == "Full":
            attrs = (scalar(attrs[0], attrs[2]), *attrs[1:])
        key = op, attrs_key(attrs), args
        if key not in self._number:
            sizes, dtypes = [self.size[a] for a in args], [self.dtype[a] for a in args]
            if not core_op(op).takes(attrs, sizes, dtypes):
                raise InputError(f"{op}{attrs} does not take {', '.join(map(str, zip(dtypes, sizes, strict=True)))}")
            size, dtype = measure(op, attrs, sizes, dtypes)
            self._number[key] = len(self.rows)
            self.rows.append((op, attrs, args))
            self.size.append(size)
            self.dtype.append(dtype)
        return self._number[key]

    def add_nodes(self, roots: Iterable[Node]) -> list[int]:
        """The numbers of nodes; all that is below them comes first."""
        made: dict[Node, int] = {}
        roots = list(roots)
        for node in topological(roots):
            made[node] = self.add(node.op, node.attrs, [made[a] for a in node.args])
        return [made[root] for root in roots]

    def below(self, roots: Iterable[int], stop: frozenset[int] = frozenset()) -> list[int]:
        """The terms that roots are made of, operands first, those of `stop` without their operands."""
        found: set[int] = set()
        stack = list(roots)
        while stack:
            at = stack.pop()
            if at not in found:
                found.add(at)
                stack += () if at in stop else self.rows[at][2]
        return sorted(found)

    def instance(self, rule: Rule, at: int) -> int | None:
        """The right side of a rule whose left side is this term; None if it does not match or its guard fails."""
        bound: dict[str, Any] = {"self": at}
        if not self._match(rule.left, at, bound):
            return None
        needed = [guard for guard in rule.when if guard not in rule.worth]
        # What a guard for worth gives may be named on the right: its table is asked, too.
        given = [g for g in rule.worth if isinstance(g, Ask) and g.gives]
        if not all(self._holds(guard, bound) for guard in rule.when if guard in needed or guard in given):
            return None
        return self._build(rule.right, bound)

    def _match(self, pattern: Pattern, at: int, bound: dict[str, Any]) -> bool:
        if isinstance(pattern, Var):
            return bound.setdefault(pattern.name, at) == at
        op, attrs, args = self.rows[at]
        if op != pattern.op or len(args) != len(pattern.args):
            return False
        if not all(_bind(wanted, value, bound) for wanted, value in zip(pattern.attrs, attrs, strict=True)):
            return False
        return all(self._match(wanted, arg, bound) for wanted, arg in zip(pattern.args, args, strict=True))

    def _build(self, pattern: Pattern, bound: Mapping[str, Any]) -> int:
        if isinstance(pattern, Var):
            return bound[pattern.name]
        args = [self._build(arg, bound) for arg in pattern.args]
        return self.add(pattern.op, [self._attribute(a, bound) for a in pattern.attrs], args)

    def _attribute(self, attr: Attr, bound: Mapping[str, Any]) -> Any:
        known = {
            "size": lambda name: self.size[bound[name]],
            "dtype": lambda name: self.dtype[bound[name]],
        }
        return number(attr, bound.__getitem__, known)

    def _holds(self, guard: Guard, bound: dict[str, Any]) -> bool:
        """Whether a guard holds; binds what its table gives. Being constant never decides what is equal."""
        if isinstance(guard, Compare):
            return COMPARISONS[guard.op](self._attribute(guard.left, bound), self._attribute(guard.right, bound))
        if isinstance(guard, Ask):
            found = find(guard.table).fn(*(self._attribute(a, bound) for a in guard.args))
            if found is None:
                return False
            bound.update({v.name: value for v, value in zip(guard.gives, found, strict=True)})
        return True

    def node(self, at: int) -> Node:
        """A term as a node, to compute it."""
        for i in self.below([at]):
            if i not in self._nodes:
                op, attrs, args = self.rows[i]
                self._nodes[i] = make(op, attrs, [self._nodes[a] for a in args])
        return self._nodes[at]

    def line(self, at: int, name: Mapping[int, int]) -> str:
        """The line of a certificate that adds a term, its operands called by `name`."""
        op, attrs, args = self.rows[at]
        spelled = [{"layout": a.key()} if isinstance(a, Layout) else a for a in attrs]
        return json.dumps({"term": [op, spelled, [name[a] for a in args]]})


def _stays_inside(layout: Layout, size: int) -> bool:
    """Whether a layout reads elements of an array of this size alone."""
    if layout.size == 0:
        return True
    ends = [(n - 1) * stride for n, stride in layout.dims] + [(a.bound - 1) * a.stride for a in layout.axes]
    least, most = (layout.offset + sum(e for e in ends if (e > 0) == above) for above in (False, True))
    if least >= 0 and most < size:
        return True
    if not layout.masked or layout.size > MOST_ELEMENTS:
        return False
    index = layout.index()  # masks may keep digits together that never reach their ends at once
    return int(index.min()) >= -1 and int(index.max()) < size


def _bind(attr: Attr, value: Any, bound: dict[str, Any]) -> bool:
    """Whether an attribute of a pattern can stand for a value; binds it where it is a variable."""
    if isinstance(attr, Lit):
        return attr_key(attr.value) == attr_key(value)
    return isinstance(attr, Var) and attr_key(bound.setdefault(attr.name, value)) == attr_key(value)


class Congruence:
    """The equalities that follow from some by putting equals for equals."""

    def __init__(self, terms: Terms, equalities: Iterable[tuple[int, int]]) -> None:
        self._terms = terms
        self._parent = list(range(len(terms.rows)))
        self._members = [[i] for i in self._parent]
        self._readers: list[list[int]] = [[] for _ in self._parent]
        self._known: dict[Hashable, int] = {}
        for i, (_, _, args) in enumerate(terms.rows):
            self._known[self._signature(i)] = i
            for a in args:
                self._readers[a].append(i)
        waiting = list(equalities)
        while waiting:
            self._merge(*waiting.pop(), waiting)

    def equal(self, a: int, b: int) -> bool:
        """Whether two terms are equal."""
        return self._parent[a] == self._parent[b]

    def _signature(self, i: int) -> Hashable:
        op, attrs, args = self._terms.rows[i]
        return op, attrs_key(attrs), tuple(self._parent[a] for a in args)

    def _merge(self, a: int, b: int, waiting: list[tuple[int, int]]) -> None:
        into, gone = self._parent[a], self._parent[b]
        if into == gone:
            return
        if len(self._readers[into]) + len(self._members[into]) < len(self._readers[gone]) + len(self._members[gone]):
            into, gone = gone, into
        for i in self._members[gone]:
            self._parent[i] = into
        self._members[into] += self._members[gone]
        for reader in self._readers[gone]:
            waiting.append((reader, self._known.setdefault(self._signature(reader), reader)))
        self._readers[into] += self._readers[gone]


class Elements:
    """Names for elements: two have one name only if the same operators compute them from the same elements."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._names: dict[Hashable, int] = {}
        self._fresh = count()
        self._whole: dict[int, Array] = {}

    def same(self, a: int, b: int) -> bool:
        """Whether two terms have the same elements; what both are made of is not looked into."""
        terms = self._terms
        shared = frozenset(terms.below([a])) & frozenset(terms.below([b])) - {a, b}
        return np.array_equal(self._of(a, shared), self._of(b, shared))

    def _of(self, root: int, shared: frozenset[int]) -> Array:
        found: dict[int, Array] = {}
        for at in self._terms.below([root], shared):
            op, attrs, args = self._terms.rows[at]
            if self._terms.size[at] > MOST_ELEMENTS:
                raise CheckFailed("an equality of elements is about too many")
            if op == "Full":
                found[at] = np.full(self._terms.size[at], self._value(attrs[0], self._terms.dtype[at]))
            elif at in shared or not args:
                found[at] = self._atoms(at)
            else:
                found[at] = self._computed(op, attrs, [found[a] for a in args], self._terms.dtype[args[-1]])
        return found[root]

    def _computed(self, op: str, attrs: tuple[Any, ...], args: list[Array], dtype: str) -> Array:
        match op:
            case "V":
                index = attrs[0].index()
                if not attrs[0].masked:
                    return args[0][index]
                return np.append(args[0], self._value(attrs[0].fill, dtype))[index]  # -1 reads the fill
            case "Cat":
                return np.concatenate(args)
            case "Un" | "Bin" | "Where":
                return self._named((op, *attrs, dtype), np.stack(args, axis=1))
            case "Red":
                return self._named((op, *attrs, dtype), args[0].reshape(-1, attrs[1]))
            case "MM":
                b, m, k, n = attrs
                rows = self._named(("row",), args[0].reshape(b * m, k)).reshape(b, m, 1)
                columns = args[1].reshape(b, k, n).transpose(0, 2, 1).reshape(b * n, k)
                columns = self._named(("row",), columns).reshape(b, 1, n)
                pairs = np.stack(np.broadcast_arrays(rows, columns), axis=-1).reshape(-1, 2)
                return self._named(("dot", dtype), np.sort(pairs, axis=1))  # factors commute, bit for bit
        raise CheckFailed(f"an equality of elements reaches {op}")

    def _atoms(self, at: int) -> Array:
        if at not in self._whole:
            self._whole[at] = np.array([next(self._fresh) for _ in range(self._terms.size[at])], np.int64)
        return self._whole[at]

    def _value(self, value: Any, dtype: str) -> int:
        return self._name((dtype, attr_key(value)))

    def _name(self, key: Hashable) -> int:
        if key not in self._names:
            self._names[key] = next(self._fresh)
        return self._names[key]

    def _named(self, kind: tuple[Hashable, ...], rows: Array) -> Array:
        """One name for each row: of an operator over the named operands."""
        different, inverse = np.unique(rows, axis=0, return_inverse=True)
        names = np.array([self._name((kind, row.tobytes())) for row in different], np.int64)
        return names[inverse.reshape(-1)]


class Numbered:
    """Two programs in the core, their terms numbered.

    Attributes:
        outputs: the numbers of each output in both.
    """

    def __init__(self, first: Program, second: Program) -> None:
        self.terms = Terms()
        self.programs = lower(first), lower(second)
        one, other = self.programs
        self._check_alike(one, other)
        self.constants = {**other.constants, **one.constants}
        mine = dict(zip(one.root_names, self.terms.add_nodes(one.roots), strict=True))
        theirs = dict(zip(other.root_names, self.terms.add_nodes(other.roots), strict=True))
        self.outputs = [(mine[name], theirs[name]) for name in mine]

    def head(self) -> dict[str, Any]:
        """The first line of a certificate."""
        first, second = map(_digest, self.programs)
        return {"certificate": VERSION, "first": first, "second": second}

    def rounding(self, a: int, b: int) -> float:
        """How far apart two terms that are computed from constants are, as a share of the largest magnitude.

        Raises:
            CheckFailed: one of them reads an input, or they are further apart than `ROUNDING` allows.
        """
        terms = self.terms
        if (terms.size[a], terms.dtype[a]) != (terms.size[b], terms.dtype[b]):
            raise CheckFailed(f"terms {a} and {b} differ in size or type")
        if any(terms.rows[i][0] in ("In", "Opaque") for i in terms.below([a, b])):
            raise CheckFailed(f"term {a} or {b} is not computed from constants")
        found, want = evaluate([terms.node(a), terms.node(b)], {}, self.constants, precision="float64")
        error = relative_error(found, want)
        if not error <= ROUNDING.get(terms.dtype[a], 0.0):
            raise CheckFailed(f"terms {a} and {b} are {error:.3g} apart")
        return error

    @staticmethod
    def _check_alike(one: CoreProgram, other: CoreProgram) -> None:
        shapes = [dict(zip(p.root_names, p.root_shapes, strict=True)) for p in (one, other)]
        if shapes[0] != shapes[1]:
            raise CheckFailed("the programs differ in the names or shapes of their outputs")
        known = {node.attrs[0]: node for node in one.inputs}
        for node in other.inputs:
            if known.get(node.attrs[0]) is not node:
                raise CheckFailed(f"input {node.attrs[0]!r} of the second program is not one of the first")


def verify(first: Program, second: Program, certificate: str, rules: Sequence[Rule]) -> Verified:
    """Check that a certificate proves two programs equal. Every line must hold.

    Args:
        certificate: its text; see the top of this module.
        rules: the rules that it may use.

    Raises:
        CheckFailed: it does not.
        InputError: the text is no certificate.
    """
    lines = certificate.splitlines()
    try:
        head = json.loads(lines[0])
        version = head["certificate"]
    except (ValueError, LookupError, TypeError):
        raise InputError("this is no certificate: its first line does not say so") from None
    if version != VERSION:
        raise InputError(f"a certificate of version {version!r} cannot be read; this is version {VERSION}")
    pair = Numbered(first, second)
    for which, digest in pair.head().items():
        if head.get(which) != digest:
            raise CheckFailed(f"the certificate is not about the {which} program")
    reading = _Reading(pair, rules)
    for place, line in enumerate(lines[1:], 2):
        try:
            reading.take(json.loads(line))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError, EqsatError) as error:
            raise CheckFailed(f"line {place} does not hold: {error}") from None
    closed = Congruence(pair.terms, reading.equalities)
    for (a, b), name in zip(pair.outputs, pair.programs[0].root_names, strict=True):
        if not closed.equal(a, b):
            raise CheckFailed(f"the certificate does not make output {name!r} equal")
    return reading.seen()


class _Reading:
    """The lines of a certificate, each checked as it comes."""

    def __init__(self, pair: Numbered, rules: Sequence[Rule]) -> None:
        self._pair, self._terms = pair, pair.terms
        self._rules = {rule.name: rule for rule in rules}
        self._elements = Elements(pair.terms)
        self._called = list(range(len(pair.terms.rows)))
        self._counts = {"rule": 0, "values": 0, "elements": 0}
        self._rounding = 0.0
        self.equalities: list[tuple[int, int]] = []

    def take(self, line: Mapping[str, Any]) -> None:
        """One line. Raises an error if it does not hold."""
        match line:
            case {"term": [str(op), list(attrs), list(args)], **rest} if not rest:
                kinds = core_op(op).attrs
                read = [_attribute(kind.kind, value) for kind, value in zip(kinds, attrs, strict=True)]
                operands = [self._number(a) for a in args]
                if op == "V" and not _stays_inside(read[0], self._terms.size[operands[0]]):
                    raise CheckFailed("a view reads beyond its operand")
                self._called.append(self._terms.add(op, read, operands))
                return
            case {"rule": str(name), "at": at, **rest} if not rest:
                at = self._number(at)
                right = self._terms.instance(self._rules[name], at)
                if right is None:
                    raise CheckFailed(f"{name} does not apply to this term")
                self._state("rule", at, right)
            case {"values": [a, b], **rest} if not rest:
                a, b = self._number(a), self._number(b)
                self._rounding = max(self._rounding, self._pair.rounding(a, b))
                self._state("values", a, b)
            case {"elements": [a, b], **rest} if not rest:
                a, b = self._number(a), self._number(b)
                if not self._elements.same(a, b):
                    raise CheckFailed("the elements differ")
                self._state("elements", a, b)
            case _:
                raise CheckFailed("no such statement")

    def seen(self) -> Verified:
        """What was read."""
        counts = self._counts
        return Verified(len(self._called), counts["rule"], counts["values"], counts["elements"], self._rounding)

    def _number(self, value: Any) -> int:
        if type(value) is not int or value < 0:
            raise CheckFailed(f"{value!r} is not the number of a term")
        return self._called[value]

    def _state(self, kind: str, a: int, b: int) -> None:
        terms = self._terms
        if (terms.size[a], terms.dtype[a]) != (terms.size[b], terms.dtype[b]):
            raise CheckFailed("both sides differ in size or type")
        self._counts[kind] += 1
        self.equalities.append((a, b))


def _attribute(kind: str, value: Any) -> Any:
    """An attribute as the core has it. Raises ValueError if it is none of this kind."""
    match kind, value:
        case "layout", {"layout": str(key), **rest} if not rest:
            return Layout.parse(key)
        case "int", int() if type(value) is int and value >= 0:
            return value
        case "value", bool() | int() | float():
            return value
        case (("function" | "reduction" | "dtype" | "name"), str()):
            return value
    raise ValueError(f"{value!r} is no {kind}")


def _digest(core: CoreProgram) -> str:
    """A digest of what a program computes, the values of its constants included."""
    order = topological(core.roots)
    place = {node: i for i, node in enumerate(order)}
    said = [(n.op, attrs_key(n.attrs), [place[a] for a in n.args]) for n in order]
    outputs = list(zip(core.root_names, core.root_shapes, [place[root] for root in core.roots], strict=True))
    return hashlib.blake2b(repr((said, outputs)).encode(), digest_size=16).hexdigest()
