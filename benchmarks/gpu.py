"""Plans on the GPU of this machine, against themselves unfused, CuPy, and torch where it is installed.

    python benchmarks/gpu.py DIR [--match PATTERN] [--rounds N] [--gemm SIZE] [--tune SECONDS] [--json FILE]

DIR holds NAME.onnx files. Timed for each, by events on the device, without copies of inputs and outputs:

    eqsat           the optimised plan, replayed as a graph
    unfused         the optimised program, one kernel per operator, replayed as a graph
    cupy            the program as written, by CuPy
    torch           the program as written, by torch, eager
    torch.compile   the same, compiled (with its graphs)

All of them take turns within each round, so that a slow moment slows all; each time is the median over the rounds. The
last lines are the geometric means over the programs, and a float16 product compared with the vendor's library. Exit
code 1 if a result is wrong or a plan launches another number of kernels than it says, 3 without a GPU or CuPy.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
from rivals import Library, NotCovered, cupy_library, torch_library

import eqsat
from eqsat.check.inputs import random_inputs
from eqsat.cli.shared.arrays import largest_error
from eqsat.egraph.snapshot import Snapshot
from eqsat.errors import InputError
from eqsat.extract.cover import source_cover
from eqsat.extract.device.table import Device
from eqsat.extract.plan.calibrate import Micro
from eqsat.extract.plan.plan import Plan, build_plan
from eqsat.gpu.launch.lower import Launch, LibraryProduct, Signature
from eqsat.gpu.run.cupy_runtime import GpuPlan, Machine, this_machine
from eqsat.gpu.run.timing import WARM_UP, Timed, elapsed_us, medians
from eqsat.gpu.run.tune import tune
from eqsat.program.core import lower
from eqsat.program.ir import Program

LARGEST_ERROR = {"float32": 1e-4, "float16": 2e-3, "bfloat16": 2e-2}
"""Largest error, as a share of an output's scale."""

Samples = dict[str, Callable[[], float]]
"""Microseconds of a run, by runner."""


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; the exit code."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    options.add_argument("--match", default="*", help="only programs whose name matches this pattern")
    options.add_argument("--rounds", type=int, default=50)
    options.add_argument("--gemm", type=int, default=4096, help="edge of the float16 product")
    options.add_argument("--tune", type=float, default=0.0, help="seconds for tuning each program's kernels first")
    options.add_argument("--json", type=Path, help="also write the rows here")
    chosen = options.parse_args(arguments)
    try:
        machine = this_machine()
    except InputError as failure:
        print(failure, file=sys.stderr)
        return 3
    models = [path for path in sorted(chosen.folder.glob("*.onnx")) if fnmatch(path.stem, chosen.match)]
    if not models:
        options.error(f"{chosen.folder}: no file matches {chosen.match}.onnx")
    print(f"{machine.name}; medians of {chosen.rounds} rounds, microseconds")
    rows = [measure(path, machine, chosen.rounds, chosen.tune) for path in models]
    against_library = product(machine, chosen.gemm, chosen.rounds, chosen.tune)
    summary = {"programs": rows, "means": means(rows), "product": against_library}
    for name, mean in summary["means"].items():
        print(f"geometric mean against {name}: {mean:.2f}x")
    share = against_library["library"] / against_library["eqsat"]
    print(f"float16 product of {chosen.gemm}: {shown(against_library)}; {share:.0%} of its rate")
    if chosen.json:
        chosen.json.write_text(json.dumps({"machine": machine.name} | summary, indent=2) + "\n", encoding="utf-8")
    return int(any(row["fault"] for row in rows))


def measure(path: Path, machine: Machine, rounds: int, tune_seconds: float) -> dict[str, Any]:
    """One program: microseconds by runner, and the faults of our result."""
    program = eqsat.from_onnx(path)
    best = eqsat.optimize(program, device=machine.row)
    if tune_seconds:
        tune(best.plan, machine.row, tune_seconds)
    inputs = next(random_inputs(program, 1, 0))
    plan = GpuPlan(best.plan, machine.row, Signature.of(program))
    samples = {
        "eqsat": timed(plan, inputs),
        "unfused": timed(GpuPlan(unfused(best.program, machine.row), machine.row, Signature.of(program)), inputs),
    }
    samples |= rivals(machine.cupy, program, inputs)
    times = medians(samples, rounds)
    fault = wrong(plan, program, inputs) or miscounted(plan, best.plan)
    print(f"{path.stem}: {shown(times)}{'; ' + fault if fault else ''}", flush=True)
    return {"name": path.stem, "us": times, "launches": launches(plan), "fault": fault}


