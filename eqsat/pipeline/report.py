"""The report of a result: JSON schema 1, and as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.check.part import Check
from eqsat.errors import escaped
from eqsat.explain.explanation import FOLD, Explanation
from eqsat.extract.cover import CoverResult
from eqsat.extract.device.table import Device
from eqsat.extract.plan.memory import peak_bytes
from eqsat.extract.plan.plan import Plan
from eqsat.gpu.launch.grouping import launch_counts
from eqsat.gpu.launch.streams import described
from eqsat.program.core import Node
from eqsat.program.ir import Program
from eqsat.search.objective import Objective

_SOLVER_WORK = ("left", "rounds", "cuts", "branched")
"""Statistics of the solver: nodes left after reductions, rounds and cuts of its relaxation, nodes branched on."""

_SHOWN_PLACES = 8  # carried operators that a line names

_NAMED = 8
"""Most inputs with default values that a line names."""

LEFT_OUT = ("steps", "merges", "why")
"""What a brief report leaves out: entries that stay empty, and how kernels stream."""

_STOPS = ("saturated", "nodes", "memory", "time", "failed", "interrupted")
"""Reasons to stop, best first: a report names the worst over all parts."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of a search, over all instances of all segments.

    Attributes:
        source, chosen: the covers of the program as written and of the result, one for each segment instance.
        egraphs: figures of the e-graphs, one for each form of segments: nodes, classes, why saturation ended.
        source_plan: the kernels of the program as written.
        explanation: the steps from the program as written to the result.
        merges: which kernels as written became which of the result.
    """

    source: list[CoverResult]
    chosen: list[CoverResult]
    egraphs: list[Mapping[str, Any]]
    source_plan: Plan
    explanation: Explanation
    merges: list[dict[str, Any]]


def build_report(
    source: Program,
    result: Program,
    plan: Plan,
    outcome: Outcome,
    device: Device,
    numerics: str,
    verdict: Check,
    brief: bool = False,
) -> dict[str, Any]:
    """The report of a search; `seconds` is filled in by the caller. With `brief`, it leaves out `LEFT_OUT`."""
    before = source.stats()
    after = before if result is source else result.stats()
    cost = sum(c.cost for c in outcome.chosen)
    bound = sum(c.lower_bound for c in outcome.chosen)
    launches, copies = launch_counts(plan)
    launches_before, peak = launches, peak_bytes(plan)
    peak_before = peak
    if outcome.source_plan is not plan:
        launches_before, peak_before = launch_counts(outcome.source_plan)[0], peak_bytes(outcome.source_plan)
    why = [[] if brief else described(k, device, plan.exact) for k in plan.kernels]
    return {
        "schema": 1,
        "device": device.name,
        "numerics": numerics,
        "seconds": 0.0,
        "source": {
            "kernels": len(outcome.source_plan.kernels),
            "launches": sum(launches_before),
            "unfused_kernels": before["unfused_kernels"],
            "flops": before["flops"],
            "matmul_flops": before["matmul_flops"],
            "bytes": sum(k.bytes for k in outcome.source_plan.kernels),
            "predicted_us": _microseconds(sum(c.cost for c in outcome.source)),
            "peak_bytes": peak_before,
        },
        "result": {
            "kernels": len(plan.kernels),
            "launches": sum(launches),
            "copies": copies,
            "flops": after["flops"],
            "matmul_flops": after["matmul_flops"],
            "bytes": sum(k.bytes for k in plan.kernels),
            "predicted_us": _microseconds(cost),
            "peak_bytes": peak,
        },
        "lower_bound_us": _microseconds(bound),
        "gap": round((cost - bound) / cost, 6) if cost else 0.0,
        "optimal": all(c.optimal for c in outcome.chosen) and not source.opaque() and not after_places(source),
        "kernels": _kernels(plan, result, launches, why),
        "egraph": _egraph(outcome.egraphs),
        "extraction": _extraction(outcome.chosen),
        "rules": dict(Counter(step.rule for step in outcome.explanation.steps if step.rule != FOLD)),
        "steps": [step.as_json() for step in outcome.explanation.steps],
        "derived": outcome.explanation.derived,
        "merges": outcome.merges,
        "check": verdict.as_json(),
        "opaque": source.opaque(),
        **({"fixed": list(source.header.fixed)} if source.header.fixed else {}),
        **({"unknown": unknown_places(source)} if source.opaque() else {}),
        **({"after": following} if (following := after_places(source)) else {}),
        **({"lighter": lighter} if (lighter := _lighter(outcome.chosen)) else {}),
        **({"nearer": nearer} if (nearer := _nearer(outcome.chosen)) else {}),
        **({"left_out": list(LEFT_OUT)} if brief else {}),
    }


def _lighter(chosen: Sequence[CoverResult]) -> dict[str, Any]:
    """What covers with less work cost more than the cheapest, and what they save; empty if all are the cheapest."""
    saved = [c.stats["saved"] for c in chosen if "saved" in c.stats]
    if not saved:
        return {}
    more = _microseconds(sum(s["cost"] for s in saved))
    return {"more_us": more, **{f"less_{unit}": sum(s[unit] for s in saved) for unit in ("flops", "bytes")}}


def _nearer(chosen: Sequence[CoverResult]) -> dict[str, Any]:
    """What covers that are nearer to the program as written cost more than the cheapest; empty if they do not."""
    more = sum(c.stats.get("nearer", 0) for c in chosen)
    return {"more_us": _microseconds(more)} if more else {}


def nearer_line(nearer: dict[str, Any]) -> str:
    """Why the result is not the cheapest plan."""
    return f"more of the program stays as written, {nearer['more_us']:.3f} us over the cheapest plan"


def lighter_line(lighter: dict[str, Any]) -> str:
    """Why the result is not the cheapest plan."""
    return (
        f"taken for less work, {lighter['more_us']:.3f} us over the cheapest plan: "
        f"{lighter['less_flops'] / 1e6:.3f} MFLOP and {lighter['less_bytes'] / 1e6:.3f} MB less"
    )


def fixed_line(fixed: Sequence[str]) -> str:
    """Which inputs of the model are no inputs of the result."""
    more = f" and {len(fixed) - _NAMED} more" if len(fixed) > _NAMED else ""
    return f"inputs with default values are taken as constants: {', '.join(fixed[:_NAMED])}{more}"


def left_out_line() -> str:
    """Why a report says less than others."""
    return "nothing was found in time: the program is as written, without words on how its kernels stream"


def unknown_places(program: Program) -> list[dict[str, str]]:
    """The operators kept as they are: for each its name, and the model's name of its first result."""
    places: dict[Any, dict[str, str]] = {}
    names = {term: name for name, term in program.outputs.items()} | dict(program.names)
    for term in program.terms():
        if term.op == "opaque":
            call = (term.attr("name"), term.attr("spec"), term.args)
            place = places.setdefault(call, {"operator": term.attr("name"), "makes": names.get(term, "")})
            place["makes"] = place["makes"] or names.get(term, "")
    return list(places.values())


