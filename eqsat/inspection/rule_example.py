"""A worked example of a rule: both sides with shapes, the names of the rule, and the cost of each side.

Examples are drawn like the instances of the soundness tests. Host rules are tried on a few small programs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

from eqsat.egraph.host_terms import Terms
from eqsat.egraph.snapshot import Snapshot
from eqsat.evidence.instances import Instance, Unfit
from eqsat.extract.cover import cover
from eqsat.language.rule import AnyRule, Fact, HostRule, Pat, Pattern, Rule, Var
from eqsat.lift.places import Places
from eqsat.lift.shaped import Shaper
from eqsat.program import ops
from eqsat.program.core import Node, flops, lower, make, topological
from eqsat.program.core_table import CORE, CoreOp, Shaped, without_batch
from eqsat.program.printer import expression, joined
from eqsat.program.term import Shape, Term
from eqsat.program.term import topological as terms_below
from eqsat.tracing.expression import parse

_DRAWS = 400
_LARGEST_SHOWN = 10
_DTYPES = ("float32", "float64", "int32", "bool")
_COVER_SECONDS = 1.0
_DEVICE = "mi300x"

_PROGRAMS = (
    ("concatenate([a, a])", "a=f32[3,4]"),
    ("concatenate([a[:2], a[2:]])", "a=f32[4,3]"),
    ("concatenate([relu(a), relu(b)])", "a=f32[3,4] b=f32[3,4]"),
    ("concatenate([a @ u, b @ v])", "a=f32[3,4] b=f32[3,4] u=const:f32[4,5] v=const:f32[4,5]"),
    ("concatenate([a @ u, b @ v])[:3]", "a=f32[3,4] b=f32[3,4] u=const:f32[4,5] v=const:f32[4,5]"),
    ("concatenate([concatenate([a, b]), c])", "a=f32[2,3] b=f32[3,3] c=f32[4,3]"),
    ("concatenate([relu(a.T), relu(b.T)])", "a=f32[3,4] b=f32[3,4]"),
    ("concatenate([a.T, b.T])", "a=f32[3,4] b=f32[3,4]"),
    ("concatenate([a @ w, b @ w])", "a=f32[3,4] b=f32[2,4] w=const:f32[4,5]"),
    ("stack([x @ u, x @ v])", "x=f32[3,4] u=const:f32[4,5] v=const:f32[4,5]"),
    ("a @ u + b @ v", "a=f32[3,4] b=f32[3,6] u=const:f32[4,5] v=const:f32[6,5]"),
    ("((a @ b) @ c) @ d", "a=f32[6,2] b=f32[2,7] c=f32[7,3] d=f32[3,1]"),
    ("relu(x @ u) * tanh(x @ v)", "x=f32[3,4] u=const:f32[4,5] v=const:f32[4,5]"),
    ("(x + u[:2]) * concatenate([u[:1], u[1:2]])", "x=f32[2,3] u=const:f32[4,3]"),
    ("x + concatenate([u, u])[2:]", "x=f32[2,3] u=const:f32[2,3]"),
)
"""Programs on which the host rules fire: an expression, and its names with their types."""


@dataclass(frozen=True, slots=True)
class Side:
    """One side: its expression, operations (constants aside), and the predicted time of its kernels."""

    text: str
    flops: int
    microseconds: float


@dataclass(frozen=True, slots=True)
class Example:
    """An instance of a rule: `names` describe its arrays, `type` is the type of both sides."""

    before: Side
    after: Side
    type: str
    names: dict[str, str]

    def as_json(self) -> dict[str, Any]:
        """As in `eqsat rules show --json`."""
        sides = {
            name: {"expression": s.text, "flops": s.flops, "predicted_us": s.microseconds}
            for name, s in (("before", self.before), ("after", self.after))
        }
        return {**sides, "type": self.type, "names": self.names}


def example(row: AnyRule) -> Example | None:
    """An example of a rule with small shapes; None where none was found."""
    found = _of_host(row) if isinstance(row, HostRule) else _drawn(row)
    if found is None:
        return None
    before, after, known, names = found
    shaper = Shaper(known)
    shaper.share_shape(before, after)
    left, right = shaper.terms([before, after])
    one, other = (_side(node, expression(t, names)) for node, t in ((before, left), (after, right)))
    legend = {
        joined((term,), names): f"constant {term.spec}" if term in names else term.spec
        for term in terms_below([left, right])
        if term in names or term.op == "input"
    }
    return Example(one, other, left.spec, dict(sorted(legend.items())))


Found = tuple[Node, Node, dict[Node, Term], dict[Term, str]]


def _side(node: Node, text: str) -> Side:
    source = Snapshot.from_core([node])
    dynamic = {n for n in topological([node]) if any(x.op == "In" for x in topological([n]))}
    cost = cover(source, _DEVICE, _COVER_SECONDS).cost
    return Side(text, sum(flops(n) for n in dynamic), round(cost * 1e-6, 3))


# --- rows of the rule language


def _drawn(row: Rule) -> Found | None:
    """An instance whose guard holds: the first without sizes of 1 and numbers that teach little, else the first."""
    spare: Instance | None = None
    for seed in range(_DRAWS):
        try:
            instance = Instance(row, random.Random(seed), _DTYPES[seed % len(_DTYPES) if seed % 4 == 3 else 0])
        except Unfit:
            continue
        if instance.empty or not all(instance.holds(guard) for guard in row.when):
            continue
        sizes = [v for name, v in instance.bindings.items() if isinstance(v, int) and name in _drawn_sizes(row)]
        numbers = [v for name, v in instance.bindings.items() if isinstance(v, float) and name not in row.literals]
        if all(size > 1 for size in sizes) and all(map(_reads_well, numbers)):
            return _nodes(row, instance)
        spare = spare or instance
    return _nodes(row, spare) if spare is not None else None


def _reads_well(number: float) -> bool:
    """Whether a number is a few halves, neither 0 nor 1."""
    return abs(number) <= _LARGEST_SHOWN and (2 * number).is_integer() and number not in (0.0, 1.0)


@lru_cache(maxsize=64)
def _drawn_sizes(row: Rule) -> frozenset[str]:
    """The dims that a left side names."""

    def walk(pattern: Pattern) -> Iterator[str]:
        if isinstance(pattern, Pat):
            yield from (a.name for a in pattern.attrs if isinstance(a, Var))
            for arg in pattern.args:
                yield from walk(arg)

    return frozenset(walk(row.left)) - {"B"}


def _nodes(row: Rule, instance: Instance) -> Found:
    constant = {g.cls.name for g in row.when if isinstance(g, Fact) and g.name == "const"}
    leaves = {
        name: make("Const" if name in constant else "In", (name, instance.bindings[name], dtype))
        for name, dtype in instance.types.items()
    }
    shapes: dict[str, Shape] = {}
    _shape_leaves(row.left, instance, shapes, None)
    terms = {name: ops.input(name, shapes.get(name, (leaf.size,)), leaf.dtype) for name, leaf in leaves.items()}
    names = {terms[name]: name for name in constant if name in terms}

    def node(pattern: Pattern) -> Node:
        if isinstance(pattern, Var):
            return leaves[pattern.name]
        return make(pattern.op, [instance.number(a) for a in pattern.attrs], [node(a) for a in pattern.args])

    known = {leaves[name]: term for name, term in terms.items()}
    return node(row.left), node(row.right), known, names


def _shape_leaves(pattern: Pattern, instance: Instance, shapes: dict[str, Shape], shape: Shape | None) -> Shape | None:
    """Shapes of the arrays under a pattern, from its products and reductions, and the shape of the pattern itself."""
    if isinstance(pattern, Var):
        if shape is not None:
            shapes.setdefault(pattern.name, shape)
        return shapes.get(pattern.name)
    row = CORE[pattern.op]
    if row.elementwise:
        for arg in (*pattern.args, *pattern.args):  # twice: a later operand may know what an earlier one does not
            shape = _shape_leaves(arg, instance, shapes, shape) or shape
        return shape
    dims: dict[str, Shape] = {
        attr.name: (instance.number(value),)
        for attr, value in zip(row.attrs, pattern.attrs, strict=True)
        if attr.kind == "int"
    }
    result = row.signature.result
    if shape is not None:
        others = prod(n for name in result.sizes for n in dims.get(name, ()))
        rest = shape if len(result.sizes) == 1 else (prod(shape) // max(others, 1),)
        dims |= dict.fromkeys(row.free.intersection(result.sizes), rest)
    for arg, operand in zip(pattern.args, row.signature.operands, strict=True):
        _shape_leaves(arg, instance, shapes, _dims_of(row, operand, dims))
    return _dims_of(row, result, dims)


def _dims_of(row: CoreOp, shaped: Shaped, dims: Mapping[str, Shape]) -> Shape | None:
    """The shape of an operand or a result, without a batch of one; None if a size is not known."""
    if not dims.keys() >= set(shaped.sizes):
        return None
    shape = tuple(n for name in shaped.sizes for n in dims[name])
    return without_batch(shape) if row.free.isdisjoint(shaped.sizes) else shape


# --- rules of the host


def _of_host(row: HostRule) -> Found | None:
    for text, lets in _PROGRAMS:
        program = parse(text, dict(pair.split("=") for pair in lets.split(" ")))
        core = lower(program)
        snapshot = Snapshot.from_core(core.roots)
        stated: list[tuple[int, Any]] = []
        row.apply(Terms(snapshot), lambda cls, term, stated=stated: stated.append((cls, term)))
        for cls, term in stated:
            before, after = snapshot.term(cls), _node_of(term, snapshot)
            if before is not after:
                places = Places(program)
                names = {t: name for t in core.source_term.values() if (name := places.constant(t)) is not None}
                return before, after, core.source_term, names
    return None


def _node_of(term: Any, snapshot: Snapshot) -> Node:
    if isinstance(term, int):
        return snapshot.term(term)
    op, attrs, operands = term
    return make(op, attrs, [_node_of(t, snapshot) for t in operands])
