"""The passes of a row kernel over its row: which reductions each computes, what it keeps, what it writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from eqsat.base.numerics import itemsize
from eqsat.gpu.code.c_writer import Region, Value
from eqsat.gpu.code.errors import NotLowerable
from eqsat.gpu.code.index import Index, Var, through
from eqsat.gpu.code.scalar import (
    ACCESS_BYTES,
    COMPUTE,
    STORAGE,
    Lanes,
    Lowering,
    Special,
    Traffic,
    at_place,
    held,
    runs_along,
    stored,
)
from eqsat.gpu.families.base import Job
from eqsat.gpu.table.limits import KEPT_REGISTERS
from eqsat.layout.arithmetic import inverse, is_bijective, spread
from eqsat.program.core import Node
from eqsat.program.node import is_elementwise

WIDTHS = (8, 4, 2, 1)
_PLACED = ("argmax", "argmin")
_WIDE = {
    **dict.fromkeys(("double", "long long", "unsigned long long"), 8),
    **{f"eq_placed<{t}>": 16 if t in ("double", "long long", "unsigned long long") else 8 for t in COMPUTE.values()},
}
"""Bytes of C types, other than 4 and fewer."""


@dataclass(frozen=True)
class Domain:
    """rows x columns, row-major; `reductions` are the Red nodes, operands first, and `level` the pass of each.

    `above` holds the nodes that depend on a reduction.
    """

    rows: int
    columns: int
    reductions: tuple[Node, ...]
    level: Mapping[Node, int]
    above: frozenset[Node]

    def fixed(self, place: Mapping[Node, Index]) -> dict[Node, Index]:
        """The places of nodes that depend on a reduction, which are computed there alone."""
        return {node: at for node, at in place.items() if node in self.above}

    def widths(self, job: Job) -> list[int]:
        """Legal vector widths along a row."""
        arrays = [n for n in (*job.inputs, *job.outputs) if n.size >= self.columns]
        least = min((itemsize(job.dtype(n)) for n in arrays), default=ACCESS_BYTES)
        return [w for w in WIDTHS if self.columns % w == 0 and w * least <= ACCESS_BYTES] or [1]


def domain_of(job: Job) -> Domain:
    """The rows that a job reduces.

    Raises:
        NotLowerable: there are none, or reductions of several shapes.
    """
    level: dict[Node, int] = {}
    depth: dict[Node, int] = {}
    for node in job.nodes:
        below = max((depth.get(a, 0) for a in node.args), default=0)
        if node.op == "Red":
            level[node] = below
        depth[node] = below + (node.op == "Red")
    shapes = {(node.size, node.attrs[1]) for node in level}
    if len(shapes) != 1:
        raise NotLowerable(f"a row kernel reduces rows of one domain, got {sorted(shapes)}")
    ((rows, columns),) = shapes
    return Domain(rows, columns, tuple(level), level, frozenset(n for n, d in depth.items() if d))


@dataclass(frozen=True)
class Total:
    """One reduction of a pass.

    Attributes:
        name: C name; `operator` its struct, `ctype` the struct's value type.
        result: C expression of the reduced element.
    """

    name: str
    operator: str
    ctype: str
    result: str
    result_ctype: str

    @property
    def bytes(self) -> int:
        """Of a value, at most."""
        return _WIDE.get(self.ctype, 4)


@dataclass(frozen=True)
class Pass:
    """One walk over the row: `body` handles elements `width * q + u`, i counting this thread's chunks."""

    totals: Sequence[Total]
    body: str


@dataclass(frozen=True)
class Passes:
    """All walks of a row kernel.

    Attributes:
        kept: (C type, name) of the values that are kept between passes, one for each of a thread's steps.
        row_body: statements of one thread a row, for outputs with one element a row.
        loads: load and store instructions for an element of the row.
    """

    passes: list[Pass]
    kept: list[tuple[str, str]]
    row_body: str
    loads: float


