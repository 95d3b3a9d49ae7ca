"""Running a plan on the GPU of this machine through CuPy: ROCm by hiprtc, CUDA by nvrtc.

CuPy is imported when a plan is first compiled. It was not run here on AMD hardware; see the README for what was run on
what.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from eqsat.errors import InputError
from eqsat.extract.devices import DEVICES, Device
from eqsat.extract.devices import device as find_device
from eqsat.extract.plan import Plan
from eqsat.gpu.cache import TEMPLATES
from eqsat.gpu.compilers import failed
from eqsat.gpu.lower import ACCESS_ALIGNMENT, Buffer, Fill, HostCall, Launch, LibraryProduct, Place, Signature, lower
from eqsat.gpu.run import call_host, checked_input
from eqsat.gpu.targets import TARGETS
from eqsat.numerics import np_dtype

Array = np.ndarray[Any, Any]

_INCLUDE = re.compile(r'^#include "([\w.]+)"\n', re.MULTILINE)
_INSTALL = "pip install 'eqsat[rocm]' for AMD GPUs or 'eqsat[cuda]' for NVIDIA ones"


def import_cupy() -> Any:
    """The cupy module.

    Raises:
        InputError: it is not installed, or no GPU answers.
    """
    try:
        import cupy  # pyright: ignore[reportMissingImports]
    except ImportError as failure:
        raise InputError(f"no GPU run without CuPy: {_INSTALL} ({failure})") from None
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as failure:
        raise InputError(f"CuPy finds no GPU: {failure}") from None
    if count == 0:
        raise InputError("CuPy finds no GPU on this machine")
    return cupy


def local_device(cupy: Any) -> Device:
    """The row of the GPU that CuPy uses now: one of the same instruction set, the nearest in compute units.

    Raises:
        InputError: no row has its instruction set.
    """
    current = cupy.cuda.Device()
    properties = cupy.cuda.runtime.getDeviceProperties(current.id)
    if cupy.cuda.runtime.is_hip:
        arch = properties["gcnArchName"].decode().split(":")[0]
    else:
        arch = f"sm_{current.compute_capability}"
    rows = [row for row in DEVICES.values() if row.arch == arch]
    if not rows:
        known = ", ".join(sorted(TARGETS))
        raise InputError(f"this GPU is a {arch}; kernels are made for {known}")
    units = properties["multiProcessorCount"]
    return min(rows, key=lambda row: abs(row.units.value - units))


def inlined(source: str) -> str:
    """A kernel text with its headers in place of the includes: what hiprtc and nvrtc compile without a folder."""
    done: set[str] = set()

    def text_of(match: re.Match[str]) -> str:
        name = match[1]
        if name in done:
            return ""
        done.add(name)
        header = TEMPLATES / name
        if not header.exists():  # a header of the checker, behind its #if
            return match[0]
        return _INCLUDE.sub(text_of, header.read_text().replace("#pragma once\n", ""))

    return _INCLUDE.sub(text_of, source)


class GpuPlan:
    """A plan compiled for the GPU of this machine.

    Calls are asynchronous on the current CuPy stream; compiled kernels are kept by CuPy's own cache on disk.

    Args:
        device: 'auto' for the row of the GPU at hand, else a row of the same instruction set.
        signature: names, shapes and dtypes of inputs and outputs; flat without.
        exact: sums in a fixed order.

    Raises:
        InputError: no CuPy, no GPU, or a row of another instruction set.
        CompileFailed: a kernel was refused; its text and log were saved.
    """

    def __init__(
        self, plan: Plan, device: str | Device = "auto", signature: Signature | None = None, *, exact: bool = False
    ) -> None:
        self.cupy = cupy = import_cupy()
        here = local_device(cupy)
        row = here if device == "auto" else find_device(device)
        if row.arch != here.arch:
            raise InputError(f"a plan for {row.name} ({row.arch}) does not run on this GPU ({here.arch})")
        self.launches = lower(plan, row, signature, exact=exact, library=True)
        self.functions = {entry: self._compile(entry, k.source) for entry, k in self.launches.kernels.items()}
        self.constants = {
            name: cupy.asarray(np.ascontiguousarray(array).view(_carrier(array.dtype)))
            for name, array in self.launches.constants.items()
        }

    def _compile(self, entry: str, source: str) -> Any:
        cupy, text = self.cupy, inlined(source)
        options = ("-std=c++17", "-munsafe-fp-atomics") if cupy.cuda.runtime.is_hip else ("-std=c++17",)
        try:
            return cupy.RawModule(code=text, options=options).get_function(entry)
        except cupy.cuda.compiler.CompileException as failure:
            raise failed(text, ".hip" if cupy.cuda.runtime.is_hip else ".cu", str(failure)) from None

    def __call__(self, inputs: Mapping[str, Any]) -> list[Any]:
        """The roots as CuPy arrays, given CuPy, DLPack or NumPy arrays by name. bfloat16 travels as uint16 bits.

        Raises:
            InputError: an input is missing, of a wrong size or dtype, or on another device; or memory ran out.
        """
        try:
            return self._run(inputs)
        except self.cupy.cuda.memory.OutOfMemoryError as failure:
            raise InputError(f"out of device memory: {failure}; the plan's temporaries take "
                             f"{self.launches.arena_bytes} bytes") from None  # fmt: skip

    def run_host(self, inputs: Mapping[str, Array]) -> list[Array]:
        """The flat roots as NumPy arrays, given flat NumPy arrays by name."""
        results = zip(self(inputs), self.launches.results, strict=True)
        return [
            self.cupy.asnumpy(array).reshape(-1).view(np_dtype(self.launches.buffers[place.buffer].dtype))
            for array, place in results
        ]

    def capture(self, inputs: Mapping[str, Any]) -> Captured:
        """The launches as a graph over these arrays: replaying it costs one launch.

        Raises:
            InputError: the plan holds an opaque operator, which runs on the host.
        """
        if any(isinstance(step, HostCall) for step in self.launches.steps):
            raise InputError("a plan with opaque operators cannot be captured: they run on the host")
        self(inputs)  # whatever is set up at a first launch must not be recorded
        memory = self._memory(inputs)
        stream = self.cupy.cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            self._launch_all(memory)
            graph = stream.end_capture()
        return Captured(graph, self._results(memory), memory)

    # --- memory -------------------------------------------------------------------------------------------------

    def _run(self, inputs: Mapping[str, Any]) -> list[Any]:
        memory = self._memory(inputs)
        self._launch_all(memory)
        return self._results(memory)

    def _memory(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Every buffer as a flat CuPy array; temporaries are parts of one arena."""
        cupy = self.cupy
        arena = cupy.empty(self.launches.arena_bytes, np.uint8)
        memory: dict[str, Any] = dict(self.constants)
        for b in self.launches.buffers.values():
            carrier = _carrier(np_dtype(b.dtype))
            if b.kind == "input":
                memory[b.name] = self._input(b, inputs)
            elif b.kind == "output":
                memory[b.name] = cupy.empty(b.size, carrier)
            elif b.kind == "temporary":
                memory[b.name] = arena[b.offset : b.offset + b.nbytes].view(carrier)
        return memory

    def _input(self, buffer: Buffer, inputs: Mapping[str, Any]) -> Any:
        cupy = self.cupy
        carrier = _carrier(np_dtype(buffer.dtype))
        given: Any = inputs.get(buffer.name)
        array: Any
        if isinstance(given, cupy.ndarray):
            array = given
        elif hasattr(given, "__dlpack__") and not isinstance(given, np.ndarray):
            array = cupy.from_dlpack(_as_bits(given, buffer.dtype))
        else:
            array = cupy.asarray(checked_input(buffer.name, inputs, buffer.size, np_dtype(buffer.dtype)).view(carrier))
        if array.size != buffer.size:
            raise InputError(f"input {buffer.name!r} takes shape {buffer.shape}, got {array.shape}")
        if array.dtype != carrier:
            raise InputError(f"input {buffer.name!r} takes {buffer.dtype}, got {array.dtype}: convert it first")
        if array.device != cupy.cuda.Device():
            raise InputError(f"input {buffer.name!r} lies on {array.device}, the plan runs on {cupy.cuda.Device()}")
        flat = cupy.ascontiguousarray(array).reshape(-1)
        return flat if flat.data.ptr % ACCESS_ALIGNMENT == 0 else flat.copy()

    def _results(self, memory: Mapping[str, Any]) -> list[Any]:
        places = zip(self.launches.results, self.launches.shapes, strict=True)
        return [memory[p.buffer][p.offset : p.offset + prod(shape)].reshape(shape) for p, shape in places]

    # --- launches -----------------------------------------------------------------------------------------------

    def _launch_all(self, memory: Mapping[str, Any]) -> None:
        for step in self.launches.steps:
            match step:
                case Fill():
                    memory[step.buffer].fill(step.value)
                case HostCall():
                    self._host_call(step, memory)
                case LibraryProduct():
                    self._library_product(step, memory)
                case Launch():
                    addresses = [memory[p.buffer].data.ptr + p.offset * memory[p.buffer].itemsize
                                 for p in step.arguments]  # fmt: skip
                    function = self.functions[step.kernel.entry]
                    function((step.kernel.blocks,), (step.kernel.threads,), tuple(map(np.uint64, addresses)))

    def _library_product(self, step: LibraryProduct, memory: Mapping[str, Any]) -> None:
        batch, m, k, n = step.dims

        def tensor(place: Place, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
            flat = memory[place.buffer][place.offset :]
            steps = [stride * flat.itemsize for stride in strides]
            return self.cupy.lib.stride_tricks.as_strided(flat, shape, steps)

        a, b = step.operands
        left, right = tensor(a, (batch, m, k), step.strides[0]), tensor(b, (batch, k, n), step.strides[1])
        out = tensor(step.output, (batch, m, n), (m * n, n, 1))
        self.cupy.matmul(left, right, out=out)

    def _host_call(self, step: HostCall, memory: Mapping[str, Any]) -> None:
        """An opaque operator runs on the host: its operands travel there and its results back."""
        names = {p.buffer for p in step.inputs} | {p.buffer for _, p in step.outputs}
        buffers = self.launches.buffers
        host = {n: self.cupy.asnumpy(memory[n]).view(np_dtype(buffers[n].dtype)) for n in names}
        call_host(step, self.launches, host)
        for _, place in step.outputs:
            memory[place.buffer].set(host[place.buffer].view(_carrier(host[place.buffer].dtype)))


class Captured:
    """A graph of a plan's launches over fixed arrays. `outputs` hold the results of the last `launch`."""

    def __init__(self, graph: Any, outputs: Sequence[Any], memory: Mapping[str, Any]) -> None:
        self.graph = graph
        self.outputs = list(outputs)
        self._memory = memory  # the arrays that the graph reads and writes stay alive with it

    def launch(self, stream: Any = None) -> None:
        """Replay, asynchronously; on the given CuPy stream, else on the current one."""
        self.graph.launch(stream) if stream is not None else self.graph.launch()


def _carrier(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype under which CuPy holds an array: its own, or uint16 for bfloat16."""
    return np.dtype(np.uint16) if dtype == np_dtype("bfloat16") else dtype


def _as_bits(tensor: Any, dtype: str) -> Any:
    """A DLPack tensor of bfloat16 as one of uint16, by the `view` that torch tensors have."""
    if dtype == "bfloat16" and "bfloat16" in str(tensor.dtype):
        import torch  # pyright: ignore[reportMissingImports]  # whose tensor it is

        return tensor.view(torch.uint16)
    return tensor
