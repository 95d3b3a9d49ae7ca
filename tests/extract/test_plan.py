"""Plans: kernels that pass buffers on, folded constants, and descriptive kernel names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat.egraph.snapshot import Snapshot
from eqsat.extract.cover import cover
from eqsat.extract.plan import plan as plans
from eqsat.extract.plan.naming import kernel_name
from eqsat.extract.plan.plan import Plan, build_plan, folding_flops
from eqsat.layout import arithmetic as lay
from eqsat.program import ops
from eqsat.program.composites import COMPOSITES, Composite
from eqsat.program.core import CoreProgram, Node, evaluate, lower, make, topological
from eqsat.program.ir import Program
from eqsat.program.node import substitute
from eqsat.program.term import topological as terms_below
from support.core_programs import (
    attention,
    bin_,
    c_,
    full,
    layernorm,
    linear,
    mm,
    red,
    silu,
    snapshot_of,
    softmax,
    un,
    view,
    x_,
)
from support.plans import program_of, random_env
from support.snapshots import random_snapshot


def planned(*roots: Node) -> tuple[Plan, CoreProgram]:
    program = program_of(list(roots))
    snapshot = Snapshot.from_core(program.roots)
    return build_plan(snapshot, cover(snapshot, "mi300x", 5.0), program), program


def assert_runs(plan: Plan, program: CoreProgram) -> None:
    """Kernel by kernel, and as one expression, a plan computes what the program does."""
    env = random_env(program)
    expected = evaluate(program.roots, env, program.constants, precision="float64")
    for found in (plan.run_numpy(env), evaluate(plan.roots, env, plan.constants)):
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def assert_wired(plan: Plan) -> None:
    """Every kernel reads inputs, constants, and what earlier kernels wrote, through as many params."""
    written: set[Node] = set()
    for k in plan.kernels:
        assert all(x.op in ("In", "Const") or x in written for x in k.inputs)
        assert [(p.size, p.dtype) for p in k.params] == [(x.size, x.dtype) for x in k.inputs]
        assert {n for n in topological(k.body) if n.op in ("In", "Const")} <= set(k.params)
        assert written.isdisjoint(k.outputs)
        written.update(k.outputs)
    assert all(r.buffer.op in ("In", "Const", "Full") or r.buffer in written for r in plan.results)


@given(st.integers(0, 2**32 - 1), st.integers(4, 40))
@settings(max_examples=80)
def test_plans_of_random_graphs_run(seed: int, operators: int) -> None:
    snapshot, values = random_snapshot(seed, operators)
    env = {n.attrs[0]: values[n.cls] for n in snapshot.nodes if n.op == "In"}
    constants = {n.attrs[0]: values[n.cls] for n in snapshot.nodes if n.op == "Const"}
    roots = [snapshot.term(r) for r in snapshot.roots]
    plan = build_plan(snapshot, cover(snapshot, "mi300x", 2.0), program_of(roots, constants))
    assert_wired(plan)
    for found in (plan.run_numpy(env), evaluate(plan.roots, env, plan.constants)):
        for value, root in zip(found, snapshot.roots, strict=True):
            np.testing.assert_allclose(value, values[root], atol=1e-7)


X, W = x_("x", 128 * 64), c_("w", 64 * 64)
T = lay.of_transpose((128, 64), (1, 0))
BACK = lay.of_transpose((64, 128), (1, 0))
WINDOWS, SLANT = lay.strided(0, ((11, 1), (2, 1))), lay.strided(0, ((2, 1), (5, 2)))
SOFTMAX_OPS = ["max over 64", "broadcast_to", "sub", "exp", "sum over 64", "broadcast_to", "div"]

PROGRAMS: list[tuple[str, list[Node]]] = [
    ("an input", [X]),
    ("a transposed input", [view(X, T)]),
    ("a slice of an input, twice", [view(X, lay.strided(0, ((64, 1),))), view(X, lay.strided(64, ((64, 1),)))]),
    ("a constant expression", [un("exp", W)]),
    ("a value and a slice of it", [un("exp", X), view(un("exp", X), lay.strided(64, ((64, 1),)))]),
    ("a transposed result, read transposed back", [red("sum", view(softmax(view(X, T), 128), BACK), 64)]),
    ("an attention block", [attention(X)]),
    ("two blocks", [attention(attention(X))]),
    ("products of products", [linear(silu(linear(X, "1")), "2"), linear(X, "3")]),
    ("more members than a kernel writes", [make("Cat", (), tuple(x_(f"x{i}", 8) for i in range(70)))]),
    ("a literal", [full(2.5, 7)]),
    ("a padded literal", [bin_("add", x_("p", 6), view(full(1.0, 4), lay.of_pad((4,), (1,), (1,), 0.0)))]),
    ("a view of a constant that does not compose", [bin_("add", x_("p", 10), view(view(c_("s", 12), WINDOWS), SLANT))]),
]  # fmt: skip


@pytest.mark.parametrize("roots", [row[1] for row in PROGRAMS], ids=[row[0] for row in PROGRAMS])
def test_plans_run(roots: list[Node]) -> None:
    plan, program = planned(*roots)
    assert_wired(plan)
    assert_runs(plan, program)


def test_small_products_share_launches_where_they_pay_for_one_together() -> None:
    """Six products of three layers do, in three launches; each alone, a layer would be cheaper with fewer kernels."""
    program = program_of([attention(attention(attention(X)))])
    found = cover(Snapshot.from_core(program.roots), "mi300x", 5.0)
    assert len(found.kernels) == 11
    assert found.cost < 29.1e6


def test_equal_layers_have_equal_kernels() -> None:
    plan, _ = planned(attention(attention(attention(X))))
    counts = Counter(k.body for k in plan.kernels)
    assert len(plan.kernels) == 17  # a norm streams into the layer that follows, and small products share launches
    assert sorted(counts.values()) == [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3]
    assert len({k.name for k in plan.kernels}) == len(counts)


def test_constants_that_rewriting_made_are_folded_in_float64_and_rounded_once() -> None:
    a, c = c_("a", 64 * 32), c_("c", 32 * 64)
    chain = mm(mm(X, a, 128, 64, 32), c, 128, 32, 64)
    folded = mm(X, mm(a, c, 64, 32, 64), 128, 64, 64)
    program = program_of([chain])
    snapshot = snapshot_of([chain], [(chain, folded)])
    plan = build_plan(snapshot, cover(snapshot, "mi300x", 5.0), program)
    (kernel,) = plan.kernels
    (constant,) = (x for x in kernel.inputs if x.op == "Const")
    exact = program.constants["a"].reshape(64, 32).astype(float) @ program.constants["c"].reshape(32, 64).astype(float)
    np.testing.assert_array_equal(plan.constants[constant.attrs[0]], exact.astype(np.float32).ravel())
    assert kernel.flops == 2 * 128 * 64 * 64
    assert kernel.bytes == 4 * (128 * 64 + 64 * 64 + 128 * 64)
    assert_runs(plan, program)


def test_the_constants_of_a_program_as_written_need_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: object) -> None:
        raise AssertionError("each constant is computed in one way only")

    w = c_("w", 64 * 64)
    program = program_of([mm(x_("x", 64 * 64), un("exp", bin_("add", w, un("exp", w))), 64, 64, 64)])
    snapshot = Snapshot.from_core(program.roots)
    found = cover(snapshot, "mi300x", 5.0)
    monkeypatch.setattr(plans, "solve", refused)
    assert_runs(build_plan(snapshot, found, program), program)
    assert folding_flops(snapshot, found) == 3 * 64 * 64


def test_a_kernel_is_written_out_only_where_an_element_adds_up_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bool] = []

    class Noted(plans.Body):
        def __init__(self, snapshot: Snapshot, read: Callable[[int], Node], written_out: bool = False) -> None:
            made.append(written_out)
            super().__init__(snapshot, read, written_out)

    monkeypatch.setattr(plans, "Body", Noted)
    planned(un("exp", X))
    assert made == [False]
    planned(un("exp", red("sum", X, 4)))
    assert made == [False, False, True]


def test_equal_kernels_are_described_once() -> None:
    plans._figures.cache_clear()
    layer = X
    for i in range(4):
        layer = silu(linear(layer, f"own {i}"))
    found, _ = planned(layer)
    assert plans._figures.cache_info().misses == 1 < len(found.kernels)
    assert len({(k.name, k.flops, k.bytes, *k.ops) for k in found.kernels}) == 1


def test_a_kernel_counts_the_rows_that_it_looks_up() -> None:
    places = make("In", ("places", 8, "int64"))
    rows = make("Gather", (1, 1000, 32), (x_("table", 1000 * 32), places))
    (kernel,) = planned(un("exp", rows))[0].kernels
    assert kernel.bytes == 8 * 8 + 2 * 8 * 32 * 4


def test_constants_are_folded_in_the_cheapest_way_that_shares_the_most() -> None:
    """W1 W2 W3 and W1 W2 W4: the common product is computed once."""
    one, two, three, four = (c_(f"w{i}", 16 * 16) for i in range(4))

    def product(a: Node, b: Node) -> Node:
        return mm(a, b, 16, 16, 16)

    left = [product(product(one, two), w) for w in (three, four)]
    right = [product(one, product(two, w)) for w in (three, four)]
    heads = [mm(x_("v", 8 * 16), w, 8, 16, 16) for w in left]
    program = program_of(heads)
    snapshot = snapshot_of(heads, list(zip(left, right, strict=True)))
    plan = build_plan(snapshot, cover(snapshot, "mi300x", 5.0), program)
    assert len(plan.kernels) == 2
    assert_runs(plan, program)


def test_views_of_constants_are_read_through_them() -> None:
    plan, _ = planned(linear(X, "1"))
    (kernel,) = plan.kernels
    assert sorted(x.size for x in kernel.inputs) == [64, 64 * 64, 128 * 64]
    assert len(plan.constants) == 2


def test_results_of_one_opaque_call_are_one_kernel() -> None:
    halves = [make("Opaque", ("split", i, 64, "float32"), (X,)) for i in range(2)]
    plan, _ = planned(*[un("exp", h) for h in halves])
    (call,) = (k for k in plan.kernels if k.family == "opaque")
    assert call.outputs == tuple(halves)


def test_constants_are_laid_out_as_kernels_read_them() -> None:
    """Not as views of what was given: the order was priced as that of memory."""
    turned = view(c_("w", 64 * 64), lay.of_transpose((64, 64), (1, 0)))
    plan, program = planned(mm(X, turned, 128, 64, 64))
    (kernel,) = plan.kernels
    (constant,) = (x for x in kernel.inputs if x.op == "Const")
    expected = program.constants["w"].reshape(64, 64).T.ravel()
    np.testing.assert_array_equal(plan.constants[constant.attrs[0]], expected)
    assert [n.op for n in topological(kernel.body)] == ["In", "In", "MM"]


def test_literals_are_part_of_the_code() -> None:
    plan, _ = planned(bin_("mul", X, full(0.5, 128 * 64)))
    assert plan.kernels[0].inputs == (X,)
    assert plan.constants == {}


def test_constants_that_no_kernel_reads_are_dropped() -> None:
    program = program_of([un("exp", X)], {"unused": np.arange(5.0, dtype=np.float32)})
    snapshot = Snapshot.from_core(program.roots)
    assert build_plan(snapshot, cover(snapshot, "mi300x", 5.0), program).constants == {}


NAMES: list[tuple[Node, str, list[str]]] = [
    (silu(linear(X, "1")), "gemm_bias_silu_128x64x64", ["matmul 128x64 @ 64x64", "add", "sigmoid", "mul"]),
    (un("relu", mm(X, W, 128, 64, 64)), "gemm_relu_128x64x64", ["matmul 128x64 @ 64x64", "relu"]),
    (mm(X, c_("v", 64), 128, 64, 1), "gemv_128x1x64", ["matmul 128x64 @ 64x1"]),
    (red("max", mm(X, W, 128, 64, 64), 64), "gemm_rowmax_128x64x64", ["matmul 128x64 @ 64x64", "max over 64"]),
    (softmax(X, 64), "softmax_128x64", SOFTMAX_OPS),
    (red("sum", X, 64), "sum_128x64", ["sum over 64"]),
    (un("tanh", bin_("add", X, x_("y", 128 * 64))), "add_tanh_8192", ["add", "tanh"]),
    (view(X, T), "transpose_8192", []),
    (make("Cat", (), (X, X)), "concat_16384", ["concatenate 2"]),
]  # fmt: skip


@pytest.mark.parametrize(("root", "name", "ops"), NAMES, ids=[row[1] for row in NAMES])
def test_names_and_operators_tell_what_a_kernel_does(root: Node, name: str, ops: list[str]) -> None:
    plan, _ = planned(root)
    (kernel,) = plan.kernels
    assert (kernel.name, kernel.ops) == (name, ops)


NAMED = [row for row in COMPOSITES if row.name]


@pytest.mark.parametrize("row", NAMED, ids=[f"{i} {row.name}" for i, row in enumerate(NAMED)])
def test_kernels_are_called_after_composites(row: Composite) -> None:
    y = row.example()
    program = Program(tuple(t for t in terms_below([y]) if t.op == "input"), {"y": y})
    body = list(lower(program).roots)
    product = mm(x_("a", 6 * 5), x_("b", 5 * 4), 6, 5, 4)
    if any(n.op == "Red" for n in topological(body)):
        assert kernel_name("row", body) == f"{row.name}_6x4"
    else:
        after = substitute(body, {make("In", ("x", 24, "float32")): product})
        assert kernel_name("contraction", after) == f"gemm_{row.name}_6x4x5"


def test_the_name_of_a_layer_norm() -> None:
    plan, _ = planned(layernorm(X, 64))
    assert [k.name for k in plan.kernels] == ["layernorm_128x64"]


def test_what_is_left_of_a_joint_kernel_has_a_family_of_its_own() -> None:
    """A cover that takes the sum of rows from another kernel, and a map from the joint one."""
    x = ops.input("x", (64, 256))
    program = lower(Program((x,), {"map": ops.exp(x), "sum": ops.sum_(ops.exp(x), 1)}))
    snapshot = Snapshot.from_core(program.roots)
    whole = cover(snapshot, "mi300x", 2.0)
    (joint,) = {c.call for c in whole.chosen if c.call is not None}
    assert joint[0] == "reduction"
    apart = [replace(c, call=None) if c.cls == snapshot.roots[1] else c for c in whole.chosen]
    plan = build_plan(snapshot, replace(whole, chosen=apart), program)
    assert {k.family for k in plan.kernels} == {"pointwise", "reduction"}
    assert all((k.family == "reduction") == any(n.op == "Red" for n in topological(k.body)) for k in plan.kernels)
