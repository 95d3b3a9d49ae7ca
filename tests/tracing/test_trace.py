"""Traced functions compute what NumPy computes: each case is one function, run on arrays and then traced."""

from __future__ import annotations

import operator
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.base import numerics
from eqsat.errors import DtypeError, InputError, NoAttributeError, ShapeError
from eqsat.tracing import functions
from eqsat.tracing.expression import parse
from eqsat.tracing.trace import Spec

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4))
Y = RNG.standard_normal((4,))
S = RNG.standard_normal((2, 3, 4))
N = RNG.integers(-5, 6, (3, 4))
K = RNG.integers(1, 4, (3, 4)).astype(np.int32)
B = RNG.random((3, 4)) < 0.5


def traced(function: Callable[..., Any], *arrays: Any) -> Any:
    program = eqsat.trace(lambda *xs: function(*xs), *arrays)
    results = list(program.run(dict(zip(program.input_names, arrays, strict=True))).values())
    return results[0] if len(results) == 1 else results


CASES: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    # operators broadcast and promote as NumPy's do
    (lambda x, y: x + y, (X, Y)),
    (lambda x, y: y - x, (X, Y)),
    (lambda x, y: x * y / 3, (X, Y)),
    (lambda x: 1 / x - 2, (X,)),
    (lambda x: -abs(x), (X,)),
    (lambda x: x**2 + abs(x) ** 0.5 + x**3 + x**-1, (X,)),
    (lambda x: 2.0**x, (X,)),
    (lambda x: x % 2 + x // 0.5, (X,)),
    (lambda n: n // 2 + n % 3, (N,)),
    (lambda n: n / 2, (N,)),
    (lambda n, k: n // k + n % k, (N, np.zeros_like(N))),
    (lambda x: x // 0.1, (np.array([1.0, -1.0, 0.3, np.inf, np.nan]),)),
    (lambda x, y: x // y, (np.array([7.0, -7.0, 1.0, 1.0, np.inf]), np.array([-np.inf, np.inf, 0.1, 0.0, 2.0]))),
    (lambda b, x: (b ^ (x > 0)) | True & b, (B, X)),
    (lambda b: np.exp(b) + np.invert(b), (B,)),
    (lambda n: np.floor(n) + np.ceil(n) + np.round(n), (N,)),
    (lambda n: np.rint(n), (N,)),
    (lambda n: n + 0.5, (N,)),
    (lambda n, k: n + k, (N, K)),
    (lambda k: k * 2, (K,)),
    (lambda k: k**2, (K,)),
    (lambda x, k: x + k, (X.astype(np.float32), K)),
    (lambda x: x + 1, (X.astype(np.float16),)),
    (lambda x: x + np.ones(4), (X.astype(np.float32),)),
    (lambda x: np.ones((3, 1)) - x, (X,)),
    (lambda b: b + 1, (B,)),
    (lambda x, y: (x < y) | (x >= 1) & ~(x == 0) | (x != y), (X, Y)),
    (lambda x: (x > 0) & (x <= 1), (X,)),
    (lambda x, y: x @ y, (X, Y)),
    (lambda x, y: y @ x.T, (X, Y)),
    (lambda y: y @ y, (Y,)),
    (lambda s, x: s @ x.T, (S, X)),
    (lambda s, x: x.T @ s, (S, X)),
    (lambda x: np.ones((2, 3)) @ x, (X,)),
    # views
    (lambda x: x.T, (X,)),
    (lambda s: s.mT, (S,)),
    (lambda s: s.transpose(2, 0, 1), (S,)),
    (lambda s: s.transpose((1, 0, 2)), (S,)),
    (lambda s: s.transpose(), (S,)),
    (lambda s: s.swapaxes(0, -1), (S,)),
    (lambda s: np.moveaxis(s, 0, -1), (S,)),
    (lambda s: s.reshape(6, -1), (S,)),
    (lambda s: s.reshape((4, 6)).ravel(), (S,)),
    (lambda s: s.flatten(), (S,)),
    (lambda x: np.expand_dims(x, 1).squeeze(1), (X,)),
    (lambda x: np.broadcast_to(x, (2, 3, 4)), (X,)),
    (lambda x: np.flip(x, 1) + np.flip(x), (X,)),
    (lambda x: np.tile(x, (2, 1, 3)), (X,)),
    # indexing
    (lambda s: s[0], (S,)),
    (lambda s: s[-1, 1:, ::2], (S,)),
    (lambda s: s[..., 0], (S,)),
    (lambda s: s[:, None, 2], (S,)),
    (lambda s: s[::-1, ..., 3:0:-2], (S,)),
    (lambda s: s[None, ..., None], (S,)),
    (lambda s: s[:, [2, 0, 0]], (S,)),
    (lambda s: s[:, []], (S,)),
    (lambda s: s[..., np.array([[0, 1], [-1, 2]])], (S,)),
    (lambda x, k: x[:, k], (X, K)),
    (lambda x: sum(row for row in x), (X,)),
    # functions
    (lambda x: np.exp(x) + np.sin(x) + np.cos(x) + np.tanh(x), (X,)),
    (lambda x: np.log(np.abs(x)) + np.sqrt(np.absolute(x)) + np.log1p(abs(x)), (X,)),
    (lambda x: np.floor(x) + np.ceil(x) + np.rint(x) + np.sign(x), (X,)),
    (lambda k: np.sqrt(k), (K,)),
    (lambda x, y: np.maximum(x, y) + np.minimum(x, 0.1), (X, Y)),
    (lambda x, b: np.where(b, x, 0), (X, B)),
    (lambda x: np.clip(x, -0.5, None) + x.clip(max=0.5), (X,)),
    (lambda b: np.logical_and(b, ~b), (B,)),
    (lambda x: np.concatenate([x, x * 2, np.zeros((3, 1))], axis=1), (X,)),
    (lambda x: np.stack([x, x], axis=-1), (X,)),
    (lambda x: np.split(x, [1, 3], axis=1)[1], (X,)),
    (lambda x: np.split(x, 2, axis=1), (X,)),
    (lambda x: np.pad(x, 1), (X,)),
    (lambda x: np.pad(x, ((0, 1), (2, 0)), constant_values=3), (X,)),
    (lambda x: np.take(x, [0, -1], axis=1), (X,)),
    (lambda x: x.take(np.array([0, 5])), (X,)),
    (lambda s, x: np.einsum("bij,kj->bki", s, x), (S, X)),
    (lambda s: np.einsum("...ij->...ji", s), (S,)),
    (lambda x, y: np.einsum("ij,k->ik", x, y), (X, Y)),
    (lambda s, x: np.einsum("b...j,...j->b...", s, x), (S, X)),
    (lambda x, y: np.einsum("ij,j", x, y), (X, Y)),
    (lambda x, y: np.einsum("ij,kj,k->i", x, x, np.ones(len(x))) + np.dot(x, y), (X, Y)),
    (lambda x, y: np.outer(y, y.dot(y)), (X, Y)),
    (lambda x, y: np.vstack([x, y]) + np.hstack([y, y])[:4], (X, Y)),
    # reductions
    (lambda s: s.sum(), (S,)),
    (lambda s: s.sum(axis=(0, -1)), (S,)),
    (lambda s: s.mean(1, keepdims=True) + s.max(2, keepdims=True), (S,)),
    (lambda s: s.min(0) + s.prod(0), (S,)),
    (lambda s: s.var((0, 1)), (S,)),
    (lambda s: s.std(-1) + np.std(s), (S,)),
    (lambda s: s.argmax(), (S,)),
    (lambda s: s.argmin(axis=1), (S,)),
    (lambda s: s.argmin(keepdims=True) + np.argmax(s, keepdims=True), (S,)),
    (lambda s: s.sum(0, np.float32) + s.prod(1, "f4") + np.sum(s, 2, int), (np.ones((3, 3, 3)),)),
    (lambda k: k.mean(0, np.float32) + k.var(0, "f4") + np.std(k, 0, dtype="f4"), (np.ones((3, 4), np.int64),)),
    (lambda x: x.mean(0, np.float64, keepdims=True), (X.astype(np.float32),)),
    (lambda k: k.sum(0), (K,)),
    (lambda k: k.mean(), (K,)),
    (lambda b: b.sum(), (B,)),
    (lambda x: x.astype(np.float32).astype("int64"), (X,)),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_a_traced_function_is_the_numpy_function(case: int) -> None:
    function, arrays = CASES[case]
    with np.errstate(all="ignore"):
        expected = function(*arrays)
    got = traced(function, *arrays)
    for e, g in zip(expected, got, strict=True) if isinstance(expected, list) else [(expected, got)]:
        assert (g.dtype, g.shape) == (np.asarray(e).dtype, np.shape(e))
        np.testing.assert_allclose(g, e, rtol=1e-12, atol=1e-12)


def _erf(x: Any) -> Any:
    return np.vectorize(__import__("math").erf)(x)


LAYERS: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (eqsat.relu, lambda x: np.maximum(x, 0)),
    (eqsat.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    (eqsat.silu, lambda x: x / (1 + np.exp(-x))),
    (eqsat.erf, _erf),
    (eqsat.gelu, lambda x: x * (1 + _erf(x / 2**0.5)) / 2),
    (lambda x: eqsat.gelu(x, "tanh"), lambda x: x / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))),
    (eqsat.softplus, lambda x: np.log1p(np.exp(x))),
    (eqsat.elu, lambda x: np.where(x > 0, x, np.exp(x) - 1)),
    (eqsat.leaky_relu, lambda x: np.where(x > 0, x, 0.01 * x)),
    (lambda x: eqsat.leaky_relu(x, alpha=2.0), lambda x: np.where(x > 0, x, 2 * x)),
    (eqsat.softmax, lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
    (lambda x: eqsat.log_softmax(x, axis=0), lambda x: np.log(np.exp(x) / np.exp(x).sum(0))),
    (lambda x: eqsat.logsumexp(x, 1), lambda x: np.log(np.exp(x).sum(1))),
    (eqsat.layernorm, lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)),
    (eqsat.rmsnorm, lambda x: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)),
    (eqsat.rsqrt, lambda x: 1 / np.sqrt(x)),
    (eqsat.reciprocal, lambda x: 1 / x),
]


@pytest.mark.parametrize("case", range(len(LAYERS)))
def test_a_layer_is_its_formula(case: int) -> None:
    layer, formula = LAYERS[case]
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(traced(layer, X), formula(X), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("layer", "x", "expected"),
    [
        (eqsat.softmax, [1000.0, 1000.0], [0.5, 0.5]),
        (eqsat.log_softmax, [1000.0, 0.0], [0.0, -1000.0]),
        (eqsat.logsumexp, [1000.0, 1000.0], 1000 + np.log(2)),
        (eqsat.logsumexp, [-np.inf, -np.inf], -np.inf),
        (eqsat.logsumexp, [np.inf, 0.0], np.inf),
        (eqsat.softplus, [1000.0, -1000.0], [1000.0, 0.0]),
        (eqsat.sigmoid, [1000.0, -1000.0], [1.0, 0.0]),
        (eqsat.silu, [-1000.0], [-0.0]),
        (eqsat.elu, [1000.0, -1000.0], [1000.0, -1.0]),
    ],
)
def test_a_layer_does_not_overflow(layer: Callable[..., Any], x: list[float], expected: Any) -> None:
    np.testing.assert_allclose(traced(layer, np.array(x)), expected)


def test_layers_take_traced_parameters() -> None:
    got = traced(lambda x, y: eqsat.layernorm(x, y, bias=y), X, Y)
    unit = (X - X.mean(-1, keepdims=True)) / np.sqrt(X.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(got, unit * Y + Y)


@pytest.mark.parametrize("name", sorted(functions.FUNCTIONS))
def test_the_package_offers_every_traced_function(name: str) -> None:
    assert getattr(eqsat, name) is functions.FUNCTIONS[name]
    assert name in dir(eqsat)


def test_the_package_offers_nothing_that_is_not_there() -> None:
    for name in eqsat.__all__ + dir(eqsat):
        assert getattr(eqsat, name) is not None


def test_a_function_is_not_hidden_by_the_module_of_its_name() -> None:
    script = "import eqsat, eqsat.jit, types; assert not isinstance(eqsat.jit, types.ModuleType)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'eqsat' has no attribute 'softmaxx'"):
        eqsat.softmaxx  # noqa: B018


# Programs


def test_inputs_are_named_like_parameters_and_outputs_like_results() -> None:
    def f(x: Any, *rest: Any, scale: float, **more: Any) -> Any:
        return {"a": x * scale, "b": rest[0] + rest[1] + more["z"]}

    one = eqsat.spec(2)
    p = eqsat.trace(f, one, one, eqsat.spec(2, name="named"), scale=3.0, z=one)
    assert p.input_names == ["x", "rest0", "named", "z"]
    assert list(p.outputs) == ["a", "b"]
    assert list(eqsat.trace(lambda x: (x, x), one).outputs) == ["out0", "out1"]
    assert list(eqsat.trace(lambda x: x, one).outputs) == ["out"]


def test_specs_normalise() -> None:
    counted: Any = [2, np.int64(3)]
    assert eqsat.spec(counted, np.float16) == Spec((2, 3), "float16")
    assert eqsat.spec(4, "f32") == eqsat.spec((4,), "float32")
    assert eqsat.trace(lambda x: x, X.astype(np.float32)).inputs[0].spec == "f32[3,4]"


@pytest.mark.parametrize("text", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "b1", "?", "int"])
def test_numpys_dtype_strings_mean_what_they_mean_in_numpy(text: str) -> None:
    assert np.dtype(eqsat.spec(3, text).dtype) == np.dtype(text)
    assert eqsat.trace(lambda x: x.astype(text), eqsat.spec(3)).outputs["out"].dtype == np.dtype(text).name


@pytest.mark.parametrize("order", "<>")
def test_the_order_of_bytes_is_no_part_of_a_type(order: str) -> None:
    x = np.arange(3, dtype=f"{order}f4")
    assert eqsat.spec(3, x.dtype) == eqsat.spec(3, f"{order}f4") == eqsat.spec(3)
    program = eqsat.trace(lambda v: v + x, x)
    np.testing.assert_array_equal(program.run({"v": x})["out"], np.array([0, 2, 4], np.float32))
    assert program.run({"v": x})["out"].dtype.isnative


def test_short_names_that_numpy_does_not_know_are_element_types() -> None:
    names = ("f64", "f32", "bf16", "i64", "i32", "i16", "u16", "f8_e5m2")
    assert [eqsat.spec(3, name).dtype for name in names] == [numerics.LONG[name] for name in names]


def test_a_printed_type_counts_bits() -> None:
    assert parse("x", {"x": "i8[3]"}).inputs[0].dtype == "int8"
    assert parse("x.astype('i8')", {"x": "f32[3]"}).outputs["out"].dtype == "int64"


def test_arrays_that_a_function_closes_over_are_constants() -> None:
    p = eqsat.trace(lambda x: x + Y, eqsat.spec((3, 4), "float64"))
    assert [t.op for t in p.terms()].count("constant") == 1


@pytest.mark.parametrize("dtype", numerics.FLOATS)
def test_a_python_number_takes_the_type_of_what_it_meets(dtype: str) -> None:
    p = eqsat.trace(lambda x: (x + 1) * 0.5, eqsat.spec((), dtype))
    assert p.outputs["out"].dtype == dtype


@pytest.mark.parametrize(
    ("misuse", "message"),
    [
        (lambda: eqsat.jit(3), "jit takes a function, got 3"),  # pyright: ignore[reportCallIssue, reportArgumentType]
        (lambda: eqsat.jit(on="tpu"), "jit: on 'tpu' is none of numpy, simt, gpu"),
        (lambda: eqsat.jit(dynamic=3), "jit: dynamic takes a mapping"),  # pyright: ignore
        (lambda: eqsat.jit(dynamic={"x": "ab"}), "jit: dynamic: x takes a name or None for each axis, got 'ab'"),
        (lambda: eqsat.jit(ranges={"n": (1, 2)}), "no axis in dynamic is called 'n'"),
        (lambda: eqsat.jit(dynamic={"x": ("n",)}, ranges={"n": (3, 2)}), "takes (least, largest), got (3, 2)"),
        (lambda: eqsat.jit(dynamic={"x": ("n",)}, ranges={"n": 3}), "takes (least, largest), got 3"),  # pyright: ignore
    ],
)
def test_jit_says_what_it_takes(misuse: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        misuse()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda x: 1 if x.sum() > 0 else 0, InputError, "neither true nor false"),
        (lambda x: np.asarray(x), InputError, "has no elements while it is traced"),
        (lambda x: x.item(), NoAttributeError, "no attribute 'item': use eqsat's functions on it"),
        (lambda x: x.real, AttributeError, "no attribute 'real'"),
        (lambda x: np.linalg.norm(x), InputError, "norm cannot be traced"),
        (lambda x: np.linalg.outer(x, x), InputError, "numpy.linalg.outer cannot be traced"),
        (lambda x: x * np.ma.masked_equal([1, 2, 3, 4], 2), InputError, "masked array, and its mask would be lost"),
        (lambda x: np.eye(3).view(np.matrix) * x, InputError, "numpy.matrix, and its * would be elementwise"),
        (lambda x: eqsat.pad(x, 2.5), InputError, "pad takes whole numbers as widths, got 2.5"),
        (lambda x: eqsat.pad(x, [(0, 1), (np.inf, 0)]), InputError, "pad takes whole numbers as widths, got [(0, 1)"),
        (lambda x: eqsat.pad(x, True), InputError, "pad takes whole numbers as widths, got True"),
        (lambda x: x[0, 0] + np.broadcast_to(1.0, (1 << 20, 1 << 20)), InputError, "a constant has shape (1048576,"),
        (lambda x: np.emath.sqrt(x), InputError, "sqrt cannot be traced"),
        (lambda x: +(x > 0), DtypeError, "positive takes numbers, got bool"),
        (lambda x: np.sum(x, initial=1), TypeError, "initial=1): sum() got"),
        (lambda x: x.mean(dtype=int), DtypeError, "of floats, got dtype int64: use astype on the result"),
        (lambda x: x.max(0, True), TypeError, "max() takes from 1 to 2 positional arguments but 3 were given"),
        (lambda x: x.sum(0, True), DtypeError, "unsupported element type True"),
        (lambda x: np.add.reduce(x), InputError, "numpy.add (reduce) cannot be traced"),
        (lambda x: x @ np.ones((3, 2)), ShapeError, "matmul takes (..., m, k) @ (..., k, n), got (3, 4) @ (3, 2)"),
        (lambda x: x + np.ones(3), ShapeError, "equal or 1, aligned right, got (3, 4) and (3,)"),
        (lambda x: x[0, 0, 0], ShapeError, "takes at most as many indices and one ellipsis, got 3"),
        (lambda x: x[3], ShapeError, "an index lies in [-3, 3), got 3 on an axis of (3, 4)"),
        (lambda x: x[[0, 3]], ShapeError, "an index lies in [-3, 3), got 3 on an axis of (3, 4)"),
        (lambda x: x.take([[-5]], axis=-1), ShapeError, "an index lies in [-4, 4), got -5"),
        (lambda x: x.argmax(0) & 1, DtypeError, "bitwise_and takes bools, got int64: for truth use logical_and"),
        (lambda x: ~x, DtypeError, "invert takes bools, got float64"),
        (lambda x: x.argmax(0) ** -2, InputError, "no power of -2"),
        (lambda x: np.reciprocal(x.argmax(0)), DtypeError, "reciprocal takes float operands, got int64"),
        (lambda x: x.astype("uint8").sum(), DtypeError, "adds and multiplies uint8 in uint64"),
        (lambda x: np.pad(x, -1), InputError, "pad takes widths of at least 0, got -1"),
        (lambda x: eqsat.einsum("i!", x), InputError, "takes letters as labels, got 'i!'"),
        (lambda x: np.concatenate([x], axis=2), ShapeError, "an axis of 2 dims lies in [-2, 2), got 2"),
        (lambda x: x[x > 0], DtypeError, "holds integers, got bool: use eqsat.where for masks"),
        (lambda x: x[0, [1, 2]], InputError, "an index array stands alone"),
        (lambda x: x.astype(complex), DtypeError, "unsupported element type"),
        (lambda x: x.astype(np.int8) + 1, DtypeError, "compute nothing in int8, they only store it: use astype"),
        (lambda x: -x.astype(np.int8), DtypeError, "neg takes float or int operands, got int8: cast it first"),
        (lambda x: x.astype("float16") + x.astype("bfloat16"), DtypeError, "no common type of float16 and bfloat16"),
        (lambda x: x.__setitem__(0, 1), InputError, "cannot be written to"),
        (lambda x: x.reshape(3, 2, 2).dot(x), ShapeError, "dot takes at most two dims"),
        (lambda x: None, InputError, "returned None"),
        (lambda x: np.round(x, 2), InputError, "round takes decimals 0, got 2"),
        (lambda x: np.pad(x, 1, mode="edge"), InputError, "pad takes mode constant, got 'edge'"),
        (lambda x: eqsat.einsum("ii,jk->k", x, x), InputError, "each once per operand, got 'ii,jk->k'"),
        (lambda x: eqsat.einsum("ijk->k", x), InputError, "labels 'ijk' for an operand of 2 dims"),
        (lambda x: eqsat.einsum("ij,ij->i", x, x.T), ShapeError, "one size per label, got 3 and 4 for 'i'"),
        (lambda x: eqsat.gelu(x, "quick"), InputError, "approximate none or tanh, got 'quick'"),
        (lambda x, y: x, InputError, "missing a required argument: 'y'"),
    ],
)
def test_what_cannot_be_traced_says_why(function: Callable[..., Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        eqsat.trace(function, eqsat.spec((3, 4), "float64"))
    assert message in str(caught.value)


def test_what_a_traced_value_has_can_be_asked() -> None:
    asked: list[bool] = []
    eqsat.trace(lambda x: (asked.extend(hasattr(x, name) for name in ("shape", "item", "tolist")), x)[1], X)
    assert asked == [True, False, False]


# Augmented assignment


def changed_alias(x: Any) -> Any:
    y = x
    y += 1
    return x


def scalars_are_replaced(x: Any) -> Any:
    total = first = x[0, 0]
    total += x[1, 1]
    mean = other = x.mean()
    mean *= 2
    return total + first + mean + other


def changed_array_of_a_scalar(x: Any) -> Any:
    total = x.sum()
    array = other = total[...]
    array += 1
    return np.stack([total, other])


def changed_values(x: Any, y: Any) -> Any:
    x += y
    x -= x.mean(0)
    x *= 0.5
    x /= y + 10
    x //= 0.125
    x %= 3
    x **= 2
    x @= np.eye(4)
    return x


def changed_bools(x: Any) -> Any:
    x &= np.array([True, False, True, True])
    x |= ~x[0].copy()
    x ^= True
    return x


def changed_copies(x: Any) -> Any:
    rows = (x @ x.T).reshape(-1)  # what this is a view of is in use no more
    rows *= 2
    rows = np.broadcast_to(x[0].copy(), (3, 4)).reshape(-1)  # a copy
    rows *= 3
    copy, flat = x.T.copy(), x.flatten()
    copy += 1
    flat += 2
    return copy.sum() + flat.sum() + rows.sum() + x.sum()


def changed_parts(x: Any) -> Any:
    q, k, v = np.split(x @ np.ones((4, 6)), 3, axis=1)
    q *= 2
    rows = k.T
    v -= 1
    return q + rows.T * v


IN_PLACE: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (changed_alias, (X,)),
    (changed_alias, (np.array(1.5),)),
    (lambda x: changed_alias(x[0, 0]), (X,)),
    (scalars_are_replaced, (X,)),
    (changed_array_of_a_scalar, (X,)),
    (changed_values, (X, Y)),
    (changed_values, (X.astype(np.float32), Y)),
    (changed_values, (X.astype(np.float16), Y)),
    (changed_bools, (B,)),
    (changed_copies, (X,)),
    (changed_parts, (X,)),
]


@pytest.mark.parametrize("case", range(len(IN_PLACE)))
def test_augmented_assignment_is_numpys(case: int) -> None:
    function, arrays = IN_PLACE[case]
    got, expected = traced(function, *arrays), function(*(np.copy(a) for a in arrays))
    assert got.dtype == expected.dtype
    tolerance = 8 * np.finfo(got.dtype).eps if got.dtype.kind == "f" else 0
    np.testing.assert_allclose(got, expected, tolerance, tolerance)


@pytest.mark.parametrize(
    "seen",
    [
        lambda whole, part: whole,
        lambda whole, part: part[0],
        lambda whole, part: np.split(part, 2, axis=1)[0],
        lambda whole, part: np.split(whole, 2, axis=1)[0],
        lambda whole, part: np.split(whole, [2, 1])[2],
    ],
)
def test_a_part_is_not_changed_in_place_while_another_may_overlap_it(seen: Callable[..., Any]) -> None:
    def function(x: Any) -> Any:
        whole = x + 1
        part = np.split(whole, [2])[0]
        other = seen(whole, part)
        del whole
        part *= 2
        return other

    with pytest.raises(InputError, match="would also change the views"):
        eqsat.trace(function, X)


def in_place(name: str, viewed: Callable[[Any], Any] = lambda x: x, other: Any = 1) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        y = viewed(x)
        y = getattr(operator, name)(y, other)
        return x

    return function


@pytest.mark.parametrize("view", ["x[0]", "x[..., 0, 0]", "x.T", "x.mT", "x.reshape(-1)", "x.ravel()", "x[None]"])
def test_a_view_is_not_changed_in_place(view: str) -> None:
    with pytest.raises(InputError, match=r"would also change the views .* use a copy, x\.copy\(\)"):
        eqsat.trace(in_place("iadd", lambda x: eval(view, {"x": x})), X)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: np.transpose(x),
        lambda x: np.swapaxes(x, 0, 1),
        lambda x: np.moveaxis(x, 0, 1),
        lambda x: np.squeeze(x[:1]),
        lambda x: np.expand_dims(x, 0),
        lambda x: np.flip(x, 0),
        lambda x: np.broadcast_to(x, (2, 3, 4)),
        lambda x: np.split(x, 3)[1],
        lambda x: np.einsum("ij->ji", x),
    ],
)
def test_what_has_views_is_not_changed_in_place(view: Callable[[Any], Any]) -> None:
    def function(x: Any) -> Any:
        seen = view(x)
        x += 1
        return seen

    with pytest.raises(InputError, match="would also change the views"):
        eqsat.trace(function, X)


