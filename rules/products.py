"""Products: association, distribution, scaling, views and sums of them.

Unguarded commutativity, associativity and distribution do not saturate. What is needed is association that saves work
or meets constants, and distribution that folds a constant ahead of time (each found by taking it away from the
motivating programs); orders of longer chains come from `matmul-chain`, which solves them by dynamic programming.
"""

from __future__ import annotations

from eqsat.language.equation import equation, rules
from eqsat.language.rule import Rule
from eqsat.rules.reductions import SUM_OF_SCALED, SUM_OF_SUMS

_M2818 = "MIGraphX issue 2818"
_M3250 = "MIGraphX issue 3250"
_ALGEBRA = "MIGraphX simplify_algebra"
_TASO = "TASO (SOSP 2019), axioms of matmul"
_IREE = "IREE: permute elementwise operations to make fusions better"
_AROUND = "AB + AC = A(B + C), with another addend between them"
_ROCMLIR = "rocMLIR RFC: reduction fusion for gemm-like kernels"

ASSOCIATIVE = equation("matmul-associative", "(a @ b) @ c == a @ (b @ c)", numerics="reassociating", source=_TASO)
OVER_SUM = equation(
    "matmul-over-sum",
    "(a + b)[L?] @ c == a[L?] @ c + b[L?] @ c",
    when="keeps_sums(L)",
    numerics="reassociating",
    source=_TASO,
)
OVER_DIFFERENCE = equation(
    "matmul-over-difference", "(a - b) @ c == a @ c - b @ c", numerics="reassociating", source=_TASO
)
OVER_SCALE = equation(
    "matmul-over-scale",
    "(a * v) @ b == (a @ b) * v",
    numbers="v",
    when="finite(v)",
    numerics="reassociating",
    source=_TASO,
)

ROWS_SCALED, ROW_SCALES_FIRST = (
    equation(
        name,
        f"({scaled}) @ b == (a @ b) * s[W]",
        when='W = along(L, "b m k -> b m n")',
        numerics="reassociating",
        source=f"{_ALGEBRA}: dot-mul",
    )
    for name, scaled in (("row-scale-through-matmul", "a * s[L]"), ("first-row-scale-through-matmul", "s[L] * a"))
)

ASSOCIATION: tuple[Rule, ...] = (
    *ASSOCIATIVE.orient(
        "right",
        "matmul-of-constants-right",
        mirror=True,
        worth="const(b); const(c)",
        source=_M2818,
        why="two constant factors are one constant, folded ahead of time; whether it pays is a matter of price",
    ),
    # Products of constants are not taken apart: a number may come out of one factor and go into another for ever.
    *(
        row
        for of, varies in (("", "dynamic(a)"), ("-of-constant", "const(a); dynamic(b)"))
        for row in ASSOCIATIVE.orient(
            "right",
            f"matmul-associate-right{of}",
            mirror=True,
            worth=f"K*N*P + M*K*P < M*K*N + M*N*P; {varies}",
            why="the other order takes fewer multiplications",
        )
    ),
    *ASSOCIATIVE.orient(
        "right",
        "matmul-associate-towards-constant-right",
        mirror=True,
        worth="const(c); dynamic(b); K*N*P + M*K*P == M*K*N + M*N*P",
        source=_M2818,
        why="at the same work, a constant factor moves next to one that it may fold into",
    ),
)

_FEWER = "K*N*P + M*K*P < M*K*N + M*N*P"
_FEWER_BEHIND_FIRST = "N*K*P + M*N*P < M*N*K + M*K*P"
"""The same with the dims as they are named where something else comes first."""

ASSOCIATION_ACROSS: tuple[Rule, ...] = tuple(
    row
    for name, stated, when, worth in (
        ("sign", "(-(a @ b)) @ c == -(a @ (b @ c))", "", _FEWER),
        ("inner-scale", "((a @ b) * s[L]) @ c == a @ (b @ (c * s[W]))", 'W = along(L, "b m n -> b n p")', _FEWER),
        (
            "first-inner-scale",
            "(s[L] * (a @ b)) @ c == a @ (b @ (c * s[W]))",
            'W = along(L, "b m k -> b k p")',
            _FEWER_BEHIND_FIRST,
        ),
    )
    for row in rules(
        f"matmul-associate-across-{name}",
        stated,
        mirror=f"matmul-associate-across-mirrored-{name}",
        worth=f"{worth}; dynamic(a)",
        when=when,
        numerics="reassociating",
        source=_TASO,
        why="what stands between two products hides that the other order takes fewer multiplications",
    )
)

