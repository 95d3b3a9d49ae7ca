"""Compares each constant that was computed ahead of time with its origin: the computation it replaces.

Rewriting changes mostly a program's constants: scaled weights, products of weights, concatenated weights. Random inputs
do not show every element of them (a row of a table that no index reads, a column that an exponential makes small), so
constants are compared separately, element by element: with their origin in float64, up to one rounding to their type.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from types import EllipsisType

import ml_dtypes
import numpy as np

from eqsat.base.numerics import Array, converted, is_float, np_dtype
from eqsat.check.demand import Demanded, Moved
from eqsat.check.inputs import SEED, random_values
from eqsat.check.means import Left, Means
from eqsat.check.rounding import NOISE, ROUNDINGS, within
from eqsat.check.wanted import WIDE, Demand, Sums, everything
from eqsat.errors import CheckFailed
from eqsat.program import ops
from eqsat.program.term import Term, topological

Origin = tuple[Term, Term]
"""A constant, and the term over constants that it was computed from."""

BLOCK = 1 << 19
"""Elements compared at a time, so that origins in float64 fit a processor's cache."""

MOVED = 1 << 24
"""The same where elements are only moved: all at once, they need no arithmetic of places. Two concatenated weights with
7 million elements took 0.4 s in blocks of the other size, and 0.02 s at once."""

DEAR = 2_000_000_000
"""Operations of products and convolutions from which an origin is probed by some rows and by sums, and not computed in
full. Sums along an axis that take more are left out where another axis is cheaper."""

ROUNDED = 0.5 + 1e-6
"""Allowed error, in last places, of an element that was computed in float64 and rounded once."""

ROWS = 12
"""Places along each axis but the last of an expensive origin, whose rows are compared element by element."""

SUMS = 4
"""Number of sums with random weights along an axis of an expensive origin. No two weights are the same, so that
elements in each other's places show."""

SUMS_OFF = 8.0
"""Largest difference between such sums, as a multiple of the mean effect of rounding each element to its type."""

_MOVES = frozenset({"constant", "concat", "pad", "gather", "full", "iota"})


def origins(pairs: Sequence[tuple[Term, Term]]) -> list[Origin]:
    """The constants in terms that were computed ahead of time, with their origins.

    Args:
        pairs: terms and their meanings, which have the same operators except for constants computed ahead of time.

    Raises:
        CheckFailed: a term and its meaning differ in anything else.
    """
    found: dict[Origin, None] = {}
    stack = list(reversed(pairs))
    seen: set[Origin] = set()
    while stack:
        term, meaning = pair = stack.pop()
        if term is meaning or pair in seen:
            continue
        seen.add(pair)
        if term.op == "constant" and term.spec == meaning.spec:
            found[pair] = None
        elif term.op == "reshape" and term.spec == meaning.spec and term.args[0].op == "constant":
            (below,) = term.args  # a reshape of the meaning may be part of another one by now, or gone
            stack.append((below, ops.reshape(meaning, below.shape)))
        elif (term.op, term.attrs, len(term.args)) == (meaning.op, meaning.attrs, len(meaning.args)) and term.args:
            stack.extend(reversed(list(zip(term.args, meaning.args, strict=True))))
        else:
            raise CheckFailed(f"{term.op} {term.spec} of the result stands for {meaning.op} {meaning.spec}")
    return list(found)


