"""Next best answers, covers and programs: in order, different where it matters, proven next against brute force."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Hashable

import pytest
from egraphs import answers, small_problem

from eqsat.extract.kbest import Marks, next_best
from eqsat.extract.problem import Problem, check
from eqsat.extract.solve import solve

NO_LIMIT = 60.0


def marks_of(problem: Problem, seed: int) -> Marks:
    """Every node its own mark, or nodes of one cost alike, all or some; classes apart or at one or two places."""
    rng = random.Random(seed)
    kind = rng.choice(["node", "few", "cost"])
    named: dict[str, list[Hashable]] = {
        "node": list(range(len(problem.node_cost))),
        "few": [(rng.randrange(2), cost) for cost in problem.node_cost],
        "cost": list(problem.node_cost),
    }
    places = rng.choice([list(range(problem.n_classes)), [rng.randrange(2) for _ in range(problem.n_classes)]])
    of_node = [mark if cost else None for mark, cost in zip(named[kind], problem.node_cost, strict=True)]
    return Marks(of_node, places)


def expected(problem: Problem, marks: Marks) -> list[int]:
    """Costs of all answers but those with the same marks as a cheaper one, or with those and more, by brute force."""
    found: list[tuple[int, Counter[Hashable]]] = []
    for cost, nodes in sorted((cost, sorted(nodes)) for nodes, cost in answers(problem).items()):
        marked = Counter(m for i in nodes if (m := marks.of_node[i]) is not None)
        if not any(known <= marked for _, known in found):
            found.append((cost, marked))
    return [cost for cost, _ in found]


@pytest.mark.parametrize("block", range(4))
def test_the_next_best_answers_agree_with_brute_force(block: int) -> None:
    for seed in range(100 * block, 100 * block + 100):
        problem = small_problem(seed)
        if not answers(problem):
            continue
        marks = marks_of(problem, seed)
        best = solve(problem, NO_LIMIT)
        found = next_best(problem, best, marks, 6, time.monotonic() + NO_LIMIT)
        assert [best.cost, *(x.cost for x in found)] == expected(problem, marks)[:7]
        assert all(x.proven and check(problem, x.choice) == x.cost for x in found)
