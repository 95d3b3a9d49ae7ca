"""Segments: large programs repeat themselves, and identical layers are optimised once.

A program is cut at nodes such as a layer's output: everything after them depends on them alone. Such a cut costs
little: no linear algebra could cross it, and layers of some size leave its value in memory in any case. Norms stay with
the products that read the normed rows, since one kernel may compute both, and so do sums of a few terms (the windows of
depthwise convolutions and pooling) with what reads them. Segments that are equal up to the names of their
inputs and constants are one problem, solved once. Neighbours that do not repeat stay together while they are small. A
segment too large to search is cut further, where linear algebra could cross but would have to be done twice.

In a huge segment without such cuts, towers that are computed side by side, such as the two of a CLIP, are each cut as a
program of its own. What is still huge is cut by force, into pieces, where the fewest bytes pass: the time of a search
grows faster than a segment, and beyond a thousand nodes a forced cut loses less than a search that runs out of time.
Where a segment repeats itself, its pieces are equal problems.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from eqsat.base.graphs import operands_first
from eqsat.base.numerics import itemsize
from eqsat.program.core import Node, make, topological
from eqsat.program.node import FEW_TERMS, is_elementwise, is_folded, is_leaf, terms_of

LARGE = 400
"""Core nodes from which on a program is cut even if no segment repeats: separate parts are far quicker to solve."""

CROWDED = 200
"""Core nodes of a segment from which on it is cut further: its e-graph would not come to rest within seconds."""

JOINED = 200
"""Nodes of neighbours that are one part, at most, where neither repeats. EfficientNet-B0 costs 217.8 us in 18 parts, in
9 s, and 202.3 in 4, in 10 s; as written 220.2 and 205.7."""

HUGE = 1_000
"""Nodes beyond which a segment is cut by force. NASNet's has 1 900: whole it is 1 390 us after half a minute, in pieces
1 190 us after one, with every piece saturated."""

PIECE = 300
"""Nodes of a piece at most; at least half as many, where there are so many left. Such a piece is saturated within
about two seconds."""

REPEATED = 100

FEW_ARRAYS = 8

SIMPLE = 4
"""Operators on single elements that every part which needs their result computes by itself: a cast, a conjunction and a
choice make the masks of exported models."""

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
    order = _latest_first_needed(roots)
    reads = _Reads(order)
    cuts = _cuts(reads, fuses)
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
    cuts: Sequence[Node], roots: Sequence[Node], reads: _Reads, fuses: bool
) -> tuple[list[tuple[Node, ...]], frozenset[Node]]:
    """The roots of each part, one more than there are cuts, behind those of a part that several need, if there is one;
    and the nodes that parts read of others."""
    shared = _shared(reads, cuts, frozenset(roots), fuses)
    early = frozenset(shared)
    boundary = early.union(cuts)
    wanted = sorted((r for r in roots if r not in early), key=lambda n: reads.position[n])
    parts = [tuple(shared)] if shared else []
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
    whole = _segment(tuple(dict.fromkeys(roots)), frozenset())
    return whole if len(topological(whole.form)) <= HUGE else None


def _in_pieces(
    parts: Sequence[tuple[Node, ...]], boundary: frozenset[Node], fuses: bool, in_towers: bool
) -> list[Segment]:
    """The segments with these roots, huge ones in towers and pieces."""
    cut: list[tuple[Node, ...]] = []
    for part in parts:
        tops = towers(part, boundary) if in_towers else []
        for top in tops:
            tower = _segment((top,), boundary)
            own = {made: node for node, made in tower.nodes().items()}
            cut += [tuple(own[root] for root in inner.roots) for inner in segments(tower.form, fuses, False)]
        rest = tuple(root for root in part if root not in tops)
        cut += pieces(rest, boundary.union(tops)) if rest else []
    edges = boundary if len(cut) == len(parts) else boundary.union(*cut)
    return [_segment(piece, edges) for piece in cut]


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
        readers: the nodes that read each; `last` is the position of the last of them.
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
            if not is_folded(node.op) or any(a in self.dynamic for a in node.args):
                self.dynamic.add(node)
                varying = [a for a in node.args if a in self.dynamic]
                if node.op not in ("MM", "Red", "Opaque") and all(a in self.early for a in varying):
                    self.early.add(node)
            for a in dict.fromkeys(node.args):
                self.readers[a].append(node)
        self.last = {node: max(self.position[r] for r in found) for node, found in self.readers.items() if found}
        fed = {n for n in self.early if any(r.op == "MM" for r in self.through_views(n))}
        self.early -= fed

    def through_views(self, node: Node) -> list[Node]:
        """What reads a node, views of it looked through."""
        found: dict[Node, None] = {}
        stack = [node]
        while stack:
            for reader in self.readers[stack.pop()]:
                if reader.op == "V":
                    stack.append(reader)
                else:
                    found[reader] = None
        return list(found)


def _cuts(reads: _Reads, fuses: bool) -> list[Node]:
    """The nodes at which to cut, in order."""
    nonlinear, below_product = _nonlinear_below(reads), _below_product(reads)
    every = _separators(reads)
    separators = [n for n in every if _crosses_contraction(n, reads)]
    # No product below such a node can meet a product above it: something not linear lies between.
    barriers = {n for n in separators if n in nonlinear or n not in below_product}
    edges = [-1, *sorted(reads.position[n] for n in barriers), len(reads.order)]
    crowded = {i for start, stop in pairwise(edges) if stop - start > CROWDED for i in range(start, stop)}
    cuts = [n for n in separators if n in barriers or (reads.position[n] in crowded and _is_kept(n, reads))]
    kept = [n for n in cuts if not _splits_early(n, reads)]
    return _before_norms(_before_few_terms(kept, every, reads) if fuses else kept, every, reads)


def _splits_early(node: Node, reads: _Reads) -> bool:
    """Whether no product is computed up to a node, and something before it is also read after it: embedded rows and
    their norm. Each reader can compute such rows on the way, if they are in its segment."""
    end = reads.position[node]
    before = [n for n in reads.order[: end + 1] if n in reads.dynamic and n.op not in ("In", "V")]
    return all(n.op != "MM" for n in before) and any(reads.last.get(n, 0) > end for n in before if n in reads.early)


def _before_few_terms(cuts: Sequence[Node], separators: Sequence[Node], reads: _Reads) -> list[Node]:
    """The cuts, but before a sum of a few terms instead of behind it: the kernels that read the sum may compute it
    themselves."""
    sums = [i for i, node in enumerate(reads.order) if node.op in ("MM", "Red") and node in reads.dynamic]
    places = [reads.position[n] for n in separators]

    def moved(cut: Node) -> Node:
        last = bisect_right(sums, reads.position[cut]) - 1
        if last < 0 or not 0 < terms_of(reads.order[sums[last]].op, reads.order[sums[last]].attrs) <= FEW_TERMS:
            return cut
        before = sums[last - 1] if last else 0
        found = separators[bisect_left(places, before) : bisect_left(places, sums[last])]
        return found[-1] if found else cut

    return list(dict.fromkeys(map(moved, cuts)))


def _before_norms(cuts: Sequence[Node], separators: Sequence[Node], reads: _Reads) -> list[Node]:
    """The cuts, those behind a norm moved to what the norm is of: the product that reads the normed rows may make them
    on the way, and what they are of is written in any case. A last norm is cut off as well, so that its layer is like
    the others."""
    products = [i for i, node in enumerate(reads.order) if node.op == "MM"]
    totals = [i for i, node in enumerate(reads.order) if node.op == "Red" and node in reads.dynamic]
    places = [reads.position[n] for n in separators]

    def before_norm(end: int) -> Node | None:
        product = bisect_right(products, end) - 1
        total = bisect_right(totals, products[product]) if product >= 0 else len(totals)
        if total == len(totals) or totals[total] > end:
            return None
        found = separators[bisect_left(places, products[product]) : bisect_left(places, totals[total])]
        return found[-1] if found else None

    moved = [before_norm(reads.position[cut]) or cut for cut in cuts]
    last = before_norm(len(reads.order) - 1)
    return list(dict.fromkeys(moved if last is None or not cuts else [*moved, last]))


def _is_kept(node: Node, reads: _Reads) -> bool:
    """Whether no product should move across a node: several operators read it, so that the product would be done once
    for each of them, and the node is written all the same. A node that is itself a product may be multiplied into the
    next one's weights, from an operand no larger than its result: it is not kept."""
    if node.op == "Cat" or len(reads.through_views(node)) < 2:
        return False
    while len(through := _scaled(node, reads.dynamic)) == 1:
        (node,) = through
    if node.op != "MM":
        return True
    left, right = (a in reads.dynamic for a in node.args)
    _, m, k, n = node.attrs
    return (left and right) or k > (n if left else m)


