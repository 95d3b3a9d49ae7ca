"""Rules for proving and exploring only: unguarded, in both directions, without regard to what they cost.

Optimising never uses them: commutativity with associativity and distribution does not saturate. A proof stops as soon
as both sides meet, which small programs do long before the e-graph grows out of hand.
"""

from __future__ import annotations

from eqsat.language.rule import Numerics, Rule, rule

_AXIOMS = "TASO (SOSP 2019), axioms of elementwise operators and matmul"
_SIMPLIFIER = "XLA AlgebraicSimplifier, as written down by TensorRight (POPL 2025)"

_WORDS = {"add": "sum", "mul": "product", "min": "minimum", "max": "maximum", "and": "conjunction", "or": "disjunction"}

ARITHMETIC: tuple[Rule, ...] = (
    *(
        rule(
            f"commute-{word}",
            f"{fn}(a, b) => {fn}(b, a)" if fn not in ("and", "or") else f"bin('{fn}', a, b) => bin('{fn}', b, a)",
            numerics="reassociating" if fn in ("min", "max") else "exact",
            source=_AXIOMS,
            why="operands in any order; of two zeros the first is the minimum and the maximum",
        )
        for fn, word in _WORDS.items()
    ),
    *(
        rule(
            f"associate-{_WORDS[fn]}",
            f"{fn}({fn}(a, b), c) => {fn}(a, {fn}(b, c))",
            numerics="exact" if fn in ("min", "max") else "reassociating",
            source=_AXIOMS,
            why="brackets in any place",
        )
        for fn in ("add", "mul", "min", "max")
    ),
    *(
        rule(name, text, numerics="reassociating", source=_AXIOMS, why=why)
        for name, text, why in (
            ("distribute-product", "mul(add(a, b), c) => add(mul(a, c), mul(b, c))", "a product over a sum"),
            ("factor-product", "add(mul(a, c), mul(b, c)) => mul(add(a, b), c)", "a shared factor taken out"),
            ("negate-sum", "neg(add(a, b)) => add(neg(a), neg(b))", "a sign moves into a sum; -(1 - 1) is -0"),
        )
    ),
    *(
        rule(name, text, source=_AXIOMS, why=why)
        for name, text, why in (
            ("difference-as-sum", "sub(a, b) => add(a, neg(b))", "one operator for both"),
            ("sum-as-difference", "add(a, neg(b)) => sub(a, b)", "one operator for both"),
            ("negate-product", "neg(mul(a, b)) => mul(neg(a), b)", "a sign moves into a product"),
            ("product-of-negated", "mul(neg(a), b) => neg(mul(a, b))", "a sign moves out of a product"),
        )
    ),
    rule(
        "quotient-as-product",
        "div(a, b) => mul(a, reciprocal(b))",
        when="floating(dtype(a))",
        numerics="reassociating",
        source=_AXIOMS,
        why="one operator for both; whole numbers have no reciprocals",
    ),
    rule(
        "exp-of-sum",
        "exp(add(a, b)) => mul(exp(a), exp(b))",
        numerics="range-changing",
        source=_SIMPLIFIER,
        why="the functional equation of exp; one factor may overflow where the product does not",
    ),
    *(
        rule(name, text, numerics="range-changing", source=_SIMPLIFIER, why=why)
        for name, text, why in (("root-of-square", "sqrt(mul(a, a)) => abs(a)", "the square may overflow"),)
    ),
    *(
        rule(name, text, source=_SIMPLIFIER, why="two words for one comparison")
        for name, text in (
            ("greater-as-less", "greater(a, b) => less(b, a)"),
            ("greater-equal-as-less-equal", "greater_equal(a, b) => less_equal(b, a)"),
        )
    ),
    rule(
        "product-of-exps",
        "mul(exp(a), exp(b)) => exp(add(a, b))",
        numerics="range-changing",
        source=_SIMPLIFIER,
        why="the functional equation of exp; one factor may overflow where the product does not",
    ),
)

_RIGHT = "mm(mm(a, b, B, M, K, N), c, B, M, N, P) => mm(a, mm(b, c, B, K, N, P), B, M, K, P)"
_LEFT = "mm(a, mm(b, c, B, K, N, P), B, M, K, P) => mm(mm(a, b, B, M, K, N), c, B, M, N, P)"

PRODUCTS: tuple[Rule, ...] = tuple(
    rule(name, text, numerics="reassociating", source=_AXIOMS, why=why)
    for name, text, why in (
        ("matmul-any-bracket-right", _RIGHT, "brackets in any place"),
        ("matmul-any-bracket-left", _LEFT, "brackets in any place"),
        (
            "sum-through-matmul",
            "mm(add(a, b), c, B, M, K, N) => add(mm(a, c, B, M, K, N), mm(b, c, B, M, K, N))",
            "a product over a sum",
        ),
        (
            "sum-under-matmul",
            "mm(c, add(a, b), B, M, K, N) => add(mm(c, a, B, M, K, N), mm(c, b, B, M, K, N))",
            "a product over a sum",
        ),
        ("sign-out-of-left-factor", "mm(neg(a), b, B, M, K, N) => neg(mm(a, b, B, M, K, N))", "a sign moves out"),
        ("sign-out-of-right-factor", "mm(a, neg(b), B, M, K, N) => neg(mm(a, b, B, M, K, N))", "a sign moves out"),
    )
)

