"""Certificates: what proves two programs equal, for `eqsat.verify.checker` to check.

The steps that one e-graph gives are written as statements about terms. A step by a rule in code (over all members of a
concatenation, over constants) is stated as what can be checked of it: equal values, or equal elements. What proves
nothing is left out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eqsat.base.graphs import operands_first
from eqsat.egraph.saturate import Limits, saturate
from eqsat.egraph.snapshot import Snapshot
from eqsat.errors import CheckFailed, EqsatError
from eqsat.explain.congruence import Rewrite, Tree
from eqsat.explain.derivation import derive_trees
from eqsat.language.rule import AnyRule, Rule, Var
from eqsat.program.core import Node, topological
from eqsat.program.ir import Program
from eqsat.program.node import substitute
from eqsat.rules import ALL, EXPLORING
from eqsat.verify.checker import MOST_ELEMENTS, Congruence, Elements, Numbered

_NODES = 20_000
_SATURATING = 0.4
"""The share of the time that is left which an e-graph gets."""

_SHORTENED = 300
"""Most statements of a certificate that is made shorter."""

PROVING: tuple[AnyRule, ...] = (*(r for r in ALL if getattr(r, "phase", "algebra") != "groups"), *EXPLORING)
"""Every rule, groups aside (they serve prices), and those that only proving needs."""

CHECKABLE: tuple[Rule, ...] = tuple(rule for rule in PROVING if isinstance(rule, Rule))
"""The rules that a certificate may name: those that are data."""


@dataclass(frozen=True, slots=True)
class _Statement:
    """An equality of two terms, and its line given the names of the terms."""

    left: int
    right: int
    says: Callable[[Callable[[int], int]], dict[str, object]]


def certify(first: Program, second: Program, time_limit: float) -> str:
    """A certificate that two programs are equal.

    Raises:
        CheckFailed: none was found in `time_limit` seconds.
    """
    deadline = time.monotonic() + time_limit
    writer = _Writer(Numbered(first, second))
    writer.derive(deadline)
    return writer.text()


class _Writer:
    """The statements of a certificate."""

    def __init__(self, pair: Numbered) -> None:
        self._pair, self._terms = pair, pair.terms
        self._own = len(pair.terms.rows)
        self._elements = Elements(pair.terms)
        self._statements: list[_Statement] = []
        self._simplifying = [rule for rule in CHECKABLE if rule.subsumes and isinstance(rule.right, Var)]

    def derive(self, deadline: float) -> None:
        """Statements that make every output equal. Raises CheckFailed if they are not found."""
        goals = [(self._terms.node(a), self._terms.node(b)) for a, b in self._pair.outputs if a != b]
        if not goals:
            return
        found = self._saturated(goals, _SATURATING * (deadline - time.monotonic()))
        unfolded = self._unfolded(found, goals)
        if unfolded != goals:
            goals = unfolded
            found = self._saturated(goals, _SATURATING * (deadline - time.monotonic()))
        rewrites = derive_trees(found, PROVING, goals, max(deadline - time.monotonic(), 0.0))
        if rewrites is None:
            raise CheckFailed(f"no certificate: rules found no steps between the programs ({found.stats['stop']})")
        for rewrite in rewrites:
            self._state(rewrite, found)
        self._simplify()
        if not self._enough(self._statements):
            raise CheckFailed("no certificate: the steps that were found do not prove the programs equal")
        self._shorten()

    @staticmethod
    def _saturated(goals: Sequence[tuple[Node, Node]], seconds: float) -> Snapshot:
        source = Snapshot.from_core([*(a for a, _ in goals), *(b for _, b in goals)])
        pairs = [(i, len(goals) + i) for i in range(len(goals))]
        return saturate(source, PROVING, Limits(seconds=max(seconds, 0.0), nodes=_NODES), goals=pairs)

    def _unfolded(self, found: Snapshot, goals: Sequence[tuple[Node, Node]]) -> list[tuple[Node, Node]]:
        """The goals with each constant of the second program alone as what the first computes of constants.

        States that they are equal.
        """
        theirs = set(topological([a for a, _ in goals]))
        own = [n for n in topological([b for _, b in goals]) if n.op == "Const" and n not in theirs]
        classes = [c for c in range(found.n_classes) if found.const[c] and found.size[c] <= MOST_ELEMENTS]
        computed: dict[tuple[int, str], list[int]] = {}
        for term in (t for c in classes if (t := found.term(c)).op != "Const"):
            computed.setdefault((term.size, term.dtype), []).append(self._terms.add_nodes([term])[0])
        replaced: dict[Node, Node] = {}
        for node in own:
            (folded,) = self._terms.add_nodes([node])
            for at in computed.get((node.size, node.dtype), ()):
                if self._equal_values(folded, at):
                    self._add("values", folded, at)
                    replaced[node] = self._terms.node(at)
                    break
        return list(zip([a for a, _ in goals], substitute([b for _, b in goals], replaced), strict=True))

    def text(self) -> str:
        """The certificate."""
        lines = [json.dumps(self._pair.head())]
        name = {i: i for i in range(self._own)}
        for statement in self._statements:
            lines.append(json.dumps(statement.says(lambda at: self._named(at, name, lines))))
        return "\n".join(lines) + "\n"

    def _named(self, at: int, name: dict[int, int], lines: list[str]) -> int:
        for i in self._terms.below([at], frozenset(name)):
            if i not in name:
                lines.append(self._terms.line(i, name))
                name[i] = len(name)
        return name[at]

    def _state(self, rewrite: Rewrite, found: Snapshot) -> None:
        before, after = (self._numbers([tree], found) for tree in (rewrite.before, rewrite.after))
        rule = next((rule for rule in CHECKABLE if rule.name == rewrite.rule), None)
        left = after if rewrite.backwards else before
        right = None if rule is None or rewrite.assumed else self._terms.instance(rule, left)
        if right is not None:
            self._add_rule(rewrite.rule, left, right)
        elif self._equal_values(before, after):
            self._add("values", before, after)
        elif self._equal_elements(before, after):
            self._add("elements", before, after)
        else:
            raise CheckFailed(f"no certificate: a step by {rewrite.rule} is not one that can be checked")

    def _add_rule(self, rule: str, left: int, right: int) -> None:
        self._statements.append(_Statement(left, right, lambda named: {"rule": rule, "at": named(left)}))

    def _add(self, kind: str, left: int, right: int) -> None:
        self._statements.append(_Statement(left, right, lambda named: {kind: [named(left), named(right)]}))

    def _equal_values(self, a: int, b: int) -> bool:
        try:
            self._pair.rounding(a, b)
        except EqsatError:
            return False
        return True

    def _equal_elements(self, a: int, b: int) -> bool:
        try:
            return self._elements.same(a, b)
        except EqsatError:
            return False

    def _simplify(self) -> None:
        """State what the e-graph takes for granted: identity views, factors of one."""
        for at, _ in enumerate(self._terms.rows):  # grows as it goes
            for rule in self._simplifying:
                right = self._terms.instance(rule, at)
                if right is not None and right != at:
                    self._add_rule(rule.name, at, right)

    def _enough(self, statements: Sequence[_Statement]) -> bool:
        closed = Congruence(self._terms, [(s.left, s.right) for s in statements])
        return all(closed.equal(a, b) for a, b in self._pair.outputs)

    def _shorten(self) -> None:
        """Leave out each statement without which the rest is enough."""
        for statement in list(self._statements[-_SHORTENED:]):
            rest = [s for s in self._statements if s is not statement]
            if self._enough(rest):
                self._statements = rest

    def _numbers(self, trees: Sequence[Tree], found: Snapshot) -> int:
        made: dict[Tree, int] = {}
        for tree in operands_first(trees):
            row = found.nodes[tree.at]
            made[tree] = self._terms.add(row.op, row.attrs, [made[a] for a in tree.args])
        return made[trees[-1]]
