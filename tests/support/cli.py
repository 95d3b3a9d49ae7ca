"""The command line run in this process, and small models to run it on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner, Result

from eqsat.cli.app import app


def eqsat(*arguments: str | Path) -> Result:
    """Run the command line in this process, at the width that output has in a pipe."""
    return CliRunner().invoke(app, [str(a) for a in arguments], prog_name="eqsat", env={"COLUMNS": None})


def printed(*arguments: str | Path) -> str:
    """Standard output of a command that must succeed."""
    result = eqsat(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def document(*arguments: str | Path) -> Any:
    """What a command that must succeed prints as JSON."""
    return json.loads(printed(*arguments, "--json", "-"))


def refusal(*arguments: str | Path, code: int = 3) -> str:
    """The one line on stderr with which a command refuses its input."""
    result = eqsat(*arguments)
    assert result.exit_code == code, result.output
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("eqsat: ")
    assert not result.stdout
    return lines[0].removeprefix("eqsat: ")


A = np.arange(12, dtype=np.float32).reshape(3, 4) / 10


C = np.arange(20, dtype=np.float32).reshape(4, 5) / 10 - 1


X = np.array([[1.0, 2.0, 3.0], [-1.0, 0.5, 0.0]], np.float32)


def saved(path: Path, **arrays: np.ndarray[Any, Any]) -> Path:
    """An .npz file of these arrays."""
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def onnx_model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[int | str]],
    outputs: dict[str, list[int | str]],
    weights: dict[str, np.ndarray[Any, Any]],
) -> onnx.ModelProto:
    """An ONNX model of float32 inputs and outputs of these shapes; a string in a shape is a dynamic dimension."""
    takes, gives = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in values.items()]
        for values in (inputs, outputs)
    )
    stored = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "test", takes, gives, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def chain(rows: int | str = 2) -> onnx.ModelProto:
    """x @ A @ C, float32 [rows, 3] -> [rows, 5], with A and C constant."""
    nodes = [helper.make_node("MatMul", ["x", "A"], ["xa"]), helper.make_node("MatMul", ["xa", "C"], ["y"])]
    return onnx_model(nodes, {"x": [rows, 3]}, {"y": [rows, 5]}, {"A": A, "C": C})
