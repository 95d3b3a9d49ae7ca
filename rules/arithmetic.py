"""Elementwise arithmetic: constants gathered, units removed, divisions by constants turned into products."""

from __future__ import annotations

from eqsat.language.rule import Rule, rule

_ALGEBRA = "MIGraphX simplify_algebra"

RULES: tuple[Rule, ...] = (
    *(
        rule(
            f"constant-{name}-right",
            f"{fn}(b, a) => {fn}(a, b)",
            when="const(b); dynamic(a)",
            source=f"{_ALGEBRA}: constants are looked for on the right",
            why="the other rules look for a constant on the right",
        )
        for name, fn in (("addend", "add"), ("factor", "mul"))
    ),
    *(
        rule(
            f"gather-constants-of-{name}",
            f"{fn}({fn}(a, b), c) => {fn}(a, {fn}(b, c))",
            when="const(b); const(c); dynamic(a)",
            numerics="reassociating",
            source=f"{_ALGEBRA}: double-add-lit-broadcast",
            why="two constants in a row are one, folded ahead of time",
        )
        for name, fn in (("sum", "add"), ("product", "mul"))
    ),
    *(
        rule(
            f"gather-constants-{where}-{name}",
            f"{text} => {fn}({fn}(a, c), {fn}(b, d))",
            worth="const(b); const(d); dynamic(a); dynamic(c)",
            numerics="reassociating",
            source=f"{_ALGEBRA}: double-add-lit-broadcast",
            why="constants met on both sides, or with something in between, are one, folded ahead of time",
        )
        for name, fn in (("sum", "add"), ("product", "mul"))
        for where, text in (
            ("of-each-side-of", f"{fn}({fn}(a, b), {fn}(c, d))"),
            ("around-addend-of" if fn == "add" else "around-factor-of", f"{fn}({fn}({fn}(a, b), c), d)"),
            ("behind-addend-of" if fn == "add" else "behind-factor-of", f"{fn}({fn}(c, {fn}(a, b)), d)"),
        )
    ),
    rule(
        "scale-of-constant-addend",
        "mul(add(a, b), c) => add(mul(a, c), mul(b, c))",
        worth="const(b); const(c); dynamic(a)",
        numerics="reassociating",
        source=f"{_ALGEBRA}: mul-add",
        why="a scale passes a constant bias, so that what is under it can take it: batch norms fold into weights",
    ),
    rule(
        "subtract-constant",
        "sub(a, b) => add(a, neg(b))",
        when="const(b); dynamic(a)",
        source=f"{_ALGEBRA}: sub k -> add",
        why="one operator fewer for the other rules to know; IEEE defines a - b as a + (-b)",
    ),
    rule(
        "divide-by-power-of-two",
        "div(a, full(v, n, t)) => mul(a, full(r, n, t))",
        worth="dynamic(a)",
        when="r = exact_reciprocal(v)",
        source=f"{_ALGEBRA}: div by k -> mul",
        why="the reciprocal of a power of two is exact, so the product rounds as the quotient does",
    ),
    rule(
        "divide-by-constant",
        "div(a, full(v, n, t)) => mul(a, full(r, n, t))",
        worth="dynamic(a)",
        when="r = reciprocal_of(v)",
        numerics="reassociating",
        source=f"{_ALGEBRA}: div by k -> mul",
        why="multiplication is cheaper and moves through products",
    ),
    rule(
        "multiply-by-one",
        "mul(a, full(v, n, t)) => a",
        when="is_value(v, 1)",
        source=f"{_ALGEBRA}: unit ops",
        why="one times anything is that thing, NaN and signed zeros included",
        subsumes=True,
    ),
    rule(
        "divide-by-one",
        "div(a, full(v, n, t)) => a",
        when="is_value(v, 1)",
        source=f"{_ALGEBRA}: unit ops",
        why="anything over one is that thing",
        subsumes=True,
    ),
    rule(
        "add-zero",
        "add(a, full(v, n, t)) => a",
        when="is_value(v, 0)",
        numerics="reassociating",
        source=f"{_ALGEBRA}: zero ops",
        why="only the sign of a zero can change",
        subsumes=True,
    ),
    rule(
        "relu-of-relu",
        "relu(relu(a)) => relu(a)",
        source="TASO (SOSP 2019), axioms of relu",
        why="what is not negative stays as it is",
    ),
    rule(
        "negate-twice",
        "neg(neg(a)) => a",
        source=f"{_ALGEBRA}: neg-unit ops",
        # Not subsumed: of neg(neg(neg(a))) that would take the one e-node that the negation of `a` has.
        why="negation only flips the sign bit",
    ),
)
