"""`eqsat bench`: measures programs as written against their optimised forms, or one model file against another."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from eqsat.cli.shared.options import JsonFile, Numerics, Shape, TimeLimit

if TYPE_CHECKING:
    import numpy as np

    from eqsat.pipeline.result import Result
    from eqsat.program.ir import Program

LEAST_SECONDS = 2e-3
"""Shortest timed interval on the CPU; short programs run several times in it."""

Arrays = Mapping[str, "np.ndarray[Any, Any]"]


@dataclass(frozen=True)
class Contender:
    """One side of a comparison: `sample` gives the microseconds of a run, `outputs` its results."""

    sample: Callable[[], float]
    outputs: Arrays


def bench(
    models: Annotated[
        list[Path], typer.Argument(metavar="IN.onnx...", help="The programs: ONNX files.", show_default=False)
    ],
    on: Annotated[
        Literal["numpy", "gpu", "onnxruntime"],
        typer.Option("--on", help="What computes; onnxruntime runs two files as they are."),
    ] = "numpy",
    device: Annotated[
        str, typer.Option("--device", "-d", help="What to optimise for; `auto` is what computes.")
    ] = "auto",
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Samples of each side; the median counts.")] = 20,
    threads: Annotated[int, typer.Option("--threads", min=1, help="Threads of onnxruntime.")] = 1,
    time_limit: TimeLimit = 10.0,
    numerics: Numerics = "reassociate",
    shape: Shape = None,
    json_file: JsonFile = None,
) -> None:
    """Time programs as written and as optimised, and compare their results.

    Both sides take turns, so that a slow moment slows both. On a GPU both are plans of fused kernels, timed by events
    without the copies of inputs and outputs. With `--on onnxruntime`, nothing is optimised: the sides are two model
    files, and the interval of their ratio tells whether one is faster beyond noise. Exit code 1 if a result differs.

    Examples:

    - `eqsat bench model.onnx`
    - `eqsat bench *.onnx --on gpu --rounds 50 --json times.json`
    - `eqsat bench model.onnx faster.onnx --on onnxruntime`
    """
    from eqsat.base.progress_bar import progress_bar
    from eqsat.cli.shared.output import check_files, console, print_table, write_json
    from eqsat.cli.shared.race import race, show_race
    from eqsat.cli.shared.search import load, optimise

    check_files({str(model): model for model in models}, {"--json": json_file})
    if on not in ("numpy", "gpu"):
        show_race(race(models, on, shape, rounds, threads, time_limit), json_file)
        return
    device = _device(on, device)
    rows = []
    with progress_bar("timing") as report:
        for i, model in enumerate(models):
            report(model.name, i / len(models))
            program = load(model, shape)
            best = optimise(program, device, time_limit, numerics, rules=None)
            compared = _compare(program, best, _on_gpu if on == "gpu" else _on_numpy, rounds)
            rows.append({"name": model.stem} | compared)
    mean = math.exp(math.fsum(math.log(row["ratio"]) for row in rows) / len(rows))
    if json_file is not None:
        write_json({"schema": 1, "on": on, "device": device, "programs": rows, "geometric_mean": mean}, json_file)
    if json_file != "-":
        cells = [_cells(row) for row in rows]
        columns = ("program", "as written", "optimised", "faster", "error", "the same")
        print_table(console(), f"On {on}, optimised for {device}; medians of {rounds}", columns, cells)
        if len(rows) > 1:
            typer.echo(f"Geometric mean: {mean:.2f}x over {len(rows)} programs.")
    if not all(row["passed"] for row in rows):
        raise typer.Exit(1)


def _device(on: str, device: str) -> str:
    if on == "gpu":
        from eqsat.gpu.run.cupy_runtime import this_machine

        row = this_machine(device).row  # before anything is optimised, so that a missing GPU is reported at once
        return row.name if device == "auto" else device
    return "cpu" if device == "auto" else device


def _compare(
    program: Program, best: Result, sides: Callable[[Result, Arrays], tuple[Contender, Contender]], rounds: int
) -> dict[str, Any]:
    """Compare one program: microseconds of both sides, their ratio, and the difference of their results."""
    from eqsat.check.inputs import random_inputs
    from eqsat.cli.commands.run import TOLERANCE
    from eqsat.cli.shared.arrays import largest_error
    from eqsat.gpu.run.timing import medians

    before, after = sides(best, next(random_inputs(program, 1, 0)))
    us = medians({"before": before.sample, "after": after.sample}, rounds)
    errors = {name: largest_error(array, before.outputs[name]) for name, array in after.outputs.items()}
    worst = max(errors.values(), default=0.0)
    return {
        "before_us": us["before"],
        "after_us": us["after"],
        "ratio": us["before"] / us["after"],
        "error": worst if math.isfinite(worst) else None,
        "passed": all(error <= TOLERANCE.get(after.outputs[name].dtype.name, 0.0) for name, error in errors.items()),
    }


def _on_numpy(best: Result, inputs: Arrays) -> tuple[Contender, Contender]:
    return _numpy_run(best.source, inputs), _numpy_run(best.program, inputs)


def _numpy_run(program: Program, inputs: Arrays) -> Contender:
    program.run(inputs)
    start = time.perf_counter()
    outputs = program.run(inputs)
    repeats = max(1, int(LEAST_SECONDS / (time.perf_counter() - start)))

    def sample() -> float:
        start = time.perf_counter()
        for _ in range(repeats):
            program.run(inputs)
        return (time.perf_counter() - start) / repeats * 1e6

    return Contender(sample, outputs)


def _on_gpu(best: Result, inputs: Arrays) -> tuple[Contender, Contender]:
    import eqsat

    device, numerics = best.report["device"], best.report["numerics"]
    written = eqsat.optimize(best.source, device=device, numerics=numerics, rules=[], measure=False)
    return _gpu_run(written, inputs), _gpu_run(best, inputs)


def _gpu_run(best: Result, inputs: Arrays) -> Contender:
    from eqsat.gpu.launch.lower import Signature
    from eqsat.gpu.run.cupy_runtime import GpuPlan
    from eqsat.gpu.run.timing import Timed

    exact = best.report["numerics"] == "exact"
    plan = GpuPlan(best.plan, best.report["device"], Signature.of(best.source), exact=exact)
    with plan.guarded():
        taken = plan.taken(inputs)
    outputs = dict(zip(best.source.outputs, plan(inputs), strict=True))
    return Contender(Timed(plan, taken).sample, outputs)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    from eqsat.cli.shared.report import microseconds

    error = "shape, NaN or Inf differ" if row["error"] is None else f"{row['error']:.0e}"
    times = microseconds(row["before_us"]), microseconds(row["after_us"]), f"{row['ratio']:.2f}x"
    return row["name"], *times, error, "yes" if row["passed"] else "NO"
