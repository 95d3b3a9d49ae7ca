"""Extraction from serialized e-graphs in the public format of extraction-gym, with answers in the file's names.

    {"nodes": {id: {"op": str, "cost": number, "eclass": class id, "children": [node ids]}},
     "root_eclasses": [class ids]}

A child is given as a node and means that node's class; a missing cost is 1. The answer chooses a node for each class
that the roots use, without cycles; its cost is the sum of the chosen nodes' costs.

Costs are converted exactly to integers (as decimals if they have few digits, as binary fractions otherwise), so that
sums and bounds do not round; costs too large or too far apart for that are refused. A negative cost is shifted away if
its class is part of every answer. Otherwise using a class may lower the cost, and `eqsat.extract.solver.signed` solves
the problem. A class that nothing needs is never part of an answer, even if it would lower the cost.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from eqsat.base.arguments import instance
from eqsat.base.files import read_json
from eqsat.base.memory_limit import collector_paused
from eqsat.errors import CheckFailed, InputError
from eqsat.extract.solver.problem import Problem, Solution, underivable
from eqsat.extract.solver.reduce import forced_classes
from eqsat.extract.solver.signed import solve_signed
from eqsat.extract.solver.solve import solve

DECIMALS = 9
"""Costs with at most this many decimals are read as decimal numbers."""

MARGIN, MOST = 0.15, 1.5
PASSES = 2.0
"""Time reserved for starting up, the last step, checking and naming: a share of the time limit, at most this many
seconds, plus this multiple of the reading time."""

FORCED_SHARE = 0.1
"""Share of the time limit for finding the classes that every answer uses, if costs are negative."""

MOST_UNITS = 10**305
"""Most units of cost in a file. The solver also computes with floats, which end at 1e308."""


@dataclass(frozen=True, slots=True)
class SerializedEGraph:
    """A serialized e-graph as an extraction problem.

    Attributes:
        problem: costs are integers: (cost + shift of the class) * scale.
        classes, nodes: the file's names.
        costs: the file's costs.
        scale: integer units of cost per unit of the file.
        shift: the extra cost of every answer in ``problem``, in integer units.
        signed: costs of the nodes in integer units, if a negative cost cannot be shifted away; ``problem`` then has 0
            in place of each negative cost.
    """

    problem: Problem
    classes: list[str]
    nodes: list[str]
    costs: list[float]
    scale: int
    shift: int
    signed: list[int] | None = None

    def solve(self, time_limit: float) -> Solution:
        """The cheapest answer found, in integer units, including the shift. Raises Underivable if there is none."""
        if self.signed is None:
            return solve(self.problem, time_limit)
        return solve_signed(self.problem, self.signed, time_limit)


def extract_file(path: str | Path, time_limit: float = 30.0) -> dict[str, Any]:
    """The cheapest answer for the serialized e-graph in ``path`` found within ``time_limit`` seconds, reading included.

    Returns:
        cost, lower_bound, gap ((cost - lower_bound) / |cost|, None where that divides by 0), optimal, seconds, and
        choices (class id -> node id for the classes that the answer uses).

    Raises:
        InputError: the file is not a serialized e-graph, or a root has no node or no acyclic derivation.
    """
    with collector_paused():
        return _extract_file(path, time_limit)


def _extract_file(path: str | Path, time_limit: float) -> dict[str, Any]:
    start = time.monotonic()
    data = _read(path)
    egraph = parse(data, str(path), time.monotonic() + FORCED_SHARE * time_limit)
    read = time.monotonic() - start
    solution = egraph.solve(max(0.0, time_limit - min(MARGIN * time_limit, MOST) - (1 + PASSES) * read))
    choices = {egraph.classes[c]: egraph.nodes[i] for c, i in sorted(solution.choice.items())}
    cost = answer_cost(data, choices)
    bound = cost if solution.optimal else _below(cost, Fraction(solution.lower_bound - egraph.shift, egraph.scale))
    return {
        "cost": cost,
        "lower_bound": bound,
        "gap": 0.0 if cost == bound else (cost - bound) / abs(cost) if cost else None,
        "optimal": solution.optimal,
        "seconds": time.monotonic() - start,
        "choices": choices,
    }


def _below(cost: float, bound: Fraction) -> float:
    """A lower bound as a float that is no greater, and less than the cost, since it is no proof."""
    nearest = float(bound)
    return min(nearest if nearest <= bound else _next_below(nearest), _next_below(cost))


def _next_below(value: float) -> float:
    return math.nextafter(value, -math.inf)


def _read(path: str | Path) -> Mapping[str, Any]:
    return read_json(Path(path), "a serialized e-graph")


def parse(data: Any, name: str = "e-graph", deadline: float = math.inf) -> SerializedEGraph:
    """The extraction problem of a serialized e-graph; ``name`` is its name in errors.

    After ``deadline``, no more negative costs are shifted away.
    """
    instance("an e-graph's name", name, str, "a text")
    nodes, roots = _fields(data, name)
    class_of: dict[str, str] = {}
    for key, node in nodes.items():
        if not isinstance(node, dict) or not isinstance(node.get("eclass"), str | int):
            raise InputError(f"{name}: node {key!r} has no eclass; every node needs one, a string")
        class_of[key] = str(node["eclass"])
    index = {c: k for k, c in enumerate(dict.fromkeys(class_of.values()))}
    for r in roots:
        if r not in index:
            raise InputError(f"{name}: root e-class {r!r} has no node; the file is incomplete or names a wrong root")
    children = []
    for key, node in nodes.items():
        kids = node.get("children", [])
        if not isinstance(kids, list):
            raise InputError(f"{name}: node {key!r} has children {kids!r}; give a list of nodes")
        try:
            children.append(tuple(dict.fromkeys(index[class_of[d]] for d in kids)))
        except (KeyError, TypeError) as error:
            raise InputError(f"{name}: node {key!r} has children that are no nodes of the file ({error})") from error
    costs = [_cost(node.get("cost", 1.0), key, name) for key, node in nodes.items()]
    if not math.isfinite(sum(map(abs, costs))):
        raise InputError(f"{name}: the costs add up to more than a float can hold; scale them down")
    exact = _exact(costs)
    scale = _scale(exact)
    integer = _units(exact)
    problem = Problem(
        node_class=[index[c] for c in class_of.values()],
        node_cost=[0] * len(costs),
        children=children,
        n_classes=len(index),
        roots=tuple(index[r] for r in dict.fromkeys(roots)),
    )
    integers = [integer[c] for c in costs]
    if sum(map(abs, integers)) > MOST_UNITS:
        sizes = {abs(c) for c in costs if c}
        raise InputError(
            f"{name}: costs from {min(sizes):g} to {max(sizes):g} cannot be added up exactly; "
            "round the small ones or scale the large ones down"
        )
    bad = underivable(problem)
    if bad is not None:
        root = list(index)[bad]
        raise InputError(f"{name}: root e-class {root!r} has no acyclic derivation; nothing to extract")
    reachable = _reachable(problem)
    integers = [cost if c in reachable else 0 for c, cost in zip(problem.node_class, integers, strict=True)]
    shift = _shift_negative(problem, integers, deadline)
    signed = integers if min(integers) < 0 else None
    problem.node_cost = [max(0, cost) for cost in integers]
    return SerializedEGraph(problem, list(index), list(nodes), costs, scale, shift, signed)


def _fields(data: Any, name: str) -> tuple[dict[str, Any], list[str]]:
    if not isinstance(data, dict) or not isinstance(data.get("nodes"), dict):
        raise InputError(f'{name}: no "nodes" object; give a serialized e-graph')
    roots = data.get("root_eclasses")
    if not isinstance(roots, list) or not roots:
        raise InputError(f'{name}: no "root_eclasses"; name at least one root')
    return data["nodes"], [str(r) for r in roots]


def _cost(value: Any, key: str, name: str) -> float:
    number = math.nan
    if isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(OverflowError):
            number = float(value)
    if not math.isfinite(number):
        raise InputError(f"{name}: node {key!r} has cost {str(value)[:20]}; costs are finite numbers")
    return number


def _exact(costs: list[float]) -> dict[float, Fraction]:
    """Costs as fractions: decimals if they have few digits, or where binary fractions are too many units."""
    decimal = {c: Fraction(Decimal(repr(c))) for c in set(costs)}
    if all(10**DECIMALS % f.denominator == 0 for f in decimal.values()):
        return decimal
    binary = {c: Fraction(c) for c in decimal}
    units = _units(binary)
    return binary if sum(abs(units[c]) for c in costs) <= MOST_UNITS else decimal


def _units(exact: Mapping[float, Fraction]) -> dict[float, int]:
    """Costs in a unit of which all are multiples."""
    scale = _scale(exact)
    return {c: int(f * scale) for c, f in exact.items()}


def _scale(exact: Mapping[float, Fraction]) -> int:
    return math.lcm(*{f.denominator for f in exact.values()})


def _reachable(problem: Problem) -> set[int]:
    """The classes that the roots can use; what others cost is nothing to any answer."""
    members = problem.members()
    seen, work = set(problem.roots), list(problem.roots)
    while work:
        for i in members[work.pop()]:
            new = set(problem.children[i]) - seen
            seen |= new
            work += new
    return seen


def _shift_negative(bare: Problem, costs: list[int], deadline: float) -> int:
    """Raise the costs of classes that every answer uses, in place, until none is negative; return the sum added.

    Only those classes are raised that are found before ``deadline``.
    """
    lowest: dict[int, int] = {}
    for c, cost in zip(bare.node_class, costs, strict=True):
        if cost < 0:
            lowest[c] = min(cost, lowest.get(c, 0))
    if not lowest:
        return 0
    forced = forced_classes(bare, deadline)
    shifts = {c: -cost for c, cost in lowest.items() if c in forced}
    for i, c in enumerate(bare.node_class):
        costs[i] += shifts.get(c, 0)
    return sum(shifts.values())


def answer_cost(data: Mapping[str, Any], choices: Mapping[str, str]) -> float:
    """The exactly rounded cost of an answer, from the file alone; raise CheckFailed if it is not an answer.

    This shares no code with the solver. Every root and every child of a chosen node must have a choice of its own
    class, the chosen nodes must have no cycle, and no unused class may be chosen.
    """
    nodes = data["nodes"]
    needs: dict[str, set[str]] = {}
    for c, key in choices.items():
        if key not in nodes or str(nodes[key]["eclass"]) != c:
            raise CheckFailed(f"answer: node {key!r} chosen for e-class {c!r} is not one of its nodes")
        needs[c] = {str(nodes[d]["eclass"]) for d in nodes[key].get("children", ())}
    used = set(map(str, data["root_eclasses"])).union(*needs.values())
    if used != set(choices):
        raise CheckFailed(f"answer: e-classes {sorted(used ^ set(choices))[:5]} are needed or chosen, but not both")
    waiting = {c: len(kids) for c, kids in needs.items()}
    users: dict[str, list[str]] = {}
    for c, kids in needs.items():
        for d in kids:
            users.setdefault(d, []).append(c)
    ready = [c for c, k in waiting.items() if k == 0]
    done = 0
    while ready:
        done += 1
        for c in users.get(ready.pop(), ()):
            waiting[c] -= 1
            if waiting[c] == 0:
                ready.append(c)
    if done != len(choices):
        raise CheckFailed("answer: the chosen nodes need each other in a cycle")
    return math.fsum(nodes[key].get("cost", 1.0) for key in choices.values())
