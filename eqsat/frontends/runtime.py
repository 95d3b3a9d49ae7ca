"""A second opinion on results: runs two ONNX files in onnxruntime on the same inputs.

The check of a result (`eqsat.check`) compares programs as eqsat reads them. Errors in reading or writing files show
only when an independent runtime runs both the file that was read and the file that was written.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.base.compare import relative_error
from eqsat.base.numerics import Array, is_float
from eqsat.frontends.execution import OnnxRuntime, RuntimeRefuses
from eqsat.program.ir import Program

TOLERANCE = {"float64": 1e-6, "float32": 1e-3, "bfloat16": 1e-1, "float16": 3e-2}
"""Largest difference that counts as rounding, as a share of an output's scale, by the narrowest element type."""

_LOADED = 5e8
"""Bytes of a file that onnxruntime loads per second, at least; measured on one core."""

_COMPUTED = 4e9
"""FLOPs that onnxruntime executes per second on one core, at least."""

_IMPORTED = 0.5
"""Seconds to import onnxruntime."""

_SAMPLES = 1 << 22
"""Elements of an output that are compared, evenly spaced."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """The comparison of two files' outputs in onnxruntime.

    Attributes:
        version: the version of onnxruntime.
        max_error: the largest difference of an output, as a share of its largest magnitude (at least 1).
        tolerance: the difference that rounding explains.
        failure: why onnxruntime cannot run the second file; empty if it can.
    """

    version: str
    max_error: float
    tolerance: float
    failure: str = ""

    @property
    def agrees(self) -> bool:
        """Whether rounding explains the difference."""
        return self.max_error <= self.tolerance

    def as_json(self) -> dict[str, Any]:
        """As in the report."""
        return {
            "name": "onnxruntime",
            "version": self.version,
            "max_error": self.max_error if math.isfinite(self.max_error) else None,
            "tolerance": self.tolerance,
            "agrees": self.agrees,
            "failure": self.failure,
        }


def seconds_needed(program: Program, *files: str | os.PathLike[str]) -> float:
    """Seconds that a comparison of these files may take, if each is about as much work as the program."""
    loaded = sum(os.path.getsize(file) for file in files) / _LOADED
    return _IMPORTED + loaded + len(files) * program.stats()["flops"] / _COMPUTED


def agreement(
    source: str | os.PathLike[str], result: str | os.PathLike[str], program: Program, inputs: Mapping[str, Array]
) -> Agreement | None:
    """Whether two files give the same outputs in onnxruntime.

    Args:
        program: the program read from `source`; its outputs determine what is compared, and the tolerance.
        inputs: arrays by name.

    Returns:
        None if onnxruntime is not installed or cannot run `source`.
    """
    try:
        runtime = OnnxRuntime()
    except ImportError:
        return None
    names = list(program.outputs)
    try:
        wanted = runtime.plainly(source, names)(inputs)
    except RuntimeRefuses:
        return None
    tolerance = tolerance_of(program)
    try:
        found = runtime.plainly(result, names)(inputs)
    except RuntimeRefuses as error:
        return Agreement(runtime.version, math.inf, tolerance, str(error))
    error = max((difference(a, b) for a, b in zip(wanted, found, strict=True)), default=0.0)
    return Agreement(runtime.version, error, tolerance)


def tolerance_of(program: Program) -> float:
    """The largest difference that the rounding of a program's element types explains."""
    return max((TOLERANCE.get(t.dtype, 0.0) for t in program.terms() if is_float(t.dtype)), default=0.0)


def difference(wanted: Array, found: Array) -> float:
    """The largest difference of sampled elements, as a share of the scale; infinite if shapes differ."""
    if wanted.shape != found.shape:
        return math.inf
    step = max(1, wanted.size // _SAMPLES)
    return relative_error(*(x.reshape(-1)[::step].astype(np.float64) for x in (found, wanted)), least=1.0)
