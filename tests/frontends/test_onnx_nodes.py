"""ONNX's own node tests: imported, run by NumPy, exported, read back, and run by onnxruntime.

`onnx_cases.txt` lists the cases of supported element types that eqsat keeps as opaque operators or refuses. With the
version of onnx that made the list it has to match exactly, so it can only shrink.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from eqsat.errors import InputError
from eqsat.frontends.onnx.read.convert import ROWS
from eqsat.frontends.onnx.read.model import from_onnx
from eqsat.frontends.onnx.write.model import to_onnx
from eqsat.program.ir import Program
from support.onnx_cases import Case, cases

LIST = Path(__file__).parents[1] / "support" / "onnx_cases.txt"
LISTED_WITH = "1.23.2"

# The operators of ONNX that eqsat promises to understand.
PROMISED = [
    "Abs", "Add", "And", "ArgMax", "AveragePool", "BatchNormalization", "Cast", "Clip", "Concat", "Constant",
    "ConstantOfShape", "Conv", "Div", "Dropout", "Einsum", "Elu", "Equal", "Erf", "Exp", "Expand", "Flatten",
    "Gather", "Gelu", "Gemm", "GlobalAveragePool", "Greater", "HardSigmoid", "Identity", "LayerNormalization",
    "LeakyRelu", "Less", "Log", "LogSoftmax", "MatMul", "Max", "MaxPool", "Mean", "Min", "Mul", "Neg", "Not", "Or",
    "Pad", "Pow", "RMSNormalization", "Range", "Reciprocal", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Relu", "Reshape", "Selu", "Shape", "Sigmoid", "Slice",
    "Softmax", "Softplus", "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Tanh", "Tile", "Transpose", "Unsqueeze",
    "Where",
]  # fmt: skip

RUNTIME_DIFFERS = {
    # The corners of the whole size are aligned, as onnxruntime does it, the standard's are those of size times scale.
    "test_resize_downsample_scales_cubic_align_corners",
    "test_resize_downsample_scales_linear_align_corners",
}

RUNTIME_ROUNDS = {"DFT", "STFT"}
"""Operators whose kernels in onnxruntime are off by up to 3e-4 in these cases, also in the case's own model."""

PARTS = 8  # so that the cases without a row are spread over test processes

_STATE: Any = import_module("onnxruntime.capi.onnxruntime_pybind11_state")
WITHOUT_NUMPY = re.compile("bfloat16|float8|float4|int4|int2")  # what onnxruntime gives no arrays of
RUNTIME_DECLINES = (_STATE.NotImplemented, _STATE.Fail, _STATE.InvalidGraph)

onnxruntime.set_default_logger_severity(4)


@cache
def imported(case_name: str, op: str) -> Program | InputError:
    """The case's program, or the line that refuses it."""
    case = next(case for case in cases()[op] if case.name == case_name)
    try:
        return from_onnx(case.model)
    except InputError as error:
        return error


def program_of(case: Case) -> Program | None:
    found = imported(case.name, case.op)
    return found if isinstance(found, Program) else None


def assert_outputs(case: Case, got: Mapping[str, Any]) -> None:
    assert list(got) == list(case.outputs)
    for name, wanted in case.outputs.items():
        assert (got[name].dtype, got[name].shape) == (wanted.dtype, wanted.shape), case.name
        rtol, atol = (1e-2, 2e-2) if wanted.dtype.itemsize == 2 else (case.rtol, 1e-5)
        exact = wanted.dtype.kind in "biu"
        mine, theirs = (got[name], wanted) if exact else (got[name].astype(np.float64), wanted.astype(np.float64))
        np.testing.assert_allclose(mine, theirs, rtol, atol, err_msg=case.name)


def group(op: str) -> list[Case]:
    return cases().get(op, [])


@pytest.mark.parametrize("op", sorted(ROWS))
def test_programs_compute_what_onnx_expects(op: str) -> None:
    """By NumPy, for every case that is imported at all."""
    for case in group(op):
        program = program_of(case)
        if program is not None and case.name not in RUNTIME_DIFFERS:
            assert_outputs(case, program.run(case.inputs))


def exported(program: Program) -> onnx.ModelProto:
    model = to_onnx(program)
    onnx.checker.check_model(model, full_check=True)
    assert [value.name for value in model.graph.input] == program.input_names
    assert [value.name for value in model.graph.output] == list(program.outputs)
    return model


def by_onnxruntime(case: Case, model: onnx.ModelProto) -> Mapping[str, Any] | None:
    """The outputs, None where onnxruntime has no kernel for an operator or no NumPy type for a value."""
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    except RUNTIME_DECLINES:
        return None
    if any(WITHOUT_NUMPY.search(value.type) for value in [*session.get_inputs(), *session.get_outputs()]):
        return None
    return dict(zip(case.outputs, session.run(None, case.inputs), strict=True))


@pytest.mark.parametrize("op", sorted(ROWS))
def test_exports_compute_what_onnx_expects(op: str) -> None:
    """By onnxruntime; where it has no kernel, or an inexact one, by NumPy after reading the export back."""
    for case in group(op):
        program = program_of(case)
        if program is not None and case.name not in RUNTIME_DIFFERS:
            model = exported(program)
            found = by_onnxruntime(case, model)
            if found is not None and op in RUNTIME_ROUNDS:
                own = by_onnxruntime(case, case.model)
                assert own is not None
                assert all(np.array_equal(found[name], own[name]) for name in own), case.name
                found = None
            assert_outputs(case, from_onnx(model).run(case.inputs) if found is None else found)


@pytest.mark.parametrize("part", range(PARTS))
def test_function_bodies_and_other_operators_compute_what_onnx_expects(part: int) -> None:
    """Operators without a row: expanded by their ONNX body, or opaque and then written back verbatim."""
    others = [case for op, found in sorted(cases().items()) if op not in ROWS for case in found]
    for case in others[part::PARTS]:
        program = program_of(case)
        if program is None:
            continue
        assert_outputs(case, program.run(case.inputs))
        if len(program.opaque()) == len(case.model.graph.node) == 1:
            [node] = case.model.graph.node
            [written] = [each for each in exported(program).graph.node if each.op_type == node.op_type]
            assert written.domain == node.domain
            kept = [attribute for attribute in node.attribute if not attribute.HasField("g")]  # names in bodies change
            assert [attribute for attribute in written.attribute if not attribute.HasField("g")] == kept


# What is not native


def state_of(case: Case) -> str:
    """'native', 'opaque' or 'refused'."""
    program = program_of(case)
    return "refused" if program is None else "opaque" if program.opaque() else "native"


@pytest.mark.skipif(onnx.__version__ != LISTED_WITH, reason=f"the list was made with the cases of onnx {LISTED_WITH}")
def test_the_list_of_cases_that_are_not_native_only_shrinks() -> None:
    found = {f"{state_of(case)} {case.name}" for group in cases().values() for case in group if case.typed}
    listed = set(LIST.read_text().splitlines())
    assert {line for line in found - listed if not line.startswith("native")} == set(), "cases that got worse"
    assert listed - found == set(), "cases that got better (or are gone): take them off the list"


@pytest.mark.parametrize("op", PROMISED)
def test_promised_operators_are_understood(op: str) -> None:
    """Natively in every case over supported element types, but for those that the list names."""
    listed = {line.split()[1] for line in LIST.read_text().splitlines()}
    found = [case for case in group(op) if case.typed and case.name not in listed]
    assert found
    assert [case.name for case in found if state_of(case) != "native"] == []
