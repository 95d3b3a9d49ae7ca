"""Patterns of rules matched over a snapshot, in Python: for explanations and for what nearly matched.

egglog matches far faster, but does not say which e-nodes a match went through, or which matches a guard refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.language.rule import (
    COMPARISONS,
    AnyRule,
    Ask,
    Attr,
    Compare,
    Fact,
    Guard,
    Lit,
    Pat,
    Pattern,
    Rule,
    Var,
    number,
    variables,
)
from eqsat.language.tables import find
from eqsat.program.core import measure

Bindings = Mapping[str, Any]
"""Variable name to class id, integer, layout, function name or value; `self` is the class of the left side."""

Shape = tuple[int, tuple[Any, ...]] | str
"""A side of a match: (e-node index, shapes of operands), or the name of a variable."""


@dataclass(frozen=True, slots=True)
class Match:
    """A rule that holds at a class: the e-nodes of both sides. `right` is None where they are not in the e-graph."""

    rule: Rule
    cls: int
    bindings: Bindings
    left: Shape
    right: Shape | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A left side that matched, and the parts of the guard that did not hold, in order."""

    rule: Rule
    cls: int
    bindings: Bindings
    left: Shape
    failed: tuple[Guard, ...]


class Matcher:
    """Matches of rules over one snapshot."""

    def __init__(
        self, snapshot: Snapshot, rules: Sequence[AnyRule] = (), in_time: Callable[[], bool] = lambda: True
    ) -> None:
        """`in_time` is asked before the guards of each match: False ends the search."""
        self.snapshot = snapshot
        self._in_time = in_time
        self._simplifying = [row for row in rules if isinstance(row, Rule) and row.subsumes]

    def matches(self, rule: Rule, at: int) -> Iterator[Match]:
        """Every way in which a rule holds with the e-node `at` on the top of its left side."""
        cls = self.snapshot.nodes[at].cls
        for bound, left in self.left_sides(rule, at):
            right, where = self._right(rule.right, bound)
            yield Match(rule, cls, bound, left, right if where == cls else None)

    def left_sides(self, rule: Rule, at: int) -> Iterator[tuple[Bindings, Shape]]:
        """The left sides of all matches."""
        for bindings, left in self._left(rule.left, at, {"self": self.snapshot.nodes[at].cls}):
            if not self._in_time():
                return
            bound = dict(bindings)
            if all(self._holds(guard, bound) for guard in rule.when):
                yield bound, left

    def refusals(self, rule: Rule, at: int) -> Iterator[Refusal]:
        """Every way in which the left side matches at an e-node and a guard refuses it."""
        cls = self.snapshot.nodes[at].cls
        for bindings, left in self._left(rule.left, at, {"self": cls}):
            bound = dict(bindings)
            failed = tuple(g for g in rule.when if _is_bound(g, bound) and not self._holds(g, bound))
            if failed:
                yield Refusal(rule, cls, bound, left, failed)

    def _left(self, pattern: Pat, at: int, bindings: Bindings) -> Iterator[tuple[Bindings, Shape]]:
        yield from self._matched(pattern, self.snapshot.nodes[at], at, bindings)

    def _matched(self, pattern: Pat, node: ENode, at: int, bindings: Bindings) -> Iterator[tuple[Bindings, Shape]]:
        if node.op != pattern.op or len(node.args) != len(pattern.args):
            return
        known = dict(bindings)
        if not all(_bind(a, value, known) for a, value in zip(pattern.attrs, node.attrs, strict=True)):
            return
        yield from self._operands(pattern, node, at, 0, known, ())

    def _operands(
        self, pattern: Pat, node: ENode, at: int, i: int, bindings: Bindings, done: tuple[Shape, ...]
    ) -> Iterator[tuple[Bindings, Shape]]:
        if i == len(pattern.args):
            yield bindings, (at, done)
            return
        wanted, cls = pattern.args[i], node.args[i]
        if isinstance(wanted, Var):
            if bindings.get(wanted.name, cls) == cls:
                known = {**bindings, wanted.name: cls}
                yield from self._operands(pattern, node, at, i + 1, known, (*done, wanted.name))
            return
        for member in self.snapshot.members[cls]:
            for known, shape in self._left(wanted, member, bindings):
                yield from self._operands(pattern, node, at, i + 1, known, (*done, shape))

    def _right(self, pattern: Pattern, bindings: Bindings) -> tuple[Shape | None, int]:
        """(shape, class) of the right side; (None, -1) where the e-graph does not hold it."""
        if isinstance(pattern, Var):
            return pattern.name, bindings[pattern.name]
        operands = [self._right(a, bindings) for a in pattern.args]
        return self.resolve(pattern.op, tuple(self.number(a, bindings) for a in pattern.attrs), operands)

    def resolve(
        self, op: str, attrs: tuple[Any, ...], operands: Sequence[tuple[Shape | None, int]]
    ) -> tuple[Shape | None, int]:
        """(shape, class) of an operator over shapes with these classes; (None, -1) where the e-graph does not hold it.

        What a simplifying rule has taken out of the e-graph (an identity view, a factor of one) is its operand.
        """
        shapes = tuple(shape for shape, _ in operands if shape is not None)
        if len(shapes) < len(operands):
            return None, -1
        args = tuple(cls for _, cls in operands)
        found = self.snapshot.entry(op, attrs, args)
        if found is not None:
            return (found, shapes), self.snapshot.nodes[found].cls
        simpler = self.simplified(op, attrs, args)
        return (None, -1) if simpler is None else (shapes[simpler[1]], args[simpler[1]])

    def simplified(self, op: str, attrs: tuple[Any, ...], args: tuple[int, ...]) -> tuple[Rule, int] | None:
        """The rule that makes an operator the same as one of its operands, and which operand that is."""
        sizes, dtypes = [self.snapshot.size[a] for a in args], [self.snapshot.dtype[a] for a in args]
        for row in self._simplifying:
            names = [operand.name if isinstance(operand, Var) else "" for operand in row.left.args]
            if row.left.op != op or not isinstance(row.right, Var) or row.right.name not in names:
                continue
            place = names.index(row.right.name)
            known: dict[str, Any] = {"self": args[place]}
            if measure(op, attrs, sizes, dtypes) != (sizes[place], dtypes[place]):
                continue
            for bindings, _ in self._matched(row.left, ENode(op, attrs, args, args[place]), -1, known):
                if all(self._holds(guard, dict(bindings)) for guard in row.when):
                    return row, place
        return None

    def number(self, attr: Attr, bindings: Bindings) -> Any:
        """What an attribute of a pattern comes to."""
        known = {"size": self.snapshot.size, "dtype": self.snapshot.dtype}
        of_class = {what: lambda name, of=of: of[bindings[name]] for what, of in known.items()}
        return number(attr, bindings.__getitem__, of_class)

    def _holds(self, guard: Guard, bindings: dict[str, Any]) -> bool:
        """Whether a guard holds; binds what its table gives."""
        match guard:
            case Fact(name, cls):
                const = self.snapshot.const[bindings[cls.name]]
                return const if name == "const" else not const
            case Compare(op, left, right):
                return COMPARISONS[op](self.number(left, bindings), self.number(right, bindings))
            case Ask(table, args, gives):
                found = find(table).fn(*(self.number(a, bindings) for a in args))
                if found is not None:
                    bindings.update({v.name: value for v, value in zip(gives, found, strict=True)})
                return found is not None


def _bind(attr: Attr, value: Any, bindings: dict[str, Any]) -> bool:
    """Whether an attribute of a pattern can stand for a value; binds it where it is a variable."""
    if isinstance(attr, Lit):
        return attr.value == value and type(attr.value) is type(value)
    if not isinstance(attr, Var):
        return False
    known = bindings.setdefault(attr.name, value)
    return known is value or (known == value and type(known) is type(value) and repr(known) == repr(value))


def _is_bound(guard: Guard, bindings: Bindings) -> bool:
    """Whether every table that the guard needs has answered."""
    return all(name in bindings for name in variables(guard))
