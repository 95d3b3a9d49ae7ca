"""How far two constants may be apart, one of which was computed ahead of time and rounded."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from eqsat.base.graphs import operands_first
from eqsat.base.numerics import Array
from eqsat.program.core import Node

ROUNDING = 16.0
"""Units in the last place by which a folded constant may miss its computation."""


def adds_up(nodes: Iterable[Node]) -> bool:
    """Whether sums are on the way to one of some constants, or nothing is known of the way.

    What cancels in a sum leaves the rounding of its addends.
    """
    order = operands_first(list(nodes))
    return all(not n.args for n in order) or any(
        n.op in ("MM", "Red") or (n.op == "Bin" and n.attrs[0] in ("add", "sub")) for n in order
    )


def units_apart(a: Array, b: Array, unit: float, largest: bool) -> float:
    """The largest difference of two arrays, in units (of the last place of 1) of the element, or of the largest one."""
    same = (a == b) | ((a != a) & (b != b))
    if same.all():
        return 0.0
    with np.errstate(all="ignore"):
        a, b = a.astype(np.float64), b.astype(np.float64)
        gap = np.abs(np.where(same, 0.0, a - b))
        scale = np.maximum(np.abs(a), np.abs(b))
        if largest:
            scale = np.where(np.isfinite(scale), scale, 0.0).max(initial=0.0)
        return float(np.where(same, 0.0, gap / (unit * scale)).max())


def absorbed(left: Node, right: Node) -> bool:
    """Whether one of two constants is computed from the other: a sum that rounds to its larger addend, for one.

    No computation ahead of time makes a constant of itself. What tells such two apart may be all that is left when the
    large addend is taken away again.
    """
    return any(_is_below(a, b) for a, b in ((left, right), (right, left)))


def _is_below(part: Node, whole: Node) -> bool:
    number = part.attrs[0] if part.op == "Full" else None
    below = operands_first([whole])
    return any(n is part or (number is not None and n.op == "Full" and n.attrs[0] == number) for n in below)
