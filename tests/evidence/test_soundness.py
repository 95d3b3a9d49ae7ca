"""Evidence for rules: every row is sound, deserves its class and needs its guard; planted mistakes are caught."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import replace
from math import prod

import numpy as np
import pytest
from typer.testing import CliRunner

from eqsat.base.numerics import DTYPES
from eqsat.cli.app import app
from eqsat.egraph.host_terms import Terms
from eqsat.errors import InputError
from eqsat.evidence.elementwise import check_values, values
from eqsat.evidence.guard_proofs import prove_guard
from eqsat.evidence.instances import Instance
from eqsat.evidence.judge import judge
from eqsat.evidence.promise_check import kept
from eqsat.evidence.reference import PRIME, Undefined, apply, exact, residue, same_bits
from eqsat.language.equation import rule
from eqsat.language.rule import AnyRule, Ask, HostRule, Rule, Var
from eqsat.language.tables import IN_AXES, TABLES, find
from eqsat.layout import arithmetic as lt
from eqsat.rules import ALL, EXPLORING

EVERY: list[AnyRule] = [*ALL, *EXPLORING]


@pytest.mark.parametrize("row", EVERY, ids=lambda row: row.name)
def test_a_rule_is_sound_deserves_its_class_and_needs_its_guard(row: AnyRule):
    judged = judge(row)
    assert judged.verdict == "sound", judged.remark
    least = 15 if isinstance(row, Rule) else 2
    assert judged.held >= least, f"it held on only {judged.held} of {judged.drawn} instances: what do they need?"


@pytest.mark.parametrize("name", ["maximum-of-shifted", "minimum-of-shifted"])
def test_a_rule_that_few_draws_refuted_is_sound_in_all(name: str):
    """Of -inf + inf beside an infinite sum, a maximum sees NaN on one side alone."""
    row = next(row for row in EVERY if row.name == name)
    assert [judge(row, held=100, seed=seed).verdict for seed in range(4)] == ["sound"] * 4


def test_exact_rules_are_compared_in_every_element_type():
    seen = judge(next(row for row in EVERY if row.name == "view-into-binary"))
    assert seen.dtypes == sorted(DTYPES)
    assert seen.methods == ["bits"]


def test_polynomial_rules_are_compared_in_a_field():
    seen = judge(next(row for row in EVERY if row.name == "associate-product"))
    assert seen.methods == ["field", "float", "integers"]


# A mistake, and what the checker says of it.
FAULTS = {
    "zero hides a NaN": (
        rule("mutant", "a * (b - b) == b - b", numerics="reassociating"),
        "unsound",
        "one is finite where the other is not",
    ),
    "a root of a product of negatives": (
        rule("mutant", "sqrt(a * b) == sqrt(a) * sqrt(b)", numerics="reassociating"),
        "unsound",
        "beyond rounding",
    ),
    "an overflow called rounding": (
        rule("mutant", "log(exp(a)) == a", numerics="reassociating"),
        "unsound",
        "one is finite where the other is not",
    ),
    "rounding called exact": (rule("mutant", "(a + b) + c == a + (b + c)"), "unsound", "not the same bits"),
    "the sign of zero called exact": (rule("mutant", "a - b == -(b - a)"), "unsound", "not the same bits"),
    "exact called rounding": (
        rule("mutant", "-(-a) == a", numerics="reassociating"),
        "over-classed",
        "could be exact",
    ),
    "a function of the same value called rounding": (
        rule("mutant", "exp(-(-a)) == exp(a)", numerics="reassociating"),
        "over-classed",
        "could be exact",
    ),
    "rounding called a change of range": (
        rule("mutant", "(a + b) + c == (a + c) + b", numerics="range-changing"),
        "over-classed",
        "could be reassociating",
    ),
    "whole numbers have no halves": (
        rule("mutant", "a * b / b == a", numerics="range-changing"),
        "unsound",
        "as integers",
    ),
    "a guard that only saves work": (
        rule("mutant", "f(a)[L] == f(a[L])", when="keeps_fill(L, f); size(a) < 9"),
        "needless guard",
        "without size(a) < 9:",
    ),
    "a guard that says nothing": (
        rule("mutant", "-(-a) == a", when="size(a) == size(self)"),
        "needless guard",
        "without size(a) == size(self)",
    ),
    "a needed guard called profit": (
        rule("mutant", "f(a)[L] == f(a[L])", worth="keeps_fill(L, f)"),
        "unsound",
        "left",
    ),
    "one view applied twice": (rule("mutant", "a[L][L] == a"), "unsound", "left"),
    "sizes that do not fit": (
        rule("mutant", "a @ b == b.reshape(B, N, K) @ a.reshape(B, K, M)", when="N <= M"),
        "unsound",
        "left",
    ),
    "a bound that small numbers do not meet": (
        rule("mutant", "where(a <= 400, b, b * 2) == b", numerics="reassociating"),
        "unsound",
        "where both are finite",
    ),
    "a bound behind a change of range": (
        rule("mutant", "minimum(relu(a), 6) == relu(a)", numerics="range-changing"),
        "unsound",
        "left",
    ),
    "a remainder of small integers": (
        rule("mutant", "abs(a) => abs(a) % 50", when="integral(dtype(a))", numerics="reassociating"),
        "unsound",
        "as integers",
    ),
    "numbers are numbers": (rule("mutant", "where(v == v, a, b) == a", numbers="v"), "unsound", "nan"),
    "fractions of simple numbers": (rule("mutant", "round(v * 2) == v * 2", numbers="v"), "unsound", "left"),
    "a class too weak where it never pays": (
        rule("mutant", "-(-a) == a", worth="size(a) > 5000", numerics="reassociating"),
        "over-classed",
        "could be exact",
    ),
    "a function that the left side takes": (
        rule("mutant", "f(a, b) => f(a, b + a - a)", numerics="range-changing"),
        "unsound",
        "its sizes or types do not fit",
    ),
    "places that are not there": (rule("mutant", "gather(a, i) == gather(a, abs(i))"), "unsound", "left"),
    "rows of another number": (
        rule("mutant", "sum(sum(a)) == sum(a.reshape(..., D))", numerics="reassociating"),
        "unsound",
        "left",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_and_named(name: str):
    row, verdict, words = FAULTS[name]
    judged = judge(row)
    assert judged.verdict == verdict, judged
    assert words in judged.remark


RIGHT = {
    "a large number": rule("mine", "a * 10 == a + a * 9", numerics="reassociating"),
    "one number twice": rule("mine", "minimum(minimum(a, 3), 3) == minimum(a, 3)"),
    "many numbers": rule("mine", "(a + 1) * 2 * 4 + 3 == a * 8 + 11", numerics="reassociating"),
    "a negative number": rule("mine", "a * -2 == -(a * 2)"),
    "sizes that pay": rule("mine", "(a @ b) @ c == a @ (b @ c)", numerics="reassociating", worth="M >= 128"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_rule_is_sound(name: str):
    judged = judge(RIGHT[name], held=100)
    assert judged.verdict == "sound", judged.remark
    assert judged.held >= 100 or judged.unpaid > 0


def test_numbers_too_large_for_a_float_are_refused():
    for text, guard in ((f"a + a == a * 1{'0' * 400}", ""), ("a + b == b + a", f"size(a) < {2**53 + 1}")):
        with pytest.raises(InputError, match=r"expected a whole number up to 2\*\*53"):
            rule("mine", text, when=guard)


def _reversed_members(graph: Terms, emit) -> None:
    for node in graph.nodes("Cat"):
        emit(node.cls, graph.cat(node.args[::-1]))


def _members_in_any_order(graph: Terms, emit) -> None:
    for node in graph.nodes("Bin"):
        if node.attrs[0] == "add":
            emit(node.cls, graph.make("Bin", ("add",), node.args[::-1]))


@pytest.mark.parametrize(
    ("apply_rule", "numerics", "verdict"),
    [(_reversed_members, "exact", "unsound"), (_members_in_any_order, "reassociating", "over-classed")],
)
def test_faults_of_host_rules_are_found(apply_rule, numerics, verdict):
    assert judge(HostRule("mutant", "cat(a, b) => cat(b, a)", apply_rule, numerics, "test", "test")).verdict == verdict


def test_counterexamples_are_small_and_on_one_line():
    judged = judge(rule("mutant", "a - b == b - a"))
    assert "'a': 1, 'b': 1" in judged.counterexample
    assert "\n" not in judged.counterexample


# The reference


def test_residues_stand_for_simple_fractions():
    third = residue(1 / 3)
    assert third * 3 % PRIME == 1
    assert residue(-0.5) * 2 % PRIME == PRIME - 1
    with pytest.raises(Undefined):
        residue(float("inf"))


def test_both_references_agree_on_small_integers():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 9, 6), rng.integers(0, 9, 12)
    for op, attrs, args in (
        ("MM", (1, 2, 3, 4), [a, b]),
        ("Red", ("prod", 3), [a]),
        ("Bin", ("mul",), [a, a[::-1]]),
        ("V", (lt.of_pad((2, 3), (0, 1), (1, 0), 2),), [a]),
    ):
        np.testing.assert_array_equal(apply(op, attrs, args), exact(op, attrs, args))


def test_the_field_knows_no_maximum():
    with pytest.raises(Undefined, match="max is no polynomial"):
        exact("Bin", ("max",), [np.ones(1), np.ones(1)])


def test_bits_tell_zeros_apart_in_every_float():
    for dtype in ("float64", "float32", "float16", "bfloat16"):
        zero = apply("Full", (0.0, 2, dtype), [])
        assert not same_bits(zero, -zero)
        nan = apply("Full", (float("nan"), 2, dtype), [])
        assert same_bits(nan, -nan)


def test_computed_numbers_keep_the_first_of_two_zeros():
    for dtype in ("float64", "float32", "float16", "bfloat16"):
        for one, other in ((0.0, -0.0), (-0.0, 0.0)):
            for fn in ("min", "max"):
                assert str(find("value_of_two").fn(fn, one, other, dtype)) == f"({one},)"
            assert str(find("value_of").fn("relu", one, dtype)) == f"({one},)"


# Proofs for all shapes

PROVED = (
    "view-of-view",
    "view-of-reduction",
    "matmul-associate-left",
    "transpose-of-matmul",
    "view-of-matmul-narrows",
    "matmul-of-repeated-rows",
    "matmul-of-shared-right",
    "row-scale-through-matmul",
    "sum-of-row-scaled",
    "maximum-twice",
    "factor-difference-of-matmuls-with-one-right",
    "view-into-unary",
    "matmul-of-shared-left",
    "matmul-of-left-repeated-inside",
    "sum-of-permuted-matmul",
    "sum-of-broadcast-products",
    "sum-of-repeated",
    "maximum-in-order",
    "maximum-of-maxima",
    "matmul-of-diagonal",
    "product-of-zeros",
    "deviation-from-greatest-of-row-shifted",
    "constant-addend-through-matmul-behind-view",
    "choice-by-negation-behind-view",
)


@pytest.mark.parametrize("name", PROVED)
def test_a_rule_is_proved_for_all_shapes(name: str):
    pytest.importorskip("z3")
    proof = prove_guard(next(row for row in [*EVERY, *TWICE] if row.name == name))
    assert proof.status == "proved", proof.reason
    assert proof.formulas > 0
    assert all(held >= 20 for held in proof.promises.values())


TWICE = [rule("maximum-twice", "max(max(a)) == max(a)")]

REFUTED = {
    "wrong bracket": rule(
        "mutant",
        "(a @ b) @ c == a @ (c.reshape(B, K, N) @ b.reshape(B, N, P))",
        numerics="reassociating",
    ),
    "operands not swapped": rule(
        "mutant",
        '(a @ b)["b m n -> b n m"] == a["b m k -> b k m"].reshape(B, N, K) @ b["b k n -> b n k"].reshape(B, K, M)',
    ),
    "rows for columns": rule("mutant", "sum(a * s[L]) == sum(a) * s[L]", when="size(s) == size(self)"),
    "mask through a function": rule("mutant", "f(a)[L] == f(a[L])"),
    "a batch forgotten": rule(
        "mutant",
        "a @ b[L] == a.reshape(1, B*M, K) @ b[L].reshape(1, K, N)",
        when='L1 = along(L, "b k n -> k n")',
    ),
    "two sums in one": rule("mutant", "sum(a * b) == sum(a) * sum(b)", numerics="reassociating"),
    "fills that add up": rule(
        "mutant", "(a + b)[L] @ c == a[L] @ c + b[L] @ c", when="size(a) == size(b)", numerics="reassociating"
    ),
    "a product of what repeats": rule(
        "mutant", "prod(a[L]) == prod(a[L1].reshape(..., K))", when="(L1, K, R) = repeated(L, size(self), C)"
    ),
    "weights that are no shares": rule(
        "mutant",
        "exp(s) @ (a + b[L]) == exp(s) @ a + b[W]",
        when='W = along(L, "b k n -> b m n")',
        numerics="reassociating",
    ),
    "a product with ones": rule("mutant", "a @ 1 == 1", numerics="reassociating"),
    "a shift that is not the row's": rule("mutant", "(a + b) - max(a + b)[R] == a - max(a)[R]", when="plain(R)"),
}


@pytest.mark.parametrize("name", REFUTED)
def test_a_wrong_equation_is_refuted_with_an_instance(name: str):
    pytest.importorskip("z3")
    proof = prove_guard(REFUTED[name], timeout=1.0)
    assert proof.status == "refuted", proof
    assert "left" in proof.reason


def test_what_knows_no_integers_is_tried_on_every_value():
    proof = prove_guard(rule("mine", "-(-a) == a"))
    assert (proof.status, proof.formulas) == ("no integers", 0)
    assert check_values(rule("mine", "-(-a) == a"))[0] >= 1 << 17
    wrong = prove_guard(rule("mutant", "sqrt(a) * sqrt(a) == a", numerics="reassociating"))
    assert wrong.status == "refuted"
    assert "in float64 at a=-" in wrong.reason


def test_sides_of_a_rule_have_values_at_the_same_points():
    """Or a proof by way of one that has none would make a root of a square its base."""
    wrong = prove_guard(rule("mutant", "sqrt(a * b) == sqrt(a) * sqrt(b)", numerics="range-changing"))
    assert wrong.status == "refuted"
    assert "on one side alone" in wrong.reason
    assert prove_guard(rule("mine", "sqrt(a) * sqrt(a) == a", numerics="range-changing")).status == "no integers"


@pytest.mark.parametrize(("dtype", "quiet"), [("float16", 0x0200), ("bfloat16", 0x0040)])
def test_no_value_that_rules_are_tried_on_is_a_signalling_nan(dtype: str, quiet: int):
    every = values(dtype, 1)
    assert len(every) == 1 << 16
    assert (every.view(np.uint16)[np.isnan(every)] & quiet).all()


def test_a_table_that_breaks_its_promise_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(TABLES, "widen", replace(TABLES["widen"], fn=loose_of(TABLES["widen"].fn)))
    proof = prove_guard(next(row for row in EVERY if row.name == "view-of-reduction"))
    assert proof.status == "refuted"
    assert "widen breaks its promise" in proof.reason


def loose_of(fn):
    """A table that forgets the order of what it reads."""

    def loose(*args):
        found = fn(*args)
        return None if found is None else (lt.strided(found[0].offset, [(found[0].size, 1)]),)

    return loose


@pytest.mark.parametrize("table", [*TABLES, *IN_AXES])
def test_every_table_is_asked_by_some_rule(table: str):
    asked = {guard.table for row in EVERY if isinstance(row, Rule) for guard in row.when if isinstance(guard, Ask)}
    assert any(name.split()[0] == table for name in asked), "no rule asks for it"


def test_a_kept_promise_and_a_broken_one():
    first, then = lt.of_transpose((2, 3), (1, 0)), lt.of_slice((3, 2), (1, 0), (3, 2), (1, 1))
    ask = Ask("compose", (Var("a"), Var("b")), (Var("c"),))
    whole = lt.compose(first, then)
    assert kept(ask, [first, then], [whole])
    assert not kept(ask, [first, then], [then])
    swap = Ask("along b m k -> k", (Var("L"), *map(Var, "BMK")), (Var("W"),))
    repeated = lt.of_broadcast((1, 1, 4), (2, 3, 4))
    assert kept(swap, [repeated, 2, 3, 4], [lt.identity(4)])
    assert not kept(swap, [repeated, 2, 3, 4], [lt.strided(0, [(4, 0)])])
    number = Ask("is_value", (Var("v"), Var("n")), ())
    assert kept(number, [1.0, 1], [])
    assert not kept(number, [1.0, 0], [])
    assert kept(Ask("finite", (Var("v"),), ()), [1.0], []) is None


def test_instances_have_empty_dims_and_five_ranks():
    draw = random.Random(0)
    row = rule("mine", "f(a)[L] == f(a[L])", when="keeps_fill(L, f)")
    drawn = [Instance(row, draw, "float32") for _ in range(300)]
    assert any(one.empty for one in drawn)
    assert {len(one.bindings["L"].dims) for one in drawn} >= {1, 2, 3, 4}


def test_views_of_what_is_computed_repeat_parts_of_it():
    draw = random.Random(0)
    row = rule("mine", "f(a)[L] == f(a[L])", when="keeps_fill(L, f)")
    drawn = [Instance(row, draw, "float32") for _ in range(300)]
    views = [(one.bindings["L"], one.bindings["a"]) for one in drawn if not one.empty]
    once = [(prod(n for n, stride in view.dims if stride), view, size) for view, size in views if not view.masked]
    assert sum(1 < count < min(size, view.size) for count, view, size in once) >= 5


# On the command line


def check(*args: str):
    return CliRunner().invoke(app, ["rules", "check", *args])


def test_the_check_prints_what_was_compared_and_proved():
    pytest.importorskip("z3")
    result = check("view-of-reduction", "negate-twice", "concat-of-one", "--prove-guards", "--json", "-")
    assert result.exit_code == 0
    rows = {row["rule"]: row for row in json.loads(result.stdout)["rules"]}
    assert {name: row["z3"] for name, row in rows.items()} == {
        "view-of-reduction": "proved",
        "negate-twice": "no integers",
        "concat-of-one": "in code",
    }
    view = rows["view-of-reduction"]
    assert (view["guard"], view["family"], view["methods"]) == ("needed", "views", ["bits"])
    assert view["proof"]["promises"] == {"widen": 25}


def test_a_faulty_rule_ends_the_check_with_one(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("from eqsat.rule import rule\nRULES = [rule('mine', '-(-a) == a', numerics='reassociating')]\n")
    result = check("--rules", str(path))
    assert result.exit_code == 1
    assert "mine: could be exact" in result.stdout


def test_proofs_say_what_to_install(monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in sys.modules if name.startswith("eqsat.evidence.index_")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "z3", None)
    result = check("view-of-view", "--prove-guards")
    assert result.exit_code == 3
    assert "--prove-guards needs z3: pip install 'eqsat[prove]'" in result.stderr
