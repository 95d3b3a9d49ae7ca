"""Local functions of a model: their nodes take the place of calls where both mean the same at the model's opsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING

from eqsat.frontends.onnx.file.function import called
from eqsat.frontends.onnx.file.load import domain_of, function_key, imported, subgraphs
from eqsat.frontends.onnx.read.opaque import reads, rename, since_version, with_bodies

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, NodeProto, ValueInfoProto

    Functions = Mapping[tuple[str, str, str], FunctionProto]
    """Local functions by what calls name: domain, name and overload."""


def means_the_same(function: FunctionProto, opsets: Mapping[str, int]) -> bool:
    """Whether every node of the function, and of its bodies, has one definition at the function's opsets and these."""
    own = imported(function.opset_import)
    return all(
        since_version(node, own.get(domain, version)) == since_version(node, version)
        for outer in function.node
        for node in with_bodies(outer)
        if (version := opsets.get(domain := domain_of(node)))
    )


def inlined(graph: GraphProto, functions: Functions) -> GraphProto:
    """A copy of the graph in which the nodes of these functions take the place of their calls, in bodies too."""
    from onnx import GraphProto

    made = GraphProto()
    made.CopyFrom(graph)
    fresh = _fresh(made)
    graphs = [made]
    while graphs:
        inner = graphs.pop()
        nodes: list[NodeProto] = []
        waiting = list(reversed(inner.node))
        while waiting:
            node = waiting.pop()
            function = functions.get(function_key(node))
            if function is None:
                nodes.append(node)
                continue
            instance, types = _instance(called(function, node), node, fresh)
            waiting += reversed(instance)
            inner.value_info.extend(types)
        del inner.node[:]
        inner.node.extend(nodes)
        graphs += [body for node in inner.node for body in subgraphs(node)]
    return made


def _fresh(graph: GraphProto) -> Callable[[str], str]:
    """Makes of a name one that is new in the graph and all its bodies."""
    taken = set(_names(graph))
    numbers = count()
    return lambda name: next(new for i in numbers if (new := f"{name}_{i}") not in taken)


def _names(graph: GraphProto) -> Iterator[str]:
    graphs = [graph]
    for inner in graphs:
        yield from (value.name for value in [*inner.input, *inner.output, *inner.initializer])
        for node in inner.node:
            yield from node.output
            graphs += subgraphs(node)


def _instance(
    body: FunctionProto, call: NodeProto, fresh: Callable[[str], str]
) -> tuple[list[NodeProto], list[ValueInfoProto]]:
    """The nodes of a called function, which is changed, under names of the caller; and the declared types of values."""
    from onnx import helper

    made = {name for node in body.node for name in node.output}
    results: dict[str, str] = {}
    for formal, actual in zip(body.output, call.output, strict=False):
        if actual and formal in made:
            results.setdefault(formal, actual)
    names = {"": "", **dict(zip(body.input, call.input, strict=False)), **results}
    for node in body.node:
        names.update({name: fresh(name) for name in [*node.output, *reads(node)] if name not in names})
    for node in body.node:
        node.name = fresh(node.name) if node.name else ""
        rename(node, names, [names[name] for name in node.output], lambda: fresh("inner"))
    copies = [
        helper.make_node("Identity", [names.get(formal) or fresh(formal)], [actual])
        for formal, actual in zip(body.output, call.output, strict=False)
        if actual and results.get(formal) != actual
    ]
    types = [value for value in body.value_info if value.name in made]
    for value in types:
        value.name = names[value.name]
    return [*body.node, *copies], types
