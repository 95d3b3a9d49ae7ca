"""`prove`: equal programs are proved by either method, false equations refuted; sampling proves nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eqsat
from eqsat.egraph import saturate
from eqsat.errors import InputError
from eqsat.program import ops
from eqsat.program.core import CoreProgram, evaluate, lower, topological
from eqsat.program.ir import Program
from eqsat.proof import prove
from eqsat.proof.normal_form.elements import Elements, compare
from eqsat.proof.normal_form.functions import Functions
from eqsat.proof.normal_form.scalars import Beyond, rational
from eqsat.testing import programs, random_inputs
from support import migraphx_pairs as pairs
from support.migraphx_pairs import PAIRS
from support.proof_pairs import DIFFERENT, EQUAL, build

SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


@pytest.mark.parametrize("name", EQUAL)
def test_equal_programs_are_proved(name: str):
    left, right, shapes = EQUAL[name]
    proof = eqsat.prove(build(left, shapes), build(right, shapes), time_limit=10)
    assert proof.verdict == "proved", str(proof)
    assert proof.reason


@pytest.mark.parametrize("name", DIFFERENT)
def test_false_equations_are_refuted_by_a_concrete_input(name: str):
    left, right, shapes = DIFFERENT[name]
    p, q = build(left, shapes), build(right, shapes)
    proof = eqsat.prove(p, q, time_limit=5)
    assert proof.verdict == "refuted", str(proof)
    difference = proof.difference
    assert difference is not None
    outputs = [program.run(difference.inputs, "float64")[difference.output] for program in (p, q)]
    assert not np.array_equal(outputs[0][difference.index], outputs[1][difference.index], equal_nan=True)


@pytest.mark.parametrize("name", DIFFERENT)
def test_neither_method_of_proof_accepts_a_false_equation(name: str):
    left, right, shapes = DIFFERENT[name]
    p, q = lower(build(left, shapes)), lower(build(right, shapes))
    assert not compare(p.roots, q.roots, p.constants | q.constants, 5.0).equal


def _small_integers(core: CoreProgram, inputs: Mapping[str, np.ndarray]) -> bool:
    """Whether no integer comes near the end of its range, where it would wrap around, and none is divided by zero."""
    nodes = topological(core.roots)
    flat = {name: array.reshape(-1) for name, array in inputs.items()}
    values = dict(zip(nodes, evaluate(nodes, flat, core.constants, precision="float64"), strict=True))
    whole = [v for v in values.values() if v.dtype.kind == "i"]
    divisors = [values[n.args[1]] for n in nodes if n.op == "Bin" and n.attrs[0] in ("div", "mod")]
    # A product of many may wrap around to a small number.
    many = [values[n.args[0]].reshape(-1, n.attrs[1]) for n in nodes if n.op == "Red" and n.attrs[0] == "prod"]
    whole += [np.abs(v.astype(np.float64)).prod(axis=1) for v in many if v.dtype.kind == "i"]
    small = all(np.abs(v.astype(np.float64)).max(initial=0) < 2**15 for v in whole)
    return small and all((d != 0).all() for d in divisors if d.dtype.kind == "i")


def test_a_side_of_a_choice_that_is_not_taken_may_have_no_value():
    """The least of some roots: |x| is x or -x there, and 1 - x may be negative where x is positive."""
    program = eqsat.trace(lambda x: eqsat.min(1.0 / eqsat.sqrt(abs(x) + 1.0), (0,)), eqsat.spec((4,), "float64"))
    core, x = lower(program), np.array([0.3, 0.8, -1.3, -2.5])
    elements = Elements(core.constants, time.monotonic() + 2, cases=True)
    (found,) = elements.values(core.roots)[core.roots[0]].tolist()
    assert elements.scalars.evaluate(found, lambda name, i: x[i]) == pytest.approx(3.5**-0.5)


def test_an_index_that_rounding_moves_is_the_integer_that_it_is():
    """Modulo 3, a power that is 25 but for rounding leaves hardly less than 1."""
    x, n = (ops.input(name, (3,), "int32") for name in "xn")
    power = ops.elementwise("pow", x, ops.elementwise("min", n, ops.full(2, (3,), "int32")))
    taken = ops.gather(power, ops.elementwise("mod", power, ops.full(3, (3,), "int32")), 0)
    core, inputs = lower(Program((x, n), {"y": taken})), {"x": [1, 3, 5], "n": [2, 2, 4]}
    elements = Elements(core.constants, time.monotonic() + 2, False)
    found = elements.values(core.roots)[core.roots[0]].tolist()
    values = [elements.scalars.evaluate(e, lambda name, i: inputs[name][i]) for e in found]
    assert values == pytest.approx([9.0, 1.0, 9.0])


@pytest.mark.parametrize("cases", [False, True])
@given(program=programs(dtypes=("float64", "bool", "int32"), max_ops=8), seed=st.integers(0, 99))
@settings(max_examples=200, deadline=None, suppress_health_check=SLOW)
def test_the_normal_form_of_a_random_program_has_its_value(cases: bool, program: Program, seed: int):
    core = lower(program)
    inputs = random_inputs(program, seed)
    if any(n.op == "Opaque" for n in topological(core.roots)) or not _small_integers(core, inputs):
        return
    elements = Elements(core.constants, time.monotonic() + 2, cases)
    try:
        values = elements.values(core.roots)
    except Beyond:
        return
    expected = core.run(inputs, "float64")
    for root, want in zip(core.roots, expected.values(), strict=True):
        with np.errstate(all="ignore"):
            found = [
                elements.scalars.evaluate(e, lambda name, i: inputs[name].reshape(-1)[i]) for e in values[root].tolist()
            ]
        flat = want.reshape(-1).astype(np.float64)
        both = np.isfinite(flat) & np.isfinite(found)
        np.testing.assert_allclose(np.array(found)[both], flat[both], rtol=1e-6, atol=1e-6)


def test_constants_folded_ahead_of_time_are_recognised():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((96, 64)).astype(np.float32), rng.standard_normal((64, 300)).astype(np.float32)
    folded = (a.astype(np.float64) @ b).astype(np.float32)
    p = eqsat.trace(lambda x: (x @ a) @ b, eqsat.spec((300, 96)))
    assert eqsat.prove(p, eqsat.trace(lambda x: x @ folded, eqsat.spec((300, 96)))).method == "rules"
    folded[5, 7] += 1.0
    assert eqsat.prove(p, eqsat.trace(lambda x: x @ folded, eqsat.spec((300, 96)))).verdict == "refuted"


def test_neither_defined_is_not_proved():
    p = eqsat.trace(lambda a: eqsat.log(-1.0 - a * a) + a, eqsat.spec((3,)))
    q = eqsat.trace(lambda a: a + eqsat.log(-1.0 - a * a), eqsat.spec((3,)))
    assert eqsat.prove(p, q).verdict == "unknown"


def test_outputs_and_inputs_match_by_name_in_any_order():
    def swapped(b, a):
        return {"y": a - b}

    p = eqsat.trace(lambda a, b: {"y": a - b}, eqsat.spec((3,)), eqsat.spec((3,)))
    assert eqsat.prove(p, eqsat.trace(swapped, eqsat.spec((3,)), eqsat.spec((3,))))


def test_other_names_match_by_position():
    p = eqsat.trace(lambda a, b: a - b, eqsat.spec((3,)), eqsat.spec((3,)))
    assert eqsat.prove(p, eqsat.trace(lambda x, y: x - y, eqsat.spec((3,)), eqsat.spec((3,))))


MISMATCHES = [
    (lambda a, b: a, ((3,), (4,)), lambda x: x, ((3,),), "take 2 inputs"),
    (lambda a: a, ((3,),), lambda a: a, ((4,),), r"input 'a' is f32\[3\] in the first, f32\[4\]"),
    (lambda a: a, ((3, 1),), lambda a: a.T, ((3, 1),), r"output 'out' is f32\[3,1\] in the first, f32\[1,3\]"),
    (lambda a: (a, a), ((3,),), lambda a: a, ((3,),), "2 and 1 outputs"),
]


@pytest.mark.parametrize(("left", "shapes", "right", "others", "message"), MISMATCHES)
def test_programs_that_cannot_be_compared_are_refused(left, shapes, right, others, message):
    p = eqsat.trace(left, *[eqsat.spec(s) for s in shapes])
    q = eqsat.trace(right, *[eqsat.spec(s) for s in others])
    with pytest.raises(InputError, match=message):
        eqsat.prove(p, q)


def _x(s: Functions, name: str = "x") -> int:
    return s.atom("in", name, 0)


# What must be one expression, and what must not.
LAWS = {
    "x^2 root": (lambda s, x, y: s.unary("sqrt", s.product(x, x)), lambda s, x, y: s.unary("abs", x)),
    "fourth root of fourth power": (
        lambda s, x, y: s.power(s.power(x, 4), Fraction(1, 4)),
        lambda s, x, y: s.unary("abs", x),
    ),
    "(x+y)^2": (
        lambda s, x, y: s.power(s.total([x, y]), 2),
        lambda s, x, y: s.total([s.product(x, x), s.scaled(s.product(x, y), 2), s.product(y, y)]),
    ),
    "root two squared": (
        lambda s, x, y: s.power(s.unary("sqrt", s.number(2)), 2),
        lambda s, x, y: s.number(2),
    ),
    "one third of one third": (
        lambda s, x, y: s.product(s.number(1 / 3), s.number(1 / 3)),
        lambda s, x, y: s.number(1 / 9),
    ),
    "tanh is odd": (
        lambda s, x, y: s.unary("tanh", s.scaled(s.total([x, y]), -1)),
        lambda s, x, y: s.scaled(s.unary("tanh", s.total([y, x])), -1),
    ),
    "exp of log": (lambda s, x, y: s.unary("exp", s.scaled(s.unary("log", x), 2)), lambda s, x, y: s.power(x, 2)),
    "max of one thing": (lambda s, x, y: s.largest([x, x]), lambda s, x, y: x),
    "less is not greater or equal": (
        lambda s, x, y: s.unary("not", s.binary("less", x, y)),
        lambda s, x, y: s.binary("greater_equal", x, y),
    ),
    "trichotomy": (
        lambda s, x, y: s.total([s.binary("less", x, y), s.binary("greater", x, y), s.binary("equal", x, y)]),
        lambda s, x, y: s.one,
    ),
}


@pytest.mark.parametrize("name", LAWS)
def test_laws_of_the_normal_form(name: str):
    s = Functions()
    left, right = LAWS[name]
    a, b = (side(s, _x(s), _x(s, "y")) for side in (left, right))
    assert s.equal(a, b), f"{s.text(a)} against {s.text(b)}"


def test_what_looks_alike_is_not_one_expression():
    s = Functions()
    x, y = _x(s), _x(s, "y")
    assert not s.equal(s.unary("sqrt", s.product(x, x)), x)
    assert not s.equal(s.unary("sqrt", s.total([x, y])), s.total([s.unary("sqrt", x), s.unary("sqrt", y)]))
    assert not s.equal(s.binary("less", x, y), s.binary("less_equal", x, y))
    assert not s.equal(s.largest([x, s.total([y, y])]), s.largest([s.total([x, x]), y]))
    assert not s.equal(s.binary("pow", s.binary("pow", x, y), y), s.binary("pow", x, s.product(y, y)))


def test_a_worker_that_loads_takes_no_time_of_the_first_e_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its share is shorter than loading takes, so that elements were compared where a few steps prove the pair."""
    before, after, inputs = PAIRS["convolutions: mul_conv1"]
    left, right = pairs.build(before, inputs), pairs.build(after, inputs)
    monkeypatch.setattr(prove, "compare", lambda *given: pytest.fail("elements are compared"))
    monkeypatch.setattr(prove, "_QUICK_SHARE", 0.02)
    saturate._WORKERS.end_idle()
    assert eqsat.prove(left, right, time_limit=20).method == "rules"


