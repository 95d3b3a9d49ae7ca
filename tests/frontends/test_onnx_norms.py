"""Root-mean-square norms of results, written as runtimes know them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import eqsat
from eqsat.frontends.onnx.read.model import from_onnx
from eqsat.frontends.onnx.write.model import to_onnx
from eqsat.frontends.onnx.write.norms import norms_scaled
from eqsat.program import composites, ops
from eqsat.program.ir import Program
from eqsat.program.term import Term

X = ops.input("x", (2, 8, 64))
SCALE = ops.constant(np.linspace(0.5, 2, 64, dtype=np.float32))
SKEWED = ops.constant(np.random.default_rng(0).normal(size=(64, 48)).astype(np.float32))


def model(norm: str, opset: int = 17) -> Program:
    """A norm with a scale and the product behind it, as a file has them."""
    text = f"""
        <ir_version: 8, opset_import: ["": {opset}]>
        main (float[2, 8, 64] x) => (float[2, 8, 48] y)
        <float two = {{2}}, float one = {{1}}, float small = {{0.001}}> {{ {norm} n = Mul(u, scale) y = MatMul(n, w) }}
    """
    proto = onnx.parser.parse_model(text)
    for name, value in {"scale": SCALE, "w": SKEWED}.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(value.attr("value").array, name))
    return from_onnx(proto)


MEAN = "p = Pow(x, two) m = ReduceMean<axes=[-1]>(p) e = Add(m, small) s = Sqrt(e)"
SPELLINGS = {"quotient": f"{MEAN} u = Div(x, s)", "by one over": f"{MEAN} d = Div(one, s) u = Mul(x, d)"}


def with_output(source: Program, y: Term) -> Program:
    """Another program for the same file."""
    return replace(source, outputs={"y": y})


def executed(program: Program, folder: Path) -> tuple[list[str], np.ndarray]:
    """What onnxruntime executes for a program, and its result for some x."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    session = onnxruntime.InferenceSession(to_onnx(program).SerializeToString(), options)
    x = np.random.default_rng(1).normal(size=X.shape).astype(np.float32)
    y = session.run(["y"], {"x": x})[0]
    return [node.op_type for node in onnx.load(folder / "optimized.onnx").graph.node], np.asarray(y)


def total(x: Term) -> Term:
    return ops.sum_(composites.square(x), -1, True)


def scaled(x: Term, factor: float) -> Term:
    return ops.mul(x, ops.full_like(factor, x))


def over(x: Term, mean: Term) -> Term:
    return composites.div(x, ops.sqrt(composites.shifted(mean, 0.001)))


REWRITTEN: dict[str, Callable[[Term], Term]] = {
    "without its scale": lambda x: over(x, scaled(total(x), 1 / 64)),
    "by the reciprocal": lambda x: composites.rmsnorm_by_reciprocal(
        x, ops.constant(np.ones(64, np.float32)), -1, 0.001
    ),
    "by the reciprocal root": lambda x: composites.mul(
        x, ops.rsqrt(composites.shifted(composites.mean(composites.square(x), -1, True), 0.001))
    ),
    "share inside the sum": lambda x: over(x, ops.sum_(scaled(composites.square(x), 1 / 64), -1, True)),
    "sum alone": lambda x: over(x, total(x)),
    "factor of the operand out of the sum": lambda x: over(scaled(x, 8), total(x)),
    "a total over a number": lambda x: over(x, composites.div(total(x), ops.full_like(32, total(x)))),
}


@pytest.mark.parametrize("rewritten", REWRITTEN)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_onnxruntime_executes_a_rewritten_norm_as_one_operator(spelling: str, rewritten: str, tmp_path: Path) -> None:
    given = with_output(model(SPELLINGS[spelling]), composites.matmul(REWRITTEN[rewritten](X), SKEWED))

    found, equal = norms_scaled(given)

    operators, y = executed(found, tmp_path)
    factors = ["Mul"] if rewritten.startswith("factor") else []
    assert operators == [*factors, "SimplifiedLayerNormalization", "MatMul"]
    np.testing.assert_allclose(y, executed(given, tmp_path)[1], rtol=1e-4, atol=1e-5)
    assert len(equal) == 2


def test_a_norm_keeps_another_scale_and_gets_none_of_its_own(tmp_path: Path) -> None:
    unit = composites.mul(X, ops.rsqrt(composites.shifted(composites.mean(composites.square(X), -1, True), 0.001)))
    given = with_output(model(SPELLINGS["quotient"]), composites.mul(unit, SCALE))

    found, _ = norms_scaled(given)

    assert executed(found, tmp_path)[0] == ["SimplifiedLayerNormalization"]
    assert [term for term in found.terms() if term.op == "constant"] == [SCALE]


