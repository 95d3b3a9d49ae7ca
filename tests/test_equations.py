"""Published equations: every one has equal normal forms, and `prove` proves those that are drawn here."""

from __future__ import annotations

import pytest
from equations import taso, tensat, xla
from equations.notation import Equation

import eqsat
from eqsat.core import lower
from eqsat.elements import compare
from eqsat.ir import Program
from eqsat.segments import substitute

EQUATIONS = (*taso.EQUATIONS, *tensat.EQUATIONS, *xla.EQUATIONS)
_EVERY = 40


def sides(equation: Equation) -> tuple[Program, Program]:
    left, right = (eqsat.from_onnx(model) for model in equation.models())
    return left, right


def test_each_equation_has_a_name_of_its_own():
    assert len({equation.id for equation in EQUATIONS}) == len(EQUATIONS) >= 600


@pytest.mark.parametrize("equation", EQUATIONS, ids=lambda equation: equation.id)
def test_both_sides_of_an_equation_have_one_normal_form(equation: Equation):
    p, q = (lower(side) for side in sides(equation))
    ours = {node.attrs[0]: node for node in p.inputs}
    goal = substitute(q.roots, {node: ours[node.attrs[0]] for node in q.inputs})
    found = compare(p.roots, goal, p.constants | q.constants, 20.0)
    assert found.equal, found.reason


@pytest.mark.parametrize("equation", EQUATIONS[::_EVERY], ids=lambda equation: equation.id)
def test_an_equation_is_proved(equation: Equation):
    proof = eqsat.prove(*sides(equation), time_limit=10)
    assert proof, str(proof)
