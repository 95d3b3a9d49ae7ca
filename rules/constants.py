"""Constants by value: data movement of constants that gives the same numbers is one class.

Without this, views and concatenations of constants chase each other for ever (a run with it reached a fixpoint at 2 371
e-nodes, without it passed 30 000). A class of constants made of `V`, `Cat` and leaves is a map from positions to
elements of leaves; a sample of positions finds candidates, and the maps are then compared whole.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np

from eqsat.base.graphs import to_make
from eqsat.egraph.host_terms import Term, Terms
from eqsat.egraph.snapshot import ENode
from eqsat.language.rule import HostRule
from eqsat.layout import arithmetic as lt
from eqsat.layout.arithmetic import Layout

_SAMPLES = 64
_COMPARED = 1 << 22
Form = tuple[tuple[Any, Layout], ...]
"""A constant as views of leaves (class ids) or of other forms, one after another."""

_MOST_PIECES = 64
# Longer maps are compared at this many evenly spread positions: they are piecewise affine over few pieces, and every
# optimised program is checked against its source anyway.
_SPREAD = 1 << 18


def _equal_constants(graph: Terms, emit: Callable[[int, Term], None]) -> None:
    maps = _Maps(graph)
    for bucket in _alike(graph, maps):
        distinct: dict[Form, int] = {}
        apart = []
        for cls in bucket:
            form = maps.form(cls)
            first = cls if form is None else distinct.setdefault(form, cls)
            if first == cls:
                apart.append(cls)
            else:
                emit(cls, first)
        whole: dict[bytes, int] = {}
        for cls in apart if len(apart) > 1 else ():
            first = whole.setdefault(maps.digest(cls), cls)
            if first != cls:
                emit(cls, first)


def _alike(graph: Terms, maps: _Maps) -> Iterator[list[int]]:
    """Classes of one size and dtype that agree at a sample of positions, where there are several."""
    of_shape: dict[tuple[int, str], list[int]] = {}
    for cls in maps.movable:
        if size := graph.size(cls):
            of_shape.setdefault((size, graph.snapshot.dtype[cls]), []).append(cls)
    for (size, _), classes in of_shape.items():
        of_sample: dict[bytes, list[int]] = {}
        for cls in classes if len(classes) > 1 else ():
            of_sample.setdefault(maps.trace(cls, _positions(size)).tobytes(), []).append(cls)
        yield from (bucket for bucket in of_sample.values() if len(bucket) > 1)


@lru_cache(1 << 10)
def _positions(size: int) -> np.ndarray:
    """The same sample of positions for every class of one size; ends included."""
    if size <= _SAMPLES:
        return np.arange(size)
    spread = np.random.default_rng(size).integers(0, size, _SAMPLES - 2)
    return np.concatenate([[0, size - 1], spread])


class _Maps:
    """Constant classes as maps from positions to elements of leaves, all leaves numbered through."""

    def __init__(self, graph: Terms) -> None:
        self._graph = graph
        self._node = self._movements()
        self.movable = sorted(self._node)
        leaves = [c for c in self.movable if self._node[c] is None]
        starts = accumulate((graph.size(c) for c in leaves), initial=0)
        self._start = dict(zip(leaves, starts, strict=False))
        self._whole: dict[int, np.ndarray] = {}
        self._forms: dict[int, Form | None] = {}

    def _movements(self) -> dict[int, ENode | None]:
        """For each constant class the e-node that moves its data (None: it is a leaf), acyclically.

        Classes that compute are leaves, so that equal computations stay the same leaf however their data is moved.
        """
        snapshot = self._graph.snapshot
        moved = ("V", "Cat", "Full")
        computed = sorted({n.cls for n in snapshot.nodes if snapshot.const[n.cls] and n.op not in moved})
        chosen: dict[int, ENode | None] = dict.fromkeys(computed)
        ready = deque(computed)
        while ready:
            cls = ready.popleft()
            for i in snapshot.parents[cls]:
                node = snapshot.nodes[i]
                if node.op not in ("V", "Cat") or node.cls in chosen or any(a not in chosen for a in node.args):
                    continue
                if node.op == "Cat" or not node.attrs[0].masked:
                    chosen[node.cls] = node
                    ready.append(node.cls)
        return chosen

    def form(self, cls: int) -> Form | None:
        """The class as views of leaves: equal forms are equal maps, at no cost. None where it has no short form."""
        for c in to_make(cls, self._forms, self._moved):
            node = self._node[c]
            if node is None:
                self._forms[c] = ((c, lt.identity(self._graph.size(c))),)
                continue
            parts = [self._forms[a] for a in node.args]
            known = [p for p in parts if p is not None]
            if len(known) < len(parts):
                self._forms[c] = None
            elif node.op == "Cat":
                self._forms[c] = _merge([piece for part in known for piece in part])
            else:
                self._forms[c] = _view_form(known[0], node.attrs[0])
        return self._forms[cls]

    def _moved(self, cls: int) -> Sequence[int]:
        """The classes whose data a class moves; none for a leaf."""
        node = self._node[cls]
        return () if node is None else node.args

    def trace(self, cls: int, positions: np.ndarray) -> np.ndarray:
        """The number of the element at each position of a class."""
        elements = np.empty(positions.shape, dtype=np.int64)
        work = [(cls, np.arange(len(positions)), positions)]
        while work:
            at, where, index = work.pop()
            node = self._node[at]
            if node is None:
                elements[where] = self._start[at] + index
            elif node.op == "V":
                work.append((node.args[0], where, _apply(node.attrs[0], index)))
            else:
                ends = np.array(list(accumulate(self._graph.size(a) for a in node.args)))
                member = np.searchsorted(ends, index, side="right")
                for i in np.flatnonzero(np.bincount(member)):
                    mine = member == i
                    start = ends[i] - self._graph.size(node.args[i])
                    work.append((node.args[i], where[mine], index[mine] - start))
        return elements

    def digest(self, cls: int) -> bytes:
        """A digest of the whole map; of evenly spread positions where it is too long."""
        size = self._graph.size(cls)
        if size <= _COMPARED:
            elements = self._elements(cls)
        else:
            elements = self.trace(cls, np.linspace(0, size - 1, _SPREAD).astype(np.int64))
        return hashlib.sha1(elements.tobytes(), usedforsecurity=False).digest()

    def _elements(self, cls: int) -> np.ndarray:
        """`trace` of every position."""

        def short(c: int) -> list[int]:
            return [a for a in self._moved(c) if self._graph.size(a) <= _COMPARED]

        for c in to_make(cls, self._whole, short):
            node = self._node[c]
            if node is None:
                self._whole[c] = np.arange(self._start[c], self._start[c] + self._graph.size(c))
            elif node.op == "V" and short(c):
                self._whole[c] = self._whole[node.args[0]][node.attrs[0].index()]
            elif node.op == "V":
                self._whole[c] = self.trace(c, np.arange(self._graph.size(c)))
            else:
                self._whole[c] = np.concatenate([self._whole[a] for a in node.args])
        return self._whole[cls]


def _merge(pieces: Sequence[tuple[Any, Layout]]) -> Form | None:
    """Pieces with runs that follow each other in one leaf joined."""
    merged: list[tuple[Any, Layout]] = []
    for leaf, layout in pieces:
        if merged and merged[-1][0] == leaf:
            before = merged[-1][1]
            follows = before.contiguous and layout.contiguous
            if follows and before.offset + before.size == layout.offset:
                merged[-1] = leaf, lt.strided(before.offset, [(before.size + layout.size, 1)])
                continue
        merged.append((leaf, layout))
    return tuple(merged) if len(merged) <= _MOST_PIECES else None


def _view_form(form: Form, layout: Layout) -> Form | None:
    """A view of a form: inside one piece, or taken apart along its outermost digit until it is."""
    low, high = layout.reach
    start = 0
    for leaf, piece in form:
        if start <= low and high < start + piece.size:
            inner = lt.compose(piece, lt.strided(layout.offset - start, layout.dims))
            if inner is None:
                return None
            return _view_form(leaf, inner) if isinstance(leaf, tuple) else ((leaf, inner),)
        start += piece.size
    if layout.contiguous:
        return _run_form(form, layout.offset, layout.offset + layout.size)
    return _taken_apart(form, layout) or ((form, layout),)


def _taken_apart(form: Form, layout: Layout) -> Form | None:
    """The view digit by digit of its outermost, where that gives few pieces."""
    (count, step), *rest = layout.dims
    if count > _MOST_PIECES:
        return None
    pieces: list[tuple[Any, Layout]] = []
    for i in range(count):
        part = _view_form(form, lt.strided(layout.offset + i * step, rest))
        if part is None or len(part) > 1 or len(pieces) > _MOST_PIECES:
            return None
        pieces += part
    return _merge(pieces)


def _run_form(form: Form, start: int, stop: int) -> Form | None:
    """The elements [start, stop) of a form."""
    pieces: list[tuple[Any, Layout]] = []
    at = 0
    for leaf, piece in form:
        first, last = max(start - at, 0), min(stop - at, piece.size)
        if first < last:
            inner = lt.compose(piece, lt.strided(first, [(last - first, 1)]))
            if inner is None:
                return None
            pieces.append((leaf, inner))
        at += piece.size
    return _merge(pieces)


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
