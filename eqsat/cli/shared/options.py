"""Options and arguments that several commands share, and the parsing of their values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from eqsat.errors import InputError

ModelFile = Annotated[Path, typer.Argument(metavar="IN.onnx", help="The program: an ONNX file.", show_default=False)]
JsonFile = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Write the result as JSON; `-` is stdout (and nothing else)."),
]
Device = Annotated[
    str,
    typer.Option(
        "--device",
        "-d",
        help="Optimise for this: one of `eqsat devices`, `auto` (this GPU), or a calibrated FILE.json.",
    ),
]
TimeLimit = Annotated[
    float, typer.Option("--time-limit", "-t", min=0.0, metavar="SECONDS", help="Return the best found by then.")
]
Numerics = Annotated[
    Literal["exact", "reassociate", "fast"],
    typer.Option(
        "--numerics",
        help="What rewrites may change: nothing (exact), rounding (reassociate), rounding and NaN/Inf (fast).",
    ),
]
Tune = Annotated[
    float | None,
    typer.Option(
        "--tune", min=0.0, metavar="SECONDS", help="Measure variants of the kernels on this machine's GPU; remembered."
    ),
]
MemoryLimit = Annotated[
    float | None,
    typer.Option("--memory-limit", min=0.001, metavar="GB", help="Memory to take; three quarters of the machine's."),
]
RulesFile = Annotated[
    Path | None,
    typer.Option("--rules", metavar="FILE.py", help="Use the rules of this file too; they are checked before."),
]
Shape = Annotated[
    list[str] | None, typer.Option("--shape", metavar="NAME=SIZE", help="Fix a dynamic dimension; may be repeated.")
]


def parse_shapes(pairs: Sequence[str] | None) -> dict[str, int]:
    """Read `["batch=16", "seq=128"]` as `{"batch": 16, "seq": 128}`.

    Raises:
        InputError: a pair that is not NAME=SIZE with SIZE >= 0, or a name given twice.
    """
    sizes: dict[str, int] = {}
    for pair in pairs or ():
        name, _, size = pair.rpartition("=")
        if not name or not size.isdecimal():
            raise InputError(f"--shape {pair}: expected NAME=SIZE with a whole number, as in --shape batch=16")
        if name in sizes:
            raise InputError(f"--shape {pair}: {name} was already given as {sizes[name]}")
        sizes[name] = int(size)
    return sizes
