"""The table of docs/trust.md lists the rules that certificates may name."""

from __future__ import annotations

import re
from pathlib import Path

from eqsat.rules import CHECKABLE

TRUST = Path(__file__).parents[2] / "docs" / "trust.md"


def test_each_rule_has_a_row_that_says_what_backs_it() -> None:
    rows = re.findall(r"^\| `(\S+)` \| ([\w-]+) \| [\w, ]+ \|$", TRUST.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [(rule.name, rule.numerics) for rule in CHECKABLE], "run: python benchmarks/trust.py"
