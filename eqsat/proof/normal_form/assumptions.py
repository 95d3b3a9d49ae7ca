"""What a user knows of inputs: bounds, written as in `0 <= i < 16` or `x > 0`.

An assumption compares inputs with numbers, in a chain if need be; `and` joins several. Numbers may be computed with
`+`, `-` and `*`, from sizes that have names, and from dims of inputs: `0 <= i < table.shape[0]`. A name that is no
identifier stands in quotes: `'input.1' >= 0`.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import add, mul, sub

import numpy as np

from eqsat.base.numerics import INTS, Array, is_float, scalar
from eqsat.errors import InputError, unknown
from eqsat.program.term import Term

Number = int | float

_SHOWN = 80
"""Characters of an assumption in messages."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Between two numbers, of which either may be infinite; an open end is not reached. Of integers no end is open."""

    low: Number = -math.inf
    high: Number = math.inf
    low_open: bool = False
    high_open: bool = False

    @property
    def empty(self) -> bool:
        return self.low > self.high or (self.low == self.high and (self.low_open or self.high_open))

    def holds_none(self, dtype: str) -> bool:
        """Whether they hold no value of a type: integers end, floats reach the infinities."""
        if self.empty or dtype not in INTS:
            return self.empty
        info = np.iinfo(dtype)
        return self.low > info.max or self.high < info.min

    def only(self, dtype: str) -> Number | None:
        """The one value of a type that is left; None if there are others."""
        if self.low != self.high or math.isinf(self.low):
            return None
        with suppress(InputError):
            value = scalar(self.low, dtype)
            return value if value == self.low else None
        return None

    def within(self, values: Array, rng: np.random.Generator) -> Array:
        """The values, with others in place of those out of bounds."""
        if self == Bounds():
            return values
        dtype = values.dtype
        low, high = self._ends(dtype)
        span = float(high) - float(low)
        if np.isfinite(span):
            inside = float(low) + span * rng.random(values.shape)
        else:  # as far inside as they were outside, or by up to one
            end, sign = (low, 1.0) if np.isfinite(float(low)) else (high, -1.0)
            away = np.abs(values.astype(np.float64) - float(end))
            inside = float(end) + sign * (away + rng.random(values.shape))
        if dtype.kind == "i":
            inside = np.floor(inside + rng.random(values.shape))
        outside = (values < low) | (values > high)
        return np.clip(np.where(outside, inside.astype(dtype), values), low, high).astype(dtype)

    def _ends(self, dtype: np.dtype) -> tuple[np.generic, np.generic]:
        """The least and the greatest value of a type; infinite where there is no end, and the type has infinities."""
        if dtype.kind == "i":
            info = np.iinfo(dtype)
            return dtype.type(max(self.low, info.min)), dtype.type(min(self.high, info.max))
        low, high = dtype.type(self.low), dtype.type(self.high)
        if float(low) < self.low or (self.low_open and float(low) == self.low):
            low = np.nextafter(low, dtype.type(math.inf))
        if float(high) > self.high or (self.high_open and float(high) == self.high):
            high = np.nextafter(high, dtype.type(-math.inf))
        return low, high


def read(texts: str | Sequence[str] | None, inputs: Mapping[str, Term], sizes: Mapping[str, int]) -> dict[str, Bounds]:
    """The bounds of inputs by name.

    Args:
        texts: assumptions.
        inputs: input terms by the names that they may be called.
        sizes: names of numbers.

    Raises:
        InputError: a text is no assumption, names what is not there, or contradicts another.
    """
    found: dict[str, Bounds] = {}
    for text in [texts] if isinstance(texts, str) else texts or ():
        for name, op, number in _Reader(text, inputs, sizes).comparisons():
            found[name] = _narrowed(found.get(name, Bounds()), op, number, whole=inputs[name].dtype in INTS)
            if found[name].holds_none(inputs[name].dtype):
                raise InputError(
                    f"--assume {_cut(text)!r}: no {inputs[name].dtype} is so; take back one of the bounds on {name!r}"
                )
    return found


_MIRRORED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
    ast.Eq: ast.Eq,
}
_ARITHMETIC: dict[type[ast.operator], Callable[[Number, Number], Number]] = {ast.Add: add, ast.Sub: sub, ast.Mult: mul}


