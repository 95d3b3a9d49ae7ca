"""Why a result does not use a rule: each reason, with numbers, in the names of the program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import eqsat
from eqsat.base.time_budget import TimeBudget
from eqsat.cli.app import app
from eqsat.explain.narration import why_not_text
from eqsat.extract.device.table import device
from eqsat.inspection.why_not import Answer, look_for, why_not
from eqsat.language.rule import AnyRule, Policy
from eqsat.pipeline.selection import choose
from eqsat.rules import ALL, EXPLORING
from eqsat.search.asked import Asked
from eqsat.search.runner import Runner
from eqsat.search.search import partition, search
from eqsat.tracing.expression import parse

RULES: dict[str, AnyRule] = {row.name: row for row in [*ALL, *EXPLORING]}

CHAIN = "(X @ A) @ C"
CONSTANT = {"X": "f32[348,768]", "A": "const:f32[768,64]", "C": "const:f32[64,768]"}
INPUTS = {"X": "f32[348,768]", "A": "f32[768,64]", "C": "f32[64,768]"}

REASONS: dict[str, tuple[tuple[str, dict[str, str], str, Policy], list[str]]] = {
    "the other order costs more": (
        (CHAIN, INPUTS, "matmul-associate-right", "reassociate"),
        ["at out > matmul", "(X @ A) @ C: f32[348,768]", "that is 486 MFLOP against 68.42 MFLOP", "would not pay"],
    ),
    "a factor is an input": (
        (CHAIN, INPUTS, "matmul-of-constants-right", "reassociate"),
        ["needs b constant: A: f32[768,64] depends on an input"],
    ),
    "its form is dearer": (
        (CHAIN, CONSTANT, "matmul-of-constants-right", "reassociate"),
        ["fired but not chosen: dearer by", "X @ (A @ C): f32[348,768]"],
    ),
    "the policy bars it": (
        (CHAIN, CONSTANT, "matmul-of-constants-right", "exact"),
        ["not in policy exact: it is reassociating, which needs --numerics reassociate", "would fire at 1 place"],
    ),
    "only proofs use it": (
        ("exp(a) * exp(b)", {"a": "f32[4]", "b": "f32[4]"}, "product-of-exps", "fast"),
        ["eqsat prove"],
    ),
    "the pattern nearly matches": (
        (CHAIN, INPUTS, "scalar-through-matmul-left", "reassociate"),
        ["finds no place", "X: f32[348,768] stands where a mul is needed"],
    ),
    "another function stands there": (
        ("a - b", {"a": "f32[4]", "b": "f32[4]"}, "factor-sum-of-matmuls-with-one-left", "reassociate"),
        ["a - b: f32[4] is sub, where an add is needed"],
    ),
    "no such operator": (
        ("a - b", {"a": "f32[4]", "b": "f32[4]"}, "matmul-associate-left", "reassociate"),
        ["needs a matrix product: the program has none (it has 1 elementwise"],
    ),
    "a rule of the host": (
        ("a - b", {"a": "f32[4]", "b": "f32[4]"}, "sum-of-matmuls", "reassociate"),
        ["needs: one batch, equal rows and columns"],
    ),
    "it is used": (
        ("(x @ w).sum(1)", {"x": "f32[64,64]", "w": "const:f32[64,256]"}, "sum-of-matmul", "reassociate"),
        ["and the result uses it: step 1"],
    ),
}


@pytest.mark.parametrize("name", REASONS)
def test_the_reason_is_given_with_its_numbers(name: str):
    (text, lets, rule, numerics), expected = REASONS[name]
    answer = why_not(parse(text, lets), RULES[rule], numerics=numerics)
    said = " ".join(why_not_text(answer.as_json()).split())
    for words in expected:
        assert words in said, said


def test_why_not_on_the_command_line(tmp_path: Path):
    model = tmp_path / "m.onnx"
    eqsat.to_onnx(parse(CHAIN, CONSTANT), model)

    def run(*args: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["explain", str(model), *args])
        return result.exit_code, result.output

    code, text = run("--why-not", "matmul-associate-right", "--json", "-")
    data = json.loads(text)
    assert (code, data["rule"], data["held"], len(data["missed"])) == (0, "matmul-associate-right", 0, 1)
    assert data["missed"][0]["with"] == {"B": "1", "M": "348", "K": "768", "N": "64", "P": "768"}
    code, text = run("--why-not", "matmul-associate-right", "--html", str(tmp_path / "page.html"))
    assert (code, "leave out --why-not" in text) == (3, True)
    code, text = run("--why-not", "matmul-asociate-right")
    assert code == 3
    assert "did you mean matmul-associate-right" in text


def test_every_rule_has_an_answer():
    program = parse("relu(X @ A + b)[:, :3].T", {"X": "f32[4,6]", "A": "const:f32[6,5]", "b": "const:f32[5]"})
    run = Runner(TimeBudget(10))
    problem = partition(program, Asked(device("mi300x"), tuple(ALL)), run)
    (best,) = choose(problem, search(problem, run), run)
    for row in RULES.values():
        answer = Answer(row.name)
        look_for(answer, row, problem, best)
        assert answer.fired or answer.missed or answer.nearest
        assert why_not_text(answer.as_json()).startswith(row.name)
