"""Writes programs as compact, readable ONNX models that keep the names of inputs and outputs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, count
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from eqsat.base.arguments import instance, whole
from eqsat.base.numerics import Array
from eqsat.base.version import version
from eqsat.errors import InputError
from eqsat.frontends.onnx.file.load import DTYPE_OF_CODE, NEWEST_OPSET, OLDEST_OPSET, tensor_array, value_info
from eqsat.frontends.onnx.read.opaque import OneNode, rename
from eqsat.frontends.onnx.read.written import FileNode
from eqsat.frontends.onnx.write.after import Following
from eqsat.frontends.onnx.write.form import Form, Operand, Param
from eqsat.frontends.onnx.write.plan import Plan, plan
from eqsat.frontends.onnx.write.save import store
from eqsat.program.ir import Program
from eqsat.program.sizes import check_program
from eqsat.program.term import ConstArray, Shape, Term

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

DEFAULT_OPSET = 17

MADE_BY_RUNTIME = ("gemm_input_shape", "gemm_output_shape")
"""Names of constants in models that onnxruntime wrote. It gives them to its own constants once it merges a product and
a sum, does not look whether a model has them, and then does not load it (1.32)."""

_NONE: Mapping[str, Any] = MappingProxyType({})


def to_onnx(program: Program, path: str | os.PathLike[str] | None = None, *, opset: int | None = None) -> ModelProto:
    """The program as an ONNX model, written to `path` if one is given.

    Nodes of the model that the program was read from, and their names, are kept wherever it has the same values; so are
    its name, version, domain, documentation and metadata.

    Args:
        opset: the least opset to write; a later one is taken where an operator or element type needs it, and an
            earlier one where an opaque operator exists only there. By default that of the model that the program was
            read from, from 17 to the newest that is known.

    Raises:
        InputError: an operator without an ONNX form, a value of too many elements or dims, a file that cannot be
            written, or a model of more than 1.8 GB without a path (its constants go to a file beside it).
    """
    instance("to_onnx", program, Program, "a Program (eqsat.trace, from_onnx, from_torch)")
    if path is not None:
        instance("to_onnx: path", path, (str, os.PathLike), "a path or None")
    check_program(program)
    least = least_opset(program) if opset is None else whole("opset", opset, 1)
    if not OLDEST_OPSET <= least <= NEWEST_OPSET:
        raise InputError(f"opset {least} cannot be written; choose {OLDEST_OPSET} to {NEWEST_OPSET}")
    return store(*draft(program, least), path)


def draft(program: Program, opset: int) -> tuple[ModelProto, list[tuple[str, Array]]]:
    """The program as a model without its initializers, and these by name.

    Raises:
        InputError: as `to_onnx`.
    """
    writer = _Writer(program, plan(program, opset))
    return writer.model(), writer.constants()


def least_opset(program: Program) -> int:
    """The least opset that a program is written at unless another one is asked for."""
    read = (each.spec.opset for each in program.written if not each.spec.domain)
    return min(max([DEFAULT_OPSET, *read]), NEWEST_OPSET)


class _Writer:
    """Turns a plan into nodes, giving every value a name."""

    def __init__(self, program: Program, plan_: Plan) -> None:
        self.program = program
        self.plan = plan_
        self.nodes: list[NodeProto] = []
        self.values: list[ValueInfoProto] = []
        self.names: dict[Term, str] = {term: term.attr("name") for term in program.inputs}
        self.taken = {*self.names.values(), *program.outputs, *program.names.values()}
        self.following = None if program.header.after is None else Following(program.header.after)
        if self.following is not None:
            self.taken |= self.following.names
        self.inner: dict[Form, str] = {}  # nodes that other forms read
        self.counts: dict[str, int] = {}
        self.stored: dict[tuple[str, Shape], tuple[str, Array]] = {}
        self.foreign: list[TensorProto] = []  # parameters of opaque nodes, of element types that programs lack

    def model(self) -> ModelProto:
        """The model without its initializers."""
        from onnx import ModelProto, helper

        copies = self._name_outputs()
        written: set[int] = set()
        for term, form in self.plan.forms.items():
            if id(form) not in written:
                written.add(id(form))
                self._write(term, form)
        for name, term in copies:
            self._node("Identity", [self._operand(term)], [name])
        inputs = [value_info(term.attr("name"), term.dtype, term.shape) for term in self.program.inputs]
        outputs = [value_info(name, term.dtype, term.shape) for name, term in self.program.outputs.items()]
        if self.following is not None:
            self._after(self.following)
            inputs, outputs = self.following.inputs(inputs), self.following.outputs(outputs)
        self._name_nodes()
        graph = helper.make_graph(self.nodes, "program", inputs, outputs, self.foreign, value_info=self.values)
        opsets = [helper.make_opsetid(domain, version) for domain, version in sorted(self.plan.opsets.items())]
        model = helper.make_model(
            graph,
            opset_imports=opsets,
            ir_version=helper.find_min_ir_version_for(opsets, ignore_unknown=True),
            producer_name="eqsat",
            producer_version=version(),
        )
        if self.program.header.spec is not None:
            model.MergeFrom(ModelProto.FromString(self.program.header.spec))
        return model

    def constants(self) -> list[tuple[str, Array]]:
        """The initializers of the model, each value once."""
        return list(self.stored.values())

    # Names

    def _name_outputs(self) -> list[tuple[str, Term]]:
        """Gives each output's term the output's name, and returns the outputs that must be copies of another value."""
        copies = []
        inputs = set(self.program.input_names)
        for name, term in self.program.outputs.items():
            if self.names.get(term) == name:
                continue
            if name in inputs:
                raise InputError(f"'{name}' is an input and another output of the program; rename one")
            if term in self.names or term.op == "constant":
                copies.append((name, term))
            else:
                self.names[term] = name
        return copies

    def _fresh(self, stem: str) -> str:
        while True:
            count = self.counts[stem] = self.counts.get(stem, -1) + 1
            name = f"{stem}_{count}"
            if name not in self.taken:
                self.taken.add(name)
                return name

    def _named(self, term: Term, stem: str) -> str:
        """The model's name for a value, if the program came from one, else a new one."""
        known = self.program.names.get(term)
        used = self.following is not None and known in self.following.made
        if known is None or used or known in self.program.outputs or known.startswith(MADE_BY_RUNTIME):
            return self._fresh(stem)
        return known

    def _name_nodes(self) -> None:
        """Names every node that has no name of its own after its first output.

        Runtimes refuse two nodes of one name, so the names in the source are taken first.
        """
        taken: set[str] = set()
        for node in self.nodes:
            if node.name in taken:
                node.name = ""
            taken.add(node.name)
        for node in self.nodes:
            if not node.name:
                first = next(name for name in node.output if name)
                others = (f"{first}_{i}" for i in count(1))
                node.name = next(name for name in chain([first], others) if name not in taken)
                taken.add(node.name)

    def _store(self, constant: ConstArray, name: Callable[[], str]) -> str:
        key = (constant.digest, constant.view.shape)
        if key not in self.stored:
            self.stored[key] = (name(), constant.array)
        return self.stored[key][0]

    # Nodes

    def _write(self, term: Term, form: Form) -> None:
        """The nodes of one form; a copy of a value that has a name already needs none."""
        if form.op == "Identity" and term not in self.names:
            self.names[term] = self._operand(form.inputs[0])
        elif isinstance(spec := form.attrs.get("spec"), OneNode):
            self._opaque(spec, form)
        elif isinstance(spec, FileNode):
            self._kept(spec, form)
        else:
            inputs = [self._operand(operand) for operand in form.inputs]
            outputs = [self._result(each, form.op) for each in form.outputs or (term,) if each is not None]
            self._node(form.op, inputs, outputs, form.attrs)

    def _operand(self, operand: Operand) -> str:
        match operand:
            case None:
                return ""
            case Param(array=array, role=role):
                return self._store(ConstArray(array), lambda: self._fresh(role))
            case Form() if operand in self.inner:
                return self.inner[operand]
            case Form(op=op, type=type_):
                inputs = [self._operand(inner) for inner in operand.inputs]
                name = self._fresh(op.lower())
                if type_ is not None:
                    shape, dtype = type_
                    self.values.append(value_info(name, dtype, shape))
                self._node(op, inputs, [name], operand.attrs)
                self.inner[operand] = name
                return name
            case Term(op="constant"):
                if operand not in self.names:
                    self.names[operand] = self._store(operand.attr("value"), lambda: self._named(operand, "constant"))
                return self.names[operand]
            case _:
                return self.names[operand]

    def _result(self, term: Term, op: str) -> str:
        """The name of a term that the current node computes."""
        if term not in self.names:
            self.names[term] = self._named(term, op.lower())
            self.values.append(value_info(self.names[term], term.dtype, term.shape))
        return self.names[term]

    def _node(self, op: str, inputs: Sequence[str], outputs: Sequence[str], attrs: Mapping[str, Any] = _NONE) -> None:
        from onnx import helper

        given = {name: value for name, value in attrs.items() if value is not None}
        self.nodes.append(helper.make_node(op, inputs, outputs, **given))

    def _kept(self, spec: FileNode, form: Form) -> None:
        """A node as the model that the program came from has it."""
        node = spec.proto()
        stem = node.op_type.lower()
        node.input[:] = [self._operand(operand) for operand in form.inputs]
        node.output[:] = [
            "" if not name else self._fresh(stem) if term is None else self._result(term, stem)
            for name, term in zip(node.output, form.outputs, strict=True)
        ]
        self.nodes.append(node)

    def _opaque(self, spec: OneNode, form: Form) -> None:
        """The original node, with the names of this model."""
        model = spec.proto()
        node = model.graph.node[0]
        stem = node.op_type.lower()
        made = {term.attr("index"): term for term in form.outputs if term is not None}
        outer = {
            value.name: self._operand(operand) for value, operand in zip(model.graph.input, form.inputs, strict=True)
        }
        for tensor in model.graph.initializer:
            outer[tensor.name] = self._parameter(tensor)
        named = iter(range(len(node.output)))
        outputs = []
        for name in node.output:
            term = made.get(next(named)) if name else None
            outputs.append("" if not name else self._result(term, stem) if term else self._fresh(stem))
        rename(node, outer, outputs, lambda: self._fresh(stem))
        node.name = ""
        self.nodes.append(node)

    def _after(self, following: Following) -> None:
        """The operators that follow the program, with the names of this model."""
        constants = {
            name: self._store(value, lambda name=name: name) for name, value in following.after.constants.items()
        }
        self.foreign.extend(following.foreign())
        self.nodes.extend(following.nodes(constants, self._fresh))

    def _parameter(self, tensor: TensorProto) -> str:
        if tensor.data_type in DTYPE_OF_CODE:
            array = tensor_array(tensor, None, tensor.name)
            return self._store(ConstArray(array), lambda: self._fresh("parameter"))
        tensor.name = self._fresh("parameter")
        self.foreign.append(tensor)
        return tensor.name
