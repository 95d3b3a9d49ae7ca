"""The walks of a streaming kernel along its axis: what the threads of a row compute of each tile of elements."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from eqsat.base.graphs import operands_first
from eqsat.base.numerics import itemsize
from eqsat.gpu.code.c_writer import Region, Value
from eqsat.gpu.code.errors import NotLowerable
from eqsat.gpu.code.index import Index, Var, through
from eqsat.gpu.code.output_places import places
from eqsat.gpu.code.scalar import ACCESS_BYTES, COMPUTE, Lanes, Lowering, Special, Traffic, at_place, literal, stored
from eqsat.gpu.families.base import Job
from eqsat.gpu.families.contraction.epilogue import scaled
from eqsat.gpu.families.held import Factor, element_key, elements_of
from eqsat.gpu.families.row.passes import WIDTHS, Writes, evaluated
from eqsat.gpu.table.limits import KEPT_REGISTERS
from eqsat.gpu.table.streams import StreamTile
from eqsat.layout.arithmetic import strided
from eqsat.program.core import Node
from eqsat.streams.stream import Accumulator, Statistic, Stream, element_beside

_SUM = "float"
"""C type of totals."""

_BLOCK_OF_ALL_COLUMNS = "tile_n == 0"
"""The blocks that write what does not depend on the columns of products."""


@dataclass(frozen=True)
class Total:
    """A total of a row while it grows.

    Attributes:
        place: among the totals of the stream; `operator` is its struct.
        factor: C name of what it is multiplied by before a tile's elements are added; None for nothing.
        at_once: whether every thread of the row needs it after each tile.
        finish: statements that multiply it by its scale when the walk ends.
    """

    place: int
    operator: str
    factor: str | None
    at_once: bool
    finish: str

    @property
    def name(self) -> str:
        """Its C name."""
        return _total(self.place)

    @property
    def before(self) -> str:
        """C name of its value before the tile."""
        return _before(self.name)

    @property
    def bounded(self) -> str:
        """C name of a growing maximum or minimum inside elements: 0 until there is one."""
        return _bounded(self.name)


@dataclass(frozen=True)
class Made:
    """A statistic, written out.

    Attributes:
        name: C name of its value, or of the values of a tile.
        operator: the struct that joins elements; `vectors` are how many runs of elements it joins.
        body: statements that join the elements of run `q` to `part`.
    """

    name: str
    operator: str
    vectors: int
    body: str


@dataclass
class Read:
    """What is made for a whole tile before its elements are computed, by number, in the order of first use."""

    scores: dict[int, None] = field(default_factory=dict)
    statistics: dict[int, None] = field(default_factory=dict)

    def add(self, other: Read) -> None:
        """Include what another reads."""
        self.scores |= other.scores
        self.statistics |= other.statistics


@dataclass(frozen=True)
class Turn:
    """One evaluation of a tile's elements.

    Attributes:
        factors: (C name, C expression) of corrections that take effect here.
        body: statements for elements `width * q + u`, i counting this thread's vectors.
        read: the inner products and the statistics of the axis that it reads.
        only: the C condition on blocks; '' for all.
    """

    totals: list[Total]
    factors: list[tuple[str, str]]
    body: str
    read: Read
    only: str = ""


@dataclass(frozen=True)
class Pass:
    """One walk along the axis.

    Attributes:
        read: what is made for each tile of it.
        kept: (C type, name) of what the first turn leaves in registers for the second.
    """

    turns: list[Turn]
    read: Read
    kept: list[tuple[str, str]]

    @property
    def totals(self) -> list[Total]:
        """The totals that it finishes, in the order in which they may need each other."""
        return sorted((x for turn in self.turns for x in turn.totals), key=lambda x: x.place)


class Walk:
    """A stream, written out for a tile and a vector width.

    Attributes:
        elements: the left operands of products, each with its corrections, and `names` their C names.
        traffic: counts load instructions.
    """

    def __init__(self, job: Job, stream: Stream, tile: StreamTile, lanes: int, width: int) -> None:
        self.job, self.stream, self.tile, self.lanes, self.width = job, stream, tile, lanes, width
        self.totals = [x.node for x in stream.totals]
        self.elements = elements_of(stream)
        self.traffic = Traffic()
        self.b, self.line = Var("b", stream.batch), Var("line", stream.rows)
        self.q, self.u = Var("q", stream.length // width), Var("u", width)
        self.row = Index.along(self.b) * stream.rows + Index.along(self.line)
        self.natural = self.row * stream.length + Index.along(self.q) * width + Index.of(self.u)

    @property
    def steps(self) -> int:
        """Vectors of a thread in a tile."""
        return self.tile.step // self.lanes // self.width

    def _kept(self, i: int) -> list[Node]:
        """What the second turn of pass i takes from registers: computed in the first, and not under another."""
        first, second = (self._roots(i, corrected) for corrected in (False, True))
        earlier = {n for n in evaluated(self.job.inputs, first, ()) if self._is_element(n)}
        found = [n for n in evaluated(self.job.inputs, second, earlier) if n in earlier]
        return found[: KEPT_REGISTERS // (self.steps * self.width)]

    def _is_element(self, node: Node) -> bool:
        """Whether a node is worth keeping: it has a value of its own for each element."""
        rows = self.stream.batch * self.stream.rows
        spread = strided(0, ((rows, 1), (self.stream.length, 0)))
        return node.size == rows * self.stream.length and node.op != "Full" and node.attrs[:1] != (spread,)

    @cached_property
    def passes(self) -> list[Pass]:
        """All walks. Outputs at the elements are written on the last."""
        found = []
        for i in range(self.stream.passes):
            turns = [self._turn(i, corrected) for corrected in (False, True)]
            if i == self.stream.passes - 1:
                turns.append(self._writing(beside_of(self.job, self.stream)))
            kept = [(COMPUTE[node.dtype], f"kept{j}") for j, node in enumerate(self._kept(i))]
            used = [turn for turn in turns if turn.body]
            read = Read()
            for turn in used:
                read.add(turn.read)
            found.append(Pass(used, read, kept))
        return found

    @property
    def all_totals(self) -> list[Total]:
        """The totals of the stream."""
        return [total for walked in self.passes for total in walked.totals]

    def _members(self, i: int, corrected: bool) -> list[Accumulator]:
        return [x for x in self.stream.accumulators if x.turn == i and bool(x.corrections) == corrected]

    def _roots(self, i: int, corrected: bool) -> list[Node]:
        return [x.element for x in self._members(i, corrected)]

    # --- turns --------------------------------------------------------------------------------------------------

    def _turn(self, i: int, corrected: bool) -> Turn:
        """The accumulators of a pass that take corrections, or those that do not."""
        members = self._members(i, corrected)
        totals = [self._total(x) for x in members if not x.is_product]
        made = [e for e in self.elements if any(x.is_product and element_key(x) == e for x in members)]
        region = Region([self.b, self.line, self.q], self.job.index_type)
        read = Read()
        with region.unrolled(self.u):
            lowering = self._lowering(region, i, corrected, read)
            for total, x in zip(totals, (x for x in members if not x.is_product), strict=True):
                value = lowering.value(x.element, self.natural).text
                region.statement(f"{_part(total)} = {total.operator}::apply({_part(total)}, {value});")
            for element, factor in made:
                value = lowering.value(element, self.natural).text
                place = self.elements.index((element, factor))
                text = stored(value, element.dtype) if self.tile.sums.unit == "matrix" else value
                region.statement(f"made{place}[i].v[u] = {text};")
            if not corrected:
                for j, node in enumerate(self._kept(i)):
                    value = lowering.value(node, self.natural).text
                    region.statement(f"kept{j}[i].v[u] = {value};")
        return Turn(totals, self._factors(members), region.text, read)

    def _writing(self, outputs: Sequence[Node]) -> Turn:
        """Outputs at the elements themselves."""
        region = Region([self.b, self.line, self.q], self.job.index_type)
        read = Read()
        at = {node: places([node], [element_beside(node)], self.natural)[node] for node in outputs}
        writes = Writes(region, self.job, at, outputs, Lanes(self.u))
        with region.unrolled(self.u):
            writes.each(self._lowering(region, self.stream.passes, False, read))
        writes.whole()
        return Turn([], [], region.text if outputs else "", read, _BLOCK_OF_ALL_COLUMNS)

    def _lowering(self, region: Region, i: int, corrected: bool, read: Read) -> Lowering:
        """What pass i knows; the inner products and statistics that it needs are added to `read`."""
        special: dict[Node, Special] = {}
        for j, x in enumerate(self.stream.totals):
            name = _bounded(_total(j)) if x.turn == i else _total(j)
            special[x.node] = at_place(self.row, partial(Value, name))
        for j, node in enumerate(self.stream.inner):
            special[node] = at_place(self.natural, partial(self._of_tile, f"scores{j}", region, read.scores, j))
        for j, x in enumerate(self.stream.statistics):
            name = _statistic(j)
            of_element = partial(self._of_tile, name, region, read.statistics, j)
            special[x.node] = at_place(self._place_of(x), partial(Value, name) if x.of_rows else of_element)
        if corrected:
            for j, node in enumerate(self._kept(i)):
                special[node] = at_place(self.natural, partial(self._of_lane, f"kept{j}[i]", region))
        return Lowering(region, self.job.leaves, Lanes(self.u), special, traffic=self.traffic)

    def _of_tile(self, run: str, region: Region, read: dict[int, None], j: int) -> Value:
        read[j] = None
        return self._of_lane(run, region)

    def _of_lane(self, run: str, region: Region) -> Value:
        """An element of a vector, known where the loop over its lanes is open: branches open it anew."""
        return Value(f"{run}.v[{self.u}]", region.index(Index.of(self.u)).depth)

    # --- statistics ---------------------------------------------------------------------------------------------

    def _place_of(self, x: Statistic) -> Index:
        """Which of its values this thread's elements take."""
        column = Index.along(self.b) * self.stream.length + Index.along(self.q) * self.width + Index.of(self.u)
        return through(x.at, self.row if x.of_rows else column)[0]

    @cached_property
    def row_statistics(self) -> list[Made]:
        """Those with one value a row."""
        return [self._statistic(j, x) for j, x in enumerate(self.stream.statistics) if x.of_rows]

    @cached_property
    def statistics(self) -> dict[int, Made]:
        """Those with a value for each element of the axis, by number."""
        return {j: self._statistic(j, x) for j, x in enumerate(self.stream.statistics) if not x.of_rows}

    def _statistic(self, j: int, x: Statistic) -> Made:
        """The statistic with the vector width of the fewest loads."""
        length = x.node.attrs[1]
        widest = ACCESS_BYTES // itemsize(x.node.dtype)
        drafts = [(w, *self._joined(x, w)) for w in WIDTHS if length % w == 0 and w <= widest]
        width, body, _ = min(drafts, key=lambda draft: (draft[2] / draft[0], -draft[0]))
        return Made(_statistic(j), _operator(x.node), length // width, body)

    def _joined(self, x: Statistic, width: int) -> tuple[str, int]:
        """Statements that join a run of elements to `part`, and their loads."""
        (element,), length = x.node.args, x.node.attrs[1]
        q, u = Var("q", length // width), Var("u", width)
        column = Var("column", self.stream.length)
        region = Region([self.b, self.line, column, q], self.job.index_type)
        of_element = Index.along(self.b) * self.stream.length + Index.along(column)
        row = through(x.at, self.row if x.of_rows else of_element)[0]
        traffic = Traffic()
        with region.unrolled(u):
            lowering = Lowering(region, self.job.leaves, Lanes(u), traffic=traffic)
            value = lowering.value(element, row * length + Index.along(q) * width + Index.of(u))
            region.statement(f"part = {_operator(x.node)}::apply(part, {value.text});")
        return region.text, traffic.loads

    # --- totals -------------------------------------------------------------------------------------------------

    def _total(self, x: Accumulator) -> Total:
        place = self.totals.index(x.node)
        return Total(
            place=place,
            operator=_operator(x.node),
            factor=_factor(self._all_factors.index(x.corrections)) if x.corrections else None,
            at_once=any(x.node is d for y in self.stream.accumulators for d, _ in y.corrections),
            finish=self._finish(place, x),
        )

    def _finish(self, place: int, x: Accumulator) -> str:
        if x.scale is None:
            return ""
        region = Region([self.b, self.line], self.job.index_type, prefix="w")
        by = self._of_totals(region).value(x.scale, self.row)
        region.statement(f"{_total(place)} = {scaled(_total(place), by.text, x.guarded)};")
        return region.text

    def _of_totals(self, region: Region) -> Lowering:
        special = {node: at_place(self.row, partial(Value, _total(j))) for j, node in enumerate(self.totals)}
        return Lowering(region, self.job.leaves, None, special)

    @cached_property
    def _all_factors(self) -> list[Factor]:
        return list(dict.fromkeys(x.corrections for x in self.stream.accumulators if x.corrections))

    def _factors(self, members: Sequence[Accumulator]) -> list[tuple[str, str]]:
        found = []
        for corrections in dict.fromkeys(x.corrections for x in members if x.corrections):
            parts = [
                f"eq_correction({literal(alpha, 'float32')}, {_before(_total(place))}, {_total(place)})"
                for place, alpha in ((self.totals.index(d), alpha) for d, alpha in corrections)
            ]
            found.append((_factor(self._all_factors.index(corrections)), " * ".join(parts)))
        return found

    @property
    def factor_of_element(self) -> list[str | None]:
        """C name of the correction of what was summed so far, for each of `elements`."""
        return [_factor(self._all_factors.index(factor)) if factor else None for _, factor in self.elements]

    @property
    def factors(self) -> list[str]:
        """C names of all corrections."""
        return [_factor(j) for j in range(len(self._all_factors))]

    @cached_property
    def row_outputs(self) -> str:
        """Statements of one thread a row, for outputs of one element a row."""
        region = Region([self.b, self.line], self.job.index_type, prefix="w")
        lowering = self._of_totals(region)
        for i, node in enumerate(self.job.outputs):
            if node in row_outputs_of(self.job, self.stream):
                above = operands_first([node], [*self.job.inputs, *self.totals])
                place = places([*self.totals, *above], self.totals, self.row)
                lowering.place = place
                value = stored(lowering.value(node, place[node]).text, self.job.dtype(node))
                region.statement(f"out{i}[{region.index(place[node]).text}] = {value};")
        return region.text


def _operator(node: Node) -> str:
    """The struct that joins what a reduction reduces."""
    return f"eq_{node.attrs[0]}_of<{_SUM}>"


def _statistic(j: int) -> str:
    return f"statistic{j}"


def _total(j: int) -> str:
    return f"total{j}"


def _bounded(total: str) -> str:
    return f"{total}_bounded"


def _before(total: str) -> str:
    return f"{total}_before"


def _part(total: Total) -> str:
    return f"{total.name}_part"


def _factor(j: int) -> str:
    return f"factor{j}"


# --- outputs that are no products -------------------------------------------------------------------------------


def _below(node: Node, nodes: Collection[Node], leaves: Collection[Node]) -> list[Node]:
    return [n for n in operands_first([node], leaves) if n in nodes]


def of_products(job: Job, found: Sequence[Stream]) -> list[Node]:
    """The outputs that depend on a product of these walks."""
    products = {x.node for stream in found for x in stream.products}
    return [n for n in job.outputs if _below(n, products, job.inputs)]


def row_outputs_of(job: Job, stream: Stream) -> list[Node]:
    """The outputs of one element a row."""
    totals = {x.node for x in stream.totals}
    others = [n for n in job.outputs if n not in of_products(job, [stream])]
    return [n for n in others if n.size == stream.batch * stream.rows and _below(n, totals, job.inputs)]


def beside_of(job: Job, stream: Stream) -> list[Node]:
    """The outputs at the elements themselves.

    Raises:
        NotLowerable: an output is of no kind.
    """
    done = {*of_products(job, [stream]), *row_outputs_of(job, stream)}
    found = [node for node in job.outputs if node not in done]
    for node in found:
        if node.size != stream.batch * stream.rows * stream.length:
            raise NotLowerable(f"{node!r} has neither the rows nor the elements of the walk")
    return found


def walk(job: Job, stream: Stream, tile: StreamTile, lanes: int) -> Walk:
    """The stream with the vector width of the fewest loads.

    Raises:
        NotLowerable: an element needs others than its own.
    """
    arrays = [n for n in (*job.inputs, *job.outputs) if n.size >= stream.length]
    least = min((itemsize(job.dtype(n)) for n in arrays), default=ACCESS_BYTES)
    legal = [w for w in WIDTHS if stream.length % w == 0 and w * lanes <= tile.step and w * least <= ACCESS_BYTES]
    drafts = [Walk(job, stream, tile, lanes, w) for w in legal]
    for draft in drafts:
        _ = draft.passes
    return min(drafts, key=lambda draft: (draft.traffic.loads / draft.width, -draft.width))
