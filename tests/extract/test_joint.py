"""Kernels with several outputs: which are considered, where they pay, and their results when run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import eqsat
from eqsat.egraph.required import needs_of_all
from eqsat.egraph.snapshot import Snapshot
from eqsat.extract.cover import cover
from eqsat.extract.device.table import DEVICES
from eqsat.extract.kernels import candidates
from eqsat.extract.kernels.candidates import Candidate, Candidates, enumerate_candidates
from eqsat.extract.kernels.cost import Run
from eqsat.extract.kernels.cuts import Cut, Limits, bits
from eqsat.extract.kernels.runs import Runs
from eqsat.extract.plan.plan import build_plan
from eqsat.gpu.launch.lower import Launch, lower
from eqsat.gpu.run.run import run_simt
from eqsat.layout import arithmetic as lay
from eqsat.program.core import Node, evaluate
from support.core_programs import bin_, by_row, c_, layernorm, mm, red, softmax, un, view, x_
from support.gpu_support import assert_close
from support.plans import program_of, random_env
from support.programs import weight
from support.snapshots import random_snapshot, value_of

MI300X = DEVICES["mi300x"]
APART = Limits(outputs=1)
M, N = 24, 48
X, Y, W = x_("x", M * N), x_("y", M * N), c_("w", N * N)
S, P = bin_("add", X, Y), mm(X, W, M, N, N)
T = lay.of_transpose((M, N), (1, 0))
PT, EXP = view(P, T), un("exp", X)


def by_columns(node: Node) -> Node:
    """Rows scaled by a constant for each column."""
    return bin_("mul", node, view(c_("columns", N), lay.strided(0, ((M, 0), (N, 1)))))


def by_rows(node: Node) -> Node:
    """The same, by a constant for each row."""
    return bin_("mul", node, by_row(c_("rows", M), N))


def halved(node: Node) -> Node:
    """The later half of the rows."""
    return view(node, lay.strided(M // 2 * N, ((M // 2 * N, 1),)))


CENTRED = bin_("sub", X, by_row(red("sum", X, N), N))

XY = bin_("mul", X, Y)
NORMED = by_columns(layernorm(by_rows(bin_("add", XY, X)), N))

GEMM, GEMM_RED = "contraction", "contraction+reduction"

TOGETHER: list[tuple[str, list[Node], int, list[str]]] = [
    ("two maps of one read", [bin_("mul", un("sin", X), Y), bin_("add", un("cos", X), Y)], 2, ["pointwise"]),
    ("a norm, and the residual sum it is of", [S, layernorm(S, N)], 2, ["row"]),
    ("a norm that a product reads, and its residual sum", [S, mm(layernorm(S, N), W, M, N, N)], 2, ["row", GEMM]),
    ("a map, and the norms of its rows", [un("relu", X), red("sum", bin_("mul", X, X), N)], 2, ["reduction"]),
    ("a reduction, and what it reduces", [EXP, red("sum", EXP, N)], 2, ["reduction"]),
    ("a reduction down columns, and what it reduces", [EXP, red("sum", view(EXP, T), M)], 2, ["reduction"]),
    ("two reductions of one array", [red("sum", X, N), red("max", X, N)], 2, ["reduction"]),
    ("mean and variance", [red("sum", X, N), red("sum", bin_("mul", CENTRED, CENTRED), N)], 2, ["row"]),
    ("softmax, and a sum of the same rows", [view(softmax(X, N), T), red("sum", X, N)], 2, ["row"]),
    ("two softmaxes of rows that share a map", [by_columns(softmax(XY, N)), halved(softmax(NORMED, N))], 2, ["row"]),
    ("a product, and an activation of it", [P, un("tanh", P)], 1, [GEMM]),
    ("a product written transposed, and maxima of it", [PT, red("max", PT, M)], 2, [GEMM_RED]),
    ("a product, and sums and maxima of its rows", [P, red("sum", un("exp", P), N), red("max", P, N)], 3, [GEMM_RED]),
]  # fmt: skip
"""Name, outputs, launches when each kernel has one output, families when they may have several."""


@pytest.mark.parametrize(
    ("roots", "apart", "families"), [row[1:] for row in TOGETHER], ids=[row[0] for row in TOGETHER]
)
def test_fewer_kernels_cost_less(roots: list[Node], apart: int, families: list[str]) -> None:
    snapshot = Snapshot.from_core(roots)
    one_each, together = cover(snapshot, "mi300x", 5.0, APART), cover(snapshot, "mi300x", 5.0)
    assert len(one_each.kernels) == apart
    assert [x.family for x in together.kernels] == families
    assert together.optimal
    assert together.cost < one_each.cost


def test_sums_of_a_product_write_its_operand_beside() -> None:
    """The sums of the rows of z @ w are z @ w.sum(1), a class that holds a reduction and a product of one column."""
    w = weight(265, 200)

    def summed(x: Any, y: Any, by: Callable[[Any], Any]) -> Any:
        z = eqsat.concatenate([y @ x.T, x], 1)
        return z, by(z)

    ways = (lambda z: (z @ w).sum(1, keepdims=True)), (lambda z: z @ w.sum(1, keepdims=True))
    shapes = [eqsat.spec((200, 65))] * 2
    found = [eqsat.optimize(eqsat.trace(lambda x, y, by=by: summed(x, y, by), *shapes)).report for by in ways]
    assert [len(report["kernels"]) for report in found] == [2, 2]
    assert found[0]["result"]["predicted_us"] == pytest.approx(found[1]["result"]["predicted_us"])


def states(steps: int) -> list[Node]:
    """All states of a scan, h = a_t * h + b_t, over the rows of two arrays."""
    a, b, h = x_("a", steps * M), x_("b", steps * M), x_("h", M)
    found = []
    for t in range(steps):
        row = lay.strided(t * M, ((M, 1),))
        h = bin_("add", bin_("mul", view(a, row), h), view(b, row))
        found.append(h)
    return found


def test_cuts_that_are_reached_in_several_orders_are_priced_together_once(monkeypatch: pytest.MonkeyPatch) -> None:
    priced: Counter[tuple[Cut, ...]] = Counter()
    price = Runs.of

    def counted(self: Runs, cuts: Sequence[Cut]) -> Run | None:
        priced[tuple(cuts)] += 1
        return price(self, cuts)

    monkeypatch.setattr(Runs, "of", counted)
    snapshot = Snapshot.from_core(states(5))
    enumerate_candidates(snapshot, MI300X, needs=needs_of_all(snapshot))
    together = {cuts: times for cuts, times in priced.items() if len(cuts) > 2}
    assert together
    assert set(together.values()) == {1}


def test_one_kernel_walks_a_scan() -> None:
    assert len(cover(Snapshot.from_core(states(16)), "mi300x", 20.0).kernels) == 1


def test_a_scan_of_more_states_than_a_kernel_writes_takes_few_kernels() -> None:
    """None is left alone because all larger kernels write the same states."""
    assert len(cover(Snapshot.from_core(states(24)), "mi300x", 20.0).kernels) <= 3


def test_kernels_of_many_outputs_do_not_guide_a_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    found = cover(Snapshot.from_core(states(16)), "mi300x", 20.0)
    guides: list[Candidate] = []
    monkeypatch.setattr(candidates, "chains_of", lambda kernels, facts, cover: guides.extend(cover) or {})
    found.chains(inf)
    assert {x.cls for x in guides} >= {x.cls for x in found.chosen}
    assert max(Counter(x.call for x in guides if x.call).values(), default=0) <= Limits().overlapping


@pytest.mark.parametrize("roots", [row[1] for row in TOGETHER], ids=[row[0] for row in TOGETHER])
def test_each_is_one_launch_that_computes_all_its_outputs(roots: list[Node]) -> None:
    program = program_of(roots)
    snapshot = Snapshot.from_core(roots)
    plan = build_plan(snapshot, cover(snapshot, "mi300x", 5.0), program)
    assert sum(isinstance(step, Launch) for step in lower(plan, "mi300x").steps) == len(plan.kernels)
    env = random_env(program)
    expected = evaluate(roots, env, program.constants, precision="float64")
    for got in (plan.run_numpy(env), run_simt(plan, env, "mi300x")):
        for values, reference in zip(got, expected, strict=True):
            assert_close(values, reference, "float32", "joint")


def joint(found: Candidates) -> dict[tuple[int, ...], list[Candidate]]:
    """The candidates of each joint kernel, by its outputs."""
    kernels: dict[object, list[Candidate]] = {}
    for of_one in found.of_class:
        for x in of_one:
            if x.call is not None:
                kernels.setdefault(x.call, []).append(x)
    return {tuple(x.cls for x in xs): xs for xs in kernels.values()}


LONG, K = x_("long", 4 * 100_000), c_("k", M * N)
NOT_TOGETHER: list[tuple[str, list[Node]]] = [
    ("maps of different arrays", [un("sin", X), un("cos", Y)]),
    ("maps that share only a constant", [bin_("mul", X, K), bin_("mul", Y, K)]),
    ("maps of different sizes", [un("sin", X), un("cos", view(X, lay.strided(0, ((N, 1),))))]),
    ("a step of a chain and its end", [un("tanh", un("exp", X))]),
    ("a value, and what a product of it is added to", [EXP, bin_("add", Y, mm(EXP, W, M, N, N))]),
    ("sums of a product's rows and of its columns", [red("sum", P, N), red("sum", PT, M)]),
    ("rows that do not fit on chip", [red("sum", LONG, 100_000), softmax(LONG, 100_000)]),
    ("rows of two lengths", [red("sum", X, N), red("sum", X, N // 2)]),
]  # fmt: skip


@pytest.mark.parametrize("roots", [row[1] for row in NOT_TOGETHER], ids=[row[0] for row in NOT_TOGETHER])
def test_nothing_joins(roots: list[Node]) -> None:
    snapshot = Snapshot.from_core(roots)
    found = joint(enumerate_candidates(snapshot, MI300X, needs=needs_of_all(snapshot)))
    assert not any(set(snapshot.roots) <= set(outputs) for outputs in found)


def test_devices_without_fusion_join_nothing() -> None:
    snapshot = Snapshot.from_core(TOGETHER[0][1])
    assert not joint(enumerate_candidates(snapshot, DEVICES["cpu"], needs=needs_of_all(snapshot)))


@example(seed=116018, operators=9)  # x @ x and (-x) @ (-x) are one class
@given(seed=st.integers(0, 2**32 - 1), operators=st.integers(4, 24))
@settings(max_examples=60)
def test_joint_kernels_compute_their_outputs_and_pay(seed: int, operators: int) -> None:
    snapshot, values = random_snapshot(seed, operators)
    snapshot.roots = [c for c in range(snapshot.n_classes) if not snapshot.const[c]]
    found = enumerate_candidates(snapshot, MI300X, Limits(outputs=3, leaves=6), needs=needs_of_all(snapshot))
    for outputs, kernel in joint(found).items():
        assert 2 <= len(outputs) <= 3
        (price,), (leaves,) = {x.price for x in kernel}, {x.leaves for x in kernel}
        inner = 0
        for x in kernel:
            inner |= x.cut.inner
            np.testing.assert_allclose(value_of(x.cut, snapshot, values), values[x.cls], atol=1e-7)
        assert len(leaves) <= 6
        assert set(bits(inner)).isdisjoint(leaves), "no operand is an output, or is made of what is computed inside"
        single = [
            min(y.price for y in found.of_class[c] if y.call is None and set(y.children) <= set(kernel[0].children))
            for c in outputs
        ]
        assert price < sum(single)


@given(st.integers(0, 2**32 - 1), st.integers(4, 24))
@settings(max_examples=40)
def test_joining_never_makes_a_cover_dearer(seed: int, operators: int) -> None:
    snapshot, _ = random_snapshot(seed, operators)
    snapshot.roots = [c for c in range(snapshot.n_classes) if not snapshot.const[c]][::2]
    one_each, together = cover(snapshot, "mi300x", 5.0, APART), cover(snapshot, "mi300x", 5.0)
    assert together.cost <= one_each.cost
    assert together.cost == sum(x.price for x in together.kernels)
