"""Pieces of huge segments: a segment without natural cuts is cut by force, where the fewest bytes pass.

The time of search, extraction and lifting grows faster than a segment. Beyond a thousand nodes a forced cut loses less
than a search that runs out of time. Where a segment repeats itself, its pieces are equal problems.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate

from eqsat.base.numerics import itemsize
from eqsat.program.node import Node, is_leaf

HUGE = 1_000
"""Nodes beyond which a segment is cut by force. NASNet's has 1 900: whole it is 1 390 us after half a minute, in pieces
1 190 us after one, with every piece saturated."""

PIECE = 300
"""Nodes of a piece at most; at least half as many, where there are so many left. Such a piece is saturated within
about two seconds."""


def pieces(roots: Sequence[Node], boundary: Collection[Node]) -> list[tuple[Node, ...]]:
    """The roots of pieces that together compute `roots` from inputs, constants and the boundary.

    Each piece reads only roots of earlier ones. A view of a computed array goes with what reads it, and all results of
    an opaque call stay together.
    """
    order = _order(roots, boundary)
    if len(order) <= HUGE:
        return [tuple(roots)]
    place = {node: i for i, node in enumerate(order)}
    reads = _reads(order, place)
    piece_of = _numbered(order, _ends(order, place, reads))
    passed = {a for node, a in reads if piece_of[node] > piece_of[a]}
    found: dict[int, dict[Node, None]] = {}
    for root in [*roots, *(node for node in order if node in passed)]:
        found.setdefault(piece_of[root], {})[root] = None
    return [tuple(found[i]) for i in sorted(found)]


def _order(roots: Sequence[Node], boundary: Collection[Node]) -> list[Node]:
    """The computed nodes from the boundary to the roots, depth first, operands first: what lies beside each other is
    computed one after another, so that little passes a cut."""
    own = set(roots)
    seen: set[Node] = set()
    order: list[Node] = []
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif node not in seen and not is_leaf(node.op) and (node in own or node not in boundary):
            seen.add(node)
            stack.append((node, True))
            stack.extend((a, False) for a in reversed(node.args) if a not in seen)
    return order


def _read_through(node: Node) -> Node:
    """What is in memory for a node that is read: the array that it is a view of."""
    return node.args[0] if node.op == "V" and node.args[0].op != "V" else node


def _reads(order: Sequence[Node], place: Mapping[Node, int]) -> list[tuple[Node, Node]]:
    """(reader, what it reads), both computed here, views of arrays looked through."""
    found = ((node, _read_through(a)) for node in order for a in node.args)
    return [(node, a) for node, a in found if a in place]


def _ends(order: Sequence[Node], place: Mapping[Node, int], reads: Sequence[tuple[Node, Node]]) -> list[int]:
    """The place of the last node of each piece: where the fewest bytes are read past it; of equals the latest."""
    change = [0] * (len(order) + 1)
    last: dict[Node, int] = {}
    for node, a in reads:
        last[a] = max(last.get(a, 0), place[node])
    for a, end in last.items():
        size = a.size * itemsize(a.dtype)
        change[place[a]] += size
        change[end] -= size
    passing = list(accumulate(change))
    ends: list[int] = []
    start = 0
    while len(order) - start > PIECE:
        window = range(start + PIECE // 2, start + PIECE)
        ends.append(min(reversed(window), key=lambda i: passing[i]))
        start = ends[-1] + 1
    return [*ends, len(order) - 1]


def _numbered(order: Sequence[Node], ends: Sequence[int]) -> dict[Node, int]:
    """The piece of each node; all results of an opaque call are in that of the first."""
    found: dict[Node, int] = {}
    calls: dict[tuple[object, tuple[Node, ...]], int] = {}
    piece = 0
    for i, node in enumerate(order):
        if i > ends[piece]:
            piece += 1
        found[node] = calls.setdefault((node.attrs[0], node.args), piece) if node.op == "Opaque" else piece
    return found
