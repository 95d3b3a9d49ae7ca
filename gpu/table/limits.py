"""Limits of kernels that decide how they are launched, and so what they cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Operands = Literal["float32", "float16", "bfloat16"]
OPERANDS: tuple[Operands, ...] = get_args(Operands)
"""Element types that every variant is compiled and listed for. Kernels of other types are made in the same way."""

THREADS = 256
"""Threads of a workgroup: of pointwise kernels, of row kernels unless one row takes more, of each member of a group."""

MOST_THREADS = 1024
"""Threads of a workgroup of a row kernel at most, on every target."""

KEPT_REGISTERS = 32
"""Values of its rows that a thread of a row kernel keeps between passes."""

ATOMIC_DTYPES = frozenset({"float32", "int32"})
"""Types whose sum, max and min are one hardware instruction on every target. Others are reduced by a second launch."""


@dataclass(frozen=True, slots=True)
class Slicing:
    """How long sums are cut if there are fewer workgroups than compute units.

    Attributes:
        shortest: fewest terms of a slice; in shorter ones, start and end cost more than the slice gains.
        most: most slices of a sum.
    """

    shortest: int
    most: int = 64

    def slices(self, units: int, groups: int, terms: int) -> int:
        """Into how many slices to cut sums of so many terms that `groups` workgroups would compute whole."""
        return max(1, min(units // groups, terms // self.shortest, self.most))


K_SLICES = Slicing(256)
"""Of the k of a product (split-K)."""

STREAM_SLICES = Slicing(256)
"""Of the streamed axis of a kernel that walks along it."""

ROW_SLICES = Slicing(4096)
"""Of a reduced row."""
