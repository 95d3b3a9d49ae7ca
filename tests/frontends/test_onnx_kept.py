"""What stays as it was in a model is written as it was: nodes, their names, and the names of values."""

from __future__ import annotations

import pickle

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import eqsat
from eqsat.frontends.onnx.operators.node import Constants
from eqsat.frontends.onnx.read.model import from_onnx
from eqsat.frontends.onnx.write.model import to_onnx
from eqsat.program import ops
from eqsat.program.ir import Program
from eqsat.program.term import Term
from support.onnx_models import model, node, tensor, value
from support.runtime_models import NODES, runtime_model


def nodes_of(found: onnx.ModelProto) -> list[bytes]:
    return sorted(each.SerializeToString(deterministic=True) for each in found.graph.node)


def constants_of(found: onnx.ModelProto) -> dict[str, bytes]:
    return {each.name: numpy_helper.to_array(each).tobytes() for each in found.graph.initializer}


@pytest.mark.parametrize("name", NODES)
def test_a_model_is_written_as_it_was_read(name: str) -> None:
    source = runtime_model(name)
    written = to_onnx(from_onnx(source))
    assert nodes_of(written) == nodes_of(source)
    assert constants_of(written) == constants_of(source)
    assert written.opset_import == source.opset_import


def after(program: Program, changed: Term, by: Term) -> Program:
    """The program with another value in the place of one."""
    made = {changed: by}
    for term in program.terms():
        if term not in made:
            made[term] = ops.make(term.op, *(made[a] for a in term.args), **dict(term.attrs)) if term.args else term
    outputs = {name: made[term] for name, term in program.outputs.items()}
    return Program(program.inputs, outputs, program.names, program.written)


@pytest.mark.parametrize("name", NODES)
def test_nodes_below_a_change_stay(name: str) -> None:
    """The first node is computed in another way; all others are as they were, and read what takes its place."""
    source = runtime_model(name)
    program = from_onnx(source)
    first = next(term for term, known in program.names.items() if known == source.graph.node[0].output[0])
    written = to_onnx(after(program, first, ops.neg(ops.neg(first))))
    kept = {each.name: each.op_type for each in written.graph.node if each.name.startswith("node ")}
    assert kept == {each.name: each.op_type for each in source.graph.node}
    assert len(written.graph.node) == len(source.graph.node) + 2
    rng = np.random.default_rng(1)
    inputs = {term.attr("name"): rng.normal(size=term.shape).astype(np.float32) for term in program.inputs}
    (wanted,), (found,) = program.run(inputs).values(), from_onnx(written).run(inputs).values()
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-5)


def test_an_operand_that_onnx_broadcasts_is_not_written_out() -> None:
    """A sum of two matrices becomes that of a matrix and a row: the row is not expanded for the sake of the node."""
    program = from_onnx(model([node("Add", ["x", "z"], ["y"])], [value("x"), value("z")], [value("y", (2, 3))]))
    row = ops.broadcast(ops.constant(np.arange(3, dtype=np.float32)), (2, 3))
    written = to_onnx(after(program, program.inputs[1], row))
    assert [each.op_type for each in written.graph.node] == ["Add"]


def test_a_node_of_an_opset_that_means_something_else_is_not_kept() -> None:
    """Softmax before opset 13 runs along all axes from one on."""
    program = from_onnx(model([node("Softmax", ["x"], ["y"], axis=0)], [value("x", (2, 3))], opset=11))
    written = to_onnx(program, opset=17)
    x = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    np.testing.assert_allclose(from_onnx(written).run({"x": x})["y"], program.run({"x": x})["y"], 1e-6)


def test_parameters_are_constants_though_nodes_compute_them() -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "first"], ["n"]),
        node("Concat", ["n", "rest"], ["t"], axis=0),
        node("Reshape", ["x", "t"], ["y"]),
    ]
    constants = [tensor("first", np.array([0])), tensor("rest", np.array([-1, 1]))]
    written = to_onnx(from_onnx(model(nodes, [value("x", (2, 3))], initializers=constants)))
    assert [each.op_type for each in written.graph.node] == ["Reshape"]
    assert [numpy_helper.to_array(each).tolist() for each in written.graph.initializer] == [[2, -1, 1]]


