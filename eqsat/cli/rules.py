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
    numerics: Annotated[
        Literal["exact", "reassociating", "range-changing"] | None,
        typer.Option("--numerics", help="Only rules of this numerics class."),
    ] = None,
    operator: Annotated[
        str | None, typer.Option("--operator", metavar="OP", help="Only rules that mention this operator.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """List the rules: name, numerics class, and what equals what.

    Examples: `eqsat rules list`, `eqsat rules list --operator mm --numerics exact`
    """
    import re

    from eqsat.cli.output import console, table, write_json
    from eqsat.rules import ALL

    rules = [as_row(rule) for rule in ALL if numerics in (None, rule.numerics)]
    if operator is not None:
        word = re.compile(rf"\b{re.escape(operator)}\b")
        rules = [row for row in rules if word.search(row["text"])]
    if json_file is not None:
        write_json({"schema": 1, "rules": rules}, json_file)
    if json_file != "-":
        rows = [(row["name"], row["numerics"], row["text"]) for row in rules]
        console().print(table(f"{len(rules)} rules", ("name", "numerics", "left => right"), rows, 3))


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="A rule's name.", show_default=False)], json_file: JsonFile = None
) -> None:
    """Show one rule: both sides, what must be proved before it fires, why it helps, where it comes from.

    Example: `eqsat rules show matmul-assoc-right`
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
