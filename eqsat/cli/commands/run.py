"""`eqsat run`: computes a program's outputs, as written or as optimised."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from eqsat.cli.shared.options import (
    Device,
    JsonFile,
    ModelFile,
    Numerics,
    Optimized,
    Shape,
    TimeLimit,
    Tune,
    output_file,
)

if TYPE_CHECKING:
    import numpy as np

    from eqsat.pipeline.result import Result

TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-3, "bfloat16": 2e-2}
"""Largest error against expected outputs, as a share of their scale, by dtype; integers and bools must be equal."""


def run(
    context: typer.Context,
    model: ModelFile,
    inputs: Annotated[
        Path | None,
        typer.Option("--inputs", "-i", metavar="X.npz", help="Input arrays by name; without it they are random."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="Y.npz", parser=output_file, help="Write the output arrays by name."),
    ] = None,
    on: Annotated[Literal["numpy", "gpu", "simt"], typer.Option("--on", help="What computes.")] = "numpy",
    optimized: Optimized = False,
    device: Device = "mi300x",
    time_limit: TimeLimit = 10.0,
    numerics: Numerics = "reassociate",
    shape: Shape = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the random inputs.")] = 0,
    tune: Tune = None,
    json_file: JsonFile = None,
) -> None:
    """Run an ONNX program on given or random inputs.

    If X.npz also holds expected outputs (`out_0`, `out_1` ... or `out_NAME`), they are compared: exit code 1 when one
    is off by more than 1e-4 of its scale (float32).

    Examples:

    - `eqsat run model.onnx`
    - `eqsat run model.onnx --inputs x.npz -o y.npz --optimize`
    - `eqsat run model.onnx --optimize --on gpu --device auto --tune 60`
    """
    import time

    from eqsat.check.inputs import random_inputs
    from eqsat.cli.shared.arrays import read_arrays, write_arrays
    from eqsat.cli.shared.output import answer, check_files, console, device_file, engineering, keep_stdout
    from eqsat.cli.shared.search import begun, load, optimise
    from eqsat.cli.shared.tuning import as_json, check_tunable, print_tuning, tune_result

    keep_stdout({"--output": output})
    check_files(
        {"the model": model}, {"--output": output, "--json": json_file}, {"--inputs": inputs, **device_file(device)}
    )
    check_tunable(tune, device, on)
    budget = begun(context, time_limit)
    program = load(model, shape, budget)
    arrays, expected = read_arrays(inputs, program) if inputs else (next(random_inputs(program, 1, seed)), {})
    compute, tuning, memory = program.run, None, None
    if optimized or on != "numpy":
        best = optimise(program, device, budget, numerics, rules=None if optimized else [])
        tuning = tune_result(best, tune) if tune is not None else None
        compute = best.compile(on=on)
        memory = None if on == "numpy" else _memory(best, on)
    start = time.perf_counter()
    results = compute(arrays)
    seconds = time.perf_counter() - start

    if output is not None:
        write_arrays(output, results)
    summary = [_summary(name, array, expected.get(name)) for name, array in results.items()]
    facts = {"schema": 1, "on": on, "optimized": optimized, "seconds": seconds, "outputs": summary}
    facts |= {"memory": memory} if memory else {}
    facts |= {"tuning": as_json(tuning)} if tuning else {}
    if answer(facts, json_file):
        held = f", {engineering(memory['peak'], 'B')} of device memory" if memory else ""
        _print(summary, f"{model.name} on {on}, {seconds * 1000:.3g} ms{held}")
        if tuning is not None:
            print_tuning(tuning, console())
    if any(row.get("passed") is False for row in summary):
        raise typer.Exit(1)


def _memory(best: Result, on: str) -> dict[str, int]:
    """Bytes of device memory that the plan uses."""
    from eqsat.gpu.launch.lower import Signature, lower

    return lower(best.plan, best.report["device"], Signature.of(best.source), library=on == "gpu").memory


def _summary(name: str, array: np.ndarray[Any, Any], expected: np.ndarray[Any, Any] | None) -> dict[str, Any]:
    from eqsat.cli.shared.arrays import largest_error

    row: dict[str, Any] = {"name": name, "dtype": array.dtype.name, "shape": list(array.shape)}
    if expected is not None:
        error = largest_error(array, expected)
        row |= {
            "max_error": error if math.isfinite(error) else None,
            "passed": error <= TOLERANCE.get(row["dtype"], 0.0),
        }
    return row


def _print(summary: list[dict[str, Any]], title: str) -> None:
    from eqsat.cli.shared.output import console, print_table

    compared = any("passed" in row for row in summary)
    rows = []
    for row in summary:
        cells = [row["name"], row["dtype"], " x ".join(map(str, row["shape"])) or "scalar"]
        if "passed" in row:
            error = "shape, NaN or Inf differ" if row["max_error"] is None else f"{row['max_error']:.1e}"
            cells += [error, "yes" if row["passed"] else "NO"]
        rows.append(cells)
    columns = ["output", "dtype", "shape", *(["error, of scale", "as expected"] if compared else [])]
    print_table(console(), title, columns, rows, words=3)
