"""Adding a rule never raises a price: small programs with one rule left out at a time (`benchmarks/monotone.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

import eqsat
from eqsat.program.ir import Program
from eqsat.rules import ALL, allowed
from eqsat.search.runner import Stage
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


def turned(scores: Any) -> Any:
    return scores.swapaxes(0, 1)


def projected(scores: Callable[[Any, Any], Any]) -> Program:
    """Attention of these scores behind a layernorm, and a product with a constant after it: the queries and keys form a
    group with x @ (v @ w), and a worse one with x @ v."""

    def block(x: Any) -> Any:
        y = eqsat.layernorm(x, weight(64), weight(64, seed=1))
        q, k, v = (y @ weight(64, 64, seed=i) for i in range(3))
        return x + eqsat.softmax(scores(q, k) * 0.125) @ v @ weight(64, 64, seed=5)

    return eqsat.trace(block, eqsat.spec((64, 64)))


def towers() -> Program:
    def block(x: Any) -> Any:
        a, b, c = (eqsat.relu(x @ weight(128, 64, seed=i) + weight(64)) @ weight(64, 32, seed=i) for i in range(3))
        return a * b + c

    return eqsat.trace(block, eqsat.spec((64, 128)))


def branches() -> Program:
    """Two convolutions of one image, each before another one."""

    def convolved(x: Any, k: int, seed: int) -> Any:
        return eqsat.conv(x, weight(16, 16, k, k, seed=seed), pads_lo=(k // 2,) * 2, pads_hi=(k // 2,) * 2)

    def block(x: Any) -> Any:
        parts = (convolved(eqsat.relu(weight(16, 1, 1) + convolved(x, 1, i)), 3, i + 2) for i in range(2))
        return eqsat.concatenate(list(parts), 1)

    return eqsat.trace(block, eqsat.spec((1, 16, 16, 16)))


GROUPED = {
    "queries and keys": lambda: projected(lambda q, k: q @ turned(k)),
    "keys and queries": lambda: projected(lambda q, k: turned(k @ turned(q))),
    "towers": towers,
    "branches": branches,
}
ABOUT_GROUPS = (
    "gather-constants-of-sum",
    "group-siblings",
    "matmul-chain",
    "matmul-of-constants-right",
    "transpose-of-matmul",
)


@pytest.mark.parametrize("name", GROUPED)
def test_no_rule_about_groups_raises_the_price(monotone: ModuleType, name: str) -> None:
    rules = allowed(list(ALL), "reassociate")
    made = monotone.prepared(GROUPED[name](), 60.0)
    whole, *others = (
        sum(x.cost for x in monotone.priced(made, [r for r in rules if r.name != left_out], 60.0).values())
        for left_out in ("", *ABOUT_GROUPS)
    )
    assert whole <= min(others)


def repeated_rows() -> Program:
    """A product written beside sums of its rows, side by side with itself: its transpose is another spelling."""

    def block(x: Any) -> Any:
        p = weight(32, 200) @ x
        z = eqsat.concatenate([p, p], 1)
        return weight(32, 32) @ z, z.sum(1)

    return eqsat.trace(block, eqsat.spec((200, 48)))


def shared_left() -> Program:
    """A product that is a result, and one of the same operand once constants are folded."""

    def block(x: Any, y: Any) -> Any:
        m = (eqsat.silu(y) * x) @ weight(64, 64)
        h = m + 1.0
        normed = eqsat.rmsnorm((h + weight(64)) @ weight(64, 64, seed=1), weight(64, seed=1))
        return m, h, normed + weight(64, seed=2)

    return eqsat.trace(block, eqsat.spec((65, 64)), eqsat.spec((65, 64)))


def summed_addend() -> Program:
    """A product that is a result, and sums of its rows with a constant added before or after."""

    def block(x: Any) -> Any:
        y = (x * -1.0) @ x.T
        return y, ((y + weight(64)).sum(1, keepdims=True) * weight(64, 1)) @ weight(1, 65)

    return eqsat.trace(block, eqsat.spec((64, 65)))


def with_and_without(monotone: ModuleType, program: Program, rule: str) -> list[int]:
    """Prices with all rules, and without this one."""
    rules = allowed(list(ALL), "reassociate")
    made = monotone.prepared(program, 60.0)
    return [
        sum(x.cost for x in monotone.priced(made, given, 60.0).values())
        for given in (rules, [r for r in rules if r.name != rule])
    ]


BESIDE = {
    "repeated rows": (repeated_rows, "transpose-of-matmul"),
    "a shared left operand": (shared_left, "view-of-matmul-narrows"),
    "sums with an addend": (summed_addend, "sum-of-constant-addend"),
}


@pytest.mark.parametrize("name", BESIDE)
def test_other_spellings_of_a_result_leave_its_kernels(monotone: ModuleType, name: str) -> None:
    build, rule = BESIDE[name]
    prices = with_and_without(monotone, build(), rule)
    assert prices[0] <= prices[1]


def halves() -> Program:
    """A chain of products side by side with half of itself: of rank 14 in the end, which is cheaper to compute first
    than the one folded constant behind it."""

    def block(x: Any, y: Any, z: Any) -> Any:
        t = ((x @ y + weight(96)).T @ z) @ weight(192, 7) + weight(7)
        return eqsat.concatenate([t, t * 0.5], 1) @ weight(14, 257) + weight(257)

    return eqsat.trace(block, *map(eqsat.spec, ((192, 48), (48, 96), (192, 192))))


def gated_slices() -> Program:
    """Two slices of a chain of small products, one of them gated before another product: three launches or two."""

    def block(x: Any) -> Any:
        whole = weight(8, 8) @ (x @ weight(65, 8) @ weight(8, 65))
        a, b = whole[:, 8:44], whole[:, 16:53]
        return a, (b * eqsat.sigmoid(b) * b) @ weight(37, 65)

    return eqsat.trace(block, eqsat.spec((8, 65)))


def scaled_beside() -> Program:
    """A scaled product before two further ones, and its sum with the input before another."""

    def block(x: Any) -> Any:
        y = x @ weight(32, 32) * weight(32)
        return y @ weight(32, 8) @ weight(8, 96), (y + x) @ weight(32, 96)

    return eqsat.trace(block, eqsat.spec((96, 32)))


def columns_of_softmax() -> Program:
    """Products of one softmax: one of 33 columns, and two of one column each, which are slices of one product."""

    def block(x: Any, s: Any) -> Any:
        y = eqsat.softmax(x * s, 1)
        return (y @ weight(3, 33) + weight(33)) * 0.125, y @ weight(3, 1) * 0.125, y @ weight(3, 1, seed=1) * 0.125

    return eqsat.trace(block, eqsat.spec((33, 3)), eqsat.spec((33, 1)))


def beside_a_concatenation() -> Program:
    """Products side by side, which are one product, and sums of the first: it is a slice of that one."""

    def block(x: Any) -> Any:
        first, second = x @ weight(48, 7), x @ weight(48, 7, seed=1)
        return eqsat.concatenate([first, second], 1), first.sum(0)

    return eqsat.trace(block, eqsat.spec((128, 48)))


def rows_of_softmax() -> Program:
    """Squares of some rows of a softmax beside itself: its exponentials and sums are written once, and read in part."""

    def block(x: Any) -> Any:
        y = eqsat.softmax(x, 1)
        z = eqsat.concatenate([y, y], 1)
        return (z * z)[10:33]

    return eqsat.trace(block, eqsat.spec((64, 128)))


CROWDED = {
    "halves side by side": (halves, "matmul-of-constants-right"),
    "gated slices": (gated_slices, "group-siblings"),
    "a scaled product": (scaled_beside, "concat-of-operators"),
    "beside a concatenation": (beside_a_concatenation, "concat-of-views"),
    "rows of a softmax": (rows_of_softmax, "view-of-unary"),
    "columns of a softmax": (columns_of_softmax, "concat-of-equals"),
}


@pytest.mark.parametrize("name", CROWDED)
def test_forms_of_small_products_do_not_crowd_out_their_cheapest_launches(monotone: ModuleType, name: str) -> None:
    build, rule = CROWDED[name]
    prices = with_and_without(monotone, build(), rule)
    assert prices[0] <= prices[1]


NOT_TRIED = Stage(lambda deadline, sought, best: best, lambda sought, best: best)


@pytest.mark.parametrize(
    ("build", "place", "without"),
    [
        (gated_slices, "eqsat.extract.swaps.MOST_SWAPPED", 0),
        (rows_of_softmax, "eqsat.search.form.OTHERS_ALONE", NOT_TRIED),
    ],
    ids=["changed kernels", "other programs"],
)
def test_what_is_tried_for_small_programs_makes_them_cheaper(
    monotone: ModuleType, monkeypatch: pytest.MonkeyPatch, build: Callable[[], Program], place: str, without: Any
) -> None:
    def price() -> int:
        return with_and_without(monotone, build(), "")[0]

    found = price()
    monkeypatch.setattr(place, without)
    assert found < price()


def heads() -> Program:
    """Attention whose queries, keys and values are heads of one product with a bias."""

    def attention(x: Any, mask: Any) -> Any:
        whole = (x @ weight(768, 2304) + weight(2304)).reshape(348, 36, 64).transpose(1, 0, 2)
        q, k, v = whole[:12], whole[12:24], whole[24:]
        mixed = eqsat.softmax(q @ k.transpose(0, 2, 1) / 8.0 + mask) @ v
        return mixed.transpose(1, 0, 2).reshape(348, 768) @ weight(768, 768)

    return eqsat.trace(attention, eqsat.spec((348, 768)), eqsat.spec((1, 348, 348)))


def test_forms_of_attention_do_not_crowd_out_its_cheapest_kernel(monotone: ModuleType) -> None:
    prices = with_and_without(monotone, heads(), "bias-past-weights-of-one")
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
