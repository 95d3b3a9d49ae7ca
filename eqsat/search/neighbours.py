"""Kernels across cuts: two neighbouring parts, each searched by itself, are covered once more as one.

A program is cut where little is lost, and its parts are searched apart. But one kernel may do the end of a part and the
beginning of the next: a product, the sum with what passes by it, and the norm that the next part begins with. So the
e-graphs of two neighbours are glued together, and the one program that their covers compute is covered by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from eqsat.egraph.glued import glued
from eqsat.egraph.snapshot import Snapshot
from eqsat.extract.cover import CoverResult, cover_alone, cover_of_parts
from eqsat.extract.plan.stitch import Solved
from eqsat.program.core import Node
from eqsat.program.node import is_leaf
from eqsat.program.segments import Segment, joined
from eqsat.search.form import Found, Sought, cover_written
from eqsat.search.runner import Runner


def read_by_others(parts: Sequence[Segment], at: int, roots) -> set[Node]:
    found = set(roots)
    for i, part in enumerate(parts):
        if i not in (at, at + 1):
            found.update(part.leaves.values())
    return found


def glue(whole: Segment, parts: tuple[Segment, Segment], snapshots: tuple[Snapshot, Snapshot]):
    names = {node: made for made, node in whole.leaves.items()}
    renamed = [
        x.with_leaves(
            {(made.op, made.attrs): (names[node].op, names[node].attrs) for made, node in part.leaves.items() if node in names}
        )
        for part, x in zip(parts, snapshots, strict=True)
    ]
    first, second = parts
    root_of = dict(zip(first.roots, snapshots[0].roots, strict=True))
    alike = []
    for made, node in second.leaves.items():
        if node in root_of and not is_leaf(node.op):
            alike.append((root_of[node], snapshots[1].find(made.op, made.attrs, ())))
    found = glued(*renamed, [(a, b) for a, b in alike if b is not None])
    classes = {node: found.classes[0][cls] for node, cls in root_of.items()}
    classes |= {n: found.classes[1][c] for n, c in zip(second.roots, snapshots[1].roots, strict=True)}
    found.snapshot.roots = [classes[root] for root in whole.roots]
    return found, renamed
