"""`eqsat optimize`: reads an ONNX file and writes a cheaper, checked one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eqsat.base.files import replaces
from eqsat.base.memory_limit import collector_paused
from eqsat.cli.shared.options import (
    MOST_THREADS,
    Certificate,
    Device,
    Html,
    JsonFile,
    MemoryLimit,
    ModelFile,
    Numerics,
    RulesFile,
    ShapeOrRange,
    TimeLimit,
    Tune,
    output_file,
)
from eqsat.errors import InputError

if TYPE_CHECKING:
    from eqsat.base.time_budget import TimeBudget
    from eqsat.dynamic.result import Dynamic
    from eqsat.gpu.run.tune import Tuning
    from eqsat.language.rule import AnyRule
    from eqsat.pipeline.result import Result
    from eqsat.program.ir import Program

_UNCERTIFIED = 2
"""Exit code where a certificate was asked for and none was found: as of `eqsat prove` where it does not know."""


@collector_paused()
def optimize(
    context: typer.Context,
    model: ModelFile,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="OUT.onnx", parser=output_file, help="Write the program found, as ONNX."
        ),
    ] = None,
    certificate: Certificate = None,
    device: Device = "mi300x",
    time_limit: TimeLimit = 10.0,
    numerics: Numerics = "reassociate",
    shape: ShapeOrRange = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="RULE", help="Use only this rule; may be repeated.")
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option("--without", metavar="RULE", help="Leave this rule out; may be repeated.")
    ] = None,
    rules_file: RulesFile = None,
    max_error: Annotated[
        float | None,
        typer.Option("--max-error", metavar="E", help="Largest error against float64 allowed, relative to the scale."),
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option("--inputs", "-i", metavar="X.npz", help="Measure errors and overflows on these; else at random."),
    ] = None,
    top: Annotated[
        int,
        typer.Option(
            "--top", min=1, max=1000, metavar="K", help="Also find the K-1 next best plans, for measuring them."
        ),
    ] = 1,
    objective: Annotated[
        str,
        typer.Option(
            "--objective", metavar="GOAL", help="latency, memory, or mix:W: W is the weight of peak memory, 0 to 1."
        ),
    ] = "latency",
    memory_limit: MemoryLimit = None,
    buckets: Annotated[
        bool, typer.Option("--buckets", help="Write one file for each half of each wide range of dynamic dimensions.")
    ] = False,
    tune: Tune = None,
    measure: Annotated[
        bool, typer.Option("--measure/--no-measure", help="Let times choose, where the device's runtime is here.")
    ] = True,
    measure_threads: Annotated[
        int,
        typer.Option(
            "--measure-threads",
            min=1,
            max=MOST_THREADS,
            metavar="N",
            help="Threads of each program that is measured.",
        ),
    ] = 1,
    explain: Annotated[bool, typer.Option("--explain", help="Also print the way to the result, step by step.")] = False,
    html: Html = None,
    json_file: JsonFile = None,
) -> None:
    """Find an equal program that is cheaper on a device, check it, and say how it was found.

    Ctrl-C ends the search early with the best program so far. Rules of your own are checked before they are used.
    For the device cpu, the model and the plans found run in turns in onnxruntime, and the fastest is written: the model
    as it was, if no plan is faster beyond noise. Dynamic dimensions without a size stay dynamic.

    With --certificate, what was written is read again and proved equal to the model, which takes up to the time limit
    once more. Where no certificate is found, the exit code is 2.

    Examples:

    - `eqsat optimize model.onnx --explain`
    - `eqsat optimize model.onnx -o faster.onnx --device h100 --time-limit 30`
    - `eqsat optimize model.onnx --shape batch=16 --numerics exact --json report.json`
    - `eqsat optimize model.onnx --shape seq=16..512 -o faster.onnx` (one file for all these sizes)
    - `eqsat optimize model.onnx --shape seq=16..512 --buckets -o faster.onnx` (faster.seq16-90.onnx, ...)
    - `eqsat optimize model.onnx --max-error 1e-3 --inputs x.npz`
    - `eqsat optimize model.onnx --top 5 -o faster.onnx` (the others in faster.2.onnx, ...)
    - `eqsat optimize model.onnx --objective mix:0.5`
    - `eqsat optimize model.onnx -o faster.onnx --certificate faster.proof`
    """
    from eqsat.egraph.pool import STARTING, start

    if time_limit > STARTING:
        start()  # a second of loading, beside the imports here
    from eqsat.cli.commands.rules import select
    from eqsat.cli.shared.alternatives import alternative_paths, copying_early, write_alternatives, write_program
    from eqsat.cli.shared.certificates import certify
    from eqsat.cli.shared.output import check_files, data_of, device_file, keep_stdout
    from eqsat.cli.shared.search import begun, load, optimise, optimise_dynamic, require_fixed, stays_dynamic
    from eqsat.cli.shared.tuning import check_tunable, tune_result
    from eqsat.pipeline.optimize import prepare
    from eqsat.search.limits import AFTER
    from eqsat.search.objective import Objective

    budget = begun(context, time_limit)
    outputs = {"--output": output, "--certificate": certificate, "--html": html, "--json": json_file}
    others = {"--inputs": inputs, "--rules": rules_file, **device_file(device)}
    keep_stdout({"--output": output, "--certificate": certificate, "--html": html})
    _check_output(output, certificate)
    plans = alternative_paths(output, top)
    check_files({"the model": model}, {**outputs, **plans}, others, data_of({"--output": output, **plans}))
    Objective.of(objective)
    check_tunable(tune, device)
    with budget.stage("rules"):
        rules = select(only, without, rules_file, budget.left("rules"))
    if budget.left("saturate") > 0:
        prepare(numerics, rules)
    if stays_dynamic(model, shape):
        fixed_only = {
            "--top": top > 1,
            "--objective": objective != "latency",
            "--max-error": max_error is not None,
            "--inputs": inputs is not None,
            "--tune": tune is not None,
            "--certificate": certificate is not None,
        }
        require_fixed(model, [option for option, given in fixed_only.items() if given])
        if buckets:
            named = _bucket_files(model, shape, output, html)
            check_files({"the model": model}, {"--json": json_file, **named}, others, data_of(named))
        _start_searching(model, rules, memory_limit, budget)
        dynamic = optimise_dynamic(model, shape, device, budget, numerics, rules, memory_limit, buckets)
        _tell_dynamic(dynamic, model, output, html, json_file, explain, buckets)
        return
    if buckets:
        raise InputError(f"--buckets: {model.name} has no dynamic dimension, or all are fixed; leave it out")
    _start_searching(model, rules, memory_limit, budget)
    program = load(model, shape, budget, head=True)
    _check_whole(program, model, certificate, tune)
    if output is not None:
        budget.expect("write", AFTER.writing(program.constant_bytes()))
    with copying_early(model, output, budget) as copy:
        best = optimise(
            program,
            device,
            budget,
            numerics,
            rules,
            max_error,
            top=top,
            objective=objective,
            inputs=inputs,
            memory_limit=memory_limit,
            measure_threads=measure_threads if measure else None,
        )
        with budget.stage("write"):
            if output is not None:
                write_program(best, model, output, copy)
                write_alternatives(best, output)
            _write_page(best, html)
    if output is not None:
        best.report |= _second_opinion(model, output, best.source, budget, memory_limit)
    best.report["stages"] = budget.report()
    certified = output is None or certificate is None or certify(best.source, output, certificate, time_limit)
    tuning = tune_result(best, tune) if tune is not None else None
    _tell(best, tuning, model, json_file, explain)
    if not certified:
        raise typer.Exit(_UNCERTIFIED)


def _start_searching(
    model: Path, rules: Sequence[AnyRule] | None, memory_limit: float | None, budget: TimeBudget
) -> None:
    """Start the processes that a model so varied will be searched in with these rules, beside its reading.

    Raises:
        InputError: the limit on memory is not one.
    """
    if rules == []:
        return
    from eqsat.base.memory_limit import memory_limit as bytes_allowed
    from eqsat.cli.shared.search import as_bytes, kinds_in
    from eqsat.search.crew import start_early

    with budget.stage("read"):
        start_early(kinds_in(model), bytes_allowed(as_bytes(memory_limit)), budget.left("saturate"))


def _check_output(output: Path | None, certificate: Path | None) -> None:
    """Refuse an output that does not go with the other options.

    Raises:
        InputError: there is to be a certificate, and no file to read again.
    """
    if certificate is None:
        return
    if output is None:
        raise InputError("--certificate: it is about what --output writes; give that, too")
    if not replaces(output):
        raise InputError(f"--certificate: a pipe or a device is not read again; give --output a file, not {output}")


def _check_whole(program: Program, model: Path, certificate: Path | None, tune: float | None) -> None:
    """Refuse options that need the whole model as a program.

    Raises:
        InputError: operators follow the program.
    """
    from eqsat.pipeline.report import after_line, after_places

    if program.header.after is not None:
        for option, given in {"--certificate": certificate, "--tune": tune}.items():
            if given is not None:
                raise InputError(f"{option}: {after_line(after_places(program))}; leave it out for {model.name}")


def _bucket_files(
    model: Path, shape: Sequence[str] | None, output: Path | None, html: Path | None
) -> dict[str, Path | None]:
    """The files that `--buckets` writes, by their names in messages."""
    from eqsat.cli.shared.alternatives import bucket_path
    from eqsat.cli.shared.search import bucket_ranges

    options = {"--output": output, "--html": html}
    parts = bucket_ranges(model, shape)
    return {
        f"{option} of bucket {i}": bucket_path(option, path, ranges)
        for i, ranges in enumerate(parts, 1)
        for option, path in options.items()
    }


def _write_page(best: Result, html: Path | None) -> None:
    if html is None:
        return
    from eqsat.base.files import write_text
    from eqsat.inspection.html import page

    write_text(html, page(best))


def _tell(best: Result, tuning: Tuning | None, model: Path, json_file: str | None, explain: bool) -> None:
    """Write and print a result."""
    from eqsat.cli.shared.alternatives import objective_line, print_alternatives
    from eqsat.cli.shared.output import answer, console
    from eqsat.cli.shared.report import print_report
    from eqsat.cli.shared.tuning import as_json, print_tuning

    report = best.report
    if not answer(report | ({"tuning": as_json(tuning)} if tuning else {}), json_file):
        return
    print_report(report, model.name, console())
    if "objective" in report:
        console().print(objective_line(report))
    if "alternatives" in report:
        print_alternatives(report, console())
    if tuning is not None:
        print_tuning(tuning, console())
    if "error" in report:
        typer.echo(_within(report["error"]))
    if explain:
        typer.echo(best.explain())


def _tell_dynamic(
    results: Sequence[Dynamic],
    model: Path,
    output: Path | None,
    html: Path | None,
    json_file: str | None,
    explain: bool,
    buckets: bool,
) -> None:
    """Write and print results with named dims."""
    from eqsat.cli.shared.alternatives import bucket_path
    from eqsat.cli.shared.output import console, write_json
    from eqsat.cli.shared.report import print_report

    for found in results:
        file = bucket_path("--output", output, found.family.ranges) if buckets else output
        page = bucket_path("--html", html, found.family.ranges) if buckets else html
        if file is not None:
            found.save(file)
            found.report["dynamic"]["file"] = file.name
        _write_page(found.best, page)
        if json_file != "-":
            print_report(found.report, model.name, console())
            if explain:
                typer.echo(found.explain())
    if json_file is not None:
        reports = [found.report for found in results]
        write_json({"schema": 1, "buckets": reports} if buckets else reports[0], json_file)


def _second_opinion(
    model: Path, output: Path, program: Program, budget: TimeBudget, gigabytes: float | None
) -> dict[str, Any]:
    """What onnxruntime says of the file read and the file written, or why it was not asked, as in the report.

    A pipe or a device is not read again: opening a pipe that this process writes to would wait for ever.
    """
    if not replaces(output):
        return {"uncompared": "what was written to a pipe or a device is not read again"}
    from eqsat.base.memory_limit import in_use, memory_limit
    from eqsat.cli.shared.search import as_bytes
    from eqsat.frontends.runtime import NotCompared, compared

    room = memory_limit(as_bytes(gigabytes)) - in_use()
    try:
        with budget.stage("write"):
            return {"runtime": compared(model, output, program, budget.left("write"), room).as_json()}
    except NotCompared as why:
        return {"uncompared": str(why)}


def _within(error: dict[str, Any]) -> str:
    """One line on the error budget, and the changes that it ruled out."""
    line = f"Error {error['measured']:.1e} of the scale, within {error['budget']:g}, numerics {error['numerics']}"
    refused = [
        f"{r['numerics']} ({'overflow' if r['measured'] is None else format(r['measured'], '.1e')})"
        for r in error["refused"]
    ]
    return f"{line}; over budget: {', '.join(refused)}." if refused else f"{line}."
