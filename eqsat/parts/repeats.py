"""Cells that repeat themselves in a row, as those of a stage of PNASNet do. Each reads the two before it, so that no
value separates them, and yet they are equal problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eqsat.program.core import Node

LEAST = 100
"""Nodes of a repeated part at least; PNASNet's cells have 113."""

LONGEST = 1_000
"""Nodes of one at most."""

CUT = 10
"""Nodes that a search may have more for one cut less, across which no kernel reaches: of twenty cells of 100 nodes one
is searched, of fifty two together."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """A part of an order that repeats itself at once.

    Attributes:
        start: place of its first node.
        period: nodes of each copy.
        copies: how many there are.
    """

    start: int
    period: int
    copies: int

    @property
    def stop(self) -> int:
        """The place after its last node."""
        return self.start + self.period * self.copies


@dataclass(frozen=True, slots=True)
class _Run:
    """Nodes from `start` to `stop`, each of which is like the one a period before it, if that is one of them."""

    start: int
    stop: int
    period: int

    @property
    def copies(self) -> int:
        return (self.stop - self.start) // self.period

    @property
    def gain(self) -> int:
        """Nodes that need not be searched, less what the cuts cost."""
        return (self.copies - 1) * self.period - CUT * self.copies


def repeats(order: Sequence[Node], passing: Sequence[int]) -> list[Repeat]:
    """The parts that repeat themselves, in order. They do not overlap: what gains most goes first.

    Args:
        order: nodes, operands first, with the nodes of each cell in a row.
        passing: bytes that pass from each node and those before it to those after it. Copies end where this is least;
            of equals at the latest.
    """
    found: list[Repeat] = []
    for run in sorted(_runs(_looks(order)), key=lambda run: (-run.gain, run.period, run.start)):
        if all(run.stop <= other.start or other.stop <= run.start for other in found):
            found.append(_placed(run, passing))
    return sorted(found, key=lambda repeat: repeat.start)


def _looks(order: Sequence[Node]) -> np.ndarray:
    """Numbers that are equal for nodes with the same operator on operands of the same sizes, made in the same way."""
    known: dict[object, int] = {}
    rows = ((n.op, n.attrs, n.dtype, *((a.op, a.size, a.dtype) for a in n.args)) for n in order)
    return np.array([known.setdefault(row, len(known)) for row in rows])


def _runs(looks: np.ndarray) -> list[_Run]:
    """All runs of two copies or more, for each period."""
    found = []
    for period in range(LEAST, min(LONGEST, len(looks) // 2) + 1):
        same = np.concatenate(([False], looks[:-period] == looks[period:], [False]))
        starts, stops = np.flatnonzero(same[1:] != same[:-1]).reshape(-1, 2).T
        long = stops - starts >= period  # most are equal by chance, and short
        for start, stop in zip(starts[long].tolist(), stops[long].tolist(), strict=True):
            found.append(_Run(start, stop + period, period))
    return found


def _placed(run: _Run, passing: Sequence[int]) -> Repeat:
    """The copies of a run, which may begin a few nodes later: where the fewest bytes pass between them."""

    def crossing(start: int) -> int:
        return sum(passing[start + k * run.period - 1] for k in range(run.copies + 1) if start + k)

    spare = run.stop - run.start - run.period * run.copies
    start = min(reversed(range(run.start, run.start + spare + 1)), key=crossing)
    return Repeat(start, run.period, run.copies)
