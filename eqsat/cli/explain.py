"""`eqsat explain`: the steps from a program to its optimised form, and why a rule did not fire."""

from __future__ import annotations

from typing import Annotated

import typer

from eqsat.cli.options import Device, JsonFile, ModelFile, Numerics, Shape, TimeLimit, parse_shapes
from eqsat.errors import InputError


def explain(
    model: ModelFile,
    why_not: Annotated[
        str | None, typer.Option("--why-not", metavar="RULE", help="Say what kept this rule from firing.")
    ] = None,
    device: Device = "mi300x",
    time_limit: TimeLimit = 10.0,
    numerics: Numerics = "reassociate",
    shape: Shape = None,
    json_file: JsonFile = None,
) -> None:
    """Show how the optimised program follows from the one that was written: rule by rule, each step evaluated.

    With `--why-not RULE`: where the rule's left side matches, and which guard did not hold there.

    Examples: `eqsat explain model.onnx`, `eqsat explain model.onnx --why-not matmul-associate-right`
    """
    import eqsat
    from eqsat.cli.output import progress, write_json

    program = eqsat.from_onnx(model, shapes=parse_shapes(shape))
    if why_not is not None:
        _why_not(program, why_not, time_limit, json_file)
        return
    with progress("optimising") as report:
        best = eqsat.optimize(program, device=device, time_limit=time_limit, numerics=numerics, progress=report)
    if json_file is not None:
        write_json({"schema": 1, "steps": best.report["steps"]}, json_file)
    if json_file != "-":
        typer.echo(best.explain())


def _why_not(program: object, name: str, seconds: float, json_file: str | None) -> None:
    from eqsat.cli.output import write_json
    from eqsat.cli.rules import find
    from eqsat.core import lower
    from eqsat.explore import why_not
    from eqsat.ir import Program
    from eqsat.rule import Rule
    from eqsat.rules import ALL
    from eqsat.saturate import Limits, saturate
    from eqsat.snapshot import Snapshot

    assert isinstance(program, Program)
    row = find(name)
    if not isinstance(row, Rule):
        raise InputError(
            f"--why-not {name}: this rule is run by the host, whose matches are not patterns; see `rules show`"
        )
    snapshot = saturate(Snapshot.from_core(lower(program).roots), ALL, Limits(seconds=seconds))
    held, missed = why_not(snapshot, row)
    if json_file is not None:
        places = [{"guard": m.guard, "term": m.term, "with": m.bindings} for m in missed]
        write_json({"schema": 1, "rule": name, "held": held, "missed": places}, json_file)
    if json_file == "-":
        return
    typer.echo(f"{name} holds at {held} place{'s' if held != 1 else ''} of the e-graph.")
    if not held and not missed:
        typer.echo(f"Its left side matches nowhere: {row.text.partition(' => ')[0]}")
    for place in missed:
        typer.echo(f"  not where {place.guard} fails: {place.term}")
        if place.bindings:
            typer.echo(f"    with {', '.join(f'{k}={v}' for k, v in place.bindings.items())}")
