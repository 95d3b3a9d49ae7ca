"""Malformed ONNX files of many kinds: one plain line each, and nothing read outside the model's folder."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat import from_onnx, optimize
from eqsat.errors import InputError, one_line
from eqsat.frontends.onnx.operators import node as onnx_node
from eqsat.frontends.onnx.read import convert
from eqsat.frontends.onnx.read.bounded import STEP_WORK
from eqsat.frontends.onnx.read.opaque import OneNode
from eqsat.program import ops
from eqsat.program.sizes import ELEMENT_WORK, FOLDED, LARGEST, READ_WORK
from eqsat.program.term import Term, topological
from support.onnx_models import INT64, RELU, model, node, tensor, value


def refusal(source: Any) -> str:
    with pytest.raises(InputError) as caught:
        from_onnx(source)
    text = str(caught.value)
    assert text.isprintable()
    assert len(text) < 1500
    return text


def edited(change: Callable[[onnx.ModelProto], object], built: onnx.ModelProto | None = None) -> onnx.ModelProto:
    made = built or model([RELU])
    change(made)
    return made


def attribute(name: str, given: Any) -> onnx.AttributeProto:
    return helper.make_attribute(name, given)


def recursive() -> onnx.ModelProto:
    made = model([node("F", ["x"], ["y"], domain="own")])
    opsets = [helper.make_opsetid("own", 1)]
    made.opset_import.extend(opsets)
    for name, other in (("F", "G"), ("G", "F")):
        call = node(other, ["a"], ["b"], domain="own")
        made.functions.append(helper.make_function("own", name, ["a"], ["b"], [call], opsets))
    return made


def doubling() -> onnx.ModelProto:
    made = model([node("F30", ["x"], ["y"], domain="own")])
    opsets = [helper.make_opsetid("own", 1), helper.make_opsetid("", 17)]
    made.opset_import.append(opsets[0])
    made.functions.append(helper.make_function("own", "F0", ["a"], ["b"], [node("Relu", ["a"], ["b"])], opsets))
    for i in range(1, 31):
        calls = [node(f"F{i - 1}", [a], [b], domain="own") for a, b in (("a", "c"), ("c", "b"))]
        made.functions.append(helper.make_function("own", f"F{i}", ["a"], ["b"], calls, opsets))
    return made


def nested(depth: int) -> onnx.ModelProto:
    graph = helper.make_graph([node("Relu", ["x"], ["y"])], "g", [], [value("y", None)])
    for _ in range(depth):
        made = node("If", ["c"], ["y"], then_branch=graph, else_branch=graph if depth < 3 else onnx.GraphProto())
        graph = helper.make_graph([made], "g", [], [value("y", None)])
    return model(graph.node, initializers=[tensor("c", np.array(True))])


ONE = tensor("w", np.ones(3, np.float32))
ADD = node("Add", ["x", "w"], ["y"])


def ranged(*bounds: float) -> onnx.ModelProto:
    names = ["start", "limit", "delta"]
    stored = [tensor(name, np.array(given, np.float32)) for name, given in zip(names, bounds, strict=True)]
    return model([node("Range", names, ["y"])], initializers=stored)


MALFORMED: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "attribute of the wrong type": (
        lambda: model([node("Cast", ["x"], ["y"], to="float")]),
        "'to' is string.*takes int",
    ),
    "attribute twice": (
        lambda: edited(
            lambda m: m.graph.node[0].attribute.extend([attribute("axis", 0)] * 2),
            model([node("Softmax", ["x"], ["y"])]),
        ),
        "given twice",
    ),
    "missing branch": (
        lambda: model([node("If", ["c"], ["y"], then_branch=helper.make_graph([], "g", [], []))], [value("c", (), 9)]),
        "'else_branch' is missing",
    ),
    "branch without outputs": (
        lambda: model(
            [
                node(
                    "If",
                    ["c"],
                    ["y"],
                    **dict.fromkeys(("then_branch", "else_branch"), helper.make_graph([], "g", [], [])),
                )
            ],
            initializers=[tensor("c", np.array(True))],
        ),
        "output 'y'",
    ),
    "more outputs than parts": (
        lambda: model([node("Split", ["x"], ["y", "a", "b"], num_outputs=2)], opset=18),
        "'num_outputs' is 2, and the node has 3 outputs",
    ),
    "far more parts than outputs": (
        lambda: model([node("Split", ["x"], ["y", "a"], num_outputs=2**62)], opset=18),
        "'num_outputs' is 4611686018427387904, and the node has 2 outputs",
    ),
    "missing operand": (lambda: model([node("Gather", ["x", ""], ["y"])]), "input 1"),
    "too many operands": (lambda: model([node("Relu", ["x", "x"], ["y"])]), "has 2 inputs.*takes 1"),
    "unequal Slice lists": (
        lambda: model(
            [node("Slice", ["x", "a", "b"], ["y"])],
            initializers=[tensor("a", np.array([0, 0])), tensor("b", np.array([1]))],
        ),
        "Slice node",
    ),
    "recursive functions": (recursive, "calls itself"),
    "functions that double": (doubling, "1073741824 nodes"),
    "bodies too deep": (lambda: nested(26), "nested more than 24 deep"),
    "negative dims": (
        lambda: edited(lambda m: m.graph.initializer[0].dims.__setitem__(0, -3), model([ADD], initializers=[ONE])),
        r"dims \[-3\]",
    ),
    "overflowing dims": (
        lambda: edited(lambda m: m.graph.initializer[0].dims.extend([2**40, 2**40]), model([ADD], initializers=[ONE])),
        "at most",
    ),
    "long name": (lambda: model([node("No" * 5000, ["x"], ["y"])]), r"oNoNoNo\.\.\."),
    "control characters": (lambda: model([node("Relu", ["\x1b[31m\0\u202e"], ["y"])]), r"\\x1b\[31m\\x00\\u202e"),
    "unknown element type": (
        lambda: edited(lambda m: setattr(m.graph.initializer[0], "data_type", 99), model([ADD], initializers=[ONE])),
        "element type 99",
    ),
    "empty model": (onnx.ModelProto, "no graph"),
    "zero stride": (
        lambda: model(
            [node("MaxPool", ["x"], ["y"], kernel_shape=[2], strides=[0], ceil_mode=1)], [value("x", (1, 1, 4))]
        ),
        "MaxPool node",
    ),
    "blocks of zero": (
        lambda: model([node("SpaceToDepth", ["x"], ["y"], blocksize=0)], [value("x", (1, 1, 4, 4))]),
        "attribute 'blocksize' holds 0; 1 to 2147483647 are taken there",
    ),
    "no groups": (
        lambda: model([node("ConvTranspose", ["x", "x"], ["y"], group=0)], [value("x", (1, 1, 4))]),
        "attribute 'group' holds 0",
    ),
    "strides beyond any size": (
        lambda: model([node("ConvTranspose", ["x", "x"], ["y"], strides=[2**62])], [value("x", (1, 1, 4))]),
        "attribute 'strides' holds 4611686018427387904",
    ),
    "blocks of a matrix": (
        lambda: model([node("DepthToSpace", ["x"], ["y"], blocksize=1)], [value("x", (4, 4))]),
        r"DepthToSpace takes an array of 4 dims, got \[4, 4\]",
    ),
    "a range to infinity": (
        lambda: ranged(0.0, math.inf, 1.0),
        r"a range from 0.0 to inf by 1.0 has no end",
    ),
    "a range by nothing": (lambda: ranged(0.0, 1.0, 0.0), "and no step of 0"),
    "an infinite axis": (
        lambda: model([node("CumSum", ["x", "a"], ["y"])], initializers=[tensor("a", np.array(np.inf))]),
        r"input 1 holds \[inf\]; whole numbers are taken there",
    ),
    "no axis": (
        lambda: model([node("CumSum", ["x", "a"], ["y"])], initializers=[tensor("a", np.zeros(0, np.int64))]),
        "input 1 has no elements; one is taken there",
    ),
    "a norm of power zero": (
        lambda: model([node("GlobalLpPool", ["x"], ["y"], p=0)], [value("x", (1, 1, 4))]),
        r"is malformed \(it divides by zero\)",
    ),
    "equation with two dots": (  # onnx's inference of shapes never ends on it
        lambda: model([node("Einsum", ["x"], ["y"], equation="ii..->j")], [value("x", (3, 3))]),
        "Einsum node.*has more than letters",
    ),
    "huge input": (lambda: model([RELU], [value("x", (2**40,))]), f"at most {LARGEST}"),
    "huge result": (
        lambda: model([node("Tile", ["x", "n"], ["y"])], initializers=[tensor("n", np.array([2**31, 2**31]))]),
        f"at most {LARGEST}",
    ),
    "many dims": (
        lambda: model([node("Unsqueeze", ["x", "a"], ["y"])], initializers=[tensor("a", np.arange(100))]),
        "102 dims; at most 32",
    ),
    "long shape": (
        lambda: model(
            [
                node("ConstantOfShape", ["n"], ["s"], value=tensor("v", np.array([1]))),
                node("Expand", ["x", "s"], ["y"]),
            ],
            initializers=[tensor("n", np.array([2**20]))],
        ),
        "1048576 elements; at most",
    ),
}


@pytest.mark.parametrize(("build", "said"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_model_is_answered_with_one_line(build: Callable[[], onnx.ModelProto], said: str) -> None:

    assert re.search(said, refusal(build()))


def test_a_name_that_is_not_utf8_is_shown(tmp_path: Path) -> None:
    data = model([node("Relu", ["name"], ["y"])], [value("name")]).SerializeToString()
    path = tmp_path / "model.onnx"
    path.write_bytes(data.replace(b"name", b"\xff\xfe\xfd\xfc"))
    assert "is not UTF-8" in refusal(path) or "damaged" in refusal(path)


def external(path: Path, location: str, length: int = 12, offset: int = 0, dims: int = 3) -> Path:
    made = model([ADD], initializers=[ONE])
    weights = made.graph.initializer[0]
    weights.ClearField("raw_data")
    weights.dims[0] = dims
    weights.data_location = TensorProto.EXTERNAL
    for key, given in (("location", location), ("offset", offset), ("length", length)):
        weights.external_data.add(key=key, value=str(given))
    path.write_bytes(made.SerializeToString())
    return path


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("../weights", "leaves the model's folder"),
        ("/dev/zero", "leaves the model's folder"),
        ("link", "leaves the model's folder"),
        ("loop", "no path|leaves|missing"),
        ("pipe", "missing or no file"),
        ("folder", "missing or no file"),
        ("a\0b", "no path"),
        ("l" * 5000, "no path"),
        ("short", "takes 12 bytes but 8"),
        ("", "leaves"),
    ],
)
def test_external_data_stays_in_the_folder_and_is_a_file(tmp_path: Path, location: str, said: str) -> None:

    folder = tmp_path / "model"
    (folder / "folder").mkdir(parents=True)
    (tmp_path / "weights").write_bytes(bytes(12))
    (folder / "link").symlink_to(tmp_path / "weights")
    (folder / "loop").symlink_to("loop")
    (folder / "short").write_bytes(bytes(8))
    os.mkfifo(folder / "pipe")
    assert re.search(said, refusal(external(folder / "m.onnx", location)))


@pytest.mark.parametrize("wrong", [{"offset": -4}, {"length": -1}, {"offset": 2**70}, {"dims": -3, "length": -12}])
def test_external_numbers_are_judged(tmp_path: Path, wrong: dict[str, int]) -> None:
    (tmp_path / "weights").write_bytes(bytes(12))
    assert "tensor 'w'" in refusal(external(tmp_path / "m.onnx", "weights", **wrong))


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b\x08", b"text\n", b"\x80\x04K\x01.", b"\x08\x08", bytes(100)])
def test_what_is_no_model_is_said_to_be_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    assert str(path) in refusal(path)


def test_what_may_never_end_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        assert "is a pipe or a device" in refusal(path)
    assert "is a folder" in refusal(tmp_path)
    huge = tmp_path / "huge.onnx"
    with huge.open("wb") as file:
        file.truncate(1 << 40)
    assert "more than" in refusal(huge)
    assert "a NUL in the name" in refusal("a\0b")
    assert "a path or an onnx.ModelProto" in refusal(3)


def loop(trips: int, step: onnx.NodeProto) -> onnx.ModelProto:
    body = helper.make_graph(
        [node("Identity", ["go"], ["on"]), step],
        "body",
        [value("i", (), INT64), value("go", (), 9), value("v", None)],
        [value("on", (), 9), value("w", None)],
    )
    stored = [tensor("n", np.int64(trips)), tensor("true", np.array(True)), tensor("c", np.ones(3, np.float32))]
    made = node("Loop", ["n", "true", "c"], ["l"], body=body)
    return model([made, node("Add", ["x", "l"], ["y"])], initializers=stored)


def test_a_loop_of_constants_is_run_while_it_is_short() -> None:
    short = from_onnx(loop(5, node("Add", ["v", "v"], ["w"])))
    assert short.opaque() == []
    x = np.zeros((2, 3), np.float32)
    np.testing.assert_array_equal(short.run({"x": x})["y"], x + 32)
    refusal(loop(2**40, node("Add", ["v", "v"], ["w"])))
    refusal(loop(2**40, node("Concat", ["v", "v"], ["w"], axis=0)))


@pytest.mark.parametrize(
    ("make", "arrays"),
    [
        (
            node("ConstantOfShape", ["n"], ["b"], value=numpy_helper.from_array(np.ones(1, np.uint8))),
            {"n": [FOLDED, 4]},
        ),
        (node("Tile", ["c", "n"], ["b"]), {"n": [FOLDED], "c": np.ones(4, np.uint8)}),
        (node("Expand", ["c", "n"], ["b"]), {"n": [FOLDED, 4], "c": np.ones(4, np.uint8)}),
        (node("Range", ["a", "n", "d"], ["b"]), {"n": 2.0 * FOLDED, "a": 1.0, "d": 0.5}),
    ],
)
def test_what_is_too_large_to_fold_is_carried(make: onnx.NodeProto, arrays: dict[str, Any]) -> None:
    stored = [tensor(name, array) for name, array in arrays.items()]
    nodes = [make, node("Cast", ["b"], ["f"], to=1), node("ReduceMax", ["f"], ["m"], keepdims=0)]
    program = from_onnx(model([*nodes, node("Add", ["x", "m"], ["y"])], initializers=stored))
    assert program.outputs["y"].shape == (2, 3)


def test_a_product_of_huge_constants_stays_unfolded() -> None:
    stored = [tensor("n", np.array([16384, 16384]))]
    fill = node("ConstantOfShape", ["n"], ["a"], value=tensor("v", np.ones(1, np.float32)))
    nodes = [fill, node("MatMul", ["a", "a"], ["b"]), node("MatMul", ["x", "b"], ["y"])]
    program = from_onnx(model(nodes, [value("x", (1, 16384))], initializers=stored))
    assert not optimize(program, time_limit=0.5).report["opaque"]


def test_a_message_shows_what_a_terminal_can_show() -> None:
    assert one_line("a\x1b[31m\u202e\ud800\nb") == "a\\x1b[31m\\u202e\\ud800 b"
    assert len(one_line("x" * 5000)) < 300
    assert len(one_line("x y " * 5000)) < 1300
    assert one_line("plain é") == "plain é"


# What is computed while a model is read


def watch(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The FLOPs of products that are computed while models are read; they are not computed here."""
    seen: list[int] = []

    def run(terms: Sequence[Term], known: Mapping[Term, Any]) -> list[Any]:
        seen.append(sum(ops.row(t.op).flops(t) for t in topological(terms) if t not in known))
        return [np.zeros(t.shape, t.dtype) for t in terms]

    monkeypatch.setattr(onnx_node, "evaluated", run)
    return seen


