"""Random layouts beside the NumPy index arrays that they stand for."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np

from eqsat.layout.arithmetic import (
    Axis,
    Layout,
    compose,
    identity,
    masked,
    of_broadcast,
    of_pad,
    of_slice,
    of_transpose,
    row_major,
    strided,
)

Array = np.ndarray


SHAPES = [(4, 6), (2, 3, 4), (12,), (8, 9), (5, 4, 3)]


def arange(shape: tuple[int, ...]) -> Array:
    return np.arange(math.prod(shape), dtype=np.int64).reshape(shape)


def read(flat: Array, layout: Layout, filled: int = -1) -> Array:
    """V(flat, layout) on an index array, where -1 already stands for a filled read."""
    index = layout.index()
    return np.where(index < 0, filled, flat[np.maximum(index, 0)]) if flat.size else index


def transpose(rng: random.Random, x: Array) -> tuple[Array, Layout]:
    perm = rng.sample(range(x.ndim), x.ndim)
    return x.transpose(perm), of_transpose(x.shape, perm)


def cut(rng: random.Random, x: Array) -> tuple[Array, Layout]:
    starts = [rng.randrange(n) if rng.random() < 0.5 else 0 for n in x.shape]
    stops = [rng.randint(start + 1, n) if start else n for start, n in zip(starts, x.shape, strict=True)]
    y = x[tuple(map(slice, starts, stops))]
    return y, of_slice(x.shape, starts, stops, [1] * x.ndim)


def step(rng: random.Random, x: Array) -> tuple[Array, Layout]:
    steps = [rng.randint(1, 3) for _ in x.shape]
    y = x[tuple(slice(None, None, s) for s in steps)]
    return y, of_slice(x.shape, [0] * x.ndim, x.shape, steps)


def flip(rng: random.Random, x: Array) -> tuple[Array, Layout]:
    axis = rng.randrange(x.ndim)
    turned = [i == axis for i in range(x.ndim)]
    starts = [n - 1 if t else 0 for t, n in zip(turned, x.shape, strict=True)]
    stops = [-1 if t else n for t, n in zip(turned, x.shape, strict=True)]
    return np.flip(x, axis), of_slice(x.shape, starts, stops, [-1 if t else 1 for t in turned])


def repeat(rng: random.Random, x: Array) -> tuple[Array, Layout]:
    axis = rng.randint(0, x.ndim)
    with_unit = (*x.shape[:axis], 1, *x.shape[axis:])
    out = (*x.shape[:axis], rng.randint(2, 3), *x.shape[axis:])
    return np.broadcast_to(x.reshape(with_unit), out), of_broadcast(with_unit, out)


def window(rng: random.Random, x: Array) -> tuple[Array, Layout]:
    """Overlapping windows along one axis: size, stride and dilation at random."""
    axis = rng.randrange(x.ndim)
    stride, dilation = rng.randint(1, 2), rng.randint(1, 2)
    taps = rng.randint(1, min(3, (x.shape[axis] - 1) // dilation + 1))
    count = (x.shape[axis] - (taps - 1) * dilation - 1) // stride + 1
    positions = np.arange(count)[:, None] * stride + np.arange(taps) * dilation
    dims = list(zip(x.shape, row_major(x.shape), strict=True))
    inner = dims[axis][1]
    dims[axis : axis + 1] = [(count, stride * inner), (taps, dilation * inner)]
    return np.take(x, positions, axis), strided(0, dims)


def pad(rng: random.Random, x: Array) -> tuple[Array, Layout]:
    lo = [rng.randint(0, 2) if rng.random() < 0.5 else 0 for _ in x.shape]
    hi = [rng.randint(0, 2) if rng.random() < 0.5 else 0 for _ in x.shape]
    y = np.pad(x, list(zip(lo, hi, strict=True)), constant_values=-1)
    return y, of_pad(x.shape, lo, hi, 0.0)


def band(rng: random.Random, x: Array) -> tuple[Array, Layout]:
    """Keep -l <= i - j < u of the first and last axis: triangles and diagonals are such masks."""
    if x.ndim < 2:
        return x, identity(x.size)
    lower, upper = rng.randint(0, 3), rng.randint(1, 3)
    i, j = arange((x.shape[0], 1)), arange((x.shape[-1],))
    difference = i - j
    keep = (difference >= -lower) & (difference < upper)
    keep = keep.reshape(x.shape[0], *(1,) * (x.ndim - 2), x.shape[-1])
    coeffs = (1, *(0,) * (x.ndim - 2), -1)
    dims = zip(x.shape, row_major(x.shape), strict=True)
    return np.where(keep, x, -1), masked(0, dims, [Axis(lower + upper, 0, lower, coeffs)], 0.0)


Step = Callable[[random.Random, Array], tuple[Array, Layout]]


FAMILIES: dict[str, list[Step]] = {
    "transpose-slice": [transpose, cut],
    "overlapping-windows": [transpose, cut, window],
    "broadcast": [transpose, cut, window, repeat],
    "negative-strides": [transpose, cut, flip],
    "strided-slices": [transpose, cut, step],
    "plain": [transpose, cut, step, window, flip, repeat],
    "padding": [transpose, cut, pad],
    "padded-windows": [transpose, cut, pad, window, repeat],
    "masks": [transpose, cut, pad, band],
    "all": [transpose, cut, step, flip, repeat, window, pad, band],
}


# Masks hide facts that only enumeration shows: shares of maps with a second form, and of boxes that are not the least.
# Random diagonals of random reshapes, as in "masks" and "all", are far from what programs hold.
SECOND_FORMS = {"padding": 0.002, "padded-windows": 0.002, "masks": 0.012, "all": 0.003}


LOOSE_BOXES = {"padding": 0.03, "padded-windows": 0.03, "masks": 0.4, "all": 0.25}


def factors(rng: random.Random, n: int) -> list[int]:
    """A random shape of n elements."""
    shape = []
    while n > 1:
        shape.append(rng.choice([q for q in range(2, n + 1) if n % q == 0]))
        n //= shape[-1]
    return shape or [1]


def random_view(rng: random.Random, shape: tuple[int, ...], steps: list[Step]) -> tuple[Array, Layout | None]:
    """1 to 4 random steps over random reshapes of arange(shape), and their composition if there is one."""
    x, layout = arange(shape), identity(math.prod(shape))
    for _ in range(rng.randint(1, 4)):
        x, then = rng.choice(steps)(rng, x.reshape(factors(rng, x.size)))
        layout = compose(layout, then)
        if layout is None or x.size > 2000:
            break
    return x.reshape(-1), layout


def draw(family: str, count: int) -> list[tuple[tuple[int, ...], Array, Layout]]:
    """``count`` attempts at a random view, of which the composable ones are returned: (shape, index, layout)."""
    rng = random.Random(family)
    found = []
    for _ in range(count):
        shape = rng.choice(SHAPES)
        index, layout = random_view(rng, shape, FAMILIES[family])
        if layout is not None:
            found.append((shape, index, layout))
    return found
