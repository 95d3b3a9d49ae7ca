"""Views that a file says as gathers and masks: what constants steer in an e-graph, beside the views of it.

ONNX has no view with a fill. A writer puts a gather by a constant index there, and a choice by a constant mask. No rule
knows what such constants hold. So each value that they steer is compared with the views that the e-graph has of the
same value, place by place (`eqsat.verify.moves`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.program.core import Node, make


@dataclass(frozen=True, slots=True)
class Steered:
    """A value that constants steer, a view that may move the same elements, and the classes of both."""

    value: Node
    view: Node
    classes: tuple[int, int]


def steered(found: Snapshot) -> Iterator[Steered]:
    """What may be a view: the same size and type, and of a value that both read."""
    views: dict[int, list[ENode]] = {}
    for node in found.nodes:
        if node.op == "V" and not found.const[node.cls]:
            views.setdefault(node.args[0], []).append(node)
    for node in found.nodes:
        for table in _tables(found, node):
            for view in views.get(table, ()):
                alike = (found.size[view.cls], found.dtype[view.cls]) == (found.size[node.cls], found.dtype[node.cls])
                if alike and view.cls != node.cls:
                    yield Steered(_spelled(found, node), _spelled(found, view), (view.cls, node.cls))


def _tables(found: Snapshot, node: ENode) -> list[int]:
    """The classes whose elements a constant index or a constant mask picks; empty for any other e-node."""
    if node.op == "Gather" and found.const[node.args[1]]:
        return [node.args[0]] if not found.const[node.args[0]] else []
    if node.op != "Where" or not found.const[node.args[0]]:
        return []
    branches = [a for a in node.args[1:] if not found.const[a]]
    picked = [
        table
        for a in branches
        for inner in found.of_class(a)
        if inner.op == "Gather"
        for table in _tables(found, inner)
    ]
    return list(dict.fromkeys([*branches, *picked]))


def _spelled(found: Snapshot, node: ENode) -> Node:
    return make(node.op, node.attrs, [found.term(a) for a in node.args])
