"""ONNX models as written, after onnxsim and after eqsat, in onnxruntime with all optimisations of its own.

    python benchmarks/models.py DIR [--match PATTERN] [--time-limit S] [--threads N,N] [--size NAME=N] [--torch]
                                    [--json FILE] [--minutes M]

DIR holds NAME.onnx files; open dimensions are 1 unless `--size` gives them. All variants of a model run in one process
on the same random inputs and take turns in alternating order, loaded anew several times, because times depend on where
weights lie in memory; times are 10th percentiles, on one thread of its processor time. Each number of threads has its
own table, and its own optimisation. A model that eqsat leaves as it was is one variant, not two. With `--torch`,
torch.compile runs the model too, where torch has all of its operators.

With `--json`, rows are kept in FILE after each model, and those that it has are not measured again; after `--minutes`
no model is begun, so that a later run goes on from there. Exit code 1 if a model is slower after eqsat: by more than
2 %, and beyond noise.
"""

from __future__ import annotations

import argparse
import filecmp
import importlib
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import onnx
from common import models, sizes

import eqsat
from eqsat.base.turns import Times, in_turns, ratio
from eqsat.cli.shared.alternatives import write_program
from eqsat.cli.shared.options import parse_shapes
from eqsat.cli.shared.output import console, print_table
from eqsat.errors import EqsatError
from eqsat.frontends.execution import OnnxRuntime
from eqsat.pipeline.measured import inputs_for

SLOWEST = 1.02
"""The most time that a model may take, in times of as written."""

Run = Callable[[], object]


def simplified(model: Path, target: Path) -> Path | None:
    """The model after onnxsim, if that is installed and takes it; open dimensions stay open."""
    try:
        import onnxsim  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    made, same = onnxsim.simplify(onnx.load(model))
    if not same:
        return None
    onnx.save(made, target)
    return target


def compiled(program: eqsat.Program, inputs: Mapping[str, Any], threads: int) -> Run | None:
    """The program under torch.compile; None where torch is not installed or lacks one of its operators."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None
    torch.set_num_threads(threads)
    try:
        function = torch.compile(eqsat.to_torch(program))
        arrays = [torch.from_numpy(inputs[name].copy()) for name in program.input_names]
        with torch.no_grad():
            function(*arrays)
    except (EqsatError, RuntimeError):
        return None

    def run() -> object:
        with torch.no_grad():
            return function(*arrays)

    return run


def measure(model: Path, threads: int, asked: argparse.Namespace) -> dict[str, Any]:
    """One row: each variant's milliseconds, and how many times it is as fast as the model as written."""
    program = eqsat.from_onnx(model, shapes=sizes(model, asked.sizes))
    with tempfile.TemporaryDirectory() as scratch:
        files: dict[str, Path | None] = {"as written": model, "eqsat": Path(scratch) / "eqsat.onnx"}
        begun = time.monotonic()
        best = eqsat.optimize(
            program, device="cpu", time_limit=asked.time_limit, explain_time=0.0, measure_threads=threads
        )
        seconds = time.monotonic() - begun
        write_program(best, model, Path(scratch) / "eqsat.onnx")
        files["onnxsim"] = simplified(model, Path(scratch) / "onnxsim.onnx")
        nodes = {name: len(onnx.load(file).graph.node) for name, file in files.items() if file is not None}
        kept = filecmp.cmp(model, Path(scratch) / "eqsat.onnx", shallow=False)
        loaded = {name: file for name, file in files.items() if file is not None and not (kept and name == "eqsat")}
        times = timed(program, loaded, threads, asked)
    chosen = best.report["measured"] and best.report["measured"]["chosen"]
    return {
        "name": model.stem,
        "threads": threads,
        "seconds": seconds,
        "chosen": chosen or "not measured",
        "nodes": nodes,
        "variants": compared({"as written": times["as written"], "eqsat": times["as written"], **times}),
    }


def timed(
    program: eqsat.Program, files: Mapping[str, Path], threads: int, asked: argparse.Namespace
) -> dict[str, Times]:
    """The times of models by name, in turns, over several loads of them all in alternating order."""
    runtime = OnnxRuntime()
    seconds: dict[str, list[float]] = {}
    for load in range(asked.loads):
        order = list(files.items())
        sessions = {name: runtime.load(file, threads) for name, file in (order if load % 2 == 0 else order[::-1])}
        inputs = inputs_for(program, sessions["as written"])
        runs: dict[str, Run] = {name: partial(sessions[name], inputs) for name in files}
        if asked.torch and (run := compiled(program, inputs, threads)) is not None:
            runs["torch.compile"] = run
        for run in runs.values():
            run()
        found = in_turns(list(runs.values()), threads, asked.rounds, asked.span / asked.loads, lambda: math.inf)
        for name, each in zip(runs, found, strict=True):
            seconds.setdefault(name, []).extend(each.seconds)
    return {name: Times(each) for name, each in seconds.items()}


