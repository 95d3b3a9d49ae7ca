"""The next best answers of an extraction problem, each with a proof that it is next.

Nodes carry marks, and an answer is identified by the marks of its nodes, with repetitions: two answers with the same
marks count as one. An answer that has all marks of an earlier one and more does needless work and is left out.

Any different answer omits at least one mark of a given answer. So the problem is solved again without each mark in
turn, and the cheapest of these answers is the next best. The same is then done with that answer. This gives a tree of
problems with more and more barred marks, searched cheapest first, as for hitting sets (Reiter, "A theory of diagnosis
from first principles", 1987). A mark that an answer has several times is barred at one of its places, since another
answer may have it fewer times.
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
"""A barred mark: (mark,) anywhere, (mark, place) at a place, or (mark, place, class) in one class of a place."""

SHARE = 0.5
"""Share of the time left that one problem of the tree may take."""


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks that distinguish answers.

    Attributes:
        of_node: the mark of each node; nodes with the same mark have the same cost. None if a node makes no difference
            and is free.
        of_class: the place of each class. Answers that differ only in which class of a place has a node count as the
            same. Fewer places mean fewer problems to solve, with the same answers.
    """

    of_node: Sequence[Hashable | None]
    of_class: Sequence[Hashable]


@dataclass(frozen=True, slots=True)
class NextBest:
    """An answer, class -> node; ``proven`` means that only the answers listed before it cost less."""

    choice: dict[int, int]
    cost: int
    proven: bool


@dataclass(order=True, slots=True)
class _Branch:
    """The answers without ``barred`` marks: a lower ``bound`` on their cost, and the cheapest once it is known."""

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
    """Up to ``count`` answers after ``best``, in order of cost, all with different marks.

    After ``deadline`` (`time.monotonic`) nothing more is solved: answers known by then end the list, without
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
    """The branches still to be searched.

    Attributes:
        exact: False once a solver was stopped early.
        costliest: answers that cost more are not among the next ones, because enough cheaper ones are known.
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
        """Whether an answer counts as new; if so, it is recorded."""
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
        """Put a branch back with its best answer, if it has one that can be among the next."""
        small, nodes = self._without(branch.barred)
        if underivable(small) is not None:
            return
        seconds = SHARE * max(0.0, deadline - time.monotonic())
        solution = solve(small, seconds, should_stop=should_stop)
        self.exact = self.exact and solution.optimal
        choice = {c: nodes[i] for c, i in solution.choice.items()}
        heapq.heappush(self.branches, _Branch(solution.cost, False, branch.number, branch.barred, choice))
        self._limit(solution.cost, choice)

    def _limit(self, cost: int, choice: Mapping[int, int]) -> None:
        """Once enough answers are known, leave out nodes that occur only in costlier answers."""
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
        """The problem without barred nodes, and the original number of each of its nodes."""
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
