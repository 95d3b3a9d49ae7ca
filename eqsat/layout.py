"""Layouts: the one view operator of the core, as arithmetic on flat index maps.

``V(a, L)`` reads the flat array ``a`` at ``L.index()``. Transpose, slice, flip, broadcast, pad, window and
diagonal mask are all layouts; reshape is none at all, since arrays are flat. A layout is CuTe's (size, stride)
list with an offset, plus masked coordinates and the fill value of reads outside them (see
:mod:`eqsat.layout_form` for the formula and the canonical form).

    >>> of_transpose((2, 3), (1, 0)).index()
    array([0, 3, 1, 4, 2, 5])
    >>> of_pad((3,), (1,), (1,), 0.0).index()
    array([-1,  0,  1,  2, -1])
    >>> compose(of_transpose((2, 3), (1, 0)), of_transpose((3, 2), (1, 0))) == identity(6)
    True

Every function is pure and cached; shapes are tuples, sizes and strides count elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from eqsat.layout_form import Axis, Dims, canonical

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Fill = float | int | bool | None
"""What a masked layout reads outside its mask, in the type of the array that it views; None without a mask."""

_CACHE = 1 << 17
# Maps longer than this are not enumerated to count what they read; an upper bound stands in.
_COUNTED_LENGTH = 1 << 18


class Layout:
    """An index map from ``size`` outputs to a flat input, always in canonical form: equal maps compare equal.

    Make one with the constructors of this module. ``dims`` are (size, stride) digits outer to inner; ``axes``
    are the masked coordinates, empty for a plain map; fills compare with their type and bits (0 is not 0.0
    nor -0.0, nan is nan). Immutable, hashable, picklable.
    """

    __slots__ = ("_hash", "_identity", "axes", "dims", "fill", "offset", "size")

    offset: int
    dims: Dims
    axes: tuple[Axis, ...]
    fill: Fill
    size: int

    def __init__(self, offset: int, dims: Dims, axes: tuple[Axis, ...] = (), fill: Fill = None) -> None:
        offset, dims, axes = canonical(offset, dims, axes)
        kept = fill if axes else None
        if axes and fill is None:
            raise ValueError("a masked layout needs a fill value")
        identity = (offset, dims, axes, _write_fill(kept))
        for name, value in (
            ("offset", offset),
            ("dims", dims),
            ("axes", axes),
            ("fill", kept),
            ("size", prod(size for size, _ in dims)),
            ("_identity", identity),
            ("_hash", hash(identity)),
        ):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Layout is immutable: cannot set {name}")

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Layout) and self._hash == other._hash and self._identity == other._identity

    def __reduce__(self) -> tuple[type[Layout], tuple[int, Dims, tuple[Axis, ...], Fill]]:
        return Layout, (self.offset, self.dims, self.axes, self.fill)

    def __repr__(self) -> str:
        return f"Layout({self.key()!r})"

    @property
    def masked(self) -> bool:
        """Whether some read is filled."""
        return bool(self.axes)

    @property
    def all_filled(self) -> bool:
        """Whether every read is filled: the view is a constant."""
        return any(axis.bound == 0 for axis in self.axes)

    def is_identity(self, n_in: int) -> bool:
        """Whether the view of an array of ``n_in`` elements is that array."""
        return self.size == n_in and is_contiguous(self) and self.offset == 0

    def key(self) -> str:
        """A text that :meth:`parse` reads back exactly.

        ``offset|size,stride;...`` and, when masked, ``|bound,stride,start,coeffs...;...|fill``.
        """
        text = f"{self.offset}|" + ";".join(f"{size},{stride}" for size, stride in self.dims)
        if not self.axes:
            return text
        axes = ";".join(",".join(map(str, (a.bound, a.stride, a.start, *a.coeffs))) for a in self.axes)
        return f"{text}|{axes}|{_write_fill(self.fill)}"

    @staticmethod
    @lru_cache(maxsize=_CACHE)
    def parse(key: str) -> Layout:
        """The layout with this :meth:`key`."""
        parts = key.split("|")
        dims = tuple((size, stride) for size, stride in map(_integers, filter(None, parts[1].split(";"))))
        if len(parts) == 2:
            return Layout(int(parts[0]), dims)
        axes = tuple(Axis(n, s, c0, tuple(c)) for n, s, c0, *c in map(_integers, parts[2].split(";")))
        return Layout(int(parts[0]), dims, axes, _read_fill(parts[3]))

    def index(self) -> NDArray[np.int64]:
        """The input index of each output, int64[size]; -1 where the fill is read."""
        import numpy as np

        sizes = [size for size, _ in self.dims]
        flat = _affine(self.offset, [stride for _, stride in self.dims], sizes)
        if not self.axes:
            return np.ascontiguousarray(np.broadcast_to(flat, sizes)).reshape(-1)
        valid = np.ones((1,) * len(sizes), dtype=bool)
        for axis in self.axes:
            coordinate = _affine(axis.start, axis.coeffs, sizes)
            flat = flat + axis.stride * coordinate
            valid = valid & (coordinate >= 0) & (coordinate < axis.bound)
        return np.broadcast_to(np.where(valid, flat, -1), sizes).reshape(-1)


def _affine(start: int, coeffs: Sequence[int], sizes: Sequence[int]) -> NDArray[np.int64]:
    """start + sum_i coeffs[i] d[i] over the digits, as an array that broadcasts to ``sizes``."""
    import numpy as np

    total = np.full((1,) * len(sizes), start, dtype=np.int64)
    for i, (coeff, size) in enumerate(zip(coeffs, sizes, strict=True)):
        if coeff:
            steps = coeff * np.arange(size, dtype=np.int64)
            total = total + steps.reshape((size,) + (1,) * (len(sizes) - i - 1))
    return total


def _integers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _write_fill(fill: Fill) -> str:
    if fill is None:
        return ""
    if isinstance(fill, (bool, int)):
        return repr(fill)
    return f"f{float(fill).hex()}"


def _read_fill(text: str) -> Fill:
    if text in ("True", "False"):
        return text == "True"
    return float.fromhex(text[1:]) if text.startswith("f") else int(text)


# --- constructors ---------------------------------------------------------------------------------------------


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous array: (2, 3, 4) -> (12, 4, 1)."""
    return tuple(accumulate(reversed(shape[1:]), lambda stride, size: stride * size, initial=1))[::-1][: len(shape)]


