"""Tuning: the most promising variants of each kernel of a plan are checked and measured on the GPU of this machine.

The cost model proposes variants (`Chooser.proposals`). A variant with wrong results is not measured. Results are stored
kernel by kernel, so that nothing is lost when the time is over or after Ctrl-C.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from eqsat.base.compare import relative_error
from eqsat.base.numerics import is_float, np_dtype, random_array
from eqsat.errors import EqsatError
from eqsat.extract.device.table import DeviceLike
from eqsat.extract.plan.plan import Kernel, Plan, Result
from eqsat.gpu.families.base import Choice
from eqsat.gpu.launch.grouping import groups
from eqsat.gpu.run.choices import Record
from eqsat.gpu.run.cupy_runtime import GpuPlan, Machine, chooser, this_machine
from eqsat.gpu.run.timing import Timed
from eqsat.layout.arithmetic import identity
from eqsat.program.core import Node, evaluate, topological

Array = np.ndarray[Any, Any]
Clock = Callable[[], float]
Progress = Callable[[str, float], None]
Turn = Callable[[], AbstractContextManager[Any]]

TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-3, "bfloat16": 2e-2}
"""Largest error of a variant, as a share of its results' scale, by the narrowest float of the kernel."""

ROUNDS = 7
"""Samples of each variant, taken in turns; the median counts."""

GAIN = 0.98
"""A variant replaces the cost model's choice if it takes at most this share of its time: less is noise."""

REFERENCE_FLOPS = 4_000_000_000
"""Most work of a kernel whose expected results are computed by NumPy, in float64. Beyond that, the untuned variant
gives them, because it is the one that runs without tuning."""


@dataclass(frozen=True)
class TunedKernel:
    """One distinct kernel of a plan, launched `count` times; `record` is None where there was no time for it."""

    kernel: Kernel
    count: int
    record: Record | None


@dataclass(frozen=True)
class Tuning:
    """The results of tuning a plan.

    Attributes:
        machine: the GPU and its versions.
        kernels: the kernels with variants, the slowest first.
        stop: 'done', 'time' or 'interrupted'.
    """

    machine: str
    kernels: tuple[TunedKernel, ...]
    stop: str


def tune(
    plan: Plan,
    device: DeviceLike = "auto",
    seconds: float = 10.0,
    *,
    clock: Clock = time.monotonic,
    progress: Progress | None = None,
    alone: Turn = nullcontext,
) -> Tuning:
    """Measure variants of a plan's kernels and remember the best; `GpuPlan` then uses them.

    Kernels share the time in proportion to their predicted times. Kernels that were completely tuned before keep their
    result and take no time; small products that share a launch are not tuned. A compilation that has begun when the
    time is over may finish.

    Args:
        seconds: when to stop.
        clock: seconds, for tests.
        alone: a context in which nothing else uses the GPU; times are taken there.

    Raises:
        InputError: no CuPy, no GPU, or a row of another instruction set.
    """
    session = _Session(plan, this_machine(device), clock, clock() + seconds, alone)
    stop = session.run(progress or (lambda stage, fraction: None))
    return Tuning(session.machine.name, session.found(), stop)


class _Session:
    """The kernels of a plan, the slowest first, until a deadline."""

    def __init__(self, plan: Plan, machine: Machine, clock: Clock, deadline: float, measuring: Turn) -> None:
        self.machine, self.exact, self.clock, self.deadline = machine, plan.exact, clock, deadline
        self.measuring = measuring
        self.chooser = chooser(machine, plan.exact)
        self.counts = Counter(k.body for k in plan.kernels)
        alone = [plan.kernels[group[0]] for group in groups(plan) if len(group) == 1]
        distinct = {k.body: k for k in alone if _has_variants(k)}
        self.order = sorted(distinct.values(), key=lambda k: -self._weight(k))
        self.records = {k.body: self.chooser.record(k) for k in self.order}

    def run(self, tell: Progress) -> str:
        """Tune one kernel after the other; returns why it ended."""
        try:
            for i, kernel in enumerate(self.order):
                tell(kernel.name, i / len(self.order))
                if not self._complete(kernel) and self.clock() < self.deadline:
                    self._tune(kernel, self._end(kernel))
        except KeyboardInterrupt:
            return "interrupted"
        return "done" if all(map(self._complete, self.order)) else "time"

    def found(self) -> tuple[TunedKernel, ...]:
        """What is known of each kernel."""
        return tuple(TunedKernel(k, self.counts[k.body], self.records[k.body]) for k in self.order)

    def _weight(self, kernel: Kernel) -> float:
        return kernel.predicted_us * self.counts[kernel.body]

    def _complete(self, kernel: Kernel) -> bool:
        record = self.records[kernel.body]
        return record is not None and not record.left

    def _end(self, kernel: Kernel) -> float:
        """The deadline of this kernel: its share of the time left."""
        waiting = [self._weight(k) for k in self.order if not self._complete(k)]
        share = self._weight(kernel) / sum(waiting) if sum(waiting) else 1.0
        now = self.clock()
        return now + share * (self.deadline - now)

    def _tune(self, kernel: Kernel, end: float) -> None:
        library: list[Choice | None] = [None] if kernel.family == "library-gemm" else []
        proposals = [*library, *self.chooser.proposals(kernel)]
        trial = _Trial(kernel, self.machine, self.exact, proposals, self.measuring)
        try:
            trial.run(lambda: self.clock() >= end)
        finally:
            record = trial.record()
            if record is not None:
                self.records[kernel.body] = record
                self.chooser.remember(kernel, record)


