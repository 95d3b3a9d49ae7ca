"""Layers as written, and as an expert would fold them by hand: the result of `optimize` is at least as good."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.extract.near import CLOSE
from support.programs import weight

F32 = np.float32
TIE = 5e-4
"""Relative difference in predicted time that is none."""


SCALE, SHIFT, MEAN = (weight(12, 1, 1, seed=s) for s in (1, 2, 3))
SLOPE = SCALE / np.sqrt(np.abs(weight(12, 1, 1, seed=4)) + F32(1e-5))


def filtered(x: Any, w: np.ndarray) -> Any:
    return eqsat.conv(x, w, pads_lo=(1, 1), pads_hi=(1, 1))


GAMMA, BETA = weight(72, seed=7), weight(72, seed=8)


def heads(x: Any, w: np.ndarray) -> Any:
    return (x @ w).reshape(50, 4, 18).transpose((1, 0, 2))


def swiglu_halves(x: Any) -> Any:
    packed = x @ np.concatenate([weight(72, 90), weight(72, 90, seed=1)], 1)
    return eqsat.silu(packed[:, :90]) * packed[:, 90:]


Row = tuple[Callable[..., Any], Callable[..., Any], tuple[tuple[int, ...], ...]]

FOLDS: dict[str, Row] = {
    "gamma of a layer norm into the next weights": (
        lambda x: (eqsat.layernorm(x) * GAMMA) @ weight(72, 90),
        lambda x: eqsat.layernorm(x) @ (GAMMA[:, None] * weight(72, 90)),
        ((50, 72),),
    ),
    "gamma and beta of a layer norm into the next layer": (
        lambda x: (eqsat.layernorm(x) * GAMMA + BETA) @ weight(72, 90) + weight(90),
        lambda x: eqsat.layernorm(x) @ (GAMMA[:, None] * weight(72, 90)) + (BETA @ weight(72, 90) + weight(90)),
        ((50, 72),),
    ),
    "gamma of an RMS norm into the next weights": (
        lambda x: eqsat.rmsnorm(x, GAMMA) @ weight(72, 90),
        lambda x: eqsat.rmsnorm(x) @ (GAMMA[:, None] * weight(72, 90)),
        ((50, 72),),
    ),
    "batch norm into a convolution": (
        lambda x: eqsat.relu((filtered(x, weight(12, 5, 3, 3)) - MEAN) * SLOPE + SHIFT),
        lambda x: eqsat.relu(filtered(x, weight(12, 5, 3, 3) * SLOPE[..., None]) + (SHIFT - MEAN * SLOPE)),
        ((1, 5, 14, 14),),
    ),
    "scale of scores into the weights of the queries": (
        lambda x, k: heads(x, weight(72, 72)) @ k.transpose((0, 2, 1)) * F32(0.3),
        lambda x, k: heads(x, weight(72, 72) * F32(0.3)) @ k.transpose((0, 2, 1)),
        ((50, 72), (4, 60, 18)),
    ),
    "diagonal scales of the queries into their weights": (
        lambda x: (x @ weight(72, 90)) * weight(90, seed=5),
        lambda x: x @ (weight(72, 90) * weight(90, seed=5)),
        ((50, 72),),
    ),
    "gate and values of a SwiGLU as one product or two": (
        lambda x: eqsat.silu(x @ weight(72, 90)) * (x @ weight(72, 90, seed=1)),
        swiglu_halves,
        ((50, 72),),
    ),
    "bias of the values past attention": (
        lambda q, k, v: eqsat.softmax(q @ k.T) @ (v + weight(40)),
        lambda q, k, v: eqsat.softmax(q @ k.T) @ v + weight(40),
        ((50, 24), (60, 24), (60, 40)),
    ),
    "bias of the values into the bias of the output": (
        lambda q, k, v: eqsat.softmax(q @ k.T) @ (v + weight(40)) @ weight(40, 30) + weight(30),
        lambda q, k, v: eqsat.softmax(q @ k.T) @ v @ weight(40, 30) + (weight(40) @ weight(40, 30) + weight(30)),
        ((50, 24), (60, 24), (60, 40)),
    ),
    "a number added to all scores cancels": (
        lambda x: eqsat.softmax(x + F32(4.0)),
        lambda x: eqsat.softmax(x),
        ((50, 72),),
    ),
    "a number added to all scores cancels in a log softmax": (
        lambda x: eqsat.log_softmax(x + F32(4.0)),
        lambda x: eqsat.log_softmax(x),
        ((50, 72),),
    ),
    "a number added before a layer norm cancels": (
        lambda x: eqsat.layernorm(x + F32(4.0), GAMMA, BETA),
        lambda x: eqsat.layernorm(x, GAMMA, BETA),
        ((50, 72),),
    ),
    "mean of an activated product": (
        lambda x: eqsat.relu(x @ weight(72, 90)).mean(1),
        lambda x: (eqsat.relu(x @ weight(72, 90)) * F32(1 / 90)).sum(1),
        ((50, 72),),
    ),
    "variance of a shifted row": (
        lambda x: eqsat.var(x + F32(4.0), 1),
        lambda x: eqsat.var(x, 1),
        ((50, 72),),
    ),
    "a convolution over channels alone is a product": (
        lambda x: eqsat.conv(x, weight(12, 20, 1, 1)),
        lambda x: eqsat.reshape(weight(12, 20) @ x.reshape(20, 196), (1, 12, 14, 14)),
        ((1, 20, 14, 14),),
    ),
    "concatenated biases are one bias": (
        lambda x, y: eqsat.concat([x + weight(72), y + weight(72)], 0),
        lambda x, y: eqsat.concat([x, y], 0) + weight(72),
        ((50, 72), (50, 72)),
    ),
}


WHOLE = ("gamma and beta of a layer norm into the next layer", "gamma of an RMS norm into the next weights")
"""Folds that take a norm apart: it stays whole where this costs hardly more."""


@pytest.mark.parametrize("name", FOLDS)
def test_what_is_written_gets_as_cheap_as_what_is_folded_by_hand(name: str):
    written, folded, shapes = FOLDS[name]
    specs = [eqsat.spec(s) for s in shapes]
    found = eqsat.optimize(eqsat.trace(written, *specs)).report["result"]
    by_hand = eqsat.optimize(eqsat.trace(folded, *specs)).report
    tie = CLOSE if name in WHOLE else TIE
    for other in (by_hand["source"], by_hand["result"]):
        assert found["predicted_us"] <= other["predicted_us"] * (1 + tie)
        assert found["launches"] <= other["launches"]
        less = found["predicted_us"] < other["predicted_us"] * (1 - tie)
        assert found["kernels"] <= other["kernels"] or less  # a launch of several kernels may save time
        assert found["matmul_flops"] <= other["matmul_flops"]


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda x, b: eqsat.softmax(x + b), ((50, 72), (50, 1))),
        (lambda x, b: eqsat.layernorm(x + b), ((50, 72), (50, 1))),
    ],
)
def test_a_shift_that_may_be_infinite_cancels_only_when_asked_to_be_fast(function: Any, shapes: Any):
    source = eqsat.trace(function, *[eqsat.spec(s) for s in shapes])
    careful = eqsat.optimize(source).report["result"]["bytes"]
    fast = eqsat.optimize(source, numerics="fast").report["result"]["bytes"]
    assert fast < careful
