"""Programs from parts of FX graphs of ATen operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from eqsat.frontends.torch.operators.row import Built
from eqsat.frontends.torch.operators.table import built
from eqsat.frontends.torch.operators.tensors import type_of
from eqsat.program import ops
from eqsat.program.ir import Program
from eqsat.program.term import Term


class Part(NamedTuple):
    """Nodes of a graph as a program.

    Attributes:
        program: its inputs and outputs are numbered, so that equal parts of a graph are equal programs.
        inputs, outputs: the nodes that they stand for.
    """

    program: Program
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]


def part_of(nodes: Sequence[Any], results: Sequence[Any], constants: Mapping[Any, Term]) -> Part:
    """What these nodes compute.

    Args:
        nodes: calls in the order of the graph, each covered by a row.
        results: those whose values are wanted.
        constants: nodes outside whose values are known; the others that are read are inputs.

    Raises:
        EqsatError: no row covers one of the nodes.
    """
    values: dict[Any, Built] = dict(constants)
    inputs: dict[Any, Term] = {}
    inside = set(nodes)
    for node in nodes:
        for operand in node.all_input_nodes:
            if operand not in inside and operand not in values:
                values[operand] = inputs[operand] = ops.input(f"x{len(inputs)}", *type_of(operand.meta["val"]))
        values[node] = built(node, values)
    outputs = {f"y{i}": _one(values[node]) for i, node in enumerate(results)}
    return Part(Program(tuple(inputs.values()), outputs), tuple(inputs), tuple(results))


def _one(value: Built) -> Term:
    assert isinstance(value, Term)
    return value
