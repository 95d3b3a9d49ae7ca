"""Functions of scalar expressions in normal form: what `eqsat.scalars` needs beyond sums, products and powers.

- `exp` of a sum is a product, `log` of a product is a sum, roots and reciprocals are powers;
- `min(a, b) = -max(-a, -b)`, `relu(a) = max(a, 0)`; max is associative, commutative, idempotent and absorbs min;
- booleans are polynomials in 0 and 1 with `b b = b`: `not b = 1 - b`, `a or b = a + b - a b`,
  `where(c, a, b) = c a + (1 - c) b`; comparisons look at the sign of a difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction

import numpy as np

from eqsat.numerics import ELEMENTWISE, elementwise
from eqsat.scalars import Beyond, Number, Scalars

_FOLDED_POWER = 64
_ODD = frozenset({"tanh", "erf", "sin", "sign", "round"})
_IDEMPOTENT = frozenset({"floor", "ceil", "round"})


class Functions(Scalars):
    """Scalar expressions with every elementwise function of `eqsat.ops`.

    `cases`: write maxima of two, absolute values and functions of conditionals as conditionals, and tanh by exp. That
    proves more where pieces meet (`relu(a) - relu(-a) = a`), and takes longer.
    """

    def __init__(self, tick: Callable[[int], None] = lambda terms: None, cases: bool = False) -> None:
        super().__init__(tick)
        self._cases = cases

    def unary(self, fn: str, a: int) -> int:
        """A unary function of `eqsat.ops` by name."""
        if self._cases and fn not in ("neg", "not") and (condition := self._condition(a)) is not None:
            yes, no = (self.unary(fn, self._assuming(a, condition, value)) for value in (True, False))
            return self.choice(self._intern({self._monomial(((condition, 1),)): 1}), yes, no)
        method = getattr(self, f"_{fn}", None)
        if method is not None:
            return method(a)
        self._finite(a)
        value = self.constant(a)
        if fn == "floor" and value is not None:
            return self.number(math.floor(value))
        if fn in _IDEMPOTENT and self._is_whole(a):
            return a
        if fn in _ODD:
            return self._odd(fn, a)
        return self.atom("fn", fn, a)

    def _is_whole(self, a: int) -> bool:
        key, value = self._single_atom(a), self.constant(a)
        if value is not None:
            return value == int(value)
        return key is not None and key[0] == "fn" and key[1] in _IDEMPOTENT

    def _signed(self, a: int) -> tuple[int, int]:
        """(sign, expression) with a positive leading coefficient."""
        terms = self._terms[a]
        return (-1, self.scaled(a, -1)) if terms and terms[0][1] < 0 else (1, a)

    def _condition(self, a: int) -> int | None:
        """A boolean among the factors of an expression."""
        factors = (at for m, _ in self._terms[a] for at, _ in self._monomials[m] if self._boolean[at])
        return min(factors, default=None)

    def _assuming(self, a: int, condition: int, value: bool) -> int:
        """An expression where a boolean atom is known."""
        sums: dict[int, Number] = {}
        false = self._excluded(condition) if value else condition
        for m, c in self._terms[a]:
            factors = self._monomials[m]
            if all(at != false for at, _ in factors):
                rest = self._monomial(tuple(f for f in factors if f[0] != condition))
                sums[rest] = sums.get(rest, 0) + c
        return self._intern(sums)

    def _larger(self, a: int, b: int) -> int:
        """The maximum of two as a conditional, the same for either order."""
        sign, difference = self._difference(a, b)
        if self.constant(difference) is not None:
            return self.largest([a, b])
        above = self.atom("positive", difference, boolean=True)
        return self.choice(above, a, b) if sign > 0 else self.choice(above, b, a)

    def _tanh(self, a: int) -> int:
        self._finite(a)
        if self._cases:
            return self.total([self.scaled(self._sigmoid(self.scaled(a, 2)), 2), self.number(-1)])
        return self._odd("tanh", a)

    def _odd(self, fn: str, a: int) -> int:
        sign, inner = self._signed(a)
        return self.zero if inner == self.zero else self.scaled(self.atom("fn", fn, inner), sign)

    def _neg(self, a: int) -> int:
        return self.scaled(a, -1)

    def _ceil(self, a: int) -> int:
        return a if self._is_whole(a) else self.scaled(self.unary("floor", self.scaled(a, -1)), -1)

    def _abs(self, a: int) -> int:
        self._finite(a)
        _, a = self._signed(a)
        terms = self._terms[a]
        if self._cases and self.constant(a) is None:
            return self._larger(a, self.scaled(a, -1))
        if len(terms) != 1:
            return self.atom("abs", a, nonnegative=True) if terms else a
        m, c = terms[0]
        result = self.number(abs(c))
        for at, e in self._monomials[m]:
            if self._nonnegative[at] or (e == int(e) and e % 2 == 0) or e != int(e):
                factor = self._powers([(at, e)])
            else:
                inner = self._intern({self._monomial(((at, 1),)): 1})
                factor = self._powers([(self._atom(("abs", inner), nonnegative=True), e)])
            result = self.product(result, factor)
        return result

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
        if len(terms) != 1 or terms[0][1] < 0:
            return self.atom("log", a)
        m, c = terms[0]
        parts = [] if c == 1 else [self.atom("log", self.number(c))]
        for at, e in self._monomials[m]:
            key = self._atoms[at]
            if key[0] == "exp":
                parts.append(self._intern({key[1]: e}))
                continue
            if key[:2] == ("fn", "pow"):
                parts.append(self.scaled(self.product(key[3], self._log(key[2])), e))
                continue
            base = self._intern({self._monomial(((at, 1),)): 1})
            if e == int(e) and e % 2 == 0:
                base = self._abs(base)
            parts.append(self.scaled(self.atom("log", base), e))
        return self.total(parts)

    def _log1p(self, a: int) -> int:
        return self._log(self.total([a, self.one]))

    def _sigmoid(self, a: int) -> int:
        return self.power(self.total([self.one, self._exp(self.scaled(a, -1))]), -1)

    def _relu(self, a: int) -> int:
        return self.largest([a, self.zero])

    def _cos(self, a: int) -> int:
        self._finite(a)
        return self.atom("fn", "cos", self._signed(a)[1])

    def same(self, a: int, b: int) -> int:
        """Whether two booleans are equal, as 0 or 1."""
        return self.total([self.one, self.scaled(a, -1), self.scaled(b, -1), self.scaled(self.product(a, b), 2)])

    def _not(self, a: int) -> int:
        return self.total([self.one, self.scaled(a, -1)])

    def binary(self, fn: str, a: int, b: int, integral: bool = False) -> int:
        """A binary function or comparison of `eqsat.ops` by name; `integral` for integer operands."""
        match fn:
            case "add":
                return self.total([a, b])
            case "sub":
                return self.total([a, self.scaled(b, -1)])
            case "mul" | "and":
                return self.product(a, b)
            case "or":
                return self.total([a, b, self.scaled(self.product(a, b), -1)])
            case "div":
                return self._quotient(a, b, integral)
            case "max":
                return self.largest([a, b])
            case "min":
                return self.smallest([a, b])
            case "less":
                return self._positive(b, a)
            case "greater":
                return self._positive(a, b)
            case "less_equal":
                return self._not(self._positive(a, b))
            case "greater_equal":
                return self._not(self._positive(b, a))
            case "equal":
                return self._null(a, b)
            case "pow":
                return self._raised(a, b)
        self._finite(a, b)
        return self.atom("fn", fn, a, b)

    def _quotient(self, a: int, b: int, integral: bool) -> int:
        if not integral:
            return self.product(a, self.power(b, -1))
        if b == self.one:
            return a
        return self.atom("fn", "quotient", a, b)

    def _raised(self, a: int, b: int) -> int:
        exponent = self.constant(b)
        if exponent is not None and abs(exponent) <= _FOLDED_POWER:
            return self.power(a, exponent)
        terms = self._terms[a]
        factors = self._monomials[terms[0][0]] if len(terms) == 1 and terms[0][1] == 1 else ()
        if factors and all(self._atoms[at][0] == "exp" for at, _ in factors):
            return self._exp(self.product(self._log(a), b))
        return self.one if a == self.one else self.atom("fn", "pow", a, b)

    def _positive(self, a: int, b: int) -> int:
        """Whether a > b, as 0 or 1."""
        sign, difference = self._difference(a, b)
        value = self.constant(difference)
        if value is not None:
            return self.one if sign * value > 0 else self.zero
        above = self.atom("positive", difference, boolean=True)
        if sign > 0:
            return above
        null = self.atom("null", difference, boolean=True)
        return self.total([self.one, self.scaled(above, -1), self.scaled(null, -1)])

    def _null(self, a: int, b: int) -> int:
        """Whether a = b, as 0 or 1."""
        _, difference = self._difference(a, b)
        value = self.constant(difference)
        if value is not None:
            return self.zero if value else self.one
        return self.atom("null", difference, boolean=True)

    def _difference(self, a: int, b: int) -> tuple[int, int]:
        """(sign, a - b up to that sign and a positive factor)."""
        sign, difference = self._signed(self.total([a, self.scaled(b, -1)]))
        terms = self._terms[difference]
        return sign, self.scaled(difference, Fraction(1) / terms[0][1]) if terms else difference

    def largest(self, operands: Iterable[int]) -> int:
        """The maximum."""
        parts: dict[int, None] = {}
        floor: Number | None = None
        for e in operands:
            if self._special.get(e) == -math.inf:
                continue
            if e in self._special:
                raise Beyond("a maximum with infinity")
            key = self._single_atom(e)
            for part in key[1] if key is not None and key[0] == "max" else (e,):
                value = self.constant(part)
                if value is None:
                    parts[part] = None
                else:
                    floor = value if floor is None else max(floor, value)
        kept = [p for p in parts if not self._absorbed(p, parts)]
        members = [*kept, *([] if floor is None else [self.number(floor)])]
        if self._cases and len(members) == 2:
            return self._larger(*members)
        return self._clamped(kept, floor)

    def _clamped(self, parts: list[int], floor: Number | None) -> int:
        if not parts:
            return self.number(-math.inf) if floor is None else self.number(floor)
        if floor is None and len(parts) == 1:
            return parts[0]
        if floor is not None and len(parts) == 1:
            inner = self._minimum_parts(parts[0])
            limits = [v for e in inner if (v := self.constant(e)) is not None]
            if limits:
                return self._between(self.smallest([e for e in inner if self.constant(e) is None]), floor, limits[0])
        members = sorted([*parts, *([] if floor is None else [self.number(floor)])])
        return self.atom("max", tuple(members), nonnegative=floor is not None and floor >= 0)

    def _between(self, e: int, low: Number, high: Number) -> int:
        """max(low, min(high, e)): one form for both orders and both signs."""
        if low >= high:
            return self.number(low)
        sign, e = self._signed(e)
        if sign < 0:
            low, high = -high, -low
        return self.scaled(self.atom("clamp", e, self.number(low), self.number(high)), sign)

    def _minimum_parts(self, e: int) -> tuple[int, ...]:
        """The operands of a minimum."""
        key = self._single_atom(self.scaled(e, -1))
        return tuple(self.scaled(p, -1) for p in key[1]) if key is not None and key[0] == "max" else ()

    def _absorbed(self, e: int, parts: dict[int, None]) -> bool:
        """max(a, min(a, b)) = a."""
        return any(p in parts for p in self._minimum_parts(e) if p != e)

    def smallest(self, operands: Iterable[int]) -> int:
        """The minimum."""
        return self.scaled(self.largest([self.scaled(e, -1) for e in operands]), -1)

    def choice(self, condition: int, a: int, b: int) -> int:
        """`where`."""
        if condition == self.one:
            return a
        if condition == self.zero or a == b:
            return b
        if a in self._special or b in self._special:
            return self.atom("where", condition, a, b)
        return self.total([self.product(condition, a), self.product(self._not(condition), b)])

    # --- replaying

    def evaluate(self, e: int, element: Callable[[str, int], float]) -> float:
        """The value of an expression in floating point; `element(name, i)` gives the elements of inputs."""
        sums = 0.0
        for m, c in self._terms[e]:
            product = float(c)
            for a, exponent in self._monomials[m]:
                product *= float(np.power(self._atom_value(a, element), float(exponent)))
            sums += product
        return sums

    def _atom_value(self, a: int, element: Callable[[str, int], float]) -> float:
        kind, *rest = self._atoms[a]
        if kind == "in":
            return float(element(*rest))
        if kind in ("number", "special"):
            return float(rest[0])
        if kind == "exp":
            return math.exp(self.evaluate(self._intern({rest[0]: 1}), element))
        if kind == "fn":
            kind, *rest = rest
        operands = rest[0] if isinstance(rest[0], tuple) else rest
        return _ATOMS[kind](*(self.evaluate(p, element) for p in operands))


def _function(name: str) -> Callable[..., float]:
    return lambda *operands: float(elementwise(name, *(np.asarray(x, dtype=np.float64) for x in operands)))


_ATOMS: dict[str, Callable[..., float]] = {
    **{name: _function(name) for name in ELEMENTWISE},
    "max": lambda *operands: max(operands),
    "sum": lambda inner: inner,
    "positive": lambda inner: float(inner > 0),
    "null": lambda inner: float(inner == 0),
    "clamp": lambda inner, low, high: min(max(inner, low), high),
    "where": lambda condition, a, b: a if condition else b,
    "argmax": lambda *operands: float(np.argmax(operands)),
    "argmin": lambda *operands: float(np.argmin(operands)),
}
"""What an atom is worth, by its kind or its function."""
