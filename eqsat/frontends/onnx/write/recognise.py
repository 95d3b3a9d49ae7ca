"""Recognises composites such as softmax and layer normalisation, and writes each as a single ONNX node.

Candidate operands and parameters are the terms at the positions where an example of the composite has them. The
composite is then built from these by `eqsat.program.composites`, and the root must be what was built. The operands of
sums and products may be in either order in both steps, since programs are written either way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from eqsat.base.numerics import ELEMENTWISE, is_float
from eqsat.errors import InputError
from eqsat.frontends.onnx.write.basic import Window, average_pool, conv, reduction
from eqsat.frontends.onnx.write.form import Form, Operand, Param, broadcastable, form, ints, scalar
from eqsat.program import composites
from eqsat.program.composites import COMPOSITES, Composite
from eqsat.program.term import Attrs, Term, topological

Recogniser = Callable[[Term, int], Form | None]
"""Maps a root and the opset to the form of the composite that ends there, if any."""


def bare(term: Term) -> Term:
    """The term below its broadcast."""
    return term.args[0] if term.op == "broadcast" else term


def unwidened(term: Term) -> Term:
    """The operand of a cast to float32, or the term itself."""
    return term.args[0] if term.op == "cast" else term


def _is(root: Term, build: Callable[[], Term], operands: Collection[Term]) -> bool:
    """Whether the candidates build the root, but for the order of operands that commute. Candidates that the composite
    rejects do not. What is below `operands` is not looked at."""
    try:
        return _alike(build(), root, operands)
    except InputError:
        return False


def _alike(built: Term, root: Term, operands: Collection[Term]) -> bool:
    known: dict[tuple[Term, Term], bool] = {}

    def alike(a: Term, b: Term) -> bool:
        if a is b:
            return True
        if (a, b) not in known:
            known[a, b] = (
                a not in operands
                and bool(a.args)
                and (_operator(a), a.spec) == (_operator(b), b.spec)
                and any(all(map(alike, _operands(a), args)) for args in _orders(b))
            )
        return known[a, b]

    return alike(built, root)


def _operator(term: Term) -> tuple[str, Attrs]:
    """The operator of a term and its attributes; one over an array is its reciprocal."""
    return ("reciprocal", ()) if _inverts(term) else (term.op, term.attrs)


def _operands(term: Term) -> tuple[Term, ...]:
    """The operands of `_operator`."""
    return term.args[1:] if _inverts(term) else term.args


def _inverts(term: Term) -> bool:
    return term.op == "div" and _value(term.args[0]) == 1 and is_float(term.dtype)


def _orders(term: Term) -> Iterator[tuple[Term, ...]]:
    """The operands of a term, in each order that gives the same."""
    operands = _operands(term)
    yield operands
    if term.op in ELEMENTWISE and "commutative" in ELEMENTWISE[term.op].traits and operands[0] is not operands[1]:
        yield operands[::-1]


# Composites


def _composite(row: Composite, root: Term, opset: int) -> Form | None:
    """The node of a composite that builds the root."""
    for arguments in _arguments(row, root) if opset >= row.since else ():
        operands = [arguments[name] for name in row.operands]
        if _is(root, lambda found=arguments: row.build(**found), operands):
            return _node(row, arguments, operands, root, opset)
    return None


def _node(row: Composite, arguments: dict[str, Any], operands: Sequence[Term], root: Term, opset: int) -> Form | None:
    if row.onnx in _FORMS:
        return _FORMS[row.onnx](arguments, root)
    if "axes" in arguments:
        return reduction(row.onnx, arguments["x"], arguments["axes"], arguments["keepdims"], opset)
    attributes = {name: value for name, value in arguments.items() if name not in row.operands}
    return form(row.onnx, *operands, **attributes) if all(p.ndim == 1 for p in operands[1:]) else None


def _arguments(row: Composite, root: Term) -> Iterator[dict[str, Any]]:
    """The arguments with which the root may be this composite: the terms at the positions where its example has them,
    for each order of operands that commute."""
    try:
        example = _example(row, root.dtype)
    except InputError:
        return
    names = {number: name for name, number in row.numbers.items()}
    waiting: list[tuple[dict[str, Any], tuple[tuple[Term, Term], ...]]] = [(dict(row.options), ((example, root),))]
    while waiting:
        found, pairs = waiting.pop()
        if not pairs:
            yield found
            continue
        (wanted, term), *rest = pairs
        if wanted.op in ("broadcast", "reshape"):
            waiting.append((found, ((wanted.args[0], term.args[0] if term.op == wanted.op else term), *rest)))
            continue
        term = term if wanted.op == "input" else bare(term)
        told = _told(row, names, wanted, term)
        if told is None or any(found.get(k, v) is not v and found[k] != v for k, v in told.items()):
            continue
        orders = [()] if wanted.op == "input" else list(_orders(term))
        below = _operands(wanted)
        waiting += [(told | found, (*zip(below, args, strict=False), *rest)) for args in reversed(orders)]


def _told(row: Composite, names: dict[float, str], wanted: Term, term: Term) -> dict[str, Any] | None:
    """What a term says of the arguments, standing where the example has `wanted`; None if it cannot stand there."""
    if wanted.op == "input":
        return {wanted.attr("name"): term}
    if _operator(term)[0] != _operator(wanted)[0] or len(_operands(term)) != len(_operands(wanted)):
        return None
    if wanted.op == "full" and wanted.attr("value") in names:
        return {names[wanted.attr("value")]: term.attr("value")}
    if wanted.op == "reduce":
        axes = term.attr("axes")
        if term.attr("kind") != wanted.attr("kind") or not axes:
            return None
        said = {"axis": axes[0], "axes": axes, "keepdims": term.attr("keepdims")}
        return {name: said[name] for name in row.reduced}
    return {}


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
    for inner, upper in _orders(root):
        for x, lower in _orders(inner) if inner.op == "max" else ():
            low, high = _value(lower), _value(upper)
            if low is not None and high is not None:
                return form("Clip", x, scalar(low, x.dtype), scalar(high, x.dtype))
    return None


def _value(term: Term) -> float | None:
    """The number that a uniform term holds."""
    return bare(term).attr("value") if bare(term).op == "full" else None


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
        if 1 in (left.ndim, right.ndim) and _is(root, lambda p=left, q=right: composites.matmul(p, q), (left, right)):
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
    scaled = unwidened(root)
    totals = scaled.args if scaled.op == "mul" else ()
    total = next((t for t in totals if t.op == "pool" and t.attr("kind") == "sum"), None)
    if total is None:
        return None
    x = unwidened(total.args[0]) if root.op == "cast" else total.args[0]
    pads = total.attr("pads_lo"), total.attr("pads_hi")
    window = (total.attr("kernel"), total.attr("strides"), *pads, total.attr("dilations"))
    for counted in (True, False):
        share = pads if counted else (None, None)
        if _is(root, lambda share=share: composites.avg_pool(x, *window, *share), (x,)):
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


_REMAINDER = next(row for row in COMPOSITES if row.onnx == "Mod")

_OTHERS: dict[str, tuple[Recogniser, ...]] = {
    "add": (_conv_bias,),
    "cast": (_average_pool,),
    "min": (_clip,),
    "mul": (_average_pool,),
    "pool": (_cum_sum,),
    "reduce": (_sum_of,),
    "reshape": (_flat_matmul,),
    "sub": (partial(_composite, _REMAINDER),),
}
"""Patterns by the operator at the root, beside composites of floats: the remainder of integers ends in another one."""


@cache
def recognisers(op: str) -> tuple[Recogniser, ...]:
    """The recognisers of patterns that end in an operator, larger composites first. In full and in half precision,
    composites differ in casts."""
    examples = [(row, _example(row, dtype)) for row in COMPOSITES for dtype in ("float32", "float16")]
    sizes = {row: len(topological([example])) for row, example in examples if example.op == op}
    rows = sorted((row for row in sizes if row.onnx), key=lambda row: -sizes[row])
    return (*(partial(_composite, row) for row in rows), *_OTHERS.get(op, ()))
