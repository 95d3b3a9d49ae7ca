"""Order among scalar expressions in normal form: comparisons, conditionals, and what is known of signs.

- booleans are polynomials in 0 and 1 with `b b = b`: `not b = 1 - b`, `a or b = a + b - a b`,
  `where(c, a, b) = c a + (1 - c) b`; comparisons look at the sign of a difference, up to positive factors;
- integers: `a < b` is `a + 1 <= b`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from fractions import Fraction

from eqsat.proof.normal_form.scalars import Number, Scalars

_MOST_TRUTHS = 8
"""Booleans up to which a comparison of them alone is decided by trying their values."""

_CLEAR = 1e-9
"""A sum in floating point farther from zero than this share of its terms has the sign that it shows."""

_MOST_EXPONENT = 100
POSITIVE, NOT_NEGATIVE, UNKNOWN = 2, 1, 0


class Order(Scalars):
    """Scalar expressions with comparisons and conditionals.

    `cases`: write functions of conditionals as conditionals. That proves more where pieces meet
    (`relu(a) - relu(-a) = a`), and takes longer.
    """

    def __init__(self, tick: Callable[[int], None] = lambda terms: None, cases: bool = False) -> None:
        super().__init__(tick)
        self.cases = cases

    # --- what is known of values

    def _atom_sign(self, a: int) -> int:
        kind = self._atoms[a][0]
        if kind in ("exp", "number"):
            return POSITIVE
        if kind == "sum":
            return max(self.sign_of(self._atoms[a][1]), UNKNOWN)
        return NOT_NEGATIVE if self._nonnegative[a] else UNKNOWN

    def _never_negative(self, a: int) -> bool:
        return self._atom_sign(a) >= NOT_NEGATIVE

    def _all_positive(self, e: int) -> bool:
        return self.sign_of(e) >= NOT_NEGATIVE

    def monomial_sign(self, m: int) -> int:
        """POSITIVE, NOT_NEGATIVE or UNKNOWN; where it is defined."""
        result = POSITIVE
        for a, e in self._monomials[m]:
            known = self._atom_sign(a)
            if e != int(e) or e % 2 == 0:
                known = max(known, NOT_NEGATIVE)
            if known == NOT_NEGATIVE and e < 0:
                known = POSITIVE
            result = min(result, known)
        return result

    def sign_of(self, e: int) -> int:
        """POSITIVE, NOT_NEGATIVE, UNKNOWN, or the negative of the first two, where all terms agree."""
        found = {(1 if c > 0 else -1) * self.monomial_sign(m) for m, c in self._terms[e]}
        if not found:
            return NOT_NEGATIVE
        if min(found) > 0:
            return max(found)
        return min(found) if max(found) < 0 else UNKNOWN

    def is_whole(self, e: int) -> bool:
        """Whether an expression is known to be an integer."""
        open_terms: list[int] = []
        changed = False
        for m, c in self._terms[e]:
            replaced = self._over_fractions(m, c)
            if replaced is not None:
                open_terms.append(replaced)
                changed = True
            elif c != int(c) or not self._whole_monomial(m):
                open_terms.append(self._intern({m: c}))
        return self.is_whole(self.total(open_terms)) if changed else not open_terms

    def _whole_monomial(self, m: int) -> bool:
        return all(self._whole[a] and e > 0 and e == int(e) for a, e in self._monomials[m])

    def _over_fractions(self, m: int, c: Number) -> int | None:
        """w y for w frac(y), which differ by an integer where w is one; None for other terms."""
        factors = self._monomials[m]
        for i, (a, e) in enumerate(factors):
            if self._atoms[a][:2] == ("fn", "frac") and e == 1 and c == int(c):
                rest = self._monomial(factors[:i] + factors[i + 1 :])
                if self._whole_monomial(rest):
                    return self.product(self._intern({rest: c}), self._atoms[a][2])
        return None

    def clear_sign(self, e: int) -> int:
        """1 or -1 for an expression without unknowns that is clearly above or below zero, else 0; so where floats
        cannot hold it."""
        with suppress(OverflowError):
            values = [self._numeric_term(m, c) for m, c in self._terms[e]]
            known = [v for v in values if v is not None and math.isfinite(v)]
            total, size = math.fsum(known), math.fsum(map(abs, known))
            if len(known) == len(values) and abs(total) > _CLEAR * size:
                return int(math.copysign(1, total))
        return 0

    def _numeric_term(self, m: int, c: Number) -> float | None:
        """The value of a term of numbers, roots, exponentials and logarithms; None where there is anything else."""
        value = float(c)
        for a, e in self._monomials[m]:
            kind, *rest = self._atoms[a]
            inner = self._numeric(rest[0]) if kind in ("sum", "log") else None
            if kind == "number":
                base: float | None = float(rest[0])
            elif kind == "exp":
                base = self._numeric_term(rest[0], 1)
                base = math.exp(base) if base is not None and abs(base) < _MOST_EXPONENT else None
            elif inner is not None and inner > 0:
                base = math.log(inner) if kind == "log" else inner
            else:
                base = None
            if not base or (base < 0 and e != int(e)):
                return None
            value *= base ** float(e)
        return value

    def _numeric(self, e: int) -> float | None:
        values = [self._numeric_term(m, c) for m, c in self._terms[e]]
        return None if None in values else math.fsum(v for v in values if v is not None)

    # --- booleans

    def condition(self, e: int) -> int | None:
        """A boolean among the factors of an expression."""
        factors = (a for m, _ in self._terms[e] for a, _ in self._monomials[m] if self._boolean[a])
        return min(factors, default=None)

    def assuming(self, e: int, condition: int, value: bool) -> int:
        """An expression where a boolean atom is known."""
        sums: dict[int, Number] = {}
        for m, c in self._terms[e]:
            factors = self._monomials[m]
            if value and any(self._clash(condition, a) for a, _ in factors):
                continue
            if value or all(a != condition for a, _ in factors):
                rest = self._monomial(tuple(f for f in factors if f[0] != condition))
                sums[rest] = sums.get(rest, 0) + c
        return self._intern(sums)

    def split(self, e: int, condition: int, fn: Callable[[int], int]) -> int:
        """fn(e) as a conditional of what it is for either value of a boolean atom."""
        yes, no = (fn(self.assuming(e, condition, value)) for value in (True, False))
        return self.choice(self.alone(condition), yes, no)

    def alone(self, a: int) -> int:
        """The expression that is an atom."""
        kind, *rest = self._atoms[a]
        return rest[0] if kind == "sum" else self._intern({self._monomial(((a, 1),)): 1})

    def _of_booleans(self, e: int) -> bool:
        """Whether there are booleans, few of them, and nothing else."""
        atoms = {a for m, _ in self._terms[e] for a, _ in self._monomials[m]}
        return 0 < len(atoms) <= _MOST_TRUTHS and all(self._boolean[a] for a in atoms)

    def truth(self, e: int) -> bool:
        """Whether an expression is known to be 0 or 1."""
        return self._of_booleans(e) and self.product(e, e) == e

    def _not(self, a: int) -> int:
        return self.total([self.one, self.scaled(a, -1)])

    def same(self, a: int, b: int) -> int:
        """Whether two booleans are equal, as 0 or 1."""
        return self.total([self.one, self.scaled(a, -1), self.scaled(b, -1), self.scaled(self.product(a, b), 2)])

    def either(self, a: int, b: int) -> int:
        """Whether one of two booleans holds, as 0 or 1."""
        return self.total([a, b, self.scaled(self.product(a, b), -1)])

    def choice(self, condition: int, a: int, b: int) -> int:
        """`where`."""
        if condition == self.one:
            return a
        if condition == self.zero or a == b:
            return b
        if a in self._special or b in self._special:
            return self.atom("where", condition, a, b)
        return self.total([self.product(condition, a), self.product(self._not(condition), b)])

    def chosen(self, index: int, count: int, k: int) -> int:
        """Whether an index into `count` elements, negative from the end, is the k-th, as 0 or 1."""
        at = self.condition(index)
        if at is not None:
            return self.split(index, at, lambda e: self.chosen(e, count, k))
        value = self.constant(index)
        if value is not None:
            return self.one if value % count == k else self.zero
        if k < count - 1:
            return self.atom("chosen", index, count, k, boolean=True)
        others = [self.scaled(self.chosen(index, count, j), -1) for j in range(k)]
        return self.total([self.one, *others])

    def _clash(self, a: int, other: int) -> bool:
        """Whether two different boolean atoms cannot both hold."""
        mine, theirs = self._atoms[a], self._atoms[other]
        if mine[0] == theirs[0] == "chosen":
            return mine[1:3] == theirs[1:3] and mine[3] != theirs[3]
        return {mine[0], theirs[0]} == {"positive", "null"} and mine[1] == theirs[1]

    # --- comparisons

    def positive(self, a: int, b: int) -> int:
        """Whether a > b, as 0 or 1."""
        return self._above_zero(self.total([a, self.scaled(b, -1)]))

    def null(self, a: int, b: int) -> int:
        """Whether a = b, as 0 or 1."""
        return self._at_zero(self.total([a, self.scaled(b, -1)]))

    def _above_zero(self, d: int) -> int:
        d = self._reduced(d)
        value, sign = self.constant(d), self.sign_of(d)
        if value is not None or (value := self.clear_sign(d)):
            return self.one if value > 0 else self.zero
        if sign == POSITIVE:
            return self.one
        if sign < 0:
            return self.zero
        if (at := self._splits(d)) is not None:
            return self.split(d, at, self._above_zero)
        if (logs := self._log_ratio(d)) is not None:
            return self._above_zero(logs)
        if self.cases and (factors := self._several_factors(d)) is not None:
            return self._sign_of_product(d, factors)
        if (parts := self._whole_parts(d)) is not None:
            return self._whole_above_zero(*parts)
        flip, d = self._signed(d)
        above = self.atom("positive", d, boolean=True)
        if flip > 0:
            return above
        return self.total([self.one, self.scaled(above, -1), self.scaled(self.atom("null", d, boolean=True), -1)])

    def _at_zero(self, d: int) -> int:
        d = self._reduced(d)
        value = self.constant(d)
        if value is not None:
            return self.zero if value else self.one
        if abs(self.sign_of(d)) == POSITIVE or self.clear_sign(d):
            return self.zero
        if (at := self._splits(d)) is not None:
            return self.split(d, at, self._at_zero)
        if (logs := self._log_ratio(d)) is not None:
            return self._at_zero(logs)
        if self.cases and (factors := self._several_factors(d)) is not None:
            nonzero = self.one
            for a, e in factors:
                if e > 0:
                    nonzero = self.product(nonzero, self._not(self._at_zero(self.alone(a))))
            return self._not(nonzero)
        if (parts := self._whole_parts(d)) is not None:
            content, constant, _ = parts
            if constant % content:
                return self.zero
        return self.atom("null", self._signed(d)[1], boolean=True)

    def _splits(self, d: int) -> int | None:
        """The boolean on which to split a comparison."""
        return self.condition(d) if self.cases or self._of_booleans(d) else None

    def _reduced(self, d: int) -> int:
        """An expression without denominators and common factors that are positive; its coefficients are coprime."""
        for base, least in self._denominators(d):
            sign = self.sign_of(self._atoms[base][1])
            if abs(sign) == POSITIVE:
                cleared = self._cleared(d, base, least)
                d = self.scaled(cleared, -1) if sign < 0 and least % 2 else cleared
        terms = self._terms[d]
        if not terms:
            return d
        shared = [(a, e) for a, e in self._shared(terms) if self._atom_sign(a) == POSITIVE]
        if shared:
            d = self.product(d, self._intern({self._monomial(tuple((a, -e) for a, e in shared)): 1}))
        return self._divided(d, content_of([c for _, c in self._terms[d]]))

    def _divided(self, e: int, content: Number) -> int:
        """An expression over a number."""
        if content == 1:
            return e
        return self._intern(
            {
                m: c // content if isinstance(c, int) and c % content == 0 else Fraction(c) / content
                for m, c in self._terms[e]
            }
        )

    def _signed(self, a: int) -> tuple[int, int]:
        """(sign, expression) with a positive leading coefficient."""
        terms = self._terms[a]
        return (-1, self.scaled(a, -1)) if terms and terms[0][1] < 0 else (1, a)

    def _log_ratio(self, d: int) -> int | None:
        """For a difference of two products of exponentials: that of their logarithms."""
        terms = self._terms[d]
        if len(terms) != 2 or terms[0][1] * terms[1][1] > 0:
            return None
        (m1, c1), (m2, c2) = sorted(terms, key=lambda t: -t[1])
        factors = [(a, e) for a, e in self._monomials[m1]] + [(a, -e) for a, e in self._monomials[m2]]
        if any(self._atoms[a][0] != "exp" for a, _ in factors):
            return None
        ratio = Fraction(c1) / -Fraction(c2)
        parts = [self._intern({self._atoms[a][1]: e}) for a, e in factors]
        return self.total(parts if ratio == 1 else [*parts, self.atom("log", self.number(ratio))])

    def _several_factors(self, d: int) -> tuple[tuple[int, Number], ...] | None:
        """The factors of a single product that is more than one atom."""
        terms = self._terms[d]
        if len(terms) != 1:
            return None
        factors = self._monomials[terms[0][0]]
        simple = all(e == 1 and self._atoms[a][0] != "sum" for a, e in factors) and len(factors) == 1
        return None if simple else factors

    def _sign_of_product(self, d: int, factors: Iterable[tuple[int, Number]]) -> int:
        """Whether a product is positive, from the signs of its factors."""
        above, below = self.one, self.zero
        if self._terms[d][0][1] < 0:
            above, below = below, above
        for a, e in factors:
            x = self.alone(a)
            up = self._above_zero(x)
            down = self.total([self.one, self.scaled(up, -1), self.scaled(self._at_zero(x), -1)])
            if e != int(e):
                down = self.zero
            elif e % 2 == 0:
                up, down = self.total([up, down]), self.zero
            above, below = (
                self.total([self.product(above, up), self.product(below, down)]),
                self.total([self.product(above, down), self.product(below, up)]),
            )
        return above

    def _whole_parts(self, d: int) -> tuple[int, int, int] | None:
        """(g, k, u): an expression is g u + k, all of them integers; g is as large as is known to be possible."""
        terms = dict(self._terms[d])
        constant = terms.pop(0, 0)
        if not terms or constant != int(constant):
            return None
        rest, content = self._intern(terms), content_of(list(terms.values()))
        for g in (content, 1):  # 3 frac(i / 3) is an integer, and frac(i / 3) is none
            if g == int(g) and self.is_whole(u := self._divided(rest, g)):
                return int(g), int(constant), u
        return None

    def _whole_above_zero(self, content: int, constant: int, u: int) -> int:
        """g u + k > 0 over the integers: u > t, or not -u > -t - 1, whichever has a positive leading coefficient."""
        least = -constant // content
        sign, u = self._signed(u)
        if sign > 0:
            return self._above(self.total([u, self.number(-least)]))
        return self._not(self._above(self.total([u, self.number(least + 1)])))

    def _above(self, e: int) -> int:
        """That an expression is positive, as an atom."""
        return self.atom("positive", self._divided(e, content_of([c for _, c in self._terms[e]])), boolean=True)


def content_of(values: Sequence[Number]) -> Number:
    """The greatest common divisor of rationals, positive."""
    if all(isinstance(v, int) for v in values):
        return math.gcd(*(v.numerator for v in values))
    denominator = math.lcm(*(v.denominator for v in values))
    return Fraction(math.gcd(*(int(v * denominator) for v in values)), denominator)
