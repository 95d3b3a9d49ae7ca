"""Ranges of named dims, and the sizes at which a program is tried."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from itertools import product

from eqsat.base.arguments import integer, shown
from eqsat.errors import InputError
from eqsat.frontends.onnx.dims.forms import Point
from eqsat.program.sizes import LARGEST

Range = tuple[int, int]
"""The least and the largest size of a dim, both included."""

DEFAULT: Range = (1, 64)
"""The range of a dim for which none is given."""

_EACH = 3
"""Sizes of a dim among the samples: two fix an affine form, the third tests it."""

_WIDTHS = (8, 4, 2, 1)
"""Sizes that are multiples of the first of these come first: kernels load so many elements at once."""

UNSEEN = 10
"""Sizes at which a result is checked besides the ends of its range."""


def checked_range(name: str, given: object) -> Range:
    """The range of a dim. Raises InputError unless it is a pair of whole numbers, 1 <= least <= largest."""
    pair = tuple(given) if isinstance(given, tuple | list) else ()
    whole = [n for n in map(integer, pair) if n is not None]
    if not len(pair) == len(whole) == 2 or not 1 <= whole[0] <= whole[1]:
        raise InputError(f"range {shown(given)} for dimension '{name}': expected (least, largest), both at least 1")
    if whole[1] > LARGEST:
        raise InputError(f"range {shown(given)} for dimension '{name}': no value has more than {LARGEST} elements")
    return whole[0], whole[1]


def samples(ranges: Mapping[str, Range], taken: Collection[int], where: float) -> list[Point]:
    """Sizes at which a program is searched, and written, around a place between the least (0) and the largest (1).

    As far as the ranges allow, sizes are not 1, not in `taken` (dims of the program), and not those of another dim:
    equal dims make different programs look alike. Each dim varies while the others stay, and then all vary together.
    """
    avoid = set(taken) | {1}
    each: dict[str, list[int]] = {}
    for name, (low, high) in ranges.items():
        each[name] = _generic(low, high, low * (high / low) ** where, avoid)
        avoid.update(each[name])
    first = {name: sizes[0] for name, sizes in each.items()}
    found = [first, *({**first, name: sizes[1]} for name, sizes in each.items() if len(sizes) > 1)]
    found.append({name: sizes[-1] for name, sizes in each.items()})
    return [dict(point) for point in dict.fromkeys(tuple(p.items()) for p in found)]


def _generic(low: int, high: int, around: float, avoid: Collection[int]) -> list[int]:
    """Sizes near one: within a factor of two, rather multiples of a kernel's width; powers of two last.

    However wide the range, only a stretch around that size is looked at. On either side, unless the range ends there,
    it has as many multiples of the largest width as there are sizes to avoid, and some more: the best lie in it.
    """
    reach = _WIDTHS[0] * (_EACH + len(avoid) + high.bit_length())
    stretch = range(max(low, int(around) - reach), min(high, int(around) + reach) + 1)

    def rank(size: int) -> tuple[object, ...]:
        special = size in avoid or not size & (size - 1)
        near = around / 2 <= size <= 2 * around
        width = next(k for k, width in enumerate(_WIDTHS) if size % width == 0) if near else len(_WIDTHS)
        return special, size == 1, width, abs(size - around)

    return sorted(stretch, key=rank)[:_EACH]


def ends(ranges: Mapping[str, Range]) -> list[Point]:
    """The corners of the ranges: all at their least first, all at their largest last."""
    names = list(ranges)
    corners = product(*(dict.fromkeys(ranges[name]) for name in names))
    return [dict(zip(names, sizes, strict=True)) for sizes in corners]


def unseen(ranges: Mapping[str, Range], seen: Sequence[Point]) -> list[Point]:
    """Sizes inside the ranges that are not among `seen`, drawn at random, always the same ones."""
    rng = random.Random(0)
    found: dict[tuple[int, ...], Point] = {}
    known = {tuple(point.values()) for point in seen}
    for _ in range(20 * UNSEEN):
        point = {name: rng.randint(low, high) for name, (low, high) in ranges.items()}
        if tuple(point.values()) not in known:
            found.setdefault(tuple(point.values()), point)
        if len(found) == UNSEEN:
            break
    return list(found.values())
