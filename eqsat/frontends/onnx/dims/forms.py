"""Whole numbers as forms of named dims, fitted to their values at some sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement
from math import prod

import numpy as np

_DEGREE = 3
"""Most dims in a product."""

Product = tuple[str, ...]

Point = dict[str, int]
"""A size for every dim."""


@dataclass(frozen=True, slots=True)
class Form:
    """A sum of products of dims, each with a whole factor, and a constant: `2*batch*seq + 1`."""

    terms: tuple[tuple[int, Product], ...] = ()
    constant: int = 0

    def at(self, sizes: Mapping[str, int]) -> int:
        """The value at these sizes."""
        return self.constant + sum(factor * prod(sizes[d] for d in dims) for factor, dims in self.terms)

    @property
    def fixed(self) -> bool:
        """Whether it is the same at all sizes."""
        return not self.terms

    def __str__(self) -> str:
        shown = ["*".join([*([str(f)] if f != 1 else []), *dims]) for f, dims in self.terms]
        return " + ".join([*shown, *([str(self.constant)] if self.constant or not shown else [])])


def dim(name: str) -> Form:
    """The size of a dim itself."""
    return Form(((1, (name,)),))


def fit(values: Sequence[int], points: Sequence[Mapping[str, int]]) -> Form | None:
    """The simplest form with these values at these sizes; None if there is none.

    Tried are a constant, a product of dims times a factor plus a constant, and a sum of all dims with factors.
    """
    if len(set(values)) == 1:
        return Form((), values[0])
    names = list(points[0])
    for dims in _products(names):
        sizes = [prod(point[d] for d in dims) for point in points]
        j = next((j for j, size in enumerate(sizes) if size != sizes[0]), None)
        if j is None:
            continue
        factor = Fraction(values[j] - values[0], sizes[j] - sizes[0])
        if factor and factor.denominator == 1:
            found = Form(((int(factor), dims),), values[0] - int(factor) * sizes[0])
            if _holds(found, values, points):
                return found
    if len(names) < 2 or len(points) <= len(names):
        return None
    rows = np.array([[1, *(point[name] for name in names)] for point in points], np.float64)
    if np.linalg.matrix_rank(rows) < rows.shape[1]:
        return None
    solved = np.rint(np.linalg.lstsq(rows, np.array(values, np.float64))[0])
    terms = tuple((int(f), (name,)) for f, name in zip(solved[1:], names, strict=True) if f)
    found = Form(terms, int(solved[0]))
    return found if _holds(found, values, points) else None


def fit_all(rows: Sequence[Sequence[int]], points: Sequence[Mapping[str, int]]) -> tuple[Form, ...] | None:
    """A form for each place, of rows with the values of all places at one point each; None if a place has none."""
    forms = [fit(values, points) for values in zip(*rows, strict=True)]
    known = tuple(form for form in forms if form is not None)
    return known if len(known) == len(forms) else None


def _products(names: Sequence[str]) -> Iterator[Product]:
    for degree in range(1, _DEGREE + 1):
        yield from combinations_with_replacement(names, degree)


def _holds(form: Form, values: Sequence[int], points: Sequence[Mapping[str, int]]) -> bool:
    return all(form.at(point) == value for point, value in zip(points, values, strict=True))


def shown(point: Mapping[str, int]) -> str:
    """Sizes as the command line writes them: `batch=4, seq=120`."""
    return ", ".join(f"{name}={size}" for name, size in point.items())
