"""The core: programs over flat arrays, small enough to put into an e-graph.

Every node is a flat array with a length and an element type; dims are attributes of the operators that need them, so
that a reshape is nothing and every other view is one operator with a layout (`eqsat.layout`).

    In(name, size, dtype)        an input
    Const(digest, size, dtype)   a constant, by the digest of its values
    Full(value, size, dtype)     one value everywhere
    Un(f) a                      f: a unary function, or "cast:<dtype>"
    Bin(f) a b                   f: a binary or comparing function
    Where() c a b                a where c, else b
    MM(B, M, K, N) a b           a[B, M, K] @ b[B, K, N]
    Red(f, C) a                  f over the innermost C: sum, prod, max, min, argmax, argmin
    V(L) a                       a read through the layout L
    Cat() a b ...                one after another
    Gather(outer, n, inner) a i  a[outer, n, inner] at index i[j] in [-n, n) of the middle axis
    Opaque(key, index, size, dtype) ...   result `index` of an operator that is carried, not understood
"""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from math import prod
from typing import Any

import numpy as np

from eqsat import layout as lay
from eqsat.errors import InputError, ShapeError
from eqsat.ir import ConstArray, Program, Shape, Term, attr_key
from eqsat.layout import Layout
from eqsat.numerics import (
    ELEMENTWISE,
    REDUCTIONS,
    Array,
    Precision,
    at_precision,
    dtype_name,
    elementwise,
    matmul,
    np_dtype,
    reduce,
    scalar,
    take,
)

CAST = "cast:"
"""Prefix of the unary functions that convert to another element type."""


class Node:
    """A flat array. Immutable and hash-consed: build nodes with `make`, compare them with `is`.

    Attributes:
        op, attrs, args: as listed above.
        size: number of elements.
        dtype: element type.
        uid: rises in the order of creation within a process.
    """

    __slots__ = ("__weakref__", "args", "attrs", "dtype", "op", "size", "uid")

    op: str
    attrs: tuple[Any, ...]
    args: tuple[Node, ...]
    size: int
    dtype: str
    uid: int

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"nodes are immutable: {name} cannot be set")

    def __repr__(self) -> str:
        attrs = ", ".join(a.key() if isinstance(a, Layout) else str(a) for a in self.attrs)
        return f"<{self.op}({attrs}) {self.dtype}[{self.size}]>"

    def __copy__(self) -> Node:
        return self

    def __deepcopy__(self, memo: object) -> Node:
        return self


_NODES: weakref.WeakValueDictionary[Any, Node] = weakref.WeakValueDictionary()
_LOCK = threading.Lock()
_UIDS = count()


def make(op: str, attrs: Sequence[Any] = (), args: Sequence[Node] = ()) -> Node:
    """The node `op(attrs)(args)`, in normal form: an identity view is its operand, a view of a view is one view
    (where the layouts compose), and a view of one repeated value is that value again.

    Raises:
        ShapeError: operands whose sizes or types the operator does not take.
    """
    attrs, args = tuple(attrs), tuple(args)
    if op == "V":
        return _make_view(attrs[0], args[0])
    if op == "Full":
        attrs = (scalar(attrs[0], attrs[2]), *attrs[1:])
    return _intern(op, attrs, args)


def _make_view(layout: Layout, arg: Node) -> Node:
    if layout.is_identity(arg.size):
        return arg
    if arg.op == "V":
        composed = lay.compose(arg.attrs[0], layout)
        if composed is not None:
            return _make_view(composed, arg.args[0])
    if arg.op == "Full" and (not layout.masked or attr_key(scalar(layout.fill, arg.dtype)) == attr_key(arg.attrs[0])):
        return make("Full", (arg.attrs[0], layout.size, arg.dtype))
    return _intern("V", (layout,), (arg,))


def _intern(op: str, attrs: tuple[Any, ...], args: tuple[Node, ...]) -> Node:
    key = (op, tuple(map(attr_key, attrs)), args)
    found = _NODES.get(key)
    if found is not None:
        return found
    size, dtype = infer(op, attrs, args)
    with _LOCK:
        node = object.__new__(Node)
        fields = {"op": op, "attrs": attrs, "args": args, "size": size, "dtype": dtype, "uid": next(_UIDS)}
        for name, value in fields.items():
            object.__setattr__(node, name, value)
        return _NODES.setdefault(key, node)


