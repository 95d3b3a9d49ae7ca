"""Deep, wide and shared programs: no code walks them as trees, and no recursion grows with their depth.

Sizes are such that a walk over the tree would never end, and that recursion would overflow Python's stack.
"""

from __future__ import annotations

import gc
import pickle
import time
from pathlib import Path

import numpy as np
import pytest

import eqsat
from eqsat.base.trampoline import Call, run
from eqsat.errors import InputError
from eqsat.extract.plan.memory import first_fit
from eqsat.gpu.emit import emit
from eqsat.parts.pieces import HUGE, PIECE
from eqsat.parts.segments import segments
from eqsat.program import ops
from eqsat.program.core import lower, topological
from eqsat.program.ir import Program
from eqsat.program.printer import expression
from eqsat.tracing.expression import parse
from support.deep_programs import SHAPES

SECONDS = 2.0

SIZES = {
    "pointwise": 1100,
    "doubled": 200,
    "squared": 150,
    "diamonds": 120,
    "products": 400,
    "linear_products": 150,
    "input_products": 300,
    "residual": 150,
    "views": 300,
    "viewed_maps": 400,
    "scrambled": 100,
    "concat_slices": 60,
    "concat_doubled": 18,
    "fan_out": 150,
    "fan_in_concat": 150,
    "split": 150,
    "constant_chain": 1200,
    "u_net": 60,
}
"""Operators, or parts of several operators each."""


def values(program: Program) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {t.attr("name"): rng.random(t.shape, dtype=np.float32) for t in program.inputs}


@pytest.mark.parametrize("shape", SIZES)
def test_every_face_takes_deep_wide_and_shared_programs(shape: str, tmp_path: Path) -> None:
    program = SHAPES[shape](SIZES[shape])
    assert pickle.loads(pickle.dumps(program)).outputs == program.outputs
    best = eqsat.optimize(program, time_limit=SECONDS)
    for text in (str(program), str(best), best.explain(), repr(best)):
        assert text
    eqsat.to_onnx(best.program, tmp_path / "best.onnx")
    again = eqsat.from_onnx(tmp_path / "best.onnx")
    given = values(program)
    expected = program.run(given)
    made = best.compile(on="numpy")(given)
    for name, array in expected.items():
        np.testing.assert_allclose(again.run(given)[name], array, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(made[name], array, rtol=1e-3, atol=1e-5)
    written = emit(best.plan, "mi300x", tmp_path / "kernels")
    assert written["steps"]
    sources = [path.stat().st_size for path in (tmp_path / "kernels").glob("*.hip")]
    assert max(sources, default=0) < 500_000


@pytest.mark.parametrize("shape", ["pointwise", "residual", "fan_out", "concat_slices"])
def test_reading_and_writing_models_takes_time_in_proportion_to_their_size(shape: str) -> None:
    def seconds(size: int) -> float:
        model = eqsat.to_onnx(SHAPES[shape](size))
        gc.disable()  # a collection takes as long as all earlier tests have left objects
        try:
            start = time.process_time()
            eqsat.to_onnx(eqsat.from_onnx(model))
            return time.process_time() - start
        finally:
            gc.enable()

    seconds(100)
    assert seconds(4000) < 3 * 8 * seconds(500)


@pytest.mark.parametrize("shape", ["pointwise", "residual", "fan_out", "u_net", "constant_chain"])
def test_huge_segments_are_cut_in_pieces_that_compute_the_same(shape: str) -> None:
    per_part = 1 if shape in ("pointwise", "fan_out", "constant_chain") else 4
    core = lower(SHAPES[shape](2 * HUGE // per_part))
    parts = segments(core.roots)
    assert len(parts) > 2
    assert max(sum(n.op not in ("In", "Const", "Full", "V") for n in topological(p.form)) for p in parts) <= PIECE
    known: set[object] = set()
    for part in parts:
        for leaf in part.leaves.values():
            assert leaf.op in ("In", "Const") or leaf in known
        known.update(part.roots)
    assert known.issuperset(core.roots)


def test_equal_pieces_of_what_repeats_itself_are_one_problem() -> None:
    parts = segments(lower(SHAPES["pointwise"](20 * PIECE)).roots)
    assert len(parts) == 28  # a search may have ten nodes more for each cut less
    assert len({part.form for part in parts}) <= 2


def test_results_of_an_opaque_call_stay_in_one_piece() -> None:
    def twice(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return a, -a

    x = y = ops.input("x", (8,), "float32")
    first, second = ops.opaque("twice", [x], [((8,), "float32"), ((8,), "float32")], "twice", twice)
    y = first
    for _ in range(HUGE):
        y = ops.tanh(y)
    core = lower(Program((x,), {"y": ops.add(y, second)}))
    calls = [[n for n in topological(part.form) if n.op == "Opaque"] for part in segments(core.roots)]
    assert len(calls) > 2
    assert sorted(map(len, calls))[-2:] == [0, 2]


@pytest.mark.parametrize("size", [150, 2_000, 20_000])
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(lambda n: "(" * n + "x" + ")" * n, id="parentheses"),
        pytest.param(lambda n: "relu(" * n + "x" + ")" * n, id="calls"),
        pytest.param(lambda n: "-" * n + "x", id="signs"),
        pytest.param(lambda n: "x" + ".T" * n, id="attributes"),
        pytest.param(lambda n: " + ".join(["x"] * n), id="sums"),
    ],
)
def test_deep_expressions_are_read_or_refused_in_one_line(text, size: int) -> None:
    if size == 150:
        assert parse(text(size), {"x": "f32[4,4]"}).outputs
        return
    with pytest.raises(InputError) as error:
        parse(text(size), {"x": "f32[4,4]"})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("shape", ["pointwise", "doubled", "scrambled", "fan_in_concat"])
def test_expressions_of_deep_values_leave_out_what_lies_deep(shape: str) -> None:
    text = expression(SHAPES[shape](SIZES[shape]).outputs["y"], {})
    assert 0 < len(text) < 50_000


def test_short_expressions_leave_nothing_out() -> None:
    assert expression(SHAPES["pointwise"](20).outputs["y"], {}) == "tanh(sin(" * 10 + "x" + "))" * 10


def test_temporaries_that_meet_too_often_get_their_places_in_turn() -> None:
    count = 3000
    life = {i: (i % 97, i % 97 + i % 1000) for i in range(count)}
    sizes = {i: 1 + 37 * i % 1000 for i in range(count)}
    offsets, arena = first_fit(sizes, life)
    ordered = sorted(offsets, key=lambda i: offsets[i])
    alive_somewhere = max(
        sum(sizes[i] for i, (first, last) in life.items() if first <= step <= last) for step in range(0, 1100, 50)
    )
    assert alive_somewhere <= arena == max(offsets[i] + sizes[i] for i in offsets)
    for place, i in enumerate(ordered):
        for j in ordered[place + 1 :]:
            if offsets[j] >= offsets[i] + sizes[i]:
                break
            assert life[j][0] > life[i][1] or life[i][0] > life[j][1]


def test_calls_on_a_stack_of_their_own_raise_where_they_were_made() -> None:
    def sink(depth: int) -> Call[int]:
        if depth == 0:
            raise ValueError("the bottom")
        try:
            return (yield sink(depth - 1))
        except ValueError:
            if depth < 5_000:
                raise
            return depth

    assert run(sink(10_000)) == 5_000
