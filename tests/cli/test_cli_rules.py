"""The commands about rules: lists, checks, and rules of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.cli import document, eqsat, printed, refusal


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


def test_a_folder_of_rules_is_named(model: Path, tmp_path: Path) -> None:
    assert refusal("optimize", model, "--rules", tmp_path) == f"{tmp_path}: is a folder; give a Python file (*.py)"


def test_a_rule_of_ones_own_is_explained(model: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(OWN_RULE.format(right="add(a, sub(a, add(a, neg(a))))"))
    assert document("explain", model, "--why-not", "own-doubling", "--rules", own)["rule"] == "own-doubling"


def test_a_sound_rule_of_ones_own_is_used(model: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(OWN_RULE.format(right="add(a, sub(a, add(a, neg(a))))"))
    assert document("rules", "check", "--rules", own)["rules"][0]["verdict"] == "sound"
    assert document("optimize", model, "--rules", own)["check"]["passed"]
