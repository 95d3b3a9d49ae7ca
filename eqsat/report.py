"""The report of a result: JSON schema 1, and how it reads as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eqsat.check import Check
from eqsat.core import Node
from eqsat.extract.plan import Plan
from eqsat.ir import Program
from eqsat.snapshot import SOURCE, Snapshot
from eqsat.stitch import Solved

if TYPE_CHECKING:
    from eqsat.optimize import Outcome

_STOPS = ("saturated", "nodes", "memory", "time", "interrupted")
"""Reasons to stop, the better first: a report names the worst over all parts."""

_SHOWN_DEPTH = 3


def build_report(
    source: Program, result: Program, plan: Plan, outcome: Outcome, device: str, numerics: str, verdict: Check
) -> dict[str, Any]:
    """The report of a search; `seconds` is filled in by the caller."""
    before, after = source.stats(), result.stats()
    cost = sum(c.cost for c in outcome.chosen)
    bound = sum(c.lower_bound for c in outcome.chosen)
    return {
        "schema": 1,
        "device": device,
        "numerics": numerics,
        "seconds": 0.0,
        "source": {
            "kernels": len(outcome.source_plan.kernels),
            "unfused_kernels": before["unfused_kernels"],
            "flops": before["flops"],
            "matmul_flops": before["matmul_flops"],
            "bytes": sum(k.bytes for k in outcome.source_plan.kernels),
            "predicted_us": _microseconds(sum(c.cost for c in outcome.source)),
        },
        "result": {
            "kernels": len(plan.kernels),
            "flops": after["flops"],
            "matmul_flops": after["matmul_flops"],
            "bytes": sum(k.bytes for k in plan.kernels),
            "predicted_us": _microseconds(cost),
        },
        "lower_bound_us": _microseconds(bound),
        "gap": round((cost - bound) / cost, 6) if cost else 0.0,
        "optimal": all(c.optimal for c in outcome.chosen),
        "kernels": _kernels(plan, result),
        "egraph": _egraph(outcome.snapshots),
        "rules": outcome.rules,
        "steps": outcome.steps,
        "check": verdict.as_json(),
        "opaque": source.opaque(),
    }


def _microseconds(picoseconds: int) -> float:
    return round(picoseconds * 1e-6, 6)


def _egraph(snapshots: list[Snapshot]) -> dict[str, Any]:
    stats = [s.stats for s in snapshots]
    stops = [s.get("stop", "saturated") for s in stats]
    return {
        "classes": sum(s.stats.get("classes", s.n_classes) for s in snapshots),
        "nodes": sum(s.stats.get("nodes", len(s.nodes)) for s in snapshots),
        "iterations": sum(s.get("iterations", 0) for s in stats),
        "seconds": round(sum(s.get("seconds", 0.0) for s in stats), 3),
        "stop": max(stops, key=_STOPS.index, default="saturated"),
    }


def _kernels(plan: Plan, result: Program) -> list[dict[str, Any]]:
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
        }
        for k in plan.kernels
    ]


class _Buffers:
    """Names of what kernels read and write: inputs and outputs by their own, others numbered in order of use."""

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


def derivation(solved: Solved) -> list[dict[str, str]]:
    """Each e-node of the chosen cover that some rule made: the rule, the class before it, and after."""
    snapshot = solved.snapshot
    seen: set[int] = set()
    stack = [x.cut for x in solved.cover.chosen]
    steps = []
    while stack:
        cut = stack.pop()
        if cut.node >= 0 and cut.node not in seen:
            seen.add(cut.node)
            node = snapshot.nodes[cut.node]
            if node.rule != SOURCE:
                after = (node.op, node.attrs, node.args)
                steps.append(
                    {"rule": node.rule, "before": _class_text(snapshot, node.cls), "after": _text(snapshot, after, 0)}
                )
        stack.extend(cut.subs)
    return steps[::-1]


def _class_text(snapshot: Snapshot, cls: int, depth: int = 0) -> str:
    """A class in the words of the source where it has some, else by its shallowest derivation."""
    written = [n for n in snapshot.of_class(cls) if n.rule == SOURCE]
    node = min(written, key=lambda n: max((snapshot.depth[a] for a in n.args), default=-1), default=None)
    node = node or snapshot.nodes[snapshot.best[cls]]
    return _text(snapshot, (node.op, node.attrs, node.args), depth)


_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


def _text(snapshot: Snapshot, node: tuple[str, tuple[Any, ...], tuple[int, ...]], depth: int) -> str:
    op, attrs, args = node
    if op == "In":
        return f"in{attrs[0]}" if attrs[0].startswith("%") else attrs[0]
    if op == "Const":
        return f"const{attrs[0]}" if attrs[0].startswith("%") else f"const#{attrs[0][:6]}"
    if op == "Full":
        return f"{attrs[0]:g}"
    if depth >= _SHOWN_DEPTH:
        return "..."
    inner = [_class_text(snapshot, a, depth + 1) for a in args[:4]] + (["..."] if len(args) > 4 else [])
    if op == "MM":
        batch, m, k, n = attrs
        lead = f"{batch}," if batch > 1 else ""
        return f"({inner[0]} @[{lead}{m},{k},{n}] {inner[1]})"
    if op == "Bin" and attrs[0] in _INFIX:
        return f"({inner[0]} {_INFIX[attrs[0]]} {inner[1]})"
    if op in ("Un", "Bin"):
        return f"{attrs[0]}({', '.join(inner)})"
    if op == "Red":
        return f"{attrs[0]}[{attrs[1]}]({inner[0]})"
    names = {"V": "view", "Cat": "concat", "Where": "where", "Gather": "take", "Opaque": "opaque"}
    return f"{names[op]}({', '.join(inner)})"


def summary(report: dict[str, Any]) -> str:
    """The report in a few lines."""
    rows = [
        ("kernels", "kernels", "{:d}"),
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
    verdict = "optimal" if report["optimal"] else f"gap {report['gap']:.1%}"
    lines.append(f"lower bound {report['lower_bound_us']:.3f} us ({verdict}); e-graph {report['egraph']['stop']}")
    for k in report["kernels"]:
        lines.append(f"  {k['name']:32} {k['family']:24} {k['predicted_us']:9.3f} us")
    if report["opaque"]:
        lines.append(f"carried as they are: {', '.join(report['opaque'])}")
    return "\n".join(lines)


def explanation(report: dict[str, Any]) -> str:
    """One paragraph a step."""
    if not report["steps"]:
        return "The program stands as it was written: nothing cheaper was found."
    return "\n".join(f"{i}. {s['rule']}\n   {s['before']}\n = {s['after']}" for i, s in enumerate(report["steps"], 1))
