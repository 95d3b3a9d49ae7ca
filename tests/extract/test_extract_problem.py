"""The checker that judges every answer, tested with wrong ones."""

from __future__ import annotations

import pytest

from eqsat.errors import CheckFailed, InputError
from eqsat.extract.solver.problem import Problem, check, underivable, used_choice

# Class 0 is the root: node 0 needs 1 and 2, node 1 needs 3. Class 1 has a leaf (2); class 2 needs 1 (node 3) or 0
# (node 4); class 3 needs 2 (node 5) or nothing (node 6).
PROBLEM = Problem(
    node_class=[0, 0, 1, 2, 2, 3, 3],
    node_cost=[10, 1, 5, 2, 0, 0, 100],
    children=[(1, 2), (3,), (), (1,), (0,), (2,), ()],
    n_classes=4,
    roots=(0,),
)


@pytest.mark.parametrize(
    ("choice", "cost"),
    [
        pytest.param({0: 0, 1: 2, 2: 3}, 17, id="class 1 is shared and counts once"),
        pytest.param({0: 1, 3: 5, 2: 3, 1: 2}, 8, id="a chain"),
        pytest.param({0: 1, 3: 6}, 101, id="a leaf"),
        pytest.param({0: 1, 3: 6, 2: 4, 1: 2}, 101, id="choices for unused classes cost nothing, cyclic or not"),
    ],
)
def test_right_answers_cost_what_they_use(choice: dict[int, int], cost: int) -> None:
    assert check(PROBLEM, choice) == cost


@pytest.mark.parametrize(
    ("choice", "complaint"),
    [
        pytest.param({}, "class 0 is used but has no choice", id="no choice for the root"),
        pytest.param({0: 0, 1: 2}, "class 2 is used but has no choice", id="no choice for a child"),
        pytest.param({0: 2, 1: 2, 2: 3}, "class 0 is given node 2", id="a node of another class"),
        pytest.param({0: 99}, "class 0 is given node 99", id="a node that does not exist"),
        pytest.param({0: -1}, "class 0 is given node -1", id="a negative index"),
        pytest.param({0: 0, 1: 2, 2: 4}, "needs class 0, which needs 2", id="a cycle through the root"),
        pytest.param({0: 1, 3: 5, 2: 4}, "which needs", id="a longer cycle"),
    ],
)
def test_wrong_answers_are_rejected(choice: dict[int, int], complaint: str) -> None:
    with pytest.raises(CheckFailed, match=complaint):
        check(PROBLEM, choice)


def test_a_node_may_not_need_its_own_class() -> None:
    with pytest.raises(CheckFailed, match="needs class 0, which needs 0"):
        check(Problem([0], [1], [(0,)], 1, (0,)), {0: 0})


def test_a_row_that_a_valid_answer_misses_is_found_out() -> None:
    rows = Problem([0, 0], [1, 2], [(), ()], 1, (0,), at_least_one=[(1,)])
    assert check(rows, {0: 1}) == 2
    with pytest.raises(CheckFailed, match=r"at_least_one\[0\]"):
        check(rows, {0: 0})


def test_only_used_classes_are_kept() -> None:
    assert used_choice(PROBLEM, {0: 1, 1: 2, 2: 3, 3: 6}) == {0: 1, 3: 6}


@pytest.mark.parametrize(
    ("problem", "root"),
    [
        pytest.param(PROBLEM, None, id="derivable"),
        pytest.param(Problem([0, 1], [1, 1], [(1,), (0,)], 2, (0,)), 0, id="only a cycle"),
        pytest.param(Problem([0], [1], [()], 2, (0, 1)), 1, id="a root without nodes"),
        pytest.param(Problem([0, 1], [1, 1], [(1, 1), ()], 2, (0,)), None, id="a child named twice"),
    ],
)
def test_underivable_roots_are_named(problem: Problem, root: int | None) -> None:
    assert underivable(problem) == root


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        pytest.param(([0], [1, 2], [()], 1, (0,)), "1 classes, 2 costs", id="uneven lengths"),
        pytest.param(([1], [1], [()], 1, (0,)), "outside 0..0", id="class out of range"),
        pytest.param(([0], [1], [(3,)], 1, (0,)), "outside 0..0", id="child out of range"),
        pytest.param(([0], [1], [()], 1, (1,)), "root 1 is outside", id="root out of range"),
        pytest.param(([0], [-1], [()], 1, (0,)), "costs -1", id="negative cost"),
    ],
)
def test_malformed_problems_are_rejected(fields: tuple, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        Problem(*fields)
