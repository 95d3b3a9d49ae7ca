"""Forms that are saturated while kernels of the one before are found: the same results, errors and interrupts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat import spec
from eqsat.base.time_budget import TimeBudget
from eqsat.extract.plan.stitch import Solved
from eqsat.search import form, limits, search
from eqsat.search.asked import judged
from eqsat.search.runner import Prefetch, Runner

RNG = np.random.default_rng(3)

UNHEARD = (lambda written: None), (lambda written: None), (lambda: None)
"""Nobody is told of the covers as written, and no operators are recognised."""


def layers() -> eqsat.Program:
    """Layers of two kinds, one after another, with different weights: two forms."""
    w = [RNG.standard_normal((48, 48)).astype(np.float32) for _ in range(8)]

    def net(x):
        for a in w[:4]:
            x = eqsat.softmax(x @ a)
        for a in w[4:]:
            x = eqsat.softmax(eqsat.tanh(x) @ a + 1)
        return x

    return eqsat.trace(net, spec((64, 48)))


def partitioned(program: eqsat.Program, run: Runner) -> search.Problem:
    given = None, None, 1.0, 1, "latency", None, None, False, 1
    return search.partition(program, judged(program, "mi300x", "reassociate", *given), run)


def begun() -> tuple[Runner, form.Sought, Solved]:
    """The largest form of a program, covered as written."""
    run = Runner(TimeBudget.of(60))
    problem = partitioned(layers(), run)
    sought = problem.sought(max(problem.sizes(), key=problem.sizes().__getitem__))
    return run, sought, form.cover_written(sought, 5.0, run)


def test_the_result_does_not_depend_on_what_is_saturated_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    program = layers()
    given: list[float] = []
    prefetch = form.Prefetch
    monkeypatch.setattr(form, "Prefetch", lambda work, seconds: given.append(seconds) or prefetch(work, seconds))
    with_it = eqsat.optimize(program, time_limit=30)
    assert given
    given.clear()
    monkeypatch.setattr(limits, "SEARCH", replace(limits.SEARCH, prefetch=1e9))
    without = eqsat.optimize(program, time_limit=30)
    assert not given
    assert with_it.report["kernels"] == without.report["kernels"]
    assert with_it.report["egraph"]["nodes"] == without.report["egraph"]["nodes"]


def test_a_saturation_that_was_cut_short_is_done_again_when_there_is_more_time() -> None:
    run, sought, written = begun()
    short = replace(written.snapshot, stats={"stop": "time"})
    again = form.explore_form(sought, run.deadline(20.0), run, Prefetch(lambda: short, 1.0))
    assert again.stats["stop"] == "saturated"
    assert form.explore_form(sought, run.deadline(1.2), run, Prefetch(lambda: short, 1.0)) is short


def test_errors_come_with_the_result_and_a_late_result_is_none() -> None:
    def fails() -> int:
        raise ValueError("unsound")

    with pytest.raises(ValueError, match="unsound"):
        Prefetch(fails, 1.0).result(5.0)
    gate = threading.Event()
    late = Prefetch(gate.wait, 1.0)
    assert late.result(0.01) is None
    gate.set()
    assert late.result(5.0) is True


def test_an_interrupt_ends_a_saturation_in_another_thread() -> None:
    run, sought, _ = begun()
    run.interrupt()
    start = time.monotonic()
    found = Prefetch(lambda: form._saturated(sought, run.deadline(30.0)), 30.0).result(10.0)
    assert found is not None
    assert time.monotonic() - start < 2.0


def test_no_time_for_changes_is_reserved_before_there_is_a_cover_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stays as written is lifted in no time. So its cover may take what lifting would."""
    reserved: dict[str, dict[str, float]] = {}

    def noted(name: str) -> Callable[..., Any]:
        found = getattr(search, name)

        def told(*args: Any) -> Any:
            (run,) = (x for x in args if isinstance(x, Runner))
            reserved[name] = dict(run.budget.expected)
            return found(*args)

        return told

    for name in ("cover_written", "search_form"):
        monkeypatch.setattr(search, name, noted(name))
    eqsat.optimize(layers(), time_limit=30)
    before, after = reserved["cover_written"], reserved["search_form"]
    assert {stage for stage in after if before[stage] == 0.0 < after[stage]} == {"near", "lift", "explain"}
    assert before["plan"] == after["plan"] > 0


