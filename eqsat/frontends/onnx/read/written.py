"""The nodes of a model beside the terms that they became, so that unchanged parts are written back unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eqsat.frontends.onnx.file.load import domain_of, subgraphs
from eqsat.frontends.onnx.operators.node import Constants
from eqsat.frontends.onnx.read.convert import Value
from eqsat.frontends.onnx.read.opaque import same_form, since_version
from eqsat.program import ops
from eqsat.program.ir import Written
from eqsat.program.term import Term

if TYPE_CHECKING:
    from onnx import NodeProto

_PARAMETER_ELEMENTS = 64
"""Most elements of a constant operand that is computed when it is read: shapes, axes, pads."""


@dataclass(frozen=True, slots=True)
class FileNode:
    """A node as a model has it: its bytes, its domain, and the domain's opset there."""

    node: bytes
    domain: str
    opset: int

    def proto(self) -> NodeProto:
        from onnx import NodeProto

        return NodeProto.FromString(self.node)

    def unnamed(self) -> FileNode:
        """The same node without its name."""
        node = self.proto()
        node.name = ""
        return replace(self, node=node.SerializeToString(deterministic=True))

    def means_the_same(self, opset: int) -> bool:
        """Whether the node may be written into a model of this main opset."""
        if self.domain or opset == self.opset:
            return True
        if opset > self.opset:
            return same_form(self.proto(), self.opset, opset)
        return since_version(self.proto(), opset) == since_version(self.proto(), self.opset)


def written(
    nodes: Sequence[NodeProto], values: Mapping[str, Value], opsets: Mapping[str, int], constants: Constants
) -> Iterator[Written]:
    """The nodes, in order, whose operands and results are all terms; none with bodies, which read further values."""
    parameters: dict[Term, Term] = {}
    for node in nodes:
        args = [values.get(name) if name else None for name in node.input]
        results = [values.get(name) if name else None for name in node.output]
        known = all(isinstance(arg, Term) for arg, name in zip(args, node.input, strict=True) if name)
        if known and any(isinstance(each, Term) for each in results) and not any(True for _ in subgraphs(node)):
            domain = domain_of(node)
            for arg in args:
                if isinstance(arg, Term) and arg not in parameters:
                    parameters[arg] = _parameter(arg, constants)
            yield Written(
                FileNode(node.SerializeToString(deterministic=True), domain, opsets[domain]),
                tuple(parameters[arg] if isinstance(arg, Term) else None for arg in args),
                tuple(each if isinstance(each, Term) else None for each in results),
            )


def _parameter(term: Term, constants: Constants) -> Term:
    """A small constant operand as its value: what computed it is not part of the program."""
    small = term.size <= _PARAMETER_ELEMENTS and term.op != "constant"
    value = constants.value(term) if small else None
    return term if value is None else ops.constant(value)
