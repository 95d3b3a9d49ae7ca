"""Views against views, elementwise operators and reductions.

Equal views meet in one class by construction (layouts are canonical), so there is no rule for any pair of transpose,
slice, broadcast, reshape and pad: they are all the first row here.
"""

from __future__ import annotations

from eqsat.language.rule import Rule, rule

_CORE = "the layout algebra of eqsat.layout.arithmetic"
_IREE = "IREE: permute elementwise operations to make fusions better"

RULES: tuple[Rule, ...] = (
    rule(
        "view-of-view",
        "view(view(a, L1), L2) => view(a, L)",
        when="L = compose(L1, L2)",
        source=_CORE,
        why="two index maps in a row are one index map",
    ),
    rule(
        "identity-view",
        "view(a, L) => a",
        when="is_identity(L, size(a))",
        source=_CORE,
        why="reading everything in order is reading the array",
        subsumes=True,
    ),
    rule(
        "view-of-constant-fill",
        "view(full(v, n, t), L) => full(v, size(self), t)",
        when="plain(L)",
        source=_CORE,
        why="a view of one repeated value repeats that value",
    ),
    rule(
        "view-of-unary",
        "view(un(f, a), L) => un(f, view(a, L))",
        worth="dynamic(a); size(self) < size(a)",
        when="keeps_fill(L, f)",
        source="MIGraphX simplify_reshapes; " + _IREE,
        why="compute only the elements that are read",
    ),
    rule(
        "view-of-binary",
        "view(bin(f, a, b), L) => bin(f, view(a, L), view(b, L))",
        worth="size(self) < size(a)",
        when="plain(L)",
        source="MIGraphX simplify_reshapes; " + _IREE,
        why="compute only the elements that are read",
    ),
    rule(
        "view-of-where",
        "view(where(c, a, b), L) => where(view(c, L), view(a, L), view(b, L))",
        worth="dynamic(self); size(self) < size(a)",
        when="plain(L)",
        source="MIGraphX simplify_reshapes",
        why="compute only the elements that are read",
    ),
    rule(
        "view-of-reduction",
        "view(red(f, a, C), L) => red(f, view(a, W), C)",
        worth="dynamic(a); size(self)*C < size(a)",
        when="W = widen(L, C)",
        source="MIGraphX simplify_reshapes",
        why="reduce only the rows that are read",
    ),
    rule(
        "unary-of-broadcast",
        "un(f, view(a, L)) => view(un(f, a), L)",
        worth="size(a) < size(self); dynamic(a)",
        when="plain(L)",
        source="MIGraphX inner-broadcast",
        why="compute once what is repeated",
    ),
    rule(
        "binary-of-broadcasts",
        "bin(f, view(a, L), view(b, L)) => view(bin(f, a, b), L)",
        worth="size(a) < size(self)",
        when="size(a) == size(b); plain(L)",
        source="MIGraphX inner-broadcast",
        why="compute once what is repeated",
    ),
    *(
        rule(
            f"{word}-of-broadcast",
            f"bin(f, {text}) => view(bin(f, {inner}), L)",
            worth="size(a) < size(self); dynamic(a)",
            when="plain(L)",
            source="MIGraphX inner-broadcast",
            why="compute once what is repeated",
        )
        for word, text, inner in (
            ("function-with-number", "view(a, L), full(v, n, t)", "a, full(v, size(a), t)"),
            ("function-of-number-and", "full(v, n, t), view(a, L)", "full(v, size(a), t), a"),
        )
    ),
    rule(
        "reduction-over-one",
        "sum(a, 1) => a",
        numerics="reassociating",
        source="definition of a sum",
        why="the sum of one element is that element; only the sign of a zero can change (0 + -0.0)",
        subsumes=True,
    ),
)
