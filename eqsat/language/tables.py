"""Tables: the layout arithmetic that rules ask for.

egglog cannot compute with layouts, so a rule asks: it demands `compose(L1, L2)`, the row is computed here between two
iterations, and the rule fires where a row exists. Each table is a partial function; None means that nothing could be
proved, so the rule does not fire. Products are `mm(a, b, B, M, K, N)`: a[B, M, K] @ b[B, K, N], everything flat.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from eqsat.language import table_sums, table_values
from eqsat.layout import arithmetic as lt
from eqsat.layout.arithmetic import Layout

Sort = Literal["int", "layout", "fn", "value", "dtype"]
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A partial function that rules may ask for: sorts of its arguments and of its results, and the function."""

    name: str
    takes: tuple[Sort, ...]
    gives: tuple[Sort, ...]
    fn: Callable[..., Row | None]


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


def swaps(layout: Layout, batch: int, rows: int, columns: int) -> Row | None:
    """The layout transposes each [rows, columns] of a batch."""
    return () if layout == transposed(batch, rows, columns) else None


def transposed(batch: int, rows: int, columns: int) -> Layout:
    """x[batch, rows, columns] -> x[batch, columns, rows]."""
    return lt.of_transpose((batch, rows, columns), (0, 2, 1))


def swap(batch: int, rows: int, columns: int) -> Row:
    """The layout that transposes each [rows, columns] of a batch."""
    return (transposed(batch, rows, columns),)


