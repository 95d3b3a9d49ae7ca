"""Towers that one program computes apart and the other joined, along several axes: proved part by part."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.layout.arithmetic import strided
from eqsat.program.core import evaluate, lower, make, topological
from eqsat.proof.joined import Join, joins
from eqsat.proof.values.ahead import Ahead
from eqsat.rules import CHECKABLE
from eqsat.tracing import functions as fx
from eqsat.verify.checker import verify

HIGH, WIDE = 4, 5
LENGTH = HIGH * WIDE
LAYERS = 9


@dataclass(frozen=True)
class Layer:
    """What each of some towers computes of its [channels, LENGTH], and how all of them compute it at once.

    `form` says how the towers are joined there: as a stack [towers, channels, LENGTH], as more channels or columns.
    """

    form: str
    apart: Callable[[Any, int], Any]
    joined: Callable[[Any], Any]


FORMS = {
    "stack": (lambda parts: fx.stack(parts), lambda x, i, n, c: x[i]),
    "channels": (lambda parts: fx.concatenate(parts, 0), lambda x, i, n, c: x[i * c : (i + 1) * c]),
    "columns": (lambda parts: fx.concatenate(parts, 1), lambda x, i, n, c: x[:, i * LENGTH : (i + 1) * LENGTH]),
}


def changed(x: Any, before: str, after: str, n: int, c: int) -> Any:
    """Towers in one form in another."""
    if before == after:
        return x
    stacked = {
        "stack": lambda: x,
        "channels": lambda: fx.reshape(x, (n, c, LENGTH)),
        "columns": lambda: fx.transpose(fx.reshape(x, (c, n, LENGTH)), (1, 0, 2)),
    }[before]()
    return {
        "stack": lambda: stacked,
        "channels": lambda: fx.reshape(stacked, (n * c, LENGTH)),
        "columns": lambda: fx.reshape(fx.transpose(stacked, (1, 0, 2)), (c, n * LENGTH)),
    }[after]()


def weights(seed: int, *shape: int) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)


def mixed(seed: int, n: int, c: int) -> Layer:
    w = weights(seed, n, c, c)
    return Layer("stack", lambda x, i: fx.matmul(w[i], x), lambda x: fx.matmul(w, x))


def mixed_alike(seed: int, n: int, c: int) -> Layer:
    w = weights(seed, c, c)
    return Layer("columns", lambda x, i: fx.matmul(w, x), lambda x: fx.matmul(w, x))


def turned(seed: int, n: int, c: int) -> Layer:
    w = weights(seed, LENGTH, LENGTH)
    return Layer("channels", lambda x, i: fx.matmul(x, w), lambda x: fx.matmul(x, w))


def biased(seed: int, n: int, c: int) -> Layer:
    b = weights(seed, n * c, 1)
    return Layer("channels", lambda x, i: x + b[i * c : (i + 1) * c], lambda x: x + b)


def convolved(seed: int, n: int, c: int, size: int) -> Layer:
    w = weights(seed, n * c, 1, size, size)
    pads = {"pads_lo": (size // 2, size // 2), "pads_hi": (size // 2, size // 2)}

    def over(x: Any, w: np.ndarray) -> Any:
        image = fx.reshape(x, (1, len(w), HIGH, WIDE))
        return fx.reshape(fx.conv(image, w, groups=len(w), **pads), (len(w), LENGTH))

    return Layer("channels", lambda x, i: over(x, w[i * c : (i + 1) * c]), lambda x: over(x, w))


def pooled(seed: int, n: int, c: int) -> Layer:
    def over(x: Any, channels: int) -> Any:
        image = fx.reshape(x, (1, channels, HIGH, WIDE))
        found = fx.max_pool(image, (3, 3), (1, 1), pads_lo=(1, 1), pads_hi=(1, 1))
        return fx.reshape(found, (channels, LENGTH))

    return Layer("channels", lambda x, i: over(x, c), lambda x: over(x, n * c))


def moved(seed: int, n: int, c: int) -> Layer:
    """Columns moved by one, with a zero: as a view, or as a gather and a choice by constants."""
    index = np.array([(i % LENGTH - 1) % LENGTH + i // LENGTH * LENGTH for i in range(n * LENGTH)])
    hidden = np.arange(n * LENGTH) % LENGTH == 0
    return Layer(
        "columns",
        lambda x, i: fx.pad(x[:, :-1], ((0, 0), (1, 0))),
        lambda x: fx.where(hidden, np.float32(0), fx.take(x, index, axis=1)),
    )


def of_elements(function: Callable[[Any], Any], form: str) -> Callable[[int, int, int], Layer]:
    return lambda seed, n, c: Layer(form, lambda x, i: function(x), function)


KINDS = (
    mixed,
    mixed_alike,
    turned,
    biased,
    partial(convolved, size=3),
    partial(convolved, size=5),
    pooled,
    moved,
    *(of_elements(function, form) for function in (fx.relu, fx.tanh) for form in FORMS),
)


def towers(seed: int) -> tuple[Callable[..., Any], Callable[..., Any], list[Any]]:
    """Some towers, apart and joined; joined, they are taken apart in places and joined again. And their inputs."""
    rng = random.Random(seed)
    n, c = rng.randint(2, 4), rng.randint(2, 3)
    layers = [kind(seed * 100 + i, n, c) for i, kind in enumerate(rng.choices(KINDS, k=LAYERS))]
    parted = {rng.randrange(LAYERS)}

    def apart(*xs: Any) -> Any:
        found = []
        for i, x in enumerate(xs):
            for layer in layers:
                x = layer.apart(x, i)
            found.append(x)
        return fx.concatenate(found, 0)

    def at_once(*xs: Any) -> Any:
        form = layers[0].form
        x = FORMS[form][0](xs)
        for at, layer in enumerate(layers):
            if at in parted:
                x, form = FORMS[layer.form][0]([FORMS[form][1](x, i, n, c) for i in range(n)]), layer.form
            x, form = changed(x, form, layer.form, n, c), layer.form
            x = layer.joined(x)
        return changed(x, form, "channels", n, c)

    return apart, at_once, [eqsat.spec((c, LENGTH)) for _ in range(n)]


SEEDS = (0, 1, 3, 4, 6, 7, 8)


@pytest.mark.parametrize("swapped", [False, True], ids=["joined second", "joined first"])
@pytest.mark.parametrize("seed", SEEDS)
def test_towers_are_proved_equal_to_joined_ones(seed: int, swapped: bool) -> None:
    apart, at_once, inputs = towers(seed)
    one, other = (eqsat.trace(f, *inputs) for f in ((at_once, apart) if swapped else (apart, at_once)))
    proof = eqsat.prove(one, other, time_limit=60, certify=True)
    assert (proof.verdict, proof.method) == ("proved", "sweep"), proof.reason
    assert proof.certificate is not None, proof.uncertified
    assert verify(one, other, proof.certificate, CHECKABLE).lemmas


@pytest.mark.parametrize("seed", range(20))
def test_parts_are_computed_apart(seed: int) -> None:
    _, at_once, inputs = towers(seed)
    program = lower(eqsat.trace(at_once, *inputs))
    order = topological(program.roots)
    joined = joins(order, Ahead(program.constants, [program.roots]))
    rng = np.random.default_rng(seed)
    given = {node.attrs[0]: rng.standard_normal(node.size) for node in program.inputs}

    def parts(inputs: dict[str, np.ndarray]) -> list[list[np.ndarray]]:
        values = evaluate(list(joined), inputs, program.constants, precision="float64")
        return [join.arrays(value) for join, value in zip(joined.values(), values, strict=True)]

    before = parts(given)
    of_towers = [i for i, of in enumerate(before) if len(of) == len(given)]
    assert len(of_towers) >= LAYERS
    for tower, name in enumerate(given):
        after = parts({**given, name: -given[name]})
        for i in of_towers:
            same = [np.array_equal(a, b) for a, b in zip(before[i], after[i], strict=True)]
            assert same == [other != tower for other in range(len(given))]


C, SIDE = 2, 3
MAP = C * SIDE * SIDE
"""Elements of one of the maps that are joined: channels, rows, columns."""


@pytest.mark.parametrize(
    ("dims", "offset", "sizes"),
    [
        ([(2 * C, SIDE * SIDE), (SIDE, 0), (SIDE * SIDE, 1)], 3 * MAP, (C, C)),
        ([(3 * C, SIDE * SIDE), (SIDE, 0), (SIDE * SIDE, 1)], MAP, (C, C, C)),
        ([(2, 3 * MAP), (MAP, 1)], MAP, (1, 1)),
        ([(5, MAP), (SIDE, 0), (MAP, 1)], 0, (1,) * 5),
        ([(2 * C, SIDE), (SIDE, 1)], MAP, None),
        ([(MAP - 1, 2)], 1, None),
    ],
    ids=["last two", "middle three", "second and fifth", "all", "one alone", "across parts"],
)
def test_a_view_of_some_parts_is_joined_of_these(
    dims: list[tuple[int, int]], offset: int, sizes: tuple[int, ...] | None
) -> None:
    maps = [make("In", (f"x{i}", MAP, "float32")) for i in range(5)]
    view = make("V", (strided(offset, dims),), (make("Cat", (), maps),))
    found = joins(topological([view]), Ahead({}, [])).get(view)
    assert (found.sizes if found else None) == sizes


@pytest.mark.parametrize("seed", range(20))
def test_a_value_is_its_parts_joined(seed: int) -> None:
    rng = random.Random(seed)
    join = Join(rng.randint(1, 3), tuple(rng.randint(1, 4) for _ in range(rng.randint(2, 4))), rng.randint(1, 3))
    size = join.outer * sum(join.sizes) * join.inner
    value = make("In", ("x", size, "float32"))
    parts = join.parts(value)
    given = np.arange(size) + 1.0
    both = evaluate([join.joined(parts), *parts], {"x": given}, {}, precision="float64")
    assert np.array_equal(both[0], given)
    for one, other in zip(both[1:], join.arrays(given), strict=True):
        assert np.array_equal(one, other)
