"""ONNX models in few words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from eqsat.frontends.onnx.read.model import from_onnx
from eqsat.frontends.onnx.write.model import to_onnx

onnxruntime.set_default_logger_severity(4)

BOOL, FLOAT = TensorProto.BOOL, TensorProto.FLOAT
INT8, INT64, UINT8 = TensorProto.INT8, TensorProto.INT64, TensorProto.UINT8


def value(name: str, shape: Sequence[Any] | None = (2, 3), code: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, code, shape)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto] = (value("x"),),
    outputs: Sequence[onnx.ValueInfoProto] = (value("y", None),),
    initializers: Sequence[onnx.TensorProto] = (),
    opset: int = 17,
    domain: str = "",
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(domain, opset)], ir_version=8)


def tensor(name: str, array: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


node: Any = helper.make_node


RELU = node("Relu", ["x"], ["y"], name="act")


def assert_as_onnxruntime(model: onnx.ModelProto, inputs: dict[str, Any]) -> list[str]:
    """A model read, and written again, gives what onnxruntime makes of it. Returns the operators that are carried."""
    wanted: Any = onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)
    program = from_onnx(model)
    written: Any = onnxruntime.InferenceSession(to_onnx(program).SerializeToString()).run(None, inputs)
    for found in (list(program.run(inputs).values()), written):
        for mine, theirs in zip(found, wanted, strict=True):
            assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
            np.testing.assert_allclose(mine, theirs, 1e-4, 2e-5)
    return program.opaque()