def _separators(reads: _Reads) -> list[Node]:
    """Computed nodes past which nothing computed before them is read again, early nodes aside."""
    found = []
    furthest = -1
    for i, node in enumerate(reads.order):
        if node not in reads.dynamic or node in reads.early:
            continue
        last = reads.last.get(node, i)
        if furthest <= i < last and node.op not in ("V", "In"):
            found.append(node)
        if node.op != "In":
            furthest = max(furthest, last)
        for a in node.args:
            if a.op == "In" and a not in reads.early:  # an input counts from where it is first read
                furthest = max(furthest, reads.last[a])
    return found


def _shared(reads: _Reads, cuts: Sequence[Node], roots: frozenset[Node], fuses: bool) -> list[Node]:
    """Early nodes that compute something for several parts: a segment of their own. Others belong to the part that
    reads them. If it `fuses`, those of a few simple operators belong to each part: what reads a mask computes it for
    less than the launch that would write it."""
    edges = [reads.position[cut] for cut in cuts]
    parts_of: dict[Node, set[int]] = {}
    found = []

    def part(n: Node) -> int:
        return bisect_left(edges, reads.position[n])

    for n in reversed(reads.order):
        if n in reads.early and n.op not in ("In", "V"):
            parts = {part(n)} if n in roots else set[int]()
            for r in reads.through_views(n):
                parts |= parts_of.get(r) or {part(r)}
            if len(parts) > 1 and (n in roots or not (fuses and _is_simple(n, reads))):
                found.append(n)
                parts = {-1}
            parts_of[n] = parts
    return found[::-1]


