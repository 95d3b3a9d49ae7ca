"""The cost of a kernel on a device: launch + max(memory time, arithmetic time), in integer picoseconds.

A roofline model with the effects that decide between fused kernels: memory moves whole sectors, uncoalesced reads are
slower, a kernel with few workgroups reaches neither the full bandwidth nor the full rate, and neither does one whose
registers and LDS leave a SIMD a single wave (`occupancy.json`), tiles pad their product, and every tile computes its
prologue again. Bytes are counted by footprint: each element that a view reads counts once.

The constants below are a model, not measurements; each says what it means.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import ceil
from typing import NamedTuple

from eqsat.base.numerics import itemsize
from eqsat.extract.device.table import Device
from eqsat.gpu.table.limits import ATOMIC_DTYPES, K_SLICES, ROW_SLICES, THREADS
from eqsat.gpu.table.occupancy import waves
from eqsat.gpu.table.streams import StreamForm, StreamTile, WalkForm, ranked_streams
from eqsat.gpu.table.targets import TARGETS
from eqsat.gpu.table.tiles import FRAGMENT, HALF_RATE_EDGE, choose_tile, mean_edge
from eqsat.layout.arithmetic import Layout, footprint
from eqsat.streams.masks import Band, steps_taken

SECTOR = 64
"""Smallest memory transfer in bytes (AMD's L2 reads 64 of its 128 byte lines; NVIDIA moves two 32 byte sectors)."""

STRIDED = 1.5
"""Factor on a read whose neighbouring threads read far apart: it goes through the cache, line by line."""

UNALIGNED = 1.1
"""The same for reads of neighbours that cannot be combined into 16 byte vector loads."""

SATURATING_SHARE = 1 / 6
"""The share of a device's units that saturates its memory: one unit reads 40 to 70 bytes per cycle."""

GEMM_SHARE = 0.75
"""The share of the peak that a product reaches with very large tiles; the rest goes to loads, barriers and the edge."""

LIBRARY_SHARE = 0.8
"""The same for the vendor's tuned library."""

LIBRARY_LAUNCHES = 2.0
"""The cost of a library call, in launches: the library chooses a kernel on every call."""

LONE_WAVE = 0.8
"""The share of its rate that a product keeps with only one wave per SIMD: while it waits at a barrier or for operands,
nothing else runs. (An assumption: with two or more waves their phases overlap.)"""

L2_RATE = 3.0
"""The bandwidth of a GPU's L2 cache, in memory bandwidths, where its row has none. (An assumption.)"""

RUNTIME_EDGES = (16, 32, 64, 128)
NARROW_EDGES = (1, 4)
"""Edges of the blocks in which a runtime on a CPU computes a product."""

GROUP_ROW = 1024
"""Elements of a row that keep one workgroup busy."""

PACKING = 10.0
"""The cost of packing a matrix in a CPU runtime, in reads of it from the cache: small strided writes, and allocation.
onnxruntime's [6, 64, 128] @ [6, 128, 64] takes 23 us longer than six products with packed constants."""

LONE_CHANNEL = 6.0
"""The cost of a CPU runtime's products with a vector, one for each of several groups, in arithmetic at the vector rate:
convolutions of each channel by itself. onnxruntime's 3x3 of 144 channels of 56 x 56 takes 1.0 ms."""

BLOCKS_TOGETHER = 2
"""Blocks of a product that a unit holds together. (An assumption.)"""

COMBINE_LAUNCH = 0.5
"""Cost, in launches, of combining the results of workgroups. A reduction of a product clears its output and ends in
atomics. Slices of k are added up by the last workgroup of a tile: a fence, a counter and another read. (An
assumption.)"""

PLAIN_WORK = 2
WORK = {
    **dict.fromkeys(("exp", "log", "rsqrt", "reciprocal"), 20),
    **dict.fromkeys(("div", "mod", "sqrt", "sin", "cos", "sigmoid"), 40),
    **dict.fromkeys(("log1p", "tanh", "erf", "pow"), 60),
}
"""The cost of a function per element, in operations at the peak rate; `PLAIN_WORK` for functions not listed.

The peak counts a multiply-add as two, so an addition takes the time of two. Hardware exponentials, logarithms and
reciprocals run at a sixteenth of it on all of these GPUs, and the other functions are built from them.
"""


class Gemm(NamedTuple):
    """How a product runs.

    Attributes:
        time: picoseconds of its arithmetic; `extra` is the time beyond one launch (for the sum of slices of k).
        tile_m, tile_n: the tile of one workgroup; `groups` is the number of workgroups, a fraction if not all are full.
        slices: number of slices of k.
        launches: with a second one that adds up slices.
    """

    time: float
    extra: float
    tile_m: int
    tile_n: int
    groups: float
    slices: int = 1
    launches: int = 1


class Walk(NamedTuple):
    """What a walk of a stream reads and computes, all passes together.

    Attributes:
        form: its dims, and the totals and products that it keeps on chip.
        depths: of the inner products, each once for every pass that makes it.
        again: bytes that passes before the last read for the left operands, for each block of columns and slice.
        again_work: vector operations of these passes; `left_work` are those of the last, for each block of columns, and
            `right_work` those on the right operands, for each block of rows.
        rescaled: how many of the sums run along under a growing maximum.
        of_elements: (bytes, vector operations) of statistics along the axis, all passes together, for each block.
        divisible: whether slices of the axis may be walked apart.
        bands: the elements that count; steps outside are left out.
    """

    form: WalkForm
    depths: tuple[int, ...]
    again: float
    again_work: float
    left_work: float
    right_work: float
    rescaled: int
    divisible: bool
    bands: tuple[Band, ...] = ()
    of_elements: tuple[float, float] = (0.0, 0.0)


class Run(NamedTuple):
    """The cost of a kernel of a plan.

    Attributes:
        price: picoseconds, including every launch.
        launches: number of launches.
        slices: number of slices of sums over k or over a row; 1 for kernels without such sums.
    """

    price: int
    launches: int = 1
    slices: int = 1


class Prices:
    """Prices of kernels on one device; `exact` kernels sum in a fixed order, without atomics."""

    def __init__(self, device: Device, exact: bool = False) -> None:
        self.device, self.exact = device, exact
        self.launch = round(device.launch_us.value * 1e6)
        self.by_runtime = bool(device.runtime)
        """Whether a runtime executes the kernels: prices of products are then of its own."""
        self._units = int(device.units.value)
        self._saturating = self._units * SATURATING_SHARE
        self._target = TARGETS.get(device.arch)
        self._bytes_per_ps = device.bandwidth.value * device.achieved.value * 1e-3
        self._cached_bytes = device.cache_mib.value * 2**20 if device.cache_mib else 0.0
        cached = device.cache_bandwidth
        self._cached_bytes_per_ps = cached.value * 1e-3 if cached else self._bytes_per_ps
        l2 = device.l2_bandwidth
        self._l2_bytes_per_ps = (l2.value if l2 else L2_RATE * device.bandwidth.value) * 1e-3
        self._step_ps = {kind: figure.value * 1e6 for kind, figure in device.step_us.items()}
        self._vector = {dtype: figure.value for dtype, figure in device.vector.items()}
        self._tiles: dict[tuple[StreamForm, str], list[StreamTile]] = {}
        self._ways: dict[tuple[int, int, int, int, str], tuple[Gemm, ...]] = {}
        self._tiled: dict[tuple[int, int, int, int, str, int], Gemm] = {}

    def kernel(self, bytes_moved: float, arithmetic: float, groups: float, streamed: float = 0.0) -> int:
        """A kernel that moves `bytes_moved` bytes and computes for `arithmetic` picoseconds in `groups` workgroups.

        `streamed` bytes, the operands of products, always come from memory and not from the cache.
        """
        share = min(1.0, groups / self._saturating)
        cached = min(bytes_moved, self._cached_bytes)
        moving = cached / self._cached_bytes_per_ps + (bytes_moved - cached + streamed) / self._bytes_per_ps
        return self.launch + round(max(moving / share, arithmetic))

    def vector(self, work: float, groups: float, dtype: str = "float32") -> float:
        """Picoseconds of `work` operations on the vector units, spread over `groups` workgroups."""
        rate = self._vector.get(dtype, self._vector["float32"])
        return work / (rate * min(1.0, groups / self._units))

    def epilogue(self, work: float, size: int, groups: float, dtype: str = "float32") -> float:
        """Picoseconds of `work` on `size` elements of a product: many workgroups with few elements each idle."""
        return self.vector(work, min(groups, max(1.0, size / THREADS)), dtype)

    def pointwise(self, size: int, bytes_moved: float, work: float, dtype: str = "float32") -> int:
        """A map over `size` elements."""
        groups = max(1.0, size / THREADS)
        return self.kernel(bytes_moved, self.vector(work, groups, dtype), groups)

    def rows(
        self,
        rows: int,
        columns: int,
        bytes_moved: float,
        work: float,
        on_chip: bool,
        dtype: str = "float32",
        divided: bool = False,
    ) -> Run:
        """A kernel over `rows` rows; a workgroup takes several rows if they are short.

        A workgroup holds an `on_chip` row (a row kernel). Otherwise, if there are few long rows, they may be split into
        slices, which a second launch reduces. With `divided`, the slices must divide the row evenly.
        """
        groups = max(1.0, rows * min(1.0, columns / GROUP_ROW))
        whole = Run(self.kernel(bytes_moved, self.vector(work, groups, dtype), groups))
        slices = 1 if on_chip else ROW_SLICES.slices(self._units, rows, columns)
        if divided:
            slices = next(n for n in range(slices, 0, -1) if columns % n == 0)
        if slices == 1:
            return whole
        groups *= slices
        price = self.launch + self.kernel(bytes_moved, self.vector(work, groups, dtype), groups)
        return min(whole, Run(price, 2, slices))

    def row_fits(self, columns: int, itemsize: int) -> bool:
        """Whether a row of this length can be held on chip by one workgroup."""
        return columns * itemsize <= self.device.local_kib.value * 1024

    def combine(self, dtype: str) -> Run:
        """The extra cost if several workgroups reduce a product into one output: a fill, or another launch."""
        if dtype in ATOMIC_DTYPES and not self.exact:
            return Run(round(COMBINE_LAUNCH * self.launch), 0)
        return Run(self.launch)

    def library(self, b: int, m: int, k: int, n: int, dtype: str, bytes_moved: float) -> int:
        """The same product by the vendor's library, which reads and writes plain arrays."""
        gemm = self.gemm(b, m, k, n, dtype)
        launches = LIBRARY_LAUNCHES if self.device.fuses else 1.0
        kernel = self.kernel(0.0, gemm.time * GEMM_SHARE / LIBRARY_SHARE, gemm.groups, streamed=bytes_moved)
        return kernel + round((launches - 1) * self.launch + gemm.extra)

    def gemm(self, b: int, m: int, k: int, n: int, dtype: str) -> Gemm:
        """The best way to run a[b, m, k] @ b[b, k, n], without loads."""
        return min(self.ways(b, m, k, n, dtype), key=lambda way: (way.time + way.extra, way))

    def ways(self, b: int, m: int, k: int, n: int, dtype: str) -> tuple[Gemm, ...]:
        """The ways to run a product: in one launch, and in slices of k if one launch leaves units idle."""
        key = (b, m, k, n, dtype)
        found = self._ways.get(key)
        if found is None:
            if 1 in (m, n):
                found = self._sums(b * m * n, k, dtype, LONE_CHANNEL if self._target is None and b > 1 else 1.0)
            else:
                whole = self.tiled(b, m, k, n, dtype)
                most = K_SLICES.slices(self._units, 1, k) if self.device.fuses else 1
                sliced = [self.tiled(b, m, k, n, dtype, slices) for slices in range(2, most + 1)]
                best = min(sliced, key=lambda way: way.time + way.extra, default=whole)
                found = (whole, best) if best.time + best.extra < whole.time else (whole,)
            self._ways[key] = found
        return found

    def _sums(self, rows: int, k: int, dtype: str, times: float) -> tuple[Gemm, ...]:
        """A product with a vector: each element is the sum of a row, so tiles of outputs would be empty."""
        groups = max(1.0, rows * min(1.0, k / GROUP_ROW))
        whole = Gemm(times * self.vector(2.0 * rows * k, groups, dtype), 0.0, 1, 1, groups)
        slices = ROW_SLICES.slices(self._units, rows, k) if self.device.fuses else 1
        if slices == 1:
            return (whole,)
        time = self.vector(2.0 * rows * k, groups * slices, dtype)
        return whole, Gemm(time, float(self.launch), 1, 1, groups * slices, slices, launches=2)

    def tiled(self, b: int, m: int, k: int, n: int, dtype: str, slices: int = 1) -> Gemm:
        """A product in tiles, one for each workgroup, with k split into `slices`."""
        key = (b, m, k, n, dtype, slices)
        found = self._tiled.get(key)
        if found is None:
            found = self._tiled[key] = self._in_tiles(b, m, k, n, dtype, slices)
        return found

    def _in_tiles(self, b: int, m: int, k: int, n: int, dtype: str, slices: int) -> Gemm:
        if self._target is None:
            return self._by_runtime(b, m, k, n, dtype)
        tile = choose_tile(self._target, (b, m, k, n), dtype, self._units, slices=slices)
        tm, tn = tile.rows, tile.columns
        groups = b * ceil(m / tm) * ceil(n / tn) * slices
        depth = ceil(k / slices / FRAGMENT) * FRAGMENT
        share = tile.share(self._target) * (LONE_WAVE if waves(self._target.arch, tile, dtype) == 1 else 1.0)
        rate = self._rate(dtype, tile.unit == "matrix") * _efficiency(tm, tn) * share / self._units
        time = ceil(groups / self._units) * 2 * tm * tn * depth / rate
        time += self._waits(tile.unit, groups, ceil(depth / tile.depth))
        partial = 2.0 * 4 * slices * b * m * n / self._bytes_per_ps
        joining = COMBINE_LAUNCH * self.launch + partial if slices > 1 else 0.0
        return Gemm(time, joining, tm, tn, groups, slices)

    def streamed(self, b: int, m: int, n: int, dtype: str, walks: Sequence[Walk]) -> tuple[Gemm, ...]:
        """The ways to run a stream of b * m rows and n columns: in one launch, and in slices of the axis if one launch
        leaves units idle; none if no block can hold what it keeps."""
        if self._target is None:
            return ()
        form = StreamForm((b, m, n), tuple(walk.form for walk in walks))
        key = form, dtype
        if key not in self._tiles:
            self._tiles[key] = ranked_streams(self._target, form, dtype, self._units)
        tiles = self._tiles[key]
        if not tiles:
            return ()
        divisible = len(walks) == 1 and walks[0].divisible and not self.exact
        slices = tiles[0].slices(form, self._units) if divisible else 1
        return tuple(self._in_blocks(form, walks, tiles[0], dtype, n) for n in sorted({1, slices}))

    def _in_blocks(self, form: StreamForm, walks: Sequence[Walk], tile: StreamTile, dtype: str, slices: int) -> Gemm:
        """A stream in blocks of rows, each of which keeps some columns of every product for a slice of the axis."""
        time = sum(self._walked(form, walk, tile, dtype, slices) for walk in walks)
        extra = sum(self._joining(form, walk, slices) for walk in walks) if slices > 1 else 0.0
        return Gemm(time, extra, tile.rows, tile.columns, tile.blocks(form) * slices, slices, 1 + (slices > 1))

    def _walked(self, form: StreamForm, walk: Walk, tile: StreamTile, dtype: str, slices: int) -> float:
        """Picoseconds of a walk in all blocks.

        That tiles read their operands through the L2 is in the rate of products, as for a product alone. What passes
        before the last and statistics read comes on top, while operators run on the vector units. Blocks of rows that
        take fewer steps make room for others; the longest one bounds the time.
        """
        assert self._target is not None
        b, m, n = form.dims
        rows, columns, step = tile.rows, tile.columns, tile.step
        row_blocks, column_blocks = ceil(m / rows), ceil(n / columns)
        groups = tile.blocks(form) * slices
        all_steps, most = steps_taken(walk.bands, m, walk.form.length, rows, step)
        steps = all_steps / row_blocks
        share = steps / ceil(walk.form.length / step)  # of the elements that are made
        multiplied = walk.form.products * columns / _efficiency(rows, columns)
        multiplied += sum(walk.depths) / _efficiency(rows, step)
        rate = self._rate(dtype, tile.sums.unit == "matrix") * tile.sums.share(self._target) / self._units
        longest = max(ceil(most / slices), ceil(groups / self._units) * ceil(steps / slices))
        products = longest * 2 * rows * step * multiplied / rate
        operands = walk.form.products + sum(ceil(d / tile.scores.depth) for d in walk.depths)
        products += self._waits("stream", groups, ceil(most / slices)) * operands
        rescaling = walk.rescaled * b * m * steps * (work_of("exp", column_blocks) + work_of("mul", n))
        work = (walk.again_work * slices + walk.left_work) * column_blocks + walk.right_work * row_blocks
        read_by_all, work_of_all = walk.of_elements
        work = share * (work + work_of_all * row_blocks * column_blocks) + rescaling
        again = walk.again * slices * column_blocks + share * read_by_all * row_blocks * column_blocks
        reading = again / (self._l2_bytes_per_ps * min(1.0, groups / self._units))
        return products + max(self.vector(work, groups), reading)

    def _waits(self, kind: str, groups: float, steps: int) -> float:
        """Picoseconds that blocks wait for operands in all steps. Blocks on one unit wait at the same time."""
        return ceil(groups / (self._units * BLOCKS_TOGETHER)) * steps * self._step_ps.get(kind, 0.0)

    def _joining(self, form: StreamForm, walk: Walk, slices: int) -> float:
        """Picoseconds of the launch that joins the parts of slices, and of writing and reading these."""
        b, m, n = form.dims
        parts = slices * b * m * (walk.form.products * n + walk.form.totals)
        joined = self.vector(slices * b * m * n * walk.rescaled * work_of("exp", 1), max(1.0, b * m * n / THREADS))
        return self.launch + 2.0 * 4 * parts / self._bytes_per_ps + joined

    def _by_runtime(self, b: int, m: int, k: int, n: int, dtype: str) -> Gemm:
        """A product in a CPU runtime, in the blocks that suit it best."""
        # Runtimes keep a constant matrix packed, but pack each matrix of a batch on every call.
        packing = PACKING * itemsize(dtype) * b * k * n / self._cached_bytes_per_ps if b > 1 else 0.0

        def blocked(tm: int, tn: int) -> Gemm:
            groups = b * ceil(m / tm) * ceil(n / tn)
            rate = self._rate(dtype, True) * _efficiency(tm, tn) / self._units
            depth = ceil(k / FRAGMENT) * FRAGMENT
            return Gemm(ceil(groups / self._units) * 2 * tm * tn * depth / rate, packing, tm, tn, groups)

        return min(blocked(tm, tn) for tm in _edges(m) for tn in _edges(n))

    def _rate(self, dtype: str, fragments: bool) -> float:
        vector = self._vector.get(dtype, self._vector["float32"])
        matrix = self.device.matrix.get(dtype)
        return max(vector, matrix.value) if matrix and fragments else vector


def _efficiency(tm: int, tn: int) -> float:
    """The share of the peak rate that tiles of this size reach."""
    edge = mean_edge(tm, tn)
    return GEMM_SHARE * edge / (edge + HALF_RATE_EDGE)


def _edges(size: int) -> tuple[int, ...]:
    """Block edges worth trying along an axis: narrow blocks only for narrow axes, none twice as long as the axis."""
    edges = (*NARROW_EDGES, *RUNTIME_EDGES) if size < FRAGMENT else RUNTIME_EDGES
    return tuple(edge for edge in edges if edge < 2 * size)


@lru_cache(maxsize=1 << 16)
def read_bytes(layout: Layout, size: int, any_order: bool) -> float:
    """Effective bytes of reading elements of `size` bytes through a layout, once.

    Whole sectors count: a gap shorter than a sector is read with its neighbours. With `any_order`, the kernel may
    traverse the digits in any order, because it stages its reads (operands of products, rows of reductions). Otherwise
    neighbouring threads take neighbouring outputs.
    """
    steps = _steps(layout)
    run = distinct = 1  # elements from the first to the last of a run, and those of them that are read
    for stride, count in sorted((abs(stride), count) for count, stride in steps if stride):
        if (stride - run) * size >= SECTOR:
            break
        run += stride * (count - 1)
        distinct = min(distinct * count, run)
    touched = footprint(layout) / distinct * ceil(run * size / SECTOR) * SECTOR
    return touched * _order(steps, size, any_order)


def _steps(layout: Layout) -> list[tuple[int, int]]:
    """(count, stride) of each digit, outer to inner, including its moves through masked coordinates."""
    steps = []
    for i, (count, stride) in enumerate(layout.dims):
        steps.append((count, stride + sum(axis.stride * axis.coeffs[i] for axis in layout.axes)))
    return steps


def _order(steps: list[tuple[int, int]], size: int, any_order: bool) -> float:
    moving = [(count, abs(stride)) for count, stride in steps if stride]
    if not moving:
        return 1.0
    count, stride = min(moving, key=lambda step: (step[1], -step[0])) if any_order else moving[-1]
    if stride * size >= SECTOR:
        return STRIDED
    return 1.0 if stride == 1 and count * size % 16 == 0 else UNALIGNED


def write_order(layout: Layout, n: int) -> float:
    """Factor on the write time of a product whose output stores [.., m, n] through a bijective layout."""
    if layout.dims == () or layout.dims[-1][1] == 1:
        return 1.0
    return UNALIGNED if layout.dims[-1][1] == n else STRIDED


def work_of(name: str, size: int) -> int:
    """Operations, at the peak rate, of a function applied to `size` elements."""
    return WORK.get(name, PLAIN_WORK) * size