def identity(n: int) -> Layout:
    """The map of an array of n elements to itself."""
    return strided(0, ((n, 1),))


def strided(offset: int, dims: Iterable[tuple[int, int]]) -> Layout:
    """A plain map with (size, stride) digits, outer to inner."""
    return _plain(offset, tuple(dims))


def masked(offset: int, dims: Iterable[tuple[int, int]], axes: Iterable[Axis], fill: Fill) -> Layout:
    """A map with masked coordinates; each axis has one coefficient per digit of ``dims``."""
    return Layout(offset, tuple(dims), tuple(axes), fill)


@lru_cache(maxsize=_CACHE)
def _plain(offset: int, dims: Dims) -> Layout:
    return Layout(offset, dims)


def of_transpose(shape: Sequence[int], perm: Sequence[int]) -> Layout:
    """numpy.transpose(x[shape], perm)."""
    strides = row_major(shape)
    return strided(0, [(shape[i], strides[i]) for i in perm])


def of_slice(shape: Sequence[int], starts: Sequence[int], stops: Sequence[int], steps: Sequence[int]) -> Layout:
    """x[shape][starts[i]:stops[i]:steps[i], ...] with Python's rules; a step may be negative.

    Negative starts and stops are taken literally as range() takes them: stop -1 with step -1 ends after index 0.
    """
    strides = row_major(shape)
    offset, dims = 0, []
    for start, stop, step, stride in zip(starts, stops, steps, strides, strict=True):
        offset += start * stride
        dims.append((len(range(start, stop, step)), step * stride))
    return strided(offset, dims)


def of_broadcast(shape: Sequence[int], out_shape: Sequence[int]) -> Layout:
    """numpy.broadcast_to(x[shape], out_shape)."""
    aligned = (1,) * (len(out_shape) - len(shape)) + tuple(shape)
    strides = row_major(aligned)
    return strided(0, [(n, s if m == n else 0) for n, m, s in zip(out_shape, aligned, strides, strict=True)])


def of_pad(shape: Sequence[int], lo: Sequence[int], hi: Sequence[int], fill: Fill) -> Layout:
    """x[shape] with lo[i] fills before and hi[i] after axis i; negative amounts crop."""
    dims = [(low + n + high, 0) for n, low, high in zip(shape, lo, hi, strict=True)]
    rank = len(shape)
    axes = [
        Axis(n, stride, -low, tuple(int(i == j) for j in range(rank)))
        for i, (n, stride, low) in enumerate(zip(shape, row_major(shape), lo, strict=True))
    ]
    return masked(0, dims, axes, fill)


