"""Small ONNX files that ask for endless time or memory. Right answers: a result or a one-line error, within seconds."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from eqsat.fuzzing.kinds import Fault, as_model, one_piece
from eqsat.fuzzing.oracle import optimised
from eqsat.runs.task import Tell

SECONDS = 30.0
BYTES = 4_000_000_000

steps, files = one_piece, as_model

node: Callable[..., NodeProto] = helper.make_node


def _value(name: str, shape: Sequence[Any] | None = (4,), code: int = TensorProto.FLOAT) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, code, shape)


def _model(
    nodes: Sequence[NodeProto],
    arrays: dict[str, Any],
    inputs: Sequence[ValueInfoProto] | None = None,
    outputs: Sequence[ValueInfoProto] | None = None,
    functions: Sequence[Any] = (),
) -> ModelProto:
    stored = [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]
    given, made = inputs or [_value("x")], outputs or [_value("y", None)]
    graph = helper.make_graph(nodes, "bomb", given, made, stored)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=functions)


def _end(rng: random.Random, name: str) -> list[NodeProto]:
    """A reader of the huge value: all of it, one element, its sum, or its shape."""
    return rng.choice(
        (
            [node("Relu", [name], ["y"])],
            [node("Add", [name, "x"], ["y"])],
            [node("ReduceSum", [name], ["y"], keepdims=0)],
            [node("Gather", [name, "zero"], ["y"])],
            [node("Shape", [name], ["s"]), node("Cast", ["s"], ["y"], to=TensorProto.FLOAT)],
            [node("Cast", [name], ["c"], to=TensorProto.UINT8), node("Cast", ["c"], ["y"], to=TensorProto.FLOAT)],
        )
    )


def _huge(
    rng: random.Random,
    make: Sequence[NodeProto],
    arrays: dict[str, Any] | None = None,
    inputs: Sequence[ValueInfoProto] | None = None,
) -> ModelProto:
    """A model of nodes that make the huge value `b`, and of its reader."""
    return _model([*make, *_end(rng, "b")], {**(arrays or {}), "zero": np.int64(0)}, inputs)


_TO_FLOAT = node("Cast", ["a"], ["b"], to=TensorProto.FLOAT)


def constant_of_shape(rng: random.Random, n: int) -> ModelProto:
    value = rng.choice((np.ones(1, np.float32), np.ones(1, np.uint8), np.ones(1, np.bool_)))
    make = node("ConstantOfShape", ["n"], ["a"], value=numpy_helper.from_array(value))
    return _huge(rng, [make, _TO_FLOAT], {"n": np.array([n, 4])})


def expand(rng: random.Random, n: int) -> ModelProto:
    return _repeated(rng, "Expand", [n, 4], np.ones(4, np.float32))


def tile(rng: random.Random, n: int) -> ModelProto:
    return _repeated(rng, "Tile", [n], np.arange(4, dtype=np.float32))


def _repeated(rng: random.Random, op: str, times: list[int], constant: np.ndarray[Any, Any]) -> ModelProto:
    source = rng.choice(("x", "c", "u"))
    arrays = {"n": np.array(times), "c": constant, "u": np.ones(4, np.uint8)}
    return _huge(rng, [node(op, [source, "n"], ["a"]), _TO_FLOAT], arrays)


def range_(rng: random.Random, n: int) -> ModelProto:
    dtype = rng.choice((np.int64, np.float32, np.float64))
    delta = rng.choice((1, 1, 0.5, 1e-9)) if dtype != np.int64 else rng.choice((1, 2, 0))
    arrays = {"from": dtype(rng.choice((0, 1))), "to": dtype(n), "by": dtype(delta)}
    return _huge(rng, [node("Range", ["from", "to", "by"], ["a"]), _TO_FLOAT], arrays)


def pad(rng: random.Random, n: int) -> ModelProto:
    mode = rng.choice(("constant", "edge", "reflect", "wrap"))
    return _huge(rng, [node("Pad", ["x", "p"], ["b"], mode=mode)], {"p": np.array([n, 1])})


def one_hot(rng: random.Random, n: int) -> ModelProto:
    arrays = {"i": np.array([0, 1, 2, 3]), "n": np.int64(n), "v": np.array([0.0, 1.0], np.float32)}
    return _huge(rng, [node("OneHot", ["i", "n", "v"], ["b"])], arrays)


def eye_like(rng: random.Random, n: int) -> ModelProto:
    make = [node("Expand", ["x", "n"], ["e"]), node(rng.choice(("EyeLike", "Trilu")), ["e"], ["b"])]
    return _huge(rng, make, {"n": np.array([n, 4])})


def resize(rng: random.Random, n: int) -> ModelProto:
    sized = rng.random() < 0.5
    inputs = ["z", "", "", "n"] if sized else ["z", "", "s"]
    arrays = {"n": np.array([1, 1, n, n]), "s": np.array([1, 1, n, n], np.float32), "f": np.array([1, 1, 2, 2])}
    mode = rng.choice(("nearest", "linear", "cubic"))
    make = [node("Reshape", ["x", "f"], ["z"]), node("Resize", inputs, ["b"], mode=mode)]
    return _huge(rng, make, arrays)


def loop(rng: random.Random, n: int) -> ModelProto:
    """A loop of many trips, without end, or with a value that doubles."""
    grow = rng.random() < 0.5
    step = node("Concat", ["v", "v"], ["w"], axis=0) if grow else node("Add", ["v", "v"], ["w"])
    body = helper.make_graph(
        [node("Identity", ["go"], ["on"]), step],
        "body",
        [_value("i", (), TensorProto.INT64), _value("go", (), TensorProto.BOOL), _value("v", None)],
        [_value("on", (), TensorProto.BOOL), _value("w", None)],
    )
    start = rng.choice(("x", "c"))
    trips = rng.choice(("n", ""))
    arrays = {"n": np.int64(n), "true": np.array(True), "c": np.ones(4, np.float32)}
    outputs = [_value("y", (4,))] if rng.random() < 0.7 else None
    last = node("ReduceMax", ["l"], ["y"], keepdims=0) if outputs is None else node("Identity", ["l"], ["y"])
    return _model([node("Loop", [trips, "true", start], ["l"], body=body), last], arrays, outputs=outputs)


def pool(rng: random.Random, n: int) -> ModelProto:
    attributes = rng.choice(
        (
            {"kernel_shape": [n]},
            {"kernel_shape": [2], "pads": [n, n]},
            {"kernel_shape": [2], "strides": [n]},
            {"kernel_shape": [2], "dilations": [n]},
            {"kernel_shape": [n], "pads": [n, n]},
            {"kernel_shape": [1000], "pads": [10**6, 10**6]},
        )
    )
    op = rng.choice(("MaxPool", "AveragePool"))
    if op == "AveragePool":
        attributes.pop("dilations", None)
    return _huge(rng, [node(op, ["z"], ["b"], **attributes)], inputs=[_value("z", (1, 1, 16)), _value("x")])


def conv(rng: random.Random, n: int) -> ModelProto:
    attributes = rng.choice(({"pads": [n, n]}, {"strides": [n]}, {"dilations": [n]}, {"group": n}))
    inputs = [_value("z", (1, 1, 16)), _value("x")]
    return _huge(rng, [node("Conv", ["z", "w"], ["b"], **attributes)], {"w": np.ones((1, 1, 3), np.float32)}, inputs)


def huge_input(rng: random.Random, n: int) -> ModelProto:
    shape = rng.choice(([n], [n, n], [1, n, 2], [2] * 100, [1] * 1000, [1 << 15, 1 << 15]))
    return _model([node("Relu", ["b"], ["y"])], {}, [_value("b", shape)])


def huge_product(rng: random.Random, n: int) -> ModelProto:
    """Products of huge constants that take no space in the file."""
    side = min(n, rng.choice((1 << 12, 1 << 14, 1 << 16)))
    ones = node("ConstantOfShape", ["n"], ["a"], value=numpy_helper.from_array(np.ones(1, np.float32)))
    return _huge(rng, [ones, node("MatMul", ["a", "a"], ["b"])], {"n": np.array([side, side])}, [_value("x", (side,))])


def doubled(rng: random.Random, n: int) -> ModelProto:
    """x = x op x, again and again."""
    count = rng.choice((20, 100, 500))
    op = rng.choice(("Add", "Mul", "Concat", "Sum"))
    count = min(count, 40) if op == "Concat" else count
    extra = {"axis": 0} if op == "Concat" else {}
    nodes = [node(op, [f"v{i}", f"v{i}"], [f"v{i + 1}"], **extra) for i in range(count)]
    return _model([node("Identity", ["x"], ["v0"]), *nodes, node("Identity", [f"v{count}"], ["y"])], {})


def functions(rng: random.Random, n: int) -> ModelProto:
    """Functions, each of which calls the one before twice."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    depth = rng.choice((3, 12, 31, 60))
    made = [helper.make_function("own", "F0", ["a"], ["b"], [node("Relu", ["a"], ["b"])], opsets)]
    for i in range(1, depth):
        calls = [node(f"F{i - 1}", ["a"], ["c"], domain="own"), node(f"F{i - 1}", ["c"], ["b"], domain="own")]
        made.append(helper.make_function("own", f"F{i}", ["a"], ["b"], calls, opsets))
    return _model([node(f"F{depth - 1}", ["x"], ["y"], domain="own")], {}, functions=made)