SCALES: tuple[Rule, ...] = tuple(
    rule(
        f"scale-out-of-{side}-factor",
        f"{text} => mul(mm(a, b, B, M, K, N), full(v, size(self), t))",
        when="finite(v)",
        numerics="reassociating",
        source=_AXIOMS,
        why="a scalar moves out of a product",
    )
    for side, text in (
        ("left", "mm(mul(a, full(v, n, t)), b, B, M, K, N)"),
        ("right", "mm(a, mul(b, full(v, n, t)), B, M, K, N)"),
    )
)

_WEIGHTS = "div(exp(s), view(sum(exp(s), K), R))"

ATTENTION: tuple[Rule, ...] = (
    rule(
        "viewed-bias-past-weights-of-one",
        f"mm({_WEIGHTS}, view(add(a, view(b, L1)), L2), B, M, K, N)"
        f" => add(mm({_WEIGHTS}, view(a, L2), B, M, K, N), view(b, W))",
        when="repeats_rows(R, K); W = column_bias(L1, L2, B, M, K, N)",
        numerics="reassociating",
        source="Vaswani et al. (2017): attention weights of a row sum to one",
        why="a weighted mean of shifted rows is shifted alike, also where heads are split off in between",
    ),
)

CONTRACTIONS: tuple[Rule, ...] = tuple(
    rule(
        name,
        f"sum({text}, C) => view(mm(view(a, La), view(b, Lb), B, M, K, N), W)",
        when="(La, Lb, B, M, K, N, W) = contraction_with_rows(L, size(self), C)",
        numerics="reassociating",
        source="MIGraphX rewrite_reduce: skinny dots, read backwards",
        why="a weighted sum of rows is a product with a vector",
    )
    for name, text in (
        ("sum-of-products-with-broadcast", "mul(a, view(b, L))"),
        ("sum-of-products-of-broadcast", "mul(view(b, L), a)"),
    )
)

_ORDERED: tuple[tuple[str, str, Numerics], ...] = (
    ("sum", "sum", "reassociating"),
    ("product", "prod_over", "reassociating"),
    ("maximum", "max_over", "exact"),
    ("minimum", "min_over", "exact"),
)

ORDERED: tuple[Rule, ...] = tuple(
    rule(
        f"{word}-in-order",
        f"{fn}(view(a, L), C) => {fn}(view(a, M), C)",
        when="M = in_order(L, C)",
        numerics=numerics,
        source=_AXIOMS,
        why="a reduction does not mind the order of what it reduces: differently transposed rows meet",
    )
    for word, fn, numerics in _ORDERED
)

_REDUCTIONS: tuple[tuple[str, Numerics, str, str], ...] = (
    (
        "sum-of-any-sum",
        "reassociating",
        "sum(add(a, b), C) => add(sum(a, C), sum(b, C))",
        "a sum splits over a sum",
    ),
    (
        "sum-of-sums",
        "reassociating",
        "add(sum(a, C), sum(b, C)) => sum(add(a, b), C)",
        "sums of equal lengths join",
    ),
    (
        "maximum-of-maxima",
        "reassociating",
        "max(max_over(a, C), max_over(b, C)) => max_over(max(a, b), C)",
        "maxima join; another zero of several may win",
    ),
)

REDUCTIONS: tuple[Rule, ...] = tuple(
    rule(name, text, numerics=numerics, source=_SIMPLIFIER, why=why) for name, numerics, text, why in _REDUCTIONS
)

VIEWS: tuple[Rule, ...] = tuple(
    rule(name, text, when=when, source="MIGraphX simplify_reshapes", why=why)
    for name, text, when, why in (
        ("view-into-unary", "view(un(f, a), L) => un(f, view(a, L))", "keeps_fill(L, f)", "order does not matter"),
        ("view-out-of-unary", "un(f, view(a, L)) => view(un(f, a), L)", "keeps_fill(L, f)", "order does not matter"),
        (
            "view-into-binary",
            "view(bin(f, a, b), L) => bin(f, view(a, L), view(b, L))",
            "plain(L)",
            "order does not matter",
        ),
        (
            "view-out-of-binary",
            "bin(f, view(a, L), view(b, L)) => view(bin(f, a, b), L)",
            "size(a) == size(b); plain(L)",
            "order does not matter",
        ),
        (
            "view-into-where",
            "view(where(c, a, b), L) => where(view(c, L), view(a, L), view(b, L))",
            "plain(L)",
            "order does not matter",
        ),
        ("view-into-reduction", "view(red(f, a, C), L) => red(f, view(a, W), C)", "W = widen(L, C)", "whole rows move"),
    )
)

RULES: tuple[Rule, ...] = ARITHMETIC + PRODUCTS + SCALES + ATTENTION + CONTRACTIONS + ORDERED + REDUCTIONS + VIEWS
