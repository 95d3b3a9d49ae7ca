"""`eqsat calibrate`: measures the figures of a device, or compares its prices with times of models' operators."""

from __future__ import annotations

import datetime
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eqsat.cli.shared.options import JsonFile, Shape, output_file
from eqsat.errors import InputError, missing, unknown

_OPSET = 20
"""The first with Gelu as an operator."""

if TYPE_CHECKING:
    from collections.abc import Callable

    from eqsat.extract.device.table import Device
    from eqsat.extract.plan.calibrate import Calibration


def calibrate(
    device: Annotated[
        str, typer.Option("--device", "-d", help="The row to fit: cpu, or `auto`, that of this machine's GPU.")
    ] = "auto",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.json",
            parser=output_file,
            help="Write the row there; by default it replaces the table's.",
        ),
    ] = None,
    measurements: Annotated[
        Path | None,
        typer.Option("--measurements", metavar="FILE.json", help="Fit to these times (of `--json`) and measure none."),
    ] = None,
    suite_report: Annotated[
        Path | None,
        typer.Option("--from", metavar="DIR", help="Fit to the kernels that `eqsat bench --suite -o DIR` measured."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report", metavar="MODELS", help="Fit nothing: compare prices with times of these models' nodes."
        ),
    ] = None,
    shape: Shape = None,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Samples of each kernel; the median counts.")] = 20,
    json_file: JsonFile = None,
) -> None:
    """Measure a few kernels on this machine's GPU, and fit the figures that prices start from.

    For cpu, operators of models are measured instead, in onnxruntime on one thread. The row that comes out is used
    wherever its device is named from then on; with `-o FILE.json` it is used where `--device FILE.json` is given.

    Examples:

    - `eqsat calibrate`
    - `eqsat calibrate -o mine.json --json times.json`, then `eqsat optimize model.onnx --device mine.json`
    - `eqsat calibrate --measurements times.json -o mine.json`
    - `eqsat calibrate --from report/`
    - `eqsat calibrate --device cpu`, then `eqsat calibrate --device cpu --report models/`
    """
    from eqsat.cli.shared.output import answer, check_files, check_kept, console, keep_stdout
    from eqsat.cli.shared.prices import compare_prices, models_at
    from eqsat.extract.device import files as device_files
    from eqsat.extract.device.table import DEVICES
    from eqsat.extract.plan.calibrate import fit
    from eqsat.extract.plan.operators import executed
    from eqsat.suite.fitted import measured
    from eqsat.suite.fitted import priced as named
    from eqsat.suite.report import FILE

    outputs = {"--output": output, "--json": json_file}
    keep_stdout({"--output": output})
    fitted = suite_report / FILE if suite_report is not None else None
    check_files({"--report": report}, outputs, {"--measurements": measurements, "--from": fitted})
    check_kept(models_at(report), None, (), json_file)
    if report is not None:
        compare_prices(report, "cpu" if device == "auto" else device, shape, json_file)
        return
    if measurements is not None and suite_report is not None:
        raise InputError("--measurements and --from: give one of them")
    if suite_report is not None:
        name, machine, times = measured(suite_report)
    else:
        name, machine, times = _read(measurements) if measurements else _measure(device, rounds)
    if (measurements or suite_report) and device != "auto":
        name = device
    if name not in DEVICES:
        raise unknown("device", name, DEVICES)
    row = DEVICES[name]
    timed, priced = ("operators", executed) if row.runtime else ("kernels", named)
    found = fit(row, times, f"fitted by `eqsat calibrate` to {len(times)} {timed} on {machine}", priced)
    file = output or device_files.user_file(row.name)
    device_files.write(file, device_files.RowFile(row.name, found.figures))
    if answer(_as_json(found, machine, file), json_file):
        _print(found, dict(row.figures()), machine, console())
        typer.echo(f"{file}: the fitted row")


def _measure(device: str, rounds: int) -> tuple[str, str, dict[str, float]]:
    """(device, machine, microseconds by name) of the micro-kernels on this machine, or of operators in a runtime."""
    from eqsat.extract.device.table import DEVICES

    row = DEVICES.get(device)
    return _kernels(device, rounds) if row is None or not row.runtime else _operators(row, rounds)