class _Reader:
    """One text."""

    def __init__(self, text: str, inputs: Mapping[str, Term], sizes: Mapping[str, int]) -> None:
        self._text, self._inputs, self._sizes = text, inputs, sizes

    def comparisons(self) -> Iterator[tuple[str, type[ast.cmpop], Number]]:
        """`name op number` for each comparison."""
        try:
            tree = ast.parse(self._text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise self._error("cannot be read") from None
        for part in tree.values if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And) else [tree]:
            if not isinstance(part, ast.Compare) or any(type(op) not in _MIRRORED for op in part.ops):
                raise self._error("is no comparison by <, <=, >, >= or ==")
            sides = [part.left, *part.comparators]
            for left, op, right in zip(sides, part.ops, sides[1:], strict=False):
                yield self._comparison(left, type(op), right)

    def _comparison(self, left: ast.expr, op: type[ast.cmpop], right: ast.expr) -> tuple[str, type[ast.cmpop], Number]:
        names = [self._name(side) for side in (left, right)]
        if names[0] is not None and names[1] is None:
            return names[0], op, self._finite(right)
        if names[1] is not None and names[0] is None:
            return names[1], _MIRRORED[op], self._finite(left)
        raise self._error("compares other things than an input with a number")

    def _name(self, tree: ast.expr) -> str | None:
        """The input that is named, if one is."""
        match tree:
            case ast.Name(id=name) if name in self._inputs or name not in self._sizes:
                pass
            case ast.Constant(value=str(name)):
                pass
            case _:
                return None
        if name not in self._inputs:
            dims = [f"{key}.shape[{i}]" for key, term in self._inputs.items() for i in range(term.ndim)]
            hint = f"write a number, a dim such as {dims[0]}, or " if dims else "write a number, or "
            known = unknown("input or size", name, [*self._inputs, *self._sizes])
            raise self._error(f"{known} (for a size {hint}--shape {name}=...)")
        if not (is_float(self._inputs[name].dtype) or self._inputs[name].dtype in INTS):
            raise self._error(f"bounds {name!r}, which is {self._inputs[name].dtype}")
        return name

    def _finite(self, tree: ast.expr) -> Number:
        try:
            number = self._number(tree)
            float(number)
        except OverflowError:
            raise self._error("has a number beyond floats") from None
        except RecursionError:
            raise self._error("cannot be read") from None
        return number

    def _number(self, tree: ast.expr) -> Number:
        match tree:
            case ast.Constant(value=int(value) | float(value)) if not isinstance(value, bool):
                return value
            case ast.Name(id=name) if name in self._sizes:
                return self._sizes[name]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._number(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                return _ARITHMETIC[type(op)](self._number(left), self._number(right))
            case ast.Subscript(value=ast.Attribute(value=owner, attr="shape"), slice=ast.Constant(value=int(axis))):
                name = self._name(owner)
                if name is not None and axis < self._inputs[name].ndim:
                    return self._inputs[name].shape[axis]
        raise self._error(f"has {_cut(ast.unparse(tree))!r} where a number is expected")

    def _error(self, what: str) -> InputError:
        return InputError(
            f"--assume {_cut(self._text)!r}: {what}; write bounds on inputs, such as '0 <= i < 16' or 'x > 0'"
        )


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _narrowed(bounds: Bounds, op: type[ast.cmpop], number: Number, *, whole: bool) -> Bounds:
    """Bounds with one more comparison."""
    if math.isnan(number):
        return Bounds(1, 0)
    if op in (ast.Gt, ast.GtE, ast.Eq):
        low, is_open = (_next_whole(number, op is ast.Gt), False) if whole else (number, op is ast.Gt)
        if (low, is_open) > (bounds.low, bounds.low_open):
            bounds = replace(bounds, low=low, low_open=is_open)
    if op in (ast.Lt, ast.LtE, ast.Eq):
        high, is_open = (-_next_whole(-number, op is ast.Lt), False) if whole else (number, op is ast.Lt)
        if (-high, is_open) > (-bounds.high, bounds.high_open):
            bounds = replace(bounds, high=high, high_open=is_open)
    return bounds


def _next_whole(number: Number, is_open: bool) -> Number:
    """The least whole number that is at least `number`, or above it."""
    if math.isinf(number):
        return number
    return math.floor(number) + 1 if is_open else math.ceil(number)
