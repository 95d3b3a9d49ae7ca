"""Models with named dims, optimised once for all sizes: the kernels of one size, and right at sizes not seen before.

    python benchmarks/dynamic.py [DIR...] [--match PATTERN] [--shape NAME=LOW..HIGH...] [--device NAME]
        [--time-limit S] [--json FILE]

The DIRs hold *.onnx files; those with named dims are taken. The motivating programs with any number of rows are always
there. Each is optimised for its ranges (by default 1 to 64), and once more as a program of fixed sizes, at which the
report gives its figures. Columns: kernels and predicted times of the source, of the search at these sizes alone, and
of the result for all sizes; how many of its kernels that search has too; at how many other sizes source and result were
compared, and the largest difference, of the outputs' scale. Exit code 1 if a result has other kernels and costs more
than that search found, or if a new model was compared at fewer than ten other sizes.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
from common import models, write_figures

import eqsat
from eqsat.cli.shared.options import parse_ranges
from eqsat.cli.shared.output import console, print_table
from eqsat.frontends.onnx.read.model import open_dimensions
from eqsat.program.ir import Program

OTHER_SIZES = 10


def _weight(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    return (np.random.default_rng(seed).standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


def _rows(function: Callable[..., Any], *widths: int) -> Callable[[Mapping[str, int]], Program]:
    """A function of matrices with any number of rows, and these many columns, as a program at given sizes."""
    return lambda sizes: eqsat.trace(function, *(eqsat.spec((sizes["rows"], width)) for width in widths))


def _towers(x: Any) -> Any:
    parts = [eqsat.silu(x[:, 64 * k : 64 * k + 64] @ _weight(k, 64, 128)) @ _weight(8 + k, 128, 32) for k in range(6)]
    return eqsat.concat(parts, axis=1)


MOTIVATING = {
    "(y a + b) c": _rows(lambda y: (y @ _weight(1, 768, 768) + _weight(2, 768)) @ _weight(3, 768, 768), 768),
    "slices of x a, times c": _rows(lambda x: (x @ _weight(1, 768, 2304))[:, 1536:] @ _weight(2, 768, 768), 768),
    "relu((x a)^T)": _rows(lambda x: eqsat.relu((x @ _weight(1, 384, 384)).T), 384),
    "towers on slices": _rows(_towers, 384),
    "sum of the rows of x a": _rows(lambda x: eqsat.sum(x @ _weight(1, 768, 768), axis=1), 768),
    "greatest of the rows of x a": _rows(lambda x: eqsat.max(x @ _weight(1, 768, 768), axis=1), 768),
}


@dataclass(frozen=True)
class Row:
    """Kernels and predicted microseconds as written, found at one size, and found for all."""

    name: str
    sizes: Mapping[str, int]
    kernels: tuple[int, int, int]
    us: tuple[float, float, float]
    common: int
    compared: int
    error: float | None
    copied: bool

    @property
    def good(self) -> bool:
        same = self.common == self.kernels[1] or self.us[2] <= self.us[1]
        return same and (self.copied or self.compared >= OTHER_SIZES)


def measured(name: str, source: Any, ranges: Mapping[str, Any], device: str, limit: float) -> Row:
    best = eqsat.optimize_dynamic(source, ranges, device=device, time_limit=limit)
    report = best.report
    at = report["dynamic"]["figures_at"]
    alone = eqsat.optimize(best.family.at(at), device=device, time_limit=limit).report
    names = [Counter(kernel["name"] for kernel in each["kernels"]) for each in (report, alone)]
    seen = report["dynamic"]["written_at"]
    other = [each for each in report["dynamic"]["checked"] if each["sizes"] not in seen]
    return Row(
        name,
        at,
        (report["source"]["kernels"], alone["result"]["kernels"], report["result"]["kernels"]),
        (report["source"]["predicted_us"], alone["result"]["predicted_us"], report["result"]["predicted_us"]),
        sum((names[0] & names[1]).values()),
        len({tuple(each["sizes"].items()) for each in other}),
        max((each["max_error"] for each in other), default=None),
        report["dynamic"]["as_source"],
    )


def show(rows: list[Row]) -> None:
    titles = ["program", "at", "kernels", "predicted, us", "in common", "other sizes", "largest difference"]
    table = [
        [
            row.name, ", ".join(f"{name}={size}" for name, size in row.sizes.items()),
            "{} / {} / {}".format(*row.kernels),
            "{:.4g} / {:.4g} / {:.4g}".format(*row.us), str(row.common),
            str(row.compared) if row.compared else "copied" if row.copied else "0",
            f"{row.error:.0e}" if row.error is not None else "",
        ]
        for row in rows
    ]  # fmt: skip
    print_table(console(), "as written / at these sizes alone / for all sizes", titles, table)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, metavar="DIR")
    parser.add_argument("--match", default="*", help="names of programs, as a shell pattern")
    parser.add_argument("--shape", action="append", default=[], metavar="NAME=LOW..HIGH")
    parser.add_argument("--device", default="mi300x")
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds for each program")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(argv)
    given = parse_ranges(asked.shape) or {}
    sources: dict[str, Any] = {name: build for name, build in MOTIVATING.items() if fnmatch(name, asked.match)}
    ranges: dict[str, Any] = {name: {"rows": (1, 512)} for name in sources}
    for model in models(asked.folders, asked.match):
        if open_dimensions(model):
            sources[model.stem] = model
            ranges[model.stem] = {name: size for name, size in given.items() if name in open_dimensions(model)}
    rows = []
    for name, source in sources.items():
        rows.append(measured(name, source, ranges[name], asked.device, asked.time_limit))
        print(rows[-1], file=sys.stderr, flush=True)
    show(rows)
    write_figures(asked.json, [asdict(row) for row in rows])
    return int(not all(row.good for row in rows))


if __name__ == "__main__":
    sys.exit(main())
