"""Layouts against NumPy index arrays, on tens of thousands of random layouts."""

from __future__ import annotations

import math
import pickle
import random

import numpy as np
import pytest

from eqsat.layout.arithmetic import (
    Axis,
    Layout,
    box,
    compose,
    conv_result,
    conv_weights,
    footprint,
    identity,
    inverse,
    is_bijective,
    masked,
    of_broadcast,
    of_pad,
    of_slice,
    of_transpose,
    row_major,
    shown_whole,
    split,
    strided,
    window_counts,
    windows,
)
from support.layouts import (
    FAMILIES,
    LOOSE_BOXES,
    SECOND_FORMS,
    Array,
    arange,
    draw,
    factors,
    read,
)

# --- steps: a random view of x, as NumPy does it and as a layout ------------------------------------------------


# --- composition and canonical form ----------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_composition_reads_what_numpy_reads(family: str) -> None:
    views = draw(family, 2500)
    assert len(views) > 1600, "composition declines too often"
    for _, index, layout in views:
        np.testing.assert_array_equal(layout.index(), index)
        assert layout.size == index.size
        assert layout.masked == bool((index < 0).any())


def test_the_canonical_form_reads_what_a_spelling_reads() -> None:
    draws = random.Random(4)
    for _ in range(6000):
        sizes = [draws.choice((1, 2, 2, 4)) for _ in range(draws.randint(2, 3))]
        strides = [draws.choice((-1, 0, 1, 2)) for _ in sizes]
        coeffs = tuple(draws.choice((-2, -1, 0, 1, 2, 4)) for _ in sizes)
        axis = Axis(2 * draws.randint(1, 3), draws.choice((-4, -1, 0, 2, 4)), draws.randint(-6, 6), coeffs)
        digits = np.indices(sizes).reshape(len(sizes), -1)
        coordinate = axis.start + np.array(coeffs) @ digits
        flat = 100 + np.array(strides) @ digits + axis.stride * coordinate
        wanted = np.where((coordinate >= 0) & (coordinate < axis.bound), flat, -1)
        made = Layout(100, tuple(zip(sizes, strides, strict=True)), (axis,), 0.0)
        np.testing.assert_array_equal(made.index(), wanted, f"{sizes} {strides} {axis}")


@pytest.mark.parametrize("family", FAMILIES)
def test_equal_maps_have_one_form(family: str) -> None:
    forms: dict[bytes, set[Layout]] = {}
    for _, index, layout in draw(family, 2500):
        forms.setdefault(index.tobytes(), set()).add(layout)
        assert Layout(layout.offset, layout.dims, layout.axes, layout.fill) == layout
    twice = sum(len(same) > 1 for same in forms.values())
    assert twice <= SECOND_FORMS.get(family, 0) * len(forms)


@pytest.mark.parametrize("family", FAMILIES)
def test_facts_about_a_layout_hold_of_its_index(family: str) -> None:
    for shape, index, layout in draw(family, 1200):
        n = math.prod(shape)
        valid = index[index >= 0]
        onto = layout.size == n and np.array_equal(np.sort(index), np.arange(n))
        assert footprint(layout) == np.unique(valid).size
        assert is_bijective(layout, n) == onto
        run = index.size > 0 and np.array_equal(index, index[0] + np.arange(index.size)) and index[0] >= 0
        assert layout.contiguous == run
        assert layout.is_identity(n) == np.array_equal(index, np.arange(n))
        shown = shown_whole(layout)
        assert shown == n if onto else shown is None or np.array_equal(np.unique(index), np.arange(shown))
        undo = inverse(layout, n)
        assert (undo is not None) == onto
        if undo is not None:
            np.testing.assert_array_equal(index[undo.index()], np.arange(n))
            assert compose(layout, undo) in (identity(n), None)


@pytest.mark.parametrize("family", FAMILIES)
def test_box_holds_every_read_and_the_residual_reads_inside_it(family: str) -> None:
    rng = random.Random(family)
    found = loose = 0
    for shape, index, layout in draw(family, 1200):
        radices = tuple(rng.choice([shape, tuple(factors(rng, math.prod(shape)))]))
        boxed = box(layout, radices)
        if boxed is None or not (index >= 0).any():
            continue
        lines, residual = boxed
        places = [strided(line.start, line.dims).index() for line in lines]
        np.testing.assert_array_equal(read(arange(radices)[np.ix_(*places)].reshape(-1), residual), index)
        digits = np.unravel_index(index[index >= 0], radices)
        found += 1
        loose += any(not np.array_equal(np.unique(d), np.sort(p)) for d, p in zip(digits, places, strict=True))
    assert found > 300
    assert loose <= LOOSE_BOXES.get(family, 0) * found


