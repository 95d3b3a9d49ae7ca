"""Runs of tasks: what goes wrong costs one task, what is done is kept, and it is the same wherever it is done."""

from __future__ import annotations

import gc
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from eqsat.errors import InputError
from eqsat.runs.guarded import Processes
from eqsat.runs.run import run
from eqsat.runs.store import Store
from eqsat.runs.task import Outcome, Task
from support.cluster import local_cluster

MEMORY = 2 << 30


def task(n: int, how: str = "", seconds: float = 60.0, **given: Any) -> Task:
    return Task(f"{n} {how}", "support.tasks:squared", {"n": n, "how": how, **given}, seconds, MEMORY)


def outcomes(tasks: list[Task], store: Store, workers: int = 2, on: str | None = None) -> Mapping[str, Outcome]:
    return {each.name: outcome for each, outcome, _ in run(tasks, store, workers, on)}


def test_a_task_that_fails_costs_only_itself(tmp_path: Path) -> None:
    wrong = [task(1, "raise"), task(2, "die"), task(3, "hang", 0.5), task(4, "fill")]
    asked = [*wrong, task(5, "die once", mark=str(tmp_path / "mark")), *(task(n) for n in range(6, 12))]
    with Store(tmp_path / "results.sqlite") as store:
        found = outcomes(asked, store)
    failures = {name: (o.failure, o.tries) for name, o in found.items() if o.value is None}
    assert failures == {
        "1 raise": ("KeyError: 'as asked'", 1),
        "2 die": ("its process died (SIGABRT)", 2),
        "3 hang": ("no answer after 0.5 s", 1),
        "4 fill": ("its process died (out of memory)", 2),
    }
    assert "squared" in found["1 raise"].trace
    assert found["2 die"].stage == "squaring"
    assert (found["5 die once"].result, found["5 die once"].tries) == (25, 2)
    assert [found[f"{n} "].result for n in range(6, 12)] == [n * n for n in range(6, 12)]


