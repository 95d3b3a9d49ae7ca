"""Time limits, with budgets that read a fake clock."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import eqsat
from eqsat.base.interrupt import Interruptible, ended_by
from eqsat.base.time_budget import STAGES, TimeBudget
from eqsat.errors import InputError
from eqsat.search import limits
from eqsat.search import search as searching
from eqsat.search.runner import Deadline, Runner, Stage
from eqsat.testing import assert_equivalent

spec = eqsat.spec


class Clock:
    """Stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_would_be_left_reserves_nothing():
    budget = TimeBudget(10.0, clock=Clock())
    budget.expect("lift", 1.0)
    budget.expect("write", 2.0)
    assert budget.left("solve", {"lift": 4.0}) == 4.0
    assert budget.left("solve") == 7.0


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


def test_a_stage_begun_after_an_interrupt_has_only_its_grace():
    def endless(deadline: Deadline) -> str:
        while True:
            time.sleep(0.01)

    run = Runner(TimeBudget.of(1e6))
    run.interrupt()
    begun = time.monotonic()
    assert run.run(Stage(endless, lambda: "as written", always=True), 1e6) == "as written"
    assert time.monotonic() - begun < 20 * limits.LATE.grace


@pytest.mark.parametrize("limit", [-1, float("nan"), "10", None, True])
def test_what_is_no_number_of_seconds_is_refused(limit: object):
    with pytest.raises(InputError, match=r"time_limit .* expected seconds, at least 0"):
        TimeBudget.of(limit)  # type: ignore[arg-type]


LEAST = limits.SEARCH.least_seconds


@pytest.mark.parametrize(
    ("sizes", "shares"),
    [
        ([10], [100.0]),
        ([10, 30], [10.0, 90.0]),
        ([1, 99], [LEAST, 100.0 * 99**2 / (99**2 + 1)]),
        ([0, 0], [LEAST, LEAST]),
        ([1] * 50, [LEAST] * 50),
        ([], []),
    ],
)
def test_forms_share_time_by_the_square_of_their_size_and_small_ones_have_enough(sizes: list[int], shares: list[float]):
    np.testing.assert_allclose([limits.SEARCH.of_form(100.0, size, sizes) for size in sizes], shares)


def test_no_form_takes_more_than_half_of_what_little_time_is_left():
    assert limits.SEARCH.of_form(3.0, 1, [1, 1, 1, 1]) == 1.5
    assert limits.SEARCH.of_form(3.0, 3, [3, 1]) == 2.7


def test_all_parts_are_covered_as_written_before_one_is_searched(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("eqsat.parts.pieces.HUGE", 20)
    monkeypatch.setattr("eqsat.parts.pieces.PIECE", 10)
    covered: list[int] = []
    written: list[object] = []
    search_form, cover_written = searching.search_form, searching.cover_written

    def search_and_count(*args):
        covered.append(len(written))
        return search_form(*args)

    def cover_and_note(*args):
        written.append(args)
        return cover_written(*args)

    monkeypatch.setattr(searching, "search_form", search_and_count)
    monkeypatch.setattr(searching, "cover_written", cover_and_note)

    def maps(x):
        for i in range(30):
            x = np.tanh(x) if i % 3 else x * x
        return x

    assert eqsat.optimize(eqsat.trace(maps, spec((8, 8)))).report["check"]["passed"]
    assert len(covered) > 1
    assert covered == [len(covered)] * len(covered)


def test_no_e_graph_grows_beyond_what_can_be_covered_in_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "SEARCH", limits.Search(fused=1e6, of_e_node=1e6))
    found = eqsat.optimize(eqsat.trace(chain, spec((8, 64))))
    assert found.report["egraph"]["stop"] == "time"
    assert found.report["check"]["passed"]


