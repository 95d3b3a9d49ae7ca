"""The SIMT checker: correct kernels pass in every order, and each planted bug is caught: one change of a kernel."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from eqsat.gpu import simt
from eqsat.gpu.build.compilers import Sanitizer, host_compiler
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
