"""Running a plan: in the SIMT checker, or on a GPU through CuPy.

- `runner(plan, "simt", "mi300x")`: a function from flat NumPy arrays by name to flat NumPy arrays.
- `run_simt(plan, inputs)` and `run_gpu(plan, inputs)`: the same, once.
- `gpu_runner(plan, "auto", signature)`: compiled once, called many times, for arrays that live on the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from eqsat.base.interrupt import Interruptible
from eqsat.base.numerics import np_dtype
from eqsat.errors import InputError
from eqsat.extract.device.table import DeviceLike
from eqsat.extract.device.table import device as find_device
from eqsat.extract.plan.plan import Plan, Result
from eqsat.gpu import simt
from eqsat.gpu.families.base import Kernel
from eqsat.gpu.launch.grouping import ACCESS_ALIGNMENT, groups
from eqsat.gpu.launch.lower import Fill, HostCall, Launch, Launches, Signature, lower
from eqsat.gpu.table.targets import TARGETS, Target
from eqsat.layout.arithmetic import identity

Array = np.ndarray[Any, Any]
Runner = Callable[[Mapping[str, Array]], list[Array]]

_POISON = 0xFF
"""Every byte of memory that nothing has written: NaN in all float types."""


def runner(plan: Plan, on: str, device: DeviceLike) -> Runner:
    """A function from input name to flat array to the flat roots.

    Args:
        on: 'simt' for the checker, 'gpu' for the GPU of this machine.

    Raises:
        InputError: `on` is neither, the device is unknown, or what it needs is not installed.
    """
    if on == "simt":
        launches = lower(plan, device)
        return lambda inputs: run_launches(launches, inputs)
    if on == "gpu":
        from eqsat.gpu.run.cupy_runtime import GpuPlan

        return GpuPlan(plan, device).run_host
    raise InputError(f"nothing runs plans on {on!r}: 'simt' and 'gpu' do")


def run_simt(
    plan: Plan, inputs: Mapping[str, Array], device: DeviceLike = "mi300x", order: int = simt.FORWARD
) -> list[Array]:
    """The flat roots of a plan, by the device's own kernels in the SIMT checker.

    Raises:
        InputError: an input is missing or of the wrong size, or there is no C++ compiler.
        SimtError: a kernel broke a rule of the machine.
    """
    return run_launches(lower(plan, device), inputs, order)


def run_gpu(plan: Plan, inputs: Mapping[str, Any], device: DeviceLike = "auto") -> list[Any]:
    """The roots of a plan, once; `gpu_runner` keeps what is compiled.

    Args:
        inputs: CuPy, DLPack or NumPy arrays by name; the roots are of the same kind.

    Raises:
        InputError: no CuPy, no GPU, a device of another instruction set, or an input that does not fit.
    """
    from eqsat.gpu.run.cupy_runtime import GpuPlan

    return GpuPlan(plan, device)(inputs)


def gpu_target(device: DeviceLike) -> Target:
    """The instruction set of a device.

    Raises:
        InputError: there is no such device, or no kernels are made for it.
    """
    row = find_device(device)
    if row.arch not in TARGETS:
        raise InputError(f"device {row.name} runs no GPU kernels: name a GPU (see `eqsat devices`)")
    return TARGETS[row.arch]


def texts(plan: Plan, device: DeviceLike) -> list[tuple[tuple[int, ...], Kernel]]:
    """Every kernel text of a plan, with the positions of the plan's kernels that it computes.

    A kernel may be several texts (sums in slices), several kernels one (a group), and some have none: opaque operators,
    and concatenations that others write in place.

    Raises:
        InputError: as for `gpu_target`.
    """
    gpu_target(device)
    launched = lower(plan, device).kernels
    found = []
    for group in groups(plan):
        members = tuple(plan.kernels[i] for i in group)
        roots = tuple(node for kernel in members for node in kernel.outputs)
        results = tuple(Result(node, identity(node.size)) for node in roots)
        alone = lower(replace(plan, kernels=members, roots=roots, results=results), device).kernels
        found += [(tuple(group), kernel) for entry, kernel in alone.items() if entry in launched]
    return found


def gpu_runner(
    plan: Plan,
    device: DeviceLike,
    signature: Signature,
    tune: float | None = None,
    capture: bool = False,
    held: Collection[str] = (),
) -> Callable[[Mapping[str, Any]], list[Any]]:
    """A function from arrays by name to the shaped roots, of the same kind, on the GPU of this machine.

    Args:
        tune: seconds for measuring variants of the kernels first.
        capture: replay the launches as one graph.
        held: inputs that the graph reads where they lie.

    Raises:
        InputError: no CuPy, no GPU, or a device of another instruction set.
    """
    from eqsat.gpu.run import cupy_runtime as gpu
    from eqsat.gpu.run.tune import tune as measure

    if tune is not None:
        measure(plan, device, tune)
    compiled = gpu.GpuPlan(plan, device, signature, recorded=capture)
    return gpu.Replayed(compiled, held) if capture else compiled


def run_launches(launches: Launches, inputs: Mapping[str, Array], order: int = simt.FORWARD) -> list[Array]:
    """Run lowered launches in the checker. Outputs and temporaries start out as NaN.

    Ctrl-C abandons a kernel that runs, which may take seconds.
    """
    found = Interruptible().run(lambda: _run_launches(launches, inputs, order), None, grace=0.0)
    if found is None:
        raise KeyboardInterrupt
    return found


def _run_launches(launches: Launches, inputs: Mapping[str, Array], order: int) -> list[Array]:
    memory = _memory(launches, inputs)
    source = "\n".join(kernel.source for kernel in launches.kernels.values())
    for step in launches.steps:
        match step:
            case Fill():
                memory[step.buffer].fill(step.value)
            case HostCall():
                launches.call_host(step, memory)
            case Launch():
                arguments = tuple(simt.Argument(memory[p.buffer], p.offset) for p in step.arguments)
                call = simt.Call(step.kernel.entry, step.kernel.blocks, step.kernel.threads, arguments)
                simt.run(source, launches.target, [call], order)
    results = zip(launches.results, launches.shapes, strict=True)
    return [memory[place.buffer][place.offset : place.offset + prod(shape)] for place, shape in results]


def _memory(launches: Launches, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Every buffer as a flat array."""
    memory: dict[str, Array] = {}
    for buffer in launches.buffers.values():
        dtype = np_dtype(buffer.dtype)
        if buffer.kind == "input":
            memory[buffer.name] = checked_input(buffer.name, inputs, buffer.size, dtype)
        elif buffer.kind == "constant":
            memory[buffer.name] = np.ascontiguousarray(launches.constants[buffer.name], dtype)
        else:
            memory[buffer.name] = np.full(buffer.nbytes, _POISON, np.uint8).view(dtype)
    return memory


def checked_input(name: str, inputs: Mapping[str, Array], size: int, dtype: np.dtype[Any]) -> Array:
    """The flat contiguous array of an input, aligned for vector access.

    Raises:
        InputError: it is missing, or has another size or element type.
    """
    if name not in inputs:
        raise InputError(f"input {name!r} is missing")
    array = np.asarray(inputs[name])
    if array.size != size:
        raise InputError(f"input {name!r} takes {size} elements, got shape {array.shape}")
    if array.dtype != dtype:
        raise InputError(f"input {name!r} takes {dtype}, got {array.dtype}: convert it first")
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat if flat.ctypes.data % ACCESS_ALIGNMENT == 0 else flat.copy()
