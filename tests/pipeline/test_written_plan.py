"""The plan of a program as written is made beside the search, and once."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat import spec
from eqsat.base.time_budget import TimeBudget
from eqsat.pipeline import assemble
from eqsat.pipeline.assemble import WrittenPlan
from eqsat.search.asked import judged
from eqsat.search.form import left_written
from eqsat.search.runner import Runner
from eqsat.search.search import partition, search
from support.programs import weight

GIVEN = None, None, 1.0, 1, "latency", None, None, False, 1


def layers(x):
    for seed in range(4):
        x = np.tanh(x @ weight(8, 8, seed=seed)) + x
    return x


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The thread of each plan."""
    threads: list[threading.Thread] = []
    plan = assemble.planned

    def noted(*given: Any) -> Any:
        threads.append(threading.current_thread())
        return plan(*given)

    monkeypatch.setattr(assemble, "planned", noted)
    return threads


def test_it_is_made_in_another_thread_and_not_again(
    planned: list[threading.Thread], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = eqsat.trace(layers, spec((4, 8)))
    beside = eqsat.optimize(program, rules=[], time_limit=60.0)
    assert len(planned) == 1
    assert planned[0] is not threading.main_thread()
    monkeypatch.setattr(WrittenPlan, "begin", lambda *given: None)
    afterwards = eqsat.optimize(program, rules=[], time_limit=60.0)
    assert len(planned) == 2
    for key in ("source", "kernels"):
        assert beside.report[key] == afterwards.report[key]


def test_that_of_other_parts_or_other_covers_is_made_anew(planned: list[threading.Thread]) -> None:
    run, program = Runner(TimeBudget.of(60.0)), eqsat.trace(layers, spec((4, 8)))
    problem = partition(program, judged(program, "mi300x", "exact", [], *GIVEN[1:]), run)
    plan, found = WrittenPlan(), search(problem, run)
    plan.begin(problem, {form: x.written for form, x in found.items()})
    first = plan.result(problem, found)
    assert plan.result(problem, found) is first
    assert len(planned) == 1
    assert plan.result(replace(problem), found).plan == first.plan
    again = {form: replace(x.written, cover=replace(x.written.cover)) for form, x in found.items()}
    assert plan.result(problem, {form: left_written(x, "time") for form, x in again.items()}).plan == first.plan
    assert len(planned) == 3


def test_what_it_raises_is_raised_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: Any) -> None:
        raise KeyError(7)

    monkeypatch.setattr(assemble, "planned", fails)
    with pytest.raises(KeyError):
        eqsat.optimize(eqsat.trace(layers, spec((4, 8))), rules=[], time_limit=60.0)
