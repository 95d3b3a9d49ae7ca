"""Finds the kernels of an e-graph again in one that grew from it, where classes are renumbered and may be merged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from eqsat.egraph.snapshot import Snapshot
from eqsat.extract.kernels.candidates import Candidate
from eqsat.extract.kernels.cuts import Cut, Kind, bits


class Renumbering:
    """Kernels of `before` as kernels of `after`, in which the classes of `free` need not be computed. `classes` are
    those of `after` for those of `before`, where they are known."""

    def __init__(
        self, before: Snapshot, after: Snapshot, free: Sequence[bool], classes: Mapping[int, int] | None = None
    ) -> None:
        self._before, self._after, self._free = before, after, free
        self._classes = same_classes(before, after) if classes is None else classes
        self._cuts: dict[int, Cut | None] = {}

    def all(self, kernels: Iterable[Candidate]) -> list[Candidate]:
        """These kernels, except any whose e-nodes are gone, that would read their own class, or compute a free one."""
        return [moved for x in kernels if (moved := self._candidate(x)) and moved.cls not in moved.children]

    def cover(self, chosen: Iterable[Candidate]) -> list[Candidate]:
        """A cover, in launch order. If several classes have become one, the kernel computed first stays, because it
        does not need the others."""
        found: dict[int, Candidate] = {}
        for x in self.all(chosen):
            found.setdefault(x.cls, x)
        return list(found.values())

    def _candidate(self, x: Candidate) -> Candidate | None:
        cut = self._cut(x.cut)
        if cut is None or self._free[cut.cls]:
            return None
        call = x.call
        outputs, read = call[1] if call is not None and cut.kind != Kind.OPAQUE else ((), ())
        if any(c not in self._classes for c in (*x.leaves, *x.children, *outputs, *read)):
            return None  # what only another output of the kernel computes or reads is gone
        leaves = self._all(x.leaves)
        children = self._all((*x.children, *filter(self._before.is_input, x.leaves)))  # inputs may be computed there
        if call is not None and cut.kind == Kind.OPAQUE:
            call = call[0], self._after.nodes[cut.node].args
        elif call is not None:
            call = call[0], (self._all(outputs), self._all(read))
        needed = tuple(c for c in children if not self._free[c])
        return replace(x, cls=cut.cls, leaves=leaves, children=needed, cut=cut, call=call)

    def _all(self, classes: Iterable[int]) -> tuple[int, ...]:
        return tuple(sorted({self._classes[c] for c in classes}))

    def _set(self, classes: int) -> int:
        return sum(1 << c for c in self._all(bits(classes)))

    def _cut(self, top: Cut) -> Cut | None:
        """The same expression, without the key that it grew by; None if it is not in the e-graph. Shared cuts stay
        shared."""
        stack = [top]
        while stack:
            cut = stack[-1]
            waiting = [x for x in cut.subs if id(x) not in self._cuts]
            if waiting and id(cut) not in self._cuts:
                stack += waiting
                continue
            stack.pop()
            if id(cut) not in self._cuts:
                self._cuts[id(cut)] = self._moved(cut, [self._cuts[id(x)] for x in cut.subs])
        return self._cuts[id(top)]

    def _moved(self, cut: Cut, subs: Sequence[Cut | None]) -> Cut | None:
        node = self._node(cut.node) if cut.node >= 0 else -1
        known = tuple(x for x in subs if x is not None)
        if node is None or len(known) < len(subs) or any(c not in self._classes for c in bits(cut.leaves | cut.inner)):
            return None
        leaves, inner = self._set(cut.leaves), self._set(cut.inner)
        reads = tuple((self._classes[leaf], layout, moved, of) for leaf, layout, moved, of in cut.reads)
        cls = self._classes[cut.cls]
        made = Cut(cls, node, known, cut.kind, None, leaves, inner, reads, cut.work, cut.on_chip, cut.at)
        made.run, made.score = cut.run, cut.score
        return made

    def _node(self, index: int) -> int | None:
        node = self._before.nodes[index]
        return self._after.entry(node.op, node.attrs, [self._classes.get(a, -1) for a in node.args])


def same_classes(before: Snapshot, after: Snapshot) -> Mapping[int, int]:
    """Class of `before` to class of `after`, for classes that have a derivation there."""
    found: dict[int, int] = {}
    for node in sorted(before.nodes, key=lambda n: max((before.depth[a] for a in n.args), default=-1)):
        if node.cls not in found and all(a in found for a in node.args):
            cls = after.find(node.op, node.attrs, [found[a] for a in node.args])
            if cls is not None:
                found[node.cls] = cls
    return found
