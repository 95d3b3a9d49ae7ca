"""`eqsat prove`: verdicts and exit codes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from support.cli import chain, document, eqsat, onnx_model, printed, refusal


def associated(right: bool, factor: float = 1.0) -> onnx.ModelProto:
    """(a @ b) @ c, or a @ (b @ c) times a constant, for a [2, 3], b [3, 4], c [4, 5], none of them constant."""
    if right:
        nodes = [helper.make_node("MatMul", ["b", "c"], ["bc"]), helper.make_node("MatMul", ["a", "bc"], ["abc"])]
    else:
        nodes = [helper.make_node("MatMul", ["a", "b"], ["ab"]), helper.make_node("MatMul", ["ab", "c"], ["abc"])]
    nodes.append(helper.make_node("Mul", ["abc", "factor"], ["y"]))
    inputs: dict[str, list[int | str]] = {"a": [2, 3], "b": [3, 4], "c": [4, 5]}
    return onnx_model(nodes, inputs, {"y": [2, 5]}, {"factor": np.asarray(factor, np.float32)})


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path, Path]:
    """(a @ b) @ c, a @ (b @ c), and twice that."""
    paths = tmp_path / "left.onnx", tmp_path / "right.onnx", tmp_path / "twice.onnx"
    for path, made in zip(paths, (associated(False), associated(True), associated(True, 2.0)), strict=True):
        onnx.save(made, path)
    return paths


def test_equal_programs_are_proved(pair: tuple[Path, Path, Path]) -> None:
    assert document("prove", pair[0], pair[1])["verdict"] == "proved"


def test_a_size_may_name_a_dimension_of_one_program(tmp_path: Path) -> None:
    files = tmp_path / "dynamic.onnx", tmp_path / "fixed.onnx"
    for path, rows in zip(files, ("batch", 7), strict=True):
        onnx.save(chain(rows), path)
    assert document("prove", *files, "--shape", "batch=7")["verdict"] == "proved"
    assert "batch" in refusal("prove", *files, "--shape", "bacth=7", "--shape", "batch=7")


def test_unequal_programs_are_refuted_by_an_input(pair: tuple[Path, Path, Path], tmp_path: Path) -> None:
    found = tmp_path / "x.npz"
    result = eqsat("prove", pair[0], pair[2], "--counterexample", found)
    assert result.exit_code == 1
    assert result.stdout.startswith("refuted")
    outputs = [tmp_path / "y0.npz", tmp_path / "y2.npz"]
    for path, output in zip((pair[0], pair[2]), outputs, strict=True):
        printed("run", path, "--inputs", found, "-o", output)
    with np.load(outputs[0]) as left, np.load(outputs[1]) as right:
        assert not np.allclose(left["y"], right["y"])


def test_programs_that_cannot_be_compared_are_refused(pair: tuple[Path, Path, Path], model: Path) -> None:
    assert "inputs" in refusal("prove", pair[0], model)
