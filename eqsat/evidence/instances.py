"""Random instances of rules: sizes, layouts, functions and element types that fit a left side; values for its leaves.

A number that the left side spells is that number. Others are drawn, often near a number that the rule names.

Layouts are drawn along the dims of the operator that they feed (permutations, slices, flips, broadcasts, padding), so
that guards hold often. Dims are small: 1, odd, even, now and then 0; views have ranks 1 to 5.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from eqsat.base.numerics import (
    COMPARE,
    DTYPES,
    ELEMENTWISE,
    FLOATS,
    INTS,
    REDUCTIONS,
    UNARY,
    Array,
    is_float,
    kind_of,
    np_dtype,
    scalar,
)
from eqsat.errors import ShapeError
from eqsat.evidence.reference import PRIME, Apply, Undefined, apply
from eqsat.language.rule import COMPARISONS, Ask, Attr, Compare, Fact, Guard, Lit, Pat, Pattern, Rule, Var, number
from eqsat.language.tables import find
from eqsat.layout import arithmetic as lt
from eqsat.layout.arithmetic import Axis, Layout
from eqsat.program.core_table import CAST, CORE, CoreOp

_DIMS = (1, 1, 2, 2, 3, 4, 5, 6)
_EMPTY_SHARE = 0.06
"""Share of the instances in which a dim may be 0."""

_FILLS = (0.0, 0.0, 1.0, 2.0, 0.5, 3.0, -3.0, 4.0, -1.0)
_ODD_SHARE = 0.5
"""Share of the numbers that are not one of these fills."""

_ABOVE, _BELOW = (1, -1, 2, -3, 5, 7, -12), (1, 2, 3, 4, 5, 6, 10, 12)
_LARGEST_NUMBER = 1000
"""Numbers are fractions of these or whole: a sum, product or quotient of two is known by its residue, even rounded."""

_NEAR_SHARE = 0.3
"""Share of the values of many magnitudes that are near a number of the rule, where it has one."""

_STEPS = (-1, -0.5, 0, 0.5, 1)

_POWERS = {"int32": (0, 2), "int64": (0, 4)}
_POWERS_OF_FLOATS = (-3, 3)
"""Powers of ten of values of many magnitudes: products of three fit in integers, and keep a millionth in float64."""

_CAST_SHARE = 2
"""One conversion is drawn for so many functions that keep the element type."""

_PRODUCT_RANK = 3
_TURNED_SHARE = 0.1
"""Share of the operands of products whose rows are read in another order."""

_DIAGONAL_SHARE = 0.2
"""Share of the square operands of products that are a diagonal among fills."""

_PADDED_SHARE = 0.2
"""Share of the operands that are read through a view which pads them."""

_PART_REPEATED_SHARE = 0.4
"""Share of the views that repeat an array which repeat a part of it."""

_PADDING = (0, 0, 1, -2)
_PATTERN_FUNCTIONS = ("add", "sub", "mul", "div", "min", "max")
_LARGEST_RANK = 5
_OPERAND_FIRST_SHARE = 0.5
"""Share of the reductions that are drawn from their operand."""

_LARGEST = 1500
"""Elements of an operand; larger instances show nothing new."""


Values = Callable[[random.Random, str], Any]
"""Draws one element of a dtype."""


def whole(draw: random.Random, dtype: str) -> float | int:
    """A small whole number: sums and products of them are exact in every type that is wide enough."""
    return draw.random() < 0.5 if dtype == "bool" else draw.randint(-4, 4)


def rough(draw: random.Random, dtype: str) -> float | int:
    """A number around 1 that no sum or product leaves unrounded."""
    return draw.gauss(0.0, 1.0) if is_float(dtype) else whole(draw, dtype)


def special(draw: random.Random, dtype: str) -> float | int:
    """What rewriting forgets: NaN, infinities, both zeros, subnormals and extremes; the ends of an integer type."""
    if is_float(dtype):
        return draw.choice(_specials(dtype))
    if dtype in INTS:
        ends = np.iinfo(np_dtype(dtype))
        return draw.choice(
            (0, 1, -1, 2, 3, int(ends.min), int(ends.max), int(ends.min) + 1, int(ends.max) // 2, int(ends.max) // 3)
        )
    return whole(draw, dtype)


def signs(draw: random.Random, dtype: str) -> float | int:
    """Zeros of both signs and what rounds to them: which of two equal operands a maximum takes shows in them."""
    if not is_float(dtype):
        return whole(draw, dtype)
    least = float(ml_dtypes.finfo(np_dtype(dtype)).smallest_subnormal)
    return draw.choice((0.0, -0.0, 0.0, -0.0, -1.0, 1.0, least, -least))


def unbounded(draw: random.Random, dtype: str) -> float | int:
    """Moderate numbers, now and then a NaN or an infinity: whatever hides those, or makes new ones, shows."""
    if not is_float(dtype):
        return whole(draw, dtype)
    return draw.choice((np.nan, np.inf, -np.inf, 0.0, 1.0, -1.0, 0.5, 3.0, -2.5, 800.0, -800.0, 4.0, -3.0, 1.5, -0.5))


def magnitudes(near: Sequence[int]) -> Values:
    """Numbers of many magnitudes, and those next to the given ones: there a bound shows that no small number meets."""

    def value(draw: random.Random, dtype: str) -> float | int:
        if dtype == "bool":
            return whole(draw, dtype)
        if near and draw.random() < _NEAR_SHARE:
            found = draw.choice(near) + draw.choice(_STEPS)
        else:
            found = draw.gauss(0.0, 1.0) * 10.0 ** draw.randint(*_POWERS.get(dtype, _POWERS_OF_FLOATS))
        return found if is_float(dtype) else _clipped(round(found), dtype)

    return value


def _odd(draw: random.Random, near: Sequence[int], sizes: Sequence[int], dtype: str) -> float | int:
    """A number that no rule may rely on: near those given, a fraction, what makes a mean over a size, a large one, the
    other zero, or none."""
    near = [n for n in near if abs(n) <= _LARGEST_NUMBER]
    if near and draw.random() < _NEAR_SHARE:
        return draw.choice(near) + draw.choice(_STEPS)
    fraction, large = draw.choice(_ABOVE) / draw.choice(_BELOW), draw.randint(-_LARGEST_NUMBER, _LARGEST_NUMBER)
    shares = [1 / size for size in sizes if 0 < size <= max(_BELOW)]
    return draw.choice((fraction, fraction, large, *shares, *((-0.0, np.nan) if is_float(dtype) else ())))


def _clipped(value: int, dtype: str) -> int:
    ends = np.iinfo(np_dtype(dtype))
    return max(int(ends.min), min(int(ends.max), value))


def _named_numbers(rule: Rule) -> list[int]:
    """The whole numbers that a rule names as values: on either side, or in its guard."""
    asks = [guard for guard in rule.when if isinstance(guard, Ask) and guard.table in ("is_value", "count_as")]
    return sorted({a.value for ask in asks for a in ask.args if isinstance(a, Lit) and isinstance(a.value, int)})


def _spelled(literal: int, dtype: str) -> float | int | bool:
    """A whole number as an element of a type.

    Raises:
        Unfit: the type does not hold it.
    """
    if dtype == "bool" and literal in (0, 1):
        return bool(literal)
    found = find("count_as").fn(literal, dtype)
    if found is None:
        raise Unfit
    return found[0]


@lru_cache(maxsize=len(FLOATS))
def _specials(dtype: str) -> tuple[float, ...]:
    info = ml_dtypes.finfo(np_dtype(dtype))
    extremes = (float(info.max), float(info.tiny), float(info.smallest_subnormal), 3 * float(info.smallest_subnormal))
    return (0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.0, 0.5, 3.0, *extremes, *(-x for x in extremes))


def _divisors(n: int) -> list[int]:
    """What divides n, n itself included; 0 is divided by some small numbers."""
    return [d for d in range(1, n + 1) if n % d == 0] or [1, 2, 3]


def _functions(row: CoreOp, dtype: str) -> list[str]:
    """What the function of an operator is drawn from, for a result of a type."""
    if any(attr.kind == "reduction" for attr in row.attrs):
        return [f for f in ("sum", "max", "min", "prod") if kind_of(dtype) in REDUCTIONS[f].kinds]
    if row.arity == 1:
        functions = [f for f in UNARY if kind_of(dtype) in UNARY[f].kinds]
        return [*functions, *[CAST + dtype] * (1 + len(functions) // _CAST_SHARE)]
    return ["and", "or", *COMPARE] if dtype == "bool" else list(_PATTERN_FUNCTIONS)


class IllFormed(Exception):
    """The right side has no value where the left one has."""


_HAS_NO_VALUE = (ShapeError, ValueError, IndexError, TypeError)
"""What operators raise on sizes that do not fit, places that are not there, and types that they do not take."""


class Unfit(Exception):
    """The draw does not fit the pattern; another is drawn."""


class Instance:
    """A random instance of a rule's left side.

    Attributes:
        bindings: variable to size (of an array), integer, layout, function name, value or dtype.
        types: array variable to element type.
        wide: draws values of many magnitudes, and near the numbers of the rule.

    Raises:
        Unfit: the draw led nowhere.
    """

    def __init__(self, rule: Rule, draw: random.Random, dtype: str) -> None:
        self.rule, self.draw = rule, draw
        self.bindings: dict[str, Any] = {}
        self.types: dict[str, str] = {}
        self.base = dtype if dtype != "bool" else draw.choice([d for d in DTYPES if d != "bool"])
        self._dims = (*_DIMS, 0, 0) if draw.random() < _EMPTY_SHARE else _DIMS
        self._viewed: dict[str, int] = {}
        self._values: set[str] = set()
        self._lengths: set[str] = set()  # of numbers
        self._literals = rule.literals
        self._near = _named_numbers(rule)
        self.wide = magnitudes(self._near)
        self.bindings["self"] = self._shape(rule.left, None, dtype)
        if any(isinstance(v, int) and v > _LARGEST for v in self.bindings.values()):
            raise Unfit

    # --- drawing: sizes and element types from the top down, arrays at the variables

    def _shape(self, pattern: Pattern, size: int | None, dtype: str, hint: Sequence[int] = ()) -> int:
        """Bind everything in a pattern whose result has `size` elements (None: any) of a dtype; its size."""
        if isinstance(pattern, Var):
            if self.types.setdefault(pattern.name, dtype) != dtype:
                raise Unfit
            known = self.bindings.get(pattern.name)
            if known is not None:
                if size is not None and known != size:
                    raise Unfit
                return known
            self.bindings[pattern.name] = size if size is not None else self._dim() * self._dim()
            return self.bindings[pattern.name]
        row = CORE[pattern.op]
        if any(attr.kind == "layout" for attr in row.attrs):
            return self._shape_view(pattern, size, dtype, hint)
        if row.arity is None:
            raise Unfit
        return (
            self._shape_operator(row, pattern, size, dtype, hint)
            if row.arity
            else self._shape_leaf(pattern, size, dtype)
        )

    def _shape_operator(self, row: CoreOp, pattern: Pat, size: int | None, dtype: str, hint: Sequence[int]) -> int:
        if kind_of(dtype) not in row.kinds.split():
            raise Unfit
        operand = dtype
        if row.function is not None:
            function = self._function(pattern.attrs[row.place[row.function]], _functions(row, dtype))
            operand = self._operand_type(function, dtype)
        fixed = {"bool": lambda: "bool", "index": lambda: self.draw.choice(INTS)}
        dtypes = [fixed.get(shape.dtype, lambda: operand)() for shape in row.signature.operands]
        if row.elementwise:
            return self._shape_equal(pattern.args, size, dtypes, hint)
        result = row.signature.result.sizes
        known = self._from_operand(row, pattern, dtypes[0]) if size is None else None
        if known is None:
            known = {
                attr.name: self._int(value, size if attr.name in result else None)
                for attr, value in zip(row.attrs, pattern.attrs, strict=True)
                if attr.kind == "int"
            }
            for name in (name for name in result if name not in known):
                others = prod(known[other] for other in result if other in known)
                if size is not None and (others == 0 or size % others):
                    raise Unfit
                known[name] = self._dim() if size is None else size // others
            for shape, arg, operand in zip(row.signature.operands, pattern.args, dtypes, strict=True):
                dims = [known[name] for name in shape.sizes]
                if not row.free.isdisjoint(shape.sizes) and 0 in [known[n] for n in shape.sizes if n in row.place]:
                    raise Unfit
                self._shape(arg, prod(dims), operand, dims)
        whole = prod(known[name] for name in result)
        if size is not None and size != whole:
            raise Unfit
        return whole

    def _from_operand(self, row: CoreOp, pattern: Pat, dtype: str) -> dict[str, int] | None:
        """The sizes of an operator whose one operand is drawn first, now and then: one of them divides the operand."""
        names = [name for name in row.signature.operands[0].sizes if name in row.place]
        counts = [pattern.attrs[row.place[name]] for name in names]
        free = [count.name for count in counts if isinstance(count, Var) and count.name not in self.bindings]
        if not len(pattern.args) == len(names) == len(free) == 1 or self.draw.random() >= _OPERAND_FIRST_SHARE:
            return None
        whole = self._shape(pattern.args[0], None, dtype)
        divisor: int = self.bindings.setdefault(free[0], self.draw.choice(_divisors(whole)))
        if divisor == 0 or whole % divisor:
            raise Unfit
        return {names[0]: divisor, **dict.fromkeys(row.free, whole // divisor)}

    def _shape_equal(
        self, args: Sequence[Pattern], size: int | None, dtypes: Sequence[str], hint: Sequence[int]
    ) -> int:
        pairs = sorted(zip(args, dtypes, strict=True), key=lambda p: isinstance(p[0], Var) or not p[0].args)
        for arg, dtype in pairs:
            size = self._shape(arg, size, dtype, hint)
        assert size is not None
        return size

    def _shape_leaf(self, pattern: Pat, size: int | None, dtype: str) -> int:
        if size is None:
            size = self._dim() * self._dim()
        drawn = {"value": self._number, "int": lambda *_: size, "dtype": lambda *_: dtype}
        for attr, (_, kind) in zip(pattern.attrs, CORE[pattern.op].attrs, strict=True):
            if isinstance(attr, Var) and kind in ("value", "int"):
                (self._values if kind == "value" else self._lengths).add(attr.name)
            if isinstance(attr, Var) and attr.name not in self.bindings:
                self.bindings[attr.name] = drawn[kind](attr.name, dtype)
            if kind != "value" and self.number(attr) != drawn[kind]():
                raise Unfit
        return size

    def _number(self, name: str, dtype: str) -> float | int | bool:
        """The number that a name of the left side stands for: the one that it spells, or a random one."""
        if name in self._literals:
            return _spelled(self._literals[name], dtype)
        fills = (*_FILLS, np.inf, -np.inf) if is_float(dtype) else _FILLS
        odd = self.draw.random() < _ODD_SHARE
        given = _odd(self.draw, self._near, self._sizes(), dtype) if odd else self.draw.choice(fills)
        return scalar(given if is_float(dtype) else int(given), dtype)

    def _sizes(self) -> list[int]:
        """The sizes that are known so far."""
        return [v for name, v in self.bindings.items() if type(v) is int and name not in self._values]

    def _shape_view(self, pattern: Pat, size: int | None, dtype: str, hint: Sequence[int]) -> int:
        (name,) = pattern.attrs
        assert isinstance(name, Var)
        bound = self.bindings.get(name.name)
        if bound is not None:
            if size is not None and bound.size != size:
                raise Unfit
            # Two arrays may be viewed through one layout and yet differ in what lies beyond it.
            beyond = self.draw.choice((0, 0, 0, 0, 1, 2))
            self._shape(pattern.args[0], self._viewed[name.name] + beyond, dtype)
            return bound.size
        if size is not None:
            layout, inner = self._view_onto(size, hint, dtype)
            self.bindings[name.name], self._viewed[name.name] = layout, inner
            self._shape(pattern.args[0], inner, dtype)
            return layout.size
        inner = self._shape(pattern.args[0], None, dtype)
        if name.name not in self.bindings:
            layout = self._view_of(self._dims_below(pattern.args[0]) or (inner,), dtype)
            self.bindings[name.name], self._viewed[name.name] = layout, inner
        elif inner < self._viewed[name.name]:  # the same view below, of a larger array
            raise Unfit
        return self.bindings[name.name].size

    def _dims_below(self, pattern: Pattern) -> tuple[int, ...]:
        """The dims of the product under some elementwise operators, which views of it are drawn along."""
        if isinstance(pattern, Var):
            return ()
        row = CORE[pattern.op]
        sizes = row.signature.result.sizes
        if len(sizes) > 1 and row.free.isdisjoint(sizes):
            return tuple(self.number(pattern.attrs[row.place[name]]) for name in sizes)
        return next(filter(None, map(self._dims_below, pattern.args)), ()) if row.elementwise else ()

    def _view_of(self, shape: Sequence[int], dtype: str) -> Layout:
        """A view of an array of this shape: permuted, sliced, flipped, broadcast or padded, or a slice broadcast."""
        draw, shape = self.draw, tuple(shape)
        if len(shape) == 1 and draw.random() < 0.7:
            shape = self._factors(shape[0])
        elif draw.random() < 0.5:
            i = draw.randrange(len(shape))
            shape = (*shape[:i], *self._halves(shape[i]), *shape[i + 1 :])
        kind = draw.choice(("permute", "permute", "slice", "broadcast", "pad"))
        if kind == "permute":
            order = list(range(len(shape)))
            if draw.random() < 0.5:
                order[-2:] = order[-2:][::-1]
            else:
                draw.shuffle(order)
            return lt.of_transpose(shape, order)
        if kind == "slice" and prod(shape):
            return self._slice_of(shape)
        if kind == "pad":
            fill = self._fill(dtype)
            return lt.of_pad(shape, [draw.randint(0, 1) for _ in shape], [draw.randint(0, 1) for _ in shape], fill)
        if kind == "broadcast" and prod(shape) and draw.random() < _PART_REPEATED_SHARE:
            return self._repeated(self._slice_of(shape))
        return lt.of_broadcast(shape, (self._dim(), *shape))

    def _slice_of(self, shape: Sequence[int]) -> Layout:
        """A slice of an array of this shape, or all of it in reverse; neither shape nor slice is empty."""
        draw = self.draw
        starts = [draw.randrange(n) for n in shape]
        stops = [draw.randint(s + 1, n) for s, n in zip(starts, shape, strict=True)]
        if draw.random() < 0.2:
            return lt.of_slice(shape, [n - 1 for n in shape], [-1] * len(shape), [-1] * len(shape))
        return lt.of_slice(shape, starts, stops, [1] * len(shape))

    def _repeated(self, layout: Layout) -> Layout:
        """A view that reads each element of this one several times, in a row or all over again."""
        n, count = layout.size, self._dim()
        once, again = self.draw.choice((((1, n), (count, n)), ((n, 1), (n, count))))
        found = lt.compose(layout, lt.of_broadcast(once, again))
        assert found is not None  # neither has a mask
        return found

    def _fill(self, dtype: str) -> float | int | bool:
        if is_float(dtype):
            return self.draw.choice((*map(float, _PADDING), -0.0, -np.inf))
        if dtype in INTS:
            return self.draw.choice((*_PADDING, int(np.iinfo(np_dtype(dtype)).min)))
        return self.draw.choice((False, True))

    def _halves(self, size: int) -> tuple[int, int]:
        """Two dims with so many elements."""
        first = self.draw.choice(_divisors(size))
        return first, size // first

    def _factors(self, size: int) -> tuple[int, ...]:
        """A shape of up to five dims with so many elements."""
        shape: list[int] = []
        for _ in range(self.draw.randint(1, _LARGEST_RANK - 1)):
            shape.append(self.draw.choice(_divisors(size)))
            size //= shape[-1]
        return (*shape, size)

    def _view_onto(self, size: int, hint: Sequence[int], dtype: str) -> tuple[Layout, int]:
        """A view with `size` elements, and how many elements the viewed array has. The view has the dims of its reader,
        some repeated or padded, or the rows of a product in another order."""
        dims = tuple(hint) if hint and prod(hint) == size else self._factors(size)
        if len(dims) == len(hint) == _PRODUCT_RANK and self.draw.random() < _TURNED_SHARE:
            return lt.of_transpose((dims[0], *self._halves(dims[1]), dims[2]), (0, 2, 1, 3)), size
        if len(dims) == len(hint) == _PRODUCT_RANK and dims[1] == dims[2] and self.draw.random() < _DIAGONAL_SHARE:
            b, n, _ = dims
            return lt.masked(0, [(b, n), (n, 0), (n, 1)], [Axis(1, 0, 0, (0, 1, -1))], self._fill(dtype)), b * n
        if self.draw.random() < _PADDED_SHARE:
            before = [self.draw.randint(0, min(1, max(n - 1, 0))) for n in dims]
            within = [n - low for n, low in zip(dims, before, strict=True)]
            return lt.of_pad(within, before, [0] * len(dims), self._fill(dtype)), prod(within)
        repeated = [self.draw.random() < 0.5 for _ in dims]
        shape = tuple(1 if r else n for n, r in zip(dims, repeated, strict=True))
        return lt.of_broadcast(shape, dims), prod(shape)

    def _function(self, attr: Attr, choices: Sequence[str]) -> str:
        if isinstance(attr, Var):
            if not choices:
                raise Unfit
            return self.bindings.setdefault(attr.name, self.draw.choice(list(choices)))
        return str(self.number(attr))

    def _operand_type(self, f: str, dtype: str) -> str:
        """The element type of what a function takes, where its result has this one."""
        if f.startswith(CAST):
            if f.removeprefix(CAST) != dtype:
                raise Unfit
            return self.draw.choice((self.base, self.draw.choice(DTYPES)))
        operand = self.base if f in COMPARE else dtype
        row = ELEMENTWISE.get(f) or REDUCTIONS[f]
        if (row.result or dtype) != dtype or kind_of(operand) not in row.kinds:
            raise Unfit
        return operand

    def _int(self, attr: Attr, dividing: int | None) -> int:
        if isinstance(attr, Var) and attr.name not in self.bindings:
            self.bindings[attr.name] = self._dim() if dividing is None else self.draw.choice(_divisors(dividing))
        return self.number(attr)

    def _dim(self) -> int:
        return self.draw.choice(self._dims)

    def resize(self, size: int) -> None:
        """Let all arrays of an elementwise rule have so many elements."""
        for name in (*self.types, *self._lengths, "self"):
            self.bindings[name] = size

    @property
    def chosen(self) -> dict[str, Any]:
        """The functions, values and types that were drawn or given."""
        sizes = {*self.types, *self._lengths, "self"}
        return {name: value for name, value in self.bindings.items() if name not in sizes}

    @property
    def empty(self) -> bool:
        """Whether some dim is 0."""
        return 0 in self._sizes()

    @property
    def fills_with_infinity(self) -> bool:
        """Whether some view reads an infinity where it reads nothing."""
        fills = [v.fill for v in self.bindings.values() if isinstance(v, Layout)]
        return any(fill is not None and math.isinf(fill) for fill in fills)

    # --- guards

    def number(self, attr: Attr) -> Any:
        """What an attribute comes to."""
        return number(
            attr, self.bindings.__getitem__, {"size": self.bindings.__getitem__, "dtype": self.types.__getitem__}
        )

    def holds(self, guard: Guard) -> bool:
        """Whether a part of the guard holds; binds what it gives. What it asks of constness is taken as given."""
        match guard:
            case Compare(op, left, right):
                return COMPARISONS[op](self.number(left), self.number(right))
            case Ask(table, args, gives):
                found = find(table).fn(*(self.number(a) for a in args))
                if found is None:
                    return False
                self.bindings.update({v.name: value for v, value in zip(gives, found, strict=True)})
            case Fact():
                pass
        return True

    # --- evaluation

    def sides(self, leaves: Mapping[str, Array], meaning: Apply = apply) -> tuple[Array, Array]:
        """Both sides on these arrays.

        Raises:
            Undefined: the left side has no value.
            IllFormed: the right side has none, where the left one has.
        """
        left = self.left(leaves, meaning)
        try:
            with np.errstate(all="ignore"):
                return left, self._value(self.rule.right, leaves, meaning)
        except _HAS_NO_VALUE as error:
            raise IllFormed(str(error)) from None

    def left(self, leaves: Mapping[str, Array], meaning: Apply = apply) -> Array:
        """The left side on these arrays.

        Raises:
            Undefined: it has no value.
        """
        try:
            with np.errstate(all="ignore"):
                return self._value(self.rule.left, leaves, meaning)
        except _HAS_NO_VALUE as error:
            raise Undefined(str(error)) from None

    def _value(self, pattern: Pattern, leaves: Mapping[str, Array], meaning: Apply) -> Array:
        if isinstance(pattern, Var):
            return leaves[pattern.name]
        attrs = tuple(self.number(a) for a in pattern.attrs)
        args = [self._value(a, leaves, meaning) for a in pattern.args]
        return meaning(pattern.op, attrs, args)

    def residues(self) -> dict[str, Array]:
        """Random residues for the leaves, to evaluate with `exact`; booleans stay booleans."""
        rng = np.random.default_rng(self.draw.getrandbits(32))
        return {
            name: rng.random(self.bindings[name]) < 0.5
            if dtype == "bool"
            else rng.integers(0, PRIME, self.bindings[name])
            for name, dtype in self.types.items()
        }

    def arrays(self, values: Values) -> dict[str, Array]:
        """Random values for the leaves, each of its element type."""
        with np.errstate(over="ignore"):
            return {
                name: np.array([values(self.draw, dtype) for _ in range(self.bindings[name])], dtype=np_dtype(dtype))
                for name, dtype in self.types.items()
            }
