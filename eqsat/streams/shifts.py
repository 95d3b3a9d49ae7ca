"""What a stream computes in another way than written, to read its rows less often and to divide less.

A sum of squared deviations runs in the same pass as the mean that they deviate from. With s the first element of a row,
and A and B the sums of (x - s)^2 and of x - s, for any c

    sum (x - c)^2 = A + (s - c) (2 B + n (s - c))

A and B need no total, so that they run along with the sum of x. An element of the row is at most sqrt(n) deviations
from its mean: so unlike sum x^2 - n c^2, this loses no digits where the mean is large against the deviations. (Chan,
Golub and LeVeque, "Algorithms for computing the sample variance", The American Statistician, 1983.)

A division of every element by the root of a value of its row is a multiplication by one reciprocal root. No root of a
float is so small that its reciprocal overflows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eqsat.base.graphs import operands_first
from eqsat.base.numerics import is_float
from eqsat.layout.arithmetic import strided
from eqsat.program.core import Node, make
from eqsat.streams.scales import scaled_last
from eqsat.streams.stream import Stream, walks
from eqsat.streams.turned import by_rows


def in_fewest_passes(
    outputs: Sequence[Node], inputs: Sequence[Node], corrected: bool
) -> tuple[tuple[Node, ...], tuple[Stream, ...]]:
    """The outputs of a kernel that streams, and its walks.

    Products are turned so that left operands are made on the way. With `corrected`, sums of squares are shifted where
    that saves passes, roots of rows are inverted once a row, and factors of rows and columns are applied behind inner
    products. Without it, everything else is as written.

    Raises:
        NotAStream: no walks compute them.
    """
    outputs = by_rows(outputs, inputs)
    written = scaled_last(inverted(outputs, inputs), inputs) if corrected else outputs
    found = walks(written, inputs, corrected)
    if corrected and _passes(found) > len(found):
        moved = shifted(written, inputs)
        if moved != written:
            shorter = walks(moved, inputs, corrected)
            if _passes(shorter) < _passes(found):
                return moved, shorter
    return written, found


def _passes(walked: Sequence[Stream]) -> int:
    return sum(x.passes for x in walked)


def shifted(outputs: Sequence[Node], inputs: Sequence[Node]) -> tuple[Node, ...]:
    """The outputs with every sum of squared deviations of what is read from totals of its rows by the sums above."""
    above: set[Node] = set()

    def changed(node: Node) -> Node:
        found = _deviations(node, above)
        made = node if found is None else _sums(node, *found)
        above.update(n for n in operands_first([made], inputs) if _is_above(n, above))
        return made

    return _rebuilt(outputs, inputs, changed)


def _is_above(node: Node, above: set[Node]) -> bool:
    return node.op in ("MM", "Red") or any(a in above for a in node.args)


def inverted(outputs: Sequence[Node], inputs: Sequence[Node]) -> tuple[Node, ...]:
    """The outputs with every a / sqrt(v) as a times the reciprocal root of v, for one v a row."""

    def changed(node: Node) -> Node:
        if node.op != "Bin" or node.attrs[0] != "div" or node.args[1].op != "V":
            return node
        (layout,), (root,) = node.args[1].attrs, node.args[1].args
        if root.op != "Un" or root.attrs[0] != "sqrt" or root.size >= node.size or layout.masked:
            return node
        factor = make("V", (layout,), (make("Un", ("rsqrt",), root.args),))
        return make("Bin", ("mul",), (node.args[0], factor))

    return _rebuilt(outputs, inputs, changed)


def _rebuilt(outputs: Sequence[Node], inputs: Sequence[Node], changed: Callable[[Node], Node]) -> tuple[Node, ...]:
    """The outputs with each node that is no input changed, operands first."""
    made: dict[Node, Node] = {}
    for node in operands_first(outputs, inputs):
        args = [made.get(a, a) for a in node.args]
        made[node] = changed(make(node.op, node.attrs, args) if args != list(node.args) else node)
    return tuple(made.get(output, output) for output in outputs)


def _deviations(node: Node, above: set[Node]) -> tuple[Node, Node] | None:
    """(x, c) of sum (x - c)^2, with c one value a row; None for any other node."""
    if node.op != "Red" or node.attrs[0] != "sum" or not is_float(node.dtype):
        return None
    (square,) = node.args
    if square.op != "Bin" or square.attrs[0] != "mul" or square.args[0] is not square.args[1]:
        return None
    (difference, _) = square.args
    if difference.op != "Bin" or difference.attrs[0] != "sub":
        return None
    x, c = difference.args
    spread = strided(0, ((node.size, 1), (node.attrs[1], 0)))
    return (x, c.args[0]) if x not in above and c in above and c.op == "V" and c.attrs[0] == spread else None


def _sums(node: Node, x: Node, c: Node) -> Node:
    """sum (x - c)^2 by sums that need no total."""
    rows, n = node.size, node.attrs[1]

    def bin_(f: str, a: Node, b: Node) -> Node:
        return make("Bin", (f,), (a, b))

    def number(value: float) -> Node:
        return make("Full", (value, rows, node.dtype))

    def total(a: Node) -> Node:
        return make("Red", ("sum", n), (a,))

    first = make("V", (strided(0, ((rows, n),)),), (x,))
    d = bin_("sub", x, make("V", (strided(0, ((rows, n), (n, 0))),), (x,)))
    apart = bin_("sub", first, c)
    slope = bin_("add", bin_("mul", number(2), total(d)), bin_("mul", number(n), apart))
    return bin_("add", total(bin_("mul", d, d)), bin_("mul", apart, slope))
