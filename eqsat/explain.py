"""Derivations: from the program as written to the one that was chosen, step by step, each a rule by name.

egglog keeps no proofs, so they are reconstructed. Every rule is matched over the final e-graph; a match ties the e-node
on the top of its left side to that of its right. A way from one e-node to another of its class is then a shortest path
over such ties, where a pattern that reaches into operands first asks these to be rewritten. Each step is replayed: both
sides are evaluated, and must agree.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from eqsat.check import TOLERANCE, relative_error
from eqsat.core import Node, evaluate, flops, make, topological
from eqsat.errors import CheckFailed
from eqsat.extract.cover import CoverResult
from eqsat.extract.cuts import Cut
from eqsat.match import Matcher, Shape
from eqsat.numerics import COMPARE, random_array
from eqsat.rule import AnyRule, HostRule, Rule
from eqsat.snapshot import ENode, Snapshot
from eqsat.terms import Terms
from eqsat.write import written

SECONDS = 2.0
"""How long a derivation is looked for."""

_BACKWARD, _NESTED, _LAST_RESORT = 2, 2, 12
"""What it costs, where a step costs 1, to use a rule backwards, to ask operands for a form, and see `_made`."""

_MOST_RETRIES = 6
_MOST_UNWRAPPED = 3
"""How often one walk may use a rule whose result is an operand before it is taken to go round in a circle."""

_MOST_REPLAYED = 100_000_000
"""Elements and operations that a step may take and still be replayed."""

_RANGE = 3
_JUMPS = frozenset({"floor", "ceil", "round", "sign", "mod", *COMPARE, "argmax", "argmin"})


@dataclass(frozen=True, eq=False, slots=True)
class Tree:
    """A term over the snapshot: an e-node with a tree for each operand. Hash-consed: equal trees are one object."""

    at: int
    args: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Tie:
    """Two sides of one class that a rule makes equal."""

    rule: str
    source: Shape
    target: Shape
    cost: int


@dataclass(frozen=True, slots=True)
class Step:
    """One rewrite: `before` and `after` are core nodes of one value; `replayed` says that both were evaluated."""

    rule: str
    before: Node
    after: Node
    replayed: bool

    def as_json(self) -> dict[str, Any]:
        """As in the report."""
        text = {"rule": self.rule, "before": written(self.before), "after": written(self.after)}
        return {**text, "replayed": self.replayed}


class Stuck(Exception):
    """No way was found from one form to another."""


def derive(
    snapshot: Snapshot, rules: Sequence[AnyRule], pairs: Sequence[tuple[Node, Node]], seconds: float = SECONDS
) -> list[Step] | None:
    """Steps that rewrite the first of each pair of core nodes into the second; None where none were found in time.

    Both must be in the e-graph.

    Raises:
        CheckFailed: both sides of a step evaluate to different values: a rule is unsound.
    """
    search = _Search(snapshot, rules, time.monotonic() + seconds)
    return search.found(lambda: [(search.planted(before), search.planted(after)) for before, after in pairs])


def derive_cover(
    snapshot: Snapshot, rules: Sequence[AnyRule], roots: Sequence[Node], cover: CoverResult, seconds: float = SECONDS
) -> list[Step] | None:
    """As `derive`, from the roots as they were written to what the chosen kernels compute."""
    search = _Search(snapshot, rules, time.monotonic() + seconds)

    def pairs() -> list[tuple[Tree, Tree]]:
        written_ = [search.planted(root) for root in roots]
        chosen = _Chosen(search, cover)
        return [(tree, chosen.of_class(cls)) for tree, cls in zip(written_, snapshot.roots, strict=True)]

    return search.found(pairs)


class _Chosen:
    """The trees that a cover computes."""

    def __init__(self, search: _Search, cover: CoverResult) -> None:
        self._search = search
        self._cuts = {x.cls: x.cut for x in cover.chosen}
        self._trees: dict[int, Tree] = {}

    def of_class(self, cls: int) -> Tree:
        """What the cover computes for a class; constants and inputs as they are."""
        if cls not in self._trees:
            cut = self._cuts.get(cls)
            self._trees[cls] = self._search.any_tree(cls) if cut is None else self._of_cut(cut)
        return self._trees[cls]

    def _of_cut(self, cut: Cut) -> Tree:
        if cut.node < 0:
            return self.of_class(cut.cls)
        classes = self._search.snapshot.nodes[cut.node].args
        if len(cut.subs) == len(classes):
            return self._search.tree(cut.node, tuple(self._of_cut(sub) for sub in cut.subs))
        return self._search.tree(cut.node, tuple(self.of_class(c) for c in classes))


class _Search:
    """Rewrites trees into each other, and writes down how."""

    def __init__(self, snapshot: Snapshot, rules: Sequence[AnyRule], deadline: float) -> None:
        self.snapshot = snapshot
        self.matcher = Matcher(snapshot, rules)
        self.steps: list[tuple[str, Tree, Tree]] = []
        self._simplified: list[tuple[str, Node, Node]] = []
        self._deadline = deadline
        self._rules: dict[str, list[Rule]] = {}
        for row in rules:
            if isinstance(row, Rule):
                self._rules.setdefault(row.left.op, []).append(row)
        self._host = [r for r in rules if isinstance(r, HostRule)]
        self._trees: dict[tuple[int, tuple[Tree, ...]], Tree] = {}
        self._nodes: dict[Tree, Node] = {}
        self._known: dict[int, Tree] = {}
        self._ties: dict[int, list[Tie]] = {}
        self._active: set[tuple[int, int]] = set()
        self._done: set[tuple[Tree, Tree]] = set()

    def found(self, pairs: Callable[[], Sequence[tuple[Tree, Tree]]]) -> list[Step] | None:
        """The steps that rewrite the first tree of each pair into the second, replayed; None where there are none."""
        try:
            for before, after in pairs():
                self.rewrite(before, after)
        except (Stuck, RecursionError):
            return None
        steps = [*self._simplified, *((rule, self.node(a), self.node(b)) for rule, a, b in self.steps)]
        return [_replayed(*step) for step in dict.fromkeys(steps) if step[1] is not step[2]]

    @cached_property
    def _host_ties(self) -> Mapping[int, list[Tie]]:
        return _host_ties(self.snapshot, self.matcher, self._host, self._deadline)

    # --- trees

    def tree(self, at: int, args: tuple[Tree, ...]) -> Tree:
        key = (at, args)
        found = self._trees.get(key)
        if found is None:
            found = self._trees[key] = Tree(at, args)
        return found

    def cls(self, tree: Tree) -> int:
        return self.snapshot.nodes[tree.at].cls

    def planted(self, root: Node) -> Tree:
        """The tree of a core node. Raises Stuck where the e-graph does not hold it."""
        memo: dict[Node, Tree] = {}
        for node in topological([root]):
            args = tuple(memo[a] for a in node.args)
            classes = tuple(self.cls(a) for a in args)
            at = self.matcher.index.get((node.op, node.attrs, classes))
            if at is not None:
                memo[node] = self.tree(at, args)
            else:
                simpler = self.matcher.simplified(node.op, node.attrs, classes)
                if simpler is None:
                    raise Stuck
                memo[node] = args[simpler[1]]
                self._simplified.append((simpler[0].name, node, self.node(memo[node])))
            self._known.setdefault(self.cls(memo[node]), memo[node])
        return memo[root]

    def any_tree(self, cls: int) -> Tree:
        """Some tree of a class: one of the program's where it has one, else the shallowest."""
        found = self._known.get(cls)
        if found is None:
            at = self.snapshot.best[cls]
            args = tuple(self.any_tree(a) for a in self.snapshot.nodes[at].args)
            found = self._known[cls] = self.tree(at, args)
        return found

    def node(self, tree: Tree) -> Node:
        """A tree as core nodes."""
        found = self._nodes.get(tree)
        if found is None:
            row = self.snapshot.nodes[tree.at]
            found = self._nodes[tree] = make(row.op, row.attrs, [self.node(a) for a in tree.args])
        return found

    # --- rewriting

    def rewrite(self, tree: Tree, goal: Tree) -> Tree:
        """Steps from one tree to another of its class; the goal."""
        if tree is goal or (tree, goal) in self._done:
            return goal
        if time.monotonic() > self._deadline:
            raise Stuck
        key = (tree.at, goal.at)
        if tree.at != goal.at:
            if key in self._active:
                raise Stuck
            self._active.add(key)
            begun = tree
            try:
                tree = self._walk(tree, goal.at)
            finally:
                self._active.discard(key)
            self._done.add((begun, tree))
        args = tuple(self.rewrite(a, g) for a, g in zip(tree.args, goal.args, strict=True))
        assert args == goal.args
        self._done.add((tree, goal))
        return goal

    def _walk(self, tree: Tree, goal: int) -> Tree:
        """Ties from the top of a tree to an e-node of its class."""
        banned: set[Tie] = set()
        unwrapped: Counter[Tie] = Counter()
        while tree.at != goal:
            if time.monotonic() > self._deadline:
                raise Stuck
            path = self._path(tree.at, goal, self.cls(tree), banned)
            mark = len(self.steps)
            for tie in path:
                try:
                    tree = self._apply(tie, tree)
                except Stuck:
                    del self.steps[mark:]
                    banned.add(tie)
                    if len(banned) > _MOST_RETRIES or time.monotonic() > self._deadline:
                        raise
                    break
                mark = len(self.steps)
                if isinstance(tie.target, str):
                    unwrapped[tie] += 1
                    if unwrapped[tie] == _MOST_UNWRAPPED:
                        banned.add(tie)
                    break  # the rest of the path was planned from another tree
        return tree

    def _path(self, start: int, goal: int, cls: int, banned: set[Tie]) -> list[Tie]:
        """The cheapest ties from one e-node of a class to another (Dijkstra)."""
        count = itertools.count()
        queue: list[tuple[int, int, int]] = [(0, next(count), start)]
        best: dict[int, int] = {start: 0}
        came: dict[int, tuple[int, Tie]] = {}
        from_any, ties = self._from(cls)
        while queue:
            cost, _, at = heapq.heappop(queue)
            if at == goal:
                break
            if cost > best[at]:
                continue
            # What fits any form only wraps it (`a => view(a, identity)`): of use where the goal is such a form.
            wraps = (tie for tie in from_any if isinstance(tie.target, tuple) and tie.target[0] == goal)
            for tie in (*ties.get(at, ()), *wraps):
                if tie in banned:
                    continue
                to = tie.target[0] if isinstance(tie.target, tuple) else goal  # an operand: any form, for all we know
                if cost + tie.cost < best.get(to, 1 << 30):
                    best[to] = cost + tie.cost
                    came[to] = (at, tie)
                    heapq.heappush(queue, (best[to], next(count), to))
        path: list[Tie] = []
        at = goal
        while at != start:
            if at not in came:
                raise Stuck
            at, tie = came[at]
            path.append(tie)
        return path[::-1]

    def _from(self, cls: int) -> tuple[list[Tie], dict[int, list[Tie]]]:
        """The ties of a class: those that start at any of its e-nodes, and those that start at one."""
        if cls not in self._ties:
            self._ties[cls] = [*self._matched(cls), *self._host_ties.get(cls, ()), *self._made(cls)]
        anywhere: list[Tie] = []
        at: dict[int, list[Tie]] = {}
        for tie in self._ties[cls]:
            for side in (tie, Tie(tie.rule, tie.target, tie.source, tie.cost + _BACKWARD)):
                if isinstance(side.source, str):
                    anywhere.append(side)
                else:
                    at.setdefault(side.source[0], []).append(side)
        return anywhere, at

    def _matched(self, cls: int) -> Iterator[Tie]:
        for at in self.snapshot.members[cls]:
            for row in self._rules.get(self.snapshot.nodes[at].op, ()):
                if time.monotonic() > self._deadline:
                    raise Stuck
                for match in self.matcher.matches(row, at):
                    if match.right is not None:
                        yield Tie(row.name, match.left, match.right, 1 + _NESTED * _nested(match.left))

    def _made(self, cls: int) -> Iterator[Tie]:
        """E-nodes with the rule that the e-graph says made them: the last resort, where that rule does not hold again.

        Groups are such: once formed, their members are no longer siblings that wait for one.
        """
        members = self.snapshot.members[cls]
        first = next((i for i in members if not self.snapshot.nodes[i].rule), self.snapshot.best[cls])
        source = (first, tuple(_variable(a) for a in self.snapshot.nodes[first].args))
        for at in members:
            node = self.snapshot.nodes[at]
            if node.rule and at != first:
                yield Tie(node.rule, source, (at, tuple(_variable(a) for a in node.args)), _LAST_RESORT)

    def _apply(self, tie: Tie, tree: Tree) -> Tree:
        """The tree after a tie is used on it: operands brought into the form asked for, then the step itself."""
        bound: dict[str, Tree] = {}
        before = self._formed(tie.source, tree, bound)
        after = self._built(tie.target, bound, self.cls(tree))
        if before is not after:
            self.steps.append((tie.rule, before, after))
        return after

    def _formed(self, shape: Shape, tree: Tree, bound: dict[str, Tree]) -> Tree:
        """The tree rewritten into a shape; its variables are bound to the subtrees there."""
        if isinstance(shape, str):
            known = bound.setdefault(shape, tree)
            return self.rewrite(tree, known)
        at, operands = shape
        if tree.at != at:
            args = tuple(self.any_tree(a) for a in self.snapshot.nodes[at].args)
            tree = self.rewrite(tree, self.tree(at, args))
        return self.tree(at, tuple(self._formed(s, a, bound) for s, a in zip(operands, tree.args, strict=True)))

    def _built(self, shape: Shape, bound: dict[str, Tree], cls: int) -> Tree:
        if isinstance(shape, str):
            return bound.get(shape) or self.any_tree(cls)
        at, operands = shape
        classes = self.snapshot.nodes[at].args
        return self.tree(at, tuple(self._built(s, bound, c) for s, c in zip(operands, classes, strict=True)))


