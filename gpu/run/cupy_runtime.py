"""Running a plan on the GPU of this machine through CuPy: ROCm by hiprtc, CUDA by nvrtc.

CuPy is imported when a plan is first compiled. It was not run on AMD hardware; the README says what was run where.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from eqsat.base.numerics import np_dtype
from eqsat.errors import InputError
from eqsat.extract.device.table import DEVICES, Device, DeviceLike
from eqsat.extract.device.table import device as find_device
from eqsat.extract.plan.plan import Plan
from eqsat.gpu.build.compilers import failed
from eqsat.gpu.build.nvrtc import LANGUAGE
from eqsat.gpu.code.cache import TEMPLATES, cached, digest_of
from eqsat.gpu.code.errors import DeviceFailed
from eqsat.gpu.families.base import Kernel
from eqsat.gpu.launch.lower import Fill, HostCall, Launch, LibraryProduct, Place, Signature, lower
from eqsat.gpu.run.arrays import Giver, Taker, carrier
from eqsat.gpu.run.choices import Choices, Chooser
from eqsat.gpu.table.targets import TARGETS, target

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


@dataclass(frozen=True)
class Machine:
    """The GPU that CuPy uses now.

    Attributes:
        cupy: the module.
        row: the device that plans are made for; one of this GPU's instruction set.
        index: CuPy's number of the GPU.
        name: a text that says which GPU, driver and runtime it is.
    """

    cupy: Any
    row: Device
    index: int
    name: str

    @property
    def device(self) -> Any:
        """CuPy's device, a context in which it is the current one."""
        return self.cupy.cuda.Device(self.index)

    @contextmanager
    def plain_errors(self, needs: Callable[[], str]) -> Iterator[None]:
        """Turn the driver's exceptions into an error of one line; `needs` describes the memory of the plan.

        Raises:
            InputError: memory ran out.
            DeviceFailed: the driver reported anything else.
        """
        cuda = self.cupy.cuda
        try:
            yield
        except cuda.memory.OutOfMemoryError as failure:
            raise InputError(f"out of device memory: {failure}; {needs()}") from None
        except _failures(cuda) as failure:
            raise DeviceFailed(f"the GPU stopped: {failure}") from None


def _failures(cuda: Any) -> tuple[type[Exception], ...]:
    """What `cupy.cuda` raises when the runtime, the driver or the library of products reports an error."""
    known = (cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError)
    try:
        return (*known, cuda.cublas.CUBLASError)
    except ImportError:  # where the library is not installed, it reports nothing
        return known


def this_machine(device: DeviceLike = "auto") -> Machine:
    """The GPU of this machine.

    Args:
        device: 'auto' for the row nearest to it, else a row of its instruction set.

    Raises:
        InputError: no CuPy, no GPU, one that no kernels are made for, or a row of another instruction set.
    """
    cupy = import_cupy()
    runtime = cupy.cuda.runtime
    index = cupy.cuda.Device().id
    here = local_device(cupy)
    row = here if device == "auto" else find_device(device)
    if row.arch != here.arch:
        raise InputError(f"a plan for {row.name} ({row.arch}) does not run on this GPU ({here.arch})")
    title = runtime.getDeviceProperties(index)["name"].decode()
    versions = f"driver {runtime.driverGetVersion()}, runtime {runtime.runtimeGetVersion()}, CuPy {cupy.__version__}"
    return Machine(cupy, row, index, f"{title} as {row.name} ({row.arch}), {versions}")


