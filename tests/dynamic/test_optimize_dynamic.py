"""Models with named dims: one result for all sizes, right at sizes that were not used to find it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import eqsat
from eqsat.base.time_budget import TimeBudget
from eqsat.cli.shared.report import dynamic_lines
from eqsat.dynamic import buckets, candidate, compete
from eqsat.dynamic.compete import Prices, least_worst
from eqsat.dynamic.ranges import samples
from eqsat.dynamic.written import Instances
from eqsat.errors import InputError
from eqsat.frontends.onnx.dims.join import Model
from eqsat.program import composites, ops
from eqsat.program.ir import Program
from eqsat.program.term import Term
from eqsat.search.asked import judged
from eqsat.search.runner import Runner
from support.onnx_models import model, node, tensor, value

RNG = np.random.default_rng(0)


def weight(*shape: int) -> Term:
    return ops.constant(RNG.standard_normal(shape).astype(np.float32))


A, B, C, ROW, WIDE, TABLE = weight(96, 8), weight(96, 8), weight(8, 96), weight(1, 96), weight(96, 64), weight(40, 96)


def chain(x: Term) -> Term:
    """x (B C + b) A: rows times one folded matrix."""
    inner = ops.matmul(ops.matmul(x, B), C)
    return ops.matmul(ops.add(inner, ops.broadcast(ROW, inner.shape)), A)


def towers(x: Term) -> Term:
    return ops.concat([ops.matmul(ops.relu(ops.matmul(x, w)), v) for w, v in ((A, C), (B, C))], 1)


def row_sums(x: Term) -> Term:
    return ops.sum_(ops.matmul(x, WIDE), 1)


def mean_of_columns(x: Term) -> Term:
    total = ops.sum_(ops.matmul(x, WIDE), 0)
    return ops.mul(total, ops.full(1 / x.shape[0], total.shape))


def positions(x: Term) -> Term:
    """Rows plus a table's first rows, through a chain: constants that depend on the number of rows."""
    return ops.matmul(ops.matmul(ops.add(x, ops.slice_(TABLE, [0], [x.shape[0]])), B), C)


def causal(x: Term) -> Term:
    """Softmax of scores under a triangular mask."""
    n = x.shape[0]
    scores = ops.matmul(ops.matmul(x, A), ops.transpose(ops.matmul(x, B)))
    mask = ops.less_equal(ops.iota((n, n), 1), ops.iota((n, n), 0))
    hidden = ops.full(-1e9, (n, n))
    return ops.matmul(composites.softmax(ops.where(mask, scores, hidden), 1), x)


def family(build: Callable[[Term], Term]) -> Callable[[dict[str, int]], Program]:
    def at(sizes: dict[str, int]) -> Program:
        x = ops.input("x", (sizes["rows"], 96))
        return Program((x,), {"y": build(x)})

    return at


@pytest.mark.parametrize(
    "build", [chain, towers, row_sums, mean_of_columns, positions, causal], ids=lambda b: b.__name__
)
def test_a_result_holds_for_all_sizes_and_is_as_cheap_as_for_one(build: Callable[[Term], Term], tmp_path: Path) -> None:
    found = eqsat.optimize_dynamic(family(build), {"rows": (1, 40)}, time_limit=20)
    report = found.report["dynamic"]
    assert report["as_written"] == []
    assert len(report["checked"]) >= 12
    fixed = eqsat.optimize(family(build)(report["figures_at"]), time_limit=20).report
    assert found.report["result"]["predicted_us"] == fixed["result"]["predicted_us"]
    file = tmp_path / "out.onnx"
    found.save(file)
    assert onnx.load(file).graph.input[0].type.tensor_type.shape.dim[0].dim_param == "rows"
    session = onnxruntime.InferenceSession(file)
    for rows in (1, 2, 3, 7, 16, 19, 33, 40):
        x = RNG.standard_normal((rows, 96)).astype(np.float32)
        [wanted] = family(build)({"rows": rows}).run({"x": x}).values()
        np.testing.assert_allclose(np.asarray(session.run(None, {"x": x})[0]), wanted, 1e-3, 1e-3)
        assert found.at({"rows": rows}).inputs[0].shape == (rows, 96)


@pytest.mark.parametrize(
    ("prices", "chosen"),
    [
        ([], 0),
        ([(10, 5, 6)], 0),
        ([(10, 5, 6), (10, 20, 6)], 1),
        ([(20, 9, 11), (20, 11, 9)], 0),
        ([(10, 9, 30), (10, 40, 9)], None),
        ([(10, 10, 10)], 0),
        ([(0, 0, 0)], 0),
        ([(0, 0, 0), (10, 6, 5)], 1),
        ([(0, 2, 0), (10, 5, 6)], 1),
        ([(2, 0, 2), (10, 12, 9)], 0),
    ],
)
def test_the_least_worst_ratio_is_taken(prices: list[tuple[float, ...]], chosen: int | None) -> None:
    rows = [Prices({"n": i}, source, candidates) for i, (source, *candidates) in enumerate(prices)]
    assert least_worst(rows, range(2)) == chosen


