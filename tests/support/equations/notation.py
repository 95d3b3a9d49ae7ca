"""Equations as text, and each side as an ONNX model.

An entry of a table is `name | inputs` with both sides below it, the second after `==`. Inputs are
`a=3x5 p=bool:3x5 s=()`: a name, an element type where it is not float32, and dims. A side is a Python expression: a
name in capitals is an ONNX operator (tensor operands by position, where numbers and lists become constants; attributes
by name), `[i]` picks an output, and

- `+ - * / ** @ < <= > >= -x ~x` are the operators of NumPy, `t(x)` the transpose of a matrix, `cat(axis, x, ...)`;
- `conv(x, w)`, `maxpool(x, k)`, `avgpool(x, k)` keep the image's size; `stride=2`, `pad=0`, `group=2` as they say;
- `Cast(x, to="int32")` takes a name, and 1e999 is infinity;
- `enlarge(w, k)` centres a filter in k x k zeros, as TASO does.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

OPSET = 18

_BINARY = {ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.Div: "Div", ast.Pow: "Pow", ast.MatMult: "MatMul"}
_COMPARE = {ast.Lt: "Less", ast.LtE: "LessOrEqual", ast.Gt: "Greater", ast.GtE: "GreaterOrEqual"}
_BOOLEAN = frozenset({"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "And", "Or", "Not", "Xor"})
_INTEGRAL = frozenset({"ArgMax", "ArgMin", "Shape"})
_INDICES = {"Slice": 1, "Pad": 1, "Reshape": 1, "Expand": 1, "Tile": 1, "Squeeze": 1, "Unsqueeze": 1, "Split": 1,
            "Gather": 1, "ReduceSum": 1, "ReduceMax": 1, "ReduceMin": 1, "ReduceMean": 1, "ReduceProd": 1,
            "ReduceL2": 1, "ReduceSumSquare": 1, "ReduceLogSumExp": 1, "ReduceL1": 1, "Range": 0}  # fmt: skip
"""The operand from which numbers are indices (int64) rather than values of the tensor's own type."""


@dataclass(frozen=True, slots=True)
class Equation:
    """One entry of a table; `family` is the table's."""

    family: str
    name: str
    inputs: str
    left: str
    right: str

    @property
    def id(self) -> str:
        return f"{self.family}: {self.name}"

    def models(self) -> tuple[onnx.ModelProto, onnx.ModelProto]:
        """Both sides. The second declares every input too, so that both can be fed the same."""
        return model(self.left, self.inputs), model(self.right, self.inputs)


def table(family: str, text: str) -> Iterator[Equation]:
    """The entries of a table.

    Raises:
        ValueError: one is not of the form that the module describes.
    """
    entries: list[list[str]] = []
    for line in text.strip().splitlines():
        if not line.startswith(" "):
            entries.append([line])
        else:
            entries[-1].append(line.strip())
    for head, *body in entries:
        name, inputs = (part.strip() for part in head.split(" | "))
        (middle,) = (i for i, line in enumerate(body) if line.startswith("== "))
        left, right = " ".join(body[:middle]), " ".join(body[middle:])
        yield Equation(family, name, inputs, left, right.removeprefix("== "))


