"""Operators that no program holds follow the program: what is before is optimised, and they are written behind it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import eqsat
from eqsat.errors import InputError
from eqsat.frontends.onnx.read.model import from_onnx
from eqsat.frontends.onnx.write.model import to_onnx
from eqsat.frontends.runtime import difference
from eqsat.program import ops
from eqsat.program.ir import Program
from support.cli import document, printed, refusal
from support.onnx_models import BOOL, FLOAT, INT64, model, node, tensor, value

RNG = np.random.default_rng(0)
ML = "ai.onnx.ml"
STRING = TensorProto.STRING


def weights(*shape: int) -> onnx.TensorProto:
    return tensor("w", np.random.default_rng(shape).standard_normal(shape).astype(np.float32))


def sequence(name: str, element: onnx.TypeProto) -> onnx.ValueInfoProto:
    return helper.make_value_info(name, helper.make_sequence_type_proto(element))


FLOATS = helper.make_tensor_type_proto(FLOAT, None)


def product(rows: int = 4, middle: int = 6, out: int = 5, name: str = "h") -> list[onnx.NodeProto]:
    """x @ w + w2 - w2, of which one product is left."""
    return [
        node("MatMul", ["x", "w"], ["m"], name="first"),
        node("Transpose", ["m"], ["t"], perm=[1, 0]),
        node("Transpose", ["t"], [name], perm=[1, 0]),
    ]


def with_imports(made: onnx.ModelProto, *domains: tuple[str, int]) -> onnx.ModelProto:
    made.opset_import.extend(helper.make_opsetid(*each) for each in domains)
    return made


def nonzero() -> onnx.ModelProto:
    nodes = [*product(), node("NonZero", ["h"], ["y"])]
    return model(nodes, (value("x", (4, 6)),), (value("y", (2, "n"), INT64),), (weights(6, 5),))


def detection() -> onnx.ModelProto:
    """Boxes and scores from one product; NonMaxSuppression, and the boxes that it selects."""
    nodes = [
        *product(out=12),
        node("Reshape", ["h", "flat"], ["all"]),
        node("Slice", ["all", "zero", "four", "last"], ["boxes"]),
        node("Slice", ["all", "four", "six", "last"], ["few"]),
        node("Transpose", ["few"], ["scores"], perm=[0, 2, 1]),
        node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["chosen"], name="nms"),
        node("Slice", ["chosen", "two", "three", "one"], ["place"]),
        node("Squeeze", ["place", "one"], ["row"]),
        node("Gather", ["boxes", "row"], ["found"], axis=1),
        node("Relu", ["scores"], ["kept"]),
    ]
    numbers = {"zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "six": 6, "last": 2, "most": 3}
    stored = [tensor(name, np.array([n])) for name, n in numbers.items()]
    stored += [tensor("flat", np.array([1, 8, 6])), tensor("overlap", np.array([0.5], np.float32))]
    stored += [tensor("least", np.array([0.0], np.float32)), weights(6, 12)]
    outputs = (value("found", None), value("kept", (1, 2, 8)), value("chosen", ("n", 3), INT64))
    return model(nodes, (value("x", (4, 6)),), outputs, stored)


def unique() -> onnx.ModelProto:
    nodes = [
        *product(),
        node("Round", ["h"], ["r"]),
        node("Unique", ["r"], ["y", "", "back"], sorted=1),
        node("Add", ["y", "y"], ["twice"]),
    ]
    outputs = (value("twice", ("n",)), value("back", None, INT64), value("r", (4, 5)))
    return model(nodes, (value("x", (4, 6)),), outputs, (weights(6, 5),))


def compress() -> onnx.ModelProto:
    """The condition is an input that nothing else reads; the output in between is one of the program."""
    nodes = [*product(), node("Compress", ["h", "chosen"], ["y"], axis=1)]
    inputs = (value("chosen", (5,), BOOL), value("x", (4, 6)))
    return model(nodes, inputs, (value("y", (4, "n")), value("h", (4, 5))), (weights(6, 5),))


def sequences() -> onnx.ModelProto:
    body = helper.make_graph(
        [node("Relu", ["e"], ["f"])], "body", [value("e", None)], [helper.make_tensor_value_info("f", FLOAT, None)]
    )
    nodes = [
        *product(),
        node("SplitToSequence", ["h", "one"], ["parts"], axis=0),
        node("SequenceMap", ["parts"], ["mapped"], body=body),
        node("SequenceConstruct", ["h", "m"], ["pair"]),
        node("SequenceAt", ["pair", "place"], ["second"]),
        node("ConcatFromSequence", ["mapped"], ["y"], axis=0),
        node("SequenceLength", ["parts"], ["n"]),
    ]
    outputs = (value("y", None), sequence("mapped", FLOATS), value("second", None), value("n", (), INT64))
    given = (weights(6, 5), tensor("one", np.int64(1)), tensor("place", np.int64(1)))
    return model(nodes, (value("x", (4, 6)),), outputs, given)


def optionals() -> onnx.ModelProto:
    nodes = [
        *product(),
        node("Optional", ["h"], ["o"]),
        node("OptionalHasElement", ["o"], ["there"]),
        node("OptionalGetElement", ["o"], ["y"]),
    ]
    return model(
        nodes, (value("x", (4, 6)),), (value("y", (4, 5)), value("there", (), BOOL)), (weights(6, 5),), opset=18
    )


def classifier() -> onnx.ModelProto:
    """As scikit-learn's converter writes them: labels, and a list of maps from class to probability."""
    nodes = [
        *product(),
        node("Softmax", ["h"], ["p"]),
        node("ArgMax", ["p"], ["best"], axis=1, keepdims=0),
        node("ArrayFeatureExtractor", ["classes", "best"], ["picked"], domain=ML),
        node("Reshape", ["picked", "minus"], ["label"]),
        node("ZipMap", ["p"], ["probabilities"], domain=ML, classlabels_strings=["a", "b", "c", "d", "e"]),
    ]
    kind = helper.make_map_type_proto(STRING, helper.make_tensor_type_proto(FLOAT, []))
    given = (weights(6, 5), tensor("classes", np.array(list("abcde"), object)), tensor("minus", np.array([-1])))
    outputs = (value("label", None, STRING), sequence("probabilities", kind))
    return with_imports(model(nodes, (value("x", (4, 6)),), outputs, given), (ML, 3))