@pytest.mark.parametrize(
    ("array", "name", "other", "error", "message"),
    [
        (N, "itruediv", 2, DtypeError, "divide in place: int64 cannot hold a result in float64"),
        (N, "iadd", 1.5, DtypeError, "add in place: int64 cannot hold a result in float64"),
        (B, "iadd", 1, DtypeError, "add in place: bool cannot hold a result in int64"),
        (X, "iadd", np.ones((2, 3, 4)), ShapeError, "(3, 4) cannot hold a result of (2, 3, 4)"),
        (X, "imatmul", np.ones((4, 2)), ShapeError, "(3, 4) cannot hold a result of (3, 2)"),
    ],
)
def test_what_numpy_refuses_in_place_is_refused(
    array: Any, name: str, other: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises((TypeError, ValueError)):
        in_place(name, other=other)(array.copy())
    with pytest.raises(error) as caught:
        eqsat.trace(in_place(name, other=other), array)
    assert message in str(caught.value)


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.T])
def test_what_is_broadcast_is_not_changed_in_place(view: Callable[[Any], Any]) -> None:
    def function(x: Any) -> Any:
        rows = view(np.broadcast_to(x.copy(), (2, 3, 4)))
        rows *= 2
        return rows

    with pytest.raises(ValueError, match="read-only"):
        function(X)
    with pytest.raises(InputError, match="NumPy's broadcast_to gives arrays to read"):
        eqsat.trace(function, X)


