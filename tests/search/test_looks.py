"""Looks at the kernels of a form: the search of the first is carried on where it may still find a cheaper cover, and
the best program is covered by itself in the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat import spec
from eqsat.base.time_budget import TimeBudget
from eqsat.egraph.snapshot import Snapshot
from eqsat.extract.cover import CoverResult, cover
from eqsat.extract.kernels.cuts import Limits
from eqsat.extract.plan.stitch import Solved
from eqsat.extract.solver.solve import SETTLING, Effort
from eqsat.program.core import lower
from eqsat.search import form, limits
from eqsat.search.asked import judged
from eqsat.search.runner import Begun, Deadline, Runner, Stage
from eqsat.search.search import partition

RNG = np.random.default_rng(7)
FEW, FEWER = Limits(per_kind=2, joins=2, pairs=2), Limits(per_kind=1, joins=0, pairs=0)
NOT_ALONE = Stage(lambda deadline, sought, best: best, lambda sought, best: best)
NO_EFFORT = Effort(rounds=0, pivots=0, exact=0, tries=0, branches=0, columns=0)


def attention() -> eqsat.Program:
    q, k, v, o = (RNG.standard_normal((64, 64)).astype(np.float32) for _ in range(4))

    def block(x):
        weights = eqsat.softmax((x @ q) @ eqsat.transpose(x @ k, (1, 0)) * 0.125)
        return x + eqsat.tanh((weights @ (x @ v)) @ o)

    return eqsat.trace(lambda x: block(block(x)), spec((96, 64)))


@pytest.fixture
def carried_on(monkeypatch: pytest.MonkeyPatch) -> Callable[[Effort], tuple[eqsat.Result, list[int]]]:
    """The result with so much effort in the first look, and the costs of covers that were searched for further."""

    def found(glance: Effort) -> tuple[eqsat.Result, list[int]]:
        costs: list[int] = []
        settled = form.settled

        def counted(*args):
            cover = settled(*args)
            costs.append(cover.cost)
            return cover

        with monkeypatch.context() as patch:
            patch.setattr(form, "_at_first", lambda *args: FEW)
            patch.setattr(form, "_in_time_again", lambda *args: (FEWER, 0.9, 0.0))  # finds little
            patch.setattr("eqsat.extract.cover.GLANCE", glance)
            patch.setattr(form, "settled", counted)
            for look in ("LOOK_ALONE", "OTHERS_ALONE"):  # they would find the rest
                patch.setattr(form, look, NOT_ALONE)
            return eqsat.optimize(attention(), time_limit=60), costs

    return found


def test_a_first_look_without_a_proof_is_carried_on_where_it_could_have_missed_something(
    carried_on: Callable[[Effort], tuple[eqsat.Result, list[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, none = carried_on(SETTLING)
    assert not none, "a proven cover is not searched for again"
    monkeypatch.setattr("eqsat.extract.solver.solve.ASCENT_STEPS", 0)
    brief, some = carried_on(NO_EFFORT)
    assert some
    assert brief.report["result"]["predicted_us"] == pytest.approx(min(some) / 1e6)
    assert brief.report["lower_bound_us"] == brief.report["result"]["predicted_us"], "the result is proven in the end"


def test_what_other_programs_crowd_out_is_found_where_the_best_one_is_covered_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Limits here are low, so that a small program has crowded classes."""
    monkeypatch.setattr(form, "_at_first", lambda *args: FEWER)
    monkeypatch.setattr(form, "_in_time_again", lambda *args: (FEWER, 0.9, 0.0))
    alone = eqsat.optimize(attention(), time_limit=60).report
    for look in ("LOOK_ALONE", "OTHERS_ALONE"):
        monkeypatch.setattr(form, look, NOT_ALONE)
    crowded = eqsat.optimize(attention(), time_limit=60).report
    assert alone["result"]["predicted_us"] < crowded["result"]["predicted_us"]
    assert alone["lower_bound_us"] <= alone["result"]["predicted_us"]
    assert alone["egraph"]["stop"] == "saturated"


