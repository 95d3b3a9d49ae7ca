"""Core nodes as one line of NumPy: `relu(x[3,5] @ w[5,7] + b)`, for steps and forms."""

from __future__ import annotations

from math import prod

from eqsat.core import CAST, Node
from eqsat.layout import Layout, is_bijective, row_major
from eqsat.numerics import SHORT

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_COMPARE = {"less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=", "equal": "=="}
_DEPTH = 4
_MOST_OPERANDS = 4


def written(node: Node, depth: int = _DEPTH) -> str:
    """The term, at most `depth` operators deep, with its type."""
    return f"{_text(node, depth)}: {SHORT[node.dtype]}[{node.size}]"


def _text(node: Node, depth: int) -> str:
    if node.op == "In":
        return _leaf(node.attrs[0], "in")
    if node.op == "Const":
        return _leaf(node.attrs[0], "const") if node.attrs[0].startswith("%") else f"const_{node.attrs[0][:6]}"
    if node.op == "Full":
        return f"{node.attrs[0]:g}"
    if depth == 0:
        return "..."
    inner = [_text(a, depth - 1) for a in node.args[:_MOST_OPERANDS]]
    inner += ["..."] * (len(node.args) > _MOST_OPERANDS)
    return _WRITERS[node.op](node, inner)


def _leaf(name: str, kind: str) -> str:
    """Placeholders of a part of a program are numbered; everything else has its name."""
    return f"{kind}{name[1:]}" if name.startswith("%") else name


def _product(node: Node, inner: list[str]) -> str:
    batch, m, k, n = node.attrs
    lead = f"{batch}," if batch > 1 else ""
    left, right = (
        text if text.startswith("(") else f"{text}[{lead}{rows},{columns}]"
        for text, rows, columns in ((inner[0], m, k), (inner[1], k, n))
    )
    return f"({left} @ {right})"


def _elementwise(node: Node, inner: list[str]) -> str:
    name = node.attrs[0]
    if name.startswith(CAST):
        return f"{inner[0]}.astype({name.removeprefix(CAST)})"
    sign = _INFIX.get(name) or _COMPARE.get(name)
    return f"({inner[0]} {sign} {inner[1]})" if sign and len(inner) == 2 else f"{name}({', '.join(inner)})"


def _view(node: Node, inner: list[str]) -> str:
    return view_text(inner[0], node.attrs[0], node.args[0].size)


def view_text(operand: str, layout: Layout, size: int) -> str:
    """A view of `size` elements, by what it does: a slice, a transpose, a broadcast, a flip, or strides in full."""
    sizes = ",".join(str(n) for n, _ in layout.dims)
    if layout.masked:
        return f"padded({operand}, {sizes}, fill={layout.fill})"
    if layout.contiguous:
        return f"{operand}[{layout.offset}:{layout.offset + layout.size}]"
    if is_bijective(layout, size) and all(stride > 0 for _, stride in layout.dims):
        order = sorted(range(len(layout.dims)), key=lambda i: -layout.dims[i][1])
        shape = ",".join(str(layout.dims[i][0]) for i in order)
        if len(order) == 2:
            return f"{operand}.reshape({shape}).T"
        return f"{operand}.reshape({shape}).transpose({','.join(str(order.index(i)) for i in range(len(order)))})"
    kept = [(n, s) for n, s in layout.dims if s]
    if (
        layout.offset == 0
        and tuple(s for _, s in kept) == row_major([n for n, _ in kept])
        and prod(n for n, _ in kept) == size
    ):
        shown = ",".join(str(n) if s else f"{n}x" for n, s in layout.dims)
        return f"broadcast({operand}, [{shown}])"
    strides = ",".join(str(s) for _, s in layout.dims)
    return f"strided({operand}, [{sizes}], strides=[{strides}], offset={layout.offset})"


_WRITERS = {
    "MM": _product,
    "Un": _elementwise,
    "Bin": _elementwise,
    "V": _view,
    "Where": lambda node, inner: f"where({', '.join(inner)})",
    "Red": lambda node, inner: f"{node.attrs[0]}({inner[0]}.reshape(-1,{node.attrs[1]}), axis=1)",
    "Cat": lambda node, inner: f"concat({', '.join(inner)})",
    "Gather": lambda node, inner: f"take({', '.join(inner)})",
    "Opaque": lambda node, inner: f"opaque({', '.join(inner)})",
}
