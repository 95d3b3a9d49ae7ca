"""ONNX's Fourier transforms of short signals: products with constant waves."""

from __future__ import annotations

import numpy as np

from eqsat.base.numerics import Array
from eqsat.errors import ShapeError
from eqsat.frontends.onnx.operators.node import Node, Row, row
from eqsat.frontends.terms.declined import Declined
from eqsat.program import composites, ops
from eqsat.program.term import Term

_LENGTH = 1024
"""Longest signal, or frame, that is multiplied by all its waves: beyond, a fast transform takes far fewer steps."""


def _waves(n: int, bins: int) -> Array:
    """cos and -sin of every step and frequency, in float64: [n, bins, 2]."""
    angles = 2 * np.pi * (np.outer(np.arange(n), np.arange(bins)) % n) / n
    return np.stack([np.cos(angles), -np.sin(angles)], -1)


def _dft(node: Node) -> Term:
    """x[..., n, ..., 1 or 2] to [..., bins, ..., 2]: a signal, cut or padded with zeros, times the waves."""
    x = node.input(0)
    axis = ops.axis_of(node.attr("axis", 1) if node.version < 20 else node.whole(2, -2), x.ndim)
    n = node.whole(1, x.shape[axis])
    inverse, onesided = bool(node.attr("inverse", 0)), bool(node.attr("onesided", 0))
    parts = x.shape[-1]
    if axis == x.ndim - 1 or parts not in (1, 2) or (onesided and (inverse or parts == 2)):
        raise Declined("a real result, or half of a complex one")
    if not 0 < n <= _LENGTH:
        raise Declined("a long signal")
    x = ops.pad(x, [0] * x.ndim, [n - x.shape[axis] if i == axis else 0 for i in range(x.ndim)])
    waves = _waves(n, n // 2 + 1 if onesided else n)
    re, im = waves[..., 0], -waves[..., 1] if inverse else waves[..., 1]
    both = [np.stack([re, im], -1), np.stack([-im, re], -1)][:parts]  # what the real and imaginary part of a step give
    matrix = np.stack(both, 1).reshape(n * parts, -1) / (n if inverse else 1)
    order = [*(i for i in range(x.ndim - 1) if i != axis), axis, x.ndim - 1]
    turned = ops.transpose(x, order)
    rows = ops.reshape(turned, (*turned.shape[:-2], n * parts))
    found = composites.matmul(rows, ops.constant(matrix.astype(x.dtype)))
    bins = ops.reshape(found, (*turned.shape[:-2], -1, 2))
    return ops.transpose(bins, [order.index(i) for i in range(x.ndim)])


def _stft(node: Node) -> Term:
    """signal[b, t] or [b, t, 1] to [b, frames, bins, 2]: a convolution with waves in the window."""
    signal, step, window = node.input(0), node.whole(1), node.optional(2)
    if signal.ndim not in (2, 3) or (signal.ndim == 3 and signal.shape[2] != 1):
        raise Declined("a complex signal")
    batch, length = signal.shape[:2]
    n = node.whole(3, length if window is None else window.size)
    if not 0 < n <= _LENGTH or step < 1:
        raise Declined("long frames")
    if n > length or (window is not None and window.shape != (n,)):
        raise ShapeError(f"STFT takes frames within the signal and a window as long, got {n}, {signal.shape}, "
                         f"{None if window is None else window.shape}")  # fmt: skip
    bins = n // 2 + 1 if node.attr("onesided", 1) else n
    waves = ops.constant(_waves(n, bins).transpose(1, 2, 0).reshape(2 * bins, 1, n).astype(signal.dtype))
    if window is not None:
        waves = ops.mul(waves, ops.broadcast(ops.reshape(window, (1, 1, n)), waves.shape))
    found = ops.conv(ops.reshape(signal, (batch, 1, length)), waves, [step])
    return ops.transpose(ops.reshape(found, (batch, bins, 2, found.shape[2])), (0, 3, 1, 2))


SIGNAL: dict[str, Row] = {
    "DFT": row(_dft, 17, 20, unless="more than 1024 elements, a one-sided inverse"),
    "STFT": row(_stft, 17, unless="frames of more than 1024 elements, a complex signal"),
}
"""One row per operator, with the since-versions whose meaning the converter covers."""
