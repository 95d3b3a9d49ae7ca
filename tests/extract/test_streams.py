"""Kernels that stream: what one walk computes is one kernel, priced by its passes; what no walk computes is not."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.egraph.saturate import saturate
from eqsat.egraph.snapshot import Snapshot
from eqsat.extract.cover import cover
from eqsat.extract.device.table import DEVICES
from eqsat.extract.kernels.candidates import Candidate, enumerate_candidates
from eqsat.extract.kernels.cuts import Kind, Limits
from eqsat.extract.kernels.grow import Grower
from eqsat.extract.kernels.streams import Streams
from eqsat.extract.plan.plan import Plan, build_plan
from eqsat.frontends.terms.scatter import scattered_elements
from eqsat.gpu.families.base import Choice
from eqsat.gpu.launch.generate import chain
from eqsat.gpu.launch.streams import NO_STREAM, described
from eqsat.gpu.table.targets import TARGETS
from eqsat.layout import arithmetic as lay
from eqsat.program import composites, ops
from eqsat.program.core import Node, evaluate, topological
from eqsat.program.ir import Program
from eqsat.rules import ALL
from support import columns
from support.core_programs import bin_, by_row, c_, full, layernorm, mm, red, silu, softmax, un, view, x_
from support.plans import program_of, random_env

MI300X = DEVICES["mi300x"]

B, M, K, D, N = 2, 96, 160, 32, 64
TURNED = lay.of_transpose((B, K, D), (0, 2, 1))


def scores() -> Node:
    return mm(x_("q", B * M * D), view(x_("k", B * K * D), TURNED), M, D, K, batch=B)


def applied(weights: Node) -> Node:
    return mm(weights, x_("v", B * K * N), M, K, N, batch=B)


def root_mean(x: Node, width: int) -> Node:
    rows = x.size // width
    mean = bin_("mul", red("sum", bin_("mul", x, x), width), full(1 / width, rows))
    return un("sqrt", bin_("add", mean, full(1e-5, rows)))


def rms(x: Node, width: int) -> Node:
    return bin_("div", x, by_row(root_mean(x, width), width))


NORMED = mm(rms(x_("q", B * M * D), D), view(rms(x_("k", B * K * D), D), TURNED), M, D, K, batch=B)
X = x_("x", M * K)
GAINED = bin_("mul", layernorm(X, K), view(c_("g", K), lay.strided(0, ((M, 0), (K, 1)))))
MASKED = bin_("add", scores(), view(x_("mask", M * K), lay.strided(0, ((B, 0), (M * K, 1)))))


def linear(a: Node, name: str, n: int = N) -> Node:
    return mm(a, c_(name, a.size // M * n), M, a.size // M, n)


HIDDEN = silu(mm(x_("tall", 8192 * 32), c_("w1", 32 * 64), 8192, 32, 64))
UPDATE = bin_("mul", linear(linear(X, "a", 16), "b"), full(0.5, M * N))
BESIDE = lay.of_transpose((B, M, N), (1, 0, 2))
COLUMNS = red("sum", view(scores(), lay.of_transpose((B, M, K), (0, 2, 1))), M)
BY_COLUMN = view(COLUMNS, lay.strided(0, ((B, K), (M, 0), (K, 1))))
LARGEST = by_row(un("cast:float32", red("argmax", scores(), K)), K)

BY_ROW = lay.of_transpose((1, K, N), (0, 2, 1))
BY_KEYS = lay.of_transpose((B, M, K), (0, 2, 1))
W, V = c_("w", N * K), x_("v", K * M)
LOW = mm(c_("a", 8 * K), V, 8, K, M)

ONE = [
    ("attention", applied(softmax(scores(), K))),
    ("attention with a mask", applied(softmax(MASKED, K))),
    ("attention, written with its heads side by side", view(applied(softmax(MASKED, K)), BESIDE)),
    ("attention of normed queries and keys", applied(softmax(NORMED, K))),
    ("attention without softmax", applied(un("relu", scores()))),
    ("RMSNorm, then a linear layer", silu(linear(rms(X, K), "w"))),
    ("LayerNorm with gain, then a linear layer", linear(GAINED, "w")),
    ("a gated layer", bin_("mul", silu(linear(X, "w1")), linear(X, "w2"))),
    ("a norm, then a gated layer", bin_("mul", silu(linear(rms(X, K), "w1")), linear(rms(X, K), "w2"))),
    ("layers of unlike inputs", bin_("mul", linear(x_("y", M * K), "w1"), linear(X, "w2"))),
    ("layers of unlike inputs of other widths", silu(bin_("add", linear(x_("y", M * D), "w1"), linear(X, "w2")))),
    ("a layer with an update of low rank", bin_("add", linear(X, "w"), UPDATE)),
    ("a layer with two of them", bin_("add", bin_("add", linear(X, "w"), UPDATE), linear(linear(X, "c", 8), "d"))),
    ("two linear layers with an activation", mm(HIDDEN, c_("w2", 64 * 32), 8192, 64, 32)),
    ("two linear layers of columns", columns.chain((B, M, K, D))),
    ("attention of columns", columns.attention((B, M, K, D))),
    ("attention of columns behind a mask", columns.attention((B, M, K, D), masked=True)),
    ("attention of normed columns", columns.attention((B, M, K, D), normed=True)),
    ("rows of weights after values", mm(x_("v", B * D * K), view(softmax(scores(), K), BY_KEYS), D, K, M, batch=B)),
    ("an update of low rank in columns", bin_("add", mm(W, V, N, K, M), mm(c_("b", N * 8), LOW, N, 8, M))),
]  # fmt: skip

E, KEYS = un("exp", scores()), x_("keys", K * N)
FALLING = un("exp", bin_("sub", scores(), by_row(red("max", scores(), K), K)))
KEY_NORM = un("sqrt", red("sum", bin_("mul", view(KEYS, BY_ROW), view(KEYS, BY_ROW)), K))

OF_COLUMNS = view(KEY_NORM, lay.strided(0, ((M, 0), (N, 1))))


def over_rows(a: Node, total: Node, n: int = N) -> Node:
    """Products divided by a total of each row."""
    return bin_("div", a, by_row(total, n))


LATE = [
    ("rows divided by their sums after the product", over_rows(linear(X, "w"), red("sum", un("abs", X), K))),
    ("attention normalised after the product", over_rows(applied(E), red("sum", E, K))),
    ("below its maximum", over_rows(applied(FALLING), red("sum", FALLING, K))),
    ("RMSNorm behind a layer", bin_("mul", linear(X, "w"), by_row(root_mean(X, K), N))),
    ("RMSNorm behind a gated layer", bin_("mul", silu(over_rows(linear(X, "a"), root_mean(X, K))), linear(X, "b"))),
    ("weights by the sums of other rows", over_rows(linear(X, "w"), red("sum", x_("y", M * K), K))),
    ("a mean and a root", bin_("sub", over_rows(linear(X, "w"), root_mean(X, K)), by_row(red("sum", X, K), N))),
    (
        "columns divided by their norms",
        bin_("div", mm(X, KEYS, M, K, N), OF_COLUMNS),
    ),
    ("a product of one column below", over_rows(linear(X, "w"), mm(X, x_("z", K), M, K, 1))),
]

MORE = [
    ("totals of rows and of columns", bin_("mul", over_rows(mm(X, KEYS, M, K, N), red("sum", X, K)), OF_COLUMNS)),
    ("a sum over another axis", applied(bin_("sub", scores(), BY_COLUMN))),
    ("a product of products", linear(linear(linear(X, "w1", K), "w2", K), "w3")),
    ("an argument of the maximum", applied(bin_("mul", scores(), LARGEST))),
]  # fmt: skip


def whole(root: Node, exact: bool = False) -> list[Candidate]:
    """The kernels that compute all of a program."""
    snapshot = Snapshot.from_core([root])
    found = enumerate_candidates(snapshot, MI300X, exact=exact)
    return [x for x in found.of_class[snapshot.roots[0]] if not x.children]


def planned(root: Node) -> Plan:
    snapshot = Snapshot.from_core([root])
    return build_plan(snapshot, cover(snapshot, "mi300x", 5.0), program_of([root]))


@pytest.mark.parametrize("root", [row[1] for row in ONE], ids=[row[0] for row in ONE])
def test_one_kernel_streams(root: Node) -> None:
    assert [x.family for x in whole(root)] == ["stream"]
    program = program_of([root])
    plan = planned(root)
    assert [k.family for k in plan.kernels] == ["stream"]
    env = random_env(program)
    (expected,) = evaluate(program.roots, env, program.constants, precision="float64")
    np.testing.assert_allclose(plan.run_numpy(env)[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("root", [row[1] for row in LATE], ids=[row[0] for row in LATE])
def test_totals_behind_a_product_are_made_on_its_walk(root: Node) -> None:
    """One kernel, which is priced as the one launch that is made of it."""
    program = program_of([root])
    (kernel,) = planned(root).kernels
    made = chain("stream", kernel.body, kernel.params, TARGETS[MI300X.arch], int(MI300X.units.value))
    assert (kernel.family, kernel.launches, [k.family for k in made.kernels]) == ("stream", 1, ["stream"])
    env = random_env(program)
    (expected,) = evaluate(program.roots, env, program.constants, precision="float64")
    np.testing.assert_allclose(planned(root).run_numpy(env)[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("by_columns", [False, True])
def test_totals_of_a_long_axis_are_joined_from_slices(by_columns: bool) -> None:
    """As priced: what joins the products joins the totals too."""
    keys, m, n = 4096, 16, 64
    x, y = x_("x", m * keys), x_("y", n * keys)
    turned, columns_ = lay.of_transpose((1, n, keys), (0, 2, 1)), lay.strided(0, ((n, 0), (m, 1)))
    total = red("sum", bin_("mul", x, x), keys)
    left, right = view(y, lay.identity(n * keys)), view(x, lay.of_transpose((1, m, keys), (0, 2, 1)))
    by_rows = bin_("mul", mm(x, view(y, turned), m, keys, n), by_row(un("rsqrt", total), n))
    root = bin_("mul", mm(left, right, n, keys, m), view(un("rsqrt", total), columns_)) if by_columns else by_rows
    (kernel,) = planned(root).kernels
    made = chain("stream", kernel.body, kernel.params, TARGETS[MI300X.arch], int(MI300X.units.value))
    assert (kernel.family, kernel.launches, [k.family for k in made.kernels]) == ("stream", 2, ["stream", "row"])


def test_columns_cost_what_rows_cost() -> None:
    inner = mm(x_("q", B * M * N), view(x_("k", B * K * N), lay.of_transpose((B, K, N), (0, 2, 1))), M, N, K, batch=B)
    (by_rows,), (by_columns,) = whole(applied(softmax(inner, K))), whole(columns.attention((B, M, K, N)))
    assert by_columns.price == pytest.approx(by_rows.price, rel=0.02)  # what is written transposed is not aligned


@pytest.mark.parametrize("of_columns", ["chain", "attention"])
def test_results_beside_columns_cost_what_they_cost_beside_rows(of_columns: str) -> None:
    """A hidden layer, or the weights of attention, that is a result as well."""
    output = {"chain": columns.chain, "attention": columns.attention}[of_columns]((B, M, K, N))
    inside = next(n for n in topological([output]) if n.op == "MM" and n.attrs == (B, N, K, M)).args[1]
    rows = view(inside, lay.of_transpose((B, K, M), (0, 2, 1)))
    by_rows = mm(rows, x_("v", B * K * N), M, K, N, batch=B)
    costs = []
    for roots in ([inside, output], [rows, by_rows]):
        snapshot = saturate(Snapshot.from_core(roots), ALL)
        costs.append(cover(snapshot, "mi300x", 5.0).cost)
    assert costs[0] == pytest.approx(costs[1], rel=0.05)


def test_only_transposes_that_may_be_used_stand_for_a_product() -> None:
    normed = view(rms(X, K), lay.of_transpose((M, K), (1, 0)))
    root = mm(c_("w", N * K), normed, N, K, M)
    snapshot = saturate(Snapshot.from_core([root, view(root, lay.of_transpose((N, M), (1, 0)))]), ALL)
    written = [not node.rule for node in snapshot.nodes]
    found = enumerate_candidates(snapshot, MI300X, only=written)
    assert "stream" in found.stats["families"]


def test_a_product_whose_transpose_is_there_is_not_turned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernels are those of the transpose: the same ones once more would take the place of others."""
    normed = view(rms(X, K), lay.of_transpose((M, K), (1, 0)))
    root = mm(c_("w", N * K), normed, N, K, M)
    snapshot = saturate(Snapshot.from_core([root, view(root, lay.of_transpose((N, M), (1, 0)))]), ALL)

    def streams() -> tuple[int, list[int]]:
        found = enumerate_candidates(snapshot, MI300X)
        assert found.made is not None
        tried = sum(x is not None and x.kind == Kind.STREAM for x in found.made.cuts.values())
        return tried, [min(x.price for x in found.of_class[r]) for r in snapshot.roots]

    once, prices = streams()
    monkeypatch.setattr(Grower, "_has_transpose", lambda *_: False)
    again, same = streams()
    assert prices == same
    assert once < again


