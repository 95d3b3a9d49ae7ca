"""`eqsat explore`: one expression, its e-graph and its forms."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eqsat.cli.options import JsonFile, RulesFile
from eqsat.errors import InputError


def explore(
    expression: Annotated[str, typer.Argument(metavar="EXPR", help="As in `relu(X @ A) @ C`.", show_default=False)],
    let: Annotated[
        list[str] | None,
        typer.Option("--let", metavar="NAME=TYPE", help="`X=f32[348,768]`, or `A=const:f32[768,64]`; may be repeated."),
    ] = None,
    device: Annotated[
        list[str] | None, typer.Option("--device", "-d", help="Price forms on this device; may be repeated.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option("--only", metavar="RULE", help="Use only this rule.")] = None,
    without: Annotated[list[str] | None, typer.Option("--without", metavar="RULE", help="Leave this rule out.")] = None,
    rules_file: RulesFile = None,
    exploring: Annotated[
        bool, typer.Option("--exploring", help="Use the unguarded rules too, which only proofs use otherwise.")
    ] = False,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="At most so many iterations.")] = None,
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="Stop when the e-graph has more e-nodes.")] = 5000,
    count: Annotated[int, typer.Option("--forms", min=0, help="Show so many forms of the result.")] = 10,
    dot: Annotated[Path | None, typer.Option("--dot", metavar="FILE", help="Write the e-graph for Graphviz.")] = None,
    egraph: Annotated[
        str | None, typer.Option("--egraph", metavar="FILE", help="Write the e-graph as serialized e-graph JSON.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Saturate an expression and show how its e-graph grew, which rules fired, and its forms with their cost.

    Examples:

    - `eqsat explore "(X @ A) @ C" --let X=f32[348,768] --let A=const:f32[768,64] --let C=const:f32[64,768]`
    - `eqsat explore "(a + b) * c" --let a=f32[4] --let b=f32[4] --let c=f32[4] --exploring --steps 3 --dot g.dot`
    """
    from eqsat import explore as exploring_
    from eqsat.cli.output import console, print_table, write_json
    from eqsat.cli.rules import select
    from eqsat.expression import parse
    from eqsat.rules import ALL, EXPLORING
    from eqsat.saturate import Limits

    program = parse(expression, _pairs(let))
    rules = [*(select(only, without, rules_file) or ALL), *(EXPLORING if exploring else ())]
    found = exploring_.explore(program, rules, Limits(nodes=nodes), steps)
    snapshot = found.snapshot
    forms = exploring_.forms(snapshot, device or ["mi300x", "h100", "cpu"], count) if count else []
    if dot is not None:
        dot.write_text(exploring_.to_dot(snapshot), encoding="utf-8")
    if egraph is not None:
        write_json(exploring_.to_json(snapshot), egraph)
    if json_file is not None:
        growth = [
            {"iteration": g.iteration, "classes": g.classes, "nodes": g.nodes, "matches": g.matches}
            for g in found.growth
        ]
        shown = [{"form": f.text, "predicted_us": f.microseconds} for f in forms]
        data = {"schema": 1, "stop": snapshot.stats["stop"], "growth": growth, "made": found.made, "forms": shown}
        write_json(data, json_file)
    if "-" in (json_file, egraph):
        return
    terminal = console()
    most = max(g.nodes for g in found.growth)
    rows = [
        (
            str(g.iteration),
            "#" * max(1, round(30 * g.nodes / most)),
            str(g.classes),
            str(g.nodes),
            str(sum(g.matches.values())),
        )
        for g in found.growth
    ]
    title = f"{expression}: growth (stopped: {snapshot.stats['stop']})"
    print_table(terminal, title, ("iteration", "", "classes", "e-nodes", "matches"), rows, words=2)
    matches = snapshot.stats["matches"]
    fired = [(name, str(matches.get(name, 0)), str(n)) for name, n in sorted(found.made.items(), key=lambda r: -r[1])]
    print_table(terminal, "Rules", ("name", "matches", "e-nodes made"), fired)
    if forms:
        columns = ("form", *(f"{name} us" for name in forms[0].microseconds))
        cells = [(f.text, *(f"{us:.3f}" for us in f.microseconds.values())) for f in forms]
        print_table(terminal, "Forms of the result, cheapest first", columns, cells)


def _pairs(lets: list[str] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in lets or ():
        name, sign, text = pair.partition("=")
        if not sign or not name.isidentifier():
            raise InputError(f"--let {pair}: expected NAME=TYPE, as in --let X=f32[348,768]")
        found[name] = text
    return found
