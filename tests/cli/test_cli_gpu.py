"""Commands that measure on a GPU: without one they say so in one line, with a stand-in they measure."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat as package
from eqsat.extract.device import files as device_files
from eqsat.extract.device.table import device
from eqsat.extract.plan import calibrate
from eqsat.gpu.run import choices
from support.cli import document, eqsat, printed, refusal
from support.fake_cupy import FakeCupy

X = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """relu(x @ A @ B): one product once A and B are folded."""
    a, b = (np.random.default_rng(i).standard_normal((16, 16)).astype(np.float32) for i in (1, 2))
    path = tmp_path_factory.mktemp("model") / "chain.onnx"
    package.to_onnx(package.trace(lambda x: package.relu(x @ a @ b), package.spec((8, 16))), path)
    return path


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No tuning results and no calibrated rows but those of the test."""
    tuned: dict[str, str] = {}
    monkeypatch.setattr(choices, "kept_text", lambda kind, name: tuned.get(name))
    monkeypatch.setattr(choices, "keep_text", lambda kind, name, text: tuned.__setitem__(name, text))
    monkeypatch.setenv("EQSAT_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> FakeCupy:
    fake = FakeCupy("sm_90")
    fake.cost_us = lambda code, blocks: 300.0
    monkeypatch.setitem(sys.modules, "cupy", fake)
    return fake


@pytest.mark.parametrize(
    "command",
    [
        ("optimize", "--tune", "1"),
        ("optimize", "--device", "auto"),
        ("run", "--on", "gpu"),
        ("run", "--on", "gpu", "--tune", "1"),
        ("bench", "--on", "gpu"),
        ("calibrate",),
    ],
    ids=" ".join,
)
def test_without_a_gpu_there_is_one_line(command: tuple[str, ...], model: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    name, *options = command
    files = [] if name == "calibrate" else [model]
    assert "no GPU run without CuPy: pip install 'eqsat[rocm]'" in refusal(name, *files, *options)


@pytest.mark.parametrize("on", ["simt", "numpy"])
def test_times_of_a_cpu_tune_nothing(on: str, model: Path) -> None:
    message = refusal("run", model, "--on", on, "--tune", "1")
    assert message == f"--tune measures kernels on a GPU: times on {on} say nothing about one; use --on gpu"


# Tuning


@pytest.mark.usefixtures("cupy")
def test_a_result_is_tuned_and_says_what_came_of_it(model: Path) -> None:
    report = document("optimize", model, "--device", "auto", "--tune", "1000")
    assert report["device"] in ("h100", "h200")
    tuning = report["tuning"]
    assert (tuning["stop"], tuning["machine"][:8]) == ("done", "A GPU as")
    (kernel,) = tuning["kernels"]
    assert (kernel["us"], kernel["untuned_us"], kernel["count"], kernel["left"]) == (300.0, 300.0, 1, 0)
    assert kernel["choice"] == "as the cost model chose"
    text = printed("optimize", model, "--device", "auto", "--tune", "1000")
    assert "Measured kernels take 300 us -> 300 us; remembered for runs to come." in text


def test_a_run_uses_what_was_tuned(model: Path, cupy: FakeCupy, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=X)
    options = ("run", model, "--inputs", tmp_path / "x.npz", "--on", "gpu", "--optimize", "--device", "auto")
    facts = document(*options, "--tune", "1000")
    assert facts["tuning"]["stop"] == "done"
    assert facts["memory"]["peak"] == sum(v for k, v in facts["memory"].items() if k != "peak")
    assert facts["memory"]["inputs"] == X.nbytes
    launches = cupy.launches
    assert "of device memory" in printed(*options)
    assert cupy.launches == launches + 1


# Benchmarks


@pytest.mark.usefixtures("cupy")
@pytest.mark.parametrize("on", ["numpy", "gpu"])
def test_programs_are_timed_against_themselves(on: str, tmp_path: Path) -> None:
    weights = [np.random.default_rng(i).standard_normal((8, 8)).astype(np.float32) for i in range(3)]
    chain = package.trace(lambda x: x @ weights[0] @ weights[1] @ weights[2], package.spec((4, 8)))
    package.to_onnx(chain, tmp_path / "chain.onnx")
    facts = document("bench", tmp_path / "chain.onnx", "--on", on, "--rounds", "2")
    (row,) = facts["programs"]
    assert facts["device"] == ("cpu" if on == "numpy" else "h100")
    assert row["ratio"] == pytest.approx(row["before_us"] / row["after_us"])
    assert facts["geometric_mean"] == pytest.approx(row["ratio"])
    assert row["passed"]
    assert 0 <= row["error"] < 1e-5
    if on == "gpu":
        assert (row["before_us"], row["after_us"]) == (600.0, 300.0)  # two launches, and one


def test_a_wrong_result_is_no_speed(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from eqsat.cli.commands import bench

    right = bench._numpy_run
    calls = iter(range(2))

    def wrong_the_second_time(program: Any, inputs: Any) -> Any:
        made = right(program, inputs)
        return bench.Contender(made.sample, {name: a + next(calls) for name, a in made.outputs.items()})

    monkeypatch.setattr(bench, "_numpy_run", wrong_the_second_time)
    result = eqsat("bench", model, "--rounds", "1")
    assert result.exit_code == 1
    assert " NO " in result.stdout


# Calibration


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Micro-kernels that a checker can run."""
    shown = {
        "launch": calibrate._map("float32", 256),
        "stream": calibrate._map("float32", 4096),
        "rows": calibrate._row_sums("float32", 16, 64),
        "product": calibrate._product("float16", 32, 32, 32),
    }
    monkeypatch.setattr(calibrate, "MICRO", shown)


@pytest.mark.usefixtures("small", "cupy")
def test_a_calibrated_row_replaces_the_tables(tmp_path: Path) -> None:
    text = printed("calibrate", "--rounds", "2")
    file = device_files.user_file("h100")
    assert f"{file}: the fitted row" in text
    assert "Rank correlation of predicted and measured times" in text
    row = device("h100")
    assert row.launch_us.value == pytest.approx(300, rel=0.05)
    assert row.launch_us.source.startswith("fitted by `eqsat calibrate` to 4 kernels on A GPU as h100 (sm_90), driver")
    shown = printed("devices", "h100")
    assert f"{row.launch_us.value:g}" in shown
    assert "fitted by `eqsat" in shown
    assert tmp_path in file.parents


@pytest.mark.usefixtures("small", "cupy")
def test_recorded_times_give_the_same_row(tmp_path: Path) -> None:
    times, first, second = tmp_path / "times.json", tmp_path / "first.json", tmp_path / "second.json"
    printed("calibrate", "-o", first, "--json", times, "--rounds", "2")
    facts = document("calibrate", "--measurements", times, "-o", second)
    assert second.read_text() == first.read_text()
    recorded = json.loads(times.read_text())
    assert facts | {"file": ""} == recorded | {"file": ""}
    assert set(facts["rank_correlation"]) == set(facts["typical_factor"]) == {"before", "after"}
    assert device("h100").launch_us.value < 10  # no file in the configuration folder
    assert device(str(first)).launch_us.value > 100


def test_recorded_times_need_no_gpu(tmp_path: Path) -> None:
    times = {name: calibrate.micro(name).predicted_us(device("mi300x")) * 2 for name in ("launch", "stream of 64 MiB")}
    entries = [{"name": name, "measured_us": us} for name, us in times.items()]
    document_ = {"device": "mi300x", "machine": "another machine", "measurements": entries}
    (tmp_path / "times.json").write_text(json.dumps(document_))
    row = tmp_path / "row.json"
    facts = document("calibrate", "--measurements", tmp_path / "times.json", "-o", row)
    assert facts["typical_factor"]["after"] < 1.01
    assert device(str(row)).launch_us.value == pytest.approx(2 * 2.0, rel=0.02)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no such file; check the path"),
        (
            "{}",
            "no measurements (device, machine, and measurements of name and measured_us): "
            "there is no entry 'measurements'",
        ),
        ('{"device": "mi3", "machine": "", "measurements": []}', "unknown device 'mi3'"),
        ('{"device": "h100", "machine": "", "measurements": []}', "a fit takes times of 1e-06 to 1e+12 us, got none"),
    ],
)
def test_recorded_times_that_are_none_are_refused(text: str | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "times.json"
    if text is not None:
        file.write_text(text)
    assert message in refusal("calibrate", "--measurements", file)
