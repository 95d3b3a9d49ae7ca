"""Peak memory, launch orders that keep it low, and plans that trade time for memory."""

from __future__ import annotations

import itertools
import pickle
import random
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eqsat
from eqsat.errors import InputError
from eqsat.extract.cover import cover
from eqsat.extract.plan.memory import Buffer, Launches, Step, first_fit, launches, lean_order, peak_bytes
from eqsat.extract.plan.tradeoffs import cover_launches, least_peak, trade_offs
from eqsat.gpu.launch.lower import lower
from eqsat.search.objective import Objective
from support.egraphs import answers
from support.snapshots import random_snapshot

NO_LIMIT = 60.0


def random_launches(seed: int) -> Launches:
    """Up to seven launches, each of which reads some of what was written before and writes one array."""
    rng = random.Random(seed)
    n = rng.randint(1, 7)
    steps = []
    for i in range(n):
        reads = rng.sample(range(i), min(i, rng.randint(0, 2)))
        steps.append(Step((*reads, "input"), (i,)))
    sizes: dict[Buffer, int] = {i: 256 * rng.randint(1, 9) for i in range(n) if rng.random() < 0.8}
    return Launches(steps, sizes, frozenset(b for b in sizes if rng.random() < 0.1))


def alive(program: Launches, order: tuple[int, ...]) -> int:
    """The most bytes alive in any step, by definition."""
    worst = 0
    for at in range(len(order)):
        there = {b for i in order[: at + 1] for b in program.steps[i].writes}
        later = {b for i in order[at:] for b in program.steps[i].reads}
        now = set(program.steps[order[at]].writes)
        worst = max(worst, sum(program.sizes.get(b, 0) for b in there if b in later | now | program.kept))
    return worst


def allowed(program: Launches, order: tuple[int, ...]) -> bool:
    written: set[object] = {"input"}
    for i in order:
        if not written.issuperset(program.steps[i].reads):
            return False
        written.update(program.steps[i].writes)
    return True


@pytest.mark.parametrize("block", range(3))
def test_lean_orders_agree_with_brute_force(block: int) -> None:
    for seed in range(40 * block, 40 * block + 40):
        program = random_launches(seed)
        orders = [o for o in itertools.permutations(range(len(program.steps))) if allowed(program, o)]
        found = tuple(lean_order(program))
        assert found in orders
        assert program.peak(found) <= program.peak()
        assert program.peak(found) >= alive(program, found) >= min(alive(program, o) for o in orders)
        if program.peak(found) < program.peak():
            assert alive(program, found) == min(alive(program, o) for o in orders)


def test_temporaries_that_live_at_once_do_not_overlap() -> None:
    rng = random.Random(0)
    for _ in range(200):
        life = {b: tuple(sorted((rng.randint(0, 9), rng.randint(0, 9)))) for b in range(rng.randint(1, 12))}
        lives = {b: (first, last) for b, (first, last) in life.items()}
        sizes = {b: rng.randint(1, 2000) for b in life}
        offsets, total = first_fit(sizes, lives)
        assert total == max(offsets[b] + sizes[b] for b in life)
        for a, b in itertools.combinations(life, 2):
            if lives[a][0] <= lives[b][1] and lives[b][0] <= lives[a][1]:
                assert offsets[a] + sizes[a] <= offsets[b] or offsets[b] + sizes[b] <= offsets[a]