def compare(
    origin: Origin,
    rng: np.random.Generator,
    native: Collection[Term] = (),
    hurried: bool = False,
    left: Left = lambda: math.inf,
    means: Means | None = None,
) -> None:
    """Compare a constant with its origin.

    Args:
        native: terms that the source itself computes, in its own element types, operator by operator.
        hurried: probe all but small origins, in the cheapest way.
        left: the seconds left for everything. Once there are none, the rest of an origin is probed.

    Raises:
        CheckFailed: they differ by more than rounding explains.
        CheckTooLarge, CheckUndecided: not even a probe can be computed in the memory or time that there is.
    """
    constant, term = origin
    means = means or Means()
    value = constant.attr("value").array
    below = topological([term])
    if all(x.op in _MOVES or ops.row(x.op).view for x in below):
        for place, demand in _blocks(term, MOVED):
            (want,) = Demanded({term: demand}).run({}, "native")
            if not _same(value[place], want):
                raise _wrong(constant, "its elements are not where they belong")
        return
    whole = term.size <= BLOCK if hurried else _multiplications(below) <= DEAR
    if whole and _in_blocks(constant, value, term, native, left, means):
        return
    _probe(constant, value, term, rng, native, hurried, means)


def _in_blocks(constant: Term, value: Array, term: Term, native: Collection[Term], left: Left, means: Means) -> bool:
    """Compare all elements. False if there is not the memory or the time for it."""
    blocks = list(_blocks(term, BLOCK))
    for i, (place, demand) in enumerate(blocks):
        demanded = Demanded({term: demand}, exact=True, native=native)
        if (i and left() <= 0) or not means.suffice(demanded, len(blocks) - i):
            return False
        _elementwise(constant, value[place], demanded)
    return True


def _inputs(demanded: Demanded) -> dict[str, Array]:
    """Values for the inputs below an origin that is constant whatever they are, as an argmin over one element is."""
    return random_values([term for term in demanded.order if term.op == "input"], 0, SEED)


def _probe(
    constant: Term,
    value: Array,
    term: Term,
    rng: np.random.Generator,
    native: Collection[Term],
    hurried: bool,
    means: Means,
) -> None:
    """Compare some rows element by element, and sums along axes: the cheapest, and others that are not expensive."""
    lines = term.shape[: max(1, term.ndim - 1)]
    rows = [np.sort(rng.choice(n, min(ROWS, n), replace=False)) for n in lines]
    some = (*rows, *everything(term)[len(rows) :])
    few = Demanded({term: some}, exact=True, native=native)
    means.require(few, what := f"the constant {constant.spec}")
    _elementwise(constant, value[np.ix_(*rows)], few)
    along = []
    for axis, n in enumerate(term.shape):
        weights = rng.choice([-1.0, 1.0], (SUMS, n)) * rng.uniform(0.5, 1.5, (SUMS, n))
        demand = tuple(Sums(weights) if i == axis else None for i in range(term.ndim))
        along.append(Demanded({constant: demand, term: demand}, exact=True, native=native))
    if not along:
        return
    cheapest, *others = sorted(range(term.ndim), key=lambda axis: along[axis].flops)
    means.require(along[cheapest], what)
    for axis in [cheapest, *(x for x in others if not hurried and along[x].flops <= DEAR and means.suffice(along[x]))]:
        for place in rng.permutation(_sums(constant, along[axis], axis))[:ROWS]:
            line = [np.array([i]) for i in place]
            line.insert(axis, np.arange(term.shape[axis]))
            elements = Demanded({term: tuple(line)}, exact=True, native=native)
            _elementwise(constant, value[np.ix_(*line)], elements)


def _multiplications(terms: Iterable[Term]) -> int:
    """Operations of products and convolutions."""
    rows = [(ops.row(term.op), term) for term in terms]
    return sum(row.flops(term) for row, term in rows if row.contraction)


