"""Checks nodes against their operators' definitions, and models against general limits, before they are read.

onnx's own checker ends the process on some files, and does not say which node is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from eqsat.errors import InputError
from eqsat.frontends.onnx.file.load import function_key, subgraphs
from eqsat.program.sizes import LARGEST

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto
    from onnx.defs import OpSchema

MOST_NODES = 1_000_000
"""Most nodes of a model with its local functions expanded."""

MOST_CALLS = 100
"""Deepest nesting of calls of local functions; some are converted call by call, within Python's stack."""

DEEPEST = 24
"""Deepest nesting of bodies; protobuf itself reads at most 100 nested messages, three for each body."""

_INT = 2  # AttributeProto.AttributeType.INT

_LEAST = {
    "blocksize": 1,
    "dilations": 1,
    "group": 1,
    "kernel_shape": 1,
    "num_groups": 1,
    "output_padding": 0,
    "pads": -LARGEST,
    "strides": 1,
}
"""The least number in attributes of any operator that count something."""

_MOST_PARTS = 1 << 10
"""Parts that an operator may make beyond its outputs."""


def check_node(node: NodeProto, schema: OpSchema) -> None:
    """Raises InputError for operands, results or attributes that the operator's definition does not allow."""
    signature = _signature(schema.name, schema.since_version, schema.domain)
    inputs = node.input
    for i, name in signature.required_inputs:
        if i >= len(inputs) or not inputs[i]:
            raise InputError(f"input {i} ({name}) is missing; the ONNX operator requires it")
    _check_count("inputs", len(inputs), *signature.inputs)
    _check_count("outputs", len(node.output), *signature.outputs)
    given = {attribute.name: attribute for attribute in node.attribute}
    if len(given) < len(node.attribute):
        raise InputError("an attribute is given twice; remove one")
    for name in signature.required:
        if name not in given or given[name].ref_attr_name:
            raise InputError(f"attribute '{name}' is missing; the ONNX operator requires it")
    for name, attribute in given.items():
        kind = signature.kinds.get(name, attribute.type)
        if attribute.type != kind and not attribute.ref_attr_name:
            met, wanted = _type_name(attribute.type), _type_name(kind)
            raise InputError(f"attribute '{name}' is {met}, the ONNX operator takes {wanted}")
    for name in given.keys() & _LEAST.keys():
        for number in (given[name].i,) if given[name].type == _INT else given[name].ints:
            if not _LEAST[name] <= number <= LARGEST:
                raise InputError(f"attribute '{name}' holds {number}; {_LEAST[name]} to {LARGEST} are taken there")
    parts = given.get("num_outputs")
    if parts is not None and not len(node.output) <= parts.i <= len(node.output) + _MOST_PARTS:
        # With fewer, onnx's shape inference ends the process; with many more, all are listed to leave most out.
        raise InputError(f"attribute 'num_outputs' is {parts.i}, and the node has {len(node.output)} outputs")


@dataclass(frozen=True)
class _Signature:
    """What an operator's definition requires, as Python values: asking onnx for them takes longer than a check.

    Attributes:
        required_inputs: positions and names.
        inputs, outputs: least and largest number.
        required: attributes.
        kinds: the type of each attribute, a number of AttributeProto.AttributeType.
    """

    required_inputs: tuple[tuple[int, str], ...]
    inputs: tuple[int, int]
    outputs: tuple[int, int]
    required: tuple[str, ...]
    kinds: Mapping[str, int]


@lru_cache(maxsize=1 << 10)
def _signature(name: str, version: int, domain: str) -> _Signature:
    from onnx import defs

    schema = defs.get_schema(name, version, domain)
    rows: Any = schema.attributes  # types are numbers there; onnx's stubs lack this
    return _Signature(
        tuple((i, f.name) for i, f in enumerate(schema.inputs) if f.option == f.option.Single),
        (schema.min_input, schema.max_input),
        (schema.min_output, schema.max_output),
        tuple(name for name, row in rows.items() if row.required),
        {name: int(row.type) for name, row in rows.items()},
    )


