"""Derivations: every step names its rule and follows from the step before, and both its sides have equal values."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import eqsat
from eqsat.egraph.match import Matcher
from eqsat.egraph.saturate import Limits, saturate
from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.errors import CheckFailed
from eqsat.explain.derivation import derive
from eqsat.explain.effort import Effort
from eqsat.explain.explanation import FOLD
from eqsat.explain.ties import Ties
from eqsat.language.equation import rule
from eqsat.language.rule import Fact, Var
from eqsat.lift.shaped import Shaper
from eqsat.program import ops
from eqsat.program.core import CoreProgram, lower, make
from eqsat.program.printer import expression, joined, pieces
from eqsat.rules import ALL
from eqsat.testing import programs
from support.programs import weight
from support.proof_pairs import EQUAL, build
from support.towers import towers

spec = eqsat.spec


PROGRAMS = {
    "a product of constants": (
        lambda x: (x @ weight(96, 96)) @ weight(96, 8),
        spec((200, 96)),
        "matmul-of-constants-right",
    ),
    "the sum of a product": (lambda a: (a @ weight(256, 512)).sum(1), spec((256, 256)), "sum-of-matmul"),
    "a slice of a product": (lambda a: (a @ weight(96, 512))[:, :10], spec((256, 96)), "view-of-matmul-narrows"),
    "towers": (towers, spec((16, 192)), "concat-of-operators"),
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


NUMPY = {
    **{name: getattr(np, name) for name in ("concatenate", "stack", "broadcast_to", "tanh", "exp", "maximum")},
    "relu": lambda x: np.maximum(x, 0),
    "sum": lambda x, axis, keepdims=False: np.sum(x, axis=axis, keepdims=keepdims),
    "max": lambda x, axis, keepdims=False: np.max(x, axis=axis, keepdims=keepdims),
}


def value_of(text: str, step: dict) -> np.ndarray:
    """What NumPy makes of a side of a step, with small whole numbers for its names."""
    shapes = {name: re.search(r"\[([\d,]*)\]", said) for name, said in step["names"].items()}
    assert all(shapes.values())
    sizes = {name: [int(n) for n in found[1].split(",") if n] for name, found in shapes.items() if found}
    rng = np.random.default_rng(0)
    values = {name: rng.integers(1, 4, size).astype(np.float64) for name, size in sorted(sizes.items())}
    return eval(text, {**NUMPY, "__builtins__": {}}, values)


READ = {
    "chain": lambda x: (x @ weight(96, 96) + weight(96)) @ weight(96, 8),
    "sum": lambda a: (a @ weight(96, 512)).sum(1),
    "slice": lambda a: (a @ weight(96, 512))[:, :10],
    "gates": lambda x: eqsat.concatenate([eqsat.tanh(x @ weight(96, 32)), eqsat.relu(x @ (weight(96, 32) + 1))], 1),
}


@pytest.mark.parametrize("name", READ)
def test_steps_are_numpy_that_holds(name: str):
    best = eqsat.optimize(eqsat.trace(READ[name], spec((200, 96))), time_limit=10)
    assert best.report["steps"]
    for step in best.report["steps"]:
        shown = value_of(step["before"], step)
        assert re.fullmatch(r"f32\[[\d,]+\]", step["type"])
        if step["rule"] != FOLD:
            np.testing.assert_allclose(np.squeeze(value_of(step["after"], step)), np.squeeze(shown))


def test_names_are_those_of_the_model_and_where_is_a_path():
    A, C = weight(96, 96), weight(96, 8)
    best = eqsat.optimize(eqsat.trace(lambda x: eqsat.relu((x @ A) @ C), spec((200, 96))), time_limit=10)
    step, fold = best.report["steps"]
    assert (step["before"], step["after"]) == ("(x @ A) @ C", "x @ (A @ C)")
    assert step["where"] == "at out > relu > matmul"
    assert step["names"] == {"x": "f32[200,96]", "A": "constant f32[96,96]", "C": "constant f32[96,8]"}
    assert (fold["before"], fold["after"]) == ("A @ C", "constant f32[96,8]")


def test_kernels_are_said_to_merge():
    best = eqsat.optimize(eqsat.trace(towers, spec((16, 192))), time_limit=10)
    merges = best.report["merges"]
    assert sorted(at for m in merges for at in m["after_at"]) == list(range(best.report["result"]["kernels"]))
    assert sum(len(m["before"]) for m in merges) == best.report["source"]["kernels"]
    assert "Kernels as written, and what they became" in best.explain()


def test_equal_layers_are_explained_once():
    def layers(x):
        for _ in range(4):
            x = eqsat.softmax((x @ weight(256, 256)) @ (weight(256, 256) + 1))
        return x

    best = eqsat.optimize(eqsat.trace(layers, spec((16, 256))), time_limit=10)
    assert sum(step["times"] for step in best.report["steps"] if step["rule"] == "matmul-of-constants-right") == 4
    assert len(best.report["steps"]) < 8
    text = best.explain()
    assert max(map(len, text.splitlines())) <= 100
    assert re.search(r"x[34] \(layers 1-[34]\)", text)


def test_steps_that_differ_in_names_and_sizes_alone_are_alike():
    def chains(x, y):
        return (x @ weight(96, 96)) @ weight(96, 8), eqsat.relu((y @ weight(64, 64)) @ weight(64, 4))

    report = eqsat.optimize(eqsat.trace(chains, spec((200, 96)), spec((300, 64))), time_limit=10).report
    first, other, *folds = (step["alike"] for step in report["steps"])
    assert [step["rule"] for step in report["steps"]] == ["matmul-of-constants-right"] * 2 + [FOLD] * 2
    assert (first, other, folds) == (1, 1, [3, 3])


def test_a_step_names_the_others_that_are_alike():
    def chains(x, y):
        return (x @ weight(96, 96)) @ weight(96, 8), eqsat.relu((y @ weight(96, 96, seed=1)) @ weight(96, 8))

    text = eqsat.optimize(eqsat.trace(chains, spec((200, 96)), spec((200, 96))), time_limit=10).explain()
    titles = [line.split(", at")[0].split(", in")[0] for line in text.splitlines() if re.match(r"\d+\. ", line)]
    assert titles == ["1. matmul-of-constants-right, and so step 2", f"3. {FOLD}, and so step 4"]


def test_pieces_of_an_expression_hold_the_terms_that_names_stand_for():
    x, w = ops.input("x", (2, 3), "float32"), ops.input("w", (3, 4), "float32")
    product = ops.matmul(x, w)
    text = pieces(ops.exp(product), ())
    assert [piece for piece in text if not isinstance(piece, str)] == [x, w]
    assert joined(text, {w: "t1"}) == "exp(x @ t1)"
    assert (
        joined(pieces(ops.transpose(ops.matmul(x, w), (1, 0)), [ops.matmul(x, w)]), {ops.matmul(x, w): "t2"}) == "t2.T"
    )


def test_a_view_that_changes_nothing_is_explained():
    """The transpose of repeated values is those values: the source's own view of itself must not get lost."""

    def f(x):
        wide = eqsat.broadcast_to(x, (1, 1, 4, 4)) < 1.0
        return wide[:, :, 3:, :1], eqsat.transpose(wide, (3, 2, 0, 1))

    assert eqsat.optimize(eqsat.trace(f, eqsat.spec(())), numerics="fast").report["derived"]


