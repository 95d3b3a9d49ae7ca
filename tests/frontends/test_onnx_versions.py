"""Operators as old opsets define them, and with unusual attributes: each judged by onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from eqsat.frontends.onnx.read import opaque
from eqsat.frontends.onnx.read.model import from_onnx
from eqsat.frontends.onnx.read.recurrent import STEPS
from eqsat.frontends.terms.windows import transposed_conv
from eqsat.program import ops
from eqsat.program.ir import Program
from support.onnx_models import assert_as_onnxruntime

R = np.random.default_rng(0)


def f(*shape: int) -> np.ndarray:
    return R.standard_normal(shape).astype(np.float32)


X, IMAGE = f(2, 3, 4), f(1, 2, 6, 6)
W, V = f(1, 8, 3), f(1, 8, 2)
POOL = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
TWICE = np.array([1, 1, 2, 1.5], np.float32)
U8 = np.uint8
HOLED = np.array([[1, np.nan, np.inf]] * 4, np.float32)
LONG = np.arange(12).reshape(4, 3)
ENDS = np.array([-(2**31), 2**31 - 1, -7, 7, 3, -1], np.int32)
SIGNED = np.array([-0.0, 5.5, -5.5, 0.7, -0.7, np.inf, -np.inf, np.nan], np.float32)
UNORDERED = np.array(
    [[np.nan, np.nan, 1, -1], [1, np.nan, 2, np.nan], [np.inf, np.nan, np.inf, -np.inf], [np.nan] * 4], np.float32
)
POWERS = [  # exponents that the base's type does not hold,
    (np.float32, np.array([2**24 + 1, 2**24 + 2, 2])),
    (np.float32, np.array([2.0**24 + 1, 2.0**24 + 2, 2.1])),
    (np.float16, np.array([2049, 70000, 2], np.int32)),
    (np.float16, np.array([2049, 70000, 2.003], np.float32)),
    (np.int32, np.array([2**32 + 1, 2**32, 2])),
    (np.int32, np.array([3, 2, 2.5], np.float32)),
]

# Operator, opset, operands (None: left out), which are constants, attributes, number of outputs.
Row = tuple[str, int, list[Any], tuple[int, ...], dict[str, Any], int]
READ: list[Row] = [
    *((op, opset, [X], (), {"axis": 1}, 1) for op in ("Softmax", "LogSoftmax", "Hardmax") for opset in (7, 11, 13)),
    ("Softmax", 11, [X], (), {"axis": -1}, 1),
    ("Dropout", 13, [X, np.float32(0.5), np.array(False)], (2,), {}, 1),
    ("Dropout", 13, [X, np.float32(0), np.array(True)], (1,), {}, 1),
    *(
        (op, opset, [f(2, 0, 3)], (), {"axis": 1}, 1)
        for op in ("Softmax", "LogSoftmax", "Hardmax")
        for opset in (7, 13)
    ),
    *(("Mod", 13, [each, each[:, None]], (), {"fmod": 1}, 1) for each in (ENDS, SIGNED, SIGNED.astype(np.float16))),
    *(("Pow", 15, [np.array([-1, -1, 2], base), exponents], (), {}, 1) for base, exponents in POWERS),
    *(("Pow", 15, [np.array([-1, -1, 2], base), exponents], (1,), {}, 1) for base, exponents in POWERS),
    ("Pow", 15, [np.array([100, 200], np.float16), np.array([2.003, 2.0005], np.float32)], (1,), {}, 1),
    ("Clip", 7, [X], (), {"min": -0.3, "max": 0.4}, 1),
    ("Clip", 10, [X], (), {}, 1),
    ("Pad", 10, [f(3, 4)], (), {"pads": [1, 0, 2, 1], "value": 0.5}, 1),
    ("Pad", 7, [f(3, 4)], (), {"pads": [1, 0, 2, 1], "mode": "reflect"}, 1),
    ("Slice", 9, [X], (), {"starts": [0, 1], "ends": [2, -1], "axes": [1, 2]}, 1),
    (
        "Slice",
        13,
        [X, *map(np.array, ([-9, -9, 3], [-9, -(2**63), -(2**31)], [0, 1, -1], [-1, -2, -2]))],
        (1, 2, 3, 4),
        {},
        1,
    ),
    ("Split", 11, [X], (), {"axis": 2, "split": [1, 3]}, 2),
    ("Squeeze", 12, [f(1, 2, 1)], (), {"axes": [0]}, 1),
    ("Sum", 7, [X, X], (), {}, 1),
    ("TopK", 9, [X], (), {"k": 1, "axis": 1}, 2),
    ("TopK", 9, [X], (), {"k": 2}, 2),
    ("TopK", 11, [np.sign(X), np.array([3])], (1,), {"axis": 1}, 2),
    ("TopK", 11, [np.array([[1, np.inf, 1, -np.inf, -np.inf]], np.float32), np.array([4])], (1,), {"largest": 0}, 2),
    *(("TopK", 11, [UNORDERED, np.array([k])], (1,), {"largest": largest}, 2) for largest in (0, 1) for k in (1, 2, 4)),
    ("Gemm", 13, [f(2, 3), f(3, 2), np.full(2, np.nan, np.float32)], (), {"beta": 0.0}, 1),
    ("BatchNormalization", 8, [IMAGE, f(2), f(2), f(2), np.abs(f(2))], (), {"epsilon": 1e-3}, 1),
    ("OneHot", 9, [np.array([1, -2]), np.array(4), np.array([0, 1.5], np.float32)], (1,), {"axis": 0}, 1),
    ("Upsample", 8, [IMAGE], (), {"scales": [1.0, 1.0, 2.0, 2.0], "mode": "linear"}, 1),
    ("Upsample", 9, [IMAGE, TWICE], (1,), {"mode": "nearest"}, 1),
    ("Resize", 10, [IMAGE, TWICE], (1,), {"mode": "nearest"}, 1),
    ("Resize", 10, [f(1, 1, 7, 11), np.array([1, 1, 0.6, 0.3], np.float32)], (1,), {"mode": "nearest"}, 1),
    ("Resize", 10, [f(1, 1, 5, 9), np.array([1, 1, 1.6, 0.75], np.float32)], (1,), {"mode": "nearest"}, 1),
    ("Resize", 13, [IMAGE, None, TWICE], (2,), {"mode": "linear"}, 1),
    ("Resize", 18, [IMAGE, None, None, np.array([4, 9])], (3,), {"axes": [2, 3], "mode": "linear"}, 1),
    ("Resize", 19, [IMAGE, None, TWICE], (2,), {"mode": "cubic", "exclude_outside": 1}, 1),
    ("LpPool", 11, [IMAGE], (), POOL, 1),
    *(
        (op, 18, [IMAGE], (), {"kernel_shape": [3, 1], "strides": [2, 2], "auto_pad": "VALID", "ceil_mode": 1}, 1)
        for op in ("AveragePool", "LpPool", "MaxPool")
    ),
    ("LpPool", 18, [IMAGE], (), {**POOL, "p": 3, "ceil_mode": 1}, 1),
    ("ConvTranspose", 11, [IMAGE, f(2, 3, 2, 2), f(3)], (), {"strides": [2, 2]}, 1),
    ("ConvTranspose", 11, [IMAGE, f(2, 1, 3, 2)], (), {"group": 2, "strides": [2, 3], "pads": [1, 0, 1, 1]}, 1),
    (
        "ConvTranspose",
        22,
        [IMAGE, f(2, 1, 3, 3)],
        (),
        {"dilations": [2, 1], "output_padding": [1, 0], "strides": [2, 1]},
        1,
    ),
    ("ConvTranspose", 11, [IMAGE, f(2, 1, 3, 3)], (), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}, 1),
    ("Attention", 23, [f(1, 1, 4, 8), f(1, 1, 6, 8), f(1, 1, 6, 8)], (), {"softcap": -1.0}, 1),
    ("CumSum", 14, [X, np.array(1)], (1,), {}, 1),
    ("CumSum", 14, [X[:, :0], np.array(1)], (1,), {"exclusive": 1}, 1),
    ("CumSum", 11, [X.astype(np.int64), np.array(-1)], (1,), {"exclusive": 1, "reverse": 1}, 1),
    ("GatherND", 12, [X, np.array([[[0], [2]], [[-1], [1]]])], (), {"batch_dims": 1}, 1),
    ("ScatterND", 13, [f(4, 2), np.array([[3], [-4]]), f(2, 2)], (1,), {}, 1),
    ("ScatterElements", 13, [f(3, 3), np.array([[1, 0, 2]]), f(1, 3)], (1,), {"axis": 1}, 1),
    ("ScatterElements", 13, [f(2, 4, 3), R.integers(-4, 4, (2, 2, 3)), f(2, 2, 3)], (), {"axis": 1}, 1),
    ("ScatterElements", 13, [f(3, 4) > 0, np.array([[1], [3], [-4]]), f(3, 1) > 0], (), {"axis": 1}, 1),
    ("ScatterElements", 11, [f(4, 3), np.array([[3, -2]], np.int32), f(1, 2)], (), {}, 1),
    ("ScatterElements", 16, [HOLED, R.integers(0, 4, (9, 3)), f(9, 3)], (), {"reduction": "add"}, 1),
    ("ScatterElements", 18, [f(4, 3), R.integers(0, 4, (9, 2)), f(9, 2)], (), {"reduction": "max"}, 1),
    ("ScatterElements", 18, [LONG, R.integers(0, 4, (9, 3)), R.integers(-9, 9, (9, 3))], (), {"reduction": "min"}, 1),
    ("ScatterElements", 18, [f(4, 3), R.integers(0, 4, (9, 3)), f(9, 3)], (), {"reduction": "mul"}, 1),
    ("ScatterND", 13, [f(4, 2), np.array([[3], [-4]]), f(2, 2)], (), {}, 1),
    ("ScatterND", 13, [f(4, 3, 2), np.array([[[3, -1], [0, 0]]]), f(1, 2, 2)], (), {}, 1),
    ("ScatterND", 16, [HOLED, R.integers(0, 4, (7, 1)), f(7, 3)], (), {"reduction": "add"}, 1),
    ("ScatterND", 18, [f(4, 3), R.integers(0, 3, (7, 2)), f(7)], (), {"reduction": "max"}, 1),
    ("DFT", 17, [f(2, 6, 3, 1)], (), {"axis": 1}, 1),
    ("DFT", 17, [f(2, 6, 3, 1), np.array(8)], (1,), {"axis": 2, "onesided": 1}, 1),
    ("DFT", 17, [f(2, 7, 2)], (), {"axis": 1, "inverse": 1}, 1),
    ("DFT", 20, [f(2, 6, 5, 2), np.array(4), np.array(1)], (1, 2), {}, 1),
    ("STFT", 17, [f(2, 20, 1), np.array(3), f(8)], (1,), {}, 1),
    ("STFT", 17, [f(1, 20, 1), np.array(4), None, np.array(7)], (1, 3), {"onesided": 0}, 1),
    ("Compress", 11, [X, np.array([True, False, True])], (1,), {"axis": 1}, 1),
    ("ReverseSequence", 10, [f(4, 3), np.array([1, 4, 2])], (1,), {"time_axis": 0, "batch_axis": 1}, 1),
    ("LSTM", 14, [f(5, 2, 3), W, V, f(1, 16)], (), {"hidden_size": 2}, 3),
    ("LSTM", 7, [f(3, 2, 3), W, V, None, None, None, None, f(1, 6)], (), {"hidden_size": 2, "clip": 0.5}, 3),
    ("LSTM", 14, [f(2, 1, 3), f(2, 8, 3), f(2, 8, 2)], (), {"hidden_size": 2, "direction": "bidirectional"}, 3),
    ("GRU", 14, [f(4, 2, 3), f(1, 6, 3), f(1, 6, 2), f(1, 12)], (), {"hidden_size": 2, "linear_before_reset": 1}, 2),
    ("GRU", 7, [f(4, 2, 3), f(1, 6, 3), f(1, 6, 2)], (), {"hidden_size": 2, "direction": "reverse"}, 2),
    ("RNN", 14, [f(4, 1, 3), W[:, :2], V[:, :2]], (), {"hidden_size": 2, "activations": ["HardSigmoid"]}, 2),
    ("RNN", 14, [f(4, 1, 3), W[:, :2], V[:, :2]], (), {"hidden_size": 2, "activations": ["Relu"]}, 2),
]
CARRIED: list[Row] = [
    ("TopK", 9, [f(2, 129)], (), {"k": 2}, 2),  # converted: k is an input since opset 10
    ("TopK", 11, [f(129, 2), np.array([2])], (1,), {"axis": 0}, 2),
    ("QuantizeLinear", 10, [X, np.float32(0.1), U8(100)], (1, 2), {}, 1),
    ("DynamicQuantizeLinear", 11, [X], (), {}, 3),
    ("MatMulInteger", 10, [R.integers(0, 255, (3, 2)).astype(U8), R.integers(0, 255, (2, 3)).astype(U8)], (), {}, 1),
    ("ScatterND", 16, [f(4, 2), np.array([[3], [3]]), f(2, 2)], (1,), {"reduction": "add"}, 1),
    ("RNN", 14, [f(4, 2, 3), W[:, :2], V[:, :2], None, np.array([2, 4], np.int32)], (4,), {"hidden_size": 2}, 2),
    (
        "GRU",
        14,
        [f(STEPS + 1, 2, 3), f(1, 6, 3), f(1, 6, 2), f(1, 12)],
        (),
        {"hidden_size": 2},
        2,
    ),  # not unrolled
]
HANGING = {"kernel_shape": [2, 2], "strides": [2, 3], "pads": [0, 0, 1, 1], "ceil_mode": 1}
CARRIED += [("MaxPool", opset, [f(1, 1, 7, 9)], (), HANGING, 2) for opset in (10, 17, 22)]
BOXES = np.sort(R.random((3, 2, 2)), 1).reshape(3, 4).astype(np.float32) * 5
PLACES = R.uniform(-1, 1, (1, 3, 2, 2)).astype(np.float32)
ONNXRUNTIMES: list[Row] = [  # onnx's reference is wrong, or fails
    ("RoiAlign", 11, [IMAGE, BOXES, np.zeros(3, np.int64)], (), {"output_width": 3, "sampling_ratio": 2}, 1),
    ("MaxPool", 13, [IMAGE], (), {"kernel_shape": [3, 3], "auto_pad": "SAME_LOWER", "strides": [2, 2]}, 2),
    ("MaxPool", 13, [f(1, 1, 9, 9)], (), {"kernel_shape": [2, 2], "auto_pad": "SAME_LOWER", "strides": [2, 2]}, 2),
    ("MaxPool", 13, [(30 * IMAGE).astype(np.int8)], (), {"kernel_shape": [3, 3], "pads": [1] * 4}, 1),
    ("GridSample", 16, [IMAGE, PLACES], (), {"mode": "bicubic"}, 1),
    ("GridSample", 20, [IMAGE, 2 * PLACES], (), {"mode": "cubic", "padding_mode": "border", "align_corners": 1}, 1),
    ("Softsign", 13, [f()], (), {}, 1),
    ("Softsign", 13, [f().astype(np.float16)], (), {}, 1),
    (
        "Resize",
        18,
        [IMAGE, None, None, np.array([4, 4])],
        (3,),
        {"mode": "linear", "axes": [-2, -1], "antialias": 1},
        1,
    ),
    ("CumSum", 14, [X, np.array([0])], (), {}, 1),
    ("ai.onnx.ml.Normalizer", 1, [X[0]], (), {"norm": "MAX"}, 1),
    (
        "ai.onnx.ml.SVMClassifier",
        1,
        [f(5, 2)],
        (),
        {
            "classlabels_ints": [0, 1, 2],
            "vectors_per_class": [1, 1, 1],
            "support_vectors": [1.0, 0.5, -1.0, 0.25, 0.0, -1.0],
            "coefficients": [0.5, -1.0, 0.75, 1.0, -0.25, -0.5],
            "rho": [0.1, -0.2, 0.3],
            "prob_a": [-1.0, -1.5, -2.0],
            "prob_b": [0.1, 0.2, -0.1],
            "kernel_type": "LINEAR",
            "kernel_params": [1.0, 0.0, 3.0],
        },
        2,
    ),
    (
        "ai.onnx.ml.TreeEnsembleRegressor",
        3,
        [f(5, 2)],
        (),
        {
            "nodes_treeids": [0, 0, 0],
            "nodes_nodeids": [0, 1, 2],
            "nodes_featureids": [1, 0, 0],
            "nodes_values": [0.1, 0.0, 0.0],
            "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
            "nodes_truenodeids": [1, 0, 0],
            "nodes_falsenodeids": [2, 0, 0],
            "target_treeids": [0, 0],
            "target_nodeids": [1, 2],
            "target_ids": [0, 1],
            "target_weights": [0.5, -1.0],
            "base_values": [0.1, 0.2],
            "n_targets": 2,
        },
        1,
    ),
    *(
        (op, 13, [LONG.astype(np.int32)], (), {"axes": [1]}, 1)
        for op in ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
    ),
]


def judged(
    op: str, opset: int, operands: list[Any], constants: tuple[int, ...], attributes: Any, count: int
) -> list[str]:
    """What stays opaque of a model of this node, whose results are onnxruntime's."""
    arrays = {f"x{i}": np.asarray(a) for i, a in enumerate(operands) if a is not None}
    inputs = {name: a for name, a in arrays.items() if int(name[1:]) not in constants}
    outputs = [f"y{i}" for i in range(count)]
    domain, _, kind = op.rpartition(".")
    graph = helper.make_graph(
        [
            helper.make_node(
                kind,
                [f"x{i}" if a is not None else "" for i, a in enumerate(operands)],
                outputs,
                domain=domain,
                **attributes,
            )
        ],
        "g",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in inputs.items()
        ],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(a, name) for name, a in arrays.items() if name not in inputs],
    )
    opsets = [helper.make_opsetid(domain, opset), *([helper.make_opsetid("", 13)] if domain else [])]
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return assert_as_onnxruntime(model, inputs)


