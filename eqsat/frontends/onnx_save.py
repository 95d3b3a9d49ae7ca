"""Models onto disk: constants inside the file, or beside it where the file would grow too large."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from eqsat.errors import InputError
from eqsat.frontends.onnx_load import CODE_OF_DTYPE, PACKED, make_tensor
from eqsat.numerics import Array

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

EMBEDDED_BYTES = 1_800_000_000
"""Constants of more bytes go to an external file: a protobuf message ends at 2 GiB."""

_ALIGNMENT = 64  # bytes; offsets in the external file


def store(model: ModelProto, constants: Sequence[tuple[str, Array]], path: str | os.PathLike[str] | None) -> ModelProto:
    """The model with these initializers, written to `path` if one is given.

    Files appear whole or not at all: they are written beside the target and renamed.
    """
    target = None if path is None else Path(path)
    packed = [(name, array) for name, array in constants if array.dtype.name in PACKED]
    model.graph.initializer.extend(make_tensor(array, name) for name, array in packed)
    constants = [(name, array) for name, array in constants if array.dtype.name not in PACKED]
    total = sum(array.nbytes for _, array in constants)
    if total > EMBEDDED_BYTES:
        if target is None:
            raise InputError(f"the constants take {total} bytes, more than a model in memory holds; give a path")
        _store_beside(model, constants, target)
        _replace(target, lambda file: file.write(model.SerializeToString()))
        return model
    if target is not None:
        _replace(target, lambda file: _stream(file, model, constants))
    for name, array in constants:
        _describe(model.graph.initializer.add(), name, array).raw_data = array.tobytes()
    return model


# Tags of the protobuf wire format, (field number << 3) | 2 for a length-delimited field; numbers from onnx.proto.
_MODEL_GRAPH = b"\x3a"
_GRAPH_INITIALIZER = b"\x2a"
_TENSOR_RAW_DATA = b"\x4a"


def _stream(file: BinaryIO, model: ModelProto, constants: Sequence[tuple[str, Array]]) -> None:
    """Writes the model with the constants as its last initializers, without a copy of them in memory.

    Serialising the whole message instead took as long as all the rest of an export (134 MB of constants).
    """
    from onnx import ModelProto, TensorProto

    around = ModelProto()
    around.CopyFrom(model)
    around.ClearField("graph")
    graph = model.graph.SerializeToString()
    heads = []
    for name, array in constants:
        fields = _describe(TensorProto(), name, array).SerializeToString() + _TENSOR_RAW_DATA + _varint(array.nbytes)
        heads.append(_GRAPH_INITIALIZER + _varint(len(fields) + array.nbytes) + fields)
    length = len(graph) + sum(map(len, heads)) + sum(array.nbytes for _, array in constants)
    file.write(around.SerializeToString() + _MODEL_GRAPH + _varint(length) + graph)
    for head, (_, array) in zip(heads, constants, strict=True):
        file.write(head)
        file.write(array.reshape(-1).view(np.uint8).data)


def _varint(value: int) -> bytes:
    """Seven bits a byte, least significant first, the top bit set on all but the last."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _describe(tensor: TensorProto, name: str, array: Array) -> TensorProto:
    tensor.name = name
    tensor.data_type = CODE_OF_DTYPE[array.dtype.name]
    tensor.dims[:] = array.shape
    return tensor


def _store_beside(model: ModelProto, constants: Sequence[tuple[str, Array]], target: Path) -> None:
    """Writes the constants to `<target>.data` and refers to them there (ONNX IR, "External Tensor Data")."""
    from onnx import TensorProto

    location = f"{target.name}.data"
    offset = 0
    places = []
    for name, array in constants:
        places.append(offset)
        tensor = _describe(model.graph.initializer.add(), name, array)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", offset), ("length", array.nbytes)):
            tensor.external_data.add(key=key, value=str(value))
        offset = -(-(offset + array.nbytes) // _ALIGNMENT) * _ALIGNMENT

    def write(file: BinaryIO) -> None:
        for place, (_, array) in zip(places, constants, strict=True):
            file.seek(place)
            file.write(array.reshape(-1).view(np.uint8).data)

    _replace(target.with_name(location), write)


def _replace(target: Path, write: Callable[[BinaryIO], object]) -> None:
    """Writes a file beside the target and renames it, so that a reader never sees half of it."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        try:
            with partial.open("wb") as file:
                write(file)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{target}: cannot be written ({error.strerror}); choose another path") from None
