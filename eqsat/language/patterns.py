"""Patterns and guards of an equation that is read in one direction."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from eqsat.errors import InputError
from eqsat.language.axes import Axes
from eqsat.language.notation import Statement
from eqsat.language.rule import Arith, Ask, Attr, Compare, Guard, Lit, Pat, Pattern, Var, variables
from eqsat.language.signs import INFIX, product, shown
from eqsat.language.unify import Cell, Node

_COMPUTED = {"add", "sub", "mul", "div"}
"""Functions of numbers that are computed where an equation writes them on the side that is made."""


@dataclass(frozen=True, slots=True)
class Oriented:
    """An equation read in one direction.

    Attributes:
        before: guards of what the pattern alone cannot say: its literal numbers and its certain views.
        after: tables that give numbers and views of the other side.
        dtypes: what `dtype(v)` of a number `v` is.
    """

    left: Pattern
    right: Pattern
    before: tuple[Guard, ...]
    after: tuple[Guard, ...]
    dtypes: Mapping[str, Attr]


def oriented(statement: Statement, backwards: bool) -> Oriented:
    """Both sides as patterns, read from left to right, or from right to left.

    Raises:
        InputError: a side cannot be matched, or a size or a number on the other is not known from it.
    """
    left, right = statement.left, statement.right
    if backwards:
        left, right = right, left
    return _Patterns(statement, left).compiled(left, right)


class _Patterns:
    """The patterns of one direction."""

    def __init__(self, statement: Statement, left: Node) -> None:
        self._statement = statement
        self._top = left.shape.size.root
        self._before: list[Guard] = []
        self._after: list[Guard] = []
        self._known_views: set[Var] = set()
        self._numbers: dict[str, tuple[Attr, Attr]] = {}
        self._sizes: dict[Cell, Attr] = {}
        self._types: dict[Cell, Attr] = {}
        self._array_sizes: dict[Cell, Attr] = {}
        self._array_types: dict[Cell, Attr] = {}

    def compiled(self, left: Node, right: Node) -> Oriented:
        matched = self._matched(left)
        self._compare_sizes(left)
        self._state_sizes(left, frozenset(variables(matched)))
        made = self._made(right)
        dtypes = {name: dtype for name, (_, dtype) in self._numbers.items()}
        return Oriented(matched, made, tuple(self._before), tuple(self._after), dtypes)

    # --- the side that is matched

    def _matched(self, node: Node) -> Pattern:
        size, dtype = node.shape.root.size.root, node.dtype.root
        match node.op:
            case "same":
                return self._matched(node.args[0])
            case "var":
                (name,) = node.attrs
                assert isinstance(name, Var)
                self._array_sizes.setdefault(size, Arith("size", name))
                self._array_types.setdefault(dtype, Arith("dtype", name))
                return name
            case "number":
                (name,) = node.attrs
                assert isinstance(name, Var)
                n = self._sizes.setdefault(size, Var(f"{name.name}.size"))
                t = self._types.setdefault(dtype, Var(f"{name.name}.dtype"))
                literal = _literal(name)
                if literal is not None and name.name not in self._numbers:
                    self._before.append(Ask("is_value", (name, Lit(literal)), ()))
                self._numbers[name.name] = n, t
                return Pat("Full", (name, n, t), ())
            case "V" if node.axes is not None:
                (name,) = node.attrs
                assert isinstance(name, Var)
                self._known_views.add(name)
                self._before.append(Ask(f"reads {node.axes}", (name, *_sizes(node.axes)), ()))
        attrs = tuple(self._statement.dim(a) for a in node.attrs)
        for attr in attrs:
            if isinstance(attr, Arith):
                raise InputError(
                    f"{self._statement.where}: {shown(attr)} cannot be matched; turn the equation round, or name it"
                )
        return Pat(node.op, attrs, tuple(map(self._matched, node.args)))

    def _compare_sizes(self, left: Node) -> None:
        """Arrays of one size that only views read must be compared: a view does not say how large its operand is."""
        bare = {id(node) for node in _seen(left, viewed=False)}
        first: dict[Cell, Node] = {}
        for node in sorted(_seen(left, viewed=None), key=lambda node: id(node) not in bare):
            other = first.setdefault(node.shape.root.size.root, node)
            if other is not node and id(node) not in bare:
                sizes = (Arith("size", name) for name in (*other.attrs, *node.attrs) if isinstance(name, Var))
                self._before.append(Compare("==", *sizes))

    def _state_sizes(self, left: Node, bound: frozenset[str]) -> None:
        """An array that only views read may be larger than the equation says: the layout of a whole matrix is also that
        of the beginning of a larger array."""
        known = {id(cell.root) for cell in _sizes_told(left)}
        for node in _seen(left, viewed=None):
            shape = node.shape.root
            size = shape.size.root
            if id(size) in known or shape.dims is None or shape.tail:
                continue
            known.add(id(size))
            stated = product([self._statement.dim(d) for d in shape.dims])
            if bound.issuperset(variables(stated)):
                self._before += [Compare("==", Arith("size", a), stated) for a in node.attrs if isinstance(a, Var)]

    # --- the side that is made

    def _made(self, node: Node) -> Pattern:
        if node.op == "same":
            return self._made(node.args[0])
        if node.op == "var":
            (name,) = node.attrs
            assert isinstance(name, Var)
            return name
        value = self._value(node)
        if value is not None:
            return Pat("Full", (value, self._size(node, value), self._dtype(node, value)), ())
        if node.op == "V" and node.axes is not None:
            (name,) = node.attrs
            assert isinstance(name, Var)
            if name not in self._known_views:
                self._give(Ask(f"axes {node.axes}", _sizes(node.axes), (name,)))
        return Pat(node.op, tuple(self._statement.dim(a) for a in node.attrs), tuple(map(self._made, node.args)))

    def _value(self, node: Node) -> Var | None:
        """The name of a number, and of what is computed of numbers."""
        if node.op == "number":
            (name,) = node.attrs
            assert isinstance(name, Var)
            literal = _literal(name)
            if literal is not None and name.name not in self._numbers:
                self._give(Ask("count_as", (Lit(literal), self._dtype(node, name)), (name,)))
            return name
        if node.op != "Bin" or not isinstance(node.attrs[0], Lit) or node.attrs[0].value not in _COMPUTED:
            return None
        values = [self._value(a) for a in node.args]
        if any(v is None for v in values):
            return None
        one, other = (v for v in values if v is not None)
        name = Var(f"({one.name} {INFIX[node.attrs[0].value]} {other.name})")
        self._give(Ask("value_of_two", (node.attrs[0], one, other, self._dtype(node, name)), (name,)))
        return name

    def _give(self, ask: Ask) -> None:
        if ask not in self._after:
            self._after.append(ask)

    def _size(self, node: Node, name: Var) -> Attr:
        shape = node.shape.root
        size = shape.size.root
        known = self._sizes.get(size) or self._array_sizes.get(size)
        if known is not None:
            return known
        if size is self._top:
            return Arith("size", Var("self"))
        if shape.dims is None or shape.tail:
            raise InputError(f"{self._statement.where}: nothing says how large {name.name} is; state it with reshape")
        return product([self._statement.dim(d) for d in shape.dims])

    def _dtype(self, node: Node, name: Var) -> Attr:
        dtype = node.dtype.root
        known = self._types.get(dtype) or self._array_types.get(dtype) or next(iter(self._types.values()), None)
        if known is None:
            raise InputError(f"{self._statement.where}: nothing says what type {name.name} has")
        return known


def _seen(node: Node, viewed: bool | None, within: bool = False) -> list[Node]:
    """The arrays below a node: read directly by a view (True), not so read (False), or all of them (None)."""
    if node.op == "var":
        return [node] if viewed is None or viewed == within else []
    found = [a for arg in node.args for a in _seen(arg, viewed, node.op == "V")]
    return list(dict.fromkeys(found))


def _sizes_told(node: Node, told: bool = True) -> Iterator[Cell]:
    """The sizes below a node that follow from its own size, if that is `told`, and from what products say of theirs. A
    view says nothing of its operand."""
    told = told or node.op == "MM"
    if told:
        yield node.shape.root.size
    for arg in node.args:
        yield from _sizes_told(arg, told and node.op != "V")


def _literal(name: Var) -> int | None:
    """The integer that a number's name spells, if it does."""
    return int(name.name) if re.fullmatch(r"-?\d+", name.name) else None


def _sizes(axes: Axes) -> tuple[Attr, ...]:
    return tuple(Var(letter.upper()) for letter in axes.letters)
