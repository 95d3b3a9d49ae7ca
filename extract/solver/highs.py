"""HiGHS as the extractor uses it: a quiet, deterministic solver, and sparse rows to fill it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import highspy


def quiet_solver() -> highspy.Highs:
    """HiGHS without output, with one thread and one seed, so that its answers do not depend on timing."""
    import highspy

    solver = highspy.Highs()
    for option, value in {"output_flag": False, "threads": 1, "random_seed": 0}.items():
        solver.setOptionValue(option, value)
    return solver


@dataclass(frozen=True, slots=True)
class Arrays:
    """Rows as flat arrays: entry k is ``value[k]`` at ``(row[k], index[k])``; row r is within ``low[r] .. high[r]``.
    Entries are in order of their rows."""

    row: np.ndarray
    index: np.ndarray
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def __len__(self) -> int:
        return len(self.low)

    def fill(self, lp: highspy.HighsLp) -> None:
        """Make these the rows of an unsolved program."""
        import highspy

        lp.num_row_ = len(self)
        lp.row_lower_, lp.row_upper_ = self.low, self.high
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = self._starts(len(self) + 1)
        lp.a_matrix_.index_ = self.index
        lp.a_matrix_.value_ = self.value

    def append_to(self, solver: highspy.Highs) -> None:
        """Add these rows to those of a solver."""
        starts = self._starts(len(self))
        solver.addRows(len(self), self.low, self.high, len(self.index), starts, self.index, self.value)

    def _starts(self, rows: int) -> np.ndarray:
        return np.searchsorted(self.row, np.arange(rows)).astype(np.int32)

    def then(self, other: Arrays) -> Arrays:
        """These rows and, after them, those of another."""
        return Arrays(
            row=np.concatenate([self.row, other.row + len(self)]),
            index=np.concatenate([self.index, other.index]),
            value=np.concatenate([self.value, other.value]),
            low=np.concatenate([self.low, other.low]),
            high=np.concatenate([self.high, other.high]),
        )

    def select(self, keep: np.ndarray) -> Arrays:
        """The rows where ``keep`` is true."""
        inside = keep[self.row]
        place = np.cumsum(keep) - 1
        return Arrays(place[self.row[inside]], self.index[inside], self.value[inside], self.low[keep], self.high[keep])


class Rows:
    """A growing list of sparse rows."""

    def __init__(self) -> None:
        self._sizes: list[int] = []
        self._index: list[int] = []
        self._value: list[float] = []
        self._low: list[float] = []
        self._high: list[float] = []

    def __len__(self) -> int:
        return len(self._low)

    def add(self, index: Sequence[int], value: Sequence[float], low: float, high: float) -> None:
        """Append ``low <= sum of value * column index <= high``."""
        self._index += index
        self._value += value
        self._sizes.append(len(index))
        self._low.append(low)
        self._high.append(high)

    def arrays(self) -> Arrays:
        """These rows as arrays."""
        return Arrays(
            row=np.repeat(np.arange(len(self)), self._sizes),
            index=np.array(self._index, np.int32),
            value=np.array(self._value, float),
            low=np.array(self._low, float),
            high=np.array(self._high, float),
        )
