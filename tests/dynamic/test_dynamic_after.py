"""Models with named dims whose program is followed by operators that no program holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import eqsat
from eqsat.dynamic import checked
from eqsat.errors import InputError
from support.onnx_models import INT64, model, node, tensor, value

RNG = np.random.default_rng(0)
WEIGHTS = {"b": RNG.standard_normal((16, 2)), "c": RNG.standard_normal((2, 16)), "d": RNG.standard_normal((16, 2))}
TEXT = TensorProto.STRING

PLACES = [node("NonZero", ["p"], ["at"])]
LABELS = [node("ArgMax", ["u"], ["i"], axis=1, keepdims=0)]
LABELS += [node("ArrayFeatureExtractor", ["names", "i"], ["label"], domain="ai.onnx.ml")]
ONE_MAP_EACH = [node("ZipMap", ["u"], ["maps"], domain="ai.onnx.ml", classlabels_strings=["no", "yes"])]
NAMES = tensor("names", np.array([["no", "yes"]], object))
MAPS = helper.make_value_info(
    "maps",
    helper.make_sequence_type_proto(
        helper.make_map_type_proto(TEXT, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    ),
)


def followed(
    last: list[onnx.NodeProto],
    outputs: list[onnx.ValueInfoProto],
    stored: list[onnx.TensorProto],
    inputs: list[onnx.ValueInfoProto],
) -> onnx.ModelProto:
    """u = (x @ b) @ c @ d, p = relu(u), and what follows."""
    nodes = [node("MatMul", ["x", "b"], ["s"]), node("MatMul", ["s", "c"], ["t"]), node("MatMul", ["t", "d"], ["u"])]
    weights = [tensor(name, array.astype(np.float32)) for name, array in WEIGHTS.items()]
    relu = node("Relu", ["u"], ["p"])
    found = model([*nodes, relu, *last], [value("x", ["n", 16]), *inputs], outputs, [*weights, *stored])
    found.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    return found


FOLLOWED = {
    "sizes": followed(PLACES, [value("u", ["n", 2]), value("at", [2, "k"], INT64)], [], []),
    "texts": followed(LABELS, [value("label", ["one", "n"], TEXT)], [NAMES], []),
    "maps": followed(ONE_MAP_EACH, [MAPS, value("p", ["n", 2])], [], []),
}


@pytest.mark.parametrize("kind", FOLLOWED)
def test_what_is_before_operators_that_no_program_holds_is_optimised_for_all_sizes(kind: str, tmp_path: Path) -> None:
    file, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(FOLLOWED[kind], file)
    found = eqsat.optimize_dynamic(file, {"n": (1, 40)}, time_limit=8)
    assert [each["operator"] for each in found.report["after"]]
    assert {each["by"] for each in found.report["dynamic"]["checked"]} == {"float64", "onnxruntime"}
    found.save(out)
    assert [each.op_type for each in onnx.load(out).graph.node].count("MatMul") == 1
    sessions: list[Any] = [onnxruntime.InferenceSession(path) for path in (file, out)]
    assert [entry.shape for entry in sessions[1].get_outputs()] == [entry.shape for entry in sessions[0].get_outputs()]
    for n in (1, 7, 40):
        inputs = {"x": RNG.standard_normal((n, 16)).astype(np.float32)}
        wanted, mine = (session.run(None, inputs) for session in sessions)
        assert max(checked.difference(a, b) for a, b in zip(wanted, mine, strict=True)) < 1e-4
    assert found.at({"n": 3}).inputs[0].shape == (3, 16)


def test_values_that_operators_read_are_compared_where_inputs_are_texts(tmp_path: Path) -> None:
    last = [*PLACES, node("Identity", ["name"], ["same"])]
    outputs = [value("at", [2, "k"], INT64), value("same", [1], TEXT)]
    file = tmp_path / "in.onnx"
    onnx.save(followed(last, outputs, [], [value("name", [1], TEXT)]), file)
    found = eqsat.optimize_dynamic(file, time_limit=8).report["dynamic"]
    assert not found["as_source"]
    assert {each["by"] for each in found["checked"]} == {"float64", "NumPy"}


def test_values_that_operators_read_are_compared_without_a_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent() -> None:
        raise ImportError("no onnxruntime")

    monkeypatch.setattr(checked, "OnnxRuntime", absent)
    file = tmp_path / "in.onnx"
    onnx.save(FOLLOWED["sizes"], file)
    found = eqsat.optimize_dynamic(file, time_limit=8).report["dynamic"]
    assert not found["as_source"]
    assert {each["by"] for each in found["checked"]} == {"float64", "NumPy"}


def test_a_model_without_a_program_at_any_size_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "in.onnx"
    source = model([node("Identity", ["t"], ["y"])], [value("t", ["n"], TEXT)], [value("y", ["n"], TEXT)])
    onnx.save(source, file)
    with pytest.raises(InputError, match="element type string"):
        eqsat.optimize_dynamic(file, time_limit=2)