@pytest.mark.parametrize("root", [row[1] for row in MORE], ids=[row[0] for row in MORE])
def test_several_kernels_compute(root: Node) -> None:
    assert whole(root) == []


def test_layers_that_differ_in_their_arrays_alone_are_analysed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    analysed: list[object] = []
    walked = Streams._walked

    def counted(self: Streams, *given: Any) -> Any:
        analysed.append(given[0])
        return walked(self, *given)

    monkeypatch.setattr(Streams, "_walked", counted)
    one, other = (linear(rms(x_(name, M * K), K), f"w_{name}") for name in ("x", "y"))
    prices = {}
    for name, roots in {"one": [one], "other": [other], "both": [one, other]}.items():
        analysed.clear()
        snapshot = Snapshot.from_core(roots)
        found = enumerate_candidates(snapshot, MI300X)
        prices[name] = [[x.price for x in found.of_class[r]] for r in snapshot.roots], len(analysed)
    assert prices["one"] == prices["other"]
    assert prices["both"] == (prices["one"][0] + prices["other"][0], prices["one"][1])


def test_exact_walks_more_often_and_costs_more() -> None:
    root = applied(softmax(scores(), K))
    assert whole(root)[0].price < whole(root, exact=True)[0].price


def test_tiles_that_a_mask_hides_cost_nothing() -> None:
    """Of a triangle half is hidden, of a window nearly all."""
    n = 4096
    s = mm(x_("q", 8 * n * D), view(x_("k", 8 * n * D), lay.of_transpose((8, n, D), (0, 2, 1))), n, D, n, batch=8)

    def price(*axes: lay.Axis) -> int:
        hidden = view(s, lay.masked(0, ((8, n * n), (n, n), (n, 1)), axes, float("-inf")))
        (found,) = whole(mm(softmax(hidden, n), x_("v", 8 * n * N), n, n, N, batch=8))
        return found.price

    full_, triangle, window = price(), price(lay.Axis(n, 0, 0, (0, 1, -1))), price(lay.Axis(256, 0, 0, (0, 1, -1)))
    assert 0.5 * full_ < triangle < 0.6 * full_
    assert window < 0.2 * full_


