"""Operators that are run by onnx's reference, where onnx (1.23) computes them otherwise than it says."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from eqsat.errors import InputError
from eqsat.frontends.onnx.read import bounded
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


def constant_loop(operator: str, opset: int, shape: tuple[int, ...], made: tuple[int, ...]) -> onnx.ModelProto:
    """The results of an operator on constants that change their sign, collected in more steps than are written out."""
    numbers = ", ".join(str(round(each, 3)) for each in RNG.normal(size=shape).ravel())
    text = f"""<ir_version: 7, opset_import: ["": {opset}]> main () => (float{[UNROLLED, *made]} y)
        <int64 n = {{{UNROLLED}}}, float{list(shape)} w = {{{numbers}}},
         float[4] scales = {{1, 1, 1.5, 0.7}}, float[1, 4] box = {{0, 0, 3, 3}}, int64[1] batch = {{0}},
         float[2] ones = {{1, 1}}, int64[1] low = {{-9}}, int64[1] end = {{-9}}, int64[1] back = {{-1}}> {{
        last, y = Loop (n, "", w) <body = body (int64 i, bool c, float{list(shape)} a)
            => (bool d, float{list(shape)} b, float{list(made)} o) {{ d = Identity (c) b = Neg (a) o = {operator} }}>
        }}"""
    return onnx.parser.parse_model(text)


@pytest.mark.parametrize(
    ("operator", "opset", "shape", "made"),
    [
        *((f"{op} <axis = 1> (a)", 11, (2, 4, 3), (2, 4, 3)) for op in ("Softmax", "LogSoftmax", "Hardmax")),
        ("BatchNormalization (a, ones, ones, ones, ones)", 9, (1, 2, 3), (1, 2, 3)),
        ("GlobalMaxPool (a)", 17, (2, 6, 3), (2, 6, 1)),
        ("LRN <size = 3, alpha = 1.0> (a)", 17, (2, 6, 3, 3), (2, 6, 3, 3)),
        ("LpNormalization <p = 1, axis = 0> (a)", 17, (2, 3), (2, 3)),
        (
            'MaxPool <kernel_shape = [2, 2], strides = [2, 2], auto_pad = "SAME_LOWER"> (a)',
            17,
            (1, 1, 5, 5),
            (1, 1, 3, 3),
        ),
        (
            'Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (a, "", scales)',
            17,
            (1, 1, 6, 6),
            (1, 1, 9, 4),
        ),
        ("RoiAlign <output_height = 2, output_width = 2> (a, box, batch)", 13, (1, 2, 6, 6), (1, 2, 2, 2)),
        ("Slice (a, low, end, batch, back)", 17, (3, 2), (1, 2)),
    ],
)
def test_constant_loops_are_what_onnxruntime_makes_of_them(
    operator: str, opset: int, shape: tuple[int, ...], made: tuple[int, ...]
) -> None:
    model = constant_loop(operator, opset, shape, made)
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {})
    program = from_onnx(model)
    assert program.opaque() == []
    np.testing.assert_allclose(program.run({})["y"], np.asarray(wanted[0]), 1e-5, 1e-5)


def test_a_constant_loop_is_carried_where_nothing_right_runs_its_body(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(proto: object, name: str) -> None:
        raise InputError("install onnxruntime")

    monkeypatch.setattr(bounded, "session", missing)
    program = from_onnx(constant_loop("GlobalMaxPool (a)", 17, (2, 3, 3), (2, 3, 1)))
    assert program.opaque() == ["Loop"]
    assert from_onnx(constant_loop("Softplus (a)", 17, (2, 3), (2, 3))).opaque() == []
