"""No certificate rests on what is undefined where both programs are defined."""

from __future__ import annotations

from typing import Any

import onnx.parser
import pytest

import eqsat
from support.forged import Forged


def by_zero(forged: Forged) -> None:
    """x = x * 0 * (1 / 0) = 0 * (1 / 0) = 1, for every x."""
    zero = forged.number(0.0)
    infinite = forged.of("reciprocal", zero)
    forged.say(rule="over-itself", at=forged.of("mul", zero, infinite))
    for x in forged.numbered.outputs[0]:
        nothing = forged.of("mul", x, zero)
        forged.say(rule="multiply-by-zero", at=nothing)
        forged.say(rule="associate-product", at=forged.of("mul", nothing, infinite))
        forged.say(rule="multiply-by-one", at=forged.of("mul", x, forged.number(1.0)))


def by_difference(forged: Forged) -> None:
    """The same, with y - y for zero."""
    y = forged.stored("In")[0]
    zero = forged.of("sub", y, y)
    infinite = forged.of("reciprocal", zero)
    forged.say(rule="difference-of-same", at=zero)
    forged.say(rule="over-itself", at=forged.of("mul", zero, infinite))
    for x in forged.numbered.outputs[0]:
        nothing = forged.of("mul", x, zero)
        forged.say(rule="multiply-by-zero", at=forged.of("mul", x, forged.number(0.0)))
        forged.say(rule="associate-product", at=forged.of("mul", nothing, infinite))
        forged.say(rule="multiply-by-one", at=forged.of("mul", x, forged.number(1.0)))


def in_a_lemma(forged: Forged) -> None:
    """That x is 1 is a lemma, of which both sides are defined."""
    lines: list[dict[str, Any]] = [
        {"lemma": 0},
        {"leaf": [4, "float32"]},
        {"term": ["Full", [0.0, 4, "float32"], []]},
        {"term": ["Full", [1.0, 4, "float32"], []]},
        {"term": ["Un", ["reciprocal"], [1]]},
        {"term": ["Bin", ["mul"], [0, 1]]},
        {"term": ["Bin", ["mul"], [4, 3]]},
        {"term": ["Bin", ["mul"], [1, 3]]},
        {"term": ["Bin", ["mul"], [0, 2]]},
        {"rule": "multiply-by-zero", "at": 4},
        {"rule": "associate-product", "at": 5},
        {"rule": "over-itself", "at": 6},
        {"rule": "multiply-by-one", "at": 7},
        {"proves": [0, 2]},
    ]
    for line in lines:
        forged.say(**line)
    for x in forged.numbered.outputs[0]:
        forged.say(use=0, on=[x])


UNDEFINED = {
    "one over zero": (eqsat.tanh, lambda x: x, by_zero),
    "one over a difference": (eqsat.tanh, lambda x: x, by_difference),
    "in a lemma": (eqsat.tanh, lambda x: x, in_a_lemma),
}


@pytest.mark.parametrize("name", UNDEFINED)
def test_nothing_follows_from_what_is_undefined(name: str) -> None:
    left, right, lines = UNDEFINED[name]
    forged = Forged(left, right)
    lines(forged)
    forged.seal_error("need not be defined")


def test_the_logarithm_of_any_value_is_undefined() -> None:
    """relu(exp(log(x))) is exp(log(x)), and x is not relu(x)."""
    forged = Forged(eqsat.relu, lambda x: x)
    x = forged.numbered.outputs[0][1]
    power = forged.of("exp", forged.of("log", x))
    forged.say(rule="exponential-of-log", at=power)
    forged.say(rule="relu-of-exponential", at=forged.of("relu", power))
    forged.seal_error("need not be defined")


def test_where_a_program_is_defined_says_what_its_operands_are() -> None:
    """Both programs take the logarithm of x, which is above zero then."""
    forged = Forged(lambda x: eqsat.log(x) + eqsat.relu(x), lambda x: eqsat.log(x) + x)
    [log] = forged.stored("Un")[:1]
    power = forged.of("exp", log)
    forged.say(rule="exponential-of-log", at=power)
    forged.say(rule="relu-of-exponential", at=forged.of("relu", power))
    assert forged.seal()


def in_a_branch(shifted: Any) -> Any:
    """The logarithm of x + 1000 where that is above zero; the other branch is defined, too."""
    return eqsat.where(shifted > 0.0, eqsat.exp(eqsat.log(shifted)), shifted * 0.0)


