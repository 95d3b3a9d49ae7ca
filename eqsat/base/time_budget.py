"""The time of one optimisation: how much each stage may take, and where it went.

Later stages grow with the program and cannot be left out, so that what they are expected to take is kept for them: the
search ends early enough for its result to be built, checked and written within the limit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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

PER_LOWERING = {"plan": 15.0, "lift": 35.0, "report": 2.0}
"""Seconds that stages take for each second of lowering and partitioning what is not repeated of the program: all grow
with its nodes."""

MOST_KEPT = 0.35
"""Share of the limit that is kept for them at most."""

LEAST_SECONDS = 4.0
"""What a part of a program may take however small it is, while that is not more than half of the time left."""

CHECK_SHARE, CHECK_SECONDS = 0.15, 3.0
"""What the check may count on: a share of the limit, up to so many seconds."""

LATE_SHARE, LATE_SECONDS = 0.05, 0.25
"""How much later than its share work is given up that was told to hand over what it has."""


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

    def expect_after_search(self, distinct: float) -> None:
        """Keep what the stages after the search are expected to take, judged by how long lowering took.

        `distinct` is the share of the program's nodes that lie in different forms: what is equal is done once.
        """
        lowering = distinct * (self.spent.get("lower", 0.0) + self.spent.get("partition", 0.0))
        kept = min(lowering * sum(PER_LOWERING.values()), MOST_KEPT * self.limit)
        for stage, times in PER_LOWERING.items():
            self.expect(stage, kept * times / sum(PER_LOWERING.values()))
        self.expect("fold", self.spent.get("fold", 0.0))
        self.expect("check", min(CHECK_SHARE * self.limit, CHECK_SECONDS))

    def part(self, stage: str, size: int, waiting: Sequence[int]) -> float:
        """Seconds that one part may take in a stage: its share by size among the parts in `waiting`, itself included.

        A part whose share is too small to search it may take up to half of the time left: a few finished searches give
        more than many that hardly began.
        """
        left = self.left(stage)
        return max(left * size / max(1, sum(waiting)), min(LEAST_SECONDS, left / 2))

    def patience(self, seconds: float) -> float:
        """Seconds until work that may take `seconds`, and knows, is given up."""
        return seconds + LATE_SHARE * self.limit + LATE_SECONDS

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
