"""Parts of FX graphs run by eqsat's own kernels, on the GPU where their tensors lie."""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from math import prod
from typing import Any

from eqsat.errors import InputError
from eqsat.extract.device.table import Device
from eqsat.frontends.torch.operators.tensors import import_torch
from eqsat.frontends.torch.read import Part
from eqsat.gpu.code.errors import DeviceFailed
from eqsat.gpu.run.arrays import on_gpu
from eqsat.gpu.run.cupy_runtime import this_machine
from eqsat.pipeline.result import Result


def gpu_of(name: str | None, inputs: Sequence[Any]) -> Device:
    """The row of the GPU that the kernels are made for.

    Args:
        name: the row that was asked for; None for the one nearest to the GPU.
        inputs: of the graph: tensors, or sizes.

    Raises:
        InputError: every tensor lies in host memory, CuPy is missing, or the row is about another instruction set.
    """
    torch = import_torch()
    tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
    if tensors and not any(map(on_gpu, tensors)):
        raise InputError(
            "codegen 'eqsat' runs kernels on a GPU, but all tensors lie in host memory: "
            "move the module and its inputs to the GPU, or use codegen 'inductor'"
        )
    return this_machine(name or "auto").row


def insert_kernels(graph_module: Any, part: Part, best: Result, held: Collection[Any], now: dict[Any, Any]) -> None:
    """Replace the results of a part by those of the kernels of its program.

    Args:
        held: nodes whose tensors come in the same memory at every call.
        now: the nodes that stand in place of others; gets those of the results.
    """
    torch, graph = import_torch(), graph_module.graph
    names = zip(best.source.input_names, part.inputs, strict=True)
    run = Kernels(best, [name for name, node in names if node in held], [node.meta["val"] for node in part.outputs])
    taken = sum(key.startswith("_eqsat_kernels_") for key, _ in graph_module.named_children())
    name = f"_eqsat_kernels_{taken}"
    graph_module.add_submodule(name, type("Kernels", (torch.nn.Module,), {"forward": staticmethod(run)})())
    [end] = graph.find_nodes(op="output")
    with graph.inserting_before(end):
        results = graph.call_module(name, tuple(now.get(node, node) for node in part.inputs))
        for i, node in enumerate(part.outputs):
            now[node] = graph.call_function(operator.getitem, (results, i))
            node.replace_all_uses_with(now[node])


class Kernels:
    """Compiled kernels as a function of torch's tensors, on torch's current stream.

    The kernels are replayed as one graph; they are launched one by one where the driver cannot record them.

    Args:
        held: names of inputs that come in the same memory at every call.
        like: tensors of the sizes and strides that the results have.
    """

    def __init__(self, best: Result, held: Collection[str], like: Sequence[Any]) -> None:
        self._best, self._records = best, True
        self._run = best.compile(on="gpu", capture=True, held=held)
        self._like = [(tuple(x.shape), x.stride()) for x in like]

    def __call__(self, *tensors: Any) -> tuple[Any, ...]:
        given = [x.detach() for x in tensors]  # DLPack refuses tensors that require gradients
        try:
            found = self._run(*given)
        except DeviceFailed:
            if not self._records:
                raise
            self._records, self._run = False, self._best.compile(on="gpu")
            found = self._run(*given)
        results = found if isinstance(found, tuple) else (found,)
        taken = {x.data_ptr() for x in given}
        placed = []
        for x, (shape, strides) in zip(results, self._like, strict=True):
            placed.append(_placed(x, shape, strides, x.data_ptr() in taken))
            taken.add(x.data_ptr())
        return tuple(placed)


def _placed(x: Any, shape: Sequence[int], strides: Sequence[int], shared: bool) -> Any:
    """A dense tensor in memory of its own, with these strides where they overlap nothing."""
    dense = tuple(prod(shape[i + 1 :]) for i in range(len(shape)))
    alike = all(a == b or n == 1 for a, b, n in zip(strides, dense, shape, strict=True))
    if alike or 0 in strides:
        return x.clone() if shared else x
    return import_torch().empty_strided(shape, strides, dtype=x.dtype, device=x.device).copy_(x)