def _check_count(what: str, count: int, least: int, most: int) -> None:
    if not least <= count <= most:
        wanted = str(least) if least == most else f"at least {least}" if count < least else f"at most {most}"
        raise InputError(f"has {count} {what}; the ONNX operator takes {wanted}")


def _type_name(number: int) -> str:
    from onnx import AttributeProto

    names = {value: name.lower() for name, value in AttributeProto.AttributeType.items()}
    return names.get(number, f"of type {number}")


def check_functions(model: ModelProto, label: str) -> None:
    """Raises InputError if local functions call themselves, if calls are nested deeper than MOST_CALLS, or if the model
    expands to more than MOST_NODES nodes."""
    from onnx import GraphProto

    functions = {(f.domain, f.name, f.overload): f for f in model.functions}
    if len(functions) < len(model.functions):
        raise InputError(f"{label}: two local functions have one name; rename one")
    for function in model.functions:
        check_texts(GraphProto(node=function.node), label)
    counts: dict[tuple[str, str, str], int] = {}
    depths: dict[tuple[str, str, str], int] = {}
    waiting = list(functions)
    open_: dict[tuple[str, str, str], None] = {}
    while waiting:
        key = waiting[-1]
        if key in counts:
            waiting.pop()
            continue
        calls = [function_key(node) for node in _nodes(functions[key].node)]
        missing = [call for call in calls if call in functions and call not in counts]
        if not missing:
            counts[key] = sum(counts.get(call, 1) for call in calls)
            depths[key] = 1 + max((depths.get(call, 0) for call in calls), default=0)
            open_.pop(key, None)
        elif key in open_:
            raise InputError(f"{label}: the local function '{key[1]}' calls itself; ONNX has no recursion")
        else:
            open_[key] = None
            waiting += dict.fromkeys(missing)
    if max(depths.values()) > MOST_CALLS:
        raise InputError(f"{label}: calls of local functions are nested more than {MOST_CALLS} deep; inline some")
    total = sum(counts.get(function_key(node), 1) for node in _nodes(model.graph.node))
    if total > MOST_NODES:
        raise InputError(
            f"{label}: has {total} nodes once its functions are written out; at most {MOST_NODES} are read"
        )


def _nodes(nodes: Any) -> Iterator[NodeProto]:
    """The nodes, and the nodes of their bodies."""
    yield from nodes
    for node in nodes:
        for inner, _ in (nested for body in subgraphs(node) for nested in _nested(body)):
            yield from inner.node


def _nested(graph: GraphProto) -> Iterator[tuple[GraphProto, int]]:
    """The graph and the bodies of its nodes, each with its depth."""
    stack = [(graph, 0)]
    while stack:
        inner, depth = stack.pop()
        yield inner, depth
        stack += [(body, depth + 1) for node in inner.node for body in subgraphs(node)]


def check_texts(graph: GraphProto, label: str) -> None:
    """Raises InputError for a name that is not UTF-8, which protobuf returns as bytes."""
    for inner, _ in _nested(graph):
        named = [*inner.input, *inner.output, *inner.value_info, *inner.initializer]
        texts: list[Any] = [value.name for value in named]
        for node in inner.node:
            texts += [*node.input, *node.output, node.op_type, node.domain, node.name]
            texts += [attribute.name for attribute in node.attribute]
        for text in texts:
            if not isinstance(text, str):
                raise InputError(f"{label}: the name {text[:40]!r} is not UTF-8; rename it")


def check_depth(graph: GraphProto, label: str) -> None:
    """Raises InputError for bodies nested deeper than DEEPEST."""
    if any(depth > DEEPEST for _, depth in _nested(graph)):
        raise InputError(f"{label}: bodies are nested more than {DEEPEST} deep; export the model again")
