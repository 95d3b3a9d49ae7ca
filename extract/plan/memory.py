"""Memory of a plan: the lifetimes of its temporaries, their peak, and an order of launches that keeps the peak low.

A temporary is an array that one kernel writes and another reads. Inputs, constants and outputs exist in any case and
are not counted. A temporary lives from the first launch that writes it to the last that reads it, both included.
Temporaries that are never alive together may share a place in one arena. The peak is the size of that arena.

`eqsat.gpu` lays out a device's arena in the same way. That arena may be larger: kernels with several passes need
scratch memory, and kernels that share a launch hold all their temporaries at once.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TypeVar

from eqsat.base.numerics import itemsize
from eqsat.extract.plan.plan import Plan

Buffer = Hashable
B = TypeVar("B", bound=Hashable)
Life = tuple[int, int]
"""The first and the last step in which a buffer is needed."""

ALIGNMENT = 256
"""Alignment in bytes, as allocators give it, so that a buffer in the arena is as good as a separate one."""

MEETINGS = 2_000_000
"""Limit on overlaps of buffers, counted per step, for placing the largest first; this many take some seconds."""

STATES = 2_000
"""Sets of completed launches that the search for an order visits before it gives up."""


@dataclass(frozen=True, slots=True)
class Step:
    """A launch: the buffers that it reads and writes."""

    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]


@dataclass(frozen=True, slots=True)
class Launches:
    """Launches in order.

    Attributes:
        sizes: bytes of each temporary; all other buffers exist in any case.
        kept: temporaries that hold results at the end.
    """

    steps: Sequence[Step]
    sizes: Mapping[Buffer, int]
    kept: frozenset[Buffer] = frozenset()

    def peak(self, order: Sequence[int] | None = None) -> int:
        """Bytes of the arena when the steps run in this order."""
        life: dict[Buffer, Life] = {}
        for at, i in enumerate(range(len(self.steps)) if order is None else order):
            for b in (*self.steps[i].writes, *self.steps[i].reads):
                if b in self.sizes:
                    life[b] = (life.get(b, (at, at))[0], at)
        for b in self.kept:
            if b in life:
                life[b] = (life[b][0], len(self.steps))
        return first_fit({b: self.sizes[b] for b in life}, life)[1]


def first_fit(sizes: Mapping[B, int], life: Mapping[B, Life]) -> tuple[dict[B, int], int]:
    """(byte offset of each buffer, bytes of the arena). The largest buffers are placed first, equal ones in the given
    order; if too many overlap for that, each is placed when it is first needed."""
    if _meetings([life[b] for b in sizes]) > MEETINGS:
        return _in_turn(sizes, life)
    offsets: dict[B, int] = {}
    placed: dict[int, list[B]] = {}
    for b in sorted(sizes, key=lambda b: -sizes[b]):
        first, last = life[b]
        met = dict.fromkeys(o for step in range(first, last + 1) for o in placed.get(step, ()))
        at = 0
        for start, end in sorted((offsets[o], offsets[o] + sizes[o]) for o in met):
            if at + sizes[b] <= start:
                break
            at = max(at, _aligned(end))
        offsets[b] = at
        for step in range(first, last + 1):
            placed.setdefault(step, []).append(b)
    return offsets, max((offsets[b] + sizes[b] for b in offsets), default=0)


def _meetings(lives: Sequence[Life]) -> int:
    """The number of overlaps of two buffers, counted per step."""
    change: dict[int, int] = {}
    for first, last in lives:
        change[first] = change.get(first, 0) + 1
        change[last + 1] = change.get(last + 1, 0) - 1
    steps = sorted(change)
    alive = accumulate(change[step] for step in steps)
    return sum(n * n * (until - step) for n, step, until in zip(alive, steps, steps[1:], strict=False))


def _in_turn(sizes: Mapping[B, int], life: Mapping[B, Life]) -> tuple[dict[B, int], int]:
    """Place each buffer, in order of first use, into the lowest hole that finished buffers leave."""
    offsets: dict[B, int] = {}
    holes: list[tuple[int, int]] = []  # (start, end), in order, not adjacent
    ending: list[tuple[int, int, int]] = []
    top = peak = 0
    for b in sorted(sizes, key=lambda b: life[b][0]):
        first, last = life[b]
        while ending and ending[0][0] < first:
            _, start, end = heapq.heappop(ending)
            _free(holes, start, end)
        if holes and holes[-1][1] == top:
            top = holes.pop()[0]
        space = _aligned(sizes[b])
        i = next((i for i, (start, end) in enumerate(holes) if end - start >= space), None)
        if i is None:
            offsets[b], top = top, top + space
        else:
            start, end = holes[i]
            offsets[b] = start
            holes[i : i + 1] = [(start + space, end)] if start + space < end else []
        peak = max(peak, offsets[b] + sizes[b])
        heapq.heappush(ending, (last, offsets[b], offsets[b] + space))
    return offsets, peak


def _free(holes: list[tuple[int, int]], start: int, end: int) -> None:
    """Add a hole, merged with its neighbours."""
    i = bisect_left(holes, (start, end))
    if i < len(holes) and holes[i][0] == end:
        end = holes.pop(i)[1]
    if i and holes[i - 1][1] == start:
        i -= 1
        start = holes.pop(i)[0]
    if start < end:
        holes.insert(i, (start, end))


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def launches(plan: Plan) -> Launches:
    """The launches of a plan. Outputs that are whole results of kernels are separate buffers, not temporaries."""
    sizes: dict[Buffer, int] = {n: n.size * itemsize(n.dtype) for k in plan.kernels for n in k.outputs}
    kept: set[Buffer] = set()
    for result in plan.results:
        node = result.buffer
        if node not in sizes:
            continue
        if result.layout.is_identity(node.size):
            del sizes[node]
        else:
            kept.add(node)
    return Launches([_step(plan, unit) for unit in plan.launched()], sizes, frozenset(kept & sizes.keys()))


def _step(plan: Plan, unit: Sequence[int]) -> Step:
    """Kernels that are one launch."""
    kernels = [plan.kernels[i] for i in unit]
    return Step(tuple(n for k in kernels for n in k.inputs), tuple(n for k in kernels for n in k.outputs))


def lean_plan(plan: Plan) -> Plan:
    """The plan, with its launches in an order with a low memory peak."""
    units = plan.launched()
    return replace(plan, kernels=tuple(plan.kernels[i] for at in lean_order(launches(plan)) for i in units[at]))


def peak_bytes(plan: Plan) -> int:
    """The most bytes that the temporaries of a plan take."""
    return launches(plan).peak()


def lean_order(program: Launches) -> list[int]:
    """A dependency-respecting order of the steps with a low memory peak, never above that of the given order.

    A shortest-path search over sets of completed steps, in which the length of a path is its peak: it always continues
    from the set with the lowest peak so far, so that the first complete order found is optimal. Steps that take no
    memory are done at once. The search gives up after STATES sets.
    """
    given = list(range(len(program.steps)))
    found = _Orders(program).least()
    return given if found is None or program.peak(found) >= program.peak(given) else found


class _Orders:
    """Orders of steps; completed steps are a bit set. Each buffer has one writer."""

    def __init__(self, program: Launches) -> None:
        steps, self._sizes, self._kept = program.steps, program.sizes, program.kept
        self._steps = steps
        writer = {b: i for i, step in enumerate(steps) for b in step.writes}
        self._after = [sum(1 << w for w in {writer[b] for b in step.reads if b in writer}) for step in steps]
        self._readers: dict[Buffer, int] = dict.fromkeys(program.sizes, 0)
        for i, step in enumerate(steps):
            for b in step.reads:
                if b in self._readers:
                    self._readers[b] |= 1 << i

    def least(self) -> list[int] | None:
        """The order with the lowest peak of live bytes; None if it is not found within the limit."""
        everything = (1 << len(self._steps)) - 1
        heap: list[tuple[int, int, list[int], int, int]] = [(0, 0, [], 0, 0)]
        seen: set[int] = set()
        while heap and len(seen) < STATES:
            worst, _, order, done, alive = heapq.heappop(heap)
            if done == everything:
                return order
            if done in seen:
                continue
            seen.add(done)
            following = []
            for i, after in enumerate(self._after):
                if done >> i & 1 or after & ~done:
                    continue
                during, then = self._memory(i, done, alive)
                state = max(worst, during), -len(order) - 1, [*order, i], done | 1 << i, then
                following.append(state)
                if during <= worst and then <= alive:
                    following = [state]
                    break
            for state in following:
                heapq.heappush(heap, state)
        return None

    def _memory(self, i: int, done: int, alive: int) -> tuple[int, int]:
        """Bytes alive while step i runs, and after it."""
        sizes, step = self._sizes, self._steps[i]
        during = alive + sum(sizes[b] for b in step.writes if b in sizes)
        done |= 1 << i
        touched = dict.fromkeys(b for b in (*step.reads, *step.writes) if b in sizes and b not in self._kept)
        return during, during - sum(sizes[b] for b in touched if not self._readers[b] & ~done)