def unknown_line(report: Mapping[str, Any]) -> str:
    """What the figures leave out."""
    places = report["unknown"]
    return f"price unknown, a launch each in all figures: {len(places)} carried, {_placed(places)}"


def after_places(program: Program) -> list[dict[str, str]]:
    """The operators that follow the program: for each its name, and the name of its first result."""
    following = program.header.after
    return [] if following is None else [{"operator": op, "makes": made} for op, made in following.operators]


def after_line(places: Sequence[Mapping[str, str]]) -> str:
    """What is no part of the program."""
    count = f"{len(places)} operator{'s follow' if len(places) > 1 else ' follows'}"
    return f"{count} the program as written, without a price and in no figure: {_placed(places)}"


def unpriced(report: Mapping[str, Any]) -> str:
    """What the figures leave out, of all kinds; empty if nothing."""
    lines = [unknown_line(report)] if "unknown" in report else []
    return "; ".join([*lines, *([after_line(report["after"])] if "after" in report else [])])


def _placed(places: Sequence[Mapping[str, str]]) -> str:
    named = [f"{p['operator']} ({p['makes']})" if p["makes"] else p["operator"] for p in places]
    return ", ".join(named[:_SHOWN_PLACES]) + (", ..." if len(named) > _SHOWN_PLACES else "")


