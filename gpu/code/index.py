"""Integer index expressions, in which a kernel's address arithmetic is simplified before it becomes C.

An index is an affine sum of atoms, and an atom is a loop variable or the quotient or remainder of an index by a
constant. All variables count from 0 to their extent, and all sizes are constants. An index is divided only where it
lies inside an array, guarded by a mask if intervals cannot prove that. So it is not negative there, and C's division is
the mathematical one.

    >>> i = Index.of(Var("row", 5)) * 8 + Index.of(Var("col", 8))
    >>> str(i // 8), str(i % 8), str(i // 4)
    ('row', 'col', '2*row + col/4')
    >>> str(i // 4 * 4 + i % 4)
    'col + 8*row'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eqsat.layout.arithmetic import Layout


@dataclass(frozen=True, slots=True)
class Var:
    """A variable of the kernel text, 0 <= name < extent wherever it is used."""

    name: str
    extent: int

    @property
    def range(self) -> tuple[int, int]:
        return 0, max(0, self.extent - 1)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Quotient:
    """of / by."""

    of: Index
    by: int

    @property
    def range(self) -> tuple[int, int]:
        low, high = self.of.range
        return max(0, low) // self.by, high // self.by

    def __str__(self) -> str:
        return f"{_operand(self.of)}/{self.by}"


@dataclass(frozen=True, slots=True)
class Remainder:
    """of % by."""

    of: Index
    by: int

    @property
    def range(self) -> tuple[int, int]:
        return 0, min(self.by - 1, self.of.range[1])

    def __str__(self) -> str:
        return f"{_operand(self.of)}%{self.by}"


Atom = Var | Quotient | Remainder


def _operand(index: Index) -> str:
    return str(index) if not index.constant and [c for _, c in index.terms] == [1] else f"({index})"


@dataclass(frozen=True)
class Index:
    """constant + sum of coefficient * atom; terms in a fixed order, no coefficient 0."""

    constant: int = 0
    terms: tuple[tuple[Atom, int], ...] = ()

    @staticmethod
    def of(value: Atom | int) -> Index:
        """The index of an atom or of a number."""
        return Index(value) if isinstance(value, int) else Index(0, ((value, 1),))

    @staticmethod
    def along(var: Var) -> Index:
        """The index of a variable, and 0 where that is its only value."""
        return Index.of(var) if var.extent > 1 else Index()

    @cached_property
    def range(self) -> tuple[int, int]:
        """Least and greatest value, as far as intervals tell."""
        low = high = self.constant
        for atom, c in self.terms:
            first, last = atom.range
            low += c * (first if c > 0 else last)
            high += c * (last if c > 0 else first)
        return low, high

    @cached_property
    def variables(self) -> frozenset[Var]:
        """The variables that it depends on."""
        found: set[Var] = set()
        for atom, _ in self.terms:
            found |= {atom} if isinstance(atom, Var) else atom.of.variables
        return frozenset(found)

    @cached_property
    def length(self) -> int:
        """Variables and divisions in it, written out."""
        return sum(1 if isinstance(atom, Var) else 1 + atom.of.length for atom, _ in self.terms)

    def coefficient(self, var: Var) -> int | None:
        """How far the index moves when `var` grows by 1; None where quotients or remainders hide it."""
        found = 0
        for atom, c in self.terms:
            if atom == var:
                found = c
            elif not isinstance(atom, Var) and var in atom.of.variables:
                return None
        return found

    def step(self, var: Var) -> int:
        """How far the index moves when `var` grows by 1, where no quotient or remainder turns over."""
        found = 0
        for atom, c in self.terms:
            if isinstance(atom, Var):
                found += c if atom == var else 0
            else:
                inside = atom.of.step(var)
                found += c * (inside // atom.by if isinstance(atom, Quotient) else inside % atom.by)
        return found

    def without(self, var: Var) -> Index:
        """The index where `var`, which no quotient or remainder holds, is 0."""
        return Index(self.constant, tuple((a, c) for a, c in self.terms if a != var))

    def multiple_of(self, n: int) -> bool:
        """Whether it is surely divisible by n."""
        return self.constant % n == 0 and all(c % n == 0 for _, c in self.terms)

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.constant + other, self.terms)
        return _sum(self.constant + other.constant, [*self.terms, *other.terms])

    def __sub__(self, other: Index | int) -> Index:
        return self + (other * -1)

    def __mul__(self, factor: int) -> Index:
        if factor == 0:
            return Index()
        return Index(self.constant * factor, tuple((a, c * factor) for a, c in self.terms))

    def __floordiv__(self, by: int) -> Index:
        return _divide(self, by)[0]

    def __mod__(self, by: int) -> Index:
        return _divide(self, by)[1]

    def __str__(self) -> str:
        parts = [str(a) if c == 1 else f"{c}*{a}" for a, c in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts)


def _order(atom: Atom) -> tuple[int, str]:
    return (0 if isinstance(atom, Var) else 1), str(atom)


def _sum(constant: int, terms: Iterable[tuple[Atom, int]]) -> Index:
    total: dict[Atom, int] = {}
    for atom, c in terms:
        total[atom] = total.get(atom, 0) + c
    joined = _joined(constant, {a: c for a, c in total.items() if c})
    return joined or Index(constant, tuple(sorted(((a, c) for a, c in total.items() if c), key=lambda t: _order(t[0]))))


def _joined(constant: int, total: Mapping[Atom, int]) -> Index | None:
    """The sum with one pair c * (x % n) + c n * (x / n) written as c * x; None where there is no such pair."""
    for atom, c in total.items():
        if not isinstance(atom, Remainder):
            continue
        quotient = atom.of // atom.by
        if quotient.constant or len(quotient.terms) != 1 or quotient.terms[0][1] != 1:
            continue
        other = quotient.terms[0][0]
        if total.get(other) == c * atom.by:
            rest = [(a, k) for a, k in total.items() if a not in (atom, other)]
            return _sum(constant + c * atom.of.constant, [*rest, *((a, c * k) for a, k in atom.of.terms)])
    return None


def _divide(index: Index, by: int) -> tuple[Index, Index]:
    """(index // by, index % by)."""
    if by == 1:
        return index, Index()
    if index.range[1] < by:
        return Index(), index
    shift, constant = divmod(index.constant, by)
    whole = Index(shift, tuple((a, c // by) for a, c in index.terms if c % by == 0))
    rest = Index(constant, tuple((a, c) for a, c in index.terms if c % by))
    if rest.range[0] >= 0 and rest.range[1] < by:
        return whole, rest
    split = _split(rest, by)
    if split is not None:
        large, small, unit = split
        quotient, remainder = _divide(large, by // unit)
        return whole + quotient, remainder * unit + small
    if rest.range[0] < 0:  # a negative term must not be separated from the multiple that outweighs it
        whole, rest = Index(), index
    quotient, remainder = _divide_atom(rest, by)
    return whole + quotient, remainder


def _split(rest: Index, by: int) -> tuple[Index, Index, int] | None:
    """(large, small, unit) with rest = unit * large + small, 0 <= small < unit, and unit > 1 a divisor of `by`."""
    terms = sorted(rest.terms, key=lambda t: -abs(t[1]))
    unit = by
    for count in range(1, len(terms) + 1):
        unit = gcd(unit, terms[count - 1][1])
        if unit == 1:
            return None
        high, low = divmod(rest.constant, unit)
        small = _sum(low, terms[count:])
        if small.range[0] >= 0 and small.range[1] < unit:
            return _sum(high, [(a, c // unit) for a, c in terms[:count]]), small, unit
    return None


def _divide_atom(rest: Index, by: int) -> tuple[Index, Index]:
    """Quotient and remainder where nothing cancels: quotients of quotients and of remainders become one."""
    only = rest.terms[0][0] if len(rest.terms) == 1 and rest.terms[0][1] == 1 and not rest.constant else None
    if isinstance(only, Quotient):
        return _divide(only.of, only.by * by)[0], Index.of(Remainder(rest, by))
    if isinstance(only, Remainder) and only.by % by == 0:
        inner, last = _divide(only.of, by)
        return inner % (only.by // by), last
    return Index.of(Quotient(rest, by)), Index.of(Remainder(rest, by))


def digits(index: Index, sizes: Iterable[int]) -> list[Index]:
    """The mixed-radix digits of an index below prod(sizes), outermost first."""
    found: list[Index] = []
    sizes = list(sizes)
    for i, size in enumerate(sizes):
        inner = prod(sizes[i + 1 :])
        above = index // inner
        found.append(above % size if i else above)
    return found


@dataclass(frozen=True, slots=True)
class Mask:
    """The condition 0 <= index < bound."""

    index: Index
    bound: int


def through(layout: Layout, index: Index) -> tuple[Index, list[Mask]]:
    """Where element `index` of V(a, layout) lies in a, and the conditions under which it lies there at all."""
    d = digits(index, [size for size, _ in layout.dims])
    address = Index.of(layout.offset)
    for digit, (_, stride) in zip(d, layout.dims, strict=True):
        address += digit * stride
    masks = []
    for axis in layout.axes:
        coordinate = Index.of(axis.start)
        for digit, c in zip(d, axis.coeffs, strict=True):
            coordinate += digit * c
        address += coordinate * axis.stride
        low, high = coordinate.range
        if low < 0 or high >= axis.bound:
            masks.append(Mask(coordinate, axis.bound))
    return address, masks