def compared(times: Mapping[str, Times]) -> dict[str, dict[str, float]]:
    """Milliseconds of each variant, and how many times it is as fast as the first, with an interval."""
    before = next(iter(times.values()))
    rows = {}
    for name, after in times.items():
        found = ratio(before, after)
        rows[name] = {"ms": after.ms, "spread": after.spread, "ratio": found.median, "low": found.low}
        rows[name]["high"] = found.high
    return rows


def slower(row: Mapping[str, Any]) -> bool:
    """Whether eqsat made a model slower."""
    before, after = row["variants"]["as written"], row["variants"]["eqsat"]
    return after["ms"] > SLOWEST * before["ms"] and after["high"] < 1


def show(rows: Sequence[Mapping[str, Any]], title: str) -> None:
    """Print a row for each model, and geometric means."""
    names = dict.fromkeys(name for row in rows for name in row["variants"] if name != "as written")
    columns = ["model", "ms"]
    for name in names:
        columns += [f"{name}, ms", "faster", "from", "to"]
    cells = []
    for row in rows:
        line = [row["name"], f"{row['variants']['as written']['ms']:.3g}"]
        for name in names:
            found = row["variants"].get(name)
            figures = [f"{found['ms']:.3g}", *(f"{found[x]:.2f}x" for x in ("ratio", "low", "high"))] if found else []
            line += figures or ["-"] * 4
        nodes = f"{row['nodes']['as written']} to {row['nodes']['eqsat']}"
        cells.append([*line, nodes, row["chosen"], f"{row['seconds']:.1f}"])
    print_table(console(), title, [*columns, "nodes", "chosen", "seconds"], cells)
    for name in names:
        ratios = [row["variants"][name]["ratio"] for row in rows if name in row["variants"]]
        print(f"geometric mean of {name}: {geometric_mean(ratios):.3f}x", end=" ")
        print(f"over {len(ratios)} models")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--match", default="*", help="only models whose name matches this pattern")
    parser.add_argument(
        "--time-limit", type=float, default=30.0, help="of eqsat for each model, seconds; 30 by default"
    )
    parser.add_argument("--threads", default="1", help="numbers of threads with a comma between them; 1 by default")
    parser.add_argument("--size", action="append", metavar="NAME=N", help="of an open dimension; may be repeated")
    parser.add_argument("--rounds", type=int, default=200, help="at most, for each load; 200 by default")
    parser.add_argument("--span", type=float, default=9.0, help="seconds of rounds for each model; 9 by default")
    parser.add_argument("--loads", type=int, default=3, help="of each variant; 3 by default")
    parser.add_argument("--torch", action="store_true", help="also run torch.compile")
    parser.add_argument("--json", type=Path, help="keep the rows here, and go on from those that it has")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no model after so many")
    asked = parser.parse_args(arguments)
    asked.sizes = parse_shapes(asked.size)
    rows = measured(asked)
    if not rows:
        parser.error(f"{asked.folder}: no model of {asked.match}.onnx runs")
    for threads in sorted({row["threads"] for row in rows}):
        some = "1 thread" if threads == 1 else f"{threads} threads"
        show([row for row in rows if row["threads"] == threads], f"onnxruntime {OnnxRuntime().version}, {some}")
    return int(any(map(slower, rows)))


def measured(asked: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of all models and numbers of threads: those kept in the file, then those measured now."""
    ends = time.monotonic() + 60 * asked.minutes
    rows = json.loads(asked.json.read_text(encoding="utf-8")) if asked.json and asked.json.exists() else []
    known = {(row["name"], row["threads"]) for row in rows}
    for threads in map(int, asked.threads.split(",")):
        for model in models([asked.folder], asked.match):
            if (model.stem, threads) in known or time.monotonic() > ends:
                continue
            print(model.stem, threads, file=sys.stderr)
            try:
                rows.append(measure(model, threads, asked))
            except EqsatError as error:
                print(f"{model.stem}: left out: {error}", file=sys.stderr)
            if asked.json:
                asked.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    return sorted(rows, key=lambda row: (row["threads"], row["name"]))


if __name__ == "__main__":
    sys.exit(main())
