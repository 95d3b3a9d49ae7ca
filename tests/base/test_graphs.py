"""Walks over graphs, and sets that merge."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.base.graphs import Merged, components, last_reads, operands_first, to_make


@dataclass(frozen=True)
class Node:
    name: str
    args: tuple[Node, ...] = ()


X = Node("x")
Y = Node("y", (X,))
Z = Node("z", (X, Y, X))
W = Node("w", (Z, Y))


def test_operands_come_first_and_leaves_not_at_all() -> None:
    assert operands_first([W]) == [X, Y, Z, W]
    assert operands_first([W, X], [Y]) == [X, Z, W]


def test_a_value_is_let_go_after_its_last_reader_unless_it_is_kept() -> None:
    assert list(last_reads([X, Y, Z, W], [W])) == [(X, []), (Y, []), (Z, [X]), (W, [Z, Y])]
    assert list(last_reads([X, Y, Z, W], [W, Y])) == [(X, []), (Y, []), (Z, [X]), (W, [Z])]


def test_what_is_missing_is_made_once_operands_first() -> None:
    below = {"root": ["a", "b"], "a": ["c"], "b": ["c", "known"], "c": [], "known": ["unasked"]}
    made = {"known"}
    order = []
    for name in to_make("root", made, below.__getitem__):
        order.append(name)
        made.add(name)
    assert sorted(order) == ["a", "b", "c", "root"]
    assert all(order.index(arg) < order.index(name) for name in order for arg in below[name] if arg in order)
    assert list(to_make("root", made, below.__getitem__)) == []


def test_sets_that_merge_have_one_name() -> None:
    sets = Merged[int]()
    for a, b in ((1, 2), (3, 4), (2, 4)):
        sets.merge(b, into=a)
    assert [sets.find(i) for i in range(6)] == [0, 1, 1, 1, 1, 5]


def test_components_come_children_first() -> None:
    graph = {0: [1], 1: [2, 3], 2: [1], 3: [4, 4], 4: []}
    assert [sorted(g) for g in components(graph)] == [[4], [3], [1, 2], [0]]
