"""Calibration: fits the figures of a device row to measured times.

A few small programs, each a single kernel, cover what the figures describe: launches, streams, rows, arithmetic,
products of several types and sizes. The fitted figures say what the kernels of this project reach under the cost
model's formulas, not what the chip could do.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from eqsat.egraph.snapshot import Snapshot
from eqsat.errors import InputError, unknown
from eqsat.extract.cover import CoverResult
from eqsat.extract.device.table import Device, Figure
from eqsat.extract.kernels.candidates import Candidate, enumerate_candidates
from eqsat.extract.plan.plan import Plan, build_plan
from eqsat.program.core import CoreProgram, lower
from eqsat.program.ir import Program
from eqsat.tracing import functions
from eqsat.tracing.trace import spec, trace

OUTLIER = 0.25
"""Difference of logarithms above which an error counts linearly instead of squared: the figures are not the reason if
a prediction is off by more than a quarter."""

_FITTED = ("launch_us", "achieved", "vector.", "matrix.", "cache_bandwidth", "step_us.")
_TIMES_US = 1e-6, 1e12
"""The shortest and the longest time that a fit takes: others drive figures out of the range of numbers."""

_FIRST_STEP_US = 0.05
"""Where the search begins for `step_us` of a device of which it is not known."""

_FIRST_STEP, _LAST_STEP = 0.7, 1e-3
"""Steps of the logarithms of figures: a factor of two at first, a thousandth at the end."""


class NotOneKernel(ValueError):
    """Several kernels are cheaper by a row than a program's single one, or there is none."""


class Micro:
    """A program that is a single kernel."""

    def __init__(self, program: Program) -> None:
        self.core: CoreProgram = lower(program)
        self.snapshot = Snapshot.from_core(self.core.roots)

    def plan(self, device: Device) -> Plan:
        """The program as one generated kernel, without the vendor's library."""
        kernel = self._kernel(device)
        return build_plan(self.snapshot, CoverResult([kernel], kernel.price, kernel.price, True), self.core)

    def predicted_us(self, device: Device) -> float:
        """The cost model's time of that kernel.

        Raises:
            NotOneKernel: by this row, it is not worth considering.
        """
        return self._kernel(device).price * 1e-6

    def _kernel(self, device: Device) -> Candidate:
        if len(self.snapshot.roots) != 1:
            raise NotOneKernel(f"a program of {len(self.snapshot.roots)} outputs")
        found = enumerate_candidates(self.snapshot, device).of_class[self.snapshot.roots[0]]
        single = [x for x in found if not x.children and x.family != "library-gemm"]
        if not single:
            raise NotOneKernel("no kernel computes all of it, or several are cheaper")
        return min(single, key=lambda x: x.price)


class Priced(Protocol):
    """A program with a price."""

    def predicted_us(self, device: Device) -> float:
        """The cost model's time.

        Raises:
            NotOneKernel: it has none.
        """
        ...


def _map(dtype: str, elements: int) -> Callable[[], Program]:
    return lambda: trace(lambda x: x + 1, spec((elements,), dtype))


def _arithmetic(dtype: str, elements: int, steps: int) -> Callable[[], Program]:
    """A chain of functions that computes for longer than it moves memory."""

    def chain(x: Any) -> Any:
        for _ in range(steps):
            x = functions.tanh(x)
        return x

    return lambda: trace(chain, spec((elements,), dtype))


def _row_sums(dtype: str, rows: int, columns: int) -> Callable[[], Program]:
    return lambda: trace(lambda x: x.sum(axis=1), spec((rows, columns), dtype))


def _product(dtype: str, m: int, k: int, n: int) -> Callable[[], Program]:
    return lambda: trace(lambda x, w: functions.relu(x @ w), spec((m, k), dtype), spec((k, n), dtype))


