"""Operators that are run by onnx's reference, where onnx (1.23) computes them otherwise than it says."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from eqsat.frontends.onnx.read.control import UNROLLED
from eqsat.frontends.onnx.read.model import from_onnx

RNG = np.random.default_rng(3)


def assert_computes_the_same(text: str, opset: int = 17, **inputs: np.ndarray) -> None:
    """What the program computes is what onnxruntime does."""
    model = onnx.parser.parse_model(f'<ir_version: 7, opset_import: ["": {opset}]> {text}')
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)
    found = from_onnx(model).run(inputs)
    for want, given in zip(wanted, found.values(), strict=True):
        np.testing.assert_allclose(given, np.asarray(want), 1e-5, 1e-5)


@pytest.mark.parametrize("steps", [0, 2, UNROLLED])
def test_what_a_loop_collects_is_stacked(steps: int) -> None:
    """onnx's reference lays it end to end, as (3 * steps, 2), and fails without a step."""
    assert_computes_the_same(
        f"""main (float[3, 2] x) => (float[{steps}, 3, 2] y)
            <int64 n = {{{steps}}}, float[3, 2] w = {{1, 2, 3, 4, 5, 6}}> {{
            last, rows = Loop (n, "", w) <body = body (int64 i, bool c, float[3, 2] a)
                => (bool d, float[3, 2] b, float[3, 2] o) {{ d = Identity (c) b = Neg (a) o = Tanh (a) }}>
            y = Add (rows, x) }}""",
        x=RNG.normal(size=(3, 2)).astype(np.float32),
    )


@pytest.mark.parametrize(
    "given", ["scan_input_axes = [-1], scan_input_directions = [1],", "scan_input_axes = [1],", ""]
)
def test_a_long_scan_runs_along_any_axis_in_both_directions(given: str) -> None:
    shape = (2, UNROLLED) if given else (UNROLLED, 2)
    assert_computes_the_same(
        f"""main (float[{shape[0]}, {shape[1]}] x) => (float[2] last, float[2, {UNROLLED}] y)
            <float[2] start = {{1, 2}}, float half = {{0.5}}> {{
            last, y = Scan <num_scan_inputs = 1, {given} scan_output_axes = [1], scan_output_directions = [1],
                body = body (float[2] s, float[2] e) => (float[2] t, float[2] o)
                    {{ h = Mul (s, half) t = Add (h, e) o = Neg (h) }}> (start, x) }}""",
        x=RNG.normal(size=shape).astype(np.float32),
    )


@pytest.mark.parametrize("outputs", [1, 4])
@pytest.mark.parametrize("given", ["axis = 1", "sorted = 0", "sorted = 0, axis = 1", "sorted = 1, axis = -1"])
def test_unique_values_come_in_the_order_asked_for(given: str, outputs: int) -> None:
    names = ["y", "first", "inverse", "counts"][:outputs]
    dims = {"y": "[A, B]" if "axis" in given else "[A]", "first": "[C]", "inverse": "[D]", "counts": "[E]"}
    types = ", ".join(f"int64{dims[name]} {name}" for name in names)
    assert_computes_the_same(
        f"""main () => ({types}) <int64[2, 4] w = {{2, 0, 2, 1, 3, 0, 3, 2}}>
            {{ {", ".join(names)} = Unique <{given}> (w) }}"""
    )


def test_axes_are_inserted_at_once_in_bodies_of_old_opsets() -> None:
    assert_computes_the_same(
        """main (float[1] x) => (float[2, 1, 2, 1, 3] y) <int64 one = {1}, float[2, 3] w = {1, 2, 3, 4, 5, 6}> {
            rows = Loop ("", "") <body = body (int64 i, bool c) => (bool d, float[1, 2, 1, 3] row)
                { row = Unsqueeze <axes = [2, -4]> (w) d = Less (i, one) }>
            y = Add (rows, x) }""",
        opset=11,
        x=np.ones(1, np.float32),
    )
