"""Tidying before lifting: shorten views and constants that no person would write that way.

Views are free inside kernels, so an optimised program may slice a value, concatenate the slices, and slice the result
again. And a bias that was broadcast before it was folded is a constant as large as the result. Lifting starts from the
tidied program.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from math import isqrt
from typing import NamedTuple

import numpy as np

from eqsat.base.numerics import Array
from eqsat.layout.arithmetic import Axis, Layout, compose, identity, split, strided
from eqsat.lift.apart import product_apart
from eqsat.lift.widened import product_widened
from eqsat.program.constants import constant_node
from eqsat.program.node import Node, make, topological
from eqsat.program.term import ConstArray

_PROBE = 16
"""Blocks, and elements of each, that are compared first: most constants do not repeat, and this shows it early."""


class Tidied(NamedTuple):
    """Shortened roots, and their constants.

    Attributes:
        origins: shortened constant to the node it replaces, over the given constants.
    """

    roots: tuple[Node, ...]
    constants: dict[str, Array]
    origins: dict[Node, Node]


def tidied(roots: Sequence[Node], constants: Mapping[str, Array], keep: Container[Node], exact: bool) -> Tidied:
    """Roots and constants of equal value, of the same bits if `exact`, with fewer concatenations and fewer elements.
    Nodes in ``keep`` are not changed."""
    new: dict[Node, Node] = {}
    known = dict(constants)
    origins: dict[Node, Node] = {}
    order = topological(roots)
    indices = {node.args[1] for node in order if node.op == "Gather"}  # a gather by views of them is no plainer
    for node in order:
        args = [new[arg] for arg in node.args]
        if node in keep or node in indices:
            new[node] = node
        elif node.op == "Const":
            new[node] = _without_repeats(node, known, origins)
        elif node.op == "V":
            new[node] = _view(args[0], node.attrs[0], keep)
        elif node.op == "Cat":
            new[node] = _as_view(args) or make("Cat", (), args)
        else:
            made = node if args == list(node.args) else make(node.op, node.attrs, args)
            new[node] = _product(made, keep, exact) if node.op == "MM" else made
    return Tidied(tuple(new[root] for root in roots), known, origins)


def _product(node: Node, keep: Container[Node], exact: bool) -> Node:
    """The product; where that spares a gather, in parts or over more windows than are read."""

    def view(arg: Node, layout: Layout) -> Node:
        return _view(arg, layout, keep)

    return product_apart(node, view, exact) or product_widened(node, view) or node


def _without_repeats(node: Node, constants: dict[str, Array], origins: dict[Node, Node]) -> Node:
    """A constant as a view of a smaller one, without the digits along which it repeats."""
    values = constants[node.attrs[0]].reshape(-1)
    origin = node
    layout: Layout | None = identity(values.size)
    while layout is not None:
        repeat = next(_repeats(values), None)
        if repeat is None:
            break
        count, inner = repeat
        outer = values.size // count // inner
        shorter = compose(strided(0, ((outer, inner), (count, 0), (inner, 1))), layout)
        if shorter is None:
            break
        values, layout = np.ascontiguousarray(values.reshape(outer, count, inner)[:, 0]).reshape(-1), shorter
        origin = make("V", (strided(0, ((outer, count * inner), (inner, 1))),), (origin,))
    if values.size == node.size:
        return node
    short = constant_node(ConstArray(values), constants)
    if short.op == "Const":
        origins[short] = origin
    return make("V", (layout,), (short,))


def _repeats(values: Array) -> Iterator[tuple[int, int]]:
    """Each (count, inner) for which values[outer, count, inner] are equal along the axis of size ``count``, a prime."""
    bits = values.view(f"u{values.itemsize}")
    for inner in _divisors(values.size):
        if inner == values.size or bits[inner] != bits[0]:  # as of most: looked at in a hundredth of the time
            continue
        for count in _primes(values.size // inner):
            blocks = bits.reshape(-1, count, inner)
            probe = blocks[:: -(-len(blocks) // _PROBE), :, :_PROBE]
            if (probe == probe[:, :1]).all() and (blocks == blocks[:, :1]).all():
                yield count, inner


def _divisors(n: int) -> list[int]:
    low = [d for d in range(1, isqrt(n) + 1) if n % d == 0]
    return sorted({*low, *(n // d for d in low)})


def _primes(n: int) -> Iterator[int]:
    """The distinct prime factors of n."""
    factor = 2
    while factor * factor <= n:
        if n % factor == 0:
            yield factor
            while n % factor == 0:
                n //= factor
        factor += 1
    if n > 1:
        yield n


def _view(arg: Node, layout: Layout, keep: Container[Node]) -> Node:
    """The view; if it reads a single operand of a Cat, a view of that operand."""
    node = make("V", (layout,), (arg,))
    while node.op == "V" and node.args[0].op == "Cat" and node.args[0] not in keep:
        found = _read_operand(node.args[0], node.attrs[0])
        if found is None:
            break
        arg, layout = found
        node = make("V", (layout,), (arg,))
    return node


def _read_operand(arg: Node, layout: Layout) -> tuple[Node, Layout] | None:
    """The single operand of a Cat that a layout reads, and the layout over it."""
    digits = split(layout, (arg.size,))
    if digits is None:
        return None
    start = 0
    for operand in arg.args:
        if start <= digits.low[0] and digits.high[0] <= start + operand.size:
            return operand, Layout(layout.offset - start, layout.dims, layout.axes, layout.fill)
        start += operand.size
    return None


def _as_view(parts: Sequence[Node]) -> Node | None:
    """A concatenation of equal views of one array, at equal distances, as a single view with one more digit."""
    sources = [(p.args[0], p.attrs[0]) if p.op == "V" else (p, identity(p.size)) for p in parts]
    source, first = sources[0]
    step = sources[1][1].offset - first.offset if len(sources) > 1 else 0
    for i, (other, layout) in enumerate(sources):
        if other is not source or layout != Layout(first.offset + i * step, first.dims, first.axes, first.fill):
            return None
    axes = tuple(Axis(axis.bound, axis.stride, axis.start, (0, *axis.coeffs)) for axis in first.axes)
    dims = ((len(sources), step), *first.dims)
    return make("V", (Layout(first.offset, dims, axes, first.fill),), (source,))