@pytest.mark.parametrize(
    ("dtype", "large"),
    [("float32", 1e8), ("float32", 1e30), ("float16", 4096.0), ("bfloat16", 2.0**9), ("float64", 2.0**54)],
)
def test_what_rounding_absorbs_is_no_proof(dtype: str, large: float) -> None:
    """x + large + 3 - large is x where large + 3 is folded: two such values of three would make everything equal."""
    spec = eqsat.spec((5,), dtype)
    n = np.dtype(dtype).type if dtype != "bfloat16" else ml_dtypes.bfloat16
    left = eqsat.trace(lambda x: eqsat.where(x > n(90), n(2) * x, x) + (x + n(large) + n(3) - n(large)), spec)
    right = eqsat.trace(lambda x: eqsat.where(x > n(90), n(3) * x, x) + (x + n(3)), spec)
    for certify in (False, True):
        assert eqsat.prove(left, right, time_limit=1.0, certify=certify).verdict != "proved"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("near", [2.0, 1 / 3, 1 / 8388480, 127 / 64, 4095 / 4096])
def test_neighbouring_numbers_stand_for_different_rationals(dtype: str, near: float) -> None:
    """Else x * 2 - x * 1.9999999 would be 0, and so would anything that it is multiplied by."""
    number = np.dtype(dtype).type
    run = [number(near)]
    for step in (0, 2, 0, 2, 0):
        run.append(np.nextafter(run[-1], number(step)))
    run += [np.nextafter(number(near), number(step)) for step in (0, 2)]
    distinct = {float(n) for n in run}
    assert len({rational(n, dtype == "float32") for n in distinct}) == len(distinct)


