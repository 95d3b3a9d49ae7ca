"""The graph itself, before any operator is looked at: names defined once, every name defined, nodes in order."""

from __future__ import annotations

import difflib
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING

from eqsat.errors import InputError
from eqsat.frontends.onnx_opaque import captured

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto


def describe(node: NodeProto) -> str:
    """How messages call a node: by its name, or by what it makes."""
    if node.name:
        return f"{node.op_type} node '{node.name}'"
    made = next((name for name in node.output if name), "")
    return f"{node.op_type} node that makes '{made}'"


def reads(node: NodeProto) -> list[str]:
    """Every name that the node and its bodies read from outside, each once."""
    return list(dict.fromkeys(name for name in [*node.input, *captured(node)] if name))


def check_names(graph: GraphProto, label: str) -> None:
    """Raises InputError for a value that is defined twice. An initializer may be an input's default."""
    makers: dict[str, str] = {}

    def define(name: str, maker: str) -> None:
        if name in makers:
            raise InputError(f"{label}: value '{name}' is defined twice, by {makers[name]} and by {maker}; rename one")
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
                define(name, f"the {describe(node)}")
    outputs = [value.name for value in graph.output]
    for name in outputs:
        if outputs.count(name) > 1:
            raise InputError(f"{label}: output '{name}' is listed twice; rename one")


def in_order(nodes: Sequence[NodeProto], known: Container[str], label: str) -> list[NodeProto]:
    """The nodes with makers before readers, as they stand wherever that is so already.

    Raises InputError for a name that nothing defines, and for a cycle.
    """
    made = {name: node for node in nodes for name in node.output if name}
    for node in nodes:
        for name in reads(node):
            if name not in known and name not in made:
                raise _undefined(node, name, made, label)
    done: set[str] = set()
    order: list[NodeProto] = []
    waiting = list(nodes)
    while waiting:
        blocked = []
        for node in waiting:
            if all(name in done or name not in made for name in reads(node)):
                order.append(node)
                done.update(node.output)
            else:
                blocked.append(node)
        if len(blocked) == len(waiting):
            raise _cycle(blocked, made, done, label)
        waiting = blocked
    return order


def _undefined(node: NodeProto, name: str, made: Iterable[str], label: str) -> InputError:
    near = difflib.get_close_matches(name, list(made), n=1)
    hint = f"did you mean '{near[0]}'?" if near else "check the node's inputs"
    return InputError(f"{label}: {describe(node)} reads '{name}', which nothing defines; {hint}")


def _cycle(nodes: Sequence[NodeProto], made: dict[str, NodeProto], done: set[str], label: str) -> InputError:
    """Follows unmade inputs back from a blocked node until one comes again."""
    path: list[NodeProto] = [nodes[0]]
    while True:
        before = made[next(name for name in reads(path[-1]) if name in made and name not in done)]
        seen = next((i for i, node in enumerate(path) if node is before), None)
        if seen is not None:
            names = " <- ".join(describe(node) for node in path[seen:])
            return InputError(f"{label}: {names} form a cycle; a graph must be acyclic")
        path.append(before)


def live(nodes: Sequence[NodeProto], outputs: Iterable[str]) -> list[NodeProto]:
    """The nodes (in order) that some output depends on."""
    needed = set(outputs)
    kept = []
    for node in reversed(nodes):
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(reads(node))
    return kept[::-1]
