"""HiGHS as the extractor uses it: a quiet, deterministic solver, and sparse rows to fill it."""

from __future__ import annotations

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
    """Rows as flat arrays: entry k is ``value[k]`` at ``(row[k], index[k])``; row r is within ``low[r] .. high[r]``."""

    row: np.ndarray
    index: np.ndarray
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Rows:
    """A growing list of sparse rows."""

    def __init__(self) -> None:
        self.start: list[int] = [0]
        self.index: list[int] = []
        self.value: list[float] = []
        self.low: list[float] = []
        self.high: list[float] = []
        self._arrays: Arrays | None = None

    def __len__(self) -> int:
        return len(self.low)

    def add(self, index: list[int], value: list[float], low: float, high: float) -> None:
        """Append ``low <= sum of value * column index <= high``."""
        self.index += index
        self.value += value
        self.start.append(len(self.index))
        self.low.append(low)
        self.high.append(high)
        self._arrays = None

    def extend(self, other: Rows) -> None:
        """Append the rows of another."""
        base = len(self.index)
        self.start += [base + s for s in other.start[1:]]
        self.index += other.index
        self.value += other.value
        self.low += other.low
        self.high += other.high
        self._arrays = None

    def fill(self, lp: highspy.HighsLp) -> None:
        """Make these the rows of an unsolved program."""
        import highspy

        lp.num_row_ = len(self)
        lp.row_lower_, lp.row_upper_ = np.array(self.low), np.array(self.high)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.array(self.start, np.int32)
        lp.a_matrix_.index_ = np.array(self.index, np.int32)
        lp.a_matrix_.value_ = np.array(self.value)

    def append_to(self, solver: highspy.Highs) -> None:
        """Add these rows to those of a solver."""
        solver.addRows(
            len(self.low),
            np.array(self.low),
            np.array(self.high),
            len(self.index),
            np.array(self.start[:-1], np.int32),
            np.array(self.index, np.int32),
            np.array(self.value),
        )

    def select(self, keep: np.ndarray) -> Rows:
        """The rows where ``keep`` is true."""
        out = Rows()
        for r in np.flatnonzero(keep).tolist():
            a, b = self.start[r], self.start[r + 1]
            out.add(self.index[a:b], self.value[a:b], self.low[r], self.high[r])
        return out

    def arrays(self) -> Arrays:
        """These rows as arrays, cached until rows are added."""
        if self._arrays is None:
            self._arrays = Arrays(
                row=np.repeat(np.arange(len(self.low)), np.diff(self.start)),
                index=np.array(self.index, np.int64),
                value=np.array(self.value),
                low=np.array(self.low),
                high=np.array(self.high),
            )
        return self._arrays
