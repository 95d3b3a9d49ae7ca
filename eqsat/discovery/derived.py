"""Which equations the rules derive: both sides in one e-graph, under all rules of proofs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from eqsat.discovery.equations import Equation
from eqsat.discovery.expressions import number, term, typing
from eqsat.egraph.saturate import Limits, saturate
from eqsat.egraph.snapshot import Snapshot
from eqsat.language.rule import AnyRule, Rule
from eqsat.program import ops
from eqsat.program.core import lower
from eqsat.program.ir import Program
from eqsat.rules import PROVING

SIZES = (2, 3, 7, 11, 17, 23, 31, 43, 53, 67)
"""Sizes at which equations are derived: no two are equal, nor equal to a sum of two. Rules ask for nothing else."""

_LIMITS = Limits(seconds=8.0, nodes=6_000), Limits(seconds=8.0, nodes=20_000)
"""Of the e-graph of several equations, and of one alone."""


def rules(without: Collection[str] = ()) -> tuple[AnyRule, ...]:
    """The rules of proofs without those of these names, or of equations of these names."""
    return tuple(r for r in PROVING if r.name not in without and getattr(r, "equation", r.name) not in without)


def program(equation: Equation, sizes: Sequence[int] = SIZES) -> Program:
    """Both sides as outputs of one program, `left` and `right`, over float32 inputs of these sizes."""
    shapes = typing(equation.left, equation.right)
    by_letter: Mapping[str, int] = dict(zip(shapes.letters, sizes, strict=False))
    inputs = {
        name: ops.input(name, (number(rows, by_letter), number(columns, by_letter)))
        for name, (rows, columns) in shapes.shapes
    }
    outputs = {"left": term(equation.left, inputs), "right": term(equation.right, inputs)}
    return Program(tuple(inputs.values()), outputs)


def derived(equations: Sequence[Equation], given: Sequence[AnyRule], further: Sequence[Rule] = ()) -> list[bool]:
    """Whether the rules, and these further ones, derive each of the equations.

    All are tried in one e-graph first, since they share inputs and most need few steps; the others one by one.
    """
    pairs = [tuple(lower(program(e)).roots) for e in equations]
    met = _met([node for pair in pairs for node in pair], [*given, *further], _LIMITS[0])
    for i, found in enumerate(met):
        if not found:
            met[i] = _met(pairs[i], [*given, *further], _LIMITS[1])[0]
    return met


def _met(roots: Sequence, given: Sequence[AnyRule], limits: Limits) -> list[bool]:
    """Whether each even root and the one behind it become one class."""
    goals = [(i, i + 1) for i in range(0, len(roots), 2)]
    found = saturate(Snapshot.from_core(list(roots)), given, limits, goals=goals)
    return [found.roots[i] == found.roots[j] for i, j in goals]