def heads() -> eqsat.Program:
    """Three projections of one input, merged for time; one after another they need less memory."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(256, 256)).astype(np.float32) for _ in range(3))

    def block(x: eqsat.Tracer) -> eqsat.Tracer:
        return eqsat.softmax((x @ q) @ (x @ k).T, axis=-1) @ (x @ v)

    return eqsat.trace(block, eqsat.spec((64, 256)))


GOALS: list[str] = ["latency", "mix:0.2", "mix:0.5", "mix:0.8", "memory"]


def test_more_weight_on_memory_never_takes_more_of_it() -> None:
    results = [eqsat.optimize(heads(), objective=goal, time_limit=20.0) for goal in GOALS]
    times = [r.report["result"]["predicted_us"] for r in results]
    peaks = [r.report["result"]["peak_bytes"] for r in results]
    assert times == sorted(times)
    assert peaks == sorted(peaks, reverse=True)
    assert (times[0], peaks[0]) != (times[-1], peaks[-1]), "the best for time is not the best for memory"
    assert "objective" not in results[0].report
    for result in results:
        assert result.report["check"]["passed"]
        assert result.report["result"]["peak_bytes"] == peak_bytes(result.plan)
    for result in results[1:]:
        goal = result.report["objective"]
        assert goal["lower_bound"] <= goal["value"] <= goal["latency"] + goal["memory"] + 1e-6, "no worse than written"
        assert goal["least_peak_bytes"] <= result.report["result"]["peak_bytes"]
        assert goal["optimal"] == (goal["gap"] == 0)


def test_trade_offs_come_as_alternatives_and_repeat() -> None:
    first, again = (eqsat.optimize(heads(), objective="memory", top=9, time_limit=20.0) for _ in range(2))
    assert [p.report["kernels"] for p in first.plans] == [p.report["kernels"] for p in again.plans]
    points = sorted((p.report["result"]["predicted_us"], p.report["result"]["peak_bytes"]) for p in first.plans)
    assert len(points) > 1
    assert all(fast[0] < slow[0] and fast[1] > slow[1] for fast, slow in itertools.pairwise(points))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=25)
def test_no_cover_peaks_below_the_least(seed: int) -> None:
    snapshot, _ = random_snapshot(seed, 8)
    best = cover(snapshot, "mi300x", NO_LIMIT)
    covers = best.problem
    assert covers is not None
    found = trade_offs(best, NO_LIMIT, time.monotonic() + NO_LIMIT)
    assert found[0] is best
    sent = pickle.loads(pickle.dumps(best))
    again = trade_offs(sent, NO_LIMIT, time.monotonic() + NO_LIMIT)
    assert [x.cost for x in again] == [x.cost for x in found], "none is there twice"
    least = least_peak(covers)
    for x in found:
        program = cover_launches(snapshot, x)
        assert program.peak(lean_order(program)) >= least
    if len(covers.problem.node_class) <= 24:
        for nodes in answers(covers.problem):
            choice = {covers.problem.node_class[i]: i for i in nodes}
            best.chosen = covers.launch_order(choice)
            program = cover_launches(snapshot, best)
            assert alive(program, tuple(range(len(program.steps)))) >= least


@pytest.mark.parametrize("objective", ["latency", "memory"])
def test_the_peak_is_the_arena_of_the_device(objective: str) -> None:
    plan = eqsat.optimize(heads(), objective=objective).plan
    assert lower(plan, "mi300x").arena_bytes >= peak_bytes(plan) > 0
    chain = eqsat.optimize(eqsat.trace(lambda x: eqsat.softmax(x @ x @ x, axis=-1) @ x, eqsat.spec((512, 512))))
    assert lower(chain.plan, "mi300x").arena_bytes == launches(chain.plan).peak() > 0


@pytest.mark.parametrize(
    ("given", "weights"),
    [
        ("latency", (1, 0)),
        ("memory", (0, 1)),
        ("mix:0.25", (0.75, 0.25)),
        ("mix:1", (0, 1)),
        ({"latency": 2, "memory": 3}, (2, 3)),
        ({"memory": 1}, (0, 1)),
    ],
)
def test_objectives_are_read(given: str | dict[str, float], weights: tuple[float, float]) -> None:
    assert Objective.of(given) == Objective(*weights)


@pytest.mark.parametrize(
    "given",
    ["speed", "mix", "mix:", "mix:2", "mix:-1", "mix:nan", "mix:x", "memory:1", {}, {"time": 1}, {"memory": -1}],
)
def test_other_objectives_are_refused(given: str | dict[str, float]) -> None:
    with pytest.raises(InputError, match="mix:W"):
        Objective.of(given)
