"""ONNX's own node tests, with the inputs that decide shapes turned into constants."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from eqsat.frontends.onnx.file.load import DTYPE_OF_CODE

EXPANDED = "expanded"
"""The group of the cases that spell an operator out as its function body."""

# Inputs by position that decide shapes (or, for Dropout, whether there is any randomness).
_DECIDING: dict[str, tuple[int, ...]] = {
    "CenterCropPad": (1,),
    "ConstantOfShape": (0,),
    "CumSum": (1,),
    "Dropout": (1, 2),
    "Expand": (1,),
    "OneHot": (1,),
    "Pad": (1, 2, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
}

_NEED_OTHERS = frozenset({"ImageDecoder"})  # its reference needs Pillow, which the tests do without


@dataclass(frozen=True)
class Case:
    """One node test.

    Attributes:
        op: the operator it tests, or EXPANDED.
        inputs, outputs: values by name, the deciding inputs left out; None where a value is no tensor.
        typed: whether every value at the border has an element type that programs have.
    """

    name: str
    op: str
    model: onnx.ModelProto
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    rtol: float
    typed: bool


@lru_cache(maxsize=1)
def cases() -> dict[str, list[Case]]:
    """Operator to its cases."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases overflow and divide by zero on purpose
        found = [_case(test) for test in collect_testcases() if test.data_sets]
    groups: dict[str, list[Case]] = {}
    for case in found:
        if case.op not in _NEED_OTHERS:
            groups.setdefault(case.op, []).append(case)
    return groups


def _case(test: Any) -> Case:
    model = onnx.ModelProto()
    model.CopyFrom(test.model)
    graph = model.graph
    values = dict(zip([i.name for i in graph.input], map(_array, test.data_sets[0][0]), strict=True))
    for name in _deciding(graph) & {name for name, value in values.items() if isinstance(value, np.ndarray)}:
        graph.initializer.append(numpy_helper.from_array(values.pop(name), name))
    kept = [value for value in graph.input if value.name in values]
    del graph.input[:]
    graph.input.extend(kept)
    outputs = dict(zip([o.name for o in graph.output], map(_array, test.data_sets[0][1]), strict=True))
    operators = {node.op_type for node in graph.node}
    op = operators.pop() if len(graph.node) == 1 and "_expanded" not in test.name else EXPANDED
    typed = all(value.type.tensor_type.elem_type in DTYPE_OF_CODE for value in [*graph.input, *graph.output])
    return Case(test.name, op, model, values, outputs, test.rtol, typed)


def _deciding(graph: onnx.GraphProto) -> set[str]:
    names = set()
    for node in graph.node:
        positions = (1,) if node.op_type.startswith("Reduce") else _DECIDING.get(node.op_type, ())
        names |= {node.input[i] for i in positions if i < len(node.input)}
    return names - {""}


def _array(value: Any) -> Any:
    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic | int | float) else value
