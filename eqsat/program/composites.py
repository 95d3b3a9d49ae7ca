"""Operators made of the operators of `eqsat.program.ops`: they expand, so that rewrite rules see through them.

Each is the numerically stable form. float16 and bfloat16 are widened to float32 where a sum of many elements is scaled
afterwards (means and norms), as ONNX's and PyTorch's definitions do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import zip_longest
from math import prod
from typing import Any, Literal

import ml_dtypes
import numpy as np

from eqsat.base import numerics
from eqsat.base.numerics import FLOATS, HALVES, INTS, is_float, np_dtype
from eqsat.errors import DtypeError, InputError, ShapeError
from eqsat.program import ops
from eqsat.program.sizes import FOLDED, check_folded, check_size
from eqsat.program.term import Shape, Term, make

# Broadcasting


def common_shape(*xs: Term) -> Shape:
    """The shape that NumPy broadcasts these to. Raises ShapeError where there is none.

    `numpy.broadcast_shapes` would refuse shapes that NumPy cannot hold with the same words as those that do not fit.
    """
    if all(x.shape == xs[0].shape for x in xs[1:]):
        return xs[0].shape
    reverse = []
    for dims in zip_longest(*(reversed(x.shape) for x in xs), fillvalue=1):
        wide = {n for n in dims if n != 1}
        if len(wide) > 1:
            shapes = " and ".join(str(x.shape) for x in xs)
            raise ShapeError(f"broadcasting takes dims that are equal or 1, aligned right, got {shapes}")
        reverse.append(wide.pop() if wide else 1)
    return tuple(reversed(reverse))


def broadcasting(op: str, *xs: Term) -> Term:
    """An elementwise operator, or `where`, of operands broadcast as NumPy does."""
    shape = common_shape(*xs)
    return make(op, *(ops.broadcast(x, shape) for x in xs))


add, sub = partial(broadcasting, "add"), partial(broadcasting, "sub")
mul, div = partial(broadcasting, "mul"), partial(broadcasting, "div")


def matmul(a: Term, b: Term) -> Term:
    """NumPy's matmul: leading dims broadcast; a vector on the left is a row, on the right a column, dropped after."""
    if not a.ndim or not b.ndim:
        raise ShapeError(f"matmul takes operands of at least one dim, got {a.shape} @ {b.shape}")
    left = ops.unsqueeze(a, 0) if a.ndim == 1 else a
    right = ops.unsqueeze(b, 1) if b.ndim == 1 else b
    if left.shape[-1] != right.shape[-2]:
        raise ShapeError(f"matmul takes (..., m, k) @ (..., k, n), got {a.shape} @ {b.shape}")
    try:
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    except ValueError:
        raise ShapeError(f"matmul takes leading dims that broadcast, got {a.shape} @ {b.shape}") from None
    out = ops.matmul(ops.broadcast(left, batch + left.shape[-2:]), ops.broadcast(right, batch + right.shape[-2:]))
    dropped = [axis for axis, vector in ((-2, a.ndim == 1), (-1, b.ndim == 1)) if vector]
    return ops.squeeze(out, dropped) if dropped else out


def tile(x: Term, repeats: Sequence[int]) -> Term:
    """NumPy's tile: x[d0, d1] repeated (r0, r1) times is [r0 d0, r1 d1]."""
    rank = max(len(repeats), x.ndim)
    dims = (1,) * (rank - x.ndim) + x.shape
    times = (1,) * (rank - len(repeats)) + tuple(repeats)
    apart = ops.reshape(x, [n for d in dims for n in (1, d)])
    repeated = ops.broadcast(apart, [n for r, d in zip(times, dims, strict=True) for n in (r, d)])
    return ops.reshape(repeated, [r * d for r, d in zip(times, dims, strict=True)])


# Elementwise


def shifted(x: Term, value: float) -> Term:
    """x + value"""
    return ops.add(x, ops.full_like(value, x))


def scaled(x: Term, value: float) -> Term:
    """value * x"""
    return ops.mul(x, ops.full_like(value, x))


