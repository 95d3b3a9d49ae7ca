"""What the tables of layout arithmetic promise, as integer formulas over index maps.

A promise is written once and read twice: by z3, as what a rule's proof may rest on (`eqsat.guard_proofs`), and over
arrays, where the table's Python function is held to it on instances (`kept`). It yields formulas that hold for all
values of the variables that it takes from `below`.

Index maps: `L[i]` is the input index that output i of a layout reads, -1 where it reads the fill; `L.size` counts
outputs. `t.join((b, m, n), (B, M, N))` is the flat index (b*M + m)*N + n, `t.digits` its inverse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from eqsat.layout import Layout
from eqsat.layout_map import fill_key
from eqsat.numerics import elementwise
from eqsat.rule import Ask

Array = np.ndarray


class Map(Protocol):
    """An index map: of a layout, or a symbol for one."""

    @property
    def size(self) -> Any: ...

    @property
    def fill(self) -> Any: ...

    def __getitem__(self, index: Any) -> Any: ...


class Logic(Protocol):
    """What formulas are made of, apart from arithmetic and comparisons."""

    def below(self, *sizes: Any) -> tuple[Any, ...]:
        """A variable below each size; they are universal."""
        ...

    def join(self, digits: Sequence[Any], radices: Sequence[Any]) -> Any:
        """The flat index of digits with these radices, outermost first."""
        ...

    def digits(self, index: Any, *radices: Any) -> tuple[Any, ...]:
        """The digits of a flat index; anything where it is not below the product of the radices."""
        ...

    def choose(self, condition: Any, this: Any, other: Any) -> Any:
        """`this` where the condition holds."""
        ...

    def implies(self, condition: Any, conclusion: Any) -> Any: ...

    def same(self, fill: Any, other: Any) -> Any:
        """Whether two values that are read as fills are one."""
        ...

    def apply(self, fn: Any, fill: Any) -> Any:
        """A function of a fill."""
        ...


Promise = Callable[..., Iterator[Any]]


def _compose(t: Logic, first: Map, then: Map, whole: Map) -> Iterator[Any]:
    (i,) = t.below(then.size)
    between = then[i]
    yield whole.size == then.size
    yield whole[i] == t.choose(between < 0, -1, first[between])
    yield t.implies(between < 0, t.same(whole.fill, then.fill))
    yield t.implies(t.choose(between < 0, 0, first[between]) < 0, t.same(whole.fill, first.fill))


def _plain(t: Logic, layout: Map) -> Iterator[Any]:
    (i,) = t.below(layout.size)
    yield layout[i] >= 0


def _keeps_fill(t: Logic, layout: Map, fn: Any) -> Iterator[Any]:
    (i,) = t.below(layout.size)
    yield t.implies(layout[i] < 0, t.same(t.apply(fn, layout.fill), layout.fill))


def _is_identity(t: Logic, layout: Map, size: Any) -> Iterator[Any]:
    (i,) = t.below(size)
    yield layout.size == size
    yield layout[i] == i


def _contraction(
    t: Logic,
    left: Map,
    right: Map,
    rows: Any,
    count: Any,
    x: Map,
    y: Map,
    b: Any,
    m: Any,
    k: Any,
    n: Any,
    out: Map,
) -> Iterator[Any]:
    r, c = t.below(rows, count)
    batch, row, column = t.digits(out[r], b, m, n)
    at = t.join((r, c), (rows, count))
    yield k == count
    yield out.size == rows
    yield x.size == b * m * k
    yield y.size == b * k * n
    yield out[r] >= 0
    yield out[r] < b * m * n
    yield x[t.join((batch, row, c), (b, m, k))] == left[at]
    yield y[t.join((batch, c, column), (b, k, n))] == right[at]
    yield left[at] >= 0
    yield right[at] >= 0


def _repeats_rows(t: Logic, layout: Map, count: Any) -> Iterator[Any]:
    (i,) = t.below(layout.size)
    first = layout[i] * count
    yield first <= i
    yield i < first + count


def _swaps(t: Logic, layout: Map, batch: Any, rows: Any, columns: Any) -> Iterator[Any]:
    b, c, r = t.below(batch, columns, rows)
    yield layout.size == batch * rows * columns
    yield layout[t.join((b, c, r), (batch, columns, rows))] == t.join((b, r, c), (batch, rows, columns))


def _swap(t: Logic, batch: Any, rows: Any, columns: Any, layout: Map) -> Iterator[Any]:
    yield from _swaps(t, layout, batch, rows, columns)


def _narrow_product(
    t: Logic, layout: Map, b: Any, m: Any, k: Any, n: Any, left: Map, right: Map, b1: Any, m1: Any, n1: Any, rest: Map
) -> Iterator[Any]:
    i, z = t.below(layout.size, k)
    outside = layout[i] < 0
    x, y, w = t.digits(layout[i], b, m, n)
    x1, y1, w1 = t.digits(rest[i], b1, m1, n1)
    yield rest.size == layout.size
    yield outside == (rest[i] < 0)
    yield t.same(rest.fill, layout.fill)
    yield rest[i] < b1 * m1 * n1
    yield left.size == b1 * m1 * k
    yield right.size == b1 * k * n1
    yield outside | (left[t.join((x1, y1, z), (b1, m1, k))] == t.join((x, y, z), (b, m, k)))
    yield outside | (right[t.join((x1, z, w1), (b1, k, n1))] == t.join((x, z, w), (b, k, n)))


def _repeated_rows(t: Logic, layout: Map, b: Any, m: Any, k: Any, n: Any, one: Map, out: Map) -> Iterator[Any]:
    x, y, z, w = t.below(b, m, k, n)
    yield from _repeats(t, layout, t.join((x, y, z), (b, m, k)), one, t.join((x, z), (b, k)))
    yield one.size == b * k
    yield out.size == b * m * n
    yield out[t.join((x, y, w), (b, m, n))] == t.join((x, w), (b, n))


def _repeated_columns(t: Logic, layout: Map, b: Any, m: Any, k: Any, n: Any, one: Map, out: Map) -> Iterator[Any]:
    x, y, z, w = t.below(b, m, k, n)
    yield from _repeats(t, layout, t.join((x, z, w), (b, k, n)), one, t.join((x, z), (b, k)))
    yield one.size == b * k
    yield out.size == b * m * n
    yield out[t.join((x, y, w), (b, m, n))] == t.join((x, y), (b, m))


def _repeated_batch(t: Logic, layout: Map, b: Any, rows: Any, columns: Any, one: Map) -> Iterator[Any]:
    x, y, z = t.below(b, rows, columns)
    yield from _repeats(t, layout, t.join((x, y, z), (b, rows, columns)), one, t.join((y, z), (rows, columns)))
    yield one.size == rows * columns


def _shared_left(
    t: Logic, layout: Map, b: Any, m: Any, k: Any, n: Any, one: Map, right: Map, out: Map
) -> Iterator[Any]:
    x, y, z, w = t.below(b, m, k, n)
    yield from _repeats(t, layout, t.join((x, y, z), (b, m, k)), one, t.join((y, z), (m, k)))
    yield one.size == m * k
    yield right.size == b * k * n
    yield right[t.join((z, x, w), (k, b, n))] == t.join((x, z, w), (b, k, n))
    yield out.size == b * m * n
    yield out[t.join((x, y, w), (b, m, n))] == t.join((y, t.join((x, w), (b, n))), (m, b * n))


def _k_scale(t: Logic, layout: Map, b: Any, m: Any, k: Any, n: Any, spread: Map) -> Iterator[Any]:
    x, y, z, w = t.below(b, m, k, n)
    yield spread.size == b * k * n
    yield from _repeats(t, layout, t.join((x, y, z), (b, m, k)), spread, t.join((x, z, w), (b, k, n)))


def _row_scale(t: Logic, layout: Map, b: Any, m: Any, k: Any, n: Any, spread: Map) -> Iterator[Any]:
    x, y, z, w = t.below(b, m, k, n)
    yield spread.size == b * m * n
    yield from _repeats(t, layout, t.join((x, y, z), (b, m, k)), spread, t.join((x, y, w), (b, m, n)))


def _left_row_scale(t: Logic, layout: Map, b: Any, m: Any, k: Any, n: Any, spread: Map) -> Iterator[Any]:
    yield from _row_scale(t, layout, b, m, n, k, spread)


def _column_scale(t: Logic, layout: Map, b: Any, m: Any, k: Any, n: Any, spread: Map) -> Iterator[Any]:
    x, y, z, w = t.below(b, m, k, n)
    yield spread.size == b * m * n
    yield from _repeats(t, layout, t.join((x, z, w), (b, k, n)), spread, t.join((x, y, w), (b, m, n)))


def _right_column_scale(t: Logic, layout: Map, b: Any, m: Any, k: Any, n: Any, spread: Map) -> Iterator[Any]:
    yield from _column_scale(t, layout, b, k, m, n, spread)


def _constant_along(t: Logic, layout: Map, rows: Any, count: Any, one: Map) -> Iterator[Any]:
    r, c = t.below(rows, count)
    yield one.size == rows
    yield from _repeats(t, layout, t.join((r, c), (rows, count)), one, r)


def _repeats(t: Logic, layout: Map, at: Any, other: Map, there: Any) -> Iterator[Any]:
    """The two maps read the same at two places."""
    yield layout[at] == other[there]
    yield t.implies(layout[at] < 0, t.same(layout.fill, other.fill))


def _widen(t: Logic, layout: Map, count: Any, wide: Map) -> Iterator[Any]:
    i, c = t.below(layout.size, count)
    yield layout[i] >= 0
    yield wide.size == layout.size * count
    yield wide[t.join((i, c), (layout.size, count))] == layout[i] * count + c


PROMISES: dict[str, Promise] = {
    "compose": _compose,
    "plain": _plain,
    "keeps_fill": _keeps_fill,
    "is_identity": _is_identity,
    "swaps": _swaps,
    "swap": _swap,
    "narrow_product": _narrow_product,
    "repeated_rows": _repeated_rows,
    "repeated_columns": _repeated_columns,
    "repeated_batch": _repeated_batch,
    "shared_left": _shared_left,
    "k_scale": _k_scale,
    "row_scale": _row_scale,
    "column_scale": _column_scale,
    "left_row_scale": _left_row_scale,
    "right_column_scale": _right_column_scale,
    "constant_along": _constant_along,
    "widen": _widen,
    "contraction": _contraction,
    "repeats_rows": _repeats_rows,
}
"""By table. Tables over values and element types promise nothing of indices, and are not here."""


# Over arrays


def kept(ask: Ask, args: Sequence[Any], gives: Sequence[Any]) -> bool | None:
    """Whether a table's row keeps its promise at every index; None where the table makes none."""
    promise = PROMISES.get(ask.table)
    if promise is None:
        return None
    values = [_Read(v) if isinstance(v, Layout) else v for v in (*args, *gives)]
    return all(bool(np.all(formula)) for formula in promise(_Arrays(), *values))


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

    def apply(self, fn: str, fill: Any) -> Any:
        found = elementwise(fn, np.asarray([fill]))[0] if not fn.startswith("cast:") and fill is not None else fill
        return found.item() if isinstance(found, np.generic) else found
