"""The time of one optimisation: how much each stage may take, and where it went.

Later stages grow with the program and cannot be left out, so that what they are expected to take is kept for them: the
search ends early enough for its result to be built, checked and written within the limit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from eqsat.base.arguments import seconds

STAGES = (
    "start",
    "read",
    "lower",
    "partition",
    "saturate",
    "candidates",
    "solve",
    "further",
    "plan",
    "lift",
    "fold",
    "check",
    "explain",
    "report",
    "write",
)
"""In order. `start` and `read` lie before `optimize`, `write` after it; the search is `saturate` to `solve`."""

Clock = Callable[[], float]


class TimeBudget:
    """A limit in seconds on all stages together.

    Attributes:
        limit: seconds from the beginning of the first stage.
        end: when they are over, by `clock`.
        expected: seconds that a stage is expected to take, kept for it by the stages before.
        spent: seconds that each stage took.
    """

    def __init__(self, limit: float, spent: Mapping[str, float] | None = None, clock: Clock = time.monotonic) -> None:
        """`spent` are seconds by stage that are gone already, and count."""
        self.clock = clock
        self.spent: dict[str, float] = dict(spent or {})
        self.limit = limit
        self.end = clock() + limit - sum(self.spent.values())
        self.expected: dict[str, float] = {}

    @staticmethod
    def of(limit: float | TimeBudget) -> TimeBudget:
        """A budget of so many seconds from now, or the one given.

        Raises:
            InputError: the limit is no number of seconds.
        """
        if isinstance(limit, TimeBudget):
            return limit
        return TimeBudget(seconds("time_limit", limit))

    def expect(self, stage: str, seconds: float) -> None:
        """Keep seconds for a stage that is still to come."""
        self.expected[stage] = seconds

    def left(self, stage: str) -> float:
        """Seconds that a stage may take, so that those after it have what they are expected to need; at least 0."""
        after = STAGES[STAGES.index(stage) + 1 :]
        return max(0.0, self.end - self.clock() - sum(self.expected.get(s, 0.0) for s in after))

    def add(self, stage: str, seconds: float) -> None:
        """Count seconds as those of a stage."""
        self.spent[stage] = self.spent.get(stage, 0.0) + seconds

    @contextmanager
    def stage(self, stage: str) -> Iterator[None]:
        """Count what is done inside as time of a stage; stages do not nest."""
        begun = self.clock()
        try:
            yield
        finally:
            self.add(stage, self.clock() - begun)

    def report(self) -> dict[str, float]:
        """Seconds by stage, in order."""
        return {stage: round(self.spent[stage], 3) for stage in STAGES if stage in self.spent}


def process_seconds() -> float:
    """Seconds since this process began; the CPU seconds it has used, where the system does not say."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        began = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # proc(5): starttime, in ticks since boot
        return time.clock_gettime(time.CLOCK_BOOTTIME) - began
    except (OSError, AttributeError, ValueError, IndexError):
        return time.process_time()
