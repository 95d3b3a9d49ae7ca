"""Extraction from serialized e-graphs: cost, bound, gap, seconds, and size after the reductions, graph by graph.

    python benchmarks/extract.py DIR [--time-limit S] [--match PATTERN] [--solver eqsat|highs|cp-sat] [--json FILE]

DIR holds *.json files in extraction-gym's format, in folders or not. `greedy` is the cost found by faster-greedy-dag;
`left` counts nodes and classes after the reductions. For comparison, `--solver highs` or `cp-sat` gives the whole
reduced problem to that solver, with levels on cycles and without our bounds, cuts and searches; cp-sat needs ortools,
which cannot share a process with highspy. Refused files are listed apart. Exit code 1 if an answer costs more than
greedy's.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from fnmatch import fnmatch
from fractions import Fraction
from pathlib import Path
from typing import Any

from common import write_figures

from eqsat.cli.shared.output import console, print_table
from eqsat.errors import InputError
from eqsat.extract.solver.greedy import NO_NODE, greedy_dag
from eqsat.extract.solver.problem import Problem, check, used_choice
from eqsat.extract.solver.reduce import Reduction, components
from eqsat.extract.solver.serialized import SerializedEGraph, answer_cost, parse
from eqsat.extract.solver.solve import solve

Answer = tuple[dict[int, int], float]
"""A choice of nodes, and a lower bound in the problem's units."""

Solver = Callable[[Problem, float], Answer]


def by_eqsat(problem: Problem, time_limit: float) -> Answer:
    solution = solve(problem, time_limit)
    return solution.choice, solution.lower_bound


def by_signs(egraph: SerializedEGraph, time_limit: float) -> Answer:
    """Solve a problem with negative costs, whichever solver is asked for."""
    solution = egraph.solve(time_limit)
    return solution.choice, solution.lower_bound


def by_highs(problem: Problem, time_limit: float) -> Answer:
    """The reduced problem as one integer program."""
    from eqsat.extract.solver.relax import Relaxation
    from eqsat.extract.solver.search import branch

    def whole(small: Problem, known: float, deadline: float) -> tuple[list[int] | None, float]:
        found = branch(Relaxation(small, [], known), math.inf, 2**31 - 1, deadline)
        return found.nodes, found.bound

    return _reduced(problem, time_limit, whole)


def by_cp_sat(problem: Problem, time_limit: float) -> Answer:
    """The reduced problem as clauses, solved with one worker."""
    from ortools.sat.python import cp_model

    def whole(small: Problem, known: float, deadline: float) -> tuple[list[int] | None, float]:
        model = cp_model.CpModel()
        x = [model.new_bool_var("") for _ in small.node_class]
        y = [model.new_bool_var("") for _ in range(small.n_classes)]
        members = small.members()
        children = {c: dict.fromkeys(d for i in m for d in small.children[i]) for c, m in enumerate(members)}
        for c, m in enumerate(members):
            model.add_exactly_one([x[i] for i in m] + [~y[c]])
        for r in small.roots:
            model.add(y[r] == 1)
        for c, m in enumerate(members):
            for d in children[c]:
                users = [i for i in m if d in small.children[i]]
                for used in [y[c]] if len(users) == len(m) else [x[i] for i in users]:
                    model.add_implication(used, y[d])
        for group in components(children):
            level = {c: model.new_int_var(0, len(group) - 1, "") for c in group if len(group) > 1}
            for c in level:
                for i in members[c]:
                    for d in small.children[i]:
                        if d in level:
                            model.add(level[c] >= level[d] + 1).only_enforce_if(x[i])
        model.minimize(sum(cost * v for cost, v in zip(small.node_cost, x, strict=True)))
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.linearization_level = 2
        solver.parameters.max_time_in_seconds = max(0.01, deadline - time.monotonic())
        status = solver.solve(model)
        found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
        nodes = [i for i, v in enumerate(x) if solver.boolean_value(v)] if found else None
        return nodes, solver.best_objective_bound

    return _reduced(problem, time_limit, whole)


