"""Operators that meet known numbers: folded, or replaced where the number makes them simpler.

A number is an array of one value. What depends on numbers alone is a number again, so that chains of scales
and shifts shrink to one operator, and units, signs and powers are seen wherever they come up.
"""

from __future__ import annotations

from eqsat.language.equation import rules
from eqsat.language.rule import Numerics, Rule

_ALGEBRA = "MIGraphX simplify_algebra"
_FOLDING = "constant folding"
_IEEE = "IEEE 754"

FOLDING: tuple[Rule, ...] = (
    *rules(
        "function-of-number",
        "f(v) == w",
        numbers="v w",
        when="w = value_of(f, v, dtype(v))",
        source=_FOLDING,
        why="a function of one number is one number",
    ),
    *rules(
        "function-of-numbers",
        "f(v, w) == u",
        numbers="v w u",
        when="u = value_of_two(f, v, w, dtype(v))",
        source=_FOLDING,
        why="a function of two numbers is one number",
    ),
)

UNITS: tuple[Rule, ...] = (
    *rules(
        "subtract-zero",
        "a - 0 == a",
        source=f"{_ALGEBRA}: zero ops",
        why="taking nothing away keeps even the sign of a zero",
        subsumes=True,
    ),
    *rules(
        "subtract-from-zero",
        "0 - a == -a",
        numerics="reassociating",
        source=f"{_ALGEBRA}: zero ops",
        why="a sign is less than a difference; only the sign of a zero can change",
    ),
    *rules(
        "multiply-by-minus-one",
        "a * -1 == -a",
        source=f"{_ALGEBRA}: neg-unit ops",
        why="minus one flips the sign and does nothing else",
    ),
    *rules(
        "multiply-integer-by-zero",
        "a * 0 == 0",
        when="integral(dtype(a))",
        source=f"{_ALGEBRA}: zero ops",
        why="integers know no NaN: zero times anything is zero",
    ),
    *rules(
        "multiply-by-zero",
        "a * 0 == 0",
        numerics="range-changing",
        source=f"{_ALGEBRA}: zero ops",
        why="nothing is computed; hides a NaN or an infinity",
    ),
    *rules(
        "divide-zero",
        "0 / a == 0",
        numerics="range-changing",
        source=f"{_ALGEBRA}: zero ops",
        why="nothing is computed; hides a division by zero",
    ),
)

POWERS: tuple[Rule, ...] = (
    *rules(
        "power-zero",
        "a**0 == 1",
        source=_IEEE,
        why="anything to the power of zero is one, NaN included",
    ),
    *rules(
        "power-one",
        "a**1 == a",
        source=_IEEE,
        why="the first power is the thing itself",
        subsumes=True,
    ),
    *rules(
        "power-two",
        "a**2 == a * a",
        numerics="reassociating",
        source=f"{_ALGEBRA}: pow2",
        why="a product is far cheaper than a power",
    ),
    *rules(
        "power-three",
        "a**3 == a * a * a",
        numerics="reassociating",
        source=f"{_ALGEBRA}: pow2",
        why="two products are far cheaper than a power",
    ),
    *rules(
        "power-minus-one",
        "a**-1 == reciprocal(a)",
        when="floating(dtype(a))",
        numerics="reassociating",
        source=f"{_ALGEBRA}: pow2",
        why="a reciprocal is cheaper than a power",
    ),
    *rules(
        "reciprocal-of-root",
        "reciprocal(sqrt(a)) == rsqrt(a)",
        numerics="reassociating",
        source=f"{_ALGEBRA}: rsqrt",
        why="one instruction instead of two, rounded once instead of twice",
    ),
)


_MULTIPLES: tuple[tuple[str, str, Numerics], ...] = (
    ("double", "a + a == a * 2", "exact"),
    ("multiple-and-one", "a * v + a == a * (v + 1)", "reassociating"),
    ("one-and-multiple", "a + a * v == a * (v + 1)", "reassociating"),
    ("sum-of-multiples", "a * v + a * w == a * (v + w)", "reassociating"),
    ("difference-of-multiples", "a * v - a * w == a * (v - w)", "reassociating"),
)

MULTIPLES: tuple[Rule, ...] = tuple(
    row
    for name, text, numerics in _MULTIPLES
    for row in rules(
        name,
        text,
        numbers="v w",
        numerics=numerics,
        source="TASO (SOSP 2019), axioms of elementwise operators: scalar distributes over a sum",
        why="multiples of one thing are one multiple, which moves through products and sums",
    )
)

_LOGIC = (
    ("and-true", "a & 1 == a", "what is and true is what it is"),
    ("and-false", "a & 0 == 0", "nothing is and false"),
    ("or-true", "a | 1 == 1", "anything is or true"),
    ("or-false", "a | 0 == a", "what is or false is what it is"),
    ("not-twice", "~(~a) == a", "what is not not is"),
)

LOGIC: tuple[Rule, ...] = (
    *(row for name, text, why in _LOGIC for row in rules(name, text, source="Boolean algebra", why=why)),
    *rules(
        "choice-by-negation",
        "where((~c)[L?], a, b) == where(c[L?], b, a)",
        viewed="choice-by-negation-behind-view",
        when="plain(L)",
        source="Boolean algebra",
        why="the other way round, a choice needs no negation",
    ),
)

LOGARITHMS: tuple[Rule, ...] = (
    *rules(
        "log-of-exponential",
        "log(exp(a)) == a",
        numerics="range-changing",
        source=f"{_ALGEBRA}: log-exp",
        why="one undoes the other; the power may overflow where the number does not",
    ),
    *rules(
        "log-of-quotient",
        "log(exp(a) / b) == a - log(b)",
        numerics="range-changing",
        source=f"{_ALGEBRA}: log-div",
        why="the logarithm of a softmax needs no division; the power may underflow where the number does not",
    ),
)

RULES: tuple[Rule, ...] = FOLDING + UNITS + POWERS + MULTIPLES + LOGIC + LOGARITHMS