def swaps_blocks(layout: Layout, m: int, k: int, n: int) -> Row | None:
    """The layout transposes each of some equal blocks of rows of a product x[m, k] @ y[k, n].

    Gives (Ly, Lx, p, q) with V(mm(x, y, 1, m, k, n), layout) = mm(V(y, Ly), V(x, Lx), p, n, k, q), where m = p*q.
    """
    p = layout.dims[0][0] if len(layout.dims) == 3 else 1
    if p == 1 or m % p or layout != lt.of_transpose((p, m // p, n), (0, 2, 1)):
        return None
    q = m // p
    return lt.strided(0, [(p, 0), (n, 1), (k, n)]), lt.of_transpose((p, q, k), (0, 2, 1)), p, q


def narrow_product(layout: Layout, b: int, m: int, k: int, n: int) -> Row | None:
    """A view that reads only a box of mm(x, y, b, m, k, n): operands narrowed to it, new sizes, the view of the rest.

    Gives (Lx, Ly, b', m', n', L') with V(mm(x, y), layout) = V(mm(V(x, Lx), V(y, Ly), b', m', k, n'), L').
    """
    found = lt.box(layout, (b, m, n))
    if found is None:
        return None
    low, high, rest = found
    b1, m1, n1 = (h - lo for lo, h in zip(low, high, strict=True))
    if (b1, m1, n1) == (b, m, n):
        return None
    left = lt.of_slice((b, m, k), (low[0], low[1], 0), (high[0], high[1], k), (1, 1, 1))
    right = lt.of_slice((b, k, n), (low[0], 0, low[2]), (high[0], k, high[2]), (1, 1, 1))
    return left, right, b1, m1, n1, rest


def sum_of_product(layout: Layout, count: int, b: int, m: int, k: int, n: int) -> Row | None:
    """The sum over the innermost `count` of a permuted mm(x, y, b, m, k, n), as one smaller product.

    Each digit of the view must walk one of b, m, n and the whole of them must be walked once. Digits of m and n under
    the sum are summed in the operands ahead of the product; digits of b under the sum lengthen k.
    Gives (Lx, Mx, Ly, Ny, B, M, K, N, L): V(mm(sum(V(x, Lx), Mx), sum(V(y, Ly), Ny), B, M, K, N), L).
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


def sum_of_whole_product(count: int, b: int, m: int, k: int, n: int) -> Row | None:
    """`sum_of_product` of a product that is summed as it stands."""
    return sum_of_product(lt.identity(b * m * n), count, b, m, k, n)


def shared_left(layout: Layout, b: int, m: int, k: int, n: int) -> Row | None:
    """x[b, m, k] = V(z, layout) holds one matrix b times: one wide product instead of a batch of b.

    Gives (Lx, Ly, L): V(mm(V(z, Lx), V(y, Ly), 1, m, k, b*n), L) with y[b, k, n] as [k, b, n].
    """
    one = repeated_batch(layout, b, m, k)
    if one is None:
        return None
    return one[0], lt.of_transpose((b, k, n), (1, 0, 2)), lt.of_transpose((m, b, n), (1, 0, 2))


def k_scale(layout: Layout, b: int, m: int, k: int, n: int) -> Row | None:
    """V(z, layout) of [b, m, k] is the same along m: V(z, L) of [b, k, n] scales the rows of the right operand."""
    one = _unrepeated(layout, (b, m, k), (b, 1, k))
    return _spread_along(one, (b, k, 1), (b, k, n))


def left_k_scale(layout: Layout, b: int, m: int, k: int, n: int) -> Row | None:
    """V(z, layout) of [b, k, n] is the same along n: V(z, L) of [b, m, k] scales the columns of the left operand."""
    one = _unrepeated(layout, (b, k, n), (b, k, 1))
    return _spread_along(one, (b, 1, k), (b, m, k))


def is_identity(layout: Layout, size: int) -> Row | None:
    """The layout reads an array of `size` elements as it is."""
    return () if layout.is_identity(size) else None


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


def _unrepeated(layout: Layout, shape: tuple[int, ...], kept: tuple[int, ...]) -> Layout | None:
    """V(z, layout) of a shape without the dims along which it repeats itself, which `kept` has as 1."""
    if 0 in shape:
        return None  # nothing is read, so that there is no first of the repetitions
    one = lt.compose(layout, lt.of_slice(shape, [0] * len(shape), kept, [1] * len(shape)))
    return one if one is not None and lt.compose(one, lt.of_broadcast(kept, shape)) == layout else None


def _spread_along(one: Layout | None, kept: tuple[int, ...], shape: tuple[int, ...]) -> Row | None:
    """V(z, one) of a shape with dims of 1 repeated along those."""
    spread = None if one is None else lt.compose(one, lt.of_broadcast(kept, shape))
    return None if spread is None else (spread,)


def repeated_rows(layout: Layout, b: int, m: int, k: int, n: int) -> Row | None:
    """The rows of x[b, m, k] = V(z, layout) are all alike: V(z, L) is one of them, and L' repeats the product's row."""
    one = _unrepeated(layout, (b, m, k), (b, 1, k))
    return None if m == 1 or one is None else (one, lt.of_broadcast((b, 1, n), (b, m, n)))


def repeated_columns(layout: Layout, b: int, m: int, k: int, n: int) -> Row | None:
    """The columns of y[b, k, n] = V(z, layout) are all alike: V(z, L) is one of them, and L' repeats the product's."""
    one = _unrepeated(layout, (b, k, n), (b, k, 1))
    return None if n == 1 or one is None else (one, lt.of_broadcast((b, m, 1), (b, m, n)))


def repeated_batch(layout: Layout, b: int, rows: int, columns: int) -> Row | None:
    """x[b, rows, columns] = V(z, layout) holds one matrix b times: V(z, L) is that matrix."""
    one = _unrepeated(layout, (b, rows, columns), (1, rows, columns))
    return None if b == 1 or one is None else (one,)


def row_scale(layout: Layout, b: int, m: int, k: int, n: int) -> Row | None:
    """x[b, m, k] = V(z, layout) is the same along k: V(z, L) scales the rows of the product [b, m, n]."""
    return _spread_along(_unrepeated(layout, (b, m, k), (b, m, 1)), (b, m, 1), (b, m, n))


def column_scale(layout: Layout, b: int, m: int, k: int, n: int) -> Row | None:
    """y[b, k, n] = V(z, layout) is the same along k: V(z, L) scales the columns of the product [b, m, n]."""
    return _spread_along(_unrepeated(layout, (b, k, n), (b, 1, n)), (b, 1, n), (b, m, n))


def left_row_scale(layout: Layout, b: int, m: int, k: int, n: int) -> Row | None:
    """A factor V(z, layout) of the product [b, m, n] is the same along n: V(z, L) scales the rows of x[b, m, k]."""
    return row_scale(layout, b, m, n, k)


def right_column_scale(layout: Layout, b: int, m: int, k: int, n: int) -> Row | None:
    """A factor V(z, layout) of the product [b, m, n] is the same along m: V(z, L) scales the columns of y[b, k, n]."""
    return column_scale(layout, b, k, m, n)


def constant_along(layout: Layout, rows: int, count: int) -> Row | None:
    """V(z, layout) of [rows, count] is the same along count: V(z, L) is one of each row."""
    one = _unrepeated(layout, (rows, count), (rows, 1))
    return None if one is None else (one,)


def widen(layout: Layout, count: int) -> Row | None:
    """A view of reductions over `count` as reductions of a view: red(f, x, c)[layout] = red(f, V(x, L), c)."""
    if layout.masked:
        return None
    return (lt.strided(layout.offset * count, [*_scale(list(layout.dims), count), (count, 1)]),)


def column_bias(first: Layout, then: Layout, b: int, m: int, k: int, n: int) -> Row | None:
    """y[b, k, n] = V(V(z, first), then) is the same along k: V(z, L) is what it adds to a product [b, m, n] by a left
    factor whose rows sum to one."""
    whole = None if then.masked else lt.compose(first, then)
    return None if whole is None else column_scale(whole, b, m, k, n)


def _table(fn: Callable[..., Row | None], takes: str, gives: str = "") -> Table:
    letters: dict[str, Sort] = {"L": "layout", "i": "int", "f": "fn", "v": "value", "t": "dtype"}
    return Table(fn.__name__, tuple(letters[c] for c in takes), tuple(letters[c] for c in gives), fn)


TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        _table(compose, "LL", "L"),
        _table(plain, "L"),
        _table(keeps_fill, "Lf"),
        _table(swaps, "Liii"),
        _table(swap, "iii", "L"),
        _table(swaps_blocks, "Liii", "LLii"),
        _table(narrow_product, "Liiii", "LLiiiL"),
        _table(sum_of_product, "Liiiii", "LiLiiiiiL"),
        _table(sum_of_whole_product, "iiiii", "LiLiiiiiL"),
        _table(shared_left, "Liiii", "LLL"),
        _table(k_scale, "Liiii", "L"),
        _table(left_k_scale, "Liiii", "L"),
        _table(is_identity, "Li"),
        _table(repeated_rows, "Liiii", "LL"),
        _table(repeated_columns, "Liiii", "LL"),
        _table(repeated_batch, "Liii", "L"),
        _table(row_scale, "Liiii", "L"),
        _table(column_scale, "Liiii", "L"),
        _table(left_row_scale, "Liiii", "L"),
        _table(right_column_scale, "Liiii", "L"),
        _table(constant_along, "Lii", "L"),
        _table(widen, "Li", "L"),
        _table(table_sums.repeated, "Lii", "Lii"),
        _table(table_sums.contraction, "LLii", "LLiiiiL"),
        _table(table_sums.contraction_with_rows, "Lii", "LLiiiiL"),
        _table(table_sums.repeated_through, "LLii", "L"),
        _table(table_sums.in_order, "Li", "L"),
        _table(table_sums.repeated_inner, "Liiii", "LLii"),
        _table(table_sums.repeated_inner_right, "Liiii", "LLii"),
        _table(table_sums.repeats_rows, "Li"),
        _table(table_sums.shifts_rows, "LLi"),
        _table(table_sums.shifts_all, "vL"),
        _table(column_bias, "LLiiii", "L"),
        _table(table_sums.keeps_sums, "L"),
        _table(table_values.count_as, "it", "v"),
        _table(table_values.plus_one, "vt", "v"),
        _table(table_values.value_of, "fvt", "v"),
        _table(table_values.value_of_two, "fvvt", "v"),
        _table(table_values.integral, "t"),
        _table(table_values.finite, "v"),
        _table(table_values.reciprocal_count, "vit"),
        _table(table_values.cast_back, "fft"),
        _table(table_values.cast_through, "fft", "f"),
        _table(table_values.is_value, "vi"),
        _table(table_values.reciprocal_of, "v", "v"),
        _table(table_values.exact_reciprocal, "v", "v"),
        _table(table_values.floating, "t"),
    )
}
