"""`eqsat prove`: are two ONNX files the same program?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eqsat.cli.options import JsonFile, Shape, TimeLimit, parse_shapes

REFUTED, UNKNOWN = 1, 2


def prove(
    left: Annotated[Path, typer.Argument(metavar="A.onnx", help="The first program.", show_default=False)],
    right: Annotated[Path, typer.Argument(metavar="B.onnx", help="The second program.", show_default=False)],
    time_limit: TimeLimit = 10.0,
    shape: Shape = None,
    inputs: Annotated[
        Path | None,
        typer.Option("--counterexample", metavar="X.npz", help="Where refuted: write the inputs that show it."),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Decide whether two programs compute the same: proved with steps, refuted with an input, or unknown.

    Equal means over the real numbers, wherever both are defined. Inputs and outputs are matched by name, else by
    position. Exit code 0: proved, 1: refuted, 2: unknown.

    Examples:

    - `eqsat prove model.onnx faster.onnx`
    - `eqsat prove a.onnx b.onnx --time-limit 5 --json - --counterexample x.npz`
    """
    import eqsat
    from eqsat.cli.arrays import write_arrays
    from eqsat.cli.output import progress, write_json

    sizes = parse_shapes(shape)
    programs = [eqsat.from_onnx(path, shapes=sizes) for path in (left, right)]
    with progress("proving"):
        proof = eqsat.prove(*programs, time_limit=time_limit)
    if inputs is not None and proof.difference is not None:
        write_arrays(inputs, proof.difference.inputs)
    if json_file is not None:
        write_json(proof.as_json(), json_file)
    if json_file != "-":
        typer.echo(str(proof))
    if proof.verdict != "proved":
        raise typer.Exit(REFUTED if proof.verdict == "refuted" else UNKNOWN)
