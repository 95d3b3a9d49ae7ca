"""Every operator's NumPy meaning against plain Python loops, at the edges of its domain, and in short floats."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat.base import numerics
from eqsat.base.numerics import ELEMENTWISE, FLOATS, HALVES, UNARY, Precision, Windows, conv, elementwise, erf, np_dtype
from eqsat.errors import DtypeError, InputError, ShapeError
from eqsat.program import ops
from eqsat.program.ir import Program
from eqsat.program.term import Term
from eqsat.testing import STEPS, programs, random_inputs
from support import naive

INF, NAN = math.inf, math.nan


def value(term: Term, precision: Precision = "native") -> np.ndarray[Any, Any]:
    """What a term without inputs is worth."""
    return Program((), {"y": term}).run({}, precision)["y"]


def test_every_operator_can_be_drawn() -> None:
    assert STEPS.keys() == ops.OPS.keys()


def test_every_operator_has_an_independent_reference() -> None:
    assert naive.UNARY.keys() | naive.BINARY.keys() == ELEMENTWISE.keys()
    assert naive.ELEMENT.keys() | {"input"} == ops.OPS.keys() - ELEMENTWISE.keys()


@pytest.mark.parametrize("name", sorted(STEPS))
@settings(max_examples=15)
@given(data=st.data())
def test_operator_means_what_plain_loops_compute(name: str, data: st.DataObject) -> None:
    dtypes = ("float32", "float64", "int32", "int64", "bool")
    p = data.draw(programs(only={name}, dtypes=dtypes, max_ops=2, max_dim=3, empty=True))
    inputs = random_inputs(p)
    expected = naive.run(p, inputs)
    for output, got in p.run(inputs, "float64").items():
        np.testing.assert_allclose(got, expected[output], rtol=1e-12, atol=1e-12)
    for term, got in zip(p.outputs.values(), p.run(inputs).values(), strict=True):
        assert (got.shape, got.dtype) == (term.shape, np_dtype(term.dtype))


SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-300, 1e300, -1e300, 710.0, -710.0, INF, -INF, NAN]


@pytest.mark.parametrize("name", sorted(n for n, row in UNARY.items() if "float" in row.kinds))
def test_unary_function_at_the_edges_of_its_domain(name: str) -> None:
    got = value(ops.elementwise(name, ops.constant(np.array(SPECIAL))))
    expected = np.array([naive.UNARY[name](x) for x in SPECIAL])
    finite = np.abs(np.array(SPECIAL)) < 1e5 if name in ("sin", "cos") else np.ones(len(SPECIAL), bool)
    np.testing.assert_allclose(got[finite], expected[finite], rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize(
    ("name", "a", "b", "expected"),
    [
        ("max", NAN, 1.0, NAN),
        ("max", 1.0, NAN, NAN),
        ("min", NAN, -INF, NAN),
        ("div", 1.0, 0.0, INF),
        ("div", 0.0, 0.0, NAN),
        ("div", -7, 2, -3),  # toward zero
        ("div", 7, -2, -3),
        ("div", -6, 2, -3),
        ("mod", -7, 3, 2),  # the divisor's sign
        ("mod", 7, -3, -2),
        ("mod", -7.5, 2.0, 0.5),
        ("pow", 2, -1, 0),  # the truncated reciprocal
        ("pow", -1, -3, -1),
        ("pow", -1, -2, 1),
        ("pow", -8.0, 1 / 3, NAN),
        ("pow", 0.0, 0.0, 1.0),
        ("equal", NAN, NAN, False),
        ("less", NAN, 1.0, False),
        ("greater_equal", INF, INF, True),
        ("equal", True, True, True),
    ],
)
def test_binary_function_at_the_edges(name: str, a: float, b: float, expected: float) -> None:
    got = value(ops.elementwise(name, ops.constant(np.array(a)), ops.constant(np.array(b))))
    np.testing.assert_equal(got.item(), expected)


@given(st.floats(-7, 7))
def test_erf_is_right_to_the_last_bits(x: float) -> None:
    assert abs(erf(np.array([x]))[0] - math.erf(x)) <= 4 * np.spacing(abs(math.erf(x)))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", ["add", "mul", "div", "exp", "erf", "tanh", "sigmoid"])
def test_halves_are_computed_in_float32_and_rounded_once(name: str, dtype: str) -> None:
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(200).astype(np_dtype(dtype)) for _ in range(2 if name in ops.BINARY else 1)]
    got = value(ops.elementwise(name, *map(ops.constant, args)))
    wide = value(ops.elementwise(name, *(ops.constant(a.astype(np.float32)) for a in args)))
    np.testing.assert_array_equal(got, wide.astype(np_dtype(dtype)))


@pytest.mark.parametrize("dtype", HALVES)
def test_sums_and_products_of_halves_accumulate_in_float32(dtype: str) -> None:
    ones = ops.full(1, (1, 5000), dtype)  # counting in bfloat16 would stop at 256, in float16 at 2048
    total = np.array(5000).astype(np_dtype(dtype))
    assert value(ops.sum_(ones)) == total
    assert value(ops.matmul(ones, ops.transpose(ones)))[0, 0] == total
    assert value(ops.conv(ops.reshape(ones, (1, 1, 5000)), ops.reshape(ones, (1, 1, 5000))))[0, 0, 0] == total
    assert value(ops.pool("sum", ops.reshape(ones, (1, 1, 5000)), (5000,)))[0, 0, 0] == total


def test_float64_precision_rounds_nothing() -> None:
    x = ops.constant(np.array([1.0, 2**-30], np.float32))
    assert value(ops.sum_(x)) == 1
    assert value(ops.sum_(x), "float64") == 1 + 2**-30
    assert value(ops.cast(ops.sum_(x), "bfloat16"), "float64") == 1 + 2**-30


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_wrap(dtype: str) -> None:
    top = int(np.iinfo(dtype).max)
    x = ops.full(top, (2,), dtype)
    np.testing.assert_array_equal(value(ops.add(x, x)), np.array([-2, -2]))
    assert value(ops.sum_(x)) == -2


@pytest.mark.parametrize(
    ("source", "target", "given_", "expected"),
    [
        ("float32", "int32", [1.9, -1.9, -0.5], [1, -1, 0]),
        ("float64", "float16", [1 + 2**-11, 1 + 3 * 2**-11, 1e6], [1, 1 + 2**-9, INF]),  # to nearest even
        ("float32", "bfloat16", [1 + 2**-8, 1 + 3 * 2**-8], [1, 1 + 2**-6]),
        ("float32", "bool", [0.0, -0.0, 0.1, NAN], [False, False, True, True]),
        ("bool", "float32", [True, False], [1, 0]),
        ("int64", "int32", [2**32 + 5], [5]),
    ],
)
def test_cast(source: str, target: str, given_: list[float], expected: list[float]) -> None:
    got = value(ops.cast(ops.constant(np.array(given_).astype(np_dtype(source))), target))
    np.testing.assert_array_equal(got.astype(np.float64), np.array(expected, np.float64))


def test_reductions_keep_nan_and_take_the_first_of_equals() -> None:
    x = ops.constant(np.array([3.0, NAN, 5.0, NAN]))
    assert np.isnan(value(ops.amax(x)))
    assert np.isnan(value(ops.amin(x)))
    assert value(ops.argmax(x, 0)) == 1
    assert value(ops.argmin(ops.constant(np.array([2, 1, 1])), 0)) == 1


def test_sums_over_nothing_are_zero_and_products_one() -> None:
    empty = ops.full(0, (2, 0))
    np.testing.assert_array_equal(value(ops.sum_(empty, 1)), np.zeros(2, np.float32))
    np.testing.assert_array_equal(value(ops.prod_(empty, 1)), np.ones(2, np.float32))
    np.testing.assert_array_equal(value(ops.matmul(empty, ops.full(0, (0, 3)))), np.zeros((2, 3), np.float32))


# Builders: equal programs in one form

X = ops.input("x", (4, 6))


@pytest.mark.parametrize(
    ("built", "same"),
    [
        (ops.transpose(X, (0, 1)), X),
        (ops.transpose(X), ops.transpose(X, (-1, 0))),
        (ops.reshape(X, (-1, 3)), ops.reshape(X, (8, 3))),
        (ops.reshape(X, (4, 6)), X),
        (ops.broadcast(X, (4, 6)), X),
        (ops.slice_(X, [0], [99]), X),
        (ops.slice_(X, [-2], [None]), ops.slice_(X, [2], [4])),
        (ops.slice_(X, [0], [6], [1], [2]), ops.slice_(X, [0], [5], [1], [2])),
        (ops.slice_(X, [1], [2], [1], [5]), ops.slice_(X, [1], [2], [1])),
        (ops.flip(X, 1), ops.slice_(X, [None], [None], [1], [-1])),
        (ops.squeeze(ops.unsqueeze(X, (0, -1))), X),
        (ops.transpose(ops.transpose(X)), X),
        (ops.concat([X], 0), X),
        (ops.pad(X, (0, 0), (0, 0)), X),
        (ops.pad(X, (-1, 0), (0, -2)), ops.slice_(X, [1, 0], [4, 4])),
        (ops.sum_(X, -1), ops.sum_(X, [1])),
        (ops.sum_(X), ops.sum_(X, (1, 0))),
        (ops.cast(X, "float32"), X),
        (ops.broadcast(ops.full(2.0), (3,)), ops.full(2.0, (3,))),
        (ops.full(0.1), ops.full(float(np.float32(0.1)))),
        (ops.gather(X, ops.constant([0]), -1), ops.gather(X, ops.constant([0]), 1)),
    ],
)
def test_equal_programs_are_the_same_term(built: Term, same: Term) -> None:
    assert built is same


def test_split_gives_consecutive_slices() -> None:
    left, right = ops.split(X, [2, 4], axis=1)
    assert (left.shape, right) == ((4, 2), ops.slice_(X, [2], [6], [1]))


# Errors: the rule and what it got

I64, B, U8 = ops.input("i", (4, 6), "int64"), ops.input("b", (4, 6), "bool"), ops.input("u", (4, 6), "uint8")
IMAGE = ops.input("m", (1, 4, 5))


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: ops.matmul(X, X), ShapeError, "matmul takes (..., m, k) @ (..., k, n), got (4, 6) @ (4, 6)"),
        (lambda: ops.matmul(ops.sum_(X), X), ShapeError, "matmul takes (..., m, k) @ (..., k, n), got () @ (4, 6)"),
        (lambda: ops.add(X, ops.sum_(X, 0)), ShapeError, "got (4, 6) and (6,): broadcast them first"),
        (lambda: ops.add(X, I64), DtypeError, "add takes operands of one dtype, got float32 and int64: cast one"),
        (lambda: ops.exp(I64), DtypeError, "exp takes float operands, got int64"),
        (lambda: ops.add(B, B), DtypeError, "add takes float or int operands, got bool"),
        (lambda: ops.where(X, X, X), DtypeError, "where takes a bool condition, got float32"),
        (lambda: ops.transpose(X, (0, 0)), ShapeError, "a permutation of 2 axes, got (0, 0) for (4, 6)"),
        (lambda: ops.reshape(X, (5, 5)), ShapeError, "got (4, 6) to (5, 5)"),
        (lambda: ops.reshape(X, (-1, 7)), ShapeError, "got (4, 6) to (-1, 7)"),
        (lambda: ops.broadcast(X, (4, 7)), ShapeError, "aligned right, got (4, 6) to (4, 7)"),
        (lambda: ops.make("slice", X, starts=(0, 0), stops=(5, 6), steps=(1, 1)), ShapeError, "inside the axis"),
        (lambda: ops.slice_(X, [0], [2], [0], [0]), ShapeError, "slice takes non-zero steps"),
        (lambda: ops.concat([X, ops.sum_(X, 0)]), ShapeError, "agree outside axis 0, got (4, 6) and (6,)"),
        (lambda: ops.concat([X, X], 2), ShapeError, "an axis of 2 dims lies in [-2, 2), got 2"),
        (lambda: ops.pad(X, (0, -4), (0, -3)), ShapeError, "takes away more than"),
        (lambda: ops.make("pad", X, lo=(-1, 0), hi=(0, 0), value=0.0), ShapeError, "a non-negative lo and hi per axis"),
        (
            lambda: ops.make("pad", X, lo=(2.5, 0), hi=(0, 0), value=0.0),
            ShapeError,
            "per axis, whole numbers, got (2.5, 0)",
        ),
        (lambda: ops.sum_(X, (0, 0)), ShapeError, "axes are distinct, got (0, 0)"),
        (lambda: ops.sum_(B), DtypeError, "sum takes float or int operands, got bool"),
        (lambda: ops.amax(ops.full(0, (2, 0)), 1), ShapeError, "max takes axes of at least one element"),
        (lambda: ops.reduce("argmax", X, (0, 1)), ShapeError, "argmax takes one axis, got (0, 1)"),
        (lambda: ops.gather(X, X), DtypeError, "gather takes int32 or int64 indices, got float32"),
        (lambda: ops.conv(IMAGE, ops.full(1, (2, 3, 1))), ShapeError, "got (1, 4, 5) and (2, 3, 1), groups 1"),
        (lambda: ops.conv(IMAGE, ops.full(1, (2, 4, 6))), ShapeError, "a window no larger than the padded axis"),
        (lambda: ops.pool("max", IMAGE, (2, 2)), ShapeError, "one kernel dim, stride, pad and dilation per spatial"),
        (lambda: ops.full(0.5, (), "int32"), InputError, "int32 cannot hold 0.5"),
        (lambda: ops.full(2**31, (), "int32"), InputError, "int32 cannot hold 2147483648"),
        (lambda: ops.full(1 + 2j, (), "float32"), InputError, "float32 cannot hold (1+2j)"),
        (lambda: ops.full(np.array(2j), (), "float32"), InputError, "float32 cannot hold 2j"),  # pyright: ignore
        (lambda: ops.input("x", (2,), "complex64"), DtypeError, "unsupported element type complex64"),
        (lambda: ops.add(U8, U8), DtypeError, "add takes float or int operands, got uint8: cast it first"),
        (lambda: ops.cast(U8, "float8_e5m2"), DtypeError, "cast takes element types of whole bytes that NumPy has"),
        (lambda: ops.gather(X, U8, 0), DtypeError, "gather takes int32 or int64 indices, got uint8"),
        (lambda: ops.constant(np.zeros(2, complex)), DtypeError, "unsupported element type complex128"),
        (lambda: ops.make("matmull", X, X), InputError, "unknown operator 'matmull': did you mean matmul"),
        (lambda: ops.make("matmul", X), InputError, "matmul takes 2 operands, got 1"),
        (lambda: ops.make("concat", axis=0), InputError, "concat takes at least 1 operands, got 0"),
        (lambda: ops.make("reshape", X), InputError, "reshape takes attributes shape, got"),
        (lambda: value(ops.gather(ops.constant([1.0, 2.0]), ops.constant([2]))), InputError, "indices in [-2, 2)"),
    ],
)
def test_error_states_the_rule_and_what_it_got(build: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        build()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("term", "flops"),
    [
        (ops.matmul(X, ops.transpose(X)), 2 * 4 * 6 * 4),
        (ops.exp(X), 24),
        (ops.sum_(X, 0), 24),
        (ops.conv(IMAGE, ops.input("w", (6, 2, 3)), groups=2), 2 * (6 * 3) * (2 * 3)),
        (ops.pool("max", IMAGE, (3,)), 4 * 3 * 3),
        (ops.concat([X, X]), 0),
        (ops.transpose(X), 0),
    ],
)
def test_flops(term: Term, flops: int) -> None:
    assert ops.row(term.op).flops(term) == flops


def test_float_constants_are_rounded_to_nearest() -> None:
    for dtype in FLOATS:
        held = Fraction(ops.full(0.1, (), dtype).attr("value"))
        step = Fraction(float(ml_dtypes.finfo(np_dtype(dtype)).eps)) / 8
        assert abs(held - Fraction(1, 10)) <= step / 4


@pytest.mark.parametrize("name", [name for name, row in ELEMENTWISE.items() if "float" in row.kinds])
def test_equal_values_give_equal_bits_however_they_lie_in_memory(name: str) -> None:
    """NumPy has other code for operands that run backwards or repeat one element; its last bits differ."""
    rng = np.random.default_rng(0)
    base = 1 + np.abs(rng.standard_normal(400))
    two = np.full(400, 2.0)
    operands = [base] if name in UNARY else [base, two]
    want = elementwise(name, *operands)
    backwards = elementwise(name, *(x[::-1] for x in operands))[::-1]
    np.testing.assert_array_equal(backwards, want)
    one_by_one = [elementwise(name, *(np.asarray(v) for v in values)) for values in zip(*operands, strict=True)]
    np.testing.assert_array_equal(one_by_one, want)
    if name not in UNARY:
        np.testing.assert_array_equal(elementwise(name, base, np.broadcast_to(2.0, 400)), want)
        assert elementwise(name, base[:1], np.broadcast_to(2.0, 1)) == want[:1]


@pytest.mark.parametrize("repeated", ["image", "weights"])
def test_a_convolution_adds_up_repeated_values_as_it_does_others(repeated: str):
    """A view of one number and an array of it give the same bits."""
    rng = np.random.default_rng(0)
    image, weights = rng.standard_normal((1, 4, 3)), rng.standard_normal((4, 2, 3))
    how = Windows((2,), (0,), (0,), (1,))
    one = np.broadcast_to(np.float64(0.1), (image if repeated == "image" else weights).shape)
    given = [(one, weights), (one.copy(), weights)] if repeated == "image" else [(image, one), (image, one.copy())]
    first, second = (conv(x, w, how, 2) for x, w in given)
    assert first.tobytes() == second.tobytes()


def test_a_convolution_of_many_groups_is_that_of_each_group(monkeypatch: pytest.MonkeyPatch):
    """However many groups are read at once, each gives the same bits."""
    rng = np.random.default_rng(0)
    image, weights = rng.standard_normal((2, 10, 9, 8)), rng.standard_normal((15, 2, 3, 3))
    how = Windows((2, 1), (1, 1), (1, 0), (1, 2))
    want = np.concatenate([conv(image[:, 2 * g : 2 * g + 2], weights[3 * g : 3 * g + 3], how, 1) for g in range(5)], 1)
    for nbytes in (1, 30_000, 1 << 20):
        monkeypatch.setattr(numerics, "_WINDOW_BYTES", nbytes)
        assert np.ascontiguousarray(conv(image, weights, how, 5)).tobytes() == np.ascontiguousarray(want).tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "bool"])
@pytest.mark.parametrize("kernel", [(2, 3), (7, 6)])
def test_the_largest_of_small_and_large_windows(dtype: str, kernel: tuple[int, int]):
    image = np.random.default_rng(0).standard_normal((2, 3, 9, 8)).astype(np_dtype(dtype))
    if dtype.startswith("float"):
        image[0, 0, 4, 4] = np.nan
    how = Windows((2, 1), (1, 0), (0, 1), (1, 1))
    found = numerics.pool("max", image, kernel, how)
    want = numerics.windows(image, kernel, how, numerics.lowest(dtype)).max(axis=(4, 5))
    assert found.dtype == image.dtype
    np.testing.assert_array_equal(found, want)