@pytest.mark.parametrize("family", FAMILIES)
def test_split_gives_the_digits_of_every_read(family: str) -> None:
    found = 0
    for shape, index, layout in draw(family, 600):
        digits = split(layout, shape)
        if digits is None:
            continue
        found += 1
        places = np.indices(digits.sizes).reshape(len(digits.sizes), layout.size)
        values = [start + np.array(c, np.int64) @ places for start, c in zip(digits.starts, digits.coeffs, strict=True)]
        valid = index >= 0
        for axis in digits.axes:
            coordinate = axis.start + np.array(axis.coeffs, np.int64) @ places
            valid_here = (coordinate >= 0) & (coordinate < axis.bound)
            assert np.all(valid_here[valid])
        assert math.prod(digits.sizes) == layout.size
        flat = sum(stride * value for stride, value in zip(row_major(shape), values, strict=True))
        np.testing.assert_array_equal(np.asarray(flat)[valid], index[valid])
    assert found > 150


# --- the constructors, one row each ----------------------------------------------------------------------------

X = arange((2, 3, 4))
ROWS = {
    "identity": (identity(24), X),
    "scalar": (identity(1), np.array([0])),
    "empty": (identity(0), np.array([], np.int64)),
    "strided": (strided(3, [(2, 12), (3, 4)]), X[:, :, 3]),
    "transpose": (of_transpose((2, 3, 4), (2, 0, 1)), X.transpose(2, 0, 1)),
    "slice": (of_slice((2, 3, 4), (0, 1, 3), (2, 3, 0), (1, 1, -2)), X[0:2, 1:3, 3:0:-2]),
    "slice-to-nothing": (of_slice((2, 3, 4), (0, 2, 0), (2, 2, 4), (1, 1, 1)), X[:, 2:2]),
    "flip": (of_slice((2, 3, 4), (1, 0, 0), (-1, 3, 4), (-1, 1, 1)), X[::-1]),
    "broadcast-row": (of_broadcast((4,), (3, 4)), np.broadcast_to(np.arange(4), (3, 4))),
    "broadcast-column": (of_broadcast((3, 1), (3, 4)), np.broadcast_to(np.arange(3)[:, None], (3, 4))),
    "pad": (of_pad((2, 3, 4), (0, 1, 2), (1, 0, 1), 0.0), np.pad(X, [(0, 1), (1, 0), (2, 1)], constant_values=-1)),
    "pad-then-crop": (
        of_pad((2, 3, 4), (0, -1, 0), (0, 1, 0), 0.0),
        np.pad(X[:, 1:], [(0, 0), (0, 1), (0, 0)], constant_values=-1),
    ),
    "upper-triangle": (
        masked(0, [(3, 3), (3, 1)], [Axis(3, 0, 0, (-1, 1))], 0.0),
        np.where(np.triu(np.ones((3, 3), bool)), arange((3, 3)), -1),
    ),
    "filled": (masked(0, [(6, 1)], [Axis(2, 0, 7, (1,))], 0.0), np.full(6, -1)),
}


@pytest.mark.parametrize("row", ROWS)
def test_constructor(row: str) -> None:
    layout, expected = ROWS[row]
    np.testing.assert_array_equal(layout.index(), expected.reshape(-1))


def test_no_mask_remains_where_nothing_is_filled() -> None:
    assert of_pad((2, 3), (0, 0), (0, 0), 0.0) == identity(6)
    assert masked(0, [(6, 1)], [Axis(9, 0, 2, (1,))], 0.0) == identity(6)


# --- windows: convolution and pooling --------------------------------------------------------------------------


def gathered_windows(x: Array, kernel: list[int], strides: list[int], dilations: list[int]) -> Array:
    """x[n, c, *spatial] -> [n, c, *out, *kernel] by taking positions along each axis."""
    for i, (k, s, d) in enumerate(zip(kernel, strides, dilations, strict=True)):
        count = (x.shape[2 + i] - (k - 1) * d - 1) // s + 1
        positions = np.arange(count)[:, None] * s + np.arange(k) * d
        x = np.moveaxis(np.take(x, positions, 2 + i), 3 + i, -1)
    return x


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_windows_are_the_operands_of_convolution_and_pooling(rank: int) -> None:
    rng = random.Random(rank)
    for _ in range(120):
        groups, per_group, n = rng.randint(1, 3), rng.randint(1, 3), rng.randint(1, 2)
        shape = (n, groups * per_group, *(rng.randint(3, 6) for _ in range(rank)))
        kernel, strides, dilations, lo, hi = (
            [rng.randint(low, high) for _ in range(rank)] for low, high in ((1, 3), (1, 3), (1, 2), (0, 2), (0, 2))
        )
        counts = window_counts(shape[2:], kernel, strides, dilations, lo, hi)
        if min(counts) < 1:
            continue
        padded = np.pad(arange(shape), [(0, 0), (0, 0), *zip(lo, hi, strict=True)], constant_values=-1)
        pooled = gathered_windows(padded, kernel, strides, dilations)
        assert pooled.shape == (*shape[:2], *counts, *kernel)
        layout = windows(shape, kernel, strides, dilations, lo, hi, 0.0)
        np.testing.assert_array_equal(layout.index(), pooled.reshape(-1))

        grouped = pooled.reshape(n, groups, per_group, *counts, *kernel)
        order = (1, 0, *range(3, 3 + rank), 2, *range(3 + rank, 3 + 2 * rank))
        layout = windows(shape, kernel, strides, dilations, lo, hi, 0.0, groups)
        np.testing.assert_array_equal(layout.index(), grouped.transpose(order).reshape(-1))


