"""What a model says besides its operators: notes for people and tools, default values, names of dims."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eqsat.program.ir import Header

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from onnx import ModelProto, TensorShapeProto

_DEFAULTS = 4
"""The first IR version in which an input with an initializer may be overridden; before, every initializer was one."""


def header_of(model: ModelProto) -> Header:
    """The header of a model. Its `spec` is a model that has nothing else."""
    from onnx import ModelProto

    graph = model.graph
    kept = ModelProto()
    _copy(model, kept, "domain", "doc_string", "model_version")
    _copy(graph, kept.graph, "name", "doc_string")
    kept.metadata_props.extend(model.metadata_props)
    kept.graph.metadata_props.extend(graph.metadata_props)
    stored = {tensor.name for tensor in graph.initializer} if model.ir_version >= _DEFAULTS else set()
    return Header(
        fixed=tuple(value.name for value in graph.input if value.name in stored),
        dims={value.name: tuple(map(_name, value.type.tensor_type.shape.dim)) for value in graph.output},
        spec=kept.SerializeToString(deterministic=True),
    )


def _name(dim: TensorShapeProto.Dimension) -> str:
    return dim.dim_param if isinstance(dim.dim_param, str) else ""


def _copy(source: Message, target: Message, *fields: str) -> None:
    """Copy fields that are set. A text that is not UTF-8 is read as bytes and cannot be set: it is left out."""
    for field in fields:
        value = getattr(source, field)
        if source.HasField(field) and not isinstance(value, bytes):
            setattr(target, field, value)
