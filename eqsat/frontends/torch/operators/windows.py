"""ATen operators over windows: convolutions, pools, running sums, resized images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from eqsat.base.numerics import is_float
from eqsat.frontends.terms.declined import Declined
from eqsat.frontends.terms.resample import Axis, resample
from eqsat.frontends.terms.windows import running, transposed_conv, with_bias
from eqsat.frontends.torch.operators.row import Row, converted
from eqsat.program import composites, ops
from eqsat.program.term import Shape, Term


def _spread(value: Sequence[int], rank: int) -> Shape:
    """One number for each of the axes; torch lists a single one for all."""
    return tuple(value) * rank if len(value) == 1 else tuple(value)


def _convolution(
    input: Term,
    weight: Term,
    bias: Term | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Term:
    rank = weight.ndim - 2
    if input.ndim != weight.ndim:
        raise Declined("a convolution without a batch")
    steps, pads, apart, more = (_spread(dims, rank) for dims in (stride, padding, dilation, output_padding))
    if transposed:
        axes = zip(input.shape[2:], weight.shape[2:], steps, pads, apart, more, strict=True)
        cuts = [(p, p, (n - 1) * s - 2 * p + d * (k - 1) + extra + 1) for n, k, s, p, d, extra in axes]
        out = transposed_conv(input, weight, groups, steps, apart, cuts)
    else:
        out = ops.conv(input, weight, steps, pads, pads, apart, groups)
    return with_bias(out, bias)


def _windows(x: Term, rank: int, kernel: Shape, steps: Shape, pads: Shape, apart: Shape, ceil_mode: bool) -> Shape:
    """The padding behind each axis: with `ceil_mode`, one window more that begins within the padded tensor may jut
    out."""
    behind = list(pads)
    for i, (n, k, s, p, d) in enumerate(zip(x.shape[-rank:], kernel, steps, pads, apart, strict=True)):
        free = n + 2 * p - d * (k - 1) - 1
        last = -(-free // s) * s  # where the last window would begin
        if ceil_mode and free % s and last < n + p:
            behind[i] += last - free
    return tuple(behind)


def _laid(x: Term, rank: int, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]) -> list[Shape]:
    """Kernel, strides and padding for each axis. The batch may be missing, which no operator here understands."""
    if x.ndim != rank + 2:
        raise Declined("a pool without a batch")
    return [_spread(dims, rank) for dims in (kernel, stride or kernel, padding)]


def _max_pool_with_indices(rank: int) -> Callable[..., tuple[Term | None, ...]]:
    def build(
        self: Term,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        ceil_mode: bool,
    ) -> tuple[Term | None, ...]:
        kernel, steps, pads = _laid(self, rank, kernel_size, stride, padding)
        apart = _spread(dilation, rank)
        behind = _windows(self, rank, kernel, steps, pads, apart, ceil_mode)
        return composites.max_pool(self, kernel, steps, pads, behind, apart), None

    return build


def _avg_pool(rank: int) -> Callable[..., Term]:
    def build(
        self: Term, kernel_size: Sequence[int], stride: Sequence[int], padding: Sequence[int], count_include_pad: bool
    ) -> Term:
        kernel, steps, pads = _laid(self, rank, kernel_size, stride, padding)
        counted = pads if count_include_pad else None
        return composites.avg_pool(self, kernel, steps, pads, pads, None, counted, counted)

    return build


def _equal_windows(x: Term, output_size: Sequence[int]) -> Shape:
    """The window that tiles the tensor."""
    sizes = x.shape[-len(output_size) :]
    if x.ndim != len(output_size) + 2 or any(n % k for n, k in zip(sizes, output_size, strict=True)):
        raise Declined("windows of unequal size")
    return tuple(n // k for n, k in zip(sizes, output_size, strict=True))


def _adaptive_avg_pool(self: Term, output_size: Sequence[int]) -> Term:
    kernel = _equal_windows(self, output_size)
    return composites.avg_pool(self, kernel, kernel)


def _adaptive_max_pool(self: Term, output_size: Sequence[int]) -> tuple[Term | None, ...]:
    kernel = _equal_windows(self, output_size)
    return composites.max_pool(self, kernel, kernel), None


# Running sums


def _cumsum(self: Term, dim: int, dtype: Any) -> Term:
    x = converted(self, dtype)
    return running("sum", x, ops.axis_of(dim, x.ndim)) if x.ndim else x


def _extreme(x: Term, dim: int) -> Term:
    if not is_float(x.dtype):
        raise Declined("a running maximum of integers")
    return running("max", x, ops.axis_of(dim, x.ndim)) if x.ndim else x


# Resized images


def _resized(x: Term, output_size: Sequence[int], factors: Sequence[float | None], mode: str, coordinates: str) -> Term:
    """Nearest elements only where factors are whole: else rounding decides which one is nearest. Coordinates have the
    type of the elements, and float32 for halves."""
    sizes = x.shape[2:]
    if len(sizes) != len(output_size):
        raise Declined("an image without a batch")
    axes = zip(sizes, output_size, factors, strict=True)
    found = {i: Axis(n, after, factor or after / n) for i, (n, after, factor) in enumerate(axes, 2)}
    if mode == "nearest" and any(axis.scale != axis.after / axis.before or axis.scale % 1 for axis in found.values()):
        raise Declined("nearest elements by other factors than whole ones")
    rounding = "floor" if coordinates == "asymmetric" else "round_prefer_ceil"
    precision = "float64" if x.dtype == "float64" else "float32"
    return resample(x, found, mode, coordinates, rounding, precision=precision)


def _between(align_corners: bool) -> str:
    return "align_corners" if align_corners else "half_pixel"


def _to_size(mode: str, coordinates: str | None = None) -> Callable[..., Term]:
    """Overloads for lines, images and volumes name their factors differently. `align_corners` decides the coordinates
    where they are not given."""

    def build(
        self: Term,
        output_size: Sequence[int],
        align_corners: bool = False,
        scales: float | None = None,
        scales_d: float | None = None,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> Term:
        rank = len(output_size)
        factors = [scales] if rank == 1 else [scales_d, scales_h, scales_w][-rank:]
        return _resized(self, output_size, factors, mode, coordinates or _between(align_corners))

    return build


def _to_size_or_by_factors(mode: str, coordinates: str | None = None) -> Callable[..., Term]:
    """The overloads that take either."""

    def build(
        input: Term,
        output_size: Sequence[int] | None,
        scale_factors: Sequence[float] | None,
        align_corners: bool = False,
    ) -> Term:
        factors = scale_factors or [None] * (input.ndim - 2)
        size = output_size or [int(n * (f or 1)) for n, f in zip(input.shape[2:], factors, strict=True)]
        return _resized(input, size, factors, mode, coordinates or _between(align_corners))

    return build


_NEAREST = {"upsample_nearest": "asymmetric", "_upsample_nearest_exact": "half_pixel"}
_WEIGHTED = {
    "upsample_linear1d": "linear",
    "upsample_bilinear2d": "linear",
    "upsample_trilinear3d": "linear",
    "upsample_bicubic2d": "cubic",
}

WINDOWS: dict[str, Row] = {
    "convolution.default": Row(_convolution, whole="transposed"),
    "max_pool2d_with_indices.default": Row(_max_pool_with_indices(2)),
    "max_pool3d_with_indices.default": Row(_max_pool_with_indices(3)),
    "avg_pool1d.default": Row(_avg_pool(1)),
    "avg_pool2d.default": Row(_avg_pool(2)),
    "avg_pool3d.default": Row(_avg_pool(3)),
    "_adaptive_avg_pool2d.default": Row(_adaptive_avg_pool),
    "_adaptive_avg_pool3d.default": Row(_adaptive_avg_pool),
    "adaptive_max_pool2d.default": Row(_adaptive_max_pool),
    "adaptive_max_pool3d.default": Row(_adaptive_max_pool),
    "cumsum.default": Row(_cumsum, whole=True),
    "cummax.default": Row(lambda self, dim: (_extreme(self, dim), None), whole=True),
    "cummin.default": Row(lambda self, dim: (ops.neg(_extreme(ops.neg(self), dim)), None), whole=True),
    **{f"{name}{rank}d.default": Row(_to_size("nearest", at), whole=True)
       for name, at in _NEAREST.items() for rank in (1, 2, 3)},
    **{f"upsample_nearest{rank}d.vec": Row(_to_size_or_by_factors("nearest", "asymmetric"), whole=True)
       for rank in (1, 2, 3)},
    **{f"{name}.default": Row(_to_size(mode), whole=True) for name, mode in _WEIGHTED.items()},
    **{f"{name}.vec": Row(_to_size_or_by_factors(mode), whole=True) for name, mode in _WEIGHTED.items()},
}  # fmt: skip