DISTRIBUTION: tuple[Rule, ...] = (
    *OVER_SUM.orient(
        "right",
        "constant-addend-through-matmul",
        mirror="constant-addend-under-matmul",
        viewed="constant-addend-through-matmul-behind-view",
        worth="const(b); const(c); dynamic(a)",
        source=f"{_M2818}; {_ALGEBRA}: dot-add, conv-add",
        why="a constant bias times a constant is a constant bias, also behind the windows of a convolution",
    ),
    *(
        row
        for name, stated in (("sum", OVER_SUM), ("difference", OVER_DIFFERENCE))
        for row in stated.orient(
            "left",
            f"factor-{name}-of-matmuls-with-one-right",
            mirror=True,
            source=f"{_M3250}; {_TASO}",
            why="AC + BC = (A + B)C: one product instead of two",
        )
    ),
    *(
        row
        for name, sums in (
            ("of-sums", "(x + a @ b) + a @ c"),
            ("behind-constant", "(a @ b + x) + a @ c"),
            ("before-constant", "a @ c + (a @ b + x)"),
            ("before-sums", "a @ c + (x + a @ b)"),
        )
        for row in rules(
            f"factor-sum-{name}-left",
            f"{sums} == a @ (b + c) + x",
            mirror=True,
            numerics="reassociating",
            source=_M3250,
            why=_AROUND,
        )
    ),
)

SCALING: tuple[Rule, ...] = (
    *OVER_SCALE.orient(
        "left",
        "scalar-into-constant-left",
        mirror=True,
        worth="const(a); dynamic(b)",
        source=f"{_ALGEBRA}: mul-dot",
        why="a scale of a product folds into its constant factor",
    ),
    *OVER_SCALE.orient(
        "right",
        "scalar-through-matmul-left",
        mirror=True,
        worth="dynamic(a); dynamic(b); M*N <= M*K",
        source=f"{_ALGEBRA}: dot-mul",
        why="a scale moves to the smaller side of a product, where an epilogue takes it for nothing",
    ),
    *rules(
        "column-scale-into-constant",
        "(a @ b) * s[L] == a @ (b * s[W])",
        mirror="row-scale-into-constant",
        worth="const(b); const(s); dynamic(a)",
        when='W = along(L, "b m n -> b k n")',
        numerics="reassociating",
        source=f"{_ALGEBRA}: mul-dot",
        why="a constant scale of each column of a product folds into its constant right factor",
    ),
    *rules(
        "inner-scale-into-constant",
        "(a * s[L?]) @ b == a @ (b * s[W])",
        viewed="inner-scale-into-constant-behind-view",
        mirror="inner-scale-into-constant-left",
        worth="const(b); const(s); dynamic(a)",
        when='W = along(L, "b m k -> b k n")',
        numerics="reassociating",
        source=f"{_ALGEBRA}: dot-mul",
        why="a constant scale along the summed axis folds into the constant factor",
    ),
    *rules(
        "number-into-constant-right",
        "(a * v) @ b == a @ (b * v)",
        numbers="v",
        mirror=True,
        worth="const(b); dynamic(a)",
        numerics="reassociating",
        source=f"{_ALGEBRA}: dot-mul",
        why="a scale of what a constant is multiplied with folds into the constant",
    ),
    *rules(
        "number-into-constant-right-behind-view",
        "(a * v)[L] @ b == a[L] @ (b * v)",
        numbers="v",
        mirror=True,
        worth="const(b); dynamic(a)",
        when="finite(v); keeps_sums(L)",  # an infinity times the zeros that the view fills with is NaN
        numerics="reassociating",
        source=f"{_ALGEBRA}: mul-conv",
        why="a scale of what a constant is multiplied with folds into the constant",
    ),
    *(
        row
        for stated in (ROWS_SCALED, ROW_SCALES_FIRST)
        for row in stated.orient(
            "right",
            stated.name,
            mirror=stated.name.replace("row", "column"),
            worth="dynamic(a); N <= K",
            why="a scale of each row moves behind the product, where an epilogue takes it for nothing",
        )
    ),
)

