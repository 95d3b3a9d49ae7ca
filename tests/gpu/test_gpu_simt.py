"""The SIMT checker: its machine, by texts written by hand, and the functions of the prelude."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eqsat.base.numerics import UNARY, elementwise, np_dtype
from eqsat.gpu import simt
from eqsat.gpu.build.compilers import CompileFailed
from eqsat.gpu.table.targets import TARGETS
from eqsat.program.core import make
from support import gpu_support as s

ARCH = "gfx942"
TARGET = TARGETS[ARCH]
HEAD = '#include "prelude.h"\n'


def run_text(body: str, threads: int, *arrays: np.ndarray[Any, Any], arch: str = ARCH, order: int = 0) -> None:
    """Run `EQ_KERNEL(..) probe(..) { .. }` of this body in one block."""
    text = f"{HEAD}{body}\nEQ_EXPORT(probe)\n"
    arguments = tuple(simt.Argument(a) for a in arrays)
    simt.run(text, TARGETS[arch], [simt.Call("probe", 1, threads, arguments)], order)


# The machine


def test_a_kernel_that_ran_is_not_kept_in_memory() -> None:
    """A process that checks thousands of kernels would hold them all."""
    out = np.zeros(64, np.float32)
    text = f"{HEAD}EQ_KERNEL(64) probe(float *out) {{ out[eq_lane()] = 3.f; }}\nEQ_EXPORT(probe)\n"
    simt.run(text, TARGET, [simt.Call("probe", 1, 64, (simt.Argument(out),))])
    assert (out == 3).all()
    library = str(simt.simt_library(text, TARGET))
    with pytest.raises(OSError, match="dlopen"):
        ctypes.CDLL(library, mode=os.RTLD_NOLOAD)
    ctypes.CDLL(library)
    ctypes.CDLL(library, mode=os.RTLD_NOLOAD)  # what is loaded is found


@pytest.mark.parametrize("arch", [ARCH, "gfx1100"])
def test_wave_operations_move_values_between_lanes(arch: str) -> None:
    wave = TARGETS[arch].wave
    out = np.zeros((4, wave), np.int32)
    run_text(
        """EQ_KERNEL(64) probe(int *out) {
          const int l = eq_lane();
          out[l] = eq_shuffle(l * 10, (l + 3) % EQ_WAVE);
          out[EQ_WAVE + l] = eq_shuffle_xor(l, 5);
          out[2 * EQ_WAVE + l] = eq_rotate16<4>(l);
          out[3 * EQ_WAVE + l] = eq_lanes_reduce<eq_sum_of<int>, 8>(l);
        }""",
        wave,
        out,
        arch=arch,
    )
    lane = np.arange(wave)
    np.testing.assert_array_equal(out[0], (lane + 3) % wave * 10)
    np.testing.assert_array_equal(out[1], lane ^ 5)
    np.testing.assert_array_equal(out[2], lane // 16 * 16 + (lane - 4) % 16)
    np.testing.assert_array_equal(out[3], lane.reshape(-1, 8).sum(1).repeat(8))


@pytest.mark.parametrize("order", [simt.FORWARD, simt.REVERSE, 2, 3])
def test_a_reduction_over_the_block_gives_every_thread_the_total(order: int) -> None:
    out = np.zeros(256, np.float32)
    run_text(
        """EQ_KERNEL(256) probe(float *out) {
          EQ_SHARED(float, scratch, [256 / EQ_WAVE]);
          out[eq_thread()] = eq_threads_reduce<eq_sum_of<float>, 128, 256>((float)eq_thread(), scratch);
        }""",
        256,
        out,
        order=order,
    )
    np.testing.assert_array_equal(out, np.repeat([np.arange(128).sum(), np.arange(128, 256).sum()], 128))


def test_atomics_order_floats_as_numpy_does() -> None:
    values = np.array([1.5, -2.0, 0.0, -0.0, 3.25, -7.0, 2.0, 1.0], np.float32)
    out = np.array([-np.inf, np.inf, 0, -np.inf], np.float32)
    body = """EQ_KERNEL(64) probe(const float *x, float *out) {
      if (eq_thread() >= 8) return;
      const float v = x[eq_thread()];
      eq_atomic_max(out, v);
      eq_atomic_min(out + 1, v);
      eq_atomic_sum(out + 2, v);
      eq_atomic_max(out + 3, eq_thread() == 3 ? EQ_NAN : v);
    }"""
    run_text(body, 64, values, out)
    np.testing.assert_array_equal(out, [3.25, -7.0, values.sum(), np.nan])


def test_uninitialised_local_memory_reads_as_nan() -> None:
    out = np.zeros(64, np.float32)
    run_text(
        "EQ_KERNEL(64) probe(float *out) { EQ_SHARED(float, m, [64]); out[eq_thread()] = m[eq_thread()]; }", 64, out
    )
    assert np.isnan(out).all()


def test_a_barrier_that_some_threads_never_reach_is_a_deadlock() -> None:
    with pytest.raises(
        simt.SimtError, match=r"deadlock: of 128 threads 64 wait at a barrier \(line 2\), .* 64 have ret"
    ):
        run_text("EQ_KERNEL(128) probe(int *out) { if (eq_thread() < 64) eq_barrier(); }", 128, np.zeros(1, np.int32))


def test_lanes_of_a_wave_must_meet_in_one_wave_operation() -> None:
    body = """EQ_KERNEL(64) probe(int *out) {
      if (eq_lane() < 7)
        out[0] = eq_shuffle(1, 0);
      else
        out[1] = eq_shuffle(2, 0);
    }"""
    with pytest.raises(simt.SimtError, match=r"different wave operations, lines 4 and 6"):
        run_text(body, 64, np.zeros(2, np.int32))


def test_a_text_that_does_not_compile_is_saved_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path))
    with pytest.raises(CompileFailed, match=r"a kernel does not compile: .*error.*\(source .*\.cpp, log .*\.log\)"):
        run_text("EQ_KERNEL(64) probe(int *out) { no_such_name(); }", 64, np.zeros(1, np.int32))
    (saved,) = (tmp_path / "failed").glob("*.cpp")
    assert "no_such_name" in saved.read_text()
    assert saved.with_suffix(".log").exists()


# Elementwise functions: the prelude writes out what LLVM cannot expand for AMD

POINTS = np.concatenate([np.linspace(-12, 12, 2001), [0.0, -0.0, 1e-8, -1e-8, 80.0, -80.0, np.inf, -np.inf, np.nan]])


def device_values(f: str, dtype: str, arity: int) -> tuple[np.ndarray[Any, Any], list[np.ndarray[Any, Any]]]:
    """(what the kernel gives, its operands)."""
    rng = np.random.default_rng(1)
    first = POINTS.astype(np_dtype(dtype))
    second = rng.permutation(first) if f != "pow" else np.round(rng.uniform(-3, 3, first.size)).astype(first.dtype)
    nodes = [s.array("a", first.size, dtype), s.array("b", first.size, dtype)][:arity]
    case = s.case(f, make("Un" if arity == 1 else "Bin", (f,), nodes))
    got = s.run(case, dict(zip(nodes, (first, second), strict=False)), ARCH, s.source_of([case]))
    return got[case.outputs[0]], [first, second][:arity]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("f", [f for f in UNARY if f != "not"])
def test_unary_functions_follow_numpy(f: str, dtype: str) -> None:
    got, operands = device_values(f, dtype, 1)
    with np.errstate(all="ignore"):
        expected = elementwise(f, *(x.astype(np.float64) for x in operands)).astype(got.dtype)
    rtol = {"float32": 3e-6, "float64": 1e-13}[dtype]
    atol = {"float32": 2e-7, "float64": 1e-15}[dtype]
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("f", ["pow", "mod", "min", "max", "div", "less_equal"])
def test_binary_functions_follow_numpy(f: str, dtype: str) -> None:
    got, operands = device_values(f, dtype, 2)
    with np.errstate(all="ignore"):
        expected = elementwise(f, *operands)
        if f == "mod":  # NumPy gives NaN for an infinite dividend, and so do we; an infinite divisor is left out
            keep = np.isfinite(operands[1])
            got, expected = got[keep], expected[keep]
        np.testing.assert_allclose(got, expected, rtol=1e-5 if dtype == "float32" else 1e-12, atol=1e-6)


def test_integer_functions_follow_numpy() -> None:
    a, b = s.array("a", 64, "int32"), s.array("b", 64, "int32")
    rng = np.random.default_rng(0)
    values = {a: rng.integers(-50, 50, 64).astype(np.int32), b: rng.choice([-7, -3, -1, 1, 2, 5], 64).astype(np.int32)}
    for f in ("div", "mod", "pow", "max"):
        case = s.case(f, s.bin_(f, a, b))
        got = s.run(case, values, ARCH, s.source_of([case]))[case.outputs[0]]
        np.testing.assert_array_equal(got, elementwise(f, values[a], values[b]), err_msg=f)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_round_to_nearest_even(dtype: str) -> None:
    x = s.array("x", 4096)
    case = s.case("cast", s.un(f"cast:{dtype}", x))
    values = (np.random.default_rng(0).standard_normal(4096) * 100).astype(np.float32)
    values[:6] = [np.inf, -np.inf, np.nan, 1e-7, 65519.9, 0.0]
    got = s.run(case, {x: values}, ARCH, s.source_of([case]))[case.outputs[0]]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got.astype(np.float32), values.astype(np_dtype(dtype)).astype(np.float32))
