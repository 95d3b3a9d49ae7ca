"""Cuts: expressions over e-nodes that one kernel can compute, whose leaves are classes read from memory.

The kind of a cut decides what its kernel may hold:

    POINT     any expression of pointwise operators, views (as index maps), gathers, concatenations and sums of a few
              terms, which each element writes out
    GEMM      one product of POINT operands (prologues), then pointwise operators and bijective views (its epilogue)
    GEMM_RED  such a product reduced over one whole axis of its output
    ROW       pointwise operators and reductions over rows of one length, a row to a workgroup; products of one row or
              column are such reductions
    STREAM    products of one left operand that is made on the way, along k, from reductions over it, inner products
              and POINT operands; then an epilogue as that of a GEMM, which also reads totals along k
    OPAQUE    an operator with unknown meaning

Views include masks and windows, so an implicit-gemm convolution is a GEMM over a window view.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from eqsat.base.graphs import components
from eqsat.base.numerics import itemsize
from eqsat.egraph.snapshot import SOURCE, Snapshot
from eqsat.extract.kernels.cost import Gemm, Run, read_bytes
from eqsat.layout.arithmetic import Layout, compose, identity, row_major, spread, strided
from eqsat.program.node import FEW_TERMS
from eqsat.streams.turned import swapped


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the enumeration. Within them it is complete, except that each class keeps only its best few cuts.

    Each default is the value above which no workload gets cheaper (`benchmarks/bounds.py`; the table is in
    `papers/bounds.md`), or the most that a kernel can hold. A single operator over arrays is a kernel under any limits.

    Attributes:
        leaves: arrays that a kernel reads; their addresses take registers in every thread.
        operators: e-nodes inside a kernel, to limit its text; attention in one row kernel stays under it.
        per_kind: cuts of each kind that a class keeps, the best by price and by leaves still to be computed.
        joins: partial joins of an operator's first operands that are kept while the next operand is joined.
        pairs: combinations of inlined operands of a product that are priced.
        lefts: left operands of each kind that a product may make on the way, and products of each kind that unlike ones
            are joined with; `rights` are the right operands tried with each left one.
        copies: distinct indices at which one kernel evaluates its inner operators. Views and concatenations over
            computed values add indices, and each index may repeat the text of everything below it.
        members: members of a concatenation that one kernel computes; each is a branch, which may read a table and an
            index.
        reads: places at which one kernel reads its arrays. Concatenations of concatenations multiply them.
        terms: of a sum or extreme that each element of a map computes by itself: the windows of depthwise convolutions
            and of pooling. Each term repeats the text of what is summed.
        prologue_leaves: arrays that one operand of a product reads, since each tile reads them again; of these,
            `prologue_computed` may be computed arrays.
        outputs: classes that one joint kernel computes; each adds a store for every element. Of kernels with more than
            `overlapping`, no two with equally many compute the same class.
        joint: joint kernels kept for the same outputs and, for each number of outputs, at least for a class.
        rounds: passes over the classes of a cycle. A safety limit: a few passes suffice.
        fold_elements: larger constants are computed on the device instead of ahead of time: 256 MiB in float32.
    """

    leaves: int = 32
    operators: int = 200
    per_kind: int = 20
    joins: int = 16
    pairs: int = 64
    lefts: int = 4
    rights: int = 2
    copies: int = 64
    members: int = 32
    reads: int = 256
    terms: int = FEW_TERMS
    prologue_leaves: int = 8
    prologue_computed: int = 6
    outputs: int = 16
    overlapping: int = 4
    joint: int = 3
    rounds: int = 25
    fold_elements: int = 1 << 26


QUICK = Limits(per_kind=6, joins=6, pairs=12)
"""Limits for an enumeration in little time. Processor seconds of a cover with the defaults and with these, and what it
costs more: Mamba 10.4 and 3.3, under 0.01 %; a stage of ConvNeXt 1.9 and 0.8, 0.14 %; ShuffleNet 5.1 and 3.7, 1.8 %."""


AMPLE = Limits(per_kind=40, joins=32, pairs=256, lefts=16, rights=8)
"""Limits for a small e-graph."""

SMALL = 250
"""Most e-nodes of a small e-graph: within `AMPLE` limits, its kernels are found in a fraction of a second."""


def usual(snapshot: Snapshot) -> Limits:
    """The limits for an e-graph where time is left. Ample ones are for what other forms of a value crowd out."""
    small = len(snapshot.nodes) <= SMALL and any(node.rule != SOURCE for node in snapshot.nodes)
    return AMPLE if small else Limits()


