"""Compile gates: every family, variant and type compiles for every target without spills and keeps its promises."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import gpu_support as s
import pytest

from eqsat.core import Node, make
from eqsat.errors import InputError
from eqsat.gpu.families import contraction
from eqsat.gpu.families.base import Kernel
from eqsat.gpu.families.contraction.tiles import Tile, legal_tiles
from eqsat.gpu.gates import Verdict, gate
from eqsat.gpu.targets import TARGETS, Target
from eqsat.numerics import itemsize

DTYPES = ("float32", "float16", "bfloat16")
SIZE = 1024  # a multiple of every tile; the odd sizes below are of none


def kernels_of(*outputs: Node, target: Target, units: int = 300) -> list[Kernel]:
    return list(s.case("", *outputs, arch=target.arch, units=units).chain.kernels)


def pointwise_kernels(target: Target, dtype: str) -> list[Kernel]:
    x, row = s.array("x", SIZE * SIZE, dtype), s.array("row", SIZE, dtype)
    unary = ("exp", "log", "erf", "tanh", "sigmoid", "log1p", "sin", "rsqrt", "round", "sign")
    y = x
    for f in unary:
        y = s.un(f, y)
    turned = s.transposed(s.bin_("add", x, s.along_rows(row, SIZE)), (SIZE, SIZE), (1, 0))
    return [
        *kernels_of(y, target=target),
        *kernels_of(turned, s.bin_("pow", x, s.un("abs", x)), target=target),
        *kernels_of(make("Cat", (), (x, s.bin_("mod", x, y))), target=target),
    ]


def contraction_kernels(target: Target, dtype: str) -> list[Kernel]:
    tiles = [t for t in legal_tiles(target, dtype) if t.lds_bytes(dtype) <= target.lds_bytes]
    if dtype != "float32":  # the vector path computes every type in float, and bfloat16 moves like float16
        tiles = [t for t in tiles if t.unit == "matrix"][: 2 if dtype == "bfloat16" else None]
    whole, odd = (s.with_bias_and_relu(s.product(1, n, n, n, dtype)) for n in (SIZE, 1021))
    found = [contraction.generate(s.job_of(whole), target, tile) for tile in tiles]
    found += [contraction.generate(s.job_of(odd), target, tile) for tile in tiles[:2]]
    turned = s.transposed(whole, (SIZE, SIZE), (1, 0))
    return [*found, contraction.generate(s.job_of(turned), target, tiles[0])]


def reducing_kernels(target: Target) -> list[Kernel]:
    found = []
    for combine in ("atomic", "lds", "wave"):
        for f in ("sum", "max"):
            out = s.reduced(f, s.with_bias_and_relu(s.product(1, SIZE, SIZE, SIZE)), SIZE)
            found.append(contraction.generate(s.job_of(out), target, combine=combine))
    return found


def row_kernels(target: Target, dtype: str) -> list[Kernel]:
    x = s.array("x", SIZE * SIZE, dtype)
    outs = [s.softmax(SIZE, 64, dtype), s.softmax(SIZE, 16384, dtype), s.layernorm(SIZE, 768, dtype)]
    outs += [s.reduced("argmax", x, SIZE), s.reduced("sum", s.transposed(x, (SIZE, SIZE), (1, 0)), SIZE)]
    outs += [s.layernorm(SIZE, 65536, dtype), s.reduced("max", x, SIZE * SIZE)]
    return [k for out in outs for k in kernels_of(out, target=target)]


@cache
def verdicts(arch: str, dtype: str) -> tuple[list[Kernel], list[Verdict]]:
    target = TARGETS[arch]
    found = [*pointwise_kernels(target, dtype), *contraction_kernels(target, dtype), *row_kernels(target, dtype)]
    if dtype == "float32":
        found += reducing_kernels(target)
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
