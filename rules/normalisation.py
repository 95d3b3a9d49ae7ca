"""Softmax, means and norms: shifts that cancel, and biases that pass rows of weights which sum to one.

Softmax and its like subtract the greatest of each row, norms the mean: what is added to a whole row cancels. Where that
is an array, an infinity in it would have made NaN of its row, hence the class.
"""

from __future__ import annotations

from eqsat.language.rule import Rule, rule

_SHIFT = "shift invariance of softmax and of deviations from a mean"
_STOCHASTIC = "Vaswani et al. (2017): attention weights of a row sum to one"


def _deviation(name: str, centre: str, guard: str = "") -> tuple[Rule, ...]:
    """x minus what `centre` gives for each row of C elements, read back along the row, where x is shifted."""

    def without_centre(x: str) -> str:
        return f"sub({x}, view({centre.format(x=x)}, R))"

    return (
        rule(
            f"deviation-from-{name}-of-shifted",
            f"{without_centre('add(a, full(v, n, s))')} => {without_centre('a')}",
            when="shifts_all(v, R)" + guard,
            numerics="reassociating",
            source=_SHIFT,
            why="what is added to every element is subtracted again",
        ),
        rule(
            f"deviation-from-{name}-of-row-shifted",
            f"{without_centre('add(a, view(b, L))')} => {without_centre('a')}",
            when="shifts_rows(L, R, C)" + guard,
            numerics="range-changing",
            source=_SHIFT,
            why="what is added to a whole row is subtracted again; an infinite shift would have made NaN of the row",
        ),
    )


SHIFTS: tuple[Rule, ...] = (
    *_deviation("greatest", "max_over({x}, C)"),
    *_deviation("mean", "mul(sum({x}, C), full(m, r, t))", "; reciprocal_count(m, C, t)"),
)

_WEIGHTS = "div(exp(s), view(sum(exp(s), K), R))"

STOCHASTIC: tuple[Rule, ...] = (
    rule(
        "bias-past-weights-of-one",
        f"mm({_WEIGHTS}, add(a, view(b, L)), B, M, K, N) => add(mm({_WEIGHTS}, a, B, M, K, N), view(b, W))",
        when="repeats_rows(R, K); W = column_scale(L, B, M, K, N)",
        numerics="reassociating",
        source=_STOCHASTIC,
        why="a weighted mean of shifted rows is shifted alike: the bias of the values moves into an epilogue",
    ),
)

RULES: tuple[Rule, ...] = SHIFTS + STOCHASTIC
