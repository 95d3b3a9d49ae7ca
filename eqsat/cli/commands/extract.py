"""`eqsat extract`: the cheapest choice of nodes in a serialized e-graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eqsat.cli.shared.options import JsonFile, TimeLimit


def extract(
    egraph: Annotated[Path, typer.Argument(metavar="EGRAPH.json", help="A serialized e-graph.", show_default=False)],
    time_limit: TimeLimit = 30.0,
    json_file: JsonFile = None,
) -> None:
    """Choose one node a class so that the roots are built at the least total cost, each chosen node counted once.

    The file is in the public format of extraction-gym: `{"nodes": {id: {"op", "cost", "eclass", "children"}},
    "root_eclasses": [...]}`. The answer comes with a lower bound; gap 0 is a proof.

    Example: `eqsat extract egraph.json --time-limit 30 --json answer.json`
    """
    from eqsat.base.files import check_outputs
    from eqsat.base.progress_bar import progress_bar
    from eqsat.cli.shared.output import answer
    from eqsat.extract.solver.serialized import extract_file

    check_outputs({"the e-graph": egraph}, {"--json": json_file})
    with progress_bar(f"extracting from {egraph.name}"):
        found = extract_file(egraph, time_limit)
    if answer({"schema": 1, **found}, json_file):
        state = "proven optimal" if found["optimal"] else f"lower bound {found['lower_bound']:g}{_gap(found['gap'])}"
        typer.echo(f"cost {found['cost']:g}, {state}, {len(found['choices'])} classes, {found['seconds']:.2f} s")


def _gap(gap: float | None) -> str:
    """The gap in words; nothing where there is none."""
    if gap is None:
        return ""
    return f", gap {gap:.1%}" if gap >= 0.001 else ", gap below 0.1%"