def test_products_with_neighbouring_numbers_are_not_proved_equal() -> None:
    spec = eqsat.spec((4,))
    below = float(np.nextafter(np.float32(2), np.float32(0)))
    difference = eqsat.trace(lambda x: (x * 2.0 - x * below) * 1e7, spec)
    assert eqsat.prove(difference, eqsat.trace(lambda x: x * 0.0, spec), time_limit=2.0).verdict != "proved"


def test_a_root_of_a_square_has_the_sign_of_no_factor() -> None:
    spec = eqsat.spec((5,))
    square = eqsat.trace(lambda x: eqsat.sqrt((x + 1e4) * (x + 1e4)), spec)
    assert eqsat.prove(square, eqsat.trace(lambda x: x + 1e4, spec), time_limit=4.0).verdict != "proved"
    assert eqsat.prove(square, eqsat.trace(lambda x: eqsat.abs(x + 1e4), spec), time_limit=4.0).verdict == "proved"


def test_a_proof_says_that_integers_fit_a_narrower_type() -> None:
    spec = eqsat.spec((4,), "int64")
    there_and_back = eqsat.trace(lambda x: x.astype("int32").astype("int64"), spec)
    proof = eqsat.prove(there_and_back, eqsat.trace(lambda x: x, spec))
    assert proof.verdict == "proved"
    assert "integers that do not overflow" in proof.reason


