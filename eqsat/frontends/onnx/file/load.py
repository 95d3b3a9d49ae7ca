"""Loads ONNX files and tensors as models and arrays; every defect becomes a one-line error.

Nothing here knows operators. ONNX stores little-endian bytes, as all supported hosts do. `onnx` is imported inside
functions, so that `import eqsat` stays fast.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from eqsat.base.files import file_size, read_bytes, replaces
from eqsat.base.mapped import map_file
from eqsat.base.numerics import Array, np_dtype
from eqsat.errors import InputError
from eqsat.frontends.onnx.file.wire import without_weights
from eqsat.program.sizes import LARGEST

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto
    from onnx.defs import OpSchema

# ONNX element types (onnx.proto, TensorProto.DataType) that a program can hold.
DTYPE_OF_CODE: dict[int, str] = {
    1: "float32",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    16: "bfloat16",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    12: "uint32",
    13: "uint64",
    17: "float8_e4m3fn",
    18: "float8_e4m3fnuz",
    19: "float8_e5m2",
    20: "float8_e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4_e2m1fn",
    24: "float8_e8m0fnu",
    25: "uint2",
    26: "int2",
}
CODE_OF_DTYPE: dict[str, int] = {dtype: code for code, dtype in DTYPE_OF_CODE.items()}

TENSOR_TYPE = {
    name: f"tensor({name.replace('_', '').removesuffix('fn') if name.startswith('float4') else name.replace('_', '')})"
    for name in CODE_OF_DTYPE
} | {"float64": "tensor(double)", "float32": "tensor(float)", "float8_e8m0fnu": "tensor(float8e8m0)"}
"""Element type to its name in ONNX's schemas and in onnxruntime."""

PACKED = frozenset({"uint4", "int4", "float4_e2m1fn", "uint2", "int2"})
"""Element types that ONNX packs several to a byte."""

OLDEST_OPSET, NEWEST_OPSET = 13, 25
"""Opsets of the main domain that exports are written at, unless an opaque operator needs a later one."""

# AttributeProto.AttributeType: numbers and strings; and tensors
_NUMBERS = frozenset({1, 2, 3, 6, 7, 8})
_PLAIN = frozenset({*_NUMBERS, 4, 9})
_EXTERNAL = 1  # TensorProto.DataLocation.EXTERNAL
_MOST_BYTES = (1 << 31) - 1  # of a protobuf message
_IR_VERSION_TAG = b"\x08"  # field 1, varint: how every serialized ModelProto begins


def code_name(code: int) -> str:
    """The name of an ONNX element type, for error messages: 2 -> 'uint8'."""
    from onnx import TensorProto

    known = {number: name.lower() for name, number in TensorProto.DataType.items()}
    return known.get(code, f"element type {code}")


def label_of(source: str | os.PathLike[str] | ModelProto) -> str:
    """The beginning of messages about a model. Raises InputError if `source` is neither a path nor a model."""
    from onnx import ModelProto

    if isinstance(source, ModelProto):
        return source.graph.name or "model"
    if not isinstance(source, str | os.PathLike):
        raise InputError(f"an ONNX model is a path or an onnx.ModelProto, got {type(source).__name__}")
    return os.fspath(source)


def read_model(source: str | os.PathLike[str] | ModelProto) -> tuple[ModelProto, str, Path | None]:
    """The model, the label for error messages, and the folder of its external data (None: in memory).

    Raises InputError for a file that is missing, unreadable, not an ONNX model, truncated, or without a graph.
    """
    from onnx import ModelProto

    label = label_of(source)
    model, base = (source, None) if isinstance(source, ModelProto) else (_parse(Path(label)), Path(label).parent)
    if not model.HasField("graph"):
        raise InputError(f"{label}: holds no graph; give an ONNX model file")
    return model, label, base


def look_at(source: str | os.PathLike[str] | ModelProto) -> tuple[ModelProto, str]:
    """The model and the label for error messages, for those who change nothing in it.

    What they have parsed is kept for the next one, and for `read_model`, who may change it and takes it away.

    Raises:
        InputError: as `read_model`.
    """
    label = label_of(source)
    state = _state(Path(label))
    model, label, base = read_model(source)
    if base is not None and state is not None:
        _PARSED[:] = [(state, model)]
    return model, label


_PARSED: list[tuple[object, ModelProto]] = []
"""The model that was looked at last, after the state of its file."""


