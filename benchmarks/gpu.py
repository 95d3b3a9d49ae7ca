"""Plans on the GPU of this machine, against themselves unfused, CuPy, and torch where it is installed.

    python benchmarks/gpu.py DIR [--match PATTERN] [--rounds N] [--gemm SIZE]

DIR holds NAME.onnx files. All variants of a program take turns within each round, so that a slow moment slows all of
them; each time is the median over the rounds, by events on the device. The last lines compare a float16 product with
the vendor's library. Exit code 3 where there is no GPU or no CuPy.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np

import eqsat
from eqsat.core import lower
from eqsat.errors import InputError
from eqsat.extract.cover import source_cover
from eqsat.extract.plan import Plan, build_plan
from eqsat.gpu.device import GpuPlan, import_cupy, local_device
from eqsat.gpu.lower import Signature
from eqsat.ir import Program
from eqsat.numerics import random_array
from eqsat.snapshot import Snapshot

WARM_UP = 3


def main() -> int:
    """Run the benchmark; the exit code."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    options.add_argument("--match", default="*")
    options.add_argument("--rounds", type=int, default=50)
    options.add_argument("--gemm", type=int, default=4096)
    chosen = options.parse_args()
    try:
        cupy = import_cupy()
        row = local_device(cupy)
    except InputError as failure:
        print(failure, file=sys.stderr)
        return 3
    print(f"{row.title} ({row.arch}), medians of {chosen.rounds} rounds, microseconds")
    for path in sorted(chosen.folder.glob("*.onnx")):
        if fnmatch(path.stem, chosen.match):
            program = eqsat.from_onnx(path)
            report(path.stem, measure(cupy, program_variants(cupy, program, row), chosen.rounds))
    n = chosen.gemm
    times = measure(cupy, product_variants(cupy, n), chosen.rounds)
    report(f"float16 product of {n}", times)
    print(f"  {times['library'] / times['eqsat']:.0%} of the library's rate")
    return 0


def unfused(program: Program, row: Any) -> Plan:
    """The program as written, an operator a kernel."""
    core = lower(program)
    device = replace(row, fuses=False)
    return build_plan(Snapshot.from_core(core.roots), source_cover(core, device), core)


def program_variants(cupy: Any, program: Program, row: Any) -> dict[str, Callable[[], Any]]:
    """What is timed for a program: each variant as a function of no argument that launches it."""
    rng = np.random.default_rng(0)
    inputs = {t.attr("name"): random_array(t.shape, t.dtype, rng) for t in program.inputs}
    on_gpu = {name: cupy.asarray(a) for name, a in inputs.items()}
    best = eqsat.optimize(program, device=row)
    signature = Signature.of(program)
    plans = {
        "eqsat": GpuPlan(best.plan, row, signature),
        "eqsat, unfused": GpuPlan(unfused(program, row), row, signature),
    }
    variants: dict[str, Callable[[], Any]] = {name: bound(plan, on_gpu) for name, plan in plans.items()}
    return variants | torch_variants(program, inputs)


def bound(plan: GpuPlan, inputs: Mapping[str, Any]) -> Callable[[], Any]:
    """The plan over these arrays."""
    return lambda: plan(inputs)


def torch_variants(program: Program, inputs: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, Callable[[], Any]]:
    """Eager and compiled torch, where torch and onnx2torch are installed."""
    try:
        import torch  # pyright: ignore[reportMissingImports]
        from onnx2torch import convert  # pyright: ignore[reportMissingImports]
    except ImportError:
        return {}
    from eqsat.frontends.onnx_out import to_onnx

    model = convert(to_onnx(program)).cuda().eval()
    tensors = [torch.from_numpy(a).cuda() for a in inputs.values()]
    compiled = torch.compile(model)

    def run(function: Any) -> Callable[[], Any]:
        def call() -> Any:
            with torch.no_grad():
                return function(*tensors)

        return call

    return {"torch": run(model), "torch.compile": run(compiled)}


def product_variants(cupy: Any, n: int) -> dict[str, Callable[[], Any]]:
    """Our own float16 product and the vendor's library's."""
    program = eqsat.trace(lambda x, w: eqsat.relu(x @ w), *(eqsat.spec((n, n), "float16"),) * 2)
    x, w = (cupy.random.standard_normal((n, n)).astype(np.float16) for _ in range(2))
    row = local_device(cupy)
    plan = GpuPlan(eqsat.optimize(program, device=row).plan, row)
    return {"eqsat": bound(plan, {"x": x, "w": w}), "library": lambda: cupy.matmul(x, w)}


def measure(cupy: Any, variants: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median microseconds of each variant; they take turns."""
    for run in variants.values():
        for _ in range(WARM_UP):
            run()
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, run in variants.items():
            start, end = cupy.cuda.Event(), cupy.cuda.Event()
            start.record()
            run()
            end.record()
            end.synchronize()
            times[name].append(cupy.cuda.get_elapsed_time(start, end) * 1e3)
    return {name: statistics.median(each) for name, each in times.items()}


def report(name: str, times: Mapping[str, float]) -> None:
    """One line: each variant's time, and its ratio to ours."""
    shown = [f"{variant} {t:.1f} ({t / times['eqsat']:.2f}x)" for variant, t in times.items()]
    print(f"{name}: {', '.join(shown)}")


if __name__ == "__main__":
    sys.exit(main())
