"""The SIMT checker: correct kernels pass in every order, and each planted bug is caught."""

from __future__ import annotations

import ctypes
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eqsat.base.numerics import UNARY, elementwise, np_dtype
from eqsat.gpu import simt
from eqsat.gpu.build.compilers import CompileFailed, Sanitizer, host_compiler
from eqsat.gpu.families import contraction
from eqsat.gpu.families.base import Choice, Kernel
from eqsat.gpu.families.expressions import times, transposed
from eqsat.gpu.families.group import grouped
from eqsat.gpu.families.row.examples import examples as row_examples
from eqsat.gpu.families.stream.examples import attention, examples, gated
from eqsat.gpu.launch.generate import Chain
from eqsat.gpu.run.cupy_runtime import inlined
from eqsat.gpu.table.targets import TARGETS
from eqsat.gpu.table.tiles import Tile, choose_tile
from eqsat.layout import arithmetic as lay
from eqsat.program.core import make
from support import gpu_support as s

ARCH = "gfx942"
TARGET = TARGETS[ARCH]
SMALL = Tile("vector", 16, 64, 16, 4, 16)
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


# Planted bugs. Each is one change of a generated kernel that is right.


def product_kernel(reduce: bool) -> s.Case:
    out = s.with_bias_and_relu(s.product(1, 40, 40, 70))
    out = s.reduced("sum", out, 70) if reduce else out
    kernel = contraction.generate(s.job_of(out), TARGET, SMALL, "atomic")
    return s.case_of("product", kernel, out)


def with_text(case: s.Case, old: str, new: str) -> s.Case:
    """The case with its kernel's text changed in one place."""
    (kernel,) = case.chain.kernels
    assert old in kernel.source
    changed = replace(kernel, source=kernel.source.replace(old, new, 1))
    return replace(case, chain=replace(case.chain, kernels=(changed,)))


MISSING_BARRIER = ("    }\n    eq_barrier();\n  }\n", "    }\n  }\n")
GLOBAL_OVERRUN = ("if (line < 40)", "if (line < 41)")
LOCAL_OVERRUN = ("EQ_SHARED(eq_chunk, lds, [", "EQ_SHARED(eq_chunk, lds, [-8 + ")
PLAIN_ADD = ("eq_atomic_sum(out0 + place0, total0);", "out0[place0] += total0;")
DIVERGENT_BARRIER = ("eq_barrier();\n  for (int step", "if (t < 32) eq_barrier();\n  for (int step")


def result(case: s.Case, order: int = 0) -> bool:
    """Whether the kernel gives NumPy's results in this order."""
    try:
        s.check([case], ARCH, order)
    except AssertionError:
        return False
    return True


def sanitizer_report(case: s.Case, sanitizer: Sanitizer, arch: str = ARCH) -> str:
    values = s.random_values(case.inputs)
    memory = s.memory_of(case, values)
    (kernel,) = case.chain.kernels
    for node, value in kernel.fills.items():
        memory[node].fill(value)
    return simt.run_checked(kernel.source, TARGETS[arch], [s.call_of(kernel, memory)], sanitizer)


TRIAL = b"int main(int n, char **) { volatile int *p = new int[n]; p[0] = n; n -= p[0]; delete[] p; return n; }"