def square(x: Term) -> Term:
    return ops.mul(x, x)


def not_equal(a: Term, b: Term) -> Term:
    return ops.not_(broadcasting("equal", a, b))


def fmod(a: Term, b: Term) -> Term:
    """C's remainder, with the sign of the dividend, exact everywhere.

    Integers have no absolute value of the least one, so theirs is the dividend less a multiple, which wraps around
    where the quotient does. The remainder of a zero is that zero with its sign, which `sign` loses.
    """
    shape = common_shape(a, b)
    a, b = ops.broadcast(a, shape), ops.broadcast(b, shape)
    if not is_float(a.dtype):
        return ops.sub(a, ops.mul(b, ops.div(a, b)))
    signed = ops.where(ops.equal(a, ops.full_like(0, a)), a, ops.sign(a))
    return ops.mul(signed, make("mod", ops.abs_(a), ops.abs_(b)))


def floor_div(a: Term, b: Term) -> Term:
    """The greatest integer up to a / b, of integers: one less than the quotient toward zero if that was rounded up.

    (a - a % b) / b would be less, but its difference wraps around near the ends of the type.
    """
    a = ops.broadcast(a, common_shape(a, b))
    rest = ops.mul(ops.sign(a), broadcasting("mod", a, b))  # negative if the signs differ and b does not divide a
    up = ops.less(rest, ops.full_like(0, rest))
    return ops.sub(div(a, b), ops.cast(up, a.dtype))


def clip(x: Term, lo: float | Term | None = None, hi: float | Term | None = None) -> Term:
    """min(max(x, lo), hi); a bound may be a number, a term or None."""
    for op, bound in (("max", lo), ("min", hi)):
        if bound is not None:
            x = broadcasting(op, x, bound if isinstance(bound, Term) else ops.full(bound, (), x.dtype))
    return x


def silu(x: Term) -> Term:
    """x sigmoid(x)"""
    return ops.mul(x, ops.sigmoid(x))


def gelu(x: Term, approximate: Literal["none", "tanh"] = "none") -> Term:
    """x Phi(x), with Phi the normal distribution's cumulative function: by erf, or by Hendrycks and Gimpel's tanh
    (arXiv 1606.08415)."""
    if approximate == "none":
        phi = ops.erf(scaled(x, 1 / numerics.SQRT_2))
    elif approximate == "tanh":
        cubic = ops.mul(x, shifted(scaled(square(x), 0.044715), 1.0))
        phi = ops.tanh(scaled(cubic, numerics.SQRT_2_OVER_PI))
    else:
        raise InputError(f"gelu takes approximate none or tanh, got {approximate!r}")
    return ops.mul(scaled(x, 0.5), shifted(phi, 1.0))


def gelu_of_quotient(x: Term) -> Term:
    """x (1 + erf(x / sqrt(2))) / 2, the spelling in files that PyTorch exports below opset 20."""
    return scaled(ops.mul(x, _erf_of_quotient(x)), 0.5)


def gelu_of_halves(x: Term) -> Term:
    """x ((1 + erf(x / sqrt(2))) / 2), the same from PyTorch's newer exporter."""
    return ops.mul(x, ops.mul(ops.full_like(0.5, x), _erf_of_quotient(x)))


def _erf_of_quotient(x: Term) -> Term:
    """1 + erf(x / sqrt(2))"""
    return shifted(ops.erf(ops.div(x, ops.full_like(numerics.SQRT_2, x))), 1.0)


def softplus(x: Term) -> Term:
    """log(1 + exp(x)) as relu(x) + log1p(exp(-|x|)), which cannot overflow."""
    return ops.add(ops.relu(x), ops.log1p(ops.exp(ops.neg(ops.abs_(x)))))


def log1p_in_steps(x: Term) -> Term:
    """log1p(x) where there is no such operator: the log of u = 1 + x, and what u lost of x, over u.

    The first order of log(u + lost) suffices, as lost / u is at most half a unit in the last place of 1. Where nothing
    is lost it is left out: x is -1 or infinite there, or u is x + 1 exactly.
    """
    u = shifted(x, 1.0)
    kept = shifted(u, -1.0)
    lost = ops.sub(x, kept)
    return ops.where(ops.equal(kept, x), ops.log(u), ops.add(ops.log(u), ops.div(lost, u)))


