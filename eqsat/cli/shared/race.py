"""`eqsat bench --on RUNTIME`: two model files in turns in a runtime."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from eqsat.errors import InputError


def race(
    models: Sequence[Path], on: str, shape: Sequence[str] | None, rounds: int, threads: int, time_limit: float
) -> dict[str, Any]:
    """The times of two files that compute the same, on the same random inputs, as `eqsat bench --json` writes them.

    Raises:
        InputError: not two files, or the runtime is not installed or cannot run one of them.
        KeyboardInterrupt: Ctrl-C, which is heard while a file runs.
    """
    from eqsat.base.interrupt import Interruptible

    found = Interruptible().run(lambda: _raced(models, on, shape, rounds, threads, time_limit), None, grace=0.0)
    if found is None:
        raise KeyboardInterrupt
    return found


def _raced(
    models: Sequence[Path], on: str, shape: Sequence[str] | None, rounds: int, threads: int, time_limit: float
) -> dict[str, Any]:
    """`race`, on a thread of its own."""
    from eqsat.base.turns import CONFIDENCE, in_turns, ratio
    from eqsat.cli.shared.search import load
    from eqsat.frontends.execution import RuntimeRefuses, installed
    from eqsat.frontends.runtime import agreement, tolerance_of
    from eqsat.pipeline.measured import inputs_for

    if len(models) != 2:
        raise InputError(f"--on {on} compares two model files, got {len(models)}: eqsat bench A.onnx B.onnx --on {on}")
    runtime, program = installed(on), load(models[0], shape, head=True)
    try:
        sessions = [runtime.load(model, threads) for model in models]
        inputs = inputs_for(program, sessions[0])
        sessions[1](inputs)
    except RuntimeRefuses as error:
        raise InputError(f"{' or '.join(map(str, models))}: {on} cannot run it: {error}") from None
    ends = time.monotonic() + time_limit
    runs = [lambda session=session: session(inputs) for session in sessions]
    times = in_turns(runs, threads, rounds, math.inf, lambda: ends - time.monotonic())
    if not times:
        raise InputError(f"--time-limit {time_limit:g} is too short for these models; allow more")
    found = ratio(*times)
    same = agreement(models[0], models[1], program.file_outputs, tolerance_of(program), inputs)
    return {
        "schema": 1,
        "on": on,
        "version": runtime.version,
        "threads": threads,
        "rounds": len(times[0].seconds),
        "files": [
            {"file": str(model), "ms": each.ms, "spread": each.spread}
            for model, each in zip(models, times, strict=True)
        ],
        "ratio": found.median,
        "low": found.low,
        "high": found.high if math.isfinite(found.high) else None,
        "confidence": CONFIDENCE,
        "beyond_noise": found.low > 1 or found.high < 1,
        "error": same.as_json()["max_error"],
        "passed": same.agrees,
    }


def show_race(found: dict[str, Any], json_file: str | None) -> None:
    """Print a comparison, or write it as JSON; exit code 1 if the results differ."""
    from eqsat.cli.shared.output import answer, console, print_table
    from eqsat.cli.shared.report import milliseconds

    if answer(found, json_file):
        rows = [(each["file"], milliseconds(each["ms"]), f"{each['spread']:.1%}") for each in found["files"]]
        threads = "1 thread" if found["threads"] == 1 else f"{found['threads']} threads"
        title = f"{found['on']} {found['version']}, {threads}, {found['rounds']} rounds"
        print_table(console(), title, ("file", "10th percentile", "spread"), rows)
        high = "more" if found["high"] is None else f"{found['high']:.2f}x"
        noise = "beyond noise" if found["beyond_noise"] else "within noise"
        error = "shape, NaN or Inf differ" if found["error"] is None else f"{found['error']:.0e} of the scale"
        typer.echo(f"The second is {found['ratio']:.2f}x as fast ({found['low']:.2f}x to {high}): {noise}.")
        typer.echo(f"Largest difference: {error}{'' if found['passed'] else ', MORE THAN ROUNDING'}.")
    if not found["passed"]:
        raise typer.Exit(1)