def capturing() -> onnx.ModelProto:
    """An If behind NonZero. Its branches read a value of the program, a weight and an input, under names that they
    give to values of their own, too."""

    def branch(op: str, *read: str) -> onnx.GraphProto:
        return helper.make_graph(
            [node(op, list(read), ["inner"]), node("Neg", ["inner"], ["end"])], op, [], [value("end", None)]
        )

    nodes = [
        *product(),
        node("NonZero", ["h"], ["places"]),
        node("Size", ["places"], ["n"]),
        node("Greater", ["n", "limit"], ["many"]),
        node("If", ["many"], ["y"], then_branch=branch("Mul", "h", "scale"), else_branch=branch("Add", "z", "shift")),
    ]
    given = (weights(6, 5), tensor("limit", np.int64(7)), tensor("scale", np.full((4, 5), 3, np.float32)))
    inputs = (value("x", (4, 6)), value("z", (4, 5)), value("shift", (1, 5)))
    return model(nodes, inputs, (value("y", None),), given)


def passing() -> onnx.ModelProto:
    """Outputs straight from inputs, one of texts; and operators on texts beside the program."""
    codes = node("LabelEncoder", ["s"], ["code"], domain=ML, keys_strings=["one"], values_int64s=[1], default_int64=0)
    nodes = [*product(), codes, node("Add", ["code", "code"], ["twice"])]
    inputs = (value("s", (2,), STRING), value("x", (4, 6)))
    outputs = (value("twice", (2,), INT64), value("x", (4, 6)), value("h", (4, 5)), value("s", (2,), STRING))
    return with_imports(model(nodes, inputs, outputs, (weights(6, 5),)), (ML, 3))


