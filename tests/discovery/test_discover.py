"""Discovery: which equations there are, which the rules derive, and rows for those that they do not."""

from __future__ import annotations

import numpy as np
import pytest

import eqsat.discovery.equations
from eqsat.discovery.derived import derived, rules
from eqsat.discovery.discover import discover
from eqsat.discovery.equations import Equation, equations, least, most_general, settings
from eqsat.discovery.expressions import OPERATORS, Expr, Typing, operators, typing
from eqsat.discovery.rows import Unwritten, row, written
from eqsat.errors import InputError
from eqsat.runs.store import Store
from support.cli import document, printed, refusal

THERE = (
    ("matmul,add,transpose", 2, "matmul(matmul(a, b), c) == matmul(a, matmul(b, c))"),
    ("matmul,add,transpose", 2, "transpose(transpose(a)) == a"),
    ("matmul,add,transpose", 2, "matmul(add(a, a), b) == matmul(a, add(b, b))"),
    ("matmul,add,transpose", 3, "transpose(matmul(transpose(a), b)) == matmul(transpose(b), a)"),
    ("matmul,add", 3, "add(matmul(a, b), matmul(a, c)) == matmul(a, add(b, c))"),
    ("matmul,concat", 3, "concat(matmul(a, b), matmul(c, b)) == matmul(concat(a, c), b)"),
    ("matmul,mul_column", 2, "mul_column(matmul(a, b), c) == matmul(mul_column(a, c), b)"),
    ("relu,maximum,neg", 2, "relu(relu(a)) == relu(a)"),
    ("exp,log,sqrt,mul", 2, "log(exp(a)) == a"),
    ("exp,log,sqrt,mul", 2, "exp(log(a)) == a"),
    ("sqrt,mul", 3, "mul(sqrt(a), sqrt(a)) == a"),
)


@pytest.mark.parametrize(("names", "size", "text"), THERE)
def test_equations_are_found(names: str, size: int, text: str) -> None:
    """Among those over variables of its shapes, which are one of the settings that are looked at."""
    equation, chosen = Equation.read(text), operators(names)
    shapes = [shape for _, shape in typing(equation.left, equation.right).shapes]
    assert least(shapes) in settings(chosen, size)
    assert text in {str(e) for positive in (False, True) for e in equations(shapes, chosen, size, positive)}


def found(names: str, size: int) -> set[str]:
    chosen = operators(names)
    each = (equations(s, chosen, size, positive) for s in settings(chosen, size) for positive in (False, True))
    return {str(equation) for some in each for equation in some}


def test_what_agrees_only_as_shapes_or_signs_happen_to_be_is_no_equation() -> None:
    wrong = {
        *("relu(a) == a", "abs(a) == a", "maximum(a, neg(a)) == a", "sqrt(mul(a, a)) == a"),
        *("matmul(a, b) == matmul(b, a)", "matmul(a, b) == mul(a, b)"),
        *("relu(matmul(relu(a), b)) == matmul(relu(a), relu(b))", "relu(matmul(a, a)) == matmul(a, relu(a))"),
    }
    names = (("relu,abs,maximum,neg,sqrt,mul", 2), ("matmul,mul,transpose", 2), ("matmul,relu", 3))
    assert not wrong & set().union(*(found(*each) for each in names))


def test_expressions_that_a_smaller_one_equals_are_not_parts_of_others() -> None:
    texts = found("relu,transpose", 3)
    assert "transpose(transpose(a)) == a" in texts
    assert not [text for text in texts if "transpose(transpose(a))" in text and text != "transpose(transpose(a)) == a"]


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_computes_stacks_as_it_computes_each_array(name: str) -> None:
    """Stacks along axes of their own: each operand with each of the others."""
    row, rng = OPERATORS[name], np.random.default_rng(0)
    count, sizes = range(2, 2 + row.arity), {"1": 1, "m": 2, "k": 3, "n": 4, "p": 5}
    stacks = [
        rng.uniform(0.5, 2.0, (n, *(sizes[letter] for letter in dims)))
        for n, dims in zip(count, row.operands, strict=True)
    ]
    axes = [[len(x) if i == k else 1 for i in range(row.arity)] for k, x in enumerate(stacks)]
    whole = row.array(*(x.reshape(*along, *x.shape[1:]) for along, x in zip(axes, stacks, strict=True)))
    for places in np.ndindex(*count):
        each = row.array(*(x[place] for x, place in zip(stacks, places, strict=True)))
        np.testing.assert_allclose(whole[places], each, rtol=1e-12)


