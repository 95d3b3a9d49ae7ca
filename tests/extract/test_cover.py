"""Covers: valid, priced right, bounded from below, and as small as the program allows."""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import eqsat
from eqsat.egraph.saturate import saturate
from eqsat.egraph.snapshot import Snapshot
from eqsat.errors import InputError
from eqsat.extract.cover import CoverResult, cover, cover_alone, settled
from eqsat.extract.device.table import device as find_device
from eqsat.extract.kernels.candidates import enumerate_candidates
from eqsat.extract.kernels.cuts import QUICK, Limits
from eqsat.extract.known import Renumbering
from eqsat.extract.least_work import of_least_work
from eqsat.extract.plan.plan import launches
from eqsat.extract.solver.solve import Effort
from eqsat.layout import arithmetic as lay
from eqsat.program.core import Node, lower, make
from eqsat.program.ir import Program
from eqsat.rules import ALL as ALL_RULES
from eqsat.testing import programs
from support.core_programs import attention, c_, layernorm, linear, mm, red, silu, snapshot_of, un, view, x_
from support.snapshots import random_snapshot, value_of

SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)
SEEDS = st.integers(0, 2**32 - 1)
ALL = Limits(per_kind=10**6, joins=10**6, pairs=10**6)
FEW = Limits(per_kind=2, joins=2, pairs=2)
NO_EFFORT = Effort(rounds=0, pivots=0, exact=0, tries=0, branches=0, columns=0)


def run(result: CoverResult, snapshot: Snapshot, values: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """The values of the classes once the kernels have run: a class that is read before it is computed is all NaN."""
    computed = {x.cls for x in result.chosen}
    state = [np.full_like(v, np.nan) if c in computed else v for c, v in enumerate(values)]
    for kernel in launches(result):
        outputs = [value_of(x.cut, snapshot, state) for x in kernel]
        for x, value in zip(kernel, outputs, strict=True):
            state[x.cls] = value
    return state


@given(SEEDS, st.integers(4, 40))
@settings(max_examples=80)
def test_covers_compute_the_roots_in_launch_order(seed: int, operators: int) -> None:
    snapshot, values = random_snapshot(seed, operators)
    result = cover(snapshot, "mi300x", 2.0)
    state = run(result, snapshot, values)
    for root in snapshot.roots:
        np.testing.assert_allclose(state[root], values[root], atol=1e-7)
    assert len({x.cls for x in result.chosen}) == len(result.chosen), "each class is computed once"


@given(SEEDS, st.integers(4, 40))
@settings(max_examples=40)
def test_a_program_that_is_covered_by_itself_costs_no_more_and_computes_nothing_else(seed: int, operators: int) -> None:
    snapshot, values = random_snapshot(seed, operators)
    first = cover(snapshot, "mi300x", 2.0, FEW)
    alone = cover_alone(first, first.derivation, "mi300x", 2.0)
    assert alone.lower_bound <= alone.cost <= first.cost
    assert set(alone.derivation) <= set(first.derivation)
    state = run(alone, snapshot, values)
    for root in snapshot.roots:
        np.testing.assert_allclose(state[root], values[root], atol=1e-7)


@given(SEEDS, st.integers(4, 40))
@settings(max_examples=40)
def test_the_program_of_the_least_work_is_covered_beside_the_best(seed: int, operators: int) -> None:
    snapshot, values = random_snapshot(seed, operators)
    first = cover(snapshot, "mi300x", 2.0, FEW)
    alone = cover_alone(first, of_least_work(snapshot, 2.0), "mi300x", 2.0)
    assert alone.lower_bound <= alone.cost <= first.cost
    state = run(alone, snapshot, values)
    for root in snapshot.roots:
        np.testing.assert_allclose(state[root], values[root], atol=1e-7)


@given(SEEDS, st.integers(4, 40))
@settings(max_examples=40)
def test_the_bound_is_below_the_cost_and_met_when_optimal(seed: int, operators: int) -> None:
    snapshot, _ = random_snapshot(seed, operators)
    result = cover(snapshot, "mi300x", 2.0)
    assert result.cost == sum(x.price for x in result.kernels)
    assert 0 <= result.lower_bound <= result.cost
    assert result.optimal == (result.lower_bound == result.cost)
    hurried = cover(snapshot, "mi300x", 0.0)
    assert hurried.lower_bound <= hurried.cost
    assert result.cost <= hurried.cost, "what is found in no time is found in two seconds"
    assert hurried.late
    assert not result.late


def test_a_cover_that_begins_with_one_that_time_ended_is_as_late() -> None:
    snapshot, _ = random_snapshot(3, 24)
    hurried, whole = cover(snapshot, "mi300x", 0.0), cover(snapshot, "mi300x", 10.0)
    assert [cover(snapshot, "mi300x", 10.0, known=[x]).late for x in (hurried, whole)] == [True, False]
    assert [cover(snapshot, "mi300x", 10.0, before=x).late for x in (hurried, whole)] == [True, False]
    assert [settled(whole, x, 10.0).late for x in (hurried, whole)] == [True, False]


@given(SEEDS, st.integers(4, 16))
@settings(max_examples=40)
def test_dropping_dominated_candidates_loses_nothing(seed: int, operators: int) -> None:
    snapshot, _ = random_snapshot(seed, operators)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "eqsat.extract.kernels.candidates.undominated", lambda found: sorted(found, key=lambda x: x.price)
        )
        everything = cover(snapshot, "mi300x", 10.0, ALL)
    pruned = cover(snapshot, "mi300x", 10.0, ALL)
    assert everything.optimal
    assert pruned.cost == everything.cost


