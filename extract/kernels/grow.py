"""Growing cuts: the cuts of an e-node are made from the cuts of its operands. One method per core operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, product

from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.extract.kernels.bodies import Indices
from eqsat.extract.kernels.chains import Chain, Guess
from eqsat.extract.kernels.cost import Prices, work_of
from eqsat.extract.kernels.cuts import (
    Core,
    Cut,
    Factors,
    Facts,
    Inside,
    Key,
    Kind,
    Limits,
    Product,
    Read,
    Rows,
    joined,
    reduces_axis,
    shared_work,
    sums_in_two_ways,
    turned_dims,
    viewed_rows,
)
from eqsat.extract.kernels.joins import Joins
from eqsat.extract.kernels.runs import Runs
from eqsat.extract.kernels.streams import Streams
from eqsat.layout.arithmetic import Layout, compose, identity, is_bijective, of_pad, strided
from eqsat.program.node import terms_of
from eqsat.streams.row_sums import factors, is_row_sum
from eqsat.streams.turned import swapped

REDUCED_BY_GEMM = frozenset({"sum", "max", "min"})
"""Reductions whose partial results workgroups can combine with one atomic."""


@dataclass(frozen=True, slots=True)
class Made:
    """What is known of a snapshot's cuts. Growing them once more, with another guess at the leaves, prices none twice.

    Attributes:
        facts, streams: about the snapshot.
        cuts: by e-node, operands and kind; None where a limit forbids the cut. `cores` are by the keys of their
            factors. `keys` has one object for equal keys of cuts, by which cuts are compared.
        indices: at which cuts compute their inner operators.
        kept: by the e-nodes that an enumeration could use, None for all, the cuts that it kept of each class.
    """

    facts: Facts
    streams: Streams
    cuts: dict[tuple[int, tuple[Cut, ...], Kind], Cut | None] = field(default_factory=dict)
    cores: dict[tuple[int, Inside, Inside, bool], Core] = field(default_factory=dict)
    keys: dict[Key, Key] = field(default_factory=dict)
    indices: Indices = field(default_factory=Indices)
    kept: dict[tuple[bool, ...] | None, Sequence[Sequence[Cut]]] = field(default_factory=dict)

    @staticmethod
    def nothing(snapshot: Snapshot, prices: Prices, limits: Limits) -> Made:
        """Before any cut is made."""
        facts = Facts(snapshot, limits)
        return Made(facts, Streams(snapshot, prices, facts))


class Grower:
    """Makes cuts. `points`, `gemms`, `streamed` and `rows` hold each class's cuts so far, best first; a leaf is a point
    too."""

    def __init__(
        self,
        snapshot: Snapshot,
        prices: Prices,
        limits: Limits,
        made: Made,
        chains: Mapping[int, Chain] | None = None,
        only: Sequence[bool] | None = None,
        needed: int = 0,
    ) -> None:
        """`chains` are a guess at what each class costs as a leaf; a launch for the others. Cheaper cuts correct it.

        `made` is by a grower of the same snapshot and prices. Its limits on a kernel were the same. `only` lists the
        e-nodes that may be used; None means all. `needed` are the classes, as a bit set, that a kernel may write beside
        others.
        """
        self.snapshot = snapshot
        self.prices = prices
        self.limits = limits
        self.facts = facts = made.facts
        self.streams = made.streams
        self.runs = Runs(snapshot, prices, facts, made.streams)
        self.guess = Guess(facts, prices.launch, chains or {})
        self.joins = Joins(facts, self.guess, made.streams if prices.device.fuses else None, made.keys)
        self.points: list[list[Cut]] = [[leaf] for leaf in facts.leaf]
        self.gemms: list[list[Cut]] = [[] for _ in facts.leaf]
        self.streamed: list[list[Cut]] = [[] for _ in facts.leaf]
        self.rows: list[list[Cut]] = [[] for _ in facts.leaf]
        self._made, self._cores, self._indices = made.cuts, made.cores, made.indices
        self._only, self._needed = only, needed
        self._crowded = False
        """Whether a limit dropped some pair of operands of a product."""
        self._of_rows = 0
        """The classes, as a bit set, that are computed and may be a reduction of rows."""

    def grow(self, i: int) -> list[Cut]:
        """The cuts with e-node `i` at the top."""
        node = self.snapshot.nodes[i]
        match node.op:
            case "Un" | "Bin" | "Where":
                found = self.elementwise(i, node)
            case "V":
                found = self.view(i, node)
            case "MM":
                found = self._product(i, node)
            case "Red":
                found = self._reduction(i, node)
            case "Cat":
                found = self._concatenation(i, node)
            case "Gather":
                found = self._gather(i, node)
            case "Opaque":
                found = self._opaque(i, node)
            case _:
                return []
        return [cut for cut in found if cut is not None]

    def keep(self, c: int, cuts: Sequence[Cut]) -> None:
        """Make these the cuts of class `c` from which further cuts grow."""
        of_kind: dict[Kind, list[Cut]] = {}
        for x in cuts:
            of_kind.setdefault(x.kind, []).append(x)
        self.points[c] = [self.facts.leaf[c], *of_kind.get(Kind.POINT, ())]
        self.gemms[c] = of_kind.get(Kind.GEMM, [])
        self.streamed[c] = of_kind.get(Kind.STREAM, [])
        self.rows[c] = of_kind.get(Kind.ROW, [])
        if self.facts.computed >> c & 1 and any(isinstance(x.key, Rows) and x.key.level == "red" for x in self.rows[c]):
            self._of_rows |= 1 << c
        best_products = (*self.gemms[c][: self.limits.lefts], *self.streamed[c][: self.limits.lefts])
        self.joins.leading.update(x.key.core for x in best_products if isinstance(x.key, Product))
        best = min(cuts, key=lambda x: (x.score, x.price), default=None)
        if best is not None:
            self.guess.correct(c, Chain(best.score, best.price))

    @property
    def crowded(self) -> bool:
        """Whether a limit dropped some cut for one that ranks higher: with another guess, others may be kept."""
        return self._crowded or self.joins.crowded

    # --- operators ----------------------------------------------------------------------------------------------

    def elementwise(self, i: int, node: ENode) -> Iterator[Cut | None]:
        """A pointwise operator over any cuts that fit together in one kernel."""
        work = work_of(node.attrs[0] if node.attrs else "where", self.snapshot.size[node.cls])
        if len(node.args) == 1:
            (a,) = node.args
            for x in self.options(node, a):
                yield self.known(i, (x,), x.kind) or self.make(
                    i, (x,), x.kind, x.key, x.reads, x.work + work, x.on_chip
                )
            return
        joins = self.joins.likely([self.options(node, a) for a in node.args], self.limits.leaves, self.limits.joins)
        choices: dict[tuple[Cut, ...], tuple[Kind, Key]] = {self._plain(node): (Kind.POINT, None)}
        choices.update((join.subs, (join.kind, join.key)) for join in joins)
        for subs, (kind, key) in choices.items():
            cut = self.known(i, subs, kind)
            if cut is None:
                reads = joined(*(x.reads for x in subs))
                on_chip = kind == Kind.ROW and any(x.on_chip for x in subs)
                cut = self.make(i, subs, kind, key, reads, shared_work(subs) + work, on_chip)
            yield cut
            if cut is not None and isinstance(cut.key, Product):
                yield from self.with_totals(i, cut)

    def with_totals(self, i: int, x: Cut) -> Iterator[Cut | None]:
        """An operator behind products, where these make on their walk what it reads of their rows or columns."""
        assert isinstance(x.key, Product)
        new = x.leaves & self._of_rows
        for y in x.subs:
            new &= ~(y.leaves if y.kind != Kind.POINT else 0)
        if new:
            for kept in self.streams.with_totals(x, new, self.rows):
                yield self.make(i, kept.subs, Kind.STREAM, kept.key, kept.reads, x.work + kept.work)

    def view(self, i: int, node: ENode) -> Iterator[Cut | None]:
        """Any view of points, bijective views of products and rows, and a row's reduction read back by the row."""
        (layout,), (a,) = node.attrs, node.args
        size = self.snapshot.size[a]
        for x in self.points[a]:
            cut = self.known(i, (x,), Kind.POINT)
            if cut is None:
                if x.node >= 0 and self.snapshot.nodes[x.node].op == "Cat":
                    reads = self._reads_of_members(x.subs, layout)
                else:
                    reads = self.facts.through(x.reads, layout, size)
                cut = self.make(i, (x,), Kind.POINT, None, reads, x.work * layout.size / max(size, 1))
            yield cut
        bijective = is_bijective(layout, size)
        if bijective:
            for x in (*self.gemms[a], *self.streamed[a]):
                assert isinstance(x.key, Product)
                cut = self.known(i, (x,), x.kind)
                moved = compose(x.key.layout, layout) if cut is None else None
                if cut is not None:
                    yield cut
                elif moved is not None:
                    reads = self.facts.through(x.reads, layout, size)
                    yield self.make(i, (x,), x.kind, Product(x.key.core, moved), reads, x.work)
        for x in self.rows[a]:
            assert isinstance(x.key, Rows)
            key = viewed_rows(x.key, layout, size, bijective)
            if key is not None:
                reads = self.facts.through(x.reads, layout, size)
                on_chip = x.on_chip or key.level != x.key.level
                yield self.make(i, (x,), Kind.ROW, key, reads, x.work, on_chip)

    def _product(self, i: int, node: ENode) -> Iterator[Cut | None]:
        """A product of points."""
        out = identity(self.snapshot.size[node.cls])
        left, right = (self._prologues(a) for a in node.args)

        def score(pair: tuple[Cut, Cut]) -> int:
            a, b = pair
            return self.guess.beyond(a) + self.guess.beyond(b) + self.guess.beneath(a.leaves | b.leaves)

        pairs = sorted(product(left, right), key=score)
        self._crowded = self._crowded or len(pairs) > self.limits.pairs
        for x, y in dict.fromkeys([self._plain(node), *pairs[: self.limits.pairs]]):
            yield self.known(i, (x, y), Kind.GEMM) or self.make(
                i, (x, y), Kind.GEMM, Product(self._core(Factors(i, x, y)), out), (), 0.0
            )
        yield from self.walks(i, node)
        yield from self.in_place(i, node)
        yield from self.row_sums(i, node)

    def row_sums(self, i: int, node: ENode) -> Iterator[Cut | None]:
        """A product with one row or column as the sums of rows that it is, unless the class holds the sum of a product
        of elements, which has the same cuts, or a map may hold the sum."""
        batch, m, k, n = node.attrs
        if not is_row_sum(node.attrs) or k <= self.limits.terms or self._sums_products(node.cls):
            return
        rows = Rows(batch * m * n, k, "red")
        work = work_of("mul", rows.rows * k) + work_of("sum", rows.rows * k)
        left, right = ([*self.points[a]] for a in node.args)
        left += [x for x in self.rows[node.args[0]] if n == 1 and x.key == rows._replace(level="full")]
        for join in self.joins.of([left, right], self.limits.leaves, self.limits.joins):
            reads = [
                self.facts.freeze(self.facts.through(x.reads, layout, self.snapshot.size[x.cls]), any_order=True)
                for x, layout in zip(join.subs, factors(node.attrs), strict=True)
            ]
            again = sum(x.work * rows.rows * k / max(self.snapshot.size[x.cls], 1) for x in join.subs)
            on_chip = any(x.on_chip for x in join.subs)
            yield self.make(i, join.subs, Kind.ROW, rows, joined(*reads), again + work, on_chip)

    def _sums_products(self, c: int) -> bool:
        """Whether a class holds the sum of a product of elements."""
        summed = (x.args[0] for x in self._used(c) if x.op == "Red")
        return any(x.op == "Bin" and x.attrs[0] == "mul" for a in summed for x in self._used(a))

    def walks(self, i: int, node: ENode) -> Iterator[Cut | None]:
        """A product with an operand that is made on the way, where that costs less than to write and read it; the
        launch aside, which other products may share. The right one is made in a turned product, unless the transpose is
        a product of its own, whose streams the class has, and none of them need write that operand beside."""
        a, b = node.args
        if self.gemms[a] or self.rows[a]:
            yield from self._walked(i, node, False)
        if (self.gemms[b] or self.rows[b]) and (self._read_elsewhere(b) or not self._has_transpose(node)):
            yield from self._walked(i, node, True)

    def _used(self, c: int) -> list[ENode]:
        """The e-nodes of a class that may be used."""
        nodes, only = self.snapshot.nodes, self._only
        return [nodes[i] for i in self.snapshot.members[c] if only is None or only[i]]

    def _read_elsewhere(self, c: int) -> bool:
        """Whether a class that may be written beside others is a result, or read by e-nodes of several classes."""
        readers = {self.snapshot.nodes[p].cls for p in self.snapshot.parents[c]}
        return bool(self._needed >> c & 1) and (c in self.snapshot.roots or len(readers) > 1)

    def _has_transpose(self, node: ENode) -> bool:
        """Whether the class of a product holds the transpose of a product of its dims, turned."""
        b, m, _, n = node.attrs
        turned = turned_dims(node.attrs)
        views = (x for x in self._used(node.cls) if x.op == "V" and x.attrs[0] == swapped(b, n, m))
        return any(x.op == "MM" and x.attrs == turned for view in views for x in self._used(view.args[0]))

    def _walked(self, i: int, node: ENode, turned: bool) -> Iterator[Cut | None]:
        """With the left operand on the way, or with the right one in a `turned` product."""
        dims = turned_dims(node.attrs) if turned else node.attrs
        out = swapped(dims[0], dims[1], dims[3]) if turned else identity(self.snapshot.size[node.cls])
        a, b = node.args[::-1] if turned else node.args
        rights = self._prologues(b)

        def beside(x: Cut) -> int:
            return x.price + min(self.guess.beyond(y) + self.guess.beneath(x.leaves | y.leaves) for y in rights)

        for left in self.streams.lefts(a, dims, turned, self.gemms, self.rows, self.limits.lefts, beside):

            def score(y: Cut, given: int = left.cut.leaves) -> int:
                return self.guess.beyond(y) + self.guess.beneath(given | y.leaves)

            for y in sorted(rights, key=score)[: self.limits.rights]:
                factors = Factors(i, left.cut, y, turned)
                core = self.streams.core([factors])
                if core is None:
                    continue
                subs = (y, left.cut) if turned else (left.cut, y)
                cut = self.make(i, subs, Kind.STREAM, Product(core, out), (), 0.0)
                leaf = self.facts.leaf[a]
                plain = self._core(Factors(i, y, leaf) if turned else Factors(i, leaf, y))
                written = float(self.facts.bytes[node.cls])
                apart = self.runs.product(plain, (), written, 0.0, self.snapshot.dtype[node.cls]).price
                if cut is not None and cut.price - self.prices.launch < left.apart + apart:
                    yield cut

    def _reduction(self, i: int, node: ENode) -> Iterator[Cut | None]:
        """Rows of points or of rows of the same length, or a whole axis of a product."""
        fn, columns = node.attrs
        (a,) = node.args
        rows = self.snapshot.size[node.cls]
        work = work_of(fn, rows * columns)
        red = Rows(rows, columns, "red")
        for x in self.points[a]:
            yield self.make(i, (x,), Kind.ROW, red, self.facts.freeze(x.reads, any_order=True), x.work + work)
        for x in self.rows[a]:
            if x.key == Rows(rows, columns, "full"):
                yield self.make(
                    i, (x,), Kind.ROW, red, self.facts.freeze(x.reads, any_order=True), x.work + work, x.on_chip
                )
        if fn in REDUCED_BY_GEMM:
            for x in self.gemms[a]:
                assert isinstance(x.key, Product)
                if reduces_axis(x.key, columns):
                    key = Product(x.key.core, identity(rows))
                    reads = self.facts.freeze(x.reads, any_order=True)
                    yield self.make(i, (x,), Kind.GEMM_RED, key, reads, x.work + work)
        yield from self.in_place(i, node)

    def in_place(self, i: int, node: ENode) -> Iterator[Cut | None]:
        """A sum of a few terms of points, which each element computes by itself: a map, and so an operand of products,
        too."""
        terms = terms_of(node.op, node.attrs)
        sizes = [self.snapshot.size[a] for a in node.args]
        size = self.snapshot.size[node.cls]
        of_one_type = {self.snapshot.dtype[a] for a in node.args} == {self.snapshot.dtype[node.cls]}
        if not 0 < terms <= self.limits.terms or not of_one_type:
            return
        for join in self.joins.of([self.points[a] for a in node.args], self.limits.leaves, self.limits.joins):
            reads = joined(*(self.facts.freeze(x.reads, any_order=True) for x in join.subs))
            made = sum(x.work * size * terms / max(n, 1) for x, n in zip(join.subs, sizes, strict=True))
            work = made + len(join.subs) * work_of("add", size * terms)
            yield self.make(i, join.subs, Kind.POINT, None, reads, work)

    def _concatenation(self, i: int, node: ENode) -> Iterator[Cut | None]:
        """A concatenation written by one kernel. If it is too large for that, its parts are copied, one launch each."""
        choices = {self._plain(node): None}
        if len(node.args) <= self.limits.members:
            joins = self.joins.of([self.points[a] for a in node.args], 2 * self.limits.members, self.limits.joins)
            choices.update(dict.fromkeys(join.subs for join in joins))
        whole = identity(self.snapshot.size[node.cls])
        for subs in choices:
            reads = self._reads_of_members(subs, whole)
            yield self.make(i, subs, Kind.POINT, None, reads, sum(x.work for x in subs), wide=True)

    def _reads_of_members(self, subs: Sequence[Cut], layout: Layout) -> tuple[Read, ...]:
        """The reads of a view of concatenated cuts: nothing of the members that it does not show."""
        sizes = [self.snapshot.size[x.cls] for x in subs]
        whole = sum(sizes)
        found = []
        for x, n, end in zip(subs, sizes, accumulate(sizes), strict=True):
            place = _place(n, end - n, whole - end)
            shown = compose(place, layout)
            if shown is None:
                found.append(self.facts.through(self.facts.through(x.reads, place, n), layout, whole))
            elif not shown.all_filled:
                found.append(self.facts.through(x.reads, shown, n))
        return joined(*found)

    def _gather(self, i: int, node: ENode) -> Iterator[Cut | None]:
        """Elements of points at the places that points choose. Each element computes its own place."""
        size = self.snapshot.size[node.cls]
        data, index = (self.snapshot.size[a] for a in node.args)
        outer, _, inner = node.attrs
        spread = strided(0, ((outer, 0), (index, 1), (inner, 0)))
        joins = self.joins.of([self.points[a] for a in node.args], self.limits.leaves, self.limits.joins)
        for x, y in dict.fromkeys([self._plain(node), *(join.subs for join in joins)]):
            chosen = self.facts.gathered(x.reads, outer * index, inner)
            reads = joined(chosen, self.facts.through(y.reads, spread, index))
            work = size + x.work * size / max(data, 1) + y.work * size / max(index, 1)
            yield self.make(i, (x, y), Kind.POINT, None, reads, work)

    def _opaque(self, i: int, node: ENode) -> Iterator[Cut | None]:
        """A separate call."""
        subs = tuple(self.facts.leaf[a] for a in node.args)
        reads = joined(*(x.reads for x in subs))
        yield self.make(i, subs, Kind.OPAQUE, None, reads, float(self.snapshot.size[node.cls]), wide=True)

    def _plain(self, node: ENode) -> tuple[Cut, ...]:
        """The operands as arrays in memory, so that there is always a kernel under any limits."""
        return tuple(self.facts.leaf[a] for a in node.args)

    # --- making, pricing ----------------------------------------------------------------------------------------

    def options(self, node: ENode, a: int) -> list[Cut]:
        """The cuts of its operand `a` that a pointwise operator may be joined to."""
        return [*self.points[a], *self.gemms[a], *self.streamed[a], *self.rows[a]]

    def _prologues(self, a: int) -> list[Cut]:
        most, computed = self.limits.prologue_leaves, self.limits.prologue_computed
        return [
            x
            for x in self.points[a]
            if x.leaves.bit_count() <= most and (x.leaves & self.facts.computed).bit_count() <= computed
        ]

    def _core(self, factors: Factors) -> Core:
        core = self._cores.get(factors.key)
        if core is None:
            node = self.snapshot.nodes[factors.node]
            b, m, k, n = node.attrs
            dtype = self.snapshot.dtype[node.cls]
            ways = self.prices.ways(b, m, k, n, dtype)
            reduced = self.prices.tiled(b, m, k, n, dtype)
            core = self._cores[factors.key] = Core(
                products=(factors,),
                dims=(b, m, k, n),
                bytes=self.operand_bytes(factors),
                ways=tuple(self.runs.with_prologues(way, factors) for way in ways),
                reduced=self.runs.with_prologues(reduced, factors),
            )
        return core

    def operand_bytes(self, factors: Factors) -> float:
        """Bytes that a product moves to read its operands."""
        return self.facts.moved(joined(factors.left.reads, factors.right.reads), any_order=True)

    def make(
        self,
        i: int,
        subs: tuple[Cut, ...],
        kind: Kind,
        key: Key,
        reads: tuple[Read, ...],
        work: float,
        on_chip: bool = False,
        wide: bool = False,
    ) -> Cut | None:
        """The priced cut with e-node `i` over `subs`; None if it breaks a limit or needs itself.

        A `wide` cut may read more arrays than the limit, because its operator has no smaller kernel.
        """
        made = i, subs, kind
        if made in self._made:
            return self.known(i, subs, kind)
        cut = self._made[made] = self._priced(i, subs, kind, key, reads, work, on_chip, wide)
        return cut and self.guess.ranked(cut)

    def known(self, i: int, subs: tuple[Cut, ...], kind: Kind) -> Cut | None:
        """The cut, ranked anew, if it has been made before; None also if it may not be made."""
        cut = self._made.get((i, subs, kind))
        return cut and self.guess.ranked(cut)

    def _priced(
        self,
        i: int,
        subs: tuple[Cut, ...],
        kind: Kind,
        key: Key,
        reads: tuple[Read, ...],
        work: float,
        on_chip: bool,
        wide: bool,
    ) -> Cut | None:
        node = self.snapshot.nodes[i]
        c = node.cls
        leaves = below = summed = 0
        for x in subs:
            leaves |= x.leaves
            below |= x.inner
            summed |= x.summed
        inner = below | 1 << c
        if below >> c & 1 or leaves & inner or inner.bit_count() > self.limits.operators:
            return None
        if not wide and len(subs) < leaves.bit_count() > self.limits.leaves:
            return None
        if len(subs) < len(reads) > self.limits.reads:
            return None
        if summed and sums_in_two_ways(subs):
            return None
        at = self._indices.of(node, subs, kind)
        if len(at) > self.limits.copies:
            return None
        if key is not None and all(key is not x.key for x in subs):
            key = self.joins.one(key)
        cut = Cut(c, i, subs, kind, key, leaves, inner, reads, work, on_chip, at)
        cut.slot = kind, id(key), leaves & self.facts.computed
        cut.summed = summed | 1 << c if kind == Kind.POINT and terms_of(node.op, node.attrs) else summed
        return cut if self.price(cut) else None

    def price(self, cut: Cut) -> bool:
        """Set the price; False if no kernel of this kind can hold the cut."""
        run = self.runs.of((cut,))
        if run is not None:
            cut.run = run
        return run is not None


@lru_cache(maxsize=1 << 16)
def _place(size: int, before: int, after: int) -> Layout:
    """Where a member of a concatenation is, between as many elements before and after it."""
    return of_pad((size,), (before,), (after,), 0.0)
