"""The code in the README and in docs/: Python runs, and every `eqsat` command takes the options that it is given."""

from __future__ import annotations

import logging
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import typer.main

import eqsat
from eqsat.cli.app import app
from support.onnx_models import model, node, tensor, value
from support.programs import weight

ROOT = Path(__file__).resolve().parent.parent
FILES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES = {path.name: path.read_text(encoding="utf-8") for path in FILES}

GIVEN: dict[str, dict[str, Any]] = {
    "README.md": {"x": np.zeros((8, 64), np.float32)},
    "dynamic.md": {"f": lambda x: eqsat.relu(x @ weight(768, 8))},
}
"""Names that the Python of a page takes for granted."""


def python(text: str) -> list[tuple[int, str]]:
    """(line, code) of every block of Python."""
    blocks = re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [(text[: found.start(1)].count("\n"), found[1]) for found in blocks]


def commands(text: str) -> Iterator[list[str]]:
    """The words of every `eqsat` command in the indented blocks of a page."""
    for line in re.findall(r"^ {4}(\S.*)$", text, re.MULTILINE):
        for command in line.split("&&"):
            if re.match(r"\s*(\S*/)?eqsat ", command):
                yield shlex.split(command, comments=True)[1:]


COMMANDS = [(name, words) for name, text in PAGES.items() for words in commands(text)]


def layer(batch: int | str = "batch", seq: int | str = "seq") -> onnx.ModelProto:
    """A small model; a size that is a name is dynamic."""
    weights = [tensor("a", weight(16, 16)), tensor("b", weight(16, 16))]
    nodes = [node("MatMul", ["x", "a"], ["h"]), node("MatMul", ["h", "b"], ["y"])]
    return model(nodes, [value("x", [batch, seq, 16])], [value("y", [batch, seq, 16])], weights)


@pytest.mark.parametrize("page", [name for name, text in PAGES.items() if python(text)])
def test_the_python_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logging.getLogger("eqsat"), "level", logging.NOTSET)
    onnx.save(layer() if page == "dynamic.md" else layer(2, 8), "model.onnx")
    names: dict[str, Any] = {"eqsat": eqsat, **GIVEN.get(page, {})}
    for line, code in python(PAGES[page]):
        if "jax." in code:
            pytest.importorskip("jax")
        if "torch." in code:
            torch = pytest.importorskip("torch")
            names = {"torch": torch, "model": torch.nn.Linear(64, 64)} | names
        exec(compile("\n" * line + code, page, "exec"), names)


def test_the_site_lists_every_page() -> None:
    listed = set(re.findall(r"[\w/]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    assert {path.name for path in (ROOT / "docs").glob("*.md")} <= listed


@pytest.mark.parametrize(("page", "words"), COMMANDS, ids=[" ".join(words) for _, words in COMMANDS])
def test_a_command_takes_its_options(page: str, words: list[str]) -> None:
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        name, *words = words
        assert name in command.commands, f"{page}: no command is called {name}"
        command = command.commands[name]
    command.make_context(command.name, words)
