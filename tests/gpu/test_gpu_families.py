"""Every kernel family, in each variant, type, wave width and layout, against NumPy in the SIMT checker."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat.gpu import simt
from eqsat.gpu.catalogue import FAMILIES
from eqsat.gpu.code.c_writer import Region
from eqsat.gpu.code.index import Index, Var, through
from eqsat.gpu.code.scalar import Lanes, Lowering
from eqsat.gpu.families import contraction, row
from eqsat.gpu.families.base import Choice, Family, Job, Sizes
from eqsat.gpu.families.row.examples import examples as row_examples
from eqsat.gpu.launch.generate import Chain
from eqsat.gpu.table.limits import OPERANDS
from eqsat.gpu.table.targets import TARGETS
from eqsat.layout import arithmetic as lay
from eqsat.program.core import Node, make
from support import gpu_support as s
from support.indices import environments, value

WAVE64, WAVE32 = "gfx942", "gfx1100"
MATRIX_UNITS = ("gfx950", "gfx1100", "gfx1201", "sm_90")
"""Beside that of gfx942: one target of each kind of unit."""
ORDERS = (simt.FORWARD, simt.REVERSE, 7)


def families_of(case: s.Case) -> list[str]:
    return [k.family for k in case.chain.kernels]


# Every row of the catalogue: whatever family, variant or example is declared is tested by these


Pair = tuple[str, tuple[Node, ...], Choice]


def pairs(family: Family, arch: str, dtype: str, sizes: Iterator[Sizes], shift: int) -> list[Pair]:
    """Examples, each with a variant and sizes of its own: all of both, so that shifts pair each with each."""
    choices, names = family.choices(TARGETS[arch], dtype), list(family.examples((1, 1, 1, 1), dtype))
    count = max(len(choices), len(names))
    found = []
    for i, (name, of) in enumerate(itertools.islice(zip(itertools.cycle(names), sizes, strict=False), count)):
        found.append((f"{name}, {of}", family.examples(of, dtype)[name], choices[(i + shift) % len(choices)]))
    return found


def case_of_pair(pair: Pair, arch: str) -> s.Case:
    name, outputs, choice = pair
    return s.case(f"{name}, {choice}", *outputs, arch=arch, choice=choice)


EDGES = (1, 1, 2, 3, 5, 7, 8, 13, 16, 17, 24, 31, 33, 64, 67)
DEPTHS = (*EDGES, *EDGES, 40, 129, 300, 1031)


def random_sizes(rng: random.Random) -> Iterator[Sizes]:
    """Sizes 1 everywhere, then random ones."""
    yield (1, 1, 1, 1)
    while True:
        yield (rng.randint(1, 3), rng.choice(EDGES), rng.choice(DEPTHS), rng.choice(EDGES))


@pytest.mark.parametrize("dtype", OPERANDS)
@pytest.mark.parametrize("arch", [WAVE64, *MATRIX_UNITS])
@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda f: f.name)
def test_every_variant_computes_what_its_family_declares(family: Family, arch: str, dtype: str) -> None:
    if arch not in (WAVE64, WAVE32) and not family.name.startswith("contraction"):
        return  # what is without matrix units depends on the wave alone, and streams multiply as contractions do

    rng = s.random_choices(f"{family.name} {arch} {dtype}")
    cases = [case_of_pair(p, arch) for p in pairs(family, arch, dtype, random_sizes(rng), rng.randint(0, 100))]
    s.check(cases, arch, rng.choice(ORDERS))


@pytest.mark.parametrize("dtype", OPERANDS)
@pytest.mark.parametrize("arch", TARGETS)
@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda f: f.name)
def test_variants_are_those_that_were_chosen(family: Family, arch: str, dtype: str) -> None:
    """Where sizes allow it, a choice shows in the name of the kernel's variant, and the kernel is of the family."""
    examples = list(family.examples((2, 128, 2048, 256), dtype).items())
    for i, choice in enumerate(family.choices(TARGETS[arch], dtype)):
        tried = ((*examples[(i + j) % len(examples)], choice) for j in range(len(examples)))
        assert any(shows(family, case_of_pair(pair, arch), choice, dtype) for pair in tried), choice


