"""How each operator becomes core nodes: what the `lower` column of `eqsat.program.ops.OPS` holds.

A lowering takes the term and its operands' nodes and returns the node of the result, flat and row-major. It never sees
a result of size 0 (`eqsat.program.core.lower` makes those itself), but operands may be empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from eqsat.base.numerics import Array, is_float, lowest
from eqsat.errors import InputError
from eqsat.layout import arithmetic as lay
from eqsat.layout.arithmetic import Layout
from eqsat.program.core_table import CAST
from eqsat.program.ir import evaluated
from eqsat.program.node import Node, make
from eqsat.program.sizes import FOLDED, READ_WORK, Budget, foldable, stored_elements, work
from eqsat.program.term import Shape, Term, row, topological

Lowering = Callable[[Term, Sequence[Node]], Node]


def view(node: Node, layout: Layout) -> Node:
    return make("V", (layout,), (node,))


def constant(value: float, size: int, dtype: str) -> Node:
    return make("Full", (value, size, dtype))


def full(term: Term, args: Sequence[Node]) -> Node:
    return constant(term.attr("value"), term.size, term.dtype)


def elementwise(term: Term, args: Sequence[Node]) -> Node:
    return make("Un" if len(args) == 1 else "Bin", (term.op,), args)


def where(term: Term, args: Sequence[Node]) -> Node:
    return make("Where", (), args)


def cast(term: Term, args: Sequence[Node]) -> Node:
    return make("Un", (CAST + term.dtype,), args)


# Views


def transpose(term: Term, args: Sequence[Node]) -> Node:
    return view(args[0], lay.of_transpose(term.args[0].shape, term.attr("perm")))


def reshape(term: Term, args: Sequence[Node]) -> Node:
    return args[0]


def broadcast(term: Term, args: Sequence[Node]) -> Node:
    return view(args[0], lay.of_broadcast(term.args[0].shape, term.shape))


def slice_(term: Term, args: Sequence[Node]) -> Node:
    shape = term.args[0].shape
    return view(args[0], lay.of_slice(shape, term.attr("starts"), term.attr("stops"), term.attr("steps")))


def pad(term: Term, args: Sequence[Node]) -> Node:
    if args[0].size == 0:
        return constant(term.attr("value"), term.size, term.dtype)
    return view(args[0], lay.of_pad(term.args[0].shape, term.attr("lo"), term.attr("hi"), term.attr("value")))


def concat(term: Term, args: Sequence[Node]) -> Node:
    """Cat joins along the outermost axis: another one is first brought there, and back afterwards."""
    axis = term.attr("axis")
    outer, inner = prod(term.shape[:axis]), prod(term.shape[axis + 1 :])
    parts = [
        view(node, lay.of_transpose((outer, x.shape[axis], inner), (1, 0, 2)))
        for node, x in zip(args, term.args, strict=True)
        if node.size
    ]
    joined = parts[0] if len(parts) == 1 else make("Cat", (), parts)
    return view(joined, lay.of_transpose((term.shape[axis], outer, inner), (1, 0, 2)))


def gather(term: Term, args: Sequence[Node]) -> Node:
    """A view where the index is constant and affine in its own indices, else a Gather."""
    data, index = term.args
    axis = term.attr("axis")
    outer, n, inner = prod(data.shape[:axis]), data.shape[axis], prod(data.shape[axis + 1 :])
    known = constant_value(index)
    if known is not None:
        layout = _affine_gather(known, outer, n, inner)
        if layout is not None:
            return view(args[0], layout)
    return make("Gather", (outer, n, inner), args)


def constant_value(term: Term) -> Array | None:
    """The values of a term that depends on constants alone; None where it varies, or is too much to compute here."""
    below = topological([term])
    if term.size > FOLDED or any(row(t.op).varies or not foldable(t) for t in below):
        return None
    if not Budget(READ_WORK, stored_elements(below)).spend(sum(map(work, below))):
        return None
    return evaluated([term], {})[0]


def _affine_gather(index: Array, outer: int, n: int, inner: int) -> Layout | None:
    """The layout of data[outer, n, inner] at these indices, where digits of the position walk them in equal steps:
    slices, flips, repetitions, strided and nearest-neighbour resampling.

    Raises InputError where an index is outside [-n, n).
    """
    if index.min() < -n or index.max() >= n:
        raise InputError(f"gather takes indices in [{-n}, {n}), got {index.min()} to {index.max()}")
    flat = np.where(index < 0, index + n, index).reshape(-1)
    base = int(flat[0])
    digits = _steps(flat)
    if digits is None:
        return None
    dims = [(size, step * inner) for size, step in digits]
    return lay.strided(base * inner, [(outer, n * inner), *dims, (inner, 1)])


def _steps(index: Array) -> list[tuple[int, int]] | None:
    """Digits (count, step), outer to inner, that walk these indices from the first; None where there are none."""
    digits: list[tuple[int, int]] = []
    while index.size > 1:
        step = int(index[1] - index[0])
        regular = index == index[0] + step * np.arange(index.size)
        run = index.size if regular.all() else int(np.argmin(regular))
        for count in range(run, 1, -1):
            if index.size % count == 0:
                rows = index.reshape(-1, count)
                if np.array_equal(rows, rows[:, :1] + step * np.arange(count)):
                    break
        else:
            return None
        digits.insert(0, (count, step))
        index = rows[:, 0]
    return digits


# Products and reductions


def matmul(term: Term, args: Sequence[Node]) -> Node:
    """One MM. Trailing batch dims over which the right operand repeats are rows of the left one: a weight shared by
    a batch makes a single product (B = 1, M = batch * m)."""
    a, b = args
    *batch, m, k = term.args[0].shape
    n = term.shape[-1]
    if k == 0:
        return constant(0, term.size, term.dtype)
    while batch:
        *rest, repeats = batch
        once = _first_of(b, prod(rest), repeats, k * n)
        if view(once, lay.strided(0, ((prod(rest), k * n), (repeats, 0), (k * n, 1)))) is not b:
            break
        b, batch, m = once, rest, m * repeats
    return make("MM", (prod(batch), m, k, n), (a, b))


def _first_of(b: Node, outer: int, repeats: int, inner: int) -> Node:
    """b[outer, repeats, inner][:, 0]"""
    return view(b, lay.strided(0, ((outer, repeats * inner), (inner, 1))))


def reduce(term: Term, args: Sequence[Node]) -> Node:
    """One Red over the product of the axes, brought innermost by a view."""
    x, axes, kind = term.args[0], term.attr("axes"), term.attr("kind")
    kept = tuple(i for i in range(x.ndim) if i not in axes)
    length = prod(x.shape[i] for i in axes)
    if length == 0:
        return constant(1 if kind == "prod" else 0, term.size, term.dtype)
    return _reduced(kind, length, view(args[0], lay.of_transpose(x.shape, kept + axes)))


def _reduced(kind: str, length: int, node: Node) -> Node:
    if length > 1:
        return make("Red", (kind, length), (node,))
    if kind in ("argmax", "argmin"):
        return constant(0, node.size, "int64")
    if kind == "sum" and is_float(node.dtype):  # sums begin at 0: that of -0 is 0
        return make("Bin", ("add",), (node, constant(0, node.size, node.dtype)))
    return node


def conv(term: Term, args: Sequence[Node]) -> Node:
    """A product over masked window views: x as [g, n * out, c/g * k], w as [g, c/g * k, oc/g]."""
    x, w = term.args
    groups = term.attr("groups")
    out, inner, per_group = prod(term.shape[2:]), prod(w.shape[1:]), w.shape[0] // groups
    if inner == 0 or x.size == 0:
        return constant(0, term.size, term.dtype)
    left = view(args[0], _windows(term, w.shape[2:], 0, groups))
    right = view(args[1], lay.conv_weights(w.shape, groups))
    product = make("MM", (groups, x.shape[0] * out, inner, per_group), (left, right))
    return view(product, lay.conv_result(x.shape[0], groups, out, per_group))


def pool(term: Term, args: Sequence[Node]) -> Node:
    """A reduction over a masked window view."""
    kind, kernel = term.attr("kind"), term.attr("kernel")
    fill = 0 if kind == "sum" else lowest(term.dtype)
    if args[0].size == 0:
        return constant(fill, term.size, term.dtype)
    return _reduced(kind, prod(kernel), view(args[0], _windows(term, kernel, fill, None)))


def _windows(term: Term, kernel: Shape, fill: float, groups: int | None) -> Layout:
    fill = float(fill) if term.dtype not in ("int32", "int64") else int(fill)
    lo, hi = term.attr("pads_lo"), term.attr("pads_hi")
    return lay.windows(
        term.args[0].shape, kernel, term.attr("strides"), term.attr("dilations"), lo, hi, fill, groups
    )  # fmt: skip