def quicker(limits: Limits) -> Limits:
    """These limits on a kernel, and no more of each class kept than in little time."""
    fewer = {
        name: min(getattr(limits, name), getattr(QUICK, name))
        for name in ("per_kind", "joins", "pairs", "lefts", "rights")
    }
    return replace(limits, **fewer)


WIDE = 3
"""An operand of a product that reads more arrays is wide. Such products are kept beside the others: in Gemma they crowd
out what its cheapest cover needs."""


class Kind(IntEnum):
    """The kind of a cut, which decides what may be added to it."""

    POINT = 0
    GEMM = 1
    GEMM_RED = 2
    ROW = 3
    STREAM = 4
    OPAQUE = 5


Dims = tuple[int, int, int, int]
"""(B, M, K, N) of a product."""


def turned_dims(dims: Dims) -> Dims:
    """Of b.T @ a.T, given those of a @ b."""
    b, m, k, n = dims
    return b, n, k, m


class Factors(NamedTuple):
    """A product in a kernel: the index of its MM e-node, and the cuts of its operands.

    One that is `turned` is computed as (b.T @ a.T).T, so that what a stream makes on the way stands on the left: `left`
    is a cut of b then, and `right` one of a.
    """

    node: int
    left: Cut
    right: Cut
    turned: bool = False

    @property
    def key(self) -> tuple[int, Inside, Inside, bool]:
        """Equal for products that are computed in the same way."""
        return self.node, self.left.inside, self.right.inside, self.turned

    @property
    def the_other_way_round(self) -> Factors:
        """The same product, turned, or not any more."""
        return Factors(self.node, self.right, self.left, not self.turned)


@dataclass(slots=True, eq=False)
class Core:
    """The product inside a cut, or the products of a stream. Two cuts may share it, so it is compared by identity.
    Never changed; frozen, it would take several times as long to make.

    Attributes:
        products: each with its operands, all or none turned; `dims` are the (B, M, K, N) of all, as they are computed.
        bytes: bytes that the operands move, counted once.
        ways: how it may run, including the time of its prologues; `reduced` is how it runs if it is also reduced,
            which a stream cannot be.
        wide: whether an operand reads more than `WIDE` arrays.
        totals: reductions of rows along the axis of a product, which a stream makes for its epilogue to read.
        turned: whether the products are.
    """

    products: tuple[Factors, ...]
    dims: Dims
    bytes: float
    ways: tuple[Gemm, ...]
    reduced: Gemm | None = None
    totals: tuple[Cut, ...] = ()
    wide: bool = field(init=False)
    turned: bool = field(init=False)

    def __post_init__(self) -> None:
        self.turned = self.products[0].turned
        self.wide = any(x.leaves.bit_count() > WIDE for p in self.products for x in (p.left, p.right))

    @property
    def streams(self) -> bool:
        """Whether this is a stream."""
        return self.reduced is None

    def facing(self, turned: bool) -> tuple[Dims, tuple[Factors, ...]]:
        """Dims and products, `turned` or not."""
        if turned == self.turned:
            return self.dims, self.products
        return turned_dims(self.dims), tuple(x.the_other_way_round for x in self.products)


class Product(NamedTuple):
    """Key of GEMM, GEMM_RED and STREAM cuts: `layout` maps the class to the core's flat [B, M, N] outputs.

    For GEMM_RED it maps the class to the reduced output.
    """

    core: Core
    layout: Layout

    def facing(self, turned: bool) -> Layout | None:
        """The layout, if the core were `turned` or not."""
        if turned == self.core.turned:
            return self.layout
        b, m, _, n = self.core.dims
        return compose(swapped(b, n, m), self.layout)


class Rows(NamedTuple):
    """Key of ROW cuts: `rows` rows of `columns` elements, and how the class relates to them.

    `level` is "full" if the class has an element for each element of the domain, "red" if it has one per row. `layout`
    is None, or the bijective view that gives the class from such an array; nothing is reduced after such a view.
    """

    rows: int
    columns: int
    level: str
    layout: Layout | None = None


Key = Product | Rows | None

Read = tuple[int, Layout | None, float, Hashable]
"""(leaf class, index map from the cut's class to it, 0, None), or (leaf class, None, bytes moved, what part of it) if
there is no map. Equal reads are one."""


Index = Hashable
"""How an index inside a kernel follows from the output index: None if it is the same, a layout, or several steps in
sequence."""

Slot = tuple[Kind, int, int]
"""The kind of a cut, the identity of its key, and the bit set of its leaves that must be computed."""

