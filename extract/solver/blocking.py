"""Blocking-set cuts: the inequalities behind the extractor's bounds, and the search for violated ones.

Let B be any set of classes and L(B) its *exits*: the nodes of classes in B without a child in B. An acyclic answer that
uses a class of B chooses some exit; otherwise each chosen node in B would need another class of B, without end. So

    sum of x_i over exits i of B  >=  y_c        for every c in B                                            (1)

is valid, where x_i = 1 means that node i is chosen and y_c = 1 that class c is used. Rows for one (class, child) pair
are the case B = {class, child}; loop cuts, and "an answer that uses c derives d", are other cases. The disjunctive
action landmarks of delete-free planning (Helmert and Domshlak 2009; Bonet and Helmert 2010) are (1) for a root; the
loop formulas of logic programming (Lin and Zhao 2004) are (1) for a cycle.

Finding the most violated B is hard in general. `BlockingSets` grows B from one class over the support of x, adding the
child that lowers the weight of the exits most (or raises it least). It then improves B by single additions and removals
over all nodes, under weights that also charge for exits with x = 0, most for exits that the relaxation could switch to
for free (small reduced cost). Without that charge the next relaxation sidesteps the cut: one problem took 322 rounds
instead of 17. Koch and Martin (1998) call this charge creep flow, for Steiner trees.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from eqsat.extract.solver.highs import Rows, quiet_solver
from eqsat.extract.solver.problem import Problem

SUPPORT = 1e-6
"""While growing, x below this counts as 0."""

MIN_VIOLATION = 0.01
"""Cuts that are violated by less than this are dropped."""

MIN_USE = 0.05
"""Growth starts from classes with y of at least this."""

GROWTH = 80
"""Most classes in a growing set."""

SLACK = 0.2
"""Growth stops when the weight of the exits exceeds the largest y inside by this much."""

CREEP = 1e-3
"""Weight of an exit with x = 0 and reduced cost 0."""

REPEAT = 0.1
"""Share of its x by which an exit's weight grows for each cut of this round that has it, so that cuts differ."""

EPSILON = 1e-12

SWEEPS = 4
"""Passes of single additions and removals."""

EXACT_COLUMNS = 3_000
EXACT_NODES = 50
EXACT_GAP = 0.05
EXACT_SIZE_CHARGE = 1e-5
"""Limits of the exact search: nodes and classes in the support, branch-and-bound nodes, the gap at which it stops, and
the small charge for each class inside."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The inequality ``sum of x over nodes >= y of class target``."""

    nodes: tuple[int, ...]
    target: int


