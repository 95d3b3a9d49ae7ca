"""Growing cuts: the cuts of an e-node are made from the cuts of its operands. One method per core operator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, product
from math import ceil
from typing import NamedTuple, TypeVar, cast

from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.extract.kernels.bodies import Indices
from eqsat.extract.kernels.chains import Chain, cost_of
from eqsat.extract.kernels.cost import SECTOR, Gemm, Prices, Run, work_of, write_order
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
    Slot,
    is_matrix,
    joined,
    parts,
    reduced_stride,
    reduces_axis,
    shared_work,
    sums_in_two_ways,
    turned_dims,
    viewed_rows,
)
from eqsat.extract.kernels.streams import Streams
from eqsat.gpu.table.limits import KEPT_REGISTERS, MOST_THREADS
from eqsat.layout.arithmetic import Layout, compose, identity, is_bijective, of_pad, strided
from eqsat.program.node import STEPS, terms_of
from eqsat.streams.row_sums import factors, is_row_sum
from eqsat.streams.turned import swapped

K = TypeVar("K", bound=Key)

PROLOGUE_STEP = 2000
"""Picoseconds charged for each operator of a prologue, so that an equally good epilogue is preferred."""

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
        self.points: list[list[Cut]] = [[leaf] for leaf in facts.leaf]
        self.gemms: list[list[Cut]] = [[] for _ in facts.leaf]
        self.streamed: list[list[Cut]] = [[] for _ in facts.leaf]
        self.rows: list[list[Cut]] = [[] for _ in facts.leaf]
        self._made, self._cores, self._keys = made.cuts, made.cores, made.keys
        launched = dict.fromkeys(range(len(facts.leaf)), Chain(prices.launch, prices.launch))
        self._chains = launched | dict(chains or {})
        self._indices = made.indices
        self._only, self._needed = only, needed
        self.crowded = False
        """Whether a limit dropped some cut for one that ranks higher: with another guess, others may be kept."""
        self._of_rows = 0
        """The classes, as a bit set, that are computed and may be a reduction of rows."""
        self._leading: set[Core] = set()
        self._beneath: dict[int, int] = {}

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
        self.points[c] = [self.facts.leaf[c], *(x for x in cuts if x.kind == Kind.POINT)]
        self.gemms[c] = [x for x in cuts if x.kind == Kind.GEMM]
        self.streamed[c] = [x for x in cuts if x.kind == Kind.STREAM]
        self.rows[c] = [x for x in cuts if x.kind == Kind.ROW]
        if self.facts.computed >> c & 1 and any(isinstance(x.key, Rows) and x.key.level == "red" for x in self.rows[c]):
            self._of_rows |= 1 << c
        best_products = (*self.gemms[c][: self.limits.lefts], *self.streamed[c][: self.limits.lefts])
        self._leading.update(x.key.core for x in best_products if isinstance(x.key, Product))
        best = min(cuts, key=lambda x: (x.score, x.price), default=None)
        if best is not None and best.score < self._chains[c].whole:
            self._chains[c] = Chain(best.score, best.price)
            self._beneath.clear()

    def beneath(self, leaves: int) -> int:
        """A guess at what it costs to compute the classes among `leaves` that must be."""
        needed = leaves & self.facts.computed
        known = self._beneath.get(needed)
        if known is None:
            known = self._beneath[needed] = cost_of(self._chains, self.facts.launched(needed))
        return known

    def library_price(self, cut: Cut) -> int | None:
        """The price of a bare product of plain matrices by the vendor's library; None for any other cut."""
        node = self.snapshot.nodes[cut.node]
        if node.op != "MM" or cut.kind != Kind.GEMM:
            return None
        b, m, k, n = node.attrs
        shapes = (b, m, k), (b, k, n)
        if not all(is_matrix(x, shape) for x, shape in zip(cut.subs, shapes, strict=True)):
            return None
        assert isinstance(cut.key, Product)
        moved = cut.key.core.bytes + self.facts.bytes[cut.cls]
        return self.prices.library(b, m, k, n, self.snapshot.dtype[cut.cls], moved)

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
        joins = self._operands_joined(node)
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
            return self._beyond(pair[0]) + self._beyond(pair[1]) + self.beneath(pair[0].leaves | pair[1].leaves)

        pairs = sorted(product(left, right), key=score)
        self.crowded = self.crowded or len(pairs) > self.limits.pairs
        for x, y in dict.fromkeys([self._plain(node), *pairs[: self.limits.pairs]]):
            yield self.known(i, (x, y), Kind.GEMM) or self.make(
                i, (x, y), Kind.GEMM, Product(self._core(Factors(i, x, y)), out), (), 0.0
            )
        yield from self.walks(i, node)
        yield from self.in_place(i, node)
        yield from self.row_sums(i, node)

    def row_sums(self, i: int, node: ENode) -> Iterator[Cut | None]:
        """A product with one row or column as the sums of rows that it is, unless the class holds a reduction, which
        has the same cuts, or a map may hold the sum."""
        batch, m, k, n = node.attrs
        if not is_row_sum(node.attrs) or k <= self.limits.terms or any(x.op == "Red" for x in self._used(node.cls)):
            return
        rows = Rows(batch * m * n, k, "red")
        work = work_of("mul", rows.rows * k) + work_of("sum", rows.rows * k)
        left, right = ([*self.points[a]] for a in node.args)
        left += [x for x in self.rows[node.args[0]] if n == 1 and x.key == rows._replace(level="full")]
        for join in self._joins([left, right], self.limits.leaves):
            reads = [
                self.facts.freeze(self.facts.through(x.reads, layout, self.snapshot.size[x.cls]), any_order=True)
                for x, layout in zip(join.subs, factors(node.attrs), strict=True)
            ]
            again = sum(x.work * rows.rows * k / max(self.snapshot.size[x.cls], 1) for x in join.subs)
            on_chip = any(x.on_chip for x in join.subs)
            yield self.make(i, join.subs, Kind.ROW, rows, joined(*reads), again + work, on_chip)

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
            return x.price + min(self._beyond(y) + self.beneath(x.leaves | y.leaves) for y in rights)

        for left in self.streams.lefts(a, dims, turned, self.gemms, self.rows, self.limits.lefts, beside):

            def score(y: Cut, given: int = left.cut.leaves) -> int:
                return self._beyond(y) + self.beneath(given | y.leaves)

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
                apart = self._product_run(plain, (), written, 0.0, self.snapshot.dtype[node.cls]).price
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
        for join in self._joins([self.points[a] for a in node.args], self.limits.leaves):
            reads = joined(*(self.facts.freeze(x.reads, any_order=True) for x in join.subs))
            made = sum(x.work * size * terms / max(n, 1) for x, n in zip(join.subs, sizes, strict=True))
            work = made + len(join.subs) * work_of("add", size * terms)
            yield self.make(i, join.subs, Kind.POINT, None, reads, work)

    def _concatenation(self, i: int, node: ENode) -> Iterator[Cut | None]:
        """A concatenation written by one kernel. If it is too large for that, its parts are copied, one launch each."""
        choices = {self._plain(node): None}
        if len(node.args) <= self.limits.members:
            joins = self._joins([self.points[a] for a in node.args], 2 * self.limits.members)
            choices.update(dict.fromkeys(join.subs for join in joins))
        whole = identity(self.snapshot.size[node.cls])
        for subs in choices:
            reads = self._reads_of_members(subs, whole)
            yield self.make(i, subs, Kind.POINT, None, reads, sum(x.work for x in subs), wide=True)

    def _reads_of_members(self, subs: Sequence[Cut], layout: Layout) -> tuple[Read, ...]:
        """The reads of a view of concatenated cuts: nothing of the members that it does not show."""
        sizes = [self.snapshot.size[x.cls] for x in subs]
        found = []
        for x, n, end in zip(subs, sizes, accumulate(sizes), strict=True):
            place = of_pad((n,), (end - n,), (sum(sizes) - end,), 0.0)
            shown = compose(place, layout)
            if shown is None:
                found.append(self.facts.through(self.facts.through(x.reads, place, n), layout, sum(sizes)))
            elif not shown.all_filled:
                found.append(self.facts.through(x.reads, shown, n))
        return joined(*found)

    def _gather(self, i: int, node: ENode) -> Iterator[Cut | None]:
        """Elements of points at the places that points choose. Each element computes its own place."""
        size = self.snapshot.size[node.cls]
        data, index = (self.snapshot.size[a] for a in node.args)
        outer, _, inner = node.attrs
        spread = strided(0, ((outer, 0), (index, 1), (inner, 0)))
        joins = self._joins([self.points[a] for a in node.args], self.limits.leaves)
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

    # --- joining, making, pricing -------------------------------------------------------------------------------

    def _operands_joined(self, node: ENode) -> list[_Join]:
        """The most promising ways to compute the operands of a pointwise operator in one kernel."""
        operands = [self.options(node, a) for a in node.args]
        alone = [len(cuts) == 1 and not cuts[0].leaves & self.facts.computed for cuts in operands]
        if len(operands) == 2 and any(alone):
            k = int(alone[0])
            return self._beside(operands[k], operands[1 - k][0], k)
        return self._joins(operands, self.limits.leaves)

    def _beside(self, cuts: Sequence[Cut], other: Cut, k: int) -> list[_Join]:
        """As `_joins`, for cuts of operand `k` and an `other` one that need not be computed: each cut reads it as well,
        so that no two of them become equally good choices."""
        by_kind: dict[Kind, list[tuple[int, int, Cut]]] = {}
        for x in cuts:
            leaves = x.leaves | other.leaves
            if leaves.bit_count() <= self.limits.leaves:
                score = self._beyond(x) + self.beneath(leaves)
                by_kind.setdefault(x.kind, []).append((score, leaves, x))
        found: list[_Join] = []
        for kind in sorted(by_kind):
            best = sorted(by_kind[kind], key=lambda x: x[:2])
            self.crowded = self.crowded or len(best) > self.limits.joins
            for _, leaves, x in best[: self.limits.joins]:
                subs = (other, x) if k else (x, other)
                found.append(_Join(kind, x.key, leaves, x.inner, self._beyond(x), subs))
        return found

    def _joins(self, operands: Sequence[Sequence[Cut]], most: int) -> list[_Join]:
        """The most promising ways to compute all operands in one kernel that reads at most `most` arrays."""
        computed = self.facts.computed
        partial = [_Join(x.kind, x.key, x.leaves, x.inner, self._beyond(x), (x,)) for x in operands[0]]
        for cuts in operands[1:]:
            options = [_Join(x.kind, x.key, x.leaves, x.inner, self._beyond(x), (x,)) for x in cuts]
            best: dict[Slot, _Join] = {}
            for left, x in product(partial, options):
                kind, key, leaves, inner, beyond, subs = left
                if kind == Kind.POINT:
                    kind, key = x.kind, x.key
                elif x.kind != Kind.POINT and not (x.kind == kind and x.key is key):
                    kind, key = Kind.STREAM, self.together(key, x.key)
                    if key is None:
                        continue
                leaves |= x.leaves
                inner |= x.inner
                if leaves & inner or leaves.bit_count() > most or sums_in_two_ways((*subs, *x.subs)):
                    continue
                if (kind != Kind.POINT and left.key is x.key) or leaves in (left.leaves, x.leaves):
                    beyond = max(beyond, x.beyond)
                else:
                    beyond += x.beyond
                slot = (kind, id(key), leaves & computed)
                known = best.get(slot)
                if known is None or beyond < known.beyond:
                    best[slot] = _Join(kind, key, leaves, inner, beyond, subs + x.subs)
            scored = [(join.beyond + self.beneath(needed), join) for (_, _, needed), join in best.items()]
            partial = _best_of_each_kind(scored, self.limits.joins)
            self.crowded = self.crowded or len(partial) < len(best)
        return partial

    def together(self, a: Key, b: Key) -> Product | None:
        """Products as one stream; None where they are none, or cannot be."""
        if not isinstance(a, Product) or not isinstance(b, Product):
            return None
        turned = a.core.turned or b.core.turned
        layout = a.facing(turned)
        if layout is None or layout != b.facing(turned):
            return None
        core = self.streams.together(a.core, b.core, self._leading)
        return None if core is None else self._one(Product(core, layout))

    def _one(self, key: K) -> K:
        """The one object for all keys that are equal."""
        return cast(K, self._keys.setdefault(key, key))

    def _beyond(self, x: Cut) -> int:
        """The cost of a cut beyond a launch, without its leaves. A plain read of an array costs its bytes elsewhere."""
        return x.price - self.prices.launch if x.price else 0

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
                ways=tuple(self._with_prologues(way, factors, node) for way in ways),
                reduced=self._with_prologues(reduced, factors, node),
            )
        return core

    def operand_bytes(self, factors: Factors) -> float:
        """Bytes that a product moves to read its operands."""
        return self.facts.moved(joined(factors.left.reads, factors.right.reads), any_order=True)

    def _with_prologues(self, gemm: Gemm, factors: Factors, node: ENode) -> Gemm:
        """The time including the operands' computation, which each tile repeats."""
        _, m, _, n = node.attrs
        left, right = factors.left, factors.right
        work = left.work * ceil(n / gemm.tile_n) + right.work * ceil(m / gemm.tile_m)
        steps = left.inner.bit_count() + right.inner.bit_count()
        time = self.prices.vector(work, gemm.groups, self.snapshot.dtype[node.cls]) + PROLOGUE_STEP * steps
        return gemm._replace(time=gemm.time + time)

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
        return cut and self.ranked(cut)

    def known(self, i: int, subs: tuple[Cut, ...], kind: Kind) -> Cut | None:
        """The cut, ranked anew, if it has been made before; None also if it may not be made."""
        cut = self._made.get((i, subs, kind))
        return cut and self.ranked(cut)

    def ranked(self, cut: Cut) -> Cut:
        """A cut that was made before, with a score by the present guess at its leaves."""
        needed = cut.slot[2]
        beneath = self._beneath.get(needed)
        cut.score = cut.price + (self.beneath(needed) if beneath is None else beneath) + cut.inner.bit_count()
        return cut

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
        if not wide and leaves.bit_count() > max(self.limits.leaves, len(subs)):
            return None
        if len(reads) > max(self.limits.reads, len(subs)):
            return None
        if summed and sums_in_two_ways(subs):
            return None
        at = self._indices.of(node, subs, kind)
        if len(at) > self.limits.copies:
            return None
        if key is not None and all(key is not x.key for x in subs):
            key = self._one(key)
        cut = Cut(c, i, subs, kind, key, leaves, inner, reads, work, on_chip, at)
        cut.slot = kind, id(key), leaves & self.facts.computed
        cut.summed = summed | 1 << c if kind == Kind.POINT and terms_of(node.op, node.attrs) else summed
        return cut if self.price(cut) else None

    def price(self, cut: Cut) -> bool:
        """Set the price; False if no kernel of this kind can hold the cut."""
        run = self.run_of((cut,))
        if run is not None:
            cut.run = run
        return run is not None

    def run_of(self, cuts: Sequence[Cut]) -> Run | None:
        """One kernel that writes the classes of all these cuts, which share any product or rows. None if no kernel of
        this kind can hold them."""
        facts = self.facts
        top = cuts[0]
        reads, work, written = top.reads, top.work, facts.bytes[top.cls]
        if len(cuts) > 1:
            if sums_in_two_ways(cuts):
                return None
            top = max(cuts, key=lambda x: (x.kind, x.work))
            reads, work = joined(*(x.reads for x in cuts)), shared_work(cuts)
            written = sum(facts.bytes[x.cls] for x in cuts)
        dtype = self.snapshot.dtype[top.cls]
        moved = facts.moved(reads) + written
        if isinstance(top.key, Rows):
            return self._rows_run(top, cuts, moved, work, dtype)
        if isinstance(top.key, Product):
            beside = [x for x in cuts if x.kind != top.kind] if top.kind == Kind.STREAM else []
            if not beside:
                return self._product_run(top.key.core, cuts, moved, work, dtype)
            core = self.streams.core(top.key.core.products, beside, top.key.core.totals)
            if core is None:
                return None
            _, m, k, _ = core.dims
            moved += sum(facts.bytes[x.cls] for x in beside) * (write_order(swapped(1, m, k), k) - 1) * core.turned
            return self._product_run(core, [x for x in cuts if x not in beside], moved, work, dtype)
        return Run(self.prices.pointwise(self.snapshot.size[top.cls], moved, work, dtype))

    def _rows_run(self, top: Cut, cuts: Sequence[Cut], moved: float, work: float, dtype: str) -> Run | None:
        assert isinstance(top.key, Rows)
        rows, columns, _, _ = top.key
        on_chip = any(x.on_chip for x in cuts)
        if on_chip and not self.prices.row_fits(columns, self.facts.itemsize[top.cls]):
            return None
        moved += self._read_again(top, cuts) if on_chip else 0.0
        whole = on_chip or not self._reduced_in_slices(cuts)
        beside = any(x.kind == Kind.POINT for x in cuts)
        return self.prices.rows(rows, columns, moved, work, whole, dtype, divided=beside)

    def _read_again(self, top: Cut, cuts: Sequence[Cut]) -> float:
        """Bytes that a kernel reads again in later passes over long columns. Rows that lie side by side are read by
        sectors, and a workgroup holds so many of them at once."""
        assert isinstance(top.key, Rows)
        held = MOST_THREADS * KEPT_REGISTERS * self.facts.itemsize[top.cls] // SECTOR
        if top.key.layout is None or top.key.columns <= held:
            return 0.0
        beside = [read for read in top.reads if read[1] is not None and read[1].dims[-1:] and read[1].dims[-1][1] == 1]
        return self.facts.moved(tuple(beside)) * sum(self.snapshot.nodes[x.node].op == "Red" for x in parts(cuts))

    def _product_run(self, core: Core, cuts: Sequence[Cut], moved: float, work: float, dtype: str) -> Run:
        b, m, _, n = core.dims
        ways, extra, launches = core.ways, 0, 1
        for x in cuts:
            assert isinstance(x.key, Product)
            if x.kind != Kind.GEMM_RED:
                moved += self.facts.bytes[x.cls] * (write_order(x.key.layout, n) - 1)
                continue
            assert core.reduced is not None
            ways = (core.reduced,)
            lines = ceil(n / core.reduced.tile_n) if reduced_stride(x) == 1 else ceil(m / core.reduced.tile_m)
            if lines > 1:
                price, more, _ = self.prices.combine(self.snapshot.dtype[x.cls])
                extra += price
                launches += more
        best: Run | None = None
        for way in ways:
            time = way.time + self.prices.epilogue(work, b * m * n, way.groups, dtype)
            price = self.prices.kernel(moved, time, way.groups, core.bytes) + round(way.extra) + extra
            run = Run(price, launches + way.launches - 1, way.slices)
            if best is None or run < best:
                best = run
        assert best is not None
        return best

    def _reduced_in_slices(self, cuts: Sequence[Cut]) -> bool:
        """Whether all reductions can be computed slice by slice."""
        tops = (self.snapshot.nodes[x.node] for x in parts(cuts) if x.kind == Kind.ROW and x.node >= 0)
        return all(node.attrs[0] in STEPS for node in tops if node.op == "Red")


class _Join(NamedTuple):
    kind: Kind
    key: Key
    leaves: int
    inner: int
    beyond: int
    subs: tuple[Cut, ...]


def _best_of_each_kind(scored: Iterable[tuple[int, _Join]], most: int) -> list[_Join]:
    by_kind: dict[Kind, list[tuple[int, _Join]]] = {}
    for score, join in scored:
        by_kind.setdefault(join.kind, []).append((score, join))
    out = []
    for kind in sorted(by_kind):
        out += [join for _, join in sorted(by_kind[kind], key=lambda x: (x[0], x[1].leaves))[:most]]
    return out