def test_wide_products_of_made_rows_stay_apart() -> None:
    """Every block of columns would make the inner product again."""
    hidden = 1024
    first = silu(mm(x_("x", 512 * 512), c_("w1", 512 * hidden), 512, 512, hidden))
    plan = planned(mm(first, c_("w2", hidden * 1024), 512, hidden, 1024))
    assert "stream" not in [k.family for k in plan.kernels]


def test_few_rows_and_many_keys_are_walked_in_slices() -> None:
    """As many as the generator makes of it: one query of each head, and its keys so far."""
    keys = 4096
    turned = view(x_("k", B * keys * D), lay.of_transpose((B, keys, D), (0, 2, 1)))
    weights = softmax(mm(x_("q", B * 8 * D), turned, 8, D, keys, batch=B), keys)
    root = un("relu", mm(weights, x_("v", B * keys * D), 8, keys, D, batch=B))
    (kernel,) = planned(root).kernels
    assert (kernel.family, kernel.launches) == ("stream", 2)
    target, units = TARGETS[MI300X.arch], int(MI300X.units.value)
    first, _ = chain("stream", kernel.body, kernel.params, target, units).kernels
    whole = chain("stream", kernel.body, kernel.params, target, units, choice=Choice(slices=1)).kernels
    assert first.blocks == kernel.slices * whole[0].blocks


