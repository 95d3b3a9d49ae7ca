"""Whether linear inequalities have a common solution: Fourier and Motzkin's elimination, over the rationals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

Number = int | Fraction

_MOST_ROWS = 200


@dataclass(frozen=True, slots=True)
class Inequality:
    """sum of coefficient * variable + constant > 0 where `strict`, else >= 0."""

    coefficients: tuple[tuple[int, Number], ...]
    constant: Number
    strict: bool

    @staticmethod
    def of(coefficients: Mapping[int, Number], constant: Number, strict: bool) -> Inequality:
        """In one form for all positive multiples."""
        kept = sorted((v, c) for v, c in coefficients.items() if c)
        scale = abs(kept[0][1]) if kept else 1
        return Inequality(tuple((v, Fraction(c) / scale) for v, c in kept), Fraction(constant) / scale, strict)

    @property
    def contradictory(self) -> bool:
        """No variables, and not true."""
        return not self.coefficients and (self.constant < 0 or (self.strict and self.constant == 0))


def feasible(inequalities: Iterable[Inequality]) -> bool:
    """False only where no rational assignment satisfies all of them; True also where that takes too long to tell."""
    rows = set(inequalities)
    while True:
        if any(row.contradictory for row in rows):
            return False
        rows = {row for row in rows if row.coefficients}
        if not rows or len(rows) > _MOST_ROWS:
            return True
        rows = _without(_cheapest(rows), rows)


def _cheapest(rows: set[Inequality]) -> int:
    """The variable whose elimination makes the fewest rows."""
    signs: dict[int, list[int]] = {}
    for row in rows:
        for v, c in row.coefficients:
            signs.setdefault(v, [0, 0])[c > 0] += 1
    return min(signs, key=lambda v: (signs[v][0] * signs[v][1], v))


def _without(variable: int, rows: set[Inequality]) -> set[Inequality]:
    """What follows for the other variables."""
    kept: set[Inequality] = set()
    above: list[tuple[Inequality, Number]] = []
    below: list[tuple[Inequality, Number]] = []
    for row in rows:
        c = dict(row.coefficients).get(variable, 0)
        if c == 0:
            kept.add(row)
        else:
            (above if c > 0 else below).append((row, abs(c)))
    for up, a in above:
        for down, b in below:
            sums: dict[int, Number] = {v: c * b for v, c in up.coefficients}
            for v, c in down.coefficients:
                sums[v] = sums.get(v, 0) + c * a
            kept.add(Inequality.of(sums, up.constant * b + down.constant * a, up.strict or down.strict))
    return kept
