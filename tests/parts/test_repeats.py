"""Cells that repeat themselves in a huge part: equal pieces, wherever they lie."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import reduce

import numpy as np
import pytest

import eqsat
from eqsat.parts import pieces, repeats
from eqsat.parts.segments import Segment, segments
from eqsat.program.core import CoreProgram, lower, topological
from support.programs import weight

WIDTH = 24


def cell(new: np.ndarray, old: np.ndarray, seed: int, steps: int) -> np.ndarray:
    """Of both values before it, so that no value separates it from the next one."""
    chains = []
    for i, x in enumerate((new, old, new)):
        for k in range(steps):
            x = np.tanh(x @ weight(WIDTH, WIDTH, seed=seed + 100 * i + k))
        chains.append(x)
    return np.concatenate([chains[0] + chains[1], chains[2]], axis=1) @ weight(2 * WIDTH, WIDTH, seed=seed + 1000)


def stages(*cells: int, steps: int = 16) -> CoreProgram:
    """Cells in a row, so many in each stage; a stage begins with fewer rows."""

    def net(x):
        new = old = x
        for stage, count in enumerate(cells):
            if stage:
                new, old = (np.exp(y[: len(y) // 2]) for y in (new, old))
            for i in range(count):
                new, old = cell(new, old, 10_000 * stage + 2_000 * i, steps), new
        return new

    return lower(eqsat.trace(net, eqsat.spec((32, WIDTH))))


def copies(parts: Sequence[Segment]) -> list[int]:
    return sorted((n for n in Counter(part.form for part in parts).values() if n > 1), reverse=True)


@pytest.mark.parametrize(("cells", "repeated"), [((12,), [10]), ((6, 6), [4, 4]), ((5, 4, 4), [3, 2, 2])])
def test_cells_that_read_two_others_are_equal_pieces(cells: tuple[int, ...], repeated: list[int]) -> None:
    found = segments(stages(*cells).roots)
    assert copies(found) == repeated
    assert max(len(topological(part.form)) for part in found) < 2 * pieces.PIECE
    known: set[object] = set()
    for part in found:
        assert all(leaf.op in ("In", "Const") or leaf in known for leaf in part.leaves.values())
        known.update(part.roots)


def test_what_joins_arrays_goes_with_what_reads_it() -> None:
    """A piece would write it for the next one otherwise, where a product could read its parts."""
    passed = [root for part in segments(stages(12).roots)[:-1] for root in part.roots]
    assert passed
    assert all(root.op not in ("Cat", "V") for root in passed)


def test_a_long_row_of_functions_of_a_view_is_cut() -> None:
    """Each of them could be computed by what reads it, but not all."""
    x = eqsat.spec((8, 16))
    core = lower(eqsat.trace(lambda v: reduce(lambda y, i: (np.tanh, np.exp)[i % 2](y), range(1500), np.exp(v).T), x))
    assert max(len(topological(part.form)) for part in segments(core.roots)) < 2 * pieces.PIECE


def test_cells_longer_than_a_piece_are_cut_alike() -> None:
    found = segments(stages(7, steps=60).roots)
    assert copies(found)
    assert max(len(topological(part.form)) for part in found) < 2 * pieces.PIECE


def looks(text: str) -> np.ndarray:
    return np.array([ord(letter) for letter in text])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("xxabcabcabcy", [(2, 3, 3)]),  # periods of 3 and of 6 repeat, and the shorter one gains more
        ("abcdabcdz1234512345", [(0, 4, 2), (9, 5, 2)]),
        ("abcdefghij", []),
        ("abcabcab", [(0, 3, 2)]),
        ("a" * 10, [(0, 3, 3)]),
    ],
)
def test_runs_of_copies(monkeypatch: pytest.MonkeyPatch, text: str, found: list[tuple[int, int, int]]) -> None:
    monkeypatch.setattr(repeats, "LEAST", 3)
    monkeypatch.setattr(repeats, "CUT", 0)
    monkeypatch.setattr(repeats, "_looks", looks)
    rising = list(range(len(text)))  # so that copies begin as early as they can
    assert [(x.start, x.period, x.copies) for x in repeats.repeats(text, rising)] == found  # type: ignore[arg-type]


def test_copies_end_where_least_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "LEAST", 4)
    monkeypatch.setattr(repeats, "_looks", looks)
    passing = [9, 9, 9, 9, 9, 2, 9, 9, 9, 2, 9, 9, 9, 2, 9]
    (found,) = repeats.repeats("abcd" * 3 + "abc", passing)  # type: ignore[arg-type]
    assert (found.start, found.period, found.copies) == (2, 4, 3)


def test_many_small_cells_are_searched_several_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cut costs something, and so does each node to search."""
    monkeypatch.setattr(repeats, "LEAST", 3)
    monkeypatch.setattr(repeats, "_looks", looks)
    (few,), (many,) = (repeats.repeats("abc" * n, [1] * (3 * n)) for n in (20, 400))  # type: ignore[arg-type]
    assert few.period < many.period
