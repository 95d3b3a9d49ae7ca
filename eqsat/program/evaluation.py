"""What core nodes are worth: evaluation by NumPy, and constant subtrees computed ahead of time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from eqsat.base.mapped import release
from eqsat.base.numerics import (
    Array,
    Precision,
    at_precision,
    converted,
    dtype_name,
    elementwise,
    matmul,
    np_dtype,
    reduce,
    take,
)
from eqsat.errors import InputError
from eqsat.layout.arithmetic import Layout, row_major
from eqsat.program.core_table import CAST
from eqsat.program.node import Node, make, substitute, topological
from eqsat.program.sizes import FOLDED_WORK
from eqsat.program.term import ConstArray, Term


@dataclass(frozen=True)
class OpaqueCall:
    """How to run an opaque operator.

    Attributes:
        term: one of its results; `Term.args` say what shapes `run` takes.
        results: a term for each result, by its index: they say what shapes `run` gives.
    """

    term: Term
    results: dict[int, Term] = field(default_factory=dict, compare=False)

    def run(self, arrays: Sequence[Array]) -> Sequence[Array]:
        """Flat operands to the results, in their declared shapes and types."""
        declared = [
            array.reshape(arg.shape).astype(np_dtype(arg.dtype), copy=False)
            for array, arg in zip(arrays, self.term.args, strict=True)
        ]
        return self.term.attr("run")(*declared)


def evaluate(
    roots: Sequence[Node],
    env: Mapping[str, Array],
    constants: Mapping[str, Array],
    opaque: Mapping[str, OpaqueCall] | None = None,
    precision: Precision = "native",
    change: Callable[[Node, Array, list[Array]], Array] | None = None,
) -> list[Array]:
    """The flat values of the roots by NumPy; each value is freed after its last reader.

    Args:
        env: input name to flat array.
        constants: digest to flat array.
        opaque: needed where a root depends on an Opaque node.
        precision: "native" rounds every operator to its type, "float64" computes every float in float64.
        change: what becomes of the value of a node, given its operands' as well.

    Raises:
        InputError: an input or constant is missing, or a gather index is out of range.
    """
    run = _Evaluation(env, constants, opaque or {}, precision)
    order = topological(roots)
    readers = dict.fromkeys(order, 0)
    for node in [*roots, *(a for n in order for a in n.args)]:
        readers[node] += 1
    values: dict[Node, Array] = {}
    with np.errstate(all="ignore"):
        for node in order:
            args = [values[a] for a in node.args]
            value = run.value(node, args)
            values[node] = value if change is None else change(node, value, args)
            for arg in node.args:
                readers[arg] -= 1
                if not readers[arg]:
                    del values[arg]
    return [values[root] for root in roots]


@dataclass
class _Evaluation:
    env: Mapping[str, Array]
    constants: Mapping[str, Array]
    opaque: Mapping[str, OpaqueCall]
    precision: Precision
    calls: dict[Any, Sequence[Array]] = field(default_factory=dict)

    def value(self, node: Node, args: list[Array]) -> Array:
        return getattr(self, f"_{node.op.lower()}")(node, *args)

    def _typed(self, array: Array, dtype: str) -> Array:
        return converted(array, np_dtype(at_precision(dtype, self.precision)))

    def _in(self, node: Node) -> Array:
        name, size, dtype = node.attrs
        if name not in self.env:
            raise InputError(f"input {name!r} is missing")
        if self.env[name].size != size:
            raise InputError(f"input {name!r} takes {size} elements, got {self.env[name].size}")
        return self._typed(self.env[name], dtype)

    def _const(self, node: Node) -> Array:
        digest, _, dtype = node.attrs
        if digest not in self.constants:
            raise InputError(f"constant {digest} is missing")
        return self._typed(self.constants[digest], dtype)

    def _full(self, node: Node) -> Array:
        value, size, dtype = node.attrs
        return np.broadcast_to(self._typed(np.asarray(value), dtype), (size,))

    def _un(self, node: Node, a: Array) -> Array:
        f = node.attrs[0]
        return self._typed(a, node.dtype) if f.startswith(CAST) else elementwise(f, a)

    def _bin(self, node: Node, a: Array, b: Array) -> Array:
        return elementwise(node.attrs[0], a, b)

    def _where(self, node: Node, c: Array, a: Array, b: Array) -> Array:
        return np.where(c, a, b)

    def _mm(self, node: Node, a: Array, b: Array) -> Array:
        batch, m, k, n = node.attrs
        if batch == 1:
            return matmul(a.reshape(m, k), b.reshape(k, n)).reshape(-1)
        return matmul(a.reshape(batch, m, k), b.reshape(batch, k, n)).reshape(-1)

    def _red(self, node: Node, a: Array) -> Array:
        kind, length = node.attrs
        return reduce(kind, a.reshape(-1, length), (1,), False)

    def _v(self, node: Node, a: Array) -> Array:
        return read(a, node.attrs[0])

    def _cat(self, node: Node, *args: Array) -> Array:
        return np.concatenate(args)

    def _gather(self, node: Node, a: Array, index: Array) -> Array:
        return take(a.reshape(node.attrs), index, 1).reshape(-1)

    def _opaque(self, node: Node, *args: Array) -> Array:
        key, index, _, dtype = node.attrs
        call = (key, node.args)
        if call not in self.calls:
            self.calls[call] = self.opaque[key].run(args)
        found = np.asarray(self.calls[call][index]).reshape(-1)
        if found.size != node.size:
            raise InputError(f"an opaque operator gives {found.size} elements for output {index}, not {node.size}")
        return self._typed(found, dtype)


def read(a: Array, layout: Layout) -> Array:
    """The flat array `a` read through a layout."""
    if not layout.masked:
        return _strided(a, layout.offset, layout.dims).reshape(-1)
    box = _fill_box(layout, a.size)
    if box is None:
        index = layout.index()
        out = a.take(index, mode="clip")
        out[index < 0] = layout.fill
        return out
    filled = np.full(box.shape, layout.fill, a.dtype)
    filled[box.inside] = _strided(a, box.offset, box.dims)
    return _strided(filled.reshape(-1), box.start, box.steps).reshape(-1)


def _strided(a: Array, offset: int, dims: Sequence[tuple[int, int]]) -> Array:
    """The view a[offset + sum_i stride_i d_i]; the caller knows that it stays inside."""
    step = a.strides[0]
    return as_strided(a[offset:], [n for n, _ in dims], [s * step for _, s in dims], writeable=False)


class _FillBox(NamedTuple):
    """A masked view as a plain one of a larger array: a window view as the windows of a padded image.

    The array has one dim per digit that moves by a plain stride and one per masked coordinate, the latter over all
    values that the coordinate takes. Inside its bounds it holds what the layout reads there, elsewhere the fill.
    """

    shape: tuple[int, ...]
    inside: tuple[slice, ...]
    offset: int  # what is inside, as a view of the source: offset and (size, stride)
    dims: tuple[tuple[int, int], ...]
    start: int  # the result, as a view of the array
    steps: tuple[tuple[int, int], ...]


@lru_cache(maxsize=1 << 12)
def _fill_box(layout: Layout, n_in: int) -> _FillBox | None:
    """None where the array would be larger than the result, or would hold elements outside the source."""
    sizes = [n for n, _ in layout.dims]
    ends = [[c * (n - 1) for c, n in zip(axis.coeffs, sizes, strict=True)] for axis in layout.axes]
    low = [axis.start + sum(min(e, 0) for e in es) for axis, es in zip(layout.axes, ends, strict=True)]
    high = [axis.start + sum(max(e, 0) for e in es) for axis, es in zip(layout.axes, ends, strict=True)]
    first = [max(x, 0) for x in low]
    last = [min(x, axis.bound - 1) for x, axis in zip(high, layout.axes, strict=True)]
    plain = [i for i, (_, stride) in enumerate(layout.dims) if stride]
    shape = (*(sizes[i] for i in plain), *(h - x + 1 for x, h in zip(low, high, strict=True)))
    kept = [b - a + 1 for a, b in zip(first, last, strict=True)]
    dims = (*(layout.dims[i] for i in plain), *((n, axis.stride) for n, axis in zip(kept, layout.axes, strict=True)))
    offset = layout.offset + sum(a * axis.stride for a, axis in zip(first, layout.axes, strict=True))
    reach = [(n - 1) * s for n, s in dims]
    outside = offset + sum(min(r, 0) for r in reach) < 0 or offset + sum(max(r, 0) for r in reach) >= n_in
    if min(kept) < 1 or outside or prod(shape) > max(layout.size, n_in):
        return None
    weights = row_major(shape)
    lines, coordinates = weights[: len(plain)], weights[len(plain) :]
    steps = [
        sum(w * axis.coeffs[i] for w, axis in zip(coordinates, layout.axes, strict=True)) for i in range(len(sizes))
    ]
    for i, weight in zip(plain, lines, strict=True):
        steps[i] += weight
    start = sum(w * (axis.start - x) for w, axis, x in zip(coordinates, layout.axes, low, strict=True))
    bands = [slice(a - x, b - x + 1) for x, a, b in zip(low, first, last, strict=True)]
    inside = (*(slice(None) for _ in plain), *bands)
    return _FillBox(shape, inside, offset, dims, start, tuple(zip(sizes, steps, strict=True)))


class Folded(NamedTuple):
    """Roots with their constants computed ahead of time.

    Attributes:
        roots: over inputs and final constants.
        constants: digest to flat values, of the constants that the roots need.
        origins: what each computed constant came from, over the constants that were given.
    """

    roots: tuple[Node, ...]
    constants: dict[str, Array]
    origins: dict[Node, Node]


def fold(
    roots: Sequence[Node], constants: Mapping[str, Array], written: Sequence[Node] = (), limit: int = 1 << 26
) -> Folded:
    """Constant subtrees as constants: those of `written` natively, others over them in float64, rounded once.

    A view of a constant stays a view, and so does anything of more than `limit` elements.
    """
    known = dict(constants)
    native = _largest(roots, set(written))
    first = _folded(native, known, limit, "native")
    final = dict(zip(native, first.roots, strict=True))
    out = _folded(substitute(roots, final), known, limit, "float64")
    then = substitute(tuple(out.origins.values()), first.origins)
    origins = first.origins | dict(zip(out.origins, then, strict=True))
    needed = [n for n in topological(out.roots) if n.op == "Const"]
    return Folded(
        out.roots,
        {n.attrs[0]: known[n.attrs[0]] for n in needed},
        {n: origins[n] for n in needed if n in origins},
    )


def _largest(roots: Sequence[Node], among: set[Node]) -> list[Node]:
    """Those of some nodes that the roots reach through others alone."""
    found: dict[Node, None] = {}
    seen: set[Node] = set()
    stack = list(reversed(roots))
    while stack:
        node = stack.pop()
        if node in among:
            found[node] = None
        elif node not in seen:
            seen.add(node)
            stack.extend(reversed(node.args))
    return list(found)


def _folded(roots: Sequence[Node], known: dict[str, Array], limit: int, precision: Precision) -> Folded:
    """The roots with constant subtrees computed; their values go into `known`."""
    order = topological(roots)
    constant: dict[Node, bool] = {}
    for node in order:
        small = node.size <= limit and (node.op != "MM" or 2 * prod(node.attrs) <= FOLDED_WORK)
        constant[node] = node.op not in ("In", "Opaque") and small and all(constant[a] for a in node.args)
    moved: dict[Node, bool] = {}
    for node in order:
        moved[node] = node.op in MOVES and all(moved[a] for a in node.args)
    nodes = _to_fold(roots, order, constant)
    folded: dict[Node, Node] = {}
    given = {node for node in order if node.op == "Const"}
    # What is only moved keeps its bits in its own type, which takes a quarter of the memory of float64 for halves.
    for each in [*([n] for n in nodes if moved[n]), [n for n in nodes if not moved[n]]]:
        values = evaluate(each, {}, known, precision="native" if each and moved[each[0]] else precision)
        with np.errstate(all="ignore"):
            for node, value in zip(each, values, strict=True):
                own = np.ascontiguousarray(value.astype(np_dtype(node.dtype), copy=False))
                folded[node] = constant_node(ConstArray(own), known)
    for node in given:
        release(known[node.attrs[0]])
    origins = {made: node for node, made in folded.items() if made.op == "Const" and made not in given}
    return Folded(tuple(substitute(roots, folded)), known, origins)


MOVES = frozenset({"Const", "Full", "V", "Cat"})
"""Operators that compute nothing."""


def _to_fold(roots: Sequence[Node], order: Sequence[Node], constant: Mapping[Node, bool]) -> list[Node]:
    """The largest constant subtrees that compute something: read by what varies, by a view of that, or as a root."""
    wanted: dict[Node, None] = dict.fromkeys(roots)
    for node in reversed(order):
        if not constant[node] or (node.op == "V" and node in wanted):
            wanted.update(dict.fromkeys(node.args))
    return [n for n in order if n in wanted and constant[n] and n.args and n.op != "V"]


def constant_node(value: ConstArray, constants: dict[str, Array]) -> Node:
    """The node of a constant, whose flat values go into `constants`; one repeated value becomes Full."""
    flat = value.array.reshape(-1)
    dtype = dtype_name(flat.dtype)
    if flat.size == 0:
        return make("Full", (0, 0, dtype))
    if _repeats(flat):
        return make("Full", (flat[0].item(), flat.size, dtype))
    constants.setdefault(value.digest, flat)
    return make("Const", (value.digest, flat.size, dtype))


def _repeats(flat: Array) -> bool:
    """Whether all elements have the same bits; most arrays that vary show it in a few elements."""
    rows = flat.view(np.uint8).reshape(flat.size, -1)
    return bool(np.all(rows[:16] == rows[0]) and np.all(rows == rows[0]))
