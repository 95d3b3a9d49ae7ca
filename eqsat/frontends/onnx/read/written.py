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
    """The nodes, in order, whose operands and results are all terms; none with bodies, which read further values.

    Operands are values where they are small constants, unless a node makes nothing but such: its readers have the value
    in its place, so that its own operands are not computed for it.
    """
    parameters: dict[Term, Term] = {}
    for node in nodes:
        args = [values.get(name) if name else None for name in node.input]
        results = [values.get(name) if name else None for name in node.output]
        known = all(isinstance(arg, Term) for arg, name in zip(args, node.input, strict=True) if name)
        if known and any(isinstance(each, Term) for each in results) and not any(True for _ in subgraphs(node)):
            domain = domain_of(node)
            operands = [arg if isinstance(arg, Term) else None for arg in args]
            made = [each if isinstance(each, Term) else None for each in results]
            if not all(each is None or _is_parameter(each, constants) for each in made):
                for arg in operands:
                    if arg is not None and arg not in parameters:
                        parameters[arg] = _parameter(arg, constants)
                operands = [None if arg is None else parameters[arg] for arg in operands]
            spec = FileNode(node.SerializeToString(deterministic=True), domain, opsets[domain])
            yield Written(spec, tuple(operands), tuple(made))


def _is_parameter(term: Term, constants: Constants) -> bool:
    return term.size <= _PARAMETER_ELEMENTS and constants.is_constant(term)


def _parameter(term: Term, constants: Constants) -> Term:
    """A small constant operand as its value: what computed it is not part of the program."""
    computed = term.op != "constant" and _is_parameter(term, constants)
    value = constants.value(term) if computed else None
    return term if value is None else ops.constant(value)
