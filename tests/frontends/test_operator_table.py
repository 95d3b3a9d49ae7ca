"""docs/operators.md agrees with the reader."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import onnx
import pytest

from eqsat.errors import InputError
from eqsat.frontends.onnx.read.model import from_onnx
from support.onnx_cases import cases

DOCS = Path(__file__).parents[2] / "docs"
LISTED_WITH = "1.23.2"
TABLE: dict[str, Any] = runpy.run_path(str(DOCS / "list_operators.py"))
FATES: dict[str, str] = {name: TABLE["fate"](name, schemas)[0] for name, schemas in TABLE["versions"]().items()}


@pytest.mark.skipif(onnx.__version__ != LISTED_WITH, reason=f"the table was made with onnx {LISTED_WITH}")
def test_the_table_is_current() -> None:
    assert (DOCS / "operators.md").read_text(encoding="utf-8") == TABLE["text"](), "run python docs/list_operators.py"


def state(model: onnx.ModelProto) -> str:
    try:
        return "carried" if from_onnx(model).opaque() else "read"
    except InputError:
        return "refused"


@pytest.mark.parametrize("fate", ["carried", "refused"])
def test_the_node_tests_of_onnx_fare_as_the_table_says(fate: str) -> None:
    """A refused operator is refused in every case; a carried one is never read."""
    allowed = {"carried": {"carried", "refused"}, "refused": {"refused"}}[fate]
    for name, told in FATES.items():
        if told.startswith(fate):
            for case in cases().get(name, [])[:2]:
                assert state(case.model) in allowed, case.name
