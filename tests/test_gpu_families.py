"""Every kernel family, in each variant, type, wave width and layout, against NumPy in the SIMT checker."""

from __future__ import annotations

import gpu_support as s
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_gpu_index import environments, value

from eqsat import layout as lay
from eqsat.core import Node, make
from eqsat.gpu import simt
from eqsat.gpu.families import contraction, row
from eqsat.gpu.families.contraction.tiles import Tile, legal_tiles
from eqsat.gpu.generate import Chain
from eqsat.gpu.index import Index, Var, through
from eqsat.gpu.region import Region
from eqsat.gpu.scalar import Lanes, Lowering
from eqsat.gpu.targets import TARGETS

WAVE64, WAVE32 = "gfx942", "gfx1100"
MATRIX_UNITS = ("gfx90a", "gfx950", "gfx1100", "gfx1201", "sm_90")
DTYPES = ("float32", "float16", "bfloat16")
ORDERS = (simt.FORWARD, simt.REVERSE, 7)


def families_of(case: s.Case) -> list[str]:
    return [k.family for k in case.chain.kernels]


# Pointwise: index maps of every kind


def pointwise_outputs(m: int, n: int, dtype: str) -> dict[str, tuple[Node, ...]]:
    x, y, row_, column = (s.array(*a, dtype) for a in (("x", m * n), ("y", m * n), ("row", n), ("column", m)))
    total = s.bin_("add", x, s.along_rows(row_, m))
    flipped = s.view(lay.of_slice((m, n), (m - 1, 0), (-1, n), (-1, 1)), x)
    lower = lay.masked(0, ((m, n), (n, 1)), (lay.Axis(m, 0, 0, (1, -1)),), 0.0)
    places = s.array("places", 5, "int64")
    return {
        "chain": (s.un("tanh", s.bin_("mul", total, s.along_columns(column, n))),),
        "transpose": (s.transposed(s.un("neg", x), (m, n), (1, 0)),),
        "flip": (s.bin_("sub", flipped, y),),
        "slice": (s.view(lay.of_slice((m, n), (0, 0), (m, n), (1, 2)), s.bin_("mul", x, y)),),
        "pad": (s.view(lay.of_pad((m, n), (1, 2), (3, 0), -1.5), x),),
        "pad of a computed value": (s.view(lay.of_pad((m, n), (0, 1), (2, 4), 0.0), total),),
        "triangle": (s.view(lower, x),),
        "windows": (s.view(lay.windows((1, 1, m, n), (2, 2), (1, 1), (1, 1), (1, 1), (1, 1), 0.0), x),),
        "concatenation": (make("Cat", (), (s.un("exp", x), row_, s.bin_("mul", y, y))),),
        "several outputs": (s.un("abs", x), s.bin_("max", x, y), s.un("floor", row_)),
        "where": (make("Where", (), (s.bin_("less", x, y), x, s.un("neg", y))),),
        "mask as bool": (s.bin_("greater_equal", x, y), s.un("not", s.bin_("equal", x, y))),
        "cast": (s.un("cast:int32", s.bin_("mul", x, make("Full", (3.0, m * n, dtype)))), s.un("cast:float16", x)),
        "power": (s.bin_("pow", s.un("abs", x), make("Full", (2.5, m * n, dtype))),),
        "square": (s.bin_("pow", x, make("Full", (2.0, m * n, dtype))),),
        "gather": (make("Gather", (1, m, n), (x, places)),),
    }


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("arch", [WAVE64, WAVE32])
def test_pointwise_expressions_through_every_kind_of_view(arch: str, dtype: str) -> None:
    cases = []
    for m, n in ((7, 5), (8, 24), (1, 13)):
        for name, outputs in pointwise_outputs(m, n, dtype).items():
            cases.append(s.case(f"{name} {m}x{n}", *outputs, arch=arch, units=1 if n == 5 else 64))
    check_gathers_in_range(cases, arch)


def check_gathers_in_range(cases: list[s.Case], arch: str) -> None:
    """Random int64 inputs lie in [-4, 4]: indices that short arrays do not have are left to their own test."""
    short = {c.name for c in cases if c.name.startswith("gather") and not c.name.endswith(("7x5", "8x24"))}
    s.check([c for c in cases if c.name not in short], arch)


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