def shows(family: Family, case: s.Case, choice: Choice, dtype: str) -> bool:
    """Whether the kernels of an example, which are the family's, are those of the choice."""
    kernels = case.chain.kernels
    assert family.name in {k.family for k in kernels}
    wanted = [str(v) for v in (choice.tile, choice.combine and s.combined(choice, dtype)) if v]
    wanted += [f"width{choice.width}"] * bool(choice.width) + [f"threads{choice.per_row}_"] * bool(choice.per_row)
    sliced = choice.slices in (None, 1) or len(kernels) > 1 or any(k.counters for k in kernels)
    return sliced and any(all(text in k.variant for text in wanted) for k in kernels)


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
def test_slices_that_do_not_divide_a_row_are_padded_with_what_changes_nothing(kind: str, dtype: str) -> None:
    if dtype == "bool" and kind in ("sum", "prod"):
        return  # of numbers alone
    x = s.array("x", 6 * 5, dtype)
    case = s.case(f"{kind} of {dtype}", make("Red", (kind, 5), (x,)), choice=Choice(slices=3))
    assert len(case.chain.kernels) == 2
    for seed in range(3):
        s.check([case], WAVE64, seed=seed)


def test_gather_takes_negative_indices_and_clamps_others() -> None:
    x, places = s.array("x", 12), s.array("places", 4, "int64")
    case = s.case("gather", make("Gather", (2, 3, 2), (x, places)))
    import numpy as np

    values = {x: np.arange(12, dtype=np.float32), places: np.array([-1, 0, 2, 99])}
    got = s.run(case, values, WAVE64, s.source_of([case]))[case.outputs[0]]
    assert got[:8].tolist() == [4, 5, 0, 1, 4, 5, 4, 5]


