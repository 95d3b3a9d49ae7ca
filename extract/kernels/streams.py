"""Growing streams: a product takes its left operand, which another kernel would write to memory, on the way.

The left operand is a cut of rows, or a product with its epilogue; what rows read may be such products again. Products
of the same rows and width may be one kernel: on one walk along an axis, or on one after another. Whether walks compute
all of it is decided on core nodes (`eqsat.streams.stream`), which also gives the passes and corrections to price.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from eqsat.base.graphs import operands_first
from eqsat.egraph.snapshot import Snapshot
from eqsat.extract.kernels.bodies import Body
from eqsat.extract.kernels.cost import Prices, Walk, work_of
from eqsat.extract.kernels.cuts import (
    Core,
    Cut,
    Dims,
    Factors,
    Facts,
    Inside,
    Kind,
    Product,
    Read,
    Rows,
    bits,
    joined,
    parts,
    turned_dims,
)
from eqsat.gpu.table.streams import STREAM_DTYPES, WalkForm
from eqsat.layout.arithmetic import compose, identity
from eqsat.program.core import Node, make
from eqsat.program.node import is_elementwise
from eqsat.streams.masks import Band
from eqsat.streams.shifts import in_fewest_passes
from eqsat.streams.stream import NotAStream, Statistic, Stream
from eqsat.streams.turned import row_of, swapped


class Made(NamedTuple):
    """A left operand that is made on the way, and the price in picoseconds of the kernels that would write it."""

    cut: Cut
    apart: int


class Kept(NamedTuple):
    """How an operator behind products reads a total that these make on their walk.

    Attributes:
        subs: the cuts of its operands, with the total inside; `key` are the products, with the total.
        reads: what is left to read; `work` are the vector operations on the total, at each element.
    """

    subs: tuple[Cut, ...]
    key: Product
    reads: tuple[Read, ...]
    work: float


class _Left(NamedTuple):
    """What one walk does for a left operand, and elements written beside it.

    Attributes:
        inner: the depths of its inner products; `depths` has each once for every pass that makes it.
        totals: the number of totals; `corrected` says whether products run along under a growing maximum.
        passes: walks along the axis; `again` is what all but the last read, in bytes, and what statistics of rows do.
        again_work: vector operations of these; `work` are those of the last.
        statistics: how many are of elements of the axis; `of_elements` are the bytes that all passes read for these and
            the vector operations, for each block.
        divisible: whether slices of the axis may be walked apart; `bands` are the elements that count.
        reads: how arrays in memory are read, each once.
    """

    inner: tuple[int, ...]
    depths: tuple[int, ...]
    totals: int
    corrected: bool
    passes: int
    again: float
    again_work: float
    work: float
    divisible: bool
    bands: tuple[Band, ...]
    statistics: int
    of_elements: tuple[float, float]
    reads: tuple[Read, ...]


class Streams:
    """The streams of an e-graph."""

    def __init__(self, snapshot: Snapshot, prices: Prices, facts: Facts) -> None:
        self.snapshot = snapshot
        self.prices = prices
        self.facts = facts
        self._cores: dict[object, Core | None] = {}
        self._lefts: dict[object, _Left | None] = {}
        self._analysed: dict[object, tuple[_Left | None, list[int]]] = {}
        self._kept: dict[tuple[Cut, Cut], Kept | None] = {}

    def lefts(
        self,
        a: int,
        dims: Dims,
        turned: bool,
        gemms: Sequence[Sequence[Cut]],
        rows: Sequence[Sequence[Cut]],
        most: int,
        beside: Callable[[Cut], int],
    ) -> Iterator[Made]:
        """How class `a`, the left operand of a product with these dims, or its transpose if the product is `turned`,
        may be made on the way, given the cuts of every class: the best `most` products, and rows; each also with the
        statistics among its leaves. `beside` is the guess at what a cut costs with the right operand."""
        for made in self._without_statistics(a, dims, turned, gemms, rows, most, beside):
            yield made
            found = self._statistics(made.cut, rows)
            if found:
                yield Made(_replaced(made.cut, found), made.apart + sum(x.price for x in found.values()))

    def _without_statistics(
        self,
        a: int,
        dims: Dims,
        turned: bool,
        gemms: Sequence[Sequence[Cut]],
        rows: Sequence[Sequence[Cut]],
        most: int,
        beside: Callable[[Cut], int],
    ) -> Iterator[Made]:
        b, m, k, _ = dims
        turn = swapped(b, m, k)
        domain = Rows(b * m, k, "full", turn if turned and not turn.is_identity(b * m * k) else None)
        known: dict[int, list[Cut]] = {}
        for x in [x for x in gemms[a] if _is_whole(x, dims)][:most]:
            yield Made(x, x.price)
        for x in [x for x in rows[a] if x.key == domain][:most]:
            yield Made(x, x.price)
            computed = bits(x.leaves & self.facts.computed)
            known |= {c: self._inner(gemms[c], dims, rows, beside) for c in computed if c not in known}
            inner = {c: known[c] for c in computed if known[c]}
            for i in range(max(map(len, inner.values()), default=0)):
                chosen = {c: found[min(i, len(found) - 1)] for c, found in inner.items()}
                yield Made(_replaced(x, chosen), x.price + sum(y.price for y in chosen.values()))

    def _inner(
        self,
        gemms: Sequence[Cut],
        dims: Dims,
        rows: Sequence[Sequence[Cut]],
        beside: Callable[[Cut], int],
    ) -> list[Cut]:
        """The best inner product among cuts, the best one with the right operand, whose array it may read too, and the
        ones that read the fewest computed classes. These are counted with statistics and without. A tie goes to the
        product whose leaves are less deep: one launch is too low a guess for a leaf that is itself made of others."""
        whole = [x for x in gemms if _is_whole(x, dims)]
        if not whole:
            return []
        computed, depth = self.facts.computed, self.snapshot.depth
        read = [bits(x.leaves & computed) for x in whole]
        depths = [sum(depth[c] for c in leaves) for leaves in read]
        counts = [len(leaves) for leaves in read]
        bare_counts = [n - len(self._statistics(x, rows)) for n, x in zip(counts, whole, strict=True)]
        fewest, bare = (whole[min(range(len(whole)), key=lambda i: (n[i], depths[i]))] for n in (counts, bare_counts))
        return list(dict.fromkeys([whole[0], fewest, bare, min(whole, key=beside)]))

    def _statistics(self, x: Cut, rows: Sequence[Sequence[Cut]]) -> dict[int, Cut]:
        """The best cuts of those leaves that have one value a row, of what is in memory anyway."""
        given = x.leaves | ~self.facts.computed
        found: dict[int, Cut] = {}
        for c in bits(x.leaves & self.facts.computed):
            of_rows = (y for y in rows[c] if isinstance(y.key, Rows) and y.key.level == "red" and not y.leaves & ~given)
            best = next(of_rows, None)
            if best is not None:
                found[c] = best
        return found

    def together(self, a: Core, b: Core, leading: Collection[Core]) -> Core | None:
        """The products of both in one stream, if they have the same rows and width: all with one left operand, and of
        those with several the `leading` ones."""
        turned = a.turned or b.turned
        (of_a, first), (of_b, second) = a.facing(turned), b.facing(turned)
        if any(of_a[i] != of_b[i] for i in (0, 1, 3)) or any(x.totals and x.turned != turned for x in (a, b)):
            return None
        if not (a in leading and b in leading) and _computed(first[0].left) != _computed(second[0].left):
            return None
        products = {p.key: p for p in (*first, *second)}
        if len({p.node for p in products.values()}) < len(products):
            return None
        return self.core(list(products.values()), totals=(*a.totals, *b.totals))

    def with_totals(self, x: Cut, among: int, rows: Sequence[Sequence[Cut]]) -> Iterator[Kept]:
        """An operator behind products that reads one of the classes `among` its leaves as a total, which the products
        make on their walk, given the cuts of rows of every class. Products are turned for totals of columns."""
        assert isinstance(x.key, Product)
        core = x.key.core
        lengths = {self.snapshot.nodes[p.node].attrs[2] for p in core.products}
        for c in bits(among):
            read = [layout for leaf, layout, *_ in x.reads if leaf == c]
            ways = (core.turned,) if core.totals else (core.turned, not core.turned)
            for turned in ways if len(read) == 1 and read[0] is not None else ():
                dims, layout = core.facing(turned)[0], x.key.facing(turned)
                if layout is None or read[0] != compose(row_of(dims), layout):
                    continue
                keys = [Rows(dims[0] * dims[1], length, "red") for length in lengths]
                totals = [y for y in rows[c] if y.key in keys]
                if totals:
                    kept = self._with_total(x, c, totals, Product(core, layout), turned)
                    if kept is not None:
                        yield kept
                    break

    def _with_total(self, x: Cut, c: int, totals: Sequence[Cut], key: Product, turned: bool) -> Kept | None:
        """With the one of these cuts of class `c` that reads the fewest arrays that the walk does not read anyway."""
        _, products = key.core.facing(turned)
        inside = {y.cls: y for y in parts(p.left for p in products) if y.node >= 0}
        given = sum(1 << d for d in inside)
        for p in products:
            given |= p.left.leaves

        def more(y: Cut) -> tuple[int, int]:
            return (y.leaves & self.facts.computed & ~given).bit_count(), y.price

        total = min(totals, key=more)
        if (x, total) not in self._kept:
            self._kept[x, total] = self._kept_as(x, c, _replaced(total, inside), key, products)
        return self._kept[x, total]

    def _kept_as(self, x: Cut, c: int, total: Cut, key: Product, products: Sequence[Factors]) -> Kept | None:
        leaves = x.leaves & ~(1 << c) | total.leaves
        core = None if leaves & (x.inner | total.inner) else self.core(products, totals=(*key.core.totals, total))
        if core is None:
            return None
        _, _, _, n = core.dims
        nodes = ((y, self.snapshot.nodes[y.node]) for y in parts((total,)) if y.kind == Kind.ROW and y.node >= 0)
        of_rows = [node for y, node in nodes if y.key == total.key and is_elementwise(node.op)]
        work = sum(work_of(t.attrs[0] if t.attrs else "where", n * self.snapshot.size[t.cls]) for t in of_rows)
        reads = tuple(read for read in x.reads if read[0] != c)
        return Kept(tuple(_replaced(y, {c: total}) for y in x.subs), Product(core, key.layout), reads, work)

    def core(self, products: Sequence[Factors], beside: Sequence[Cut] = (), totals: Sequence[Cut] = ()) -> Core | None:
        """The products in one stream that also writes elements beside them, and makes totals of its rows for its
        epilogue; None if no walks compute these."""
        order = sorted(products, key=lambda x: x.key)
        of_rows = {_computed(x): x for x in totals}
        key = tuple(x.key for x in order), tuple(map(_computed, beside)), tuple(sorted(of_rows))
        if key not in self._cores:
            self._cores[key] = self._made(tuple(order), beside, tuple(of_rows[x] for x in sorted(of_rows)))
        return self._cores[key]

    def _made(self, products: tuple[Factors, ...], beside: Sequence[Cut], totals: tuple[Cut, ...]) -> Core | None:
        tops = [self.snapshot.nodes[x.node] for x in products]
        groups: dict[int, list[Factors]] = {}
        for top, x in zip(tops, products, strict=True):
            groups.setdefault(top.attrs[2], []).append(x)
        dtype, *others = {self.snapshot.dtype[top.cls] for top in tops}
        turned, *both = {x.turned for x in products}
        if dtype not in STREAM_DTYPES or others or both or any(x.right.kind != Kind.POINT for x in products):
            return None
        b, m, _, n = dims = turned_dims(tops[0].attrs) if turned else tops[0].attrs
        walks: list[Walk] = []
        reads: list[tuple[Read, ...]] = []
        for length, group in groups.items():
            different = {_computed(x.left): x.left for x in group}
            if beside and (len(different) > 1 or len(groups) > 1):
                return None
            along = _beside_lefts(list(different.values()), [x for x in totals if _columns(x) == length])
            lefts = [self._left_of(x, (b, m, length), turned, beside, own) for x, own in along]
            if None in lefts:
                return None
            walks.append(_walk_of([x for x in lefts if x is not None], length, group))
            reads += [x.reads for x in lefts if x is not None] + [x.right.reads for x in group]
        ways = self.prices.streamed(b, m, n, dtype, walks)
        moved = self.facts.moved(joined(*reads), any_order=True)
        return Core(products, dims, moved, ways, totals=totals) if ways else None

    def _left_of(
        self, cut: Cut, dims: tuple[int, int, int], turned: bool, beside: Sequence[Cut], totals: Sequence[Cut]
    ) -> _Left | None:
        key = dims, turned, tuple(map(_computed, (cut, *beside, *totals)))
        if key not in self._lefts:
            read: dict[int, Node] = {}
            body = Body(self.snapshot, lambda c: self._read(c, read), written_out=True)
            (left,), others = body.nodes((cut,)), body.nodes((*beside, *totals))
            if turned:
                b, m, length = dims
                left = make("V", (swapped(b, length, m),), (left,))
            self._lefts[key] = self._analysed_once((left, *others), dims, list(read))
        return self._lefts[key]

    def _analysed_once(self, outputs: tuple[Node, ...], dims: tuple[int, int, int], classes: list[int]) -> _Left | None:
        """What a walk does for the first of the outputs. Outputs that differ only in which arrays they read are equal:
        these are named by their order, and `classes` are those of the arrays."""
        known = self._analysed.get((outputs, dims))
        if known is None:
            stream = _stream_of(outputs, dims, not self.prices.exact)
            found = stream and self._walked(stream, outputs, classes)
            self._analysed[outputs, dims] = found, classes
            return found
        found, others = known
        if found is None:
            return None
        here = dict(zip(others, classes, strict=True))
        return found._replace(reads=tuple((here[c], *how) for c, *how in found.reads))

    def _read(self, c: int, read: dict[int, Node]) -> Node:
        """The node of a class in memory, named by its place among those read; numbers are part of the code."""
        for n in self.snapshot.of_class(c):
            if n.op == "Full":
                return make("Full", n.attrs)
        name = len(read)
        return read.setdefault(c, make("In", (name, self.snapshot.size[c], self.snapshot.dtype[c])))

    def _walked(self, stream: Stream, whole: Sequence[Node], classes: Sequence[int]) -> _Left:
        """`classes` are those of the arrays in memory, by their names."""
        totals = [x.node for x in stream.totals]
        statistics = {x.node: self._effort(x, classes) for x in stream.statistics}
        of_rows = [statistics[x.node] for x in stream.statistics if x.of_rows]
        of_elements = {x.node for x in stream.statistics if not x.of_rows}
        of_each: list[tuple[float, float]] = []
        depths: list[int] = []
        again, again_work = _total(of_rows)
        work = 0.0
        for turn in range(stream.passes):
            roots = [x.element for x in stream.accumulators if x.turn == turn]
            roots += stream.beside if turn == stream.passes - 1 else ()
            of_each += [statistics[n] for n in operands_first(roots, totals) if n in of_elements]
            nodes = operands_first(roots, [*totals, *statistics])
            depths += [n.attrs[2] for n in nodes if n.op == "MM"]
            again_work += work
            if turn < stream.passes - 1:
                read = self._reads(operands_first(roots, [*totals, *stream.inner, *statistics]), roots, classes)
                again += sum(self.facts.moved((x,), any_order=True) for x in read)
            work = sum(work_of(n.attrs[0] if n.attrs else "where", n.size) for n in nodes if is_elementwise(n.op))
            work += sum(x.element.size for x in stream.totals if x.turn == turn)
        return _Left(
            inner=tuple(x.attrs[2] for x in stream.inner),
            depths=tuple(depths),
            totals=len(totals),
            corrected=any(x.corrections for x in stream.products),
            passes=stream.passes,
            again=again,
            again_work=again_work,
            work=work,
            divisible=stream.divisible,
            bands=stream.bands,
            statistics=len(of_elements),
            of_elements=_total(of_each),
            reads=self._reads(operands_first(whole), whole, classes),
        )

    def _effort(self, x: Statistic, classes: Sequence[int]) -> tuple[float, float]:
        """(bytes read, vector operations) of a statistic, once for each of its rows or elements."""
        (element,) = x.node.args
        nodes = operands_first([element])
        read = sum(self.facts.moved((r,), any_order=True) for r in self._reads(nodes, [element], classes))
        work = sum(work_of(n.attrs[0] if n.attrs else "where", n.size) for n in nodes if is_elementwise(n.op))
        times = x.at.size / x.node.size
        return read * times, (work + element.size) * times

    def _reads(self, nodes: Sequence[Node], roots: Sequence[Node], classes: Sequence[int]) -> tuple[Read, ...]:
        """How these nodes read arrays in memory; those among the roots are read whole."""
        whole = [*roots, *(a for n in nodes if n.op not in ("V", "Gather") for a in n.args)]
        reads = [_read_of(a, classes) for a in whole]
        for n in nodes:
            if n.op == "Gather":
                outer, _, inner = n.attrs
                table, index = n.args
                rows = outer * index.size
                reads += [self.facts.gathered(_read_of(table, classes), rows, inner), _read_of(index, classes)]
        return joined(*reads)


@lru_cache(maxsize=1 << 12)
def _stream_of(outputs: tuple[Node, ...], dims: tuple[int, int, int], corrected: bool) -> Stream | None:
    """The stream that makes the first output on the way as a left operand with these dims, and writes the others beside
    it, or keeps them where they are of one value a row; None if no single walk does. Its arrays are named by their
    order, so that equal layers are analysed once."""
    left, *others = outputs
    batch, _, length = dims
    column = make("In", ("column", batch * length, left.dtype))
    roots = [make("MM", (*dims, 1), (left, column)), *others]
    inputs = [n for n in operands_first(roots) if n.op == "In"]
    try:
        _, (stream,) = in_fewest_passes(roots, inputs, corrected)
    except NotAStream:
        return None
    return stream if _of_one_type(stream) else None


def _columns(total: Cut) -> int:
    """How many elements each row has of which this is a total."""
    assert isinstance(total.key, Rows)
    return total.key.columns


def _beside_lefts(lefts: Sequence[Cut], totals: Sequence[Cut]) -> list[tuple[Cut, list[Cut]]]:
    """Left operands of one walk, each with the totals that have most in common with it."""
    along: list[tuple[Cut, list[Cut]]] = [(x, []) for x in lefts]
    for total in totals:
        own = total.leaves | total.inner
        _, nearest = max(along, key=lambda pair: (own & (pair[0].leaves | pair[0].inner)).bit_count())
        nearest.append(total)
    return along


def _computed(x: Cut) -> tuple[int, Inside]:
    """Equal for cuts that compute the same in the same way."""
    return x.cls, x.inside


def _walk_of(lefts: Sequence[_Left], length: int, products: Sequence[Factors]) -> Walk:
    """The walk of products with these left operands; what two of them share counts twice."""
    return Walk(
        form=WalkForm(
            length=length,
            depths=tuple(d for x in lefts for d in x.inner),
            products=len(products),
            elements=len(lefts),
            totals=sum(x.totals for x in lefts),
            passes=max(x.passes for x in lefts),
            statistics=sum(x.statistics for x in lefts),
        ),
        depths=tuple(d for x in lefts for d in x.depths),
        again=sum(x.again for x in lefts),
        again_work=sum(x.again_work for x in lefts),
        left_work=sum(x.work for x in lefts),
        right_work=sum(x.right.work for x in products),
        rescaled=len(products) if any(x.corrected for x in lefts) else 0,
        divisible=len(lefts) == 1 and lefts[0].divisible,
        bands=tuple(x for x in lefts[0].bands if all(x in other.bands for other in lefts)),
        of_elements=_total([x.of_elements for x in lefts]),
    )


def _of_one_type(stream: Stream) -> bool:
    """Whether all products multiply elements of one type, and totals are of types that are summed in float."""
    multiplied = {x.element.dtype for x in stream.products} | {x.dtype for x in stream.inner}
    multiplied |= {x.node.dtype for x in stream.products}
    return len(multiplied) == 1 and STREAM_DTYPES.issuperset([*multiplied, *(x.node.dtype for x in stream.totals)])


def _total(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return sum(x for x, _ in pairs), sum(y for _, y in pairs)


def _read_of(node: Node, classes: Sequence[int]) -> tuple[Read, ...]:
    """How an array in memory is read, itself or through a view; empty for what is computed."""
    if node.op == "In":
        return ((classes[node.attrs[0]], identity(node.size), 0.0, None),)
    if node.op == "V" and node.args[0].op == "In":
        return ((classes[node.args[0].attrs[0]], node.attrs[0], 0.0, None),)
    return ()


def _is_whole(x: Cut, dims: Dims) -> bool:
    """Whether a cut is an inner product of a stream, at its own elements, or the transpose of one."""
    if x.kind != Kind.GEMM or not isinstance(x.key, Product):
        return False
    b, m, k, _ = dims
    batch, rows, _, columns = x.key.core.dims
    whole = identity(b * m * k), swapped(batch, rows, columns)
    return batch == b and (rows, columns) in ((m, k), (k, m)) and x.key.layout in whole


def _replaced(top: Cut, leaves: Mapping[int, Cut]) -> Cut:
    """A cut that computes some of its leaves."""
    made: dict[int, Cut] = {}

    def moved(x: Cut) -> Cut:
        found = made.get(id(x))
        if found is None:
            found = leaves.get(x.cls) if x.node < 0 else None
            if found is None:
                found = _over(x, tuple(moved(y) for y in x.subs)) if x.subs else x
            made[id(x)] = found
        return found

    return moved(top)


def _over(x: Cut, subs: tuple[Cut, ...]) -> Cut:
    leaves, inner, summed = 0, 1 << x.cls, x.summed
    for y in subs:
        leaves |= y.leaves
        inner |= y.inner
        summed |= y.summed
    made = Cut(x.cls, x.node, subs, x.kind, x.key, leaves, inner, x.reads, x.work, x.on_chip, x.at)
    made.summed = summed
    return made