def test_the_rules_derive_an_equation_or_not() -> None:
    texts = "matmul(matmul(a, b), c) == matmul(a, matmul(b, c))", "add(a, b) == add(b, a)"
    both = [Equation.read(text) for text in texts]
    assert derived(both, rules()) == [True, True]
    assert derived(both, rules(["matmul-associative"])) == [False, True]


LAWS = (
    "div(mul(a, b), div(a, c)) == mul(b, c)",
    "div(sqrt(mul(a, b)), a) == div(b, sqrt(mul(a, b)))",
    "mul(a, log(div(b, b))) == log(div(b, b))",
    "minimum(a, maximum(b, minimum(a, c))) == minimum(a, maximum(b, c))",
    "relu(minimum(a, abs(b))) == minimum(abs(b), relu(a))",
    "neg(relu(neg(a))) == minimum(a, relu(neg(a)))",
    "relu(add(a, relu(a))) == relu(add(a, a))",
    "sum(add(a, neg(a))) == max(add(a, neg(a)))",
    "add(concat(a, b), concat(c, d)) == add(concat(a, d), concat(c, b))",
    "concat_columns(concat(a, b), concat(c, d)) == concat(concat_columns(a, c), concat_columns(b, d))",
    "matmul(concat_columns(a, a), concat(b, c)) == matmul(a, add(b, c))",
    "matmul(concat_columns(a, b), concat(c, c)) == matmul(add(a, b), c)",
    "matmul(concat(a, concat_columns(b, c)), concat(d, d)) == matmul(concat(a, concat_columns(c, b)), concat(d, d))",
    "matmul(concat_columns(a, a), concat_columns(b, concat(c, d))) == "
    "matmul(concat_columns(a, a), concat_columns(b, concat(d, c)))",
    "sum(concat_columns(a, b)) == sum(concat_columns(b, a))",
    "sum(concat(a, concat_columns(b, c))) == sum(concat(a, concat_columns(c, b)))",
    "sum(transpose(concat(sum(a), b))) == sum(transpose(concat(b, sum(a))))",
    "mul_column(matmul(a, b), c) == matmul(mul_column(a, c), b)",
    "neg(max(a)) == min(neg(a))",
)


def test_laws_of_quotients_maxima_and_concatenations_are_derived() -> None:
    """Equations of three operators that no rule states: they follow from a few general laws."""
    assert derived([Equation.read(text) for text in LAWS], rules()) == [True] * len(LAWS)


ROWS = (
    ("matmul(matmul(a, b), c) == matmul(a, matmul(b, c))", "(a @ b) @ c == a @ (b @ c)", "reassociating"),
    ("transpose(matmul(a, b)) == matmul(transpose(b), transpose(a))", "", "exact"),
    ("relu(exp(a)) == exp(a)", "relu(exp(a)) == exp(a)", "exact"),
    ("transpose(relu(a)) == relu(transpose(a))", "relu(a)[L] == relu(a[L])", "exact"),
    ("neg(max(a)) == min(neg(a))", "-max(a) == min(-a)", "exact"),
    ("exp(add(a, b)) == mul(exp(a), exp(b))", "exp(a + b) == exp(a) * exp(b)", "range-changing"),
)


