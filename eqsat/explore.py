"""Looking into an e-graph: how it grows, what the forms of a program are and cost, and what kept a rule from firing."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from eqsat.core import Node, flops, is_view, lower, make
from eqsat.extract.cover import cover
from eqsat.extract.devices import device as find_device
from eqsat.ir import Program
from eqsat.layout import Layout, is_bijective, row_major
from eqsat.rule import AnyRule
from eqsat.saturate import Limits, Saturation
from eqsat.shaped import Shaper
from eqsat.snapshot import ENode, Snapshot
from eqsat.write import expression

_COVER_SECONDS = 1.0
_FORMS_OF_OPERAND = 3
_CANDIDATES = 50


@dataclass(frozen=True, slots=True)
class Growth:
    """The e-graph after one iteration, and how often each rule matched in it."""

    iteration: int
    classes: int
    nodes: int
    matches: dict[str, int]


@dataclass(slots=True)
class Exploration:
    """A saturated program.

    Attributes:
        snapshot: the e-graph at the end; `snapshot.stats["stop"]` says why it ended.
        growth: one row an iteration.
        made: e-nodes that each rule added.
    """

    snapshot: Snapshot
    growth: list[Growth]
    made: dict[str, int] = field(default_factory=dict)


class _Recorded(Saturation):
    """A saturation that writes down its growth and ends after some iterations."""

    def __init__(self, source: Snapshot, rules: Sequence[AnyRule], limits: Limits, steps: int | None) -> None:
        super().__init__(source, rules, limits)
        self.growth = [Growth(0, source.n_classes, len(source.nodes), {})]
        self._steps = steps
        self._before: Counter[str] = Counter()

    def _step(self) -> Any:
        frozen = super()._step()
        seen = Counter({name: n for name, n in self._matches.items() if " asks " not in name})
        row = self._snapshot
        self.growth.append(Growth(self._iterations, row.n_classes, len(row.nodes), dict(+(seen - self._before))))
        self._before = seen
        return frozen

    def _reached(self) -> bool:
        return self._steps is not None and self._iterations >= self._steps


def explore(
    program: Program, rules: Sequence[AnyRule], limits: Limits | None = None, steps: int | None = None
) -> Exploration:
    """Saturate a program in this process, at most `steps` iterations, and write down how it grew."""
    source = Snapshot.from_core(lower(program).roots)
    run = _Recorded(source, rules, limits or Limits(nodes=5000), steps)
    snapshot = run.run()
    if steps is not None and snapshot.stats["stop"] == "goal":
        snapshot.stats["stop"] = "steps"
    return Exploration(snapshot, run.growth, dict(Counter(n.rule for n in snapshot.nodes if n.rule)))


@dataclass(frozen=True, slots=True)
class Form:
    """One way to compute the first root, with its cost in microseconds by device: fused, not rewritten."""

    node: Node
    text: str
    microseconds: dict[str, float]


def forms(snapshot: Snapshot, devices: Sequence[str], count: int) -> list[Form]:
    """Distinct forms of the first root, the cheapest on the first device ahead."""
    rows = [find_device(name) for name in devices]
    shaper = Shaper({})
    found = []
    for node in itertools.islice(_forms(snapshot, snapshot.roots[0], frozenset(), _CANDIDATES), _CANDIDATES):
        source = Snapshot.from_core([node])
        cost = {row.name: cover(source, row, _COVER_SECONDS).cost * 1e-6 for row in rows}
        found.append(Form(node, _written(shaper, node), cost))
    return sorted(found, key=lambda f: tuple(f.microseconds.values()))[:count]


def _forms(snapshot: Snapshot, cls: int, above: frozenset[int], most: int) -> Iterator[Node]:
    """Distinct core nodes of a class, no class under itself."""
    if cls in above:
        return
    seen: set[Node] = set()
    for member in snapshot.members[cls]:
        row = snapshot.nodes[member]
        parts = [list(_forms(snapshot, a, above | {cls}, _FORMS_OF_OPERAND)) for a in row.args]
        for operands in itertools.product(*parts):
            node = make(row.op, row.attrs, operands)
            if node not in seen:
                seen.add(node)
                yield node
            if len(seen) >= most:
                return


def _written(shaper: Shaper, node: Node) -> str:
    (term,) = shaper.terms([node])
    return f"{expression(term, {})}: {term.spec}"


def to_json(snapshot: Snapshot) -> dict[str, Any]:
    """The e-graph in the public serialized format, with FLOPs (and elements written) as costs."""
    first = [members[0] for members in snapshot.members]
    nodes = {
        str(i): {
            "op": label(node, snapshot),
            "cost": float(_cost(node, snapshot)),
            "eclass": str(node.cls),
            "children": [str(first[a]) for a in node.args],
        }
        for i, node in enumerate(snapshot.nodes)
    }
    return {"nodes": nodes, "root_eclasses": [str(r) for r in dict.fromkeys(snapshot.roots)]}


def _cost(node: ENode, snapshot: Snapshot) -> int:
    if not node.args or snapshot.const[node.cls]:
        return 0
    operands = [make("In", (f"c{a}", snapshot.size[a], snapshot.dtype[a])) for a in node.args]
    made = make(node.op, node.attrs, operands)
    return 1 if is_view(made.op) or not made.args else flops(made) + made.size


def label(node: ENode, snapshot: Snapshot) -> str:
    """An e-node in a few words."""
    match node.op:
        case "In" | "Const":
            return str(node.attrs[0])[:12]
        case "Full":
            return f"{node.attrs[0]:g}"
        case "V":
            return view_text("x", node.attrs[0], snapshot.size[node.args[0]])
        case "MM":
            batch, m, k, n = node.attrs
            return f"matmul {f'{batch}x' if batch > 1 else ''}{m}x{k}x{n}"
        case "Red":
            return f"{node.attrs[0]} over {node.attrs[1]}"
        case "Un" | "Bin":
            return node.attrs[0]
    return {"Cat": "concat", "Gather": "take"}.get(node.op, node.op.lower())


def view_text(operand: str, layout: Layout, size: int) -> str:
    """A view of `size` elements, by what it does: a slice, a transpose, a broadcast, a flip, or strides in full."""
    sizes = ",".join(str(n) for n, _ in layout.dims)
    if layout.masked:
        return f"padded({operand}, {sizes}, fill={layout.fill})"
    if layout.contiguous:
        return f"{operand}[{layout.offset}:{layout.offset + layout.size}]"
    if is_bijective(layout, size) and all(stride > 0 for _, stride in layout.dims):
        order = sorted(range(len(layout.dims)), key=lambda i: -layout.dims[i][1])
        shape = ",".join(str(layout.dims[i][0]) for i in order)
        if len(order) == 2:
            return f"{operand}.reshape({shape}).T"
        return f"{operand}.reshape({shape}).transpose({','.join(str(order.index(i)) for i in range(len(order)))})"
    kept = [(n, s) for n, s in layout.dims if s]
    if (
        layout.offset == 0
        and tuple(s for _, s in kept) == row_major([n for n, _ in kept])
        and prod(n for n, _ in kept) == size
    ):
        shown = ",".join(str(n) if s else f"{n}x" for n, s in layout.dims)
        return f"broadcast({operand}, [{shown}])"
    strides = ",".join(str(s) for _, s in layout.dims)
    return f"strided({operand}, [{sizes}], strides=[{strides}], offset={layout.offset})"


def to_dot(snapshot: Snapshot) -> str:
    """The e-graph for Graphviz: classes as boxes, e-nodes inside, those that a rule made in blue."""
    lines = ["digraph egraph {", "  compound=true; rankdir=BT; node [shape=box, fontname=Helvetica, fontsize=10];"]
    roots = set(snapshot.roots)
    for cls, members in enumerate(snapshot.members):
        style = "bold" if cls in roots else "dashed"
        title = f"{snapshot.dtype[cls]}[{snapshot.size[cls]}]"
        lines.append(f'  subgraph cluster_{cls} {{ style={style}; label="{title}"; fontsize=9;')
        for i in members:
            node = snapshot.nodes[i]
            colour = f', color=blue, tooltip="{node.rule}"' if node.rule else ""
            text = label(node, snapshot).replace('"', "'")
            lines.append(f'    n{i} [label="{text}"{colour}];')
        lines.append("  }")
    for i, node in enumerate(snapshot.nodes):
        for a in node.args:
            lines.append(f"  n{snapshot.members[a][0]} -> n{i} [ltail=cluster_{a}];")
    return "\n".join([*lines, "}"]) + "\n"
