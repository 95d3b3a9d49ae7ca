"""Operators that meet known numbers: folded, or replaced where the number makes them simpler.

A number is a `full`: one value everywhere. What depends on numbers alone is a number again, so that chains of scales
and shifts shrink to one operator, and units, signs and powers are seen wherever they come up.
"""

from __future__ import annotations

from eqsat.language.rule import Numerics, Rule, rule

_ALGEBRA = "MIGraphX simplify_algebra"
_FOLDING = "constant folding"
_IEEE = "IEEE 754"

FOLDING: tuple[Rule, ...] = (
    rule(
        "function-of-number",
        "un(f, full(v, n, t)) => full(w, n, t)",
        when="w = value_of(f, v, t)",
        source=_FOLDING,
        why="a function of one number is one number",
    ),
    rule(
        "function-of-numbers",
        "bin(f, full(v, n, t), full(w, n, t)) => full(u, n, t)",
        when="u = value_of_two(f, v, w, t)",
        source=_FOLDING,
        why="a function of two numbers is one number",
    ),
)

UNITS: tuple[Rule, ...] = (
    rule(
        "subtract-zero",
        "sub(a, full(v, n, t)) => a",
        when="is_value(v, 0)",
        source=f"{_ALGEBRA}: zero ops",
        why="taking nothing away keeps even the sign of a zero",
        subsumes=True,
    ),
    rule(
        "subtract-from-zero",
        "sub(full(v, n, t), a) => neg(a)",
        when="is_value(v, 0)",
        numerics="reassociating",
        source=f"{_ALGEBRA}: zero ops",
        why="a sign is less than a difference; only the sign of a zero can change",
    ),
    rule(
        "multiply-by-minus-one",
        "mul(a, full(v, n, t)) => neg(a)",
        when="is_value(v, -1)",
        source=f"{_ALGEBRA}: neg-unit ops",
        why="minus one flips the sign and does nothing else",
    ),
    rule(
        "multiply-integer-by-zero",
        "mul(a, full(v, n, t)) => full(v, n, t)",
        when="is_value(v, 0); integral(t)",
        source=f"{_ALGEBRA}: zero ops",
        why="integers know no NaN: zero times anything is zero",
    ),
    rule(
        "multiply-by-zero",
        "mul(a, full(v, n, t)) => full(v, n, t)",
        when="is_value(v, 0)",
        numerics="range-changing",
        source=f"{_ALGEBRA}: zero ops",
        why="nothing is computed; hides a NaN or an infinity",
    ),
    rule(
        "divide-zero",
        "div(full(v, n, t), a) => full(v, n, t)",
        when="is_value(v, 0)",
        numerics="range-changing",
        source=f"{_ALGEBRA}: zero ops",
        why="nothing is computed; hides a division by zero",
    ),
)

POWERS: tuple[Rule, ...] = (
    rule(
        "power-zero",
        "pow(a, full(v, n, t)) => full(w, n, t)",
        when="is_value(v, 0); w = count_as(1, t)",
        source=_IEEE,
        why="anything to the power of zero is one, NaN included",
    ),
    rule(
        "power-one",
        "pow(a, full(v, n, t)) => a",
        when="is_value(v, 1)",
        source=_IEEE,
        why="the first power is the thing itself",
        subsumes=True,
    ),
    rule(
        "power-two",
        "pow(a, full(v, n, t)) => mul(a, a)",
        when="is_value(v, 2)",
        numerics="reassociating",
        source=f"{_ALGEBRA}: pow2",
        why="a product is far cheaper than a power",
    ),
    rule(
        "power-three",
        "pow(a, full(v, n, t)) => mul(mul(a, a), a)",
        when="is_value(v, 3)",
        numerics="reassociating",
        source=f"{_ALGEBRA}: pow2",
        why="two products are far cheaper than a power",
    ),
    rule(
        "power-minus-one",
        "pow(a, full(v, n, t)) => reciprocal(a)",
        when="is_value(v, -1); floating(t)",
        numerics="reassociating",
        source=f"{_ALGEBRA}: pow2",
        why="a reciprocal is cheaper than a power",
    ),
    rule(
        "reciprocal-of-root",
        "reciprocal(sqrt(a)) => rsqrt(a)",
        numerics="reassociating",
        source=f"{_ALGEBRA}: rsqrt",
        why="one instruction instead of two, rounded once instead of twice",
    ),
)


def _multiples(name: str, text: str, when: str, numerics: Numerics = "reassociating") -> Rule:
    return rule(
        name,
        text,
        when=when,
        numerics=numerics,
        source="TASO (SOSP 2019), axioms of elementwise operators: scalar distributes over a sum",
        why="multiples of one thing are one multiple, which moves through products and sums",
    )


MULTIPLES: tuple[Rule, ...] = (
    _multiples("double", "add(a, a) => mul(a, full(w, size(a), dtype(a)))", "w = count_as(2, dtype(a))", "exact"),
    _multiples("multiple-and-one", "add(mul(a, full(v, n, t)), a) => mul(a, full(w, n, t))", "w = plus_one(v, t)"),
    _multiples("one-and-multiple", "add(a, mul(a, full(v, n, t))) => mul(a, full(w, n, t))", "w = plus_one(v, t)"),
    *(
        _multiples(
            f"{word}-of-multiples",
            f"{fn}(mul(a, full(v, n, t)), mul(a, full(w, n, t))) => mul(a, full(u, n, t))",
            f"u = value_of_two('{fn}', v, w, t)",
        )
        for fn, word in (("add", "sum"), ("sub", "difference"))
    ),
)

LOGARITHMS: tuple[Rule, ...] = (
    rule(
        "log-of-exponential",
        "log(exp(a)) => a",
        numerics="range-changing",
        source=f"{_ALGEBRA}: log-exp",
        why="one undoes the other; the power may overflow where the number does not",
    ),
    rule(
        "log-of-quotient",
        "log(div(exp(a), b)) => sub(a, log(b))",
        numerics="range-changing",
        source=f"{_ALGEBRA}: log-div",
        why="the logarithm of a softmax needs no division; the power may underflow where the number does not",
    ),
)

RULES: tuple[Rule, ...] = FOLDING + UNITS + POWERS + MULTIPLES + LOGARITHMS