@pytest.mark.parametrize(("limit", "processes", "taken"), [(100.0, 1, 8), (10.0, 1, 6), (5.0, 2, 4), (1.5, 1, 1)])
def test_as_many_forms_are_begun_as_there_is_time_for(limit: float, processes: int, taken: int) -> None:
    """Eight forms that take a second each; what has been begun takes some time after the search."""
    _, sought, _ = begun()
    run = Runner(TimeBudget(limit, clock=lambda: 0.0))
    size = int(1 / limits.SEARCH.first_look(1, fuses=True))
    work = search._Work([sought] * 8, [size] * 8, [0] * 8, [1] * 8, run, *UNHEARD)
    assert work.worthwhile([0.0] * processes, range(8), 1) == list(range(taken))
    lift = run.budget.expected["lift"]
    assert lift == pytest.approx(limits.AFTER.expected(limit, 8 * size, taken * size, 0, 0.0)["lift"])
    if taken < 8:
        assert work.worthwhile([0.0] * processes, range(taken, 8), 1), "more, as the others have taken no time"
    assert not work.worthwhile([0.0] * processes, range(8, 8), 1)


def test_processes_that_are_busy_search_nothing_else() -> None:
    _, sought, _ = begun()
    run = Runner(TimeBudget(8.0, clock=lambda: 0.0))
    size = int(1 / limits.SEARCH.first_look(1, fuses=True))
    work = search._Work([sought] * 8, [size] * 8, [0] * 8, [1] * 8, run, *UNHEARD)
    free, half, none = (len(work.worthwhile([0.0, seconds], range(8), 0)) for seconds in (0.0, 1.5, 100.0))
    assert free > half > none > 0


def test_a_form_that_there_is_no_time_for_does_not_hold_up_smaller_ones() -> None:
    _, sought, _ = begun()
    run = Runner(TimeBudget(10.0, clock=lambda: 0.0))
    sizes = [20, 10_000, 30]  # in the order of their worth
    work = search._Work([sought] * 3, sizes, [0] * 3, [1] * 3, run, *UNHEARD)
    assert work.worthwhile([0.0, 0.0], range(3), 1) == [0, 2]
    assert work.worthwhile([0.0, 0.0], [1], 0) == []
    assert work.worthwhile([0.0, 0.0], [1], 1) == [1], "a process that has nothing else to do begins it all the same"


@pytest.mark.parametrize("shared", [False, True])
def test_time_for_the_check_is_reserved_for_each_constant_once(shared: bool) -> None:
    """ALBERT's layers all read the same weights."""
    w = RNG.standard_normal((4, 48, 48)).astype(np.float32)

    def net(x):
        for i in range(4):
            x = eqsat.softmax(x @ w[0 if shared else i])
        return x

    problem = partitioned(eqsat.trace(net, spec((64, 48))), Runner(TimeBudget.of(60)))
    assert len(problem.parts) - len(problem.sizes()) == 2, "three of them are of one form"
    assert max(problem.weights().values()) // (48 * 48) == (1 if shared else 3)


def test_no_time_is_reserved_for_forms_that_are_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even while they are looked at: other processes would stop as if there were no time left."""
    _, sought, _ = begun()
    run = Runner(TimeBudget(5.0, clock=lambda: 0.0))
    reserved: list[float] = []
    monkeypatch.setattr(run.budget, "expect", lambda stage, seconds: stage == "lift" and reserved.append(seconds))
    work = search._Work([sought], [10_000], [0], [1], run, *UNHEARD)
    assert not work.worthwhile([0.0, 0.0], [0], 0)
    assert reserved == [0.0]


def test_forms_without_time_stay_as_written() -> None:
    _, sought, _ = begun()
    run = Runner(TimeBudget(60.0))
    run.budget.finish()
    assert not search._Work([sought], [10], [0], [1], run, *UNHEARD).worthwhile([0.0], range(1), 1)


def test_what_costs_most_for_its_time_is_searched_first() -> None:
    """A small form that costs next to nothing as written can gain next to nothing, and delays the others."""
    _, sought, written = begun()
    run = Runner(TimeBudget(10.0, clock=lambda: 0.0))
    work = search._Work([sought] * 4, [15, 150, 150, 300], [0] * 4, [1, 2, 2, 1], run, *UNHEARD)
    costs = 8, 110, 120, 250
    priced = [replace(written, cover=replace(written.cover, cost=cost)) for cost in costs]
    assert work.order(priced) == [2, 1, 3, 0]
    assert limits.SEARCH.next_form(2.0, 2.0, [150, 150, 300, 15], limits.SEARCH.expected)[0] == 0
