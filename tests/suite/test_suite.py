"""The suite in the checker, and with a stand-in for CuPy in its processes: what is done, kept, and reported."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat as package
from eqsat.errors import EqsatError
from eqsat.extract.device.table import device
from eqsat.extract.plan.calibrate import MICRO
from eqsat.runs.task import Outcome, Task
from eqsat.suite.figures import vendors_product
from eqsat.suite.fitted import priced
from eqsat.suite.parts import Asked
from eqsat.suite.place import Checker, Gpu, Run
from eqsat.suite.run import run_suite
from support import fake_cupy
from support.cli import document, eqsat, refusal
from support.fake_cupy import FakeCupy

STANDIN = Path(fake_cupy.__file__).parent / "standin"

POINTWISE = tuple(f"pointwise {i}, float32" for i in range(4))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stand-in, here and in worker processes; no tuning results and no calibrated rows but those of the test."""
    monkeypatch.syspath_prepend(str(STANDIN))
    fake = FakeCupy("sm_90")
    fake.cost_us = lambda code, blocks: 300.0
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setenv("EQSAT_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path / "cache"))


def suite(folder: Path, *names: str, on: str = "gpu", code: int = 0) -> dict[str, Any]:
    """The report of a run of what has these names."""
    matched = [option for name in names for option in ("--match", name)]
    made = eqsat("bench", "--suite", "quick", "--on", on, "--minutes", "10", "-o", folder, *matched)
    assert made.exit_code == code, made.output
    return json.loads((folder / "report.json").read_text())


def results(report: dict[str, Any]) -> dict[str, Any]:
    return {each["name"]: each.get("result") for each in report["results"]}


@pytest.mark.usefixtures("gpu")
def test_a_run_checks_calibrates_tunes_and_measures(tmp_path: Path) -> None:
    package.to_onnx(package.trace(lambda x: package.softmax(x, -1), package.spec((8, 16))), tmp_path / "softmax.onnx")
    names = ("stream 0, float16", "calibrate launch", "model softmax")
    options = [option for name in names for option in ("--match", name)]
    folder = tmp_path / "report"
    report = document("bench", "--suite", "quick", "--models", tmp_path, "-o", folder, *options)
    assert report == json.loads((folder / "report.json").read_text())
    assert report["times"] == "measured"
    assert report["card"].startswith("A GPU as h100 (sm_90), driver")
    assert tuple(results(report)) == names
    assert report["calibration"]["figures"]["launch_us"]["value"] == pytest.approx(300, rel=0.1)
    softmax = results(report)["model softmax"]
    assert softmax["times"]["eqsat"] == {"us": 300.0, "spread": 0.0}
    assert softmax["missing"]["torch"].startswith(("ModuleNotFoundError", "ImportError"))
    page = (folder / "report.html").read_text()
    assert "<h2>Calibration</h2>" in page
    assert ("nothing ran under compute-sanitizer" in page) == (shutil.which("compute-sanitizer") is None)
    assert "Geometric mean against as written: 1.00x over 1." in page
    assert device(str(folder / "device.json")).launch_us.source.startswith("fitted by `eqsat bench --suite`")


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(("dtype", "us"), [("float16", 10.0), ("bfloat16", None)])
def test_products_are_timed_against_the_vendors_library(dtype: str, us: float | None) -> None:
    given = Asked(Gpu()).common({}) | {"edge": 32, "dtype": dtype, "rounds": 2}
    found = vendors_product(given, lambda stage: None)
    assert found["times"]["eqsat"] == {"us": 300.0, "spread": 0.0}
    if us is None:
        assert "torch" in found["missing"]["library"]
    else:
        assert found["times"]["library"]["us"] == us


def test_the_checker_predicts_times_and_says_so(tmp_path: Path) -> None:
    report = suite(tmp_path, POINTWISE[0], "calibrate launch", "product of 1024*", on="checker")
    assert (report["times"], report["calibration"]) == ("predicted", None)
    assert list(results(report)) == [
        POINTWISE[0],
        *(f"product of 1024, {t}" for t in ("float32", "float16", "bfloat16")),
    ]
    assert "predicted, not measured" in (tmp_path / "report.html").read_text()
    assert report["rank_correlation"] is None


def test_a_run_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    asked = Asked(Checker(device("mi300x")), match=POINTWISE)
    begun = []

    def interrupt(stage: str, fraction: float) -> None:
        begun.append(stage)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(run_suite(asked, tmp_path, 10.0, interrupt))
    *_, state = run_suite(asked, tmp_path, 10.0, lambda stage, fraction: None)
    checks = state.parts[0]
    assert (checks.planned, len(checks.done)) == (4, 4)
    assert checks.known >= len(begun) == 1
    *_, again = run_suite(asked, tmp_path, 0.0, lambda stage, fraction: None)
    assert again.parts[0].known == 4  # also when there is no time


def test_what_there_is_no_time_for_is_named(tmp_path: Path) -> None:
    asked = Asked(Checker(device("mi300x")), match=POINTWISE)
    *_, state = run_suite(asked, tmp_path, 0.0, lambda stage, fraction: None)
    assert state.parts[0].late == POINTWISE
    assert not state.parts[0].done


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("how", "failure"),
    [
        ("refuses", "CompileFailed"),
        ("dies", "its process died (SIGABRT)"),
        ("loses", "DeviceFailed: the GPU stopped: an illegal memory access"),
    ],
)
def test_a_failing_kernel_is_reported_with_its_file_and_stops_nothing(
    how: str, failure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"STANDIN_{how.upper()}", " = Un(neg) ")
    report = suite(tmp_path, *POINTWISE, code=1)
    (failed,) = (each for each in report["results"] if "failure" in each)
    assert report["failed"] == [failed["name"]] == ["pointwise 2, float32"]
    assert list(results(report)) == list(POINTWISE)
    assert failed["failure"].startswith(failure)
    text = (tmp_path / failed["file"]).read_text()
    monkeypatch.setattr(sys.modules["cupy"], "refuses", lambda code: " = Un(neg) " in code)
    with pytest.raises(EqsatError, match="refused"):
        exec(text, {})


