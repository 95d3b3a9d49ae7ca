"""Programs that one pass over the data computes: launches, bytes and predicted time.

    python benchmarks/streams.py [--device D] [--time-limit S] [--models DIR] [--json FILE] [NAME...]

A row holds the launches and predicted microseconds of a program as written (operators fused as they stand) and
optimised; the launches wanted; and the bytes that the optimised kernels move, in multiples of the compulsory bytes:
each input read once (of a table, the rows that are asked for) and each output written once. The programs are those on
which Mirage (OSDI 2025) shows its gains, with attention in several shapes and the norms and layers of transformers.
All are float16; the weights of layers and norms are constant, except in LoRA. With --models, a table of ONNX files
follows: their launches, times and the geometric mean gain. Where a program moves more than 1.15 times the compulsory
bytes, the reasons follow why its kernels are not one. Exit code 1 if a program takes more launches than wanted, or
moves more than that although one kernel is not priced against.
"""

from __future__ import annotations

import argparse
import sys
from itertools import pairwise
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from common import models, sizes, write_figures

import eqsat
from eqsat.cli.shared.output import console, print_table
from eqsat.explain.narration import apart_text
from eqsat.extract.device.table import device as find_device
from eqsat.extract.plan.plan import Plan
from eqsat.inspection.why_apart import why_apart
from eqsat.program.ir import Program
from eqsat.suite.streaming import ROWS

MOST_BYTES = 1.15
"""Most bytes that a program may move, over its compulsory bytes."""


def measured(program: Program, device: str, time_limit: float) -> tuple[dict[str, Any], Plan]:
    """Launches, bytes and times of a program as written and optimised; and the plan."""
    best = eqsat.optimize(program, device=device, time_limit=time_limit)
    report = best.report
    kept = ("launches", "bytes", "predicted_us")
    figures = {f"{side}_{k}": report[side][k] for side in ("source", "result") for k in kept}
    return figures | {"gap": report["gap"], "families": [k["family"] for k in report["kernels"]]}, best.plan


def reasons(plan: Plan, device: str) -> list[dict[str, Any]]:
    """Why kernels that follow each other are not one."""
    names = [k.name for k in plan.kernels]
    return [why_apart(plan, pair, find_device(device)) for pair in pairwise(names)]


def rows(names: list[str], device: str, time_limit: float) -> list[dict[str, Any]]:
    """The table's figures."""
    made = []
    for name, row in ROWS.items():
        if not names or name in names:
            figures, plan = measured(row.program(), device, time_limit)
            ratio = figures["result_bytes"] / row.compulsory()
            apart = reasons(plan, device) if ratio > MOST_BYTES else []
            head = {"program": name, "wanted": row.wanted, "bytes_ratio": round(ratio, 3), "apart": apart}
            made.append(head | figures)
    return made


def of_models(folder: Path, device: str, time_limit: float) -> list[dict[str, Any]]:
    """The same for ONNX files; dynamic dims are 1, sequences 128."""
    made = []
    for path in models([folder]):
        program = eqsat.from_onnx(path, shapes=sizes(path, otherwise=lambda name: 128 if "seq" in name else 1))
        made.append({"model": path.stem} | measured(program, device, time_limit)[0])
    return made


def gain(figures: list[dict[str, Any]]) -> float:
    """The geometric mean of time as written over time optimised."""
    return geometric_mean(x["source_predicted_us"] / x["result_predicted_us"] for x in figures)


def misses(row: dict[str, Any]) -> bool:
    """Whether a program takes too many launches, or moves too many bytes although one kernel might cost less."""
    dearer = [x["one_us"] is not None and x["one_us"] > x["apart_us"] for x in row["apart"]]
    return row["result_launches"] > row["wanted"] or (row["bytes_ratio"] > MOST_BYTES and not (dearer and all(dearer)))


def show(title: str, first: str, figures: list[dict[str, Any]]) -> None:
    """Print a table."""
    wanted = "wanted" in figures[0]
    columns = [first, "launches", *(["wanted", "bytes / compulsory"] if wanted else []), "as written", "us", "less"]
    table = []
    for x in figures:
        more = [str(x["wanted"]), f"{x['bytes_ratio']:.2f}"] if wanted else []
        before, after = x["source_predicted_us"], x["result_predicted_us"]
        launches = f"{x['source_launches']} -> {x['result_launches']}"
        table.append([x[first], launches, *more, f"{before:.4g}", f"{after:.4g}", f"{before / after:.2f}x"])
    print_table(console(), title, columns, table)
    console().print(f"geometric mean: {gain(figures):.3f}x")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", choices=[[], *ROWS], metavar="NAME")
    parser.add_argument("--device", default="mi300x")
    parser.add_argument("--time-limit", type=float, default=20.0)
    parser.add_argument("--models", type=Path, help="a folder of ONNX files")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found = {"rows": rows(args.names, args.device, args.time_limit), "models": []}
    show(f"streams on {args.device}", "program", found["rows"])
    for row in found["rows"]:
        for answer in row["apart"]:
            console().print(f"{row['program']}:\n{apart_text(answer)}")
    if args.models:
        found["models"] = of_models(args.models, args.device, args.time_limit)
        show(f"models on {args.device}", "model", found["models"])
    write_figures(args.json, found)
    sys.exit(any(misses(x) for x in found["rows"]))


if __name__ == "__main__":
    main()
