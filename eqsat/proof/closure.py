"""Congruence closure that explains: which of the stated equalities make two terms equal.

A term points at one that it was found equal to, with the reason (R. Nieuwenhuis and A. Oliveras, "Proof-producing
congruence closure", 2005). `eqsat.verify.congruence` checks the same without reasons.
"""

from __future__ import annotations

from collections import deque

from eqsat.verify.terms import Terms


class Closure:
    """The equalities that follow from stated ones, over terms that may still be added."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._class: list[int] = []
        self._members: list[list[int]] = []
        self._readers: list[list[int]] = []
        self._known: dict[tuple[int, ...], int] = {}
        self._points: dict[int, tuple[int, int | None]] = {}
        """A term to one that equals it, and the number of the equality that says so; None: their operands are equal."""

    def state(self, a: int, b: int, number: int) -> None:
        """Two terms are equal by the equality with this number."""
        waiting: deque[tuple[int, int, int | None]] = deque()
        self._take_in(waiting)
        waiting.append((a, b, number))
        while waiting:
            self._merge(*waiting.popleft(), waiting)

    def equal(self, a: int, b: int) -> bool:
        """Whether two terms are equal."""
        waiting: deque[tuple[int, int, int | None]] = deque()
        self._take_in(waiting)
        while waiting:
            self._merge(*waiting.popleft(), waiting)
        return self._class[a] == self._class[b]

    def explain(self, a: int, b: int) -> list[int]:
        """The numbers of stated equalities from which it follows that two terms are equal, in order. They must be."""
        found: set[int] = set()
        done: set[tuple[int, int]] = set()
        stack = [(a, b)]
        while stack:
            a, b = stack.pop()
            if a == b or (a, b) in done:
                continue
            done.add((a, b))
            for this, (other, number) in self._path(a, b):
                if number is not None:
                    found.add(number)
                else:
                    stack += zip(self._terms.rows[this][2], self._terms.rows[other][2], strict=True)
        return sorted(found)

    def _path(self, a: int, b: int) -> list[tuple[int, tuple[int, int | None]]]:
        """The edges from both terms up to the first that is above both."""
        above_a = self._upward(a)
        place = {a: 0} | {edge[0]: i + 1 for i, (_, edge) in enumerate(above_a)}
        above_b = self._upward(b)
        at, taken = b, 0
        while at not in place:
            at = above_b[taken][1][0]
            taken += 1
        return above_a[: place[at]] + above_b[:taken]

    def _upward(self, at: int) -> list[tuple[int, tuple[int, int | None]]]:
        edges: list[tuple[int, tuple[int, int | None]]] = []
        while at in self._points:
            edges.append((at, self._points[at]))
            at = self._points[at][0]
        return edges

    def _take_in(self, waiting: deque[tuple[int, int, int | None]]) -> None:
        """Terms that were added since."""
        for i in range(len(self._class), len(self._terms.rows)):
            self._class.append(i)
            self._members.append([i])
            self._readers.append([])
            for a in self._terms.rows[i][2]:
                self._readers[self._class[a]].append(i)
            same = self._known.setdefault(self._signature(i), i)
            if same != i:
                waiting.append((same, i, None))

    def _signature(self, i: int) -> tuple[int, ...]:
        return self._terms.head[i], *[self._class[a] for a in self._terms.rows[i][2]]

    def _merge(self, a: int, b: int, number: int | None, waiting: deque[tuple[int, int, int | None]]) -> None:
        into, gone = self._class[a], self._class[b]
        if into == gone:
            return
        self._turn(b)
        self._points[b] = a, number
        if len(self._readers[into]) + len(self._members[into]) < len(self._readers[gone]) + len(self._members[gone]):
            into, gone = gone, into
        for i in self._members[gone]:
            self._class[i] = into
        self._members[into] += self._members[gone]
        for reader in self._readers[gone]:
            same = self._known.setdefault(self._signature(reader), reader)
            if same != reader:
                waiting.append((same, reader, None))
        self._readers[into] += self._readers[gone]

    def _turn(self, at: int) -> None:
        """Turn the edges around that lead away from a term, so that it is the top."""
        edges = self._upward(at)
        for this, _ in edges:
            del self._points[this]
        for this, (above, number) in edges:
            self._points[above] = this, number
