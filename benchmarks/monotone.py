"""Whether a rule ever makes an answer worse: each program's price with all rules, and with one rule left out.

    python benchmarks/monotone.py [DIR...] [--match PATTERN] [--demo] [--random N --seed S] [--numerics POLICY]

The DIRs hold *.onnx files (`*__*` left out: they are references); `--demo` adds the programs of `eqsat demo`,
`--random N` adds N random programs. Only rules that fire can change an answer, so only these are left out, one at a
time. Every line is a program that costs more with a rule than without it. The exit code is 1 if there is such a line, 2
if a search reached a limit, so that its price says nothing.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

import eqsat
from eqsat.base.time_budget import TimeBudget
from eqsat.extract.device.table import device
from eqsat.language.rule import AnyRule, Policy
from eqsat.pipeline.asked import Asked
from eqsat.pipeline.runner import Runner
from eqsat.pipeline.search import cover_written, explore_form, partition, search_form
from eqsat.program.core import lower
from eqsat.program.ir import Program
from eqsat.program.node import Node
from eqsat.program.segments import segments
from eqsat.rules import ALL, allowed
from eqsat.testing import programs

Form = tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Priced:
    """The result of a search for one part: predicted picoseconds, the rules that fired, and the limit reached."""

    cost: int
    fired: frozenset[str]
    limit: str | None


@dataclass(frozen=True, slots=True)
class Worse:
    """A program that costs more with a rule than without it, in microseconds."""

    program: str
    rule: str
    without: float
    with_it: float

    def __str__(self) -> str:
        return f"{self.program}: {self.with_it:.3f} us, {self.without:.3f} us without {self.rule}"


def priced(program: Program, forms: Iterable[Form], rules: Sequence[AnyRule], seconds: float) -> dict[Form, Priced]:
    """The lowest price found for some parts of a program under these rules, with `seconds` for each."""
    found = {}
    run = Runner(TimeBudget(seconds))
    problem = partition(program, Asked(device("mi300x"), tuple(rules)), run)
    for form in forms:
        written, deadline = cover_written(problem, form, seconds, run), run.deadline(seconds)
        x = search_form(problem, written, explore_form(problem, written, deadline, run), deadline, run, prefetch=None)
        stats = x.explored.stats
        limit = stats["stop"] if stats["stop"] != "saturated" else None
        if not x.cheapest.cover.optimal:
            limit = limit or "solver"
        fired = frozenset(rule for rule, n in stats.get("matches", {}).items() if n)
        found[form] = Priced(min(x.cheapest.cover.cost, x.written.cover.cost), fired, limit)
    return found


def left_out(
    name: str, program: Program, rules: Sequence[AnyRule], seconds: float, most: int | None = None
) -> Iterator[Worse | str]:
    """Parts that cost less without one of the rules that fire, and the limits reached; tries at most `most` rules."""
    count = Counter(part.form for part in segments(lower(program).roots))
    whole = priced(program, count, rules, seconds)
    yield from (f"{name}: {x.limit}" for x in whole.values() if x.limit)
    fired = sorted(frozenset().union(*(x.fired for x in whole.values())))
    if most is not None and len(fired) > most:
        fired = random.Random(len(fired)).sample(fired, most)
    for rule in fired:
        forms = [form for form, x in whole.items() if rule in x.fired]
        found = priced(program, forms, [r for r in rules if r.name != rule], seconds)
        without = sum(found.get(form, x).cost * count[form] for form, x in whole.items())
        with_it = sum(x.cost * count[form] for form, x in whole.items())
        if without < with_it:
            yield Worse(name, rule, without / 1e6, with_it / 1e6)


def drawn(count: int, start: int, max_ops: int = 14) -> list[tuple[str, Program]]:
    """Random programs over float32 of up to 8 elements an axis."""
    found: list[Program] = []
    quiet = settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )

    def keep(program: Program) -> None:
        found.append(program)

    seed(start)(quiet(given(programs(max_ops=max_ops, max_dim=8))(keep)))()
    return [(f"random {start}.{i}", program) for i, program in enumerate(found)]


def _programs(args: argparse.Namespace) -> Iterator[tuple[str, Program]]:
    if args.demo:
        from eqsat.suite.motivating import PROGRAMS

        yield from ((name, demo.build()) for name, demo in PROGRAMS.items())
    files = {path.stem: path for folder in args.folders for path in folder.glob("*.onnx") if "__" not in path.stem}
    yield from ((name, eqsat.from_onnx(files[name])) for name in sorted(files) if fnmatch(name, args.match))
    if args.random:
        yield from drawn(args.random, args.seed)


def report(found: Iterable[tuple[str, Program]], policy: Policy, seconds: float) -> tuple[int, int]:
    """Print regressions and reached limits; returns the number of each."""
    worse, limited = 0, 0
    for name, program in found:
        begun = time.perf_counter()
        lines = list(left_out(name, program, allowed(list(ALL), policy), seconds))
        for line in lines:
            print(line, flush=True)
        mine = sum(isinstance(line, Worse) for line in lines)
        worse, limited = worse + mine, limited + len(lines) - mine
        print(f"{name}: {mine} rules in the way, {time.perf_counter() - begun:.1f} s", file=sys.stderr, flush=True)
    return worse, limited


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, metavar="DIR")
    parser.add_argument("--match", default="*", metavar="PATTERN")
    parser.add_argument("--demo", action="store_true")
    parser.add_argument("--random", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--numerics", default="reassociate", choices=("exact", "reassociate", "fast"))
    parser.add_argument("--seconds", type=float, default=60.0, help="for each search")
    args = parser.parse_args()
    worse, limited = report(_programs(args), args.numerics, args.seconds)
    sys.exit(1 if worse else 2 if limited else 0)


if __name__ == "__main__":
    main()
