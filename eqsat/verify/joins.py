"""The laws of concatenation, from which certificates derive every step by a rule over all members of one.

An array is its runs one after another. A view of joined arrays that reads some neighbours among them is a view of those
alone. With the rules that move views into operators, `f(cat(a, b)) = cat(f(a), f(b))` follows for each operator `f`. A
product is the sum of the products over runs of its inner axis, and a reduction of rows combines those of their runs.
Rows of joined tables are rows of one of them, and rows by joined indices are the rows by each of these.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import reduce
from itertools import accumulate

from eqsat.errors import CheckFailed
from eqsat.layout.arithmetic import Layout, strided
from eqsat.program.node import STEPS
from eqsat.verify.terms import Terms


def cut(terms: Terms, at: int, sizes: Sequence[int]) -> int:
    """The term as its runs of these sizes, joined again.

    Raises:
        CheckFailed: the sizes do not add up to the term's.
    """
    if not sizes or min(sizes) < 1 or sum(sizes) != terms.size[at]:
        raise CheckFailed(f"runs of {list(sizes)} elements are not an array of {terms.size[at]}")
    starts = accumulate(sizes, initial=0)
    runs = [terms.add("V", (strided(start, [(n, 1)]),), (at,)) for start, n in zip(starts, sizes, strict=False)]
    return terms.add("Cat", (), runs)


def inside(terms: Terms, at: int) -> int | None:
    """A view of joined arrays as a view of the neighbours that it reads; None for any other term."""
    op, attrs, args = terms.rows[at]
    if op != "V" or terms.rows[args[0]][0] != "Cat":
        return None
    layout: Layout = attrs[0]
    members = terms.rows[args[0]][2]
    if layout.size == 0 or layout.all_filled:
        return None
    least, most = layout.reach
    starts = list(accumulate((terms.size[m] for m in members), initial=0))
    first, last = bisect_right(starts, least) - 1, bisect_right(starts, most) - 1
    if not 0 <= first <= last < len(members) or last - first + 1 == len(members) > 1:
        return None
    read = members[first : last + 1]
    return terms.add("V", (layout.moved(starts[first]),), (read[0] if len(read) == 1 else terms.add("Cat", (), read),))


def split(terms: Terms, at: int, sizes: Sequence[int]) -> int:
    """What is added up, or reduced otherwise, in runs of these sizes: the product x[b, m, k] @ y[b, k, n] as a sum of
    products over runs of k, a reduction of rows as reductions of the runs of each row, combined.

    Raises:
        CheckFailed: the term is neither, or the sizes do not add up to its inner axis.
    """
    op, attrs, _ = terms.rows[at]
    if op != "MM" and not (op == "Red" and attrs[0] in STEPS):
        raise CheckFailed("the term is no product and no reduction")
    axis = attrs[2] if op == "MM" else attrs[1]
    if not sizes or min(sizes) < 1 or sum(sizes) != axis:
        raise CheckFailed(f"runs of {list(sizes)} are not an axis of {axis}")
    part, step = (_product, "add") if op == "MM" else (_reduction, STEPS[attrs[0]])
    parts = [part(terms, at, start, size) for start, size in zip(accumulate(sizes, initial=0), sizes, strict=False)]
    return reduce(lambda one, other: terms.add("Bin", (step,), (one, other)), parts)


def _product(terms: Terms, at: int, start: int, size: int) -> int:
    """A product over a run of its inner axis."""
    _, (b, m, k, n), args = terms.rows[at]
    left = terms.add("V", (strided(start, [(b * m, k), (size, 1)]),), (args[0],))
    right = terms.add("V", (strided(start * n, [(b, k * n), (size * n, 1)]),), (args[1],))
    return terms.add("MM", (b, m, size, n), (left, right))


def _reduction(terms: Terms, at: int, start: int, size: int) -> int:
    """A reduction of a run of each row."""
    _, (fn, columns), args = terms.rows[at]
    runs = terms.add("V", (strided(start, [(terms.size[at], columns), (size, 1)]),), args)
    return terms.add("Red", (fn, size), (runs,))


def picked(terms: Terms, at: int) -> int | None:
    """Rows that are picked by joined indices as what each index picks; rows of joined tables, picked by an index that
    counts from the start of one of them, as rows of that one. None for any other term."""
    op, attrs, args = terms.rows[at]
    if op != "Gather" or attrs[0] != 1:
        return None
    _, rows, inner = attrs
    (table, index), (of_table, of_index) = args, (terms.rows[a] for a in args)
    if of_index[0] == "Cat":
        return terms.add("Cat", (), [terms.add("Gather", (1, rows, inner), (table, part)) for part in of_index[2]])
    counted = _counted(terms, index)
    if of_table[0] != "Cat" or counted is None:
        return None
    start, count, own = counted
    starts = accumulate((terms.size[m] for m in of_table[2]), initial=0)
    for place, member in zip(starts, of_table[2], strict=False):
        if place == start * inner and terms.size[member] == count * inner:
            return terms.add("Gather", (1, count, inner), (member, own))
    return None


def _counted(terms: Terms, index: int) -> tuple[int, int, int] | None:
    """(start, count, i) of an index that is `i mod count + start`; None for any other."""
    start = 0
    op, attrs, args = terms.rows[index]
    if (op, attrs) == ("Bin", ("add",)) and (known := _number(terms, args[1])) is not None:
        start = known
        op, attrs, args = terms.rows[args[0]]
    count = _number(terms, args[1]) if (op, attrs) == ("Bin", ("mod",)) else None
    return None if count is None or start < 0 or count < 1 else (start, count, args[0])


def _number(terms: Terms, at: int) -> int | None:
    op, attrs, _ = terms.rows[at]
    return attrs[0] if op == "Full" and type(attrs[0]) is int else None
