"""Devices as rows of data: the figures that kernel prices depend on, each with its source.

A new device is one more row in `ROWS`. Datasheet figures are peaks; `achieved` is the share of the peak memory
bandwidth that a plain copy reaches. Some figures of Hopper were measured on an H200, none on AMD GPUs:
`eqsat calibrate` measures a device and writes a file that replaces its row.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import NamedTuple

from eqsat.base.arguments import shown
from eqsat.errors import InputError
from eqsat.extract.device import files as device_files
from eqsat.gpu.table.targets import TARGETS

STEPS = ("vector", "matrix", "stream")
"""Of what `Device.step_us` has the steps."""


class Figure(NamedTuple):
    """A number and where it comes from."""

    value: float
    source: str


@dataclass(frozen=True, slots=True)
class Device:
    """One device as the cost model sees it.

    Attributes:
        name: the name that users give; `title` is its full name and `arch` the compiler's target.
        units: compute units (AMD), streaming multiprocessors (NVIDIA) or cores.
        launch_us: microseconds from the end of one kernel to the start of the next that depends on it.
        bandwidth: peak memory bandwidth, GB/s.
        achieved: the share of `bandwidth` that a plain copy of a large array reaches.
        local_kib: on-chip memory that one workgroup can use, KiB.
        cache_mib, cache_bandwidth: the first `cache_mib` MiB that a kernel moves, without operands of products, move
            at `cache_bandwidth` GB/s.
        l2_bandwidth: of all that units read together through the cache that they share, GB/s.
        step_us: microseconds that a block waits in a step along k or along a streamed axis, beside its arithmetic: in
            products on `vector` and `matrix` units, and for each operand of a `stream`. Not known of devices on which
            nothing was measured.
        vector: peak TFLOP/s of ordinary arithmetic by dtype; dtypes that are not listed run at the float32 rate.
        matrix: peak dense TFLOP/s of the matrix units by dtype; other dtypes have no matrix units.
        fuses: False if a runtime executes operator by operator, so that a kernel is one operator and its views.
        runtime: what executes the models written for it, where plans can be measured in it
            (`eqsat.frontends.execution`); empty where eqsat's own kernels run.
    """

    name: str
    title: str
    arch: str
    units: Figure
    launch_us: Figure
    bandwidth: Figure
    achieved: Figure
    local_kib: Figure
    vector: Mapping[str, Figure]
    matrix: Mapping[str, Figure]
    cache_mib: Figure | None = None
    cache_bandwidth: Figure | None = None
    l2_bandwidth: Figure | None = None
    step_us: Mapping[str, Figure] = field(default_factory=dict)
    fuses: bool = True
    runtime: str = ""

    @property
    def wave(self) -> int:
        """Threads that run in lockstep."""
        return TARGETS[self.arch].wave if self.arch in TARGETS else 1

    def figures(self) -> Iterator[tuple[str, Figure]]:
        """Every figure of the row as (name, figure); figures by dtype are named `vector.float32` and so on."""
        for f in fields(self):
            entry = getattr(self, f.name)
            if isinstance(entry, Figure):
                yield f.name, entry
            elif isinstance(entry, Mapping):
                for dtype, figure in entry.items():
                    yield f"{f.name}.{dtype}", figure

    def step_figures(self) -> tuple[str, ...]:
        """The names of `step_us` of a device that eqsat's kernels run on, known or not."""
        return tuple(f"step_us.{kind}" for kind in STEPS) if self.arch in TARGETS else ()

    def with_figures(self, new: Mapping[str, Figure]) -> Device:
        """The same device with some figures replaced, by their names in `figures`."""
        known = {**dict(self.figures()), **dict.fromkeys(self.step_figures())}
        row = self
        for name, figure in new.items():
            if name not in known:
                raise InputError(f"device {self.name}: no figure is called {name!r}; use one of {', '.join(known)}")
            field, _, dtype = name.partition(".")
            row = replace(row, **{field: {**getattr(row, field), dtype: figure} if dtype else figure})
        return row


