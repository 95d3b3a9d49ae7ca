"""Nodes of the core: programs over flat arrays, small enough to put into an e-graph.

Every node is a flat array with a length and an element type; dims are attributes of the operators that need them, so
that a reshape is nothing and every other view is one operator with a layout (`eqsat.layout.arithmetic`). Each operator
has a row in `eqsat.program.core_table`; in short:

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

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from eqsat.base.graphs import operands_first
from eqsat.base.numerics import scalar
from eqsat.errors import ShapeError
from eqsat.layout import arithmetic as lay
from eqsat.layout.arithmetic import Layout
from eqsat.program.core_table import core_op
from eqsat.program.term import attr_key, attrs_key


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

    def __reduce__(self) -> tuple[Callable[..., Node], tuple[Any, ...]]:
        return _last, (flat(topological([self])),)


_NODES: weakref.WeakValueDictionary[Any, Node] = weakref.WeakValueDictionary()
_LOCK = threading.Lock()
if hasattr(os, "register_at_fork"):  # a child must not begin with a lock that a thread of its parent holds
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)
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
    while arg.op == "V" and (composed := lay.compose(arg.attrs[0], layout)) is not None:
        layout, arg = composed, arg.args[0]
        if layout.is_identity(arg.size):
            return arg
    if arg.op == "Full" and (not layout.masked or attr_key(scalar(layout.fill, arg.dtype)) == attr_key(arg.attrs[0])):
        return make("Full", (arg.attrs[0], layout.size, arg.dtype))
    return _intern("V", (layout,), (arg,))


def _intern(op: str, attrs: tuple[Any, ...], args: tuple[Node, ...]) -> Node:
    key = (op, attrs_key(attrs), args)
    found = _NODES.get(key)
    if found is not None:
        return found
    size, dtype = infer(op, attrs, args)
    with _LOCK:
        node, fill = object.__new__(Node), object.__setattr__
        fill(node, "op", op)
        fill(node, "attrs", attrs)
        fill(node, "args", args)
        fill(node, "size", size)
        fill(node, "dtype", dtype)
        fill(node, "uid", next(_UIDS))
        return _NODES.setdefault(key, node)


def flat(order: Sequence[Node]) -> list[Any]:
    """Nodes as a flat list, operands first: pickling them through their operands would recurse as deep as they are."""
    index = {node: i for i, node in enumerate(order)}
    return [(n.op, n.attrs, tuple(index[a] for a in n.args)) for n in order]


def unflat(rows: Sequence[Any]) -> list[Node]:
    """The nodes of a flat list, interned."""
    nodes: list[Node] = []
    for op, attrs, args in rows:
        nodes.append(_intern(op, attrs, tuple(nodes[a] for a in args)))
    return nodes


def _last(rows: Sequence[Any]) -> Node:
    return unflat(rows)[-1]


def infer(op: str, attrs: tuple[Any, ...], args: Sequence[Node]) -> tuple[int, str]:
    """(size, dtype) of a node. Raises ShapeError where the operands don't fit."""
    sizes, dtypes = [a.size for a in args], [a.dtype for a in args]
    if not core_op(op).takes(attrs, sizes, dtypes):
        raise ShapeError(f"{op}{attrs} does not take {', '.join(f'{a.dtype}[{a.size}]' for a in args)}")
    return measure(op, attrs, sizes, dtypes)


def measure(op: str, attrs: tuple[Any, ...], sizes: Sequence[int], dtypes: Sequence[str]) -> tuple[int, str]:
    """(size, dtype) of a core operator on operands with these sizes and dtypes, which fit.

    Raises:
        ShapeError: the core has no such operator.
    """
    row = core_op(op)
    return row.size(attrs, sizes), row.dtype(attrs, dtypes)


def is_leaf(op: str) -> bool:
    """Whether the operator has no operands: an input, a constant, a number."""
    return core_op(op).arity == 0


def call_of(node: Node) -> object:
    """Equal for all results of one opaque call, which are computed together; for other nodes, the node."""
    return (node.attrs[0], node.args) if node.op == "Opaque" else node


def is_folded(op: str) -> bool:
    """Whether the operator is computed ahead of time where its operands are constant."""
    return core_op(op).folds


def is_elementwise(op: str) -> bool:
    """Whether the operator computes each element from those of its operands at the same place."""
    return core_op(op).elementwise


MOVES = frozenset({"Const", "Full", "V", "Cat"})
"""Operators that compute nothing."""


def is_view(op: str) -> bool:
    """Whether the operator only says where elements are read."""
    return op == "V"


FEW_TERMS = 9
"""Most terms of a sum that is computed wherever an element of it is read: those of 3 x 3 windows. Of 25, each a masked
read of a vector, kernels spill registers on gfx1100 and gfx1201."""

STEPS = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}
"""The function that adds one element more to what is reduced so far, or joins what two parts come to; missing for
reductions that give a position."""


def terms_of(op: str, attrs: Sequence[Any]) -> int:
    """How many terms each element of a product or a reduction has, if it is one plain sum, product or extreme: not of
    matrices, which matrix units multiply. 0 for all other operators."""
    if op == "MM":
        _, m, k, n = attrs
        return k if 1 in (m, n) else 0
    return attrs[1] if op == "Red" and attrs[0] in STEPS else 0


def flops(node: Node) -> int:
    """Arithmetic operations: 2 per multiply-add of MM, 1 per element of other arithmetic, 0 for moved elements."""
    return core_op(node.op).flops(node.attrs, [a.size for a in node.args])


def topological(roots: Iterable[Node]) -> list[Node]:
    """Every node below the roots once, operands first, in a deterministic order."""
    return operands_first(roots)


def substitute(roots: Sequence[Node], replace: Mapping[Node, Node]) -> list[Node]:
    """The roots with some nodes replaced, rebuilt above them."""
    above = operands_first(roots, replace)
    if not above:  # as of most single nodes: the mapping may be of a whole program
        return [replace[r] for r in roots]
    made = dict(replace)
    for node in above:
        made[node] = rebuilt(node, [made[a] for a in node.args])
    return [made[r] for r in roots]


def rebuilt(node: Node, args: Sequence[Node]) -> Node:
    """The node over as many other operands; itself if they are its own."""
    given = tuple(args)
    return node if given == node.args else make(node.op, node.attrs, given)
