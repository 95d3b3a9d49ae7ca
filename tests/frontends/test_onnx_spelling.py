"""Other operators for the same values, for a runtime that may execute these faster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from eqsat.base.numerics import SQRT_2
from eqsat.frontends.onnx.read.model import from_onnx
from eqsat.frontends.onnx.write.model import to_onnx
from eqsat.frontends.onnx.write.spelling import spelled_otherwise
from eqsat.program import composites, ops
from eqsat.program.ir import Program
from eqsat.program.term import Term

X, Z = ops.input("x", (2, 8, 64)), ops.input("z", (2, 8, 64))
SCALE, BIAS = (ops.constant(np.linspace(low, 2, 64, dtype=np.float32)) for low in (1, -1))


def norm(x: Term) -> Term:
    return composites.layernorm(x, SCALE, BIAS)


def own(y: Term) -> Program:
    return Program((X, Z), {"y": y})


def read(y: Term, opset: int = 17) -> Program:
    """The program after it was written to a model, and read again."""
    return from_onnx(to_onnx(own(y), opset=opset))


def padded(operator: str, fill: float) -> Program:
    """x, padded by a node of its own for the operator that reads it."""
    text = f"""
        <ir_version: 8, opset_import: ["" : 17]>
        m (float[2, 8, 64] x) => (float[2, 8, 32] y) <int64[6] pads = {{0, 0, 1, 0, 0, 1}}, float fill = {{{fill}}}> {{
            p = Pad (x, pads, fill)
            y = {operator} <kernel_shape = [3], strides = [2], ceil_mode = 0> (p)
        }}"""
    return from_onnx(onnx.parser.parse_model(text))


SPELLED: dict[str, tuple[Callable[[], Program], str]] = {
    "a sum that a norm reads": (lambda: read(norm(ops.add(X, Z))), "LayerNormalization Sum"),
    "a sum that is read twice": (
        lambda: read(ops.mul(total := ops.add(X, Z), norm(total))),
        "LayerNormalization Mul Sum",
    ),
    "a norm that was never a node": (lambda: own(norm(ops.add(X, Z))), "LayerNormalization Sum"),
    "gelu from parts": (lambda: read(composites.gelu_of_halves(X)), "Gelu"),
    "a norm by reciprocals": (lambda: read(composites.rmsnorm_by_reciprocal(X, SCALE)), "RMSNormalization"),
    "a pool pads": (lambda: padded("MaxPool", -np.inf), "MaxPool"),
    "other nodes stay": (lambda: read(ops.tanh(composites.gelu_of_halves(X))), "Gelu Tanh"),
}


@pytest.mark.parametrize("name", SPELLED)
def test_values_are_spelled_otherwise(name: str) -> None:
    program, operators = SPELLED[name][0](), SPELLED[name][1]
    found = spelled_otherwise(program)
    assert found is not None
    assert found.outputs == program.outputs
    model = to_onnx(found)
    assert sorted(n.op_type for n in model.graph.node) == operators.split()
    rng = np.random.default_rng(0)
    inputs = {t.attr("name"): rng.normal(size=t.shape).astype(np.float32) for t in program.inputs}
    session: Any = onnxruntime.InferenceSession(model.SerializeToString())
    taken = {entry.name for entry in session.get_inputs()}
    (result,) = session.run(None, {k: v for k, v in inputs.items() if k in taken})
    np.testing.assert_allclose(result, program.run(inputs)["y"], 1e-5, 1e-5)


STAYS: dict[str, Callable[[], Program]] = {
    "other padding": lambda: padded("MaxPool", 0.0),
    "a sum that no norm reads": lambda: read(ops.add(X, Z)),
    "a bias": lambda: read(norm(composites.add(X, BIAS))),
    "a norm that is a node": lambda: read(norm(X)),
    "an activation that is a node": lambda: read(composites.gelu(X), opset=20),
    "parts that are read": lambda: read(ops.mul(ops.erf(composites.scaled(X, 1 / SQRT_2)), composites.gelu(X))),
}


@pytest.mark.parametrize("name", STAYS)
def test_what_has_no_other_spelling(name: str) -> None:
    assert spelled_otherwise(STAYS[name]()) is None
