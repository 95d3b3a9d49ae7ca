"""Convolutions: scales and biases into weights, siblings, sums and concatenations of them; 1x1 ones as products."""

from __future__ import annotations

from typing import Any

import numpy as np

import eqsat
from support.migraphx_pairs.common import Row, along, cat, conv, lit, stretch

IMAGE, KERNEL = (1, 16, 16, 16), (64, 16, 3, 3)
HALVED = {"strides": (2, 2), "pads_lo": (1, 1), "pads_hi": (1, 1)}
PADDED = {"pads_lo": (1, 1), "pads_hi": (1, 1)}
WIDE, WIDE_KERNEL = (1, 32, 9, 9), (192, 32, 1, 1)


def _half_scaled(x: Any) -> tuple[Any, Any]:
    y = conv(x, lit(*WIDE_KERNEL))
    return y[:, :96] * along(lit(96), 1, (1, 96, 9, 9)), y[:, 96:]


def _half_folded(x: Any) -> Any:
    w = lit(*WIDE_KERNEL)
    return conv(x, cat([w[:96] * lit(96).reshape(96, 1, 1, 1), w[96:]]))


def _scale_folded(x: Any) -> Any:
    return conv(x, lit(*KERNEL) * lit(64).reshape(64, 1, 1, 1), **HALVED)


def _siblings(x: Any) -> Any:
    convs = conv(x, lit(6, 6, 3, 3), **PADDED) + conv(x, lit(6, 6, 3, 3, seed=1), **PADDED)
    return convs + (x @ lit(4, 6, 32, 32, seed=2) + x @ lit(4, 6, 32, 32, seed=3))


def _merged(x: Any) -> Any:
    convs = conv(x, cat([lit(6, 6, 3, 3), lit(6, 6, 3, 3, seed=1)]), **PADDED)
    products = x @ cat([lit(4, 6, 32, 32, seed=2), lit(4, 6, 32, 32, seed=3)], 3)
    return (convs[:, :6] + convs[:, 6:]) + (products[..., :32] + products[..., 32:])


def _squared_difference(x: Any, seed: int) -> Any:
    d = x - lit(4, 6, 32, 32, seed=seed)
    return d * d


def _channel_bias(seed: int) -> Any:
    return along(lit(96, seed=seed), 1, (1, 96, 9, 9))


def _shortcut(x: Any) -> Any:
    y = conv(conv(x, lit(32, 16, 1, 1)), lit(64, 32, 1, 1), strides=(2, 2))
    return y.reshape(2, 2, 2, 16, 6, 6).transpose((0, 3, 4, 1, 5, 2)).reshape(2, 16, 12, 12) + x


def _shortcut_reshaped(x: Any) -> Any:
    y = conv(conv(x, lit(32, 16, 1, 1)), lit(64, 32, 1, 1), strides=(2, 2))
    y = y.reshape(2, 2, 2, 16, 6, 6).transpose((0, 3, 4, 1, 5, 2))
    return (y + x.reshape(2, 16, 6, 2, 6, 2)).reshape(2, 16, 12, 12)


