"""Compile gates: every family, variant and type compiles for every target without spills and keeps its promises."""

from __future__ import annotations

import ctypes.util
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import gpu_support as s
import pytest

from eqsat.errors import InputError
from eqsat.gpu.catalogue import DTYPES, FAMILIES, samples, tiles
from eqsat.gpu.device import inlined
from eqsat.gpu.families import contraction
from eqsat.gpu.families.base import Kernel
from eqsat.gpu.families.contraction.tiles import Tile, legal_tiles
from eqsat.gpu.gates import Verdict, gate
from eqsat.gpu.targets import TARGETS, Target
from eqsat.numerics import itemsize


def of_interest(name: str, dtype: str, target: Target) -> bool:
    """All samples, except that the vector path computes every type in float, and bfloat16 moves like float16."""
    if dtype == "float32" or not name.startswith("product"):
        return True
    matrix = [t for t in tiles(target, dtype) if t.unit == "matrix"]
    return any(t.name in name for t in matrix[: 2 if dtype == "bfloat16" else None])


@cache
def verdicts(arch: str, dtype: str) -> tuple[list[Kernel], list[Verdict]]:
    target = TARGETS[arch]
    found = [kernel for name, kernel in samples(target, dtype) if of_interest(name, dtype, target)]
    distinct = list({k.entry: k for k in found}.values())
    try:
        return distinct, gate("\n".join(k.source for k in distinct), distinct, target)
    except InputError as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("arch", TARGETS)
def test_every_kernel_passes_its_gate(arch: str, dtype: str) -> None:
    kernels, judged = verdicts(arch, dtype)
    faults = {f"{k.family} {k.variant}": v.faults for k, v in zip(kernels, judged, strict=True) if v.faults}
    assert faults == {}
    assert len(judged) == len(kernels) > 12
    claims = {claim for kernel in kernels for claim in kernel.claims}
    assert (TARGETS[arch].matrix_instruction in claims) == (dtype in TARGETS[arch].matrix_dtypes)


def faults_of(kernel: Kernel, arch: str) -> tuple[str, ...]:
    try:
        return gate(kernel.source, [kernel], TARGETS[arch])[0].faults
    except InputError as missing:
        pytest.skip(str(missing))


def test_a_claim_that_does_not_hold_is_a_fault() -> None:
    kernel = contraction.generate(
        s.job_of(s.product(1, 64, 64, 64)), TARGETS["gfx942"], Tile("vector", 64, 64, 16, 16, 16)
    )
    assert faults_of(kernel, "gfx942") == ()
    assert faults_of(replace(kernel, claims=("v_mfma",)), "gfx942") == ("no v_mfma in its code",)


def test_a_kernel_that_spills_is_a_fault() -> None:
    tile = Tile("vector", 320, 192, 16, 16, 16, buffers=1)  # 240 sums a thread
    kernel = contraction.generate(s.job_of(s.product(1, 1024, 1024, 1024)), TARGETS["gfx1100"], tile)
    assert any("spilled" in fault for fault in faults_of(kernel, "gfx1100"))


CAS_LOOPS = {
    "gfx942": """float old = *out;
      while (!__hip_atomic_compare_exchange_strong(out, &old, old + v, __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                                   __HIP_MEMORY_SCOPE_AGENT)) {}""",
    "sm_90": """unsigned seen = *(unsigned *)out, was;
      do seen = atomicCAS((unsigned *)out, was = seen, eq_bits<unsigned>(v + eq_bits<float>(was)));
      while (seen != was);""",
}


@pytest.mark.parametrize("arch", CAS_LOOPS)
def test_compare_and_swap_loops_are_a_fault(arch: str) -> None:
    text = """#include "prelude.h"
    EQ_KERNEL(64) probe(const float *in, float *out) {
      const float v = in[eq_thread()];
      LOOP
    }"""
    kernel = Kernel("probe", "probe", "loop", text.replace("LOOP", CAS_LOOPS[arch]), 1, 64, ())
    assert faults_of(kernel, arch) == ("an atomic became a compare-and-swap loop",)


@pytest.mark.parametrize("arch", TARGETS)
@pytest.mark.parametrize("dtype", [*DTYPES, "float64"])
def test_every_tile_keeps_its_rows_apart_and_aligned(arch: str, dtype: str) -> None:
    for tile in legal_tiles(TARGETS[arch], dtype):
        size = tile.element_bytes(dtype)
        assert tile.threads(TARGETS[arch]) <= TARGETS[arch].max_threads
        assert tile.padding(dtype) * size == 16
        assert tile.depth * size % 16 == 0
        assert itemsize(dtype) <= 4 or tile.unit == "vector"


def test_every_family_says_what_it_computes_and_what_may_be_chosen() -> None:
    for name, family in FAMILIES.items():
        assert len(family.computes) > 100, name
        assert all(values for values in family.parameters(TARGETS["gfx942"], "float16").values())
    made = {kernel.family for _, kernel in samples(TARGETS["gfx942"], "float32")}
    assert made == set(FAMILIES)


HIPRTC = """
import ctypes, sys
lib = ctypes.CDLL("libamdhip64.so.5")
program = ctypes.c_void_p()
lib.hiprtcCreateProgram(ctypes.byref(program), sys.stdin.buffer.read(), b"kernels.hip", 0, None, None)
options = [b"--offload-arch=gfx90a", b"-std=c++17", b"-munsafe-fp-atomics"]
status = lib.hiprtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
size = ctypes.c_size_t()
lib.hiprtcGetProgramLogSize(program, ctypes.byref(size))
log = ctypes.create_string_buffer(size.value + 1)
lib.hiprtcGetProgramLog(program, log)
sys.exit(log.value.decode() if status else 0)
"""


def test_a_real_hiprtc_takes_the_dialect() -> None:
    """In a process of its own: it aborts where it meets a target that it does not know."""
    if ctypes.util.find_library("amdhip64") is None and not Path("/usr/lib/x86_64-linux-gnu/libamdhip64.so.5").exists():
        pytest.skip("no hiprtc here (on Debian: apt install libamdhip64-5)")
    wanted = ("every function", "product matrix_64x64x16", "sum of a product, wave", "softmax of 64")
    kernels = [kernel for name, kernel in samples(TARGETS["gfx90a"], "float32") if name in wanted]
    assert len(kernels) == len(wanted)
    text = inlined("\n".join(kernel.source for kernel in kernels))
    ran = subprocess.run([sys.executable, "-c", HIPRTC], input=text, text=True, capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr
