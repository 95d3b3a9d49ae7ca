"""Streams in the SIMT checker: masks, long axes, norms, what is written on the way, and planted mistakes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eqsat.base.numerics import np_dtype
from eqsat.gpu.families import stream
from eqsat.gpu.families.base import Choice, Sizes
from eqsat.gpu.families.stream.examples import (
    attention,
    gated,
    layer_normed,
    normed_scores,
    rms_normed,
    scores,
    softmax_of,
)
from eqsat.gpu.launch.generate import Chain, chain
from eqsat.gpu.table.limits import OPERANDS
from eqsat.gpu.table.streams import StreamForm, WalkForm, legal_streams, ranked_streams
from eqsat.gpu.table.targets import TARGETS
from eqsat.layout import arithmetic as lay
from eqsat.program.core import Node, make, topological
from eqsat.streams.stream import walks
from support import columns, late
from support import gpu_support as s

ARCH = "gfx942"
SIZES: Sizes = (2, 21, 70, 18)


def stream_case(
    name: str, *outputs: Node, arch: str = ARCH, exact: bool = False, choice: Choice = Choice(), units: int = 4
) -> s.Case:
    made = chain("stream", outputs, s.inputs_of(outputs), TARGETS[arch], units, exact, choice)
    assert "stream" in [k.family for k in made.kernels], name
    return s.Case(name, outputs, made)


def values_of(sizes: Sizes, dtype: str) -> Node:
    batch, _, k, n = sizes
    return s.array("values", batch * k * n, dtype)


def attention_of(logits: Node, sizes: Sizes) -> Node:
    return s.times(sizes, softmax_of(logits, sizes[2]), values_of(sizes, logits.dtype))


def test_every_example_is_one_launch() -> None:
    for arch in TARGETS:
        for dtype in OPERANDS:
            for name, outputs in stream.FAMILY.examples(SIZES, dtype).items():
                (kernel,) = stream_case(name, *outputs, arch=arch).chain.kernels
                assert kernel.part is not None
                assert kernel.part.lds_bytes <= TARGETS[arch].lds_bytes


@pytest.mark.parametrize(
    ("arch", "dtype"), [("gfx950", "float16"), ("gfx1201", "bfloat16"), ("sm_90", "float16"), ("sm_80", "float32")]
)
def test_every_kind_of_unit(arch: str, dtype: str) -> None:
    x = s.array("x", 2 * 21 * 70, dtype)
    cases = [
        stream_case("attention", attention(SIZES, dtype), arch=arch),
        stream_case("a gated product", gated(SIZES, x), arch=arch, choice=Choice(tile="matrix_64x32x64")),
    ]
    s.check(cases, arch, order=5)


def test_exact_streams_walk_again_instead_of_correcting() -> None:
    cases = [
        stream_case(f"attention, exact {exact}", attention(SIZES, "float32"), exact=exact) for exact in (False, True)
    ]
    assert ["eq_correction(" in k.source for c in cases for k in c.chain.kernels] == [True, False]
    assert [k.source.count("// Pass") for c in cases for k in c.chain.kernels] == [1, 3]
    s.check(cases, ARCH)


@pytest.mark.parametrize("depth", [16, 80, 256])
def test_heads_of_every_depth(depth: int) -> None:
    s.check([stream_case(f"depth {depth}", attention((1, 17, 65, depth), "float16"))], ARCH)


def test_queries_that_share_keys_and_values() -> None:
    groups, heads, m, k, n = 2, 3, 5, 40, 16
    q, keys, v = (s.array(name, groups * size) for name, size in (("q", heads * m * n), ("keys", k * n), ("v", k * n)))
    shared = s.view(lay.strided(0, ((groups, k * n), (heads, 0), (n, 1), (k, n))), keys)
    repeated = s.view(lay.strided(0, ((groups, k * n), (heads, 0), (k * n, 1))), v)
    sizes = (groups * heads, m, k, n)
    p = softmax_of(s.times((groups * heads, m, n, k), q, shared), k)
    s.check([stream_case("grouped queries", s.times(sizes, p, repeated))], ARCH)


@pytest.mark.parametrize("slices", [1, 3])
def test_statistics_of_shared_keys_behind_a_mask(slices: int) -> None:
    """Normed queries and keys, of which several heads share those; no key is after its query."""
    groups, heads, m, k, n = 2, 3, 21, 70, 16
    sizes = (groups * heads, m, k, n)
    q, keys = s.array("q", groups * heads * m * n, "float16"), s.array("keys", groups * k * n, "float16")
    shared = s.view(lay.strided(0, ((groups, k * n), (heads, 0), (n, 1), (k, n))), rms_normed(keys, n))
    product = s.times((groups * heads, m, n, k), rms_normed(q, n), shared)
    behind = lay.Axis(bound=k, stride=0, start=k - m, coeffs=(0, 1, -1))
    logits = s.view(lay.masked(0, ((groups * heads, m * k), (m, k), (k, 1)), (behind,), float("-inf")), product)
    out = attention_of(logits, sizes)
    case = stream_case("normed", out, choice=Choice(slices=slices))
    assert [k.family for k in case.chain.kernels] == ["stream", "row"][: 1 + (slices > 1)]
    assert "eq_reach(" in case.chain.kernels[0].source
    s.check([case], ARCH)


# Columns


@pytest.mark.parametrize(("arch", "dtype"), [("gfx942", "float32"), ("gfx1100", "float16"), ("sm_90", "bfloat16")])
def test_columns_stream_like_rows(arch: str, dtype: str) -> None:
    cases = [
        stream_case("attention", columns.attention(SIZES, dtype), arch=arch),
        stream_case("masked attention", columns.attention(SIZES, dtype, masked=True), arch=arch),
        stream_case("a chain", columns.chain(SIZES, dtype), arch=arch),
        stream_case("one column", columns.chain((2, 1, 70, 18), dtype), arch=arch),
        stream_case("slices of the axis", columns.attention((1, 3, 700, 16), dtype), arch=arch, units=32),
    ]
    assert [len(case.chain.kernels) for case in cases] == [1, 1, 1, 1, 2]
    s.check(cases, arch, order=3)


def test_columns_of_normed_queries_and_keys() -> None:
    s.check([stream_case("normed", columns.attention(SIZES, normed=True))], ARCH)


# Masks


def masked_values(case: s.Case, mask: np.ndarray) -> dict[Node, np.ndarray]:
    values = s.random_values(case.inputs)
    return {n: mask.astype(a.dtype) if n.attrs[0] == "mask" else a for n, a in values.items()}


def compare(case: s.Case, values: dict[Node, np.ndarray], arch: str = ARCH) -> np.ndarray:
    (expected,) = s.expected_of(case.outputs, values)
    (out,) = case.outputs
    got = s.run(case, values, arch, s.source_of([case]))[out]
    s.assert_close(got, expected, out.dtype, case.name)
    return got


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_additive_masks_and_rows_masked_altogether(dtype: str) -> None:
    batch, m, k, n = SIZES
    logits = s.bin_("add", scores(SIZES, dtype), s.array("mask", batch * m * k, dtype))
    case = stream_case("an additive mask", attention_of(logits, SIZES))
    rng = np.random.default_rng(0)
    mask = np.where(rng.random((batch, m, k)) < 0.5, -np.inf, 0.0)
    mask[:, 3, :] = -np.inf  # nothing to attend to: NaN, as the source gives
    mask[:, 5, :64] = -np.inf  # nothing in the first tiles
    mask[:, 7, 64:] = -np.inf  # nothing in the last one
    got = compare(case, masked_values(case, mask.ravel())).reshape(batch, m, n)
    assert np.isnan(got[:, 3]).all()
    assert not np.isnan(np.delete(got, 3, axis=1)).any()


def test_rows_masked_altogether_may_be_zeros() -> None:
    batch, m, k, n = SIZES
    logits = s.bin_("add", scores(SIZES, "float32"), s.array("mask", batch * m * k))
    p = softmax_of(logits, k)
    p = make("Where", (), (s.bin_("equal", p, p), p, s.full(0.0, p)))
    case = stream_case("no NaN", s.times(SIZES, p, values_of(SIZES, "float32")))
    mask = np.zeros((batch, m, k))
    mask[:, 3, :] = -np.inf
    got = compare(case, masked_values(case, mask.ravel())).reshape(batch, m, n)
    assert (got[:, 3] == 0).all()


def test_infinite_scores_give_what_the_source_gives() -> None:
    batch, m, k, _ = sizes = (1, 6, 40, 4)
    logits = s.bin_("add", scores(sizes, "float32"), s.array("mask", batch * m * k))
    case = stream_case("infinite scores", attention_of(logits, sizes))
    mask = np.zeros((m, k))
    mask[1, 5], mask[2, 35], mask[3, 0], mask[4, 39] = np.inf, np.nan, -np.inf, np.inf
    with np.errstate(invalid="ignore"):
        compare(case, masked_values(case, mask.ravel()))


def hidden_outside(*masks: lay.Axis, sizes: Sizes) -> Node:
    """Attention where these masks of (b, m, k) hold, and -inf elsewhere."""
    batch, m, k, _ = sizes
    layout = lay.masked(0, ((batch, m * k), (m, k), (k, 1)), masks, float("-inf"))
    return attention_of(s.view(layout, scores(sizes, "float32")), sizes)


CAUSAL = lay.Axis(bound=300, stride=0, start=0, coeffs=(0, 1, -1))
WINDOW = lay.Axis(bound=40, stride=0, start=3, coeffs=(0, 1, -1))
KEPT = lay.Axis(bound=20, stride=0, start=-34, coeffs=(0, 0, 1))
HIDDEN = {
    "causal": ([CAUSAL], (2, 70, 100, 18)),
    "a window": ([WINDOW], (1, 40, 300, 16)),
    "keys after the query": ([lay.Axis(bound=300, stride=0, start=-1, coeffs=(0, -1, 1))], (1, 70, 70, 16)),
    "causal, and few keys": ([CAUSAL, KEPT], (1, 50, 96, 16)),
    "rows without keys": ([lay.Axis(bound=10, stride=0, start=0, coeffs=(0, 1, 0))], (1, 21, 70, 16)),
}


@pytest.mark.parametrize("slices", [None, 3])
@pytest.mark.parametrize("name", HIDDEN)
def test_tiles_that_a_mask_hides_are_not_read(name: str, slices: int | None) -> None:
    """What all rows of all blocks leave out may be NaN."""
    masks, sizes = HIDDEN[name]
    case = stream_case(name, hidden_outside(*masks, sizes=sizes), choice=Choice(tile="matrix_16x32x32", slices=slices))
    (walk,) = walks(case.outputs, case.inputs)
    assert len(walk.bands) == len(masks)
    values = s.random_values(case.inputs)
    got = compare(case, values)
    _, m, k, n = sizes
    reached = [band.reach(0, m - 1) for band in walk.bands]
    first, last = max(a for a, _ in reached) // 32 * 32, max(1, min(b for _, b in reached))
    unread = [*range(max(first, 0)), *range(-(-last // 32) * 32, k)] if last > 1 else []
    for node, a in values.items():
        if node.attrs[0] in ("keys", "values"):
            a.reshape(-1, k, n)[:, unread] = np.nan
    np.testing.assert_array_equal(s.run(case, values, ARCH, s.source_of([case]))[case.outputs[0]], got)


def test_one_row_of_many_keys() -> None:
    s.check([stream_case("5000 keys", attention((1, 1, 5003, 16), "float32"))], ARCH)


# Slices of the axis


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_few_rows_of_a_long_axis_are_walked_in_slices(dtype: str) -> None:
    sizes = (2, 5, 1031, 18)
    cases = [stream_case(name, *outs, units=16) for name, outs in stream.FAMILY.examples(sizes, dtype).items()]
    families = {c.name: [k.family for k in c.chain.kernels] for c in cases}
    assert families.pop("a product and one of low rank") == ["stream"]  # two walks
    assert all(found == ["stream", "row"] for found in families.values())
    s.check(cases, ARCH)
    (exact,) = stream_case("exact", attention(sizes, dtype), units=16, exact=True).chain.kernels
    assert exact.family == "stream"


def sliced_attention(mask: np.ndarray, sizes: Sizes) -> tuple[s.Case, dict[Node, np.ndarray]]:
    batch, m, k, _ = sizes
    logits = s.bin_("add", scores(sizes, "float32"), s.array("mask", batch * m * k))
    case = stream_case("slices", attention_of(logits, sizes), choice=Choice(slices=4))
    assert len(case.chain.kernels) == 2
    return case, masked_values(case, mask.ravel())


def test_slices_that_are_masked_altogether() -> None:
    batch, m, k, n = sizes = (1, 4, 256, 8)
    mask = np.zeros((batch, m, k))
    mask[:, 1, :64] = mask[:, 2, 60:] = mask[:, 3] = -np.inf
    got = compare(*sliced_attention(mask, sizes)).reshape(m, n)
    assert np.isnan(got).any(axis=1).tolist() == [False, False, False, True]


def test_a_wrong_join_of_slices_shows_in_the_result() -> None:
    sizes = (1, 4, 256, 8)
    mask = np.linspace(-9, 9, 4 * 256)
    case, values = sliced_attention(mask, sizes)
    first, second = case.chain.kernels
    assert "eq_exp(" in second.source
    wrong = replace(second, source=second.source.replace("eq_exp(", "1.0f + 0.0f * ("))
    compare(case, values)
    with pytest.raises(AssertionError):
        compare(replace(case, chain=replace(case.chain, kernels=(first, wrong))), values)


# Norms


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_norms_far_from_zero_are_within_their_rounding(dtype: str) -> None:
    """At means of 10 000 deviations."""
    rows, columns, width = 18, 96, 20
    x, w = s.array("x", rows * columns, dtype), s.array("w", columns * width, dtype)
    out = s.times((1, rows, columns, width), layer_normed(x, columns), w)
    case = stream_case("a norm far from zero", out)
    rng = np.random.default_rng(0)
    values = s.random_values(case.inputs) | {x: (1e4 + rng.standard_normal(x.size)).astype(np_dtype(dtype))}
    (expected,) = s.expected_of((out,), values)
    tile = stream.tiles_of(s.job_of(out), TARGETS[ARCH])[0]
    additions = columns // tile.lanes(TARGETS[ARCH]) + int(np.log2(tile.lanes(TARGETS[ARCH])))
    got = s.run(case, values, ARCH, s.source_of([case]))[out].astype(np.float64)
    read = {n.attrs[0]: a.astype(np.float64) for n, a in values.items()}
    stored = {"float32": 2.0**-24, "bfloat16": 2.0**-8}[dtype]
    rows_of_x, rows_of_w = read["x"].reshape(rows, columns), read["w"].reshape(columns, width)
    bound = norm_error(rows_of_x, read["gain"], read["bias"], rows_of_w, additions, stored)
    assert (np.abs(got - expected).reshape(rows, width) <= bound).all()
    if dtype == "float32":
        single = one_pass_norm(rows_of_x, read["gain"], read["bias"]) @ rows_of_w
        assert (np.abs(single - expected.reshape(rows, width)) > bound).any()


def one_pass_norm(
    x: np.ndarray[Any, Any], gain: np.ndarray[Any, Any], bias: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """The mistake that the bound must find: the variance in float32 as the mean of squares less the square of the
    mean, which cancels."""
    x = x.astype(np.float32)
    mean, squares = x.mean(axis=1, keepdims=True), (x * x).mean(axis=1, keepdims=True)
    variance = np.maximum(squares - mean * mean, 0)
    return (x - mean) / np.sqrt(variance + np.float32(1e-5)) * gain + bias


def norm_error(
    x: np.ndarray[Any, Any],
    gain: np.ndarray[Any, Any],
    bias: np.ndarray[Any, Any],
    w: np.ndarray[Any, Any],
    additions: int,
    stored: float,
) -> np.ndarray[Any, Any]:
    """The largest error of each element of (z gain + bias) w, z the norm of the rows of x, with totals in float32.

    Let u = 2^-24, and g the additions that an element passes in a total; the product passes n at most. The mean has the
    error (g + 2) u mean |x|, the factor 1 / n included: delta of the deviation. It moves all z of a row by delta, and
    the result by delta |sum gain w|. The variance has the relative error v of `shifted_error` in tests/streams, and its
    root half of it. Difference, root and products take 4 u of each z, the bias and the sum (n + 1) u of each element,
    and `stored` is the rounding of what is multiplied and of the result.
    """
    u, n = 2.0**-24, len(w)
    center = x.mean(axis=1, keepdims=True)
    sigma = np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    z = (x - center) / sigma
    delta = (additions + 2) * u * np.abs(x).mean(axis=1, keepdims=True) / sigma
    v = 2 * (additions + 6) * (1 + 2 * z[:, :1] ** 2) * u + delta**2
    elements = z * gain + bias
    of_z = (v / 2 + 4 * u) * (np.abs(z * gain) @ np.abs(w))
    of_elements = ((n + 1) * u + stored) * (np.abs(elements) @ np.abs(w))
    return delta * np.abs(gain @ w) + of_z + of_elements + stored * np.abs(elements @ w)


# What is written beside the products


def test_elements_and_totals_are_written_on_the_way() -> None:
    batch, m, k, n = sizes = (2, 21, 70, 130)
    x, y, w = s.array("x", batch * m * k), s.array("y", batch * m * k), s.array("w", batch * k * n)
    added = s.bin_("add", x, y)
    normed = layer_normed(added, k)
    rms = rms_normed(added, k)
    total = s.reduced("sum", s.bin_("mul", added, added), k)
    logits = scores(sizes, "float32")
    cases = [
        stream_case("the normed rows", s.times(sizes, normed, w), normed),
        stream_case("what is normed", added, s.un("relu", s.times(sizes, normed, w))),
        stream_case("a total", s.times(sizes, rms, w), s.un("sqrt", total)),
        stream_case("rows that need a further pass", s.times(sizes, rms, w), rms),
        stream_case("scores and their maximum", attention_of(logits, sizes), logits, s.reduced("max", logits, k)),
        stream_case("a product after a total", s.bin_("add", s.times(sizes, x, w), s.along_columns(total, n))),
    ]
    s.check(cases, ARCH, order=3)


@pytest.mark.parametrize(("arch", "dtype"), [("gfx942", "float32"), ("gfx1100", "float16"), ("sm_90", "bfloat16")])
def test_elements_are_written_as_columns_on_the_way(arch: str, dtype: str) -> None:
    """Weights beside attention, a hidden layer beside the next one, and a product that is another one's operand."""
    batch, m, k, n = SIZES
    attention, chained = columns.attention(SIZES, dtype), columns.chain(SIZES, dtype)
    hidden = next(x for x in topological([chained]) if x.op == "Un")
    (inner,) = hidden.args
    outer = s.times((batch, n, k, m), s.array("down", batch * n * k, dtype), inner)
    cases = [
        stream_case("weights", attention, attention.args[1], arch=arch),
        stream_case("a hidden layer", hidden, chained, arch=arch),
        stream_case("a product inside", inner, outer, arch=arch),
    ]
    assert [len(case.chain.kernels) for case in cases] == [1] * len(cases)
    s.check(cases, arch, order=3)


