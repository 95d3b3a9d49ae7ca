"""The extraction problem of covers: which kernels compute a snapshot's roots in the least predicted time.

Candidates become the nodes of an extraction problem, and the classes they read become the nodes' children. Two things
are added that a general extractor cannot know: constraint rows, because some kernel must contain each required class,
and covers to start from (the program as written, and covers in which all members of a group are slices of it).
"""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from eqsat.egraph.snapshot import Snapshot
from eqsat.errors import CheckFailed
from eqsat.extract.kernels.candidates import Candidate, Candidates
from eqsat.extract.solver.greedy import NO_NODE, greedy_dag
from eqsat.extract.solver.problem import Problem, check, used_choice

if TYPE_CHECKING:
    from eqsat.extract.shared import Sharing

_PACKED = "_packed"
"""The attribute that holds all others of a problem that was sent, until one of them is read."""

_UNPACKING = threading.Lock()
if hasattr(os, "register_at_fork"):  # a child must not begin with a lock that a thread of its parent holds
    os.register_at_fork(
        before=_UNPACKING.acquire, after_in_parent=_UNPACKING.release, after_in_child=_UNPACKING.release
    )


class _Group(NamedTuple):
    """A concatenation's class, and its members as classes of the extraction problem."""

    cls: int
    members: tuple[int, ...]