def elu(x: Term, alpha: float = 1.0) -> Term:
    """alpha (exp(x) - 1) where negative, else x"""
    negative = scaled(shifted(ops.exp(x), -1.0), alpha)
    return ops.where(ops.greater_equal(x, ops.full_like(0, x)), x, negative)


def celu(x: Term, alpha: float = 1.0) -> Term:
    """max(0, x) + min(0, alpha (exp(x / alpha) - 1))

    The function in ONNX's schema of Celu has other values where alpha is negative. Runtimes compute this formula of it.
    """
    zero = ops.full_like(0, x)
    negative = scaled(shifted(ops.exp(ops.div(x, ops.full_like(alpha, x))), -1.0), alpha)
    return ops.add(ops.max_(x, zero), ops.min_(negative, zero))


def selu(x: Term, alpha: float, gamma: float) -> Term:
    """gamma elu(x)"""
    return scaled(elu(x, alpha), gamma)


def leaky_relu(x: Term, alpha: float = 0.01) -> Term:
    """alpha x where negative, else x; as max(x, alpha x) where 0 < alpha <= 1."""
    if 0 < alpha <= 1:
        return ops.max_(x, scaled(x, alpha))
    return ops.where(ops.greater_equal(x, ops.full_like(0, x)), x, scaled(x, alpha))


def hard_sigmoid(x: Term, alpha: float = 0.2, beta: float = 0.5) -> Term:
    """alpha x + beta, clipped to [0, 1]"""
    return clip(shifted(scaled(x, alpha), beta), 0.0, 1.0)


# Reductions along axes

Axes = Sequence[int] | int | None


def _in_float32(x: Term, compute: Callable[[Term], Term]) -> Term:
    """`compute(x)`, in float32 where `x` is a half."""
    return ops.cast(compute(ops.cast(x, "float32")), x.dtype) if x.dtype in HALVES else compute(x)


def mean(x: Term, axes: Axes = None, keepdims: bool = False) -> Term:
    """The sum scaled by 1 / count (of integers: divided, toward zero)."""
    count = prod(x.shape[i] for i in ops.axes_of(axes, x.ndim))
    if x.dtype in INTS:
        total = ops.sum_(x, axes, keepdims)
        return ops.div(total, ops.full_like(count, total))
    share = 1 / count if count else np.nan

    def of(wide: Term) -> Term:
        total = ops.sum_(wide, axes, keepdims)
        return total if share == 1 else scaled(total, share)

    return _in_float32(x, of)


def var(x: Term, axes: Axes = None, keepdims: bool = False) -> Term:
    """The mean of the squared distance from the mean."""
    return _in_float32(x, lambda wide: mean(square(sub(wide, mean(wide, axes, True))), axes, keepdims))


def norm2(x: Term, axes: Axes = None, keepdims: bool = False) -> Term:
    """The root of the sum of squares."""
    return ops.sqrt(ops.sum_(square(x), axes, keepdims))


def logsumexp(x: Term, axes: Axes = None, keepdims: bool = False) -> Term:
    """log(sum(exp(x))), the maximum taken out; that is kept finite, so that infinities come out as they should."""
    chosen = ops.axes_of(axes, x.ndim)
    most = _largest(x.dtype)
    peak = clip(ops.amax(x, chosen, True), -most, most)
    total = ops.add(ops.log(ops.sum_(ops.exp(sub(x, peak)), chosen, True)), peak)
    return total if keepdims else ops.squeeze(total, chosen)


def _largest(dtype: str) -> float:
    if dtype not in FLOATS:
        raise DtypeError(f"logsumexp takes floats, got {dtype}")
    return float(ml_dtypes.finfo(np_dtype(dtype)).max)