def test_a_program_is_covered_by_itself_as_long_as_that_gains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cover is a better guess at the leaves for the next."""
    asked = judged(attention(), "mi300x", "reassociate", None, None, 0.0, 1, "latency", None, None, False, 1)
    snapshot = Snapshot.from_core(lower(attention()).roots)
    first = cover(snapshot, "mi300x")
    begun: list[int] = []

    def alone(best: CoverResult, *given: Any) -> CoverResult:
        begun.append(best.cost)
        return replace(best, cost=best.cost - (len(begun) < 4))

    monkeypatch.setattr(form, "cover_alone", alone)
    monkeypatch.setattr(form, "settled", lambda found, other, *given: replace(found, cost=other.cost))
    sought = form.Sought(asked, snapshot, (), TimeBudget(60.0))
    found = form._covered_alone(Deadline(60.0, lambda: False), sought, Solved(snapshot, first))
    assert begun == [first.cost - i for i in range(4)]
    assert found.cover.cost == first.cost - 3


@pytest.mark.parametrize(("left", "whole"), [(10.0, True), (3.0, True), (1.9, True), (1.7, False), (1.0, False)])
def test_the_second_look_keeps_all_kernels_as_long_as_the_time_suffices_for_quick_ones(
    left: float, whole: bool
) -> None:
    """After a first look of one second, 0.2 of them for the solver."""
    first = cover(Snapshot.from_core(lower(attention()).roots), "mi300x")
    first.stats["seconds"] = {"candidates": 0.8, "incumbents": 0.0, "solve": 0.2}
    cuts, share, quick = form._in_time_again(left, first)
    assert (cuts is None) == whole
    assert quick == pytest.approx(1.2)
    assert share == pytest.approx(max(0.4, 1 - 0.6 / left) if whole else 0.4, rel=1e-3)


def test_what_later_stages_depend_on_may_take_some_of_their_time() -> None:
    run = Runner(TimeBudget(4.0))
    run.budget.expect("lift", 4.0)
    stage = Stage(lambda deadline: time.sleep(1.0) or "found", lambda: "nothing", borrows=0.5)
    assert run.run(stage, 0.1) == "found"
    assert run.run(replace(stage, borrows=0.0), 0.1) == "nothing"


def test_the_time_of_a_first_look_that_was_given_up_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(form, "COVER", Stage(lambda *given: time.sleep(0.3), lambda *given: None, always=True))
    result = eqsat.optimize(attention(), time_limit=20)
    assert result.report["stages"]["candidates"] >= 0.3
    assert result.report["egraph"]["stop"] == "time"


def test_a_program_as_written_is_looked_at_twice_too(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[CoverResult | None] = []

    def looked(*args: Any, **kwargs: Any) -> CoverResult:
        looks.append(args[7])
        return replace(cover(*args, **kwargs))

    monkeypatch.setattr(form, "cover", looked)
    snapshot = Snapshot.from_core(lower(attention()).roots)
    asked = judged(attention(), "mi300x", "reassociate", None, None, 0.0, 1, "latency", None, None, False, 1)
    sought = form.Sought(asked, snapshot, (), TimeBudget(60.0))
    written = form._covered_as_written(Deadline(60.0, lambda: False), sought, snapshot, ())
    first, before = looks
    assert first is None
    assert before is not None
    assert written.cost <= before.cost
    looks.clear()
    form._covered_as_written(Deadline(1e-3, lambda: False), sought, snapshot, ())
    assert len(looks) == 1, "where there is time for it"


class Ending(Deadline):
    """A deadline that passes as soon as it was asked once."""

    def left(self) -> float:
        left, self.ends = super().left(), 0.0
        return left


def test_time_that_ends_between_two_looks_ends_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = Snapshot.from_core(lower(attention()).roots)
    asked = judged(attention(), "mi300x", "reassociate", None, None, 0.0, 1, "latency", None, None, False, 1)
    sought = form.Sought(asked, snapshot, (), TimeBudget(60.0))
    solved = Solved(snapshot, cover(snapshot, "mi300x", limits=FEW))
    assert solved.cover.stats["candidates"]["crowded"]
    again = form._looked_at_again(Ending(60.0, lambda: False), sought, solved, solved)
    assert again.cover.cost <= solved.cover.cost


@pytest.mark.parametrize(("seconds", "size", "nodes"), [(0.14, 100, 100), (5.8, 112, 17_000), (0.0, 10, 0)])
def test_an_e_graph_may_grow_as_far_as_it_can_be_covered(seconds: float, size: int, nodes: int) -> None:
    """The second is MobileNetV2's largest form with half of 12 s: it saturates with 2900 e-nodes."""
    assert limits.SEARCH.coverable(seconds, size, fuses=True) == pytest.approx(nodes, rel=0.05)
    assert limits.SEARCH.coverable(seconds, size, fuses=False) == pytest.approx(seconds / limits.SEARCH.unfused)


@pytest.mark.parametrize("late", [False, True])
def test_a_search_among_kernels_that_time_ended_is_called_so(late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(*args: Any, **kwargs: Any) -> CoverResult:
        return replace(cover(*args, **kwargs), late=late)

    monkeypatch.setattr(form, "cover", found)
    result = eqsat.optimize(attention(), time_limit=60)
    assert result.report["egraph"]["stop"] == ("time" if late else "saturated")


def test_a_second_look_that_comes_later_finds_what_one_at_once_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(form, "QUICK", FEW)
    run = Runner(TimeBudget(60.0))
    asked = judged(attention(), "mi300x", "reassociate", None, None, 0.0, 1, "latency", None, None, False, 1)
    problem = partition(attention(), asked, run)
    sought = problem.sought(problem.parts[0].form)
    written = form.cover_written(sought, 60.0, run)
    at_once = form.search_whole(sought, written, 60.0, run)
    monkeypatch.setattr(limits, "SEARCH", replace(limits.SEARCH, per_square=1.0))
    begun = form.search_whole(sought, written, 60.0, run)
    assert isinstance(at_once, form.Found)
    assert isinstance(begun, Begun)
    assert begun.found.figures["stop"] == "time"
    assert begun.rest is not None
    later = begun.rest(60.0, run)
    assert later.figures["stop"] == at_once.figures["stop"] == "saturated"
    assert later.cheapest.cover.cost == at_once.cheapest.cover.cost < begun.found.cheapest.cover.cost
    assert later.cheapest.cover.problem is not None
    assert later.cheapest.cover.problem.found.made is None, "what only a further look would use is dropped"
