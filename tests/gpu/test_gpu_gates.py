"""Compile gates: each family, variant and type compiles for every target, without spills, to the right instructions."""

from __future__ import annotations

import ctypes.util
import runpy
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from eqsat.base.numerics import itemsize
from eqsat.errors import InputError
from eqsat.gpu.build.gates import Verdict, gate, judged
from eqsat.gpu.catalogue import FAMILIES, made, samples
from eqsat.gpu.catalogue import verdicts as judged_variants
from eqsat.gpu.families import contraction
from eqsat.gpu.families.base import Choice, Kernel
from eqsat.gpu.launch import generate
from eqsat.gpu.run.cupy_runtime import inlined
from eqsat.gpu.table.limits import OPERANDS
from eqsat.gpu.table.occupancy import MEASURED, table
from eqsat.gpu.table.targets import TARGETS
from eqsat.gpu.table.tiles import Tile, legal_tiles
from support import columns, late
from support import gpu_support as s

Judged = dict[str, tuple[Kernel, Verdict]]


@cache
def verdicts(arch: str, dtype: str) -> Judged:
    """Every variant, by name, with the judgement of its gate."""
    try:
        return judged_variants(TARGETS[arch], dtype)
    except InputError as missing:
        pytest.skip(str(missing))


def faults(found: Judged) -> dict[str, tuple[str, ...]]:
    return {name: verdict.faults for name, (_, verdict) in found.items() if verdict.faults}


@pytest.mark.parametrize("dtype", OPERANDS)
@pytest.mark.parametrize("arch", TARGETS)
def test_every_variant_passes_its_gate(arch: str, dtype: str) -> None:
    found = verdicts(arch, dtype)
    assert faults(found) == {}
    assert {kernel.family for kernel, _ in found.values()} == set(FAMILIES)
    claims = {claim for kernel, _ in found.values() for claim in kernel.claims}
    assert (TARGETS[arch].matrix_instruction in claims) == (dtype in TARGETS[arch].matrix_dtypes)


@pytest.mark.parametrize(("arch", "dtype"), [("gfx90a", "float32"), ("gfx942", "float16"), ("gfx1100", "bfloat16"),
                                             ("gfx1201", "float32"), ("sm_90", "float16")])  # fmt: skip
def test_every_example_passes_its_gate(arch: str, dtype: str) -> None:
    kernels = {
        f"{family.name}: {name}, {sizes}, {i}": kernel
        for family in FAMILIES.values()
        for sizes in family.sizes[1:]  # samples have the first ones
        for name, outputs in family.examples(sizes, dtype).items()
        for i, kernel in enumerate(made(outputs, TARGETS[arch], Choice()))
    }
    try:
        found = judged(kernels, TARGETS[arch])
    except InputError as missing:
        pytest.skip(str(missing))
    assert faults(found) == {}


@pytest.mark.parametrize("arch", TARGETS)
def test_streams_of_columns_pass_their_gates(arch: str) -> None:
    """At sizes that no vector divides, where most registers are needed."""
    sizes = FAMILIES["stream"].sizes[-1]
    kernels = {
        f"{name}, {dtype}, {i}": kernel
        for dtype in ("float32", "float16")
        for name, output in (("attention", columns.attention(sizes, dtype)), ("chain", columns.chain(sizes, dtype)))
        for i, kernel in enumerate(
            generate.chain("stream", (output,), s.inputs_of((output,)), TARGETS[arch], 4).kernels
        )
    }
    try:
        found = judged(kernels, TARGETS[arch])
    except InputError as missing:
        pytest.skip(str(missing))
    assert faults(found) == {}


@pytest.mark.parametrize("arch", TARGETS)
def test_totals_behind_products_pass_their_gates(arch: str) -> None:
    kernels = {
        f"{name}, {dtype}, {sizes}": kernel
        for dtype in ("float32", "float16")
        for sizes in FAMILIES["stream"].sizes
        for name, output in late.examples(sizes, dtype).items()
        for kernel in generate.chain("stream", (output,), s.inputs_of((output,)), TARGETS[arch], 4).kernels
    }
    try:
        found = judged(kernels, TARGETS[arch])
    except InputError as missing:
        pytest.skip(str(missing))
    assert faults(found) == {}


@pytest.mark.parametrize("name", ["a product", "left padded along k", "right looked-up columns"])
def test_large_tiles_of_warpgroups_hold_operands_that_come_element_by_element(name: str) -> None:
    outputs = FAMILIES["contraction"].examples((1, 1021, 1021, 1021), "float16")[name]
    (kernel,) = made(outputs, TARGETS["sm_90"], Choice(tile="matrix_wgmma_128x256x64", slices=1))
    assert "cp.async" not in kernel.claims
    assert faults_of(kernel, "sm_90") == ()


@pytest.mark.parametrize("dtype", MEASURED)
@pytest.mark.parametrize("arch", TARGETS)
def test_the_table_of_occupancy_is_current(arch: str, dtype: str) -> None:
    """If not: python benchmarks/occupancy.py. Compilers' versions differ in some registers."""
    kept = table()[arch][dtype]
    found = {name: verdict.resources for name, (_, verdict) in verdicts(arch, dtype).items()}
    assert kept.keys() == found.keys()
    for name, (registers, lds, _, most) in kept.items():
        assert (lds, most) == (found[name].lds, found[name].most_waves), name
        assert abs(registers - found[name].registers) <= 16 + registers // 4, name


def test_the_page_shows_the_table_of_occupancy() -> None:
    script = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "occupancy.py"))
    text = script["PAGE"].read_text()
    assert script["with_table"](text, table()) == text


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
@pytest.mark.parametrize("dtype", [*OPERANDS, "float64"])
def test_every_tile_keeps_its_rows_apart_and_aligned(arch: str, dtype: str) -> None:
    for tile in legal_tiles(TARGETS[arch], dtype):
        size = tile.element_bytes(dtype)
        assert tile.threads(TARGETS[arch]) <= TARGETS[arch].max_threads
        assert tile.padding(dtype) * size == (0 if tile.permuted else 16)
        assert tile.depth * size % 16 == 0
        room = TARGETS[arch].most_lds_bytes if tile.at_launch else TARGETS[arch].lds_bytes
        assert tile.lds_bytes(dtype) <= room
        assert itemsize(dtype) <= 4 or tile.unit == "vector"


def test_every_family_says_what_it_computes_and_what_may_be_chosen() -> None:
    for name, family in FAMILIES.items():
        assert len(family.computes) > 100, name
        assert all(values for values in family.parameters(TARGETS["gfx942"], "float16").values())
    assert FAMILIES["contraction+reduction"].parameters(TARGETS["gfx942"], "float16")["combine"] == list(
        contraction.COMBINES
    )


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
    kernels = list({kernel.family: kernel for _, kernel in samples(TARGETS["gfx90a"], "float32")}.values())
    assert {kernel.family for kernel in kernels} == set(FAMILIES)
    text = inlined("\n".join(kernel.source for kernel in kernels))
    ran = subprocess.run([sys.executable, "-c", HIPRTC], input=text, text=True, capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr
