"""Kernel covers: the kernels that compute a snapshot's roots in the least predicted time, with a proven lower bound.

Candidates become the nodes of an extraction problem, and the classes they read become the nodes' children. Two things
are added that a general extractor cannot know: constraint rows, because some kernel must contain each required class,
and covers to start from (the program as written, and covers in which all members of a group are slices of it).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, NamedTuple

from eqsat.egraph.required import Derivation, needs_of, needs_of_all
from eqsat.egraph.snapshot import SOURCE, Snapshot
from eqsat.errors import CheckFailed
from eqsat.extract.device.table import Device
from eqsat.extract.device.table import device as find_device
from eqsat.extract.kernels.candidates import Candidate, Candidates, enumerate_candidates
from eqsat.extract.kernels.chains import Chain
from eqsat.extract.kernels.composites import Operator, composites
from eqsat.extract.kernels.cost import Prices
from eqsat.extract.kernels.cuts import Limits, parts
from eqsat.extract.known import Renumbering
from eqsat.extract.shared import Sharing
from eqsat.extract.solver.greedy import NO_NODE, greedy_dag
from eqsat.extract.solver.problem import Problem, Solution, check, used_choice
from eqsat.extract.solver.solve import GLANCE, ONCE, SETTLING, Effort, solve
from eqsat.program.core import CoreProgram

ENUMERATION_SHARE = 0.4
"""The share of the time limit that enumeration may take."""

GROUP_MOVES_SHARE = 0.05
"""The share that trying group moves may take."""

GUESS_SHARE = 0.2
"""The share that a cover for a guess may take."""

DETOUR = 0.1
NEAREST = 64
"""More kernels are sought of classes that some program computes which costs at most this share more than the cheapest,
and of the nearest classes, so many. In MobileNetV2 and ConvNeXt this is a fifth of the classes, in all models a third;
the others change the price of few covers, and take most of the time."""

MOST_SHARING = 2000
"""Most candidates with which any small products that are read together may share a launch. With more candidates, only
small products near good covers may: a cover computes them, or some kernel of a class in a cover reads them.
ShuffleNet's 8 000 take the solver five times as long with all, for the same cover."""

SHARING_ROUNDS = 3
"""Most times that a cover is searched with the launches that the one before would share."""


@dataclass(slots=True)
class CoverResult:
    """A chosen cover.

    Attributes:
        chosen: the candidate of every class that the cover computes, in launch order, aliases among them.
        cost, lower_bound: picoseconds; no cover by the enumerated kernels costs less than `lower_bound`.
        optimal: whether the cost is proven minimal.
        stats: the number of candidates, the costs of the starting covers, and the seconds of each stage.
        problem, solution: the solved problem and its solution, for finding other covers of the same snapshot; `sharing`
            are the launches that its small products may share.
        brief: whether `settled` may find a cheaper one.
        late: whether the search for this cover, or for one that it begins with, ended early since its time was over.
    """

    chosen: list[Candidate]
    cost: int
    lower_bound: int
    optimal: bool
    stats: dict[str, Any] = field(default_factory=dict)
    problem: CoverProblem | None = field(default=None, repr=False)
    solution: Solution | None = field(default=None, repr=False)
    sharing: Sharing | None = field(default=None, repr=False)
    brief: bool = False
    late: bool = False

    @property
    def derivation(self) -> Derivation:
        """The e-nodes that the chosen kernels compute."""
        return tuple(dict.fromkeys(cut.node for cut in parts(x.cut for x in self.chosen) if cut.node >= 0))

    @property
    def snapshot(self) -> Snapshot:
        """The e-graph snapshot that is covered."""
        assert self.problem is not None
        return self.problem.snapshot

    def chains(self, deadline: float, should_stop: Callable[[], bool] | None = None) -> tuple[dict[int, Chain], bool]:
        """What each class of the snapshot costs one more reader: a guess for `cover`, and whether it was found by
        `deadline`.

        The guess comes from a cover whose kernels compute few classes each. A kernel of many makes all of them look
        cheap, and crowds out the kernels that compute them inside, together with their reader.
        """
        assert self.problem is not None
        own = self.problem
        outputs = Counter(x.call for x in own.candidates if x.call)
        many = {call for call, count in outputs.items() if count > Limits().overlapping}
        if not any(x.call in many for x in self.chosen):
            return own.found.chains(self.chosen), True
        few = [[x for x in found if x.call not in many] or found for found in own.found.of_class]
        others = CoverProblem(own.snapshot, Candidates(few, own.found.facts), own.needed)
        solution = solve(others.problem, max(0.0, deadline - time.monotonic()), (), should_stop, ONCE)
        return own.found.chains(others.launch_order(solution.choice)), not solution.hurried

    def forget(self) -> None:
        """Drop what only another cover of the same snapshot would use: most of the memory that this takes."""
        if self.problem is not None:
            self.problem.found.made = None

    @property
    def kernels(self) -> list[Candidate]:
        """A chosen candidate of each launch: the first of kernels that share one, or of several results."""
        launched = {x.call or x.cls: x for x in reversed(self.chosen) if x.family != "alias"}
        return list(reversed(launched.values()))


