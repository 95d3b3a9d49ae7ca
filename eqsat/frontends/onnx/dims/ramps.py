"""Arrays of whole numbers that grow by the same step along each axis, such as positions, at several sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eqsat.base.numerics import Array
from eqsat.frontends.onnx.dims.forms import Form, Point, fit, fit_all


@dataclass(frozen=True, slots=True)
class Ramp:
    """The element at index i is `start` + the sum of `steps[k]` i[k]."""

    shape: tuple[Form, ...]
    start: Form
    steps: tuple[Form, ...]

    def at(self, sizes: Mapping[str, int]) -> Array:
        """The array at these sizes, int64."""
        shape = [form.at(sizes) for form in self.shape]
        return np.ascontiguousarray(_grown(shape, self.start.at(sizes), [form.at(sizes) for form in self.steps]))


def ramp(arrays: Sequence[Array], points: Sequence[Point]) -> Ramp | None:
    """The ramp that has these values at these sizes; None if there is none."""
    first = arrays[0]
    whole = all(array.dtype.kind == "i" and array.ndim == first.ndim and array.size for array in arrays)
    if not whole or not first.ndim:
        return None
    axes = range(first.ndim)
    starts = [int(array.reshape(-1)[0]) for array in arrays]
    steps = [[_step(array, axis) for axis in axes] for array in arrays]
    grown = (_grown(*how) for how in zip([array.shape for array in arrays], starts, steps, strict=True))
    if not all(np.array_equal(a, b) for a, b in zip(arrays, grown, strict=True)):
        return None
    shape = fit_all([array.shape for array in arrays], points)
    fitted, start = fit_all(steps, points), fit(starts, points)
    return None if shape is None or fitted is None or start is None else Ramp(shape, start, fitted)


def _grown(shape: Sequence[int], start: int, steps: Sequence[int]) -> Array:
    total = np.full(shape, start, np.int64)
    for step, indices in zip(steps, np.indices(shape, sparse=True), strict=True):
        total += step * indices
    return total


def _step(array: Array, axis: int) -> int:
    if array.shape[axis] < 2:
        return 0
    along = array[tuple(slice(0, 2) if a == axis else 0 for a in range(array.ndim))]
    return int(along[1] - along[0])
