"""The work that an explanation may take, counted, so that its steps do not depend on what else the machine does."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf

A_SECOND = 15_000
"""Work in about a second on a core: rules tried at an e-node take 0.05 to 0.1 ms each."""

HOST_RULE = 10
"""Work of looking for a host rule in a whole e-graph: about a millisecond."""

STEP = 100
"""Work of writing a step: 3 to 10 ms."""


class Effort:
    """The work that is left; none once it is late."""

    def __init__(self, work: float = inf, late: Callable[[], bool] = lambda: False) -> None:
        self._left, self._late = work, late

    @staticmethod
    def within(seconds: float) -> Effort:
        """As much work as is done in so many seconds from now."""
        ends = time.monotonic() + seconds
        return Effort(late=lambda: time.monotonic() > ends)

    def spend(self, work: int) -> None:
        """Count work that is done now."""
        self._left -= work

    def over(self) -> bool:
        """Whether no work is left, or it is late."""
        return self._left <= 0 or self._late()