Inside = tuple[int, int, int]
"""Bit sets of classes: the leaves of a cut, the classes that it computes, and its sums that are written out."""

NOTHING = Run(0, 0)
"""The cost of no kernel launch."""


class Cut:
    """An expression for a class that one kernel computes.

    Attributes:
        cls: the class; `node` is the index of the e-node at the top, -1 if the cut is just a leaf.
        subs: the cuts of that node's operands.
        kind: see `Kind`; cuts must have equal `key` to be joined.
        leaves, inner: bit sets of the classes read, and of the classes computed inside, including `cls`.
        reads: how the leaves are read.
        at: the indices at which inner operators are computed, each relative to the class's own index, which is None.
        summed: bit set of the classes inside that are sums of a few terms, written out.
        work: vector operations, without those of prologues.
        on_chip: a ROW that reads a row's reduction back, and therefore holds the row on chip.
        wide: whether an operand of its product is wide.
        run: the cost of the kernel; `price` is its price in picoseconds, 0 for a cut that only reads. `score`, for
            ranking, adds an estimate for its leaves (`Guess.beneath`).
        slot: equal for cuts that differ in their inner operators and free leaves alone, of which the best one is kept.
            Set where a cut is made from others.
    """

    __slots__ = (
        "_run",
        "at",
        "cls",
        "inner",
        "key",
        "kind",
        "leaves",
        "node",
        "on_chip",
        "price",
        "reads",
        "score",
        "slot",
        "subs",
        "summed",
        "wide",
        "work",
    )

    slot: Slot

    def __init__(
        self,
        cls: int,
        node: int,
        subs: tuple[Cut, ...],
        kind: Kind,
        key: Key,
        leaves: int,
        inner: int,
        reads: tuple[Read, ...],
        work: float = 0.0,
        on_chip: bool = False,
        at: frozenset[Index] = frozenset(),
    ) -> None:
        self.cls, self.node, self.subs = cls, node, subs
        self.at = at
        self.kind, self.key = kind, key
        self.leaves, self.inner = leaves, inner
        self.reads, self.work, self.on_chip = reads, work, on_chip
        self.wide = isinstance(key, Product) and key.core.wide
        self.summed = self.score = self.price = 0
        self._run = NOTHING

    @property
    def run(self) -> Run:
        return self._run

    @run.setter
    def run(self, run: Run) -> None:
        self._run, self.price = run, run.price

    @property
    def inside(self) -> Inside:
        """Equal for cuts of a class that compute the same in the same way."""
        return self.leaves, self.inner, self.summed


def sums_in_two_ways(cuts: Iterable[Cut]) -> bool:
    """Whether some cut writes out a sum that a kernel of another one is built around."""
    out = around = 0
    for x in cuts:
        out |= x.summed
        around |= x.inner & ~x.summed
    return bool(out & around)


def parts(cuts: Iterable[Cut]) -> Iterator[Cut]:
    """Every cut inside the given ones, once, depth first, readers first. Cuts that operands share are one object; they
    must live as long as the walk."""
    seen: set[int] = set()
    stack = list(cuts)[::-1]
    while stack:
        x = stack.pop()
        if id(x) not in seen:
            seen.add(id(x))
            yield x
            stack.extend(x.subs[::-1])


def is_matrix(operand: Cut, shape: tuple[int, int, int]) -> bool:
    """Whether the operand is an array in memory with one stride per dim, contiguous along rows or along columns."""
    if operand.work or len(operand.reads) != 1 or operand.reads[0][1] is None:
        return False
    return _has_strides(operand.reads[0][1], shape)


@lru_cache(maxsize=1 << 16)
def _has_strides(layout: Layout, shape: tuple[int, int, int]) -> bool:
    """Whether a layout has one stride per dim of the shape, and is contiguous along rows or along columns."""
    if layout.masked:
        return False
    lines = [compose(layout, strided(0, ((n, step),))) for n, step in zip(shape, row_major(shape), strict=True)]
    steps = [line.dims[0][1] if line is not None and line.dims else 0 for line in lines]
    return 1 in steps[1:] and strided(layout.offset, zip(shape, steps, strict=True)) == layout


def shared_work(subs: Sequence[Cut]) -> float:
    """The work of several cuts in one kernel; shared parts are done once."""
    total, seen = 0.0, 0
    for x in sorted(subs, key=lambda x: -x.work):
        inner = x.inner.bit_count()
        new = (x.inner & ~seen).bit_count()
        total += x.work * new / inner if inner else x.work
        seen |= x.inner
    return total


