"""Where the suite's plans run: on this machine's GPU, or in the CPU checker, which has predicted times alone."""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, wraps
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from eqsat.errors import InputError
from eqsat.extract.device.table import Device, Figure
from eqsat.extract.device.table import device as find_device
from eqsat.extract.plan.plan import Plan
from eqsat.gpu.code.errors import DeviceFailed
from eqsat.gpu.launch.lower import lower
from eqsat.gpu.run.choices import Choices
from eqsat.gpu.run.cupy_runtime import GpuPlan, Machine, this_machine
from eqsat.gpu.run.run import run_launches
from eqsat.gpu.run.timing import Timed, random_arrays, sampled
from eqsat.runs.task import Tell, Work
from eqsat.suite.turns import Turns

Array = np.ndarray[Any, Any]
Sample = Callable[[], float]
Given = Mapping[str, Any]

_MOST_SETS = 64
"""Sets of arrays that a plan's runs take in turns."""

_CLOCKS = {
    "nvidia-smi": ("--query-gpu=clocks.sm,clocks.mem,temperature.gpu,power.draw", "--format=csv,noheader"),
    "amd-smi": ("metric", "--clock", "--csv"),
}
"""Commands that print the clocks of a card."""


class Time(NamedTuple):
    """Microseconds: the median of the samples, and the distance of their quartiles as a share of it."""

    us: float
    spread: float


def summary(samples: Sequence[float]) -> Time:
    """The median and the spread of samples."""
    if len(samples) < 2:
        return Time(samples[0], 0.0)
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return Time(middle, (high - low) / middle if middle else 0.0)


class Run(NamedTuple):
    """A plan, and arrays for its inputs by name: random ones by default."""

    plan: Plan
    inputs: Mapping[str, Array] | None = None


class Place(Protocol):
    """Something that runs plans.

    Attributes:
        measures: whether its times are measured; else they are predicted.
    """

    measures: bool

    @property
    def row(self) -> Device:
        """The device that plans are made for."""
        ...

    def facts(self) -> dict[str, Any]:
        """The card and the versions of its software."""
        ...

    def clocks(self) -> str:
        """The clocks of the card now, as its maker's tool prints them; empty where there is no such tool."""
        ...

    def results(self, plan: Plan, inputs: Mapping[str, Array], choices: Choices | None = None) -> list[Array]:
        """The flat roots of a plan.

        Raises:
            EqsatError: a kernel does not compile, or broke a rule of the machine.
        """
        ...

    def times(
        self, runs: Mapping[str, Run], rounds: int, rotated: bool = False, others: Mapping[str, Sample] | None = None
    ) -> dict[str, Time]:
        """The times of plans, and of `others` where times are measured, all in turns; rounds are samples of each.

        Args:
            rotated: runs take sets of arrays in turns that together exceed the cache which all units share.
        """
        ...


@dataclass(frozen=True)
class Checker:
    """The CPU checker with the kernels of a device."""

    device: Device
    measures = False

    @property
    def row(self) -> Device:
        return self.device

    def facts(self) -> dict[str, Any]:
        return {"card": f"the CPU checker, with the kernels of {self.row.name}", "device": self.row.name} | _software()

    def clocks(self) -> str:
        return ""

    def results(self, plan: Plan, inputs: Mapping[str, Array], choices: Choices | None = None) -> list[Array]:
        return run_launches(lower(plan, self.row, choices=choices), inputs)

    def times(
        self, runs: Mapping[str, Run], rounds: int, rotated: bool = False, others: Mapping[str, Sample] | None = None
    ) -> dict[str, Time]:
        return {name: Time(sum(k.predicted_us for k in run.plan.kernels), 0.0) for name, run in runs.items()}


