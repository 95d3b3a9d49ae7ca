"""The extraction pipeline: greedy answers, then a mixed-integer program, each stage under one deadline."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from eqsat.errors import InputError
from eqsat.extract.greedy import NO_NODE, greedy_dag
from eqsat.extract.problem import Problem, Solution, check, used_choice


def solve(
    problem: Problem,
    time_limit: float,
    incumbents: Sequence[Mapping[int, int]] = (),
    should_stop: Callable[[], bool] | None = None,
) -> Solution:
    """The cheapest answer found within ``time_limit`` seconds, with a proven lower bound.

    Args:
        incumbents: answers known beforehand (class to node); each is checked, the result is never costlier.
        should_stop: polled between steps; True ends the search with what there is.

    Raises:
        InputError: a root has no acyclic derivation.
        CheckFailed: an incumbent is no valid answer, or misses an ``at_least_one`` row.
    """
    start = time.monotonic()
    deadline = start + time_limit
    best: dict[int, int] = {}
    best_cost = -1
    for given in incumbents:
        cost = check(problem, given)
        if best_cost < 0 or cost < best_cost:
            best, best_cost = used_choice(problem, given), cost
    members = problem.members()
    kids = [tuple(dict.fromkeys(k)) for k in problem.children]
    picks = greedy_dag(members, problem.node_class, problem.node_cost, kids, deadline)
    if any(picks[r] == NO_NODE for r in problem.roots):
        bad = next(r for r in problem.roots if picks[r] == NO_NODE)
        raise InputError(f"extraction: root class {bad} has no acyclic derivation; give it a node that can be built")
    greedy = used_choice(problem, {c: i for c, i in enumerate(picks) if i != NO_NODE})
    cost = check(problem, greedy)
    if best_cost < 0 or cost < best_cost:
        best, best_cost = greedy, cost
    bound = _root_bound(problem, members)
    if bound < best_cost and time.monotonic() < deadline and not (should_stop and should_stop()):
        found, bound = _mip(problem, members, kids, best, deadline)
        if found is not None:
            cost = check(problem, found)
            if cost < best_cost:
                best, best_cost = used_choice(problem, found), cost
    optimal = best_cost - bound <= 1e-7 * max(1, best_cost)
    lower = best_cost if optimal else max(0, min(best_cost, math.floor(bound)))
    return Solution(best, best_cost, lower, optimal, time.monotonic() - start, {})


def _root_bound(problem: Problem, members: list[list[int]]) -> float:
    return sum(min(problem.node_cost[i] for i in members[r]) for r in set(problem.roots))


def _mip(
    problem: Problem, members: list[list[int]], kids: list[tuple[int, ...]], best: dict[int, int], deadline: float
) -> tuple[dict[int, int] | None, float]:
    import highspy

    n = len(problem.node_class)
    n_classes = problem.n_classes
    roots = set(problem.roots)
    comp = _components(problem, kids)
    sizes = np.bincount(comp, minlength=1)
    scale = max(1.0, max(problem.node_cost, default=1) / 1e3)
    starts, index, value, low, high = [0], [], [], [], []

    def row(idx: list[int], val: list[float], lo: float, hi: float) -> None:
        index.extend(idx)
        value.extend(val)
        starts.append(len(index))
        low.append(lo)
        high.append(hi)

    inf = highspy.kHighsInf
    level = {c: n + n_classes + k for k, c in enumerate(c for c in range(n_classes) if sizes[comp[c]] > 1)}
    for c in range(n_classes):
        row([*members[c], n + c], [1.0] * len(members[c]) + [-1.0], 0.0, 0.0)
        users: dict[int, list[int]] = {}
        for i in members[c]:
            for d in kids[i]:
                users.setdefault(d, []).append(i)
        for d, nodes in users.items():
            if d == c:
                row(nodes, [1.0] * len(nodes), 0.0, 0.0)
                continue
            if d not in roots:
                row([*nodes, n + d], [1.0] * len(nodes) + [-1.0], -inf, 0.0)
            if comp[d] == comp[c]:
                size = float(sizes[comp[c]])
                row([level[c], level[d], *nodes], [1.0, -1.0] + [-size] * len(nodes), 1.0 - size, inf)
    for nodes in problem.at_least_one:
        row(list(nodes), [1.0] * len(nodes), 1.0, inf)
    total = n + n_classes + len(level)
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = total, len(low)
    lp.col_cost_ = np.array([c / scale for c in problem.node_cost] + [0.0] * (total - n))
    lower = np.zeros(total)
    lower[[n + r for r in roots]] = 1.0
    upper = np.ones(total)
    for c, col in level.items():
        upper[col] = float(sizes[comp[c]] - 1)
    lp.col_lower_, lp.col_upper_ = lower, upper
    lp.row_lower_, lp.row_upper_ = np.array(low), np.array(high)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.array(starts, np.int32)
    lp.a_matrix_.index_ = np.array(index, np.int32)
    lp.a_matrix_.value_ = np.array(value, float)
    lp.integrality_ = [highspy.HighsVarType.kInteger] * n + [highspy.HighsVarType.kContinuous] * (total - n)
    model = highspy.Highs()
    model.setOptionValue("output_flag", False)
    model.setOptionValue("threads", 1)
    model.setOptionValue("random_seed", 0)
    model.setOptionValue("mip_rel_gap", 1e-9)
    model.setOptionValue("mip_abs_gap", 1e-9)
    model.setOptionValue("time_limit", max(0.1, deadline - time.monotonic()))
    model.passModel(lp)
    warm = highspy.HighsSolution()
    values = np.zeros(total)
    for c, i in best.items():
        values[i] = values[n + c] = 1.0
    warm.col_value = list(values)
    if not level:
        model.setSolution(warm)
    model.run()
    info = model.getInfo()
    bound = info.mip_dual_bound * scale
    if info.primal_solution_status != 2:
        return None, bound if math.isfinite(bound) else 0.0
    x = np.array(model.getSolution().col_value)[:n]
    return {problem.node_class[i]: i for i in np.flatnonzero(x > 0.5).tolist()}, bound


def _components(problem: Problem, kids: list[tuple[int, ...]]) -> list[int]:
    """The strongly connected component of every class (Tarjan, iterative)."""
    succ: list[list[int]] = [[] for _ in range(problem.n_classes)]
    for c, ds in zip(problem.node_class, kids, strict=True):
        succ[c].extend(ds)
    order = [-1] * problem.n_classes
    low = [0] * problem.n_classes
    comp = [-1] * problem.n_classes
    stack: list[int] = []
    found = done = 0
    for s in range(problem.n_classes):
        if order[s] >= 0:
            continue
        work = [(s, iter(succ[s]))]
        order[s] = low[s] = found
        found += 1
        stack.append(s)
        while work:
            c, it = work[-1]
            for d in it:
                if order[d] < 0:
                    order[d] = low[d] = found
                    found += 1
                    stack.append(d)
                    work.append((d, iter(succ[d])))
                    break
                if comp[d] < 0:
                    low[c] = min(low[c], order[d])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[c])
                if low[c] == order[c]:
                    while comp[c] < 0:
                        comp[stack.pop()] = done
                    done += 1
    return comp