def local_device(cupy: Any) -> Device:
    """The row of the GPU that CuPy uses now: of its instruction set, by its name, else the nearest in compute units.

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
    title = properties["name"].decode().lower().replace(" ", "")
    units = properties["multiProcessorCount"]
    nearest = min(rows, key=lambda row: (row.name not in title, abs(row.units.value - units)))
    return find_device(nearest.name)


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


def cubin(cupy: Any, text: str, architecture: str) -> Path:
    """A text compiled by nvrtc: CuPy does not name all instruction sets ('sm_90a'), and flushes subnormals to zero.

    Raises:
        CompileFailed: nvrtc refused it; text and log were saved.
    """
    nvrtc = cupy.cuda.nvrtc
    flags = (f"--gpu-architecture={architecture}", *LANGUAGE)

    def build(out: Path) -> None:
        program = nvrtc.createProgram(text, "kernel.cu", (), ())
        try:
            nvrtc.compileProgram(program, flags)
            # CuPy takes off the last byte, as of a text that ends with a zero; no code ends with another byte
            out.write_bytes(nvrtc.getCUBIN(program) + b"\0")
        except nvrtc.NVRTCError:
            raise failed(text, ".cu", nvrtc.getProgramLog(program)) from None
        finally:
            nvrtc.destroyProgram(program)

    return cached("cubin", digest_of(str(nvrtc.getVersion()), flags, text), ".cubin", build)


class GpuPlan:
    """A plan compiled for the GPU of this machine.

    Calls are asynchronous on the caller's stream; compiled kernels are kept by CuPy's own cache on disk. Constants are
    uploaded once, when the plan is compiled.

    Args:
        device: 'auto' for the row of the GPU at hand, else a row of the same instruction set.
        signature: names, shapes and dtypes of inputs and outputs; flat without.
        choices: tuning parameters; by default those that tuning found best on this machine before.
        recorded: the launches are to be replayed as a graph. CuPy does not record calls of NVIDIA's library: its
            products are kernels of the plan's own, then.

    Raises:
        InputError: no CuPy, no GPU, a row of another instruction set, or too little memory for the constants.
        CompileFailed: a kernel was refused; its text and log were saved.
    """

    def __init__(
        self,
        plan: Plan,
        device: DeviceLike = "auto",
        signature: Signature | None = None,
        *,
        choices: Choices | None = None,
        recorded: bool = False,
    ) -> None:
        self.machine = machine = this_machine(device)
        self.cupy = machine.cupy
        if choices is None:
            choices = chooser(machine, plan.exact).remembered(plan)
        library = not recorded or bool(self.cupy.cuda.runtime.is_hip)
        self.launches = lower(plan, machine.row, signature, library=library, choices=choices)
        self._taker = Taker(self.cupy, machine.index, strict=signature is not None)
        with self.guarded():
            self.functions = {entry: self._compile(kernel) for entry, kernel in self.launches.kernels.items()}
            self.constants = {
                name: self.cupy.asarray(np.ascontiguousarray(array).view(carrier(array.dtype)))
                for name, array in self.launches.constants.items()
            }

    def _compile(self, kernel: Kernel) -> Any:
        cupy, text = self.cupy, inlined(kernel.source)
        hip = cupy.cuda.runtime.is_hip
        try:
            if hip:
                code = {"code": text, "options": ("-std=c++17", "-munsafe-fp-atomics")}
            else:
                code = {"path": str(cubin(cupy, text, self.launches.target.compiled_as))}
            function = cupy.RawModule(**code).get_function(kernel.entry)
            if kernel.launch_lds:
                function.max_dynamic_shared_size_bytes = kernel.launch_lds
            return function
        except (cupy.cuda.compiler.CompileException, cupy.cuda.driver.CUDADriverError) as failure:
            raise failed(text, ".hip" if hip else ".cu", str(failure)) from None

    def __call__(self, inputs: Mapping[str, Any]) -> list[Any]:
        """The roots, given CuPy, DLPack or NumPy arrays by name, as arrays of the same kind.

        CuPy has no bfloat16: it takes and gives uint16 bits in its place.

        Raises:
            InputError: an input is missing, of a wrong shape or dtype, or on another device; or memory ran out.
            DeviceFailed: the driver reported an error.
        """
        giver = Giver(self.cupy, self.machine.index, inputs.values())
        with self.guarded(), giver.stream():
            return self.given(giver, self._apart(self.run(self.taken(inputs))))

    def run_host(self, inputs: Mapping[str, Array]) -> list[Array]:
        """The flat roots as NumPy arrays, given NumPy arrays by name."""
        return [array.reshape(-1) for array in self(inputs)]

    def taken(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Every input as a flat CuPy array."""
        wanted = {b.name: b for b in self.launches.buffers.values() if b.kind == "input"}
        for name in inputs:
            if name not in wanted:
                raise InputError(f"no input is called {name!r}: the plan takes {', '.join(wanted) or 'none'}")
        for name in wanted:
            if name not in inputs:
                raise InputError(f"input {name!r} is missing: the plan takes {', '.join(wanted)}")
        return {name: self._taker.take(buffer, inputs[name]) for name, buffer in wanted.items()}

    def run(self, taken: Mapping[str, Any]) -> list[Any]:
        """The roots as CuPy arrays, given the inputs as flat ones."""
        memory = self._memory(taken)
        self._launch_all(memory)
        return self._results(memory)

    def _apart(self, results: list[Any]) -> list[Any]:
        """The results, each in memory of its own: what lies in an input, a constant or another result is copied."""
        places, buffers = self.launches.results, self.launches.buffers
        return [
            array.copy() if buffers[place.buffer].kind in ("input", "constant") or place in places[:i] else array
            for i, (array, place) in enumerate(zip(results, places, strict=True))
        ]

    def given(self, giver: Giver, results: list[Any]) -> list[Any]:
        """Results as arrays of the caller's kind."""
        places = self.launches.results
        return [
            giver.give(array, self.launches.buffers[place.buffer].dtype)
            for array, place in zip(results, places, strict=True)
        ]

    def capture(self, inputs: Mapping[str, Any]) -> Captured:
        """The launches as a graph over these arrays: replaying it costs one launch.

        Raises:
            InputError: the plan holds an opaque operator, which runs on the host.
            DeviceFailed: the driver cannot record them.
        """
        with self.guarded():
            return self.record(self.taken(inputs))

    def record(self, taken: Mapping[str, Any], times: int = 1, others: Sequence[Mapping[str, Any]] = ()) -> Captured:
        """As `capture`, of the launches so many times in a row, for inputs that are flat CuPy arrays; runs after the
        first take `others` in turns."""
        if any(isinstance(step, HostCall) for step in self.launches.steps):
            raise InputError("a plan with opaque operators cannot be captured: they run on the host")
        if not self.cupy.cuda.runtime.is_hip and any(isinstance(s, LibraryProduct) for s in self.launches.steps):
            raise InputError("CuPy does not record calls of NVIDIA's library: make the plan with recorded=True")
        memories = [self._memory(each) for each in (taken, *others)]
        self._launch_all(memories[0])  # whatever is set up at a first launch must not be recorded
        self.machine.device.synchronize()
        stream = self.cupy.cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            try:
                for i in range(times):
                    self._launch_all(memories[i % len(memories)])
            finally:
                graph = stream.end_capture()
        return Captured(self, graph, memories, self._results(memories[0]))

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """On the plan's device, with errors of one line; after an error, the return to another device raises, too."""
        with self.machine.plain_errors(lambda: self._needs()), self.machine.device:
            yield

    def _needs(self) -> str:
        parts = ", ".join(f"{n} {size}" for n, size in self.launches.memory.items() if n != "peak")
        return f"the plan takes {self.launches.memory['peak']} bytes ({parts})"

    # --- memory -------------------------------------------------------------------------------------------------

    def _memory(self, taken: Mapping[str, Any]) -> dict[str, Any]:
        """Every buffer as a flat CuPy array; temporaries are parts of one arena."""
        cupy = self.cupy
        arena = cupy.empty(self.launches.arena_bytes, np.uint8)
        memory: dict[str, Any] = {**self.constants, **taken}
        for b in self.launches.buffers.values():
            dtype = carrier(np_dtype(b.dtype))
            if b.kind == "output":
                memory[b.name] = cupy.empty(b.size, dtype)
            elif b.kind == "temporary":
                memory[b.name] = arena[b.offset : b.offset + b.nbytes].view(dtype)
        return memory

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
                    function, kernel = self.functions[step.kernel.entry], step.kernel
                    arguments = tuple(map(np.uint64, addresses))
                    function((kernel.blocks,), (kernel.threads,), arguments, shared_mem=kernel.launch_lds)

    def _library_product(self, step: LibraryProduct, memory: Mapping[str, Any]) -> None:
        """CuPy turns batches into contiguous ones before it multiplies, but a single matrix it takes as it lies."""
        batch, m, k, n = step.dims
        inner = 1 if batch == 1 else 0

        def tensor(place: Place, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
            flat = memory[place.buffer][place.offset :]
            steps = [stride * flat.itemsize for stride in strides]
            return self.cupy.lib.stride_tricks.as_strided(flat, shape[inner:], steps[inner:])

        a, b = step.operands
        left, right = tensor(a, (batch, m, k), step.strides[0]), tensor(b, (batch, k, n), step.strides[1])
        out = tensor(step.output, (batch, m, n), (m * n, n, 1))
        self.cupy.matmul(left, right, out=out)

    def _host_call(self, step: HostCall, memory: Mapping[str, Any]) -> None:
        """An opaque operator runs on the host: its operands travel there and its results back."""
        names = {p.buffer for p in step.inputs} | {p.buffer for _, p in step.outputs}
        buffers = self.launches.buffers
        host = {n: self.cupy.asnumpy(memory[n]).view(np_dtype(buffers[n].dtype)) for n in names}
        self.launches.call_host(step, host)
        for _, place in step.outputs:
            memory[place.buffer].set(host[place.buffer].view(carrier(host[place.buffer].dtype)))


def chooser(machine: Machine, exact: bool) -> Chooser:
    """Who proposes and remembers tuning parameters on a machine."""
    return Chooser(machine.name, target(machine.row.arch), int(machine.row.units.value), exact)


class Captured:
    """A graph of a plan's launches over fixed arrays.

    Attributes:
        plan: whose kernels the graph launches; they stay loaded with it.
        memory: every array that the graph's first run reads or writes, by the name of its buffer; inputs may be
            written to.
        outputs: hold the results of the last `launch`.
    """

    def __init__(self, plan: GpuPlan, graph: Any, memories: list[dict[str, Any]], outputs: list[Any]) -> None:
        self.plan = plan
        self.graph = graph
        self.memory = memories[0]
        self._held = memories  # the graph has their addresses
        self.outputs = outputs

    def launch(self, stream: Any = None) -> None:
        """Replay, asynchronously; on the given CuPy stream, else on the current one."""
        self.graph.launch(stream) if stream is not None else self.graph.launch()


class Replayed:
    """A plan as one graph over arrays of its own, recorded at the first call.

    A call copies the inputs into them, launches the graph, and copies the results out: for plans of many short
    kernels, whose launches would take longer than they do.

    Args:
        held: names of inputs, such as weights, that callers pass at the same place every time: the graph reads them
            there, and is recorded again when one has moved.
    """

    def __init__(self, plan: GpuPlan, held: Collection[str] = ()) -> None:
        self.plan = plan
        self._held = frozenset(held)
        self._captured: Captured | None = None
        self._places: dict[str, int] = {}

    def __call__(self, inputs: Mapping[str, Any]) -> list[Any]:
        """As `GpuPlan.__call__`."""
        plan = self.plan
        giver = Giver(plan.cupy, plan.machine.index, inputs.values())
        with plan.guarded(), giver.stream():
            taken = plan.taken(inputs)
            if self._captured is None:
                again = plan.taken(inputs)  # an input that is converted has no place of its own
                self._held = frozenset(n for n in self._held if taken[n].data.ptr == again[n].data.ptr)
            captured = self._recorded(taken)
            for name in taken.keys() - self._held:
                captured.memory[name][...] = taken[name]
            captured.launch()
            return plan.given(giver, [array.copy() for array in captured.outputs])

    def _recorded(self, taken: Mapping[str, Any]) -> Captured:
        """The graph, over the held inputs where they lie now."""
        places = {name: taken[name].data.ptr for name in self._held}
        if self._captured is None or places != self._places:
            own = {name: array if name in self._held else array.copy() for name, array in taken.items()}
            self._captured, self._places = self.plan.record(own), places
        return self._captured
