"""A second opinion on results: runs two ONNX files in onnxruntime on the same inputs.

The check of a result (`eqsat.check`) compares programs as eqsat reads them. Errors in reading or writing files show
only when an independent runtime runs both the file that was read and the file that was written.

It does so in a process of its own. Compiled code hears neither the clock nor Ctrl-C, and asks nobody before it takes
memory; a process can be ended.
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from eqsat.base.compare import relative_error
from eqsat.base.files import elsewhere
from eqsat.base.numerics import Array, is_float
from eqsat.base.worker import Send, Worker, ending
from eqsat.check.inputs import SEED, random_values
from eqsat.errors import EqsatError, one_line
from eqsat.frontends.execution import OnnxRuntime, RuntimeLacksMemory, RuntimeRefuses
from eqsat.program.ir import Program
from eqsat.program.term import Term

TOLERANCE = {"float64": 1e-6, "float32": 1e-3, "bfloat16": 1e-1, "float16": 3e-2}
"""Largest difference that counts as rounding, as a share of an output's scale, by the narrowest element type."""

_LOADED = 5e8
"""Bytes of a file that onnxruntime loads per second, at least; measured on one core."""

_COMPUTED = 4e9
"""FLOPs that onnxruntime executes per second on one core, at least."""

_MOVED = 2e9
"""Bytes that its operators read and write per second on one core, at least."""

_STARTED = 0.5
"""Seconds to start a process with onnxruntime."""

_SPACE = 1 << 30
"""Bytes of address space that libraries and the stacks of threads take in that process, most of which is no memory."""

_ONE_HEAP = {"MALLOC_ARENA_MAX": "1"}
"""For that process: each heap of glibc takes 64 MiB of address space, and each thread may have one."""

_TOO_LARGE = "it takes more memory than the limit leaves"

_SAMPLES = 1 << 22
"""Elements of an output that are compared, evenly spaced."""


class NotCompared(EqsatError):
    """Two files were not compared. The message says why, as the end of a sentence on the runtime."""

    def __init__(self, why: str) -> None:
        super().__init__(one_line(why))


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
    """Seconds that a comparison of these files may take, if each is about as much work as the program. The work of
    a carried operator is unknown: it counts as the bytes of its operands and results."""
    loaded = sum(os.path.getsize(file) for file in files) / _LOADED
    stats = program.stats()
    return _STARTED + loaded + len(files) * (stats["flops"] / _COMPUTED + stats["bytes"] / _MOVED)


def compared(
    source: str | os.PathLike[str], result: str | os.PathLike[str], program: Program, seconds: float, memory: int
) -> Agreement:
    """Whether two files give the same outputs in onnxruntime on random inputs, within so many seconds and bytes.

    Args:
        program: the program read from `source`.

    Raises:
        NotCompared: there is no answer. Ctrl-C is a reason, too: what was computed before is still to be told.
    """
    if seconds <= 0:
        raise NotCompared("no time was left")
    if find_spec("onnxruntime") is None:
        raise NotCompared("it is not installed")
    after = program.header.after
    if after is not None and after.unheld:
        raise NotCompared(f"there are no random values for inputs that are no numbers: {', '.join(after.unheld)}")
    needed = seconds_needed(program, source, result)
    if needed > seconds:
        raise NotCompared(f"it may take {needed:.2g} s, and {seconds:.2g} s were left")
    worker = Worker("eqsat.frontends.runtime:Comparisons", max(0, memory) + _SPACE, _ONE_HEAP)
    try:
        worker.send((elsewhere(source), elsewhere(result), program.file_outputs, tolerance_of(program), program.inputs))
        answer = worker.receive(seconds)
    except KeyboardInterrupt:
        raise NotCompared("it was interrupted") from None
    except (EOFError, OSError):
        code = worker.ended()
        raise NotCompared(_TOO_LARGE if code == errno.ENOMEM else f"it died ({ending(code)})") from None
    finally:
        worker.kill()
    if answer is None:
        raise NotCompared("the time was up before it had run both files")
    kind, content = answer
    if kind != "agreement":
        raise NotCompared(content)
    return content


class Comparisons:
    """Compares files on random inputs, in a worker process (`eqsat.base.worker`)."""

    def __call__(self, request: tuple[str, str, list[str], float, tuple[Term, ...]], send: Send) -> None:
        source, result, names, tolerance, inputs = request
        try:
            send("agreement", agreement(source, result, names, tolerance, random_values(inputs, 0, SEED)))
        except NotCompared as why:
            send("not compared", str(why))


def agreement(
    source: str | os.PathLike[str],
    result: str | os.PathLike[str],
    names: Sequence[str],
    tolerance: float,
    inputs: Mapping[str, Array],
) -> Agreement:
    """Whether two files give the same outputs, of these names, in onnxruntime, on arrays by name.

    Raises:
        NotCompared: onnxruntime cannot run `source`, or not both in the memory that this process may take.
        ImportError: it is not installed.
    """
    runtime = OnnxRuntime()
    try:
        wanted = runtime.plainly(source, names)(inputs)
    except RuntimeLacksMemory:
        raise NotCompared(_TOO_LARGE) from None
    except RuntimeRefuses as error:
        raise NotCompared(f"it cannot run the file read: {error}") from None
    try:
        found = runtime.plainly(result, names)(inputs)
    except RuntimeLacksMemory:
        raise NotCompared(_TOO_LARGE) from None
    except RuntimeRefuses as error:
        return Agreement(runtime.version, math.inf, tolerance, str(error))
    error = _largest(zip(wanted, found, strict=True))
    return Agreement(runtime.version, error, tolerance)


def tolerance_of(program: Program) -> float:
    """The largest difference that the rounding of a program's element types explains."""
    return max((TOLERANCE.get(t.dtype, 0.0) for t in program.terms() if is_float(t.dtype)), default=0.0)


def difference(wanted: Any, found: Any) -> float:
    """The largest difference of sampled elements, as a share of the scale; infinite if shapes or types differ.

    Besides arrays, values may be what onnxruntime gives for sequences, maps and optionals: lists of values, dicts from
    keys to values, None. Texts are equal or infinitely different.
    """
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        return _largest([(wanted[key], found[key]) for key in wanted]) if wanted.keys() == found.keys() else math.inf
    if isinstance(wanted, list) and isinstance(found, list):
        return _largest(zip(wanted, found, strict=True)) if len(wanted) == len(found) else math.inf
    if not all(isinstance(each, np.ndarray | np.generic | float | int) for each in (wanted, found)):
        return 0.0 if type(wanted) is type(found) and wanted == found else math.inf
    return _of_arrays(np.asarray(wanted), np.asarray(found))


def _largest(pairs: Iterable[tuple[Any, Any]]) -> float:
    return max((difference(a, b) for a, b in pairs), default=0.0)


def _of_arrays(wanted: Array, found: Array) -> float:
    if wanted.shape != found.shape or wanted.dtype != found.dtype:
        return math.inf
    if wanted.dtype.kind in "OSU":
        return 0.0 if np.array_equal(wanted, found) else math.inf
    step = max(1, wanted.size // _SAMPLES)
    return relative_error(*(x.reshape(-1)[::step].astype(np.float64) for x in (found, wanted)), least=1.0)
