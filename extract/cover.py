"""Kernel covers: the kernels that compute a snapshot's roots in the least predicted time, with a proven lower bound."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from eqsat.egraph.required import Derivation, Needs, needs_of, needs_of_all
from eqsat.egraph.snapshot import SOURCE, Snapshot
from eqsat.extract.cover_problem import CoverProblem
from eqsat.extract.device.table import Device
from eqsat.extract.device.table import device as find_device
from eqsat.extract.kernels.candidates import Candidate, Candidates, enumerate_candidates
from eqsat.extract.kernels.chains import Chain
from eqsat.extract.kernels.composites import Operator, composites
from eqsat.extract.kernels.cost import Prices
from eqsat.extract.kernels.cuts import Limits, parts
from eqsat.extract.kernels.grow import Made
from eqsat.extract.known import Renumbering
from eqsat.extract.shared import Sharing
from eqsat.extract.solver.problem import Solution, check
from eqsat.extract.solver.solve import CLOSE, GLANCE, ONCE, SETTLING, Effort, solve
from eqsat.extract.swaps import swapped
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
        problem, solution: the solved problem and its solution, for finding other covers of the same snapshot.
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
            self.problem.forget()

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
    close: bool = False,
    joined: Needs | None = None,
) -> CoverResult:
    """The cheapest cover of the snapshot's roots found within `time_limit` seconds, `enumeration_share` of them for the
    kernels to choose from.

    With `exact`, kernels are priced with sums in a fixed order. `known` are good covers of e-graphs that the snapshot
    grew from: the result costs no more than any of them, and kernels of the program as written are taken from them.
    Without any, the program as written takes their place. `before` is a cover of the same snapshot: its kernels tell
    what each class costs as a leaf, which is a launch otherwise, and of which classes to seek others.
    `operators` are what a runtime executes as one in a program as written. With `brief`, the search ends at a glance
    where a limit dropped kernels: a cover with this one `before` it has others, and `settled` carries this search on.
    `quick_seconds` is the time that the search for all kernels takes within `QUICK` limits. When only as much is left,
    the other kernels are sought within them. With `close`, a cover close to the cheapest by these kernels is enough.
    Kernels of several outputs write what all programs need, or what `joined` has.

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
    how = joined or every, exact, chains, made, in_a_hurry, among
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
    covers = CoverProblem(snapshot, found, every.classes, sharing)
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
    effort = GLANCE if brief else CLOSE if close else SETTLING
    covers, solution = _solved(covers, list(incumbents.values()), start + time_limit, should_stop, effort)
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
    covers = first.problem.with_more(other.chosen)
    starts = [choice for x in (first, other) if (choice := covers.choice_of(x.chosen)) is not None]
    covers, solution = _solved(covers, starts, start + time_limit, should_stop, SETTLING)
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
    program: Derivation,
    device: str | Device,
    time_limit: float,
    should_stop: Callable[[], bool] | None = None,
    exact: bool = False,
) -> CoverResult:
    """The cheapest cover found, within `time_limit` seconds, by the kernels of `best` and those of one program.

    A class keeps few cuts, and each form of a value brings some. So the other programs of an e-graph crowd out kernels
    of this one, the more the more rules there are. One kernel may write any of its values; in the whole e-graph it may
    only write values that all programs compute. Once there is no more time than the kernels of `best` took for its
    share of the e-nodes, they are sought within `QUICK` limits.
    """
    assert best.problem is not None
    start = time.monotonic()
    ends = start + time_limit
    row, snapshot = find_device(device), best.snapshot

    def late() -> bool:
        stop = should_stop is not None and should_stop()
        return stop or time.monotonic() - start > ENUMERATION_SHARE * time_limit

    chains, guessed = best.chains(start + GUESS_SHARE * time_limit, should_stop)
    own = set(program)
    only = [i in own for i in range(len(snapshot.nodes))]
    needs, made = needs_of(snapshot, program), best.problem.found.made
    expected = best.stats["seconds"]["candidates"] * len(own) / len(snapshot.nodes)

    def in_a_hurry(rest: float) -> bool:
        return ENUMERATION_SHARE * time_limit - (time.monotonic() - start) < rest * expected

    found = enumerate_candidates(snapshot, row, None, late, only, needs, exact, chains, made, in_a_hurry)
    found.add(best.chosen)
    whole = guessed and not late()
    enumerated = time.monotonic()
    sharing = Sharing(snapshot, found, Prices(row, exact).launch)
    covers = CoverProblem(snapshot, found, best.problem.needed, sharing)
    choice = covers.choice_of(best.chosen)
    covers, solution = _solved(covers, [choice] if choice is not None else [], ends, should_stop, SETTLING)
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
        late=best.late or not whole or solution.hurried,
    )


