"""The command line as a user meets it: what it prints, what it writes, and how it says no."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from eqsat.cli.app import app

COMMANDS = ("optimize", "run", "demo", "devices", "extract", "rules list", "rules show", "version")


def eqsat(*arguments: str | Path) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(app, [str(a) for a in arguments], prog_name="eqsat")


def printed(*arguments: str | Path) -> str:
    """Standard output of a command that must succeed."""
    result = eqsat(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def document(*arguments: str | Path) -> Any:
    """What a command that must succeed prints as JSON."""
    return json.loads(printed(*arguments, "--json", "-"))


def refusal(*arguments: str | Path, code: int = 3) -> str:
    """The one line on stderr with which a command refuses its input."""
    result = eqsat(*arguments)
    assert result.exit_code == code, result.output
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("eqsat: ")
    assert not result.stdout
    return lines[0].removeprefix("eqsat: ")


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
    assert chain["left"] == "mm(mm(a, b, B, M, K, N), c, B, M, N, P)"
    assert chain["right"] == "mm(a, mm(b, c, B, K, N, P), B, M, K, P)"
    assert all(name in printed("rules", "list") for name in rows)


def test_rules_are_narrowed_by_family_class_and_operator() -> None:
    exact = document("rules", "list", "--family", "views", "--numerics", "exact", "--operator", "where")["rules"]
    assert exact
    for row in exact:
        assert (row["family"], row["numerics"]) == ("views", "exact")
        assert "where(" in row["text"]


def test_a_rule_is_shown_with_its_guard_and_reason() -> None:
    row = document("rules", "show", "view-of-view")
    text = printed("rules", "show", "view-of-view")
    assert all(row[key] in text for key in ("left", "right", "guard", "numerics", "why", "source"))


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
