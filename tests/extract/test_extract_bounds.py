"""Bounds and cuts hold for every answer: dual ascent, blocking sets, the relaxation, branch and bound."""

from __future__ import annotations

import math

import numpy as np
import pytest

from eqsat.extract.solver.ascent import ascend
from eqsat.extract.solver.blocking import BlockingSets, Cut
from eqsat.extract.solver.greedy import NO_NODE, forced_bound, greedy_dag, greedy_tree, longest_path_bound
from eqsat.extract.solver.problem import Problem, check
from eqsat.extract.solver.reduce import Reduction
from eqsat.extract.solver.relax import Relaxation
from eqsat.extract.solver.search import branch
from support.egraphs import answers, layered_problem, set_cover_problem, small_problem


def remainders(seeds: range) -> list[Problem]:
    """What is left of small problems once nodes without a derivation are gone."""
    out = []
    for seed in seeds:
        problem = small_problem(seed)
        if answers(problem):
            reduction = Reduction(problem)
            reduction.drop_underivable()
            reduction.drop_unreachable()
            out.append(reduction.remainder()[0])
    return out


def assert_cuts_hold(problem: Problem, cuts: list[Cut]) -> None:
    for nodes in answers(problem):
        used = {problem.node_class[i] for i in nodes}
        for cut in cuts:
            assert cut.target not in used or not nodes.isdisjoint(cut.nodes)


@pytest.mark.parametrize("block", range(4))
def test_dual_ascent_never_exceeds_an_answer(block: int) -> None:
    for problem in remainders(range(300 * block, 300 * block + 300)):
        known = answers(problem)
        for steps in (0, 5, 10**6):
            ascent = ascend(problem, steps, math.inf)
            assert longest_path_bound(problem) <= max(ascent.bound, 0)
            assert forced_bound(problem) <= min(known.values())
            for nodes, cost in known.items():
                assert ascent.bound <= cost
                assert all(ascent.paid + ascent.reduced[i] <= cost for i in nodes)
            assert min(ascent.reduced, default=0) >= 0
            assert_cuts_hold(problem, ascent.cuts)


@pytest.mark.parametrize("block", range(4))
def test_the_relaxation_with_cuts_bounds_every_answer(block: int) -> None:
    """Rounds of cuts until none is violated; the bound, the reduced costs and the cuts hold after each."""
    for problem in remainders(range(100 * block, 100 * block + 100)):
        known = answers(problem)
        best = min(known.values())
        relaxation = Relaxation(problem, [], best)
        sets = BlockingSets(problem)
        bound = 0.0
        for _ in range(30):
            point = relaxation.solve(math.inf)
            assert point is not None
            assert point.solved
            assert bound - 1e-6 * (1 + best) <= point.bound <= best + 1e-6 * (1 + best)
            bound = point.bound
            for nodes, cost in known.items():
                assert all(bound + point.reduced[i] <= cost + 1e-6 * (1 + cost) for i in nodes)
            args = point.x, point.y, point.reduced, 1e-3 * (1 + best), 20
            cuts = sets.find(*args, math.inf) + sets.find_exactly(*args, math.inf) + sets.unfounded(point.x, point.y)
            assert_cuts_hold(problem, cuts)
            for cut in cuts:
                assert point.x[list(cut.nodes)].sum() < point.y[cut.target]
            if not cuts:
                break
            relaxation.purge(point)
            relaxation.add(cuts)


def test_chosen_nodes_that_are_no_answer_give_no_cut_that_holds_already() -> None:
    """Where some nodes are chosen in parts, a class whose node is chosen may have no derivation by chosen nodes."""
    rng = np.random.default_rng(0)
    found = 0
    for problem in remainders(range(200)):
        x = rng.choice([0.0, 0.5, 1.0], len(problem.node_class))
        y = np.minimum(1.0, np.bincount(problem.node_class, x, problem.n_classes))
        for cut in BlockingSets(problem).unfounded(x, y):
            found += 1
            assert x[list(cut.nodes)].sum() < y[cut.target]
    assert found


def test_a_bound_from_any_duals_is_sound() -> None:
    """The bound is computed from the duals alone, so that even senseless ones cannot overstate it."""
    rng = np.random.default_rng(0)
    for problem in remainders(range(60)):
        best = min(answers(problem).values())
        relaxation = Relaxation(problem, [], best)
        for _ in range(5):
            bound, _ = relaxation.safe_bound(rng.normal(0, 100, relaxation.n_rows))
            assert bound * relaxation.scale <= best + 1e-6


@pytest.mark.parametrize("block", range(2))
def test_branch_and_bound_finds_the_optimum_and_nothing_above_the_cutoff(block: int) -> None:
    for problem in remainders(range(150 * block, 150 * block + 150)):
        best = min(answers(problem).values())
        relaxation = Relaxation(problem, [], best)
        found = branch(relaxation, best + 0.5, 1000, math.inf)
        assert found.finished
        assert found.nodes is not None
        assert check(problem, {problem.node_class[i]: i for i in found.nodes}) == best
        assert found.bound <= best + 1e-6 * (1 + best)
        if best:
            beaten = branch(relaxation, best - 0.5, 1000, math.inf)
            assert beaten.finished
            assert beaten.nodes is None


@pytest.mark.parametrize("greedy", ["dag", "tree", "late"])
def test_greedy_answers_are_valid(greedy: str) -> None:
    problems = [small_problem(s) for s in range(400)] + [
        layered_problem(1, 300, 5, 0.3),
        set_cover_problem(1, 30, 20, 3),
    ]
    for problem in problems:
        late = math.inf if greedy == "dag" else -math.inf
        picks = greedy_tree(problem) if greedy == "tree" else greedy_dag(problem, late)
        derivable = all(picks[r] != NO_NODE for r in problem.roots)
        if problem.n_classes < 10:
            assert derivable == bool(answers(problem))
        if derivable:
            check(problem, {c: i for c, i in enumerate(picks) if i != NO_NODE})


def test_greedy_leaves_nodes_of_infinite_cost_out() -> None:
    inf = math.inf
    problem = Problem([0, 0, 1], [1, 1, 1], [(), (1,), ()], 2, (0,))
    assert greedy_dag(problem, inf, [inf, 1, inf]) == [NO_NODE, NO_NODE]
    assert greedy_dag(problem, inf, [inf, 1, 1]) == [1, 2]


def test_dual_ascent_proves_a_shared_chain() -> None:
    """Both alternatives of the root need class 3, one by way of 1, one of 2: 1 + 2 + 5 is paid in any case."""
    problem = Problem([0, 0, 1, 2, 3], [1, 1, 2, 2, 5], [(1,), (2,), (3,), (3,), ()], 4, (0,))
    assert ascend(problem, 10**6, math.inf).bound == 8


def test_cuts_close_a_cycle_that_the_rows_leave_open() -> None:
    """Classes 1 and 2 can need each other, half each; the blocking set {1, 2} says that one of them needs a leaf."""
    problem = Problem([0, 1, 1, 2, 2], [0, 0, 8, 0, 8], [(1, 2), (2,), (), (1,), ()], 3, (0,))
    relaxation = Relaxation(problem, [], 8)
    point = relaxation.solve(math.inf)
    assert point is not None
    assert point.bound == pytest.approx(0)
    cuts = BlockingSets(problem).find(point.x, point.y, point.reduced, 1.0, 10, math.inf)
    assert {cut.nodes for cut in cuts} == {(2, 4)}
    relaxation.add(cuts)
    closed = relaxation.solve(math.inf)
    assert closed is not None
    assert closed.bound == pytest.approx(8)