def cover_of_parts(
    snapshot: Snapshot, parts: Sequence[tuple[CoverResult, Sequence[int]]], device: str | Device, exact: bool = False
) -> CoverResult:
    """The cover by the kernels of two or more covers, among all that these chose from. Each comes with the classes of
    `snapshot` for those of its own."""
    facts = Made.nothing(snapshot, Prices(find_device(device), exact), Limits()).facts
    found = Candidates([[] for _ in range(snapshot.n_classes)], facts)
    chosen: list[Candidate] = []
    for x, classes in parts:
        assert x.problem is not None
        moved = Renumbering(x.snapshot, snapshot, facts.free, dict(enumerate(classes)))
        chosen += moved.cover(x.chosen)
        found.add(moved.all(x.problem.candidates))
    found.add(chosen)
    covers = CoverProblem(snapshot, found, needs_of_all(snapshot).classes)
    choice = covers.choice_of(chosen)
    assert choice is not None
    own = [x for x, _ in parts]
    return CoverResult(
        chosen=covers.launch_order(choice),
        cost=check(covers.problem, choice),
        lower_bound=sum(x.lower_bound for x in own),
        optimal=False,
        stats=_summed([x.stats for x in own]),
        problem=covers,
        late=any(x.late for x in own),
    )


def _summed(stats: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Statistics of several covers as those of one: numbers are added."""

    def total(values: list[Any]) -> Any:
        match values[0]:
            case bool():
                return any(values)
            case dict():
                names = dict.fromkeys(name for x in values for name in x)
                return {name: total([x[name] for x in values if name in x]) for name in names}
            case int() | float() | list():
                return sum(values[1:], values[0])
        return values[0]

    return total(list(stats))


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
    ends: float,
    should_stop: Callable[[], bool] | None,
    effort: Effort,
) -> tuple[CoverProblem, Solution]:
    """The cheapest cover that such an effort finds, with the launches among its candidates that small products near
    good covers may share: those to start from, then the best one, until nothing new is shared. A glance is taken once:
    launches near its cover are for the second look.

    Small products lose against larger ones as long as each pays for its launch. So one of the covers to start from is
    the cheapest where none of them does."""
    sharing = covers.sharing
    if sharing and effort is not GLANCE:
        unpaid = covers.greedy(covers.unpaid(), ends)
        starts = [*starts, unpaid] if unpaid is not None else starts
    solution: Solution | None = None
    at_least: int | None = None
    hurried = False
    for _ in range(1 if effort is GLANCE else SHARING_ROUNDS):
        orders = [covers.launch_order(choice) for choice in starts] if sharing else []
        packed = [swapped(covers, kernels, ends) for kernels in orders] if sharing else []
        known = {x.call for x in covers.candidates}
        near = sharing.read_together(dict.fromkeys(x.cls for kernels in orders for x in kernels)) if sharing else []
        fresh = [x for kernels in (*packed, near) for x in kernels if x.call not in known]
        if fresh:
            covers = covers.with_more(fresh)
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
