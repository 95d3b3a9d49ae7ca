"""FX graphs with the parts that eqsat knows replaced by cheaper ones.

torch's partitioner finds the parts. Each becomes a program, is optimised, and is written back as ATen operators where
this gains enough by price; all other nodes stay as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from eqsat.base.time_budget import TimeBudget
from eqsat.errors import EqsatError, InputError
from eqsat.extract.device.table import Device
from eqsat.frontends.torch.capture import captured
from eqsat.frontends.torch.kernels import insert_kernels
from eqsat.frontends.torch.operators.table import is_known
from eqsat.frontends.torch.operators.tensors import import_torch, to_numpy, type_of
from eqsat.frontends.torch.placing import lay_out, layouts
from eqsat.frontends.torch.read import Part, part_of
from eqsat.frontends.torch.write import Writer
from eqsat.language.rule import Policy
from eqsat.pipeline.optimize import optimize
from eqsat.pipeline.result import Result
from eqsat.program import ops
from eqsat.program.ir import Program
from eqsat.program.term import Term

log = logging.getLogger(__name__)

LEAST_GAIN = 0.02
"""Share that a rewrite must save of a part's predicted time; prices are no more exact than that."""


def rewritten(
    module: Any,
    inputs: Sequence[Any],
    constants: Mapping[int, Any],
    device: Device,
    budget: TimeBudget,
    numerics: Policy,
) -> Any:
    """A module that Dynamo traced, as a cheaper graph of ATen operators.

    Args:
        inputs: tensors of the shapes and types that the graph is for.
        constants: inputs by place whose values never change.
        device: the row of prices.
        budget: the time for all of it.

    Returns:
        A graph module with the same inputs and results; None if nothing gains.

    Raises:
        InputError: the module has symbolic sizes or effects.
        CheckFailed: a part as written does not pass the check.
    """
    graph_module, fakes = captured(module, inputs)
    source = layouts(graph_module, fakes)
    parts = _parts(graph_module, _known(graph_module, constants), True)
    now: dict[Any, Any] = {}
    for part, best in _optimised(parts, budget, device, numerics):
        if _pays(best, device):
            try:
                _splice(graph_module, part, best.program, now)
            except InputError as error:
                log.info("a part stays as it is: %s", error)
    if not now:
        return None
    _put_in_order(graph_module)
    lay_out(graph_module, fakes, source)
    return _finished(graph_module)


def run_by_kernels(
    module: Any,
    inputs: Sequence[Any],
    constants: Mapping[int, Any],
    held: Collection[int],
    device: Device,
    budget: TimeBudget,
    numerics: Policy,
) -> Any:
    """As `rewritten`, with eqsat's kernels in place of the parts, whatever they gain; None if it knows no part.

    Args:
        held: inputs by place that come in the same memory at every call.
    """
    graph_module, _ = captured(module, inputs)
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    weights = {placeholders[i] for i in held}
    parts = [part for part in _parts(graph_module, _known(graph_module, constants), False) if part.inputs]
    now: dict[Any, Any] = {}
    for part, best in _optimised(parts, budget, device, numerics):
        insert_kernels(graph_module, part, best, weights, now)
    if not now:
        return None
    _put_in_order(graph_module)
    return _finished(graph_module)


def _finished(graph_module: Any) -> Any:
    graph_module.graph.lint()
    graph_module.recompile()
    return graph_module


def _known(graph_module: Any, constants: Mapping[int, Any]) -> dict[Any, Term]:
    """Nodes whose values never change, as constants."""
    placeholders, attributes = (graph_module.graph.find_nodes(op=kind) for kind in ("placeholder", "get_attr"))
    held = {placeholders[i]: x for i, x in constants.items()}
    held |= {node: node.meta["val"] for node in attributes if "val" in node.meta}
    return {node: ops.constant(to_numpy(x)) for node, x in held.items() if _holds(x)}


def _put_in_order(graph_module: Any) -> None:
    """Sort the nodes of a graph, operands first, and drop unused ones."""
    import_torch("torch.fx.passes.tools_common").stable_topological_sort(graph_module)
    graph_module.graph.eliminate_dead_code()


def _holds(tensor: Any) -> bool:
    """Whether programs have tensors of this kind."""
    try:
        type_of(tensor)
    except EqsatError:
        return False
    return True


def _parts(graph_module: Any, known: Mapping[Any, Term], but_whole: bool) -> list[Part]:
    """Nodes that rows cover, in parts that depend on no node in between, in the order of the graph.

    Args:
        but_whole: leave out what torch computes as one operator.
    """
    passes = import_torch("torch.fx.passes.infra.partitioner")
    supporting = import_torch("torch.fx.passes.operator_support").create_op_support
    support = supporting(lambda _, node: node.op == "call_function" and is_known(node, but_whole))
    partitioner = passes.CapabilityBasedPartitioner(graph_module, support, allows_single_node_partition=True)
    place = {node: i for i, node in enumerate(graph_module.graph.nodes)}
    found = [sorted(partition.nodes, key=place.__getitem__) for partition in partitioner.propose_partitions()]
    parts = []
    for nodes in sorted(found, key=lambda nodes: place[nodes[0]]):
        inside = set(nodes)
        parts.append(part_of(nodes, [node for node in nodes if not inside.issuperset(node.users)], known))
    return parts


def _optimised(
    parts: Sequence[Part], budget: TimeBudget, device: Device, numerics: Policy
) -> Iterator[tuple[Part, Result]]:
    """The parts, each with the result for its program. Equal parts are optimised once; each gets an equal share of the
    time that is left."""
    found: dict[Any, Result] = {}
    keys = [(part.program.inputs, tuple(part.program.outputs.values())) for part in parts]
    for i, (part, key) in enumerate(zip(parts, keys, strict=True)):
        if key not in found:
            seconds = budget.left("write") / len(set(keys[i:]))
            found[key] = optimize(part.program, device, seconds, numerics, explain_time=0.0, measure=False)
        yield part, found[key]


def _pays(best: Result, device: Device) -> bool:
    """Whether a result saves enough time by price and, on a device whose prices are a runtime's, as much of the
    products' arithmetic.

    Such prices are of operators one by one. Code generators fuse pointwise operators and reductions themselves, and on
    a CPU larger products are hardly faster than several: only less work in products stays a gain (`papers/torch.md`).
    """
    before, after = (best.report[side]["predicted_us"] for side in ("source", "result"))
    work, less = (program.stats()["matmul_flops"] for program in (best.source, best.program))
    share = 1 - LEAST_GAIN
    return after < share * before and (not device.runtime or less < share * work)


def _splice(graph_module: Any, part: Part, better: Program, now: dict[Any, Any]) -> None:
    """Replace the results of a part by those of a better program.

    Args:
        now: the nodes that stand in place of others; gets those of the results.
    """
    graph = graph_module.graph
    [end] = graph.find_nodes(op="output")
    values = {term: now.get(node, node) for term, node in zip(better.inputs, part.inputs, strict=True)}
    with graph.inserting_before(end):
        writer = Writer(graph_module, graph, values, part.outputs[0].meta["val"].device)
        written = writer.write(list(better.outputs.values()))
    for node, new in zip(part.outputs, written, strict=True):
        node.replace_all_uses_with(new)
        now[node] = new
