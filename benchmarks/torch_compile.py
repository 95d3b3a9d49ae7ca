"""Modules under torch.compile: eager, with Inductor, and with eqsat before Inductor.

    python benchmarks/torch_compile.py [--match PATTERN] [--freeze] [--threads N] [--seconds S] [--json FILE]

The three variants of a module run in turns on the same inputs, at inference; times are 10th percentiles, on one thread
of its processor time. `--freeze` takes the weights as constants, in Inductor as well. Compile seconds are those of the
first call, each with an empty cache, in a process that has compiled another module before. A module whose graphs eqsat
passes on is one variant, not two: its ratio is 1. Exit code 1 if a result differs from eager, or a module is slower
than with Inductor alone: by more than 2 %, and beyond noise.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from statistics import geometric_mean
from typing import Any
from unittest import mock

import torch  # pyright: ignore[reportMissingImports]
from common import write_figures
from torch._inductor import config as inductor  # pyright: ignore[reportMissingImports]
from torch._inductor.utils import fresh_cache  # pyright: ignore[reportMissingImports]
from torch_modules import BLOCKS, modules, trained

from eqsat.base.turns import in_turns, ratio
from eqsat.cli.shared.output import console, print_table
from eqsat.frontends.torch import backend

SLOWEST = 0.98
LARGEST_ERROR = 1e-3
"""Of the largest magnitude of eager's result, float32."""

Run = Callable[[], Any]


def compiled(module: torch.nn.Module, inputs: tuple[Any, ...], freezing: bool = False, **how: Any) -> tuple[Run, float]:
    """A compiled module as a function, and the seconds of its first call, with nothing cached.

    Args:
        freezing: Inductor's own setting; Dynamo reads it too, before it reads any options.
    """
    torch._dynamo.reset()
    with fresh_cache(), inductor.patch(freezing=freezing):
        made = torch.compile(module, **how)
        begun = time.perf_counter()
        made(*inputs)
        return lambda: made(*inputs), time.perf_counter() - begun


def with_eqsat(module: torch.nn.Module, inputs: tuple[Any, ...], freeze: bool) -> tuple[Run, float, bool]:
    """The module compiled with eqsat, the seconds that this took, and whether a graph was rewritten."""
    found: list[bool] = []

    def watched(*args: Any) -> Any:
        better = backend_rewritten(*args)
        found.append(better is not None)
        return better

    backend_rewritten = backend.rewritten
    with mock.patch.object(backend, "rewritten", watched):
        run, seconds = compiled(module, inputs, backend="eqsat", options={"freeze": freeze})
    return run, seconds, any(found)


def row(name: str, make: Callable[[], Any], freeze: bool, threads: int, seconds: float) -> dict[str, Any]:
    """The figures of one module."""
    torch.manual_seed(0)
    module, inputs = make()
    trained(module)
    alone, alone_s = compiled(module, inputs, freezing=freeze)
    eqsat, eqsat_s, rewritten = with_eqsat(module, inputs, freeze)
    eager: Run = lambda: module(*inputs)  # noqa: E731
    wanted = eager()
    error = max(float((run() - wanted).abs().max() / wanted.abs().max()) for run in (alone, eqsat))
    contenders = [alone, eager, eqsat] if rewritten else [alone, eager]
    times = in_turns(contenders, threads, 200, seconds, lambda: math.inf)
    gain = ratio(times[0], times[2]) if rewritten else None
    return {
        "name": name,
        "eager_ms": times[1].ms,
        "inductor_ms": times[0].ms,
        "eqsat_ms": times[-1].ms if rewritten else times[0].ms,
        "ratio": gain.median if gain else 1.0,
        "interval": [gain.low, gain.high] if gain else [1.0, 1.0],
        "rewritten": rewritten,
        "error": error,
        "inductor_compile_s": alone_s,
        "eqsat_compile_s": eqsat_s,
    }


def show(rows: list[dict[str, Any]]) -> None:
    columns = ["module", "eager, ms", "Inductor, ms", "eqsat, ms"]
    columns += ["faster", "interval", "compile, s", "eqsat, s", "error"]
    table = [
        [
            r["name"], f"{r['eager_ms']:.3g}", f"{r['inductor_ms']:.3g}", f"{r['eqsat_ms']:.3g}",
            f"{r['ratio']:.2f}x" if r["rewritten"] else "as it was",
            "{:.2f} to {:.2f}".format(*r["interval"]) if r["rewritten"] else "",
            f"{r['inductor_compile_s']:.1f}", f"{r['eqsat_compile_s']:.1f}", f"{r['error']:.0e}",
        ]
        for r in rows
    ]  # fmt: skip
    print_table(console(), "torch.compile at inference", columns, table)
    faster = geometric_mean([r["ratio"] for r in rows])
    slower = geometric_mean([r["eqsat_compile_s"] / r["inductor_compile_s"] for r in rows])
    console().print(f"geometric means: {faster:.2f}x as fast as Inductor alone; compile time {slower:.2f}x")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", default="*", help="names of modules, as a shell pattern")
    parser.add_argument("--freeze", action="store_true", help="weights are constants")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0, help="of measuring, for each module")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(argv)
    torch.set_num_threads(asked.threads)
    rows = []
    with torch.no_grad():
        row("warm-up", BLOCKS["mixer"], asked.freeze, asked.threads, 0.0)
        for name, make in modules():
            if fnmatch(name, asked.match):
                rows.append(row(name, make, asked.freeze, asked.threads, asked.seconds))
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    show(rows)
    write_figures(asked.json, {"torch": torch.__version__, "freeze": asked.freeze, "modules": rows})
    wrong = [r["name"] for r in rows if not r["error"] <= LARGEST_ERROR]
    slow = [r["name"] for r in rows if r["ratio"] < SLOWEST and r["interval"][1] < 1]
    return int(bool(wrong or slow))


if __name__ == "__main__":
    sys.exit(main())
