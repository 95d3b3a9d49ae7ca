"""A saturated e-graph as plain Python data: the hand-over from saturation to extraction.

A snapshot knows nothing of egglog. Classes are numbered 0..n_classes-1; every e-node names its operator and attributes
exactly as `eqsat.program.core` does, its operand classes, its own class, and the rule that made it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from eqsat.base.graphs import Merged, to_make
from eqsat.program.core import Node, make, measure, topological
from eqsat.program.node import is_folded
from eqsat.program.term import attrs_key

SOURCE = ""
"""The `rule` of an e-node that the program was written with."""


@dataclass(frozen=True, slots=True)
class ENode:
    """One e-node: `op` and `attrs` as in the core, `args` and `cls` are class ids, `rule` says why it is there."""

    op: str
    attrs: tuple[Any, ...]
    args: tuple[int, ...]
    cls: int
    rule: str = SOURCE


@dataclass(slots=True)
class Snapshot:
    """Classes and e-nodes with the analyses that extraction reads.

    Attributes:
        nodes: every e-node, in a deterministic order.
        size: elements of the flat array that each class stands for.
        dtype: its element type.
        const: True where the class depends on constants alone (it is folded ahead of time).
        roots: classes of the program's outputs, in order.
        members: indices into `nodes` of each class.
        parents: indices of the e-nodes that read each class.
        depth: operators in the shallowest derivation of each class.
        best: index of the e-node that begins that derivation.
        stats: iterations, seconds, stop reason, matches per rule.
        needless: further e-nodes, which no program needs, but some rule may have matched.
    """

    nodes: list[ENode]
    n_classes: int
    const: list[bool]
    roots: list[int]
    stats: dict[str, Any] = field(default_factory=dict)
    needless: list[ENode] = field(default_factory=list)
    size: list[int] = field(default_factory=list)
    dtype: list[str] = field(default_factory=list)
    members: list[list[int]] = field(default_factory=list)
    parents: list[list[int]] = field(default_factory=list)
    depth: list[int] = field(default_factory=list)
    best: list[int] = field(default_factory=list)
    _index: dict[tuple[str, tuple[Any, ...], tuple[int, ...]], int] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.members = [[] for _ in range(self.n_classes)]
        self.parents = [[] for _ in range(self.n_classes)]
        for i, node in enumerate(self.nodes):
            self.members[node.cls].append(i)
            for a in dict.fromkeys(node.args):
                self.parents[a].append(i)
        self._derive()

    def _derive(self) -> None:
        """Shallowest derivations, breadth first: every class that can be built at all gets one."""
        missing = [len(set(n.args)) for n in self.nodes]
        self.depth = [-1] * self.n_classes
        self.best = [-1] * self.n_classes
        self.size = [-1] * self.n_classes
        self.dtype = [""] * self.n_classes
        ready = deque(i for i, m in enumerate(missing) if m == 0)
        while ready:
            i = ready.popleft()
            node = self.nodes[i]
            if self.best[node.cls] >= 0:
                continue
            self.best[node.cls] = i
            self.depth[node.cls] = 1 + max((self.depth[a] for a in node.args), default=-1)
            sizes, dtypes = [self.size[a] for a in node.args], [self.dtype[a] for a in node.args]
            self.size[node.cls], self.dtype[node.cls] = measure(node.op, node.attrs, sizes, dtypes)
            for p in self.parents[node.cls]:
                missing[p] -= 1
                if missing[p] == 0:
                    ready.append(p)

    def of_class(self, cls: int) -> list[ENode]:
        """The e-nodes of a class."""
        return [self.nodes[i] for i in self.members[cls]]

    def entry(self, op: str, attrs: tuple[Any, ...], args: Sequence[int]) -> int | None:
        """The index of the e-node with this operator, these attributes and these operand classes, if there is one.

        Attributes are compared as terms compare them: a NaN equals itself, and 0.0 differs from -0.0.
        """
        if self._index is None:
            self._index = {(n.op, attrs_key(n.attrs), n.args): i for i, n in enumerate(self.nodes)}
        return self._index.get((op, attrs_key(attrs), tuple(args)))

    def find(self, op: str, attrs: tuple[Any, ...], args: Sequence[int]) -> int | None:
        """The class that holds this e-node, if there is one."""
        at = self.entry(op, attrs, args)
        return None if at is None else self.nodes[at].cls

    def is_input(self, cls: int) -> bool:
        """True where the class is an input of the program: it is read, never computed."""
        return any(self.nodes[i].op == "In" for i in self.members[cls])

    @staticmethod
    def from_core(roots: Sequence[Node]) -> Snapshot:
        """The program as it stands: one class a node, no rule applied."""
        order = topological(roots)
        ids = {node: i for i, node in enumerate(order)}
        const = [False] * len(order)
        for i, node in enumerate(order):
            const[i] = needs_only_constants(node.op, [const[ids[a]] for a in node.args])
        return Snapshot(
            nodes=[ENode(n.op, n.attrs, tuple(ids[a] for a in n.args), i) for i, n in enumerate(order)],
            n_classes=len(order),
            const=const,
            roots=[ids[r] for r in roots],
        )

    def with_leaves(self, other: Mapping[tuple[str, tuple[Any, ...]], tuple[str, tuple[Any, ...]]]) -> Snapshot:
        """The same classes with some leaves replaced by leaves of their size and type: operator and attributes of each,
        and of its replacement."""
        made = copy(self)
        made.nodes = [
            ENode(*other[node.op, node.attrs], (), node.cls, node.rule)
            if not node.args and (node.op, node.attrs) in other
            else node
            for node in self.nodes
        ]
        made._index = None
        return made

    def with_needless(self) -> Snapshot:
        """The same classes with all e-nodes, also those that no program needs."""
        nodes = list(dict.fromkeys([*self.nodes, *self.needless]))
        return Snapshot(nodes, self.n_classes, self.const, self.roots, self.stats)

    def stored(self) -> set[int]:
        """Classes of constants that need no arithmetic: stored ones and numbers, through views, one after the other."""
        found = {n.cls for n in self.nodes if n.op in ("Const", "Full")}
        stack = list(found)
        while stack:
            for i in self.parents[stack.pop()]:
                node = self.nodes[i]
                if node.cls not in found and node.op in ("V", "Cat") and found.issuperset(node.args):
                    found.add(node.cls)
                    stack.append(node.cls)
        return found

    def merged(self, pairs: Sequence[tuple[int, int]]) -> Snapshot:
        """The same e-nodes with each pair of classes as one."""
        merged = Merged[int]()
        for a, b in pairs:
            merged.merge(b, into=a)
        found = [merged.find(cls) for cls in range(self.n_classes)]
        number = {cls: i for i, cls in enumerate(dict.fromkeys(found))}
        to = [number[cls] for cls in found]
        nodes = dict.fromkeys(ENode(n.op, n.attrs, tuple(to[a] for a in n.args), to[n.cls], n.rule) for n in self.nodes)
        const = [False] * len(number)
        for cls, known in enumerate(self.const):
            const[to[cls]] |= known
        return Snapshot(list(nodes), len(number), const, [to[root] for root in self.roots])

    def term(self, cls: int) -> Node:
        """The shallowest derivation of a class as core nodes."""
        made: dict[int, Node] = {}
        for c in to_make(cls, made, lambda c: self.nodes[self.best[c]].args):
            node = self.nodes[self.best[c]]
            made[c] = make(node.op, node.attrs, [made[a] for a in node.args])
        return made[cls]


def needs_only_constants(op: str, const_args: Sequence[bool]) -> bool:
    """Whether an e-node depends on constants alone. Opaque operators are never evaluated ahead of time."""
    return is_folded(op) and all(const_args)
