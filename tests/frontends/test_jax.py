"""JAX functions as programs: each primitive with a row against JAX itself, whole layers, names, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.errors import InputError
from eqsat.frontends.jax.read import ROWS

jax = pytest.importorskip("jax")
jnp: Any = jax.numpy
lax: Any = jax.lax
checkpoint_name: Any = pytest.importorskip("jax.ad_checkpoint").checkpoint_name
HERE = jax.sharding.SingleDeviceSharding(jax.devices()[0])

RNG = np.random.default_rng(0)
X, Y = (RNG.standard_normal((4, 6), dtype=np.float32) for _ in range(2))
POSITIVE = np.abs(X) + np.float32(0.5)
HALVES = np.array([-2.5, -1.5, -0.5, 0.0, 0.49999997, 0.5, 1.5], np.float32)
WHOLE = RNG.integers(-7, 8, (4, 6)).astype(np.int32)
DIVISOR = RNG.integers(1, 4, (4, 6)).astype(np.int32)
TRUTH, OTHER = X > 0, Y > 0
ROW = np.array([3, 0, 2], np.int32)
IMAGE, KERNEL = RNG.standard_normal((2, 9, 8, 4), dtype=np.float32), RNG.standard_normal((3, 3, 4, 6), dtype=np.float32)
NHWC = ("NHWC", "HWIO", "NHWC")


def conv(**options: Any) -> Callable[..., Any]:
    given = {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": NHWC} | options
    return lambda x, w: lax.conv_general_dilated(x, w, **given)


def windows(
    function: Any, start: float, sizes: tuple[int, ...], steps: tuple[int, ...], padding: Any
) -> Callable[..., Any]:
    return lambda x: lax.reduce_window(x, start, function, sizes, steps, padding)


own_gradient = jax.custom_vjp(jnp.cos)
own_gradient.defvjp(lambda x: (jnp.cos(x), x), lambda x, g: (g,))

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    **{name: (getattr(lax, name), (POSITIVE,)) for name in ("sqrt", "rsqrt", "log")},
    **{name: (getattr(lax, name), (X,)) for name in (
        "neg", "abs", "sign", "exp", "exp2", "expm1", "erf", "erfc", "tanh", "sin", "cos", "tan", "floor", "ceil",
        "logistic", "square", "is_finite", "stop_gradient")},
    "log1p": (lax.log1p, (POSITIVE,)),
    **{name: (getattr(lax, name), (X, Y)) for name in (
        "add", "sub", "mul", "div", "max", "min", "eq", "ne", "lt", "le", "gt", "ge", "rem")},
    "pow": (lax.pow, (POSITIVE, Y)),
    "integer_pow": (lambda x: (x**0, x**1, x**2, x**7, x**-3), (POSITIVE,)),
    "div of integers": (lax.div, (WHOLE, DIVISOR)),
    "rem of integers": (lax.rem, (WHOLE, DIVISOR)),
    "and": (lambda a, b: (a & b, a | b, a ^ b, ~a), (TRUTH, OTHER)),
    "not of integers": (lambda x: ~x, (WHOLE,)),
    "round": (lambda x: (lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), lax.round(x)), (HALVES,)),
    "clamp": (lambda x, y: (lax.clamp(-0.5, x, 0.5), lax.clamp(jnp.minimum(x, y), x, y)), (X, Y)),
    "select_n": (lambda w, a, b: lax.select_n(w, a, b, a * b), (WHOLE % 3, X, Y)),
    "where": (lambda c, a: jnp.where(c, a, 0), (TRUTH, X)),
    "convert_element_type": (lambda x: (x.astype(jnp.int32), x.astype(bool), x.astype(jnp.bfloat16)), (X,)),
    "broadcast_in_dim": (lambda x: lax.broadcast_in_dim(x, (2, 4, 3, 6), (1, 3)), (X,)),
    "concatenate": (lambda x, y: jnp.concatenate([x, y], 1), (X, Y)),
    "pad": (lambda x: lax.pad(x, 2.0, [(1, 0, 2), (-1, 3, 1)]), (X,)),
    "reshape": (lambda x: x.reshape(3, 8), (X,)),
    "rev": (lambda x: lax.rev(x, (0, 1)), (X,)),
    "slice": (lambda x: lax.slice(x, (1, 0), (4, 6), (2, 5)), (X,)),
    "split": (lambda x: jnp.split(x, [1, 4], 1), (X,)),
    "stack and tile": (lambda x, y: (jnp.stack([x, y], 1), jnp.tile(x, (2, 3, 2))), (X, Y)),
    "squeeze": (lambda x: lax.squeeze(lax.expand_dims(x, (1,)), (1,)), (X,)),
    "transpose": (lambda x: lax.transpose(x, (1, 0)), (X,)),
    "iota": (lambda x: x + lax.broadcasted_iota(jnp.float32, (4, 6), 1), (X,)),
    "dynamic_slice": (lambda x: (x[1], lax.dynamic_slice(x, (3, 2), (3, 2))), (X,)),
    "dynamic_slice by an input": (lambda x, i: lax.dynamic_slice(x, (1, i), (2, 3)), (X, np.asarray(5, np.int32))),
    "gather": (lambda x, i: (x[i], jnp.take(x, i, axis=1), jnp.take(x, i[None, :, None], axis=0)), (X, ROW)),
    "dot_general": (
        lambda a, b: lax.dot_general(a, b, (((3, 1), (0, 2)), ((0,), (3,)))),
        (RNG.standard_normal((2, 3, 5, 4), dtype=np.float32), RNG.standard_normal((4, 6, 3, 2), dtype=np.float32)),
    ),
    "dot_general in float32": (
        lambda a, b: jnp.matmul(a.astype(jnp.bfloat16), b.T.astype(jnp.bfloat16), preferred_element_type=jnp.float32),
        (X, Y),
    ),
    "conv": (conv(), (IMAGE, KERNEL)),
    "conv with steps": (conv(window_strides=(2, 3), padding=[(0, 2), (-1, 1)], rhs_dilation=(2, 1)), (IMAGE, KERNEL)),
    "conv in groups": (conv(feature_group_count=2), (IMAGE, KERNEL[:, :, :2])),
    "conv_transpose": (lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME"), (IMAGE, KERNEL)),
    "reductions": (lambda x: (x.sum(), x.max(0), x.min(1), x.prod((0, 1)), x.argmax(1), x.argmin(0)), (X,)),
    "all and any": (lambda x: (x.all(1), x.any(0)), (TRUTH,)),
    "max pool": (windows(lax.max, -np.inf, (1, 3, 2, 1), (1, 2, 2, 1), "SAME"), (IMAGE,)),
    "sum pool": (windows(lax.add, 0.0, (1, 3, 2, 1), (1, 2, 1, 1), "VALID"), (IMAGE,)),
    "cumsum": (lambda x: (jnp.cumsum(x, 0), lax.cumsum(x, 1, reverse=True), lax.cummax(x, 1)), (X,)),
    "added gradients": (jax.grad(lambda x: (jnp.sin(x) * x).sum()), (X,)),
    "places and names": (
        lambda x: lax.optimization_barrier(
            lax.with_sharding_constraint(jax.device_put(checkpoint_name(jnp.array(x), "x")), HERE)
        ),
        (X,),
    ),
    "scan": (lambda x, w: lax.scan(lambda c, row: (jnp.tanh(c + row), c * w), x[0], x), (X, Y[0])),
    "scan from behind": (lambda x: lax.scan(lambda c, row: (c + row, c), x[0], x, reverse=True), (X,)),
    "calls": (jax.checkpoint(lambda x: jax.nn.relu(jax.jit(jnp.sin)(own_gradient(x)))), (X,)),
}  # fmt: skip


def as_jax(function: Callable[..., Any], *args: Any, tolerance: float = 1e-5, **keywords: Any) -> eqsat.Program:
    """The program of a function, which gives what JAX gives, in value and type."""
    program = eqsat.from_jax(function, *args, **keywords)
    arrays = [np.asarray(leaf) for leaf in jax.tree.leaves((args, keywords)) if hasattr(leaf, "shape")]
    found = program.run(dict(zip(program.input_names, arrays, strict=True)))
    args, keywords = jax.tree.map(lambda leaf: jnp.asarray(leaf) if hasattr(leaf, "shape") else leaf, (args, keywords))
    wanted = jax.tree.leaves(function(*args, **keywords))
    for mine, theirs in zip(found.values(), map(np.asarray, wanted), strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(mine.astype(np.float64), theirs.astype(np.float64), tolerance, tolerance)
    return program


@pytest.mark.parametrize("case", CASES)
def test_a_primitive_computes_what_jax_computes(case: str) -> None:
    function, args = CASES[case]
    as_jax(function, *args)


def used(jaxpr: Any) -> set[str]:
    """The primitives of a jaxpr, and of those in it."""
    inner = [
        getattr(v, "jaxpr", v)
        for e in jaxpr.eqns
        for v in e.params.values()
        if hasattr(v, "jaxpr") or hasattr(v, "eqns")
    ]
    return {e.primitive.name for e in jaxpr.eqns}.union(*map(used, inner))


def test_every_row_has_a_case() -> None:
    seen = set().union(*(used(jax.make_jaxpr(f)(*args).jaxpr) for f, args in CASES.values()))
    assert set(ROWS) <= seen


def weights(*shape: int) -> Any:
    return RNG.standard_normal(shape, dtype=np.float32) / np.float32(np.sqrt(shape[0]))


def test_an_mlp_with_frozen_weights_is_folded() -> None:
    a, b, c = weights(32, 512), weights(512), weights(512, 32)
    program = as_jax(lambda x: jax.nn.relu((x @ a + b) @ c), weights(16, 32), tolerance=1e-4)
    assert program.input_names == ["x"]
    best = eqsat.optimize(program)
    assert best.report["result"]["matmul_flops"] < best.report["source"]["matmul_flops"] / 10


def attention(params: dict[str, Any], x: Any) -> dict[str, Any]:
    """Causal self-attention with two heads, a residual and a layer norm."""
    heads = [(x @ params[name]).reshape(8, 2, 8).swapaxes(0, 1) for name in ("q", "k", "v")]
    q, k, v = heads
    scores = jnp.einsum("htd,hsd->hts", q, k) / jnp.sqrt(8.0)
    mixed = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((8, 8), bool)), scores, -1e9)) @ v
    out = x + mixed.swapaxes(0, 1).reshape(8, 16)
    mean = out.mean(-1, keepdims=True)
    normed = (out - mean) * lax.rsqrt(out.var(-1, keepdims=True) + 1e-5) * params["scale"]
    return {"hidden": normed, "all": (mean, jax.nn.gelu(normed))}


def test_attention_with_a_norm_keeps_names() -> None:
    params = {name: weights(16, 16) for name in ("q", "k", "v")} | {"scale": weights(16)}
    program = as_jax(attention, params, weights(8, 16))
    assert program.input_names == ["params.k", "params.q", "params.scale", "params.v", "x"]
    assert list(program.outputs) == ["all.0", "all.1", "hidden"]


def network(x: Any, deep: bool = True) -> Any:
    """Two convolutions with a pool between them, and a mean over the image."""
    x = jax.nn.relu(conv()(x, KERNEL))
    x = windows(lax.max, -np.inf, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")(x)
    return (conv()(x, jnp.tile(KERNEL, (1, 1, 3, 2))[:, :, :6]) if deep else x).mean((1, 2))


def test_a_convolutional_network_with_a_fixed_argument() -> None:
    deep, flat = (as_jax(network, IMAGE, deep=how, tolerance=1e-4) for how in (True, False))
    assert deep.input_names == flat.input_names == ["x"]
    assert deep.stats()["flops"] > 1.5 * flat.stats()["flops"]


def test_arguments_without_names_are_numbered_and_specs_suffice() -> None:
    spec = jax.ShapeDtypeStruct((2, 3), np.float32)
    program = eqsat.from_jax(lambda *xs: xs[0] + xs[1], spec, spec)
    assert program.input_names == ["input_0", "input_1"]
    assert list(program.outputs) == ["output_0"]


REFUSED: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "primitives": (lambda x: jnp.sort(x) + jax.scipy.special.digamma(x), (X,), "no operator for digamma, sort"),
    "loops": (lambda x: lax.while_loop(lambda y: y.sum() > 0, jnp.sin, x), (X,), "no operator for while"),
    "long loops": (lambda x: lax.fori_loop(0, 60000, lambda i, y: jnp.sin(y), x), (X,), "at most 50000 are read"),
    "a use": (lambda x, i, j: x[i, j], (X, ROW, ROW), "this use of gather is not covered: indices of several axes"),
    "bits": (lambda x: x & 3, (WHOLE,), "this use of and is not covered: bits of integers"),
    "code that fails": (lambda x: x.reshape(5), (X,), "JAX cannot trace <lambda>: cannot reshape array"),
    "no array": (lambda x: None, (X,), "the function returns no array"),
    "no function": (X, (), "from_jax takes a function and its arguments, got ndarray of shape"),  # type: ignore[dict-item]
    "types": (lambda x: x * 1j, (X,), "complex64"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_known_is_refused_by_name(case: str) -> None:
    function, args, says = REFUSED[case]
    with pytest.raises(InputError) as error:
        eqsat.from_jax(function, *args)
    assert says in str(error.value)
