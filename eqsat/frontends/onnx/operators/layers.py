"""ONNX operators of neural networks: products, convolutions, pooling, normalisation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from eqsat.errors import InputError, ShapeError
from eqsat.frontends.onnx.operators.node import Node, Row, of_operands, row
from eqsat.frontends.terms.declined import Declined
from eqsat.frontends.terms.windows import transposed_conv, with_bias
from eqsat.program import composites, ops
from eqsat.program.term import Term

# Products


def gemm(node: Node) -> Term:
    """alpha a' b' + beta c, with a' and b' transposed as asked and c broadcast to the product. Where beta is zero, c is
    not read: it may hold NaN."""
    a, b, c = node.input(0), node.input(1), node.optional(2)
    if a.ndim != 2 or b.ndim != 2:
        raise ShapeError(f"Gemm takes two matrices, got {a.shape} and {b.shape}")
    a = ops.transpose(a) if node.attr("transA", 0) else a
    b = ops.transpose(b) if node.attr("transB", 0) else b
    product = scaled(ops.matmul(a, b), node.attr("alpha", 1.0))
    if c is None or node.attr("beta", 1.0) == 0:
        return product
    return ops.add(product, ops.broadcast(scaled(c, node.attr("beta", 1.0)), product.shape))


def scaled(x: Term, factor: float) -> Term:
    """A multiple; `x` itself for the factor 1."""
    return x if factor == 1 else composites.scaled(x, factor)


def _einsum(node: Node) -> Term:
    operands, equation = node.all_inputs(), node.required("equation")
    text = equation.replace(" ", "").replace("...", "")
    if not re.fullmatch("[A-Za-z,]*(->[A-Za-z]*)?", text):  # onnx's own inference may never end on these
        raise InputError(f"equation {equation!r} has more than letters, commas, '...' and one '->'")
    terms = text.partition("->")[0].split(",")
    if any(len(set(labels)) < len(labels) for labels in terms):
        raise Declined("a diagonal")
    return composites.einsum(equation, *operands)


# Windows


@dataclass(frozen=True)
class Window:
    """A window that slides over the spatial axes, pads resolved to numbers; `crop` trims the ends no window reaches."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    lo: tuple[int, ...]
    hi: tuple[int, ...]
    declared_hi: tuple[int, ...]

    def crop(self, x: Term) -> tuple[Term, tuple[int, ...]]:
        """`x` without the trailing elements that a negative upper pad removes, and the pads that are left."""
        if min(self.hi) >= 0:
            return x, self.hi
        spatial = range(2, x.ndim)
        ends = [x.shape[axis] + min(pad, 0) for axis, pad in zip(spatial, self.hi, strict=True)]
        return ops.slice_(x, [0] * len(ends), ends, list(spatial)), tuple(max(pad, 0) for pad in self.hi)

    def counts(self, spatial: Sequence[int]) -> tuple[int, ...]:
        """How many windows there are along each axis."""
        steps = zip(spatial, self.lo, self.hi, self.kernel, self.dilations, self.strides, strict=True)
        return tuple((n + lo + hi - d * (k - 1) - 1) // stride + 1 for n, lo, hi, k, d, stride in steps)


def window_of(node: Node, spatial: Sequence[int], kernel: Sequence[int]) -> Window:
    """Strides, dilations and pads of Conv and the pools, auto_pad and ceil_mode resolved.

    The upper pad is what the last window needs, so the number of windows follows from it: with ceil_mode a
    last window that starts inside the lower padding or the input is kept though it hangs over the end.
    """
    rank = len(spatial)
    strides = tuple(node.attr("strides", [1] * rank))
    dilations = tuple(node.attr("dilations", [1] * rank))
    pads = node.attr("pads", [0] * (2 * rank))
    if not len(kernel) == len(strides) == len(dilations) == len(pads) / 2 == rank:
        raise ShapeError(f"{rank} spatial axes take kernel, strides, dilations and 2 x {rank} pads, "
                         f"got {tuple(kernel)}, {strides}, {dilations}, {tuple(pads)}")  # fmt: skip
    mode = node.attr("auto_pad", "NOTSET")
    axes = [
        _axis_pads(mode, spatial[i], dilations[i] * (kernel[i] - 1) + 1, strides[i], (pads[i], pads[i + rank]))
        for i in range(rank)
    ]
    declared = tuple(hi for _, hi in axes)
    lo = tuple(lo for lo, _ in axes)
    hi = list(declared)
    if node.attr("ceil_mode", 0) == 1 and mode in ("NOTSET", "", "VALID"):
        for i in range(rank):
            hi[i] = _ceil_pad(spatial[i], dilations[i] * (kernel[i] - 1) + 1, strides[i], lo[i], declared[i])
    return Window(tuple(kernel), strides, dilations, lo, tuple(hi), declared)


def _axis_pads(mode: str, size: int, extent: int, stride: int, pads: tuple[int, int]) -> tuple[int, int]:
    """The pads of one axis under an auto_pad mode; SAME makes ceil(size / stride) windows."""
    if mode in ("NOTSET", ""):
        return pads
    if mode == "VALID":
        return 0, 0
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise InputError(f"auto_pad '{mode}' does not exist; use NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    return _halves(max((-(-size // stride) - 1) * stride + extent - size, 0), mode)


def _halves(total: int, mode: str) -> tuple[int, int]:
    """A total in two parts, lower and upper: the larger one above for SAME_UPPER, else below."""
    less, more = total // 2, total - total // 2
    return (less, more) if mode == "SAME_UPPER" else (more, less)


def _ceil_pad(size: int, extent: int, stride: int, lo: int, hi: int) -> int:
    """The upper pad for which the floor formula gives as many windows as ceil_mode."""
    span = size + lo + hi - extent
    count = -(-span // stride) + 1
    if (count - 1) * stride >= size + lo:  # it would start in the upper padding
        count -= 1
    if count == span // stride + 1:
        return hi
    return (count - 1) * stride + extent - size - lo


def conv(node: Node) -> Term:
    x, w, bias = node.input(0), node.input(1), node.optional(2)
    kernel = tuple(node.attr("kernel_shape", w.shape[2:]))
    if kernel != w.shape[2:] or x.ndim != w.ndim or x.ndim < 3:
        raise ShapeError(f"Conv takes x (n, c, *s) and w (oc, c/groups, *k), got {x.shape}, {w.shape}, kernel {kernel}")
    window = window_of(node, x.shape[2:], kernel)
    groups = node.attr("group", 1)
    return with_bias(ops.conv(x, w, window.strides, window.lo, window.hi, window.dilations, groups), bias)


def _transposed_pads(node: Node, x: Term, kernel: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int, int]]:
    """For each spatial axis of ConvTranspose: the elements cut off at start and end, and the output's size."""
    rank = len(kernel)
    dilations, extra = node.attr("dilations", [1] * rank), node.attr("output_padding", [0] * rank)
    pads, wanted = node.attr("pads", [0] * (2 * rank)), node.attr("output_shape")
    mode = node.attr("auto_pad", "NOTSET")
    if not len(strides) == len(dilations) == len(extra) == len(pads) / 2 == rank:
        raise ShapeError(f"{rank} spatial axes take strides, dilations, output_padding and 2 x {rank} pads")
    found = []
    for i, n in enumerate(x.shape[2:]):
        whole = strides[i] * (n - 1) + extra[i] + (kernel[i] - 1) * dilations[i] + 1
        if wanted is not None or mode in ("SAME_UPPER", "SAME_LOWER"):
            # A kernel shorter than its stride does not reach n * stride: onnxruntime stops where it ends.
            size = wanted[-rank:][i] if wanted is not None else min(n * strides[i], whole)
            lo, hi = _halves(max(whole - size, 0), mode)
        else:
            lo, hi = (0, 0) if mode == "VALID" else (pads[i], pads[i + rank])
            size = whole - lo - hi
        found.append((lo, hi, size))
    return found


def _conv_transpose(node: Node) -> Term:
    """x[n, c, *s], w[c, oc/g, *k]: every element spreads the kernel over the output."""
    x, w, bias = node.input(0), node.input(1), node.optional(2)
    groups, rank = node.attr("group", 1), x.ndim - 2
    kernel = tuple(node.attr("kernel_shape", w.shape[2:]))
    if kernel != w.shape[2:] or x.ndim != w.ndim or rank < 1 or x.shape[1] != w.shape[0] or x.shape[1] % groups:
        raise ShapeError(f"ConvTranspose takes x (n, c, *s) and w (c, oc/groups, *k), got {x.shape} and {w.shape}")
    strides, dilations = tuple(node.attr("strides", [1] * rank)), tuple(node.attr("dilations", [1] * rank))
    cuts = _transposed_pads(node, x, kernel, strides)
    if any(size < 1 for _, _, size in cuts) or min(strides) < 1 or min(dilations) < 1:
        raise ShapeError(f"ConvTranspose of {x.shape} with kernel {kernel} makes no element; check strides and pads")
    return with_bias(transposed_conv(x, w, groups, strides, dilations, cuts), bias)


def _max_pool(node: Node) -> Term:
    if node.wants(1):
        raise Declined("the indices of the maxima are used")
    x = node.input(0)
    window = window_of(node, x.shape[2:], node.required("kernel_shape"))
    x, hi = window.crop(x)
    return composites.max_pool(x, window.kernel, window.strides, window.lo, hi, window.dilations)


def _average_pool(node: Node) -> Term:
    x = node.input(0)
    window = window_of(node, x.shape[2:], node.required("kernel_shape"))
    if min(window.hi) < 0:
        raise Declined("a window that ends before the input does")
    counted_lo = counted_hi = None
    if node.attr("count_include_pad", 0):
        counted_lo = window.lo
        counted_hi = tuple(min(pad, most) for pad, most in zip(window.declared_hi, window.hi, strict=True))
    return composites.avg_pool(
        x, window.kernel, window.strides, window.lo, window.hi, window.dilations, counted_lo, counted_hi
    )


def _rooted(sums: Term, p: int) -> Term:
    if p == 1:
        return sums
    return ops.sqrt(sums) if p == 2 else ops.pow_(sums, ops.full_like(1 / p, sums))


def _raised(x: Term, p: int) -> Term:
    if p == 2:
        return composites.square(x)
    size = ops.abs_(x)
    return size if p == 1 else ops.pow_(size, ops.full_like(p, size))


def _lp_pool(node: Node) -> Term:
    """The p-norm of every window, padding being zero."""
    x, p = node.input(0), node.attr("p", 2)
    window = window_of(node, x.shape[2:], node.required("kernel_shape"))
    x, hi = window.crop(x)
    sums = ops.pool("sum", _raised(x, p), window.kernel, window.strides, window.lo, hi, window.dilations)
    return _rooted(sums, p)


def _global_lp_pool(node: Node) -> Term:
    x, p = node.input(0), node.attr("p", 2)
    return _rooted(ops.sum_(_raised(x, p), range(2, x.ndim), True), p)


# Normalisation


def _batch_normalization(node: Node) -> list[Term]:
    """With training_mode, uses the statistics of this batch and returns the running ones as outputs 1 and 2."""
    x, scale, bias, mean, variance = (node.input(i) for i in range(5))
    epsilon, outputs = node.attr("epsilon", 1e-5), []
    if node.attr("training_mode", 0):
        over = (0, *range(2, x.ndim))
        momentum = node.attr("momentum", 0.9)
        batch = (composites.mean(x, over), composites.var(x, over))
        outputs = [
            ops.add(scaled(before, momentum), scaled(ops.cast(now, before.dtype), 1 - momentum))
            for before, now in zip((mean, variance), batch, strict=True)
        ]
        mean, variance = (ops.cast(term, mean.dtype) for term in batch)
    dtype = x.dtype
    parameters = (ops.cast(term, dtype) for term in (scale, bias, mean, variance))
    return [composites.batchnorm(x, *parameters, epsilon=epsilon), *outputs]


def layer_normalization(node: Node) -> list[Term]:
    x, scale, bias = node.input(0), node.input(1), node.optional(2)
    axis, epsilon = node.attr("axis", -1), node.attr("epsilon", 1e-5)
    outputs = [composites.layernorm(x, scale, bias, axis, epsilon)]
    if node.wants(1) or node.wants(2):
        axes = tuple(range(ops.axis_of(axis, x.ndim), x.ndim))
        wide = ops.cast(x, "float32") if node.attr("stash_type", 1) == 1 else x
        deviation = ops.sqrt(composites.shifted(composites.var(wide, axes, True), epsilon))
        outputs += [composites.mean(wide, axes, True), ops.reciprocal(deviation)]
    return outputs


def rms_normalization(node: Node) -> Term:
    return composites.rmsnorm(node.input(0), node.input(1), node.attr("axis", -1), node.attr("epsilon", 1e-5))


def _instance_normalization(node: Node) -> Term:
    """Zero mean and unit variance of every x[n, c], then scale and bias [c]."""
    return composites.instancenorm(node.input(0), node.input(1), node.input(2), node.attr("epsilon", 1e-5))


def _lrn(node: Node) -> Term:
    """x[n, c, ...] / (bias + alpha / size * squares)^beta, the squares summed over `size` channels around c."""
    x, size = node.input(0), node.required("size")
    n, c = x.shape[:2]
    flat = ops.reshape(composites.square(x), (n, 1, c, prod(x.shape[2:])))
    before = (size - 1) // 2
    squares = ops.pool("sum", flat, (size, 1), None, (before, 0), (size - 1 - before, 0))
    base = composites.shifted(composites.scaled(squares, node.attr("alpha", 1e-4) / size), node.attr("bias", 1.0))
    power = ops.pow_(base, ops.full_like(node.attr("beta", 0.75), base))
    return ops.div(x, ops.reshape(power, x.shape))


LAYERS: dict[str, Row] = {
    "AveragePool": row(_average_pool, 7, 10, 11, 19, 22, unless="a window ends before the input does"),
    "BatchNormalization": row(_batch_normalization, 7, 9, 14, 15),
    "Conv": row(conv, 1, 11, 22),
    "ConvTranspose": row(_conv_transpose, 1, 11, 22),
    "Einsum": row(_einsum, 12, 28, unless="a diagonal"),
    "Gemm": row(gemm, 7, 9, 11, 13),
    "GlobalAveragePool": row(of_operands(composites.global_avg_pool), 1, 22),
    "GlobalMaxPool": row(of_operands(lambda x: ops.amax(x, range(2, x.ndim), True)), 1, 22),
    "GlobalLpPool": row(_global_lp_pool, 2, 22),
    "InstanceNormalization": row(_instance_normalization, 6, 22),
    "LRN": row(_lrn, 1, 13),
    "LayerNormalization": row(layer_normalization, 17),
    "LpPool": row(_lp_pool, 2, 11, 18, 22),
    "MatMul": row(of_operands(composites.matmul), 1, 9, 13),
    "MaxPool": row(_max_pool, 1, 8, 10, 11, 12, 22, unless="the indices are used"),
    "RMSNormalization": row(rms_normalization, 23),
}
"""One row per operator, with the since-versions whose meaning the converter covers."""