MICRO: dict[str, Callable[[], Program]] = {
    "launch": _map("float32", 256),
    "stream of 1 MiB": _map("float32", 2**17),
    "stream of 64 MiB": _map("float32", 2**23),
    "stream of 512 MiB": _map("float32", 2**26),
    "stream of 512 MiB, float16": _map("float16", 2**27),
    "arithmetic": _arithmetic("float32", 2**24, 8),
    "4096 rows of 4096": _row_sums("float32", 4096, 4096),
    "65536 rows of 256": _row_sums("float32", 65536, 256),
    "64 rows of 65536": _row_sums("float32", 64, 65536),
    "matrix times vector, 8192": _product("float32", 8192, 8192, 1),
    "product of 512, float32": _product("float32", 512, 512, 512),
    "product of 2048, float32": _product("float32", 2048, 2048, 2048),
    "product of 4096, float32": _product("float32", 4096, 4096, 4096),
    "product of 64 x 4096, float32": _product("float32", 64, 4096, 4096),
    "product of 512, float16": _product("float16", 512, 512, 512),
    "product of 2048, float16": _product("float16", 2048, 2048, 2048),
    "product of 4096, float16": _product("float16", 4096, 4096, 4096),
    "product of 8192, float16": _product("float16", 8192, 8192, 8192),
    "product of 4096, bfloat16": _product("bfloat16", 4096, 4096, 4096),
}
"""The programs by name."""


def micro(name: str) -> Micro:
    """The program with this name.

    Raises:
        InputError: there is no such program.
    """
    if name not in MICRO:
        raise unknown("micro-kernel", name, MICRO)
    return Micro(MICRO[name]())


@dataclass(frozen=True)
class Calibration:
    """A fitted row.

    Attributes:
        row: the device with the fitted figures.
        fitted: the names of the fitted figures; the measurements do not depend on any others.
        measured, before, after: microseconds by name: measured, predicted by the old row, predicted by the fitted row.
    """

    row: Device
    fitted: tuple[str, ...]
    measured: Mapping[str, float]
    before: Mapping[str, float]
    after: Mapping[str, float]

    @property
    def figures(self) -> dict[str, Figure]:
        """The fitted figures by name."""
        every = dict(self.row.figures())
        return {name: every[name] for name in self.fitted}

    @property
    def rank_correlation(self) -> tuple[float, float]:
        """Spearman's coefficient between predicted and measured times, before and after."""
        measured = list(self.measured.values())
        return spearman(list(self.before.values()), measured), spearman(list(self.after.values()), measured)

    @property
    def typical_factor(self) -> tuple[float, float]:
        """The median factor by which a prediction is off, before and after."""
        before, after = (
            math.exp(statistics.median(abs(math.log(predicted[name] / us)) for name, us in self.measured.items()))
            for predicted in (self.before, self.after)
        )
        return before, after


def fit(
    row: Device, measured: Mapping[str, float], source: str, priced: Callable[[str], Priced] | None = None
) -> Calibration:
    """Fit the figures of a row so that the cost model explains measured times best.

    Least squares between logarithms of predicted and measured times (linear beyond `OUTLIER`), over the logarithms of
    the figures that any prediction depends on. The model has kinks where the limit changes between memory and
    arithmetic, so the search uses no derivatives: it moves one figure at a time, by steps that shrink when none helps
    (Hooke and Jeeves, 1961).

    Programs count that are one kernel by the given row and by the fitted one.

    Args:
        measured: microseconds of programs by name.
        source: the source to record for the fitted figures.
        priced: the program of a name; by default that of `MICRO`.

    Raises:
        InputError: no times, an unknown name, or a time that no kernel takes.
    """
    least, most = _TIMES_US
    wrong = [name for name, us in measured.items() if not least <= us <= most]
    if wrong or not measured:
        got = measured[wrong[0]] if wrong else "none"
        raise InputError(f"a fit takes times of {least:g} to {most:g} us, got {got}")
    return _Fit(row, measured, source, {name: (priced or micro)(name) for name in measured}).result()


