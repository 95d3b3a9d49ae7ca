"""The report of a run as one self-contained page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from eqsat.html.fragments import environment
from eqsat.suite.report import Table
from eqsat.suite.run import State


def page(state: State, tables: Sequence[Table]) -> str:
    """The page."""
    times = "measured" if state.asked.place.measures else "predicted, not measured"
    template = environment(Path(__file__).parent).get_template("suite.html.j2")
    return template.render(facts=state.facts, size=state.asked.size, times=times, tables=tables)