@given(SEEDS, st.integers(4, 24))
@settings(max_examples=40)
def test_keeping_the_best_few_cuts_loses_next_to_nothing(seed: int, operators: int) -> None:
    snapshot, _ = random_snapshot(seed, operators)
    quick, few, all_ = (cover(snapshot, "mi300x", 10.0, limits) for limits in (QUICK, None, ALL))
    assert all_.cost <= few.cost <= 1.01 * all_.cost
    assert all_.cost <= quick.cost <= 1.02 * all_.cost, "what is found first in a hurry is nearly as good"


@given(SEEDS, st.integers(12, 40), st.integers(0, 30))
@example(seed=51397, operators=12, at=0)  # a constant is also a view of a gather from it
@settings(max_examples=20)
def test_the_kernels_that_time_is_short_for_are_found_within_quick_limits(seed: int, operators: int, at: int) -> None:
    snapshot, _ = random_snapshot(seed, operators)
    device = find_device("mi300x")
    asked: list[float] = []

    def in_a_hurry(rest: float) -> bool:
        asked.append(rest)
        return len(asked) > at

    found = enumerate_candidates(snapshot, device, in_a_hurry=in_a_hurry)
    quick, whole = (enumerate_candidates(snapshot, device, limits) for limits in (QUICK, None))
    assert found.stats["hurried"] == (len(asked) > at)
    assert not found.stats["stopped"]
    assert asked == sorted(asked, reverse=True)
    assert asked[0] == 1.0
    wanted = quick if at == 0 else whole if not found.stats["hurried"] else None
    if wanted is not None:
        assert found.stats["candidates"] == wanted.stats["candidates"]
    assert all(kernels for kernels, free in zip(found.of_class, found.free, strict=True) if not free)


@pytest.mark.parametrize(("seconds", "hurried"), [(None, False), (0.0, False), (1e9, True)])
def test_a_cover_keeps_what_the_time_suffices_for(seconds: float | None, hurried: bool) -> None:
    snapshot, _ = random_snapshot(3, 24)
    assert cover(snapshot, "mi300x", 10.0, quick_seconds=seconds).stats["candidates"]["hurried"] == hurried