def named(row: Row) -> str:
    return f"{row[0]}-{row[1]}-{'-'.join(list(row[4])[:3])}"


@pytest.mark.parametrize("row", READ, ids=named)
def test_these_are_read(row: Row) -> None:
    assert judged(*row) == []


# Sizes of the image, groups, strides, dilations, pads, output_padding; the kernel has w's last sizes.
SPREADS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], int]] = [
    ((1, 1), (4, 4), {}, 4),  # nothing overlaps: one product
    ((1, 1), (3, 2), {"strides": [2, 3], "dilations": [2, 1], "output_padding": [1, 0]}, 6),
    ((1, 4), (4, 3), {"strides": [2, 2], "pads": [1, 1, 1, 0]}, 4),
    ((4, 5), (4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}, 4),
    ((4, 5), (3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}, 4),
    ((3, 4), (2, 2), {"strides": [3, 4], "output_padding": [2, 1], "group": 2}, 6),
    ((3, 4), (5, 4), {"strides": [3, 2], "pads": [2, 0, 0, 3], "group": 2}, 6),
    ((4, 3), (3, 3), {"strides": [2, 2], "dilations": [2, 3]}, 5),
    ((4, 3), (3, 2), {"strides": [2, 1], "dilations": [1, 2], "pads": [1, 1, 0, 0], "group": 4}, 5),
    ((4, 3), (2, 1), {"strides": [2, 3], "dilations": [4, 2]}, 5),
    ((6,), (5,), {"strides": [3], "dilations": [2], "pads": [2, 3]}, 3),
    ((2, 3, 2), (4, 3, 2), {"strides": [2, 2, 2], "pads": [1, 1, 0, 1, 0, 0]}, 4),
]


