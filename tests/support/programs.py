"""Building blocks for programs in tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import eqsat


def weight(*shape: int, seed: int = 0) -> np.ndarray:
    """Normal float32 values of a deviation that keeps products of them near 1; the same for a shape and a seed."""
    values = np.random.default_rng([seed, *shape]).standard_normal(shape)
    return (values / np.sqrt(max(shape[0], 1))).astype(np.float32)


def wide_sum(rows: int, columns: int, widths: Sequence[int]) -> Callable[[Any], Any]:
    """A sum of two-layer nets of these hidden widths, over x[n, rows], with results [n, columns]."""
    nets = [(weight(rows, n), weight(n), weight(n, columns)) for n in widths]

    def function(x: Any) -> Any:
        first, *others = (eqsat.relu(x @ a + b) @ c for a, b, c in nets)
        return sum(others, first)

    return function
