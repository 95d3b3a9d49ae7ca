"""What rounding may do to constants is bounded: no certificate makes two programs equal by many small steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.errors import CheckFailed
from eqsat.layout.arithmetic import strided
from eqsat.verify.checker import Numbered
from eqsat.verify.pairing import lowered
from eqsat.verify.rounding import adds_up, units_apart
from support.forged import Forged

UNIT = 2.0**-23


@pytest.mark.parametrize(("dtype", "large"), [("float32", 1e8), ("float64", 2.0**54), ("bfloat16", 2.0**10)])
def test_a_number_that_rounding_absorbs_stays(dtype: str, large: float) -> None:
    """(1 + large) - large is 1, or 0 where the sum in brackets is folded: then everything would be equal."""
    forged = Forged(lambda x: x * 2, lambda x: x + 1, dtype)
    one, more, less = map(forged.number, (1.0, large, -large))
    forged.say(rule="function-of-numbers", at=forged.term("Bin", ["add"], one, more))
    with pytest.raises(CheckFailed, match="function-of-numbers does not apply"):
        forged.seal()
    forged.lines.pop()
    forged.say(values=[forged.count - 1, more])
    with pytest.raises(CheckFailed, match="simple fraction"):
        forged.seal()
    assert less


def test_nan_is_no_number_that_laws_hold_of() -> None:
    """min(1, max(1, NaN)) is 1, and NaN where it is computed; so is 2 with 2 in its place."""
    forged = Forged(lambda x: x + 1.0, lambda x: x + 2.0)
    for lemma, value in enumerate((1.0, 2.0)):
        forged.say(lemma=lemma)
        forged.say(leaf=[4, "float32"])
        terms = [["Full", [value, 4, "float32"], []], ["Full", [np.nan, 4, "float32"], []]]
        terms += [["Bin", [fn], args] for fn, args in (("max", [1, 2]), ("min", [1, 3]), ("min", [1, 2]))]
        for term in [*terms, ["Bin", ["add"], [0, 1]], ["Bin", ["add"], [0, 2]]]:
            forged.say(term=term)
        forged.say(rule="minimum-with-larger", at=4)
        for at in (3, 5):
            forged.say(rule="function-of-numbers", at=at)
        forged.say(proves=[6, 7])
    for lemma in range(2):
        forged.say(use=lemma, on=forged.stored("In"))
    forged.seal_error("function-of-numbers does not apply")


def repeated(forged: Forged, at: int, *dims: tuple[int, int]) -> int:
    return forged.term("V", [{"layout": strided(0, dims).key()}], at)


def test_integers_of_constants_do_not_overflow() -> None:
    """The larger of 2**31 - 1 and 0, each with 1 added, is 1; by law it is -2**31. What that leaves makes 5 of 1."""
    forged = Forged(
        lambda x: x + np.arange(1, 5, dtype=np.int32), lambda x: x + np.arange(5, 9, dtype=np.int32), "int32"
    )
    largest, zero, one = (forged.term("Full", [value, 1, "int32"]) for value in (2**31 - 1, 0, 1))
    both = forged.term("Cat", [], largest, zero)
    shifted = forged.term("Red", ["max", 2], forged.of("add", both, repeated(forged, one, (1, 0), (2, 0))))
    forged.say(rule="maximum-of-shifted", at=shifted)
    outside = forged.of("add", forged.term("Red", ["max", 2], both), repeated(forged, one, (1, 0)))
    factor = forged.number((4 * pow(2**31 - 1, -1, 2**32) + 2**31) % 2**32 - 2**31)
    first, second = forged.stored("Const")
    for which, constant in ((shifted, first), (outside, second)):
        gap = repeated(forged, forged.of("sub", which, shifted), (4, 0))
        forged.say(values=[constant, forged.of("add", first, forged.of("mul", gap, factor))])
    forged.seal_error("overflows")


def test_a_sum_that_cancels_may_overflow() -> None:
    """2**124 + 2**64 - 2**124 is zero in int64, and in float64."""
    forged = Forged(lambda x: x, lambda x: x + 1, "int64")
    left, right = (
        forged.term("Cat", [], *[forged.term("Full", [n, 1, "int64"]) for n in numbers])
        for numbers in ((2**62, 2**32, 2**62), (2**62, 2**32, -(2**62)))
    )
    product = forged.term("MM", [1, 1, 3, 1], left, right)
    forged.say(values=[product, forged.term("Full", [0, 1, "int64"])])
    forged.seal_error("too large to see")


def test_a_large_unsigned_integer_is_not_below_zero() -> None:
    """2**64 - 1 is not -1."""
    stored = [np.array([first, 2, 3, 4], np.float32) for first in (2.0**64, -1.0)]
    forged = Forged(lambda x: x * stored[0], lambda x: x * stored[1])
    large, small = forged.stored("Const")
    rest = [forged.term("Full", [float(n), 1, "float32"]) for n in (2, 3, 4)]
    first = forged.of("cast:float32", forged.term("Full", [2**64 - 1, 1, "uint64"]))
    whole, other = forged.term("Cat", [], first, *rest), forged.array(stored[1])
    forged.say(values=[large, whole])
    forged.say(values=[small, other])
    forged.say(values=[whole, other])
    forged.seal_error("units apart")


def test_integers_that_steer_do_not_overflow() -> None:
    """Where 2**31 - 1 and 1 add up to less than zero."""
    forged = Forged(eqsat.tanh, lambda x: x, "float32")
    [moved], [x] = forged.stored("Un"), forged.stored("In")
    least = forged.of("add", forged.number(2**31 - 1, "int32"), forged.number(1, "int32"))
    chosen = forged.term("Where", [], forged.of("less", least, forged.number(0, "int32")), moved, x)
    forged.say(moves=[chosen, moved])
    forged.seal_error("overflows")


@pytest.mark.parametrize(
    ("fn", "values"),
    [("add", (2**31 - 1, 1)), ("mul", (2**16, 2**16)), ("div", (-(2**31), -1)), ("div", (1, 0)), ("neg", (-(2**31),))],
)
def test_numbers_that_overflow_stay(fn: str, values: tuple[int, ...]) -> None:
    forged = Forged(lambda x: x * 2, lambda x: x + 1, "int32")
    at = forged.of(fn, *(forged.number(value) for value in values))
    forged.say(rule="function-of-number" + "s" * (len(values) > 1), at=at)
    forged.seal_error("does not apply")


def test_numbers_are_not_made_one() -> None:
    forged = Forged(lambda x: x * 1.0000001, lambda x: x * 1.0000002)
    forged.say(values=forged.stored("Full"))
    with pytest.raises(CheckFailed, match="one number"):
        forged.seal()


@pytest.mark.parametrize("lemma", [False, True])
def test_small_steps_do_not_add_up(lemma: bool) -> None:
    """The first step is one to a computation. Nothing else is given to what was given already, or is not stored."""
    weights = np.array([1.5, -2, 3, 1], np.float32)
    forged = Forged(lambda x: x * weights, lambda x: x * (weights * np.float32(1 + 30 * UNIT)))
    start, end = forged.stored("Const")
    if lemma:
        forged.say(lemma=0)
        for line in ({"leaf": [4, "float32"]}, {"leaf": [4, "float32"]}, {"values": [0, 1]}, {"proves": [0, 1]}):
            forged.say(**line)
    steps = [forged.array(weights * np.float32(1 + 10 * i * UNIT)) for i in (1, 2)]
    for a, b in zip([start, *steps], [*steps, end], strict=True):
        forged.say(**({"use": 0, "on": [a, b]} if lemma else {"values": [a, b]}))
    with pytest.raises(CheckFailed, match="neither is stored"):
        forged.seal()


def test_steps_that_are_stored_do_not_add_up() -> None:
    a, b, c = (np.array([1.5, -2, 3, 1], np.float32) * np.float32(1 + 5 * i * UNIT) for i in range(3))
    forged = Forged(lambda x: x * a + eqsat.exp(x * c), lambda x: x * b + eqsat.exp(x * b))
    one, two, three = forged.stored("Const")
    forged.say(values=[one, three])
    forged.say(values=[two, three])
    with pytest.raises(CheckFailed, match="one program stores both"):
        forged.seal()


def test_what_is_rounded_is_not_amplified() -> None:
    """e * c and e * c' are a unit apart. Were they equal, so were x * e * c and x * e * c', and all would be zero."""
    forged = Forged(lambda x: x * 2, lambda x: x * x + 3)
    say, number, of = forged.say, forged.number, forged.of
    one, other, step, back, zero = map(number, (1 + UNIT, 1 + 2 * UNIT, -UNIT, -1 / UNIT, 0.0))
    e, over = of("exp", number(1.0)), of("exp", number(-1.0))
    say(values=[of("mul", e, one), of("mul", e, other)])
    for at in {at for pair in forged.numbered.outputs for at in pair}:
        times = of("mul", at, e)
        left, right = of("mul", times, one), of("mul", times, other)
        for name, term in (
            ("associate-product", left),
            ("associate-product", right),
            ("difference-of-multiples", of("sub", left, right)),  # it is times * step
            ("function-of-numbers", of("sub", one, other)),
            ("difference-of-same", of("sub", left, left)),
            ("associate-product", of("mul", of("mul", times, step), back)),
            ("function-of-numbers", of("mul", step, back)),
            ("multiply-by-one", of("mul", times, number(1.0))),
            ("commute-product", of("mul", zero, back)),
            ("multiply-by-zero", of("mul", back, zero)),
            ("associate-product", of("mul", times, over)),
            ("product-of-exps", of("mul", e, over)),
            ("function-of-numbers", of("add", number(1.0), number(-1.0))),
            ("multiply-by-one", of("mul", at, number(1.0))),
            ("commute-product", of("mul", zero, over)),
            ("multiply-by-zero", of("mul", over, zero)),
        ):
            say(rule=name, at=term)
        say(values=[of("exp", zero), number(1.0)])
    forged.seal_error("neither is stored")


def test_equal_bits_are_not_equal_numbers() -> None:
    """The root of 1 + 2**-52 is 1 in float64. Squared, it is not."""
    forged = Forged(lambda x: x, lambda x: x * x + 3, "float64")
    root = forged.term("Un", ["sqrt"], forged.number(1 + 2.0**-52))
    forged.say(values=[root, forged.number(1.0)])
    with pytest.raises(CheckFailed, match="simple fraction"):
        forged.seal()


def test_a_rounded_number_is_not_computed_with() -> None:
    """What stands for a root is no fraction any more."""
    third = float(np.float32(np.sqrt(0.1)))
    forged = Forged(lambda x: x * third, lambda x: x * (third * 2))
    number = forged.number(third)
    forged.say(values=[forged.term("Un", ["sqrt"], forged.number(float(np.float32(0.1)))), number])
    doubled = forged.term("Bin", ["mul"], number, forged.number(2.0))
    forged.seal_error("does not make output")
    forged.say(rule="function-of-numbers", at=doubled)
    forged.seal_error("rests on the value")


def cancelled(forged: Forged) -> int:
    """2 in float64."""
    return forged.of("sub", forged.of("add", forged.number(1.1), forged.number(2.0**53)), forged.number(2.0**53))


def cancelled_in_a_sum(forged: Forged) -> int:
    rows = forged.term("V", [{"layout": "0|4,0;3,1"}], forged.array(np.array([2.0**53, 1.1, -(2.0**53)])))
    return forged.term("Red", ["sum", 3], rows)


def cancelled_in_a_product(forged: Forged) -> int:
    ones = forged.term("Full", [1.0, 3, "float64"])
    rows = forged.term("V", [{"layout": "0|4,0;3,1"}], forged.array(np.array([2.0**53, 1.1, -(2.0**53)])))
    return forged.term("MM", [1, 4, 3, 1], rows, ones)


def underflown(forged: Forged) -> int:
    return forged.of("exp", forged.number(-1000.0))


def underflown_product(forged: Forged) -> int:
    return forged.of("mul", forged.number(1e-200), forged.number(1e-200))


def overflown(forged: Forged) -> int:
    return forged.of("reciprocal", forged.of("exp", forged.number(1000.0)))


LOST = {
    cancelled: (2.0, "by rounding alone"),
    cancelled_in_a_sum: (2.0, "by rounding alone"),
    cancelled_in_a_product: (2.0, "by rounding alone"),
    underflown: (0.0, "too small"),
    underflown_product: (0.0, "too small"),
    overflown: (0.0, "not finite"),
}


@pytest.mark.parametrize("computed", LOST)
def test_what_float64_loses_is_not_lost(computed: Any) -> None:
    """Each is what is stored, to the last bit of float64, and another number over the real ones."""
    value, refused = LOST[computed]
    stored = np.array([value, 2.5])
    forged = Forged(lambda x: x * eqsat.take(stored, np.zeros(4, np.int64), 0), lambda x: x * 1.1, "float64")
    forged.say(values=[forged.stored("V")[0], computed(forged)])
    forged.seal_error(refused)


def test_infinities_are_not_one_number() -> None:
    forged = Forged(lambda x: x, lambda x: x * x + 3, "float64")
    large, one, other = (forged.number(2.0**e) for e in (1020, 10, 11))
    forged.say(values=[forged.term("Bin", ["mul"], large, factor) for factor in (one, other)])
    forged.seal_error("not finite")


def test_a_constant_is_not_computed_from_itself() -> None:
    weights = np.array([1.5, -2, 3, 1], np.float32)
    forged = Forged(lambda x: x * weights, lambda x: x + weights * 2)
    stored = forged.stored("Const")[0]
    forged.say(values=[stored, forged.term("Bin", ["mul"], stored, forged.number(1 + UNIT))])
    forged.seal_error("computed from the other|one of the programs alone")


def test_what_floats_decide_is_no_matter_of_a_certificate() -> None:
    """exp(log(3)) is not above 3, and in floats it may be."""
    forged = Forged(lambda x: x, lambda x: x * x + 3)
    three = forged.number(3.0)
    above = forged.term("Bin", ["greater"], forged.term("Un", ["exp"], forged.term("Un", ["log"], three)), three)
    forged.say(values=[above, forged.term("Full", [False, 4, "bool"])])
    forged.seal_error("a float decides")


def test_one_element_is_computed_in_one_way() -> None:
    row = np.array([1.5, -2], np.float32)
    forged = Forged(lambda x: x.reshape(2, 2) * row, lambda x: x.reshape(2, 2) + row * 2)
    repeated = forged.term("V", [{"layout": "0|2,0;2,1"}], forged.stored("Const")[0])
    forged.say(values=[repeated, forged.array(np.concatenate([row, row * np.float32(1 + 8 * UNIT)]))])
    forged.seal_error("places of one stored element differ")


def test_one_step_is_enough_for_what_was_folded() -> None:
    weights = np.array([1.5, -2, 3, 1], np.float32)
    forged = Forged(lambda x: x * (weights * np.float32(1 + 10 * UNIT)), lambda x: x * weights)
    forged.say(values=forged.stored("Const"))
    assert forged.seal()


def test_what_is_no_number_is_one_line() -> None:
    forged = Forged(lambda x: x * 2, lambda x: x + x)
    forged.term("Full", [10**400, 4, "float32"])
    with pytest.raises(CheckFailed, match="line 2 does not hold"):
        forged.seal()


def test_without_sums_each_element_counts() -> None:
    a, b = np.array([1e3, 1e-3], np.float32), np.array([1e3, 0], np.float32)
    assert units_apart(a, b, UNIT, largest=True) < 16 < units_apart(a, b, UNIT, largest=False)
    numbered = Numbered(*lowered(*[eqsat.trace(f, eqsat.spec((4,))) for f in (lambda x: x * 2, lambda x: x + x)]))
    node = numbered.terms.node(numbered.terms.add("Full", (2.0, 4, "float32"), ()))
    double = numbered.terms.node(numbered.terms.add("Bin", ("mul",), (numbered.terms.add_nodes([node])[0],) * 2))
    assert adds_up([node])
    assert not adds_up([node, double])