def test_what_is_done_is_not_done_again_and_what_failed_is(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    asked = [task(1), task(2, "raise"), Task("3", "support.tasks:squared", {"n": 3}, 60.0, MEMORY, {"how": "raise"})]
    with Store(tmp_path / "results.sqlite") as store:
        outcomes(asked, store)
    right = Task("3", "support.tasks:squared", {"n": 3}, 60.0, MEMORY, {"how": "", "mark": str(mark)})
    with Store(tmp_path / "results.sqlite") as store:
        again = {each.name: known for each, _, known in run([*asked[:2], right, task(1, "other")], store)}
        assert again == {"1 ": True, "2 raise": False, "3": False, "1 other": False}
        assert outcomes([right], store)["3"].result == 9


def test_a_name_that_is_no_utf_8_is_kept(tmp_path: Path) -> None:
    named = Task(os.fsdecode(b"in\xff"), "support.tasks:squared", {"n": 3}, 60.0, MEMORY)
    with Store(tmp_path / "results.sqlite") as store:
        store.put(named, Outcome("9", trace="in\udcff"))
        kept = store.get(named)
    assert kept is not None
    assert (kept.result, kept.trace) == (9, "in\\udcff")


def test_a_file_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite"
    path.write_text("a text that SQLite has not written" * 100)
    with pytest.raises(InputError, match="cannot be used for results"):
        Store(path)


def test_a_table_of_another_form_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite"
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE kept (key TEXT)")
    with pytest.raises(InputError, match="cannot be used for results"):
        Store(path)


@pytest.mark.parametrize("damage", ["value = '{'", "value = '[1]'", "seconds = 'x'", "digest = ''", "value = NULL"])
def test_a_damaged_outcome_is_done_again(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "results.sqlite"
    with Store(path) as store:
        store.put(task(3), Outcome("9", seconds=0.5))
        assert store.get(task(3)) == Outcome("9", seconds=0.5)
    with closing(sqlite3.connect(path)) as file:
        file.execute(f"UPDATE kept SET {damage}")
        file.commit()
    with Store(path) as store:
        assert store.get(task(3)) is None


def test_a_file_that_was_damaged_meanwhile_is_named(tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite"
    with Store(path) as store:
        store.put(task(3), Outcome("9"))
        with closing(sqlite3.connect(path)) as file:
            file.execute("DROP TABLE kept")
        with pytest.raises(InputError, match=r"cannot be read .*; remove it, or choose another folder"):
            store.get(task(3))


def test_ctrl_c_ends_all_processes_within_a_second_and_keeps_what_is_done(tmp_path: Path) -> None:
    script = f"""
import sys
from eqsat.runs.run import run
from eqsat.runs.store import Store
from eqsat.runs.task import Task
given = [{{"n": n, "how": "hang" if n else ""}} for n in range(3)]
tasks = [Task(str(n), "support.tasks:squared", each, 60.0, {MEMORY}) for n, each in enumerate(given)]
for each in run(tasks, Store({str(tmp_path / "results.sqlite")!r}), 2):
    print(each[0].name, flush=True)
"""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    begun = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    assert begun.stdout is not None
    assert begun.stdout.readline() == b"0\n"
    began = time.monotonic()
    begun.send_signal(signal.SIGINT)
    begun.communicate(timeout=30)
    assert time.monotonic() - began < 2.0  # a second, on a machine with other work
    with Store(tmp_path / "results.sqlite") as store:
        kept = store.get(Task("0", "support.tasks:squared", {"n": 0, "how": ""}, 60.0, MEMORY))
    assert kept is not None
    assert kept.result == 0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with local_cluster() as made:
        yield made


def test_a_dask_worker_that_is_killed_costs_no_task(cluster: Any) -> None:
    asked = [*(task(n, "slow", pause=0.2) for n in range(8)), task(9, "die")]
    with Store(":memory:") as store, closing(run(asked, store, on=cluster.scheduler_address)) as found:
        arrived = [next(found)]
        victim = next(iter(cluster.workers.values())).pid
        threading.Timer(0.0, os.kill, (victim, signal.SIGKILL)).start()
        arrived += found
    results = {each.name: (outcome.result, outcome.failure) for each, outcome, _ in arrived}
    assert results == {f"{n} slow": (n * n, "") for n in range(8)} | {"9 die": (None, "its process died (SIGABRT)")}


def test_no_task_waits_behind_a_long_one_while_a_dask_worker_is_free(cluster: Any) -> None:
    cluster.wait_for_workers(2)  # one that was killed is replaced
    asked = [task(0, "slow", pause=2.0), *(task(n, "slow", pause=0.0) for n in range(1, 7))]
    with Store(":memory:") as store:
        found = [each.name for each, _, _ in run(asked, store, on=cluster.scheduler_address)]
    assert found[-1] == "0 slow"


def test_what_dask_sets_for_its_workers_does_not_slow_tasks(cluster: Any) -> None:
    name = "MALLOC_TRIM_THRESHOLD_"
    with Store(":memory:") as store:
        found = outcomes([task(1, "environment", name=name)], store, on=cluster.scheduler_address)
    assert found["1 environment"].result == 0


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense", "nonsense://127.0.0.1:1", "tcp://"])
def test_an_address_where_nobody_answers_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], address: str
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("eqsat.runs.cluster._CONNECT_SECONDS", 0.2)
    begun = time.monotonic()
    with pytest.raises(InputError, match="no Dask scheduler answers there") as caught, Store(":memory:") as store:
        outcomes([task(1)], store, on=address)
    del caught
    gc.collect()  # a client that is half made would complain here
    assert not capsys.readouterr().err
    assert time.monotonic() - begun < 15


def test_more_workers_than_tasks_start_no_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[threading.Thread] = []
    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda thread: (started.append(thread), start(thread)))
    with Store(":memory:") as store:
        assert len(outcomes([task(n) for n in range(3)], store, workers=1000)) == 3
    assert 0 < sum("serve" in thread.name for thread in started) <= 3


def test_a_task_is_tried_again_in_what_is_left_of_its_time(tmp_path: Path) -> None:
    """A try that only has too little time does not hide why the one before it failed."""
    late = task(1, "die late", 8.0, pause=5.0)
    twice = task(2, "die once, then hang", 4.0, mark=str(tmp_path / "mark"))
    with Store(tmp_path / "results.sqlite") as store:
        found = outcomes([late, twice], store)
    failures = [(o.failure, o.tries) for o in (found[late.name], found[twice.name])]
    assert failures == [("its process died (SIGABRT)", 1), ("its process died (SIGABRT)", 2)]


def test_waiting_for_a_process_takes_no_time_of_a_task(tmp_path: Path) -> None:
    found: dict[str, Outcome] = {}
    processes = Processes(1)
    slow, waits = task(1, "slow", 60.0, pause=6.0), task(2, "die once", 5.0, mark=str(tmp_path / "mark"))
    threads = [threading.Thread(target=lambda t=t: found.update({t.name: processes.done(t)})) for t in (slow, waits)]
    for thread in threads:
        thread.start()
        time.sleep(0.5)
    for thread in threads:
        thread.join()
    processes.close()
    assert (found[waits.name].result, found[waits.name].tries) == (4, 2)
