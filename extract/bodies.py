"""The core nodes of cuts, as one kernel computes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eqsat.egraph.snapshot import Snapshot
from eqsat.extract.cuts import Cut
from eqsat.program.core import Node, make


class Body:
    """A kernel's expressions. `read` gives the node of a class that the kernel does not compute."""

    def __init__(self, snapshot: Snapshot, read: Callable[[int], Node]) -> None:
        self._snapshot = snapshot
        self._read = read
        self._nodes: dict[int, Node] = {}

    def nodes(self, cuts: Sequence[Cut]) -> tuple[Node, ...]:
        """The nodes of cuts.

        Within a kernel each class is computed in one way only. If cuts differ, the cut with the product or reduction
        that the kernel is built and priced around decides. Hence such operands come first.
        """
        first = sorted(range(len(cuts)), key=lambda i: -cuts[i].kind)
        made = {i: self._node(cuts[i]) for i in first}
        return tuple(made[i] for i in range(len(cuts)))

    def _node(self, cut: Cut) -> Node:
        found = self._nodes.get(cut.cls)
        if found is None:
            if cut.node < 0:
                found = self._read(cut.cls)
            else:
                top = self._snapshot.nodes[cut.node]
                found = make(top.op, top.attrs, self.nodes(cut.subs))
            self._nodes[cut.cls] = found
        return found