def in_some_elements(shifted: Any) -> Any:
    """The logarithms of the first two elements of x + 1000."""
    return eqsat.concat([eqsat.log(shifted)[:2], shifted[2:]])


UNREAD = {"in a branch": in_a_branch, "in some elements": in_some_elements}


def side(unread: Any, relu: bool) -> Any:
    def fn(x: Any) -> Any:
        shifted = x + 1000.0
        return (eqsat.relu(shifted) if relu else shifted) + unread(shifted)

    return fn


@pytest.mark.parametrize("name", UNREAD)
def test_what_is_not_read_need_not_be_defined(name: str) -> None:
    """For x = -2000 both programs are defined, and differ."""
    forged = Forged(side(UNREAD[name], True), side(UNREAD[name], False))
    [log] = [i for i in forged.stored("Un") if forged.numbered.terms.rows[i][1] == ("log",)]
    power = forged.of("exp", log)
    forged.say(rule="exponential-of-log", at=power)
    forged.say(rule="relu-of-exponential", at=forged.of("relu", power))
    forged.seal_error("need not be defined .*: log")


IF = """
    <ir_version: 8, opset_import: ["" : 17]>
    main (float[4] x, bool c) => (float[4] y) {
        l = Log(x)
        z = If (c) <then_branch = a () => (float[4] s) { s = Identity(l) },
                    else_branch = b () => (float[4] t) { t = Neg(x) }>
        r = RELU(x)
        y = Add(z, r)
    }
"""
LOOP = """
    <ir_version: 8, opset_import: ["" : 17]>
    main (float[4] x, int64 n) => (float[4] y) {
        l = Log(x)
        z = Loop (n, , x) <body = a (int64 i, bool c, float[4] s) => (bool d, float[4] t) {
            d = Identity(c)
            t = Add(s, l)
        }>
        r = RELU(x)
        y = Add(z, r)
    }
"""


@pytest.mark.parametrize("text", [IF, LOOP], ids=["a branch", "a loop"])
def test_what_is_carried_need_not_read_what_it_takes(text: str) -> None:
    """For x = -1 both programs are defined, and differ, where the branch is not taken or the loop makes no turn."""
    models = [onnx.parser.parse_model(text.replace("RELU", name)) for name in ("Relu", "Identity")]
    left, right = map(eqsat.from_onnx, models)
    forged = Forged(left, right)
    assert forged.stored("Opaque")
    [log] = [i for i in forged.stored("Un") if forged.numbered.terms.rows[i][1] == ("log",)]
    power = forged.of("exp", log)
    forged.say(rule="exponential-of-log", at=power)
    forged.say(rule="relu-of-exponential", at=forged.of("relu", power))
    forged.seal_error("need not be defined .*: log")


@pytest.mark.parametrize("name", UNREAD)
def test_no_proof_goes_through_what_is_not_read(name: str) -> None:
    spec = eqsat.spec((4,), "float32")
    left, right = (eqsat.trace(side(UNREAD[name], relu), spec) for relu in (True, False))
    assert eqsat.prove(left, right).verdict != "proved"


def test_laws_that_hand_on_what_is_undefined_hold_of_it() -> None:
    """A branch that is not taken may be written otherwise."""
    spec = eqsat.spec((4, 4), "float32")
    left = eqsat.trace(lambda x, y: eqsat.where(x > 0.0, eqsat.log(x) + y, y), spec, spec)
    right = eqsat.trace(lambda x, y: eqsat.where(x > 0.0, y + eqsat.log(x), y), spec, spec)
    proof = eqsat.prove(left, right, certify=True)
    assert proof.verdict == "proved"
    assert proof.certificate


@pytest.mark.parametrize("positive", [eqsat.exp, lambda x: eqsat.abs(x) + 1e-5, lambda x: x * x + 2.0])
def test_what_is_above_zero_has_a_root(positive: Any) -> None:
    def both(x: Any) -> Any:
        return eqsat.tanh(positive(x))

    forged = Forged(both, both)
    tanh = forged.stored("Un")[-1]
    [of] = forged.numbered.terms.rows[tanh][2]
    root = forged.of("sqrt", of)
    forged.say(rule="square-of-root", at=forged.of("mul", root, root))
    assert forged.seal()