def softmax(x: Term, axis: int = -1) -> Term:
    """exp(x) / sum(exp(x)) along `axis`, the maximum taken out."""
    powers = ops.exp(sub(x, ops.amax(x, axis, True)))
    return div(powers, ops.sum_(powers, axis, True))


def log_softmax(x: Term, axis: int = -1) -> Term:
    """log(softmax(x)) without the division."""
    centred = sub(x, ops.amax(x, axis, True))
    return sub(centred, ops.log(ops.sum_(ops.exp(centred), axis, True)))


def _normalised(x: Term, axes: tuple[int, ...], epsilon: float) -> Term:
    """x / sqrt(mean(x^2) + epsilon)"""
    return div(x, ops.sqrt(shifted(mean(square(x), axes, True), epsilon)))


def layernorm(
    x: Term, scale: Term | None = None, bias: Term | None = None, axis: int = -1, epsilon: float = 1e-5
) -> Term:
    """Zero mean and unit variance over the axes from `axis` on, then `scale` and `bias` (broadcast)."""
    axes = tuple(range(ops.axis_of(axis, x.ndim), x.ndim))
    unit = _in_float32(x, lambda wide: _normalised(sub(wide, mean(wide, axes, True)), axes, epsilon))
    return _affine(unit, scale, bias)


def rmsnorm(x: Term, scale: Term | None = None, axis: int = -1, epsilon: float = 1e-5) -> Term:
    """Unit mean square over the axes from `axis` on, then `scale` (broadcast)."""
    axes = tuple(range(ops.axis_of(axis, x.ndim), x.ndim))
    return _affine(_in_float32(x, lambda wide: _normalised(wide, axes, epsilon)), scale, None)


def rmsnorm_by_reciprocal(x: Term, scale: Term, axis: int = -1, epsilon: float = 1e-5) -> Term:
    """The same as x times 1 / sqrt(mean(x^2) + epsilon), the spelling in files that PyTorch exports."""
    axes = tuple(range(ops.axis_of(axis, x.ndim), x.ndim))

    def unit(wide: Term) -> Term:
        return mul(wide, make("reciprocal", ops.sqrt(shifted(mean(square(wide), axes, True), epsilon))))

    return _affine(_in_float32(x, unit), scale, None)


def _affine(x: Term, scale: Term | None, bias: Term | None) -> Term:
    x = x if scale is None else mul(x, scale)
    return x if bias is None else add(x, bias)


def batchnorm(x: Term, scale: Term, bias: Term, mean: Term, variance: Term, epsilon: float = 1e-5) -> Term:
    """Inference on x[n, c, ...] with parameters [c]: x a + b with a = scale / sqrt(variance + epsilon) and
    b = bias - mean a, which are constants where the parameters are."""
    slope = ops.div(scale, ops.sqrt(shifted(variance, epsilon)))
    offset = ops.sub(bias, ops.mul(mean, slope))
    return _by_channel(x, slope, offset)


def instancenorm(x: Term, scale: Term, bias: Term, epsilon: float = 1e-5) -> Term:
    """Zero mean and unit variance of every x[n, c], then `scale` and `bias` [c]."""
    return _by_channel(layernorm(x, None, None, 2, epsilon), scale, bias)


def _by_channel(x: Term, scale: Term, bias: Term) -> Term:
    """x[n, c, ...] scale + bias with parameters [c]."""
    channel = (-1,) + (1,) * (x.ndim - 2)
    return add(mul(x, ops.reshape(scale, channel)), ops.reshape(bias, channel))


# Windows


def max_pool(x: Term, kernel: Sequence[int], strides: Sequence[int] | None = None, pads_lo: Sequence[int] | None = None,
             pads_hi: Sequence[int] | None = None, dilations: Sequence[int] | None = None) -> Term:  # fmt: skip
    """The greatest of each window of x[n, c, *s]."""
    return ops.pool("max", x, kernel, strides, pads_lo, pads_hi, dilations)