# Contractions


def contraction_cases(dtype: str, arch: str, dims: list[tuple[int, int, int, int]]) -> list[s.Case]:
    return [s.case(f"gemm {d} {dtype}", s.with_bias_and_relu(s.product(*d, dtype)), arch=arch) for d in dims]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("arch", MATRIX_UNITS)
def test_products_on_every_matrix_unit(arch: str, dtype: str) -> None:
    cases = contraction_cases(dtype, arch, [(1, 33, 40, 50), (2, 16, 64, 48), (1, 70, 17, 13)])
    for order in ORDERS:
        s.check(cases, arch, order)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("arch", [WAVE64, WAVE32])
def test_products_with_every_tile(arch: str, dtype: str) -> None:
    target = TARGETS[arch]
    out = s.with_bias_and_relu(s.product(1, 70, 35, 66, dtype))
    tiles = [t for t in legal_tiles(target, dtype) if t.lds_bytes(dtype) <= target.lds_bytes]
    assert {t.unit for t in tiles} == ({"matrix", "vector"} if dtype in target.matrix_dtypes else {"vector"})
    s.check([s.case_of(t.name, contraction.generate(s.job_of(out), target, t), out) for t in tiles], arch)


shapes = st.tuples(st.integers(1, 3), *[st.sampled_from([1, 2, 3, 5, 7, 8, 16, 17, 24, 31, 64, 67])] * 3)


@settings(max_examples=4)
@given(st.lists(shapes, min_size=6, max_size=6), st.sampled_from(DTYPES), st.sampled_from([WAVE64, WAVE32]))
def test_products_of_any_shape(dims: list[tuple[int, int, int, int]], dtype: str, arch: str) -> None:
    s.check(contraction_cases(dtype, arch, dims), arch, order=5)


@pytest.mark.parametrize("dtype", ["float64", "int32", "int64"])
def test_products_of_types_without_matrix_units(dtype: str) -> None:
    s.check(contraction_cases(dtype, WAVE64, [(1, 20, 30, 40), (2, 5, 3, 7)]), WAVE64)


def operand_layouts(dtype: str) -> dict[str, Node]:
    """Products whose operands are read through layouts and expressions: m = 12, k = 20, n = 16."""
    x, w, big = s.array("x", 240, dtype), s.array("w", 320, dtype), s.array("big", 1000, dtype)
    image = s.array("image", 2 * 3 * 8 * 8, dtype)
    kernels = s.array("kernels", 4 * 3 * 3 * 3, dtype)
    patches = s.view(lay.windows((2, 3, 8, 8), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 0.0, groups=1), image)
    weights = s.view(lay.conv_weights((4, 3, 3, 3), 1), kernels)
    conv = make("MM", (1, 128, 27, 4), (patches, weights))
    return {
        "left transposed": make("MM", (1, 12, 20, 16), (s.transposed(x, (20, 12), (1, 0)), w)),
        "right transposed": make("MM", (1, 12, 20, 16), (x, s.transposed(w, (16, 20), (1, 0)))),
        "left a slice of rows": make("MM", (1, 12, 20, 16), (s.view(lay.strided(3, ((12, 31), (20, 1))), big), w)),
        "overlapping windows": make("MM", (1, 12, 20, 16), (s.view(lay.strided(0, ((12, 2), (20, 3))), big), w)),
        "flipped": make("MM", (1, 12, 20, 16), (s.view(lay.strided(239, ((12, -20), (20, -1))), x), w)),
        "broadcast over the batch": make(
            "MM", (3, 12, 20, 16), (s.view(lay.strided(0, ((3, 0), (240, 1))), x), s.array("w3", 960, dtype))
        ),
        "prologue": make("MM", (1, 12, 20, 16), (s.un("relu", x), s.bin_("mul", w, s.array("v", 320, dtype)))),
        "padded": make("MM", (1, 14, 20, 16), (s.view(lay.of_pad((12, 20), (1, 0), (1, 0), 0.0), x), w)),
        "convolution": s.view(lay.conv_result(2, 1, 64, 4), s.un("relu", conv)),
    }


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("arch", [WAVE64, WAVE32])
def test_operands_are_read_through_any_layout(arch: str, dtype: str) -> None:
    cases = [s.case(name, out, arch=arch) for name, out in operand_layouts(dtype).items()]
    assert all(families_of(c) == ["contraction"] for c in cases)
    s.check(cases, arch)


