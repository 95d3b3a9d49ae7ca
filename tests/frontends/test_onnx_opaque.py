"""Opaque nodes: operators that are carried, listed, run and written back."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from onnx import helper

from eqsat.errors import InputError
from eqsat.frontends.onnx.read import opaque
from eqsat.frontends.onnx.read.control import UNROLLED
from eqsat.frontends.onnx.read.model import from_onnx
from eqsat.frontends.onnx.read.recurrent import STEPS
from eqsat.frontends.onnx.write.model import to_onnx
from support.onnx_graphs import BOOL, IF, INT64, assert_computes_the_same, f32, model, node, value

ADDING = {"axis": 1, "reduction": "add"}
ADDED = {"where": np.array([[1, 1]]), "what": np.ones((1, 2), np.float32)}


def test_an_unknown_operator_is_carried_listed_run_and_written_back() -> None:
    nodes = [node("Relu", ["x"], ["h"]), node("ScatterElements", ["h", "where", "what"], ["y"], **ADDING)]
    original = model(nodes, {"x": (4, 2)}, ["y"], ADDED)
    program = from_onnx(original)
    assert program.opaque() == ["ScatterElements"]
    assert_computes_the_same(original, program)
    [written] = [n for n in to_onnx(program).graph.node if n.op_type == "ScatterElements"]
    assert list(written.attribute) == list(nodes[1].attribute)


def test_erf_of_integers_is_carried() -> None:
    source = model(
        [node("Cast", ["x"], ["i"], to=INT64), node("Erf", ["i"], ["y"])], {"x": (3,)}, [value("y", (3,), INT64)]
    )
    program = from_onnx(source)
    assert program.opaque() == ["Erf"]
    assert program.run({"x": f32(-9, 0, 9)})["y"].tolist() == [-1, 0, 1]


def test_equal_opaque_nodes_are_one_term() -> None:
    nodes = [node("ScatterElements", ["x", "where", "what"], [name], name=name, **ADDING) for name in "ab"]
    outputs = from_onnx(model(nodes, {"x": (4, 2)}, ["a", "b"], ADDED)).outputs
    assert outputs["a"] is outputs["b"]


def test_an_opaque_node_takes_each_value_once() -> None:
    """An export writes equal constants once: read again, the node must be the same."""
    lstm = node("LSTM", ["x", "w", "r", "", "", "h0", "c0"], ["y"], hidden_size=80)
    weights = {"w": np.ones((1, 320, 3), np.float32), "r": np.full((1, 320, 80), 0.5, np.float32)}
    weights |= {"h0": np.ones((1, 1, 80), np.float32), "c0": np.ones((1, 1, 80), np.float32)}
    program = from_onnx(model([lstm], {"x": (STEPS + 1, 1, 3)}, ["y"], weights))
    assert from_onnx(to_onnx(program)).outputs == program.outputs


@pytest.mark.parametrize(("state", "same"), [(0.0, True), (0.5, False)])
def test_first_states_of_zeros_change_no_opaque_node(state: float, same: bool) -> None:
    weights = {"w": np.ones((1, 8, 3), np.float32), "r": np.full((1, 8, 2), 0.5, np.float32)}
    weights |= {name: np.full((1, 1, 2), state, np.float32) for name in ("h0", "c0")}
    inputs = [["x", "w", "r"], ["x", "w", "r", "", "", "h0", "c0"], ["x", "w", "r", "", "", "h0"]]
    nodes = [node("LSTM", names, ["y"], hidden_size=2) for names in inputs]
    missing, told, partly = (from_onnx(model([n], {"x": (STEPS + 1, 1, 3)}, ["y"], weights)).outputs for n in nodes)
    assert (missing == told) is (missing == partly) is same


def test_a_default_that_is_told_changes_no_opaque_node() -> None:
    shape = {"x": (4, 2)}
    plain = node("ScatterElements", ["x", "where", "what"], ["y"], reduction="none")
    told = node("ScatterElements", ["x", "where", "what"], ["y"], axis=0)
    assert (
        from_onnx(model([plain], shape, ["y"], ADDED)).outputs == from_onnx(model([told], shape, ["y"], ADDED)).outputs
    )
    other = node("ScatterElements", ["x", "where", "what"], ["y"], axis=1)
    assert (
        from_onnx(model([other], shape, ["y"], ADDED)).outputs != from_onnx(model([told], shape, ["y"], ADDED)).outputs
    )


def test_an_opset_that_defines_a_node_alike_changes_no_opaque_node() -> None:
    """ScatterElements has one definition in opsets 16 and 17, and another in 18."""
    added = node("ScatterElements", ["x", "where", "what"], ["y"], **ADDING)
    found = [from_onnx(model([added], {"x": (4, 2)}, ["y"], ADDED, opset=n)) for n in (16, 17, 18)]
    assert found[0].opaque() == ["ScatterElements"]
    assert found[0].outputs == found[1].outputs != found[2].outputs


def test_all_outputs_of_an_opaque_node_are_kept() -> None:
    pool = node("MaxPool", ["x"], ["y", "where"], kernel_shape=[2], strides=[2])
    original = model([pool], {"x": (1, 2, 6)}, ["y", value("where", None, INT64)])
    program = from_onnx(original)
    assert program.opaque() == ["MaxPool"]
    assert_computes_the_same(original, program)
    assert [n.op_type for n in to_onnx(program).graph.node] == ["MaxPool"]


@pytest.mark.parametrize("second", ["", "nobody_reads_it"])
def test_an_unused_second_output_changes_nothing(second: str) -> None:
    pool = node("MaxPool", ["x"], ["y", second], kernel_shape=[2], strides=[2])
    assert from_onnx(model([pool], {"x": (1, 2, 6)})).opaque() == []


def test_outputs_without_a_name_stay_so() -> None:
    lstm = node("LSTM", ["x", "w", "r"], ["", "h"], hidden_size=2)
    weights = {"w": np.ones((1, 8, 3), np.float32), "r": np.full((1, 8, 2), 0.5, np.float32)}
    original = model([lstm], {"x": (STEPS + 1, 1, 3)}, ["h"], weights)
    program = from_onnx(original)
    assert_computes_the_same(original, program)
    assert list(to_onnx(program).graph.node[0].output) == ["", "h"]


def test_an_opaque_node_decides_the_opset_of_the_export() -> None:
    """Resize has another definition in opset 18 than in 17 or 19."""
    nodes = [node("Resize", ["x", "", "scales"], ["y"], mode="linear", antialias=1)]
    original = model(nodes, {"x": (1, 1, 2, 2)}, ["y"], {"scales": f32(1, 1, 2, 2)}, opset=18)
    program = from_onnx(original)
    assert to_onnx(program).opset_import[0].version == 18
    assert_computes_the_same(original, program)


def test_loops_are_carried_with_what_their_bodies_read() -> None:
    """y = x, then y = y * x + w three times; names in the body must not collide with those of the export."""
    body = helper.make_graph(
        [
            node("Mul", ["carried", "x"], ["scaled"]),
            node("Add", ["scaled", "w"], ["out"]),
            node("Identity", ["go_on"], ["still"]),
        ],
        "body",
        [value("i", (), INT64), value("go_on", (), BOOL), value("carried", (2,))],
        [value("still", (), BOOL), value("out", (2,))],
    )
    nodes = [node("Exp", ["x"], ["scaled_0"]), node("Loop", ["steps", "", "scaled_0"], ["y"], body=body)]
    constants = {"steps": np.int64(3), "w": f32(0.5, -0.5)}
    original = model(nodes, {"x": (2,)}, [value("y", (2,))], constants)
    assert_computes_the_same(original, program := from_onnx(original))
    assert program.opaque() == []  # few steps, known when the model is read: written out
    long = model(nodes, {"x": (2,)}, [value("y", (2,))], {**constants, "steps": np.int64(UNROLLED)})
    program = from_onnx(long)
    assert program.opaque() == ["Loop"]
    assert_computes_the_same(long, program)
    assert_computes_the_same(long, from_onnx(to_onnx(program)))


def test_what_a_loop_carries_keeps_the_shape_that_its_body_declares() -> None:
    """It ends as soon as the sum is large. ONNX's inference tells no shape: another turn might make another one."""
    body = helper.make_graph(
        [
            node("Add", ["carried", "x"], ["out"]),
            node("ReduceSum", ["out"], ["sum"], keepdims=0),
            node("Less", ["sum", "most"], ["still"]),
        ],
        "body",
        [value("i", (), INT64), value("go_on", (), BOOL), value("carried", (2, 3))],
        [value("still", (), BOOL), value("out", (2, 3))],
    )
    nodes = [node("Exp", ["x"], ["e"]), node("Loop", ["steps", "", "e"], ["h"], body=body), node("Neg", ["h"], ["y"])]
    original = model(nodes, {"x": (2, 3)}, ["y"], {"most": np.float32(20), "steps": np.int64(9)})
    program = from_onnx(original)
    assert program.opaque() == ["Loop"]
    assert_computes_the_same(original, program)
    assert_computes_the_same(original, from_onnx(to_onnx(program)))
    body.output[1].type.tensor_type.shape.dim[0].dim_value = 4
    with pytest.raises(InputError, match="shape of its output 'h' cannot be inferred"):
        from_onnx(
            model(
                [*nodes[:1], node("Loop", ["steps", "", "e"], ["h"], body=body), nodes[2]],
                {"x": (2, 3)},
                ["y"],
                {"most": np.float32(20), "steps": np.int64(9)},
            )
        )


