"""The command line as a user sees it: output, files, and errors."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat import from_onnx, relu, spec, to_onnx, trace
from eqsat.cli.shared import arrays as stored
from support.cli import A, C, chain, document, eqsat, onnx_model, printed, refusal

COMMANDS = (
    *(
        "optimize",
        "run",
        "emit",
        "prove",
        "verify",
        "explain",
        "explore",
        "demo",
        "devices",
        "extract",
        "version",
        "sweep",
        "fuzz",
    ),
    *("bench", "calibrate", "kernels list", "kernels show", "kernels source"),
    *("rules list", "rules show", "rules check", "rules discover"),
)


X = np.array([[1.0, 2.0, 3.0], [-1.0, 0.5, 0.0]], np.float32)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "chain.onnx"
    onnx.save(chain(), path)
    return path


def saved(path: Path, **arrays: np.ndarray[Any, Any]) -> Path:
    """An .npz file of these arrays."""
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(command: str) -> None:
    text = printed(*command.split(), "--help")
    assert "Example" in text
    assert f"eqsat {command}" in " ".join(text.replace("│", " ").split())


def test_bad_usage_is_exit_code_2() -> None:
    assert eqsat("no-such-command").exit_code == 2
    assert eqsat("optimize", "model.onnx", "--time-limit", "soon").exit_code == 2


def test_python_m_eqsat_is_the_same_program() -> None:
    command = [sys.executable, "-m", "eqsat", "--version"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown == printed("--version")


def test_version_names_the_libraries_that_results_depend_on() -> None:
    versions = document("version")
    assert versions["egglog"].startswith("13.2.")
    assert set(versions) == {"eqsat", "python", "numpy", "egglog", "highspy", "onnx"}


# Devices


def test_devices_are_listed_with_their_targets() -> None:
    targets = {row["name"]: row["arch"] for row in document("devices")["devices"]}
    assert targets["mi300x"] == "gfx942"
    assert targets["h100"] == "sm_90"
    assert all(name in printed("devices") for name in targets)


def test_one_device_is_shown_with_the_source_of_each_figure() -> None:
    (row,) = document("devices", "mi300x")["devices"]
    assert row["figures"]["bandwidth"]["value"] == 5300
    assert all(figure["source"] for figure in row["figures"].values())
    assert "data sheet" in printed("devices", "mi300x")


def test_an_unknown_device_is_answered_with_the_nearest() -> None:
    assert "mi300x" in refusal("devices", "mi300")


# Rules


def test_rules_are_listed_with_both_sides() -> None:
    rows = {row["name"]: row for row in document("rules", "list")["rules"]}
    chain = rows["matmul-associate-right"]
    assert chain["left"] == "(a @ b) @ c"
    assert chain["right"] == "a @ (b @ c)"
    listed = printed("rules", "list")
    assert all(name in listed for name in rows)


def test_rules_are_narrowed_by_family_class_and_operator() -> None:
    exact = document("rules", "list", "--family", "views", "--numerics", "exact", "--operator", "where")["rules"]
    assert exact
    for row in exact:
        assert (row["family"], row["numerics"]) == ("views", "exact")
        assert "where(" in row["text"]


def test_a_rule_is_shown_with_its_guard_and_reason() -> None:
    row = document("rules", "show", "view-of-view")
    text = printed("rules", "show", "view-of-view")
    assert all(row[key] in text for key in ("before", "after", "numerics", "why", "source"))


@pytest.mark.parametrize(
    ("command", "suggestion"),
    [
        (("rules", "show", "matmul-asociate-right"), "matmul-associate-right"),
        (("rules", "list", "--family", "view"), "views"),
        (("demo", "tower"), "towers"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(command: tuple[str, ...], suggestion: str) -> None:
    assert suggestion in refusal(*command)


OWN_RULE = """
from eqsat.rule import rule

