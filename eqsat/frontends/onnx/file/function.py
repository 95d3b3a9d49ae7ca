"""The bodies of functions, ready to be converted: those by which the ONNX standard defines some operators in terms of
simpler ones, and those of a model's own functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from eqsat.frontends.onnx.file.types import Declared

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, NodeProto


_UNSET = {"Attention": "softcap"}
"""Attributes that runtimes treat as unset for any value not above 0; the standard's bodies do so only for 0."""


def function_body(schema: Any, node: NodeProto, opset: int, types: Mapping[str, Declared]) -> FunctionProto | None:
    """The standard's body for this node at this opset, with attributes filled in; None if there is none.

    Inputs that the node omits are '' in the body too. `schema` is an onnx.defs.OpSchema; its function methods are
    missing in onnx's type stubs.
    """
    from onnx import FunctionProto, helper

    node = _as_runtimes_read(node)
    fixed = schema.function_opset_versions if schema.has_function else ()
    version = max((v for v in fixed or schema.context_dependent_function_opset_versions if v <= opset), default=None)
    if version is None:
        return None
    if fixed:
        body = schema.get_function_with_opset_version(version)
    else:
        given = [
            helper.make_tensor_type_proto(types[name].code, types[name].shape).SerializeToString() if name else b""
            for name in node.input
        ]
        body = schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), given)
    defaults = [row.default_value for row in schema.attributes.values() if row.default_value.type]
    return _filled(FunctionProto.FromString(body), defaults, node) if body else None


def called(function: FunctionProto, node: NodeProto) -> FunctionProto:
    """A copy of a model's local function for this call of it, as by `function_body`."""
    return _filled(deepcopy(function), function.attribute_proto, node)


def _as_runtimes_read(node: NodeProto) -> NodeProto:
    """The node without the attributes that runtimes treat as unset."""
    made = deepcopy(node)
    for attribute in node.attribute:
        if attribute.name == _UNSET.get(node.op_type) and attribute.f <= 0:
            made.attribute.remove(attribute)
    return made


def _filled(body: FunctionProto, defaults: Iterable[AttributeProto], node: NodeProto) -> FunctionProto:
    values = {attribute.name: attribute for attribute in [*defaults, *node.attribute]}
    absent = {formal for i, formal in enumerate(body.input) if i >= len(node.input) or not node.input[i]}
    for inner in body.node:
        _fill(inner, values, absent)
    return body


def _fill(node: NodeProto, values: Mapping[str, AttributeProto], absent: set[str]) -> None:
    """Replaces references to the function's attributes by their values, in bodies too, and absent inputs by ''."""
    node.input[:] = ["" if name in absent else name for name in node.input]
    for attribute in list(node.attribute):
        if attribute.ref_attr_name:
            name, reference = attribute.name, attribute.ref_attr_name
            if reference in values:
                attribute.CopyFrom(values[reference])
                attribute.name = name
            else:
                node.attribute.remove(attribute)
        for graph in [attribute.g, *attribute.graphs]:
            for inner in graph.node:
                _fill(inner, values, absent)
