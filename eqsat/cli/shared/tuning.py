"""`--tune SECONDS`: measures the kernels of a result on this machine's GPU, and prints the outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eqsat.errors import InputError

if TYPE_CHECKING:
    from eqsat.gpu.run.tune import Tuning
    from eqsat.pipeline.result import Result


def check_tunable(tune: float | None, device: str, on: str = "gpu") -> None:
    """Check that `--tune` can measure, before a program is optimised.

    Raises:
        InputError: `on` is not a GPU, there is no CuPy or no GPU, or the device has another instruction set.
    """
    if tune is None:
        return
    if on != "gpu":
        raise InputError(f"--tune measures kernels on a GPU: times on {on} say nothing about one; use --on gpu")
    from eqsat.gpu.run.cupy_runtime import this_machine

    this_machine(device)


def tune_result(best: Result, seconds: float) -> Tuning:
    """Tune the kernels of a result with a progress bar; the choices are saved for later runs."""
    from eqsat.base.progress_bar import progress_bar
    from eqsat.gpu.run.tune import tune

    with progress_bar("tuning") as report:
        return tune(best.plan, best.report["device"], seconds, progress=report)


def as_json(tuning: Tuning) -> dict[str, Any]:
    """As in the report: times of one launch, null if there was no time for a kernel or it was refused."""
    from eqsat.gpu.run.tune import shown

    kernels = []
    for tuned in tuning.kernels:
        entry: dict[str, Any] = {"name": tuned.kernel.name, "count": tuned.count, "untuned_us": None, "us": None}
        record = tuned.record
        if record is not None:
            entry |= {"untuned_us": record.untuned_us, "us": record.us, "choice": shown(record.choice)}
            entry |= {"tried": record.tried, "left": record.left, "refused": list(record.refused)}
        kernels.append(entry)
    return {"machine": tuning.machine, "stop": tuning.stop, "kernels": kernels}


def print_tuning(tuning: Tuning, terminal: Any) -> None:
    """Print a row for each kernel, and the sum over all launches."""
    from eqsat.cli.shared.output import print_table, times_less
    from eqsat.cli.shared.report import microseconds
    from eqsat.gpu.run.tune import shown

    rows, before, after = [], 0.0, 0.0
    for tuned in tuning.kernels:
        record, times = tuned.record, ("", "", "")
        if record is not None and record.us is not None and record.untuned_us is not None:
            before, after = before + record.untuned_us * tuned.count, after + record.us * tuned.count
            times = microseconds(record.untuned_us), microseconds(record.us), times_less(record.untuned_us, record.us)
        elif record is not None and record.us is not None:
            times = "refused", microseconds(record.us), ""
        fastest = "not measured" if record is None else "none" if record.us is None else shown(record.choice)
        rows.append((tuned.kernel.name, fastest, *times, str(tuned.count)))
    ended = {"done": "all variants tried", "time": "the time was over", "interrupted": "interrupted"}[tuning.stop]
    columns = ("kernel", "fastest", "untuned", "tuned", "less", "launches")
    print_table(terminal, f"Tuned on {tuning.machine}: {ended}", columns, rows, words=2)
    if before:
        total = f"{microseconds(before)} -> {microseconds(after)}"
        terminal.print(f"Measured kernels take {total}; remembered for runs to come.")
    for tuned in tuning.kernels:
        for refused in tuned.record.refused if tuned.record else ():
            terminal.print(f"Refused for {tuned.kernel.name}: {refused}")
