"""Published equations: every one has equal normal forms, `prove` proves them, and refutes false variants.

`prove` itself runs on a random few here; `benchmarks/prove.py` runs it on all of them.
"""

from __future__ import annotations

import random

import pytest

import eqsat
from eqsat.program.core import lower
from eqsat.program.ir import Program
from eqsat.program.node import substitute
from eqsat.proof.normal_form.elements import Agreement, compare
from eqsat.proof.values.refute import refute
from support.equations import identities, taso, tensat, xla_arrays, xla_elementwise
from support.equations.mutants import false, mutants
from support.equations.notation import Equation

TABLES = (taso, tensat, xla_elementwise, xla_arrays, identities)
EQUATIONS = tuple(equation for table in TABLES for equation in table.EQUATIONS)
_EVERY = 40


def sides(equation: Equation) -> tuple[Program, Program]:
    left, right = (eqsat.from_onnx(model) for model in equation.models())
    return left, right


def test_each_equation_has_a_name_of_its_own():
    assert len({equation.id for equation in EQUATIONS}) == len(EQUATIONS) >= 600


def _agreement(left: Program, right: Program, seconds: float) -> Agreement:
    """What comparing the normal forms of two programs with the same inputs shows."""
    p, q = lower(left), lower(right)
    ours = {node.attrs[0]: node for node in p.inputs}
    goal = substitute(q.roots, {node: ours[node.attrs[0]] for node in q.inputs})
    return compare(p.roots, goal, p.constants | q.constants, seconds)


@pytest.mark.parametrize("equation", EQUATIONS, ids=lambda equation: equation.id)
def test_both_sides_of_an_equation_have_one_normal_form(equation: Equation):
    found = _agreement(*sides(equation), seconds=20.0)
    assert found.equal, found.reason


@pytest.mark.parametrize("equation", EQUATIONS[::_EVERY], ids=lambda equation: equation.id)
def test_an_equation_is_proved(equation: Equation):
    proof = eqsat.prove(*sides(equation), time_limit=10)
    assert proof, str(proof)


def _drawn_mutants(each: int) -> list[Equation]:
    """`each` changes of each kind to each family."""
    rng = random.Random(0)
    groups: dict[tuple[str, str], list[Equation]] = {}
    for equation in EQUATIONS:
        for mutant in mutants(equation):
            groups.setdefault((mutant.family, mutant.name.rpartition(", ")[2]), []).append(mutant)
    return [m for _, group in sorted(groups.items()) for m in rng.sample(group, min(len(group), each))]


def test_false_equations_are_refuted_and_none_is_proved():
    pairs = [(mutant.id, pair) for mutant in _drawn_mutants(4) if (pair := false(mutant)) is not None]
    assert len(pairs) >= 150
    verdicts: dict[str, str] = {}
    for name, (p, q) in pairs:
        names = {n: n for n in q.input_names}
        found = refute(p, q, names, 5.0).found
        verdicts[name] = "refuted" if found is not None else eqsat.prove(p, q, time_limit=2).verdict
    assert "proved" not in verdicts.values(), verdicts
    assert list(verdicts.values()).count("refuted") >= 0.95 * len(verdicts), verdicts


def test_no_false_equation_has_one_normal_form():
    for mutant in _drawn_mutants(1):
        pair = false(mutant)
        if pair is not None:
            assert not _agreement(*pair, seconds=0.5).equal, mutant.id
