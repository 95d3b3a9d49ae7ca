"""What a kernel costs on a device: launch + max(memory time, arithmetic time), in integer picoseconds.

A roofline with the effects that decide between fused kernels: whole memory sectors are moved, uncoalesced reads are
slower, a kernel with few workgroups reaches neither the full bandwidth nor the full rate, tiles pad their product, and
a prologue is computed again by every tile that reads it. Bytes are counted by footprint: what a view reads, once.

The constants below are a model, not measurements; each says what it stands for.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil
from typing import NamedTuple

from eqsat.extract.devices import Device
from eqsat.layout import Layout, footprint
from eqsat.numerics import np_dtype

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

TILE_HALF = 16
"""The (harmonic mean) tile edge at which a product runs at half of that share: operands are reloaded once a tile."""

TILES = (16, 32, 64, 128)
NARROW_TILES = (1, 4)
MATRIX_EDGE = 16
"""Edge of a matrix-unit fragment: narrower tiles run on the vector units."""

SLICE_DEPTH = 256
"""The shortest slice of k that a product is cut into where it has few tiles (split-K)."""

MOST_SLICES = 64

GROUP_ELEMENTS = 256
"""Elements that one workgroup of a pointwise kernel handles where there are few, one a thread."""

GROUP_ROW = 1024
"""Elements of a row that keep one workgroup busy."""

PACKING = 10.0
"""What packing a matrix costs a runtime on a CPU, in reads of it from the cache: small strided writes, and allocation.
onnxruntime's [6, 64, 128] @ [6, 128, 64] takes 23 us longer than six products with packed constants."""

COMBINE_LAUNCH = 0.5
"""A reduction that several workgroups share clears its output first and ends in atomics, in launches."""

ATOMIC_DTYPES = frozenset({"float32", "int32"})
"""Types with such atomics; for the others partial results are reduced by a second launch."""

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
    """

    time: float
    extra: float
    tile_m: int
    tile_n: int
    groups: float


class Prices:
    """Prices of kernels on one device."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.launch = round(device.launch_us.value * 1e6)
        self._units = int(device.units.value)
        self._bytes_per_ps = device.bandwidth.value * device.achieved.value * 1e-3
        self._cached_bytes = device.cache_mib.value * 2**20 if device.cache_mib else 0.0
        cached = device.cache_bandwidth
        self._cached_bytes_per_ps = cached.value * 1e-3 if cached else self._bytes_per_ps
        self._gemms: dict[tuple[int, int, int, int, str], Gemm] = {}

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
        return self.vector(work, min(groups, max(1.0, size / GROUP_ELEMENTS)), dtype)

    def pointwise(self, size: int, bytes_moved: float, work: float, dtype: str = "float32") -> int:
        """A map over `size` elements."""
        groups = max(1.0, size / GROUP_ELEMENTS)
        return self.kernel(bytes_moved, self.vector(work, groups, dtype), groups)

    def rows(
        self, rows: int, columns: int, bytes_moved: float, work: float, on_chip: bool, dtype: str = "float32"
    ) -> int:
        """A kernel over `rows` rows: several rows a workgroup where they are short.

        `on_chip` rows are held by one workgroup each (a row kernel); else a long row is shared by several.
        """
        per_row = columns / GROUP_ROW
        if on_chip or per_row <= 1 or rows >= self._units:
            groups = max(1.0, rows * min(1.0, per_row))
            return self.kernel(bytes_moved, self.vector(work, groups, dtype), groups)
        groups = rows * ceil(per_row)
        return self.kernel(bytes_moved, self.vector(work, groups, dtype), groups) + self.combine(dtype)

    def row_fits(self, columns: int, itemsize: int) -> bool:
        """Whether a row of this length can be held on chip by one workgroup."""
        return columns * itemsize <= self.device.local_kib.value * 1024

    def combine(self, dtype: str) -> int:
        """What it adds that several workgroups reduce into one output."""
        return round(COMBINE_LAUNCH * self.launch) if dtype in ATOMIC_DTYPES else self.launch

    def library(self, b: int, m: int, k: int, n: int, dtype: str, bytes_moved: float) -> int:
        """The same product by the vendor's library, which reads and writes plain arrays."""
        gemm = self.gemm(b, m, k, n, dtype)
        launches = LIBRARY_LAUNCHES if self.device.fuses else 1.0
        kernel = self.kernel(0.0, gemm.time * GEMM_SHARE / LIBRARY_SHARE, gemm.groups, streamed=bytes_moved)
        return kernel + round((launches - 1) * self.launch + gemm.extra)

    def gemm(self, b: int, m: int, k: int, n: int, dtype: str) -> Gemm:
        """The best way to run a[b, m, k] @ b[b, k, n], loads aside."""
        key = (b, m, k, n, dtype)
        found = self._gemms.get(key)
        if found is None:
            if 1 in (m, n):
                found = self._sums(b * m * n, k, dtype)
            else:
                tiles = [self._tiled(b, m, k, n, dtype, tm, tn) for tm in _tiles(m) for tn in _tiles(n)]
                found = min(tiles, key=lambda g: (g.time + g.extra, g))
            self._gemms[key] = found
        return found

    def _sums(self, rows: int, k: int, dtype: str) -> Gemm:
        """A product with a vector: each element is the sum of a row, so tiles of outputs would be empty."""
        groups = max(1.0, rows * min(1.0, k / GROUP_ROW))
        return Gemm(self.vector(2.0 * rows * k, groups, dtype), 0.0, 1, 1, groups)

    def _tiled(self, b: int, m: int, k: int, n: int, dtype: str, tm: int, tn: int) -> Gemm:
        groups = b * ceil(m / tm) * ceil(n / tn)
        edge = 2 * tm * tn / (tm + tn)
        fragments = min(tm, tn) >= MATRIX_EDGE or not self.device.fuses
        rate = self._rate(dtype, fragments) * GEMM_SHARE * edge / (edge + TILE_HALF) / self._units

        def sliced(slices: int) -> Gemm:
            depth = ceil(k / slices / MATRIX_EDGE) * MATRIX_EDGE
            time = ceil(groups * slices / self._units) * 2 * tm * tn * depth / rate
            partial = 2.0 * 4 * slices * b * m * n / self._bytes_per_ps
            return Gemm(time, self.launch + partial if slices > 1 else 0.0, tm, tn, groups * slices)

        if not self.device.fuses:
            # Runtimes keep a constant matrix packed for the multiplication, but pack each one of a batch on every call.
            packing = PACKING * itemsize(dtype) * b * k * n / self._cached_bytes_per_ps if b > 1 else 0.0
            return sliced(1)._replace(extra=packing)
        slices = max(1, min(self._units // groups, k // SLICE_DEPTH, MOST_SLICES))
        return min(sliced(1), sliced(slices), key=lambda g: g.time + g.extra)

    def _rate(self, dtype: str, fragments: bool) -> float:
        vector = self.device.vector.get(dtype, self.device.vector["float32"]).value
        matrix = self.device.matrix.get(dtype)
        return max(vector, matrix.value) if matrix and fragments else vector


def _tiles(edge: int) -> tuple[int, ...]:
    """Tile edges worth trying along an axis: narrow ones only where the axis is narrow, none twice as long as it."""
    tiles = (*NARROW_TILES, *TILES) if edge < MATRIX_EDGE else TILES
    return tuple(t for t in tiles if t < 2 * edge)


def itemsize(dtype: str) -> int:
    """Bytes of one element."""
    return _ITEMSIZE.setdefault(dtype, np_dtype(dtype).itemsize)


_ITEMSIZE: dict[str, int] = {}


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
