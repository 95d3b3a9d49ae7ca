"""What share of all equations of some operators the rules derive, and whether rules taken away are found again.

    python benchmarks/discover.py [--size N] [--minutes M] [--workers W] [--kept FILE]  # completeness, by operator set
    python benchmarks/discover.py --size 4 --draw N [--seed S]                  # of N settings of shapes of each set
    python benchmarks/discover.py ... --certificates                            # and which most general ones have one
    python benchmarks/discover.py --planted N [--seed S] [--draws D]            # N random rules taken away, D times

A draw takes away equations of `rules/` at random, among those without which the rules derive less. Each equation that
they then do not derive must follow from the rows that discovery prints. The exit code is 1 if one does not.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterable, Sequence

import eqsat
from eqsat.discovery.derived import derived, program, rules
from eqsat.discovery.discover import Discovery, discover
from eqsat.discovery.equations import Equation, equations, settings
from eqsat.discovery.expressions import operators
from eqsat.program.ir import Program
from eqsat.rules import CHECKABLE
from eqsat.runs.store import Store

SETS = (
    *("matmul,add,transpose", "matmul,add,mul,relu", "matmul,add,concat", "add,sub,mul,neg"),
    *("maximum,minimum,relu,neg,abs", "sum,max,add,mul,neg", "exp,log,sqrt,mul,div,reciprocal"),
)
"""Operators that meet in models."""

SETS_OF_4 = (
    *("matmul,transpose", "matmul,add", "matmul,add,transpose", "matmul,sum,transpose", "add,sum,transpose"),
    *("matmul,add,sum", "matmul,concat", "add,transpose,concat", "sum,transpose,concat", "matmul,add,concat"),
)
"""Products, sums, views and concatenations, whose equations are looked for up to size 4."""

PLANTED = "matmul,add,mul,neg,relu,transpose"
"""Operators whose equations show that a rule is missing."""

_SECONDS = 20.0
"""Of a proof with its certificate."""


def completeness(
    sets: Sequence[str], size: int, minutes: float, workers: int, draw: tuple[int, int] | None, kept: str, certify: bool
) -> Iterable[str]:
    """A line for each operator set.

    Args:
        kept: a file of results, so that a run that was stopped goes on from there.
        certify: also say which of the most general equations that the rules derive have no certificate.
    """
    for names in sets:
        begun = time.monotonic()
        with Store(kept) as store:
            found = discover(operators(names), size, store, 60 * minutes, workers=workers, draw=draw)
        seconds = time.monotonic() - begun
        counts = f"{len(found.rows)} rows, {len(found.implied)} implied, {len(found.refused)} refused"
        late = f", {found.late} left" if found.late else ""
        yield from (f"  {equation}" for equation in (*found.implied, *found.refused))
        looked = f"{found.looked} of {found.settings} settings"
        share = f"{found.derived} of {found.equations} ({found.share:.2%})"
        yield f"{names}: {looked}, {share}, {found.general} general, {counts}{late}, {seconds:.0f} s"
        if certify:
            without = [equation for equation in found.known if not has_certificate(equation)]
            yield from (f"  no certificate: {equation}" for equation in without)
            yield f"  {len(found.known) - len(without)} of {len(found.known)} have certificates"


def has_certificate(equation: Equation) -> bool:
    """Whether `eqsat prove` finds a certificate that both sides are equal."""
    both = program(equation)
    sides = [Program(both.inputs, {"y": side}) for side in both.outputs.values()]
    return eqsat.prove(*sides, time_limit=_SECONDS, certify=True).certificate is not None


def load_bearing(names: str, size: int) -> list[str]:
    """The equations of `rules/` without which one of these operators is not derived any more, one at a time."""
    chosen = operators(names)
    found = sorted({str(e) for shapes in settings(chosen, size) for e in equations(shapes, chosen, size)})
    all_of_them = list(map(Equation.read, found))
    held = [e for e, flag in zip(all_of_them, derived(all_of_them, rules()), strict=True) if flag]
    names_of = dict.fromkeys(getattr(r, "equation", r.name) for r in CHECKABLE)
    return [name for name in names_of if not all(derived(held, rules([name])))]


def planted(count: int, seed: int, size: int, minutes: float, workers: int) -> tuple[list[str], Discovery]:
    """The equations of `rules/` that are taken away, and what discovery finds without them."""
    bearing = load_bearing(PLANTED, size)
    without = sorted(random.Random(seed).sample(bearing, min(count, len(bearing))))
    with Store(":memory:") as store:
        return without, discover(operators(PLANTED), size, store, 60 * minutes, without, workers)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=10.0, help="for each operator set or draw")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--planted", type=int, default=0)
    parser.add_argument("--draw", type=int, default=0, metavar="N", help="settings of shapes of each set")
    parser.add_argument("--sets", nargs="*", metavar="LIST", help="operators instead of those that are listed here")
    parser.add_argument("--kept", default=":memory:", metavar="FILE", help="of results, to go on from later")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--certificates", action="store_true")
    parser.add_argument("--draws", type=int, default=1)
    args = parser.parse_args()
    if not args.planted:
        sets = args.sets or (SETS if args.size < 4 else SETS_OF_4)
        draw = (args.draw, args.seed) if args.draw else None
        for line in completeness(sets, args.size, args.minutes, args.workers, draw, args.kept, args.certificates):
            print(line, flush=True)
        return 0
    lost = 0
    for seed in range(args.seed, args.seed + args.draws):
        without, found = planted(args.planted, seed, args.size, args.minutes, args.workers)
        print(f"without {', '.join(without)}: {found.derived} of {found.equations} derived")
        for row in found.rows:
            print(f"  found: {row.rule.stated}")
        refused = list(found.refused)
        missed = [e for e, flag in zip(refused, derived(refused, rules()), strict=True) if flag]
        for equation in missed:
            print(f"  LOST: {equation}: {found.refused[equation]}")
        print(f"  {len(found.implied)} more follow from these, {found.late} left", flush=True)
        lost += len(missed) + found.late
    return int(lost > 0)


if __name__ == "__main__":
    sys.exit(main())