def test_a_stream_writes_the_rows_that_others_need() -> None:
    """After a norm: its rows go into a product, and are added to what is computed from that."""
    x = layernorm(x_("y", 512 * 256), 256)
    hidden = silu(mm(x, c_("w1", 256 * 256), 512, 256, 256))
    root = bin_("add", mm(hidden, c_("w2", 256 * 256), 512, 256, 256), x)
    plan = planned(root)
    assert [(k.family, len(k.outputs)) for k in plan.kernels] == [("stream", 2), ("contraction", 1)]


def test_a_stream_of_siblings_writes_the_rows_that_they_share() -> None:
    """The siblings are one product that rules formed, and the rows are added to what follows."""

    def layer(y: Any, q: Any, k: Any, v: Any, w: Any) -> Any:
        x = eqsat.layernorm(y)
        return eqsat.tanh(eqsat.softmax((x @ q) @ eqsat.swapaxes(x @ k, 0, 1), -1) @ (x @ v)) @ w + x

    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((256, 256), dtype=np.float32) / 16 for name in "qkvw"}
    program = eqsat.trace(lambda y: layer(y, **weights), y=eqsat.spec((64, 256)))
    found = eqsat.optimize(program, device="mi300x", time_limit=20).report["kernels"]
    assert [(k["family"], len(k["outputs"])) for k in found] == [("stream", 2), ("stream", 1), ("contraction", 1)]


