"""Options and arguments that several commands share, and the parsing of their values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import typer

from eqsat.errors import InputError

T = TypeVar("T")

MOST_GIGABYTES = 1e9
"""The largest memory limit: what systems count bytes in holds nine times as much."""

MOST_THREADS = 1024

_DIGITS = 18
"""Most digits of a size."""


def _json_target(given: str | None) -> str | None:
    """The file of `--json`, once it is known to have a place: else long work would end without its answer."""
    from eqsat.base.files import check_outputs

    check_outputs({}, {"--json": given})
    return given


def output_file(given: str | Path) -> Path:
    """The file that an option names, unless the name ends like that of a folder: a `Path` would not tell."""
    from eqsat.base.files import file_path

    return file_path(given)


ModelFile = Annotated[Path, typer.Argument(metavar="IN.onnx", help="The program: an ONNX file.", show_default=False)]
JsonFile = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="FILE",
        callback=_json_target,
        help="Write the result as JSON; `-` is stdout (and nothing else).",
    ),
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
    typer.Option(
        "--memory-limit",
        min=0.001,
        max=MOST_GIGABYTES,
        metavar="GB",
        help="Memory to take; three quarters of the machine's.",
    ),
]
RulesFile = Annotated[
    Path | None,
    typer.Option("--rules", metavar="FILE.py", help="Use the rules of this file too; they are checked before."),
]
Shape = Annotated[
    list[str] | None, typer.Option("--shape", metavar="NAME=SIZE", help="Fix a dynamic dimension; may be repeated.")
]
ShapeOrRange = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=SIZE",
        help="Fix a dynamic dimension, or give its range: NAME=LEAST..LARGEST (1..64). May be repeated.",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        max=MOST_THREADS,
        metavar="N",
        help="Processes on this machine; one for each processor by default.",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option("--on", metavar="ADDRESS", help="A Dask scheduler (tcp://HOST:8786) whose workers do it instead."),
]
Certificate = Annotated[
    Path | None,
    typer.Option(
        "--certificate",
        metavar="C.proof",
        parser=output_file,
        help="Where to write a proof that `eqsat verify` checks.",
    ),
]
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", parser=output_file, help="Write a page: before and after, costs, steps."),
]
Optimized = Annotated[
    bool, typer.Option("--optimize/--as-written", help="The program found by the optimiser, or as it stands.")
]


def output_folder(given: str | Path) -> Path:
    """The folder that an option names. An empty path is rather a variable without a value than the current folder."""
    if not str(given):
        raise typer.BadParameter("the path is empty; `.` is the current folder")
    return Path(given)


def parse_shapes(pairs: Sequence[str] | None) -> dict[str, int]:
    """Read `["batch=16", "seq=128"]` as `{"batch": 16, "seq": 128}`.

    Raises:
        InputError: a pair that is not NAME=SIZE with SIZE >= 0, or a name given twice.
    """

    def size(text: str) -> int | None:
        given = _size_or_range(text)
        return given if isinstance(given, int) else None

    return _parsed(pairs, "NAME=SIZE with a whole number, as in --shape batch=16", size)


def parse_ranges(pairs: Sequence[str] | None) -> dict[str, int | tuple[int, int]]:
    """Read `["batch=16", "seq=1..128"]` as `{"batch": 16, "seq": (1, 128)}`.

    Raises:
        InputError: a pair that is not NAME=SIZE or NAME=LEAST..LARGEST, or a name given twice.
    """
    wanted = "NAME=SIZE or NAME=LEAST..LARGEST with whole numbers, as in --shape seq=1..128"
    return _parsed(pairs, wanted, _size_or_range)


def _size_or_range(text: str) -> int | tuple[int, int] | None:
    """A size, which may be written as a range from it to itself, or a range; None for anything else."""
    low, dots, high = text.partition("..")
    ends = whole_number(low), whole_number(high if dots else low)
    if ends[0] is None or ends[1] is None:
        return None
    return ends[0] if ends[0] == ends[1] else (ends[0], ends[1])


def whole_number(text: str) -> int | None:
    """The number that digits write; None for anything else, and for more digits than a size has."""
    return int(text) if text.isdecimal() and len(text) <= _DIGITS else None


def _parsed(pairs: Sequence[str] | None, wanted: str, read: Callable[[str], T | None]) -> dict[str, T]:
    found: dict[str, T] = {}
    for pair in pairs or ():
        name, _, text = pair.rpartition("=")
        value = read(text)
        if not name or value is None:
            raise InputError(f"--shape {pair}: expected {wanted}")
        if name in found:
            raise InputError(f"--shape {pair}: {name} was already given as {found[name]}")
        found[name] = value
    return found
