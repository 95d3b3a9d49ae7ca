"""A check of derivations that shares no code with the search for them: do the rewrites alone prove the result?

Rewrites are equations between trees over e-nodes. Two trees are equal if the congruence closure of the equations says
so (Downey, Sethi, Tarjan, 1980). This detects derivations with missing steps, and removes detours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from eqsat.base.graphs import Merged, operands_first

_MOST_VISITS = 10_000
"""Most trees visited when a derivation is shortened: a tenth of a second."""


@dataclass(frozen=True, eq=False, slots=True)
class Tree:
    """A term over a snapshot: an e-node with a tree for each operand. Hash-consed: equal trees are one object."""

    at: int
    args: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A step over trees: by a rule, from right to left where `backwards`; `assumed` as in `eqsat.explain.ties.Tie`.

    `operands` are the values of the rule's variables.
    """

    rule: str
    backwards: bool
    before: Tree
    after: Tree
    operands: tuple[Tree, ...]
    assumed: bool

    def turned(self) -> Rewrite:
        """The same equation, read the other way."""
        return replace(self, backwards=not self.backwards, before=self.after, after=self.before)


Pairs = Sequence[tuple[Tree, Tree]]


def follow(pairs: Pairs, rewrites: Sequence[Rewrite]) -> bool:
    """Whether the rewrites alone prove the pairs equal."""
    order = operands_first([t for pair in pairs for t in pair] + [t for r in rewrites for t in (r.before, r.after)])
    equal = Merged[Tree]()
    for r in rewrites:
        equal.merge(r.before, into=r.after)
    grown = True
    while grown and not all(equal.find(a) is equal.find(b) for a, b in pairs):
        grown = False
        known: dict[tuple[int, tuple[Tree, ...]], Tree] = {}
        for tree in order:
            same = known.setdefault((tree.at, tuple(map(equal.find, tree.args))), tree)
            if equal.find(same) is not equal.find(tree):
                equal.merge(tree, into=same)
                grown = True
    return all(equal.find(a) is equal.find(b) for a, b in pairs)


def straightened(pairs: Pairs, rewrites: Sequence[Rewrite]) -> list[Rewrite]:
    """Drop redundant rewrites; order the rest by dependency."""
    kept = list(dict.fromkeys(rewrites))
    trees = len(operands_first([t for r in kept for t in (r.before, r.after)]))
    for candidate in kept[: _MOST_VISITS // max(trees, 1)]:
        rest = [r for r in kept if r is not candidate]
        if follow(pairs, rest):
            kept = rest
    return _ordered([before for before, _ in pairs], kept)


def _ordered(roots: Sequence[Tree], rewrites: Sequence[Rewrite]) -> list[Rewrite]:
    present = set(operands_first(roots))
    waiting = list(rewrites)
    ordered: list[Rewrite] = []
    while waiting:
        ready = next((r for r in waiting if r.before in present), None)
        turned = next((r for r in waiting if r.after in present), None) if ready is None else None
        chosen = ready or turned or waiting[0]
        waiting.remove(chosen)
        ordered.append(chosen.turned() if chosen is turned else chosen)
        present.update(operands_first([chosen.before, chosen.after]))
    return ordered
