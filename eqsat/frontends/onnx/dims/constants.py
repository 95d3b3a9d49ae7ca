"""Constants that depend on sizes: numbers over dims, ramps of indices, and parts of the one at the largest sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, product
from math import prod

import numpy as np

from eqsat.base.numerics import Array, is_float
from eqsat.frontends.onnx.dims.arithmetic import Arithmetic
from eqsat.frontends.onnx.dims.forms import Form, Point, fit, fit_all
from eqsat.frontends.onnx.dims.ramps import ramp

_CLOSE = 1e-5
"""Difference, as a share of the largest element, that the order of sums explains."""


@dataclass(frozen=True, slots=True)
class Varying:
    """One constant of a program at several sizes.

    Attributes:
        arrays, points: its values, and the sizes where it has them.
        whole: whether the last ones are the largest sizes of all.
        spread: whether what reads it repeats it along an axis by itself.
    """

    arrays: Sequence[Array]
    points: Sequence[Point]
    whole: bool
    spread: Callable[[int], bool]

    def written(self, to: Arithmetic) -> str | None:
        """The name of the constant as nodes compute it at any sizes; None if it is not of a known kind."""
        if len({(array.ndim, array.dtype) for array in self.arrays}) > 1:
            return None
        shape = fit_all([array.shape for array in self.arrays], self.points)
        if shape is None:
            return None
        return self._scaled(to) or self._ramp(shape, to) or self._part(shape, to)

    def _scaled(self, to: Arithmetic) -> str | None:
        """Floats times, or divided by, a product of dims, such as 1/seq."""
        first = self.arrays[0]
        if any(array.shape != first.shape for array in self.arrays) or not is_float(first.dtype.name):
            return None
        values = [array.astype(np.float64) for array in self.arrays]
        for dims in (d for degree in (1, 2) for d in combinations_with_replacement(self.points[0], degree)):
            sizes = [prod(point[d] for d in dims) for point in self.points]
            for op, base in (
                ("Div", [v * n for v, n in zip(values, sizes, strict=True)]),
                ("Mul", [v / n for v, n in zip(values, sizes, strict=True)]),
            ):
                if all(_alike(each, base[0]) for each in base):
                    size = to.array([Form(((1, dims),))], [], first.dtype.name)
                    return to.node(op, [to.constant(_nice(base[0]).astype(first.dtype)), size])
        return None

    def _ramp(self, shape: Sequence[Form], to: Arithmetic) -> str | None:
        """Indices: whole numbers that grow by the same step along each axis, such as positions."""
        found = ramp(self.arrays, self.points)
        if found is None or self.arrays[0].dtype != np.int64:
            return None
        count = fit([array.size for array in self.arrays], self.points)
        flat = all(np.array_equal(array.reshape(-1), np.arange(array.size)) for array in self.arrays)
        if flat and count is not None:
            return to.node("Reshape", [_range(count, to), to.vector(shape)])
        rank = len(shape)
        total = to.array([found.start], [1] * rank, "int64")
        for axis, (step, count) in enumerate(zip(found.steps, shape, strict=True)):
            if step != Form():
                grown = to.node("Mul", [_range(count, to), to.vector([step])])
                lying = to.node("Reshape", [grown, to.constant([-1 if a == axis else 1 for a in range(rank)])])
                total = to.node("Add", [total, lying])
        return self._expanded(total, [axis for axis in range(rank) if found.steps[axis] == Form()], shape, to)

    def _part(self, shape: Sequence[Form], to: Arithmetic) -> str | None:
        """The first or the last elements of the constant at the largest sizes; one element where all are equal."""
        repeated = [
            axis
            for axis, form in enumerate(shape)
            if not form.fixed and all(_repeats(array, axis) for array in self.arrays)
        ]
        cut = [array[tuple(slice(0, 1 if a in repeated else None) for a in range(array.ndim))] for array in self.arrays]
        if all(_alike(array, cut[0]) for array in cut):
            name = to.constant(np.ascontiguousarray(cut[0]))
        else:
            axes = [axis for axis, form in enumerate(shape) if not form.fixed and axis not in repeated]
            name = self._window(cut, axes, [shape[axis] for axis in axes], to) if self.whole else None
        return None if name is None else self._expanded(name, repeated, shape, to)

    def _window(
        self, arrays: Sequence[Array], axes: Sequence[int], counts: Sequence[Form], to: Arithmetic
    ) -> str | None:
        whole = arrays[-1]
        for last in product((False, True), repeat=len(axes)):
            cuts = [_cut(whole, axes, [array.shape[axis] for axis in axes], last) for array in arrays]
            if axes and all(_alike(a, b) for a, b in zip(cuts, arrays, strict=True)):
                starts: list[Form] = []
                stops: list[Form] = []
                for axis, count, at_end in zip(axes, counts, last, strict=True):
                    size = whole.shape[axis]
                    back = Form(tuple((-factor, dims) for factor, dims in count.terms), size - count.constant)
                    starts.append(back if at_end else Form())
                    stops.append(Form((), size) if at_end else count)
                bounds = [to.vector(starts), to.vector(stops), to.constant(axes)]
                return to.node("Slice", [to.constant(np.ascontiguousarray(whole)), *bounds])
        return None

    def _expanded(self, name: str, axes: Sequence[int], shape: Sequence[Form], to: Arithmetic) -> str:
        """The value repeated along these axes, unless what reads it does so."""
        if all(self.spread(axis) for axis in axes if not (shape[axis].fixed and shape[axis].constant == 1)):
            return name
        return to.node("Expand", [name, to.vector(shape)])


def _range(count: Form, to: Arithmetic) -> str:
    """0, 1, ... below a form."""
    ends = [to.array([form], [], "int64") for form in (Form(), count, Form((), 1))]
    return to.node("Range", ends)


def _nice(values: Array) -> Array:
    """Whole numbers in place of values close to them: those were rounded when they were divided."""
    whole = np.rint(values)
    return np.where(np.abs(values - whole) <= _CLOSE * np.abs(whole), whole, values)


def _repeats(array: Array, axis: int) -> bool:
    first = array[tuple(slice(0, 1 if a == axis else None) for a in range(array.ndim))]
    return array.shape[axis] > 0 and _alike(np.broadcast_to(first, array.shape), array)


def _cut(whole: Array, axes: Sequence[int], sizes: Sequence[int], last: Sequence[bool]) -> Array:
    cut = [slice(None)] * whole.ndim
    for axis, n, at_end in zip(axes, sizes, last, strict=True):
        cut[axis] = slice(whole.shape[axis] - n, None) if at_end else slice(0, n)
    return whole[tuple(cut)]


def _alike(a: Array, b: Array) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not is_float(a.dtype.name):
        return bool(np.array_equal(a, b))
    left, right = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(left) & np.isfinite(right)
    scale = max(1e-30, float(np.abs(right[finite]).max(initial=0.0)))
    same = np.array_equal(left[~finite], right[~finite], equal_nan=True)
    return bool(same and np.all(np.abs(left[finite] - right[finite]) <= _CLOSE * scale))
