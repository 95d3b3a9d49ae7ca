"""Whether a larger search ever finds less: each program's price with all rules, and with one rule left out.

    python benchmarks/monotone.py [DIR...] [--match PATTERN...] [--shape NAME=SIZE...] [--demo] [--device NAME]
        [--numerics POLICY] [--most N] [--iterations]
    python benchmarks/monotone.py --random N --seed S

The DIRs hold *.onnx files (`*__*` left out: they are references); `--demo` adds the programs of `eqsat demo`,
`--random N` adds N random programs. Only rules that fire can change an answer, so only these are left out, one at a
time. With `--iterations`, all rules are used and saturation is stopped after 1, 2, 3 ... iterations instead: the whole
e-graph holds all that such a smaller one does, but for e-nodes that a rule replaced. Every line is a program that costs
more with the larger search, or a search that reached a limit, so that its price says little. The exit code is 1 if a
program costs over 0.1 % more, else 2 if a search reached a limit.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import TypeVar

from common import REFERENCES, models
from hypothesis import HealthCheck, Phase, given, seed, settings

import eqsat
from eqsat.base.time_budget import TimeBudget
from eqsat.cli.shared.options import parse_shapes
from eqsat.egraph.saturate import Limits, saturate
from eqsat.extract.device.table import device
from eqsat.extract.plan.stitch import Solved
from eqsat.frontends.onnx.read.model import named_sizes
from eqsat.language.rule import AnyRule, Policy
from eqsat.program.ir import Program
from eqsat.program.node import Node
from eqsat.rules import ALL, allowed
from eqsat.search.asked import Asked
from eqsat.search.form import cover_written, explore_form, search_form
from eqsat.search.runner import Runner
from eqsat.search.search import Problem, partition
from eqsat.sweeping.table import TOLERANCE
from eqsat.testing import programs

Form = tuple[Node, ...]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Priced:
    """The result of a search for one part: predicted picoseconds, the rules that fired, the iterations of saturation,
    and the limit reached."""

    cost: int
    fired: frozenset[str]
    iterations: int
    limit: str | None


@dataclass(frozen=True, slots=True)
class Worse:
    """A program that costs more than by the smaller search named `less`, in microseconds."""

    program: str
    less: str
    smaller: float
    whole: float

    @property
    def share(self) -> float:
        """How much more it costs, as a share of the lower price."""
        return self.whole / self.smaller - 1

    def __str__(self) -> str:
        return f"{self.program}: {self.whole:.3f} us, {self.smaller:.3f} us {self.less} ({self.share:+.3%})"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A program in parts, each with its cover as written, which no rule changes."""

    problem: Problem
    written: Mapping[Form, Solved]

    def total(self, found: Mapping[Form, Priced]) -> int:
        """Picoseconds of all parts, given those of each form."""
        return sum(found[part.form].cost for part in self.problem.parts)


def prepared(program: Program, seconds: float, target: str = "mi300x") -> Prepared:
    """A program for a device, with `seconds` for the cover of each part."""
    run = Runner(TimeBudget(seconds))
    problem = partition(program, Asked(device(target), ()), run)
    return Prepared(problem, {form: cover_written(problem.sought(form), seconds, run) for form in problem.sizes()})


def priced(
    program: Prepared,
    rules: Sequence[AnyRule],
    seconds: float,
    forms: Iterable[Form] | None = None,
    iterations: int | None = None,
) -> dict[Form, Priced]:
    """The lowest price found for each of these parts (all by default) under these rules, with `seconds` for each, after
    at most so many iterations of saturation."""
    found = {}
    for form in program.written if forms is None else forms:
        run = Runner(TimeBudget(seconds))
        asked = replace(program.problem.asked, rules=tuple(rules))
        sought = replace(program.problem, asked=asked, budget=run.budget).sought(form)
        written, deadline = program.written[form], run.deadline(seconds)
        if iterations is None:
            explored = explore_form(sought, deadline, run)
        else:
            explored = saturate(written.snapshot, asked.rules, Limits(seconds=seconds, iterations=iterations))
        x = search_form(sought, written, explored, deadline, run)
        stop = x.figures["stop"]
        limit = None if stop == "saturated" or (stop == "steps" and iterations is not None) else stop
        if not x.cheapest.cover.optimal:
            limit = limit or "solver"
        fired = frozenset(rule for rule, n in x.explored.stats.get("matches", {}).items() if n)
        cost = min(x.cheapest.cover.cost, x.written.cover.cost)
        found[form] = Priced(cost, fired, x.explored.stats["iterations"], limit)
    return found