def has_sanitizer(name: Sanitizer, folder: Path) -> bool:
    """Whether the host compiler makes programs under a sanitizer, and they run."""
    program = folder / "trial"
    command = [*host_compiler().command, "-x", "c++", "-", f"-fsanitize={name}", "-o", str(program)]
    made = subprocess.run(command, input=TRIAL, capture_output=True, check=False).returncode == 0
    return made and subprocess.run([str(program)], capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Sanitizer:
    if not has_sanitizer("address", tmp_path_factory.mktemp("trial")):
        pytest.skip("the host compiler has no AddressSanitizer")
    return "address"


@pytest.fixture(scope="module")
def thread(tmp_path_factory: pytest.TempPathFactory) -> Sanitizer:
    if not has_sanitizer("thread", tmp_path_factory.mktemp("trial")):
        pytest.skip("the host compiler has no ThreadSanitizer")
    return "thread"


def line_of(kernel: Kernel, text: str) -> int:
    return kernel.source[: kernel.source.index(text)].count("\n") + 1


def test_the_unchanged_kernels_pass(address: Sanitizer, thread: Sanitizer) -> None:
    for reduce in (False, True):
        case = product_kernel(reduce)
        assert all(result(case, order) for order in (0, 1, 2, 3))
        assert sanitizer_report(case, address) == ""
        assert sanitizer_report(case, thread) == ""


def test_every_family_is_free_of_races_and_overruns(address: Sanitizer, thread: Sanitizer) -> None:
    x = s.array("x", 6 * 20)
    matrix = contraction.generate(s.job_of(out := s.product(1, 20, 40, 36, "float16")), TARGET)
    second = s.product(1, 9, 40, 17, "float16")
    group = grouped([matrix, contraction.generate(s.job_of(second), TARGET, Tile("matrix", 32, 32, 32, 2, 2))])
    cases = [
        s.case_of("matrix units", matrix, out),
        s.case("softmax", s.softmax(2, 300)),
        s.case("attention", attention((1, 9, 70, 12), "float16")),
        s.case("a gated product", gated((1, 9, 70, 12), s.array("x", 9 * 70))),
        normed_attention(),
        s.case("slices of k", s.product(1, 20, 256, 36, "float16"), choice=Choice(slices=3)),
        s.case("across", s.reduced("sum", s.transposed(x, (20, 6), (1, 0)), 20)),
        norm_across(),
        s.case("pointwise", make("Cat", (), (s.un("exp", x), s.array("y", 7)))),
        s.case("turned", s.un("neg", s.transposed(s.array("z", 20 * 40), (20, 40), (1, 0)))),
        s.Case("group", (out, second), Chain((group,))),
    ]
    memories = [s.memory_of(case, s.random_values(case.inputs)) for case in cases]
    calls = [s.call_of(case.chain.kernels[0], memory) for case, memory in zip(cases, memories, strict=True)]
    for sanitizer in (address, thread):
        assert simt.run_checked(s.source_of(cases), TARGET, calls, sanitizer) == ""


def normed_attention() -> s.Case:
    """Attention whose keys have statistics, which all threads make and read."""
    (out,) = examples((1, 9, 70, 12), "float32")["attention of normed queries and keys"]
    return s.case("normed attention", out)


def norm_across() -> s.Case:
    """A norm over a middle axis: threads lie along its rows, and need the totals of slices of the block twice."""
    (out, *_) = row_examples((2, 20, 30, 1), "float32")["a norm over a middle axis, its scale and its maximum"]
    case = s.case("norm across", out)
    assert [k.variant.startswith("across") for k in case.chain.kernels] == [True]
    return case


BARRIERS: dict[str, tuple[s.Case, tuple[str, str]]] = {
    "product": (product_kernel(False), MISSING_BARRIER),
    "reduction across rows": (
        s.case("sums", s.reduced("sum", s.transposed(s.array("x", 4000), (100, 40), (1, 0)), 100)),
        ("eq_barrier();", ""),
    ),
    "totals of a norm across rows": (norm_across(), ("  eq_barrier();\n  eq_run<", "  eq_run<")),
    "squares": (
        s.case("turned", s.un("neg", s.transposed(s.array("x", 800), (20, 40), (1, 0)))),
        ("eq_barrier();", ""),
    ),
    "inner products of a stream": (
        s.case("attention", attention((1, 9, 70, 12), "float32")),
        ("    eq_barrier();\n  };", "  };"),
    ),
    "statistics of a stream": (
        normed_attention(),
        ("tile_of_statistic1[place] = part;\n    }\n    eq_barrier();", "tile_of_statistic1[place] = part;\n    }"),
    ),
    "products of a stream": (
        s.case("gated", gated((1, 9, 70, 12), s.array("x", 9 * 70))),
        ("    store_v1(0);\n    eq_barrier();", "    store_v1(0);"),
    ),
}
"""A kernel of each template with barriers of its own, and how one goes missing."""


@pytest.mark.parametrize("name", BARRIERS)
def test_a_missing_barrier_gives_wrong_results(name: str) -> None:
    case = with_text(BARRIERS[name][0], *BARRIERS[name][1])
    assert not all(result(case, order) for order in (0, 1, 2, 3))


@pytest.mark.parametrize("name", BARRIERS)
def test_a_missing_barrier_is_a_race(name: str, thread: Sanitizer) -> None:
    report = sanitizer_report(with_text(BARRIERS[name][0], *BARRIERS[name][1]), thread)
    assert "data race" in report


JOINS = {
    "a block that arrives before all its threads have written": ("eq_publish();\n  eq_barrier();", "eq_publish();"),
    "a counter that is no atomic": ("eq_arrive(", "[](int *counter) { return (*counter)++; }("),
}
"""How slices of k may be joined wrongly, which no order of whole blocks shows."""


@pytest.mark.parametrize("name", JOINS)
def test_blocks_that_do_not_wait_for_each_other_are_a_race(name: str, thread: Sanitizer) -> None:
    assert sanitizer_report(slices_of_k(), thread) == ""
    assert "data race" in sanitizer_report(with_text(slices_of_k(), *JOINS[name]), thread)


@pytest.mark.parametrize("change", [("for (int s = 1;", "for (int s = 2;"), ("] = 0;", "] = 1;")])
def test_a_slice_left_out_or_a_counter_left_behind_is_noticed(change: tuple[str, str]) -> None:
    assert result(slices_of_k())
    assert not result(with_text(slices_of_k(), *change))


def slices_of_k() -> s.Case:
    return s.case("slices", s.with_bias_and_relu(s.product(1, 20, 256, 36)), choice=Choice(slices=3))


def two_walks() -> s.Case:
    """relu(x @ a) @ b + y @ w: the second walk writes to LDS where the first one reads its left operands."""
    x, y = s.array("x", 60 * 70), s.array("y", 60 * 70)
    hidden = s.un("relu", s.times((1, 60, 70, 40), x, s.array("a", 70 * 40)))
    first = s.times((1, 60, 40, 12), hidden, s.array("b", 40 * 12))
    out = s.bin_("add", first, s.times((1, 60, 70, 12), y, s.array("w", 70 * 12)))
    return s.case("two walks", out, choice=Choice(tile="matrix_64x32x64"))


def test_walks_that_do_not_wait_for_each_other_are_a_race(thread: Sanitizer) -> None:
    missing = with_text(two_walks(), "  }\n  eq_barrier();\n  {", "  }\n  {")
    assert ["data race" in sanitizer_report(case, thread) for case in (two_walks(), missing)] == [False, True]


def copying_product() -> s.Case:
    """A product whose tiles are copied into LDS ahead of their use, in three stages."""
    out = s.product(1, 40, 200, 72, "float16")
    kernel = contraction.generate(s.job_of(out), TARGETS["sm_90"], Tile("matrix", 32, 32, 32, 2, 2))
    assert "eq_copy_wait<1>();" in kernel.source
    return s.case_of("copies", kernel, out)


def test_a_copy_that_is_not_waited_for_gives_wrong_results() -> None:
    for old, new in (("eq_copy_wait<1>();", ""), ("eq_copy_wait<1>();", "eq_copy_wait<2>();")):
        with pytest.raises(AssertionError):
            s.check([with_text(copying_product(), old, new)], "sm_90")


def test_copies_that_overtake_readers_are_a_race(thread: Sanitizer) -> None:
    late = "eq_barrier();  // this step's tiles are there"
    for case, found in ((copying_product(), False), (with_text(copying_product(), late, "//"), True)):
        assert ("data race" in sanitizer_report(case, thread, "sm_90")) == found


def test_a_plain_add_to_a_shared_result_is_a_race(thread: Sanitizer) -> None:
    case = with_text(product_kernel(True), *PLAIN_ADD)
    report = sanitizer_report(case, thread)
    assert "data race" in report
    assert f":{line_of(case.chain.kernels[0], PLAIN_ADD[1])} " in report


def test_a_global_access_out_of_bounds_is_named_by_its_line(address: Sanitizer) -> None:
    case = with_text(product_kernel(False), *GLOBAL_OVERRUN)
    report = sanitizer_report(case, address)
    assert "heap-buffer-overflow" in report
    assert f"{case.chain.kernels[0].entry}" in report


def test_a_local_access_out_of_bounds_is_caught(address: Sanitizer) -> None:
    assert "heap-buffer-overflow" in sanitizer_report(with_text(product_kernel(False), *LOCAL_OVERRUN), address)


def test_a_divergent_barrier_is_an_error_that_names_both_lines() -> None:
    case = with_text(product_kernel(False), *DIVERGENT_BARRIER)
    first = line_of(case.chain.kernels[0], DIVERGENT_BARRIER[1])
    with pytest.raises(simt.SimtError, match=rf"different barriers, lines {first} and \d+"):
        s.check([case], ARCH)


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


WRONG_MAPS = [
    ("gfx942", "matrix_16x16x32", "eq_lane() / edge * 4 + i % 4;", "eq_lane() / edge + i % 4 * 4;"),
    (
        "gfx942",
        "matrix32_64x64x32",
        "return i / 4 * 8 + eq_lane() / edge * 4",
        "return i / 4 * 4 + eq_lane() / edge * 16",
    ),
    ("gfx942", "matrix32_64x64x32", "eq_lane() % edge / 16 * far", "eq_lane() / 32 * far"),
    ("gfx950", "matrix_16x16x32", "eq_lane() / edge * run);", "eq_lane() / edge * run / 2);"),
    ("gfx1100", "matrix_16x16x32", "return 2 * i + eq_lane() / 16;", "return i + eq_lane() / 16 * 8;"),
    ("gfx1201", "matrix_16x16x32", "ld + eq_lane() / 16 * 8);", "ld + eq_lane() / 16 * 4);"),
    ("sm_90", "matrix_16x16x32", "eq_lane() % 4 * 2 + i % 2 + 8 * (i / 4)", "eq_lane() % 4 * 2 + i % 2 + 4 * (i / 4)"),
]


@pytest.mark.parametrize(("arch", "tile", "old", "new"), WRONG_MAPS)
def test_a_wrong_fragment_map_gives_wrong_results(arch: str, tile: str, old: str, new: str) -> None:
    out = s.product(1, 64, 32, 64, "float16")
    chosen = choose_tile(TARGETS[arch], (1, 64, 32, 64), "float16", 4, tile)
    kernel = contraction.generate(s.job_of(out), TARGETS[arch], chosen)
    whole = replace(kernel, source=inlined(kernel.source))
    right = s.case_of("right", whole, out)
    s.check([right], arch)
    assert old in whole.source
    wrong = s.case_of("wrong", replace(whole, source=whole.source.replace(old, new)), out)
    with pytest.raises(AssertionError):
        s.check([wrong], arch)


WRONG_LOADS = {
    "nobody waits": ("eq_copy_wait<0>();", ""),
    "lanes of a wave out of order": ("t + i * 256", "(t ^ t % 2 * 32) + i * 256"),
    "rows mixed in one way and read in another": ("unit::read_mixed<2, 4>", "unit::read_mixed<4, 4>"),
}


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("fault", WRONG_LOADS)
def test_a_wrong_direct_load_gives_wrong_results(arch: str, fault: str) -> None:
    sizes = (1, 64, 64, 64)
    x, w = s.array("x", 64 * 64, "float16"), s.array("w", 64 * 64, "float16")
    out = times(sizes, x, transposed(w, (1, 64, 64), (0, 2, 1)))
    tile = choose_tile(TARGETS[arch], sizes, "float16", 4, "matrix32_direct_64x64x32")
    kernel = contraction.generate(s.job_of(out), TARGETS[arch], tile)
    assert "global_load_lds" in kernel.claims
    s.check([s.case_of("right", kernel, out)], arch)
    old, new = WRONG_LOADS[fault]
    assert old in kernel.source
    wrong = s.case_of(fault, replace(kernel, source=kernel.source.replace(old, new)), out)
    with pytest.raises(AssertionError):
        s.check([wrong], arch)


WRONG_GROUPS = {
    "nobody waits for the last products": ("eq_wgmma_wait<0>();\n  eq_barrier();", "eq_barrier();"),
    "products are not committed": ("eq_wgmma_commit();", ""),
    "writes to LDS are not published": ("eq_async_fence();", ""),
    "rows in another distance": (" + k, 8192, 1024)", " + k, 8192, 512)"),
    "blocks of a turned tile in another distance": (" + k * 64, 8192, 1024)", " + k * 64, 4096, 1024)"),
    "k of a turned tile in another distance": (" + k * 64, 8192, 1024)", " + k * 64, 8192, 512)"),
    "chunks permuted in another way": ("^ row / 1 % 8 * 8", "^ row / 1 % 4 * 8"),
}
"""How products of warpgroups may go wrong without an error."""

REFUSED_GROUPS = {
    "operands are overwritten while they are read": (
        ("eq_wgmma_wait<1>();", ""),
        "operands of a wgmma changed while it ran",
    ),
    "writes are published before they are done": (
        ("eq_copy_wait<1>();\n    eq_async_fence();", "eq_async_fence();\n    eq_copy_wait<1>();"),
        "operands of a wgmma changed while it ran",
    ),
    "no fence between other uses of sums and products": (("eq_wgmma_begin();", ""), "a wgmma on sums that were used"),
    "waves disagree": (
        ("+ rows * 4096 + k, ", "+ rows * 4096 + t / 32 * 1024 + k, "),
        "waves of a warpgroup name different operands",
    ),
    "lanes disagree": (("+ rows * 4096 + k, ", "+ rows * 4096 + t % 32 * 1024 + k, "), "lanes name different operands"),
    "blocks too far apart": ((" + k * 64, 8192, ", " + k * 64, 131072, "), "a wgmma reads outside of local memory"),
    "a lane takes no part": (
        ("multiply(step % 4);", "if (t % 32 < 31) multiply(step % 4);"),
        "lanes of one wave meet in different wave operations",
    ),
}
"""How they may go wrong so that the checker can name it."""


def grouped_product() -> s.Case:
    """A product of two warpgroups whose tiles are copied into LDS two steps ahead, b as it lies, along n."""
    out = s.product(1, 100, 330, 136, "float16")
    target = TARGETS["sm_90"]
    tile = choose_tile(target, (1, 100, 330, 136), "float16", 4, "matrix_wgmma_128x128x64")
    kernel = contraction.generate(s.job_of(out), target, tile)
    assert {"wgmma.mma_async", "cp.async"} <= set(kernel.claims)
    return s.case_of("warpgroups", kernel, out)


def test_products_of_warpgroups_are_right_in_every_order(address: Sanitizer, thread: Sanitizer) -> None:
    case = grouped_product()
    for order in (0, 1, 2):
        s.check([case], "sm_90", order)
    assert sanitizer_report(case, address, "sm_90") == sanitizer_report(case, thread, "sm_90") == ""


@pytest.mark.parametrize("fault", WRONG_GROUPS)
def test_a_fault_of_warpgroups_gives_wrong_results(fault: str) -> None:
    with pytest.raises(AssertionError):
        s.check([with_text(grouped_product(), *WRONG_GROUPS[fault])], "sm_90")


@pytest.mark.parametrize("fault", REFUSED_GROUPS)
def test_a_fault_of_warpgroups_is_named(fault: str) -> None:
    change, message = REFUSED_GROUPS[fault]
    with pytest.raises(simt.SimtError, match=message):
        s.check([with_text(grouped_product(), *change)], "sm_90")


def test_operands_of_warpgroups_without_a_barrier_are_a_race(thread: Sanitizer) -> None:
    late = "eq_barrier();  // this step's tiles are there"
    assert "data race" in sanitizer_report(with_text(grouped_product(), late, "//"), thread, "sm_90")


REFUSED_BOXES = {
    "nobody waits for copies": (
        ("eq_meeting_wait(full + turn % 4, turn / 4 % 2);", ""),
        0,
        "more arrivals than an mbarrier expects",
    ),
    "another phase is waited for": (
        ("eq_meeting_wait(full + turn % 4, turn / 4 % 2);", "eq_meeting_wait(full + turn % 4, 0);"),
        1,
        "deadlock: .* 256 at an mbarrier",
    ),
    "a stage is filled before it is empty": (
        ("eq_meeting_wait(empty + before, (turn - 1) / 4 % 2);", ""),
        7,
        "operands of a wgmma changed while it ran",
    ),
    "a stage is called empty too early": (
        ("eq_wgmma_wait<1>();", ""),
        1,
        "operands of a wgmma changed while it ran",
    ),
    "another stage is filled": (
        ("fetch(next, before);", "fetch(next, (before + 1) % 4);"),
        1,
        "operands of a wgmma changed while it ran",
    ),
    "nobody says that a stage is empty": (
        ("if (eq_lane() == 0) eq_meeting_arrive(empty + before);", ""),
        0,
        "deadlock: .* 225 at an mbarrier",
    ),
    "fewer bytes are expected": (
        ("(full + stage, 32768);", "(full + stage, 32752);"),
        0,
        "deadlock: .* 256 at an mbarrier",
    ),
    "meetings are not published": (("      eq_async_fence();", ""), 0, "an mbarrier that is not published"),
    "a map is not acquired": (("eq_map_acquire(maps + 128);", ""), 0, "a tensor map that its thread has not acquired"),
    "a map is not published": (("eq_map_publish(maps + 128, maps_here + 128);", ""), 0, "no tensor map there"),
    "a map is not cleared": (("((unsigned *)maps_here)[i] = 0;", ""), 0, "a tensor map that was not cleared"),
    "a box is wider than its pattern": (("swizzle_mode<3>", "swizzle_mode<2>"), 0, "a box wider than its pattern"),
    "lines are not aligned": (("100, 392, 128);", "100, 396, 128);"), 0, "lines are not at multiples of 16 bytes"),
    "a copy is left under way": (
        ("&& next < 7", "&& next < 8"),
        0,
        "copies are under way when the block ends",
    ),
}
"""How copies of boxes may go wrong, in which order that shows, and what the checker says."""


def boxed_product() -> s.Case:
    """A product of two warpgroups whose tiles come as boxes, seven of them in four stages, ragged along every edge."""
    choice = Choice(tile="matrix_wgmma_bulk_128x128x64", slices=1)
    case = s.case("boxes", s.product(1, 100, 392, 136, "float16"), arch="sm_90", choice=choice)
    (kernel,) = case.chain.kernels
    assert {"cp.async.bulk.tensor", "mbarrier.try_wait"} <= set(kernel.claims)
    whole = replace(kernel, source=inlined(kernel.source))
    return replace(case, chain=replace(case.chain, kernels=(whole,)))


def test_copies_of_boxes_are_right_in_every_order(address: Sanitizer, thread: Sanitizer) -> None:
    case = boxed_product()
    for order in (0, 1, 2, 3):
        s.check([case], "sm_90", order)
    assert sanitizer_report(case, address, "sm_90") == sanitizer_report(case, thread, "sm_90") == ""


@pytest.mark.parametrize("fault", REFUSED_BOXES)
def test_a_fault_of_boxes_is_named(fault: str) -> None:
    change, order, message = REFUSED_BOXES[fault]
    with pytest.raises(simt.SimtError, match=message):
        s.check([with_text(boxed_product(), *change)], "sm_90", order)


def test_boxes_of_another_pattern_give_wrong_results() -> None:
    with pytest.raises(AssertionError):
        s.check([with_text(boxed_product(), "swizzle_mode<3>", "swizzle_mode<0>")], "sm_90")


OTHER_OPERANDS = {
    "lines at other places": lambda n: s.view(lay.strided(0, ((100, 393), (n, 1))), s.array("x", 100 * 393, "float16")),
    "computed": lambda n: s.un("exp", s.array("x", 100 * n, "float16")),
    "padded": lambda n: s.view(lay.of_pad((100, n - 8), (0, 0), (0, 8), 0.0), s.array("x", 100 * (n - 8), "float16")),
}
"""Left operands [100, n] that cannot be copied as boxes."""


@pytest.mark.parametrize("name", OTHER_OPERANDS)
def test_other_operands_of_a_tile_of_boxes_go_another_way(name: str) -> None:
    out = s.times((1, 100, 392, 136), OTHER_OPERANDS[name](392), s.array("w", 392 * 136, "float16"))
    case = s.case(name, out, arch="sm_90", choice=Choice(tile="matrix_wgmma_bulk_128x128x64", slices=1))
    (kernel,) = case.chain.kernels
    assert "wgmma.mma_async" in kernel.claims
    assert "cp.async.bulk.tensor" not in kernel.claims
    s.check([case], "sm_90", 7)


def test_a_text_that_does_not_compile_is_saved_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path))
    with pytest.raises(CompileFailed, match=r"a kernel does not compile: .*error.*\(source .*\.cpp, log .*\.log\)"):
        run_text("EQ_KERNEL(64) probe(int *out) { no_such_name(); }", 64, np.zeros(1, np.int32))
    (saved,) = (tmp_path / "failed").glob("*.cpp")
    assert "no_such_name" in saved.read_text()
    assert saved.with_suffix(".log").exists()
