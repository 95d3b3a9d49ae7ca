"""Constants are spelled alike where they are one polynomial of what is stored, and only there."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat.errors import CheckFailed
from eqsat.layout.arithmetic import of_transpose, strided
from eqsat.program.core import Node, make
from eqsat.verify.spelling import Spellings


def stored(name: str, size: int) -> Node:
    return make("Const", (name, size, "float32"))


def number(value: float, size: int) -> Node:
    return make("Full", (value, size, "float32"))


def of(fn: str, *args: Node) -> Node:
    return make("Un" if len(args) == 1 else "Bin", (fn,), args)


def product(left: Node, right: Node, rows: int, inner: int, columns: int) -> Node:
    return make("MM", (1, rows, inner, columns), (left, right))


A, B, C, D = stored("a", 6), stored("b", 12), stored("c", 20), stored("d", 6)
ONES = number(1.0, 6)
SUM = of("add", A, D)
TRANSPOSED = make("V", (of_transpose((2, 3), (1, 0)),), (A,))
TWICE = make("V", (strided(0, [(2, 0), (6, 1)]),), (A,))

REPEATED = make("V", (strided(0, [(6, 1), (2, 0)]),), (A,))

SAME = {
    "associate": (product(product(A, B, 2, 3, 4), C, 2, 4, 5), product(A, product(B, C, 3, 4, 5), 2, 3, 5)),
    "distribute": (of("mul", SUM, A), of("add", of("mul", A, A), of("mul", A, D))),
    "whole numbers": (of("add", A, A), of("mul", number(2.0, 6), A)),
    "simple fractions": (of("sub", A, of("mul", A, number(0.75, 6))), of("mul", number(0.25, 6), A)),
    "quotients": (of("div", SUM, D), of("add", of("div", A, D), of("div", D, D))),
    "functions": (of("exp", of("sub", A, D)), of("exp", of("neg", of("sub", D, A)))),
    "sums of what is repeated": (make("Red", ("sum", 2), (REPEATED,)), of("add", A, A)),
    "transposed": (of("exp", TRANSPOSED), make("V", (of_transpose((2, 3), (1, 0)),), (of("exp", A),))),
    "joined": (make("Cat", (), (of("neg", A), of("neg", A))), of("neg", TWICE)),
}

OTHERS = {
    "elements in another order": (A, make("V", (strided(5, [(6, -1)]),), (A,))),
    "another constant": (A, D),
    "another function": (of("exp", A), of("tanh", A)),
    "operands exchanged": (of("sub", A, D), of("sub", D, A)),
    "numbers a unit apart": (of("mul", A, number(1 + 2.0**-23, 6)), of("mul", A, number(1 + 2.0**-22, 6))),
    "a root of equal bits": (of("sqrt", number(1 + 2.0**-23, 6)), ONES),
}


def alike(left: Node, right: Node) -> bool:
    spellings = Spellings({})
    return bool((spellings.spelled(left).array == spellings.spelled(right).array).all())


@pytest.mark.parametrize("name", SAME)
def test_the_same_polynomial_is_spelled_alike(name: str) -> None:
    assert alike(*SAME[name])


@pytest.mark.parametrize("name", OTHERS)
def test_what_differs_somewhere_is_not(name: str) -> None:
    assert not alike(*OTHERS[name])


def test_powers_of_any_degree_are_not_told_by_the_order_of_a_field() -> None:
    """x**(p - 1) is 1 in a field of p elements: beyond a small degree, a product is a function."""
    power = A
    for _ in range(200):
        power = of("mul", power, power)
    spelled = {Spellings({}).spelled(power).degree for _ in range(3)}
    assert max(spelled) <= 64
    assert not alike(power, of("mul", power, power))


def test_what_a_float_decides_has_no_spelling() -> None:
    with pytest.raises(CheckFailed, match="a float decides"):
        Spellings({}).spelled(of("less", A, D))
    index = make("Const", ("i", 2, "int64"))
    rows = make("Gather", (1, 3, 2), (A, index))
    values = {"i": np.array([2, -3])}
    assert (Spellings(values).spelled(rows).array != 0).all()