def cover(
    snapshot: Snapshot,
    device: str | Device,
    time_limit: float = 10.0,
    limits: Limits | None = None,
    should_stop: Callable[[], bool] | None = None,
    exact: bool = False,
    known: Sequence[CoverResult] = (),
    before: CoverResult | None = None,
    operators: Sequence[Operator] = (),
    enumeration_share: float = ENUMERATION_SHARE,
    brief: bool = False,
    quick_seconds: float | None = None,
) -> CoverResult:
    """The cheapest cover of the snapshot's roots found within `time_limit` seconds, `enumeration_share` of them for the
    kernels to choose from.

    With `exact`, kernels are priced with sums in a fixed order. `known` are good covers of e-graphs that the snapshot
    grew from: the result costs no more than any of them, and kernels of the program as written are taken from them.
    Without any, the program as written takes their place. `before` is a cover of the same snapshot: its kernels tell
    what each class costs as a leaf, which is a launch otherwise, and of which classes to seek others. `operators` are
    what a runtime executes as one in a program as written. With `brief`, the search ends at a glance where a limit
    dropped kernels: a cover with this one `before` it has others, and `settled` carries this search on. `quick_seconds`
    is the time that the search for all kernels takes within `QUICK` limits. When only as much is left, the other
    kernels are sought within them.

    Raises:
        InputError: the device is unknown.
    """
    start = time.monotonic()
    row = find_device(device)

    def late() -> bool:
        stop = should_stop is not None and should_stop()
        return stop or time.monotonic() - start > enumeration_share * time_limit

    def in_a_hurry(rest: float) -> bool:
        left = enumeration_share * time_limit - (time.monotonic() - start)
        return quick_seconds is not None and left < rest * quick_seconds

    every = needs_of_all(snapshot)
    chains = made = among = None
    guessed = True
    if before is not None and before.problem is not None:
        chains, guessed = before.chains(start + GUESS_SHARE * time_limit, should_stop)
        made = before.problem.found.made
        among = before.problem.found.promising(DETOUR * before.cost, NEAREST)
    how = every, exact, chains, made, in_a_hurry, among
    found = enumerate_candidates(snapshot, row, limits, late, None, *how)
    given, more = _carried(known, snapshot, found)
    if not _as_written(snapshot) and not (known and late()):  # groups from rewriting change the best
        own = [n.rule == SOURCE for n in snapshot.nodes]
        again = {"exact": exact, "chains": chains, "made": found.made, "among": among}
        written = enumerate_candidates(snapshot, row, limits, late, only=own, **again)
        more += [x for kernels in written.of_class for x in kernels]
        if not known:
            given.append(CoverProblem(snapshot, written, every.classes).cheap_kernels())
    more += found.without_match(composites(snapshot, found.facts, Prices(row, exact), operators, limits or Limits()))
    if row.fuses:
        found.add(more)
    else:  # what is near to the source is chosen among all
        found.keep(more)
    sharing = Sharing(snapshot, found, Prices(row).launch) if row.fuses else None
    if sharing and len(found) <= MOST_SHARING:
        found.add(sharing.read_together())
    covers = CoverProblem(snapshot, found, every.classes)
    whole = guessed and not late()
    enumerated = time.monotonic()
    moving = enumerated + GROUP_MOVES_SHARE * time_limit
    incumbents = {"grouped": covers.group_moves(moving, each=not known)}
    moved = time.monotonic()
    for i, kernels in enumerate(given):
        choice = covers.choice_of(kernels)
        if choice is not None:
            incumbents[f"known {i + 1}" if known else "written"] = choice
    costs = {name: check(covers.problem, choice) for name, choice in incumbents.items()}
    brief = brief and row.fuses and bool(found.stats["crowded"])
    effort = GLANCE if brief else SETTLING
    covers, solution = _solved(covers, list(incumbents.values()), sharing, start + time_limit, should_stop, effort)
    begun = (*known, before) if before else known
    return CoverResult(
        chosen=covers.launch_order(solution.choice),
        cost=solution.cost,
        lower_bound=solution.lower_bound,
        optimal=solution.optimal,
        stats={
            "candidates": found.stats,
            "problem": {"nodes": len(covers.problem.node_class), "rows": len(covers.problem.at_least_one)},
            "incumbents": costs,
            "solver": solution.stats,
            "seconds": {
                "candidates": enumerated - start,
                "incumbents": moved - enumerated,
                "solve": time.monotonic() - moved,
            },
        },
        problem=covers,
        solution=solution,
        sharing=sharing,
        brief=brief and not solution.optimal,
        late=not whole or (not solution.optimal and (solution.hurried or moved > moving)) or any(x.late for x in begun),
    )