def test_what_follows_the_search_takes_at_most_its_share_of_the_limit():
    expected = limits.AFTER.expected(8.0, 10**6, 10**6, 0, 0.0)
    shares = (limits.AFTER.most + limits.AFTER.check_most + limits.AFTER.near) * 8.0
    np.testing.assert_allclose(sum(expected.values()), shares + limits.EXPLAINING.seconds)


def test_what_stays_as_written_takes_next_to_no_time_after_the_search():
    none, half, whole = (limits.AFTER.expected(20.0, 4000, changed, 0, 0.0) for changed in (0, 2000, 4000))
    assert none["lift"] == none["near"] == none["explain"] == 0.0
    assert none["check"] < half["check"] < whole["check"]
    assert half["lift"] == whole["lift"] / 2
    assert none["plan"] == whole["plan"] > 0


def test_a_long_search_leaves_more_time_for_what_follows_it():
    short, long = (limits.AFTER.expected(limit, 1000, 1000, 0, 0.0)["lift"] for limit in (10.0, 1000.0))
    assert long > 2 * short


def test_what_follows_the_search_is_done_once_for_equal_parts():
    """Of layers so large that no kernel gains by computing two of them."""
    rng = np.random.default_rng(7)
    weights = [rng.standard_normal((384, 384)).astype(np.float32) for _ in range(12)]

    def expected(layers: int) -> float:
        def net(x):
            for w in weights[:layers]:
                x = eqsat.softmax(x @ w)
            return x

        budget = TimeBudget(60.0)
        eqsat.optimize(eqsat.trace(net, spec((64, 384))), time_limit=budget)
        return budget.expected["lift"]

    assert expected(12) == expected(6) > 0


class Over(TimeBudget):
    """Has no time left for a stage, nor for those after it; no limit before."""

    def __init__(self, first: str) -> None:
        super().__init__(1000.0)
        self.first = first

    def left(self, stage: str, expected: Mapping[str, float] | None = None) -> float:
        return 0.0 if STAGES.index(stage) >= STAGES.index(self.first) else super().left(stage, expected)


def chain(x):
    for a, b in pairwise((64, 48, 8, 48)):
        x = x @ (np.arange(a * b, dtype=np.float32).reshape(a, b) % 7 - 3)
    return x


@pytest.mark.parametrize("first", STAGES[STAGES.index("saturate") : STAGES.index("write")])
def test_every_stage_has_something_to_fall_back_to(first: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "LATE", limits.Late(0.0, 0.0))
    program = eqsat.trace(chain, spec((8, 64)))
    found = eqsat.optimize(program, time_limit=Over(first))
    assert_equivalent(program, found.program)
    assert found.report["check"]["passed"]
    late = STAGES.index(first) <= STAGES.index("fold")
    assert found.report["egraph"]["stop"] == ("time" if late else "saturated")
    assert found.report["result"]["kernels"] == (2 if late else 1)
    np.testing.assert_allclose(found.compile()(np.ones((8, 64), np.float32)), chain(np.ones((8, 64), np.float32)))


def endless(ended: threading.Event) -> None:
    try:
        while True:
            pass
    finally:
        ended.set()


def test_work_that_is_given_up_ends():
    ended = threading.Event()
    assert Interruptible().run(lambda: endless(ended), "otherwise", seconds=0.05) == "otherwise"
    assert ended.wait(60)


def test_work_within_work_that_is_given_up_ends():
    ended = threading.Event()
    outer, inner = Interruptible(), Interruptible()
    assert outer.run(lambda: inner.run(lambda: endless(ended), None), "otherwise", seconds=0.1) == "otherwise"
    assert ended.wait(60)


def test_compiled_code_in_work_that_is_given_up_is_told_to_end():
    told = threading.Event()

    def work() -> None:
        with ended_by(told.set):
            told.wait(60)

    began = time.monotonic()
    assert Interruptible().run(work, "otherwise", seconds=0.05) == "otherwise"
    assert told.is_set()
    assert time.monotonic() - began < 30


