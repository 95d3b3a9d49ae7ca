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
    if finite.all():  # as a rule: then nothing is picked out, which takes longer than the rest
        right = np.isfinite(found).all()
        return _largest(found, want, least) if right and want.size else 0.0 if right else np.inf
    special = ~finite
    if not np.array_equal(found[special], want[special], equal_nan=True) or not np.isfinite(found[finite]).all():
        return np.inf
    if not finite.any():
        return 0.0
    return _largest(found[finite], want[finite], least)


def _largest(found: Array, want: Array, least: float) -> float:
    """The error of finite values, at least one."""
    return float(np.abs(found - want).max()) / max(scale(want), least)
