"""Descriptive kernel names: `gemm_bias_gelu_348x768x768`, `softmax_4176x348`, `layernorm_128x384`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

from eqsat.layout.arithmetic import is_bijective
from eqsat.program.composites import COMPOSITES
from eqsat.program.core import Node, lower, topological
from eqsat.program.ir import Program
from eqsat.program.node import is_leaf, is_view
from eqsat.program.term import topological as terms_below
from eqsat.streams.row_sums import is_row_sum

LONGEST = 4
"""Most operators that a name spells out; if there are more, it gives their number."""


def kernel_name(family: str, body: Sequence[Node]) -> str:
    """A short name for a kernel with this body. Equal bodies have equal names; different bodies may share a name."""
    order = topological(body)
    match family:
        case "contraction" | "library-gemm" | "contraction+reduction":
            return _product_name(order)
        case "row" | "reduction":
            return _row_name(order, max(body, key=lambda output: len(topological([output]))))
        case "stream":
            return _stream_name(order)
        case "opaque":
            return f"opaque_{'x'.join(str(b.size) for b in body)}"
        case _:
            verb = "_".join([*_summed(order), *_spelled(order)]) or _movement(order)
            return f"{verb}_{body[0].size}"


def numpy_ops(body: Sequence[Node]) -> list[str]:
    """The body's operators by their NumPy names, operands first, without views of inputs, which are read in place."""
    return [_numpy(n) for n in topological(body) if not is_leaf(n.op) and not _is_read(n)]


def _summed(order: Iterable[Node]) -> list[str]:
    """Sums of a few terms in a map, each kind once."""
    kinds = ["gemv" if n.op == "MM" else f"row{n.attrs[0]}" for n in order if n.op in ("MM", "Red")]
    return list(dict.fromkeys(kinds))


_SHORT = {"reciprocal": "recip", "less_equal": "le", "greater_equal": "ge"}


def _is_read(node: Node) -> bool:
    return is_view(node.op) and is_leaf(node.args[0].op)


def _numpy(node: Node) -> str:
    match node.op:
        case "MM":
            b, m, k, n = node.attrs
            batch = f"{b}x" if b > 1 else ""
            return f"matmul {batch}{m}x{k} @ {batch}{k}x{n}"
        case "Un" | "Bin":
            return node.attrs[0].replace("cast:", "astype ")
        case "Where":
            return "where"
        case "Red":
            return f"{node.attrs[0]} over {node.attrs[1]}"
        case "Cat":
            return f"concatenate {len(node.args)}"
        case "Gather":
            return "take"
        case "V":
            return _view(node)
        case _:
            return node.op.lower()


def _view(node: Node) -> str:
    layout = node.attrs[0]
    if layout.masked:
        return "pad"
    if any(stride == 0 for _, stride in layout.dims):
        return "broadcast_to"
    if layout.contiguous:
        return "slice"
    return "transpose" if is_bijective(layout, node.args[0].size) else "strided view"


def _arithmetic(order: Iterable[Node]) -> list[str]:
    """Names of the pointwise operators, operands first."""
    names = []
    for n in order:
        if n.op in ("Un", "Bin"):
            names.append(n.attrs[0].replace("cast:", "to_"))
        elif n.op == "Where":
            names.append("where")
    return names


def _spelled(order: Iterable[Node]) -> list[str]:
    names = _arithmetic(order)
    if len(names) <= LONGEST:
        return [_SHORT.get(name, name) for name in names]
    return [f"pointwise{len(names)}"]


def _movement(order: Iterable[Node]) -> str:
    ops = [n.op for n in order]
    if "Cat" in ops:
        return "concat"
    if "Gather" in ops:
        return "gather"
    views = [n for n in order if n.op == "V"]
    return _view(views[-1]).replace(" ", "_") if views else "copy"


def _product_name(order: Sequence[Node]) -> str:
    product = next(n for n in reversed(order) if n.op == "MM")
    b, m, k, n = product.attrs
    windows = any(x.op == "V" and x.attrs[0].masked for x in topological(product.args))
    verb = "conv" if windows else "gemv" if min(m, n) == 1 else "gemm"
    above = order[order.index(product) + 1 :]
    reductions = [f"row{x.attrs[0]}" for x in order if x.op == "Red"]
    parts = [verb, *_epilogue(product, above), *reductions]
    dims = f"{m}x{n}x{k}"
    return "_".join([*parts, f"{b}x{dims}" if b > 1 else dims])


