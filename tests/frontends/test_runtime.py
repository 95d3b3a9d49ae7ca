"""The second opinion: onnxruntime on the file that was read and the file that was written."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from eqsat.check.inputs import random_values
from eqsat.frontends.onnx.read.model import from_onnx
from eqsat.frontends.runtime import Agreement, agreement, seconds_needed
from support.cli import chain, document, printed
from support.onnx_models import FLOAT, model, node, tensor, value


def scaled(factor: float, other: str = "Relu") -> onnx.ModelProto:
    nodes = [node("Mul", ["x", "c"], ["h"]), node(other, ["h"], ["y"])]
    return model(nodes, outputs=(value("y"),), initializers=(tensor("c", np.full((2, 3), factor, np.float32)),))


def compared(tmp_path: Path, read: onnx.ModelProto, written: onnx.ModelProto) -> Agreement | None:
    paths = [tmp_path / "read.onnx", tmp_path / "written.onnx"]
    for path, proto in zip(paths, (read, written), strict=True):
        path.write_bytes(proto.SerializeToString())
    program = from_onnx(paths[0])
    assert seconds_needed(program, *paths) < 1
    return agreement(paths[0], paths[1], program, random_values(program.inputs, 0, 0))


@pytest.mark.parametrize(
    ("written", "agrees"),
    [(scaled(1.5), True), (scaled(1.5 + 1e-6), True), (scaled(1.6), False), (scaled(1.5, "Log"), False)],
    ids=["the same", "rounding", "another weight", "NaN for numbers"],
)
def test_what_two_files_give_is_compared(tmp_path: Path, written: onnx.ModelProto, agrees: bool) -> None:
    found = compared(tmp_path, scaled(1.5), written)
    assert found is not None
    assert found.agrees == agrees
    assert found.tolerance == 1e-3


def test_without_onnxruntime_or_what_it_knows_there_is_no_opinion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = model([node("Own", ["x"], ["y"], domain="mine")], outputs=(value("y", (2, 3), FLOAT),), domain="mine")
    assert compared(tmp_path, foreign, foreign) is None
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert compared(tmp_path, scaled(1.5), scaled(1.5)) is None


def test_a_file_written_that_does_not_run_is_told(tmp_path: Path) -> None:
    foreign = model([node("Own", ["x"], ["y"], domain="mine")], outputs=(value("y"),), domain="mine")
    found = compared(tmp_path, scaled(1.5), foreign)
    assert found is not None
    assert not found.agrees
    assert "Own" in found.failure
    assert found.as_json()["max_error"] is None


def test_optimize_says_what_onnxruntime_makes_of_its_file(tmp_path: Path) -> None:
    source = tmp_path / "model.onnx"
    onnx.save(chain(), source)
    arguments: list[Any] = ["optimize", source, "-o", tmp_path / "out.onnx", "--time-limit", "20"]
    assert "on the file read and the file written: largest difference" in printed(*arguments)
    found = document(*arguments, "--json", "-")["runtime"]
    assert found["name"] == "onnxruntime"
    assert found["agrees"]
    assert found["max_error"] <= found["tolerance"]
    json.dumps(found, allow_nan=False)
