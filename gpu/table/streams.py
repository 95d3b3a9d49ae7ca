"""Tiles of streaming kernels: rows, columns and steps along the streamed axis of a block, and what it holds on chip."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import ceil, gcd

from eqsat.base.numerics import itemsize
from eqsat.gpu.table.limits import STREAM_SLICES
from eqsat.gpu.table.targets import Target
from eqsat.gpu.table.tiles import FRAGMENT, HALF_RATE_EDGE, Tile, Unit, mean_edge

STREAM_DTYPES = frozenset({"float32", "float16", "bfloat16"})
"""Types that streaming kernels multiply; sums and totals are float32."""

_FLOAT = 4

_SHAPES = ((16, 32, 32), (16, 64, 64), (32, 64, 32), (64, 64, 32), (64, 128, 32), (128, 128, 32))
"""(rows, columns, step) of a block for halves on matrix units. Longer steps leave LDS for fewer blocks, and each thread
more loads, whose conditions spill."""

_SHORT_STEP = 32
"""The step of wider types, and on the vector units."""

_THREADS = 256
"""Most threads of a block."""

_LEAST_THREADS = 64
"""Fewest on the vector units."""

_WAVES_OF_FEW_ROWS = 4
"""Most waves of a block of up to 32 rows: with eight, ptxas takes too few registers for each and spills."""

_SUMS_A_THREAD = 64
"""Most sums in the registers of a thread: with operands and elements beside them, more spill."""

_MOVES_BESIDE_SCORES = 70
"""Most vectors that a thread moves in a step of a walk with inner products. Each has an address and a condition, in
registers beside its elements. An element that it makes counts as `_MADE` of them: it is a score, a value and a result.
Where vectors are single elements, some examples spill in tiles with 74 (128 x 128 in float32 on gfx942), 84 (in halves)
and 76 (16 x 64 on sm_90), and none with up to 68."""

_MADE = 3

_ACCESS_BYTES = 16

_ELEMENT = 64
"""What it takes to make an element of a left operand, in multiply-adds: a read, a few operations on the vector units.
(An assumption.)"""

_STRIP_PADDING = 4
"""Floats between the rows of inner products, so that rows start in different banks."""


@dataclass(frozen=True, slots=True)
class WalkForm:
    """What a walk along an axis holds.

    Attributes:
        length: of the axis.
        depths: the length of each inner product that it makes on the way.
        products: how many sums over the axis, of the kernel's width each.
        elements: how many different left operands these have.
        totals: how many values of each row.
        passes: how often it goes along the axis; each pass makes elements and inner products.
        statistics: how many values of each element of the axis it makes tile by tile.
    """

    length: int
    depths: tuple[int, ...] = ()
    products: int = 1
    elements: int = 1
    totals: int = 0
    passes: int = 1
    statistics: int = 0


@dataclass(frozen=True, slots=True)
class StreamForm:
    """What a streaming kernel holds: its `dims` (batch, rows, width) and its walks, one after another.

    Sums and totals of all walks are kept to the end; what else is in LDS is of one walk at a time.
    """

    dims: tuple[int, int, int]
    walks: tuple[WalkForm, ...]

    @property
    def products(self) -> int:
        """How many sums of `width` columns."""
        return sum(x.products for x in self.walks)

    @property
    def totals(self) -> int:
        """How many values of each row."""
        return sum(x.totals for x in self.walks)


@dataclass(frozen=True, slots=True)
class StreamTile:
    """How a block computes its part of a stream.

    Attributes:
        sums: rows x columns of the products, in steps of k.
        scores: rows x k of the inner products, in steps of their own depth; of as many threads.
    """

    sums: Tile
    scores: Tile

    @property
    def name(self) -> str:
        return f"{self.sums.unit}_{self.rows}x{self.step}x{self.columns}"

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return self.sums.rows

    @property
    def step(self) -> int:
        """Elements of the streamed axis that are on chip at a time."""
        return self.sums.depth

    @property
    def columns(self) -> int:
        """Columns of each product of a block."""
        return self.sums.columns

    def threads(self, target: Target) -> int:
        """Threads of a block."""
        return self.sums.threads(target)

    def lanes(self, target: Target) -> int:
        """Threads of a row where elements are computed."""
        return self.threads(target) // self.rows

    def lanes_of_step(self, target: Target) -> int:
        """Threads of an element of the axis where its statistics are computed."""
        return self.threads(target) // self.step

    def blocks(self, form: StreamForm) -> int:
        """Blocks of a kernel."""
        batch, m, n = form.dims
        return batch * ceil(m / self.rows) * ceil(n / self.columns)

    def slices(self, form: StreamForm, units: int, wanted: int | None = None) -> int:
        """Into how many parts of whole steps the axis of a single walk is cut: as many as `wanted`, or so that no unit
        is idle."""
        (walk,) = form.walks
        steps = ceil(walk.length / self.step)
        most = wanted or STREAM_SLICES.slices(units, self.blocks(form), walk.length)
        return ceil(steps / ceil(steps / min(most, steps)))

    @property
    def scores_ld(self) -> int:
        """Floats from one row of an inner product to the next."""
        return self.step + _STRIP_PADDING

    def lds(self, form: StreamForm, dtype: str) -> tuple[StreamLds, ...]:
        """Where LDS holds what on each walk, for operands of a type.

        Operands of inner products lie where those of the products lie: they are not needed at the same time.
        """
        return tuple(self._lds(walk, form.totals * self.rows * _FLOAT, dtype) for walk in form.walks)

    def _lds(self, walk: WalkForm, factors: int, dtype: str) -> StreamLds:
        of_rows = self.rows * _FLOAT
        of_elements = self.sums.lds_elements(self.rows, dtype) * self.sums.element_bytes(dtype)
        of_values = self.sums.lds_elements(self.columns, dtype) * self.sums.element_bytes(dtype)
        scores = factors + walk.elements * of_rows
        statistics = scores + len(walk.depths) * of_rows * self.scores_ld
        elements = statistics + walk.statistics * self.step * _FLOAT
        operands = elements + walk.elements * of_elements
        staged = self.scores.lds_bytes(dtype) if walk.depths else 0
        end = operands + max(walk.products * of_values, staged)
        return StreamLds(factors, scores, statistics, elements, operands, end)

    def fits(self, form: StreamForm, dtype: str, target: Target) -> bool:
        """Whether LDS and registers hold the stream."""
        sums = form.products * self.rows * self.columns
        in_registers = sums <= _SUMS_A_THREAD * self.threads(target)
        return in_registers and all(x.end <= target.lds_bytes for x in self.lds(form, dtype))

    def is_crowded(self, form: StreamForm, dtype: str, target: Target) -> bool:
        """Whether a thread moves so much at a time that its registers may not hold all of it."""
        return any(
            walk.depths and self._moves(walk, form.dims, dtype, target) > _MOVES_BESIDE_SCORES for walk in form.walks
        )

    def _moves(self, walk: WalkForm, dims: tuple[int, int, int], dtype: str, target: Target) -> int:
        """Vectors of operands, along either edge, that a thread moves in a step, and `_MADE` times elements."""
        threads, depth = self.threads(target), self.scores.depth
        _, m, n = dims

        def moves(elements: int, *edges: int) -> int:
            return ceil(elements / max(_run(edge, dtype) for edge in edges) / threads)

        moved = walk.products * moves(self.step * self.columns, n, walk.length)
        moved += _MADE * walk.elements * moves(self.step * self.rows, walk.length)
        queries = (moves(depth * self.rows, m, d) for d in walk.depths)
        keys = (moves(depth * self.step, walk.length, d) for d in walk.depths)
        return moved + sum(queries) + sum(keys)

    def time(self, form: StreamForm, units: int) -> float:
        """When its blocks finish, to compare tiles by: rounds of blocks times work over efficiency."""
        return ceil(self.blocks(form) / units) * sum(x.length * self._work(x) for x in form.walks)

    def _work(self, walk: WalkForm) -> float:
        """Of a block, for each element of the axis."""
        work = walk.products * self.rows * self.columns * _overhead(self.rows, self.columns)
        return work + walk.passes * self.rows * (sum(walk.depths) * _overhead(self.rows, self.step) + _ELEMENT)


def _run(edge: int, dtype: str) -> int:
    """Elements of the widest vector that divides an edge."""
    return gcd(edge, _ACCESS_BYTES // itemsize(dtype))


def _overhead(rows: int, columns: int) -> float:
    edge = mean_edge(rows, columns)
    return (edge + HALF_RATE_EDGE) / edge


@cache
def legal_streams(target: Target, dtype: str) -> tuple[StreamTile, ...]:
    """Every tile for operands of a type that holds attention; on matrix units where they take the type."""
    unit: Unit = "matrix" if dtype in target.matrix_dtypes else "vector"
    least = StreamForm((1, 1, 1), (WalkForm(1, depths=(1,), totals=2),))
    return tuple(t for t in _tiles(unit, target, dtype) if t.fits(least, dtype, target))


def _tiles(unit: Unit, target: Target, dtype: str) -> Iterator[StreamTile]:
    for rows, columns, longest in _SHAPES:
        step = longest if itemsize(dtype) == 2 and unit == "matrix" else _SHORT_STEP
        depth = 16 if itemsize(dtype) == 4 else 32
        parts = _parts(unit, rows, columns), _parts(unit, rows, step)
        wave = target.wave if unit == "matrix" else 1
        most = min(m * n for m, n in parts) if unit == "matrix" else max(_LEAST_THREADS, rows * columns // 16)
        count = min(most, _THREADS // wave)
        if unit == "matrix" and rows <= 2 * FRAGMENT:
            count = min(count, _WAVES_OF_FEW_ROWS)
        (sums_m, sums_n), (scores_m, scores_n) = (_grid(*edges, count) for edges in parts)
        yield StreamTile(
            Tile(unit, rows, columns, step, sums_m, sums_n, buffers=1),
            Tile(unit, rows, step, depth, scores_m, scores_n, buffers=1),
        )


def _parts(unit: Unit, rows: int, columns: int) -> tuple[int, int]:
    """Of a tile, along both edges: fragments of matrix units, or elements."""
    edge = FRAGMENT if unit == "matrix" else 1
    return rows // edge, columns // edge


def _grid(parts_m: int, parts_n: int, count: int) -> tuple[int, int]:
    """`count` waves or threads over a tile, so that each has a part that is as square as can be."""
    grids = [(m, count // m) for m in (1 << i for i in range(count.bit_length())) if m <= parts_m]
    return min((g for g in grids if g[1] <= parts_n), key=lambda g: (parts_m // g[0] + parts_n // g[1], g))


def ranked_streams(target: Target, form: StreamForm, dtype: str, units: int) -> list[StreamTile]:
    """The tiles that hold a stream, by when their blocks finish, and crowded ones last; empty where none does."""
    if dtype not in STREAM_DTYPES:
        return []
    fitting = [t for t in legal_streams(target, dtype) if t.fits(form, dtype, target)]
    return sorted(fitting, key=lambda t: (t.is_crowded(form, dtype, target), t.time(form, units)))


@dataclass(frozen=True, slots=True)
class StreamLds:
    """Bytes at which parts of LDS begin, after the totals, and where the last one ends.

    Attributes:
        factors: of corrections, [elements][rows]; `scores`, the inner products, [inner][rows][step]; `statistics` of
            the axis, [statistics][step]; `elements`, left operands, and `operands`, all others.
    """

    factors: int
    scores: int
    statistics: int
    elements: int
    operands: int
    end: int
