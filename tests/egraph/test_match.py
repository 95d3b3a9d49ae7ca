"""Matches of rules over a snapshot."""

from __future__ import annotations

import eqsat
from eqsat.egraph.match import Matcher
from eqsat.egraph.saturate import Limits, saturate
from eqsat.egraph.snapshot import Snapshot
from eqsat.language.equation import rule
from eqsat.program.core import lower

RULES = [
    rule("commute", "a + b == b + a", numerics="reassociating", source="test", why="test"),
    rule("associate", "(a + b) + c == a + (b + c)", numerics="reassociating", source="test", why="test"),
]


def test_matching_ends_in_time_within_one_e_node():
    """An e-node over a class of many has as many matches, and each may ask tables."""
    summed = eqsat.trace(lambda *xs: sum(xs[1:], xs[0]), *[eqsat.spec((4,)) for _ in range(6)])
    found = saturate(Snapshot.from_core(lower(summed).roots), RULES, Limits(seconds=30))
    places = range(len(found.nodes))
    most = max(places, key=lambda at: len(list(Matcher(found).left_sides(RULES[1], at))))
    asked = iter([True, True, True, False])
    assert len(list(Matcher(found, (), lambda: next(asked)).left_sides(RULES[1], most))) == 3
