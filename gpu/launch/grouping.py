"""Which kernels of a plan are one launch: small products that need nothing of each other.

Towers of unequal widths are such products: no batch holds them, and each alone leaves most of a device idle. Every
kernel keeps its own price; that they share a launch comes on top.
"""

from __future__ import annotations

from math import ceil

from eqsat.extract.plan.plan import Kernel, Plan
from eqsat.program.core import Node, topological

MOST_BLOCKS = 96
"""Tiles of a group: all run at once on any of the devices, so that no member waits for another."""

MOST_ARRAYS = 128
"""Arrays of a group: their addresses must fit into the 4 KiB of arguments that a launch takes at least."""

_TILE = 32
"""Edge of the tiles that are counted: small ones, since the members are."""


def groups(plan: Plan) -> list[list[int]]:
    """The plan's kernels as launches in order, by their position: those of a group share one."""
    found: list[list[int]] = []
    room: list[tuple[int, int]] = []  # tiles and arrays that each group may still take
    made_in: dict[Node, int] = {}
    for i, kernel in enumerate(plan.kernels):
        first = max((made_in[n] + 1 for n in kernel.inputs if n in made_in), default=0)
        blocks, arrays = _blocks(kernel), len(kernel.inputs) + len(kernel.outputs)
        fitting = (g for g in range(first, len(found)) if blocks <= room[g][0] and arrays <= room[g][1])
        at = next(fitting, len(found)) if blocks else len(found)
        if at == len(found):
            found.append([])
            room.append((MOST_BLOCKS, MOST_ARRAYS) if blocks else (0, 0))
        found[at].append(i)
        room[at] = (room[at][0] - blocks, room[at][1] - arrays)
        made_in.update(dict.fromkeys(kernel.outputs, at))
    return found


def _blocks(kernel: Kernel) -> int:
    """The tiles of a kernel that may share a launch; 0 for any other."""
    if kernel.family != "contraction" or kernel.launches != 1:
        return 0
    batch, m, _, n = product_of(kernel).attrs
    blocks = batch * ceil(m / _TILE) * ceil(n / _TILE)
    return blocks if 1 not in (m, n) and blocks < MOST_BLOCKS else 0


def product_of(kernel: Kernel) -> Node:
    """The product that a contraction is built around."""
    return next(node for node in topological(kernel.body) if node.op == "MM")
