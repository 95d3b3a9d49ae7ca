"""Where each element of a product (or of rows) goes: the index maps from a kernel's core up to its outputs.

A kernel computes the elements of its core in an order of its own, and must then find the place of each in every output.
So places are followed upward: a pointwise operator keeps the place, a bijective view applies its inverse, a reduction
maps it to its row.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from eqsat.gpu.code.errors import NotLowerable
from eqsat.gpu.code.index import Index, through
from eqsat.layout.arithmetic import inverse
from eqsat.program.core import Node
from eqsat.program.node import is_elementwise


def places(nodes: Sequence[Node], cores: Collection[Node], at: Index) -> dict[Node, Index]:
    """For element `at` of each core, its place in every node above. `nodes` are those of the kernel, operands first.

    Raises:
        NotLowerable: an element would be needed in two places, or in none.
    """
    found = dict.fromkeys(cores, at)
    for node in nodes:
        above = [(a, found[a]) for a in node.args if a in found]
        if node in cores or not above:
            continue
        moved = {_moved(node, arg, index) for arg, index in above}
        if len(moved) > 1:
            raise NotLowerable(f"{node!r} needs two elements of the kernel's core at once")
        found[node] = moved.pop()
    return found


def _moved(node: Node, arg: Node, index: Index) -> Index:
    if is_elementwise(node.op):
        return index
    match node.op:
        case "V":
            back = inverse(node.attrs[0], arg.size)
            if back is not None:
                return through(back, index)[0]
        case "Red":
            return index // node.attrs[1]
    raise NotLowerable(f"{node!r} is no map of single elements of the kernel's core")
