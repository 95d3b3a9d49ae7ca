"""Where terms are defined: none that a certificate names may be undefined where both of its sides are defined.

A law holds where all that it names is defined. 1 / 0 is nowhere: from x * 0 = y * 0 and 0 * (1 / 0) = 1 follows x = y.
The logarithm of x is not everywhere: from exp(log(x)) = x and relu(exp(a)) = exp(a) follows relu(x) = x.

What is defined is found step by step, from the terms of both sides on, which are taken to be. These say what their
operands are: where 1 / a is defined, a is not zero. A term is defined if its operands are, and are in its domain by
what is known of them; or if a defined term is the same function of equal operands. Only equalities between defined
terms count, so that no term is a reason of its own.

A side may be defined where its operands are not: `where(x > 0, log(x), 0)` is for every x, and so are the first
elements of log(x) where the others are not. An `If` that is carried unread may take log(x), too. So only what a side
reads whatever its operands are is taken to be defined. Of the rest, laws may still speak that hold of undefined
elements, too. Let an undefined element be NaN, which all functions hand on, and the comparisons of it be false: then
whatever is exact or only reassociates is true (that is how these classes are tested), unless it names a function that
is not defined everywhere. Other laws hold where all that they name is defined.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from eqsat.base.numerics import Array, is_float, scalar
from eqsat.errors import CheckFailed
from eqsat.language.rule import Lit, Pat, Rule
from eqsat.layout.arithmetic import Layout, is_bijective
from eqsat.program.core_table import CAST
from eqsat.verify.congruence import Congruence
from eqsat.verify.rounding import LAST_PLACE, ROUNDING
from eqsat.verify.terms import Terms

_NOT_ZERO, _NOT_BELOW = 1, 2
_ABOVE = _NOT_ZERO | _NOT_BELOW
"""What is known of all elements of a value: that none is zero, none below zero."""

_DOMAINS: Mapping[str, tuple[int, int]] = {
    "log": (0, _ABOVE),
    "sqrt": (0, _NOT_BELOW),
    "rsqrt": (0, _ABOVE),
    "reciprocal": (0, _NOT_ZERO),
    "log1p": (0, _NOT_BELOW),
    "div": (1, _NOT_ZERO),
    "mod": (1, _NOT_ZERO),
    "pow": (0, _ABOVE),
}
"""Functions of floats that are not defined everywhere: of which operand what must be known. Some take more."""

_EXACT = frozenset({"log", "sqrt", "rsqrt", "reciprocal", "div", "mod"})
"""Those that take nothing else."""

_MOST_SEEN = 1 << 22
"""Elements of a view that is seen to read all of its operand."""


class Equality(NamedTuple):
    """Two terms that are equal where all that is needed is defined; elsewhere, too, if nothing is needed."""

    sides: tuple[int, int]
    needs: tuple[int, ...]


def needed_by(rule: Rule, terms: Terms, at: int, right: int) -> tuple[int, ...]:
    """What must be defined for a rule to hold: all that its sides name, or nothing where it hands on what is not."""
    named = sorted({term for _, term in terms.matched(rule, at, right)})
    patterns = [pattern for pattern, _ in terms.matched(rule, at, right) if isinstance(pattern, Pat)]
    partial = any(_function(pattern.op, pattern.attrs) in _DOMAINS for pattern in patterns)
    empty = not all(terms.size[term] for term in named)  # a sum of nothing is zero, whatever it is multiplied with
    return tuple(named) if rule.numerics == "range-changing" or partial or empty else ()


def see_defined(
    terms: Terms, equalities: Sequence[Equality], sides: Iterable[int], constants: Mapping[str, Array]
) -> None:
    """See that what equalities need is defined where both sides are.

    Args:
        constants: digest to stored values.

    Raises:
        CheckFailed: one may not be.
    """
    defined = _defined(terms, equalities, sides, constants)
    for each in equalities:
        for i in each.needs:
            if not defined[i]:
                first = next((j for j in terms.below([i]) if not defined[j] and _domain(terms, j)), i)
                name = next(iter(terms.rows[first][1]), terms.rows[first][0])
                raise CheckFailed(f"a term need not be defined where the programs are: {name} of any value")


def all_defined(terms: Terms, sides: Iterable[int], constants: Mapping[str, Array]) -> bool:
    """Whether all terms are seen to be defined where both sides are.

    Args:
        constants: digest to stored values.
    """
    return all(_defined(terms, (), sides, constants))


def _defined(
    terms: Terms, equalities: Sequence[Equality], sides: Iterable[int], constants: Mapping[str, Array]
) -> list[bool]:
    """Which terms are defined where both sides are, as far as it is seen."""
    partial = [_domain(terms, i) is not None for i in range(len(terms.rows))]
    if not any(partial):
        return [True] * len(partial)
    known = _Known(terms, constants)
    defined = known.read(sides, partial)
    if all(defined[i] for i, here in enumerate(partial) if here):
        return [True] * len(partial)
    while True:
        usable = [each.sides for each in equalities if all(defined[i] for i in (*each.sides, *each.needs))]
        closed = Congruence(terms, usable)
        known.find(closed, defined)
        alike = {closed.signature(i) for i in range(len(terms.rows)) if defined[i]}
        count = sum(defined)
        for i in range(len(terms.rows)):  # operands first
            defined[i] = defined[i] or (
                all(defined[a] for a in terms.rows[i][2]) and (closed.signature(i) in alike or known.inside(closed, i))
            )
        for (a, b), needs in equalities:
            if not needs:
                defined[a] = defined[b] = defined[a] or defined[b]
        if sum(defined) == count:
            return defined


def _domain(terms: Terms, at: int) -> tuple[int, int] | None:
    """What a function of floats takes: which of its operands must be what. None: it takes all."""
    op, attrs, args = terms.rows[at]
    function = _function(op, attrs)
    return _DOMAINS.get(function) if function and is_float(terms.dtype[args[0]]) else None


def _function(op: str, attrs: Sequence[Any]) -> Any:
    """The function that an operator applies to each element; an empty text for any other operator."""
    if op not in ("Un", "Bin"):
        return ""
    return attrs[0].value if isinstance(attrs[0], Lit) else attrs[0]


class _Known:
    """What is known of the elements of values, by the class of each."""

    def __init__(self, terms: Terms, constants: Mapping[str, Array]) -> None:
        self._terms, self._constants = terms, constants
        self._own = [self._leaf(i) for i in range(len(terms.rows))]
        self._of: dict[int, int] = {}

    def read(self, sides: Iterable[int], partial: Sequence[bool]) -> list[bool]:
        """Which terms both sides read every element of, whatever the others are, or no partial function is part of."""
        over = list(partial)
        for i, (_, _, args) in enumerate(self._terms.rows):
            over[i] = over[i] or any(over[a] for a in args)
        found = [not each for each in over]
        stack = list(sides)
        while stack:
            at = stack.pop()
            if not found[at]:
                found[at] = True
                stack += self._read_by(at)
        return found

    def _read_by(self, at: int) -> Sequence[int]:
        """The operands of which a term reads every element."""
        op, attrs, args = self._terms.rows[at]
        match op:
            case "Where":
                return args[:1]
            case "Gather":
                return args[1:]
            case "Opaque":  # a branch or a loop that is carried need not read its operands
                return ()
            case "V":
                return args if self._reads_all(at, attrs[0]) else ()
        return args if self._terms.size[at] else ()

    def find(self, closed: Congruence, defined: Sequence[bool]) -> None:
        """All that follows from terms that are defined."""
        self._of = {}
        order = [i for i in range(len(self._terms.rows)) if defined[i]]
        changed = True
        while changed:
            before = dict(self._of)
            for i in order:
                self._learn(closed, i, self._own[i] | self._result(closed, i))
            for i in reversed(order):
                for operand, fact in self._needs(closed, i):
                    self._learn(closed, operand, fact)
            changed = self._of != before

    def inside(self, closed: Congruence, at: int) -> bool:
        """Whether a term is defined where its operands are."""
        domain = _domain(self._terms, at)
        if domain is None:
            return True
        operand, needed = domain
        _, attrs, args = self._terms.rows[at]
        if self._fact(closed, args[operand]) & needed == needed:
            return True
        power = self._number(args[1]) if attrs[0] == "pow" else None
        if power is None or not float(power).is_integer():
            return False
        return power >= 0 or bool(self._fact(closed, args[0]) & _NOT_ZERO)

    def _fact(self, closed: Congruence, at: int) -> int:
        return self._of.get(closed.of(at), 0)

    def _learn(self, closed: Congruence, at: int, fact: int) -> None:
        if fact:
            self._of[closed.of(at)] = self._fact(closed, at) | fact

    def _number(self, at: int) -> Any:
        op, attrs, _ = self._terms.rows[at]
        return attrs[0] if op == "Full" else None

    def _leaf(self, at: int) -> int:
        """What is known of a number or a constant, whichever value within rounding is given to it."""
        op, attrs, _ = self._terms.rows[at]
        if op == "Full":
            return _number(attrs[0])
        if op != "Const" or attrs[0] not in self._constants:
            return 0
        values = self._constants[attrs[0]].astype(np.float64)
        size = np.abs(values)
        sure = size.min(initial=np.inf) > ROUNDING * LAST_PLACE.get(self._terms.dtype[at], 0.0) * size.max(initial=0)
        return (_NOT_ZERO if sure else 0) | (_NOT_BELOW if sure and (values > 0).all() else 0)

    def _result(self, closed: Congruence, at: int) -> int:
        """What follows from the operands."""
        op, attrs, args = self._terms.rows[at]
        facts = [self._fact(closed, a) for a in args]
        match op, attrs:
            case "V", (layout,):
                fill = _number(scalar(layout.fill, self._terms.dtype[at])) if layout.masked else _ABOVE
                return facts[0] & fill
            case "Cat", _:
                return _all(facts)
            case "Where", _:
                return _all(facts[1:])
            case "Gather", _:
                return facts[0]
            case "MM", (_, _, k, _):
                return _all(facts) & _NOT_BELOW | (_ABOVE if k and _all(facts) == _ABOVE else 0)
            case "Red", (str(fn), int(count)) if count:
                return facts[0] if fn in ("prod", "max", "min") else _sum([facts[0]] * 2) if fn == "sum" else 0
            case "Un", (str(fn),):
                return self._of_one(fn, facts[0], at)
            case "Bin", (str(fn),) if is_float(self._terms.dtype[at]):
                return _of_two(fn, *facts, same=closed.equal(*args))
        return 0

    def _of_one(self, fn: str, fact: int, at: int) -> int:
        if fn.startswith(CAST):
            return fact if is_float(self._terms.dtype[at]) else fact & _NOT_BELOW
        match fn:
            case "exp" | "sigmoid" | "rsqrt":
                return _ABOVE
            case "neg":
                return fact & _NOT_ZERO
            case "abs" | "sqrt":
                return _NOT_BELOW | fact
            case "relu":
                return _NOT_BELOW | (fact if fact == _ABOVE else 0)
            case "reciprocal":
                return _NOT_ZERO | fact
        return 0

    def _needs(self, closed: Congruence, at: int) -> list[tuple[int, int]]:
        """What operands must be: for the term to be defined, and to be what is known of it."""
        op, attrs, args = self._terms.rows[at]
        fact = self._fact(closed, at)
        found: list[tuple[int, int]] = []
        domain = _domain(self._terms, at)
        if domain is not None and attrs[0] in _EXACT:
            found.append((args[domain[0]], domain[1]))
        match op, attrs:
            case "Bin", ("mul",):
                found += [(a, fact & _NOT_ZERO) for a in args]
            case "Bin", ("div",):
                found.append((args[0], fact & _NOT_ZERO))
            case "Un", ("neg" | "abs" | "sqrt",):
                found.append((args[0], fact & _NOT_ZERO))
            case "Un", ("reciprocal",):
                found.append((args[0], fact & _NOT_BELOW))
            case "Un", (str(fn),) if fn.startswith(CAST) and all(map(is_float, self._dtypes(at))):
                found.append((args[0], fact))
            case "Cat", _:
                found += [(a, fact) for a in args]
            case "V", (layout,) if fact and self._reads_all(at, layout):
                found.append((args[0], fact))
        return found

    def _dtypes(self, at: int) -> tuple[str, str]:
        return self._terms.dtype[at], self._terms.dtype[self._terms.rows[at][2][0]]

    def _reads_all(self, at: int, layout: Layout) -> bool:
        """Whether a view reads every element of its operand."""
        [of] = self._terms.rows[at][2]
        return _covers(layout, self._terms.size[of])


@lru_cache(maxsize=1 << 12)
def _covers(layout: Layout, size: int) -> bool:
    """Whether a layout reads every element of an array of this size."""
    if is_bijective(layout, size):
        return True
    if not size <= layout.size <= _MOST_SEEN:
        return False
    seen = np.zeros(size + 1, np.bool_)
    seen[layout.index()] = True  # what is filled in is noted behind the end
    return bool(seen[:size].all())


def _number(value: Any) -> int:
    """What is known of a number: nothing of NaN."""
    return (_NOT_ZERO if value < 0 or value > 0 else 0) | (_NOT_BELOW if value >= 0 else 0)


def _all(facts: Iterable[int]) -> int:
    known = _ABOVE
    for fact in facts:
        known &= fact
    return known


def _sum(facts: Sequence[int]) -> int:
    """Of a sum: where no addend is below zero, it is zero only if all are."""
    if not _all(facts) & _NOT_BELOW:
        return 0
    return _ABOVE if _ABOVE in facts else _NOT_BELOW


def _of_two(fn: str, one: int, other: int, same: bool) -> int:
    match fn:
        case "mul":
            return one & other | (_NOT_BELOW if same else 0)
        case "div":
            return one & other | one & _NOT_ZERO
        case "add":
            return _sum([one, other])
        case "min":
            return one & other
        case "max":
            above = _ABOVE if _ABOVE in (one, other) else 0
            return one & other | above | (one | other) & _NOT_BELOW
        case "pow":
            return one if one == _ABOVE else 0
    return 0
