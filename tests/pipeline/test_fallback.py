"""Results that the check refuses: the best one that passes is returned, and a folder reproduces the failure."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import eqsat
from eqsat import spec
from eqsat.cli.shared.report import closing_lines
from eqsat.egraph.snapshot import Snapshot
from eqsat.errors import CheckFailed, CheckTooLarge, CheckUndecided, EqsatError, InputError
from eqsat.language.equation import rule
from eqsat.language.rule import Policy
from eqsat.lift.segments import LiftedProgram
from eqsat.pipeline.failures import failures_dir, keep
from eqsat.pipeline.result import Result
from eqsat.program import ops
from eqsat.program.ir import Program
from eqsat.rules import ALL
from support.programs import weight

F32 = np.float32
WRONG = rule("minimum-is-first", "minimum(a, b) == a", source="none", why="wrong, for this test")
SLIGHTLY_WRONG = rule("product-is-maximum", "a * b == maximum(a, b)", source="none", why="wrong and no cheaper")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EQSAT_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state" / "failures"


def least() -> Program:
    return eqsat.trace(lambda x, y: eqsat.minimum(eqsat.exp(x), eqsat.exp(y)), spec((30, 40)), spec((30, 40)))


def layers() -> Program:
    """Layers of one form with a chain of products, too many for one part, and an end with a minimum of two values that
    vary."""

    def network(x):
        for seed in range(8):
            h = eqsat.relu(x @ weight(64, 96, seed=seed))
            x = eqsat.layernorm(x + h @ weight(96, 96, seed=seed) @ weight(96, 64, seed=seed))
        return eqsat.softmax(eqsat.minimum(eqsat.exp(x), eqsat.abs(x))) @ weight(64, 64)

    return eqsat.trace(network, spec((32, 64)))


def assert_right(best: Result, source: Program) -> None:
    inputs = {t.attr("name"): np.random.default_rng(3).standard_normal(t.shape).astype(F32) for t in source.inputs}
    wanted = source.run(inputs)
    for found in (best.program.run(inputs), best.compile()(inputs)):
        for name, values in wanted.items():
            np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-5)


def test_a_refused_program_is_left_as_written(state: Path):
    source = least()
    best = eqsat.optimize(source, rules=[WRONG])
    assert_right(best, source)
    fallback = best.report["fallback"]
    assert (fallback["parts"], fallback["of"]) == (1, 1)
    assert "differs" in fallback["refused"][0]
    assert best.report["check"]["passed"]
    assert best.report["result"]["predicted_us"] == best.report["source"]["predicted_us"]
    assert Path(fallback["folder"]).parent == state


def test_only_the_parts_that_are_wrong_are_left_as_written():
    source = layers()
    best = eqsat.optimize(source, rules=[*ALL, WRONG])
    assert_right(best, source)
    fallback, report = best.report["fallback"], best.report
    assert 0 < fallback["parts"] < fallback["of"]
    assert report["result"]["matmul_flops"] < report["source"]["matmul_flops"]


def test_the_folder_reproduces_the_failure():
    source = least()
    folder = Path(eqsat.optimize(source, rules=[WRONG], numerics="reassociate").report["fallback"]["folder"])
    about = json.loads((folder / "settings.json").read_text())
    assert about["settings"]["rules"] == ["minimum-is-first"]
    assert about["settings"]["numerics"] == "reassociate"
    kept = pickle.loads((folder / "program.pickle").read_bytes()), eqsat.from_onnx(folder / "program.onnx")
    for program in kept:
        assert eqsat.optimize(program, rules=[WRONG]).report["fallback"]["refused"] == about["refused"]
    assert kept[0].outputs == source.outputs


@pytest.mark.parametrize("spoil", [lambda path: path.parent.write_text("a file"), lambda path: None])
def test_a_folder_that_cannot_be_written_is_no_failure(
    spoil: Callable[[Path], object], state: Path, monkeypatch: pytest.MonkeyPatch
):
    if spoil(state) is None:
        monkeypatch.setenv("EQSAT_STATE_DIR", "/dev/null/nowhere")
    best = eqsat.optimize(least(), rules=[WRONG])
    assert best.report["fallback"]["folder"] is None
    assert best.report["fallback"]["parts"] == 1


def test_people_are_told_what_happened_and_what_to_do(state: Path):
    best = eqsat.optimize(least(), rules=[WRONG])
    (line,) = [x for x in closing_lines(best.report) if "the program left as written" in x]
    for text in (line, str(best)):
        assert str(state) in text
        assert "--numerics" in text


def test_a_step_that_does_not_hold_is_refused_too():
    source = eqsat.trace(lambda x, y: (x * y).sum(0) * y[0], spec((30, 40)), spec((30, 40)))
    best = eqsat.optimize(source, rules=[*ALL, SLIGHTLY_WRONG])
    assert_right(best, source)


def failing(stage: str, error: type[EqsatError], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let saturation, or the cover of what it found, fail for parts with a minimum."""
    module = importlib.import_module("eqsat.search.form")
    whole = getattr(module, stage)

    def fails(snapshot: Snapshot, *args, **kwargs):
        reached = stage == "saturate" or any(node.rule for node in snapshot.nodes)
        if reached and any("min" in node.attrs for node in snapshot.nodes):
            raise error("as this test wants")
        return whole(snapshot, *args, **kwargs)

    monkeypatch.setattr(module, stage, fails)


