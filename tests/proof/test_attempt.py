"""Proofs of two values over leaves: they rest while small, go on, and are given up before they are far too large."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import reduce

import numpy as np
import pytest

import eqsat
from eqsat.egraph.saturate import Growing
from eqsat.egraph.snapshot import SOURCE, ENode
from eqsat.program.node import Node, make
from eqsat.proof import derived
from eqsat.proof import sweep as sweeping
from eqsat.proof.attempt import Attempt, Effort, Facts
from eqsat.proof.values.ahead import Ahead
from eqsat.rules import PROVING

LEAVES = {leaf: leaf for leaf in (make("In", (f"#{i}", 4, "float32")) for i in range(8))}


def product(order: list[int]) -> Node:
    leaves = list(LEAVES)
    return reduce(lambda a, b: make("Bin", ("mul",), (a, b)), [leaves[i] for i in order])


def attempt(one: list[int], other: list[int], effort: Effort) -> Attempt:
    facts = Facts(Ahead({}, []), 1e-6, PROVING, time.monotonic() + 60)
    return Attempt(facts, (product(one), product(other)), LEAVES, effort)


def test_an_attempt_rests_and_goes_on() -> None:
    tried = attempt([0, 1, 2, 3, 4, 5], [5, 2, 0, 4, 1, 3], Effort(400, 60, 24, 1))
    with Growing(PROVING) as live:
        tried.go_on(live, most=20)
        assert not tried.ended
        tried.go_on(live, most=20)  # it is no smaller
        assert tried.proof is None
        tried.go_on(live)
    assert tried.ended
    assert tried.proof is not None
    assert tried.stop == "goal"


def test_what_would_become_far_too_large_is_given_up() -> None:
    effort = Effort(600, 60, 24, 1)
    tried = attempt([0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3, 4, 5, 6, 6], effort)
    with Growing(PROVING) as live:
        tried.go_on(live)
    assert tried.ended
    assert tried.proof is None
    assert tried.stop == "nodes"
    assert tried.size <= 2 * effort.nodes


def test_each_cut_gets_a_small_e_graph_first(monkeypatch: pytest.MonkeyPatch) -> None:
    gone: list[tuple[int, int | None]] = []

    class Idle(Attempt):
        """Never finds anything, and never ends."""

        def __init__(self, facts: Facts, sides: tuple[Node, Node], leaves: Mapping[Node, Node], effort: Effort) -> None:
            super().__init__(facts, sides, leaves, effort)
            self.number = len({number for number, _ in gone})

        def go_on(self, live: Growing, most: int | None = None) -> None:
            gone.append((self.number, most))

    effort = Effort(400, 30, 24, 1)
    monkeypatch.setattr(sweeping, "_EFFORTS", (effort,))
    monkeypatch.setattr(sweeping, "Attempt", Idle)
    pair = [
        eqsat.trace(side, eqsat.spec((4, 4)))
        for side in (lambda x: eqsat.tanh(x) * 2 + eqsat.tanh(x), lambda x: eqsat.tanh(x) * 3)
    ]
    eqsat.prove(*pair, time_limit=20, certify=True)
    assert gone[:4] == [(0, effort.small), (1, effort.small), (1, None), (0, None)]


def test_a_further_cut_is_tried_where_rules_say_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """That both halves of the cosines are equal is seen below what they are made of."""
    monkeypatch.setattr(sweeping, "_EFFORTS", (Effort(1_200, 30, 24, 1),))

    def cosines(x):
        return np.cos(np.concatenate([x, x]))

    def whole(x, y):
        return y + np.broadcast_to(cosines(x) * np.ones(64, np.float32), (4, 64))

    def half(x, y):
        return y + np.broadcast_to(cosines(x)[:32], (8, 32)).reshape(4, 64)

    pair = [eqsat.trace(side, eqsat.spec((32,)), eqsat.spec((4, 64))) for side in (whole, half)]
    proof = eqsat.prove(*pair, time_limit=20, certify=True)
    assert (proof.verdict, proof.method, proof.uncertified) == ("proved", "sweep", "")


def test_what_the_same_operator_computes_is_tried_first(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[tuple[str, ...]] = []

    class Noted(Attempt):
        def __init__(self, facts: Facts, sides: tuple[Node, Node], leaves: Mapping[Node, Node], effort: Effort) -> None:
            super().__init__(facts, sides, leaves, effort)
            tried.append(tuple(side.op for side in sides))

    monkeypatch.setattr(sweeping, "Attempt", Noted)
    sides = (lambda x, y: (abs(x * y), abs(x) * abs(y)), lambda x, y: (abs(x * y), (abs(x) * 2) * (abs(y) * 0.5)))
    pair = [eqsat.trace(side, *[eqsat.spec((4, 4))] * 2) for side in sides]
    assert eqsat.prove(*pair, time_limit=20, certify=True).verdict == "proved"
    assert set(tried) == {("Bin", "Bin")}


def test_e_nodes_are_matched_in_the_order_in_which_rules_reach_them() -> None:
    nodes = [ENode("Full", (1.0, 4, "float32"), (), 0, rule) for rule in ("a", SOURCE, "b", "c", SOURCE)]
    order, found = derived._Order(nodes, 0), []
    for at in order:
        found.append(at)
        order.reached.extend([3, 1] if at == 1 else ())
    assert found == [1, 4, 3, 0, 2]
    assert list(derived._Order(nodes, 3)) == [4, 3]
