"""Reductions keep an optimal answer, and every answer of the reduced problem expands to one that costs no more."""

from __future__ import annotations

import math

import pytest

from eqsat.extract.solver import reduce
from eqsat.extract.solver.blocking import Cut
from eqsat.extract.solver.problem import Problem, check
from eqsat.extract.solver.reduce import Reduction, forced_classes
from support.egraphs import answers, small_problem, valid_rows


def reduced(problem: Problem) -> Reduction:
    reduction = Reduction(problem)
    reduction.run(math.inf)
    return reduction


def assert_optimum_is_kept(problem: Problem, reduction: Reduction, best: int) -> None:
    assert not reduction.infeasible
    small, nodes, cuts = reduction.remainder()
    left = answers(small)
    for chosen, cost in left.items():
        expanded = reduction.expand(nodes[k] for k in chosen)
        assert check(problem, expanded) <= cost + reduction.constant
        for cut in cuts:
            used = {small.node_class[k] for k in chosen}
            assert cut.target not in used or not chosen.isdisjoint(cut.nodes)
    assert min(left.values()) + reduction.constant == best


@pytest.mark.parametrize("steps", [reduce.REQ_STEPS, 0], ids=["exact Req", "Req from below"])
@pytest.mark.parametrize("block", range(8))
def test_reductions_keep_an_optimal_answer(block: int, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduce, "REQ_STEPS", steps)
    for seed in range(250 * block, 250 * block + 250):
        problem = small_problem(seed)
        problem.at_least_one = valid_rows(problem, seed)
        known = answers(problem)
        if known:
            assert_optimum_is_kept(problem, reduced(problem), min(known.values()))
        else:
            assert reduced(problem).infeasible


@pytest.mark.parametrize("block", range(4))
def test_forbidding_nodes_keeps_the_answers_without_them(block: int) -> None:
    """Nodes that no optimal answer uses may go, and cuts given at that time stay valid through later reductions."""
    for seed in range(5000 + 150 * block, 5150 + 150 * block):
        problem = small_problem(seed)
        known = answers(problem)
        if not known:
            continue
        best = min(known.values())
        needed = {i for nodes, cost in known.items() if cost == best for i in nodes}
        reduction = Reduction(problem)
        reduction.drop_underivable()
        reduction.drop_unreachable()
        small, nodes, _ = reduction.remainder()
        ways = answers(small)
        cuts = [
            Cut(tuple(sorted(set().union(*(w for w in ways if any(small.node_class[k] == c for k in w))))), c)
            for c in range(small.n_classes)
        ]
        gone = [k for k, i in enumerate(nodes) if i not in needed]
        reduction.forbid(gone, cuts, nodes)
        reduction.run(math.inf)
        assert_optimum_is_kept(problem, reduction, best)


def test_forced_classes_are_in_every_answer() -> None:
    for seed in range(600):
        problem = small_problem(seed)
        known = answers(problem)
        if known:
            used = [{problem.node_class[i] for i in nodes} for nodes in known]
            assert forced_classes(problem, math.inf) == set.intersection(*used)


@pytest.mark.parametrize(
    ("problem", "constant", "left", "why"),
    [
        pytest.param(Problem([0, 1], [2, 3], [(1,), ()], 2, (0,)), 5, 0, "contracted", id="a chain is decided"),
        pytest.param(Problem([0, 0, 1], [1, 9, 1], [(1,), (1,), ()], 2, (0,)), 2, 0, "dominated", id="dominance"),
        pytest.param(Problem([0, 1, 1], [1, 0, 5], [(1,), (0,), ()], 2, (0,)), 6, 0, "own class", id="a cycle"),
        pytest.param(
            Problem([0, 0, 1, 2, 3, 3], [1, 3, 0, 0, 1, 4], [(1,), (2, 1), (3,), (3,), (), ()], 4, (0,)),
            2,
            0,
            "dominated",
            id="strong dominance: node 1 needs class 3, all that node 0 needs",
        ),
        pytest.param(
            Problem([0, 0, 1, 1, 2, 3], [1, 20, 1, 2, 5, 5], [(1,), (), (2,), (3,), (), ()], 4, (0,)),
            7,
            0,
            "inlined",
            id="inlining",
        ),
        pytest.param(Problem([0, 1], [1, 1], [(), ()], 2, (0,)), 1, 0, "unreachable", id="what no root reaches"),
        pytest.param(Problem([0, 0, 1], [1, 1, 1], [(), (1,), (1,)], 2, (0,)), 1, 0, "underivable", id="no derivation"),
    ],
)
def test_each_reduction_does_what_it_says(problem: Problem, constant: int, left: int, why: str) -> None:
    reduction = reduced(problem)
    assert (reduction.constant, len(reduction.members)) == (constant, left)
    assert reduction.removed[why] > 0


def test_what_offers_a_real_choice_is_left_alone() -> None:
    """Two roots share class 2; alternatives avoid it. Nothing is forced, nothing dominated."""
    problem = Problem(
        [0, 0, 1, 1, 2, 3, 4],
        [1, 1, 1, 1, 10, 6, 6],
        [(2,), (3,), (2,), (4,), (), (), ()],
        5,
        (0, 1),
    )
    small, _, _ = reduced(problem).remainder()
    assert min(answers(small).values()) + reduced(problem).constant == 12
