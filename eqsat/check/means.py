"""The time and memory that a check may take. What certainly takes more is not begun."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from eqsat.check.demand import Demanded
from eqsat.errors import CheckTooLarge, CheckUndecided

Left = Callable[[], float]
"""Returns the seconds left."""

MOVING = 8_000_000_000
"""Operations per second at most outside of products: 2 ns for each element that is read, moved or computed. Of
products, processors differ too much: these are given up by the clock."""


def _unlimited() -> float:
    return math.inf


@dataclass(frozen=True, slots=True)
class Means:
    """The time and memory of a check.

    Attributes:
        memory: bytes that values may take.
        ends: seconds until the check is given up, however little is compared by then.
        stopped: whether Ctrl-C was pressed: then no time is left for more than the least.
    """

    memory: float = math.inf
    ends: Left = _unlimited
    stopped: Callable[[], bool] = lambda: False

    def suffice(self, demanded: Demanded, times: int = 1) -> bool:
        """Whether an evaluation may be begun, and as many others like it."""
        return demanded.peak_bytes() <= self.memory and demanded.moving * times <= MOVING * self.ends()

    def require(self, demanded: Demanded, what: str) -> None:
        """Raises CheckTooLarge or CheckUndecided if an evaluation may not be begun."""
        if demanded.peak_bytes() > self.memory:
            raise CheckTooLarge(f"{what} cannot be checked within the memory limit, {self.memory / 2**20:.0f} MiB left")
        if demanded.moving > MOVING * self.ends():
            raise CheckUndecided(f"{what} cannot be checked within the time limit")