@given(st.integers(1, 12), st.integers(0, 4), st.integers(0, 4), st.integers(1, 3))
@settings(max_examples=60)
def test_masks_that_lanes_share_are_the_masks_of_each(size: int, low: int, high: int, rows: int) -> None:
    """Padding that is a multiple of the vector width turns into one test for all lanes, below zero as above."""
    layout = lay.of_pad((rows, size), (0, low), (0, high), 0.0)
    for width in (1, 2, 4):
        if layout.size % width:
            continue
        chunk, lane = Var("chunk", layout.size // width), Var("u", width)
        lowering = Lowering(Region([chunk]), {}, Lanes(lane))
        _, masks = through(layout, Index.of(chunk) * width + Index.of(lane))
        for mask in masks:
            shared = lowering._common(mask)
            for env in environments([chunk, lane]):
                assert (0 <= value(mask.index, env) < mask.bound) == (0 <= value(shared.index, env) < shared.bound)


def test_a_padded_vector_is_zero_where_it_is_padded() -> None:
    x, w = s.array("x", 2), s.array("w", 2)
    padded = s.view(lay.masked(0, ((4, 0),), (lay.Axis(2, 1, -2, (1,)),), 0.0), s.un("abs", x))
    s.check([s.case("padding in front", make("MM", (1, 2, 2, 1), (padded, w)))], WAVE32)


def turned_cases(dtype: str, arch: str) -> list[s.Case]:
    m, n = 70, 130
    x, y, b = s.array("x", m * n, dtype), s.array("y", m * n, dtype), s.array("b", n, dtype)
    batch, mask = s.array("batch", 3 * m * n, dtype), s.array("mask", m * n, "bool")
    turned = s.transposed(x, (n, m), (1, 0))
    outputs = {
        "a transpose": (turned,),
        "written transposed": (s.transposed(s.un("neg", s.bin_("add", x, s.along_rows(b, m))), (m, n), (1, 0)),),
        "beside what is not": (s.bin_("mul", turned, y), s.bin_("sub", turned, x)),
        "two operands": (s.bin_("add", s.transposed(y, (n, m), (1, 0)), turned),),
        "a condition": (make("Where", (), (s.transposed(mask, (n, m), (1, 0)), x, y)),),
        "of a batch": (s.un("neg", s.transposed(batch, (3, n, m), (0, 2, 1))),),
        "the last axis to the front": (s.un("neg", s.transposed(batch, (3, m, n), (2, 0, 1))),),
        "the first axis to the back": (s.un("neg", s.transposed(batch, (n, 3, m), (1, 2, 0))),),
        "flipped": (s.bin_("add", y, s.view(lay.strided((n - 1) * m, ((m, 1), (n, -m))), x)),),
    }
    return [s.case(name, *nodes, arch=arch) for name, nodes in outputs.items()]


@pytest.mark.parametrize("dtype", OPERANDS)
@pytest.mark.parametrize("arch", [WAVE64, WAVE32])
def test_what_lies_the_other_way_round_is_turned_in_squares(arch: str, dtype: str) -> None:
    cases = turned_cases(dtype, arch)
    assert [k.variant[:6] for c in cases for k in c.chain.kernels] == ["turned"] * len(cases)
    s.check(cases, arch, order=3)


def test_short_or_contiguous_copies_are_not_turned() -> None:
    x = s.array("x", 64 * 64)
    short = s.transposed(x, (8, 512), (1, 0))
    blocks = s.transposed(x, (16, 16, 16), (1, 0, 2))
    masked = s.view(lay.of_pad((65, 64), (0, 0), (0, 1), 0.0), s.transposed(s.array("y", 65 * 64), (64, 65), (1, 0)))
    for out in (short, blocks, masked):
        (kernel,) = s.case("copy", s.un("neg", out)).chain.kernels
        assert kernel.variant.startswith("width")


# Contractions


def contraction_cases(dtype: str, arch: str, dims: list[tuple[int, int, int, int]]) -> list[s.Case]:
    return [s.case(f"gemm {d} {dtype}", s.with_bias_and_relu(s.product(*d, dtype)), arch=arch) for d in dims]


@pytest.mark.parametrize("dtype", ["float64", "int32", "int64"])
def test_products_of_types_without_matrix_units(dtype: str) -> None:
    s.check(contraction_cases(dtype, WAVE64, [(1, 20, 30, 40), (2, 5, 3, 7)]), WAVE64)


@pytest.mark.parametrize("dtype", OPERANDS)
def test_long_products_of_few_tiles_are_split_along_k(dtype: str) -> None:
    cases = contraction_cases(dtype, WAVE64, [(1, 20, 2048, 30), (2, 5, 1031, 7)])
    cases = [s.case(c.name, *c.outputs, units=64) for c in cases]
    assert all(families_of(c) == ["contraction"] and c.chain.kernels[0].counters for c in cases)
    s.check(cases, WAVE64)


@pytest.mark.parametrize("dtype", [*OPERANDS, "float64"])
@pytest.mark.parametrize("arch", [WAVE64, WAVE32, "sm_90"])
def test_the_last_block_of_a_tile_adds_up_its_slices(arch: str, dtype: str) -> None:
    """Whichever block comes last, and however many slices the steps of k make."""
    rng = s.random_choices(f"slices {arch} {dtype}")
    sizes = rng.randint(1, 2), rng.randint(9, 40), rng.randint(100, 300), rng.randint(9, 40)
    examples = rng.sample(sorted(contraction.FAMILY.examples(sizes, dtype).items()), 2)
    cases = [
        s.case(name, *outputs, arch=arch, choice=Choice(slices=slices))
        for name, outputs in examples
        for slices in (2, rng.randint(3, 9), 1000)
    ]
    s.check(cases, arch, order=rng.choice(ORDERS))


@pytest.mark.parametrize("dtype", OPERANDS)
@pytest.mark.parametrize("arch", [WAVE64, WAVE32])
def test_products_with_a_vector_are_row_sums(arch: str, dtype: str) -> None:
    cases = contraction_cases(
        dtype, arch, [(1, 1, 70, 300), (1, 300, 70, 1), (3, 1, 17, 5), (1, 1, 1, 1), (2, 4, 9, 1)]
    )
    assert all(families_of(c) == ["row"] for c in cases)
    s.check(cases, arch)


# Contractions with a reduction of the product


def test_halves_are_never_summed_by_atomics() -> None:
    case = s.case("sum", s.reduced("sum", s.with_bias_and_relu(s.product(1, 20, 9, 300, "float16")), 300))
    assert families_of(case) == ["contraction+reduction", "row"]
    assert not any(k.fills for k in case.chain.kernels)


# Reductions and row kernels


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_few_long_rows_are_reduced_in_slices(dtype: str) -> None:
    names = ("the sum of each row", "the max of each row", "the sum over the leading axis", "a mean", "integers")
    cases = [
        s.case(f"{name} of {rows}x{columns}", *row.FAMILY.examples((1, rows, columns, 1), dtype)[name], units=64)
        for rows, columns in ((2, 33000), (3, 8209))
        for name in names
    ]
    assert all(families_of(c) == ["row", "row"] for c in cases)
    s.check(cases, WAVE64)


def test_reductions_of_integers_and_booleans() -> None:
    i, b = s.array("i", 60, "int32"), s.array("b", 60, "bool")
    outs = [s.reduced(f, i, 12) for f in ("sum", "prod", "max", "min", "argmax")]
    outs += [s.reduced(f, b, 12) for f in ("max", "min")]
    s.check([s.case(repr(out), out) for out in outs], WAVE64)


def test_argmax_and_max_treat_nan_as_numpy_does() -> None:
    import numpy as np

    x = s.array("x", 12)
    case = s.case("nan", s.reduced("argmax", x, 6), s.reduced("max", x, 6))
    values = {x: np.array([1, 2, np.nan, 3, np.nan, 0, 5, 5, 4, 1, 5, 0], np.float32)}
    got = s.run(case, values, WAVE64, s.source_of([case]))
    assert got[case.outputs[0]].tolist() == [2, 0]
    np.testing.assert_array_equal(got[case.outputs[1]], [np.nan, 5])


@pytest.mark.parametrize("dtype", OPERANDS)
@pytest.mark.parametrize("arch", [WAVE64, WAVE32])
def test_softmax_and_layernorm_from_8_to_65536_columns(arch: str, dtype: str) -> None:
    cases = []
    for rows, columns in ((3, 8), (5, 37), (2, 1000), (1, 5003), (1, 65536)):
        cases.append(s.case(f"softmax {rows}x{columns}", s.softmax(rows, columns, dtype), arch=arch))
        cases.append(s.case(f"layernorm {rows}x{columns}", s.layernorm(rows, columns, dtype), arch=arch))
    assert all(families_of(c) == ["row"] for c in cases)
    s.check(cases, arch, order=3)


def test_a_plain_reduction_runs_across_rows_where_they_are_neighbours() -> None:
    x = s.array("x", 64 * 96)
    across = row.generate(s.job_of(s.reduced("sum", s.transposed(x, (64, 96), (1, 0)), 64)), TARGETS[WAVE64])
    along = row.generate(s.job_of(s.reduced("sum", x, 64)), TARGETS[WAVE64])
    assert across.variant.startswith("across")
    assert along.variant.startswith("threads")


@pytest.mark.parametrize(("columns", "threads"), [(500, 256), (600, 512), (2048, 1024), (3000, 256)])
def test_a_norm_across_rows_takes_threads_that_hold_its_columns(columns: int, threads: int) -> None:
    sizes = (1, 32, columns, 1)
    found = [v for name, v in row_examples(sizes, "float32").items() if name.startswith("softmax over a middle axis")]
    cases = [s.case(f"softmax of {columns}", *outputs) for outputs in found]
    kernels = [kernel for case in cases for kernel in case.chain.kernels]
    assert [(k.variant.startswith("across"), k.threads) for k in kernels] == [(True, threads)] * 2
    s.check(cases, WAVE64, order=3)


def test_outputs_beside_reductions_that_take_two_launches() -> None:
    p = s.with_bias_and_relu(s.product(1, 20, 9, 300))
    long = s.un("tanh", s.array("long", 2 * 9000))
    cases = [
        s.case("by partial results", p, s.reduced("sum", p, 300), s.reduced("max", p, 300), exact=True),
        s.case("in slices", s.reduced("sum", long, 9000), long, s.reduced("max", s.array("long", 18000), 9000)),
    ]
    assert [families_of(c) for c in cases] == [
        ["contraction+reduction", "row", "row"],
        ["row", "row"],
    ]
    s.check(cases, WAVE64)


# What no template holds


def test_kernels_that_no_template_holds_are_split() -> None:
    p = s.product(1, 20, 30, 40)
    e = s.un("exp", s.bin_("sub", p, s.along_columns(s.reduced("max", p, 40), 40)))
    softmax = s.bin_("div", e, s.along_columns(s.reduced("sum", e, 40), 40))
    second = make("MM", (1, 20, 40, 5), (s.un("relu", p), s.array("w2", 200)))
    third = make("MM", (1, 20, 5, 7), (s.un("relu", second), s.array("w3", 35)))
    mean = s.bin_("mul", s.reduced("sum", s.un("relu", p), 40), make("Full", (1 / 40, 20, "float32")))
    cases = {
        ("contraction", "row"): s.case("softmax of a product", softmax),
        ("contraction", "stream"): s.case("product of a product of a product", third),
        ("contraction", "row", "row"): s.case("a product, its softmax and a mean", p, softmax, mean),
        ("pointwise", "contraction"): s.case("an operand beside the product", s.un("relu", p.args[0]), second.args[0]),
    }
    assert [tuple(families_of(c)) for c in cases.values()] == list(cases)
    s.check(list(cases.values()), WAVE64)


def test_equal_bodies_are_generated_once() -> None:
    first, second = (s.case("softmax", s.softmax(4, 16)) for _ in range(2))
    assert first.chain is second.chain
    assert isinstance(first.chain, Chain)


@pytest.mark.parametrize(("rows", "columns", "blocks"), [(1000, 2048, 63), (8192, 512, 256), (100_000, 64, 391)])
def test_few_rows_are_shared_by_blocks_for_all_units(rows: int, columns: int, blocks: int) -> None:
    """A vector times a matrix, whose rows lie along memory: threads along them read whole sectors together."""
    matrix = make("In", ("w", rows * columns, "float32"))
    total = make("Red", ("sum", columns), (make("V", (lay.strided(0, ((rows, 1), (columns, rows))),), (matrix,)),))
    kernel = row.generate(Job((total,), (matrix,), units=132), TARGETS["sm_90"])
    assert kernel.variant.startswith("across")
    assert kernel.blocks == blocks