def infer(op: str, attrs: tuple[Any, ...], args: Sequence[Node]) -> tuple[int, str]:
    """(size, dtype) of a node. Raises ShapeError where the operands don't fit."""
    sizes, dtypes = [a.size for a in args], [a.dtype for a in args]
    if op in ("In", "Const", "Full"):
        return attrs[1], attrs[2]
    if op == "Opaque":
        return attrs[2], attrs[3]
    if op == "V":
        return _view_size(attrs[0], sizes[0]), dtypes[0]
    if op in ("Un", "Bin"):
        same = sizes.count(sizes[0]) == len(sizes) and dtypes.count(dtypes[0]) == len(dtypes)
        return _checked(same, op, attrs, args, sizes[0]), _function_result(attrs[0], dtypes[0])
    if op == "Where":
        fits = sizes.count(sizes[0]) == 3 and dtypes[0] == "bool" and dtypes[1] == dtypes[2]
        return _checked(fits, op, attrs, args, sizes[0]), dtypes[1]
    if op == "MM":
        batch, m, k, n = attrs
        fits = sizes == [batch * m * k, batch * k * n] and dtypes[0] == dtypes[1]
        return _checked(fits, op, attrs, args, batch * m * n), dtypes[0]
    if op == "Red":
        kind, length = attrs
        fits = length > 0 and sizes[0] % length == 0
        return _checked(fits, op, attrs, args, sizes[0] // max(length, 1)), REDUCTIONS[kind].result or dtypes[0]
    if op == "Cat":
        return _checked(len(set(dtypes)) == 1, op, attrs, args, sum(sizes)), dtypes[0]
    if op == "Gather":
        outer, n, inner = attrs
        fits = sizes[0] == outer * n * inner and dtypes[1] in ("int32", "int64")
        return _checked(fits, op, attrs, args, outer * sizes[1] * inner), dtypes[0]
    raise ShapeError(f"the core has no operator {op!r}")


def _checked(fits: bool, op: str, attrs: tuple[Any, ...], args: Sequence[Node], size: int) -> int:
    if not fits:
        raise ShapeError(f"{op}{attrs} does not take {', '.join(f'{a.dtype}[{a.size}]' for a in args)}")
    return size


def _function_result(f: str, dtype: str) -> str:
    if f.startswith(CAST):
        return f.removeprefix(CAST)
    return ELEMENTWISE[f].result or dtype


@lru_cache(maxsize=1 << 14)
def _view_size(layout: Layout, n_in: int) -> int:
    """The layout's size, once it is known to read inside [0, n_in)."""
    if not layout.masked and layout.size:
        ends = [(n - 1) * s for n, s in layout.dims]
        least, most = (layout.offset + sum(f(e, 0) for e in ends) for f in (min, max))
        if least < 0 or most >= n_in:
            raise ShapeError(f"V({layout.key()}) reads {least} to {most} of an array of {n_in}")
    return layout.size


def is_view(op: str) -> bool:
    """Whether the operator only says where elements are read."""
    return op == "V"


def flops(node: Node) -> int:
    """Arithmetic operations: 2 per multiply-add of MM, 1 per element of other arithmetic, 0 for moved elements."""
    if node.op == "MM":
        return 2 * prod(node.attrs)
    if node.op in ("Un", "Bin", "Where"):
        return node.size
    return node.args[0].size if node.op == "Red" else 0


def topological(roots: Iterable[Node]) -> list[Node]:
    """Every node below the roots once, operands first, in a deterministic order."""
    seen: set[Node] = set()
    order: list[Node] = []
    stack = [(root, False) for root in reversed(list(roots))]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((a, False) for a in reversed(node.args) if a not in seen)
    return order


# Programs


@dataclass(frozen=True)
class OpaqueCall:
    """How to run an opaque operator: `term` is one of its results; `Term.args` say what shapes `run` takes."""

    term: Term

    def run(self, arrays: Sequence[Array]) -> Sequence[Array]:
        """Flat operands to the results, in their declared shapes and types."""
        declared = [
            array.reshape(arg.shape).astype(np_dtype(arg.dtype), copy=False)
            for array, arg in zip(arrays, self.term.args, strict=True)
        ]
        return self.term.attr("run")(*declared)


@dataclass(frozen=True)
class CoreProgram:
    """A program over the core.

    Attributes:
        roots: the outputs, flat.
        root_names, root_shapes: of the outputs, in the same order.
        inputs: the In nodes, in calling order, including those that nothing reads.
        constants: digest to flat values.
        opaque: key of an Opaque node to how it runs.
        source_term: a term of the source for a node, with its shape; a term that computes rather than views, where
            both flatten to the node.
    """

    roots: tuple[Node, ...]
    root_names: tuple[str, ...]
    root_shapes: tuple[Shape, ...]
    inputs: tuple[Node, ...]
    constants: dict[str, Array]
    opaque: dict[str, OpaqueCall] = field(default_factory=dict)
    source_term: dict[Node, Term] = field(default_factory=dict)

    def run(self, inputs: Mapping[str, Array], precision: Precision = "native") -> dict[str, Array]:
        """As `Program.run`, over the core; inputs are taken as they are, in any shape."""
        flat = {node.attrs[0]: np.asarray(inputs[node.attrs[0]]).reshape(-1) for node in self.inputs}
        results = evaluate(self.roots, flat, self.constants, self.opaque, precision)
        shaped = zip(self.root_names, results, self.root_shapes, strict=True)
        return {name: array.reshape(shape) for name, array, shape in shaped}

    def __str__(self) -> str:
        order = topological(self.roots)
        names = {node: f"%{i}" for i, node in enumerate(order)}
        lines = [f"{names[n]}: {repr(n)[1:-1]} {' '.join(names[a] for a in n.args)}".rstrip() for n in order]
        results = ", ".join(f"{name}={names[root]}" for name, root in zip(self.root_names, self.roots, strict=True))
        return "\n".join([*lines, f"return {results}"])


def lower(program: Program) -> CoreProgram:
    """The program over flat arrays: equal values, one node per distinct computation.

    Raises:
        InputError: a constant gather index is out of range.
    """
    return _Lowering(program).result()


class _Lowering:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.nodes: dict[Term, Node] = {}
        self.constants: dict[str, Array] = {}
        self.opaque: dict[str, OpaqueCall] = {}
        self.source_term: dict[Node, Term] = {}

    def result(self) -> CoreProgram:
        program = self.program
        for term in [*program.inputs, *program.terms()]:
            if term not in self.nodes:
                self.nodes[term] = self.node(term)
                self.remember(term)
        outputs = program.outputs
        return CoreProgram(
            roots=tuple(self.nodes[term] for term in outputs.values()),
            root_names=tuple(outputs),
            root_shapes=tuple(term.shape for term in outputs.values()),
            inputs=tuple(self.nodes[term] for term in program.inputs),
            constants=self.constants,
            opaque=self.opaque,
            source_term=self.source_term,
        )

    def node(self, term: Term) -> Node:
        from eqsat.ops import row  # the rows know their lowerings, which build nodes

        if term.op == "input":
            return make("In", (term.attr("name"), term.size, term.dtype))
        if term.size == 0:
            return make("Full", (0, 0, term.dtype))
        if term.op == "constant":
            return self.constant(term.attr("value").array.reshape(-1))
        if term.op == "iota":
            return self.ramp(term)
        args = [self.nodes[a] for a in term.args]
        if term.op == "opaque":
            return self.opaque_node(term, args)
        lowering = row(term.op).lower
        assert lowering is not None, f"{term.op} has no lowering"
        return lowering(term, args)

    def constant(self, flat: Array) -> Node:
        return constant_node(flat, self.constants)

    def ramp(self, term: Term) -> Node:
        axis = term.attr("axis")
        n, inner = term.shape[axis], prod(term.shape[axis + 1 :])
        line = self.constant(np.arange(n).astype(np_dtype(term.dtype)))
        return make("V", (lay.strided(0, ((prod(term.shape[:axis]), 0), (n, 1), (inner, 0))),), (line,))

    def opaque_node(self, term: Term, args: list[Node]) -> Node:
        described = (term.attr("name"), term.attr("spec"), [(a.shape, a.dtype) for a in term.args])
        key = hashlib.blake2b(repr(described).encode(), digest_size=16).hexdigest()
        self.opaque.setdefault(key, OpaqueCall(term))
        return make("Opaque", (key, term.attr("index"), term.size, term.dtype), args)

    def remember(self, term: Term) -> None:
        from eqsat.ops import row

        known = self.source_term.setdefault(self.nodes[term], term)
        if row(known.op).view and not row(term.op).view:
            self.source_term[self.nodes[term]] = term


def constant_node(flat: Array, constants: dict[str, Array]) -> Node:
    """The node of a flat constant, whose values go into `constants`; one repeated value becomes Full."""
    dtype = dtype_name(flat.dtype)
    if flat.size == 0:
        return make("Full", (0, 0, dtype))
    if np.all(flat.view(np.uint8).reshape(flat.size, -1) == flat[:1].view(np.uint8)):
        return make("Full", (flat[0].item(), flat.size, dtype))
    value = ConstArray(flat)
    constants.setdefault(value.digest, value.array)
    return make("Const", (value.digest, flat.size, dtype))


# Values


def evaluate(
    roots: Sequence[Node],
    env: Mapping[str, Array],
    constants: Mapping[str, Array],
    opaque: Mapping[str, OpaqueCall] | None = None,
    precision: Precision = "native",
) -> list[Array]:
    """The flat values of the roots by NumPy; each value is freed after its last reader.

    Args:
        env: input name to flat array.
        constants: digest to flat array.
        opaque: needed where a root depends on an Opaque node.
        precision: "native" rounds every operator to its type, "float64" computes every float in float64.

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
            values[node] = run.value(node, [values[a] for a in node.args])
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
        return array.astype(np_dtype(at_precision(dtype, self.precision)), copy=False)

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
        return self._typed(np.asarray(self.calls[call][index]).reshape(-1), dtype)


def read(a: Array, layout: Layout) -> Array:
    """The flat array `a` read through a layout."""
    if layout.masked:
        index, filled = _masked_index(layout)
        out = a.take(index, mode="clip")
        out[filled] = layout.fill
        return out
    shape = [n for n, _ in layout.dims]
    strides = [s * a.strides[0] for _, s in layout.dims]
    return np.lib.stride_tricks.as_strided(a[layout.offset :], shape, strides, writeable=False).reshape(-1)


@lru_cache(maxsize=8)
def _masked_index(layout: Layout) -> tuple[Array, Array]:
    """Where each element is read, and which are filled instead. Few are kept: they are long."""
    index = layout.index()
    return index, index < 0


def fold(
    roots: Sequence[Node], constants: Mapping[str, Array], limit: int = 1 << 26
) -> tuple[tuple[Node, ...], dict[str, Array]]:
    """Constant subtrees as constants, computed in float64 and rounded once.

    A view of a constant stays a view, and so does anything of more than `limit` elements.

    Returns:
        the roots, and the constants that they need.
    """
    known = dict(constants)
    order = topological(roots)
    constant: dict[Node, bool] = {}
    for node in order:
        constant[node] = node.op not in ("In", "Opaque") and node.size <= limit and all(constant[a] for a in node.args)
    folded: dict[Node, Node] = {}
    for node, value in _folded_values(_to_fold(roots, order, constant), known):
        folded[node] = constant_node(value, known)
    rebuilt: dict[Node, Node] = {}
    for node in order:
        rebuilt[node] = folded.get(node) or (make(node.op, node.attrs, [rebuilt[a] for a in node.args]))
    out = tuple(rebuilt[root] for root in roots)
    needed = [n.attrs[0] for n in topological(out) if n.op == "Const"]
    return out, {digest: known[digest] for digest in needed}


def _to_fold(roots: Sequence[Node], order: Sequence[Node], constant: Mapping[Node, bool]) -> list[Node]:
    """The largest constant subtrees that compute something: read by what varies, by a view of that, or as a root."""
    wanted: dict[Node, None] = dict.fromkeys(roots)
    for node in reversed(order):
        if not constant[node] or (node.op == "V" and node in wanted):
            wanted.update(dict.fromkeys(node.args))
    return [n for n in order if n in wanted and constant[n] and n.args and n.op != "V"]


def _folded_values(nodes: Sequence[Node], constants: Mapping[str, Array]) -> Iterator[tuple[Node, Array]]:
    for node, value in zip(nodes, evaluate(nodes, {}, constants, precision="float64"), strict=True):
        with np.errstate(all="ignore"):
            yield node, np.ascontiguousarray(value.astype(np_dtype(node.dtype), copy=False))
