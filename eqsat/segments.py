"""Segments: large programs repeat themselves, and identical layers are optimised once.

A program is cut at nodes that everything after them depends on alone (a layer's output), where a cut costs nothing:
no linear algebra could cross it, and its value is kept in memory in any case. Segments that are equal up to the names
of their inputs and constants are then one problem, solved once.
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
    order = _latest_first_needed(roots)
    whole = [_segment(tuple(dict.fromkeys(roots)), frozenset())]
    reads = _Reads(order)
    cuts = _cuts(reads)
    if not cuts:
        return whole
    shared = _shared(reads, cuts[0])
    boundary = frozenset(cuts) | frozenset(shared)
    wanted = sorted(dict.fromkeys(r for r in roots if r not in shared), key=lambda n: reads.position[n])
    parts = [_segment(tuple(shared), boundary)] if shared else []
    start = -1
    for edge in [*cuts, order[-1]]:
        end = reads.position[edge]
        inside = [r for r in wanted if start < reads.position[r] <= end]
        if edge in boundary and edge not in inside:
            inside.append(edge)
        if inside:
            parts.append(_segment(tuple(inside), boundary))
        start = end
    repeats = len({part.form for part in parts}) < len(parts)
    return parts if repeats or len(order) > LARGE else whole


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


def _latest_first_needed(roots: Sequence[Node]) -> list[Node]:
    """Nodes, operands first, each as late as its readers allow: what one layer alone needs stays in that layer."""
    order = topological(roots)
    height = dict.fromkeys(order, 0)
    for node in reversed(order):
        for a in node.args:
            height[a] = max(height[a], height[node] + 1)
    return sorted(order, key=lambda n: -height[n])


class _Reads:
    """Who reads what in a program.

    Attributes:
        order: nodes, operands first; `position` of each in it.
        readers: the nodes that read each.
        dynamic: nodes that depend on inputs.
        early: dynamic nodes with no contraction below them that no product reads (masks): every layer may read them.
    """

    def __init__(self, order: Sequence[Node]) -> None:
        self.order = order
        self.position = {node: i for i, node in enumerate(order)}
        self.readers: dict[Node, list[Node]] = {node: [] for node in order}
        self.dynamic: set[Node] = set()
        self.early: set[Node] = set()
        for node in order:
            if node.op in ("In", "Opaque") or any(a in self.dynamic for a in node.args):
                self.dynamic.add(node)
                varying = [a for a in node.args if a in self.dynamic]
                if node.op not in ("MM", "Red", "Opaque") and all(a in self.early for a in varying):
                    self.early.add(node)
            for a in dict.fromkeys(node.args):
                self.readers[a].append(node)
        fed = {n for n in self.early if any(r.op == "MM" for r in self.through_views(n))}
        self.early -= fed

    def through_views(self, node: Node) -> list[Node]:
        """What reads a node, views of it looked through."""
        found: list[Node] = []
        stack = [node]
        while stack:
            for reader in self.readers[stack.pop()]:
                if reader.op == "V":
                    stack.append(reader)
                elif reader not in found:
                    found.append(reader)
        return found


def _cuts(reads: _Reads) -> list[Node]:
    """The nodes at which to cut, in order."""
    return [n for n in _separators(reads) if _is_barrier(n, reads) and _crosses_contraction(n, reads)]


def _separators(reads: _Reads) -> list[Node]:
    """Computed nodes past which nothing computed before them is read again, early nodes aside."""
    found = []
    furthest = -1
    for i, node in enumerate(reads.order):
        if node not in reads.dynamic or node in reads.early:
            continue
        last = max((reads.position[r] for r in reads.readers[node]), default=i)
        if furthest <= i < last and node.op not in ("V", "In"):
            found.append(node)
        if node.op != "In":
            furthest = max(furthest, last)
        for a in node.args:
            if a.op == "In" and a not in reads.early:  # an input counts from where it is first read
                furthest = max(furthest, *(reads.position[r] for r in reads.readers[a]))
    return found


def _shared(reads: _Reads, first_cut: Node) -> list[Node]:
    """Early nodes that compute something and are read past the first cut: a segment of their own."""
    edge = reads.position[first_cut]
    return [
        n
        for n in reads.order
        if n in reads.early
        and n.op not in ("In", "V")
        and any(r not in reads.early and reads.position[r] > edge for r in reads.through_views(n))
    ]


def _is_barrier(node: Node, reads: _Reads) -> bool:
    """Whether no product below the node can meet a product above it: something not linear lies between."""
    return _nonlinear_below(node, reads.dynamic) or not _product_above(node, reads)


def _scaled(node: Node, dynamic: set[Node]) -> list[Node]:
    """The operands through which a node is linear; empty where it is not."""
    varying = [a for a in node.args if a in dynamic]
    if node.op == "V":
        return varying
    if node.op == "Bin" and (
        node.attrs[0] in _LINEAR_BINARY or (node.attrs[0] in ("mul", "div") and len(varying) == 1)
    ):
        return [a for a in varying if node.attrs[0] != "div" or a is node.args[0]]
    return []


def _nonlinear_below(node: Node, dynamic: set[Node]) -> bool:
    """Whether the node is a function that is not linear, scaled and shifted by constants at most."""
    while True:
        through = _scaled(node, dynamic)
        if len(through) != 1:
            return node.op in ("Un", "Bin", "Where", "Opaque") and not through
        (node,) = through


def _product_above(node: Node, reads: _Reads) -> bool:
    """Whether a product reads the node through linear operators alone."""
    stack, seen = [node], {node}
    while stack:
        at = stack.pop()
        for reader in reads.readers[at]:
            if reader.op == "MM":
                return True
            if reader not in seen and at in _scaled(reader, reads.dynamic):
                seen.add(reader)
                stack.append(reader)
    return False


def _crosses_contraction(node: Node, reads: _Reads) -> bool:
    """Whether the node is read by a product, or on both sides of one: it is then written to memory in any case."""
    first = reads.through_views(node)
    if any(r.op == "MM" for r in first):
        return True
    behind: set[Node] = set()
    seen = set(first)
    stack = list(first)
    while stack:
        at = stack.pop()
        for reader in reads.readers[at]:
            if (at.op == "MM" or at in behind) and reader not in behind:
                behind.add(reader)
                stack.append(reader)
            elif reader not in seen:
                seen.add(reader)
                stack.append(reader)
    return any(r in behind for r in first)
