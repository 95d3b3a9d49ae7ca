"""The nodes of models in onnxruntime: what each computes, as a program of its own, and how long it takes."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eqsat.base.numerics import Array
from eqsat.errors import EqsatError
from eqsat.frontends.execution import NodeTime, OnnxRuntime, Shaped
from eqsat.frontends.onnx.file.load import value_info
from eqsat.frontends.onnx.read.model import from_onnx
from eqsat.program.ir import Program

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

LEAST_ELEMENTS = 256
"""Nodes on fewer elements are left out: the profile itself takes longer."""

_STORED = 64
"""Nodes whose constants of at most so many elements (shapes, axes, indices) differ are different ones. Of larger
constants only the shapes count."""


@dataclass(slots=True)
class Profiled:
    """Nodes of a model that are the same operator with the same sizes.

    Attributes:
        kind: its ONNX name.
        program: the node alone as a program; None if eqsat does not know the operator.
        us: measured microseconds, one time for each place.
    """

    kind: str
    program: Program | None
    us: list[float] = field(default_factory=list)

    @property
    def measured_us(self) -> float:
        """The median over its places."""
        return statistics.median(self.us)


def profiled(model: str | os.PathLike[str], inputs: Mapping[str, Array], runtime: OnnxRuntime) -> list[Profiled]:
    """The nodes of a model's main graph, with their times on these inputs.

    Raises:
        RuntimeRefuses: the runtime cannot run the model.
    """
    import onnx

    proto = onnx.load(model)
    for i, node in enumerate(proto.graph.node):
        node.name = str(i)
    times = runtime.profile(proto, inputs)
    constants = _constants(proto.graph)
    found: dict[str, Profiled] = {}
    for node in proto.graph.node:
        time, present = times.get(node.name), [name for name in node.input if name]
        if time is None or len(time.inputs) != len(present) or _elements(time) < LEAST_ELEMENTS:
            continue
        operands = dict(zip(present, time.inputs, strict=True))
        stored = {name: constants[name] for name in operands if name in constants}
        key = _key(node, operands, stored)
        if key not in found:
            found[key] = Profiled(node.op_type, _program(_alone(proto, node, time, operands, stored)))
        found[key].us.append(time.us)
    return list(found.values())


def _constants(graph: GraphProto) -> dict[str, TensorProto]:
    made = {
        node.output[0]: attribute.t
        for node in graph.node
        if node.op_type == "Constant"
        for attribute in node.attribute
        if attribute.name == "value"
    }
    return made | {tensor.name: tensor for tensor in graph.initializer}


def _elements(time: NodeTime) -> int:
    return max((math.prod(shape) for _, shape in (*time.inputs, *time.outputs)), default=0)


def _key(node: NodeProto, operands: Mapping[str, Shaped], stored: Mapping[str, TensorProto]) -> str:
    """Equal for nodes that are one `Profiled`."""
    attributes = sorted(attribute.SerializeToString() for attribute in node.attribute)
    values = [(shaped, _told(stored.get(name))) for name, shaped in operands.items()]
    return repr((node.domain, node.op_type, attributes, values))


def _told(tensor: TensorProto | None) -> object:
    if tensor is None:
        return None
    return tensor.SerializeToString() if math.prod(tensor.dims) <= _STORED else "constant"


def _alone(
    proto: ModelProto,
    node: NodeProto,
    time: NodeTime,
    operands: Mapping[str, Shaped],
    stored: Mapping[str, TensorProto],
) -> ModelProto:
    """A model of one node."""
    from onnx import helper

    given = [value_info(name, *shaped) for name, shaped in operands.items() if name not in stored]
    made = [value_info(name, *shaped) for name, shaped in zip(filter(None, node.output), time.outputs, strict=False)]
    graph = helper.make_graph([node], "operator", given, made, list(stored.values()))
    return helper.make_model(
        graph, opset_imports=proto.opset_import, functions=proto.functions, ir_version=proto.ir_version
    )


def _program(alone: ModelProto) -> Program | None:
    try:
        program = from_onnx(alone)
    except EqsatError:
        return None
    return None if program.opaque() else program
