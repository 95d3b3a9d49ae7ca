"""Graphs of core ATen operators from modules that Dynamo traced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from eqsat.errors import InputError
from eqsat.frontends.torch.operators.row import bound
from eqsat.frontends.torch.operators.tensors import import_torch, refusing


def captured(module: Any, inputs: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The graph of core ATen operators that a module of Dynamo runs on these tensors, with views and without mutation.

    Its nodes have example values (`meta["val"]`), and its placeholders are those of the module.

    Returns:
        The graph module, and fake tensors that stand for the inputs.

    Raises:
        InputError: an input has a symbolic size, torch cannot trace the module, or the module changes an input, draws
            random numbers, differentiates, maps over a batch or has other effects.
    """
    torch = import_torch()
    if not all(isinstance(x, torch.Tensor) and all(isinstance(n, int) for n in x.shape) for x in inputs):
        raise InputError("eqsat takes tensors of fixed shapes: torch.compile(..., dynamic=False) recompiles for others")
    if level := _level(torch, module):
        raise InputError(f"{level} is a part of torch.func, which is left to torch")
    mode = torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True)
    fakes = [mode.from_tensor(x, static_shapes=True) for x in inputs]
    with torch._guards.tracing(None), mode, refusing("torch cannot trace a graph"):
        module = _traced(torch, module, fakes, _decompositions())
        if _effect(torch, module):  # some decompositions change what they made
            module = _traced(torch, module, fakes, {})
    if effect := _effect(torch, module):
        raise InputError(f"{effect} changes a tensor in place, draws random numbers or has other effects")
    for node in module.graph.find_nodes(op="get_attr"):
        held = getattr(module, node.target)
        if isinstance(held, torch.Tensor):  # and no graph that an operator such as `cond` runs
            node.meta["val"] = held
    return module, fakes


def _level(torch: Any, module: Any) -> str | None:
    """The name of a call that opens or closes a level of `torch.func`, as Dynamo writes out `grad`, `jvp` and `vmap`;
    None if there is none. Levels have numbers, which are others within the level that functionalises."""
    parts = module.modules() if isinstance(module, torch.nn.Module) else ()
    graphs = [part.graph for part in parts if isinstance(part, torch.fx.GraphModule)]
    targets = (node.target for graph in graphs for node in graph.nodes if node.op == "call_function")
    return next((target.__name__ for target in targets if "_functorch" in str(getattr(target, "__module__", ""))), None)


def _traced(torch: Any, module: Any, fakes: Sequence[Any], table: Mapping[Any, Any]) -> Any:
    """The graph of a module, without mutation of what it makes."""
    make_fx = import_torch("torch.fx.experimental.proxy_tensor").make_fx
    traced = make_fx(torch.func.functionalize(module, remove="mutations"), decomposition_table=table)(*fakes)
    traced.graph.eliminate_dead_code()
    return traced


def _effect(torch: Any, module: Any) -> Any:
    """An operator of a graph that does more than compute its result; None if there is none."""
    calls = (node for node in module.graph.nodes if node.op == "call_function")
    return next((node.target for node in calls if _has_effects(torch, node)), None)


_WHOLE = ("_scaled_dot_product", "upsample_")


@cache
def _decompositions() -> dict[Any, Any]:
    """Torch's own, except those of attention and resized images, which are one operator here too."""
    table = dict(import_torch("torch._decomp").core_aten_decompositions().items())
    return {op: row for op, row in table.items() if not any(name in str(op) for name in _WHOLE)}


def _has_effects(torch: Any, node: Any) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload):
        return node.is_impure()
    return node.target._schema.is_mutable or _is_random(torch, node)


def _is_random(torch: Any, node: Any) -> bool:
    """Whether a call draws random numbers; attention does so for dropout alone."""
    drops = bound(node.target._schema, node.args, node.kwargs).get("dropout_p")
    return torch.Tag.nondeterministic_seeded in node.target.tags and drops != 0