def model(expression: str, inputs: str) -> onnx.ModelProto:
    """An ONNX model whose output `result` is the expression."""
    graph = _Graph()
    values = [graph.input(*_parsed(part)) for part in inputs.split()]
    result = graph.value(ast.parse(expression, mode="eval").body)
    graph.nodes.append(helper.make_node("Identity", [result.name], ["result"]))
    proto = helper.make_graph(graph.nodes, "equation", values, [onnx.ValueInfoProto(name="result")], graph.constants)
    built = helper.make_model(proto, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    built = shape_inference.infer_shapes(built, strict_mode=True, data_prop=True)
    onnx.checker.check_model(built)
    return built


def _parsed(text: str) -> tuple[str, str, tuple[int, ...]]:
    name, _, spec = text.partition("=")
    dtype, _, dims = spec.rpartition(":")
    return name, dtype or "float32", tuple(int(d) for d in dims.split("x")) if dims != "()" else ()


@dataclass(frozen=True, slots=True)
class _Value:
    name: str
    dtype: str


class _Graph:
    """Nodes and constants of a model under construction."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: dict[str, _Value] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}

    def input(self, name: str, dtype: str, shape: tuple[int, ...]) -> onnx.ValueInfoProto:
        self.inputs[name] = _Value(name, dtype)
        self.shapes[name] = shape
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)

    def constant(self, value: Any, dtype: str) -> _Value:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(value, dtype=dtype), name))
        return _Value(name, dtype)

    def node(self, kind: str, operands: list[_Value], outputs: int = 1, **attrs: Any) -> list[_Value]:
        names = [f"t{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, [v.name for v in operands], names, **attrs))
        dtype = _result_dtype(kind, [v.dtype for v in operands], attrs)
        return [_Value(name, dtype) for name in names]

    def value(self, node: ast.expr) -> _Value:
        """A single tensor."""
        values = self.values(node)
        if len(values) != 1:
            raise ValueError(f"{ast.unparse(node)} has {len(values)} outputs; pick one with [i]")
        return values[0]

    def values(self, node: ast.expr) -> list[_Value]:
        """Every output of an expression."""
        match node:
            case ast.Name(id=name):
                return [self.inputs[name]]
            case ast.BinOp(left=a, op=op, right=b):
                return self._applied(_BINARY[type(op)], [a, b])
            case ast.Compare(left=a, ops=[op], comparators=[b]):
                return self._applied(_COMPARE[type(op)], [a, b])
            case ast.UnaryOp(op=ast.USub(), operand=a):
                return self._applied("Neg", [a])
            case ast.UnaryOp(op=ast.Invert(), operand=a):
                return self._applied("Not", [a])
            case ast.Subscript(value=a, slice=ast.Constant(value=int(i))):
                return [self.values(a)[i]]
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
                attrs = {str(k.arg): ast.literal_eval(k.value) for k in keywords}
                if name in _SHORT:
                    return _SHORT[name](self, *args, **attrs)
                return self._applied(name, args, **attrs)
        raise ValueError(f"not an expression of this notation: {ast.unparse(node)}")

    def _applied(self, kind: str, args: list[ast.expr], **attrs: Any) -> list[_Value]:
        literals = {i: value for i, arg in enumerate(args) if (value := _literal(arg)) is not None}
        operands = {i: self.value(arg) for i, arg in enumerate(args) if i not in literals}
        own = next((v.dtype for v in operands.values() if v.dtype != "bool" or kind in _BOOLEAN), "float32")
        for i, value in literals.items():
            indices = kind in _INDICES and i >= _INDICES[kind] and (kind, i) != ("Pad", 2)
            operands[i] = self.constant(value, "int64" if indices else own)
        if kind == "Cast":
            attrs["to"] = helper.np_dtype_to_tensor_dtype(np.dtype(attrs["to"]))
        outputs = len(literals[1]) if kind == "Split" else 1
        return self.node(kind, [operands[i] for i in range(len(args))], outputs, **attrs)

    # --- short forms

    def transposed(self, x: ast.expr) -> list[_Value]:
        return self.node("Transpose", [self.value(x)], perm=[1, 0])

    def joined(self, axis: ast.expr, *xs: ast.expr) -> list[_Value]:
        return self.node("Concat", [self.value(x) for x in xs], axis=_literal(axis))

    def convolved(
        self, x: ast.expr, w: ast.expr, k: Any = 3, stride: int = 1, pad: Any = None, group: int = 1
    ) -> list[_Value]:
        high, wide = (k, k) if isinstance(k, int) else k
        pads = [high // 2, wide // 2] * 2 if pad is None else [pad] * 4
        operands = [self.value(x), self.value(w)]
        return self.node("Conv", operands, strides=[stride] * 2, pads=pads, group=group, kernel_shape=[high, wide])

    def max_pooled(self, x: ast.expr, k: ast.expr, stride: int = 1, pad: int | None = None) -> list[_Value]:
        return self._pooled("MaxPool", x, k, stride, pad)

    def average_pooled(self, x: ast.expr, k: ast.expr, stride: int = 1, pad: int | None = None) -> list[_Value]:
        return self._pooled("AveragePool", x, k, stride, pad, count_include_pad=1)

    def _pooled(self, kind: str, x: ast.expr, k: ast.expr, stride: int, pad: int | None, **attrs: int) -> list[_Value]:
        size = ast.literal_eval(k)
        pads = [size // 2 if pad is None else pad] * 4
        return self.node(kind, [self.value(x)], kernel_shape=[size] * 2, strides=[stride] * 2, pads=pads, **attrs)

    def enlarged(self, w: ast.expr, k: ast.expr, size: Any = 1) -> list[_Value]:
        """A filter of `size` taps (high, wide) in the middle of k x k."""
        full = ast.literal_eval(k)
        high, wide = (size, size) if isinstance(size, int) else size
        amounts = [0, 0, (full - high) // 2, (full - wide) // 2] * 2
        return self.node("Pad", [self.value(w), self.constant(amounts, "int64")])


_SHORT: dict[str, Callable[..., list[_Value]]] = {
    "t": _Graph.transposed,
    "cat": _Graph.joined,
    "conv": _Graph.convolved,
    "maxpool": _Graph.max_pooled,
    "avgpool": _Graph.average_pooled,
    "enlarge": _Graph.enlarged,
}


def _literal(node: ast.expr) -> Any:
    """A number or a list; None for anything else."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def _result_dtype(kind: str, operands: list[str], attrs: dict[str, Any]) -> str:
    if kind in _BOOLEAN:
        return "bool"
    if kind in _INTEGRAL:
        return "int64"
    if kind == "Cast":
        return helper.tensor_dtype_to_np_dtype(attrs["to"]).name
    return operands[1] if kind == "Where" else operands[0]
