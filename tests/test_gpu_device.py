"""The path through CuPy, with a stand-in for CuPy whose GPU is the SIMT checker.

What is checked: compilation of self-contained texts, memory, argument passing, fills, library products, conversion of
inputs and the errors. What only a GPU can show is not.
"""

from __future__ import annotations

import ctypes
import re
import sys
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from test_gpu_plan import PROGRAMS, assert_program_results, env_of, inputs_of, one_kernel_each, opaque_program, plan_of

from eqsat.core import make
from eqsat.errors import InputError
from eqsat.gpu import simt
from eqsat.gpu.device import GpuPlan, inlined
from eqsat.gpu.errors import CompileFailed
from eqsat.gpu.lower import Signature
from eqsat.gpu.run import run_gpu, runner
from eqsat.gpu.targets import TARGETS


class FakeArray(np.ndarray):  # type: ignore[type-arg]
    """A NumPy array with what CuPy adds to it."""

    device = "<device 0>"  # type: ignore[assignment]

    @property
    def data(self) -> Any:  # type: ignore[override]
        return SimpleNamespace(ptr=self.ctypes.data)

    def set(self, values: np.ndarray[Any, Any]) -> None:
        self[...] = values


class FakeModule:
    """A compiled text: launches go to the checker, with the arguments that a driver would get."""

    def __init__(self, code: str, options: tuple[str, ...], arch: str) -> None:
        if "refuse" in code:
            raise FakeCupy.CompileException("line 1: error: refused")
        assert "-std=c++17" in options
        self.code, self.arch = code, arch

    def get_function(self, entry: str) -> Any:
        def launch(grid: tuple[int], block: tuple[int], args: tuple[np.uint64, ...]) -> None:
            assert {type(a) for a in args} == {np.uint64}
            pointers = [np.ctypeslib.as_array((ctypes.c_ubyte * 1).from_address(int(a))) for a in args]
            arguments = tuple(simt.Argument(p) for p in pointers)
            simt.run(self.code, TARGETS[self.arch], [simt.Call(entry, grid[0], block[0], arguments)])

        return launch


class FakeCupy:
    """As much of the cupy module as the package uses."""

    ndarray = FakeArray

    class CompileException(Exception):
        pass

    class CUDARuntimeError(Exception):
        pass

    class OutOfMemoryError(Exception):
        pass

    def __init__(self, arch: str = "gfx942", devices: int = 1) -> None:
        hip = arch.startswith("gfx")
        properties = {"gcnArchName": f"{arch}:sramecc+:xnack-".encode(), "multiProcessorCount": 300}
        self.limit = 1 << 30
        self.matmuls = 0
        self.captured: list[Any] = []
        self.lib = SimpleNamespace(stride_tricks=np.lib.stride_tricks)
        self.cuda = SimpleNamespace(
            runtime=SimpleNamespace(
                is_hip=hip,
                getDeviceCount=lambda: devices,
                getDeviceProperties=lambda i: properties,
                CUDARuntimeError=self.CUDARuntimeError,
            ),
            memory=SimpleNamespace(OutOfMemoryError=self.OutOfMemoryError),
            compiler=SimpleNamespace(CompileException=self.CompileException),
            Device=lambda: _FakeDevice(arch.removeprefix("sm_")),
            Stream=lambda non_blocking: _FakeStream(),
        )
        self.RawModule = lambda code, options: FakeModule(code, options, arch)

    def empty(self, size: int, dtype: Any) -> FakeArray:
        if size * np.dtype(dtype).itemsize > self.limit:
            raise self.OutOfMemoryError("out of memory allocating")
        return np.full(size * np.dtype(dtype).itemsize, 0xFF, np.uint8).view(dtype).view(FakeArray)

    def asarray(self, array: Any) -> FakeArray:
        return np.array(array).view(FakeArray)

    def ascontiguousarray(self, array: FakeArray) -> FakeArray:
        return np.ascontiguousarray(array).view(FakeArray)

    def asnumpy(self, array: FakeArray) -> np.ndarray[Any, Any]:
        return np.array(array)

    def from_dlpack(self, tensor: Any) -> FakeArray:
        return np.from_dlpack(tensor).view(FakeArray)

    def matmul(self, a: Any, b: Any, out: Any) -> None:
        self.matmuls += 1
        np.matmul(a, b, out=out)


class _FakeDevice(str):
    """Device 0; equal to the `device` of its arrays."""

    id = 0
    compute_capability: str

    def __new__(cls, capability: str) -> _FakeDevice:
        made = super().__new__(cls, "<device 0>")
        made.compute_capability = capability
        return made


class _FakeStream:
    @contextmanager
    def __call__(self) -> Any:
        yield

    def __enter__(self) -> _FakeStream:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin_capture(self) -> None:
        pass

    def end_capture(self) -> Any:
        return SimpleNamespace(launch=lambda *_: None)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> FakeCupy:
    fake = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", fake)
    return fake


def test_texts_without_their_includes_are_whole() -> None:
    text = inlined('#include "prelude.h"\n#include "matrix_units.h"\nbody\n')
    left = set(re.findall(r'#include "([\w.]+)"', text))
    assert left == {"simt.h", "emulated_units.h"}  # the checker's, behind #if defined(EQ_SIMT)
    assert text.count("struct eq_half {") == 1


@pytest.mark.usefixtures("cupy")
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_run_through_cupy(name: str) -> None:
    program = PROGRAMS[name]
    inputs = inputs_of(program)
    flat = {n: a.reshape(-1) for n, a in inputs.items()}
    assert_program_results(runner(plan_of(program), "gpu", "mi300x")(flat), program, inputs)


