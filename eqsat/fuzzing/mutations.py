"""Mutations of ONNX models: each takes a model and draws what it changes."""

from __future__ import annotations

import random
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, helper, numpy_helper

NUMBERS = (0, 1, -1, 2, 3, -2, 5, 7, 64, 1000, 10**6, 2**31 - 1, -(2**31), 2**31, 2**40, 2**62, 2**63 - 1, -(2**63))
STRINGS = (
    *("", "x", "\0", "\x1b[31m", "é\u202e", "a" * 5000, "../../etc/passwd", "{}", "%s", "y" * 70, "NOTSET", "linear"),
)

NESTED_BYTES = 100_000
"""Graphs of larger models are not nested further: both branches of an If hold the graph, which doubles it."""


Rng = random.Random
Mutation = Callable[[Rng, ModelProto], None]


def _graphs(model: ModelProto) -> list[GraphProto]:
    out = [model.graph]
    for graph in out:
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    out.append(attribute.g)
                out.extend(attribute.graphs)
    return out


def _graph(rng: Rng, model: ModelProto) -> GraphProto:
    return rng.choice(_graphs(model))


def _node(rng: Rng, model: ModelProto) -> Any:
    nodes = [node for graph in _graphs(model) for node in graph.node]
    return rng.choice(nodes) if nodes else onnx.NodeProto()


def _tensor(rng: Rng, model: ModelProto) -> TensorProto:
    tensors = [t for graph in _graphs(model) for t in graph.initializer]
    tensors += [a.t for g in _graphs(model) for n in g.node for a in n.attribute if a.HasField("t")]
    return rng.choice(tensors) if tensors else TensorProto()


def _values(graph: GraphProto) -> list[Any]:
    return [*graph.input, *graph.output, *graph.value_info]


def _number(rng: Rng) -> int:
    return rng.choice(NUMBERS)


def drop_attribute(rng: Rng, model: ModelProto) -> None:
    node = _node(rng, model)
    if node.attribute:
        del node.attribute[rng.randrange(len(node.attribute))]


def set_attribute(rng: Rng, model: ModelProto) -> None:
    """Another value of the same type."""
    node = _node(rng, model)
    if not node.attribute:
        return
    a = rng.choice(node.attribute)
    if a.type == AttributeProto.INT:
        a.i = _number(rng)
    elif a.type == AttributeProto.FLOAT:
        a.f = rng.choice((0.0, -1.0, 1e38, float("nan"), float("inf"), 0.5))
    elif a.type == AttributeProto.STRING:
        a.s = rng.choice(STRINGS).encode() if rng.random() < 0.8 else b"\xff\xfe"
    elif a.type == AttributeProto.INTS:
        if a.ints and rng.random() < 0.6:
            a.ints[rng.randrange(len(a.ints))] = _number(rng)
        else:
            a.ints[:] = [_number(rng) for _ in range(rng.randint(0, 4))]
    elif a.type == AttributeProto.FLOATS:
        a.floats[:] = [rng.choice((0.0, 1.0, float("nan"))) for _ in range(rng.randint(0, 3))]


def retype_attribute(rng: Rng, model: ModelProto) -> None:
    node = _node(rng, model)
    if not node.attribute:
        return
    a = rng.choice(node.attribute)
    if rng.random() < 0.3:
        a.type = rng.randint(0, 14)
        return
    value: Any = rng.choice(
        (3, -1, 0.5, "text", [1, 2], [0.5], ["a"], b"\xff", model.graph, numpy_helper.from_array(np.ones(2)))
    )
    a.CopyFrom(helper.make_attribute(a.name, value))


def add_attribute(rng: Rng, model: ModelProto) -> None:
    node = _node(rng, model)
    names = (
        *("axis", "axes", "keepdims", "perm", "to", "value", "mode", "alpha"),
        *("pads", "group", "epsilon", "body", "x"),
    )
    node.attribute.append(helper.make_attribute(rng.choice(names), rng.choice((0, 1, 7, -1, 0.5, "s", [0, 1]))))


def set_dim(rng: Rng, model: ModelProto) -> None:
    """Of an initializer, an input, an output or a value in between."""
    if rng.random() < 0.4:
        tensor = _tensor(rng, model)
        if tensor.dims and rng.random() < 0.8:
            tensor.dims[rng.randrange(len(tensor.dims))] = _number(rng)
        else:
            tensor.dims.append(_number(rng))
        return
    values = _values(_graph(rng, model))
    if not values:
        return
    shape = rng.choice(values).type.tensor_type.shape
    kind = rng.random()
    if shape.dim and kind < 0.6:
        dim = rng.choice(shape.dim)
        if rng.random() < 0.8:
            dim.dim_value = rng.choice((1, 2, 3, 5)) if rng.random() < 0.5 else _number(rng)
        else:
            dim.dim_param = rng.choice(STRINGS).replace("\0", "")
    elif shape.dim and kind < 0.8:
        del shape.dim[rng.randrange(len(shape.dim))]
    else:
        shape.dim.add().dim_value = rng.choice((0, 1, 2, 2**40))


