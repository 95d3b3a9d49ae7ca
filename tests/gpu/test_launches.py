"""Launches: a plan states the launches of its kernels, pays for each, and lowering makes exactly that many."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat.egraph.snapshot import Snapshot
from eqsat.extract.cover import cover
from eqsat.extract.device.table import DEVICES
from eqsat.extract.kernels.cost import Prices
from eqsat.extract.plan.plan import Plan, build_plan
from eqsat.gpu.families import contraction
from eqsat.gpu.launch.grouping import launch_counts
from eqsat.gpu.launch.lower import Launch, lower
from eqsat.gpu.run.run import run_simt
from eqsat.gpu.table.targets import TARGETS
from eqsat.layout import arithmetic as lay
from eqsat.program.core import Node, evaluate, make
from support.core_programs import bin_, full, mm, red, silu, un, view, x_
from support.gpu_support import assert_close, job_of, product
from support.plans import program_of, random_env
from support.snapshots import random_snapshot

GPUS = [name for name in DEVICES if name != "cpu"]


def plan_of(roots: Sequence[Node], device: str = "mi300x", exact: bool = False) -> Plan:
    snapshot = Snapshot.from_core(roots)
    return build_plan(snapshot, cover(snapshot, device, 5.0, exact=exact), program_of(list(roots)), exact)


def emitted(plan: Plan, device: str = "mi300x") -> int:
    """Kernel steps where each output is an array of its own, as `eqsat emit` writes them."""
    return sum(isinstance(step, Launch) for step in lower(plan, device, own_outputs=True).steps)


def half(node: Node) -> Node:
    """The same expression over float16 arrays."""
    if node.op == "In":
        return make("In", (node.attrs[0], node.size, "float16"))
    attrs = (*node.attrs[:2], "float16") if node.op == "Full" else node.attrs
    return make(node.op, attrs, [half(a) for a in node.args])


X, LONG = x_("x", 64 * 64), mm(x_("a", 32 * 16384), x_("b", 16384 * 32), 32, 16384, 32)
SQUARE = mm(X, x_("w", 64 * 64), 64, 64, 64)
WIDE = mm(X, x_("w", 64 * 512), 64, 64, 512)
ROW = x_("row", 2_000_000)
NARROW = mm(X, x_("u", 64 * 16), 64, 64, 16)
HALVES = [half(red("sum", WIDE, 512)), half(red("max", WIDE, 512))]

COUNTS: list[tuple[str, list[Node], list[int], int]] = [
    ("a product with enough tiles", [WIDE], [1], 0),
    ("a product with few tiles and long k: slices, which the last block of a tile adds up", [silu(LONG)], [1], 0),
    ("the same beside another output of it", [LONG, un("tanh", LONG)], [1], 0),
    ("the same reduced: by another kernel, since a product is reduced in one piece", [red("max", LONG, 32)], [1, 1], 0),
    ("a matrix times a vector", [mm(x_("a", 512 * 64), x_("v", 64), 512, 64, 1)], [1], 0),
    ("a long dot product: slices", [mm(ROW, x_("v", 2_000_000), 1, 2_000_000, 1)], [2], 0),
    ("a long row: slices", [bin_("mul", red("sum", ROW, 2_000_000), full(0.5, 1))], [2], 0),
    ("a long row and a map of it: slices of one length", [red("sum", ROW, 2_000_000), un("exp", ROW)], [2], 0),
    ("a long row of which no slices are made", [red("argmax", ROW, 2_000_000)], [1], 0),
    ("a row that one workgroup soon reads", [red("sum", x_("r", 8192), 8192)], [1], 0),
    ("rows of a product, by atomics", [red("sum", WIDE, 512)], [1], 0),
    ("rows of a product in half, through partial results", [half(red("sum", WIDE, 512))], [2], 0),
    ("two reductions of them: two kernels are fewer than three launches", HALVES, [1, 1], 0),
    ("rows of a product in half that a tile holds whole", [half(red("sum", NARROW, 16))], [1], 0),
    ("products written where a concatenation wants them, together", [make("Cat", (), (SQUARE, WIDE))], [1, 0, 0], 0),
    ("a result inside another", [un("exp", X), view(un("exp", X), lay.strided(64, ((64, 1),)))], [1], 1),
    ("an input, and one result twice", [X, un("exp", X), un("exp", X)], [1], 2),
    ("a literal", [full(2.5, 7)], [], 0),
]  # fmt: skip


@pytest.mark.parametrize(("roots", "counts", "copies"), [row[1:] for row in COUNTS], ids=[row[0] for row in COUNTS])
def test_a_plan_states_its_launches(roots: list[Node], counts: list[int], copies: int) -> None:
    plan = plan_of(roots)
    assert launch_counts(plan) == (counts, copies)
    assert emitted(plan) == sum(counts) + copies


@pytest.mark.parametrize("name", GPUS)
def test_other_devices_make_the_launches_of_their_plans(name: str) -> None:
    for roots in [row[1] for row in COUNTS]:
        plan = plan_of(roots, name)
        counts, copies = launch_counts(plan)
        assert emitted(plan, name) == sum(counts) + copies


def test_without_atomics_plans_state_the_launches_that_these_take() -> None:
    for roots in [row[1] for row in COUNTS]:
        plan = plan_of(roots, exact=True)
        counts, copies = launch_counts(plan)
        assert emitted(plan) == sum(counts) + copies
    both = [WIDE, red("sum", WIDE, 512), red("max", WIDE, 512)]
    assert [k.launches for exact in (False, True) for k in plan_of(both, exact=exact).kernels] == [1, 1, 1]


@given(st.integers(0, 2**32 - 1), st.integers(4, 30))
@settings(max_examples=30, deadline=None)
def test_random_plans_state_their_launches(seed: int, operators: int) -> None:
    snapshot, values = random_snapshot(seed, operators)
    constants = {n.attrs[0]: values[n.cls] for n in snapshot.nodes if n.op == "Const"}
    program = program_of([snapshot.term(r) for r in snapshot.roots], constants)
    plan = build_plan(snapshot, cover(snapshot, "mi300x", 2.0), program)
    counts, copies = launch_counts(plan)
    assert emitted(plan) == sum(counts) + copies


def test_every_launch_is_paid() -> None:
    launch = Prices(DEVICES["mi300x"]).launch
    for _, roots, _, _ in COUNTS:
        assert all(k.predicted_us * 1e6 >= (k.launches - k.beside) * launch for k in plan_of(roots).kernels)


def test_a_plan_in_slices_computes_the_product() -> None:
    program = program_of([silu(mm(x_("a", 8 * 2048), x_("b", 2048 * 8), 8, 2048, 8))])
    snapshot = Snapshot.from_core(program.roots)
    plan = build_plan(snapshot, cover(snapshot, "mi300x", 5.0), program)
    assert [(k.launches, k.slices > 1) for k in plan.kernels] == [(1, True)]
    env = random_env(program)
    (expected,) = evaluate(program.roots, env, {}, precision="float64")
    (got,) = run_simt(plan, env, "mi300x")
    assert_close(got, expected, "float32", "slices")


@given(
    st.sampled_from(GPUS),
    st.sampled_from(["float32", "float16", "bfloat16", "float64"]),
    st.tuples(st.integers(1, 12), st.integers(2, 3000), st.integers(2, 3000)),
)
def test_products_are_priced_with_the_tile_that_their_kernel_takes(
    name: str, dtype: str, dims: tuple[int, int, int]
) -> None:
    batch, m, n = dims
    device = DEVICES[name]
    units = int(device.units.value)
    kernel = contraction.generate(job_of(product(batch, m, 64, n, dtype), units=units), TARGETS[device.arch])
    priced = Prices(device).tiled(batch, m, 64, n, dtype)
    assert kernel.tile is not None
    assert (priced.tile_m, priced.tile_n, priced.groups) == (kernel.tile.rows, kernel.tile.columns, kernel.blocks)
