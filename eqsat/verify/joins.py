"""The two laws of concatenation, from which certificates derive every step by a rule over all members of one.

An array is its runs one after another. A view of joined arrays that reads some neighbours among them is a view of those
alone. With the rules that move views into operators, `f(cat(a, b)) = cat(f(a), f(b))` follows for each operator `f`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from eqsat.errors import CheckFailed
from eqsat.layout.arithmetic import Layout, strided
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
    if layout.masked or layout.size == 0:
        return None
    least, most = reach(layout)
    starts = list(accumulate((terms.size[m] for m in members), initial=0))
    first, last = bisect_right(starts, least) - 1, bisect_right(starts, most) - 1
    if not 0 <= first <= last < len(members) or last - first + 1 == len(members) > 1:
        return None
    read = members[first : last + 1]
    moved = strided(layout.offset - starts[first], layout.dims)
    return terms.add("V", (moved,), (read[0] if len(read) == 1 else terms.add("Cat", (), read),))


def reach(layout: Layout) -> tuple[int, int]:
    """The least and the greatest place that a layout might read, masks aside."""
    ends = [(n - 1) * stride for n, stride in layout.dims] + [(a.bound - 1) * a.stride for a in layout.axes]
    return layout.offset + sum(min(e, 0) for e in ends), layout.offset + sum(max(e, 0) for e in ends)
