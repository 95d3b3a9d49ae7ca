"""Rules from a user's file: accepted when sound, refused with a reason otherwise."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import eqsat
from eqsat.cli.app import app
from eqsat.errors import InputError
from eqsat.evidence import user_rules

HEADER = "from eqsat.rule import rule\n"
SOUND = 'RULES = [rule("minus-minus", "a - (-b) == a + b")]'


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(HEADER + text)
    return path


def test_sound_rules_are_loaded_and_used(tmp_path: Path):
    (row,) = user_rules.load(write(tmp_path, SOUND))
    program = eqsat.trace(lambda a, b: a - (-b), eqsat.spec((3, 5)), eqsat.spec((3, 5)))
    best = eqsat.optimize(program, rules=[row], device="cpu", measure=False)
    assert [t.op for t in best.program.terms() if t.args] == ["add"]


REFUSED = {
    "wrong": (
        'RULES = [rule("mine", "a - b == b - a")]',
        r"rule 'mine' \(exact\) is wrong with .*left .* right",
    ),
    "wrong class": (
        'RULES = [rule("mine", "(a + b) + c == a + (b + c)")]',
        r"rule 'mine' \(exact\) is wrong",
    ),
    "never applies": (
        'RULES = [rule("mine", "a + b == b + a", when="size(a) < size(b)")]',
        "held on none of .* instances",
    ),
    "no RULES": ("ROWS = []", "defines no RULES"),
    "not a rule": ("RULES = [3]", "RULES holds 3"),
    "name taken": ('RULES = [rule("negate-twice", "-(-a) == a")]', "'negate-twice' exists already"),
    "does not parse": ('RULES = [rule("mine", "plus(a) == a")]', "mine.py: rule 'mine': no operator .* 'plus'"),
    "raises": ("RULES = 1 / 0", "mine.py: ZeroDivisionError: division by zero"),
    "leaves": ("raise SystemExit(7)", "mine.py: SystemExit: 7"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_is_refused_with_what_is_wrong(name: str, tmp_path: Path):
    text, message = REFUSED[name]
    with pytest.raises(InputError, match=message):
        user_rules.load(write(tmp_path, text))


def test_a_missing_file_is_named():
    with pytest.raises(InputError, match=r"nowhere.py: no such file"):
        user_rules.load("nowhere.py")


def test_check_on_the_command_line_says_what_fails(tmp_path: Path):
    path = write(tmp_path, 'RULES = [rule("fine", "-(-a) == a"), rule("mine", "a - b == b - a")]')
    result = CliRunner().invoke(app, ["rules", "check", "--rules", str(path), "--json", "-"])
    assert result.exit_code == 1
    rows = json.loads(result.stdout)["rules"]
    assert [(row["rule"], row["verdict"]) for row in rows] == [("fine", "sound"), ("mine", "unsound")]


def test_check_of_named_rules(tmp_path: Path):
    result = CliRunner().invoke(app, ["rules", "check", "negate-twice", "relu-of-relu"])
    assert result.exit_code == 0
    assert "2 rules: 2 sound" in result.stdout


def test_optimize_takes_a_file_of_rules(tmp_path: Path):
    model, path = tmp_path / "a.onnx", write(tmp_path, 'RULES = [rule("mine", "a - b == b - a")]')
    eqsat.to_onnx(eqsat.trace(lambda a, b: a - b, eqsat.spec((3,)), eqsat.spec((3,))), model)
    result = CliRunner().invoke(app, ["optimize", str(model), "--rules", str(path)])
    assert result.exit_code == 3
    good = write(tmp_path, SOUND)
    assert CliRunner().invoke(app, ["optimize", str(model), "--rules", str(good)]).exit_code == 0
