"""Functions under `jit`: when they are compiled, and what they return."""

from __future__ import annotations

import pickle
import sys
from array import array
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import eqsat

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4))
Y = RNG.standard_normal((4,))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was handed to the optimiser, which here leaves programs as they are."""
    import types

    seen: list[Any] = []

    def optimize(program: Any, **options: Any) -> Any:
        seen.append((program, options))

        def run(*arrays: Any) -> Any:
            results = tuple(program.run(dict(zip(program.input_names, arrays, strict=True))).values())
            return results[0] if len(results) == 1 else results

        return types.SimpleNamespace(compile=lambda on: run)

    module = types.ModuleType("eqsat.pipeline.optimize")
    module.optimize = optimize  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "eqsat.pipeline.optimize", module)
    return seen


def test_jit_compiles_once_per_shapes_and_dtypes(compiled: list[Any]) -> None:
    @eqsat.jit(device="h100", time_limit=3)
    def f(x: Any, y: Any, k: int = 2) -> Any:
        """Doc."""
        return x * k + y

    for _ in range(2):
        np.testing.assert_allclose(f(X, Y), X * 2 + Y)
        np.testing.assert_allclose(f(Y, y=Y), Y * 3)
        np.testing.assert_allclose(f(X.astype(np.float32), Y), X.astype(np.float32) * 2 + Y)
        np.testing.assert_allclose(f(X, Y, k=3), X * 3 + Y)
    assert len(compiled) == 4
    assert compiled[0][1] == {"device": "h100", "time_limit": 3, "measure": False}
    assert (f.__name__, f.__doc__) == ("f", "Doc.")
    assert f.trace(X, Y).input_names == ["x", "y"]


@pytest.mark.parametrize(
    "form",
    [lambda x: x, lambda x: (x, 2 * x), lambda x: [x, x], lambda x: (x,), lambda x: {"a": x, "b": -x}],
)
def test_jit_returns_what_the_function_returns(form: Callable[..., Any], compiled: list[Any]) -> None:
    expected, got = form(Y), eqsat.jit(form)(Y)
    assert type(got) is type(expected)
    assert str(got) == str(expected)


class Pair(NamedTuple):
    a: Any
    b: Any


def test_jit_returns_named_tuples(compiled: list[Any]) -> None:
    found = eqsat.jit(lambda x: Pair(x, x + 1))(Y)
    assert type(found) is Pair
    np.testing.assert_array_equal(found.b, Y + 1)


class Scale:
    def __init__(self, by: float) -> None:
        self.by = by

    @eqsat.jit
    def __call__(self, x: Any) -> Any:
        return x * self.by


@pytest.mark.parametrize("value", [[1.0, 2.0], {1.0}, (1, [2]), array("f", [1.0])], ids=repr)
def test_arguments_that_may_change_are_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="which may change: give a NumPy array or a tuple"):
        eqsat.jit(lambda x, y: x * y)(np.ones(2), value)


def test_jit_makes_methods(compiled: list[Any]) -> None:
    two, three = Scale(2), Scale(3)
    for _ in range(2):
        np.testing.assert_array_equal(two.__call__(Y), Y * 2)
        np.testing.assert_array_equal(three(Y), Y * 3)
    assert len(compiled) == 2
    assert pickle.loads(pickle.dumps(Scale.__call__)) is Scale.__call__


@pytest.mark.parametrize("numbers", [(0.0, -0.0), (True, 1, 1.0), (1.0, np.float32(1)), (0j, -0j, complex(0, -0.0))])
@pytest.mark.parametrize("wrapped", [lambda n: (n,), lambda n: (1, (n, "a")), lambda n: frozenset({n})])
def test_jit_tells_constants_apart_that_compare_equal(
    numbers: tuple[Any, ...], wrapped: Callable[[Any], Any], compiled: list[Any]
) -> None:
    seen: list[Any] = []
    f = eqsat.jit(lambda x, c: seen.append(c) or x)
    for _ in range(2):
        for number in numbers:
            f(Y, wrapped(number))
    assert str(seen) == str(list(map(wrapped, numbers)))


def test_jit_divides_by_the_zero_that_it_is_given(compiled: list[Any]) -> None:
    f = eqsat.jit(lambda x, c: x / c)
    with np.errstate(divide="ignore"):
        for zero in (0.0, -0.0):
            np.testing.assert_array_equal(f(Y, zero), Y / zero)


def test_jit_compiles_once_for_a_constant_that_is_no_number(compiled: list[Any]) -> None:
    f = eqsat.jit(lambda x, c: x * c[0])
    for _ in range(3):
        f(Y, (float("nan"),))
    assert len(compiled) == 1
