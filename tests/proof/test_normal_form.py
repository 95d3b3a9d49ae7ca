"""Scalars keep their values in normal form, whole numbers above all."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

import eqsat
from eqsat.program.core import lower
from eqsat.proof.normal_form.elements import compare
from eqsat.proof.normal_form.functions import Functions

COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "equal": lambda a, b: a == b,
    "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b,
    "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b,
}


@pytest.mark.parametrize("cases", [False, True])
@pytest.mark.parametrize("divisor", [2, 4, -4, 8])
def test_remainders_are_compared_with_numbers(divisor: int, cases: bool) -> None:
    """i % 4 is 4 frac(i / 4), where the factor divides no whole number: i % 4 == 1 may hold. By powers of two, so that
    fractions are evaluated exactly."""
    for times, plus, name, number in product([1, -1, 2, 3], [0, 1, 4], COMPARISONS, range(-6, 7)):
        s = Functions(cases=cases)
        i = s.atom("in", "i", 0, whole=True)
        rest = s.binary("mod", s.total([i, s.number(plus)]), s.number(divisor), integral=True)
        found = s.binary(name, s.scaled(rest, times), s.number(number), integral=True)
        for at in range(-7, 8):
            value = COMPARISONS[name](times * ((at + plus) % divisor), number)
            assert s.evaluate(found, lambda _, __, at=at: at) == value, (times, plus, name, number, at, s.text(found))


@pytest.mark.parametrize("cases", [False, True])
def test_powers_of_zero(cases: bool) -> None:
    """0^(2 x - 1) is 1 where x is a half, and 0 above: not 0, as 0^(2 x) / 0 * 0 would be."""
    s = Functions(cases=cases)
    exponent = s.total([s.scaled(s.atom("in", "x", 0), 2), s.number(-1)])
    found = s.binary("pow", s.zero, s.product(exponent, exponent))
    assert [s.evaluate(found, lambda _, __, at=at: at) for at in (0.5, 0.75, 1)] == [1, 0, 0]
    assert s.binary("pow", s.zero, s.unary("exp", exponent)) == s.zero


@pytest.mark.parametrize("fn", ["floor", "round", "sign", "tanh", "exp", "log"])
@pytest.mark.parametrize("cases", [False, True])
def test_the_first_of_the_largest_stays_where_a_function_makes_no_two_equal(fn: str, cases: bool) -> None:
    s = Functions(cases=cases)
    x = [s.atom("in", "x", i) for i in range(3)]
    found = s.position_of_largest([s.unary(fn, e) for e in x])
    assert (found == s.position_of_largest(x)) is (fn in ("tanh", "exp", "log"))


V = eqsat.spec((2,))
HARDLY_DIFFERENT = {
    "a power that is 1 where the other is 0": (lambda x, y: eqsat.power(x, y - 1) == 0, lambda x, y: x**y == 0),
    "a power of zero, and what divides by one": (lambda x, y: eqsat.power(x, -y) == 0, lambda x, y: x > x),
    "the size of such a power": (lambda x, y: abs(eqsat.power(x, -y)) > 0, lambda x, y: x == x),
    "a logarithm of an even power": (
        lambda x, y: eqsat.log(eqsat.power(x, y)) + abs(x),
        lambda x, y: eqsat.log(eqsat.power(x, y)) + x,
    ),
    "a logarithm that is not taken where the condition holds": (
        lambda x, y: eqsat.where(y > 0, y, eqsat.log(x)) + abs(x),
        lambda x, y: eqsat.where(y > 0, y, eqsat.log(x)) + x,
    ),
}
"""Left, right: they differ where a base is 0 or negative, or where a branch is not taken."""


@pytest.mark.parametrize("name", HARDLY_DIFFERENT)
def test_what_hardly_differs_has_no_equal_normal_forms(name: str) -> None:
    left, right = (lower(eqsat.trace(side, V, V)) for side in HARDLY_DIFFERENT[name])
    assert not compare(left.roots, right.roots, left.constants | right.constants, 5.0).equal


def test_powers_of_positive_numbers_multiply() -> None:
    s = Functions()
    x, y, z = (s.atom("in", name, 0) for name in "xyz")
    base = s.total([s.unary("exp", x), s.one])
    whole = s.binary("pow", base, s.total([s.scaled(y, 2), z, s.number(-1)]))
    parts = [s.binary("pow", base, e) for e in (y, y, z)]
    assert s.equal(s.product(whole, base), s.product(s.product(*parts[:2]), parts[2]))
