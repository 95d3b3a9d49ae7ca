"""Terms of the core by number, and rules matched on a very term: what certificates speak of.

Nothing here comes from search, e-graphs or extraction.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from eqsat.base.graphs import operands_first
from eqsat.base.numerics import is_float, scalar
from eqsat.errors import InputError
from eqsat.language.rule import COMPARISONS, Arith, Ask, Attr, Compare, Guard, Lit, Pat, Pattern, Rule, Var, number
from eqsat.language.tables import find
from eqsat.layout.arithmetic import Layout
from eqsat.program.core import Node, make, measure
from eqsat.program.core_table import core_op
from eqsat.program.term import attr_key, attrs_key
from eqsat.verify.spelling import number_of

_OF_ALL = frozenset({"finite"})
"""Tables that hold of all real numbers."""


class Terms:
    """Terms of the core by number, each once. Unlike nodes, they are never simplified when they are made."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, tuple[Any, ...], tuple[int, ...]]] = []
        self.size: list[int] = []
        self.dtype: list[str] = []
        self.head: list[int] = []
        """The same number for the same operator with the same attributes."""
        self._computed: list[bool] = []
        self._heads: dict[Hashable, int] = {}
        self._number: dict[Hashable, int] = {}
        self._nodes: dict[int, Node] = {}
        self._of_node: dict[Node, int] = {}

    def add(self, op: str, attrs: Sequence[Any], args: Sequence[int]) -> int:
        """The number of a term.

        Raises:
            InputError: operands that the operator does not take.
        """
        attrs, args = tuple(attrs), tuple(args)
        if op == "Full":
            attrs = (scalar(attrs[0], attrs[2]), *attrs[1:])
        head = op, attrs_key(attrs)
        key = head, args
        if key not in self._number:
            sizes, dtypes = [self.size[a] for a in args], [self.dtype[a] for a in args]
            row = core_op(op)
            if not row.takes(attrs, sizes, dtypes) or not row.computes(attrs, dtypes):
                raise InputError(f"{op}{attrs} does not take {', '.join(map(str, zip(dtypes, sizes, strict=True)))}")
            size, dtype = measure(op, attrs, sizes, dtypes)
            self._number[key] = len(self.rows)
            self.rows.append((op, attrs, args))
            self.size.append(size)
            self.dtype.append(dtype)
            self._computed.append(op not in ("In", "Opaque") and all(self._computed[a] for a in args))
            self.head.append(self._heads.setdefault(head, len(self._heads)))
        return self._number[key]

    def computed(self, at: int) -> bool:
        """Whether a term is computed from constants alone."""
        return self._computed[at]

    def add_nodes(self, roots: Iterable[Node]) -> list[int]:
        """The numbers of nodes; all that is below them comes first."""
        made, roots = self._of_node, list(roots)
        for node in operands_first(roots, made):
            made[node] = self.add(node.op, node.attrs, [made[a] for a in node.args])
        return [made[root] for root in roots]

    def copy(self, other: Terms, roots: Iterable[int], made: dict[int, int]) -> None:
        """Add what roots of other terms are made of; `made` says what stands for terms of those, and gets the rest."""
        for at in other.below(roots, frozenset(made)):
            if at not in made:
                op, attrs, args = other.rows[at]
                made[at] = self.add(op, attrs, [made[a] for a in args])

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

    def numbers_read(self, rule: Rule, at: int, right: int) -> set[Node]:
        """The floats on whose values it rests that a rule makes a term another one, as `number_of` has them: it names
        them, asks tables for them, or takes them from one type to another."""
        asked = {name for guard in rule.when for attr in _attributes(guard) for name in _variables(attr)}
        read: set[Node] = set()
        copied: dict[str, set[Node]] = {}
        for pattern, term in self.matched(rule, at, right):
            if isinstance(pattern, Pat) and pattern.op == "Full" and is_float(self.dtype[term]):
                value, number = pattern.attrs[0], number_of(self.node(term))
                if isinstance(value, Var) and value.name not in asked:
                    copied.setdefault(value.name, set()).add(number)
                else:
                    read.add(number)
        return read.union(*(numbers for numbers in copied.values() if len(numbers) > 1))

    def matched(self, rule: Rule, at: int, right: int) -> Iterator[tuple[Pattern, int]]:
        """The patterns of both sides of a rule, variables included, and the term that each stands for."""
        stack: list[tuple[Pattern, int]] = [(rule.left, at), (rule.right, right)]
        while stack:
            pattern, term = stack.pop()
            yield pattern, term
            if isinstance(pattern, Pat):
                stack += zip(pattern.args, self.rows[term][2], strict=True)

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

    def name(self, at: int, called: dict[int, int], lines: list[str]) -> int:
        """What a certificate calls a term; it gets the lines that add what has no name yet."""
        for i in self.below([at], frozenset(called)):
            if i not in called:
                op, attrs, args = self.rows[i]
                spelled = [{"layout": a.key()} if isinstance(a, Layout) else a for a in attrs]
                lines.append(json.dumps({"term": [op, spelled, [called[a] for a in args]]}))
                called[i] = len(called)
        return called[at]


def _attributes(guard: Guard) -> tuple[Attr, ...]:
    """The attributes that a guard asks about, and those that it gives."""
    if isinstance(guard, Compare):
        return guard.left, guard.right
    return (*guard.args, *guard.gives) if isinstance(guard, Ask) and guard.table not in _OF_ALL else ()


def _variables(attr: Attr | None) -> Iterator[str]:
    if isinstance(attr, Var):
        yield attr.name
    elif isinstance(attr, Arith) and attr.op not in ("size", "dtype"):
        yield from _variables(attr.left)
        yield from _variables(attr.right)


def _bind(attr: Attr, value: Any, bound: dict[str, Any]) -> bool:
    """Whether an attribute of a pattern can stand for a value; binds it where it is a variable."""
    if isinstance(attr, Lit):
        return attr_key(attr.value) == attr_key(value)
    return isinstance(attr, Var) and attr_key(bound.setdefault(attr.name, value)) == attr_key(value)
