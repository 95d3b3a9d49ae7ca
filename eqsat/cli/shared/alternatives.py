"""Several plans for one program: how `eqsat optimize` names, writes and prints the plans after the first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat.base.files import replaces
from eqsat.cli.shared.output import engineering, print_table
from eqsat.cli.shared.report import microseconds
from eqsat.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from eqsat.base.time_budget import TimeBudget
    from eqsat.frontends.onnx.file.copy import EarlyCopy
    from eqsat.pipeline.result import Result


@contextmanager
def copying_early(model: Path, output: Path | None, budget: TimeBudget) -> Iterator[EarlyCopy | None]:
    """A copy of the model that is made beside the search, if so little time is left that the result will likely be the
    model itself."""
    if output is None or budget.left("saturate") > 0 or not replaces(output):
        yield None
        return
    from eqsat.frontends.onnx.file.copy import copied_early

    with copied_early(model, output) as copy:
        yield copy


def write_program(best: Result, model: Path, output: Path, copy: EarlyCopy | None = None) -> None:
    """Write a result; if it is the source itself, as the model that this was read from, node for node.

    Args:
        copy: a copy of the model that was begun earlier, if any.
    """
    import eqsat

    if best.program is not best.source:
        eqsat.to_onnx(best.program, output)
        return
    if copy is not None:
        copy.keep()
        return
    from eqsat.frontends.onnx.file.copy import copy_model

    copy_model(model, output)


def write_alternatives(best: Result, output: Path) -> None:
    """Write the alternatives of a result beside it."""
    import eqsat

    paths = alternative_paths(output, 1 + len(best.alternatives)).values()
    for other, path in zip(best.alternatives, paths, strict=True):
        eqsat.to_onnx(other.program, path)


def alternative_paths(output: Path | None, count: int) -> dict[str, Path]:
    """The files for the second to the last of `count` plans, by their names in messages: OUT.2.onnx and so on.

    Raises:
        InputError: no file can be named after the output.
    """
    if output is None or count == 1:
        return {}
    return {f"plan {rank}": _beside("--output", output, str(rank)) for rank in range(2, count + 1)}


def bucket_path(option: str, output: Path | None, ranges: Mapping[str, tuple[int, int]]) -> Path | None:
    """The file for these ranges of dims: OUT.seq1-22.onnx for OUT.onnx, which the option gave.

    Raises:
        InputError: no file can be named after the output.
    """
    if output is None:
        return None
    names = ("".join(c if c.isalnum() else "_" for c in name) for name in ranges)
    limits = ".".join(f"{name}{low}-{high}" for name, (low, high) in zip(names, ranges.values(), strict=True))
    return _beside(option, output, limits)


def _beside(option: str, output: Path, word: str) -> Path:
    """The file OUT.WORD.onnx beside OUT.onnx.

    Raises:
        InputError: the output is a folder, a pipe or a device.
    """
    if not replaces(output):
        raise InputError(f"{option} {output}: several files are named after it; give a file")
    return output.with_suffix(f".{word}{output.suffix}")


def print_alternatives(report: dict[str, Any], terminal: Console) -> None:
    """Print a table of a result and its alternatives, with the kernels that differ."""
    result = report["result"]
    rows = [("1", microseconds(result["predicted_us"]), "", engineering(result["peak_bytes"], "B"), "", "", "")]
    for row in report["alternatives"]:
        rows.append(
            (
                str(row["rank"]),
                microseconds(row["predicted_us"]),
                f"{row['more_us']:+.3g} us",
                engineering(row["peak_bytes"], "B"),
                "yes" if row["proven"] else "no",
                _listed(row["without"]),
                _listed(row["instead"]),
            )
        )
    columns = ("plan", "predicted", "more", "peak memory", "proven next", "without", "instead")
    print_table(terminal, "Plans, the best first", columns, rows, words=2)
    if len(rows) == 1:
        terminal.print("No other plan was found.")


def _listed(names: list[str]) -> str:
    return ", ".join(f"{n} x {name}" if n > 1 else name for name, n in Counter(names).items())


def objective_line(report: dict[str, Any]) -> str:
    """One line on an objective that includes memory: the peak before and after, and the bound."""
    goal, before, after = report["objective"], report["source"]["peak_bytes"], report["result"]["peak_bytes"]
    return (
        f"Peak memory of temporaries {engineering(after, 'B')}, as written {engineering(before, 'B')}, "
        f"at least {engineering(goal['least_peak_bytes'], 'B')} with the kernels found; "
        f"weights: time {goal['latency']:g}, "
        f"memory {goal['memory']:g}; worth {goal['value']:.4g} of what was written, gap {goal['gap']:.1%}."
    )
