"""A result as one self-contained page: kernels before and after side by side, costs, steps, growth of the e-graph.

Each kernel is a box with its fused operators. Boxes stand in layers, below the boxes that they read. Repeated kernels,
such as those of equal layers, are drawn once. A short script in the page draws the arrows, so that boxes can reflow
with the window; without the script only the arrows are missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat.base.numerics import SHORT
from eqsat.explain.narration import alike, closing
from eqsat.extract.device.table import Device
from eqsat.extract.device.table import device as find_device
from eqsat.extract.plan.plan import Kernel, Plan
from eqsat.gpu.launch.streams import described
from eqsat.html.fragments import costs, environment
from eqsat.lift.shaped import Shaper
from eqsat.pipeline.report import unpriced
from eqsat.program.core import CoreProgram, Node, lower
from eqsat.program.term import spec_of

if TYPE_CHECKING:
    from eqsat.pipeline.result import Result

_HERE = Path(__file__).parent
_MOST_BOXES, _MOST_OPERATORS, _MOST_READS = 120, 6, 8
_LONGEST_PERIOD = 40
"""Longest repeated sequence of kernels that is looked for: one layer of a model."""

_PLOT = 320, 96
"""Width and height of the plot of the e-graph's growth, in SVG units."""


@dataclass(frozen=True, slots=True)
class Box:
    """One kernel as drawn: a fusion group.

    Attributes:
        number: its place in launch order, from 1.
        reads: numbers of the boxes whose results it reads.
        merge: a letter shared by kernels before and the kernels after that replace them.
    """

    number: int
    name: str
    family: str
    operators: list[str]
    time: str
    facts: list[tuple[str, str]]
    reads: list[int]
    merge: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """Layers of boxes that are drawn together, and the number of repetitions."""

    times: int
    layers: list[list[Box]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Drawing:
    """A plan as drawn; `left_out` kernels are not shown for lack of room."""

    sections: list[Section]
    left_out: int


def page(result: Result) -> str:
    """The page as HTML: no other file, script or font is needed to show it."""
    report = result.report
    core = lower(result.source)
    device = find_device(report["device"])
    letters = [_letter(i) for i in range(len(report["merges"]))]
    sides = {
        side: {at: letter for letter, m in zip(letters, report["merges"], strict=True) for at in m[f"{side}_at"]}
        for side in ("before", "after")
    }
    template = environment(_HERE).get_template("report.html.j2")
    return template.render(
        report=report,
        rows=costs(report),
        unknown=unpriced(report),
        before=draw(result.written, core, device, sides["before"]),
        after=draw(result.plan, core, device, sides["after"]),
        steps=alike(report["steps"]),
        closing=closing(report),
        growth=_growth(report["egraph"]["growth"]),
        plot=_PLOT,
    )


def _letter(i: int) -> str:
    return (_letter(i // 26 - 1) if i >= 26 else "") + chr(ord("a") + i % 26)


def draw(plan: Plan, core: CoreProgram, device: Device, merges: Mapping[int, str] | None = None) -> Drawing:
    """Kernels in layers, each below the kernels that it reads. Repeated ones are drawn once."""
    blocks = _blocks([(k.name, tuple(k.ops)) for k in plan.kernels])
    shown: dict[int, int] = {}
    for start, period, times in blocks:
        for i in range(period * times):
            shown[start + i] = start + i % period
    made = {node: i for i, kernel in enumerate(plan.kernels) for node in kernel.outputs}
    labels = _Labels(plan, core, made, device)
    sections: list[Section] = []
    count = 0
    for start, period, times in blocks:
        room = max(0, min(period, _MOST_BOXES - count))
        count += room
        depth: dict[int, int] = {}
        layers: list[list[Box]] = []
        for i in range(start, start + room):
            reads = {shown[made[n]] for n in plan.kernels[i].inputs if n in made and shown[made[n]] < i}
            depth[i] = 1 + max((depth[r] for r in reads if r in depth), default=-1)
            if depth[i] == len(layers):
                layers.append([])
            layers[depth[i]].append(labels.box(i, sorted(reads), (merges or {}).get(i, "")))
        if room:
            sections.append(Section(times, layers))
    return Drawing(sections, sum(period for _, period, _ in blocks) - count)


def _blocks(keys: Sequence[object]) -> list[tuple[int, int, int]]:
    """(start, period, times) of consecutive repetitions, the longest first found; other stretches have times 1."""
    blocks: list[tuple[int, int, int]] = []
    at, plain = 0, 0
    while at < len(keys):
        period, times = _repetition(keys, at)
        if times == 1:
            at += 1
            continue
        if plain < at:
            blocks.append((plain, at - plain, 1))
        blocks.append((at, period, times))
        at += period * times
        plain = at
    if plain < len(keys):
        blocks.append((plain, len(keys) - plain, 1))
    return blocks


def _repetition(keys: Sequence[object], at: int) -> tuple[int, int]:
    """(period, times) of the longest repetition from here on; a single kernel counts from three times on."""
    best = (1, 1)
    for period in range(1, min(_LONGEST_PERIOD, (len(keys) - at) // 2) + 1):
        times = 1
        while keys[at + times * period : at + (times + 1) * period] == keys[at : at + period]:
            times += 1
        enough = times >= (3 if period < 3 else 2)
        if enough and period * times > best[0] * best[1]:
            best = (period, times)
    return best


class _Labels:
    """The texts of boxes."""

    def __init__(self, plan: Plan, core: CoreProgram, made: Mapping[Node, int], device: Device) -> None:
        self._plan, self._made, self._device = plan, made, device
        self._shaper = Shaper(core.source_term)
        self._results = {r.buffer: name for name, r in zip(core.root_names, plan.results, strict=True) if r.buffer.args}

    def box(self, i: int, reads: Sequence[int], merge: str) -> Box:
        kernel = self._plan.kernels[i]
        operators = kernel.ops[:_MOST_OPERATORS]
        if len(kernel.ops) > len(operators):
            operators = [*operators, f"and {len(kernel.ops) - len(operators)} more"]
        return Box(
            number=i + 1,
            name=kernel.name,
            family=kernel.family,
            operators=operators,
            time=_time(kernel, ".2f"),
            facts=self._facts(kernel),
            reads=[r + 1 for r in reads],
            merge=merge,
        )

    def _facts(self, kernel: Kernel) -> list[tuple[str, str]]:
        inputs = [self._said(n) for n in kernel.inputs[:_MOST_READS]]
        if len(kernel.inputs) > len(inputs):
            inputs.append(f"and {len(kernel.inputs) - len(inputs)} more")
        why = described(kernel, self._device, self._plan.exact)
        return [
            ("reads", ", ".join(inputs) or "nothing"),
            ("writes", ", ".join(f"{self._results.get(n, '')} {self._type(n)}".strip() for n in kernel.outputs)),
            ("work", f"{kernel.flops:,} FLOP"),
            ("traffic", f"{kernel.bytes:,} bytes"),
            ("time", f"{_time(kernel, '.3f')} predicted"),
            *[("streams", "; ".join(why))] * bool(why),
        ]

    def _said(self, node: Node) -> str:
        if node in self._made:
            return f"kernel {self._made[node] + 1}'s {self._type(node)}"
        name = node.attrs[0] if node.op == "In" else "constant"
        return f"{name} {self._type(node)}"

    def _type(self, node: Node) -> str:
        if node.op == "Full":
            return f"{SHORT[node.dtype]}[]"
        return spec_of(self._shaper.shape(node), node.dtype)


def _growth(rows: Sequence[Sequence[int]]) -> dict[str, Any]:
    """The curves of e-nodes and classes over iterations, as points of a polyline."""
    width, height = _PLOT
    most = max((row[1] for row in rows), default=1)
    step = width / max(len(rows) - 1, 1)
    curves = [
        " ".join(f"{i * step:.1f},{height - height * row[column] / most:.1f}" for i, row in enumerate(rows))
        for column in (1, 0)
    ]
    return {"rows": [(i, *row) for i, row in enumerate(rows)], "nodes": curves[0], "classes": curves[1], "most": most}


def _time(kernel: Kernel, form: str) -> str:
    return "unknown" if kernel.family == "opaque" else f"{kernel.predicted_us:{form}} µs"
