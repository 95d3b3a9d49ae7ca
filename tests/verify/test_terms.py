"""A certificate may only name terms that programs can have: laws say nothing of others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.layout.arithmetic import Axis, Layout, compose, masked
from support.forged import Forged


def by_a_reciprocal(forged: Forged) -> None:
    """x = x * 0 * (1 / 0) = 0 * (1 / 0) = 1, where whole numbers have reciprocals and no domain is seen."""
    zero = forged.number(0)
    infinite = forged.of("reciprocal", zero)
    forged.say(rule="over-itself", at=forged.of("mul", zero, infinite))
    for x in forged.numbered.outputs[0]:
        nothing = forged.of("mul", x, zero)
        forged.say(rule="multiply-by-zero", at=nothing)
        forged.say(rule="associate-product", at=forged.of("mul", nothing, infinite))
        forged.say(rule="multiply-by-one", at=forged.of("mul", x, forged.number(1)))


def by_a_logarithm(forged: Forged) -> None:
    """relu(exp(log(x))) is exp(log(x)), and x is not relu(x)."""
    x = forged.numbered.outputs[0][1]
    power = forged.of("exp", forged.of("log", x))
    forged.say(rule="exponential-of-log", at=power)
    forged.say(rule="relu-of-exponential", at=forged.of("relu", power))


def by_a_sum(forged: Forged) -> None:
    """Of truth values NumPy's sum is whether one is true."""
    [sides] = forged.numbered.outputs
    true = forged.number(True, "bool")
    forged.say(values=[forged.of("add", true, true), true])
    forged.say(rule="double", at=forged.of("add", *sides))


KINDS = {
    "whole numbers have no reciprocals": (lambda x: x * 3, lambda x: x, "int32", by_a_reciprocal),
    "whole numbers have no logarithms": (eqsat.relu, lambda x: x, "int64", by_a_logarithm),
    "truth values have no sum": (lambda x: x > 1, lambda x: x > 2, "int32", by_a_sum),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_function_is_one_of_its_kinds(name: str) -> None:
    left, right, dtype, lines = KINDS[name]
    forged = Forged(left, right, dtype)
    lines(forged)
    forged.seal_error("does not take")


def test_what_is_only_stored_is_moved_and_converted() -> None:
    forged = Forged(lambda x: x, lambda x: x)
    small = forged.of("cast:uint8", forged.number(3.0))
    forged.of("cast:float16", forged.term("V", [{"layout": "0|2,1"}], small))
    assert forged.seal()
    forged.of("add", small, small)
    forged.seal_error("does not take")


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "int4", "words"])
def test_no_program_converts_to_what_is_no_number_of_whole_bytes(dtype: str) -> None:
    forged = Forged(lambda x: x, lambda x: x)
    forged.of(f"cast:{dtype}", forged.number(3.0))
    forged.seal_error("does not take")


def plus(values: list[int]) -> Any:
    stored = np.array(values, np.int64)
    return lambda x: x + stored


def test_a_constant_has_the_type_that_is_stored() -> None:
    """2**32 + 1 of int64 is 1 where its elements are read as int32, and itself where these are read as int64 again."""
    forged = Forged(plus([2**32 + 1, 2, 3, 4]), plus([1, 2, 3, 4]), "int64")
    large, small = forged.stored("Const")
    digest = forged.numbered.terms.rows[large][1][0]
    narrow = forged.term("Const", [digest, 4, "int32"])
    numbers = forged.term("Cat", [], *[forged.term("Full", [n, 1, "int32"]) for n in (1, 2, 3, 4)])
    forged.say(moves=[narrow, numbers])
    forged.say(values=[forged.of("cast:int64", narrow), large])
    forged.say(values=[forged.of("cast:int64", numbers), small])
    forged.seal_error("no program stores")


def test_a_constant_in_a_lemma_is_one_that_is_stored() -> None:
    forged = Forged(plus([5, 2, 3, 4]), plus([1, 2, 3, 4]), "int64")
    forged.say(lemma=0)
    forged.say(term=["Const", ["no digest", 4, "int64"], []])
    forged.seal_error("no program stores 'no digest' as 4 elements of int64")