RULES = [rule("own-doubling", "add(a, a) => {right}", numerics="reassociating")]
"""


def test_sound_rules_pass_their_check() -> None:
    rows = document("rules", "check", "view-of-view", "matmul-associate-right")["rules"]
    assert [(row["rule"], row["verdict"]) for row in rows] == [
        ("view-of-view", "sound"),
        ("matmul-associate-right", "sound"),
    ]
    assert all(row["held"] == 40 for row in rows)


def test_a_wrong_rule_of_ones_own_is_shown_with_a_counterexample_and_never_used(model: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(OWN_RULE.format(right="mul(a, a)"))
    result = eqsat("rules", "check", "--rules", wrong)
    assert result.exit_code == 1
    assert "unsound" in result.stdout
    assert "own-doubling" in refusal("optimize", model, "--rules", wrong)


def test_a_sound_rule_of_ones_own_is_used(model: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(OWN_RULE.format(right="add(a, sub(a, add(a, neg(a))))"))
    assert document("rules", "check", "--rules", own)["rules"][0]["verdict"] == "sound"
    assert document("optimize", model, "--rules", own)["check"]["passed"]


# Run


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


# Bad models, through every command that reads one


def external(tmp_path: Path) -> onnx.ModelProto:
    """A model whose weights are said to lie in a file that is not there."""
    model = chain()
    for weight in model.graph.initializer:
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
        weight.external_data.add(key="location", value="weights.bin")
    return model


def undefined(tmp_path: Path) -> onnx.ModelProto:
    model = chain()
    model.graph.node[1].input[0] = "nowhere"
    return model


def mismatched(tmp_path: Path) -> onnx.ModelProto:
    model = chain()
    model.graph.initializer[1].CopyFrom(numpy_helper.from_array(C.T.copy(), "C"))
    return model


def mixed(tmp_path: Path) -> onnx.ModelProto:
    model = chain()
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(A.astype(np.float64), "A"))
    return model


BAD_MODELS: dict[str, tuple[Any, str]] = {
    "no file": (None, "no such file"),
    "not ONNX": (lambda _: b"PK\x03\x04 not a model", "onnx"),
    "truncated": (lambda _: chain().SerializeToString()[:-40], "onnx"),
    "an undefined tensor name": (undefined, "nowhere"),
    "mismatched shapes": (mismatched, "(5, 4)"),
    "mixed dtypes": (mixed, "float64"),
    "missing external data": (external, "weights.bin"),
}


@pytest.mark.parametrize("command", ["optimize", "run"])
@pytest.mark.parametrize("case", BAD_MODELS)
def test_bad_models_are_refused_in_one_line(tmp_path: Path, command: str, case: str) -> None:
    make, says = BAD_MODELS[case]
    path = tmp_path / "bad.onnx"
    if make is not None:
        made = make(tmp_path)
        path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
    line = refusal(command, path)
    assert says.lower() in line.lower()
    assert "bad.onnx" in line


def test_an_unwritable_output_is_refused(model: Path, tmp_path: Path) -> None:
    assert "no-such-folder" in refusal("run", model, "-o", tmp_path / "no-such-folder" / "y.npz")


# Extract

SHARED = {
    "nodes": {
        "root": {"op": "+", "cost": 1, "eclass": "r", "children": ["left", "right"]},
        "left": {"op": "f", "cost": 1, "eclass": "a", "children": ["shared"]},
        "left-alone": {"op": "g", "cost": 6, "eclass": "a", "children": []},
        "right": {"op": "h", "cost": 1, "eclass": "b", "children": ["shared"]},
        "right-alone": {"op": "i", "cost": 6, "eclass": "b", "children": []},
        "shared": {"op": "s", "cost": 8, "eclass": "s", "children": []},
    },
    "root_eclasses": ["r"],
}
"""Each side alone is cheaper without `shared`; both together are cheaper with it, counted once."""


def test_extract_counts_a_shared_node_once(tmp_path: Path) -> None:
    path = tmp_path / "shared.json"
    path.write_text(json.dumps(SHARED))
    answer = document("extract", path)
    assert (answer["cost"], answer["lower_bound"], answer["gap"], answer["optimal"]) == (11, 11, 0, True)
    assert answer["choices"] == {"r": "root", "a": "left", "b": "right", "s": "shared"}
    assert "cost 11, proven optimal" in printed("extract", path)


BAD_EGRAPHS = {
    "not JSON": ("{", "not JSON"),
    "a root without nodes": (json.dumps(SHARED | {"root_eclasses": ["nowhere"]}), "nowhere"),
    "no e-graph": ("[1, 2]", "nodes"),
}


@pytest.mark.parametrize("case", BAD_EGRAPHS)
def test_bad_egraphs_are_refused(tmp_path: Path, case: str) -> None:
    text, says = BAD_EGRAPHS[case]
    path = tmp_path / "bad.json"
    path.write_text(text)
    assert says in refusal("extract", path)


def test_a_missing_egraph_is_refused(tmp_path: Path) -> None:
    assert "missing.json" in refusal("extract", tmp_path / "missing.json")


# Optimize, emit, demo

REPORT = {
    "": "schema device numerics seconds stages source result lower_bound_us gap optimal kernels egraph rules steps"
    " derived merges check opaque extraction measured",
    "source": "kernels launches unfused_kernels flops matmul_flops bytes predicted_us peak_bytes",
    "result": "kernels launches copies flops matmul_flops bytes predicted_us peak_bytes",
    "egraph": "classes nodes iterations seconds stop growth",
    "extraction": "candidates families joint nodes rows seconds solver answers",
    "check": "passed max_error points method parts missed",
}
"""Fields of the report, schema 1: of the document and of the objects in it."""


def test_optimize_folds_a_chain_and_writes_it(model: Path, tmp_path: Path) -> None:
    import onnxruntime

    after = tmp_path / "after.onnx"
    report = document("optimize", model, "-o", after)
    assert report["source"]["matmul_flops"] == 2 * (2 * 3 * 4 + 2 * 4 * 5)
    assert report["result"]["matmul_flops"] == 2 * (2 * 3 * 5)
    assert report["rules"] == {"matmul-of-constants-right": 1}
    assert report["optimal"]
    (got,) = onnxruntime.InferenceSession(str(after)).run(["y"], {"x": X})
    np.testing.assert_allclose(np.asarray(got), X @ A @ C, rtol=1e-5)
    assert [node.op_type for node in onnx.load(after).graph.node] == ["MatMul"]


def test_further_plans_are_listed_and_written(tmp_path: Path) -> None:
    import onnxruntime

    w = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32) / 8
    before, out = tmp_path / "before.onnx", tmp_path / "after.onnx"
    to_onnx(trace(lambda x: relu(relu(x @ w) @ w + x), spec((32, 64))), before)
    report = document("optimize", before, "--top", "3", "-o", out)
    assert [row["rank"] for row in report["alternatives"]] == [2, 3]
    x = np.random.default_rng(1).normal(size=(32, 64)).astype(np.float32)
    expected = np.maximum(np.maximum(x @ w, 0) @ w + x, 0)
    for path in (out, tmp_path / "after.2.onnx", tmp_path / "after.3.onnx"):
        session = onnxruntime.InferenceSession(str(path))
        (got,) = session.run(None, {session.get_inputs()[0].name: x})
        np.testing.assert_allclose(np.asarray(got), expected, atol=1e-4)
    text = printed("optimize", before, "--top", "3")
    assert "Plans, the best first" in text
    assert "proven next" in text


def test_memory_can_be_the_objective(model: Path) -> None:
    goal = document("optimize", model, "--objective", "mix:0.5")["objective"]
    assert (goal["latency"], goal["memory"]) == (0.5, 0.5)
    assert "Peak memory of temporaries" in printed("optimize", model, "--objective", "memory")
    assert "expected latency, memory, mix:W" in refusal("optimize", model, "--objective", "mix:2")


def test_the_report_has_the_fields_of_its_schema(model: Path) -> None:
    report = document("optimize", model, "--device", "h100")
    assert (report["schema"], report["device"]) == (1, "h100")
    for name, fields in REPORT.items():
        assert set(report[name] if name else report) == set(fields.split())


def test_optimize_prints_what_it_did(model: Path) -> None:
    text = printed("optimize", model)
    for words in ("as written, fused", "optimised", "matmul-of-constants-right", "Lower bound", "Check: passed"):
        assert words in text


def test_optimize_explains_its_steps_when_asked(model: Path) -> None:
    steps = document("optimize", model)["steps"]
    assert [step["rule"] for step in steps] == ["matmul-of-constants-right", "fold-constants"]
    text = printed("optimize", model, "--explain")
    for number, step in enumerate(steps, 1):
        assert f"{number}. {step['rule']}" in text
        assert f"= {step['after']}" in text


def test_rules_can_be_left_out_or_picked(model: Path) -> None:
    def flops(*arguments: str) -> int:
        return document("optimize", model, *arguments)["result"]["matmul_flops"]

    assert flops("--only", "matmul-of-constants-right") == 60
    assert flops("--only", "view-of-view") == 128
    assert flops("--numerics", "exact") == 128


def test_json_goes_to_a_file_beside_the_tables(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    assert "Kernels" in printed("optimize", model, "--json", path)
    assert json.loads(path.read_text())["schema"] == 1


def test_run_takes_the_optimised_plan(model: Path, tmp_path: Path) -> None:
    given = saved(tmp_path / "x.npz", x=X, out_y=X @ A @ C)
    answer = document("run", model, "--inputs", given, "--optimize")
    assert answer["optimized"]
    assert answer["outputs"][0]["passed"]


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (("--device", "mi300"), "mi300x"),
        (("--only", "matmul-of-constant-right"), "matmul-of-constants-right"),
        (("--without", "view-of-veiw"), "view-of-view"),
    ],
)
def test_optimize_answers_unknown_names_with_the_nearest(
    model: Path, arguments: tuple[str, ...], suggestion: str
) -> None:
    assert suggestion in refusal("optimize", model, *arguments)


def test_emit_writes_a_folder_that_is_complete(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    manifest = document("emit", model, "-o", folder, "--device", "mi300x")
    assert manifest["arch"] == "gfx942"
    assert json.loads((folder / "manifest.json").read_text()) == manifest
    sources = {step["source"] for step in manifest["steps"] if "kernel" in step}
    assert sources
    assert sources | {"constants.npz", "README.md"} <= {path.name for path in folder.iterdir()}


def test_emit_refuses_a_device_without_kernels(model: Path, tmp_path: Path) -> None:
    assert "cpu" in refusal("emit", model, "-o", tmp_path / "kernels", "--device", "cpu")


def test_demo_shows_programs_before_and_after(tmp_path: Path) -> None:
    programs = document("demo", "permuted", "row-sum", "--save", tmp_path)["programs"]
    assert programs["row-sum"]["result"]["matmul_flops"] == 2 * 512 * 768
    assert programs["permuted"]["result"]["kernels"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "permuted-optimised.onnx",
        "permuted.onnx",
        "row-sum-optimised.onnx",
        "row-sum.onnx",
    ]
    assert "rocMLIR" in printed("demo", "row-sum")


# Prove


def associated(right: bool, factor: float = 1.0) -> onnx.ModelProto:
    """(a @ b) @ c, or a @ (b @ c) times a constant, for a [2, 3], b [3, 4], c [4, 5], none of them constant."""
    if right:
        nodes = [helper.make_node("MatMul", ["b", "c"], ["bc"]), helper.make_node("MatMul", ["a", "bc"], ["abc"])]
    else:
        nodes = [helper.make_node("MatMul", ["a", "b"], ["ab"]), helper.make_node("MatMul", ["ab", "c"], ["abc"])]
    nodes.append(helper.make_node("Mul", ["abc", "factor"], ["y"]))
    inputs: dict[str, list[int | str]] = {"a": [2, 3], "b": [3, 4], "c": [4, 5]}
    return onnx_model(nodes, inputs, {"y": [2, 5]}, {"factor": np.asarray(factor, np.float32)})


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path, Path]:
    """(a @ b) @ c, a @ (b @ c), and twice that."""
    paths = tmp_path / "left.onnx", tmp_path / "right.onnx", tmp_path / "twice.onnx"
    for path, made in zip(paths, (associated(False), associated(True), associated(True, 2.0)), strict=True):
        onnx.save(made, path)
    return paths


def test_equal_programs_are_proved(pair: tuple[Path, Path, Path]) -> None:
    assert document("prove", pair[0], pair[1])["verdict"] == "proved"


def test_a_size_may_name_a_dimension_of_one_program(tmp_path: Path) -> None:
    files = tmp_path / "dynamic.onnx", tmp_path / "fixed.onnx"
    for path, rows in zip(files, ("batch", 7), strict=True):
        onnx.save(chain(rows), path)
    assert document("prove", *files, "--shape", "batch=7")["verdict"] == "proved"
    assert "batch" in refusal("prove", *files, "--shape", "bacth=7", "--shape", "batch=7")


def test_unequal_programs_are_refuted_by_an_input(pair: tuple[Path, Path, Path], tmp_path: Path) -> None:
    found = tmp_path / "x.npz"
    result = eqsat("prove", pair[0], pair[2], "--counterexample", found)
    assert result.exit_code == 1
    assert result.stdout.startswith("refuted")
    outputs = [tmp_path / "y0.npz", tmp_path / "y2.npz"]
    for path, output in zip((pair[0], pair[2]), outputs, strict=True):
        printed("run", path, "--inputs", found, "-o", output)
    with np.load(outputs[0]) as left, np.load(outputs[1]) as right:
        assert not np.allclose(left["y"], right["y"])


def test_programs_that_cannot_be_compared_are_refused(pair: tuple[Path, Path, Path], model: Path) -> None:
    assert "inputs" in refusal("prove", pair[0], model)


ODD = "[red]a\x1b[31mb\nc\t<i>\u202e"


@pytest.fixture
def odd_names(tmp_path: Path) -> Path:
    """A model whose every name holds markup, an escape sequence, a newline and a change of direction."""
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), ODD + n) for n, s in
               (("w", (8, 64)), ("v", (64, 4)))]  # fmt: skip
    nodes = [
        helper.make_node("MatMul", [ODD + "x", ODD + "w"], [ODD + "h"], ODD + "1"),
        helper.make_node("MatMul", [ODD + "h", ODD + "v"], [ODD + "y"], ODD + "2"),
    ]
    ends = [helper.make_tensor_value_info(ODD + n, TensorProto.FLOAT, s) for n, s in (("x", (64, 8)), ("y", (64, 4)))]
    graph = helper.make_graph(nodes, ODD, ends[:1], ends[1:], weights)
    path = tmp_path / "odd.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize(
    "command",
    [
        ("optimize", "{model}"),
        ("explain", "{model}"),
        ("explain", "{model}", "--why-not", "matmul-associate-right"),
        ("run", "{model}"),
        ("prove", "{model}", "{model}"),
        ("kernels", "source", "{model}", "--kernel", "0"),
    ],
)
def test_names_are_shown_as_they_stand(odd_names: Path, command: tuple[str, ...]) -> None:
    text = printed(*[part.format(model=odd_names) for part in command])
    assert text.replace("\n", "").isprintable()


def test_names_are_shown_as_they_stand_in_pages_and_python(odd_names: Path, tmp_path: Path) -> None:
    printed("explain", odd_names, "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page.replace("\n", "").isprintable()
    assert "<i>" not in page
    assert "c\\t&lt;i&gt;" in page
    assert "\\x1b[31mb\\nc\\t<i>\\u202ex" in str(from_onnx(odd_names))


def test_two_files_are_compared_in_onnxruntime(model: Path) -> None:
    shorter = model.with_name("shorter.onnx")
    onnx.save(
        onnx_model([helper.make_node("MatMul", ["x", "AC"], ["y"])], {"x": [2, 3]}, {"y": [2, 5]}, {"AC": A @ C}),
        shorter,
    )
    found = document("bench", model, shorter, "--on", "onnxruntime", "--rounds", "9")
    assert (found["on"], found["threads"], found["rounds"]) == ("onnxruntime", 1, 9)
    assert [each["file"] for each in found["files"]] == [str(model), str(shorter)]
    assert found["passed"]
    assert 0 < found["low"] <= found["ratio"] <= found["high"]
    text = printed("bench", model, shorter, "--on", "onnxruntime", "--rounds", "2", "--threads", "2")
    assert "x to more): within noise." in text
    assert "2 threads, 2 rounds" in text


def test_two_files_that_differ_are_told(model: Path) -> None:
    other = model.with_name("other.onnx")
    onnx.save(
        onnx_model([helper.make_node("MatMul", ["x", "AC"], ["y"])], {"x": [2, 3]}, {"y": [2, 5]}, {"AC": A @ C + 1}),
        other,
    )
    result = eqsat("bench", model, other, "--on", "onnxruntime", "--rounds", "8")
    assert result.exit_code == 1
    assert "MORE THAN ROUNDING" in result.stdout


def test_onnxruntime_compares_two_files_that_it_can_run(model: Path, tmp_path: Path) -> None:
    assert "compares two model files, got 1" in refusal("bench", model, "--on", "onnxruntime")
    foreign = onnx_model([helper.make_node("Own", ["x"], ["y"])], {"x": [2, 3]}, {"y": [2, 5]}, {})
    onnx.save(foreign, tmp_path / "foreign.onnx")
    assert "onnxruntime cannot run it" in refusal("bench", model, tmp_path / "foreign.onnx", "--on", "onnxruntime")


def test_optimize_keeps_dynamic_dimensions(tmp_path: Path) -> None:
    file, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    nodes = [helper.make_node("MatMul", ["x", "a"], ["t"]), helper.make_node("MatMul", ["t", "c"], ["u"])]
    nodes.append(helper.make_node("MatMul", ["u", "d"], ["y"]))
    weights = {"a": A, "c": C, "d": np.ones((5, 2), np.float32)}
    onnx.save(onnx_model(nodes, {"x": ["rows", 3]}, {"y": ["rows", 2]}, weights), file)
    found = document("optimize", file, "-o", out, "--shape", "rows=1..40")["dynamic"]
    assert (found["dims"], found["as_source"]) == ({"rows": [1, 40]}, False)
    assert from_onnx(out, {"rows": 7}).outputs["y"].shape == (7, 2)
    assert "One model for rows=1..40" in " ".join(printed("optimize", file, "--shape", "rows=1..40").split())
    both = document("optimize", file, "-o", out, "--shape", "rows=1..40", "--buckets")["buckets"]
    assert [each["dynamic"]["dims"]["rows"] for each in both] == [[1, 6], [7, 40]]
    assert sorted(p.name for p in tmp_path.glob("out.rows*")) == ["out.rows1-6.onnx", "out.rows7-40.onnx"]
    assert "--buckets" in refusal("optimize", file, "--shape", "rows=4", "--buckets")
    assert "--top: in.onnx has dynamic dimensions" in refusal("optimize", file, "--top", "2")
    assert "NAME=LEAST..LARGEST" in refusal("optimize", file, "--shape", "rows=1..")
