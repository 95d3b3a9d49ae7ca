"""Equality of scalar expressions by cases: comparisons are decided one way or another, as far as they agree.

Each comparison of two expressions is less, equal or greater. A case whose comparisons contradict each other, by linear
arithmetic over monomials, needs no look; where two expressions are equal, one replaces the other. A case in which a
side has no value needs no look either: equal means where both are defined.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction

from eqsat.proof.normal_form.functions import Functions
from eqsat.proof.normal_form.linear import Inequality, feasible
from eqsat.proof.normal_form.order import POSITIVE
from eqsat.proof.normal_form.scalars import Beyond, Undefined

_MOST_CASES = 4000

Fact = tuple[int, bool]
"""An expression that is positive (True), or not negative (False)."""


class Cases:
    """Decides equality over `scalars`."""

    def __init__(self, scalars: Functions) -> None:
        self._scalars = scalars
        self._left = _MOST_CASES
        self._feasible: dict[frozenset[Fact], bool] = {}

    def equal(self, a: int, b: int) -> bool:
        """Whether two expressions are equal in every case.

        Raises:
            Beyond: there are too many cases.
        """
        scalars = self._scalars
        if scalars.equal(a, b):
            return True
        self._left = _MOST_CASES
        return self._vanishes(scalars.total([a, scalars.scaled(b, -1)]), ())

    def _vanishes(self, e: int, facts: tuple[Fact, ...]) -> bool:
        scalars = self._scalars
        self._left -= 1
        if self._left < 0:
            raise Beyond("too many cases")
        at = scalars.condition(e)
        if at is None:
            return scalars.equal(e, scalars.zero) or self._without_value(e, facts)
        compared = scalars.compared(at)
        if compared is None:
            return all(self._vanishes(scalars.assuming(e, at, value), facts) for value in (True, False))
        opposite = scalars.scaled(compared, -1)
        below, equal, above = [(opposite, True)], [(compared, False), (opposite, False)], [(compared, True)]
        for sign, known in ((1, above), (0, equal), (-1, below)):
            case = (*facts, *known)
            if self._possible(case) and not self._vanishes(self._assumed(e, compared, sign), case):
                return False
        return True

    def _assumed(self, e: int, compared: int, sign: int) -> int:
        scalars = self._scalars
        assumed = scalars.with_sign(e, compared, sign)
        if sign:
            return assumed
        try:
            return scalars.at_zero(assumed, compared)
        except Undefined:
            return assumed  # what divides by it may yet turn out to be in a branch that is not taken

    def _without_value(self, e: int, facts: tuple[Fact, ...]) -> bool:
        """Whether an expression without conditions divides by what facts say is zero."""
        scalars = self._scalars
        for d, strict in facts:
            if not strict and (scalars.scaled(d, -1), False) in facts:
                try:
                    scalars.at_zero(e, d)
                except Undefined:
                    return True
        return False

    def _possible(self, facts: Iterable[Fact]) -> bool:
        """Whether facts agree, as far as linear arithmetic can tell."""
        key = frozenset(facts)
        found = self._feasible.get(key)
        if found is None:
            found = self._feasible[key] = feasible(self._inequalities(key))
        return found

    def _inequalities(self, facts: frozenset[Fact]) -> list[Inequality]:
        scalars = self._scalars
        rows: list[Inequality] = []
        monomials: set[int] = set()
        for e, strict in sorted(facts):
            terms = scalars.linear_terms(e)
            constant = terms.pop(0, 0)
            monomials |= set(terms)
            if strict and scalars.is_whole(e):
                # A positive integer is at least 1.
                rows.append(Inequality.of(terms, constant - 1, False))
            else:
                rows.append(Inequality.of(terms, constant, strict))
        for m in sorted(monomials):
            sign, limit = scalars.monomial_sign(m), scalars.monomial_limit(m)
            if sign:
                rows.append(Inequality.of({m: 1}, 0, sign == POSITIVE))
            if limit is not None:
                rows.append(Inequality.of({m: -1}, limit, True))
            rows += self._of_input(m)
        return rows

    def _of_input(self, m: int) -> Iterator[Inequality]:
        """What is assumed of a monomial that is an element of an input."""
        known = self._scalars.bounds.get(self._scalars.input_of(m) or "")
        if known is not None and math.isfinite(known.low):
            yield Inequality.of({m: 1}, -Fraction(known.low), known.low_open)
        if known is not None and math.isfinite(known.high):
            yield Inequality.of({m: -1}, Fraction(known.high), known.high_open)
