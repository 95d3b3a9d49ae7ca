"""A kind of cases for the tests of the search for faults: some are wrong, end their process, or hang."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

SECONDS, BYTES = 3.0, 1 << 34

Case = tuple[int, Sequence[int]]


def steps(seed: int) -> int:
    return 3


def case(seed: int, kept: Sequence[int] | None, models: Sequence[str]) -> Case:
    return seed, range(3) if kept is None else kept


def files(case: Case) -> dict[str, bytes]:
    return {".txt": str(case).encode()}


def judge(case: Case, tell: Callable[[str], None]) -> str:
    seed, kept = case
    if seed % 10 == 3 and 1 in kept:
        raise KeyError("again")
    if seed == 5:
        os.abort()
    if seed == 6:
        time.sleep(60)
    if seed == 7:
        tell("foreign")
        os.abort()
    return "right"
