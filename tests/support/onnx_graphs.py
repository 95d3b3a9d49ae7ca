"""ONNX models by shapes and arrays, and what onnxruntime makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from eqsat.frontends.onnx.write.model import to_onnx
from eqsat.program.ir import Program

onnxruntime.set_default_logger_severity(4)

node: Any = helper.make_node
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def value(name: str, shape: Sequence[Any] | None = None, code: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, code, shape)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int]],
    outputs: Sequence[str | onnx.ValueInfoProto] = ("y",),
    constants: Mapping[str, Any] | None = None,
    opset: int = 17,
    **imports: int,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [value(name, shape) for name, shape in inputs.items()],
        [value(out) if isinstance(out, str) else out for out in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()],
    )
    domains = [helper.make_opsetid(domain.replace("_", "."), version) for domain, version in imports.items()]
    opsets = [helper.make_opsetid("", opset), *domains]
    return helper.make_model(graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets, True))


def random_inputs(program: Program) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {term.attr("name"): rng.standard_normal(term.shape, np.float32) for term in program.inputs}


def run(model_: onnx.ModelProto, inputs: Mapping[str, Any]) -> list[Any]:
    session = onnxruntime.InferenceSession(model_.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(inputs)))


def assert_computes_the_same(original: onnx.ModelProto, program: Program) -> None:
    """The program by NumPy, and its export by onnxruntime, give what the original gives in onnxruntime."""
    inputs = random_inputs(program)
    for wanted, native, exported in zip(
        run(original, inputs), program.run(inputs).values(), run(to_onnx(program), inputs), strict=True
    ):
        np.testing.assert_allclose(native, wanted, 1e-5, 1e-5)
        np.testing.assert_allclose(exported, wanted, 1e-5, 1e-5)


def branch(op: str) -> onnx.GraphProto:
    return helper.make_graph([node(op, ["x"], ["r"])], op, [], [value("r")])


IF = node("If", ["c"], ["y"], then_branch=branch("Exp"), else_branch=branch("Neg"))
