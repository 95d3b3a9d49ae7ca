"""Runtimes that execute model files, and copies of these files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from eqsat.errors import InputError
from eqsat.extract.device.table import DEVICES
from eqsat.frontends.execution import RUNTIMES, OnnxRuntime, RuntimeRefuses, installed, runtime
from eqsat.frontends.onnx.file.copy import copied_early, copy_model
from support.cli import A, C, chain
from support.onnx_models import FLOAT, model, node, value

X = np.ones((2, 3), np.float32)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    onnx.save(chain(), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def test_every_runtime_of_a_device_is_known():
    assert {row.runtime for row in DEVICES.values()} - {""} <= set(RUNTIMES)
    assert DEVICES["cpu"].runtime == "onnxruntime"


def test_a_file_runs_on_inputs_by_name(saved: Path) -> None:
    found = runtime("onnxruntime")
    assert isinstance(found, OnnxRuntime)
    for threads in (1, 2):
        (y,) = found.load(saved, threads)({"x": X, "unknown": X})
        np.testing.assert_allclose(y, X @ A @ C, rtol=1e-5)


def test_a_refusal_is_one_line(saved: Path) -> None:
    found = OnnxRuntime()
    foreign = model([node("Own", ["x"], ["y"], domain="mine")], outputs=(value("y", (2, 3), FLOAT),), domain="mine")
    onnx.save(foreign, saved.with_name("foreign.onnx"))
    with pytest.raises(RuntimeRefuses, match=r"Own.*"):
        found.load(saved.with_name("foreign.onnx"), 1)
    with pytest.raises(RuntimeRefuses):
        found.load(saved, 1)({"x": X[:, :2]})


def test_a_file_whose_name_is_not_utf8_is_refused() -> None:
    for load in (lambda: OnnxRuntime().load("\udcff.onnx", 1), lambda: OnnxRuntime().plainly("\udcff.onnx", ["y"])):
        with pytest.raises(RuntimeRefuses, match="not UTF-8"):
            load()


def test_what_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="unknown runtime 'onnxrun'"):
        runtime("onnxrun")

    def missing() -> OnnxRuntime:
        raise ImportError

    monkeypatch.setitem(RUNTIMES, "onnxruntime", missing)
    assert runtime("onnxruntime") is None
    with pytest.raises(InputError, match="pip install onnxruntime"):
        installed("onnxruntime")


def test_a_copy_is_the_same_file(saved: Path) -> None:
    copy_model(saved, saved.with_name("copy.onnx"))
    assert saved.with_name("copy.onnx").read_bytes() == saved.read_bytes()


def test_a_copy_has_its_external_data_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    options: Any = {"save_as_external_data": True, "all_tensors_to_one_file": False, "size_threshold": 0}
    onnx.save(chain(), tmp_path / "model.onnx", **options)
    copy_model(tmp_path / "model.onnx", folder / "copy.onnx")
    assert sorted(file.name for file in folder.iterdir()) == ["copy.onnx", "copy.onnx.data"]
    assert onnx.load(folder / "copy.onnx") == onnx.load(tmp_path / "model.onnx")


def test_an_early_copy_appears_when_it_is_kept(saved: Path) -> None:
    target = saved.with_name("copy.onnx")
    target.write_text("old")
    with copied_early(saved, target) as copy:
        assert target.read_text() == "old"
        copy.keep()
        assert target.read_bytes() == saved.read_bytes()
    assert sorted(file.name for file in saved.parent.iterdir()) == ["copy.onnx", "model.onnx"]


def test_an_early_copy_that_is_not_kept_leaves_nothing(saved: Path) -> None:
    target = saved.with_name("copy.onnx")
    with pytest.raises(KeyboardInterrupt), copied_early(saved, target):
        raise KeyboardInterrupt
    assert [file.name for file in saved.parent.iterdir()] == ["model.onnx"]


def test_an_early_copy_that_fails_says_so_when_it_is_kept(saved: Path) -> None:
    with copied_early(saved, saved.parent / "none" / "copy.onnx") as copy, pytest.raises(InputError, match="no such"):
        copy.keep()
    with copied_early(saved.with_name("none.onnx"), saved.with_name("copy.onnx")) as copy:
        pass


def test_a_copy_beside_other_work_that_fails_in_any_way_is_no_success(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: object) -> None:
        raise MemoryError

    monkeypatch.setattr("eqsat.frontends.onnx.file.copy.copy_model", fails)
    with copied_early(saved, saved.with_name("copy.onnx")) as copy, pytest.raises(MemoryError):
        copy.keep()