class BlockingSets:
    """Finds violated blocking-set cuts of one problem."""

    def __init__(self, problem: Problem) -> None:
        self._class = problem.node_class
        self._kids = problem.children
        self._members = problem.members()
        self._roots = frozenset(problem.roots)
        self._parents = problem.parents()

    def find(
        self, x: np.ndarray, y: np.ndarray, reduced: np.ndarray, scale: float, limit: int, deadline: float
    ) -> list[Cut]:
        """Up to ``limit`` cuts that (x, y) violates, growing from the most used classes first, until ``deadline``.

        Args:
            reduced: reduced cost of every node in a relaxation near (x, y).
            scale: the reduced cost at which the charge for an exit with x = 0 is halved.
        """
        flow: list[float] = x.tolist()
        use: list[float] = y.tolist()
        creep: list[float] = (x + CREEP * scale / (scale + np.maximum(reduced, 0.0))).tolist()
        growth = _Growth(self, flow, use)
        cuts: dict[frozenset[int], Cut] = {}
        for c in np.argsort(-y, kind="stable").tolist():
            if len(cuts) >= limit or use[c] < MIN_USE or time.monotonic() > deadline:
                break
            grown = growth.grow(c)
            if grown is None:
                continue
            cut = self._cut(self._improve(grown, self._target(grown, use), creep), use)
            if use[cut.target] - sum(flow[i] for i in cut.nodes) < MIN_VIOLATION:
                continue
            if cuts.setdefault(frozenset(cut.nodes), cut) is cut:
                growth.burden(cut.nodes)
        return list(cuts.values())

    def find_exactly(
        self, x: np.ndarray, y: np.ndarray, reduced: np.ndarray, scale: float, limit: int, deadline: float
    ) -> list[Cut]:
        """As `find`, with the most violated set for each of ``limit`` classes: the roots, then the most used.

        Returns none if the support is so large that the search would take too long.
        """
        if np.count_nonzero(x > SUPPORT) + np.count_nonzero(y > SUPPORT) > EXACT_COLUMNS:
            return []
        use: list[float] = y.tolist()
        creep: list[float] = (x + CREEP * scale / (scale + np.maximum(reduced, 0.0))).tolist()
        starts = sorted(range(len(use)), key=lambda c: (c not in self._roots, -use[c], c))[:limit]
        cuts: dict[frozenset[int], Cut] = {}
        for c in starts:
            if use[c] < MIN_USE or time.monotonic() > deadline:
                break
            cut = self._cut(self._improve(self._most_violated(c, x, y, deadline), c, creep), use)
            if use[cut.target] - float(x[list(cut.nodes)].sum()) >= MIN_VIOLATION:
                cuts.setdefault(frozenset(cut.nodes), cut)
        return list(cuts.values())

    def _most_violated(self, start: int, x: np.ndarray, y: np.ndarray, deadline: float) -> set[int]:
        """The set with ``start`` whose exits weigh least on the support of (x, y), by integer programming.

        Column b_c = 1: class c is inside. Column e_i = 1: node i is an exit. Rows: e_i + sum of b over kids >= b_class.
        """
        import highspy

        classes = np.flatnonzero(y > SUPPORT).tolist()
        column = {c: k for k, c in enumerate(classes)}
        nodes = [i for c in classes for i in self._members[c] if x[i] > SUPPORT and c not in self._kids[i]]
        rows = Rows()
        for k, i in enumerate(nodes, len(classes)):
            inside = [column[d] for d in self._kids[i] if d in column]
            rows.add([k, column[self._class[i]], *inside], [1.0, -1.0] + [1.0] * len(inside), 0.0, np.inf)
        lp = highspy.HighsLp()
        lp.num_col_ = len(classes) + len(nodes)
        lp.col_cost_ = np.concatenate([np.full(len(classes), EXACT_SIZE_CHARGE), x[nodes]])
        lp.col_lower_ = np.zeros(lp.num_col_)
        lp.col_upper_ = np.ones(lp.num_col_)
        rows.arrays().fill(lp)
        kinds = [highspy.HighsVarType.kInteger] * len(classes)
        lp.integrality_ = kinds + [highspy.HighsVarType.kContinuous] * len(nodes)
        solver = quiet_solver()
        solver.setOptionValue("time_limit", max(0.01, deadline - time.monotonic()))
        solver.setOptionValue("mip_max_nodes", EXACT_NODES)
        solver.setOptionValue("mip_abs_gap", EXACT_GAP)
        solver.passModel(lp)
        solver.changeColBounds(column[start], 1.0, 1.0)
        solver.run()
        values = solver.getSolution().col_value
        return {start} | {c for c, k in column.items() if values and values[k] > 0.5}

    def unfounded(self, x: np.ndarray, y: np.ndarray) -> list[Cut]:
        """A cut that an integral point violates if some used classes have no acyclic derivation; none otherwise.

        Elsewhere, where nodes that are mostly chosen are no answer, the cut may hold: then there is none, too.
        """
        use: list[float] = y.tolist()
        picked = [i for i, v in enumerate(x.tolist()) if v > 0.5]
        need = {i: len(self._kids[i]) for i in picked}
        derived: set[int] = set()
        ready = [i for i in picked if not self._kids[i]]
        while ready:
            c = self._class[ready.pop()]
            if c in derived:
                continue
            derived.add(c)
            for p in self._parents[c]:
                if p in need:
                    need[p] -= 1
                    if need[p] == 0:
                        ready.append(p)
        blocked = {self._class[i] for i in picked} - derived
        if not blocked:
            return []
        creep: list[float] = (x + CREEP).tolist()
        cut = self._cut(self._improve(blocked, self._target(blocked, use), creep), use)
        return [cut] if use[cut.target] - float(x[list(cut.nodes)].sum()) >= MIN_VIOLATION else []

    def _target(self, blocked: Iterable[int], use: Sequence[float]) -> int:
        return max(blocked, key=lambda c: (c in self._roots, use[c], -c))

    def _cut(self, blocked: set[int], use: Sequence[float]) -> Cut:
        exits = (i for c in blocked for i in self._members[c] if blocked.isdisjoint(self._kids[i]))
        return Cut(tuple(sorted(exits)), self._target(blocked, use))

    def _improve(self, blocked: set[int], keep: int, weight: Sequence[float]) -> set[int]:
        """Lower the weight of the exits by single additions and removals of classes; class ``keep`` stays inside."""
        members, parents, kids, cls = self._members, self._parents, self._kids, self._class
        inside = set(blocked)
        held = [0] * len(cls)  # number of a node's children inside
        for c in inside:
            for i in parents[c]:
                held[i] += 1
        gain: dict[int, float] = {}  # weight of the exits that adding an outside class would close
        for c in sorted(inside):
            for i in members[c]:
                if not held[i]:
                    for d in kids[i]:
                        gain[d] = gain.get(d, 0.0) + weight[i]
        for _ in range(SWEEPS):
            changed = False
            for d in sorted(gain, key=lambda d: (-gain[d], d)):
                if d in inside:
                    continue
                closed = gain[d]
                for i in members[d]:
                    if not held[i]:
                        closed -= weight[i]
                        if closed < EPSILON:
                            break
                if closed < EPSILON:
                    continue
                changed = True
                inside.add(d)
                for i in parents[d]:
                    if not held[i] and cls[i] in inside:
                        for e in kids[i]:
                            if e in gain:
                                gain[e] -= weight[i]
                    held[i] += 1
                for i in members[d]:
                    if not held[i]:
                        for e in kids[i]:
                            gain[e] = gain.get(e, 0.0) + weight[i]
            for d in sorted(inside):
                if d == keep:
                    continue
                opened = 0.0
                for i in members[d]:
                    if not held[i]:
                        opened -= weight[i]
                for i in parents[d]:
                    if held[i] == 1 and cls[i] in inside and cls[i] != d:
                        opened += weight[i]
                        if opened > EPSILON:
                            break
                if opened > EPSILON:
                    continue
                changed = True
                for i in members[d]:
                    if not held[i]:
                        for e in kids[i]:
                            gain[e] -= weight[i]
                inside.discard(d)
                for i in parents[d]:
                    held[i] -= 1
                    if not held[i] and cls[i] in inside:
                        for e in kids[i]:
                            gain[e] = gain.get(e, 0.0) + weight[i]
            if not changed:
                break
        return inside


