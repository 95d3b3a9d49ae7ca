"""A result as one self-contained page: kernels before and after side by side, the cost table, the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat.core import Node, lower
from eqsat.extract.cover import source_cover
from eqsat.extract.plan import Kernel, Plan, build_plan
from eqsat.numerics import SHORT
from eqsat.snapshot import Snapshot

if TYPE_CHECKING:
    from eqsat.optimize import Result

_TEMPLATE = Path(__file__).with_name("report.html.j2")
_COVER_SECONDS = 2.0
_MOST_KERNELS, _MOST_OPERATORS = 60, 6
_WIDTH, _GAP, _LINE, _HEAD = 230, 26, 16, 44
"""Pixels: a box, the space around it, a line of text in it, its title."""


@dataclass(frozen=True, slots=True)
class Box:
    """One kernel as drawn: a fusion group. Pixels; `hover` is shown under the pointer."""

    x: int
    y: int
    height: int
    title: str
    family: str
    operators: list[str]
    hover: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """Boxes and the arrows between them, as paths of SVG."""

    width: int
    height: int
    boxes: list[Box]
    arrows: list[str]
    left_out: int


def page(result: Result) -> str:
    """The page as HTML: no other file, script or font is needed to show it."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        report=result.report,
        rows=_rows(result.report),
        before=draw(source_plan(result)),
        after=draw(result.plan),
        box_width=_WIDTH,
    )


def source_plan(result: Result) -> Plan:
    """The program as it was written, fused into kernels but not rewritten."""
    core = lower(result.source)
    return build_plan(Snapshot.from_core(core.roots), source_cover(core, result.report["device"], _COVER_SECONDS), core)


def draw(plan: Plan) -> Drawing:
    """Kernels in layers: each below everything that it reads."""
    kernels = plan.kernels[:_MOST_KERNELS]
    made = {node: i for i, kernel in enumerate(kernels) for node in kernel.outputs}
    reads = [sorted({made[n] for n in kernel.inputs if n in made and made[n] != i}) for i, kernel in enumerate(kernels)]
    layer: list[int] = []
    for sources in reads:
        layer.append(1 + max((layer[s] for s in sources), default=-1))
    boxes: list[Box] = []
    top, widest = _GAP, 0
    placed: dict[int, Box] = {}
    for level in range(max(layer, default=-1) + 1):
        members = [i for i, at in enumerate(layer) if at == level]
        for column, i in enumerate(members):
            placed[i] = _box(kernels[i], _GAP + column * (_WIDTH + _GAP), top)
        top += max(placed[i].height for i in members) + 2 * _GAP
        widest = max(widest, len(members))
    boxes = [placed[i] for i in range(len(kernels))]
    arrows = [_arrow(placed[s], placed[i]) for i, sources in enumerate(reads) for s in sources]
    width = _GAP + max(widest, 1) * (_WIDTH + _GAP)
    return Drawing(width, top, boxes, arrows, len(plan.kernels) - len(kernels))


def _box(kernel: Kernel, x: int, y: int) -> Box:
    operators = kernel.ops[:_MOST_OPERATORS]
    if len(kernel.ops) > len(operators):
        operators = [*operators, f"and {len(kernel.ops) - len(operators)} more"]
    hover = [
        kernel.name,
        f"reads {', '.join(_typed(n) for n in kernel.inputs)}",
        f"writes {', '.join(_typed(n) for n in kernel.outputs)}",
        f"{kernel.flops:,} FLOP, {kernel.bytes:,} bytes, {kernel.predicted_us:.3f} us",
    ]
    height = _HEAD + _LINE * len(operators)
    return Box(x, y, height, f"{kernel.predicted_us:.2f} us", kernel.family, operators, "\n".join(hover))


def _typed(node: Node) -> str:
    name = str(node.attrs[0]) if node.op == "In" else "a constant" if node.op in ("Const", "Full") else "an array"
    return f"{name} {SHORT[node.dtype]}[{node.size}]"


def _arrow(source: Box, target: Box) -> str:
    x1, y1 = source.x + _WIDTH // 2, source.y + source.height
    x2, y2 = target.x + _WIDTH // 2, target.y
    middle = (y1 + y2) // 2
    return f"M{x1},{y1} C{x1},{middle} {x2},{middle} {x2},{y2}"


def _rows(report: Mapping[str, Any]) -> list[Sequence[str]]:
    """The cost table: title, before, after, how many times less."""
    figures = (
        ("kernels", "kernels", 1.0, "{:.0f}"),
        ("MFLOP", "flops", 1e6, "{:.3f}"),
        ("MB moved", "bytes", 1e6, "{:.3f}"),
        ("predicted µs", "predicted_us", 1.0, "{:.3f}"),
    )
    rows = []
    for title, key, unit, form in figures:
        before, after = report["source"][key], report["result"][key]
        less = f"{before / after:.2f}×" if after else "–"
        rows.append((title, form.format(before / unit), form.format(after / unit), less))
    return rows
