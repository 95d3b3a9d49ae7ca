"""Maxima of scalar expressions in normal form.

`min(a, b) = -max(-a, -b)`; max is associative, commutative, idempotent, absorbs min, and commutes with what all its
operands have in common: a term, a positive factor, an increasing function.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

from eqsat.proof.normal_form.order import NOT_NEGATIVE, POSITIVE, Order, content_of
from eqsat.proof.normal_form.scalars import Beyond, Number

_STRICT = frozenset({"erf", "tanh"})
_INCREASING = _STRICT | {"round", "sign"}
"""Functions that keep order; the others may make different values equal, and so move the first of the largest."""

_MOST_FOLDED = 3
"""Operands up to which a maximum is written as conditionals."""


class Maxima(Order, ABC):
    """Scalar expressions with maxima and minima; where `cases`, those of few as conditionals."""

    def largest(self, operands: Iterable[int]) -> int:
        """The maximum."""
        parts, floor = self._maximum_parts(operands)
        if self._special and any(p in self._special for p in parts):
            raise Beyond("a maximum with infinity")
        if parts and (floor is None or floor in (0, 1)) and all(map(self.truth, parts)):
            return self._any(parts) if floor != 1 else self.one
        return self._common(parts, floor)

    def smallest(self, operands: Iterable[int]) -> int:
        """The minimum."""
        return self.scaled(self.largest([self.scaled(e, -1) for e in operands]), -1)

    def position_of_largest(self, row: Sequence[int]) -> int:
        """The first position of the maximum."""
        shift, scale, rest = self._alike(list(row))
        if scale != self.one or shift != self.zero:
            return self.position_of_largest(rest)
        increasing = self._under_increasing(rest, strict=True)
        if increasing is not None:
            _, sign, inner = increasing
            return self.position_of_largest([self.scaled(e, sign) for e in inner])
        return self.atom("fn", "argmax", tuple(row), whole=True, nonnegative=True)

    def _maximum_parts(self, operands: Iterable[int]) -> tuple[list[int], Number | None]:
        """The operands of nested maxima, each once, and the largest constant among them."""
        parts: dict[int, None] = {}
        floor: Number | None = None
        for e in operands:
            if self._special.get(e) == -math.inf:
                continue
            key = self._single_atom(e)
            for part in key[1] if key is not None and key[0] == "max" else (e,):
                value = self.constant(part)
                if value is None:
                    parts[part] = None
                else:
                    floor = value if floor is None else max(floor, value)
        return [p for p in parts if not self._absorbed(p, parts)], floor

    def _any(self, truths: Sequence[int]) -> int:
        result = self.zero
        for e in truths:
            result = self.either(result, e)
        return result

    def _common(self, parts: list[int], floor: Number | None) -> int:
        """A maximum, with what its operands have in common taken out."""
        members = [*parts, *([] if floor is None else [self.number(floor)])]
        if len(members) > 1:
            shift, scale, rest = self._alike(members)
            if scale != self.one or shift != self.zero:
                return self.total([shift, self.product(scale, self.largest(rest))])
            increasing = self._under_increasing(members)
            if increasing is not None:
                outer, sign, inner = increasing
                largest = self.largest([self.scaled(e, sign) for e in inner])
                return self.scaled(outer(self.scaled(largest, sign)), sign)
        if self.cases and len(members) > 1 and (at := self._common_condition(members)) is not None:
            sides = [self.largest([self.assuming(e, at, value) for e in members]) for value in (True, False)]
            return self.choice(self.alone(at), *sides)
        if self.cases and 1 < len(members) <= _MOST_FOLDED:
            result = members[0]
            for e in members[1:]:
                result = self._larger(result, e)
            return result
        return self._clamped(parts, floor)

    def _common_condition(self, members: Sequence[int]) -> int | None:
        """A boolean in every one of several expressions."""
        found: set[int] | None = None
        for e in members:
            atoms = {a for m, _ in self._terms[e] for a, _ in self._monomials[m] if self._boolean[a]}
            found = atoms if found is None else found & atoms
        return min(found or (), default=None)

    def _alike(self, members: Sequence[int]) -> tuple[int, int, list[int]]:
        """(shift, scale, rest): each member is shift + scale * rest; the scale is positive."""
        self._tick(sum(len(self._terms[e]) for e in members))
        shared = dict(set.intersection(*(set(self._terms[e]) for e in members)))
        if len(members) == 1 or (self._special and any(e in self._special for e in members)):
            return self.zero, self.one, list(members)
        shift = self._intern(shared)
        rest = [self.total([e, self.scaled(shift, -1)]) for e in members]
        terms = [t for e in rest for t in self._terms[e]]
        if not terms:
            return shift, self.one, rest
        varying = [c for m, c in terms if m]
        content = content_of(varying) if varying else 1
        factors = tuple((a, e) for a, e in self._shared(tuple(terms)) if self._atom_sign(a) == POSITIVE)
        scale = self._intern({self._monomial(factors): content})
        rest = [self._divided(e, content) for e in rest]
        if factors:
            undo = self._intern({self._monomial(tuple((a, -e) for a, e in factors)): 1})
            rest = [self.product(e, undo) for e in rest]
        return shift, scale, rest

    def _under_increasing(
        self, members: Sequence[int], *, strict: bool = False
    ) -> tuple[Callable[[int], int], int, list[int]] | None:
        """(f, sign, xs) where the members are sign * f(x), for an increasing f; `strict`: for one without steps."""
        if not strict and all(floors := [self._floored(e) for e in members]):
            return (lambda e: self.unary("floor", e)), 1, [e for e in floors if e is not None]
        signs = {c for e in members for _, c in self._terms[e]}
        if len(signs) != 1 or abs(sign := int(signs.pop())) != 1 or any(len(self._terms[e]) != 1 for e in members):
            return None
        factors = [self._monomials[self._terms[e][0][0]] for e in members]
        if any(not f for f in factors):
            return None
        if all(self._atoms[a][0] == "exp" for f in factors for a, _ in f):
            logs = [self._intern({self._atoms[a][1]: e for a, e in f}) for f in factors]
            return (lambda e: self.unary("exp", e)), sign, logs
        if any(len(f) != 1 for f in factors) or len({e for ((_, e),) in factors}) != 1:
            return None
        atoms, exponent = [a for ((a, _),) in factors], factors[0][0][1]
        if exponent != 1:
            return self._under_power(atoms, exponent, sign)
        kinds = {(*self._atoms[a], "")[:2] for a in atoms}
        kind, name = kinds.pop() if len(kinds) == 1 else ("", "")
        if kind == "fn" and name in (_STRICT if strict else _INCREASING):
            return (lambda e: self.unary(name, e)), sign, [self._atoms[a][2] for a in atoms]
        if all(self._atoms[a][0] == "log" for a in atoms):
            return (lambda e: self.unary("log", e)), sign, [self._atoms[a][1] for a in atoms]
        return None

    def _under_power(
        self, atoms: Sequence[int], exponent: Number, sign: int
    ) -> tuple[Callable[[int], int], int, list[int]] | None:
        """As `_under_increasing`, of powers of what is not negative; negative powers fall."""
        bases = [self.alone(a) for a in atoms]
        if exponent == int(exponent) and any(self._atom_sign(a) < NOT_NEGATIVE for a in atoms):
            return None
        if exponent > 0:
            return (lambda e: self.power(e, exponent)), sign, bases
        return (lambda e: self.power(self.scaled(e, -1), exponent)), sign, [self.scaled(e, -1) for e in bases]

    def _floored(self, e: int) -> int | None:
        """y where the expression is floor(y), as y - frac(y)."""
        for m, c in self._terms[e]:
            factors = self._monomials[m]
            if c == -1 and len(factors) == 1 and factors[0][1] == 1:
                key = self._atoms[factors[0][0]]
                if key[:2] == ("fn", "frac") and self.total([e, self._intern({m: 1})]) == key[2]:
                    return key[2]
        return None

    @abstractmethod
    def unary(self, fn: str, a: int) -> int:
        """A unary function by name."""

    def _larger(self, a: int, b: int) -> int:
        """The maximum of two as a conditional, the same for either order."""
        above = self.positive(a, b)
        if self._single_atom(above) is None:
            return self.choice(self.positive(b, a), b, a)
        return self.choice(above, a, b)

    def _clamped(self, parts: list[int], floor: Number | None) -> int:
        if not parts:
            return self.number(-math.inf) if floor is None else self.number(floor)
        if floor is None and len(parts) == 1:
            return parts[0]
        if floor is not None and len(parts) == 1:
            if self.sign_of(self.total([parts[0], self.number(-floor)])) > 0:
                return parts[0]
            inner = self._minimum_parts(parts[0])
            limits = [v for e in inner if (v := self.constant(e)) is not None]
            if limits:
                return self._between(self.smallest([e for e in inner if self.constant(e) is None]), floor, limits[0])
        members: list[int] = sorted([*parts, *([] if floor is None else [self.number(floor)])])
        return self.atom(
            "max",
            tuple(members),
            nonnegative=floor is not None and floor >= 0,
            whole=all(map(self.is_whole, members)),
        )

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
