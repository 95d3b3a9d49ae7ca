"""Expressions of NumPy-level operators over matrices, and their most general shapes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from eqsat.base.numerics import ELEMENTWISE, elementwise, reduce
from eqsat.errors import InputError, unknown
from eqsat.language.signs import CALLED, INFIX
from eqsat.program import ops
from eqsat.program.term import Term

Array = np.ndarray[Any, Any]

VARIABLES = "abcduvwx"


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator that expressions are made of.

    Attributes:
        dims: the shapes of its operands and of its result, in letters that stand for any size: `mk kn -> mn`. `m+p` is
            the sum of two sizes, `1` is one.
        array: its function on NumPy arrays. It also takes stacks of arrays whose leading axes fit.
        term: what it is in programs.
        text: how rules write it, with `{0}` and `{1}` for its operands and letters in braces for sizes; empty where
            they cannot.
    """

    name: str
    dims: str
    array: Callable[..., Array]
    term: Callable[..., Term]
    text: str = ""

    @property
    def operands(self) -> tuple[tuple[str, ...], ...]:
        """The letters of each operand."""
        return _signature(self.dims)[0]

    @property
    def arity(self) -> int:
        return len(self.operands)


@cache
def _signature(dims: str) -> tuple[tuple[tuple[str, ...], ...], tuple[tuple[str, ...], ...]]:
    """The letters of each operand, and those of which the result's rows and columns are sums."""
    operands, _, result = dims.partition(" -> ")
    split = result.split(",") if "," in result else result
    return tuple(map(tuple, operands.split())), tuple(tuple(dim.split("+")) for dim in split)


def _pointwise(name: str) -> Operator:
    """An elementwise function; `max` and `min` of two arrays go by NumPy's names."""
    arity = 1 if name in ops.UNARY else 2
    called = CALLED.get(name, name)
    operands = [f"{{{i}}}" for i in range(arity)]
    sign = INFIX.get(name)
    call = f"({operands[0]} {sign} {operands[1]})" if sign else f"{called}({', '.join(operands)})"
    return Operator(
        called,
        " ".join(["mn"] * arity) + " -> mn",
        lambda *args: elementwise(name, *np.broadcast_arrays(*args)),
        lambda *args: ops.elementwise(name, *args),
        f"(-{operands[0]})" if name == "neg" else call,
    )


def _broadcast(name: str, kind: str, dims: str, view: str) -> Operator:
    """An elementwise function whose second operand is one column or one row, repeated."""
    row = _pointwise(name)
    return Operator(
        f"{row.name}_{kind}",
        f"mn {dims} -> mn",
        row.array,
        lambda x, y: row.term(x, ops.broadcast(y, x.shape)),
        row.text.replace("{1}", f'{{1}}["{view}"]'),
    )


def _reduction(kind: str) -> Operator:
    return Operator(
        kind,
        "mn -> m1",
        lambda x: reduce(kind, x, (x.ndim - 1,), True),
        lambda x: ops.reduce(kind, x, (1,), True),
        f"{kind}({{0}})",
    )


def _joined(x: Array, y: Array, axis: int) -> Array:
    """x and y, one behind the other along an axis of the last two."""
    if x.shape[:-2] == y.shape[:-2]:
        return np.concatenate([x, y], axis)
    shape, count = [*np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), *x.shape[-2:]], x.shape[axis]
    shape[axis] += y.shape[axis]
    joined = np.empty(shape, x.dtype)
    behind = joined.swapaxes(axis, -1)  # a view
    behind[..., :count], behind[..., count:] = x.swapaxes(axis, -1), y.swapaxes(axis, -1)
    return joined


_FLOAT = [name for name in (*ops.UNARY, *ops.BINARY) if "float" in ELEMENTWISE[name].kinds]

