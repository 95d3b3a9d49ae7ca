"""Lifting of products and reductions over windows: convolutions and pools."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import pytest

from eqsat.layout.arithmetic import (
    Layout,
    compose,
    conv_result,
    conv_weights,
    of_slice,
    of_transpose,
    strided,
    windows,
)
from eqsat.program.core import Node, make
from support.core_programs import mm, view
from support.lifting import arg, lines, node

X, W = arg("x", 6, 16), arg("w", 16, 16)
IMAGE, FILTERS = arg("x", 2, 4, 9, 8), arg("w", 6, 2, 3, 3)


def conv_node(kernel_view: Layout, weights_view: Layout, groups: int, out: tuple[int, int]) -> Node:
    m, k, n = 2 * math.prod(out), 18, 6 // groups
    return mm(view(node(IMAGE), kernel_view), view(node(FILTERS), weights_view), m, k, n, batch=groups)


GROUPED = windows((2, 4, 9, 8), (3, 3), (2, 1), (1, 2), (1, 2), (1, 2), 0.0, groups=2)
OUT = (5, 8)


def test_a_product_over_windows_is_a_convolution() -> None:
    product = conv_node(GROUPED, conv_weights((6, 2, 3, 3), 2), 2, OUT)
    assert lines([IMAGE, FILTERS], view(product, conv_result(2, 2, 40, 3)), 2, 6, *OUT) == [
        "conv(%0, %1, strides=(2, 1), pads_lo=(1, 2), pads_hi=(1, 2), dilations=(1, 2), groups=2)"
    ]


def test_a_product_of_two_computed_operands_is_no_convolution() -> None:
    """Probabilities of attention, which could be read as windows of a whole row each, times values."""
    p, v = arg("p", 1, 4, 8, 8), arg("v", 4, 8, 3)
    mixed = view(mm(node(p), node(v), 8, 8, 3, batch=4), of_transpose((4, 8, 3), (0, 2, 1)))
    found = lines([p, v], mixed, 1, 12, 8, 1)
    assert "matmul" in [line.split("(")[0] for line in found]


def test_what_follows_a_convolution_takes_its_order() -> None:
    product = conv_node(GROUPED, conv_weights((6, 2, 3, 3), 2), 2, OUT)
    bias = arg("b", 6)
    per_channel = view(node(bias), strided(0, [(2, 3), (80, 0), (3, 1)]))
    shifted = make("Un", ("relu",), (make("Bin", ("add",), (product, per_channel)),))
    found = lines([IMAGE, FILTERS, bias], view(shifted, conv_result(2, 2, 40, 3)), 2, 6, *OUT)
    assert [line.split("(")[0] for line in found] == ["conv", "reshape", "broadcast", "add", "relu"]


def test_windows_on_the_right_are_a_convolution_too() -> None:
    left = view(node(FILTERS), strided(0, [(2, 54), (3, 18), (18, 1)]))
    by_taps = view(view(node(IMAGE), GROUPED), of_transpose((2, 80, 18), (0, 2, 1)))
    product = mm(left, by_taps, 3, 18, 80, batch=2)
    result = view(product, of_transpose((2, 3, 2, 40), (2, 0, 1, 3)))
    assert [line.split("(")[0] for line in lines([IMAGE, FILTERS], result, 2, 6, *OUT)] == ["conv"]


def test_some_channels_are_sliced_before_the_convolution() -> None:
    wide = arg("x", 2, 6, 9, 8)
    some = view(view(node(wide), of_slice(wide.shape, (0, 2, 0, 0), (2, 6, 9, 8), (1, 1, 1, 1))), GROUPED)
    product = mm(some, view(node(FILTERS), conv_weights((6, 2, 3, 3), 2)), 80, 18, 3, batch=2)
    found = lines([wide, FILTERS], view(product, conv_result(2, 2, 40, 3)), 2, 6, *OUT)
    assert [line.split("(")[0] for line in found] == ["slice", "conv"]


DEPTHWISE = windows((1, 2, 9, 8), (3, 3), (2, 1), (1, 1), (1, 1), (1, 1), 0.0, groups=2)
TAPS = arg("t", 4, 9)


def by_channel(patches: Node, side: int) -> Node:
    """The product of windows of four channels, 3 by 3 each, with `TAPS`."""
    if side == 0:
        return mm(patches, node(TAPS), 40, 9, 1, batch=4)
    return mm(node(TAPS), view(patches, of_transpose((4, 40, 9), (0, 2, 1))), 1, 9, 40, batch=4)


def names(found: Sequence[str]) -> Counter[str]:
    return Counter(line.split("(")[0] for line in found)


@pytest.mark.parametrize("side", [0, 1])
def test_joined_windows_of_several_arrays_are_a_convolution_of_each(side: int) -> None:
    one, two = arg("one", 1, 2, 9, 8), arg("two", 1, 2, 9, 8)
    patches = make("Cat", (), [view(node(x), DEPTHWISE) for x in (one, two)])
    found = names(lines([one, two, TAPS], by_channel(patches, side), 1, 4, 5, 8))
    assert found["conv"] == 2
    assert not found.keys() & {"gather", "matmul", "where"}
    only = view(by_channel(patches, side), of_slice((4, 40), (2, 0), (4, 40), (1, 1)))
    assert names(lines([two, one, TAPS], only, 1, 2, 5, 8))["conv"] == 1, "what is sliced off is not computed"


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("start", [0, 1])
def test_windows_of_every_other_block_of_an_array_are_one_convolution(start: int, side: int) -> None:
    blocks = arg("x", 4, 2, 9, 8)
    every = [view(node(blocks), of_slice(blocks.shape, (i, 0, 0, 0), (i + 1, 2, 9, 8), (1,) * 4)) for i in range(4)]
    patches = make("Cat", (), [view(x, DEPTHWISE) for x in every[start::2]])
    found = names(lines([blocks, TAPS], by_channel(patches, side), 1, 4, 5, 8))
    assert found["conv"] == 1
    assert not found.keys() & {"gather", "matmul", "where"}


def test_windows_of_other_strides_are_joined_too() -> None:
    small, large = arg("small", 1, 2, 5, 8), arg("large", 1, 2, 9, 8)
    same = windows((1, 2, 5, 8), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 0.0, groups=2)
    patches = make("Cat", (), [view(node(small), same), view(node(large), DEPTHWISE)])
    found = names(lines([small, large, TAPS], by_channel(patches, 0), 1, 4, 5, 8))
    assert found["conv"] == 2
    assert not found.keys() & {"gather", "matmul", "where"}


@pytest.mark.parametrize("side", [0, 1])
def test_windows_of_channels_in_another_order_are_a_convolution(side: int) -> None:
    """Shuffled channels, and channels that come last."""
    image = arg("x", 4, 9, 8)
    four = windows((1, 4, 9, 8), (3, 3), (2, 1), (1, 1), (1, 1), (1, 1), 0.0, groups=4)
    shuffled = view(node(image), of_transpose((2, 2, 72), (1, 0, 2)))
    found = names(lines([image, TAPS], by_channel(view(shuffled, four), side), 1, 4, 5, 8))
    assert found["conv"] == found["transpose"] == 1
    assert not found.keys() & {"gather", "matmul", "where"}
    last = arg("last", 9, 8, 4)
    first = view(node(last), of_transpose((72, 4), (1, 0)))
    found = names(lines([last, TAPS], by_channel(view(first, four), side), 1, 4, 5, 8))
    assert found["conv"] == found["transpose"] == 1
    assert not found.keys() & {"gather", "matmul", "where"}


@pytest.mark.parametrize("side", [0, 1])
def test_a_product_of_all_terms_of_two_convolutions_is_their_sum(side: int) -> None:
    """A block whose input is convolved as well: windows of three by three of one array, and of one of another."""
    one, two, filters = arg("one", 1, 2, 5, 8), arg("two", 1, 3, 5, 8), arg("f", 6, 21)
    patches = view(node(one), windows(one.shape, (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 0.0, groups=1))
    columns = make("Cat", (), [view(patches, of_transpose((40, 18), (1, 0))), node(two)])
    product = mm(node(filters), columns, 6, 21, 40)
    if side == 0:
        rows, weights = view(columns, of_transpose((21, 40), (1, 0))), node(filters)
        weights = view(weights, of_transpose((6, 21), (1, 0)))
        product = view(mm(rows, weights, 40, 21, 6), of_transpose((40, 6), (1, 0)))
    found = names(lines([one, two, filters], product, 1, 6, 5, 8))
    assert found["conv"] + found["matmul"] == 2
    assert found["conv"] >= found["add"] == 1
    assert not found.keys() & {"gather", "where"}
    whole = names(lines([one, two, filters], product, 1, 6, 5, 8, exact=True))
    assert whole["conv"] + whole["matmul"] == 1, "exact sums stay whole: in two parts they are rounded otherwise"


def test_two_arrays_that_lie_between_each_other_are_sliced() -> None:
    """Every other pixel of an image, from the first on and from the one below and beside it."""
    image, left = arg("x", 3, 10, 8), arg("w", 2, 4, 3)
    halves = strided(0, [(2, 9), (30 // 2, 16), (4, 2)])
    product = mm(node(left), view(node(image), halves), 4, 3, 20, batch=2)
    found = names(lines([image, left], product, 2, 4, 20))
    assert found["slice"] >= 2
    assert "gather" not in found


def test_a_batched_product_that_needs_no_gather_stays_whole() -> None:
    one = arg("one", 1, 4, 9, 8)
    patches = view(node(one), windows(one.shape, (3, 3), (2, 1), (1, 1), (1, 1), (1, 1), 0.0, groups=4))
    assert names(lines([one, TAPS], by_channel(patches, 0), 1, 4, 5, 8)) == {"conv": 1, "reshape": 1}
    rows = make("Cat", (), [node(X), node(arg("z", 6, 16))])
    both = mm(rows, make("Cat", (), [node(W), node(W)]), 6, 16, 16, batch=2)
    assert names(lines([X, arg("z", 6, 16), W], both, 2, 6, 16))["matmul"] == 1


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(
    ("start", "count", "pads_lo", "pads_hi"),
    [
        (0, 37, "(1, 1)", "(1, 1)"),
        (3, 20, "(1, 1)", "(0, 1)") ,
        (9, 31, "(0, 1)", "(1, 1)"),
        (9, 22, "(0, 1)", "(0, 1)"),
        (20, 15, "(0, 1)", "(1, 1)"),
    ],
)  # fmt: skip
def test_a_run_of_windows_is_a_slice_of_a_convolution(
    side: int, start: int, count: int, pads_lo: str, pads_hi: str
) -> None:
    """Whole lines of windows are computed; those at the edges, which reach into the padding, only if they are read."""
    image, weights = arg("image", 1, 4, 5, 8), arg("weights", 36, 6)
    every = windows(image.shape, (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 0.0, groups=1)
    if side == 0:
        run = view(view(node(image), every), strided(start * 36, ((count * 36, 1),)))
        product = mm(run, node(weights), count, 36, 6)
    else:
        turned = compose(every, of_transpose((40, 36), (1, 0)))
        assert turned is not None
        run = view(view(node(image), turned), strided(start, ((36, 40), (count, 1))))
        product = mm(view(node(weights), of_transpose((36, 6), (1, 0))), run, 6, 36, count)
    found = lines([image, weights], product, product.size)
    assert {"gather", "where", "matmul"}.isdisjoint(names(found))
    (conv,) = (line for line in found if line.startswith("conv"))
    assert f"pads_lo={pads_lo}, pads_hi={pads_hi}" in conv


def test_windows_of_a_part_of_an_image_are_windows_of_its_crop() -> None:
    image, weights = arg("image", 1, 4, 7, 8), arg("weights", 36, 6)
    every = view(node(image), windows(image.shape, (3, 3), (1, 1), (1, 1), (0, 0), (0, 0), 0.0, groups=1))
    middle = view(every, strided(6 * 36, ((18 * 36, 1),)))  # three of five lines
    found = lines([image, weights], mm(middle, node(weights), 18, 36, 6), 108)
    assert {"gather", "matmul"}.isdisjoint(names(found))
    assert {name: names(found)[name] for name in ("slice", "conv")} == {"slice": 1, "conv": 1}
    corner = view(node(image), of_slice(image.shape, (0, 0, 2, 1), (1, 4, 7, 8), (1, 1, 1, 1)))
    pooled = view(corner, windows((1, 4, 5, 7), (3, 3), (2, 2), (1, 1), (0, 0), (0, 0), 0.0))
    assert names(lines([image], make("Red", ("sum", 9), (pooled,)), 1, 4, 2, 3)) == {"slice": 1, "pool": 1}


@pytest.mark.parametrize(("kind", "fill"), [("max", float("-inf")), ("sum", 0.0)])
def test_a_reduction_over_windows_is_a_pool(kind: str, fill: float) -> None:
    patches = view(node(IMAGE), windows(IMAGE.shape, (3, 3), (2, 2), (1, 1), (1, 1), (1, 0), fill))
    assert lines([IMAGE], make("Red", (kind, 9), (patches,)), 2, 4, 5, 4) == [
        f"pool(%0, kind='{kind}', kernel=(3, 3), strides=(2, 2), pads_lo=(1, 1), pads_hi=(1, 0), dilations=(1, 1))"
    ]


def test_padding_that_is_not_neutral_is_no_pool() -> None:
    patches = view(node(IMAGE), windows(IMAGE.shape, (3, 3), (2, 2), (1, 1), (1, 1), (1, 0), 0.0))
    found = lines([IMAGE], make("Red", ("max", 9), (patches,)), 2, 4, 5, 4)
    assert "pool" not in [line.split("(")[0] for line in found]
