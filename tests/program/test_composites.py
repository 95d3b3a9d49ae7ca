"""Expanded operators against their formulas, with broadcasting, in halves, and at the edges of pools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat.base import numerics
from eqsat.base.numerics import HALVES, np_dtype
from eqsat.errors import InputError, ShapeError
from eqsat.program import composites, ops
from eqsat.program.ir import Program
from eqsat.program.term import Term

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 4))
V = RNG.standard_normal((3,))
N = RNG.integers(-9, 10, (3, 4))
D = RNG.integers(1, 4, (4,))
ENDS = np.array([-(2**31), 2**31 - 1, -7, 7], np.int32)


def value(term: Term, precision: Any = "native") -> np.ndarray[Any, Any]:
    return Program((), {"y": term}).run({}, precision)["y"]


C = ops.constant


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (composites.fmod(C(N), C(D)), np.fmod(N, D)),
        (composites.fmod(C(X), C(X[0, 0])), np.fmod(X, X[0, 0])),
        (composites.floor_div(C(ENDS), C(ENDS[:, None])), ENDS // ENDS[:, None]),
        (composites.clip(C(X), hi=0.5), np.minimum(X, 0.5)),
        (composites.clip(C(X), C(X[0]), 1), np.minimum(np.maximum(X, X[0]), 1)),
        (composites.clip(C(X), 1, 0), np.zeros_like(X)),  # the upper bound wins
        (composites.hard_sigmoid(C(X)), np.clip(0.2 * X + 0.5, 0, 1)),
        (composites.leaky_relu(C(X), 0.0), np.maximum(X, 0)),
        (composites.leaky_relu(C(X), -1.0), np.abs(X)),
        (composites.mean(C(N), 0), np.trunc(N.sum(0) / 3)),
        (composites.mean(ops.full(0, (2, 0)), 1), np.full(2, np.nan)),
        (composites.norm2(C(X), (0, 2)), np.sqrt((X * X).sum((0, 2)))),
        (composites.var(C(X), -1, True), X.var(-1, keepdims=True)),
        (composites.not_equal(C(N), C(N[0])), np.not_equal(N, N[0])),
        (composites.tile(C(X), (2, 1, 1, 3)), np.tile(X, (2, 1, 1, 3))),
        (composites.tile(C(X), (3,)), np.tile(X, (3,))),
        (composites.matmul(C(X), C(X[0].T)), X @ X[0].T),
        (composites.matmul(C(V), C(X)), V @ X),
        (composites.matmul(C(X[0].T), C(V)), X[0].T @ V),
        (composites.matmul(C(V), C(V)), V @ V),
        (composites.global_avg_pool(C(X)), X.mean(2, keepdims=True)),
        (
            composites.layernorm(C(X), axis=1, epsilon=0.1),
            (X - X.mean((1, 2), keepdims=True)) / np.sqrt(X.var((1, 2), keepdims=True) + 0.1),
        ),
        (
            composites.batchnorm(C(X), C(V), C(-V), C(V + 1), C(V * V), 0.1),
            (X - (V + 1)[:, None]) / np.sqrt(V * V + 0.1)[:, None] * V[:, None] - V[:, None],
        ),
    ],
)
def test_expansion_is_its_formula(term: Term, expected: np.ndarray[Any, Any]) -> None:
    got = value(term)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_remainder_of_floats_is_that_of_c(dtype: str) -> None:
    edges = np.array([0, -0.0, 1, -3, 0.7, -5.5, 1e-7, 6e4, np.inf, -np.inf, np.nan], dtype)
    got = value(composites.fmod(C(edges), C(edges[:, None])))
    with np.errstate(all="ignore"):
        expected = np.fmod(edges, edges[:, None])
    np.testing.assert_array_equal(got, expected)
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(expected[number]))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_the_remainder_of_integers_is_that_of_c(dtype: str) -> None:
    ends = np.iinfo(dtype)
    edges = np.array([ends.min, ends.min + 1, ends.max, -7, -1, 1, 3], dtype)
    got = value(composites.fmod(C(edges), C(edges[:, None])))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got, np.fmod(edges, edges[:, None]))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    "layer",
    [
        composites.mean,
        composites.var,
        composites.layernorm,
        composites.rmsnorm,
        composites.softmax,
        lambda x: composites.avg_pool(ops.reshape(x, (1, 2, -1)), (2048,)),
    ],
)
def test_halves_lose_no_more_than_their_own_rounding(layer: Callable[[Term], Term], dtype: str) -> None:
    x = (RNG.standard_normal((2, 2048)) * 100 + 300).astype(np_dtype(dtype))  # sums beyond float16's range
    expected = value(layer(C(x.astype(np.float64))))
    got = value(layer(C(x)))
    assert got.dtype == x.dtype
    eps = float(ml_dtypes.finfo(x.dtype).eps)
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=2 * eps, atol=2e-3 * np.abs(expected).max())


def naive_average(x: np.ndarray[Any, Any], k: int, s: int, lo: int, hi: int, counted: tuple[int, int]) -> list[float]:
    """Average pooling of one line, element by element."""
    out = []
    for start in range(-lo, len(x) + hi - k + 1, s):
        places = range(start, start + k)
        count = sum(-counted[0] <= i < len(x) + counted[1] for i in places)
        out.append(sum(x[i] for i in places if 0 <= i < len(x)) / count)
    return out


@pytest.mark.parametrize(
    ("k", "s", "lo", "hi", "counted"),
    [
        (3, 1, 0, 0, (0, 0)),
        (3, 1, 1, 1, (0, 0)),  # padding does not count
        (3, 1, 1, 1, (1, 1)),  # it does
        (3, 2, 1, 2, (1, 1)),  # what rounding the size up adds at the end does not
        (2, 2, 0, 1, (0, 0)),
    ],
)
def test_average_pool_counts_what_it_is_told_to(k: int, s: int, lo: int, hi: int, counted: tuple[int, int]) -> None:
    line = X[0, 0]
    pooled = composites.avg_pool(C(line.reshape(1, 1, 4)), (k,), (s,), (lo,), (hi,), None, counted[:1], counted[1:])
    np.testing.assert_allclose(value(pooled)[0, 0], naive_average(line, k, s, lo, hi, counted))


def test_average_pool_counts_with_gaps_between_the_elements_of_a_window() -> None:
    x = RNG.standard_normal((1, 1, 5, 7))
    pooled = value(composites.avg_pool(C(x), (3, 2), (2, 1), (3, 1), (2, 4), (2, 3)))
    how = numerics.Windows((2, 1), (3, 1), (2, 4), (2, 3))
    held = numerics.pool("sum", np.ones_like(x), (3, 2), how)
    total = numerics.pool("sum", x, (3, 2), how)
    np.testing.assert_allclose(pooled[held > 0], (total / np.maximum(held, 1))[held > 0])


def test_an_average_of_huge_windows_is_counted_by_arithmetic() -> None:
    x = ops.input("x", (1, 1, 16))
    pooled = composites.avg_pool(x, (10**6,), None, (10**6,), (10**6,))  # 10^12 elements of windows
    assert pooled.shape == (1, 1, 10**6 + 17)
    far, pad = 2**63 - 1, ((2**62 - 1,), (2**62 - 1,))  # more than 64 bits hold
    assert composites.avg_pool(x, (far,), None, *pad, None, *pad).shape == (1, 1, 16)


def test_padding_that_always_counts_is_one_scale() -> None:
    x = ops.input("x", (1, 2, 8, 8))
    ones = (1, 1)
    assert composites.avg_pool(x, (3, 3), None, ones, ones, None, ones, ones).args[1].op == "full"


@st.composite
def contractions(draw: Callable[[st.SearchStrategy[Any]], Any]) -> tuple[str, list[tuple[int, ...]]]:
    """An equation of some operands and their shapes."""
    sizes = {c: draw(st.integers(1, 3)) for c in "abcde"}
    some_labels = st.lists(st.sampled_from("abcde"), unique=True, max_size=4)
    operands = draw(st.lists(some_labels, min_size=1, max_size=4))
    used = sorted({c for labels in operands for c in labels})
    out = draw(st.permutations(draw(st.lists(st.sampled_from(used), unique=True)) if used else []))
    sources = ",".join("".join(labels) for labels in operands)
    return f"{sources}->{''.join(out)}", [tuple(sizes[c] for c in labels) for labels in operands]


@settings(max_examples=300)
@given(contractions())
def test_einsum_is_numpys(case: tuple[str, list[tuple[int, ...]]]) -> None:
    equation, shapes = case
    arrays = [np.asarray(RNG.standard_normal(s)) for s in shapes]
    got = value(composites.einsum(equation, *map(C, arrays)))
    np.testing.assert_allclose(got, np.einsum(equation, *arrays), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("...ij,...jk", [(2, 3, 4), (4, 5)]),
        ("...ij,jk->...ki", [(2, 1, 3, 4), (4, 5)]),
        ("i...,i...->...", [(3, 2, 1), (3, 4)]),
        ("b...,b...->b...", [(3, 1, 2), (3, 4, 1)]),
        ("ij->j", [(3, 4)]),
        ("ij -> ji", [(3, 4)]),
        ("i,i", [(3,), (3,)]),
        ("ba", [(3, 4)]),
        ("...i,...ij,j...->...", [(2, 3), (1, 3, 4), (4, 1)]),
    ],
)
def test_einsum_with_an_ellipsis_or_an_implicit_result(equation: str, shapes: list[tuple[int, ...]]) -> None:
    rng = np.random.default_rng(0)  # its own: how much of RNG the generated cases have drawn differs from run to run
    arrays = [rng.standard_normal(s) for s in shapes]
    got = value(composites.einsum(equation, *map(C, arrays)))
    np.testing.assert_allclose(got, np.einsum(equation, *arrays), rtol=1e-12)


@pytest.mark.parametrize(
    ("equation", "ops_used"),
    [
        ("ij,jk->ik", {"matmul"}),
        ("bij,bjk->bik", {"matmul"}),
        ("ij,kj->ik", {"matmul", "transpose"}),
        ("i,j->ij", {"reshape", "broadcast", "mul"}),
        ("ij,jk,kl->il", {"matmul"}),
    ],
)
def test_einsum_adds_nothing_that_is_not_needed(equation: str, ops_used: set[str]) -> None:
    sources = equation.split("->")[0].split(",")
    operands = tuple(ops.input(f"x{i}", (2,) * len(labels)) for i, labels in enumerate(sources))
    used = {t.op for t in Program(operands, {"y": composites.einsum(equation, *operands)}).terms()}
    assert used - {"input"} == ops_used


Y = ops.input("y", (2, 3, 4))


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: composites.matmul(Y, Y), ShapeError, "got (2, 3, 4) @ (2, 3, 4)"),
        (lambda: composites.matmul(Y, C(np.ones((5, 4, 1), np.float32))), ShapeError, "leading dims that broadcast"),
        (lambda: composites.matmul(Y, ops.full(1)), ShapeError, "at least one dim, got (2, 3, 4) @ ()"),
        (lambda: composites.add(Y, C(np.ones(3, np.float32))), ShapeError, "equal or 1, aligned right"),
        (lambda: composites.einsum("a,b,c->abc", Y, Y, Y), InputError, "labels 'a' for an operand of 3 dims"),
        (lambda: composites.einsum("abc,abc", Y), InputError, "takes 2 operands, got 1"),
        (lambda: composites.einsum("abc->ad", Y), InputError, "labels that the operands have"),
        (lambda: composites.einsum("aab->b", Y), InputError, "each once per operand"),
    ],
)
def test_error_states_the_rule(build: Callable[[], Term], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        build()
    assert message in str(caught.value)


def test_an_average_over_too_many_windows_is_refused_before_they_are_counted() -> None:
    x = ops.input("x", (1, 1, 4, 4))
    with pytest.raises(InputError, match="at most 2147483647"):
        composites.avg_pool(x, (3, 3), None, (2 * 10**9,) * 2, (2 * 10**9,) * 2, (10**9,) * 2)
    with pytest.raises(InputError, match="computed ahead of time"):
        composites.avg_pool(ops.input("x", (1, 1, 4)), (3,), None, (10**8,), (10**8,))


def test_windows_without_padding_are_not_counted() -> None:
    x = ops.input("x", (1, 1, 2**31 - 1))
    pooled = composites.avg_pool(x, (2,))
    assert not any(t.op == "constant" for t in Program((x,), {"y": pooled}).terms())


def test_shares_of_many_windows_are_computed_where_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    x = ops.input("x", (1, 2, 7, 9))
    how = ((3, 2), None, (1, 0), (1, 1))
    whole = Program((x,), {"y": composites.avg_pool(x, *how)})
    monkeypatch.setattr(composites, "FOLDED", 8)
    parts = Program((x,), {"y": composites.avg_pool(x, *how)})
    assert max(t.size for t in parts.terms() if t.op == "constant") <= 9
    given = {"x": np.random.default_rng(0).standard_normal(x.shape).astype(np.float32)}
    np.testing.assert_allclose(parts.run(given)["y"], whole.run(given)["y"], rtol=1e-6, atol=1e-6)
