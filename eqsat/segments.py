"""Segments: large programs repeat themselves, and identical layers are optimised once.

A program is cut at nodes that everything after them depends on alone (a layer's output), where a cut costs nothing:
no linear algebra could cross it, and its value is kept in memory in any case. Segments that are equal up to the names of
their inputs and constants are then one problem, solved once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eqsat.core import Node, make, topological

LARGE = 400
"""Core nodes from which on a program is cut even if no segment repeats: separate parts are far quicker to solve."""

_LINEAR_BINARY = frozenset({"add", "sub"})


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a program.

    Attributes:
        roots: what it computes, as nodes of the program.
        boundary: what it reads from other segments, in the order of the placeholders `%0`, `%1`, ...
        form: the same roots with placeholders for what it reads and numbered constants: equal forms are equal problems.
        leaves: placeholder node -> the node of the program that it stands for (inputs, constants and boundary).
    """

    roots: tuple[Node, ...]
    form: tuple[Node, ...]
    leaves: Mapping[Node, Node]


def segments(roots: Sequence[Node]) -> list[Segment]:
    """Cut a program into segments, in an order in which each reads only earlier ones."""
    order = [n for n in topological(roots)]
    cuts = _cuts(order, roots)
    whole = [_segment(tuple(dict.fromkeys(roots)), frozenset())]
    if not cuts:
        return whole
    position = {node: i for i, node in enumerate(order)}
    parts: list[Segment] = []
    edges = [*cuts, order[-1]]
    start = -1
    wanted = sorted(dict.fromkeys(roots), key=lambda n: position[n])
    boundary = frozenset(cuts)
    for edge in edges:
        end = position[edge]
        inside = [r for r in wanted if start < position[r] <= end]
        if edge in boundary and edge not in inside:
            inside.append(edge)
        if inside:
            parts.append(_segment(tuple(inside), boundary))
        start = end
    repeats = len({part.form for part in parts}) < len(parts)
    return parts if repeats or len(order) > LARGE else whole


def substitute(roots: Sequence[Node], replace: Mapping[Node, Node]) -> list[Node]:
    """The roots with some nodes replaced, rebuilt above them."""
    memo: dict[Node, Node] = dict(replace)
    stack = [(r, False) for r in reversed(roots)]
    while stack:
        node, ready = stack.pop()
        if node in memo:
            continue
        if ready:
            memo[node] = make(node.op, node.attrs, [memo[a] for a in node.args]) if node.args else node
        else:
            stack.append((node, True))
            stack.extend((a, False) for a in reversed(node.args) if a not in memo)
    return [memo[r] for r in roots]


def _segment(roots: tuple[Node, ...], boundary: frozenset[Node]) -> Segment:
    """The part of the program between the roots and the boundary, in its nameless form."""
    memo: dict[Node, Node] = {}
    leaves: dict[Node, Node] = {}

    def placeholder(node: Node) -> Node:
        if node.op == "Const":
            stand_in = make("Const", (f"%{len(leaves)}", node.size, node.dtype))
        else:
            stand_in = make("In", (f"%{len(leaves)}", node.size, node.dtype))
        leaves[stand_in] = node
        return stand_in

    stack = [(r, False) for r in reversed(roots)]
    own = set(roots)
    while stack:
        node, ready = stack.pop()
        if node in memo:
            continue
        if node.op in ("In", "Const") or (node in boundary and node not in own):
            memo[node] = placeholder(node)
        elif ready or not node.args:
            memo[node] = make(node.op, node.attrs, [memo[a] for a in node.args])
        else:
            stack.append((node, True))
            stack.extend((a, False) for a in reversed(node.args) if a not in memo)
    return Segment(roots, tuple(memo[r] for r in roots), leaves)


def _cuts(order: Sequence[Node], roots: Sequence[Node]) -> list[Node]:
    """The nodes at which to cut, in order."""
    readers: dict[Node, list[Node]] = {}
    dynamic: set[Node] = set()
    for node in order:
        if node.op in ("In", "Opaque") or any(a in dynamic for a in node.args):
            dynamic.add(node)
        for a in dict.fromkeys(node.args):
            readers.setdefault(a, []).append(node)
    found = [n for n in _separators(order, readers, dynamic) if _is_barrier(n, readers, dynamic)]
    return [n for n in found if _crosses_contraction(n, readers)]


def _separators(order: Sequence[Node], readers: Mapping[Node, list[Node]], dynamic: set[Node]) -> list[Node]:
    """Computed nodes past which nothing computed before them is read again."""
    position = {node: i for i, node in enumerate(order)}
    found = []
    furthest = -1
    for i, node in enumerate(order[:-1]):
        computed = node in dynamic and bool(node.args)
        if not computed:
            continue
        last = max((position[r] for r in readers.get(node, ())), default=i)
        if furthest <= i and last > i and node.op != "V":
            found.append(node)
        furthest = max(furthest, last)
    return found


def _is_barrier(node: Node, readers: Mapping[Node, list[Node]], dynamic: set[Node]) -> bool:
    """Whether no product below the node can meet a product above it: something not linear lies between."""
    return _nonlinear_below(node, dynamic) or not _product_above(node, readers, dynamic)


def _scaled(node: Node, dynamic: set[Node]) -> list[Node]:
    """The operands through which a node is linear; empty where it is not."""
    varying = [a for a in node.args if a in dynamic]
    if node.op == "V":
        return varying
    if node.op == "Bin" and (node.attrs[0] in _LINEAR_BINARY or (node.attrs[0] in ("mul", "div") and len(varying) == 1)):
        return [a for a in varying if node.attrs[0] != "div" or a is node.args[0]]
    return []


def _nonlinear_below(node: Node, dynamic: set[Node]) -> bool:
    """Whether the node is a function that is not linear, scaled and shifted by constants at most."""
    while True:
        through = _scaled(node, dynamic)
        if len(through) != 1:
            return node.op in ("Un", "Bin", "Where", "Opaque") and not through
        (node,) = through


def _product_above(node: Node, readers: Mapping[Node, list[Node]], dynamic: set[Node]) -> bool:
    """Whether a product reads the node through linear operators alone."""
    stack, seen = [node], {node}
    while stack:
        at = stack.pop()
        for reader in readers.get(at, ()):
            if reader.op == "MM":
                return True
            if reader not in seen and at in _scaled(reader, dynamic):
                seen.add(reader)
                stack.append(reader)
    return False


def _crosses_contraction(node: Node, readers: Mapping[Node, list[Node]]) -> bool:
    """Whether the node is read by a product, or on both sides of one: it is then written to memory in any case."""
    direct: list[Node] = [node]
    for at in direct:
        direct += [r for r in readers.get(at, ()) if r.op == "V" and r not in direct]
    first = [r for at in direct for r in readers.get(at, ()) if r.op != "V"]
    if any(r.op == "MM" for r in first):
        return True
    behind: set[Node] = set()
    stack = list(dict.fromkeys(first))
    seen = set(stack)
    while stack:
        at = stack.pop()
        for reader in readers.get(at, ()):
            if at.op == "MM" or at in behind:
                if reader not in behind:
                    behind.add(reader)
                    stack.append(reader)
            elif reader not in seen:
                seen.add(reader)
                stack.append(reader)
    return any(r in behind for r in first)
