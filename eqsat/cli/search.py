"""Loading and optimising a program, for the commands that begin with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from eqsat.cli.options import parse_shapes

if TYPE_CHECKING:
    from eqsat.ir import Program
    from eqsat.optimize import Result
    from eqsat.rule import AnyRule, Policy


def load(model: Path, shape: Sequence[str] | None) -> Program:
    """The program in an ONNX file, with the dynamic dimensions that `--shape` fixes."""
    import eqsat

    return eqsat.from_onnx(model, shapes=parse_shapes(shape))


def optimise(
    program: Program, device: str, time_limit: float, numerics: Policy, rules: Sequence[AnyRule] | None
) -> Result:
    """`eqsat.optimize` behind a progress bar; with `rules=[]` the program as written, cut into a device's kernels."""
    import eqsat
    from eqsat.cli.output import progress

    with progress("optimising") as report:
        return eqsat.optimize(
            program, device=device, time_limit=time_limit, numerics=numerics, rules=rules, progress=report
        )
