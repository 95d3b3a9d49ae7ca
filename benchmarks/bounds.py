"""Bounds on the kernels considered, raised one by one: the gain for programs, and its cost.

    python benchmarks/bounds.py DIR... [--device D] [--factors 0.25,0.5,2,4] [--skip PATTERN] [--json FILE]

DIR holds ONNX files. Each program is saturated once. Then its kernel cover is found with one bound of
`eqsat.extract.kernels.cuts.Limits` at a time multiplied by each factor. A row sums up all programs: predicted time,
kernels, candidates, processor seconds (of enumeration and solving), and the programs that become cheaper or more
expensive than with the defaults. The last rows change all bounds at once. Exit code 1 if raising a bound makes a
program cheaper by more than 0.1 %: the default is too low.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from common import models, write_figures

import eqsat
from eqsat.cli.shared.output import console, print_table
from eqsat.egraph.saturate import Limits as SaturationLimits
from eqsat.egraph.saturate import saturate
from eqsat.egraph.snapshot import Snapshot
from eqsat.extract.cover import cover
from eqsat.extract.kernels.cuts import Limits
from eqsat.parts.segments import segments
from eqsat.program.core import lower
from eqsat.rules import ALL, allowed

NOTHING_GAINED = 1e-3
"""Relative change of a predicted time that is ignored: equal prices may differ by rounding."""

SATURATION_SECONDS = 30.0


@dataclass(frozen=True)
class Program:
    """A saturated program: the e-graphs of its distinct parts, and how often each stands in it."""

    name: str
    parts: list[tuple[Snapshot, int]]


@dataclass(frozen=True)
class Outcome:
    """A program's cost under some bounds."""

    us: float
    kernels: int
    candidates: int
    seconds: float


def saturated(path: Path) -> Program:
    """The program of an ONNX file, with every form that the rules find."""
    forms = [part.form for part in segments(lower(eqsat.from_onnx(path)).roots)]
    rules = allowed(list(ALL), "reassociate")
    limits = SaturationLimits(seconds=SATURATION_SECONDS)
    parts = [(saturate(Snapshot.from_core(form), rules, limits), forms.count(form)) for form in dict.fromkeys(forms)]
    return Program(path.stem, parts)


def covered(program: Program, device: str, limits: Limits, time_limit: float) -> Outcome:
    """The program's cover within these bounds."""
    begun = time.process_time()
    found = [(cover(snapshot, device, time_limit, limits), times) for snapshot, times in program.parts]
    return Outcome(
        us=sum(c.cost * times for c, times in found) * 1e-6,
        kernels=sum(len(c.kernels) * times for c, times in found),
        candidates=sum(c.stats["candidates"]["candidates"] for c, _ in found),
        seconds=time.process_time() - begun,
    )


def scaled(bounds: Sequence[str], factor: float) -> Limits:
    """The defaults with these bounds multiplied by a factor, and at least 1."""
    default = Limits()
    return replace(default, **{bound: max(1, round(getattr(default, bound) * factor)) for bound in bounds})


def changed(names: Sequence[str], now: Sequence[Outcome], before: Sequence[Outcome], sign: int) -> list[str]:
    """The programs whose predicted time changes (rises for sign 1), each with the change."""
    shares = [(name, a.us / b.us - 1) for name, a, b in zip(names, now, before, strict=True) if b.us]
    return [f"{name} {share:+.1%}" for name, share in shares if share * sign > NOTHING_GAINED]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR")
    parser.add_argument("--device", default="mi300x")
    parser.add_argument("--factors", default="0.25,0.5,2,4")
    parser.add_argument("--time-limit", type=float, default=60.0, metavar="S")
    parser.add_argument("--skip", default="", metavar="PATTERN")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    programs = [saturated(path) for path in models(options.folders, skip=options.skip)]
    names = [program.name for program in programs]

    def outcomes(limits: Limits) -> list[Outcome]:
        return [covered(program, options.device, limits, options.time_limit) for program in programs]

    default = outcomes(Limits())
    rows = [_row("defaults", "", default, [], [])]
    found: list[dict[str, Any]] = []
    gained = False
    bounds = [f.name for f in fields(Limits)]
    for changing in [*([bound] for bound in bounds), bounds]:
        for factor in map(float, options.factors.split(",")):
            limits = scaled(changing, factor)
            if limits == Limits():
                continue
            now = outcomes(limits)
            cheaper, dearer = changed(names, now, default, -1), changed(names, now, default, 1)
            gained |= factor > 1 and bool(cheaper)
            title = f"{changing[0]} = {getattr(limits, changing[0])}" if len(changing) == 1 else "all"
            rows.append(_row(title, f"x{factor:g}", now, cheaper, dearer))
            found.append({"bounds": changing, "factor": factor, "programs": _by_name(names, now)})
    columns = ("bound", "factor", "predicted us", "kernels", "candidates", "seconds", "cheaper", "dearer")
    print_table(console(), f"{len(programs)} programs on {options.device}", columns, rows, words=2)
    write_figures(options.json, {"defaults": _by_name(names, default), "changed": found})
    return int(gained)


def _row(
    bound: str, factor: str, now: Sequence[Outcome], cheaper: Sequence[str], dearer: Sequence[str]
) -> tuple[str, ...]:
    return (
        bound,
        factor,
        f"{sum(o.us for o in now):.3f}",
        str(sum(o.kernels for o in now)),
        str(sum(o.candidates for o in now)),
        f"{sum(o.seconds for o in now):.1f}",
        ", ".join(cheaper),
        ", ".join(dearer),
    )


def _by_name(names: Sequence[str], outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {name: vars(outcome) for name, outcome in zip(names, outcomes, strict=True)}


if __name__ == "__main__":
    sys.exit(main())
