"""Sweeps: the same bytes wherever they run, nothing done twice, and a non-zero exit where something got worse."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import eqsat
from eqsat.sweeping.model import check_sizes, largest_first, tasks
from support.cli import eqsat as command
from support.cli import printed, refusal
from support.cluster import local_cluster


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("models")
    a, b = (np.random.default_rng(i).standard_normal((16, 16)).astype(np.float32) for i in (1, 2))
    eqsat.to_onnx(eqsat.trace(lambda x: eqsat.relu(x @ a @ b), eqsat.spec((8, 16))), folder / "chain.onnx")
    eqsat.to_onnx(eqsat.trace(lambda x: eqsat.softmax(x @ a, axis=-1), eqsat.spec((8, 16))), folder / "softmax.onnx")
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def swept(models: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("swept")
    options = ("--devices", "mi300x,h100", "--numerics", "reassociate,exact", "--workers", "1")
    printed("sweep", *models, *options, "-o", out)
    return out


def document(folder: Path) -> Any:
    return json.loads((folder / "sweep.json").read_text())


def test_a_sweep_says_what_each_model_gains_and_which_rules_have_a_part_in_it(swept: Path) -> None:
    data = document(swept)
    rows = {(r["model"], r["device"], r["numerics"]): r for r in data["rows"]}
    assert len(rows) == 8
    better, exact = rows["chain", "mi300x", "reassociate"], rows["chain", "mi300x", "exact"]
    assert better["result_predicted_us"] < better["source_predicted_us"] == exact["result_predicted_us"]
    assert better["result_flops"] < better["source_flops"]
    assert better["rules"] == {"matmul-of-constants-right": 1}
    (rule,) = (r for r in data["rules"] if r["rule"] == "matmul-of-constants-right")
    assert (rule["rows"], rule["steps"]) == (2, 2)
    saved = [r["source_predicted_us"] - r["result_predicted_us"] for r in rows.values() if r["rules"]]
    assert rule["saved_us"] == pytest.approx(sum(saved), abs=1e-6)
    page = (swept / "sweep.html").read_text()
    assert "matmul-of-constants-right" in page
    assert page.count("<tr><td") == 8 + len(data["rules"])


def test_a_size_that_no_model_has_is_refused(models: list[Path], tmp_path: Path) -> None:
    line = refusal("sweep", *models, "--shape", "batch=2", "-o", tmp_path / "out")
    assert line == "--shape batch names no dynamic dimension of an input of any model; leave it out"
    assert not (tmp_path / "out").exists()


def test_a_size_that_one_model_has_is_taken_for_all(models: list[Path], tmp_path: Path) -> None:
    dynamic = onnx.load(models[0])
    dynamic.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(dynamic, tmp_path / "dynamic.onnx")
    check_sizes([models[0], tmp_path / "dynamic.onnx"], {"batch": 2})


def test_the_largest_models_come_first(tmp_path: Path) -> None:
    sizes = {"small": 1, "large": 300, "middle": 20}
    models = {name: tmp_path / name for name in sizes}
    for name, path in models.items():
        path.write_bytes(bytes(sizes[name]))
    asked = tasks(models, ["mi300x", "cpu"], ["reassociate"], {}, 1.0, 1 << 30)
    found = [task.name.split()[:2] for task in largest_first(asked)]
    assert found == [[name, device] for name in ("large", "middle", "small") for device in ("mi300x", "cpu")]


def test_two_dask_workers_write_the_bytes_that_one_process_writes(
    models: list[Path], swept: Path, tmp_path: Path
) -> None:
    with local_cluster() as cluster:
        options = ("--devices", "mi300x,h100", "--numerics", "reassociate,exact", "--on", cluster.scheduler_address)
        assert "8 results, 0 of them known" in printed("sweep", *models, *options, "-o", tmp_path)
    assert (tmp_path / "sweep.json").read_bytes() == (swept / "sweep.json").read_bytes()


def test_what_got_worse_fails_and_what_is_known_is_not_searched_again(models: list[Path], swept: Path) -> None:
    before = swept / "before"
    before.mkdir()
    options = ("--devices", "mi300x", "-o", swept, "--against", before)
    assert "holds no sweep.json" in refusal("sweep", *models, *options)
    data = document(swept)
    (before / "sweep.json").write_text(json.dumps(data))
    assert "2 results, 2 of them known" in printed("sweep", *models, *options)
    data["rows"][0]["result_predicted_us"] /= 1.01
    (before / "sweep.json").write_text(json.dumps(data))
    found = command("sweep", *models, *options)
    assert found.exit_code == 1
    assert "worse: chain mi300x reassociate" in found.stdout
    assert "(+1.0%)" in found.stdout


def test_other_figures_of_a_device_are_another_task(models: list[Path], tmp_path: Path) -> None:
    """A file of figures that is written anew, as a calibration does, has results of its own."""
    device = tmp_path / "mine.json"
    found = []
    for launch in (1000.0, 3.0, 1000.0):
        figures = {"launch_us": {"value": launch, "source": "a guess"}}
        device.write_text(json.dumps({"schema": 1, "base": "h100", "figures": figures}))
        printed("sweep", models[0], "--devices", str(device), "-o", tmp_path / "out", "--workers", "1")
        (row,) = document(tmp_path / "out")["rows"]
        found.append(row["result_predicted_us"])
    assert found[0] > 1000 > found[1]
    assert found[2] == found[0]


def test_operators_behind_a_program_are_counted(tmp_path: Path) -> None:
    """`eqsat optimize` takes such a model, too."""
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("NonZero", ["y"], ["places"])]
    x = helper.make_tensor_value_info("x", 1, [3, 4])
    places = helper.make_tensor_value_info("places", 7, [2, None])
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [places]))
    onnx.save(model, tmp_path / "places.onnx")
    said = printed("sweep", tmp_path / "places.onnx", "-o", tmp_path / "out", "--workers", "1")
    assert "Operators that follow the program as written, in no figure: places (1)." in said
    (row,) = document(tmp_path / "out")["rows"]
    assert (row["after"], row["optimal"], row["source_kernels"]) == (1, False, 1)
    assert "operators behind it, in no figure: 1" in (tmp_path / "out" / "sweep.html").read_text()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"result_predicted_us": None}, "a price of None"),
        ({"result_predicted_us": math.nan}, "a price of nan"),
        ({"result_predicted_us": "1"}, "a price of '1'"),
        ({"model": ["chain"]}, "is no text"),
        ({"refused": 3}, "3 is no text"),
    ],
)
def test_a_document_is_judged_before_it_is_compared_with(
    models: list[Path], swept: Path, tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    data = document(swept)
    data["rows"][0] |= changed
    (tmp_path / "sweep.json").write_text(json.dumps(data))
    line = refusal("sweep", *models, "--devices", "mi300x", "-o", tmp_path / "out", "--against", tmp_path)
    assert line.startswith(f"{tmp_path}/sweep.json: is not the document of a sweep (")
    assert said in line


def test_a_model_without_a_result_is_a_row_that_says_why(models: list[Path], tmp_path: Path) -> None:
    model = tmp_path / "wrong.onnx"
    model.write_bytes(models[0].read_bytes()[:200])
    options = (models[0], model, "-o", tmp_path / "out", "--workers", "1")
    assert command("sweep", *options).exit_code == 1
    assert command("sweep", *options, "--against", tmp_path / "out").exit_code == 0, "no worse than before"
    rows = document(tmp_path / "out")["rows"]
    assert [(r["model"], "refused" in r) for r in rows] == [("chain", False), ("wrong", True)]
    assert "no such file" in refusal("sweep", tmp_path / "none.onnx", "-o", tmp_path / "out").lower()
