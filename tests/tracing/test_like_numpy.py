"""Traced functions of one and two arrays, for all dtypes: NumPy's result in NumPy's dtype, or a refusal."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.errors import InputError
from eqsat.tracing.functions import FUNCTIONS

DTYPES = ("bool", "int8", "uint8", "int32", "int64", "uint64", "float16", "float32", "float64")

ARRAYS: dict[str, np.ndarray] = {
    dtype: np.array([[0, sign, 2], [3, sign * 5, 7], [4, 1, sign * 2]]).astype(dtype)
    for dtype in DTYPES
    for sign in [1 if dtype[0] in "bu" else -1]
}
ENDS = {
    dtype: np.array([*range(-4, 5), least, least + 1, least // 2, -(least + 1) // 2, -(least + 1)], dtype)
    for dtype in ("int32", "int64")
    for least in [np.iinfo(dtype).min]
}
"""Small integers, and those near the ends of their type."""

SPECIAL = np.array([[np.nan, np.inf, -np.inf], [-0.0, 0.3, -2.5], [1.0, -0.5, 0.0]])

Call = tuple[str, Callable[..., Any], Callable[..., Any]]
"""A name, the traced function and NumPy's."""

SAME: dict[int, dict[str, Callable[..., Any]]] = {
    1: {
        **{name: getattr(operator, name) for name in ("pos", "neg", "abs", "invert")},
        "x ** 2": lambda x: x**2,
        "np.dot(x, 2)": lambda x: np.dot(x, 2),
        "x.dot(2.0)": lambda x: x.dot(2.0),
        "np.dot(True, x)": lambda x: np.dot(True, x),
        "np.einsum('ij,->ij', x, 2)": lambda x: np.einsum("ij,->ij", x, 2),
        "np.stack([x[0, 0], 2])": lambda x: np.stack([x[0, 0], 2]),
        "np.stack([2.0, x[0, 0]])": lambda x: np.stack([2.0, x[0, 0]]),
        "np.hstack([x[0], 2])": lambda x: np.hstack([x[0], 2]),
        "x.reshape(np.int64(9)).sum(keepdims=1)": lambda x: x.reshape(np.int64(9)).sum(keepdims=1),
        "x + True": lambda x: x + True,
        "x + 300": lambda x: x + 300,
        "x * 2.5": lambda x: x * 2.5,
        "x // -2": lambda x: x // -2,
        "7 // x": lambda x: 7 // x,
        "x // 0.7": lambda x: x // 0.7,
        "x % -3": lambda x: x % -3,
        "x & True": lambda x: x & True,
        "True | x": lambda x: True | x,
    },
    2: {
        **{
            name: getattr(operator, name) for name in ("and_", "or_", "xor", "add", "sub", "mul", "truediv", "floordiv")
        },
        **{name: getattr(operator, name) for name in ("mod", "eq", "ne", "lt", "le", "gt", "ge")},
        "np.clip(x, 7, y)": lambda x, y: np.clip(x, 7, y),
        "x.clip(y, 2.5)": lambda x, y: x.clip(y, 2.5),
    },
}
"""Python's operators, by the number of their arrays."""

OTHERS = frozenset({
    "broadcast_to", "clip", "einsum", "expand_dims", "full", "full_like", "ones", "pad", "reshape", "split", "take",
    "tile", "zeros",
})  # fmt: skip
"""Functions of more than arrays."""


def _calls(arrays: int) -> list[Call]:
    names = [name for name in sorted(FUNCTIONS) if hasattr(np, name) and _needed(FUNCTIONS[name]) == arrays]
    functions = [(name, FUNCTIONS[name], getattr(np, name)) for name in names if name not in OTHERS]
    return [*functions, *((name, f, f) for name, f in SAME[arrays].items())]


def _needed(function: Callable[..., Any]) -> int:
    """The number of parameters without a default."""
    parameters = inspect.signature(function).parameters.values()
    return sum(p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)


