"""What egglog is told: classes by their derivations once, by their names from then on."""

from __future__ import annotations

from typing import Any

import eqsat
from eqsat.egraph.encoding import EGraph
from eqsat.egraph.snapshot import SOURCE, Snapshot
from eqsat.program.core import lower

DEPTH = 40


class Counted(EGraph):
    """An e-graph that keeps the number of actions of each insertion."""

    def __init__(self) -> None:
        super().__init__([])
        self.actions: list[int] = []

    def _act(self, actions: list[Any]) -> None:
        self.actions.append(len(actions))
        super()._act(actions)


def deep() -> Snapshot:
    """Two chains of sines over one input."""

    def function(x):
        a, b = x, eqsat.tanh(x)
        for _ in range(DEPTH):
            a, b = eqsat.sin(a), eqsat.sin(b)
        return a, b

    return Snapshot.from_core(lower(eqsat.trace(function, eqsat.spec((4,)))).roots)


def read(graph: EGraph) -> Snapshot:
    graph.run("analysis", saturate=True)
    return graph.snapshot(graph.freeze())


def test_a_class_that_was_told_by_its_derivation_is_told_by_its_name():
    graph = Counted()
    graph.insert_source(deep())
    graph.actions.clear()
    grown = read(graph)
    top = grown.roots[0]
    graph.insert(grown, [(SOURCE, top, ("Un", ("abs",), (top,)))])
    grown = read(graph)
    graph.insert(grown, [(SOURCE, grown.roots[0], ("Un", ("neg",), (grown.roots[0],)))])
    first, second = graph.actions
    assert first > DEPTH
    assert second < 10
    graph.insert(grown, [(SOURCE, grown.roots[0], grown.roots[1])])
    merged = read(graph)
    assert merged.roots[0] == merged.roots[1]
    assert merged.n_classes < grown.n_classes


def test_names_are_of_the_snapshot_that_was_read_last():
    graph = Counted()
    graph.insert_source(deep())
    before = read(graph)
    graph.insert(before, [(SOURCE, before.roots[0], before.roots[1])])
    after = read(graph)
    assert graph.names(after)
    assert not graph.names(before)
    named = len(graph.names(after))
    graph.insert(before, [(SOURCE, before.roots[0], before.roots[1])])  # told by derivations, whatever they are now
    assert len(graph.names(read(graph))) >= named


def test_an_empty_e_graph_has_no_names():
    graph = Counted()
    graph.clear()
    for _ in range(2):
        graph.insert_source(deep())
        snapshot = read(graph)
        assert not graph.names(snapshot)
        graph.insert(snapshot, [(SOURCE, snapshot.roots[0], snapshot.roots[1])])
        assert graph.names(read(graph))
        graph.clear()
