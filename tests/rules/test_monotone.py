"""Adding a rule never raises a price: small programs with one rule left out at a time (`benchmarks/monotone.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import eqsat
from eqsat.program.ir import Program
from eqsat.rules import ALL, allowed
from eqsat.suite.motivating import PROGRAMS
from support.benchmarks import load
from support.programs import weight

MOST = 5
"""Rules left out of each program; all that fire are for `benchmarks/monotone.py`."""


def attention_block() -> Program:
    """Attention behind a layernorm with a bias: q, k and v are products of what has a constant added."""

    def block(x: Any) -> Any:
        y = eqsat.layernorm(x, weight(64), weight(64))
        q, k, v = (y @ weight(64, 64 + i)[:, :64] + weight(64) for i in range(3))
        return x + eqsat.softmax(q @ k.T * 0.125) @ v

    return eqsat.trace(block, eqsat.spec((48, 64)))


@pytest.fixture(scope="module")
def monotone() -> Iterator[ModuleType]:
    yield from load("monotone")


SMALL = {name: PROGRAMS[name].build for name in ("gemm-chain", "gemm-slice", "row-sum")} | {
    "attention": attention_block
}


@pytest.mark.parametrize("name", SMALL)
def test_no_rule_raises_the_price(monotone: ModuleType, name: str) -> None:
    assert list(monotone.left_out(name, SMALL[name](), allowed(list(ALL), "reassociate"), 60.0, most=MOST)) == []


@pytest.mark.parametrize("name", SMALL)
def test_no_iteration_raises_the_price(monotone: ModuleType, name: str) -> None:
    assert list(monotone.stopped_early(name, SMALL[name](), allowed(list(ALL), "reassociate"), 60.0, most=MOST)) == []


def heads() -> Program:
    """Attention whose queries, keys and values are heads of one product with a bias."""

    def attention(x: Any, mask: Any) -> Any:
        whole = (x @ weight(768, 2304) + weight(2304)).reshape(348, 36, 64).transpose(1, 0, 2)
        q, k, v = whole[:12], whole[12:24], whole[24:]
        mixed = eqsat.softmax(q @ k.transpose(0, 2, 1) / 8.0 + mask) @ v
        return mixed.transpose(1, 0, 2).reshape(348, 768) @ weight(768, 768)

    return eqsat.trace(attention, eqsat.spec((348, 768)), eqsat.spec((1, 348, 348)))


def test_forms_of_attention_do_not_crowd_out_its_cheapest_kernel(monotone: ModuleType) -> None:
    program, rules = heads(), allowed(list(ALL), "reassociate")
    made = monotone.prepared(program, 60.0)
    prices = [
        sum(x.cost for x in monotone.priced(made, given, 60.0).values())
        for given in (rules, [r for r in rules if r.name != "bias-past-weights-of-one"])
    ]
    assert prices[0] <= prices[1]


def test_what_a_rule_costs_is_told(monotone: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that did not fire are not tried; a part that a rule leaves alone keeps its price."""
    program = attention_block()
    tried: list[list[str]] = []

    def priced(program: Any, rules: Any, seconds: float, forms: Any = None) -> dict[Any, Any]:
        names = [r.name for r in rules]
        tried.append([r.name for r in ALL if r.name not in names])
        cost = 3_000_000 if "concat-of-slices" in names else 2_000_000
        fired = frozenset({"concat-of-slices", "view-of-view"})
        return {form: monotone.Priced(cost, fired, 1, "time" if len(tried) == 1 else None) for form in program.written}

    monkeypatch.setattr(monotone, "priced", priced)
    limit, worse = monotone.left_out("a program", program, list(ALL), 1.0)
    assert limit == "a program: time"
    assert str(worse) == "a program: 3.000 us, 2.000 us without concat-of-slices (+50.000%)"
    assert tried == [[], ["concat-of-slices"], ["view-of-view"]]
