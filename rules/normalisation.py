"""Softmax, means and norms: shifts that cancel, and biases that pass rows of weights which sum to one.

Softmax and its like subtract the greatest of each row, norms the mean: what is added to a whole row cancels. Where that
is an array, an infinity in it would have made NaN of its row, hence the class.
"""

from __future__ import annotations

from eqsat.language.equation import equation, rules
from eqsat.language.rule import Rule

_SHIFT = "shift invariance of softmax and of deviations from a mean"
_STOCHASTIC = "Vaswani et al. (2017): attention weights of a row sum to one"

SHIFTS: tuple[Rule, ...] = tuple(
    row
    for name, centre, also in (
        ("greatest", "max({x})[R]", ""),
        ("mean", "(sum({x}) * m)[R]", "; reciprocal_count(m, C, dtype(m))"),
    )
    for row in (
        *rules(
            f"deviation-from-{name}-of-shifted",
            f"(a + v) - {centre} == a - {centre}".replace("{x}", "a + v", 1).replace("{x}", "a"),
            numbers="v m",
            when=f"finite(v); plain(R){also}",
            numerics="reassociating",
            source=_SHIFT,
            why="what is added to every element is subtracted again",
        ),
        *(
            row
            for order, shifted in (("", "a + b[L]"), ("-turned", "b[L] + a"))
            for row in rules(
                f"deviation-from-{name}-of-row-shifted{order}",
                f"({shifted}) - {centre} == a - {centre}".replace("{x}", shifted, 1).replace("{x}", "a"),
                numbers="m",
                when=f"shifts_rows(L, R, C){also}",
                numerics="range-changing",
                source=_SHIFT,
                why="what is added to a whole row is subtracted again; an infinite shift would have made NaN of it",
            )
        ),
    )
)

_WEIGHTS = '(exp(s) / sum(exp(s).reshape(B, M, K))["b m -> b m k"])'

WEIGHTS_OF_ONE, BIAS_FIRST = (
    equation(
        name,
        f"{_WEIGHTS} @ ({shifted})[P?] == {_WEIGHTS} @ a[P?] + b[W]",
        when='L1 = compose(L, P); plain(P); W = along(L1, "b k n -> b m n")',
        numerics="reassociating",
        source=_STOCHASTIC,
    )
    for name, shifted in (("bias-past-weights", "a + b[L]"), ("first-bias-past-weights", "b[L] + a"))
)

STOCHASTIC: tuple[Rule, ...] = tuple(
    row
    for stated in (WEIGHTS_OF_ONE, BIAS_FIRST)
    for row in stated.orient(
        "right",
        f"{stated.name}-of-one",
        why="a weighted mean of shifted rows is shifted alike: the bias of the values moves into an epilogue",
    )
)

RULES: tuple[Rule, ...] = SHIFTS + STOCHASTIC
