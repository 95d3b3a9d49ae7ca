"""Where a program is cut: at nodes such as a layer's output.

Everything after such a node depends on it alone. A cut there costs little: no linear algebra could cross it, and layers
of some size leave its value in memory in any case. Norms stay with the products that read the normed rows, since one
kernel may compute both, and so do sums of a few terms (the windows of depthwise convolutions and pooling) with what
reads them. What is too large to search is cut further, where linear algebra could cross but would have to be done
twice.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise

from eqsat.program.core import Node, topological
from eqsat.program.node import FEW_TERMS, is_elementwise, is_folded, terms_of

CROWDED = 200
"""Core nodes of a segment from which on it is cut further: its e-graph would not come to rest within seconds."""

SIMPLE = 4
"""Operators on single elements that every part which needs their result computes by itself: a cast, a conjunction and a
choice make the masks of exported models."""

_LINEAR_BINARY = frozenset({"add", "sub"})


def latest_first_needed(roots: Sequence[Node]) -> list[Node]:
    """Nodes, operands first, each as late as its readers allow: what one layer alone needs stays in that layer."""
    order = topological(roots)
    height = dict.fromkeys(order, 0)
    for node in reversed(order):
        for a in node.args:
            height[a] = max(height[a], height[node] + 1)
    return sorted(order, key=lambda n: -height[n])


class Reads:
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


def cuts_of(reads: Reads, fuses: bool) -> list[Node]:
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


def _splits_early(node: Node, reads: Reads) -> bool:
    """Whether no product is computed up to a node, and something before it is also read after it: embedded rows and
    their norm. Each reader can compute such rows on the way, if they are in its segment."""
    end = reads.position[node]
    before = [n for n in reads.order[: end + 1] if n in reads.dynamic and n.op not in ("In", "V")]
    return all(n.op != "MM" for n in before) and any(reads.last.get(n, 0) > end for n in before if n in reads.early)


def _before_few_terms(cuts: Sequence[Node], separators: Sequence[Node], reads: Reads) -> list[Node]:
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


def _before_norms(cuts: Sequence[Node], separators: Sequence[Node], reads: Reads) -> list[Node]:
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


def _is_kept(node: Node, reads: Reads) -> bool:
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


def _separators(reads: Reads) -> list[Node]:
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


def shared(reads: Reads, cuts: Sequence[Node], roots: frozenset[Node], fuses: bool) -> list[Node]:
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


def _is_simple(node: Node, reads: Reads) -> bool:
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


def _nonlinear_below(reads: Reads) -> set[Node]:
    """The nodes that are functions that are not linear, scaled and shifted by constants at most."""
    found: set[Node] = set()
    for node in reads.order:
        through = _scaled(node, reads.dynamic)
        own = not through and (is_elementwise(node.op) or node.op == "Opaque")
        if through[0] in found if len(through) == 1 else own:
            found.add(node)
    return found


def _below_product(reads: Reads) -> set[Node]:
    """The nodes that a product reads, through linear operators at most."""
    found: set[Node] = set()
    for node in reversed(reads.order):
        for reader in reads.readers[node]:
            if reader.op == "MM" or (reader in found and node in _scaled(reader, reads.dynamic)):
                found.add(node)
                break
    return found


def _crosses_contraction(node: Node, reads: Reads) -> bool:
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
