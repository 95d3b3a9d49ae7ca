"""Views against views, elementwise operators and reductions.

Equal views meet in one class by construction (layouts are canonical), so there is no rule for any pair of transpose,
slice, broadcast, reshape and pad: they are all the first row here.
"""

from __future__ import annotations

from eqsat.language.equation import Equation, equation, rules
from eqsat.language.rule import Rule

_CORE = "the layout algebra of eqsat.layout.arithmetic"
_IREE = "IREE: permute elementwise operations to make fusions better"
_RESHAPES = "MIGraphX simplify_reshapes"
_INNER = "MIGraphX inner-broadcast"

OF_UNARY = equation("view-through-unary", "f(a)[L] == f(a[L])", when="keeps_fill(L, f)", source=f"{_RESHAPES}; {_IREE}")
OF_BINARY = equation(
    "view-through-binary", "f(a, b)[L] == f(a[L], b[L])", when="plain(L)", source=f"{_RESHAPES}; {_IREE}"
)
OF_WHERE = equation(
    "view-through-where", "where(c, a, b)[L] == where(c[L], a[L], b[L])", when="plain(L)", source=_RESHAPES
)
WITH_NUMBER: dict[str, Equation] = {
    word: equation(f"view-through-{word}", text, numbers="v", when="plain(L)", source=_INNER)
    for word, text in (
        ("function-with-number", "f(a[L], v) == f(a, v)[L]"),
        ("function-of-number-and", "f(v, a[L]) == f(v, a)[L]"),
    )
}
OF_REDUCTION = equation(
    "view-through-reduction",
    "f.reduce(a)[L] == f.reduce(a[W].reshape(..., C))",
    when="W = widen(L, C)",
    source=_RESHAPES,
)

RULES: tuple[Rule, ...] = (
    *rules(
        "view-of-view",
        "a[L1][L2] == a[L]",
        when="L = compose(L1, L2)",
        source=_CORE,
        why="two index maps in a row are one index map",
    ),
    *rules(
        "identity-view",
        "a[L] == a",
        when='reads(L, "n -> n", n=size(a))',
        source=_CORE,
        why="reading everything in order is reading the array",
        subsumes=True,
    ),
    *rules(
        "view-of-constant-fill",
        "v[L] == v",
        numbers="v",
        when="plain(L)",
        source=_CORE,
        why="a view of one repeated value repeats that value",
    ),
    *OF_UNARY.orient(
        "right",
        "view-of-unary",
        worth="dynamic(a); size(self) < size(a)",
        why="compute only the elements that are read",
    ),
    *OF_BINARY.orient(
        "right", "view-of-binary", worth="size(self) < size(a)", why="compute only the elements that are read"
    ),
    *OF_WHERE.orient(
        "right",
        "view-of-where",
        worth="dynamic(self); size(self) < size(a)",
        why="compute only the elements that are read",
    ),
    *OF_REDUCTION.orient(
        "right",
        "view-of-reduction",
        worth="dynamic(a); size(self)*C < size(a)",
        why="reduce only the rows that are read",
    ),
    *OF_UNARY.orient(
        "left",
        "unary-of-broadcast",
        worth="size(a) < size(self); dynamic(a); plain(L)",
        source=_INNER,
        why="compute once what is repeated",
    ),
    *OF_BINARY.orient(
        "left", "binary-of-broadcasts", worth="size(a) < size(self)", source=_INNER, why="compute once what is repeated"
    ),
    *(
        row
        for word, e in WITH_NUMBER.items()
        for row in e.orient(
            "right",
            f"{word}-of-broadcast",
            worth="size(a) < size(self); dynamic(a)",
            why="compute once what is repeated",
        )
    ),
    *rules(
        "reduction-over-one",
        "sum(a.reshape(..., 1)) == a",
        numerics="reassociating",
        source="definition of a sum",
        why="the sum of one element is that element; only the sign of a zero can change (0 + -0.0)",
        subsumes=True,
    ),
)