@pytest.mark.parametrize("stage", ["saturate", "cover"])
@pytest.mark.parametrize("error", [EqsatError, CheckFailed])
def test_a_search_that_fails_leaves_its_part_as_written(
    stage: str, error: type[EqsatError], state: Path, monkeypatch: pytest.MonkeyPatch
):
    failing(stage, error, monkeypatch)
    source = layers()
    best = eqsat.optimize(source)
    assert_right(best, source)
    fallback = best.report["fallback"]
    assert fallback["cause"] == "failed"
    assert fallback["refused"] == ["as this test wants"]
    assert 0 < fallback["parts"] < fallback["of"]
    assert Path(fallback["folder"]).parent == state
    assert best.report["egraph"]["stop"] == "failed"
    assert best.report["result"]["predicted_us"] < best.report["source"]["predicted_us"]
    assert any("search failed (as this test wants)" in line for line in closing_lines(best.report))


def test_bad_input_of_a_search_stays_bad_input(monkeypatch: pytest.MonkeyPatch):
    failing("saturate", InputError, monkeypatch)
    with pytest.raises(InputError, match="as this test wants"):
        eqsat.optimize(layers())


@pytest.mark.parametrize(
    ("error", "cause", "says", "advice", "stop"),
    [
        (CheckTooLarge, "memory", "too large to check", "--memory-limit", "saturated"),
        (CheckUndecided, "time", "no time to tell", "--time-limit", "time"),
    ],
)
def test_what_the_check_cannot_tell_is_no_defect(
    error: type[CheckFailed],
    cause: str,
    says: str,
    advice: str,
    stop: str,
    state: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    module = importlib.import_module("eqsat.pipeline.assemble")
    whole = module.check

    def check(source: Program, result: Program, **kwargs):
        if any(term.op == "min" for term in result.terms()) == any(term.op == "min" for term in source.terms()):
            return whole(source, result, **kwargs)
        raise error("a value cannot be checked")

    monkeypatch.setattr(module, "check", check)
    best = eqsat.optimize(least(), rules=[WRONG])
    fallback = best.report["fallback"]
    assert (fallback["cause"], fallback["folder"], fallback["parts"]) == (cause, None, 1)
    assert best.report["egraph"]["stop"] == stop
    assert not state.exists()
    (line,) = [x for x in closing_lines(best.report) if says in x]
    assert "defect" not in line
    assert advice in line


@pytest.mark.parametrize(
    ("error", "cause"), [(CheckTooLarge, "memory"), (CheckUndecided, "time")], ids=["memory", "time"]
)
def test_what_cannot_be_checked_even_as_written_is_returned_as_it_was(
    error: type[CheckFailed], cause: str, state: Path, monkeypatch: pytest.MonkeyPatch
):
    module = importlib.import_module("eqsat.pipeline.assemble")
    whole = module.check

    def check(source: Program, result: Program, **kwargs):
        if source is result:
            return whole(source, result, **kwargs)
        raise error("a value cannot be checked")

    monkeypatch.setattr(module, "check", check)
    source = layers()
    best = eqsat.optimize(source)
    assert best.program is source
    fallback = best.report["fallback"]
    assert (fallback["cause"], fallback["folder"]) == (cause, None)
    assert fallback["parts"] == fallback["of"]
    assert best.report["check"]["parts"] == {"same": 1, "full": 0, "sampled": 0}
    assert "compare the kernels" in best.report["unchecked"]
    assert not state.exists()


@pytest.mark.parametrize("ends", ["time", "Ctrl-C"])
def test_a_check_that_takes_too_long_is_given_up(ends: str, monkeypatch: pytest.MonkeyPatch):
    module = importlib.import_module("eqsat.pipeline.assemble")
    whole = module.check
    began: list[float] = []

    def check(source: Program, result: Program, **kwargs):
        if source is result:
            return whole(source, result, **kwargs)
        began.append(time.monotonic())
        if ends == "Ctrl-C":
            os.kill(os.getpid(), signal.SIGINT)
        while True:
            time.sleep(0.01)

    monkeypatch.setattr(module, "check", check)
    source = least()
    begun = time.monotonic()
    best = eqsat.optimize(source, time_limit=2.0 if ends == "time" else 60.0)
    took = time.monotonic() - (begun if ends == "time" else began[0])
    assert best.program is source
    assert best.report["fallback"]["cause"] == "time"
    assert "left_out" in best.report
    assert took < (2 * 1.1 + 1.5 if ends == "time" else 1.5)


def test_further_plans_that_are_wrong_are_left_out():
    source = eqsat.trace(
        lambda x, y: eqsat.exp(eqsat.minimum(x, y)) @ weight(40, 30) @ weight(30, 40), spec((30, 40)), spec((30, 40))
    )
    best = eqsat.optimize(source, rules=[*ALL, WRONG], top=4)
    assert best.report["fallback"]["refused"]
    for plan in best.plans:
        assert_right(plan, source)
        assert plan.report["check"]["passed"]
    assert len(best.report["alternatives"]) == len(best.alternatives)


def test_a_program_that_is_wrong_as_written_is_an_error(state: Path, monkeypatch: pytest.MonkeyPatch):
    source = eqsat.trace(lambda x: x @ weight(4, 4), spec((3, 4)))
    wrong = eqsat.trace(lambda x: x @ (weight(4, 4) + 1), spec((3, 4)))
    wrong = Program(source.inputs, dict(zip(source.outputs, wrong.outputs.values(), strict=True)))
    monkeypatch.setattr("eqsat.lift.segments.lift_parts", lambda *given: LiftedProgram(wrong, []))
    with pytest.raises(CheckFailed, match=f"differs from the source .* run the program without eqsat.*{state}"):
        eqsat.optimize(source)


def test_what_cannot_be_kept_is_named(state: Path, monkeypatch: pytest.MonkeyPatch):
    (y,) = ops.opaque("Odd", [x := ops.input("x", (3,))], [((3,), "float32")], "s", lambda a: (a,))
    folder = keep(Program((x,), {"y": y}), {}, [])
    assert folder is not None
    assert folder.parent == failures_dir()
    files = json.loads((folder / "settings.json").read_text())["files"]
    assert files["program.pickle"].startswith("not written")
    monkeypatch.setattr("eqsat.pipeline.failures.LARGEST", 10)
    folder = keep(Program((), {"y": ops.constant(weight(3, 3))}), {}, [])
    assert folder is not None
    assert sorted(p.name for p in folder.iterdir()) == ["program.txt", "settings.json"]


@pytest.mark.parametrize("numerics", ["exact", "reassociate", "fast"])
def test_another_order_with_an_infinite_weight_is_no_failure(numerics: Policy):
    """A sum times infinity is infinite; a sum of infinities of both signs is NaN. The class of the rule allows that."""

    def product(x, y):
        return (x @ y) @ np.array([[np.inf], [1.0]], F32)

    source = eqsat.trace(product, spec((4, 64)), spec((64, 2)))
    best = eqsat.optimize(source, numerics=numerics, measure=False)
    assert "fallback" not in best.report
    inputs = {t.attr("name"): np.random.default_rng(3).standard_normal(t.shape).astype(F32) for t in source.inputs}
    (found,) = best.program.run(inputs).values()
    assert np.isinf(found).all() == (numerics == "exact")
