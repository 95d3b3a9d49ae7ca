"""Evidence for rules of the host: run on e-graphs that bring their patterns about, what they state is evaluated.

The e-graphs are programs of random dims, as written and saturated by the other rules. An `exact` rule is run on what
exact rules alone make of them, where every class has one value to the last bit, in every element type.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from eqsat.base.numerics import DTYPES, is_float, np_dtype
from eqsat.egraph.host_terms import Term, Terms
from eqsat.egraph.snapshot import Snapshot
from eqsat.evidence.instances import Values, rough, signs, special, unbounded, whole
from eqsat.evidence.reference import Apply, apply, class_values, close, same_bits, term_value
from eqsat.evidence.soundness import Counterexample, Evidence
from eqsat.language.rule import HostRule, Numerics, Policy
from eqsat.program.core import Node, lower, make
from eqsat.program.ir import Program
from eqsat.program.ops import constant
from eqsat.rules import ALL, allowed
from eqsat.tracing import functions
from eqsat.tracing.trace import spec, trace
from eqsat.tracing.tracer import Tracer

Array = np.ndarray

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
                if not _agree(found, expected, method):
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


def _agree(found: Array, expected: Array, method: str) -> bool:
    if found.shape != expected.shape:
        return False
    if method == "range":
        return bool(np.array_equal(np.isfinite(found), np.isfinite(expected)))
    return close(found, expected) if method == "float" else same_bits(found, expected)


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

    As written; saturated by exact rules; by those of the rule's own class as well; and without the rule itself, which
    leaves it what it alone would merge.
    """
    policy: Policy = "exact" if rule.numerics == "exact" else "reassociate"
    for made_by, without in ((None, ""), ("exact", ""), (policy, ""), (policy, rule.name)):
        for i in range(len(_sources(seed))):
            yield _graph(i, seed, made_by, without), made_by != "reassociate"


@lru_cache(maxsize=256)
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
    samples = [program for least in (2, 1) for program in _programs(draw, least)]
    return (*(lower(program).roots for program in samples), (single,))


def _programs(draw: random.Random, least: int) -> tuple[Program, ...]:
    """Programs with concatenations, towers, siblings, chains and sums of products, constants in several views and sums.

    Dims are `least` to 5: some patterns vanish where a dim is 1, and others come about.
    """
    c = functions.concat
    rows, inner, middle, outer = (draw.randint(low, 5) for low in (least, 2, 2, least))

    def weight(*shape: int) -> Array:
        return np.random.default_rng(draw.getrandbits(32)).standard_normal(shape).astype(np.float32)

    def towers(join: bool) -> Program:
        layers = [
            [(weight(inner, middle), weight(middle)), (weight(middle, outer), weight(outer))]
            for _ in range(draw.choice((2, 3)))
        ]

        def run(x: Any) -> Any:
            outs = []
            for t, tower in enumerate(layers):
                h = x[:, inner * t : inner * (t + 1)]
                for w, b in tower:
                    h = functions.relu(h @ w + b)
                outs.append(h)
            return functions.concat(outs, 1) if join else tuple(outs)

        return trace(run, spec((rows, inner * len(layers))))

    def sums(widths: Sequence[int]) -> Program:
        nets = [(weight(inner, n), weight(n), weight(n, outer)) for n in widths]

        def run(x: Any) -> Any:
            parts = [functions.relu(x @ a + b) @ c for a, b, c in nets]
            return sum(parts[1:], parts[0])

        return trace(run, spec((rows, inner)))

    def stream(x: Any) -> Any:
        for _ in range(3):
            x = x + weight(rows, inner)
        a, b, d = (Tracer(constant(weight(rows, inner))) for _ in range(3))
        return x.sum(1) * weight(rows), x * weight(inner), x * ((a + b) + d), x * (a + (b + d))

    def lookups(a: Any, b: Any) -> Any:
        return c([functions.take(table, i, 0) for table, i in zip(tables, (a, b), strict=True)], 0)

    tables = [weight(draw.randint(2, 5), inner) for _ in range(2)]
    chain = [draw.randint(least, 8) for _ in range(5)]
    widths = [2, 3, 5]
    return (
        towers(join=True),
        towers(join=False),
        sums((middle,) * 3),
        sums((2, 3, 4)),
        trace(lambda a, b, c, d: a @ b @ c @ d, *(spec(shape) for shape in pairwise(chain))),
        trace(lambda x: tuple(functions.relu(x @ weight(inner, n)) for n in widths), spec((rows, inner))),
        trace(lambda a, b: c([c([a, b], 0), c([a, a], 0)], 0)[1:5], spec((2, inner)), spec((3, inner))),
        trace(lambda a: (c([a[:2], a[2:]], 0), c([a.T[1:2], a.T[2:]], 0), c([a], 0)), spec((5, inner + 1))),
        trace(lookups, spec((rows,), "int64"), spec((3,), "int64")),
        trace(lambda a, b, w: c([a @ w, b @ w], 0), spec((rows, inner)), spec((4, inner)), spec((inner, outer))),
        trace(stream, spec((rows, inner))),
    )
