"""onnxruntime's own operators: each judged by onnxruntime, as a program and written back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from eqsat.errors import InputError
from eqsat.frontends.onnx.operators.microsoft import MICROSOFT, UNVERSIONED
from eqsat.frontends.onnx.read.model import from_onnx
from support.onnx_models import assert_as_onnxruntime

R = np.random.default_rng(0)


def f(*shape: int) -> np.ndarray:
    return R.standard_normal(shape).astype(np.float32)


def ids(most: int, *shape: int) -> np.ndarray:
    return R.integers(0, most, shape).astype(np.int32)


X, G, QKV = f(2, 3, 8), f(8), [f(2, 3, 8) for _ in range(3)]
IMAGE, KERNEL = f(1, 2, 5, 5), f(4, 2, 3, 3)
TABLES = [f(9, 8), f(5, 8), f(2, 8)]
CACHES = [f(5, 4), f(5, 4)]
MASK = np.array([[1, 1, 0], [1, 1, 1]], np.int32)

# Operator, operands (None: left out), attributes, outputs ("" unnamed).
READ: list[tuple[str, list[Any], dict[str, Any], list[str]]] = [
    ("Gelu", [X], {}, ["y"]),
    ("FastGelu", [X], {}, ["y"]),
    ("FastGelu", [X, G], {}, ["y"]),
    ("BiasGelu", [X, G], {}, ["y"]),
    ("QuickGelu", [X], {"alpha": 1.5}, ["y"]),
    ("FusedMatMul", [f(2, 4, 3), f(2, 4, 5)], {"transA": 1, "alpha": 0.5}, ["y"]),
    ("FusedMatMul", [f(3, 4), f(5, 4)], {"transB": 1}, ["y"]),
    ("FusedGemm", [f(3, 4), f(4, 5), f(5)], {"activation": "LeakyRelu", "activation_alpha": 0.2}, ["y"]),
    ("FusedGemm", [f(3, 4), f(4, 5), f(5)], {"activation": "Relu", "alpha": 0.3}, ["y"]),
    ("FusedConv", [IMAGE, KERNEL, f(4)], {"activation": "Relu", "pads": [1] * 4}, ["y"]),
    ("FusedConv", [IMAGE, KERNEL, f(4), f(1, 4, 3, 3)], {"activation": "Clip", "activation_params": [0.0, 1.0]}, ["y"]),
    ("FusedConv", [IMAGE, KERNEL], {"activation": "HardSigmoid", "activation_params": [0.3, 0.6]}, ["y"]),
    ("SkipLayerNormalization", [X, QKV[0], G, f(8), f(8)], {"epsilon": 1e-5}, ["y", "", "", "sum"]),
    ("SkipLayerNormalization", [X, f(1, 3, 8), G], {}, ["y"]),
    ("SkipSimplifiedLayerNormalization", [X, QKV[0], G, f(8)], {}, ["y", "", "", "sum"]),
    ("EmbedLayerNormalization", [ids(9, 2, 3), ids(2, 2, 3), *TABLES, G, f(8), MASK], {}, ["y", "mask"]),
    ("EmbedLayerNormalization", [ids(9, 2, 3), None, *TABLES[:2], None, G, f(8)], {}, ["y", "mask"]),
    ("MultiHeadAttention", QKV, {"num_heads": 2}, ["y"]),
    ("MultiHeadAttention", [X, f(2, 5, 8), f(2, 5, 8), f(24)], {"num_heads": 4, "scale": 0.3}, ["y"]),
    ("MultiHeadAttention", QKV, {"num_heads": 4, "unidirectional": 1}, ["y"]),
    ("MultiHeadAttention", [f(2, 1, 8), *QKV[1:]], {"num_heads": 2, "unidirectional": 1}, ["y"]),
    ("MultiHeadAttention", [*QKV, None, None, f(1, 2, 3, 3)], {"num_heads": 2}, ["y"]),
    ("Attention", [X, f(8, 24), f(24)], {"num_heads": 2}, ["y"]),
    ("Attention", [X, f(8, 24), f(24)], {"num_heads": 2, "unidirectional": 1}, ["y"]),
]
CARRIED: list[tuple[str, list[Any], dict[str, Any], list[str]]] = [
    ("MultiHeadAttention", [*QKV, None, np.array([2, 3], np.int32)], {"num_heads": 2}, ["y"]),
    ("MultiHeadAttention", [f(2, 2, 8), *QKV[1:]], {"num_heads": 2, "unidirectional": 1}, ["y"]),
    ("MultiHeadAttention", [f(2, 4, 8), *QKV[1:]], {"num_heads": 2, "unidirectional": 1}, ["y"]),
    ("RotaryEmbedding", [f(1, 2, 3, 8), np.array([0]), *CACHES], {}, ["y"]),
    ("Inverse", [f(2, 3, 3)], {}, ["y"]),
    ("CDist", [f(3, 4), f(5, 4)], {"metric": "sqeuclidean"}, ["y"]),
]


def named(case: tuple[str, list[Any], dict[str, Any], list[str]]) -> str:
    return f"{case[0]}-{len(case[1])}-{'-'.join(case[2])}"


def judged(op: str, operands: list[Any], attributes: Mapping[str, Any], outputs: list[str], domain: str) -> list[str]:
    """What stays opaque of the operator's program, whose results are onnxruntime's."""
    inputs = {f"x{i}": np.asarray(a) for i, a in enumerate(operands) if a is not None}
    given = ["" if a is None else f"x{i}" for i, a in enumerate(operands)]
    graph = helper.make_graph(
        [helper.make_node(op, given, outputs, domain=domain, **attributes)],
        "g",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for name, a in inputs.items()
        ],
        [helper.make_empty_tensor_value_info(name) for name in outputs if name],
    )
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return assert_as_onnxruntime(model, inputs)


@pytest.mark.parametrize("case", READ, ids=named)
def test_operators_that_are_read_compute_what_onnxruntime_computes(case: tuple[Any, ...]) -> None:
    assert judged(*case, domain="com.microsoft") == []


@pytest.mark.parametrize("case", CARRIED, ids=named)
def test_other_uses_and_operators_are_carried(case: tuple[Any, ...]) -> None:
    assert judged(*case, domain="com.microsoft") == [f"com.microsoft.{case[0]}"]


def unknown(declared: tuple[int, ...] | None) -> onnx.ModelProto:
    """Attention whose shape onnxruntime does not infer, as it has no bias; its lengths are integers."""
    inputs = [helper.make_tensor_value_info("x", 1, (1, 3, 8)), helper.make_tensor_value_info("n", 6, (1,))]
    nodes = [
        helper.make_node("Attention", ["x", "w", "", "n"], ["a"], domain="com.microsoft", num_heads=2),
        helper.make_node("Neg", ["a"], ["y"]),
    ]
    kept = [helper.make_tensor_value_info("a", 1, declared)] if declared else []
    out = helper.make_empty_tensor_value_info("y")
    weights = [numpy_helper.from_array(f(8, 24), "w")]
    graph = helper.make_graph(nodes, "g", inputs, [out], weights, value_info=kept)
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def test_an_unknown_shape_is_that_which_the_file_declares() -> None:
    given = {"x": f(1, 3, 8), "n": np.array([2], np.int32)}
    assert assert_as_onnxruntime(unknown((1, 3, 8)), given) == ["com.microsoft.Attention"]
    with pytest.raises(InputError, match="the shape of its output 'a' cannot be inferred"):
        from_onnx(unknown(None))


def test_a_shape_that_values_decide_is_not_taken_from_a_run() -> None:
    with pytest.raises(InputError, match="the shape of its output 'y' cannot be inferred"):
        judged("Unique", [f(4)], {}, ["y", "places", "counts"], domain="com.microsoft")


@pytest.mark.parametrize("op", UNVERSIONED)
def test_what_the_optimiser_writes_into_the_main_domain_is_read_at_any_opset(op: str) -> None:
    assert judged(op, [X, G], {"epsilon": 1e-6}, ["y"], domain="") == []


@pytest.mark.parametrize("axis", [-1, 1])
def test_what_an_rms_norm_multiplies_by_is_read(axis: int) -> None:
    scale = G if axis == -1 else f(3, 8)
    given = {"epsilon": 1e-2, "axis": axis}
    assert judged("SimplifiedLayerNormalization", [X, scale], given, ["y", "factor"], domain="") == []


def test_every_row_is_judged_here() -> None:
    renamed = {"TransposeMatMul", "LayerNormalization", "SimplifiedLayerNormalization"}  # the last two in ""
    assert {op for op, *_ in READ} == MICROSOFT.keys() - renamed
