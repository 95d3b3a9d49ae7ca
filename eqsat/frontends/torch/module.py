"""Converts torch modules and functions to programs, in memory, by way of `torch.export`; and programs to modules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from keyword import iskeyword
from typing import Any

import numpy as np

from eqsat.base.arguments import instance, shown
from eqsat.errors import DtypeError, InputError, one_line
from eqsat.frontends.terms.declined import Declined
from eqsat.frontends.torch.calls import carried
from eqsat.frontends.torch.operators.row import Built
from eqsat.frontends.torch.operators.table import built
from eqsat.frontends.torch.operators.tensors import import_torch, refusing, to_numpy, type_of
from eqsat.frontends.torch.write import Writer
from eqsat.program import ops
from eqsat.program.ir import Program
from eqsat.program.term import Term


def from_torch(
    module: Any,
    *examples: Any,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    **keywords: Any,
) -> Program:
    """The program that a torch module or function computes at inference, for inputs with the examples' shapes and
    dtypes.

    Operators that eqsat does not know are carried as they are (`Program.opaque()`), and run by torch.

    Args:
        module: a torch.nn.Module, a function of tensors, or a torch.export.ExportedProgram, which takes no examples.
            Weights become constants. A module's training or evaluation mode is kept.
        examples, keywords: the arguments of a call: tensors or NumPy arrays, also within tuples, lists and dicts,
            become inputs; None, numbers and strings are fixed.
        input_names, output_names: names in the program. By default inputs are called after the parameters (`args_0`,
            `args_1` where the function is not written in Python), outputs after the keys or fields of the result.

    Raises:
        InputError: torch is not installed, an argument has the wrong type, torch cannot export the module, or the
            module changes a buffer or an input.
    """
    torch = import_torch()
    names = [_listed(names) for names in (input_names, output_names)]
    if isinstance(module, torch.export.ExportedProgram):
        if examples or keywords:
            raise InputError("from_torch: an ExportedProgram takes no examples; it has those that it was exported with")
        exported = module
    elif callable(module):
        exported = _exported(torch, module, _tensors(torch, examples), _tensors(torch, keywords))
    else:
        raise InputError(
            "from_torch takes a torch.nn.Module, a function or an ExportedProgram, and its arguments, "
            f"got {shown(module)}"
        )
    with refusing("torch cannot decompose the program into core operators"), _views_as_reshapes(torch, exported.graph):
        decomposed = exported.run_decompositions()
    return _program(torch, decomposed, *names)


def _listed(names: Sequence[str] | None) -> list[str] | None:
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise InputError(f"from_torch: names {shown(names)}: expected a list of strings, or None for torch's own")
    return list(names)


def _tensors(torch: Any, arguments: Any) -> Any:
    """Arguments with tensors in place of arrays."""
    try:
        return torch.utils._pytree.tree_map_only((np.ndarray, np.generic), torch.as_tensor, arguments)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"from_torch: an example is no tensor: {one_line(str(error))}") from None


def _exported(torch: Any, module: Any, args: Any, kwargs: Any) -> Any:
    """The module in evaluation mode, exported; or the function, as a module."""
    called = getattr(module, "__name__", type(module).__name__)
    whole = module
    if not isinstance(module, torch.nn.Module):
        forward = module if hasattr(module, "__code__") else _in_python(module)
        whole = type("Function", (torch.nn.Module,), {"forward": staticmethod(forward)})()
    modes = {part: part.training for part in whole.modules()}
    whole.eval()
    try:
        with refusing(f"torch cannot export {called}"), torch.no_grad():
            return torch.export.export(whole, args, kwargs, strict=False)
    finally:
        for part, training in modes.items():
            part.training = training


def _in_python(function: Any) -> Any:
    """A function of Python's own that calls another callable: torch exports no others."""
    return lambda *args, **keywords: function(*args, **keywords)


@contextmanager
def _views_as_reshapes(torch: Any, graph: Any) -> Iterator[None]:
    """Meanwhile, views are reshapes. A decomposition may lay out its result otherwise than the operator does, so that a
    view of it fails; programs know no strides."""
    views = graph.find_nodes(op="call_function", target=torch.ops.aten.view.default)
    for node in views:
        node.target = torch.ops.aten.reshape.default
    try:
        yield
    finally:
        for node in views:
            node.target = torch.ops.aten.view.default