def test_weights_and_result_of_convolution() -> None:
    w = arange((6, 2, 3, 3))
    grouped = w.reshape(2, 3, 18).transpose(0, 2, 1)
    np.testing.assert_array_equal(conv_weights((6, 2, 3, 3), 2).index(), grouped.reshape(-1))
    product = arange((2, 4, 5, 3))
    np.testing.assert_array_equal(conv_result(4, 2, 5, 3).index(), product.transpose(1, 0, 3, 2).reshape(-1))


# --- fills, keys and identity ----------------------------------------------------------------------------------

FILLS = [0.0, -0.0, 1.5, 0.1, float("inf"), float("-inf"), float("nan"), 0, 1, -7, 2**53 + 1, True, False]


def test_fills_differ_by_type_and_bits_and_survive_the_key() -> None:
    layouts = [of_pad((3,), (1,), (0,), fill) for fill in FILLS]
    assert len(set(layouts)) == len(FILLS)
    for fill, layout in zip(FILLS, layouts, strict=True):
        for copy in (Layout.parse(layout.key()), pickle.loads(pickle.dumps(layout)), of_pad((3,), (1,), (0,), fill)):
            assert copy == layout
            assert hash(copy) == hash(layout)
            assert repr(copy.fill) == repr(fill)
            assert type(copy.fill) is type(fill)


@pytest.mark.parametrize("family", ["plain", "all"])
def test_key_round_trip(family: str) -> None:
    layouts = {layout for _, _, layout in draw(family, 800)}
    assert {Layout.parse(layout.key()) for layout in layouts} == layouts
    assert len({layout.key() for layout in layouts}) == len(layouts)


def test_a_layout_is_immutable() -> None:
    with pytest.raises(AttributeError):
        identity(3).offset = 1  # type: ignore[misc]


def test_a_mask_needs_a_fill() -> None:
    with pytest.raises(ValueError, match="fill"):
        of_pad((3,), (1,), (0,), None)


COMPOSITIONS = {
    "equal-fills": (of_pad((3,), (1,), (0,), 0.0), of_pad((4,), (0,), (1,), 0.0), of_pad((3,), (1,), (1,), 0.0)),
    "other-fills": (of_pad((3,), (1,), (0,), 0.0), of_pad((4,), (0,), (1,), 1.0), None),
    "zero-and-minus-zero": (of_pad((3,), (1,), (0,), 0.0), of_pad((4,), (0,), (1,), -0.0), None),
    "crop-undoes-pad": (of_pad((3,), (1,), (2,), 0.0), of_slice((6,), (1,), (4,), (1,)), identity(3)),
    "a-cut-into-padding-alone": (
        of_pad((3,), (2,), (0,), 0.0),
        of_slice((5,), (0,), (2,), (1,)),
        masked(0, [(2, 0)], [Axis(0, 0, 0, (0,))], 0.0),
    ),
    "rows-that-wrap": (of_slice((3, 4), (0, 0), (3, 3), (1, 1)), strided(0, [(4, 2)]), None),
    "padded-rows-transposed": (
        of_transpose((2, 3, 4), (1, 0, 2)),
        of_pad((3, 2, 4), (1, 0, 0), (1, 0, 0), 0.0),
        masked(0, [(5, 0), (2, 12), (4, 1)], [Axis(3, 4, -1, (1, 0, 0))], 0.0),
    ),
    "an-outer-pad-over-digits-inside": (
        of_transpose((4, 2, 3), (1, 2, 0)),
        of_pad((2, 12), (1, 0), (1, 0), 0.0),
        masked(0, [(4, 0), (3, 1), (4, 6)], [Axis(2, 3, -1, (1, 0, 0))], 0.0),
    ),
}


@pytest.mark.parametrize("layout", [of_transpose((2, 3), (1, 0)), of_slice((9,), (2,), (8,), (3,)), identity(6)])
def test_a_view_of_a_whole_array_or_as_a_whole_is_that_view(layout: Layout) -> None:
    compose.cache_clear()  # it may hold an equal one
    assert compose(layout, identity(layout.size)) is layout
    assert compose(identity(9), layout) is layout


@pytest.mark.parametrize("row", COMPOSITIONS)
def test_compose(row: str) -> None:
    first, then, expected = COMPOSITIONS[row]
    assert compose(first, then) == expected
