"""What a cover leaves behind and nobody would write: views and concatenations that say the same in fewer words.

Inside kernels views cost nothing, so an optimised program may slice a value, concatenate the slices, and read the
slices out of that again. Lifting starts from the tidied program.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from eqsat.layout import Axis, Layout, identity, split
from eqsat.node import Node, make, topological


def tidied(roots: Sequence[Node], keep: Container[Node]) -> tuple[Node, ...]:
    """The roots, with equal values and fewer concatenations. Nodes in ``keep`` stay as they are."""
    new: dict[Node, Node] = {}
    for node in topological(roots):
        if node in keep:
            new[node] = node
            continue
        args = [new[arg] for arg in node.args]
        if node.op == "V":
            new[node] = _view(args[0], node.attrs[0], keep)
        elif node.op == "Cat":
            new[node] = _as_view(args) or make("Cat", (), args)
        else:
            new[node] = node if args == list(node.args) else make(node.op, node.attrs, args)
    return tuple(new[root] for root in roots)


def _view(arg: Node, layout: Layout, keep: Container[Node]) -> Node:
    """A view of one operand of a Cat reads that operand."""
    digits = split(layout, (arg.size,)) if arg.op == "Cat" and arg not in keep else None
    if digits is not None:
        start = 0
        for operand in arg.args:
            if start <= digits.low[0] and digits.high[0] <= start + operand.size:
                inside = Layout(layout.offset - start, layout.dims, layout.axes, layout.fill)
                return _view(operand, inside, keep)
            start += operand.size
    return make("V", (layout,), (arg,))


def _as_view(parts: Sequence[Node]) -> Node | None:
    """Equal views of one array, each as far from the one before: a single view with one more digit."""
    sources = [(p.args[0], p.attrs[0]) if p.op == "V" else (p, identity(p.size)) for p in parts]
    source, first = sources[0]
    step = sources[1][1].offset - first.offset if len(sources) > 1 else 0
    for i, (other, layout) in enumerate(sources):
        if other is not source or layout != Layout(first.offset + i * step, first.dims, first.axes, first.fill):
            return None
    axes = tuple(Axis(axis.bound, axis.stride, axis.start, (0, *axis.coeffs)) for axis in first.axes)
    dims = ((len(sources), step), *first.dims)
    return make("V", (Layout(first.offset, dims, axes, first.fill),), (source,))
