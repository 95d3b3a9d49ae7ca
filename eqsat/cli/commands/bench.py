"""`eqsat bench`: measures programs as written against their optimised forms, or one model file against another."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from eqsat.cli.shared.options import MOST_THREADS, JsonFile, Numerics, Shape, TimeLimit, output_folder
from eqsat.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from eqsat.pipeline.result import Result
    from eqsat.program.ir import Program
    from eqsat.suite.parts import Size

LEAST_SECONDS = 2e-3
"""Shortest timed interval on the CPU; short programs run several times in it."""

_MINUTES = {"gpu": 25.0, "checker": 3.0}

Arrays = Mapping[str, "np.ndarray[Any, Any]"]


@dataclass(frozen=True)
class Contender:
    """One side of a comparison: `sample` gives the microseconds of a run, `outputs` its results."""

    sample: Callable[[], float]
    outputs: Arrays


def bench(
    models: Annotated[
        list[Path] | None, typer.Argument(metavar="IN.onnx...", help="The programs: ONNX files.", show_default=False)
    ] = None,
    on: Annotated[
        Literal["numpy", "gpu", "onnxruntime", "checker"] | None,
        typer.Option("--on", help="What computes: numpy, or gpu with --suite; onnxruntime runs two files as they are."),
    ] = None,
    device: Annotated[
        str, typer.Option("--device", "-d", help="What to optimise for; `auto` is what computes.")
    ] = "auto",
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Samples of each side; the median counts.")] = 20,
    threads: Annotated[int, typer.Option("--threads", min=1, max=MOST_THREADS, help="Threads of onnxruntime.")] = 1,
    time_limit: TimeLimit = 10.0,
    numerics: Numerics = "reassociate",
    shape: Shape = None,
    suite: Annotated[
        Literal["quick", "full"] | None,
        typer.Option("--suite", help="Check, calibrate, tune and measure eqsat's kernels on this machine's GPU."),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", min=0.0, help="Of --suite: 25 by default, 3 with --on checker.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            parser=output_folder,
            help="Where --suite keeps and writes its results; `report` by default.",
        ),
    ] = None,
    model_folder: Annotated[
        Path | None, typer.Option("--models", metavar="DIR", help="ONNX files that --suite measures, too.")
    ] = None,
    match: Annotated[
        list[str] | None,
        typer.Option("--match", metavar="PATTERN", help="Of --suite: only what has such a name; may be repeated."),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Time programs as written and as optimised, and compare their results.

    Both sides take turns, so that a slow moment slows both. On a GPU both are plans of fused kernels, timed by events
    without the copies of inputs and outputs. With `--on onnxruntime`, nothing is optimised: the sides are two model
    files, and the interval of their ratio tells whether one is faster beyond noise. Exit code 1 if a result differs.

    `--suite` takes no programs: it checks every kernel against NumPy, calibrates, tunes and measures, and writes
    report.json and report.html. The same command goes on where it stopped. With `--on checker`, kernels run on the CPU,
    and times are predicted. Exit code 1 if anything failed: the report names a file for each that reproduces it.

    Examples:

    - `eqsat bench model.onnx`
    - `eqsat bench *.onnx --on gpu --rounds 50 --json times.json`
    - `eqsat bench model.onnx faster.onnx --on onnxruntime`
    - `eqsat bench --suite quick -o report/`
    - `eqsat bench --suite full --minutes 60 --models models/ -o report/`
    """
    from eqsat.base.progress_bar import progress_bar
    from eqsat.cli.shared.output import check_files, device_file
    from eqsat.cli.shared.race import race, show_race
    from eqsat.cli.shared.search import load, optimise

    if suite is not None:
        place = output or Path("report")
        _run_suite(suite, on or "gpu", device, minutes, place, model_folder, match, shape, json_file, bool(models))
        return
    of_suite = {"--minutes": minutes, "--output": output, "--models": model_folder, "--match": match}
    if given := [name for name, value in of_suite.items() if value is not None]:
        raise InputError(f"{given[0]}: is an option of --suite; give that, or leave it out")
    if not models:
        raise typer.BadParameter("name ONNX files, or give --suite")
    on = on or "numpy"
    if on == "checker":
        raise InputError("--on checker predicts times: it is for --suite")
    check_files({str(model): model for model in models}, {"--json": json_file}, device_file(device))
    if on == "onnxruntime":
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
    _tell(rows, on, device, rounds, json_file)
    if not all(row["passed"] for row in rows):
        raise typer.Exit(1)


