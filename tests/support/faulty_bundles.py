"""Eight cases of `faulty_kind` at a time. Two of the fourth bundle are wrong together, and right alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from support import faulty_kind

SECONDS, BYTES, SIZE = 8.0, faulty_kind.BYTES, 8


def steps(seed: int) -> int:
    return SIZE


def parts(seed: int) -> list[tuple[str, int]]:
    return [(faulty_kind.__name__, SIZE * seed + i) for i in range(SIZE)]


def case(seed: int, kept: Sequence[int] | None, models: Sequence[str]) -> list[int]:
    return [SIZE * seed + i for i in (range(SIZE) if kept is None else kept)]


def files(case: list[int]) -> dict[str, bytes]:
    return {".txt": str(case).encode()}


def judge(case: list[int], tell: Callable[[str], None]) -> Counter[str]:
    if 25 in case and 30 in case:
        raise ValueError("together")
    return Counter(faulty_kind.judge(faulty_kind.case(seed, None, ()), tell) for seed in case)
