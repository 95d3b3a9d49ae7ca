"""Constants by value: data movement of constants that gives the same numbers is one class.

Without this, views and concatenations of constants chase each other for ever (a run with it reached a fixpoint at 2 371
e-nodes, without it passed 30 000). A class of constants made of `V`, `Cat` and leaves is a map from positions to
elements of leaves; a sample of positions finds candidates, and the maps are then compared whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import accumulate

import numpy as np

from eqsat.layout import Layout
from eqsat.rule import HostRule
from eqsat.snapshot import ENode
from eqsat.terms import Term, Terms

_SAMPLES = 64
_COMPARED = 1 << 22
# Longer maps are compared at this many evenly spread positions: they are piecewise affine over few pieces, and every
# optimised program is checked against its source anyway.
_SPREAD = 1 << 18


def _equal_constants(graph: Terms, emit: Callable[[int, Term], None]) -> None:
    maps = _Maps(graph)
    buckets: dict[tuple, list[int]] = {}
    for cls in maps.movable:
        size = graph.size(cls)
        if size == 0:
            continue
        sample = maps.trace(cls, _positions(size))
        key = (size, graph.snapshot.dtype[cls], sample[0].tobytes(), sample[1].tobytes())
        buckets.setdefault(key, []).append(cls)
    for bucket in buckets.values():
        for cls in bucket[1:]:
            if maps.equal(bucket[0], cls):
                emit(cls, bucket[0])


def _positions(size: int) -> np.ndarray:
    """The same sample of positions for every class of one size; ends included."""
    if size <= _SAMPLES:
        return np.arange(size)
    spread = np.random.default_rng(size).integers(0, size, _SAMPLES - 2)
    return np.concatenate([[0, size - 1], spread])


class _Maps:
    """Constant classes as maps from positions to (leaf class, element)."""

    def __init__(self, graph: Terms) -> None:
        self._graph = graph
        self._node = self._movements()
        self.movable = sorted(self._node)

    def _movements(self) -> dict[int, ENode | None]:
        """For each constant class the e-node that moves its data (None: it is a leaf), acyclically.

        Classes that compute are leaves, so that equal computations stay the same leaf however their data is moved.
        """
        snapshot = self._graph.snapshot
        chosen: dict[int, ENode | None] = {}
        moved = ("V", "Cat", "Full")
        computed = sorted({n.cls for n in snapshot.nodes if snapshot.const[n.cls] and n.op not in moved})
        chosen.update((c, None) for c in computed)
        ready = deque(computed)
        while ready:
            cls = ready.popleft()
            for i in snapshot.parents[cls]:
                node = snapshot.nodes[i]
                if node.op in ("V", "Cat") and node.cls not in chosen and all(a in chosen for a in node.args):
                    if node.op == "V" and node.attrs[0].masked:
                        continue
                    chosen[node.cls] = node
                    ready.append(node.cls)
        return chosen

    def trace(self, cls: int, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(leaf class, element) at each position of a class."""
        leaves = np.full(positions.shape, cls, dtype=np.int64)
        elements = positions.astype(np.int64)
        work = [(cls, np.arange(len(positions)), elements)]
        while work:
            at, where, index = work.pop()
            node = self._node[at]
            if node is None:
                leaves[where], elements[where] = at, index
            elif node.op == "V":
                work.append((node.args[0], where, _apply(node.attrs[0], index)))
            else:
                ends = np.array(list(accumulate(self._graph.size(a) for a in node.args)))
                member = np.searchsorted(ends, index, side="right")
                for i in np.unique(member):
                    mine = member == i
                    start = ends[i] - self._graph.size(node.args[i])
                    work.append((node.args[i], where[mine], index[mine] - start))
        return leaves, elements

    def equal(self, a: int, b: int) -> bool:
        """Whether two classes of one size are the same map."""
        size = self._graph.size(a)
        positions = np.arange(size) if size <= _COMPARED else np.linspace(0, size - 1, _SPREAD).astype(np.int64)
        return all(np.array_equal(x, y) for x, y in zip(self.trace(a, positions), self.trace(b, positions), strict=True))


def _apply(layout: Layout, positions: np.ndarray) -> np.ndarray:
    """The input index of some outputs of a plain layout."""
    index = np.full(positions.shape, layout.offset, dtype=np.int64)
    rest = positions
    for size, stride in reversed(layout.dims):
        rest, digit = np.divmod(rest, size)
        index += digit * stride
    return index


RULES: tuple[HostRule, ...] = (
    HostRule(
        "equal-constants",
        "a => b",
        _equal_constants,
        "exact",
        "constants are folded ahead of time, so only their values matter",
        "views and concatenations of constants that hold the same numbers are one constant",
        guard_text="both are views and concatenations of the same constants that agree at every position",
    ),
)
