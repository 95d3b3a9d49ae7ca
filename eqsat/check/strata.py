"""Borders along the axes of a value: where slices, concatenated parts, padding or groups begin and end.

A wrong index map shows there first: a slice that is off by one at its ends, a concatenation in the wrong order in each
of its parts, a wrong window stride in the last window. Samples on both sides of every border see such errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod

import numpy as np

from eqsat.check.wanted import reshape_groups
from eqsat.program.term import Term, topological

MOST = 64
"""Borders that are kept along an axis; if there are more, this many are kept, evenly spread."""

Borders = frozenset[int]
"""Positions p of an axis where p and p - 1 may be computed in different ways."""

SEEN = 16
"""Number of positions beside borders that are sampled even if fewer are requested."""

_NONE: Borders = frozenset()


def borders(roots: Sequence[Term]) -> list[Borders]:
    """For each axis of values of one shape, the inner borders of any of them."""
    found: dict[Term, list[Borders]] = {}
    for term in topological(roots):
        args = [found[a] for a in term.args]
        found[term] = [_bounded(b, n) for b, n in zip(_borders(term, args), term.shape, strict=True)]
    return [
        _bounded(frozenset().union(*of), n) for *of, n in zip(*(found[r] for r in roots), roots[0].shape, strict=True)
    ]


def positions(n: int, inside: Borders, count: int, rng: np.random.Generator, seen: int = SEEN) -> np.ndarray:
    """`count` ascending positions of n: the first, the last, both sides of borders, and random ones; up to `seen` if
    borders have so many sides; none of an axis without elements."""
    if not n:
        return np.zeros(0, np.int64)
    sides = sorted({p for b in inside for p in (b - 1, b)} - {0, n - 1})
    count = min(n, max(count, min(seen, len(sides) + 2)))
    if len(sides) > count - 2:
        sides = [sides[i] for i in sorted(rng.permutation(len(sides))[: count - 2])]
    first = list(dict.fromkeys([0, n - 1, *sides]))
    chosen = rng.choice(n - len(first), max(0, count - len(first)), replace=False)
    for taken in sorted(first):  # the drawn numbers count only the positions not taken yet
        chosen += chosen >= taken
    return np.sort(np.concatenate([np.asarray(first, np.int64)[:count], chosen]))


def _bounded(found: Iterable[int], n: int) -> Borders:
    inside = sorted(p for p in found if 0 < p < n)
    if len(inside) > MOST:
        inside = [inside[i] for i in np.unique(np.linspace(0, len(inside) - 1, MOST).astype(int))]
    return frozenset(inside)


def _borders(term: Term, args: list[list[Borders]]) -> list[Borders]:
    row = _ROWS.get(term.op)
    if row is not None and term.size:
        return row(term, args)
    if args and all(len(of) == term.ndim for of in args) and all(a.shape == term.shape for a in term.args):
        return [frozenset().union(*of) for of in zip(*args, strict=True)]
    return [_NONE] * term.ndim


def _matmul(term: Term, args: list[list[Borders]]) -> list[Borders]:
    a, b = args
    return [*(x | y for x, y in zip(a[:-2], b[:-2], strict=True)), a[-2], b[-1]]


def _transpose(term: Term, args: list[list[Borders]]) -> list[Borders]:
    return [args[0][axis] for axis in term.attr("perm")]


def _reshape(term: Term, args: list[list[Borders]]) -> list[Borders]:
    """By row-major position in each run of axes: borders in the first rows and the last one, and the ends of rows."""
    (x,) = term.args
    found: list[Borders] = [_NONE] * term.ndim
    for source, result in reshape_groups(term):
        total = prod(x.shape[i] for i in source)
        flat: set[int] = set()
        stride = 1
        for i in reversed(source):
            row = stride * x.shape[i]
            starts = {0, row, total - row}
            flat |= {start + p * stride for p in args[0][i] for start in starts}
            flat.update(range(row, min(total, row * MOST), row))
            stride = row
        stride = 1
        for j in reversed(result):
            found[j] = frozenset(p // stride % term.shape[j] + side for p in flat for side in (0, p % stride > 0))
            stride *= term.shape[j]
    return found


def _broadcast(term: Term, args: list[list[Borders]]) -> list[Borders]:
    return [*[_NONE] * (term.ndim - len(args[0])), *args[0]]


def _slice(term: Term, args: list[list[Borders]]) -> list[Borders]:
    bounds = zip(term.attr("starts"), term.attr("steps"), args[0], strict=True)
    return [
        frozenset(-((start - p) // step) if step > 0 else (start - p) // -step + 1 for p in of)
        for start, step, of in bounds
    ]


def _concat(term: Term, args: list[list[Borders]]) -> list[Borders]:
    axis = term.attr("axis")
    found = [frozenset().union(*of) for of in zip(*args, strict=True)]
    along: set[int] = set()
    start = 0
    for arg, of in zip(term.args, args, strict=True):
        along |= {start, *(start + p for p in of[axis])}
        start += arg.shape[axis]
    found[axis] = frozenset(along)
    return found


def _pad(term: Term, args: list[list[Borders]]) -> list[Borders]:
    sizes = zip(term.attr("lo"), term.args[0].shape, args[0], strict=True)
    return [frozenset({low, low + n, *(low + p for p in of)}) for low, n, of in sizes]


def _reduce(term: Term, args: list[list[Borders]]) -> list[Borders]:
    axes, keep = term.attr("axes"), term.attr("keepdims")
    return [_NONE if i in axes else of for i, of in enumerate(args[0]) if keep or i not in axes]


def _gather(term: Term, args: list[list[Borders]]) -> list[Borders]:
    axis = term.attr("axis")
    return [*args[0][:axis], *args[1], *args[0][axis + 1 :]]


def _windows(term: Term, x: list[Borders], kernel: Sequence[int]) -> list[Borders]:
    """Where windows begin to leave the padding or to enter a part, and where they are entirely inside."""
    found = []
    settings = zip(term.attr("strides"), term.attr("pads_lo"), term.attr("dilations"), strict=True)
    for i, (stride, low, dilation) in enumerate(settings):
        edges = {0, term.args[0].shape[2 + i], *x[2 + i]}
        reach = (kernel[i] - 1) * dilation
        found.append(frozenset(-((-low - p + r) // stride) for p in edges for r in (0, reach)))
    return found


def _conv(term: Term, args: list[list[Borders]]) -> list[Borders]:
    x, w = args
    width = term.shape[1] // term.attr("groups")
    groups = frozenset(range(0, term.shape[1], width)) if width > 1 else _NONE  # else no channel is like the next
    return [x[0], w[0] | groups, *_windows(term, x, term.args[1].shape[2:])]


def _pool(term: Term, args: list[list[Borders]]) -> list[Borders]:
    return [*args[0][:2], *_windows(term, args[0], term.attr("kernel"))]


_ROWS: dict[str, Callable[[Term, list[list[Borders]]], list[Borders]]] = {
    "matmul": _matmul,
    "transpose": _transpose,
    "reshape": _reshape,
    "broadcast": _broadcast,
    "slice": _slice,
    "concat": _concat,
    "pad": _pad,
    "reduce": _reduce,
    "gather": _gather,
    "conv": _conv,
    "pool": _pool,
}
"""For each operator, how its operands' borders become borders of its result; all others are elementwise."""