def _program(torch: Any, exported: Any, input_names: list[str] | None, output_names: list[str] | None) -> Program:
    """A decomposed ExportedProgram as a program."""
    values: dict[Any, Built] = {}
    given = []
    placeholders = exported.graph.find_nodes(op="placeholder")
    for node, spec in zip(placeholders, exported.graph_signature.input_specs, strict=True):
        if spec.kind.name != "USER_INPUT":
            values[node] = _constant(exported, spec)
        elif isinstance(node.meta["val"], torch.Tensor):
            given.append(node)
    names = _names("input", input_names, [node.name for node in given])
    inputs = [ops.input(name, *type_of(node.meta["val"])) for name, node in zip(names, given, strict=True)]
    values |= zip(given, inputs, strict=True)
    for node in exported.graph.nodes:
        if node.op == "call_function" and node.users:  # others only assert what holds for these shapes
            values[node] = _built(node, values)
    found = _results(torch, exported, values)
    names = _names("output", output_names, list(found))
    return Program(tuple(inputs), dict(zip(names, found.values(), strict=True)))


def _constant(exported: Any, spec: Any) -> Term:
    """A parameter, a buffer, or a tensor that the module holds."""
    held = exported.state_dict if spec.target in exported.state_dict else exported.constants
    if spec.target not in held:
        raise InputError(f"from_torch: the program takes {spec.target}, which is no tensor")
    tensor = held[spec.target]
    type_of(tensor)
    return ops.constant(to_numpy(tensor))


def _built(node: Any, values: dict[Any, Built]) -> Built:
    """A call as terms: by its row, or carried."""
    try:
        return built(node, values)
    except (Declined, DtypeError):
        return carried(node, values)


def _results(torch: Any, exported: Any, values: dict[Any, Built]) -> dict[str, Term]:
    """What the module returns, by name: keys and fields, and places in tuples; None and numbers are left out.

    Raises:
        InputError: the module changes a buffer or an input, or returns no tensor.
    """
    pytree = torch.utils._pytree
    [end] = exported.graph.find_nodes(op="output")
    specs = exported.graph_signature.output_specs
    if changed := [spec.target for spec in specs if spec.kind.name != "USER_OUTPUT"]:
        raise InputError(
            f"from_torch: the module changes {', '.join(map(str, changed))} in place; programs only return"
        )
    shape = pytree.tree_unflatten(list(range(len(specs))), exported.call_spec.out_spec)
    paths = [path for path, _ in pytree.tree_leaves_with_path(shape)]
    found = {
        _name(pytree.keystr(path)): values[node]
        for path, node in zip(paths, end.args[0], strict=True)
        if isinstance(node, torch.fx.Node) and isinstance(node.meta["val"], torch.Tensor)
    }
    if not found:
        raise InputError("from_torch: the module returns no tensor")
    return found  # type: ignore[return-value]  # results of a module have no parts


def _name(path: str) -> str:
    """`hidden.0` for `['hidden'][0]`, `output_1` for the second tensor of a tuple."""
    name = ".".join(re.findall(r"\w+", path))
    return name if name and not name[0].isdigit() else f"output_{name or 0}"


def _names(what: str, given: list[str] | None, own: list[str]) -> list[str]:
    if given is not None and len(given) != len(own):
        raise InputError(f"from_torch: {len(given)} {what} names for {len(own)} {what}s ({', '.join(own)})")
    return own if given is None else given


def to_torch(program: Program) -> Any:
    """A program as a torch.nn.Module. Its constants are buffers.

    `forward` takes the inputs in their order, as tensors of their shapes and dtypes, and returns the output, or the
    outputs as a tuple in their order.

    Raises:
        InputError: torch is not installed, or has no operator for one that the program carries from ONNX.
    """
    instance("to_torch", program, Program, "a Program (eqsat.trace, from_onnx, from_torch)")
    return graph_module(program, "cpu")


def graph_module(program: Program, device: str) -> Any:
    """As `to_torch`, for tensors on a device."""
    torch = import_torch()
    graph = torch.fx.Graph()
    root = torch.nn.Module()
    values = {term: graph.placeholder(_identifier(i, term)) for i, term in enumerate(program.inputs)}
    results = Writer(root, graph, values, torch.device(device)).write(list(program.outputs.values()))
    graph.output(results[0] if len(results) == 1 else tuple(results))
    graph.eliminate_dead_code()
    return torch.fx.GraphModule(root, graph, "Program")


def _identifier(place: int, term: Term) -> str:
    """The input's name where Python can have a parameter of that name."""
    name = term.attr("name")
    return name if name.isidentifier() and not iskeyword(name) else f"input_{place}"