def chained(*dims: str | int) -> onnx.ModelProto:
    """(x @ b) @ c over the last of these dims and 16."""
    stored = [tensor("b", RNG.standard_normal((16, 2))), tensor("c", RNG.standard_normal((2, 16)))]
    stored = [tensor(each.name, onnx.numpy_helper.to_array(each).astype(np.float32)) for each in stored]
    nodes = [node("MatMul", ["x", "b"], ["t"]), node("MatMul", ["t", "c"], ["u"]), node("MatMul", ["u", "b"], ["y"])]
    return model(nodes, [value("x", [*dims, 16])], [value("y", [*dims, 2])], stored)


def test_a_file_keeps_its_dims_and_a_size_fixes_one(tmp_path: Path) -> None:
    file, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(chained("batch", "seq"), file)
    found = eqsat.optimize_dynamic(file, {"seq": (2, 30)}, time_limit=20)
    assert found.report["dynamic"]["dims"] == {"seq": [2, 30], "batch": [1, 64]}
    found.save(out)
    session = onnxruntime.InferenceSession(out)
    assert [entry.shape for entry in session.get_inputs()] == [["batch", "seq", 16]]
    assert [entry.shape for entry in session.get_outputs()] == [["batch", "seq", 2]]
    assert eqsat.optimize_dynamic(file, {"batch": 3}, time_limit=20).at({"seq": 5}).inputs[0].shape == (3, 5, 16)


@pytest.mark.parametrize(
    ("names", "kept"),
    [(["total", "part"], ["total", "part"]), (["k", "k"], ["n + m", "n"])],
    ids=["each stands for one size", "one stands for two"],
)
def test_outputs_keep_the_names_of_their_dims_and_the_model_its_notes(
    names: list[str], kept: list[str], tmp_path: Path
) -> None:
    weights = {"b": RNG.standard_normal((16, 8)), "c": RNG.standard_normal((8, 2))}
    stored = [tensor(name, array.astype(np.float32)) for name, array in weights.items()]
    nodes = [node("Concat", ["x", "z"], ["t"], axis=0), node("MatMul", ["t", "b"], ["u"])]
    nodes += [node("MatMul", ["u", "c"], ["y"]), node("Relu", ["x"], ["r"])]
    outputs = [value("y", [names[0], 2]), value("r", [names[1], 16])]
    source = model(nodes, [value("x", ["n", 16]), value("z", ["m", 16])], outputs, stored)
    source.metadata_props.add(key="classes", value="2")
    file, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(source, file)
    eqsat.optimize_dynamic(file, time_limit=8).save(out)
    written = onnx.load(out)
    assert [each.op_type for each in written.graph.node].count("MatMul") == 1
    assert [each.type.tensor_type.shape.dim[0].dim_param for each in written.graph.output] == kept
    assert written.metadata_props == source.metadata_props


def test_a_window_with_strides_has_the_pads_of_all_sizes(tmp_path: Path) -> None:
    """Steps of 2 skip the pad at the end where the size is even."""
    scales = [tensor(name, np.full(4, value, np.float32)) for name, value in (("s", 2.0), ("o", 0.5), ("v", 1.5))]
    stored = [tensor("w", RNG.standard_normal((4, 3, 3, 3)).astype(np.float32)), *scales]
    nodes = [node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2])]
    nodes += [node("BatchNormalization", ["c", "s", "o", "o", "v"], ["b"]), node("Transpose", ["b"], ["y"])]
    source = model(nodes, [value("x", [1, 3, "h", "w"])], [value("y", ["k", "m", 4, 1])], stored)
    file, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(source, file)
    found = eqsat.optimize_dynamic(file, {"h": (16, 64), "w": (16, 64)}, time_limit=8)
    assert not found.report["dynamic"]["as_source"]
    found.save(out)
    sessions: list[Any] = [onnxruntime.InferenceSession(path) for path in (file, out)]
    image = RNG.standard_normal((1, 3, 47, 20)).astype(np.float32)
    wanted, mine = (session.run(None, {"x": image})[0] for session in sessions)
    np.testing.assert_allclose(mine, wanted, 1e-4, 1e-5)


def test_a_file_that_gains_nothing_is_copied(tmp_path: Path) -> None:
    file, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(model([node("Relu", ["x"], ["y"])], [value("x", ["n", 3])], [value("y", ["n", 3])]), file)
    found = eqsat.optimize_dynamic(file, time_limit=20)
    found.save(out)
    assert found.model is None
    assert out.read_bytes() == file.read_bytes()


