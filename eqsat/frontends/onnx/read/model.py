"""ONNX models into programs.

Every node becomes terms by its row in the tables of `eqsat.frontends.onnx.operators`. A node without a row is folded if
it reads only constants, expanded by the operator's body in the ONNX standard, or else carried as an opaque term.
Nothing is dropped silently.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from eqsat.base.arguments import flag
from eqsat.errors import DtypeError, InputError, ShapeError, refusing
from eqsat.frontends.onnx.file.checks import check_depth, check_functions, check_texts
from eqsat.frontends.onnx.file.load import (
    CODE_OF_DTYPE,
    DTYPE_OF_CODE,
    NEWEST_OPSET,
    OLDEST_OPSET,
    code_name,
    embed_external,
    function_key,
    imported,
    label_of,
    look_at,
    read_model,
)
from eqsat.frontends.onnx.file.types import Declared, OpenDimensions, checked_sizes, declared, input_types
from eqsat.frontends.onnx.operators.node import Constants
from eqsat.frontends.onnx.read.convert import Converter, Follows, Value
from eqsat.frontends.onnx.read.graph import check_names
from eqsat.frontends.onnx.read.header import header_of
from eqsat.frontends.onnx.read.inline import inlined, means_the_same
from eqsat.frontends.onnx.read.tail import ONLY_HEAD, after, can_be_held, last_values
from eqsat.frontends.onnx.read.written import written
from eqsat.program import ops
from eqsat.program.ir import Program
from eqsat.program.sizes import check_size
from eqsat.program.term import Term

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, ModelProto, OperatorSetIdProto

    from eqsat.frontends.onnx.read.inline import Functions

    ModelSource = str | os.PathLike[str] | ModelProto
    """An ONNX file, or a model in memory."""


def from_onnx(
    source: str | os.PathLike[str] | ModelProto, shapes: Mapping[str, int] | None = None, *, head: bool = False
) -> Program:
    """The program that an ONNX model computes.

    An input with an initializer is a constant of the program: its default value is folded.

    Some operators make what no program can hold: values whose size is known only when they run (NonZero,
    NonMaxSuppression), sequences, maps, texts. With `head`, they and all that depends on them follow the program, and
    `to_onnx` writes them behind it as they were. The program then has the outputs that it computes, and ends with the
    values that these operators read; `program.header.after` names them.

    Args:
        source: a file, or a model in memory.
        shapes: sizes of open dimensions, by dimension name, by `input[axis]`, or by the name of an input that
            has only one of them.
        head: whether the program may be the part of the model before such operators.

    Raises:
        InputError: the message says in one line what is wrong with the model, where, and what to do. Without `head`,
            also where such operators are.
    """
    flag("from_onnx: head", head)
    with refusing(lambda: label_of(source)):
        return _read(*read_model(source), shapes, head)


def open_dimensions(source: str | os.PathLike[str] | ModelProto, shapes: Mapping[str, int] | None = None) -> list[str]:
    """The names of the open dimensions of a model's inputs (`input[axis]` for one without a name) besides those that
    have a size in `shapes`.

    Raises:
        InputError: as `from_onnx`.
    """
    with refusing(lambda: label_of(source)):
        open_dims, label = _dimensions(source, shapes)
        found, open_dims.unfixed = list(open_dims.unfixed), {}
        open_dims.check(label)
        return found


def named_sizes(source: str | os.PathLike[str] | ModelProto, shapes: Mapping[str, int]) -> dict[str, int]:
    """Those of `shapes` that name an open dimension of a model.

    Raises:
        InputError: as `from_onnx`.
    """
    with refusing(lambda: label_of(source)):
        used = _dimensions(source, shapes)[0].used
        return {name: size for name, size in shapes.items() if name in used}


def kinds(source: str | os.PathLike[str] | ModelProto) -> int:
    """How many nodes of a model differ in more than the numbers in their weights: in operator, attributes, or the sizes
    of the initializers that they read. Layers that repeat count once.

    Raises:
        InputError: as `from_onnx`.
    """
    with refusing(lambda: label_of(source)):
        graph = look_at(source)[0].graph
        sizes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
        return len(
            {
                (node.op_type, *(a.SerializeToString() for a in node.attribute), *map(sizes.get, node.input))
                for node in graph.node
                if not any(a.HasField("t") or a.HasField("g") for a in node.attribute)
            }
        )


def _dimensions(source: ModelSource, shapes: Mapping[str, int] | None) -> tuple[OpenDimensions, str]:
    """The open dimensions of a model's inputs, with sizes for some, and the model's name in errors."""
    model, label = look_at(source)
    open_dims = OpenDimensions(checked_sizes(shapes, label))
    stored = {tensor.name for tensor in model.graph.initializer}
    for value in model.graph.input:
        type_ = None if value.name in stored else declared(value)
        if type_ is not None and type_.shape is not None:
            open_dims.fix(type_)
    return open_dims, label


def _read(model: ModelProto, label: str, base: Path | None, shapes: Mapping[str, int] | None, head: bool) -> Program:
    open_dims = OpenDimensions(checked_sizes(shapes, label))
    opsets = _opsets(model.opset_import, label)
    header = header_of(model)
    check_depth(model.graph, label)
    check_texts(model.graph, label)
    graph, functions = _without_functions(model, opsets, label) if model.functions else (model.graph, {})
    if base is not None:
        embed_external(graph, base, label)
    check_names(graph, label)
    stored = {tensor.name for tensor in graph.initializer}
    given = [value for value in graph.input if value.name not in stored]
    unheld = [value for value in given if not can_be_held(value)] if head else []
    types = input_types([value for value in given if value not in unheld], open_dims, label, unheld)
    inputs = tuple(ops.input(type_.name, type_.static or (), DTYPE_OF_CODE[type_.code]) for type_ in types)
    for term in inputs:
        check_size(term, f"{label}: input '{term.attr('name')}'")
    types_of = {value.name: value for value in [*graph.value_info, *graph.output]}

    def declared_static(name: str) -> Declared | None:
        type_ = declared(types_of[name]) if name in types_of else None
        known = open_dims.known(type_) if type_ is not None else None
        return None if type_ is None or known is None else Declared(name, type_.code, known)

    converter = Converter(label, base, opsets, declared_static, Constants(), functions)
    split = converter.split(graph, {term.attr("name"): term for term in inputs}, [value.name for value in unheld])
    if split.first is not None and not head:
        raise Follows(f"{split.first}. {ONLY_HEAD}")
    if not graph.output:
        raise InputError(f"{label}: has no outputs; export the model again")
    values, ordered = split.env, split.before
    outputs = {
        value.name: _output(f"{label}: output '{value.name}'", values.get(value.name), declared(value), open_dims)
        for value in graph.output
        if value.name not in split.after
    }
    if split.after:
        own = [value for value in graph.input if value.name not in stored]
        following = after(split, own, list(graph.output), opsets, converter.constants, label)
        header = replace(header, after=following)
        outputs |= last_values(split, graph.output, inputs, converter.constants)
        if not outputs:
            input_types(given, open_dims, label)
            raise InputError(f"{label}: no part of it is a program of numbers; there is nothing to optimise")
    names: dict[Term, str] = {}
    for name, value in values.items():
        if isinstance(value, Term):
            names.setdefault(value, name)
    kept = [node for node in ordered if function_key(node) not in functions]
    nodes = written(kept, values, opsets, converter.constants)
    path = None if base is None else Path(label).absolute()
    return Program(inputs, outputs, names, tuple(nodes), path, header)


def _without_functions(model: ModelProto, opsets: dict[str, int], label: str) -> tuple[GraphProto, Functions]:
    """The graph with local functions inlined. Functions that mean something else at the model's opsets are returned
    instead. Domains that only functions import are added to `opsets`."""
    check_functions(model, label)
    alike: dict[tuple[str, str, str], FunctionProto] = {}
    others: dict[tuple[str, str, str], FunctionProto] = {}
    for function in model.functions:
        own = _opsets(function.opset_import, f"{label}: function '{function.name}'")
        same = means_the_same(function, opsets)
        (alike if same else others)[function.domain, function.name, function.overload] = function
        if same:
            opsets.update({**own, **opsets})
    graph = inlined(model.graph, alike)
    check_depth(graph, label)
    return graph, others


def _opsets(imports: Iterable[OperatorSetIdProto], label: str) -> dict[str, int]:
    """Domain to version; the main domain is ''. InputError if there is none, or one that the installed onnx lacks."""
    from onnx import defs

    found = imported(imports)
    newest = defs.onnx_opset_version()
    if not found:
        raise InputError(f"{label}: imports no opset; the file is truncated or damaged, fetch it again")
    if not 1 <= found.get("", newest) <= newest:
        raise InputError(
            f"{label}: opset {found['']} is not known (the installed onnx ends at {newest}); "
            f"export with opset {OLDEST_OPSET} to {NEWEST_OPSET}"
        )
    return found


def _output(where: str, value: Value | None, type_: Declared | None, open_dims: OpenDimensions) -> Term:
    """An output's term; InputError where the file declares another type for it."""
    if value is None:
        raise InputError(f"{where} is made by no node; check the graph's outputs")
    if not isinstance(value, Term):
        raise InputError(f"{where} has element type {value.dtype}, which programs do not have; cast it")
    if type_ is None:
        raise InputError(f"{where} is declared as no tensor; only tensor outputs are supported")
    if type_.code not in (0, CODE_OF_DTYPE[value.dtype]):
        raise DtypeError(f"{where} is declared {code_name(type_.code)} but computes {value.dtype}; correct one")
    known = open_dims.known(type_)
    if known is not None and not _fits(known, value.shape):
        raise ShapeError(f"{where} is declared {list(known)} but computes {list(value.shape)}; correct one")
    return value


def _fits(known: tuple[int | None, ...], shape: tuple[int, ...]) -> bool:
    return len(known) == len(shape) and all(n in (None, m) for n, m in zip(known, shape, strict=True))
