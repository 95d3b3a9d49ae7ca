"""Expressions over variables of certain shapes, from small to large, and which of them have equal values.

Expressions are rows of arrays, and all of one operator whose operands have the same shapes are computed at once.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np

from eqsat.discovery.expressions import OPERATORS, VARIABLES, Array, Dim, Expr, letters_of, number

_SIZES = (2, 3, 7, 11, 17, 23, 31, 43, 53, 67, 79, 97)
"""Sizes of the letters: no two of them are equal, nor equal to a sum of two."""

_DIGITS = 9
"""Decimal digits in which values that are equal agree: float64 has 15, and expressions lose a few."""

_DEFINED = 0.1
"""Share of elements that must be finite for an expression to be looked at."""

_BITS = (len(VARIABLES) - 1).bit_length()
"""Of the number of a variable. Those of an expression are digits of one number, from left to right."""

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""Odd, to mix numbers into 64 bits. Of 10^5 values, two have one key by chance once in 10^9 times."""

Numbers = np.ndarray[tuple[int], np.dtype[Any]]


@dataclass(frozen=True, eq=False, slots=True)
class Form:
    """An expression without the names of its variables; `leaves` is how many it has. There is one object of each."""

    op: str = ""
    args: tuple[Form, ...] = ()
    leaves: int = 1

    @staticmethod
    @cache
    def of(op: str, *args: Form) -> Form:
        """The form of an operator of forms."""
        return Form(op, args, sum(arg.leaves for arg in args))

    def expr(self, names: Iterator[str]) -> Expr:
        """The expression whose variables have these names, from left to right."""
        return Expr(self.op, tuple(arg.expr(names) for arg in self.args)) if self.args else Expr(next(names))


_VARIABLE = Form()


class _Forms:
    """Forms by number."""

    def __init__(self) -> None:
        self.made = [_VARIABLE]
        self._numbers = {_VARIABLE: 0}

    def leaves(self, numbers: Numbers) -> Numbers:
        """How many variables each form has."""
        return np.array([form.leaves for form in self.made])[numbers]

    def of(self, name: str, operands: Sequence[Numbers]) -> Numbers:
        """The form of an operator of operands of each of these forms."""
        sizes = [len(self.made)] * len(operands)
        different, which = np.unique(np.ravel_multi_index(tuple(operands), sizes), return_inverse=True)
        found = []
        for args in zip(*np.unravel_index(different, sizes), strict=True):
            form = Form.of(name, *(self.made[arg] for arg in args))
            if form not in self._numbers:
                self._numbers[form] = len(self.made)
                self.made.append(form)
            found.append(self._numbers[form])
        return np.array(found, np.int64)[which]


@dataclass(frozen=True, slots=True)
class _Exprs:
    """Expressions: the numbers of their forms, their variables, and keys that are equal where their values are."""

    forms: Numbers
    names: Numbers
    keys: Numbers

    def at(self, places: Numbers) -> _Exprs:
        return _Exprs(self.forms[places], self.names[places], self.keys[places])


def _joined(some: Sequence[_Exprs]) -> _Exprs:
    return _Exprs(*(np.concatenate([getattr(each, name) for each in some]) for name in ("forms", "names", "keys")))


@dataclass(frozen=True, slots=True)
class _Level:
    """Expressions of one size, of which operands are chosen, and their values: one by one, and in stacks of one shape,
    float64[n, rows, columns], with the places of their expressions."""

    exprs: _Exprs
    values: Sequence[Array]
    stacks: Sequence[tuple[Numbers, Array]]

    @staticmethod
    def of(exprs: _Exprs, values: Sequence[Array]) -> _Level:
        places: dict[tuple[int, ...], list[int]] = {}
        for place, value in enumerate(values):
            places.setdefault(value.shape, []).append(place)
        stacks = [(np.array(some), np.stack([values[place] for place in some])) for some in places.values()]
        return _Level(exprs, values, stacks)


