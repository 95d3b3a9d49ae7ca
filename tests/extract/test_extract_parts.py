"""Independent parts: splitting keeps the optimum, and linked classes stay together."""

from __future__ import annotations

import random

import pytest

from eqsat.extract.solver.parts import split
from eqsat.extract.solver.problem import Problem, check
from eqsat.extract.solver.solve import solve
from support.egraphs import answers, layered_problem, small_problem, valid_rows


def side_by_side(problems: list[Problem], seed: int) -> Problem:
    """One problem that holds all of these, its classes shuffled."""
    rng = random.Random(seed)
    n = sum(p.n_classes for p in problems)
    name = list(range(n))
    rng.shuffle(name)
    whole = Problem([], [], [], n, ())
    base = 0
    for p in problems:
        first = len(whole.node_class)
        whole.node_class += [name[base + c] for c in p.node_class]
        whole.node_cost += p.node_cost
        whole.children += [tuple(name[base + d] for d in kids) for kids in p.children]
        whole.roots += tuple(name[base + r] for r in p.roots)
        whole.at_least_one += [tuple(first + i for i in row) for row in p.at_least_one]
        base += p.n_classes
    return whole


@pytest.mark.parametrize("block", range(4))
def test_parts_are_solved_apart_and_add_up(block: int) -> None:
    for seed in range(60 * block, 60 * block + 60):
        problems = [small_problem(1000 + 3 * seed + k) for k in range(3)]
        for problem in problems:
            problem.at_least_one = valid_rows(problem, seed)
        known = [answers(p) for p in problems]
        if not all(known):
            continue
        whole = side_by_side(problems, seed)
        assert len(split(whole)) >= 3
        solution = solve(whole, 60.0)
        assert solution.optimal
        assert solution.cost == sum(min(a.values()) for a in known)
        assert check(whole, solution.choice) == solution.cost


def test_choices_go_to_a_part_and_back() -> None:
    whole = side_by_side([layered_problem(s, 40, roots=2) for s in range(3)], 0)
    choice = solve(whole, 60.0).choice
    together: dict[int, int] = {}
    for part in split(whole):
        small = part.restrict(choice)
        check(part.problem, small)
        together |= part.extend(small)
    assert together == choice


@pytest.mark.parametrize(
    ("problem", "classes"),
    [
        pytest.param(Problem([0, 1, 2], [1, 1, 1], [(2,), (2,), ()], 3, (0, 1)), [[0, 1, 2]], id="a shared child"),
        pytest.param(Problem([0, 1], [1, 1], [(), ()], 2, (0, 1)), [[0], [1]], id="nothing shared"),
        pytest.param(Problem([0, 1], [1, 1], [(), ()], 2, (0,)), [[0, 1]], id="a single root is not split"),
        pytest.param(Problem([0, 1, 2], [1, 1, 1], [(), (), ()], 3, (0, 2)), [[0], [2]], id="no root, no part"),
        pytest.param(Problem([0, 1], [1, 1], [(), ()], 2, (0, 1), [(0, 1)]), [[0, 1]], id="a row links"),
        pytest.param(Problem([], [], [], 0, ()), [], id="nothing at all"),
    ],
)
def test_what_is_linked_stays_together(problem: Problem, classes: list[list[int]]) -> None:
    assert [part.classes for part in split(problem)] == classes
