"""Operand tiles copied from global memory to LDS without registers, several steps ahead: by cp.async, or as boxes.

The operand must be a plain array: without a mask, of the element type in LDS, and contiguous along the same axis as its
tile in LDS. Tiles for matrix units may be contiguous along either axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from eqsat.base.numerics import itemsize
from eqsat.gpu.code.c_writer import Region
from eqsat.gpu.code.index import Index, Var, through
from eqsat.gpu.code.scalar import STORAGE, Lanes, runs_along
from eqsat.gpu.families.base import Job
from eqsat.gpu.families.contraction.operands import Side, element_of
from eqsat.gpu.table.targets import Target
from eqsat.gpu.table.tiles import Tile
from eqsat.program.core import Node

_BOX_ALIGNMENT = 16
"""Bytes of which the lines of boxed arrays start at a multiple (CUDA driver API, tensor maps)."""

_MAP_BYTES = 128
"""Of a tensor map, which starts at a multiple of them (PTX ISA, tensormap.replace)."""

_MEETING_BYTES = 8
"""Of an mbarrier."""

_MOST_CONTROL_BYTES = 1024

_BYTES = (16, 8, 4)
"""What one cp.async moves (PTX ISA, cp.async)."""


@dataclass(frozen=True)
class Copy:
    """How the block copies one operand tile.

    Attributes:
        name: 'a' or 'b'.
        edge: rows of a (columns of b) of the tile.
        turned: whether LDS holds [depth][edge], else [edge][depth].
        ld: elements from one line in LDS to the next, and `size` those of the tile.
        run_rows, run_depth: the elements of one copy, `bytes` together; one of the two is 1.
        along_rows: whether neighbouring threads lie along the rows.
        loads: copies of a thread a tile; `chunks` of the whole block.
        address: statements that define `from`, over `b`, `rq` and `kq`.
        guard: the C condition under which it lies inside the operand, 'true' where it always does.
    """

    name: str
    edge: int
    turned: bool
    ld: int
    size: int
    run_rows: int
    run_depth: int
    bytes: int
    along_rows: bool
    loads: int
    chunks: int
    address: str
    guard: str


@dataclass(frozen=True)
class Pipeline:
    """Both operands' copies, how many tiles of each LDS holds, and how many steps `ahead` they are begun."""

    copies: tuple[Copy, Copy]
    stages: int
    ahead: int

    def lds_bytes(self, size: int) -> int:
        """LDS of all tiles, with elements of `size` bytes."""
        return self.stages * sum(copy.size for copy in self.copies) * size


