"""Prints a result of `eqsat.optimize` in a terminal. The figures come from its report (JSON schema 1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from eqsat.cli.shared.output import engineering, print_table, times_less
from eqsat.errors import escaped
from eqsat.pipeline.report import (
    after_line,
    fallback_line,
    fixed_line,
    left_out_line,
    lighter_line,
    overflow_line,
    stages_line,
    unknown_line,
    verdict_of,
)

if TYPE_CHECKING:
    from rich.console import Console

FIGURES = (
    ("kernels", "kernels", ""),
    ("launches", "launches", ""),
    ("flops", "flops", "FLOP"),
    ("matmul flops", "matmul_flops", "FLOP"),
    ("memory traffic", "bytes", "B"),
)
"""Rows of the before/after table: title, key in the report, unit."""


def print_report(report: dict[str, Any], name: str, terminal: Console) -> None:
    """Print tables of a report: before and after, kernels, rules; then the bound, the check and opaque operators."""
    report = escaped(report)
    _print_before_after(report, name, terminal)
    _print_kernels(report, terminal)
    if report["rules"]:
        rows = [(rule, str(times)) for rule, times in report["rules"].items()]
        print_table(terminal, "Rules on the way to the result", ("rule", "steps"), rows)
    for line in closing_lines(report):
        terminal.print(line)


def _print_before_after(report: dict[str, Any], name: str, terminal: Console) -> None:
    source, result = report["source"], report["result"]
    rows = [
        (title, engineering(source[key], unit), engineering(result[key], unit), times_less(source[key], result[key]))
        for title, key, unit in FIGURES
    ]
    before, after = source["predicted_us"], result["predicted_us"]
    rows.append(("predicted time", microseconds(before), microseconds(after), times_less(before, after)))
    title = f"{name} on {report['device']}, numerics {report['numerics']}, {report['seconds']:.2f} s"
    print_table(terminal, title, ("", "as written, fused", "optimised", "less"), rows)


def _print_kernels(report: dict[str, Any], terminal: Console) -> None:
    times: dict[tuple[str, ...], int] = {}
    launches: dict[tuple[str, ...], int] = {}
    for kernel in report["kernels"]:
        row = (
            kernel["name"],
            kernel["family"],
            ", ".join(kernel["ops"]),
            engineering(kernel["flops"], "FLOP"),
            engineering(kernel["bytes"], "B"),
            microseconds(kernel["predicted_us"]),
        )
        times[row] = times.get(row, 0) + 1
        launches[row] = launches.get(row, 0) + kernel["launches"]
    columns = ("name", "family", "operators", "work", "traffic", "predicted", "times", "launches")
    rows = [(*row, str(count), str(launches[row])) for row, count in times.items()]
    print_table(terminal, "Kernels, in order of first launch; figures are of each time", columns, rows, words=3)
    for name, why in {k["name"]: k["why"] for k in report["kernels"] if "why" in k}.items():
        terminal.print(f"{name} {why[0]};", *(f"  {line}" for line in why[1:]), sep="\n", markup=False, highlight=False)


def runtime_line(found: dict[str, Any]) -> str:
    """One line on the comparison of the file read and the file written in onnxruntime."""
    error = "infinite" if found["max_error"] is None else f"{found['max_error']:.1e} of the scale"
    both = f"{found['name']} {found['version']} on the file read and the file written: largest difference {error}"
    if found["failure"]:
        return f"WARNING: {found['name']} {found['version']} cannot run the file written: {found['failure']}"
    if found["agrees"]:
        return f"{both}."
    return (
        f"WARNING: {both}, more than rounding explains. "
        "Compare them on inputs of your own before you use the file, and please report the model."
    )


def dynamic_lines(found: dict[str, Any]) -> list[str]:
    """Lines on a model with named dims: their ranges, the sizes of its check, and what is as written and why."""
    ranges = ", ".join(f"{name}={low}..{high}" for name, (low, high) in found["dims"].items())
    lines: list[str] = []
    if found["checked"]:
        error = max(one["max_error"] for one in found["checked"])
        by = found["checked"][-1]["by"]
        lines.append(
            f"One model for {ranges}, compared with the source at {len(found['checked'])} sizes by {by}: largest "
            f"difference {error:.1e} of the scale. The figures above are for {_sizes(found['figures_at'])}."
        )
    else:
        lines.append(f"The model stays as it is for {ranges}.")
    if found["predicted"] and not found["as_source"]:
        each = "; ".join(
            f"{_sizes(one['sizes'])}: {microseconds(one['source_us'])} to {microseconds(one['result_us'])}, "
            f"{_beside_best(one['result_us'], one['best_us'])}"
            for one in found["predicted"]
        )
        lines.append(f"Predicted at {each}.")
    return lines + [f"As written, {_parts(each['parts'])}: {each['why']}." for each in found["as_written"]]


def _beside_best(result: float, best: float) -> str:
    """A price beside the best one, which is 0 where nothing is computed."""
    if best:
        return f"{result / best:.2f}x the best form found"
    return "where the best form found costs nothing" if result else "as the best form found"


def _parts(count: int) -> str:
    return "1 part" if count == 1 else f"{count} parts"


def _sizes(point: dict[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in point.items())


def measured_line(found: dict[str, Any]) -> str:
    """One line on the times of the program as written and of the plans, and which was chosen."""
    from eqsat.pipeline.measured import SOURCE

    threads = "1 thread" if found["threads"] == 1 else f"{found['threads']} threads"
    plans = "; ".join(
        f"plan {p['plan']} {milliseconds(p['ms'])}, {p['ratio']:.2f}x ({p['low']:.2f}x to {p['high']:.2f}x)"
        for p in found["candidates"]
    )
    chosen = "as written: no plan is faster beyond noise" if found["chosen"] == SOURCE else f"chosen: {found['chosen']}"
    return (
        f"Measured in {found['runtime']} {found['version']}, {threads}, {found['rounds']} rounds: "
        f"source {milliseconds(found['source_ms'])}; {plans}; {chosen}."
    )


def milliseconds(ms: float) -> str:
    """A time in milliseconds with three digits."""
    return f"{ms:.3g} ms"


def closing_lines(report: dict[str, Any]) -> list[str]:
    """The sentences below the tables: distance from the optimum, the search, the check, opaque operators."""
    graph, check = report["egraph"], report["check"]
    proven = verdict_of(report, "proven optimal among the forms and kernels found")
    lines = [
        f"Lower bound {microseconds(report['lower_bound_us'])}: {proven}.",
        f"E-graph: {graph['classes']} classes, {graph['nodes']} nodes, {graph['iterations']} iterations, "
        f"{graph['seconds']:.2f} s, stopped: {graph['stop']}.",
        _searched(report["extraction"]),
        f"Check: {'passed' if check['passed'] else 'FAILED'} on {check['points']} random inputs against "
        f"{check['method']}, largest error {check['max_error']:.1e} of the scale.",
    ]
    if "dynamic" in report:
        lines += dynamic_lines(report["dynamic"])
    for key, said in _FURTHER.items():
        if report.get(key) is not None:
            lines.append(said(report[key]))
    if "unknown" in report:
        lines.append(_sentence(unknown_line(report)))
    return lines


def _sentence(text: str) -> str:
    text = text.removesuffix(".")
    return f"{text[0].upper()}{text[1:]}."


_FURTHER: dict[str, Callable[[Any], str]] = {
    "runtime": runtime_line,
    "uncompared": lambda why: f"NOT COMPARED in onnxruntime with the file read: {why}.",
    "measured": measured_line,
    "unmeasured": lambda why: f"Not measured: {why}.",
    "stages": lambda found: _sentence(stages_line(found)),
    "lighter": lambda found: _sentence(lighter_line(found)),
    "left_out": lambda found: _sentence(left_out_line()),
    "after": lambda found: _sentence(after_line(found)),
    "fixed": lambda found: _sentence(fixed_line(found)),
    "overflow": lambda found: _sentence(overflow_line(found)),
    "fallback": lambda found: _sentence(fallback_line(found)),
}
"""Entries that some reports have, and the sentence about each, in order."""


def _searched(extraction: dict[str, Any]) -> str:
    """How many kernels were considered, and how long the choice took."""
    families = ", ".join(f"{count} {family}" for family, count in extraction["families"].items())
    return (
        f"Extraction: {extraction['candidates']} candidates ({families}; {extraction['joint']} kernels of several "
        f"outputs), {sum(extraction['seconds'].values()):.2f} s."
    )


def microseconds(us: float) -> str:
    """A time in microseconds with three digits; from 10 000 us on, in ms."""
    return f"{us:.3g} us" if us < 9_999.5 else f"{us / 1000:.4g} ms"
