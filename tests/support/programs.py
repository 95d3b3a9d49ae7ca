"""What programs of tests are made of."""

from __future__ import annotations

import numpy as np


def weight(*shape: int, seed: int = 0) -> np.ndarray:
    """Normal float32 values of a deviation that keeps products of them near 1; the same for a shape and a seed."""
    values = np.random.default_rng([seed, *shape]).standard_normal(shape)
    return (values / np.sqrt(max(shape[0], 1))).astype(np.float32)
