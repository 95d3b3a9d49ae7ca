"""How far two arrays that should be equal are apart."""

from __future__ import annotations

import numpy as np

from eqsat.base.numerics import Array, dtype_name, is_float


def scale(values: Array) -> float:
    """The largest magnitude, at least the smallest normal number."""
    return max(float(np.abs(values).max(initial=0.0)), float(np.finfo(values.dtype).tiny))


def relative_error(found: Array, want: Array, *, least: float = 0.0) -> float:
    """Largest difference, as a share of the largest finite magnitude of `want`, or of `least` if that is more.

    Infinite where shapes differ, or NaN or Inf stand at other places, or what is no float is not equal.
    """
    if found.shape != want.shape:
        return np.inf
    if not is_float(dtype_name(want.dtype)):
        return 0.0 if found.tobytes() == want.tobytes() else np.inf
    finite = np.isfinite(want)
    special = ~finite
    if not np.array_equal(found[special], want[special], equal_nan=True) or not np.isfinite(found[finite]).all():
        return np.inf
    if not finite.any():
        return 0.0
    return float(np.abs(found[finite] - want[finite]).max()) / max(scale(want[finite]), least)
