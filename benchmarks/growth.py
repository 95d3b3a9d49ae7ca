"""The effect of each rule on the e-graphs of some programs: matches, e-nodes that it made first, milliseconds.

    python benchmarks/growth.py DIR... [--match PATTERN] [--numerics POLICY] [--seconds S]

The DIRs hold *.onnx files (`*__*` left out: they are references). Each distinct part of a program is saturated once, in
this process, with every rule of the policy, as `eqsat optimize` does. Matches of egglog's rules are the new ones in
each iteration; those of the host's rules are the equalities that they state. To measure milliseconds, each rule runs in
a ruleset of its own, with its questions to tables; answers, analyses, snapshots and bookkeeping are only in the total.
The tables are Markdown, as in papers/growth.md.
"""

from __future__ import annotations

import argparse
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from common import REFERENCES, models

import eqsat
from eqsat.egraph.encoding import EGraph
from eqsat.egraph.saturate import Limits, Saturation
from eqsat.egraph.snapshot import Snapshot
from eqsat.language.rule import AnyRule, HostRule
from eqsat.parts.segments import segments
from eqsat.program.core import lower
from eqsat.rules import ALL, allowed

_ASKS = " asks "
"""Separates a rule's name and the number of its question, in the names of demands to tables."""

_NAMED = re.compile(r':ruleset (\w+) :name "([^"]+)"')


@dataclass(slots=True)
class Growth:
    """A program's saturation: matches, e-nodes and seconds, by rule and in total.

    Attributes:
        parts: distinct parts of the program.
        before, after: e-nodes of their e-graphs.
        seconds: total of saturation.
        stop: why saturation ended; if a part was cut short, its reason.
    """

    name: str
    parts: int = 0
    before: int = 0
    after: int = 0
    seconds: float = 0.0
    stop: str = "saturated"
    matches: Counter[str] = field(default_factory=Counter)
    nodes: Counter[str] = field(default_factory=Counter)
    times: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def rows(self) -> list[tuple[str, int, int, float]]:
        """(rule, matches, e-nodes, milliseconds) of the rules that matched, the slowest first."""
        found = [(rule, n, self.nodes[rule], 1e3 * self.times[rule]) for rule, n in self.matches.items() if n]
        return sorted(found, key=lambda row: (-row[3], row[0]))

    @property
    def vain(self) -> float:
        """Milliseconds spent in rules that never matched."""
        return 1e3 * sum(seconds for rule, seconds in self.times.items() if not self.matches[rule])


class TimedEGraph(EGraph):
    """An e-graph that times each of egglog's rules, by running each in a ruleset of its own."""

    def __init__(self, rules: Sequence[AnyRule], times: dict[str, float]) -> None:
        self.times = times
        self._own: dict[str, list[str]] = defaultdict(list)
        """Ruleset to the names of its rules, in order."""
        super().__init__(rules)

    def declare(self, text: str) -> None:
        named = _NAMED.search(text)
        if named is not None:
            ruleset, name = named.groups()
            self._own[ruleset].append(name)
            own = _own_ruleset(ruleset, len(self._own[ruleset]))
            super().declare(f"(ruleset {own})")
            text = text.replace(f":ruleset {ruleset} ", f":ruleset {own} ")
        super().declare(text)

    def run(self, ruleset: str, *, saturate: bool = False) -> dict[str, int]:
        if ruleset not in self._own:
            return super().run(ruleset, saturate=saturate)
        matches: Counter[str] = Counter()
        while True:
            new = Counter(super().run(ruleset))  # what has no name stays there
            for i, name in enumerate(self._own[ruleset], 1):
                begun = time.perf_counter()
                new.update(super().run(_own_ruleset(ruleset, i)))
                self.times[name.partition(_ASKS)[0]] += time.perf_counter() - begun
            matches.update(new)
            if not (saturate and new.total()):
                return dict(matches)


def _own_ruleset(ruleset: str, number: int) -> str:
    return f"{ruleset}_{number}"


def grow(path: Path, rules: Sequence[AnyRule], seconds: float) -> Growth:
    """Saturate every distinct part of a program."""
    growth = Growth(path.stem)
    timed = [_timed(row, growth.times) if isinstance(row, HostRule) else row for row in rules]
    graph = TimedEGraph(timed, growth.times)
    forms = list(dict.fromkeys(part.form for part in segments(lower(eqsat.from_onnx(path)).roots)))
    growth.parts = len(forms)
    for form in forms:
        source = Snapshot.from_core(form)
        begun = time.perf_counter()
        graph.clear()
        found = Saturation(source, timed, Limits(seconds=seconds), graph=graph).run()
        growth.seconds += time.perf_counter() - begun
        growth.before += len(source.nodes)
        growth.after += len(found.nodes)
        growth.matches.update(found.stats["matches"])
        growth.nodes.update(n.rule for n in found.nodes if n.rule)
        if found.stats["stop"] != "saturated":
            growth.stop = found.stats["stop"]
    return growth


def _timed(row: HostRule, times: dict[str, float]) -> HostRule:
    """The rule, with its runs timed."""

    def apply(*args: Any) -> None:
        begun = time.perf_counter()
        row.apply(*args)
        times[row.name] += time.perf_counter() - begun

    return replace(row, apply=apply)


def report(growths: Sequence[Growth]) -> None:
    """Print tables as Markdown: the summary first."""
    _print_rows(_SUMMARY, [_summary(g) for g in growths])
    for growth in growths:
        print(f"\n### {_title(growth)}\n")
        _print_rows(("rule", "matches", "e-nodes", "ms"), list(_cells(growth)))


def _print_rows(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    for row in (columns, ("---", *("---:",) * (len(columns) - 1)), *rows):
        print(f"| {' | '.join(row)} |")


_SUMMARY = ("program", "parts", "e-nodes before", "after", "rules that matched", "matches", "ms in rules", "ms in all")


def _summary(growth: Growth) -> tuple[str, ...]:
    ms = sum(growth.times.values())
    counts = (growth.parts, growth.before, growth.after, len(growth.rows()), growth.matches.total())
    return growth.name, *(str(n) for n in counts), f"{1e3 * ms:.0f}", f"{1e3 * growth.seconds:.0f}"


def _title(growth: Growth) -> str:
    return f"{growth.name}: {growth.before} -> {growth.after} e-nodes, {1e3 * growth.seconds:.0f} ms, {growth.stop}"


def _cells(growth: Growth) -> Iterator[tuple[str, str, str, str]]:
    for rule, matches, nodes, ms in growth.rows():
        yield rule, str(matches), str(nodes), f"{ms:.1f}"
    yield "(rules that never matched)", "0", "0", f"{growth.vain:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR")
    parser.add_argument("--match", default="*", metavar="PATTERN")
    parser.add_argument("--numerics", default="reassociate", choices=("exact", "reassociate", "fast"))
    parser.add_argument("--seconds", type=float, default=30.0, help="for each part of a program")
    args = parser.parse_args()
    rules = allowed(list(ALL), args.numerics)
    report([grow(path, rules, args.seconds) for path in models(args.folders, args.match, REFERENCES)])


if __name__ == "__main__":
    main()
