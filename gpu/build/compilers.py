"""Finds and runs the compilers for AMD, NVIDIA, and the host (for the SIMT checker).

Results are cached on disk by the digest of tool, flags, headers and text. No GPU is needed for any of them.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from eqsat.errors import InputError
from eqsat.gpu.code.cache import SIMT, TEMPLATES, cached, digest_of, keep_text
from eqsat.gpu.code.errors import CompileFailed
from eqsat.gpu.table.targets import Target

Sanitizer = Literal["address", "thread"]

AMD_FLAGS = (
    "-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib", "-std=c++17", "-O3",
    "-munsafe-fp-atomics",
)  # fmt: skip
"""For plain clang without a ROCm installation. Without -munsafe-fp-atomics a float atomic becomes a loop."""

HOST_FLAGS = ("-std=c++17", "-O0", "-g1", "-fPIC", "-fno-strict-aliasing", "-fvisibility-inlines-hidden", "-w")
"""For the checker, where a kernel runs once: compiling it takes longer than running it. -g1 gives the sanitizers their
lines."""

_FIRST_LLVM = {"gfx950": 20}
_COMPILE_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Tool:
    """A compiler: its command line and its version text."""

    command: tuple[str, ...]
    version: str

    @property
    def llvm(self) -> int:
        """Major LLVM version; 0 for other compilers."""
        found = re.search(r"clang version (\d+)", self.version)
        return int(found[1]) if found else 0


@cache
def _tool(command: tuple[str, ...]) -> Tool | None:
    if shutil.which(command[0]) is None:
        return None
    shown = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    return Tool(command, shown.stdout.strip()) if shown.returncode == 0 else None


@cache
def _zig() -> tuple[str, ...] | None:
    """The clang inside the ziglang package."""
    # -P: else Python looks for modules in the current folder first, where a file beside a model may be called random.py
    return (sys.executable, "-P", "-m", "ziglang") if importlib.util.find_spec("ziglang") else None


def _first(candidates: Sequence[tuple[str, ...] | None], least_llvm: int = 0) -> Tool | None:
    for command in candidates:
        tool = _tool(command) if command else None
        if tool and tool.llvm >= least_llvm:
            return tool
    return None


@cache
def host_compiler() -> Tool:
    """The C++ compiler for the SIMT checker: $CXX, g++, clang++, else zig c++.

    Raises:
        InputError: none is installed.
    """
    chosen = os.environ.get("CXX")
    zig = _zig()
    candidates = [(chosen,) if chosen else None, ("g++",), ("clang++",), (*zig, "c++") if zig else None]
    tool = _first(candidates)
    if tool is None:
        raise InputError("the SIMT checker needs a C++ compiler: install g++ or clang++, or pip install 'eqsat[simt]'")
    return tool


@cache
def amd_compiler(arch: str) -> Tool:
    """A clang with the AMDGPU back end that knows `arch`: from ROCm, the system, or ziglang.

    Raises:
        InputError: none is installed.
    """
    rocm = Path(os.environ.get("ROCM_PATH", "/opt/rocm")) / "llvm" / "bin" / "clang"
    zig = _zig()
    candidates = [(str(rocm),), *((f"clang-{v}",) for v in (22, 21, 20, 19)), (*zig, "clang") if zig else None]
    tool = _first(candidates, _FIRST_LLVM.get(arch, 19))
    if tool is None:
        raise InputError(
            f"no compiler for {arch}: install clang-{_FIRST_LLVM.get(arch, 19)} or later with lld, "
            "or pip install 'eqsat[simt]' for ziglang"
        )
    return tool


def run_compiler(tool: Tool, flags: Sequence[str], source: str, suffix: str, out: Path) -> str:
    """Compile the text `source` to `out`; the compiler's messages.

    Raises:
        CompileFailed: source and log were saved, and the message says where.
    """
    text = out.with_suffix(suffix)
    text.write_text(source)
    command = [*tool.command, *flags, str(text), "-o", str(out)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=False)
    if ran.returncode:
        raise failed(source, suffix, " ".join(command) + "\n" + ran.stderr)
    return ran.stderr


def failed(source: str, suffix: str, log: str) -> CompileFailed:
    """The error for a text that does not compile, with text and log saved for the user to look at."""
    name = digest_of(source)
    saved = keep_text("failed", f"{name}{suffix}", source)
    keep_text("failed", f"{name}.log", log)
    full = os.strerror(errno.ENOSPC)  # which the linker follows by lines about itself
    lines = [line for word in (full, "error", "") for line in log.splitlines() if word in line] or ["no message"]
    return CompileFailed(f"a kernel does not compile: {lines[0].strip()} (source {saved}, log {saved.stem}.log)")


def amd_assembly(source: str, target: Target) -> str:
    """The assembly text of a kernel source: what the compile gates read."""
    tool = amd_compiler(target.arch)
    flags = (*AMD_FLAGS, f"--offload-arch={target.arch}", f"-I{TEMPLATES}", "-S")
    key = digest_of(tool.version, flags, source)
    return cached("amd", key, ".s", lambda out: run_compiler(tool, flags, source, ".hip", out)).read_text()


def _sanitizer_flags(sanitizer: Sanitizer | None) -> tuple[str, ...]:
    return (f"-fsanitize={sanitizer}", "-fno-omit-frame-pointer") if sanitizer else ()


def simt_runtime() -> Path:
    """The scheduler of the checker as a shared library."""
    tool = host_compiler()
    flags = (*HOST_FLAGS, "-O2", f"-I{SIMT}", "-shared")
    key = digest_of(tool.version, flags, "runtime")
    source = (SIMT / "runtime.cpp").read_text()
    return cached("simt", key, ".so", lambda out: run_compiler(tool, flags, source, ".cpp", out))


def simt_library(source: str, target: Target) -> Path:
    """A kernel source compiled for the checker, as a shared library to load after `simt_runtime`."""
    tool = host_compiler()
    flags = (*HOST_FLAGS, *target.simt_defines, f"-I{TEMPLATES}", f"-I{SIMT}", "-shared")
    key = digest_of(tool.version, flags, source)
    return cached("simt", key, ".so", lambda out: run_compiler(tool, flags, source, ".cpp", out))


def _simt_object(name: str) -> Path:
    """A compiled part of the checker without instrumentation: it tells the sanitizer which accesses are ordered."""
    tool = host_compiler()
    flags = (*HOST_FLAGS, f"-I{SIMT}", "-c")
    source = (SIMT / f"{name}.cpp").read_text()
    key = digest_of(tool.version, flags, name)
    return cached("simt", key, ".o", lambda out: run_compiler(tool, flags, source, ".cpp", out))


def simt_program(source: str, target: Target, sanitizer: Sanitizer) -> Path:
    """A kernel source, the scheduler and the job driver as one program, the kernels under a sanitizer."""
    tool = host_compiler()
    flags = (*HOST_FLAGS, *target.simt_defines, f"-I{TEMPLATES}", f"-I{SIMT}", *_sanitizer_flags(sanitizer))
    key = digest_of(tool.version, flags, source, "program")

    def build(out: Path) -> None:
        kernels = out.with_name("kernels.o")
        run_compiler(tool, (*flags, "-c"), source, ".cpp", kernels)
        parts = (kernels, _simt_object("runtime"), _simt_object("driver"))
        link = [*tool.command, *_sanitizer_flags(sanitizer), "-rdynamic", *map(str, parts), "-ldl", "-o", str(out)]
        linked = subprocess.run(link, capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=False)
        if linked.returncode:
            raise failed(source, ".cpp", " ".join(link) + "\n" + linked.stderr)

    return cached("simt", key, f".{sanitizer}", build)