def _is_simple(node: Node, reads: _Reads) -> bool:
    """Whether a few operators, each on single elements, compute a node from inputs."""
    below = [n for n in topological([node]) if n in reads.dynamic and n.op not in ("In", "V")]
    return len(below) <= SIMPLE and all(is_elementwise(n.op) for n in below)


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


def _nonlinear_below(reads: _Reads) -> set[Node]:
    """The nodes that are functions that are not linear, scaled and shifted by constants at most."""
    found: set[Node] = set()
    for node in reads.order:
        through = _scaled(node, reads.dynamic)
        own = not through and (is_elementwise(node.op) or node.op == "Opaque")
        if through[0] in found if len(through) == 1 else own:
            found.add(node)
    return found


def _below_product(reads: _Reads) -> set[Node]:
    """The nodes that a product reads, through linear operators at most."""
    found: set[Node] = set()
    for node in reversed(reads.order):
        for reader in reads.readers[node]:
            if reader.op == "MM" or (reader in found and node in _scaled(reader, reads.dynamic)):
                found.add(node)
                break
    return found


def _crosses_contraction(node: Node, reads: _Reads) -> bool:
    """Whether the node is read by a product, or on both sides of one: it is then written to memory in any case."""
    first = reads.through_views(node)
    if any(r.op == "MM" for r in first):
        return True
    last = max((reads.position[r] for r in first), default=0)
    behind: set[Node] = set()
    seen = set(first)
    stack = list(first)
    while stack:
        at = stack.pop()
        for reader in reads.readers[at]:
            if reads.position[reader] > last:
                continue
            if (at.op == "MM" or at in behind) and reader not in behind:
                behind.add(reader)
                stack.append(reader)
            elif reader not in seen:
                seen.add(reader)
                stack.append(reader)
    return any(r in behind for r in first)


def pieces(roots: Sequence[Node], boundary: Collection[Node]) -> list[tuple[Node, ...]]:
    """The roots of pieces that together compute `roots` from inputs, constants and the boundary.

    Each piece reads only roots of earlier ones. A view of a computed array goes with what reads it, and all results of
    an opaque call stay together.
    """
    order = _deepest_first(roots, boundary)
    if len(order) <= HUGE:
        return [tuple(roots)]
    place = {node: i for i, node in enumerate(order)}
    reads = _read_here(order, place)
    piece_of = _piece_of(order, _ends(order, place, reads))
    passed = {a for node, a in reads if piece_of[node] > piece_of[a]}
    found: dict[int, dict[Node, None]] = {}
    for root in [*roots, *(node for node in order if node in passed)]:
        found.setdefault(piece_of.get(root, 0), {})[root] = None  # an input or constant goes with the first
    return [tuple(found[i]) for i in sorted(found)]


