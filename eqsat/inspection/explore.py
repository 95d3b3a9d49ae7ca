"""Exploring a program: how its e-graph grows, which rules fire where, and the forms of its result with their costs."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from eqsat.base.arguments import instance, shown
from eqsat.egraph.saturate import Limits, Progress, saturate
from eqsat.egraph.snapshot import Snapshot
from eqsat.errors import InputError
from eqsat.extract.cover import cover
from eqsat.extract.device.table import device as find_device
from eqsat.language.rule import AnyRule
from eqsat.lift.places import Places
from eqsat.lift.shaped import Shaper
from eqsat.program.core import Node, lower, make
from eqsat.program.ir import Program
from eqsat.program.printer import expression
from eqsat.program.sizes import check_program

_COVER_SECONDS = 1.0
_OPERAND_FORMS = (3, 6, 12, 24)
"""Forms of an operand that are combined; more only if these give too few forms of the whole."""

_MOST_PLACES = 3


@dataclass(frozen=True, slots=True)
class Growth:
    """The e-graph after one iteration, and how often each rule matched in it."""

    iteration: int
    classes: int
    nodes: int
    matches: dict[str, int]


_THERE = "both sides were there"
"""The form of a rule that made no e-node: it only united classes."""


@dataclass(frozen=True, slots=True)
class Fired:
    """The effect of one rule: its matches, the e-nodes that it made, the first of them, and its place."""

    rule: str
    matches: int
    made: int
    form: str
    where: tuple[str, ...]


@dataclass(slots=True)
class Exploration:
    """A saturated program.

    Attributes:
        snapshot: the e-graph at the end; `snapshot.stats["stop"]` says why it ended.
        growth: one row an iteration.
        made: e-nodes that each rule added.
    """

    program: Program
    snapshot: Snapshot
    growth: list[Growth]
    made: dict[str, int] = field(default_factory=dict)

    def fired(self) -> list[Fired]:
        """The effect of each rule, rules with most e-nodes first."""
        return list(_fired(self))

    @property
    def stop(self) -> str:
        """Why it ended: `saturated`, `steps`, `nodes`, `time`, `memory` or `interrupted`."""
        return self.snapshot.stats["stop"]


def explore(
    program: Program,
    rules: Sequence[AnyRule],
    limits: Limits | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Exploration:
    """Saturate a program and record its growth. After Ctrl-C the result so far is returned.

    Raises:
        InputError: an argument of the wrong kind, or a value of too many elements (docs/limits.md).
        EqsatError: a rule merged two classes that cannot be equal.
    """
    instance("explore", program, Program, "a Program (eqsat.trace, from_onnx, from_torch)")
    if not isinstance(rules, Iterable) or not all(isinstance(row, AnyRule) for row in rules):
        raise InputError(f"rules {shown(rules)}: expected a list of rules, as eqsat.rules.ALL")
    if limits is not None:
        instance("explore: limits", limits, Limits, "eqsat.egraph.saturate.Limits")
    check_program(program)
    source = Snapshot.from_core(lower(program).roots)
    snapshot = saturate(source, rules, limits or Limits(nodes=5000), progress)
    stats = snapshot.stats
    sizes = stats.get("growth", [(source.n_classes, len(source.nodes))])
    rows = zip(sizes, stats.get("new_matches", [{}]), strict=True)
    growth = [Growth(i, classes, nodes, matches) for i, ((classes, nodes), matches) in enumerate(rows)]
    return Exploration(program, snapshot, growth, dict(Counter(n.rule for n in snapshot.nodes if n.rule)))


@dataclass(frozen=True, slots=True)
class Form:
    """One way to compute the first root, with its cost in microseconds by device: fused, not rewritten."""

    node: Node
    text: str
    microseconds: dict[str, float]


def forms(found: Exploration, devices: Sequence[str], count: int, seconds: float = 10.0) -> list[Form]:
    """Distinct forms of the first root, at most `count`, in order of cost on the first device.

    Raises:
        InputError: a device is unknown.
    """
    rows = [find_device(name) for name in devices]
    deadline = time.monotonic() + seconds
    writer = _Writer(found.program)
    distinct: dict[str, Node] = {}
    for node in _enough(found.snapshot, count):
        distinct.setdefault(writer.text(node), node)
    priced = []
    for text, node in distinct.items():
        if priced and time.monotonic() > deadline:
            break
        source = Snapshot.from_core([node])
        priced.append(Form(node, text, {row.name: cover(source, row, _COVER_SECONDS).cost * 1e-6 for row in rows}))
    return sorted(priced, key=lambda f: tuple(f.microseconds.values()))[:count]


def _enough(snapshot: Snapshot, count: int) -> list[Node]:
    """Distinct forms of the first root: all, or twice as many as are asked for."""
    found: list[Node] = []
    for most in _OPERAND_FORMS:
        found = list(itertools.islice(_forms(snapshot, snapshot.roots[0], frozenset(), 2 * count, most), 2 * count))
        if len(found) >= count:
            break
    return found


def _forms(snapshot: Snapshot, cls: int, above: frozenset[int], most: int, inner: int) -> Iterator[Node]:
    """Distinct core nodes of a class, without cycles, with at most `inner` forms of each operand."""
    if cls in above:
        return
    seen: set[Node] = set()
    for member in snapshot.members[cls]:
        row = snapshot.nodes[member]
        parts = [list(_forms(snapshot, a, above | {cls}, inner, inner)) for a in row.args]
        for operands in itertools.product(*parts):
            node = make(row.op, row.attrs, operands)
            if node not in seen:
                seen.add(node)
                yield node
            if len(seen) >= most:
                return


class _Writer:
    """Values of an explored program as NumPy expressions."""

    def __init__(self, program: Program) -> None:
        self._core = lower(program)
        self._shaper = Shaper(self._core.source_term)
        self.places = Places(program)
        self._names = {
            t: name for t in self._core.source_term.values() if (name := self.places.constant(t)) is not None
        }

    def text(self, node: Node) -> str:
        """The whole expression of a value."""
        (term,) = self._shaper.terms([node])
        return expression(term, self._names)

    def where(self, node: Node) -> str | None:
        """The place of a value that the program itself computes."""
        term = self._core.source_term.get(node)
        return self.places.of(term) if term is not None else None


def _fired(found: Exploration) -> Iterator[Fired]:
    snapshot, writer = found.snapshot, _Writer(found.program)
    own: dict[int, Node] = {}
    for node in snapshot.nodes:
        if not node.rule and node.cls not in own:
            own[node.cls] = make(node.op, node.attrs, [own.get(a) or snapshot.term(a) for a in node.args])
    matches = snapshot.stats.get("matches", {})
    fired = {rule: 0 for rule, count in matches.items() if count} | found.made
    for rule, made in sorted(fired.items(), key=lambda r: (-r[1], r[0])):
        if not made:
            yield Fired(rule, matches[rule], 0, _THERE, ())
            continue
        nodes = [n for n in snapshot.nodes if n.rule == rule]
        first = make(nodes[0].op, nodes[0].attrs, [snapshot.term(a) for a in nodes[0].args])
        places = dict.fromkeys(writer.where(own[n.cls]) or "inside" if n.cls in own else "a new value" for n in nodes)
        yield Fired(rule, matches.get(rule, 0), made, writer.text(first), tuple(list(places)[:_MOST_PLACES]))
