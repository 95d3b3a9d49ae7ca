"""Random inputs of programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from eqsat.base.numerics import Array, is_float, np_dtype
from eqsat.check.wanted import Repeated
from eqsat.program.ir import Program
from eqsat.program.term import Term

SEED = 0
"""Seed of the random inputs."""

DRAWN = 262_139
"""Most elements that are drawn for an input; a larger one repeats them. A prime, so that no dim divides it. To draw as
many takes a few milliseconds, and a part compares samples of so large an input."""

KEPT = 16
"""The values of so many inputs of a part are kept for other parts, for each type and point: 1 MB each in float32."""


def random_inputs(program: Program, points: int, seed: int) -> Iterator[dict[str, Array]]:
    """Inputs by name: normal values, and at every other point their magnitudes, for logarithms and roots."""
    for point in range(points):
        yield random_values(program.inputs, point, seed)


def random_values(inputs: Sequence[Term], point: int, seed: int) -> dict[str, Array]:
    """Values of input terms by name: normal ones, at odd points their magnitudes."""
    rng = np.random.default_rng([seed, point])
    return {term.attr("name"): np.resize(_drawn(rng, term, term.size, point), term.shape) for term in inputs}


def _drawn(rng: np.random.Generator, term: Term, size: int, point: int) -> Array:
    """So many random values for an input, at most `DRAWN`: normal ones, at odd points their magnitudes, or bits."""
    dtype, size = np_dtype(term.dtype), min(size, DRAWN)
    if not is_float(term.dtype):
        return rng.integers(0, 2, size).astype(dtype)
    drawn = rng.standard_normal(size, np.float32 if dtype.itemsize < 8 else np.float64)
    return (np.abs(drawn) if point % 2 else drawn).astype(dtype, copy=False)


class Drawn:
    """Random values for the inputs of many parts: views of one array of normal values for each point.

    Inputs of one part take the array one after another. Those that find it used up, and integers, are drawn by
    themselves; of these, only the elements that are wanted are made. The first of them have the same values in every
    part, which are drawn once.

    Args:
        seed: of all values.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._normal: dict[tuple[int, bool], Array] = {}
        self._further: dict[tuple[int, int, str], Array] = {}

    def values(self, inputs: Sequence[Term], point: int) -> dict[str, Array | Repeated]:
        """Values of input terms by name: normal ones, at odd points their magnitudes. Do not write to them."""
        values: dict[str, Array | Repeated] = {}
        others: list[Term] = []
        taken = 0
        for term in inputs:
            dtype, end = np_dtype(term.dtype), taken + term.size
            if is_float(term.dtype) and end <= DRAWN:
                own = self._first(end, point, dtype.itemsize == 8)[taken:].reshape(term.shape)
                values[term.attr("name")] = own.astype(dtype, copy=False)
                taken = end
            else:
                others.append(term)
        for place, term in enumerate(others):
            values[term.attr("name")] = Repeated(self._other(place, term, point), term.shape)
        return values

    def _other(self, place: int, term: Term, point: int) -> Array:
        """The values of the input in this place among the inputs that are drawn by themselves."""
        key = point, place, term.dtype
        known = self._further.get(key)
        if known is None or len(known) < min(term.size, DRAWN):
            known = _drawn(np.random.default_rng([self.seed, point, 2 + place]), term, term.size, point)
            if place < KEPT:
                self._further[key] = known
        return known[: term.size]

    def _first(self, count: int, point: int, double: bool) -> Array:
        """The first normal values of a point: the same however many are asked for at a time."""
        known = self._normal.get((point, double))
        if known is None or len(known) < count:
            rng = np.random.default_rng([self.seed, point, 1])  # not the stream of `random_values`
            size = min(DRAWN, max(count, 2 * len(known) if known is not None else 0))
            known = rng.standard_normal(size, np.float64 if double else np.float32)
            if point % 2:
                np.abs(known, out=known)
            known.flags.writeable = False
            self._normal[point, double] = known
        return known[:count]
