"""Bad ONNX input: one line that says what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from eqsat.errors import DtypeError, InputError, ShapeError
from eqsat.frontends.onnx.read.model import from_onnx
from eqsat.frontends.onnx.write.model import to_onnx
from eqsat.program import ops
from eqsat.program.ir import Program
from support.onnx_models import FLOAT, INT64, RELU, model, node, tensor, value

EACH = helper.make_graph([node("Relu", ["row"], ["out"])], "each", [value("row", (3,))], [value("out", (3,))])

BAD_MODELS: dict[str, tuple[Callable[[], onnx.ModelProto], type[InputError], list[str]]] = {
    "undefined name": (
        lambda: model([node("Relu", ["x"], ["hidden"]), node("Relu", ["hiden"], ["y"], name="act")]),
        InputError,
        ["Relu node 'act'", "'hiden'", "did you mean 'hidden'"],
    ),
    "undefined name in a body": (
        lambda: model([node("If", ["c"], ["y"], then_branch=body("x"), else_branch=body("z"))], [value("x"), BOOL]),
        InputError,
        ["If node that makes 'y'", "'z'"],
    ),
    "output that nothing makes": (lambda: model([node("Relu", ["x"], ["z"])]), InputError, ["output 'y'", "no node"]),
    "cycle": (
        lambda: model([node("Add", ["x", "b"], ["a"], name="m"), node("Relu", ["a"], ["b"], name="n"), RELU]),
        InputError,
        ["Add node 'm'", "Relu node 'n'", "cycle"],
    ),
    "duplicate name": (
        lambda: model([RELU, node("Exp", ["x"], ["y"], name="again")]),
        InputError,
        ["'y'", "twice", "Relu node 'act'", "Exp node 'again'"],
    ),
    "duplicate input": (lambda: model([RELU], [value("x"), value("x")]), InputError, ["'x'", "twice"]),
    "duplicate output": (
        lambda: model([RELU], outputs=[value("y", None), value("y", None)]),
        InputError,
        ["output 'y'", "twice"],
    ),
    "mismatched shapes": (
        lambda: model([node("MatMul", ["x", "w"], ["y"], name="mm")], [value("x"), value("w", (4, 5))]),
        ShapeError,
        ["MatMul node 'mm'", "(2, 3) @ (4, 5)"],
    ),
    "shapes that do not broadcast": (
        lambda: model([node("Add", ["x", "w"], ["y"], name="sum")], [value("x"), value("w", (2,))]),
        ShapeError,
        ["Add node 'sum'", "(2, 3) and (2,)"],
    ),
    "wrong dtype": (
        lambda: model([node("Add", ["x", "w"], ["y"], name="sum")], [value("x"), value("w", code=INT64)]),
        DtypeError,
        ["Add node 'sum'", "float32 and int64"],
    ),
    "declared dtype": (
        lambda: model([RELU], outputs=[value("y", code=INT64)]),
        DtypeError,
        ["output 'y'", "int64", "float32"],
    ),
    "declared shape": (lambda: model([RELU], outputs=[value("y", (2, 4))]), ShapeError, ["'y'", "[2, 4]", "[2, 3]"]),
    "element type without a program": (
        lambda: model([RELU], [value("x", code=TensorProto.STRING)]),
        InputError,
        ["input 'x'", "string", "numbers and booleans"],
    ),
    "element type inside": (
        lambda: model(
            [node("Cast", ["x"], ["u"], name="c", to=TensorProto.STRING), node("Cast", ["u"], ["y"], to=FLOAT)]
        ),
        InputError,
        ["Cast node 'c'", "'u'", "string"],
    ),
    "dynamic dimensions": (
        lambda: model([RELU], [value("x", ("batch", 3, None))]),
        InputError,
        ["batch (axis 0 of input 'x')", "x[2] (axis 2 of input 'x')", "--shape batch=N"],
    ),
    "input without a rank": (lambda: model([RELU], [value("x", None)]), InputError, ["input 'x'", "no shape"]),
    "sequence input": (
        lambda: model([RELU], [helper.make_tensor_sequence_value_info("x", FLOAT, [2])]),
        InputError,
        ["input 'x'", "no tensor"],
    ),
    "opset of the future": (lambda: model([RELU], opset=99), InputError, ["opset 99", "13 to 25"]),
    "no opset": (lambda: without_opset(), InputError, ["no opset", "truncated"]),
    "operator newer than the opset": (
        lambda: model([node("Gelu", ["x"], ["y"], name="act")], opset=17),
        InputError,
        ["Gelu node 'act'", "opset 17", "raise the opset"],
    ),
    "operator in an old form": (
        lambda: model([node("Scan", ["", "x"], ["y"], name="s", body=EACH, num_scan_inputs=1)], opset=8),
        InputError,
        ["Scan node 's'", "opset 8", "opset 13"],
    ),
    "unknown domain": (
        lambda: model([node("Relu", ["x"], ["y"], name="act", domain="com.vendor")]),
        InputError,
        ["Relu node 'act'", "'com.vendor'", "import"],
    ),
    "unknown operator": (
        lambda: model([node("Frobnicate", ["x"], ["y"], name="f")]),
        InputError,
        ["Frobnicate node 'f'", "'y'", "cannot be inferred"],
    ),
    "shape known at run time only": (
        lambda: model([node("Reshape", ["x", "s"], ["y"], name="r")], [value("x"), value("s", (2,), INT64)]),
        InputError,
        ["Reshape node 'r'", "cannot be inferred", "constant"],
    ),
    "missing attribute": (lambda: model([node("Concat", ["x"], ["y"], name="c")]), InputError, ["'c'", "'axis'"]),
    "missing input": (lambda: model([node("MatMul", ["x"], ["y"], name="m")]), InputError, ["'m'", "input 1"]),
    "axis out of range": (
        lambda: model([node("Softmax", ["x"], ["y"], name="s", axis=5)]),
        ShapeError,
        ["Softmax node 's'", "[-2, 2)", "5"],
    ),
    "random numbers": (
        lambda: model([node("RandomNormalLike", ["x"], ["y"], name="r")]),
        InputError,
        ["RandomNormalLike node 'r'", "random"],
    ),
    "dropout in training": (
        lambda: model(
            [node("Dropout", ["x", "ratio", "train"], ["y"], name="d")],
            initializers=[tensor("ratio", np.float32(0.5)), tensor("train", np.bool_(True))],
        ),
        InputError,
        ["Dropout node 'd'", "inference"],
    ),
    "dropout whose mode is an input": (
        lambda: model(
            [node("Dropout", ["x", "ratio", "train"], ["y"], name="d")],
            [value("x"), value("train", (), TensorProto.BOOL)],
            initializers=[tensor("ratio", np.float32(0.5))],
        ),
        InputError,
        ["Dropout node 'd'", "inference"],
    ),
    "dropout whose ratio is an input": (
        lambda: model(
            [node("Dropout", ["x", "ratio", "train"], ["y"], name="d")],
            [value("x"), value("ratio", ())],
            initializers=[tensor("train", np.bool_(True))],
        ),
        InputError,
        ["Dropout node 'd'", "inference"],
    ),
    "sparse initializer": (lambda: with_sparse_initializer(), InputError, ["'w'", "sparse", "dense"]),
    "sparse constant": (
        lambda: model([node("Constant", [], ["w"], name="c", sparse_value=sparse("")), node("Add", ["x", "w"], ["y"])]),
        InputError,
        ["Constant node 'c'", "sparse", "dense"],
    ),
    "short initializer": (
        lambda: model(
            [node("Add", ["x", "w"], ["y"])],
            initializers=[TensorProto(name="w", data_type=FLOAT, dims=[2, 3], raw_data=b"1234")],
        ),
        InputError,
        ["tensor 'w'", "24 bytes", "4 are there"],
    ),
    "external data of a model in memory": (
        lambda: model([node("Add", ["x", "w"], ["y"])], initializers=[external("w", "weights.bin")]),
        InputError,
        ["tensor 'w'", "weights.bin", "pass the path"],
    ),
}

BOOL = value("c", (), TensorProto.BOOL)


def body(reads: str) -> onnx.GraphProto:
    return helper.make_graph([node("Relu", [reads], ["r"])], "branch", [], [value("r", None)])


def without_opset() -> onnx.ModelProto:
    bare = model([RELU])
    del bare.opset_import[:]
    return bare


def sparse(name: str) -> onnx.SparseTensorProto:
    return helper.make_sparse_tensor(tensor(name, np.ones(1, np.float32)), tensor("", np.zeros(1, np.int64)), [2, 3])


def with_sparse_initializer() -> onnx.ModelProto:
    found = model([node("Add", ["x", "w"], ["y"])])
    found.graph.sparse_initializer.append(sparse("w"))
    return found


def external(name: str, location: str, **entries: int) -> onnx.TensorProto:
    found = TensorProto(name=name, data_type=FLOAT, dims=[2, 3], data_location=TensorProto.EXTERNAL)
    for key, text in {"location": location, **entries}.items():
        found.external_data.add(key=key, value=str(text))
    return found


def assert_one_line(error: InputError, label: str, parts: Sequence[str]) -> None:
    text = str(error)
    assert text.startswith(f"{label}: ")
    assert "\n" not in text
    for part in parts:
        assert part in text


@pytest.mark.parametrize("what", BAD_MODELS)
def test_bad_models_are_refused_in_one_line(what: str) -> None:
    build, kind, parts = BAD_MODELS[what]
    with pytest.raises(kind) as caught:
        from_onnx(build())
    assert_one_line(caught.value, "g", parts)


BAD_FILES: dict[str, tuple[bytes | None, list[str]]] = {
    "missing": (None, ["no such file"]),
    "empty": (b"", ["no graph"]),
    "text": (b"this is no model at all, only text", ["not an ONNX model"]),
    "truncated": (model([RELU]).SerializeToString()[:-12], ["truncated"]),
    "half": (model([RELU]).SerializeToString()[:40], ["truncated"]),
}


@pytest.mark.parametrize("what", BAD_FILES)
def test_bad_files_are_refused_in_one_line(what: str, tmp_path: Path) -> None:
    data, parts = BAD_FILES[what]
    path = tmp_path / "model.onnx"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        from_onnx(path)
    assert_one_line(caught.value, str(path), parts)


def test_every_truncation_of_a_model_is_refused(tmp_path: Path) -> None:
    whole = model([RELU], initializers=[tensor("w", np.arange(4.0))]).SerializeToString()
    path = tmp_path / "model.onnx"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError):
            from_onnx(path)


def test_a_folder_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="folder"):
        from_onnx(tmp_path)


@pytest.mark.parametrize(
    ("entries", "parts"),
    [
        ({"location": "missing.bin"}, ["missing.bin", "missing", "put it beside the model"]),
        ({"location": "short.bin"}, ["short.bin", "24 bytes", "20 are there"]),
        ({"location": "whole.bin", "offset": 8}, ["whole.bin", "16 are there"]),
        ({"location": "whole.bin", "length": 8}, ["24 bytes", "8 are there"]),
        ({"location": "../whole.bin"}, ["leaves the model's folder"]),
    ],
)
def test_bad_external_data_is_refused(entries: dict[str, Any], parts: list[str], tmp_path: Path) -> None:
    (tmp_path / "short.bin").write_bytes(bytes(20))
    (tmp_path / "whole.bin").write_bytes(bytes(24))
    path = tmp_path / "model.onnx"
    bad = model([node("Add", ["x", "w"], ["y"])], initializers=[external("w", **entries)])
    path.write_bytes(bad.SerializeToString())
    with pytest.raises(InputError) as caught:
        from_onnx(path)
    assert_one_line(caught.value, str(path), parts)


DYNAMIC = model([node("Add", ["x", "z"], ["y"])], [value("x", ("batch", 3)), value("z", (None, 1))])


@pytest.mark.parametrize("shapes", [{"batch": 4, "z": 4}, {"x": 4, "z[0]": 4}, {"x[0]": 4, "z": 4}])
def test_open_dimensions_are_fixed_by_name_by_input_or_by_axis(shapes: dict[str, int]) -> None:
    program = from_onnx(DYNAMIC, shapes)
    assert [term.shape for term in program.inputs] == [(4, 3), (4, 1)]
    assert program.outputs["y"].shape == (4, 3)


@pytest.mark.parametrize(
    ("shapes", "parts"),
    [
        ({"batch": 4}, ["z[0] (axis 0 of input 'z')"]),
        ({"batch": 4, "z": 4, "seq": 2}, ["--shape seq", "no dynamic dimension", "batch, z[0]"]),
        ({"batch": 0, "z": 4}, ["'batch'", "positive integer"]),
        ({"batch": 4.0, "z": 4}, ["'batch'", "positive integer"]),
    ],
)
def test_wrong_sizes_of_open_dimensions_are_refused(shapes: dict[str, int], parts: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        from_onnx(DYNAMIC, shapes)
    assert_one_line(caught.value, "g", parts)


X = ops.input("x", (2, 3))


def _identity(x: np.ndarray) -> list[np.ndarray]:
    return [x]


@pytest.mark.parametrize(
    ("outputs", "match"),
    [
        ({"y": ops.opaque("mine", [X], [((2, 3), "float32")], "spec", _identity)[0]}, "mine did not come from ONNX"),
        ({"y": ops.pool("max", ops.input("n", (1, 1, 4), "int64"), (2,))}, "pool of int64 has no ONNX form"),
        ({"x": ops.exp(X)}, "'x' is an input and another output"),
    ],
)
def test_programs_without_an_onnx_form_are_refused(outputs: dict[str, Any], match: str) -> None:
    inputs = tuple(term for term in Program((X, ops.input("n", (1, 1, 4), "int64")), outputs).inputs)
    with pytest.raises(InputError, match=match):
        to_onnx(Program(inputs, outputs))


def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        to_onnx(Program((X,), {"y": ops.exp(X)}), tmp_path / "missing" / "model.onnx")


@pytest.mark.parametrize("opset", [12, 26])
def test_opsets_that_are_not_written_are_refused(opset: int) -> None:
    with pytest.raises(InputError, match="13 to 25"):
        to_onnx(Program((X,), {"y": ops.exp(X)}), opset=opset)
