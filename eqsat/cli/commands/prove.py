"""`eqsat prove`, `certify` and `verify`: whether two programs compute the same."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from eqsat.cli.shared.options import JsonFile, Shape, TimeLimit, parse_shapes

EXIT_CODES = {"proved": 0, "refuted": 1, "unknown": 2}

_MOST_CERTIFICATE = 1 << 30
"""Bytes of a certificate that is read."""


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
    with progress("proving") as report:
        proof = eqsat.prove(*programs, time_limit=time_limit, assume=assume, sizes=parse_shapes(shape), progress=report)
    if counterexample is not None and proof.difference is not None:
        write_arrays(counterexample, proof.difference.inputs)
    if json_file is not None:
        write_json(proof.as_json(), json_file)
    if json_file != "-":
        typer.echo(str(proof))
    raise typer.Exit(EXIT_CODES[proof.verdict])


def certify(
    first: Annotated[Path, typer.Argument(metavar="A.onnx", help="A program.", show_default=False)],
    second: Annotated[Path, typer.Argument(metavar="B.onnx", help="Another one.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT.proof", help="Where to write it.")],
    time_limit: TimeLimit = 10.0,
    shape: Shape = None,
) -> None:
    """Write a certificate that two programs are equal, which `eqsat verify` checks without any search.

    Equal means over the real numbers, as for `eqsat prove`; inputs and outputs are matched by name. Exit code 1: no
    certificate was found in time, which says nothing about the programs.

    Example:

    - `eqsat certify model.onnx faster.onnx -o faster.proof`
    """
    from eqsat.base.files import write_text
    from eqsat.cli.shared.output import check_files, progress
    from eqsat.cli.shared.search import load
    from eqsat.proof.certify import certify as certified

    check_files({"A": first, "B": second}, {"--output": output})
    programs = [load(path, shape) for path in (first, second)]
    with progress("proving"):
        text = certified(*programs, time_limit=time_limit)
    write_text(output, text)


def verify(
    first: Annotated[Path, typer.Argument(metavar="A.onnx", help="A program.", show_default=False)],
    second: Annotated[Path, typer.Argument(metavar="B.onnx", help="Another one.", show_default=False)],
    certificate: Annotated[
        Path, typer.Argument(metavar="C.proof", help="What `eqsat certify` wrote for them.", show_default=False)
    ],
    shape: Shape = None,
    json_file: JsonFile = None,
) -> None:
    """Check a certificate that two programs are equal: it verifies (exit code 0), or a line does not hold (1).

    Nothing is searched for: `docs/trust.md` says what is trusted when a certificate verifies.

    Example:

    - `eqsat verify model.onnx faster.onnx faster.proof`
    """
    from eqsat.base.files import read_bytes
    from eqsat.cli.shared.output import check_files, write_json
    from eqsat.cli.shared.search import load
    from eqsat.proof.certify import CHECKABLE
    from eqsat.verify.checker import verify as verified

    check_files({"A": first, "B": second, "the certificate": certificate}, {"--json": json_file})
    text = read_bytes(certificate, _MOST_CERTIFICATE, "the certificate").decode("utf-8", errors="replace")
    found = verified(load(first, shape), load(second, shape), text, CHECKABLE)
    if json_file is not None:
        write_json({"schema": 1, "verdict": "verified"} | asdict(found), json_file)
    if json_file != "-":
        typer.echo(
            f"verified: {found.terms} terms, {found.rules} uses of rules, {found.values} equalities of values "
            f"(up to {found.largest_rounding:.1e} of the scale), {found.elements} of elements"
        )
