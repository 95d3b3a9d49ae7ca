"""Programs that compute the same, written otherwise, cost the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.program.ir import Program
from support.programs import weight


def price(program: Program, device: str = "mi300x") -> float:
    report = eqsat.optimize(program, device, time_limit=30, measure=False, explain_time=0.0).report
    assert report["lower_bound_us"] <= report["result"]["predicted_us"] <= report["source"]["predicted_us"]
    return report["result"]["predicted_us"]


def softmax(x: Any, axis: int) -> Any:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def norm(x: Any, axis: int) -> Any:
    centred = x - x.mean(axis, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axis, keepdims=True) + np.float32(1e-5))


# --- axes


@pytest.mark.parametrize("function", [softmax, norm])
@pytest.mark.parametrize("shape", [(8, 64, 16), (2, 21, 24, 32), (7, 5), (64, 1, 3)])
def test_a_norm_over_any_axis_is_one_kernel(function: Callable[..., Any], shape: tuple[int, ...]) -> None:
    """Over the first, a middle and the last axis: one launch, and no dearer than with transposes around it."""
    for axis in range(len(shape)):
        last = (*(i for i in range(len(shape)) if i != axis), axis)
        here = eqsat.trace(lambda x, axis=axis: function(x, axis), eqsat.spec(shape))
        turned = eqsat.trace(
            lambda x, last=last: function(x.transpose(last), -1).transpose(tuple(np.argsort(last))), eqsat.spec(shape)
        )
        best = eqsat.optimize(here, time_limit=30, measure=False)
        assert best.report["result"]["launches"] == 1
        assert best.report["result"]["predicted_us"] <= price(turned) * 1.001
        x = np.random.default_rng(axis).standard_normal(shape).astype(np.float32)
        for runs in ("numpy", "simt"):
            got = best.compile(on=runs)(x)
            np.testing.assert_allclose(got, function(x, axis), rtol=2e-5, atol=2e-6)


def test_columns_that_no_block_holds_are_read_again() -> None:
    """A block of 1024 threads holds 2048 columns of float32 in registers; from then on later passes read memory."""

    def ratio(length: int) -> float:
        down = price(eqsat.trace(lambda x: softmax(x, 0), eqsat.spec((length, 4096))))
        return down / price(eqsat.trace(lambda x: softmax(x, 1), eqsat.spec((4096, length))))

    assert ratio(2048) == pytest.approx(1.0, rel=1e-3)
    assert ratio(2049) > 1.2


class Convention:
    """Products written as x @ w, or all transposed, as w @ x: then rows are columns."""

    def __init__(self, columns: bool) -> None:
        self.columns = columns
        self.axis = -2 if columns else -1

    def product(self, x: Any, y: Any) -> Any:
        return y @ x if self.columns else x @ y

    def constant(self, *shape: int, seed: int = 0) -> Any:
        w = weight(*shape, seed=seed)
        return np.ascontiguousarray(w.T) if self.columns else w

    def turned(self, x: Any) -> Any:
        return np.swapaxes(x, -1, -2)

    def norm(self, x: Any) -> Any:
        return norm(x, self.axis) * self.constant(1, 64, seed=8) + self.constant(1, 64, seed=9)


def scaled(x: Any, c: Convention) -> Any:
    scale = 1 / np.sqrt((x * x).mean(c.axis, keepdims=True) + np.float32(1e-6))
    return c.product(x * scale * c.constant(1, 64, seed=7), c.constant(64, 48))


def low_rank(x: Any, c: Convention) -> Any:
    whole = c.product(x, c.constant(64, 64)) + c.constant(1, 64)
    return whole + c.product(c.product(x, c.constant(64, 8)), c.constant(8, 64, seed=1))


def two_products(x: Any, c: Convention) -> Any:
    return (c.product(x, c.constant(64, 64)) + x) + c.product(x, c.constant(64, 64, seed=1))


def block(x: Any, c: Convention) -> Any:
    hidden = np.tanh(c.product(c.norm(x), c.constant(64, 64)) + c.constant(1, 64))
    return x + c.product(hidden, c.constant(64, 64, seed=1))


def several(x: Any, c: Convention) -> Any:
    return tuple(c.product(c.norm(x), c.constant(64, 64, seed=i)) for i in range(3))


@pytest.mark.parametrize("function", [scaled, low_rank, two_products, block, several])
def test_weights_may_stand_on_the_left_of_columns(function: Callable[..., Any]) -> None:
    rows = eqsat.trace(lambda x: function(x, Convention(False)), eqsat.spec((32, 64)))
    columns = eqsat.trace(lambda x: function(x, Convention(True)), eqsat.spec((64, 32)))
    assert price(columns) <= 1.03 * price(rows)


def layers(x: Any, c: Convention) -> Any:
    hidden = eqsat.relu(c.product(x, c.constant(64, 64)) + c.constant(1, 64))
    return c.product(hidden, c.constant(64, 48)) + c.constant(1, 48)


def gated(x: Any, c: Convention) -> Any:
    """A layer whose norm moves behind both products that are made on the way."""
    normed = x * (1 / np.sqrt((x * x).mean(c.axis, keepdims=True) + np.float32(1e-6)))
    gate, up = (c.product(normed, c.constant(64, 64, seed=i)) for i in range(2))
    return x + c.product(gate / (1 + np.exp(-gate)) * up, c.constant(64, 64, seed=2))


def normed_after(x: Any, c: Convention) -> Any:
    return c.norm(x + c.product(eqsat.relu(c.product(x, c.constant(64, 64))), c.constant(64, 64, seed=1)))


def softmax_of_a_product(x: Any, c: Convention) -> Any:
    return c.product(softmax(c.product(x, c.constant(64, 64)), c.axis), c.constant(64, 48))


def self_attention(x: Any, c: Convention) -> Any:
    q, k, v = (c.product(x, c.constant(64, 64, seed=i)) for i in range(3))
    return c.product(softmax(c.product(q, c.turned(k)), c.axis), v)


@pytest.mark.parametrize("function", [layers, gated, normed_after, softmax_of_a_product, self_attention])
def test_what_is_made_on_the_way_may_stand_on_the_right(function: Callable[..., Any]) -> None:
    rows, columns = (
        eqsat.trace(lambda x, c=Convention(turned): function(x, c), eqsat.spec((64, 32) if turned else (32, 64)))
        for turned in (False, True)
    )
    assert price(columns) == pytest.approx(price(rows), rel=1e-3)


def attention(q: Any, k: Any, v: Any, c: Convention, mask: Any = None) -> Any:
    scores = c.product(q, c.turned(k)) * np.float32(0.125)
    return c.product(softmax(scores if mask is None else scores + mask, c.axis), v)


def normed_attention(q: Any, k: Any, v: Any, c: Convention) -> Any:
    q, k = (x / np.sqrt((x * x).mean(c.axis, keepdims=True) + np.float32(1e-6)) for x in (q, k))
    return attention(q, k, v, c)


def attention_with_residual(q: Any, k: Any, v: Any, c: Convention) -> Any:
    return q + attention(q, k, v, c)


HEADS = [(2, 4, 64, 32)] * 3
ATTENTIONS = {
    "heads": (attention, HEADS),
    "unlike lengths": (attention, [(4, 100, 32), (4, 60, 32), (4, 60, 32)]),
    "queries that share keys": (attention, [(2, 4, 64, 32), (2, 1, 128, 32), (2, 1, 128, 32)]),
    "many keys": (attention, [(32, 1024, 64)] * 3),
    "a mask": (lambda q, k, v, m, c: attention(q, k, v, c, m), [*HEADS, (4, 64, 64)]),
    "normed queries and keys": (normed_attention, HEADS),
    "a residual": (attention_with_residual, HEADS),
}


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_of_columns_is_a_stream(name: str) -> None:
    """Values first, a softmax down the columns: the launches and the price of rows, and the right values."""
    function, shapes = ATTENTIONS[name]

    def traced(columns: bool) -> Program:
        c = Convention(columns)
        inputs = [eqsat.spec((*s[:-2], s[-1], s[-2]) if columns else s) for s in shapes]
        return eqsat.trace(lambda *arrays: function(*arrays, c=c), *inputs)

    rows, columns = (eqsat.optimize(traced(x), time_limit=30, measure=False, explain_time=0.0) for x in (False, True))
    of_rows, of_columns = (x.report["result"] for x in (rows, columns))
    assert of_columns["predicted_us"] == pytest.approx(of_rows["predicted_us"], rel=1e-3)
    assert of_columns["launches"] == of_rows["launches"]
    if name != "many keys":
        rng = np.random.default_rng(0)
        arrays = [rng.standard_normal(s, dtype=np.float32) for s in shapes]
        expected = np.swapaxes(rows.compile(on="numpy")(*arrays), -1, -2)
        got = columns.compile(on="simt")(*(np.ascontiguousarray(np.swapaxes(a, -1, -2)) for a in arrays))
        np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-5)


def test_attention_of_channels_first_is_a_stream() -> None:
    """As in SAGAN, DANet and the autoencoder of Stable Diffusion: [batch, channels, places]."""

    def weights(q: Any, k: Any) -> Any:
        return softmax(q.transpose(0, 2, 1) @ k, -1)

    inputs = [eqsat.spec((2, 32, 256))] * 3
    rows = eqsat.trace(lambda q, k, v: (weights(q, k) @ v.transpose(0, 2, 1)).transpose(0, 2, 1), *inputs)
    channels = eqsat.trace(lambda q, k, v: v @ weights(q, k).transpose(0, 2, 1), *inputs)
    assert price(channels) <= 1.001 * price(rows)


# --- sizes


@pytest.mark.parametrize("device", ["mi300x", "h100"])
def test_longer_rows_cost_no_less(device: str) -> None:
    """Sums of up to eight terms may be written out, which must not keep others out of the kernel."""
    prices = [price(eqsat.trace(lambda x: softmax(x, -1), eqsat.spec((64, n))), device) for n in range(2, 14)]
    assert prices == sorted(prices)


# --- towers and layers


def test_a_bias_that_one_tower_writes_first_meets_the_others() -> None:
    def towers(first: frozenset[int]) -> Program:
        def head(x: Any, i: int, seed: int) -> Any:
            w, b = weight(x.shape[-1], 24, seed=seed), weight(24, seed=seed + 1)
            return eqsat.relu(b + x @ w if i in first else x @ w + b)

        def function(x: Any) -> Any:
            hidden = [head(head(x, i, 4 * i), i, 4 * i + 2) for i in range(4)]
            return np.concatenate(hidden, 1) @ weight(96, 8)

        return eqsat.trace(function, eqsat.spec((33, 50)))

    assert price(towers(frozenset({3}))) == price(towers(frozenset({0, 2}))) == price(towers(frozenset()))


@pytest.mark.parametrize("device", ["mi300x", "h100"])
def test_equal_layers_share_kernels_like_unequal_ones(device: str) -> None:
    """Equal layers are searched once, but small ones are worth a search together."""

    def layers(first: bool) -> Program:
        def function(x: Any) -> Any:
            for i in range(4):
                y, b = x @ weight(32, 32, seed=i), weight(32, seed=i + 9)
                x = np.tanh(b + y if first and i == 1 else y + b)
            return x

        return eqsat.trace(function, eqsat.spec((8, 32)))

    assert price(layers(False), device) == pytest.approx(price(layers(True), device), rel=1e-3)


# --- constants that repeat themselves, and elements that lie between others


@pytest.mark.parametrize("device", ["mi300x", "rx7900xtx", "h100"])
@pytest.mark.parametrize("count", [2, 3])
def test_biases_of_products_that_are_joined_are_joined_as_rows(device: str, count: int) -> None:
    w = [weight(64, 48, seed=i) for i in range(count)]
    b = [weight(48, seed=10 + i) for i in range(count)]

    def apart(x: Any) -> Any:
        return tuple(np.maximum(x @ w[i] + b[i], 0) for i in range(count))

    def by_hand(x: Any) -> Any:
        return tuple(np.split(np.maximum(x @ np.concatenate(w, 1) + np.concatenate(b), 0), count, 1))

    apart_us, by_hand_us = (price(eqsat.trace(f, eqsat.spec((4096, 64))), device) for f in (apart, by_hand))
    assert apart_us <= 1.001 * by_hand_us


@pytest.mark.parametrize("repeat", [(512, 1, 1), (1, 6, 1), (1, 1, 96), (512, 1, 96)])
def test_a_constant_that_repeats_itself_is_read_once(repeat: tuple[int, ...]) -> None:
    once = weight(*(n // r for n, r in zip((512, 6, 96), repeat, strict=True)))
    written = eqsat.trace(lambda x: x * np.tile(once, repeat), eqsat.spec((512, 6, 96)))
    assert price(written) == price(eqsat.trace(lambda x: x * once, eqsat.spec((512, 6, 96))))
    x = weight(512, 6, 96, seed=1)
    np.testing.assert_array_equal(eqsat.optimize(written, measure=False).compile(on="numpy")(x), x * once)


def test_zeros_of_both_signs_do_not_repeat_each_other() -> None:
    zeros = np.zeros((640, 320), np.float32)
    zeros[1::2] = -0.0
    result = eqsat.optimize(
        eqsat.trace(lambda x: x * 0 + zeros, eqsat.spec((640, 320))), numerics="exact", measure=False
    )
    got = result.compile(on="numpy")(-np.ones((640, 320), np.float32))
    np.testing.assert_array_equal(np.signbit(got), np.signbit(zeros))


def test_interleaved_parts_cost_what_their_array_costs() -> None:
    pairs = eqsat.spec((64, 256, 64, 2))
    together = price(eqsat.trace(lambda x: x.max(-1), pairs))
    assert price(eqsat.trace(lambda x: np.maximum(x[..., 0], x[..., 1]), pairs)) <= 1.1 * together
    gates = eqsat.spec((1024, 1024))
    halves = price(eqsat.trace(lambda h: np.tanh(h[:, :512]) * h[:, 512:], gates))
    assert price(eqsat.trace(lambda h: np.tanh(h[:, ::2]) * h[:, 1::2], gates)) <= 1.1 * halves


# --- sums of rows


@pytest.mark.parametrize("shape", [(4096, 1024), (8, 512, 96)])
def test_a_sum_of_rows_costs_the_same_as_a_product(shape: tuple[int, ...]) -> None:
    """By einsum or with a column of ones: in one kernel with what reads it."""
    ones = np.ones((shape[-1], 1), np.float32)
    spellings = [
        lambda x: x / np.sqrt((x * x).sum(-1, keepdims=True)),
        lambda x: x / np.sqrt(np.einsum("...k,...k->...", x, x))[..., None],
        lambda x: x / np.sqrt((x * x) @ ones),
    ]
    results = [eqsat.optimize(eqsat.trace(f, eqsat.spec(shape)), time_limit=30, measure=False) for f in spellings]
    assert [r.report["result"]["launches"] for r in results] == [1, 1, 1]
    written, *others = (r.report["result"]["predicted_us"] for r in results)
    assert others == [pytest.approx(written, rel=1e-3)] * 2


def test_softmaxes_against_a_column_are_one_kernel() -> None:
    w = weight(256, 1)
    best = eqsat.optimize(eqsat.trace(lambda x: softmax(x, -1) @ w, eqsat.spec((64, 256))), measure=False)
    assert [(k.family, k.launches) for k in best.plan.kernels] == [("row", 1)]
    x = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)
    for runs in ("numpy", "simt"):
        np.testing.assert_allclose(best.compile(on=runs)(x), softmax(x, -1) @ w, rtol=2e-5, atol=2e-6)


def test_layers_of_one_column_cost_what_those_of_one_row_cost() -> None:
    """The dense layers of squeeze and excitation, between a mean over pixels and a product with them."""

    def by_rows(x: Any) -> Any:
        return x / (1 + np.exp(-(np.maximum(x.mean(-2, keepdims=True) @ weight(64, 16), 0) @ weight(16, 64))))

    def by_columns(x: Any) -> Any:
        return x / (1 + np.exp(-(weight(16, 64).T @ np.maximum(weight(64, 16).T @ x.mean(-1, keepdims=True), 0))))

    for batch in ((), (3,)):
        columns = eqsat.trace(by_columns, eqsat.spec((*batch, 64, 1000)))
        best = eqsat.optimize(columns, measure=False)
        assert best.report["result"]["launches"] == 3
        assert price(columns) <= price(eqsat.trace(by_rows, eqsat.spec((*batch, 1000, 64)))) * 1.001
        x = np.random.default_rng(0).standard_normal((*batch, 64, 1000)).astype(np.float32)
        for runs in ("numpy", "simt"):
            np.testing.assert_allclose(best.compile(on=runs)(x), by_columns(x), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("rows", [1, 5])
def test_norms_around_a_narrow_product_are_right(rows: int) -> None:
    """Of one row, all of both norms and the product may be one kernel, whose last sums are written out."""
    w = weight(3, 3)
    best = eqsat.optimize(
        eqsat.trace(lambda x: norm(norm(x, -1) @ w, -1), eqsat.spec((rows, 3))), numerics="fast", measure=False
    )
    assert all(kernel.name for kernel in best.plan.kernels)
    x = np.random.default_rng(0).standard_normal((rows, 3)).astype(np.float32)
    for runs in ("numpy", "simt"):
        np.testing.assert_allclose(best.compile(on=runs)(x), norm(norm(x, -1) @ w, -1), rtol=1e-4, atol=1e-4)


# --- results inside


@pytest.mark.parametrize("shape", [(32, 3000), (3, 32, 700)])
def test_a_hidden_layer_that_is_a_result_too_is_one_kernel_in_columns(shape: tuple[int, ...]) -> None:
    def by_columns(x: Any) -> Any:
        hidden = np.maximum(weight(64, 32) @ x, 0)
        return hidden, weight(32, 64) @ hidden

    def by_rows(x: Any) -> Any:
        hidden = np.maximum(x @ weight(32, 64), 0)
        return hidden, hidden @ weight(64, 32)

    program = eqsat.trace(by_columns, eqsat.spec(shape))
    best = eqsat.optimize(program, measure=False)
    assert [k.family for k in best.plan.kernels] == ["stream"]
    assert price(program) <= price(eqsat.trace(by_rows, eqsat.spec((*shape[:-2], *shape[:-3:-1])))) * 1.001
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for runs in ("numpy", "simt"):
        for got, wanted in zip(best.compile(on=runs)(x), by_columns(x), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)


def test_what_two_convolutions_read_is_written_beside_the_first() -> None:
    """The fire module of SqueezeNet: squeezed channels, expanded by one pixel and by windows."""

    def fire(x: Any) -> Any:
        squeezed = np.maximum(eqsat.conv(x, weight(16, 64, 1, 1)), 0)
        windows = eqsat.conv(squeezed, weight(64, 16, 3, 3), (1, 1), (1, 1), (1, 1))
        return np.maximum(np.concatenate([eqsat.conv(squeezed, weight(64, 16, 1, 1)), windows], axis=1), 0)

    best = eqsat.optimize(eqsat.trace(fire, eqsat.spec((1, 64, 55, 55))), measure=False)
    assert [k.family for k in best.plan.kernels] == ["stream", "contraction", "pointwise"]


def test_shuffled_channels_are_read_where_they_lie() -> None:
    """Units of ShuffleNet: kernels of the best program must not be lost among those of all the others."""

    rng = np.random.default_rng(0)

    def weights(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    def shuffled(x: Any) -> Any:
        for _ in range(4):
            kept, moved = x[:, :58], x[:, 58:]
            for inputs, side, pad in ((58, 1, 0), (1, 3, 1), (58, 1, 0)):
                taps = weights(58, inputs, side, side)
                moved = eqsat.conv(moved, taps, (1, 1), (pad, pad), (pad, pad), groups=58 // inputs)
                moved = moved + weights(58, 1, 1)
                moved = np.maximum(moved, 0) if side == 1 else moved
            x = np.concatenate([kept, moved], axis=1).reshape(1, 2, 58, 14, 14)
            x = x.transpose(0, 2, 1, 3, 4).reshape(1, 116, 14, 14)
        return x

    report = eqsat.optimize(eqsat.trace(shuffled, eqsat.spec((1, 116, 14, 14))), time_limit=60, measure=False).report
    assert report["result"]["kernels"] < report["source"]["kernels"]


# --- parts


def conv(x: Any, strides: tuple[int, int]) -> Any:
    return eqsat.conv(x, weight(12, 8, 3, 3), strides, (1, 1), (1, 1))


PARTS = {
    "rows of a product": (lambda x: (x @ weight(64, 48))[1::3], lambda x: x[1::3] @ weight(64, 48), (40, 64)),
    "columns of a product": (lambda x: (x @ weight(64, 96))[:, ::3], lambda x: x @ weight(64, 96)[:, ::3], (40, 64)),
    "blocks of columns": (
        lambda x: (x @ weight(64, 96)).reshape(40, 4, 3, 8)[:, :, 1],
        lambda x: (x @ weight(64, 96).reshape(64, 4, 3, 8)[:, :, 1].reshape(64, 32)).reshape(40, 4, 8),
        (40, 64),
    ),
    "every other pixel": (lambda x: conv(x, (1, 1))[:, :, ::2, ::2], lambda x: conv(x, (2, 2)), (2, 8, 12, 12)),
    "interleaved products": (
        lambda x: tuple((x @ weight(64, 96))[:, i::3] for i in range(3)),
        lambda x: tuple(x @ weight(64, 96)[:, i::3] for i in range(3)),
        (40, 64),
    ),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_part_costs_what_it_costs_where_only_the_part_is_computed(name: str) -> None:
    whole, part, shape = PARTS[name]
    assert price(eqsat.trace(whole, eqsat.spec(shape))) <= price(eqsat.trace(part, eqsat.spec(shape))) * 1.001
