"""Times of several contenders in turns, and whether one is faster than another beyond noise.

Other work on a machine slows all contenders of a round alike, so contenders are compared round by round. The interval
of their ratio is that of the sign test: it assumes nothing of the noise but that rounds do not depend on each other.
Work on a single thread is timed by that thread's processor time, which leaves out the time that others have.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

LEAST_SECONDS = 2e-2
"""Shortest timed interval: contenders that take less run several times in it. The first runs find the caches full of
another contender: a model of 0.15 ms took 0.20 ms in intervals of 2 ms."""


CONFIDENCE = 0.99
"""That the interval of a ratio holds its median."""

LEAST_ROUNDS = 8
"""The fewest rounds with an interval: that eight of eight agree by chance has a probability of 2 / 2^8 < 1 %."""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of one run of a contender, round by round."""

    seconds: Sequence[float]

    @property
    def ms(self) -> float:
        """The 10th percentile in milliseconds: other work on the machine only adds time."""
        ordered = sorted(self.seconds)
        return ordered[len(ordered) // 10] * 1e3

    @property
    def spread(self) -> float:
        """The distance of the quartiles, as a share of the median."""
        if len(self.seconds) < 2:
            return 0.0
        low, middle, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return (high - low) / middle


class Ratio(NamedTuple):
    """How many times as fast a contender is as another: the median over rounds, and an interval that holds it."""

    median: float
    low: float
    high: float


def in_turns(
    contenders: Sequence[Callable[[], object]],
    threads: int,
    rounds: int,
    seconds: float,
    left: Callable[[], float],
) -> list[Times]:
    """The times of contenders that take turns, in alternating order.

    Args:
        contenders: each has run once before, so that its memory is allocated.
        threads: on which they work; if it is one, it is the caller's.
        rounds, seconds: most rounds, and seconds after which none is begun.
        left: seconds left for them all; none is begun that would take longer. `LEAST_ROUNDS` are made in any case.

    Returns:
        The times of the first contenders, as many as there is time for; of none if two are too many.
    """
    clock = time.thread_time if threads == 1 else time.perf_counter
    once = [max(1e-9, _timed(run, 1, time.perf_counter)) for run in contenders]
    repeats = [max(1, math.ceil(LEAST_SECONDS / one)) for one in once]
    each = [n * one for n, one in zip(repeats, once, strict=True)]
    while each and LEAST_ROUNDS * sum(each) > left():
        each.pop()
    if len(each) < min(2, len(contenders)):
        return []
    samples: list[list[float]] = [[] for _ in each]
    begun = time.perf_counter()
    for done in range(rounds):
        if done >= LEAST_ROUNDS and (time.perf_counter() - begun > seconds or sum(each) > left()):
            break
        for i in range(len(each)) if done % 2 == 0 else reversed(range(len(each))):
            samples[i].append(_timed(contenders[i], repeats[i], clock))
    return [Times(found) for found in samples]


def _timed(run: Callable[[], object], repeats: int, clock: Callable[[], float]) -> float:
    begun = clock()
    for _ in range(repeats):
        run()
    return (clock() - begun) / repeats


def ratio(before: Times, after: Times) -> Ratio:
    """How many times as fast `after` is as `before`, from the pairs of each round."""
    pairs = sorted(b / a for b, a in zip(before.seconds, after.seconds, strict=True))
    outside = _outside(len(pairs))
    low, high = (pairs[outside - 1], pairs[-outside]) if outside else (0.0, math.inf)
    return Ratio(statistics.median(pairs), low, high)


def _outside(n: int) -> int:
    """The place, from either end of `n` sorted pairs, where the interval of the median ends; 0 if they are too few.

    The median lies beyond the k-th of n pairs with the probability that fewer than k of n fair coins show heads.
    """
    beyond, k = 0.0, 0
    while 2 * (beyond := beyond + math.comb(n, k) / 2**n) <= 1 - CONFIDENCE:
        k += 1
    return k
