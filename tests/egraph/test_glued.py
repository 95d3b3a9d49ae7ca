"""Two e-graphs as one: every e-node still evaluates to its class, and what is the same is one class."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat import spec
from eqsat.egraph.glued import Glued, glued
from eqsat.egraph.saturate import Limits, saturate
from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.evidence.reference import class_values, close, term_value
from eqsat.program.core import lower
from eqsat.rules import ALL
from support.programs import weight

FIRST = {
    "sum": lambda x: x @ (weight(8, 8) + 1.0) + x,
    "transposed": lambda x: eqsat.transpose(x @ weight(8, 8), (1, 0)),
    "concatenated": lambda x: eqsat.concatenate([x[4:], x[:4]], axis=0) * 2.0,
}
SECOND = {
    "norm": lambda h, x: eqsat.rmsnorm(h) @ weight(8, 8) - x,
    "products": lambda h, x: (h @ weight(8, 8)) @ (x @ weight(8, 8)) + 1.0,
    "slices": lambda h, x: eqsat.concatenate([h[:2], h[2:]], axis=0) + x,
}


def saturated(program: eqsat.Program) -> Snapshot:
    found = saturate(Snapshot.from_core(lower(program).roots), ALL, Limits(seconds=30))
    assert found.stats["stop"] == "saturated"
    return found


def joined(first: str, second: str) -> tuple[Glued, Snapshot, Snapshot]:
    """The second reads the first as `h`, and its input `x`."""
    a = saturated(eqsat.trace(FIRST[first], spec((8, 8), name="x")))
    b = saturated(eqsat.trace(SECOND[second], spec((8, 8), name="h"), spec((8, 8), name="x")))
    (h,) = (node.cls for node in b.nodes if node.op == "In" and node.attrs[0] == "h")
    both = glued(a, b, [(a.roots[0], h)])
    both.snapshot.roots = [both.classes[1][cls] for cls in b.roots]
    return both, a, b


@pytest.mark.parametrize("second", SECOND)
@pytest.mark.parametrize("first", FIRST)
def test_every_e_node_evaluates_to_its_class(first: str, second: str) -> None:
    both, a, b = joined(first, second)
    snapshot = both.snapshot
    rng = np.random.default_rng(1)
    leaves: dict[str, Any] = {
        node.attrs[0]: rng.standard_normal(node.attrs[1]) for node in snapshot.nodes if node.op in ("In", "Const")
    }
    assert "h" not in leaves
    values = class_values(snapshot, leaves)
    for node in snapshot.nodes:
        own = term_value((node.op, node.attrs, node.args), values, leaves)
        assert close(own, values[node.cls], snapshot.dtype[node.cls]), node
    for part, classes in zip((a, b), both.classes, strict=True):
        assert [part.size[c] for c in range(part.n_classes)] == [snapshot.size[c] for c in classes]
        assert all(part.const[c] <= snapshot.const[classes[c]] for c in range(part.n_classes))


@pytest.mark.parametrize("second", SECOND)
@pytest.mark.parametrize("first", FIRST)
def test_what_is_the_same_is_one_class_and_one_e_node(first: str, second: str) -> None:
    both, a, b = joined(first, second)
    nodes = both.snapshot.nodes
    assert max(Counter((node.op, repr(node.attrs), node.args) for node in nodes).values()) == 1
    (x,) = (node.cls for node in nodes if node.op == "In")
    for part, classes in zip((a, b), both.classes, strict=True):
        assert classes[next(n.cls for n in part.nodes if n.op == "In" and n.attrs[0] == "x")] == x
        for node in part.nodes:
            if node.attrs[:1] != ("h",):
                args = [classes[c] for c in node.args]
                assert both.snapshot.find(node.op, node.attrs, args) == classes[node.cls]


def test_e_nodes_that_become_the_same_merge_their_classes() -> None:
    """Also where that makes further ones the same; needless ones are kept apart."""
    leaf = ("x", 4, "float32")
    first = Snapshot(
        [ENode("In", leaf, (), 0), ENode("Un", ("exp",), (0,), 1), ENode("Un", ("abs",), (1,), 2)], 3, [False] * 3, [1]
    )
    h = ("h", 4, "float32")
    again = [ENode("In", h, (), 0), ENode("In", leaf, (), 1), ENode("Un", ("exp",), (1,), 2)]
    second = Snapshot(
        [*again, ENode("Un", ("abs",), (2,), 3), ENode("Un", ("abs",), (0,), 4)],
        5,
        [False] * 5,
        [3, 4],
        needless=[ENode("Un", ("neg",), (4,), 4, "rule")],
    )
    both = glued(first, second, [(1, 0)])
    assert both.classes[1][3] == both.classes[1][4] == both.classes[0][2]
    assert both.classes[1][2] == both.classes[0][1]
    assert both.snapshot.n_classes == len(both.snapshot.nodes) == 3
    top = both.classes[0][2]
    assert both.snapshot.needless == [ENode("Un", ("neg",), (top,), top, "rule")]
