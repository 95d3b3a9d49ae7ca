"""`eqsat explain`: the steps from a program to its optimised form, why a rule did not fire, why kernels stay apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from eqsat.cli.shared.options import Device, Html, JsonFile, ModelFile, Numerics, RulesFile, Shape, TimeLimit
from eqsat.errors import InputError, escaped

if TYPE_CHECKING:
    from eqsat.language.rule import AnyRule, Policy
    from eqsat.pipeline.result import Result
    from eqsat.program.ir import Program

EXPLAIN_SECONDS = 4.0
"""Seconds for the derivation steps: more than in `eqsat optimize`, because here the user asks for them."""


def explain(
    context: typer.Context,
    model: ModelFile,
    why_not: Annotated[
        str | None,
        typer.Option(
            "--why-not",
            metavar="RULE|KERNEL+KERNEL",
            help="Say what kept this rule from firing, or why two kernels of the result are not one that streams.",
        ),
    ] = None,
    html: Html = None,
    device: Device = "mi300x",
    time_limit: TimeLimit = 10.0,
    numerics: Numerics = "reassociate",
    rules_file: RulesFile = None,
    shape: Shape = None,
    json_file: JsonFile = None,
) -> None:
    """Show how the optimised program follows from the one that was written: rule by rule, each step evaluated.

    The steps get up to four seconds on top of the time limit. With `--why-not RULE`: whether the rule fired, what its
    form would cost where it did, and where it did not which part of its guard failed, with the numbers. With
    `--why-not KERNEL+KERNEL`: why no kernel that streams computes what these two kernels of the result do.

    Examples:

    - `eqsat explain model.onnx`
    - `eqsat explain model.onnx --html why.html`
    - `eqsat explain model.onnx --why-not matmul-associate-right`
    - `eqsat explain model.onnx --why-not gemm_softmax_8x64x64x32+gemm_64x64x64`
    """
    from eqsat.base.files import write_text
    from eqsat.cli.commands.rules import select
    from eqsat.cli.shared.output import answer, check_files, device_file, keep_stdout, text_width
    from eqsat.cli.shared.search import begun, load, optimise
    from eqsat.explain.narration import narration, streams
    from eqsat.pipeline.report import after_line

    if why_not is not None and html is not None:
        raise InputError("--html: the page is of the steps to a result; leave out --why-not")
    pair = _pair(why_not) if why_not is not None and "+" in why_not else None
    keep_stdout({"--html": html})
    check_files(
        {"the model": model}, {"--html": html, "--json": json_file}, {"--rules": rules_file, **device_file(device)}
    )
    budget = begun(context, time_limit)
    program = load(model, shape, budget, head=True)
    with budget.stage("rules"):
        rules = select(None, None, rules_file, budget.left("rules"))
    if why_not is not None and pair is None:
        _why_not(program, why_not, device, time_limit, numerics, rules, json_file)
        return
    if pair is not None:
        best = optimise(program, device, budget, numerics, rules)
        _why_apart(best, pair, device, json_file)
        return
    best = optimise(program, device, budget, numerics, rules, explain_time=EXPLAIN_SECONDS)
    if html is not None:
        from eqsat.inspection.html import page

        write_text(html, page(best))
    explained = {key: best.report[key] for key in ("steps", "derived", "merges", "after") if key in best.report}
    if answer({"schema": 1, **explained, "streams": streams(best.report)}, json_file):
        typer.echo(narration(best.report, text_width()))
        if "after" in best.report:
            typer.echo(f"\nNot explained: {after_line(escaped(best.report['after']))}.")


def _why_not(
    program: Program,
    name: str,
    device: str,
    seconds: float,
    numerics: Policy,
    rules: Sequence[AnyRule] | None,
    json_file: str | None,
) -> None:
    from eqsat.base.progress_bar import progress_bar
    from eqsat.cli.commands.rules import find
    from eqsat.cli.shared.output import answer, text_width
    from eqsat.explain.narration import why_not_text
    from eqsat.inspection.why_not import why_not

    row = find(name, rules or ())
    with progress_bar("optimising"):
        found = why_not(program, row, device, seconds, numerics, rules).as_json()
    if answer(found, json_file):
        typer.echo(why_not_text(found, text_width()))


def _pair(names: str) -> tuple[str, str]:
    """The names of two kernels.

    Raises:
        InputError: there are more, or one is missing.
    """
    first, _, second = (part.strip() for part in names.partition("+"))
    if not first or not second or "+" in second:
        raise InputError(f"--why-not takes a rule, or two kernels as KERNEL+KERNEL; got {names}")
    return first, second


def _why_apart(best: Result, pair: tuple[str, str], device: str, json_file: str | None) -> None:
    from eqsat.cli.shared.output import answer, text_width
    from eqsat.explain.narration import apart_text
    from eqsat.extract.device.table import device as find_device
    from eqsat.inspection.why_apart import why_apart

    found = why_apart(best.plan, pair, find_device(device))
    if answer(found, json_file):
        typer.echo(apart_text(found, text_width()))