def permuted_writes(dtype: str) -> dict[str, tuple[Node, ...]]:
    p = s.with_bias_and_relu(s.product(2, 12, 10, 16, dtype))
    other = s.array("other", 2 * 12 * 16, dtype)
    turned = s.transposed(p, (2, 12, 16), (0, 2, 1))
    return {
        "transposed": (turned,),
        "heads": (s.transposed(p, (2, 12, 4, 4), (0, 2, 1, 3)),),
        "all axes": (s.transposed(p, (2, 12, 16), (2, 0, 1)),),
        "flipped": (s.view(lay.strided(383, ((384, -1),)), p),),
        "residual after the transpose": (s.bin_("add", turned, other),),
        "two outputs in two orders": (p, s.bin_("mul", turned, other)),
        "both branches of a diamond": (s.bin_("mul", p, s.un("sigmoid", p)),),
    }


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("arch", [WAVE64, WAVE32])
def test_outputs_are_written_in_any_order(arch: str, dtype: str) -> None:
    cases = [s.case(name, *outputs, arch=arch) for name, outputs in permuted_writes(dtype).items()]
    assert all(families_of(c) == ["contraction"] for c in cases)
    s.check(cases, arch)


@pytest.mark.parametrize("dtype", DTYPES)
def test_long_products_of_few_tiles_are_split_along_k(dtype: str) -> None:
    cases = contraction_cases(dtype, WAVE64, [(1, 20, 2048, 30), (2, 5, 1031, 7)])
    cases = [s.case(c.name, *c.outputs, units=64) for c in cases]
    assert all(families_of(c) == ["contraction", "row"] for c in cases)
    s.check(cases, WAVE64)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("arch", [WAVE64, WAVE32])
def test_products_with_a_vector_are_row_sums(arch: str, dtype: str) -> None:
    cases = contraction_cases(
        dtype, arch, [(1, 1, 70, 300), (1, 300, 70, 1), (3, 1, 17, 5), (1, 1, 1, 1), (2, 4, 9, 1)]
    )
    assert all(families_of(c) == ["row"] for c in cases)
    s.check(cases, arch)


# Contractions with a reduction of the product


def reduced_product(axis: str, f: str, dims: tuple[int, int, int, int], dtype: str) -> Node:
    batch, m, _, n = dims
    out = s.with_bias_and_relu(s.product(*dims, dtype))
    if axis == "m":
        out = s.transposed(out, (batch, m, n), (0, 2, 1))
    return s.reduced(f, out, n if axis == "n" else m)


REDUCING_TILES = (Tile("vector", 32, 64, 16, 8, 16), Tile("vector", 16, 64, 16, 4, 16))


@pytest.mark.parametrize("arch", [WAVE64, WAVE32])
@pytest.mark.parametrize("combine", ["atomic", "lds", "wave"])
def test_product_reductions_in_every_variant(combine: contraction.Combine, arch: str) -> None:
    target, cases = TARGETS[arch], []
    tiles = [next(legal_tiles(target, "float32")), REDUCING_TILES[0]]
    for tile in tiles:
        for axis in "mn":
            for f in ("sum", "max", "min"):
                out = reduced_product(axis, f, (2, 140, 9, 150), "float32")
                kernel = contraction.generate(s.job_of(out), target, tile, combine)
                assert kernel.variant.endswith(combine)
                cases.append(s.case_of(f"{f} over {axis}, {kernel.variant}", kernel, out))
    s.check(cases, arch, order=9)