_CDNA2 = "AMD Instinct MI250X data sheet, halved: HIP shows each of its two dies as a device"
_CDNA3 = "AMD Instinct MI300X data sheet"
_CDNA4 = "AMD Instinct MI355X data sheet"
_L2 = "AMD CDNA 3 white paper: 2 KiB a clock and die"
_NAVI31 = "AMD Radeon RX 7900 XTX product page"
_NAVI48 = "AMD Radeon RX 9070 XT product page"
_HOPPER = "NVIDIA H100 Tensor Core GPU data sheet, SXM"
_H200 = "NVIDIA H200 Tensor Core GPU data sheet, SXM"
_ROCM = "ROCm documentation, reference/gpu-specs"
_CUDA = "CUDA C programming guide, compute capability 9.0"
_HERE = "measured with NumPy 2 and OpenBLAS on two cores of an AMD EPYC server"
_FITTED = (
    "fitted by `eqsat calibrate` to 47 operators on Intel(R) Xeon(R) Processor @ 2.80GHz, one thread of onnxruntime "
    "1.32.0, 2026-11-22"
)
_HALF = "assumed: half of what was fitted for float32"

_HIP_LAUNCH = Figure(2.0, "assumed for dependent kernels in one HIP graph; calibrate replaces it")
_CUDA_LAUNCH = Figure(1.5, "assumed for dependent kernels in one CUDA graph; calibrate replaces it")
_HBM_ACHIEVED = Figure(0.8, "assumed: copy benchmarks on HBM parts are published at 75 % to 90 % of the peak")
_MEASURED = "fitted to kernels on an NVIDIA H200, driver 580.159, 2026-11-27"
_HOPPER_STEPS = {kind: Figure(us, _MEASURED) for kind, us in (("vector", 0.2), ("matrix", 0.27), ("stream", 0.5))}
_GDDR_ACHIEVED = Figure(0.88, "assumed: copy benchmarks on GDDR6 parts are published at 85 % to 92 % of the peak")


def _tflops(source: str, **by_dtype: float) -> dict[str, Figure]:
    return {dtype: Figure(value, source) for dtype, value in by_dtype.items()}


