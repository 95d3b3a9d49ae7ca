"""`eqsat calibrate` for a device whose programs run in onnxruntime."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from eqsat.extract.device import files as device_files
from eqsat.extract.device.table import DEVICES, device
from eqsat.extract.plan import operators
from eqsat.program import ops
from support.cli import chain, document, onnx_model, printed, refusal
from support.runtime_models import NODES, runtime_model


@pytest.fixture(autouse=True)
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No calibrated rows but those of the test."""
    monkeypatch.setenv("EQSAT_CONFIG_DIR", str(tmp_path / "configuration"))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators that take no time."""
    shown = {name: operators.OPERATORS[name] for name in (operators.ONE, operators.MANY, "addition of 2^13")}
    shown |= {"product": operators._product(32, 64, 64), "erf": operators._of(ops.erf, (4096,))}
    monkeypatch.setattr(operators, "OPERATORS", shown)


@pytest.mark.usefixtures("few")
def test_operators_of_onnxruntime_are_measured_and_fitted() -> None:
    facts = document("calibrate", "--device", "cpu", "--rounds", "8")
    assert facts["device"] == "cpu"
    assert [each["name"] for each in facts["measurements"]] == list(operators.OPERATORS)
    assert all(each["measured_us"] > 0 for each in facts["measurements"])
    assert device_files.user_file("cpu").exists()
    row = device("cpu")
    assert row.launch_us.source.startswith("fitted by `eqsat calibrate` to 5 operators on ")
    assert "one thread of onnxruntime" in row.launch_us.source
    assert 0 < row.launch_us.value < 100


def test_recorded_times_of_operators_are_fitted_again(tmp_path: Path) -> None:
    times = {name: operators.executed(name).predicted_us(DEVICES["cpu"]) * 2 for name in list(operators.OPERATORS)[:12]}
    entries = [{"name": name, "measured_us": us} for name, us in times.items()]
    recorded = {"device": "cpu", "machine": "another machine", "measurements": entries}
    (tmp_path / "times.json").write_text(json.dumps(recorded))
    facts = document("calibrate", "--measurements", tmp_path / "times.json", "-o", tmp_path / "row.json")
    assert facts["typical_factor"]["after"] < 1.02
    assert facts["figures"]["launch_us"]["value"] == pytest.approx(2 * DEVICES["cpu"].launch_us.value, rel=0.05)


def test_an_unknown_operator_is_refused(tmp_path: Path) -> None:
    (tmp_path / "times.json").write_text(
        '{"device": "cpu", "machine": "", "measurements": [{"name": "erff", "measured_us": 1}]}'
    )
    assert "unknown operator 'erff'" in refusal("calibrate", "--measurements", tmp_path / "times.json")


def test_prices_of_a_models_operators_are_compared_with_their_times(tmp_path: Path) -> None:
    for name in list(NODES)[:2]:
        onnx.save(runtime_model(name), tmp_path / f"{name}.onnx")
    (tmp_path / "broken.onnx").write_bytes(b"")
    found = document("calibrate", "--device", "cpu", "--report", tmp_path)
    assert found["models"] == 2
    assert list(found["left_out"]) == ["broken.onnx"]
    assert found["operators"] == sum(kind["operators"] for kind in found["kinds"]) > 4
    assert -1 <= found["rank_correlation"] <= 1
    text = printed("calibrate", "--device", "cpu", "--report", tmp_path)
    assert "Rank correlation of predicted and measured times: " in text
    assert "Left out: broken.onnx: " in text


def test_operators_of_one_price_have_no_rank_correlation(tmp_path: Path) -> None:
    nodes = [onnx.helper.make_node(kind, [of], [kind]) for kind, of in (("Relu", "x"), ("Neg", "z"), ("Abs", "z"))]
    shapes: dict[str, list[int | str]] = {name: [64, 64] for name in ("x", "z", "Relu", "Neg", "Abs")}
    inputs, outputs = ({name: shapes[name] for name in names} for names in (("x", "z"), ("Relu", "Neg", "Abs")))
    onnx.save(onnx_model(nodes, inputs, outputs, {}), tmp_path / "equal.onnx")
    assert "measured times: none over" in printed("calibrate", "--device", "cpu", "--report", tmp_path / "equal.onnx")


def test_a_report_of_one_operator_is_of_the_cpu_by_default(tmp_path: Path) -> None:
    node = onnx.helper.make_node("Neg", ["x"], ["y"])
    shape: list[int | str] = [64, 64]
    onnx.save(onnx_model([node], {"x": shape}, {"y": shape}, {}), tmp_path / "one.onnx")
    found = document("calibrate", "--report", tmp_path / "one.onnx")
    assert (found["device"], found["operators"], found["rank_correlation"]) == ("cpu", 1, None)


def test_a_report_needs_operators_and_a_runtime(tmp_path: Path) -> None:
    onnx.save(chain(), tmp_path / "chain.onnx")
    assert "arrays of at least" in refusal("calibrate", "--device", "cpu", "--report", tmp_path / "chain.onnx")
    assert "use --device cpu" in refusal("calibrate", "--device", "h100", "--report", tmp_path / "chain.onnx")
    foreign = onnx_model([onnx.helper.make_node("Own", ["x"], ["y"])], {"x": [2, 3]}, {"y": [2, 3]}, {})
    onnx.save(foreign, tmp_path / "chain.onnx")
    assert "no operators to compare; " in refusal("calibrate", "--device", "cpu", "--report", tmp_path / "chain.onnx")
