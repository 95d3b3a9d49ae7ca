"""Time limits without a clock on the wall: budgets count a clock of the test's own."""

from __future__ import annotations

import numpy as np
import pytest

import eqsat
from eqsat.errors import InputError
from eqsat.time_budget import STAGES, TimeBudget

spec = eqsat.spec


class Clock:
    """Stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("stage", "left"),
    [("saturate", 4.0), ("solve", 4.0), ("lift", 6.0), ("fold", 6.5), ("check", 6.5), ("write", 7.0)],
)
def test_stages_leave_what_later_ones_need(stage: str, left: float):
    clock = Clock()
    budget = TimeBudget(10.0, {"start": 1.0, "read": 2.0}, clock)
    for later, seconds in {"fold": 0.5, "lift": 2.0, "write": 0.5}.items():
        budget.expect(later, seconds)
    assert budget.left(stage) == left
    clock.now = 100.0
    assert budget.left(stage) == 0.0


def test_stages_add_up_in_order():
    clock = Clock()
    budget = TimeBudget(10.0, {"read": 2.0}, clock)
    for name in ("check", "lift", "check"):
        with budget.stage(name):
            clock.now += 1.5
    assert budget.report() == {"read": 2.0, "lift": 1.5, "check": 3.0}
    assert list(budget.report()) == [s for s in STAGES if s in budget.spent]


@pytest.mark.parametrize("limit", [-1, float("nan"), "10", None, True])
def test_what_is_no_number_of_seconds_is_refused(limit: object):
    with pytest.raises(InputError, match=r"time_limit .* expected seconds, at least 0"):
        TimeBudget.of(limit)  # type: ignore[arg-type]


def test_a_report_says_where_time_went():
    program = eqsat.trace(lambda x: eqsat.relu(x @ np.ones((4, 4), np.float32)), spec((3, 4)))
    found = eqsat.optimize(program, time_limit=TimeBudget(10.0, {"read": 0.25}))
    stages = found.report["stages"]
    assert stages["read"] == 0.25
    assert (
        {"lower", "saturate", "candidates", "solve", "lift", "fold", "check", "explain"} <= set(stages) <= set(STAGES)
    )
    assert "read 0.25 s" in str(found)
