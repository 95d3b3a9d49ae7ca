"""Whether rounding explains a difference between source and result: it is compared with the effect of more rounding.

This is Monte Carlo arithmetic (D. S. Parker, 1997) on constants: each constant that rewriting made is moved by one last
place, up or down at random, and the effect on every element is compared with the difference there: in the mean of all
elements, along each axis, and one by one. A wrong weight shows in a column and a wrong row of an index map in a row,
even if neither exceeds the largest rounding effect elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import frexp, isfinite, log2

import ml_dtypes
import numpy as np

from eqsat.base.compare import scale
from eqsat.base.numerics import Array, Precision, is_float, np_dtype
from eqsat.check.demand import Demanded, Inputs, Moved
from eqsat.check.wanted import Demand
from eqsat.program.term import Term, topological, unviewed

Pair = tuple[Term, Term]
"""A value of the source and a value of the result that should be equal."""

ROUNDINGS = 2.0
"""Largest root mean square difference along each axis, as a multiple of the effect of moving each new constant of the
result by one last place. Rounding moved each by at most half of that, and by 0.29 of it in the mean."""

STANDS_OUT = 8.0
"""The same limit for a single element along an axis."""

DRAWS = 6
"""How often the constants are moved before a difference counts as unexplained. The first draw explains nearly all
rounding; single elements that depend on few constants need more draws."""

PRIOR = 8
"""Weight, in elements, of the overall average in each mean along an axis: a few draws of a few elements may all be
small."""

NOISE = 16.0
"""Largest difference, as a multiple of the effect of float64's own rounding in either program."""

NOISY = 0.1
"""Rounding error of the source, as a share of its scale, above which an output says nothing: its value has cancelled
entirely, as in a layer norm of a row of equal elements. A difference up to `NOISE` times that error is then ignored."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """The evaluated values of source and result, and the means to evaluate them again.

    Attributes:
        exact: whether constants were computed in float64 as well (`Demanded`).
    """

    pair: Pair
    demand: Demand
    inputs: Inputs
    exact: bool = False

    def explains(self, want: Array, found: Array, negligible: float) -> bool:
        """Whether rounding of constants or in float64 may have caused the difference.

        Args:
            negligible: difference of each element that needs no explanation, as a share of the scale of `want`.
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
        """The squared effect on each element of moving constants, for each draw. This moves the result's new constants,
        and rounded numbers of the source: a product with 1/72 is a mean of 72 elements only up to the rounding of 1/72.
        """
        source, result = self.pair
        known = set(topological([source]))
        kept = known.union(_whole_exponents(result))
        new = frozenset(t for t in topological([result]) if t.op in ("constant", "full") and t not in kept)
        numbers = frozenset(t for t in known if t.op == "full" and is_float(t.dtype) and _rounded(t))
        moves = [(result, found, new), (source, want, numbers)]
        for draw in range(DRAWS if new or numbers else 1):
            squares = np.zeros(np.shape(want))
            for term, value, terms in moves:
                if terms:
                    squares += np.square(_distances(self._run(term, self.inputs, moved=Moved(terms, draw)), value))
            yield squares

    def _own(self, want: Array, found: Array) -> Array:
        """The squared effect of float64 rounding on each element."""
        rounded = Moved(frozenset(), 0, computed=True)
        both = zip(self.pair, (want, found), strict=True)
        a, b = (NOISE * _distances(self._run(term, self.inputs, moved=rounded), value) for term, value in both)
        return a**2 + b**2

    def is_noise(self, want: Array, found: Array) -> bool:
        """Whether the source is `NOISY`, and the difference is small enough to come from its rounding."""
        if want.dtype.kind != "f" or not want.size:
            return False
        source, _ = self.pair
        rounded = Moved(frozenset(), 0, computed=True)
        others = [self._run(source, self.inputs, "native"), self._run(source, self.inputs, moved=rounded)]
        return is_noise(want, found, others)

    def _run(self, term: Term, inputs: Inputs, precision: Precision = "float64", moved: Moved | None = None) -> Array:
        (values,) = Demanded({term: self.demand}, self.exact).run(inputs, precision, moved)
        return values.astype(np.float64)


def is_noise(want: Array, found: Array, others: Sequence[Array]) -> bool:
    """Whether `want` is `NOISY`, judged by `others`, its values with other rounding, and `found` differs no more."""
    if not all(np.isfinite(y).all() for y in (want, found, *others)):
        return False
    noise = max(float(np.abs(y - want).max()) for y in others)
    return noise > NOISY * float(np.abs(want).max()) and float(np.abs(found - want).max()) <= NOISE * noise


def _rounded(number: Term) -> bool:
    """Whether a number may be rounded. Numbers with few digits, such as a half, are taken as exact."""
    mantissa, _ = frexp(float(number.attr("value")))
    digits = (1 - int(log2(float(ml_dtypes.finfo(np_dtype(number.dtype)).eps)))) // 2
    return isfinite(mantissa) and not (mantissa * 2**digits).is_integer()


def _whole_exponents(root: Term) -> set[Term]:
    """Exponents that are whole numbers, which are exact: moved, they would make NaN of negative numbers."""
    exponents = {unviewed(term.args[1]) for term in topological([root]) if term.op == "pow"}
    values = {term: _value(term) for term in exponents if term.op in ("constant", "full")}
    return {term for term, value in values.items() if (value == np.rint(value)).all()}


def _value(term: Term) -> Array:
    value = term.attr("value")
    return np.asarray(value if term.op == "full" else value.array, np.float64)


def within(gaps: Array, squares: Array, draws: int) -> bool:
    """Whether differences are within what the mean squares allow: overall, along each axis, and for each element."""
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
    """The distance of each element; zero where either is not finite."""
    with np.errstate(all="ignore"):
        return np.nan_to_num(np.abs(a - b), nan=0.0, posinf=0.0)
