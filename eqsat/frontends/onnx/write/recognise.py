"""Composites found again: softmax, layer normalisation and their like as the single ONNX nodes they once were.

A recogniser reads candidates for the operands and parameters off the root, builds the expansion by
`eqsat.program.composites` and compares: terms are hash-consed, so the root is that composite exactly if it is the same
object.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from eqsat.errors import InputError
from eqsat.frontends.onnx.write.basic import Window, average_pool, conv, reduction
from eqsat.frontends.onnx.write.form import Form, Operand, Param, broadcastable, form, ints, scalar
from eqsat.program import composites
from eqsat.program.term import Term

Recogniser = Callable[[Term, int], Form | None]
"""The root and the opset to the form of the composite that ends there, if one does."""

GELU, RMS_NORMALIZATION = 20, 23  # the opsets that introduced these operators


def down(term: Term | None, *steps: str) -> Term | None:
    """Follows operands: 'div' is operand 0 of a div, 'div.1' its operand 1. None where an operator differs."""
    for step in steps:
        op, _, index = step.partition(".")
        if term is None or term.op != op:
            return None
        term = term.args[int(index or 0)]
    return term


def bare(term: Term) -> Term:
    """The term below its broadcast."""
    return term.args[0] if term.op == "broadcast" else term


def unwidened(term: Term | None) -> Term | None:
    """What was cast to float32 to be computed with."""
    return term.args[0] if term is not None and term.op == "cast" else term


def _is(root: Term, build: Callable[[], Term]) -> bool:
    """Whether the candidates build the root; candidates that no composite takes build nothing."""
    try:
        return build() is root
    except InputError:
        return False


# Softmax and its relatives


def _softmax(root: Term, opset: int) -> Form | None:
    x, total = down(root, "div", "exp", "sub"), bare(root.args[1])
    if x is None or total.op != "reduce":
        return None
    axis = total.attr("axes")[-1]
    return form("Softmax", x, axis=axis) if _is(root, lambda: composites.softmax(x, axis)) else None


def _log_softmax(root: Term, opset: int) -> Form | None:
    x, total = down(root, "sub", "sub"), down(bare(root.args[1]), "log")
    if x is None or total is None or total.op != "reduce":
        return None
    axis = total.attr("axes")[-1]
    return form("LogSoftmax", x, axis=axis) if _is(root, lambda: composites.log_softmax(x, axis)) else None


def _logsumexp(root: Term, opset: int) -> Form | None:
    kept = root.args[0] if root.op == "reshape" else root
    total = down(kept, "add", "log")
    x = down(total, "reduce", "exp", "sub")
    if x is None or total is None:
        return None
    axes, keepdims = total.attr("axes"), kept is root
    if not _is(root, lambda: composites.logsumexp(x, axes, keepdims)):
        return None
    return reduction("ReduceLogSumExp", x, axes, keepdims, opset)


# Reductions


def _mean(root: Term, opset: int) -> Form | None:
    total = down(down(root, "cast") if root.op == "cast" else root, "mul")
    if total is None or total.op != "reduce" or total.attr("kind") != "sum":
        return None
    x = total.args[0] if root.op == "mul" else unwidened(total.args[0])
    axes, keepdims = total.attr("axes"), total.attr("keepdims")
    if x is None or not _is(root, lambda: composites.mean(x, axes, keepdims)):
        return None
    return reduction("ReduceMean", x, axes, keepdims, opset)


def _norm2(root: Term, opset: int) -> Form | None:
    total, x = down(root, "sqrt"), down(root, "sqrt", "reduce", "mul")
    if total is None or x is None:
        return None
    axes, keepdims = total.attr("axes"), total.attr("keepdims")
    if not _is(root, lambda: composites.norm2(x, axes, keepdims)):
        return None
    return reduction("ReduceL2", x, axes, keepdims, opset)


def _sum_of(root: Term, opset: int) -> Form | None:
    """The sums of squares and of absolute values."""
    inner = root.args[0]
    if root.attr("kind") != "sum" or inner.op not in ("mul", "abs") or inner.args[0] is not inner.args[-1]:
        return None
    op = "ReduceL1" if inner.op == "abs" else "ReduceSumSquare"
    return reduction(op, inner.args[0], root.attr("axes"), root.attr("keepdims"), opset)


# Activations


def _value(term: Term | None) -> float | None:
    """The number that a uniform term holds."""
    term = bare(term) if term is not None else None
    return term.attr("value") if term is not None and term.op == "full" else None


def _gelu(root: Term, opset: int) -> Form | None:
    x = down(root, "mul", "mul")
    if opset < GELU or x is None:
        return None
    for approximate in ("none", "tanh"):
        if _is(root, lambda kind=approximate: composites.gelu(x, kind)):
            return form("Gelu", x, approximate=None if approximate == "none" else approximate)
    return None


def _softplus(root: Term, opset: int) -> Form | None:
    x = down(root, "add", "relu")
    return form("Softplus", x) if x is not None and _is(root, lambda: composites.softplus(x)) else None


def _elu(root: Term, opset: int) -> Form | None:
    x, alpha = root.args[1], _value(down(root.args[2], "mul.1"))
    if alpha is None or not _is(root, lambda: composites.elu(x, alpha)):
        return None
    return form("Elu", x, alpha=None if alpha == 1 else alpha)


def _leaky_relu(root: Term, opset: int) -> Form | None:
    x = root.args[0] if root.op == "max" else root.args[1]
    alpha = _value(down(root.args[-1], "mul.1"))
    if alpha is None or not _is(root, lambda: composites.leaky_relu(x, alpha)):
        return None
    return form("LeakyRelu", x, alpha=alpha)


def _hard_sigmoid(root: Term, opset: int) -> Form | None:
    line = down(root, "min", "max")
    x, alpha, beta = down(line, "add", "mul"), _value(down(line, "add", "mul.1")), _value(down(line, "add.1"))
    if x is None or alpha is None or beta is None:
        return None
    if not _is(root, lambda: composites.hard_sigmoid(x, alpha, beta)):
        return None
    return form("HardSigmoid", x, alpha=alpha, beta=beta)


def _clip(root: Term, opset: int) -> Form | None:
    x, low, high = down(root, "min", "max"), _value(down(root, "min", "max.1")), _value(down(root, "min.1"))
    if x is None or low is None or high is None:
        return None
    return form("Clip", x, scalar(low, x.dtype), scalar(high, x.dtype))


def _fmod(root: Term, opset: int) -> Form | None:
    a, b = down(root, "mul", "sign"), down(bare(root.args[1]), "mod.1", "abs")
    if a is None or b is None or not _is(root, lambda: composites.fmod(a, b)):
        return None
    return form("Mod", *broadcastable((a, b), root.shape), fmod=1)


# Normalisation


def _layer_norm(root: Term, opset: int) -> Form | None:
    unit, scale, bias = _affine(root)
    quotient = down(unit, "cast") if unit.op == "cast" else unit
    deviation = _deviation(quotient)
    wide = down(quotient, "div", "sub")
    if wide is None or deviation is None or root.dtype == "float64":  # ONNX computes in float32 at most
        return None
    axis, epsilon = deviation
    x = wide if unit is quotient else unwidened(wide)
    if x is None or not _is(root, lambda: composites.layernorm(x, scale, bias, axis, epsilon)):
        return None
    inner = x.shape[axis:]
    if any(parameter is not None and parameter.shape != inner for parameter in (scale, bias)):
        return None
    factor = scalar(1, x.dtype, inner) if scale is None else scale
    inputs: list[Operand] = [x, factor, *([bias] if bias is not None else [])]
    return form("LayerNormalization", *inputs, axis=None if axis == x.ndim - 1 else axis, epsilon=epsilon)


def _rms_norm(root: Term, opset: int) -> Form | None:
    unit, scale, _ = _affine(root)
    quotient = down(unit, "cast") if unit.op == "cast" else unit
    deviation = _deviation(quotient)
    wide = down(quotient, "div")
    if opset < RMS_NORMALIZATION or wide is None or deviation is None or scale is None or root.dtype == "float64":
        return None
    axis, epsilon = deviation
    x = wide if unit is quotient else unwidened(wide)
    if x is None or scale.shape != x.shape[axis:]:
        return None
    if not _is(root, lambda: composites.rmsnorm(x, scale, axis, epsilon)):
        return None
    return form("RMSNormalization", x, scale, axis=None if axis == x.ndim - 1 else axis, epsilon=epsilon)


def _instance_norm(root: Term, opset: int) -> Form | None:
    """Every x[n, c] normalised, then scale and bias [c]."""
    unit, scale, bias = _affine(root)
    parameters = [down(term, "reshape") for term in (scale, bias)]
    quotient = down(unit, "cast") if unit.op == "cast" else unit
    deviation, wide = _deviation(quotient), down(quotient, "div", "sub")
    x = wide if unit is quotient else unwidened(wide)
    if deviation is None or x is None or any(p is None or p.shape != (x.shape[1],) for p in parameters):
        return None
    axis, epsilon = deviation
    if axis != 2 or composites.layernorm(x, None, None, 2, epsilon) is not unit:
        return None
    return form("InstanceNormalization", x, *parameters, epsilon=epsilon)


def _batch_norm(root: Term, opset: int) -> Form | None:
    """x * slope + offset with slope and offset worked out from the statistics [c]."""
    if root.args[0].op != "mul":
        return None
    slope, offset = _unreshaped(root.args[0].args[1]), _unreshaped(root.args[1])
    x, scale, bias = root.args[0].args[0], down(slope, "div"), down(offset, "sub")
    variance, mean = down(slope, "div.1", "sqrt", "add"), down(offset, "sub.1", "mul")
    epsilon = _value(down(slope, "div.1", "sqrt", "add.1"))
    if scale is None or bias is None or variance is None or mean is None or epsilon is None:
        return None
    if not _is(root, lambda: composites.batchnorm(x, scale, bias, mean, variance, epsilon)):
        return None
    return form("BatchNormalization", x, scale, bias, mean, variance, epsilon=epsilon)


def _affine(root: Term) -> tuple[Term, Term | None, Term | None]:
    """unit, scale and bias of unit * scale + bias."""
    body, bias = (root.args[0], bare(root.args[1])) if root.op == "add" else (root, None)
    unit, scale = (body.args[0], bare(body.args[1])) if body.op == "mul" else (body, None)
    return unit, scale, bias


def _deviation(quotient: Term | None) -> tuple[int, float] | None:
    """The first axis and epsilon of the denominator sqrt(mean(...) + epsilon)."""
    denominator = down(quotient, "div.1")
    if denominator is None:
        return None
    total, epsilon = down(bare(denominator), "sqrt", "add", "mul"), _value(down(bare(denominator), "sqrt", "add.1"))
    if total is None or epsilon is None or total.op != "reduce" or not total.attr("axes"):
        return None
    return total.attr("axes")[0], epsilon


# Products and windows


def _flat_matmul(root: Term, opset: int) -> Form | None:
    """x[..., k] @ w[k, n], done as one product of x[m, k]; and products with a vector."""
    product = root.args[0]
    if product.op != "matmul":
        return None
    a, b = product.args
    x, w = _unreshaped(a), _unreshaped(b)
    if b.ndim == 2 and x.ndim >= 2 and x.shape[-1] == b.shape[0] and root.shape == (*x.shape[:-1], b.shape[1]):
        return form("MatMul", x, b)
    for left, right in ((x, w), (x, b), (a, w)):
        if 1 in (left.ndim, right.ndim) and _is(root, lambda p=left, q=right: composites.matmul(p, q)):
            return form("MatMul", left, right)
    return None


def _unreshaped(term: Term) -> Term:
    """The tensor below a broadcast and all reshapes."""
    term = bare(term)
    while term.op == "reshape":
        term = term.args[0]
    return term


def _conv_bias(root: Term, opset: int) -> Form | None:
    for product, addend in (root.args, root.args[::-1]):
        bias = bare(addend)
        if product.op != "conv" or bias is addend:
            continue
        channels = (1, product.shape[1], *(1,) * (product.ndim - 2))
        if (1,) * (product.ndim - bias.ndim) + bias.shape == channels:
            return conv(product, product.args[1], _vector(bias))
    return None


def _vector(bias: Term) -> Operand:
    """A bias [c] from one that was shaped to broadcast over channels."""
    size = (bias.size,)
    source = _unreshaped(bias)
    if source.shape == size:
        return source
    if source.op == "constant":
        return Param(source.attr("value").array.reshape(size), "bias")
    return Form("Reshape", (source, ints(size, "shape")), type=(size, bias.dtype))


def _average_pool(root: Term, opset: int) -> Form | None:
    total = down(unwidened(root), "mul")
    if total is None or total.op != "pool" or total.attr("kind") != "sum":
        return None
    x = unwidened(total.args[0]) if root.op == "cast" else total.args[0]
    if x is None:
        return None
    pads = total.attr("pads_lo"), total.attr("pads_hi")
    window = (total.attr("kernel"), total.attr("strides"), *pads, total.attr("dilations"))
    for counted in (True, False):
        share = pads if counted else (None, None)
        if _is(root, lambda share=share: composites.avg_pool(x, *window, *share)):
            return average_pool(total, counted, x)
    return None


def _cum_sum(root: Term, opset: int) -> Form | None:
    """The sum over windows that end, or begin, at each place of one axis and are as long as that axis."""
    window, x = Window.bare(root), root.args[0]
    long = [i for i, k in enumerate(window.kernel) if k > 1]
    if root.attr("kind") != "sum" or len(long) != 1 or {*window.strides, *window.dilations} != {1}:
        return None
    [i] = long
    whole = x.shape[2 + i] - 1
    lo, hi = ([n - 1 if j == i else 0 for j, n in enumerate(x.shape[2:])] for _ in range(2))
    none = [0] * len(window.kernel)
    if window.kernel[i] != whole + 1 or (list(window.lo), list(window.hi)) not in ((lo, none), (none, hi)):
        return None
    return form("CumSum", x, Param(np.array(2 + i, np.int64), "axis"), reverse=1 if window.hi[i] else None)


RECOGNISERS: dict[str, tuple[Recogniser, ...]] = {
    "add": (_layer_norm, _instance_norm, _batch_norm, _conv_bias, _softplus, _logsumexp),
    "cast": (_mean, _average_pool, _layer_norm),
    "div": (_softmax, _layer_norm),
    "max": (_leaky_relu,),
    "min": (_hard_sigmoid, _clip),
    "mul": (_layer_norm, _rms_norm, _gelu, _mean, _average_pool, _fmod),
    "pool": (_cum_sum,),
    "reduce": (_sum_of,),
    "reshape": (_flat_matmul, _logsumexp),
    "sqrt": (_norm2,),
    "sub": (_log_softmax,),
    "where": (_elu, _leaky_relu),
}
"""By the operator at the root, the larger composite first."""
