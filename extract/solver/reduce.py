"""Reductions: a smaller problem with the same optimum, and the expansion of its answers.

`Reduction` starts as a copy of a `Problem` and shrinks it to a fixpoint. Each node records the original nodes that it
represents, so that an answer of the small problem expands to an answer of the original. All reductions except `forbid`
keep at least one optimal answer of problems with costs >= 0.

The central fact is Req(c), the classes in *every* derivation of class c: the greatest fixpoint of

    Req(c) = {c} | intersection over nodes n of c of ( union over kids d of n of Req(d) )

held as bitsets in Python integers, which OR and AND 64 classes per machine word. From it follow forced classes, nodes
that need their own class, and strong dominance: m beats n in one class c when cost(m) <= cost(n) and kids(m) lie within
the union of Req over kids(n), because an answer with n has all that m needs, below c and therefore without a cycle.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence

from eqsat.base.graphs import components
from eqsat.extract.solver.blocking import Cut
from eqsat.extract.solver.problem import Problem

REQ_BYTES = 150_000_000
"""Req is skipped if its bitsets would take more memory than this."""

REQ_STEPS = 4
"""Evaluations per class, on average over its component, that the exact fixpoint may take."""

COMPARISONS = 30_000_000
"""Pairs of nodes that a pass compares: enough for every pair, except in classes of thousands of nodes."""

FIRST_PASS = 3
"""First estimate of a pass's time, as a multiple of the time for finding derivable and reachable classes."""

WORTHWHILE = 1e-3
"""Reduction stops at a pass that changes at most this share of the nodes; below a thousand nodes, at one without any
change."""

INLINE_NODES = 4
"""A class with at most this many nodes may be inlined into its only parent class."""


def forced_classes(problem: Problem, deadline: float) -> set[int]:
    """Classes that every answer uses: all of them, or only the roots if the problem is too large or time runs out."""
    reduction = Reduction(problem)
    reduction.drop_underivable()
    reduction.drop_unreachable()
    if reduction.require(reduction.find_components(), deadline):
        reduction.force()
    return set(reduction.roots)