def test_what_makes_a_small_constant_is_computed_for_its_reader_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each sum of a long chain of constants would be a constant of its own."""
    computed: list[Term] = []
    value_of = Constants.value
    monkeypatch.setattr(Constants, "value", lambda self, term: computed.append(term) or value_of(self, term))
    nodes = [node("Add", [f"s{i}", f"c{i}"], [f"s{i + 1}"]) for i in range(3)]
    constants = [tensor(name, np.full(3, 0.5, np.float32)) for name in ("s0", "c0", "c1", "c2")]
    graph = model([*nodes, node("Add", ["x", "s3"], ["y"])], initializers=constants)
    program = from_onnx(graph)
    assert [term for term, name in program.names.items() if name == "s3"] == computed
    assert [arg.op for each in program.written for arg in each.args if arg] == [
        *("constant", "constant", "add", "constant", "add", "constant"),
        *("input", "constant"),
    ]


def noted() -> onnx.ModelProto:
    """A model with what a model may say besides its operators."""
    found = model([node("Relu", ["x"], ["y"])], outputs=[value("y", (2, 3))])
    found.model_version, found.domain, found.doc_string = 7, "org.example", "what it is for"
    found.metadata_props.add(key="names", value="cat,dog")
    found.graph.name, found.graph.doc_string = "pets", "a graph"
    return found


def test_notes_of_a_model_are_kept() -> None:
    source = noted()
    for program in (from_onnx(source), eqsat.optimize(from_onnx(source), time_limit=4).program):
        written = to_onnx(pickle.loads(pickle.dumps(program)))
        assert written.metadata_props == source.metadata_props
        for name in ("model_version", "domain", "doc_string"):
            assert getattr(written, name) == getattr(source, name)
        assert (written.graph.name, written.graph.doc_string) == ("pets", "a graph")
        assert written.producer_name == "eqsat"


def test_kept_nodes_survive_pickling() -> None:
    import pickle

    source = runtime_model("transformer")
    program = pickle.loads(pickle.dumps(from_onnx(source)))
    assert nodes_of(to_onnx(program)) == nodes_of(source)


@pytest.mark.parametrize("name", NODES)
def test_a_result_without_rules_is_the_model(name: str) -> None:
    source = runtime_model(name)
    written = to_onnx(eqsat.optimize(from_onnx(source), "cpu", 5, rules=[]).program)
    assert nodes_of(written) == nodes_of(source)


@pytest.mark.parametrize("kernel", [3, 4])
def test_a_transposed_convolution_stays_one(kernel: int) -> None:
    """The elements that its kernel lacks for a multiple of the stride become no constant of the result."""
    w = np.random.default_rng(0).normal(size=(3, 2, kernel, kernel)).astype(np.float32)
    spread = node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2], pads=[1, 1, 1, 1])
    source = model([spread], [value("x", (1, 3, 5, 5))], [value("y", None)], [tensor("w", w)])
    written = to_onnx(eqsat.optimize(from_onnx(source), "cpu", 5, measure=False).program)
    assert [each.op_type for each in written.graph.node] == ["ConvTranspose"]


def test_quantised_weights_stay_quantised() -> None:
    """A runtime computes with them; written as what they stand for, onnxruntime quantises them anew, in another way."""
    nodes = [
        node("DequantizeLinear", ["w8", "scales", "zeros"], ["w"], axis=1),
        node("Relu", ["x"], ["h"]),
        node("MatMul", ["h", "w"], ["y"]),
    ]
    rng = np.random.default_rng(0)
    weights = {"w8": rng.integers(-128, 127, (64, 8)).astype(np.int8), "zeros": np.zeros(8, np.int8)}
    weights["scales"] = rng.uniform(0.01, 0.1, 8).astype(np.float32)
    stored = [tensor(name, array) for name, array in weights.items()]
    source = model(nodes, [value("x", (4, 64))], initializers=stored)
    for written in (to_onnx(from_onnx(source)), to_onnx(eqsat.optimize(from_onnx(source), time_limit=5).program)):
        assert [each.op_type for each in written.graph.node].count("DequantizeLinear") == 1
        kept = {each.name: numpy_helper.to_array(each) for each in written.graph.initializer}
        np.testing.assert_array_equal(kept["w8"], weights["w8"])
        assert not any(each.shape == (64, 8) and each.dtype == np.float32 for each in kept.values())


def test_a_concatenation_of_fewer_parts_is_no_instance_of_one_of_more() -> None:
    source = model(
        [node("Concat", ["a", "b", "a"], ["y"], axis=0)],
        inputs=[value("a", (1, 3)), value("b", (2, 3))],
        outputs=[value("y", (4, 3))],
    )
    program = from_onnx(source)
    a, b = program.inputs
    other = Program((a, b), {"y": ops.concat([b, ops.neg(b)], 0)}, program.names, program.written)
    assert [(each.op_type, len(each.input)) for each in to_onnx(other).graph.node] == [("Neg", 1), ("Concat", 2)]


@pytest.mark.parametrize("name", ["neg_0", "y"])
def test_a_new_node_takes_no_name_that_a_kept_node_has(name: str) -> None:
    """`neg_0` is also the first value that a new negation gives."""
    runtime = pytest.importorskip("onnxruntime")
    source = model([node("Softmax", ["x"], ["h"], name=name), node("Relu", ["h"], ["y"], name="second")])
    program = from_onnx(source)
    (relu,) = program.outputs.values()
    written = to_onnx(after(program, relu, ops.neg(ops.neg(relu.args[0]))))
    names = [each.name for each in written.graph.node]
    assert len(set(names)) == len(names) == 3
    assert names[0] == name
    runtime.InferenceSession(written.SerializeToString())


def test_a_name_that_onnxruntime_makes_too_is_not_kept() -> None:
    """It loads no model with this constant in which it merges a product and a sum."""
    runtime = pytest.importorskip("onnxruntime")
    made = "gemm_output_shape"
    source = model(
        [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["s"]), node("Reshape", ["s", made], ["y"])],
        inputs=[value("x", (2, 3, 4))],
        outputs=[value("y", (6, 4))],
        initializers=[
            tensor("w", np.ones((4, 4), np.float32)),
            tensor("b", np.ones(4, np.float32)),
            tensor(made, np.array([6, 4], np.int64)),
        ],
    )
    written = to_onnx(from_onnx(source))
    assert made not in constants_of(written)
    session = runtime.InferenceSession(written.SerializeToString())
    (found,) = session.run(None, {"x": np.ones((2, 3, 4), np.float32)})
    np.testing.assert_array_equal(found, np.full((6, 4), 5, np.float32))


@pytest.mark.parametrize(
    ("mode", "places", "scale"),
    [
        ("linear", "half_pixel", 4.0),
        ("linear", "half_pixel", 2.5),
        ("linear", "asymmetric", 2.0),
        ("cubic", "half_pixel", 4.0),
        ("nearest", "asymmetric", 2.0),
        ("nearest", "asymmetric", 3.0),
    ],
)
def test_a_resize_behind_a_product_that_was_turned_is_one_node(mode: str, places: str, scale: float) -> None:
    """The head of a net that segments. Its product is computed with columns for rows; written out, the Resize would be
    gathers and products, some ten times as slow."""
    rng = np.random.default_rng(0)
    source = model(
        [
            node("Conv", ["x", "w", "b"], ["c"]),
            node("Resize", ["c", "", "s"], ["y"], mode=mode, coordinate_transformation_mode=places),
        ],
        inputs=[value("x", (1, 4, 8, 8))],
        initializers=[
            tensor("w", rng.normal(size=(2, 4, 1, 1)).astype(np.float32)),
            tensor("b", rng.normal(size=2).astype(np.float32)),
            tensor("s", np.array([1, 1, scale, scale], np.float32)),
        ],
    )
    best = eqsat.optimize(from_onnx(source), time_limit=20)
    assert best.report["result"]["predicted_us"] < best.report["source"]["predicted_us"], "otherwise nothing is changed"
    assert [each.op_type for each in to_onnx(best.program).graph.node] == ["Conv", "Resize"]


def test_views_are_a_node_however_they_are_spelled() -> None:
    """A row repeated, and rows repeated: with two broadcasts as it was read, or with one."""
    source = model(
        [node("Neg", ["x"], ["n"]), node("Resize", ["n", "", "s"], ["y"], name="resize", mode="nearest")],
        inputs=[value("x", (1, 1, 2, 3))],
        initializers=[tensor("s", np.array([1, 1, 2, 2], np.float32))],
    )
    source.graph.node[1].attribute.append(onnx.helper.make_attribute("coordinate_transformation_mode", "asymmetric"))
    program = from_onnx(source)
    (y,) = program.outputs.values()
    (x,) = program.inputs
    once = ops.broadcast(ops.reshape(ops.sqrt(x), (2, 1, 3, 1)), (2, 2, 3, 2))
    other = Program(program.inputs, {"y": ops.reshape(once, y.shape)}, program.names, program.written)
    assert [each.op_type for each in to_onnx(other).graph.node] == ["Sqrt", "Resize"]
    less = ops.broadcast(ops.reshape(ops.sqrt(x), (2, 1, 1, 3)), (2, 2, 2, 3))
    other = Program(program.inputs, {"y": ops.reshape(less, y.shape)}, program.names, program.written)
    assert "Resize" not in [each.op_type for each in to_onnx(other).graph.node]