def only_following() -> onnx.ModelProto:
    return model([node("NonZero", ["x"], ["y"])], outputs=(value("y", (2, "n"), INT64),))


def folded() -> onnx.ModelProto:
    """What follows reads a shape that is computed from constants, and a large weight."""
    nodes = [
        *product(),
        node("Shape", ["h"], ["size"]),
        node("Gather", ["size", "one"], ["width"], axis=0),
        node("NonZero", ["h"], ["places"]),
        node("Transpose", ["places"], ["rows"], perm=[1, 0]),
        node("GatherND", ["table", "rows"], ["read"]),
        node("Concat", ["width", "minus"], ["target"], axis=0),
        node("Expand", ["read", "one"], ["wide"]),
        node("Slice", ["wide", "zero", "width"], ["y"]),
    ]
    table = tensor("table", np.random.default_rng(1).standard_normal((40, 50)).astype(np.float32))
    numbers = (tensor("one", np.array([1])), tensor("minus", np.array([-1])), tensor("zero", np.array([0])))
    return model(nodes, (value("x", (4, 6)),), (value("y", None),), (weights(6, 5), table, *numbers))


def old() -> onnx.ModelProto:
    """Squeeze with its axes as an attribute, which no written opset has."""
    nodes = [
        *product(),
        node("NonZero", ["h"], ["places"]),
        node("Transpose", ["places"], ["rows"], perm=[1, 0]),
        node("Unsqueeze", ["rows"], ["three"], axes=[0]),
        node("Squeeze", ["three"], ["y"], axes=[0]),
    ]
    return model(nodes, (value("x", (4, 6)),), (value("y", None, INT64),), (weights(6, 5),), opset=11)


def vendors() -> onnx.ModelProto:
    nodes = [
        *product(),
        node("NonZero", ["h"], ["places"]),
        node("Unique", ["flat"], ["y", "i", "n"], domain="com.microsoft"),
        node("Reshape", ["h", "minus"], ["flat"]),
    ]
    outputs = (value("y", ("n",)), value("places", (2, None), INT64))
    given = (weights(6, 5), tensor("minus", np.array([-1])))
    return with_imports(model(nodes, (value("x", (4, 6)),), outputs, given), ("com.microsoft", 1))


def branch_taken() -> onnx.ModelProto:
    """NonZero in the branch of an If whose condition is constant."""

    def branch(op: str) -> onnx.GraphProto:
        return helper.make_graph([node(op, ["h"], ["e"])], op, [], [value("e", None, INT64)])

    choice = node("If", ["is"], ["y"], then_branch=branch("NonZero"), else_branch=branch("Shape"))
    given = (weights(6, 5), tensor("is", np.array(True)))
    return model([*product(), choice], (value("x", (4, 6)),), (value("y", (2, "n"), INT64),), given)


def called() -> onnx.ModelProto:
    """NonZero in a local function of the model."""
    nodes = [node("NonZero", ["a"], ["places"]), node("Size", ["places"], ["n"])]
    function = helper.make_function("own", "Count", ["a"], ["n"], nodes, [helper.make_opsetid("", 17)])
    call = node("Count", ["h"], ["y"], domain="own")
    made = model([*product(), call], (value("x", (4, 6)),), (value("y", (), INT64),), (weights(6, 5),))
    made.functions.append(function)
    return with_imports(made, ("own", 1))