def viewed_rows(key: Rows, layout: Layout, size: int, bijective: bool) -> Rows | None:
    """The row domain through a view: a reduction read back by its row, or any bijective view of the whole."""
    if key.layout is None:
        repeated = spread(layout, key.rows, key.columns) if key.level == "red" else None
        if repeated is not None:
            return Rows(key.rows, key.columns, "full", None if repeated.is_identity(layout.size) else repeated)
        return key._replace(layout=layout) if bijective else None
    moved = compose(key.layout, layout) if bijective else None
    if moved is None:
        return None
    return key._replace(layout=None if moved.is_identity(size) else moved)


def reduces_axis(key: Product, columns: int) -> bool:
    """Whether each innermost run of `columns` elements covers all of the product's last or middle axis."""
    _, m, _, n = key.core.dims
    first = compose(key.layout, strided(0, ((columns, 1),)))
    return (columns == n and first == identity(n)) or (columns == m and first == strided(0, ((m, n),)))


def reduced_stride(cut: Cut) -> int:
    """The stride, in the product's output, of the axis that a GEMM_RED reduces: 1 for the last axis."""
    (operand,) = cut.subs
    assert isinstance(operand.key, Product)
    assert isinstance(cut.key, Product)
    columns = operand.key.layout.size // cut.key.layout.size
    first = compose(operand.key.layout, strided(0, ((columns, 1),)))
    return first.dims[0][1] if first is not None and first.dims else 1