@np.errstate(all="ignore")
def equal(
    shapes: Sequence[tuple[Dim, Dim]], operators: Sequence[str], size: int, positive: bool = False
) -> Iterable[tuple[Form, Form, str]]:
    """Expressions of up to `size` operators over variables of these shapes, each with the first that has its values at
    one random point: the forms of both, and their variables, named in the order in which they are read. Operands are
    such first ones.

    Args:
        positive: look at positive values alone, where roots and logarithms are defined.
    """
    sizes = dict(zip(sorted(letters_of(shapes)), _SIZES, strict=False))
    values = []
    for name, (rows, columns) in zip(VARIABLES, shapes, strict=False):
        value = random((number(rows, sizes), number(columns, sizes)), name)
        values.append(np.abs(value) if positive else value)
    forms, count = _Forms(), len(values)
    first = _Exprs(np.zeros(count, np.int64), np.arange(count), _keys(np.concatenate([_sums(x) for x in values])))
    levels = [_Level.of(first, values)]
    pairs: dict[tuple[Form, Form, str], None] = {}
    for total in range(1, size + 1):
        applied = [_Applied(name, operands) for name, operands in _choices(operators, levels, total)]
        fitting = [some.fitting() for some in applied]
        every = _joined([first, *(some.exprs(*found, forms) for some, found in zip(applied, fitting, strict=True))])
        _, places, which = np.unique(every.keys, return_index=True, return_inverse=True)
        same = places[which]
        is_first = same == np.arange(len(same))
        pairs |= dict.fromkeys(_pairs(every.at(np.flatnonzero(~is_first)), every.at(same[~is_first]), forms))
        if total < size:
            chosen = ((some, place) for some, (places, _) in zip(applied, fitting, strict=True) for place in places.T)
            new = is_first[len(first.keys) :]
            values = [some.value(place) for some, place in itertools.compress(chosen, new)]
            levels.append(_Level.of(every.at(len(first.keys) + np.flatnonzero(new)), values))
        first = every.at(np.flatnonzero(is_first))
    return pairs


def _choices(operators: Sequence[str], levels: Sequence[_Level], total: int) -> Iterator[tuple[str, Sequence[_Level]]]:
    """Operators with sizes of their operands that make `total` operators with them."""
    for name in operators:
        for sizes in itertools.product(range(total), repeat=OPERATORS[name].arity):
            if sum(sizes) == total - 1:
                yield name, [levels[n] for n in sizes]


@dataclass(frozen=True, slots=True)
class _Applied:
    """An operator of operands of these levels."""

    name: str
    operands: Sequence[_Level]

    def value(self, places: Numbers) -> Array:
        """Of the operands at these places of their levels."""
        args = [level.values[place] for level, place in zip(self.operands, places, strict=True)]
        return OPERATORS[self.name].array(*args)

    def fitting(self) -> tuple[Numbers, Numbers]:
        """The places of all operands that fit, int64[operand, n] in order, and the keys of the values; less values that
        are hardly defined anywhere."""
        sizes = [len(level.values) for level in self.operands]
        counts = [np.zeros(0, np.int64)]
        sums = [np.zeros((0, 3))]
        for stacks in self._stacks():
            sums.append(_sums(OPERATORS[self.name].array(*(values for values, _ in stacks))))
            counts.append(np.asarray(sum(places for _, places in stacks)).ravel())
        count, keys = np.concatenate(counts), _keys(np.concatenate(sums))
        order = np.argsort(count)
        order = order[keys[order] != 0]
        return np.array(np.unravel_index(count[order], sizes)), keys[order]

    def _stacks(self) -> Iterator[Sequence[tuple[Array, Numbers]]]:
        """A stack of each operand, so that their shapes fit, and the share of its places in the place of all. Each has
        an axis of its own, so that NumPy combines each array of one with each of the others."""
        dims = OPERATORS[self.name].operands
        found: list[tuple[tuple[int, ...], list[tuple[Array, Numbers]]]] = [((1,), [])]
        letters = ["1"]
        for i, level in enumerate(self.operands):
            step = math.prod(len(other.values) for other in self.operands[i + 1 :])
            axes = [1] * len(self.operands)
            by_size: dict[tuple[int, ...], list[tuple[tuple[int, ...], tuple[Array, Numbers]]]] = {}
            for places, values in level.stacks:
                axes[i] = len(places)
                shape = values.shape[1:]
                known = tuple(n for n, letter in zip(shape, dims[i], strict=True) if letter in letters)
                crossed = values.reshape(*axes, *shape), (step * places).reshape(axes)
                by_size.setdefault(known, []).append((shape, crossed))
            where = [letters.index(letter) for letter in dims[i] if letter in letters]
            found = [
                ((*sizes, *shape), [*stacks, stack])
                for sizes, stacks in found
                for shape, stack in by_size.get(tuple(sizes[k] for k in where), ())
            ]
            letters += dims[i]
        return (stacks for _, stacks in found)

    def exprs(self, places: Numbers, keys: Numbers, forms: _Forms) -> _Exprs:
        """The expressions of the operands at these places."""
        names = np.zeros(len(keys), np.int64)
        args = [level.exprs.at(some) for level, some in zip(self.operands, places, strict=True)]
        for arg in args:
            names = names << _BITS * forms.leaves(arg.forms) | arg.names
        return _Exprs(forms.of(self.name, [arg.forms for arg in args]), names, keys)


