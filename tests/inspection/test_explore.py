"""Exploring: safe parsing of expressions, growth and forms, exports for other tools, and why a rule did not fire."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import eqsat
from eqsat.cli.app import app
from eqsat.cli.commands.explore import _growing
from eqsat.egraph.files import to_dot, to_json
from eqsat.egraph.saturate import Limits, Progress
from eqsat.errors import InputError
from eqsat.extract.solver.serialized import extract_file
from eqsat.inspection.explore import explore, forms
from eqsat.program.core import evaluate
from eqsat.rules import ALL, EXPLORING
from eqsat.tracing.expression import parse

CHAIN = ("(X @ A) @ C", {"X": "f32[8,96]", "A": "const:f32[96,64]", "C": "const:f32[64,96]"})


def test_an_expression_is_a_program():
    p = parse(
        "relu(x @ w + 1.0).sum(1, keepdims=True)[1:, :] - b.T",
        {"x": "f64[3,4]", "w": "const:f64[4,5]", "b": "f64[1,2]"},
    )
    assert [t.spec for t in p.inputs] == ["f64[3,4]", "f64[1,2]"]
    assert {name: t.spec for name, t in p.outputs.items()} == {"out": "f64[2,1]"}


REFUSED = [
    ("x +", {"x": "f32[2]"}, "invalid syntax"),
    ("x + y", {"x": "f32[2]"}, "'y' is no function and has no type"),
    ("x", {"x": "f32(2)"}, "expected a type, as in x=f32"),
    ("x", {"x": "f99[2]"}, "expected a type"),
    ("x.__class__", {"x": "f32[2]"}, "no attribute '__class__'"),
    ("__import__('os')", {}, "'__import__' is no function"),
    ("[y for y in x]", {"x": "f32[2]"}, "is not allowed"),
    ("(lambda: x)()", {"x": "f32[2]"}, "is not allowed"),
    ("9**9**9**9 + x", {"x": "f32[2]"}, "a number has at most 1024 bits"),
    ("x[:((1 < 2) + 1)**9**9]", {"x": "f32[2]"}, "a number has at most 1024 bits"),
    ("x + [0] * 10**12", {"x": "f32[2]"}, "operators take arrays and numbers"),
    ("x * [9][0]", {"x": "f32[2]"}, "only arrays have elements here"),
    ("x / (1 - 1.0) + 1 / 0", {"x": "f32[2]"}, "division by zero"),
    ("open('f')", {}, "'open' is no function"),
    ("x @ x", {"x": "f32[2,3]"}, "matmul"),
]


@pytest.mark.parametrize(("text", "lets", "message"), REFUSED)
def test_an_expression_that_cannot_be_read_says_why(text: str, lets: dict[str, str], message: str):
    with pytest.raises(InputError, match=message):
        parse(text, lets)


MARKED = [
    ("relu(X @ A) +", ["  relu(X @ A) +", "               ^"]),
    ("relu(X @ B)", ["  relu(X @ B)", "           ^"]),
    ("rellu(X @ A)", ["  rellu(X @ A)", "  ^^^^^"]),
    ("X.sun(1)", ["  X.sun(1)", "    ^^^"]),
    ("relu(X @ X) @ A", ["  relu(X @ X) @ A", "       ^^^^^"]),
]


@pytest.mark.parametrize(("text", "lines"), MARKED)
def test_a_mark_shows_what_is_wrong(text: str, lines: list[str]):
    with pytest.raises(InputError) as caught:
        parse(text, {"X": "f32[3,4]", "A": "f32[4,5]"})
    assert caught.value.__notes__ == ["\n".join(lines)]


def test_growth_starts_at_the_source_and_counts_matches():
    found = explore(parse(*CHAIN), ALL)
    assert found.growth[0].nodes == 5
    assert found.growth[-1].nodes == len(found.snapshot.nodes) > 5
    assert sum(g.matches.get("matmul-of-constants-right", 0) for g in found.growth) >= 1
    assert found.made["matmul-of-constants-right"] == 2
    assert found.snapshot.stats["stop"] == "saturated"


def test_steps_end_the_search():
    found = explore(parse("a + b + c", dict.fromkeys("abc", "f32[4]")), EXPLORING, Limits(iterations=1))
    assert (found.snapshot.stats["stop"], len(found.growth)) == ("steps", 2)


def test_forms_are_distinct_equal_and_sorted_by_cost():
    found = explore(parse("(a + b) * c", dict.fromkeys("abc", "f64[4]")), EXPLORING, Limits(iterations=3))
    shown = forms(found, ["mi300x", "cpu"], 8)
    assert len({f.node for f in shown}) == len(shown) == 8
    costs = [f.microseconds["mi300x"] for f in shown]
    assert costs == sorted(costs)
    env = {name: np.arange(4.0) + i for i, name in enumerate("abc")}
    values = evaluate([f.node for f in shown], env, {})
    for value in values:
        np.testing.assert_array_equal(value, (env["a"] + env["b"]) * env["c"])


def test_the_json_export_is_read_by_the_extractor(tmp_path: Path):
    path = tmp_path / "g.json"
    path.write_text(json.dumps(to_json(explore(parse(*CHAIN), ALL).snapshot)))
    answer = extract_file(path, 5.0)
    assert answer["optimal"]
    assert answer["cost"] == 2 * 8 * 96 * 96 + 8 * 96


def test_the_dot_export_has_a_box_for_each_class():
    snapshot = explore(parse(*CHAIN), ALL).snapshot
    text = to_dot(snapshot)
    assert text.count("subgraph cluster_") == snapshot.n_classes
    assert "matmul 8x64x96" in text
    assert 'tooltip="matmul-of-constants-right"' in text


def run(*args: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(args))
    return result.exit_code, result.stdout


SUM = ("explore", "(a + b) * c", *(x for n in "abc" for x in ("--let", f"{n}=f32[4]")))


def test_explore_on_the_command_line():
    code, text = run(*SUM, "--exploring", "--steps", "2", "--device", "cpu", "--device", "h100", "--count", "8")
    assert code == 0
    for words in ("distribute-product", "stopped: steps", "cpu us", "h100 us", "a * c + b * c"):
        assert words in text
    assert "mi300x" not in text
    assert text == run(*SUM, "--exploring", "--steps", "2", "-d", "cpu", "-d", "h100", "--count", "8")[1]


def document(*args: str) -> dict:
    code, text = run(*args, "--json", "-")
    assert code == 0
    return json.loads(text)


def test_rules_are_picked_and_left_out():
    everything = document(*SUM, "--exploring", "--steps", "2")
    assert {"commute-sum", "distribute-product"} <= set(everything["made"])
    assert [row["rule"] for row in everything["fired"] if row["made"]] == sorted(
        everything["made"], key=lambda rule: (-everything["made"][rule], rule)
    )
    assert set(document(*SUM, "--only", "distribute-product,negate-twice")["made"]) == {"distribute-product"}
    assert "distribute-product" not in document(*SUM, "--exploring", "--without", "distribute-product")["made"]
    assert document("explore", "a + a", "--let", "a=f32[4]", "--only", "negate-twice")["made"] == {}


def test_what_fired_says_where_and_what():
    (row,) = document(*SUM, "--only", "distribute-product")["fired"]
    assert (row["form"], row["where"][0]) == ("a * c", "a new value")
    assert "out > mul" in row["where"]


def test_a_rule_that_only_unites_values_fired():
    result = CliRunner().invoke(app, ["explore", "maximum(x, x)", "--let", "x=f32[4]", "--json", "-"])
    fired = json.loads(result.output)["fired"]
    assert {"maximum-of-same", "maximum-of-the-same-two"} <= {row["rule"] for row in fired}
    assert "both sides were there" in {row["form"] for row in fired}


def test_the_egraph_of_the_command_line_is_extracted(tmp_path: Path):
    file, picture = tmp_path / "g.json", tmp_path / "g.dot"
    assert run(*SUM, "--egraph", str(file), "--dot", str(picture))[0] == 0
    code, text = run("extract", str(file))
    assert code == 0
    assert "proven optimal" in text
    assert picture.read_text().startswith("digraph")


def test_growth_is_shown_while_it_happens():
    seen = [Progress(1, 10, 5, 0.1, {"commute-sum": 2}), Progress(2, 30, 9, 0.4, {"commute-sum": 5, "double": 1})]
    terminal = Console(width=100, record=True, file=StringIO())
    terminal.print(_growing("a + b", seen, 10))
    text = terminal.export_text()
    for words in ("▃█", "0.4 s", "commute-sum 3, double 1", "█" * 24):
        assert words in text


def test_ctrl_c_is_answered_with_what_there_is():
    names = "abcdefghijklm"  # more orders of their sum than there is time for
    lets = [x for n in names for x in ("--let", f"{n}=f32[4]")]
    command = [sys.executable, "-m", "eqsat", "explore", " + ".join(names), *lets, "--exploring"]
    process = subprocess.Popen(
        [*command, "--nodes", "1000000", "--time-limit", "120"], stdout=subprocess.PIPE, text=True
    )
    time.sleep(4)
    process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    text, _ = process.communicate(timeout=60)
    assert time.monotonic() - begun < 10
    assert "stopped: interrupted" in text


def test_prove_on_the_command_line(tmp_path: Path):
    paths = [tmp_path / name for name in ("a.onnx", "b.onnx", "c.onnx")]
    for path, text in zip(paths, ("a @ b", "(b.T @ a.T).T", "a @ b + 1.0"), strict=True):
        eqsat.to_onnx(parse(text, {"a": "f32[3,5]", "b": "f32[5,7]"}), path)
    assert run("prove", str(paths[0]), str(paths[1]))[0] == 0
    found = tmp_path / "x.npz"
    code, text = run("prove", str(paths[0]), str(paths[2]), "--json", "-", "--counterexample", str(found))
    report = json.loads(text)
    assert (code, report["verdict"], report["counterexample"]["output"]) == (1, "refuted", "out")
    assert sorted(np.load(found).files) == ["a", "b"]
