"""Tables: the layout arithmetic that rules ask for.

egglog cannot compute with layouts, so a rule asks: it demands `compose(L1, L2)`, the row is computed here between two
iterations, and the rule fires where a row exists. Each table is a partial function; None means that nothing could be
proved, so the rule does not fire. A table over layouts carries its promise, an equation of indices: proofs rest on it,
and instances are held to it. Products are a[b, m, k] @ b[b, k, n], everything flat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import prod
from typing import Any, Literal

from eqsat.language import axes as named_axes
from eqsat.language import promises, table_sums, table_values
from eqsat.language.axes import Axes
from eqsat.language.promises import Logic, Promise
from eqsat.layout import arithmetic as lt
from eqsat.layout.arithmetic import Layout

Sort = Literal["int", "layout", "fn", "value", "dtype"]
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A partial function that rules may ask for.

    Attributes:
        takes, gives: sorts of its arguments and of its results; `names` holds their names, in this order.
        promise: what a row says of indices; None where it speaks of values and element types alone.
        mirror: the table that asks the same of transposed products, if that is another one.
    """

    name: str
    takes: tuple[Sort, ...]
    gives: tuple[Sort, ...]
    names: tuple[str, ...]
    fn: Callable[..., Row | None]
    promise: Promise | None = None
    mirror: str | None = None

    @property
    def about(self) -> str:
        """What it proves, as its function says."""
        return getattr(self.fn, "func", self.fn).__doc__ or ""

    def promised(self, logic: Logic, values: Sequence[Any]) -> list[Any]:
        """The formulas of its promise over its arguments and results."""
        if self.promise is None:
            return []
        return list(self.promise(logic, **dict(zip(self.names, values, strict=True))))


def compose(first: Layout, then: Layout) -> Row | None:
    """V(V(a, first), then) = V(a, L)."""
    found = lt.compose(first, then)
    return None if found is None else (found,)


def plain(layout: Layout) -> Row | None:
    """The layout fills nothing."""
    return None if layout.masked else ()


def keeps_fill(layout: Layout, fn: str) -> Row | None:
    """f(fill) = fill, exactly: the view may move through f. Holds for every plain layout."""
    if not layout.masked:
        return ()
    # Only +0.0: relu and neg of other fills change the value or its sign bit.
    positive_zero = isinstance(layout.fill, float) and layout.fill == 0 and str(layout.fill) == "0.0"
    return () if positive_zero and fn in _ZERO_TO_ZERO else None


_ZERO_TO_ZERO = frozenset({"abs", "relu", "sqrt", "tanh", "erf", "sin", "floor", "ceil", "round", "sign", "log1p"})


