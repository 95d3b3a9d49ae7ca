"""Rules earn their place: programs whose result costs more when one rule is taken away."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatch
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.rules import ALL
from support.programs import weight

F32 = np.float32


def spread(x: Any, *shape: int) -> Any:
    return eqsat.broadcast_to(x, shape)


def again(x: Any, axis: int) -> Any:
    """The sum along an axis, put back along it."""
    return spread(x.sum(axis, keepdims=True), *x.shape)


def shifted_softmax(x: Any, shift: Any) -> Any:
    return eqsat.softmax(x + shift)


def in_windows(x: Any) -> Any:
    """[28, 28, c] as windows of 7 x 7 rows of c."""
    c = x.shape[-1]
    return eqsat.reshape(eqsat.transpose(eqsat.reshape(x, (4, 7, 4, 7, c)), (0, 2, 1, 3, 4)), (-1, c))


def attention(q: Any, k: Any, v: Any) -> Any:
    return eqsat.softmax(q @ k.T) @ (v + weight(48))


def in_unit(x: Any) -> Any:
    """Every column by its length."""
    return x * (1 / np.sqrt((x * x).sum(0, keepdims=True) + F32(1e-5)))


LONG = (900, 48), (48, 900), (900, 48)
"""Three factors of which the last two are better multiplied first."""

Row = tuple[Callable[..., Any], tuple[Any, ...]]

# rule (or some that mirror each other): a program that is cheaper with it, its inputs (a shape, or a shape and a dtype)
PAYS: dict[str, Row] = {
    # reductions
    "sum-of-sum": (lambda x: x.sum(2).sum(1), ((300, 20, 30),)),
    "product-of-product": (lambda x: eqsat.prod(eqsat.prod(x, 2), 1), ((300, 20, 30),)),
    "maximum-of-maximum": (lambda x: x.max(2).max(1), ((300, 20, 30),)),
    "minimum-of-minimum": (lambda x: x.min(2).min(1), ((300, 20, 30),)),
    "sum-of-permuted-sum": (lambda x: x.sum(2).sum(0), ((300, 20, 30),)),
    "product-of-permuted-product": (lambda x: eqsat.prod(eqsat.prod(x, 2), 0), ((300, 20, 30),)),
    "maximum-of-permuted-maximum": (lambda x: x.max(2).max(0), ((300, 20, 30),)),
    "minimum-of-permuted-minimum": (lambda x: x.min(2).min(0), ((300, 20, 30),)),
    "sum-of-repeated": (lambda x: spread(x, 300, 400, 50).sum((1, 2)), ((300, 1, 50),)),
    "maximum-of-repeated": (lambda x: spread(x, 300, 400, 50).max((1, 2)), ((300, 1, 50),)),
    "minimum-of-repeated": (lambda x: spread(x, 300, 400, 50).min((1, 2)), ((300, 1, 50),)),
    "sum-of-repeated-addend": (lambda x: (x + again(x, 1)).sum(1), ((4, 40000),)),
    "sum-of-repeated-first-addend": (lambda x: (again(x, 1) + x).sum(1), ((4, 40000),)),
    "sum-of-repeated-subtrahend": (lambda x: (x - again(x, 1)).sum(1), ((4, 40000),)),
    "sum-of-repeated-minuend": (lambda x: (again(x, 1) - x).sum(1), ((4, 40000),)),
    "sum-of-permuted-repeated-addend": (lambda x: (x + again(x, 1)).sum(1), ((2, 40000, 30),)),
    "scale-into-sum": (lambda x: eqsat.relu(x @ weight(96, 80)).mean(1), ((500, 96),)),
    "sum-of-broadcast-products": (
        lambda a, b: (a.reshape(128, 1, 512) * b.reshape(1, 128, 512)).sum(-1),
        (((128, 512), "float16"), ((128, 512), "float16")),
    ),
    "function-with-number-of-broadcast": (lambda x: eqsat.minimum(spread(x, 400, 300, 50), 6.0).sum(0), ((300, 50),)),
    "function-of-number-and-of-broadcast": (lambda x: (6.0 / spread(x, 400, 300, 50)).sum(0), ((300, 50),)),
    # numbers
    "function-of-number": (lambda x: (x - 2.0) + 2.0, ((500, 96),)),
    "function-of-numbers": (lambda x: (x + 4.0) + -4.0, ((500, 96),)),
    "subtract-zero": (lambda x: x - 0.0, ((500, 96),)),
    "subtract-from-zero": (lambda x: 0.0 - (0.0 - x), ((500, 96),)),
    "multiply-by-minus-one": (lambda x: -(x * -1.0), ((500, 96),)),
    "multiply-integer-by-zero": (lambda x: x * 0, (((500, 96), "int32"),)),
    "multiply-by-zero": (lambda x: x * 0.0, ((500, 96),)),
    "divide-zero": (lambda x: 0.0 / x, ((500, 96),)),
    "power-zero": (lambda x: eqsat.power(x, F32(0)), ((500, 96),)),
    "power-one": (lambda x: eqsat.power(x, F32(1)), ((500, 96),)),
    "power-two": (lambda x: eqsat.power(x, F32(2)), ((5, 9),)),
    "power-three": (lambda x: eqsat.power(x, F32(3)), ((5, 9),)),
    "power-minus-one": (lambda x: eqsat.power(x, F32(-1)), ((5, 9),)),
    "and-true": (lambda x: x & np.True_, (((500, 96), "bool"),)),
    "and-false": (lambda x: (eqsat.exp(x) > 2.0) & np.False_, ((500, 96),)),
    "or-true": (lambda x: (eqsat.exp(x) > 2.0) | np.True_, ((500, 96),)),
    "not-twice": (lambda x: ~(~x), (((500, 96), "bool"),)),
    "or-false": (lambda x: x | np.False_, (((500, 96), "bool"),)),
    "reciprocal-of-root": (lambda x: eqsat.reciprocal(eqsat.sqrt(x)), ((5, 9),)),
    "double": (lambda x: (x + x) @ weight(96, 80) + x @ weight(96, 80, seed=1), ((500, 96),)),
    "multiple-and-one": (lambda x: (x * 3.0 + x) * 0.25, ((500, 96),)),
    "one-and-multiple": (lambda x: (x + x * 3.0) * 0.25, ((500, 96),)),
    "sum-of-multiples": (lambda x: x * 0.75 + x * 0.25, ((500, 96),)),
    "difference-of-multiples": (lambda x: x * 1.25 - x * 0.25, ((500, 96),)),
    "log-of-exponential": (lambda x: eqsat.log(eqsat.exp(x)), ((500, 96),)),
    "log-of-quotient": (lambda x: eqsat.log(eqsat.softmax(x)), ((50, 16),)),
    # softmax and norms
    "deviation-from-greatest-of-shifted": (lambda x: shifted_softmax(x, 3.0), ((50, 16),)),
    "deviation-from-greatest-of-row-shifted": (shifted_softmax, ((500, 96), (500, 1))),
    "deviation-from-mean-of-shifted": (lambda x: eqsat.layernorm(x + 3.0), ((50, 16),)),
    "deviation-from-mean-of-row-shifted": (lambda x, b: eqsat.layernorm(x + b), ((500, 96), (500, 1))),
    "bias-past-weights-of-one": (attention, ((500, 32), (400, 32), (400, 48))),
    # either way round
    "sum-of-the-same-two": (lambda x, y: ((x + y) @ weight(96, 80), (y + x) @ weight(96, 80)), ((500, 96), (500, 96))),
    "product-of-the-same-two": (
        lambda x, y: ((x * y) @ weight(96, 80), (y * x) @ weight(96, 80)),
        ((500, 96), (500, 96)),
    ),
    "minimum-of-the-same-two": (
        lambda x, y: (eqsat.minimum(x, y) @ weight(96, 80), eqsat.minimum(y, x) @ weight(96, 80)),
        ((500, 96), (500, 96)),
    ),
    "maximum-of-the-same-two": (
        lambda x, y: (eqsat.maximum(x, y) @ weight(96, 80), eqsat.maximum(y, x) @ weight(96, 80)),
        ((500, 96), (500, 96)),
    ),
    "conjunction-of-the-same-two": (lambda x, y: (x & y, y & x), (((500, 96), "bool"), ((500, 96), "bool"))),
    "disjunction-of-the-same-two": (lambda x, y: (x | y, y | x), (((500, 96), "bool"), ((500, 96), "bool"))),
    "equality-of-the-same-two": (lambda x, y: (x == y, y == x), ((500, 96), (500, 96))),
    "constant-conjunct-right": (lambda x: np.True_ & x, (((500, 96), "bool"),)),
    "constant-disjunct-right": (lambda x: np.False_ | x, (((500, 96), "bool"),)),
    "factor-sum-before-sums-left": (
        lambda x, y, z, w: w @ x + (y + w @ z),
        ((96, 500), (96, 500), (96, 500), (96, 96)),
    ),
    "factor-sum-before-sums-right": (
        lambda x, y, z, w: x @ w + (y + z @ w),
        ((500, 96), (500, 96), (500, 96), (96, 96)),
    ),
    "matmul-with-columns-on-the-right": (
        lambda x: (eqsat.layernorm(x) @ weight(256, 256)) @ (weight(256, 256) @ eqsat.layernorm(x).T),
        ((64, 256),),
    ),
    "column-scale-through-matmul": (
        lambda x: weight(64, 64) @ (eqsat.sigmoid(weight(64, 64) @ in_unit(x)) * (weight(64, 64, seed=1) @ in_unit(x))),
        ((64, 32),),
    ),
    # conversions
    "cast-there-and-back": (lambda x: x.astype("float64").astype("float32"), ((500, 96),)),
    "cast-of-widening": (
        lambda x: x.astype("float32").astype("float64") @ weight(96, 80).astype("float64"),
        (((500, 96), "float16"),),
    ),
    # constants moved together
    "gather-constants-of-each-side-of-sum": (
        lambda x, y: (x + weight(500, 96)) + (y + weight(500, 96, seed=1)),
        ((500, 96), (500, 96)),
    ),
    "gather-constants-around-addend-of-sum": (
        lambda x, y: ((x + weight(500, 96)) + y) + weight(500, 96, seed=1),
        ((500, 96), (500, 96)),
    ),
    "gather-constants-behind-addend-of-sum": (
        lambda x, y: (y + (x + weight(500, 96))) + weight(500, 96, seed=1),
        ((500, 96), (500, 96)),
    ),
    "gather-constants-of-each-side-of-product": (
        lambda x, y: (x * weight(500, 96)) * (y * weight(500, 96, seed=1)),
        ((500, 96), (500, 96)),
    ),
    "scale-of-constant-addend": (
        lambda x: (x @ weight(96, 80) + weight(80)) * weight(80, seed=1),
        ((50, 96),),
    ),
    # products
    "matmul-associate-across-*sign": (lambda q, k, v: -(q @ k) @ v, LONG),
    "matmul-associate-across-*inner-scale": (lambda q, k, v, s: (q @ k) * s @ v, (*LONG, (1, 900))),
    "matmul-associate-across-*first-inner-scale": (lambda q, k, v, s: s * (q @ k) @ v, (*LONG, (1, 900))),
    "number-into-constant-right": (lambda x: (x * 3.0) @ weight(96, 400), ((500, 96),)),
    "number-into-constant-left": (lambda x: weight(400, 96) @ (x * 3.0), ((96, 500),)),
    "number-into-constant-*-behind-view": (
        lambda x: eqsat.conv(x * 3.0, weight(16, 8, 3, 3), pads_lo=(1, 1), pads_hi=(1, 1)),
        ((2, 8, 20, 20),),
    ),
    "inner-scale-into-constant": (lambda x: (x * weight(96)) @ weight(96, 400), ((96,),)),
    "inner-scale-into-constant-left-behind-view": (lambda x: weight(400, 96) @ (x * weight(96, 1)), ((96, 500),)),
    "constant-addend-*-behind-view": (
        lambda x: eqsat.conv(x + weight(8, 1, 1), weight(16, 8, 3, 3)),
        ((2, 8, 20, 20),),
    ),
    "matmul-of-*-repeated-inside": (
        lambda x: eqsat.conv(spread(x, 1, 64, 64, 64), weight(64, 64, 3, 3)),
        ((1, 64, 1, 1),),
    ),
    "permuted-rows-through-matmul": (lambda x: in_windows(eqsat.layernorm(x)) @ weight(96, 288), ((28, 28, 96),)),
    "transpose-of-blocks-of-matmul": (lambda x: eqsat.conv(x, weight(64, 32, 1, 1)), ((8, 32, 14, 14),)),
}

FAST = {
    "multiply-by-zero",
    "divide-zero",
    "log-of-exponential",
    "log-of-quotient",
    "deviation-from-greatest-of-row-shifted",
    "deviation-from-mean-of-row-shifted",
}
"""Rules that only the policy `fast` lets fire."""


@pytest.mark.parametrize("rule", PAYS)
def test_without_the_rule_the_result_costs_more(rule: str):
    function, inputs = PAYS[rule]
    specs = [eqsat.spec(*s) if isinstance(s[-1], str) else eqsat.spec(s) for s in inputs]
    source = eqsat.trace(function, *specs)
    numerics = "fast" if rule in FAST else "reassociate"
    with_it = eqsat.optimize(source, numerics=numerics).report["result"]
    others = [row for row in ALL if not fnmatch(row.name, rule)]
    assert len(others) < len(ALL)
    without = eqsat.optimize(source, numerics=numerics, rules=others).report["result"]
    assert with_it["predicted_us"] < without["predicted_us"]
    assert with_it["kernels"] <= without["kernels"]