SHAPES: tuple[Rule, ...] = (
    *rules(
        "transpose-of-matmul",
        '(a @ b)["b m n -> b n m"] == b["b k n -> b n k"] @ a["b m k -> b k m"]',
        source=f"{_IREE}; {_TASO}",
        why="the product is written transposed instead of being transposed after",
    ),
    *rules(
        "transpose-of-blocks-of-matmul",
        "(a.reshape(1, M, K) @ b.reshape(1, K, N))[L] == b[Lb].reshape(P, N, K) @ a[La].reshape(P, K, Q)",
        worth="dynamic(self)",
        when="(Lb, La, P, Q) = swaps_blocks(L, M, K, N)",
        source="MIGraphX rewrite_dot: 1x1 convolutions",
        why="a convolution over channels writes its result where it belongs at once, image by image",
    ),
    *rules(
        "permuted-rows-through-matmul",
        "a.reshape(1, M, K)[L].reshape(1, M, K) @ b == (a.reshape(1, M, K) @ b)[W]",
        worth="dynamic(a)",
        when="W = permutes_rows(L, size(a), M, K, N)",
        source="Swin's windows: the view of rows moves behind the product",
        why="rows are written where they belong, and the product may follow what makes them",
    ),
    *rules(
        "view-of-matmul-narrows",
        "(a @ b)[L] == (a[La].reshape(B1, M1, K) @ b[Lb].reshape(B1, K, N1))[R]",
        worth="dynamic(self)",
        when="(La, Lb, B1, M1, N1, R) = narrow_product(L, B, M, K, N)",
        source=f"{_M2818}; {_ALGEBRA}: dot-slice",
        why="only the rows, columns and batches that are read are computed",
    ),
    *rules(
        "matmul-of-repeated-rows",
        'a[L] @ b == (a[L1] @ b)["b 1 n -> b m n"]',
        mirror="matmul-of-repeated-columns",
        worth="1 < M",
        when='L1 = along(L, "b m k -> b 1 k")',
        source=f"{_ALGEBRA}: dot-broadcast",
        why="equal rows give equal rows: compute one",
    ),
    *rules(
        "matmul-of-left-repeated-inside",
        "a[L] @ b == a[La].reshape(B, M, P) @ sum(b[Lb].reshape(B, P, N, R))",
        mirror=True,
        worth="dynamic(self)",
        when="(La, Lb, P, R) = repeated_inner(L, B, M, K, N)",
        numerics="reassociating",
        source="MIGraphX simplify_algebra: conv-broadcast",
        why="what meets the same factor is added first: a convolution of a repeated image is one product",
    ),
    *rules(
        "matmul-of-shared-right",
        "a @ b[L] == a.reshape(1, B*M, K) @ b[L1]",
        worth="1 < B",
        when='L1 = along(L, "b k n -> k n")',
        source=f"{_ALGEBRA}: dot-broadcast",
        why="a batch that shares its right factor is one tall product",
    ),
    *rules(
        "matmul-of-shared-left",
        'a[L] @ b == (a[L1] @ b["b k n -> k (b n)"])["m (b n) -> b m n"]',
        worth="1 < B",
        when='L1 = along(L, "b m k -> m k")',
        source="MIGraphX horizontal fusion of dots that share an input",
        why="a batch that shares its left factor is one wide product",
    ),
)

SUMS: tuple[Rule, ...] = (
    *rules(
        "sum-of-matmul",
        "sum((a @ b)[L?]) == (sum(a[La].reshape(B1, M1, K1, P)) @ sum(b[Lb].reshape(B1, K1, N1, Q)))[W]",
        viewed="sum-of-permuted-matmul",
        worth="dynamic(self)",
        when="(La, P, Lb, Q, B1, M1, K1, N1, W) = sum_of_product(L, C, B, M, K, N)",
        numerics="reassociating",
        source=_ROCMLIR,
        why="sums over rows, columns and batches of a product move into its factors: a gemm becomes a gemv",
    ),
    *SUM_OF_SUMS.orient(
        "right",
        "sum-of-constant-addend",
        viewed="sum-of-permuted-constant-addend",
        worth="const(b); dynamic(a)",
        why="a sum splits over a sum, so that a product can take its part",
    ),
    *(
        row
        for name, addends in (("matmul-and-addend", "a @ b + c"), ("addend-and-matmul", "c + a @ b"))
        for row in rules(
            f"sum-of-{name}",
            f"sum(({addends})[L?]) == sum((a @ b)[L?]) + sum(c[L?])",
            viewed=f"sum-of-permuted-{name}",
            worth="dynamic(c)",
            when="plain(L)",
            numerics="reassociating",
            source=_ROCMLIR,
            why="a sum splits over a sum, so that a product can take its part",
        )
    ),
    *SUM_OF_SCALED.orient(
        "right",
        "sum-of-scaled",
        viewed="sum-of-permuted-scaled",
        worth="dynamic(a)",
        why="a scale moves out of a sum, where there is less of it",
    ),
    *(
        row
        for name, scaled in (("row-scaled", "a * s[L]"), ("row-scaled-before", "s[L] * a"))
        for row in rules(
            f"sum-of-{name}",
            f"sum({scaled}) == sum(a) * s[W]",
            worth="dynamic(a)",
            when='W = along(L, "r c -> r", r=size(self))',
            numerics="reassociating",
            source=_ROCMLIR,
            why="a factor that the sum does not walk moves out of it",
        )
    ),
)

RULES: tuple[Rule, ...] = ASSOCIATION + ASSOCIATION_ACROSS + DISTRIBUTION + SCALING + SHAPES + SUMS
