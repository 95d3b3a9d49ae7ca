"""`eqsat prove` and `eqsat verify`: whether two programs compute the same."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from eqsat.cli.shared.options import Certificate, JsonFile, Shape, TimeLimit, output_file, parse_shapes
from eqsat.errors import InputError

EXIT_CODES = {"proved": 0, "refuted": 1, "unknown": 2}

_MOST_CERTIFICATE = 1 << 30
"""Bytes of a certificate that is read."""


First = Annotated[Path, typer.Argument(metavar="A.onnx", help="A program.", show_default=False)]
Second = Annotated[Path, typer.Argument(metavar="B.onnx", help="Another one.", show_default=False)]


def prove(
    first: First,
    second: Second,
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
        typer.Option(
            "--counterexample",
            metavar="X.npz",
            parser=output_file,
            help="Where to write inputs on which the programs differ.",
        ),
    ] = None,
    certificate: Certificate = None,
    json_file: JsonFile = None,
) -> None:
    """Decide whether two programs are equal: proved (exit code 0), refuted by an input (1), or unknown (2).

    Equal means over the real numbers and over integers that do not overflow, wherever both programs are defined;
    sampling alone never proves anything. Inputs and outputs are matched by name, or else by position.
    A certificate needs equal names, and is for all inputs. Where programs are proved equal without one, the exit code
    is 2.

    Examples:

    - `eqsat prove model.onnx faster.onnx`
    - `eqsat prove a.onnx b.onnx --assume "0 <= indices < 16"`
    - `eqsat prove a.onnx b.onnx --time-limit 60 --counterexample x.npz`
    - `eqsat prove model.onnx faster.onnx --certificate faster.proof`
    """
    from eqsat.egraph.pool import start

    start()  # a second of loading, beside the imports here
    import eqsat
    from eqsat.base.progress_bar import progress_bar
    from eqsat.cli.shared.arrays import write_arrays
    from eqsat.cli.shared.certificates import write_certificate
    from eqsat.cli.shared.output import answer, check_files, keep_stdout
    from eqsat.cli.shared.search import load_pair
    from eqsat.proof.prove import prepare

    written = {"--counterexample": counterexample, "--certificate": certificate, "--json": json_file}
    keep_stdout({"--counterexample": counterexample, "--certificate": certificate})
    check_files({"A": first, "B": second}, written)
    if certificate is not None and assume:
        raise InputError("--certificate: certificates are for all inputs; leave out --assume")
    prepare()
    programs = load_pair(first, second, shape)
    with progress_bar("proving") as report:
        given = {"time_limit": time_limit, "assume": assume, "sizes": parse_shapes(shape)}
        proof = eqsat.prove(*programs, **given, progress=report, certify=certificate is not None)
    if counterexample is not None and proof.difference is not None:
        write_arrays(counterexample, proof.difference.inputs)
    if answer(proof.as_json(), json_file):
        typer.echo(str(proof))
    certified = certificate is None or write_certificate(proof, certificate)
    raise typer.Exit(EXIT_CODES[proof.verdict if certified or proof.verdict != "proved" else "unknown"])


def verify(
    first: First,
    second: Second,
    certificate: Annotated[
        Path, typer.Argument(metavar="C.proof", help="What `--certificate` wrote for them.", show_default=False)
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
    from eqsat.cli.shared.output import answer, check_files
    from eqsat.cli.shared.search import load_pair
    from eqsat.rules import CHECKABLE
    from eqsat.verify.checker import verify as verified

    check_files({"A": first, "B": second}, {"--json": json_file}, {"the certificate": certificate})
    text = read_bytes(certificate, _MOST_CERTIFICATE, "the certificate").decode("utf-8", errors="replace")
    found = verified(*load_pair(first, second, shape), text, CHECKABLE)
    if answer({"schema": 1, "verdict": "verified"} | asdict(found), json_file):
        typer.echo(
            f"verified: {found.lemmas} lemmas, used {found.uses} times; {found.rules} steps by rules; {found.values} "
            f"pairs of constants computed, at most {found.largest_rounding:.2g} units in the last place apart at their "
            "scale"
        )