def filled(sizes: Sequence[int], *nodes: onnx.NodeProto) -> onnx.ModelProto:
    fill = node("ConstantOfShape", ["n"], ["c0"], value=tensor("v", np.ones(1, np.float32)))
    return model([fill, *nodes], initializers=[tensor("n", np.array(sizes))])


def total(name: str) -> list[onnx.NodeProto]:
    return [node("ReduceMax", [name], ["m"], keepdims=0), node("Add", ["x", "m"], ["y"])]


def test_no_product_of_large_constants_is_computed_for_a_small_operand(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watch(monkeypatch)
    product = node("MatMul", ["c0", "c0"], ["c1"])
    assert "matmul" in str(from_onnx(filled([8000, 8000], product, *total("c1"))))
    inside = helper.make_graph([product, total("c1")[0]], "g", [], [value("m", [])])
    made = node("If", ["yes"], ["m"], then_branch=inside, else_branch=inside)
    branch = filled([8000, 8000], made, node("Add", ["x", "m"], ["y"]))
    branch.graph.initializer.append(tensor("yes", np.array(True)))
    assert "matmul" in str(from_onnx(branch))
    assert sum(seen) == 0


def test_products_of_constants_are_limited_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watch(monkeypatch)
    chain = [
        made
        for i in range(12)
        for made in (node("MatMul", [f"c{i}", f"c{i}"], [f"d{i}"]), node("Tanh", [f"d{i}"], [f"c{i + 1}"]))
    ]
    assert "matmul" in str(from_onnx(filled([4000, 4000], *chain, *total("c12"))))
    assert sum(seen) <= READ_WORK


def test_a_chain_is_not_computed_again_for_each_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watch(monkeypatch)
    reads = [node("MatMul", ["c0", "c0"], ["c1"])]
    for i in range(50):
        reads += [node("Add", ["c1", f"n{i}"], [f"a{i}"]), node("ReduceMax", [f"a{i}"], [f"m{i}"], keepdims=0)]
    sums = node("Sum", ["x", *(f"m{i}" for i in range(50))], ["y"])
    made = filled([2000, 2000], *reads, sums)
    made.graph.initializer.extend(tensor(f"n{i}", np.float32(i)) for i in range(50))
    from_onnx(made)
    assert sum(seen) <= READ_WORK


@pytest.mark.parametrize("op", ["NonZero", "TopK", "Unique"])
def test_no_operator_of_large_constants_is_run(monkeypatch: pytest.MonkeyPatch, op: str) -> None:
    monkeypatch.setattr(onnx_node, "READ_WORK", 10_000 * ELEMENT_WORK)
    monkeypatch.setattr(OneNode, "__call__", lambda *_: pytest.fail("it is run"))
    made = node("TopK", ["c0", "n"], ["r", "places"]) if op == "TopK" else node(op, ["c0"], ["r"])
    sizes = [2] * 12 if op == "NonZero" else [4096]
    from_onnx(filled(sizes, made, node("Cast", ["r"], ["f"], to=1), *total("f")), head=True)


def test_the_places_of_all_elements_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operand has fewer elements than are computed ahead of time; its result has one for each axis of each."""
    monkeypatch.setattr(OneNode, "__call__", lambda *_: pytest.fail("it is run"))
    monkeypatch.setattr(convert, "FOLDED", 1000)
    from_onnx(filled([2] * 8, node("NonZero", ["c0"], ["r"]), node("Cast", ["r"], ["f"], to=1), *total("f")), head=True)


def test_a_small_operator_of_constants_is_run_until_all_take_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [
        made
        for i in range(8)
        for made in (
            node("NonZero", [f"k{i}"], [f"r{i}"]),
            node("Cast", [f"r{i}"], [f"f{i}"], to=1),
            node("ReduceMax", [f"f{i}"], [f"m{i}"], keepdims=0),
        )
    ]
    last = node("Sum", ["x", *(f"m{i}" for i in range(8))], ["y"])
    stored = [tensor(f"k{i}", np.full(100, i + 1, np.float32)) for i in range(8)]
    assert not from_onnx(model([*nodes, last], initializers=stored)).opaque()
    monkeypatch.setattr("eqsat.program.sizes.WORK_OF_WEIGHTS", 0)
    monkeypatch.setattr(onnx_node, "READ_WORK", 3 * 200 * 16 * ELEMENT_WORK)
    with pytest.raises(InputError, match="NonZero"):
        from_onnx(model([*nodes, last], initializers=stored))


def test_ramps_that_are_made_are_limited_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_node, "READ_WORK", 10 * 1000 * 4 * ELEMENT_WORK)
    nodes = [node("Range", [f"a{i}", "b", "o"], [f"r{i}"]) for i in range(20)]
    total = node("Sum", [f"r{i}" for i in range(20)], ["t"])
    stored = [tensor(f"a{i}", np.float32(-1000)) for i in range(20)]
    stored += [tensor("b", np.float32(0)), tensor("o", np.float32(1))]
    last = [node("Slice", ["t", "zero", "three"], ["s"]), node("Add", ["x", "s"], ["y"])]
    stored += [tensor("zero", np.array([0])), tensor("three", np.array([3]))]
    program = from_onnx(model([*nodes, total, *last], initializers=stored))
    assert 0 < len(program.opaque()) < 20
    x = np.zeros((2, 3), np.float32)
    np.testing.assert_array_equal(program.run({"x": x})["y"], x + 20 * np.arange(-1000, -997, dtype=np.float32))


def test_loops_of_constants_are_limited_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = loop(5000, node("Add", ["v", "v"], ["w"]))
    assert not from_onnx(turns).opaque()
    monkeypatch.setattr(onnx_node, "READ_WORK", 20 * STEP_WORK)
    assert "Loop is carried as it is" in refusal(turns)