def _nested(shape: Shape) -> int:
    """How many operands of a side must have a certain form."""
    if isinstance(shape, str):
        return 0
    return sum(1 + _nested(s) for s in shape[1] if not isinstance(s, str))


class _Spelling(Terms):
    """Terms that are never looked up: what a host rule states stays as it is. Remembers which e-node it looks at."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self.looking_at: ENode | None = None

    def nodes(self, op: str) -> Iterator[ENode]:
        for node in super().nodes(op):
            self.looking_at = node
            yield node

    def make(self, op: str, attrs: tuple[Any, ...], operands: Sequence[Any]) -> Any:
        return (op, attrs, tuple(operands))


def _host_ties(
    snapshot: Snapshot, matcher: Matcher, rules: Sequence[HostRule], deadline: float
) -> Mapping[int, list[Tie]]:
    """What the rules of the host state on the final e-graph, by class."""
    ties: dict[int, list[Tie]] = {}
    for row in rules:
        if time.monotonic() > deadline:
            break
        graph = _Spelling(snapshot)

        def emit(cls: int, term: Any, name: str = row.name, graph: _Spelling = graph) -> None:
            target, where = _spelled(term, matcher)
            if target is None or where != cls:
                return
            node = graph.looking_at
            at = matcher.index[(node.op, node.attrs, node.args)] if node is not None and node.cls == cls else None
            if at is None:
                at = next((i for i in snapshot.members[cls] if not snapshot.nodes[i].rule), snapshot.best[cls])
            source: Shape = (at, tuple(_variable(a) for a in snapshot.nodes[at].args))
            if isinstance(target, str) or target[0] != at:
                ties.setdefault(cls, []).append(Tie(name, source, target, 1))

        row.apply(graph, emit)
    return ties


def _spelled(term: Any, matcher: Matcher) -> tuple[Shape | None, int]:
    """(shape, class) of a term that a host rule states; (None, -1) where the e-graph does not hold it."""
    if isinstance(term, int):
        return _variable(term), term
    op, attrs, operands = term
    return matcher.resolve(op, attrs, [_spelled(t, matcher) for t in operands])


def _variable(cls: int) -> str:
    return f"#{cls}"


def _replayed(rule: str, before: Node, after: Node) -> Step:
    """The step, with both sides evaluated on whole numbers where they are not too large."""
    order = topological([before, after])
    if sum(n.size + flops(n) for n in order) > _MOST_REPLAYED or any(n.op in ("Opaque", "Gather") for n in order):
        return Step(rule, before, after, False)
    rng = np.random.default_rng(0)
    leaves = {n.attrs[0]: n for n in order if n.op in ("In", "Const")}
    values = {name: _whole(n, rng) for name, n in sorted(leaves.items())}
    left, right = evaluate([before, after], values, values, precision="float64")
    tolerance = max((TOLERANCE[n.dtype] for n in order if n.dtype in TOLERANCE), default=0.0)
    if left.shape == right.shape:
        both = np.isfinite(left) & np.isfinite(right)
        if relative_error(right[both], left[both]) <= tolerance:
            return Step(rule, before, after, bool(both.all()))
    if any(str(attr) in _JUMPS for n in order for attr in n.attrs):
        return Step(rule, before, after, False)  # a rounded constant may put a value on the other side of a jump
    raise CheckFailed(f"step {rule}: {written(before)} and {written(after)} differ when evaluated")


def _whole(node: Node, rng: np.random.Generator) -> np.ndarray:
    if node.dtype.startswith(("float", "bfloat")):
        return rng.integers(1, _RANGE + 1, node.size).astype(np.float64)
    return random_array((node.size,), node.dtype, rng)
