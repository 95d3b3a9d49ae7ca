"""`eqsat rules discover`: equations that the rules do not derive, as rows for them."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eqsat.cli.shared.options import Cluster, JsonFile, Workers, output_folder

if TYPE_CHECKING:
    from eqsat.discovery.discover import Discovery

RESULTS = "results.sqlite"
_SHOWN = 20
"""Equations without a row that are printed."""


def discover(
    operators: Annotated[
        str, typer.Option("--operators", metavar="LIST", help="Of programs, such as matmul,add,concat.")
    ] = "matmul,add,mul,transpose",
    size: Annotated[int, typer.Option("--size", min=1, max=5, metavar="N", help="Most operators of a side.")] = 2,
    minutes: Annotated[
        float | None, typer.Option("--minutes", min=0.0, metavar="M", help="Return what is found by then.")
    ] = None,
    draw: Annotated[
        int | None, typer.Option("--draw", min=1, metavar="N", help="Only N settings of shapes, drawn at random.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, metavar="K", help="Of the draw.")] = 0,
    without: Annotated[
        list[str] | None, typer.Option("--without", metavar="RULE", help="Do without this rule; may be repeated.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", parser=output_folder, help="Keep results there, to go on later."),
    ] = None,
    workers: Workers = None,
    on: Cluster = None,
    json_file: JsonFile = None,
) -> None:
    """Enumerate equations over matrices, and print rows for the ones that the rules do not derive.

    Expressions of the operators are evaluated from small to large; two of equal values are an equation. Those that the
    rules of `eqsat prove` derive are counted. The others are judged as every rule is, smallest first: one that the rows
    so far imply, that no class of numerics allows, or that rules cannot write, gives no row. Rows stand in the order of
    what they save, by the prices of mi300x at the sizes shown.

    Beside operators of programs there are `concat` (along both axes), the reductions of rows `sum`, `max`, `min` and
    `prod`, and elementwise functions of a column or a row, as in `mul_column`, `add_row`.

    Examples:

    - `eqsat rules discover --operators matmul,add,concat --size 3 --minutes 10`
    - `eqsat rules discover --operators matmul,concat --size 4 --draw 100`
    - `eqsat rules discover --operators matmul --without matmul-associative`
    """
    from eqsat.base.files import make_folder
    from eqsat.base.progress_bar import progress_bar
    from eqsat.cli.commands.rules import named
    from eqsat.cli.shared.output import answer, check_kept
    from eqsat.discovery import expressions
    from eqsat.discovery.discover import discover as search
    from eqsat.runs.store import Store

    names = expressions.operators(operators)
    left_out = sorted({rule.name for name in without or () for rule in named(name)})
    seconds = math.inf if minutes is None else 60 * minutes
    if output is not None:
        make_folder(output)
    check_kept((), output, (RESULTS,), json_file)
    count = workers or os.cpu_count() or 1
    drawn = None if draw is None else (draw, seed)
    with progress_bar("discovering") as bar, Store(output / RESULTS if output else ":memory:") as store:
        found = search(names, size, store, seconds, left_out, count, on, drawn, bar)
    if answer(_document(found, names, size), json_file):
        _print(found, f"discovered: {operators}, size {size}")


def _document(found: Discovery, names: list[str], size: int) -> dict[str, object]:
    return {
        "schema": 1,
        "operators": names,
        "size": size,
        "settings": found.settings,
        "looked": found.looked,
        "equations": found.equations,
        "derived": found.derived,
        "rows": [row.as_json() for row in found.rows],
        "implied": list(map(str, found.implied)),
        "refused": {str(equation): reason for equation, reason in found.refused.items()},
        "late": found.late,
    }


def _print(found: Discovery, source: str) -> None:
    if found.looked < found.settings:
        typer.echo(f"looked at {found.looked} of {found.settings} settings of shapes")
    typer.echo(f"{found.equations} equations, {found.derived} derived by the rules ({found.share:.2%})")
    for row in found.rows:
        typer.echo(row.text(source))
    for equation in found.implied[:_SHOWN]:
        typer.echo(f"implied by these: {equation}")
    for equation, reason in list(found.refused.items())[:_SHOWN]:
        typer.echo(f"no rule: {equation}: {reason}")
    hidden = max(0, len(found.implied) - _SHOWN) + max(0, len(found.refused) - _SHOWN)
    if hidden:
        typer.echo(f"and {hidden} more (--json has all)")
    if found.late:
        typer.echo(f"{found.late} settings or equations are left for want of time")