def test_no_view_has_fewer_than_no_elements() -> None:
    """(-2) * (-3) elements are six, as it seems."""
    layout = Layout.parse("7|-2,1;-3,1")
    assert layout.size == 6
    forged = Forged(lambda x: x, lambda x: x)
    wide = forged.term("Full", [1.0, 20, "float32"])
    forged.term("V", [{"layout": layout.key()}], wide)
    forged.seal_error("is no layout")


@pytest.mark.parametrize("fill", [1 + 2.0**-40, 1e-60, 1e60])
def test_a_view_fills_in_what_its_type_holds(fill: float) -> None:
    """What is rounded when it is read is not what it is compared by."""
    forged = Forged(lambda x: x, lambda x: x)
    [x] = forged.stored("In")
    nowhere = masked(0, [(4, 0)], [Axis(0, 0, 0, (0,))], fill)
    forged.term("V", [{"layout": nowhere.key()}], x)
    forged.seal_error("which float32 does not hold")


def test_no_view_reads_before_its_operand_where_it_fills_nothing() -> None:
    """The place before the first element is what the fill is known by. Of a view that leaves out the first element it
    is that element."""
    forged = Forged(lambda x: eqsat.relu(x[:1]), lambda x: x[:1] * 0.0)
    [x], first = forged.stored("In"), {"layout": "0|1,1"}
    rest = forged.term("V", [{"layout": "1|3,1"}], x)
    before = masked(-1, [(2, 1), (3, 0)], [Axis(2, 0, 0, (0, 1))], 0.0)
    filled = masked(0, [(2, 0), (3, 0)], [Axis(1, 0, -1, (1, 0)), Axis(2, 0, 0, (0, 1))], 0.0)
    assert list(before.index()) == list(filled.index())
    outer = [forged.term("V", [{"layout": each.key()}], forged.of("relu", rest)) for each in (before, filled)]
    inner = [forged.term("V", [{"layout": each.key()}], rest) for each in (before, filled)]
    forged.say(moves=outer)
    layout = compose(Layout.parse("1|3,1"), before)
    assert layout is not None
    composed = forged.term("V", [{"layout": layout.key()}], x)
    forged.say(rule="view-of-view", at=inner[0])
    forged.say(rule="view-of-view", at=forged.term("V", [first], composed))
    zero = forged.term("Full", [0.0, 1, "float32"])
    forged.say(moves=[forged.term("V", [first], inner[1]), zero])
    forged.say(rule="function-of-number", at=forged.of("relu", zero))
    for view, of in zip(outer, inner, strict=True):
        forged.say(rule="view-into-unary", at=view)
        forged.say(rule="view-into-unary", at=forged.term("V", [first], forged.of("relu", of)))
    forged.say(rule="multiply-by-zero", at=forged.numbered.outputs[0][1])
    forged.seal_error("reads beyond its operand")


def test_no_coordinate_wraps_around() -> None:
    """2**62 times four is zero in int64, so that a place where nothing is read seems to be the first."""
    forged = Forged(lambda x: x[:1], lambda x: x[:1] * 0.0)
    [x] = forged.stored("In")
    far = masked(0, [(5, 0), (5, 0), (2, 0)], [Axis(2, 1, 0, (2**62, -(2**62), 1))], 0.0)
    view = forged.term("V", [{"layout": far.key()}], x)
    firsts = forged.term("V", [{"layout": "0|2,1"}], x)
    zeros = forged.term("Full", [0.0, 2, "float32"])
    joined = forged.term("Cat", [], *[firsts if abs(i - j) in (0, 4) else zeros for i in range(5) for j in range(5)])
    forged.say(moves=[view, joined])
    at = {"layout": "8|1,1"}
    forged.say(rule="view-of-view", at=forged.term("V", [at], view))
    forged.say(moves=[forged.term("V", [at], view), forged.term("Full", [0.0, 1, "float32"])])
    forged.say(inside=forged.term("V", [at], joined))
    forged.say(rule="view-of-view", at=forged.term("V", [{"layout": "0|1,1"}], firsts))
    forged.say(rule="multiply-by-zero", at=forged.numbered.outputs[0][1])
    forged.seal_error("64 bits")
