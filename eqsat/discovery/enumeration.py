"""Expressions over variables of certain shapes, from small to large, and which of them have equal values.

All expressions of one operator whose operands have the same shapes are computed at once, as a stack of arrays.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from eqsat.discovery.expressions import OPERATORS, VARIABLES, Array, Dim, Expr, letters_of, number

_SIZES = (2, 3, 7, 11, 17, 23, 31, 43, 53, 67, 79, 97)
"""Sizes of the letters: no two of them are equal, nor equal to a sum of two."""

_DIGITS = 9
"""Decimal digits in which values that are equal agree: float64 has 15, and expressions lose a few."""

_DEFINED = 0.1
"""Share of elements that must be finite for an expression to be looked at."""

_ELEMENTS = 1 << 18
"""Elements of the values of which keys are made at once, about."""


@dataclass(frozen=True, eq=False, slots=True)
class Form:
    """An expression without the names of its variables. There is one object of each (`_form`)."""

    op: str = ""
    args: tuple[Form, ...] = ()

    def expr(self, names: Iterator[str]) -> Expr:
        """The expression whose variables have these names, from left to right."""
        return Expr(self.op, tuple(arg.expr(names) for arg in self.args)) if self.args else Expr(next(names))


_form = cache(Form)


@dataclass(frozen=True, slots=True)
class _Level:
    """Expressions of one size: their forms, their variables from left to right, and their values; also as stacks of
    one shape each, float64[n, rows, columns], with the places of their expressions."""

    entries: Sequence[tuple[Form, str]]
    values: Sequence[Array]
    stacks: Sequence[tuple[Sequence[int], Array]]

    @staticmethod
    def of(found: Sequence[tuple[tuple[Form, str], Array]]) -> _Level:
        values = [value for _, value in found]
        places: dict[tuple[int, ...], list[int]] = {}
        for place, value in enumerate(values):
            places.setdefault(value.shape, []).append(place)
        stacks = [(some, np.stack([values[place] for place in some])) for some in places.values()]
        return _Level([entry for entry, _ in found], values, stacks)


@dataclass(frozen=True, slots=True)
class _Choice:
    """An operator, with the levels of its operands."""

    name: str
    operands: Sequence[_Level]

    def fitting(self) -> Iterator[Sequence[tuple[Sequence[int], Array]]]:
        """A stack of each operand, so that their shapes fit."""
        begun: list[tuple[Mapping[str, int], Sequence[tuple[Sequence[int], Array]]]] = [({"1": 1}, ())]
        for dims, level in zip(OPERATORS[self.name].operands, self.operands, strict=True):
            known = [i for i, letter in enumerate(dims) if letter in begun[0][0]]
            by_size: dict[tuple[int, ...], list[tuple[Sequence[int], Array]]] = {}
            for stack in level.stacks:
                by_size.setdefault(tuple(stack[1].shape[1 + i] for i in known), []).append(stack)
            begun = [
                ({**sizes, **dict(zip(dims, stack[1].shape[1:], strict=True))}, (*stacks, stack))
                for sizes, stacks in begun
                for stack in by_size.get(tuple(sizes[dims[i]] for i in known), ())
            ]
            if not begun:
                return
        yield from (stacks for _, stacks in begun)


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
    made = []
    for name, (rows, columns) in zip(VARIABLES, shapes, strict=False):
        array = random((number(rows, sizes), number(columns, sizes)), name)
        made.append(((_form(), name), np.abs(array) if positive else array))
    first = {_keys(value[None])[0]: entry for entry, value in made}
    levels = [_Level.of(made)]
    pairs: dict[tuple[Form, Form, str], None] = {}
    for total in range(1, size + 1):
        made = []
        choices = list(_choices(operators, levels, total))
        for (place, *places), key in sorted(_keyed(choices)):
            choice = choices[place]
            args = [level.entries[i] for level, i in zip(choice.operands, places, strict=True)]
            entry = _form(choice.name, tuple([form for form, _ in args])), "".join([names for _, names in args])
            same = first.setdefault(key, entry)
            if same is not entry:
                pairs[entry[0], same[0], _in_order(entry[1] + same[1])] = None
            elif total < size:
                values = [level.values[i] for level, i in zip(choice.operands, places, strict=True)]
                made.append((entry, OPERATORS[choice.name].array(*values)))
        levels.append(_Level.of(made))
    return pairs


@lru_cache(maxsize=1 << 18)
def _in_order(names: str) -> str:
    """Names, the first of them the first of all names and so on."""
    return names.translate(str.maketrans(dict(zip(dict.fromkeys(names), VARIABLES, strict=False))))


def _choices(operators: Sequence[str], levels: Sequence[_Level], total: int) -> Iterator[_Choice]:
    """Operators with sizes of their operands that make `total` operators with them."""
    for name in operators:
        for sizes in itertools.product(range(total), repeat=OPERATORS[name].arity):
            if sum(sizes) == total - 1:
                yield _Choice(name, [levels[n] for n in sizes])


def _keyed(choices: Sequence[_Choice]) -> Iterator[tuple[tuple[int, ...], bytes]]:
    """All expressions, by the place of the choice and those of its operands, with the keys of their values, less those
    that are hardly defined anywhere."""
    waiting: dict[tuple[int, ...], list[tuple[Iterable[tuple[int, ...]], Array]]] = {}

    def done(shape: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], bytes]]:
        some = waiting.pop(shape)
        keys = _keys(np.concatenate([values for _, values in some]))
        places = itertools.chain.from_iterable(places for places, _ in some)
        return ((place, key) for place, key in zip(places, keys, strict=True) if key)

    for place, choice in enumerate(choices):
        array = OPERATORS[choice.name].array
        for stacks in choice.fitting():
            values = array(*_crossed([stack for _, stack in stacks]))
            shape = values.shape[-2:]
            places = itertools.product([place], *(some for some, _ in stacks))
            waiting.setdefault(shape, []).append((places, values.reshape(-1, *shape)))
            if sum(values.size for _, values in waiting[shape]) > _ELEMENTS:
                yield from done(shape)
    for shape in list(waiting):
        yield from done(shape)


def _crossed(stacks: Sequence[Array]) -> Iterator[Array]:
    """The stacks along axes of their own, so that NumPy combines each array of one with each of the others."""
    for place, stack in enumerate(stacks):
        along = [len(stack) if i == place else 1 for i in range(len(stacks))]
        yield stack.reshape(*along, *stack.shape[1:])


def _keys(arrays: Array) -> list[bytes]:
    """Equal for equal arrays of a stack, which are undefined in the same places: a weighted sum of all elements,
    rounded. Empty where most elements are undefined."""
    count, *shape = arrays.shape
    flat = np.ascontiguousarray(arrays).reshape(count, -1)
    weights = random((shape[0], shape[1]), "weights").ravel()
    defined = np.isfinite(flat)
    used = np.where(defined, flat, 0.0)
    total, scale = used @ weights, np.abs(used) @ np.abs(weights)
    scale[scale == 0] = 1.0
    exponent = np.floor(np.log10(scale))
    rounded = np.empty((count, 4), np.int64)
    rounded[:] = *shape, 0, 0
    rounded[:, 2] = np.rint(scale * 10.0 ** (_DIGITS - 1 - exponent)) + 10.0 ** (_DIGITS + 1) * exponent
    rounded[:, 3] = np.rint(total / scale * 10 ** (_DIGITS - 1))
    keys = rounded.view("V32").ravel().tolist()
    shares = defined.mean(axis=1)
    for i in np.flatnonzero(shares < 1):
        keys[i] = keys[i] + defined[i].tobytes() if shares[i] > _DEFINED else b""
    return keys


@lru_cache(maxsize=1 << 14)
def random(shape: tuple[int, int], name: str, trial: int = 0) -> Array:
    """Normal values, the same for the same arguments."""
    rng = np.random.default_rng([zlib.crc32(name.encode()), trial])
    return rng.normal(0.0, 0.7, shape)
