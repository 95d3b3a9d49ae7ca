"""Groups: which products become one, with or without other derivations, and which must not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import eqsat
from eqsat.egraph.host_terms import Terms
from eqsat.egraph.required import as_written, needs_of, needs_of_all
from eqsat.egraph.saturate import Limits, Saturation, stated
from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.language.rule import HostRule
from eqsat.program.core import lower
from eqsat.program.ir import Program
from eqsat.rules import ALL
from eqsat.rules.groups import find_groups
from support.programs import weight


def three(x: Any, n: int = 64) -> tuple[Any, ...]:
    """Three products of one array with biases, as q, k and v are."""
    return tuple(x @ weight(x.shape[1], n, seed=s) + weight(n, seed=s) for s in range(3))


def attention(x: Any) -> Any:
    q, k, v = three(x)
    return eqsat.softmax(q @ k.T) @ v


def normed(x: Any) -> Any:
    return eqsat.layernorm(x, weight(64), weight(64, seed=1))


Row = tuple[Callable[..., Any], tuple[tuple[int, ...], ...], int]

# what is computed, its inputs, and the products that the best program launches
PROGRAMS: dict[str, Row] = {
    "of an input": (attention, ((48, 64),), 2),
    "of what has a constant added": (lambda x: attention(x + weight(64)), ((48, 64),), 2),
    "of what is scaled": (lambda x: attention(x * weight(64)), ((48, 64),), 2),
    "of a layernorm with a bias": (lambda x: attention(normed(x)), ((48, 64),), 2),
    "of a layernorm, each with a scale behind": (lambda x: tuple(y * 0.25 for y in three(normed(x))), ((48, 64),), 1),
    "of which one meets a constant behind the softmax": (
        lambda x: x + attention(normed(x)) @ weight(64, 64, seed=3),
        ((64, 64),),
        2,
    ),
    "one needs the other": (lambda x: normed(normed(x) @ weight(64, 64)) @ weight(64, 64, seed=1), ((48, 64),), 2),
}


def program_of(name: str) -> Program:
    function, inputs, _ = PROGRAMS[name]
    return eqsat.trace(function, *map(eqsat.spec, inputs))


@pytest.mark.parametrize("name", PROGRAMS)
def test_siblings_are_one_product(name: str) -> None:
    report = eqsat.optimize(program_of(name)).report
    given_up = report["nearer"]["more_us"] if "nearer" in report else 0.0  # a norm is not taken apart for little
    assert report["result"]["predicted_us"] - given_up == pytest.approx(report["lower_bound_us"])
    products = [k for k in report["kernels"] if any(op.startswith("matmul") for op in k["ops"])]
    assert len(products) == PROGRAMS[name][2], [k["ops"] for k in products]


def test_products_of_unequal_widths_make_their_rows_on_the_way() -> None:
    """Grouped-query attention: two heads of queries share keys and values, and one launch makes all of them."""

    def attention(x: Any) -> Any:
        rows = x / eqsat.sqrt(eqsat.mean(x * x, axis=-1, keepdims=True) + 1e-5)
        q, k, v = (rows @ weight(256, n, seed=i) for i, n in enumerate((256, 128, 128)))
        heads = q.reshape(64, 2, 128).transpose(1, 0, 2)
        return eqsat.softmax(heads @ k.T) @ v

    report = eqsat.optimize(eqsat.trace(attention, eqsat.spec((64, 256))), time_limit=30).report
    assert [k["family"] for k in report["kernels"]] == ["stream", "stream"]


def saturated(name: str, *dropped: str) -> Snapshot:
    source = Snapshot.from_core(tuple(lower(program_of(name)).roots))
    return Saturation(source, [r for r in ALL if r.name not in dropped], Limits(seconds=30)).run()


def test_what_is_written_has_products_that_not_every_derivation_needs() -> None:
    found = saturated("of a layernorm with a bias", "group-siblings")
    products = sum(1 << n.cls for n in found.nodes if n.op == "MM" and not found.const[n.cls])
    written, required = needs_of(found, as_written(found)), needs_of_all(found)
    assert (written.classes & products).bit_count() == 5
    assert (required.classes & products).bit_count() == 2
    assert not required.classes & ~written.classes


def test_a_derivation_needs_what_it_computes() -> None:
    source = Snapshot.from_core(tuple(lower(program_of("one needs the other")).roots))
    needs = needs_of(source, range(len(source.nodes)))
    varying = [c for c in range(source.n_classes) if not source.const[c] and not source.is_input(c)]
    assert needs.classes == sum(1 << c for c in varying)
    assert list(needs.of) == list(needs_of_all(source).of)  # with one derivation, all of them are that one
    first, second = sorted((n.cls for n in source.nodes if n.op == "MM"), key=lambda c: source.depth[c])
    assert needs.of[second] >> first & 1
    assert not needs.of[first] >> second & 1


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_group_holds_what_another_member_needs(name: str) -> None:
    found = saturated(name, "group-siblings")
    needs = needs_of_all(found)
    groups = find_groups(Terms(found))
    assert not [g for g in groups for a in g.members for b in g.members if a != b and needs.of[a] >> b & 1]


def test_products_of_equal_sizes_and_unequal_types_stay_apart() -> None:
    """Joined, they would be one array of two types."""
    sizes = (8, 16), (16, 32)
    types = ("float32", "float32"), ("float64", "float64"), ("float32", "float32")
    spec = [eqsat.spec(shape, dtype) for pair in types for shape, dtype in zip(sizes, pair, strict=True)]
    program = eqsat.trace(lambda a, b, c, d, e, f: (a @ b, c @ d, e @ f), *spec)
    report = eqsat.optimize(program).report
    assert "fallback" not in report
    products = [op for k in report["kernels"] for op in k["ops"] if op.startswith("matmul")]
    assert products == ["matmul 2x8x16 @ 2x16x32", "matmul 8x16 @ 16x32"]


def test_what_a_cover_computes_in_two_ways_may_need_itself() -> None:
    """Two products of one size, each made from the other in one of two kernels: no group, and no end to look for."""
    size, attrs = 16, (1, 4, 4, 4)
    nodes = [
        ENode("In", ("x", size, "float32"), (), 0),
        ENode("Const", ("w", size, "float32"), (), 1),
        ENode("MM", attrs, (0, 1), 2),
        ENode("MM", attrs, (3, 1), 2),
        ENode("MM", attrs, (0, 1), 3),
        ENode("MM", attrs, (2, 1), 3),
    ]
    found = Snapshot(nodes, 4, [False, True, False, False], [2, 3])
    needs = needs_of(found, range(len(nodes)))
    assert needs.of[2] == needs.of[3] == 0b1100
    assert {g.members for g in find_groups(Terms(found, [range(len(nodes))]))} <= {(2, 3)}


def test_a_saturated_e_graph_goes_on_with_what_else_holds() -> None:
    groups = [r for r in ALL if isinstance(r, HostRule) and r.name == "group-siblings"]
    without = saturated("of a layernorm with a bias", "group-siblings")
    further = stated(groups, without)
    assert further
    assert {name for name, _, _ in further} == {"group-siblings"}
    whole = Saturation(without, ALL, Limits(seconds=30), further=further).run()
    assert whole.stats["stop"] == "saturated"
    assert whole.stats["iterations"] > without.stats["iterations"]
    assert {n.rule for n in without.nodes} < {n.rule for n in whole.nodes}
    joined = (1, 48, 64, 3 * 64)
    assert joined not in {n.attrs for n in without.nodes if n.op == "MM"}
    assert joined in {n.attrs for n in whole.nodes if n.op == "MM"}


def test_no_class_is_a_view_of_itself() -> None:
    """Of repeated values there are endless maps to themselves, and all their compositions."""
    x = eqsat.spec((4, 4))
    program = eqsat.trace(lambda x: eqsat.broadcast_to(x[:1], (4, 4))[1:2].reshape(4) + x[0], x)
    source = Snapshot.from_core(tuple(lower(program).roots))
    found = Saturation(source, ALL, Limits(seconds=30)).run()
    assert found.stats["stop"] == "saturated"
    assert not [n for n in found.nodes if n.op == "V" and n.args == (n.cls,)]