def _operators(row: Device, rounds: int) -> tuple[str, str, dict[str, float]]:
    import math
    import tempfile

    import eqsat
    from eqsat.base.progress_bar import progress_bar
    from eqsat.base.turns import in_turns
    from eqsat.check.inputs import random_values
    from eqsat.extract.plan.operators import OPERATORS, executed, without_calls
    from eqsat.frontends.execution import installed

    runtime = installed(row.runtime)
    runs: list[Callable[[], object]] = []
    with tempfile.TemporaryDirectory(prefix="eqsat-") as folder, progress_bar("measuring") as report:
        for i, name in enumerate(OPERATORS):
            report(name, i / len(OPERATORS) / 2)
            program, file = executed(name).program, Path(folder) / f"{i}.onnx"
            eqsat.to_onnx(program, file, opset=_OPSET)
            session, inputs = runtime.load(file, 1), random_values(program.inputs, 0, 0)
            session(inputs)
            runs.append(lambda session=session, inputs=inputs: session(inputs))
        report("all in turns", 0.5)
        times = in_turns(runs, 1, rounds, math.inf, lambda: math.inf)
    us = {name: each.ms * 1e3 for name, each in zip(OPERATORS, times, strict=True)}
    machine = f"{_processor()}, one thread of {runtime.name} {runtime.version}, {datetime.date.today()}"
    return row.name, machine, without_calls(us)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _kernels(device: str, rounds: int) -> tuple[str, str, dict[str, float]]:
    from eqsat.base.progress_bar import progress_bar
    from eqsat.extract.plan.calibrate import MICRO, micro
    from eqsat.gpu.run.cupy_runtime import GpuPlan, this_machine
    from eqsat.gpu.run.timing import plan_times

    machine = this_machine(device)
    with progress_bar("measuring") as report:
        plans = {name: GpuPlan(micro(name).plan(machine.row), machine.row) for name in MICRO}
        return machine.row.name, machine.name, plan_times(plans, rounds, report)


def _read(path: Path) -> tuple[str, str, dict[str, float]]:
    """The same values, from a file written by `--json`.

    Raises:
        InputError: no such file, or not of this format.
    """
    from eqsat.base.files import read_json

    try:
        document = read_json(path, "the measurements of `eqsat calibrate --json`")
        times = {entry["name"]: float(entry["measured_us"]) for entry in document["measurements"]}
        return str(document["device"]), str(document["machine"]), times
    except (ValueError, KeyError, TypeError) as failure:
        raise InputError(
            f"{path}: no measurements (device, machine, and measurements of name and measured_us): {missing(failure)}"
        ) from None


def _as_json(found: Calibration, machine: str, file: Path) -> dict[str, Any]:
    correlation, factor = found.rank_correlation, found.typical_factor
    return {
        "schema": 1,
        "device": found.row.name,
        "machine": machine,
        "file": str(file),
        "measurements": [
            {"name": name, "measured_us": us, "before_us": found.before[name], "after_us": found.after[name]}
            for name, us in found.measured.items()
        ],
        "figures": {name: figure._asdict() for name, figure in found.figures.items()},
        "rank_correlation": {"before": _number(correlation[0]), "after": _number(correlation[1])},
        "typical_factor": {"before": factor[0], "after": factor[1]},
    }


def _number(value: float) -> float | None:
    """JSON has no NaN: the correlation of fewer than two different times is null."""
    return None if value != value else value


def _print(found: Calibration, before: dict[str, Any], machine: str, terminal: Any) -> None:
    from eqsat.cli.shared.output import print_table
    from eqsat.cli.shared.report import microseconds

    rows = [
        (name, microseconds(us), microseconds(found.before[name]), microseconds(found.after[name]))
        for name, us in found.measured.items()
    ]
    print_table(terminal, machine, ("kernel", "measured", "predicted before", "after"), rows)
    rows = [
        (name, f"{before[name].value:g}" if name in before else "-", f"{after.value:g}")
        for name, after in found.figures.items()
    ]
    print_table(terminal, f"Figures of {found.row.name}", ("figure", "before", "fitted"), rows)
    (rank_before, rank_after), (factor_before, factor_after) = found.rank_correlation, found.typical_factor
    typer.echo(f"Rank correlation of predicted and measured times: {rank_before:.3f} before, {rank_after:.3f} after.")
    typer.echo(f"A prediction is typically off by a factor of {factor_before:.2f} before, {factor_after:.2f} after.")
