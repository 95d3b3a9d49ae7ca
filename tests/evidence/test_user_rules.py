"""Rules from a user's file: accepted when sound, refused with a reason otherwise."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import eqsat
from eqsat.cli.app import app
from eqsat.cli.commands.rules import select
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
    "raises what is no exception": ("raise GeneratorExit", "mine.py: GeneratorExit: "),
    "raises what has no text": (
        "class E(Exception):\n    def __str__(self): return 1 / 0\nraise E",
        "mine.py: E: E without a text",
    ),
    "gives nothing": ("def __getattr__(name): raise ValueError(name)", "mine.py: ValueError: "),
    "has no text": (
        "class E:\n    def __repr__(self): return 1 / 0\nRULES = [E()]",
        "RULES holds E without a text",
    ),
    "made by other means": (
        'from dataclasses import replace\nRULES = [replace(rule("mine", "a + b == b + a"), right=None)]',
        "mine.py: AttributeError: ",
    ),
    "closes stdout": ("import io, sys\nsys.stdout = io.StringIO()\nsys.stdout.close()", "mine.py: closes stdout"),
    "exploring name taken": ('RULES = [rule("commute-sum", "a + b == b + a")]', "'commute-sum' exists already"),
    "no name": ('RULES = [rule("", "a + b == b + a")]', "mine.py: rule '': a name is up to 100 letters"),
    "a number for a name": ('RULES = [rule(3, "a + b == b + a")]', "mine.py: rule 3: a name is"),
    "a quote in a name": ("RULES = [rule('x\"y', 'a + b == b + a')]", "a name is up to"),
    "half a letter": ('RULES = [rule("x\\ud800", "a + b == b + a")]', "a name is up to"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_is_refused_with_what_is_wrong(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # one of them puts another in its place
    text, message = REFUSED[name]
    with pytest.raises(InputError, match=message):
        user_rules.load(write(tmp_path, text))


def test_a_file_may_define_data_classes(tmp_path: Path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\nfrom eqsat.rule import rule\n"
        "@dataclass\nclass Size:\n    rows: int\n" + SOUND
    )
    assert [row.name for row in user_rules.load(path)] == ["minus-minus"]


@pytest.mark.parametrize(
    "text",
    [
        "import time\ntime.sleep(2)\n" + SOUND,
        'RULES = [rule("mine", "a+b == b+a", when="; ".join(f"size(a) > -{i}" for i in range(3000)))]',
    ],
)
def test_a_file_that_takes_too_long_is_refused(text: str, tmp_path: Path):
    begun = time.monotonic()
    with pytest.raises(InputError, match=r"mine.py: its rules could not be checked within 0.2 s; raise --time-limit"):
        user_rules.load(write(tmp_path, text), seconds=0.2)
    assert time.monotonic() - begun < 1.5


def test_rules_are_chosen_by_name_whether_ours_or_not(tmp_path: Path):
    own = write(tmp_path, SOUND)

    def names(only: list[str] | None = None, without: list[str] | None = None) -> list[str]:
        return [row.name for row in select(only, without, own, seconds=60.0) or ()]

    assert names(only=["minus-minus", "minus-minus"]) == ["minus-minus"]
    assert names(only=["commute-sum"]) == ["commute-sum", "minus-minus"]
    assert "negate-twice" in names(without=["minus-minus"])
    assert "minus-minus" not in names(without=["minus-minus"])


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
