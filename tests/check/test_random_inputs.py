"""Random inputs of parts: drawn once for all of them, and never the same for two inputs of one."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from eqsat.check import inputs
from eqsat.check.inputs import Drawn
from eqsat.check.wanted import Repeated, everything
from eqsat.program import ops
from eqsat.program.term import Term


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "DRAWN", 101)
    monkeypatch.setattr(inputs, "KEPT", 2)


def terms(*sizes: int, dtype: str = "float32") -> list[Term]:
    return [ops.input(f"x{i}", (size,), dtype) for i, size in enumerate(sizes)]


def values(drawn: Drawn, wanted: list[Term], point: int = 0) -> list[np.ndarray]:
    found = drawn.values(wanted, point)
    return [
        value.selected(everything(term)) if isinstance(value := found[term.attr("name")], Repeated) else value
        for term in wanted
    ]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "bool"])
@pytest.mark.parametrize("point", [0, 1])
def test_the_same_part_gets_the_same_values_whatever_came_before(dtype: str, point: int) -> None:
    sizes = (60, 300, 70, 90, 120)
    wanted = terms(*sizes, dtype=dtype)
    drawn = Drawn(3)
    values(drawn, terms(100, 400, 20, 30), point)
    for found, alone in zip(values(drawn, wanted, point), values(Drawn(3), wanted, point), strict=True):
        assert np.array_equal(found, alone)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_no_two_inputs_of_a_part_have_the_same_values(dtype: str) -> None:
    found = values(Drawn(0), terms(*[101] * 6, dtype=dtype))
    assert all((a != b).any() for a, b in combinations(found, 2))


def test_odd_points_are_magnitudes_and_points_and_seeds_differ() -> None:
    wanted = terms(60, 300)
    first, odd, other = values(Drawn(0), wanted), values(Drawn(0), wanted, 1), values(Drawn(1), wanted)
    for a, b, c in zip(first, odd, other, strict=True):
        assert (b >= 0).all()
        assert (a < 0).any()
        assert (a != np.where(a < 0, -b, b)).any()
        assert (a != c).any()


def test_few_inputs_are_kept_for_other_parts() -> None:
    drawn = Drawn(0)
    values(drawn, terms(*[101] * 9))
    assert len(drawn._further) == 2
