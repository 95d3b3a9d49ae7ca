"""The operators of a model that follow its program, and the values with which the program ends for them.

They are kept as they are. ONNX's type inference checks them, given the types of the values that they read. Operators of
old opsets are converted to the oldest opset that models are written at.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from eqsat.base.numerics import Array
from eqsat.errors import InputError
from eqsat.frontends.onnx.file.load import (
    CODE_OF_DTYPE,
    DTYPE_OF_CODE,
    OLDEST_OPSET,
    domain_of,
    make_tensor,
    subgraphs,
    value_info,
)
from eqsat.frontends.onnx.file.types import declared
from eqsat.frontends.onnx.operators.node import Constants
from eqsat.frontends.onnx.read.convert import Split, Value
from eqsat.frontends.onnx.read.graph import describe
from eqsat.frontends.onnx.read.opaque import reads, same_form, title, with_bodies
from eqsat.frontends.onnx.read.runtime import one_line_of
from eqsat.program.ir import After
from eqsat.program.term import ConstArray, Term

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

ONLY_HEAD = (
    "With such an operator, a model has a program only before it: eqsat optimize, explain and sweep take that, "
    "in Python from_onnx(model, head=True)"
)
"""The end of messages on a model that is to be one program."""

_PARAMETER_ELEMENTS = 1 << 10
"""Largest constants, in elements, whose values shape inference is told: shapes, axes, scales."""


def can_be_held(value: ValueInfoProto) -> bool:
    """Whether an input is what a program can take: a tensor of numbers whose rank is known."""
    type_ = declared(value)
    return type_ is not None and type_.shape is not None and type_.code in DTYPE_OF_CODE


def last_values(
    split: Split, outputs: Sequence[ValueInfoProto], inputs: Sequence[Term], constants: Constants
) -> dict[str, Term]:
    """The values that a program computes for the operators that follow it; inputs of the model, which these read from
    there, only where the program has no output otherwise."""
    read = {name: split.env[name] for name in _reads(split)}
    varying = {name: value for name, value in read.items() if _constant(value, constants) is None}
    terms = {name: value for name, value in varying.items() if isinstance(value, Term)}
    computed = {name: term for name, term in terms.items() if not _is_input(name, term)}
    made = any(value.name not in split.after for value in outputs)
    return computed if computed or made else {name: term for name, term in terms.items() if term in inputs}


def after(
    split: Split,
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    opsets: Mapping[str, int],
    constants: Constants,
    label: str,
) -> After:
    """The operators that follow the program.

    Args:
        inputs, outputs: those of the model, in order; inputs with a default value are left out.
        opsets: domain to version.

    Raises:
        InputError: ONNX finds that they do not fit together, or they are of an opset that cannot be converted.
    """
    read = {name: split.env[name] for name in _reads(split)}
    arrays = {name: array for name, value in read.items() if (array := _constant(value, constants)) is not None}
    made = _Following(list(split.following), {**opsets, "": max(opsets.get("", OLDEST_OPSET), OLDEST_OPSET)}, [])
    if made.nodes:
        ends = [value for value in outputs if value.name in split.after]
        model = _model(made.nodes, _given(inputs, split.after, read, arrays), ends, arrays, opsets)
        inferred = {value.name: value for value in _inferred(model, label).graph.output}
        outputs = [value if _has_shape(value) else inferred.get(value.name, value) for value in outputs]
        if not all(same_form(node, opsets.get("", OLDEST_OPSET), made.opsets[""]) for node in made.nodes):
            made = _converted(model, made.opsets, label)
    others = [make_tensor(array, name) for name, array in arrays.items() if not _is_held(array)]
    kept = _model(made.nodes, inputs, outputs, {}, made.opsets)
    kept.graph.initializer.extend([*others, *made.constants])
    return After(
        operators=tuple((title(node), next(filter(None, node.output), "")) for node in split.following),
        inputs=tuple(value.name for value in inputs),
        outputs=tuple(value.name for value in outputs),
        unheld=tuple(value.name for value in inputs if value.name in split.after),
        constants={name: _held(read[name], array) for name, array in arrays.items() if _is_held(array)},
        spec=kept.SerializeToString(deterministic=True),
    )


class _Following(NamedTuple):
    """The nodes that follow, the versions of their domains, and constants that were made for them."""

    nodes: Sequence[NodeProto]
    opsets: Mapping[str, int]
    constants: Sequence[TensorProto]


def _given(
    inputs: Sequence[ValueInfoProto], unheld: Container[str], read: Mapping[str, Value], arrays: Mapping[str, Array]
) -> list[ValueInfoProto]:
    """The values that the nodes read, declared as inputs; small constants are left out."""
    terms = {name: value for name, value in read.items() if isinstance(value, Term) and not _is_told(arrays.get(name))}
    own = [value for value in inputs if value.name in unheld]
    return [*own, *(value_info(name, term.dtype, term.shape) for name, term in terms.items())]


def _is_told(array: Array | None) -> bool:
    return array is not None and (array.size <= _PARAMETER_ELEMENTS or not _is_held(array))


def _model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    arrays: Mapping[str, Array],
    opsets: Mapping[str, int],
) -> ModelProto:
    """The nodes as a model of their own, with constants that are small."""
    from onnx import helper

    told = [make_tensor(array, name) for name, array in arrays.items() if _is_told(array)]
    graph = helper.make_graph(nodes, "after", inputs, outputs, told)
    used = {"", *(domain_of(inner) for node in nodes for inner in with_bodies(node))}
    versions = [(domain, opsets.get(domain, OLDEST_OPSET)) for domain in sorted(used)]
    imports = [helper.make_opsetid(domain, version) for domain, version in versions]
    ir_version = helper.find_min_ir_version_for(imports, ignore_unknown=True)
    return helper.make_model(graph, opset_imports=imports, ir_version=ir_version)


def _has_shape(value: ValueInfoProto) -> bool:
    """Whether a declaration is complete: without its rank, an output is refused by onnx.checker."""
    type_ = declared(value)
    return type_ is None or type_.shape is not None


def _inferred(model: ModelProto, label: str) -> ModelProto:
    """The model with inferred types. Raises InputError where ONNX finds that nodes do not take what they are given."""
    from onnx import shape_inference

    try:
        return shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except (shape_inference.InferenceError, RuntimeError, ValueError) as error:
        first = next(iter(model.graph.node))
        raise InputError(
            f"{label}: ONNX refuses the operators from the {describe(first)} on: {one_line_of(error)}"
        ) from None


def _converted(model: ModelProto, opsets: Mapping[str, int], label: str) -> _Following:
    """The nodes as onnx's version converter writes them, which ignores bodies."""
    from onnx import version_converter

    known = {tensor.name for tensor in model.graph.initializer}
    try:
        if any(True for node in model.graph.node for _ in subgraphs(node)):
            raise RuntimeError("a body")
        made = version_converter.convert_version(model, opsets[""]).graph
    except (RuntimeError, ValueError):  # an operator that it does not know
        first = describe(model.graph.node[0])
        hint = f"convert the model to opset {opsets['']}"
        raise InputError(f"{label}: what follows from the {first} on is of an old opset; {hint}") from None
    return _Following(list(made.node), opsets, [tensor for tensor in made.initializer if tensor.name not in known])


def _reads(split: Split) -> Iterator[str]:
    """Names of the program's values that the operators read, each once."""
    names = dict.fromkeys(name for node in split.following for name in reads(node))
    return (name for name in names if name not in split.after)


def _constant(value: Value, constants: Constants) -> Array | None:
    return constants.value(value) if isinstance(value, Term) else value


def _is_held(array: Array) -> bool:
    return array.dtype.name in CODE_OF_DTYPE


def _held(value: Value, array: Array) -> ConstArray:
    """A constant as programs hold it, without another copy of it in memory."""
    if isinstance(value, Term) and value.op == "constant":
        return value.attr("value")
    return ConstArray(array)


def _is_input(name: str, term: Term) -> bool:
    return term.op == "input" and term.attr("name") == name
