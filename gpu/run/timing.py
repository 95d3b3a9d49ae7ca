"""Times of a plan's launches on the GPU, by events on its stream."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from eqsat.base.numerics import random_array
from eqsat.errors import InputError
from eqsat.gpu.code.errors import DeviceFailed
from eqsat.gpu.run.cupy_runtime import GpuPlan

WARM_UP = 3

_LEAST_US = 200.0
"""Shortest timed stretch: events resolve half a microsecond."""

_MOST_TIMES = 64

_MOST_RANDOM = 1 << 20
"""Random elements drawn for an array."""

Progress = Callable[[str, float], None]


class Timed:
    """A plan's launches over fixed arrays, ready to be timed again and again.

    They are replayed as a graph, since short kernels run faster than Python can launch them; where the driver cannot
    record one, or an operator runs on the host, they are launched one by one. Runs take the given arrays in turns: with
    one set of them, small ones come from the caches, as they do for kernels in a row.
    """

    def __init__(self, plan: GpuPlan, taken: Mapping[str, Any], others: Sequence[Mapping[str, Any]] = ()) -> None:
        self._plan = plan
        with plan.guarded():
            for _ in range(WARM_UP):
                plan.run(taken)
            once = elapsed_us(plan.cupy, lambda: plan.run(taken))
        self.times = max(1, min(_MOST_TIMES, int(_LEAST_US / max(once, 1e-3))))
        self.times = max(self.times, 1 + len(others))
        self._run = self._repeated([taken, *others])
        self.sample()  # the first launch of a graph uploads it

    def _repeated(self, sets: list[Mapping[str, Any]]) -> Callable[[], object]:
        plan, times = self._plan, self.times
        try:
            with plan.guarded():
                return plan.record(sets[0], times, sets[1:]).launch
        except (DeviceFailed, InputError):
            return lambda: [plan.run(sets[i % len(sets)]) for i in range(times)]

    def sample(self) -> float:
        """Microseconds of one run."""
        with self._plan.guarded():
            return elapsed_us(self._plan.cupy, self._run) / self.times


def random_arrays(plan: GpuPlan) -> dict[str, Any]:
    """Arrays on the GPU for the inputs of a plan, by name: random numbers, long ones repeated."""
    rng = np.random.default_rng(0)
    wanted = [b for b in plan.launches.buffers.values() if b.kind == "input"]
    with plan.guarded():
        made = {b.name: np.resize(random_array((min(b.size, _MOST_RANDOM),), b.dtype, rng), b.shape) for b in wanted}
        return plan.taken(made)


def plan_times(plans: Mapping[str, GpuPlan], rounds: int, progress: Progress | None = None) -> dict[str, float]:
    """Median microseconds of plans, in turns, each over random arrays of its own.

    Raises:
        InputError: they do not fit into the memory of the GPU together.
        DeviceFailed: the driver reported an error.
    """
    timed: dict[str, Callable[[], float]] = {}
    for i, (name, plan) in enumerate(plans.items()):
        if progress:
            progress(name, i / len(plans))
        timed[name] = Timed(plan, random_arrays(plan)).sample
    return medians(timed, rounds)


def elapsed_us(cupy: Any, run: Callable[[], object]) -> float:
    """Microseconds between events around `run` on the current stream."""
    start, end = cupy.cuda.Event(), cupy.cuda.Event()
    start.record()
    run()
    end.record()
    end.synchronize()
    return float(cupy.cuda.get_elapsed_time(start, end)) * 1e3


def sampled(timed: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """The samples of each over so many rounds, in which all take turns: a slow moment slows all of them."""
    samples: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(rounds):
        for name, sample in timed.items():
            samples[name].append(sample())
    return samples


def medians(timed: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The medians of `sampled`."""
    return {name: statistics.median(found) for name, found in sampled(timed, rounds).items()}
