"""Error budgets: measured at the program's own precision, kept by falling back, and said so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import eqsat
from eqsat.budget import optimize_within
from eqsat.cli.app import app
from eqsat.errors import InputError


def overflowing() -> eqsat.Program:
    """In float16 x @ a is small and (x @ a) @ b is small, but a @ b overflows: folding it ahead of time is wrong."""
    a = np.full((64, 64), 120.0, dtype=np.float16)
    b = np.full((64, 2), 60.0, dtype=np.float16)
    return eqsat.trace(lambda x: (x @ a) @ b, eqsat.spec((200, 64), "float16"))


def test_a_generous_budget_changes_nothing():
    program = eqsat.trace(
        lambda x: (x @ np.ones((96, 96), np.float32)) @ np.ones((96, 8), np.float32), eqsat.spec((200, 96))
    )
    best = optimize_within(program, 1e-3)
    assert best.report["error"]["numerics"] == "reassociate"
    assert best.report["error"]["refused"] == []
    assert best.report["error"]["measured"] <= 1e-3
    assert best.report["result"]["kernels"] == 1


def test_a_result_that_overflows_is_refused_where_the_source_does_not():
    inputs = {"x": np.full((200, 64), 1e-4, dtype=np.float16)}
    best = optimize_within(overflowing(), 1e-1, inputs=inputs)
    assert np.isfinite(best.program.run(inputs)["out"]).all()
    assert [r["numerics"] for r in best.report["error"]["refused"]] == ["reassociate"]
    assert best.report["error"]["numerics"] == "exact"


def test_a_budget_that_the_source_itself_misses_is_refused():
    program = eqsat.trace(lambda x: eqsat.exp(x) / 3.0, eqsat.spec((64,), "float16"))
    with pytest.raises(InputError, match="as it was written is off by"):
        optimize_within(program, 1e-9)


@pytest.mark.parametrize("budget", [0.0, -1.0, float("nan")])
def test_a_budget_must_be_positive(budget: float):
    with pytest.raises(InputError, match="expected a positive number"):
        optimize_within(overflowing(), budget)


def test_on_the_command_line(tmp_path: Path):
    model = tmp_path / "m.onnx"
    eqsat.to_onnx(eqsat.trace(lambda x: eqsat.relu(x @ np.ones((4, 3), np.float32)), eqsat.spec((2, 4))), model)
    result = CliRunner().invoke(app, ["optimize", str(model), "--max-error", "1e-3"])
    assert result.exit_code == 0
    assert "within 0.001, numerics reassociate." in result.stdout
