"""Small products in one launch: independent ones that a kernel reads, or that good covers compute.

Each alone leaves most of a device idle, and most of its price is the launch. Priced one by one they lose against
products that do ten times the work in fewer launches: in a b c d e, all dynamic, b c and d e are such a pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache

from eqsat.egraph.snapshot import Snapshot
from eqsat.extract.kernels.candidates import Candidate, Candidates
from eqsat.extract.kernels.cuts import Kind, bits, parts
from eqsat.gpu.table.sharing import FAMILIES, Member, launches, tiles

CALL = "shared launch"
"""First part of `Candidate.call` for kernels that share a launch."""


class Sharing:
    """The small products of a snapshot, and the launches that they may share.

    A shared launch costs what its members cost apart without all launches but one. That they run side by side is not
    counted.
    """

    def __init__(self, snapshot: Snapshot, found: Candidates, launch: int) -> None:
        """`launch` is its cost in picoseconds."""
        self._snapshot, self._found, self._launch = snapshot, found, launch

    def read_together(self, among: Iterable[int] | None = None) -> list[Candidate]:
        """Candidates of launches shared by the cheapest small products of the classes that one kernel reads, or of the
        roots, or of the arrays of which these are slices. With `among`, such kernels compute one of these classes."""

        @cache
        def small(c: int) -> list[Candidate]:
            return self._cheapest_small(self._found.of_class[c])

        sets: dict[tuple[int, ...], list[Candidate]] = {}
        every = range(len(self._found.of_class)) if among is None else among
        for classes in dict.fromkeys(self._needed_together(every)):
            arrays = dict.fromkeys(next((d for d in self._arrays(c) if small(d)), c) for c in classes)
            for needed in (classes, arrays):
                found = [small(c) for c in needed if small(c)]
                for products in ([own[0] for own in found], [own[-1] for own in found]):
                    sets.setdefault(tuple(map(id, products)), products)
        made: dict[tuple[tuple[int, tuple[int, ...]], ...], list[Candidate]] = {}
        for products in sets.values():
            for kernels in self._packed(products):
                key = tuple((x.cls, x.leaves) for x in kernels)
                if key not in made:
                    made[key] = self._in_one_launch(kernels)
        return [x for members in made.values() for x in members]

    def packed(self, cover: Sequence[Candidate]) -> list[Candidate]:
        """A cover in launch order, with candidates of shared launches for the kernels that lowering would pack."""
        apart = [self.alone(x) for x in cover]
        instead = {x.cls: x for kernels in self._packed(apart) for x in self._in_one_launch(kernels)}
        return [instead.get(x.cls, x) for x in apart]

    def saved(self, x: Candidate) -> int:
        """Picoseconds that a kernel costs less where it shares a launch with others; 0 if it cannot."""
        return self._launch if self._tiles(x) else 0

    def most_saved(self, shared: Iterable[Candidate]) -> int:
        """Picoseconds that any cover saves at most by these candidates of shared launches: all launches but one for
        each that it takes, and it computes each class once."""
        members = {(x.call, x.cls) for x in shared}
        launches_less = len(members) - len({call for call, _ in members})
        return self._launch * min(launches_less, max(0, len({c for _, c in members}) - 1))

    def _needed_together(self, among: Iterable[int]) -> Iterator[tuple[int, ...]]:
        """Sets of classes that a kernel of a class among these reads, and the roots."""
        yield tuple(dict.fromkeys(self._snapshot.roots))
        for c in among:
            for x in self._found.of_class[c]:
                if len(x.children) > 1:
                    yield x.children

    def _arrays(self, c: int) -> Iterator[int]:
        """The arrays of which a class is a slice."""
        return (x.children[0] for x in self._found.of_class[c] if x.family == "alias" and x.children)

    def _cheapest_small(self, kernels: Sequence[Candidate]) -> list[Candidate]:
        """The cheapest kernel of a class, and the cheapest one that waits for the fewest others, where they are
        products that may share a launch. A slice is free, but not its array."""
        apart = [x for x in kernels if x.call is None and x.family != "alias"]
        if not apart:
            return []
        cheapest = min(apart, key=lambda x: (x.price, x.leaves))
        first = min(apart, key=lambda x: (len(x.children), x.price, x.leaves))
        return [x for x in (cheapest, first) if self._tiles(x)]

    def _tiles(self, x: Candidate) -> int:
        """The tiles of a kernel that may share a launch; 0 for any other."""
        if x.family not in FAMILIES or x.launches != 1 or x.slices != 1 or x.call:
            return 0
        nodes = (self._snapshot.nodes[y.node] for y in parts((x.cut,)) if y.node >= 0 and y.kind != Kind.POINT)
        batch, m, _, n = next(node.attrs for node in nodes if node.op == "MM")
        return tiles(batch, m, n)

    def _packed(self, kernels: Sequence[Candidate]) -> list[list[Candidate]]:
        """Those of several kernels that share launches, as lowering packs them."""
        members = [Member(self._tiles(x), x.leaves, (x.cls,)) for x in kernels]
        return [[kernels[i] for i in group] for group in launches(members) if len(group) > 1]

    def alone(self, x: Candidate) -> Candidate:
        """A kernel of a shared launch by itself; any other as it is."""
        if x.call is None or x.call[0] != CALL:
            return x
        leaves, children = bits(x.cut.leaves), bits(x.cut.leaves & self._found.facts.computed)
        return replace(x, leaves=leaves, children=children, price=x.cut.price, call=None)

    def _in_one_launch(self, members: Sequence[Candidate]) -> list[Candidate]:
        """Candidates, one for each member, of a launch that they share."""
        leaves = tuple(sorted({c for x in members for c in x.leaves}))
        children = tuple(sorted({c for x in members for c in x.children}))
        price = sum(x.price for x in members) - (len(members) - 1) * self._launch
        call = CALL, (tuple(sorted(x.cls for x in members)), leaves)
        return [replace(x, leaves=leaves, children=children, price=price, call=call) for x in members]
