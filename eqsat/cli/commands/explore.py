"""`eqsat explore`: one expression, its e-graph and its forms."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eqsat.cli.shared.options import JsonFile, RulesFile, TimeLimit, output_file
from eqsat.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from eqsat.egraph.saturate import Progress
    from eqsat.inspection.explore import Exploration, Form

MOST_FORMS = 100_000
DEVICES = ("mi300x", "h100", "cpu")
_BAR = 24
_SHOWN_RULES = 3
_LEVELS = "▁▂▃▄▅▆▇█"


def explore(
    expression: Annotated[str, typer.Argument(metavar="EXPR", help="As in `relu(X @ A) @ C`.", show_default=False)],
    let: Annotated[
        list[str] | None,
        typer.Option("--let", metavar="NAME=TYPE", help="`X=f32[348,768]`, or `A=const:f32[768,64]`; may be repeated."),
    ] = None,
    device: Annotated[
        list[str] | None, typer.Option("--device", "-d", help="Price forms on this device; may be repeated.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="RULES", help="Use only these rules: names, with commas.")
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option("--without", metavar="RULES", help="Leave these rules out.")
    ] = None,
    rules_file: RulesFile = None,
    exploring: Annotated[
        bool, typer.Option("--exploring", help="Use the unguarded rules too, which only proofs use otherwise.")
    ] = False,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="At most so many iterations.")] = None,
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="Stop when the e-graph has more e-nodes.")] = 5000,
    time_limit: TimeLimit = 10.0,
    count: Annotated[
        int,
        typer.Option(
            "--count", "--forms", min=0, max=MOST_FORMS, help="Show at most so many distinct forms of the result."
        ),
    ] = 10,
    dot: Annotated[
        Path | None, typer.Option("--dot", metavar="FILE", parser=output_file, help="Write the e-graph for Graphviz.")
    ] = None,
    egraph: Annotated[
        str | None, typer.Option("--egraph", metavar="FILE", help="Write the e-graph as serialized e-graph JSON.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Saturate an expression and show how its e-graph grew, which rules fired where, and its forms with their cost.

    In a terminal the growth is shown while it happens. Ctrl-C ends it with what there is.

    Examples:

    - `eqsat explore "(X @ A) @ C" --let X=f32[348,768] --let A=const:f32[768,64] --let C=const:f32[64,768]`
    - `eqsat explore "(a + b) * c" --let a=f32[4] --let b=f32[4] --let c=f32[4] --exploring --steps 3 --dot g.dot`
    - `eqsat explore "(a @ b) @ c" --let a=f32[9,9] --let b=f32[9,9] --let c=f32[9,1] --only matmul-associate-right`
    """
    from eqsat.base.files import check_outputs, write_text
    from eqsat.base.interrupt import Interruptible
    from eqsat.cli.commands.rules import select
    from eqsat.cli.shared.output import device_file, keep_stdout, write_json
    from eqsat.egraph import files as egraph_files
    from eqsat.egraph.saturate import Limits
    from eqsat.extract.device.table import device as find_device
    from eqsat.inspection import explore as exploring_
    from eqsat.rules import ALL
    from eqsat.tracing.expression import parse

    keep_stdout({"--dot": dot})
    check_outputs(
        {"--rules": rules_file, **device_file(*(device or ()))}, {"--dot": dot, "--egraph": egraph, "--json": json_file}
    )
    names = list(dict.fromkeys(find_device(name).name for name in device or DEVICES))
    if expression.endswith(".onnx") and os.path.isfile(expression):
        raise InputError(f"{expression}: is a file; give an expression, as in relu(X @ A), or use `eqsat explain`")
    program = parse(expression, _pairs(let))
    chosen = select(_names(only), _names(without), rules_file, time_limit, exploring)
    rules = ALL if chosen is None else chosen
    quiet = "-" in (json_file, egraph)
    with _live(expression, quiet) as show:
        found = exploring_.explore(program, rules, Limits(time_limit, nodes, iterations=steps), show)
    run = Interruptible()
    forms: list[Form] = []
    if count and found.stop != "interrupted":
        forms = run.run(lambda: exploring_.forms(found, names, count, time_limit), [], grace=0.0)
    if dot is not None:
        write_text(dot, egraph_files.to_dot(found.snapshot))
    if egraph is not None:
        write_json(egraph_files.to_json(found.snapshot), egraph)
    if json_file is not None:
        write_json(_as_json(found, forms), json_file)
    if not quiet:
        _print(expression, found, forms, names)


