"""Kernel candidates: each computes its class, fits in one kernel, and is found where it should be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eqsat.egraph.required import needs_of_all
from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.extract.cover import cover
from eqsat.extract.device.table import DEVICES
from eqsat.extract.kernels import cost
from eqsat.extract.kernels.candidates import Candidate, Candidates, _Search, enumerate_candidates, undominated
from eqsat.extract.kernels.cost import SECTOR, Prices
from eqsat.extract.kernels.cuts import WIDE, Cut, Facts, Kind, Limits, bits
from eqsat.extract.kernels.grow import Grower, Made
from eqsat.extract.kernels.joins import Joins
from eqsat.gpu.table.targets import Target
from eqsat.layout import arithmetic as lay
from eqsat.program.core import Node, make
from eqsat.program.node import terms_of
from support.core_programs import bin_, c_, full, layernorm, mm, red, softmax, un, view, x_
from support.snapshots import random_snapshot, value_of

MI300X = DEVICES["mi300x"]


def inside(cut: Cut, snapshot: Snapshot) -> dict[int, Cut]:
    """The cuts at the e-nodes inside a kernel, by class, top first."""
    found: dict[int, Cut] = {}
    stack = [cut]
    while stack:
        x = stack.pop()
        if x.node >= 0:
            found.setdefault(x.cls, x)
            stack.extend(x.subs)
    return found


def names(candidate: Candidate, snapshot: Snapshot) -> list[str]:
    """The functions inside a kernel."""
    nodes = [snapshot.nodes[q.node] for q in inside(candidate.cut, snapshot).values()]
    return [n.attrs[0] for n in nodes if n.op in ("Un", "Bin")]


@given(st.integers(0, 2**32 - 1), st.integers(4, 24))
@settings(max_examples=60)
def test_every_candidate_computes_its_class(seed: int, operators: int) -> None:
    snapshot, values = random_snapshot(seed, operators)
    found = enumerate_candidates(snapshot, MI300X)
    for c, candidates in enumerate(found.of_class):
        for x in candidates:
            np.testing.assert_allclose(value_of(x.cut, snapshot, values), values[c], atol=1e-7)


@given(st.integers(0, 2**32 - 1), st.integers(4, 24))
@settings(max_examples=60)
def test_every_candidate_is_one_kernel(seed: int, operators: int) -> None:
    snapshot, _ = random_snapshot(seed, operators)
    limits = Limits(leaves=4, operators=12)
    for candidates in enumerate_candidates(snapshot, MI300X, limits).of_class:
        for x in candidates:
            nodes = inside(x.cut, snapshot)
            ops = [snapshot.nodes[q.node].op for q in nodes.values()]
            assert not x.cut.leaves & x.cut.inner, "a class is computed or read, not both"
            assert len(bits(x.cut.inner)) <= 12
            assert len(x.leaves) <= 4 or "Cat" in ops
            points = [snapshot.nodes[q.node] for q in nodes.values() if q.kind == Kind.POINT]
            assert all(terms_of(n.op, n.attrs) <= limits.terms for n in points), "only a few terms are written out"
            around = {c: snapshot.nodes[q.node].op for c, q in nodes.items() if q.kind != Kind.POINT}
            assert list(around.values()).count("MM") == (1 if x.family.startswith("contraction") else 0)
            reds = [c for c, op in around.items() if op == "Red"]
            rows = {(snapshot.size[c], snapshot.nodes[nodes[c].node].attrs[1]) for c in reds}
            assert len(rows) == (1 if x.family in ("row", "reduction", "contraction+reduction") else 0)
            assert x.price >= 0
            assert (x.price == 0) == (x.family == "alias")


@given(st.integers(0, 2**32 - 1), st.integers(4, 30))
@settings(max_examples=40)
def test_every_class_has_a_kernel_whenever_it_is_stopped(seed: int, operators: int) -> None:
    snapshot, _ = random_snapshot(seed, operators)
    found = enumerate_candidates(snapshot, MI300X, should_stop=lambda: True)
    assert all(free or found.of_class[c] for c, free in enumerate(found.free))


TINY = replace(Limits(), **{f.name: 1 for f in fields(Limits) if isinstance(f.default, int)})


@given(st.integers(0, 2**32 - 1), st.integers(4, 30))
@settings(max_examples=40)
def test_under_the_tightest_limits_every_operator_has_a_kernel_and_every_program_a_cover(
    seed: int, operators: int
) -> None:
    snapshot, values = random_snapshot(seed, operators)
    found = enumerate_candidates(snapshot, MI300X, TINY, needs=needs_of_all(snapshot))
    assert all(free or found.of_class[c] for c, free in enumerate(found.free))
    for candidates in found.of_class:
        assert all(len(bits(x.cut.inner)) == 1 for x in candidates)
    result = cover(snapshot, "mi300x", 2.0, TINY)
    for x in result.chosen:
        np.testing.assert_allclose(value_of(x.cut, snapshot, values), values[x.cls], atol=1e-7)
    assert result.cost >= cover(snapshot, "mi300x", 2.0).cost


# --- what is found, on small programs -----------------------------------------------------------------------------


X, Y, W = x_("x", 64 * 32), x_("y", 64 * 32), c_("w", 32 * 16)
XW = mm(X, W, 64, 32, 16)
BIAS = view(c_("b", 16), lay.strided(0, ((64, 0), (16, 1))))
TRANSPOSE = lay.of_transpose((64, 16), (1, 0))
TALL = lay.of_transpose((64, 32), (1, 0))
IMAGE = x_("image", 3 * 8 * 8)
PATCHES = view(IMAGE, lay.windows((1, 3, 8, 8), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 0.0, groups=1))


def looked_up(table: Node, places: str) -> Node:
    """64 rows of a table of 64 rows of 32."""
    return make("Gather", (1, 64, 32), (table, make("In", (places, 64, "int64"))))


PLACES, ROWS = make("In", ("i", 64, "int64")), looked_up(X, "i")
SILU = bin_("mul", XW, un("sigmoid", XW))
TOGETHER = make("Cat", (), [x_(f"x{i}", 16 * 32) for i in range(6)])
ALONG = lay.strided(0, ((96, 0), (32, 1)))
NORMED = un("relu", bin_("add", bin_("mul", TOGETHER, view(c_("g", 32), ALONG)), view(c_("h", 32), ALONG)))

WHOLE: list[tuple[str, Node, str]] = [
    ("a chain of pointwise operators", un("tanh", bin_("add", un("exp", X), Y)), "pointwise"),
    ("a transpose", view(X, TALL), "copy"),
    ("a concatenation", make("Cat", (), (X, Y)), "copy"),
    ("pointwise over a concatenation", un("relu", make("Cat", (), (X, Y))), "pointwise"),
    ("a product with bias and activation", un("relu", bin_("add", XW, BIAS)), "contraction"),
    ("a product used twice above", SILU, "contraction"),
    ("a product written transposed", un("relu", view(bin_("add", XW, BIAS), TRANSPOSE)), "contraction"),
    ("a product of a computed operand", mm(un("relu", X), W, 64, 32, 16), "contraction"),
    ("a product of joined arrays, scaled and shifted", mm(NORMED, W, 96, 32, 16), "contraction"),
    ("a convolution", un("relu", mm(PATCHES, c_("k", 27 * 4), 64, 27, 4)), "contraction"),
    ("the maximum of a product's rows", red("max", XW, 16), "contraction+reduction"),
    ("the sum of a product's columns", red("sum", view(XW, TRANSPOSE), 64), "contraction+reduction"),
    ("a sum of squares", red("sum", bin_("mul", X, X), 32), "reduction"),
    ("the mean, scaled", bin_("mul", red("sum", X, 32), full(1 / 32, 64)), "reduction"),
    ("a sum over columns", red("sum", view(X, TALL), 64), "reduction"),
    ("softmax", softmax(X, 32), "row"),
    ("softmax of a sum", softmax(bin_("add", X, Y), 32), "row"),
    ("layer norm with residual", layernorm(bin_("add", X, Y), 32), "row"),
    ("layer norm, then pointwise, transposed", un("relu", view(layernorm(X, 32), TALL)), "row"),
    ("looked-up rows", ROWS, "copy"),
    ("looked-up rows, transposed", view(ROWS, TALL), "copy"),
    ("rows of looked-up rows", make("Gather", (1, 64, 32), (ROWS, PLACES)), "copy"),
    ("rows of many tables", make("Cat", (), [looked_up(x_(f"t{i}", 64 * 32), f"i{i}") for i in range(30)]), "copy"),
    ("looked-up rows beside an array", make("Cat", (), (X, ROWS)), "copy"),
    ("rows at computed places", make("Gather", (1, 64, 32), (X, un("neg", PLACES))), "pointwise"),
    ("computed rows", make("Gather", (1, 64, 32), (bin_("mul", X, Y), PLACES)), "pointwise"),
    ("sums of looked-up rows", red("sum", ROWS, 32), "reduction"),
    ("layer norm of looked-up rows", layernorm(bin_("add", ROWS, Y), 32), "row"),
    ("a product of looked-up rows", mm(ROWS, W, 64, 32, 16), "contraction"),
    ("two products added: one walk after the other", bin_("add", XW, mm(Y, W, 64, 32, 16)), "stream"),
    ("a product and looked-up rows", bin_("add", mm(Y, c_("v", 32 * 32), 64, 32, 32), ROWS), "contraction"),
]  # fmt: skip


def candidates_of(root: Node) -> tuple[Candidates, Snapshot]:
    snapshot = Snapshot.from_core([root])
    return enumerate_candidates(snapshot, MI300X), snapshot


@pytest.mark.parametrize(("root", "family"), [row[1:] for row in WHOLE], ids=[row[0] for row in WHOLE])
def test_one_kernel_computes(root: Node, family: str) -> None:
    found, snapshot = candidates_of(root)
    whole = [x for x in found.of_class[snapshot.roots[0]] if not x.children]
    assert [x.family for x in whole] == [family]


MANY: list[tuple[str, Node]] = [
    ("a product of a product of a product", mm(mm(XW, c_("v", 16 * 8), 64, 16, 8), c_("u", 64), 64, 8, 8)),
    ("a softmax of a product", softmax(XW, 16)),
    ("a slice of a product, written as part of it", un("relu", view(XW, lay.strided(0, ((64, 16), (8, 1)))))),
    ("sums over rows of different lengths", bin_("add", red("sum", X, 32), red("sum", x_("z", 64 * 16), 16))),
    ("a row that does not fit on chip", softmax(x_("long", 2 * 10**6), 10**6)),
    ("the maximum over part of a product's row", red("max", XW, 8)),
]  # fmt: skip


@pytest.mark.parametrize("root", [row[1] for row in MANY], ids=[row[0] for row in MANY])
def test_one_kernel_does_not_compute(root: Node) -> None:
    found, snapshot = candidates_of(root)
    best = found.of_class[snapshot.roots[0]]
    assert best
    assert all(x.children for x in best)


BIG = x_("big", 4096**2)

BARE: list[tuple[str, Node, str]] = [
    ("a large product", mm(BIG, x_("b", 4096**2), 4096, 4096, 4096), "library-gemm"),
    (
        "a large product of a transposed matrix",
        mm(view(BIG, lay.of_transpose((4096, 4096), (1, 0))), x_("b", 4096**2), 4096, 4096, 4096),
        "library-gemm",
    ),
    ("a large product with an epilogue", un("relu", mm(BIG, x_("b", 4096**2), 4096, 4096, 4096)), "contraction"),
    ("a large product of a computed matrix", mm(un("exp", BIG), x_("b", 4096**2), 4096, 4096, 4096), "contraction"),
    ("a small product: a library call costs more", mm(X, W, 64, 32, 16), "contraction"),
]  # fmt: skip


@pytest.mark.parametrize(("root", "family"), [row[1:] for row in BARE], ids=[row[0] for row in BARE])
def test_the_library_computes_large_bare_products(root: Node, family: str) -> None:
    found, snapshot = candidates_of(root)
    assert [x.family for x in found.of_class[snapshot.roots[0]] if not x.children] == [family]


TABLE, FEW = x_("table", 1000 * 32), make("In", ("few", 8, "int64"))
ROW = 32 * 4

READS: list[tuple[str, Node, int]] = [
    ("rows", make("Gather", (1, 1000, 32), (TABLE, FEW)), 8 * ROW),
    ("more rows than there are", make("Gather", (1, 2, 32), (view(TABLE, lay.strided(0, ((64, 1),))), FEW)), 2 * ROW),
    ("a sector for each element", make("Gather", (1, 32000, 1), (TABLE, FEW)), 8 * SECTOR),
    ("elements along the rows", make("Gather", (500, 64, 1), (TABLE, FEW)), 32000 * 4),
    ("rows of every block", make("Gather", (10, 100, 32), (TABLE, FEW)), 80 * ROW),
    ("rows of rows", make("Gather", (1, 8, 32), (make("Gather", (1, 1000, 32), (TABLE, FEW)), FEW)), 8 * ROW),
    ("columns", make("Gather", (1, 32, 1000), (view(TABLE, lay.of_transpose((1000, 32), (1, 0))), FEW)), 32000 * 4),
    ("repeated rows", view(make("Gather", (1, 1000, 32), (TABLE, FEW)), lay.strided(0, ((9, 0), (256, 1)))), 8 * ROW),
]  # fmt: skip


@pytest.mark.parametrize(("root", "expected"), [row[1:] for row in READS], ids=[row[0] for row in READS])
def test_reading_through_an_index_moves_the_sectors_of_what_it_chooses(root: Node, expected: int) -> None:
    found, snapshot = candidates_of(root)
    facts = Facts(snapshot, Limits())
    (whole,) = (x.cut for x in found.of_class[snapshot.roots[0]] if not x.children)
    table = next(node.cls for node in snapshot.nodes if node.attrs[:1] == ("table",))
    assert facts.moved(tuple(read for read in whole.reads if read[0] == table)) == expected


COLUMNS = lay.of_transpose((64, 32), (1, 0))
MEMBERS = [view(x_("a", 64 * 32), COLUMNS), x_("b", 4096), un("exp", x_("d", 1000))]


@pytest.mark.parametrize("k", range(len(MEMBERS)))
def test_a_view_of_one_member_of_a_concatenation_reads_that_member_alone(k: int) -> None:
    start, size = sum(x.size for x in MEMBERS[:k]), MEMBERS[k].size
    part = lay.strided(start + 2, ((size // 8, 8), (4, 1)))
    joined_first = un("neg", view(make("Cat", (), MEMBERS), part))
    alone = un("neg", view(MEMBERS[k], lay.strided(2, ((size // 8, 8), (4, 1)))))
    moved = []
    for root in (joined_first, alone):
        found, snapshot = candidates_of(root)
        (whole,) = (x.cut for x in found.of_class[snapshot.roots[0]] if not x.children)
        moved.append(Facts(snapshot, Limits()).moved(whole.reads))
    assert moved[0] == moved[1]


def test_a_contiguous_slice_is_an_alias() -> None:
    found, snapshot = candidates_of(view(un("exp", X), lay.strided(32, ((64, 1),))))
    families = Counter(x.family for x in found.of_class[snapshot.roots[0]])
    assert families == {"alias": 1, "pointwise": 1}


def test_a_product_reads_both_operands_from_one_array() -> None:
    """An operand that is computed on the way is no launch of its own, however few combinations are tried."""
    n = 64
    whole = mm(x_("x", n * n), c_("w", 2 * n * n), n, n, 2 * n)
    left, right = (view(whole, lay.strided(start, ((n, 1), (n, n)))) for start in (0, n * n))
    snapshot = Snapshot.from_core([mm(left, right, n, n, n)])
    found = enumerate_candidates(snapshot, MI300X, Limits(pairs=1)).of_class[snapshot.roots[0]]
    (array,) = {node.args[0] for node in snapshot.nodes if node.op == "V"}
    assert (array,) in [x.children for x in found]


def test_a_tie_between_epilogue_and_prologue_goes_to_the_epilogue() -> None:
    """relu(x @ w) @ v: with one column of tiles the second product would compute relu no more often than the first."""
    root = mm(un("relu", XW), c_("v", 16 * 8), 64, 16, 8)
    snapshot = Snapshot.from_core([root])
    assert [names(x, snapshot) for x in cover(snapshot, "mi300x", 5.0, Limits(lefts=0)).kernels] == [["relu"], []]


def test_a_broadcast_constant_is_read_once() -> None:
    found, snapshot = candidates_of(bin_("add", XW, BIAS))
    (whole,) = (x for x in found.of_class[snapshot.roots[0]] if not x.children)
    assert sorted(snapshot.size[c] for c in whole.leaves) == [16, 32 * 16, 64 * 32]


def test_constants_beyond_the_limit_are_computed_on_the_device() -> None:
    root = bin_("add", X, mm(c_("p", 64 * 4), c_("q", 4 * 32), 64, 4, 32))
    snapshot = Snapshot.from_core([root])
    for limit, free in ((1 << 26, True), (100, False)):
        found = enumerate_candidates(snapshot, MI300X, Limits(fold_elements=limit))
        product = next(n.cls for n in snapshot.nodes if n.op == "MM")
        assert found.free[product] == free
        assert bool(found.of_class[product]) != free


def test_dominated_candidates_are_dropped() -> None:
    cut = Cut(0, -1, (), Kind.POINT, None, 0, 0, ())

    def candidate(price: int, *children: int) -> Candidate:
        return Candidate(0, "pointwise", children, children, price, cut)

    cheap, same, fewer = candidate(5, 1, 2), candidate(5, 1, 2, 3), candidate(9, 1)
    assert undominated([same, fewer, cheap, candidate(9, 1, 4)]) == [cheap, fewer]


@given(st.integers(0, 2**32 - 1), st.integers(4, 24))
@example(3961, 11)  # one class can only be computed from itself: it has no chain
@settings(max_examples=30)
def test_what_was_made_before_gives_the_same_kernels_with_another_guess_at_the_leaves(
    seed: int, operators: int
) -> None:
    snapshot, _ = random_snapshot(seed, operators)
    needs = needs_of_all(snapshot)
    first = enumerate_candidates(snapshot, MI300X, needs=needs)
    chains = first.chains()
    anew = enumerate_candidates(snapshot, MI300X, needs=needs, chains=chains)
    again = enumerate_candidates(snapshot, MI300X, needs=needs, chains=chains, made=first.made)
    assert [list(map(shown, found)) for found in again.of_class] == [list(map(shown, found)) for found in anew.of_class]


@given(st.integers(0, 2**32 - 1), st.integers(4, 24))
@settings(max_examples=30)
def test_cuts_beside_what_is_there_are_those_of_all_ways_to_join_it(seed: int, operators: int) -> None:
    def joined(self: Joins, cuts: Sequence[Cut], other: Cut, k: int, most: int, kept: int) -> object:
        return self.of([[other], cuts] if k else [cuts, [other]], most, kept)

    snapshot, _ = random_snapshot(seed, operators)
    limits = Limits(joins=2)
    ranked = enumerate_candidates(snapshot, MI300X, limits)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Joins, "beside", joined)
        all_ways = enumerate_candidates(snapshot, MI300X, limits)
    assert [list(map(shown, x)) for x in ranked.of_class] == [list(map(shown, x)) for x in all_ways.of_class]
    assert ranked.stats["crowded"] == all_ways.stats["crowded"]


def test_a_chain_on_a_product_joins_nothing_and_ranks_tiles_once_for_each_size(monkeypatch: pytest.MonkeyPatch) -> None:
    root = mm(x_("x", 64 * 32), c_("w", 32 * 16), 64, 32, 16)
    for k in range(4):
        root = bin_("max", bin_("min", root, full(6.0 + k, root.size)), full(float(-k), root.size))
    joins, tiles = Counter[str](), Counter[object]()
    join, choose = Joins.of, cost.choose_tile

    def joined(self: Joins, operands: Sequence[Sequence[Cut]], most: int, kept: int) -> object:
        joins["pointwise"] += 1
        return join(self, operands, most, kept)

    def chosen(target: Target, dims: tuple[int, int, int, int], dtype: str, units: int, slices: int) -> object:
        tiles[dims, dtype, slices] += 1
        return choose(target, dims, dtype, units, slices=slices)

    monkeypatch.setattr(Joins, "of", joined)
    monkeypatch.setattr(cost, "choose_tile", chosen)
    assert len(enumerate_candidates(Snapshot.from_core([root]), MI300X))
    assert not joins
    assert set(tiles.values()) == {1}


def test_products_of_wide_operands_are_kept_beside_the_others() -> None:
    snapshot = Snapshot.from_core([mm(NORMED, W, 96, 32, 16)])
    limits = Limits(per_kind=1)
    made = Made.nothing(snapshot, Prices(MI300X), limits)
    grower = Grower(snapshot, Prices(MI300X), limits, made)
    (i,) = (i for i, node in enumerate(snapshot.nodes) if node.op == "MM")
    search = _Search(snapshot, made.facts, grower, limits, [True] * len(snapshot.nodes))
    search.run(None)
    kept = [x for x in search.cuts[snapshot.nodes[i].cls] if x.kind == Kind.GEMM]
    assert sorted(x.wide for x in kept) == [False, True]
    assert [x.wide for x in kept] == [x.leaves.bit_count() > WIDE + 1 for x in kept]


def test_cuts_that_displace_each_other_around_a_cycle_do_not_do_so_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    written = Snapshot.from_core([un("exp", un("tanh", X))])
    (top,) = written.roots
    (below,) = written.of_class(top)[0].args
    snapshot = replace(written, nodes=[*written.nodes, ENode("Un", ("neg",), (top,), below, "a rule")])
    turns = Counter[int]()

    class Turning(Grower):
        def grow(self, i: int) -> list[Cut]:
            """Every other time the cuts rank lower."""
            turns[i] += 1
            found = super().grow(i)
            for cut in found:
                cut.score += turns[i] % 2
            return found

    monkeypatch.setattr("eqsat.extract.kernels.candidates.Grower", Turning)
    stats = enumerate_candidates(snapshot, MI300X).stats
    assert not stats["stopped"]
    assert 2 < stats["rounds"] < Limits().rounds


def test_classes_off_cycles_are_grown_once_though_a_shallow_one_may_read_a_deep_one() -> None:
    shallow, deep = un("neg", X), un("exp", un("sin", un("tanh", X)))
    written = Snapshot.from_core([un("exp", shallow), deep])
    (below,), (above,) = (written.of_class(root)[0].args for root in written.roots)
    further = [ENode("Un", ("abs",), (above,), below, "a rule")]
    snapshot = replace(written, nodes=[*written.nodes, *further])
    assert snapshot.depth[below] < snapshot.depth[above]
    stats = enumerate_candidates(snapshot, MI300X).stats
    computed = [node for node in snapshot.nodes if node.op != "In"]
    assert (stats["visits"], stats["rounds"]) == (len(computed), 1)


def shown(x: Candidate) -> tuple[object, ...]:
    return x.cls, x.family, x.leaves, x.children, x.price, x.call, x.cut.inner, x.launches, x.slices


@given(st.integers(0, 2**32 - 1), st.integers(4, 40), st.data())
@settings(max_examples=30)
def test_more_cuts_are_found_only_of_the_classes_asked_for(seed: int, operators: int, data: st.DataObject) -> None:
    snapshot, _ = random_snapshot(seed, operators)
    few, many = Limits(per_kind=2, joins=2, pairs=2), Limits()

    def found(among: int | None) -> Made:
        made = enumerate_candidates(snapshot, MI300X, few).made
        again = enumerate_candidates(snapshot, MI300X, many, made=made, among=among).made
        assert again is not None
        return again

    def cuts(made: Made | None, c: int) -> list[tuple[object, ...]]:
        assert made is not None
        return [(x.kind, x.node, x.leaves, x.inner, x.price, x.score) for x in made.kept[None][c]]

    first, whole = (enumerate_candidates(snapshot, MI300X, limits).made for limits in (few, many))
    nothing, all_, some = (
        found(0),
        found((1 << snapshot.n_classes) - 1),
        found(among := data.draw(classes_of(snapshot))),
    )
    for c in range(snapshot.n_classes):
        assert cuts(nothing, c) == cuts(first, c)
        assert cuts(all_, c) == cuts(whole, c)
    grown = [c for cycle in Facts(snapshot, many).cycles for c in cycle if any(among >> d & 1 for d in cycle)]
    assert all(cuts(some, c) == cuts(first, c) or c in grown for c in range(snapshot.n_classes))


def classes_of(snapshot: Snapshot) -> st.SearchStrategy[int]:
    """Bit sets of some of its classes."""
    return st.integers(0, (1 << snapshot.n_classes) - 1)


@pytest.mark.parametrize(("other", "share"), [(0, 0.5), (32, 1.0)])
def test_sums_of_different_parts_of_an_array_read_all_of_them(other: int, share: float) -> None:
    """Two sums of one half read it once, sums of both halves read both."""
    array = x_("h", 128 * 64)
    parts = [view(array, lay.strided(start, ((128, 64), (32, 1)))) for start in (0, other)]
    added = bin_("add", un("exp", red("sum", parts[0], 32)), red("sum", parts[1], 32))
    found, snapshot = candidates_of(added)
    moved = {Facts(snapshot, Limits()).moved(x.cut.reads) for x in found.of_class[snapshot.roots[0]] if not x.children}
    assert moved == {share * 4 * array.size}
