"""As written against optimised for `--device cpu`, on NumPy and on onnxruntime, one thread each.

    python benchmarks/cpu.py DIR [--match PATTERN] [--skip PATTERN] [--rounds N] [--json FILE]

DIR holds NAME.onnx files, each with NAME.npz beside it: inputs `in_*`, expected outputs `out_0`, `out_1` ... Programs
without one run on random inputs. All four variants of a program take turns; times are 10th percentiles, of this
thread's processor time. Exit code 1 if a result is wrong or a program's speed fell below 0.95x.
"""

from __future__ import annotations

import os

# Before NumPy loads: one thread, so that ratios compare work and not thread pools.
os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")

import argparse
import math
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from common import models, write_figures

import eqsat
from eqsat.base.turns import in_turns
from eqsat.check.inputs import random_inputs
from eqsat.cli.shared.arrays import Arrays, largest_error, read_arrays
from eqsat.cli.shared.output import console, print_table
from eqsat.frontends.execution import OnnxRuntime

RUNTIMES = ("numpy", "onnxruntime")
SECONDS = 3.0
"""Of measuring, for each program."""

SLOWEST_RATIO = 0.95
LARGEST_ERROR = 1e-4
"""Of the scale of each expected output, float32."""

Run = Callable[[], dict[str, Any]]
"""Outputs by name, as arrays."""


def variants(model: Path, scratch: Path) -> tuple[dict[str, Run], Arrays]:
    """The four ways to run a program, by name `runtime before|after`, and its expected outputs."""
    program = eqsat.from_onnx(model)
    beside = model.with_suffix(".npz")
    inputs, expected = read_arrays(beside, program) if beside.exists() else (next(random_inputs(program, 1, 0)), {})
    best = eqsat.optimize(program, device="cpu", measure=False)
    eqsat.to_onnx(best.program, scratch / model.name)
    before, after = (OnnxRuntime().load(folder / model.name, 1) for folder in (model.parent, scratch))
    runs: dict[str, Run] = {
        "numpy before": lambda: program.run(inputs),
        "numpy after": lambda: best.program.run(inputs),
        "onnxruntime before": lambda: dict(zip(program.outputs, before(inputs), strict=True)),
        "onnxruntime after": lambda: dict(zip(best.program.outputs, after(inputs), strict=True)),
    }
    return runs, expected or program.run(inputs, precision="float64")


def measure(model: Path, rounds: int) -> dict[str, Any]:
    """One row: milliseconds of each variant, the ratios, and the largest error of the optimised ones."""
    with tempfile.TemporaryDirectory() as scratch:
        runs, expected = variants(model, Path(scratch))
        errors = [
            largest_error(output, expected[name])
            for runtime in RUNTIMES
            for name, output in runs[f"{runtime} after"]().items()
        ]
    for run in runs.values():
        run()
    found = in_turns(list(runs.values()), 1, rounds, SECONDS, lambda: math.inf)
    ms = {name: times.ms for name, times in zip(runs, found, strict=True)}
    ratios = {runtime: ms[f"{runtime} before"] / ms[f"{runtime} after"] for runtime in RUNTIMES}
    return {"name": model.stem, "ms": ms, "ratios": ratios, "error": max(errors)}


def show(rows: list[dict[str, Any]]) -> None:
    columns = ["program"]
    for runtime in RUNTIMES:
        columns += [f"{runtime}, ms", "optimised, ms", "faster"]
    cells = []
    for row in rows:
        line = [row["name"]]
        for runtime in RUNTIMES:
            before, after = row["ms"][f"{runtime} before"], row["ms"][f"{runtime} after"]
            line += [f"{before:.3g}", f"{after:.3g}", f"{row['ratios'][runtime]:.2f}x"]
        cells.append([*line, f"{row['error']:.0e}"])
    print_table(console(), "One thread each; times are 10th percentiles", [*columns, "error"], cells)
    for runtime in RUNTIMES:
        mean = geometric_mean(row["ratios"][runtime] for row in rows)
        print(f"geometric mean on {runtime}: {mean:.2f}x over {len(rows)} programs")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--match", default="*", help="only programs whose name matches this pattern")
    parser.add_argument("--skip", default="", help="no program whose name matches this pattern")
    parser.add_argument("--rounds", type=int, default=200, help="at most; 200 by default")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    asked = parser.parse_args()
    found = models([asked.folder], asked.match, asked.skip)
    if not found:
        parser.error(f"{asked.folder}: no file matches {asked.match}.onnx")
    rows = []
    for model in found:
        print(model.stem, file=sys.stderr)
        rows.append(measure(model, asked.rounds))
    show(rows)
    write_figures(asked.json, rows)
    worst = min(min(row["ratios"].values()) for row in rows)
    return int(worst < SLOWEST_RATIO or max(row["error"] for row in rows) > LARGEST_ERROR)


if __name__ == "__main__":
    sys.exit(main())
