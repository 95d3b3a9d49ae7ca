"""Constants of two values that are views of one number."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat.layout.bands import banded
from eqsat.program import ops
from eqsat.program.core import lower
from eqsat.program.ir import Program

WINDOW = np.tri(9, 7, 2, bool) & ~np.tri(9, 7, -2, bool)

BANDS = {
    "a triangle": np.tri(6, 6, dtype=bool),
    "an upper one": np.triu(np.ones((5, 8), np.float32), 2),
    "a window": WINDOW,
    "what a window leaves": ~WINDOW,
    "a zero with a sign": np.where(np.tri(4, 4, dtype=bool), -0.0, 0.0),
    "infinities": np.where(np.tri(4, 9, dtype=bool), np.float16(0), np.float16(-np.inf)),
    "the same for all heads": np.broadcast_to(np.tri(5, 5, -1, dtype=np.int64), (2, 3, 5, 5)),
}

OTHERS = {
    "one value": np.ones((3, 3)),
    "three values": np.arange(9.0).reshape(3, 3) // 3,
    "columns": np.broadcast_to(np.arange(4) < 2, (3, 4)),
    "two windows": np.eye(8, k=3) + np.eye(8, k=-3),
    "a hole": np.tri(6, 6) - np.eye(6) * (np.arange(6) == 3),
    "heads that differ": np.stack([np.tri(4, 4), np.tri(4, 4, 1)]),
    "a line": np.array([True, True, False]),
    "zeros of both signs": np.where(np.eye(2, dtype=bool), np.copysign(0.0, [[-1, 1], [1, 1]]), 1.0),
    "NaN": np.where(np.tri(4, 4, dtype=bool), 0.0, np.nan),
}


@pytest.mark.parametrize("name", BANDS)
def test_bands_are_views_of_one_number(name: str) -> None:
    a = np.ascontiguousarray(BANDS[name])
    core = lower(Program((), {"y": ops.constant(a)}))
    assert (core.roots[0].op, core.roots[0].args[0].op, core.constants) == ("V", "Full", {})
    assert core.run({})["y"].tobytes() == a.tobytes()


@pytest.mark.parametrize("name", OTHERS)
def test_other_constants_stay(name: str) -> None:
    assert banded(np.ascontiguousarray(OTHERS[name])) is None


def test_most_constants_are_told_apart_by_a_few_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np, "unique", None)  # loads masked arrays
    assert banded(np.arange(64 * 64.0).reshape(64, 64)) is None
    assert banded(np.tril(np.ones((64, 64)))) is not None
