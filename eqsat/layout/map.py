"""The layout itself: one opaque, hashable value with a text key and an index array."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

from eqsat.layout.form import Axis, Dims, canonical

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Fill = float | int | bool | None
"""The value that a masked layout reads outside its mask, in the type of the viewed array; None without a mask."""

_INT64 = (1 << 63) - 1

CACHE_SIZE = 1 << 17
"""Entries kept by each cached function on layouts; saturating the largest programs tried needs about 10**4."""


class Layout:
    """An index map from ``size`` outputs to a flat input, always in canonical form: equal maps compare equal.

    Make one with the constructors of :mod:`eqsat.layout.arithmetic`. ``dims`` are (size, stride) digits, outer to
    inner; ``axes`` are the masked coordinates, empty for a plain map. Fills are compared by type and bits (0 differs
    from 0.0 and -0.0, and nan equals nan). Immutable, hashable, picklable.
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
        identity = (offset, dims, axes, fill_key(kept))
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
    def reach(self) -> tuple[int, int]:
        """The least and the greatest input index that a layout may read; it has an output that is not filled.

        Of a plain one they are read. Masks may keep digits from their ends together.
        """
        ends = [stride * (size - 1) for size, stride in self.dims]
        ends += [axis.stride * (axis.bound - 1) for axis in self.axes]
        return self.offset + sum(min(end, 0) for end in ends), self.offset + sum(max(end, 0) for end in ends)

    def moved(self, by: int) -> Layout:
        """The same view of an input that begins ``by`` elements later."""
        return Layout(self.offset - by, self.dims, self.axes, self.fill)

    @property
    def all_filled(self) -> bool:
        """Whether every read is filled: the view is a constant."""
        return any(axis.bound == 0 for axis in self.axes)

    @property
    def contiguous(self) -> bool:
        """Whether the view is one run of neighbouring elements: an alias of the input's memory."""
        return not self.axes and (self.size <= 1 or self.dims == ((self.size, 1),))

    def is_identity(self, n_in: int) -> bool:
        """Whether the view of an array of ``n_in`` elements is that array."""
        return self.contiguous and self.offset == 0 and self.size == n_in

    def key(self) -> str:
        """A text that :meth:`parse` reads back exactly.

        ``offset|size,stride;...`` and, when masked, ``|bound,stride,start,coeffs...;...|fill``.
        """
        text = f"{self.offset}|" + ";".join(f"{size},{stride}" for size, stride in self.dims)
        if not self.axes:
            return text
        axes = ";".join(",".join(map(str, (a.bound, a.stride, a.start, *a.coeffs))) for a in self.axes)
        return f"{text}|{axes}|{fill_key(self.fill)}"

    @staticmethod
    @lru_cache(maxsize=CACHE_SIZE)
    def parse(key: str) -> Layout:
        """The layout with this :meth:`key`."""
        parts = key.split("|")
        dims = tuple((size, stride) for size, stride in map(_integers, filter(None, parts[1].split(";"))))
        if len(parts) == 2:
            return Layout(int(parts[0]), dims)
        axes = tuple(Axis(n, s, c0, tuple(c)) for n, s, c0, *c in map(_integers, parts[2].split(";")))
        return Layout(int(parts[0]), dims, axes, _read_fill(parts[3]))

    def index(self) -> NDArray[np.int64]:
        """The input index of each output, int64[size]; -1 where the fill is read.

        Raises:
            OverflowError: int64 does not hold a coordinate, which would wrap around into its bounds.
        """
        import numpy as np

        if self.axes and self._farthest() > _INT64:
            raise OverflowError("a coordinate of a layout does not fit in 64 bits")

        sizes, strides = [size for size, _ in self.dims], [stride for _, stride in self.dims]
        if not self.axes:
            return np.ascontiguousarray(np.broadcast_to(_affine(self.offset, strides, sizes), sizes)).reshape(-1)
        # Digits before all that masks depend on are added to whole runs: along short axes it takes twice as long.
        bounded = [i for i in range(len(sizes)) if any(axis.coeffs[i] for axis in self.axes)]
        lead = min(bounded, default=0)
        outer = np.broadcast_to(_affine(self.offset, strides[:lead], sizes[:lead]), sizes[:lead]).reshape(-1, 1)
        inner = _affine(0, strides[lead:], sizes[lead:])
        valid = np.ones((1,) * (len(sizes) - lead), dtype=bool)
        for axis in self.axes:
            coordinate = _affine(axis.start, axis.coeffs[lead:], sizes[lead:])
            inner = inner + axis.stride * coordinate
            valid = valid & (coordinate >= 0) & (coordinate < axis.bound)
        inner, valid = (np.broadcast_to(x, sizes[lead:]).reshape(-1) for x in (inner, valid))
        found = np.empty(self.size, np.int64)
        rows = found.reshape(len(outer), len(inner))
        np.add(outer, inner, out=rows)
        np.copyto(rows, -1, where=~valid)
        return found

    def _farthest(self) -> int:
        """A bound on all that is added up on the way to an index, filled or not."""

        def span(start: int, steps: Iterable[int]) -> int:
            sizes = (size for size, _ in self.dims)
            return abs(start) + sum(abs(step) * max(size - 1, 0) for step, size in zip(steps, sizes, strict=True))

        spans = [span(axis.start, axis.coeffs) for axis in self.axes]
        inner = sum(abs(axis.stride) * far for axis, far in zip(self.axes, spans, strict=True))
        return max(*spans, inner + span(self.offset, (stride for _, stride in self.dims)))


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


def fill_key(fill: Fill) -> str:
    """A text that tells fills apart by type and bits."""
    if fill is None:
        return ""
    if isinstance(fill, (bool, int)):
        return repr(fill)
    return f"f{float(fill).hex()}"


def _read_fill(text: str) -> Fill:
    if text in ("True", "False"):
        return text == "True"
    return float.fromhex(text[1:]) if text.startswith("f") else int(text)
