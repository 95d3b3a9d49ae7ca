"""Reading what is new in an e-graph gives what reading all of it gives, after each iteration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import eqsat
from eqsat.egraph.encoding import EGraph
from eqsat.egraph.reader import Listings, Reader
from eqsat.egraph.saturate import Limits, Saturation
from eqsat.egraph.snapshot import Snapshot
from eqsat.program.core import lower
from eqsat.program.ir import Program
from eqsat.rules import ALL
from eqsat.testing import programs
from support.programs import weight


class Compared(EGraph):
    """An e-graph whose snapshots are compared with those of a reader that has read nothing before."""

    compared = 0

    def snapshot(self, functions: Mapping[str, Any]) -> Snapshot:
        found = super().snapshot(functions)
        assert found == Reader(self._egraph, self.atoms, self.rule_names).read(functions)
        self.compared += 1
        return found


@pytest.fixture(scope="module")
def graph() -> Compared:
    graph = Compared(ALL)
    graph.clear()
    return graph


def saturated(program: Program, graph: EGraph) -> Snapshot:
    source = Snapshot.from_core(lower(program).roots)
    found = Saturation(source, ALL, Limits(nodes=500, iterations=8), graph=graph).run()
    graph.clear()
    return found


SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)


@given(program=programs())
@settings(max_examples=25, deadline=None, suppress_health_check=SLOW)
def test_generated_programs_are_read_alike(graph: Compared, program: Program):
    before = graph.compared
    saturated(program, graph)
    assert graph.compared > before


TOWERS = {
    "joined": lambda: eqsat.trace(
        lambda x: eqsat.concat([eqsat.relu(x @ (weight(4, 6) + t)) @ weight(6, 3) for t in range(4)], 1),
        eqsat.spec((5, 4)),
    ),
    "apart": lambda: eqsat.trace(
        lambda x: tuple(eqsat.relu(x @ (weight(4, 6) + t)) @ weight(6, 3) for t in range(3)), eqsat.spec((5, 4))
    ),
}


@pytest.mark.parametrize("name", TOWERS)
def test_concatenations_whose_members_merge_are_read_alike(graph: Compared, name: str):
    found = saturated(TOWERS[name](), graph)
    assert any(node.op == "Cat" for node in found.nodes)
    assert found.n_classes > 10


LISTINGS = {
    "more rows": ("abc", "abcde", "de"),
    "fewer rows": ("abcd", "bd", ""),
    "changed rows, which are written anew": ("abcd", "acdx", "x"),
    "rows written anew as they were": ("abcd", "acdb", "b"),
    "a new row before known ones": ("abc", "xbc", "xbc"),
    "nothing in common": ("ab", "xyz", "xyz"),
    "one row twice": ("aa", "aaa", "a"),
}


@pytest.mark.parametrize("name", LISTINGS)
def test_what_was_made_of_a_row_is_kept(name: str):
    before, after, new = LISTINGS[name]
    listings, made = Listings(), []

    def make(row: str) -> str:
        made.append(row)
        return row.upper()

    listings.made("f", before, make)
    made.clear()
    assert "".join(listings.made("f", after, make)) == after.upper()
    assert "".join(made) == new
    assert listings.made("g", before, make) == list(before.upper())
