"""`eqsat rules list | show`: the rows that the optimiser rewrites with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from eqsat.cli.options import JsonFile
from eqsat.errors import InputError

if TYPE_CHECKING:
    from eqsat.rule import AnyRule

app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown", help="Look at the rules.")


def find(name: str) -> AnyRule:
    """The rule called `name`.

    Raises:
        InputError: no such rule; the message names the nearest ones.
    """
    from eqsat.cli.output import nearest
    from eqsat.rules import ALL

    by_name = {rule.name: rule for rule in ALL}
    if name not in by_name:
        raise InputError(f"no rule is called {name!r}: {nearest(name, list(by_name))} (`eqsat rules list` names all)")
    return by_name[name]


def select(only: Sequence[str] | None, without: Sequence[str] | None) -> list[AnyRule] | None:
    """The rules that `--only` and `--without` leave; None when neither is given.

    Raises:
        InputError: a name that no rule has.
    """
    if not only and not without:
        return None
    from eqsat.rules import ALL

    dropped = {find(name).name for name in without or ()}
    kept = {find(name).name for name in only} if only else {rule.name for rule in ALL}
    return [rule for rule in ALL if rule.name in kept - dropped]


def as_row(rule: AnyRule) -> dict[str, Any]:
    """A rule as it stands in JSON: name, left and right side, guard, numerics class, source, reason."""
    left, arrow, right = rule.text.partition(" => ")
    return {
        "name": rule.name,
        "left": left if arrow else "",
        "right": right if arrow else "",
        "text": rule.text,
        "guard": rule.guard_text,
        "numerics": rule.numerics,
        "source": rule.source,
        "why": rule.why,
    }


@app.command("list")
def list_rules(
    family: Annotated[str | None, typer.Option("--family", help="Only rules of this family.")] = None,
    numerics: Annotated[
        Literal["exact", "reassociating", "range-changing"] | None,
        typer.Option("--numerics", help="Only rules of this numerics class."),
    ] = None,
    operator: Annotated[
        str | None, typer.Option("--operator", metavar="OP", help="Only rules that mention this operator.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """List the rules by family: name, numerics class, and what equals what.

    Examples: `eqsat rules list`, `eqsat rules list --operator mm --numerics exact`
    """
    import re

    from eqsat.cli.output import console, nearest, print_table, write_json
    from eqsat.rules import FAMILIES

    if family is not None and family not in FAMILIES:
        raise InputError(f"no family of rules is called {family!r}: {nearest(family, list(FAMILIES))}")
    word = re.compile(rf"\b{re.escape(operator or '')}\b")
    listed = {
        name: [as_row(rule) for rule in rules if numerics in (None, rule.numerics) and word.search(rule.text)]
        for name, rules in FAMILIES.items()
        if family in (None, name)
    }
    if json_file is not None:
        flat = [{**row, "family": name} for name, rows in listed.items() for row in rows]
        write_json({"schema": 1, "rules": flat}, json_file)
    if json_file == "-":
        return
    terminal = console()
    for name, rows in listed.items():
        if rows:
            cells = [(row["name"], row["numerics"], row["text"]) for row in rows]
            title = f"{name}, {len(rows)} rule{'s' if len(rows) > 1 else ''}"
            print_table(terminal, title, ("name", "numerics", "left => right"), cells, words=3)


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="A rule's name.", show_default=False)], json_file: JsonFile = None
) -> None:
    """Show one rule: both sides, what must be proved before it fires, why it helps, where it comes from.

    Example: `eqsat rules show matmul-associate-right`
    """
    from eqsat.cli.output import write_json

    row = as_row(find(name))
    if json_file is not None:
        write_json({"schema": 1, **row}, json_file)
    if json_file == "-":
        return
    typer.echo(row["name"])
    for title, text in (
        ("left", row["left"] or row["text"]),
        ("right", row["right"]),
        ("when", row["guard"] or "always"),
        ("numerics", row["numerics"]),
        ("why", row["why"]),
        ("source", row["source"]),
    ):
        if text:
            typer.echo(f"  {title:9} {text}")