def _agrees(call: Call, *arrays: np.ndarray) -> bool:
    """Whether the call is traced; if it is, its result is NumPy's."""
    name, function, numpys = call
    try:
        program = eqsat.trace(lambda *xs: function(*xs), *arrays)
    except InputError:
        return False
    got = list(program.run(dict(zip(program.input_names, arrays, strict=True))).values())
    try:
        with np.errstate(all="ignore"):
            expected = numpys(*arrays)
    except ValueError:  # an integer has no negative power: the exponents are not known while it is traced
        return True
    for e, g in zip(expected if isinstance(expected, list | tuple) else [expected], got, strict=True):
        what = f"{name} of {' and '.join(str(a.dtype) for a in arrays)}"
        assert (g.dtype, g.shape) == (np.asarray(e).dtype, np.shape(e)), what
        tolerance = 4 * np.finfo(g.dtype).eps if g.dtype.kind == "f" else 0
        np.testing.assert_allclose(g, e, tolerance, tolerance, err_msg=what)
    return True


@pytest.mark.parametrize("call", _calls(1), ids=lambda call: call[0])
def test_of_one_array(call: Call) -> None:
    arrays = (*ARRAYS.values(), *(SPECIAL.astype(f) for f in ("float16", "float32", "float64")))
    traced = [_agrees(call, array) for array in arrays]
    assert any(traced)


@pytest.mark.parametrize("call", _calls(2), ids=lambda call: call[0])
def test_of_two_arrays(call: Call) -> None:
    pairs = [*((ARRAYS[a], ARRAYS[b][::-1]) for a, b in product(DTYPES, DTYPES)), (SPECIAL, SPECIAL[::-1])]
    traced = [_agrees(call, *pair) for pair in pairs]
    assert any(traced)


def test_a_clipped_array_has_the_common_type_of_array_and_bounds() -> None:
    arrays = [np.arange(-3, 4).astype(dtype) for dtype in ("bool", "int16", "uint16", "int32", "float16", "float32")]
    traced = [_agrees(("clip", np.clip, np.clip), *given) for given in product(arrays, repeat=3)]
    assert any(traced)


@pytest.mark.parametrize("dtype", ENDS)
def test_integers_near_the_ends_of_their_type_are_divided(dtype: str) -> None:
    given = ENDS[dtype]
    assert _agrees(("//", operator.floordiv, operator.floordiv), *np.meshgrid(given, given))
    for n in given.tolist():
        for function in (lambda x, n=n: x // n, lambda x, n=n: n // x):
            assert _agrees(("//", function, function), given)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_floored_quotient_of_zero_has_numpys_sign(dtype: str) -> None:
    given = np.array([0.0, -0.0, 0.5, -0.5, 3.0, -3.0, np.inf, -np.inf], dtype)
    x, y = np.meshgrid(given, given)
    got = eqsat.trace(lambda x, y: x // y, x, y).run({"x": x, "y": y})["out"]
    with np.errstate(all="ignore"):
        expected = x // y
    assert (np.signbit(got) == np.signbit(expected))[expected == 0].all()
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.sum(x, axis=[0]),
        lambda x: x.max(True),
        lambda x: x.mean((True,)),
        lambda x: x.argmax(axis=(0,)),
        lambda x: np.squeeze(x[None], [0]),
        lambda x: np.concatenate([x, x], True),
        lambda x: x.take(0, True),
        lambda x: x.sum(keepdims="no"),
        lambda x: x.var(keepdims=None),
        lambda x: x.min(keepdims=np.True_),
        lambda x: x.transpose(()),
        lambda x: x.transpose(True, 0),
        lambda x: x.reshape(True, 12),
        lambda x: np.broadcast_to(x, (True, 3, 4)),
    ],
)
def test_what_numpy_refuses_is_refused(function: Callable[[Any], Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        function(np.ones((3, 4)))
    with pytest.raises((TypeError, InputError)):
        eqsat.trace(function, eqsat.spec((3, 4)))
