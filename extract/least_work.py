"""The program of an e-graph that does the least work."""

from __future__ import annotations

from collections.abc import Callable

from eqsat.egraph.required import Derivation
from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.extract.solver.problem import Problem
from eqsat.extract.solver.solve import ONCE, solve
from eqsat.program.core_table import CORE


def of_least_work(snapshot: Snapshot, seconds: float, should_stop: Callable[[], bool] | None = None) -> Derivation:
    """A program with about the least FLOPs that depend on inputs, found within `seconds`; of two with as many, the one
    with fewer e-nodes."""

    def work(node: ENode) -> int:
        flops = CORE[node.op].flops(node.attrs, [snapshot.size[a] for a in node.args])
        return 1 + (0 if snapshot.const[node.cls] else flops * len(snapshot.nodes))

    problem = Problem(
        node_class=[node.cls for node in snapshot.nodes],
        node_cost=[work(node) for node in snapshot.nodes],
        children=[node.args for node in snapshot.nodes],
        n_classes=snapshot.n_classes,
        roots=tuple(dict.fromkeys(snapshot.roots)),
    )
    return tuple(solve(problem, seconds, (), should_stop, ONCE).choice.values())
