"""ONNX models into programs: versions of operators, folding, branches, functions, parameters, external data."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat import optimize, spec, tanh, trace
from eqsat.base.numerics import STORED, STORED_INTS, random_array
from eqsat.errors import InputError
from eqsat.frontends.onnx.file import load
from eqsat.frontends.onnx.file.load import CODE_OF_DTYPE
from eqsat.frontends.onnx.read import graph
from eqsat.frontends.onnx.read.model import from_onnx, kinds, open_dimensions
from eqsat.frontends.onnx.write.model import to_onnx
from eqsat.pipeline.report import summary
from eqsat.program import composites, ops
from eqsat.program.core import lower
from eqsat.program.ir import Program
from support.onnx_graphs import (
    BOOL,
    FLOAT,
    IF,
    INT64,
    assert_computes_the_same,
    f32,
    model,
    node,
    random_inputs,
    run,
    value,
)

# Operators whose definition changed between opsets 13 and 23: x[2, 4, 6] in every form it had.


def _reduce(op: str, opset: int) -> onnx.ModelProto:
    if opset < (13 if op == "ReduceSum" else 18):
        return model([node(op, ["x"], ["y"], axes=[1, -1], keepdims=0)], {"x": (2, 4, 6)}, opset=opset)
    return model([node(op, ["x", "axes"], ["y"], keepdims=0)], {"x": (2, 4, 6)}, ["y"], {"axes": [1, -1]}, opset)


def _split(opset: int) -> onnx.ModelProto:
    count = {"num_outputs": 3} if opset >= 18 else {}
    names = ["a", "b", "c"]
    return model([node("Split", ["x"], names, axis=2, **count)], {"x": (2, 4, 6)}, names, opset=opset)


def _pad(opset: int) -> onnx.ModelProto:
    if opset < 18:
        return model([node("Pad", ["x", "p"], ["y"])], {"x": (2, 4, 6)}, ["y"], {"p": [0, 1, 0, 0, 2, -1]}, opset)
    constants = {"p": [1, 0, 2, -1], "axes": [1, -1]}
    return model([node("Pad", ["x", "p", "", "axes"], ["y"])], {"x": (2, 4, 6)}, ["y"], constants, opset)


CHANGED = {
    **{op: lambda opset, op=op: _reduce(op, opset) for op in ("ReduceSum", "ReduceMax", "ReduceMean", "ReduceL2")},
    "Split": _split,
    "Pad": _pad,
}


@pytest.mark.parametrize("opset", range(13, 24))
@pytest.mark.parametrize("op", CHANGED)
def test_every_form_of_an_operator_is_understood(op: str, opset: int) -> None:
    original = CHANGED[op](opset)
    program = from_onnx(original)
    assert program.opaque() == []
    assert_computes_the_same(original, program)


@pytest.mark.parametrize("opset", range(13, 24))
def test_exports_are_valid_at_every_opset(opset: int) -> None:
    x = ops.input("x", (2, 4, 6))
    outputs = {
        "max": ops.amax(x, (1, 2)),
        "mean": composites.mean(x, 0, keepdims=True),
        "norm": composites.layernorm(x),
        "rms": composites.rmsnorm(x, ops.constant(np.arange(6.0, dtype=np.float32))),
        "gelu": composites.gelu(x),
        "pool": composites.avg_pool(x, (2,), dilations=(2,)),
    }
    program = Program((x,), outputs)
    exported = to_onnx(program, opset=opset)
    onnx.checker.check_model(exported, full_check=True)
    assert exported.opset_import[0].version == max(opset, 19)  # dilated pools are an AveragePool since 19
    inputs = random_inputs(program)
    for wanted, got in zip(program.run(inputs).values(), run(exported, inputs), strict=True):
        np.testing.assert_allclose(got, wanted, 1e-5, 1e-5)


# Shape computations


def test_shape_computations_are_folded() -> None:
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero0"], ["batch"], axis=0),
        node("Unsqueeze", ["batch", "zero"], ["batch1"]),
        node("Concat", ["batch1", "rest"], ["target"], axis=0),
        node("Reshape", ["x", "target"], ["flat"]),
        node("ConstantOfShape", ["target2"], ["ones"], value=numpy_helper.from_array(np.ones(1, np.float32))),
        node("Range", ["zero0", "six", "two"], ["ramp"]),
        node("Cast", ["ramp"], ["ramp_f"], to=FLOAT),
        node("Size", ["ramp"], ["three"]),
        node("Expand", ["ramp_f", "target2"], ["spread"]),
        node("Concat", ["flat", "ones", "spread"], ["y"], axis=1),
    ]
    constants = {"zero": [0], "rest": [-1], "target2": [2, 3], "zero0": 0, "six": 6, "two": 2}
    program = from_onnx(model(nodes, {"x": (2, 3, 2)}, ["y"], constants))
    x = ops.input("x", (2, 3, 2))
    ramp = ops.broadcast(ops.cast(ops.constant(np.array([0, 2, 4])), "float32"), (2, 3))
    flat = ops.reshape(x, (2, 6))
    assert program.outputs["y"] is ops.concat([flat, ops.full(1.0, (2, 3)), ramp], 1)


def test_dequantised_constants_are_constants() -> None:
    """Weights quantised to int8 are constants, so their dequantisation is one too."""
    quantised = np.arange(6, dtype=np.int8).reshape(2, 3)
    constants = {"q": quantised, "scale": np.float32(0.5), "zero": np.int8(2)}
    nodes = [node("DequantizeLinear", ["q", "scale", "zero"], ["w"]), node("MatMul", ["x", "w"], ["y"])]
    program = from_onnx(model(nodes, {"x": (4, 2)}, ["y"], constants))
    weight = ops.constant((quantised - np.float32(2)) * np.float32(0.5))
    assert program.outputs["y"] is ops.matmul(ops.input("x", (4, 2)), weight)


@pytest.mark.parametrize("dtype", STORED)
def test_element_types_without_arithmetic_are_moved_and_written_back(dtype: str) -> None:
    """Views and constants keep every value, through the search and through a file; ONNX joins whole bytes alone."""
    code = CODE_OF_DTYPE[dtype]
    x, c = (random_array((2, 3), dtype, np.random.default_rng(seed)) for seed in (0, 1))
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[1, 0]),
        node("Reshape", ["c", "shape"], ["r"]),
        node("Concat", ["t", "r"], ["y"], axis=1) if dtype in STORED_INTS else node("Identity", ["t"], ["y"]),
        node("Identity", ["r"], ["z"]),
    ]
    outputs = [value("y", (3, 4 if dtype in STORED_INTS else 2), code), value("z", (3, 2), code)]
    constants = [numpy_helper.from_array(c, "c"), numpy_helper.from_array(np.array([3, 2]), "shape")]
    graph = helper.make_graph(nodes, "g", [value("x", (2, 3), code)], outputs, constants)
    program = from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13))
    wanted = {"y": np.concatenate([x.T, c.reshape(3, 2)], 1)[:, : outputs[0].type.tensor_type.shape.dim[1].dim_value]}
    wanted["z"] = c.reshape(3, 2)
    best = optimize(program, device="mi300x", time_limit=5).program
    for each in (program, best, from_onnx(to_onnx(best))):
        for name, found in each.run({"x": x}).items():
            np.testing.assert_array_equal(found.astype(np.float64), wanted[name].astype(np.float64))


def test_arithmetic_on_stored_integers_is_carried() -> None:
    nodes = [node("Add", ["u", "u"], ["s"]), node("Cast", ["s"], ["f"], to=FLOAT), node("Exp", ["f"], ["y"])]
    original = model(nodes, {}, ["y"])
    original.graph.input.append(value("u", (3,), TensorProto.UINT8))
    program = from_onnx(original)
    assert program.opaque() == ["Add"]
    wrapped = np.array([2, 14, 0], np.uint8)
    np.testing.assert_allclose(program.run({"u": np.array([1, 7, 128], np.uint8)})["y"], np.exp(wrapped, dtype="f4"))


def test_operators_that_differ_in_their_parameters_alone_are_told_apart() -> None:
    """Two opaque operators of one operand must not become one node of the core."""
    nodes = [node("CumProd", ["x", "zero"], ["a"]), node("CumProd", ["x", "one"], ["b"]), node("Sub", "ab", ["y"])]
    program = from_onnx(model(nodes, {"x": (3, 3)}, ["y"], {"zero": 0, "one": 1}, opset=26))
    assert len(lower(program).opaque) == len(program.opaque()) == 2


def test_nodes_in_any_order_are_put_in_order() -> None:
    nodes = [node("Relu", ["b"], ["y"]), node("Neg", ["a"], ["b"]), node("Exp", ["x"], ["a"])]
    program = from_onnx(model(nodes, {"x": (2,)}))
    assert program.outputs["y"] is ops.relu(ops.neg(ops.exp(ops.input("x", (2,)))))


def test_what_a_node_reads_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    reads = graph.reads
    monkeypatch.setattr(graph, "reads", lambda node: asked.append(node.output[0]) or reads(node))
    from_onnx(model([node("Relu", ["x"], ["a"]), node("Exp", ["a"], ["y"])], {"x": (2, 3)}))
    assert asked == ["a", "y"]


def test_small_constants_are_computed_without_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Program, "run", None)
    shape = [
        node("Shape", ["x"], ["s"]),
        node("Slice", ["s", "0", "1"], ["n"]),
        node("Concat", ["n", "-1"], ["to"], axis=0),
    ]
    found = from_onnx(
        model(
            [*shape, node("Reshape", ["x", "to"], ["y"])],
            {"x": (2, 3, 4)},
            constants={n: [int(n)] for n in ("0", "1", "-1")},
        )
    )
    assert found.outputs["y"].shape == (2, 12)


def test_what_no_output_needs_is_not_converted() -> None:
    nodes = [node("Relu", ["x"], ["y"]), node("RandomNormalLike", ["x"], ["unused"])]
    assert from_onnx(model(nodes, {"x": (2,)})).outputs["y"] is ops.relu(ops.input("x", (2,)))


def test_an_initializer_may_be_the_default_of_an_input() -> None:
    original = model([node("Add", ["x", "w"], ["y"])], {"x": (2,), "w": (2,)}, ["y"], {"w": f32(1, 2)})
    program = from_onnx(original)
    assert program.input_names == ["x"]
    assert program.header.fixed == ("w",)
    with pytest.raises(InputError, match="input 'w' has a default value, which is a constant of the program"):
        program.run({"x": f32(1, 2), "w": f32(3, 4)})
    report = optimize(program, time_limit=4).report
    assert report["fixed"] == ["w"]
    assert "inputs with default values are taken as constants: w" in summary(report)
    original.ir_version = 3  # every initializer had to be an input
    assert from_onnx(original).header.fixed == ()


# Branches, functions


@pytest.mark.parametrize(("condition", "op"), [(True, "exp"), (False, "neg")])
def test_a_constant_condition_picks_its_branch(condition: bool, op: str) -> None:
    program = from_onnx(model([IF], {"x": (2,)}, ["y"], {"c": np.bool_(condition)}))
    assert program.outputs["y"] is ops.elementwise(op, ops.input("x", (2,)))


def test_local_functions_are_inlined() -> None:
    body = [node("Mul", ["a", "a"], ["s"]), node("Add", ["s", "a"], ["out"])]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    function = helper.make_function("mine", "Poly", ["a"], ["out"], body, opsets[:1])
    graph = helper.make_graph([node("Poly", ["x"], ["y"], domain="mine")], "g", [value("x", (2,))], [value("y")])
    program = from_onnx(helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=8))
    x = ops.input("x", (2,))
    assert program.outputs["y"] is ops.add(ops.mul(x, x), x)


def test_operators_without_a_row_are_expanded_by_their_onnx_body() -> None:
    program = from_onnx(model([node("HardSwish", ["x"], ["y"])], {"x": (2,)}))
    x = ops.input("x", (2,))
    assert program.outputs["y"] is ops.mul(x, composites.hard_sigmoid(x, float(np.float32(1 / 6)), 0.5))


# Parameters


@pytest.mark.parametrize("alpha", [-2.0, -0.5, 0.0, 0.3, 1.5, np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("op", ["Celu", "Elu", "LeakyRelu", "ThresholdedRelu"])
def test_activations_with_any_parameter_are_those_of_onnxruntime(op: str, alpha: float) -> None:
    x = f32(-np.inf, -100, -2.5, -0.5, -1e-3, -0.0, 0.0, 1e-3, 0.5, 2.5, 100, np.inf, np.nan)
    given = model([node(op, ["x"], ["y"], alpha=alpha)], {"x": x.shape})
    (wanted,) = run(given, {"x": x})
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(from_onnx(given).run({"x": x})["y"], wanted, rtol=1e-5, atol=1e-6)


WITH_DEFAULTS = {
    "Gemm": 2, "HardSigmoid": 1, "InstanceNormalization": 3, "LayerNormalization": 2, "LeakyRelu": 1, "Selu": 1
}  # fmt: skip


@pytest.mark.parametrize("op", WITH_DEFAULTS)
def test_a_default_left_out_is_the_default_given(op: str) -> None:
    """In float64 too: ONNX states both in float32."""
    names = ["x", "v", "w"][: WITH_DEFAULTS[op]]
    shape = [2, 2] if op == "Gemm" else [2]
    types = [value(name, [2, 2, 3] if name == "x" and op == "InstanceNormalization" else shape, 11) for name in names]
    rows = onnx.defs.get_schema(op, 17).attributes.values()
    defaults = {row.name: row.default_value.f for row in rows if row.default_value.type == onnx.AttributeProto.FLOAT}
    assert defaults
    models = []
    for given in ({}, defaults):
        graph = helper.make_graph([node(op, names, ["y"], **given)], "g", types, [value("y", None, 11)])
        models.append(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    assert from_onnx(models[0]).outputs["y"] is from_onnx(models[1]).outputs["y"]


def test_an_infinite_parameter_of_selu_is_no_nan() -> None:
    x = f32(-1, -0.5, 2)
    for alpha in (np.inf, 0.5):
        given = model([node("Selu", ["x"], ["y"], alpha=alpha, gamma=2.0)], {"x": [3]})
        wanted = np.where(x > 0, 2.0 * x, 2.0 * alpha * (np.exp(x) - 1))
        np.testing.assert_allclose(from_onnx(given).run({"x": x})["y"], wanted, rtol=1e-6)


# External data


def test_external_data_is_read_at_its_offset(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    original = model([node("Add", ["x", "w"], ["y"])], {"x": (2, 3)}, ["y"], {"w": values})
    onnx.save(original, tmp_path / "model.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    assert b"w.bin" in (tmp_path / "model.onnx").read_bytes()
    program = from_onnx(tmp_path / "model.onnx")
    assert program.outputs["y"] is ops.add(ops.input("x", (2, 3)), ops.constant(values))


def _externalise(tensor: onnx.TensorProto, folder: Path) -> None:
    location = f"{tensor.name}.bin"
    (folder / location).write_bytes(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)


def test_external_data_of_attributes_and_bodies_is_read(tmp_path: Path) -> None:
    constant = node("Constant", [], ["w"], value=numpy_helper.from_array(f32(1, 2), "w"))
    body = helper.make_graph(
        [node("Add", ["carried", "v"], ["out"]), node("Identity", ["go_on"], ["still"])],
        "body",
        [value("i", (), INT64), value("go_on", (), BOOL), value("carried", (2,))],
        [value("still", (), BOOL), value("out", (2,))],
        [numpy_helper.from_array(f32(3, 4), "v")],
    )
    nodes = [constant, node("Add", ["x", "w"], ["h"]), node("Loop", ["n", "", "h"], ["y"], body=body)]
    whole = model(nodes, {"x": (2,)}, [value("y", (2,))], {"n": np.int64(2)})
    apart = onnx.ModelProto.FromString(whole.SerializeToString())
    _externalise(apart.graph.node[0].attribute[0].t, tmp_path)
    _externalise(apart.graph.node[2].attribute[0].g.initializer[0], tmp_path)
    (tmp_path / "model.onnx").write_bytes(apart.SerializeToString())
    assert from_onnx(tmp_path / "model.onnx").outputs == from_onnx(whole).outputs


def test_the_main_domain_may_be_spelled_out() -> None:
    nodes = [node("Relu", ["x"], ["h"], domain="ai.onnx"), node("Acosh", ["h"], ["y"], domain="ai.onnx")]
    program = from_onnx(model(nodes, {"x": (2,)}))
    assert program.opaque() == ["Acosh"]
    assert from_onnx(to_onnx(program)).outputs["y"] is program.outputs["y"]


def test_a_file_is_parsed_once_for_all_that_look_at_it_and_again_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[Path] = []
    parse = load.without_weights
    monkeypatch.setattr(load, "without_weights", lambda path: (parsed.append(path), parse(path))[1])
    path = tmp_path / "model.onnx"
    for wide in (4, 6):
        to_onnx(trace(tanh, spec((3, wide))), path)
        assert load.external_files(path) == open_dimensions(path) == []
        assert from_onnx(path).inputs[0].shape == (3, wide)
    assert parsed == [path, path]


def test_kinds_of_operators_count_layers_that_repeat_once() -> None:
    def net(widths: list[int]) -> int:
        def layers(x):
            for i, (n, m) in enumerate(pairwise(widths)):
                x = tanh(x @ np.full((n, m), i + 1, np.float32))
            return x

        return kinds(to_onnx(trace(layers, spec((3, widths[0])))))

    assert net([8] * 9) == 2
    assert net([8, 8, 6, 5]) == 4
