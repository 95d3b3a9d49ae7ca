"""`eqsat calibrate --report`: the prices of models' operators against their times in a runtime."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from eqsat.errors import InputError

if TYPE_CHECKING:
    from eqsat.extract.device.table import Device
    from eqsat.frontends.execution import OnnxRuntime


class Operator(NamedTuple):
    """An operator of a model: its ONNX name, its time and its price, in microseconds."""

    kind: str
    measured_us: float
    predicted_us: float


def compare_prices(models: Path, device: str, shape: Sequence[str] | None, json_file: str | None) -> None:
    """Print the operators of a model, or of every model in a folder, by kind, and the rank correlation.

    Raises:
        InputError: no model there, or the device's row names no runtime, or this is not installed.
    """
    from eqsat.cli.shared.output import answer, console, print_table
    from eqsat.cli.shared.report import microseconds

    found = _report(models, device, shape)
    if not answer(found, json_file):
        return
    rows = [
        (row["kind"], str(row["operators"]), microseconds(row["measured_us"]), microseconds(row["predicted_us"]))
        + (f"{row['factor']:.2f}",)
        for row in found["kinds"]
    ]
    columns = ("operator", "of other sizes", "measured", "predicted", "median factor")
    print_table(console(), f"{device}, {found['machine']}", columns, rows)
    for name, why in found["left_out"].items():
        typer.echo(f"Left out: {name}: {why}.")
    correlation = found["rank_correlation"]
    typer.echo(
        f"Rank correlation of predicted and measured times: {'none' if correlation is None else f'{correlation:.3f}'} "
        f"over {found['operators']} operators of {found['models']} models."
    )


def models_at(place: Path | None) -> list[Path]:
    """The models that a path means: all of a folder, or the file itself."""
    if place is None:
        return []
    return sorted(place.glob("*.onnx")) if place.is_dir() else [place]


def _report(models: Path, device: str, shape: Sequence[str] | None) -> dict[str, Any]:
    from eqsat.base.progress_bar import progress_bar
    from eqsat.errors import EqsatError
    from eqsat.extract.device.table import device as row_of
    from eqsat.extract.plan.calibrate import spearman
    from eqsat.frontends.execution import OnnxRuntime, installed
    from eqsat.frontends.nodes import LEAST_ELEMENTS

    row = row_of(device)
    runtime = installed(row.runtime) if row.runtime else None
    if not isinstance(runtime, OnnxRuntime):
        raise InputError(f"--report: no runtime here executes operators for {row.name}; use --device cpu")
    files = models_at(models)
    found: list[Operator] = []
    left_out: dict[str, str] = {}
    with progress_bar("profiling") as report:
        for i, file in enumerate(files):
            report(file.name, i / len(files))
            try:
                found += _operators(file, shape, row, runtime)
            except EqsatError as error:
                left_out[file.name] = str(error)
    if not found:
        larger = f"give ONNX models with arrays of at least {LEAST_ELEMENTS} elements"
        raise InputError(f"{models}: no operators to compare; {next(iter(left_out.values()), larger)}")
    kinds: dict[str, list[Operator]] = {}
    for operator in found:
        kinds.setdefault(operator.kind, []).append(operator)
    correlation = spearman([x.predicted_us for x in found], [x.measured_us for x in found])
    return {
        "schema": 1,
        "device": row.name,
        "machine": f"{runtime.name} {runtime.version}",
        "models": len(files) - len(left_out),
        "operators": len(found),
        "rank_correlation": correlation if correlation == correlation else None,
        "kinds": [
            {
                "kind": kind,
                "operators": len(each),
                "measured_us": sum(x.measured_us for x in each),
                "predicted_us": sum(x.predicted_us for x in each),
                "factor": statistics.median(x.predicted_us / max(x.measured_us, 0.5) for x in each),
            }
            for kind, each in sorted(kinds.items(), key=lambda entry: -sum(x.measured_us for x in entry[1]))
        ],
        "left_out": left_out,
    }


def _operators(model: Path, shape: Sequence[str] | None, row: Device, runtime: OnnxRuntime) -> list[Operator]:
    """The operators of a model that have a price."""
    from eqsat.cli.shared.search import load
    from eqsat.extract.plan.operators import Executed
    from eqsat.frontends.nodes import profiled
    from eqsat.pipeline.measured import inputs_for

    inputs = inputs_for(load(model, shape), runtime.load(model, 1))
    nodes = [(node, node.program) for node in profiled(model, inputs, runtime)]
    found = [
        Operator(node.kind, node.measured_us, Executed(program, whole=True).predicted_us(row))
        for node, program in nodes
        if program is not None
    ]
    return [operator for operator in found if operator.predicted_us > 0]
