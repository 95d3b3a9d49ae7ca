"""A caller's arrays on the device, and results as the caller's kind: NumPy, CuPy, or any library that speaks DLPack.

A plan computes on flat CuPy arrays; bfloat16 and float8, which CuPy has not, travel there as uint16 and uint8 bits.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.base.arguments import no_subclass
from eqsat.base.numerics import dtype_name, np_dtype
from eqsat.errors import InputError
from eqsat.gpu.launch.grouping import ACCESS_ALIGNMENT
from eqsat.gpu.launch.lower import Buffer

_ON_HOST = frozenset({1, 3, 11})
"""DLPack device types in host memory: CPU, and memory pinned for CUDA or ROCm (dlpack.h, DLDeviceType)."""

_ON_GPU = frozenset({2, 10, 13})
"""CUDA, ROCm, CUDA managed."""


def carrier(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype under which CuPy holds an array: its own, or the bits of one that NumPy itself has not."""
    return dtype if dtype.isbuiltin == 1 else np.dtype(f"u{dtype.itemsize}")


@dataclass(frozen=True)
class Taker:
    """Takes a caller's arrays for one device.

    Attributes:
        cupy: the module; `device` is the index of the GPU.
        strict: shapes must be those of the buffers; else any shape of the same size will do.
    """

    cupy: Any
    device: int
    strict: bool

    def take(self, buffer: Buffer, given: Any) -> Any:
        """The flat, contiguous CuPy array of an input, aligned for vector access.

        Raises:
            InputError: no array, or one of another shape, dtype or device.
        """
        if isinstance(given, self.cupy.ndarray):
            array = given
        elif _speaks_dlpack(given):
            array = self._from_dlpack(buffer, given)
        else:
            no_subclass(f"input {buffer.name!r}", given)
            array = self._from_host(buffer, np.asarray(given))
        self._check(buffer, array.shape, array.dtype.name)
        if array.device.id != self.device:
            raise self._elsewhere(buffer, array.device.id)
        flat = self.cupy.ascontiguousarray(array).reshape(-1)
        return flat if flat.data.ptr % ACCESS_ALIGNMENT == 0 else flat.copy()

    def _from_host(self, buffer: Buffer, array: np.ndarray[Any, Any]) -> Any:
        dtype = dtype_name(array.dtype)
        self._check(buffer, array.shape, dtype)
        own = np.ascontiguousarray(array, np_dtype(dtype))
        return self.cupy.asarray(own.view(carrier(own.dtype)).reshape(array.shape))

    def _from_dlpack(self, buffer: Buffer, given: Any) -> Any:
        kind, index = given.__dlpack_device__()
        try:
            bits = _as_bits(given)
            if kind in _ON_HOST:
                return self.cupy.asarray(np.from_dlpack(bits))
            if kind in _ON_GPU and index == self.device:
                return self.cupy.from_dlpack(bits)
        except (BufferError, RuntimeError, TypeError) as failure:  # what exporters raise, for reasons of their own
            raise InputError(f"input {buffer.name!r} cannot be read: {failure}") from None
        raise self._elsewhere(buffer, index if kind in _ON_GPU else f"of DLPack type {int(kind)}")

    def _check(self, buffer: Buffer, shape: tuple[int, ...], dtype: str) -> None:
        fits = tuple(shape) == buffer.shape if self.strict else np.prod(shape, dtype=int) == buffer.size
        if not fits:
            raise InputError(f"input {buffer.name!r} takes shape {buffer.shape}, got {tuple(shape)}")
        if dtype not in (buffer.dtype, carrier(np_dtype(buffer.dtype)).name):
            raise InputError(f"input {buffer.name!r} takes {buffer.dtype}, got {dtype}: convert it first")

    def _elsewhere(self, buffer: Buffer, where: int | str) -> InputError:
        return InputError(f"input {buffer.name!r} lies on device {where}, the plan runs on device {self.device}")


class Giver:
    """Gives results as arrays of the library that the inputs came from.

    CuPy where any input is CuPy's; else the library of the first DLPack tensor, on the host where all tensors are;
    else NumPy.
    """

    def __init__(self, cupy: Any, device: int, inputs: Iterable[Any]) -> None:
        self.cupy, self.device = cupy, device
        given = list(inputs)
        tensors = [a for a in given if _speaks_dlpack(a) and not isinstance(a, cupy.ndarray)]
        self.namespace: Any = None
        self.on_host = all(a.__dlpack_device__()[0] in _ON_HOST for a in tensors)
        if any(isinstance(a, cupy.ndarray) for a in given):
            self.namespace, self.on_host = cupy, False
        elif tensors:
            own = _namespace(tensors[0])
            self.namespace = own if hasattr(own, "from_dlpack") else cupy

    def stream(self) -> AbstractContextManager[Any]:
        """The stream that the caller's library (torch) works on now; CuPy's current one where it names none."""
        current = getattr(getattr(self.namespace, "cuda", None), "current_stream", None)
        if self.on_host or self.namespace is self.cupy or current is None:
            return nullcontext()
        return _external(self.cupy, current(self.device).cuda_stream)

    def give(self, array: Any, dtype: str) -> Any:
        """A result that CuPy holds, whose element type is `dtype`; NumPy and host tensors wait for it."""
        if self.namespace is self.cupy:
            return array
        if self.namespace is None:
            return self.cupy.asnumpy(array).view(np_dtype(dtype)).reshape(array.shape)
        tensor = self.namespace.from_dlpack(self.cupy.asnumpy(array) if self.on_host else array)
        return tensor.view(self.namespace.bfloat16) if dtype == "bfloat16" else tensor


@dataclass(frozen=True)
class _Foreign:
    """Another library's stream, by CUDA's protocol for streams."""

    pointer: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.pointer


def _external(cupy: Any, pointer: int) -> Any:
    """CuPy's stream for that of another library; from CuPy 14 on, `ExternalStream` warns that it will go."""
    if hasattr(cupy.cuda.Stream, "from_external"):
        return cupy.cuda.Stream.from_external(_Foreign(pointer))
    return cupy.cuda.ExternalStream(pointer)


def on_gpu(tensor: Any) -> bool:
    """Whether a DLPack tensor lies in memory of a GPU."""
    return tensor.__dlpack_device__()[0] in _ON_GPU


def _speaks_dlpack(array: Any) -> bool:
    return hasattr(array, "__dlpack__") and not isinstance(array, np.ndarray | np.generic)


def _namespace(tensor: Any) -> Any:
    """The module of a tensor's library: by the array API standard, else its top package."""
    if hasattr(tensor, "__array_namespace__"):
        return tensor.__array_namespace__()
    return sys.modules[type(tensor).__module__.partition(".")[0]]


def _as_bits(tensor: Any) -> Any:
    """A bfloat16 tensor as one of uint16, which every DLPack consumer knows."""
    return tensor.view(_namespace(tensor).uint16) if "bfloat16" in str(tensor.dtype) else tensor
