"""Views that a file says as gathers and masks: what constants steer in an e-graph, beside the views of it.

ONNX has no view with a fill. A writer puts a gather by a constant index there, and a choice by a constant mask. No rule
knows what such constants hold. So a view is made of the places that such a value reads (`eqsat.layout.recognise`), and
enters the e-graph beside it. What rules find later that constants steer is compared with the views that the e-graph has
of the same value. Either is checked place by place (`eqsat.verify.moves`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from eqsat.base.numerics import Array, scalar
from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.layout.arithmetic import Layout, of_transpose
from eqsat.layout.recognise import of_index
from eqsat.program.core import Node, evaluate, make
from eqsat.program.node import substitute
from eqsat.proof.values.ahead import MOST_FOLDED, Ahead
from eqsat.verify.moves import moves, sources


@dataclass(frozen=True, slots=True)
class Steered:
    """A value that constants steer, a view that may move the same elements, and the classes of both."""

    value: Node
    view: Node
    classes: tuple[int, int]


def as_views(roots: Sequence[Node], leaves: Mapping[Node, Node], constants: Ahead) -> Iterator[tuple[Node, Node]]:
    """Values below the roots that constants steer, each with the view that it is, if it is one.

    Args:
        leaves: what leaves of the roots stand for, constants among them.
    """
    seen: set[Node] = set()
    stack = list(reversed(roots))
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        view = as_view(node, leaves, constants) if node.op in ("Gather", "Where") and moves(node) else None
        if view is None:
            stack += reversed(node.args)
        else:
            yield node, view
            stack += view.args


def as_view(node: Node, leaves: Mapping[Node, Node], constants: Ahead) -> Node | None:
    """A view of one value that holds the same elements."""
    read = sources([node])
    if len(read) != 1 or max(node.size, read[0].size) > MOST_FOLDED:
        return None
    numbered = make("In", ("#", read[0].size, read[0].dtype))
    [value] = substitute([node], {**leaves, read[0]: numbered})
    if value not in constants.layouts:
        constants.layouts[value] = _layout(value, read[0].size, constants.values)
    layout = constants.layouts[value]
    return None if layout is None else make("V", (layout,), (read[0],))


def _layout(value: Node, size: int, constants: Mapping[str, Array]) -> Layout | None:
    """The layout by which a value reads the input `#` of this size: seen by numbering its elements, as numbers do not
    change sign."""
    given = np.arange(1.0, size + 1)
    one, other = (evaluate([value], {"#": sign * given}, constants, precision="float64")[0] for sign in (1, -1))
    placed = (one == -other) & (one >= 1)
    filled = one[~placed]
    if filled.size and not (filled == filled[0]).all():
        return None
    fill = scalar(filled[0].item(), value.dtype) if filled.size else None
    return of_index(np.where(placed, one, 0).astype(np.int64) - 1, fill)


def in_order(view: Node) -> Node:
    """What is viewed, transposed: with its axes in the order in which the view walks along them, if that is seen.

    A fill passes few operators. So another program's transpose of the value has to be met before it.
    """
    layout, source = view.attrs[0], view.args[0]
    of_axis = {abs(axis.stride): axis.coeffs for axis in layout.axes}
    walked = [abs(stride) for _, stride in layout.dims]
    for i in range(len(walked)):
        walked[i] = walked[i] or next((stride for stride, coeffs in of_axis.items() if stride and coeffs[i]), 0)
    edges = sorted({1, *walked, *of_axis, source.size} - {0})
    if any(outer % inner for inner, outer in pairwise(edges)):
        return source
    axes = edges[-2::-1]
    order = sorted(axes, key=lambda stride: walked.index(stride) if stride in walked else len(walked))
    shape = [outer // inner for inner, outer in pairwise(edges)][::-1]
    transposed = of_transpose(shape, [axes.index(stride) for stride in order])
    return make("V", (transposed,), (source,))


def steered(found: Snapshot) -> Iterator[Steered]:
    """What may be a view: the same size and type, and of a value that both read."""
    views: dict[int, list[ENode]] = {}
    for node in found.nodes:
        if node.op == "V" and not found.const[node.cls]:
            views.setdefault(node.args[0], []).append(node)
    for node in found.nodes:
        for table in _tables(found, node):
            for view in views.get(table, ()):
                alike = (found.size[view.cls], found.dtype[view.cls]) == (found.size[node.cls], found.dtype[node.cls])
                if alike and view.cls != node.cls:
                    yield Steered(_spelled(found, node), _spelled(found, view), (view.cls, node.cls))


def _tables(found: Snapshot, node: ENode) -> list[int]:
    """The classes whose elements a constant index or a constant mask picks; empty for any other e-node."""
    if node.op == "Gather" and found.const[node.args[1]]:
        return [node.args[0]] if not found.const[node.args[0]] else []
    if node.op != "Where" or not found.const[node.args[0]]:
        return []
    branches = [a for a in node.args[1:] if not found.const[a]]
    picked = [
        table
        for a in branches
        for inner in found.of_class(a)
        if inner.op == "Gather"
        for table in _tables(found, inner)
    ]
    return list(dict.fromkeys([*branches, *picked]))


def _spelled(found: Snapshot, node: ENode) -> Node:
    return make(node.op, node.attrs, [found.term(a) for a in node.args])
