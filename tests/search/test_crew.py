"""Forms that are searched in several processes: the same results, whatever happens to a process."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat import spec
from eqsat.base import worker
from eqsat.base.memory_limit import memory_limit
from eqsat.base.time_budget import TimeBudget
from eqsat.base.worker import Pool, packed
from eqsat.errors import EqsatError, InputError
from eqsat.extract.plan.stitch import Solved
from eqsat.search import crew, limits, search
from eqsat.search.asked import judged
from eqsat.search.crew import Crew
from eqsat.search.form import Sought, cover_written
from eqsat.search.runner import Begun, Runner
from eqsat.search.search import Problem, partition

RNG = np.random.default_rng(11)
WIDTHS = (16, 24, 40)
MEMORY = memory_limit(None)


def towers() -> eqsat.Program:
    """Layers of three widths after one another: a form of each."""
    weights = [[RNG.standard_normal((n, n)).astype(np.float32) for _ in range(3)] for n in WIDTHS]
    between = [RNG.standard_normal(x).astype(np.float32) for x in pairwise(WIDTHS)]

    def net(x):
        for i, layers in enumerate(weights):
            for w in layers:
                x = eqsat.softmax(x @ w + 1)
            x = x @ between[i] if i < len(between) else x
        return x

    return eqsat.trace(net, spec((64, WIDTHS[0])))


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    """Two further processes, however small a program is."""
    monkeypatch.setattr(limits, "TOGETHER", limits.Together(nodes=0))
    monkeypatch.setattr(crew, "processors", lambda: 3)
    pool = Pool("eqsat.search.crew:Searching", most=2)
    monkeypatch.setattr(crew, "_SEARCHERS", pool)
    given = None, None, 1.0, 1, "latency", None, None, False, 1
    asked = packed(judged(towers(), "mi300x", "reassociate", *given))
    with pool.lent(MEMORY, None, 0.0) as one, pool.lent(MEMORY, None, 0.0) as other:
        for loading in (one, other):
            assert loading is not None
            loading.send(asked)
            assert loading.receive(60.0) == ("ready", None)
    yield pool
    pool.close()


def begun(seconds: float = 60.0) -> tuple[Problem, Runner]:
    given = None, None, 1.0, 1, "latency", None, None, False, 1
    run, program = Runner(TimeBudget.of(seconds)), towers()
    return partition(program, judged(program, "mi300x", "reassociate", *given), run), run


def parts(problem: Problem, run: Runner) -> tuple[Crew, list[tuple[Sought]]]:
    sizes = problem.sizes()
    forms = sorted(sizes, key=sizes.__getitem__)
    return Crew(problem.asked, [sizes[x] for x in forms], run), [(problem.sought(x),) for x in forms]


def process_of(sought: Sought, seconds: float, run: Runner) -> int:
    time.sleep(0.2)  # so that each process gets one
    return os.getpid()


DONE_HERE: list[str] = []


def notes(sought: Sought, seconds: float, run: Runner) -> None:
    DONE_HERE.append("searched")


def own_error(sought: Sought, seconds: float, run: Runner) -> int:
    raise InputError("no such thing")


def fails_elsewhere(sought: Sought, seconds: float, run: Runner) -> int:
    if worker.serving:
        raise KeyError(7)
    time.sleep(0.5)
    return 1


def fails_here(sought: Sought, seconds: float, run: Runner) -> int:
    if worker.serving:
        threading.Event().wait(600)
    time.sleep(1.0)
    raise KeyError(7)


def dies_elsewhere(sought: Sought, seconds: float, run: Runner) -> int:
    if worker.serving:
        os._exit(7)
    time.sleep(0.5)
    return 1


def hangs_elsewhere(sought: Sought, seconds: float, run: Runner) -> int:
    if worker.serving:
        threading.Event().wait(600)
    time.sleep(0.5)
    return 1


def waits_for_an_end(sought: Sought, seconds: float, run: Runner) -> str:
    """What Ctrl-C makes of work that ends when it is told to."""

    def work() -> str:
        while not run.deadline(seconds).stopped():
            time.sleep(0.01)
        return "ended"

    return run._working.run(work, "lost")


def begins(sought: Sought, seconds: float, run: Runner) -> Begun[Any]:
    time.sleep(0.2)  # so that each process gets one
    return Begun(("begun", os.getpid()), 1.0, partial(goes_on, os.getpid()))


def goes_on(begun_by: int, seconds: float, run: Runner) -> tuple[str, int, int, float]:
    return "done", begun_by, os.getpid(), time.monotonic()


def begins_and_dies_elsewhere(sought: Sought, seconds: float, run: Runner) -> Begun[Any]:
    return replace(begins(sought, seconds, run), rest=dies_and_does_not_go_on)


def dies_and_does_not_go_on(seconds: float, run: Runner) -> tuple[str, int]:
    if worker.serving:
        os._exit(7)
    return "done", os.getpid()


def outcome(best: eqsat.Result) -> tuple[Any, ...]:
    report = best.report
    return report["kernels"], report["egraph"]["nodes"], report["rules"], report["lower_bound_us"], str(best.program)


def test_several_processes_find_what_one_finds(together: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    program = towers()
    asked: list[int] = []
    ask = crew.Crew._asked_of

    def noted(self: Crew, other: worker.Worker, *rest: Any) -> Any:
        asked.append(id(other))
        return ask(self, other, *rest)

    monkeypatch.setattr(crew.Crew, "_asked_of", noted)
    several = eqsat.optimize(program, time_limit=60)
    assert len(set(asked)) == 2
    assert not together._all, "they end with the search"
    monkeypatch.setattr(crew, "processors", lambda: 1)
    assert outcome(eqsat.optimize(program, time_limit=60)) == outcome(several)


def test_each_form_is_searched_once_and_all_processes_take_part(together: Pool) -> None:
    problem, run = begun()
    members, given = parts(problem, run)
    processes = members.each(process_of, given)
    assert None not in processes
    assert len(set(processes)) > 1
    assert os.getpid() in processes


def test_what_a_process_has_begun_it_carries_on_once_all_forms_are_taken(together: Pool) -> None:
    problem, run = begun()
    members, given = parts(problem, run)
    untaken: list[int] = []
    go_on = members._next_begun

    def noted(begun: Any) -> Any:
        untaken.append(len(given) - len(taken))
        return go_on(begun)

    taken: list[int] = []
    following = members._next
    members._next = lambda *args: taken.append(1) or following(*args)  # type: ignore[method-assign]
    members._next_begun = noted  # type: ignore[method-assign]
    found: list[Any] = members.each(begins, given)
    assert [kind for kind, *_ in found] == ["done"] * len(given)
    assert all(first == then for _, first, then, _ in found), "the process that has begun"
    assert len({first for _, first, *_ in found}) > 1
    assert set(untaken) == {0}


def test_what_there_is_no_time_for_stays_as_far_as_it_is(together: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, run = begun()
    members, given = parts(problem, run)
    monkeypatch.setattr(members, "_next_begun", lambda begun: None)
    found: list[Any] = members.each(begins, given)
    assert [kind for kind, _ in found] == ["begun"] * len(given)
    assert len({process for _, process in found}) > 1


def test_a_process_that_dies_as_it_goes_on_leaves_what_it_had(together: Pool) -> None:
    problem, run = begun()
    members, given = parts(problem, run)
    found: list[Any] = members.each(begins_and_dies_elsewhere, given)
    assert {kind for kind, _ in found} == {"begun", "done"}
    assert [(kind == "done") == (process == os.getpid()) for kind, process in found] == [True] * len(given)


def test_the_shortest_rest_comes_first_with_what_the_others_leave() -> None:
    assert limits.SEARCH.next_begun(8.0, {3: 3.0, 5: 1.0}) == (5, 5.0)
    assert limits.SEARCH.next_begun(2.0, {3: 3.0, 5: 1.0}) == (5, 1.0)
    assert limits.SEARCH.next_begun(0.5, {3: 3.0, 5: 1.0}) == (5, 0.5)
    assert limits.SEARCH.next_begun(8.0, {3: 3.0}) == (3, 8.0)


def test_a_rest_for_which_next_to_no_time_is_left_does_not_begin() -> None:
    assert limits.SEARCH.next_begun(0.8, {3: 3.0}) == (3, 0.8)
    assert limits.SEARCH.next_begun(0.7, {3: 3.0}) is None
    assert limits.SEARCH.next_begun(0.0, {3: 0.0}) is None
    assert limits.SEARCH.next_begun(8.0, {}) is None


def test_processes_are_started_early_for_many_kinds_of_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool("eqsat.search.crew:Searching", most=7)
    monkeypatch.setattr(crew, "_SEARCHERS", pool)
    monkeypatch.setattr(crew, "processors", lambda: 4)
    kinds, enough = limits.TOGETHER.kinds, limits.TOGETHER.seconds
    try:
        for few in (
            (kinds - 1, MEMORY, enough),
            (kinds, MEMORY, 0.9 * enough),
            (kinds, limits.TOGETHER.memory, enough),
        ):
            crew.start_early(*few)
            assert not pool._all
        crew.start_early(kinds, MEMORY, enough)
        assert len(pool._all) == 1
        crew.start_early(100 * kinds, MEMORY, enough)
        assert len(pool._all) == 3, "the processors but this one"
    finally:
        pool.close()


def test_a_process_that_was_started_early_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool("eqsat.search.crew:Searching", most=1)
    monkeypatch.setattr(crew, "_SEARCHERS", pool)
    monkeypatch.setattr(limits, "TOGETHER", limits.Together(nodes=0))
    monkeypatch.setattr(crew, "processors", lambda: 2)
    crew.start_early(limits.TOGETHER.kinds, MEMORY, 60.0)
    (early,) = pool._all
    problem, run = begun()
    members, given = parts(problem, run)
    with members:
        assert early.holding is not None, "it is told what is asked"
        early.receive(60.0)
        assert early._process.pid in members.each(process_of, given)
    assert not pool._all


def test_the_largest_forms_begin_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "processors", lambda: 1)
    problem, run = begun()
    members, given = parts(problem, run)
    began: list[Sought] = []
    assert members.each(lambda sought, seconds, run: began.append(sought), given) == [None] * len(given)
    sizes = [len(sought.source.nodes) for (sought,) in given]
    assert sizes[0] < sizes[-1]
    assert began == [given[i][0] for i in sorted(range(len(given)), key=lambda i: -sizes[i])], "equal ones in turn"


def test_what_is_worthwhile_comes_before_what_is_begun_and_that_before_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(crew, "processors", lambda: 1)
    problem, run = begun()
    members, given = parts(problem, run)
    order: list[str] = []

    def work(sought: Sought, place: int, seconds: float, run: Runner) -> Begun[str]:
        order.append(f"{place} begins")
        return Begun("begun", 1.0, lambda seconds, run: order.append(f"{place} goes on") or "done")

    def worthwhile(busy: Sequence[float], waiting: Sequence[int], least: int) -> Sequence[int]:
        return [i for i in waiting if i != 1] or waiting[:least]

    numbered = [(sought, i) for i, (sought,) in enumerate(given[:3])]
    assert members.each(work, numbered, worthwhile) == ["done"] * 3
    assert order == ["2 begins", "0 begins", "0 goes on", "2 goes on", "1 begins", "1 goes on"]


def test_forms_with_most_copies_for_their_size_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, run = begun()
    order: list[int] = []
    found = search.cover_written

    def noted(sought: Sought, seconds: float, run: Runner) -> Solved:
        order.append(len(sought.source.nodes))
        return found(sought, seconds, run)

    monkeypatch.setattr(crew, "processors", lambda: 1)
    monkeypatch.setattr(search, "cover_written", noted)
    search.search(problem, run)
    sizes, times = problem.sizes(), Counter(part.form for part in problem.parts)
    assert order == [sizes[form] for form in sorted(sizes, key=lambda form: sizes[form] / times[form])]
    assert order != sorted(order)


def test_processes_that_are_busy_have_no_time_to_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TOGETHER", limits.Together(nodes=0))
    monkeypatch.setattr(crew, "processors", lambda: 3)
    problem, run = begun()
    monkeypatch.setattr(run, "left", lambda stage: 10.0)
    shares = {}
    for busy in (), (4.0,), (4.0, 60.0), (0.0, 0.0):
        members, _ = parts(problem, run)
        shares[busy] = members._next([*busy, *[0.0] * (3 - len(busy))], [100, 100], limits.SEARCH.expected)[1]
    assert shares == {
        (): pytest.approx(10.0, abs=0.1),  # half of thirty seconds is more than one process has
        (4.0,): pytest.approx(10.0, abs=0.1),
        (4.0, 60.0): pytest.approx(8.0, abs=0.1),
        (0.0, 0.0): pytest.approx(10.0, abs=0.1),
    }


def test_a_small_program_and_a_short_limit_are_not_worth_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "processors", lambda: 4)
    problem, run = begun()
    sizes = list(problem.sizes().values())
    assert sum(sizes) < limits.TOGETHER.nodes
    assert Crew(problem.asked, sizes, run).alone
    large = [200, 200, 200]
    assert not Crew(problem.asked, large, run).alone
    assert Crew(replace(problem.asked, rules=()), large, run).alone
    assert Crew(problem.asked, large, Runner(TimeBudget.of(1.0))).alone
    assert Crew(replace(problem.asked, memory=limits.TOGETHER.memory), large, run).alone
    monkeypatch.undo()
    monkeypatch.setattr(worker, "serving", True)
    assert Crew(problem.asked, large, run).alone, "a worker has one processor"


def test_another_process_loads_before_it_is_given_a_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "processors", lambda: 2)
    monkeypatch.setattr(crew, "_SEARCHERS", pool := Pool("eqsat.search.crew:Searching", most=1))
    problem, run = begun()
    with Crew(problem.asked, [10, 10], run):
        assert not pool._all, "two small forms are searched here"
    with Crew(problem.asked, [200, 200], run):
        (other,) = pool._all
        assert other.receive(60.0) == ("ready", None)
    assert not pool._all, "it ends with the search"


def test_the_rules_are_declared_before_the_first_form(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(crew, "start", lambda: told.append("start"))
    monkeypatch.setattr(crew, "warm_up", told.append)
    monkeypatch.setattr(signal, "signal", lambda *given: None)
    problem, _ = begun()
    crew.Searching()(packed(problem.asked), lambda *message: told.append(message))
    assert told == ["start", problem.asked.rules, ("ready", None)]


def test_ctrl_c_that_overtakes_a_form_ends_its_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "start", lambda: None)
    monkeypatch.setattr(crew, "warm_up", lambda rules: None)
    handlers: list[Any] = []
    monkeypatch.setattr(signal, "signal", lambda number, handler: handlers.append(handler))
    problem, _ = begun()
    told: list[Any] = []
    service = crew.Searching()
    service(packed(problem.asked), lambda *message: None)
    handlers[0](signal.SIGINT, None)
    form = problem.sought(problem.parts[0].form)
    service((0, (waits_for_an_end, form.source, (), ()), 60.0), lambda *message: told.append(message))
    assert [(kind, content[0]) for kind, content in told] == [("found", "ended")]


@pytest.mark.parametrize("work", [dies_elsewhere, hangs_elsewhere])
def test_a_process_that_dies_or_hangs_costs_only_its_forms(
    together: Pool, work: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crew.Crew, "_next", lambda self, busy, waiting, expected: (0, 1.0))
    problem, run = begun(10.0)
    members, given = parts(problem, run)
    begin = time.monotonic()
    found = members.each(work, given)
    assert 1 in found
    assert None in found
    assert time.monotonic() - begin < 8.0


def test_a_lost_form_stays_as_written_and_the_result_is_right(together: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(self: Crew, other: worker.Worker, *rest: Any) -> tuple[None, dict[str, float]]:
        other.kill()
        return None, {}

    monkeypatch.setattr(crew.Crew, "_asked_of", killed)
    best = eqsat.optimize(towers(), time_limit=60)
    assert best.report["check"]["passed"]


def test_an_error_elsewhere_is_raised_here(together: Pool) -> None:
    problem, run = begun()
    members, given = parts(problem, run)
    with pytest.raises(EqsatError, match="no such thing"), members:
        members.each(own_error, given)


def test_what_goes_on_elsewhere_is_given_up_when_this_process_fails(together: Pool) -> None:
    problem, run = begun()
    members, given = parts(problem, run)
    begin = time.monotonic()
    with pytest.raises(KeyError), members:
        members.each(fails_here, given)
    while together._all and time.monotonic() < begin + 10:
        time.sleep(0.05)
    assert not together._all


def test_a_fault_of_eqsat_elsewhere_is_an_error_of_its_form(together: Pool) -> None:
    problem, run = begun()
    members, given = parts(problem, run)
    found = members.each(fails_elsewhere, given)
    assert 1 in found
    assert any(isinstance(x, EqsatError) and "KeyError" in str(x) for x in found)


def test_a_search_that_fails_elsewhere_leaves_its_form_as_written(
    together: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(self: Crew, other: worker.Worker, work: Any, *rest: Any) -> tuple[None, dict[str, float]]:
        raise EqsatError(f"{work.__name__} failed")

    monkeypatch.setattr(crew.Crew, "_asked_of", failing)
    best = eqsat.optimize(towers(), time_limit=60)
    assert best.report["check"]["passed"]
    assert best.report["fallback"]["refused"] == ["search_whole failed"]


def test_progress_is_told_by_the_thread_of_the_caller(together: Pool) -> None:
    told: list[tuple[str, float, threading.Thread]] = []
    eqsat.optimize(towers(), time_limit=60, progress=lambda x, y: told.append((x, y, threading.current_thread())))
    assert {thread for *_, thread in told} == {threading.current_thread()}
    assert any(stage.startswith("part ") for stage, *_ in told)


def test_ctrl_c_reaches_all_processes(together: Pool) -> None:
    problem, run = begun()
    members, given = parts(problem, run)
    pressed: list[float] = []

    def press() -> None:
        pressed.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Timer(3.0, press).start()
    found = members.each(waits_for_an_end, given)
    assert time.monotonic() - pressed[0] < 2.0
    assert found == ["ended"] * len(given)
    assert run.interrupted


def test_nobody_waits_for_a_process_that_has_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TOGETHER", limits.Together(nodes=0))
    monkeypatch.setattr(crew, "processors", lambda: 2)
    monkeypatch.setattr(crew, "_SEARCHERS", pool := Pool("support.worker_services:Loading", most=1))
    problem, run = begun()
    members, given = parts(problem, run)
    begin = time.monotonic()
    assert set(members.each(process_of, given)) == {os.getpid()}
    assert time.monotonic() - begin < 5.0
    pool.close()


def test_a_pool_without_a_free_process_leaves_all_to_this_one(together: Pool) -> None:
    problem, run = begun()
    members, given = parts(problem, run)
    with together.lent(problem.asked.memory, None, 0.0), together.lent(problem.asked.memory, None, 0.0):
        assert None not in members.each(cover_written, given)


def test_what_is_done_meanwhile_begins_once_this_process_has_nothing_to_search(together: Pool) -> None:
    problem, run = begun()
    members, given = parts(problem, run)
    DONE_HERE.clear()
    with members:
        members.each(notes, given, meanwhile=lambda: DONE_HERE.append("meanwhile"))
    assert DONE_HERE.count("meanwhile") == 1
    assert DONE_HERE[-1] == "meanwhile"