def copies() -> onnx.ModelProto:
    """Two names of one value, of which what follows reads one; and a constant output."""
    same = [node("Identity", ["h"], ["again"]), node("NonZero", ["again"], ["y"])]
    nodes = [*product(), *same, node("Constant", [], ["k"], value=tensor("k", np.ones(3, np.float32)))]
    outputs = (value("k", (3,)), value("y", (2, "n"), INT64), value("again", (4, 5)), value("h", (4, 5)))
    return model(nodes, (value("x", (4, 6)),), outputs, (weights(6, 5),))


def stored_texts() -> onnx.ModelProto:
    """Outputs that are texts: of a node, of the file, and read by what follows as well."""
    texts = {name: tensor(name, np.array(list("ab"), object)) for name in ("s", "letters")}
    nodes = [
        *product(),
        node("Constant", [], ["s"], value=texts["s"]),
        node("SequenceConstruct", ["s", "letters"], ["pair"]),
        node("SequenceLength", ["pair"], ["n"]),
    ]
    outputs = (value("h", (4, 5)), value("s", (2,), STRING), value("letters", (2,), STRING), value("n", (), INT64))
    return model(nodes, (value("x", (4, 6)),), outputs, (weights(6, 5), texts["letters"]))


MODELS = {
    "constant texts": (stored_texts, ["Constant", "Constant", "SequenceConstruct", "SequenceLength"]),
    "constant If": (branch_taken, ["If"]),
    "local function": (called, ["NonZero", "Size"]),
    "copies": (copies, ["NonZero"]),
    "NonZero": (nonzero, ["NonZero"]),
    "detection": (detection, ["NonMaxSuppression", "Slice", "Squeeze", "Gather"]),
    "Unique": (unique, ["Unique", "Add"]),
    "Compress": (compress, ["Compress"]),
    "sequences": (
        sequences,
        [
            "SplitToSequence",
            "SequenceMap",
            "SequenceConstruct",
            "SequenceAt",
            "ConcatFromSequence",
            "SequenceLength",
        ],
    ),
    "optionals": (optionals, ["Optional", "OptionalHasElement", "OptionalGetElement"]),
    "classifier": (classifier, [f"{ML}.ArrayFeatureExtractor", "Reshape", f"{ML}.ZipMap"]),
    "If that captures": (capturing, ["NonZero", "Size", "Greater", "If"]),
    "texts and inputs": (passing, [f"{ML}.LabelEncoder", "Add"]),
    "nothing before": (only_following, ["NonZero"]),
    "constants": (folded, ["NonZero", "Transpose", "GatherND", "Expand", "Slice"]),
    "opset 11": (old, ["NonZero", "Transpose", "Unsqueeze", "Squeeze"]),
    "vendors": (vendors, ["NonZero", "com.microsoft.Unique"]),
}
"""Models, and the operators that follow their programs."""


def inputs_of(made: onnx.ModelProto) -> dict[str, Any]:
    """Random inputs."""
    found: dict[str, Any] = {}
    for each in made.graph.input:
        shape = [dim.dim_value for dim in each.type.tensor_type.shape.dim]
        kind = each.type.tensor_type.elem_type
        drawn = np.round(RNG.standard_normal(shape), 1)
        if kind == STRING:
            found[each.name] = np.array(["one", "two"], object)
        else:
            found[each.name] = drawn > 0 if kind == BOOL else drawn.astype(np.float32)
    return found


def run(made: onnx.ModelProto, inputs: dict[str, Any]) -> Sequence[Any]:
    return onnxruntime.InferenceSession(made.SerializeToString()).run(None, inputs)


def assert_same(read: onnx.ModelProto, written: onnx.ModelProto) -> None:
    """Both are valid, have the same inputs and outputs in order, and compute the same."""
    onnx.checker.check_model(written, full_check=True)
    for a, b in ((read.graph.input, written.graph.input), (read.graph.output, written.graph.output)):
        assert [each.name for each in a] == [each.name for each in b]
    for _ in range(3):
        inputs = inputs_of(read)
        for wanted, found in zip(run(read, inputs), run(written, inputs), strict=True):
            assert difference(wanted, found) < 1e-4