def avg_pool(
    x: Term,
    kernel: Sequence[int],
    strides: Sequence[int] | None = None,
    pads_lo: Sequence[int] | None = None,
    pads_hi: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    counted_lo: Sequence[int] | None = None,
    counted_hi: Sequence[int] | None = None,
) -> Term:
    """The mean of each window of x[n, c, *s].

    Args:
        counted_lo, counted_hi: how much of the padding counts as elements; None: none of it. With the pads
            themselves every window counts its whole kernel.
    """
    none = (0,) * len(kernel)
    steps, lo, hi, apart = ops.laid(len(kernel), strides, pads_lo, pads_hi, dilations).values()
    outer_lo = [p - c for p, c in zip(lo, counted_lo or none, strict=True)]
    outer_hi = [p - c for p, c in zip(hi, counted_hi or none, strict=True)]
    spatial = [n + p + q - a - b for n, p, q, a, b in zip(x.shape[2:], lo, hi, outer_lo, outer_hi, strict=True)]
    axes = list(zip(spatial, kernel, steps, outer_lo, apart, strict=True))

    def average(wide: Term) -> Term:
        total = ops.pool("sum", wide, kernel, steps, lo, hi, apart)
        check_size(total, "an average over windows")
        counts = [_taps(*axis, out) for axis, out in zip(axes, total.shape[2:], strict=True)]
        if all(not any(along.strides) or (along == along[0]).all() for along in counts):
            return scaled(total, 1 / np.prod([along[0] for along in counts], dtype=np.float64))
        return mul(total, _shares(counts, wide.dtype))

    return _in_float32(x, average)


def _shares(counts: Sequence[np.ndarray], dtype: str) -> Term:
    """1 / the number of elements of each window, from those along each axis. Many are computed where they are read."""
    with np.errstate(divide="ignore"):  # a window of padding alone has no mean: 0 times infinity
        if prod(map(len, counts)) <= FOLDED:
            return ops.constant(1 / reduce(np.multiply.outer, counts)[None, None], dtype)
        lines = [1 / (along if any(along.strides) else along[:1]) for along in counts]
    shapes = [(-1, *[1] * (len(lines) - 1 - axis)) for axis in range(len(lines))]
    return reduce(mul, [ops.constant(line.reshape(shape), dtype) for line, shape in zip(lines, shapes, strict=True)])


