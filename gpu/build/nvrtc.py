"""NVIDIA's run-time compiler through ctypes: no CUDA installation and no GPU, only the nvidia-cuda-nvrtc package."""

from __future__ import annotations

import ctypes
import importlib.util
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from eqsat.errors import InputError
from eqsat.gpu.build.compilers import failed
from eqsat.gpu.code.cache import TEMPLATES, cached, digest_of
from eqsat.gpu.table.targets import Target

LANGUAGE = ("-std=c++17", "-default-device")
"""Without the second, nvrtc 13.0 takes a lambda with a parameter of any type for a function of the host."""

FLAGS = (*LANGUAGE, "--ptxas-options=-v")
_HEADERS = tuple(sorted(path.name for path in TEMPLATES.glob("*.h")))


@dataclass(frozen=True, slots=True)
class NvidiaCode:
    """The output of nvrtc: `ptx`, and ptxas's `log` with registers, spills and shared memory per kernel."""

    ptx: str
    log: str


@cache
def _library() -> ctypes.CDLL:
    for package in ("nvidia.cu13", "nvidia.cuda_nvrtc"):
        try:
            spec = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            continue
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            for path in sorted(Path(folder, "lib").glob("libnvrtc.so.*")):
                return ctypes.CDLL(str(path))
    try:
        return ctypes.CDLL("libnvrtc.so")
    except OSError:
        raise InputError("no compiler for NVIDIA targets: pip install nvidia-cuda-nvrtc") from None


def version() -> str:
    """The version of the nvrtc library, such as '13.0'."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def _text(program: ctypes.c_void_p, what: str) -> str:
    lib = _library()
    size = ctypes.c_size_t()
    getattr(lib, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    getattr(lib, f"nvrtcGet{what}")(program, buffer)
    return buffer.value.decode(errors="replace")


def _compile(source: str, target: Target) -> NvidiaCode:
    lib = _library()
    program = ctypes.c_void_p()
    headers = [(TEMPLATES / name).read_text().encode() for name in _HEADERS]
    texts = (ctypes.c_char_p * len(headers))(*headers)
    names = (ctypes.c_char_p * len(headers))(*(name.encode() for name in _HEADERS))
    lib.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", len(headers), texts, names)
    options = [option.encode() for option in (f"--gpu-architecture={target.compiled_as}", *FLAGS)]
    status = lib.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    log = _text(program, "ProgramLog")
    code = NvidiaCode(_text(program, "PTX"), log) if status == 0 else None
    lib.nvrtcDestroyProgram(ctypes.byref(program))
    if code is None:
        raise failed(source, ".cu", log)
    return code


def nvidia_code(source: str, target: Target) -> NvidiaCode:
    """Compile a kernel text for an `sm_` target.

    Raises:
        InputError: nvrtc is not installed.
        CompileFailed: the text does not compile.
    """

    def build(out: Path) -> None:
        code = _compile(source, target)
        out.write_text(json.dumps({"ptx": code.ptx, "log": code.log}))

    path = cached("nvidia", digest_of(version(), target.compiled_as, FLAGS, source), ".json", build)
    return NvidiaCode(**json.loads(path.read_text()))
