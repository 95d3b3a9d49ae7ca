"""Which kernels share a launch: small independent products, whose tiles leave most of a device idle."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from heapq import heappop, heappush
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
    """The launches of kernels in order, each with the positions of its members, near the given order.

    A small product joins the first shared launch that has room and comes after all shared launches that it needs. Other
    kernels run in between, so the number of shared launches does not depend on where they stand.
    """
    found: list[list[int]] = []
    shared: list[int] = []
    room: list[tuple[int, int]] = []  # tiles and arrays that each shared launch may still take
    after: dict[Hashable, int] = {}  # of each array, how many shared launches come before it is there
    for i, x in enumerate(members):
        first = max((after[a] for a in x.reads if a in after), default=0)
        if x.tiles:
            arrays = len(x.reads) + len(x.writes)
            fitting = (g for g in range(first, len(shared)) if x.tiles <= room[g][0] and arrays <= room[g][1])
            g = next(fitting, len(shared))
            if g == len(shared):
                shared.append(len(found))
                found.append([])
                room.append((MOST_TILES, MOST_ARRAYS))
            found[shared[g]].append(i)
            room[g] = (room[g][0] - x.tiles, room[g][1] - arrays)
            first = g + 1
        else:
            found.append([i])
        after.update(dict.fromkeys(x.writes, first))
    return [found[g] for g in _in_order(found, members)]


def _in_order(found: Sequence[Sequence[int]], members: Sequence[Member]) -> list[int]:
    """The launches in an order in which each comes after those whose results it reads, otherwise as found."""
    made_in: dict[Hashable, int] = {}
    before: list[set[int]] = [set() for _ in found]
    launch = {i: g for g, group in enumerate(found) for i in group}
    for i, x in enumerate(members):
        before[launch[i]].update(made_in[a] for a in x.reads if a in made_in)
        made_in.update(dict.fromkeys(x.writes, launch[i]))
    readers: list[list[int]] = [[] for _ in found]
    for g, needed in enumerate(before):
        for d in needed:
            readers[d].append(g)
    ready = [g for g, needed in enumerate(before) if not needed]
    order: list[int] = []
    while ready:
        order.append(heappop(ready))
        for g in readers[order[-1]]:
            before[g].remove(order[-1])
            if not before[g]:
                heappush(ready, g)
    return order
