"""Sums in one order: two that have the same addends, in any order and any brackets, are stated to be equal.

A sum becomes a comb, `a + (b + (c + d))`, by the rule that moves brackets to the right. Neighbours are then exchanged
until two combs agree. Every step is an instance of a rule, so that a certificate may rest on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Protocol

from eqsat.language.rule import Rule
from eqsat.program.node import Node, make, topological
from eqsat.verify.terms import Terms

MOST_ADDENDS = 64
"""Addends of a sum that is brought into another order: each exchange of neighbours is three steps."""

_FEW = 3
"""Addends whose sums in every order and with all brackets an e-graph soon holds."""


def sums_in_order(roots: Sequence[Node], fixed: Callable[[Node], bool]) -> list[tuple[Node, Node]]:
    """The sums of many addends, and the same with the addends in one order: those first that are not `fixed`."""
    order = topological(roots)
    whole = {*roots, *(a for node in order if not _is_sum(node) for a in node.args)}
    pairs = [(node, _in_order(node, fixed)) for node in order if _is_sum(node) and node in whole]
    return [(node, ordered) for node, ordered in pairs if ordered is not node]


def _in_order(node: Node, fixed: Callable[[Node], bool]) -> Node:
    parts, stack = list[Node](), [node]
    while stack and len(parts) <= MOST_ADDENDS:
        part = stack.pop()
        if _is_sum(part):
            stack += part.args
        else:
            parts.append(part)
    if not _FEW < len(parts) <= MOST_ADDENDS:
        return node
    parts.sort(key=lambda part: part.uid)
    groups = [[p for p in parts if not fixed(p)], [p for p in parts if fixed(p)]]
    return _added([_added(group) for group in groups if group])


def _added(parts: Sequence[Node]) -> Node:
    return reduce(lambda one, other: make("Bin", ("add",), (one, other)), parts)


def _is_sum(node: Node) -> bool:
    return node.op == "Bin" and node.attrs == ("add",)


class Stated(Protocol):
    """What equalities are stated to."""

    terms: Terms

    def rule(self, rule: Rule, at: int) -> int | None:
        """State a rule at a term; the right side, where it applies."""
        ...

    def equal(self, a: int, b: int) -> bool:
        """Whether what was stated makes two terms equal."""
        ...


class Sums:
    """Sums of known addends, which are not taken apart."""

    def __init__(self, stated: Stated, rules: Sequence[Rule]) -> None:
        named = {rule.name: rule for rule in rules}
        self._stated, self._terms = stated, stated.terms
        self._commute, self._associate = named["commute-sum"], named["associate-sum"]

    def meet(self, one: int, other: int, addends: frozenset[int]) -> None:
        """State that two sums of some addends are equal, if they have the same."""
        wanted, own = (self._comb(at, addends) for at in (one, other))
        if len(own) != len(wanted):
            return
        for i, part in enumerate(wanted):
            j = next((j for j in range(i, len(own)) if self._stated.equal(own[j], part)), None)
            if j is None:
                return
            for k in range(j - 1, i - 1, -1):
                self._exchange(own, k)
                own[k], own[k + 1] = own[k + 1], own[k]

    def _comb(self, at: int, addends: frozenset[int]) -> list[int]:
        """The addends of a sum, which was stated to be their comb."""
        op, attrs, args = self._terms.rows[at]
        if at in addends or (op, attrs) != ("Bin", ("add",)):
            return [at]
        left, right = (self._comb(a, addends) for a in args)
        # (a + (b + c)) + rest: one addend of the left comb after the other goes to the right.
        for k in range(len(left) - 1):
            self._stated.rule(self._associate, self._added([self._added(left[k:]), self._added(right)]))
        return [*left, *right]

    def _exchange(self, own: Sequence[int], k: int) -> None:
        """State that parts k and k + 1 of a comb may change places: what is around them follows by congruence."""
        one, other, rest = own[k], own[k + 1], own[k + 2 :]
        pairs = self._added([one, other]), self._added([other, one])
        self._stated.rule(self._commute, pairs[0])
        for pair in pairs if rest else ():
            self._stated.rule(self._associate, self._added([pair, self._added(rest)]))
        self._added([*own[:k], other, one, *rest])

    def _added(self, parts: Sequence[int]) -> int:
        """The comb of some addends."""
        *others, at = parts
        for part in reversed(others):
            at = self._terms.add("Bin", ("add",), (part, at))
        return at