def _taps(n: int, kernel: int, stride: int, lo: int, apart: int, windows: int) -> np.ndarray:
    """How many elements of each window along an axis of n, padded with `lo` before it, are not padding."""
    if lo == 0 and (windows - 1) * stride + (kernel - 1) * apart < n:  # none has padding
        return np.broadcast_to(np.float64(kernel), windows)
    check_folded(windows, "an average over windows, along an axis with padding")
    exact = max(n, lo, kernel, windows * stride) >= 1 << 62  # a file may say so
    first = np.arange(windows, dtype=object if exact else np.int64) * stride - lo
    counts = np.clip((n - 1 - first) // apart + 1, 0, kernel) - np.clip(-(first // apart), 0, kernel)
    return counts.astype(np.float64)


def global_avg_pool(x: Term) -> Term:
    """x[n, c, *s] to its means [n, c, 1, ...]."""
    return mean(x, range(2, x.ndim), keepdims=True)


# Einstein summation


def einsum(equation: str, *operands: Term) -> Term:
    """NumPy's einsum: products of two from left to right, which rules may reorder, each after the sums it allows.

    Raises:
        InputError: the equation does not fit the operands, or repeats a label within one (a diagonal).
    """
    labels, out = _parse_einsum(equation, operands)
    sizes = _label_sizes(equation, labels, operands)
    result, held = operands[0], labels[0]
    for i in range(1, len(operands)):
        needed = {*out, *(c for later in labels[i + 1 :] for c in later)}
        kept = [c for c in dict.fromkeys([*held, *labels[i]]) if c in needed]
        kept = out if i == len(operands) - 1 else kept
        result = _contracted(result, held, operands[i], labels[i], kept, sizes)
        held = kept
    return result if len(operands) > 1 else _arrange(result, held, out)


def _contracted(
    a: Term, a_labels: Sequence[str], b: Term, b_labels: Sequence[str], out: Sequence[str], sizes: Mapping[str, int]
) -> Term:
    """The product of two operands, summed over the labels that `out` lacks: sums, one matmul, a transpose."""
    shared = [c for c in a_labels if c in b_labels]
    batch, inner = [c for c in shared if c in out], [c for c in shared if c not in out]
    left, right = ([c for c in ls if c in out and c not in shared] for ls in (a_labels, b_labels))
    a = _sized(_arrange(a, a_labels, batch + left + inner), batch + left + inner, sizes)
    b = _sized(_arrange(b, b_labels, batch + inner + right), batch + inner + right, sizes)
    dims = {name: [sizes[c] for c in group] for name, group in (("b", batch), ("l", left), ("i", inner), ("r", right))}
    rows, terms, columns = prod(dims["l"]), prod(dims["i"]), prod(dims["r"])
    a = ops.reshape(a, [*dims["b"], rows, terms])
    b = ops.reshape(b, [*dims["b"], terms, columns])
    product = ops.matmul(a, b) if inner else mul(a, b)
    return _arrange(ops.reshape(product, dims["b"] + dims["l"] + dims["r"]), batch + left + right, out)


def _parse_einsum(equation: str, operands: Sequence[Term]) -> tuple[list[list[str]], list[str]]:
    """Labels per operand and of the result; an ellipsis becomes labels of its own, aligned right."""
    text = equation.replace(" ", "")
    sources, arrow, target = text.partition("->")
    parts = sources.split(",")
    if len(parts) != len(operands):
        raise InputError(f"einsum {equation!r} takes {len(parts)} operands, got {len(operands)}")
    labels = [_expand(part, x.ndim, equation) for part, x in zip(parts, operands, strict=True)]
    spread = max(([c for c in ls if c.isdigit()] for ls in labels), key=len)
    if arrow:
        before, dots, after = target.partition("...")
        out = [*before, *(spread if dots else []), *after]
    else:
        flat = [c for ls in labels for c in ls if not c.isdigit()]
        out = spread + sorted(c for c in set(flat) if flat.count(c) == 1)
    if not set(out) <= {c for ls in labels for c in ls} or any(len(set(ls)) < len(ls) for ls in [*labels, out]):
        raise InputError(f"einsum takes labels that the operands have, each once per operand, got {equation!r}")
    return labels, out


def _expand(part: str, rank: int, equation: str) -> list[str]:
    before, dots, after = part.partition("...")
    if not (before + after).isalpha() and before + after:
        raise InputError(f"einsum {equation!r} takes letters as labels, got {part!r}")
    extra = rank - len(before) - len(after)
    if extra < 0 or (extra and not dots):
        raise InputError(f"einsum {equation!r} has labels {part!r} for an operand of {rank} dims")
    return [*before, *(str(i) for i in reversed(range(extra))), *after]


def _label_sizes(equation: str, labels: Sequence[Sequence[str]], operands: Sequence[Term]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for ls, x in zip(labels, operands, strict=True):
        for c, n in zip(ls, x.shape, strict=True):
            if 1 not in (n, sizes.get(c, 1)) and sizes[c] != n:
                raise ShapeError(f"einsum {equation!r} takes one size per label, got {sizes[c]} and {n} for {c!r}")
            sizes[c] = n if sizes.get(c, 1) == 1 else sizes[c]
    return sizes


def _arrange(x: Term, labels: Sequence[str], wanted: Sequence[str]) -> Term:
    """`x` with the labels that are not wanted summed, the others in the wanted order."""
    kept = [c for c in labels if c in wanted]
    x = ops.sum_(x, [i for i, c in enumerate(labels) if c not in wanted])
    return ops.transpose(x, [kept.index(c) for c in wanted])


def _sized(x: Term, labels: Sequence[str], sizes: Mapping[str, int]) -> Term:
    return ops.broadcast(x, [sizes[c] for c in labels])


# Composites that are found again where they are expanded


@dataclass(frozen=True, eq=False)
class Composite:
    """A composite that ONNX has one operator for, or that kernels are called after.

    Attributes:
        name: in the names of kernels; `onnx` is the operator, `since` the opset that introduced it. Each may be empty.
        build: makes it of arguments by name.
        operands: the arguments that are terms, with the shapes that they have in an example.
        numbers: the arguments that are numbers, with their values in an example. No composite has these by itself.
        reduced: the arguments that its reductions say: `axis`, `axes`, `keepdims`.
        options: the arguments that are the same in all of its instances.
    """

    name: str
    onnx: str
    build: Callable[..., Term]
    operands: Mapping[str, Shape] = field(default_factory=lambda: {"x": (2, 3, 4)})
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])
    reduced: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    since: int = 0

    def example(self, dtype: str = "float32") -> Term:
        """An instance whose operands are inputs, called as the arguments are.

        Raises:
            InputError: operands of this type have no such composite.
        """
        reduced = {"axis": -1, "axes": (2,), "keepdims": True}
        arguments = {name: ops.input(name, shape, dtype) for name, shape in self.operands.items()}
        return self.build(**arguments, **self.numbers, **{k: reduced[k] for k in self.reduced}, **self.options)