def left_out(
    name: str,
    program: Program,
    rules: Sequence[AnyRule],
    seconds: float,
    most: int | None = None,
    target: str = "mi300x",
) -> Iterator[Worse | str]:
    """Where the program costs less without a rule that fires, and the limits reached; tries at most `most` rules."""
    made = prepared(program, seconds, target)
    whole = priced(made, rules, seconds)
    yield from (f"{name}: {x.limit}" for x in whole.values() if x.limit)
    for rule in _some(sorted(frozenset().union(*(x.fired for x in whole.values()))), most):
        forms = [form for form, x in whole.items() if rule in x.fired]
        found = priced(made, [r for r in rules if r.name != rule], seconds, forms)
        yield from _compared(name, made, whole, found, f"without {rule}")


def stopped_early(
    name: str,
    program: Program,
    rules: Sequence[AnyRule],
    seconds: float,
    most: int | None = None,
    target: str = "mi300x",
) -> Iterator[Worse | str]:
    """Where the program costs less when saturation is stopped early, and the limits reached; tries at most `most`
    numbers of iterations."""
    made = prepared(program, seconds, target)
    whole = priced(made, rules, seconds)
    yield from (f"{name}: {x.limit}" for x in whole.values() if x.limit)
    last = max((x.iterations for x in whole.values()), default=0)
    for count in _some(range(1, last), most):
        forms = [form for form, x in whole.items() if x.iterations > count]
        found = priced(made, rules, seconds, forms, count)
        yield from _compared(name, made, whole, found, f"after {count} of {last} iterations")


def _some(of: Sequence[T], most: int | None) -> Sequence[T]:
    """All of these, or so many drawn at random."""
    return of if most is None or len(of) <= most else random.Random(len(of)).sample(of, most)


def _compared(
    name: str, made: Prepared, whole: Mapping[Form, Priced], found: Mapping[Form, Priced], less: str
) -> Iterator[Worse | str]:
    """What a smaller search found for some parts against the whole one."""
    yield from (f"{name} {less}: {x.limit}" for x in found.values() if x.limit)
    smaller, larger = made.total({**whole, **found}), made.total(whole)
    if smaller < larger:
        yield Worse(name, less, smaller / 1e6, larger / 1e6)


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
    sizes = parse_shapes(args.shape)
    for path in models(args.folders, skip=REFERENCES):
        if any(fnmatch(path.stem, pattern) for pattern in args.match):
            yield path.stem, eqsat.from_onnx(path, shapes=named_sizes(path, sizes))
    if args.random:
        yield from drawn(args.random, args.seed)


def report(
    found: Iterable[tuple[str, Program]],
    searches: Callable[..., Iterable[Worse | str]],
    policy: Policy,
    seconds: float,
    most: int | None,
    target: str,
) -> tuple[int, int]:
    """Print what costs more by the whole search than by smaller ones, and reached limits; returns the number of
    regressions and of limits."""
    worse, limited = 0, 0
    for name, program in found:
        begun = time.perf_counter()
        mine: list[Worse] = []
        for line in searches(name, program, allowed(list(ALL), policy), seconds, most, target):
            print(line, flush=True)
            if isinstance(line, Worse):
                mine.append(line)
            else:
                limited += 1
        count = sum(line.share > TOLERANCE for line in mine)
        worse += count
        said = f"{len(mine)} smaller searches find more, {count} over {TOLERANCE:.1%} more"
        print(f"{name}: {said}, {time.perf_counter() - begun:.1f} s", file=sys.stderr, flush=True)
    return worse, limited


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, metavar="DIR")
    parser.add_argument("--match", nargs="*", default=["*"], metavar="PATTERN")
    parser.add_argument("--shape", nargs="*", metavar="NAME=SIZE", help="of open dimensions, in models that have them")
    parser.add_argument("--demo", action="store_true")
    parser.add_argument("--random", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="mi300x", metavar="NAME")
    parser.add_argument("--numerics", default="reassociate", choices=("exact", "reassociate", "fast"))
    parser.add_argument("--most", type=int, metavar="N", help="smaller searches of each program, drawn at random")
    parser.add_argument("--iterations", action="store_true", help="stop saturation early instead of leaving rules out")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each search")
    args = parser.parse_args()
    searches = stopped_early if args.iterations else left_out
    worse, limited = report(_programs(args), searches, args.numerics, args.seconds, args.most, args.device)
    sys.exit(1 if worse else 2 if limited else 0)


if __name__ == "__main__":
    main()
