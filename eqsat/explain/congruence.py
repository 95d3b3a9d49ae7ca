"""A check of derivations that shares no code with the search for them: do the rewrites alone prove the result?

Rewrites are equations between trees over e-nodes. Two trees are equal if the congruence closure of the equations says
so (Downey, Sethi, Tarjan, 1980). This detects derivations with missing steps, and removes detours.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace

from eqsat.base.graphs import operands_first

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
    return _Closure([t for pair in pairs for t in pair], rewrites).with_all(rewrites).proves(pairs)


def straightened(pairs: Pairs, rewrites: Sequence[Rewrite]) -> list[Rewrite]:
    """Drop redundant rewrites, each in turn where the others still prove the pairs equal; order the rest by dependency.

    What is tried is halved until one rewrite is left, with all others merged: so each is merged a few times, not once
    for every other.
    """
    kept = list(dict.fromkeys(rewrites))
    trees = len(operands_first([t for r in kept for t in (r.before, r.after)]))
    tried = _MOST_VISITS // max(trees, 1)
    others = _Closure([t for pair in pairs for t in pair], kept).with_all(kept[tried:])
    return _ordered([before for before, _ in pairs], _needed(pairs, others, kept[:tried]) + kept[tried:])


def _needed(pairs: Pairs, others: _Closure, rewrites: Sequence[Rewrite]) -> list[Rewrite]:
    """What is left of some rewrites when each is dropped in turn where the rest prove the pairs, with all others."""
    if not rewrites or others.proves(pairs):
        return []
    if len(rewrites) == 1:
        return list(rewrites)
    half = len(rewrites) // 2
    first = _needed(pairs, others.with_all(rewrites[half:]), rewrites[:half])
    return first + _needed(pairs, others.with_all(first), rewrites[half:])


class _Closure:
    """The equalities between trees that follow from some by putting equals for equals. Never changed: `with_all` is
    another one."""

    def __init__(self, trees: Sequence[Tree], rewrites: Sequence[Rewrite]) -> None:
        """Nothing is equal yet; the trees are these, those of rewrites that may be added, and all below them."""
        order = operands_first([*trees, *(t for r in rewrites for t in (r.before, r.after))])
        self._number = {tree: i for i, tree in enumerate(order)}
        self._rows = [(tree.at, [self._number[a] for a in tree.args]) for tree in order]
        self._above = list(range(len(order)))
        self._readers: list[tuple[int, ...]] = [()] * len(order)
        for i, (_, args) in enumerate(self._rows):
            for a in dict.fromkeys(args):
                self._readers[a] += (i,)
        self._known = {(at, *args): i for i, (at, args) in enumerate(self._rows)}
        """The first tree with each e-node at its top and operands of these classes."""

    def with_all(self, rewrites: Sequence[Rewrite]) -> _Closure:
        """The same, with both sides of these rewrites equal, too."""
        found = copy(self)
        found._above, found._readers, found._known = self._above.copy(), self._readers.copy(), self._known.copy()
        for r in rewrites:
            found._merge(self._number[r.before], self._number[r.after])
        return found

    def proves(self, pairs: Pairs) -> bool:
        """Whether both trees of each pair are equal."""
        return all(self._find(self._number[a]) == self._find(self._number[b]) for a, b in pairs)

    def _find(self, i: int) -> int:
        above = self._above
        while above[i] != i:
            above[i] = i = above[above[i]]
        return i

    def _merge(self, a: int, b: int) -> None:
        waiting = [(a, b)]
        while waiting:
            gone, into = map(self._find, waiting.pop())
            if gone == into:
                continue
            if len(self._readers[into]) < len(self._readers[gone]):
                gone, into = into, gone
            self._above[gone] = into
            for reader in self._readers[gone]:
                at, args = self._rows[reader]
                same = self._known.setdefault((at, *map(self._find, args)), reader)
                if same != reader:
                    waiting.append((reader, same))
            self._readers[into] += self._readers[gone]


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
