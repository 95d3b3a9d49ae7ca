"""Kernel candidates: for every class, the priced cuts that a cover may choose from.

Cuts grow bottom-up like priority cuts in technology mapping (Mishchenko et al., "Combinational and Sequential Mapping
with Priority Cuts", ICCAD 2007): a class keeps the best few of each kind. Around a cycle of classes, when one improves,
the e-nodes above it are grown again, until nothing changes. Cuts that one kernel can compute together are then joined.
Dominated candidates are dropped: those for which another candidate reads no more and costs no more.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from eqsat.egraph.required import Needs
from eqsat.egraph.snapshot import Snapshot
from eqsat.extract.device.table import Device
from eqsat.extract.kernels.chains import Chain, chains_of, promising
from eqsat.extract.kernels.cost import Prices, Run
from eqsat.extract.kernels.cuts import NOTHING, Cut, Facts, Kind, Limits, Slot, bit_set, bits, parts, quicker, usual
from eqsat.extract.kernels.grow import Grower, Made
from eqsat.extract.kernels.joint import Joint, joint_kernels
from eqsat.extract.kernels.unfused import UnfusedGrower

CLEARLY_LESS = 0.9
"""Share of another kernel's price from which on an operator with a product was not priced as one."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A kernel, or an alias, that computes a class.

    Attributes:
        cls: the class. `leaves` are the classes it reads; `children` are the leaves that must be computed.
        family: the kernel family, or "alias" for a contiguous slice of a leaf, which is free.
        price: picoseconds for all launches together.
        cut: the expression.
        call: set if one kernel may compute several classes (results of an opaque operator, joint kernels).
            Candidates with the same `call` are one kernel and are paid once.
        launches: number of launches, 0 for an alias; `slices` is the number of parts that long sums are split into.
    """

    cls: int
    family: str
    leaves: tuple[int, ...]
    children: tuple[int, ...]
    price: int
    cut: Cut
    call: tuple[str, tuple[Any, ...]] | None = None
    launches: int = 1
    slices: int = 1


@dataclass(slots=True)
class Candidates:
    """The candidates of every class (none for classes that are free), and statistics of the search.

    `made` is for another enumeration over the same snapshot in this process; None once it is dropped.
    """

    of_class: list[list[Candidate]]
    facts: Facts
    stats: dict[str, Any] = field(default_factory=dict)
    made: Made | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return sum(map(len, self.of_class))

    def __reduce__(self) -> tuple[object, ...]:
        return Candidates, (self.of_class, self.facts, self.stats)

    @property
    def free(self) -> list[bool]:
        """Whether a class need not be computed."""
        return self.facts.free

    def chains(self, cover: Sequence[Candidate] = ()) -> dict[int, Chain]:
        """What each class costs as a leaf, by these kernels; where a cover computes it, by the cover."""
        return chains_of(self.of_class, self.facts, cover)

    def promising(self, most: float, least: int) -> int:
        """The classes, as a bit set, that programs by these kernels compute which cost at most `most` picoseconds more
        than the cheapest; the nearest `least` classes in any case, and concatenations of these."""
        return promising(self.of_class, self.facts, most, least)

    def without_match(self, more: Iterable[Candidate]) -> Iterator[Candidate]:
        """Kernels of operators without a product, and kernels that cost clearly less than every contraction here for
        the same class with the same operands or fewer. Any other one is held here already, at a like price."""
        for x in more:
            needed = set(x.children)
            like = (y for y in self.of_class[x.cls] if x.family == "contraction" and needed.issuperset(y.children))
            if all(x.price < CLEARLY_LESS * y.price for y in like):
                yield x

    def keep(self, more: Iterable[Candidate]) -> None:
        """These as well, though others may dominate them."""
        known = {same_kernel(x) for found in self.of_class for x in found}
        for x in more:
            if same_kernel(x) not in known:
                known.add(same_kernel(x))
                self.of_class[x.cls].append(x)

    def add(self, more: Iterable[Candidate]) -> None:
        """These as well, where none that is there dominates them."""
        of_class: dict[int, list[Candidate]] = {}
        for x in more:
            of_class.setdefault(x.cls, []).append(x)
        for c, found in of_class.items():
            self.of_class[c] = undominated([*self.of_class[c], *found])


def same_kernel(x: Candidate) -> object:
    """Equal for kernels of one price that read the same, begin with one e-node and compute the same classes."""
    return x.cls, x.price, x.leaves, x.cut.node, x.cut.inner, x.call


def enumerate_candidates(
    snapshot: Snapshot,
    device: Device,
    limits: Limits | None = None,
    should_stop: Callable[[], bool] | None = None,
    only: Sequence[bool] | None = None,
    needs: Needs | None = None,
    exact: bool = False,
    chains: Mapping[int, Chain] | None = None,
    made: Made | None = None,
    in_a_hurry: Callable[[float], bool] | None = None,
    among: int | None = None,
) -> Candidates:
    """The candidates of every class, within `limits`, by default the usual ones for an e-graph of this size.

    `should_stop` is polled; once it returns True, classes keep their present cuts, which always suffice for a cover.
    `only` lists the e-nodes that may be used; None means all. `needs` describes the classes that kernels with
    several outputs compute (`eqsat.egraph.required`): none are made without it. With `exact`, kernels sum in a fixed
    order. `chains` are a guess at what each class costs as a leaf; by default a launch. `made`
    is what an earlier enumeration for the same device made, under limits that differ at most in how much is kept.
    `in_a_hurry` is asked with the share of the classes that is left; once it returns True, no more is kept of them than
    `QUICK` allows. `among` are the classes, as a bit set, to find more cuts of; None means all. Others have those that
    the enumeration of `made` kept.
    """
    limits = limits or usual(snapshot)
    start = time.perf_counter()
    prices = Prices(device, exact)
    made = made or Made.nothing(snapshot, prices, limits)
    facts = made.facts
    needed = needs.classes if needs else 0
    grower = (Grower if device.fuses else UnfusedGrower)(snapshot, prices, limits, made, chains, only, needed)
    search = _Search(snapshot, facts, grower, limits, only or [True] * len(snapshot.nodes))
    own = None if only is None else tuple(only)
    kept = () if among is None else made.kept.get(own, ())
    search.run(should_stop, in_a_hurry, {c: cuts for c, cuts in enumerate(kept) if not (among or 0) >> c & 1})
    made.kept[own] = search.cuts
    of_class: list[list[Candidate]] = []
    for c in range(snapshot.n_classes):
        of_class.append([] if facts.free[c] else search.candidates(c))
    if needs is not None and device.fuses and not (should_stop and should_stop()):
        for x in search.joint(of_class, needs, should_stop):
            of_class[x.cls].append(x)
    stats = {
        "candidates": sum(map(len, of_class)),
        "families": dict(sorted(Counter(x.family for found in of_class for x in found).items())),
        "joint": len({x.call for found in of_class for x in found if x.call is not None}),
        "visits": search.visits,
        "rounds": search.rounds,
        "stopped": search.stopped,
        "hurried": search.hurried,
        "crowded": search.crowded or grower.crowded,
        "seconds": time.perf_counter() - start,
    }
    return Candidates(of_class, facts, stats, made)


def undominated(found: Sequence[Candidate]) -> list[Candidate]:
    """The candidates, cheapest first, without each one that needs all classes of another that costs no more.

    Candidates that may share their price with other classes stay, after the others.
    """
    kept: list[tuple[int, Candidate]] = []
    shared: dict[object, Candidate] = {}
    for x in sorted(found, key=lambda x: (x.price, len(x.children), x.cut.inner.bit_count(), x.children)):
        needs = bit_set(x.children)
        if x.call is not None:
            shared.setdefault(x.call, x)
        elif all(other & ~needs for other, _ in kept):
            kept.append((needs, x))
    return [x for _, x in kept] + list(shared.values())


_HOLDS = ("copy", "pointwise", "contraction", "contraction+reduction", "reduction", "row", "stream")
"""Families of joint kernels: each can hold the cuts of earlier families if they share a product or rows."""


_MOVES = ("V", "Gather", "Cat")
"""Operators of a copy."""


def joint_family(snapshot: Snapshot, cuts: Iterable[Cut]) -> str:
    """The family of a joint kernel: one that can hold all of its cuts."""
    return max((_family(snapshot, cut) for cut in cuts), key=_HOLDS.index)


def _family(snapshot: Snapshot, cut: Cut) -> str:
    match cut.kind:
        case Kind.POINT:
            return "pointwise" if _computes(snapshot, cut) else "copy"
        case Kind.GEMM:
            return "contraction"
        case Kind.GEMM_RED:
            return "contraction+reduction"
        case Kind.ROW:
            return "row" if cut.on_chip else "reduction"
        case Kind.STREAM:
            return "stream"
        case Kind.OPAQUE:
            return "opaque"


def _computes(snapshot: Snapshot, cut: Cut) -> bool:
    """Whether the cut computes anything besides views, gathers and concatenations of arrays."""
    if snapshot.nodes[cut.node].op not in _MOVES:
        return True
    return any(x.node >= 0 and snapshot.nodes[x.node].op not in _MOVES for x in parts((cut,)))


class _Search:
    """The worklist: classes in order, operands first, and around a cycle again when the cuts of an operand change."""

    def __init__(self, snapshot: Snapshot, facts: Facts, grower: Grower, limits: Limits, only: Sequence[bool]) -> None:
        self.snapshot, self.facts, self.grower, self.limits, self.only = snapshot, facts, grower, limits, only
        self.cuts: list[list[Cut]] = [[] for _ in range(snapshot.n_classes)]
        self.visits = self.rounds = 0
        self.stopped = self.hurried = self.crowded = False
        self._grown: list[list[Cut]] = [[] for _ in snapshot.nodes]
        self._ranked: list[tuple[Sequence[object], Sequence[object]]] = [([], []) for _ in range(snapshot.n_classes)]

    def run(
        self,
        should_stop: Callable[[], bool] | None,
        in_a_hurry: Callable[[float], bool] | None = None,
        kept: Mapping[int, Sequence[Cut]] = MappingProxyType({}),
    ) -> None:
        """Grow until nothing changes, or for as many rounds as the limits allow around each cycle.

        Few classes are on cycles. Every other one is grown once, when its operands have all their cuts. Those that have
        `kept` theirs are not grown, unless another one on their cycle is.
        """
        cycles = self.facts.cycles
        for i, cycle in enumerate(cycles):
            if in_a_hurry and not self.hurried and in_a_hurry(1 - i / len(cycles)):
                self.hurried, self.limits = True, quicker(self.limits)
                self.grower.limits = self.limits
            if all(c in kept for c in cycle):
                for c in cycle:
                    self.cuts[c] = [self.grower.guess.ranked(x) for x in kept[c]]
                    self.grower.keep(c, self.cuts[c])
                continue
            stale = {c: {i for i in self.snapshot.members[c] if self.only[i]} for c in cycle}
            rounds = 0
            while any(stale.values()) and rounds < self.limits.rounds:
                rounds += 1
                for c in cycle:
                    if stale[c]:
                        self._grow(c, stale, should_stop)
            self.rounds = max(self.rounds, rounds)

    def _grow(self, c: int, stale: dict[int, set[int]], should_stop: Callable[[], bool] | None) -> None:
        """Grow the stale e-nodes of a class. If its cuts are new, those of its readers on the cycle become stale."""
        snapshot = self.snapshot
        if not self.stopped and should_stop and should_stop():
            self.stopped = True
            self.grower.limits = quicker(self.limits)
        waiting, stale[c] = stale[c], set()
        if self.stopped:
            if self.cuts[c]:
                return
            waiting = waiting & {snapshot.best[c]} or waiting  # enough for a cover
        for i in sorted(waiting):
            self._grown[i] = self._best(self.grower.grow(i))
            self.visits += 1
        if self._settle(c) and not self.stopped:
            for p in snapshot.parents[c]:
                if self.only[p] and (reader := snapshot.nodes[p].cls) in stale:
                    stale[reader].add(p)

    def _settle(self, c: int) -> bool:
        """Choose the best cuts of a class from those of its e-nodes. True if they are new.

        Around a cycle of classes, each with a cut through the others, two choices may displace each other for ever:
        what a class had the time before last is not new.
        """
        nodes = self.snapshot.members[c]
        best = self._grown[nodes[0]] if len(nodes) == 1 else self._best(x for i in nodes for x in self._grown[i])
        ranks = [(x.kind, x.key, x.leaves, x.score) for x in best]
        known = ranks in self._ranked[c]
        self.cuts[c], self._ranked[c] = best, (self._ranked[c][-1], ranks)
        self.grower.keep(c, best)
        return not known

    def _best(self, cuts: Iterable[Cut]) -> list[Cut]:
        """The best few of each kind, with wide operands and without; of cuts that differ only in their inner operators,
        one."""
        pool: dict[Slot, Cut] = {}
        for cut in cuts:
            known = pool.setdefault(cut.slot, cut)
            if cut.score < known.score:
                pool[cut.slot] = cut
        by_kind: dict[tuple[Kind, bool], list[Cut]] = {}
        for cut in pool.values():
            by_kind.setdefault((cut.kind, cut.wide), []).append(cut)
        best = []
        for kind in sorted(by_kind):
            best += sorted(by_kind[kind], key=lambda x: (x.score, x.leaves, x.node))[: self.limits.per_kind]
        self.crowded = self.crowded or len(best) < len(pool)
        return best

    def aliases(self, c: int) -> list[Candidate]:
        """The class as a contiguous slice of another class, which is free because kernels take addresses."""
        found: list[Candidate] = []
        if not self.grower.prices.device.fuses:
            return found
        for i in self.snapshot.members[c]:
            node = self.snapshot.nodes[i]
            if self.only[i] and node.op == "V" and node.attrs[0].contiguous and node.args[0] != c:
                leaf = self.facts.leaf[node.args[0]]
                cut = Cut(c, i, (leaf,), Kind.POINT, None, leaf.leaves, 1 << c, ())
                found.append(self._candidate(cut, "alias", NOTHING))
        return found

    def shallowest(self, c: int, found: Sequence[Candidate]) -> list[Candidate]:
        """The kernel of the e-node of the shallowest derivation, unless a found candidate needs no more classes.

        Under any limits, these kernels of all classes together form a cover without cycles.
        """
        i = self.snapshot.best[c]
        given = set(self.snapshot.nodes[i].args)
        if not self.only[i] or any(given.issuperset(x.children) for x in found):
            return []
        found = [self.candidate(cut, self._price(cut)) for cut in self.grower.grow(i)]
        return [x for x in found if given.issuperset(x.children)]

    def candidates(self, c: int) -> list[Candidate]:
        """The undominated candidates of a class that must be computed."""
        aliases, own = self.aliases(c), self._undominated(c)
        more = self.shallowest(c, [*aliases, *own])
        return undominated([*aliases, *own, *more]) if aliases or more or any(x.call for x in own) else own

    def _undominated(self, c: int) -> list[Candidate]:
        """The candidates of a class that `undominated` would keep: most of its cuts need not become any."""
        computed = self.facts.computed
        ranked: list[tuple[int, int, int, tuple[int, ...], int]] = []
        for i, cut in enumerate(self.cuts[c]):
            needs = bits(cut.leaves & computed)
            ranked.append((self._price(cut), len(needs), cut.inner.bit_count(), needs, i))
        kept: list[Candidate] = []
        known: list[int] = []
        for price, _, _, _, i in sorted(ranked):
            cut = self.cuts[c][i]
            needed = cut.leaves & computed
            if cut.kind == Kind.OPAQUE:
                kept.append(self.candidate(cut, price))
            elif all(other & ~needed for other in known):
                known.append(needed)
                kept.append(self.candidate(cut, price))
        return kept

    def _price(self, cut: Cut) -> int:
        library = self.grower.runs.library(cut)
        return cut.price if library is None else min(library, cut.price)

    def candidate(self, cut: Cut, price: int) -> Candidate:
        """The kernel of a cut, of this price; for a bare product, the library's kernel if that is faster."""
        if price < cut.price:
            return self._candidate(cut, "library-gemm", cut.run._replace(price=price))
        return self._candidate(cut, _family(self.snapshot, cut), cut.run)

    def joint(
        self, of_class: Sequence[Sequence[Candidate]], needs: Needs, should_stop: Callable[[], bool] | None
    ) -> list[Candidate]:
        """Candidates, one for each output, of joint kernels that are cheaper than kernels of single classes."""

        computed = self.facts.computed
        priced = [[(x.cut.leaves & computed, x.price) for x in kernels] for kernels in of_class]

        def cheapest(c: int, given: int) -> int | None:
            return next((price for children, price in priced[c] if not children & ~given), None)

        # Two products may give the same outputs from the same arrays: x @ x and (-x) @ (-x).
        best: dict[tuple[str, tuple[Any, ...]], Joint] = {}
        for kernel in joint_kernels(self.snapshot, self.grower, self.cuts, needs, cheapest, should_stop):
            call = joint_family(self.snapshot, kernel.cuts), (kernel.classes, bits(kernel.leaves))
            if call not in best or kernel.run < best[call].run:
                best[call] = kernel
        found: list[Candidate] = []
        for call, kernel in best.items():
            family, (_, leaves) = call
            children = bits(kernel.leaves & computed)
            price, launches, slices = kernel.run
            found += [Candidate(x.cls, family, leaves, children, price, x, call, launches, slices) for x in kernel.cuts]
        return found

    def _candidate(self, cut: Cut, family: str, run: Run) -> Candidate:
        children = bits(cut.leaves & self.facts.computed)
        call = None
        if cut.kind == Kind.OPAQUE:
            node = self.snapshot.nodes[cut.node]
            call = (node.attrs[0], node.args)
        price, launches, slices = run
        return Candidate(cut.cls, family, bits(cut.leaves), children, price, cut, call, launches, slices)
