"""Evidence for every rule, of the language or of the host: what `eqsat rules check` and the loading of user rules run.

Rows of the rule language are judged by `eqsat.soundness`. A rule of the host is run on the e-graphs of some programs
that bring its patterns about, as written and saturated; every equality that it states is evaluated there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from eqsat.core import Node, lower, make
from eqsat.ir import Program
from eqsat.reference import class_values, term_value
from eqsat.rule import AnyRule, HostRule, Rule
from eqsat.snapshot import Snapshot
from eqsat.soundness import check_rule
from eqsat.terms import Term, Terms

HELD = 30
"""Instances on which the guard of a rule must hold before it counts as judged."""

_SECONDS_PER_GRAPH = 10.0
_COMMON_GRAPHS = 2
"""Passes over the samples that are the same for all rules; a further one is made for a rule that they did not show."""

Array = np.ndarray


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was seen of one rule.

    Attributes:
        rule: its name.
        held: instances on which its guard held, or equalities that it stated.
        drawn: instances drawn, or e-graphs that it was run on.
        counterexample: where both sides differ; empty for a sound rule.
        seconds: how long it took.
    """

    rule: str
    held: int
    drawn: int
    counterexample: str
    seconds: float

    @property
    def verdict(self) -> str:
        """`sound`, `unsound`, or `not seen` where the guard never held."""
        if self.counterexample:
            return "unsound"
        return "sound" if self.held else "not seen"


def judge(rule: AnyRule, held: int = HELD, seed: int = 0) -> Judgement:
    """Look for an instance on which a rule is wrong."""
    begun = time.monotonic()
    if isinstance(rule, Rule):
        evidence = check_rule(rule, held=held, seed=seed)
        failure = "" if evidence.failure is None else str(evidence.failure)
        return Judgement(rule.name, evidence.held, evidence.drawn, failure, time.monotonic() - begun)
    stated, graphs = 0, 0
    for graphs, (snapshot, leaves, values) in enumerate(_graphs(rule), 1):
        for cls, term in _equalities(rule, snapshot):
            stated += 1
            found = term_value(term, values, leaves)
            if not _close(found, values[cls]):
                failure = f"{term} gives {found[:8]}, the class that it should equal {values[cls][:8]}"
                return Judgement(rule.name, stated, graphs, failure, time.monotonic() - begun)
        if graphs >= _COMMON_GRAPHS * len(_sources()) and stated:
            break
    return Judgement(rule.name, stated, graphs, "", time.monotonic() - begun)


def _equalities(rule: HostRule, snapshot: Snapshot) -> list[tuple[int, Term]]:
    found: list[tuple[int, Term]] = []
    rule.apply(Terms(snapshot), lambda cls, term: found.append((cls, term)))
    return found


def _close(a: Array, b: Array) -> bool:
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=1e-9, atol=1e-9, equal_nan=True))


def _graphs(rule: HostRule) -> Iterator[tuple[Snapshot, dict[str, Array], list[Array]]]:
    """E-graphs of the sample programs with the values of all classes.

    As written, then saturated; then saturated without the rule itself, which leaves it what it alone would merge.
    """
    for without in (None, "", rule.name):
        for i in range(len(_sources())):
            yield _graph(i, without)


@lru_cache(maxsize=64)
def _graph(index: int, without: str | None) -> tuple[Snapshot, dict[str, Array], list[Array]]:
    """A sample saturated by all rules but one; None: as it was written."""
    from eqsat.rules import ALL
    from eqsat.saturate import Limits, saturate

    snapshot = Snapshot.from_core(_sources()[index])
    if without is not None:
        rules = [row for row in ALL if row.name != without]
        snapshot = saturate(snapshot, rules, Limits(seconds=_SECONDS_PER_GRAPH, nodes=4000))
    leaves = _leaves(snapshot)
    return snapshot, leaves, class_values(snapshot, leaves)


def _leaves(snapshot: Snapshot) -> dict[str, Array]:
    """Small whole numbers for inputs and constants: sums and products of them are exact."""
    rng = np.random.default_rng(0)
    sizes = {n.attrs[0]: n.attrs[1] for n in snapshot.nodes if n.op in ("In", "Const")}
    return {name: rng.integers(-3, 4, size).astype(np.float64) for name, size in sorted(sizes.items())}


@lru_cache(maxsize=1)
def _sources() -> tuple[tuple[Node, ...], ...]:
    """Roots of the sample programs in the core, and of what no program is lowered to: a concat of one."""
    single = make("Cat", (), [make("In", ("x", 6, "float32"), ())])
    return (*(lower(program).roots for program in _programs()), (single,))


def _programs() -> tuple[Program, ...]:
    """Programs with concatenations, towers, siblings, chains and sums of products, constants in several views."""
    import eqsat

    spec = eqsat.spec

    def weight(*shape: int) -> Array:
        return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)

    def towers(join: bool):
        layers = [[(weight(4, 3) + t, weight(3) + t), (weight(3, 2) + t, weight(2) + t)] for t in range(3)]

        def run(x):
            outs = []
            for t, tower in enumerate(layers):
                h = x[:, 4 * t : 4 * t + 4]
                for w, b in tower:
                    h = eqsat.relu(h @ w + b)
                outs.append(h)
            return eqsat.concat(outs, 1) if join else tuple(outs)

        return eqsat.trace(run, spec((3, 12)))

    def sums(widths: Sequence[int]):
        nets = [(weight(4, n), weight(n), weight(n, 5)) for n in widths]

        def run(x):
            parts = [eqsat.relu(x @ a + b) @ c for a, b, c in nets]
            return sum(parts[1:], parts[0])

        return eqsat.trace(run, spec((3, 4)))

    c = eqsat.concat
    return (
        towers(join=True),
        towers(join=False),
        sums((3, 3, 3)),
        sums((2, 3, 4)),
        eqsat.trace(lambda a, b, c, d: a @ b @ c @ d, spec((2, 7)), spec((7, 3)), spec((3, 8)), spec((8, 4))),
        eqsat.trace(lambda x: tuple(eqsat.relu(x @ weight(4, n)) for n in (2, 3, 5)), spec((3, 4))),
        eqsat.trace(lambda a, b: c([c([a, b], 0), c([a, a], 0)], 0)[1:5], spec((2, 3)), spec((3, 3))),
        eqsat.trace(lambda a: (c([a[:2], a[2:]], 0), c([a.T[1:2], a.T[2:]], 0), c([a], 0)), spec((5, 3))),
        eqsat.trace(lambda a, b, w: c([a @ w, b @ w], 0), spec((2, 3)), spec((4, 3)), spec((3, 5))),
    )
