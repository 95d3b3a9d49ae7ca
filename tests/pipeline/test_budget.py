"""Error budgets: measured at the program's own precision, kept by falling back, and reported."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import eqsat
from eqsat.base.time_budget import TimeBudget
from eqsat.cli.app import app
from eqsat.errors import InputError
from eqsat.pipeline import error_budget
from eqsat.pipeline.error_budget import optimize_within


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


def test_a_result_that_would_overflow_is_left_as_written():
    inputs = {"x": np.full((200, 64), 1e-4, dtype=np.float16)}
    best = optimize_within(overflowing(), 1e-1, inputs=inputs)
    assert np.isfinite(best.program.run(inputs)["out"]).all()
    assert best.report["overflow"] == {"parts": 1, "of": 1}
    assert best.report["error"]["refused"] == []


def long_sum() -> eqsat.Program:
    """A sum of halves whose order matters: rewritten, it is summed with the constants first."""
    a = np.linspace(-1, 1, 64 * 32, dtype=np.float16).reshape(64, 32)
    b = np.linspace(1, 2, 32 * 4, dtype=np.float16).reshape(32, 4)
    return eqsat.trace(lambda x: (x @ a) @ b, eqsat.spec((400, 64), "float16"))


def test_over_budget_the_next_stricter_policy_is_tried():
    inputs = {"x": np.random.default_rng(0).standard_normal((400, 64)).astype(np.float16)}
    loose = optimize_within(long_sum(), 1.0, inputs=inputs).report["error"]
    assert (loose["numerics"], loose["refused"]) == ("reassociate", [])
    as_written = optimize_within(long_sum(), 1.0, inputs=inputs, numerics="exact").report["error"]["measured"]
    assert loose["measured"] != as_written
    least = min(loose["measured"], as_written)
    kept = optimize_within(long_sum(), least, inputs=inputs).report["error"]
    assert kept["measured"] == least
    assert kept["numerics"] == ("reassociate" if least == loose["measured"] else "exact")


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


def test_given_inputs_on_the_command_line(tmp_path: Path):
    model, arrays = tmp_path / "m.onnx", tmp_path / "x.npz"
    eqsat.to_onnx(overflowing(), model)
    np.savez(arrays, x=np.full((200, 64), 1e-4, dtype=np.float16))
    result = CliRunner().invoke(app, ["optimize", str(model), "--max-error", "1e-1", "--inputs", str(arrays)])
    assert result.exit_code == 0, result.output
    assert "Left the program as written" in result.stdout
    wrong = CliRunner().invoke(app, ["optimize", str(model), "--inputs", str(tmp_path / "none.npz")])
    assert wrong.exit_code == 3


def wide(rows: int) -> eqsat.Program:
    a, b = np.ones((64, 64), np.float32), np.ones((64, 8), np.float32)
    return eqsat.trace(lambda x: (x @ a) @ b, eqsat.spec((rows, 64)))


def test_a_program_that_memory_does_not_hold_is_refused():
    with pytest.raises(InputError, match=r"takes about 23 GB, more than the memory limit leaves \("):
        optimize_within(wide(1 << 24), 1e-3, memory_limit=4 * 10**9)


def test_a_program_that_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(error_budget, "_LEAST", 0.1)
    begun = time.monotonic()
    with pytest.raises(InputError, match=r"could not be run with NumPy in 0\.1 s"):
        optimize_within(wide(1 << 21), 1e-3, time_limit=0.2)
    assert time.monotonic() - begun < 3


def test_all_attempts_share_the_time_limit():
    budget = TimeBudget(5)
    best = optimize_within(wide(400), 1e-3, time_limit=budget)
    assert best.report["stages"]["error"] == round(budget.spent["error"], 3)
    assert budget.expected["error"] > 0
