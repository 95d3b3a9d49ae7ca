"""The equalities that follow from some by putting equals for equals (Downey, Sethi, Tarjan, 1980)."""

from __future__ import annotations

from collections.abc import Iterable

from eqsat.verify.terms import Terms


class Congruence:
    """The equalities that follow from some by putting equals for equals."""

    def __init__(self, terms: Terms, equalities: Iterable[tuple[int, int]]) -> None:
        self._terms = terms
        self._parent = list(range(len(terms.rows)))
        self._members = [[i] for i in self._parent]
        self._readers: list[list[int]] = [[] for _ in self._parent]
        self._known: dict[tuple[int, ...], int] = {}
        for i, (_, _, args) in enumerate(terms.rows):
            self._known[self.signature(i)] = i
            for a in args:
                self._readers[a].append(i)
        waiting = list(equalities)
        while waiting:
            self._merge(*waiting.pop(), waiting)

    def equal(self, a: int, b: int) -> bool:
        """Whether two terms are equal."""
        return self._parent[a] == self._parent[b]

    def of(self, a: int) -> int:
        """The class of a term: the same for all that it is equal to."""
        return self._parent[a]

    def signature(self, i: int) -> tuple[int, ...]:
        """The operator of a term and the classes of its operands: terms with one signature are equal."""
        return self._terms.head[i], *[self._parent[a] for a in self._terms.rows[i][2]]

    def _merge(self, a: int, b: int, waiting: list[tuple[int, int]]) -> None:
        into, gone = self._parent[a], self._parent[b]
        if into == gone:
            return
        if len(self._readers[into]) + len(self._members[into]) < len(self._readers[gone]) + len(self._members[gone]):
            into, gone = gone, into
        for i in self._members[gone]:
            self._parent[i] = into
        self._members[into] += self._members[gone]
        for reader in self._readers[gone]:
            waiting.append((reader, self._known.setdefault(self.signature(reader), reader)))
        self._readers[into] += self._readers[gone]
