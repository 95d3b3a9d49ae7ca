"""Promises of tables read over arrays: whether a row that a Python function gave keeps what its table promises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eqsat.base.numerics import Array, elementwise
from eqsat.language.rule import Ask
from eqsat.language.tables import find
from eqsat.layout.arithmetic import Layout
from eqsat.layout.map import fill_key

_PLACES = 2
"""Decimal places to which the reciprocal of a count is rounded in the shortest of types."""


def kept(ask: Ask, args: Sequence[Any], gives: Sequence[Any]) -> bool | None:
    """Whether a table's row keeps its promise at every index; None where the table makes none."""
    table = find(ask.table)
    if table.promise is None:
        return None
    values = [_Read(v) if isinstance(v, Layout) else v for v in (*args, *gives)]
    return all(bool(np.all(formula)) for formula in table.promised(_Arrays(), values))


class _Read:
    """A layout as the array of its indices."""

    def __init__(self, layout: Layout) -> None:
        self.size = layout.size
        self.fill = layout.fill
        self._index = layout.index()

    def __getitem__(self, index: Array) -> Array:
        return self._index[index] if self._index.size else np.full(np.shape(index), -1)


class _Arrays:
    """Formulas as boolean arrays over all values of the variables."""

    def below(self, *sizes: int) -> tuple[Array, ...]:
        places = range(len(sizes))
        return tuple(np.arange(n).reshape([-1 if i == j else 1 for j in places]) for i, n in enumerate(sizes))

    def join(self, digits: Sequence[Any], radices: Sequence[int]) -> Any:
        index = digits[0]
        for digit, radix in zip(digits[1:], radices[1:], strict=True):
            index = index * radix + digit
        return index

    def digits(self, index: Array, *radices: int) -> tuple[Array, ...]:
        rest, found = np.maximum(index, 0), []
        for radix in reversed(radices):
            rest, digit = np.divmod(rest, max(radix, 1))
            found.append(digit)
        return tuple(reversed(found))

    def choose(self, condition: Array, this: Any, other: Any) -> Array:
        return np.where(condition, this, other)

    def implies(self, condition: Array, conclusion: Any) -> Array:
        return np.logical_or(np.logical_not(condition), conclusion)

    def same(self, fill: Any, other: Any) -> bool:
        return fill_key(fill) == fill_key(other)

    def matched(
        self,
        variables: Sequence[Array],
        sizes: Sequence[int],
        others: Sequence[int],
        key: Callable[..., Sequence[Array]],
        other_key: Callable[..., Sequence[Array]],
    ) -> tuple[Array, ...]:
        """The bijection that pairs equal keys; -1 where there is none."""
        mine, theirs = (_flat_keys(k, shape) for k, shape in ((key, sizes), (other_key, others)))
        shape = np.broadcast_shapes(*(v.shape for v in variables))
        if mine.shape != theirs.shape:
            return tuple(np.full(shape, -1) for _ in others)
        image = np.empty(mine.shape[1], dtype=np.int64)
        image[np.lexsort(mine)] = np.lexsort(theirs)
        place = np.zeros(shape, dtype=np.int64)
        for variable, size in zip(variables, sizes, strict=True):
            place = place * size + variable
        return self.digits(image[place], *others)

    def apply(self, fn: str, fill: Any) -> Any:
        found = elementwise(fn, np.asarray([fill]))[0] if not fn.startswith("cast:") and fill is not None else fill
        return found.item() if isinstance(found, np.generic) else found

    def kept(self, variable: Array, size: int, whole: int, dropped: Callable[[Array], Array]) -> Array:
        """The places that are not dropped, in order; -1 where there are more or fewer."""
        places = np.arange(whole).reshape(-1, *[1] * variable.ndim)
        found = np.flatnonzero(~dropped(places).reshape(whole, -1).all(axis=1))
        return found[variable] if len(found) == size else np.full(variable.shape, -1)

    def only(self, place: Array, whole: int, dropped: Callable[[Array], Array]) -> Array:
        places = np.arange(whole).reshape(-1, *[1] * place.ndim)
        return np.all(np.logical_or(dropped(places), places == place), axis=0)

    def zero(self, fill: Any) -> bool:
        return fill is None or fill == 0

    def count(self, value: float | int, number: int) -> bool:
        return value == number

    def share(self, value: float, number: int) -> bool:
        return round(value * number, _PLACES) == 1

    def divided(self, size: int, count: int) -> int:
        return size // max(count, 1)


def _flat_keys(key: Callable[..., Sequence[Array]], sizes: Sequence[int]) -> Array:
    """The keys of all values of variables below some sizes, one column each."""
    grids = np.meshgrid(*(np.arange(n) for n in sizes), indexing="ij")
    return np.stack([np.broadcast_to(part, grids[0].shape).reshape(-1) for part in key(*grids)])