def test_attention_reads_its_heads_from_one_array_of_q_k_and_v() -> None:
    """Also where some of them have a bias, so that each may be read in many ways."""
    n, heads, depth = 200, 4, 64
    width = heads * depth
    rng = np.random.default_rng(0)
    held = {name: rng.standard_normal((width, width), dtype=np.float32) / 16 for name in ("wq", "wk", "wv", "wo")}
    held |= {name: rng.standard_normal(width, dtype=np.float32) for name in ("gain", "shift", "bq", "bv")}

    def by_head(x: Any) -> Any:
        return eqsat.transpose(eqsat.reshape(x, (n, heads, depth)), (1, 0, 2))

    def layer(x: Any, **c: Any) -> Any:
        y = eqsat.layernorm(x) * c["gain"] + c["shift"]
        q, k, v = by_head((y @ c["wq"] + c["bq"]) * 0.125), by_head(y @ c["wk"]), by_head(y @ c["wv"] + c["bv"])
        out = eqsat.softmax(q @ eqsat.swapaxes(k, -1, -2), -1) @ v
        return eqsat.reshape(eqsat.transpose(out, (1, 0, 2)), (n, width)) @ c["wo"] + x

    program = eqsat.trace(lambda x: layer(x, **held), x=eqsat.spec((n, width)))
    found = eqsat.optimize(program, device="mi300x", time_limit=20).report["kernels"]
    assert [k["family"] for k in found] == ["stream", "stream", "contraction"]


def test_keys_and_values_are_read_from_the_array_of_both() -> None:
    """Also where few operands are tried, and the turned keys can be computed as a product of their own as well."""
    both = mm(x_("y", B * K * D), c_("w", D * 2 * D), B * K, D, 2 * D)
    keys = view(both, lay.strided(0, ((B, K * 2 * D), (D, 1), (K, 2 * D))))
    values = view(both, lay.strided(D, ((B * K, 2 * D), (D, 1))))
    product = mm(x_("wt", B * D * D), x_("yt", B * D * K), D, D, K, batch=B)
    attended = mm(softmax(mm(x_("q", B * M * D), keys, M, D, K, batch=B), K), values, M, K, D, batch=B)
    roots = [attended, product]
    at = {node: i for i, node in enumerate(topological(roots))}
    snapshot = Snapshot.from_core(roots).merged([(at[keys], at[product])])
    (array,) = {n.cls for n in snapshot.nodes if snapshot.size[n.cls] == both.size}
    found = enumerate_candidates(snapshot, MI300X, Limits(rights=1)).of_class[snapshot.roots[0]]
    assert (array,) in [x.children for x in found if x.family == "stream"]


