"""As written against optimised for `--device cpu`, on NumPy and on onnxruntime, one thread each.

    python benchmarks/cpu.py DIR [--match PATTERN] [--skip PATTERN] [--rounds N] [--json FILE]

DIR holds NAME.onnx files, each with NAME.npz beside it: inputs `in_*`, expected outputs `out_0`, `out_1` ... Programs
without one run on random inputs. All four variants of a program take turns within each round, so that a slow moment
of the machine slows all of them; each time is the 10th percentile of its rounds. Exit code 1 if a result is wrong or a
program's speed fell below 0.95x.
"""

from __future__ import annotations

import os

# Before NumPy loads: one thread, so that ratios compare work and not thread pools.
os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import eqsat
from eqsat.check.inputs import random_inputs
from eqsat.cli.shared.arrays import Arrays, largest_error, read_arrays
from eqsat.cli.shared.output import console, print_table

RUNTIMES = ("numpy", "onnxruntime")
SLOWEST_RATIO = 0.95
LARGEST_ERROR = 1e-4
"""Of the scale of each expected output, float32."""

Run = Callable[[], dict[str, Any]]
"""Outputs by name, as arrays."""


def onnxruntime_run(model: Path, inputs: Arrays) -> Run:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    fed = {i.name: inputs[i.name] for i in session.get_inputs()}
    return lambda: dict(zip(names, session.run(names, fed), strict=True))


def variants(model: Path, scratch: Path) -> tuple[dict[str, Run], Arrays]:
    """The four ways to run a program, by name `runtime before|after`, and its expected outputs."""
    program = eqsat.from_onnx(model)
    beside = model.with_suffix(".npz")
    inputs, expected = read_arrays(beside, program) if beside.exists() else (next(random_inputs(program, 1, 0)), {})
    best = eqsat.optimize(program, device="cpu", measure=False)
    after = scratch / model.name
    eqsat.to_onnx(best.program, after)
    runs: dict[str, Run] = {
        "numpy before": lambda: program.run(inputs),
        "numpy after": lambda: best.program.run(inputs),
        "onnxruntime before": onnxruntime_run(model, inputs),
        "onnxruntime after": onnxruntime_run(after, inputs),
    }
    return runs, expected or program.run(inputs, precision="float64")


def interleaved(runs: dict[str, Run], rounds: int, least_s: float = 2e-3, span_s: float = 3.0) -> dict[str, float]:
    """Seconds per call: 10th percentile over rounds. Variants take turns; short ones are called several times per turn.

    There are at least `rounds` rounds, and as many as fit in `span_s`, so that a moment of load does not fill them all.
    """
    repeats = {}
    for name, run in runs.items():
        run()
        start = time.perf_counter()
        run()
        repeats[name] = max(1, int(least_s / (time.perf_counter() - start)))
    times: dict[str, list[float]] = {name: [] for name in runs}
    begun, done = time.perf_counter(), 0
    while done < rounds or time.perf_counter() - begun < span_s:
        for name, run in runs.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                run()
            times[name].append((time.perf_counter() - start) / repeats[name])
        done += 1
    return {name: float(np.percentile(t, 10)) for name, t in times.items()}


def measure(model: Path, rounds: int) -> dict[str, Any]:
    """One row: milliseconds of each variant, the ratios, and the largest error of the optimised ones."""
    with tempfile.TemporaryDirectory() as scratch:
        runs, expected = variants(model, Path(scratch))
        errors = [
            largest_error(output, expected[name])
            for runtime in RUNTIMES
            for name, output in runs[f"{runtime} after"]().items()
        ]
        seconds = interleaved(runs, rounds)
    ratios = {runtime: seconds[f"{runtime} before"] / seconds[f"{runtime} after"] for runtime in RUNTIMES}
    ms = {name: s * 1e3 for name, s in seconds.items()}
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
        mean = np.exp(np.mean([np.log(row["ratios"][runtime]) for row in rows]))
        print(f"geometric mean on {runtime}: {mean:.2f}x over {len(rows)} programs")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--match", default="*", help="only programs whose name matches this pattern")
    parser.add_argument("--skip", default="", help="no program whose name matches this pattern")
    parser.add_argument("--rounds", type=int, default=60, help="at least this many; 60 by default")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    asked = parser.parse_args()
    models = [m for m in sorted(asked.folder.glob(f"{asked.match}.onnx")) if not fnmatch(m.stem, asked.skip)]
    if not models:
        parser.error(f"{asked.folder}: no file matches {asked.match}.onnx")
    rows = []
    for model in models:
        print(model.stem, file=sys.stderr)
        rows.append(measure(model, asked.rounds))
    show(rows)
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    worst = min(min(row["ratios"].values()) for row in rows)
    return int(worst < SLOWEST_RATIO or max(row["error"] for row in rows) > LARGEST_ERROR)


if __name__ == "__main__":
    sys.exit(main())
