"""The time budget of one optimisation: how long each stage may take, and how long it took.

The stages after the search cannot be skipped, and take longer for larger programs. Their expected time is reserved, so
that the search ends early enough for its result to be built, checked and written within the limit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from eqsat.base.arguments import LONGEST, seconds

STAGES = (
    "start",
    "rules",
    "read",
    "lower",
    "partition",
    "saturate",
    "candidates",
    "solve",
    "join",
    "near",
    "further",
    "plan",
    "lift",
    "fold",
    "replay",
    "check",
    "explain",
    "report",
    "measure",
    "error",
    "write",
)
"""In order. `start` to `read` come before `optimize`, `write` after it; the search is `saturate` to `join`."""

Clock = Callable[[], float]


class TimeBudget:
    """A limit in seconds on all stages together.

    Attributes:
        limit: seconds from the beginning of the first stage.
        end: when the limit is reached, by `clock`.
        expected: seconds that a stage is expected to take, reserved for it while earlier stages run.
        spent: seconds that each stage took.
    """

    def __init__(self, limit: float, spent: Mapping[str, float] | None = None, clock: Clock = time.monotonic) -> None:
        """`spent` holds the seconds by stage that are already used; they count toward the limit."""
        self.clock = clock
        self.spent: dict[str, float] = dict(spent or {})
        self.limit = min(limit, LONGEST)
        self.end = clock() + self.limit - sum(self.spent.values())
        self.expected: dict[str, float] = {}

    @staticmethod
    def of(limit: float | TimeBudget) -> TimeBudget:
        """A budget of this many seconds from now, or the given budget itself.

        Raises:
            InputError: the limit is not a number of seconds.
        """
        if isinstance(limit, TimeBudget):
            return limit
        return TimeBudget(seconds("time_limit", limit))

    def expect(self, stage: str, seconds: float) -> None:
        """Reserve seconds for a later stage."""
        self.expected[stage] = seconds

    def left(self, stage: str, expected: Mapping[str, float] = {}) -> float:
        """Seconds that a stage may take without using the time reserved for later stages, or `expected` of some of
        them instead; at least 0."""
        return max(0.0, self.end - self.clock() - self.reserved(stage, expected))

    def reserved(self, stage: str, expected: Mapping[str, float] = {}) -> float:
        """Seconds that are reserved for the stages after this one, with those `expected` of some of them instead."""
        return sum(expected.get(s, self.expected.get(s, 0.0)) for s in STAGES[STAGES.index(stage) + 1 :])

    def finish(self) -> None:
        """Leave no time for any stage, as after Ctrl-C."""
        self.end = min(self.end, self.clock())

    def add(self, stage: str, seconds: float) -> None:
        """Add seconds to the time of a stage."""
        self.spent[stage] = self.spent.get(stage, 0.0) + seconds

    @contextmanager
    def stage(self, stage: str) -> Iterator[None]:
        """Count the time inside the block as time of a stage; stages do not nest."""
        begun = self.clock()
        try:
            yield
        finally:
            self.add(stage, self.clock() - begun)

    def report(self) -> dict[str, float]:
        """Seconds by stage, in order."""
        return {stage: round(self.spent[stage], 3) for stage in STAGES if stage in self.spent}


def process_seconds() -> float:
    """Seconds since this process began, or the CPU seconds it has used if the system does not report that."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        began = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # proc(5): starttime, in ticks since boot
        return time.clock_gettime(time.CLOCK_BOOTTIME) - began
    except (OSError, AttributeError, ValueError, IndexError):
        return time.process_time()