class Facts:
    """Facts about classes that enumeration needs, computed once.

    Attributes:
        free: whether a class can be read without computing it: an input, or a constant folded ahead of time.
        computed: bit set of the classes that are not free.
        bytes: bytes of an array of the class; `itemsize` is for one element.
        leaf: the cut that only reads the class.
        cycles: the classes to compute, operands first. Those on a cycle through each other are together, the shallowest
            first; any other class is alone.
    """

    def __init__(self, snapshot: Snapshot, limits: Limits) -> None:
        self.snapshot = snapshot
        classes = range(snapshot.n_classes)
        members = [snapshot.of_class(c) for c in classes]
        self.itemsize = [itemsize(dtype) for dtype in snapshot.dtype]
        self.bytes = [snapshot.size[c] * self.itemsize[c] for c in classes]
        self.free = [
            any(m.op == "In" for m in members[c])
            or (
                snapshot.const[c]
                and (snapshot.size[c] <= limits.fold_elements or any(m.op in ("Const", "Full") for m in members[c]))
            )
            for c in classes
        ]
        self.computed = sum(1 << c for c in classes if not self.free[c])
        self.cycles = self._cycles()
        self._slices = self._slices_of_groups()
        self._sliced = sum(1 << c for c in self._slices)
        self._launched: dict[int, Sequence[Sequence[int]]] = {}
        self.leaf: list[Cut] = []
        self._leaves: dict[int, Cut] = {}
        for c in classes:
            self.leaf.append(self._leaf(c))

    def _cycles(self) -> list[list[int]]:
        snapshot = self.snapshot
        operands = {
            c: dict.fromkeys(a for m in snapshot.of_class(c) for a in m.args if not self.free[a])
            for c in range(snapshot.n_classes)
            if not self.free[c]
        }
        return [sorted(cycle, key=lambda c: (snapshot.depth[c], c)) for cycle in components(operands)]

    def _leaf(self, c: int) -> Cut:
        """The cut that reads a class. Literals are part of the code; a constant that is a view of a smaller one is read
        through that view."""
        cut = self._leaves.get(c)
        if cut is not None:
            return cut
        snapshot = self.snapshot
        if any(m.op == "Full" for m in snapshot.of_class(c)):
            cut = Cut(c, -1, (), Kind.POINT, None, 0, 0, ())
        else:
            views = ((i, snapshot.nodes[i].args[0]) for i in snapshot.members[c] if snapshot.nodes[i].op == "V")
            smaller = [i for i, a in views if snapshot.size[a] < snapshot.size[c] and snapshot.const[a]]
            if self.free[c] and snapshot.const[c] and smaller:
                i = min(smaller, key=lambda i: (snapshot.size[snapshot.nodes[i].args[0]], i))
                base = self._leaf(snapshot.nodes[i].args[0])
                reads = self.through(base.reads, snapshot.nodes[i].attrs[0], snapshot.size[base.cls])
                cut = Cut(c, i, (base,), Kind.POINT, None, base.leaves, 0, reads)
            else:
                cut = Cut(c, -1, (), Kind.POINT, None, 1 << c, 0, ((c, identity(snapshot.size[c]), 0.0, None),))
        self._leaves[c] = cut
        return cut

    def _slices_of_groups(self) -> dict[int, list[int]]:
        """For each class, bit sets of the classes that are slices of the same array as it."""
        groups: dict[int, int] = {}
        for node in self.snapshot.nodes:
            if node.op == "V" and node.attrs[0].contiguous and node.cls != node.args[0]:
                groups[node.args[0]] = groups.get(node.args[0], 0) | 1 << node.cls
        found: dict[int, list[int]] = {}
        for mask in dict.fromkeys(groups[a] & self.computed for a in sorted(groups)):
            if mask.bit_count() > 1:
                for c in bits(mask):
                    found.setdefault(c, []).append(mask)
        return found

    def launched(self, leaves: int) -> Sequence[Sequence[int]]:
        """The classes that a kernel computes each: all slices of one array together, else one class."""
        left = leaves & self.computed
        known = self._launched.get(left)
        if known is None:
            sliced = left & self._sliced
            known = self._launched[left] = [(c,) for c in bits(left ^ sliced)] + list(self._together(sliced))
        return known

    def _together(self, left: int) -> Iterator[tuple[int, ...]]:
        while left:
            own = left & -left
            near = self._slices.get(own.bit_length() - 1, ())
            found = left & max(near, key=lambda mask: (mask & left).bit_count(), default=own)
            yield bits(found)
            left &= ~found

    def through(self, reads: tuple[Read, ...], layout: Layout, size: int) -> tuple[Read, ...]:
        """The reads of a view of a class of `size` elements, given those of the class."""
        share = min(1.0, layout.size / max(size, 1))
        out: list[Read] = []
        for leaf, inner, known, of in reads:
            composed = None if inner is None else compose(inner, layout)
            if composed is not None:
                out.append((leaf, composed, 0.0, None))
            else:
                whole = known if inner is None else read_bytes(inner, self.itemsize[leaf], False)
                seen = inner or of
                out.append((leaf, None, whole * share, seen if share == 1 else (seen, layout)))
        return tuple(out)

    def gathered(self, reads: tuple[Read, ...], rows: int, columns: int) -> tuple[Read, ...]:
        """The reads of `rows` rows of a class, each of `columns` elements and anywhere in it, given those of the class.

        Each row moves whole sectors; all of them move no more than the class.
        """
        row = identity(columns)
        out: list[Read] = []
        for leaf, layout, known, of in reads:
            size = self.itemsize[leaf]
            whole = known if layout is None else read_bytes(layout, size, any_order=True)
            one = compose(layout, row) if layout is not None and not layout.masked else None
            moved = min(whole, rows * read_bytes(one or row, size, any_order=False))
            out.append((leaf, None, moved, (layout or of, rows, columns)))
        return tuple(out)

    def moved(self, reads: tuple[Read, ...], any_order: bool = False) -> float:
        """Effective bytes moved by these reads; overlapping reads of one array share bytes where possible."""
        total: dict[int, float] = {}
        for leaf, layout, known, _ in reads:
            moved = known if layout is None else read_bytes(layout, self.itemsize[leaf], any_order)
            before = total.get(leaf)
            total[leaf] = moved if before is None else min(before + moved, max(before, moved, float(self.bytes[leaf])))
        return sum(total.values())

    def freeze(self, reads: tuple[Read, ...], any_order: bool) -> tuple[Read, ...]:
        """The same reads with their bytes computed, for cuts above, whose own index no longer determines them."""
        return tuple(
            (leaf, None, known if layout is None else read_bytes(layout, self.itemsize[leaf], any_order), layout or of)
            for leaf, layout, known, of in reads
        )


def joined(*reads: tuple[Read, ...]) -> tuple[Read, ...]:
    """The reads of several cuts in one kernel; equal reads count once."""
    return tuple(dict.fromkeys(chain.from_iterable(reads)))


@lru_cache(maxsize=1 << 16)
def bit_set(elements: tuple[int, ...]) -> int:
    """The bit set with these elements."""
    return sum(1 << x for x in set(elements))


@lru_cache(maxsize=1 << 16)
def bits(mask: int) -> tuple[int, ...]:
    """The elements of a bit set, ascending. Most sets are asked for many times."""
    out = []
    while mask:
        low = mask & -mask
        out.append(low.bit_length() - 1)
        mask ^= low
    return tuple(out)