def test_on_nvidia_hardware_the_same_plan_is_compiled_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", FakeCupy("sm_90"))
    program = PROGRAMS["mlp in half"]
    plan = GpuPlan(plan_of(program), "auto", Signature.of(program))
    assert plan.launches.device.name in ("h100", "h200")
    inputs = inputs_of(program)
    got = plan(inputs)
    assert [a.shape for a in got] == [t.shape for t in program.outputs.values()]
    assert_program_results(got, program, inputs)


@pytest.mark.usefixtures("cupy")
def test_a_plan_runs_once_without_being_kept() -> None:
    program = PROGRAMS["statistics"]
    inputs = inputs_of(program)
    assert_program_results(run_gpu(plan_of(program), inputs), program, inputs)


def test_arrays_on_the_gpu_and_from_other_libraries_are_taken(cupy: FakeCupy) -> None:
    program = PROGRAMS["towers"]
    inputs = inputs_of(program)

    class Tensor:
        """What a torch tensor offers."""

        def __init__(self, array: np.ndarray[Any, Any]) -> None:
            self.array, self.dtype = array, array.dtype

        def __dlpack__(self, **options: Any) -> Any:
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    given = {"x": Tensor(inputs["x"]), "w1": cupy.asarray(inputs["w1"]), "w2": inputs["w2"]}
    assert_program_results(GpuPlan(plan_of(program))(given), program, inputs)


@pytest.mark.usefixtures("cupy")
def test_bfloat16_travels_as_its_bits() -> None:
    x = make("In", ("x", 64, "bfloat16"))
    out = make("Un", ("relu",), (x,))
    plan = one_kernel_each(("pointwise", out), roots=(out,))
    env = env_of(plan)
    (got,) = GpuPlan(plan)(env)
    assert got.dtype == np.uint16
    (host,) = runner(plan, "gpu", "mi300x")(env)
    np.testing.assert_array_equal(host, plan.run_numpy(env)[0])


def test_library_products_go_to_cupy(cupy: FakeCupy) -> None:
    x, w = make("In", ("x", 240, "float32")), make("In", ("w", 320, "float32"))
    out = make("MM", (1, 12, 20, 16), (x, w))
    plan = one_kernel_each(("library-gemm", out), roots=(out,))
    env = env_of(plan)
    np.testing.assert_allclose(GpuPlan(plan).run_host(env)[0], plan.run_numpy(env)[0], rtol=1e-5)
    assert cupy.matmuls == 1


@pytest.mark.usefixtures("cupy")
def test_opaque_operators_run_on_the_host() -> None:
    program = opaque_program()
    inputs = inputs_of(program)
    plan = GpuPlan(plan_of(program))
    assert_program_results(plan(inputs), program, inputs)
    with pytest.raises(InputError, match="cannot be captured"):
        plan.capture(inputs)


@pytest.mark.usefixtures("cupy")
def test_a_captured_plan_replays_into_the_same_arrays() -> None:
    program = PROGRAMS["mlp"]
    inputs = inputs_of(program)
    captured = GpuPlan(plan_of(program), signature=Signature.of(program)).capture(inputs)
    captured.launch()
    assert_program_results(captured.outputs, program, inputs)


# Errors


def test_without_a_gpu_there_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", FakeCupy(devices=0))
    with pytest.raises(InputError, match="CuPy finds no GPU"):
        GpuPlan(plan_of(PROGRAMS["mlp"]))


def test_a_gpu_that_no_kernels_are_made_for_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", FakeCupy("gfx803"))
    with pytest.raises(InputError, match="this GPU is a gfx803; kernels are made for gfx1100, "):
        GpuPlan(plan_of(PROGRAMS["mlp"]))


@pytest.mark.usefixtures("cupy")
def test_a_plan_for_another_gpu_is_refused() -> None:
    with pytest.raises(InputError, match=r"a plan for h100 \(sm_90\) does not run on this GPU \(gfx942\)"):
        GpuPlan(plan_of(PROGRAMS["mlp"]), "h100")


def test_running_out_of_memory_says_what_the_plan_needs(cupy: FakeCupy) -> None:
    program = PROGRAMS["mlp"]
    plan = GpuPlan(plan_of(program))
    cupy.limit = 16
    with pytest.raises(InputError, match=r"out of device memory: .* the plan's temporaries take [1-9]"):
        plan(inputs_of(program))


def test_arrays_of_a_wrong_size_type_or_device_are_refused(cupy: FakeCupy) -> None:
    program = PROGRAMS["statistics"]
    plan = GpuPlan(plan_of(program))
    for array, message in (
        (cupy.asarray(np.zeros((3, 3), np.float32)), r"input 'x' takes shape \(297,\), got \(3, 3\)"),
        (cupy.asarray(np.zeros((9, 33))), "input 'x' takes float32, got float64: convert it first"),
    ):
        with pytest.raises(InputError, match=message):
            plan({"x": array})
    elsewhere = cupy.asarray(np.zeros((9, 33), np.float32))
    setattr(elsewhere, "device", "<device 1>")  # noqa: B010  (a property of NumPy's own arrays)
    with pytest.raises(InputError, match="input 'x' lies on <device 1>, the plan runs on <device 0>"):
        plan({"x": elsewhere})


def test_a_kernel_that_is_refused_is_saved(cupy: FakeCupy, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path))
    plan = GpuPlan(plan_of(PROGRAMS["mlp"]))
    with pytest.raises(CompileFailed, match=r"a kernel does not compile: .*refused \(source .*\.hip"):
        plan._compile("entry", "refuse")
    assert cupy is not None