@pytest.mark.parametrize("dtype", DTYPES)
def test_product_reductions_by_partial_results(dtype: str) -> None:
    cases = []
    for axis in "mn":
        for f in ("sum", "max", "min"):
            out = reduced_product(axis, f, (2, 70, 9, 150), dtype)
            cases.append(s.case(f"{f} over {axis} exactly", out, exact=True))
    assert all(families_of(c) == ["contraction", "row"] for c in cases)
    s.check(cases, WAVE64, order=9)


def test_halves_are_never_summed_by_atomics() -> None:
    case = s.case("sum", reduced_product("n", "sum", (1, 20, 9, 300), "float16"))
    assert families_of(case) == ["contraction", "row"]
    assert not any(k.fills for k in case.chain.kernels)


# Reductions and row kernels


def reductions(rows: int, columns: int, dtype: str) -> dict[str, Node]:
    x = s.array("x", rows * columns, dtype)
    y = s.transposed(x, (columns, rows), (1, 0))
    shown = {f: s.reduced(f, s.un("neg", x), columns) for f in ("sum", "max", "min", "argmax", "argmin")}
    shown |= {f"{f} over the leading axis": s.reduced(f, s.un("neg", y), columns) for f in ("sum", "max")}
    shown["prod"] = s.reduced(
        "prod", s.un("cos", s.view(lay.of_slice((rows, columns), (0, 0), (rows, 1), (1, 1)), x)), 1
    )
    shown["mean"] = s.bin_("mul", s.reduced("sum", x, columns), make("Full", (1 / columns, rows, dtype)))
    return shown


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("arch", [WAVE64, WAVE32])
def test_reductions_of_short_and_long_rows(arch: str, dtype: str) -> None:
    cases = []
    for rows, columns in ((5, 7), (3, 1), (64, 96), (2, 1031)):
        for name, out in reductions(rows, columns, dtype).items():
            cases.append(s.case(f"{name} {rows}x{columns}", out, arch=arch))
    s.check(cases, arch)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_few_long_rows_are_reduced_in_slices(dtype: str) -> None:
    cases = [s.case(f"{n} {r}x{c}", out, units=64) for r, c in ((2, 33000), (3, 8209)) for n, out in
             reductions(r, c, dtype).items() if not n.startswith(("arg", "prod"))]  # fmt: skip
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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("arch", [WAVE64, WAVE32])
def test_softmax_and_layernorm_from_8_to_65536_columns(arch: str, dtype: str) -> None:
    cases = []
    for rows, columns in ((3, 8), (5, 37), (2, 1000), (1, 5003), (1, 65536)):
        cases.append(s.case(f"softmax {rows}x{columns}", s.softmax(rows, columns, dtype), arch=arch))
        cases.append(s.case(f"layernorm {rows}x{columns}", s.layernorm(rows, columns, dtype), arch=arch))
    assert all(families_of(c) == ["row"] for c in cases)
    s.check(cases, arch, order=3)


def test_row_kernels_write_permuted_and_per_row_outputs() -> None:
    soft = s.softmax(6, 20)
    x = soft.args[0].args[0].args[0]
    top = s.reduced("max", x, 20)
    heads = s.transposed(soft, (2, 3, 20), (1, 0, 2))
    cases = [
        s.case("transposed", s.transposed(soft, (6, 20), (1, 0))),
        s.case("heads, then a residual", s.bin_("add", heads, s.array("r", 120))),
        s.case("the row's maximum beside it", soft, top),
    ]
    assert all(families_of(c) == ["row"] for c in cases)
    s.check(cases, WAVE64)


def test_a_plain_reduction_runs_across_rows_where_they_are_neighbours() -> None:
    x = s.array("x", 64 * 96)
    across = row.generate(s.job_of(s.reduced("sum", s.transposed(x, (64, 96), (1, 0)), 64)), TARGETS[WAVE64])
    along = row.generate(s.job_of(s.reduced("sum", x, 64)), TARGETS[WAVE64])
    assert across.variant.startswith("across")
    assert along.variant.startswith("threads")


# Several outputs of one launch


