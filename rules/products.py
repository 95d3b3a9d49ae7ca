"""Products: association, distribution, scaling, views and sums of them.

Unguarded commutativity, associativity and distribution do not saturate. What is needed is association that saves work
or meets constants, and distribution that folds a constant ahead of time (each found by taking it away from the
motivating programs); orders of longer chains come from `matmul-chain`, which solves them by dynamic programming.
"""

from __future__ import annotations

from eqsat.language.rule import Rule, rule

_M2818 = "MIGraphX issue 2818"
_ALGEBRA = "MIGraphX simplify_algebra"
_TASO = "TASO (SOSP 2019), axioms of matmul"
_IREE = "IREE: permute elementwise operations to make fusions better"
_ROCMLIR = "rocMLIR RFC: reduction fusion for gemm-like kernels"

_RIGHT = "mm(mm(a, b, B, M, K, N), c, B, M, N, P) => mm(a, mm(b, c, B, K, N, P), B, M, K, P)"
_LEFT = "mm(a, mm(b, c, B, K, N, P), B, M, K, P) => mm(mm(a, b, B, M, K, N), c, B, M, N, P)"

ASSOCIATION: tuple[Rule, ...] = (
    rule(
        "matmul-of-constants-right",
        _RIGHT,
        when="const(b); const(c)",
        numerics="reassociating",
        source=_M2818,
        why="two constant factors are one constant, folded ahead of time; whether it pays is a matter of price",
    ),
    rule(
        "matmul-of-constants-left",
        _LEFT,
        when="const(a); const(b)",
        numerics="reassociating",
        source=_M2818,
        why="two constant factors are one constant, folded ahead of time; whether it pays is a matter of price",
    ),
    *(
        rule(
            f"matmul-associate-{side}{of}",
            text,
            worth=f"{work}; {varies}",
            numerics="reassociating",
            source=_TASO,
            why="the other order takes fewer multiplications",
        )
        # Products of constants are not taken apart: a number may come out of one factor and go into another for ever.
        for side, text, work, first, second in (
            ("right", _RIGHT, "K*N*P + M*K*P < M*K*N + M*N*P", "a", "b"),
            ("left", _LEFT, "M*K*N + M*N*P < K*N*P + M*K*P", "c", "b"),
        )
        for of, varies in (("", f"dynamic({first})"), ("-of-constant", f"const({first}); dynamic({second})"))
    ),
    rule(
        "matmul-associate-towards-constant-right",
        _RIGHT,
        worth="const(c); dynamic(b); K*N*P + M*K*P == M*K*N + M*N*P",
        numerics="reassociating",
        source=_M2818,
        why="at the same work, a constant factor moves next to what it may fold into",
    ),
    rule(
        "matmul-associate-towards-constant-left",
        _LEFT,
        worth="const(a); dynamic(b); K*N*P + M*K*P == M*K*N + M*N*P",
        numerics="reassociating",
        source=_M2818,
        why="at the same work, a constant factor moves next to what it may fold into",
    ),
)