class _Growth:
    """Greedy growth of blocking sets over the support of one point."""

    def __init__(self, sets: BlockingSets, flow: list[float], use: list[float]) -> None:
        self._class = sets._class
        self._kids = sets._kids
        self._members: list[list[int]] = [[] for _ in use]
        self._parents: list[list[int]] = [[] for _ in use]
        for i in np.flatnonzero(np.array(flow) > SUPPORT).tolist():
            self._members[self._class[i]].append(i)
            for d in dict.fromkeys(self._kids[i]):
                self._parents[d].append(i)
        self._flow = flow
        self._weight = list(flow)
        self._use = use

    def burden(self, nodes: Iterable[int]) -> None:
        """Make the exits of a found cut heavier, so that the next cut differs."""
        for i in nodes:
            self._weight[i] += REPEAT * self._flow[i]

    def grow(self, start: int) -> set[int] | None:
        """The most violated set found while growing from ``start``; None if no cut is violated."""
        kids, weight, use = self._kids, self._weight, self._use
        inside = {start}
        held = dict.fromkeys(self._parents[start], 1)
        exits = {i for i in self._members[start] if i not in held}
        total = sum(weight[i] for i in self._members[start] if i in exits)
        gain: dict[int, float] = {}  # weight of exits that adding an outside class would close
        for i in self._members[start]:
            if i in exits:
                for d in kids[i]:
                    gain[d] = gain.get(d, 0.0) + weight[i]
        loss: dict[int, float] = {}  # weight of exits that adding it would open
        top = use[start]
        best, best_size = -2 * MIN_VIOLATION, 0
        order = [start]
        while len(order) < GROWTH and total <= top + SLACK:
            d = self._next(gain, loss, held)
            if d is None:
                break
            total -= gain.pop(d) - loss[d]
            inside.add(d)
            order.append(d)
            top = max(top, use[d])
            fresh = [i for i in self._members[d] if not held.get(i)]
            for i in self._parents[d]:
                before = held.get(i, 0)
                held[i] = before + 1
                if before:
                    continue
                if i in exits:
                    exits.discard(i)
                    for e in kids[i]:
                        if e in gain:
                            gain[e] -= weight[i]
                elif self._class[i] in loss:
                    loss[self._class[i]] -= weight[i]
            for i in fresh:
                if not held.get(i):
                    exits.add(i)
                    for e in kids[i]:
                        if e not in inside:
                            gain[e] = gain.get(e, 0.0) + weight[i]
            if total - top < best - 1e-9:
                best, best_size = total - top, len(order)
        return set(order[:best_size]) if best_size else None

    def _next(self, gain: dict[int, float], loss: dict[int, float], held: dict[int, int]) -> int | None:
        """The outside class whose addition lowers the exits' weight most."""
        best, choice = -1e9, None
        for d, closed in gain.items():
            if closed <= 1e-9:
                continue
            opened = loss.get(d)
            if opened is None:
                opened = loss[d] = sum(self._weight[i] for i in self._members[d] if not held.get(i))
            if closed - opened > best:
                best, choice = closed - opened, d
        return choice
