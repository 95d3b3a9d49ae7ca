"""Constants of two values that change along diagonals only: triangles and windows, as masks of attention are.

Such a constant is a view of one number. No kernel reads it from memory, and what it masks is known from its layout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eqsat.layout import arithmetic as lay
from eqsat.layout.arithmetic import Layout

if TYPE_CHECKING:
    import numpy as np

_SAMPLES = 64
"""Elements that are looked at first, spread over the array: most constants have more than two values among them."""


def banded(a: np.ndarray[Any, Any]) -> tuple[Layout, float | int | bool] | None:
    """(layout, value) with V(Full(value), layout) = a[.., m, n], where it has one value on some neighbouring diagonals
    of every [m, n] and another value elsewhere; None for any other array."""
    import numpy as np

    bits = a.view(f"u{a.itemsize}")  # 0.0 differs from -0.0
    if a.ndim < 2 or min(a.shape[-2:]) < 2 or _several(bits.reshape(-1)[:: max(1, a.size // _SAMPLES)]):
        return None
    *outer, m, n = a.shape
    grid = bits.reshape(-1, m, n)
    diagonals = np.concatenate([grid[0, ::-1, 0], grid[0, 0, 1:]])  # from n - m = 1 - m to n - 1
    (edges,) = np.nonzero(diagonals[1:] != diagonals[:-1])
    if len(edges) not in (1, 2) or (len(edges) == 2 and diagonals[-1] != diagonals[0]):
        return None
    windows = np.lib.stride_tricks.sliding_window_view(diagonals, n)[::-1]
    if not (grid == windows).all():
        return None
    first = int(edges[0]) + 1
    last = int(edges[1]) + 1 if len(edges) == 2 else len(diagonals)
    band = lay.Axis(bound=last - first, stride=0, start=m - 1 - first, coeffs=(0, -1, 1))
    dims = ((int(np.prod(outer, dtype=np.int64)), 0), (m, 0), (n, 0))
    rest, value = diagonals[[0, first]].view(a.dtype)
    if rest != rest or value != value:
        return None  # no number equals a NaN
    return lay.masked(0, dims, (band,), rest.item()), value.item()


def _several(values: np.ndarray[Any, Any]) -> bool:
    """Whether there are more than two different values. `np.unique` would load masked arrays."""
    others = values[values != values[0]]
    return bool((others != others[:1]).any())
