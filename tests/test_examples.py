"""Every example runs in a process of its own, and prints its main result."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SAYS = {
    "fold_a_chain": "of the scale",
    "own_rule": "--- numerics=fast",
    "price_decides": "x @ [768, 64] @ [64, 768]: 68.4 -> 68.4 MFLOP",
}


def test_every_example_has_a_row_here() -> None:
    assert sorted(path.stem for path in EXAMPLES.glob("*.py")) == sorted(SAYS)


@pytest.mark.parametrize("name", SAYS)
def test_an_example_runs(name: str) -> None:
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    assert SAYS[name] in shown.stdout
