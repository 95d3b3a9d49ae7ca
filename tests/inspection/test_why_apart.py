"""Why two kernels of a result are not one that streams."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import eqsat
from eqsat.cli.app import app
from eqsat.errors import InputError
from eqsat.explain.narration import apart_text
from eqsat.extract.device.table import device
from eqsat.extract.plan.plan import Plan
from eqsat.inspection.why_apart import why_apart
from eqsat.suite.streaming import ROWS
from eqsat.tracing.expression import parse

ATTENTION = "softmax(Q @ transpose(K, (0, 2, 1)), -1) @ V @ W"
HEADS = {"Q": "f32[4,512,64]", "K": "f32[4,512,64]", "V": "f32[4,512,64]", "W": "f32[64,64]"}
SCORES, VALUES, OUT = "gemm_4x512x512x64", "softmax_gemm_4x512x64x512", "gemm_2048x64x64"


@pytest.fixture(scope="module")
def plan() -> Plan:
    found = eqsat.optimize(parse(ATTENTION, HEADS), rules=[], time_limit=10).plan
    assert [k.name for k in found.kernels] == [SCORES, VALUES, OUT]
    return found


def test_a_kernel_that_could_stream_both_is_shown_with_its_price(plan: Plan) -> None:
    answer = why_apart(plan, (VALUES, SCORES), device("mi300x"))
    assert answer["kernels"] == [SCORES, VALUES]
    assert answer["walks"][0].endswith("making 1 inner product on the way")
    assert answer["reason"].startswith("it is dearer by ")
    assert answer["one_us"] > answer["apart_us"]
    assert f"One kernel could compute {SCORES} and {VALUES}, but it is dearer by" in apart_text(answer, 200)


REASONS = {
    (SCORES, OUT): f"{VALUES} reads the first, and the second needs its result",
    (VALUES, OUT): "an inner product of (4, 512, 512, 64) has other rows or another axis than the walk",
}


@pytest.mark.parametrize("names", REASONS, ids="+".join)
def test_what_is_no_stream_is_said(names: tuple[str, str], plan: Plan) -> None:
    answer = why_apart(plan, names, device("mi300x"))
    assert (answer["walks"], answer["reason"]) == ([], REASONS[names])
    assert apart_text(answer, 300) == f"{names[0]} and {names[1]} are not one stream: {REASONS[names]}."


def test_what_the_search_drops_is_priced_by_its_product() -> None:
    """Each of six blocks of columns would make the wide array between the products again."""
    layers = parse("X + tanh(X @ A) @ B", {"X": "f32[128,768]", "A": "f32[768,3072]", "B": "f32[3072,768]"})
    wide = eqsat.optimize(layers, rules=[], time_limit=10).plan
    first, second = (k.name for k in wide.kernels)
    reason = why_apart(wide, (first, second), device("mi300x"))["reason"]
    alone, apart = (float(text.split()[-1]) for text in reason.split(" us")[:2])
    assert reason.startswith("its last product alone would take")
    assert alone > apart > 0


def test_what_waits_for_a_norm_is_priced_without_it() -> None:
    program = ROWS["LN, W1, gelu, W2, residual"].program()
    plan = eqsat.optimize(program, time_limit=10).plan
    first, second = (k.name for k in plan.kernels)
    answer = why_apart(plan, (first, second), device("mi300x"))
    why, _, price = answer["reason"].partition("; ")
    assert why == "an operand of an inner product needs a product or a reduction"
    assert price.startswith("with reduced operands in memory, one kernel would take")
    assert f"{answer['one_us']:.3f} us, against {answer['apart_us']:.3f} us" in price
    assert answer["one_us"] > answer["apart_us"] == pytest.approx(sum(k.predicted_us for k in plan.kernels))


def test_a_device_without_kernels_streams_nothing(plan: Plan) -> None:
    assert why_apart(plan, (SCORES, VALUES), device("cpu"))["reason"] == "cpu runs operator by operator"


@pytest.mark.parametrize(("names", "message"), [((SCORES, "gemm"), "no kernel gemm; it has"), ((OUT, OUT), "twice")])
def test_names_that_are_no_pair_are_refused(names: tuple[str, str], message: str, plan: Plan) -> None:
    with pytest.raises(InputError, match=message):
        why_apart(plan, names, device("mi300x"))


def test_streams_on_the_command_line(tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    eqsat.to_onnx(parse(ATTENTION, HEADS), model)

    def run(*args: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["explain", str(model), "--time-limit", "2", *args])
        return result.exit_code, result.output

    code, text = run("--why-not", f"{SCORES}+{VALUES}", "--json", "-")
    assert (code, json.loads(text)["kernels"]) == (0, [SCORES, VALUES])
    for names in (f"{SCORES}+{VALUES}+{OUT}", "+", f"{SCORES}+", f"+{OUT}"):
        code, text = run("--why-not", names)
        assert code == 3
        assert f"KERNEL+KERNEL; got {names}" in text
    code, text = run("--json", "-")
    (lines,) = json.loads(text)["streams"].values()
    assert "on chip" in lines[-1]
    assert "Kernels that stream:" in run()[1]


def test_what_walks_compute_and_the_template_cannot_write_is_said() -> None:
    """A walk keeps totals of as many rows as it has; an epilogue reads those of its own rows, and none of columns."""
    angles = "Q @ transpose(K) / sqrt(sum(Q * Q, 1, keepdims=True)) / transpose(sqrt(sum(K * K, 1, keepdims=True)))"
    found = eqsat.optimize(parse(angles, {"Q": "f32[64,64]", "K": "f32[64,64]"}), rules=[], time_limit=10).plan
    first, second = (k.name for k in found.kernels)
    answer = why_apart(found, (first, second), device("mi300x"))
    assert (answer["walks"], answer["reason"]) == ([], "a kernel reads a value elsewhere than where it computes it")