def windows(
    shape: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    lo: Sequence[int],
    hi: Sequence[int],
    fill: Fill,
    groups: int | None = None,
) -> Layout:
    """Every window of x[n, c, *spatial] padded by lo and hi with ``fill``, in any number of spatial dims.

    Without ``groups`` the output is [n, c, *out, *kernel]: pooling reduces its last axes. With ``groups`` it is
    [groups, n, *out, c / groups, *kernel]: the left operand of convolution as a batched product.
    """
    n, c, *spatial = shape
    steps = row_major(shape)
    out = window_counts(spatial, kernel, strides, dilations, lo, hi)
    if groups is None:
        lead, middle = [(n, steps[0]), (c, steps[1])], []
    else:
        per_group = c // groups
        lead, middle = [(groups, per_group * steps[1]), (n, steps[0])], [(per_group, steps[1])]
    dims = lead + [(size, 0) for size in out] + middle + [(size, 0) for size in kernel]
    first_tap = len(lead) + len(out) + len(middle)
    axes = []
    for i, size in enumerate(spatial):
        coeffs = [0] * len(dims)
        coeffs[len(lead) + i], coeffs[first_tap + i] = strides[i], dilations[i]
        axes.append(Axis(size, steps[2 + i], -lo[i], tuple(coeffs)))
    return masked(0, dims, axes, fill)