def settled(
    first: CoverResult, other: CoverResult, time_limit: float, should_stop: Callable[[], bool] | None = None
) -> CoverResult:
    """A brief cover's search carried on for `time_limit` seconds, with the kernels that another cover of the same
    snapshot chose: the result costs no more than either."""
    assert first.problem is not None
    start = time.monotonic()
    covers = first.problem
    covers.found.add(other.chosen)
    covers = CoverProblem(covers.snapshot, covers.found, covers.needed)
    starts = [choice for x in (first, other) if (choice := covers.choice_of(x.chosen)) is not None]
    covers, solution = _solved(covers, starts, first.sharing, start + time_limit, should_stop, SETTLING)
    seconds = first.stats["seconds"]
    return replace(
        first,
        chosen=covers.launch_order(solution.choice),
        cost=solution.cost,
        lower_bound=solution.lower_bound,
        optimal=solution.optimal,
        late=first.late or other.late or solution.hurried,
        stats={
            **first.stats,
            "solver": solution.stats,
            "seconds": {**seconds, "solve": seconds["solve"] + time.monotonic() - start},
        },
        problem=covers,
        solution=solution,
        brief=False,
    )


def cover_alone(
    best: CoverResult,
    device: str | Device,
    time_limit: float,
    should_stop: Callable[[], bool] | None = None,
    exact: bool = False,
) -> CoverResult:
    """The cheapest cover found, within `time_limit` seconds, of the one program that `best` computes.

    A class keeps few cuts, and each form of a value brings some. So the other programs of an e-graph crowd out kernels
    of this one, the more the more rules there are. One kernel may write any of its values; in the whole e-graph it may
    only write values that all programs compute. Once there is no more time than the kernels of `best` took for its
    share of the e-nodes, they are sought within `QUICK` limits.
    """
    assert best.problem is not None
    start = time.monotonic()
    ends = start + time_limit
    row, snapshot, derivation = find_device(device), best.snapshot, best.derivation

    def late() -> bool:
        stop = should_stop is not None and should_stop()
        return stop or time.monotonic() - start > ENUMERATION_SHARE * time_limit

    chains, guessed = best.chains(start + GUESS_SHARE * time_limit, should_stop)
    own = set(derivation)
    only = [i in own for i in range(len(snapshot.nodes))]
    needs, made = needs_of(snapshot, derivation), best.problem.found.made
    expected = best.stats["seconds"]["candidates"] * len(own) / len(snapshot.nodes)

    def in_a_hurry(rest: float) -> bool:
        return ENUMERATION_SHARE * time_limit - (time.monotonic() - start) < rest * expected

    found = enumerate_candidates(snapshot, row, None, late, only, needs, exact, chains, made, in_a_hurry)
    found.add(best.chosen)
    whole = guessed and not late()
    enumerated = time.monotonic()
    sharing = Sharing(snapshot, found, Prices(row, exact).launch)
    covers = CoverProblem(snapshot, found, best.problem.needed)
    choice = covers.choice_of(best.chosen)
    covers, solution = _solved(covers, [choice] if choice is not None else [], sharing, ends, should_stop, SETTLING)
    return CoverResult(
        chosen=covers.launch_order(solution.choice),
        cost=solution.cost,
        lower_bound=solution.lower_bound,
        optimal=solution.optimal,
        stats={
            "candidates": found.stats,
            "solver": solution.stats,
            "seconds": {"candidates": enumerated - start, "solve": time.monotonic() - enumerated},
        },
        problem=covers,
        solution=solution,
        sharing=sharing,
        late=best.late or not whole or solution.hurried,
    )


