"""The path through CuPy, with a stand-in for CuPy whose GPU is the SIMT checker.

Checked: compilation of self-contained sources, memory, argument passing, fills, library products, conversion of inputs,
and errors. Not checked: anything that needs a real GPU.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import eqsat
from eqsat.errors import InputError
from eqsat.gpu.code.errors import CompileFailed, DeviceFailed
from eqsat.gpu.launch.lower import Signature
from eqsat.gpu.run.cupy_runtime import GpuPlan, Replayed, inlined, this_machine
from eqsat.gpu.run.run import run_gpu, runner
from eqsat.program.core import make
from support.fake_cupy import FakeArray, FakeCupy
from support.gpu_programs import (
    PROGRAMS,
    assert_program_results,
    env_of,
    inputs_of,
    one_kernel_each,
    opaque_program,
    plan_of,
)


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


@pytest.mark.parametrize(
    ("arch", "title", "row"),
    [
        ("sm_90", "NVIDIA H100 80GB HBM3", "h100"),
        ("sm_90", "NVIDIA H200", "h200"),
        ("gfx1100", "AMD Radeon RX 7900 XTX", "rx7900xtx"),
        ("gfx942", "some other chip", "mi300x"),
    ],
)
def test_the_row_of_a_gpu_is_found_by_its_name(arch: str, title: str, row: str, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "cupy", FakeCupy(arch, name=title))
    assert this_machine().row.name == row


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


class Tensor:
    """What a torch tensor offers: bits by DLPack, and views of them."""

    def __init__(self, array: np.ndarray[Any, Any], dtype: str | None = None) -> None:
        self.array, self.shape, self.dtype = array, array.shape, dtype or array.dtype.name

    def view(self, dtype: str) -> Tensor:
        return Tensor(self.array, dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class GpuTensor(Tensor):
    """One that lies on GPU `index`, or in memory that no GPU of ours reads."""

    kind, index = 10, 0

    def __dlpack_device__(self) -> Any:
        return self.kind, self.index


@pytest.fixture
def torch(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The package of those tensors, which works on stream 77."""
    module = ModuleType("tensors")
    vars(module).update(
        bfloat16="bfloat16",
        uint16="uint16",
        from_dlpack=lambda a: Tensor(a) if type(a) is np.ndarray else GpuTensor(np.array(a)),
        cuda=SimpleNamespace(current_stream=lambda device: SimpleNamespace(cuda_stream=77 + device)),
    )
    monkeypatch.setitem(sys.modules, "tensors", module)
    for kind in (Tensor, GpuTensor):
        monkeypatch.setattr(kind, "__module__", "tensors.core")
    assert cupy is not None
    return module


KINDS = {"numpy": np.ndarray, "cupy": FakeArray, "host tensor": Tensor, "gpu tensor": GpuTensor}


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("kind", KINDS)
def test_results_are_of_the_kind_that_was_given(kind: str, cupy: FakeCupy) -> None:
    program = PROGRAMS["towers"]
    inputs = inputs_of(program)
    made = {"numpy": lambda a: a, "cupy": cupy.asarray, "host tensor": Tensor, "gpu tensor": GpuTensor}[kind]
    best = eqsat.optimize(program, rules=[])
    (got,) = best.compile(device="auto")({name: made(a) for name, a in inputs.items()}).values()
    assert type(got) is KINDS[kind]
    assert_program_results([np.asarray(got if isinstance(got, np.ndarray) else got.array)], program, inputs)
    assert (77 in cupy.streams) == (kind == "gpu tensor")


@pytest.mark.usefixtures("torch")
def test_one_array_on_the_gpu_keeps_the_results_there(cupy: FakeCupy) -> None:
    program = PROGRAMS["towers"]
    inputs = inputs_of(program)
    given = {"x": Tensor(inputs["x"]), "w1": cupy.asarray(inputs["w1"]), "w2": inputs["w2"]}
    (got,) = GpuPlan(plan_of(program))(given)
    assert type(got) is FakeArray
    assert_program_results([got], program, inputs)


@pytest.mark.usefixtures("torch")
def test_bfloat16_travels_as_its_bits(cupy: FakeCupy) -> None:
    x = make("In", ("x", 64, "bfloat16"))
    out = make("Un", ("relu",), (x,))
    plan = one_kernel_each(("pointwise", out), roots=(out,))
    env = env_of(plan)
    (expected,) = plan.run_numpy(env)
    bits = env["x"].view(np.uint16)
    compiled = GpuPlan(plan)
    (host,) = compiled(env)
    assert host.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(host, expected)
    (on_gpu,) = compiled({"x": cupy.asarray(bits)})
    np.testing.assert_array_equal(on_gpu, expected.view(np.uint16))
    (tensor,) = compiled({"x": GpuTensor(bits, "bfloat16")})
    assert tensor.dtype == "bfloat16"
    np.testing.assert_array_equal(tensor.array, expected.view(np.uint16))


