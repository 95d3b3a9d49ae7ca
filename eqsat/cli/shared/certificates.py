"""Certificates, written to the file that was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from eqsat.base.files import write_text

if TYPE_CHECKING:
    from eqsat.program.ir import Program
    from eqsat.proof.answer import Proof


def certify(source: Program, output: Path, target: Path, time_limit: float) -> bool:
    """Prove the program in the file `output` equal to its source and write the certificate, as `write_certificate`."""
    import eqsat
    from eqsat.base.progress_bar import progress_bar

    with progress_bar("proving") as report:
        proof = eqsat.prove(source, eqsat.from_onnx(output), time_limit=time_limit, progress=report, certify=True)
    return write_certificate(proof, target)


def write_certificate(proof: Proof, target: Path) -> bool:
    """Write the certificate of a proof; if it has none, say why on stderr. Returns whether it was written."""
    if proof.certificate is not None:
        write_text(target, proof.certificate)
        return True
    reason = proof.uncertified if proof.verdict == "proved" else f"{proof.verdict}: {proof.reason}"
    typer.echo(f"eqsat: no certificate was written: {reason}", err=True)
    return False
