"""What the tables of layout arithmetic promise, as integer formulas over index maps.

The table carries its promise (`eqsat.language.tables`), which takes what the table takes and gives, by name. It is
written once and read twice: by z3, as what a rule's proof may rest on (`eqsat.evidence.guard_proofs`), and
over arrays, where the table's Python function is held to it on instances (`eqsat.evidence.promise_check`). It yields
formulas that hold for all values of the variables that it takes from `below`.

Index maps: `L[i]` is the input index that output i of a layout reads, -1 where it reads the fill; `L.size` counts
outputs. `t.join((b, m, n), (B, M, N))` is the flat index (b*M + m)*N + n, `t.digits` its inverse.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, Protocol

from eqsat.language.axes import Axes, Groups


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

    def kept(self, variable: Any, size: Any, whole: Any, dropped: Callable[[Any], Any]) -> Any:
        """The place below `whole` of a variable below `size` under some injection, which leaves out what is dropped."""
        ...

    def only(self, place: Any, whole: Any, dropped: Callable[[Any], Any]) -> Any:
        """All places below `whole` but this one are dropped."""
        ...

    def zero(self, fill: Any) -> Any:
        """A value that is read as a fill is zero; so is one of a map that fills nothing."""
        ...

    def count(self, value: Any, number: Any) -> Any:
        """A value of the core is this number."""
        ...

    def share(self, value: Any, number: Any) -> Any:
        """A value of the core is one divided by this number."""
        ...

    def divided(self, size: Any, count: Any) -> Any:
        """The rows of an array of rows of `count` elements."""
        ...

    def matched(
        self,
        variables: Sequence[Any],
        sizes: Sequence[Any],
        others: Sequence[Any],
        key: Callable[..., Sequence[Any]],
        other_key: Callable[..., Sequence[Any]],
    ) -> tuple[Any, ...]:
        """What variables below `sizes` become under some bijection to variables below `others`.

        A sum over the ones is then the sum over the others. The keys say, over arrays, what a bijection must keep.
        """
        ...


Promise = Callable[..., Iterator[Any]]


def read_as(axes: Axes, t: Logic, *, read: Map, **sizes: Any) -> Iterator[Any]:
    """`read` reads [source] as [target]."""
    letters = dict.fromkeys((*Axes.letters_of(axes.target), *axes.letters))
    at = dict(zip(letters, t.below(*(sizes[a] for a in letters)), strict=True))
    yield read.size == _size(axes.target, sizes)
    yield read[_index(t, axes.target, at, sizes)] == _index(t, axes.source, at, sizes)


def reads(axes: Axes, t: Logic, *, layout: Map, **sizes: Any) -> Iterator[Any]:
    """The layout reads [source] as [target]."""
    yield from read_as(axes, t, read=layout, **sizes)


def along(axes: Axes, t: Logic, *, layout: Map, read: Map, **sizes: Any) -> Iterator[Any]:
    """`read` reads in [target] what the layout reads in [source], whatever the axes are that one of them lacks."""
    at = dict(zip(axes.letters, t.below(*(sizes[a] for a in axes.letters)), strict=True))
    yield read.size == _size(axes.target, sizes)
    yield from _repeats(t, layout, _index(t, axes.source, at, sizes), read, _index(t, axes.target, at, sizes))


def _size(side: Groups, sizes: Mapping[str, Any]) -> Any:
    factors = [sizes[axis] for axis in Axes.letters_of(side)]
    return reduce(operator.mul, factors) if factors else 1  # no factor of 1 before the others: z3 is slower with it


def _index(t: Logic, side: Groups, at: Mapping[str, Any], sizes: Mapping[str, Any]) -> Any:
    """The flat index into the groups of axes of a side; axes in one group are one digit."""
    groups = [group for group in (Axes.letters_of((g,)) for g in side) if group]
    digits = [t.join([at[a] for a in group], [sizes[a] for a in group]) for group in groups]
    return t.join(digits, [_size((group,), sizes) for group in groups])


def compose(t: Logic, first: Map, then: Map, whole: Map) -> Iterator[Any]:
    (i,) = t.below(then.size)
    between = then[i]
    yield whole.size == then.size
    yield whole[i] == t.choose(between < 0, -1, first[between])
    yield t.implies(between < 0, t.same(whole.fill, then.fill))
    yield t.implies(t.choose(between < 0, 0, first[between]) < 0, t.same(whole.fill, first.fill))


def plain(t: Logic, layout: Map) -> Iterator[Any]:
    (i,) = t.below(layout.size)
    yield layout[i] >= 0


def keeps_fill(t: Logic, layout: Map, fn: Any) -> Iterator[Any]:
    (i,) = t.below(layout.size)
    yield t.implies(layout[i] < 0, t.same(t.apply(fn, layout.fill), layout.fill))


def keeps_sums(t: Logic, layout: Map) -> Iterator[Any]:
    yield t.zero(layout.fill)


def count_as(t: Logic, count: Any, dtype: Any, value: Any) -> Iterator[Any]:
    yield t.count(value, count)


def is_value(t: Logic, value: Any, expected: Any) -> Iterator[Any]:
    yield t.count(value, expected)


def reciprocal_count(t: Logic, value: Any, count: Any, dtype: Any) -> Iterator[Any]:
    yield t.share(value, count)


def repeated(t: Logic, layout: Map, rows: Any, count: Any, once: Map, rest: Any, times: Any) -> Iterator[Any]:
    """Each row of [rows, count] has the elements of the row of [rows, rest], each so many times."""
    i, c = t.below(rows, count)
    k, _ = t.matched(
        (c,),
        (count,),
        (rest, times),
        lambda c: (layout[t.join((0, c), (rows, count))],),
        lambda k, r: (once[t.join((0, k), (rows, rest))],),
    )
    yield times > 0
    yield layout.size == rows * count
    yield once.size == rows * rest
    yield layout[t.join((i, c), (rows, count))] >= 0
    yield once[t.join((i, k), (rows, rest))] == layout[t.join((i, c), (rows, count))]


def in_order(t: Logic, layout: Map, count: Any, ordered: Map) -> Iterator[Any]:
    """Each row of `count` has the same elements in another order."""
    rows = t.divided(layout.size, count)
    i, c = t.below(rows, count)
    (d,) = t.matched(
        (c,),
        (count,),
        (count,),
        lambda c: (layout[t.join((0, c), (rows, count))],),
        lambda d: (ordered[t.join((0, d), (rows, count))],),
    )
    yield ordered.size == layout.size
    yield layout[t.join((i, c), (rows, count))] >= 0
    yield ordered[t.join((i, d), (rows, count))] == layout[t.join((i, c), (rows, count))]


def shifts_rows(t: Logic, layout: Map, back: Map, count: Any) -> Iterator[Any]:
    i, c = t.below(layout.size, count)
    rows = t.divided(layout.size, count)
    row, _ = t.digits(i, rows, count)
    yield back.size == layout.size
    yield layout[i] >= 0
    yield back[i] == row
    yield layout[t.join((row, c), (rows, count))] == layout[i]


def contraction(
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


def narrow_product(
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


def _repeats(t: Logic, layout: Map, at: Any, other: Map, there: Any) -> Iterator[Any]:
    """The two maps read the same at two places."""
    yield layout[at] == other[there]
    yield t.implies(layout[at] < 0, t.same(layout.fill, other.fill))


def widen(t: Logic, layout: Map, count: Any, wide: Map) -> Iterator[Any]:
    i, c = t.below(layout.size, count)
    yield layout[i] >= 0
    yield wide.size == layout.size * count
    yield wide[t.join((i, c), (layout.size, count))] == layout[i] * count + c


def swaps_blocks(t: Logic, layout: Map, m: Any, k: Any, n: Any, right: Map, left: Map, p: Any, q: Any) -> Iterator[Any]:
    x, w, y, z = t.below(p, n, q, k)
    yield m == p * q
    yield layout.size == m * n
    yield right.size == p * n * k
    yield left.size == p * k * q
    yield layout[t.join((x, w, y), (p, n, q))] == t.join((t.join((x, y), (p, q)), w), (m, n))
    yield right[t.join((x, w, z), (p, n, k))] == t.join((z, w), (k, n))
    yield left[t.join((x, z, y), (p, k, q))] == t.join((t.join((x, y), (p, q)), z), (m, k))


def kept_rows(t: Logic, layout: Map, b: Any, m: Any, k: Any, n: Any, left: Map, right: Map, rest: Any) -> Iterator[Any]:
    """The rows z that the layout fills with zeros leave the others, p."""
    x, y, w, p = t.below(b, m, n, rest)
    z = t.kept(p, rest, k, lambda z: layout[t.join((x, z, w), (b, k, n))] < 0)
    yield t.zero(layout.fill)
    yield t.zero(right.fill)
    yield layout.size == b * k * n
    yield left.size == b * m * rest
    yield right.size == b * rest * n
    yield left[t.join((x, y, p), (b, m, rest))] == t.join((x, y, z), (b, m, k))
    yield right[t.join((x, p, w), (b, rest, n))] == layout[t.join((x, z, w), (b, k, n))]


def diagonal(t: Logic, layout: Map, b: Any, m: Any, n: Any, right: Map) -> Iterator[Any]:
    x, y, w = t.below(b, m, n)
    yield t.only(w, n, lambda z: layout[t.join((x, z, w), (b, n, n))] < 0)
    yield t.zero(layout.fill)
    yield layout.size == b * n * n
    yield right.size == b * m * n
    yield right[t.join((x, y, w), (b, m, n))] >= 0
    yield right[t.join((x, y, w), (b, m, n))] == layout[t.join((x, w, w), (b, n, n))]


def permutes_rows(t: Logic, layout: Map, size: Any, m: Any, k: Any, n: Any, out: Map) -> Iterator[Any]:
    x, y, z = t.below(m, k, n)
    row, _ = t.digits(out[t.join((x, z), (m, n))], m, n)
    yield size == m * k
    yield layout.size == m * k
    yield out.size == m * n
    yield out[t.join((x, z), (m, n))] >= 0
    yield out[t.join((x, z), (m, n))] < m * n
    yield row < m
    yield layout[t.join((x, y), (m, k))] == t.join((row, y), (m, k))
    yield out[t.join((x, z), (m, n))] == t.join((row, z), (m, n))


def sum_of_product(
    t: Logic,
    layout: Map,
    count: Any,
    b: Any,
    m: Any,
    k: Any,
    n: Any,
    left: Map,
    m_sum: Any,
    right: Map,
    n_sum: Any,
    b1: Any,
    m1: Any,
    k1: Any,
    n1: Any,
    out: Map,
) -> Iterator[Any]:
    """The products that are added up for an output are the same: (c, z) of the one sum, (z1, p, q) of the others."""

    def whole(row: Any, c: Any, z: Any) -> tuple[Any, Any]:
        x, y, w = t.digits(layout[t.join((row, c), (out.size, count))], b, m, n)
        return t.join((x, y, z), (b, m, k)), t.join((x, z, w), (b, k, n))

    def parts(row: Any, z1: Any, p: Any, q: Any) -> tuple[Any, Any]:
        x, y, w = t.digits(out[row], b1, m1, n1)
        above, beside = t.join((x, y, z1), (b1, m1, k1)), t.join((x, z1, w), (b1, k1, n1))
        return left[t.join((above, p), (None, m_sum))], right[t.join((beside, q), (None, n_sum))]

    i, c, z = t.below(out.size, count, k)
    z1, p, q = t.matched(
        (c, z), (count, k), (k1, m_sum, n_sum), lambda c, z: whole(0, c, z), lambda z1, p, q: parts(0, z1, p, q)
    )
    yield layout.size == out.size * count
    yield left.size == b1 * m1 * k1 * m_sum
    yield right.size == b1 * k1 * n1 * n_sum
    yield out[i] >= 0
    yield out[i] < b1 * m1 * n1
    yield layout[t.join((i, c), (out.size, count))] >= 0
    for mine, theirs in zip(whole(i, c, z), parts(i, z1, p, q), strict=True):
        yield theirs == mine


def repeated_inner(
    t: Logic, layout: Map, b: Any, m: Any, k: Any, n: Any, left: Map, right: Map, rest: Any, times: Any
) -> Iterator[Any]:
    """What meets in the product is the same: z of the long sum, (p, r) of the short one and the sum before it."""

    def whole(x: Any, y: Any, w: Any, z: Any) -> tuple[Any, Any]:
        return layout[t.join((x, y, z), (b, m, k))], t.join((x, z, w), (b, k, n))

    def parts(x: Any, y: Any, w: Any, p: Any, r: Any) -> tuple[Any, Any]:
        above = t.join((x, p, w), (b, rest, n))
        return left[t.join((x, y, p), (b, m, rest))], right[t.join((above, r), (None, times))]

    x, y, w, z = t.below(b, m, n, k)
    p, r = t.matched((z,), (k,), (rest, times), lambda z: whole(0, 0, 0, z), lambda p, r: parts(0, 0, 0, p, r))
    yield left.size == b * m * rest
    yield right.size == b * rest * n * times
    yield layout[t.join((x, y, z), (b, m, k))] >= 0
    for mine, theirs in zip(whole(x, y, w, z), parts(x, y, w, p, r), strict=True):
        yield theirs == mine


def repeated_inner_right(
    t: Logic, layout: Map, b: Any, m: Any, k: Any, n: Any, left: Map, right: Map, rest: Any, times: Any
) -> Iterator[Any]:
    def whole(x: Any, y: Any, w: Any, z: Any) -> tuple[Any, Any]:
        return t.join((x, y, z), (b, m, k)), layout[t.join((x, z, w), (b, k, n))]

    def parts(x: Any, y: Any, w: Any, p: Any, r: Any) -> tuple[Any, Any]:
        beside = t.join((x, y, p), (b, m, rest))
        return left[t.join((beside, r), (None, times))], right[t.join((x, p, w), (b, rest, n))]

    x, y, w, z = t.below(b, m, n, k)
    p, r = t.matched((z,), (k,), (rest, times), lambda z: whole(0, 0, 0, z), lambda p, r: parts(0, 0, 0, p, r))
    yield left.size == b * m * rest * times
    yield right.size == b * rest * n
    yield layout[t.join((x, z, w), (b, k, n))] >= 0
    for mine, theirs in zip(whole(x, y, w, z), parts(x, y, w, p, r), strict=True):
        yield theirs == mine
