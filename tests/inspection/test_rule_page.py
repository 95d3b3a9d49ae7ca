"""Pages of rules: every rule has one, in NumPy's notation, with an example for which it holds."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from eqsat.base.numerics import np_dtype
from eqsat.cli.app import app
from eqsat.inspection.rule_example import example
from eqsat.inspection.rule_page import page, page_text
from eqsat.language.rule import Rule
from eqsat.language.text import mentions, side
from eqsat.rules import ALL, EXPLORING

RULES = {row.name: row for row in [*ALL, *EXPLORING]}

SIDES = {
    "matmul-associate-right": ("(a @ b) @ c", "a @ (b @ c)"),
    "view-of-matmul-narrows": ("(a @ b)[L]", "(a[La] @ b[Lb])[R]"),
    "constant-addend-through-matmul": ("(a + b) @ c", "(a @ c) + (b @ c)"),
    "sum-of-matmul": ("sum(a @ b)", "(sum(a[La]) @ sum(b[Lb]))[W]"),
}


@pytest.mark.parametrize("name", SIDES)
def test_sides_read_as_numpy(name: str):
    row = RULES[name]
    assert isinstance(row, Rule)
    assert (side(row.left), side(row.right)) == SIDES[name]


def test_every_rule_has_a_page_and_nearly_every_one_an_example():
    without = []
    for row in RULES.values():
        shown = page(row, "family")
        text = page_text(row, shown, 100)
        assert text.startswith(f"{row.name} (family)")
        assert max(map(len, text.splitlines())) <= 100
        if shown["example"] is None:
            without.append(row.name)
    assert len(without) <= len(RULES) // 20, without


def test_an_example_holds_for_numpy():
    found = example(RULES["matmul-associate-right"])
    assert found is not None
    rng = np.random.default_rng(0)
    values = {}
    for name, spec in found.names.items():
        dtype, _, shape = spec.partition("[")
        assert dtype == "f32"
        values[name] = rng.integers(-3, 4, [int(n) for n in shape[:-1].split(",")]).astype(np_dtype("float32"))
    before, after = (eval(s.text, {"__builtins__": {}}, values) for s in (found.before, found.after))
    np.testing.assert_array_equal(before, after)
    assert found.before.flops > found.after.flops


def run(*args: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["rules", *args])
    return result.exit_code, result.output


def test_rules_are_listed_by_operator_and_class():
    code, text = run("list", "--operator", "matmul", "--class", "exact", "--json", "-")
    rows = json.loads(text)["rules"]
    assert code == 0
    assert {row["numerics"] for row in rows} == {"exact"}
    assert [row["name"] for row in rows] == [
        row.name for row in RULES.values() if row.numerics == "exact" and mentions(row, "mm")
    ]
    assert "matmul-of-shared-right" in run("list", "--operator", "mm")[1]


def test_a_page_on_the_command_line():
    code, text = run("show", "matmul-associate-right")
    assert code == 0
    for words in ("= a @ (b @ c)", "a[B, M, K]", "pays when K*N*P", "TASO", "example", "FLOP", "us on mi300x"):
        assert words in text
    shown = json.loads(run("show", "matmul-associate-right", "--json", "-")[1])
    assert shown["example"]["before"]["expression"] == "(a @ b) @ c"


def test_an_equation_is_listed_once_with_its_rules():
    code, text = run("list", "--family", "products")
    assert code == 0
    assert text.count("(a @ b) @ c == a @ (b @ c)") == 1
    for words in ("matmul-associative", "matmul-associate-left", "pays when const(b); const(c)"):
        assert words in text


def test_the_page_of_an_equation_names_its_rules():
    code, text = run("show", "matmul-over-sum")
    assert code == 0
    for words in (
        "(a + b)[L?] @ c == a[L?] @ c + b[L?] @ c",
        "constant-addend-under-matmul",
        "pays when",
        "issue 2818",
    ):
        assert words in text
    shown = json.loads(run("show", "matmul-over-sum", "--json", "-")[1])
    assert {row["direction"] for row in shown["rules"]} == {"right", "left"}
    alone = json.loads(run("show", "sum-through-matmul", "--json", "-")[1])
    assert alone["equation"] == "matmul-over-sum"
    assert alone["stated"] == shown["text"]


def test_numbers_and_views_that_an_equation_spells_need_no_words():
    shown = {
        name: page(RULES[name], "family")["needs"] for name in ("power-two", "transpose-of-matmul", "identity-view")
    }
    assert shown["power-two"] == shown["transpose-of-matmul"] == []
    assert len(shown["identity-view"]) == 1
