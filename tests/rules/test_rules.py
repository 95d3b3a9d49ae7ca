"""Rules: every row is judged by generated instances; the checker itself is tested with planted mistakes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from eqsat.base.numerics import FLOATS, scalar
from eqsat.errors import InputError
from eqsat.evidence.soundness import check_rule
from eqsat.language.rule import ALLOWED, HostRule, Rule, rule
from eqsat.language.table_values import fraction_of
from eqsat.layout import arithmetic as lt
from eqsat.rules import ALL, FAMILIES, allowed

LANGUAGE = [row for row in ALL if isinstance(row, Rule)]


@pytest.mark.parametrize("row", LANGUAGE, ids=lambda row: row.name)
def test_rule_holds_on_generated_instances(row: Rule):
    evidence = check_rule(row, held=30)
    assert evidence.failure is None, str(evidence.failure)
    assert evidence.held >= 15, f"the guard held on only {evidence.held} of {evidence.drawn} instances"


def test_names_are_unique_and_rows_are_documented():
    assert len({row.name for row in ALL}) == len(ALL)
    for row in ALL:
        assert row.source, f"{row.name} names no source"
        assert row.why, f"{row.name} gives no reason"


def test_families_hold_every_rule():
    assert [row for rows in FAMILIES.values() for row in rows] == ALL


@pytest.mark.parametrize("policy", ALLOWED)
def test_a_policy_keeps_only_its_classes(policy):
    assert {row.numerics for row in allowed(ALL, policy)} <= set(ALLOWED[policy])


def test_an_unknown_policy_is_refused_by_name():
    with pytest.raises(InputError, match=r"sloppy.*none of exact, reassociate, fast"):
        allowed(ALL, "sloppy")  # type: ignore[arg-type]


# Each row is a plausible mistake: the checker must find a counterexample.
MUTANTS = {
    "wrong transpose": rule(
        "mutant", "view(mm(a, b, B, M, K, N), L) => mm(b, a, B, N, K, M)", when="swaps(L, B, M, N)"
    ),
    "operands not swapped": rule(
        "mutant",
        "view(mm(a, b, B, M, K, N), L) => mm(view(a, La), view(b, Lb), B, M, K, N)",
        when="swaps(L, B, M, N); La = swap(B, M, K); Lb = swap(B, K, N)",
    ),
    "missing guard: any view is taken for a transpose": rule(
        "mutant",
        "view(mm(a, b, B, M, K, N), L) => mm(view(b, Lb), view(a, La), B, N, K, M)",
        when="La = swap(B, M, K); Lb = swap(B, K, N); size(self) == B*M*N",
    ),
    "missing guard: masks through a function that moves zero": rule(
        "mutant", "view(un(f, a), L) => un(f, view(a, L))", when="size(self) > 0"
    ),
    "difference factored as a sum": rule(
        "mutant",
        "sub(mm(a, b, B, M, K, N), mm(a, c, B, M, K, N)) => mm(a, add(b, c), B, M, K, N)",
        numerics="reassociating",
    ),
    "subtraction commutes": rule("mutant", "sub(a, b) => sub(b, a)", numerics="reassociating"),
    "sum of products is product of sums": rule(
        "mutant", "sum(mul(a, b), C) => mul(sum(a, C), sum(b, C))", numerics="reassociating"
    ),
    "maximum goes through a sum": rule("mutant", "max_over(add(a, b), C) => add(max_over(a, C), max_over(b, C))"),
    "a sum moves into the wrong factor": rule(
        "mutant", "sum(mm(a, b, B, M, K, N), N) => mm(sum(a, K), b, B, M, 1, N)", when="K == N; M == N"
    ),
    "claims to be exact: adding zero": rule("mutant", "add(a, full(v, n, t)) => a", when="is_value(v, 0)"),
    "claims to be exact: constants gathered": rule("mutant", "mul(mul(a, b), c) => mul(a, mul(b, c))"),
    "claims to be exact: reciprocal": rule(
        "mutant", "div(a, full(v, n, t)) => mul(a, full(r, n, t))", when="r = reciprocal_of(v)"
    ),
    "claims to be exact: zero times anything is zero": rule("mutant", "mul(a, sub(b, b)) => sub(b, b)"),
    "log undoes exp": rule("mutant", "log(exp(a)) => a"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_mistake_is_caught(name: str):
    evidence = check_rule(MUTANTS[name], held=300)
    assert evidence.failure is not None, f"not caught in {evidence.held} instances"


BAD_ROWS = [
    ("add(a, b)", "", "expected `left => right`"),
    ("plus(a, b) => a", "", "no operator or function is called 'plus'"),
    ("add(a) => a", "", "add takes 2 arguments"),
    ("mm(a, b, M, K, N) => a", "", "mm takes 6 arguments"),
    ("a => a", "", "left side must be an operator"),
    ("add(a, b) => c", "", "'c' on the right is not bound"),
    ("add(a, b) => a", "size(c) == 1", "'c' in the guard is not bound"),
    ("add(a, b) => a", "sometimes(a)", "no table is called 'sometimes'"),
    ("view(a, L) => a", "M = compose(L)", "compose takes 2 values"),
    ("add(a, b) => a", "a +", "cannot read the guard"),
    ("add(a, => a", "", "cannot read"),
]


@pytest.mark.parametrize(("text", "when", "message"), BAD_ROWS)
def test_a_row_that_does_not_parse_says_why(text: str, when: str, message: str):
    with pytest.raises(InputError, match="my-rule") as error:
        rule("my-rule", text, when=when)
    assert message in str(error.value)


def test_an_unknown_numerics_class_is_refused():
    with pytest.raises(InputError, match="numerics class 'close' is none of exact"):
        rule("my-rule", "add(a, b) => add(b, a)", numerics="close")  # type: ignore[arg-type]


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


def test_host_rules_are_rows_too():
    assert {row.name for row in ALL if isinstance(row, HostRule)} >= {"concat-of-operators", "group-siblings"}


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
