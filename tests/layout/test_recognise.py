"""Index arrays are recognised as the layouts that they are."""

from __future__ import annotations

import random

import numpy as np
import pytest

from eqsat.layout.arithmetic import Layout, compose, of_pad, of_transpose, windows
from eqsat.layout.recognise import of_index
from support.layouts import FAMILIES, draw

LEAST = {"padding": 0.75, "padded-windows": 0.75, "masks": 0.5, "all": 0.65}
"""Shares that are recognised of random reshapes of random pads: few programs hold such views. All plain ones are."""


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_recognised_reads_the_same(family: str) -> None:
    drawn = draw(family, 200)
    found = [of_index(places, 0.0) for _, places, _ in drawn]
    for layout, (_, places, _) in zip(found, drawn, strict=True):
        assert layout is None or (layout.index() == places).all()
    assert sum(layout is not None for layout in found) >= LEAST.get(family, 1.0) * len(drawn)


def usual(rng: random.Random) -> Layout:
    """Padded windows and pads of an array whose channels were last."""
    n, c, h, w = rng.randint(1, 2), rng.randint(1, 6), rng.randint(4, 9), rng.randint(4, 9)
    lo, hi = [rng.randint(0, 1) for _ in range(2)], [rng.randint(0, 1) for _ in range(2)]
    views = {
        "windows": windows(
            (n, c, h, w), [rng.randint(2, 3)] * 2, [rng.randint(1, 2)] * 2, [1, 1], lo, hi, 0.0, rng.choice([c, None])
        ),
        "pad": of_pad((n, c, h, w), [0, 0, *lo], [0, 0, *hi], 0.0),
    }
    found = compose(of_transpose((n, h, w, c), (0, 3, 1, 2)), views[rng.choice(list(views))])
    assert found is not None
    return found


@pytest.mark.parametrize("seed", range(60))
def test_usual_views_are_recognised(seed: int) -> None:
    layout = usual(random.Random(seed))
    found = of_index(layout.index(), 0.0)
    assert found is not None
    assert (found.index() == layout.index()).all()


def flat(rng: random.Random) -> Layout | None:
    """Padded windows over an array with axes of size 1, as a transposed convolution of a small image reads them; None
    if there are none or all is padding."""
    rank = rng.choice([1, 2, 2, 3])
    shape = [rng.choice([1, 1, rng.randint(3, 5)]) for _ in range(rank)]
    kernel, strides, dilations, lo, hi = (
        [rng.randint(*bounds) for _ in shape] for bounds in ((1, 5), (1, 3), (1, 2), (0, 4), (0, 4))
    )
    channels = rng.randint(1, 4)
    if any(a + n + b <= (k - 1) * d for a, n, b, k, d in zip(lo, shape, hi, kernel, dilations, strict=True)):
        return None
    n, groups = rng.randint(1, 2), rng.choice([None, 1, channels])
    found = windows((n, channels, *shape), kernel, strides, dilations, lo, hi, 0.0, groups)
    return found if (found.index() >= 0).any() else None


def test_windows_over_axes_of_size_1_are_recognised() -> None:
    rng = random.Random(0)
    drawn = [layout for _ in range(300) if (layout := flat(rng)) is not None]
    assert len(drawn) > 100
    for layout in [windows((2, 10, 1, 1), [4, 4], [1, 1], [1, 1], [3, 3], [3, 3], 0.0, None), *drawn]:
        found = of_index(layout.index(), 0.0)
        assert found is not None, layout
        assert (found.index() == layout.index()).all()


def test_what_is_no_layout_is_not_recognised() -> None:
    rng = np.random.default_rng(0)
    for size in (7, 12, 60):
        places = rng.permutation(size)
        assert of_index(places, None) is None
    assert of_index(np.full(4, -1), 0.0) is None
