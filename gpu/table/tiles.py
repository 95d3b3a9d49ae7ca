"""Tiles of a product: the tuning parameters of the contraction family and their legal values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import ceil
from typing import Literal, NamedTuple

from eqsat.base.numerics import itemsize
from eqsat.errors import unknown
from eqsat.gpu.table.targets import Target

FRAGMENT = 16
"""Edge of the fragments that every matrix unit has."""

Unit = Literal["matrix", "vector"]

_RUN = 4
"""Rows (columns) that a thread of the vector path takes side by side: one 16-byte LDS read in float."""

HALF_RATE_EDGE = 16
"""The (harmonic mean) tile edge at which half of the peak is reached: operands are reloaded once a tile."""

_CHUNK_BYTES = 16
"""The longest access of LDS."""

_STAGES, _DEEP_STAGES = 3, 4
"""Tiles of each operand in LDS: more leave room for fewer blocks."""

_BANKS_BYTES = 32 * 4
"""One word of each bank of LDS."""

_LARGEST_WIDE = 64 * 64
"""Elements of a tile of 8-byte sums: more do not fit into registers."""


@dataclass(frozen=True, slots=True)
class Tile:
    """How a block computes its part of a[B, M, K] @ b[B, K, N].

    Attributes:
        unit: 'matrix' for matrix units, 'vector' for fused multiply-adds.
        rows, columns: of the block's tile of the product; `depth` of k that it holds at a time.
        grid_m, grid_n: waves (matrix) or threads (vector) along each edge.
        buffers: LDS copies of the operand tiles; with 2 the next is stored while this one is multiplied.
        fragment: edge of a matrix unit's product. Wide ones read half as many operands from LDS for a sum.
        deep: whether copies of operands run further ahead, in LDS that the launch gives.
        direct: whether operands that are plain arrays go into LDS without registers. The lanes of a wave then fill LDS
            without gaps, so that rows have no padding; the 16-byte chunks of a row are permuted instead (`mixed`).
        grouped: whether four waves multiply 64 rows together and read both operands from LDS (wgmma). `depth` fills the
            banks once, so that rows need no padding: their chunks are permuted in the way that the hardware expects,
            which is that of `mixed`. Fragments lie where those of a single wave would.
        boxed: whether operands of these that are plain arrays come as boxes, copied by one thread (bulk tensor copies).
    """

    unit: Unit
    rows: int
    columns: int
    depth: int
    grid_m: int
    grid_n: int
    buffers: int = 2
    fragment: int = FRAGMENT
    deep: bool = False
    direct: bool = False
    grouped: bool = False
    boxed: bool = False

    @property
    def name(self) -> str:
        wide = str(self.fragment) if self.fragment > FRAGMENT else ""
        kind = "_direct" if self.direct else "_wgmma" if self.grouped else "_deep" if self.deep else ""
        kind += "_bulk" if self.boxed else ""
        return f"{self.unit}{wide}{kind}_{self.rows}x{self.columns}x{self.depth}"

    def threads(self, target: Target) -> int:
        """Threads of a block."""
        return self.grid_m * self.grid_n * (target.wave if self.unit == "matrix" else 1)

    @property
    def each_m(self) -> int:
        """Fragments (matrix) or rows (vector) of a wave or thread."""
        return self.rows // self.grid_m // (self.fragment if self.unit == "matrix" else 1)

    @property
    def each_n(self) -> int:
        """The same along n."""
        return self.columns // self.grid_n // (self.fragment if self.unit == "matrix" else 1)

    @property
    def run_m(self) -> int:
        """Rows side by side of a wave (matrix) or thread. A wide fragment has two such runs, in adjacent strips."""
        return FRAGMENT if self.unit == "matrix" else min(_RUN, self.each_m)

    @property
    def run_n(self) -> int:
        """The same along n."""
        return FRAGMENT if self.unit == "matrix" else min(_RUN, self.each_n)

    @property
    def at_launch(self) -> bool:
        """Whether its LDS may be more than a block has without asking."""
        return self.deep or self.grouped

    @property
    def stages(self) -> int:
        """Most tiles of copied operands in LDS."""
        return _DEEP_STAGES if self.at_launch else _STAGES

    @property
    def multiplied(self) -> int:
        """How many of them are multiplied at a time; the others arrive."""
        return 2 if self.grouped else 1

    def element_bytes(self, dtype: str) -> int:
        """Bytes of an operand element in LDS."""
        return itemsize(dtype) if self.unit == "matrix" else max(4, itemsize(dtype))

    def share(self, target: Target) -> float:
        """The share of its unit's rate that the tile reaches at best."""
        return SINGLE_WAVES if self.unit == "matrix" and target.warpgroups and not self.grouped else 1.0

    @property
    def permuted(self) -> bool:
        """Whether the chunks of a row are permuted, for want of padding."""
        return self.direct or self.grouped

    def padding(self, dtype: str) -> int:
        """Elements between rows in LDS, so that rows start in different banks and stay aligned to 16 bytes."""
        return 0 if self.permuted else _CHUNK_BYTES // self.element_bytes(dtype)

    def mixed(self, dtype: str) -> Mixed:
        """Where the chunks of a row lie in LDS if rows have no padding."""
        size = self.element_bytes(dtype)
        chunks = self.depth * size // _CHUNK_BYTES
        return Mixed(_BANKS_BYTES // (self.depth * size), chunks, _CHUNK_BYTES // size)

    def lds_elements(self, edge: int, dtype: str) -> int:
        """Elements of one operand tile: [edge][depth] for matrix units, [depth][edge] for the vector path."""
        pad = self.padding(dtype)
        return edge * (self.depth + pad) if self.unit == "matrix" else self.depth * (edge + pad)

    def lds_bytes(self, dtype: str) -> int:
        """LDS of the operand tiles."""
        elements = self.lds_elements(self.rows, dtype) + self.lds_elements(self.columns, dtype)
        return self.buffers * elements * self.element_bytes(dtype)


class Mixed(NamedTuple):
    """Chunk c of row r lies in place c ^ (r // rows % chunks) of its row: equal chunks of adjacent rows in all banks.

    Attributes:
        rows: that the banks hold side by side.
        chunks: of a row, a power of two; each has so many `elements`.
    """

    rows: int
    chunks: int
    elements: int


class _Grids(NamedTuple):
    """How a block is laid over its tile, along rows and columns: in waves of matrix units, or in threads."""

    waves_of_64: tuple[int, int] | None
    waves_of_32: tuple[int, int] | None
    threads: tuple[int, int]


SINGLE_WAVES = 0.45
"""The share of a matrix unit's rate that fragments of single waves reach where warpgroups have all of it: of 1024 to
8192 elements along each edge, wgmma took 0.39 to 0.47 times as long as mma.sync on an NVIDIA H200."""

_EDGES: dict[tuple[int, int], _Grids] = {
    (128, 128): _Grids((2, 2), (2, 4), (16, 16)),
    (128, 64): _Grids((2, 2), (4, 2), (16, 16)),
    (64, 128): _Grids((2, 2), (2, 4), (16, 16)),
    (64, 64): _Grids((2, 2), (2, 4), (16, 16)),
    (64, 32): _Grids((2, 2), (4, 2), (16, 8)),
    (32, 64): _Grids((2, 2), (2, 4), (8, 16)),
    (32, 32): _Grids((2, 2), (2, 2), (8, 8)),
    (16, 64): _Grids((1, 4), (1, 4), (4, 16)),
    (64, 16): _Grids((4, 1), (4, 1), (16, 4)),
    (32, 16): _Grids((2, 1), (2, 1), (8, 8)),
    (16, 32): _Grids((1, 2), (1, 2), (8, 8)),
    (16, 16): _Grids((1, 1), (1, 1), (8, 8)),
    (4, 128): _Grids(None, None, (2, 32)),
    (128, 4): _Grids(None, None, (32, 2)),
    (1, 128): _Grids(None, None, (1, 64)),
    (128, 1): _Grids(None, None, (64, 1)),
}
"""Every tile by its rows and columns; those narrower than a fragment run on the vector units alone."""


_GROUPED = ((64, 64), (128, 64), (64, 128), (128, 256), (128, 128))
"""(rows, columns) of tiles that warpgroups compute, 64 rows each: up to 128 sums a thread."""

_GROUPED_LINE_BYTES = 128
"""Of k that such a tile holds at a time: a line of the layout that the hardware permutes over all banks."""


@cache
def legal_tiles(target: Target, dtype: str) -> tuple[Tile, ...]:
    """Every tile that compiles well for operands of a type and fits into LDS; matrix units first where they take it."""
    matrix = tuple(_matrix_tiles(target, dtype)) if dtype in target.matrix_dtypes else ()
    wide = [replace(t, fragment=edge) for edge in target.wide_fragments for t in matrix if _holds_whole(t, edge)]
    direct = [replace(t, direct=True) for t in wide if target.lane_loads and t.buffers == 2]
    grouped = _grouped_tiles(dtype) if target.warpgroups and matrix else ()
    vector = tuple(_vector_tiles(dtype))
    deep = [replace(t, deep=True) for t in (*matrix, *vector) if _holds_few_stages(t, dtype, target)]
    return (*matrix, *wide, *direct, *grouped, *vector, *deep)


def _holds_few_stages(tile: Tile, dtype: str, target: Target) -> bool:
    """Whether static LDS holds fewer copied tiles than would be there, while launches may give more of it."""
    one = tile.lds_bytes(dtype) // tile.buffers
    copied = target.copies and tile.element_bytes(dtype) == itemsize(dtype)
    return copied and target.launch_lds_bytes > 0 and tile.stages * one > target.lds_bytes


def _grouped_tiles(dtype: str) -> Iterator[Tile]:
    depth = _GROUPED_LINE_BYTES // itemsize(dtype)
    for boxed, (rows, columns) in product((False, True), _GROUPED):
        yield Tile("matrix", rows, columns, depth, rows // FRAGMENT, 1, grouped=True, boxed=boxed)


def _holds_whole(tile: Tile, fragment: int) -> bool:
    """Whether each wave's part of a tile is made of whole fragments of such an edge."""
    return tile.rows % (tile.grid_m * fragment) == 0 and tile.columns % (tile.grid_n * fragment) == 0


def _matrix_tiles(target: Target, dtype: str) -> Iterator[Tile]:
    for (rows, columns), grids in _EDGES.items():
        grid = grids.waves_of_64 if target.wave == 64 else grids.waves_of_32
        if grid is None:
            continue
        depth, buffers = (32, 2) if itemsize(dtype) == 2 else (16, 2)
        if rows * columns == 128 * 128 and target.matrix == 90:
            # So that two blocks fit into the 64 KiB of a compute unit.
            depth, buffers = (16, 2) if itemsize(dtype) == 2 else (16, 1)
        yield Tile("matrix", rows, columns, depth, *grid, buffers)


def _vector_tiles(dtype: str) -> Iterator[Tile]:
    for (rows, columns), grids in _EDGES.items():
        if itemsize(dtype) < 8 or rows * columns <= _LARGEST_WIDE:
            yield Tile("vector", rows, columns, 16, *grids.threads)


def ranked_tiles(
    target: Target, dims: tuple[int, int, int, int], dtype: str, units: int, slices: int = 1
) -> list[Tile]:
    """Tiles by when their blocks, one for each slice of k, finish: rounds of blocks times work over efficiency.

    Where matrix units take the type, they do all products but those narrower than half of a fragment. What is
    gained by wide fragments and direct loads is not modelled: of tiles that finish together, those with them follow
    those without. Tiles that come as boxes precede others.
    """
    batch, m, _, n = dims
    tiles = legal_tiles(target, dtype)
    if dtype in target.matrix_dtypes and min(m, n) >= FRAGMENT // 2:
        tiles = [t for t in tiles if t.unit == "matrix"]

    def time(tile: Tile) -> float:
        blocks = batch * ceil(m / tile.rows) * ceil(n / tile.columns) * slices
        edge = mean_edge(tile.rows, tile.columns)
        work = ceil(blocks / units) * tile.rows * tile.columns * (edge + HALF_RATE_EDGE) / edge
        return work / tile.share(target)

    return sorted(tiles, key=lambda tile: (time(tile), not tile.boxed))


def choose_tile(
    target: Target,
    dims: tuple[int, int, int, int],
    dtype: str,
    units: int,
    name: str | None = None,
    slices: int = 1,
) -> Tile:
    """The tile called `name`, else the first of `ranked_tiles`.

    Raises:
        InputError: no tile of that name is legal.
    """
    if name is None:
        return ranked_tiles(target, dims, dtype, units, slices)[0]
    by_name = {t.name: t for t in legal_tiles(target, dtype)}
    if name not in by_name:
        raise unknown("tile", name, by_name)
    return by_name[name]


def mean_edge(rows: int, columns: int) -> float:
    """The harmonic mean of a tile's edges."""
    return 2 * rows * columns / (rows + columns)