def set_type(rng: Rng, model: ModelProto) -> None:
    code = rng.randint(0, 26)
    if rng.random() < 0.5:
        _tensor(rng, model).data_type = code
        return
    values = _values(_graph(rng, model))
    if values:
        value = rng.choice(values)
        if rng.random() < 0.1:
            value.type.ClearField("value")
        elif rng.random() < 0.1:
            value.type.sequence_type.elem_type.tensor_type.elem_type = 1
        else:
            value.type.tensor_type.elem_type = code


def rewire(rng: Rng, model: ModelProto) -> None:
    """Inputs of a node dropped, swapped, doubled, or replaced by another value."""
    node = _node(rng, model)
    graph = _graph(rng, model)
    known = [v.name for v in (*graph.input, *graph.initializer)] + [n for x in graph.node for n in x.output]
    kind = rng.randrange(6)
    if not node.input or kind == 0:
        node.input.append(rng.choice([*known, "", "nowhere"]))
        return
    at = rng.randrange(len(node.input))
    if kind == 1:
        del node.input[at]
    elif kind == 2:
        node.input[at] = ""
    elif kind == 3 and len(node.input) > 1:
        node.input[0], node.input[at] = node.input[at], node.input[0]
    else:
        node.input[at] = rng.choice([*known, node.input[at]])


def change_outputs(rng: Rng, model: ModelProto) -> None:
    node = _node(rng, model)
    kind = rng.randrange(4)
    if kind == 0 or not node.output:
        node.output.append(rng.choice(["more", "", *node.output]))
    elif kind == 1:
        del node.output[-1]
    elif kind == 2:
        node.output[rng.randrange(len(node.output))] = ""
    else:
        del model.graph.output[rng.randrange(len(model.graph.output) or 1) :]


def change_data(rng: Rng, model: ModelProto) -> None:
    """The values of a tensor: cut, lengthened, in the wrong field, external, or numbers that decide shapes."""
    tensor = _tensor(rng, model)
    kind = rng.randrange(7)
    if kind == 0:
        tensor.raw_data = tensor.raw_data[: rng.randrange(len(tensor.raw_data) + 1)]
    elif kind == 1:
        tensor.raw_data += b"\xff" * rng.choice((1, 4, 8))
    elif kind == 2:
        tensor.float_data.extend([1.0, float("nan")])
    elif kind == 3:
        tensor.data_location = TensorProto.EXTERNAL
        for key, values in (
            ("location", ("weights", "../x", "/dev/zero", "/etc/passwd", "", "a\0b", ".", "model.onnx", "l" * 5000)),
            ("offset", ("0", "-8", "x", str(2**70))),
            ("length", ("8", "-1", "1e3", str(2**70))),
        ):
            if rng.random() < 0.8:
                tensor.external_data.add(key=key, value=rng.choice(values))
    elif kind == 4 and tensor.data_type in (6, 7) and tensor.raw_data:
        size = 4 if tensor.data_type == 6 else 8
        count = len(tensor.raw_data) // size
        if count:
            values = np.frombuffer(tensor.raw_data[: count * size], f"<i{size}").copy()
            values[rng.randrange(count)] = np.int64(_number(rng)).astype(values.dtype)
            tensor.raw_data = values.tobytes()
    elif kind == 5:
        tensor.ClearField("raw_data")
    else:
        tensor.string_data.append(b"\xff")


def mangle_name(rng: Rng, model: ModelProto) -> None:
    graph, new = _graph(rng, model), rng.choice(STRINGS)
    node = _node(rng, model)
    kind = rng.randrange(7)
    if kind == 0:
        node.name = new
    elif kind == 1:
        node.op_type = new
    elif kind == 2:
        node.domain = rng.choice((new, "com.microsoft", "ai.onnx.ml", "ai.onnx"))
    elif kind == 3 and graph.input:
        _rename(model, rng.choice(graph.input).name, new)
    elif kind == 4 and node.output:
        _rename(model, rng.choice(node.output), new)
    elif kind == 5 and graph.initializer:
        _rename(model, rng.choice(graph.initializer).name, new)
    else:
        graph.name = new


def _rename(model: ModelProto, old: str, new: str) -> None:
    for graph in _graphs(model):
        for named in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
            if named.name == old:
                named.name = new
        for node in graph.node:
            node.input[:] = [new if n == old else n for n in node.input]
            node.output[:] = [new if n == old else n for n in node.output]


@cache
def _operators() -> list[str]:
    return sorted({schema.name for schema in onnx.defs.get_all_schemas()})


def replace_operator(rng: Rng, model: ModelProto) -> None:
    _node(rng, model).op_type = rng.choice(_operators())