@pytest.mark.parametrize("name", MODELS)
def test_what_follows_is_written_behind_the_program(name: str) -> None:
    build, operators = MODELS[name]
    made = build()
    program = from_onnx(made, head=True)
    after = program.header.after
    assert after is not None
    assert [op for op, _ in after.operators] == operators
    assert_same(made, to_onnx(program))
    best = eqsat.optimize(program, time_limit=2.0, explain_time=0.0)
    assert [place["operator"] for place in best.report["after"]] == operators
    assert not best.report["optimal"]
    assert_same(made, to_onnx(best.program))


@pytest.mark.parametrize("name", MODELS)
def test_without_asking_no_such_program_is_returned(name: str) -> None:
    """The head of a model is never taken for the whole."""
    with pytest.raises(InputError, match=r"head=True|is no tensor|element type string"):
        from_onnx(MODELS[name][0]())


@pytest.mark.parametrize("name", ["detection", "classifier", "If that captures", "sequences"])
def test_the_command_writes_and_compares_whole_files(name: str, tmp_path: Path) -> None:
    build, operators = MODELS[name]
    source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
    made = build()
    onnx.save(made, source)
    report = document("optimize", source, "-o", target, "--time-limit", "5")
    assert [place["operator"] for place in report["after"]] == operators
    assert report["runtime"]["agrees"], report["runtime"]
    assert_same(made, onnx.load(target))


def test_other_plans_are_whole_files_too(tmp_path: Path) -> None:
    onnx.save(detection(), tmp_path / "in.onnx")
    report = document("optimize", tmp_path / "in.onnx", "-o", tmp_path / "out.onnx", "--top", "3", "--time-limit", "5")
    files = sorted(tmp_path.glob("out.*.onnx"))
    assert len(files) == len(report["alternatives"]) > 0
    for file in files:
        assert_same(detection(), onnx.load(file))


def test_reports_say_what_follows(tmp_path: Path) -> None:
    onnx.save(detection(), tmp_path / "in.onnx")
    text = printed("optimize", tmp_path / "in.onnx", "--time-limit", "5")
    assert "4 operators follow the program as written" in text
    assert "NonMaxSuppression (chosen)" in text
    assert "of what has a price" in text
    assert "proven optimal" not in text
    assert "Not explained: 4 operators follow" in printed("explain", tmp_path / "in.onnx", "--time-limit", "5")


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "IN"),
        ("emit", "IN", "-o", "OUT"),
        ("prove", "IN", "IN"),
        ("bench", "IN"),
        ("optimize", "IN", "-o", "OUT.onnx", "--certificate", "OUT.proof"),
    ],
)
def test_commands_on_whole_programs_refuse_in_one_line(arguments: Sequence[str], tmp_path: Path) -> None:
    onnx.save(nonzero(), tmp_path / "in.onnx")
    places = {"IN": str(tmp_path / "in.onnx"), "OUT": str(tmp_path / "out"), "OUT.onnx": str(tmp_path / "out.onnx")}
    places["OUT.proof"] = str(tmp_path / "out.proof")
    assert "NonZero" in refusal(*(places.get(each, each) for each in arguments))
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize(("given", "kept"), [((), "rows"), (("--shape", "rows=3"), 3)], ids=["all sizes", "one size"])
def test_named_dims_stay_or_are_fixed(given: tuple[str, ...], kept: str | int, tmp_path: Path) -> None:
    made = nonzero()
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    onnx.save(made, tmp_path / "in.onnx")
    said = printed("optimize", tmp_path / "in.onnx", *given, "-o", tmp_path / "out.onnx", "--time-limit", "5")
    assert "NonZero" in said
    rows, columns = onnx.load(tmp_path / "out.onnx").graph.input[0].type.tensor_type.shape.dim
    assert (rows.dim_param or rows.dim_value, columns.dim_value) == (kept, 6)


