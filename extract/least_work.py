"""The program of an e-graph that does the least work."""

from __future__ import annotations

from eqsat.egraph.required import Derivation
from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.extract.solver.greedy import NO_NODE, greedy_dag
from eqsat.extract.solver.problem import Problem, used_choice
from eqsat.program.core_table import CORE


def of_least_work(snapshot: Snapshot, deadline: float) -> Derivation:
    """A program with about the least FLOPs that depend on inputs, found greedily; of two with as many, the one with
    fewer e-nodes. After `deadline` (`time.monotonic`) work that is used twice counts twice."""

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
    picks = greedy_dag(problem, deadline)
    chosen = {c: i for c, i in enumerate(picks) if i != NO_NODE}
    return tuple(used_choice(problem, chosen).values())
