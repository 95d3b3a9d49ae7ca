"""Next best answers, covers and plans: in order, truly different, and the same as by brute force."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Hashable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import eqsat
from eqsat.errors import InputError
from eqsat.extract.alternatives import kernel_counts, next_covers
from eqsat.extract.cover import cover
from eqsat.extract.solver.kbest import Marks, next_best
from eqsat.extract.solver.problem import Problem, check
from eqsat.extract.solver.solve import solve
from support.egraphs import answers, layered_problem, small_problem
from support.snapshots import random_snapshot, value_of

NO_LIMIT = 60.0


def marks_of(problem: Problem, seed: int) -> Marks:
    """Every node its own mark, or nodes of one cost alike, all or some; classes apart or at one or two places."""
    rng = random.Random(seed)
    kind = rng.choice(["node", "few", "cost"])
    named: dict[str, list[Hashable]] = {
        "node": list(range(len(problem.node_cost))),
        "few": [(rng.randrange(2), cost) for cost in problem.node_cost],
        "cost": list(problem.node_cost),
    }
    places = rng.choice([list(range(problem.n_classes)), [rng.randrange(2) for _ in range(problem.n_classes)]])
    of_node = [mark if cost else None for mark, cost in zip(named[kind], problem.node_cost, strict=True)]
    return Marks(of_node, places)


def expected(problem: Problem, marks: Marks) -> list[int]:
    """Costs of all answers but those with the same marks as a cheaper one, or with those and more, by brute force."""
    found: list[tuple[int, Counter[Hashable]]] = []
    for cost, nodes in sorted((cost, sorted(nodes)) for nodes, cost in answers(problem).items()):
        marked = Counter(m for i in nodes if (m := marks.of_node[i]) is not None)
        if not any(known <= marked for _, known in found):
            found.append((cost, marked))
    return [cost for cost, _ in found]


@pytest.mark.parametrize("block", range(4))
def test_the_next_best_answers_agree_with_brute_force(block: int) -> None:
    for seed in range(100 * block, 100 * block + 100):
        problem = small_problem(seed)
        if not answers(problem):
            continue
        marks = marks_of(problem, seed)
        best = solve(problem, NO_LIMIT)
        found = next_best(problem, best, marks, 6, time.monotonic() + NO_LIMIT)
        assert [best.cost, *(x.cost for x in found)] == expected(problem, marks)[:7]
        assert all(x.proven and check(problem, x.choice) == x.cost for x in found)


def test_what_no_time_is_left_for_is_not_called_proven() -> None:
    problem = layered_problem(3, 60, roots=3)
    best = solve(problem, NO_LIMIT)
    marks = Marks(list(range(len(problem.node_cost))), list(range(problem.n_classes)))
    assert next_best(problem, best, marks, 3, time.monotonic() - 1) == []
    calls = itertools.count()
    some = next_best(problem, best, marks, 3, time.monotonic() + NO_LIMIT, lambda: next(calls) > 20)
    assert not any(x.proven for x in some)
    whole = next_best(problem, best, marks, 3, time.monotonic() + NO_LIMIT)
    assert all(x.proven for x in whole)
    assert [x.cost for x in whole] <= [x.cost for x in some]
    assert whole == next_best(problem, best, marks, 3, time.monotonic() + NO_LIMIT)


@given(st.integers(0, 2**32 - 1), st.integers(4, 24))
@example(313127446, 23)  # one kernel with two outputs, or two kernels of its family and price
@settings(max_examples=30)
def test_the_next_covers_compute_the_same_with_other_kernels(seed: int, operators: int) -> None:
    snapshot, values = random_snapshot(seed, operators)
    best = cover(snapshot, "mi300x", NO_LIMIT)
    found = next_covers(best, 4, time.monotonic() + NO_LIMIT)
    assert [x.cost for x in found] == sorted(x.cost for x in found)
    sets = [kernel_counts(x) for x in (best, *found)]
    assert not any(first <= second for first, second in itertools.combinations(sets, 2))
    for x in found:
        assert x.optimal
        assert best.cost <= x.cost == sum(kernel.price for kernel in x.kernels)
        state = [np.full_like(v, np.nan) if c in {y.cls for y in x.chosen} else v for c, v in enumerate(values)]
        for y in x.chosen:
            state[y.cls] = value_of(y.cut, snapshot, state)
        for root in snapshot.roots:
            np.testing.assert_allclose(state[root], values[root], atol=1e-7)


def mlp() -> eqsat.Program:
    def two_layers(x: eqsat.Tracer) -> eqsat.Tracer:
        w, b = np.ones((64, 64), np.float32) / 8, np.ones(64, np.float32)
        return eqsat.relu(eqsat.relu(x @ w + b) @ w + x)

    return eqsat.trace(two_layers, eqsat.spec((128, 64)))


def test_the_best_plans_are_listed_checked_and_run() -> None:
    program = mlp()
    only, best = eqsat.optimize(program), eqsat.optimize(program, top=4)
    assert "alternatives" not in only.report
    assert best.report["kernels"] == only.report["kernels"]
    assert best.plans == [best, *best.alternatives]
    assert len(best.alternatives) == 3
    rows = best.report["alternatives"]
    assert [row["rank"] for row in rows] == [2, 3, 4]
    times = [plan.report["result"]["predicted_us"] for plan in best.plans]
    assert times == sorted(times)
    x = np.random.default_rng(0).normal(size=(128, 64)).astype(np.float32)
    expected = program.run({program.input_names[0]: x}, "float64")
    for plan, row in zip(best.alternatives, rows, strict=True):
        report = plan.report
        assert report["check"]["passed"]
        assert report["lower_bound_us"] == best.report["lower_bound_us"]
        assert (row["proven"], row["predicted_us"]) == (True, report["result"]["predicted_us"])
        names = Counter(kernel["name"] for kernel in best.report["kernels"])
        assert names - Counter(row["without"]) + Counter(row["instead"]) == Counter(
            k["name"] for k in report["kernels"]
        )
        np.testing.assert_allclose(plan.compile()(x), next(iter(expected.values())), rtol=1e-4, atol=1e-4)
    again = eqsat.optimize(program, top=4)
    assert again.report["alternatives"] == rows
    assert [p.report["kernels"] for p in again.plans] == [p.report["kernels"] for p in best.plans]


def test_a_program_with_one_way_has_no_alternatives() -> None:
    program = eqsat.trace(lambda x: eqsat.exp(x), eqsat.spec((8, 8)))
    assert eqsat.optimize(program, top=5).alternatives == []


def test_fewer_plans_than_one_are_refused() -> None:
    with pytest.raises(InputError, match="top 0"):
        eqsat.optimize(mlp(), top=0)


def test_equal_parts_get_the_same_alternative() -> None:
    """Four equal layers are one part: the next plan differs in all of them at once."""
    w = np.random.default_rng(1).normal(size=(32, 32)).astype(np.float32)

    def layers(x: eqsat.Tracer) -> eqsat.Tracer:
        for _ in range(4):
            x = eqsat.exp(eqsat.tanh(x @ w) @ w)
        return x

    best = eqsat.optimize(eqsat.trace(layers, eqsat.spec((64, 32))), top=3, time_limit=20.0)
    costs = [plan.report["result"]["predicted_us"] for plan in best.plans]
    assert costs == sorted(costs)
    assert len(costs) == 3


def test_ctrl_c_among_the_plans_leaves_those_that_are_done() -> None:
    checks = itertools.count(1)

    def press(stage: str, fraction: float) -> None:
        if stage == "checking" and next(checks) == 3:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1.0)  # the main thread, which answers, is not this one

    best = eqsat.optimize(mlp(), top=4, progress=press)
    assert best.report["check"]["passed"]
    assert len(best.report["alternatives"]) == len(best.alternatives) == 1


def test_plans_that_differ_only_in_parts_that_stay_as_written_are_one() -> None:
    weights = np.random.default_rng(0).standard_normal((3, 32, 32)).astype(np.float32)

    def attention(x: Any) -> Any:
        q, k, v = (x @ w for w in weights)
        return x + eqsat.softmax(q @ eqsat.transpose(k, (0, 2, 1)), -1) @ v

    program = eqsat.trace(attention, eqsat.spec((2, 48, 32)))
    best = eqsat.optimize(program, top=3, memory_limit=1 << 20, time_limit=20)
    assert best.report["memory"]["parts"] == 1
    assert best.alternatives == []
