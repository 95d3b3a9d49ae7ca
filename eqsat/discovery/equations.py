"""Equations found by evaluation: every expression that has the values of a smaller one.

One set of variables with certain shapes is looked at at a time. Expressions are made from small to large, of those that
no smaller one equals. Which may be equal shows on one random point; whether they are is then tried at other sizes and
points. The judgement of rules (`eqsat.evidence`), which evaluates polynomials exactly, has the last word.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from eqsat.discovery.expressions import (
    OPERATORS,
    VARIABLES,
    Array,
    Dim,
    Expr,
    Mismatch,
    Typing,
    canonical,
    number,
    parse,
    partitions,
    typing,
    value,
)

_SIZES = (2, 3, 7, 11, 17, 23, 31, 43, 53, 67, 79, 97)
"""Sizes of the letters: no two of them are equal, nor equal to a sum of two."""

_DIGITS = 9
"""Decimal digits in which values that are equal agree: float64 has 15, and expressions lose a few."""

_LIKE = 1e-9
_DEFINED = 0.1
"""Share of elements that must be finite for an expression to be looked at."""

_TRIALS = 32
"""Points at which an equation is tried, each at sizes of its own. One in four is positive, where roots and logarithms
are defined; signs and few elements may agree by chance on several of the others."""


@dataclass(frozen=True, slots=True)
class Equation:
    """Two expressions that are equal wherever both are defined, at all sizes at which they fit."""

    left: Expr
    right: Expr

    def __str__(self) -> str:
        return f"{self.left} == {self.right}"

    @staticmethod
    def read(text: str) -> Equation:
        """The equation that `str` wrote."""
        left, _, right = text.partition(" == ")
        return Equation(parse(left), parse(right))


def settings(operators: Sequence[str], size: int) -> list[tuple[tuple[Dim, Dim], ...]]:
    """The shapes of variables under which expressions of up to `size` operators fit, most general ones each, without
    those that differ only in names. Fewer variables come first, then more different sizes."""
    found: dict[tuple[tuple[Dim, Dim], ...], None] = {}
    for expr in _shapes_of(operators, size):
        leaves = list(expr.variables())
        for names in partitions(len(leaves)):
            named = _renamed(expr, (VARIABLES[name] for name in names))
            try:
                shapes = typing(named).shapes
            except Mismatch:
                continue
            found[least([shape for _, shape in shapes])] = None
    return sorted(found, key=lambda s: (len(s), -len(_letters(s)), str(s)))


def _shapes_of(operators: Sequence[str], size: int) -> Iterator[Expr]:
    """Expressions of up to `size` operators whose leaves are all the same, one for each choice of shapes of operators:
    elementwise functions are alike here."""
    rows = {OPERATORS[name].dims: name for name in operators}
    by_size: list[list[Expr]] = [[Expr("a")]]
    for total in range(1, size + 1):
        made = []
        for name in rows.values():
            arity = OPERATORS[name].arity
            for sizes in itertools.product(range(total), repeat=arity):
                if sum(sizes) == total - 1:
                    made += [Expr(name, args) for args in itertools.product(*(by_size[n] for n in sizes))]
        by_size.append(made)
        yield from made


def _letters(shapes: Sequence[tuple[Dim, Dim]]) -> set[str]:
    def below(dim: Dim) -> Iterator[str]:
        if isinstance(dim, tuple):
            yield from below(dim[0])
            yield from below(dim[1])
        elif dim != "1":
            yield dim

    return {letter for shape in shapes for dim in shape for letter in below(dim)}


def least(shapes: Sequence[tuple[Dim, Dim]]) -> tuple[tuple[Dim, Dim], ...]:
    """The same shapes, in the order and with the letters that come first."""

    def renamed(dim: Dim, names: dict[str, str]) -> Dim:
        if isinstance(dim, tuple):
            return renamed(dim[0], names), renamed(dim[1], names)
        return "1" if dim == "1" else names.setdefault(dim, f"d{len(names)}")

    def named(order: Sequence[tuple[Dim, Dim]]) -> tuple[tuple[Dim, Dim], ...]:
        names: dict[str, str] = {}
        return tuple((renamed(rows, names), renamed(columns, names)) for rows, columns in order)

    return min(map(named, itertools.permutations(shapes)), key=str)


def equations(
    shapes: Sequence[tuple[Dim, Dim]], operators: Sequence[str], size: int, positive: bool = False
) -> Iterator[Equation]:
    """The equations over variables of these shapes whose left side has up to `size` operators: it has the values of the
    right side, which is the first expression that has them.

    Args:
        positive: look at positive values alone, where roots and logarithms are defined.
    """
    letters = sorted(_letters(shapes))
    sizes = dict(zip(letters, _SIZES, strict=False))
    known: dict[tuple[Any, ...], Expr] = {}
    values: dict[Expr, Array] = {}
    by_size: list[list[Expr]] = [[]]
    for name, (rows, columns) in zip(VARIABLES, shapes, strict=False):
        expr = Expr(name)
        array = _random((number(rows, sizes), number(columns, sizes)), name)
        values[expr] = np.abs(array) if positive else array
        known[_fingerprint(values[expr])] = expr
        by_size[0].append(expr)
    for total in range(1, size + 1):
        made: list[Expr] = []
        for expr in _next(by_size, operators, values, total):
            with np.errstate(all="ignore"):
                found = OPERATORS[expr.op].array(*(values[arg] for arg in expr.args))
            if not np.isfinite(found).mean() > _DEFINED:
                continue
            key = _fingerprint(found)
            same = known.get(key)
            if same is None:
                known[key], values[expr] = expr, found
                made.append(expr)
            elif equation := _equation(expr, same):
                yield equation
        by_size.append(made)


def partial(operators: Sequence[str]) -> bool:
    """Whether some operator, as a logarithm, is undefined for some normal values: then positive ones show more."""
    for row in map(OPERATORS.__getitem__, operators):
        shapes = [tuple(1 if letter == "1" else 8 for letter in dims) for dims in row.dims.partition(" -> ")[0].split()]
        with np.errstate(all="ignore"):
            found = row.array(
                *(_random((shape[0], shape[1]), name) for shape, name in zip(shapes, VARIABLES, strict=False))
            )
        if not np.isfinite(found).all():
            return True
    return False


def _next(
    by_size: Sequence[Sequence[Expr]], operators: Sequence[str], values: Mapping[Expr, Array], total: int
) -> Iterator[Expr]:
    """Expressions of `total` operators, whose operands no smaller expressions equal."""
    for name in operators:
        for sizes in itertools.product(range(total), repeat=OPERATORS[name].arity):
            if sum(sizes) != total - 1:
                continue
            for args in itertools.product(*(by_size[n] for n in sizes)):
                if _fits(name, [values[arg].shape for arg in args]):
                    yield Expr(name, args)


def _fits(name: str, shapes: Sequence[tuple[int, ...]]) -> bool:
    operands = "".join(OPERATORS[name].dims.partition(" -> ")[0].split())
    found = [n for shape in shapes for n in shape]
    sizes: dict[str, int] = {"1": 1}
    return all(sizes.setdefault(letter, n) == n for letter, n in zip(operands, found, strict=True))


@lru_cache(maxsize=1 << 14)
def _random(shape: tuple[int, ...], name: str, trial: int = 0) -> Array:
    rng = np.random.default_rng([zlib.crc32(name.encode()), trial])
    return rng.normal(0.0, 0.7, shape)


def _fingerprint(array: Array) -> tuple[Any, ...]:
    """Equal for equal values, which are undefined in the same places: a weighted sum of all elements, rounded."""
    weights = _random(array.shape, "weights").ravel()
    defined = np.isfinite(array).ravel()
    used = np.where(defined, array.ravel(), 0.0)
    total, scale = float(weights @ used), float(np.abs(weights) @ np.abs(used)) or 1.0
    return array.shape, defined.tobytes(), f"{scale:.{_DIGITS - 1}e}", round(total / scale, _DIGITS - 1) + 0.0


# Whether what agrees at one size is equal


def _equation(left: Expr, right: Expr) -> Equation | None:
    """The equation at the most general shapes where it holds; None if it holds only as these shapes happen to be."""
    left, right = canonical(left, right)
    if set(right.variables()) - set(left.variables()):
        return None
    found = Equation(left, right)
    return found if most_general(found) is not None else None


@lru_cache(maxsize=1 << 18)
def most_general(equation: Equation) -> Equation | None:
    """An equation that holds and of which this one is an instance, but which is no instance of another; None if this
    one does not hold.

    It has variables in place of expressions that both sides have, and different ones wherever they may differ:
    a + (b @ a) = (b @ a) + a is an instance of a + b = b + a. One trial, and one derivation, does for all instances.
    """
    try:
        shapes = typing(equation.left, equation.right)
    except Mismatch:
        return None
    if not holds(equation.left, equation.right, shapes):
        return None  # nor does any wider one: this would be an instance of it
    for sides in _wider(equation.left, equation.right):
        if (found := most_general(Equation(*canonical(*sides)))) is not None:
            return found
    return equation


def _wider(left: Expr, right: Expr) -> Iterator[tuple[Expr, Expr]]:
    """Sides of which these are instances, with one variable more: for an expression that both have, or for some of the
    places of a variable."""
    fresh = Expr(next(name for name in VARIABLES if name not in {*left.variables(), *right.variables()}))
    for part in sorted(set(_operands(left)) & set(_operands(right)), key=lambda e: (-e.size, str(e))):
        yield _with(left, part, fresh), _with(right, part, fresh)
    ours, theirs = list(left.variables()), list(right.variables())
    for i, name in enumerate(ours):
        places = [j for j, other in enumerate(theirs) if other == name]
        if ours.count(name) > 1:
            for count in range(1, len(places) + 1):
                for chosen in itertools.combinations(places, count):
                    yield (
                        _renamed(left, iter(_put(ours, [i], fresh.op))),
                        _renamed(right, iter(_put(theirs, chosen, fresh.op))),
                    )


def _operands(expr: Expr) -> Iterator[Expr]:
    """The expressions below the top that have operators."""
    for arg in expr.args:
        if arg.args:
            yield arg
            yield from _operands(arg)


def _with(expr: Expr, part: Expr, variable: Expr) -> Expr:
    """The expression with a variable for each occurrence of a part."""
    if expr == part:
        return variable
    return Expr(expr.op, tuple(_with(arg, part, variable) for arg in expr.args)) if expr.args else expr


def _put(names: Sequence[str], places: Sequence[int], name: str) -> list[str]:
    return [name if i in places else old for i, old in enumerate(names)]


def _renamed(expr: Expr, names: Iterator[str]) -> Expr:
    """The expression with other variables, from left to right."""
    return Expr(expr.op, tuple(_renamed(arg, names) for arg in expr.args)) if expr.args else Expr(next(names))


def holds(left: Expr, right: Expr, shapes: Typing) -> bool:
    """Whether both sides agree at other sizes, on other points."""
    rng = np.random.default_rng(zlib.crc32(f"{left} {right}".encode()))
    compared = 0
    for trial in range(1, _TRIALS + 1):
        sizes = {letter: int(rng.integers(1, 5)) for letter in shapes.letters}
        arrays = {
            name: _random((number(rows, sizes), number(columns, sizes)), name, trial)
            for name, (rows, columns) in shapes.shapes
        }
        if trial % 4 == 0:
            arrays = {name: np.abs(array) for name, array in arrays.items()}  # where roots and logarithms are defined
        with np.errstate(all="ignore"):
            x, y = value(left, arrays), value(right, arrays)
        both = np.isfinite(x) & np.isfinite(y)
        compared += int(both.sum())
        if not np.allclose(x[both], y[both], rtol=_LIKE, atol=_LIKE):
            return False
    return compared > 0
