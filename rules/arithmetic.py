"""Elementwise arithmetic: constants gathered, units removed, divisions by constants turned into products."""

from __future__ import annotations

from eqsat.language.equation import Equation, equation, lines, rules
from eqsat.language.rule import Numerics, Rule

_ALGEBRA = "MIGraphX simplify_algebra"
_UNITS = f"{_ALGEBRA}: unit ops"
_AXIOMS = "TASO (SOSP 2019), axioms of elementwise operators"
_RELU = "TASO (SOSP 2019), axioms of relu"

SIGNS: tuple[tuple[str, str], ...] = (("sum", "+"), ("product", "*"))

_EITHER_WAY: tuple[tuple[str, str, str, Numerics], ...] = (
    ("sum", "addend", "a + b == b + a", "exact"),
    ("product", "factor", "a * b == b * a", "exact"),
    ("minimum", "upper-bound", "minimum(a, b) == minimum(b, a)", "reassociating"),
    ("maximum", "lower-bound", "maximum(a, b) == maximum(b, a)", "reassociating"),
    ("conjunction", "conjunct", "a & b == b & a", "exact"),
    ("disjunction", "disjunct", "a | b == b | a", "exact"),
    ("equality", "comparand", "(a == b) == (b == a)", "exact"),
)
"""What is computed, what a constant operand is called, and the law; of two zeros the first is the extreme."""

COMMUTATIVE: dict[str, Equation] = {
    word: equation(f"{word}-commutative", text, numerics=numerics, source=_AXIOMS)
    for word, _, text, numerics in _EITHER_WAY
}
ASSOCIATIVE: dict[str, Equation] = {
    word: equation(
        f"{word}-associative",
        f"(a {sign} b) {sign} c == a {sign} (b {sign} c)",
        numerics="reassociating",
        source=_AXIOMS,
    )
    for word, sign in SIGNS
}
DISTRIBUTIVE = equation("product-over-sum", "(a + b) * c == a * c + b * c", numerics="reassociating", source=_AXIOMS)
DIFFERENCE = equation("difference-is-sum", "a - b == a + -b", source=_AXIOMS)

RULES: tuple[Rule, ...] = (
    *(
        row
        for word, operand, _, _ in _EITHER_WAY
        for row in (
            *COMMUTATIVE[word].orient(
                "right",
                f"constant-{operand}-right",
                worth="const(a); dynamic(b)",
                source=f"{_ALGEBRA}: constants are looked for on the right",
                why="the other rules look for a constant on the right",
            ),
            *COMMUTATIVE[word].orient(
                "right",
                f"{word}-of-the-same-two",
                meets=True,
                why="what is written either way round is computed once",
            ),
        )
    ),
    *(
        row
        for word, _ in SIGNS
        for row in ASSOCIATIVE[word].orient(
            "right",
            f"gather-constants-of-{word}",
            worth="const(b); const(c); dynamic(a)",
            source=f"{_ALGEBRA}: double-add-lit-broadcast",
            why="two constants in a row are one, folded ahead of time",
        )
    ),
    *(
        row
        for word, sign, name in (("sum", "+", "addend"), ("product", "*", "factor"))
        for where, text in (
            ("of-each-side", "(a + b) + (c + d)"),
            (f"around-{name}", "((a + b) + c) + d"),
            (f"behind-{name}", "(c + (a + b)) + d"),
        )
        for row in rules(
            f"gather-constants-{where}-of-{word}",
            f"{text} == (a + c) + (b + d)".replace("+", sign),
            worth="const(b); const(d); dynamic(a); dynamic(c)",
            numerics="reassociating",
            source=f"{_ALGEBRA}: double-add-lit-broadcast",
            why="constants met on both sides, or with something in between, are one, folded ahead of time",
        )
    ),
    *DISTRIBUTIVE.orient(
        "right",
        "scale-of-constant-addend",
        worth="const(b); const(c); dynamic(a)",
        source=f"{_ALGEBRA}: mul-add",
        why="a scale passes a constant bias, so that what is under it can take it: batch norms fold into weights",
    ),
    *DIFFERENCE.orient(
        "right",
        "subtract-constant",
        worth="const(b); dynamic(a)",
        source=f"{_ALGEBRA}: sub k -> add",
        why="one operator fewer for the other rules to know; IEEE defines a - b as a + (-b)",
    ),
    *rules(
        "divide-by-power-of-two",
        "a / v == a * r",
        numbers="v r",
        worth="dynamic(a)",
        when="r = exact_reciprocal(v)",
        source=f"{_ALGEBRA}: div by k -> mul",
        why="the reciprocal of a power of two is exact, so the product rounds as the quotient does",
    ),
    *lines(
        ("multiply-by-one", "a * 1 == a", "exact", _UNITS, "one times anything is that thing, NaN and -0 included"),
        ("divide-by-one", "a / 1 == a", "exact", _UNITS, "anything over one is that thing"),
        ("add-zero", "a + 0 == a", "reassociating", f"{_ALGEBRA}: zero ops", "only the sign of a zero can change"),
        subsumes=True,
    ),
    # Not subsumed: of -(-(-a)) that would take the one e-node that the negation of `a` has.
    *lines(
        ("relu-of-relu", "relu(relu(a)) == relu(a)", "exact", _RELU, "what is not negative stays as it is"),
        ("negate-twice", "-(-a) == a", "exact", f"{_ALGEBRA}: neg-unit ops", "negation only flips the sign bit"),
    ),
)
