"""Pieces of huge parts, for which no cut is free.

Towers that are computed side by side, such as the two of a CLIP, are each cut as a program of its own. What is still
huge is cut by force, into pieces, where the fewest bytes pass: the time of a search grows faster than a part, and
beyond a thousand nodes a forced cut loses less than a search that runs out of time. Cells that repeat themselves become
equal pieces (`eqsat.parts.repeats`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate

from eqsat.base.graphs import operands_first
from eqsat.base.numerics import itemsize
from eqsat.parts.repeats import Repeat, repeats
from eqsat.program.core import Node
from eqsat.program.node import call_of, is_leaf

HUGE = 1_000
"""Nodes beyond which a part is cut by force. NASNet's has 1 900: whole it is 1 390 us after half a minute, in pieces
1 190 us after one, with every piece saturated."""

PIECE = 300
"""Nodes of a piece at most; at least half as many, where there are so many left. Such a piece is saturated within
about two seconds."""

TOWER = 200
"""Nodes of a tower at least, and of the rest beside it."""

FEW_ARRAYS = 8
"""Most arrays that stay apart in memory where they are only read joined; a cell of NASNet joins five."""

FEW_OPERATORS = 8
"""Most operators in a row that join and move elements, and that all readers of them compute on the way."""


def pieces(roots: Sequence[Node], boundary: Collection[Node]) -> list[tuple[Node, ...]]:
    """The roots of pieces that together compute `roots` from inputs, constants and the boundary.

    Each piece reads only roots of earlier ones. A view of a computed array goes with what reads it, and so does what
    joins a few arrays. All results of an opaque call stay together.
    """
    order = _depth_first(roots, boundary)
    if len(order) <= HUGE:
        return [tuple(roots)]
    behind = _in_memory(order, frozenset(roots))
    cells = _deepest_first(order, roots)
    if found := repeats(cells, _passing(cells, behind)):
        order = cells
    piece_of = _piece_of(order, _ends(_passing(order, behind), found))
    passed = {x for node in order for x in _reads(node, behind) if piece_of[node] > piece_of[x]}
    made: dict[int, dict[Node, None]] = {}
    for root in [*roots, *(node for node in order if node in passed)]:
        made.setdefault(piece_of.get(root, 0), {})[root] = None  # an input or constant goes with the first
    return [tuple(made[i]) for i in sorted(made)]


def towers(roots: Sequence[Node], boundary: Collection[Node]) -> list[Node]:
    """The tops of the towers that a huge part computes side by side. Other nodes read a tower only at its top.

    A top post-dominates its tower (Cooper, Harvey and Kennedy, "A simple, fast dominance algorithm", 2001). Towers have
    at least `TOWER` nodes, and leave as many. One alone is no tower: it is the part up to some node of a chain.
    """
    order = _depth_first(roots, boundary)
    if len(order) <= HUGE:
        return []
    place = {node: i for i, node in enumerate(order)}
    end = len(order)
    after, depth = _post_dominators(order, place, roots)
    size, least = [1] * (end + 1), [end] * (end + 1)
    for i, node in enumerate(order):  # all of a tower come before its top
        depths = [depth[after[place[a]]] for a in node.args if a in place]
        least[i] = min(least[i], *depths, end)
        size[after[i]] += size[i]
        least[after[i]] = min(least[after[i]], least[i])
    tops: list[Node] = []
    covered = [False] * (end + 1)
    for i in reversed(range(end)):
        covered[i] = covered[after[i]]
        fits = TOWER <= size[i] <= end - TOWER and order[i].op not in ("V", "Opaque")
        if fits and not covered[i] and least[i] >= depth[i]:  # nothing below it is read past it
            covered[i] = True
            tops.append(order[i])
    return tops[::-1] if len(tops) > 1 else []


def _post_dominators(
    order: Sequence[Node], place: Mapping[Node, int], roots: Sequence[Node]
) -> tuple[list[int], list[int]]:
    """For each place that of the first node through which all that reads its node passes, len(order) for none, and its
    depth in the tree of these. All results of an opaque call have the same readers."""
    end = len(order)
    readers: list[list[int]] = [[] for _ in order]
    calls: dict[object, list[int]] = {}
    for i, node in enumerate(order):
        readers[i] = calls.setdefault(call_of(node), readers[i])
    for root in roots:
        if root in place:
            readers[place[root]].append(end)
    for i, node in enumerate(order):
        for a in node.args:
            if a in place:
                readers[place[a]].append(i)
    after, depth = [end] * (end + 1), [0] * (end + 1)
    for i in reversed(range(end)):
        meet = readers[i][0]
        for other in readers[i][1:]:
            while meet != other:  # readers come later: the one with the smaller place is left first
                if meet < other:
                    meet = after[meet]
                else:
                    other = after[other]
        after[i], depth[i] = meet, depth[meet] + 1
    return after, depth


def _depth_first(roots: Sequence[Node], boundary: Collection[Node]) -> list[Node]:
    """The computed nodes from the boundary to the roots, depth first, operands first: what lies beside each other is
    computed one after another, so that little passes a cut."""
    return [node for node in operands_first(roots, set(boundary).difference(roots)) if not is_leaf(node.op)]


def _deepest_first(order: Sequence[Node], roots: Sequence[Node]) -> list[Node]:
    """The same nodes, those with the longest chain behind them before others: what joins a chain is computed where it
    joins, so that the cells of a chain come one after another."""
    depth: dict[Node, int] = {}
    for node in order:
        depth[node] = 1 + max((depth.get(a, 0) for a in node.args), default=0)

    def deepest(node: Node) -> list[Node]:
        return sorted((a for a in node.args if a in depth), key=lambda a: -depth[a])

    return operands_first([root for root in roots if root in depth], operands=deepest)


def _in_memory(order: Sequence[Node], roots: Collection[Node]) -> dict[Node, list[Node]]:
    """For each node what is in memory where it is read: the arrays that it is a view of or joins, a few of them, with a
    function applied to each element or not. Roots and all others are in memory themselves."""
    found: dict[Node, list[Node]] = {}
    length: dict[Node, int] = {}  # of the longest row of operators between a node and what is in memory
    for node in order:
        behind = [node]
        if node.op == "Cat" or (node.op == "V" and node.args[0].op != "V"):
            arrays = dict.fromkeys(x for a in node.args for x in found.get(a, [a]))
            behind = list(arrays) if len(arrays) <= FEW_ARRAYS else behind
        elif node.op == "Un" and found.get(node.args[0], behind) != [node.args[0]]:
            behind = found.get(node.args[0], behind)
        length[node] = 1 + max((length.get(a, 0) for a in node.args), default=0)
        if behind == [node] or node in roots or length[node] > FEW_OPERATORS:
            behind, length[node] = [node], 0
        found[node] = behind
    return found


def _reads(node: Node, behind: Mapping[Node, Sequence[Node]]) -> list[Node]:
    """The computed nodes in memory that a node reads."""
    return [x for a in node.args for x in behind.get(a, ()) if x in behind]


def _passing(order: Sequence[Node], behind: Mapping[Node, Sequence[Node]]) -> list[int]:
    """For each place the bytes that nodes after it read of those up to it."""
    place = {node: i for i, node in enumerate(order)}
    last: dict[Node, int] = {}
    for node in order:
        for x in _reads(node, behind):
            last[x] = place[node]
    change = [0] * (len(order) + 1)
    for x, end in last.items():
        size = x.size * itemsize(x.dtype)
        change[place[x]] += size
        change[end] -= size
    return list(accumulate(change))


def _ends(passing: Sequence[int], repeated: Sequence[Repeat]) -> list[int]:
    """The place of the last node of each piece. All copies of a repeated part are cut alike."""
    every = len(passing) - 1
    ends: list[int] = []
    start = 0
    for repeat in repeated:
        ends += _narrowest(passing, start, repeat.start)
        own = _narrowest(passing, repeat.start, repeat.start + repeat.period)
        ends += [end + k * repeat.period for k in range(repeat.copies) for end in own]
        start = repeat.stop
    return ends + _narrowest(passing, start, every)


def _narrowest(passing: Sequence[int], start: int, stop: int) -> list[int]:
    """The last place of each piece between two places: where the fewest bytes pass; of equals the latest."""
    ends: list[int] = []
    while stop - start > PIECE:
        window = range(start + PIECE // 2, start + PIECE)
        ends.append(min(reversed(window), key=lambda i: passing[i]))
        start = ends[-1] + 1
    return [*ends, stop - 1] if start < stop else ends


def _piece_of(order: Sequence[Node], ends: Sequence[int]) -> dict[Node, int]:
    """The piece of each node; all results of an opaque call are in that of the first."""
    found: dict[Node, int] = {}
    calls: dict[object, int] = {}
    piece = 0
    for i, node in enumerate(order):
        if i > ends[piece]:
            piece += 1
        found[node] = calls.setdefault(call_of(node), piece)
    return found