def test_an_array_is_not_changed_by_what_is_traced() -> None:
    def function(x: Any) -> Any:
        total = np.zeros((3, 4))
        total += x
        return total

    with pytest.raises(InputError, match="add into an array cannot be traced"):
        eqsat.trace(function, X)


@pytest.mark.parametrize(
    ("shape", "message"), [((1,) * 70, "70 dims; at most 32"), ((2**40, 2**40), "elements; at most 2147483647")]
)
def test_a_shape_that_numpy_cannot_hold_is_refused_for_what_it_is(shape: tuple[int, ...], message: str) -> None:
    program = eqsat.trace(lambda x: x + 1, eqsat.spec(shape))
    assert program.outputs["out"].shape == shape
    with pytest.raises(InputError, match=message):
        eqsat.optimize(program)


def test_no_two_inputs_get_one_name():
    x = eqsat.spec(2)
    assert eqsat.trace(lambda a0, *a: a0 + a[0] * a[1], x, x, x).input_names == ["a0", "a0_", "a1"]
    assert eqsat.trace(lambda a, /, **k: a + k["a"], x, a=x).input_names == ["a", "a_"]
    assert eqsat.trace(lambda *k, **a: k[0] + a["k"] + a["k0"], x, k=x, k0=x).input_names == ["k0", "k", "k0_"]


def test_a_constant_that_repeats_itself_is_a_broadcast() -> None:
    row = np.arange(4, dtype=np.float32)
    program = eqsat.trace(lambda x: (x, np.broadcast_to(row, (2**28, 4))), eqsat.spec((2,)))
    assert [t.size for t in program.terms() if t.op == "constant"] == [4]
    assert program.outputs["out1"].shape == (2**28, 4)
    small = eqsat.trace(lambda: np.broadcast_to(row, (2, 4))).outputs["out"]
    assert small.op == "constant", "small ones stay as they are"
    found = eqsat.trace(lambda: np.broadcast_to(row[:, None], (2**13, 4, 3)))
    np.testing.assert_array_equal(found.run({})["out"], np.broadcast_to(row[:, None], (2**13, 4, 3)))


def test_a_constant_of_overlapping_windows_is_judged_by_its_size() -> None:
    windows = np.lib.stride_tricks.sliding_window_view(np.zeros(2**15, np.float32), 2**14)
    with pytest.raises(InputError, match="at most 67108864 are computed ahead of time"):
        eqsat.trace(lambda x: (x, windows), eqsat.spec((2,)))
