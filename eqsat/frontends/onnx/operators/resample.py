"""ONNX's Resize and Upsample."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from eqsat.errors import ShapeError
from eqsat.frontends.onnx.operators.node import Node, Row, row
from eqsat.frontends.terms.declined import Declined
from eqsat.frontends.terms.resample import Axis, resample
from eqsat.program import ops
from eqsat.program.term import Term


def _axes_by_scales(x: Term, scales: Sequence[float], axes: Sequence[int]) -> dict[int, Axis]:
    if len(scales) != len(axes) or not all(math.isfinite(s) and s > 0 for s in scales):
        raise ShapeError(f"resizing takes a positive scale per axis, got {list(scales)} for {x.shape}")
    sizes = [math.floor(np.float32(x.shape[i]) * np.float32(s)) for i, s in zip(axes, scales, strict=True)]
    return {i: Axis(x.shape[i], n, s) for i, n, s in zip(axes, sizes, scales, strict=True)}


def _upsample(node: Node) -> Term:
    """Upsample, and Resize of opset 10, which only scale the coordinates. The nearest element of a smaller axis is the
    one above, as in onnxruntime and the standard's examples of that opset."""
    x = node.input(0)
    scales = node.required("scales") if node.version < 9 else node.value(1)
    if scales is None:
        raise ShapeError("upsample takes scales, got none")
    axes = _axes_by_scales(x, [float(s) for s in scales], range(x.ndim))
    return resample(x, axes, node.attr("mode", "nearest"), "asymmetric", "ceil_if_smaller")


def _resize(node: Node) -> Term:
    x = node.input(0)
    if node.version == 10:
        return _upsample(node)
    if node.attr("antialias", 0) or node.attr("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Declined("antialiasing, or an aspect ratio to keep")
    given = node.attr("axes")
    axes = range(x.ndim) if given is None else [ops.axis_of(axis, x.ndim) for axis in given]
    scales, sizes = node.value(2), node.ints(3)
    if scales is not None and scales.size:
        found = _axes_by_scales(x, [float(s) for s in scales], axes)
    elif sizes is not None and len(sizes) == len(axes):
        found = {i: Axis(x.shape[i], n, n / x.shape[i]) for i, n in zip(axes, sizes, strict=True)}
    else:
        raise ShapeError(f"resize takes scales or sizes for {len(axes)} axes, got neither")
    return resample(
        x,
        found,
        node.attr("mode", "nearest"),
        node.attr("coordinate_transformation_mode", "half_pixel"),
        node.attr("nearest_mode", "round_prefer_floor"),
        node.attr("cubic_coeff_a", -0.75),
        bool(node.attr("exclude_outside", 0)),
    )


RESAMPLING: dict[str, Row] = {
    "Resize": row(_resize, 10, 11, 13, 18, 19,
                  unless="antialiasing, a kept aspect ratio, tf_crop_and_resize, weighted sums of integers"),
    "Upsample": row(_upsample, 7, 9, 10, unless="weighted sums of integers"),
}  # fmt: skip
"""One row per operator, with the since-versions whose meaning the converter covers."""