DISTRIBUTION: tuple[Rule, ...] = (
    rule(
        "constant-addend-through-matmul",
        "mm(add(a, b), c, B, M, K, N) => add(mm(a, c, B, M, K, N), mm(b, c, B, M, K, N))",
        when="const(b); const(c); dynamic(a)",
        numerics="reassociating",
        source=f"{_M2818}; {_ALGEBRA}: dot-add",
        why="a constant bias times a constant is a constant bias",
    ),
    rule(
        "constant-addend-under-matmul",
        "mm(c, add(a, b), B, M, K, N) => add(mm(c, a, B, M, K, N), mm(c, b, B, M, K, N))",
        when="const(b); const(c); dynamic(a)",
        numerics="reassociating",
        source=f"{_M2818}; {_ALGEBRA}: dot-add",
        why="a constant times a constant bias is a constant bias",
    ),
    *(
        rule(
            f"constant-addend-{where}-matmul-behind-view",
            text,
            worth="const(b); const(c); dynamic(a)",
            when="keeps_sums(L)",
            numerics="reassociating",
            source=f"{_M2818}; {_ALGEBRA}: conv-add",
            why="a constant bias behind a transpose, a slice or the windows of a convolution is a constant bias",
        )
        for where, text in (
            (
                "through",
                "mm(view(add(a, b), L), c, B, M, K, N)"
                " => add(mm(view(a, L), c, B, M, K, N), mm(view(b, L), c, B, M, K, N))",
            ),
            (
                "under",
                "mm(c, view(add(a, b), L), B, M, K, N)"
                " => add(mm(c, view(a, L), B, M, K, N), mm(c, view(b, L), B, M, K, N))",
            ),
        )
    ),
    *(
        rule(
            f"factor-{name}-of-matmuls-with-one-{side}",
            text.format(f=fn),
            numerics="reassociating",
            source="MIGraphX issue 3250; " + _TASO,
            why="AB + AC = A(B + C): one product instead of two",
        )
        for name, fn in (("sum", "add"), ("difference", "sub"))
        for side, text in (
            ("left", "{f}(mm(a, b, B, M, K, N), mm(a, c, B, M, K, N)) => mm(a, {f}(b, c), B, M, K, N)"),
            ("right", "{f}(mm(a, c, B, M, K, N), mm(b, c, B, M, K, N)) => mm({f}(a, b), c, B, M, K, N)"),
        )
    ),
    rule(
        "factor-sum-of-sums-left",
        "add(add(x, mm(a, b, B, M, K, N)), mm(a, c, B, M, K, N)) => add(x, mm(a, add(b, c), B, M, K, N))",
        numerics="reassociating",
        source="MIGraphX issue 3250",
        why="AB + AC = A(B + C), behind another addend",
    ),
    rule(
        "factor-sum-behind-constant-left",
        "add(add(mm(a, b, B, M, K, N), x), mm(a, c, B, M, K, N)) => add(mm(a, add(b, c), B, M, K, N), x)",
        numerics="reassociating",
        source="MIGraphX issue 3250",
        why="AB + AC = A(B + C), behind another addend",
    ),
    rule(
        "factor-sum-before-constant-left",
        "add(mm(a, c, B, M, K, N), add(mm(a, b, B, M, K, N), x)) => add(mm(a, add(c, b), B, M, K, N), x)",
        numerics="reassociating",
        source="MIGraphX issue 3250",
        why="AB + AC = A(B + C), before another addend",
    ),
)

SCALING: tuple[Rule, ...] = (
    rule(
        "scalar-into-constant-right",
        "mul(mm(a, b, B, M, K, N), full(v, n, t)) => mm(a, mul(b, full(v, size(b), t)), B, M, K, N)",
        when="finite(v); const(b); dynamic(a)",
        numerics="reassociating",
        source=f"{_ALGEBRA}: mul-dot",
        why="a scale of a product folds into its constant factor",
    ),
    rule(
        "scalar-into-constant-left",
        "mul(mm(a, b, B, M, K, N), full(v, n, t)) => mm(mul(a, full(v, size(a), t)), b, B, M, K, N)",
        when="finite(v); const(a); dynamic(b)",
        numerics="reassociating",
        source=f"{_ALGEBRA}: mul-dot",
        why="a scale of a product folds into its constant factor",
    ),
    rule(
        "scalar-through-matmul-left",
        "mm(mul(a, full(v, n, t)), b, B, M, K, N) => mul(mm(a, b, B, M, K, N), full(v, size(self), t))",
        worth="dynamic(a); dynamic(b); M*N <= M*K",
        when="finite(v)",
        numerics="reassociating",
        source=f"{_ALGEBRA}: dot-mul",
        why="a scale moves to the smaller side of a product, where an epilogue takes it for nothing",
    ),
    rule(
        "scalar-through-matmul-right",
        "mm(a, mul(b, full(v, n, t)), B, M, K, N) => mul(mm(a, b, B, M, K, N), full(v, size(self), t))",
        worth="dynamic(a); dynamic(b); M*N <= K*N",
        when="finite(v)",
        numerics="reassociating",
        source=f"{_ALGEBRA}: dot-mul",
        why="a scale moves to the smaller side of a product, where an epilogue takes it for nothing",
    ),
    rule(
        "column-scale-into-constant",
        "mul(mm(a, b, B, M, K, N), view(s, L)) => mm(a, mul(b, view(s, W)), B, M, K, N)",
        when="const(b); const(s); dynamic(a); W = right_column_scale(L, B, M, K, N)",
        numerics="reassociating",
        source=f"{_ALGEBRA}: mul-dot",
        why="a constant scale of each column of a product folds into its constant right factor",
    ),
    rule(
        "row-scale-into-constant",
        "mul(mm(a, b, B, M, K, N), view(s, L)) => mm(mul(a, view(s, W)), b, B, M, K, N)",
        when="const(a); const(s); dynamic(b); W = left_row_scale(L, B, M, K, N)",
        numerics="reassociating",
        source=f"{_ALGEBRA}: mul-dot",
        why="a constant scale of each row of a product folds into its constant left factor",
    ),
    rule(
        "inner-scale-into-constant",
        "mm(mul(a, view(s, L)), b, B, M, K, N) => mm(a, mul(b, view(s, W)), B, M, K, N)",
        when="const(b); const(s); dynamic(a); W = k_scale(L, B, M, K, N)",
        numerics="reassociating",
        source=f"{_ALGEBRA}: dot-mul",
        why="a constant scale along the summed axis folds into the constant right factor",
    ),
    rule(
        "inner-scale-into-constant-left",
        "mm(a, mul(b, view(s, L)), B, M, K, N) => mm(mul(a, view(s, W)), b, B, M, K, N)",
        worth="const(a); const(s); dynamic(b)",
        when="W = left_k_scale(L, B, M, K, N)",
        numerics="reassociating",
        source=f"{_ALGEBRA}: dot-mul",
        why="a constant scale along the summed axis folds into the constant left factor",
    ),
    *(
        rule(
            f"number-into-constant-{where}",
            text,
            worth="const(b); dynamic(a)",
            when=guard,
            numerics="reassociating",
            source=f"{_ALGEBRA}: dot-mul, mul-conv",
            why="a scale of what a constant is multiplied with folds into the constant",
        )
        for where, guard, text in (
            (
                "right",
                "",
                "mm(mul(a, full(v, n, t)), b, B, M, K, N) => mm(a, mul(b, full(v, size(b), t)), B, M, K, N)",
            ),
            (
                "left",
                "",
                "mm(b, mul(a, full(v, n, t)), B, M, K, N) => mm(mul(b, full(v, size(b), t)), a, B, M, K, N)",
            ),
            (
                "right-behind-view",
                "finite(v); keeps_sums(L)",
                "mm(view(mul(a, full(v, n, t)), L), b, B, M, K, N)"
                " => mm(view(a, L), mul(b, full(v, size(b), t)), B, M, K, N)",
            ),
            (
                "left-behind-view",
                "finite(v); keeps_sums(L)",
                "mm(b, view(mul(a, full(v, n, t)), L), B, M, K, N)"
                " => mm(mul(b, full(v, size(b), t)), view(a, L), B, M, K, N)",
            ),
        )
    ),
    rule(
        "row-scale-through-matmul",
        "mm(mul(a, view(s, L)), b, B, M, K, N) => mul(mm(a, b, B, M, K, N), view(s, W))",
        worth="dynamic(a); N <= K",
        when="W = row_scale(L, B, M, K, N)",
        numerics="reassociating",
        source=f"{_ALGEBRA}: dot-mul",
        why="a scale of each row moves behind the product, where an epilogue takes it for nothing",
    ),
)