def several_outputs(dtype: str) -> dict[str, tuple[Node, ...]]:
    """Outputs that one launch writes: 6 rows of 40, or a product of 16 x 16."""
    x, y = s.array("x", 240, dtype), s.array("y", 240, dtype)
    r = s.bin_("add", x, y)
    square = s.reduced("sum", s.bin_("mul", r, r), 40)
    scale = s.un("rsqrt", s.bin_("add", square, make("Full", (1.0, 6, dtype))))
    norm = s.bin_("mul", r, s.along_columns(scale, 40))
    soft, z = s.softmax(6, 40, dtype), s.array("z", 6, dtype)
    turned = s.transposed(r, (6, 40), (1, 0))
    p = s.with_bias_and_relu(s.product(1, 16, 9, 16, dtype))
    return {
        "the residual sum beside its norm": (norm, r),
        "the residual sum transposed, the norm and what it divides by": (turned, norm, scale),
        "what is reduced beside the sum": (square, s.bin_("mul", r, r)),
        "rows beside sums over the leading axis": (s.reduced("sum", turned, 6), s.un("relu", r)),
        "softmax, its maximum and something of each row": (soft, s.reduced("max", x, 40), s.un("exp", z)),
        "softmax and an array of its size": (soft, s.un("neg", y)),
        "a product and its sums of rows": (p, s.reduced("sum", p, 16)),
        "sums of columns of a product, which is written transposed": (
            s.reduced("sum", s.transposed(p, (16, 16), (1, 0)), 16),
            s.transposed(p, (16, 16), (1, 0)),
        ),
        "a product before and after its epilogue": (p, s.product(1, 16, 9, 16, dtype)),
        "two reductions of a product": (s.reduced("sum", p, 16), s.reduced("max", s.un("neg", p), 16), p),
    }


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("arch", [WAVE64, WAVE32])
def test_one_launch_writes_several_outputs(arch: str, dtype: str) -> None:
    cases = [s.case(name, *outputs, arch=arch) for name, outputs in several_outputs(dtype).items()]
    assert {c.name: len(c.chain.kernels) for c in cases} == dict.fromkeys(several_outputs(dtype), 1)
    s.check(cases, arch, order=3)


def test_outputs_beside_reductions_that_take_two_launches() -> None:
    p = s.with_bias_and_relu(s.product(1, 20, 9, 300))
    long = s.un("tanh", s.array("long", 2 * 9000))
    cases = [
        s.case("by partial results", p, s.reduced("sum", p, 300), s.reduced("max", p, 300), exact=True),
        s.case("in slices", s.reduced("sum", long, 9000), long, s.reduced("max", s.array("long", 18000), 9000)),
        s.case("split-K", *several_outputs("float32")["a product before and after its epilogue"], units=64),
    ]
    assert [families_of(c) for c in cases[:2]] == [["contraction", "row", "row"], ["row", "row"]]
    s.check(cases, WAVE64)


# What no template holds


def test_kernels_that_no_template_holds_are_split() -> None:
    p = s.product(1, 20, 30, 40)
    e = s.un("exp", s.bin_("sub", p, s.along_columns(s.reduced("max", p, 40), 40)))
    attention_like = s.bin_("div", e, s.along_columns(s.reduced("sum", e, 40), 40))
    second = make("MM", (1, 20, 40, 5), (s.un("relu", p), s.array("w2", 200)))
    attention = make("MM", (1, 20, 40, 5), (attention_like, s.array("v", 200)))
    mean = s.bin_("mul", s.reduced("sum", s.un("relu", p), 40), make("Full", (1 / 40, 20, "float32")))
    cases = {
        ("contraction", "row"): s.case("softmax of a product", attention_like),
        ("contraction", "contraction"): s.case("product of a product", second),
        ("contraction", "row", "contraction"): s.case("attention", attention),
        ("contraction", "row", "row"): s.case("a product, its softmax and a mean", p, attention_like, mean),
        ("pointwise", "contraction"): s.case("an operand beside the product", s.un("relu", p.args[0]), second.args[0]),
    }
    assert [tuple(families_of(c)) for c in cases.values()] == list(cases)
    s.check(list(cases.values()), WAVE64)


def test_equal_bodies_are_generated_once() -> None:
    first, second = (s.case("softmax", s.softmax(4, 16)) for _ in range(2))
    assert first.chain is second.chain
    assert isinstance(first.chain, Chain)