def nested(rng: random.Random, n: int) -> ModelProto:
    """Ifs inside Ifs."""
    graph = helper.make_graph([node("Relu", ["x"], ["y"])], "g", [], [_value("y", None)])
    for _ in range(rng.choice((2, 10, 20, 28))):
        made = node("If", ["c"], ["y"], then_branch=graph, else_branch=graph if rng.random() < 0.1 else _leaf())
        graph = helper.make_graph([made], "g", [], [_value("y", None)])
    inputs = [_value("x"), *([_value("c", (), TensorProto.BOOL)] if rng.random() < 0.5 else [])]
    return _model(graph.node, {} if len(inputs) > 1 else {"c": np.array(True)}, inputs)


def _leaf() -> Any:
    return helper.make_graph([node("Exp", ["x"], ["y"])], "l", [], [_value("y", None)])


def many(rng: random.Random, n: int) -> ModelProto:
    """Many parts, axes or dims."""
    kind = rng.randrange(5)
    if kind == 0:
        parts = rng.choice((100, 2000))
        names = [f"p{i}" for i in range(parts)]
        nodes = [node("Split", ["b"], names, axis=0), node("Concat", names[::-1], ["y"], axis=0)]
        return _model(nodes, {}, [_value("b", (parts * 2,))])
    if kind == 1:
        count = rng.choice((10, 65, 200))
        return _model([node("Unsqueeze", ["x", "a"], ["y"])], {"a": np.arange(count)})
    if kind == 2:
        count = rng.choice((10, 40, 70))
        nodes = [node("Reshape", ["x", "s"], ["r"]), node("Transpose", ["r"], ["y"], perm=list(range(count))[::-1])]
        return _model(nodes, {"s": np.array([4] + [1] * (count - 1))})
    if kind == 3:
        shape = node("ConstantOfShape", ["n"], ["s"], value=numpy_helper.from_array(np.array([1])))
        return _model([shape, node("Expand", ["x", "s"], ["y"])], {"n": np.array([n])})
    letters = "abcdefghijklmnopqrstuvwxyz"[: rng.choice((8, 26))]
    equation = ",".join(letters) + "->"
    return _model([node("Einsum", ["x"] * len(letters), ["y"], equation=equation)], {})


BOMBS = (
    *(constant_of_shape, expand, tile, range_, pad, one_hot, eye_like, resize, loop, pool, conv, huge_input),
    *(huge_product, doubled, functions, nested, many),
)
SIZES = (10**6, 1 << 26, 1 << 30, (1 << 31) - 1, 1 << 31, 1 << 33, 10**12, 1 << 48, (1 << 62) + 1)


def case(seed: int, kept: Sequence[int] | None, models: Sequence[str] = ()) -> bytes:
    """The bytes of a file."""
    rng = random.Random(seed)
    return BOMBS[seed % len(BOMBS)](rng, rng.choice(SIZES)).SerializeToString()


def judge(data: bytes, tell: Tell) -> str:
    """Read and optimise one."""
    best = optimised(data, 1.0)
    if best is None:
        return "refused"
    if not best.report["check"]["passed"]:
        raise Fault("a result that was not checked")
    return "result"