@pytest.mark.parametrize(("image", "kernel", "attributes", "channels"), SPREADS)
def test_kernels_are_spread_as_in_onnxruntime(
    image: tuple[int, ...], kernel: tuple[int, ...], attributes: dict[str, Any], channels: int
) -> None:
    groups = attributes.get("group", 1)
    out = channels // groups
    operands = [f(2, 4 * groups, *image), f(4 * groups, out, *kernel), f(out * groups)]
    assert judged("ConvTranspose", 11, operands, (1, 2), attributes, 1) == []


def test_no_product_with_zeros_between_elements() -> None:
    """With stride 2 a kernel of 4 x 4 has 2 x 2 elements for each output, and not 16."""
    image, w = ops.input("x", (1, 8, 16, 16), "float32"), ops.input("w", (8, 8, 4, 4), "float32")
    spread = transposed_conv(image, w, 1, (2, 2), (1, 1), [(1, 1, 32)] * 2)
    assert Program((image, w), {"y": spread}).stats()["matmul_flops"] < 1.2 * 2 * 32 * 32 * 8 * 8 * 4


@pytest.mark.parametrize("row", [*CARRIED, *ONNXRUNTIMES], ids=named)
def test_these_are_carried(row: Row) -> None:
    assert judged(*row) == [row[0]]


