"""The backend of `torch.compile`: `torch.compile(model, backend="eqsat")`.

eqsat decides the algebra; what compiles the result is another backend of torch, by default Inductor. Graphs that torch
differentiates, graphs of symbolic sizes or with effects, and graphs in which nothing pays go to that backend untouched.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from eqsat.base.arguments import choice, flag, seconds, shown
from eqsat.base.time_budget import TimeBudget
from eqsat.errors import EqsatError, InputError
from eqsat.extract.device.table import DEVICES, Device
from eqsat.extract.device.table import device as find_device
from eqsat.frontends.torch.kernels import gpu_of
from eqsat.frontends.torch.operators.tensors import import_torch
from eqsat.frontends.torch.rewrite import rewritten, run_by_kernels
from eqsat.language.rule import Policy
from eqsat.pipeline.optimize import prepare

log = logging.getLogger(__name__)

UNTOUCHED = "a graph stays as it is: %s"

CODEGEN = ("inductor", "eager", "eqsat")
"""What compiles the operators that eqsat writes: a backend of torch. `eqsat` runs its own kernels instead."""


@dataclass(frozen=True)
class Options:
    """What `torch.compile(..., options={...})` may say.

    Attributes:
        codegen: what compiles the result. `inductor` is the default; `eager` runs operator by operator. `eqsat` runs
            the operators that it knows by its own kernels, on the GPU of the tensors; torch runs the others.
        freeze: whether parameters and buffers are constants, for inference with weights that no longer change.
        device: the row of prices; by default that of the tensors' device. Kernels need a row of its instruction set.
        time_limit: seconds for each graph, before it is compiled.
        numerics: as for `eqsat.optimize`.
    """

    codegen: str = "inductor"
    freeze: bool = False
    device: str | None = None
    time_limit: float = 10.0
    numerics: Policy = "reassociate"

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> Options:
        """The options, checked. Raises InputError for an unknown name or a value that does not fit."""
        given = given or {}
        names = [field.name for field in fields(cls)]
        for name in given:
            if name not in names:
                raise InputError(f"torch.compile: eqsat has no option {shown(name)}; use {', '.join(names)}")
        options = cls(**given)
        choice("codegen", options.codegen, CODEGEN)
        flag("freeze", options.freeze)
        choice("numerics", options.numerics, ("exact", "reassociate", "fast"))
        seconds("time_limit", options.time_limit)
        if options.device is not None:
            find_device(options.device)
        return options


def backend(
    module: Any, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, mode: str | None = None
) -> Callable[..., Any]:
    """Compile a graph that Dynamo traced; torch calls it as its backend `eqsat`.

    Args:
        module: the graph module.
        inputs: its arguments: tensors with their values, or sizes.
        options: see `Options`.
        mode: of Inductor.

    Raises:
        InputError: an option is unknown, or does not fit; or kernels are asked for where they cannot run.
    """
    torch = import_torch()
    asked = Options.of(options)
    gpu = gpu_of(asked.device, inputs) if asked.codegen == "eqsat" else None
    if torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs):
        log.info(UNTOUCHED, "torch differentiates it")
        return _compiled(module, inputs, asked.codegen, mode, freezing=False)
    prepare(asked.numerics)
    weights = _weights(torch, module, inputs)
    constants = weights if asked.freeze else {}
    budget = TimeBudget.of(asked.time_limit)
    try:
        if gpu:
            better = run_by_kernels(module, inputs, constants, weights, gpu, budget, asked.numerics)
        else:
            row = _row(torch, asked.device, inputs)
            better = rewritten(module, inputs, constants, row, budget, asked.numerics)
    except EqsatError as error:
        log.info(UNTOUCHED, error)
        better = None
    else:
        if better is None:
            log.info(UNTOUCHED, "no part of it is known" if gpu else "no part of it gains enough")

    def compiled() -> Callable[..., Any]:
        if constants:
            return _bound(torch, better or module, inputs, constants, asked, mode)
        return _compiled(better or module, inputs, asked.codegen, mode, freezing=False)

    return _without_autocast(torch, compiled) if better else compiled()


def _compiled(module: Any, inputs: Sequence[Any], codegen: str, mode: str | None, freezing: bool) -> Callable[..., Any]:
    """A graph module as another backend of torch compiles it."""
    if codegen != "inductor":
        return module.forward
    patches = import_torch("torch._inductor").list_mode_options(mode) if mode else {}
    inductor = import_torch("torch._inductor.compile_fx")
    return inductor.compile_fx(module, list(inputs), config_patches={**patches, "freezing": freezing})


def _without_autocast(torch: Any, compiling: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """Compile and run without autocast: the graph itself has every cast that autocast makes."""
    if not torch._C._is_any_autocast_enabled():
        return compiling()
    with torch._C._DisableAutocast():
        compiled = compiling()

    def run(*args: Any) -> Any:
        with torch._C._DisableAutocast():
            return compiled(*args)

    return run


def _row(torch: Any, name: str | None, inputs: Sequence[Any]) -> Device:
    """The row of prices that was asked for, or that of the tensors' device.

    Raises:
        InputError: no row is about that device, or there are several.
    """
    if name is not None:
        return find_device(name)
    places = {x.device for x in inputs if isinstance(x, torch.Tensor)}
    if {place.type for place in places} <= {"cpu"}:
        return find_device("cpu")
    if len(places) > 1 or {place.type for place in places} != {"cuda"}:
        raise InputError(f"no row of prices is about {', '.join(sorted(map(str, places)))}: name one as option device")
    properties = torch.cuda.get_device_properties(places.pop())
    arch = getattr(properties, "gcnArchName", "").split(":")[0] or f"sm_{properties.major}{properties.minor}"
    rows = [row for row in DEVICES.values() if row.arch == arch]
    if not rows:
        raise InputError(f"no row of prices is about {arch}: name one as option device")
    return find_device(min(rows, key=lambda row: abs(row.units.value - properties.multi_processor_count)).name)


def _weights(torch: Any, module: Any, inputs: Sequence[Any]) -> dict[int, Any]:
    """Parameters and buffers of modules among the inputs, by place: Dynamo keeps where each input comes from."""
    placeholders = module.graph.find_nodes(op="placeholder")
    given = [node.meta["grapharg"].source.name if "grapharg" in node.meta else "" for node in placeholders]
    held = [any(kind in name for kind in ("._parameters[", "._buffers[")) for name in given]
    return {i: x for i, x in enumerate(inputs) if isinstance(x, torch.Tensor) and held[i]}


def _bound(
    torch: Any, module: Any, inputs: Sequence[Any], constants: Mapping[int, Any], asked: Options, mode: str | None
) -> Callable[..., Any]:
    """A graph module, compiled as a function of its other inputs. The constants become attributes, which Inductor then
    freezes."""
    frozen = torch.fx.GraphModule(module, copy.deepcopy(module.graph))
    for i, node in enumerate(frozen.graph.find_nodes(op="placeholder")):
        if i in constants:
            frozen.register_buffer(f"_eqsat_frozen_{i}", constants[i].detach())
            with frozen.graph.inserting_before(node):
                node.replace_all_uses_with(frozen.graph.get_attr(f"_eqsat_frozen_{i}"))
            frozen.graph.erase_node(node)
    frozen.recompile()
    kept = [i for i in range(len(inputs)) if i not in constants]
    compiled = _compiled(frozen, [inputs[i] for i in kept], asked.codegen, mode, freezing=True)
    return lambda *args: compiled(*(args[i] for i in kept))