def _tell(rows: Sequence[dict[str, Any]], on: str, device: str, rounds: int, json_file: str | None) -> None:
    """Write and print the times of programs."""
    from eqsat.cli.shared.output import answer, console, print_table

    mean = geometric_mean(row["ratio"] for row in rows)
    data = {"schema": 1, "on": on, "device": device, "programs": rows, "geometric_mean": mean}
    if answer(data, json_file):
        cells = [_cells(row) for row in rows]
        columns = ("program", "as written", "optimised", "faster", "error", "the same")
        print_table(console(), f"On {on}, optimised for {device}; medians of {rounds}", columns, cells)
        if len(rows) > 1:
            typer.echo(f"Geometric mean: {mean:.2f}x over {len(rows)} programs.")


def _run_suite(
    size: Size,
    on: str,
    device: str,
    minutes: float | None,
    folder: Path,
    model_folder: Path | None,
    match: list[str] | None,
    shape: list[str] | None,
    json_file: str | None,
    with_programs: bool,
) -> None:
    from eqsat.base.files import make_folder, write_text
    from eqsat.base.progress_bar import progress_bar
    from eqsat.cli.shared.options import parse_shapes
    from eqsat.cli.shared.output import answer, check_kept, console, device_file, print_table, write_json
    from eqsat.suite.page import page
    from eqsat.suite.parts import Asked
    from eqsat.suite.place import choose
    from eqsat.suite.report import FILE, PAGE, Table, document, tables
    from eqsat.suite.run import RESULTS, run_suite

    if with_programs:
        raise InputError("--suite takes no programs: give a folder of them by --models")
    if on not in ("gpu", "checker"):
        raise InputError(f"--suite measures on gpu, or runs in the checker: not on {on}")
    models = tuple(sorted(model_folder.glob("*.onnx"))) if model_folder is not None else ()
    if model_folder is not None and not models:
        raise InputError(f"--models {model_folder}: no ONNX files there")
    asked = Asked(choose(on, device), size, models, parse_shapes(shape), tuple(match or ()))
    minutes = _MINUTES[on] if minutes is None else minutes
    make_folder(folder)
    check_kept(models, folder, (RESULTS, FILE, PAGE), json_file, device_file(device))
    made: dict[str, Any] = {}
    shown: list[Table] = []
    with progress_bar("suite") as report:
        for state in run_suite(asked, folder, minutes, report):
            made, shown = document(state), tables(state)
            write_json(made, str(folder / FILE))
            write_text(folder / PAGE, page(state, shown))
    if answer(made, json_file):
        for table in shown:
            print_table(console(), table.title, table.columns, table.rows, table.words)
            for note in table.notes:
                typer.echo(note)
        typer.echo(f"Times are {made['times']}. {folder / FILE}, {folder / PAGE}")
    if made["failed"]:
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

    plan = GpuPlan(best.plan, best.report["device"], Signature.of(best.source), recorded=True)
    with plan.guarded():
        taken = plan.taken(inputs)
    outputs = dict(zip(best.source.outputs, plan(inputs), strict=True))
    return Contender(Timed(plan, taken).sample, outputs)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    from eqsat.cli.shared.report import microseconds

    error = "shape, NaN or Inf differ" if row["error"] is None else f"{row['error']:.0e}"
    times = microseconds(row["before_us"]), microseconds(row["after_us"]), f"{row['ratio']:.2f}x"
    return row["name"], *times, error, "yes" if row["passed"] else "NO"