OPERATORS: dict[str, Operator] = {
    row.name: row
    for row in (
        Operator("matmul", "mk kn -> mn", np.matmul, ops.matmul, "({0} @ {1})"),
        Operator("transpose", "mn -> nm", np.matrix_transpose, ops.transpose, '{0}["b {m} {n} -> b {n} {m}"]'),
        Operator("concat", "mn pn -> m+p,n", lambda x, y: _joined(x, y, -2), lambda x, y: ops.concat([x, y], 0)),
        Operator(
            "concat_columns", "mn mp -> m,n+p", lambda x, y: _joined(x, y, -1), lambda x, y: ops.concat([x, y], 1)
        ),
        *map(_reduction, ("sum", "max", "min", "prod")),
        *map(_pointwise, _FLOAT),
        *(_broadcast(name, "column", "m1", "b {m} 1 -> b {m} {n}") for name in _FLOAT if name in ops.BINARY),
        *(_broadcast(name, "row", "1n", "b 1 {n} -> b {m} {n}") for name in _FLOAT if name in ops.BINARY),
    )
}
"""By name: `maximum` is elementwise, `max` a reduction of each row."""


def operators(names: str) -> list[str]:
    """The operators of a list such as `matmul,add,concat`; `concat` is along both axes.

    Raises:
        InputError: there is none, or one is unknown.
    """
    found = [name.strip() for name in names.split(",") if name.strip()]
    if not found:
        raise InputError(f"--operators {names!r}: expected a list such as matmul,add,concat")
    for name in found:
        if name not in OPERATORS:
            raise unknown("operator", name, OPERATORS)
    if "concat" in found:
        found.append("concat_columns")
    return sorted(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class Expr:
    """A variable, or an operator of expressions. `str` is Python's notation of calls, and `parse` reads it."""

    op: str
    args: tuple[Expr, ...] = ()

    @property
    def size(self) -> int:
        """How many operators it has, as often as they occur."""
        return sum(arg.size for arg in self.args) + bool(self.args)

    def __str__(self) -> str:
        return f"{self.op}({', '.join(map(str, self.args))})" if self.args else self.op

    def variables(self) -> Iterator[str]:
        """Its variables from left to right, as often as they occur."""
        if not self.args:
            yield self.op
        for arg in self.args:
            yield from arg.variables()

    def renamed(self, names: Mapping[str, str]) -> Expr:
        """The same expression of other variables."""
        return Expr(self.op, tuple(a.renamed(names) for a in self.args)) if self.args else Expr(names[self.op])


def parse(text: str) -> Expr:
    """The expression that `str` wrote."""

    def read(tree: ast.expr) -> Expr:
        match tree:
            case ast.Name(name):
                return Expr(name)
            case ast.Call(ast.Name(name), args):
                return Expr(name, tuple(map(read, args)))
        raise ValueError(f"not an expression: {text}")

    return read(ast.parse(text, mode="eval").body)


# Shapes

Dim = str | tuple["Dim", "Dim"]
"""A letter with a number that stands for any size, `1`, or a sum of two."""

Shapes = dict[str, tuple[Dim, Dim]]


class Mismatch(Exception):
    """There are no shapes that fit."""


class _Solver:
    """Sizes that must be equal: first-order unification, where a sum is made of two sizes."""

    def __init__(self) -> None:
        self.bound: dict[str, Dim] = {}
        self.count = 0

    def fresh(self) -> Dim:
        self.count += 1
        return f"d{self.count}"

    def walk(self, dim: Dim) -> Dim:
        while isinstance(dim, str) and dim in self.bound:
            dim = self.bound[dim]
        return dim

    def full(self, dim: Dim) -> Dim:
        dim = self.walk(dim)
        return dim if isinstance(dim, str) else (self.full(dim[0]), self.full(dim[1]))

    def unify(self, x: Dim, y: Dim) -> None:
        x, y = self.walk(x), self.walk(y)
        if x == y:
            return
        if isinstance(x, str) and x != "1":
            if isinstance(y, tuple) and x in _letters(self.full(y)):
                raise Mismatch
            self.bound[x] = y
        elif isinstance(y, str) and y != "1":
            self.unify(y, x)
        elif isinstance(x, tuple) and isinstance(y, tuple):
            self.unify(x[0], y[0])
            self.unify(x[1], y[1])
        else:
            raise Mismatch


def _letters(dim: Dim) -> Iterator[str]:
    if isinstance(dim, str):
        yield dim
    else:
        yield from _letters(dim[0])
        yield from _letters(dim[1])


def letters_of(shapes: Iterable[tuple[Dim, Dim]]) -> list[str]:
    """The letters of shapes, in order."""
    found = [letter for shape in shapes for dim in shape for letter in _letters(dim)]
    return [letter for letter in dict.fromkeys(found) if letter != "1"]


@dataclass(frozen=True, slots=True)
class Typing:
    """The most general shapes of variables for which expressions fit, by the letters of sizes M, K, N ... as the
    variables are read from a on; `sizes` tells those of the operator of an expression, for texts."""

    shapes: tuple[tuple[str, tuple[Dim, Dim]], ...]
    sizes: Callable[[Expr], Mapping[str, Dim]]

    @property
    def letters(self) -> list[str]:
        """The letters of sizes, in order."""
        return letters_of(shape for _, shape in self.shapes)


NAMES = ("m", "k", "n", "p", "q", "r", "s", "t", "u", "v", "w", "x")


def typing(*sides: Expr) -> Typing:
    """The most general shapes for which expressions over common variables fit and have one shape.

    Raises:
        Mismatch: there are none.
    """
    solver = _Solver()
    variables = {name: (solver.fresh(), solver.fresh()) for side in sides for name in side.variables()}
    local: list[tuple[Expr, dict[str, Dim]]] = []

    def infer(expr: Expr) -> tuple[Dim, Dim]:
        if not expr.args:
            return variables[expr.op]
        operands, result = _signature(OPERATORS[expr.op].dims)
        letters: dict[str, Dim] = {"1": "1"}
        for arg, dims in zip(expr.args, operands, strict=True):
            for found, letter in zip(infer(arg), dims, strict=True):
                if (same := letters.setdefault(letter, found)) is not found:
                    solver.unify(same, found)
        local.append((expr, letters))
        rows, columns = result
        return _sum(letters, rows), _sum(letters, columns)

    shapes = [infer(side) for side in sides]
    for shape in shapes[1:]:
        for x, y in zip(shapes[0], shape, strict=True):
            solver.unify(x, y)
    order = [letter for name in sorted(variables) for dim in variables[name] for letter in _letters(solver.full(dim))]
    names = dict(zip([x for x in dict.fromkeys(order) if x != "1"], NAMES, strict=False)) | {"1": "1"}

    def named(dim: Dim) -> Dim:
        return _renamed(solver.full(dim), names)

    found = tuple((name, (named(rows), named(columns))) for name, (rows, columns) in sorted(variables.items()))
    return Typing(found, lambda expr: {letter: named(dim) for letter, dim in dict(local)[expr].items()})


def _sum(letters: Mapping[str, Dim], dim: Sequence[str]) -> Dim:
    return letters[dim[0]] if len(dim) == 1 else (letters[dim[0]], letters[dim[1]])


def _renamed(dim: Dim, names: Mapping[str, str]) -> Dim:
    return names[dim] if isinstance(dim, str) else (_renamed(dim[0], names), _renamed(dim[1], names))


def number(dim: Dim, sizes: Mapping[str, int]) -> int:
    """A size as a number."""
    if isinstance(dim, tuple):
        return number(dim[0], sizes) + number(dim[1], sizes)
    return 1 if dim == "1" else sizes[dim]


# Meanings


def value(expr: Expr, arrays: Mapping[str, Array]) -> Array:
    """What an expression computes."""
    if not expr.args:
        return arrays[expr.op]
    return OPERATORS[expr.op].array(*(value(arg, arrays) for arg in expr.args))


def term(expr: Expr, variables: Mapping[str, Term]) -> Term:
    """An expression as a term of programs."""
    if not expr.args:
        return variables[expr.op]
    return OPERATORS[expr.op].term(*(term(arg, variables) for arg in expr.args))


def canonical(left: Expr, right: Expr) -> tuple[Expr, Expr]:
    """An equation with its variables named in the order in which they are read."""
    seen = dict.fromkeys([*left.variables(), *right.variables()])
    names = dict(zip(seen, VARIABLES, strict=False))
    return left.renamed(names), right.renamed(names)


def partitions(count: int) -> Iterator[tuple[int, ...]]:
    """Ways to name so many leaves, each new name one above the largest so far."""

    def grow(so_far: Sequence[int]) -> Iterator[tuple[int, ...]]:
        if len(so_far) == count:
            yield tuple(so_far)
            return
        for name in range(max(so_far, default=-1) + 2):
            yield from grow([*so_far, name])

    yield from grow([])
