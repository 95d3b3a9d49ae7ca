"""Tiles of a product: the tuning parameters of the contraction family and their legal values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from eqsat.base.numerics import itemsize
from eqsat.errors import unknown
from eqsat.gpu.code.scalar import COMPUTE, STORAGE
from eqsat.gpu.code.targets import Target

FRAGMENT = 16
"""Edge of a matrix-unit tile."""

_RUN = 4
"""Rows (columns) that a thread of the vector path takes side by side: one 16-byte LDS read in float."""

_WARM_UP = 16
"""Tile edge at which half of the peak is reached, as in the cost model: operands are reloaded once a tile."""


@dataclass(frozen=True, slots=True)
class Tile:
    """How a block computes its part of a[B, M, K] @ b[B, K, N].

    Attributes:
        unit: 'matrix' for matrix units, 'vector' for fused multiply-adds.
        rows, columns: of the block's tile of the product; `depth` of k that it holds at a time.
        grid_m, grid_n: waves (matrix) or threads (vector) along each edge.
        buffers: LDS copies of the operand tiles; with 2 the next is stored while this one is multiplied.
    """

    unit: str
    rows: int
    columns: int
    depth: int
    grid_m: int
    grid_n: int
    buffers: int = 2

    @property
    def name(self) -> str:
        return f"{self.unit}_{self.rows}x{self.columns}x{self.depth}"

    def threads(self, target: Target) -> int:
        """Threads of a block."""
        return self.grid_m * self.grid_n * (target.wave if self.unit == "matrix" else 1)

    @property
    def each_m(self) -> int:
        """Fragments (matrix) or rows (vector) of a wave or thread."""
        return self.rows // self.grid_m // (FRAGMENT if self.unit == "matrix" else 1)

    @property
    def each_n(self) -> int:
        """The same along n."""
        return self.columns // self.grid_n // (FRAGMENT if self.unit == "matrix" else 1)

    @property
    def run_m(self) -> int:
        """Rows that belong together in an accumulator: of a fragment, or side by side in a thread."""
        return FRAGMENT if self.unit == "matrix" else min(_RUN, self.each_m)

    @property
    def run_n(self) -> int:
        """The same along n."""
        return FRAGMENT if self.unit == "matrix" else min(_RUN, self.each_n)

    def element(self, dtype: str) -> str:
        """C type of operands in LDS: what the matrix unit takes, or what is computed with."""
        return STORAGE[dtype] if self.unit == "matrix" else COMPUTE[dtype]

    def element_bytes(self, dtype: str) -> int:
        """Bytes of an operand element in LDS."""
        return itemsize(dtype) if self.unit == "matrix" else max(4, itemsize(dtype))

    def padding(self, dtype: str) -> int:
        """Elements between rows in LDS, so that rows start in different banks and stay aligned to 16 bytes."""
        return 16 // self.element_bytes(dtype)

    def lds_elements(self, edge: int, dtype: str) -> int:
        """Elements of one operand tile: [edge][depth] for matrix units, [depth][edge] for the vector path."""
        pad = self.padding(dtype)
        return edge * (self.depth + pad) if self.unit == "matrix" else self.depth * (edge + pad)

    def lds_bytes(self, dtype: str) -> int:
        """LDS of the operand tiles."""
        elements = self.lds_elements(self.rows, dtype) + self.lds_elements(self.columns, dtype)
        return self.buffers * elements * self.element_bytes(dtype)


def legal_tiles(target: Target, dtype: str) -> Iterator[Tile]:
    """Every tile that compiles well for operands of a type; matrix units first where they take it."""
    if dtype in target.matrix_dtypes:
        yield from _matrix_tiles(target, dtype)
    yield from _vector_tiles(dtype)


_WAVE_GRIDS = {  # (rows, columns): waves along each edge, for wave 64 and wave 32
    (128, 128): ((2, 2), (2, 4)),
    (128, 64): ((2, 2), (4, 2)),
    (64, 128): ((2, 2), (2, 4)),
    (64, 64): ((2, 2), (2, 4)),
    (64, 32): ((2, 2), (4, 2)),
    (32, 64): ((2, 2), (2, 4)),
    (32, 32): ((2, 2), (2, 2)),
    (16, 64): ((1, 4), (1, 4)),
    (64, 16): ((4, 1), (4, 1)),
    (32, 16): ((2, 1), (2, 1)),
    (16, 32): ((1, 2), (1, 2)),
    (16, 16): ((1, 1), (1, 1)),
}


def _matrix_tiles(target: Target, dtype: str) -> Iterator[Tile]:
    for (rows, columns), (wide, narrow) in _WAVE_GRIDS.items():
        grid = wide if target.wave == 64 else narrow
        depth, buffers = (32, 2) if itemsize(dtype) == 2 else (16, 2)
        if rows * columns == 128 * 128 and target.matrix == 90:
            # So that two blocks fit into the 64 KiB of a compute unit.
            depth, buffers = (16, 2) if itemsize(dtype) == 2 else (16, 1)
        yield Tile("matrix", rows, columns, depth, *grid, buffers)


def _vector_tiles(dtype: str) -> Iterator[Tile]:
    wide = itemsize(dtype) == 8
    for rows, columns, grid in (
        (128, 128, (16, 16)),
        (128, 64, (16, 16)),
        (64, 128, (16, 16)),
        (64, 64, (16, 16)),
        (64, 32, (16, 8)),
        (32, 64, (8, 16)),
        (32, 32, (8, 8)),
        (16, 64, (4, 16)),
        (64, 16, (16, 4)),
        (32, 16, (8, 8)),
        (16, 32, (8, 8)),
        (16, 16, (8, 8)),
        (4, 128, (2, 32)),
        (128, 4, (32, 2)),
        (1, 128, (1, 64)),
        (128, 1, (64, 1)),
    ):
        if not (wide and rows * columns > 64 * 64):  # eight-byte sums would not fit into registers
            yield Tile("vector", rows, columns, 16, *grid)


def fitting_tiles(target: Target, dtype: str) -> list[Tile]:
    """The legal tiles that fit into the LDS of a target."""
    return [t for t in legal_tiles(target, dtype) if t.lds_bytes(dtype) <= target.lds_bytes]


def ranked_tiles(target: Target, dims: tuple[int, int, int, int], dtype: str, units: int) -> list[Tile]:
    """Tiles by when their blocks finish, by the cost model's measure: rounds of blocks times work over efficiency."""
    batch, m, _, n = dims
    tiles = fitting_tiles(target, dtype)
    if any(t.unit == "matrix" for t in tiles) and min(m, n) >= FRAGMENT // 2:
        tiles = [t for t in tiles if t.unit == "matrix"]

    def time(tile: Tile) -> float:
        blocks = batch * ceil(m / tile.rows) * ceil(n / tile.columns)
        edge = 2 * tile.rows * tile.columns / (tile.rows + tile.columns)
        return ceil(blocks / units) * tile.rows * tile.columns * (edge + _WARM_UP) / edge

    return sorted(tiles, key=time)


def choose_tile(
    target: Target, dims: tuple[int, int, int, int], dtype: str, units: int, name: str | None = None
) -> Tile:
    """The tile called `name`, else the first of `ranked_tiles`.

    Raises:
        InputError: no tile of that name fits.
    """
    if name is None:
        return ranked_tiles(target, dims, dtype, units)[0]
    by_name = {t.name: t for t in fitting_tiles(target, dtype)}
    if name not in by_name:
        raise unknown("tile", name, by_name)
    return by_name[name]