def timed(plan: GpuPlan, inputs: Mapping[str, Any]) -> Callable[[], float]:
    """A plan over these arrays."""
    with plan.guarded():
        taken = plan.taken(inputs)
    return Timed(plan, taken).sample


def unfused(program: Program, row: Device) -> Plan:
    """A program with one kernel per operator."""
    core = lower(program)
    return build_plan(Snapshot.from_core(core.roots), source_cover(core, replace(row, fuses=False)), core)


def launches(plan: GpuPlan) -> int:
    """Kernels that a run of a plan launches, including those of the vendor's library."""
    return sum(isinstance(step, Launch | LibraryProduct) for step in plan.launches.steps)


def miscounted(compiled: GpuPlan, plan: Plan) -> str:
    """What is wrong with the number of launches."""
    said = sum(kernel.launches for kernel in plan.kernels)
    return "" if launches(compiled) <= said else f"{launches(compiled)} launches, the plan says {said}"


def wrong(plan: GpuPlan, program: Program, inputs: Mapping[str, Any]) -> str:
    """What is wrong with the results of a plan."""
    expected = program.run(inputs, precision="float64")
    for (name, want), got in zip(expected.items(), plan(inputs), strict=True):
        error = largest_error(got, want)
        if error > LARGEST_ERROR.get(program.outputs[name].dtype, 0.0):
            return f"output {name} is off by {error:.1e} of its scale"
    return ""


def rivals(cupy: Any, program: Program, inputs: Mapping[str, np.ndarray[Any, Any]]) -> Samples:
    """The program as written, run by other libraries that are installed and have its operators."""
    found: Samples = {}
    try:
        from cupyx.scipy.special import erf  # pyright: ignore[reportMissingImports]

        found["cupy"] = eager(cupy, cupy_library(cupy, erf), program, inputs)
    except (ImportError, NotCovered) as failure:
        print(f"  no cupy: {failure}", file=sys.stderr)
    try:
        import torch  # pyright: ignore[reportMissingImports]

        library = torch_library(torch, "cuda")
        with torch.no_grad():
            found["torch"] = eager(cupy, library, program, inputs)
            compiled = torch.compile(library.run(program), mode="reduce-overhead")
            found["torch.compile"] = eager(cupy, library, program, inputs, compiled)
    except (ImportError, NotCovered) as failure:
        print(f"  no torch: {failure}", file=sys.stderr)
    return found


def eager(
    cupy: Any,
    library: Library,
    program: Program,
    inputs: Mapping[str, np.ndarray[Any, Any]],
    function: Callable[..., Any] | None = None,
) -> Callable[[], float]:
    """A library's run of a program over arrays of its own, timed on the null stream, where both libraries work."""
    arrays = [library.array(inputs[name]) for name in program.input_names]
    call = function or library.run(program)
    for _ in range(WARM_UP):
        call(*arrays)
    return lambda: elapsed_us(cupy, lambda: call(*arrays))


def product(machine: Machine, n: int, rounds: int, tune_seconds: float) -> dict[str, float]:
    """Microseconds of a float16 product by our kernel and by the vendor's library."""
    cupy = machine.cupy
    program = eqsat.trace(lambda x, w: eqsat.relu(x @ w), *(eqsat.spec((n, n), "float16"),) * 2)
    plan = Micro(program).plan(machine.row)
    if tune_seconds:
        tune(plan, machine.row, tune_seconds)
    arrays = {name: cupy.random.standard_normal((n, n)).astype(np.float16) for name in program.input_names}
    x, w = arrays.values()
    out = cupy.empty((n, n), np.float16)
    ours = GpuPlan(plan, machine.row, Signature.of(program))
    samples = {"eqsat": timed(ours, arrays), "library": lambda: elapsed_us(cupy, lambda: cupy.matmul(x, w, out=out))}
    return medians(samples, rounds)


def means(rows: list[dict[str, Any]]) -> dict[str, float]:
    """How many times faster our plans are: for each rival the geometric mean over the programs that it ran."""
    ratios: dict[str, list[float]] = {}
    for row in rows:
        for name, us in row["us"].items():
            if name != "eqsat":
                ratios.setdefault(name, []).append(us / row["us"]["eqsat"])
    return {name: math.exp(sum(map(math.log, found)) / len(found)) for name, found in ratios.items()}


def shown(times: Mapping[str, float]) -> str:
    """Each time, and its ratio to ours."""
    return ", ".join(f"{who} {us:.1f} ({us / times['eqsat']:.2f}x)" for who, us in times.items())


if __name__ == "__main__":
    sys.exit(main())
