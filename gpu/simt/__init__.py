"""The SIMT checker: runs kernel texts on the CPU, work-item by work-item, and reports their bugs.

Every work-item is a fiber with its own stack; barriers and wave operations switch fibers (runtime.cpp). The same text
that goes to a GPU is compiled for the host, with the wave width and matrix unit of that GPU. The checker detects
threads waiting at different barriers, deadlocks, and lanes in different wave operations. Thread orders (forward,
reverse, shuffled by a seed) show results that depend on the order. `run_checked` runs under AddressSanitizer (accesses
outside a buffer or outside LDS) or ThreadSanitizer (races).
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from eqsat.errors import EqsatError
from eqsat.gpu.build.compilers import Sanitizer, simt_library, simt_program, simt_runtime
from eqsat.gpu.table.targets import Target

FORWARD, REVERSE = 0, 1
"""Thread orders; any larger number is the seed of a random one."""

_one_at_a_time = threading.Lock()
_CHECK_SECONDS = 120


class SimtError(EqsatError):
    """A kernel broke a rule of the machine: the message names the kernel and the lines."""


@dataclass(frozen=True, slots=True)
class Argument:
    """A kernel argument: the address of element `offset` of a contiguous array."""

    array: np.ndarray[Any, Any]
    offset: int = 0

    @property
    def byte_offset(self) -> int:
        return self.offset * self.array.itemsize


@dataclass(frozen=True, slots=True)
class Call:
    """One launch: `blocks` blocks of `threads` work-items of the entry point."""

    entry: str
    blocks: int
    threads: int
    arguments: tuple[Argument, ...]


@cache
def _runtime() -> ctypes.CDLL:
    # Global: the kernels' libraries find the scheduler's functions in it.
    lib = ctypes.CDLL(str(simt_runtime()), mode=ctypes.RTLD_GLOBAL)
    lib.eq_simt_error.restype = ctypes.c_char_p
    return lib


@contextmanager
def _library(path: Path) -> Iterator[ctypes.CDLL]:
    """A kernel's library, closed afterwards: its queues of copies in flight (simt.h) take up to 8 MB."""
    from _ctypes import dlclose  # POSIX only, as running kernels here is

    _runtime()
    lib = ctypes.CDLL(str(path))
    try:
        yield lib
    finally:
        dlclose(lib._handle)


def run(source: str, target: Target, calls: Sequence[Call], order: int = FORWARD) -> None:
    """Run launches one after the other; arrays are read and written in place.

    Raises:
        SimtError: a barrier or wave operation went wrong.
        CompileFailed: the text does not compile for the host.
    """
    path = simt_library(source, target)
    with _one_at_a_time, _library(path) as lib:
        for call in calls:
            pointers = [
                ctypes.c_void_p(argument.array.ctypes.data + argument.byte_offset) for argument in call.arguments
            ]
            args = (ctypes.c_void_p * max(1, len(pointers)))(*map(ctypes.addressof, pointers))
            if getattr(lib, f"{call.entry}__launch")(args, call.blocks, call.threads, ctypes.c_uint(order)):
                raise SimtError(f"{call.entry}: {_runtime().eq_simt_error().decode()}")


def run_checked(source: str, target: Target, calls: Sequence[Call], sanitizer: Sanitizer, order: int = FORWARD) -> str:
    """Run launches under a sanitizer in a separate program; returns its report, '' if it found nothing.

    Arrays are written back if the program ran to its end.
    """
    program = simt_program(source, target, sanitizer)
    arrays = {id(a.array): a.array for call in calls for a in call.arguments}
    names = {key: f"b{i}" for i, key in enumerate(arrays)}
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder, "job")
        job.write_text("\n".join(_job(calls, arrays, names, order, folder)))
        options = "exitcode=66:halt_on_error=1:detect_leaks=0:report_signal_unsafe=0"
        env = {**os.environ, "ASAN_OPTIONS": options + ":detect_stack_use_after_return=0", "TSAN_OPTIONS": options}
        ran = subprocess.run(
            [str(program), str(job)], capture_output=True, text=True, env=env, timeout=_CHECK_SECONDS, check=False
        )
        for key, array in arrays.items():
            saved = Path(folder, f"{names[key]}.out")
            if saved.exists():
                array.reshape(-1).view(np.uint8)[:] = np.frombuffer(saved.read_bytes(), np.uint8)
        return ran.stderr if ran.returncode else ""


def _job(
    calls: Sequence[Call], arrays: Mapping[int, np.ndarray[Any, Any]], names: Mapping[int, str], order: int, folder: str
) -> list[str]:
    """The lines of driver.cpp's job file; writes the buffers' contents into `folder`."""
    lines = []
    for key, array in arrays.items():
        content = Path(folder, f"{names[key]}.in")
        content.write_bytes(array.tobytes())
        lines.append(f"buffer {names[key]} {array.nbytes} {content}")
    for call in calls:
        args = " ".join(f"{names[id(a.array)]} {a.byte_offset}" for a in call.arguments)
        lines.append(f"launch {call.entry} {call.blocks} {call.threads} {order} {args}")
    lines += [f"save {name} {folder}/{name}.out" for name in names.values()]
    return lines
