"""Random inputs of programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from eqsat.base.numerics import Array, is_float, np_dtype
from eqsat.program.ir import Program
from eqsat.program.term import Term

SEED = 0
"""Seed of the random inputs."""

DRAWN = 4_194_301
"""Most elements that are drawn for an input; a larger one repeats them. A prime, so that no dim divides it."""


def random_inputs(program: Program, points: int, seed: int) -> Iterator[dict[str, Array]]:
    """Inputs by name: normal values, and at every other point their magnitudes, for logarithms and roots."""
    for point in range(points):
        yield random_values(program.inputs, point, seed)


def random_values(inputs: Sequence[Term], point: int, seed: int) -> dict[str, Array]:
    """Values of input terms by name: normal ones, at odd points their magnitudes."""
    rng = np.random.default_rng([seed, point])
    values: dict[str, Array] = {}
    for term in inputs:
        shape, dtype = term.shape, np_dtype(term.dtype)
        if is_float(term.dtype):
            drawn = rng.standard_normal(min(term.size, DRAWN), np.float32 if dtype.itemsize < 8 else np.float64)
            drawn = np.abs(drawn) if point % 2 else drawn
        else:
            drawn = rng.integers(0, 2, min(term.size, DRAWN))
        values[term.attr("name")] = np.resize(drawn.astype(dtype), shape)
    return values


class Drawn:
    """Random values for the inputs of many parts: views of one array of normal values for each point.

    Inputs of one part take the array one after another. Those that find it used up, and integers, are drawn by
    themselves.

    Args:
        seed: of all values.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._normal: dict[tuple[int, bool], Array] = {}

    def values(self, inputs: Sequence[Term], point: int) -> dict[str, Array]:
        """Values of input terms by name: normal ones, at odd points their magnitudes. Do not write to them."""
        values: dict[str, Array] = {}
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
        return values | random_values(others, point, self.seed)

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
