"""Checks of the graph before operators are converted: every name is defined exactly once, and nodes are ordered."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from eqsat.errors import InputError
from eqsat.frontends.onnx.read.opaque import reads

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto


def describe(node: NodeProto) -> str:
    """A node in messages: its name, or its output."""
    if node.name:
        return f"{node.op_type} node '{node.name}'"
    made = next((name for name in node.output if name), "")
    return f"{node.op_type} node that makes '{made}'"


def check_names(graph: GraphProto, label: str) -> None:
    """Raises InputError for a value that is defined twice. An initializer may be an input's default."""
    makers: dict[str, str | NodeProto] = {}

    def define(name: str, maker: str | NodeProto) -> None:
        if name in makers:
            first, second = (x if isinstance(x, str) else f"the {describe(x)}" for x in (makers[name], maker))
            raise InputError(f"{label}: value '{name}' is defined twice, by {first} and by {second}; rename one")
        makers[name] = maker

    for value in graph.input:
        define(value.name, "an input")
    inputs = set(makers)
    for tensor in graph.initializer:
        if tensor.name not in inputs:
            define(tensor.name, "an initializer")
    for node in graph.node:
        for name in node.output:
            if name:
                define(name, node)
    outputs = Counter(value.name for value in graph.output)
    for name, times in outputs.items():
        if times > 1:
            raise InputError(f"{label}: output '{name}' is listed twice; list it once, or copy it (Identity)")


Reader = tuple["NodeProto", Sequence[str]]
"""A node, and every name that it and its bodies read from outside."""


def readers(nodes: Iterable[NodeProto]) -> list[Reader]:
    """The nodes with the names that they read."""
    return [(node, reads(node)) for node in nodes]


def in_order(nodes: Sequence[Reader], known: Collection[str], label: str) -> list[Reader]:
    """The nodes with producers before readers; nodes that are in order already keep their order.

    Raises InputError for a name that nothing defines, and for a cycle.
    """
    made = {name: i for i, (node, _) in enumerate(nodes) for name in node.output if name}
    needs: list[list[int]] = []
    for node, read in nodes:
        for name in read:
            if name not in known and name not in made:
                raise _undefined(node, name, [*made, *known], label)
        needs.append([made[name] for name in read if name in made])
    done = [False] * len(nodes)
    order: list[Reader] = []
    left = [iter(makers) for makers in needs]
    for first in range(len(nodes)):
        path = {} if done[first] else {first: None}  # each node waits for the next one
        while path:
            last = next(reversed(path))
            missing = next((i for i in left[last] if not done[i]), None)
            if missing is None:
                done[last] = True
                order.append(nodes[last])
                del path[last]
            elif missing in path:
                waiting = list(path)
                names = " <- ".join(describe(nodes[i][0]) for i in waiting[waiting.index(missing) :])
                raise InputError(f"{label}: {names} form a cycle; a graph must be acyclic")
            else:
                path[missing] = None
    return order


def _undefined(node: NodeProto, name: str, names: Sequence[str], label: str) -> InputError:
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean '{near[0]}'?" if near else "check the node's inputs"
    return InputError(f"{label}: {describe(node)} reads '{name}', which nothing defines; {hint}")


def live(nodes: Sequence[Reader], outputs: Iterable[str]) -> list[Reader]:
    """The nodes (in order) that some output depends on."""
    needed = set(outputs)
    kept = []
    for node, read in reversed(nodes):
        if needed.intersection(node.output):
            kept.append((node, read))
            needed.update(read)
    return kept[::-1]
