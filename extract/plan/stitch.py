"""Builds one plan from the covers of segments. Each form is solved once, and all its instances get its kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from eqsat.egraph.snapshot import Snapshot
from eqsat.extract.cover import CoverResult
from eqsat.extract.plan.plan import Kernel, Plan, Result, build_plan
from eqsat.layout.arithmetic import Layout, compose, identity
from eqsat.lift.part import Part
from eqsat.parts.segments import Segment
from eqsat.program.constants import folding_budget
from eqsat.program.core import CoreProgram, Node, make, topological
from eqsat.program.node import substitute


@dataclass(frozen=True, slots=True)
class Solved:
    """A form of segments, with its e-graph and the chosen cover.

    Attributes:
        before: the cover of a smaller e-graph that told which values to group in this one, if one did.
    """

    snapshot: Snapshot
    cover: CoverResult
    before: Solved | None = None


@dataclass(frozen=True, slots=True)
class Stitched:
    """The plan of a whole program, its parts, and the cover and the plan that each was made of."""

    plan: Plan
    parts: list[Part]
    made_of: list[tuple[CoverResult, Plan]]


def stitch(
    parts: Sequence[tuple[Segment, Solved]], program: CoreProgram, exact: bool = False, known: Stitched | None = None
) -> Stitched:
    """The plan of the whole program, from its segments' plans in order; `Plan` says what `exact` is. Segments whose
    covers are those of a `known` plan keep its plans."""
    joiner = _Joiner(program, exact)
    for i, (segment, solved) in enumerate(parts):
        cover, plan = known.made_of[i] if known is not None else (None, None)
        joiner.add(segment, solved, plan if cover is not None and cover.chosen is solved.cover.chosen else None)
    return Stitched(joiner.plan(), joiner.parts, joiner.made_of)


@dataclass(frozen=True, slots=True)
class _Placed:
    """The place of a value of an earlier segment: its node, and the buffer and layout to read it through."""

    node: Node
    buffer: Node
    layout: Layout


class _Joiner:
    def __init__(self, program: CoreProgram, exact: bool) -> None:
        self.program = program
        self.exact = exact
        self.budget = folding_budget(program.constants.values())
        self.kernels: list[Kernel] = []
        self.parts: list[Part] = []
        self.made_of: list[tuple[CoverResult, Plan]] = []
        self.constants: dict[str, np.ndarray] = {}
        self._placed: dict[Node, _Placed] = {}
        self._classes: dict[tuple[tuple[Node, ...], int], list[tuple[Node, int]]] = {}

    def add(self, segment: Segment, solved: Solved, plan: Plan | None) -> None:
        """Append the kernels of one instance of a segment; `plan` is that of its cover, where it is known."""
        stand_ins: dict[Node, _Placed] = {}
        names: dict[Node, Node] = {}
        for placeholder, node in segment.leaves.items():
            if node in self._placed and node.op not in ("In", "Const"):  # an output may be a constant that others read
                stand_ins[placeholder] = self._placed[node]
                names[placeholder] = placeholder
            else:
                names[placeholder] = node
        if plan is None:
            snapshot = _renamed(solved.snapshot, names)
            plan = build_plan(snapshot, solved.cover, self.program, self.exact, self.budget)
        self.made_of.append((solved.cover, plan))
        self.constants |= plan.constants
        outside = {p: segment.leaves[p] for p in stand_ins}
        kept = self._kept(segment, solved.snapshot, plan.computed)
        self.parts.append(Part(segment, plan.roots, outside, plan.constants, plan.origins, kept))
        value: dict[Node, Node] = {p: placed.node for p, placed in stand_ins.items()}
        for kernel in plan.kernels:
            self._append(kernel, stand_ins, value)
        for root, made, result in zip(segment.roots, plan.roots, plan.results, strict=True):
            buffer, layout = result.buffer, result.layout
            (node,) = substitute([made], value)
            if buffer in stand_ins:
                outer = compose(stand_ins[buffer].layout, layout)
                assert outer is not None, "results are contiguous runs, which compose with any layout"
                buffer, layout = stand_ins[buffer].buffer, outer
            else:
                (buffer,) = substitute([buffer], value)
            self._placed[root] = _Placed(node, buffer, layout)

    def _kept(
        self, segment: Segment, snapshot: Snapshot, computed: Mapping[int, Node]
    ) -> tuple[tuple[Node, Node], ...]:
        """The values of a segment that its kernels compute too, operands first: its own node of each, and theirs."""
        key = segment.form, id(snapshot)
        if key not in self._classes:
            self._classes[key] = _classes(segment.form, snapshot)
        own = {made: node for node, made in segment.nodes().items()}
        found = self._classes[key]
        return tuple((own[made], computed[cls]) for made, cls in found if cls in computed and made.op != "V")

    def _append(self, kernel: Kernel, stand_ins: Mapping[Node, _Placed], value: dict[Node, Node]) -> None:
        """Append a kernel, with its reads from other segments replaced by their actual buffers."""
        params: dict[Node, Node] = {}
        inner: dict[Node, Node] = {}
        for param, source in zip(kernel.params, kernel.inputs, strict=True):
            if source in stand_ins:
                placed = stand_ins[source]
                buffer, layout = placed.buffer, placed.layout
            else:
                (buffer,) = substitute([source], value)
                layout = identity(source.size)
            if buffer not in params:
                params[buffer] = make("In", (f"a{len(params)}", buffer.size, buffer.dtype))
            inner[param] = make("V", (layout,), (params[buffer],))
        outputs = tuple(substitute(kernel.outputs, value))
        value.update(zip(kernel.outputs, outputs, strict=True))
        same = all(param is own for param, own in inner.items())
        body = kernel.body if same else tuple(substitute(kernel.body, inner))
        self.kernels.append(
            replace(kernel, outputs=outputs, inputs=tuple(params), params=tuple(params.values()), body=body)
        )

    def plan(self) -> Plan:
        """The plan of all added segments, with the program's outputs as results."""
        placed = [self._placed.get(r) or _Placed(r, r, identity(r.size)) for r in self.program.roots]
        return Plan(
            kernels=tuple(self.kernels),
            roots=tuple(p.node for p in placed),
            results=tuple(Result(p.buffer, p.layout) for p in placed),
            constants=self.constants,
            opaque=self.program.opaque,
            exact=self.exact,
        )


def _classes(form: Sequence[Node], snapshot: Snapshot) -> list[tuple[Node, int]]:
    """The nodes of a form, operands first, whose classes an e-graph of it has."""
    classes: dict[Node, int] = {}
    for made in topological(form):
        cls = snapshot.find(made.op, made.attrs, [classes.get(a, -1) for a in made.args])
        if cls is not None:
            classes[made] = cls
    return list(classes.items())


def _renamed(snapshot: Snapshot, names: Mapping[Node, Node]) -> Snapshot:
    """The snapshot, with the leaves of a form replaced by those of an instance."""
    return snapshot.with_leaves({(p.op, p.attrs): (n.op, n.attrs) for p, n in names.items() if n is not p})
