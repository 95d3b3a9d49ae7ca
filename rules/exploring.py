"""Rules for proving and exploring only: unguarded, in both directions, without regard to what they cost.

Optimising never uses them: commutativity with associativity and distribution does not saturate. A proof stops as soon
as both sides meet, which small programs do long before the e-graph grows out of hand.
"""

from __future__ import annotations

from eqsat.language.equation import equation, lines, rules
from eqsat.language.rule import Rule
from eqsat.rules import arithmetic, normalisation, products, reductions, views

_AXIOMS = "TASO (SOSP 2019), axioms of elementwise operators and matmul"
_SIMPLIFIER = "XLA AlgebraicSimplifier, as written down by TensorRight (POPL 2025)"
_BOTH = f"{_AXIOMS}; {_SIMPLIFIER}"

_COMMUTE = "operands in any order; of two zeros the first is the minimum and the maximum"
_ASSOCIATE = "brackets in any place"
_NOTHING = "blocks of zeros add nothing: a block-diagonal product is one for each block"
_FACTORS = "the functional equation of exp; one factor may overflow where the product does not"

_NEGATED = equation("negated-product", "-(a * b) == (-a) * b", source=_BOTH)
_POWER = equation("power-of-sum", "exp(a + b) == exp(a) * exp(b)", numerics="range-changing", source=_BOTH)
_MAXIMA = equation(
    "maxima-part", "max(maximum(a, b)) == maximum(max(a), max(b))", numerics="reassociating", source=_BOTH
)

ARITHMETIC: tuple[Rule, ...] = (
    *(row for word, e in arithmetic.COMMUTATIVE.items() for row in e.orient("right", f"commute-{word}", why=_COMMUTE)),
    *(
        row
        for word, e in arithmetic.ASSOCIATIVE.items()
        for row in e.orient("right", f"associate-{word}", why=_ASSOCIATE)
    ),
    *lines(
        ("associate-minimum", "minimum(minimum(a, b), c) == minimum(a, minimum(b, c))", "exact", _AXIOMS, _ASSOCIATE),
        ("associate-maximum", "maximum(maximum(a, b), c) == maximum(a, maximum(b, c))", "exact", _AXIOMS, _ASSOCIATE),
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
    *lines(("negate-sum", "-(a + b) == -a + -b", "reassociating", _BOTH, "a sign moves into a sum; -(1 - 1) is -0")),
    *_NEGATED.orient("right", "negate-product", why="a sign moves into a product"),
    *_NEGATED.orient("left", "product-of-negated", why="a sign moves out of a product"),
    *lines(
        ("root-of-square", "sqrt(a * a) == abs(a)", "range-changing", _BOTH, "the square may overflow"),
        ("greater-as-less", "(a > b) == (b < a)", "exact", _BOTH, "two words for one comparison"),
        ("greater-equal-as-less-equal", "(a >= b) == (b <= a)", "exact", _BOTH, "two words for one comparison"),
    ),
    *_POWER.orient("right", "exp-of-sum", why=_FACTORS),
    *_POWER.orient("left", "product-of-exps", why=_FACTORS),
    *_MAXIMA.orient("right", "maxima-of-maximum", why="maxima part"),
    *_MAXIMA.orient("left", "maximum-of-maxima", why="maxima join; another zero of several may win"),
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
    *lines(
        ("product-with-zeros", "a @ 0 == 0", "range-changing", _AXIOMS, _NOTHING),
        ("product-of-zeros", "0 @ a == 0", "range-changing", _AXIOMS, _NOTHING),
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
        for word, e in views.WITH_NUMBER.items()
        for row in e.orient("right", f"view-out-of-{word}", source=_SIMPLIFIER, why="order does not matter to a number")
    ),
    *views.OF_REDUCTION.orient("right", "view-into-reduction", why="whole rows move"),
)

RULES: tuple[Rule, ...] = ARITHMETIC + PRODUCTS + CONTRACTIONS + REDUCTIONS + VIEWS