class _Fit:
    def __init__(self, row: Device, measured: Mapping[str, float], source: str, programs: Mapping[str, Priced]) -> None:
        self.given = row
        unknown_steps = [name for name in row.step_figures() if name not in dict(row.figures())]
        self.row = row.with_figures(dict.fromkeys(unknown_steps, Figure(_FIRST_STEP_US, source)))
        before = {name: _price(program, row) for name, program in programs.items()}
        begun = {name: _price(program, self.row) for name, program in programs.items()}
        kept = [name for name in programs if before[name] < math.inf > begun[name]]
        self.before, self.begun = {n: before[n] for n in kept}, {n: begun[n] for n in kept}
        self.measured, self.programs = {n: measured[n] for n in kept}, {n: programs[n] for n in kept}
        self.source = source
        self.start = {name: f.value for name, f in self.row.figures() if name.startswith(_FITTED)}
        self.reach = {figure: self._depending(figure) for figure in self.start}
        """The programs whose time depends on each figure."""

    def _row(self, values: Mapping[str, float]) -> Device:
        return self.row.with_figures({name: Figure(value, self.source) for name, value in values.items()})

    def _depending(self, figure: str) -> list[str]:
        """The programs whose predicted time changes if the figure is divided or multiplied by ten."""
        others = [self._row({figure: self.start[figure] * factor}) for factor in (0.1, 10)]
        return [n for n, m in self.programs.items() if any(_price(m, row) != self.begun[n] for row in others)]

    def _loss(self, name: str, predicted: float) -> float:
        off = abs(math.log(predicted / self.measured[name]))
        return off * off if off <= OUTLIER else OUTLIER * (2 * off - OUTLIER)

    def result(self) -> Calibration:
        """Search, starting from the given row."""
        values = {name: self.start[name] for name, reached in self.reach.items() if reached}
        losses = {name: self._loss(name, us) for name, us in self.begun.items()}
        step = _FIRST_STEP
        while step > _LAST_STEP:
            base = dict(values)
            better = [self._improve(figure, step, values, losses) for figure in values]
            if not any(better):
                step /= 2
            while any(better) and self._repeat(base, values, losses):
                pass
        figures = {name: Figure(float(f"{value:.4g}"), self.source) for name, value in values.items()}
        fitted = self.given.with_figures(figures)
        after = {name: us for name, m in self.programs.items() if (us := _price(m, fitted)) < math.inf}
        measured, before = ({name: times[name] for name in after} for times in (self.measured, self.before))
        return Calibration(fitted, tuple(figures), measured, before, after)

    def _repeat(self, base: dict[str, float], values: dict[str, float], losses: dict[str, float]) -> bool:
        """Move all figures again as they moved since `base`, if that lowers the loss: along a valley, moves add up."""
        ahead = {name: _limited(name, value * value / base[name]) for name, value in values.items()}
        row = self._row(ahead)
        found = {name: self._loss(name, _price(program, row)) for name, program in self.programs.items()}
        if sum(found.values()) >= sum(losses.values()):
            return False
        base.update(values)
        values.update(ahead)
        losses.update(found)
        return True

    def _improve(self, figure: str, step: float, values: dict[str, float], losses: dict[str, float]) -> bool:
        """Move one figure by a step, up or down, if that lowers the loss."""
        reached = self.reach[figure]
        now = sum(losses[name] for name in reached)
        for factor in (math.exp(step), math.exp(-step)):
            moved = _limited(figure, values[figure] * factor)
            row = self._row(values | {figure: moved})
            found = {name: self._loss(name, _price(self.programs[name], row)) for name in reached}
            if sum(found.values()) < now:
                values[figure] = moved
                losses.update(found)
                return True
        return False


def _price(program: Priced, row: Device) -> float:
    """Microseconds; infinite where it is not one kernel."""
    try:
        return program.predicted_us(row)
    except NotOneKernel:
        return math.inf


def _limited(figure: str, value: float) -> float:
    return min(value, 1.0) if figure == "achieved" else value


def spearman(x: list[float], y: list[float]) -> float:
    """Spearman's rank correlation; equal values share their mean rank. NaN if all values on one side are equal."""
    a, b = _ranks(x), _ranks(y)
    a, b = a - a.mean(), b - b.mean()
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / scale if scale else math.nan


def _ranks(values: list[float]) -> np.ndarray[Any, Any]:
    array = np.asarray(values)
    below = (array[:, None] > array).sum(axis=1)
    equal = (array[:, None] == array).sum(axis=1)
    return below + (equal - 1) / 2
