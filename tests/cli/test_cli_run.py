"""`eqsat run`: inputs, outputs and sizes, and what it refuses."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from eqsat.base.numerics import np_dtype
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


HEADERS = {
    "nested": "(" * 9000,
    "signs": "-" * 9000 + "1",
    "a list as a key": "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), []: 1}",
    "a size beyond all": f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({2**70}, 0)}}",
    "a truth value as a size": "{'descr': '<f4', 'fortran_order': True, 'shape': (True, 6)}",
}


@pytest.mark.parametrize("case", HEADERS)
def test_arrays_of_malformed_headers_are_refused(model: Path, tmp_path: Path, case: str) -> None:
    text = HEADERS[case].encode()
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(24))
    assert "no .npz file of plain arrays" in refusal("run", model, "--inputs", tmp_path / "x.npz")


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_broken_compressed_arrays_are_refused(model: Path, tmp_path: Path, method: int) -> None:
    path = saved(tmp_path / "x.npz", x=X)
    with zipfile.ZipFile(path) as plain, zipfile.ZipFile(tmp_path / "y.npz", "w", method) as packed:
        packed.writestr("x.npy", plain.read("x.npy"))
    data = (tmp_path / "y.npz").read_bytes()
    at = data.index(b"x.npy") + 9
    (tmp_path / "y.npz").write_bytes(data[:at] + bytes(byte ^ 0x5A for byte in data[at : at + 16]) + data[at + 16 :])
    assert "no .npz file of plain arrays" in refusal("run", model, "--inputs", tmp_path / "y.npz")


NO_NUMBERS = {
    "text": np.full((2, 5), "a"),
    "times": np.zeros((2, 5), "M8[s]"),
    "complex numbers": np.ones((2, 5), np.complex64),
    "records": np.zeros((2, 5), [("a", "<f4")]),
    "bytes": np.zeros((2, 5), "V4"),
}


@pytest.mark.parametrize("case", NO_NUMBERS)
def test_expected_outputs_that_are_no_numbers_are_refused(model: Path, tmp_path: Path, case: str) -> None:
    given = saved(tmp_path / "x.npz", x=X, out_y=NO_NUMBERS[case])
    assert "no numbers of a program" in refusal("run", model, "--inputs", given)


def test_expected_outputs_may_be_bytes_of_their_type(tmp_path: Path) -> None:
    path, dtype = tmp_path / "half.onnx", onnx.TensorProto.BFLOAT16
    ends = [onnx.helper.make_tensor_value_info(name, dtype, [2, 3]) for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), path)
    x = X.astype(np_dtype("bfloat16"))
    given = saved(tmp_path / "x.npz", x=x, out_y=np.maximum(x, 0))
    assert document("run", path, "--inputs", given)["outputs"][0]["passed"]
    bare = saved(tmp_path / "bare.npz", x=x, out_y=np.zeros((2, 3), "V1"))
    assert "'y' holds bare bytes" in refusal("run", path, "--inputs", bare)


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