@pytest.mark.usefixtures("torch")
def test_a_jitted_function_runs_on_the_gpu() -> None:
    @eqsat.jit(on="gpu", device="auto")
    def mlp(x: Any, w: Any) -> Any:
        return {"hidden": eqsat.relu(x @ w)}

    x, w = np.ones((4, 8), np.float32), np.full((8, 3), 0.5, np.float32)
    np.testing.assert_array_equal(mlp(x, w)["hidden"], np.full((4, 3), 4.0))
    assert type(mlp(Tensor(x, "torch.float32"), w)["hidden"]) is Tensor


@pytest.mark.usefixtures("cupy")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_tensors_of_torch_are_taken_and_given(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    compiled = eqsat.optimize(eqsat.trace(eqsat.relu, eqsat.spec((3, 5), dtype)), rules=[]).compile(device="auto")
    x = torch.linspace(-1, 1, 15).reshape(5, 3).T.to(getattr(torch, dtype))  # strided
    got = compiled(x)
    assert got.dtype == x.dtype
    assert torch.equal(got, x.relu())
    if dtype == "float32":
        with pytest.raises(InputError, match=r"input '\w+' cannot be read: .*grad"):
            compiled(x.requires_grad_())


def test_constants_are_uploaded_once(cupy: FakeCupy) -> None:
    weights = np.arange(16, dtype=np.float32).reshape(4, 4)
    plan = GpuPlan(plan_of(eqsat.trace(lambda x: x @ weights, eqsat.spec((3, 4)))))
    assert cupy.uploads == 1
    x = cupy.asarray(np.ones(12, np.float32))
    for _ in range(3):
        plan({"x": x})
    assert cupy.uploads == 2


def test_library_products_go_to_cupy(cupy: FakeCupy) -> None:
    x, w = make("In", ("x", 240, "float32")), make("In", ("w", 320, "float32"))
    out = make("MM", (1, 12, 20, 16), (x, w))
    plan = one_kernel_each(("library-gemm", out), roots=(out,))
    env = env_of(plan)
    np.testing.assert_allclose(GpuPlan(plan).run_host(env)[0], plan.run_numpy(env)[0], rtol=1e-5)
    assert cupy.products == [((12, 20), (20, 16))]  # a batch of one would be copied, and float16 computed as float32


@pytest.mark.parametrize(("dtype", "matmuls"), [("float32", 1), ("float16", 0)])
def test_cupy_gets_no_batches_of_float16(dtype: str, matmuls: int, cupy: FakeCupy) -> None:
    """It converts them to float32."""
    x, w = make("In", ("x", 480, dtype)), make("In", ("w", 640, dtype))
    plan = one_kernel_each(("library-gemm", out := make("MM", (2, 12, 20, 16), (x, w))), roots=(out,))
    env = env_of(plan)
    np.testing.assert_allclose(GpuPlan(plan).run_host(env)[0], plan.run_numpy(env)[0], rtol=1e-2)
    assert cupy.matmuls == matmuls


def test_a_plan_that_is_recorded_leaves_nothing_to_nvidias_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy refuses to record its calls."""
    cupy = FakeCupy("sm_90")
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    x, w = make("In", ("x", 240, "float32")), make("In", ("w", 320, "float32"))
    out = make("MM", (1, 12, 20, 16), (x, w))
    plan = one_kernel_each(("library-gemm", out), roots=(out,))
    env = env_of(plan)
    with pytest.raises(InputError, match="does not record calls of NVIDIA's library"):
        GpuPlan(plan).capture(env)
    captured = GpuPlan(plan, recorded=True).capture(env)
    captured.launch()
    np.testing.assert_allclose(captured.outputs[0], plan.run_numpy(env)[0], rtol=1e-5)
    assert cupy.matmuls == 0


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
    for output in captured.outputs:
        output[...] = np.nan
    captured.launch()
    assert_program_results(captured.outputs, program, inputs)


def test_a_plan_as_a_graph_takes_new_arrays_at_every_call(cupy: FakeCupy) -> None:
    program = PROGRAMS["mlp"]
    compiled = eqsat.optimize(program, rules=[]).compile(device="auto", capture=True)
    given = [inputs_of(program, seed) for seed in (1, 2, 3)]
    results = [compiled(inputs) for inputs in given]  # kept: a later call must not write over an earlier result
    for inputs, result in zip(given, results, strict=True):
        assert_program_results(list(result.values()), program, inputs)
    assert cupy is not None


def test_a_driver_that_records_no_graphs_says_so(cupy: FakeCupy) -> None:
    cupy.records = False
    program = PROGRAMS["mlp"]
    with pytest.raises(DeviceFailed, match="the GPU stopped: operation not supported"):
        Replayed(GpuPlan(plan_of(program)))(inputs_of(program))


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


@pytest.mark.parametrize("kind", ["CUDARuntimeError", "CUDADriverError", "CUBLASError"])
def test_whatever_the_driver_reports_is_one_error(kind: str, cupy: FakeCupy) -> None:
    """Also where the return to the device of before fails, as it does after an illegal access."""
    program = PROGRAMS["mlp"]
    plan = GpuPlan(plan_of(program))
    cupy.broken = getattr(cupy, kind)("broken")
    with pytest.raises(DeviceFailed, match="the GPU stopped: "):
        plan(inputs_of(program))


def test_running_out_of_memory_says_what_the_plan_needs(cupy: FakeCupy) -> None:
    program = PROGRAMS["mlp"]
    plan = GpuPlan(plan_of(program))
    cupy.limit = 16
    with pytest.raises(InputError, match=r"out of device memory: .* takes \d+ bytes \(inputs \d+, constants 0,"):
        plan(inputs_of(program))


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("kind", KINDS)
def test_arrays_of_a_wrong_shape_or_type_are_refused(kind: str, cupy: FakeCupy) -> None:
    program = PROGRAMS["statistics"]
    made = {"numpy": lambda a: a, "cupy": cupy.asarray, "host tensor": Tensor, "gpu tensor": GpuTensor}[kind]
    compiled = eqsat.optimize(program, rules=[]).compile(device="auto")
    for array, message in (
        (np.zeros((3, 3), np.float32), r"input 'x' takes shape \(9, 33\), got \(3, 3\)"),
        (np.zeros((33, 9), np.float32), r"input 'x' takes shape \(9, 33\), got \(33, 9\)"),
        (np.zeros((9, 33)), "input 'x' takes float32, got float64: convert it first"),
    ):
        with pytest.raises(InputError, match=message):
            compiled(made(array))


@pytest.mark.usefixtures("torch")
def test_arrays_on_another_device_are_refused(cupy: FakeCupy) -> None:
    plan = GpuPlan(plan_of(PROGRAMS["statistics"]))
    x = np.zeros((9, 33), np.float32)
    elsewhere = cupy.asarray(x)
    setattr(elsewhere, "device", SimpleNamespace(id=1))  # noqa: B010  (a property of NumPy's own arrays)
    tensor, foreign = GpuTensor(x), GpuTensor(x)
    tensor.index, foreign.kind = 1, 7
    for array, where in ((elsewhere, "1"), (tensor, "1"), (foreign, "of DLPack type 7")):
        with pytest.raises(InputError, match=f"input 'x' lies on device {where}, the plan runs on device 0"):
            plan({"x": array})


@pytest.mark.usefixtures("cupy")
def test_wrong_names_are_refused() -> None:
    compiled = eqsat.optimize(PROGRAMS["statistics"], rules=[]).compile(device="auto")
    with pytest.raises(InputError, match="no input is called 'y': the plan takes x"):
        compiled({"y": np.zeros((9, 33), np.float32)})
    with pytest.raises(InputError, match="input 'x' is missing: the plan takes x"):
        compiled({})
    with pytest.raises(InputError, match=r"the program takes 1 arrays \(x\), got 2"):
        compiled(1, 2)


def test_a_kernel_that_is_refused_is_saved(cupy: FakeCupy, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path))
    cupy.refuses = lambda code: True
    with pytest.raises(CompileFailed, match=r"a kernel does not compile: .*refused \(source .*\.hip") as refused:
        GpuPlan(plan_of(PROGRAMS["mlp"]))
    saved = re.search(r"source (\S+)\.hip", str(refused.value))
    assert saved is not None
    assert "EQ_KERNEL" in Path(saved[1] + ".hip").read_text()
    assert "refused" in Path(saved[1] + ".log").read_text()