@dataclass(frozen=True)
class Walk:
    """How a thread walks: `width` neighbouring columns of one row at a time, or `across` as many neighbouring rows, one
    column at a time.

    Attributes:
        threads: those that share the columns of a row.
    """

    domain: Domain
    width: int
    threads: int
    across: bool = False

    @property
    def lane(self) -> Var:
        """Which of the elements that are taken together."""
        return Var("u", self.width)

    @property
    def at(self) -> Var:
        """Which columns: their vector, or the column itself."""
        return Var("c", self.domain.columns) if self.across else Var("q", self.domain.columns // self.width)

    @property
    def outer(self) -> Var:
        """The row, or the vector of rows."""
        return Var("rq", self.domain.rows // self.width) if self.across else Var("row", self.domain.rows)

    @property
    def row(self) -> Index:
        """The row of an element."""
        return Index.of(self.outer) * self.width + Index.along(self.lane) if self.across else Index.of(self.outer)

    @property
    def column(self) -> Index:
        """The column of an element."""
        return Index.of(self.at) if self.across else Index.of(self.at) * self.width + Index.along(self.lane)

    @property
    def steps(self) -> int:
        """How often a thread takes elements of its row."""
        return -(-self.at.extent // self.threads)

    @property
    def neighbour(self) -> Var:
        """What grows from thread to thread."""
        return self.outer if self.across or self.threads == 1 else self.at

    def total(self, i: int, depth: int) -> Value:
        """A row's total inside the loop over lanes."""
        return Value(f"row_total{i}.v[u]", depth) if self.across else Value(f"row_total{i}")


@dataclass
class _Plan:
    """Where every node above a reduction is computed, and what each pass evaluates."""

    job: Job
    domain: Domain
    walk: Walk
    natural: Index = field(init=False)
    place: dict[Node, Index] = field(init=False)

    def __post_init__(self) -> None:
        self.natural = self.walk.row * self.domain.columns + self.walk.column
        self.place = anchored(self.job, self.domain, self.walk.row, self.natural)

    @property
    def levels(self) -> int:
        return max(self.domain.level.values()) + 1

    def reductions(self, level: int) -> list[Node]:
        """The reductions of pass `level`."""
        return [n for n in self.domain.reductions if self.domain.level[n] == level]

    def outputs(self, level: int) -> list[Node]:
        """The outputs that pass `level` writes at every element of a row: the first pass what depends on no total."""
        last = self.levels
        here = [n for n in self.job.outputs if level == (last if n in self.domain.above else 0)]
        return [n for n in here if not self.is_row_output(n)]

    def roots(self, level: int) -> list[Node]:
        """What pass `level` evaluates at every element of a row."""
        return [*(n.args[0] for n in self.reductions(level)), *self.outputs(level)]

    def is_row_output(self, node: Node) -> bool:
        """Whether an output has one element a row."""
        return not self.at_element(self.place[node])

    def at_element(self, place: Index) -> bool:
        """Whether a place differs from element to element of a row."""
        return not place.variables <= self.walk.row.variables


def anchored(job: Job, domain: Domain, row: Index, natural: Index) -> dict[Node, Index]:
    """The element of each node that the thread of element `natural` computes: its own, or its row's total.

    Outputs that depend on no reduction (a residual sum beside the norm of it) are placed too.

    Raises:
        NotLowerable: a node needs other elements than those.
    """
    place: dict[Node, Index] = {}
    for node in domain.reductions:
        place[node] = row
        place.setdefault(node.args[0], natural)
    for node in job.nodes:
        above = {place[a] for a in node.args if a in domain.above}  # all else is computed wherever it is needed
        if node.op == "Red" or not above:
            continue
        if len(above) > 1:
            raise NotLowerable(f"{node!r} joins values of different rows or elements")
        at = above.pop()
        if node.op == "V":
            (arg,), layout = node.args, node.attrs[0]
            repeated = spread(layout, domain.rows, domain.columns) if at == row else None
            back = inverse(layout, arg.size) if repeated is None else inverse(repeated, layout.size)
            if back is None:
                raise NotLowerable(f"{node!r} is no map of single elements of a row kernel")
            at = through(back, natural if repeated is not None else at)[0]
        elif not is_elementwise(node.op):
            raise NotLowerable(f"a row kernel cannot hold {node!r} over what it reduces")
        place.setdefault(node, at)
        if place[node] != at:
            raise NotLowerable(f"{node!r} is needed at two places of a row kernel")
    beside = _beside(job, domain, natural)
    for node in job.outputs:
        if node not in place:
            place[node] = beside.get(node) or _own(node, domain, row, natural)
    return place


def _beside(job: Job, domain: Domain, natural: Index) -> dict[Node, Index]:
    """The places of outputs that depend on no reduction: where the thread holds their operands in registers."""
    place: dict[Node, Index] = {}
    stack = [(node.args[0], natural) for node in domain.reductions]
    while stack:  # what is read when element `natural` of what is reduced is computed
        node, at = stack.pop()
        if node in place:
            continue
        place[node] = at
        if is_elementwise(node.op):
            stack.extend((a, at) for a in node.args)
        elif node.op == "V" and is_bijective(node.attrs[0], node.args[0].size):
            stack.append((node.args[0], through(node.attrs[0], at)[0]))
    for node in job.nodes:  # and what is computed of that
        at = next((place[a] for a in node.args if a in place), None)
        if node in place or at is None:
            continue
        back = inverse(node.attrs[0], node.args[0].size) if node.op == "V" else None
        if back is not None:
            place[node] = through(back, at)[0]
        elif is_elementwise(node.op):
            place[node] = at
    return place


def _own(node: Node, domain: Domain, row: Index, natural: Index) -> Index:
    """The element of an output that shares nothing with the reductions.

    Raises:
        NotLowerable: it has another size than the rows and their elements.
    """
    sizes = {domain.rows: row, domain.rows * domain.columns: natural}
    if node.size not in sizes:
        raise NotLowerable(f"{node!r} is of another size than the rows of the row kernel")
    return sizes[node.size]


def passes(job: Job, walk: Walk) -> Passes:
    """The walks over a row."""
    plan = _Plan(job, walk.domain, walk)
    kept = _kept(plan, KEPT_REGISTERS // max(1, walk.steps * walk.width))
    names = {node: f"kept{i}" for i, node in enumerate(kept)}
    traffic = Traffic(neighbour=walk.neighbour)
    stores = 0.0
    made: list[Pass] = []
    computed: set[Node] = set()
    for level in range(plan.levels + 1):
        if plan.roots(level):
            body, totals, written = _pass(plan, level, names, computed, traffic)
            made.append(Pass(totals, body))
            stores += written
    row_body = _row_outputs(plan)
    kept_types = [(f"eq_run<{COMPUTE[n.dtype]}, {walk.width}>", name) for n, name in names.items()]
    return Passes(made, kept_types, row_body, traffic.loads / walk.width + stores)


def _kept(plan: _Plan, most: int) -> list[Node]:
    """The nodes that later passes read back from registers: computed in an earlier one, and not under another."""
    if most < 1:
        return []
    first: dict[Node, int] = {}
    for level in range(plan.levels + 1):
        for node in evaluated(plan.job.inputs, plan.roots(level), ()):
            first.setdefault(node, level)
    kept: dict[Node, None] = {}
    for level in range(1, plan.levels + 1):
        earlier = {n for n, at in first.items() if at < level and _worth_keeping(plan, n)}
        for node in evaluated(plan.job.inputs, plan.roots(level), earlier):
            if node in earlier:
                kept[node] = None
    return list(kept)[:most]


def _worth_keeping(plan: _Plan, node: Node) -> bool:
    at = plan.place.get(node)
    own = at is None or plan.at_element(at)
    free = node not in plan.domain.above
    elsewhere = free and any(n.op in ("V", "Cat") and node in n.args for n in plan.job.nodes)
    return node.op != "Full" and own and not elsewhere and node.size == plan.domain.rows * plan.domain.columns


def evaluated(inputs: Iterable[Node], roots: Iterable[Node], stop: Iterable[Node]) -> list[Node]:
    """The nodes at the element itself below `roots`, not looking below `inputs` and `stop` or through views."""
    inputs, stop = set(inputs), set(stop)
    found: dict[Node, None] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in found or node.op in ("Red", "Full"):
            continue
        found[node] = None
        if node not in stop and node not in inputs and is_elementwise(node.op):
            stack.extend(node.args)
    return list(found)


def _pass(
    plan: _Plan, level: int, names: Mapping[Node, str], computed: set[Node], traffic: Traffic
) -> tuple[str, list[Total], float]:
    walk, lane = plan.walk, plan.walk.lane
    region = Region([walk.outer, walk.at], plan.job.index_type)
    reductions = plan.reductions(level)
    totals = [_total(plan, n) for n in reductions]
    writes = Writes(region, plan.job, plan.place, plan.outputs(level), Lanes(lane), walk.neighbour)
    with region.unrolled(lane):
        special: dict[Node, Special] = {
            n: at_place(plan.place[n], partial(walk.total, i, region.depth))
            for i, n in enumerate(plan.domain.reductions)
        }
        for node, name in names.items():
            if node in computed:
                place = plan.place.get(node, plan.natural)
                special[node] = held(place, partial(Value, f"{name}[i].v[u]", region.depth))
        lowering = Lowering(region, plan.job.leaves, Lanes(lane), special, plan.domain.fixed(plan.place), traffic)
        for total, node in zip(totals, reductions, strict=True):
            name = f"{total.name}.v[u]" if walk.across else total.name
            region.statement(f"{name} = {total.operator}::apply({name}, {_entered(plan, lowering, node)});")
        writes.each(lowering)
        here = evaluated(plan.job.inputs, plan.roots(level), computed)
        for node, name in names.items():
            if node not in computed and node in here:
                value = lowering.value(node, plan.place.get(node, plan.natural))
                region.statement(f"{name}[i].v[u] = {value.text};")
                computed.add(node)
    writes.whole()
    return region.text, totals, writes.stores


class Writes:
    """Writes from a loop over adjacent elements, as vectors where their places are adjacent too.

    Made before that loop, `each` called inside it and `whole` after it.

    Attributes:
        stores: store instructions for an element of the loop.
    """

    def __init__(
        self,
        region: Region,
        job: Job,
        place: Mapping[Node, Index],
        outputs: Sequence[Node],
        lanes: Lanes,
        neighbour: Var | None = None,
    ) -> None:
        self.region, self.job, self.place, self.outputs, self.lanes = region, job, place, outputs, lanes
        self._traffic = Traffic(neighbour=neighbour)
        self.runs = {n: f"run{job.outputs.index(n)}" for n in outputs if runs_along(place[n], lanes)}
        self.stores = 0.0
        for node, name in self.runs.items():
            region.statement(f"eq_run<{STORAGE[job.dtype(node)]}, {lanes.width}> {name};")

    def each(self, lowering: Lowering) -> None:
        """The statements for one element."""
        width = self.lanes.width
        for node in self.outputs:
            dtype = self.job.dtype(node)
            text = stored(lowering.value(node, self.place[node]).text, dtype)
            weight = self._traffic.weight(self.place[node], self.lanes)
            if node in self.runs:
                self.region.statement(f"{self.runs[node]}.v[u] = {text};")
                self.stores += weight * max(1.0, width * itemsize(dtype) / ACCESS_BYTES) / width
            else:
                place = self.region.index(self.place[node]).text
                self.region.statement(f"out{self.job.outputs.index(node)}[{place}] = {text};")
                self.stores += weight

    def whole(self) -> None:
        """The statements that write vectors."""
        for node, name in self.runs.items():
            address = self.region.index(self.place[node].without(self.lanes.var))
            self.region.statement(f"eq_write_run(out{self.job.outputs.index(node)} + {address.text}, {name});")


def reduced_type(dtype: str) -> str:
    """C type in which elements are reduced: booleans as int."""
    return "int" if dtype == "bool" else COMPUTE[dtype]


def _total(plan: _Plan, node: Node) -> Total:
    kind = node.attrs[0]
    base = reduced_type(node.args[0].dtype)
    name = f"total{plan.domain.reductions.index(node)}"
    operator = f"eq_{kind}_of<{base}>"
    if kind in _PLACED:
        return Total(name, operator, f"eq_placed<{base}>", f"{name}.at", COMPUTE[node.dtype])
    result = f"{name} != 0" if node.dtype == "bool" else name
    return Total(name, operator, base, result, COMPUTE[node.dtype])


def _entered(plan: _Plan, lowering: Lowering, node: Node) -> str:
    """An element as the reduction takes it."""
    value = lowering.value(node.args[0], plan.place[node.args[0]]).text
    if node.attrs[0] in _PLACED:
        column = lowering.region.index(plan.walk.column)
        return f"eq_placed<{reduced_type(node.args[0].dtype)}>{{{value}, {column.text}}}"
    return value


def _row_outputs(plan: _Plan) -> str:
    """The statements of one thread for a row."""
    job, domain = plan.job, plan.domain
    row = Var("row", domain.rows)
    at = Index.of(row)
    place = anchored(job, domain, at, at * domain.columns + plan.walk.column)
    region = Region([row], job.index_type)
    special = {n: at_place(at, partial(Value, f"row_total{i}")) for i, n in enumerate(domain.reductions)}
    lowering = Lowering(region, job.leaves, None, special, domain.fixed(place))
    for i, node in enumerate(job.outputs):
        if plan.is_row_output(node):
            value = stored(lowering.value(node, place[node]).text, job.dtype(node))
            region.statement(f"out{i}[{region.index(place[node]).text}] = {value};")
    return region.text
