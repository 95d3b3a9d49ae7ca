"""Scalar expressions in a normal form: sums of products of powers, with whatever is not polynomial as atoms.

An expression is an integer that names an interned sum of `coefficient * monomial`; a monomial is a product of atoms
with rational exponents. Atoms are elements of inputs and functions of expressions. Expressions that the laws here make
equal get one number, so that comparing is comparing integers. Over the reals, where both sides are defined: sums and
products commute, associate and distribute, `a - a = 0`, `0 a = 0`, `a / a = 1`, roots and reciprocals are powers.

Denominators with several terms stay atoms; `equal` clears them before it compares.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

Number = int | Fraction
Monomial = tuple[tuple[int, Number], ...]
"""(atom, exponent), by atom."""
Terms = tuple[tuple[int, Number], ...]
"""(monomial, coefficient), by monomial."""

_MOST_EXPANDED = 4
_SIMPLE_DENOMINATOR = 4096
_LEAST_PART = 2.0**-24
"""Single precision cannot tell one over a larger whole number from its neighbours."""

_FOLDED_POWER = 64


class Beyond(Exception):
    """The expression is outside what the normal form can hold: infinities in sums, or too large."""


class Undefined(Beyond):
    """The expression has no value: a division by zero."""


class Scalars:
    """Interned expressions. `tick` is called now and then; it may raise `Beyond` to end a computation."""

    def __init__(self, tick: Callable[[int], None] = lambda terms: None) -> None:
        self._tick = tick
        self._atom_ids: dict[tuple[Any, ...], int] = {}
        self._atoms: list[tuple[Any, ...]] = []
        self._nonnegative: list[bool] = []
        self._boolean: list[bool] = []
        self._whole: list[bool] = []
        self._monomial_ids: dict[Monomial, int] = {(): 0}
        self._monomials: list[Monomial] = [()]
        self._ids: dict[Terms, int] = {}
        self._terms: list[Terms] = []
        self._products: dict[tuple[int, int], int] = {}
        self._special: dict[int, float] = {}
        self.laws: set[str] = set()
        """Names of the laws that were used beyond commuting, associating and distributing."""
        self.zero = self._intern({})
        self.one = self.number(1)

    # --- interning

    def _intern(self, sums: dict[int, Number]) -> int:
        terms = tuple(sorted((m, c if type(c) is int else _simple(c)) for m, c in sums.items() if c))
        if len(terms) < len(sums):
            self.laws.add("cancel")
        found = self._ids.get(terms)
        if found is None:
            found = self._ids[terms] = len(self._terms)
            self._terms.append(terms)
        return found

    def _monomial(self, factors: Monomial) -> int:
        found = self._monomial_ids.get(factors)
        if found is None:
            found = self._monomial_ids[factors] = len(self._monomials)
            self._monomials.append(factors)
        return found

    def atom(self, *key: Any, nonnegative: bool = False, boolean: bool = False, whole: bool = False) -> int:
        """The expression that is this atom alone."""
        return self._intern({self._monomial(((self._atom(key, nonnegative, boolean, whole), 1),)): 1})

    def _atom(self, key: tuple[Any, ...], nonnegative: bool = False, boolean: bool = False, whole: bool = False) -> int:
        found = self._atom_ids.get(key)
        if found is None:
            found = self._atom_ids[key] = len(self._atoms)
            self._atoms.append(key)
            self._nonnegative.append(nonnegative or boolean)
            self._boolean.append(boolean)
            self._whole.append(whole or boolean)
        return found

    def number(self, value: float | int | bool | Fraction, single: bool = False) -> int:
        """A constant, read as the simplest rational that rounds to it (in float32 where `single`)."""
        if isinstance(value, float) and not math.isfinite(value):
            found = self.atom("special", str(value))
            self._special[found] = value
            return found
        exact = rational(value, single)
        return self._intern({0: exact} if exact else {})

    def constant(self, e: int) -> Number | None:
        """The value of an expression that is a constant."""
        terms = self._terms[e]
        if not terms:
            return 0
        return terms[0][1] if len(terms) == 1 and terms[0][0] == 0 else None

    def _single_atom(self, e: int) -> tuple[Any, ...] | None:
        """The key of an expression that is one atom with exponent and coefficient 1."""
        terms = self._terms[e]
        if len(terms) == 1 and terms[0][1] == 1:
            factors = self._monomials[terms[0][0]]
            if len(factors) == 1 and factors[0][1] == 1:
                return self._atoms[factors[0][0]]
        return None

    def _finite(self, *operands: int) -> None:
        if self._special and any(e in self._special for e in operands):
            raise Beyond("arithmetic with infinities")

    # --- sums and products

    def total(self, parts: Iterable[int]) -> int:
        """The sum of expressions."""
        sums: dict[int, Number] = {}
        for e in parts:
            self._finite(e)
            for m, c in self._terms[e]:
                sums[m] = sums.get(m, 0) + c
        self._tick(len(sums))
        return self._intern(sums)

    def scaled(self, e: int, factor: Number) -> int:
        """A constant times an expression."""
        if e in self._special and factor in (1, -1):
            return self.number(self._special[e] * float(factor))
        self._finite(e)
        return e if factor == 1 else self._intern({m: c * factor for m, c in self._terms[e]})

    def dot(self, left: Sequence[int], right: Sequence[int]) -> int:
        """The sum of products of pairs."""
        sums: dict[int, Number] = {}
        for a, b in zip(left, right, strict=True):
            self._accumulate(sums, a, b)
        return self._intern(sums)

    def product(self, a: int, b: int) -> int:
        """The product, multiplied out."""
        sums: dict[int, Number] = {}
        self._accumulate(sums, a, b)
        return self._intern(sums)

    def _accumulate(self, sums: dict[int, Number], a: int, b: int) -> None:
        self._finite(a, b)
        left, right = self._terms[a], self._terms[b]
        self._tick(len(left) * len(right) + 1)
        for m1, c1 in left:
            for m2, c2 in right:
                both = c1 * c2
                for m, c in self._terms[self._times(m1, m2)]:
                    sums[m] = sums.get(m, 0) + (both if c == 1 else c * both)

    def _times(self, m1: int, m2: int) -> int:
        """The product of two monomials: one monomial, or several where a denominator cancels."""
        key = (m1, m2) if m1 <= m2 else (m2, m1)
        found = self._products.get(key)
        if found is None:
            found = self._products[key] = self._powers([*self._monomials[m1], *self._monomials[m2]])
        return found

    def _powers(self, factors: Iterable[tuple[int, Number]]) -> int:
        """A product of powers of atoms as an expression."""
        exponents: dict[int, Number] = {}
        for a, e in factors:
            exponents[a] = exponents.get(a, 0) + e
        result: list[tuple[int, Number]] = []
        expand: list[tuple[int, int]] = []
        coefficient: Number = 1
        for a, e in exponents.items():
            if e == 0:
                self.laws.add("cancel")
                continue
            key = self._atoms[a]
            whole = e == int(e)
            if self._boolean[a]:
                if any(self._boolean[b] and self._clash(a, b) for b in exponents):
                    return self.zero
                result.append((a, 1))
            elif key[0] == "number" and whole:
                coefficient *= Fraction(key[1]) ** int(e)
            elif whole and ((key[0] == "sum" and e > 0) or (key[0] == "abs" and e % 2 == 0)):
                expand.append((key[1], int(e)))
            else:
                result.append((a, int(e) if whole else e))
        product = self._intern({self._monomial(tuple(sorted(result))): coefficient})
        for e, times in expand:
            for _ in range(abs(times)):
                product = self.product(product, e if times > 0 else self.power(e, -1))
        return product

    def _clash(self, a: int, other: int) -> bool:
        """Whether two boolean atoms cannot both hold."""
        return False

    def power(self, e: int, exponent: Number) -> int:
        """An expression to a constant power."""
        self._finite(e)
        terms = self._terms[e]
        if exponent == 0:
            return self.one
        if exponent == 1:
            return e
        if not terms:
            if exponent < 0:
                raise Undefined("division by zero")
            return self.zero
        whole = exponent == int(exponent)
        if whole and 1 < exponent <= _MOST_EXPANDED:
            return self.product(self.power(e, exponent - 1), e)
        self.laws.add("powers")
        if len(terms) == 1:
            m, c = terms[0]
            return self._monomial_power(m, c, exponent)
        content, common, rest = self._primitive(terms, keep_sign=not whole)
        outer = self._monomial_power(common, content, exponent)
        base = self._atom(("sum", rest))
        return self.product(outer, self._powers([(base, exponent)]))

    def _monomial_power(self, m: int, c: Number, exponent: Number) -> int:
        factors: list[tuple[int, Number]] = []
        odd: list[tuple[int, Number]] = []
        for a, e in self._monomials[m]:
            if exponent == int(exponent) or e != int(e) or self._never_negative(a):
                factors.append((a, e * exponent))
            elif e % 2 == 0:
                factors.append((self._size(a), e * exponent))
            else:
                odd.append((a, e))
        if len(odd) == 1 and c > 0:  # which is not negative where the power is defined
            ((a, e),) = odd
            factors.append((a, e * exponent))
            odd = []
        # Several may be negative together: sqrt(x y) is not sqrt(x) sqrt(y) then.
        factors += [(self._size(a), (e - 1) * exponent) for a, e in odd if e != 1]
        base = self.scaled(self._powers((a, 1) for a, _ in odd), 1 if c > 0 else -1) if odd else self.one
        c = abs(c) if odd else c
        if odd and len(self._terms[base]) == 1:
            factors.append((self._atom(("sum", base)), exponent))
            base = self.one
        coefficient = _root(c, exponent)
        if coefficient is None:
            factors.append((self._atom(("number", c), nonnegative=True), exponent))
            coefficient = 1
        power = self.scaled(self._powers(factors), coefficient)
        return power if base == self.one else self.product(power, self.power(base, exponent))

    def _size(self, a: int) -> int:
        """The absolute value of an atom, as an atom."""
        inner = self._intern({self._monomial(((a, 1),)): 1})
        return self._atom(("abs", inner), nonnegative=True, whole=self._whole[a])

    def _never_negative(self, a: int) -> bool:
        """Whether an atom is known not to be negative."""
        return self._nonnegative[a]

    def _all_positive(self, e: int) -> bool:
        """Whether an expression is known to be positive, or not negative."""
        return False

    def _primitive(self, terms: Terms, keep_sign: bool) -> tuple[Number, int, int]:
        """(c, m, rest): the sum is c * m * rest; rest has no common factor and a leading coefficient of 1 (or -1). With
        `keep_sign`, m keeps the sign of the sum to itself or leaves it to rest."""
        shared = self._shared(terms)
        rest = self._without(terms, shared)
        if keep_sign and not self._all_positive(rest):
            shared = tuple((a, self._even(a, e)) for a, e in shared if self._even(a, e))
            rest = self._without(terms, shared)
        lead = self._terms[rest][0][1]
        content = abs(lead) if keep_sign else lead
        return content, self._monomial(shared), self.scaled(rest, Fraction(1) / content)

    def _without(self, terms: Terms, shared: Monomial) -> int:
        """A sum divided by factors that all terms have."""
        undo = self._monomial(tuple((a, -e) for a, e in shared))
        return self.product(self._intern(dict(terms)), self._intern({undo: 1}))

    def _even(self, a: int, e: Number) -> Number:
        """The exponent of an atom in the largest part of its power that is known not to be negative."""
        return e if e != int(e) or self._never_negative(a) else e - e % 2

    def _shared(self, terms: Terms) -> Monomial:
        """The factors that all terms have."""
        shared: dict[int, Number] | None = None
        for m, _ in terms:
            factors = dict(self._monomials[m])
            if shared is None:
                shared = factors
            else:
                shared = {
                    a: min(e, shared[a], key=abs)
                    for a, e in factors.items()
                    if a in shared and (e > 0) == (shared[a] > 0)
                }
        return tuple(sorted((shared or {}).items()))

    # --- equality

    def equal(self, a: int, b: int) -> bool:
        """Whether two expressions are one: the same number, or the same once denominators are cleared."""
        if a == b:
            return True
        difference = self.total([a, self.scaled(b, -1)])
        while bases := self._denominators(difference):
            self.laws.add("denominators")
            difference = self._cleared(difference, *bases[0])
        return difference == self.zero

    def _cleared(self, e: int, base: int, least: int) -> int:
        """An expression times the sum `base` to the power that removes it from every denominator."""
        rest = self._atoms[base][1]
        sums: list[int] = []
        for m, c in self._terms[e]:
            factors = dict(self._monomials[m])
            times = int(factors.pop(base, 0)) - least
            part = self._intern({self._monomial(tuple(factors.items())): c})
            for _ in range(times):
                part = self.product(part, rest)
            sums.append(part)
        return self.total(sums)

    def _denominators(self, e: int) -> list[tuple[int, int]]:
        """Sums with negative whole exponents among the factors of an expression, with the least exponent of each."""
        least: dict[int, int] = {}
        for m, _ in self._terms[e]:
            for a, exponent in self._monomials[m]:
                if self._atoms[a][0] == "sum" and exponent == int(exponent) and exponent < 0:
                    least[a] = min(least.get(a, 0), int(exponent))
        return sorted(least.items())

    # --- reading

    def text(self, e: int, depth: int = 3) -> str:
        """The expression as written by hand, cut short where it is long."""
        terms = self._terms[e]
        if not terms:
            return "0"
        if depth == 0:
            return "..."
        shown = [self._term_text(m, c, depth) for m, c in terms[:6]] + ["..."] * (len(terms) > 6)
        return " + ".join(shown)

    def _term_text(self, m: int, c: Number, depth: int) -> str:
        factors = [self._atom_text(a, depth) + (f"^({e})" if e != 1 else "") for a, e in self._monomials[m]]
        return "*".join([str(c)] * (c != 1 or not factors) + factors)

    def _atom_text(self, a: int, depth: int) -> str:
        kind, *rest = self._atoms[a]
        if kind == "in":
            return f"{rest[0]}[{rest[1]}]"
        if kind in ("special", "number"):
            return str(rest[0])
        if kind == "exp":
            return f"exp({self._term_text(rest[0], 1, depth - 1)})"
        if kind == "fn":
            kind, *rest = rest
        operands = rest[0] if rest and isinstance(rest[0], tuple) else rest
        return f"{kind}({', '.join(self.text(p, depth - 1) if isinstance(p, int) else str(p) for p in operands)})"


def _simple(c: Number) -> Number:
    """An integer as such: arithmetic with fractions is much slower."""
    return c.numerator if c.denominator == 1 else c


def rational(value: float | int | bool | Fraction, single: bool) -> Number:
    """The simplest rational that rounds to a number: of a small denominator, or one over a whole number.

    It rounds to no other number, so that two numbers never stand for one rational.
    """
    if isinstance(value, bool | int):
        return int(value)
    if isinstance(value, float):
        if value == int(value):
            return int(value)
        rounded = np.float32 if single else float
        simple = Fraction(value).limit_denominator(_SIMPLE_DENOMINATOR)
        part = Fraction(1, round(1 / value)) if _LEAST_PART < abs(value) < 1 else simple
        return next((x for x in (simple, part) if float(rounded(float(x))) == value), Fraction(value))
    return int(value) if value.denominator == 1 else value


def _root(c: Number, exponent: Number) -> Number | None:
    """c ** exponent where it is rational."""
    if exponent == int(exponent):
        return Fraction(c) ** int(exponent) if abs(exponent) <= _FOLDED_POWER else None
    if c == 1:
        return 1
    if c <= 0 or Fraction(exponent).denominator != 2:
        return None
    value = Fraction(c)
    top, bottom = math.isqrt(value.numerator), math.isqrt(value.denominator)
    if top * top != value.numerator or bottom * bottom != value.denominator:
        return None
    return Fraction(top, bottom) ** int(2 * exponent)
