"""Three small towers over slices of one input, which optimising joins: a program with much to explain."""

from __future__ import annotations

import numpy as np

import eqsat


def weight(*shape: int) -> np.ndarray:
    """The same normal values for the same shape."""
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def towers(x: eqsat.Tracer) -> tuple[eqsat.Tracer, ...]:
    outs = []
    for t in range(3):
        h = eqsat.relu(x[:, 64 * t : 64 * t + 64] @ weight(64, 32) + weight(32) + t)
        outs.append(h @ (weight(32, 16) + t))
    return tuple(outs)
