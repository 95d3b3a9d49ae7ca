"""`eqsat sweep`: optimises many models for many devices, and compares with an earlier sweep."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from eqsat.cli.shared.options import MOST_GIGABYTES, Cluster, JsonFile, Shape, Workers, output_folder, parse_shapes
from eqsat.errors import InputError, escaped, unknown

if TYPE_CHECKING:
    from rich.console import Console

    from eqsat.sweeping.table import Row

RESULTS = "results.sqlite"
"""In the folder of a sweep: the outcomes of its tasks, from which the next one goes on."""

PAGE = "sweep.html"
_WORSE = 1
_SHOWN_RULES = 12

_LEAST_MEMORY = 6 << 30
"""Bytes of address space of a process: libraries and mapped weights count, too."""


def sweep(
    models: Annotated[list[Path], typer.Argument(metavar="MODELS...", help="ONNX files.", show_default=False)],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="DIR", parser=output_folder, help="Where results are kept and written."),
    ],
    devices: Annotated[str, typer.Option("--devices", metavar="LIST", help="Of `eqsat devices`.")] = "mi300x",
    numerics: Annotated[str, typer.Option("--numerics", metavar="LIST", help="Policies.")] = "reassociate",
    against: Annotated[
        Path | None, typer.Option("--against", metavar="DIR", help="Fail where a result is worse than in this sweep.")
    ] = None,
    time_limit: Annotated[
        float, typer.Option("--time-limit", "-t", min=0.0, metavar="SECONDS", help="Of each search.")
    ] = 60.0,
    shape: Shape = None,
    memory_limit: Annotated[
        float | None,
        typer.Option(
            "--memory-limit",
            min=4.0,
            max=MOST_GIGABYTES,
            metavar="GB",
            help="Of each process; else a share of the machine's.",
        ),
    ] = None,
    workers: Workers = None,
    on: Cluster = None,
    json_file: JsonFile = None,
) -> None:
    """Optimise models for devices under policies: one table, one page (sweep.html), one document (sweep.json).

    What is done already is not done again: results are kept by the contents of the model, the options, the figures of
    the device and the code of eqsat and its libraries. Ctrl-C keeps what is done; the same command goes on. A model
    whose search dies early is tried once more; one whose search dies late or hangs counts as failed. The document has
    no times, and is the same bytes for any number of workers, on this machine or a Dask cluster, unless a search
    reached its time limit.

    Exit code 1 if a task failed or a model was refused; with --against, if a task failed, a price is higher or a result
    is missing that was there.

    Examples:

    - `eqsat sweep models/*.onnx --devices mi300x,h100,cpu --numerics reassociate,exact -o out/`
    - `eqsat sweep models/*.onnx -o new/ --against out/`
    - `eqsat sweep models/*.onnx -o out/ --on tcp://scheduler:8786`
    """
    from eqsat.base.files import check_outputs, make_folder, write_text
    from eqsat.base.memory_limit import memory_limit as machine_memory
    from eqsat.base.progress_bar import progress_bar
    from eqsat.cli.shared.output import answer, check_kept, console, device_file, write_json
    from eqsat.extract.device.table import device
    from eqsat.language.rule import Policy
    from eqsat.runs.run import run
    from eqsat.runs.store import Store
    from eqsat.sweeping.model import check_sizes, largest_first, tasks
    from eqsat.sweeping.page import page
    from eqsat.sweeping.table import FILE, document, read, row, worse

    chosen = _listed("--devices", devices)
    for name in chosen:
        device(name)
    policies = _listed("--numerics", numerics)
    for policy in policies:
        if policy not in get_args(Policy):
            raise unknown("policy", policy, get_args(Policy))
    files = named(models)
    before = read(against) if against is not None else []
    sizes = parse_shapes(shape)
    check_sizes(files.values(), sizes)
    make_folder(output)
    count = workers or os.cpu_count() or 1
    memory = int(memory_limit * 1e9) if memory_limit is not None else max(_LEAST_MEMORY, machine_memory(None) // count)
    asked = list(tasks(files, chosen, policies, sizes, time_limit, memory))
    check_kept(files.values(), output, (RESULTS, FILE, PAGE), json_file, device_file(*chosen))
    check_outputs({"--against": against / FILE if against is not None else None}, {"--json": json_file})
    found: dict[str, Row] = {}
    known = 0
    with Store(output / RESULTS) as store, progress_bar("sweep") as report:
        for task, outcome, was_known in run(largest_first(asked), store, count, on):
            found[task.name] = row(task, outcome)
            known += was_known
            report(f"{len(found)} of {len(asked)}, {task.name}", len(found) / len(asked))
    rows = [found[task.name] for task in asked]
    lines = worse(rows, before)
    data = document(rows)
    write_json(data, str(output / FILE))
    write_text(output / PAGE, page(rows, lines))
    if answer(data, json_file):
        _print(rows, known, console())
        for line in lines:
            typer.echo(f"worse: {line}")
        typer.echo(f"{output / FILE}, {output / PAGE}")
    faults = ("failed",) if against is not None else ("failed", "refused")
    if lines or any(fault in each.found for each in rows for fault in faults):
        raise typer.Exit(_WORSE)


def _listed(option: str, text: str) -> list[str]:
    """The items of `a,b`.

    Raises:
        InputError: there is none, or one is given twice.
    """
    found = [item.strip() for item in text.split(",") if item.strip()]
    if not found or len(set(found)) < len(found):
        raise InputError(f"{option} {text}: expected a list such as a,b without repetitions")
    return found


def named(models: Sequence[Path]) -> dict[str, Path]:
    """Models by the shortest name that tells them apart: the name of the file, or its path.

    Raises:
        InputError: a file is given twice.
    """
    stems = [path.stem for path in models]
    found = {path.stem if stems.count(path.stem) == 1 else str(path): path for path in models}
    if len(found) < len(models):
        twice = next(path for path in models if models.count(path) > 1)
        raise InputError(f"{twice}: is given twice; name each file once")
    return found


def _print(rows: Sequence[Row], known: int, terminal: Console) -> None:
    """Print the rows as a table, and the rules: first those whose results save most."""
    from eqsat.cli.shared.output import print_table
    from eqsat.cli.shared.report import microseconds
    from eqsat.sweeping.table import earned

    cells = [(*r.key, *(_cells(r, microseconds) if not r.fault else (r.fault,)), f"{r.seconds:.1f}") for r in rows]
    behind = ", ".join(dict.fromkeys(f"{r.model} ({r.found['after']})" for r in rows if r.found.get("after")))
    columns = ("model", "device", "numerics", "kernels", "before", "after", "gain", "bound", "gap", "seconds")
    failed = [c for r, c in zip(rows, cells, strict=True) if r.fault]
    title = f"{len(rows)} results, {known} of them known: the program as written -> the result, predicted"
    print_table(terminal, title, columns, [c for r, c in zip(rows, cells, strict=True) if not r.fault], words=3)
    if behind:
        typer.echo(f"Operators that follow the program as written, in no figure: {escaped(behind)}.")
    if failed:
        columns = ("model", "device", "numerics", "no result", "seconds")
        print_table(terminal, f"{len(failed)} without a result", columns, failed, words=4)
    most = [(e.rule, str(e.rows), str(e.steps), microseconds(e.saved_us)) for e in earned(rows)[:_SHOWN_RULES]]
    if most:
        title = "Rules with a part in the largest savings (of all results whose steps use them)"
        print_table(terminal, title, ("rule", "results", "steps", "saved"), most)


def _cells(row: Row, microseconds: Callable[[float], str]) -> tuple[str, ...]:
    found = row.found
    late = "*" if found["stop"] == "time" else ""  # another run may find another result
    return (
        f"{found['source_kernels']} -> {found['result_kernels']}",
        microseconds(found["source_predicted_us"]),
        microseconds(row.price) + late,
        f"{row.gain:.2f}x",
        microseconds(found["lower_bound_us"]),
        f"{row.gap:.1%}",
    )
