"""A sweep as one self-contained page, whose tables sort by a click on a column's head."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from eqsat.errors import escaped
from eqsat.sweeping.table import Row, earned

_TEMPLATE = Path(__file__).with_name("sweep.html.j2")


def page(rows: Sequence[Row], lines: Sequence[str]) -> str:
    """The page; `lines` say what got worse."""
    from jinja2 import Environment, StrictUndefined

    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    shown = [(escaped(r.model), escaped(r.fault), r) for r in rows]
    text = _TEMPLATE.read_text(encoding="utf-8")
    return template.from_string(text).render(rows=shown, rules=earned(rows), lines=[escaped(line) for line in lines])