def _has_variants(kernel: Kernel) -> bool:
    """Whether a kernel is generated, and computes no places to read at: of random values they could lie anywhere."""
    placed = all(index.op == "In" for index in _rows_of_places(kernel))
    return kernel.family != "opaque" and any(node.size for node in kernel.outputs) and placed


def _rows_of_places(kernel: Kernel) -> dict[Node, int]:
    """The arrays of places that a kernel reads at, and how many rows each chooses from."""
    found: dict[Node, int] = {}
    for node in topological(kernel.body):
        if node.op == "Gather":
            (_, rows, _), (_, index) = node.attrs, node.args
            while index.op == "V":
                (index,) = index.args
            found[index] = min(rows, found.get(index, rows))
    return found


def random_inputs(kernel: Kernel) -> dict[str, Array]:
    """Values for the params by name; places lie among the rows that they choose from."""
    rng = np.random.default_rng(0)
    rows = _rows_of_places(kernel)
    return {
        p.attrs[0]: rng.integers(rows[p], size=p.size).astype(np_dtype(p.dtype))
        if p in rows
        else random_array((p.size,), p.dtype, rng)
        for p in kernel.params
    }


class _Trial:
    """The variants of one kernel: each compiled, checked, then sampled in turns. None is the vendor's library."""

    def __init__(
        self, kernel: Kernel, machine: Machine, exact: bool, proposals: list[Choice | None], measuring: Turn
    ) -> None:
        self.kernel, self.machine, self.exact, self.proposals = kernel, machine, exact, proposals
        self.measuring = measuring
        self._inputs = random_inputs(kernel)
        self._expected: list[Array] | None = None
        self._timed: dict[Choice | None, Timed] = {}
        self._samples: dict[Choice | None, list[float]] = {}
        self._refused: list[str] = []

    def run(self, over: Callable[[], bool]) -> None:
        """Try the variants until `over`; the cost model's own is always tried."""
        with self.machine.plain_errors(lambda: f"kernel {self.kernel.name} is tuned alone"):
            taken = {name: self.machine.cupy.asarray(a) for name, a in self._inputs.items()}
        for choice in self.proposals:
            if self._samples and over():
                break
            self._prepare(choice, taken)
        for _ in range(ROUNDS - 1):
            if over():
                break
            with self.measuring():
                for choice, timed in self._timed.items():
                    self._samples[choice].append(timed.sample())

    def _prepare(self, choice: Choice | None, taken: dict[str, Any]) -> None:
        """Compile a variant, check it, and take a first sample."""
        try:
            choices = {} if choice is None else {self.kernel.body: choice}
            plan = GpuPlan(alone(self.kernel, self.exact), self.machine.row, choices=choices)
            fault = self._fault(plan)
            if fault is None:
                with self.measuring():
                    self._timed[choice] = timed = Timed(plan, taken)
                    self._samples[choice] = [timed.sample()]
        except EqsatError as failure:
            fault = str(failure)
        if fault is not None:
            self._refused.append(f"{shown(choice)}: {fault}")

    def _fault(self, plan: GpuPlan) -> str | None:
        """What is wrong with the results of a variant."""
        got = [a.astype(np.float64) if is_float(n.dtype) else a for a, n in self._results(plan)]
        if self._expected is None:
            small = self.kernel.flops <= REFERENCE_FLOPS
            exact = evaluate(self.kernel.body, self._inputs, {}, precision="float64") if small else got
            self._expected = [_as_held(a, n.dtype) for a, n in zip(exact, self.kernel.body, strict=True)]
        floats = [n.dtype for n in (*self.kernel.params, *self.kernel.body) if is_float(n.dtype)]
        tolerance = max((TOLERANCE[dtype] for dtype in floats), default=0.0)
        error = max(relative_error(a, b) for a, b in zip(got, self._expected, strict=True))
        return None if error <= tolerance else f"wrong by {error:.1e} of the scale"

    def _results(self, plan: GpuPlan) -> list[tuple[Array, Any]]:
        return list(zip(plan.run_host(self._inputs), self.kernel.body, strict=True))

    def record(self) -> Record | None:
        """What is known so far; None before anything was tried."""
        tried = len(self._samples) + len(self._refused)
        if not tried:
            return None
        medians = {choice: statistics.median(samples) for choice, samples in self._samples.items()}
        best = default = self.proposals[0]
        if medians:
            best = min(medians, key=lambda choice: medians[choice])
        untuned = medians.get(default)
        if untuned is not None and medians[best] > GAIN * untuned:
            best = default
        left = len(self.proposals) - tried
        return Record(best, medians.get(best), untuned, tried, left, tuple(self._refused))


def _as_held(values: Array, dtype: str) -> Array:
    """Values in float64, infinite where a type holds none that are as large."""
    if not is_float(dtype):
        return values
    most = float(ml_dtypes.finfo(np_dtype(dtype)).max)
    return np.where(np.abs(values) > most, np.copysign(np.inf, values), values)


def alone(kernel: Kernel, exact: bool = False) -> Plan:
    """A plan of one kernel over its params."""
    alone = replace(kernel, inputs=kernel.params, outputs=kernel.body)
    return Plan((alone,), kernel.body, tuple(Result(n, identity(n.size)) for n in kernel.body), {}, exact=exact)


def shown(choice: Choice | None) -> str:
    """A choice in words: 'tile matrix_64x64x32, slices 4', 'as the cost model chose', or 'the library's'."""
    if choice is None:
        return "the library's"
    fields = {name: value for name, value in vars(choice).items() if value is not None}
    return ", ".join(f"{name} {value}" for name, value in fields.items()) or "as the cost model chose"
