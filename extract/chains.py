"""What an array costs until it is in memory: a guess by which cuts that read it are ranked.

A launch for each leaf is right where the leaf is needed anyway. Where it hides a product, the chain of kernels that
ends in it is right, in equal parts for the kernels of a cover that read it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from eqsat.extract.cuts import Facts


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


def shared_chains(cover: Sequence[Kernel], results: Iterable[int], facts: Facts) -> dict[int, Chain]:
    """The chain that ends in each array of a cover, given in launch order, in equal parts for all that read it.

    This is the area flow of technology mapping: an array that many kernels read is as good as there for one more.
    """
    reads = {(x.call or x.cls, d) for x in cover for d in x.children}
    readers = Counter([*set(results), *(d for _, d in reads)])
    chains: dict[int, Chain] = {}
    for x in cover:
        whole = x.price + cost_of(chains, facts.launched(sum(1 << d for d in x.children)))
        chains[x.cls] = Chain(whole // readers[x.cls], x.price // readers[x.cls])
    return chains


def cheapest_chains(kernels: Sequence[Sequence[Kernel]], facts: Facts, known: Mapping[int, Chain]) -> dict[int, Chain]:
    """For each class that must be computed, a known chain, or that of the kernel for which the least is computed in
    all."""
    chains = dict(known)
    order = sorted((c for c, found in enumerate(kernels) if found), key=facts.snapshot.depth.__getitem__)
    changed = True
    while changed:  # a class may be cheapest from deeper ones
        changed = False
        for c in order:
            for x in kernels[c]:
                if all(d in chains for d in x.children):
                    whole = x.price + cost_of(chains, facts.launched(sum(1 << d for d in x.children)))
                    if c not in chains or whole < chains[c].whole:
                        chains[c], changed = Chain(whole, x.price), True
    return chains