ROWS = (
    Device(
        name="mi250x",
        title="AMD Instinct MI250X (one die)",
        arch="gfx90a",
        units=Figure(110, _CDNA2),
        launch_us=_HIP_LAUNCH,
        bandwidth=Figure(1638, _CDNA2),
        achieved=_HBM_ACHIEVED,
        local_kib=Figure(64, _ROCM),
        vector=_tflops(_CDNA2, float64=23.95, float32=23.95),
        matrix=_tflops(_CDNA2, float64=47.85, float32=47.85, float16=191.5, bfloat16=191.5),
    ),
    Device(
        name="mi300x",
        title="AMD Instinct MI300X",
        arch="gfx942",
        units=Figure(304, _CDNA3),
        launch_us=_HIP_LAUNCH,
        bandwidth=Figure(5300, _CDNA3),
        achieved=_HBM_ACHIEVED,
        local_kib=Figure(64, _ROCM),
        vector=_tflops(_CDNA3, float64=81.7, float32=163.4),
        matrix=_tflops(_CDNA3, float64=163.4, float32=163.4, float16=1307.4, bfloat16=1307.4),
        l2_bandwidth=Figure(34400, f"{_L2}, 8 dies at 2.1 GHz"),
    ),
    Device(
        name="mi355x",
        title="AMD Instinct MI355X",
        arch="gfx950",
        units=Figure(256, _CDNA4),
        launch_us=_HIP_LAUNCH,
        bandwidth=Figure(8000, _CDNA4),
        achieved=_HBM_ACHIEVED,
        local_kib=Figure(160, _ROCM),
        vector=_tflops(_CDNA4, float64=78.6, float32=157.3),
        matrix=_tflops(_CDNA4, float64=78.6, float32=157.3, float16=2516.6, bfloat16=2516.6),
        l2_bandwidth=Figure(39300, f"{_L2}, 8 dies at 2.4 GHz"),
    ),
    Device(
        name="rx7900xtx",
        title="AMD Radeon RX 7900 XTX",
        arch="gfx1100",
        units=Figure(96, _NAVI31),
        launch_us=_HIP_LAUNCH,
        bandwidth=Figure(960, _NAVI31),
        achieved=_GDDR_ACHIEVED,
        local_kib=Figure(64, _ROCM),
        vector=_tflops(_NAVI31, float64=1.92, float32=61.4),
        matrix=_tflops(_NAVI31, float16=122.8, bfloat16=122.8),
    ),
    Device(
        name="rx9070xt",
        title="AMD Radeon RX 9070 XT",
        arch="gfx1201",
        units=Figure(64, _NAVI48),
        launch_us=_HIP_LAUNCH,
        bandwidth=Figure(640, _NAVI48),
        achieved=_GDDR_ACHIEVED,
        local_kib=Figure(64, _ROCM),
        vector=_tflops(_NAVI48, float64=0.76, float32=48.7),
        matrix=_tflops(_NAVI48, float16=195.0, bfloat16=195.0),
    ),
    Device(
        name="h100",
        title="NVIDIA H100 SXM",
        arch="sm_90",
        units=Figure(132, _HOPPER),
        launch_us=_CUDA_LAUNCH,
        bandwidth=Figure(3350, _HOPPER),
        achieved=_HBM_ACHIEVED,
        local_kib=Figure(227, _CUDA),
        vector=_tflops(_HOPPER, float64=34.0, float32=67.0),
        matrix=_tflops(_HOPPER, float64=67.0, float16=989.4, bfloat16=989.4),
        step_us=_HOPPER_STEPS,
    ),
    Device(
        name="h200",
        title="NVIDIA H200 SXM",
        arch="sm_90",
        units=Figure(132, _H200),
        launch_us=Figure(1.83, _MEASURED),
        bandwidth=Figure(4800, _H200),
        achieved=Figure(0.898, _MEASURED),
        local_kib=Figure(227, _CUDA),
        vector=_tflops(_H200, float64=34.0, float32=67.0),
        matrix=_tflops(_H200, float64=67.0, float16=989.4, bfloat16=989.4),
        step_us=_HOPPER_STEPS,
    ),
    Device(
        name="cpu",
        title="a CPU core running onnxruntime",
        arch="x86-64",
        units=Figure(1, "one thread of the runtime"),
        launch_us=Figure(0.3137, _FITTED),
        bandwidth=Figure(24.0, _HERE),
        achieved=Figure(0.4806, _FITTED),
        local_kib=Figure(512, "second-level cache of one core of an AMD EPYC server"),
        vector={**_tflops(_FITTED, float32=0.0706), **_tflops(_HALF, float64=0.0353)},
        matrix={**_tflops(_FITTED, float32=0.1893), **_tflops(_HALF, float64=0.0946)},
        cache_mib=Figure(8, _HERE),
        cache_bandwidth=Figure(19.54, _FITTED),
        fuses=False,
        runtime="onnxruntime",
    ),
)
"""Every known device. TF32 is left out for NVIDIA, because it would round float32 operands."""

DEVICES: dict[str, Device] = {row.name: row for row in ROWS}


DeviceLike = str | os.PathLike[str] | Device
"""What names a device: its name, the path of a file of measured figures, or a row."""


def device(name: DeviceLike) -> Device:
    """The row with this name, or from this file (`eqsat.extract.device.files`); a row is returned as it is.

    Raises:
        InputError: no such row (the nearest valid names are given) or file, or a file without a row.
    """
    if isinstance(name, Device):
        return name
    if isinstance(name, os.PathLike):
        return _measured(Path(name))
    if not isinstance(name, str):
        raise InputError(f"device: expected the name of one, a file of measured figures or a row, got {shown(name)}")
    if name.endswith(".json"):
        return _measured(Path(name))
    row = DEVICES.get(name.lower())
    if row is None:
        near = difflib.get_close_matches(name.lower(), DEVICES, n=3, cutoff=0.4) or list(DEVICES)
        raise InputError(f"device: there is no {name!r}; the nearest are {', '.join(near)}")
    file = device_files.user_file(row.name)
    return _measured(file) if file.exists() else row


def _measured(file: Path) -> Device:
    """The row that a file of measured figures describes."""
    base, figures = device_files.read(file)
    if base not in DEVICES:
        raise InputError(f"{file}: no device is called {base!r}; they are {', '.join(DEVICES)}")
    return DEVICES[base].with_figures({name: Figure(*figure) for name, figure in figures.items()})


def devices() -> list[Device]:
    """Every known row, with figures measured on this machine where there are any."""
    return [device(name) for name in DEVICES]