def test_attention_turns_queries_and_keys_of_different_products_on_the_way() -> None:
    """Rotary embeddings, written as products of halves: no kernel writes what was turned."""
    n, heads, depth = 32, 4, 16
    width = heads * depth

    def layer(x: Any, wq: Any, wk: Any, wv: Any, cos: Any, sin: Any) -> Any:
        def by_head(w: Any) -> Any:
            return eqsat.transpose(eqsat.reshape(x @ w, (n, heads, depth)), (1, 0, 2))

        def turned(y: Any) -> Any:
            half = depth // 2
            return y * cos + eqsat.concatenate([-y[..., half:], y[..., :half]], axis=-1) * sin

        q, k, v = turned(by_head(wq)), turned(by_head(wk)), by_head(wv)
        return eqsat.softmax(q @ eqsat.swapaxes(k, -1, -2), -1) @ v

    angles = [eqsat.spec((n, depth))] * 2
    program = eqsat.trace(layer, eqsat.spec((n, width)), *[eqsat.spec((width, width))] * 3, *angles)
    found = eqsat.optimize(program, device="mi300x", rules=[]).report["kernels"]
    assert [k["family"] for k in found] == [*["contraction"] * 3, "stream"]


def attention_over_a_cache(steps: int, width: int) -> Program:
    """Attention of one query, over keys that are values too, one of which is written at a computed place."""
    cache, q = (ops.input(name, (1, n, width), "float32") for name, n in (("cache", steps), ("q", 1)))
    place, new = ops.input("place", (1, 1, width), "int64"), ops.input("new", (1, 1, width), "float32")
    written = scattered_elements(cache, place, new, 1, "none")
    weights = composites.softmax(ops.matmul(q, ops.transpose(written, (0, 2, 1))), -1)
    return Program((cache, place, new, q), {"y": ops.matmul(weights, written)})


@pytest.mark.parametrize("exact", [False, True])
def test_products_that_are_written_out_make_other_streams_than_those_that_are_not(exact: bool) -> None:
    program = attention_over_a_cache(8, 4)
    found = eqsat.optimize(program, device="mi300x", numerics="exact" if exact else "reassociate", time_limit=4)
    lines = [line for kernel in found.report["kernels"] for line in kernel.get("why", ())]
    assert not any(line.startswith(NO_STREAM) for line in lines)


def test_a_kernel_that_is_no_stream_keeps_its_result_and_says_why() -> None:
    (kernel,) = planned(applied(softmax(scores(), K))).kernels
    (turned,) = planned(un("relu", LARGEST)).kernels[-1:]
    (line,) = described(replace(kernel, body=turned.body, params=turned.params), MI300X)
    assert line.startswith(f"{NO_STREAM}: ")


def test_devices_that_run_operator_by_operator_do_not_stream() -> None:
    snapshot = Snapshot.from_core([applied(softmax(scores(), K))])
    found = enumerate_candidates(snapshot, DEVICES["cpu"])
    assert all(x.family != "stream" for xs in found.of_class for x in xs)


def test_equal_kernels_of_a_plan_are_described_once(monkeypatch: pytest.MonkeyPatch) -> None:
    (kernel,) = planned(applied(softmax(scores(), K))).kernels
    lines = described(kernel, MI300X)
    monkeypatch.setattr("eqsat.gpu.launch.streams.in_fewest_passes", lambda *args, **kwargs: pytest.fail("again"))
    assert described(kernel, MI300X) == lines


def test_plans_name_streams_and_say_why() -> None:
    (kernel,) = planned(applied(softmax(scores(), K))).kernels
    assert kernel.name == f"gemm_softmax_gemm_{B}x{M}x{N}x{K}"
    walk, *_, product, on_chip = described(kernel, MI300X)
    assert walk.startswith(f"walks once along {K} elements")
    assert "corrected by exp(old - new)" in product
    assert re.match(r"a block keeps \d+ rows by \d+ columns of each product on chip", on_chip)
    (gated,) = planned(bin_("mul", silu(linear(X, "w1")), linear(X, "w2"))).kernels
    assert gated.name == f"gemm2_silu_{M}x{N}x{K}"