def _epilogue(product: Node, above: Sequence[Node]) -> list[str]:
    """The operators applied to a product; well-known activations appear by name."""
    after = _reaching(product, above)
    names = [n.attrs[0] for n in after if n.op in ("Un", "Bin")]
    parts = []
    bias = next((n for n in after if n.op == "Bin" and n.attrs[0] == "add" and any(map(_is_broadcast, n.args))), None)
    if bias is not None:
        parts.append("bias")
        names.remove("add")
    for activation in _signatures():
        if not activation.reductions and activation.functions <= Counter(names):
            parts.append(activation.name)
            for f in activation.functions.elements():
                names.remove(f)
            break
    parts += [_SHORT.get(f, f.replace("cast:", "to_")) for f in names if f not in ("mul", "div")][:LONGEST]
    return parts


def _reaching(product: Node, above: Sequence[Node]) -> list[Node]:
    reached = {product}
    found = []
    for n in above:
        if any(a in reached for a in n.args):
            reached.add(n)
            found.append(n)
    return found


def _is_broadcast(node: Node) -> bool:
    return node.op == "V" and any(stride == 0 for _, stride in node.attrs[0].dims)


def _row_name(order: Sequence[Node], top: Node) -> str:
    reductions = [n for n in order if n.op == "Red"] or [n for n in order if n.op == "MM"]
    columns = reductions[0].attrs[2 if reductions[0].op == "MM" else 1]
    rows = reductions[0].size
    kinds = ["gemv" if n.op == "MM" else n.attrs[0] for n in reductions]
    composite = _composite(order, kinds) if top.op != "Red" else None
    verb = composite or "_".join([*_spelled(order), *dict.fromkeys(kinds)])
    return f"{verb}_{rows}x{columns}"


def _stream_name(order: Sequence[Node]) -> str:
    """Inner products, what is done with rows, and the products that these are multiplied in; sums of rows that are
    written as products have no part in it."""
    inside = set(topological(a for n in order if n.op in ("MM", "Red") for a in n.args))
    products = [n for n in order if n.op == "MM"]
    proper = [n for n in products if not is_row_sum(n.attrs)]
    if any(n not in inside for n in proper):  # else the outer ones have one row or one column themselves
        products = proper
    outer = [n for n in products if n not in inside]
    if not outer:  # the sums of a few terms that its epilogue writes out are reductions of it
        below = set(topological(a for n in products for a in n.args))
        outer = [n for n in products if n not in below]
    kinds = [n.attrs[0] for n in order if n.op == "Red"]
    made = ["gemm"] * (len(outer) < len(products))
    rows = [_composite(order, kinds) or f"row{'_'.join(dict.fromkeys(kinds))}"] if kinds else []
    verb = f"gemm{len(outer)}" if len(outer) > 1 else "gemm"
    b, m, k, n = outer[0].attrs
    dims = f"{m}x{n}x{k}"
    above = order[order.index(outer[0]) + 1 :]
    parts = [*made, *rows, verb, *_epilogue(outer[0], above)]
    return "_".join([*parts, f"{b}x{dims}" if b > 1 else dims])


def _composite(order: Sequence[Node], kinds: list[str]) -> str | None:
    """The composite that has these reductions, and no functions that are not here; None for none."""
    names = {part for name in _arithmetic(order) for part in (name, *_MEANS.get(name, ()))}
    for composite in _signatures():
        if composite.reductions == kinds and composite.functions.keys() - _SCALED <= names:
            return composite.name
    return None


_MEANS = {"reciprocal": ("div",), "rsqrt": ("sqrt", "div")}
"""Functions that rules substitute for others."""

_SCALED = {"add", "mul"}
"""Functions of a normalisation that rules may move into neighbouring operators."""


class _Signature(NamedTuple):
    """How to recognise a composite in a kernel: its reductions, operands first, and its functions with their counts.

    Factors count once, because rules merge constant factors.
    """

    name: str
    reductions: list[str]
    functions: Counter[str]


@cache
def _signatures() -> list[_Signature]:
    """The signatures of composites that have a kernel name, those with most functions first."""
    found = []
    for row in COMPOSITES:
        if row.name:
            example = row.example()
            inputs = tuple(t for t in terms_below([example]) if t.op == "input")
            order = topological(lower(Program(inputs, {"y": example})).roots)
            functions = Counter(_arithmetic(order))
            functions["mul"] = min(functions["mul"], 1)
            found.append(_Signature(row.name, [n.attrs[0] for n in order if n.op == "Red"], functions))
    return sorted(found, key=lambda signature: -signature.functions.total())