def _reduced(problem: Problem, time_limit: float, whole: Callable[..., tuple[list[int] | None, float]]) -> Answer:
    deadline = time.monotonic() + time_limit
    choice = greedy(problem)
    reduction = Reduction(problem)
    reduction.run(deadline)
    small, nodes, _ = reduction.remainder()
    picked, bound = whole(small, float(check(problem, choice)), deadline) if nodes else ([], 0.0)
    if picked is not None:
        found = reduction.expand(nodes[k] for k in picked)
        choice = min(choice, found, key=lambda c: check(problem, c))
    return choice, max(0.0, bound + reduction.constant)


GREEDY_SECONDS = 60.0
PROVEN = 1e-6
"""An answer counts as proven if its bound is this close, for every solver."""

SOLVERS: dict[str, Solver] = {"eqsat": by_eqsat, "highs": by_highs, "cp-sat": by_cp_sat}


def greedy(problem: Problem) -> dict[int, int]:
    """The answer of faster-greedy-dag."""
    picks = greedy_dag(problem, time.monotonic() + GREEDY_SECONDS)
    return {c: i for c, i in enumerate(picks) if i != NO_NODE}


def measure(path: Path, name: str, solver: Solver, time_limit: float) -> dict[str, Any]:
    """One row of the table, in the file's units; the answer passes the file's own checker."""
    data = json.loads(path.read_bytes())
    egraph = parse(data, name)
    problem = egraph.problem
    start = time.monotonic()
    costs = egraph.signed or problem.node_cost
    choice, bound = solver(problem, time_limit) if egraph.signed is None else by_signs(egraph, time_limit)
    seconds = time.monotonic() - start
    reduction = Reduction(problem)
    reduction.run(math.inf)

    def in_units(value: float) -> float:
        return float((Fraction(value) - egraph.shift) / egraph.scale)

    used = used_choice(problem, choice)
    cost = answer_cost(data, {egraph.classes[c]: egraph.nodes[i] for c, i in used.items()})
    exact = sum(costs[i] for i in used.values())
    proven = bound >= exact - abs(exact) * PROVEN
    return {
        "graph": name,
        "nodes": len(problem.node_class),
        "classes": problem.n_classes,
        "left": [sum(map(len, reduction.members.values())), len(reduction.members)],
        "greedy": in_units(sum(costs[i] for i in used_choice(problem, greedy(problem)).values())),
        "cost": cost,
        "bound": cost if proven else in_units(bound),
        "gap": 0.0 if proven else (exact - bound) / (abs(exact) or 1),
        "seconds": seconds,
    }


def report(rows: list[dict[str, Any]], refused: list[str]) -> None:
    """Print the table, the refused files, and the totals."""
    table = [
        [
            r["graph"],
            f"{r['nodes']}/{r['classes']}",
            f"{r['left'][0]}/{r['left'][1]}",
            f"{r['greedy']:.6g}",
            f"{r['cost']:.6g}",
            f"{r['bound']:.6g}",
            f"{r['gap']:.1%}" if r["gap"] else "proven",
            f"{r['seconds']:.2f}",
        ]
        for r in rows
    ]
    columns = ["graph", "nodes/classes", "left", "greedy", "cost", "bound", "gap", "seconds"]
    print_table(console(), "extraction", columns, table)
    for line in refused:
        print(f"refused: {line}")
    proven = sum(r["gap"] == 0 for r in rows)
    better = sum(r["cost"] < r["greedy"] - abs(r["greedy"]) * PROVEN for r in rows)
    seconds = sum(r["seconds"] for r in rows)
    print(f"{len(rows)} graphs: {proven} proven optimal, {better} cheaper than greedy, {seconds:.1f} s in all")


def main() -> int:
    """Measure every file of the folder; returns 1 if an answer costs more than greedy's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--time-limit", type=float, default=30.0)
    parser.add_argument("--match", default="*")
    parser.add_argument("--solver", choices=list(SOLVERS), default="eqsat")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows, refused = [], []
    for path in sorted(options.folder.rglob("*.json")):
        name = str(path.relative_to(options.folder).with_suffix(""))
        if not fnmatch(name, options.match):
            continue
        try:
            rows.append(measure(path, name, SOLVERS[options.solver], options.time_limit))
        except InputError as error:
            refused.append(str(error))
    report(rows, refused)
    write_figures(options.json, rows)
    return int(any(r["cost"] > r["greedy"] + abs(r["greedy"]) * PROVEN for r in rows))


if __name__ == "__main__":
    sys.exit(main())
