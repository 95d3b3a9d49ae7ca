"""What an array costs until it is in memory: a guess by which cuts that read it are ranked.

A launch for each leaf is right where the leaf is needed anyway. Where it hides a product, the chain of kernels that
ends in it is right, in equal parts for the kernels of a cover that read it. A slice is there once its array is.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from eqsat.extract.kernels.cuts import Cut, Facts, bit_set, bits


class Kernel(Protocol):
    """A kernel of `price` picoseconds that computes `cls` after the classes of `children`. Those with the same `call`
    are one."""

    @property
    def cls(self) -> int: ...

    @property
    def price(self) -> int: ...

    @property
    def children(self) -> tuple[int, ...]: ...

    @property
    def call(self) -> Hashable: ...

    @property
    def cut(self) -> Cut: ...


class Chain(NamedTuple):
    """The longest chain of kernels that ends in a class, and its last kernel, in picoseconds."""

    whole: int
    last: int


def cost_of(chains: Mapping[int, Chain], launched: Iterable[Sequence[int]]) -> int:
    """The cost of several kernels, given as the classes of each: what their chains share is counted once."""
    longest = total = 0
    for together in launched:
        whole, last = chains[together[0]] if len(together) == 1 else max(chains[c] for c in together)
        longest, total = max(longest, whole - last), total + last
    return longest + total


class Guess:
    """A guess at what the classes of a snapshot cost as leaves: `chains`, a launch for the others. Cheaper cuts correct
    it."""

    def __init__(self, facts: Facts, launch: int, chains: Mapping[int, Chain]) -> None:
        self._facts, self._launch = facts, launch
        self._chains = dict.fromkeys(range(len(facts.leaf)), Chain(launch, launch)) | dict(chains)
        self._beneath: dict[int, int] = {}
        self._asked = 0
        """The classes, as a bit set, of which `_beneath` holds some."""

    def correct(self, c: int, chain: Chain) -> None:
        """Class `c` can be computed by this chain."""
        if chain.whole < self._chains[c].whole:
            self._chains[c] = chain
            if self._asked >> c & 1:
                self._beneath.clear()
                self._asked = 0

    def beneath(self, leaves: int) -> int:
        """A guess at the price of the classes among `leaves` that must be computed."""
        needed = leaves & self._facts.computed
        known = self._beneath.get(needed)
        if known is None:
            known = self._beneath[needed] = cost_of(self._chains, self._facts.launched(needed))
            self._asked |= needed
        return known

    def beyond(self, x: Cut) -> int:
        """The cost of a cut beyond a launch, without its leaves. A plain read of an array costs its bytes elsewhere."""
        return x.price - self._launch if x.price else 0

    def ranked(self, cut: Cut) -> Cut:
        """A cut that was made before, with a score by the present guess at its leaves."""
        needed = cut.slot[2]
        beneath = self._beneath.get(needed)
        cut.score = cut.price + (self.beneath(needed) if beneath is None else beneath) + cut.inner.bit_count()
        return cut


def chains_of(kernels: Sequence[Sequence[Kernel]], facts: Facts, cover: Sequence[Kernel] = ()) -> dict[int, Chain]:
    """For each class that must be computed, the chain that ends in it: by a cover, given in launch order, where that
    computes it, else by the kernel for which the least is computed in all. In equal parts for all that read the class.

    This is the area flow of technology mapping: an array that many kernels read is as good as there for one more.
    """
    readers = _readers(cover, facts)
    chains = _in_cover(cover, readers, facts)
    order = sorted((c for c, found in enumerate(kernels) if found), key=facts.snapshot.depth.__getitem__)
    changed = True
    while changed:  # a class may be cheapest from deeper ones
        changed = False
        for c in order:
            for x in kernels[c]:
                if all(d in chains for d in x.children):
                    found = _chain(x, chains, facts, x.price)
                    if c not in chains or found.whole < chains[c].whole:
                        chains[c], changed = found, True
    # Parts are taken last: around a cycle of classes, parts of parts would become nothing.
    known = {x.cls for x in cover}
    parts = {c: chain if c in known else _part(chain, readers.get(c, 1)) for c, chain in chains.items()}
    for c in filter(parts.__contains__, order):
        slices = (parts[x.children[0]] for x in kernels[c] if _is_slice(x) and x.children[0] in parts)
        parts[c] = min([parts[c], *slices])
    return parts


def promising(kernels: Sequence[Sequence[Kernel]], facts: Facts, most: float, least: int) -> int:
    """The classes, as a bit set, that programs compute, in memory or inside a kernel, which cost at most `most`
    picoseconds more than the cheapest, as far as chains tell; the nearest `least` classes in any case.

    So are concatenations of such classes. One pays where several of its slices are read, which no chain tells.
    """
    detours = sorted((detour, c) for c, detour in _detours(kernels, facts).items())
    found = sum(1 << c for i, (detour, c) in enumerate(detours) if i < least or detour <= most)
    for node in facts.snapshot.nodes:
        if node.op == "Cat" and all(found >> a & 1 or facts.free[a] for a in node.args):
            found |= 1 << node.cls
    return found


def _detours(kernels: Sequence[Sequence[Kernel]], facts: Facts) -> dict[int, int]:
    """For each class that a program may compute, the price of the cheapest program that does, less that of the cheapest
    of all, in picoseconds. Each kernel on the way from a root to the class adds the price by which its chain is dearer
    than that of its class."""
    chains = chains_of(kernels, facts)
    found: dict[int, int] = {}
    inside: dict[int, int] = {}
    waiting = [(0, r) for r in facts.snapshot.roots if r in chains]
    while waiting:
        detour, c = heapq.heappop(waiting)
        if c in found:
            continue
        found[c] = detour
        for x in kernels[c]:
            if any(d not in chains for d in x.children):
                continue
            more = detour + max(0, _chain(x, chains, facts, x.price).whole - chains[c].whole)
            for d in bits(x.cut.inner):
                inside[d] = min(more, inside.get(d, more))
            for d in x.children:
                if d not in found:
                    heapq.heappush(waiting, (more, d))
    return {c: min(x[c] for x in (found, inside) if c in x) for c in found | inside}


def _in_cover(cover: Sequence[Kernel], readers: Mapping[int, int], facts: Facts) -> dict[int, Chain]:
    """The chain that ends in each array of a cover. The outputs of a kernel share its price."""
    outputs = Counter(x.call for x in cover)
    chains: dict[int, Chain] = {}
    for x in cover:
        whole = _chain(x, chains, facts, x.price // (outputs[x.call] if x.call else 1))
        chains[x.cls] = whole if _is_slice(x) else _part(whole, readers.get(x.cls, 1))
    return chains


def _chain(x: Kernel, chains: Mapping[int, Chain], facts: Facts, price: int) -> Chain:
    """The chain that ends in a kernel of this price. A slice takes part in that of its array."""
    if _is_slice(x):
        return chains[x.children[0]]
    return Chain(price + cost_of(chains, facts.launched(bit_set(x.children))), price)


def _is_slice(x: Kernel) -> bool:
    """Whether this only reads a part of an array, which is free."""
    return not x.price and len(x.children) == 1


def _part(chain: Chain, readers: int) -> Chain:
    return Chain(chain.whole // readers, chain.last // readers)


def _readers(cover: Sequence[Kernel], facts: Facts) -> dict[int, int]:
    """How many kernels of a cover read each array, itself or as a slice; results are read once more. An array that is
    not computed has the readers of its views: it would be shared as much as what the cover computes instead."""
    reading: dict[int, set[Hashable]] = {c: {None} for c in facts.snapshot.roots}
    for x in reversed(cover):
        for d in x.children:
            reading.setdefault(d, set()).update(reading.get(x.cls, ()) if _is_slice(x) else {x.call or x.cls})
    computed = {x.cls for x in cover}
    views: dict[int, set[Hashable]] = {}
    for node in facts.snapshot.nodes:
        if node.op == "V" and node.cls in reading and node.args[0] not in computed:
            views.setdefault(node.args[0], set()).update(reading[node.cls])
    return {c: len(found) for c, found in (views | reading).items()}
