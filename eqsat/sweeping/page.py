"""A sweep as one self-contained page, whose tables sort by a click on a column's head."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from eqsat.html.fragments import environment
from eqsat.sweeping.table import Row, earned


def page(rows: Sequence[Row], lines: Sequence[str]) -> str:
    """The page; `lines` say what got worse."""
    template = environment(Path(__file__).parent).get_template("sweep.html.j2")
    return template.render(rows=rows, rules=earned(rows), lines=lines)
