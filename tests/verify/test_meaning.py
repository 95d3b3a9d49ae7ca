"""A number or stored element stands for one value, whatever its type: no certificate reads it in two ways."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.base.numerics import np_dtype
from eqsat.layout.arithmetic import masked
from eqsat.layout.form import Axis
from eqsat.verify.meaning import stands_for
from support.forged import Forged

NARROW = ["float16", "bfloat16", "float32"]
FIRST = np.zeros(4, np.int64)


def rounded(value: float, dtype: str) -> float:
    return float(np.asarray(value).astype(np_dtype(dtype)))


def times(value: float, dtype: str = "float64") -> Any:
    """x times a stored element, which is not the only one that its array holds."""
    stored = np.array([value, 2.5]).astype(np_dtype(dtype))
    return lambda x: x * eqsat.take(stored, FIRST, 0)


def claim(narrow: str, value: float = 0.1) -> Forged:
    """That x times a number is x times what is left of the number in a narrow type."""
    return Forged(times(rounded(value, narrow)), lambda x: x * value, "float64")


def claim_with_narrow(narrow: str) -> Forged:
    """The same of programs that store the number in the narrow type, too."""
    left, other = times(rounded(0.1, narrow)), np.array([0.1, 2.5]).astype(np_dtype(narrow))
    both = lambda x: left(x) + x * eqsat.take(other, FIRST, 0).astype("float64")  # noqa: E731
    return Forged(both, lambda x: x * 0.1 + x * 0.1, "float64")


def views(forged: Forged, narrow: str) -> tuple[int, int]:
    """The stored elements that are read, of float64 and of the narrow type."""
    read = forged.stored("V")
    [element] = [at for at in read if forged.numbered.terms.dtype[at] == narrow]
    [wide] = [at for at in read if forged.numbered.terms.dtype[at] == "float64"]
    return wide, element


def say(forged: Forged, lines: list[tuple[int, int]], order: int) -> None:
    for pair in lines[::order]:
        forged.say(values=list(pair))


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("narrow", NARROW)
def test_a_narrow_number_is_its_fraction(narrow: str, order: int) -> None:
    forged = claim(narrow)
    widened = forged.of("cast:float64", forged.number(0.1, narrow))
    lines = [(widened, forged.number(0.1)), (forged.stored("V")[0], widened)]
    say(forged, lines, order)
    forged.seal_error("units apart")


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("narrow", NARROW)
def test_a_number_that_a_narrow_type_held_is_what_it_was(narrow: str, order: int) -> None:
    forged = claim(narrow)
    number = forged.number(0.1)
    held = forged.of("cast:float64", forged.of(f"cast:{narrow}", number))
    say(forged, [(held, number), (forged.stored("V")[0], held)], order)
    forged.seal_error("units apart")


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("narrow", NARROW)
def test_a_narrow_number_is_what_it_is_given(narrow: str, order: int) -> None:
    """No simple fraction, so that it may be given a value: before or after it is read."""
    value = 1 / np.pi
    forged = claim(narrow, value)
    number, between = forged.number(value), forged.number(value, narrow)
    lowered = forged.of(f"cast:{narrow}", number)
    say(forged, [(between, lowered), (forged.stored("V")[0], forged.of("cast:float64", between))], order)
    forged.say(values=[forged.of("cast:float64", lowered), number])
    forged.seal_error("units apart")


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("narrow", NARROW)
def test_a_narrow_stored_element_is_what_it_is_given(narrow: str, order: int) -> None:
    forged = claim_with_narrow(narrow)
    wide, element = views(forged, narrow)
    number = forged.number(0.1)
    lowered = forged.of(f"cast:{narrow}", number)
    say(forged, [(element, lowered), (wide, forged.of("cast:float64", element))], order)
    forged.say(values=[forged.of("cast:float64", lowered), number])
    forged.seal_error("units apart")


@pytest.mark.parametrize("narrow", NARROW)
def test_a_narrow_stored_element_is_no_number_of_equal_bits(narrow: str) -> None:
    forged = claim_with_narrow(narrow)
    wide, element = views(forged, narrow)
    number = forged.number(0.1, narrow)
    forged.say(moves=[element, number])
    forged.say(values=[wide, forged.of("cast:float64", element)])
    forged.say(values=[forged.of("cast:float64", number), forged.number(0.1)])
    forged.seal_error("move the same")


@pytest.mark.parametrize("narrow", NARROW)
def test_a_narrow_stored_element_is_not_what_views_fill_in(narrow: str) -> None:
    forged = claim_with_narrow(narrow)
    wide, element = views(forged, narrow)
    number = forged.number(0.1, narrow)
    nowhere = masked(0, [(4, 0)], [Axis(0, 0, 0, (0,))], rounded(0.1, narrow))
    filled = forged.term("V", [{"layout": nowhere.key()}], element)
    forged.say(moves=[element, filled])
    forged.say(moves=[filled, number])
    forged.say(values=[wide, forged.of("cast:float64", element)])
    forged.say(values=[forged.of("cast:float64", number), forged.number(0.1)])
    forged.seal_error("move the same")


def test_a_view_fills_in_what_its_type_holds() -> None:
    """0.5001 is a half in float16."""
    forged = Forged(times(0.5001), lambda x: x * 0.5, "float64")
    half = forged.number(0.5, "float16")
    nowhere = masked(0, [(4, 0)], [Axis(0, 0, 0, (0,))], 0.5001)
    filled = forged.of("cast:float64", forged.term("V", [{"layout": nowhere.key()}], forged.number(0.25, "float16")))
    widened = forged.of("cast:float64", half)
    forged.say(values=[filled, forged.stored("V")[0]])
    forged.say(values=[filled, widened])
    forged.say(values=[widened, forged.number(0.5)])
    forged.seal_error("fills in")


@pytest.mark.parametrize("order", [1, -1])
def test_what_sums_lose_is_not_lost(order: int) -> None:
    """(4.1 + 1e8) - 1e8 is 8 in float32."""
    forged = Forged(times(8.0, "float32"), lambda x: x * 4.1)
    number, large = forged.number(4.1), forged.number(1e8)
    less = forged.of("neg", large)
    total = forged.of("add", number, large)
    there = forged.of("sub", total, large)
    back, rest = forged.of("add", total, less), forged.of("add", large, less)
    zero = forged.number(0.0)
    for rule, at in (
        ("difference-as-sum", there),
        ("associate-sum", back),
        ("sum-as-difference", rest),
        ("difference-of-same", forged.of("sub", large, large)),
        ("add-zero", forged.of("add", number, zero)),
    ):
        forged.say(rule=rule, at=at)
    say(forged, [(forged.stored("V")[0], there)], order)
    forged.seal_error("units apart")


def test_no_float_decides_what_moves() -> None:
    """exp(log(3)) is 3, and not in floats: x is chosen where they are equal, tanh(x) where they are not."""
    forged = Forged(eqsat.tanh, lambda x: x, "float64")
    [(left, right)] = forged.numbered.outputs
    three = forged.number(3.0)
    same = forged.of("exp", forged.of("log", three))
    forged.say(rule="exponential-of-log", at=same)
    for number, chosen in ((same, right), (three, left)):
        truth = forged.term("Bin", ["equal"], number, three)
        forged.say(moves=[forged.term("Where", [], truth, left, right), chosen])
    forged.seal_error("move the same")


@pytest.mark.parametrize("narrow", NARROW)
def test_what_is_stored_of_a_narrow_number_is_given_the_number(narrow: str) -> None:
    """A tenth that was widened ahead is a tenth."""
    narrowed = np.asarray(0.1, np_dtype(narrow))
    forged = Forged(times(0.1), lambda x: x * eqsat.full((4,), float(narrowed), narrow).astype("float64"), "float64")
    [tenth] = [at for at in forged.stored("Full") if forged.numbered.terms.dtype[at] == narrow]
    forged.say(values=[forged.stored("V")[0], forged.of("cast:float64", tenth)])
    assert forged.seal()


@pytest.mark.parametrize("order", [1, -1])
def test_stored_elements_may_be_computed_one_from_another(order: int) -> None:
    weights = np.array([0.1, -0.7, 1.3, 0.45], np.float32)
    scaled = weights * np.float32(0.3)
    powers = np.exp(scaled)

    def computed(x: Any) -> Any:
        own = eqsat.take(weights, np.arange(4), 0) * 0.3
        return x * eqsat.exp(own) + x * own

    forged = Forged(lambda x: x * powers + x * scaled, computed)
    power, product = forged.stored("Const")[:2]
    [whole] = [at for at in forged.stored("Bin") if forged.numbered.terms.computed(at)]
    say(forged, [(product, whole), (power, forged.of("exp", product))], order)
    assert forged.seal()


def test_a_number_stands_for_the_same_fraction_in_every_type() -> None:
    assert {stands_for(rounded(0.1, dtype), dtype) for dtype in (*NARROW, "float64")} == {0.1}
    assert stands_for(rounded(0.1, "float16"), "float64") != 0.1
