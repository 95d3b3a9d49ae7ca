"""Segments: large programs repeat themselves, and identical layers are optimised once.

A program is cut at nodes such as a layer's output (`eqsat.parts.cuts`). Segments that are equal up to the names of
their inputs and constants are one problem, solved once. Neighbours that do not repeat stay together while they are
small. A huge segment without such cuts is cut by force (`eqsat.parts.pieces`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from eqsat.base.graphs import operands_first
from eqsat.parts import pieces
from eqsat.parts.cuts import Reads, cuts_of, latest_first_needed, shared
from eqsat.program.core import Node, make, topological
from eqsat.program.node import is_leaf

LARGE = 400
"""Core nodes from which on a program is cut even if no segment repeats: separate parts are far quicker to solve."""

JOINED = 200
"""Nodes of neighbours that are one part, at most, where neither repeats. EfficientNet-B0 costs 217.8 us in 18 parts, in
9 s, and 202.3 in 4, in 10 s; as written 220.2 and 205.7."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a program.

    Attributes:
        roots: its results, as nodes of the program.
        form: the same roots over placeholders `%0`, `%1`, ... for inputs, constants and values of other parts: equal
            forms are equal problems.
        leaves: each placeholder, and the node of the program that it stands for.
    """

    roots: tuple[Node, ...]
    form: tuple[Node, ...]
    leaves: Mapping[Node, Node]

    def nodes(self) -> dict[Node, Node]:
        """The nodes of the program in this part, its leaves among them, to those of the form."""
        found: dict[Node, Node] = {}
        stack = list(zip(self.roots, self.form, strict=True))
        while stack:
            node, made = stack.pop()
            if node not in found:
                found[node] = made
                if made not in self.leaves:
                    stack.extend(zip(node.args, made.args, strict=True))
        return found


def segments(roots: Sequence[Node], fuses: bool = True, in_towers: bool = True) -> list[Segment]:
    """Cut a program into segments, in an order in which each reads only earlier ones.

    With `fuses`, kernels may compute the sums of a few terms and the simple masks that they read, and small neighbours
    that do not repeat are one segment, across which they reach. With `in_towers`, huge segments are cut into towers;
    those of a tower are not, so that the time does not grow with their nesting.
    """
    whole = tuple(dict.fromkeys(roots))
    order = latest_first_needed(roots)
    reads = Reads(order)
    cuts = cuts_of(reads, fuses)
    if not cuts:
        return _in_pieces([whole], frozenset(), fuses, in_towers)
    parts, boundary = _between(cuts, whole, reads, fuses)
    found = [_segment(part, boundary) for part in parts]
    if len(order) <= LARGE:
        repeats = len({part.form for part in found}) < len(found)
        return found if repeats else [_segment(whole, frozenset())]
    worthwhile = _without_idle(cuts, [part.form for part in found[-1 - len(cuts) :]]) if fuses else cuts
    if len(worthwhile) < len(cuts):
        parts, boundary = _between(worthwhile, whole, reads, fuses)
    return _in_pieces(parts, boundary, fuses, in_towers)


def _between(
    cuts: Sequence[Node], roots: Sequence[Node], reads: Reads, fuses: bool
) -> tuple[list[tuple[Node, ...]], frozenset[Node]]:
    """The roots of each part, one more than there are cuts, behind those of a part that several need, if there is one;
    and the nodes that parts read of others."""
    first = shared(reads, cuts, frozenset(roots), fuses)
    early = frozenset(first)
    boundary = early.union(cuts)
    wanted = sorted((r for r in roots if r not in early), key=lambda n: reads.position[n])
    parts = [tuple(first)] if first else []
    places = [reads.position[r] for r in wanted]
    start = -1
    for edge in [*cuts, reads.order[-1]]:
        end = reads.position[edge]
        inside = wanted[bisect_right(places, start) : bisect_right(places, end)]
        if edge in boundary and edge not in inside:
            inside.append(edge)
        parts.append(tuple(inside))
        start = end
    return parts, boundary


def _without_idle(cuts: Sequence[Node], forms: Sequence[tuple[Node, ...]]) -> list[Node]:
    """The cuts, without those between parts that do not repeat and are small together: these save little search, and no
    kernel crosses them. `forms` are those of the parts between them. A large part needs the time that such parts would
    take for longer."""
    times = Counter(forms)
    sizes = [len(topological(form)) for form in forms]
    if max(sizes) > JOINED:
        return list(cuts)
    kept: list[Node] = []
    held = sizes[0]
    for cut, (form, following), more in zip(cuts, pairwise(forms), sizes[1:], strict=True):
        if times[form] == times[following] == 1 and held + more <= JOINED:
            held += more
        else:
            kept.append(cut)
            held = more
    return kept


def joined(first: Segment, second: Segment, read: Collection[Node]) -> Segment:
    """Two segments as one, the second of which may read the first. `read` are the nodes that anything else reads."""
    roots = [*(root for root in first.roots if root in read), *second.roots]
    outside = {leaf for part in (first, second) for leaf in part.leaves.values() if not is_leaf(leaf.op)}
    return _segment(tuple(dict.fromkeys(roots)), frozenset(outside.difference(first.roots)))


def uncut(roots: Sequence[Node]) -> Segment | None:
    """The whole program as one segment; None if it is huge."""
    return _segment(tuple(dict.fromkeys(roots)), frozenset()) if len(topological(roots)) <= pieces.HUGE else None


def _in_pieces(
    parts: Sequence[tuple[Node, ...]], boundary: frozenset[Node], fuses: bool, in_towers: bool
) -> list[Segment]:
    """The segments with these roots, huge ones in towers and pieces."""
    found: list[Segment] = []
    for part in parts:
        cut: list[tuple[Node, ...]] = []
        tops = pieces.towers(part, boundary) if in_towers else []
        for top in tops:
            tower = _segment((top,), boundary)
            own = {made: node for node, made in tower.nodes().items()}
            cut += [tuple(own[root] for root in inner.roots) for inner in segments(tower.form, fuses, False)]
        rest = tuple(root for root in part if root not in tops)
        cut += pieces.pieces(rest, boundary.union(tops)) if rest else []
        if len(cut) > 1:  # earlier parts compute for themselves what these write, later ones read it
            boundary = boundary.union(root for piece in cut for root in piece if not is_leaf(root.op))
        found += [_segment(piece, boundary) for piece in cut]
    return found


def _segment(roots: tuple[Node, ...], boundary: frozenset[Node]) -> Segment:
    """The part of the program between the roots and the boundary, in its nameless form."""
    outside = boundary.difference(roots)
    made: dict[Node, Node] = {}
    leaves: dict[Node, Node] = {}
    for node in operands_first(roots, operands=lambda node: () if node in outside else node.args):
        if node.op in ("In", "Const") or node in outside:
            op = "Const" if node.op == "Const" else "In"
            made[node] = make(op, (f"%{len(leaves)}", node.size, node.dtype))
            leaves[made[node]] = node
        else:
            made[node] = make(node.op, node.attrs, [made[a] for a in node.args])
    return Segment(roots, tuple(made[r] for r in roots), leaves)
