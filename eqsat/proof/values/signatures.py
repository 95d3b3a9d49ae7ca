"""What values are on random inputs, in a few numbers: equal values have close signatures, and few others do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

import numpy as np

from eqsat.base.numerics import Array

_MOST_ELEMENTS = 1 << 12
"""Elements of a value that its signature reads, evenly spaced: what is alike is compared in full, or proved."""

_BUCKETS = 50.0
"""Buckets of an index for a scale that grows by a factor of e: wide against any difference of close signatures."""

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Signature:
    """Of a value with `size` elements of type `dtype`: its scale on each input, and at that scale two sums of its
    elements with signs that depend on their places."""

    size: int
    dtype: str
    scales: tuple[float, ...]
    sums: tuple[float, ...]

    def close(self, other: Signature, tolerance: float) -> bool:
        """Whether the values may be equal, up to a share of their scale."""
        return self.distance(other) <= tolerance

    def distance(self, other: Signature) -> float:
        """How far the values are apart at least, as a share of their scale; infinite for other sizes or types."""
        if (self.size, self.dtype) != (other.size, other.dtype):
            return math.inf
        scales = (abs(x - y) / (max(x, y) or 1.0) for x, y in zip(self.scales, other.scales, strict=True))
        return max(*scales, *(abs(x - y) for x, y in zip(self.sums, other.sums, strict=True)))


def signature(dtype: str, values: Sequence[Array]) -> Signature:
    """The signature of a value: an array for each input.

    Large elements count by their logarithm: beside the numbers that stand for minus infinity in a mask, the scores that
    it is added to would not be seen.
    """
    scales: list[float] = []
    sums: list[float] = []
    for value in values:
        flat = value.reshape(-1)
        flat = flat[:: max(1, flat.size // _MOST_ELEMENTS)].astype(np.float64)
        flat = np.arcsinh(np.clip(np.nan_to_num(flat), -1e100, 1e100))
        squares, *signed = np.einsum("i,ji->j", flat, np.stack([flat, *_signs(flat.size)]))  # without threads of BLAS
        scale = math.sqrt(float(squares) / flat.size) if flat.size else 0.0
        scales.append(scale)
        sums += [float(part) / (scale * math.sqrt(flat.size)) if scale else 0.0 for part in signed]
    return Signature(values[0].size, dtype, tuple(scales), tuple(sums))


@lru_cache(maxsize=64)
def _signs(size: int) -> Array:
    return np.random.default_rng(0).integers(0, 2, (2, size)) * 2.0 - 1.0


class Index(Generic[K]):
    """Finds what has a signature close to a given one, in the order in which it was added."""

    def __init__(self, signatures: Mapping[K, Signature], tolerance: float) -> None:
        self._tolerance = tolerance
        self._buckets: dict[tuple[int, str, int], list[tuple[K, Signature]]] = {}
        for key, of in signatures.items():
            self._buckets.setdefault((of.size, of.dtype, _bucket(of)), []).append((key, of))

    def close_to(self, wanted: Signature) -> Iterator[K]:
        for bucket in (0, -1, 1):
            for key, of in self._buckets.get((wanted.size, wanted.dtype, _bucket(wanted) + bucket), ()):
                if of.close(wanted, self._tolerance):
                    yield key


def _bucket(of: Signature) -> int:
    return round(_BUCKETS * math.log(max(of.scales[0], 1e-300)))
