"""The whole pipeline against brute force; time limits, incumbents and determinism."""

from __future__ import annotations

import itertools
import math
import random
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eqsat.errors import CheckFailed, InputError
from eqsat.extract.solver import solve as pipeline
from eqsat.extract.solver.problem import Problem, check
from eqsat.extract.solver.relax import Point, Relaxation
from eqsat.extract.solver.search import Neighbourhoods
from eqsat.extract.solver.solve import Effort, solve
from eqsat.extract.solver.state import Search
from support.egraphs import answers, layered_problem, set_cover_problem, small_problem, valid_rows

NO_LIMIT = 60.0


def weaken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the reductions' and the quick bounds' strength away, so that the later stages have work to do."""
    monkeypatch.setattr(pipeline.Reduction, "run", lambda self, deadline: drop_the_hopeless(self))
    monkeypatch.setattr(pipeline, "longest_path_bound", lambda *args: 0)
    monkeypatch.setattr(pipeline, "ASCENT_STEPS", 0)
    monkeypatch.setattr(pipeline, "FIRST", Effort(3, 100, 1, 3, 3, 10_000))


def drop_the_hopeless(reduction: pipeline.Reduction) -> None:
    reduction.drop_underivable()
    reduction.drop_unreachable()


@pytest.mark.parametrize("weak", [False, True], ids=["whole", "without reductions and ascent"])
@pytest.mark.parametrize("block", range(6))
def test_answers_are_optimal_and_proven(block: int, weak: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if weak:
        weaken(monkeypatch)
    for seed in range(300 * block, 300 * block + 300):
        problem = small_problem(seed)
        problem.at_least_one = valid_rows(problem, seed)
        known = answers(problem)
        if not known:
            with pytest.raises(InputError, match="no acyclic derivation"):
                solve(problem, NO_LIMIT)
            continue
        solution = solve(problem, NO_LIMIT)
        assert (solution.cost, solution.lower_bound, solution.optimal) == (min(known.values()),) * 2 + (True,)
        assert check(problem, solution.choice) == solution.cost


def brute_force_cover(problem: Problem, sets: int) -> int:
    """The cheapest set cover: the nodes from ``sets`` on are (element, set) pairs."""
    masks = [0] * sets
    for i in range(sets, len(problem.node_class)):
        masks[problem.children[i][0]] |= 1 << problem.node_class[i] - sets
    all_elements = (1 << problem.n_classes - sets) - 1
    best = sum(problem.node_cost)
    for chosen in itertools.product((0, 1), repeat=sets):
        covered = 0
        for s in range(sets):
            covered |= masks[s] * chosen[s]
        if covered == all_elements:
            best = min(best, sum(c for c, x in zip(problem.node_cost, chosen, strict=False) if x))
    return best


@pytest.mark.parametrize("seed", range(6))
def test_set_covers_need_branching_and_are_proven(seed: int) -> None:
    problem = set_cover_problem(seed, elements=30, sets=12, covers=3)
    solution = solve(problem, NO_LIMIT)
    assert solution.optimal
    assert solution.cost == brute_force_cover(problem, 12)


@pytest.mark.parametrize("cyclic", [0.0, 0.3], ids=["acyclic", "cyclic"])
@pytest.mark.parametrize("seed", range(4))
def test_all_ways_to_a_proof_agree_on_larger_problems(
    seed: int, cyclic: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = layered_problem(seed, 60, roots=3, cyclic=cyclic, window=25)
    whole = solve(problem, NO_LIMIT)
    weaken(monkeypatch)
    weak = solve(problem, NO_LIMIT)
    assert whole.optimal
    assert weak.optimal
    assert whole.cost == weak.cost


def test_runs_repeat_exactly() -> None:
    problems = [small_problem(s) for s in range(100)]
    problems += [layered_problem(5, 150, roots=5, cyclic=0.2), set_cover_problem(9, 30, 15, 3)]
    for problem in problems:
        if answers_exist(problem):
            first, second = solve(problem, NO_LIMIT), solve(problem, NO_LIMIT)
            assert first.optimal
            assert first.choice == second.choice


def answers_exist(problem: Problem) -> bool:
    try:
        solve(problem, 0.0)
    except InputError:
        return False
    return True


def test_a_known_answer_is_never_made_worse() -> None:
    for seed in range(300):
        problem = small_problem(seed)
        known = answers(problem)
        if not known:
            continue
        nodes = random.Random(seed).choice(sorted(known, key=sorted))
        given = {problem.node_class[i]: i for i in nodes}
        assert solve(problem, 0.0, [given]).cost <= known[nodes]
        assert solve(problem, NO_LIMIT, [given]).cost == min(known.values())


def test_a_known_answer_that_costs_a_known_bound_is_not_searched_for_again() -> None:
    problem = layered_problem(5, 150, roots=5, cyclic=0.2)
    best = solve(problem, NO_LIMIT)
    assert best.optimal
    again = solve(problem, NO_LIMIT, [best.choice], at_least=best.cost)
    assert (again.choice, again.cost, again.lower_bound, again.optimal) == (best.choice, best.cost, best.cost, True)
    assert not again.stats["seconds"]
    assert solve(problem, NO_LIMIT, [best.choice], at_least=best.cost - 1).optimal
    assert solve(problem, NO_LIMIT, at_least=best.cost).cost == best.cost, "a bound alone is no answer"


def test_wrong_incumbents_and_rows_are_refused() -> None:
    problem = Problem([0, 0, 1], [1, 3, 1], [(1,), (), ()], 2, (0,))
    with pytest.raises(CheckFailed, match="class 1 is used but has no choice"):
        solve(problem, NO_LIMIT, [{0: 0}])
    problem.at_least_one = [(1,)]
    with pytest.raises(CheckFailed, match=r"at_least_one\[0\]"):
        solve(problem, NO_LIMIT)


@pytest.mark.parametrize("limit", [0.0, 0.3])
def test_limits_are_kept_and_leave_a_valid_answer_with_a_bound(limit: float) -> None:
    problem = layered_problem(3, 2500, roots=3, cyclic=0.1)
    start = time.monotonic()
    solution = solve(problem, limit)
    assert time.monotonic() - start < limit + 3
    assert check(problem, solution.choice) == solution.cost
    assert 0 < solution.lower_bound <= solution.cost
    assert solution.optimal == (solution.gap == 0)
    assert solution.hurried != solution.optimal


def test_a_run_can_be_stopped() -> None:
    asked = []

    def should_stop() -> bool:
        asked.append(time.monotonic())
        return len(asked) > 3

    solution = solve(layered_problem(4, 1000, roots=3), NO_LIMIT, should_stop=should_stop)
    assert len(asked) < 10
    assert not solution.optimal


def test_neighbourhoods_improve_on_greedy() -> None:
    """Greedy answers of set covers share nothing; neighbourhoods find what to share."""
    problem = set_cover_problem(2, 60, 40, 4)
    solution = solve(problem, NO_LIMIT)
    sources = [source for source, _, _ in solution.stats["answers"]]
    assert "neighbourhood" in sources
    assert solution.optimal


@pytest.mark.parametrize("seed", [2, 4, 11])
def test_dives_improve_on_rounding(seed: int) -> None:
    """Greedy answers by the weights of the relaxation miss what is shared; below it, all is decided together."""
    solution = solve(set_cover_problem(seed, 60, 40, 4), NO_LIMIT, effort=pipeline.SETTLING)
    assert solution.stats["answers"][-1][0] == "dive"


def test_a_dive_leaves_the_relaxation_as_it_was() -> None:
    relaxation = Relaxation(set_cover_problem(2, 60, 40, 4), [], 100.0)
    deadline = time.monotonic() + NO_LIMIT
    point = relaxation.solve(deadline)
    assert point is not None
    assert not point.whole
    whole = relaxation.dive(point, math.inf, deadline, 3000)
    assert whole is not None
    assert whole.whole
    assert whole.bound >= point.bound
    again = relaxation.solve(deadline)
    assert again is not None
    np.testing.assert_allclose(again.x, point.x)
    assert again.pivots == 0


@pytest.mark.parametrize(("cutoff", "pivots"), [(40.0, 3000), (math.inf, 1)], ids=["too dear", "too long"])
def test_a_dive_is_given_up(cutoff: float, pivots: int) -> None:
    relaxation = Relaxation(set_cover_problem(2, 60, 40, 4), [], 100.0)
    deadline = time.monotonic() + NO_LIMIT
    point = relaxation.solve(deadline)
    assert point is not None
    assert relaxation.dive(point, cutoff, deadline, pivots) is None


def test_a_glance_dives_again_where_a_dive_is_lost_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds: list[float] = []

    def lost(self: Relaxation, point: Point, *limits: float) -> None:
        bounds.append(point.bound)

    monkeypatch.setattr(Relaxation, "dive", lost)
    solve(layered_problem(0, 200, cyclic=0.1), NO_LIMIT, effort=pipeline.GLANCE)
    assert len(bounds) == pipeline.DIVES
    assert bounds == sorted(set(bounds))


def test_the_widest_neighbourhood_is_searched_once() -> None:
    problem = Problem([0, 0, 1, 1], [5, 4, 3, 2], [(1,), (1,), (), ()], 2, (0,))
    sizes: list[int] = []

    def solved(small: Problem, known: dict[int, int]) -> tuple[dict[int, int], bool]:
        sizes.append(len(small.node_class))
        return known, True

    around = Neighbourhoods(problem, {0: 1, 1: 3}, solved)
    assert not around.improve(1000, math.inf, lambda: False)
    assert sizes[-1] == 4
    assert sizes.count(4) == 1


def test_a_search_may_settle_for_an_answer_without_a_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "ASCENT_STEPS", 0)
    monkeypatch.setattr(pipeline, "SETTLING", Effort(3, 100, 1, 3, 0, 0))
    problem = set_cover_problem(9, 120, 80, 4)
    first, second = (solve(problem, NO_LIMIT, effort=pipeline.SETTLING) for _ in range(2))
    assert first.seconds < NO_LIMIT / 2
    assert first.lower_bound < first.cost
    assert first.choice == second.choice
    assert not first.hurried, "the search ended by itself"


def test_a_search_that_settles_proves_what_is_tiny_at_a_wide_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "BRIEF", 0)
    monkeypatch.setattr(pipeline, "ASCENT_STEPS", 0)
    for seed in range(6):
        problem = set_cover_problem(seed, elements=30, sets=12, covers=3)
        assert solve(problem, NO_LIMIT, effort=replace(pipeline.SETTLING, gap=0.0)).optimal


def test_nothing_is_fixed_or_reduced_after_a_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    drop = pipeline._Rest._drop
    dropped: list[bool] = []

    def watched(self: pipeline._Rest, *what: Any) -> None:
        dropped.append(self.search.done)
        drop(self, *what)

    monkeypatch.setattr(pipeline._Rest, "_drop", watched)
    for seed in range(5):
        solve(layered_problem(seed, 120, roots=3, cyclic=0.1), NO_LIMIT, effort=pipeline.SETTLING)
    assert dropped
    assert not any(dropped)


@pytest.mark.parametrize("share", ["GREEDY_SHARE", "REDUCE_SHARE", "ASCENT_SHARE"])
def test_a_search_is_hurried_if_a_stage_had_too_small_a_share_of_the_time(
    share: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = set_cover_problem(9, 120, 80, 4)
    monkeypatch.setattr(pipeline, share, -1.0)
    assert solve(problem, NO_LIMIT, effort=Effort(3, 100, 1, 3, 0, 0)).hurried


@pytest.mark.parametrize(
    ("problem", "cost"),
    [
        pytest.param(Problem([], [], [], 0, ()), 0, id="nothing to derive"),
        pytest.param(Problem([0], [0], [()], 1, (0,)), 0, id="a free answer"),
        pytest.param(Problem([0, 0], [5, 5], [(), ()], 1, (0, 0)), 5, id="a root named twice"),
        pytest.param(Problem([0, 1], [10**15, 1], [(1,), ()], 2, (0,)), 10**15 + 1, id="costs beyond float precision"),
        pytest.param(Problem([0, 1], [2**70, 2**70], [(1,), ()], 2, (0,)), 2**71, id="costs beyond 64 bits"),
    ],
)
def test_edges(problem: Problem, cost: int) -> None:
    solution = solve(problem, NO_LIMIT)
    assert (solution.cost, solution.lower_bound, solution.optimal) == (cost, cost, True)


def chain(classes: int) -> Problem:
    """A chain with a detour at each class: its depth is no matter."""
    ends, detours = range(classes), range(2, classes)
    return Problem(
        node_class=[*ends, *detours],
        node_cost=[1] * classes + [3] * len(detours),
        children=[(c - 1,) if c else () for c in ends] + [(c - 1, c - 2) for c in detours],
        n_classes=classes,
        roots=(classes - 1,),
    )


def hub(nodes: int) -> Problem:
    """One class of many nodes over few classes, half of which need it."""
    below = 40
    return Problem(
        node_class=[*range(below), *[below] * nodes],
        node_cost=[5] * below + [(7 * i) % 101 for i in range(nodes)],
        children=[(below,) if c % 2 else () for c in range(below)] + [((7 * i) % below,) for i in range(nodes)],
        n_classes=below + 1,
        roots=(below,),
    )


@pytest.mark.parametrize(
    ("problem", "cost"),
    [
        pytest.param(chain(20_000), 20_000, id="a deep chain"),
        pytest.param(hub(20_000), 5, id="a class of many nodes"),
        pytest.param(
            Problem([*range(5_000)], [1] * 5_000, [(0,)] * 4_999 + [()], 5_000, tuple(range(4_999))), None, id="no way"
        ),
        pytest.param(
            Problem([*range(5_000)], [1] * 5_000, [()] + [(0,)] * 4_999, 5_000, tuple(range(5_000))), 5_000, id="roots"
        ),
    ],
)
def test_large_and_simple_shapes_are_solved_at_once(problem: Problem, cost: int | None) -> None:
    start = time.process_time()
    if cost is None:
        with pytest.raises(InputError, match="no acyclic derivation"):
            solve(problem, NO_LIMIT)
    else:
        solution = solve(problem, NO_LIMIT)
        assert (solution.cost, solution.optimal) == (cost, True)
    assert time.process_time() - start < 5


def test_a_long_comparison_of_nodes_is_cut_short() -> None:
    """Nodes of one class that do not beat each other: comparing all pairs would take minutes."""
    n = 20_000
    pairs = [(i % 150, 150 + i // 150) for i in range(n)]
    problem = Problem(
        node_class=[*range(300), *[300] * n],
        node_cost=[1] * 300 + [0] * n,
        children=[()] * 300 + pairs,
        n_classes=301,
        roots=(300,),
    )
    start = time.process_time()
    assert solve(problem, 1.0).cost == 2
    assert time.process_time() - start < 5


def test_a_solution_says_what_each_stage_took() -> None:
    problem = layered_problem(2, 60, roots=3, cyclic=0.3, window=25)
    stats = solve(problem, NO_LIMIT).stats
    assert {"greedy", "reduction", "ascent", "relaxation"} <= set(stats["seconds"])
    assert all(seconds >= 0 for seconds in stats["seconds"].values())
    assert 0 < stats["left"] <= len(problem.node_class)
    assert stats["rows"] > 0
    assert min(stats["rounds"], stats["cuts"], stats["branched"]) >= 0
    assert [cost for _, cost, _ in stats["answers"]] == sorted((cost for _, cost, _ in stats["answers"]), reverse=True)


def test_a_solver_that_had_no_time_says_nothing_about_the_bound():
    search = Search(small_problem(0), time.monotonic() + 60.0, None)
    search.raise_bound(-math.inf)
    assert search.bound == 0


def test_the_solver_prints_nothing() -> None:
    # HiGHS 1.16 prints a banner when the first solver of a process is made, before any option can say no.
    code = "from eqsat.extract.solver.highs import quiet_solver; quiet_solver()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize("seed", [0, 4, 5, 9])
def test_a_search_that_may_end_close_to_the_best_proves_how_close(seed: int) -> None:
    problem, enough = set_cover_problem(seed, 60, 40, 4), 0.2
    settled = solve(problem, NO_LIMIT, effort=pipeline.SETTLING)
    close = solve(problem, NO_LIMIT, effort=replace(pipeline.SETTLING, enough=enough))
    assert close.lower_bound <= settled.cost < close.cost, "it ends earlier"
    assert close.cost - close.lower_bound <= enough * close.cost
    assert not close.optimal
