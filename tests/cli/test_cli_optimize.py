"""`eqsat optimize`: files, reports and options."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from eqsat import from_onnx, relu, spec, to_onnx, trace
from eqsat.frontends.onnx.file import copy
from support.cli import A, C, X, document, onnx_model, printed, refusal

REPORT = {
    "": "schema device numerics seconds stages source result lower_bound_us gap optimal kernels egraph rules steps"
    " derived merges check opaque extraction measured",
    "source": "kernels launches unfused_kernels flops matmul_flops bytes predicted_us peak_bytes",
    "result": "kernels launches copies flops matmul_flops bytes predicted_us peak_bytes",
    "egraph": "classes nodes iterations seconds stop growth",
    "extraction": "candidates families joint nodes rows seconds solver answers",
    "check": "passed max_error points method parts missed",
}
"""Fields of the report, schema 1: of the document and of the objects in it."""


def test_optimize_folds_a_chain_and_writes_it(model: Path, tmp_path: Path) -> None:
    import onnxruntime

    after = tmp_path / "after.onnx"
    report = document("optimize", model, "-o", after)
    assert report["source"]["matmul_flops"] == 2 * (2 * 3 * 4 + 2 * 4 * 5)
    assert report["result"]["matmul_flops"] == 2 * (2 * 3 * 5)
    assert report["rules"] == {"matmul-of-constants-right": 1}
    assert report["optimal"]
    (got,) = onnxruntime.InferenceSession(str(after)).run(["y"], {"x": X})
    np.testing.assert_allclose(np.asarray(got), X @ A @ C, rtol=1e-5)
    assert [node.op_type for node in onnx.load(after).graph.node] == ["MatMul"]


def test_where_no_time_is_left_the_model_is_copied_and_the_report_says_what_it_leaves_out(
    model: Path, tmp_path: Path
) -> None:
    after = tmp_path / "after.onnx"
    report = document("optimize", model, "-o", after, "--time-limit", "0")
    assert after.read_bytes() == model.read_bytes()
    assert report["left_out"] == ["steps", "merges", "why"]
    assert (report["steps"], report["merges"], report["derived"]) == ([], [], False)
    assert report["source"]["predicted_us"] == report["result"]["predicted_us"] > 0
    assert "is as written" in printed("optimize", model, "--time-limit", "0")
    assert "left_out" not in document("optimize", model)


@pytest.mark.parametrize(("seconds", "early"), [("0", True), ("20", False)])
def test_where_no_time_is_left_the_copy_is_made_beside_the_rest(
    model: Path, tmp_path: Path, seconds: str, early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[bool] = []
    whole = copy.copy_model

    def noted(*args: Any) -> None:
        threads.append(threading.current_thread() is not threading.main_thread())
        whole(*args)

    monkeypatch.setattr(copy, "copy_model", noted)
    document("optimize", model, "-o", tmp_path / "after.onnx", "--time-limit", seconds)
    assert threads == [True] * early
    assert sorted(file.name for file in tmp_path.iterdir()) == ["after.onnx", "chain.onnx"]


def test_where_no_time_is_left_nothing_is_loaded_that_only_changed_programs_need(model: Path, tmp_path: Path) -> None:
    code = "import atexit, sys; atexit.register(lambda: print(*sys.modules)); from eqsat.__main__ import main; main()"
    command = [
        "optimize",
        model,
        "-o",
        tmp_path / "after.onnx",
        "--time-limit",
        "0",
        "--json",
        tmp_path / "report.json",
    ]
    loaded = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=True)
    modules = loaded.stdout.splitlines()[-1].split()
    assert "eqsat.pipeline.optimize" in modules
    changed = ("eqsat.explain.explain", "eqsat.lift.lift", "eqsat.frontends.onnx.write", "eqsat.pipeline.measured")
    assert not [name for name in modules if name.startswith((*changed, "eqsat.inspection", "egglog", "numpy.ma."))]


def test_further_plans_are_listed_and_written(tmp_path: Path) -> None:
    import onnxruntime

    w = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32) / 8
    before, out = tmp_path / "before.onnx", tmp_path / "after.onnx"
    to_onnx(trace(lambda x: relu(relu(x @ w) @ w + x), spec((32, 64))), before)
    report = document("optimize", before, "--top", "3", "-o", out)
    assert [row["rank"] for row in report["alternatives"]] == [2, 3]
    x = np.random.default_rng(1).normal(size=(32, 64)).astype(np.float32)
    expected = np.maximum(np.maximum(x @ w, 0) @ w + x, 0)
    for path in (out, tmp_path / "after.2.onnx", tmp_path / "after.3.onnx"):
        session = onnxruntime.InferenceSession(str(path))
        (got,) = session.run(None, {session.get_inputs()[0].name: x})
        np.testing.assert_allclose(np.asarray(got), expected, atol=1e-4)
    text = printed("optimize", before, "--top", "3")
    assert "Plans, the best first" in text
    assert "proven next" in text


def test_memory_can_be_the_objective(model: Path) -> None:
    goal = document("optimize", model, "--objective", "mix:0.5")["objective"]
    assert (goal["latency"], goal["memory"]) == (0.5, 0.5)
    assert "Peak memory of temporaries" in printed("optimize", model, "--objective", "memory")
    assert "expected latency, memory, mix:W" in refusal("optimize", model, "--objective", "mix:2")


def test_the_report_has_the_fields_of_its_schema(model: Path) -> None:
    report = document("optimize", model, "--device", "h100")
    assert (report["schema"], report["device"]) == (1, "h100")
    for name, fields in REPORT.items():
        assert set(report[name] if name else report) == set(fields.split())


def test_optimize_prints_what_it_did(model: Path) -> None:
    text = printed("optimize", model)
    for words in ("as written, fused", "optimised", "matmul-of-constants-right", "Lower bound", "Check: passed"):
        assert words in text


def test_optimize_explains_its_steps_when_asked(model: Path) -> None:
    steps = document("optimize", model)["steps"]
    assert [step["rule"] for step in steps] == ["matmul-of-constants-right", "fold-constants"]
    text = printed("optimize", model, "--explain")
    for number, step in enumerate(steps, 1):
        assert f"{number}. {step['rule']}" in text
        assert f"= {step['after']}" in text


def test_rules_can_be_left_out_or_picked(model: Path) -> None:
    def flops(*arguments: str) -> int:
        return document("optimize", model, *arguments)["result"]["matmul_flops"]

    assert flops("--only", "matmul-of-constants-right") == 60
    assert flops("--only", "view-of-view") == 128
    assert flops("--numerics", "exact") == 128


def test_json_goes_to_a_file_beside_the_tables(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    assert "Kernels" in printed("optimize", model, "--json", path)
    assert json.loads(path.read_text())["schema"] == 1


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (("--device", "mi300"), "mi300x"),
        (("--only", "matmul-of-constant-right"), "matmul-of-constants-right"),
        (("--without", "view-of-veiw"), "view-of-view"),
    ],
)
def test_optimize_answers_unknown_names_with_the_nearest(
    model: Path, arguments: tuple[str, ...], suggestion: str
) -> None:
    assert suggestion in refusal("optimize", model, *arguments)


def test_optimize_keeps_dynamic_dimensions(tmp_path: Path) -> None:
    file, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    nodes = [helper.make_node("MatMul", ["x", "a"], ["t"]), helper.make_node("MatMul", ["t", "c"], ["u"])]
    nodes.append(helper.make_node("MatMul", ["u", "d"], ["y"]))
    weights = {"a": A, "c": C, "d": np.ones((5, 2), np.float32)}
    onnx.save(onnx_model(nodes, {"x": ["rows", 3]}, {"y": ["rows", 2]}, weights), file)
    found = document("optimize", file, "-o", out, "--shape", "rows=1..40")["dynamic"]
    assert (found["dims"], found["as_source"]) == ({"rows": [1, 40]}, False)
    assert from_onnx(out, {"rows": 7}).outputs["y"].shape == (7, 2)
    assert "One model for rows=1..40" in " ".join(printed("optimize", file, "--shape", "rows=1..40").split())
    assert "dynamic" not in document("optimize", file, "-o", out, "--shape", "rows=7..7")
    assert from_onnx(out).outputs["y"].shape == (7, 2)
    both = document("optimize", file, "-o", out, "--shape", "rows=1..40", "--buckets")["buckets"]
    assert [each["dynamic"]["dims"]["rows"] for each in both] == [[1, 6], [7, 40]]
    assert sorted(p.name for p in tmp_path.glob("out.rows*")) == ["out.rows1-6.onnx", "out.rows7-40.onnx"]
    assert "--buckets" in refusal("optimize", file, "--shape", "rows=4", "--buckets")
    assert "--top: in.onnx has dynamic dimensions" in refusal("optimize", file, "--top", "2")
    assert "NAME=LEAST..LARGEST" in refusal("optimize", file, "--shape", "rows=1..")


def test_processes_are_started_before_a_varied_model_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from eqsat.base.memory_limit import memory_limit
    from eqsat.base.time_budget import TimeBudget
    from eqsat.cli.commands.optimize import _start_searching
    from eqsat.search import crew

    started: list[tuple[int, int]] = []
    monkeypatch.setattr(crew, "start_early", lambda kinds, memory, seconds: started.append((kinds, memory)))
    to_onnx(trace(lambda x: relu(relu(x @ A) @ C), spec((3, A.shape[0]))), tmp_path / "model.onnx")
    _start_searching(tmp_path / "model.onnx", None, None, TimeBudget(20.0))
    _start_searching(tmp_path / "model.onnx", None, 2.0, TimeBudget(20.0))
    _start_searching(tmp_path / "model.onnx", [], 2.0, TimeBudget(20.0))
    assert started == [(3, memory_limit(None)), (3, 2_000_000_000)]
