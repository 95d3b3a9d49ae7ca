"""Two e-graphs as one, the second of which reads what the first computes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from eqsat.base.graphs import Merged
from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.program.term import attrs_key


@dataclass(frozen=True, slots=True)
class Glued:
    """An e-graph that is made of two.

    Attributes:
        snapshot: it has no roots yet.
        classes: for the classes of each of the two, in order, its own.
    """

    snapshot: Snapshot
    classes: tuple[Sequence[int], Sequence[int]]


def glued(first: Snapshot, second: Snapshot, alike: Iterable[tuple[int, int]]) -> Glued:
    """Both e-graphs, in which each of these pairs, a class of the first and an input of the second, is one class.

    Inputs and constants of the same name are one as well, and so is all that then has an e-node in common (congruence).
    """
    pairs = [(a, first.n_classes + b) for a, b in alike]
    bound = {b for _, b in pairs}
    behind = range(first.n_classes, first.n_classes + second.n_classes)
    moved = [_moved(node, behind) for node in second.nodes]
    nodes = [*first.nodes, *(node for node in moved if node.args or node.cls not in bound or node.op != "In")]
    merged = Merged[int]()
    for a, b in pairs:
        merged.merge(b, into=a)
    _congruent(nodes, merged)
    found = [merged.find(cls) for cls in range(first.n_classes + second.n_classes)]
    number = {cls: i for i, cls in enumerate(dict.fromkeys(found))}
    to = [number[cls] for cls in found]
    const = [False] * len(number)
    for cls, known in enumerate((*first.const, *second.const)):
        const[to[cls]] |= known
    needless = [*first.needless, *(_moved(node, behind) for node in second.needless)]
    snapshot = Snapshot(_unlike(nodes, to), len(number), const, [], needless=_unlike(needless, to))
    return Glued(snapshot, (to[: first.n_classes], to[first.n_classes :]))


def _unlike(nodes: Iterable[ENode], to: Sequence[int]) -> list[ENode]:
    """These e-nodes over other classes, each once."""
    found: dict[object, ENode] = {}
    for node in nodes:
        made = _moved(node, to)
        found.setdefault((made.op, attrs_key(made.attrs), made.args, made.cls), made)
    return list(found.values())


def _moved(node: ENode, to: Sequence[int]) -> ENode:
    return ENode(node.op, node.attrs, tuple(to[a] for a in node.args), to[node.cls], node.rule)


def _congruent(nodes: Sequence[ENode], merged: Merged[int]) -> None:
    """Merge the classes of e-nodes that are the same, until none are."""
    keys = [(node.op, attrs_key(node.attrs)) for node in nodes]
    changed = True
    while changed:
        changed = False
        known: dict[object, int] = {}
        for node, key in zip(nodes, keys, strict=True):
            own = merged.find(node.cls)
            cls = known.setdefault((key, tuple(merged.find(a) for a in node.args)), own)
            if merged.find(cls) != own:
                merged.merge(own, into=cls)
                changed = True