def _blocks(term: Term, most: int) -> Iterator[tuple[slice | EllipsisType, Demand]]:
    """Runs of rows with so many elements at most, with the demand for each."""
    if term.size <= most or term.ndim == 0:
        yield ..., everything(term)
        return
    n = term.shape[0]
    step = max(1, most * n // term.size)
    for start in range(0, n, step):
        stop = min(n, start + step)
        yield slice(start, stop), (np.arange(start, stop), *everything(term)[1:])


def _elementwise(constant: Term, value: Array, demanded: Demanded) -> None:
    """Compare elements with what is demanded of their origin."""
    inputs = _inputs(demanded)
    (want,) = demanded.run(inputs)
    if not is_float(constant.dtype):
        if not _same(value, want) and not _same(value, demanded.run(inputs, "native")[0]):
            raise _wrong(constant, "its elements are others")
        return
    with np.errstate(all="ignore"):
        if _same(value, want.astype(value.dtype)):
            return
    found = converted(value, WIDE)
    info = ml_dtypes.finfo(np_dtype(constant.dtype))
    with np.errstate(all="ignore"):
        rounding = ROUNDED * (float(info.eps) * np.abs(want) + float(info.smallest_subnormal))
        gaps = _gaps(found, want, rounding)
        if not gaps.any():
            return
        # A runtime would have computed it like this, operator by operator.
        (own,) = demanded.run(inputs, "native")
        if _same(value, own):
            return
        (noisy,) = demanded.run(inputs, moved=Moved(frozenset(), 0, computed=True))
        moved = _gaps(converted(own, WIDE), want, rounding) ** 2 + (NOISE * np.abs(noisy - want)) ** 2
        if factors := _rounded_factors(demanded.order):
            # One that adds up in another order rounds other products: as if factors were moved by a last place.
            moved += np.square(demanded.run(inputs, moved=Moved(factors, 0))[0] - want)
    moved = np.nan_to_num(moved, nan=0.0, posinf=0.0)
    unexplained = np.where(gaps > ROUNDINGS * np.sqrt(moved), gaps, 0.0)
    if np.isfinite(gaps).all() and within(unexplained, moved, 1):
        return
    place = np.unravel_index(int(gaps.argmax()), want.shape)
    raise _wrong(constant, f"an element is {found[place]:.9g} where it should be {want[place]:.9g}")


def _rounded_factors(order: Sequence[Term]) -> frozenset[Term]:
    """The numbers of which products are rounded to their own type before they are added up; none if nothing is. Halves
    are added up in float32."""
    types = {term.dtype for term in order if ops.row(term.op).contraction} & {"float32", "float64"}
    return frozenset(term for term in order if term.op in ("constant", "full") and term.dtype in types)


def _gaps(found: Array, want: Array, rounding: Array) -> Array:
    """The differences of values beyond their rounding; infinite where only one of the two is finite."""
    same = (found == want) | (np.isnan(found) & np.isnan(want))
    return np.where(same, 0.0, np.nan_to_num(np.maximum(np.abs(found - want) - rounding, 0.0), nan=np.inf))


def _sums(constant: Term, demanded: Demanded, axis: int) -> Array:
    """Compare sums along an axis. A wrong element shows if it exceeds the rounding of all elements in its sum.

    Returns:
        The places of sums that are not finite. These show nothing.
    """
    found, want = demanded.run(_inputs(demanded))
    ones = Sums(np.ones((1, constant.shape[axis])))
    values = constant if is_float(constant.dtype) else ops.cast(constant, "float64")  # squares of integers may overflow
    size = ops.mul(values, values)
    demand = tuple(ones if i == axis else None for i in range(constant.ndim))
    (squares,) = Demanded({size: demand}, exact=True).run({})
    rounding = 0.29 * float(ml_dtypes.finfo(np_dtype(values.dtype)).eps) * np.sqrt(squares)
    finite = np.isfinite(found) & np.isfinite(want)
    with np.errstate(invalid="ignore"):
        right = np.abs(found - want) <= SUMS_OFF * rounding + 1e-9 * np.abs(want)
    if not right[finite].all():
        raise _wrong(constant, f"its sums along axis {axis} are others")
    return np.argwhere(~finite.all(axis))


def _same(a: Array, b: Array) -> bool:
    """Whether two arrays hold the same bits."""
    found, want = (np.ascontiguousarray(x).reshape(-1).view(f"u{x.itemsize}") for x in (a, b))
    return a.dtype == b.dtype and np.array_equal(found, want)


def _wrong(constant: Term, how: str) -> CheckFailed:
    return CheckFailed(f"the constant {constant.spec} differs from the source: {how}")
