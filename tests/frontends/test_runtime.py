"""The second opinion: onnxruntime on the file that was read and the file that was written."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from eqsat.base.worker import Worker
from eqsat.cli.shared.race import race
from eqsat.frontends.onnx.read.model import from_onnx
from eqsat.frontends.runtime import Agreement, NotCompared, compared, seconds_needed
from support.cli import chain, document, printed
from support.onnx_models import BOOL, FLOAT, INT64, model, node, tensor, value

SECONDS = 60.0


def scaled(factor: float, other: str = "Relu") -> onnx.ModelProto:
    nodes = [node("Mul", ["x", "c"], ["h"]), node(other, ["h"], ["y"])]
    return model(nodes, outputs=(value("y"),), initializers=(tensor("c", np.full((2, 3), factor, np.float32)),))


def of_both(
    tmp_path: Path, read: onnx.ModelProto, written: onnx.ModelProto, seconds: float = SECONDS, memory: int = 1 << 30
) -> Agreement:
    """What onnxruntime makes of two files."""
    paths = [tmp_path / "read.onnx", tmp_path / "written.onnx"]
    for path, proto in zip(paths, (read, written), strict=True):
        path.write_bytes(proto.SerializeToString())
    return compared(paths[0], paths[1], from_onnx(paths[0]), seconds, memory)


def looping(times: int) -> onnx.ModelProto:
    """A loop of so many rounds: eqsat carries it, and its work cannot be told from its arrays."""
    body = model(
        [node("Identity", ["on"], ["on_2"]), node("Tanh", ["v"], ["v_2"])],
        inputs=(value("i", (), INT64), value("on", (), BOOL), value("v")),
        outputs=(value("on_2", (), BOOL), value("v_2")),
    ).graph
    return model(
        [node("Loop", ["n", "", "x"], ["y"], body=body)],
        outputs=(value("y"),),
        initializers=(tensor("n", np.int64(times)),),
    )


def spread(elements: int) -> onnx.ModelProto:
    """A sum of so many elements, which onnxruntime holds all at once."""
    nodes = [node("Expand", ["x", "shape"], ["h"]), node("ReduceSum", ["h"], ["y"], keepdims=0)]
    given = (tensor("shape", np.array([elements])),)
    return model(nodes, (value("x", (1,)),), (value("y", ()),), given)


@pytest.mark.parametrize(
    ("written", "agrees"),
    [(scaled(1.5), True), (scaled(1.5 + 1e-6), True), (scaled(1.6), False), (scaled(1.5, "Log"), False)],
    ids=["the same", "rounding", "another weight", "NaN for numbers"],
)
def test_what_two_files_give_is_compared(tmp_path: Path, written: onnx.ModelProto, agrees: bool) -> None:
    found = of_both(tmp_path, scaled(1.5), written)
    assert found.agrees == agrees
    assert found.tolerance == 1e-3


def test_small_files_are_compared_where_a_second_is_left(tmp_path: Path) -> None:
    file = tmp_path / "small.onnx"
    file.write_bytes(scaled(1.5).SerializeToString())
    assert seconds_needed(from_onnx(file), file, file) < 1


def test_what_is_not_known_or_not_installed_is_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = model([node("Own", ["x"], ["y"], domain="mine")], outputs=(value("y", (2, 3), FLOAT),), domain="mine")
    with pytest.raises(NotCompared, match=r"it cannot run the file read: .*Own"):
        of_both(tmp_path, foreign, foreign)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(NotCompared, match="it is not installed"):
        of_both(tmp_path, scaled(1.5), scaled(1.5))


def test_a_comparison_ends_when_its_time_is_up(tmp_path: Path) -> None:
    endless = looping(1 << 40)
    begun = time.monotonic()
    with pytest.raises(NotCompared, match="the time was up"):
        of_both(tmp_path, endless, endless, seconds=2.0)
    assert time.monotonic() - begun < 4
    for seconds, why in ((0.0, "no time was left"), (0.1, r"it may take 0\.\d+ s, and 0\.1 s were left")):
        with pytest.raises(NotCompared, match=why):
            of_both(tmp_path, scaled(1.5), scaled(1.5), seconds)


@pytest.mark.parametrize(
    "large",
    [spread(1 << 30), model([node("Relu", ["x"], ["y"])], (value("x", (1 << 30,)),), (value("y", (1 << 30,)),))],
    ids=["a value", "an input"],
)
def test_a_comparison_keeps_the_memory_limit(tmp_path: Path, large: onnx.ModelProto) -> None:
    with pytest.raises(NotCompared, match="it takes more memory than the limit leaves"):
        of_both(tmp_path, large, large)


def test_a_result_that_lacks_memory_is_not_called_wrong(tmp_path: Path) -> None:
    with pytest.raises(NotCompared, match="it takes more memory than the limit leaves"):
        of_both(tmp_path, spread(1), spread(1 << 30))


def test_an_interrupted_comparison_is_told_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(worker: Worker, timeout: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Worker, "receive", interrupted)
    with pytest.raises(NotCompared, match="it was interrupted"):
        of_both(tmp_path, scaled(1.5), scaled(1.5))


def test_a_race_hears_ctrl_c_while_a_file_runs(tmp_path: Path) -> None:
    endless = tmp_path / "endless.onnx"
    onnx.save(looping(1 << 40), endless)
    ctrl_c = threading.Timer(2.0, signal.raise_signal, [signal.SIGINT])
    ctrl_c.start()
    with pytest.raises(KeyboardInterrupt):
        race([endless, endless], "onnxruntime", None, 1, 1, SECONDS)


def test_optimize_says_that_and_why_its_file_is_not_compared(tmp_path: Path) -> None:
    source, report = tmp_path / "model.onnx", tmp_path / "report.json"
    onnx.save(looping(1 << 40), source)
    arguments: list[Any] = ["optimize", source, "-o", tmp_path / "out.onnx", "--time-limit", "4", "--json", report]
    told = printed(*arguments)
    found = json.loads(report.read_text())
    assert f"NOT COMPARED in onnxruntime with the file read: {found['uncompared']}." in told
    assert "runtime" not in found


def test_a_file_written_that_does_not_run_is_told(tmp_path: Path) -> None:
    foreign = model([node("Own", ["x"], ["y"], domain="mine")], outputs=(value("y"),), domain="mine")
    found = of_both(tmp_path, scaled(1.5), foreign)
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
