"""Rules for proving and exploring only: unguarded, in both directions, without regard to what they cost.

Optimising never uses them: commutativity with associativity and distribution does not saturate. A proof stops as soon
as both sides meet, which small programs do long before the e-graph grows out of hand.
"""

from __future__ import annotations

from eqsat.language.equation import rules
from eqsat.language.rule import Numerics, Rule
from eqsat.rules import arithmetic, normalisation, products, reductions, views

_AXIOMS = "TASO (SOSP 2019), axioms of elementwise operators and matmul"
_SIMPLIFIER = "XLA AlgebraicSimplifier, as written down by TensorRight (POPL 2025)"

_COMMUTE = "operands in any order; of two zeros the first is the minimum and the maximum"
_ASSOCIATE = "brackets in any place"

_OTHERS: tuple[tuple[str, str, Numerics], ...] = (
    ("minimum", "minimum(a, b) == minimum(b, a)", "reassociating"),
    ("maximum", "maximum(a, b) == maximum(b, a)", "reassociating"),
    ("conjunction", "a & b == b & a", "exact"),
    ("disjunction", "a | b == b | a", "exact"),
)

_SINGLE: tuple[tuple[str, str, Numerics, str], ...] = (
    ("negate-sum", "-(a + b) == -a + -b", "reassociating", "a sign moves into a sum; -(1 - 1) is -0"),
    ("negate-product", "-(a * b) == (-a) * b", "exact", "a sign moves into a product"),
    ("product-of-negated", "(-a) * b == -(a * b)", "exact", "a sign moves out of a product"),
    ("root-of-square", "sqrt(a * a) == abs(a)", "range-changing", "the square may overflow"),
    ("greater-as-less", "(a > b) == (b < a)", "exact", "two words for one comparison"),
    ("greater-equal-as-less-equal", "(a >= b) == (b <= a)", "exact", "two words for one comparison"),
    (
        "exp-of-sum",
        "exp(a + b) == exp(a) * exp(b)",
        "range-changing",
        "the functional equation of exp; one factor may overflow where the product does not",
    ),
    (
        "product-of-exps",
        "exp(a) * exp(b) == exp(a + b)",
        "range-changing",
        "the functional equation of exp; one factor may overflow where the product does not",
    ),
    ("maxima-of-maximum", "max(maximum(a, b)) == maximum(max(a), max(b))", "reassociating", "maxima part"),
    (
        "maximum-of-maxima",
        "maximum(max(a), max(b)) == max(maximum(a, b))",
        "reassociating",
        "maxima join; another zero of several may win",
    ),
)

ARITHMETIC: tuple[Rule, ...] = (
    *(row for word, e in arithmetic.COMMUTATIVE.items() for row in e.orient("right", f"commute-{word}", why=_COMMUTE)),
    *(
        row
        for word, text, numerics in _OTHERS
        for row in rules(f"commute-{word}", text, numerics=numerics, source=_AXIOMS, why=_COMMUTE)
    ),
    *(
        row
        for word, e in arithmetic.ASSOCIATIVE.items()
        for row in e.orient("right", f"associate-{word}", why=_ASSOCIATE)
    ),
    *(
        row
        for word in ("minimum", "maximum")
        for row in rules(
            f"associate-{word}",
            f"{word}({word}(a, b), c) == {word}(a, {word}(b, c))",
            source=_AXIOMS,
            why=_ASSOCIATE,
        )
    ),
    *arithmetic.DISTRIBUTIVE.orient("right", "distribute-product", why="a product over a sum"),
    *arithmetic.DISTRIBUTIVE.orient("left", "factor-product", why="a shared factor taken out"),
    *arithmetic.DIFFERENCE.orient("right", "difference-as-sum", why="one operator for both"),
    *arithmetic.DIFFERENCE.orient("left", "sum-as-difference", why="one operator for both"),
    *rules(
        "quotient-as-product",
        "a / b == a * reciprocal(b)",
        when="floating(dtype(a))",
        numerics="reassociating",
        source=_AXIOMS,
        why="one operator for both; whole numbers have no reciprocals",
    ),
    *(
        row
        for name, text, numerics, why in _SINGLE
        for row in rules(name, text, numerics=numerics, source=f"{_AXIOMS}; {_SIMPLIFIER}", why=why)
    ),
)