def test_a_program_without_steps_stands_as_written_only_if_it_is_the_source():
    """A sum of constants that a simpler one replaced is not in the e-graph, so that no step may lead to the result."""
    weights = weight(8, 17)

    def halved(y):
        p = y @ weights
        return (p + p) * 0.5

    best = eqsat.optimize(eqsat.trace(halved, spec((17, 8))))
    assert best.report["result"]["kernels"] == 1
    assert best.report["steps"] or "No steps are shown" in best.explain()
    assert "stands as it was written" not in best.explain()
    unchanged = eqsat.optimize(eqsat.trace(lambda y: y @ weights, spec((17, 8))))
    assert "stands as it was written" in unchanged.explain()


@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(programs())
def test_any_program_is_explained(program: eqsat.Program):
    best = eqsat.optimize(program, time_limit=5, numerics="fast")
    assert best.report["derived"]
    assert max(map(len, best.explain().splitlines())) <= 100
    for step in best.report["steps"]:
        assert step["before"] != step["after"]
        assert "<cut" not in f"{step['before']} {step['after']} {step['names']}"


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


def test_the_steps_do_not_depend_on_what_else_the_machine_does(monkeypatch: pytest.MonkeyPatch):
    function, specs, _ = PROGRAMS["towers"]
    program = eqsat.trace(function, specs)
    quiet = eqsat.optimize(program, time_limit=30).report
    own, paused = Ties.of_class, False

    def held_up(self: Ties, cls: int) -> object:
        nonlocal paused
        if not paused:
            paused = True
            time.sleep(1.2)
        return own(self, cls)

    monkeypatch.setattr(Ties, "of_class", held_up)
    busy = eqsat.optimize(program, time_limit=30).report
    assert paused
    assert quiet["derived"]
    assert busy["derived"]
    assert busy["steps"] == quiet["steps"]


def test_an_effort_is_over_once_its_work_is_done_or_it_is_late():
    effort = Effort(3)
    effort.spend(2)
    assert not effort.over()
    effort.spend(1)
    assert effort.over()
    assert Effort(late=lambda: True).over()
    assert not Effort().over()


def test_a_step_that_does_not_hold_is_a_failed_check():
    a, b = (make("In", (name, 3, "float32")) for name in "ab")
    left, right = make("Bin", ("sub",), (a, b)), make("Bin", ("sub",), (b, a))
    nodes = [ENode("In", a.attrs, (), 0), ENode("In", b.attrs, (), 1), ENode("Bin", ("sub",), (0, 1), 2)]
    nodes.append(ENode("Bin", ("sub",), (1, 0), 2, "mutant"))
    snapshot = Snapshot(nodes, 3, [False] * 3, [2, 2])
    with pytest.raises(CheckFailed, match="step mutant"):
        derive(snapshot, [rule("mutant", "a - b == b - a")], [(left, right)])


def test_the_matcher_finds_what_a_guard_refused():
    source = Snapshot.from_core(
        lower(eqsat.trace(lambda x, y: (x * y) @ weight(5, 3), spec((4, 5)), spec((4, 5)))).roots
    )
    row = rule("test", "(a * b) @ c == a @ c", when="M < K; const(b)")
    matcher = Matcher(source)
    (refusal,) = [r for at in range(len(source.nodes)) for r in matcher.refusals(row, at)]
    assert refusal.failed == (Fact("const", Var("b")),)
    assert {"B": 1, "M": 4, "K": 5, "N": 3}.items() <= refusal.bindings.items()
