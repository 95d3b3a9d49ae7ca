"""Saves models, with constants inside the file, or in a second file if it would be too large."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from eqsat.base.files import file_path, replacing
from eqsat.base.mapped import blocks
from eqsat.base.numerics import Array
from eqsat.errors import InputError
from eqsat.frontends.onnx.file.load import CODE_OF_DTYPE, PACKED, make_tensor
from eqsat.frontends.onnx.file.wire import refer, varint

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

EMBEDDED_BYTES = 1_800_000_000
"""More bytes of constants go to an external file, because a protobuf message is limited to 2 GiB."""

RETURNED_BYTES = 1 << 26
"""If there are more bytes of constants, the returned model does not hold them in memory but refers to the file."""

SMALL_BYTES = 1024
"""Constants of so many bytes are never external, as in onnx's own helpers: onnxruntime reads shapes and axes before it
opens other files, and refuses a model whose shapes are there."""

_ALIGNMENT = 64  # bytes; offsets in the external file


def store(model: ModelProto, constants: Sequence[tuple[str, Array]], path: str | os.PathLike[str] | None) -> ModelProto:
    """The model with these initializers, written to `path` if one is given.

    Files appear complete or not at all. With more than `RETURNED_BYTES` of constants, the returned model only refers to
    them in the files (ONNX IR, "External Tensor Data").
    """
    target = None if path is None else file_path(path)
    packed = [(name, array) for name, array in constants if array.dtype.name in PACKED]
    model.graph.initializer.extend(make_tensor(array, name) for name, array in packed)
    constants = [(name, array) for name, array in constants if array.dtype.name not in PACKED]
    total = sum(array.nbytes for _, array in constants)
    if total > EMBEDDED_BYTES:
        if target is None:
            raise InputError(f"the constants take {total} bytes, more than a model in memory holds; give a path")
        _store_beside(model, constants, target)
        return model
    places: list[int] = []
    if target is not None:
        with replacing(target) as file:
            places = _stream(file, model, constants)
        if total > RETURNED_BYTES:
            _refer(model, constants, target.name, places)
            return model
    for name, array in constants:
        _embed(model, name, array)
    return model


# Tags of the protobuf wire format, (field number << 3) | 2 for a length-delimited field; numbers from onnx.proto.
_MODEL_GRAPH = b"\x3a"
_GRAPH_INITIALIZER = b"\x2a"
_TENSOR_RAW_DATA = b"\x4a"


def _stream(file: BinaryIO, model: ModelProto, constants: Sequence[tuple[str, Array]]) -> list[int]:
    """Writes the model with the constants as its last initializers, without a copy of them in memory.

    Serialising the whole message took as long as all the rest of an export (134 MB of constants).

    Returns:
        The file offset of each constant's values, in bytes.
    """
    from onnx import ModelProto, TensorProto

    around = ModelProto()
    around.CopyFrom(model)
    around.ClearField("graph")
    graph = model.graph.SerializeToString()
    heads = []
    for name, array in constants:
        fields = _describe(TensorProto(), name, array).SerializeToString() + _TENSOR_RAW_DATA + varint(array.nbytes)
        heads.append(_GRAPH_INITIALIZER + varint(len(fields) + array.nbytes) + fields)
    length = len(graph) + sum(map(len, heads)) + sum(array.nbytes for _, array in constants)
    start = around.SerializeToString() + _MODEL_GRAPH + varint(length) + graph
    file.write(start)
    at = len(start)
    places = []
    for head, (_, array) in zip(heads, constants, strict=True):
        file.write(head)
        _write(file, array)
        places.append(at + len(head))
        at += len(head) + array.nbytes
    return places


def _write(file: BinaryIO, array: Array) -> None:
    for block in blocks(np.ascontiguousarray(array)):
        file.write(block)


def _describe(tensor: TensorProto, name: str, array: Array) -> TensorProto:
    tensor.name = name
    tensor.data_type = CODE_OF_DTYPE[array.dtype.name]
    tensor.dims[:] = array.shape
    return tensor


def _store_beside(model: ModelProto, constants: Sequence[tuple[str, Array]], target: Path) -> None:
    """Writes the model, and the constants to `<target>.data`, small ones aside."""
    places = []
    end = 0
    for _, array in constants:
        places.append(end)
        if array.nbytes > SMALL_BYTES:
            end = -(-(end + array.nbytes) // _ALIGNMENT) * _ALIGNMENT
    beside = target.with_name(f"{target.name}.data")
    _refer(model, constants, beside.name, places)
    with replacing(target) as file, replacing(beside) as data:
        for place, (_, array) in zip(places, constants, strict=True):
            if array.nbytes > SMALL_BYTES:
                data.seek(place)
                _write(data, array)
        file.write(model.SerializeToString())


def _refer(model: ModelProto, constants: Sequence[tuple[str, Array]], location: str, places: Sequence[int]) -> None:
    """Adds initializers that refer to a file in the model's folder, small ones aside."""
    for place, (name, array) in zip(places, constants, strict=True):
        if array.nbytes > SMALL_BYTES:
            refer(_describe(model.graph.initializer.add(), name, array), location, place, array.nbytes)
        else:
            _embed(model, name, array)


def _embed(model: ModelProto, name: str, array: Array) -> None:
    """Adds an initializer with its values."""
    _describe(model.graph.initializer.add(), name, array).raw_data = array.tobytes()