def _sign_of(x: Any) -> Any:
    """1, and -1 for x below -100, which no input is that is tried."""
    return eqsat.erf(x + 100.0)


def _root(*factors: Any) -> Any:
    product = factors[0]
    for factor in factors[1:]:
        product = product * factor
    return eqsat.sqrt(product)


# The sides are equal where all factors are positive, and differ where all are negative.
NEGATIVE_TOGETHER: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "two roots": (lambda a, b, c: _root(a, b) * _root(a, c), lambda a, b, c: a * _root(b, c)),
    "a quotient": (lambda a, b, c: _root(a / b) + 0.0 * c, lambda a, b, c: _root(a, b) / b + 0.0 * c),
    "negated factors": (lambda a, b, c: _root(-a) * _root(-b) + 0.0 * c, lambda a, b, c: 0.0 * c - _root(a, b)),
    "a common factor": (
        lambda a, b, c: _root(a, b + c) * _root(a, b),
        lambda a, b, c: a * _root(b, b + c),
    ),
    "halved logarithms": (
        lambda a, b, c: eqsat.exp(0.5 * eqsat.log(a * b) + 0.5 * eqsat.log(a * c)),
        lambda a, b, c: a * _root(b, c),
    ),
}


@pytest.mark.parametrize("name", NEGATIVE_TOGETHER)
def test_factors_of_a_root_may_be_negative_together(name: str) -> None:
    specs = [eqsat.spec((2,), "float64")] * 3
    left, right = (
        lower(eqsat.trace(lambda x, y, z, side=side: side(*map(_sign_of, (x, y, z))), *specs)).roots
        for side in NEGATIVE_TOGETHER[name]
    )
    assert not compare(left, right, {}, 5.0).equal


