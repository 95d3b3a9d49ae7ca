"""`emit`: a plan as a folder that anyone can compile and run: sources, manifest, constants, README."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from eqsat.base.files import write_folder
from eqsat.errors import InputError
from eqsat.extract.device.table import DeviceLike
from eqsat.extract.plan.plan import Plan
from eqsat.gpu.build.compilers import AMD_FLAGS
from eqsat.gpu.build.nvrtc import FLAGS as NVRTC_FLAGS
from eqsat.gpu.code.cache import TEMPLATES
from eqsat.gpu.launch.generate import chain
from eqsat.gpu.launch.lower import Buffer, Fill, HostCall, Launch, Launches, Place, Signature, Step, lower
from eqsat.gpu.run.arrays import carrier
from eqsat.gpu.table.targets import Target
from eqsat.program.core import make
from eqsat.program.ir import Program

SCHEMA = 1

KNOWN = ("constants.npz", "manifest.json", "README.md", *sorted(path.name for path in TEMPLATES.glob("*.h")))
"""What every emitted folder holds, besides the sources, whose names come from the kernels."""

_WRITTEN = "Written by `eqsat emit`."
"""Stands in the README of every folder."""


def _anything(names: Sequence[str]) -> None:
    pass


def emit(
    plan: Plan,
    device: DeviceLike,
    outdir: str | Path,
    program: Program | None = None,
    check: Callable[[Sequence[str]], object] = _anything,
) -> dict[str, Any]:
    """Write a plan's kernels for a device into `outdir`; the manifest, as written.

    The folder holds the kernel sources and the headers that they include, manifest.json (schema 1: buffers, and steps
    in order), constants.npz and README.md. Nothing else is needed to run it.

    Args:
        program: names and shapes of inputs and outputs; without it they are flat.
        check: told the names of all files before any is written. If it raises, none is.

    Raises:
        InputError: the device is unknown, `program` is not the plan's, the plan holds an opaque operator, or the folder
            cannot be written or has a README.md of its own.
    """
    own = Path(outdir) / "README.md"
    if own.is_file() and _WRITTEN not in own.read_text(errors="replace"):
        raise InputError(f"{own}: is not of a folder of kernels, and would be overwritten; choose another folder")
    launches = lower(plan, device, Signature.of(program) if program else None, own_outputs=True)
    for step in launches.steps:
        if isinstance(step, HostCall):
            name = launches.opaque[step.key].term.attr("name")
            raise InputError(f"operator {name} is opaque: it has no kernel to emit; replace it in the model")
    launches = replace(launches, steps=tuple(_filled_by_kernel(step, launches) for step in launches.steps))
    suffix = ".hip" if launches.target.maker == "amd" else ".cu"
    check([*KNOWN, *(f"{entry}{suffix}" for entry in launches.kernels)])
    made = manifest(launches, suffix)
    write_folder(outdir, lambda folder: _fill(folder, launches, made, suffix), last="manifest.json")
    return made


def _fill(folder: Path, launches: Launches, made: Mapping[str, Any], suffix: str) -> None:
    for header in sorted(TEMPLATES.glob("*.h")):
        shutil.copyfile(header, folder / header.name)
    for entry, kernel in launches.kernels.items():
        (folder / f"{entry}{suffix}").write_text(kernel.source)
    constants: dict[str, Any] = {name: _plain(array) for name, array in launches.constants.items()}
    np.savez(folder / "constants.npz", **constants)
    (folder / "manifest.json").write_text(json.dumps(made, indent=1, allow_nan=False) + "\n")
    (folder / "README.md").write_text(readme(launches, suffix))


def _filled_by_kernel(step: Step, launches: Launches) -> Step:
    """A fill with an infinity as a launch: JSON has no word for it."""
    if not isinstance(step, Fill) or math.isfinite(step.value):
        return step
    buffer = launches.buffers[step.buffer]
    full = make("Full", (step.value, buffer.size, buffer.dtype))
    (kernel,) = chain("fill", (full,), (), launches.target, int(launches.device.units.value)).kernels
    return Launch(kernel, (Place(step.buffer),))


def _plain(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array of a type that NumPy itself has: bfloat16 as the uint16 of its bits, float8 as uint8."""
    return array.view(carrier(array.dtype))


def manifest(launches: Launches, suffix: str) -> dict[str, Any]:
    """The manifest (schema 1) of lowered launches."""
    used = {p.buffer for s in launches.steps if isinstance(s, Launch) for p in s.arguments}
    used |= {s.buffer for s in launches.steps if isinstance(s, Fill)}
    return {
        "schema": SCHEMA,
        "device": launches.device.name,
        "arch": launches.target.arch,
        "wave": launches.target.wave,
        "defines": [],
        "memory": launches.memory,
        "buffers": {
            b.name: _buffer(b) for b in launches.buffers.values() if b.kind in ("input", "output") or b.name in used
        },
        "steps": [_step(step, suffix) for step in launches.steps],
    }


def _buffer(buffer: Buffer) -> Mapping[str, Any]:
    row = {"shape": list(buffer.shape), "dtype": buffer.dtype, "kind": buffer.kind}
    if buffer.kind == "output":
        return row | {"name": buffer.output}
    return row | ({"arena_offset": buffer.offset} if buffer.kind == "temporary" else {})


def _step(step: Step, suffix: str) -> Mapping[str, Any]:
    if isinstance(step, Fill):
        value = step.value
        return {"fill": step.buffer, "value": int(value) if isinstance(value, bool) else value}
    assert isinstance(step, Launch)
    kernel = step.kernel
    return {
        "kernel": kernel.entry,
        "source": f"{kernel.entry}{suffix}",
        "family": kernel.family,
        "grid": [kernel.blocks, 1, 1],
        "block": [kernel.threads, 1, 1],
        "shared_bytes": kernel.launch_lds,
        "args": [{"buffer": p.buffer, "offset": p.offset} for p in step.arguments],
    }


def compile_line(target: Target) -> str:
    """The command that compiles one emitted source."""
    if target.maker == "amd":
        return f"clang-19 {' '.join(AMD_FLAGS)} --offload-arch={target.arch} KERNEL.hip -o KERNEL.hsaco"
    return f"nvrtc (or nvcc -cubin): --gpu-architecture={target.compiled_as} {' '.join(NVRTC_FLAGS)} KERNEL.cu"


def readme(launches: Launches, suffix: str) -> str:
    """The README of a folder: how to compile the kernels and run the steps."""
    from eqsat.gpu.families.base import environment

    return (
        environment(TEMPLATES)
        .get_template("README.md.jinja")
        .render(
            launches=launches,
            suffix=suffix,
            compile_line=compile_line(launches.target),
            ends=[b for b in launches.buffers.values() if b.kind in ("input", "output")],
            steps=launches.steps,
            at_launch=any(kernel.launch_lds for kernel in launches.kernels.values()),
        )
    )