def _state(path: Path) -> object | None:
    """Differs once another file is at the path, or its content has changed."""
    try:
        found = path.stat()
    except OSError:
        return None
    return path.absolute(), found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _parse(path: Path) -> ModelProto:
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    with suppress(IndexError):
        known, model = _PARSED.pop()
        if known == _state(path):
            return model
    model = without_weights(path)
    if model is not None:
        return model
    data = read_bytes(path, _MOST_BYTES, "the .onnx file")
    try:
        return ModelProto.FromString(data)
    except DecodeError:
        if data.startswith(_IR_VERSION_TAG):
            raise InputError(
                f"{path}: begins like an ONNX model but is truncated or damaged ({len(data)} bytes); fetch it again"
            ) from None
        raise InputError(f"{path}: not an ONNX model; give a .onnx protobuf file") from None


def tensor_array(tensor: TensorProto, base: Path | None, label: str) -> Array:
    """The tensor's values, read-only if that saves a copy; external data is mapped, not read.

    Element types that a program cannot hold (string, complex64, ...) are returned as NumPy's types, because such
    constants may still be folded away. Raises InputError for missing, short or misplaced data.
    """
    where = f"{label}: tensor '{tensor.name}'"
    shape = tuple(tensor.dims)
    if min(shape, default=0) < 0 or math.prod(shape) > LARGEST:
        raise InputError(f"{where} has dims {list(shape)}; they are at least 0, and of at most {LARGEST} elements")
    if tensor.data_location == _EXTERNAL:
        return _external_array(tensor, shape, base, where)
    dtype = DTYPE_OF_CODE.get(tensor.data_type)
    if dtype is not None and dtype not in PACKED and tensor.HasField("raw_data"):
        _check_length(len(tensor.raw_data), dtype, shape, where)
        return np.frombuffer(tensor.raw_data, np_dtype(dtype)).reshape(shape)
    return _typed_array(tensor, dtype, shape, where)


def _typed_array(tensor: TensorProto, dtype: str | None, shape: tuple[int, ...], where: str) -> Array:
    """Values from the typed fields (float_data, int32_data, ...), or of a type that only onnx decodes."""
    from onnx import numpy_helper

    if dtype == "bfloat16" and len(tensor.int32_data) == math.prod(shape):
        return np.array(tensor.int32_data, np.int32).astype(np.uint16).view(ml_dtypes.bfloat16).reshape(shape)
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{where} cannot be decoded as {code_name(tensor.data_type)}{list(shape)} ({error})") from None


def _check_length(available: int, dtype: str, shape: tuple[int, ...], where: str) -> None:
    needed = math.prod(shape) * np_dtype(dtype).itemsize
    if available != needed:
        raise InputError(
            f"{where}: {dtype}{list(shape)} takes {needed} bytes but {available} are there; "
            "the file is truncated or damaged"
        )


def _external_array(tensor: TensorProto, shape: tuple[int, ...], base: Path | None, where: str) -> Array:
    """Maps the tensor's slice of its external file.

    The location must stay inside the model's folder (ONNX IR specification, "External Tensor Data").
    """
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if base is None:
        raise InputError(f"{where} lies in external file '{location}', unknown for a model in memory; pass the path")
    path = base / location
    try:
        named = location not in ("", "..") and "\0" not in location and Path(location).name == location
        plain = named and not path.is_symlink()
        inside = plain or (bool(location) and path.resolve().is_relative_to(base.resolve()))
        there = inside and path.is_file()
    except (OSError, RuntimeError, ValueError) as error:  # too long, a loop of links, a NUL
        raise InputError(
            f"{where}: external location '{location}' is no path ({error}); move the data beside it"
        ) from None
    if not inside:
        raise InputError(f"{where}: external location '{location}' leaves the model's folder; move the data beside it")
    if not there:
        raise InputError(f"{where}: external data file '{path}' is missing or no file; put it beside the model")
    dtype = DTYPE_OF_CODE.get(tensor.data_type)
    if dtype is None or dtype in PACKED:
        raise InputError(
            f"{where}: external data of type {code_name(tensor.data_type)} is not supported; "
            "store that tensor inside the model"
        )
    try:
        offset = int(entries.get("offset", "0"))
        needed = int(entries.get("length", math.prod(shape) * np_dtype(dtype).itemsize))
    except ValueError:
        raise InputError(f"{where}: external offset or length is no number; fetch the model again") from None
    _check_length(needed, dtype, shape, where)
    try:
        available = path.stat().st_size - offset
        if offset < 0 or available < needed:
            _check_length(-1 if offset < 0 else max(available, 0), dtype, shape, f"{where} in '{path}'")
        return map_file(path, np_dtype(dtype), offset, shape)
    except OSError as error:
        raise InputError(f"{where}: '{path}' cannot be read ({error.strerror}); check its permissions") from None


def embed_external(graph: GraphProto, base: Path, label: str, *, top: bool = True) -> None:
    """Reads external data of attributes and bodies into the model; initializers of the main graph are mapped when
    they are needed."""
    for node in graph.node:
        for attribute in node.attribute:
            for tensor in _tensors(attribute):
                if tensor.data_location == _EXTERNAL:
                    tensor.CopyFrom(make_tensor(tensor_array(tensor, base, label), tensor.name))
        for body in subgraphs(node):
            embed_external(body, base, label, top=False)
    for tensor in () if top else graph.initializer:
        if tensor.data_location == _EXTERNAL:
            tensor.CopyFrom(make_tensor(tensor_array(tensor, base, label), tensor.name))


