"""Evidence for rules of the host: each runs on random e-graphs, and the equalities that it states are evaluated.

The e-graphs are random programs (`eqsat.evidence.samples`), as written and saturated by the other rules. An `exact`
rule runs on e-graphs that only exact rules saturated: there every class has one value to the last bit, in every element
type.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from eqsat.base.numerics import DTYPES, Array, is_float, np_dtype
from eqsat.egraph.host_terms import Term, Terms
from eqsat.egraph.snapshot import Snapshot
from eqsat.evidence.instances import Values, rough, signs, special, unbounded, whole
from eqsat.evidence.reference import Apply, apply, class_values, same_bits, term_value
from eqsat.evidence.samples import sample
from eqsat.evidence.soundness import Counterexample, Evidence, agree
from eqsat.language.rule import HostRule, Numerics, Policy
from eqsat.layout.arithmetic import Layout
from eqsat.program.core import Node, lower, make
from eqsat.rules import ALL, allowed

SAMPLES = 120
"""Programs that each rule of the host is run on, as written and saturated."""

_INDICES = (-2, -1, 0, 1)
"""Values of integer inputs: the samples look up rows of tables that have two or more."""

_SECONDS_PER_GRAPH = 10.0
_NODES_PER_GRAPH = 4000
_COMMON_PASSES = 3
"""Passes over the samples that are the same for all rules; a further one is made for a rule that they did not show."""


def check_host_rule(rule: HostRule, seed: int = 0) -> Evidence:
    """Run a rule on e-graphs and evaluate every equality that it states; stop at the first that is wrong."""
    evidence = Evidence()
    draw = random.Random(f"{rule.name}/{seed}")
    for snapshot, by_exact_rules in _graphs(rule, seed):
        evidence.drawn += 1
        stated = _equalities(rule, snapshot)
        evidence.held += len(stated)
        for method, dtype, values in _methods(rule.numerics) if stated else ():
            evidence.methods.add(method)
            evidence.dtypes.add(dtype)
            world = _World(snapshot, draw, dtype, values)
            for cls, term in stated:
                found, expected = world.value(term), world.value(cls)
                if not agree(found, expected, method):
                    evidence.failure = Counterexample({"class": cls, "term": term}, expected, found, method)
                    return evidence
                if by_exact_rules and evidence.witness is None and not same_bits(found, expected):
                    evidence.witness = Counterexample({"class": cls, "term": term}, expected, found, "rounding")
        if evidence.drawn >= _COMMON_PASSES * len(_sources(seed)) and evidence.held:
            break
    evidence.methods.discard("range")  # part of comparing floats
    return evidence


def _methods(numerics: Numerics) -> list[tuple[str, str, Values]]:
    """(method, dtype, values) triples in which what is stated is compared."""
    if numerics == "exact":
        return [("bits", dtype, values) for dtype in DTYPES if dtype != "bool" for values in (whole, signs, special)]
    floats: list[tuple[str, str, Values]] = [("float", dtype, rough) for dtype in ("float64", "float32", "float64")]
    return [("integers", "int64", whole), *floats, ("range", "float64", unbounded)]


def _equalities(rule: HostRule, snapshot: Snapshot) -> list[tuple[int, Term]]:
    found: list[tuple[int, Term]] = []
    rule.apply(Terms(snapshot), lambda cls, term: found.append((cls, term)))
    return found


@dataclass(slots=True)
class _World:
    """Values of all classes of an e-graph, its floats taken as another element type."""

    snapshot: Snapshot
    leaves: dict[str, Array]
    classes: list[Array]
    meaning: Apply

    def __init__(self, snapshot: Snapshot, draw: random.Random, dtype: str, values: Values) -> None:
        def meaning(op: str, attrs: tuple[Any, ...], args: Sequence[Array]) -> Array:
            if op == "Full" and is_float(attrs[2]):
                attrs = (attrs[0], attrs[1], dtype)
            if op == "V" and attrs[0].masked and not is_float(dtype):
                layout = attrs[0]
                attrs = (Layout(layout.offset, layout.dims, layout.axes, int(layout.fill)),)
            return apply(op, attrs, args)

        def leaf(size: int, declared: str) -> Array:
            if is_float(declared):
                return np.array([values(draw, dtype) for _ in range(size)], dtype=np_dtype(dtype))
            return np.array([draw.choice(_INDICES) for _ in range(size)], dtype=np_dtype(declared))

        leaves = {n.attrs[0]: n.attrs[1:] for n in snapshot.nodes if n.op in ("In", "Const")}
        self.snapshot, self.meaning = snapshot, meaning
        self.leaves = {name: leaf(size, declared) for name, (size, declared) in sorted(leaves.items())}
        self.classes = class_values(snapshot, self.leaves, meaning)

    def value(self, term: Term) -> Array:
        """The value of a class or of a term over classes."""
        return term_value(term, self.classes, self.leaves, self.meaning)


def _graphs(rule: HostRule, seed: int) -> Iterator[tuple[Snapshot, bool]]:
    """E-graphs of the sample programs, and whether every class has one value to the last bit.

    As written; saturated by exact rules; by those of the rule's own class as well; and by all of these but the rule
    itself, so classes that only this rule merges are still apart.
    """
    policy: Policy = "exact" if rule.numerics == "exact" else "reassociate"
    for made_by, without in ((None, ""), ("exact", ""), (policy, ""), (policy, rule.name)):
        for i in range(len(_sources(seed))):
            yield _graph(i, seed, made_by, without), made_by != "reassociate"


@lru_cache(maxsize=1024)
def _graph(index: int, seed: int, policy: Policy | None, without: str) -> Snapshot:
    """A sample saturated by the rules of a policy but one; None: as it was written."""
    from eqsat.egraph.saturate import Limits, saturate

    snapshot = Snapshot.from_core(_sources(seed)[index])
    if policy is None:
        return snapshot
    rules = [row for row in allowed(ALL, policy) if row.name != without]
    return saturate(snapshot, rules, Limits(seconds=_SECONDS_PER_GRAPH, nodes=_NODES_PER_GRAPH))


@lru_cache(maxsize=2)
def _sources(seed: int) -> tuple[tuple[Node, ...], ...]:
    """Roots of the sample programs in the core, and of what no program is lowered to: a concat of one."""
    single = make("Cat", (), [make("In", ("x", 6, "float32"), ())])
    draw = random.Random(seed)
    return (*(lower(sample(draw)).roots for _ in range(SAMPLES)), (single,))