ROOTS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "of a product": (lambda x, y: _root(x) * _root(y), lambda x, y: _root(x, y)),
    "of a quotient": (lambda x, y: _root(x) / _root(y), lambda x, y: _root(x / y)),
    "reciprocal": (lambda x, y: 1.0 / _root(x) / _root(y), lambda x, y: eqsat.rsqrt(x * y)),
    "logarithm of a quotient": (lambda x, y: eqsat.log(x) - eqsat.log(y), lambda x, y: eqsat.log(x / y)),
    "squared": (lambda x, y: _root(x, y) * _root(x, y), lambda x, y: x * y),
    "absolute": (lambda x, y: eqsat.abs(x) * _root(x) * y, lambda x, y: x * _root(x) * y),
}


@pytest.mark.parametrize("name", ROOTS)
def test_roots_of_what_has_roots_are_roots_of_products(name: str) -> None:
    specs = [eqsat.spec((2,), "float64")] * 2
    left, right = (lower(eqsat.trace(side, *specs)).roots for side in ROOTS[name])
    assert compare(left, right, {}, 5.0).equal


def test_a_proof_says_which_rounding_it_took_as_equal() -> None:
    weights = np.array([[1.5, -2], [3, 1]], np.float32)
    folded = (weights * np.float32(3)).astype(np.float32) * np.float32(1 + 2**-22)
    spec = eqsat.spec((1, 2))
    proof = eqsat.prove(eqsat.trace(lambda x: (x @ weights) * 3, spec), eqsat.trace(lambda x: x @ folded, spec))
    assert (proof.verdict, "rounding of 1 constant" in proof.reason) == ("proved", True)


@pytest.mark.parametrize("power", [11, 23])
def test_numbers_beyond_floats_have_no_clear_sign(power: int) -> None:
    """Coefficients of normal forms are exact, and of any size."""
    sides = (lambda y: np.sin(y) ** 2, lambda y: 1 - np.cos(y) ** 2)
    pair = [
        eqsat.trace(lambda x, y, f=f: np.where((x * 1e30) ** power > y, f(y), y), *[eqsat.spec((2,), "float64")] * 2)
        for f in sides
    ]
    assert eqsat.prove(*pair, time_limit=4).verdict in ("proved", "unknown")


def _of_many(function: Callable[[Any], Any], elements: int = 1 << 30) -> Program:
    return eqsat.trace(function, eqsat.spec((elements,)))


def test_inputs_of_equal_programs_are_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eqsat.proof.values.points.drawn", None)
    program = _of_many(eqsat.tanh, 1 << 10)
    assert eqsat.prove(program, program)


def test_inputs_that_take_too_much_memory_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eqsat.proof.prove.memory_limit", lambda given: 1 << 34)
    monkeypatch.setattr("eqsat.proof.values.points.drawn", None)
    proof = eqsat.prove(_of_many(eqsat.tanh), _of_many(lambda x: -eqsat.tanh(-x)), time_limit=2)
    assert proof.verdict == "unknown"
    assert "no inputs were tried: they and the outputs take 34 GB, and" in proof.reason
    assert eqsat.prove(_of_many(lambda x: x + x), _of_many(lambda x: 2 * x))  # rules need no inputs


def test_inputs_that_take_too_long_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eqsat.proof.prove.memory_limit", lambda given: 1 << 50)
    monkeypatch.setattr("eqsat.proof.values.points.drawn", None)
    proof = eqsat.prove(_of_many(eqsat.tanh), _of_many(lambda x: -eqsat.tanh(-x)), time_limit=2)
    assert proof.verdict == "unknown"
    assert "no inputs were tried: to draw and compute them may take 86 s" in proof.reason


def test_integers_that_wrap_around_are_not_called_rounding() -> None:
    spec = eqsat.spec((3,), "int64")
    pair = eqsat.trace(lambda i: i.astype("uint8").astype("int64"), spec), eqsat.trace(lambda i: i, spec)
    proof = eqsat.prove(*pair, time_limit=4)
    assert proof.verdict == "unknown"
    assert "within rounding" not in proof.reason
    assert "integers may wrap around" in proof.reason


def test_what_numpy_raises_for_the_caller_is_no_matter():
    k = np.array([1e-300, 1.0])
    left = eqsat.trace(lambda x: (x, eqsat.tanh(eqsat.full_like(x, 1) * k)), eqsat.spec(2, "float64"))
    right = eqsat.trace(lambda x: (x, eqsat.tanh(x * 0 + k)), eqsat.spec(2, "float64"))
    with np.errstate(all="raise"):
        assert eqsat.prove(left, right, 5.0)
        assert eqsat.optimize(left, time_limit=1.0).program
