"""Rows of rules: names, policies, planted mistakes, and what equations and their strategies give."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from eqsat.base.numerics import FLOATS, scalar
from eqsat.base.worker import packed
from eqsat.errors import InputError
from eqsat.evidence.soundness import check_rule
from eqsat.language.equation import equation, rule
from eqsat.language.rule import Fact, HostRule, Rule
from eqsat.language.table_values import fraction_of
from eqsat.layout import arithmetic as lt
from eqsat.rules import ALL, EXPLORING, allowed

EVERY = [*ALL, *EXPLORING]
LANGUAGE = [row for row in EVERY if isinstance(row, Rule)]


def test_names_are_unique_and_rows_are_documented():
    assert len({row.name for row in EVERY}) == len(EVERY)
    for row in EVERY:
        assert row.source, f"{row.name} names no source"
        assert row.why, f"{row.name} gives no reason"


def test_what_must_be_proved_asks_nothing_of_constness():
    for row in LANGUAGE:
        assert [g for g in row.when if isinstance(g, Fact) and g not in row.worth] == [], row.name


def test_a_process_that_is_sent_rules_compiles_none():
    """It takes a fifth of a second, and worker processes are waited for."""
    script = (
        f"import pickle, sys; sys.path[:] = {sys.path!a}; sent = pickle.load(sys.stdin.buffer);"
        "print(len(sent), *(m for m in sys.modules if m.startswith('eqsat.rules.')))"
    )
    ran = subprocess.run(
        [sys.executable, "-P", "-c", script], input=packed(tuple(ALL)), capture_output=True, check=True
    )
    count, *modules = ran.stdout.decode().split()
    assert int(count) == len(ALL)
    assert set(modules) == {row.apply.__module__ for row in ALL if isinstance(row, HostRule)}


# Which of three rules a policy lets fire: one that is exact, one that changes rounding, one that may hide a NaN.
POLICIES = {"exact": (True, False, False), "reassociate": (True, True, False), "fast": (True, True, True)}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_keeps_the_rules_that_change_no_more(policy):
    names = {row.name for row in allowed(ALL, policy)}
    found = tuple(name in names for name in ("multiply-by-one", "add-zero", "multiply-by-zero"))
    assert found == POLICIES[policy]


def test_an_unknown_policy_is_refused_by_name():
    with pytest.raises(InputError, match=r"sloppy.*none of exact, reassociate, fast"):
        allowed(ALL, "sloppy")  # type: ignore[arg-type]


# Each row is a plausible mistake: the checker must find a counterexample.
MUTANTS = {
    "wrong transpose": rule(
        "mutant", '(a @ b)["b m n -> b n m"] == b.reshape(B, N, K) @ a.reshape(B, K, M)', numerics="exact"
    ),
    "operands not swapped": rule(
        "mutant",
        '(a @ b)["b m n -> b n m"] == a["b m k -> b k m"].reshape(B, M, K) @ b["b k n -> b n k"].reshape(B, K, N)',
    ),
    "missing guard: any view is taken for a transpose": rule(
        "mutant",
        '(a @ b)[L] == b["b k n -> b n k"] @ a["b m k -> b k m"]',
        when="size(self) == B*M*N",
    ),
    "missing guard: masks through a function that moves zero": rule(
        "mutant", "f(a)[L] == f(a[L])", when="size(self) > 0"
    ),
    "difference factored as a sum": rule("mutant", "a @ b - a @ c == a @ (b + c)", numerics="reassociating"),
    "subtraction commutes": rule("mutant", "a - b == b - a", numerics="reassociating"),
    "sum of products is product of sums": rule("mutant", "sum(a * b) == sum(a) * sum(b)", numerics="reassociating"),
    "maximum goes through a sum": rule("mutant", "max(a + b) == max(a) + max(b)"),
    "a sum moves into the wrong factor": rule(
        "mutant",
        "sum((a.reshape(B, M, K) @ b.reshape(B, K, N)).reshape(B, M, N))"
        " == sum(a.reshape(B, M, K)).reshape(B, M, 1) @ b.reshape(B, 1, N)",
        when="K == N; M == N",
    ),
    "claims to be exact: adding zero": rule("mutant", "a + 0 == a"),
    "claims to be exact: constants gathered": rule("mutant", "(a * b) * c == a * (b * c)"),
    "claims to be exact: reciprocal": rule("mutant", "a / v == a * r", numbers="v r", when="r = reciprocal_of(v)"),
    "claims to be exact: zero times anything is zero": rule("mutant", "a * (b - b) == b - b"),
    "log undoes exp": rule("mutant", "log(exp(a)) == a"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_mistake_is_caught(name: str):
    evidence = check_rule(MUTANTS[name], held=300)
    assert evidence.failure is not None, f"not caught in {evidence.held} instances"


BAD_ROWS = [
    ("a + b", "", "expected `left == right`"),
    ("a + b == a == b", "", "expected `left == right`"),
    ("plus(a, b) == a", "", "no operator or function is called 'plus'"),
    ("sqrt(a, b) == a", "", "sqrt takes 1 argument, got 'sqrt(a, b)'"),
    ("a == a", "", "left side must be an operator"),
    ("a + b == c", "", "'c' on the right is not bound"),
    ("a @ b == b @ a", "", "the shapes do not fit: M against N"),
    ("sum(a) == a * v", "", "'v' on the right is not bound"),
    ("a + True == a", "", "expected an operator or a variable, got 'True'"),
    ("a + 0.5 == a", "", "expected an operator or a variable, got '0.5'"),
    ("a[0:2] == a", "", "a view is a[L]"),
    ("sum(a[L?]) == sum(a)", "", "gives two rules"),
    ('a["m k > k m"] == a', "", "a view in axes is"),
    ('a["m k -> k K"] == a', "", "cannot read the axes"),
    ('a["m m -> m"] == a', "", "an axis is named twice"),
    ("a + b == a", "size(c) == 1", "'c' in the guard is not bound"),
    ("a + b == a", "sometimes(a)", "no table is called 'sometimes'"),
    ("a[L] == a", "M = compose(L)", "compose takes 2 values"),
    ("a[L] == a", "W = along(L)", "along takes its axes as one text"),
    ("a + b == a", "a +", "cannot read the guard"),
    ("a + b == a", "v < w < u", "a guard is a comparison"),
    ("a + * == a", "", "cannot read"),
]


@pytest.mark.parametrize(("text", "when", "message"), BAD_ROWS)
def test_a_row_that_does_not_parse_says_why(text: str, when: str, message: str):
    with pytest.raises(InputError, match="my-rule") as error:
        rule("my-rule", text, when=when)
    assert message in str(error.value)


# An equation, what it is oriented with, and the rules that it gives: name, text, guard.
GIVES = {
    "both directions": (
        equation("e", "(a @ b) @ c == a @ (b @ c)"),
        {"name": "fewer-right", "worth": "M*P < K*N", "mirror": True},
        [
            ("fewer-right", "(a @ b) @ c => a @ (b @ c)", "M*P < K*N"),
            ("fewer-left", "a @ (b @ c) => (a @ b) @ c", "P*M < N*K"),
        ],
    ),
    "with a view and without, and their mirror images": (
        equation("e", "(a + b)[L?] @ c == a[L?] @ c + b[L?] @ c", when="keeps_sums(L)"),
        {"name": "through", "viewed": "through-view", "mirror": "under", "worth": "const(b)"},
        [
            ("through", "(a + b) @ c => (a @ c) + (b @ c)", "const(b)"),
            ("under", "a @ (b + c) => (a @ b) + (a @ c)", "const(c)"),
            ("through-view", "(a + b)[L] @ c => (a[L] @ c) + (b[L] @ c)", "const(b); keeps_sums(L)"),
            ("under-behind-view", "a @ (b + c)[L] => (a @ b[L]) + (a @ c[L])", "const(c); keeps_sums(L)"),
        ],
    ),
    "axes of the mirror image": (
        equation("e", "(a * s[L]) @ b == a @ (b * s[W])", when='W = along(L, "b m k -> b k n")'),
        {"name": "scale-right", "mirror": True},
        [
            ("scale-right", "(a * s[L]) @ b => a @ (b * s[W])", 'W = along(L, "b m k -> b k n")'),
            ("scale-left", "a @ (b * s[L]) => (a * s[W]) @ b", 'W = along(L, "b k n -> b m k")'),
        ],
    ),
    "a view that is missing where a table computes with it": (
        equation("e", "sum(a[L]) == sum(a[L1].reshape(..., C))", when="L1 = in_order(L, C)"),
        {"name": "ordered"},
        [("ordered", "sum(a[L]) => sum(a[L1])", "L1 = in_order(L, C)")],
    ),
    "numbers that are computed": (
        equation("e", "a * v + a * w == a * (v + w)", numbers="v w"),
        {"name": "together"},
        [("together", "(a * v) + (a * w) => a * (v + w)", "(v + w) = value_of_two('add', v, w, v.dtype)")],
    ),
}


@pytest.mark.parametrize("name", GIVES)
def test_an_equation_gives_rules(name: str):
    stated, how, expected = GIVES[name]
    rows = stated.orient("right", **how)
    assert [row.name for row in rows] == [row[0] for row in expected]
    for row, (_, text, guard) in zip(rows, expected, strict=True):
        assert text in ("", row.text)
        assert guard in ("", row.guard_text)


def test_what_is_only_seen_through_views_is_compared_in_size():
    (back,) = equation("e", "f(a, b)[L] == f(a[L], b[L])", when="plain(L)").orient("left", "out")
    (into,) = equation("e", "f(a, b)[L] == f(a[L], b[L])", when="plain(L)").orient("right", "into")
    assert back.guard_text == "size(a) == size(b); plain(L)"
    assert into.guard_text == "plain(L)"


def test_an_equation_that_cannot_be_matched_from_a_side_says_so():
    nested = equation("e", "max(max(a)) == max(a)")
    assert nested.orient("right", "r")[0].text == "max(max(a)) => max(a)"
    with pytest.raises(InputError, match=r"rule 'l': C\*D cannot be matched; turn the equation round"):
        nested.orient("left", "l")
    with pytest.raises(InputError, match="knows no mirror image"):
        equation("e", "(a @ b)[L] == a[La].reshape(B, M, K) @ b[Lb].reshape(B, K, N)", when=NARROW).orient(
            "right", "narrow-right", mirror=True
        )


NARROW = "(La, Lb, B1, M1, N1, R) = narrow_product(L, B, M, K, N)"


def test_equations_have_names_of_their_own():
    for row in LANGUAGE:
        alike = {(r.stated, r.numerics) for r in LANGUAGE if r.equation == row.equation}
        assert len(alike) == 1, f"two equations are called {row.equation}"


def test_an_unknown_numerics_class_is_refused():
    with pytest.raises(InputError, match="numerics class 'close' is none of exact"):
        rule("my-rule", "a + b == b + a", numerics="close")  # type: ignore[arg-type]


def test_sum_of_product_table_splits_a_permuted_sum():
    from eqsat.language.tables import sum_of_product

    rng = np.random.default_rng(0)
    b, m, k, n = 2, 3, 4, 5
    x, y = rng.integers(-4, 5, (b, m, k)), rng.integers(-4, 5, (b, k, n))
    product = (x @ y).reshape(-1)
    layout = lt.of_transpose((b, m, n), (2, 0, 1))
    row = sum_of_product(layout, b * m, b, m, k, n)
    assert row is not None
    left, m_sum, right, n_sum, b1, m1, k1, n1, out = row
    lhs = product[layout.index()].reshape(n, b * m).sum(1)
    xs = x.reshape(-1)[left.index()].reshape(-1, m_sum).sum(1).reshape(b1, m1, k1)
    ys = y.reshape(-1)[right.index()].reshape(-1, n_sum).sum(1).reshape(b1, k1, n1)
    np.testing.assert_array_equal((xs @ ys).reshape(-1)[out.index()], lhs)
    assert (b1, m1, k1, n1) == (1, 1, b * k, n)


@pytest.mark.parametrize("dtype", FLOATS)
def test_numbers_are_the_fractions_that_they_were_rounded_from(dtype: str):
    for fraction in (Fraction(1, 3), Fraction(-2, 7), Fraction(1, 10), Fraction(5), Fraction(3, 64)):
        assert fraction_of(scalar(float(fraction), dtype), dtype) == fraction
    for drawn in np.random.default_rng(3).standard_normal(200) * 10.0 ** np.arange(-4, 4).repeat(25):
        value = scalar(drawn, dtype)
        found = fraction_of(value, dtype)
        assert found is not None
        assert scalar(float(found), dtype) == value
    assert fraction_of(float("nan"), dtype) is fraction_of(float("inf"), dtype) is None
