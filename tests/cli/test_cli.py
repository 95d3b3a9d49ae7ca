"""The command line as a user sees it: output, files, and errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat import from_onnx
from support.cli import A, C, chain, document, eqsat, onnx_model, printed, refusal

COMMANDS = (
    *("optimize", "run", "emit", "prove", "verify", "explain", "explore", "demo", "devices", "extract", "version"),
    *("sweep", "fuzz", "bench", "calibrate", "kernels list", "kernels show", "kernels source"),
    *("rules list", "rules show", "rules check", "rules discover"),
)


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


def test_nothing_is_collected_at_exit() -> None:
    """The collector would walk through all that a search has left: a third of a second."""
    script = """
import atexit, gc, sys
from eqsat.__main__ import main
sys.argv = ["eqsat", "--version"]
atexit.register(lambda: print(gc.get_freeze_count() > len(gc.get_objects())))
main()
"""
    folder = Path(__file__).parents[2]
    ran = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "True"


def test_what_a_search_has_made_is_not_taken_apart_at_exit() -> None:
    """That takes a third of a second for a large model."""
    script = """
import atexit, sys
from eqsat.__main__ import main
class Made:
    def __del__(self):
        print("taken apart")
sys.made = Made()
atexit.register(lambda: print("at exit"))
sys.argv = ["eqsat", *sys.argv[1:]]
main()
"""
    folder = Path(__file__).parents[2]
    for arguments, code in (["--version"], 0), (["no-such-command"], 2):
        ran = subprocess.run([sys.executable, "-c", script, *arguments], cwd=folder, capture_output=True, text=True)
        assert (ran.returncode, ran.stdout.splitlines()[-1]) == (code, "at exit")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_output_that_cannot_be_written_is_no_success() -> None:
    command = [sys.executable, "-m", "eqsat", "--version"]
    with Path("/dev/full").open("w") as full:
        assert subprocess.run(command, stdout=full, stderr=subprocess.DEVNULL).returncode != 0


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a line for a shell does, in which `$E` is the command."""
    command = {"E": f"{sys.executable} -m eqsat", **environment}
    given = {**os.environ, **command}
    return subprocess.run(["bash", "-c", line], env=given, capture_output=True, encoding="utf-8", errors="replace")


def test_a_file_is_no_expression(model: Path) -> None:
    assert "give an expression" in refusal("explore", model)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_tables_are_printed_in_every_encoding(encoding: str) -> None:
    ran = shell("$E devices && $E rules list && $E explore --help", PYTHONIOENCODING=encoding)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert " ------" in ran.stdout


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("optimize", "{model}", "--time-limit", "1e300"), 0),
        (("optimize", "{model}", "--max-error", "inf", "--json", "-"), 3),
        (("optimize", "{model}", "--memory-limit", "inf"), 2),
        (("optimize", "{model}", "--memory-limit", "1e308"), 2),
        (("optimize", "{model}", "--memory-limit", "1e9"), 0),
        (("optimize", "{model}", "--measure-threads", "1025"), 2),
        (("optimize", "{model}", "--shape", "batch=" + "9" * 5000), 3),
        (("sweep", "{model}", "-o", "{folder}/s", "--memory-limit", "inf"), 2),
        (("bench", "{model}", "--threads", "1025"), 2),
        (("explore", "x + x", "--let", f"x=f32[{'9' * 5000}]"), 3),
        (("explore", "x + x", "--let", "x=f32[3]", "--count", "9" * 20), 2),
        (("run", "{model}", "-o", os.devnull), 0),
    ],
)
def test_numbers_of_every_size_are_judged(model: Path, arguments: tuple[str, ...], code: int) -> None:
    result = eqsat(*[part.format(model=model, folder=model.parent) for part in arguments])
    assert result.exit_code == code, result.output
    assert code != 3 or len(result.stderr.splitlines()) == 1


def test_a_name_that_is_given_twice_is_refused() -> None:
    result = eqsat("explore", "x + x", "--let", "x=f32[3]", "--let", "x=f32[4]")
    assert result.exit_code == 3
    assert "x is f32[3] already" in result.stderr


@pytest.mark.parametrize("command", ["devices", "devices --json -", "version"])
def test_a_closed_stdout_drops_what_is_printed(command: str) -> None:
    ran = shell(f"$E {command} >&-")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_a_closed_stderr_changes_no_result(model: Path) -> None:
    ran = shell(f"$E optimize {model} -o /dev/fd/3 --json - 3>/dev/null 2>&-")
    assert ran.returncode == 0
    assert json.loads(ran.stdout)["egraph"]["stop"] == "saturated"


