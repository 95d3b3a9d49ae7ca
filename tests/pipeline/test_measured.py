"""Measured, then chosen: the fastest plan, or the source where none is faster."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

import eqsat
from eqsat.base import turns
from eqsat.base.time_budget import TimeBudget
from eqsat.extract.cover import CoverResult
from eqsat.extract.plan.stitch import Solved
from eqsat.frontends import execution
from eqsat.frontends.execution import RuntimeRefuses, Session
from eqsat.pipeline import measured
from eqsat.pipeline.selection import Selection, cautious
from support.cli import chain, document, printed
from support.cli import eqsat as command
from support.onnx_models import FLOAT, INT64, model, node, tensor, value

LONG: dict[str, Any] = {"time_limit": 60.0, "explain_time": 0.0}


class Scripted:
    """A runtime in which a model takes as many milliseconds as a function of it says, or a little more, and the clock
    that shows them."""

    name, version = "onnxruntime", "0"

    def __init__(self, ms: Callable[[onnx.ModelProto], float]) -> None:
        self.ms = ms
        self.now = 0.0
        self.noise = np.random.default_rng(0)

    def load(self, file: Any, threads: int) -> Session:
        ms = self.ms(onnx.load(file))

        def run(inputs: Mapping[str, Any]) -> list[Any]:
            self.now += ms * 1e-3 * self.noise.uniform(1.0, 1.1)
            return []

        return run

    def perf_counter(self) -> float:
        return self.now

    thread_time = perf_counter


def scripted(monkeypatch: pytest.MonkeyPatch, ms: Callable[[onnx.ModelProto], float]) -> None:
    made = Scripted(ms)
    monkeypatch.setitem(execution.RUNTIMES, "onnxruntime", lambda: made)
    monkeypatch.setattr(turns, "time", made)


def by_nodes(proto: onnx.ModelProto) -> float:
    return 2.0 * len(proto.graph.node)


def by_writer(proto: onnx.ModelProto) -> float:
    return 4.0 if proto.producer_name == "eqsat" else 2.0


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    onnx.save(chain(), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def test_a_faster_plan_is_chosen(monkeypatch: pytest.MonkeyPatch, saved: Path) -> None:
    scripted(monkeypatch, by_nodes)
    best = eqsat.optimize(eqsat.from_onnx(saved), device="cpu", **LONG)
    found = best.report["measured"]
    assert found["chosen"] == "result"
    assert (found["runtime"], found["version"], found["threads"]) == ("onnxruntime", "0", 1)
    assert found["result_ms"] == pytest.approx(2, rel=0.3)
    assert found["source_ms"] == pytest.approx(4, rel=0.3)
    assert found["candidates"][0]["low"] > 1.5
    assert best.report["result"]["kernels"] == 1


def test_where_no_plan_is_faster_the_source_is_the_result(monkeypatch: pytest.MonkeyPatch, saved: Path) -> None:
    scripted(monkeypatch, by_writer)
    program = eqsat.from_onnx(saved)
    best = eqsat.optimize(program, device="cpu", **LONG)
    assert best.report["measured"]["chosen"] == "source"
    assert best.program is program
    assert best.report["result"]["predicted_us"] == best.report["source"]["predicted_us"]
    assert best.report["steps"] == []
    out = saved.with_name("out.onnx")
    assert "as written: no plan is faster" in printed("optimize", saved, "-o", out, "--device", "cpu", "-t", "60")
    assert out.read_bytes() == saved.read_bytes()


def residual(products: int) -> onnx.ModelProto:
    """The norm of z plus x times so many constant matrices, float32 [4, 8]."""
    names = ["x", *(f"p{i}" for i in range(products))]
    nodes = [node("MatMul", [a, "A"], [b]) for a, b in pairwise(names)]
    nodes += [
        node("Add", ["z", names[-1]], ["s"]),
        node("LayerNormalization", ["s", "scale"], ["y"], axis=-1),
    ]
    constants = (
        tensor("A", np.sin(np.arange(64, dtype=np.float32)).reshape(8, 8)),
        tensor("scale", np.ones(8, np.float32)),
    )
    x, z, y = (value(name, (4, 8)) for name in "xzy")
    return model(nodes, inputs=(x, z), outputs=(y,), initializers=constants)


def by_operators(**ms: float) -> Callable[[onnx.ModelProto], float]:
    return lambda proto: sum(ms.get(n.op_type, 0.0) for n in proto.graph.node)


@pytest.mark.parametrize(
    ("products", "ms", "operator", "respells"),
    [
        (1, {"MatMul": 2.0, "Add": 4.0, "Sum": 1.0}, "Sum", "result"),
        (2, {"MatMul": 2.0, "Add": 4.0, "Sum": 1.0}, "Sum", "result"),
        (2, {"MatMul": 2.0, "Add": 4.0, "Sum": 6.0}, "Add", None),
    ],
    ids=["where nothing is rewritten", "after rewriting", "but not where it is slower"],
)
def test_plans_are_tried_with_other_operators(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    products: int,
    ms: dict[str, float],
    operator: str,
    respells: str | None,
) -> None:
    scripted(monkeypatch, by_operators(**ms))
    onnx.save(residual(products), tmp_path / "model.onnx")
    best = eqsat.optimize(eqsat.from_onnx(tmp_path / "model.onnx"), device="cpu", **LONG)
    operators = [n.op_type for n in eqsat.to_onnx(best.program).graph.node]
    assert operators.count("MatMul") == operators.count(operator) == 1
    found = best.report["measured"]
    chosen = {"result" if c["plan"] == 1 else f"plan {c['plan']}": c["respelled"] for c in found["candidates"]}
    assert chosen[found["chosen"]] == respells


def test_the_source_is_tried_with_other_operators(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def ms(proto: onnx.ModelProto) -> float:
        names = [n.op_type for n in proto.graph.node]
        return 2.0 if "Sum" in names and names.count("MatMul") == 2 else 4.0

    scripted(monkeypatch, ms)
    onnx.save(residual(2), tmp_path / "model.onnx")
    best = eqsat.optimize(eqsat.from_onnx(tmp_path / "model.onnx"), device="cpu", **LONG)
    found = best.report["measured"]
    assert {f"plan {c['plan']}": c["respelled"] for c in found["candidates"]}[found["chosen"]] == "source"
    assert best.report["result"]["predicted_us"] == best.report["source"]["predicted_us"]
    assert best.report["steps"] == []


def test_equal_times_keep_the_source(monkeypatch: pytest.MonkeyPatch, saved: Path) -> None:
    scripted(monkeypatch, lambda proto: 2.0)
    best = eqsat.optimize(eqsat.from_onnx(saved), device="cpu", **LONG)
    assert best.report["measured"]["chosen"] == "source"


def test_after_ctrl_c_prices_decide(monkeypatch: pytest.MonkeyPatch, saved: Path) -> None:
    def pressed(self: Any, file: Any, threads: int) -> Session:
        time.sleep(0.1)
        signal.raise_signal(signal.SIGINT)
        time.sleep(1.0)  # longer than work may take to return what it has
        raise AssertionError("the work is given up")

    scripted(monkeypatch, by_writer)
    monkeypatch.setattr(Scripted, "load", pressed)
    budget = TimeBudget(60.0)
    best = eqsat.optimize(eqsat.from_onnx(saved), device="cpu", time_limit=budget, explain_time=0.0)
    assert best.report["unmeasured"] == measured.INTERRUPTED
    assert budget.left("write") == 0  # what follows would take the time in which to answer
    assert best.report["result"]["kernels"] == 1


def test_a_gain_must_outlast_another_load(monkeypatch: pytest.MonkeyPatch, saved: Path) -> None:
    loads = iter([2.0, 6.0])  # of the plan
    scripted(monkeypatch, lambda proto: next(loads) if proto.producer_name == "eqsat" else 4.0)
    report = eqsat.optimize(eqsat.from_onnx(saved), device="cpu", **LONG).report
    assert report["measured"]["chosen"] == "source"
    assert report["measured"]["candidates"][0]["ratio"] > 1.5
    assert report["measured"]["confirmed"]["ratio"] < 1


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"measure": False}, None),
        ({"device": "h100"}, None),
        ({"objective": "memory"}, None),
        ({"time_limit": 0.0}, measured.TOO_SHORT),
    ],
)
def test_what_is_not_measured_is_as_predicted(
    monkeypatch: pytest.MonkeyPatch, saved: Path, options: dict[str, Any], why: str | None
) -> None:
    scripted(monkeypatch, by_writer)
    report = eqsat.optimize(eqsat.from_onnx(saved), **{"device": "cpu", **LONG, **options}).report
    assert report["measured"] is None
    assert report.get("unmeasured") == why


def test_without_the_runtime_nothing_is_measured(monkeypatch: pytest.MonkeyPatch, saved: Path) -> None:
    def missing() -> Any:
        raise ImportError

    monkeypatch.setitem(execution.RUNTIMES, "onnxruntime", missing)
    report = eqsat.optimize(eqsat.from_onnx(saved), device="cpu", **LONG).report
    assert (report["measured"], report["unmeasured"]) == (None, "onnxruntime is not installed")
    assert "Not measured: onnxruntime is not installed." in printed("optimize", saved, "--device", "cpu", "-t", "60")


def test_a_model_that_the_runtime_refuses_is_told(tmp_path: Path) -> None:
    foreign = model([node("Own", ["x"], ["y"], domain="mine")], outputs=(value("y", (2, 3), FLOAT),), domain="mine")
    onnx.save(foreign, tmp_path / "model.onnx")
    report = eqsat.optimize(eqsat.from_onnx(tmp_path / "model.onnx"), device="cpu", **LONG).report
    assert report["measured"] is None
    assert report["unmeasured"].startswith("onnxruntime cannot run the program as written: ")


def test_onnxruntime_runs_programs_of_the_library_and_files_with_open_dims(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    a, c = np.ones((64, 64), np.float32), np.ones((64, 2), np.float32)
    traced = eqsat.trace(lambda x: (x @ a) @ c, eqsat.spec((64, 64)))
    onnx.save(chain("rows"), tmp_path / "model.onnx")
    read = eqsat.from_onnx(tmp_path / "model.onnx", shapes={"rows": 4})
    # As few rounds as decide: what is asked is that they run, whatever they take.
    monkeypatch.setattr(measured, "MEASURING", replace(measured.MEASURING, rounds=turns.LEAST_ROUNDS))
    for program in (traced, read):
        found = eqsat.optimize(program, device="cpu", **LONG).report["measured"]
        assert found["rounds"] == turns.LEAST_ROUNDS
        assert found["source_ms"] > 0
        assert found["candidates"][0]["plan"] == 1


def test_no_measure_writes_the_plan(monkeypatch: pytest.MonkeyPatch, saved: Path) -> None:
    scripted(monkeypatch, by_writer)
    out = saved.with_name("out.onnx")
    report = document("optimize", saved, "-o", out, "--device", "cpu", "-t", "60", "--no-measure")
    assert report["measured"] is None
    assert len(onnx.load(out).graph.node) == 1


def found(written: int, cheapest: int) -> Any:
    """A form with covers of these prices, as a search finds them."""
    covers = [CoverResult([], cost, 0, False, {}) for cost in (written, cheapest)]
    before, after = (Solved(None, cover) for cover in covers)  # pyright: ignore[reportArgumentType]
    return SimpleNamespace(written=before, cheapest=after)


@pytest.mark.parametrize(
    ("prices", "changed"),
    [
        ({"a": (100, 80), "b": (100, 99), "c": (50, 50)}, ["a"]),
        ({"a": (100, 80), "b": (100, 70)}, None),
        ({"a": (100, 99), "b": (100, 98)}, None),
    ],
    ids=["some gain little", "all gain much", "all gain little"],
)
def test_a_further_plan_leaves_what_gains_little(prices: dict[Any, tuple[int, int]], changed: list[str] | None) -> None:
    forms = {form: found(*costs) for form, costs in prices.items()}
    solved = {
        form: x.written if costs[0] == costs[1] else x.cheapest
        for (form, x), costs in zip(forms.items(), prices.values(), strict=True)
    }
    further = cautious(Selection(forms, solved))
    assert [one.changed() for one in further] == ([] if changed is None else [changed])


def lookups() -> onnx.ModelProto:
    """Rows of two tables by one index, the second after a remainder, and by a mask that is no index."""
    nodes = [
        node("Gather", ["a", "i"], ["x"]),
        node("Mod", ["i", "five"], ["j"]),
        node("Gather", ["b", "j"], ["y"]),
        node("Cast", ["mask"], ["m"], to=FLOAT),
        node("Add", ["x", "y"], ["s"]),
        node("Mul", ["s", "m"], ["out"]),
    ]
    tables = tensor("a", np.ones((50, 3), np.float32)), tensor("b", np.ones((5, 3), np.float32))
    return model(
        nodes,
        inputs=(value("i", (40,), INT64), value("mask", (40, 1), INT64)),
        outputs=(value("out", (40, 3)),),
        initializers=(*tables, tensor("five", np.array(5))),
    )


def test_indices_are_drawn_from_the_tables_that_they_look_up() -> None:
    program = eqsat.from_onnx(lookups())
    drawn: list[dict[str, Any]] = []
    inputs = measured.inputs_for(program, lambda given: drawn.append(dict(given)) or [])
    assert inputs["i"].max() == 4
    assert inputs["mask"].max() == 1
    assert len(drawn) == 1

    def refusing(given: Mapping[str, Any]) -> list[Any]:
        if given["i"].max() > 1:
            raise RuntimeRefuses("out of range")
        return []

    assert measured.inputs_for(program, refusing)["i"].max() == 1


def test_threads_must_be_at_least_one(saved: Path) -> None:
    assert command("optimize", saved, "--measure-threads", "0").exit_code == 2
