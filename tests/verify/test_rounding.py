"""What rounding may do to constants is bounded: no certificate makes two programs equal by many small steps."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.errors import CheckFailed
from eqsat.rules import CHECKABLE
from eqsat.verify.checker import Numbered, sealed
from eqsat.verify.pairing import lowered
from eqsat.verify.rounding import adds_up, units_apart

UNIT = 2.0**-23


class Forged:
    """The lines of a certificate that somebody writes by hand, of two functions of x[4]."""

    def __init__(self, left: Any, right: Any, dtype: str = "float32") -> None:
        spec = eqsat.spec((4,), dtype)
        self.pair = lowered(eqsat.trace(left, spec), eqsat.trace(right, spec))
        self.numbered = Numbered(*self.pair)
        self.dtype = dtype
        self.count = len(self.numbered.terms.rows)
        self.lines: list[Any] = [self.numbered.head()]

    def stored(self, op: str) -> list[int]:
        return [i for i, row in enumerate(self.numbered.terms.rows) if row[0] == op]

    def number(self, value: float) -> int:
        return self.term("Full", [value, 4, self.dtype])

    def array(self, values: np.ndarray) -> int:
        """An array that no model has, joined of numbers."""
        elements = [self.term("Full", [float(v), 1, self.dtype]) for v in values]
        return self.term("Cat", [], *elements)

    def term(self, op: str, attrs: list[Any], *args: int) -> int:
        self.lines.append({"term": [op, attrs, list(args)]})
        self.count += 1
        return self.count - 1

    def say(self, **line: Any) -> None:
        self.lines.append(line)

    def seal(self) -> str:
        return sealed(*self.pair, "\n".join(map(json.dumps, self.lines)) + "\n", CHECKABLE)


@pytest.mark.parametrize(("dtype", "large"), [("float32", 1e8), ("float64", 2.0**54), ("bfloat16", 2.0**10)])
def test_a_number_that_rounding_absorbs_stays(dtype: str, large: float) -> None:
    """(1 + large) - large is 1, or 0 where the sum in brackets is folded: then everything would be equal."""
    forged = Forged(lambda x: x * 2, lambda x: x + 1, dtype)
    one, more, less = map(forged.number, (1.0, large, -large))
    forged.say(rule="function-of-numbers", at=forged.term("Bin", ["add"], one, more))
    with pytest.raises(CheckFailed, match="function-of-numbers does not apply"):
        forged.seal()
    forged.lines.pop()
    forged.say(values=[forged.count - 1, more])
    with pytest.raises(CheckFailed, match="computed from the other"):
        forged.seal()
    assert less


def test_numbers_are_not_made_one() -> None:
    forged = Forged(lambda x: x * 1.0000001, lambda x: x * 1.0000002)
    forged.say(values=forged.stored("Full"))
    with pytest.raises(CheckFailed, match="one number"):
        forged.seal()


@pytest.mark.parametrize("lemma", [False, True])
def test_small_steps_do_not_add_up(lemma: bool) -> None:
    weights = np.array([1.5, -2, 3, 1], np.float32)
    forged = Forged(lambda x: x * weights, lambda x: x * (weights * np.float32(1 + 30 * UNIT)))
    start, end = forged.stored("Const")
    if lemma:
        forged.say(lemma=0)
        for line in ({"leaf": [4, "float32"]}, {"leaf": [4, "float32"]}, {"values": [0, 1]}, {"proves": [0, 1]}):
            forged.say(**line)
    steps = [forged.array(weights * np.float32(1 + 10 * i * UNIT)) for i in (1, 2)]
    for a, b in zip([start, *steps], [*steps, end], strict=True):
        forged.say(**({"use": 0, "on": [a, b]} if lemma else {"values": [a, b]}))
    with pytest.raises(CheckFailed, match="units apart"):
        forged.seal()


def test_one_step_is_enough_for_what_was_folded() -> None:
    weights = np.array([1.5, -2, 3, 1], np.float32)
    forged = Forged(lambda x: x * (weights * np.float32(1 + 10 * UNIT)), lambda x: x * weights)
    forged.say(values=forged.stored("Const"))
    assert forged.seal()


def test_what_is_no_number_is_one_line() -> None:
    forged = Forged(lambda x: x * 2, lambda x: x + x)
    forged.term("Full", [10**400, 4, "float32"])
    with pytest.raises(CheckFailed, match="line 2 does not hold"):
        forged.seal()


def test_without_sums_each_element_counts() -> None:
    a, b = np.array([1e3, 1e-3], np.float32), np.array([1e3, 0], np.float32)
    assert units_apart(a, b, UNIT, largest=True) < 16 < units_apart(a, b, UNIT, largest=False)
    numbered = Numbered(*lowered(*[eqsat.trace(f, eqsat.spec((4,))) for f in (lambda x: x * 2, lambda x: x + x)]))
    node = numbered.terms.node(numbered.terms.add("Full", (2.0, 4, "float32"), ()))
    double = numbered.terms.node(numbered.terms.add("Bin", ("mul",), (numbered.terms.add_nodes([node])[0],) * 2))
    assert adds_up([node])
    assert not adds_up([node, double])
