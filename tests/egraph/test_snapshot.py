"""Snapshots: e-graphs as plain data."""

from __future__ import annotations

import pytest

from eqsat.egraph.snapshot import Snapshot
from support.core_programs import bin_, c_, un, x_


def test_other_leaves_change_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: str, w: str) -> Snapshot:
        return Snapshot.from_core([un("exp", bin_("add", x_(x, 8), c_(w, 8)))])

    before, after = program("a", "w"), program("b", "v")
    leaves = {(n.op, n.attrs): (m.op, m.attrs) for n, m in zip(before.nodes, after.nodes, strict=True) if not n.args}
    with monkeypatch.context() as patch:
        patch.setattr(Snapshot, "_derive", None)  # nothing is measured again
        found = before.with_leaves(leaves)
    assert found == after != before
    assert before.find("In", ("a", 8, "float32"), ()) == found.find("In", ("b", 8, "float32"), ()) is not None
    assert found.find("In", ("a", 8, "float32"), ()) is None
