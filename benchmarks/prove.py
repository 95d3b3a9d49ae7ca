"""The verdicts of `eqsat prove` on published equations, and on false ones made from them.

    python benchmarks/prove.py [--match PATTERN] [--false N] [--process] [--limit SECONDS]

Equations are those of `tests/support/equations` (TASO, TENSAT, XLA's simplifier and more), each side built as an ONNX
model; false ones differ by one small change (`mutants.py` there), N of them drawn with a fixed seed. With `--process`
each pair is a run of the command line, start included, as for users. Prints a table by family and every wrong verdict.
Exit code 1 if a published equation was refuted or a false one proved.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import onnx

import eqsat
from eqsat.cli.commands.prove import EXIT_CODES
from eqsat.cli.shared.output import console, print_table
from tests.support.equations import identities, taso, tensat, xla_arrays, xla_elementwise
from tests.support.equations.mutants import false, mutants
from tests.support.equations.notation import Equation

VERDICTS = {code: verdict for verdict, code in EXIT_CODES.items()}


@dataclass
class Tally:
    """Verdicts on the equations of a family, and the seconds for each."""

    verdicts: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    def row(self, family: str) -> list[str]:
        ordered = sorted(self.seconds)
        counts = [str(self.verdicts[v]) for v in EXIT_CODES]
        return [family, str(len(ordered)), *counts, f"{ordered[len(ordered) // 2]:.2f}", f"{ordered[-1]:.2f}"]


def in_process(equation: Equation, limit: float) -> str:
    return eqsat.prove(*(eqsat.from_onnx(model) for model in equation.models()), time_limit=limit).verdict


def by_command(equation: Equation, limit: float) -> str:
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / name) for name in ("first.onnx", "second.onnx")]
        for model, path in zip(equation.models(), paths, strict=True):
            onnx.save(model, path)
        command = [sys.executable, "-m", "eqsat", "prove", *paths, "--time-limit", str(limit)]
        return VERDICTS[subprocess.run(command, capture_output=True, check=False).returncode]


def decide(equations: list[Equation], wanted: str, arguments: argparse.Namespace) -> Counter[str]:
    """Print the table of a list of equations; returns the count of each verdict."""
    tallies: dict[str, Tally] = {}
    total = Tally()
    for equation in equations:
        begun = time.monotonic()
        verdict = (by_command if arguments.process else in_process)(equation, arguments.limit)
        seconds = time.monotonic() - begun
        for tally in (tallies.setdefault(equation.family, Tally()), total):
            tally.verdicts[verdict] += 1
            tally.seconds.append(seconds)
        if verdict != wanted:
            print(f"{verdict}: {equation.id}\n    {equation.inputs}\n    {equation.left}\n    == {equation.right}")
    rows = [tally.row(family) for family, tally in tallies.items()]
    columns = ["family", "equations", *EXIT_CODES, "median s", "longest s"]
    if equations:
        print_table(console(), "Equations by what was decided", columns, [*rows, total.row("all")])
    return total.verdicts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", default="*", help="of the equations' names, such as 'xla logic: *'")
    parser.add_argument("--false", type=int, default=0, metavar="N", help="false equations to refute")
    parser.add_argument("--process", action="store_true", help="one process for each pair")
    parser.add_argument("--limit", type=float, default=5.0, help="seconds for each pair")
    arguments = parser.parse_args()
    tables = (taso, tensat, xla_elementwise, xla_arrays, identities)
    equations = [e for table in tables for e in table.EQUATIONS if fnmatch(e.id, arguments.match)]
    wrong = decide(equations, "proved", arguments)["refuted"] if not arguments.false else 0
    if arguments.false:
        changed = [m for equation in equations for m in mutants(equation)]
        random.Random(0).shuffle(changed)
        chosen: list[Equation] = []
        for equation in changed:
            if len(chosen) < arguments.false and false(equation) is not None:
                chosen.append(equation)
        wrong = decide(chosen, "refuted", arguments)["proved"]
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