@given(SEEDS, st.integers(12, 40))
@settings(max_examples=20)
def test_a_brief_search_is_carried_on_to_what_a_whole_one_finds(seed: int, operators: int) -> None:
    snapshot, values = random_snapshot(seed, operators)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("eqsat.extract.cover.GLANCE", NO_EFFORT)
        patch.setattr("eqsat.extract.solver.solve.ASCENT_STEPS", 0)
        brief = cover(snapshot, "mi300x", 5.0, FEW, brief=True)
    whole, all_ = cover(snapshot, "mi300x", 5.0, FEW), cover(snapshot, "mi300x", 5.0, ALL, brief=True)
    assert brief.brief == (bool(brief.stats["candidates"]["crowded"]) and not brief.optimal)
    assert not all_.brief, "no limit dropped a kernel that another look could have"
    assert whole.optimal
    assert brief.lower_bound <= whole.cost <= brief.cost
    found = settled(brief, all_, 5.0)
    assert found.optimal
    assert not found.brief
    assert found.cost <= min(whole.cost, all_.cost)
    state = run(found, snapshot, values)
    for root in snapshot.roots:
        np.testing.assert_allclose(state[root], values[root], atol=1e-7)


@given(SEEDS)
@settings(max_examples=10)
def test_covers_are_the_same_every_time(seed: int) -> None:
    first, second = (cover(random_snapshot(seed, 30)[0], "mi300x", 5.0) for _ in range(2))
    assert [(x.cls, x.family, x.leaves, x.price) for x in first.chosen] == [
        (x.cls, x.family, x.leaves, x.price) for x in second.chosen
    ]


# --- programs as written --------------------------------------------------------------------------------------------

X, W = x_("x", 128 * 64), c_("w", 64 * 64)


def tower(name: str) -> Node:
    a = view(x_("wide", 128 * 128), lay.of_slice((128, 128), (0, int(name) * 64), (128, int(name) * 64 + 64), (1, 1)))
    return silu(linear(silu(linear(a, f"{name}a")), f"{name}b", n=8))


WRITTEN: list[tuple[str, Node, int]] = [
    ("an output that is an input", X, 0),
    ("a slice of an input", view(X, lay.strided(64, ((64, 1),))), 0),
    ("a constant", un("exp", W), 0),
    ("one product with bias and activation", silu(linear(X, "1")), 1),
    ("two layers", linear(silu(linear(X, "1")), "2"), 1),
    ("layer norm", layernorm(X, 64), 1),
    ("an attention block: three products in one launch", attention(X), 4),
    ("two towers of two layers, concatenated", make("Cat", (), (tower("0"), tower("1"))), 2),
    ("a maximum over a product", red("max", mm(X, W, 128, 64, 64), 64), 1),
]


@pytest.mark.parametrize(("root", "kernels"), [row[1:] for row in WRITTEN], ids=[row[0] for row in WRITTEN])
def test_a_program_as_written_takes(root: Node, kernels: int) -> None:
    result = cover(Snapshot.from_core([root]), "mi300x", 5.0)
    assert result.optimal
    assert len(result.kernels) == kernels


# --- choices --------------------------------------------------------------------------------------------------------


def test_products_fold_where_it_pays() -> None:
    for middle, kernels in ((768, 1), (64, 2)):
        x, a, c = x_("x", 348 * 768), c_("a", 768 * middle), c_("c", middle * 768)
        chain = mm(mm(x, a, 348, 768, middle), c, 348, middle, 768)
        folded = mm(x, mm(a, c, 768, middle, 768), 348, 768, 768)
        assert len(cover(snapshot_of([chain], [(chain, folded)]), "mi300x", 5.0).kernels) == kernels


def siblings(count: int, roots: Callable[[list[Node]], list[Node]] = list) -> Snapshot:
    """Products that share an operand, with each also a slice of one wide product; `roots` are made of them."""
    products = [mm(X, c_(f"w{i}", 64 * 64), 128, 64, 64) for i in range(count)]
    weights = make("Cat", (), tuple(c_(f"w{i}", 64 * 64) for i in range(count)))
    shared = view(X, lay.strided(0, ((count, 0), (128 * 64, 1))))
    group = make("Cat", (), tuple(products))
    batched = mm(shared, weights, 128, 64, 64, batch=count)
    slices = [view(group, lay.strided(i * 128 * 64, ((128 * 64, 1),))) for i in range(count)]
    return snapshot_of(roots(products), [(group, batched), *zip(products, slices, strict=True)])


