"""Joining operands: the ways to compute all operands of an operator in one kernel, of which the most promising stay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import NamedTuple, TypeVar, cast

from eqsat.extract.kernels.chains import Guess
from eqsat.extract.kernels.cuts import Core, Cut, Facts, Key, Kind, Product, Slot, sums_in_two_ways
from eqsat.extract.kernels.streams import Streams

K = TypeVar("K", bound=Key)


class Join(NamedTuple):
    """Cuts of the operands in one kernel of this kind and key. `beyond` is what they cost without launch and leaves."""

    kind: Kind
    key: Key
    leaves: int
    inner: int
    beyond: int
    subs: tuple[Cut, ...]


class Joins:
    """Joins cuts that are points, or have one key. `streams` join products with different ones; None if nothing does.

    Attributes:
        crowded: whether a limit dropped a join for one that ranks higher.
        leading: the products of which unlike ones are joined.
    """

    def __init__(self, facts: Facts, guess: Guess, streams: Streams | None, keys: dict[Key, Key]) -> None:
        """`keys` has one object for equal keys of cuts."""
        self._facts, self._guess, self._streams, self._keys = facts, guess, streams, keys
        self.crowded = False
        self.leading: set[Core] = set()

    def likely(self, operands: Sequence[Sequence[Cut]], most: int, kept: int) -> list[Join]:
        """As `of`, for a pointwise operator: one of two operands that need not be computed is read beside the other."""
        alone = [len(cuts) == 1 and not cuts[0].leaves & self._facts.computed for cuts in operands]
        if len(operands) == 2 and any(alone):
            k = int(alone[0])
            return self.beside(operands[k], operands[1 - k][0], k, most, kept)
        return self.of(operands, most, kept)

    def beside(self, cuts: Sequence[Cut], other: Cut, k: int, most: int, kept: int) -> list[Join]:
        """As `of`, for cuts of operand `k` and an `other` one that need not be computed: each cut reads it as well,
        so that no two of them become equally good choices."""
        by_kind: dict[Kind, list[tuple[int, int, Cut]]] = {}
        for x in cuts:
            leaves = x.leaves | other.leaves
            if leaves.bit_count() <= most:
                score = self._guess.beyond(x) + self._guess.beneath(leaves)
                by_kind.setdefault(x.kind, []).append((score, leaves, x))
        found: list[Join] = []
        for kind in sorted(by_kind):
            best = sorted(by_kind[kind], key=lambda x: x[:2])
            self.crowded = self.crowded or len(best) > kept
            for _, leaves, x in best[:kept]:
                subs = (other, x) if k else (x, other)
                found.append(Join(kind, x.key, leaves, x.inner, self._guess.beyond(x), subs))
        return found

    def of(self, operands: Sequence[Sequence[Cut]], most: int, kept: int) -> list[Join]:
        """The most promising ways to compute all operands in one kernel that reads at most `most` arrays, the
        best `kept` of each kind."""
        computed = self._facts.computed
        written_out = any(x.summed for cuts in operands for x in cuts)
        partial = [Join(x.kind, x.key, x.leaves, x.inner, self._guess.beyond(x), (x,)) for x in operands[0]]
        for cuts in operands[1:]:
            options = [Join(x.kind, x.key, x.leaves, x.inner, self._guess.beyond(x), (x,)) for x in cuts]
            best: dict[Slot, Join] = {}
            for left, x in product(partial, options):
                kind, key, leaves, inner, beyond, subs = left
                if kind == Kind.POINT:
                    kind, key = x.kind, x.key
                elif x.kind != Kind.POINT and not (x.kind == kind and x.key is key):
                    kind, key = Kind.STREAM, self._together(key, x.key)
                    if key is None:
                        continue
                leaves |= x.leaves
                inner |= x.inner
                if leaves & inner or leaves.bit_count() > most:
                    continue
                if written_out and sums_in_two_ways((*subs, *x.subs)):
                    continue
                if (kind != Kind.POINT and left.key is x.key) or leaves in (left.leaves, x.leaves):
                    beyond = max(beyond, x.beyond)
                else:
                    beyond += x.beyond
                slot = (kind, id(key), leaves & computed)
                known = best.get(slot)
                if known is None or beyond < known.beyond:
                    best[slot] = Join(kind, key, leaves, inner, beyond, subs + x.subs)
            scored = [(join.beyond + self._guess.beneath(needed), join) for (_, _, needed), join in best.items()]
            partial = _best_of_each_kind(scored, kept)
            self.crowded = self.crowded or len(partial) < len(best)
        return partial

    def _together(self, a: Key, b: Key) -> Product | None:
        """Products as one stream; None where they are none, or cannot be."""
        if self._streams is None or not isinstance(a, Product) or not isinstance(b, Product):
            return None
        turned = a.core.turned or b.core.turned
        layout = a.facing(turned)
        if layout is None or layout != b.facing(turned):
            return None
        core = self._streams.together(a.core, b.core, self.leading)
        return None if core is None else self.one(Product(core, layout))

    def one(self, key: K) -> K:
        """The one object for all keys that are equal, by which cuts are compared."""
        return cast(K, self._keys.setdefault(key, key))


def _best_of_each_kind(scored: Iterable[tuple[int, Join]], most: int) -> list[Join]:
    by_kind: dict[Kind, list[tuple[int, Join]]] = {}
    for score, join in scored:
        by_kind.setdefault(join.kind, []).append((score, join))
    out = []
    for kind in sorted(by_kind):
        out += [join for _, join in sorted(by_kind[kind], key=lambda x: (x[0], x[1].leaves))[:most]]
    return out