CONVOLUTIONS: dict[str, Row] = {
    "mul_conv1": (
        lambda x: conv(x, lit(*KERNEL), **HALVED) * along(lit(64), 1, (1, 64, 8, 8)),
        _scale_folded,
        (IMAGE,),
    ),
    "mul_conv2": (
        lambda x: conv(x, lit(*KERNEL), **HALVED) * stretch(lit(64).reshape(64, 1, 1), (1, 64, 8, 8)),
        _scale_folded,
        (IMAGE,),
    ),
    "mul_slice_conv1": (
        lambda x: sum(_half_scaled(x)[1:], _half_scaled(x)[0]),
        lambda x: _half_folded(x)[:, :96] + _half_folded(x)[:, 96:],
        (WIDE,),
    ),
    "mul_slice_conv_horiz_fusion": (
        lambda x: (_half_scaled(x)[0] + _channel_bias(1), _half_scaled(x)[1] + _channel_bias(2)),
        lambda x: (_half_folded(x)[:, :96] + _channel_bias(1), _half_folded(x)[:, 96:] + _channel_bias(2)),
        (WIDE,),
    ),
    "conv_add": (
        lambda x: conv(lit(1, 3, 16, 16) + x, lit(4, 3, 3, 3)),
        lambda x: conv(lit(1, 3, 16, 16), lit(4, 3, 3, 3)) + conv(x, lit(4, 3, 3, 3)),
        ((1, 3, 16, 16),),
    ),
    "add_conv1": (
        lambda x, y: conv(x, lit(64, 32, 3, 3)) + conv(y, lit(64, 32, 3, 3, seed=1)),
        lambda x, y: conv(cat([x, y], 1), cat([lit(64, 32, 3, 3), lit(64, 32, 3, 3, seed=1)], 1)),
        ((1, 32, 28, 28), (1, 32, 28, 28)),
    ),
    "add_conv_1x1_diff_strides1": (
        lambda x, y: conv(x, lit(64, 16, 1, 1)) + conv(y, lit(64, 16, 1, 1, seed=1), strides=(2, 2)),
        lambda x, y: conv(cat([x, y[:, :, ::2, ::2]], 1), cat([lit(64, 16, 1, 1), lit(64, 16, 1, 1, seed=1)], 1)),
        ((1, 16, 8, 8), IMAGE),
    ),
    "add_conv_1x1_diff_strides2": (
        lambda x, y: conv(x, lit(64, 16, 1, 1), strides=(2, 2)) + conv(y, lit(64, 16, 1, 1, seed=1)),
        lambda x, y: conv(cat([x[:, :, ::2, ::2], y], 1), cat([lit(64, 16, 1, 1), lit(64, 16, 1, 1, seed=1)], 1)),
        (IMAGE, (1, 16, 8, 8)),
    ),
    "add_conv_1x1_diff_strides_odd": (
        lambda x, y: conv(x, lit(54, 54, 1, 1)) + conv(y, lit(54, 54, 1, 1, seed=1), strides=(2, 2)),
        lambda x, y: conv(cat([x, y[:, :, ::2, ::2]], 1), cat([lit(54, 54, 1, 1), lit(54, 54, 1, 1, seed=1)], 1)),
        ((1, 54, 41, 41), (1, 54, 81, 81)),
    ),
    "conv_horiz": (
        lambda x: conv(x, lit(12, 3, 3, 3)) + conv(x, lit(12, 3, 3, 3, seed=1)),
        lambda x: (lambda y: y[:, :12] + y[:, 12:])(conv(x, cat([lit(12, 3, 3, 3), lit(12, 3, 3, 3, seed=1)]))),
        ((4, 3, 32, 32),),
    ),
    "conv_horiz_grouped": (_siblings, _merged, ((4, 6, 32, 32),)),
    "conv_horiz_grouped_extra1": (
        lambda x: _siblings(x) + _squared_difference(x, 4),
        lambda x: _merged(x) + _squared_difference(x, 4),
        ((4, 6, 32, 32),),
    ),
    "conv_horiz_grouped_extra2": (
        lambda x: _siblings(x) + (_squared_difference(x, 4) + _squared_difference(x, 5)),
        lambda x: _merged(x) + (_squared_difference(x, 4) + _squared_difference(x, 5)),
        ((4, 6, 32, 32),),
    ),
    "conv_concat": (
        lambda x, y: eqsat.exp(cat([conv(x, lit(2, 8, 3, 3, seed=1)), conv(y, lit(2, 8, 3, 3, seed=2))], 1)),
        lambda x, y: eqsat.exp(conv(cat([x, y], 1), cat([lit(2, 8, 3, 3, seed=1), lit(2, 8, 3, 3, seed=2)]), groups=2)),
        ((1, 8, 4, 4), (1, 8, 4, 4)),
    ),
    "conv_concat_group": (
        lambda x, y: eqsat.exp(
            cat([conv(x, lit(2, 4, 3, 3, seed=1), groups=2), conv(y, lit(2, 4, 3, 3, seed=2), groups=2)], 1)
        ),
        lambda x, y: eqsat.exp(conv(cat([x, y], 1), cat([lit(2, 4, 3, 3, seed=1), lit(2, 4, 3, 3, seed=2)]), groups=4)),
        ((1, 8, 4, 4), (1, 8, 4, 4)),
    ),
    "conv_broadcast": (
        lambda x: conv(stretch(x, (1, 8, 12, 12)), lit(6, 8, 3, 3)),
        lambda x: stretch((lit(6, 8, 3, 3).sum((2, 3)) @ x.reshape(8, 1)).reshape(1, 6, 1, 1), (1, 6, 10, 10)),
        ((1, 8, 1, 1),),
    ),
    "zero_point": (
        lambda x: conv((x - 0.0) * 0.5, lit(6, 8, 3, 3)),
        lambda x: conv(x, lit(6, 8, 3, 3) * np.float32(0.5)),
        ((1, 8, 12, 12),),
    ),
    "transpose_contiguous_reshape_binary_packed": (_shortcut, _shortcut_reshaped, ((2, 16, 12, 12),)),
    "nchw_conv_1x1": (
        lambda x: conv(x, lit(64, 32, 1, 1)),
        lambda x: (stretch(lit(64, 32, 1, 1).reshape(64, 32), (4, 64, 32)) @ x.reshape(4, 32, 784)).reshape(
            4, 64, 28, 28
        ),
        ((4, 32, 28, 28),),
    ),
    "nhwc_conv_1x1": (
        lambda x: conv(x.transpose((0, 3, 1, 2)), lit(64, 32, 1, 1)).transpose((0, 2, 3, 1)),
        lambda x: x @ stretch(lit(64, 32, 1, 1).reshape(64, 32).T, (4, 28, 32, 64)),
        ((4, 28, 28, 32),),
    ),
}
