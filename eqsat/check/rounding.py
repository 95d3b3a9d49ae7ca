"""Whether a difference between source and result is rounding: it is held against what comes of rounding a little more.

Monte Carlo arithmetic (D. S. Parker, 1997), of constants: each one that rewriting made is moved by its last place, up
or down at random, and what that does to every element is compared with the difference there: in the mean of all, along
each axis, and one by one. A wrong weight shows in a column, a wrong row of an index map in a row, though neither stands
out from the largest of what rounding does elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import frexp, isfinite, log2

import ml_dtypes
import numpy as np

from eqsat.base.numerics import Precision, is_float, np_dtype
from eqsat.check.demand import Demand, Demanded, Moved
from eqsat.program.term import Term, topological

Array = np.ndarray
Pair = tuple[Term, Term]
"""Values of the source and of the result that are said to be equal."""

ROUNDINGS = 2.0
"""Largest difference, as root mean square along each axis, as a multiple of what comes of moving each new constant of
the result by its last place: rounding moved each by half of that at most, by 0.29 of it in the mean."""

STANDS_OUT = 8.0
"""The same of one element among those along an axis."""

DRAWS = 6
"""How often the constants are moved before a difference counts as unexplained. The first draw explains nearly all that
rounding made; single elements that hang on few constants need more."""

PRIOR = 8
"""Elements of the average of all that each mean along an axis counts in: few draws of few elements may all be small."""

NOISE = 16.0
"""Largest difference as a multiple of what float64's own rounding makes, in either program."""

NOISY = 0.1
"""Share of its scale by which a source may be off by its own rounding until an output says nothing: all of it has
cancelled, as in a layer norm of a row of equal elements. A difference of `NOISE` times as much is then none."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """Values of source and result, as they were evaluated, and the means to evaluate them once more.

    Attributes:
        exact: whether constants were computed in float64 as well (`Demanded`).
    """

    pair: Pair
    demand: Demand
    inputs: Mapping[str, Array]
    exact: bool = False

    def explains(self, want: Array, found: Array, negligible: float) -> bool:
        """Whether rounding, of constants or of float64, may have made the difference.

        Args:
            negligible: share of the scale of `want` that needs no explanation, of each element.
        """
        finite = np.isfinite(want) & np.isfinite(found)
        gaps = np.maximum(_distances(found, want) - negligible * scale(want[finite]), 0.0)
        squares = np.zeros(np.shape(want))
        own = None
        for draw, moved in enumerate(self._moved(want, found)):
            squares += moved
            if within(gaps, squares / (draw + 1), draw + 1):
                return True
            own = self._own(want, found) if own is None else own
            if within(gaps, squares / (draw + 1) + own, draw + 1):
                return True
        return False

    def _moved(self, want: Array, found: Array) -> Iterator[Array]:
        """Squares of what moving constants makes of each element, once for each draw: the result's own, and the numbers
        of the source that stand for others: what is the mean of 72 elements by 1/72 is so with its rounding alone.
        """
        source, result = self.pair
        known = set(topological([source]))
        new = frozenset(t for t in topological([result]) if t.op in ("constant", "full") and t not in known)
        numbers = frozenset(t for t in known if t.op == "full" and is_float(t.dtype) and _rounded(t))
        moves = [(result, found, new), (source, want, numbers)]
        for draw in range(DRAWS if new or numbers else 1):
            squares = np.zeros(np.shape(want))
            for term, value, terms in moves:
                if terms:
                    squares += np.square(_distances(self._run(term, self.inputs, moved=Moved(terms, draw)), value))
            yield squares

    def _own(self, want: Array, found: Array) -> Array:
        """Squares of what rounding in float64 may make of each element."""
        rounded = Moved(frozenset(), 0, computed=True)
        both = zip(self.pair, (want, found), strict=True)
        a, b = (NOISE * _distances(self._run(term, self.inputs, moved=rounded), value) for term, value in both)
        return a**2 + b**2

    def is_noise(self, want: Array, found: Array) -> bool:
        """Whether the source is `NOISY`, and a difference no larger than that may come from rounding."""
        if want.dtype.kind != "f" or not want.size:
            return False
        source, _ = self.pair
        rounded = Moved(frozenset(), 0, computed=True)
        others = [self._run(source, self.inputs, "native"), self._run(source, self.inputs, moved=rounded)]
        return is_noise(want, found, others)

    def _run(
        self, term: Term, inputs: Mapping[str, Array], precision: Precision = "float64", moved: Moved | None = None
    ) -> Array:
        (values,) = Demanded({term: self.demand}, self.exact).run(inputs, precision, moved)
        return values.astype(np.float64)


def is_noise(want: Array, found: Array, others: Sequence[Array]) -> bool:
    """Whether `want` is `NOISY`, by what it is with other rounding, and `found` differs by no more than that."""
    if not all(np.isfinite(y).all() for y in (want, found, *others)):
        return False
    noise = max(float(np.abs(y - want).max()) for y in others)
    return noise > NOISY * float(np.abs(want).max()) and float(np.abs(found - want).max()) <= NOISE * noise


def scale(values: Array) -> float:
    """The largest magnitude, at least the smallest normal number."""
    return max(float(np.abs(values).max(initial=0.0)), float(np.finfo(values.dtype).tiny))


def _rounded(number: Term) -> bool:
    """Whether a number is none of few digits, as a half is: it may stand for one that its type does not hold."""
    mantissa, _ = frexp(float(number.attr("value")))
    digits = (1 - int(log2(float(ml_dtypes.finfo(np_dtype(number.dtype)).eps)))) // 2
    return isfinite(mantissa) and not (mantissa * 2**digits).is_integer()


def within(gaps: Array, squares: Array, draws: int) -> bool:
    """Whether differences are no larger than mean squares of others allow: in all, along each axis, each by itself."""
    gaps, squares = np.square(np.atleast_1d(gaps)), np.atleast_1d(squares)
    whole = squares.mean()
    if gaps.mean() > ROUNDINGS**2 * whole:
        return False
    largest = np.zeros_like(squares)
    for axis, n in enumerate(squares.shape):
        expected = (n * draws * squares.mean(axis, keepdims=True) + PRIOR * whole) / (n * draws + PRIOR)
        if (gaps.mean(axis, keepdims=True) > ROUNDINGS**2 * expected).any():
            return False
        np.maximum(largest, expected, out=largest)
    return bool((gaps <= STANDS_OUT**2 * largest).all())


def _distances(a: Array, b: Array) -> Array:
    """Of each element; zero where either is not finite."""
    with np.errstate(all="ignore"):
        return np.nan_to_num(np.abs(a - b), nan=0.0, posinf=0.0)
