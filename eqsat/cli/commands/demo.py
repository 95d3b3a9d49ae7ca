"""`eqsat demo`: four published optimisation problems, before and after, in one table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eqsat.cli.shared.options import Device, JsonFile, TimeLimit, output_folder
from eqsat.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console


def demo(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these programs.")] = None,
    device: Device = "mi300x",
    time_limit: TimeLimit = 10.0,
    save: Annotated[
        Path | None,
        typer.Option(
            "--save", metavar="DIR", parser=output_folder, help="Also write each program and its result as ONNX there."
        ),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Optimise the programs that motivate eqsat, at their real sizes, and check each result.

    They come from MIGraphX issue 2818 (gemm chains, also behind slices), IREE (a gemm read transposed), MIGraphX
    PR 4723 (towers of small layers) and the rocMLIR reduction-fusion RFC (a gemm that feeds a reduction).

    Examples:

    - `eqsat demo`
    - `eqsat demo towers --device h100 --save demo/`
    """
    import eqsat
    from eqsat.base.files import make_folder
    from eqsat.base.progress_bar import progress_bar
    from eqsat.cli.shared.output import answer, check_kept, console, device_file, nearest, print_table
    from eqsat.cli.shared.search import resolved
    from eqsat.suite.motivating import PROGRAMS

    for name in names or ():
        if name not in PROGRAMS:
            raise InputError(f"no demo program is called {name!r}: {nearest(name, list(PROGRAMS))}")
    chosen = list(dict.fromkeys(names)) if names else list(PROGRAMS)
    saved = [f"{name}{kind}.onnx" for name in chosen for kind in ("", "-optimised")]
    if save is not None:
        make_folder(save)
    check_kept((), save, saved, json_file, device_file(device), option="--save")
    device = resolved(device)
    reports: dict[str, dict[str, Any]] = {}
    with progress_bar("demo") as bar:
        for i, name in enumerate(chosen):
            bar(name, i / len(chosen))
            program = PROGRAMS[name].build()
            best = eqsat.optimize(program, device=device, time_limit=time_limit, measure=False)
            reports[name] = best.report
            if save is not None:
                eqsat.to_onnx(program, save / f"{name}.onnx")
                eqsat.to_onnx(best.program, save / f"{name}-optimised.onnx")
    if answer({"schema": 1, "programs": reports}, json_file):
        terminal = console()
        _print_reports(reports, device, terminal)
        about = [(name, PROGRAMS[name].source, PROGRAMS[name].text) for name in chosen]
        print_table(terminal, "What they are", ("program", "source", "point"), about, words=3)


def _print_reports(reports: dict[str, dict[str, Any]], device: str, terminal: Console) -> None:
    from eqsat.cli.shared.output import engineering, print_table, times_less
    from eqsat.cli.shared.report import microseconds

    rows = []
    for name, report in reports.items():
        before, after = report["source"], report["result"]
        rows.append(
            (
                name,
                f"{before['unfused_kernels']} / {before['kernels']} / {after['kernels']}",
                f"{engineering(before['matmul_flops'])} -> {engineering(after['matmul_flops'])}",
                f"{microseconds(before['predicted_us'])} -> {microseconds(after['predicted_us'])}",
                times_less(before["predicted_us"], after["predicted_us"]),
                "optimal" if report["optimal"] else f"{report['gap']:.1%}",
                f"{report['check']['max_error']:.0e}",
                f"{report['seconds']:.2f}",
            )
        )
    columns = ("program", "kernels", "matmul flops", "predicted time", "less", "gap", "error", "seconds")
    title = f"On {device}: as written (kernels: one per operator / fused) -> optimised (kernels: last figure)"
    print_table(terminal, title, columns, rows)
