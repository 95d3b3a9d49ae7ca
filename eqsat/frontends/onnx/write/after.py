"""Writes the operators that follow a program behind it, as the model that it was read from has them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from eqsat.errors import InputError
from eqsat.frontends.onnx.file.load import imported
from eqsat.frontends.onnx.read.opaque import rename, same_form
from eqsat.program.ir import After

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto


def _model(after: After) -> ModelProto:
    from onnx import ModelProto

    return ModelProto.FromString(after.spec)


def following_opsets(after: After, candidates: Iterable[int], others: dict[str, int]) -> set[int]:
    """The main opsets among the candidates at which the operators mean what they do. The versions of their other
    domains are added to `others`.

    Raises:
        InputError: these contradict.
    """
    model = _model(after)
    versions = imported(model.opset_import)
    own = versions.pop("")
    for domain, version in versions.items():
        if others.setdefault(domain, version) != version:
            raise InputError(f"operators need versions {others[domain]} and {version} of '{domain}'")
    return {each for each in candidates if _is_valid(model.graph, own, each)}


def _is_valid(graph: GraphProto, own: int, opset: int) -> bool:
    return opset >= own and all(same_form(node, own, opset) for node in graph.node)


class Following:
    """The operators that follow a program, for a writer of the whole model.

    Attributes:
        after: as the program has them.
        made: names of the values that they make.
        names: of all values that they define and read.
    """

    def __init__(self, after: After) -> None:
        self.after = after
        self._graph = _model(after).graph
        self.made = {name for node in self._graph.node for name in node.output if name}
        tensors = (tensor.name for tensor in self._graph.initializer)
        self.names = {*self.made, *tensors, *after.constants, *after.inputs, *after.outputs}

    def nodes(self, constants: Mapping[str, str], fresh: Callable[[str], str]) -> Iterator[NodeProto]:
        """The nodes. Values keep their names, apart from constants, which have these, and values inside bodies."""
        for node in self._graph.node:
            rename(node, constants, list(node.output), lambda node=node: fresh(node.op_type.lower()))
            yield node

    def foreign(self) -> Sequence[TensorProto]:
        """Constants of the operators that programs cannot hold."""
        return self._graph.initializer

    def inputs(self, of_program: Collection[ValueInfoProto]) -> list[ValueInfoProto]:
        """The inputs of the model, in its order."""
        return _joined(self._graph.input, of_program)

    def outputs(self, of_program: Collection[ValueInfoProto]) -> list[ValueInfoProto]:
        """The outputs of the model, in its order."""
        return _joined(self._graph.output, of_program)


def _joined(all_: Iterable[ValueInfoProto], of_program: Collection[ValueInfoProto]) -> list[ValueInfoProto]:
    known = {value.name: value for value in of_program}
    return [known.get(value.name, value) for value in all_]
