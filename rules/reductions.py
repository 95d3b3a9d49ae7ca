"""Reductions: of reductions, of what repeats itself, of sums, scales and products.

A reduction over an axis along which its operand does not change is a multiple of the operand, a sum of broadcast
products is a matrix product, and reductions one after another are one. Sums of products move into factors in
`eqsat.rules.products`.
"""

from __future__ import annotations

from eqsat.language.equation import equation, lines, rules
from eqsat.language.rule import Numerics, Rule

_FUSED = "MIGraphX fuse_reduce"
_SIMPLIFIER = "XLA AlgebraicSimplifier, as written down by TensorRight (POPL 2025)"
_DEFINED = "definition of a reduction"
_ROCMLIR = "rocMLIR RFC: reduction fusion for gemm-like kernels"

_AGAIN = "looking at one thing several times does not change the extreme"

SUM_OF_SUMS = equation(
    "sum-over-sum",
    "sum((a + b)[L?]) == sum(a[L?]) + sum(b[L?])",
    when="plain(L)",
    numerics="reassociating",
    source=_ROCMLIR,
)
SUM_OF_SCALED = equation(
    "sum-over-scale",
    "sum((a * v)[L?]) == sum(a[L?]) * v",
    numbers="v",
    when="finite(v); plain(L)",
    numerics="reassociating",
    source=_ROCMLIR,
)
SUM_OF_PRODUCTS = equation(
    "sum-of-products",
    "sum(a[L1?] * b[L2]) == (a[La].reshape(B, M, K) @ b[Lb].reshape(B, K, N))[W]",
    when="(La, Lb, B, M, K, N, W) = contraction(L1, L2, size(self), C)",
    numerics="reassociating",
    source="MIGraphX rewrite_reduce: skinny dots, read backwards",
)

REDUCTIONS: tuple[tuple[str, str, Numerics], ...] = (
    ("sum", "sum", "reassociating"),
    ("product", "prod", "reassociating"),
    ("maximum", "max", "exact"),
    ("minimum", "min", "exact"),
)
"""What a reduction gives, its name, and how reducing in another order rounds."""

NESTED: tuple[Rule, ...] = tuple(
    row
    for word, fn, numerics in REDUCTIONS
    for row in rules(
        f"{word}-of-{word}",
        f"{fn}({fn}(a)[L?]) == {fn}(a[W?].reshape(..., C*D))",
        viewed=f"{word}-of-permuted-{word}",
        worth="size(self)*C*D <= size(a)",
        when="W = widen(L, C)",
        numerics=numerics,
        source=_FUSED,
        why="one reduction over both axes, in one pass",
    )
)

REPEATED: tuple[Rule, ...] = (
    *rules(
        "sum-of-repeated",
        "sum(a[L]) == sum(a[L1].reshape(..., K)) * v",
        numbers="v",
        when="(L1, K, R) = repeated(L, size(self), C); v = count_as(R, dtype(a))",
        numerics="reassociating",
        source=_SIMPLIFIER,
        why="what is added R times is multiplied by R",
        subsumes=True,
    ),
    *lines(
        ("maximum-of-repeated", "max(a[L]) == max(a[L1].reshape(..., K))", "exact", _SIMPLIFIER, _AGAIN),
        ("minimum-of-repeated", "min(a[L]) == min(a[L1].reshape(..., K))", "exact", _SIMPLIFIER, _AGAIN),
        when="(L1, K, R) = repeated(L, size(self), C)",
    ),
    *lines(
        ("product-over-one", "prod(a.reshape(..., 1)) == a", "exact", _DEFINED, "there is nothing to reduce"),
        ("maximum-over-one", "max(a.reshape(..., 1)) == a", "exact", _DEFINED, "there is nothing to reduce"),
        ("minimum-over-one", "min(a.reshape(..., 1)) == a", "exact", _DEFINED, "there is nothing to reduce"),
        subsumes=True,
    ),
)

BESIDE: tuple[Rule, ...] = tuple(
    row
    for word, inner, outer in (
        ("addend", "a + b[L]", "sum(a[P?]) + b[W] * v"),
        ("first-addend", "b[L] + a", "b[W] * v + sum(a[P?])"),
        ("subtrahend", "a - b[L]", "sum(a[P?]) - b[W] * v"),
        ("minuend", "b[L] - a", "b[W] * v - sum(a[P?])"),
    )
    for row in rules(
        f"sum-of-repeated-{word}",
        f"sum(({inner})[P?]) == {outer}",
        numbers="v",
        viewed=f"sum-of-permuted-repeated-{word}",
        worth="dynamic(b)",
        when='L1 = compose(L, P); W = along(L1, "r c -> r", r=size(self)); v = count_as(C, dtype(b)); plain(P)',
        numerics="reassociating",
        source=_SIMPLIFIER,
        why="what is the same along the sum is a multiple beside it",
    )
)

SCALED: tuple[Rule, ...] = SUM_OF_SCALED.orient(
    "left",
    "scale-into-sum",
    worth="dynamic(a)",
    why="a product that is reduced where it is computed has no epilogue after the sum: a mean scales before it",
)

CONTRACTIONS: tuple[Rule, ...] = SUM_OF_PRODUCTS.orient(
    "right",
    viewed="sum-of-broadcast-products",
    worth="dynamic(self)",
    why="a sum of broadcast products is a matrix product: tiles are read once instead of once for every output",
)

RULES: tuple[Rule, ...] = NESTED + REPEATED + BESIDE + SCALED + CONTRACTIONS
