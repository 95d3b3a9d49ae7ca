"""Time limits without a clock on the wall: budgets count a clock of the test's own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from itertools import pairwise

import numpy as np
import pytest

import eqsat
from eqsat.base.interrupt import Interruptible
from eqsat.base.time_budget import LEAST_SECONDS, STAGES, TimeBudget
from eqsat.errors import InputError
from eqsat.pipeline.optimize import Search
from eqsat.testing import assert_equivalent

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


@pytest.mark.parametrize(
    ("sizes", "shares"),
    [
        ([10], [100.0]),
        ([10, 30], [25.0, 75.0]),
        ([1, 99], [LEAST_SECONDS, 99.0]),
        ([0, 0], [LEAST_SECONDS, LEAST_SECONDS]),
        ([1] * 50, [LEAST_SECONDS] * 50),
        ([], []),
    ],
)
def test_parts_share_time_by_size_and_small_ones_have_enough(sizes: list[int], shares: list[float]):
    budget = TimeBudget(100.0, clock=Clock())
    np.testing.assert_allclose([budget.part("solve", size, sizes) for size in sizes], shares)


def test_no_part_takes_more_than_half_of_what_little_time_is_left():
    assert TimeBudget(3.0, clock=Clock()).part("solve", 1, [1, 1, 1, 1]) == 1.5
    assert TimeBudget(3.0, clock=Clock()).part("solve", 3, [3, 1]) == 2.25


def test_all_parts_are_covered_as_written_before_one_is_searched(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("eqsat.program.pieces.HUGE", 20)
    monkeypatch.setattr("eqsat.program.pieces.PIECE", 10)
    covered: list[int] = []
    solve = Search.solve

    def solve_and_count(self: Search, form: tuple, seconds: float) -> None:
        covered.append(len(self.written))
        solve(self, form, seconds)

    monkeypatch.setattr(Search, "solve", solve_and_count)

    def maps(x):
        for i in range(30):
            x = np.tanh(x) if i % 3 else x * x
        return x

    assert eqsat.optimize(eqsat.trace(maps, spec((8, 8)))).report["check"]["passed"]
    assert len(covered) > 1
    assert covered == [len(covered)] * len(covered)


def test_no_e_graph_grows_beyond_what_can_be_covered_in_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys.modules["eqsat.pipeline.optimize"], "HURRIED", 1e6)
    found = eqsat.optimize(eqsat.trace(chain, spec((8, 64))))
    assert found.report["egraph"]["stop"] == "time"
    assert found.report["check"]["passed"]


def test_what_follows_the_search_takes_at_most_its_share_of_the_limit():
    budget = TimeBudget(8.0, {"lower": 60.0, "partition": 60.0}, clock=Clock())
    budget.end += 120.0
    budget.expect_after_search(1.0)
    np.testing.assert_allclose(budget.left("solve"), 8.0 - 0.35 * 8.0 - 0.15 * 8.0)


def test_what_follows_the_search_is_done_once_for_equal_parts():
    budget = TimeBudget(1000.0, {"lower": 1.0}, clock=Clock())
    kept = []
    for distinct in (1.0, 0.25):
        budget.expect_after_search(distinct)
        kept.append(1000.0 - 1.0 - 3.0 - budget.left("solve"))
    np.testing.assert_allclose(kept[1], kept[0] / 4)


class Over(TimeBudget):
    """Has no time left for a stage, nor for those after it; no limit before."""

    def __init__(self, first: str) -> None:
        super().__init__(1000.0)
        self.first = first

    def left(self, stage: str) -> float:
        return 0.0 if STAGES.index(stage) >= STAGES.index(self.first) else super().left(stage)

    def patience(self, seconds: float) -> float:
        return seconds


def chain(x):
    for a, b in pairwise((64, 48, 8, 48)):
        x = x @ (np.arange(a * b, dtype=np.float32).reshape(a, b) % 7 - 3)
    return x


@pytest.mark.parametrize("first", STAGES[STAGES.index("saturate") : STAGES.index("write")])
def test_every_stage_has_something_to_fall_back_to(first: str):
    program = eqsat.trace(chain, spec((8, 64)))
    found = eqsat.optimize(program, time_limit=Over(first))
    assert_equivalent(program, found.program)
    assert found.report["check"]["passed"]
    late = STAGES.index(first) <= STAGES.index("fold")
    assert found.report["egraph"]["stop"] == ("time" if late else "saturated")
    assert found.report["result"]["kernels"] == (3 if late else 1)
    np.testing.assert_allclose(found.compile()(np.ones((8, 64), np.float32)), chain(np.ones((8, 64), np.float32)))


def test_work_that_is_given_up_ends():
    ended = threading.Event()

    def endless() -> None:
        try:
            while True:
                pass
        finally:
            ended.set()

    assert Interruptible().run(endless, "otherwise", seconds=0.05) == "otherwise"
    assert ended.wait(60)


DEAF = """
import os, signal
from eqsat.cli.app import answer_soon
answer_soon()
for _ in range({times}):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            pass
    except KeyboardInterrupt:
        pass
while True:
    pass
"""


@pytest.mark.skipif(os.name != "posix", reason="a timer of processor time is POSIX")
@pytest.mark.parametrize("times", [1, 2])
def test_a_command_that_does_not_answer_ctrl_c_ends_all_the_same(times: int):
    found = subprocess.run(
        [sys.executable, "-c", DEAF.format(times=times)], capture_output=True, text=True, timeout=120
    )
    assert (found.returncode, found.stderr) == (130, "eqsat: interrupted\n")


def test_work_without_time_is_not_begun():
    begun: list[bool] = []
    assert Interruptible().run(lambda: begun.append(True), "otherwise", seconds=0.0) == "otherwise"
    assert not begun


def test_a_report_says_where_time_went():
    program = eqsat.trace(lambda x: eqsat.relu(x @ np.ones((4, 4), np.float32)), spec((3, 4)))
    found = eqsat.optimize(program, time_limit=TimeBudget(10.0, {"read": 0.25}))
    stages = found.report["stages"]
    assert stages["read"] == 0.25
    assert (
        {"lower", "saturate", "candidates", "solve", "lift", "fold", "check", "explain"} <= set(stages) <= set(STAGES)
    )
    assert "read 0.25 s" in str(found)