@dataclass(frozen=True)
class Gpu:
    """This machine's GPU, through CuPy; `device` is 'auto' or a row of its instruction set.

    Other processes may use it, too: where times are measured, they wait.
    """

    device: str | Device = "auto"
    turns: Turns = field(default_factory=Turns)
    measures = True

    @cached_property
    def machine(self) -> Machine:
        """The GPU.

        Raises:
            InputError: no CuPy, no GPU, or a row of another instruction set.
        """
        return this_machine(self.device)

    @property
    def row(self) -> Device:
        return self.machine.row

    def facts(self) -> dict[str, Any]:
        return {"card": self.machine.name, "device": self.row.name} | _software()

    def clocks(self) -> str:
        return _clocks()

    def results(self, plan: Plan, inputs: Mapping[str, Array], choices: Choices | None = None) -> list[Array]:
        compiled = GpuPlan(plan, self.row, choices=choices)
        with self.turns.shared():
            return compiled.run_host(_read(compiled, inputs))

    def times(
        self, runs: Mapping[str, Run], rounds: int, rotated: bool = False, others: Mapping[str, Sample] | None = None
    ) -> dict[str, Time]:
        ready = {name: self._ready(run, rotated) for name, run in runs.items()}
        with self.turns.alone():
            timed = {name: Timed(plan, arrays[0], arrays[1:]).sample for name, (plan, arrays) in ready.items()}
            found = sampled({**timed, **(others or {})}, rounds)
        return {name: summary(samples) for name, samples in found.items()}

    def _ready(self, run: Run, rotated: bool) -> tuple[GpuPlan, list[dict[str, Any]]]:
        """A plan, compiled, and the sets of arrays that its runs take in turns."""
        plan = GpuPlan(run.plan, self.row, recorded=True)
        with plan.guarded():
            first = random_arrays(plan) if run.inputs is None else plan.taken(_read(plan, run.inputs))
            count = self.sets(plan.launches.memory["peak"]) if rotated else 1
            return plan, [first, *({name: array.copy() for name, array in first.items()} for _ in range(count - 1))]

    def sets(self, nbytes: int) -> int:
        """How many sets of arrays of so many bytes exceed twice the cache that all units share."""
        cache = int(self.machine.cupy.cuda.runtime.getDeviceProperties(self.machine.index)["l2CacheSize"])
        return max(1, min(_MOST_SETS, ceil(2 * cache / max(nbytes, 1))))


def _read(plan: GpuPlan, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The inputs that a plan reads: not all, where outputs do not depend on some."""
    read = {b.name for b in plan.launches.buffers.values() if b.kind == "input"}
    return {name: array for name, array in inputs.items() if name in read}


def place_of(given: Given) -> Place:
    """The place that a task names: `on`, the `device`, and those of its `figures` that are not the table's."""
    row = find_device(given["device"])
    row = row.with_figures({name: Figure(*figure) for name, figure in given["figures"].items()})
    return Gpu(row, turns_of(given)) if given["on"] == "gpu" else Checker(row)


def turns_of(given: Given) -> Turns:
    """The turns that a task takes with the other tasks of its run."""
    folder = given.get("turns")
    return Turns(None if folder is None else Path(folder))


_driver_failed = threading.Event()


def in_sound_process(work: Work) -> Work:
    """A task for processes whose driver works. Once the driver has failed in a process, it may fail there ever after: a
    task that comes next ends the process, and is given to another one."""

    @wraps(work)
    def done(given: Given, tell: Tell) -> Any:
        if _driver_failed.is_set():
            os._exit(os.EX_TEMPFAIL)
        try:
            return work(given, tell)
        except DeviceFailed:
            _driver_failed.set()
            raise

    return done


def choose(on: str, device: str) -> Place:
    """The place that a user names.

    Raises:
        InputError: no GPU, an unknown device, or one without kernels.
    """
    if on == "gpu":
        place = Gpu(device)
        assert place.machine
        return place
    row = find_device("mi300x" if device == "auto" else device)
    if row.runtime:
        raise InputError(f"device {row.name} runs no GPU kernels: name a GPU (see `eqsat devices`)")
    return Checker(row)


def _software() -> dict[str, Any]:
    from importlib.metadata import PackageNotFoundError, version

    from eqsat.base.version import version as own_version

    found = {"eqsat": own_version(), "python": platform.python_version(), "system": platform.platform()}
    for name in ("numpy", "torch", "onnxruntime"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def _clocks() -> str:
    for name, options in _CLOCKS.items():
        tool = shutil.which(name)
        if tool:
            with suppress(OSError, subprocess.TimeoutExpired):
                ran = subprocess.run([tool, *options], capture_output=True, text=True, timeout=20, check=False)
                return ran.stdout.strip()
    return ""
