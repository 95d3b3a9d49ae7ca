"""onnxruntime as an evaluator of single nodes, and the operators for which it is asked in place of onnx's reference."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from math import inf
from typing import TYPE_CHECKING, Any

from eqsat.errors import InputError

if TYPE_CHECKING:
    from onnx import ModelProto

WRONG: Mapping[str, float] = {"GRU": inf, "LSTM": inf, "MaxPool": inf, "RNN": inf, "RoiAlign": 16}
"""Operators whose reference (onnx 1.23) computes something else, to the version that it is right from: it ignores
attributes or inputs of recurrent layers, places windows and their maxima otherwise, and reads boxes by later rules."""

WRONG_INSIDE: Mapping[str, float] = {
    **WRONG,
    "AveragePool": inf,
    "BatchNormalization": 14,
    "Dropout": 12,
    "GlobalMaxPool": inf,
    "GridSample": inf,
    "Hardmax": 13,
    "LRN": inf,
    "LogSoftmax": 13,
    "LpNormalization": inf,
    "LpPool": inf,
    "Resize": inf,
    "Slice": inf,
    "Softmax": 13,
}
"""These, and others that become terms outside of loops. Their reference takes old operators for later ones, places the
last windows otherwise, normalises along other axes or by sums with signs, samples at other coordinates, and ends slices
elsewhere that lie outside."""


def session(proto: ModelProto, name: str) -> Any:
    """A session for an operator that onnx has no reference for (vendor domains), or a wrong one."""
    try:
        import onnxruntime

        state: Any = import_module("onnxruntime.capi.onnxruntime_pybind11_state")  # where its errors are
    except ImportError:
        raise InputError(
            f"operator {name} has no reference implementation to run; install onnxruntime or replace it"
        ) from None
    try:
        return onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    except (state.Fail, state.InvalidGraph, state.NotImplemented, state.InvalidArgument) as error:
        raise InputError(f"operator {name} cannot be run here: {one_line_of(error)}; replace it in the model") from None


def one_line_of(error: Exception) -> str:
    """What an error of a library says, in one line."""
    return " ".join(str(error).split())[:200] or type(error).__name__
