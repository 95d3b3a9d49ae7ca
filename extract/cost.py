"""What a kernel costs on a device: launch + max(memory time, arithmetic time), in integer picoseconds.

A roofline with the effects that decide between fused kernels: whole memory sectors are moved, uncoalesced reads are
slower, a kernel with few workgroups reaches neither the full bandwidth nor the full rate, nor does one whose registers
and LDS leave a SIMD a single wave (`occupancy.json`), tiles pad their product, and a prologue is computed again by
every tile that reads it. Bytes are counted by footprint: what a view reads, once.

The constants below are a model, not measurements; each says what it stands for.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil
from typing import NamedTuple

from eqsat.base.numerics import itemsize
from eqsat.extract.device.table import Device
from eqsat.gpu.table.limits import ATOMIC_DTYPES, K_SLICES, ROW_SLICES, THREADS
from eqsat.gpu.table.occupancy import waves
from eqsat.gpu.table.targets import TARGETS
from eqsat.gpu.table.tiles import FRAGMENT, HALF_RATE_EDGE, choose_tile, mean_edge
from eqsat.layout.arithmetic import Layout, footprint

SECTOR = 64
"""Bytes that memory moves at least (AMD's L2 reads 64 of its 128 byte lines; NVIDIA moves two 32 byte sectors)."""

STRIDED = 1.5
"""How much longer a read takes when neighbouring threads read far apart: it goes through the cache, line by line."""

UNALIGNED = 1.1
"""The same for reads of neighbours that cannot be joined to 16 byte vector loads."""

SATURATING_SHARE = 1 / 6
"""The share of a device's units that already saturates its memory: one unit draws 40 to 70 bytes a cycle."""

GEMM_SHARE = 0.75
"""The share of the peak that a product reaches with very large tiles; the rest goes to loads, barriers and the edge."""

LIBRARY_SHARE = 0.8
"""The same for the vendor's tuned library."""

LIBRARY_LAUNCHES = 2.0
"""What calling the library costs, in launches: it chooses a kernel on every call."""

LONE_WAVE = 0.8
"""The share of its rate that a product keeps whose SIMDs hold one wave each: while it waits at a barrier or for its
operands, nothing else runs. (An assumption: with two waves or more their phases overlap.)"""

RUNTIME_EDGES = (16, 32, 64, 128)
NARROW_EDGES = (1, 4)
"""Edges of the blocks in which a runtime on a CPU computes a product."""

GROUP_ROW = 1024
"""Elements of a row that keep one workgroup busy."""

PACKING = 10.0
"""What packing a matrix costs a runtime on a CPU, in reads of it from the cache: small strided writes, and allocation.
onnxruntime's [6, 64, 128] @ [6, 128, 64] takes 23 us longer than six products with packed constants."""

COMBINE_LAUNCH = 0.5
"""A reduction of a product that several workgroups share clears its output first and ends in atomics, in launches."""

PLAIN_WORK = 2
WORK = {
    **dict.fromkeys(("exp", "log", "rsqrt", "reciprocal"), 20),
    **dict.fromkeys(("div", "mod", "sqrt", "sin", "cos", "sigmoid"), 40),
    **dict.fromkeys(("log1p", "tanh", "erf", "pow"), 60),
}
"""What one element of a function takes, in operations at the peak rate, and `PLAIN_WORK` for every function not listed.

The peak counts a multiply-add as two, so an addition takes the time of two; hardware exponentials, logarithms and
reciprocals run at a sixteenth of it on all of these GPUs, and the other functions are made of those.
"""


class Gemm(NamedTuple):
    """How a product runs.

    Attributes:
        time: of its arithmetic, and `extra` of what it adds to one launch (the sum of slices of k), picoseconds.
        tile_m, tile_n: of one workgroup; `groups` is how many there are, a fraction where they are not full.
        slices: of k; a second launch adds them up where there are several.
    """

    time: float
    extra: float
    tile_m: int
    tile_n: int
    groups: float
    slices: int = 1


class Run(NamedTuple):
    """What a kernel of a plan costs.

    Attributes:
        price: picoseconds, every launch included.
        launches: how many there are.
        slices: how many the sums over k, or over a row, are cut into; 1 for kernels without any.
    """

    price: int
    launches: int = 1
    slices: int = 1


class Prices:
    """Prices of kernels on one device; `exact` ones sum in a fixed order, so without atomics."""

    def __init__(self, device: Device, exact: bool = False) -> None:
        self.device, self.exact = device, exact
        self.launch = round(device.launch_us.value * 1e6)
        self._units = int(device.units.value)
        self._target = TARGETS.get(device.arch)
        self._bytes_per_ps = device.bandwidth.value * device.achieved.value * 1e-3
        self._cached_bytes = device.cache_mib.value * 2**20 if device.cache_mib else 0.0
        cached = device.cache_bandwidth
        self._cached_bytes_per_ps = cached.value * 1e-3 if cached else self._bytes_per_ps
        self._ways: dict[tuple[int, int, int, int, str], tuple[Gemm, ...]] = {}

    def kernel(self, bytes_moved: float, arithmetic: float, groups: float, streamed: float = 0.0) -> int:
        """A kernel that moves so many bytes and computes for so many picoseconds in `groups` workgroups.

        Bytes that are `streamed`, operands of products, come from memory however they are cut into kernels.
        """
        share = min(1.0, groups / (self._units * SATURATING_SHARE))
        cached = min(bytes_moved, self._cached_bytes)
        moving = cached / self._cached_bytes_per_ps + (bytes_moved - cached + streamed) / self._bytes_per_ps
        return self.launch + round(max(moving / share, arithmetic))

    def vector(self, work: float, groups: float, dtype: str = "float32") -> float:
        """Picoseconds of `work` operations on the vector units, spread over `groups` workgroups."""
        rates = self.device.vector
        rate = rates.get(dtype, rates["float32"]).value
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
        """A kernel over `rows` rows: several rows a workgroup where they are short.

        A workgroup holds an `on_chip` row (a row kernel); else few long rows may be cut into slices, which a second
        launch reduces. Slices are all of one length where they must have `divided` the row evenly.
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
        """What it adds that several workgroups reduce a product into one output: a fill, or another launch."""
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
        """The best way to run a[b, m, k] @ b[b, k, n], loads aside."""
        return min(self.ways(b, m, k, n, dtype), key=lambda way: (way.time + way.extra, way))

    def ways(self, b: int, m: int, k: int, n: int, dtype: str) -> tuple[Gemm, ...]:
        """The ways to run a product: in one launch, and in slices of k where that leaves units without work."""
        key = (b, m, k, n, dtype)
        found = self._ways.get(key)
        if found is None:
            if 1 in (m, n):
                found = self._sums(b * m * n, k, dtype)
            else:
                whole = self.tiled(b, m, k, n, dtype)
                slices = K_SLICES.slices(self._units, int(whole.groups), k) if self.device.fuses else 1
                found = (whole,) if slices == 1 else (whole, self.tiled(b, m, k, n, dtype, slices))
            self._ways[key] = found
        return found

    def _sums(self, rows: int, k: int, dtype: str) -> tuple[Gemm, ...]:
        """A product with a vector: each element is the sum of a row, so tiles of outputs would be empty."""
        groups = max(1.0, rows * min(1.0, k / GROUP_ROW))
        whole = Gemm(self.vector(2.0 * rows * k, groups, dtype), 0.0, 1, 1, groups)
        slices = ROW_SLICES.slices(self._units, rows, k) if self.device.fuses else 1
        if slices == 1:
            return (whole,)
        time = self.vector(2.0 * rows * k, groups * slices, dtype)
        return whole, Gemm(time, float(self.launch), 1, 1, groups * slices, slices)

    def tiled(self, b: int, m: int, k: int, n: int, dtype: str, slices: int = 1) -> Gemm:
        """A product in tiles, one for each workgroup, with k cut into so many slices."""
        if self._target is None:
            return self._by_runtime(b, m, k, n, dtype)
        tile = choose_tile(self._target, (b, m, k, n), dtype, self._units)
        tm, tn = tile.rows, tile.columns
        groups = b * ceil(m / tm) * ceil(n / tn) * slices
        depth = ceil(k / slices / FRAGMENT) * FRAGMENT
        share = LONE_WAVE if waves(self._target.arch, tile, dtype) == 1 else 1.0
        rate = self._rate(dtype, tile.unit == "matrix") * _efficiency(tm, tn) * share / self._units
        time = ceil(groups / self._units) * 2 * tm * tn * depth / rate
        partial = 2.0 * 4 * slices * b * m * n / self._bytes_per_ps
        return Gemm(time, self.launch + partial if slices > 1 else 0.0, tm, tn, groups, slices)

    def _by_runtime(self, b: int, m: int, k: int, n: int, dtype: str) -> Gemm:
        """A product by a runtime on a CPU, in whatever blocks suit it."""
        # Runtimes keep a constant matrix packed for the multiplication, but pack each one of a batch on every call.
        packing = PACKING * itemsize(dtype) * b * k * n / self._cached_bytes_per_ps if b > 1 else 0.0

        def blocked(tm: int, tn: int) -> Gemm:
            groups = b * ceil(m / tm) * ceil(n / tn)
            rate = self._rate(dtype, True) * _efficiency(tm, tn) / self._units
            depth = ceil(k / FRAGMENT) * FRAGMENT
            return Gemm(ceil(groups / self._units) * 2 * tm * tn * depth / rate, packing, tm, tn, groups)

        return min(blocked(tm, tn) for tm in _edges(m) for tn in _edges(n))

    def _rate(self, dtype: str, fragments: bool) -> float:
        vector = self.device.vector.get(dtype, self.device.vector["float32"]).value
        matrix = self.device.matrix.get(dtype)
        return max(vector, matrix.value) if matrix and fragments else vector


def _efficiency(tm: int, tn: int) -> float:
    """The share of the peak rate that tiles of this size reach."""
    edge = mean_edge(tm, tn)
    return GEMM_SHARE * edge / (edge + HALF_RATE_EDGE)


def _edges(size: int) -> tuple[int, ...]:
    """Edges of blocks worth trying along an axis: narrow ones only where the axis is, none twice as long as it."""
    edges = (*NARROW_EDGES, *RUNTIME_EDGES) if size < FRAGMENT else RUNTIME_EDGES
    return tuple(edge for edge in edges if edge < 2 * size)


@lru_cache(maxsize=1 << 16)
def read_bytes(layout: Layout, size: int, any_order: bool) -> float:
    """The bytes that it is worth to read elements of `size` bytes through a layout, once.

    Whole sectors count. `any_order` says that the kernel may walk the digits in any order, because it stages what it
    reads (operands of products, rows of reductions); else neighbouring threads take neighbouring outputs.
    """
    steps = _steps(layout)
    run, extent = 1, 0
    for stride, count in sorted((abs(stride), count) for count, stride in steps if stride):
        if stride > run:
            break
        extent = stride * (count - 1) + run
        run = max(run, extent)
    touched = footprint(layout) / run * ceil(run * size / SECTOR) * SECTOR
    return touched * _order(steps, size, any_order)


def _steps(layout: Layout) -> list[tuple[int, int]]:
    """(count, stride) of each digit, outer to inner; what a digit moves through masked coordinates included."""
    steps = []
    for i, (count, stride) in enumerate(layout.dims):
        steps.append((count, stride + sum(axis.stride * axis.coeffs[i] for axis in layout.axes)))
    return steps


def _order(steps: list[tuple[int, int]], size: int, any_order: bool) -> float:
    moving = [(count, abs(stride)) for count, stride in steps if stride]
    if not moving:
        return 1.0
    unit = max((count for count, stride in moving if stride == 1), default=0) if any_order else 0
    if not any_order and moving[-1][1] == 1:
        unit = moving[-1][0]
    if unit == 0:
        return STRIDED
    return 1.0 if unit * size % 16 == 0 else UNALIGNED


def write_order(layout: Layout, n: int) -> float:
    """How much longer a product takes to write when its output holds [.., m, n] through a bijective layout."""
    if layout.dims == () or layout.dims[-1][1] == 1:
        return 1.0
    return UNALIGNED if layout.dims[-1][1] == n else STRIDED


def work_of(name: str, size: int) -> int:
    """Operations, at the peak rate, of a function applied to `size` elements."""
    return WORK.get(name, PLAIN_WORK) * size
