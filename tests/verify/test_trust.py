"""Every rule that certificates may name has a proof: the table of docs/trust.md lists them all as they are now."""

from __future__ import annotations

from eqsat.evidence.guard_proofs import fingerprint
from eqsat.rules import CHECKABLE
from support.benchmarks import load


def test_each_rule_has_a_proof_of_what_it_says() -> None:
    with_rows = next(load("trust"))
    table = with_rows.TRUST.read_text(encoding="utf-8").partition(with_rows.BEGIN)[2]
    rows = with_rows.ROW.findall(table)
    assert {backed for _, _, backed, _ in rows} == set(with_rows.BACKED.values())
    found = [(name, numerics, mark) for name, numerics, _, mark in rows]
    assert found == [(r.name, r.numerics, fingerprint(r)) for r in CHECKABLE], "run: python benchmarks/trust.py"