def test_a_program_of_a_worker_still_has_what_follows() -> None:
    import pickle

    program = from_onnx(detection(), head=True)
    assert_same(detection(), to_onnx(pickle.loads(pickle.dumps(program))))


def test_weights_in_other_files_and_defaults_of_inputs_are_constants(tmp_path: Path) -> None:
    """Of what follows, too."""
    made = folded()
    onnx.save(folded(), tmp_path / "in.onnx", save_as_external_data=True, location="in.bin", size_threshold=10)
    assert_same(made, to_onnx(from_onnx(tmp_path / "in.onnx", head=True)))
    made.graph.input.append(value("table", (40, 50)))
    program = from_onnx(made, head=True)
    assert program.header.fixed == ("table",)
    assert_same(folded(), to_onnx(program))


def test_a_local_function_of_another_opset_is_refused() -> None:
    made = called()
    made.functions[0].opset_import[0].version = 11
    made.functions[0].node[1].CopyFrom(node("Squeeze", ["places"], ["n"], axes=[0]))
    with pytest.raises(InputError, match="Count is a local function that is written for another opset"):
        from_onnx(made, head=True)


def changed(build: Any, change: Any) -> onnx.ModelProto:
    made = build()
    change(made.graph)
    return made


def _kind(graph: onnx.GraphProto) -> None:
    graph.node[-1].op_type = "Frobnicate"


def _count(graph: onnx.GraphProto) -> None:
    graph.node[-1].input.extend(["x", "x"])


def _attribute(graph: onnx.GraphProto) -> None:
    graph.node[-1].attribute[0].CopyFrom(helper.make_attribute("axis", 1.5))


def _types(graph: onnx.GraphProto) -> None:
    graph.node.append(node("Relu", ["mapped"], ["y2"], name="wrong"))
    graph.output.append(value("y2", None))


def _random(graph: onnx.GraphProto) -> None:
    graph.node.append(node("RandomNormalLike", ["y"], ["y2"], name="dice"))
    graph.output.append(value("y2", None))


def _domain(graph: onnx.GraphProto) -> None:
    graph.node[-1].domain = "elsewhere"


def _undefined(graph: onnx.GraphProto) -> None:
    graph.node[-1].input[0] = "nowhere"


def _cycle(graph: onnx.GraphProto) -> None:
    graph.node.append(node("Add", ["y", "c2"], ["c1"]))
    graph.node.append(node("Add", ["c1", "c1"], ["c2"]))
    graph.output.append(value("c2", None))


