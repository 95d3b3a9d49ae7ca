"""Functions of scalar expressions in normal form, beyond maxima and comparisons.

- `exp` of a sum is a product, `log` of a product is a sum, roots and reciprocals are powers;
- `floor(a) = a - frac(a)` with `frac(a + n) = frac(a)` for an integer n, `mod(a, b) = b frac(a / b)`, and division of
  integers truncates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from types import MappingProxyType

import numpy as np

from eqsat.base.numerics import ELEMENTWISE, elementwise
from eqsat.proof.normal_form.assumptions import Bounds
from eqsat.proof.normal_form.maxima import Maxima
from eqsat.proof.normal_form.order import NOT_NEGATIVE, POSITIVE
from eqsat.proof.normal_form.scalars import Monomial, Number

_FOLDED_POWER = 64
_ODD = frozenset({"tanh", "erf", "sin", "sign", "round", "trunc"})


def _times(c: Number, end: float) -> Number | float:
    """An end of a range, scaled; exactly, where it is not infinite."""
    return Fraction(c) * Fraction(end) if math.isfinite(end) else math.copysign(math.inf, c) * end


class Functions(Maxima):
    """Scalar expressions with every elementwise function of `eqsat.program.ops`.

    `cases`: write maxima of few, absolute values, signs and functions of conditionals as conditionals, and tanh by exp.
    `bounds` are those of inputs, by name.
    """

    bounds: Mapping[str, Bounds] = MappingProxyType({})

    def unary(self, fn: str, a: int) -> int:
        """A unary function of `eqsat.program.ops` by name, or `trunc`."""
        if self.cases and fn not in ("neg", "not") and (at := self.condition(a)) is not None:
            return self.split(a, at, lambda e: self.unary(fn, e))
        method = getattr(self, f"_{fn}", None)
        if method is not None:
            return method(a)
        self._finite(a)
        if fn == "round" and self.is_whole(a):
            return a
        return self._odd(fn, a) if fn in _ODD else self.atom("fn", fn, a)

    def power(self, e: int, exponent: Number) -> int:
        """An expression to a constant power."""
        if self.cases and (exponent < 0 or exponent != int(exponent)) and (at := self.condition(e)) is not None:
            return self.split(e, at, lambda part: self.power(part, exponent))
        return super().power(e, exponent)

    # --- parts of numbers

    def _frac(self, a: int) -> int:
        """a - floor(a)."""
        self._finite(a)
        low, high, is_open = self.range_of(a)
        if low >= 0 and (high < 1 or (high == 1 and is_open)):
            return a
        kept: list[int] = []
        for m, c in self._terms[a]:
            replaced = self._over_fractions(m, c)
            if replaced is not None:
                kept.append(replaced)
            elif self._whole_monomial(m):
                kept.append(self._intern({m: c - math.floor(c)}))
            else:
                kept.append(self._intern({m: c}))
        rest = self.total(kept)
        if rest != a:
            return self._frac(rest)
        known = self.constant(rest) is not None or self._below_one(rest)
        return rest if known else self.atom("fn", "frac", rest, nonnegative=True)

    def _below_one(self, a: int) -> bool:
        """Whether an expression is known to lie in [0, 1): a part of a fractional part."""
        if len(self._terms[a]) != 1:
            return False
        ((m, c),) = self._terms[a]
        return 0 < c <= 1 and self.monomial_limit(m) == 1

    def _floor(self, a: int) -> int:
        for m, c in self._terms[a]:
            # floor((floor(y) + k) / n) = floor((y + k) / n) for integers k and n > 0.
            n = -1 / Fraction(c)
            factors = self._monomials[m]
            if n > 1 and n == int(n) and len(factors) == 1 and factors[0][1] == 1:
                key = self._atoms[factors[0][0]]
                if key[:2] == ("fn", "frac"):
                    whole = self.total([a, self._intern({m: -c})])
                    if self.is_whole(self.total([self.scaled(whole, n), self.scaled(key[2], -1)])):
                        return self._floor(whole)
        return self.total([a, self.scaled(self._frac(a), -1)])

    def _ceil(self, a: int) -> int:
        return self.scaled(self._floor(self.scaled(a, -1)), -1)

    def _trunc(self, a: int) -> int:
        """Toward zero."""
        self._finite(a)
        if self.is_whole(a):
            return a
        if (sign := self.sign_of(a)) != 0:
            return self._floor(a) if sign > 0 else self._ceil(a)
        if self.cases:
            return self.choice(self.positive(a, self.zero), self._floor(a), self._ceil(a))
        return self._odd("trunc", a)

    def _sign(self, a: int) -> int:
        self._finite(a)
        known = self.sign_of(a)
        if abs(known) == POSITIVE or a == self.zero:
            return self.number((known > 0) - (known < 0)) if a != self.zero else a
        if self.cases:
            return self.total([self.positive(a, self.zero), self.scaled(self.positive(self.zero, a), -1)])
        key = self._single_atom(a)
        return a if key is not None and key[:2] == ("fn", "sign") else self._odd("sign", a)

    def _abs(self, a: int) -> int:
        self._finite(a)
        _, a = self._signed(a)
        terms = self._terms[a]
        if (known := self.sign_of(a)) != 0:
            return a if known > 0 else self.scaled(a, -1)
        if self.cases:
            return self._larger(a, self.scaled(a, -1))
        if len(terms) != 1:
            return self.atom("abs", a, nonnegative=True, whole=self.is_whole(a))
        m, c = terms[0]
        result = self.number(abs(c))
        for at, e in self._monomials[m]:
            if self._atom_sign(at) >= NOT_NEGATIVE or (e == int(e) and e % 2 == 0) or e != int(e):
                factor = self._powers([(at, e)])
            else:
                inner = self._intern({self._monomial(((at, 1),)): 1})
                factor = self._powers([(self._atom(("abs", inner), nonnegative=True, whole=self._whole[at]), e)])
            result = self.product(result, factor)
        return result

    def _odd(self, fn: str, a: int) -> int:
        sign, inner = self._signed(a)
        if inner == self.zero:
            return inner
        return self.scaled(self.atom("fn", fn, inner, whole=fn in ("sign", "round", "trunc")), sign)

    def _neg(self, a: int) -> int:
        return self.scaled(a, -1)

    def _tanh(self, a: int) -> int:
        self._finite(a)
        if self.cases:
            return self.total([self.scaled(self._sigmoid(self.scaled(a, 2)), 2), self.number(-1)])
        return self._odd("tanh", a)

    # --- powers and exponentials

    def _sqrt(self, a: int) -> int:
        return self.power(a, Fraction(1, 2))

    def _rsqrt(self, a: int) -> int:
        return self.power(a, Fraction(-1, 2))

    def _reciprocal(self, a: int) -> int:
        return self.power(a, -1)

    def _exp(self, a: int) -> int:
        self._finite(a)
        self.laws.add("exponentials")
        factors: list[tuple[int, Number]] = []
        result = self.one
        for m, c in self._terms[a]:
            (atom, e), *others = self._monomials[m] or ((-1, 1),)
            if atom >= 0 and not others and e == 1 and self._atoms[atom][0] == "log":
                result = self.product(result, self.power(self._atoms[atom][1], c))
            else:
                factors.append((self._atom(("exp", m), nonnegative=True), c))
        return self.product(result, self._powers(factors))

    def _log(self, a: int) -> int:
        self._finite(a)
        self.laws.add("exponentials")
        terms = self._terms[a]
        if len(terms) > 1:
            return self._log_of_sum(a)
        if not terms or terms[0][1] < 0:
            return self.atom("log", a)
        m, c = terms[0]
        parts = [] if c == 1 else [self.atom("log", self.number(c))]
        unknown = sum(e % 2 == 1 and not self._never_negative(at) for at, e in self._monomials[m])
        for at, e in self._monomials[m]:
            key = self._atoms[at]
            if key[0] == "exp":
                parts.append(self._intern({key[1]: e}))
                continue
            if key[:2] == ("fn", "pow") and self.sign_of(key[2]) == POSITIVE:
                parts.append(self.scaled(self.product(key[3], self._log(key[2])), e))
                continue
            if key[0] == "sum" and self._atom_sign(at) == POSITIVE:
                parts.append(self.scaled(self._log_of_sum(key[1]), e))
                continue
            base = self._intern({self._monomial(((at, 1),)): 1})
            if (e == int(e) and e % 2 == 0) or (unknown > 1 and not self._never_negative(at)):
                base = self._abs(base)  # several may be negative together
            parts.append(self.scaled(self.atom("log", base), e))
        return self.total(parts)

    def _log_of_sum(self, a: int) -> int:
        """The logarithm of several terms: their common positive factors taken out."""
        shared = self._centre(a) if self.cases else self._shared(self._terms[a])
        shared = tuple((at, e) for at, e in shared if self._atom_sign(at) == POSITIVE)
        if not shared:
            return self.atom("log", a)
        undo = self._monomial(tuple((at, -e) for at, e in shared))
        common = self._intern({self._monomial(shared): 1})
        return self.total([self._log(common), self._log(self.product(a, self._intern({undo: 1})))])

    def _centre(self, a: int) -> Monomial:
        """The geometric mean of the exponentials of all terms: the same for all that differ by a common factor."""
        sums: dict[int, Number] = {}
        for m, _ in self._terms[a]:
            for at, e in self._monomials[m]:
                if self._atoms[at][0] == "exp":
                    sums[at] = sums.get(at, 0) + Fraction(e) / len(self._terms[a])
        return tuple(sorted((at, e) for at, e in sums.items() if e))

    def _log1p(self, a: int) -> int:
        return self._log(self.total([a, self.one]))

    def _sigmoid(self, a: int) -> int:
        return self.power(self.total([self.one, self._exp(self.scaled(a, -1))]), -1)

    def _relu(self, a: int) -> int:
        return self.largest([a, self.zero])

    def _cos(self, a: int) -> int:
        self._finite(a)
        return self.atom("fn", "cos", self._signed(a)[1])

    def binary(self, fn: str, a: int, b: int, integral: bool = False) -> int:
        """A binary function or comparison of `eqsat.program.ops` by name; `integral` for integer operands."""
        match fn:
            case "add":
                return self.total([a, b])
            case "sub":
                return self.total([a, self.scaled(b, -1)])
            case "mul" | "and":
                return self.product(a, b)
            case "or":
                return self.either(a, b)
            case "div":
                return self._quotient(a, b, integral)
            case "mod":
                return self.product(b, self.unary("frac", self.product(a, self.power(b, -1))))
            case "max":
                return self.largest([a, b])
            case "min":
                return self.smallest([a, b])
            case "less":
                return self.positive(b, a)
            case "greater":
                return self.positive(a, b)
            case "less_equal":
                return self._not(self.positive(a, b))
            case "greater_equal":
                return self._not(self.positive(b, a))
            case "equal":
                return self.null(a, b)
            case "pow":
                raised = self._raised(a, b)
                return self.unary("trunc", raised) if integral else raised
        self._finite(a, b)
        return self.atom("fn", fn, a, b)

    def _quotient(self, a: int, b: int, integral: bool) -> int:
        quotient = self.product(a, self.power(b, -1))
        return self.unary("trunc", quotient) if integral else quotient

    def _powers(self, factors: Iterable[tuple[int, Number]]) -> int:
        """As `Scalars._powers`; those of one base to exponents that vary become one: a^b a^c is a^(b + c) wherever it
        has a value."""
        others: list[tuple[int, Number]] = []
        raised: dict[int, list[tuple[int, Number]]] = {}
        for at, e in factors:
            kept = self._atoms[at][:2] != ("fn", "pow") or e != int(e) or self.sign_of(self._atoms[at][2]) == POSITIVE
            (others if kept else raised.setdefault(self._atoms[at][2], [])).append((at, e))
        joined: list[int] = []
        for base, powers in raised.items():
            if len(powers) == 1 and powers[0][1] == 1:
                others += powers
            else:
                exponent = self.total([self.scaled(self._atoms[at][3], e) for at, e in powers])
                joined.append(self._raised(base, exponent))
        result = super()._powers(others)
        for e in joined:
            result = self.product(result, e)
        return result

    def _raised(self, a: int, b: int) -> int:
        exponent = self.constant(b)
        if exponent is not None and abs(exponent) <= _FOLDED_POWER:
            return self.power(a, exponent)
        terms = self._terms[a]
        factors = self._monomials[terms[0][0]] if len(terms) == 1 and terms[0][1] == 1 else ()
        if factors and all(self._atoms[at][0] == "exp" for at, _ in factors):
            return self._exp(self.product(self._log(a), b))
        if a == self.one:
            return a
        # 0^(b - 1) may be 1 where 0^b / 0 has no value, and 0^-b be 0 where 1 / 0^b has none.
        if self.sign_of(a) != POSITIVE:
            zero = a == self.zero and self.sign_of(b) == POSITIVE
            return a if zero else self.atom("fn", "pow", a, b)
        result = self.one
        for m, c in self._terms[b]:
            folded = m == 0 and abs(c) <= _FOLDED_POWER
            base = a if folded else self.atom("fn", "pow", a, self._intern({m: 1}), nonnegative=True)
            result = self.product(result, self.power(base, c))
        return result

    # --- with atoms replaced

    def substituted(self, e: int, at: int, by: int) -> int:
        """An expression with another one in place of an atom, wherever that is seen from outside."""
        parts: list[int] = []
        for m, c in self._terms[e]:
            product = self.number(c)
            for a, exponent in self._monomials[m]:
                product = self.product(product, self.power(self._replaced(a, at, by), exponent))
            parts.append(product)
        return self.total(parts)

    def _replaced(self, a: int, at: int, by: int) -> int:
        if a == at:
            return by
        kind, *rest = self._atoms[a]

        def inner(e: int) -> int:
            return self.substituted(e, at, by)

        match kind:
            case "sum":
                return inner(rest[0])
            case "abs" | "log":
                return self.unary(kind, inner(rest[0]))
            case "exp":
                return self.unary("exp", inner(self._intern({rest[0]: 1})))
            case "fn" if len(rest) == 2 and isinstance(rest[1], int):
                return self.unary(rest[0], inner(rest[1]))
            case "positive":
                return self.positive(inner(rest[0]), self.zero)
            case "null":
                return self.null(inner(rest[0]), self.zero)
            case "max":
                return self.largest([inner(e) for e in rest[0]])
        return self.alone(a)

    # --- facts

    def equal(self, a: int, b: int) -> bool:
        """As `Scalars.equal`; or with roots of products as products of roots, where a side has these; or where all is
        positive of which a side takes the logarithm whatever else holds."""
        if super().equal(a, b) or self._with_roots(self.total([a, self.scaled(b, -1)])):
            return True
        alike = [self._with_positive(e, self._positive_in([a, b])) for e in (a, b)]
        return alike != [a, b] and super().equal(*alike)

    def _with_roots(self, difference: int) -> bool:
        """Whether terms cancel once roots of products are products of roots, and absolute values what they are of.

        They do if one that cancels has itself roots of all these factors: then either none of the factors is
        negative, or it has no value, or it is zero, as the others are.
        """
        alike: dict[int, list[tuple[Number, set[int], set[int]]]] = {}
        for m, c in self._terms[difference]:
            factors = self._monomials[m]
            parts = {at: self._factors_of(at) for at, _ in factors}
            alone = {at for at, e in factors if e != int(e)}
            split = {part for of in parts.values() for part in of}
            apart = [(part, e) for at, e in factors for part in parts[at] or [at]]
            alike.setdefault(self._powers(apart), []).append((c, alone, split))
        return all(
            sum(c for c, _, _ in terms) == 0
            and any(not own and all(split <= alone for _, _, split in terms) for _, alone, own in terms)
            for terms in alike.values()
        )

    def _factors_of(self, at: int) -> list[int]:
        """The factors of a product of atoms that is an atom itself, as roots of it need it, and the atom whose absolute
        value another is; none of any other."""
        kind, inner, *_ = (*self._atoms[at], None)
        if kind not in ("sum", "abs") or len(self._terms[inner]) != 1:
            return []
        ((m, c),) = self._terms[inner]
        return [a for a, _ in self._monomials[m]] if c == 1 else []

    def _positive_in(self, sides: Iterable[int]) -> set[int]:
        """The atoms of which a side takes the logarithm outside of all conditions.

        What is taken where a condition does not hold, (1 - c) log(x), has a term without the condition as well.
        """
        found: set[int] = set()
        for e in sides:
            outside: dict[bool, set[int]] = {True: set(), False: set()}
            for m, _ in self._terms[e]:
                factors = self._monomials[m]
                outside[not any(self._boolean[at] for at, _ in factors)] |= {self._of_log(at) for at, _ in factors}
            found |= outside[True] - outside[False]
        return found - {-1}

    def _of_log(self, at: int) -> int:
        """The atom whose logarithm an atom is; -1 if it is none of an atom."""
        key = self._atoms[at]
        if key[0] != "log" or len(self._terms[key[1]]) != 1:
            return -1
        ((m, c),) = self._terms[key[1]]
        factors = self._monomials[m]
        return factors[0][0] if c == 1 and len(factors) == 1 and factors[0][1] == 1 else -1

    def _with_positive(self, e: int, atoms: Iterable[int]) -> int:
        """An expression where some atoms are known to be positive: so are their absolute values and powers."""
        for at in sorted(atoms):
            inner = self.alone(at)
            size = self._atom_ids.get(("abs", inner))
            if size is not None:
                e = self.substituted(e, size, inner)
            for log, exponent in self._logs_of_powers(e, inner):
                e = self.substituted(e, log, self.product(exponent, self._log(inner)))
        return e

    def _logs_of_powers(self, e: int, base: int) -> list[tuple[int, int]]:
        """The logarithms of powers of a base among the factors of an expression, with the exponents."""
        found: dict[int, int] = {}
        for m, _ in self._terms[e]:
            for at, _ in self._monomials[m]:
                key = self._single_atom(self._atoms[at][1]) if self._atoms[at][0] == "log" else None
                if key is not None and key[:3] == ("fn", "pow", base):
                    found[at] = key[3]
        return list(found.items())

    def compared(self, at: int) -> int | None:
        """What a comparison holds against zero; None for other booleans."""
        kind, *rest = self._atoms[at]
        return rest[0] if kind in ("positive", "null") else None

    def with_sign(self, e: int, compared: int, sign: int) -> int:
        """An expression where the sign of another one is known."""
        for kind, value in (("positive", sign > 0), ("null", sign == 0)):
            at = self._atom_ids.get((kind, compared))
            if at is not None:
                e = self.assuming(e, at, value)
        return e

    def at_zero(self, e: int, d: int) -> int:
        """An expression where d = 0: an atom of d that stands alone is replaced by what it then is."""
        for m, c in self._terms[d]:
            factors = self._monomials[m]
            if len(factors) != 1 or factors[0][1] != 1:
                continue
            at = factors[0][0]
            if sum(at in dict(self._monomials[other]) for other, _ in self._terms[d]) == 1:
                rest = self.total([d, self._intern({m: -c})])
                return self.substituted(e, at, self.scaled(rest, -1 / Fraction(c)))
        return e

    def linear_terms(self, e: int) -> dict[int, Number]:
        """Coefficients by monomial; that of the constant by 0."""
        return dict(self._terms[e])

    def monomial_limit(self, m: int) -> Number | None:
        """What a monomial is always below."""
        factors = self._monomials[m]
        alone = len(factors) == 1 and factors[0][1] == 1
        return 1 if alone and self._atoms[factors[0][0]][:2] == ("fn", "frac") else None

    def input_of(self, m: int) -> str | None:
        """The input that a monomial is an element of; None for any other."""
        factors = self._monomials[m]
        if len(factors) != 1 or factors[0][1] != 1:
            return None
        key = self._atoms[factors[0][0]]
        return key[1] if key[0] == "in" else None

    def range_of(self, e: int) -> tuple[Number | float, Number | float, bool]:
        """Bounds of an expression by those of inputs, and whether the upper one is never reached."""
        low: Number | float = 0
        high: Number | float = 0
        is_open = False
        for m, c in self._terms[e]:
            known = Bounds(1, 1) if m == 0 else self.bounds.get(self.input_of(m) or "", Bounds())
            ends = [_times(c, known.low), _times(c, known.high)]
            low, high = low + min(ends), high + max(ends)
            is_open |= known.high_open if c > 0 else known.low_open
        return low, high, is_open

    # --- replaying

    def evaluate(self, e: int, element: Callable[[str, int], float]) -> float:
        """The value of an expression in floating point; `element(name, i)` gives the elements of inputs."""
        sums = 0.0
        for m, c in self._terms[e]:
            factors = self._monomials[m]
            if not all(self._atom_value(a, element) for a, _ in factors if self._boolean[a]):
                continue  # the side of a choice that is not taken, which may have no value
            product, power = float(c), 0.0
            for a, exponent in factors:
                kind, *rest = self._atoms[a]
                if kind == "exp":  # in one: exp(800) exp(-799) is e
                    power += float(exponent) * self.evaluate(self._intern({rest[0]: 1}), element)
                else:
                    product *= float(np.power(self._atom_value(a, element), float(exponent)))
            sums += product * float(np.exp(power))
        return sums

    def _atom_value(self, a: int, element: Callable[[str, int], float]) -> float:
        kind, *rest = self._atoms[a]
        if kind == "in":
            return float(element(*rest))
        if kind in ("number", "special"):
            return float(rest[0])
        if kind == "chosen":
            index, count, k = rest
            return float(int(_rounded(self.evaluate(index, element))) % count == k)
        if kind == "fn":
            kind, *rest = rest
        operands = rest[0] if isinstance(rest[0], tuple) else rest
        return _ATOMS[kind](*(self.evaluate(p, element) for p in operands))


def _rounded(x: float) -> float:
    """A quotient or an index as the integer that it is but for rounding."""
    nearest = float(np.rint(x))
    return nearest if abs(x - nearest) <= 1e-9 * max(1.0, abs(x)) else x


def _function(name: str) -> Callable[..., float]:
    return lambda *operands: float(elementwise(name, *(np.asarray(x, dtype=np.float64) for x in operands)))


_ATOMS: dict[str, Callable[..., float]] = {
    **{name: _function(name) for name in ELEMENTWISE},
    "frac": lambda inner: _rounded(inner) - float(np.floor(_rounded(inner))),
    "trunc": lambda inner: float(np.trunc(_rounded(inner))),
    "max": lambda *operands: float(np.max(operands)),  # what has no value hides in none
    "sum": lambda inner: inner,
    "positive": lambda inner: float(inner > 0),
    "null": lambda inner: float(inner == 0),
    "clamp": lambda inner, low, high: float(np.clip(inner, low, high)),
    "where": lambda condition, a, b: a if condition else b,
    "argmax": lambda *operands: float(np.argmax(operands)),
}
"""What an atom is worth, by its kind or its function."""
