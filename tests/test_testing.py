"""The Hypothesis strategy draws every operator and shrinks; the comparison catches differences."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from eqsat.errors import EqsatError
from eqsat.program import composites, ops
from eqsat.program.ir import Program
from eqsat.program.term import Term
from eqsat.testing import STEPS, assert_equivalent, programs, random_inputs, shapes

QUIET = settings(max_examples=200, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])


def smallest(strategy: st.SearchStrategy[Program], condition: Callable[[Program], bool]) -> Program:
    return find(strategy, condition, settings=QUIET)


@pytest.mark.parametrize("name", sorted(STEPS))
def test_every_operator_can_be_asked_for(name: str) -> None:
    unshrunk = settings(QUIET, phases=[Phase.generate])
    assert find(programs(only={name}), lambda p: any(t.op == name for t in p.terms()), settings=unshrunk)


@settings(max_examples=40)
@given(programs(only={"matmul", "add"}, dtypes=("float16",), max_ops=3, max_rank=3, max_dim=2))
def test_programs_keep_to_what_was_asked_for(p: Program) -> None:
    assert {t.op for t in p.terms()} <= {"matmul", "add", "transpose", "broadcast", "input", "constant", "full"}
    assert {t.dtype for t in p.terms()} == {"float16"}
    for t in p.inputs:
        assert t.ndim <= 4


@settings(max_examples=40)
@given(programs(max_ops=6))
def test_no_generated_value_is_infinite_or_nan(p: Program) -> None:
    for output, values in p.run(random_inputs(p), "float64").items():
        if p.outputs[output].op != "pool":  # an all-padding window has maximum -inf
            assert not np.isnan(values.astype(float)).any()


def test_empty_dims_appear_only_when_asked_for() -> None:
    assert smallest(programs(empty=True), lambda p: any(t.size == 0 for t in p.terms()))
    with pytest.raises(NoSuchExample):
        smallest(programs(max_ops=2), lambda p: any(t.size == 0 for t in p.inputs))


def test_programs_shrink_to_a_readable_one() -> None:
    p = smallest(programs(), lambda p: any(t.op == "matmul" for t in p.terms()))
    assert len(p.terms()) <= 4
    assert max(t.size for t in p.terms()) <= 2


def test_an_operator_that_does_not_exist_is_refused() -> None:
    with pytest.raises(EqsatError, match="only takes names among"):
        programs(only={"matmull"})


@given(shapes(1, 3, max_dim=2))
def test_shapes_are_bounded(shape: tuple[int, ...]) -> None:
    assert 1 <= len(shape) <= 3
    assert set(shape) <= {1, 2}


# assert_equivalent

X = ops.input("x", (2, 3))
I = ops.input("i", (3,), "int64")


def of(term: Term, name: str = "y", x: Term = X) -> Program:
    return Program((x,), {name: term})


@pytest.mark.parametrize(
    ("p", "q", "message"),
    [
        (of(X), of(composites.shifted(X, 1e-3)), r"output 'y' differs by up to 0\.001 \(seed 0\): at \(0, 0\)"),
        (of(X), of(X, "z"), r"called \['y'\] and \['z'\]"),
        (of(X), of(ops.transpose(X)), r"shape \(3, 2\), not \(2, 3\)"),
        (of(ops.amax(X, 0)), of(ops.argmax(X, 0)), "dtype int64, not float64"),
        (of(I, x=I), of(ops.min_(I, ops.full(3, (3,), "int64")), x=I), "output 'y' differs by up to 1"),
        (of(X), of(ops.input("w", (2, 3)), x=ops.input("w", (2, 3))), r"called \['x'\] and \['w'\]"),
        (of(X), of(ops.input("x", (3,)), x=ops.input("x", (3,))), "the inputs differ in shape or dtype"),
        (of(X), of(ops.div(X, ops.sub(X, X))), "output 'y' differs"),
    ],
)
def test_a_difference_is_found_and_described(p: Program, q: Program, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        assert_equivalent(p, q, points=8)


@pytest.mark.parametrize(
    ("p", "q"),
    [
        (of(ops.add(X, X)), of(composites.scaled(X, 2))),
        (of(ops.sum_(X)), of(ops.sum_(ops.sum_(X, 0)))),
        (of(ops.sqrt(X)), of(ops.sqrt(X))),  # NaN equals NaN
        (of(ops.exp(composites.scaled(X, 100))), of(ops.exp(ops.add(*[composites.scaled(X, 50)] * 2)))),
    ],
)
def test_equal_meanings_are_accepted(p: Program, q: Program) -> None:
    assert_equivalent(p, q)


def test_native_precision_sees_roundings() -> None:
    third = of(composites.scaled(ops.cast(ops.cast(X, "bfloat16"), "float32"), 1.0))
    assert_equivalent(of(X), third)
    with pytest.raises(AssertionError, match="differs"):
        assert_equivalent(of(X), third, precision="native")


def test_a_failing_property_is_reported_with_its_program() -> None:
    @settings(QUIET, phases=[Phase.generate])
    @given(programs(only={"exp"}, dtypes=("float32",)))
    def exp_is_identity(p: Program) -> None:
        assert_equivalent(p, Program(p.inputs, {n: t.args[0] if t.op == "exp" else t for n, t in p.outputs.items()}))

    with pytest.raises(AssertionError, match="differs"):
        exp_is_identity()