_X = {"x": (2, 3, 4)}
_SCALE, _BIAS = {"scale": (4,)}, {"bias": (4,)}
_EPSILON = {"epsilon": 0.3125}
_ALONG, _OVER = ("axis",), ("axes", "keepdims")

COMPOSITES = (
    Composite("softmax", "Softmax", softmax, reduced=_ALONG),
    Composite("logsoftmax", "LogSoftmax", log_softmax, reduced=_ALONG),
    Composite("", "ReduceLogSumExp", logsumexp, reduced=("axes",), options={"keepdims": True}),
    Composite("", "ReduceLogSumExp", logsumexp, reduced=("axes",), options={"keepdims": False}),
    Composite("", "ReduceMean", mean, reduced=_OVER),
    Composite("", "ReduceL2", norm2, reduced=_OVER),
    Composite("silu", "", silu),
    Composite("gelu", "Gelu", gelu, since=20),
    Composite("gelu", "Gelu", gelu, options={"approximate": "tanh"}, since=20),
    Composite("gelu", "Gelu", gelu_of_quotient, since=20),
    Composite("gelu", "Gelu", gelu_of_halves, since=20),
    Composite("", "Softplus", softplus),
    Composite("", "Elu", elu, numbers={"alpha": 0.3125}),
    Composite("", "LeakyRelu", leaky_relu, numbers={"alpha": 0.3125}),
    Composite("", "LeakyRelu", leaky_relu, numbers={"alpha": 2.3125}),
    Composite("", "HardSigmoid", hard_sigmoid, numbers={"alpha": 0.3125, "beta": 0.4375}),
    Composite("", "Mod", fmod, {"a": (2, 3, 4), "b": (2, 3, 4)}),
    Composite("layernorm", "LayerNormalization", layernorm, {**_X, **_SCALE, **_BIAS}, _EPSILON, _ALONG),
    Composite("layernorm", "LayerNormalization", layernorm, {**_X, **_SCALE}, _EPSILON, _ALONG),
    Composite("layernorm", "LayerNormalization", layernorm, {**_X, **_BIAS}, _EPSILON, _ALONG),
    Composite("layernorm", "LayerNormalization", layernorm, _X, _EPSILON, _ALONG),
    Composite("rmsnorm", "RMSNormalization", rmsnorm, {**_X, **_SCALE}, _EPSILON, _ALONG, since=23),
    Composite("rmsnorm", "RMSNormalization", rmsnorm_by_reciprocal, {**_X, **_SCALE}, _EPSILON, _ALONG, since=23),
    Composite(
        "", "InstanceNormalization", instancenorm, {**_X, "scale": (3,), "bias": (3,)}, _EPSILON
    ),
    Composite(
        "", "BatchNormalization", batchnorm,
        {**_X, "scale": (3,), "bias": (3,), "mean": (3,), "variance": (3,)}, _EPSILON,
    ),
)  # fmt: skip
"""Exporters find these in programs, and kernels that compute one are called after it."""
