"""`eqsat run`: inputs, outputs and sizes, and what it refuses."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from eqsat.cli.shared import arrays as stored
from support.cli import A, C, X, chain, document, eqsat, printed, refusal, saved


def test_run_computes_the_outputs_of_given_inputs(model: Path, tmp_path: Path) -> None:
    inputs, outputs = saved(tmp_path / "x.npz", x=X), tmp_path / "y.npz"
    assert "2 x 5" in printed("run", model, "--inputs", inputs, "-o", outputs)
    with np.load(outputs) as file:
        np.testing.assert_allclose(file["y"], X @ A @ C, rtol=1e-6)


def test_run_draws_the_same_inputs_again(model: Path, tmp_path: Path) -> None:
    drawn = []
    for seed in (1, 1, 2):
        printed("run", model, "--seed", str(seed), "-o", tmp_path / "y.npz")
        with np.load(tmp_path / "y.npz") as file:
            drawn.append(file["y"])
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])


@pytest.mark.parametrize("key", ["out_0", "out_y"])
def test_run_compares_with_expected_outputs(model: Path, tmp_path: Path, key: str) -> None:
    right, wrong = X @ A @ C, X @ A @ C + 1
    good = saved(tmp_path / "good.npz", in_x=X, **{key: right})
    assert document("run", model, "--inputs", good)["outputs"][0]["passed"] is True
    bad = saved(tmp_path / "bad.npz", in_x=X, **{key: wrong})
    result = eqsat("run", model, "--inputs", bad)
    assert result.exit_code == 1
    assert "NO" in result.stdout


def test_an_array_that_is_given_twice_is_refused(model: Path, tmp_path: Path) -> None:
    both = saved(tmp_path / "both.npz", x=X, in_x=X + 1)
    assert "holds 'x' under two names" in refusal("run", model, "--inputs", both)
    expected = saved(tmp_path / "expected.npz", x=X, out_0=X @ A @ C, out_y=X @ A @ C)
    assert "holds 'y' under two names" in refusal("run", model, "--inputs", expected)
    twice = saved(tmp_path / "twice.npz", x=X)
    with zipfile.ZipFile(twice) as archive:
        data = archive.read("x.npy")
    with zipfile.ZipFile(twice, "a") as archive:
        archive.writestr("x", data)
    assert "holds two arrays 'x'" in refusal("run", model, "--inputs", twice)


def test_a_default_value_cannot_be_given(tmp_path: Path) -> None:
    path = tmp_path / "defaults.onnx"
    found = chain(2)
    (stored, *_) = found.graph.initializer
    found.graph.input.append(onnx.helper.make_tensor_value_info(stored.name, onnx.TensorProto.FLOAT, stored.dims))
    onnx.save(found, path)
    given = saved(tmp_path / "x.npz", x=X, **{stored.name: A})
    assert f"input '{stored.name}' has a default value" in refusal("run", path, "--inputs", given)
    assert "taken as constants" in printed("optimize", path)


def test_run_fixes_dynamic_dimensions(tmp_path: Path) -> None:
    path = tmp_path / "dynamic.onnx"
    onnx.save(chain("batch"), path)
    assert "batch" in refusal("run", path)
    assert document("run", path, "--shape", "batch=7")["outputs"][0]["shape"] == [7, 5]
    assert "dynamic dimensions batch" in refusal("run", path)


BAD_SHAPES = {"batch": "NAME=SIZE", "batch=many": "NAME=SIZE", "bacth=7": "batch"}


@pytest.mark.parametrize("given", BAD_SHAPES)
def test_a_bad_shape_option_is_refused(tmp_path: Path, given: str) -> None:
    path = tmp_path / "dynamic.onnx"
    onnx.save(chain("batch"), path)
    assert BAD_SHAPES[given] in refusal("run", path, "--shape", given)


BAD_ARRAYS: dict[str, tuple[dict[str, np.ndarray[Any, Any]], str]] = {
    "a name that is no input": ({"x": X, "z": X}, "'z'"),
    "an input that is missing": ({}, "'x'"),
    "another shape": ({"x": X.T}, "(2, 3)"),
    "another dtype": ({"x": X.astype(np.float64)}, "float32"),
    "objects": ({"x": np.array([None, X], dtype=object)}, "holds Python objects; save plain arrays"),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_bad_input_arrays_are_refused(model: Path, tmp_path: Path, case: str) -> None:
    arrays, says = BAD_ARRAYS[case]
    assert says in refusal("run", model, "--inputs", saved(tmp_path / "x.npz", **arrays))


def test_files_that_hold_no_arrays_are_refused(model: Path, tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("x = 1")
    np.save(tmp_path / "single.npy", X)
    assert "no such file" in refusal("run", model, "--inputs", tmp_path / "missing.npz")
    assert "no .npz file" in refusal("run", model, "--inputs", tmp_path / "text.npz")
    assert "single array" in refusal("run", model, "--inputs", tmp_path / "single.npy")


def zipped(path: Path, shape: tuple[int, ...], zeros: int) -> Path:
    """An .npz file of an array x that says what shape it has and holds so many bytes of zeros."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, {"shape": shape, "fortran_order": False, "descr": "<f4"})
        for _ in range(zeros >> 24):
            member.write(bytes(1 << 24))
        member.write(bytes(zeros % (1 << 24)))
    return path


def test_arrays_are_judged_before_they_are_decompressed(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lies = zipped(tmp_path / "lies.npz", (1 << 40,), 64)
    assert "not as long as its shape" in refusal("run", model, "--inputs", lies)
    large = zipped(tmp_path / "large.npz", (1 << 26,), 1 << 28)
    assert large.stat().st_size < 1 << 20
    monkeypatch.setattr(stored, "memory_limit", lambda given: stored.in_use() + (1 << 27))
    monkeypatch.setattr(np, "load", lambda *args, **options: pytest.fail("it was decompressed"))
    assert "268435456 bytes of arrays" in refusal("run", model, "--inputs", large)
    assert "268435456 bytes of arrays" in refusal("optimize", model, "--inputs", large)


def test_run_takes_the_optimised_plan(model: Path, tmp_path: Path) -> None:
    given = saved(tmp_path / "x.npz", x=X, out_y=X @ A @ C)
    answer = document("run", model, "--inputs", given, "--optimize")
    assert answer["optimized"]
    assert answer["outputs"][0]["passed"]