def test_a_model_with_whole_norms_gets_whole_norms() -> None:
    text = """
        <ir_version: 11, opset_import: ["": 23]>
        main (float[2, 8, 64] x, float[64] g) => (float[2, 8, 64] y) { y = RMSNormalization<epsilon=0.001>(x, g) }
    """
    source = from_onnx(onnx.parser.parse_model(text))
    given = with_output(source, composites.matmul(over(X, scaled(total(X), 1 / 64)), SKEWED))

    found, _ = norms_scaled(given)

    assert [node.op_type for node in to_onnx(found).graph.node] == ["RMSNormalization", "MatMul"]


UNCHANGED: dict[str, Callable[[Term], Term]] = {
    "another's squares": lambda x: over(x, scaled(total(ops.exp(x)), 1 / 64)),
    "another axis": lambda x: over(x, scaled(ops.sum_(composites.square(x), 1, True), 1 / 8)),
    "an epsilon for each row": lambda x: composites.div(
        x, ops.sqrt(ops.add(total(x), ops.constant(np.full((2, 8, 1), 0.1, np.float32))))
    ),
    "a negative share": lambda x: over(x, scaled(total(x), -1.0)),
    "of maxima": lambda x: over(x, ops.reduce("max", composites.square(x), -1, True)),
    "a share of few digits": lambda x: over(x, scaled(total(x), 1e-42)),
    "an epsilon that would be 0": lambda x: composites.div(
        x, ops.sqrt(composites.shifted(scaled(total(x), 1e30), 1e-30))
    ),
    "a share that would be 0": lambda x: over(x, total(scaled(x, 1e-25))),
    "not the root": lambda x: composites.div(x, composites.shifted(total(x), 0.001)),
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_what_is_no_norm_stays(name: str) -> None:
    given = with_output(model(SPELLINGS["quotient"]), UNCHANGED[name](X))

    assert norms_scaled(given) == (given, [])


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_norm_as_it_was_read_stays(spelling: str) -> None:
    given = model(SPELLINGS[spelling])

    assert norms_scaled(given)[0] is given


@pytest.mark.parametrize("scale", [SCALE, None], ids=["as read", "without its scale"])
def test_a_norm_inside_of_a_layer_normalisation_stays(scale: Term | None) -> None:
    given = with_output(model("u = LayerNormalization(x, scale)"), composites.layernorm(X, scale))

    assert norms_scaled(given)[0] is given


def test_a_program_of_no_file_stays() -> None:
    given = Program((X,), {"y": over(X, total(X))})

    assert norms_scaled(given)[0] is given


def test_a_norm_whose_scale_went_into_weights_is_one_operator_of_onnxruntime(tmp_path: Path) -> None:
    """Two products of a norm are found as one, of weights that hold the scale."""
    given = model(SPELLINGS["by one over"])
    (norm, _) = given.outputs["y"].args
    source = replace(given, outputs={**given.outputs, "z": composites.matmul(norm, ops.elementwise("neg", SKEWED))})

    best = eqsat.optimize(source, time_limit=10)

    assert SCALE not in best.program.terms()
    assert "SimplifiedLayerNormalization" in executed(best.program, tmp_path)[0]
    assert best.report["check"]["passed"]


def sum_alone() -> Program:
    """x over the root of the sum of its squares: a norm times a number that float32 rounds."""
    text = """
        <ir_version: 8, opset_import: ["": 17]>
        main (float[2, 48] x) => (float[2, 48] y) <float small = {0.001}, int64[1] last = {-1}>
        { p = Mul(x, x) t = ReduceSum(p, last) e = Add(t, small) s = Sqrt(e) y = Div(x, s) }
    """
    return from_onnx(onnx.parser.parse_model(text))


def test_a_norm_times_a_rounded_number_passes_the_check() -> None:
    best = eqsat.optimize(sum_alone(), time_limit=10)

    assert "fallback" not in best.report
    assert any(term.op == "pow" for term in best.program.terms())


def test_a_result_that_would_differ_with_its_norms_respelled_stays_as_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(program: Program) -> tuple[Program, list[tuple[Term, Term]]]:
        return replace(program, outputs={"y": scaled(program.outputs["y"], 2)}), []

    monkeypatch.setattr("eqsat.frontends.onnx.write.norms.norms_scaled", wrong)

    source = sum_alone()
    best = eqsat.optimize(source, time_limit=10)

    x = np.random.default_rng(2).normal(size=(2, 48)).astype(np.float32)
    np.testing.assert_allclose(best.program.run({"x": x})["y"], source.run({"x": x})["y"], 1e-5)
    assert best.report["fallback"]["cause"] == "differs"
    assert best.report["fallback"]["parts"] == 0


def test_exact_results_are_not_respelled() -> None:
    source = model(SPELLINGS["by one over"])

    best = eqsat.optimize(source, numerics="exact", time_limit=10)

    x = np.random.default_rng(2).normal(size=X.shape).astype(np.float32)
    np.testing.assert_array_equal(best.program.run({"x": x})["y"], source.run({"x": x})["y"])
    assert not any(term.op == "pow" for term in best.program.terms())
