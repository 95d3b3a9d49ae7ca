"""Views, joined arrays, gathers and choices that move elements alike are told from those that do not."""

from __future__ import annotations

import random
from math import prod

import numpy as np
import pytest

from eqsat.program.core import Node, make
from eqsat.verify.moves import move_alike, moves
from support.layouts import FAMILIES, draw


def leaf(name: str, size: int, dtype: str = "float32") -> Node:
    return make("In", (name, size, dtype))


def stored(constants: dict[str, np.ndarray], array: np.ndarray) -> Node:
    """A constant with these elements."""
    name = f"c{len(constants)}"
    constants[name] = array.reshape(-1)
    return make("Const", (name, array.size, str(array.dtype)))


def by_number(x: Node, places: np.ndarray, constants: dict[str, np.ndarray], fill: float) -> Node:
    """The elements of x at these places, the number at negative ones."""
    read = make("Gather", (1, x.size, 1), (x, stored(constants, np.maximum(places, 0))))
    return make("Where", (), (stored(constants, places >= 0), read, make("Full", (fill, places.size, x.dtype))))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_view_is_its_elements_by_number(family: str) -> None:
    rng = random.Random(family)
    for shape, places, layout in draw(family, 12):
        x = leaf("x", prod(shape), rng.choice(["float32", "float64"] if layout.masked else ["float16", "int64"]))
        view = make("V", (layout,), (x,))
        constants: dict[str, np.ndarray] = {}
        assert move_alike(view, by_number(x, places, constants, 0), constants)
        other = places.copy()
        at = rng.randrange(places.size)
        other[at] = (places[at] + 1) % x.size
        assert other[at] == places[at] or not move_alike(view, by_number(x, other, constants, 0), constants)
        assert (places >= 0).all() or not move_alike(view, by_number(x, places, constants, 1), constants)


def test_a_number_is_no_place() -> None:
    x, ones = leaf("x", 1), make("Full", (1.0, 1, "float32"))
    for number in (1.0, 0.0, -1.0):
        assert not move_alike(x, make("Full", (number, 1, "float32")), {})
    assert move_alike(ones, ones, {})


def test_elements_of_different_values_differ() -> None:
    x, y = leaf("x", 3), leaf("y", 3)
    one, other = make("Cat", (), (x, y)), make("Cat", (), (y, x))
    assert move_alike(one, one, {})
    assert not move_alike(one, other, {})
    assert not move_alike(x, y, {})


def test_what_an_input_decides_is_no_move() -> None:
    x, index, truth = leaf("x", 4), leaf("i", 4, "int64"), leaf("c", 4, "bool")
    assert not moves(make("Gather", (1, 4, 1), (x, index)))
    assert not moves(make("Where", (), (truth, x, x)))
    assert not moves(make("Bin", ("add",), (x, x)))
    assert moves(make("Cat", (), (x, x)))


def test_truth_values_cannot_be_numbered() -> None:
    x = leaf("x", 2, "bool")
    assert not move_alike(make("Cat", (), (x, x)), make("Cat", (), (x, x)), {})
