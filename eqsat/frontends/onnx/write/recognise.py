"""Recognises composites such as softmax and layer normalisation, and writes each as a single ONNX node.

Candidate operands and parameters are the terms at the positions where an example of the composite has them. The
composite is then built from these by `eqsat.program.composites`. Terms are hash-consed, so the root is the composite
exactly if it is the same object.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from eqsat.errors import InputError
from eqsat.frontends.onnx.write.basic import Window, average_pool, conv, reduction
from eqsat.frontends.onnx.write.form import Form, Operand, Param, broadcastable, form, ints, scalar
from eqsat.program import composites
from eqsat.program.composites import COMPOSITES, Composite
from eqsat.program.term import Term, topological

Recogniser = Callable[[Term, int], Form | None]
"""Maps a root and the opset to the form of the composite that ends there, if any."""


def down(term: Term | None, *steps: str) -> Term | None:
    """Follows operands: 'div' is operand 0 of a div, 'div.1' its operand 1. None if an operator differs."""
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
    """The operand of a cast to float32, or the term itself."""
    return term.args[0] if term is not None and term.op == "cast" else term


def _is(root: Term, build: Callable[[], Term]) -> bool:
    """Whether the candidates build the root. Candidates that the composite rejects do not."""
    try:
        return build() is root
    except InputError:
        return False


# Composites


def _composite(row: Composite, root: Term, opset: int) -> Form | None:
    """The node of a composite that builds the root."""
    arguments = _arguments(row, root) if opset >= row.since else None
    if arguments is None or not _is(root, lambda: row.build(**arguments)):
        return None
    if row.onnx in _FORMS:
        return _FORMS[row.onnx](arguments, root)
    if "axes" in arguments:
        return reduction(row.onnx, arguments["x"], arguments["axes"], arguments["keepdims"], opset)
    x, *parameters = (arguments.pop(name) for name in row.operands)
    return form(row.onnx, x, *parameters, **arguments) if all(p.ndim == 1 for p in parameters) else None


def _arguments(row: Composite, root: Term) -> dict[str, Any] | None:
    """The arguments if the root is this composite: the terms at the positions where its example has them."""
    try:
        example = _example(row, root.dtype)
    except InputError:
        return None
    names = {number: name for name, number in row.numbers.items()}
    found: dict[str, Any] = dict(row.options)
    stack = [(example, root)]
    while stack:
        wanted, term = stack.pop()
        if wanted.op in ("broadcast", "reshape"):
            stack.append((wanted.args[0], term.args[0] if term.op == wanted.op else term))
            continue
        told: dict[str, Any] = {}
        if wanted.op == "input":
            told[wanted.attr("name")] = term
        else:
            term = bare(term)
            if term.op != wanted.op:
                return None
            if wanted.op == "full" and wanted.attr("value") in names:
                told[names[wanted.attr("value")]] = term.attr("value")
            if wanted.op == "reduce":
                axes = term.attr("axes")
                if term.attr("kind") != wanted.attr("kind") or not axes:
                    return None
                said = {"axis": axes[0], "axes": axes, "keepdims": term.attr("keepdims")}
                told = {name: said[name] for name in row.reduced}
            stack.extend(zip(wanted.args, term.args, strict=True))
        if any(found.setdefault(name, value) is not value and found[name] != value for name, value in told.items()):
            return None
    return found


@cache
def _example(row: Composite, dtype: str) -> Term:
    return row.example(dtype)


def _layer_norm(found: dict[str, Any], root: Term) -> Form | None:
    x, scale, bias = found["x"], found.get("scale"), found.get("bias")
    axis, inner = found["axis"], x.shape[found["axis"] :]
    if root.dtype == "float64":  # ONNX computes in float32 at most
        return None
    if any(parameter is not None and parameter.shape != inner for parameter in (scale, bias)):
        return None
    inputs: list[Operand] = [x, scalar(1, x.dtype, inner) if scale is None else scale]
    return form(
        "LayerNormalization",
        *(inputs if bias is None else [*inputs, bias]),
        axis=None if axis == x.ndim - 1 else axis,
        epsilon=found["epsilon"],
    )


def _rms_norm(found: dict[str, Any], root: Term) -> Form | None:
    x, scale, axis = found["x"], found["scale"], found["axis"]
    if root.dtype == "float64" or scale.shape != x.shape[axis:]:
        return None
    return form("RMSNormalization", x, scale, axis=None if axis == x.ndim - 1 else axis, epsilon=found["epsilon"])


_FORMS: dict[str, Callable[[dict[str, Any], Term], Form | None]] = {
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
    "Mod": lambda found, root: form("Mod", *broadcastable((found["a"], found["b"]), root.shape), fmod=1),
}
"""Operators whose operands or attributes differ from the composite's."""


def _sum_of(root: Term, opset: int) -> Form | None:
    """The sums of squares and of absolute values."""
    inner = root.args[0]
    if root.attr("kind") != "sum" or inner.op not in ("mul", "abs") or inner.args[0] is not inner.args[-1]:
        return None
    op = "ReduceL1" if inner.op == "abs" else "ReduceSumSquare"
    return reduction(op, inner.args[0], root.attr("axes"), root.attr("keepdims"), opset)


def _clip(root: Term, opset: int) -> Form | None:
    """A clip with bounds of any shape."""
    x, low, high = down(root, "min", "max"), _value(down(root, "min", "max.1")), _value(down(root, "min.1"))
    if x is None or low is None or high is None:
        return None
    return form("Clip", x, scalar(low, x.dtype), scalar(high, x.dtype))


def _value(term: Term | None) -> float | None:
    """The number that a uniform term holds."""
    term = bare(term) if term is not None else None
    return term.attr("value") if term is not None and term.op == "full" else None


# Products and windows


def _flat_matmul(root: Term, opset: int) -> Form | None:
    """x[..., k] @ w[k, n], computed as one product of x[m, k]; and products with a vector."""
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
    """The bias [c], from one shaped to broadcast over channels."""
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
    """A sum over windows as long as an axis that end, or begin, at each position of that axis."""
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


_OTHERS: dict[str, tuple[Recogniser, ...]] = {
    "add": (_conv_bias,),
    "cast": (_average_pool,),
    "min": (_clip,),
    "mul": (_average_pool,),
    "pool": (_cum_sum,),
    "reduce": (_sum_of,),
    "reshape": (_flat_matmul,),
}
"""Patterns that are not composites, by the operator at the root."""


@cache
def recognisers(op: str) -> tuple[Recogniser, ...]:
    """The recognisers of patterns that end in an operator, larger composites first. In full and in half precision,
    composites differ in casts."""
    examples = [(row, _example(row, dtype)) for row in COMPOSITES for dtype in ("float32", "float16")]
    sizes = {row: len(topological([example])) for row, example in examples if example.op == op}
    rows = sorted((row for row in sizes if row.onnx), key=lambda row: -sizes[row])
    return (*(partial(_composite, row) for row in rows), *_OTHERS.get(op, ()))
