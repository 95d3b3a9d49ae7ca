"""`eqsat prove`: whether two programs compute the same."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eqsat.cli.shared.options import JsonFile, Shape, TimeLimit, parse_shapes

EXIT_CODES = {"proved": 0, "refuted": 1, "unknown": 2}


def prove(
    first: Annotated[Path, typer.Argument(metavar="A.onnx", help="A program.", show_default=False)],
    second: Annotated[Path, typer.Argument(metavar="B.onnx", help="Another one.", show_default=False)],
    time_limit: TimeLimit = 10.0,
    shape: Shape = None,
    assume: Annotated[
        list[str] | None,
        typer.Option(
            "--assume", metavar="TEXT", help="Bounds on an input, such as '0 <= i < 16' or 'x > 0'; may be repeated."
        ),
    ] = None,
    counterexample: Annotated[
        Path | None,
        typer.Option("--counterexample", metavar="X.npz", help="Where to write inputs on which the programs differ."),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Decide whether two programs are equal: proved (exit code 0), refuted by an input (1), or unknown (2).

    Equal means over the real numbers and over integers that do not overflow, wherever both programs are defined;
    sampling alone never proves anything. Inputs and outputs are matched by name, or else by position.

    Examples:

    - `eqsat prove model.onnx faster.onnx`
    - `eqsat prove a.onnx b.onnx --assume "0 <= indices < 16"`
    - `eqsat prove a.onnx b.onnx --time-limit 60 --counterexample x.npz`
    """
    import eqsat
    from eqsat.cli.shared.arrays import write_arrays
    from eqsat.cli.shared.output import check_files, progress, write_json
    from eqsat.cli.shared.search import load
    from eqsat.proof.prove import prepare

    check_files({"A": first, "B": second}, {"--counterexample": counterexample, "--json": json_file})
    prepare()
    programs = [load(path, shape) for path in (first, second)]
    with progress("proving"):
        proof = eqsat.prove(*programs, time_limit=time_limit, assume=assume, sizes=parse_shapes(shape))
    if counterexample is not None and proof.difference is not None:
        write_arrays(counterexample, proof.difference.inputs)
    if json_file is not None:
        write_json(proof.as_json(), json_file)
    if json_file != "-":
        typer.echo(str(proof))
    raise typer.Exit(EXIT_CODES[proof.verdict])