# Totals behind products


@pytest.mark.parametrize(("arch", "dtype"), [("gfx942", "float32"), ("gfx1100", "float16"), ("sm_90", "bfloat16")])
@pytest.mark.parametrize("sizes", [SIZES, (1, 40, 70, 40)])
def test_totals_behind_products_are_read_by_their_epilogue(sizes: Sizes, arch: str, dtype: str) -> None:
    """Of rows and of columns, also where there are as many of both."""
    cases = [stream_case(name, output, arch=arch) for name, output in late.examples(sizes, dtype).items()]
    assert [len(case.chain.kernels) for case in cases] == [1] * len(cases)
    s.check(cases, arch, order=3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_totals_of_slices_are_joined_with_the_products(dtype: str) -> None:
    cases = [stream_case(n, out, units=16) for n, out in late.examples((2, 5, 1031, 18), dtype, long=True).items()]
    assert [[k.family for k in case.chain.kernels] for case in cases] == [["stream", "row"]] * len(cases)
    s.check(cases, ARCH)


def test_products_of_one_operand_are_one_launch() -> None:
    batch, m, k, n = SIZES
    x = rms_normed(s.array("x", batch * m * k), k)
    outs = [s.times(SIZES, x, s.array(name, batch * k * n)) for name in "abc"]
    s.check([stream_case("q, k and v", *outs)], ARCH)


# Planted mistakes. Each is one change of a kernel that is right.


def planted(old: str, new: str, *outputs: Node) -> s.Case:
    case = stream_case("planted", *outputs)
    (kernel,) = case.chain.kernels
    assert old in kernel.source
    return replace(case, chain=Chain((replace(kernel, source=kernel.source.replace(old, new)),)))


def is_right(case: s.Case) -> bool:
    values = s.random_values(case.inputs)
    values = {n: a * 8 if n.attrs[0] == "q" else a for n, a in values.items()}  # so that maxima grow along the keys
    expected = s.expected_of(case.outputs, values)
    got = s.run(case, values, ARCH, s.source_of([case]))
    try:
        for node, reference in zip(case.outputs, expected, strict=True):
            s.assert_close(got[node], reference, node.dtype, case.name)
    except AssertionError:
        return False
    return True


MISTAKES = {
    "nothing": ("", "", True),
    "no correction of the products": ("*= factor;", "*= 1.0f;", False),
    "no correction of the sum": ("apply(total1 * factor0,", "apply(total1,", False),
    "a correction the wrong way": ("total0_before, total0)", "total0, total0_before)", False),
    "elements under the old maximum": ("total0 == eq_max_of", "total0_before == eq_max_of", False),
    "a growing maximum taken as it is": ("? 0.0f : total0;", "? total0_before : total0;", True),
    "keys beyond the end": (") continue;", " && false) continue;", False),
}


MISTAKES_OF_MASKS = {
    "nothing": ("", "", True),
    "no tile left out": ("int first_tile = from_tile, last_tile = to_tile", "int first_tile = 0, last_tile = 4", True),
    "a skipped tile at the start that is not empty": ("first_tile = from_tile", "first_tile = from_tile + 1", False),
    "a skipped tile at the end that is not empty": ("last_tile = to_tile", "last_tile = to_tile - 1", False),
    "rows of the block that count as the first one": ("? first_row + 15 :", "? first_row :", False),
}


@pytest.mark.parametrize("mistake", MISTAKES_OF_MASKS)
def test_mistakes_in_what_is_left_out_show_in_the_result(mistake: str) -> None:
    old, new, right = MISTAKES_OF_MASKS[mistake]
    assert is_right(planted(old, new, hidden_outside(WINDOW, sizes=(1, 100, 100, 16)))) == right


MISTAKES_OF_STATISTICS = {
    "nothing": ("", "", True),
    "the norms of the first tile": ("const int column = tile * 32", "const int column = 0", False),
    "one thread's part of a sum": ("part = eq_lanes_reduce<eq_sum_of<float>, 4>(part);", "", False),
    "the norm of another key": ("tile_of_statistic1[place]", "tile_of_statistic1[place ^ 1]", False),
}


@pytest.mark.parametrize("mistake", MISTAKES_OF_STATISTICS)
def test_mistakes_in_statistics_show_in_the_result(mistake: str) -> None:
    old, new, right = MISTAKES_OF_STATISTICS[mistake]
    assert is_right(planted(old, new, attention_of(normed_scores(SIZES, "float32"), SIZES))) == right


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_show_in_the_result(mistake: str) -> None:
    old, new, right = MISTAKES[mistake]
    assert is_right(planted(old, new, attention(SIZES, "float32"))) == right


# Tiles


def test_tiles_are_ranked_by_rounds_of_blocks() -> None:
    target = TARGETS["gfx942"]
    few = StreamForm((1, 16, 4096), (WalkForm(4096),))
    many = StreamForm((32, 4096, 128), (WalkForm(4096, depths=(128,), totals=2),))
    assert ranked_streams(target, few, "float16", 304)[0].name == "matrix_16x32x32"
    assert ranked_streams(target, many, "float16", 304)[0].rows >= 64
    assert ranked_streams(target, few, "int32", 304) == []


@pytest.mark.parametrize("dtype", OPERANDS)
@pytest.mark.parametrize("arch", TARGETS)
def test_tiles_that_spill_where_no_vector_divides_come_last(arch: str, dtype: str) -> None:
    """As the compile gates found: 128 x 128 everywhere, and 16 x 64 in steps of 64 on waves of 32."""
    target = TARGETS[arch]

    def spilling(length: int, depth: int) -> list[bool]:
        form = StreamForm((8, length, depth), (WalkForm(length, depths=(depth,), totals=2),))
        ranked = ranked_streams(target, form, dtype, 304)
        steps = ((128, 32, 128), (16, 64, 64)) if target.wave == 32 else ((128, 32, 128),)
        return [(t.rows, t.step, t.columns) in steps for t in ranked]

    assert spilling(1021, 1021) == sorted(spilling(1021, 1021))
    if len(legal_streams(target, dtype)) == 6:
        assert spilling(4096, 128)[0]


@pytest.mark.parametrize("dtype", OPERANDS)
@pytest.mark.parametrize("arch", TARGETS)
def test_both_tiles_of_a_stream_have_the_same_threads(arch: str, dtype: str) -> None:
    target = TARGETS[arch]
    for tile in legal_streams(target, dtype):
        assert tile.scores.threads(target) == tile.sums.threads(target)
        assert tile.lanes(target) <= target.wave
        assert tile.step % tile.lanes(target) == 0
        assert 1 <= tile.lanes_of_step(target) <= target.wave
        for part in (tile.sums, tile.scores):
            assert part.each_m * part.each_n > 0
