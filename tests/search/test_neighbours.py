"""Kernels across cuts: neighbouring parts are joined where that gains, and compute what they computed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat import spec
from eqsat.base.time_budget import TimeBudget
from eqsat.program.core import evaluate, topological
from eqsat.search import best, limits
from eqsat.search.asked import judged
from eqsat.search.form import Found
from eqsat.search.neighbours import _most_gaining, across_cuts
from eqsat.search.runner import Runner
from eqsat.search.search import Form, Problem, partition, search

Array = np.ndarray[Any, Any]
ROWS, WIDTH = 64, 48
RNG = np.random.default_rng(5)


def weights(*shape: int) -> Array:
    return (RNG.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32)


def embedded(x: Any) -> Any:
    """Patches with a row before them and positions."""
    return eqsat.concatenate([weights(1, WIDTH), x @ weights(96, WIDTH)], axis=0) + weights(ROWS, WIDTH)


def dense(x: Any) -> Any:
    return x + eqsat.gelu(eqsat.layernorm(x) @ weights(WIDTH, 4 * WIDTH)) @ weights(4 * WIDTH, WIDTH)


def patches(layers: int = 2) -> eqsat.Program:
    def model(x: Any) -> Any:
        h = embedded(x)
        for _ in range(layers):
            h = dense(h)
        return h

    return eqsat.trace(model, spec((ROWS - 1, 96)))


def searched(program: eqsat.Program, seconds: float = 60.0) -> tuple[Problem, dict[Form, Found], Runner]:
    run = Runner(TimeBudget(seconds))
    asked = judged(program, "mi300x", "reassociate", None, None, 1.0, 1, "latency", None, None, False, 1)
    problem = partition(program, asked, run)
    return problem, search(problem, run), run


def price(problem: Problem, found: dict[Form, Found], which: str = "cheapest") -> int:
    return sum(getattr(found[part.form], which).cover.cost for part in problem.parts)


def test_a_norm_is_made_across_a_cut() -> None:
    problem, found, run = searched(patches())
    joined, better = across_cuts(problem, dict(found), run)
    assert [len(problem.parts), len(joined.parts)] == [3, 2]
    assert joined.parts[1] is problem.parts[2]
    assert price(joined, better) < 0.95 * price(problem, found)
    assert price(joined, better, "written") <= price(problem, found, "written")
    both = better[joined.parts[0].form]
    assert both.cheapest.cover.lower_bound <= both.cheapest.cover.cost <= both.written.cover.cost


def test_parts_stay_apart_without_time() -> None:
    problem, found, run = searched(patches())
    run.budget.finish()
    assert {x.figures["stop"] for x in found.values()} == {"saturated"}
    joined, same = across_cuts(problem, found, run)
    assert joined.parts == problem.parts
    assert [x.cheapest for x in same.values()] == [x.cheapest for x in found.values()]
    assert "time" in {x.figures["stop"] for x in same.values()}, "with more of it they would be joined"


@pytest.mark.parametrize(("late", "stops"), [(False, {"saturated"}), (True, {"time"})])
def test_parts_say_so_where_there_was_no_time_to_search_the_whole(
    late: bool, stops: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, found, run = searched(patches())
    assert problem.uncut() is not None

    def known(of: Problem, *rest: Any) -> dict[Form, Found]:
        """What was found for the parts, and then for the whole, which gains nothing."""
        if late:
            run.budget.finish()
        return found if of is problem else search(of, run)

    monkeypatch.setattr(best, "search", known)
    monkeypatch.setattr(best, "across_cuts", lambda problem, found, run: (problem, found))
    monkeypatch.setattr(limits, "SEARCH", replace(limits.SEARCH, gain=1.0))
    _, after = best.best_search(problem, run)
    assert {x.figures["stop"] for x in after.values()} == stops
    assert [x.cheapest for x in after.values()] == [x.cheapest for x in found.values()]


def test_a_joined_part_computes_what_both_do() -> None:
    problem, found, run = searched(patches())
    whole = across_cuts(problem, found, run)[0].parts[0]
    nodes = whole.nodes()
    assert all(nodes[root] is made for root, made in zip(whole.roots, whole.form, strict=True))
    inputs = [n for n in topological(whole.form) if n.op == "In"]
    env = {n.attrs[0]: RNG.standard_normal(n.size).astype(n.dtype) for n in inputs}
    constants = {
        made.attrs[0]: problem.core.constants[node.attrs[0]]
        for made, node in whole.leaves.items()
        if made.op == "Const"
    }
    own = {node.attrs[0]: env[made.attrs[0]] for made, node in whole.leaves.items() if made.op == "In"}
    for got, expected in zip(
        evaluate(whole.form, env, constants), evaluate(whole.roots, own, problem.core.constants), strict=True
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


LAYERS: dict[str, Callable[[Any], Any]] = {
    "dense": dense,
    "turned": lambda x: x + eqsat.concatenate([x[5:], x[:5]], axis=0),
    "norm": eqsat.layernorm,
    "products": lambda x: eqsat.relu(x @ weights(WIDTH, WIDTH)),
    "gate": lambda x: x * eqsat.sigmoid(eqsat.mean(x, axis=0) @ weights(WIDTH, WIDTH)),
    "columns": lambda x: x + weights(ROWS, ROWS) @ x,
}


@pytest.mark.parametrize("seed", range(8))
def test_random_layers_are_right_and_no_dearer(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results and their steps are checked in `optimize`."""
    rng = random.Random(seed)
    names = [rng.choice(sorted(LAYERS)) for _ in range(rng.randint(2, 3))]

    def model(x: Any) -> Any:
        h, kept = embedded(x), []
        for name in names * 2:
            h = LAYERS[name](h)
            kept.append(h)
        return h, kept[rng.randrange(len(kept))]

    program = eqsat.trace(model, spec((ROWS - 1, 96)))
    problem, found, run = searched(program)
    joined, better = across_cuts(problem, dict(found), run)
    assert price(joined, better) <= price(problem, found)
    monkeypatch.setattr(Problem, "uncut", lambda self: None)
    result = eqsat.optimize(program, time_limit=60)
    assert result.report["check"]["passed"]
    assert not result.report.get("fallback")


def test_of_pairs_that_overlap_those_that_gain_most_are_joined() -> None:
    rng = random.Random(3)
    for _ in range(200):
        gains = [rng.choice([0, 0, 1, 2, 5]) for _ in range(rng.randint(0, 9))]
        chosen = _most_gaining(gains)
        assert all(gains[at] > 0 and at + 1 not in chosen for at in chosen)
        assert sum(gains[at] for at in chosen) == most_by_hand(gains)


def most_by_hand(gains: list[int]) -> int:
    if not gains:
        return 0
    return max(most_by_hand(gains[1:]), gains[0] + most_by_hand(gains[2:]))