class CoverProblem:
    """The extraction problem of the candidates. Its classes are those reachable from the roots, renumbered.

    A kernel with several outputs becomes an extra class with a single node, numbered after all others. That node has
    the price, and the outputs are free once it is chosen. `calls` has one candidate for each such class, in order.
    `found` has the candidates of all classes, and `needed` is the bit set of the classes that every derivation of the
    roots computes. `sharing` has the launches that small products may share.

    One that came from another process is unpacked when it is first read: most of those never are.
    """

    def __init__(self, snapshot: Snapshot, candidates: Candidates, needed: int, sharing: Sharing | None = None) -> None:
        self.snapshot = snapshot
        self.found = candidates
        self.needed = needed
        self.sharing = sharing
        self.classes = _reachable(snapshot.roots, candidates)
        self.index = {c: k for k, c in enumerate(self.classes)}
        self.candidates = [x for c in self.classes for x in candidates.of_class[c]]
        calls = {x.call: x for x in self.candidates if x.call is not None}
        shared = {x.call: calls[x.call] for x in self.candidates if x.call and x.cls != calls[x.call].cls}
        self.calls = list(shared.values())
        self._call_class = {call: len(self.classes) + k for k, call in enumerate(shared)}
        children = [tuple(self.index[c] for c in x.children) for x in self.candidates]
        self.problem = Problem(
            node_class=[self.index[x.cls] for x in self.candidates] + list(self._call_class.values()),
            node_cost=[0 if x.call in shared else x.price for x in self.candidates] + [x.price for x in self.calls],
            children=[
                (self._call_class[x.call],) if x.call in shared else kids
                for x, kids in zip(self.candidates, children, strict=True)
            ]
            + [tuple(self.index[c] for c in x.children) for x in self.calls],
            n_classes=len(self.classes) + len(shared),
            roots=tuple(dict.fromkeys(self.index[r] for r in snapshot.roots if not candidates.free[r])),
            at_least_one=self._required_rows(needed),
        )
        self._members = self.problem.members()

    def __reduce__(self) -> tuple[Callable[[bytes], CoverProblem], tuple[bytes]]:
        packed = self.__dict__.get(_PACKED)
        return _received, (packed or pickle.dumps(self.__dict__, pickle.HIGHEST_PROTOCOL),)

    if not TYPE_CHECKING:  # else every name would be one of its attributes

        def __getattr__(self, name: str) -> Any:
            own = self.__dict__
            with _UNPACKING:  # of two threads, one unpacks
                if _PACKED in own:
                    own.update(pickle.loads(own[_PACKED]))
                    del own[_PACKED]
            if name not in own:
                raise AttributeError(name, name=name, obj=self)
            return own[name]

    def forget(self) -> None:
        """Drop what only another enumeration over the same snapshot would use: most of the memory that this takes."""
        if _PACKED not in self.__dict__:  # it is not sent
            self.found.made = None

    def with_more(self, more: Iterable[Candidate]) -> CoverProblem:
        """The same problem with further candidates."""
        self.found.add(more)
        return CoverProblem(self.snapshot, self.found, self.needed, self.sharing)

    def _required_rows(self, needed: int) -> list[tuple[int, ...]]:
        """For each needed class, the candidates that compute it.

        Aliases count as computing their class: without them the rows would forbid valid covers.
        """
        rows: dict[int, list[int]] = {}
        for i, x in enumerate(self.candidates):
            mask = x.cut.inner & needed
            while mask:
                low = mask & -mask
                rows.setdefault(low, []).append(i)
                mask ^= low
        return list(dict.fromkeys(map(tuple, rows.values())))

    def unpaid(self) -> list[int]:
        """Node costs where no product that may share a launch pays for one."""
        saved = map(self.sharing.saved, self.candidates) if self.sharing else [0] * len(self.candidates)
        apart = [cost - less for cost, less in zip(self.problem.node_cost, saved, strict=False)]
        return apart + self.problem.node_cost[len(apart) :]

    def greedy(self, costs: Sequence[float] | None = None, deadline: float = inf) -> dict[int, int] | None:
        """A cover by greedy dynamic programming; None if some root cannot be computed at finite cost."""
        p = self.problem
        picks = greedy_dag(p, deadline, costs)
        if any(picks[r] == NO_NODE for r in p.roots):
            return None
        return used_choice(p, {c: i for c, i in enumerate(picks) if i != NO_NODE})

    def cheap_kernels(self) -> list[Candidate]:
        """The kernels of a greedily chosen cover; empty if there is no cover."""
        choice = self.greedy()
        return [] if choice is None else self.launch_order(choice)

    def choice_of(self, kernels: Iterable[Candidate]) -> dict[int, int] | None:
        """The cover by these kernels, each replaced by the cheapest that reads no more; None if one is missing."""
        out = {k: self._members[k][0] for k in self._call_class.values()}
        for x in kernels:
            own = self.index.get(x.cls)  # None: a cheaper kernel above reads less, so nothing reads this class any more
            options = self._members[own] if own is not None else []
            fit = [j for j in options if set(self.candidates[j].children) <= set(x.children)]
            same = [j for j in fit if self.candidates[j].call == x.call]
            if fit:
                out[self.problem.node_class[fit[0]]] = (same or fit)[0]
        try:
            return used_choice(self.problem, out)
        except CheckFailed:
            return None

    def group_moves(self, deadline: float, each: bool) -> dict[int, int]:
        """The best cover found by reading members of concatenations as slices: of all groups, then of `each` in turn.

        Greedy choices cannot see that computing a group is cheaper once every member is read from it.
        """
        best = self.greedy(deadline=deadline)
        assert best is not None, "the kernels of shallowest derivations are a cover"
        best_cost = check(self.problem, best)
        groups = self._groups()
        forced: list[_Group] = []
        for more in [groups, *([g] for g in groups)] if each and len(groups) > 1 else [groups]:
            if not more or time.monotonic() > deadline:
                break
            found = self.greedy(self._sliced([*forced, *more]), deadline)
            if found is not None and (cost := check(self.problem, found)) < best_cost:
                best, best_cost, forced = found, cost, [*forced, *more]
        return best

    def _sliced(self, groups: Sequence[_Group]) -> list[float]:
        """Node costs under which members of these groups can only be slices of one of them."""
        costs: list[float] = list(self.problem.node_cost)
        owners: dict[int, set[int]] = {}
        for group in groups:
            for m in group.members:
                owners.setdefault(m, set()).add(group.cls)
        for m, classes in owners.items():
            for j in self._members[m]:
                x = self.candidates[j]
                if x.family != "alias" or classes.isdisjoint(x.children):
                    costs[j] = inf
        return costs

    def _groups(self) -> list[_Group]:
        """Each concatenation whose members are all slices of it; largest first."""
        alias_of = {(x.children, x.cls) for x in self.candidates if x.family == "alias"}
        found = []
        for node in self.snapshot.nodes:
            members = tuple(dict.fromkeys(node.args))
            if node.op == "Cat" and node.cls in self.index and all(((node.cls,), m) in alias_of for m in members):
                found.append(_Group(node.cls, tuple(self.index[m] for m in members)))
        return sorted(dict.fromkeys(found), key=lambda g: (-len(g.members), g))

    def launch_order(self, choice: Mapping[int, int]) -> list[Candidate]:
        """The chosen candidates, each after the candidates it reads."""
        chosen = {self.classes[k]: self.candidates[i] for k, i in choice.items() if i < len(self.candidates)}
        order: list[Candidate] = []
        done: set[int] = set()
        stack = [(r, False) for r in reversed(self.snapshot.roots) if r in chosen]
        while stack:
            c, ready = stack.pop()
            if ready:
                order.append(chosen[c])
            elif c not in done:
                done.add(c)
                stack.append((c, True))
                stack.extend((d, False) for d in reversed(chosen[c].children) if d not in done)
        return order


def _received(packed: bytes) -> CoverProblem:
    problem = CoverProblem.__new__(CoverProblem)
    problem.__dict__[_PACKED] = packed
    return problem


def _reachable(roots: Iterable[int], candidates: Candidates) -> list[int]:
    seen: set[int] = set()
    stack = [r for r in roots if not candidates.free[r]]
    while stack:
        c = stack.pop()
        if c not in seen:
            seen.add(c)
            stack.extend(d for x in candidates.of_class[c] for d in x.children if d not in seen)
    return sorted(seen)