PRODUCTS: tuple[Rule, ...] = (
    *products.ASSOCIATIVE.orient("right", "matmul-any-bracket-right", mirror=True, why=_ASSOCIATE),
    *products.OVER_SUM.orient(
        "right",
        "sum-through-matmul",
        mirror="sum-under-matmul",
        viewed="viewed-sum-through-matmul",
        why="a product over a sum, also over windows of one",
    ),
    *rules(
        "sign-out-of-left-factor",
        "(-a) @ b == -(a @ b)",
        mirror=True,
        numerics="reassociating",
        source=_AXIOMS,
        why="a sign moves out",
    ),
    *rules(
        "matmul-as-transposed",
        'a @ b == (b["b k n -> b n k"] @ a["b m k -> b k m"])["b n m -> b m n"]',
        source=_AXIOMS,
        why="products written either way round meet",
    ),
    *products.ROWS_SCALED.orient(
        "right",
        "row-scale-out-of-left-factor",
        mirror="column-scale-out-of-right-factor",
        why="scales of rows move out of a product",
    ),
    *products.OVER_SCALE.orient(
        "right", "scale-out-of-left-factor", mirror=True, why="a scalar moves out of a product"
    ),
    *products.OVER_SCALE.orient(
        "left", "scale-into-left-factor", mirror="scale-into-right-factor", why="a scalar moves into a product"
    ),
    *rules(
        "matmul-of-kept-rows",
        "a @ b[L] == a[La].reshape(B, M, P) @ b[Lb].reshape(B, P, N)",
        when="(La, Lb, P) = kept_rows(L, B, M, K, N)",
        numerics="range-changing",
        source="Ding et al., RepVGG (CVPR 2021): a small window is a large one with zeros around it",
        why="rows of zeros add nothing: parallel convolutions meet the one that took them in",
    ),
    *rules(
        "matmul-of-diagonal",
        "a.reshape(B, M, N) @ b[L].reshape(B, N, N) == a * b[R]",
        when="R = diagonal(L, B, M, N)",
        numerics="range-changing",
        source="Ding et al., RepVGG (CVPR 2021): a scaled copy is a convolution by a diagonal matrix",
        why="a product with a diagonal matrix scales columns",
    ),
    *normalisation.WEIGHTS_OF_ONE.orient(
        "right",
        viewed="viewed-bias-past-weights-of-one",
        why="a weighted mean of shifted rows is shifted alike, also where heads are split off in between",
    ),
)

CONTRACTIONS: tuple[Rule, ...] = (
    *reductions.SUM_OF_PRODUCTS.orient(
        "right", "sum-of-products-with-broadcast", why="a weighted sum of rows is a product with a vector"
    ),
    *rules(
        "sum-of-products-of-broadcast",
        "sum(b[L2] * a[L1?]) == (a[La].reshape(B, M, K) @ b[Lb].reshape(B, K, N))[W]",
        when="(La, Lb, B, M, K, N, W) = contraction(L1, L2, size(self), C)",
        numerics="reassociating",
        source="MIGraphX rewrite_reduce: skinny dots, read backwards",
        why="a weighted sum of rows is a product with a vector",
    ),
)

REDUCTIONS: tuple[Rule, ...] = (
    *(
        row
        for word, fn, numerics in reductions.REDUCTIONS
        for row in rules(
            f"{word}-in-order",
            f"{fn}(a[L]) == {fn}(a[L1].reshape(..., C))",
            when="L1 = in_order(L, C)",
            numerics=numerics,
            source=_AXIOMS,
            why="a reduction does not mind the order of what it reduces: differently transposed rows meet",
        )
    ),
    *reductions.SUM_OF_SUMS.orient("right", "sum-of-any-sum", why="a sum splits over a sum"),
    *reductions.SUM_OF_SUMS.orient("left", "sum-of-sums", why="sums of equal lengths join"),
)

VIEWS: tuple[Rule, ...] = (
    *views.OF_UNARY.orient("right", "view-into-unary", why="order does not matter"),
    *views.OF_UNARY.orient("left", "view-out-of-unary", why="order does not matter"),
    *views.OF_BINARY.orient("right", "view-into-binary", why="order does not matter"),
    *views.OF_BINARY.orient("left", "view-out-of-binary", why="order does not matter"),
    *views.OF_WHERE.orient("right", "view-into-where", why="order does not matter"),
    *(
        row
        for name, text in (
            ("view-out-of-function-with-number", "f(a[L], v) == f(a, v)[L]"),
            ("view-out-of-function-of-number-and", "f(v, a[L]) == f(v, a)[L]"),
        )
        for row in rules(
            name, text, numbers="v", when="plain(L)", source=_SIMPLIFIER, why="order does not matter to a number"
        )
    ),
    *views.OF_REDUCTION.orient("right", "view-into-reduction", why="whole rows move"),
)

RULES: tuple[Rule, ...] = ARITHMETIC + PRODUCTS + CONTRACTIONS + REDUCTIONS + VIEWS