def test_sizes_may_be_numbers_of_numpy() -> None:
    def at(sizes: Mapping[str, int]) -> Program:
        return eqsat.trace(lambda x: x + x, eqsat.spec((sizes["n"], 3)))

    ends: Any = np.int64(2), np.int32(9)
    best = eqsat.optimize_dynamic(at, {"n": ends}, time_limit=1)
    assert best.family.ranges == {"n": (2, 9)}
    assert best.at({"n": 4}) == best.at({"n": np.int64(4)})  # pyright: ignore[reportArgumentType]
    for wrong in ({}, {"n": 4, "m": 4}):
        with pytest.raises(InputError, match=r"^at takes sizes of n, got"):
            best.at(wrong)
    with pytest.raises(InputError, match=r"^at: size 0 for dimension 'n' is no positive integer"):
        best.at({"n": 0})


@pytest.mark.parametrize(
    ("low", "sizes"),
    [(1, [3, 5, 6]), (5, [6, 10, 5]), (999_999_000, [999_999_008, 999_999_016, 999_999_024])],
    ids=["from 1", "from 5", "from a size that the program has"],
)
def test_sizes_of_a_wide_range_are_found_without_a_look_at_each(low: int, sizes: list[int]) -> None:
    assert [point["n"] for point in samples({"n": (low, 1_000_000_000)}, [999_999_000], 0.0)] == sizes


def test_a_range_of_one_size_is_a_size(tmp_path: Path) -> None:
    file, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(chained("batch", "seq"), file)
    found = eqsat.optimize_dynamic(file, {"seq": (2, 30), "batch": (3, 3)}, time_limit=20)
    assert found.report["dynamic"]["dims"] == {"seq": [2, 30]}
    assert found.model is not None
    found.save(out)
    assert [entry.shape for entry in onnxruntime.InferenceSession(out).get_inputs()] == [[3, "seq", 16]]
    assert found.at({"seq": 5, "batch": 3}).inputs[0].shape == found.at({"seq": 5}).inputs[0].shape == (3, 5, 16)
    with pytest.raises(InputError, match="batch"):
        found.at({"seq": 5, "batch": 4})
    [bucket] = eqsat.optimize_buckets(file, {"seq": (2, 9), "batch": (3, 3)}, time_limit=20)
    assert bucket.report["dynamic"]["dims"] == {"seq": [2, 9]}


def test_each_size_has_one_price() -> None:
    report = eqsat.optimize_dynamic(family(chain), {"rows": (3, 9)}, time_limit=10).report["dynamic"]
    sizes = [each["sizes"]["rows"] for each in report["predicted"]]
    assert len(set(sizes)) == len(sizes)


def test_prices_of_hurried_covers_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = TimeBudget.of(10)
    run = Runner(budget, lambda stage, share: None)
    program = family(chain)({"rows": 9})
    asked = judged(program, "mi300x", "reassociate", [], None, 0.0, 1, "latency", None, None, False, 1)
    exact = candidate.price(program, asked, run)
    assert exact == pytest.approx(eqsat.optimize(program, rules=[], time_limit=10).report["source"]["predicted_us"])
    budget.finish()
    assert candidate.price(program, asked, run) is None

    left = [exact, exact, None, exact]
    monkeypatch.setattr(compete, "price", lambda *given: left.pop(0))
    report = eqsat.optimize_dynamic(family(chain), {"rows": (3, 900)}, time_limit=10).report["dynamic"]
    assert report["predicted"] == []


def test_ctrl_c_ends_all_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    def interrupted(source: object, shapes: object, *, time_limit: TimeBudget) -> None:
        given.append(time_limit.left("write"))
        time_limit.finish()

    monkeypatch.setattr(buckets, "optimize_dynamic", interrupted)
    eqsat.optimize_buckets(family(chain), {"rows": (1, 64)}, time_limit=60)
    assert given == [pytest.approx(30, abs=5), 0.0]


def test_a_part_that_stays_as_written_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Different(Instances):
        def largest_model(self) -> tuple[Model, dict[int, str]]:
            return self.model({}), dict.fromkeys(self._choice.changed(), "it differs")

    monkeypatch.setattr(candidate, "Instances", Different)
    file = tmp_path / "in.onnx"
    onnx.save(chained("n"), file)
    found = eqsat.optimize_dynamic(file, time_limit=20).report["dynamic"]
    assert found["as_written"] == [{"parts": 1, "why": "it differs"}]
    assert dynamic_lines(found)[-1] == "As written, 1 part: it differs."


@pytest.mark.parametrize(
    ("dims", "shapes", "message"),
    [
        (("n",), {"m": (1, 2)}, "names no dynamic dimension"),
        (("n",), {"n": (3, 2)}, r"range \(3, 2\) for dimension 'n'"),
        (("n",), {"n": (0, 2)}, r"range \(0, 2\) for dimension 'n'"),
        (("n",), {"n": (1, 2, 3)}, "expected"),
        (("n",), {"n": 3}, "no dimension is open"),
        (("n",), {"n": (3, 3)}, "no dimension is open"),
        ((3,), {}, "no dimension is open"),
    ],
)
def test_bad_ranges_are_refused(dims: tuple[str | int, ...], shapes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        eqsat.optimize_dynamic(chained(*dims), shapes)  # pyright: ignore[reportArgumentType]
