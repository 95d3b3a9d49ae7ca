"""The next best answers of an extraction problem, each proven to be next.

Nodes carry marks, and an answer is known by the marks of its nodes, with repetitions: two answers with the same marks
are one. An answer that has all marks of an earlier one and more does needless work and is passed over.

Whoever differs from an answer lacks one of its marks. So the problem is solved again without each mark in turn, the
cheapest of these answers is the next best, and the same is done with it: a tree of problems with ever more marks
barred, cheapest first, as for hitting sets (Reiter, "A theory of diagnosis from first principles", 1987). A mark that
an answer has several times is barred at one of its places, since another answer may have it fewer times.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from eqsat.extract.solver.ascent import Ascent, ascend
from eqsat.extract.solver.problem import Problem, Solution, underivable
from eqsat.extract.solver.solve import ASCENT_STEPS, solve

Bar = tuple[Hashable, ...]
"""No node may have this mark: (mark,) anywhere, (mark, place) at a place, (mark, place, class) in one class of it."""

SHARE_SECONDS = 5.0
"""Time for one problem of the tree."""


@dataclass(frozen=True, slots=True)
class Marks:
    """What answers are told apart by.

    Attributes:
        of_node: a mark, which only nodes of one cost share; None where a node makes no difference and costs nothing.
        of_class: the place of a class. An answer that takes a node in one class of a place instead of another is no
            different: fewer places, fewer problems to solve, and the same answers.
    """

    of_node: Sequence[Hashable | None]
    of_class: Sequence[Hashable]


@dataclass(frozen=True, slots=True)
class NextBest:
    """An answer, class -> node; ``proven``: no answer that counts, but those listed before it, costs less."""

    choice: dict[int, int]
    cost: int
    proven: bool


@dataclass(order=True, slots=True)
class _Branch:
    """Answers without the ``barred`` marks, none cheaper than ``bound``, and the cheapest once it is known."""

    bound: int
    unsolved: bool
    number: int
    barred: frozenset[Bar] = field(compare=False)
    choice: Mapping[int, int] = field(compare=False, default_factory=dict)


def next_best(
    problem: Problem,
    best: Solution,
    marks: Marks,
    count: int,
    deadline: float,
    should_stop: Callable[[], bool] | None = None,
) -> list[NextBest]:
    """Up to ``count`` answers after ``best``, in order of cost, no two with the same marks.

    After ``deadline`` (`time.monotonic`) nothing more is solved: answers that are known by then end the list, not
    ``proven``.
    """
    tree = _Tree(problem, best, marks, count, ascend(problem, ASCENT_STEPS, deadline))
    found: list[NextBest] = []
    while len(found) < count and tree.branches:
        branch = heapq.heappop(tree.branches)
        if time.monotonic() > deadline or (should_stop is not None and should_stop()):
            tree.exact = False
            if branch.unsolved:
                continue
        elif branch.unsolved:
            tree.solve(branch, deadline, should_stop)
            continue
        else:
            tree.expand(branch)
        if tree.is_new(branch.choice):
            found.append(NextBest(dict(branch.choice), branch.bound, tree.exact))
    return found


class _Tree:
    """Branches to be looked at.

    Attributes:
        exact: false once a solver was cut short.
        costliest: an answer that costs more is not among the next ones, by those already known.
    """

    def __init__(self, problem: Problem, best: Solution, marks: Marks, count: int, ascent: Ascent) -> None:
        self.problem, self.marks, self.count = problem, marks, count
        self.exact = best.optimal
        self.branches: list[_Branch] = []
        self.costliest: int | None = None
        self._least = [ascent.paid + r for r in ascent.reduced]
        self._nodes: Sequence[int] = range(len(self._least))
        self._seen: set[frozenset[Bar]] = set()
        self._known = [self._marked(best.choice.values())]
        self._solved: list[tuple[int, Counter[Hashable]]] = [(best.cost, self._known[0])]
        self.expand(_Branch(best.cost, False, 0, frozenset(), best.choice))

    def _marked(self, nodes: Iterable[int]) -> Counter[Hashable]:
        return Counter(mark for i in nodes if (mark := self.marks.of_node[i]) is not None)

    def is_new(self, choice: Mapping[int, int]) -> bool:
        """Whether an answer counts as another one; it is then known."""
        marked = self._marked(choice.values())
        if any(known <= marked for known in self._known):
            return False
        self._known.append(marked)
        return True

    def expand(self, branch: _Branch) -> None:
        """Branch on each mark of the branch's best answer."""
        of_node, of_class = self.marks.of_node, self.marks.of_class
        placed = [(c, (of_node[i], of_class[c])) for c, i in branch.choice.items() if of_node[i] is not None]
        times, times_there = Counter(mark for _, (mark, _) in placed), Counter(there for _, there in placed)
        for c, there in placed:
            once = (there[0],) if times[there[0]] == 1 else there
            barred = branch.barred | {once if times_there[there] == 1 else (*there, c)}
            if barred not in self._seen:
                self._seen.add(barred)
                heapq.heappush(self.branches, _Branch(branch.bound, True, len(self._seen), barred))

    def solve(self, branch: _Branch, deadline: float, should_stop: Callable[[], bool] | None) -> None:
        """Put a branch back with its best answer, if it has one that may be among the next."""
        small, nodes = self._without(branch.barred)
        if underivable(small) is not None:
            return
        seconds = min(SHARE_SECONDS, max(0.0, deadline - time.monotonic()))
        solution = solve(small, seconds, should_stop=should_stop)
        self.exact = self.exact and solution.optimal
        choice = {c: nodes[i] for c, i in solution.choice.items()}
        heapq.heappush(self.branches, _Branch(solution.cost, False, branch.number, branch.barred, choice))
        self._limit(solution.cost, choice)

    def _limit(self, cost: int, choice: Mapping[int, int]) -> None:
        """Leave out nodes of costlier answers than the last of the next ones, once there are enough to know it."""
        if self.costliest is not None and cost >= self.costliest:
            return
        self._solved.append((cost, self._marked(choice.values())))
        self._solved.sort(key=lambda solved: solved[0])
        different: list[Counter[Hashable]] = []
        for price, marked in self._solved:
            if not any(known <= marked for known in different):
                different.append(marked)
            if len(different) > self.count:
                self.costliest = price
                self._nodes = [i for i in self._nodes if self._least[i] <= price]
                return

    def _without(self, barred: frozenset[Bar]) -> tuple[Problem, list[int]]:
        """The problem without barred nodes, and the node of the whole that each of its nodes is."""
        problem, of_node, of_class = self.problem, self.marks.of_node, self.marks.of_class
        nodes = []
        for i in self._nodes:
            c, mark = problem.node_class[i], of_node[i]
            if barred.isdisjoint(((mark,), (mark, of_class[c]), (mark, of_class[c], c))):
                nodes.append(i)
        place = {i: k for k, i in enumerate(nodes)}
        small = Problem(
            node_class=[problem.node_class[i] for i in nodes],
            node_cost=[problem.node_cost[i] for i in nodes],
            children=[problem.children[i] for i in nodes],
            n_classes=problem.n_classes,
            roots=problem.roots,
            at_least_one=[tuple(place[i] for i in row if i in place) for row in problem.at_least_one],
        )
        return small, nodes