def test_without_a_gpu_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert "no GPU run without CuPy" in refusal("bench", "--suite", "quick", "-o", tmp_path / "report")
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--on", "numpy"), "--suite measures on gpu, or runs in the checker: not on numpy"),
        (("--on", "checker", "-d", "cpu"), "device cpu runs no GPU kernels"),
        (("--on", "checker", "--models", "nowhere"), "--models nowhere: no ONNX files there"),
    ],
)
def test_what_cannot_be_measured_is_refused(options: tuple[str, ...], message: str, tmp_path: Path) -> None:
    assert message in refusal("bench", "--suite", "quick", "-o", tmp_path / "report", *options)


# Prices


def report_of(folder: Path, **changes: Any) -> Path:
    """A report of kernels that take twice what mi300x's row says, and of a program of several kernels."""
    row, names = device("mi300x"), ("launch", "stream of 64 MiB", "product of 1024, float16", "attention, 128 keys")
    results = []
    for name in names:
        us = priced(name).predicted_us(row)
        time, kernel = {"us": 2 * us, "spread": 0.0}, {"name": name, "predicted_us": us}
        if name in MICRO:
            results.append({"name": f"calibrate {name}", "table": "calibration", "result": {"measured": time}})
        else:
            found = {"times": {}, "kernels": [kernel | {"measured": time}]}
            results.append({"name": name, "table": "streams", "result": found})
    odd = {"name": "x", "predicted_us": 1.0, "measured": {"us": 9.0, "spread": 0.0}}
    results += [
        {"name": "towers", "table": "motivating programs", "result": {"times": {}, "kernels": [odd, odd]}},
        {"name": "permuted", "table": "motivating programs", "result": {"times": {}, "kernels": [odd]}},
        {"name": "check towers", "table": "programs", "result": {"kernels": 4}},
        {"name": "tune towers", "table": "tuning", "result": {"stop": "done", "kernels": [odd]}},
        {"name": "row-sum", "table": "motivating programs", "failure": "no answer"},
    ]
    head = {"device": "mi300x", "card": "A card", "date": "2026-01-02", "times": "measured", "calibration": None}
    (folder / "report.json").write_text(json.dumps(head | {"results": results} | changes))
    return folder


def test_a_row_is_fitted_to_the_kernels_of_a_report(tmp_path: Path) -> None:
    facts = document("calibrate", "--from", report_of(tmp_path), "-o", tmp_path / "row.json")
    assert [each["name"] for each in facts["measurements"]] == [
        "launch", "stream of 64 MiB", "product of 1024, float16", "attention, 128 keys"
    ]  # fmt: skip
    assert facts["typical_factor"]["before"] == pytest.approx(2)
    assert facts["typical_factor"]["after"] < 1.05
    source = device(str(tmp_path / "row.json")).launch_us.source
    assert source == "fitted by `eqsat calibrate` to 4 kernels on A card, 2026-01-02"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"times": "predicted"}, "its times are predicted: run `eqsat bench --suite quick` on a GPU"),
        ({"device": "mine"}, "no row of the table is called 'mine'"),
        ({"results": 3}, "not a report of `eqsat bench --suite`: TypeError"),
        (None, "no such file; give the folder of `eqsat bench --suite`"),
    ],
)
def test_a_report_without_times_is_refused(changes: dict[str, Any] | None, message: str, tmp_path: Path) -> None:
    folder = tmp_path if changes is None else report_of(tmp_path, **changes)
    assert message in refusal("calibrate", "--from", folder)


def test_parts_without_tasks_take_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = list[float]()

    def limits(tasks: Iterable[Task], *_: object) -> Iterator[tuple[Task, Outcome, bool]]:
        for task in tasks:
            given.append(task.seconds)
            yield task, Outcome("{}"), False

    monkeypatch.setattr("eqsat.suite.run.run", limits)
    asked = Asked(Checker(device("mi300x")), match=POINTWISE[:1])
    list(run_suite(asked, tmp_path, 0.5, lambda stage, fraction: None))
    assert given == [pytest.approx(30, abs=2)]


@pytest.mark.usefixtures("gpu")
def test_inputs_that_no_output_depends_on_are_not_passed() -> None:
    made = package.trace(lambda x, y: y + 1, package.spec((4,)), package.spec((4,)))
    plan = package.optimize(made, device="h100", measure=False).plan
    inputs = {name: np.ones(4, np.float32) for name in made.input_names}
    (got,) = Gpu().results(plan, inputs)
    np.testing.assert_array_equal(got, [2.0] * 4)
    assert Gpu().times({"plan": Run(plan, inputs)}, 2)["plan"].us == 300


def test_names_that_nothing_has_are_refused(tmp_path: Path) -> None:
    said = refusal("bench", "--suite", "quick", "--on", "checker", "-o", tmp_path / "report", "--match", "none *")
    assert said == "--match none *: nothing of the suite has such a name"
    assert refusal("bench", tmp_path / "m.onnx", "--match", "x").startswith("--match: is an option of --suite")
