"""Change a certificate in every place. No changed certificate may verify (`eqsat/verify/`).

    python benchmarks/corruptions.py A.onnx B.onnx C.proof [--jobs N]

Each line is left out, written twice and exchanged with the next. Each word and number is replaced by others that might
stand there: the name of a term by those of all terms that the lines around it name, a rule by all rules for the same
operator, a float by its neighbour. Spaces and line ends are changed, too. The table counts what a line refuses that
does not hold, and what only the seal refuses: there the lines still prove the same. Exit code 1 if a change verifies.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import eqsat
from eqsat.errors import CheckFailed, InputError
from eqsat.program.core import CoreProgram
from eqsat.rules import CHECKABLE
from eqsat.verify.checker import NotSealed, check
from eqsat.verify.pairing import lowered

HOLDS, SEAL, LINE = "verifies", "refused by the seal alone", "refused by a line"
"""What becomes of a change."""


@dataclass(frozen=True, slots=True)
class Change:
    """Other lines in place of those from `start` to `stop`, the latter left out."""

    name: str
    start: int
    stop: int
    instead: tuple[str, ...]

    def of(self, text: str) -> str:
        """The certificate with the change."""
        lines = text.splitlines(keepends=True)
        return "".join([*lines[: self.start], *self.instead, *lines[self.stop :]])


def changes(text: str) -> Iterator[Change]:
    """Every change of a certificate, each of which makes another text."""
    lines = text.splitlines(keepends=True)
    named = _named(lines)
    for at, line in enumerate(lines):
        yield Change("a line left out", at, at + 1, ())
        yield Change("a line twice", at, at + 1, (line, line))
        if at + 1 < len(lines) and line != lines[at + 1]:
            yield Change("lines exchanged", at, at + 2, (lines[at + 1], line))
        for name, other in _spellings(line):
            yield Change(name, at, at + 1, (other,))
        for name, value in _values(json.loads(line), named[at]):
            yield Change(name, at, at + 1, (json.dumps(value) + "\n",))
    yield Change("text behind the end", len(lines), len(lines), ("\n",))


def corrupted(text: str, rng: random.Random) -> Change:
    """A change, drawn so that no kind is drawn more often than others."""
    kinds: defaultdict[str, list[Change]] = defaultdict(list)
    for change in changes(text):
        kinds[change.name].append(change)
    return rng.choice(kinds[rng.choice(sorted(kinds))])


def fate(programs: tuple[CoreProgram, CoreProgram], certificate: str) -> str:
    """Whether a certificate verifies, or what refuses it."""
    try:
        check(*programs, certificate, CHECKABLE)
    except NotSealed:
        return SEAL
    except (CheckFailed, InputError):
        return LINE
    return HOLDS


def _named(lines: Sequence[str]) -> list[list[int]]:
    """For each line, the names of terms in the lemma that it belongs to, or in all lines outside of lemmas."""
    found: defaultdict[int, set[int]] = defaultdict(set)
    belongs: list[int] = []
    lemma, last = 0, 0
    for text in lines:
        line = json.loads(text)
        if "lemma" in line:
            last += 1
            lemma = last
        belongs.append(lemma)
        for path, value in _parts(line):
            if _is_name(path) and type(value) is int:
                found[lemma].add(value)
        if "proves" in line:
            lemma = 0
    return [sorted(found[each]) for each in belongs]


# Texts that say the same, or hide something


def _spellings(line: str) -> Iterator[tuple[str, str]]:
    yield "a space more", line.replace(": ", ":  ", 1)
    yield "a space less", line.replace(": ", ":", 1)
    yield "a line end more", line + "\n"
    yield "another line end", line.replace("\n", "\r\n")
    yield "no line end", line.removesuffix("\n")
    key = next(iter(json.loads(line)))
    yield "a key twice", line.replace("{", f'{{"{key}": 0, ', 1)
    yield "a further key", line.replace("}\n", ', "note": 0}\n')
    items = list(json.loads(line).items())
    if len(items) > 1:
        yield "keys in another order", json.dumps(dict(reversed(items))) + "\n"


# Other words and numbers

Keys = tuple[str | int, ...]
"""Keys and places that lead to a part of a line."""


def _values(line: dict[str, Any], named: Sequence[int]) -> Iterator[tuple[str, dict[str, Any]]]:
    for key in line:
        for other in sorted(_KEYS - line.keys()):
            yield "another kind of line", {other if each == key else each: value for each, value in line.items()}
    for path, value in _parts(line):
        for name, other in _others(path, value, named):
            yield name, _with(line, path, other)
        if isinstance(value, list):
            yield from (("a list shortened", _with(line, path, value[:-1])),) if value else ()
            yield from (("a list lengthened", _with(line, path, [*value, value[-1]])),) if value else ()
            if len(value) > 1 and value[0] != value[1]:
                yield "a list in another order", _with(line, path, [value[1], value[0], *value[2:]])


def _parts(value: Any, path: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    yield path, value
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from _parts(child, (*path, key))


def _with(line: Any, path: Keys, value: Any) -> Any:
    if not path:
        return value
    key, *rest = path
    other = line.copy()
    other[key] = _with(line[key], tuple(rest), value)
    return other


_KEYS = {*("term", "rule", "cut", "inside", "split", "picked", "values", "moves"), *("use", "lemma", "leaf", "proves")}
_NAMES = {"at", "cut", "inside", "split", "picked", "values", "moves", "on", "proves"}
"""Keys with names of terms."""


def _is_name(path: Keys) -> bool:
    return bool(path) and (path[0] in _NAMES or (path[0] == "term" and path[1:2] == (2,)))


def _others(path: Keys, value: Any, named: Sequence[int]) -> Iterator[tuple[str, Any]]:
    match value:
        case bool():
            yield "another value", not value
            yield "a number for a truth value", int(value)
        case int() if _is_name(path):
            for other in sorted({*named, value - 1, value + 1} - {value}):
                yield "another term", other
            yield "a float for a name", float(value)
        case int():
            for other in sorted({value - 1, value + 1, 2 * value, 0} - {value}):
                yield "another number", other
            yield "a float for a number", float(value)
        case float():
            others = {math.nextafter(value, math.inf), math.nextafter(value, -math.inf), value + 1, -value, 2 * value}
            yield from (("another number", other) for other in sorted(others - {value}))
        case str():
            yield from _words(path, value)


def _words(path: Keys, value: str) -> Iterator[tuple[str, str]]:
    if path == ("rule",):
        left = next(rule.left for rule in CHECKABLE if rule.name == value)
        for rule in CHECKABLE:
            if rule.name != value and rule.left.op == left.op:
                yield "another rule", rule.name
    elif path[-1] == "layout":
        for found in re.finditer(r"-?\d+", value):
            for step in (-1, 1):
                number = str(int(found.group()) + step)
                yield "another layout", value[: found.start()] + number + value[found.end() :]
    elif re.fullmatch("[0-9a-f]{32}", value):
        yield "another digest", value[:-1] + ("0" if value[-1] != "0" else "1")
    else:
        for group in _WORDS:
            yield from (("another word", other) for other in group if value in group and other != value)
    yield "a word misspelt", value + " "


_WORDS = (
    ("Un", "Bin", "MM", "Red", "V", "Cat", "Full", "Where", "Gather", "In", "Const"),
    ("add", "sub", "mul", "div", "max", "min", "pow"),
    ("and", "or"),
    ("less", "less_equal", "equal"),
    ("neg", "abs", "exp", "log", "sqrt", "rsqrt", "recip", "tanh", "relu", "sigmoid", "erf"),
    ("sum", "prod", "max", "min"),
    ("float64", "float32", "float16", "bfloat16", "int64", "int32", "bool"),
)
"""Words that may stand for each other."""


# All of them


def judged(programs: tuple[CoreProgram, CoreProgram], text: str, jobs: int) -> Iterator[tuple[Change, str]]:
    """Each change, and what becomes of it."""
    every = list(changes(text))
    with multiprocessing.get_context("fork").Pool(jobs) as workers:
        fates = workers.imap(partial(_fate, programs, text), every, chunksize=16)
        yield from zip(every, fates, strict=True)


def _fate(programs: tuple[CoreProgram, CoreProgram], text: str, change: Change) -> str:
    return fate(programs, change.of(text))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs=3, metavar="FILE")
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args()
    first, second, certificate = asked.files
    text = certificate.read_text(encoding="utf-8")
    programs = lowered(eqsat.from_onnx(first), eqsat.from_onnx(second))
    if fate(programs, text) != HOLDS:
        print("the certificate itself does not verify")
        return 1
    counts: Counter[tuple[str, str]] = Counter()
    for change, becomes in judged(programs, text, asked.jobs):
        counts[change.name, becomes] += 1
        if becomes != LINE:
            print(f"line {change.start + 1}, {change.name}, {becomes}: {''.join(change.instead)!r}", file=sys.stderr)
    fates = LINE, SEAL, HOLDS
    print("| change | " + " | ".join(fates) + " |")
    print("| --- |" + " ---: |" * len(fates))
    for name in sorted({name for name, _ in counts}):
        print(f"| {name} | " + " | ".join(str(counts[name, each]) for each in fates) + " |")
    print("| all | " + " | ".join(str(sum(n for (_, f), n in counts.items() if f == each)) for each in fates) + " |")
    return 1 if any(becomes == HOLDS for _, becomes in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
