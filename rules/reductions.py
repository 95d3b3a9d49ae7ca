"""Reductions: of reductions, of what repeats itself, of sums, scales and products.

A reduction over an axis along which its operand does not change is a multiple of the operand, a sum of broadcast
products is a matrix product, and reductions one after another are one. Sums of products move into factors in
`eqsat.rules.products`.
"""

from __future__ import annotations

from eqsat.language.rule import Numerics, Rule, rule

_FUSED = "MIGraphX fuse_reduce"
_SIMPLIFIER = "XLA AlgebraicSimplifier, as written down by TensorRight (POPL 2025)"
_ROCMLIR = "rocMLIR RFC: reduction fusion for gemm-like kernels"

_NESTING: tuple[tuple[str, str, Numerics], ...] = (
    ("sum", "sum", "reassociating"),
    ("product", "prod_over", "reassociating"),
    ("maximum", "max_over", "exact"),
    ("minimum", "min_over", "exact"),
)

NESTED: tuple[Rule, ...] = tuple(
    row
    for word, fn, numerics in _NESTING
    for row in (
        rule(
            f"{word}-of-{word}",
            f"{fn}({fn}(a, C), D) => {fn}(a, C*D)",
            numerics=numerics,
            source=_FUSED,
            why="one reduction over both axes, in one pass",
        ),
        rule(
            f"{word}-of-permuted-{word}",
            f"{fn}(view({fn}(a, C), L), D) => {fn}(view(a, W), C*D)",
            worth="size(self)*C*D <= size(a)",
            when="W = widen(L, C)",
            numerics=numerics,
            source=_FUSED,
            why="one reduction over both axes, in one pass",
        ),
    )
)

REPEATED: tuple[Rule, ...] = (
    rule(
        "sum-of-repeated",
        "sum(view(a, L), C) => mul(sum(view(a, M), K), full(v, size(self), dtype(a)))",
        when="(M, K, R) = repeated(L, size(self), C); v = count_as(R, dtype(a))",
        numerics="reassociating",
        source=_SIMPLIFIER,
        why="what is added R times is multiplied by R",
        subsumes=True,
    ),
    *(
        rule(
            f"{word}-of-repeated",
            f"{fn}(view(a, L), C) => {fn}(view(a, M), K)",
            when="(M, K, R) = repeated(L, size(self), C)",
            source=_SIMPLIFIER,
            why="looking at one thing several times does not change the extreme",
        )
        for word, fn in (("maximum", "max_over"), ("minimum", "min_over"))
    ),
    *(
        rule(
            f"{word}-over-one",
            f"{fn}(a, 1) => a",
            source="definition of a reduction",
            why="there is nothing to reduce",
            subsumes=True,
        )
        for word, fn in (("product", "prod_over"), ("maximum", "max_over"), ("minimum", "min_over"))
    ),
)

_MULTIPLE = "mul(view(b, W), full(v, size(self), dtype(b)))"

BESIDE: tuple[Rule, ...] = tuple(
    rule(
        f"sum-of-{permuted}repeated-{word}",
        f"sum({inner.format(sum=text)}, C) => {right}",
        worth="dynamic(b)",
        when=f"W = {table}; v = count_as(C, dtype(b))",
        numerics="reassociating",
        source=_SIMPLIFIER,
        why="what is the same along the sum is a multiple beside it",
    )
    for permuted, inner, addend, table in (
        ("", "{sum}", "sum(a, C)", "constant_along(L, size(self), C)"),
        ("permuted-", "view({sum}, P)", "sum(view(a, P), C)", "repeated_through(L, P, size(self), C)"),
    )
    for word, text, right in (
        ("addend", "add(a, view(b, L))", f"add({addend}, {_MULTIPLE})"),
        ("first-addend", "add(view(b, L), a)", f"add({_MULTIPLE}, {addend})"),
        ("subtrahend", "sub(a, view(b, L))", f"sub({addend}, {_MULTIPLE})"),
        ("minuend", "sub(view(b, L), a)", f"sub({_MULTIPLE}, {addend})"),
    )
)

SCALED: tuple[Rule, ...] = (
    rule(
        "scale-into-sum",
        "mul(sum(a, C), full(v, n, t)) => sum(mul(a, full(v, size(a), t)), C)",
        worth="dynamic(a)",
        when="finite(v)",
        numerics="reassociating",
        source=_ROCMLIR,
        why="a product that is reduced where it is computed has no epilogue after the sum: a mean scales before it",
    ),
)

CONTRACTIONS: tuple[Rule, ...] = (
    rule(
        "sum-of-broadcast-products",
        "sum(mul(view(a, L1), view(b, L2)), C) => view(mm(view(a, La), view(b, Lb), B, M, K, N), W)",
        worth="dynamic(self)",
        when="(La, Lb, B, M, K, N, W) = contraction(L1, L2, size(self), C)",
        numerics="reassociating",
        source="MIGraphX rewrite_reduce: skinny dots, read backwards",
        why="a sum of broadcast products is a matrix product: tiles are read once instead of once for every output",
    ),
)

RULES: tuple[Rule, ...] = NESTED + REPEATED + BESIDE + SCALED + CONTRACTIONS