@pytest.mark.parametrize(
    "row",
    [
        ("Col2Im", 18, [f(1, 8, 12), np.array([4, 5]), np.array([2, 2])], (1, 2), {}, 1),
        ("DeformConv", 19, [IMAGE, f(3, 2, 3, 3), f(1, 18, 4, 4)], (1,), {"kernel_shape": [3, 3]}, 1),
        ("GridSample", 20, [IMAGE, PLACES], (), {"mode": "linear"}, 1),
    ],
    ids=named,
)
def test_a_slow_reference_is_not_asked(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(arrays: object) -> None:
        raise AssertionError("the reference takes milliseconds for each element")

    monkeypatch.setattr(opaque, "_reference", lambda proto: slow)
    assert judged(*row) == [row[0]]


def test_a_slow_reference_is_asked_for_what_onnxruntime_lacks() -> None:
    """Samples of float64."""
    places = numpy_helper.from_array(PLACES.astype(np.float64), "p")
    value = helper.make_tensor_value_info("x", onnx.TensorProto.DOUBLE, IMAGE.shape)
    nodes = [helper.make_node("GridSample", ["x", "p"], ["y"], mode="linear")]
    outputs = [helper.make_empty_tensor_value_info("y")]
    graph = helper.make_graph(nodes, "g", [value], outputs, [places])
    program = from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]))
    assert program.run({"x": IMAGE.astype(np.float64)})["y"].dtype == np.float64
