"""From sums to outputs: the pointwise operators after a product, its writes, and reductions along one of its edges.

Sums go through LDS in strips, so that neighbouring threads hold neighbouring outputs whatever the accumulator layout
is. A strip has a major edge, a thread group to each line of it, and a minor edge, along which vectors run and
reductions go: rows and columns of the product, or the other way round where outputs are written transposed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from eqsat.core import Node
from eqsat.gpu.errors import NotLowerable
from eqsat.gpu.families.base import Job
from eqsat.gpu.families.contraction.tiles import Tile
from eqsat.gpu.index import Index, Var
from eqsat.gpu.region import Region, Value
from eqsat.gpu.scalar import ACCESS_BYTES, COMPUTE, STORAGE, Lanes, Lowering, Special, Traffic, runs_along, stored
from eqsat.gpu.spine import places
from eqsat.numerics import itemsize

LANES = 16
"""Threads that take one line of a strip together: what four DPP rotations reduce."""

_WIDTHS = (8, 4, 2, 1)


@dataclass(frozen=True)
class Reduction:
    """A reduction of the product along the minor edge: sum, max or min.

    Attributes:
        output: position among the kernel's outputs; `node` is the reduction.
        operator: its C++ struct, `ctype` of partial values; `storage` of the output in memory.
        line: C expression of the reduced element that a line belongs to.
        final: whether one block holds whole lines, so that nothing is left to combine.
    """

    output: int
    node: Node
    operator: str
    ctype: str
    storage: str
    line: str
    final: bool


@dataclass(frozen=True)
class Epilogue:
    """How a block finishes.

    Attributes:
        major: 'm' or 'n'.
        major_size, minor_size: of the product along the two edges.
        strips: a block writes its sums in so many parts of [strip_major][strip_minor].
        width: neighbouring elements that a thread takes along the minor edge.
        lanes: threads of a line; `body` handles the elements `width * q + u` of line `line`.
        line_text: statements that define the reductions' places, over `line`.
        reductions: what is reduced; empty for none.
    """

    major: str
    major_size: int
    minor_size: int
    strip_major: int
    strip_minor: int
    strips: int
    width: int
    lanes: int
    body: str
    line_text: str
    reductions: Sequence[Reduction]


@dataclass(frozen=True)
class _Draft:
    epilogue: Epilogue
    accesses: float


def epilogue(job: Job, core: Node, tile: Tile) -> Epilogue:
    """The cheapest of both orientations that the outputs allow.

    Raises:
        NotLowerable: no orientation can express the outputs.
    """
    found: list[_Draft] = []
    failures = []
    for major in ("m", "n"):
        try:
            found.append(_draft(job, core, tile, major))
        except NotLowerable as failure:
            failures.append(failure)
    if not found:
        raise failures[0]
    return min(found, key=lambda draft: draft.accesses).epilogue


def _draft(job: Job, core: Node, tile: Tile, major: str) -> _Draft:
    _, m, _, n = core.attrs
    major_size, minor_size = (m, n) if major == "m" else (n, m)
    strip = (tile.grid_m * tile.run_m, tile.columns) if major == "m" else (tile.grid_n * tile.run_n, tile.rows)
    strips = (tile.rows if major == "m" else tile.columns) // strip[0]
    drafts = []
    for width in _WIDTHS:
        if minor_size % width == 0 and width * _narrowest(job) <= ACCESS_BYTES and width <= strip[1]:
            lanes = min(LANES, strip[1] // width)
            body, line_text, reductions, accesses = _body(job, core, major, width, tile)
            made = Epilogue(major, major_size, minor_size, *strip, strips, width, lanes, body, line_text, reductions)
            drafts.append(_Draft(made, accesses / width))
    return min(drafts, key=lambda draft: (draft.accesses, -draft.epilogue.width))


def _narrowest(job: Job) -> int:
    return min(itemsize(job.dtype(node)) for node in job.outputs)


def _body(
    job: Job, core: Node, major: str, width: int, tile: Tile
) -> tuple[str, str, list[Reduction], float]:
    """(statements of a run, statements of a line, reductions, memory accesses of a run)."""
    batch, m, _, n = core.attrs
    b, u = Var("b", batch), Var("u", width)
    line = Var("line", m if major == "m" else n)
    q = Var("q", (n if major == "m" else m) // width)
    minor = Index.of(q) * width + Index.of(u)
    row, column = (Index.of(line), minor) if major == "m" else (minor, Index.of(line))
    place = places(job.nodes, core, Index.of(b) * (m * n) + row * n + column)
    region = Region([b, line, q], job.index_type)
    traffic = Traffic()
    reductions, stores = [], 0.0
    outputs = [(i, node) for i, node in enumerate(job.outputs)]
    plain = [(i, node) for i, node in outputs if node.op != "Red"]
    as_runs = [(i, node) for i, node in plain if runs_along(place[node], Lanes(u))]
    for i, node in as_runs:
        region.statement(f"eq_run<{STORAGE[job.dtype(node)]}, {width}> run{i};")
    with region.unrolled(u):
        lowering = Lowering(region, job.leaves, Lanes(u), {core: _sum_at(place[core])}, place, traffic)
        for i, node in plain:
            value = stored(lowering.value(node, place[node]).text, job.dtype(node))
            if (i, node) in as_runs:
                region.statement(f"run{i}.v[u] = {value};")
                stores += max(1, width * itemsize(job.dtype(node)) / ACCESS_BYTES) / width
            else:
                region.statement(f"out{i}[{region.index(place[node]).text}] = {value};")
                stores += 1
        for i, node in outputs:
            if node.op == "Red":
                reductions.append(_reduction(job, i, node, place, core, major, tile, (line, u, q)))
                value = lowering.value(node.args[0], place[node.args[0]]).text
                region.statement(f"total{i} = {reductions[-1].operator}::apply(total{i}, {value});")
    for i, node in as_runs:
        region.statement(f"eq_write_run(out{i} + {region.index(place[node].without(u)).text}, run{i});")
    line_region = Region([b, line], job.index_type, prefix="w")
    for reduction in reductions:
        address = line_region.index(place[reduction.node])
        line_region.statement(f"{reduction.line} = {address.text};")
    return region.text, line_region.text, reductions, stores * width + traffic.loads


def _reduction(
    job: Job, i: int, node: Node, place: Mapping[Node, Index], core: Node, major: str, tile: Tile, names: tuple[Var, ...]
) -> Reduction:
    _, m, _, n = core.attrs
    line, u, q = names
    if {u, q} & place[node].variables:
        raise NotLowerable(f"{node!r} does not reduce along one edge of the product")
    kind, length = node.attrs
    minor = n if major == "m" else m
    if length != minor or node.args[0].size != core.size:
        raise NotLowerable(f"{node!r} reduces {length} elements, the product's edge has {minor}")
    ctype = COMPUTE[node.dtype]
    final = ceil(minor / (tile.columns if major == "m" else tile.rows)) == 1
    return Reduction(i, node, f"eq_{kind}_of<{ctype}>", ctype, STORAGE[job.dtype(node)], f"place{i}", final)


def _sum_at(place: Index) -> Special:
    """The product's element, which is known at its own place alone."""

    def value(index: Index) -> Value:
        if index != place:
            raise NotLowerable("an epilogue reads the product elsewhere than where the kernel computes it")
        return Value("sums.v[u]", 1)

    return value
