"""E-graphs as files: the public serialized format, which `eqsat extract` reads, and Graphviz."""

from __future__ import annotations

from math import prod
from typing import Any

from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.layout.arithmetic import Layout, is_bijective, row_major
from eqsat.program.core import flops, is_view, make
from eqsat.program.core_table import CORE


def to_json(snapshot: Snapshot) -> dict[str, Any]:
    """The e-graph in the public serialized format, with FLOPs (and elements written) as costs."""
    first = [members[0] for members in snapshot.members]
    nodes = {
        str(i): {
            "op": label(node, snapshot),
            "cost": float(_cost(node, snapshot)),
            "eclass": str(node.cls),
            "children": [str(first[a]) for a in node.args],
        }
        for i, node in enumerate(snapshot.nodes)
    }
    return {"nodes": nodes, "root_eclasses": [str(r) for r in dict.fromkeys(snapshot.roots)]}


def _cost(node: ENode, snapshot: Snapshot) -> int:
    if not node.args or snapshot.const[node.cls]:
        return 0
    operands = [make("In", (f"c{a}", snapshot.size[a], snapshot.dtype[a])) for a in node.args]
    made = make(node.op, node.attrs, operands)
    return 1 if is_view(made.op) or not made.args else flops(made) + made.size


def label(node: ENode, snapshot: Snapshot) -> str:
    """An e-node in a few words."""
    if node.op == "V":
        return view_text("x", node.attrs[0], snapshot.size[node.args[0]])
    return CORE[node.op].label(*node.attrs)


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


def to_dot(snapshot: Snapshot) -> str:
    """The e-graph for Graphviz: classes as boxes, e-nodes inside, those that a rule made in blue."""
    lines = ["digraph egraph {", "  compound=true; rankdir=BT; node [shape=box, fontname=Helvetica, fontsize=10];"]
    roots = set(snapshot.roots)
    for cls, members in enumerate(snapshot.members):
        style = "bold" if cls in roots else "dashed"
        title = f"{snapshot.dtype[cls]}[{snapshot.size[cls]}]"
        lines.append(f'  subgraph cluster_{cls} {{ style={style}; label="{title}"; fontsize=9;')
        for i in members:
            node = snapshot.nodes[i]
            colour = f', color=blue, tooltip="{node.rule}"' if node.rule else ""
            text = label(node, snapshot).replace('"', "'")
            lines.append(f'    n{i} [label="{text}"{colour}];')
        lines.append("  }")
    for i, node in enumerate(snapshot.nodes):
        for a in node.args:
            lines.append(f"  n{snapshot.members[a][0]} -> n{i} [ltail=cluster_{a}];")
    return "\n".join([*lines, "}"]) + "\n"
