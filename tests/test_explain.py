"""Derivations: every step is a rule by name, one follows from the other, and both sides of each evaluate alike."""

from __future__ import annotations

import numpy as np
import pytest
from proof_pairs import EQUAL, build

import eqsat
from eqsat.core import CoreProgram, lower, make
from eqsat.derivation import derive
from eqsat.errors import CheckFailed
from eqsat.explain import FOLD
from eqsat.match import Matcher
from eqsat.rule import Fact, Var, rule
from eqsat.rules import ALL
from eqsat.saturate import Limits, saturate
from eqsat.shaped import Shaper
from eqsat.snapshot import ENode, Snapshot
from eqsat.write import expression

spec = eqsat.spec


def weight(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def tower(x):
    outs = []
    for t in range(3):
        h = eqsat.relu(x[:, 64 * t : 64 * t + 64] @ weight(64, 32) + weight(32) + t)
        outs.append(h @ (weight(32, 16) + t))
    return tuple(outs)


PROGRAMS = {
    "a product of constants": (
        lambda x: (x @ weight(96, 96)) @ weight(96, 8),
        spec((200, 96)),
        "matmul-of-constants-right",
    ),
    "the sum of a product": (lambda a: (a @ weight(256, 512)).sum(1), spec((256, 256)), "sum-of-matmul"),
    "a slice of a product": (lambda a: (a @ weight(96, 512))[:, :10], spec((256, 96)), "view-of-matmul-narrows"),
    "towers": (tower, spec((16, 192)), "concat-of-operators"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_result_is_explained_by_rules(name: str):
    function, specs, expected = PROGRAMS[name]
    best = eqsat.optimize(eqsat.trace(function, *(specs if isinstance(specs, tuple) else (specs,))), time_limit=10)
    steps = best.report["steps"]
    assert expected in [step["rule"] for step in steps]
    rewrites = [step for step in steps if step["rule"] != FOLD]
    assert {step["rule"] for step in rewrites} <= {row.name for row in ALL}
    assert all(step["replayed"] and step["error"] < 1e-4 for step in rewrites)
    assert best.report["derived"]
    assert all(step["before"] != step["after"] for step in steps)
    assert best.report["rules"][expected] >= 1
    assert expected in best.explain()


RULES_ALONE = (
    "matmul: associate",
    "matmul: distribute",
    "matmul: transpose",
    "matmul: slice columns",
    "matmul: join rows",
)


@pytest.fixture(scope="module")
def declared_rules() -> None:
    """The worker knows the rules of `prove`: declaring them takes seconds on a busy machine, and counts as search."""
    left, right, shapes = EQUAL[RULES_ALONE[0]]
    eqsat.prove(build(left, shapes), build(right, shapes), time_limit=10)


@pytest.mark.usefixtures("declared_rules")
@pytest.mark.parametrize("name", RULES_ALONE)
def test_a_proof_by_rules_has_its_steps(name: str):
    left, right, shapes = EQUAL[name]
    proof = eqsat.prove(build(left, shapes), build(right, shapes), time_limit=10)
    assert proof.method == "rules"
    assert proof.steps
    assert all(step["replayed"] for step in proof.steps)


def chain() -> tuple[Snapshot, CoreProgram, list]:
    before = lower(eqsat.trace(lambda a, b, c: (a @ b) @ c, spec((3, 5)), spec((5, 7)), spec((7, 2))))
    after = lower(eqsat.trace(lambda a, b, c: a @ (b @ c), spec((3, 5)), spec((5, 7)), spec((7, 2))))
    roots = [*before.roots, *after.roots]
    return saturate(Snapshot.from_core(roots), ALL, Limits(seconds=10)), before, [(before.roots[0], after.roots[0])]


def test_steps_lead_from_the_one_to_the_other():
    found, program, pairs = chain()
    (step,) = derive(found, ALL, pairs) or []
    assert (step.rule, step.before, step.after) == ("matmul-associate-right", *pairs[0])
    terms = Shaper(program.source_term).terms([step.before, step.after])
    assert [expression(t, {}) for t in terms] == ["(a @ b) @ c", "a @ (b @ c)"]


def test_where_no_rule_leads_there_is_no_derivation():
    found, _, pairs = chain()
    assert derive(found, [], [(b, a) for a, b in pairs]) is None


def test_a_step_that_does_not_hold_is_a_failed_check():
    a, b = (make("In", (name, 3, "float32")) for name in "ab")
    left, right = make("Bin", ("sub",), (a, b)), make("Bin", ("sub",), (b, a))
    nodes = [ENode("In", a.attrs, (), 0), ENode("In", b.attrs, (), 1), ENode("Bin", ("sub",), (0, 1), 2)]
    nodes.append(ENode("Bin", ("sub",), (1, 0), 2, "mutant"))
    snapshot = Snapshot(nodes, 3, [False] * 3, [2, 2])
    with pytest.raises(CheckFailed, match="step mutant"):
        derive(snapshot, [rule("mutant", "sub(a, b) => sub(b, a)")], [(left, right)])


def test_the_matcher_finds_what_a_guard_refused():
    source = Snapshot.from_core(
        lower(eqsat.trace(lambda x, y: (x * y) @ weight(5, 3), spec((4, 5)), spec((4, 5)))).roots
    )
    row = rule("test", "mm(mul(a, b), c, B, M, K, N) => mm(a, c, B, M, K, N)", when="M < K; const(b)")
    matcher = Matcher(source)
    (refusal,) = [r for at in range(len(source.nodes)) for r in matcher.refusals(row, at)]
    assert refusal.failed == (Fact("const", Var("b")),)
    assert {"B": 1, "M": 4, "K": 5, "N": 3}.items() <= refusal.bindings.items()