def objective_report(goal: Objective, report: dict[str, Any], least_peak: int) -> dict[str, Any]:
    """The report's fields on an objective with memory. The bound combines the least time and the least peak, which no
    single plan may reach; the report's own bound and gap are still those of time alone.
    """
    source, result = report["source"], report["result"]
    written = source["predicted_us"] * 1e6, source["peak_bytes"]
    value = goal.value(result["predicted_us"] * 1e6, result["peak_bytes"], *written)
    bound = min(value, goal.value(report["lower_bound_us"] * 1e6, least_peak, *written))
    gap = round((value - bound) / value, 6) if value else 0.0
    weights = {"latency": round(goal.latency, 6), "memory": round(goal.memory, 6)}
    figures = {
        "value": round(value, 6),
        "lower_bound": round(bound, 6),
        "gap": gap,
        "optimal": gap == 0 and not unpriced(report),
    }
    return weights | figures | {"least_peak_bytes": least_peak}


def _microseconds(picoseconds: int) -> float:
    return round(picoseconds * 1e-6, 6)


def _egraph(stats: list[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "classes": sum(s["classes"] for s in stats),
        "nodes": sum(s["nodes"] for s in stats),
        "iterations": sum(s.get("iterations", 0) for s in stats),
        "seconds": round(sum(s.get("seconds", 0.0) for s in stats), 3),
        "stop": max((s["stop"] for s in stats), key=_STOPS.index, default="saturated"),
        "growth": _growth([list(s.get("growth", ())) for s in stats]),
    }


def _growth(parts: list[list[tuple[int, int]]]) -> list[list[int]]:
    """(classes, e-nodes) after each iteration, over all parts; a saturated part keeps its last count."""
    longest = max(map(len, parts), default=0)
    full = [part + part[-1:] * (longest - len(part)) for part in parts if part]
    return [[sum(row[i] for row in rows) for i in (0, 1)] for rows in zip(*full, strict=True)]


def _extraction(covers: list[CoverResult]) -> dict[str, Any]:
    """The candidates of the covers, and how they were solved; equal parts were solved once and count once."""
    stats = [c.stats for c in {id(c): c for c in covers}.values() if c.stats]
    families: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    stages: Counter[str] = Counter()
    work: Counter[str] = Counter()
    for s in stats:
        families.update(s["candidates"]["families"])
        seconds.update(s["seconds"])
        stages.update(s["solver"]["seconds"])
        work.update({name: s["solver"][name] for name in _SOLVER_WORK})
    return {
        "candidates": sum(s["candidates"]["candidates"] for s in stats),
        "families": dict(sorted(families.items())),
        "joint": sum(s["candidates"]["joint"] for s in stats),
        "nodes": sum(s["problem"]["nodes"] for s in stats),
        "rows": sum(s["problem"]["rows"] for s in stats),
        "seconds": {stage: round(spent, 3) for stage, spent in seconds.items()},
        "solver": {"seconds": {stage: round(spent, 3) for stage, spent in stages.items()}, **work},
        "answers": [
            {"part": i, "stage": stage, "us": _microseconds(cost)}
            for i, s in enumerate(stats)
            for stage, cost, _ in s["solver"]["answers"]
        ],
    }


def _kernels(plan: Plan, result: Program, launches: list[int], why: list[list[str]]) -> list[dict[str, Any]]:
    names = _Buffers(plan, list(result.outputs))
    return [
        {
            "name": k.name,
            "family": k.family,
            "ops": k.ops,
            "inputs": [names.of(n) for n in k.inputs],
            "outputs": [names.of(n) for n in k.outputs],
            "flops": k.flops,
            "bytes": k.bytes,
            "predicted_us": round(k.predicted_us, 6),
            "launches": count,
            **({"why": lines} if lines else {}),
        }
        for k, count, lines in zip(plan.kernels, launches, why, strict=True)
    ]


class _Buffers:
    """Names of the values that kernels read and write: inputs and outputs keep theirs, others are numbered by use."""

    def __init__(self, plan: Plan, outputs: list[str]) -> None:
        self._names: dict[Node, str] = {}
        for name, result in zip(outputs, plan.results, strict=True):
            if result.layout.is_identity(result.buffer.size) and result.buffer.args:
                self._names.setdefault(result.buffer, name)
        self._counts = {"c": 0, "t": 0}

    def of(self, node: Node) -> str:
        if node.op == "In":
            return node.attrs[0]
        if node not in self._names:
            letter = "c" if node.op in ("Const", "Full") else "t"
            self._names[node] = f"{letter}{self._counts[letter]}"
            self._counts[letter] += 1
        return self._names[node]


def stages_line(stages: Mapping[str, float]) -> str:
    """The time of each stage, the longest first; stages of less than a hundredth of the total are left out."""
    least = 0.01 * sum(stages.values())
    shown = sorted(((s, name) for name, s in stages.items() if s > least), reverse=True)
    return f"time went to {', '.join(f'{name} {seconds:.2f} s' for seconds, name in shown)}"


def verdict_of(report: dict[str, Any], optimal: str) -> str:
    """The quality of the result in words; `optimal` is the word for a proven optimum."""
    if report["optimal"]:
        return optimal
    return f"gap {report['gap']:.1%}{' of what has a price' if unpriced(report) else ''}"


def overflow_line(overflow: dict[str, int]) -> str:
    """The parts left as written, and why."""
    parts = "the program" if overflow["of"] == 1 else f"{overflow['parts']} of {overflow['of']} parts"
    return f"left {parts} as written: rewritten, a float16 or bfloat16 would overflow"


def fallback_line(fallback: dict[str, Any]) -> str:
    """The refusal of the check, the fallback taken, and advice for the user."""
    parts, of, refused = fallback["parts"], fallback["of"], fallback["refused"]
    if not parts:
        done = "another plan, or the source itself, was taken"
    else:
        done = f"{'the program' if of == 1 else f'{parts} of {of} parts'} left as written"
    if fallback["cause"] == "memory":
        return f"a rewriting was too large to check ({refused[0]}), {done}. {advice_on(fallback)}"
    if fallback["cause"] == "time":
        return f"there was no time to tell whether a rewriting is right ({refused[0]}), {done}. {advice_on(fallback)}"
    what = "a search failed" if fallback["cause"] == "failed" else "the check refused a rewriting"
    return f"{what} ({refused[0]}), {done}: a defect of eqsat, or of a rule that you added. {advice_on(fallback)}"


def advice_on(fallback: dict[str, Any]) -> str:
    """Advice on a refused result, and the folder that reproduces it."""
    if fallback["cause"] == "memory":
        return "A larger --memory-limit may let it pass."
    if fallback["cause"] == "time":
        return "A longer --time-limit may let it pass."
    advice = "other --numerics or --without a rule may still get a faster one"
    if fallback["folder"] is None:
        return f"Please report the program; {advice}."
    return f"Please report it with {fallback['folder']}, which reproduces it; {advice}."


def summary(report: dict[str, Any]) -> str:
    """The report in a few lines."""
    report = escaped(report)
    rows = [
        ("kernels", "kernels", "{:d}"),
        ("launches", "launches", "{:d}"),
        ("MFLOP", "flops", None),
        ("matmul MFLOP", "matmul_flops", None),
        ("MB moved", "bytes", None),
        ("predicted us", "predicted_us", "{:.3f}"),
    ]
    lines = [f"{report['device']}, numerics {report['numerics']}, {report['seconds']:.2f} s"]
    lines.append(f"{'':14}{'source':>12}{'result':>12}")
    for title, key, form in rows:
        values = [report[side][key] for side in ("source", "result")]
        shown = [form.format(v) if form else f"{v / 1e6:.3f}" for v in values]
        lines.append(f"{title:14}{shown[0]:>12}{shown[1]:>12}")
    verdict = verdict_of(report, "optimal")
    lines.append(f"lower bound {report['lower_bound_us']:.3f} us ({verdict}); e-graph {report['egraph']['stop']}")
    for k in report["kernels"]:
        lines.append(f"  {k['name']:32} {k['family']:24} {k['predicted_us']:9.3f} us")
    if "stages" in report:
        lines.append(stages_line(report["stages"]))
    if "lighter" in report:
        lines.append(lighter_line(report["lighter"]))
    if "nearer" in report:
        lines.append(nearer_line(report["nearer"]))
    if "left_out" in report:
        lines.append(left_out_line())
    if "fixed" in report:
        lines.append(fixed_line(report["fixed"]))
    if "overflow" in report:
        lines.append(overflow_line(report["overflow"]))
    if "fallback" in report:
        lines.append(fallback_line(report["fallback"]))
    if "unknown" in report:
        lines.append(unknown_line(report))
    if "after" in report:
        lines.append(after_line(report["after"]))
    return "\n".join(lines)