SHAPES: tuple[Rule, ...] = (
    rule(
        "transpose-of-matmul",
        "view(mm(a, b, B, M, K, N), L) => mm(view(b, Lb), view(a, La), B, N, K, M)",
        when="swaps(L, B, M, N); La = swap(B, M, K); Lb = swap(B, K, N)",
        source=_IREE + "; " + _TASO,
        why="the product is written transposed instead of being transposed after",
    ),
    rule(
        "transpose-of-blocks-of-matmul",
        "view(mm(a, b, 1, M, K, N), L) => mm(view(b, Lb), view(a, La), P, N, K, Q)",
        worth="dynamic(self)",
        when="(Lb, La, P, Q) = swaps_blocks(L, M, K, N)",
        source="MIGraphX rewrite_dot: 1x1 convolutions",
        why="a convolution over channels first writes what it computes where it belongs, image by image",
    ),
    rule(
        "view-of-matmul-narrows",
        "view(mm(a, b, B, M, K, N), L) => view(mm(view(a, La), view(b, Lb), B1, M1, K, N1), R)",
        when="dynamic(self); (La, Lb, B1, M1, N1, R) = narrow_product(L, B, M, K, N)",
        source=f"{_M2818}; {_ALGEBRA}: dot-slice",
        why="only the rows, columns and batches that are read are computed",
    ),
    rule(
        "matmul-of-repeated-rows",
        "mm(view(a, L), b, B, M, K, N) => view(mm(view(a, L1), b, B, 1, K, N), W)",
        when="(L1, W) = repeated_rows(L, B, M, K, N)",
        source=f"{_ALGEBRA}: dot-broadcast",
        why="equal rows give equal rows: compute one",
    ),
    rule(
        "matmul-of-repeated-columns",
        "mm(a, view(b, L), B, M, K, N) => view(mm(a, view(b, L1), B, M, K, 1), W)",
        when="(L1, W) = repeated_columns(L, B, M, K, N)",
        source=f"{_ALGEBRA}: dot-broadcast",
        why="equal columns give equal columns: compute one",
    ),
    *(
        rule(
            f"matmul-of-{side}-repeated-inside",
            text,
            worth="dynamic(self)",
            when=f"(La, Lb, P, R) = {table}(L, B, M, K, N)",
            numerics="reassociating",
            source="MIGraphX simplify_algebra: conv-broadcast",
            why="what meets the same factor is added first: a convolution of a repeated image is one product",
        )
        for side, text, table in (
            (
                "left",
                "mm(view(a, L), b, B, M, K, N) => mm(view(a, La), sum(view(b, Lb), R), B, M, P, N)",
                "repeated_inner",
            ),
            (
                "right",
                "mm(a, view(b, L), B, M, K, N) => mm(sum(view(a, La), R), view(b, Lb), B, M, P, N)",
                "repeated_inner_right",
            ),
        )
    ),
    rule(
        "matmul-of-shared-right",
        "mm(a, view(b, L), B, M, K, N) => mm(a, view(b, L1), 1, B*M, K, N)",
        when="L1 = repeated_batch(L, B, K, N)",
        source=f"{_ALGEBRA}: dot-broadcast",
        why="a batch that shares its right factor is one tall product",
    ),
    rule(
        "matmul-of-shared-left",
        "mm(view(a, L), b, B, M, K, N) => view(mm(view(a, L1), view(b, Lb), 1, M, K, B*N), W)",
        when="(L1, Lb, W) = shared_left(L, B, M, K, N)",
        source="MIGraphX horizontal fusion of dots that share an input",
        why="a batch that shares its left factor is one wide product",
    ),
)

