"""The wire format of ONNX files: parses a model without its weights, whose bytes stay in the file.

A model is a protobuf message (developers.google.com/protocol-buffers, "Encoding"): a list of fields, each a tag
(number << 3 | wire type) and a value. Parsing all of it would hold every weight two or three times in memory.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

MAPPED_BYTES = 1 << 25
"""File size from which weights are mapped. Smaller files are read, so that they may be overwritten in place while the
program is in use."""

_WEIGHT_BYTES = 1 << 16
_LENGTH_DELIMITED = 2
# Field numbers of onnx.proto.
_MODEL_GRAPH, _GRAPH_INITIALIZER, _TENSOR_DATA_TYPE, _TENSOR_RAW_DATA, _TENSOR_LOCATION = 7, 5, 2, 9, 14
_LARGEST_NUMBER = 64  # onnx's own fields end at 26; a larger number shows early that this is not a model
_NUMERIC = frozenset({1, 6, 7, 9, 10, 11, 16})
"""Element types whose raw data can be mapped as they are: float, int32, int64, bool, float16, double, bfloat16."""


class _Malformed(Exception):
    """The file is not a message, or protobuf itself should judge it."""


def without_weights(path: Path) -> ModelProto | None:
    """The model, with large initializers as external data in its own file. None if the file should be read whole, which
    also tells what is wrong with a bad one."""
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    try:
        # External data must be in the folder of the given path.
        if path.stat().st_size < MAPPED_BYTES or path.resolve().parent != path.parent.resolve():
            return None
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return ModelProto.FromString(b"".join(_model(data, path.resolve().name)))
    except (_Malformed, DecodeError, OSError, ValueError):
        return None


def _model(data: mmap.mmap, location: str) -> Iterator[bytes]:
    for number, begun, start, end in _fields(data, 0, len(data)):
        if number == _MODEL_GRAPH:
            yield _delimited(number, b"".join(_graph(data, start, end, location)))
        else:
            yield data[begun:end]


def _graph(data: mmap.mmap, first: int, last: int, location: str) -> Iterator[bytes]:
    for number, begun, start, end in _fields(data, first, last):
        if number == _GRAPH_INITIALIZER and end - start >= _WEIGHT_BYTES:
            yield _delimited(number, _tensor(data, start, end, location))
        else:
            yield data[begun:end]


def _tensor(data: mmap.mmap, first: int, last: int, location: str) -> bytes:
    """An initializer that refers to its raw data in the file; unchanged if it has none, or is of another type."""
    from onnx import TensorProto

    kept = []
    raw: tuple[int, int] | None = None
    for number, begun, start, end in _fields(data, first, last):
        if number == _TENSOR_RAW_DATA:
            raw = (start, end)
        elif number == _TENSOR_LOCATION or end - begun >= _WEIGHT_BYTES:
            return data[first:last]
        else:
            kept.append(data[begun:end])
    tensor = TensorProto.FromString(b"".join(kept))
    if raw is None or tensor.data_type not in _NUMERIC:
        return data[first:last]
    refer(tensor, location, raw[0], raw[1] - raw[0])
    return tensor.SerializeToString()


def refer(tensor: TensorProto, location: str, offset: int, length: int) -> None:
    """Let a tensor's data be bytes of a file in the model's folder (ONNX IR, "External Tensor Data")."""
    tensor.data_location = tensor.EXTERNAL
    del tensor.external_data[:]
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))


def _fields(data: mmap.mmap, at: int, last: int) -> Iterator[tuple[int, int, int, int]]:
    """(number, where the field begins, where its value begins, where it ends) of a message's fields."""
    while at < last:
        begun = at
        tag, at = _varint(data, at, last)
        wire = tag & 7
        if not 1 <= tag >> 3 <= _LARGEST_NUMBER:
            raise _Malformed
        if wire == _LENGTH_DELIMITED:
            length, at = _varint(data, at, last)
            end = at + length
        elif wire == 0:
            _, end = _varint(data, at, last)
        elif wire in (1, 5):
            end = at + (8 if wire == 1 else 4)
        else:
            raise _Malformed
        if end > last:
            raise _Malformed
        yield tag >> 3, begun, at, end
        at = end


def _varint(data: mmap.mmap, at: int, last: int) -> tuple[int, int]:
    value = shift = 0
    while at < last and shift < 64:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    raise _Malformed


def _delimited(number: int, content: bytes) -> bytes:
    return varint(number << 3 | _LENGTH_DELIMITED) + varint(len(content)) + content


def varint(value: int) -> bytes:
    """Seven bits a byte, least significant first, the top bit set on all but the last."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