class Reduction:
    """A problem under reduction.

    Attributes:
        members: class -> its nodes in order, for the remaining classes.
        cls, cost, kids, picks: per node; ``picks`` are the original nodes that it represents.
        parents: class -> the nodes that need it.
        roots: classes that every answer uses.
        constant: cost of the nodes that are already chosen; ``fixed`` are their original nodes.
        rows: inequalities ``sum of x over nodes >= y of target``, a target of None meaning 1: the at_least_one rows,
            later the cuts given to `forbid`.
        infeasible: no answer is left, so after `forbid` the known answer is optimal.
        rank: class -> its position in the order of derivation.
        component: class -> strongly connected component, by the last `run`.
        removed: how often each reduction fired.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.cls = list(problem.node_class)
        self.cost = list(problem.node_cost)
        self.kids: list[set[int]] = [set(k) for k in problem.children]
        self.picks: list[tuple[int, ...]] = [(i,) for i in range(len(self.cls))]
        self.members: dict[int, dict[int, None]] = {c: dict.fromkeys(m) for c, m in enumerate(problem.members()) if m}
        self.parents: dict[int, set[int]] = {c: set(p) for c, p in enumerate(problem.parents())}
        self.roots = dict.fromkeys(problem.roots)
        self.constant = 0
        self.fixed: list[int] = []
        self.infeasible = False
        self.rows: dict[int, tuple[set[int], int | None]] = {}
        self.rows_of: defaultdict[int, list[int]] = defaultdict(list)
        self._adopt((row, None) for row in problem.at_least_one)
        self.rank: dict[int, int] = {}
        self.component: dict[int, int] = {}
        self.component_size: list[int] = []
        self.req: dict[int, int] = {}
        self.bit: dict[int, int] = {}
        self.class_of_bit: list[int] = []
        self.removed: Counter[str] = Counter()

    def _adopt(self, rows: Iterable[tuple[Iterable[int], int | None]]) -> None:
        """Replace all inequalities by these."""
        self.rows = {k: (set(nodes), target) for k, (nodes, target) in enumerate(rows)}
        self.rows_of = defaultdict(list)
        self.rows_about: dict[int, list[int]] = {}
        for k, (nodes, target) in self.rows.items():
            if target is not None:
                self.rows_about.setdefault(target, []).append(k)
            for i in nodes:
                self.rows_of[i].append(k)

    # ---------------------------------------------------------------- elementary changes

    def drop(self, i: int, why: str) -> None:
        """Remove node ``i``."""
        del self.members[self.cls[i]][i]
        self._detach(i)
        for k in self.rows_of.pop(i, ()):
            nodes, target = self.rows[k]
            nodes.discard(i)
            if not nodes and (target is None or target in self.roots):
                self.infeasible = True
        self.removed[why] += 1

    def _detach(self, i: int) -> None:
        for d in self.kids[i]:
            self.parents[d].discard(i)

    def _retire(self, rows: Iterable[int]) -> None:
        for k in list(rows):
            for i in self.rows.pop(k)[0]:
                self.rows_of[i].remove(k)

    def _inherit(self, i: int, heirs: Iterable[int]) -> None:
        """Let any of ``heirs`` satisfy the rows that node ``i`` would satisfy."""
        for k in self.rows_of.get(i, ()):
            nodes = self.rows[k][0]
            for p in heirs:
                if p not in nodes:
                    nodes.add(p)
                    self.rows_of[p].append(k)

    def _retarget(self, c: int, forced: bool) -> None:
        """Class ``c`` disappears: if it is forced, rows with it as target get target 1; otherwise they are dropped."""
        about = [k for k in self.rows_about.pop(c, ()) if k in self.rows]
        if forced:
            for k in about:
                self.rows[k] = (self.rows[k][0], None)
        else:
            self._retire(about)

    def _add_node(self, c: int, cost: int, kids: set[int], picks: tuple[int, ...]) -> int:
        i = len(self.cls)
        self.cls.append(c)
        self.cost.append(cost)
        self.kids.append(kids)
        self.picks.append(picks)
        self.members[c][i] = None
        for d in kids:
            self.parents[d].add(i)
        return i

    # ---------------------------------------------------------------- reductions

    def drop_underivable(self) -> None:
        """Remove nodes without an acyclic derivation, and number the classes in an order of derivation."""
        for i in [i for m in self.members.values() for i in m if self.cls[i] in self.kids[i]]:
            self.drop(i, "own class")
        need = {i: len(self.kids[i]) for m in self.members.values() for i in m}
        ready = deque(i for i, k in need.items() if k == 0)
        self.rank = {}
        while ready:
            c = self.cls[ready.popleft()]
            if c in self.rank:
                continue
            self.rank[c] = len(self.rank)
            for p in self.parents[c]:
                need[p] -= 1
                if need[p] == 0:
                    ready.append(p)
        for i, k in need.items():
            if k > 0:
                self.drop(i, "underivable")

    def drop_unreachable(self) -> None:
        """Remove classes that the roots cannot reach; record whether a root has lost its nodes."""
        seen = set(self.roots)
        work = list(self.roots)
        while work:
            for i in self.members.get(work.pop(), ()):
                for d in self.kids[i]:
                    if d not in seen:
                        seen.add(d)
                        work.append(d)
        for c in [c for c, m in self.members.items() if c not in seen or not m]:
            for i in list(self.members[c]):
                self.drop(i, "unreachable")
            del self.members[c]
        self.infeasible = self.infeasible or any(r not in self.members for r in self.roots)

    def find_components(self) -> list[list[int]]:
        """The strongly connected components of the remaining classes, children first."""
        succ = {c: set().union(*map(self.kids.__getitem__, m)) for c, m in self.members.items()}
        groups = components(succ)
        self.component = {c: k for k, group in enumerate(groups) for c in group}
        self.component_size = [len(g) for g in groups]
        return groups

    def free_roots(self) -> None:
        """A class that is used anyway is free for its users: remove it as a child where no cycle is possible."""
        for r in self.roots:
            k = self.component[r]
            for p in sorted(self.parents[r]):
                if self.component[self.cls[p]] != k:
                    self.kids[p].discard(r)
                    self.parents[r].discard(p)
                    self.removed["free root"] += 1

    def require(self, groups: list[list[int]], deadline: float) -> bool:
        """Compute Req bottom-up over the components. False if bitsets would be too large or time runs out."""
        n = len(self.members)
        self.req = {}
        if n * n // 8 > REQ_BYTES:
            return False
        self.class_of_bit = [c for group in groups for c in sorted(group, key=self.rank.__getitem__)]
        self.bit = {c: k for k, c in enumerate(self.class_of_bit)}
        for group in groups:
            if not self._require_from_above(group, deadline):
                self._require_from_below(group)
            if time.monotonic() > deadline:
                return False
        return True

    def _require_from_above(self, group: list[int], deadline: float) -> bool:
        """Req of one component, iterated down from "everything". False if that takes too many steps.

        Intermediate values are too large, so they cannot be used if the iteration stops early.
        """
        k = self.component[group[0]]
        steps = REQ_STEPS * len(group)
        stale = set(group)
        while stale:
            for c in sorted(stale, key=self.bit.__getitem__):
                stale.discard(c)
                value = self._req_once(c)
                if value < 0:
                    continue
                value |= 1 << self.bit[c]
                if self.req.get(c) != value:
                    self.req[c] = value
                    if len(group) > 1:
                        stale.update(o for p in self.parents[c] if self.component[o := self.cls[p]] == k)
                steps -= 1
            if steps < 0 or time.monotonic() > deadline:
                return False
        return True

    def _require_from_below(self, group: list[int]) -> None:
        """A subset of Req of one component: valid for every derivation, but it does not see circular alternatives."""
        for c in group:
            self.req[c] = 1 << self.bit[c]
        for _ in range(2):
            for c in sorted(group, key=self.bit.__getitem__):
                self.req[c] |= self._req_once(c)

    def _req_once(self, c: int) -> int:
        """The intersection over the nodes of ``c``; -1, all ones, if every node still waits for a child."""
        value = -1
        req = self.req
        for i in self.members[c]:
            union = 0
            for d in self.kids[i]:
                r = req.get(d)
                if r is None:
                    break
                union |= r
            else:
                value &= union
                if not value:
                    break
        return value

    def force(self) -> None:
        """Make all classes in every derivation of a root roots."""
        bits = 0
        for r in self.roots:
            bits |= self.req[r]
        for r in self.roots:
            bits &= ~(1 << self.bit[r])
        for k in _bits(bits):
            self.roots[self.class_of_bit[k]] = None
            self.removed["forced"] += 1

    def dominate(self, deadline: float) -> None:
        """Drop nodes that need their own class, and nodes beaten by another node of their class.

        It makes at most COMPARISONS comparisons, and none after ``deadline``.
        """
        left = COMPARISONS
        places = {c: (k >> 3, 1 << (k & 7)) for c, k in self.bit.items()}
        size = (len(self.bit) + 7) // 8
        for c, nodes in self.members.items():
            if len(nodes) < 2 and self.component_size[self.component[c]] == 1:
                continue
            own_byte, own_mask = places[c]
            kept: list[list[tuple[int, int]]] = []
            for i in sorted(nodes, key=lambda i: (self.cost[i], len(self.kids[i]), i)):
                left -= 1 + len(kept)
                if left < 0 or time.monotonic() > deadline:
                    return
                union = 0
                for d in self.kids[i]:
                    union |= self.req[d]
                bits = union.to_bytes(size, "little")
                if bits[own_byte] & own_mask:
                    self.drop(i, "own class")
                    continue
                for needed in kept:
                    for byte, mask in needed:
                        if not bits[byte] & mask:
                            break
                    else:
                        self.drop(i, "dominated")
                        break
                else:
                    kept.append([places[d] for d in self.kids[i]])

    def contract(self) -> None:
        """Inline classes with one node, and small classes with one parent class."""
        for c in list(self.members):
            nodes = self.members.get(c)
            if not nodes:
                continue
            if len(nodes) == 1:
                self._contract_single(c, next(iter(nodes)))
            elif c not in self.roots and len(nodes) <= INLINE_NODES:
                self._inline(c)

    def _contract_single(self, c: int, i: int) -> None:
        users = sorted(self.parents[c])
        kids = self.kids[i]
        root = c in self.roots
        one_parent = len({self.cls[p] for p in users}) == 1
        if not (root or self.cost[i] == 0 or one_parent):
            return
        if not root and not one_parent and len(users) * len(kids) > len(users) + len(kids) + 20:
            return
        self._retarget(c, root)
        if root:
            self.constant += self.cost[i]
            self._retire(self.rows_of.get(i, ()))
            del self.roots[c]
            self.roots.update(dict.fromkeys(sorted(kids)))
        else:
            self._inherit(i, users)
        if root or not one_parent:
            self.fixed.extend(self.picks[i])
        self.drop(i, "contracted")
        del self.members[c]
        for p in users:
            self.kids[p].discard(c)
            self.kids[p] |= kids
            for d in kids:
                self.parents[d].add(p)
            if not root:
                self.cost[p] += self.cost[i]
                if one_parent:
                    self.picks[p] += self.picks[i]
            if self.cls[p] in self.kids[p]:
                self.drop(p, "own class")
        self.parents[c].clear()

    def _inline(self, c: int) -> None:
        users = sorted(self.parents[c])
        nodes = list(self.members[c])
        owners = {self.cls[p] for p in users}
        if len(owners) != 1 or c in owners or len(users) * len(nodes) > len(users) + len(nodes) + 1:
            return
        (owner,) = owners
        self._retarget(c, forced=False)
        for p in users:
            heirs = []
            for i in nodes:
                kids = (self.kids[p] - {c}) | self.kids[i]
                if owner in kids:
                    continue
                k = self._add_node(owner, self.cost[p] + self.cost[i], kids, self.picks[p] + self.picks[i])
                self._inherit(i, [k])
                heirs.append(k)
            self._inherit(p, heirs)
            self.drop(p, "inlined")
        for i in nodes:
            self.drop(i, "inlined")
        del self.members[c]

    def forbid(self, nodes: Iterable[int], cuts: Iterable[Cut], index: Sequence[int]) -> None:
        """Drop nodes that no better answer than the known one uses, and add cuts.

        Args:
            nodes, cuts: in the numbering of the last `remainder`.
            index: the nodes that `remainder` returned.
        """
        classes = list(self.members)
        self._adopt(([index[i] for i in cut.nodes], classes[cut.target]) for cut in cuts)
        for i in nodes:
            self.drop(index[i], "too costly")

    def run(self, deadline: float) -> None:
        """Reduce until a pass changes less than WORTHWHILE of the nodes, or would not end before ``deadline``."""
        started = time.monotonic()
        self.drop_underivable()
        self.drop_unreachable()
        a_pass = FIRST_PASS * (time.monotonic() - started)
        while self.members and not self.infeasible and time.monotonic() + a_pass < deadline:
            started = time.monotonic()
            before = self.removed.total()
            groups = self.find_components()
            self.free_roots()
            if self.require(groups, deadline):
                self.force()
                self.dominate(deadline)
            self.contract()
            self.drop_unreachable()
            a_pass = time.monotonic() - started
            if self.removed.total() - before <= WORTHWHILE * sum(map(len, self.members.values())):
                break

    # ---------------------------------------------------------------- the way out

    def remainder(self) -> tuple[Problem, list[int], list[Cut]]:
        """The remaining problem in compact form, this reduction's number for each of its nodes, and the rows."""
        classes = {c: k for k, c in enumerate(self.members)}
        nodes = [i for m in self.members.values() for i in m]
        index = {i: k for k, i in enumerate(nodes)}
        small = Problem(
            [classes[self.cls[i]] for i in nodes],
            [self.cost[i] for i in nodes],
            [tuple(sorted(map(classes.__getitem__, self.kids[i]))) for i in nodes],
            len(classes),
            tuple(sorted(classes[r] for r in self.roots)),
        )
        always = small.roots[0] if small.roots else 0
        cuts = [
            Cut(tuple(sorted(map(index.__getitem__, row))), always if target is None else classes[target])
            for row, target in self.rows.values()
            if target is None or target in classes
        ]
        return small, nodes, cuts

    def expand(self, nodes: Iterable[int]) -> dict[int, int]:
        """The original choice for an answer of the reduced problem; it may contain unused classes."""
        original = self.problem.node_class
        choice = {original[i]: i for i in self.fixed}
        for k in nodes:
            for i in self.picks[k]:
                choice[original[i]] = i
        return choice


def _bits(value: int) -> Iterator[int]:
    while value:
        low = value & -value
        yield low.bit_length() - 1
        value ^= low
