"""Models with named dims whose results are empty, odd or otherwise at some sizes of the range."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import eqsat
from eqsat.cli.shared.report import dynamic_lines
from eqsat.dynamic import optimize as driver
from eqsat.dynamic.checked import Compared
from eqsat.dynamic.instantiate import Written, instantiated
from eqsat.errors import CheckFailed, CheckUndecided, InputError
from eqsat.frontends.onnx.dims.join import Apart
from eqsat.program import ops
from eqsat.program.ir import Program
from support.onnx_models import model, node, tensor, value

RNG = np.random.default_rng(0)
W, DOWN, UP = (RNG.standard_normal(shape).astype(np.float32) for shape in ((6, 6), (6, 2), (2, 6)))
ENDS = {"to 40": 40, "to the end": 2**62}
STORED = [tensor("w", W), tensor("down", DOWN), tensor("up", UP), tensor("two", np.array([2]))]
STORED += [tensor(f"at {k}", np.array([k])) for k in (0, 1, 3)]
STORED += [tensor(name, np.array([end])) for name, end in ENDS.items()]


def rows(start: str, end: str, step: str, out: str) -> onnx.NodeProto:
    return node("Slice", ["x", start, end, "at 0", step], [out])


def times(weight: str, operand: str, out: str) -> onnx.NodeProto:
    return node("MatMul", [operand, weight], [out])


PARTS = {
    "as it is": [node("Identity", ["x"], ["y"])],
    "from the third": [rows("at 3", "to the end", "at 1", "a"), times("w", "a", "y")],
    "from the third to 40": [rows("at 3", "to 40", "at 1", "y")],
    "two halves": [
        node("Split", ["x"], ["a", "b"], axis=0, num_outputs=2),
        times("w", "a", "y"),
        times("w", "b", "z"),
    ],
    "even and odd": [
        rows("at 0", "to the end", "two", "a"),
        rows("at 1", "to the end", "two", "b"),
        times("w", "a", "y"),
        times("w", "b", "z"),
    ],
}


def source(nodes: Sequence[onnx.NodeProto]) -> onnx.ModelProto:
    names = [name for name in ("y", "z") if any(name in each.output for each in nodes)]
    outputs = [value(name, [f"rows of {name}", 6]) for name in names]
    return model(nodes, [value("x", ["n", 6])], outputs, STORED, opset=18)


@pytest.mark.parametrize("kind", PARTS)
def test_a_result_is_right_at_all_sizes_however_odd_or_empty(kind: str, tmp_path: Path) -> None:
    file, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(source(PARTS[kind]), file)
    found = eqsat.optimize_dynamic(file, time_limit=5)
    assert dynamic_lines(found.report["dynamic"])
    found.save(out)
    sessions: list[Any] = [onnxruntime.InferenceSession(path) for path in (file, out)]
    for n in (1, 2, 3, 4, 5, 7, 8, 39, 40, 41, 63, 64):
        x = RNG.standard_normal((n, 6)).astype(np.float32)
        wanted, mine = (session.run(None, {"x": x}) for session in sessions)
        for theirs, own in zip(wanted, mine, strict=True):
            np.testing.assert_allclose(own, theirs, 1e-4, 1e-5)


def test_what_cannot_be_read_at_some_sizes_says_where(tmp_path: Path) -> None:
    file = tmp_path / "in.onnx"
    onnx.save(source(PARTS["two halves"]), file)
    report = eqsat.optimize_dynamic(file, time_limit=5).report["dynamic"]
    assert report["as_source"]
    [kept] = report["as_written"]
    assert kept["why"].startswith("at n=3 the result cannot be read: Reshape node")


CHAIN = [times("down", "x", "a"), times("up", "a", "b"), times("down", "b", "c"), times("up", "c", "y")]


@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize("differ", [1, 9])
def test_where_a_candidate_differs_others_are_compared(
    differ: int, in_memory: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[object] = []
    once = driver.compare

    def compare(*given: Any) -> list[Compared]:
        compared.append(given)
        if len(compared) <= differ:
            raise CheckFailed(f"comparison {len(compared)} differs")
        return once(*given)

    monkeypatch.setattr(driver, "compare", compare)
    file = tmp_path / "in.onnx"
    onnx.save(source(CHAIN), file)
    given = onnx.load(file) if in_memory else file
    found = eqsat.optimize_dynamic(given, {"n": (1, 900)}, time_limit=10)
    assert found.report["dynamic"]["as_source"] == (found.model is None) == (differ > 1)
    assert 2 <= len(compared) <= 4
    if differ > 1:
        assert {each["why"] for each in found.report["dynamic"]["as_written"]} == {"comparison 1 differs"}
    assert found.at({"n": 5}).inputs[0].shape == (5, 6)


def test_a_function_without_one_model_for_all_sizes_is_what_it_is_at_each() -> None:
    f: Callable[[Any], Any] = eqsat.jit(
        lambda x: x[: x.shape[0] // 2] @ W, dynamic={"x": ("rows", None)}, ranges={"rows": (1, 40)}, time_limit=5
    )
    for n in (2, 3, 11, 40):
        x = RNG.standard_normal((n, 6)).astype(np.float32)
        np.testing.assert_allclose(f(x), x[: n // 2] @ W, 1e-4, 1e-5)
    halves = [node("Shape", ["x"], ["s"], end=1), node("Div", ["s", "two"], ["h"]), rows("at 0", "h", "at 1", "y")]
    found = eqsat.optimize_dynamic(source(halves), time_limit=5)
    assert found.at({"n": 7}).outputs["y"].shape == (3, 6)
    with pytest.raises(InputError, match=r"^the model stays as it is"):
        found.save("nowhere.onnx")


def test_where_the_check_is_not_done_the_source_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def verify(problem: Any, made: Any, run: Any) -> Any:
        if not made.unchecked:
            raise CheckUndecided("a value cannot be checked within the time limit")
        return whole(problem, made, run)

    whole = driver.verify
    monkeypatch.setattr(driver, "verify", verify)
    found = eqsat.optimize_dynamic(source([times("down", "x", "a"), times("up", "a", "y")]), time_limit=5)
    assert "compare the kernels" in found.best.report["unchecked"]
    assert found.at({"n": 7}).outputs["y"].shape == (7, 6)


def test_a_dim_of_an_output_has_no_name_that_is_wrong_at_some_sizes(tmp_path: Path) -> None:
    """The rows from the third on are n - 3, but none where n is 1."""
    nodes = [rows("at 3", "to the end", "at 1", "r"), times("down", "r", "a"), times("up", "a", "b")]
    nodes += [times("down", "b", "c"), times("up", "c", "y")]
    file, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(model(nodes, [value("x", ["n", 6])], [value("y", None)], STORED, opset=18), file)
    for low, name in ((4, "n + -3"), (1, None)):
        found = eqsat.optimize_dynamic(file, {"n": (low, 64)}, time_limit=5)
        assert found.model is not None
        found.save(out)
        assert onnxruntime.InferenceSession(out).get_outputs()[0].shape == [name, 6]


def test_a_constant_that_is_computed_from_itself_has_no_other_size() -> None:
    """As a mask that is masked again, which the search knows to be that mask."""
    points = [{"n": 5}, {"n": 7}]
    written = []
    for point in points:
        held = ops.constant(RNG.standard_normal(point["n"]).astype(np.float32))
        y = ops.add(ops.input("x", (point["n"],)), held)
        written.append(Written(Program((y.args[0],), {"y": y}), {held: ops.mul(held, held)}))
    with pytest.raises(Apart, match="a constant is computed from itself"):
        instantiated(written, points, {"n": 9}, lambda name: None)


def test_some_rows_of_attention_are_right_where_it_has_more(tmp_path: Path) -> None:
    """The first 7 rows are all rows at 7 sizes: at others the sums of the softmax are of more rows than the product."""
    nodes = [times("w", "x", "q"), node("Transpose", ["x"], ["k"]), node("MatMul", ["q", "k"], ["scores"])]
    nodes += [node("Softmax", ["scores"], ["p"], axis=-1), node("MatMul", ["p", "x"], ["o"])]
    nodes += [node("Slice", ["o", "at 0", "seven", "at 0"], ["r"]), times("w", "r", "y"), times("w", "o", "z")]
    outputs, stored = [value("y", ["k", 6]), value("z", ["n", 6])], [*STORED, tensor("seven", np.array([7]))]
    file, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(model(nodes, [value("x", ["n", 6])], outputs, stored, opset=18), file)
    eqsat.optimize_dynamic(file, {"n": (2, 12)}, time_limit=5).save(out)
    sessions: list[Any] = [onnxruntime.InferenceSession(path) for path in (file, out)]
    for n in range(2, 13):
        x = RNG.standard_normal((n, 6)).astype(np.float32)
        wanted, mine = (session.run(None, {"x": x}) for session in sessions)
        for theirs, own in zip(wanted, mine, strict=True):
            np.testing.assert_allclose(own, theirs, 1e-3, 1e-4)
