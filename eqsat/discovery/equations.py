"""Equations found by evaluation: every expression that has the values of a smaller one.

One set of variables with certain shapes is looked at at a time. Expressions are made from small to large, of those that
no smaller one equals. Which may be equal shows on one random point; whether they are is then tried at other sizes and
points. The judgement of rules (`eqsat.evidence`), which evaluates polynomials exactly, has the last word.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from eqsat.discovery.enumeration import Form, equal, random
from eqsat.discovery.expressions import (
    NAMES,
    OPERATORS,
    VARIABLES,
    Array,
    Dim,
    Expr,
    Mismatch,
    Typing,
    canonical,
    letters_of,
    number,
    parse,
    partitions,
    typing,
    value,
)

_LIKE = 1e-9
_TRIALS, _POINTS = 8, 4
"""Sizes at which an equation is tried, and points at each. One of these is positive, where roots and logarithms are
defined; signs and few elements may agree by chance on several of the others."""


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
    return sorted(found, key=lambda s: (len(s), -len(letters_of(s)), str(s)))


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
    for left, right, names in equal(shapes, operators, size, positive):
        if (found := _equation(left, right, names)) is not None:
            yield found


@lru_cache(maxsize=1 << 20)
def _equation(left: Form, right: Form, names: str) -> Equation | None:
    """The equation of two forms; None if it does not hold at its most general shapes, or if its right side has a
    variable more."""
    each = iter(names)
    found = Equation(left.expr(each), right.expr(each))
    if set(found.right.variables()) - set(found.left.variables()) or most_general(found) is None:
        return None
    return found


def partial(operators: Sequence[str]) -> bool:
    """Whether some operator, as a logarithm, is undefined for some normal values: then positive ones show more."""
    for row in map(OPERATORS.__getitem__, operators):
        shapes = [tuple(1 if letter == "1" else 8 for letter in dims) for dims in row.operands]
        with np.errstate(all="ignore"):
            found = row.array(
                *(random((shape[0], shape[1]), name) for shape, name in zip(shapes, VARIABLES, strict=False))
            )
        if not np.isfinite(found).all():
            return True
    return False


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
    compared = 0
    for trial, numbers in enumerate(_sizes()):
        sizes = dict(zip(shapes.letters, numbers, strict=False))
        arrays = {
            name: _points((number(rows, sizes), number(columns, sizes)), name, trial)
            for name, (rows, columns) in shapes.shapes
        }
        with np.errstate(all="ignore"):
            x, y = value(left, arrays), value(right, arrays)
            near = np.abs(x - y) <= _LIKE + _LIKE * np.abs(y)
        if near.all():
            compared += near.size
            continue
        both = np.isfinite(x) & np.isfinite(y)
        if not near[both].all():
            return False
        compared += int(both.sum())
    return compared > 0


@cache
def _sizes() -> list[list[int]]:
    """Sizes of letters for each trial, no two of the first one the same."""
    rng = np.random.default_rng(0)
    return [list(range(2, 2 + len(NAMES))), *rng.integers(1, 5, (_TRIALS - 1, len(NAMES))).tolist()]


@lru_cache(maxsize=1 << 14)
def _points(shape: tuple[int, int], name: str, trial: int) -> Array:
    """Values of a variable at the points of a trial, float64[point, rows, columns]."""
    values = np.stack([random(shape, name, 1 + trial * _POINTS + point) for point in range(_POINTS)])
    values[-1] = np.abs(values[-1])  # where roots and logarithms are defined
    return values
