"""Products over a run of windows, as products over all windows of a rectangle that holds the run.

Only the rows that are read are computed. Where an image is cropped, these are a run of its windows, from the first one
that is read to the last, and a kernel reads these windows where they are. No convolution computes such a run. One that
computes whole lines of windows does little more, and what is read is a slice of its result. Written as an operator, the
run is a gather of all windows.
"""

from __future__ import annotations

from collections.abc import Callable

from eqsat.layout.arithmetic import Layout, strided
from eqsat.lift.apart import gathers, unfolded
from eqsat.program.node import Node, make


def product_widened(product: Node, view: Callable[[Node, Layout], Node]) -> Node | None:
    """A product over a run of windows as a view of one over the whole lines of windows that hold it, where that is a
    convolution; None for any other. `view` makes a view of a node."""
    for side, operand in enumerate(product.args):
        if operand.op == "V" and unfolded(operand.args[0]):
            found = _wider(product, side, view)
            if found is not None and not gathers(found[0], side):
                return view(*found)
    return None


def _wider(product: Node, side: int, view: Callable[[Node, Layout], Node]) -> tuple[Node, Layout] | None:
    """The product over whole lines of windows, and what of it is read; None if an operand is no run of windows."""
    batch, m, k, n = product.attrs
    (run,), (windows,) = product.args[side].attrs, product.args[side].args
    count, other, step = (m, n, k) if side == 0 else (n, m, 1)
    of_all, start = windows.size // (batch * k), run.offset // step
    if run != _run(side, batch, k, of_all, start, count):
        return None
    line = _line(windows.attrs[0], step, of_all)
    low, high = start // line * line, -(-(start + count) // line) * line
    held = view(windows, _run(side, batch, k, of_all, low, high - low))
    args = (held, product.args[1]) if side == 0 else (product.args[0], held)
    rows, columns = (high - low, n) if side == 0 else (m, high - low)
    wider = make("MM", (batch, rows, k, columns), args)
    return wider, _run(side, batch, other, high - low, start - low, count)


def _run(side: int, batch: int, other: int, of_all: int, start: int, count: int) -> Layout:
    """A run of the rows of [batch, of_all, other], or for side 1 of the columns of [batch, other, of_all]."""
    if side == 0:
        return strided(start * other, ((batch, of_all * other), (count * other, 1)))
    return strided(start, ((batch * other, of_all), (count, 1)))


def _line(layout: Layout, step: int, of_all: int) -> int:
    """The windows of one step of the outermost digit of windows, of which each moves `step` elements; all of them if
    digits do not tell."""
    inside = 1
    for size, _ in reversed(layout.dims):
        if inside < step * of_all <= inside * size:
            return inside // step if inside % step == 0 and step * of_all == inside * size else of_all
        inside *= size
    return of_all