def _sums(stack: Array) -> Array:
    """What is the same for arrays that are equal and undefined in the same places, float64[n, 3]: weighted sums of all
    elements and of their absolute values, and a number of the shape and of these places; NaN if most are undefined."""
    shape = stack.shape[-2:]
    weights, absolute, code = _weights(shape)
    flat = stack.reshape(-1, len(weights))
    found = np.empty((len(flat), 3))
    found[:, 0], found[:, 1], found[:, 2] = flat @ weights, np.abs(flat) @ absolute, code
    if math.isfinite(found[:, 1].sum()):
        return found
    for i in np.flatnonzero(~np.isfinite(found[:, 1])):
        defined = np.isfinite(flat[i])
        used = flat[i][defined]
        found[i] = used @ weights[defined], np.abs(used) @ absolute[defined], zlib.crc32(defined.tobytes(), code)
        if not defined.mean() > _DEFINED:
            found[i] = np.nan
    return found


@cache
def _weights(shape: tuple[int, int]) -> tuple[Array, Array, int]:
    """Weights of the elements of an array, the absolute values of these, and a number of the shape."""
    weights = random(shape, "weights").ravel()
    return weights, np.abs(weights), zlib.crc32(str(shape).encode())


def _keys(sums: Array) -> Numbers:
    """Sums, rounded, as one number each, uint64[n]; 0 for NaN."""
    total, scale, code = sums.T
    scale = np.where(scale == 0, 1.0, scale)
    exponent = np.floor(np.log10(scale))
    digits = (
        np.rint(scale * 10.0 ** (_DIGITS - 1 - exponent)),
        exponent,
        np.rint(total / scale * 10 ** (_DIGITS - 1)),
        code,
    )
    mixed = np.zeros(len(sums), np.uint64)
    for digit in digits:
        mixed = (mixed ^ digit.astype(np.int64).view(np.uint64)) * _FACTOR
    return np.where(np.isnan(scale), 0, mixed)


def _pairs(left: _Exprs, right: _Exprs, forms: _Forms) -> Iterator[tuple[Form, Form, str]]:
    """The forms of both expressions and their variables, each once."""
    before, after = forms.leaves(left.forms), forms.leaves(right.forms)
    names = 1 << _BITS * (before + after) | left.names << _BITS * after | right.names  # the 1 marks how many there are
    different, which = np.unique(names, return_inverse=True)
    texts = list(map(_named, different.tolist()))
    place = {text: i for i, text in enumerate(texts)}
    sizes = len(forms.made), len(forms.made), len(texts)
    triples = left.forms, right.forms, np.array([place[text] for text in texts], np.int64)[which]
    for x, y, text in zip(*np.unravel_index(np.unique(np.ravel_multi_index(triples, sizes)), sizes), strict=True):
        yield forms.made[x], forms.made[y], texts[text]


@lru_cache(maxsize=1 << 18)
def _named(names: int) -> str:
    """Variables, the first one named as the first of all and so on."""
    digits = []
    while names > 1:
        digits.append(names % (1 << _BITS))
        names >>= _BITS
    by_digit = dict(zip(dict.fromkeys(reversed(digits)), VARIABLES, strict=False))
    return "".join(by_digit[digit] for digit in reversed(digits))


@lru_cache(maxsize=1 << 14)
def random(shape: tuple[int, int], name: str, trial: int = 0) -> Array:
    """Normal values, the same for the same arguments."""
    rng = np.random.default_rng([zlib.crc32(name.encode()), trial])
    return rng.normal(0.0, 0.7, shape)