def towers(roots: Sequence[Node], boundary: Collection[Node]) -> list[Node]:
    """The tops of the towers that a huge part computes side by side. Other nodes read a tower only at its top.

    A top post-dominates its tower (Cooper, Harvey and Kennedy, "A simple, fast dominance algorithm", 2001). Towers have
    at least `CROWDED` nodes, and leave as many. One alone is no tower: it is the part up to some node of a chain.
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
        fits = CROWDED <= size[i] <= end - CROWDED and order[i].op not in ("V", "Opaque")
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
    calls: dict[tuple[object, tuple[Node, ...]], list[int]] = {}
    for i, node in enumerate(order):
        if node.op == "Opaque":
            readers[i] = calls.setdefault((node.attrs[0], node.args), readers[i])
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


def _in_memory(order: Sequence[Node]) -> dict[Node, list[Node]]:
    """For each node what is in memory where it is read: the arrays that it is a view of or joins, a few of them, with a
    function applied to each element or not. Others are in memory themselves."""
    found: dict[Node, list[Node]] = {}
    for node in order:
        behind = [node]
        if node.op == "Cat" or (node.op == "V" and node.args[0].op != "V"):
            joined = dict.fromkeys(x for a in node.args for x in found.get(a, [a]))
            behind = list(joined) if len(joined) <= FEW_ARRAYS else behind
        elif node.op == "Un" and found.get(node.args[0], behind) != [node.args[0]]:
            behind = found.get(node.args[0], behind)
        found[node] = behind
    return found


def _read_here(order: Sequence[Node], place: Mapping[Node, int]) -> list[tuple[Node, Node]]:
    """(reader, what it reads), both computed here, where the latter is in memory."""
    behind = _in_memory(order)
    return [(node, x) for node in order for a in node.args for x in behind.get(a, ()) if x in place]


def _deepest_first(roots: Sequence[Node], boundary: Collection[Node]) -> list[Node]:
    """The computed nodes from the boundary to the roots, operands first, those behind the longest chain before others:
    what joins a chain late is computed late, so that the cells of a chain come one after another."""
    depth: dict[Node, int] = {}
    for node in operands_first(roots, set(boundary).difference(roots)):
        depth[node] = 1 + max((depth.get(a, 0) for a in node.args), default=0)

    def deepest(node: Node) -> list[Node]:
        return sorted(node.args, key=lambda a: -depth.get(a, 0))

    return [n for n in operands_first(roots, set(boundary).difference(roots), deepest) if not is_leaf(n.op)]


def _ends(order: Sequence[Node], place: Mapping[Node, int], reads: Sequence[tuple[Node, Node]]) -> list[int]:
    """The place of the last node of each piece: where the fewest bytes are read past it; of equals the latest. Parts
    that repeat themselves are cut alike."""
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
    for run in [*_repeats(order, passing), None]:
        start = ends[-1] + 1 if ends else 0
        if run is None:
            return ends + (_windows(passing, start, len(order)) if start < len(order) else [])
        first, period, copies = run
        if start < first:
            ends += _windows(passing, start, first)
        own = _windows(passing, first, first + period)
        ends += [end + k * period for k in range(copies) for end in own]
    return ends


def _windows(passing: Sequence[int], start: int, stop: int) -> list[int]:
    ends: list[int] = []
    while stop - start > PIECE:
        window = range(start + PIECE // 2, start + PIECE)
        ends.append(min(reversed(window), key=lambda i: passing[i]))
        start = ends[-1] + 1
    return [*ends, stop - 1]


def _repeats(order: Sequence[Node], passing: Sequence[int]) -> list[tuple[int, int, int]]:
    """First place, period and number of the copies of each part that repeats itself at once, in order."""
    known: dict[object, int] = {}
    looks = np.array(
        [
            known.setdefault((n.op, n.attrs, n.size, n.dtype, *((a.op, a.size, a.dtype) for a in n.args)), len(known))
            for n in order
        ]
    )
    found: list[tuple[int, int, int, int]] = []
    for period in range(REPEATED, min(HUGE, len(order) // 2) + 1):
        same = np.concatenate(([False], looks[:-period] == looks[period:], [False]))
        edges = np.flatnonzero(same[1:] != same[:-1])
        for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            times, slack = divmod(stop - start, period)
            if times:
                found.append((-times * period, period, start, slack))
    taken: list[tuple[int, int, int]] = []
    for saved, period, start, slack in sorted(found):
        copies = 1 - saved // period
        def crossed(at: int) -> int:
            return sum(passing[at + k * period - 1] for k in range(copies + 1))
        first = min(reversed(range(start, start + slack + 1)), key=crossed)
        if all(first + copies * period <= a or first >= a + p * c for a, p, c in taken):
            taken.append((first, period, copies))
    return sorted(taken)


def _piece_of(order: Sequence[Node], ends: Sequence[int]) -> dict[Node, int]:
    """The piece of each node; all results of an opaque call are in that of the first."""
    found: dict[Node, int] = {}
    calls: dict[tuple[object, tuple[Node, ...]], int] = {}
    piece = 0
    for i, node in enumerate(order):
        if i > ends[piece]:
            piece += 1
        found[node] = calls.setdefault((node.attrs[0], node.args), piece) if node.op == "Opaque" else piece
    return found