INSTANCES = [
    ("add(add(a, b), matmul(c, d)) == add(matmul(c, d), add(a, b))", "add(a, b) == add(b, a)"),
    ("matmul(matmul(a, a), a) == matmul(a, matmul(a, a))", "matmul(matmul(a, b), c) == matmul(a, matmul(b, c))"),
    ("mul(a, add(a, b)) == add(mul(a, a), mul(b, a))", "mul(a, add(b, c)) == add(mul(a, b), mul(c, a))"),
    ("sub(a, a) == sub(b, b)", "sub(a, a) == sub(b, b)"),
    ("add(a, b) == add(a, a)", None),
]


@pytest.mark.parametrize(("equation", "general"), INSTANCES)
def test_an_equation_is_an_instance_of_a_most_general_one(equation: str, general: str | None) -> None:
    found = most_general(Equation.read(equation))
    assert (found and str(found)) == general


def test_what_does_not_hold_takes_one_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an instance of each wider equation, so that these are not tried."""
    tried: list[str] = []
    holds = eqsat.discovery.equations.holds

    def counted(left: Expr, right: Expr, shapes: Typing) -> bool:
        tried.append(f"{left} == {right}")
        return holds(left, right, shapes)

    monkeypatch.setattr(eqsat.discovery.equations, "holds", counted)
    false = "add(matmul(a, a), matmul(a, a)) == add(matmul(a, a), a)"
    assert most_general.__wrapped__(Equation.read(false)) is None
    assert tried == [false]


@pytest.mark.parametrize(("equation", "text", "numerics"), ROWS)
def test_a_row_is_written_and_has_the_class_that_it_deserves(equation: str, text: str, numerics: str) -> None:
    made = row(Equation.read(equation))
    sides = {side.strip() for side in made.rule.stated.split("==")}
    expected = text or '(a @ b)["b m n -> b n m"] == b["b k n -> b n k"] @ a["b m k -> b k m"]'
    assert sides == {side.strip() for side in expected.split("==")}
    assert made.rule.numerics == numerics
    assert made.when == {"-max(a)": "floating(dtype(a))", "relu(a)[L]": "keeps_sums(L)"}.get(min(sides), "")
    assert made.before_us >= made.after_us


def test_what_is_no_rule_says_why() -> None:
    with pytest.raises(Unwritten, match="no sign for concat"):
        written(Equation.read("concat(matmul(a, b), matmul(c, b)) == matmul(concat(a, c), b)"))
    with pytest.raises(InputError, match="wrong with"):
        row(Equation.read("relu(add(a, b)) == add(relu(a), relu(b))"))


def test_a_rule_that_was_taken_away_is_found_again() -> None:
    with Store(":memory:") as store:
        whole = discover(operators("matmul"), 2, store, 60.0, workers=1)
        planted = discover(operators("matmul"), 2, store, 60.0, without=["matmul-associative"], workers=1)
    assert (whole.derived, whole.rows, whole.refused, whole.late) == (whole.equations, [], {}, 0)
    assert planted.derived < planted.equations == whole.equations
    assert [r.rule.stated for r in planted.rows] == ["(a @ b) @ c == a @ (b @ c)"]
    assert (planted.general, planted.implied) == (whole.general, [])


def test_settings_are_drawn() -> None:
    with Store(":memory:") as store:
        drawn = [discover(operators("matmul,transpose"), 2, store, 60.0, draw=(count, 0)) for count in (2, 1000)]
    assert [found.looked for found in drawn] == [2, drawn[1].settings]
    assert 0 < drawn[0].equations < drawn[1].equations


def test_the_command_prints_rows_and_what_is_left() -> None:
    said = printed("rules", "discover", "--operators", "matmul", "--without", "matmul-associative", "--workers", "1")
    assert '"(a @ b) @ c == a @ (b @ c)",' in said
    assert 'numerics="reassociating"' in said
    late = document("rules", "discover", "--operators", "matmul,add", "--minutes", "0")
    assert (late["looked"], late["equations"], late["rows"]) == (0, 0, [])
    assert late["late"] > 0
    assert "did you mean matmul" in refusal("rules", "discover", "--operators", "matmull")