def window_counts(
    spatial: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    lo: Sequence[int],
    hi: Sequence[int],
) -> tuple[int, ...]:
    """The number of windows along each spatial dim."""
    rows = zip(spatial, kernel, strides, dilations, lo, hi, strict=True)
    return tuple((n + low + high - (k - 1) * d - 1) // s + 1 for n, k, s, d, low, high in rows)


def conv_weights(shape: Sequence[int], groups: int) -> Layout:
    """w[oc, c/g, *kernel] as the right operand of convolution, [groups, c/g * kernel, oc/groups]."""
    k = prod(shape[1:])
    n = shape[0] // groups
    return strided(0, ((groups, n * k), (k, 1), (n, k)))


def conv_result(n: int, groups: int, out: int, per_group: int) -> Layout:
    """The product [groups, n, out, oc/groups] as the result of convolution, [n, groups, oc/groups, out]."""
    return of_transpose((groups, n, out, per_group), (1, 0, 3, 2))


# --- splitting an index into digits ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Digits:
    """What a layout reads, written in a mixed radix of its input.

    ``sizes`` refines the layout's own digits. Digit j of the input index is
    ``starts[j] + sum_i coeffs[j][i] d[i]`` and, where the read is valid, lies in [low[j], high[j]).
    ``axes`` are the layout's masks over the refined digits, without strides.
    """

    sizes: tuple[int, ...]
    starts: tuple[int, ...]
    coeffs: tuple[tuple[int, ...], ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    axes: tuple[Axis, ...]


class _Part(NamedTuple):
    """A piece of one digit of the map: it moves input digit ``place`` (-1: none) in ``size`` steps of ``step``."""

    place: int
    size: int
    step: int


@lru_cache(maxsize=_CACHE)
def split(layout: Layout, radices: tuple[int, ...]) -> Digits | None:
    """The reads of ``layout`` as digits of an index space with these sizes, outer to inner.

    None when a digit might carry into the next, or when a masked coordinate would spread over two digits:
    the map may then have no such form, or one that this does not find.
    """
    if layout.all_filled or layout.size == 0:
        return None
    runs = list(layout.dims) + [(axis.bound, axis.stride) for axis in layout.axes]
    found = _split_runs(layout.offset, runs, radices)
    if found is None:
        return None
    starts, pieces, low, high = found
    n_dims = len(layout.dims)
    if any(len(parts) > 1 for parts in pieces[n_dims:]):
        return None

    sizes = [part.size for parts in pieces[:n_dims] for part in parts]
    spread = _Spread(pieces[:n_dims])
    coeffs = [[0] * len(sizes) for _ in radices]
    for position, part in enumerate(part for parts in pieces[:n_dims] for part in parts):
        if part.place >= 0:
            coeffs[part.place][position] += part.step
    masks = []
    for axis, (part,) in zip(layout.axes, pieces[n_dims:], strict=True):
        refined = spread.coeffs(axis.coeffs)
        masks.append(Axis(axis.bound, 0, axis.start, refined))
        if part.place >= 0:
            starts[part.place] += part.step * axis.start
            coeffs[part.place] = [x + part.step * y for x, y in zip(coeffs[part.place], refined, strict=True)]
    return Digits(
        sizes=tuple(sizes),
        starts=tuple(starts),
        coeffs=tuple(map(tuple, coeffs)),
        low=tuple(low),
        high=tuple(h + 1 for h in high),
        axes=tuple(masks),
    )


class _Spread:
    """Rewrites coefficients over a layout's digits as coefficients over their pieces."""

    def __init__(self, pieces: Sequence[Sequence[_Part]]) -> None:
        self._weights = []
        for parts in pieces:
            below = accumulate((part.size for part in parts[:0:-1]), lambda x, y: x * y, initial=1)
            self._weights.append(list(below)[::-1])

    def coeffs(self, coeffs: Sequence[int]) -> tuple[int, ...]:
        return tuple(c * weight for c, weights in zip(coeffs, self._weights, strict=True) for weight in weights)


def _split_runs(
    offset: int, runs: Sequence[tuple[int, int]], radices: tuple[int, ...]
) -> tuple[list[int], list[list[_Part]], list[int], list[int]] | None:
    """Write ``offset`` plus independent runs (count, stride) in a mixed radix, so that no digit carries.

    Returns the digits of the offset, the parts of each run (outer to inner), and the least and greatest value of
    each digit. A run with a negative stride is turned round, split, and its steps negated.
    """
    least = offset + sum(stride * (count - 1) for count, stride in runs if stride < 0)
    if least < 0:
        return None
    low = [0] * len(radices)
    for j in reversed(range(len(radices))):
        least, low[j] = divmod(least, radices[j])
    if least:
        return None
    high = list(low)
    starts = list(low)
    pieces = []
    for count, stride in runs:
        parts = _split_run(count, abs(stride), radices, high)
        if parts is None:
            return None
        if stride < 0:
            for part in parts:
                starts[part.place] += part.step * (part.size - 1)
            parts = [_Part(part.place, part.size, -part.step) for part in parts]
        pieces.append(parts)
    if any(h >= radix for h, radix in zip(high, radices, strict=True)):
        return None
    return starts, pieces, low, high


def _split_run(count: int, stride: int, radices: tuple[int, ...], high: list[int]) -> list[_Part] | None:
    """The parts of one run; raises ``high`` by what the run adds to each digit. None when a digit would carry."""
    if stride == 0 or count == 1:
        return [_Part(-1, count, 0)]
    parts: list[_Part] = []
    for j in reversed(range(len(radices))):
        radix = radices[j]
        if stride % radix == 0:
            stride //= radix
            continue
        if stride > radix:
            return None
        if high[j] + stride * (count - 1) < radix:
            high[j] += stride * (count - 1)
            parts.append(_Part(j, count, stride))
            return parts[::-1]
        room, rest = divmod(radix, stride)
        if rest or count % room:
            return None
        high[j] += stride * (room - 1)
        parts.append(_Part(j, room, stride))
        count //= room
        stride = 1
        if count == 1:
            return parts[::-1]
    return None


def _linear(digits: Digits, offset: int, strides: Sequence[int], fill: Fill, extra: Sequence[Axis] = ()) -> Layout:
    """The map offset + sum_j strides[j] * (digit j), under the masks of ``digits`` and ``extra`` ones."""
    offset += sum(stride * start for stride, start in zip(strides, digits.starts, strict=True))
    totals = _combine(digits, strides)
    return masked(offset, zip(digits.sizes, totals, strict=True), (*extra, *digits.axes), fill)


def _combine(digits: Digits, weights: Sequence[int]) -> list[int]:
    """sum_j weights[j] * coeffs[j], per refined digit."""
    totals = [0] * len(digits.sizes)
    for weight, coeffs in zip(weights, digits.coeffs, strict=True):
        if weight:
            totals = [total + weight * c for total, c in zip(totals, coeffs, strict=True)]
    return totals


# --- algebra --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=_CACHE)
def compose(first: Layout, then: Layout) -> Layout | None:
    """The layout L with V(V(a, first), then) = V(a, L). None when there is none or none was found.

    Two masks compose only when they fill with the same value (type and bits included).
    """
    if then.all_filled or then.size == 0:
        return then
    if first.masked and then.masked and _write_fill(first.fill) != _write_fill(then.fill):
        return None
    if first.all_filled:
        return masked(0, ((then.size, 0),), (Axis(0, 0, 0, (0,)),), first.fill)
    if is_contiguous(first):
        return Layout(first.offset + then.offset, then.dims, then.axes, then.fill)
    digits = split(then, tuple(size for size, _ in first.dims))
    if digits is None:
        return None
    axes = []
    for axis in first.axes:
        start = axis.start + sum(c * s for c, s in zip(axis.coeffs, digits.starts, strict=True))
        axes.append(Axis(axis.bound, axis.stride, start, tuple(_combine(digits, axis.coeffs))))
    fill = first.fill if first.masked else then.fill
    return _linear(digits, first.offset, [stride for _, stride in first.dims], fill, axes)


@lru_cache(maxsize=_CACHE)
def box(layout: Layout, radices: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...], Layout] | None:
    """(lo, hi, residual): the reads lie in the box [lo, hi) of an index space with these sizes.

    ``residual`` is the same map into the box alone, row-major: V(a, layout) = V(a[lo:hi], residual). The box is
    the smallest one wherever the masks bound single digits. None when :func:`split` declines.
    """
    digits = split(layout, radices)
    if digits is None:
        return None
    strides = row_major(tuple(h - low for low, h in zip(digits.low, digits.high, strict=True)))
    offset = -sum(stride * low for stride, low in zip(strides, digits.low, strict=True))
    return digits.low, digits.high, _linear(digits, offset, strides, layout.fill)


@lru_cache(maxsize=_CACHE)
def is_bijective(layout: Layout, n_in: int) -> bool:
    """Whether each of ``n_in`` input elements is read exactly once (a sufficient and, unmasked, necessary test)."""
    if layout.masked or layout.size != n_in:
        return False
    expected, least = 1, layout.offset
    for size, stride in sorted(layout.dims, key=lambda dim: abs(dim[1])):
        if size == 0:
            return True
        if abs(stride) != expected:
            return False
        least += min(stride * (size - 1), 0)
        expected *= size
    return least == 0


@lru_cache(maxsize=_CACHE)
def inverse(layout: Layout, n_in: int) -> Layout | None:
    """The layout that undoes a bijective one; None for any other."""
    if not is_bijective(layout, n_in):
        return None
    offset, dims = 0, []
    for (size, stride), weight in zip(layout.dims, row_major([size for size, _ in layout.dims]), strict=True):
        if stride < 0:
            offset += weight * (size - 1)
            weight = -weight
        dims.append((abs(stride), size, weight))
    return strided(offset, [(size, weight) for _, size, weight in sorted(dims, reverse=True)])


def is_contiguous(layout: Layout) -> bool:
    """Whether the view is one run of neighbouring elements: an alias of the input's memory."""
    return not layout.axes and (not layout.dims or layout.dims == ((layout.size, 1),) or layout.size == 0)


@lru_cache(maxsize=_CACHE)
def footprint(layout: Layout) -> int:
    """How many distinct input elements are read.

    Exact up to 2**18 outputs and for independent digits of any size; else an upper bound.
    """
    if layout.all_filled or layout.size == 0:
        return 0
    count, exact = _count_runs(layout)
    if exact or layout.size > _COUNTED_LENGTH:
        return count
    import numpy as np

    index = np.unique(layout.index())
    return int(index.size - (index[0] < 0))


def _count_runs(layout: Layout) -> tuple[int, bool]:
    """An upper bound on the distinct sums of the layout's runs, and whether it is known to be exact."""
    runs = [(size, abs(stride)) for size, stride in layout.dims if stride]
    runs += [(axis.bound, abs(axis.stride)) for axis in layout.axes if axis.stride]
    exact = _independent(layout)
    span = 0
    blocks: list[tuple[int, int]] = []
    for count, stride in sorted(runs, key=lambda run: run[1]):
        last_count, last_stride = blocks[-1] if blocks else (1, 1)
        if blocks and stride % last_stride == 0 and stride // last_stride <= last_count:
            blocks[-1] = (stride // last_stride * (count - 1) + last_count, last_stride)
        else:
            exact = exact and stride > span
            blocks.append((count, stride))
        span += stride * (count - 1)
    return prod(count for count, _ in blocks), exact


def _independent(layout: Layout) -> bool:
    """Whether masks and strides touch different digits, each coordinate taking every value below its bound."""
    touched = {i for i, (_, stride) in enumerate(layout.dims) if stride}
    for axis in layout.axes:
        involved = [i for i, c in enumerate(axis.coeffs) if c]
        if touched.intersection(involved):
            return False
        touched.update(involved)
        reach = 1
        for c, i in sorted((abs(axis.coeffs[i]), i) for i in involved):
            if c > reach:
                return False
            reach += c * (layout.dims[i][0] - 1)
    return True