MALFORMED = {
    "unknown operator": (nonzero, _kind, "Frobnicate"),
    "unknown operator behind": (unique, _kind, "Frobnicate"),
    "too many inputs": (nonzero, _count, "NonZero"),
    "attribute of another kind": (compress, _attribute, "axis"),
    "a sequence where a tensor is due": (sequences, _types, "refuses the operators"),
    "random numbers": (compress, _random, "dice"),
    "a domain that is not imported": (unique, _domain, "elsewhere"),
    "a name that nothing defines": (unique, _undefined, "nowhere"),
    "a cycle": (nonzero, _cycle, "cycle"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_malformed_behind_the_program_is_refused(name: str, tmp_path: Path) -> None:
    build, change, said = MALFORMED[name]
    onnx.save(changed(build, change), tmp_path / "in.onnx")
    assert said in refusal("optimize", tmp_path / "in.onnx", "-o", tmp_path / "out.onnx", "--time-limit", "5")
    assert not (tmp_path / "out.onnx").exists()


def test_an_old_operator_in_a_body_is_refused() -> None:
    def close(graph: onnx.GraphProto) -> None:
        inner = [node("Squeeze", ["three"], ["end"], axes=[0])]
        branches = {
            key: helper.make_graph(inner, key, [], [value("end", None, INT64)])
            for key in ("then_branch", "else_branch")
        }
        graph.node[-1].CopyFrom(node("If", ["is"], ["y"], **branches))
        graph.input.append(value("is", (1,), BOOL))

    with pytest.raises(InputError, match="convert the model to opset 13"):
        from_onnx(changed(old, close), head=True)


def regions() -> onnx.ModelProto:
    """RoiAlign of opset 10, whose boxes are not shifted by half a pixel, on boxes that are selected."""
    nodes = [
        node("Relu", ["x"], ["h"]),
        node("Compress", ["boxes", "chosen"], ["few"], axis=0),
        node("Compress", ["places", "chosen"], ["of"], axis=0),
        node("RoiAlign", ["h", "few", "of"], ["y"], output_height=2, output_width=2),
    ]
    inputs = (value("x", (1, 2, 8, 8)), value("boxes", (3, 4)), value("chosen", (3,), BOOL))
    given = (tensor("places", np.zeros(3, np.int64)),)
    return model(nodes, inputs, (value("y", ("n", 2, 2, 2)),), given, opset=11)


def test_an_operator_that_changed_keeps_its_opset() -> None:
    made = regions()
    written = to_onnx(from_onnx(made, head=True))
    assert written.opset_import[0].version < 16
    inputs = inputs_of(made) | {
        "boxes": np.array([[0, 0, 3, 5], [1, 1, 4, 4], [2, 0, 7, 7]], np.float32),
        "chosen": np.array([True, False, True]),
    }
    for wanted, found in zip(run(made, inputs), run(written, inputs), strict=True):
        np.testing.assert_allclose(found, wanted, 1e-5)


def test_opsets_that_contradict_are_refused() -> None:
    program = from_onnx(regions(), head=True)
    other = ops.input("other", (2, 3), "float8_e4m3fn")  # which Transpose takes since opset 21
    outputs = {**program.outputs, "late": ops.transpose(other, (1, 0))}
    both = Program((*program.inputs, other), outputs, header=program.header)
    with pytest.raises(InputError, match="convert the model to opset 21"):
        to_onnx(both)


def test_files_with_inputs_of_texts_are_not_compared(tmp_path: Path) -> None:
    onnx.save(passing(), tmp_path / "in.onnx")
    report = document("optimize", tmp_path / "in.onnx", "-o", tmp_path / "out.onnx", "--time-limit", "5")
    assert report["uncompared"] == "there are no random values for inputs that are no numbers: s"


@pytest.mark.parametrize(
    ("wanted", "found", "same"),
    [
        ([{"a": 1.0}], [{"a": 1.0}], True),
        ([{"a": 1.0}], [{"b": 1.0}], False),
        ([{"a": 1.0}], [{"a": 2.0}], False),
        ([np.ones(2)], [np.ones(2), np.ones(2)], False),
        ([np.ones(2)], [np.ones(3)], False),
        (np.array(["a"], object), np.array(["a"], object), True),
        (np.array(["a"], object), np.array(["b"], object), False),
        (np.ones(2, np.float32), np.ones(2), False),
        (["a"], ["b"], False),
        (None, None, True),
        (None, np.ones(1), False),
    ],
)
def test_values_of_every_kind_are_compared(wanted: Any, found: Any, same: bool) -> None:
    assert (difference(wanted, found) == 0) == same


OUTSIDE = {
    "Gather": node("Gather", ["x", "i"], ["y"], name="pick", axis=1),
    "GatherElements": node("GatherElements", ["x", "i"], ["y"], name="pick", axis=1),
    "GatherND": node("GatherND", ["x", "i"], ["y"], name="pick"),
}


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("place", [3, -4])
def test_a_constant_place_outside_is_named(name: str, place: int) -> None:
    """With its node, the size, and the way out."""
    made = model([OUTSIDE[name]], (value("x", (3, 3)),), initializers=(tensor("i", np.array([[place, 0]])),))
    with pytest.raises(InputError, match=rf"{name} node 'pick': reads place {place} along .*has 3.*--shape"):
        from_onnx(made)