def _carried(
    known: Sequence[CoverResult], snapshot: Snapshot, found: Candidates
) -> tuple[list[list[Candidate]], list[Candidate]]:
    """Known covers in this snapshot, and their kernels with all those of the program as written: kernels of rewritten
    forms displace some of these."""
    given: list[list[Candidate]] = []
    more: list[Candidate] = []
    for x in known:
        moved = Renumbering(x.snapshot, snapshot, found.free)
        given.append(moved.cover(x.chosen))
        more += given[-1]
        if x.problem is not None and _as_written(x.snapshot):
            more += moved.all(y for y in x.problem.candidates if y.call is None)
    return given, more


def _solved(
    covers: CoverProblem,
    starts: Sequence[dict[int, int]],
    sharing: Sharing | None,
    ends: float,
    should_stop: Callable[[], bool] | None,
    effort: Effort,
) -> tuple[CoverProblem, Solution]:
    """The cheapest cover that such an effort finds, with the launches among its candidates that small products near
    good covers may share: those to start from, then the best one, until nothing new is shared. A glance is taken once:
    launches near its cover are for the second look.

    Small products lose against larger ones as long as each pays for its launch. So one of the covers to start from is
    the cheapest where none of them does."""
    if sharing and effort is not GLANCE:
        costs = list(covers.problem.node_cost)
        for i, x in enumerate(covers.candidates):
            costs[i] -= sharing.saved(x)
        unpaid = covers.greedy(costs, ends)
        starts = [*starts, unpaid] if unpaid is not None else starts
    solution: Solution | None = None
    at_least: int | None = None
    hurried = False
    for _ in range(1 if effort is GLANCE else SHARING_ROUNDS):
        orders = [covers.launch_order(choice) for choice in starts] if sharing else []
        packed = [sharing.packed(kernels) for kernels in orders] if sharing else []
        known = {x.call for x in covers.candidates}
        near = sharing.read_together(dict.fromkeys(x.cls for kernels in orders for x in kernels)) if sharing else []
        fresh = [x for kernels in (*packed, near) for x in kernels if x.call not in known]
        if fresh:
            covers.found.add(fresh)
            covers = CoverProblem(covers.snapshot, covers.found, covers.needed)
            starts = [choice for kernels in packed if (choice := covers.choice_of(kernels)) is not None]
            if sharing and solution is not None:
                at_least = solution.lower_bound - sharing.most_saved(fresh)
        elif solution is not None:
            break
        solution = solve(covers.problem, max(0.0, ends - time.monotonic()), starts, should_stop, effort, at_least)
        starts, hurried = [solution.choice], hurried or solution.hurried
    assert solution is not None
    return covers, replace(solution, hurried=hurried)


def _as_written(snapshot: Snapshot) -> bool:
    return all(n.rule == SOURCE for n in snapshot.nodes)


def source_cover(program: CoreProgram, device: str | Device, time_limit: float = 5.0) -> CoverResult:
    """The best cover of a program as it is written: fused, but not rewritten."""
    return cover(Snapshot.from_core(program.roots), device, time_limit)


class _Group(NamedTuple):
    """A concatenation's class, and its members as classes of the extraction problem."""

    cls: int
    members: tuple[int, ...]


class CoverProblem:
    """The extraction problem of the candidates. Its classes are those reachable from the roots, renumbered.

    A kernel with several outputs becomes an extra class with a single node, numbered after all others. That node has
    the price, and the outputs are free once it is chosen. `calls` has one candidate for each such class, in order.
    `found` has the candidates of all classes, and `needed` is the bit set of the classes that every derivation of the
    roots computes.
    """

    def __init__(self, snapshot: Snapshot, candidates: Candidates, needed: int) -> None:
        self.snapshot = snapshot
        self.found = candidates
        self.needed = needed
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


def _reachable(roots: Iterable[int], candidates: Candidates) -> list[int]:
    seen: set[int] = set()
    stack = [r for r in roots if not candidates.free[r]]
    while stack:
        c = stack.pop()
        if c not in seen:
            seen.add(c)
            stack.extend(d for x in candidates.of_class[c] for d in x.children if d not in seen)
    return sorted(seen)