def pipeline(job: Job, target: Target, core: Node, tile: Tile, threads: int) -> Pipeline | None:
    """The copies of a product's operands; None where one cannot be copied, or there is no room for two tiles."""
    if not target.copies or element_of(tile, core.args[0].dtype) != STORAGE[core.args[0].dtype]:
        return None
    batch, m, k, n = core.attrs
    a = _Operand("a", job, core.args[0], (batch, m, k), tile, threads).copy(_BYTES)
    b = _Operand("b", job, core.args[1], (batch, n, k), tile, threads).copy(_BYTES)
    if a is None or b is None:
        return None
    one = (a.size + b.size) * tile.element_bytes(core.args[0].dtype)
    stages = min(tile.stages, (target.most_lds_bytes if tile.at_launch else target.lds_bytes) // one)
    return Pipeline((a, b), stages, stages - tile.multiplied) if stages > tile.multiplied else None


@dataclass(frozen=True)
class Box:
    """How one thread copies an operand tile: in boxes of 64 elements along the axis in which the array is contiguous.

    Attributes:
        name: 'a' or 'b'.
        turned: whether the array, and so LDS, is contiguous along the rows of a (columns of b), else along k.
        columns, rows: of the array [rows][columns] that a block reads, whose rows lie `pitch` elements apart.
        address: statements that define `from`, where it begins, over `b`.
        lines: rows of a box; `boxes` of a tile.
        ld, size: elements of a line in LDS, and of the tile.
    """

    name: str
    turned: bool
    columns: int
    rows: int
    pitch: int
    address: str
    lines: int
    boxes: int
    ld: int
    size: int


class Control(NamedTuple):
    """Bytes of LDS at which a block keeps the maps of its operands, and its meetings; `end` is behind them."""

    maps: int
    meetings: int
    end: int


@dataclass(frozen=True)
class Boxes:
    """Both operands' boxes, and how many tiles of each LDS holds."""

    copies: tuple[Box, Box]
    stages: int

    words = len("ab") * _MAP_BYTES // 4
    """Of the maps of a block, in global memory."""

    def lds_bytes(self, size: int) -> int:
        """LDS of all tiles, with elements of `size` bytes."""
        return self.stages * sum(box.size for box in self.copies) * size

    def control(self, tiles_bytes: int) -> Control:
        """What a block keeps behind its tiles: each stage is met when it is full, and when it is empty."""
        maps = -(-tiles_bytes // _MAP_BYTES) * _MAP_BYTES
        meetings = maps + len(self.copies) * _MAP_BYTES
        return Control(maps, meetings, meetings + 2 * self.stages * _MEETING_BYTES)


def boxes(job: Job, target: Target, core: Node, tile: Tile, threads: int) -> Boxes | None:
    """The boxes of a product's operands; None where one is no array whose lines lie at multiples of 16 bytes."""
    if not tile.boxed:
        return None
    batch, m, k, n = core.attrs
    a = _Operand("a", job, core.args[0], (batch, m, k), tile, threads).box()
    b = _Operand("b", job, core.args[1], (batch, n, k), tile, threads).box()
    if a is None or b is None:
        return None
    one = (a.size + b.size) * tile.element_bytes(core.args[0].dtype)
    return Boxes((a, b), min(tile.stages, (target.most_lds_bytes - _MOST_CONTROL_BYTES) // one))


def direct_load(
    name: Side, job: Job, target: Target, node: Node, dims: tuple[int, int, int], tile: Tile, threads: int
) -> Copy | None:
    """How waves load an operand's tiles into LDS without registers; None where it is no plain array along k.

    Each wave fills a part of LDS without gaps, in the order of its lanes, all of which take part.
    """
    if not tile.direct or node.dtype not in target.matrix_dtypes:
        return None
    copy = _Operand(name, job, node, dims, tile, threads).copy(target.lane_loads)
    return copy if copy and not copy.turned and copy.chunks % threads == 0 else None


@dataclass(frozen=True)
class _Operand:
    """An operand, [batch, rows, depth] (name 'a') or [batch, depth, rows], and the tiles that it is cut into."""

    name: str
    job: Job
    node: Node
    dims: tuple[int, int, int]
    tile: Tile
    threads: int

    @property
    def edge(self) -> int:
        return self.tile.rows if self.name == "a" else self.tile.columns

    def copy(self, sizes: Sequence[int]) -> Copy | None:
        """The copy of the longest runs that there is, of any of these sizes in bytes."""
        return next((copy for run in self._runs(sizes) if (copy := self._of_runs(*run)) is not None), None)

    def box(self) -> Box | None:
        """The boxes that hold its tiles; None where it is no array [rows][depth] or [depth][rows] in memory."""
        batch, rows, depth = self.dims
        b, row, k = Var("b", batch), Var("row", rows), Var("k", depth)
        inner = Index.of(row) * depth + Index.of(k) if self.name == "a" else Index.of(k) * rows + Index.of(row)
        found = _element(self.job, self.node, Index.of(b) * (rows * depth) + inner)
        if found is None or self.job.dtype(found[0]) != self.node.dtype:
            return None
        leaf, index = found
        along_k, along_rows = index.coefficient(k), index.coefficient(row)
        turned = along_rows == 1 and rows > 1
        pitch, columns = (along_k, rows) if turned else (along_rows, depth)
        start = index.without(k).without(row)
        run = _BOX_ALIGNMENT // itemsize(leaf.dtype)
        if pitch is None or pitch < columns or pitch % run or not start.multiple_of(run):
            return None
        if not turned and along_k != 1:
            return None
        line = self.tile.depth
        region = Region([b], self.job.index_type)
        region.statement(
            f"const {STORAGE[leaf.dtype]} *const from = {self.job.leaves[leaf].name} + {region.index(start).text};"
        )
        return Box(
            name=self.name,
            turned=turned,
            columns=columns,
            rows=depth if turned else rows,
            pitch=pitch,
            address=region.text,
            lines=self.tile.depth if turned else self.edge,
            boxes=self.edge // line if turned else 1,
            ld=line,
            size=self.edge * line,
        )

    def _runs(self, sizes: Sequence[int]) -> Iterator[tuple[int, int, bool]]:
        """(rows, k) of a copy, and whether LDS holds the tile along rows; long ones first."""
        _, rows, depth = self.dims
        for bytes_ in sizes:
            width = bytes_ // itemsize(self.node.dtype)
            if width and self.tile.unit == "matrix" and depth % width == 0:
                yield 1, width, False
            if width and rows % width == 0 and self.edge % width == 0:
                yield width, 1, True

    def _of_runs(self, rows: int, depth: int, turned: bool) -> Copy | None:
        """The copy of these runs; None where their elements do not lie side by side in an array."""
        batch, all_rows, all_depth = self.dims
        b, rq, kq = Var("b", batch), Var("rq", all_rows // rows), Var("kq", all_depth // depth)
        lane = Var("u", rows * depth)
        row = Index.of(rq) * rows + (Index.of(lane) if rows > 1 else 0)
        k = Index.of(kq) * depth + (Index.of(lane) if depth > 1 else 0)
        inner = row * all_depth + k if self.name == "a" else k * all_rows + row
        found = _element(self.job, self.node, Index.of(b) * (all_rows * all_depth) + inner)
        if found is None or self.job.dtype(found[0]) != self.node.dtype:
            return None
        leaf, index = found
        if lane.extent > 1 and not runs_along(index, Lanes(lane)):
            return None
        lines, line = (self.tile.depth, self.edge) if turned else (self.edge, self.tile.depth)
        ld = line + self.tile.padding(self.node.dtype)
        chunks = (self.edge // rows) * (self.tile.depth // depth)
        guard = self._guard(rq, kq)
        return Copy(
            name=self.name,
            edge=self.edge,
            turned=turned,
            ld=ld,
            size=lines * ld,
            run_rows=rows,
            run_depth=depth,
            bytes=rows * depth * itemsize(self.node.dtype),
            along_rows=rows > 1 or (depth == 1 and index.coefficient(kq) != 1),
            loads=-(-chunks // self.threads),
            chunks=chunks,
            address=self._address(leaf, index.without(lane), [b, rq, kq], guard),
            guard=guard or "true",
        )

    def _guard(self, rq: Var, kq: Var) -> str:
        _, rows, depth = self.dims
        tests = [f"rq < {rq.extent}"] * bool(rows % self.edge) + [f"kq < {kq.extent}"] * bool(depth % self.tile.depth)
        return " && ".join(tests)

    def _address(self, leaf: Node, index: Index, variables: list[Var], guard: str) -> str:
        region = Region(variables, self.job.index_type)
        place = region.index(index).text
        inside = f"({guard} ? {place} : 0)" if guard else place
        ctype = STORAGE[leaf.dtype]
        region.statement(f"const {ctype} *const from = {self.job.leaves[leaf].name} + {inside};")
        return region.text


def _element(job: Job, node: Node, index: Index) -> tuple[Node, Index] | None:
    """(array, place) of an element that is one of an array, wherever it is; None for any other."""
    while node not in job.leaves:
        if node.op != "V" or node.attrs[0].masked:
            return None
        index, _ = through(node.attrs[0], index)
        (node,) = node.args
    return node, index
