"""Lifting of a program in parts: each is written over values of the others, once for all parts of one form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import eqsat
from eqsat.program.ir import Program
from support.programs import weight

CHANNELS = 4


def _mixed(x, seed: int):
    return eqsat.conv(x, weight(CHANNELS, CHANNELS, 1, 1, seed=seed))


def _blurred(x, seed: int):
    return eqsat.conv(x, weight(CHANNELS, 1, 3, 3, seed=seed), pads_lo=(1, 1), pads_hi=(1, 1), groups=CHANNELS)


OPERATORS: dict[str, Callable] = {
    "mix": _mixed,
    "tanh": lambda x, seed: np.tanh(x),
    "blur": _blurred,
    "rest": lambda x, seed: eqsat.relu(_blurred(x, seed) + x),
    "mix and tanh": lambda x, seed: _mixed(x, seed) + np.tanh(x),
    "separable": lambda x, seed: _mixed(_blurred(x, seed), seed + 1) + x,
}


def _blocks(operators: Sequence[str], count: int) -> Program:
    """Blocks of these operators, each with weights of its own."""

    def function(x):
        for i in range(count):
            for j, name in enumerate(operators):
                x = OPERATORS[name](x, 10 * (len(operators) * i + j))
        return x

    return eqsat.trace(function, eqsat.spec((1, CHANNELS, 5, 5)))


def _in_parts(monkeypatch: pytest.MonkeyPatch, nodes: int) -> None:
    """Cut every program of more nodes into parts of so many."""
    for name in ("segments.LARGE", "pieces.HUGE", "pieces.PIECE"):
        monkeypatch.setattr(f"eqsat.parts.{name}", nodes)


def _assert_right(best: eqsat.Result, source: Program) -> None:
    assert best.report.get("fallback") is None
    inputs = {t.attr("name"): np.random.default_rng(1).standard_normal(t.shape).astype("f") for t in source.inputs}
    wanted = source.run(inputs)
    for found in (best.program.run(inputs), best.compile()(inputs)):
        for name, value in wanted.items():
            np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-5 * np.abs(value).max())


@pytest.mark.parametrize(
    ("operators", "count", "nodes"),
    [
        (["rest", "mix", "tanh", "mix and tanh", "rest"], 3, 3),
        (["mix and tanh", "mix", "tanh"], 2, 4),
        (["separable", "tanh", "separable", "separable"], 2, 6),
        (["mix and tanh", "mix and tanh", "mix", "blur", "tanh"], 2, 3),
        (["blur", "separable", "separable"], 2, 4),
    ],
)
def test_parts_cut_within_convolutions_are_right_and_compute_nothing_twice(
    monkeypatch: pytest.MonkeyPatch, operators: list[str], count: int, nodes: int
) -> None:
    """A part may read the product of a convolution in the order of its kernel, for which the source has no term."""
    _in_parts(monkeypatch, nodes)
    source = _blocks(operators, count)
    best = eqsat.optimize(source, time_limit=60.0, explain_time=0.0)
    _assert_right(best, source)
    convolutions = [Counter(t.op for t in program.terms())["conv"] for program in (source, best.program)]
    assert convolutions[1] <= convolutions[0]


def test_an_output_that_is_a_constant_may_be_read_by_other_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    _in_parts(monkeypatch, 3)
    shift = weight(6, 6)

    def function(x):
        for _ in range(4):
            x = np.tanh(x + shift) @ shift
        return x, shift

    source = eqsat.trace(function, eqsat.spec((6, 6)))
    _assert_right(eqsat.optimize(source, time_limit=60.0, explain_time=0.0), source)
