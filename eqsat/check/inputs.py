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