@pytest.mark.parametrize("command", ["rules list", "--help"])
def test_a_reader_that_leaves_is_no_fault(command: str) -> None:
    ran = shell(f"$E {command} | head -1; exit ${{PIPESTATUS[0]}}")
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("command", ["--help", "devices", "devices --json -", "optimize --help"])
def test_a_full_stdout_is_named(command: str, tmp_path: Path) -> None:
    ran = shell(f"ulimit -f 0; $E {command} >$OUT", OUT=str(tmp_path / "out"))
    assert ran.returncode == 3
    assert ran.stderr.splitlines()[0].startswith("eqsat: stdout: cannot be written (File too large)")
    assert len(ran.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("command", "code"), [("optimize none.onnx", 3), ("prove none.onnx none.onnx", 3), ("optimize --none", 2)]
)
def test_a_full_stderr_changes_no_exit_code(command: str, code: int, tmp_path: Path) -> None:
    ran = shell(f"ulimit -f 0; $E {command} 2>$ERR", ERR=str(tmp_path / "err"))
    assert (ran.returncode, (tmp_path / "err").read_text()) == (code, "")


@pytest.mark.parametrize("command", ["explore --help", "sweep", "explore x --let x=f32[2]"])
def test_a_width_that_no_terminal_has_is_one_that_is_not_known(command: str) -> None:
    """Rich fills lines with blanks."""
    ran, usual = shell(f"$E {command}", COLUMNS="9" * 11), shell(f"unset COLUMNS; $E {command}")
    assert (ran.returncode, ran.stdout, ran.stderr) == (usual.returncode, usual.stdout, usual.stderr)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ("ulimit -n 8", "more files are open than this process may have; raise that limit (ulimit -n)"),
        ("cd $GONE && rmdir $GONE", "the current folder is gone; change to one that is there"),
    ],
)
def test_what_the_process_lacks_is_said(limits: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    home = str(Path(__file__).parents[2])
    line = f"{limits}; $E fuzz --kind programs --minutes 0.01 --workers 1"
    ran = shell(line, GONE=str(tmp_path / "gone"), PYTHONPATH=home)
    assert (ran.returncode, ran.stderr) == (3, f"eqsat: {said}\n")


def test_a_thread_that_cannot_start_is_no_fault(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert "takes more memory or threads than there are" in refusal("explain", model)


@pytest.mark.parametrize(
    ("lets", "said"),
    [
        (("lambda=f32[3]",), "lambda is a word of Python"),
        (("fi=f32[3]", "\ufb01=f32[3]"), "Python reads this name as fi"),
        ((f"x=const:f32[{1 << 31}]",), "has 2147483648 elements; at most 2147483647 are handled"),
        (("x=const:f32[30000,30000]",), "the constants x have 900000000 elements; at most 67108864 are drawn"),
        ((f"x=f32[{1 << 31}]",), "has 2147483648 elements; at most 2147483647 are handled"),
    ],
)
def test_a_name_or_a_size_that_nothing_takes_is_refused(lets: tuple[str, ...], said: str) -> None:
    options = [part for text in lets for part in ("--let", text)]
    assert said in refusal("explore", "x", *options)


def test_a_name_is_what_pythons_parser_makes_of_it() -> None:
    assert "fi + fi" in printed("explore", "\ufb01 + fi", "--let", "\ufb01=f32[3]", "-d", "cpu", "-d", "cpu")


def test_a_result_that_is_too_large_is_refused() -> None:
    expression = "broadcast_to(x, (1000000, 3000, 3))"
    assert "elements; at most" in refusal("explore", expression, "--let", "x=f32[3]")


def test_no_columns_are_a_width_that_is_not_known() -> None:
    assert shell("$E devices", COLUMNS="0").stdout == shell("unset COLUMNS; $E devices").stdout != ""


def test_an_interrupt_outside_of_a_command_is_said() -> None:
    script = """
from eqsat.cli import app
def interrupted(**options):
    raise KeyboardInterrupt
app.app = interrupted
app.main()
"""
    ran = subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (130, "eqsat: interrupted\n")


def test_a_fault_of_eqsat_is_no_answer() -> None:
    script = """
import sys
from eqsat.cli import app
app.app = lambda **given: 1 / 0
sys.argv = ["eqsat"]
app.main()
"""
    ran = subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert (ran.returncode, "ZeroDivisionError" in ran.stderr) == (70, True)


def test_little_is_collected_while_a_command_loads(model: Path) -> None:
    """A fifth of the time of loading went to collecting, in which nothing was found."""
    script = f"""
import atexit, gc, sys
found = []
gc.callbacks.append(lambda phase, info: found.append(info))
atexit.register(lambda: print(len(found)))
from eqsat.__main__ import main
sys.argv = ["eqsat", "optimize", {str(model)!r}, "--time-limit", "0"]
main()
"""
    folder = Path(__file__).parents[2]
    ran = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True)
    assert int(ran.stdout.splitlines()[-1]) < 200  # two a collection; 330 otherwise


def test_version_names_the_libraries_that_results_depend_on() -> None:
    versions = document("version")
    assert versions["egglog"].startswith("13.2.")
    assert set(versions) == {"schema", "eqsat", "python", "numpy", "egglog", "highspy", "onnx"}


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
    assert answer["schema"] == 1
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


# Emit, demo


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
