"""Joint kernels: one kernel computes cuts of several classes and reads their shared operands once.

    POINT              maps of one size over common operands: sin(x) * y and cos(x) + y
    GEMM, GEMM_RED     one product, written through several epilogues, or written beside its sums along one axis
    STREAM             the same, and the left operand of its products
    ROW                rows of one domain, reduced several ways, or reduced and written beside a map of the same
                       elements: layernorm(x + r) and the sum x + r

A joint kernel pays off only if each of its outputs is needed in memory. So only classes are joined that every program
in the e-graph computes, or, in a last look, the program as it was written or the best so far: a rule that spells a
class in another way takes it from those of every program. Each is an output or has a reader outside the
kernel that needs it in memory.
Any products of a stream may be joined to such a left operand of theirs: they may be a group that rules formed.
No joint kernel recomputes its own inputs. Covers of earlier e-graphs contribute their joint kernels
(`eqsat.extract.known`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from eqsat.egraph.required import Needs
from eqsat.egraph.snapshot import Snapshot
from eqsat.extract.kernels.cost import Run
from eqsat.extract.kernels.cuts import Core, Cut, Facts, Kind, Limits, Product, Rows, bits, parts, reduced_stride
from eqsat.extract.kernels.grow import Grower

Frame = Core | tuple[int, int] | int
"""What cuts in one kernel must share: a product, rows and columns, or the number of elements."""


Pool = Mapping[int, Sequence["Joint"]]
"""The cuts of each class that fit one frame, as kernels with one output."""


@dataclass(slots=True, eq=False)
class Joint:
    """Cuts of different classes in one kernel. Never changed; frozen, it would take several times as long to make.

    Attributes:
        cuts: one for each output, in order of classes.
        outputs, leaves, inner: bit sets of the classes written, read, and computed inside.
        below: bit set of the classes that every way to compute the leaves computes.
        run: the cost of the kernel.
        saved: picoseconds saved against the cheapest kernels with fewer outputs that read no other classes.
    """

    cuts: tuple[Cut, ...]
    outputs: int
    leaves: int
    inner: int
    below: int
    run: Run
    saved: int

    @property
    def classes(self) -> tuple[int, ...]:
        return tuple(x.cls for x in self.cuts)


def joint_kernels(
    snapshot: Snapshot,
    grower: Grower,
    cuts: Sequence[Sequence[Cut]],
    needs: Needs,
    cheapest: Callable[[int, int], int | None],
    should_stop: Callable[[], bool] | None = None,
) -> list[Joint]:
    """The joint kernels that are cheaper than all separate kernels that read no other classes.

    Args:
        cuts: the cuts of each class.
        needs: the classes to join.
        cheapest: (class, bit set of classes) to the least price, in picoseconds, of a kernel that computes the class
            from the set; None if there is none.
        should_stop: polled; once it returns True, the kernels found so far are returned.
    """
    return _Joiner(snapshot, grower, cuts, needs, cheapest).run(should_stop)


class _Joiner:
    def __init__(
        self,
        snapshot: Snapshot,
        grower: Grower,
        cuts: Sequence[Sequence[Cut]],
        needs: Needs,
        cheapest: Callable[[int, int], int | None],
    ) -> None:
        self.grower, self.below, self.cheapest = grower, needs.of, cheapest
        self.facts: Facts = grower.facts
        self.limits: Limits = grower.limits
        self.roots = _classes(snapshot.roots)
        self.results = self.roots | _classes(_sliced(snapshot, snapshot.roots))
        self.readers = [
            _classes(snapshot.nodes[p].cls for p in parents) & needs.classes for parents in snapshot.parents
        ]
        self.snapshot = snapshot
        self.varying = sum(1 << c for c in range(snapshot.n_classes) if not snapshot.const[c])
        wanted = [c for c in bits(needs.classes) if not self.facts.free[c] and cuts[c]]
        self._lone: dict[int, Joint] = {}
        self.pools: dict[Frame, Pool] = {
            frame: {c: [self._alone(x) for x in _undominated(xs, self.facts)] for c, xs in pool.items()}
            for frame, pool in _frames(snapshot, cuts, wanted, self.limits.joint).items()
        }
        self._ways: dict[int, dict[int, int] | None] = {}
        self._agreeing: dict[tuple[int, int], bool] = {}

    def run(self, should_stop: Callable[[], bool] | None) -> list[Joint]:
        found: list[Joint] = []
        for frame, pool in self.pools.items():
            # A class that could replace its output in the kernel can do so in a larger kernel too.
            alone = [
                x
                for kernels in pool.values()
                for x in kernels
                if not (x.leaves | x.below) & x.inner and self._needed_in_memory(x.cuts[0], pool, x.leaves, x.inner)
            ]
            if len(alone) < 2:
                continue
            partners = _Partners(alone, self.varying)
            level = alone
            for count in range(2, self.limits.outputs + 1):
                if not level or (should_stop and should_stop()):
                    break
                best = self._most_saving(self._extended(frame, pool, level, partners))
                apart = _disjoint(best)
                few = self._few(best) if count <= self.limits.overlapping else []
                level = apart if count >= self.limits.overlapping else list(dict.fromkeys([*few, *apart]))
                found += dict.fromkeys([*few, *apart])
        return found

    def _alone(self, cut: Cut) -> Joint:
        """The kernel of a cut, which several frames may hold."""
        found = self._lone.get(id(cut))
        if found is None:
            below = 0
            for leaf in bits(cut.leaves & self.facts.computed):
                below |= self.below[leaf]
            found = self._lone[id(cut)] = Joint((cut,), 1 << cut.cls, cut.leaves, cut.inner, below, cut.run, 0)
        return found

    def _extended(self, frame: Frame, pool: Pool, level: Sequence[Joint], partners: _Partners) -> Iterator[Joint]:
        """Each joint kernel with one more output, once: its cuts are reached in every order."""
        runs: dict[tuple[Cut, ...], Run | None] = {}
        for joint in level:
            for one in partners.of(joint):
                if len(joint.cuts) == 1 and joint.outputs > one.outputs:
                    continue
                place = (joint.outputs & (one.outputs - 1)).bit_count()
                cuts = (*joint.cuts[:place], *one.cuts, *joint.cuts[place:])
                if cuts not in runs:
                    runs[cuts] = self._run_of(frame, pool, joint, one, cuts)
                run = runs[cuts]
                more = None if run is None else self._joined(joint, one, cuts, run)
                if more is not None:
                    runs[cuts] = None
                    yield more

    def _run_of(self, frame: Frame, pool: Pool, joint: Joint, one: Joint, cuts: tuple[Cut, ...]) -> Run | None:
        """The cost of the kernel with one more output, which has these cuts; None if there is no such kernel."""
        leaves, inner = joint.leaves | one.leaves, joint.inner | one.inner
        if leaves.bit_count() > self.limits.leaves or inner.bit_count() > self.limits.operators:
            return None
        (last,) = one.cuts
        if not _one_kernel(frame, cuts):
            return None
        for x in joint.cuts:
            if not self._agree(x, last):
                return None
        for x in cuts:
            if not self._needed_in_memory(x, pool, leaves, inner):
                return None
        return self.grower.runs.of(cuts)

    def _joined(self, joint: Joint, one: Joint, cuts: tuple[Cut, ...], run: Run) -> Joint | None:
        """The kernel with one more output, which has these cuts and this cost; None if it saves nothing."""
        leaves, inner, below = joint.leaves | one.leaves, joint.inner | one.inner, joint.below | one.below
        (last,) = one.cuts
        reads = leaves & self.facts.computed
        apart = joint.run.price if joint.outputs.bit_count() > 1 else self.cheapest(joint.cuts[0].cls, reads)
        added = self.cheapest(last.cls, reads)
        if apart is None or added is None or apart + added <= run.price:
            return None
        saved = apart + added - run.price
        return Joint(cuts, joint.outputs | one.outputs, leaves, inner, below, run, joint.saved + saved)

    def _agree(self, a: Cut, b: Cut) -> bool:
        """Whether each class that both cuts compute or read is computed in one way. The same pairs come up in many
        joint kernels."""
        known = self._agreeing.get((id(a), id(b)))
        if known is None:
            known = _alike(self._ways_of(a), self._ways_of(b))
            self._agreeing[id(a), id(b)] = self._agreeing[id(b), id(a)] = known
        return known

    def _ways_of(self, cut: Cut) -> dict[int, int] | None:
        """The e-node of each class inside a cut, -1 for leaves; None if the cut computes one in two ways."""
        if id(cut) not in self._ways:
            ways: dict[int, int] = {}
            one = all(ways.setdefault(x.cls, x.node) == x.node for x in parts((cut,)))
            self._ways[id(cut)] = ways if one else None
        return self._ways[id(cut)]

    def _needed_in_memory(self, cut: Cut, pool: Pool, leaves: int, inner: int) -> bool:
        """Whether an output is an output of the program, or has readers outside the kernel that could not replace it:
        several classes, a larger class, or one that reads more or needs another kind of kernel."""
        if self.roots >> cut.cls & 1:
            return True
        outside = self.readers[cut.cls] & ~inner
        if outside.bit_count() != 1:
            return bool(outside)
        reader = outside.bit_length() - 1
        if self.snapshot.size[reader] > self.snapshot.size[cut.cls]:
            return True
        missing, own = self.facts.computed & ~leaves, 1 << cut.cls
        instead = [x.leaves for x in pool.get(reader, ()) if x.inner & own]
        return all(each & missing for each in instead)

    def _most_saving(self, joints: Iterable[Joint]) -> list[Joint]:
        """The cheapest joint kernel for each set of outputs and computed leaves, those that save most first."""
        computed = self.facts.computed
        best: dict[tuple[int, int], Joint] = {}
        for x in joints:
            slot = (x.outputs, x.leaves & computed)
            if slot not in best or x.run < best[slot].run:
                best[slot] = x
        return sorted(best.values(), key=lambda x: (-x.saved, (x.leaves & computed).bit_count(), x.classes, x.leaves))

    def _few(self, joints: Iterable[Joint]) -> list[Joint]:
        """The first few joint kernels for each set of outputs and for each class.

        Those that only write results of the program, or what these are slices of, count apart: others may save more,
        but write what a better cover does without.
        """
        same: Counter[int] = Counter()
        taking_part: Counter[tuple[bool, int]] = Counter()
        kept = []
        for x in joints:
            results = not x.outputs & ~self.results
            members = [(results, c) for c in x.classes]
            if same[x.outputs] < self.limits.joint and any(taking_part[each] < self.limits.joint for each in members):
                kept.append(x)
                same[x.outputs] += 1
                taking_part.update(members)
        return kept


def _disjoint(joints: Iterable[Joint]) -> list[Joint]:
    """The first joint kernels of which no two write the same class."""
    kept, written = [], 0
    for x in joints:
        if not x.outputs & written:
            kept.append(x)
            written |= x.outputs
    return kept


class _Partners:
    """Which kernels with one output may take part in a joint kernel, by bit sets of their positions in `alone`.

    Cuts have something to share if they compute a class in common or read a varying one. They cannot be one kernel
    if they have the same output, or if one computes what the other's leaves need. For a joint kernel this is known from
    its cuts.
    """

    def __init__(self, alone: Sequence[Joint], varying: int) -> None:
        self._alone = alone
        self._near: dict[int, int] = {}
        self._apart: dict[int, int] = {}
        inside = 0
        for x in alone:
            inside |= x.inner
        needs = [(x.leaves | x.below) & inside for x in alone]  # of the many classes below, no other one matters
        computing, needing, reading, writing = map(
            _holding, ([x.inner for x in alone], needs, [x.leaves & varying for x in alone], [x.outputs for x in alone])
        )
        for x, needed in zip(alone, needs, strict=True):
            own = id(x.cuts[0])
            self._near[own] = _any_of(computing, x.inner) | _any_of(reading, x.leaves & varying)
            self._apart[own] = _any_of(writing, x.outputs) | _any_of(needing, x.inner) | _any_of(computing, needed)

    def of(self, joint: Joint) -> Iterator[Joint]:
        """The kernels with one output that may be added to a joint kernel."""
        near = apart = 0
        for cut in joint.cuts:
            near |= self._near[id(cut)]
            apart |= self._apart[id(cut)]
        return (self._alone[i] for i in bits(near & ~apart))


def _holding(sets: Sequence[int]) -> dict[int, int]:
    """For each element of bit sets, the positions of the sets that hold it."""
    found: dict[int, int] = {}
    for i, one in enumerate(sets):
        for c in bits(one):
            found[c] = found.get(c, 0) | 1 << i
    return found


def _any_of(holding: Mapping[int, int], wanted: int) -> int:
    """The positions of the sets that hold any of these elements."""
    found = 0
    for c in bits(wanted):
        found |= holding.get(c, 0)
    return found


def _classes(classes: Iterable[int]) -> int:
    return sum(1 << c for c in set(classes))


def _sliced(snapshot: Snapshot, classes: Iterable[int]) -> Iterator[int]:
    """The arrays of which these classes are slices."""
    for node in (snapshot.nodes[i] for c in classes for i in snapshot.members[c]):
        if node.op == "V" and node.attrs[0].contiguous:
            yield node.args[0]


def _frames(
    snapshot: Snapshot, cuts: Sequence[Sequence[Cut]], wanted: Sequence[int], streams: int
) -> dict[Frame, dict[int, list[Cut]]]:
    """The cuts that may share a kernel, by frame and class, without frames of a single class.

    The classes are those `wanted`, and of any class the best few `streams` that may write a wanted left operand beside.
    """
    frames: dict[Frame, dict[int, list[Cut]]] = {}
    known = set(wanted)
    for c in wanted:
        for x in cuts[c]:
            if isinstance(x.key, Product):
                frames.setdefault(x.key.core, {}).setdefault(c, []).append(x)
            elif isinstance(x.key, Rows):
                frames.setdefault((x.key.rows, x.key.columns), {}).setdefault(c, []).append(x)
            elif x.kind == Kind.POINT:
                frames.setdefault(snapshot.size[c], {}).setdefault(c, []).append(x)
    for c in [c for c in range(snapshot.n_classes) if c not in known]:
        for x in [x for x in cuts[c] if x.kind == Kind.STREAM][:streams]:
            assert isinstance(x.key, Product)
            frames.setdefault(x.key.core, {}).setdefault(c, []).append(x)
    for frame, held in frames.items():
        if isinstance(frame, tuple):
            for c, points in frames.get(frame[0] * frame[1], {}).items():
                held.setdefault(c, []).extend(points)
        elif isinstance(frame, Core) and frame.streams:
            left = frame.products[0].left
            if left.cls in known and left.price:  # not one that only a stream computes
                held.setdefault(left.cls, []).append(left)
    return {frame: held for frame, held in frames.items() if len(held) > 1}


def _undominated(cuts: Sequence[Cut], facts: Facts) -> list[Cut]:
    """The cuts, without those that read all computed classes of a cheaper cut."""
    kept: list[Cut] = []
    if len(cuts) == 1:
        return list(cuts)
    for x in sorted(cuts, key=lambda x: (x.price, (x.leaves & facts.computed).bit_count(), x.leaves)):
        if all(y.leaves & facts.computed & ~x.leaves for y in kept):
            kept.append(x)
    return kept


def _alike(ways: Mapping[int, int] | None, others: Mapping[int, int] | None) -> bool:
    """Whether classes that are in both have the same e-node."""
    if ways is None or others is None:
        return False
    return all(others.get(c, node) == node for c, node in ways.items())


def _one_kernel(frame: Frame, cuts: Sequence[Cut]) -> bool:
    """Whether a kernel family can write all these outputs: a product is reduced along one axis only, and in a frame of
    rows some rows are reduced."""
    if isinstance(frame, tuple):
        return any(x.kind != Kind.POINT for x in cuts)
    return not isinstance(frame, Core) or len({reduced_stride(x) for x in cuts if x.kind == Kind.GEMM_RED}) <= 1
