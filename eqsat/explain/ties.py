"""Ties: which e-nodes of a class a rule makes equal, found by matching every rule over the final e-graph.

egglog keeps no proofs. A tie joins the top e-nodes of a rule's two sides; derivations are paths over ties
(`eqsat.explain.derivation`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eqsat.egraph.host_terms import Terms
from eqsat.egraph.match import Matcher, Shape
from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.explain.effort import HOST_RULE, Effort
from eqsat.language.rule import AnyRule, HostRule, Pat, Rule, Var

_BACKWARD, _NESTED, _LAST_RESORT = 2, 2, 12
"""Extra costs, where a step costs 1: a rule used backwards, operands that need a form, and ties of `Ties._made`."""


@dataclass(frozen=True, slots=True)
class Tie:
    """Two sides of one class that a rule makes equal.

    `assumed`: no match of the rule is known, only that it put the second side into the e-graph.
    """

    rule: str
    source: Shape
    target: Shape
    cost: int
    backwards: bool = False
    assumed: bool = False


class Ties:
    """The ties of a snapshot, class by class."""

    def __init__(self, matcher: Matcher, rules: Sequence[AnyRule], effort: Effort) -> None:
        self.snapshot, self.matcher = matcher.snapshot, matcher
        self._effort = effort
        self._rules: dict[str, list[Rule]] = {}
        for row in rules:
            if isinstance(row, Rule):
                self._rules.setdefault(row.left.op, []).append(row)
        self._host = [r for r in rules if isinstance(r, HostRule)]
        self._ties: dict[int, tuple[list[Tie], dict[int, list[Tie]]]] = {}
        self._ops: dict[int, frozenset[str]] = {}

    @cached_property
    def _host_ties(self) -> Mapping[int, list[Tie]]:
        return _host_ties(self.snapshot, self.matcher, self._host, self._effort)

    def of_class(self, cls: int) -> tuple[list[Tie], dict[int, list[Tie]]]:
        """The ties of a class: ties that start at any of its e-nodes, and ties that start at one of them."""
        if cls not in self._ties:
            self._ties[cls] = _by_start([*self._matched(cls), *self._host_ties.get(cls, ()), *self._made(cls)])
        return self._ties[cls]

    def _matched(self, cls: int) -> Iterator[Tie]:
        for at in self.snapshot.members[cls]:
            for row in self._rules.get(self.snapshot.nodes[at].op, ()):
                if not self._may_match(row.left, at):
                    continue
                if self._effort.over():
                    return
                self._effort.spend(1)
                for match in self.matcher.matches(row, at):
                    if match.right is not None:
                        yield Tie(row.name, match.left, match.right, 1 + _NESTED * _nested(match.left))

    def _may_match(self, pattern: Pat, at: int) -> bool:
        """Whether each operand with a required form has an e-node of its operator: most rules fail here already."""
        node = self.snapshot.nodes[at]
        if len(node.args) != len(pattern.args):
            return False
        wanted = zip(pattern.args, node.args, strict=True)
        return all(isinstance(p, Var) or p.op in self._operators(cls) for p, cls in wanted)

    def _operators(self, cls: int) -> frozenset[str]:
        if cls not in self._ops:
            self._ops[cls] = frozenset(self.snapshot.nodes[i].op for i in self.snapshot.members[cls])
        return self._ops[cls]

    def _made(self, cls: int) -> Iterator[Tie]:
        """E-nodes with the rule that made them, by the e-graph's record: a last resort if the rule no longer matches.

        This happens with groups: once formed, their members no longer match.
        """
        members = self.snapshot.members[cls]
        first = next((i for i in members if not self.snapshot.nodes[i].rule), self.snapshot.best[cls])
        source = (first, tuple(_variable(a) for a in self.snapshot.nodes[first].args))
        for at in members:
            node = self.snapshot.nodes[at]
            if node.rule and at != first:
                yield Tie(node.rule, source, (at, tuple(_variable(a) for a in node.args)), _LAST_RESORT, assumed=True)


def _by_start(ties: Sequence[Tie]) -> tuple[list[Tie], dict[int, list[Tie]]]:
    """Ties both ways: the ones that start at any e-node, and the others by the e-node where they start."""
    anywhere: list[Tie] = []
    at: dict[int, list[Tie]] = {}
    for tie in ties:
        back = Tie(tie.rule, tie.target, tie.source, tie.cost + _BACKWARD, not tie.backwards, tie.assumed)
        for side in (tie, back):
            if isinstance(side.source, str):
                anywhere.append(side)
            else:
                at.setdefault(side.source[0], []).append(side)
    return anywhere, at


def _nested(shape: Shape) -> int:
    """How many operands of a side must have a certain form."""
    if isinstance(shape, str):
        return 0
    return sum(1 + _nested(s) for s in shape[1] if not isinstance(s, str))


class _Spelling(Terms):
    """Terms that are not looked up, so that the statements of a host rule are kept. Remembers the current e-node."""

    says_again = True

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self.looking_at: ENode | None = None

    def nodes(self, op: str) -> Iterator[ENode]:
        for node in super().nodes(op):
            self.looking_at = node
            yield node

    def make(self, op: str, attrs: tuple[Any, ...], operands: Sequence[Any]) -> Any:
        return (op, attrs, tuple(operands))


def _host_ties(
    snapshot: Snapshot, matcher: Matcher, rules: Sequence[HostRule], effort: Effort
) -> Mapping[int, list[Tie]]:
    """The statements of host rules on the final e-graph, by class."""
    ties: dict[int, list[Tie]] = {}
    for row in rules:
        if effort.over():
            break
        effort.spend(HOST_RULE)
        graph = _Spelling(snapshot)

        def emit(cls: int, term: Any, name: str = row.name, graph: _Spelling = graph) -> None:
            target, where = _spelled(term, matcher)
            if target is None or where != cls:
                return
            node = graph.looking_at
            at = snapshot.entry(node.op, node.attrs, node.args) if node is not None and node.cls == cls else None
            if at is None:
                at = next((i for i in snapshot.members[cls] if not snapshot.nodes[i].rule), snapshot.best[cls])
            source: Shape = (at, tuple(_variable(a) for a in snapshot.nodes[at].args))
            if isinstance(target, str) or target[0] != at:
                ties.setdefault(cls, []).append(Tie(name, source, target, 1))

        row.apply(graph, emit)
    return ties


def _spelled(term: Any, matcher: Matcher) -> tuple[Shape | None, int]:
    """(shape, class) of a term that a host rule states; (None, -1) if it is not in the e-graph."""
    if isinstance(term, int):
        return _variable(term), term
    op, attrs, operands = term
    return matcher.resolve(op, attrs, [_spelled(t, matcher) for t in operands])


def _variable(cls: int) -> str:
    return f"#{cls}"
