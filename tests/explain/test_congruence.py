"""Whether rewrites alone prove a result, and which of them are needed."""

from __future__ import annotations

import random
from itertools import pairwise
from math import log2

from eqsat.explain.congruence import Rewrite, Tree, follow, straightened


class Trees:
    """Equal trees are one object."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, tuple[Tree, ...]], Tree] = {}

    def __call__(self, at: int, *args: Tree) -> Tree:
        return self._made.setdefault((at, args), Tree(at, args))


def step(before: Tree, after: Tree) -> Rewrite:
    return Rewrite(f"{before.at} to {after.at}", False, before, after, (), False)


def test_rewrites_are_followed_through_readers_and_each_other() -> None:
    tree = Trees()
    a, b, c = tree(0), tree(1), tree(2)
    pairs = [(tree(9, tree(8, a), b), tree(9, tree(8, c), c))]
    assert follow(pairs, [step(a, b), step(c, b)])
    assert not follow(pairs, [step(a, b)])
    assert follow([(a, a)], [])


def test_rewrites_are_dropped_one_after_another() -> None:
    tree = Trees()
    dice = random.Random(7)
    for _ in range(60):
        leaves = [tree(i) for i in range(5)]
        known = [*leaves, *(tree(10 + i % 3, *dice.sample(leaves, 1 + i % 3 // 2)) for i in range(8))]
        given = [step(*dice.sample(known, 2)) for _ in range(14)]
        pairs = [(dice.choice(known), dice.choice(known)) for _ in range(2)]
        kept = list(dict.fromkeys(given))
        for one in list(kept):
            rest = [r for r in kept if r is not one]
            if follow(pairs, rest):
                kept = rest
        found = straightened(pairs, given)
        assert sorted(map(repr, found)) == sorted(repr(r if r in found else r.turned()) for r in kept)
        assert follow(pairs, found) == follow(pairs, given)


def test_a_long_derivation_is_straightened_in_little_work() -> None:
    looked_up = 0

    class Counted(int):
        def __hash__(self) -> int:
            nonlocal looked_up
            looked_up += 1
            return int(self)

    tree, size = Trees(), 64
    values = [tree(Counted(i)) for i in range(size)]
    readers = [tree(Counted(size), value) for value in values]
    needed = [step(x, y) for x, y in pairwise(values)]
    looked_up = 0
    assert straightened([(readers[0], readers[-1])], needed) == needed
    assert looked_up < 4 * size * log2(size)