def test_members_of_a_concatenation_are_read_from_the_array_that_holds_them_all() -> None:
    def mixed(products: list[Node]) -> list[Node]:
        return [make("Cat", (), tuple(un("tanh" if i % 2 else "relu", p) for i, p in enumerate(products)))]

    families = [x.family for x in cover(siblings(8, mixed), "mi300x", 5.0).kernels]
    assert families == ["contraction", "pointwise"]


def test_concatenations_of_concatenations_read_at_few_places() -> None:
    """The places of 16 doublings were 2^16, and took half a minute to price."""
    whole = X
    for _ in range(16):
        whole = make("Cat", (), (whole, whole))
    found = enumerate_candidates(Snapshot.from_core((whole,)), find_device("mi300x"), Limits(reads=8))
    assert max(len(x.cut.reads) for each in found.of_class for x in each) == 8
    wide = make("Cat", (), tuple(x_(f"x{i}", 8) for i in range(20)))
    found = enumerate_candidates(Snapshot.from_core((wide,)), find_device("mi300x"), Limits(reads=8))
    assert any(len(x.cut.reads) == 20 for each in found.of_class for x in each), (
        "one operator is a kernel under any limits"
    )


def test_siblings_become_one_product_which_greedy_choices_do_not_see() -> None:
    result = cover(siblings(6), "mi300x", 5.0)
    assert sum(x.family == "contraction" for x in result.chosen) == 1
    assert result.stats["incumbents"]["written"] > result.stats["incumbents"]["grouped"] == result.cost


@given(program=programs(dtypes=("float32",), max_ops=8))
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=SLOW)
def test_a_cover_of_the_source_is_found_again_in_the_e_graph(program: Program) -> None:
    source = Snapshot.from_core(lower(program).roots)
    explored = saturate(source, ALL_RULES)
    written = cover(source, "mi300x", 5.0)
    found = cover(explored, "mi300x", 5.0, known=[written])
    assert found.cost <= written.cost
    if explored is not source:
        assert found.stats["incumbents"]["known 1"] <= written.cost
    assert written.problem is not None
    hurried = cover(explored, "mi300x", 0.0, Limits(per_kind=1), known=[written]).problem
    assert hurried is not None
    kernels = [x for x in written.problem.candidates if x.call is None]
    for x in Renumbering(source, explored, hurried.found.free).all(kernels):
        known = [y for y in hurried.candidates if y.cls == x.cls]
        assert not known or any(y.price <= x.price and {*y.children} <= {*x.children} for y in known), "none is lost"


def test_a_kernel_of_several_outputs_is_not_found_again_where_one_of_them_is_gone() -> None:
    program = eqsat.trace(lambda x: (eqsat.tanh(x).sum(1), eqsat.exp(x).sum(1)), eqsat.spec((256, 512)))
    roots = lower(program).roots
    both, one = Snapshot.from_core(roots), Snapshot.from_core(roots[:1])
    chosen = cover(both, "mi300x", 5.0).chosen
    assert all(x.call is not None for x in chosen)
    assert Renumbering(both, one, [False] * one.n_classes).all(chosen) == []