LEAVING = """
import atexit, threading, time
atexit.register(lambda: print(all(thread is threading.main_thread() for thread in threading.enumerate())))
from eqsat.base.interrupt import Interruptible, ended_by
print(Interruptible().run(lambda: time.sleep(1.0), "otherwise", seconds=0.05))
"""


def test_python_ends_after_compiled_code_in_work_that_was_given_up():
    """C++ that returns into a Python that has ended takes the process with it."""
    found = subprocess.run([sys.executable, "-c", LEAVING], capture_output=True, text=True, timeout=120)
    assert (found.returncode, found.stdout, found.stderr) == (0, "otherwise\nTrue\n", "")


@pytest.mark.parametrize("begins", [True, False], ids=["the thread has begun", "it has not"])
def test_ctrl_c_while_the_thread_begins_is_noted(begins: bool, monkeypatch: pytest.MonkeyPatch):
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        if begins:
            start(thread)
        raise KeyboardInterrupt

    working = Interruptible()
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    found = working.run(lambda: "result", "otherwise", grace=60.0 if begins else 0.01)
    assert (found, working.interrupted) == ("result" if begins else "otherwise", True)


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


LOST = """
import os, signal, time, weakref
from eqsat.cli.app import answer_soon


class Held:
    pass


class Dropped:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)


def hears(heard):
    os.kill(os.getpid(), signal.SIGINT)


answer_soon()
for _ in range({times}):
    try:
        if {in_a_destructor}:
            Dropped()
        else:
            held = Held()
            seen = weakref.ref(held, hears)
            del held
        time.sleep(60)
    except KeyboardInterrupt:
        print("heard")
"""


@pytest.mark.parametrize("in_a_destructor", [True, False], ids=["in a destructor", "in a weak reference's callback"])
@pytest.mark.parametrize(("times", "code"), [(1, 0), (2, 130)])
def test_ctrl_c_is_heard_where_python_ignores_exceptions(in_a_destructor: bool, times: int, code: int):
    """The first ends the work, the second the process."""
    script = LOST.format(times=times, in_a_destructor=in_a_destructor)
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50)
    said = "eqsat: interrupted\n" * (times - 1)
    assert (found.returncode, found.stdout, found.stderr) == (code, "heard\n", said)


def test_other_exceptions_that_python_ignores_are_still_printed():
    script = (
        "from eqsat.base.interrupt import raise_lost_again; raise_lost_again(); import weakref; "
        "weakref.ref(type('Held', (), {})(), lambda gone: 1 / 0)"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50)
    assert found.stderr.count("ZeroDivisionError") == 1


GIVEN_UP = """
import ctypes, threading, time
from eqsat.base import interrupt
interrupt.raise_lost_again()


class Dropped:
    def __del__(self):
        begun.set()
        while not interrupt._abandoned:
            time.sleep(0.001)


begun, ended = threading.Event(), threading.Event()


def work():
    try:
        Dropped()
        while True:
            pass
    finally:
        ended.set()


working = interrupt.Interruptible()
print(working.run(work, "otherwise", seconds=0.2), begun.is_set(), ended.wait(30.0))
"""


def test_work_is_given_up_where_python_ignores_exceptions():
    found = subprocess.run([sys.executable, "-c", GIVEN_UP], capture_output=True, text=True, timeout=120)
    assert (found.returncode, found.stdout, found.stderr) == (0, "otherwise True True\n", "")


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


def test_every_stage_is_described() -> None:
    text = (Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")
    (line,) = (line for line in text.splitlines() if line.startswith("| `stages` |"))
    assert [stage for stage in STAGES if f"`{stage}`" not in line] == []


def test_a_limit_is_one_that_threads_can_wait_for() -> None:
    for seconds in (1e300, float("inf")):
        budget = TimeBudget.of(seconds)
        assert 1e6 < budget.left("write") < threading.TIMEOUT_MAX