def external_files(path: Path) -> list[Path]:
    """The files that hold a model's external data.

    Raises:
        InputError: as `read_model`.
    """
    model, _ = look_at(path)
    places = dict.fromkeys(map(_place, external_tensors(model)))
    return [path.parent / place for place in places if place]


def files_of(model: Path) -> list[Path]:
    """A model's file and those of its external data that are there; the file alone if it is no model."""
    others: list[Path] = []
    with suppress(InputError):
        others = [path for path in external_files(model) if path.is_file()]
    return [model, *others]


def digest_of(model: Path) -> str:
    """A digest of a model's file and its external data, or of the bytes of a file that is no model.

    Raises:
        InputError: there is no such file, or it is a folder, a pipe, a device, or a descriptor of this process, which
            is another file to the processes that will read the model.
        OSError: the file cannot be read.
    """
    file_size(model, "the .onnx file")
    if not replaces(model):
        raise InputError(f"{model}: is a pipe or a device; give the .onnx file as a file")
    found = hashlib.sha256()
    for path in files_of(model):
        with path.open("rb") as file:
            found.update(hashlib.file_digest(file, "sha256").digest())
    return found.hexdigest()


def external_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """The tensors of a model, its bodies and its functions whose data lies in other files."""
    graphs = [model.graph]
    nodes = [node for function in model.functions for node in function.node]
    for graph in graphs:
        nodes += graph.node
        yield from _external(graph.initializer)
        for node in nodes:
            graphs += subgraphs(node)
            for attribute in node.attribute:
                yield from _external(_tensors(attribute))
        nodes = []


def _tensors(attribute: AttributeProto) -> list[TensorProto]:
    return [] if attribute.type in _NUMBERS else [attribute.t, *attribute.tensors]


def _external(tensors: Iterable[TensorProto]) -> Iterator[TensorProto]:
    return (tensor for tensor in tensors if tensor.data_location == _EXTERNAL)


def _place(tensor: TensorProto) -> str:
    """The path of a tensor's data, from the folder of its model."""
    return next((entry.value for entry in tensor.external_data if entry.key == "location"), "")


def make_tensor(array: Array, name: str) -> TensorProto:
    """An initializer that holds the array, of any element type, as raw bytes."""
    from onnx import TensorProto, numpy_helper

    if array.dtype.name not in CODE_OF_DTYPE or array.dtype.name in PACKED:
        return numpy_helper.from_array(np.ascontiguousarray(array), name)
    code = CODE_OF_DTYPE[array.dtype.name]
    return TensorProto(name=name, data_type=code, dims=array.shape, raw_data=array.tobytes())


def value_info(name: str, dtype: str, shape: Sequence[int]) -> ValueInfoProto:
    """The declaration of a value with this type."""
    from onnx import helper

    return helper.make_tensor_value_info(name, CODE_OF_DTYPE[dtype], shape)


def attributes(node: NodeProto) -> dict[str, Any]:
    """A node's attributes by name: ints, floats, str, lists of these, TensorProto or GraphProto."""
    if not node.attribute:
        return {}
    from onnx import helper

    return {attribute.name: _decoded(helper.get_attribute_value(attribute)) for attribute in node.attribute}


def _decoded(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return [_decoded(each) for each in value] if isinstance(value, list) else value


def domain_of(node: NodeProto) -> str:
    """The domain of a node's operator; the main domain, which has two spellings, is ''."""
    return "" if node.domain == "ai.onnx" else node.domain


def function_key(node: NodeProto) -> tuple[str, str, str]:
    """By what a node calls a local function of its model, if there is one."""
    return node.domain, node.op_type, node.overload


def imported(opsets: Iterable[OperatorSetIdProto]) -> dict[str, int]:
    """Domain to version, of a model's or a function's imports; the main domain is ''."""
    return {("" if entry.domain == "ai.onnx" else entry.domain): entry.version for entry in opsets}


@lru_cache(maxsize=1 << 10)
def schema_of(name: str, opset: int, domain: str = "") -> OpSchema | None:
    """The definition of an operator in force at an opset of its domain; None where it is not defined."""
    from onnx import defs

    try:
        return defs.get_schema(name, opset, domain)
    except defs.SchemaError:
        return None


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The bodies of a node (If, Loop, Scan, ...)."""
    for attribute in node.attribute:
        if attribute.type not in _PLAIN:
            if attribute.HasField("g"):
                yield attribute.g
            yield from attribute.graphs
