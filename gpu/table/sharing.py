"""Which kernels share a launch: small independent products, whose tiles leave most of a device idle."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import ceil
from typing import NamedTuple

FAMILIES = frozenset({"contraction", "stream"})
"""Families whose kernels may share a launch."""

MOST_TILES = 96
"""Most tiles of a launch that is shared: all run at once on any of the devices, so that no member waits for another."""

MOST_ARRAYS = 128
"""Most arrays of it: their addresses must fit into the 4 KiB of arguments that every platform allows."""

_EDGE = 32
"""Edge of the tiles that are counted: small ones, since the members are."""


class Member(NamedTuple):
    """A kernel, or several that are one launch already, as far as sharing goes.

    Attributes:
        tiles: tiles of its product; 0 if it shares no launch.
        reads, writes: arrays.
    """

    tiles: int
    reads: Sequence[Hashable]
    writes: Sequence[Hashable]


def tiles(batch: int, m: int, n: int) -> int:
    """The tiles of a product [batch, m, k] @ [batch, k, n] that may share a launch; 0 if it may not."""
    count = batch * ceil(m / _EDGE) * ceil(n / _EDGE)
    return count if 1 not in (m, n) and count < MOST_TILES else 0


def launches(members: Sequence[Member]) -> list[list[int]]:
    """The launches of kernels in order, each with the positions of its members: first fit, after all that they read."""
    found: list[list[int]] = []
    room: list[tuple[int, int]] = []  # tiles and arrays that each launch may still take
    made_in: dict[Hashable, int] = {}
    for i, x in enumerate(members):
        first = max((made_in[a] + 1 for a in x.reads if a in made_in), default=0)
        arrays = len(x.reads) + len(x.writes)
        fitting = (g for g in range(first, len(found)) if x.tiles <= room[g][0] and arrays <= room[g][1])
        at = next(fitting, len(found)) if x.tiles else len(found)
        if at == len(found):
            found.append([])
            room.append((MOST_TILES, MOST_ARRAYS) if x.tiles else (0, 0))
        found[at].append(i)
        room[at] = (room[at][0] - x.tiles, room[at][1] - arrays)
        made_in.update(dict.fromkeys(x.writes, at))
    return found
