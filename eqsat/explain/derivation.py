"""Derivations: steps from the program as written to the chosen one, each by a named rule.

egglog keeps no proofs, so they are reconstructed. Every rule is matched over the final e-graph. A match is a tie
between the top e-nodes of its two sides. A derivation from one e-node of a class to another is a shortest path over
ties; if a pattern reaches into operands, these are rewritten first. Each step is replayed: both sides are evaluated,
and must agree.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from eqsat.base.graphs import operands_first, to_make
from eqsat.base.trampoline import Call, run
from eqsat.egraph.match import Matcher, Shape
from eqsat.egraph.snapshot import Snapshot
from eqsat.explain.congruence import Rewrite, Tree, follow, straightened
from eqsat.explain.effort import Effort
from eqsat.explain.replay import UNTRIED, Claim, Replay, Replayer
from eqsat.explain.ties import Tie, Ties
from eqsat.extract.cover import CoverResult
from eqsat.extract.kernels.cuts import Cut
from eqsat.language.rule import AnyRule
from eqsat.program.core import Node, make, topological

SECONDS = 2.0
"""Default time for finding a derivation."""

_MOST_RETRIES = 6
_MOST_UNWRAPPED = 3
"""A walk that uses a rule whose result is an operand more often than this is taken to be circular."""


@dataclass(frozen=True, slots=True)
class Step:
    """One rewrite of a value.

    Attributes:
        rule: its name; used from right to left where `backwards`.
        before, after: core nodes of one value.
        operands: the values of the rule's variables; nothing below them matters to the step.
        source: the same value as the source computes it; None if it does not.
        assumed: no match of the rule is known, only that it put `after` into the e-graph.
        replay: the result of evaluating both sides.
    """

    rule: str
    backwards: bool
    before: Node
    after: Node
    operands: tuple[Node, ...]
    source: Node | None
    assumed: bool = False
    replay: Replay = UNTRIED


@dataclass(frozen=True, slots=True)
class Derivation:
    """The steps from a program to its chosen form.

    Attributes:
        steps: in an order in which each applies to the results of earlier ones.
        folded: the constant expressions of the result, which are computed ahead of time.
        whole: the steps alone prove every root equal to its chosen form. False if the search ran out of time: then the
            steps show the contribution of each rule, not a complete derivation.
    """

    steps: list[Step]
    folded: list[Node]
    whole: bool


class Stuck(Exception):
    """No path was found from one form to another."""


def derive(
    snapshot: Snapshot, rules: Sequence[AnyRule], pairs: Sequence[tuple[Node, Node]], seconds: float = SECONDS
) -> list[Step] | None:
    """Steps that rewrite the first of each pair of core nodes into the second; None if none were found in time.

    Both must be in the e-graph.

    Raises:
        CheckFailed: both sides of a step evaluate to different values: a rule is unsound.
    """
    search = _Search(snapshot, rules, Effort.within(seconds))
    planted = search.planted_pairs(pairs)
    return search.steps(Replayer()) if planted is not None and search.lead(planted) else None


def derive_cover(
    snapshot: Snapshot,
    rules: Sequence[AnyRule],
    roots: Sequence[Node],
    cover: CoverResult,
    effort: Effort,
    replayer: Replayer | None = None,
) -> Derivation:
    """Steps from the roots as written to the chosen kernels, or if these take too much, what each rule contributed.

    Raises:
        CheckFailed: as `derive`.
    """
    search = _Search(snapshot, rules, effort)
    chosen = _Chosen(search, cover)
    written = search.planted_pairs([(root, root) for root in roots])
    goals = [chosen.of_class(cls) for cls in snapshot.roots]
    whole = written is not None and search.lead([(a, goal) for (a, _), goal in zip(written, goals, strict=True)])
    if not whole:
        search.list_made(goals)
    return Derivation(search.steps(replayer or Replayer()), search.folded(goals), whole)


class _Chosen:
    """The trees that a cover computes."""

    def __init__(self, search: _Search, cover: CoverResult) -> None:
        self._search = search
        self._cuts = {x.cls: x.cut for x in cover.chosen}
        self._trees: dict[int, Tree] = {}
        self._cut_trees: dict[Cut, Tree] = {}

    def of_class(self, cls: int) -> Tree:
        """The expression that the cover computes for a class; constants and inputs as they are."""
        return run(self._of_class(cls))

    def _of_class(self, cls: int) -> Call[Tree]:
        if cls not in self._trees:
            cut = self._cuts.get(cls)
            self._trees[cls] = self._search.any_tree(cls) if cut is None else (yield self._of_cut(cut))
        return self._trees[cls]

    def _of_cut(self, cut: Cut) -> Call[Tree]:
        if cut.node < 0:
            return (yield self._of_class(cut.cls))
        if cut not in self._cut_trees:
            args: list[Tree] = []
            classes = self._search.snapshot.nodes[cut.node].args
            if len(cut.subs) == len(classes):
                for sub in cut.subs:
                    args.append((yield self._of_cut(sub)))
            else:
                for cls in classes:
                    args.append((yield self._of_class(cls)))
            self._cut_trees[cut] = self._search.tree(cut.node, tuple(args))
        return self._cut_trees[cut]


class _Search:
    """Rewrites trees into each other, and records the steps."""

    def __init__(self, snapshot: Snapshot, rules: Sequence[AnyRule], effort: Effort) -> None:
        self.snapshot = snapshot
        self.matcher = Matcher(snapshot, rules)
        self.rewrites: list[Rewrite] = []
        self._simplified: list[tuple[str, Node, Node]] = []
        self._source: dict[int, Node] = {}
        self._effort = effort
        self._trees: dict[tuple[int, tuple[Tree, ...]], Tree] = {}
        self._nodes: dict[Tree, Node] = {}
        self._known: dict[int, Tree] = {}
        self._planted: dict[Node, Tree] = {}
        self._ties = Ties(self.matcher, rules, effort)
        self._active: set[tuple[int, int]] = set()
        self._done: set[tuple[Tree, Tree]] = set()

    def planted_pairs(self, pairs: Sequence[tuple[Node, Node]]) -> list[tuple[Tree, Tree]] | None:
        """The trees of core nodes; None if they are not in the e-graph."""
        try:
            return [(self.planted(before), self.planted(after)) for before, after in pairs]
        except Stuck:
            return None

    def lead(self, pairs: Sequence[tuple[Tree, Tree]]) -> bool:
        """Look for rewrites from the first tree of each pair to the second; returns whether they were found."""
        try:
            for before, after in pairs:
                run(self.rewrite(before, after))
        except Stuck:
            self.rewrites.clear()
            return False
        if not follow(pairs, self.rewrites):
            return False
        self.rewrites = straightened(pairs, self.rewrites)
        return True

    def list_made(self, goals: Sequence[Tree]) -> None:
        """A rewrite for each e-node of the goals that a rule made, from the program's own form of its class."""
        for tree in operands_first(goals):
            node = self.snapshot.nodes[tree.at]
            before = self.any_tree(node.cls)
            if node.rule and before is not tree:
                self.rewrites.append(Rewrite(node.rule, False, before, tree, (), assumed=True))

    def steps(self, replayer: Replayer) -> list[Step]:
        """The rewrites over core nodes, replayed, each once."""
        found: dict[tuple[str, Node, Node], Step] = {}
        for rule, before, after in self._simplified:
            if before is not after:
                found.setdefault((rule, before, after), Step(rule, False, before, after, before.args, before))
        for r in self.rewrites:
            key = r.rule, self.node(r.before), self.node(r.after)
            if key[1] is not key[2] and key not in found:
                operands, source = tuple(self.node(t) for t in r.operands), self._source.get(self.cls(r.before))
                found[key] = Step(r.rule, r.backwards, *key[1:], operands, source, r.assumed)
        steps = list(found.values())
        replays = replayer.replay([Claim(s.rule, s.before, s.after, s.operands) for s in steps])
        return [replace(step, replay=outcome) for step, outcome in zip(steps, replays, strict=True)]

    def folded(self, goals: Sequence[Tree]) -> list[Node]:
        """The largest constant subtrees that compute something."""
        found: dict[Node, None] = {}
        seen: set[Tree] = set()
        stack = list(reversed(goals))
        while stack:
            tree = stack.pop()
            if tree in seen:
                continue
            seen.add(tree)
            if not self.snapshot.const[self.cls(tree)]:
                stack += reversed(tree.args)
            elif any(n.op not in ("V", "Const", "Full") for n in topological([self.node(tree)])):
                found[self.node(tree)] = None
        return list(found)

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
        """The tree of a core node. Raises Stuck if it is not in the e-graph."""
        memo = self._planted
        for node in operands_first([root], memo):
            args = tuple(memo[a] for a in node.args)
            classes = tuple(self.cls(a) for a in args)
            at = self.matcher.snapshot.entry(node.op, node.attrs, classes)
            if at is not None:
                memo[node] = self.tree(at, args)
            else:
                simpler = self.matcher.simplified(node.op, node.attrs, classes)
                if simpler is None:
                    raise Stuck
                memo[node] = args[simpler[1]]
                self._simplified.append((simpler[0].name, node, self.node(memo[node])))
            self._known.setdefault(self.cls(memo[node]), memo[node])
            self._source.setdefault(self.cls(memo[node]), node)
        return memo[root]

    def any_tree(self, cls: int) -> Tree:
        """A tree of a class: the program's own if there is one, else the shallowest."""
        best, nodes = self.snapshot.best, self.snapshot.nodes
        for c in to_make(cls, self._known, lambda c: nodes[best[c]].args):
            self._known[c] = self.tree(best[c], tuple(self._known[a] for a in nodes[best[c]].args))
        return self._known[cls]

    def node(self, tree: Tree) -> Node:
        """A tree as core nodes."""
        for part in operands_first([tree], self._nodes):
            row = self.snapshot.nodes[part.at]
            self._nodes[part] = make(row.op, row.attrs, [self._nodes[a] for a in part.args])
        return self._nodes[tree]

    # --- rewriting, recursive to the depth of the program: see `eqsat.base.trampoline`

    def rewrite(self, tree: Tree, goal: Tree) -> Call[Tree]:
        """Steps from one tree to another of its class; the goal."""
        if tree is goal or (tree, goal) in self._done:
            return goal
        if self._effort.over():
            raise Stuck
        key = (tree.at, goal.at)
        if tree.at != goal.at:
            if key in self._active:
                raise Stuck
            self._active.add(key)
            begun = tree
            try:
                tree = yield self._walk(tree, goal.at)
            finally:
                self._active.discard(key)
            self._done.add((begun, tree))
        for operand, wanted in zip(tree.args, goal.args, strict=True):
            yield self.rewrite(operand, wanted)
        self._done.add((tree, goal))
        return goal

    def _walk(self, tree: Tree, goal: int) -> Call[Tree]:
        """Ties from the top of a tree to an e-node of its class."""
        banned: set[Tie] = set()
        unwrapped: Counter[Tie] = Counter()
        while tree.at != goal:
            if self._effort.over():
                raise Stuck
            path = self._path(tree.at, goal, self.cls(tree), banned)
            mark = len(self.rewrites)
            for tie in path:
                try:
                    tree = yield self._apply(tie, tree)
                except Stuck:
                    del self.rewrites[mark:]
                    banned.add(tie)
                    if len(banned) > _MOST_RETRIES or self._effort.over():
                        raise
                    break
                mark = len(self.rewrites)
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
        from_any, ties = self._ties_of(cls)
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

    def _ties_of(self, cls: int) -> tuple[list[Tie], dict[int, list[Tie]]]:
        if self._effort.over():
            raise Stuck
        return self._ties.of_class(cls)

    def _apply(self, tie: Tie, tree: Tree) -> Call[Tree]:
        """The tree after a tie is used on it: operands are rewritten into the required form, then comes the step."""
        bound: dict[str, Tree] = {}
        before = yield self._formed(tie.source, tree, bound)
        after = self._built(tie.target, bound, self.cls(tree))
        if before is not after:
            operands = tuple(dict.fromkeys(bound.values()))
            self.rewrites.append(Rewrite(tie.rule, tie.backwards, before, after, operands, tie.assumed))
        return after

    def _formed(self, shape: Shape, tree: Tree, bound: dict[str, Tree]) -> Call[Tree]:
        """The tree rewritten into a shape; its variables are bound to the subtrees there."""
        if isinstance(shape, str):
            known = bound.setdefault(shape, tree)
            return (yield self.rewrite(tree, known))
        at, operands = shape
        if tree.at != at:
            args = tuple(self.any_tree(a) for a in self.snapshot.nodes[at].args)
            tree = yield self.rewrite(tree, self.tree(at, args))
        formed: list[Tree] = []
        for part, operand in zip(operands, tree.args, strict=True):
            formed.append((yield self._formed(part, operand, bound)))
        return self.tree(at, tuple(formed))

    def _built(self, shape: Shape, bound: dict[str, Tree], cls: int) -> Tree:
        if isinstance(shape, str):
            return bound.get(shape) or self.any_tree(cls)
        at, operands = shape
        classes = self.snapshot.nodes[at].args
        return self.tree(at, tuple(self._built(s, bound, c) for s, c in zip(operands, classes, strict=True)))
