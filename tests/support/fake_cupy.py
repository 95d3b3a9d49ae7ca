"""A stand-in for CuPy whose GPU is the SIMT checker and whose clock is a function of what is launched."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from eqsat.gpu import simt
from eqsat.gpu.table.targets import TARGETS


class Recorder:
    """What the stream that is being captured has recorded; None when none is."""

    def __init__(self) -> None:
        self.steps: list[Callable[[], None]] | None = None

    def do(self, step: Callable[[], None]) -> None:
        """Run a step now, or record it."""
        if self.steps is None:
            step()
        else:
            self.steps.append(step)


class FakeArray(np.ndarray):  # type: ignore[type-arg]
    """A NumPy array with what CuPy adds to it."""

    recorder = Recorder()
    device = SimpleNamespace(id=0)  # type: ignore[assignment]

    @property
    def data(self) -> Any:  # type: ignore[override]
        return SimpleNamespace(ptr=self.ctypes.data)

    def set(self, values: np.ndarray[Any, Any]) -> None:
        self[...] = values

    def fill(self, value: Any) -> None:
        self.recorder.do(lambda: np.ndarray.fill(self, value))


class FakeNvrtc:
    """The compiler: its code is the text, and a program is its number."""

    class NVRTCError(RuntimeError):
        pass

    def __init__(self, cupy: FakeCupy) -> None:
        self.cupy, self.texts = cupy, dict[int, str]()

    def getVersion(self) -> tuple[int, int]:
        return 13, 0

    def createProgram(self, text: str, name: str, headers: tuple[str, ...], names: tuple[str, ...]) -> int:
        self.texts[len(self.texts) + 1] = text
        return len(self.texts)

    def compileProgram(self, program: int, options: tuple[str, ...]) -> None:
        assert options == ("--gpu-architecture=sm_90a", "-std=c++17", "-default-device")
        if self.cupy.refuses(self.texts[program]):
            raise self.NVRTCError("compilation")

    def getProgramLog(self, program: int) -> str:
        return "line 1: error: refused"

    def getCUBIN(self, program: int) -> bytes:
        code = self.texts[program].encode() + b"\0"
        return code[:-1]  # CuPy takes a last zero off, as if code were text

    def destroyProgram(self, program: int) -> None:
        self.texts[program] = ""


class FakeFunction:
    """A kernel; more than 48 KiB of LDS must be allowed before a launch asks for it."""

    max_dynamic_shared_size_bytes = 48 << 10

    def __init__(self, cupy: FakeCupy, code: str, entry: str) -> None:
        self.cupy, self.code, self.entry = cupy, code, entry
        sized = re.search(r"  EQ_SHARED_AT_LAUNCH\(eq_chunk, lds, \[(\d+)\]\);", code)
        self.lds = 16 * int(sized[1]) if sized else 0

    def __call__(
        self, grid: tuple[int], block: tuple[int], args: tuple[np.uint64, ...], *, shared_mem: int = 0
    ) -> None:
        cupy = self.cupy
        assert {type(a) for a in args} == {np.uint64}
        if cupy.broken is not None:
            raise cupy.broken
        if shared_mem > self.max_dynamic_shared_size_bytes:
            raise cupy.CUDADriverError("CUDA_ERROR_INVALID_VALUE: invalid argument")
        assert shared_mem == self.lds
        pointers = [np.ctypeslib.as_array((ctypes.c_ubyte * 1).from_address(int(a))) for a in args]
        arguments = tuple(simt.Argument(p) for p in pointers)

        def run() -> None:
            cupy.launches += 1
            cupy.now_us += cupy.cost_us(self.code, grid[0])
            simt.run(self.code, TARGETS[cupy.arch], [simt.Call(self.entry, grid[0], block[0], arguments)])

        FakeArray.recorder.do(run)


class FakeModule:
    """A compiled text: launches go to the checker, with the arguments that a driver would get."""

    def __init__(self, cupy: FakeCupy, code: str, options: tuple[str, ...]) -> None:
        if cupy.refuses(code):
            raise cupy.CompileException("line 1: error: refused")
        assert "-std=c++17" in options
        self.cupy, self.code = cupy, code

    def get_function(self, entry: str) -> FakeFunction:
        return FakeFunction(self.cupy, self.code, entry)


class FakeCupy:
    """As much of the cupy module as the package uses.

    Attributes:
        limit: bytes of the largest allocation.
        cost_us: microseconds of a launch, from its text and its number of blocks; `matmul_us` those of the library's
            product; `now_us` is the device's clock.
        refuses: whether a text does not compile.
        records: whether the driver can record graphs.
        broken: what the driver reports of all that comes; None while it works.
    """

    ndarray = FakeArray
    __version__ = "14.0"

    class CompileException(Exception):
        pass

    class CUDARuntimeError(RuntimeError):
        pass

    class CUDADriverError(RuntimeError):
        pass

    class CUBLASError(RuntimeError):
        pass

    class OutOfMemoryError(MemoryError):
        pass

    def __init__(self, arch: str = "gfx942", devices: int = 1, name: str = "A GPU") -> None:
        self.arch = arch
        self.limit = 1 << 30
        self.matmuls = self.launches = self.uploads = 0
        self.now_us = 0.0
        self.cost_us: Callable[[str, int], float] = lambda code, blocks: 10.0
        self.matmul_us = 10.0
        self.refuses: Callable[[str], bool] = lambda code: "refuse" in code
        self.records = True
        self.broken: Exception | None = None
        self.streams: list[int] = []
        self.products: list[tuple[Any, Any]] = []
        self.lib = SimpleNamespace(stride_tricks=np.lib.stride_tricks)
        properties = {
            "name": name.encode(),
            "gcnArchName": f"{arch}:sramecc+:xnack-".encode(),
            "multiProcessorCount": 300,
            "l2CacheSize": 2 << 20,
        }
        self.cuda = SimpleNamespace(
            runtime=SimpleNamespace(
                is_hip=arch.startswith("gfx"),
                getDeviceCount=lambda: devices,
                getDeviceProperties=lambda i: properties,
                driverGetVersion=lambda: 70000,
                runtimeGetVersion=lambda: 70000,
                CUDARuntimeError=self.CUDARuntimeError,
            ),
            driver=SimpleNamespace(CUDADriverError=self.CUDADriverError),
            memory=SimpleNamespace(OutOfMemoryError=self.OutOfMemoryError),
            nvrtc=FakeNvrtc(self),
            compiler=SimpleNamespace(CompileException=self.CompileException),
            cublas=SimpleNamespace(CUBLASError=self.CUBLASError),
            Device=lambda i=0: FakeDevice(self),
            Stream=FakeStreams(self),
            Event=lambda: FakeEvent(self),
            get_elapsed_time=lambda start, end: (end.at_us - start.at_us) / 1e3,
        )
        self.random = SimpleNamespace(standard_normal=lambda shape: np.zeros(shape).view(FakeArray))

    def RawModule(
        self, code: str = "", options: tuple[str, ...] = ("-std=c++17",), path: str | None = None
    ) -> FakeModule:
        if path:
            code, end, _ = Path(path).read_text().partition("\0")
            if not end:
                raise self.CUDADriverError("CUDA_ERROR_INVALID_IMAGE: device kernel image is invalid")
        return FakeModule(self, code, options)

    def empty(self, shape: int | tuple[int, ...], dtype: Any) -> FakeArray:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if size > self.limit:
            raise self.OutOfMemoryError("out of memory allocating")
        return np.full(size, 0xFF, np.uint8).view(dtype).reshape(shape).view(FakeArray)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """CuPy calls its functions as NumPy does; each takes 10 microseconds."""
        function = getattr(np, name)

        def timed(*operands: Any, **options: Any) -> Any:
            self.now_us += 10.0
            return function(*operands, **options)

        return timed

    def asarray(self, array: Any) -> FakeArray:
        self.uploads += 1
        return np.array(array).view(FakeArray)

    def ascontiguousarray(self, array: FakeArray) -> FakeArray:
        return np.ascontiguousarray(array).view(FakeArray)

    def asnumpy(self, array: FakeArray) -> np.ndarray[Any, Any]:
        return np.array(array)

    def from_dlpack(self, tensor: Any) -> FakeArray:
        return np.from_dlpack(tensor).view(FakeArray)

    def matmul(self, a: Any, b: Any, out: Any = None) -> Any:
        self.products.append((a.shape, b.shape))
        if out is None:
            self.now_us += self.matmul_us
            return np.matmul(a, b)
        if FakeArray.recorder.steps is not None and not self.cuda.runtime.is_hip:
            raise NotImplementedError("calling cuBLAS API during stream capture is currently unsupported")

        def run() -> None:
            self.matmuls += 1
            self.now_us += self.matmul_us
            np.matmul(a, b, out=out)

        FakeArray.recorder.do(run)
        return out


class FakeDevice:
    """Device 0."""

    id = 0

    def __init__(self, cupy: FakeCupy) -> None:
        self.cupy, self.compute_capability = cupy, cupy.arch.removeprefix("sm_")

    def __enter__(self) -> FakeDevice:
        return self

    def __exit__(self, *_: object) -> None:
        if self.cupy.broken is not None:
            raise self.cupy.CUDARuntimeError("cudaErrorIllegalAddress")

    def synchronize(self) -> None:
        pass


class FakeStreams:
    """The class of streams."""

    def __init__(self, cupy: FakeCupy) -> None:
        self.cupy = cupy

    def __call__(self, non_blocking: bool) -> FakeStream:
        return FakeStream(self.cupy)

    def from_external(self, stream: Any) -> FakeStream:
        version, pointer = stream.__cuda_stream__()
        assert version == 0
        return FakeStream(self.cupy, pointer)


class FakeStream:
    """A stream of its own, or another library's by its pointer."""

    def __init__(self, cupy: FakeCupy, pointer: int = 1) -> None:
        self.cupy, self.pointer = cupy, pointer

    def __enter__(self) -> FakeStream:
        self.cupy.streams.append(self.pointer)
        return self

    def __exit__(self, *_: object) -> None:
        self.cupy.streams.append(0)
        FakeArray.recorder.steps = None

    def begin_capture(self) -> None:
        if not self.cupy.records:
            raise self.cupy.CUDARuntimeError("operation not supported")
        FakeArray.recorder.steps = []

    def end_capture(self) -> Any:
        steps, FakeArray.recorder.steps = FakeArray.recorder.steps or [], None
        return SimpleNamespace(launch=lambda *_: [step() for step in steps])


class FakeEvent:
    """The device's clock when it was recorded."""

    def __init__(self, cupy: FakeCupy) -> None:
        self.cupy, self.at_us = cupy, 0.0

    def record(self) -> None:
        self.at_us = self.cupy.now_us

    def synchronize(self) -> None:
        pass
