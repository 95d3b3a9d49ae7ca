"""Contenders in turns: their order, their times, and intervals of their ratios."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import pytest

from eqsat.base.turns import CONFIDENCE, LEAST_ROUNDS, LEAST_SECONDS, Times, in_turns, ratio


def working(seconds: float, log: list[str], name: str) -> Callable[[], object]:
    def run() -> None:
        log.append(name)
        ends = time.thread_time() + seconds
        while time.thread_time() < ends:
            pass

    return run


def test_contenders_take_turns_in_alternating_order():
    log: list[str] = []
    runs = [working(LEAST_SECONDS, log, name) for name in "ab"]
    a, b = in_turns(runs, 1, LEAST_ROUNDS, 0.0, lambda: 1e9)
    assert len(a.seconds) == len(b.seconds) == LEAST_ROUNDS
    assert "".join(log[-4 * LEAST_ROUNDS :][: 2 * LEAST_ROUNDS]).count("a") == LEAST_ROUNDS
    assert "".join(log).endswith("ba")
    assert 1 <= a.ms / (LEAST_SECONDS * 1e3) < 10


def test_contenders_that_do_not_fit_into_the_time_are_left_out():
    log: list[str] = []
    runs = [working(seconds, log, "x") for seconds in (0.002, 0.002, 0.2)]
    assert len(in_turns(runs, 1, 10, 0.0, lambda: 1.0)) == 2
    assert in_turns(runs[1:], 1, 10, 0.0, lambda: 1.0) == []


def test_an_interval_needs_eight_rounds():
    few, enough = (Times([1.0 + i / 100 for i in range(n)]) for n in (LEAST_ROUNDS - 1, LEAST_ROUNDS))
    assert ratio(few, few) == (1.0, 0.0, math.inf)
    assert ratio(enough, enough) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("faster", [1.0, 1.1])
def test_intervals_hold_the_ratio_of_machines_whose_load_changes(faster: float) -> None:
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(200):
        load = np.exp(rng.standard_normal(30).cumsum() / 4)  # common to both sides of a round
        before, after = (load * np.exp(rng.standard_normal(30) / 10) for _ in range(2))
        found = ratio(Times(list(before)), Times(list(after / faster)))
        held += found.low <= faster <= found.high
        assert found.low <= found.median <= found.high
    assert held / 200 >= CONFIDENCE - 0.01


def test_times_are_tenth_percentiles_and_their_spread_is_of_quartiles():
    times = Times([0.010, 0.011, 0.012, 0.013, 0.5])
    assert times.ms == 10
    assert times.spread == pytest.approx(2 / 12)
    assert Times([0.010]).spread == 0