def _names(given: Sequence[str] | None) -> list[str]:
    return [name.strip() for names in given or () for name in names.split(",") if name.strip()]


def _pairs(lets: list[str] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in lets or ():
        name, sign, text = pair.partition("=")
        if not sign or not name.isidentifier():
            raise InputError(f"--let {pair}: expected NAME=TYPE, as in --let X=f32[348,768]")
        if name in found:
            raise InputError(f"--let {pair}: {name} is {found[name]} already; give each name once")
        found[name] = text
    return found


def _as_json(found: Exploration, forms: Sequence[Form]) -> dict[str, Any]:
    return {
        "schema": 1,
        "stop": found.stop,
        "growth": list(map(asdict, found.growth)),
        "made": found.made,
        "fired": list(map(asdict, found.fired())),
        "forms": [{"form": f.text, "predicted_us": f.microseconds} for f in forms],
    }


# --- while it happens


@contextmanager
def _live(expression: str, quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    """Shows the growth while it happens, if there is a terminal."""
    from eqsat.cli.shared.output import console

    terminal = console(stderr=True)
    if quiet or not terminal.is_terminal:
        yield None
        return
    from rich.live import Live

    seen: list[Progress] = []
    with Live(console=terminal, transient=True, refresh_per_second=8) as live:

        def show(progress: Progress) -> None:
            seen.append(progress)
            live.update(_growing(expression, seen, terminal.height - 6))

        yield show


def _growing(expression: str, seen: Sequence[Progress], rows: int) -> RenderableType:
    """The growth so far: a plot of e-nodes, and a row for each of the last iterations."""
    from rich.table import Table

    most = max(p.nodes for p in seen)
    grid = Table(title=f"{expression}  {_spark([p.nodes for p in seen])}  {seen[-1].seconds:.1f} s, Ctrl-C ends it")
    for name in ("iteration", "e-classes", "e-nodes", "", "matches by rule"):
        grid.add_column(name, justify="left" if name in ("", "matches by rule") else "right")
    before: dict[str, int] = {}
    for progress in seen:
        new = {rule: n - before.get(rule, 0) for rule, n in progress.matches.items()}
        before = progress.matches
        if progress in seen[-max(rows, 1) :]:
            cells = (str(progress.iteration), str(progress.classes), str(progress.nodes))
            grid.add_row(*cells, "█" * max(1, round(_BAR * progress.nodes / most)), _most_matched(new))
    return grid


def _spark(values: Sequence[int]) -> str:
    """A line of bars, one for each value."""
    most = max(values)
    return "".join(_LEVELS[(len(_LEVELS) - 1) * v // most] for v in values)


def _most_matched(matches: dict[str, int]) -> str:
    """The rules that matched most, with how often."""
    ordered = sorted(((n, rule) for rule, n in matches.items() if n > 0), key=lambda r: (-r[0], r[1]))
    shown = [f"{rule} {n}" for n, rule in ordered[:_SHOWN_RULES]]
    rest = len(ordered) - len(shown)
    return ", ".join([*shown, *([f"{rest} more rules"] if rest else [])])


# --- when it is over


def _print(expression: str, found: Exploration, forms: Sequence[Form], devices: Sequence[str]) -> None:
    from eqsat.cli.shared.output import console, print_table

    terminal = console()
    most = max(g.nodes for g in found.growth)
    rows = [
        (
            str(g.iteration),
            "#" * max(1, round(_BAR * g.nodes / most)),
            _most_matched(g.matches),
            str(g.classes),
            str(g.nodes),
        )
        for g in found.growth
    ]
    title = f"{expression}: growth (stopped: {found.stop})"
    print_table(terminal, title, ("iteration", "", "matches by rule", "e-classes", "e-nodes"), rows, words=3)
    fired = [(f.rule, f.form, ", ".join(f.where), str(f.matches), str(f.made)) for f in found.fired()]
    if fired:
        columns = ("rule", "first form made", "where", "matches", "e-nodes made")
        print_table(terminal, "Rules that fired", columns, fired, words=3)
    else:
        terminal.print("No rule fired.")
    if forms:
        cells = [(f.text, *(f"{f.microseconds[name]:.3f}" for name in devices)) for f in forms]
        title = f"Forms of the result, the cheapest on {devices[0]} first"
        print_table(terminal, title, ("form", *(f"{name} us" for name in devices)), cells)
