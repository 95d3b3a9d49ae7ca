"""Attempts to prove two values over leaves equal, each in an e-graph of its own, for a sweep (`eqsat.proof.sweep`).

Constants that were computed ahead of time on one side are two classes there. They are compared after a few iterations
already, and again: once they are one class, an e-graph proves at once what it would otherwise have grown for. An
attempt may rest while it is small, and go on later.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any

from eqsat.egraph.saturate import Growing, Limits
from eqsat.egraph.snapshot import Snapshot
from eqsat.language.rule import AnyRule
from eqsat.program.core import Node
from eqsat.program.node import substitute
from eqsat.proof.addends import sums_in_order
from eqsat.proof.steered import Steered, as_views, in_order, steered
from eqsat.proof.values.ahead import MOST_FOLDED, Ahead
from eqsat.proof.values.enclosure import OutOfTime
from eqsat.proof.values.signatures import Index
from eqsat.verify.moves import move_alike, moves

_FIRST, _SMALL = 3, 4
"""Iterations of an e-graph, and the share of its e-nodes, after which constants are compared. Those that agree early
spare it much. Both limits are doubled where none agreed."""

_FULL = 4
"""How often an e-graph may be full although constants in it agreed: proofs of Swin need three, and more than twice as
many showed nothing in e-graphs of too small a cut."""

_OVERFULL, _NEARLY_FULL = 2, 0.5
"""An e-graph of so many times its e-nodes is given up at once: one more iteration may take all memory. So is one that
has this share of them where its last growth, once more, would make it as large."""

_SHARE_OF_TIME = 0.5
"""Of the time that is left, for one attempt: only where the time is short does the clock decide."""


@dataclass(frozen=True, slots=True)
class Effort:
    """What one proof may take: e-nodes, iterations, and operators of both sides above the cut.

    These are counts, so that answers do not depend on what else the machine does. The cut is first where both sides
    meet, then up to `further` steps nearer to the inputs.
    """

    nodes: int
    iterations: int
    operators: int
    further: int

    @property
    def small(self) -> int:
        """E-nodes of an e-graph that is small."""
        return self.nodes // _SMALL


@dataclass(frozen=True, eq=False, slots=True)
class Local:
    """A proof over numbered leaves, and what must be so of constants for it.

    Attributes:
        sides: both values over the leaves.
        found: the e-graph where the sides met.
        sums: sums in them, and the same in another order.
        agreeing: constants that must agree.
        moving: values that must move elements alike, as constants steer one of them.
    """

    sides: tuple[Node, Node]
    found: Snapshot
    sums: tuple[tuple[Node, Node], ...] = ()
    agreeing: tuple[tuple[Node, Node], ...] = ()
    moving: tuple[tuple[Node, Node], ...] = ()


def contradicts(found: Snapshot) -> bool:
    """Whether a class holds two different numbers. Such an e-graph proves everything, so it proves nothing."""
    numbers: dict[int, Any] = {}
    for node in found.nodes:
        if node.op == "Full" and numbers.setdefault(node.cls, node.attrs[0]) != node.attrs[0] == node.attrs[0]:
            return True
    return False


@dataclass(frozen=True, slots=True)
class Facts:
    """What attempts work with: constants, how far candidates may be apart, rules, and a clock (`time.monotonic`)."""

    constants: Ahead
    tolerance: float
    rules: Sequence[AnyRule]
    deadline: float
    _moved: dict[tuple[Node, Node], bool] = field(default_factory=dict, repr=False)

    def in_time(self) -> None:
        """Raises OutOfTime once the deadline has passed."""
        if time.monotonic() > self.deadline:
            raise OutOfTime

    def move_alike(self, left: Node, right: Node) -> bool:
        """Whether both only move elements, and move the same."""
        if left.size > MOST_FOLDED or not (moves(left) and moves(right)):
            return False
        if (left, right) not in self._moved:  # a growing e-graph asks again and again
            self._moved[left, right] = move_alike(left, right, self.constants.values)
        return self._moved[left, right]

    def hold(self, local: Local, leaves: Mapping[Node, Node]) -> bool:
        """Whether the constants that these leaves stand for agree, and steer, as a proof needs it."""
        values = substitute([node for pair in (*local.agreeing, *local.moving) for node in pair], leaves)
        pairs = list(zip(values[::2], values[1::2], strict=True))
        agreeing, moving = pairs[: len(local.agreeing)], pairs[len(local.agreeing) :]
        return all(starmap(self.constants.agree, agreeing)) and all(starmap(self.move_alike, moving))


class Attempt:
    """Two values over leaves in one e-graph, first a small one. Constants that agree are one in what follows.

    Attributes:
        sides: the values.
        effort: its limits.
        proof: the proof, once both sides met.
        stop: why its e-graph ended last.
        ended: whether it is of no use to go on.
    """

    def __init__(self, facts: Facts, sides: tuple[Node, Node], leaves: Mapping[Node, Node], effort: Effort) -> None:
        """`leaves` says what the leaves of the sides stand for."""
        self.sides, self.effort = sides, effort
        self.proof: Local | None = None
        self.stop = ""
        self.ended = False
        self._facts, self._leaves = facts, leaves
        self._sums = sums_in_order(sides, facts.constants.is_fixed)
        self._moving = list(as_views(sides, leaves, facts.constants))
        self._agreeing: list[tuple[Node, Node]] = []
        equal = [*self._sums, *self._moving]
        beside = [in_order(view) for _, view in self._moving if view.op == "V"]
        found = Snapshot.from_core([*sides, *(node for pair in equal for node in pair), *beside])
        paired = found.roots[2 : 2 + 2 * len(equal)]
        self._found = found.merged(list(zip(paired[::2], paired[1::2], strict=True)))
        self._alike: list[tuple[int, int]] = []
        self._nodes, self._iterations = effort.small, _FIRST
        self._allowed, self._full = effort.iterations, 0

    @property
    def size(self) -> int:
        """E-nodes."""
        return len(self._found.nodes)

    def go_on(self, live: Growing, most: int | None = None) -> None:
        """Let the e-graph grow until both sides meet, it is of no use, or it has more than `most` e-nodes."""
        now = time.monotonic()
        ends = now + _SHARE_OF_TIME * max(0.0, self._facts.deadline - now)
        while not self.ended and (most is None or not self.stop or self.size <= most):
            self._grow(live, ends)

    def _grow(self, live: Growing, ends: float) -> None:
        """A few iterations, and what agrees after them."""
        seconds, iterations = max(0.0, ends - time.monotonic()), min(self._iterations, self._allowed)
        limits = Limits(seconds=seconds, nodes=self._nodes, iterations=iterations)
        found = self._found = live.saturate(self._found, self._alike, limits, goals=[(0, 1)])
        self.stop = found.stats["stop"]
        if self.stop == "interrupted":
            raise KeyboardInterrupt
        if contradicts(found):
            self.ended = True
            return
        if found.roots[0] == found.roots[1]:
            self.ended = True
            self.proof = Local(self.sides, found, tuple(self._sums), tuple(self._agreeing), tuple(self._moving))
            return
        if self._is_overfull():
            self.ended = True
            return
        self._allowed -= found.stats["iterations"]
        self._full += self.stop == "nodes" and self._nodes == self.effort.nodes
        self._compare()
        if self._alike:
            self._iterations = _FIRST
        elif self.stop == "steps":
            self._iterations *= 2
        elif self.stop == "nodes" and self._nodes < self.effort.nodes:
            self._nodes *= 2
        else:
            self.ended = True
        self.ended |= self._allowed <= 0 or self._full >= _FULL

    def _is_overfull(self) -> bool:
        """Whether the e-graph is too large, or will be after another iteration that adds as large a share."""
        nodes, most = self.size, _OVERFULL * self.effort.nodes
        *_, before, _ = [(0, nodes), (0, nodes), *self._found.stats.get("growth", ())]
        return nodes > most or (nodes > _NEARLY_FULL * self.effort.nodes and nodes * nodes > most * before[1])

    def _compare(self) -> None:
        """Find classes that are one, as constants agree or steer."""
        found = self._found
        self._alike = self._equal_constants()
        self._agreeing += [(found.term(a), found.term(b)) for a, b in self._alike]
        if not self._alike:
            moved = self._moved()
            self._moving += [(each.value, each.view) for each in moved]
            self._alike = [each.classes for each in moved]

    def _equal_constants(self) -> list[tuple[int, int]]:
        """Pairs of classes of constants with equal values. Only constants that something else reads are compared."""
        found, constants = self._found, self._facts.constants
        read = {a for node in found.nodes if not found.const[node.cls] for a in node.args if found.const[a]}
        classes = sorted(cls for cls in read if found.size[cls] <= MOST_FOLDED)
        values = dict(zip(classes, substitute([found.term(cls) for cls in classes], self._leaves), strict=True))
        signatures = {cls: constants.signature(value) for cls, value in values.items()}
        index = Index(signatures, self._facts.tolerance)
        pairs: list[tuple[int, int]] = []
        for cls in classes:
            self._facts.in_time()
            others = (x for x in index.close_to(signatures[cls]) if x < cls)
            pairs += [(cls, x) for x in others if constants.agree(values[cls], values[x])]
        return pairs

    def _moved(self) -> list[Steered]:
        """What constants steer in the e-graph as a view of it reads."""
        moved: list[Steered] = []
        for each in steered(self._found):
            self._facts.in_time()
            if self._facts.move_alike(*substitute([each.value, each.view], self._leaves)):
                moved.append(each)
        return moved