def test_joint_kernels_of_the_source_stay_where_rules_give_their_outputs_other_derivations() -> None:
    def step(x: Any, h: Any, c: Any) -> tuple[Any, Any]:
        i, o, f, new = eqsat.split(x + h @ weights, 4, -1)
        c = eqsat.sigmoid(f) * c + eqsat.sigmoid(i) * eqsat.tanh(new)
        return eqsat.sigmoid(o) * eqsat.tanh(c), c

    def lstm(x: Any) -> Any:
        shares = x @ inputs + bias
        h = c = np.zeros((2, 64), np.float32)
        made = []
        for t in range(0, 8, 2):
            h, c = step(shares[t : t + 2], h, c)
            made.append(h)
        return eqsat.concat(made, 0)

    rng = np.random.default_rng(0)
    inputs, weights = (rng.standard_normal((64, 256)).astype(np.float32) for _ in range(2))
    bias = rng.standard_normal(256).astype(np.float32)
    source = Snapshot.from_core(lower(eqsat.trace(lstm, eqsat.spec((8, 64)))).roots)
    explored = saturate(source, ALL_RULES)
    written = cover(source, "mi300x", 20.0)
    assert cover(explored, "mi300x", 20.0, known=[written]).cost < written.cost < cover(explored, "mi300x", 20.0).cost


def test_siblings_stay_apart_where_launches_are_cheaper_than_copies() -> None:
    result = cover(siblings(6), "cpu", 5.0)
    assert result.optimal
    assert result.cost <= 6 * cover(Snapshot.from_core([mm(X, W, 128, 64, 64)]), "cpu", 5.0).cost


@pytest.mark.parametrize("device", ["cpu", "mi300x"])
def test_a_mask_too_large_to_compute_ahead_of_time_is_written(device: str):
    """A constant that is a view of one number, as an operand and as an output of its own."""
    triangle = np.tri(9, dtype=np.float32)
    source = eqsat.trace(lambda x: (np.exp(x * triangle) @ triangle, triangle), eqsat.spec((9, 9)))
    snapshot = Snapshot.from_core(lower(source).roots)
    folded, written = (cover(snapshot, device, 5.0, limits) for limits in (None, Limits(fold_elements=8)))
    assert written.cost >= folded.cost


def test_results_of_one_opaque_call_cost_one_launch() -> None:
    halves = [make("Opaque", ("split", i, 64, "float32"), (X,)) for i in range(2)]
    both = cover(Snapshot.from_core([un("exp", h) for h in halves]), "mi300x", 5.0)
    assert [x.family for x in both.kernels].count("opaque") == 1
    one = cover(Snapshot.from_core([un("exp", halves[0])]), "mi300x", 5.0)
    assert both.cost - one.cost == one.chosen[-1].price


def test_the_problem_of_a_cover_that_was_sent_is_unpacked_when_it_is_read() -> None:
    own = cover(siblings(6), "mi300x", 5.0)
    found: CoverResult = pickle.loads(pickle.dumps(own))
    again: CoverResult = pickle.loads(pickle.dumps(found))
    assert own.problem is not None
    for x in (found, again):
        assert x.problem is not None
        x.forget()
        assert list(vars(x.problem)) == ["_packed"], "nothing has read it yet"
        sent, kept = ([(y.cls, y.family, y.children, y.price) for y in p.candidates] for p in (x.problem, own.problem))
        assert sent == kept
        assert vars(x.problem).keys() == vars(own.problem).keys()
        with pytest.raises(AttributeError, match="nothing of that name"):
            getattr(x.problem, "nothing of that name")


def test_threads_that_read_a_sent_problem_see_one() -> None:
    sent = pickle.dumps(cover(siblings(6), "mi300x", 5.0).problem)
    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            for _ in range(50):
                problem = pickle.loads(sent)
                names = "candidates", "found", "problem", "candidates"
                first, _, _, again = pool.map(lambda name, x=problem: getattr(x, name), names)
                assert first is again is problem.candidates
    finally:
        sys.setswitchinterval(switching)


def test_stopping_leaves_a_valid_cover_with_a_bound() -> None:
    begun = time.monotonic()
    result = cover(Snapshot.from_core([attention(attention(X))]), "mi300x", 60.0, should_stop=lambda: True)
    assert time.monotonic() - begun < 5.0
    assert 0 <= result.lower_bound <= result.cost


def test_an_unknown_device_is_an_input_error() -> None:
    with pytest.raises(InputError, match="mi300x"):
        cover(Snapshot.from_core([un("exp", X)]), "mi300y", 1.0)