def test_a_scan_is_written_out_in_both_directions() -> None:
    """Running sums of the rows of x, from the end; the outputs are put in front of each other along axis 1."""
    body = helper.make_graph(
        [node("Add", ["sum", "row"], ["next"]), node("Identity", ["next"], ["out"])],
        "body",
        [value("sum", (2,)), value("row", (2,))],
        [value("next", (2,)), value("out", (2,))],
    )
    given = {"num_scan_inputs": 1, "scan_input_directions": [1], "scan_output_directions": [1], "scan_output_axes": [1]}
    scan = node("Scan", ["start", "x"], ["last", "y"], body=body, **given)
    original = model([scan], {"x": (3, 2)}, [value("last", (2,)), value("y", (2, 3))], {"start": f32(1, 2)})
    program = from_onnx(original)
    assert program.opaque() == []
    assert_computes_the_same(original, program)


def test_nested_bodies_are_gone_through_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    bodies = opaque.subgraphs

    def counted(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
        seen.append(node.op_type)
        return bodies(node)

    monkeypatch.setattr(opaque, "subgraphs", counted)
    graph, nodes = helper.make_graph([node("Relu", ["x"], ["z"])], "g", [], [value("z", (2,))]), 1
    for _ in range(6):
        made = node("If", ["c"], ["z"], then_branch=graph, else_branch=graph)
        graph, nodes = helper.make_graph([made], "g", [], [value("z", (2,))]), 2 * nodes + 1
    made = model(list(graph.node), {"x": (2,)}, [value("z", (2,))])
    made.graph.input.append(value("c", (), BOOL))
    from_onnx(made)
    assert len(seen) <= 6 * nodes


def test_a_branch_that_depends_on_an_input_is_carried() -> None:
    nodes = [node("ReduceSum", ["x"], ["s"], keepdims=0), node("Greater", ["s", "zero"], ["c"]), IF]
    original = model(nodes, {"x": (2,)}, [value("y", (2,))], {"zero": np.float32(0)})
    program = from_onnx(original)
    assert program.opaque() == ["If"]
    assert_computes_the_same(original, program)


def test_vendor_operators_run_in_onnxruntime_and_take_their_declared_shape() -> None:
    inverse = node("Inverse", ["x"], ["y"], domain="com.microsoft")
    original = model([inverse], {"x": (2, 3, 3)}, [value("y", (2, 3, 3))], com_microsoft=1)
    program = from_onnx(original)
    assert program.opaque() == ["com.microsoft.Inverse"]
    assert_computes_the_same(original, program)
    assert {entry.domain for entry in to_onnx(program).opset_import} == {"", "com.microsoft"}


def test_an_operator_that_nothing_runs_says_so() -> None:
    nodes = [node("Nothing", ["x"], ["y"], domain="nowhere")]
    program = from_onnx(model(nodes, {"x": (2,)}, [value("y", (2,))], nowhere=1))
    assert to_onnx(program).graph.node[0].op_type == "Nothing"
    with pytest.raises(InputError, match=r"nowhere\.Nothing"):
        program.run({"x": np.zeros(2, np.float32)})


def test_programs_with_opaque_nodes_can_be_pickled() -> None:
    program = from_onnx(model([node("Acosh", ["x"], ["y"])], {"x": (4, 2)}))
    assert pickle.loads(pickle.dumps(program)).outputs["y"] is program.outputs["y"]


def test_opaque_nodes_of_an_old_opset_are_raised_where_nothing_changes() -> None:
    """Acosh of opset 11 is still that of 13; the vendor's domain, which no node uses, is not imported again."""
    original = model([node("Acosh", ["x"], ["y"])], {"x": (4, 2)}, opset=11, com_vendor=1)
    exported = to_onnx(from_onnx(original))
    assert [(entry.domain, entry.version) for entry in exported.opset_import] == [("", 17)]
    assert_computes_the_same(original, from_onnx(exported))


def test_operators_of_classical_models_tell_their_shapes() -> None:
    """Neither onnx nor onnxruntime infers them."""
    pytest.importorskip("onnxruntime")
    scaler = helper.make_node("Scaler", ["x"], ["h"], domain="ai.onnx.ml", offset=[1.0, 2.0, 3.0], scale=[2.0] * 3)
    source = model([scaler, node("Relu", ["h"], ["y"])], {"x": (4, 3)})
    source.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    program = from_onnx(source)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    assert program.opaque() == ["ai.onnx.ml.Scaler"]
    np.testing.assert_allclose(program.run({"x": x})["y"], np.maximum((x - [1, 2, 3]) * 2, 0))


def test_labels_of_classical_models_are_read() -> None:
    """onnx infers the element type of labels at computed places, but no shape."""
    pytest.importorskip("onnxruntime")
    nodes = [
        node("ArgMax", ["x"], ["i"], axis=1, keepdims=0),
        node("ArrayFeatureExtractor", ["labels", "i"], ["found"], domain="ai.onnx.ml"),
        node("Reshape", ["found", "flat"], ["y"]),
    ]
    constants = {"labels": np.array([3, 7, 9]), "flat": np.array([-1])}
    source = model(nodes, {"x": (2, 3)}, [value("y", (2,), INT64)], constants, ai_onnx_ml=1)
    assert from_onnx(source).run({"x": f32(0, 2, 1, 5, 0, 1).reshape(2, 3)})["y"].tolist() == [7, 3]
