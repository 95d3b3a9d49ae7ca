"""Operators that meet known numbers: folded, or replaced where the number makes them simpler.

A number is an array of one value. What depends on numbers alone is a number again, so that chains of scales
and shifts shrink to one operator, and units, signs and powers are seen wherever they come up.
"""

from __future__ import annotations

from eqsat.language.equation import lines, rules
from eqsat.language.rule import Rule

_ALGEBRA = "MIGraphX simplify_algebra"
_ZEROS, _POWERS = f"{_ALGEBRA}: zero ops", f"{_ALGEBRA}: pow2"
_BOOLEAN = "Boolean algebra"
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

ROUNDED: tuple[Rule, ...] = (
    *rules(
        "function-of-rounded-numbers",
        "f(v, w) == u",
        numbers="v w u",
        when="u = rounded_value_of_two(f, v, w, dtype(v))",
        source=_FOLDING,
        why="two scales are one scale, as it is rounded",
    ),
    *rules(
        "divide-by-constant",
        "a / v == a * r",
        numbers="v r",
        worth="dynamic(a)",
        when="r = reciprocal_of(v)",
        numerics="reassociating",
        source=f"{_ALGEBRA}: div by k -> mul",
        why="multiplication is cheaper and moves through products",
    ),
)
"""Rules whose numbers are rounded. Proofs do without: under other brackets the same chain gives another number."""

UNITS: tuple[Rule, ...] = (
    *lines(
        ("subtract-zero", "a - 0 == a", "exact", _ZEROS, "taking nothing away keeps even the sign of a zero"),
        subsumes=True,
    ),
    *lines(
        (
            "subtract-from-zero",
            "0 - a == -a",
            "reassociating",
            _ZEROS,
            "a sign is less than a difference; only the sign of a zero can change",
        ),
        (
            "multiply-by-minus-one",
            "a * -1 == -a",
            "exact",
            f"{_ALGEBRA}: neg-unit ops",
            "minus one flips the sign and does nothing else",
        ),
    ),
    *lines(
        ("multiply-integer-by-zero", "a * 0 == 0", "exact", _ZEROS, "no integer is NaN: zero times anything is zero"),
        when="integral(dtype(a))",
    ),
    *lines(
        ("multiply-by-zero", "a * 0 == 0", "range-changing", _ZEROS, "nothing is computed; hides a NaN or an infinity"),
        ("divide-zero", "0 / a == 0", "range-changing", _ZEROS, "nothing is computed; hides a division by zero"),
        worth="dynamic(a)",  # constants are folded, with their NaNs and infinities, under every policy
    ),
)

POWERS: tuple[Rule, ...] = (
    *lines(("power-zero", "a**0 == 1", "exact", _IEEE, "anything to the power of zero is one, NaN included")),
    *lines(("power-one", "a**1 == a", "exact", _IEEE, "the first power is the thing itself"), subsumes=True),
    *lines(
        ("power-two", "a**2 == a * a", "reassociating", _POWERS, "a product is far cheaper than a power"),
        ("power-three", "a**3 == a * a * a", "reassociating", _POWERS, "two products are far cheaper than a power"),
    ),
    *lines(
        ("power-minus-one", "a**-1 == reciprocal(a)", "reassociating", _POWERS, "a reciprocal is cheaper than a power"),
        when="floating(dtype(a))",
    ),
    *rules(
        "reciprocal-of-root",
        "reciprocal(sqrt(a)) == rsqrt(a)",
        numerics="reassociating",
        source=f"{_ALGEBRA}: rsqrt",
        why="one instruction instead of two, rounded once instead of twice",
    ),
)

_DISTRIBUTES = "TASO (SOSP 2019), axioms of elementwise operators: scalar distributes over a sum"
_ONE = "multiples of one thing are one multiple, which moves through products and sums"

MULTIPLES: tuple[Rule, ...] = lines(
    ("double", "a + a == a * 2", "exact", _DISTRIBUTES, _ONE),
    ("multiple-and-one", "a * v + a == a * (v + 1)", "reassociating", _DISTRIBUTES, _ONE),
    ("one-and-multiple", "a + a * v == a * (v + 1)", "reassociating", _DISTRIBUTES, _ONE),
    ("sum-of-multiples", "a * v + a * w == a * (v + w)", "reassociating", _DISTRIBUTES, _ONE),
    ("difference-of-multiples", "a * v - a * w == a * (v - w)", "reassociating", _DISTRIBUTES, _ONE),
    numbers="v w",
)

LOGIC: tuple[Rule, ...] = (
    *lines(
        ("and-true", "a & 1 == a", "exact", _BOOLEAN, "true changes nothing"),
        ("and-false", "a & 0 == 0", "exact", _BOOLEAN, "false is stronger"),
        ("or-true", "a | 1 == 1", "exact", _BOOLEAN, "true is stronger"),
        ("or-false", "a | 0 == a", "exact", _BOOLEAN, "false changes nothing"),
        ("not-twice", "~(~a) == a", "exact", _BOOLEAN, "two negations cancel"),
    ),
    *rules(
        "choice-by-negation",
        "where((~c)[L?], a, b) == where(c[L?], b, a)",
        viewed="choice-by-negation-behind-view",
        when="plain(L)",
        source=_BOOLEAN,
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

RULES: tuple[Rule, ...] = FOLDING + ROUNDED + UNITS + POWERS + MULTIPLES + LOGIC + LOGARITHMS