SUMS: tuple[Rule, ...] = (
    rule(
        "sum-of-matmul",
        "sum(mm(a, b, B, M, K, N), C) => view(mm(sum(view(a, La), Ma), sum(view(b, Lb), Nb), B1, M1, K1, N1), W)",
        when="dynamic(self); (La, Ma, Lb, Nb, B1, M1, K1, N1, W) = sum_of_whole_product(C, B, M, K, N)",
        numerics="reassociating",
        source=_ROCMLIR,
        why="the sum over a product's columns is a product with the summed factor: a gemm becomes a gemv",
    ),
    rule(
        "sum-of-permuted-matmul",
        "sum(view(mm(a, b, B, M, K, N), L), C)"
        " => view(mm(sum(view(a, La), Ma), sum(view(b, Lb), Nb), B1, M1, K1, N1), W)",
        when="dynamic(self); (La, Ma, Lb, Nb, B1, M1, K1, N1, W) = sum_of_product(L, C, B, M, K, N)",
        numerics="reassociating",
        source=_ROCMLIR,
        why="sums over rows, columns and batches of a product move into its factors",
    ),
    *(
        rule(
            f"sum-of-{name}",
            f"sum({inner}, C) => {outer}",
            when=guard,
            numerics="reassociating",
            source=_ROCMLIR,
            why="a sum splits over a sum, so that a product can take its part",
        )
        for name, inner, outer, guard in (
            ("constant-addend", "add(a, b)", "add(sum(a, C), sum(b, C))", "const(b); dynamic(a)"),
            (
                "permuted-constant-addend",
                "view(add(a, b), L)",
                "add(sum(view(a, L), C), sum(view(b, L), C))",
                "const(b); dynamic(a); plain(L)",
            ),
            (
                "matmul-and-addend",
                "add(mm(a, b, B, M, K, N), c)",
                "add(sum(mm(a, b, B, M, K, N), C), sum(c, C))",
                "dynamic(c)",
            ),
            (
                "permuted-matmul-and-addend",
                "view(add(mm(a, b, B, M, K, N), c), L)",
                "add(sum(view(mm(a, b, B, M, K, N), L), C), sum(view(c, L), C))",
                "dynamic(c); plain(L)",
            ),
        )
    ),
    rule(
        "sum-of-scaled",
        "sum(mul(a, full(v, n, t)), C) => mul(sum(a, C), full(v, size(self), t))",
        when="finite(v); dynamic(a)",
        numerics="reassociating",
        source=_ROCMLIR,
        why="a scale moves out of a sum, where there is less of it",
    ),
    rule(
        "sum-of-permuted-scaled",
        "sum(view(mul(a, full(v, n, t)), L), C) => mul(sum(view(a, L), C), full(v, size(self), t))",
        when="finite(v); dynamic(a); plain(L)",
        numerics="reassociating",
        source=_ROCMLIR,
        why="a scale moves out of a sum, where there is less of it",
    ),
    rule(
        "sum-of-row-scaled",
        "sum(mul(a, view(s, L)), C) => mul(sum(a, C), view(s, W))",
        when="dynamic(a); W = constant_along(L, size(self), C)",
        numerics="reassociating",
        source=_ROCMLIR,
        why="a factor that the sum does not walk moves out of it",
    ),
)

RULES: tuple[Rule, ...] = ASSOCIATION + DISTRIBUTION + SCALING + SHAPES + SUMS