def change_nodes(rng: Rng, model: ModelProto) -> None:
    """Nodes removed, doubled, reordered, or a new one that reads existing values."""
    graph = _graph(rng, model)
    if not graph.node:
        return
    kind = rng.randrange(4)
    at = rng.randrange(len(graph.node))
    if kind == 0:
        del graph.node[at]
    elif kind == 1:
        graph.node.add().CopyFrom(graph.node[at])
    elif kind == 2:
        nodes = list(graph.node)
        rng.shuffle(nodes)
        del graph.node[:]
        graph.node.extend(nodes)
    else:
        known = [v.name for v in graph.input] + [n for x in graph.node for n in x.output if n]
        made = f"more{rng.randrange(1000)}"
        inputs = [rng.choice(known) for _ in range(rng.randint(0, 3))] if known else []
        graph.node.add().CopyFrom(helper.make_node(rng.choice(_operators()), inputs, [made]))
        if rng.random() < 0.5:
            graph.output.add().name = made


def change_opset(rng: Rng, model: ModelProto) -> None:
    if model.opset_import and rng.random() < 0.8:
        model.opset_import[0].version = rng.choice((0, 1, 6, 7, 9, 10, 11, 12, 13, 17, 18, 21, 23, 25, 99, -1, 2**62))
    else:
        model.opset_import.add(domain=rng.choice(STRINGS[:4]), version=rng.choice((0, 1, 3)))
    if rng.random() < 0.3:
        model.ir_version = rng.choice((0, 3, 10, 99, 2**62))


def nest(rng: Rng, model: ModelProto) -> None:
    """The graph as the branches of an If, or the body of a Loop, sometimes many times."""
    for _ in range(rng.choice((1, 1, 2, 30))):
        inner = deepcopy(model.graph)
        if rng.random() < 0.7:
            outputs = [v.name for v in inner.output]
            del inner.input[:]
            node = helper.make_node("If", ["condition"], outputs, then_branch=inner, else_branch=inner)
        else:
            names = [v.name for v in model.graph.input]
            node = helper.make_node("Loop", ["trips", "", *names], [v.name for v in inner.output], body=inner)
        outer = model.graph
        del outer.node[:]
        outer.node.append(node)
        taken = {t.name for t in outer.initializer}
        for name, value in (("condition", np.array(rng.random() < 0.7)), ("trips", np.array(_number(rng)))):
            if name not in taken:
                outer.initializer.append(numpy_helper.from_array(value, name))
        if model.ByteSize() > NESTED_BYTES:
            return


def wrap_in_function(rng: Rng, model: ModelProto) -> None:
    """The nodes as a function of the model, sometimes one that calls itself."""
    graph = model.graph
    nodes = list(graph.node)
    names = [v.name for v in graph.input]
    if rng.random() < 0.3:
        nodes.append(helper.make_node("F", names, ["again"], domain="own"))
    opsets = list(model.opset_import) or [helper.make_opsetid("", 17)]
    outputs = [v.name for v in graph.output]
    opsets = [*opsets, helper.make_opsetid("own", 1)]
    model.functions.append(helper.make_function("own", "F", names, outputs, nodes, opsets))
    del graph.node[:]
    graph.node.append(helper.make_node("F", names, outputs, domain="own"))
    model.opset_import.append(helper.make_opsetid("own", 1))


def odd_fields(rng: Rng, model: ModelProto) -> None:
    """Fields that are rarely used."""
    kind = rng.randrange(5)
    if kind == 0:
        model.graph.sparse_initializer.add().dims.append(3)
    elif kind == 1:
        model.graph.quantization_annotation.add().tensor_name = "x"
    elif kind == 2:
        model.training_info.add()
    elif kind == 3:
        model.metadata_props.add(key="a", value="\0")
    else:
        model.ClearField("graph")


STRUCTURAL: tuple[Mutation, ...] = (
    *(drop_attribute, set_attribute, set_attribute, retype_attribute, add_attribute, set_dim, set_dim, set_type),
    *(rewire, rewire, change_outputs, change_data, change_data, mangle_name, replace_operator, change_nodes),
    *(change_opset, nest, wrap_in_function, odd_fields),
)


def flip(rng: Rng, data: bytes) -> bytes:
    """Bytes changed, cut out, doubled, or cut off at the end."""
    if not data:
        return data
    out = bytearray(data)
    at = rng.randrange(len(out))
    kind = rng.randrange(5)
    if kind <= 1:
        for _ in range(rng.randint(1, 4)):
            out[rng.randrange(len(out))] = rng.randrange(256)
    elif kind == 2:
        del out[at : at + rng.randint(1, 16)]
    elif kind == 3:
        out[at:at] = out[at : at + rng.randint(1, 64)]
    else:
        del out[at:]
    return bytes(out)