def swaps_blocks(layout: Layout, m: int, k: int, n: int) -> Row | None:
    """The layout transposes each of some equal blocks of rows of a product x[m, k] @ y[k, n].

    Gives (Ly, Lx, p, q): (x @ y)[layout] = y[Ly] @ x[Lx], of [p, n, k] and [p, k, q], where m = p*q.
    """
    p = layout.dims[0][0] if len(layout.dims) == 3 else 1
    if p == 1 or m % p or layout != lt.of_transpose((p, m // p, n), (0, 2, 1)):
        return None
    q = m // p
    return lt.strided(0, [(p, 0), (n, 1), (k, n)]), lt.of_transpose((p, q, k), (0, 2, 1)), p, q


def permutes_rows(layout: Layout, size: int, m: int, k: int, n: int) -> Row | None:
    """The layout permutes the rows of an array of `size` elements, which is [m, k]. Gives L, which permutes those of
    [m, n] in the same way."""
    whole = size == m * k and lt.is_bijective(layout, size)
    first = lt.compose(layout, lt.strided(0, ((m, k),))) if whole else None
    if first is None or lt.strided(first.offset, [*first.dims, (k, 1)]) != layout or layout.contiguous:
        return None
    if any(stride % k for stride in (first.offset, *(stride for _, stride in first.dims))):
        return None
    return (lt.strided(first.offset // k * n, [*((size, stride // k * n) for size, stride in first.dims), (n, 1)]),)


def narrow_product(layout: Layout, b: int, m: int, k: int, n: int) -> Row | None:
    """A view that reads only a box of x @ y: operands narrowed to it, new sizes, the view of the rest.

    Gives (Lx, Ly, b', m', n', L'): (x @ y)[layout] = (x[Lx] @ y[Ly])[L'], of [b', m', k] and [b', k, n'].
    """
    found = lt.box(layout, (b, m, n))
    if found is None:
        return None
    (batches, rows, columns), rest = found
    sizes = batches.size, rows.size, columns.size
    if sizes == (b, m, n):
        return None
    left = lt.strided(batches.start * m * k + rows.start * k, [*batches.scaled(m * k), *rows.scaled(k), (k, 1)])
    right = lt.strided(batches.start * k * n + columns.start, [*batches.scaled(k * n), (k, n), *columns.dims])
    return left, right, *sizes, rest


def sum_of_product(layout: Layout, count: int, b: int, m: int, k: int, n: int) -> Row | None:
    """The sum over the innermost `count` of a permuted product x @ y, as one smaller product.

    Each digit of the view must walk one of b, m, n and the whole of them must be walked once. Digits of m and n under
    the sum are summed in the operands ahead of the product; digits of b under the sum lengthen k.
    Gives (Lx, p, Ly, q, b', m', k', n', L): (sum(x[Lx]) @ sum(y[Ly]))[L], of [b', m', k', p] and [b', k', n', q].
    """
    if not lt.is_bijective(layout, b * m * n):
        return None
    digits = _walks(layout, (b, m, n))
    if digits is None:
        return None
    kept: list[list[tuple[int, int]]] = [[], [], []]
    summed: list[list[tuple[int, int]]] = [[], [], []]
    order: list[tuple[int, int]] = []
    inner = layout.size
    for place, size, step in digits:
        inner //= size
        if inner * size <= count:
            summed[place].append((size, step))
        elif inner >= count:
            order.append((place, len(kept[place])))
            kept[place].append((size, step))
        else:
            return None
    kb, km, kn = (prod(s for s, _ in part) for part in kept)
    sb, sm, sn = (prod(s for s, _ in part) for part in summed)
    if sb * sm * sn == 1:
        return None
    left = _strided(
        [*_scale(kept[0], m * k), *_scale(kept[1], k), *_scale(summed[0], m * k), (k, 1), *_scale(summed[1], k)]
    )
    right = _strided([*_scale(kept[0], k * n), *_scale(summed[0], k * n), (k, n), *kept[2], *summed[2]])
    # The product is [kept b digits, kept m digits, kept n digits]; the view wants them in the order of `layout`.
    strides: dict[tuple[int, int], int] = {}
    stride = 1
    for place in (2, 1, 0):
        for i in reversed(range(len(kept[place]))):
            strides[place, i] = stride
            stride *= kept[place][i][0]
    out = lt.strided(0, [(kept[p][i][0], strides[p, i]) for p, i in order])
    return left, sm, right, sn, kb, km, sb * k, kn, out


def _walks(layout: Layout, radices: tuple[int, ...]) -> list[tuple[int, int, int]] | None:
    """(place, size, step) of each digit of a plain layout with no offset; None if one walks two places."""
    digits = lt.split(layout, radices)
    if digits is None or any(digits.starts):
        return None
    walks = []
    for i, size in enumerate(digits.sizes):
        places = [j for j in range(len(radices)) if digits.coeffs[j][i]]
        if len(places) > 1:
            return None
        place = places[0] if places else -1
        walks.append((place, size, digits.coeffs[place][i] if places else 0))
    return walks


def _scale(dims: list[tuple[int, int]], by: int) -> list[tuple[int, int]]:
    return [(size, step * by) for size, step in dims]


def _strided(dims: list[tuple[int, int]]) -> Layout:
    return lt.strided(0, dims)


def widen(layout: Layout, count: int) -> Row | None:
    """A view of reductions over `count` as reductions of a view: f.reduce(x)[layout] = f.reduce(x[L])."""
    if layout.masked:
        return None
    return (lt.strided(layout.offset * count, [*_scale(list(layout.dims), count), (count, 1)]),)


_SORTS: dict[str, Sort] = {"L": "layout", "i": "int", "f": "fn", "v": "value", "t": "dtype"}


def _table(
    fn: Callable[..., Row | None], signature: str, promise: Promise | None = None, mirror: str | None = None
) -> Table:
    """A row: `layout:L b m k -> one:L` names what the function takes and gives; integers need no letter."""
    taken, given = (part.split() for part in signature.split("->"))
    return Table(fn.__name__, _sorts(taken), _sorts(given), _names(taken + given), fn, promise, mirror)


def _names(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(word.partition(":")[0] for word in words)


def _sorts(words: Sequence[str]) -> tuple[Sort, ...]:
    return tuple(_SORTS[word.partition(":")[2] or "i"] for word in words)


TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        _table(compose, "first:L then:L -> whole:L", promises.compose),
        _table(plain, "layout:L ->", promises.plain),
        _table(keeps_fill, "layout:L fn:f ->", promises.keeps_fill),
        _table(table_sums.keeps_sums, "layout:L ->", promises.keeps_sums),
        _table(swaps_blocks, "layout:L m k n -> right:L left:L p q", promises.swaps_blocks),
        _table(permutes_rows, "layout:L size m k n -> out:L", promises.permutes_rows),
        _table(narrow_product, "layout:L b m k n -> left:L right:L b1 m1 n1 rest:L", promises.narrow_product),
        _table(
            sum_of_product,
            "layout:L count b m k n -> left:L m_sum right:L n_sum b1 m1 k1 n1 out:L",
            promises.sum_of_product,
        ),
        _table(widen, "layout:L count -> wide:L", promises.widen),
        _table(table_sums.repeated, "layout:L rows count -> once:L rest times", promises.repeated),
        _table(table_sums.contraction, "left:L right:L rows count -> x:L y:L b m k n out:L", promises.contraction),
        _table(table_sums.in_order, "layout:L count -> ordered:L", promises.in_order),
        _table(
            table_sums.kept_rows,
            "layout:L b m k n -> left:L right:L rest",
            promises.kept_rows,
        ),
        _table(table_sums.diagonal, "layout:L b m n -> right:L", promises.diagonal),
        _table(
            table_sums.repeated_inner,
            "layout:L b m k n -> left:L right:L rest times",
            promises.repeated_inner,
            mirror="repeated_inner_right",
        ),
        _table(
            table_sums.repeated_inner_right,
            "layout:L b n k m -> right:L left:L rest times",
            promises.repeated_inner_right,
            mirror="repeated_inner",
        ),
        _table(table_sums.shifts_rows, "layout:L back:L count ->", promises.shifts_rows),
        _table(table_values.count_as, "count dtype:t -> value:v", promises.count_as),
        _table(table_values.value_of, "fn:f value:v dtype:t -> result:v"),
        _table(table_values.value_of_two, "fn:f one:v other:v dtype:t -> result:v"),
        _table(table_values.rounded_value_of_two, "fn:f one:v other:v dtype:t -> result:v"),
        _table(table_values.integral, "dtype:t ->"),
        _table(table_values.floating, "dtype:t ->"),
        _table(table_values.finite, "value:v ->"),
        _table(table_values.reciprocal_count, "value:v count dtype:t ->", promises.reciprocal_count),
        _table(table_values.cast_back, "last:f first:f dtype:t ->"),
        _table(table_values.cast_through, "last:f first:f dtype:t -> both:f"),
        _table(table_values.is_value, "value:v expected ->", promises.is_value),
        _table(table_values.reciprocal_of, "value:v -> reciprocal:v"),
        _table(table_values.exact_reciprocal, "value:v -> reciprocal:v"),
    )
}
"""Tables by name; those over named axes are families, one table for each `b m k -> b k n` that a rule asks about."""

IN_AXES: dict[str, tuple[Callable[..., Row | None], Callable[..., Any], bool, bool]] = {
    "axes": (named_axes.read_as, promises.read_as, False, True),
    "reads": (named_axes.reads, promises.reads, True, False),
    "along": (named_axes.along, promises.along, True, True),
}
"""By name: the function and the promise, both of the axes first; whether a layout is taken, and one given."""


def find(name: str) -> Table:
    """The table of a name; one over axes is called `along b m k -> b k n`."""
    return TABLES.get(name) or _in_axes(name)


@cache
def _in_axes(name: str) -> Table:
    kind, _, text = name.partition(" ")
    fn, promise, taken, given = IN_AXES[kind]
    axes = Axes.read(text, name)
    takes, gives = ["layout:L"] * taken + [*axes.letters], ["read:L"] * given
    return Table(name, _sorts(takes), _sorts(gives), _names(takes + gives), partial(fn, axes), partial(promise, axes))
